"""Modals: the frame of every view, fields, notices, and how values are read back."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import ids
from bot.cards.message import Block, Message
from bot.cards.text import VIEW_TITLE, clip, foreign, plain, section

View = Mapping[str, Any]
TYPED = 3000  # the most that an input takes


def modal(
    title: str, blocks: Sequence[Block], *, callback_id: str, submit: str = "", metadata: str = "", close: str = "Close"
) -> dict[str, Any]:
    """A modal; without `submit` it only shows."""
    view: dict[str, Any] = {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain(clip(title, VIEW_TITLE)),
        "close": plain(close),
        "blocks": list(blocks),
        "private_metadata": metadata,
    }
    return {**view, "submit": plain(submit)} if submit else view


def notice(title: str, *texts: str) -> dict[str, Any]:
    """Sentences of ours in a modal; foreign parts are escaped already."""
    return modal(title, [section(text) for text in texts], callback_id=ids.NOTICE_VIEW)


def loading(title: str) -> dict[str, Any]:
    """What opens at once, to be filled after: a trigger_id lives 3 s (`slack.md 2`)."""
    return notice(title, "One moment ...")


def working(title: str = "Still working") -> dict[str, Any]:
    """What a submission shows when core is late; it is updated after."""
    return notice(title, "Still working on it. This view changes when it is done; it is safe to close.")


def message_view(title: str, message: Message) -> dict[str, Any]:
    """A message shown as a modal."""
    return modal(title, message.blocks or [section(message.text)], callback_id=ids.NOTICE_VIEW)


def update(view: View) -> dict[str, Any]:
    """The acknowledgement that replaces the submitted view."""
    return {"response_action": "update", "view": dict(view)}


def errors(found: Mapping[str, str]) -> dict[str, Any]:
    """The acknowledgement that shows an error at each wrong field."""
    return {"response_action": "errors", "errors": {block: clip(text, 1000) for block, text in found.items()}}


def problem(sentence: str) -> dict[str, Any]:
    """The acknowledgement for an error that belongs to no field."""
    return update(notice("Not done", foreign(sentence, 2800, lines=True) or "That did not work."))


# --- fields ---------------------------------------------------------------------------------------------------------


def text_field(
    block_id: str,
    label: str,
    *,
    initial: str = "",
    hint: str = "",
    optional: bool = True,
    multiline: bool = False,
    dispatch: bool = False,
    placeholder: str = "",
) -> Block:
    """A field to type into; the block's id says which field it is."""
    element: dict[str, Any] = {"type": "plain_text_input", "action_id": _action_id(block_id), "max_length": TYPED}
    if multiline:
        element["multiline"] = True
    if initial:
        element["initial_value"] = initial[:TYPED]
    if placeholder:
        element["placeholder"] = plain(clip(placeholder, 150))
    if dispatch:
        element["dispatch_action_config"] = {"trigger_actions_on": ["on_enter_pressed"]}
    return _input(block_id, label, element, hint, optional, dispatch)


def choice_field(block_id: str, label: str, options: Sequence[tuple[str, str]], initial: str, hint: str = "") -> Block:
    """A field to choose one of a few; options are (value, words)."""
    made = [{"text": plain(clip(words, 75)), "value": value} for value, words in options]
    first = next((o for o in made if o["value"] == initial), made[0])
    element = {
        "type": "static_select",
        "action_id": _action_id(block_id),
        "options": made,
        "initial_option": first,
    }
    return _input(block_id, label, element, hint, False, False)


def _input(block_id: str, label: str, element: Mapping[str, Any], hint: str, optional: bool, dispatch: bool) -> Block:
    block: dict[str, Any] = {
        "type": "input",
        "block_id": block_id,
        "label": plain(clip(label, 150)),
        "element": dict(element),
        "optional": optional,
    }
    if hint:
        block["hint"] = plain(clip(hint, 150))
    return {**block, "dispatch_action": True} if dispatch else block


def _action_id(block_id: str) -> str:
    """Unique in the view, since Slack wants it so; `value:` and the field."""
    return ids.numbered(ids.VALUE, block_id)


def values(view: View) -> dict[str, str]:
    """What was typed or chosen, by block id; nothing typed is an empty string. All of it is foreign."""
    state = view.get("state")
    blocks = state.get("values") if isinstance(state, Mapping) else None
    found: dict[str, str] = {}
    for block_id, elements in (blocks or {}).items():
        for element in (elements or {}).values():
            if isinstance(element, Mapping):
                found[block_id] = _value(element)
    return found


def _value(element: Mapping[str, Any]) -> str:
    option = element.get("selected_option")
    if isinstance(option, Mapping):
        return str(option.get("value") or "")
    value = element.get("value")
    return value if isinstance(value, str) else ""


def files(view: View, block_id: str) -> Sequence[Mapping[str, Any]]:
    """The files of a file_input."""
    state = view.get("state")
    blocks = state.get("values") if isinstance(state, Mapping) else None
    for element in ((blocks or {}).get(block_id) or {}).values():
        found = element.get("files") if isinstance(element, Mapping) else None
        if isinstance(found, list):
            return [f for f in found if isinstance(f, Mapping)]
    return []
