"""Approve, deny, cancel: what people decide about a run that has not started yet."""

from collections.abc import Awaitable, Callable

from bot.cards import ids, notices, runs
from bot.cards.message import Intent
from bot.cards.text import foreign
from bot.features import answers, home, subjects
from bot.features.base import Ack, Entry, Feature, Moment
from core.models import Action

Decision = Callable[[str], Awaitable[Action]]


async def on_cancel_button(moment: Moment) -> None:
    """Cancels it while that can still be done; core says why where it can't."""
    await _decide(moment, lambda intent: moment.core.cancel(intent.object_id), "cancelled")


async def on_approve_button(moment: Moment) -> None:
    """Agrees to it; core refuses the requester and who has no right (`semantics.md 5`)."""
    await _decide(moment, lambda intent: moment.core.approve(intent.object_id), "approved")


async def on_deny_button(moment: Moment) -> None:
    """Refuses it, which ends it."""
    await _decide(moment, lambda intent: moment.core.deny(intent.object_id), "denied")


async def _decide(moment: Moment, call: Callable[[Intent], Awaitable[Action]], word: str) -> None:
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
    name = foreign(action.responder_name, runs.NAME)
    await moment.say(notices.notice(f"You {word} {name} on {action.object_id}; it is {runs.state(action)} now."))


FEATURE = Feature(
    actions={
        ids.CANCEL: Entry(on_cancel_button, Ack.WRITE),
        ids.APPROVE: Entry(on_approve_button, Ack.WRITE),
        ids.DENY: Entry(on_deny_button, Ack.WRITE),
    }
)
