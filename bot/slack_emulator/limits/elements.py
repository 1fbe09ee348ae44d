"""Block elements. To add one, write a function and add a line to `ELEMENTS`."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from bot.slack_emulator.limits.objects import (
    check_confirm,
    check_dispatch_config,
    check_image,
    check_initial_options,
    check_option,
    check_options,
    check_options_or_groups,
    check_style,
)
from bot.slack_emulator.limits.validation import ANY_TEXT, PLAIN, Rule, Validation

WHOLE = re.compile(r"-?[0-9]+")
DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
USER_ID = re.compile(r"[UW][A-Z0-9]+")


def _button(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "text action_id url value style confirm accessibility_label")
    validation.required_text(e, "text", at, 75)
    validation.string(e, "value", at, 2000)
    if e.get("url") is not None:
        validation.url(e, "url", at)
    validation.string(e, "accessibility_label", at, 75)
    check_style(validation, e, at)


def _checkboxes_or_radio_buttons(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    initial = "initial_options" if e["type"] == "checkboxes" else "initial_option"
    validation.only(e, at, f"action_id options {initial} confirm focus_on_load")
    if validation.need(e, at, "options"):
        check_options(validation, e["options"], f"{at}/options", high=10, texts=ANY_TEXT)
    check_initial_options(validation, e, at)


def _overflow(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id options confirm")
    if validation.need(e, at, "options"):
        check_options(validation, e["options"], f"{at}/options", high=5, url=True)


SELECT_KEYS = "action_id placeholder confirm focus_on_load"


def _static_select(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    multi = e["type"].startswith("multi_")
    own = "initial_options max_selected_items" if multi else "initial_option"
    validation.only(e, at, f"{SELECT_KEYS} options option_groups {own}")
    check_options_or_groups(validation, e, at)
    check_initial_options(validation, e, at)
    _max_selected_items(validation, e, at)


def _external_select(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    multi = e["type"].startswith("multi_")
    own = "initial_options max_selected_items" if multi else "initial_option"
    validation.only(e, at, f"{SELECT_KEYS} min_query_length {own}")
    _integer(validation, e, "min_query_length", at, 0)
    if e.get("initial_option") is not None:
        check_option(validation, e["initial_option"], f"{at}/initial_option", PLAIN, url=False)
    if e.get("initial_options") is not None:
        check_options(validation, e["initial_options"], f"{at}/initial_options")
    _max_selected_items(validation, e, at)


def _entity_select(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    what = e["type"].removeprefix("multi_").removesuffix("_select")
    multi = e["type"].startswith("multi_")
    own = f"initial_{what} max_selected_items" if multi else f"initial_{what.removesuffix('s')}"
    if what == "conversations":
        own += " default_to_current_conversation filter"
    if what != "users" and not multi:
        own += " response_url_enabled"
    first = e.get(f"initial_{what.removesuffix('s')}")
    if what == "users" and first is not None and not (isinstance(first, str) and USER_ID.fullmatch(first)):
        validation.add(f"{at}/initial_user", "must be a valid user id")
    validation.only(e, at, f"{SELECT_KEYS} {own}")
    _max_selected_items(validation, e, at)


def _max_selected_items(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    _integer(validation, e, "max_selected_items", at, 1)
    most, first = e.get("max_selected_items"), e.get("initial_options")
    if isinstance(most, int) and isinstance(first, list | tuple) and len(first) > most:
        validation.add(f"{at}/initial_options", f"no more than {most} items allowed")


def _integer(
    validation: Validation, e: Mapping[str, Any], name: str, at: str, low: int, high: int | None = None
) -> None:
    value = e.get(name)
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        validation.add(f"{at}/{name}", "must be an integer")
    elif value < low:
        validation.add(f"{at}/{name}", f"must be greater than or equal to {low}")
    elif high is not None and value > high:
        validation.add(f"{at}/{name}", f"must be less than or equal to {high}")


def _text_input(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    own = "multiline min_length max_length" if e["type"] == "plain_text_input" else ""
    validation.only(e, at, f"action_id placeholder initial_value dispatch_action_config focus_on_load {own}")
    validation.flag(e, at, "multiline")
    validation.string(e, "initial_value", at, 3000)
    _integer(validation, e, "min_length", at, 0, 3000)
    _integer(validation, e, "max_length", at, 1, 3000)
    shortest, longest, value = (e.get(name) for name in ("min_length", "max_length", "initial_value"))
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        validation.add(f"{at}/min_length", "must be less than or equal to `max_length`")
    if isinstance(longest, int) and isinstance(value, str) and len(value) > longest:
        validation.add(f"{at}/initial_value", f"must be less than {longest + 1} characters")
    check_dispatch_config(validation, e, at)


def _number_input(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    own = "is_decimal_allowed initial_value min_value max_value dispatch_action_config focus_on_load"
    validation.only(e, at, f"action_id placeholder {own}")
    validation.need(e, at, "is_decimal_allowed")
    validation.flag(e, at, "is_decimal_allowed")
    kind = DECIMAL if e.get("is_decimal_allowed") is True else WHOLE
    numbers: dict[str, Decimal] = {}
    for name in ("initial_value", "min_value", "max_value"):
        validation.string(e, name, at, 3000)
        value = e.get(name)
        if isinstance(value, str) and kind.fullmatch(value) is None:
            validation.add(f"{at}/{name}", "must be a valid number")
        elif isinstance(value, str):
            numbers[name] = Decimal(value)
    for low, high in (("min_value", "max_value"), ("min_value", "initial_value"), ("initial_value", "max_value")):
        if low in numbers and high in numbers and numbers[low] > numbers[high]:
            validation.add(f"{at}/{low}", f"cannot be greater than {high}")
    check_dispatch_config(validation, e, at)


def _rich_text_input(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id placeholder initial_value dispatch_action_config focus_on_load")
    check_dispatch_config(validation, e, at)


def _file_input(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id filetypes max_files")
    _integer(validation, e, "max_files", at, 1, 10)


def _date(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id placeholder confirm focus_on_load initial_date")
    validation.string(e, "initial_date", at, 10, low=10)
    value = e.get("initial_date")
    if isinstance(value, str) and not _is_date(value):
        validation.add(f"{at}/initial_date", "must be a date in the format YYYY-MM-DD")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _time(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id placeholder confirm focus_on_load initial_time timezone")
    validation.string(e, "initial_time", at, 5, low=5)


def _date_time(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "action_id confirm focus_on_load initial_date_time")
    _integer(validation, e, "initial_date_time", at, 1_000_000_000, 9_999_999_999)


def _image_element(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    validation.only(e, at, "image_url slack_file alt_text")
    check_image(validation, e, at)


# element type -> (rule, blocks that may contain it, surfaces)
EVERYWHERE = "message modal home"


SELECT_BLOCKS = "section actions input"


ELEMENTS: dict[str, tuple[Rule, str, str]] = {
    "button": (_button, "section actions", EVERYWHERE),
    "checkboxes": (_checkboxes_or_radio_buttons, SELECT_BLOCKS, EVERYWHERE),
    "radio_buttons": (_checkboxes_or_radio_buttons, SELECT_BLOCKS, EVERYWHERE),
    "overflow": (_overflow, "section actions", EVERYWHERE),
    "static_select": (_static_select, SELECT_BLOCKS, EVERYWHERE),
    "multi_static_select": (_static_select, SELECT_BLOCKS, EVERYWHERE),
    "external_select": (_external_select, SELECT_BLOCKS, EVERYWHERE),
    "multi_external_select": (_external_select, SELECT_BLOCKS, EVERYWHERE),
    "users_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "multi_users_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "conversations_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "multi_conversations_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "channels_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "multi_channels_select": (_entity_select, SELECT_BLOCKS, EVERYWHERE),
    "plain_text_input": (_text_input, "input", EVERYWHERE),
    "email_text_input": (_text_input, "input", "modal"),
    "url_text_input": (_text_input, "input", "modal"),
    "number_input": (_number_input, "input", "modal"),
    "rich_text_input": (_rich_text_input, "input", "modal home"),
    "file_input": (_file_input, "input", "modal"),
    "datepicker": (_date, SELECT_BLOCKS, EVERYWHERE),
    "timepicker": (_time, SELECT_BLOCKS, EVERYWHERE),
    "datetimepicker": (_date_time, "actions input", "message modal"),
    "image": (_image_element, "section context", EVERYWHERE),
}


def check_element(validation: Validation, element: Any, at: str, block: str) -> None:
    if not validation.mapping(element, at):
        return
    kind = str(element.get("type"))
    rule, blocks, surfaces = ELEMENTS.get(kind, (None, "", ""))
    if rule is None or block not in blocks.split() or validation.surface not in surfaces.split():
        validation.add(f"{at}/type", f"unsupported type: {kind}")
        return
    if kind != "image":
        validation.unique(element, "action_id", at, validation.action_ids)
        validation.optional_text(element, "placeholder", at, 150)
        check_confirm(validation, element, at)
        _focus(validation, element, at)
    rule(validation, element, at)


def _focus(validation: Validation, element: Mapping[str, Any], at: str) -> None:
    validation.flag(element, at, "focus_on_load")
    if element.get("focus_on_load") is True:
        if validation.focused:
            validation.add(f"{at}/focus_on_load", "only one element can have `focus_on_load` set to true")
        validation.focused = True
