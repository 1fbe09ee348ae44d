"""Approve, deny, cancel: what people decide about a run that has not started yet."""

from collections.abc import Awaitable, Callable

from bot.cards import ids, notices, runs
from bot.cards.message import Intent
from bot.cards.text import foreign
from bot.features import answers, home, subjects
from bot.features.base import Ack, Context, Entry, Feature
from core.models import Action

Words = Callable[[str, Action], str]


async def on_cancel_button(moment: Context) -> None:
    """Cancels it while that can still be done; core says why where it can't."""
    await _decide(moment, lambda intent: moment.core.cancel(intent.object_id), _cancelled)


async def on_approve_button(moment: Context) -> None:
    """Agrees to it; core refuses the requester and who has no right (`semantics.md 5`)."""
    await _decide(moment, lambda intent: moment.core.approve(intent.object_id), _approved)


async def on_deny_button(moment: Context) -> None:
    """Refuses it, which ends it."""
    await _decide(moment, lambda intent: moment.core.deny(intent.object_id), _denied)


async def _decide(moment: Context, call: Callable[[Intent], Awaitable[Action]], words: Words) -> None:
    """Core stores it before anything is shown."""
    intent = await answers.intent_of(moment)
    if intent is None:
        return
    action = await call(intent)
    subject = await subjects.of_action(moment.core, action)
    await answers.repaint(moment, subject)
    if home.is_home(moment):
        await home.publish(moment)
        return
    what = f"{foreign(action.responder_name, runs.NAME)} on {action.object_id}"
    await moment.say(notices.notice(words(what, action)))


def _cancelled(what: str, action: Action) -> str:
    return f"You cancelled {what}; it will not run."


def _denied(what: str, action: Action) -> str:
    return f"You denied {what}; it will not run."


def _approved(what: str, action: Action) -> str:
    approval = action.approval
    if approval is not None and runs.awaits_approval(action):
        return f"You approved {what}; {approval.needed - len(approval.approved_by)} more must agree."
    return f"You approved {what}; it starts now."


FEATURE = Feature(
    actions={
        ids.CANCEL: Entry(on_cancel_button, Ack.WRITE),
        ids.APPROVE: Entry(on_approve_button, Ack.WRITE),
        ids.DENY: Entry(on_deny_button, Ack.WRITE),
    }
)
