"""Artifacts of alerts and cases: expanded from requests, told apart by their data, kept within bounds."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.field_types import MAX_ARTIFACT_TAGS, MAX_ARTIFACTS
from core.models import Alert, Artifact, ArtifactInput, ArtifactsInput, ArtifactTarget, Attachment, Case
from core.records.writes import insert_children, made, record_event
from core.store import actions, attachments, objects, texts

# A request of 1 MiB can ask for a text to be stored thousands of times: with each artifact, or each of many alerts.
COPIED_LIMIT_CHARS = 8 * 1_048_576
ARTIFACT_CHARS = 256  # what an artifact takes besides its texts

KIND: Literal["case_artifact"] = "case_artifact"


def expand_artifacts(
    requested: Sequence[ArtifactsInput], *, times: int = 1, more_chars: int = 0
) -> list[ArtifactInput]:
    """One artifact for each entry of `data`.

    They will be stored `times` times, with `more_chars` further characters. Raises ResponderBotError: too_large if that
    is over the limit, bad_request for too many artifacts.
    """
    shared = (
        (len(item.data), ARTIFACT_CHARS + len(item.message or "") + sum(map(len, item.tags))) for item in requested
    )
    if sum(len(item.data) for item in requested) > MAX_ARTIFACTS:
        raise ResponderBotError("bad_request", f"The request has over {MAX_ARTIFACTS} artifacts; send fewer at once.")
    if times * (more_chars + sum(count * chars for count, chars in shared)) > COPIED_LIMIT_CHARS:
        sentence = f"The artifacts to store are over the limit of {COPIED_LIMIT_CHARS} characters; send fewer at once."
        raise ResponderBotError("too_large", sentence)
    return [artifact for item in requested for artifact in item.expand()]


def store_files(tx: Transaction, requested: Iterable[ArtifactInput]) -> list[ArtifactInput]:
    """The artifacts with their files stored. Raises ResponderBotError("bad_request") for an unknown file."""
    return [
        item.model_copy(update={"attachment": _stored_file(tx, item.data), "is_file": False}) if item.is_file else item
        for item in requested
    ]


def identity(artifact: ArtifactInput | Artifact) -> tuple[str, ...]:
    """Equal for two artifacts that are the same: data type, and data or file."""
    if artifact.attachment is not None:
        return artifact.data_type, "file", artifact.attachment.id
    return artifact.data_type, artifact.data or ""


def artifact_of(number: int, requested: ArtifactInput, user: str, now: int) -> Artifact:
    """The artifact of a request, with a number; not stored yet."""
    file, start_date = requested.attachment, now if requested.start_date is None else requested.start_date
    if file is None:
        named: dict[str, Any] = {"target": ArtifactTarget.of(requested.data_type, requested.data)}
    else:
        named = {"data": None, "target": ArtifactTarget(kind="file", value=file.id)}
    return Artifact(**{**vars(requested), **made(number, user, now), **named, "start_date": start_date})


def add_to_case(
    tx: Transaction,
    case: Case,
    requested: Sequence[ArtifactInput],
    user: str,
    now: int,
    is_hidden: Callable[[int], object] = lambda tlp: False,
) -> list[Artifact]:
    """Add artifacts to a case, all or none.

    A known one whose TLP `is_hidden` from the caller stays unchanged, and the response looks as if it were new. Raises
    ResponderBotError: exists if the case has one of the others already, bad_request for an unknown file.
    """
    root, requested = case.number, store_files(tx, requested)
    keys = [_unique_key(root, item) for item in requested]
    known = objects.by_unique_keys(tx, KIND, keys)
    hidden = {key: int(row["id"]) for key, row in known.items() if is_hidden(objects.parsed(row["doc"])["tlp"])}
    seen = known.keys() - hidden.keys()
    for key, item in zip(keys, requested, strict=True):
        if key in seen:
            raise ResponderBotError("exists", f"The case {case.id} has this {item.data_type} already.")
        seen.add(key)
    new = [key for key in keys if key not in hidden]
    numbers = {**hidden, **dict(zip(new, objects.next_ids(tx, len(new)), strict=True))}
    artifacts = [artifact_of(numbers[key], item, user, now) for key, item in zip(keys, requested, strict=True)]
    shown = {key: artifact for artifact, key in zip(artifacts, keys, strict=True) if key not in hidden}
    _insert(tx, root, shown, user, now)
    return artifacts


def _insert(tx: Transaction, case: int, new: Mapping[str, Artifact], user: str, now: int) -> None:
    """Add artifacts, by their unique keys, to the case with that number."""
    rows = [objects.NewObject(artifact.number, artifact.to_json(), key) for key, artifact in new.items()]
    insert_children(tx, KIND, rows, case, user, now)
    for artifact in new.values():
        attachments.save(tx, artifact.number, [artifact])


def _unique_key(case: int, artifact: ArtifactInput | Artifact) -> str:
    """A hash, since data may be long."""
    return hashlib.sha256(json.dumps([case, *identity(artifact)]).encode()).hexdigest()


# --- artifacts of alerts and cases ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact, and where it is stored: in its case or, where there is none, in its alert."""

    artifact: Artifact
    alert: Alert | None
    """None where it is in a case."""
    case_id: int | None


def find(reads: Reads, object_id: int) -> StoredArtifact | None:
    """The artifact with this id, or that had it in an alert before it was merged with an equal one."""
    row, link = objects.find(reads, KIND, object_id), None
    if row is None:
        link = objects.find_alert_artifact(reads, object_id)
        if link is None:
            return None
        row = objects.find(reads, KIND, link["artifact_id"])
    if row is not None:
        return StoredArtifact(Artifact.model_validate(objects.parsed(row["doc"])), None, row["parent_id"])
    alert = None if link is None else _alert(reads, link["alert_id"])
    shown = None if alert is None else next((item for item in alert.artifacts if item.id == f"~{object_id}"), None)
    return None if shown is None else StoredArtifact(shown, alert, None)


def load(reads: Reads, object_id: int) -> StoredArtifact:
    """As `find`. Raises ResponderBotError("not_found")."""
    stored = find(reads, object_id)
    if stored is None:
        raise objects.missing(KIND)
    return stored


def current_number(reads: Reads, object_id: int) -> int | None:
    """The current number of the artifact that has or had this number; None if there is none."""
    link = objects.find_alert_artifact(reads, object_id)
    if link is not None:
        return int(link["artifact_id"])
    return object_id if objects.exists(reads, KIND, object_id) else None


def save(tx: Transaction, artifact: Artifact, user: str, now: int) -> Artifact:
    """Store a changed artifact, everywhere it is shown; returns it with who changed it and when."""
    saved = artifact.model_copy(update={"updated_by": user, "updated_at": now})
    stored = load(tx, artifact.number)
    if stored.alert is not None:
        root = stored.alert.number
        _show_in(tx, stored.alert, saved)
    else:
        root = stored.case_id or 0
        _save_in_case(tx, saved, user, now)
    record_event(tx, KIND, "updated", saved.number, root, user, now)
    return saved


def with_new_type(tx: Transaction, stored: StoredArtifact, changed: Artifact) -> Artifact:
    """Make an artifact unique under its new data type; returns it with what it names as one of that type.

    Raises ResponderBotError: exists if its case or alert has an equal one, bad_request for a file.
    """
    if changed.data_type == "file" or changed.attachment is not None:
        sentence = "The dataType of a file can't be changed, nor can a text become a file; add a new artifact instead."
        raise ResponderBotError("bad_request", sentence)
    number = changed.number
    shown_in = (
        [_alert(tx, alert_id) for alert_id in objects.alerts_with(tx, number)]
        if stored.alert is None
        else [stored.alert]
    )
    for alert in shown_in:
        if alert is not None and identity(changed) in map(identity, alert.artifacts):
            raise ResponderBotError("exists", f"The alert {alert.id} has this {changed.data_type} already.")
    if stored.case_id is not None:
        key = _unique_key(stored.case_id, changed)
        if objects.find_unique(tx, KIND, key) is not None:
            raise ResponderBotError("exists", f"The case ~{stored.case_id} has this {changed.data_type} already.")
        objects.set_unique_key(tx, number, key)
    return changed.model_copy(update={"target": ArtifactTarget.of(changed.data_type, changed.data or "")})


def save_shown(tx: Transaction, alert: Alert, changed: Iterable[Artifact], user: str, now: int) -> None:
    """Store artifacts that were changed through an alert also in its case, and in the other alerts there."""
    for artifact in changed:
        row = objects.find(tx, KIND, artifact.number)
        if row is not None:
            _save_in_case(tx, artifact, user, now, but=alert.number)
            record_event(tx, KIND, "updated", row["id"], row["parent_id"], user, now)


def _save_in_case(tx: Transaction, artifact: Artifact, user: str, now: int, *, but: int | None = None) -> None:
    """Store an artifact in its case and in the case's alerts, except one."""
    objects.update(tx, artifact.number, artifact.to_json())
    for number in objects.alerts_with(tx, artifact.number):
        alert = None if number == but else _alert(tx, number)
        if alert is not None and _show_in(tx, alert, artifact):
            record_event(tx, "alert", "updated", number, number, user, now)


def _show_in(tx: Transaction, alert: Alert, artifact: Artifact) -> bool:
    """Put a changed artifact into an alert that has it."""
    changed = [artifact if item.id == artifact.id else item for item in alert.artifacts]
    if changed == alert.artifacts:
        return False
    saved = alert.model_copy(update={"artifacts": changed})
    objects.update(tx, alert.number, saved.to_json())
    texts.save(tx, saved)
    return True


def _alert(reads: Reads, number: int) -> Alert | None:
    row = objects.find(reads, "alert", number)
    return None if row is None else Alert.model_validate(objects.parsed(row["doc"]))


def move_to_case(
    tx: Transaction, case: Case, alert: Alert, user: str, now: int, is_hidden: Callable[[int], object]
) -> list[Artifact]:
    """Add an alert's artifacts to a case, under their ids and with the actions on them.

    One that the case has already is merged into it, and its id refers to that one from then on. The case's own stays
    unchanged if its TLP `is_hidden` from the caller. Returns the new artifacts of the alert.
    """
    root, new, replaced = case.number, dict[str, Artifact](), dict[int, int]()
    keys = [_unique_key(root, artifact) for artifact in alert.artifacts]
    known = {
        key: Artifact.model_validate(objects.parsed(row["doc"]))
        for key, row in objects.by_unique_keys(tx, KIND, keys).items()
    }
    before = dict(known)
    for key, artifact in zip(keys, alert.artifacts, strict=True):
        if key in known:
            replaced[artifact.number] = known[key].number
            known[key] = _joined(known[key], artifact, is_hidden)
        else:
            known[key] = artifact
        if key not in before:
            new[key] = known[key]
    _insert(tx, root, new, user, now)
    for key, artifact in before.items():
        if known[key] != artifact:
            known[key] = save(tx, known[key], user, now)
    objects.replace_artifacts(tx, replaced)
    actions.move_artifacts(tx, {**{artifact.number: artifact.number for artifact in new.values()}, **replaced}, root)
    return [known[key] for key in dict.fromkeys(keys)]


def _joined(kept: Artifact, equal: Artifact, is_hidden: Callable[[int], object]) -> Artifact:
    """The artifact that two equal ones are merged into; it has the higher TLP."""
    tlp = max(kept.tlp, equal.tlp)
    if is_hidden(kept.tlp):
        return kept.model_copy(update={"tlp": tlp})
    changed = {
        "tlp": tlp,
        "tags": list(dict.fromkeys([*kept.tags, *equal.tags]))[:MAX_ARTIFACT_TAGS],
        "ioc": kept.ioc or equal.ioc,
        "sighted": kept.sighted or equal.sighted,
        "message": equal.message if kept.message is None else kept.message,
    }
    return kept.model_copy(update=changed)


# --- their files; equal contents are stored once, under their SHA-256 -------------------------------------------------


FILE = "file"
STORED_PREFIX = "sha256:"  # in place of the content: the id of a file that is stored already


def _stored_file(tx: Transaction, text: str) -> Attachment | None:
    """Store the file in `name;type;content`, with its content in base64; None if the text isn't one.

    In place of its content, `sha256:<id>` names a file that is stored already. Raises ResponderBotError("bad_request")
    if there is none with that id.
    """
    parts = text.split(";")
    if len(parts) != 3 or not parts[0]:
        return None
    name, kind, content = parts
    if content.startswith(STORED_PREFIX):
        return _known_file(tx, name, kind, content.removeprefix(STORED_PREFIX))
    try:
        raw = base64.b64decode(content, validate=True)
    except ValueError:  # also for characters beyond ASCII
        return None
    return _new_file(tx, name, kind, raw, content)


def file_content(reads: Reads, file_id: str) -> bytes:
    """The bytes of a file. Raises ResponderBotError("not_found")."""
    row = objects.find_unique(reads, FILE, file_id)
    if row is None:
        raise ResponderBotError("not_found", "File not found")
    return base64.b64decode(objects.parsed(row["doc"])["content"])


def _known_file(tx: Transaction, name: str, kind: str, file_id: str) -> Attachment:
    row = objects.find_unique(tx, FILE, file_id)
    if row is None:
        raise ResponderBotError("bad_request", f"There is no file {file_id[:64]}; send the file itself.")
    doc = objects.parsed(row["doc"])
    return Attachment(name=name, hashes=doc["hashes"], size=doc["size"], content_type=kind, id=file_id)


def _new_file(tx: Transaction, name: str, kind: str, raw: bytes, content: str) -> Attachment:
    file_id = hashlib.sha256(raw).hexdigest()
    weak = [hashlib.new(digest, raw, usedforsecurity=False).hexdigest() for digest in ("sha1", "md5")]
    attachment = Attachment(name=name, hashes=[file_id, *weak], size=len(raw), content_type=kind, id=file_id)
    if objects.find_unique(tx, FILE, file_id) is None:
        doc = json.dumps({"hashes": attachment.hashes, "size": attachment.size, "content": content})
        objects.insert(tx, objects.next_id(tx), FILE, doc, unique_key=file_id)
    return attachment
