"""Buttons and what stands around them, as Slack's objects; texts are plain and ours, or cleaned already."""

from collections.abc import Mapping
from typing import Any, Literal

from bot.cards import ids
from bot.cards.message import Block
from bot.cards.text import plain


def actions(*elements: Mapping[str, Any]) -> Block:
    """A row of buttons and menus."""
    return {"type": "actions", "elements": list(elements)}


def button_element(
    text: str,
    action_id: str,
    value: str = "",
    *,
    of: str = "",
    style: Literal["", "primary", "danger"] = "",
    confirm: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A button; `of` tells it from others with its action id in one message."""
    element: dict[str, Any] = {
        "type": "button",
        "action_id": ids.numbered(action_id, of) if of else action_id,
        "text": plain(text),
    }
    more = {"value": value, "style": style, "confirm": confirm}
    return element | {key: given for key, given in more.items() if given}


def confirmation(
    title: str, text: str, confirm: str, deny: str = "Cancel", *, style: Literal["", "danger"] = ""
) -> dict[str, Any]:
    """What Slack asks before it sends a click."""
    dialog = {"title": plain(title), "text": plain(text), "confirm": plain(confirm), "deny": plain(deny)}
    return {**dialog, "style": style} if style else dialog
