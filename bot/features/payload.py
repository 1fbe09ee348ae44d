"""What a payload of Slack says: the element that was clicked, the view that was submitted. Every shape is survived."""

import json
import re
from collections.abc import Mapping
from typing import Any

from bot.block_kit import ids
from bot.block_kit.modals import option_value, values
from bot.features.base import Context
from core.common.decoding import mapping

_OF_CARD = re.compile(r"^(?:\w+ )?[Aa]lert (~[0-9]{1,18})\b")
_OF_REPLY = re.compile(r"\((~[0-9]{1,18})\)")


def clicked_element(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The element that was clicked; empty if the payload has none."""
    actions = payload.get("actions")
    return mapping(actions[0]) if isinstance(actions, list) and actions else {}


def selected_value(context: Context) -> str:
    """The value of the selected option, or ""."""
    return option_value(clicked_element(context.payload).get("selected_option"))


def button_token(context: Context) -> str:
    """The opaque id of what was clicked: a menu of responders has it in its `block_id`, others as their value."""
    element = clicked_element(context.payload)
    block_id = str(element.get("block_id") or "")
    if block_id.startswith(ids.MENU_BLOCK) and ids.family(str(element.get("action_id"))) == ids.MENU:
        return block_id.removeprefix(ids.MENU_BLOCK)
    return selected_value(context) or str(element.get("value") or "")


def object_in_message(context: Context) -> str:
    """The id of what the clicked message is about, as in `High alert ~12: Beacon` and `HIGH Beacon (~12): done`; or "".

    Whoever wrote a title may have put another one there, so it is good only for a question to core.
    """
    text = mapping(context.payload.get("message")).get("text")
    text = text if isinstance(text, str) else ""
    object_ids = _OF_CARD.findall(text) or _OF_REPLY.findall(text)[-1:]
    return object_ids[0] if object_ids else ""


def is_ephemeral(context: Context) -> bool:
    """Whether the click was on an ephemeral message."""
    return mapping(context.payload.get("container")).get("is_ephemeral") is True


def is_in_modal(context: Context) -> bool:
    return view_of(context).get("type") == "modal" and "actions" in context.payload


def view_of(context: Context) -> Mapping[str, Any]:
    """The view of a click or submission; empty if there is none."""
    return mapping(context.payload.get("view"))


def metadata_text(context: Context) -> str:
    """The `private_metadata` of the view of a click or submission; "" if there is none."""
    return str(view_of(context).get("private_metadata") or "")


def view_metadata(view: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON object in a view's `private_metadata`; empty if there is none."""
    try:
        return mapping(json.loads(str(view.get("private_metadata") or "{}")))
    except ValueError:
        return {}


def typed_reason(context: Context) -> str:
    """What was typed as the reason in a view that was submitted; "" for nothing."""
    return values(view_of(context)).get("reason", "").strip()


def is_home(context: Context) -> bool:
    return view_of(context).get("type") == "home"
