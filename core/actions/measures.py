"""What is in force right now: listed, undone, given another end, marked as ended (core/docs/in-force.md#measures)."""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from core.actions import in_force, rights
from core.actions.in_force import Group
from core.actions.lifecycle import find, note
from core.actions.undos import Undos
from core.authorization import Caller
from core.common.clock import Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError, bad_request
from core.models import Action, Measure, UndoInput, number_of, parse_id
from core.protection import KINDS, MalformedError, parse
from core.records import clearance
from core.responders.guards import Guards
from core.responders.registry import Registry
from core.store import actions as stored_actions
from core.store import measures as stored
from core.store import objects

LIMIT = 1_000


class MeasureFilter(NamedTuple):
    """Which measures somebody asks for; "" for any."""

    target: str = ""
    """What they act on or may act on; compared as a whole."""
    by: str = ""
    """Who asked for them: a login or its first part."""
    responder: str = ""
    """Its name or id."""
    alert: str = ""
    case: str = ""


class Measures:
    """Reads and changes what is in force."""

    def __init__(self, undos: Undos, registry: Registry, guards: Guards, database: Database, clock: Clock) -> None:
        self._undos = undos
        self._registry = registry
        self._guards = guards
        self._database = database
        self._clock = clock

    async def listed(self, caller: Caller, wanted: MeasureFilter) -> Sequence[Measure]:
        """At most LIMIT, oldest first; of each only the runs on objects that the caller may see.

        Raises ResponderBotError("bad_request") for an id that is none.
        """
        for key, text in (("alert", wanted.alert), ("case", wanted.case)):
            if text and parse_id(text) is None:
                raise bad_request(f"`{key}` must be an id such as ~12")

        def read(reads: Reads) -> list[Measure]:
            possible = stored.names_by_action(reads)
            found = []
            for group in in_force.groups(reads):
                rows = _seen(reads, caller, group)
                names = {name for row in rows for certain in possible.get(row["id"], ()) for name in certain}
                if rows and self._is_wanted(reads, wanted, rows, names):
                    found.append(self._shown(reads, group, rows))
            return found[:LIMIT]

        return await self._database.snapshot(read)

    async def undo(self, caller: Caller, measure_id: str, *, key: str = "", body: str = "") -> list[Action]:
        """Start the runs that undo a measure: one, unless its runs act on different things as well.

        Only runs that the caller may see are undone by name; what else is in force on the same ends with them.

        Raises ResponderBotError as `Undos.undo` does; conflict if nothing undoes it, or it is only starting.
        """

        def read(reads: Reads) -> list[str]:
            group = _group(reads, measure_id)
            seen = {row["id"] for row in _seen(reads, caller, group)}
            if not seen:
                clearance.require(reads, caller, number_of(measure_id), "undo a measure")
                raise _missing()
            chosen: list[tuple[str, frozenset[str]]] = []
            rows = [row for row in group.rows if row["action_id"] in seen]
            by_size = [(row["action_id"], stored.names_of(reads, row["action_id"]), row) for row in rows]
            for number, names, row in sorted(by_size, key=lambda one: (-len(one[1]), one[0])):
                if row["state"] != "starting" and not any(names <= others for _, others in chosen):
                    chosen.append((f"~{number}", names))
            if not chosen:
                raise ResponderBotError("conflict", "It is only starting; undo it once its run has ended.")
            return [action_id for action_id, _ in chosen]

        ids = await self._database.snapshot(read)
        return [
            (await self._undos.undo(caller, one, UndoInput(), key=f"{key} {one}" if key else "", body=body)).action
            for one in ids
        ]

    async def extend(self, caller: Caller, measure_id: str, until: int | None) -> Action:
        """Have a measure last longer: until this time (ms), or (None) until somebody undoes it.

        Returns the run that decides its end; beyond what was approved it only asks for that. Raises ResponderBotError:
        not_found, forbidden, bad_request (not later than now, or not allowed), conflict.
        """

        def work(tx: Transaction) -> Action:
            group = self._changeable(tx, caller, measure_id)
            ends_at = group.last["ends_at"]
            if ends_at is None:
                raise ResponderBotError("conflict", "It has no end, so it can't be extended.")
            if until is not None and until <= ends_at:
                raise ResponderBotError("bad_request", "That is no later than it ends anyway; give a later time.")
            return self._undos.set_time_in(tx, caller, self._row(tx, caller, group.last), until)

        return await self._database.transaction(work)

    async def shorten(self, caller: Caller, measure_id: str, until: int | None) -> Action:
        """Have a measure end earlier, at this time (ms). Raises as `extend` does."""

        def work(tx: Transaction) -> Action:
            group = self._changeable(tx, caller, measure_id)
            last = in_force.end_of(group.last)[0]
            if until is None or not self._clock() < until < last:
                sentence = "Give a time before it ends, and after now; to end it now, undo it."
                raise ResponderBotError("bad_request", sentence)
            later = [row for row in group.rows if in_force.end_of(row)[0] > until]
            return [self._undos.set_time_in(tx, caller, self._row(tx, caller, row), until) for row in later][-1]

        return await self._database.transaction(work)

    async def mark_as_ended(self, caller: Caller, measure_id: str, reason: str) -> list[Action]:
        """Note that a measure has ended, as the caller knows it; nothing is run. One with a time takes an org-admin.

        Raises ResponderBotError: not_found, forbidden, conflict (it is starting, or being undone).
        """

        def work(tx: Transaction) -> list[Action]:
            group, ended = self._changeable(tx, caller, measure_id), []
            is_timed = any(measure["ends_at"] is not None for measure in group.rows)
            if is_timed and caller.profile != "org-admin":
                sentence = "It ends at its time, so only an administrator may mark it as ended; undo it, or ask one."
                raise ResponderBotError("forbidden", sentence)
            for measure in group.rows:
                row = self._row(tx, caller, measure)
                if not is_timed:
                    rights.require_may_change_end(tx, self._guards, caller, row)
                undo = Action.model_validate_json(row["doc"]).undo
                if measure["state"] == "starting" or (undo is not None and undo.status == "running"):
                    raise ResponderBotError("conflict", "A run of it or its undo has not ended; wait until it has.")
                note(tx, "measure_marked_as_ended", row, login=caller.login)
                ended.append(in_force.end(tx, row, caller.login, self._clock(), message=reason.strip(), action_id=None))
            return ended

        return await self._database.transaction(work)

    async def counts(self) -> dict[str, int]:
        """How many runs have left something in force, by state."""
        return {row["state"]: row["count"] for row in await self._database.read(stored.counts)}

    def _changeable(self, tx: Transaction, caller: Caller, measure_id: str) -> Group:
        group = _group(tx, measure_id)
        clearance.require(tx, caller, number_of(measure_id), "change a measure")
        return group

    def _row(self, tx: Transaction, caller: Caller, measure: Row) -> Row:
        row = find(tx, f"~{measure['action_id']}")
        clearance.require(tx, caller, row["id"], "change a measure")
        return row

    def _is_wanted(self, reads: Reads, wanted: MeasureFilter, rows: Sequence[Row], names: set[str]) -> bool:
        if wanted.target and not names.intersection(_names_of(wanted.target)):
            return False
        if wanted.by and self._guards.login(wanted.by) not in {row["created_by"] for row in rows}:
            return False
        if wanted.responder and self._registry.name(wanted.responder) not in {row["responder_name"] for row in rows}:
            return False
        roots = {number for row in rows for number in _roots_of(reads, row)} if wanted.alert or wanted.case else set()
        return all(parse_id(text) in roots for text in (wanted.alert, wanted.case) if text)

    def _shown(self, reads: Reads, group: Group, rows: Sequence[Row]) -> Measure:
        """A measure by those of its runs that somebody may see; its end and its state are those of all."""
        seen = {row["id"]: row for row in rows}
        measures = sorted((measure for measure in group.rows if measure["action_id"] in seen), key=in_force.end_of)
        action = Action.model_validate_json(seen[measures[-1]["action_id"]]["doc"])
        states = {measure["state"] for measure in group.rows}
        numbers = [measure["action_id"] for measure in measures]
        return Measure(
            id=f"~{min(numbers)}",
            actions=[f"~{number}" for number in numbers],
            responder_name=action.responder_name,
            title=self._registry.title(action.responder_name),
            object_type=action.object_type,
            object_id=action.object_id,
            root_id=f"~{seen[numbers[-1]]['root_id']}",
            target=action.target,
            state="in_force" if "in_force" in states else "unknown" if "unknown" in states else "starting",
            created_by=action.created_by,
            approved_by=[] if action.approval is None else action.approval.approved_by,
            note=action.note,
            since=min(measure["since"] for measure in measures),
            until=group.last["ends_at"],
            undo=action.undo,
            readers=action.readers,
        )


def _missing() -> ResponderBotError:
    return ResponderBotError("not_found", "Measure not found; it may have ended.")


def _group(reads: Reads, measure_id: str) -> Group:
    number = parse_id(measure_id)
    for group in in_force.groups(reads):
        if any(row["action_id"] == number for row in group.rows):
            return group
    raise _missing()


def _seen(reads: Reads, caller: Caller, group: Group) -> Sequence[Row]:
    """The runs of a measure whose objects the caller may see."""
    numbers = [measure["action_id"] for measure in group.rows]
    rows = [row for number in numbers if (row := stored_actions.find(reads, number)) is not None]
    return [row for row in rows if clearance.sees(reads, caller, row["id"])]


def _names_of(text: str) -> set[str]:
    """What a text may name, whatever its data type, as digests."""
    found = set[str]()
    for data_type in ("other", *KINDS):
        with suppress(MalformedError):
            found.add(parse(data_type, text).digest)
    return found


def _roots_of(reads: Reads, row: Row) -> set[int]:
    """The alerts and cases that the object of a run belongs to."""
    found = {row["root_id"], row["object_id"]}
    if row["kind"] == "case_artifact":
        found |= set(objects.alerts_with(reads, row["object_id"]))
    for number in list(found):
        alert = objects.find(reads, "alert", number)
        case = None if alert is None else objects.parsed(alert["doc"])["case"]
        found |= {number_of(case)} if case else set()
    return found
