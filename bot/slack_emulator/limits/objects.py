"""Composition objects: options, confirmation dialogs, and what triggers an action."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.slack_emulator.limits.validation import ANY_TEXT, PLAIN, Validation


def check_option(validation: Validation, option: Any, at: str, texts: Sequence[str], *, url: bool) -> None:
    if not validation.mapping(option, at):
        return
    validation.only(option, at, "text value description url" if url else "text value description")
    validation.required_text(option, "text", at, 75, texts)
    if url:
        validation.url(option, "url", at)
    if validation.need(option, at, "value"):
        validation.string(option, "value", at, 150, low=0 if url else 1)
    validation.optional_text(option, "description", at, 75, texts)


def check_options(
    validation: Validation,
    value: Any,
    at: str,
    *,
    high: int = 100,
    low: int = 1,
    texts: Sequence[str] = PLAIN,
    url: bool = False,
) -> None:
    for n, option in enumerate(validation.items(value, at, low, high)):
        check_option(validation, option, f"{at}/{n}", texts, url=url)


def check_option_groups(validation: Validation, value: Any, at: str, low: int = 1) -> None:
    for n, group in enumerate(validation.items(value, at, low, 100)):
        here = f"{at}/{n}"
        if not validation.mapping(group, here):
            continue
        validation.only(group, here, "label options")
        validation.required_text(group, "label", here, 75)
        if validation.need(group, here, "options"):
            check_options(validation, group["options"], f"{here}/options", low=low)


def check_options_or_groups(validation: Validation, element: Mapping[str, Any], at: str) -> None:
    both = [name for name in ("options", "option_groups") if element.get(name) is not None]
    if len(both) != 1:
        validation.add(at, "must define either `options` or `option_groups`, but not both")
    if "options" in both:
        check_options(validation, element["options"], f"{at}/options")
    if "option_groups" in both:
        check_option_groups(validation, element["option_groups"], f"{at}/option_groups")


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list that may be malformed; other problems are reported elsewhere."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _values(options: Any) -> list[Any]:
    return [option.get("value") for option in _mappings(options)]


def check_initial_options(validation: Validation, element: Mapping[str, Any], at: str) -> None:
    """Initial options must be among the options."""
    groups = _mappings(element.get("option_groups"))
    offered = _values(element.get("options")) + [value for group in groups for value in _values(group.get("options"))]
    first = element.get("initial_option")
    if isinstance(first, Mapping) and first.get("value") not in offered:
        validation.add(f"{at}/initial_option", "must match exactly with one of the options")
    for n, value in enumerate(_values(element.get("initial_options"))):
        if value not in offered:
            validation.add(f"{at}/initial_options/{n}", "must match exactly with one of the options")


def check_confirm(validation: Validation, element: Mapping[str, Any], at: str) -> None:
    dialog = element.get("confirm")
    if dialog is None:
        return
    here = f"{at}/confirm"
    if not validation.mapping(dialog, here):
        return
    validation.only(dialog, here, "title text confirm deny style")
    validation.required_text(dialog, "title", here, 100)
    validation.required_text(dialog, "text", here, 300, ANY_TEXT)
    validation.optional_text(dialog, "confirm", here, 30)
    validation.optional_text(dialog, "deny", here, 30)
    check_style(validation, dialog, here)


def check_style(validation: Validation, thing: Mapping[str, Any], at: str) -> None:
    if thing.get("style") not in (None, "primary", "danger"):
        validation.add(f"{at}/style", "must be one of: primary, danger")


def check_dispatch_config(validation: Validation, element: Mapping[str, Any], at: str) -> None:
    config = element.get("dispatch_action_config")
    if config is None or not validation.mapping(config, f"{at}/dispatch_action_config"):
        return
    here = f"{at}/dispatch_action_config/trigger_actions_on"
    for n, when in enumerate(validation.items(config.get("trigger_actions_on"), here, 1, 2)):
        if when not in ("on_enter_pressed", "on_character_entered"):
            validation.add(f"{here}/{n}", "must be one of: on_enter_pressed, on_character_entered")


def check_image(validation: Validation, e: Mapping[str, Any], at: str) -> None:
    if (e.get("image_url") is None) == (e.get("slack_file") is None):
        validation.add(at, "must define either `image_url` or `slack_file`, but not both")
    validation.url(e, "image_url", at)
    if validation.need(e, at, "alt_text"):
        validation.string(e, "alt_text", at, 2000)
