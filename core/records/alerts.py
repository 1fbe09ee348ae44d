"""Alerts: what a source reports, once for each reference (`semantics.md 2`)."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeVar

from core.access import Caller
from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import (
    MAX_BULK_VALUES,
    Alert,
    AlertInput,
    AlertStatus,
    AlertUpdate,
    Artifact,
    ArtifactInput,
    ArtifactsInput,
    Case,
    CaseInput,
    SearchInput,
)
from core.records import cases, events
from core.records.case_templates import with_ids
from core.records.search import Found, search
from core.store import objects

KIND = "alert"
LOOKED_UP_AT_ONCE = 20
MAX_SEPARATORS = 8  # a reference may itself hold `;`, but nobody needs more ways to read one than this gives

T = TypeVar("T")


class Alerts:
    """The alerts of the store."""

    def __init__(self, database: Database, clock: Clock, organisation: str) -> None:
        self._database = database
        self._clock = clock
        self._organisation = organisation

    async def create(self, caller: Caller, asked: AlertInput) -> Alert:
        """Raises ResponderBotError("exists") where type, source and sourceRef are taken (`semantics.md 2`)."""

        def work(tx: Transaction, now: int) -> Alert:
            if objects.find_unique(tx, KIND, _key(asked.type, asked.source, asked.source_ref)) is not None:
                reference = f"{asked.type}:{asked.source}:{asked.source_ref}"
                sentence = f"Alert {reference} already exist in organisation {self._organisation}"
                raise ResponderBotError("exists", sentence)
            return _create(tx, asked, caller.login, now)

        return await self._change(work)

    def get(self, id_or_ref: str) -> Alert:
        """By id or `type;source;sourceRef`. Raises ResponderBotError("not_found"), as do those below."""
        return Alert.model_validate_json(self.json(id_or_ref))

    def json(self, id_or_ref: str) -> str:
        """Its JSON on the wire."""
        return str(_row(self._database, id_or_ref)["doc"])

    async def mark_read(self, caller: Caller, id_or_ref: str) -> Alert:
        """Read: Ignored, or Imported where a case was made of it."""
        return await self._set(caller, id_or_ref, lambda alert: {"status": _status(alert, "Ignored")})

    async def mark_unread(self, caller: Caller, id_or_ref: str) -> Alert:
        """Unread: New, or Updated where a case was made of it."""
        return await self._set(caller, id_or_ref, lambda alert: {"status": _status(alert, "New")})

    async def set_follow(self, caller: Caller, id_or_ref: str, follow: bool) -> Alert:
        """Follow the alert, or stop following it."""
        return await self._set(caller, id_or_ref, lambda _: {"follow": follow})

    async def update(self, caller: Caller, id_or_ref: str, asked: AlertUpdate) -> Alert:
        """Change what the request names. Raises ResponderBotError("bad_request") for a status that it can't have."""
        return (await self.update_all(caller, [id_or_ref], asked))[0]

    async def update_all(self, caller: Caller, ids_or_refs: Iterable[str], asked: AlertUpdate) -> list[Alert]:
        """Change all of them, each once, or none; raises as `update` does, and "too_large"."""
        numbers = list(dict.fromkeys(await self._numbers(ids_or_refs)))
        if len(numbers) > 1:
            more = asked.model_dump_json(exclude_unset=True, exclude={"ids"})
            cases.each(asked.artifacts or [], times=len(numbers), more_chars=len(more))
            await self._refuse_many(numbers, len(numbers) * more.count(","))

        def work(tx: Transaction, now: int) -> list[Alert]:
            artifacts = None if asked.artifacts is None else cases.with_files(tx, cases.each(asked.artifacts))
            return [_update(tx, number, asked, artifacts, caller.login, now) for number in numbers]

        return await self._change(work)

    async def add_artifacts(self, caller: Caller, id_or_ref: str, asked: ArtifactsInput) -> list[Artifact]:
        """Add artifacts; one that it has is changed instead, as the alert itself drops duplicates."""
        number = self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> list[Artifact]:
            alert = load(tx, number)
            added = _artifacts(tx, cases.with_files(tx, cases.each([asked])), caller.login, now, alert.artifacts)
            known = {item.id for item in added}
            others = [item for item in alert.artifacts if item.id not in known]
            save(tx, alert.model_copy(update={"artifacts": [*others, *added]}), caller.login, now, before=alert)
            return added

        return await self._change(work)

    async def create_case(self, caller: Caller, id_or_ref: str, template: str | None = None) -> Case:
        """Make a case of it, with its artifacts; `template` wins over the alert's own.

        Raises ResponderBotError("bad_request") where it is in a case already, "not_found" also for the template.
        """
        number = self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> Case:
            alert = _outside_cases(load(tx, number))
            case = cases.new_case(tx, _as_case(alert, template), caller.login, now)
            cases.copy_artifacts(tx, case, alert.artifacts, caller.login, now)
            changed = alert.model_copy(update={"case": case.id, "status": "Imported"})
            save(tx, changed, caller.login, now, before=alert)
            return case

        return await self._change(work)

    async def merge_into(self, caller: Caller, ids_or_refs: Iterable[str], case_id: str) -> Case:
        """Make them, all or none, a part of a case that there is. Raises as `create_case` does."""
        numbers = await self._numbers(ids_or_refs)
        await self._refuse_many(numbers)
        case_number = objects.parse_id(case_id)
        if case_number is None:
            raise ResponderBotError("not_found", "Case not found")

        def work(tx: Transaction, now: int) -> Case:
            case = cases.load_case(tx, case_number)
            return _merge(tx, numbers, case, caller.login, now)

        return await self._change(work)

    async def search(self, asked: SearchInput) -> Found:
        """Raises ResponderBotError("bad_request") for a query that makes no sense."""
        return await search(self._database, KIND, asked)

    async def _set(self, caller: Caller, id_or_ref: str, update: Callable[[Alert], dict[str, Any]]) -> Alert:
        number = self._number(id_or_ref)

        def work(tx: Transaction, now: int) -> Alert:
            alert = load(tx, number)
            return save(tx, alert.model_copy(update=update(alert)), caller.login, now, before=alert)

        return await self._change(work)

    async def _change(self, work: Callable[[Transaction, int], T]) -> T:
        now = self._clock()
        return await self._database.transaction(lambda tx: work(tx, now))

    async def _numbers(self, ids_or_refs: Iterable[str]) -> list[int]:
        """Their numbers; others have their turn in between, as each reference can take dozens of look-ups."""
        numbers = list[int]()
        for id_or_ref in ids_or_refs:
            if numbers and len(numbers) % LOOKED_UP_AT_ONCE == 0:
                await asyncio.sleep(0)
            numbers.append(self._number(id_or_ref))
        return numbers

    async def _refuse_many(self, numbers: Sequence[int], more_values: int = 0) -> None:
        """Raises ResponderBotError("too_large"): what changes together holds the writer while all others wait."""
        if len(numbers) < 2:
            return
        chars, values = await objects.weigh(self._database, numbers)
        if chars > cases.COPIED_LIMIT_CHARS or values + more_values > MAX_BULK_VALUES:
            raise ResponderBotError("too_large", f"{len(numbers)} such alerts are too much for one change; send fewer.")

    def _number(self, id_or_ref: str) -> int:
        return number_of(self._database, id_or_ref)


def number_of(reads: Reads, id_or_ref: str) -> int:
    """The number of the alert with that id or `type;source;sourceRef`. Raises ResponderBotError("not_found")."""
    return int(_row(reads, id_or_ref)["id"])


def load(reads: Reads, object_id: int) -> Alert:
    """Raises ResponderBotError("not_found")."""
    row = objects.find(reads, KIND, object_id)
    if row is None:
        raise _missing()
    return Alert.model_validate_json(row["doc"])


def save(tx: Transaction, alert: Alert, user: str, now: int, *, before: Alert | None = None) -> Alert:
    """Keep a changed alert; returns it with who changed it and when.

    `before` is the alert as it is kept, where the caller has read it in this transaction.
    """
    number = int(alert.id[1:])
    before = before or load(tx, number)
    cases.refuse_growth(before, alert)
    fields = with_ids(tx, alert.custom_fields, before.custom_fields)
    saved = alert.model_copy(update={"custom_fields": fields, "updated_by": user, "updated_at": now})
    objects.update(tx, number, saved.to_json())
    _tell(tx, "updated", number, user, now)
    return saved


def _create(tx: Transaction, asked: AlertInput, user: str, now: int) -> Alert:
    number = objects.next_id(tx)
    alert = Alert(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        type=asked.type,
        source=asked.source,
        source_ref=asked.source_ref,
        external_link=asked.external_link,
        title=asked.title,
        description=asked.description,
        severity=asked.severity,
        date=now if asked.date is None else asked.date,
        tags=asked.tags,
        tlp=asked.tlp,
        pap=asked.pap,
        follow=asked.follow,
        custom_fields=with_ids(tx, asked.custom_fields),
        case_template=asked.case_template,
        artifacts=_artifacts(tx, cases.with_files(tx, cases.each(asked.artifacts)), user, now),
    )
    key = _key(asked.type, asked.source, asked.source_ref)
    objects.insert(tx, number, KIND, alert.to_json(), unique_key=key)
    _tell(tx, "created", number, user, now)
    return alert


def _update(
    tx: Transaction, number: int, asked: AlertUpdate, artifacts: list[ArtifactInput] | None, user: str, now: int
) -> Alert:
    alert = load(tx, number)
    changed = cases.changes(asked, alert)
    changed.pop("ids", None)
    if artifacts is not None:
        changed["artifacts"] = _artifacts(tx, artifacts, user, now, alert.artifacts)
    if asked.status is not None:
        changed["status"] = _status(alert, asked.status)
    return save(tx, alert.model_copy(update=changed), user, now, before=alert)


def _merge(tx: Transaction, numbers: Iterable[int], case: Case, user: str, now: int) -> Case:
    alerts = []
    for number in numbers:
        alert = _outside_cases(load(tx, number))
        save(tx, alert.model_copy(update={"case": case.id, "status": "Imported"}), user, now, before=alert)
        alerts.append(alert)
    cases.copy_artifacts(tx, case, [artifact for alert in alerts for artifact in alert.artifacts], user, now)
    tags = cases.united(case.tags, *(alert.tags for alert in alerts))
    return cases.save_case(tx, case.model_copy(update={"tags": tags}), user, now, before=case)


def _artifacts(
    tx: Transaction, asked: Iterable[ArtifactInput], user: str, now: int, known: Sequence[Artifact] = ()
) -> list[Artifact]:
    """Artifacts with ids of their own, each once; one that was `known` keeps its id."""
    before = {cases.identity(artifact): artifact for artifact in known}
    wanted: dict[tuple[str, ...], ArtifactInput] = {}
    for item in asked:
        wanted.setdefault(cases.identity(item), item)
    numbers = iter(objects.next_ids(tx, len(wanted.keys() - before.keys())))
    return [
        before[key].model_copy(update={**_changes(item), "updated_by": user, "updated_at": now})
        if key in before
        else cases.artifact_of(next(numbers), item, user, now)
        for key, item in wanted.items()
    ]


def _changes(asked: ArtifactInput) -> dict[str, Any]:
    """What may change of an artifact that is there already; the file's own name stays, as its content does."""
    own = ("data", "attachment", "is_file")
    return {name: value for name, value in cases.changes(asked).items() if name not in own}


def _as_case(alert: Alert, template: str | None) -> CaseInput:
    return CaseInput.model_construct(  # not checked again: what is kept may be from before there were these limits
        title=alert.title,
        description=alert.description,
        severity=alert.severity,
        tlp=alert.tlp,
        pap=alert.pap,
        tags=alert.tags,
        custom_fields=alert.custom_fields,
        template=template or alert.case_template or None,
    )


def _status(alert: Alert, wanted: AlertStatus) -> AlertStatus:
    """Read or unread, in the word for an alert that is in a case or in none."""
    if wanted == "Imported" and alert.case is None:
        raise ResponderBotError("bad_request", f"Alert {alert.id} is in no case; createCase or merge make it Imported.")
    if wanted in ("New", "Updated"):
        return "New" if alert.case is None else "Updated"
    return "Ignored" if alert.case is None else "Imported"


def _outside_cases(alert: Alert) -> Alert:
    if alert.case is None:
        return alert
    raise ResponderBotError("bad_request", f"Alert {alert.id} is in case {alert.case} already; go on there.")


def _key(type: str, source: str, source_ref: str) -> str:
    """As JSON, so that no choice of `:` or `;` inside makes two references one."""
    return json.dumps([type, source, source_ref])


def _row(reads: Reads, id_or_ref: str) -> Row:
    number = objects.parse_id(id_or_ref)
    row = None if number is None else objects.find(reads, KIND, number)
    if row is not None:
        return row
    for key in _readings(id_or_ref):
        row = objects.find_unique(reads, KIND, key)
        if row is not None:
            return row
    raise _missing()


def _readings(reference: str) -> Iterator[str]:
    """The ways to read `type;source;sourceRef`, the plain one first."""
    parts = reference.split(";")
    if len(parts) - 1 > MAX_SEPARATORS:
        parts = [*parts[:MAX_SEPARATORS], ";".join(parts[MAX_SEPARATORS:])]
    for first, second in combinations(range(1, len(parts)), 2):
        yield _key(";".join(parts[:first]), ";".join(parts[first:second]), ";".join(parts[second:]))


def _missing() -> ResponderBotError:
    return ResponderBotError("not_found", "Alert not found")


def _tell(tx: Transaction, what: str, number: int, user: str, now: int) -> None:
    events.record(tx, at=now, type=f"alert.{what}", object_type="Alert", object_id=number, root_id=number, user=user)
