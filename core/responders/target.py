"""The object that a responder runs on, with its levels, the JSON that the responder gets and what it names.

A run stores its target when it is requested, and gets that and nothing else
(core/docs/semantics.md#a-run-is-bound-to-its-target).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic_core import from_json

from core.common.database import Reads, Row
from core.common.errors import ResponderBotError
from core.common.words import some_of
from core.models import (
    KINDS,
    OBJECT_TYPES,
    RED,
    TLP_NAMES,
    Action,
    Kind,
    TargetArtifact,
    is_same_target,
    number_of,
    parse_id,
)
from core.protection import Parsed, look_of
from core.records import artifacts
from core.store import objects

_OBJECTS: Mapping[Kind, str] = {
    **{"alert": "an alert", "case": "a case", "case_task": "a task", "case_task_log": "a log"},
    "case_artifact": "an artifact",
}
_TYPE_NAMES = {
    **{"hostname": "host", "fqdn": "host", "ip": "address", "mail": "mail address", "url": "URL"},
    **{"mail-address": "mail address", "username": "account", "user": "account"},
}
"""Data types as people say them."""
MAX_SHOWN = 100  # artifacts to choose from, as many as a menu in Slack has
SHOWN_NAMES = 10  # of them in a sentence
SHOWN_CHARS = 100
MESSAGE_CHARS = 2_000
CORRECT = "correct the observable"
CHOOSE = "choose another target"
HIDDEN = "an observable that you may not see can't be a target"

_PARENTS: Mapping[Kind, Kind] = {"case_task": "case", "case_task_log": "case_task"}


@dataclass(frozen=True)
class Target:
    """An object that a responder runs on.

    `tlp` and `pap` are the levels that count: a task and a log have those of their case, an artifact its own TLP and
    the PAP of its case or, without one, its alert (core/docs/semantics.md#levels-that-count).
    """

    kind: Kind
    id: int
    root_id: int
    """The number of the alert or case that it belongs to."""
    tlp: int
    pap: int
    json: Mapping[str, Any]
    """As the interface shows it, with its parents (core/docs/semantics.md#what-a-responder-gets)."""
    data_type: str = ""
    """The data type of an artifact, such as `ip`."""
    root_tlp: int = 0
    """The TLP of an artifact's alert or case."""
    stored: Mapping[str, int] | None = None
    """The TLP of each artifact of a stored target, by `_digest`."""
    acts_on: Sequence[TargetArtifact] | None = None
    """The artifacts that a run acts on; None if it may act on anything in the object."""

    @property
    def clearance(self) -> int:
        """The clearance that a user needs to act on it and its runs: the higher TLP of it and of its alert or case."""
        return max(self.tlp, self.root_tlp)

    @property
    def object_type(self) -> str:
        return OBJECT_TYPES[self.kind]

    def with_parents(self) -> Iterator[Mapping[str, Any]]:
        """Its JSON, then that of each object that it is in; of the case of an imported alert only the id is known."""
        doc: Any = self.json
        while isinstance(doc, Mapping):
            yield doc
            doc = next((doc[key] for key in ("case_task", "case", "alert") if isinstance(doc.get(key), Mapping)), None)


class TargetOfRun(NamedTuple):
    """What a stored action runs on."""

    now: Target
    """The object as it is now."""
    asked: Target
    """The object as it was when the run was requested, which the responder gets."""
    changed: str
    """Why the run may no longer start on it, or `""`."""


def applies(data_types: Iterable[str], kind: Kind, data_type: str = "") -> bool:
    """Whether a responder is for this kind of object, or for artifacts of this data type.

    Letter case and the product prefix (`thehive:`) don't count; data types have no prefix.
    """
    of_data = data_type.lower()
    if of_data in KINDS or ":" in of_data:
        of_data = ""
    names = [name.lower() for name in data_types]
    return any(name.rpartition(":")[2] == kind or (of_data and name == of_data) for name in names)


class TargetTypes(NamedTuple):
    """The data types of what a responder acts on."""

    names: Sequence[str] = ()
    """Empty if nobody has declared them."""
    is_required: bool = False
    """Whether a run has to say which of several that fit it is to act on."""
    why_not: Callable[[Parsed], str] = lambda _: ""
    """Why a run can't act on a target, as a sentence without its full stop, or `""`."""


class Unfit(NamedTuple):
    """Why no run can act on an artifact, as a sentence without its full stop, and what to do."""

    problem: str
    lift: str


def fitting(target: Target, types: TargetTypes) -> Sequence[TargetArtifact] | None:
    """The artifacts that a run on this can act on; None if it may act on anything.

    A run on an artifact acts on that. What runs on a case, a task or a log looks for the artifacts by itself.
    """
    found = _of_types(target, types)
    if found is None:
        return None
    named_artifacts = ((artifact, named_by(artifact)) for artifact in found)
    return [
        _acted_on(artifact, named)
        for artifact, named in named_artifacts
        if named is not None and not types.why_not(named)
    ]


def unfit(target: Target, types: TargetTypes, clearance: int) -> Mapping[str, Unfit]:
    """By id the artifacts of these types that no run can act on; the reasons show nothing above `clearance`."""
    found: dict[str, Unfit] = {}
    for artifact in _of_types(target, types) or ():
        named, is_seen = named_by(artifact), artifact["tlp"] <= clearance
        if named is None:
            found[artifact["id"]] = Unfit(artifact["target"]["problem"] if is_seen else HIDDEN, CORRECT)
        elif problem := types.why_not(named):
            found[artifact["id"]] = Unfit(problem if is_seen else HIDDEN, CHOOSE)
    return found


def _of_types(target: Target, types: TargetTypes) -> Sequence[Mapping[str, Any]] | None:
    if target.kind == artifacts.KIND:
        return [target.json] if not types.names or _is_of(types, target.data_type) else []
    if target.kind != "alert" or not types.names:
        return None
    return [artifact for artifact in target.json["artifacts"] if _is_of(types, artifact["dataType"])]


def why_none_fits(target: Target, types: TargetTypes) -> str:
    """The reason why a responder that acts on these types can't run on this, or `""`."""
    if _of_types(target, types) != []:
        return ""
    return f"this {'observable is' if target.kind == artifacts.KIND else 'alert names'} no {_any_of(types)}"


class OpenRun(NamedTuple):
    """A run on an object that has not ended."""

    how_far: str
    """Such as "already running since ..., started by anna; ..."."""
    acts_on: Sequence[TargetArtifact] = ()
    """Empty if nobody knows what it acts on."""


def overlap(some: Iterable[TargetArtifact], others: Iterable[TargetArtifact]) -> bool:
    """Whether runs on these artifacts of an object act on what may be the same; without any it may be anything."""
    (on, label), (on_others, other_label) = map(_looks, (some, others))
    is_same = bool(on & (on_others | other_label) or label & on_others)
    return is_same or not on or not on_others


def _looks(acts_on: Iterable[TargetArtifact]) -> tuple[Set[str], Set[str]]:
    """How these look as a whole, and by the first labels of full names (core/docs/guards.md#what-may-be-the-same)."""
    looks = [look_of(Parsed(one.kind, one.data.strip())) for one in acts_on]
    return {whole for look in looks for whole in look.whole}, {label for look in looks for label in look.label}


def acted_on(acts_on: Sequence[TargetArtifact] | None, target: Target) -> Mapping[str, Parsed]:
    """What a run acts on, by the ids of these artifacts of its target; empty if nobody knows."""
    ids = [artifact.id for artifact in acts_on or ()]
    items = [target.json] if target.kind == artifacts.KIND else target.json.get("artifacts", ())
    if len(items) == 1 and len(ids) == 1:  # which may have got another id since
        named = {ids[0]: named_by(items[0])}
    else:
        named = {item["id"]: named_by(item) for item in items if item["id"] in ids}
    return {id_: one for id_, one in named.items() if one is not None}


def stored_artifacts(row: Row) -> Sequence[Mapping[str, Any]]:
    """The artifacts that an action on an object gets."""
    found: Sequence[Mapping[str, Any]] = from_json(row["target"])["json"].get("artifacts", ()) if row["target"] else ()
    return found


def named_by(artifact: Mapping[str, Any]) -> Parsed | None:
    """The target that an artifact names, as it is stored; None if it names nothing."""
    stored = artifact["target"]
    return Parsed(stored["kind"], stored.get("value", artifact.get("data"))) if "kind" in stored else None


def acting_on(target: Target, types: TargetTypes, chosen: Sequence[str], clearance: int = RED) -> Target:
    """The target of a run that is to act on these artifacts (`chosen`: ids or data), or on the only one that fits.

    An alert is given to the responder without the others that fit. Raises ResponderBotError("bad_request"), with
    those that fit as `targets` if one of them has to be chosen; not with those above `clearance`.
    """
    found = fitting(target, types)
    if found is None:
        if chosen:
            what = f"nobody has declared what it acts on in {_OBJECTS[target.kind]}"
            raise ResponderBotError("bad_request", f"target can't be chosen here: {what}; run it on the artifact.")
        return target
    problems = unfit(target, types, clearance)
    if not found and problems:
        raise _none_fits(problems.values())
    if not chosen:
        if types.is_required and len(found) != 1:
            raise _not_chosen(found, (), problems, clearance)
        return _only(target, types, found)
    unknown = [text for text in chosen if not _meant(text, found)]
    if unknown:
        raise _not_chosen(found, unknown, problems, clearance)
    meant = [artifact for text in chosen for artifact in _meant(text, found)]
    return _only(target, types, [artifact for artifact in found if artifact in meant])


def _none_fits(problems: Iterable[Unfit]) -> ResponderBotError:
    reasons, lifts = zip(*problems, strict=True)
    sentence = f"{'; '.join(reasons[:SHOWN_NAMES])}; {lifts[0]}."
    return ResponderBotError("bad_request", sentence, details={"rule": "target"})


def _not_chosen(
    found: Sequence[TargetArtifact], unknown: Sequence[str], problems: Mapping[str, Unfit], clearance: int
) -> ResponderBotError:
    """The error of a request that names what is none of those that fit (`unknown`), or nothing although several do."""
    shown = [artifact for artifact in found if artifact.tlp <= clearance][:MAX_SHOWN]
    names = some_of([f"{one.data[:SHOWN_CHARS]} ({one.id})" for one in shown], SHOWN_NAMES, len(found))
    which = f"{unknown[0][:SHOWN_CHARS]} is none of those that it can act on" if unknown else "several fit"
    which = next((one.problem for id_, one in problems.items() if id_ in unknown), which)
    return ResponderBotError(
        "bad_request",
        f"Choose what it should act on, as target; {which}: {names}.",
        details={"targets": [json.loads(artifact.to_json()) for artifact in shown]},
    )


def _only(target: Target, types: TargetTypes, chosen: Sequence[TargetArtifact]) -> Target:
    """The target with these artifacts in their canonical form, without others that fit and what names nothing."""
    data = {artifact.id: artifact.data for artifact in chosen if artifact.kind != "file"}
    if target.kind == artifacts.KIND:
        (shown,) = _with_data([target.json], data)
        if "alert" in shown:  # which has this artifact alone
            shown = {**shown, "alert": {**shown["alert"], "artifacts": _with_data(shown["alert"]["artifacts"], data)}}
        return replace(target, json=shown, acts_on=chosen)
    left_out = {artifact["id"] for artifact in _of_types(target, types) or ()} - {artifact.id for artifact in chosen}
    kept = [
        artifact
        for artifact in target.json["artifacts"]
        if artifact["id"] not in left_out and named_by(artifact) is not None
    ]
    return replace(target, json={**target.json, "artifacts": _with_data(kept, data)}, acts_on=chosen)


def _with_data(shown: Iterable[Mapping[str, Any]], data: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return [{**artifact, "data": data[artifact["id"]]} if artifact["id"] in data else artifact for artifact in shown]


def _acted_on(artifact: Mapping[str, Any], named: Parsed) -> TargetArtifact:
    """It has its canonical form as `data`; text has what was sent, and a file its name."""
    data = artifact["attachment"]["name"] if named.kind == "file" else artifact["data"]
    data = data if named.kind in ("file", "text") else named.value
    data_type, tlp = artifact["dataType"], artifact["tlp"]
    message = artifact.get("message") or ""
    said = message if len(message) <= MESSAGE_CHARS else None  # cut, it could end within what is to be withheld
    return TargetArtifact(
        id=artifact["id"], data_type=data_type, data=data, tlp=tlp, kind=named.kind, message=said or None
    )


def _is_of(types: TargetTypes, data_type: str) -> bool:
    return data_type.lower() in {name.lower() for name in types.names}


def _meant(text: str, found: Sequence[TargetArtifact]) -> Sequence[TargetArtifact]:
    """The artifacts that a request means by an id, or by data; a file only by its id."""
    if parse_id(text) is not None:
        return [artifact for artifact in found if artifact.id == text]
    return [
        artifact
        for artifact in found
        if artifact.kind != "file" and is_same_target(artifact.data_type, artifact.data, text)
    ]


def _any_of(types: TargetTypes) -> str:
    return " or ".join(dict.fromkeys(_TYPE_NAMES.get(name.lower(), name) for name in types.names))


def parse_kind(text: str) -> Kind:
    """The kind that a path names, as in requests (`alert`) or in responses (`Alert`).

    Raises ResponderBotError("not_found").
    """
    for kind in KINDS:
        if text in (kind, OBJECT_TYPES[kind]):
            return kind
    raise ResponderBotError("not_found", f"There is no kind of object {text!r}; kinds are {', '.join(KINDS)}.")


def load(reads: Reads, kind: Kind, object_id: int | None, *, on_run: bool = False) -> Target:
    """The object of that kind and number.

    Raises ResponderBotError("not_found"); with `on_run` also for a deleted object or case, and "log_not_found" for a
    missing log.
    """
    if kind == artifacts.KIND and object_id is not None:
        target = _artifact(reads, object_id)
    else:
        try:
            row = objects.require(reads, kind, object_id)
        except ResponderBotError as error:
            if on_run and kind == "case_task_log" and error.code == "not_found":
                raise ResponderBotError("log_not_found", error.message) from error
            raise
        target = _of_row(reads, row)
    if on_run:
        _refuse_deleted(target)
    return target


def of_action(reads: Reads, row: Row) -> tuple[Target, str]:
    """The object that a stored action runs on, and `""`; for an artifact that was removed from its alert, a sentence on
    that.

    A removed artifact has its id, the TLP of its alert now, and the levels that are stored with the action, or red.
    """
    try:
        return load(reads, row["kind"], row["object_id"]), ""
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        number = row["object_id"]
        ids = {"_id": f"~{number}", "id": f"~{number}"}
        reason = f"~{number} was removed from its alert, so nothing ran on it; add it again if that was a mistake."
        now = Target(row["kind"], number, row["root_id"] or number, 0, 0, ids, root_tlp=RED)
        root = objects.find_any(reads, now.root_id)
        if row["target"] is not None and root is not None:
            before = as_asked(row, now)
            now = replace(now, tlp=before.tlp, pap=before.pap, root_tlp=objects.parsed(root["doc"])["tlp"])
        return now, reason


def of_run(reads: Reads, row: Row) -> TargetOfRun:
    """The target of an open action, as it is now and as it was requested.

    An undo gets the target of the run that it undoes, even if the object has changed since; only higher levels count.
    """
    now, gone = of_action(reads, row)
    asked, undoes = as_asked(row, now), row["undoes"] is not None
    if gone:
        return TargetOfRun(asked, asked, "") if undoes else TargetOfRun(now, asked, gone)
    changed = _raised(now, asked)
    # The usual case, in which a thousand artifacts need not be hashed.
    is_same = now.kind == "alert" and now.json["artifacts"] == asked.json["artifacts"]
    if not changed and not undoes and not is_same:
        changed = _artifact_raised(reads, now, asked) or _retyped(now, asked) or _removed(now, asked)
    sentence = f"{changed} since this was asked for, so it did not run; ask again if it is still needed."
    return TargetOfRun(now, asked, sentence if changed else "")


def to_undo(reads: Reads, row: Row, digests: Collection[str]) -> Target:
    """The target of an undo: that of the action, with the object's levels of now where they are higher.

    Of what the action acted on, it has what has these `digests`. Raises ResponderBotError("not_found") if the object or
    its case is deleted.
    """
    now, gone = of_action(reads, row)
    if not gone:
        _refuse_deleted(now)
    asked = as_asked(row, now)
    tlp, pap, root_tlp = max(asked.tlp, now.tlp), max(asked.pap, now.pap), max(asked.root_tlp, now.root_tlp)
    action = Action.model_validate_json(row["doc"])
    others = {id_ for id_, named in acted_on(action.target, asked).items() if named.digest not in digests}
    acts_on = action.target and [artifact for artifact in action.target if artifact.id not in others]
    shown = asked.json
    if others:
        shown = {**shown, "artifacts": [one for one in shown["artifacts"] if one["id"] not in others]}
    return replace(asked, tlp=tlp, pap=pap, root_tlp=root_tlp, acts_on=acts_on, json=shown)


def as_asked(row: Row, now: Target) -> Target:
    """The target as it is stored with an action; `now` is the object as it is."""
    stored = from_json(row["target"])
    return replace(
        now,
        tlp=stored["tlp"],
        pap=stored["pap"],
        json=stored["json"],
        data_type=stored["dataType"],
        root_tlp=stored["rootTlp"],
        stored=stored["artifacts"],
    )


def covers(later: Row, earlier: Row) -> bool:
    """Whether a later run includes all artifacts of an earlier one."""
    if later["target"] is None or earlier["target"] is None:
        return True
    covered, earlier_artifacts = (from_json(row["target"])["artifacts"].keys() for row in (later, earlier))
    return bool(earlier_artifacts <= covered)


def to_store(reads: Reads, target: Target) -> str:
    """The JSON of a target for its action, with digests of a case's artifacts, which no responder gets."""
    known = target.stored
    if known is None:  # an undo keeps those of its run, even none
        known = {_digest(artifact): artifact["tlp"] for artifact in artifacts_of(reads, target)}
    stored = {
        "tlp": target.tlp,
        "pap": target.pap,
        "rootTlp": target.root_tlp,
        "dataType": target.data_type,
        "artifacts": known,
        "json": target.json,
    }
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":"))


def artifacts_of(reads: Reads, target: Target) -> Iterable[Mapping[str, Any]]:
    """The artifacts of a target: itself, those of the alert, or those that the case has now."""
    if target.kind == artifacts.KIND:
        return [target.json]
    if target.kind == "alert":
        of_alert: Iterable[Mapping[str, Any]] = target.json["artifacts"]
        return of_alert
    return (objects.parsed(row["doc"]) for row in objects.children(reads, artifacts.KIND, target.root_id))


def asked_artifacts(reads: Reads, row: Row) -> list[Mapping[str, Any]]:
    """The artifacts that an open run on an alert gets; each has its TLP of now, if that is higher."""
    now, asked, _ = of_run(reads, row)
    levels = {_digest(artifact): artifact["tlp"] for artifact in now.json.get("artifacts", ())}
    return [
        {**artifact, "tlp": max(artifact["tlp"], levels.get(_digest(artifact), 0))}
        for artifact in asked.json["artifacts"]
    ]


def _digest(artifact: Mapping[str, Any]) -> str:
    """Equal for two artifacts with the same data type that name the same target."""
    named = named_by(artifact)
    identity = [artifact["dataType"], artifact.get("data") if named is None else [named.kind, named.value]]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _raised(now: Target, asked: Target) -> str:
    """Which level of the object, or of its alert or case, is higher than it was, or `""`."""
    for level, number, before, after in (
        ("TLP", now.id, asked.tlp, now.tlp),
        ("TLP", now.root_id, asked.clearance, now.root_tlp),
        ("PAP", now.id, asked.pap, now.pap),
    ):
        if after > before:
            return _was_raised(level, f"~{number}", after)
    return ""


def _artifact_raised(reads: Reads, now: Target, asked: Target) -> str:
    """Which artifact has a higher TLP than before, or `""`."""
    for artifact in artifacts_of(reads, now):
        if artifact["tlp"] > (asked.stored or {}).get(_digest(artifact), artifact["tlp"]):
            return _was_raised("TLP", artifact["id"], artifact["tlp"])
    return ""


def _was_raised(level: str, of: str, to: int) -> str:
    return f"The {level} of {of} was raised to {TLP_NAMES[to].upper()}"


def _retyped(now: Target, asked: Target) -> str:
    """Whether an artifact has another data type than before; its data can't change."""
    is_same = asked.kind != artifacts.KIND or now.data_type == asked.data_type
    return "" if is_same else f"The data type of ~{now.id} was changed from {asked.data_type} to {now.data_type}"


def _removed(now: Target, asked: Target) -> str:
    """Which artifacts were removed from an alert, or `""`; those of a case stay."""
    if asked.kind != "alert":
        return ""
    known = {_digest(artifact) for artifact in now.json["artifacts"]}
    removed = [artifact["id"] for artifact in asked.json["artifacts"] if _digest(artifact) not in known]
    if not removed:
        return ""
    what = f"The observable {removed[0]} was" if len(removed) == 1 else f"{len(removed)} observables were"
    return f"{what} removed from ~{now.id}"


def _refuse_deleted(target: Target) -> None:
    """Refuse a deleted object, and what belongs to it; it can only be read and opened again."""
    for doc in target.with_parents():  # an alert in a deleted case can still be acted on
        if doc.get("status") == "Deleted":
            what = OBJECT_TYPES[doc["_type"]]
            raise ResponderBotError("not_found", f"{what} {doc['id']} is deleted; open it again to run a responder.")


def existing(reads: Reads, kind: Kind, object_id: int | None) -> int:
    """The number of an existing object, which is not read. Raises ResponderBotError("not_found").

    An artifact's number is the one that it has now, even if its alert no longer has it.
    """
    if kind == artifacts.KIND and object_id is not None:
        object_id = artifacts.current_number(reads, object_id)
        if object_id is not None:
            return object_id
    if object_id is None or not objects.exists(reads, kind, object_id):
        raise objects.missing(kind)
    return object_id


def _of_row(reads: Reads, row: Row) -> Target:
    """An alert, a case, or what is in a case with all that it is in, each under its kind."""
    kind, doc = row["kind"], objects.parsed(row["doc"])
    if kind not in _PARENTS:
        return Target(kind, row["id"], row["id"], doc["tlp"], doc["pap"], doc)
    parent = load(reads, _PARENTS[kind], row["parent_id"])
    return Target(kind, row["id"], parent.root_id, parent.tlp, parent.pap, {**doc, parent.kind: parent.json})


def _artifact(reads: Reads, object_id: int) -> Target:
    stored = artifacts.load(reads, object_id)
    shown = from_json(stored.artifact.to_json())
    if stored.alert is None:
        return of_artifact(shown, load(reads, "case", stored.case_id).json)
    alert = stored.alert.model_copy(update={"artifacts": [stored.artifact]})  # a run on one gets no others
    return of_artifact(shown, from_json(alert.to_json()))


def of_artifact(artifact: Mapping[str, Any], root: Mapping[str, Any]) -> Target:
    """An artifact in the JSON that shows it; `root` is its case or, without one, its alert."""
    number, root_id, tlp, pap = number_of(artifact["id"]), number_of(root["id"]), artifact["tlp"], root["pap"]
    shown, data_type = {**artifact, root["_type"]: root}, artifact["dataType"]
    return Target(artifacts.KIND, number, root_id, tlp, pap, shown, data_type, root["tlp"])
