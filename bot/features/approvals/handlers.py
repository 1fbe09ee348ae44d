"""Approve, deny, cancel and stop runs."""

import json
from collections.abc import Awaitable, Callable

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import count, foreign, person_name
from bot.clearance import RedactedView, Subject
from bot.features import responses, subjects
from bot.features.approvals import views
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature, Handler, Json
from bot.features.payload import is_home, view_of
from bot.features.retries import UNKNOWN_DECISION
from bot.features.runs.views import runs
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import Action

USAGE = "approve ~run"


async def on_cancel_button(context: Context) -> None:
    """Cancel a run that waits, or stop one that runs. Core refuses one that has ended."""
    await _decide(context, lambda action_id: _end(context, action_id), _ended)


async def _end(context: Context, action_id: str) -> Action:
    """Have core end the run. A channel's message is the same for all, so this says calmly who else may end it."""
    action = await context.core.action(action_id)
    _, subject = await subjects.of_action(context.core, action)
    subjects.require_visible(context, subject)
    person = context.person
    if person is None or (action.created_by != person.login and person.profile != "org-admin"):
        raise ResponderBotError(
            "forbidden",
            f"{person_name(action.created_by)} started this run, so only they or an org-admin can "
            f"{'cancel' if action.status == 'Waiting' else 'stop'} it. Nothing changed.",
        )
    return await context.core.cancel(action_id)


def _ended(run: str, action: Action) -> str:
    if runs.is_open(action):
        return f"{run} is being stopped."
    if runs.state_of(action) == "cancelled":
        return f"You cancelled {run}; it will not run."
    return f"{run} {runs.state(action)}."


async def on_approve_button(context: Context) -> None:
    """Approve the run. Core refuses the requester, and people without the permission."""
    await _decide(context, context.core.approve, _approved)


async def on_deny_button(context: Context) -> None:
    """Ask why, which whoever asked for the run reads."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    action, subject = await subjects.of_action(context.core, await context.core.action(intent.object_id))
    view = subjects.require_visible(context, subject)
    await context.show_modal(views.deny_view(action, view, is_in_home=is_home(context)))


async def on_deny_view(context: Context) -> Json:
    """Deny the run, which ends it. Core refuses people without the permission, and a run that doesn't wait."""
    view = view_of(context)
    metadata = json.loads(str(view.get("private_metadata") or "{}"))
    try:
        action = await context.core.deny(str(metadata.get("id")), modals.values(view).get("reason", "").strip())
    except ResponderBotError as error:
        if UNANSWERED not in error.details:
            raise
        raise ResponderBotError("unavailable", UNKNOWN_DECISION) from error
    action, subject = await subjects.of_action(context.core, action)
    await responses.refresh_cards(context, subject)
    if metadata.get("in_home") is True:
        await context.services.publish_home(context)
    run = _in_words(context, action, subject)
    return modals.update(modals.message_view("Denied", notices.notice(_denied(run, action))))


async def on_deny_command(context: Context) -> None:
    """Deny the run that was typed."""
    await _decide(context, context.core.deny, _denied)


def _denied(run: str, _: Action) -> str:
    return f"You denied {run}; it will not run."


async def _decide(
    context: Context, decision: Callable[[str], Awaitable[Action]], confirmation: Callable[[str, Action], str]
) -> None:
    """Have core store the decision, then show it on the cards or in the App Home."""
    action_id = await _action_id(context)
    if not action_id:
        return
    try:
        action = await decision(action_id)
    except ResponderBotError as error:
        if error.code == "not_found":
            raise _no_run(context, action_id) from error
        if UNANSWERED in error.details:
            raise ResponderBotError("unavailable", UNKNOWN_DECISION) from error
        if error.code != "conflict" or not await _offer_to_ask_again(context, action_id, error.message):
            raise
        return
    action, subject = await subjects.of_action(context.core, action)
    await responses.refresh_cards(context, subject)
    if is_home(context):
        await context.services.publish_home(context)
        return
    text = confirmation(_in_words(context, action, subject), action)
    await responses.respond(context, notices.notice(text), "Done")


def _in_words(context: Context, action: Action, subject: Subject) -> str:
    """`Isolate Host on hostname SRV-FILE02`; mrkdwn."""
    view = RedactedView(subject, own_clearance(context))
    acts_on = runs.on_target(action, view) or f" on {foreign(runs.target(view), runs.TARGET_LIMIT)}"
    return f"{runs.name(action)}{acts_on}"


async def _offer_to_ask_again(context: Context, action_id: str, reason: str) -> bool:
    """If core has ended the run, such as since its target has changed, say so with Ask again."""
    action, subject = await subjects.of_action(context.core, await context.core.action(action_id))
    if not runs.was_not_started(action):
        return False
    subjects.require_visible(context, subject)
    await responses.refresh_cards(context, subject)
    offered = await context.core.responders(subject.kind, subject.id, explain=True)
    policy = next((r.policy for r in offered if r.name == action.responder_name), None)
    await responses.show_with_buttons(
        context,
        "It did not run",
        f"again:{action.id}",
        lambda button: views.not_approved(
            action,
            subject,
            reason,
            clearance=own_clearance(context),
            button=button,
            confirm=policy.confirm if policy else "",
        ),
    )
    return True


async def _action_id(context: Context) -> str:
    """The action of a command or of a click; "" for a button that is no longer valid."""
    if "command" in context.payload:
        return subjects.require_id(context, USAGE)[1]
    intent = await responses.clicked_intent(context)
    return intent.object_id if intent is not None else ""


def _no_run(context: Context, action_id: str) -> ResponderBotError:
    hint = f"`{context.services.command} actions` and an alert's id lists its runs with their ids."
    return ResponderBotError("not_found", f"There is no run {action_id}. {hint}")


async def on_approve_command(context: Context) -> None:
    """Show who asks for what with which inputs, with Approve and Deny: nobody approves what they haven't read."""
    action_id = subjects.require_id(context, USAGE)[1]
    try:
        action = await context.core.action(action_id)
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        raise _no_run(context, action_id) from error
    action, subject = await subjects.of_action(context.core, action)
    subjects.require_visible(context, subject)
    offered = await context.core.responders(subject.kind, subject.id, explain=True)
    policy = next((r.policy for r in offered if r.name == action.responder_name), None)
    now = context.services.clock_ms()
    await responses.show_with_buttons(
        context,
        "Approve this?",
        f"approve:{action.id}",
        lambda button: views.approval_request(
            action,
            subject,
            clearance=own_clearance(context),
            button=button,
            now_ms=now,
            confirm=views.policy_text(policy),
        ),
    )


def _approved(run: str, action: Action) -> str:
    approval = action.approval
    if approval is not None and runs.awaits_approval(action):
        return f"You approved {run}; it needs {count(approval.needed - len(approval.approved_by), 'more approval')}."
    return f"You approved {run}; it starts now."


def _command(handler: Handler, verb: str, summary: str) -> Command:
    usage = f"{verb} ~run"
    return Command(Entry(handler, Ack.WRITE), usage, summary, "manageAction", usage_error=subjects.missing_id(usage))


FEATURE = Feature(
    commands={
        "approve": _command(on_approve_command, "approve", "see what a run would do, and approve or deny it"),
        "deny": _command(on_deny_command, "deny", "deny a run that waits for approval"),
        "cancel": _command(on_cancel_button, "cancel", "cancel a run, also while it runs"),
    },
    actions={
        ids.CANCEL: Entry(on_cancel_button, Ack.WRITE),
        ids.APPROVE: Entry(on_approve_button, Ack.WRITE),
        ids.DENY: Entry(on_deny_button, modal_title="Deny"),
    },
    views={ids.DENY_VIEW: Entry(on_deny_view, Ack.RESPONSE)},
)
