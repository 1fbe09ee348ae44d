"""Who may run a responder, cancel an action and vote on one.

Rights are read in the transaction that acts on them, since they may have ended after the request was accepted
(core/docs/semantics.md#rights-are-checked-again).
"""

import json
from collections.abc import Sequence

from core.access import Caller, current_clearance, current_permissions, too_high
from core.actions import target as targets
from core.actions.guards import Guards, names_of
from core.actions.target import Target
from core.common.database import Reads, Row
from core.common.errors import ResponderBotError
from core.models import OPEN_STATUSES, Action, Approval
from core.store import actions as stored


def may_run(reads: Reads, login: str) -> bool:
    return "manageAction" in current_permissions(reads, login)


def why_requester_may_not(reads: Reads, login: str) -> str:
    """The sentence for a requester who may no longer run responders, else `""`."""
    if may_run(reads, login):
        return ""
    return (
        f"{login} asked for this and may no longer run responders, so it did not run;"
        " run it yourself if it is still needed."
    )


def why_not_start(reads: Reads, row: Row, target: Target, guards: Guards) -> str:
    """Why an action may not start, or `""`.

    Its requester or an approver lost their rights, or the requester, on whose behalf it was asked for, may not see the
    object any more, or it needs more approvals by now. The other rules of its responder are the guards' own.
    """
    login = row["created_by"]
    if reason := why_requester_may_not(reads, login):
        return reason
    clearance = current_clearance(reads, login) if row["acted_through"] not in (None, login) else target.tlp
    if clearance < target.tlp:
        return (
            f"{login} asked for this, but {too_high(target.tlp, clearance, 'they')}, so it did not run;"
            " ask somebody who may see it."
        )
    action = Action.model_validate_json(row["doc"])
    approval, section = action.approval, guards.section(row["responder_name"])
    if approval is None:
        sentence = f"{row['responder_name']} needs approval by now, so it did not run; run it again."
        return sentence if section.approval else ""
    if action.break_glass is not None and not _is_admin(reads, login):
        return f"{login} broke glass for this and is no org-admin any more, so it did not run."
    if is_approved(reads, guards, action, approval.approved_by):
        return ""
    void = [voter for voter in approval.approved_by if not may_vote(reads, guards, action, voter)]
    if not void:
        return f"{row['responder_name']} needs more approvals by now, so it did not run; run it again."
    what = "run responders" if section.approve_by is None else f"approve {row['responder_name']}"
    return (
        f"{' and '.join(void)} approved this and may no longer {what}, so it did not run;"
        " run it again if it is still needed."
    )


def may_vote(reads: Reads, guards: Guards, action: Action, login: str) -> bool:
    """Whether somebody may approve and deny a run: whom the settings name or, if it breaks glass, an org-admin."""
    if not may_run(reads, login):
        return False
    if action.break_glass is not None and _is_admin(reads, login):
        return True
    section = guards.section(action.responder_name)
    if action.break_glass is not None and not section.approval:
        return False
    return guards.is_among(reads, section.approve_by, login)


def is_approved(reads: Reads, guards: Guards, action: Action, votes: Sequence[str]) -> bool:
    """Whether these votes suffice. A run that breaks glass needs an org-admin's beside those that it needs anyway."""
    if action.approval is None:
        return True
    section, glass = guards.section(action.responder_name), action.break_glass
    needed = max(action.approval.needed, section.approval + (glass is not None))
    count = len([login for login in votes if may_vote(reads, guards, action, login)])
    if glass is None:
        return count >= needed
    named = [login for login in votes if may_run(reads, login) and guards.is_among(reads, section.approve_by, login)]
    return count >= needed and len(named) >= needed - 1 and any(_is_admin(reads, login) for login in votes)


def _is_admin(reads: Reads, login: str) -> bool:
    return "manageUser" in current_permissions(reads, login)


def require_clearance(reads: Reads, caller: Caller, row: Row, what: str) -> None:
    """Raises ResponderBotError("forbidden") for who decides in Slack about a run on an object that they may not see."""
    if caller.is_on_behalf:
        caller.require_clearance(targets.of_action(reads, row)[0].tlp, what)


def require_open(row: Row, done: str) -> Action:
    """The action, if it has not ended. Raises ResponderBotError("conflict"); `done` is such as "cancelled"."""
    if row["status"] not in OPEN_STATUSES:
        raise ResponderBotError("conflict", f"This action has ended ({row['status']}); it can no longer be {done}.")
    return Action.model_validate_json(row["doc"])


def open_runs(reads: Reads, object_id: int) -> dict[str, str]:
    """Responder name to how far a run of it on the object is, such as "already running, started by anna"."""
    rows = stored.open_on(reads, object_id)
    return {row["responder_name"]: f"{_how_far(row)}, started by {row['created_by']}" for row in rows}


def _how_far(row: Row) -> str:
    return "already running" if row["approval_expires_at"] is None else "already waiting for approval"


def require_idle(reads: Reads, target: Target, responder_name: str) -> None:
    """Raises ResponderBotError("conflict") with the `action` if the responder is still open on the object."""
    for row in stored.open_on(reads, target.id):
        if row["responder_name"] == responder_name:
            raise ResponderBotError(
                "conflict",
                f"{responder_name} is {_how_far(row)} on this object, started by {row['created_by']}.",
                details={"action": json.loads(row["doc"])},
            )


def require_may_cancel(caller: Caller, row: Row) -> None:
    """Raises ResponderBotError("forbidden") for all but the requester and org-admins."""
    # The profile and not a permission: one who acts for somebody lacks manageUser, and an org-admin may cancel from
    # Slack too.
    if row["created_by"] != caller.login and caller.profile != "org-admin":
        raise ResponderBotError("forbidden", f"Only {row['created_by']} or an org-admin may cancel this.")


def require_vote(reads: Reads, guards: Guards, caller: Caller, row: Row, now: int) -> tuple[Action, Approval]:
    """The action and its approval, if the caller may vote on it at `now` (ms).

    Raises ResponderBotError: forbidden (no right to, or their own request), conflict (nothing to vote on).
    """
    if not may_run(reads, caller.login):
        sentence = "You are not authorized to approve or deny an action, you haven't the permission manageAction"
        raise ResponderBotError("forbidden", sentence, details={"permission": "manageAction"})
    if row["created_by"] == caller.login:
        raise ResponderBotError("forbidden", "You asked for this action; somebody else must approve or deny it.")
    action = require_open(row, "approved or denied")
    if action.approval is None or row["approval_expires_at"] is None:
        raise ResponderBotError("conflict", "This action does not wait for anybody's approval.")
    if action.approval.expires_at <= now:
        raise ResponderBotError("conflict", "The time to approve this action is over; run it again.")
    if not may_vote(reads, guards, action, caller.login):
        raise ResponderBotError("forbidden", _why_not_vote(guards, action), details={"rule": "approve_by"})
    return action, action.approval


def _why_not_vote(guards: Guards, action: Action) -> str:
    approvers = guards.section(action.responder_name).approve_by
    if action.break_glass is not None:
        who = f"{names_of(approvers)} and org-admins" if approvers else "org-admins"
        return f"You are not authorized to approve or deny this run, which breaks glass; only {who} are."
    return (
        f"You are not authorized to approve or deny runs of {action.responder_name}; only {names_of(approvers or ())}"
        " may."
    )


def votes_with(reads: Reads, guards: Guards, action: Action, approved_by: Sequence[str], login: str) -> list[str]:
    """The votes that count, with this one as the last: earlier voters must still have the right to approve."""
    return [vote for vote in approved_by if vote != login and may_vote(reads, guards, action, vote)] + [login]
