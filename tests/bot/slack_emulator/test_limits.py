"""Validation of payloads: each of Slack's limits, at the limit and one beyond."""

import copy
from collections.abc import Callable
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


def menu_of(first: Json) -> Json:
    return message(actions(select(options=[first])))


def asking(**more: Any) -> Json:
    return message(actions(button(confirm=confirm(**more))))


def one_field(kind: str, **more: Any) -> Json:
    return modal(field({"type": kind, "action_id": "it", **more}))


ELEMENT, FIELD = "/blocks/0/elements/0", "/view/blocks/0/element"
Edge = tuple[str, Surface, Callable[[int], Json], int, str]
TEXTS: list[Edge] = [
    ("message", "message", lambda n: {"text": x(n)}, 40_000, "/text"),
    ("section", "message", lambda n: message(section(x(n))), 3000, "/blocks/0/text/text"),
    (
        "field",
        "message",
        lambda n: message({"type": "section", "fields": [plain(x(n))]}),
        2000,
        "/blocks/0/fields/0/text",
    ),
    ("header", "message", lambda n: message({"type": "header", "text": plain(x(n))}), 150, "/blocks/0/text/text"),
    ("button", "message", lambda n: message(actions(button(text=plain(x(n))))), 75, f"{ELEMENT}/text/text"),
    ("button value", "message", lambda n: message(actions(button(value=x(n)))), 2000, f"{ELEMENT}/value"),
    ("option", "message", lambda n: menu_of(option(text=x(n))), 75, f"{ELEMENT}/options/0/text/text"),
    ("option value", "message", lambda n: menu_of(option(value=x(n))), 150, f"{ELEMENT}/options/0/value"),
    ("confirm title", "message", lambda n: asking(title=plain(x(n))), 100, f"{ELEMENT}/confirm/title/text"),
    ("confirm text", "message", lambda n: asking(text=plain(x(n))), 300, f"{ELEMENT}/confirm/text/text"),
    ("confirm button", "message", lambda n: asking(confirm=plain(x(n))), 30, f"{ELEMENT}/confirm/confirm/text"),
    ("modal title", "modal", lambda n: modal(title=plain(x(n))), 24, "/view/title/text"),
    ("modal submit", "modal", lambda n: modal(submit=plain(x(n))), 24, "/view/submit/text"),
    ("modal close", "modal", lambda n: modal(close=plain(x(n))), 24, "/view/close/text"),
    ("private metadata", "modal", lambda n: modal(private_metadata=x(n)), 3000, "/view/private_metadata"),
    ("callback id", "modal", lambda n: modal(callback_id=x(n)), 255, "/view/callback_id"),
    ("action id", "message", lambda n: message(actions({**button(), "action_id": x(n)})), 255, f"{ELEMENT}/action_id"),
    ("block id", "message", lambda n: message(section(block_id=x(n))), 255, "/blocks/0/block_id"),
    (
        "placeholder",
        "modal",
        lambda n: modal(field(text_input(placeholder=plain(x(n))))),
        150,
        f"{FIELD}/placeholder/text",
    ),
    ("suggested value", "options", lambda n: suggested(option(value=x(n))), 150, "/option_groups/0/options/0/value"),
]
LISTS: list[Edge] = [
    ("blocks of a message", "message", lambda n: message(*[section()] * n), 50, "/blocks"),
    ("blocks of a modal", "modal", lambda n: modal(*[section()] * n), 100, "/view/blocks"),
    ("blocks of a home", "home", lambda n: home(*[section()] * n), 100, "/view/blocks"),
    ("fields", "message", lambda n: message({"type": "section", "fields": [plain("x")] * n}), 10, "/blocks/0/fields"),
    (
        "context",
        "message",
        lambda n: message({"type": "context", "elements": [plain("x")] * n}),
        10,
        "/blocks/0/elements",
    ),
    ("actions", "message", lambda n: message(actions(*[button(i) for i in range(n)])), 25, "/blocks/0/elements"),
    ("options", "message", lambda n: message(actions(select(options=options(n)))), 100, f"{ELEMENT}/options"),
    ("overflow", "message", lambda n: message(actions(overflow(options=options(n)))), 5, f"{ELEMENT}/options"),
    ("radio buttons", "modal", lambda n: one_field("radio_buttons", options=options(n)), 10, f"{FIELD}/options"),
    ("check boxes", "modal", lambda n: one_field("checkboxes", options=options(n)), 10, f"{FIELD}/options"),
    ("suggested options", "options", lambda n: {"options": options(n)}, 100, "/options"),
]


def suggested(*given: Json) -> Json:
    return {"option_groups": [{"label": plain("Can run"), "options": [*given]}]}


def overflow(**more: Any) -> Json:
    return {"type": "overflow", "action_id": "more", **more}


def named(edge: Edge) -> str:
    return edge[0]


@pytest.mark.parametrize("edge", TEXTS, ids=named)
def test_a_text_at_the_limit_passes_and_one_beyond_is_named(edge: Edge) -> None:
    _, surface, make, limit, path = edge
    assert problems(surface, make(limit)) == []
    problem = f"must be less than {limit + 1} characters [json-pointer:{path}]"
    assert problems(surface, make(limit + 1)) == [problem]


@pytest.mark.parametrize("edge", LISTS, ids=named)
def test_a_list_at_the_limit_passes_and_one_beyond_is_named(edge: Edge) -> None:
    _, surface, make, limit, path = edge
    assert problems(surface, make(limit)) == []
    assert problems(surface, make(limit + 1)) == [f"no more than {limit} items allowed [json-pointer:{path}]"]


PICTURE = {"type": "image", "image_url": "https://example.org/a.png"}
NUMBER = {"is_decimal_allowed": False}
OF_MESSAGES: list[tuple[Json, str, str]] = [
    (message(section("")), "must be more than 0 characters", "/blocks/0/text/text"),
    (message({"type": "carousel"}), "unsupported type: carousel", "/blocks/0/type"),
    (message(actions({"type": "slider", "action_id": "a"})), "unsupported type: slider", f"{ELEMENT}/type"),
    (message(actions({**PICTURE, "alt_text": "a"})), "unsupported type: image", f"{ELEMENT}/type"),
    (
        message(field({"type": "number_input", "action_id": "n", **NUMBER})),
        *("unsupported type: number_input", "/blocks/0/element/type"),
    ),
    (message({"type": "header", "text": "Hello"}), "must provide an object", "/blocks/0/text"),
    (
        message({"type": "header", "text": {"type": "mrkdwn", "text": "x"}}),
        *("must be one of: plain_text", "/blocks/0/text/type"),
    ),
    (message(section(colour="red")), "invalid additional property: colour", "/blocks/0"),
    (message({"type": "section"}), "must define either `text` or `fields`", "/blocks/0"),
    (
        message(actions(button(1), button(1))),
        *('`action_id` "a1" already exists', "/blocks/0/elements/1/action_id"),
    ),
    (
        message(actions(button(1)), section(accessory=button(1))),
        *('`action_id` "a1" already exists', "/blocks/1/accessory/action_id"),
    ),
    (
        message(section(block_id="b"), attachments=[{"blocks": [section(block_id="b")]}]),
        *('`block_id` "b" already exists', "/attachments/0/blocks/0/block_id"),
    ),
    (message(actions(select(options=[]))), "must provide at least 1 items", f"{ELEMENT}/options"),
    (
        message(actions(select(option_groups=[{"label": plain("x"), "options": options(1)}]))),
        *("must define either `options` or `option_groups`, but not both", ELEMENT),
    ),
    (
        message(actions(select(initial_option=option(9)))),
        *("must match exactly with one of the options", f"{ELEMENT}/initial_option"),
    ),
    (message(actions(button(style="green"))), "must be one of: primary, danger", f"{ELEMENT}/style"),
    (message(PICTURE), "missing required field: alt_text", "/blocks/0"),
    ({"blocks": {"type": "section"}}, "must provide an array", "/blocks"),
    ({"blocks": ["x"]}, "must provide an object", "/blocks/0"),
]
OF_MODALS: list[tuple[Json, str, str]] = [
    (
        {key: value for key, value in modal(field(text_input())).items() if key != "submit"},
        *("must define `submit` to use an `input` block in modals", "/view/blocks/0/input"),
    ),
    ({"type": "modal", "blocks": []}, "missing required field: title", "/view"),
    (
        modal(field(text_input(focus_on_load=True)), field({**text_input(focus_on_load=True), "action_id": "other"})),
        *("only one element can have `focus_on_load` set to true", "/view/blocks/1/element/focus_on_load"),
    ),
    (modal({"type": "table", "rows": []}), "unsupported type: table", "/view/blocks/0/type"),
    (modal(id="V1"), "invalid additional property: id", "/view"),
    (one_field("number_input", **NUMBER, initial_value="1e3"), "must be a valid number", f"{FIELD}/initial_value"),
    (
        one_field("number_input", **NUMBER, min_value="2", max_value="1"),
        *("cannot be greater than max_value", f"{FIELD}/min_value"),
    ),
    (
        one_field("number_input", **NUMBER, initial_value="2", max_value="1"),
        *("cannot be greater than max_value", f"{FIELD}/initial_value"),
    ),
    (
        one_field("datepicker", initial_date="2025-02-30"),
        *("must be a date in the format YYYY-MM-DD", f"{FIELD}/initial_date"),
    ),
    (one_field("users_select", initial_user="ben@x"), "must be a valid user id", f"{FIELD}/initial_user"),
    (
        modal(field(select(type="multi_static_select", initial_options=options(2), max_selected_items=1))),
        *("no more than 1 items allowed", f"{FIELD}/initial_options"),
    ),
    (
        modal(field(text_input(initial_value="xx", max_length=1))),
        *("must be less than 2 characters", f"{FIELD}/initial_value"),
    ),
]


@pytest.mark.parametrize(("payload", "problem", "path"), [*OF_MESSAGES, *OF_MODALS])
def test_what_slack_refuses_is_named(payload: Json, problem: str, path: str) -> None:
    before = copy.deepcopy(payload)
    surface: Surface = "modal" if payload.get("type") == "modal" else "message"
    assert problems(surface, payload) == [f"{problem} [json-pointer:{path}]"]
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
