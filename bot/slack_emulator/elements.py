"""Values of Block Kit elements: what a user enters, and how Slack represents it in the state."""

import re
import secrets
from collections.abc import Iterator
from typing import Any

from bot.slack_emulator.errors import PageError
from bot.slack_emulator.state import Json, copied

# Key of the value, by element type (docs.slack.dev, "View state" and "block_actions").
ONE_OPTION = ("static_select", "external_select", "radio_buttons", "overflow")
MANY_OPTIONS = ("multi_static_select", "multi_external_select", "checkboxes")
TEXTS = ("plain_text_input", "email_text_input", "url_text_input", "number_input")
VALUE_KEYS = {
    **dict.fromkeys(ONE_OPTION, "selected_option"),
    **dict.fromkeys(MANY_OPTIONS, "selected_options"),
    **dict.fromkeys(TEXTS, "value"),
    "users_select": "selected_user",
    "conversations_select": "selected_conversation",
    "channels_select": "selected_channel",
    "multi_users_select": "selected_users",
    "multi_conversations_select": "selected_conversations",
    "multi_channels_select": "selected_channels",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "datetimepicker": "selected_date_time",
    "rich_text_input": "rich_text_value",
    "file_input": "files",
}
LISTS = (
    *MANY_OPTIONS,
    "multi_users_select",
    "multi_conversations_select",
    "multi_channels_select",
    "file_input",
)
STATELESS = ("button", "overflow", "workflow_button")
FORMATS = {
    "datepicker": (re.compile(r"\d{4}-\d{2}-\d{2}"), "a date like 2025-12-31"),
    "timepicker": (re.compile(r"\d{2}:\d{2}"), "a time like 23:59"),
}


def all_blocks(holder: Json) -> list[Json]:
    """Blocks of a message or view, including those in attachments."""
    inner = [block for attachment in holder.get("attachments") or [] for block in attachment.get("blocks") or []]
    return [*(holder.get("blocks") or []), *inner]


def elements_of(block: Json) -> list[Json]:
    """The interactive elements of one block."""
    elements = [block.get("accessory"), block.get("element"), *(block.get("elements") or [])]
    return [e for e in elements if isinstance(e, dict) and "action_id" in e]


def walk(holder: Json) -> Iterator[tuple[Json, Json]]:
    """Each (block, interactive element) of a message or view."""
    for block in all_blocks(holder):
        for element in elements_of(block):
            yield block, element


def has(holder: Json, action_id: str, block_id: str | None) -> bool:
    """Whether there is an element with these ids."""
    return any(e["action_id"] == action_id and block_id in (None, b["block_id"]) for b, e in walk(holder))


def find(holder: Json, action_id: str, block_id: str | None) -> tuple[Json, Json]:
    """The (block, element) with these ids. Raises PageError if there is none."""
    for block, element in walk(holder):
        if element["action_id"] == action_id and block_id in (None, block["block_id"]):
            return block, element
    available = ", ".join(f"{b['block_id']}/{e['action_id']}" for b, e in walk(holder)) or "none"
    raise PageError("no_such_element", f"No element {action_id!r} here. Available: {available}.", status=404)


def with_ids(blocks: list[Json]) -> list[Json]:
    """A copy of the blocks with generated ids where the app set none, as Slack does."""
    blocks = copied(blocks)
    for block in blocks:
        block.setdefault("block_id", secrets.token_urlsafe(4)[:5])
        for element in (block.get("accessory"), block.get("element"), *(block.get("elements") or [])):
            if isinstance(element, dict) and (element.get("type") in VALUE_KEYS or element.get("type") in STATELESS):
                element.setdefault("action_id", secrets.token_urlsafe(4)[:5])
    return blocks


def state_of(holder: Json, before: Json | None = None) -> Json:
    """Initial `state.values`; values in `before` are kept where ids and type match."""
    values: Json = {}
    for block, element in walk(holder):
        if element["type"] in STATELESS or element["type"] not in VALUE_KEYS:
            continue
        kept = (before or {}).get(block["block_id"], {}).get(element["action_id"])
        same = kept is not None and kept["type"] == element["type"]
        value = _still_there(element, kept) if same else initial(element)
        values.setdefault(block["block_id"], {})[element["action_id"]] = value
    return values


def _still_there(element: Json, kept: Json) -> Json:
    """What was chosen without the options that a menu or check boxes no longer list."""
    key, listed = VALUE_KEYS[element["type"]], [option["value"] for option in options_of(element)]
    chosen = kept[key]
    if listed and isinstance(chosen, list):
        chosen = [option for option in chosen if option["value"] in listed]
    elif listed and chosen and chosen["value"] not in listed:
        chosen = None
    return {**kept, key: chosen}


def initial(element: Json) -> Json:
    """Initial value of an element."""
    key = VALUE_KEYS[element["type"]]
    empty: Any = [] if element["type"] in LISTS else None
    return {"type": element["type"], key: element.get("initial_" + key.removeprefix("selected_"), empty)}


def options_of(element: Json) -> list[Json]:
    """Options of an element, including those in groups."""
    grouped = [option for group in element.get("option_groups") or [] for option in group["options"]]
    return [*(element.get("options") or []), *grouped]


def chosen(element: Json, value: Any, offered: list[Json]) -> Json:
    """An entered value in the form of Slack's state. Raises PageError if the element can't have it."""
    kind = element["type"]
    if kind not in VALUE_KEYS:
        return {"type": kind}
    return {"type": kind, VALUE_KEYS[kind]: _value(element, value, offered)}


def _value(element: Json, value: Any, offered: list[Json]) -> Any:
    kind = element["type"]
    if kind in LISTS:
        listed = value if isinstance(value, list | tuple) else [value]
        many = [] if value is None or value == "" else list(listed)
        most = element.get("max_selected_items") or element.get("max_files")
        if most is not None and len(many) > most:
            raise PageError("too_many", f"At most {most} can be chosen in {element['action_id']!r}.")
        return [_option(element, option, offered) for option in many] if kind in MANY_OPTIONS else many
    if value is None or value == "":
        return None
    if kind in ONE_OPTION:
        return _option(element, value, offered)
    if kind == "datetimepicker":
        try:
            return int(value)
        except (TypeError, ValueError):
            raise PageError("bad_value", f"{value!r} isn't a time in seconds since 1970.") from None
    if kind == "rich_text_input":
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": str(value)}]}
        return {"type": "rich_text", "elements": [section]}
    pattern, example = FORMATS.get(kind, (None, ""))
    if pattern is not None and not pattern.fullmatch(str(value)):
        raise PageError("bad_value", f"{value!r} isn't {example}.")
    return str(value)


def _option(element: Json, value: Any, offered: list[Json]) -> Json:
    chosen = value.get("value") if isinstance(value, dict) else value
    for option in [*options_of(element), *offered]:
        if option.get("value") == chosen:
            return option
    available = [o.get("value") for o in [*options_of(element), *offered]]
    raise PageError("no_such_option", f"No option {chosen!r} in {element['action_id']!r}. Available: {available}.")


def action_of(block: Json, element: Json, value: Json, action_ts: str) -> Json:
    """One entry of `actions` in a block_actions payload."""
    if element["type"] == "button":
        kept: Json = {key: element[key] for key in ("text", "value", "style", "url") if key in element}
    else:
        kept = {key: item for key, item in element.items() if key == "placeholder" or key.startswith("initial_")}
    return {
        "type": element["type"],
        "action_id": element["action_id"],
        "block_id": block["block_id"],
        **kept,
        **value,
        "action_ts": action_ts,
    }


def is_empty(value: Json) -> bool:
    """Whether the value is empty."""
    return value.get(VALUE_KEYS.get(value["type"], "value")) in (None, "", [])


def field_errors(view: Json) -> dict[str, str]:
    """Errors by block_id that Slack's client reports before it sends a submission."""
    errors: dict[str, str] = {}
    for block in view["blocks"]:
        if block["type"] != "input":
            continue
        value = view["state"]["values"][block["block_id"]][block["element"]["action_id"]]
        problem = _field_error(block, value)
        if problem:
            errors[block["block_id"]] = problem
    return errors


def _field_error(block: Json, value: Json) -> str | None:
    element = block["element"]
    if is_empty(value):
        return None if block.get("optional") else "Please complete this required field."
    if element["type"] == "number_input":
        return _number_error(element, value["value"])
    if element["type"] not in TEXTS:
        return None
    text = value["value"]
    if len(text) < element.get("min_length", 0):
        return f"Please enter at least {element['min_length']} characters."
    if len(text) > element.get("max_length", 3000):
        return f"Please enter no more than {element.get('max_length', 3000)} characters."
    if element["type"] == "email_text_input" and not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", text):
        return "Please enter a valid email address."
    if element["type"] == "url_text_input" and not re.match(r"https?://\S+$", text):
        return "Please enter a valid URL."
    return None


def _number_error(element: Json, text: str) -> str | None:
    pattern = r"-?\d+(\.\d+)?" if element.get("is_decimal_allowed") else r"-?\d+"
    if not re.fullmatch(pattern, text):
        return "Please enter a valid number."
    low, high = element.get("min_value"), element.get("max_value")
    if low is not None and float(text) < float(low):
        return f"Please enter a number that is at least {low}."
    if high is not None and float(text) > float(high):
        return f"Please enter a number that is at most {high}."
    return None
