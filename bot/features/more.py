"""The overflow of a card: what ran here, watch, mark as read or unread, make a case, refresh."""

from collections.abc import Awaitable, Callable, Mapping

from bot.cards import ids, notices
from bot.cards.message import Intent
from bot.features import actions, alert, answers, subjects, watch
from bot.features.base import Ack, Context, Entry, Feature

REFRESHED = 5  # cards that a Refresh without a subject repaints


async def on_more_menu(moment: Context) -> None:
    """Does what the chosen entry means."""
    intent = await answers.intent_of(moment)
    if intent is None:
        return
    do = _MEANINGS.get(intent.what)
    if do is None:
        await moment.say(notices.notice("This entry is from an older card. Use Refresh and try again."))
        return
    await do(moment, intent)


async def _details(moment: Context, intent: Intent) -> None:
    await alert.show(moment, intent.object_id)


async def _actions(moment: Context, intent: Intent) -> None:
    await actions.show(moment, await subjects.find(moment.core, intent.object_id))


async def _watch(moment: Context, intent: Intent) -> None:
    await watch.start_watching(moment, intent.object_id)


async def _read(moment: Context, intent: Intent) -> None:
    await moment.core.mark_alert_read(intent.object_id)
    await moment.tools.repaint(intent.object_id)


async def _unread(moment: Context, intent: Intent) -> None:
    await moment.core.mark_alert_unread(intent.object_id)
    await moment.tools.repaint(intent.object_id)


async def _case(moment: Context, intent: Intent) -> None:
    case = await moment.core.create_case_from_alert(intent.object_id)
    await moment.tools.repaint(intent.object_id)
    await moment.say(notices.notice(f"Case {case.id} was made from alert {intent.object_id}."))


async def _refresh(moment: Context, intent: Intent) -> None:
    """The card, or where the button told of none the newest ones of this channel."""
    known = [intent.object_id] if intent.object_id else await moment.tools.mail.subjects(moment.channel, REFRESHED)
    for subject_id in known:
        await moment.tools.repaint(subject_id)
    if answers.on_ephemeral(moment):
        which = f"The card of {intent.object_id}" if intent.object_id else "The newest cards of this channel"
        await moment.replace(notices.notice(f"{which} {'is' if intent.object_id else 'are'} painted anew."))


_MEANINGS: Mapping[str, Callable[[Context, Intent], Awaitable[None]]] = {
    "details": _details,
    "actions": _actions,
    "watch": _watch,
    "read": _read,
    "unread": _unread,
    "case": _case,
    "refresh": _refresh,
}


async def on_link_button(moment: Context) -> None:
    """A link was followed; Slack only tells of it."""


FEATURE = Feature(
    actions={
        ids.MORE: Entry(on_more_menu, Ack.WRITE),
        ids.REFRESH: Entry(on_more_menu, Ack.WRITE),
        ids.DETAILS: Entry(on_more_menu),
        ids.LINK: Entry(on_link_button, anyone=True),
    }
)
