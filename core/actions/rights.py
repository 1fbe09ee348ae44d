"""Who may run a responder, cancel an action and vote on one.

Rights are read in the transaction that acts on them, since they may have ended after the request was accepted
(core/docs/architecture.md#what-holds).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from core.actions import blocklist, in_force
from core.authorization import Caller, current_caller, current_clearance, current_permissions, makers, too_high
from core.common.clock import time_text
from core.common.database import Reads, Row
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.words import listed
from core.models import OPEN_STATUSES, Action, OfferedResponder, SlackUsers, TargetArtifact, Vote
from core.protection import UNBLOCK
from core.responders.guards import MAX_NAMED, Guards, RulesFor
from core.responders.registry import Registry
from core.responders.target import OpenRun, Target, overlap
from core.store import actions as stored
from core.store import approvals
from core.store.approvals import StoredApproval


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


def require_start(reads: Reads, caller: Caller, target: Target) -> None:
    """Raises ResponderBotError("forbidden") for who may no longer run responders, or see the target of a run."""
    now, asked = current_caller(reads, caller.login, caller.acted_through), "create action"
    if now is None:
        raise ResponderBotError("forbidden", f"{caller.login} has no access any more; ask an administrator.")
    now.require("manageAction", asked)
    for one in (caller, now):
        one.require_clearance(target.clearance, asked)


def why_not_start(reads: Reads, action: Action, row: Row, target: Target, guards: Guards) -> str:
    """Why an action may not start, or `""`.

    Its requester or an approver has lost their rights or may not see the object any more, if a clearance
    binds them; or it needs more approvals than it has. `Guards` checks the other rules of its responder.
    """
    login = row["created_by"]
    if reason := why_requester_may_not(reads, login):
        return reason
    seen = current_clearance(reads, login) if row["acted_through"] not in (None, login) else target.clearance
    if seen < target.clearance:
        return (
            f"{login} asked for this, but {too_high(target.clearance, seen, 'they')}, so it did not run;"
            " ask somebody who may see it."
        )
    section = guards.section(row["responder_name"])
    approval = None if action.approval is None else approvals.find(reads, row["id"])
    if approval is None:
        sentence = f"{row['responder_name']} needs approval by now, so it did not run; run it again."
        return sentence if section.approval else ""
    if action.override is not None and not _is_admin(reads, login):
        return f"{login} overrode rules for this and is no administrator any more, so it did not run."
    votes = [vote.login for vote in standing_votes(reads, guards, action, approval.votes, target)]
    if is_approved(reads, guards, action, approval.needed, votes):
        return ""
    void = [voter for voter in approval.approved_by if voter not in votes]
    return _why_not_approved(reads, guards, action, void)


def _why_not_approved(reads: Reads, guards: Guards, action: Action, void: Sequence[str]) -> str:
    """Why a run has too few approvals although it once had enough: those of `void` no longer count."""
    if not void:
        return f"{action.responder_name} needs more approvals by now, so it did not run; run it again."
    if all(may_vote(reads, guards, action, voter) for voter in void):
        what = "see it"
    elif guards.section(action.responder_name).approve_by is None:
        what = "run responders"
    else:
        what = f"approve {action.responder_name}"
    return (
        f"{' and '.join(void)} approved this and may no longer {what}, so it did not run;"
        " run it again if it is still needed."
    )


def may_vote(reads: Reads, guards: Guards, action: Action, login: str) -> bool:
    """Whether somebody may approve and deny a run: the settings name them or, for an override, they are an
    org-admin."""
    if not may_run(reads, login):
        return False
    if action.override is not None and _is_admin(reads, login):
        return True
    section = guards.section(action.responder_name)
    if action.override is not None and not section.approval:
        return False
    return guards.is_among(reads, section.approve_by, login)


def who_may_decide(
    reads: Reads, guards: Guards, action: Action, approval: StoredApproval, level: int
) -> list[SlackUsers]:
    """Who in Slack may approve and deny what waits: at most MAX_NAMED.

    Those who decided last come first; nobody who has approved it is among them. `level` is the clearance that it takes.
    """
    section, is_override = guards.section(action.responder_name), action.override is not None
    rows = guards.able_to_decide(
        reads,
        () if is_override and not section.approval else section.approve_by,
        but=[approval.asked_by, *approval.approved_by],
        clearance=level,
        limit=MAX_NAMED,
        or_admins=is_override,
        in_slack=True,
    )
    found = grouped((row["login"], f"{row['team']}:{row['slack_user']}") for row in rows)
    return [SlackUsers(login=login, slack_ids=slack_ids) for login, slack_ids in found.items()]


def is_approved(reads: Reads, guards: Guards, action: Action, needed: int, votes: Collection[str]) -> bool:
    """Whether these valid votes suffice, with `needed` when it was asked for. An override takes an org-admin's too."""
    section, override = guards.section(action.responder_name), action.override
    needed = max(needed, section.approval + (override is not None))
    if override is None:
        return len(votes) >= needed
    named = [login for login in votes if guards.is_among(reads, section.approve_by, login)]
    return len(votes) >= needed and len(named) >= needed - 1 and any(_is_admin(reads, login) for login in votes)


def _is_admin(reads: Reads, login: str) -> bool:
    return "manageUser" in current_permissions(reads, login)


def require_open(row: Row, done: str) -> Action:
    """The action, if it has not ended. Raises ResponderBotError("conflict"); `done` is such as "cancelled"."""
    if row["status"] not in OPEN_STATUSES:
        raise ResponderBotError("conflict", f"This action has ended ({row['status']}); it can no longer be {done}.")
    return Action.model_validate_json(row["doc"])


def open_runs(reads: Reads, object_id: int, login: str) -> dict[str, list[OpenRun]]:
    """The open runs on an object by responder name, newest first."""
    open_on = stored.open_on(reads, object_id)
    return grouped((row["responder_name"], OpenRun(_how_far(row, login), _acts_on(row))) for row in open_on)


def _acts_on(row: Row) -> Sequence[TargetArtifact]:
    """What a run acts on; empty if nobody knows. One that is damaged must not hide what else can run."""
    with suppress(ValueError):
        return Action.model_validate_json(row["doc"]).target or ()
    return ()


def explained(
    reads: Reads,
    registry: Registry,
    rules: RulesFor,
    caller: Caller,
    target: Target,
    recent_runs: Mapping[str, int],
) -> list[OfferedResponder]:
    """The responders for an object, each with a verdict and its reasons. `recent_runs`: how many, by responder."""
    alike = in_force.Lookalikes(reads, caller)

    def notes(undone_by: str, artifacts: Sequence[TargetArtifact], now: int) -> list[str]:
        of_list = blocklist.notes(reads, artifacts, now) if undone_by == UNBLOCK else ()
        return [*alike.sentences(undone_by, artifacts), *of_list]

    return registry.explained(
        target,
        may_run=caller.may("manageAction"),
        open_runs=open_runs(reads, target.id, caller.login),
        lookalikes=notes,
        why_not=caller.why_not_cleared(target.clearance),
        rules=rules,
        clearance=caller.sees_up_to,
        recent_runs=recent_runs,
    )


def _how_far(row: Row, login: str, on: str = "") -> str:
    """Since when it is open, whose it is, and what this person can do first."""
    does, began, then = "running", "started", "stop that, or wait for its end"
    if row["awaits_approval"]:
        # Nobody decides on what they asked for. What waits of a bulk is withdrawn and decided together.
        id_, it = (row["id"], "it") if row["bulk_id"] is None else (row["bulk_id"], "all")
        then = f"to withdraw {it}: cancel ~" if row["created_by"] == login else "wait for the decision on ~"
        does, began, then = "waiting for approval", "asked", f"{then}{id_}"
    return f"already {does}{on} since {time_text(row['created_at'])}, {began} by {row['created_by']}; {then}"


def require_idle(reads: Reads, target: Target, responder_name: str, login: str, bulk_id: int | None) -> None:
    """Raises ResponderBotError("conflict") with the `action` if the responder is open on what may be the same target.

    Other runs of the same bulk were chosen together with it.
    """
    for row in stored.open_on(reads, target.id):
        is_other = row["responder_name"] != responder_name or (bulk_id is not None and row["bulk_id"] == bulk_id)
        if not is_other and overlap(_acts_on(row), target.acts_on or ()):
            sentence = f"{responder_name} is {_how_far(row, login, ' on this')}."
            raise ResponderBotError("conflict", sentence, details={"action": json.loads(row["doc"])})


def require_may_cancel(reads: Reads, caller: Caller, row: Row, asked_by: str) -> None:
    """Raises ResponderBotError("forbidden") for all but who asked for the run, or for its later end, and org-admins."""
    # The profile and not manageUser, which nobody has through the bot: an org-admin may cancel from Slack too.
    if caller.profile == "org-admin":
        return
    if asked_by != caller.login:
        raise ResponderBotError("forbidden", f"Only {asked_by} or an administrator may cancel this.")
    if in_force.is_timed(reads, row):
        raise ResponderBotError("forbidden", "Core undoes this at its time, so only an administrator may cancel it.")


def require_may_change_end(reads: Reads, guards: Guards, caller: Caller, row: Row) -> None:
    """Raises ResponderBotError("forbidden") for who may not run the responder of what is in force."""
    if not guards.is_among(reads, guards.section(row["responder_name"]).run_by, caller.login):
        sentence = f"Only who may run {row['responder_name']} may change when its runs are undone."
        raise ResponderBotError("forbidden", sentence)


def require_may_undo(reads: Reads, guards: Guards, caller: Caller, responder_name: str, target: Target) -> None:
    """Raises ResponderBotError("forbidden") for who may not run what this run would undo."""
    for one in in_force.undone_by(reads, responder_name, f"~{target.id}", target.acts_on or ()):
        contained = one["responder"]
        if not guards.is_among(reads, guards.section(contained).run_by, caller.login):
            sentence = f"Only who may run {contained} may undo what it left in force."
            raise ResponderBotError("forbidden", sentence)


def require_vote(reads: Reads, guards: Guards, caller: Caller, action: Action, asked_by: str, what: str) -> None:
    """Raises ResponderBotError("forbidden") for who may not approve and deny this, or asked for it themselves.

    `what` is `run` or `extension`.
    """
    if not may_run(reads, caller.login):
        sentence = "You have no right to decide on runs; an administrator can give it."
        raise ResponderBotError("forbidden", sentence, details={"permission": "manageAction"})
    if asked_by == caller.login:
        sentence = f"You asked for this {what}; somebody else must approve or deny it. You can withdraw it."
        raise ResponderBotError("forbidden", sentence)
    if asked_by in makers(reads, caller):
        made = "the bot's key" if caller.is_on_behalf else "the key that you use"
        sentence = f"{asked_by} asked for this {what} and made {made}; somebody else must approve or deny it."
        raise ResponderBotError("forbidden", sentence)
    if not may_vote(reads, guards, action, caller.login):
        raise ResponderBotError("forbidden", _why_not_vote(guards, action), details={"rule": "approve_by"})


def why_not_decide(reads: Reads, guards: Guards, caller: Caller, action: Action, approval: StoredApproval) -> str:
    """Why the caller may not approve and deny what waits; "" if they may."""
    try:
        what = "run" if approval.is_of_run else "extension"
        require_vote(reads, guards, caller, action, approval.asked_by, what)
    except ResponderBotError as error:
        return error.message
    return ""


def _why_not_vote(guards: Guards, action: Action) -> str:
    approvers = guards.section(action.responder_name).approve_by
    if action.override is not None:
        who = f"{listed(approvers)} and administrators" if approvers else "administrators"
        return f"Only {who} may approve or deny this run, as it overrides rules."
    return f"Only {listed(approvers or ())} may approve or deny runs of {action.responder_name}."


def standing_votes(reads: Reads, guards: Guards, action: Action, votes: Iterable[Vote], target: Target) -> list[Vote]:
    """Those of people who still have the right, and whose clearance then and now covers all that the run acts on."""
    level = max([target.clearance, *(artifact.tlp for artifact in action.target or ())])

    def covers(vote: Vote) -> bool:
        return vote.clearance is None or min(vote.clearance, current_clearance(reads, vote.login)) >= level

    return [vote for vote in votes if may_vote(reads, guards, action, vote.login) and covers(vote)]
