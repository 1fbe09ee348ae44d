"""The buttons and the overflow menu of a card: assign, unassign, what ran here, close, make a case."""

from collections.abc import Awaitable, Callable, Mapping

from bot.block_kit import ids, notices
from bot.features import responses, subjects
from bot.features.alerts import assign, find
from bot.features.alerts.views.close import close_view
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.cases import handlers as cases
from bot.features.payload import is_ephemeral, is_in_modal, metadata_text, typed_reason
from bot.features.runs import listing
from bot.message import Intent
from bot.outbox.models import RefreshRequest, card_key
from core.common.errors import ResponderBotError


async def on_overflow_menu(context: Context) -> None:
    """Do what the chosen option means."""
    intent = await responses.clicked_intent(context)
    handler = _HANDLERS.get(intent.what)
    if handler is None:
        await context.respond(notices.notice("This entry is from an older card, and does nothing any more."))
        return
    await handler(context, intent)


async def _show_details(context: Context, intent: Intent) -> None:
    start, _, channel = intent.argument.partition(" ")
    await find.show_in_full(context, intent.object_id, int(start or 0), channel)


async def _ask_to_close(context: Context, intent: Intent) -> None:
    """Ask for the reason in a modal that says what is still in force or waits for approval."""
    responses.require_permission(context, "manageAlert")
    subject, document = await subjects.with_document(context.core, intent.object_id)
    view = subjects.require_visible(context, subject)
    await context.show_modal(close_view(document, view, context.person.login))


async def _mark_unread(context: Context, intent: Intent) -> None:
    await context.core.mark_alert_unread(intent.object_id)
    context.refresh(intent.object_id)
    if is_ephemeral(context) or is_in_modal(context):
        await responses.respond(context, notices.notice(f"{intent.object_id} is open again."), "Reopened")


async def _show_again(context: Context, intent: Intent) -> None:
    """Post the card of an alert as a new message, in the channel where an old one was clicked."""
    services, channel = context.services, intent.argument
    try:
        subject, document = await subjects.with_document(context.core, intent.object_id)
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        days = services.alert_days
        why = f": alerts are deleted {days} days after their last change" if days else ""
        message = notices.notice(f"{intent.object_id} was deleted{why}. This message is all that is left of it.")
        await responses.respond(context, message, "Deleted")
        return
    subjects.require_visible(context, subject)
    if document.alert is None or services.clearance(channel) is None:
        text = f"`{services.command} list {subject.id}` shows what can run on {subject.id}."
        await responses.respond(context, notices.notice(text), "Still there")
        return
    context.refresh_requests.append(RefreshRequest(card_key(document.id, channel)))
    text = f"{document.id} gets a new card at the end of the channel."
    await responses.respond(context, notices.notice(text), "Shown again")


_HANDLERS: Mapping[str, Callable[[Context, Intent], Awaitable[None]]] = {
    "details": _show_details,
    "actions": lambda context, intent: listing.show_actions(context, intent.object_id),
    "assign": assign.on_assign_button,
    "unassign": assign.on_assign_button,
    "read": _ask_to_close,
    "unread": _mark_unread,
    "case": lambda context, intent: cases.ask(context, intent.object_id),
    "show_again": _show_again,
}


async def on_close_view(context: Context) -> Json | None:
    """Close it. Core refuses whoever may not see it."""
    alert_id = metadata_text(context)
    await context.core.close_alerts([alert_id], typed_reason(context))
    context.refresh(alert_id)
    return None


async def on_link_button(context: Context) -> None:
    """Do nothing: Slack reports clicks on links too."""


FEATURE = Feature(
    actions={
        ids.MORE: Entry(on_overflow_menu, Ack.WRITE),
        ids.SHOW_AGAIN: Entry(on_overflow_menu, Ack.WRITE),
        ids.ASSIGN: Entry(on_overflow_menu, Ack.WRITE),
        ids.REOPEN: Entry(on_overflow_menu, Ack.WRITE),
        ids.UNASSIGN: Entry(on_overflow_menu, Ack.WRITE),
        ids.DETAILS: Entry(on_overflow_menu),
        ids.LINK: Entry(on_link_button, is_public=True),
    },
    views={ids.CLOSE_VIEW: Entry(on_close_view, Ack.RESPONSE)},
)
