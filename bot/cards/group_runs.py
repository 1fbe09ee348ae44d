"""A run on all alerts of a group: which responder."""

from collections.abc import Sequence
from typing import Any

from bot.cards import ids, names
from bot.cards.lists import MAX_OPTIONS
from bot.cards.message import ButtonIds, Intent, Message
from bot.cards.text import OPTION_LIMIT, context, foreign_plain, plain, section
from core.models import OfferedResponder


def menu(key: str, offered: Sequence[OfferedResponder], on: str, *, button: ButtonIds) -> Message:
    """A menu of the responders that can run on all; `on` says on which alerts."""
    options = [
        {
            "text": plain(foreign_plain(names.title(one), OPTION_LIMIT)),
            "value": button(Intent("group_ask", key, one.id)),
        }
        for one in offered[:MAX_OPTIONS]
    ]
    element: dict[str, Any] = {
        "type": "static_select",
        "action_id": ids.numbered(ids.GROUP_RUN, "choose"),
        "placeholder": plain("Choose a responder"),
        "options": options,
    }
    text = f"Run on {on}"
    only = "Only responders that can run on each of them, and need no inputs, are here. It asks before it runs."
    return Message(text, (section(text), {"type": "actions", "elements": [element]}, context(only)))
