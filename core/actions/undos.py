"""Undoes actions: on request, and when the timer of a run is over (core/docs/semantics.md#undo)."""

import json
from collections.abc import Collection, Iterable
from typing import Any

import structlog

from core.actions import in_force, rights
from core.actions.due import Followup
from core.actions.in_force import End
from core.actions.lifecycle import find, note
from core.actions.parts import Parts, Service
from core.actions.runs import Runs, StartedRun, Undoing
from core.authorization import Caller, current_caller
from core.common.clock import MINUTE_MS
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import Action, Parameter, RunInput, UndoInput
from core.records import clearance
from core.reports.report import has_lost_secret
from core.store import in_force as stored

log = structlog.get_logger()


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
