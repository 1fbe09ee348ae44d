"""The buttons and the overflow menu of a card: take, release, what ran here, watch, close, make a case, refresh."""

from collections.abc import Awaitable, Callable, Mapping

from bot.cards import ids, notices, questions
from bot.cards.message import Intent
from bot.features import actions, case, responses, subjects, watch
from bot.features import alert as details
from bot.features.base import Ack, Context, Entry, Feature
from bot.features.payload import is_ephemeral, is_in_modal
from bot.redaction import Subject
from core.models import Alert

REFRESH_LIMIT = 5  # cards that are refreshed at once in a channel


async def on_overflow_menu(context: Context) -> None:
    """Do what the chosen option means."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    handler = _HANDLERS.get(intent.what)
    if handler is None:
        await context.respond(notices.notice("This entry is from an older card. Use Refresh and try again."))
        return
    await handler(context, intent)


async def _show_details(context: Context, intent: Intent) -> None:
    await details.show(context, intent.object_id)


async def _show_actions(context: Context, intent: Intent) -> None:
    await actions.show(context, await subjects.find(context.core, intent.object_id))


async def _watch(context: Context, intent: Intent) -> None:
    await watch.watch_object(context, intent.object_id)


async def _take(context: Context, intent: Intent) -> None:
    """Assign the alert to this person. One that somebody else has taken meanwhile isn't taken from them unasked."""
    login = context.person.login if context.person else ""
    alert = await context.core.alert(intent.object_id)
    if alert.assignee and alert.assignee not in (login, intent.argument):
        await _ask_to_take_over(context, alert)
        return
    await _assign(context, alert, login)


async def _release(context: Context, intent: Intent) -> None:
    """Let nobody work on the alert; ask somebody else than who does whether to take it over."""
    alert = await context.core.alert(intent.object_id)
    if alert.assignee and (context.person is None or alert.assignee != context.person.login):
        await _ask_to_take_over(context, alert)
        return
    await _assign(context, alert, "")


async def _ask_to_take_over(context: Context, alert: Alert) -> None:
    subjects.require_visible(context, Subject.alert(alert))
    about, assignee = f"take:{alert.id}", alert.assignee or ""
    await responses.show_with_buttons(
        context, "Taken", about, lambda button: questions.take_over(alert.id, assignee, button)
    )


async def _assign(context: Context, alert: Alert, login: str) -> None:
    await context.core.assign_alert(alert.id, login)
    context.refresh(alert.id)
    if is_ephemeral(context) or is_in_modal(context):
        await responses.respond(context, notices.notice(f"You work on {alert.id} now."), "Taken")


async def _mark_read(context: Context, intent: Intent) -> None:
    await context.core.mark_alert_read(intent.object_id)
    context.refresh(intent.object_id)


async def _mark_unread(context: Context, intent: Intent) -> None:
    await context.core.mark_alert_unread(intent.object_id)
    context.refresh(intent.object_id)


async def _create_case(context: Context, intent: Intent) -> None:
    await case.ask(context, intent.object_id)


async def _refresh(context: Context, intent: Intent) -> None:
    """Refresh one card, or the newest ones of this channel if the button names no object."""
    object_ids, done = [intent.object_id], f"The card of {intent.object_id} is refreshed."
    if not intent.object_id:
        object_ids = list(await context.services.outbox.roots_in(context.channel, REFRESH_LIMIT))
        done = "The newest cards of this channel are refreshed."
    for object_id in object_ids:
        context.refresh(object_id)
    if is_ephemeral(context) or is_in_modal(context):
        await responses.respond(context, notices.notice(done), "Refreshed")


_HANDLERS: Mapping[str, Callable[[Context, Intent], Awaitable[None]]] = {
    "details": _show_details,
    "actions": _show_actions,
    "watch": _watch,
    "take": _take,
    "release": _release,
    "read": _mark_read,
    "unread": _mark_unread,
    "case": _create_case,
    "refresh": _refresh,
}


async def on_link_button(context: Context) -> None:
    """Do nothing: Slack reports clicks on links too."""


FEATURE = Feature(
    actions={
        ids.MORE: Entry(on_overflow_menu, Ack.WRITE),
        ids.REFRESH: Entry(on_overflow_menu, Ack.WRITE),
        ids.TAKE: Entry(on_overflow_menu, Ack.WRITE),
        ids.RELEASE: Entry(on_overflow_menu, Ack.WRITE),
        ids.DETAILS: Entry(on_overflow_menu),
        ids.LINK: Entry(on_link_button, is_public=True),
    }
)
