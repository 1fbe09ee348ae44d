"""The options of the searchable menu of responders, when it is opened and while somebody types."""

from bot.cards import ids
from bot.cards.lists import message_option, responder_options
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import view_metadata, view_of
from core.common.errors import ResponderBotError
from core.models import KINDS, Kind


async def on_responder_options(context: Context) -> Json:
    """Options for a menu on a message; the id of its block says which object it is for."""
    token = str(context.payload.get("block_id") or "").removeprefix(ids.MENU_BLOCK)
    try:
        intent = await context.services.outbox.buttons.resolve(
            token, channel=context.channel, message_ts=context.message_ts, user=context.user
        )
    except ResponderBotError:
        return message_option("This menu is too old: choose Refresh, or type /responder list and the id")
    return await _options(context, intent.argument, intent.object_id)


async def on_start_options(context: Context) -> Json:
    """Options for the menu in the run modal; the metadata of the view says which object it is for."""
    metadata = view_metadata(view_of(context))
    if not metadata.get("id"):
        return message_option("Give an id first, and press Enter.")
    return await _options(context, str(metadata.get("kind")), str(metadata["id"]))


async def _options(context: Context, kind: str, object_id: str) -> Json:
    known: Kind = next((k for k in KINDS if k == kind), "alert")
    offered = await context.core.responders(known, object_id, explain=True)
    return responder_options(offered, str(context.payload.get("value") or ""))


FEATURE = Feature(
    options={
        ids.MENU: Entry(on_responder_options, Ack.ANSWER),
        ids.START_RESPONDER: Entry(on_start_options, Ack.ANSWER),
    }
)
