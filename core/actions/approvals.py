"""Votes on a run that waits, or on a later end of what it left in force (core/docs/semantics.md#approvals)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from core.actions import in_force, rights
from core.actions.lifecycle import Lifecycle, find, note
from core.actions.parts import Parts, Service
from core.audit import trail
from core.authorization import Caller
from core.common import logs
from core.common.database import Row, Transaction
from core.common.errors import ResponderBotError
from core.models import OPEN_STATUSES, Action, Vote, number_of, parse_id
from core.records import clearance
from core.responders import target as targets
from core.responders.guards import AskedRun
from core.responders.target import Target
from core.store import actions as stored_actions
from core.store import approvals as stored
from core.store import due, people
from core.store.approvals import StoredApproval

Choice = Literal["approve", "deny", "cancel"]
_SAID: Mapping[tuple[bool, str], trail.What] = {
    (True, "approved"): "run.approved",
    (False, "approved"): "extension.approved",
    (False, "denied"): "extension.denied",
    (False, "cancelled"): "extension.cancelled",
    (False, "expired"): "extension.expired",
}
"""What the audit says, by whether it is of a run, and how it was decided; the end of a run has a row of its own."""


class Voted(NamedTuple):
    """What a vote did."""

    action: Action
    is_ready: bool = False
    """Whether the action may be dispatched now."""
    ended: str = ""
    """Why the run ended instead, since it may not start any more."""


class Approvals(Service):
    """Takes votes, and ends what nobody has approved in time."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle) -> None:
        super().__init__(parts)
        self._lifecycle = lifecycle

    def vote(
        self,
        tx: Transaction,
        caller: Caller,
        action_id: str,
        choice: Choice,
        *,
        extension_id: str = "",
        message: str = "",
    ) -> Voted:
        """Take a vote on a run or, with `extension_id`, on a later end; the last one needed lets it happen.

        Only a later end is cancelled here; `Lifecycle.cancel` ends a run.

        Raises ResponderBotError: not_found; forbidden; conflict for what doesn't wait, or may not last longer now;
        rate_limited or conflict while a rule would not let the run start, so that it can be approved later.
        """
        row = find(tx, action_id)
        thing = "extension" if extension_id else "run"
        clearance.require(tx, caller, row["id"], f"{choice} this {thing}")
        action = Action.model_validate_json(row["doc"])
        approval = stored.find(tx, parse_id(extension_id) if extension_id else row["id"])
        asked_by = "" if extension_id else row["created_by"]
        if approval is not None:
            asked_by = approval.asked_by
        if choice != "cancel":
            rights.require_vote(tx, self._guards, caller, action, asked_by, thing)
        is_its_own = approval is not None and (approval.action_id, approval.is_of_run) == (row["id"], not extension_id)
        if approval is None or not is_its_own or not approval.is_waiting:
            raise ResponderBotError("conflict", _why_not_waiting(row, extension_id))
        if choice == "cancel":
            rights.require_may_cancel(tx, caller, row, asked_by)
            return Voted(self._end(tx, row, approval, "cancelled", caller.login, message))
        if not due.is_waiting(tx, "approval", approval.id):
            raise ResponderBotError("conflict", f"The time to approve this {thing} is over; ask for it again.")
        own = _vote_of(caller, choice, self._clock())
        if choice == "deny":
            people.set_decided(tx, caller.login, own.at)
            denied = replace(approval, votes=_with_own(approval.votes, own))
            return Voted(self._end(tx, row, denied, "denied", caller.login, message))
        return self._approve(tx, caller, row, action, approval, own)

    def _approve(
        self, tx: Transaction, caller: Caller, row: Row, action: Action, approval: StoredApproval, own: Vote
    ) -> Voted:
        """Take a vote for what waits; the run ends instead, if it may not start any more."""
        target, run, ended = self._still_valid(tx, row, action, approval)
        if ended:
            return Voted(self._lifecycle.end_without_report(tx, row, "failed", ended, caller.login), ended=ended)
        standing = rights.standing_votes(tx, self._guards, action, approval.votes, target)
        votes = _with_own(standing, own)
        logins = {vote.login for vote in votes}
        is_last = rights.is_approved(tx, self._guards, action, approval.needed, logins)
        if not is_last and logins == {vote.login for vote in standing} == set(approval.approved_by):
            return Voted(action)  # they have approved it before
        if is_last and run is not None and self._guards.has_rules(row["responder_name"]):
            self._guards.require_now(tx, row, run)
        people.set_decided(tx, caller.login, own.at)
        return self._store_votes(tx, caller, row, action, replace(approval, votes=votes, is_waiting=not is_last))

    def _still_valid(
        self, tx: Transaction, row: Row, action: Action, approval: StoredApproval
    ) -> tuple[Target, AskedRun | None, str]:
        """The target whose levels votes have to cover, the run as the rules see it, and why it must end instead, or "".

        Raises ResponderBotError("conflict") for a later end that may not be set any more; nothing changes.
        """
        if approval.is_of_run:
            target = targets.of_run(tx, row)
            run = self._lifecycle.asked_run(row, target.asked)
            reason = rights.why_requester_may_not(tx, row["created_by"]) or target.changed
            return target.now, run, reason or self._guards.why_protected(tx, row, run)
        of_end = action.undo.extension.targets if action.undo and action.undo.extension else ()
        in_force.require_undoable(tx, row["id"], [number_of(one) for one in of_end])
        by, run_by = approval.asked_by, self._guards.section(row["responder_name"]).run_by
        if not rights.may_run(tx, by) or not self._guards.is_among(tx, run_by, by):
            sentence = f"{by} asked for this and may no longer do so; ask for it yourself if it is still needed."
            raise ResponderBotError("conflict", sentence)
        return targets.of_action(tx, row)[0], None, ""

    def _store_votes(
        self, tx: Transaction, caller: Caller, row: Row, action: Action, approval: StoredApproval
    ) -> Voted:
        """Store votes; with the last one, let the run start or set the later end."""
        is_last = not approval.is_waiting
        stored.set_votes(tx, approval)
        if approval.is_of_run:
            stored_actions.change(tx, row["id"], approved_by=json.dumps(approval.approved_by))
        action = _with(action, approval)
        if action.override is not None and approval.is_of_run and caller.profile == "org-admin":
            override = action.override.model_copy(update={"approved_by": caller.login})
            action = action.model_copy(update={"override": override})
        if is_last and approval.is_of_run:
            self._lifecycle.release(tx, row, action)
        elif is_last:
            action = in_force.extended(tx, row, action, self._clock())
        else:
            stored_actions.change(tx, row["id"], doc=action.to_json())
        self._tell(tx, row, approval, "approved", caller.login)
        return Voted(action, is_last and approval.is_of_run)

    def _end(
        self,
        tx: Transaction,
        row: Row,
        approval: StoredApproval,
        outcome: Literal["denied", "cancelled", "expired"],
        by: str,
        message: str = "",
    ) -> Action:
        """End what waits: the run, or only the request for a later end."""
        if approval.is_of_run:
            sentence = "Not approved in time; run it again if it is still needed."
            if outcome == "denied":
                note(tx, "run_denied", row, login=by)
                sentence = f"Denied by {by}: {message}" if message else f"Denied by {by}"
            return self._lifecycle.end_without_report(tx, row, outcome, sentence, by, approval=approval.shown())
        ended = {"outcome": outcome, "ended_by": None if outcome == "expired" else by, "message": message or None}
        action = _with(Action.model_validate_json(row["doc"]), approval, **ended)
        stored.delete_of(tx, row["id"])
        stored_actions.change(tx, row["id"], doc=action.to_json())
        self._tell(tx, row, approval, outcome, by, message=message)
        return action

    def _tell(
        self, tx: Transaction, row: Row, approval: StoredApproval, how: str, by: str, *, message: str = ""
    ) -> None:
        """Tell the feed, the log and the audit."""
        self._lifecycle.record_event(tx, row, "action.updated", by, request_id=logs.request_id())
        counts = {"approvals": len(approval.approved_by), "approvals_needed": approval.needed}
        counts = counts if how == "approved" else {}
        if how != "expired":
            note(tx, f"{'run' if approval.is_of_run else 'extension'}_{how}", row, login=by, **counts)
        self._lifecycle.audit(
            tx,
            _SAID[approval.is_of_run, how],
            row,
            by=trail.CORE if how == "expired" else by,
            extension=None if approval.is_of_run else f"~{approval.id}",
            texts={"reason": message or None},
            **counts,
        )

    def expire(self, tx: Transaction, due_row: Row) -> None:
        """End what nobody has approved in time."""
        approval = stored.find(tx, due_row["id"])
        if approval is not None and approval.is_waiting:
            row = find(tx, f"~{approval.action_id}")
            self._end(tx, row, approval, "expired", row["created_by"])


def _vote_of(caller: Caller, choice: Literal["approve", "deny"], now: int) -> Vote:
    return Vote(
        login=caller.login,
        vote=choice,
        at=now,
        acted_through=caller.acted_through if caller.is_on_behalf else None,
        key=caller.key,
        clearance=caller.bound_to,
    )


def _with_own(votes: Iterable[Vote], own: Vote) -> tuple[Vote, ...]:
    """A vote takes the place of an earlier one of the same person."""
    return (*(vote for vote in votes if vote.login != own.login), own)


def _with(action: Action, approval: StoredApproval, **ended: Any) -> Action:
    """The action with the votes, and with how its later end was decided, if it was."""
    if approval.is_of_run or action.undo is None or action.undo.extension is None:
        return action.model_copy(update={"approval": approval.shown()})
    extension = action.undo.extension.model_copy(update={"approval": approval.shown(), **ended})
    return action.model_copy(update={"undo": action.undo.model_copy(update={"extension": extension})})


def _why_not_waiting(row: Row, extension_id: str) -> str:
    if extension_id:
        return "This extension no longer waits for approval; nothing was changed."
    if row["status"] not in OPEN_STATUSES:
        return f"This action has ended ({row['status']}); it can no longer be approved or denied."
    return "This action does not wait for anybody's approval."
