"""Validation of messages, modals, App Homes and options, with the limits of Slack's "Block Kit reference".

Pure. `problems(surface, payload)` lists each problem in Slack's wording with a JSON pointer, such as
`must be less than 3001 characters [json-pointer:/blocks/0/text/text]`; an empty list means that Slack accepts it.

To add a block or element, write one function and add one line to `BLOCKS` or `ELEMENTS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Surface = Literal["message", "modal", "home", "options"]

BLOCKS_IN_MESSAGE = 50
BLOCKS_IN_VIEW = 100
TEXT_OF_MESSAGE = 40_000
ID_LENGTH = 255
PLAIN = ("plain_text",)
ANY_TEXT = ("plain_text", "mrkdwn")


def problems(surface: Surface, payload: Mapping[str, Any]) -> list[str]:
    """Problems for which Slack would reject a payload.

    `payload` is a message (`text`, `blocks`, `attachments`), a view, or the response to a block_suggestion.
    """
    check = _Check(surface)
    _SURFACES[surface](check, payload)
    return check.found


@dataclass
class _Check:
    """Collects the problems and the ids of one payload."""

    surface: Surface
    found: list[str] = field(default_factory=list)
    block_ids: set[str] = field(default_factory=set)
    action_ids: set[str] = field(default_factory=set)
    focused: bool = False

    def add(self, at: str, problem: str) -> None:
        self.found.append(f"{problem} [json-pointer:{at}]")

    def mapping(self, value: Any, at: str) -> bool:
        if not isinstance(value, Mapping):
            self.add(at, "must provide an object")
            return False
        return True

    def need(self, thing: Mapping[str, Any], at: str, *names: str) -> bool:
        missing = [name for name in names if thing.get(name) is None]
        for name in missing:
            self.add(at, f"missing required field: {name}")
        return not missing

    def only(self, thing: Mapping[str, Any], at: str, names: str) -> None:
        for name in sorted(set(thing) - set(names.split()) - {"type"}):
            self.add(at, f"invalid additional property: {name}")

    def items(self, value: Any, at: str, low: int, high: int) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            self.add(at, "must provide an array")
            return ()
        if len(value) < low:
            self.add(at, f"must provide at least {low} items")
        if len(value) > high:
            self.add(at, f"no more than {high} items allowed")
        return value

    def string(self, thing: Mapping[str, Any], name: str, at: str, high: int, low: int = 0) -> None:
        value = thing.get(name)
        if value is None:
            return
        here = f"{at}/{name}"
        if not isinstance(value, str):
            self.add(here, "must be a string")
        elif len(value) < low:
            self.add(here, f"must be more than {low - 1} characters")
        elif len(value) > high:
            self.add(here, f"must be less than {high + 1} characters")

    def flag(self, thing: Mapping[str, Any], at: str, *names: str) -> None:
        for name in names:
            if name in thing and not isinstance(thing[name], bool):
                self.add(f"{at}/{name}", "must be a boolean")

    def url(self, thing: Mapping[str, Any], name: str, at: str, high: int = 3000) -> None:
        self.string(thing, name, at, high, low=1)
        value = thing.get(name)
        if isinstance(value, str) and value and "://" not in value and not value.startswith("mailto:"):
            self.add(f"{at}/{name}", "must be a valid URL")

    def text(self, value: Any, at: str, high: int, kinds: Sequence[str] = ANY_TEXT, low: int = 1) -> None:
        """Check a text object; `kinds` are the types allowed."""
        if not self.mapping(value, at):
            return
        kind = value.get("type")
        if kind not in kinds:
            self.add(f"{at}/type", f"must be one of: {', '.join(kinds)}")
            return
        self.only(value, at, "text emoji" if kind == "plain_text" else "text verbatim")
        self.flag(value, at, "emoji", "verbatim")
        if self.need(value, at, "text"):
            self.string(value, "text", at, high, low)

    def optional_text(
        self, thing: Mapping[str, Any], name: str, at: str, high: int, kinds: Sequence[str] = PLAIN
    ) -> None:
        if thing.get(name) is not None:
            self.text(thing[name], f"{at}/{name}", high, kinds)

    def required_text(
        self, thing: Mapping[str, Any], name: str, at: str, high: int, kinds: Sequence[str] = PLAIN
    ) -> None:
        if self.need(thing, at, name):
            self.text(thing[name], f"{at}/{name}", high, kinds)

    def unique(self, thing: Mapping[str, Any], name: str, at: str, seen: set[str]) -> None:
        self.string(thing, name, at, ID_LENGTH, low=1)
        value = thing.get(name)
        if not isinstance(value, str):
            return
        if value in seen:
            self.add(f"{at}/{name}", f'`{name}` "{value}" already exists')
        seen.add(value)


# composition objects


def _option(check: _Check, option: Any, at: str, texts: Sequence[str], *, url: bool) -> None:
    if not check.mapping(option, at):
        return
    check.only(option, at, "text value description url" if url else "text value description")
    check.required_text(option, "text", at, 75, texts)
    if url:
        check.url(option, "url", at)
    if check.need(option, at, "value"):
        check.string(option, "value", at, 150, low=0 if url else 1)
    check.optional_text(option, "description", at, 75, texts)


def _options(
    check: _Check,
    value: Any,
    at: str,
    *,
    high: int = 100,
    low: int = 1,
    texts: Sequence[str] = PLAIN,
    url: bool = False,
) -> None:
    for n, option in enumerate(check.items(value, at, low, high)):
        _option(check, option, f"{at}/{n}", texts, url=url)


def _option_groups(check: _Check, value: Any, at: str, low: int = 1) -> None:
    for n, group in enumerate(check.items(value, at, low, 100)):
        here = f"{at}/{n}"
        if not check.mapping(group, here):
            continue
        check.only(group, here, "label options")
        check.required_text(group, "label", here, 75)
        if check.need(group, here, "options"):
            _options(check, group["options"], f"{here}/options", low=low)


def _options_or_groups(check: _Check, element: Mapping[str, Any], at: str) -> None:
    both = [name for name in ("options", "option_groups") if element.get(name) is not None]
    if len(both) != 1:
        check.add(at, "must define either `options` or `option_groups`, but not both")
    if "options" in both:
        _options(check, element["options"], f"{at}/options")
    if "option_groups" in both:
        _option_groups(check, element["option_groups"], f"{at}/option_groups")


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list that may be malformed; other problems are reported elsewhere."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _values(options: Any) -> list[Any]:
    return [option.get("value") for option in _mappings(options)]


def _offered(element: Mapping[str, Any]) -> list[Any]:
    inner = [value for group in _mappings(element.get("option_groups")) for value in _values(group.get("options"))]
    return _values(element.get("options")) + inner


def _initial_among(check: _Check, element: Mapping[str, Any], at: str) -> None:
    """Initial options must be among the options."""
    offered = _offered(element)
    first = element.get("initial_option")
    if isinstance(first, Mapping) and first.get("value") not in offered:
        check.add(f"{at}/initial_option", "must match exactly with one of the options")
    for n, value in enumerate(_values(element.get("initial_options"))):
        if value not in offered:
            check.add(f"{at}/initial_options/{n}", "must match exactly with one of the options")


def _confirm(check: _Check, element: Mapping[str, Any], at: str) -> None:
    dialog = element.get("confirm")
    if dialog is None:
        return
    here = f"{at}/confirm"
    if not check.mapping(dialog, here):
        return
    check.only(dialog, here, "title text confirm deny style")
    check.required_text(dialog, "title", here, 100)
    check.required_text(dialog, "text", here, 300, ANY_TEXT)
    check.optional_text(dialog, "confirm", here, 30)
    check.optional_text(dialog, "deny", here, 30)
    _style(check, dialog, here)


def _style(check: _Check, thing: Mapping[str, Any], at: str) -> None:
    if thing.get("style") not in (None, "primary", "danger"):
        check.add(f"{at}/style", "must be one of: primary, danger")


def _dispatch_config(check: _Check, element: Mapping[str, Any], at: str) -> None:
    config = element.get("dispatch_action_config")
    if config is None or not check.mapping(config, f"{at}/dispatch_action_config"):
        return
    here = f"{at}/dispatch_action_config/trigger_actions_on"
    for n, when in enumerate(check.items(config.get("trigger_actions_on"), here, 1, 2)):
        if when not in ("on_enter_pressed", "on_character_entered"):
            check.add(f"{here}/{n}", "must be one of: on_enter_pressed, on_character_entered")


# elements


def _button(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "text action_id url value style confirm accessibility_label")
    check.required_text(e, "text", at, 75)
    check.string(e, "value", at, 2000)
    if e.get("url") is not None:
        check.url(e, "url", at)
    check.string(e, "accessibility_label", at, 75)
    _style(check, e, at)


def _checkboxes_or_radio_buttons(check: _Check, e: Mapping[str, Any], at: str) -> None:
    initial = "initial_options" if e["type"] == "checkboxes" else "initial_option"
    check.only(e, at, f"action_id options {initial} confirm focus_on_load")
    if check.need(e, at, "options"):
        _options(check, e["options"], f"{at}/options", high=10, texts=ANY_TEXT)
    _initial_among(check, e, at)


def _overflow(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id options confirm")
    if check.need(e, at, "options"):
        _options(check, e["options"], f"{at}/options", high=5, url=True)


SELECT_KEYS = "action_id placeholder confirm focus_on_load"


def _static_select(check: _Check, e: Mapping[str, Any], at: str) -> None:
    multi = e["type"].startswith("multi_")
    own = "initial_options max_selected_items" if multi else "initial_option"
    check.only(e, at, f"{SELECT_KEYS} options option_groups {own}")
    _options_or_groups(check, e, at)
    _initial_among(check, e, at)
    _max_selected_items(check, e, at)


def _external_select(check: _Check, e: Mapping[str, Any], at: str) -> None:
    multi = e["type"].startswith("multi_")
    own = "initial_options max_selected_items" if multi else "initial_option"
    check.only(e, at, f"{SELECT_KEYS} min_query_length {own}")
    _integer(check, e, "min_query_length", at, 0)
    if e.get("initial_option") is not None:
        _option(check, e["initial_option"], f"{at}/initial_option", PLAIN, url=False)
    if e.get("initial_options") is not None:
        _options(check, e["initial_options"], f"{at}/initial_options")
    _max_selected_items(check, e, at)


def _entity_select(check: _Check, e: Mapping[str, Any], at: str) -> None:
    what = e["type"].removeprefix("multi_").removesuffix("_select")
    multi = e["type"].startswith("multi_")
    own = f"initial_{what} max_selected_items" if multi else f"initial_{what.removesuffix('s')}"
    if what == "conversations":
        own += " default_to_current_conversation filter"
    if what != "users" and not multi:
        own += " response_url_enabled"
    check.only(e, at, f"{SELECT_KEYS} {own}")
    _max_selected_items(check, e, at)


def _max_selected_items(check: _Check, e: Mapping[str, Any], at: str) -> None:
    _integer(check, e, "max_selected_items", at, 1)


def _integer(check: _Check, e: Mapping[str, Any], name: str, at: str, low: int, high: int | None = None) -> None:
    value = e.get(name)
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        check.add(f"{at}/{name}", "must be an integer")
    elif value < low:
        check.add(f"{at}/{name}", f"must be greater than or equal to {low}")
    elif high is not None and value > high:
        check.add(f"{at}/{name}", f"must be less than or equal to {high}")


def _text_input(check: _Check, e: Mapping[str, Any], at: str) -> None:
    own = "multiline min_length max_length" if e["type"] == "plain_text_input" else ""
    check.only(e, at, f"action_id placeholder initial_value dispatch_action_config focus_on_load {own}")
    check.flag(e, at, "multiline")
    check.string(e, "initial_value", at, 3000)
    _integer(check, e, "min_length", at, 0, 3000)
    _integer(check, e, "max_length", at, 1, 3000)
    _dispatch_config(check, e, at)


def _number_input(check: _Check, e: Mapping[str, Any], at: str) -> None:
    own = "is_decimal_allowed initial_value min_value max_value dispatch_action_config focus_on_load"
    check.only(e, at, f"action_id placeholder {own}")
    check.need(e, at, "is_decimal_allowed")
    check.flag(e, at, "is_decimal_allowed")
    for name in ("initial_value", "min_value", "max_value"):
        check.string(e, name, at, 3000)
    _dispatch_config(check, e, at)


def _rich_text_input(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id placeholder initial_value dispatch_action_config focus_on_load")
    _dispatch_config(check, e, at)


def _file_input(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id filetypes max_files")
    _integer(check, e, "max_files", at, 1, 10)


def _date(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id placeholder confirm focus_on_load initial_date")
    check.string(e, "initial_date", at, 10, low=10)


def _time(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id placeholder confirm focus_on_load initial_time timezone")
    check.string(e, "initial_time", at, 5, low=5)


def _date_time(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "action_id confirm focus_on_load initial_date_time")
    _integer(check, e, "initial_date_time", at, 1_000_000_000, 9_999_999_999)


def _image_element(check: _Check, e: Mapping[str, Any], at: str) -> None:
    check.only(e, at, "image_url slack_file alt_text")
    _image_fields(check, e, at)


def _image_fields(check: _Check, e: Mapping[str, Any], at: str) -> None:
    if (e.get("image_url") is None) == (e.get("slack_file") is None):
        check.add(at, "must define either `image_url` or `slack_file`, but not both")
    check.url(e, "image_url", at)
    if check.need(e, at, "alt_text"):
        check.string(e, "alt_text", at, 2000)


Rule = Callable[[_Check, Mapping[str, Any], str], None]

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


def _element(check: _Check, element: Any, at: str, block: str) -> None:
    if not check.mapping(element, at):
        return
    kind = str(element.get("type"))
    rule, blocks, surfaces = ELEMENTS.get(kind, (None, "", ""))
    if rule is None or block not in blocks.split() or check.surface not in surfaces.split():
        check.add(f"{at}/type", f"unsupported type: {kind}")
        return
    if kind != "image":
        check.unique(element, "action_id", at, check.action_ids)
        check.optional_text(element, "placeholder", at, 150)
        _confirm(check, element, at)
        _focus(check, element, at)
    rule(check, element, at)


def _focus(check: _Check, element: Mapping[str, Any], at: str) -> None:
    check.flag(element, at, "focus_on_load")
    if element.get("focus_on_load") is True:
        if check.focused:
            check.add(f"{at}/focus_on_load", "only one element can have `focus_on_load` set to true")
        check.focused = True


# blocks


def _section(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text fields accessory expand")
    if b.get("text") is None and b.get("fields") is None:
        check.add(at, "must define either `text` or `fields`")
    if b.get("text") is not None:
        check.text(b["text"], f"{at}/text", 3000)
    if b.get("fields") is not None:
        for n, text in enumerate(check.items(b["fields"], f"{at}/fields", 1, 10)):
            check.text(text, f"{at}/fields/{n}", 2000)
    if b.get("accessory") is not None:
        _element(check, b["accessory"], f"{at}/accessory", "section")


def _divider(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id")


def _header(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text level")
    check.required_text(b, "text", at, 150)


def _image(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id image_url slack_file alt_text title")
    _image_fields(check, b, at)
    check.optional_text(b, "title", at, 2000)


def _context(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, element in enumerate(check.items(b["elements"], f"{at}/elements", 1, 10)):
        here = f"{at}/elements/{n}"
        if isinstance(element, Mapping) and element.get("type") in ANY_TEXT:
            check.text(element, here, 3000)
        else:
            _element(check, element, here, "context")


def _actions(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, element in enumerate(check.items(b["elements"], f"{at}/elements", 1, 25)):
        _element(check, element, f"{at}/elements/{n}", "actions")


def _input(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id label element dispatch_action hint optional")
    check.required_text(b, "label", at, 2000)
    check.optional_text(b, "hint", at, 2000)
    check.flag(b, at, "dispatch_action", "optional")
    if check.need(b, at, "element"):
        _element(check, b["element"], f"{at}/element", "input")


RICH_TEXT_ELEMENTS = ("rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote")


def _rich_text(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, part in enumerate(check.items(b["elements"], f"{at}/elements", 0, 1000)):
        here = f"{at}/elements/{n}"
        if not check.mapping(part, here):
            continue
        if part.get("type") not in RICH_TEXT_ELEMENTS:
            check.add(f"{here}/type", f"unsupported type: {part.get('type')}")
        check.need(part, here, "elements")


def _video(check: _Check, b: Mapping[str, Any], at: str) -> None:
    names = "title title_url description video_url alt_text thumbnail_url author_name provider_name"
    check.only(b, at, f"block_id {names} provider_icon_url")
    if check.need(b, at, "alt_text", "title", "thumbnail_url", "video_url"):
        check.text(b["title"], f"{at}/title", 200, PLAIN)
    check.optional_text(b, "description", at, 200)
    check.string(b, "author_name", at, 50)
    for name in ("title_url", "video_url", "thumbnail_url", "provider_icon_url"):
        check.url(b, name, at)


def _markdown(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text")
    if check.need(b, at, "text"):
        check.string(b, "text", at, 12_000, low=1)


def _table(check: _Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id rows column_settings")
    if not check.need(b, at, "rows"):
        return
    for n, row in enumerate(check.items(b["rows"], f"{at}/rows", 1, 100)):
        for m, cell in enumerate(check.items(row, f"{at}/rows/{n}", 1, 20)):
            _cell(check, cell, f"{at}/rows/{n}/{m}")


def _cell(check: _Check, cell: Any, at: str) -> None:
    if not check.mapping(cell, at):
        return
    if cell.get("type") not in ("raw_text", "rich_text", "raw_number"):
        check.add(f"{at}/type", f"unsupported type: {cell.get('type')}")
    elif cell["type"] == "raw_text" and check.need(cell, at, "text"):
        check.string(cell, "text", at, 3000, low=1)


# block type -> (rule, surfaces)
BLOCKS: dict[str, tuple[Rule, str]] = {
    "section": (_section, "message modal home"),
    "divider": (_divider, "message modal home"),
    "header": (_header, "message modal home"),
    "image": (_image, "message modal home"),
    "context": (_context, "message modal home"),
    "actions": (_actions, "message modal home"),
    "input": (_input, "message modal home"),
    "rich_text": (_rich_text, "message modal home"),
    "video": (_video, "message modal home"),
    "markdown": (_markdown, "message"),
    "table": (_table, "message"),
}


def _blocks(check: _Check, value: Any, at: str, high: int) -> None:
    for n, block in enumerate(check.items(value, at, 0, high)):
        here = f"{at}/{n}"
        if not check.mapping(block, here):
            continue
        kind = str(block.get("type"))
        rule, surfaces = BLOCKS.get(kind, (None, ""))
        if rule is None or check.surface not in surfaces.split():
            check.add(f"{here}/type", f"unsupported type: {kind}")
            continue
        check.unique(block, "block_id", here, check.block_ids)
        rule(check, block, here)


# surfaces


def _message(check: _Check, message: Mapping[str, Any]) -> None:
    check.string(message, "text", "", TEXT_OF_MESSAGE)
    if message.get("blocks") is not None:
        _blocks(check, message["blocks"], "/blocks", BLOCKS_IN_MESSAGE)
    if message.get("attachments") is None:
        return
    for n, attachment in enumerate(check.items(message["attachments"], "/attachments", 0, 100)):
        here = f"/attachments/{n}"
        if check.mapping(attachment, here) and attachment.get("blocks") is not None:
            _blocks(check, attachment["blocks"], f"{here}/blocks", BLOCKS_IN_MESSAGE)


def _modal(check: _Check, view: Mapping[str, Any]) -> None:
    names = "title blocks close submit private_metadata callback_id clear_on_close notify_on_close"
    check.only(view, "/view", f"{names} external_id submit_disabled")
    check.required_text(view, "title", "/view", 24)
    check.optional_text(view, "close", "/view", 24)
    check.optional_text(view, "submit", "/view", 24)
    check.flag(view, "/view", "clear_on_close", "notify_on_close", "submit_disabled")
    _view(check, view, "modal")
    if view.get("submit") is not None or not isinstance(view.get("blocks"), list | tuple):
        return
    for n, block in enumerate(view["blocks"]):
        if isinstance(block, Mapping) and block.get("type") == "input":
            check.add(f"/view/blocks/{n}/input", "must define `submit` to use an `input` block in modals")


def _home(check: _Check, view: Mapping[str, Any]) -> None:
    check.only(view, "/view", "blocks private_metadata callback_id external_id")
    _view(check, view, "home")


def _view(check: _Check, view: Mapping[str, Any], kind: str) -> None:
    if view.get("type") != kind:
        check.add("/view/type", f"must be one of: {kind}")
    check.string(view, "private_metadata", "/view", 3000)
    check.string(view, "callback_id", "/view", ID_LENGTH)
    check.string(view, "external_id", "/view", ID_LENGTH)
    if check.need(view, "/view", "blocks"):
        _blocks(check, view["blocks"], "/view/blocks", BLOCKS_IN_VIEW)


def _suggestions(check: _Check, answer: Mapping[str, Any]) -> None:
    check.only(answer, "", "options option_groups")
    both = [name for name in ("options", "option_groups") if answer.get(name) is not None]
    if len(both) != 1:
        check.add("", "must define either `options` or `option_groups`, but not both")
    if "options" in both:
        _options(check, answer["options"], "/options", low=0)
    if "option_groups" in both:
        _option_groups(check, answer["option_groups"], "/option_groups", low=0)


_SURFACES: dict[str, Callable[[_Check, Mapping[str, Any]], None]] = {
    "message": _message,
    "modal": _modal,
    "home": _home,
    "options": _suggestions,
}
