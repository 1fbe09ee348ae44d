"""Validation of payloads: each of Slack's limits, at the limit and one beyond."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack_emulator.limits import ELEMENTS, Surface, blocks_size, problems

Json = dict[str, Any]


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def option(n: int = 0, text: str = "An option", value: str | None = None) -> Json:
    return {"text": plain(text), "value": f"v{n}" if value is None else value}


def options(count: int) -> list[Json]:
    return [option(n) for n in range(count)]


def section(text: str = "Hello", **more: Any) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def button(n: int = 0, **more: Any) -> Json:
    return {"type": "button", "action_id": f"a{n}", "text": plain("Press"), **more}


def actions(*elements: Json, **more: Any) -> Json:
    return {"type": "actions", "elements": list(elements), **more}


def field(element: Json, **more: Any) -> Json:
    return {"type": "input", "label": plain("A field"), "element": element, **more}


def text_input(**more: Any) -> Json:
    return {"type": "plain_text_input", "action_id": "text", **more}


def select(**more: Any) -> Json:
    return {"type": "static_select", "action_id": "menu", "options": options(2), **more}


def confirm(**more: Any) -> Json:
    dialog = {"title": plain("Sure?"), "text": plain("Really?"), "confirm": plain("Yes"), "deny": plain("No")}
    return {**dialog, **more}


def message(*blocks: Json, **more: Any) -> Json:
    return {"text": "Hello", "blocks": list(blocks), **more}


def modal(*blocks: Json, **more: Any) -> Json:
    view = {"type": "modal", "title": plain("Title"), "submit": plain("Save"), "callback_id": "form"}
    return {**view, "blocks": list(blocks), **more}


def home(*blocks: Json, **more: Any) -> Json:
    return {"type": "home", "blocks": list(blocks), **more}


def x(count: int) -> str:
    return "x" * count


LESS = "must be less than {} characters [json-pointer:{}]"
ITEMS = "no more than {} items allowed [json-pointer:{}]"

EDGES: list[tuple[str, Surface, Any, int, str]] = [
    ("blocks of a message", "message", lambda n: message(*[section()] * n), 50, ITEMS.format(50, "/blocks")),
    ("blocks of a modal", "modal", lambda n: modal(*[section()] * n), 100, ITEMS.format(100, "/view/blocks")),
    ("blocks of a home", "home", lambda n: home(*[section()] * n), 100, ITEMS.format(100, "/view/blocks")),
    ("text of a message", "message", lambda n: {"text": x(n)}, 40_000, LESS.format(40_001, "/text")),
    ("section", "message", lambda n: message(section(x(n))), 3000, LESS.format(3001, "/blocks/0/text/text")),
    (
        "field",
        "message",
        lambda n: message({"type": "section", "fields": [plain(x(n))]}),
        2000,
        LESS.format(2001, "/blocks/0/fields/0/text"),
    ),
    (
        "fields",
        "message",
        lambda n: message({"type": "section", "fields": [plain("x")] * n}),
        10,
        ITEMS.format(10, "/blocks/0/fields"),
    ),
    (
        "header",
        "message",
        lambda n: message({"type": "header", "text": plain(x(n))}),
        150,
        LESS.format(151, "/blocks/0/text/text"),
    ),
    (
        "context",
        "message",
        lambda n: message({"type": "context", "elements": [plain("x")] * n}),
        10,
        ITEMS.format(10, "/blocks/0/elements"),
    ),
    (
        "actions",
        "message",
        lambda n: message(actions(*[button(i) for i in range(n)])),
        25,
        ITEMS.format(25, "/blocks/0/elements"),
    ),
    (
        "button text",
        "message",
        lambda n: message(actions(button(text=plain(x(n))))),
        75,
        LESS.format(76, "/blocks/0/elements/0/text/text"),
    ),
    (
        "button value",
        "message",
        lambda n: message(actions(button(value=x(n)))),
        2000,
        LESS.format(2001, "/blocks/0/elements/0/value"),
    ),
    (
        "option text",
        "message",
        lambda n: message(actions(select(options=[option(text=x(n))]))),
        75,
        LESS.format(76, "/blocks/0/elements/0/options/0/text/text"),
    ),
    (
        "option value",
        "message",
        lambda n: message(actions(select(options=[option(value=x(n))]))),
        150,
        LESS.format(151, "/blocks/0/elements/0/options/0/value"),
    ),
    (
        "options",
        "message",
        lambda n: message(actions(select(options=options(n)))),
        100,
        ITEMS.format(100, "/blocks/0/elements/0/options"),
    ),
    (
        "overflow",
        "message",
        lambda n: message(actions({"type": "overflow", "action_id": "more", "options": options(n)})),
        5,
        ITEMS.format(5, "/blocks/0/elements/0/options"),
    ),
    (
        "radio buttons",
        "modal",
        lambda n: modal(field({"type": "radio_buttons", "action_id": "one", "options": options(n)})),
        10,
        ITEMS.format(10, "/view/blocks/0/element/options"),
    ),
    (
        "check boxes",
        "modal",
        lambda n: modal(field({"type": "checkboxes", "action_id": "some", "options": options(n)})),
        10,
        ITEMS.format(10, "/view/blocks/0/element/options"),
    ),
    (
        "confirm title",
        "message",
        lambda n: message(actions(button(confirm=confirm(title=plain(x(n)))))),
        100,
        LESS.format(101, "/blocks/0/elements/0/confirm/title/text"),
    ),
    (
        "confirm text",
        "message",
        lambda n: message(actions(button(confirm=confirm(text=plain(x(n)))))),
        300,
        LESS.format(301, "/blocks/0/elements/0/confirm/text/text"),
    ),
    (
        "confirm button",
        "message",
        lambda n: message(actions(button(confirm=confirm(confirm=plain(x(n)))))),
        30,
        LESS.format(31, "/blocks/0/elements/0/confirm/confirm/text"),
    ),
    ("modal title", "modal", lambda n: modal(title=plain(x(n))), 24, LESS.format(25, "/view/title/text")),
    ("modal submit", "modal", lambda n: modal(submit=plain(x(n))), 24, LESS.format(25, "/view/submit/text")),
    ("modal close", "modal", lambda n: modal(close=plain(x(n))), 24, LESS.format(25, "/view/close/text")),
    (
        "private metadata",
        "modal",
        lambda n: modal(private_metadata=x(n)),
        3000,
        LESS.format(3001, "/view/private_metadata"),
    ),
    ("callback id", "modal", lambda n: modal(callback_id=x(n)), 255, LESS.format(256, "/view/callback_id")),
    (
        "action id",
        "message",
        lambda n: message(actions({**button(), "action_id": x(n)})),
        255,
        LESS.format(256, "/blocks/0/elements/0/action_id"),
    ),
    ("block id", "message", lambda n: message(section(block_id=x(n))), 255, LESS.format(256, "/blocks/0/block_id")),
    (
        "placeholder",
        "modal",
        lambda n: modal(field(text_input(placeholder=plain(x(n))))),
        150,
        LESS.format(151, "/view/blocks/0/element/placeholder/text"),
    ),
    ("suggested options", "options", lambda n: {"options": options(n)}, 100, ITEMS.format(100, "/options")),
    (
        "suggested option value",
        "options",
        lambda n: {"option_groups": [{"label": plain("Can run"), "options": [option(value=x(n))]}]},
        150,
        LESS.format(151, "/option_groups/0/options/0/value"),
    ),
]


@pytest.mark.parametrize(("surface", "make", "limit", "problem"), [e[1:] for e in EDGES], ids=[e[0] for e in EDGES])
def test_a_payload_at_the_limit_passes_and_one_beyond_is_named(
    surface: Surface, make: Any, limit: int, problem: str
) -> None:
    assert problems(surface, make(limit)) == []
    assert problems(surface, make(limit + 1)) == [problem]


NUMBER: Json = {"type": "number_input", "action_id": "n", "is_decimal_allowed": False}
REFUSED: list[tuple[str, Surface, Json, str]] = [
    (
        "an empty text",
        "message",
        message(section("")),
        "must be more than 0 characters [json-pointer:/blocks/0/text/text]",
    ),
    (
        "an unknown block",
        "message",
        message({"type": "carousel"}),
        "unsupported type: carousel [json-pointer:/blocks/0/type]",
    ),
    (
        "an unknown element",
        "message",
        message(actions({"type": "slider", "action_id": "a"})),
        "unsupported type: slider [json-pointer:/blocks/0/elements/0/type]",
    ),
    (
        "an element in the wrong block",
        "message",
        message(actions({"type": "image", "image_url": "https://example.org/a.png", "alt_text": "a"})),
        "unsupported type: image [json-pointer:/blocks/0/elements/0/type]",
    ),
    (
        "an element on the wrong surface",
        "message",
        message(field({"type": "number_input", "action_id": "n", "is_decimal_allowed": False})),
        "unsupported type: number_input [json-pointer:/blocks/0/element/type]",
    ),
    (
        "a text field where a text object belongs",
        "message",
        message({"type": "header", "text": "Hello"}),
        "must provide an object [json-pointer:/blocks/0/text]",
    ),
    (
        "markdown in a header",
        "message",
        message({"type": "header", "text": {"type": "mrkdwn", "text": "x"}}),
        "must be one of: plain_text [json-pointer:/blocks/0/text/type]",
    ),
    (
        "a property that isn't there",
        "message",
        message(section(colour="red")),
        "invalid additional property: colour [json-pointer:/blocks/0]",
    ),
    (
        "a section of nothing",
        "message",
        message({"type": "section"}),
        "must define either `text` or `fields` [json-pointer:/blocks/0]",
    ),
    (
        "the same action twice",
        "message",
        message(actions(button(1), button(1))),
        '`action_id` "a1" already exists [json-pointer:/blocks/0/elements/1/action_id]',
    ),
    (
        "the same action in two blocks",
        "message",
        message(actions(button(1)), section(accessory=button(1))),
        '`action_id` "a1" already exists [json-pointer:/blocks/1/accessory/action_id]',
    ),
    (
        "the same block twice",
        "message",
        message(section(block_id="b"), attachments=[{"blocks": [section(block_id="b")]}]),
        '`block_id` "b" already exists [json-pointer:/attachments/0/blocks/0/block_id]',
    ),
    (
        "an input without submit",
        "modal",
        {key: value for key, value in modal(field(text_input())).items() if key != "submit"},
        "must define `submit` to use an `input` block in modals [json-pointer:/view/blocks/0/input]",
    ),
    (
        "a modal without title",
        "modal",
        {"type": "modal", "blocks": []},
        "missing required field: title [json-pointer:/view]",
    ),
    (
        "a menu of nothing",
        "message",
        message(actions(select(options=[]))),
        "must provide at least 1 items [json-pointer:/blocks/0/elements/0/options]",
    ),
    (
        "both kinds of options",
        "message",
        message(actions(select(option_groups=[{"label": plain("x"), "options": options(1)}]))),
        "must define either `options` or `option_groups`, but not both [json-pointer:/blocks/0/elements/0]",
    ),
    (
        "a first choice that isn't offered",
        "message",
        message(actions(select(initial_option=option(9)))),
        "must match exactly with one of the options [json-pointer:/blocks/0/elements/0/initial_option]",
    ),
    (
        "a style that isn't there",
        "message",
        message(actions(button(style="green"))),
        "must be one of: primary, danger [json-pointer:/blocks/0/elements/0/style]",
    ),
    (
        "a picture without words",
        "message",
        message({"type": "image", "image_url": "https://example.org/a.png"}),
        "missing required field: alt_text [json-pointer:/blocks/0]",
    ),
    (
        "two that want the focus",
        "modal",
        modal(
            field(text_input(focus_on_load=True)),
            field({"type": "plain_text_input", "action_id": "other", "focus_on_load": True}),
        ),
        "only one element can have `focus_on_load` set to true [json-pointer:/view/blocks/1/element/focus_on_load]",
    ),
    (
        "a table in a modal",
        "modal",
        modal({"type": "table", "rows": []}),
        "unsupported type: table [json-pointer:/view/blocks/0/type]",
    ),
    (
        "blocks that aren't a list",
        "message",
        {"blocks": {"type": "section"}},
        "must provide an array [json-pointer:/blocks]",
    ),
    ("a block that isn't an object", "message", {"blocks": ["x"]}, "must provide an object [json-pointer:/blocks/0]"),
    (
        "an id of a view in a request",
        "modal",
        modal(id="V1"),
        "invalid additional property: id [json-pointer:/view]",
    ),
    (
        "a number that isn't one",
        "modal",
        modal(field({**NUMBER, "initial_value": "1e3"})),
        "must be a valid number [json-pointer:/view/blocks/0/element/initial_value]",
    ),
    (
        "a minimum above the maximum",
        "modal",
        modal(field({**NUMBER, "min_value": "2", "max_value": "1"})),
        "cannot be greater than max_value [json-pointer:/view/blocks/0/element/min_value]",
    ),
    (
        "a number above its maximum",
        "modal",
        modal(field({**NUMBER, "initial_value": "2", "max_value": "1"})),
        "cannot be greater than max_value [json-pointer:/view/blocks/0/element/initial_value]",
    ),
    (
        "a day that isn't one",
        "modal",
        modal(field({"type": "datepicker", "action_id": "d", "initial_date": "2025-02-30"})),
        "must be a date in the format YYYY-MM-DD [json-pointer:/view/blocks/0/element/initial_date]",
    ),
    (
        "a login in place of a user",
        "modal",
        modal(field({"type": "users_select", "action_id": "u", "initial_user": "ben@x"})),
        "must be a valid user id [json-pointer:/view/blocks/0/element/initial_user]",
    ),
    (
        "more chosen than may be",
        "modal",
        modal(field(select(type="multi_static_select", initial_options=options(2), max_selected_items=1))),
        "no more than 1 items allowed [json-pointer:/view/blocks/0/element/initial_options]",
    ),
    (
        "a text that is longer than it may be",
        "modal",
        modal(field(text_input(initial_value="xx", max_length=1))),
        "must be less than 2 characters [json-pointer:/view/blocks/0/element/initial_value]",
    ),
]


@pytest.mark.parametrize(("surface", "payload", "problem"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_slack_refuses_is_named(surface: Surface, payload: Json, problem: str) -> None:
    before = copy.deepcopy(payload)
    assert problems(surface, payload) == [problem]
    assert payload == before


def test_a_modal_with_every_element_passes() -> None:
    picked = {"type": "conversations_select", "action_id": "c", "default_to_current_conversation": True}
    elements = [
        text_input(multiline=True, min_length=1, max_length=3000, initial_value="x"),
        {"type": "number_input", "action_id": "n", "is_decimal_allowed": False, "min_value": "0"},
        {"type": "email_text_input", "action_id": "e"},
        {"type": "url_text_input", "action_id": "u"},
        {"type": "datepicker", "action_id": "d", "initial_date": "2025-12-31"},
        {"type": "timepicker", "action_id": "t", "initial_time": "23:59"},
        {"type": "datetimepicker", "action_id": "dt", "initial_date_time": 1_700_000_000},
        {"type": "checkboxes", "action_id": "cb", "options": options(2), "initial_options": [option(1)]},
        {"type": "radio_buttons", "action_id": "r", "options": options(2), "initial_option": option(1)},
        select(),
        {"type": "external_select", "action_id": "x", "min_query_length": 0, "placeholder": plain("Pick")},
        {"type": "multi_static_select", "action_id": "ms", "options": options(2), "max_selected_items": 1},
        {"type": "multi_external_select", "action_id": "mx", "min_query_length": 0},
        {"type": "users_select", "action_id": "us", "initial_user": "U1"},
        {"type": "multi_users_select", "action_id": "mu", "initial_users": ["U1"]},
        {**picked, "response_url_enabled": True},
        {"type": "channels_select", "action_id": "ch"},
        {"type": "rich_text_input", "action_id": "rt"},
        {"type": "file_input", "action_id": "f", "max_files": 1},
    ]
    blocks = [field(element, dispatch_action=True, optional=True, hint=plain("Hint")) for element in elements]
    assert problems("modal", modal(*blocks, {"type": "divider"}, section(accessory=button(1)))) == []


def anywhere(thing: Any) -> list[tuple[Any, Any]]:
    """Each (container, key) inside a JSON value."""
    keys = list(thing) if isinstance(thing, dict) else list(range(len(thing))) if isinstance(thing, list) else []
    return [pair for key in keys for pair in [(thing, key), *anywhere(thing[key])]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(list(ELEMENTS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "value"]), inner),
    max_leaves=5,
)


@given(data=st.data(), other=JSON)
def test_nothing_that_an_app_sends_breaks_the_checker(data: st.DataObject, other: Any) -> None:
    menus = [select(confirm=confirm()), button(1), {"type": "overflow", "action_id": "o", "options": options(2)}]
    card = message(section("Hi", fields=[plain("x")]), actions(*menus), {"type": "header", "text": plain("x")})
    payload = {**modal(field(text_input(placeholder=plain("x")))), **card}
    container, key = data.draw(st.sampled_from(anywhere(payload)))
    container[key] = other
    for surface in SURFACES:
        assert all(problem.endswith("]") for problem in problems(surface, payload))


@pytest.mark.parametrize("wrong", [True, 3, {"value": "v0"}, "options"])
def test_options_that_are_no_list_are_told_and_break_nothing(wrong: Any) -> None:
    for name in ("options", "option_groups", "initial_options"):
        menu = {**select(initial_option=options(1)[0]), "options": None, name: wrong}
        assert problems("message", message(actions(menu)))
    inner = select(options=None, option_groups=[{"label": plain("x"), "options": wrong}], initial_option=options(1)[0])
    assert problems("message", message(actions(inner)))


def test_the_blocks_of_a_message_have_a_limit_together_also_in_attachments() -> None:
    beyond = "no more than 13000 characters of blocks allowed in a message [json-pointer:/blocks]"
    room = 13_000 - blocks_size(message(*[section(x(3000))] * 4, section("")))
    fits = [*[section(x(3000))] * 4, section(x(room))]
    assert (problems("message", message(*fits)), blocks_size(message(*fits))) == ([], 13_000)
    assert problems("message", message(*fits[:-1], section(x(room + 1)))) == [beyond]
    assert problems("message", {**message(fits[0]), "attachments": [{"blocks": [*fits[1:], section()]}]}) == [beyond]
    assert problems("message", message(*fits[:-1], section("ü" * room))) == []  # characters, not bytes
    assert problems("home", home(*fits, *fits)) == []


SURFACES: tuple[Surface, ...] = ("message", "modal", "home", "options")


def test_a_card_with_a_colour_bar_passes() -> None:
    menu = {"type": "overflow", "action_id": "more", "options": options(2), "confirm": confirm(style="danger")}
    card = [section("*Alert*"), actions(button(1, style="primary", confirm=confirm()), menu)]
    assert problems("message", {"text": "Alert", "attachments": [{"color": "#d00", "blocks": card}]}) == []
