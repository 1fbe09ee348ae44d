"""The life of an action: the only place where its status changes.

`Waiting -> InProgress -> Success | Failure`, `Waiting -> Failure`, `Waiting -> Deleted`
(core/docs/semantics.md#states). Each change is one transaction with its event. What a runner reports counts only while
the action is open and this process holds its lease.
"""

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any

import structlog

from core.actions import in_force, rights
from core.actions.parts import Parts, Service
from core.audit import trail
from core.authorization import Caller
from core.common import logs
from core.common.clock import MINUTE_MS, as_time
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Job, Progress, Report, Responder
from core.hosts import Hosts
from core.models import (
    OPEN_STATUSES,
    OWN_PARAMETERS,
    Action,
    ActionStatus,
    Approval,
    Outcome,
    Override,
    RunInput,
    Undo,
    parse_id,
)
from core.protection import BLOCK
from core.records import block_readers, clearance
from core.reports import operations
from core.reports import report as reports
from core.reports.operations import OperationContext, OperationOutcome
from core.responders import target as targets
from core.responders.guards import AskedRun
from core.responders.registry import EngineChoice
from core.responders.target import Target
from core.settings import OWN_ENGINE, ResponderSection
from core.store import actions as stored
from core.store import approvals, blocklist, events, objects
from core.store import hosts as stored_hosts
from core.store.approvals import StoredApproval
from core.store.database import backup

_STATUSES: Mapping[Outcome, ActionStatus] = {"succeeded": "Success", "cancelled": "Deleted"}
"""The status of each outcome that is no `Failure`."""
_DECIDED: Mapping[Outcome, trail.What] = {
    "denied": "run.denied",
    "cancelled": "run.cancelled",
    "expired": "run.expired",
}
"""What the audit says of an end that is a decision."""
_BY_CORE = "core: "  # prefix of the reason in `cancelled_by`, if core cancelled it

log = structlog.get_logger()


@dataclass(frozen=True)
class _PendingReport:
    """A report whose operations are still to be applied."""

    at: int
    """When the action ended (ms); also the time of its operations' changes."""
    report: reports.PreparedReport
    text: str
    """The report as text for the store; empty if a single transaction applies all operations."""


class _Applied(Enum):
    """How much of a report is applied so far."""

    IN_PART = auto()
    WHOLLY = auto()
    NOT_HELD = auto()
    """This core may apply nothing more: the action has ended, or another core holds its lease."""


class Lifecycle(Service):
    """Moves actions from one state to the next, for people and for this process's runner."""

    def __init__(
        self,
        parts: Parts,
        hosts: Hosts,
        *,
        organisation: str,
        product: str,
        limits: reports.ReportLimits = reports.ReportLimits(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(parts)
        self._hosts = hosts
        self._organisation = organisation
        self._product = product
        self._limits = limits

    # --- in a transaction of the caller -----------------------------------------------------------------------------

    def record(
        self,
        tx: Transaction,
        caller: Caller,
        request: RunInput,
        target: Target,
        choice: EngineChoice,
        section: ResponderSection,
        parameters: reports.SerializedParameters,
        *,
        has_slot: bool = False,
        bulk_id: int | None = None,
        override: Override | None = None,
        undo: Undo | None = None,
        undoes: int | None = None,
    ) -> Action:
        """Record an accepted run as `Waiting`: for approvals, for this core, or for any core that claims it.

        This core owns it if it `has_slot`, or if the engine is unlimited. `parameters` are those of the request.
        `bulk_id` names its bulk, `undo` says how it can be undone, and `undoes` is the number of the action that it
        undoes.
        """
        now, number = self._clock(), objects.next_id(tx)
        needed, waiting = section.approval + (override is not None), None
        if needed:
            expires_at = now + section.approval_expires_minutes * MINUTE_MS
            waiting = StoredApproval(number, number, caller.login, now, needed, expires_at)
            approvals.insert(tx, waiting)
        row = {
            "kind": target.kind,
            "object_id": target.id,
            "root_id": target.root_id,
            "created_by": caller.login,
            "acted_through": caller.acted_through,
            "owner": None if needed else self._owner(choice.engine_name, choice.merged.name, has_slot=has_slot),
            "parameters": json.dumps(request.parameters),
            "whole_parameters": parameters.whole,
            "secret_names": json.dumps(sorted(parameters.secret_names)),
            "awaits_approval": int(needed > 0),
            "bulk_id": bulk_id,
            "undoes": undoes,
            "request_id": logs.request_id(),
        }
        action, row = _insert(
            *(tx, number, now, target, choice, row),
            note=request.note or None if override is None else override.reason,
            target=None if target.acts_on is None else list(target.acts_on),
            parameters=parameters.text,
            created_by=caller.login,
            approval=None if waiting is None else waiting.shown(),
            override=override,
            bulk=None if bulk_id is None else f"~{bulk_id}",
            undo=undo,
            undoes=None if undoes is None else f"~{undoes}",
        )
        if needed or self._guards.counts_targets(choice.merged.name):
            named = targets.acted_on(action.target, target).values()  # of a file its name has a digest, and its content
            digests = in_force.digests_of(action.object_id, target.acts_on or ()) | {one.digest for one in named}
            stored.add_targets(tx, number, digests)
        self.record_event(tx, row, "action.created", caller.login)
        note(tx, "run_requested", row, login=caller.login, approvals_needed=needed)
        self._audit_request(tx, row, action, choice.responder)
        return action

    def _audit_request(self, tx: Transaction, row: Mapping[str, Any], action: Action, responder: Responder) -> None:
        """Add the row that says what was asked for; `responder` is as its engine has it."""
        self.audit(
            tx,
            "run.requested",
            row,
            by=action.created_by,
            approvals_needed=0 if action.approval is None else action.approval.needed,
            overrides=None if action.override is None else [refusal.rule for refusal in action.override.overrides],
            bulk=action.bulk,
            undoes=action.undoes,
            undo_after_minutes=None if action.undo is None else action.undo.after_minutes,
            **_version(responder),
            texts={
                "inputs": None if action.parameters == "{}" else action.parameters,
                "note": action.note,
                "target": None if action.target is None else " ".join(item.data for item in action.target),
            },
        )

    def _owner(self, engine_name: str, responder_name: str, *, has_slot: bool) -> str | None:
        """The owner of a new action: this core, or (None) any core that claims it."""
        takes = has_slot or (not self._hosts.draining and self._registry.is_unlimited_here(engine_name, responder_name))
        return self._hosts.holder if takes else None

    def release(self, tx: Transaction, row: Row, action: Action) -> None:
        """Store an action that has all its approvals; this core may dispatch it, or any that claims it."""
        owner = self._owner(row["engine_name"], row["responder_name"], has_slot=False)
        stored.set_approved(tx, row["id"], action.to_json(), owner)

    def end_without_report(
        self, tx: Transaction, row: Row, outcome: Outcome, message: str, user: str, *, approval: Approval | None = None
    ) -> Action:
        """End an action without an engine's report; `message` is the sentence for people.

        `approval`, if given, replaces the action's.
        """
        # What core's own engine does is done by the transaction of its end, or not at all.
        prepared = self._prepared(Report(False, message, is_known=row["engine_name"] == OWN_ENGINE), row)
        ended_by = user if outcome in ("denied", "cancelled") else None
        now = self._clock()
        return self._store_end(tx, row, outcome, prepared, user, ended_by=ended_by, now=now, approval=approval)

    # --- for people -------------------------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, action_id: str, why: str = "") -> tuple[Action, bool]:
        """End an action that is not dispatched yet; mark a dispatched one as cancelled, so that its engine stops it.

        Returns the action, and whether this call was the first to mark it. Raises ResponderBotError: not_found,
        forbidden (neither its requester nor an org-admin), conflict (it has ended).
        """

        def work(tx: Transaction) -> tuple[Action, bool]:
            row = find(tx, action_id)
            clearance.require(tx, caller, row["id"], "cancel action")
            rights.require_may_cancel(tx, caller, row, row["created_by"])
            action = rights.require_open(row, "cancelled")
            note(tx, "run_cancelled", row, login=caller.login)
            if row["dispatched_at"] is None:
                message = _cancelled(caller.login, why).message
                return self.end_without_report(tx, row, "cancelled", message, caller.login), False
            is_first = row["cancelled_by"] is None
            if is_first:
                stored.change(tx, row["id"], cancelled_by=caller.login)
                self.audit(tx, "run.cancelled", row, by=caller.login, texts={"reason": why or None})
            return action, is_first

        return await self._database.transaction(work)

    async def withdraw_cancel(self, number: int) -> None:
        """Undo the mark of a cancel that the action's engine can't carry out, unless another cancel has ended it."""

        def work(tx: Transaction) -> None:
            row = stored.find(tx, number)
            if row is not None and row["status"] in OPEN_STATUSES:
                stored.change(tx, number, cancelled_by=None)
                self.audit(tx, "run.cancel_withdrawn", row)

        await self._database.transaction(work)

    async def is_cancelled(self, number: int) -> bool:
        """Whether somebody has cancelled an action that is still open."""
        row = await self._database.read(lambda reads: stored.find(reads, number))
        return row is not None and row["cancelled_by"] is not None and row["status"] in OPEN_STATUSES

    async def running_job(self, number: int) -> tuple[str, Job]:
        """Engine name and job of a dispatched action. Raises ResponderBotError("not_found")."""

        def read(reads: Reads) -> tuple[str, Job]:
            row = find(reads, f"~{number}")
            target, _ = targets.of_action(reads, row)
            return row["engine_name"], self._job(row, target, resumed=True)

        return await self._database.read(read)

    # --- for the runner ---------------------------------------------------------------------------------------------

    async def dispatch(self, number: int) -> Job | Report | None:
        """As `dispatch_in`, in a transaction of its own."""
        await self.compare([number])
        return await self._database.transaction(lambda tx: self.dispatch_in(tx, number))

    def dispatch_in(self, tx: Transaction, number: int, recorded: Target | None = None) -> Job | Report | None:
        """Mark an action as dispatched; returns the job for its engine.

        `recorded` is its target if this transaction has just recorded it, with all rules checked; else they are now.

        Returns None if this runner may not dispatch it (ended, cancelled, waiting for approval, owned by another core),
        and a Report if it may no longer run (core/docs/semantics.md#dispatch).
        """
        row = self._held(tx, number)
        if row is None:
            return None
        action, not_allowed = Action.model_validate_json(row["doc"]), ""
        if recorded is not None:
            now_on = target = recorded
        else:
            now_on, target, changed = targets.of_run(tx, row)
            not_allowed = changed or rights.why_not_start(tx, action, row, now_on, self._guards)
            if not not_allowed and self._guards.has_rules(row["responder_name"]):
                not_allowed = self._guards.why_not_dispatch(tx, row, self.asked_run(row, target))
        if row["dispatched_at"] is not None:
            return self._dispatched_before(tx, row, target, not_allowed)
        reason = not_allowed or self._registry.why_not(now_on, row["responder_name"], row["engine_name"])
        if reason:
            return Report(False, message=reason)
        now = self._hosts.common_clock()
        host_id = self._hosts.host.id if self._registry.runs_here(row["engine_name"]) else None
        if not self._hosts.keep_lease(tx) or not stored.dispatch(tx, number, self._hosts.holder, host_id, now):
            return None
        section = self._registry.section(row["responder_name"])
        in_force.begin(tx, action, row, section, target, now)
        note(tx, "run_started", row, engine=row["engine_name"], request_id=row["request_id"])
        merged = self._registry.find(row["responder_name"])
        version: Mapping[str, Any] = _version(merged.on(row["engine_name"]) if merged else None)
        self.audit(tx, "run.dispatched", row, engine=row["engine_name"], host=self._hosts.host.name, **version)
        return self._job(row, target, resumed=False)

    async def compare(self, numbers: Iterable[int]) -> None:
        """Compare runs with `[protect]` before the transaction that asks, which then finds the answers in memory."""

        def compare(reads: Reads) -> None:
            for row in filter(None, map(partial(stored.find, reads), numbers)):
                if row["target"] is not None and self._guards.compares(row["responder_name"]):
                    self._guards.compare(reads, self.asked_run(row, targets.of_run(reads, row).asked))

        if self._guards.has_protected:
            with suppress(ValueError):  # dispatch tells of one that is damaged
                await self._database.snapshot(compare)

    def asked_run(self, row: Row, target: Target) -> AskedRun:
        """A recorded run as the rules see it."""
        name, undoes = row["responder_name"], row["undoes"] is not None
        merged = self._registry.find(name)
        types = self._registry.parameter_types(merged) if merged is not None else {}
        return AskedRun(name, row["created_by"], target, json.loads(row["parameters"]), row["id"], undoes, types)

    def claim(
        self, tx: Transaction, engine_name: str, names: Sequence[str] | None, limit: int
    ) -> list[tuple[int, Job | Report | None]]:
        """Claim the oldest actions of an engine that wait for a core, of the responders with these names (None: all).

        Those that can start at once are dispatched, as by `dispatch_in`; the job of the others is None.
        """
        if self._hosts.draining or not self._hosts.keep_lease(tx):
            return []
        engine = self._registry.engine(engine_name)
        claimed: list[tuple[int, Job | Report | None]] = []
        for row in stored.claim(tx, engine_name, names, limit, self._hosts.holder):
            job = None
            # As in Runs.start: not for an engine that names its jobs itself.
            if row["dispatched_at"] is None and engine.job_id(row["run_id"]):
                job = self._dispatch_claimed(tx, row["id"])
            claimed.append((row["id"], job))
        return claimed

    def _dispatch_claimed(self, tx: Transaction, number: int) -> Job | Report | None:
        """As `dispatch_in`; None for a record that is damaged, which must not hold up the others."""
        try:
            with tx.savepoint():
                return self.dispatch_in(tx, number)
        except ValueError:
            log.exception("record_unreadable", action_id=f"~{number}")
            return None

    def take_over(self, tx: Transaction, holder: str) -> list[Row]:
        """Take over the actions of a core whose lease has expired, in the transaction that deletes the lease.

        Any core may claim what was not dispatched, and what a remote engine runs. This core takes what runs on this
        host, and ends that are being stored. Actions end that ran on a host without any core. Returns the actions that
        this core took.
        """
        is_over, core, live = self._hosts.find_over(tx, holder)
        if not is_over or not self._hosts.keep_lease(tx):
            return []
        stored.release_waiting(tx, holder)
        own, ended = list[Row](), 0
        for row in stored.dispatched_by(tx, holder):
            is_here = row["host_id"] == self._hosts.host.id
            if is_here or stored.outcomes(tx, row["id"]) is not None:
                stored.change(tx, row["id"], owner=self._hosts.holder)
                own.append(row)
            elif row["host_id"] is None:
                stored.change(tx, row["id"], owner=None)
            elif row["host_id"] not in live:
                ended += self._end_lost(tx, row, core["host"] if core else "")
        if core is not None:
            stored_hosts.remove(tx, holder)
            if not self._hosts.is_here(core["host_id"]):
                stored_hosts.add_lost(tx, core["host_id"], core["host"], self._clock(), ended)
        return own

    def _end_lost(self, tx: Transaction, row: Row, host: str) -> bool:
        """End an action whose program ran on a host that was lost. Its effect is unknown, so it is not run again."""
        which = f"Host {host}" if host else "Its host"
        message = f"{which} was lost while it ran. Look at the target before you run it again."
        try:
            with tx.savepoint():
                self.end_without_report(tx, row, "failed", message, row["created_by"])
        except ValueError:  # one record that is damaged must not hold up the others
            log.exception("record_unreadable", action_id=f"~{row['id']}")
            return False
        return True

    def _dispatched_before(self, tx: Transaction, row: Row, target: Target, not_allowed: str) -> Job:
        """The job of an action that an earlier core dispatched.

        That core may have been killed before the program started. If the action may no longer run, it is cancelled,
        so that the engine doesn't start it now.
        """
        is_cancelled = row["cancelled_by"] is not None
        if not_allowed and not is_cancelled and row["status"] == "Waiting":
            stored.change(tx, row["id"], cancelled_by=f"{_BY_CORE}{not_allowed}")
            self.audit(tx, "run.cancelled", row, texts={"reason": not_allowed})
            is_cancelled = True
        return replace(self._job(row, target, resumed=True), cancelled=is_cancelled)

    async def claim_one(self, number: int) -> bool:
        """Claim one action that waits for a core; False if another core was first."""

        def work(tx: Transaction) -> bool:
            return self._hosts.keep_lease(tx) and stored.claim_one(tx, number, self._hosts.holder) > 0

        return await self._database.transaction(work)

    async def give_back(self, number: int) -> None:
        """Let any core claim an action that this process holds and has not dispatched."""

        def work(tx: Transaction) -> None:
            row = self._held(tx, number)
            if row is not None and row["dispatched_at"] is None:
                stored.change(tx, number, owner=None)

        await self._database.transaction(work)

    async def still_holds(self, number: int) -> bool:
        """Whether this process holds an open action; renews the lease if it would end soon."""

        def work(tx: Transaction) -> bool:
            return self._hosts.keep_lease(tx) and self._held(tx, number) is not None

        return await self._database.transaction(work)

    async def is_open(self, number: int) -> bool:
        """Whether an action has not ended."""
        row = await self._database.read(partial(stored.find, action_id=number))
        return row is not None and row["status"] in OPEN_STATUSES

    async def is_elsewhere(self, number: int) -> bool:
        """Whether the program of an action runs on another host."""
        row = await self._database.read(partial(stored.find, action_id=number))
        return row is not None and row["host_id"] is not None and not self._hosts.is_here(row["host_id"])

    async def progress(self, number: int, progress: Progress, run_id: str) -> None:
        """Store an engine's progress on a job, unless another core holds the lease."""

        def work(tx: Transaction) -> None:
            row = self._held(tx, number, run_id)
            if row is None:
                return
            stored.change(tx, number, engine_job_id=progress.engine_job_id)
            action = Action.model_validate_json(row["doc"])
            status: ActionStatus = "InProgress" if progress.running else action.status
            moved = action.model_copy(
                update={
                    "status": status,
                    "engine_job_id": progress.engine_job_id,
                    "dispatched_at": row["dispatched_at"],
                }
            )
            if moved != action:
                stored.change(tx, number, status=status, doc=moved.to_json())
                self.record_event(tx, row, "action.updated", row["created_by"])

        await self._database.transaction(work)

    async def has_stored_report(self, number: int) -> bool:
        """Whether the report is stored already, and only operations remain to be applied."""
        return await self._database.read(lambda reads: stored.outcomes(reads, number)) is not None

    async def apply_report(self, number: int, report: Report | None, run_id: str = "") -> bool:
        """Store the end of an action and apply its operations, each once, even across a crash.

        Many operations are applied in slices, so that others can write in between. The first slice stores the report,
        each slice its outcomes. A stored report takes precedence over `report`, which may be None then. Returns False
        if the action has ended, if another core holds its lease, or if its `run_id` differs, since the database lost
        that action and reused its number.
        """

        def read(reads: Reads) -> tuple[Row, Row | None] | None:
            row = self._held(reads, number, run_id)
            return None if row is None else (row, stored.find_report(reads, number))

        held = await self._database.read(read)
        if held is None:
            return False
        pending = await self._pending_report(*held, report)
        while True:
            applied = await self._database.transaction(lambda tx: self._apply_slice(tx, number, run_id, pending))
            if applied is not _Applied.IN_PART:
                return applied is _Applied.WHOLLY

    async def _pending_report(self, row: Row, begun: Row | None, report: Report | None) -> _PendingReport:
        if begun is not None:
            prepared = await asyncio.to_thread(reports.PreparedReport.from_text, begun["report"])
            return _PendingReport(begun["at"], prepared, begun["report"])
        if report is None:
            raise ValueError("an action without a stored report needs one")
        prepared = await asyncio.to_thread(self._prepared, report, row)
        in_slices = len(prepared.operations) > operations.SLICE_SIZE
        return _PendingReport(self._clock(), prepared, await asyncio.to_thread(prepared.to_text) if in_slices else "")

    def _apply_slice(self, tx: Transaction, number: int, run_id: str, pending: _PendingReport) -> _Applied:
        """Apply one slice of operations, and end the action with the last one."""
        row = self._held(tx, number, run_id)
        if row is None:
            return _Applied.NOT_HELD
        requested = pending.report.operations
        begun = stored.outcomes(tx, number)
        outcomes: list[OperationOutcome] = [] if begun is None else json.loads(begun)
        level = clearance.level_of(tx, number)
        context = OperationContext(row["kind"], row["object_id"], row["created_by"], pending.at, level)
        slice_ = requested[len(outcomes) : len(outcomes) + operations.SLICE_SIZE]
        outcomes += operations.apply_slice(tx, context, slice_)
        if len(outcomes) < len(requested):
            if begun is None:
                stored.insert_report(tx, number, pending.at, pending.text)
            stored.set_outcomes(tx, number, json.dumps(outcomes))
            return _Applied.IN_PART
        if begun is not None:
            stored.delete_report(tx, number)
        prepared, ended_by = pending.report, None
        outcome: Outcome = "succeeded" if prepared.success else "failed"
        if row["cancelled_by"] and not prepared.success:
            prepared = self._prepared(_cancelled(row["cancelled_by"]), row)
            if not row["cancelled_by"].startswith(_BY_CORE):
                outcome, ended_by = "stopped", row["cancelled_by"]
        user = row["created_by"]
        self._store_end(tx, row, outcome, prepared, user, ended_by=ended_by, outcomes=outcomes, now=pending.at)
        return _Applied.WHOLLY

    # --- after a restore --------------------------------------------------------------------------------------------

    async def end_restored(self) -> None:
        """End all actions that were open in a restored backup, since each may have run after the backup was made.

        Call it before any runner is opened. An action whose report is stored goes on to its end without its engine.
        Several cores may call it at once; only the first does anything.
        """

        def work(tx: Transaction) -> tuple[int, int] | None:
            made_at = backup.made_at(tx)
            if made_at is None:
                return None
            backup.resume(tx, made_at, self._clock())
            found = filter(None, map(partial(stored.find, tx), stored.unreported_ids(tx)))
            # An undo of what core itself has in force goes on: nothing else can have done it.
            rows = [row for row in found if row["engine_name"] != OWN_ENGINE or row["undoes"] is None]
            message = (
                f"Core was restored from a backup of {as_time(made_at)}; it may have run."
                " Look at its target before you run it again."
            )
            for row in rows:
                if row["dispatched_at"] is None and row["engine_name"] != OWN_ENGINE:
                    action, target = Action.model_validate_json(row["doc"]), targets.of_run(tx, row).asked
                    section = self._registry.section(row["responder_name"])
                    in_force.begin(tx, action, row, section, target, self._clock())
                self.end_without_report(tx, row, "failed", message, row["created_by"])
            if blocklist.version(tx):
                blocklist.hold(tx, made_at)
            trail.record(
                tx, self._clock(), "backup.restored", by=trail.CORE, object="backup", made_at=made_at, ended=len(rows)
            )
            sentence = (
                f"Core was restored from a backup of {as_time(made_at)}; it may have been undone, or be in force"
                " for another reason. Look at its target before you undo it."
            )
            in_force.doubt_all(tx, sentence, self._clock())
            return made_at, len(rows)

        if await self._database.read(backup.made_at) is not None:
            restored = await self._database.transaction(work)
            if restored:
                made_at, ended = restored
                log.warning("restored_from_backup", made_at=as_time(made_at), actions_ended=ended)

    # --- shared -----------------------------------------------------------------------------------------------------

    def _store_end(
        self,
        tx: Transaction,
        row: Row,
        outcome: Outcome,
        prepared: reports.PreparedReport,
        user: str,
        *,
        ended_by: str | None,
        now: int,
        outcomes: Sequence[OperationOutcome] = (),
        approval: Approval | None = None,
    ) -> Action:
        """Store the end; `outcomes` are those of the operations."""
        serialized = reports.serialize(prepared, outcomes, self._limits)
        status = _STATUSES.get(outcome, "Failure")
        before = Action.model_validate_json(row["doc"])
        ended = before.model_copy(
            update={
                "status": status,
                "outcome": outcome,
                "dispatched_at": row["dispatched_at"],
                "end_date": now,
                "ended_by": ended_by,
                "operations": serialized.operations,
                "report": serialized.report,
                "approval": approval or before.approval,
            }
        )
        ended = in_force.settle(tx, row, ended, outcome, self._registry.section, now, is_known=prepared.is_known)
        if row["responder_name"] == BLOCK and ended.measure is not None:
            ended = block_readers.begun(tx, ended, now)
        values = {
            "id": row["id"],
            "status": status,
            "doc": ended.to_json(),
            "whole_report": serialized.whole_report,
            "whole_operations": serialized.whole_operations,
            "parameters": before.parameters,
            "now": now,
        }
        stored.set_end(tx, values, keep_target=ended.measure is not None)
        if before.approval is not None:
            approvals.delete_of(tx, row["id"])
        self.record_event(tx, row, "action.ended", user)
        seconds = None if row["dispatched_at"] is None else (now - row["dispatched_at"]) / 1000
        note(tx, "run_ended", row, outcome=outcome, ran_s=seconds, request_id=row["request_id"])
        message = json.loads(prepared.parts["message"])
        by = ended_by if outcome in _DECIDED and ended_by else trail.CORE
        self.audit(tx, _DECIDED.get(outcome, "run.ended"), row, by=by, outcome=outcome, texts={"message": message})
        if status != "Success" and row["undoes"] is not None:
            in_force.undo_failed(tx, row["undoes"], ended, self._clock())
        is_undo = row["undoes"] is not None or self._guards.is_undo(row["responder_name"])
        if status == "Success" and is_undo and row["dispatched_at"] is not None:
            in_force.end_undone(tx, row, ended, targets.of_run(tx, row).asked, self._clock())
        return ended

    def _prepared(self, report: Report, row: Row) -> reports.PreparedReport:
        secret_names = frozenset(json.loads(row["secret_names"]))
        return reports.prepare(report, self._parameters(row), self._limits, secret_names)

    def audit(
        self,
        tx: Transaction,
        what: trail.What,
        row: Row | Mapping[str, Any],
        *,
        by: str = trail.CORE,
        texts: Mapping[str, str | None] | None = None,
        **details: Any,
    ) -> None:
        """Add a row on this action to the audit."""
        policy = self._guards.policy(row["responder_name"])
        trail.record_run(tx, self._clock(), what, row, by=by, policy=policy, texts=texts, **details)

    def record_event(
        self, tx: Transaction, row: Row | Mapping[str, Any], type: str, user: str, *, request_id: str = ""
    ) -> None:
        """Record an event of this action; `request_id` is by default that of the request that started it."""
        events.record(
            tx,
            row["id"],
            at=self._clock(),
            type=type,
            object_type="Action",
            root_id=row["root_id"],
            user=user,
            request_id=request_id or row["request_id"],
        )

    def _held(self, reads: Reads, number: int, run_id: str = "") -> Row | None:
        """The row of an open action that this process holds, with that `run_id` if one is given; else None."""
        row = stored.find(reads, number)
        if row is None or row["status"] not in OPEN_STATUSES or row["owner"] != self._hosts.holder:
            return None
        return row if run_id in ("", row["run_id"]) else None

    def _parameters(self, row: Row) -> dict[str, Any]:
        """The responder's `parameters`: the caller's, and core's own, which no caller can set."""
        parameters = {
            name: value for name, value in json.loads(row["parameters"]).items() if name not in OWN_PARAMETERS
        }
        undoes = {} if row["undoes"] is None else {"undoes": f"~{row['undoes']}"}
        own = {"user": row["created_by"], "organisation": self._organisation, **undoes}
        return {**parameters, **own}

    def _job(self, row: Row, target: Target, *, resumed: bool) -> Job:
        return Job(
            action_id=f"~{row['id']}",
            run_id=row["run_id"],
            responder_id=row["engine_responder_id"],
            responder_name=row["responder_name"],
            data=target.json,
            data_type=f"{self._product}:{target.kind}",
            tlp=target.tlp,
            pap=target.pap,
            parameters=self._parameters(row),
            engine_job_id=row["engine_job_id"] or "",
            resumed=resumed,
            seen_running=row["status"] == "InProgress",
        )


def _insert(
    tx: Transaction, number: int, now: int, on: Target, choice: EngineChoice, values: Mapping[str, Any], **fields: Any
) -> tuple[Action, dict[str, Any]]:
    """Store a new action with these `fields`; returns it and its row, which has these `values` too."""
    merged = choice.merged
    run_id = f"{number}-{secrets.token_hex(8)}"
    action = Action(
        id_=f"~{number}",
        id=f"~{number}",
        responder_id=merged.first.id,
        responder_name=merged.name,
        responder_definition=choice.responder.definition or merged.name,
        engine_id=choice.engine_name,
        engine_job_id=choice.engine.job_id(run_id) if choice.engine else "",
        object_type=on.object_type,
        object_id=f"~{on.id}",
        status="Waiting",
        start_date=now,
        operations="[]",
        report="{}",
        created_at=now,
        **fields,
    )
    row = {
        "id": number,
        "responder_name": merged.name,
        "engine_name": choice.engine_name,
        "engine_responder_id": choice.responder.id,
        "status": action.status,
        "created_at": now,
        "engine_job_id": action.engine_job_id,
        "target": targets.to_store(tx, on),
        "run_id": run_id,
        "doc": action.to_json(),
        **values,
    }
    stored.insert(tx, row)
    return action, row


def find(reads: Reads, action_id: str) -> Row:
    """The row of an action by its id (`~12`). Raises ResponderBotError("not_found")."""
    number = parse_id(action_id)
    row = None if number is None else stored.find(reads, number)
    if row is None:
        raise ResponderBotError("not_found", "Action not found")
    return row


def _version(responder: Responder | None) -> Mapping[str, str]:
    """What the audit says of the program that is to run."""
    return {} if responder is None else {"version": responder.version, "code": responder.code}


def note(tx: Transaction, event: str, row: Row | Mapping[str, Any], **more: Any) -> None:
    """Log an event about an action once the transaction is committed."""
    ids = {"action": f"~{row['id']}", "object": f"~{row['object_id']}", "root": f"~{row['root_id']}"}
    tx.notes.append((event, {**ids, "responder": row["responder_name"], **more}))


def _cancelled(login: str, why: str = "") -> Report:
    return Report(False, message=f"Cancelled by {login}{why and f': {why}'}")
