"""Undoes actions: on request, and when the timer of a run is over (core/docs/semantics.md#undo)."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from core.actions import in_force, rights, undo_state
from core.actions.lifecycle import find, note
from core.actions.runs import Runs, StartedRun, Undoing
from core.authorization import Caller, current_caller
from core.common.clock import MINUTE_MS, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.tasks import repeat
from core.models import Action, Parameter, RunInput, UndoInput
from core.records import clearance
from core.reports.report import has_lost_secret
from core.responders.guards import Guards
from core.responders.registry import Registry
from core.store import actions as stored

TICK_S = 5.0  # how late core may be
BATCH = 100  # undone at once; more wait for the next round

log = structlog.get_logger()


class Undos:
    """Starts runs that undo others; rights, rules and approvals of their responder hold as for any run."""

    def __init__(
        self,
        runs: Runs,
        registry: Registry,
        guards: Guards,
        database: Database,
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._registry = registry
        self._guards = guards
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        """Undo what is due until cancelled, including what became due while no core ran."""
        await repeat("timed undos", TICK_S, self._run_all)

    async def undo(
        self, caller: Caller, action_id: str, request: UndoInput, *, key: str = "", body: str = ""
    ) -> StartedRun:
        """Undo an action now. `key` and `body`: as `Runs.start`.

        Raises ResponderBotError as `Runs.start` does; "conflict" for what can't be undone, with the `action` that
        undoes it or has undone it.
        """

        def read(reads: Reads) -> Row:
            row = find(reads, action_id)
            clearance.require(reads, caller, row["id"], "undo action")
            return row

        row = await self._database.read(read)
        run = self._request(row, request)
        return await self._runs.start(caller, run, key=key, body=f"undo {body}", undoing=Undoing(row["id"]))

    async def set_time(self, caller: Caller, action_id: str, minutes: int) -> Action:
        """Set when core undoes an action: `minutes` from now, 0 for never. Beyond its approval, request an extension.

        Raises ResponderBotError: not_found, forbidden, bad_request for what the settings don't allow, conflict for
        what can't be undone.
        """

        def work(tx: Transaction) -> Action:
            row = find(tx, action_id)
            clearance.require(tx, caller, row["id"], "change when an action is undone")
            now = self._clock()
            return self.set_time_in(tx, caller, row, now + minutes * MINUTE_MS if minutes else None)

        return await self._database.transaction(work)

    def set_time_in(self, tx: Transaction, caller: Caller, row: Row, undo_at: int | None) -> Action:
        """As `set_time`, in a transaction of the caller, who may see the object; None for not by itself."""
        undo_state.require_undoable(tx, row["id"])
        section, now = self._guards.section(row["responder_name"]), self._clock()
        rights.require_may_change_end(tx, self._guards, caller, row)
        note(tx, "undo_time_requested", row, login=caller.login, undo_at=undo_at)
        return undo_state.set_time(tx, row, section, undo_at, caller.login, now)

    async def run_due(self) -> int:
        """Undo what is due; returns how many actions were due."""
        due = await self._database.read(lambda reads: stored.undos_due(reads, self._clock(), BATCH))
        for row in due:
            number, due_at = row["id"], row["undo_at"]
            try:
                await self._undo_due(number, due_at)
            except ResponderBotError:  # the store can't be read or written
                raise
            except Exception:  # one that is damaged must not hold up the others
                log.exception("undo_failed", action_id=f"~{number}")
                await self._change_if_due(number, due_at, self._look_again)
        return len(due)

    async def waiting(self) -> int:
        """How many actions core should have undone, and could not."""
        return await self._database.read(stored.count_undo_waiting)

    async def _undo_due(self, number: int, due_at: int) -> None:
        """Undo an action for its requester, with the rights that they have now."""

        def read(reads: Reads) -> tuple[Row, in_force.Holder | None, Row | None, Caller | None]:
            row = find(reads, f"~{number}")
            caller = current_caller(reads, row["created_by"], row["acted_through"] or row["created_by"])
            return row, in_force.holder(reads, row), in_force.lookalike(reads, row), caller

        row, holder, alike, caller = await self._database.read(read)
        action = Action.model_validate_json(row["doc"])
        if action.undo is None or action.undo.status == "running" or (holder and not holder.is_settled):
            await self._change_if_due(number, due_at, self._look_again)
            return
        if holder is not None and not holder.is_whole:
            sentence = f"~{holder.number} acts on a part of the same and ends later, so it is undone first."
            await self._change_if_due(
                number, due_at, lambda tx, row: undo_state.postponed(tx, row, sentence, self._clock())
            )
            return
        if holder is not None:
            by = holder.number
            await self._change_if_due(number, due_at, lambda tx, row: undo_state.replaced(tx, row, by, self._clock()))
            return
        if alike is not None:
            sentence = (
                f"~{alike['action_id']} acts on what may be the same and ends later; undo it yourself if it isn't."
            )
            await self._change_if_due(
                number, due_at, lambda tx, row: undo_state.postponed(tx, row, sentence, self._clock())
            )
            return
        try:
            if caller is None or not caller.may("manageAction"):
                sentence = f"{row['created_by']} asked for this and may no longer run responders; undo it yourself."
                raise ResponderBotError("forbidden", sentence)
            await self._runs.start(caller, self._request(row, UndoInput()), undoing=Undoing(number, due_at))
        except ResponderBotError as error:
            message = error.message
            log.warning("undo_refused", action_id=f"~{number}", reason=message)
            await self._change_if_due(
                number, due_at, lambda tx, row: undo_state.postponed(tx, row, message, self._clock())
            )

    def _look_again(self, tx: Transaction, row: Row) -> None:
        """Check it again after a moment, such as while somebody else undoes it."""
        stored.set_undo(tx, row["id"], row["doc"], self._clock() + undo_state.RETRY_MS)

    async def _change_if_due(self, number: int, due_at: int, change: Callable[[Transaction, Row], None]) -> None:
        """Change an action if it is still due; somebody may have undone it or changed its time."""

        def work(tx: Transaction) -> None:
            row = stored.find(tx, number)
            if row is not None and row["undo_at"] == due_at:
                change(tx, row)

        await self._database.transaction(work)

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

    async def _run_all(self) -> None:
        while await self.run_due() == BATCH:
            pass


def _common_parameters(row: Row, declared: Iterable[Parameter]) -> dict[str, Any]:
    """The inputs of a run that another responder declares too, without secrets, which aren't kept."""
    parameters = json.loads(row["parameters"])
    common = {parameter.name: parameters[parameter.name] for parameter in declared if parameter.name in parameters}
    return {name: value for name, value in common.items() if not has_lost_secret(value)}
