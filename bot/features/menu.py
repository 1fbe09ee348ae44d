"""The searchable menu of responders: its entries, when it is opened and while somebody types."""

import json
from collections.abc import Mapping
from typing import Any

from bot.cards import ids
from bot.cards.lists import message_option, responder_options
from bot.features.base import Ack, Context, Entry, Feature, Json
from core.common.errors import ResponderBotError
from core.models import KINDS, Kind


async def on_responder_options(moment: Context) -> Json:
    """Entries for a menu on a message; its block's id says which object it is for."""
    token = str(moment.payload.get("block_id") or "").removeprefix(ids.MENU_BLOCK)
    try:
        intent = await moment.tools.mail.buttons.resolve(
            token, channel=moment.channel, message_ts=moment.message_ts, user=moment.user
        )
    except ResponderBotError:
        return message_option("This menu is too old: choose Refresh, or type /responder list and the id")
    return await _entries(moment, intent.argument or "alert", intent.object_id)


async def on_start_options(moment: Context) -> Json:
    """Entries for the menu in the modal; the view remembers which object it is for."""
    view = moment.payload.get("view")
    metadata = _metadata(view if isinstance(view, Mapping) else {})
    if not metadata.get("id"):
        return message_option("Give an id first, and press Enter.")
    return await _entries(moment, str(metadata.get("kind") or "alert"), str(metadata["id"]))


async def _entries(moment: Context, kind: str, object_id: str) -> Json:
    known: Kind = next((k for k in KINDS if k == kind), "alert")
    offered = await moment.core.responders(known, object_id, explain=True)
    return responder_options(offered, str(moment.payload.get("value") or ""))


def _metadata(view: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = json.loads(str(view.get("private_metadata") or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


FEATURE = Feature(
    options={
        ids.MENU: Entry(on_responder_options, Ack.ANSWER),
        ids.START_RESPONDER: Entry(on_start_options, Ack.ANSWER),
    }
)
