"""Alerts, each unique by type, source and reference (core/docs/semantics.md#alerts)."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice
from typing import Any, Literal

from core.audit import trail
from core.authorization import Caller, require_person
from core.common.clock import Clock
from core.common.database import Database, Reads, Row, Search, Transaction
from core.common.errors import ResponderBotError
from core.field_types import MAX_ARTIFACTS, MAX_BULK_VALUES, AlertStatus
from core.models import (
    RED,
    Alert,
    AlertInput,
    AlertUpdate,
    Artifact,
    ArtifactInput,
    ArtifactsInput,
    Case,
    CaseInput,
    CreateCaseInput,
    OpenAlert,
    SearchInput,
    number_of,
    parse_id,
)
from core.records import cases, clearance
from core.records.artifacts import (
    COPIED_LIMIT_CHARS,
    artifact_of,
    expand_artifacts,
    identity,
    move_to_case,
    save_shown,
    store_files,
)
from core.records.artifacts import KIND as ARTIFACT
from core.records.cases import with_ids
from core.records.search import SearchResult, search
from core.records.writes import (
    Records,
    check_growth,
    made,
    merge_levels,
    merge_tags,
    record_event,
    requested_changes,
)
from core.store import attachments, objects, texts
from core.store.search import docs_of, fitting

KIND: Literal["alert"] = "alert"
CREATED_AT_ONCE = 16  # of many that arrive at once; a person's change waits for no more than these
LOOKED_UP_AT_ONCE = 20  # references between two turns of the event loop
FOUND_AT_MOST = 200
OPEN_AT_MOST = 10_000
MAX_SEPARATORS = 8  # a reference may contain `;`, so each one more adds ways to read it

_DECISIONS: Sequence[trail.What] = ("alert.case", "alert.assignee", "alert.status")
"""The rows of the audit on fields that somebody changes."""


class Alerts(Records):
    """Alerts as people and clients read and change them; `id_or_ref` is an id or `type;source;sourceRef`."""

    def __init__(self, database: Database, clock: Clock, organisation: str) -> None:
        super().__init__(database, clock)
        self._organisation = organisation
        self._creating = asyncio.Semaphore(CREATED_AT_ONCE)

    async def create(self, caller: Caller, request: AlertInput) -> Alert:
        """Create an alert. Raises ResponderBotError("exists") if type, source and sourceRef are taken."""

        def work(tx: Transaction, now: int) -> Alert:
            key = unique_key(request.type, request.source, request.source_ref)
            if objects.find_unique(tx, KIND, key) is not None:
                reference = f"{request.type}:{request.source}:{request.source_ref}"
                sentence = f"Alert {reference} already exist in organisation {self._organisation}"
                raise ResponderBotError("exists", sentence)
            return insert(tx, request, caller.login, now, key)

        async with self._creating:
            return await self._change(work)

    async def get_json(self, id_or_ref: str) -> str:
        """An alert's JSON. Raises ResponderBotError("not_found"), as do the next methods."""
        return str((await self._database.read(lambda reads: _row(reads, id_or_ref)))["doc"])

    async def find(self, caller: Caller, text: str) -> list[str]:
        """The JSON of the newest alerts with all words of a text that the caller may see; at most FOUND_AT_MOST."""
        sees_up_to = min(caller.sees_up_to, texts.MAX_LEVEL)

        def read(search: Search) -> list[str]:
            ids = texts.find(search, self._database.dialect, text, sees_up_to, FOUND_AT_MOST)
            return list(fitting(docs_of(search, self._database.dialect, "object", iter(ids))))

        return await self._database.search(read)

    async def open_of(self, caller: Caller, assignee: str) -> list[OpenAlert]:
        """The open alerts of an assignee, or with "" of nobody, that the caller may see; at most OPEN_AT_MOST.

        The most severe come first, of these the newest.
        """
        rows = await self._database.read(
            lambda reads: objects.open_alerts_of(reads, assignee, caller.sees_up_to, OPEN_AT_MOST)
        )
        return [OpenAlert(id=f"~{row['id']}", severity=row["severity"]) for row in rows]

    async def mark_read(self, caller: Caller, id_or_ref: str) -> Alert:
        """Mark an alert as read: `Ignored`, or `Imported` if it is in a case."""
        return await self._set(caller, id_or_ref, lambda alert: with_status(alert, "Ignored"))

    async def mark_unread(self, caller: Caller, id_or_ref: str) -> Alert:
        """Mark an alert as unread: `New`, or `Updated` if it is in a case."""
        return await self._set(caller, id_or_ref, lambda alert: with_status(alert, "New"))

    async def set_follow(self, caller: Caller, id_or_ref: str, follow: bool) -> Alert:
        """Follow an alert, or stop following it."""
        return await self._set(caller, id_or_ref, lambda _: {"follow": follow})

    async def update(self, caller: Caller, id_or_ref: str, request: AlertUpdate) -> Alert:
        """Change what the request names. Raises ResponderBotError("bad_request") for a status that doesn't fit."""
        return (await self.update_all(caller, [id_or_ref], request))[0]

    async def update_all(self, caller: Caller, ids_or_refs: Iterable[str], request: AlertUpdate) -> list[Alert]:
        """Change all alerts, or none. Raises ResponderBotError: not_found, bad_request, too_large."""
        numbers = list(dict.fromkeys(await self._numbers(ids_or_refs)))
        if len(numbers) > 1:
            more = request.model_dump_json(exclude_unset=True, exclude={"ids"})
            expand_artifacts(request.artifacts or [], times=len(numbers), more_chars=len(more))
            await self._check_size(numbers, len(numbers) * more.count(","))

        def work(tx: Transaction, now: int) -> list[Alert]:
            artifacts = None if request.artifacts is None else store_files(tx, expand_artifacts(request.artifacts))
            return [_update(tx, caller, number, request, artifacts, now) for number in numbers]

        return await self._change(work)

    async def add_artifacts(self, caller: Caller, id_or_ref: str, request: ArtifactsInput) -> list[Artifact]:
        """Add artifacts to an alert; known ones are changed.

        A known one that the caller may not see stays unchanged, and the response looks as if it were new.
        """
        number = await self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> list[Artifact]:
            alert, user = _writable(tx, caller, number, "change alert"), caller.login
            hidden, requested = _hidden(tx, caller, alert), store_files(tx, expand_artifacts([request]))
            added = _artifacts(tx, requested, hidden, user, now, alert)
            known = {item.id for item in added}
            others = [item for item in alert.artifacts if item.id not in known]
            save(tx, alert.model_copy(update={"artifacts": [*others, *added]}), user, now, before=alert)
            answered = {identity(item): item for item in added}
            for item in requested:
                if of_alert := hidden.get(identity(item)):
                    answered.setdefault(identity(item), artifact_of(of_alert.number, item, user, now))
            return [answered[key] for key in dict.fromkeys(map(identity, requested))]

        return await self._change(work)

    async def create_case(self, caller: Caller, id_or_ref: str, request: CreateCaseInput | None = None) -> Case:
        """Create a case from an alert, with its artifacts; fields of the request take precedence.

        Raises ResponderBotError: not_found for the alert or the template, bad_request if it is in a case already.
        """
        number = await self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> Case:
            alert = _require_no_case(_writable(tx, caller, number, "create case"))
            wanted = _as_case(alert, request or CreateCaseInput())
            own, levels = alert.custom_fields, alert.field_levels
            kept = {name: level for name, level in levels.items() if wanted.custom_fields[name] is own[name]}
            case = cases.new_case(tx, wanted, caller.login, now, tag_levels=alert.tag_levels, field_levels=kept)
            _put_into(tx, caller, case, alert, now)
            return case

        return await self._change(work)

    async def merge_into(self, caller: Caller, ids_or_refs: Iterable[str], case_id: str) -> Case:
        """Merge alerts into a case, all or none. Raises ResponderBotError: not_found, bad_request, too_large."""
        numbers = await self._numbers(ids_or_refs)
        await self._check_size(numbers)
        case_number = parse_id(case_id)
        if case_number is None:
            raise objects.missing("case")

        def work(tx: Transaction, now: int) -> Case:
            case = cases.load_case(tx, case_number)
            clearance.require(tx, caller, case_number, "change case")
            return _merge(tx, caller, numbers, case, now)

        return await self._change(work)

    async def search_artifacts(self, alerts: SearchInput, request: SearchInput) -> SearchResult:
        """Search the artifacts of some alerts. Raises as `search` does."""
        docs = (await self.search(KIND, alerts.model_copy(update={"count": False}))).docs
        numbers = await asyncio.to_thread(lambda: [number_of(json.loads(doc)["id"]) for doc in docs])
        return await search(self._database, ARTIFACT, request, alerts=numbers)

    async def _set(self, caller: Caller, id_or_ref: str, update: Callable[[Alert], dict[str, Any]]) -> Alert:
        number = await self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> Alert:
            alert = _writable(tx, caller, number, "change alert")
            return save(tx, alert.model_copy(update=update(alert)), caller.login, now, before=alert)

        return await self._change(work)

    async def _number(self, id_or_ref: str) -> int:
        return await self._database.read(lambda reads: resolve_alert(reads, id_or_ref))

    async def _numbers(self, ids_or_refs: Iterable[str]) -> list[int]:
        """The numbers of alerts; yields to the event loop, as each reference can take dozens of look-ups."""
        numbers, left = list[int](), iter(ids_or_refs)
        while some := list(islice(left, LOOKED_UP_AT_ONCE)):
            if numbers:
                await asyncio.sleep(0)
            numbers += await self._database.read(partial(_resolve_all, some))
        return numbers

    async def _check_size(self, numbers: Sequence[int], more_values: int = 0) -> None:
        """Raises ResponderBotError("too_large") for a change that would block other writers for too long."""
        if len(numbers) < 2:
            return
        chars, values = await objects.measure(self._database, numbers)
        if chars > COPIED_LIMIT_CHARS or values + more_values > MAX_BULK_VALUES:
            raise ResponderBotError("too_large", f"{len(numbers)} such alerts are too much for one change; send fewer.")


def resolve_alert(reads: Reads, id_or_ref: str) -> int:
    """The number in the id of an alert, given by id or `type;source;sourceRef`. Raises "not_found"."""
    return int(_row(reads, id_or_ref)["id"])


def _resolve_all(ids_or_refs: Sequence[str], reads: Reads) -> list[int]:
    return [resolve_alert(reads, id_or_ref) for id_or_ref in ids_or_refs]


def load(reads: Reads, object_id: int) -> Alert:
    """The alert under a number. Raises ResponderBotError("not_found")."""
    return Alert.model_validate_json(objects.require(reads, KIND, object_id)["doc"])


def save(tx: Transaction, alert: Alert, user: str, now: int, before: Alert) -> Alert:
    """Store a changed alert; returns it with who changed it and when.

    `before` is the stored alert. Raises ResponderBotError("bad_request") for too many tags, artifacts or custom fields.
    """
    number = alert.number
    check_growth(before, alert)
    fields = with_ids(tx, alert.custom_fields, before.custom_fields)
    changes: dict[str, Any] = {"custom_fields": fields, "updated_by": user, "updated_at": now}
    if alert.status != before.status:
        is_closed = alert.status == "Ignored"
        changes |= {"closed_by": user if is_closed else None, "closed_at": now if is_closed else None}
    saved = alert.model_copy(update=changes)
    objects.update(tx, number, saved.to_json())
    texts.save(tx, saved)
    attachments.save(tx, number, saved.artifacts)
    record_event(tx, KIND, "updated", number, number, user, now)
    for what in _DECISIONS:
        was, is_ = (getattr(one, what.removeprefix("alert.")) for one in (before, saved))
        if was != is_ and is_ not in ("Updated", "Imported"):
            why = {"reason": saved.summary if what == "alert.status" else None}
            trail.record(tx, now, what, by=user, object=saved.id, texts=why, before=was, after=is_)
    if saved.case is not None and saved.tlp != before.tlp:  # its artifacts show in messages of the case as well
        case_id = number_of(saved.case)
        record_event(tx, "case", "updated", case_id, case_id, user, now)
    return saved


def insert(tx: Transaction, request: AlertInput, user: str, now: int, key: str) -> Alert:
    """Store a new alert under a key that no alert has."""
    number = objects.next_id(tx)
    own = {
        "date": now if request.date is None else request.date,
        "custom_fields": with_ids(tx, request.custom_fields),
        "artifacts": [],
    }
    alert = Alert(**{**vars(request), **made(number, user, now), **own})
    if request.artifacts:
        artifacts = _artifacts(tx, store_files(tx, expand_artifacts(request.artifacts)), {}, user, now, alert)
        alert = alert.model_copy(update={"artifacts": artifacts})
    objects.insert(tx, number, KIND, alert.to_json(), unique_key=key)
    texts.insert(tx, alert)
    if any(artifact.attachment for artifact in alert.artifacts):
        attachments.save(tx, number, alert.artifacts)
    record_event(tx, KIND, "created", number, number, user, now)
    return alert


def _writable(reads: Reads, caller: Caller, number: int, what: str) -> Alert:
    """The alert, if the caller may see it. Raises ResponderBotError: not_found, forbidden."""
    alert = load(reads, number)
    clearance.require(reads, caller, number, what)
    return alert


def _update(
    tx: Transaction,
    caller: Caller,
    number: int,
    request: AlertUpdate,
    artifacts: list[ArtifactInput] | None,
    now: int,
) -> Alert:
    alert, user = _writable(tx, caller, number, "change alert"), caller.login
    changed = requested_changes(request, alert)
    changed.pop("ids", None)
    if request.assignee is not None:
        changed["assignee"] = require_person(tx, request.assignee) if request.assignee else None
    if artifacts is not None:
        hidden = _hidden(tx, caller, alert)
        changed["artifacts"] = [*hidden.values(), *_artifacts(tx, artifacts, hidden, user, now, alert)]
    if request.status is not None:
        changed |= with_status(alert, request.status, request.summary)
    if request.severity not in (None, alert.severity) and alert.created_by.startswith(f"{alert.source}@"):
        changed["source_severity"] = alert.source_severity or alert.severity
    return save(tx, alert.model_copy(update=changed), user, now, before=alert)


def _merge(tx: Transaction, caller: Caller, numbers: Iterable[int], case: Case, now: int) -> Case:
    alerts, user = list[Alert](), caller.login
    for number in numbers:
        alert = _require_no_case(_writable(tx, caller, number, "change alert"))
        _put_into(tx, caller, case, alert, now)
        alerts.append(alert)
    tags, levels = merge_tags(case.tags, *(alert.tags for alert in alerts)), merge_levels(case, *alerts)
    merged = case.model_copy(update={"tags": tags, "tag_levels": levels})
    return cases.save_case(tx, merged, user, now, before=case)


def _put_into(tx: Transaction, caller: Caller, case: Case, alert: Alert, now: int) -> None:
    """Let an alert and its artifacts belong to a case."""
    artifacts = move_to_case(tx, case, alert, caller.login, now, caller.why_not_cleared)
    changed = {"case": case.id, "status": "Imported", "artifacts": artifacts}
    save(tx, alert.model_copy(update=changed), caller.login, now, before=alert)


def _hidden(reads: Reads, caller: Caller, alert: Alert) -> dict[tuple[str, ...], Artifact]:
    """The artifacts of an alert that the caller may neither see nor change, by their identity."""
    if caller.sees_up_to == RED:
        return {}
    in_case, tlp_of_case = set[int](), 0
    if alert.case is not None:
        in_case = objects.existing(reads, ARTIFACT, [artifact.number for artifact in alert.artifacts])
        tlp_of_case = cases.load_case(reads, number_of(alert.case)).tlp
    return {
        identity(artifact): artifact
        for artifact in alert.artifacts
        if caller.why_not_cleared(max(artifact.tlp, tlp_of_case if artifact.number in in_case else 0))
    }


def _artifacts(
    tx: Transaction,
    requested: Iterable[ArtifactInput],
    hidden: Mapping[tuple[str, ...], Artifact],
    user: str,
    now: int,
    alert: Alert,
) -> list[Artifact]:
    """The requested artifacts of an alert, without duplicates and without those that are hidden from the caller.

    Known artifacts keep their ids, new ones get one.
    """
    known = {identity(artifact): artifact for artifact in alert.artifacts}
    wanted: dict[tuple[str, ...], ArtifactInput] = {}
    for item in requested:
        if identity(item) not in hidden:
            wanted.setdefault(identity(item), item)
    numbers = objects.next_ids(tx, len(wanted.keys() - known.keys()))
    objects.insert_alert_artifacts(tx, alert.number, numbers)
    unused = iter(numbers)
    changed = {
        key: artifact.model_copy(update={**_changes(wanted[key]), "updated_by": user, "updated_at": now})
        for key, artifact in known.items()
        if key in wanted
    }
    if alert.case is not None:
        save_shown(tx, alert, changed.values(), user, now)
    return [changed.get(key) or artifact_of(next(unused), item, user, now) for key, item in wanted.items()]


def with_more_artifacts(
    tx: Transaction, alert: Alert, requested: Iterable[ArtifactInput], user: str, now: int
) -> list[Artifact]:
    """The artifacts of an alert, which stay as they are, and as many new ones as it may have; none is a file."""
    known, room = set(map(identity, alert.artifacts)), max(0, MAX_ARTIFACTS - len(alert.artifacts))
    more = list({key: item for item in requested if not item.is_file and (key := identity(item)) not in known}.values())
    return [*alert.artifacts, *_artifacts(tx, more[:room], {}, user, now, alert)]


def _changes(request: ArtifactInput) -> dict[str, Any]:
    """A known artifact with the fields of a request, except its data or file."""
    fixed = ("data", "attachment", "is_file")
    return {name: value for name, value in requested_changes(request).items() if name not in fixed}


def _as_case(alert: Alert, request: CreateCaseInput) -> CaseInput:
    own = {name: getattr(alert, name) for name in ("title", "description", "severity", "tlp", "pap")}
    joined = {
        "tags": merge_tags(alert.tags, request.tags or []),
        "custom_fields": {**alert.custom_fields, **(request.custom_fields or {})},
        "template": request.case_template or alert.case_template or None,
    }
    requested = {name: getattr(request, name) for name in request.model_fields_set - {"case_template"}}
    # Not validated: a stored alert may be older than the limits.
    return CaseInput.model_construct(**{**own, **requested, **joined})


def with_status(alert: Alert, wanted: AlertStatus, summary: str | None = None) -> dict[str, Any]:
    """The fields that a change to read or unread sets, by whether the alert is in a case; `summary` is why.

    Raises ResponderBotError("bad_request").
    """
    if wanted == "Imported" and alert.case is None:
        raise ResponderBotError("bad_request", f"Alert {alert.id} is in no case; createCase or merge make it Imported.")
    unread, read = ("New", "Ignored") if alert.case is None else ("Updated", "Imported")
    return {"status": unread if wanted in ("New", "Updated") else read, "summary": summary or None}


def _require_no_case(alert: Alert) -> Alert:
    if alert.case is None:
        return alert
    raise ResponderBotError("bad_request", f"Alert {alert.id} is in case {alert.case} already; go on there.")


def unique_key(type: str, source: str, source_ref: str, *, sender: str = "") -> str:
    """JSON, so that two references never have the same key, even with `:` and `;` in them.

    `sender` is the source of the settings that sends it: what others say in its name is another alert.
    """
    return json.dumps([type, source, source_ref, *([sender] if sender else [])])


def _row(reads: Reads, id_or_ref: str) -> Row:
    return objects.named(reads, KIND, id_or_ref, _possible_keys(id_or_ref))


def _possible_keys(reference: str) -> Iterator[str]:
    """The unique keys that `type;source;sourceRef` may stand for, as each part may contain `;`."""
    parts = reference.split(";")
    if len(parts) - 1 > MAX_SEPARATORS:
        parts = [*parts[:MAX_SEPARATORS], ";".join(parts[MAX_SEPARATORS:])]
    for first, second in combinations(range(1, len(parts)), 2):
        type, source, reference = ";".join(parts[:first]), ";".join(parts[first:second]), ";".join(parts[second:])
        yield unique_key(type, source, reference)
        yield unique_key(type, source, reference, sender=source)
