"""Modals: views, input fields, notices, and the values of a submission."""

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from bot.block_kit import ids, notices
from bot.block_kit.text import VIEW_TITLE_LIMIT, clip, mrkdwn, plain, section
from bot.message import Block, Message
from core.common.decoding import mapping

View = Mapping[str, Any]
INPUT_LIMIT = 3000  # characters
MAX_CHECKBOXES = 10  # in a field
TICK_ONE = "Tick at least one."
_Options = Sequence[tuple[str, str, str]]


def modal(
    title: str, blocks: Sequence[Block], *, callback_id: str, submit: str = "", metadata: str = "", close: str = ""
) -> dict[str, Any]:
    """A modal; without `submit` it can't be submitted, and only be closed."""
    view: dict[str, Any] = {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain(clip(title, VIEW_TITLE_LIMIT)),
        "close": plain(close or ("Cancel" if submit else "Close")),
        "blocks": list(blocks),
        "private_metadata": metadata,
    }
    return {**view, "submit": plain(submit)} if submit else view


def notice(title: str, *texts: str) -> dict[str, Any]:
    """Our own sentences in a modal; foreign parts in them are escaped already."""
    return modal(title, [section(text) for text in texts], callback_id=ids.NOTICE_VIEW)


def loading(title: str) -> dict[str, Any]:
    """Opens at once and is filled later, since a trigger_id lives for 3 s."""
    return notice(title, "One moment ...")


def working() -> dict[str, Any]:
    """Shown while a submission takes long; it is updated later."""
    return notice("Still working", "This view will say what became of it; if you close it, only the card does.")


def message_view(title: str, message: Message) -> dict[str, Any]:
    """A message as a modal."""
    return modal(title, message.blocks or [section(message.text)], callback_id=ids.NOTICE_VIEW)


def update(view: View) -> dict[str, Any]:
    """The acknowledgement that replaces the submitted view."""
    return {"response_action": "update", "view": dict(view)}


def errors(problems: Mapping[str, str]) -> dict[str, Any]:
    """The acknowledgement that shows errors at their fields, by block id."""
    return {"response_action": "errors", "errors": {block: clip(text, 1000) for block, text in problems.items()}}


def problem(sentence: str) -> dict[str, Any]:
    """The acknowledgement of an error that belongs to no field."""
    return update(message_view("Not done", notices.error(sentence)))


# --- fields ---------------------------------------------------------------------------------------------------------


def text_field(
    block_id: str,
    label: str,
    *,
    initial: str = "",
    hint: str = "",
    optional: bool = True,
    multiline: bool = False,
    placeholder: str = "",
) -> Block:
    """A text field, named by its block id."""
    element: dict[str, Any] = {"type": "plain_text_input", "action_id": _action_id(block_id), "max_length": INPUT_LIMIT}
    if multiline:
        element["multiline"] = True
    if initial:
        element["initial_value"] = initial[:INPUT_LIMIT]
    if placeholder:
        element["placeholder"] = plain(clip(placeholder, 150))
    return input_block(block_id, label, element, hint=hint, optional=optional)


def search_field(block_id: str, label: str, placeholder: str, options: Sequence[Block], chosen: Block | None) -> Block:
    """A menu that tells at once what was chosen: of these options, or of those found for what is typed."""
    element: dict[str, Any] = {"action_id": _action_id(block_id), "placeholder": plain(clip(placeholder, 150))}
    if options:
        element |= {"type": "static_select", "options": list(options)}
    else:
        element |= {"type": "external_select", "min_query_length": 0}
    if chosen is not None:
        element["initial_option"] = next((o for o in options if o["value"] == chosen["value"]), chosen)
    return {**input_block(block_id, label, element), "dispatch_action": True}


def choice_field(block_id: str, label: str, options: Sequence[tuple[str, str]], initial: str) -> Block:
    """A menu of a few options (value, text)."""
    entries = [{"text": plain(clip(text, 75)), "value": value} for value, text in options]
    first = next((o for o in entries if o["value"] == initial), entries[0])
    element = {
        "type": "static_select",
        "action_id": _action_id(block_id),
        "options": entries,
        "initial_option": first,
    }
    return input_block(block_id, label, element)


def ticked_fields(name: str, label: str, options: _Options, ticked: Container[str]) -> list[Block]:
    """Check boxes with these `ticked`, in as many fields as Slack wants, whose block ids begin with this name.

    Other options give another block id, with which Slack drops the ticks of those before.
    """
    entries = _described(options)
    are_many = len(entries) > MAX_CHECKBOXES  # Slack adds "(optional)" to the label of each
    fields: list[Block] = [section(f"*{label}*")] if are_many else []
    for start in range(0, len(entries), MAX_CHECKBOXES):
        part = entries[start : start + MAX_CHECKBOXES]
        of = f"{name}{start or ''}:{notices.mark_of(json.dumps(part))}"
        first = [one for one in part if one["value"] in ticked]
        initial = {"initial_options": first} if first else {}
        element = {"type": "checkboxes", "action_id": _action_id(of), "options": part} | initial
        numbers = f"{start + 1} to {start + len(part)} of {len(entries)}"
        fields.append(input_block(of, numbers if are_many else label, element, optional=are_many))
    return fields


def ticked(view: View, name: str) -> tuple[list[str], list[str]]:
    """The fields of a view with such check boxes, and the values of those that are ticked."""
    fields = [field for field in labels(view) if field.startswith(name)]
    return fields, [value for field in fields for value in chosen(view, field)]


def radio_field(block_id: str, label: str, options: _Options) -> Block:
    """A few options, none of them chosen."""
    element = {"type": "radio_buttons", "action_id": _action_id(block_id), "options": _described(options)}
    return input_block(block_id, label, element)


def _described(options: _Options) -> list[Block]:
    """Options of (value, text, mrkdwn below it)."""
    return [{"text": plain(text), "value": value, "description": mrkdwn(below)} for value, text, below in options]


def input_block(
    block_id: str, label: str, element: Mapping[str, Any], *, hint: str = "", optional: bool = False
) -> Block:
    """A field with this element."""
    block: dict[str, Any] = {
        "type": "input",
        "block_id": block_id,
        "label": plain(clip(label, 150)),
        "element": dict(element),
        "optional": optional,
    }
    if hint:
        block["hint"] = plain(clip(hint, 2000))
    return block


def _action_id(block_id: str) -> str:
    """`value:` and the field, since Slack wants action ids to be unique in a view."""
    return ids.numbered(ids.VALUE, block_id)


def _blocks(view: View) -> Sequence[Block]:
    blocks = view.get("blocks")
    return [mapping(block) for block in blocks] if isinstance(blocks, list) else []


def labels(view: View) -> dict[str, str]:
    """What the fields of a view are called, by block id."""
    return {str(block.get("block_id")): str(mapping(block.get("label")).get("text") or "") for block in _blocks(view)}


def options(view: View, block_id: str) -> Sequence[Block]:
    """The options of a menu, as it was shown; empty for one that searches."""
    block = next((block for block in _blocks(view) if block.get("block_id") == block_id), {})
    shown = mapping(block.get("element") or block.get("accessory")).get("options")
    return [option for option in shown if isinstance(option, Mapping)] if isinstance(shown, list) else []


def elements(view: View) -> dict[str, Mapping[str, Any]]:
    """The state of each field, by block id. All of it is foreign."""
    blocks = mapping(mapping(view.get("state")).get("values"))
    states = {str(block): next(iter(mapping(inner).values()), None) for block, inner in blocks.items()}
    return {block: element for block, element in states.items() if isinstance(element, Mapping)}


def values(view: View) -> dict[str, str]:
    """What was typed or chosen, by block id; "" for nothing. All of it is foreign text."""
    return {block: _value(element) for block, element in elements(view).items()}


def _value(element: Mapping[str, Any]) -> str:
    if isinstance(element.get("selected_option"), Mapping):
        return option_value(element["selected_option"])
    value = element.get("value")
    return value if isinstance(value, str) else ""


def option_value(option: Any) -> str:
    """The value of a chosen option; "" for anything else."""
    return str(mapping(option).get("value") or "")


def chosen(view: View, block_id: str) -> Sequence[str]:
    """The values of the options that were chosen in a menu of several, each once."""
    selected = elements(view).get(block_id, {}).get("selected_options")
    return list(dict.fromkeys(map(option_value, selected))) if isinstance(selected, list) else []


def ask(title: str, callback_id: str, key: str, blocks: Sequence[Block]) -> dict[str, Any]:
    """A modal with this title also on the button that does it; `key` is of the group, or the ids."""
    return modal(title, blocks, callback_id=callback_id, submit=title, metadata=key)
