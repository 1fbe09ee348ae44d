"""How features respond: with buttons of their own, in place of what was clicked, and to stale buttons."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from bot.block_kit import notices
from bot.block_kit.elements import for_person
from bot.clearance import Subject
from bot.features.authorization import missing_permission
from bot.features.base import Context, Json
from bot.features.command_text import normalize, split_name_and_id
from bot.features.payload import button_token, is_ephemeral, is_in_modal, object_in_message
from bot.message import ButtonIds, Intent, Message
from bot.outbox.errors import SLACK_FAILURES, classify
from bot.outbox.models import LOG
from core.common.errors import ResponderBotError
from core.models import Permission

log = structlog.get_logger("bot.features")

OUT_OF_DATE = "Out of date"  # the title of what says so of a button
T = TypeVar("T")


async def respond(context: Context, message: Message, title: str = "Responder") -> None:
    """Tell this person only: in place of the ephemeral or in the modal that was clicked, else as a new message."""
    if is_ephemeral(context):
        await context.replace_original(message)
    elif is_in_modal(context):
        await context.show(title, message)
    else:
        await context.respond(message)


async def show(context: Context, title: str, message: Message) -> None:
    """Show what asks, explains or lists: in place of the ephemeral that was clicked, else in a modal."""
    if is_ephemeral(context):
        await context.replace_original(message)
    else:
        await context.show(title, message)


async def open_view(context: Context, view: Json, again: str) -> None:
    """Open a modal with fields, or turn the one that was clicked into it.

    Raises ResponderBotError("unavailable") with what to do `again` where Slack's trigger doesn't work.
    """
    try:
        await context.show_modal(view)
    except SLACK_FAILURES as error:
        log.info("modal_not_shown", code=classify(error).code)
        raise ResponderBotError("unavailable", f"Slack opened no window for it. {again}") from error


async def show_with_buttons(context: Context, title: str, about: str, render: Callable[[ButtonIds], Message]) -> None:
    """Show a message with buttons as `show` does.

    `about` names what the message shows. Showing the same again reuses the ids of its buttons.
    """
    message = await with_buttons(context, about, render)
    await show(context, title, replace(message, blocks=for_person(message.blocks, context.person)))


async def with_buttons(context: Context, about: str, render: Callable[[ButtonIds], T]) -> T:
    """What `render` shows to this person only, in any channel; `about` as above."""
    key = f"only:{context.team}:{context.user}:{about}"
    return await context.services.outbox.buttons.issue("", key, render)


async def refresh_cards(context: Context, subject: Subject) -> None:
    """Show the cards of this object at once, since a person changed something or asked for it.

    The card that was clicked too: that of an alert also has what belongs to its case.
    """
    also = f"{LOG}:{subject.id}" if subject.kind == "case_task_log" else ""
    context.refresh(subject.root_id or subject.id, also)
    for root_id in await roots_at(context, context.message_ts):
        if root_id != subject.root_id:
            context.refresh(root_id)


class OutOfDateError(Exception):
    """The clicked button is no longer valid, and the person has read so."""


async def clicked_intent(context: Context) -> Intent:
    """What the clicked button, or a typed verb with an id, means. Raises OutOfDateError."""
    if "command" in context.payload:
        verb = normalize(str(context.payload["text"])).partition(" ")[0].lower()
        return Intent(verb, split_name_and_id(context.text)[1])
    try:
        return await context.services.outbox.buttons.resolve(
            button_token(context), channel=context.channel, message_ts=context.message_ts, user=context.user
        )
    except ResponderBotError as error:
        if error.code not in ("gone", "not_found", "forbidden"):
            raise
        await _show_out_of_date(context, error.details)
        raise OutOfDateError from error


async def _show_out_of_date(context: Context, details: Json) -> None:
    """Say why the clicked button does nothing, and what to use instead; `details` are those of its error."""
    known = await roots_at(context, context.message_ts, context.thread_ts)
    if not known and (restored_at := await context.services.outbox.lost_by_restore(context.message_ts)):
        await show(context, OUT_OF_DATE, notices.lost_card(restored_at))
        return
    in_text = "" if known or details else object_in_message(context)
    if in_text:
        forgotten = partial(notices.forgotten_card, in_text, context.channel)
        await show_with_buttons(context, OUT_OF_DATE, f"forgotten:{in_text}", forgotten)
        return
    object_id = str(details.get("root_id") or next(iter(known), ""))
    if object_id:
        context.refresh(object_id)
    await show(context, OUT_OF_DATE, notices.expired_button(object_id))


async def roots_at(context: Context, *message_ts: str) -> list[str]:
    """Ids of the alerts and cases that the bot's messages with these `ts` are about."""
    messages = [await context.services.outbox.message_at(context.channel, ts) for ts in message_ts if ts]
    return [message.root_id for message in messages if message is not None and message.root_id]


def require_permission(context: Context, permission: Permission | None) -> None:
    """Refuse early what core would refuse in any case. Raises ResponderBotError("forbidden")."""
    if permission is not None and permission not in context.person.permissions:
        raise missing_permission(permission)
