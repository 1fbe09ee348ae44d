"""Approve, deny and cancel runs that have not started yet."""

from collections.abc import Awaitable, Callable

from bot.cards import ids, notices, runs
from bot.cards.text import count, foreign
from bot.features import home, responses, subjects
from bot.features.base import Ack, Context, Entry, Feature
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import Action

UNKNOWN_OUTCOME = (
    "The responder service stopped answering, so your decision may not have been recorded. "
    "Check the card before you decide again."
)


async def on_cancel_button(context: Context) -> None:
    """Cancel the run. Core refuses one that can't be cancelled any more."""
    await _decide(context, context.core.cancel, lambda run, _: f"You cancelled {run}; it will not run.")


async def on_approve_button(context: Context) -> None:
    """Approve the run. Core refuses the requester, and people without the permission."""
    await _decide(context, context.core.approve, _approved)


async def on_deny_button(context: Context) -> None:
    """Deny the run, which ends it."""
    await _decide(context, context.core.deny, lambda run, _: f"You denied {run}; it will not run.")


async def _decide(
    context: Context, decision: Callable[[str], Awaitable[Action]], confirmation: Callable[[str, Action], str]
) -> None:
    """Have core store the decision, then show it on the cards or in the App Home."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    try:
        action = await decision(intent.object_id)
    except ResponderBotError as error:
        if UNANSWERED not in error.details:
            raise
        raise ResponderBotError("unavailable", UNKNOWN_OUTCOME) from error
    subject = await subjects.of_action(context.core, action)
    responses.refresh_cards(context, subject)
    if home.is_home(context):
        await home.publish(context)
        return
    run = f"{foreign(action.responder_name, runs.NAME_LIMIT)} on {action.object_id}"
    await context.respond(notices.notice(confirmation(run, action)))


def _approved(run: str, action: Action) -> str:
    approval = action.approval
    if approval is not None and runs.awaits_approval(action):
        return f"You approved {run}; it needs {count(approval.needed - len(approval.approved_by), 'more approval')}."
    return f"You approved {run}; it starts now."


FEATURE = Feature(
    actions={
        ids.CANCEL: Entry(on_cancel_button, Ack.WRITE),
        ids.APPROVE: Entry(on_approve_button, Ack.WRITE),
        ids.DENY: Entry(on_deny_button, Ack.WRITE),
    }
)
