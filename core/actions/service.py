"""The life of an action. The only place where its status changes.

`Waiting -> InProgress -> Success | Failure`, `Waiting -> Failure`, `Waiting -> Deleted` (`semantics.md 5`). Each move
is one transaction with its event, made only while the action is open and, for what a runner reports, its own.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import structlog

from core.access import Caller, current_permissions
from core.actions import operations
from core.actions import report as reports
from core.actions import target as targets
from core.actions.catalog import Choice, Responders
from core.actions.target import Target
from core.common.clock import Clock
from core.common.database.sqlite import Database, Reads, Row, Search, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Job, Progress, Report
from core.models import OPEN_STATUSES, Action, ActionStatus, Approval, Kind, RunInput, SearchInput
from core.records import events
from core.records.search import Found, search
from core.settings import ResponderSection
from core.store import actions as stored
from core.store import backup, objects
from core.store.search import Window, within_limit

KEY_KEPT_MS = 24 * 3_600_000  # an Idempotency-Key (semantics.md 5)
LEASE_MS = 15_000  # a core that is silent this long has lost its actions to another
RENEWED_MS = LEASE_MS // 2  # one that has less than this left was silent itself, and renews before it starts anything
MINUTE_MS = 60_000
FEW = 20  # as many actions are read on the loop, which is quickest
FEW_CHARS = 262_144
LIST_LIMIT = 1_000  # of actions in one answer; with the least that is left of their reports, 1 to 2 MB

log = structlog.get_logger()


class StartedRun(NamedTuple):
    """An action that a request led to; `new` is False when the Idempotency-Key had come before."""

    action: Action
    new: bool


@dataclass(frozen=True)
class LeaseHolder:
    """The process that follows an action, in this core."""

    id: str
    accepted: Callable[[int, str], None]
    """Called after the commit with the number and the engine of each action that may now be handed over."""


@dataclass(frozen=True)
class _Ending:
    """An end on its way into the store."""

    at: int
    """When it ended, which is also when its operations changed what they did."""
    report: reports.Ending
    text: str
    """The report as it is kept between two slices; empty where one is enough."""


class Actions:
    """What people do to actions, and what a runner reports of them."""

    def __init__(
        self,
        database: Database,
        responders: Responders,
        clock: Clock,
        *,
        organisation: str,
        product: str,
        limits: reports.Limits,
        spread_load: bool = False,
    ) -> None:
        self._database = database
        self._responders = responders
        self._clock = clock
        self._organisation = organisation
        self._product = product
        self._limits = limits
        self._spread_load = spread_load
        self._owner = LeaseHolder("", lambda number, engine_name: None)

    def own(self, owner: LeaseHolder) -> None:
        """Name who follows the actions that this process accepts."""
        self._owner = owner

    # --- what people ask for ----------------------------------------------------------------------------------------

    async def start(self, caller: Caller, asked: RunInput, *, key: str = "", body: str = "") -> StartedRun:
        """Record a run, durably, before its engine is called (`interface.md 4.4`).

        `key` and `body` are the Idempotency-Key and the decoded body to compare. Raises ResponderBotError as
        `semantics.md 5` has it: not_found, log_not_found, bad_request, conflict, key_reused.
        """
        earlier = self._earlier(self._database, caller, key, body)
        if earlier is not None:
            return StartedRun(earlier, False)
        number = objects.parse_id(asked.object_id)
        target = targets.load(self._database, asked.object_type, number, on_run=True)
        choice = self._responders.choose(target, asked.responder_id, asked.engine_id)
        policy = self._responders.policy(choice.offer.name)

        def work(tx: Transaction) -> StartedRun:
            earlier = self._earlier(tx, caller, key, body)
            if earlier is not None:
                return StartedRun(earlier, False)
            if asked.only_if_idle:
                _refuse_while_open(tx, target, choice.offer.name)
            action = self._record(tx, caller, asked, target, self._with_room(tx, choice, asked, target), policy)
            if key:
                stored.remember(tx, caller.login, key, body, _number(action), action.created_at)
            return StartedRun(action, True)

        started = await self._database.transaction(work)
        if started.new and started.action.approval is None:
            self._owner.accepted(_number(started.action), started.action.engine_id)
        return started

    async def cancel(self, caller: Caller, action_id: str) -> tuple[Action, bool]:
        """End an action that still waits; mark one that was dispatched as to be stopped.

        Returns the action, and whether this call was the first to mark it. Stopping what an engine runs is the
        runner's part. Raises ResponderBotError: not_found, forbidden (neither its owner nor an org-admin), conflict.
        """

        def work(tx: Transaction) -> tuple[Action, bool]:
            row = _found(tx, action_id)
            # The profile, since acting for somebody takes manageUser away: an org-admin may cancel from Slack too.
            if row["created_by"] != caller.login and caller.profile != "org-admin":
                raise ResponderBotError("forbidden", f"Only {row['created_by']} or an org-admin may cancel this.")
            action = _still_open(row, "cancelled")
            if row["handed_at"] is None:
                return self._end_unrun(tx, row, "Deleted", _cancelled(caller.login).message, caller.login), False
            is_first = row["cancelled_by"] is None
            if is_first:
                stored.set_cancelled_by(tx, row["id"], caller.login)
            return action, is_first

        return await self._database.transaction(work)

    async def keep_running(self, action_id: str) -> None:
        """Take back that an action is to be stopped: its engine can't do it."""
        number = objects.parse_id(action_id)
        if number is not None:
            await self._database.transaction(lambda tx: stored.set_cancelled_by(tx, number, None))

    def to_be_stopped(self, number: int) -> bool:
        """Whether somebody has cancelled an action that still runs."""
        row = stored.find(self._database, number)
        return row is not None and row["cancelled_by"] is not None and row["status"] in OPEN_STATUSES

    async def approve(self, caller: Caller, action_id: str) -> Action:
        """Agree to an action that waits for people. Raises ResponderBotError: not_found, forbidden, conflict.

        Only the votes of those who may still run responders count. Where the requester no longer may, the action ends
        and this is a conflict.
        """

        def work(tx: Transaction) -> tuple[Action, str]:
            row, action, approval = self._awaiting(tx, caller, action_id)
            if not _may_run(tx, row["created_by"]):
                reason = _no_longer_allowed(row["created_by"])
                return self._end_unrun(tx, row, "Failure", reason, caller.login), reason
            votes = [login for login in approval.approved_by if login != caller.login and _may_run(tx, login)]
            votes.append(caller.login)
            if set(votes) == set(approval.approved_by):
                return action, ""
            action = action.model_copy(update={"approval": approval.model_copy(update={"approved_by": votes})})
            stored.set_approved(
                tx, row["id"], action.to_json(), self._owner.id if len(votes) >= approval.needed else None
            )
            self._tell(tx, row, "action.updated", caller.login)
            return action, ""

        action, reason = await self._database.transaction(work)
        if reason:
            raise ResponderBotError("conflict", reason)
        if action.approval is not None and len(action.approval.approved_by) >= action.approval.needed:
            self._owner.accepted(_number(action), action.engine_id)
        return action

    async def deny(self, caller: Caller, action_id: str, message: str = "") -> Action:
        """Refuse an action that waits for people; it ends. Raises ResponderBotError as `approve` does."""

        def work(tx: Transaction) -> Action:
            row, _, _ = self._awaiting(tx, caller, action_id)
            said = f"Denied by {caller.login}: {message}" if message else f"Denied by {caller.login}"
            return self._end_unrun(tx, row, "Failure", said, caller.login)

        return await self._database.transaction(work)

    # --- what people read -------------------------------------------------------------------------------------------

    def json_of(self, action_id: str) -> str:
        """An action's JSON with its whole report. Raises ResponderBotError("not_found")."""
        number = objects.parse_id(action_id)
        row = None if number is None else stored.whole_doc(self._database, number)
        if row is None:
            raise _not_found()
        whole = {key: row[f"whole_{key}"] for key in ("report", "operations") if row[f"whole_{key}"] is not None}
        return Action.model_validate_json(row["doc"]).model_copy(update=whole).to_json() if whole else str(row["doc"])

    def list_json(self, kind: Kind, object_id: str) -> str | None:
        """The JSON array of an object's actions, newest first; None where it is long, and for `list_part` to read.

        Raises ResponderBotError("not_found").
        """
        number = targets.existing(self._database, kind, objects.parse_id(object_id))
        docs = stored.newest_docs_of(self._database, kind, number, FEW)
        return f"[{','.join(docs)}]" if len(docs) < FEW and sum(map(len, docs)) < FEW_CHARS else None

    async def list_part(self, kind: Kind, object_id: str, window: Window) -> Found:
        """A part of an object's actions, newest first, at most LIST_LIMIT; the bulk of reports is left out if need be.

        Raises ResponderBotError("not_found").
        """
        number = targets.existing(self._database, kind, objects.parse_id(object_id))
        most = LIST_LIMIT if window.limit is None else min(window.limit, LIST_LIMIT)

        def read(search: Search) -> Found:
            total = stored.count_of(search, kind, number)
            docs = stored.docs_of(search, kind, number, window.offset, most)
            return Found(list(within_limit(docs, total, reports.shortened)), total)

        return await self._database.search(read)

    async def search(self, asked: SearchInput) -> Found:
        """Raises ResponderBotError("bad_request") for a query that makes no sense."""
        return await search(self._database, "action", asked, reports.shortened)

    def job_of(self, action_id: str) -> tuple[str, Job]:
        """Engine name and job of an action. Raises ResponderBotError("not_found")."""
        row = _found(self._database, action_id)
        target = targets.load(self._database, row["kind"], row["object_id"])
        return row["engine_name"], self._job(row, target, resumed=True)

    def running_on(self, target: Target) -> Mapping[str, str]:
        """Responder name to who started it, for what is open on an object."""
        return {row["responder_name"]: row["created_by"] for row in stored.open_on(self._database, target.id)}

    # --- what a runner reports --------------------------------------------------------------------------------------

    async def hand_over(self, number: int) -> Job | Report | None:
        """The job for the engine, noted as handed over before the engine is called.

        None when it is not this runner's to hand over (ended, cancelled, waiting for people, somebody else's); a
        Report when it may no longer run.
        """

        def work(tx: Transaction) -> Job | Report | None:
            row = stored.find(tx, number)
            if row is None or row["owner"] != self._owner.id or row["status"] not in OPEN_STATUSES:
                return None
            target = targets.load(tx, row["kind"], row["object_id"])
            not_allowed = _not_allowed(tx, row)
            if row["handed_at"] is not None:
                is_cancelled = row["cancelled_by"] is not None
                if not_allowed and not is_cancelled and row["status"] == "Waiting":
                    # An earlier core may have been killed before it started it: then it is not started now.
                    stored.set_cancelled_by(tx, number, f"core: {not_allowed}")
                    is_cancelled = True
                return replace(self._job(row, target, resumed=True), cancelled=is_cancelled)
            refused = not_allowed or self._responders.refuse(target, row["responder_name"], row["engine_name"])
            if refused:
                return Report(False, message=refused)
            now = self._clock()
            if not stored.hand_over(tx, number, self._owner.id, now):
                return None
            if stored.lease_until(tx, self._owner.id) < now + RENEWED_MS:
                stored.renew(tx, self._owner.id, now + LEASE_MS)
            return self._job(row, target, resumed=False)

        return await self._database.transaction(work)

    async def progress(self, number: int, progress: Progress) -> None:
        """Keep what an engine tells of a job on its way; a late worker's news touches nothing."""

        def work(tx: Transaction) -> None:
            row = self._mine(tx, number)
            if row is None:
                return
            stored.set_job(tx, number, progress.engine_job_id, progress.pid, progress.pid_started)
            action = Action.model_validate_json(row["doc"])
            status: ActionStatus = "InProgress" if progress.running else action.status
            moved = action.model_copy(update={"status": status, "engine_job_id": progress.engine_job_id})
            if moved != action:
                stored.set_state(tx, number, status, moved.to_json())
                self._tell(tx, row, "action.updated", row["created_by"])

        await self._database.transaction(work)

    def is_ending(self, number: int) -> bool:
        """Whether its report is stored already, and only the rest of its operations is to be applied."""
        return stored.outcomes(self._database, number) is not None

    async def end(self, number: int, report: Report | None) -> bool:
        """Store the end with what its operations change; each operation is applied once, also by way of a crash.

        Many operations are applied in slices, so that others can write in between: the report is stored first, and
        with each slice what became of it. `report` is None where that had begun; if it has, any other is ignored.
        Returns False when it is not this runner's to end: it has ended, or another core follows it by now.
        """
        row = self._mine(self._database, number)
        if row is None:
            return False
        ending = await self._ending(row, report)
        while True:
            is_over = await self._database.transaction(lambda tx: self._step(tx, number, ending))
            if is_over is not None:
                return is_over

    async def _ending(self, row: Row, report: Report | None) -> "_Ending":
        begun = stored.ending(self._database, row["id"])
        if begun is not None:
            return _Ending(begun["at"], await asyncio.to_thread(reports.loaded, begun["report"]), begun["report"])
        if report is None:
            raise ValueError("an end that has not begun needs a report")
        written = await asyncio.to_thread(self._written, report, row)
        in_slices = len(written.operations) > operations.SLICE
        return _Ending(self._clock(), written, await asyncio.to_thread(written.dumped) if in_slices else "")

    def _written(self, report: Report, row: Row) -> reports.Ending:
        return reports.ending(report, self._parameters(row), self._limits)

    def _step(self, tx: Transaction, number: int, ending: "_Ending") -> bool | None:
        """One slice of an end; the answer for `end` once there is one."""
        row = self._mine(tx, number)
        if row is None:
            return False
        asked = ending.report.operations
        known = stored.outcomes(tx, number)
        outcomes: list[str] = [] if known is None else json.loads(known)
        where = operations.OperationContext(row["kind"], row["object_id"], row["created_by"], ending.at)
        slice_ = asked[len(outcomes) : len(outcomes) + operations.SLICE]
        outcomes += operations.apply_slice(tx, where, slice_)
        if len(outcomes) < len(asked):
            if known is None:
                stored.begin_ending(tx, number, ending.at, ending.text)
            stored.set_outcomes(tx, number, json.dumps(outcomes))
            return None
        if known is not None:
            stored.forget_ending(tx, number)
        ended = ending.report
        if row["cancelled_by"] and not ended.success:
            ended = self._written(_cancelled(row["cancelled_by"]), row)
        status: ActionStatus = "Success" if ended.success else "Failure"
        self._end(tx, row, status, ended, row["created_by"], outcomes=outcomes, now=ending.at)
        return True

    async def expire(self, number: int) -> None:
        """End an action whose approval did not come in time."""

        def work(tx: Transaction) -> None:
            row = stored.find(tx, number)
            if row is None or row["status"] != "Waiting" or row["approval_expires_at"] is None:
                return
            if row["approval_expires_at"] > self._clock():
                return
            said = "Nobody agreed in time; run it again if it is still needed."
            self._end_unrun(tx, row, "Failure", said, row["created_by"])

        await self._database.transaction(work)

    async def end_restored(self) -> None:
        """Where the database is a backup that was put back: end what was open in it, since each may have run since.

        What had its report already goes on to its end, for which nothing is run. Nothing may be followed before. May
        be called by several cores at once: the first finds something to do.
        """

        def work(tx: Transaction) -> tuple[int, int] | None:
            made_at = backup.made_at(tx)
            if made_at is None:
                return None
            backup.resume(tx, made_at, self._clock())
            rows = [row for row in map(partial(stored.find, tx), stored.unreported_ids(tx)) if row is not None]
            since = f"Core was restored from a backup of {backup.as_time(made_at)}"
            message = f"{since}; it may have run. Look at its target before you run it again."
            for row in rows:
                self._end_unrun(tx, row, "Failure", message, row["created_by"])
            return made_at, len(rows)

        if backup.made_at(self._database) is not None:
            restored = await self._database.transaction(work)
            if restored:
                made_at, ended = restored
                log.warning("restored from a backup", made_at=backup.as_time(made_at), actions_ended=ended)

    # --- within ------------------------------------------------------------------------------------------------------

    def _with_room(self, tx: Transaction, choice: Choice, asked: RunInput, target: Target) -> Choice:
        """The choice, or if the load is to be spread and that engine is full, the next engine that has a place.

        Looked at in the transaction that takes the place, so that two runs never count on the same one.
        """
        if not self._spread_load or asked.engine_id is not None or choice.engine.capacity is None:
            return choice
        full = self._responders.full(stored.places_taken(tx, self._owner.id))
        return self._responders.choose(target, asked.responder_id, None, full=full)

    def _record(
        self,
        tx: Transaction,
        caller: Caller,
        asked: RunInput,
        target: Target,
        choice: Choice,
        policy: ResponderSection,
    ) -> Action:
        now, number = self._clock(), objects.next_id(tx)
        expires_at = now + policy.approval_expires_minutes * MINUTE_MS if policy.approval else None
        action = Action(
            id_=f"~{number}",
            id=f"~{number}",
            responder_id=choice.offer.first.id,
            responder_name=choice.offer.name,
            responder_definition=choice.responder.definition or choice.offer.name,
            engine_id=choice.engine.name,
            engine_job_id=choice.engine.job_id(f"~{number}"),
            object_type=target.object_type,
            object_id=f"~{target.id}",
            status="Waiting",
            start_date=now,
            operations="[]",
            report="{}",
            created_by=caller.login,
            created_at=now,
            approval=None
            if expires_at is None
            else Approval(needed=policy.approval, approved_by=[], expires_at=expires_at),
        )
        row = {
            "id": number,
            "kind": target.kind,
            "object_id": target.id,
            "root_id": target.root_id,
            "responder_name": choice.offer.name,
            "engine_name": choice.engine.name,
            "engine_responder_id": choice.responder.id,
            "status": action.status,
            "created_by": caller.login,
            "acted_through": caller.key_owner,
            "created_at": now,
            "owner": self._owner.id if expires_at is None else None,
            "engine_job_id": action.engine_job_id,
            "parameters": json.dumps(asked.parameters),
            "approval_expires_at": expires_at,
            "doc": action.to_json(),
        }
        stored.insert(tx, row)
        self._tell(tx, row, "action.created", caller.login)
        return action

    def _end_unrun(self, tx: Transaction, row: Row, status: ActionStatus, message: str, user: str) -> Action:
        """End an action that no engine has a report of."""
        ending = self._written(Report(False, message=message), row)
        return self._end(tx, row, status, ending, user, now=self._clock())

    def _end(
        self,
        tx: Transaction,
        row: Row,
        status: ActionStatus,
        ending: reports.Ending,
        user: str,
        *,
        now: int,
        outcomes: Sequence[str] = (),
    ) -> Action:
        written = reports.write(ending, outcomes, self._limits)
        ended = Action.model_validate_json(row["doc"]).model_copy(
            update={"status": status, "end_date": now, "operations": written.operations, "report": written.report}
        )
        stored.set_end(
            tx,
            row["id"],
            status,
            ended.to_json(),
            now,
            whole_report=written.whole_report,
            whole_operations=written.whole_operations,
        )
        self._tell(tx, row, "action.ended", user)
        return ended

    def _tell(self, tx: Transaction, row: Row | Mapping[str, Any], type: str, user: str) -> None:
        events.record(
            tx,
            at=self._clock(),
            type=type,
            object_type="Action",
            object_id=row["id"],
            root_id=row["root_id"],
            user=user,
        )

    def _earlier(self, reads: Reads, caller: Caller, key: str, body: str) -> Action | None:
        """What this caller started under the same key. Raises ResponderBotError("key_reused")."""
        known = stored.remembered(reads, caller.login, key, self._clock() - KEY_KEPT_MS) if key else None
        if known is None:
            return None
        if known["body"] != body:
            raise ResponderBotError(
                "key_reused", "This Idempotency-Key came before with another body; use a new key for a new request."
            )
        row = stored.find(reads, known["action_id"])
        return None if row is None else Action.model_validate_json(row["doc"])

    def _awaiting(self, tx: Transaction, caller: Caller, action_id: str) -> tuple[Row, Action, Approval]:
        row = _found(tx, action_id)
        if not _may_run(tx, caller.login):  # their access may have ended after this request was let in
            sentence = "You are not authorized to approve or deny an action, you haven't the permission manageAction"
            raise ResponderBotError("forbidden", sentence)
        if row["created_by"] == caller.login:
            raise ResponderBotError("forbidden", "You asked for this action; somebody else must approve or deny it.")
        action = _still_open(row, "approved or denied")
        if action.approval is None or row["approval_expires_at"] is None:
            raise ResponderBotError("conflict", "This action does not wait for anybody's approval.")
        if action.approval.expires_at <= self._clock():
            raise ResponderBotError("conflict", "The time to approve this action is over; run it again.")
        return row, action, action.approval

    def _mine(self, reads: Reads, number: int) -> Row | None:
        row = stored.find(reads, number)
        if row is None or row["status"] not in OPEN_STATUSES or row["owner"] != self._owner.id:
            return None
        return row

    def _parameters(self, row: Row) -> dict[str, Any]:
        """What the responder gets as `parameters`: the caller's, in which nobody can pass for another user."""
        return {**json.loads(row["parameters"]), "user": row["created_by"], "organisation": self._organisation}

    def _job(self, row: Row, target: Target, *, resumed: bool) -> Job:
        return Job(
            action_id=f"~{row['id']}",
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


def _found(reads: Reads, action_id: str) -> Row:
    """Raises ResponderBotError("not_found")."""
    number = objects.parse_id(action_id)
    row = None if number is None else stored.find(reads, number)
    if row is None:
        raise ResponderBotError("not_found", "Action not found")
    return row


def _still_open(row: Row, done: str) -> Action:
    """Raises ResponderBotError("conflict") where it has ended."""
    if row["status"] not in OPEN_STATUSES:
        raise ResponderBotError("conflict", f"This action has ended ({row['status']}); it can no longer be {done}.")
    return Action.model_validate_json(row["doc"])


def _may_run(reads: Reads, login: str) -> bool:
    return "manageAction" in current_permissions(reads, login)


def _not_allowed(reads: Reads, row: Row) -> str:
    """Why an action may not start for lack of somebody's rights, or `""`: they may have ended since it was accepted."""
    if not _may_run(reads, row["created_by"]):
        return _no_longer_allowed(row["created_by"])
    approval = Action.model_validate_json(row["doc"]).approval
    if approval is None:
        return ""
    void = [login for login in approval.approved_by if not _may_run(reads, login)]
    if len(approval.approved_by) - len(void) >= approval.needed:
        return ""
    return (
        f"{' and '.join(void)} agreed to this and may no longer run responders, so it did not run;"
        " run it again if it is still needed."
    )


def _no_longer_allowed(login: str) -> str:
    return (
        f"{login} asked for this and may no longer run responders, so it did not run;"
        " run it yourself if it is still needed."
    )


def _refuse_while_open(tx: Transaction, target: Target, responder_name: str) -> None:
    for row in stored.open_on(tx, target.id):
        if row["responder_name"] == responder_name:
            raise ResponderBotError(
                "conflict",
                f"{responder_name} is already running on this object, started by {row['created_by']}.",
                details={"action": json.loads(row["doc"])},
            )


def _cancelled(login: str) -> Report:
    return Report(False, message=f"Cancelled by {login}")


def _not_found() -> ResponderBotError:
    return ResponderBotError("not_found", "Action not found")


def _number(action: Action) -> int:
    return int(action.id[1:])
