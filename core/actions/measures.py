"""What is in force right now: listed, undone, given another end, marked as ended (core/docs/in-force.md#measures)."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import structlog

from core.actions import decided, in_force, rights
from core.actions.bulks import BulkOutcomes, Refusal, attempted
from core.actions.due import Followup
from core.actions.in_force import End, Known
from core.actions.lifecycle import find, note
from core.actions.parts import Parts, Service
from core.actions.runs import Runs, StartedRun, Undoing
from core.authorization import Caller, current_caller
from core.common.clock import FOR_EVER, MINUTE_MS
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError, bad_request
from core.common.grouping import grouped
from core.models import OBJECT_TYPES, Action, Measure, MeasureRun, Parameter, RunInput, UndoInput, number_of, parse_id
from core.protection import KINDS, MalformedError, parse
from core.records import artifacts, clearance
from core.reports.report import has_lost_secret
from core.responders import target as targets
from core.responders.registry import Registry
from core.store import actions as stored_actions
from core.store import in_force as stored
from core.store import objects

log = structlog.get_logger()


# --- undone: on request, and when the timer of a run is over (core/docs/semantics.md#undo) ----------------------------


class Undos(Service):
    """Starts runs that undo others; rights, rules and approvals of their responder hold as for any run."""

    def __init__(self, parts: Parts, runs: Runs) -> None:
        super().__init__(parts)
        self._runs = runs

    async def undo(
        self,
        caller: Caller,
        action_id: str,
        request: UndoInput,
        *,
        rows: Collection[int] = (),
        key: str = "",
        body: str = "",
    ) -> StartedRun:
        """Undo what an action has left in force (`rows`; none: all of it) now. `key` and `body`: as `Runs.start`.

        Raises ResponderBotError as `Runs.start` does; "conflict" for what can't be undone, with the `action` that
        undoes it or has undone it.
        """

        def read(reads: Reads) -> Row:
            row = find(reads, action_id)
            clearance.require(reads, caller, row["id"], "undo action")
            return row

        row = await self._database.read(read)
        run = self._request(row, request)
        undoing = Undoing(row["id"], frozenset(rows))
        return await self._runs.start(caller, run, key=key, body=f"undo {body}", undoing=undoing)

    async def set_time(self, caller: Caller, action_id: str, minutes: int) -> Action:
        """Set when core undoes an action: `minutes` from now, 0 for never. Beyond its approval, request an extension.

        Raises ResponderBotError: not_found, forbidden, bad_request for what the settings don't allow, conflict for
        what can't be undone.
        """

        def work(tx: Transaction) -> Action:
            row = find(tx, action_id)
            clearance.require(tx, caller, row["id"], "change when an action is undone")
            now = self._clock()
            return self.set_time_in(tx, caller, row["id"], (), End(now + minutes * MINUTE_MS if minutes else None))

        return await self._database.transaction(work)

    def set_time_in(self, tx: Transaction, caller: Caller, number: int, numbers: Collection[int], end: End) -> Action:
        """As `set_time`, in a transaction of the caller, who may see the object, for some of what a run has left."""
        row, rows = in_force.require_undoable(tx, number, numbers)
        rights.require_may_change_end(tx, self._guards, caller, row)
        note(tx, "undo_time_requested", row, login=caller.login, undo_at=end.at)
        return in_force.set_time(tx, row, rows, end, self._guards.section, caller.login, self._clock())

    async def waiting(self) -> int:
        """How many actions core should have undone, and could not."""
        return await self._database.read(stored.count_waiting)

    def undo_due(self, tx: Transaction, due_row: Row) -> Followup | None:
        """Undo a row whose time has come, with what else of its action is due then, for the requester of the action."""
        one = stored.find(tx, due_row["id"])
        if one is None:
            return None
        action_id = one["action_id"]
        row, due = find(tx, f"~{action_id}"), list[Row]()
        for other in stored.of_action(tx, action_id):
            is_due = other["id"] == one["id"] or other["due_at"] == due_row["at"]
            if is_due and not self._did_instead(tx, row, other):
                due.append(other)
        if not due:
            return None
        try:
            with tx.savepoint():
                return self._started(tx, row, Undoing(action_id, frozenset(other["id"] for other in due), is_due=True))
        except ResponderBotError as error:
            log.warning("undo_refused", action_id=f"~{action_id}", reason=error.message)
            in_force.postponed(tx, row, due, error.message, self._clock())
            return None

    def _started(self, tx: Transaction, row: Row, undoing: Undoing) -> Followup:
        """Record the run that undoes an action, with the rights that its requester has now."""
        caller = current_caller(tx, row["created_by"], row["acted_through"] or row["created_by"])
        if caller is None or not caller.may("manageAction"):
            sentence = f"{row['created_by']} asked for this and may no longer run responders; undo it yourself."
            raise ResponderBotError("forbidden", sentence)
        checked = self._runs.check(tx, caller, self._request(row, UndoInput()), undoing)
        action, _ = self._runs.record(tx, checked, checked.serialized())
        return lambda: self._runs.queue(action)

    def _did_instead(self, tx: Transaction, row: Row, one: Row) -> bool:
        """Do what there is to do with what is due instead of undoing it; False if it is to be undone."""
        holder, now, sentence = in_force.holder(tx, one), self._clock(), ""
        if one["undo_status"] == "running" or (holder is not None and not holder.is_settled):
            in_force.look_again(tx, one, now)
        elif holder is not None and not holder.is_whole:
            sentence = f"~{holder.number} acts on a part of the same and ends later, so it is undone first."
        elif holder is not None:
            in_force.replaced(tx, row, one, holder.number, now)
        elif (alike := in_force.lookalike(tx, one)) is not None:
            sentence = (
                f"~{alike['action_id']} acts on what may be the same and ends later; undo it yourself if it isn't."
            )
        else:
            return False
        if sentence:
            in_force.postponed(tx, row, [one], sentence, now)
        return True

    def _request(self, row: Row, request: UndoInput) -> RunInput:
        """The run that undoes an action: on the same object and, if it can, on the same engine.

        It gets the inputs of that action that its responder declares too, without secrets, which aren't kept.
        """
        undo = Action.model_validate_json(row["doc"]).undo
        name = "" if undo is None else undo.responder
        merged = self._registry.find(name)
        same = {} if merged is None else _common_parameters(row, self._registry.parameters(merged))
        return RunInput(
            responder_id=name or row["responder_name"],
            object_type=row["kind"],
            object_id=f"~{row['object_id']}",
            engine_id=row["engine_name"] if merged is not None and merged.on(row["engine_name"]) else None,
            parameters={**same, **request.parameters},
        )


def _common_parameters(row: Row, declared: Iterable[Parameter]) -> dict[str, Any]:
    """The inputs of a run that another responder declares too, without secrets, which aren't kept."""
    parameters = json.loads(row["parameters"])
    common = {parameter.name: parameters[parameter.name] for parameter in declared if parameter.name in parameters}
    return {name: value for name, value in common.items() if not has_lost_secret(value)}


# --- measures ---------------------------------------------------------------------------------------------------------


LIMIT = 1_000
MOST_ASKED = 10  # runs beside it that a request is shown with


class MeasureFilter(NamedTuple):
    """Which measures somebody asks for; "" for any."""

    target: str = ""
    """What they act on or may act on; compared as a whole. Ids, with commas: what is of or on one of these."""
    by: str = ""
    """Who asked for them: a login or its first part."""
    responder: str = ""
    """Its name or id."""
    of: str = ""
    """The ids of alerts, cases, runs and bulks, with commas: what is of one of them."""
    alert: str = ""
    case: str = ""
    """An id that it is of as well."""


class _Seen(NamedTuple):
    """A row of what is in force that somebody may see, with its action."""

    one: Row
    row: Row


class Measures(Service):
    """Reads and changes what is in force."""

    def __init__(self, parts: Parts, undos: Undos) -> None:
        super().__init__(parts)
        self._undos = undos

    async def listed(self, caller: Caller, wanted: MeasureFilter) -> Sequence[Measure]:
        """At most LIMIT, worst first; of each only the runs on objects that the caller may see.

        That is by the most severe of their alerts and cases, then by what ends soonest.

        Raises ResponderBotError: bad_request for an id that is none; not_found, forbidden for that of the target.
        """
        of = _ids_of_each(wanted)

        def read(reads: Reads) -> list[Measure]:
            groups = self._wanted(reads, caller, wanted, of)
            found = [(seen, _shown(reads, group, seen, self._registry)) for group, seen in groups]
            severities = objects.severities(reads, (each.row["root_id"] for seen, _ in found for each in seen))

            def rank(one: tuple[Sequence[_Seen], Measure]) -> tuple[int, int]:
                worst = max(severities.get(each.row["root_id"]) or 0 for each in one[0])
                return -worst, one[1].until or FOR_EVER

            return [measure for _, measure in sorted(found, key=rank)[:LIMIT]]

        return await self._database.snapshot(read)

    async def undo(self, caller: Caller, measure_id: str, *, key: str = "", body: str = "") -> list[Action]:
        """Start the run that undoes a measure, or all that the run with this id has left.

        What else is in force on the same ends with it. Raises ResponderBotError as `Undos.undo` does; conflict if
        nothing undoes it, or it is only starting.
        """

        def read(reads: Reads) -> dict[int, list[int]]:
            chosen: dict[int, list[int]] = {}
            for group in _groups(reads, measure_id):
                seen = _seen(reads, caller, group)
                if not seen:
                    clearance.require(reads, caller, group[0]["action_id"], "undo a measure")
                    raise _missing()
                begun = [each for each in seen if each.one["state"] != "starting"]
                named = [each for each in begun if parse_id(measure_id) in (each.row["id"], each.one["id"])]
                for last in sorted(named or begun, key=lambda each: _last(each.one))[-1:]:
                    chosen.setdefault(last.row["id"], []).append(last.one["id"])
            if not chosen:
                raise ResponderBotError("conflict", "It is only starting; undo it once its run has ended.")
            return chosen

        return [
            (
                await self._undos.undo(
                    *(caller, f"~{number}", UndoInput()), rows=rows, key=f"{key} ~{number}" if key else "", body=body
                )
            ).action
            for number, rows in (await self._database.snapshot(read)).items()
        ]

    async def extend(self, caller: Caller, measure_id: str, end: End) -> Action:
        """Have a measure last longer: until this time, or until somebody undoes it.

        Returns the run that decides its end; beyond what was approved it only asks for that. Raises ResponderBotError:
        not_found, forbidden, bad_request (not later than now, or not allowed), conflict.
        """

        return await self._database.transaction(lambda tx: self._extended(tx, caller, measure_id, end))

    async def extend_all(self, caller: Caller, ends: Mapping[str, int | None], note: str) -> BulkOutcomes:
        """Have these measures last longer, each until its own time, in one commit; one that is refused stops no other.

        What goes beyond what was approved is asked for as one request, whose id is that of the outcomes.
        """

        def work(tx: Transaction) -> BulkOutcomes:
            request, outcomes = f"~{objects.next_id(tx)}", list[tuple[str, str | Refusal]]()
            for id_, at in ends.items():
                outcome = attempted(tx, partial(self._extended, tx, caller, id_, End(at, note, request)))
                outcomes.append((id_, outcome if isinstance(outcome, Refusal) else outcome.to_json()))
            return BulkOutcomes(request, outcomes)

        return await self._database.transaction(work)

    def _extended(self, tx: Transaction, caller: Caller, measure_id: str, end: End) -> Action:
        lasts = [max(group, key=in_force.end_of) for group in self._changeable(tx, caller, measure_id)]
        earlier = [one for one in lasts if one["ends_at"] is not None]
        if not earlier:
            raise ResponderBotError("conflict", "It has no end, so it can't be extended.")
        later = [one for one in earlier if end.at is None or end.at > one["ends_at"]]
        if not later:
            raise ResponderBotError("bad_request", "That is no later than it ends anyway; give a later time.")
        return self._set_time(tx, caller, later, end)

    async def shorten(self, caller: Caller, measure_id: str, end: End) -> Action:
        """Have a measure end earlier, at this time. Raises as `extend` does."""

        def work(tx: Transaction) -> Action:
            rows = [one for group in self._changeable(tx, caller, measure_id) for one in group]
            later = [one for one in rows if end.at is not None and in_force.end_of(one)[0] > end.at]
            if end.at is None or end.at <= self._clock() or not later:
                sentence = "Give a time before it ends, and after now; to end it now, undo it."
                raise ResponderBotError("bad_request", sentence)
            return self._set_time(tx, caller, later, end)

        return await self._database.transaction(work)

    def _set_time(self, tx: Transaction, caller: Caller, rows: Sequence[Row], end: End) -> Action:
        by_action = grouped((one["action_id"], one["id"]) for one in rows)
        return [self._undos.set_time_in(tx, caller, *each, end) for each in by_action.items()][-1]

    async def mark_as_ended(self, caller: Caller, measure_id: str, reason: str) -> list[Action]:
        """Note that a measure has ended, as the caller knows it; nothing is run. One with a time takes an org-admin.

        Raises ResponderBotError: not_found, forbidden, conflict (it is starting, or being undone).
        """

        def work(tx: Transaction) -> list[Action]:
            rows = [one for group in self._changeable(tx, caller, measure_id) for one in group]
            is_timed = any(one["ends_at"] is not None for one in rows)
            if is_timed and caller.profile != "org-admin":
                sentence = "It ends at its time, so only an administrator may mark it as ended; undo it, or ask one."
                raise ResponderBotError("forbidden", sentence)
            if any(one["state"] == "starting" or one["undo_status"] == "running" for one in rows):
                raise ResponderBotError("conflict", "A run of it or its undo has not ended; wait until it has.")
            for number in {one["action_id"]: None for one in rows}:
                row = find(tx, f"~{number}")
                if not is_timed:
                    rights.require_may_change_end(tx, self._guards, caller, row)
                note(tx, "measure_marked_as_ended", row, login=caller.login)
            return in_force.end(tx, rows, caller.login, self._clock(), reason=reason.strip())

        return await self._database.transaction(work)

    async def counts(self) -> dict[str, int]:
        """How much is in force, by state."""
        return {row["state"]: row["count"] for row in await self._database.read(stored.counts)}

    def _changeable(self, tx: Transaction, caller: Caller, measure_id: str) -> list[list[Row]]:
        """The groups of rows that are meant. Raises ResponderBotError: not_found, forbidden."""
        groups = _groups(tx, measure_id)
        for one in (one for group in groups for one in group):
            clearance.require(tx, caller, one["action_id"], "change a measure")
        return groups

    def _wanted(
        self, reads: Reads, caller: Caller, wanted: MeasureFilter, of: Sequence[Set[int | None]]
    ) -> Iterator[tuple[Sequence[Row], Sequence[_Seen]]]:
        """What somebody asks for, each with those of its rows that they may see."""
        about = _ids_in(wanted.target)
        digests = digests_in(reads, caller, about) if about else _digests_of(wanted.target)
        for group in in_force.groups(reads):
            may_be_on = group[0]["target_kind"] == in_force.OBJECT or group[0]["digest"] in digests
            if wanted.target and not about and not may_be_on:
                continue
            seen = _seen(reads, caller, group)
            is_of_each = bool(seen) and all(_is_of(reads, seen, ids) for ids in of)
            if is_of_each and self._is_wanted(reads, wanted, seen, digests):
                yield group, seen

    def _is_wanted(self, reads: Reads, wanted: MeasureFilter, seen: Sequence[_Seen], digests: Set[str]) -> bool:
        if wanted.target and not _is_on(reads, seen, _ids_in(wanted.target), digests):
            return False
        asked = {
            "created_by": wanted.by and self._guards.login(wanted.by),
            "responder_name": wanted.responder and self._registry.name(wanted.responder),
        }
        return all(any(each.row[column] == name for each in seen) for column, name in asked.items() if name)


def _ids_of_each(wanted: MeasureFilter) -> Sequence[Set[int | None]]:
    """For each filter by ids, those that a measure may be of. Raises "bad_request" for one that is no id."""
    texts = filter(None, (wanted.of, wanted.alert, wanted.case))
    of = [{parse_id(one.strip()) for one in text.split(",")} for text in texts]
    if any(None in ids for ids in of):
        raise bad_request("`of`, `alert` and `case` must be ids such as ~12,~13")
    return of


def _is_of(reads: Reads, seen: Iterable[_Seen], ids: Set[int | None]) -> bool:
    """Whether one of its runs is, or is of, what has one of these ids."""
    return any(ids & _roots_of(reads, each.row) for each in seen)


def _is_on(reads: Reads, seen: Sequence[_Seen], about: Set[int | None], digests: Set[str]) -> bool:
    """Whether it is of what has one of these ids, or may be on what has one of these digests."""
    return (bool(about) and _is_of(reads, seen, about)) or not digests.isdisjoint(_possible_targets(seen))


def _possible_targets(seen: Sequence[_Seen]) -> set[str]:
    """The digest of what it is on or, if nobody knows that, those of all that its runs got."""
    if seen[0].one["target_kind"] != in_force.OBJECT:
        return {seen[0].one["digest"]}
    possible = (artifact for each in seen for artifact in targets.stored_artifacts(each.row))
    return {named.digest for artifact in possible if (named := targets.named_by(artifact))}


def _missing() -> ResponderBotError:
    return ResponderBotError("not_found", "Measure not found; it may have ended.")


def _groups(reads: Reads, measure_id: str) -> list[list[Row]]:
    """What is in force with this id, or by the run with it. Raises ResponderBotError("not_found")."""
    number = parse_id(measure_id) or 0
    found = stored.find(reads, number)
    rows = stored.of_action(reads, number) if found is None else [found]
    keys = {(one["undone_by"], one["digest"]): None for one in rows if one["state"] != "ended"}
    if not keys:
        raise _missing()
    return [stored.on(reads, undone_by, [digest]) for undone_by, digest in keys]


def _seen(reads: Reads, caller: Caller, group: Sequence[Row]) -> list[_Seen]:
    """The rows of runs whose objects the caller may see."""
    rows = ((one, stored_actions.find(reads, one["action_id"])) for one in group)
    return [_Seen(one, row) for one, row in rows if row is not None and clearance.sees(reads, caller, row["id"])]


def _digests_of(text: str) -> set[str]:
    """What a text may name, whatever its data type."""
    found = set[str]()
    for data_type in ("other", *KINDS):
        with suppress(MalformedError):
            found.add(parse(data_type, text).digest)
    return found


def _ids_in(text: str) -> set[int]:
    """The numbers of the ids that a text is, with commas; none of another text."""
    numbers = [parse_id(one) for one in text.split(",")]
    return {one for one in numbers if one is not None} if None not in numbers else set()


def digests_in(reads: Reads, caller: Caller, numbers: Iterable[int]) -> set[str]:
    """What the observables name that these objects have or are, as far as the caller may see them.

    Raises ResponderBotError: not_found, forbidden.
    """
    named = list[Mapping[str, Any]]()
    for number in numbers:
        level = clearance.find_level(reads, number)
        if level is None:
            raise ResponderBotError("not_found", f"Nothing has the id ~{number}.")
        caller.require_clearance(level, "read what is in force on it")
        row = objects.find_any(reads, number)
        of_row = row["kind"] if row is not None else artifacts.find(reads, number) and artifacts.KIND
        if kind := next((one for one in OBJECT_TYPES if one == of_row), None):  # no run or bulk
            named += targets.artifacts_of(reads, targets.load(reads, kind, number))
    found = (targets.named_by(one) for one in named if one["tlp"] <= caller.sees_up_to)
    return {one.digest for one in found if one is not None}


def _roots_of(reads: Reads, row: Row) -> set[int]:
    """A run, its bulk, its object, and the alerts and cases that this belongs to."""
    found = {row["id"], row["bulk_id"], row["root_id"], row["object_id"]}
    found |= {*map(number_of, objects.parsed(row["doc"]).get("alsoFor", ()))}
    if row["kind"] == "case_artifact":
        found |= set(objects.alerts_with(reads, row["object_id"]))
    for number in list(found):
        alert = objects.find(reads, "alert", number)
        case = None if alert is None else objects.parsed(alert["doc"])["case"]
        found |= {number_of(case)} if case else set()
    return found


def already(reads: Reads, action: Action, sees_up_to: int, registry: Registry) -> list[Measure]:
    """What else is in force on the targets of a run, with the clearance that its last run takes.

    Only what a reader with the clearance `sees_up_to` may see, and of its runs the last ones that take no more.
    """
    undone_by, found = action.undo.responder if action.undo is not None else "", list[Measure]()
    rows = in_force.undone_by(reads, undone_by, action.object_id, action.target or ())
    others = sorted((one for one in rows if one["action_id"] != action.number), key=_last)
    for last in {one["digest"]: one for one in others}.values():
        level = clearance.level_of(reads, last["action_id"])
        same = [one for one in others if one["digest"] == last["digest"]][-MOST_ASKED:]
        below = [one for one in same if clearance.level_of(reads, one["action_id"]) <= level]
        seen = [_Seen(one, row) for one in below if (row := stored_actions.find(reads, one["action_id"])) is not None]
        if seen and level <= sees_up_to:
            found.append(_shown(reads, [last], seen, registry).model_copy(update={"clearance": level}))
    return found


def of_run(reads: Reads, number: int, sees_up_to: int, registry: Registry) -> list[Measure]:
    """What a run has in force, likewise."""
    row, level = stored_actions.find(reads, number), clearance.level_of(reads, number)
    rows = [one for one in stored.of_action(reads, number) if one["state"] in ("in_force", "unknown")]
    if row is None or level > sees_up_to:
        return []
    shown = (_shown(reads, [one], [_Seen(one, row)], registry) for one in rows)
    return [one.model_copy(update={"clearance": level}) for one in shown]


def beside(reads: Reads, action: Action, others: Iterable[Known], sees_up_to: int, registry: Registry) -> list[Measure]:
    """Those of these on one of the targets of a run that waits, likewise: what waits to do the same, in no bulk of it.

    Or (`ended`) what undoes that, and was dispatched.
    """
    found, own = list[Measure](), in_force.digests_of(action.object_id, action.target or ())
    for run, root, digests in others:
        if own.isdisjoint(digests) or not _is_beside(run, action):
            continue
        if len(found) < MOST_ASKED and (level := clearance.level_of(reads, run.number)) <= sees_up_to:
            of_run = run.model_dump(include={"id", "created_by", "responder_name", "object_type", "object_id", "undo"})
            title, ran_at = registry.title(run.responder_name), run.dispatched_at
            state, since = ("asked", run.created_at) if ran_at is None else ("ended", ran_at)
            about = {"title": title, "root_id": f"~{root}", "state": state, "since": since}
            target = [one for one in action.target or () if in_force.digests_of("", [one]) <= digests]
            found.append(Measure(**of_run, **about, approved_by=[], actions=[run.id], target=target, clearance=level))
    return found


def _is_beside(run: Action, action: Action) -> bool:
    """Whether a run, asked for apart from an action, would do or has undone the same, wherever both are on the same."""
    if run.id == action.id or (run.bulk is not None and run.bulk == action.bulk):
        return False
    return run.dispatched_at is not None or in_force.what_undoes(run) == in_force.what_undoes(action)


def _last(one: Row) -> tuple[bool, tuple[int, int]]:
    """Sorts what is in force by its end, and before that what is only starting."""
    return one["state"] != "starting", in_force.end_of(one)


def _shown(reads: Reads, group: Sequence[Row], seen: Sequence[_Seen], registry: Registry) -> Measure:
    """A measure by those of its runs that somebody may see; its end and its state are those of all."""
    by_end = sorted(seen, key=lambda each: _last(each.one))
    last, states = by_end[-1], {one["state"] for one in group}
    *_, action = read = [Action.model_validate_json(each.row["doc"]) for each in by_end]
    *others, own = [_of_run(each, one, registry) for each, one in zip(by_end, read, strict=True)]
    is_part = last.one["artifact"] is not None
    of_all = {
        "state": next((one for one in ("in_force", "unknown") if one in states), "starting"),
        "since": min(each.one["since"] for each in seen),
        "until": max(group, key=_last)["ends_at"],
    }
    return Measure(
        **{**own, **of_all},
        id=f"~{min(each.one['id'] for each in seen)}",
        actions=[f"~{each.row['id']}" for each in by_end],
        others=[MeasureRun(**one) for one in others],
        responder_name=action.responder_name,
        object_type=action.object_type,
        object_id=action.object_id,
        target=[one for one in action.target or () if one.id == last.one["artifact"]] if is_part else None,
        note=action.note,
        undo=in_force.undo_of(action, last.one),
        readers=action.readers,
        clearance_of_texts=_level_of_texts(reads, last.row) if action.extensions else None,
    )


def _level_of_texts(reads: Reads, row: Row) -> int:
    return max(clearance.level_of(reads, row["id"]), decided.level_of_texts(reads, row["root_id"]))


def _of_run(each: _Seen, action: Action, registry: Registry) -> dict[str, Any]:
    of_it = action.model_copy(update={"undo": in_force.undo_of(action, each.one)})
    return {
        **{name: getattr(of_it, name) for name in ("created_by", "approved_by", "moved_by", "more_time_by")},
        "title": registry.title(action.responder_name),
        "root_id": f"~{each.row['root_id']}",
        "state": each.one["state"],
        "since": each.one["since"],
        "until": each.one["ends_at"],
    }
