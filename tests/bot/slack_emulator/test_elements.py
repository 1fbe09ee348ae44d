"""Each element that holds a value: what a person chooses, and how it reaches the app."""

from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, SlackEmulator
from bot.slack_emulator.elements import VALUE_KEYS
from bot.slack_emulator.limits import ELEMENTS
from tests.bot.slack_emulator.apps import Heard
from tests.bot.slack_emulator.apps import heard as heard
from tests.bot.slack_emulator.starter_app import modal, plain

Json = dict[str, Any]
ONE, TWO = ({"text": plain(name), "value": name} for name in ("one", "two"))
BOTH = {"options": [ONE, TWO]}
RICH = {
    "type": "rich_text",
    "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "hi"}]}],
}

# element type -> its own fields, what a person gives, what Slack makes of it
CHOICES: dict[str, tuple[Json, Any, Any]] = {
    "plain_text_input": ({"multiline": True}, "two\nlines", "two\nlines"),
    "email_text_input": ({}, "a@example.org", "a@example.org"),
    "url_text_input": ({}, "https://example.org/x", "https://example.org/x"),
    "number_input": ({"is_decimal_allowed": True, "min_value": "1"}, "1.5", "1.5"),
    "rich_text_input": ({}, "hi", RICH),
    "datepicker": ({}, "2025-12-31", "2025-12-31"),
    "timepicker": ({}, "23:59", "23:59"),
    "datetimepicker": ({}, "1700000000", 1_700_000_000),
    "checkboxes": (BOTH, ["one", "two"], [ONE, TWO]),
    "radio_buttons": (BOTH, "two", TWO),
    "static_select": ({"option_groups": [{"label": plain("Group"), **BOTH}]}, "two", TWO),
    "external_select": ({"min_query_length": 0}, "two", {"text": plain("Two"), "value": "two"}),
    "multi_static_select": ({**BOTH, "max_selected_items": 1}, ["one"], [ONE]),
    "multi_external_select": ({"min_query_length": 0}, ["two"], [{"text": plain("Two"), "value": "two"}]),
    "users_select": ({}, "U0BEN", "U0BEN"),
    "multi_users_select": ({}, ["U0BEN"], ["U0BEN"]),
    "conversations_select": ({}, "C0SOC", "C0SOC"),
    "multi_conversations_select": ({}, ["C0SOC"], ["C0SOC"]),
    "channels_select": ({}, "C0SOC", "C0SOC"),
    "multi_channels_select": ({}, ["C0SOC"], ["C0SOC"]),
}


def test_every_element_with_a_value_is_tried_here() -> None:
    assert set(CHOICES) == {kind for kind in ELEMENTS if kind in VALUE_KEYS} - {"overflow", "file_input"}


def form(kind: str, **block: Any) -> Json:
    element = {"type": kind, "action_id": "it", **CHOICES[kind][0]}
    return {
        **modal(),
        "blocks": [{"type": "input", "block_id": "b", "label": plain("It"), "element": element, **block}],
    }


async def opened(heard: Heard, client: AsyncWebClient, anna: EmulatedUser, view: Json) -> Json:
    await anna.command("C0SOC", "/form")
    trigger_id = heard.things[0]["trigger_id"]
    return dict((await client.views_open(trigger_id=trigger_id, view=view))["view"])


@pytest.mark.parametrize("kind", CHOICES)
async def test_a_choice_is_in_the_state_of_the_submission(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser, kind: str
) -> None:
    _, given, expected = CHOICES[kind]
    view = await opened(heard, client, anna, form(kind))
    empty = await anna.submit(view["id"], {})
    assert empty["errors"] == {"b": "Please complete this required field."}
    assert await anna.submit(view["id"], {"b": {"it": given}}) == {"ok": True}
    submission = next(body for body in heard.things if body.get("type") == "view_submission")
    assert submission["view"]["state"]["values"] == {"b": {"it": {"type": kind, VALUE_KEYS[kind]: expected}}}


@pytest.mark.parametrize("kind", CHOICES)
async def test_a_dispatched_choice_is_an_action(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser, kind: str
) -> None:
    _, given, expected = CHOICES[kind]
    view = await opened(heard, client, anna, form(kind, dispatch_action=True))
    await anna.click(None, view_id=view["id"], action_id="it", value=given)
    body = next(body for body in heard.things if body.get("type") == "block_actions")
    action = body["actions"][0]
    assert (action["type"], action["block_id"], action[VALUE_KEYS[kind]]) == (kind, "b", expected)
    assert body["container"] == {"type": "view", "view_id": view["id"]}
    assert body["view"]["state"]["values"]["b"]["it"][VALUE_KEYS[kind]] == expected
    assert "response_url" not in body


async def test_an_uploaded_file_is_in_the_submission_and_can_be_fetched(
    emulator: SlackEmulator, heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    element = {"type": "file_input", "action_id": "it", "max_files": 1}
    block = {"type": "input", "block_id": "b", "label": plain("It"), "element": element}
    view = await opened(heard, client, anna, {**modal(), "blocks": [block]})
    file = await anna.upload("t.json", b"{}")
    assert await anna.submit(view["id"], {"b": {"it": [file["id"]]}}) == {"ok": True}
    submission = next(body for body in heard.things if body.get("type") == "view_submission")
    given = submission["view"]["state"]["values"]["b"]["it"]["files"][0]
    assert given == file
    headers = {"Authorization": f"Bearer {emulator.bot_token}"}
    async with aiohttp.ClientSession() as session:
        async with session.get(given["url_private"], headers=headers) as answer:
            assert await answer.read() == b"{}"
        async with session.get(given["url_private_download"]) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")


async def test_an_overflow_sends_its_choice_and_keeps_no_state(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    overflow = {"type": "overflow", "action_id": "more", "options": [ONE, TWO]}
    blocks = [{"type": "actions", "elements": [overflow]}]
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=blocks))["ts"]
    await anna.click("C0SOC", ts, action_id="more", value="two")
    body = next(body for body in heard.things if body.get("type") == "block_actions")
    assert body["actions"][0]["selected_option"] == TWO
    assert body["state"]["values"] == {}


WRONG: dict[str, tuple[Json, str, str]] = {
    "plain_text_input": ({"min_length": 3}, "ab", "Please enter at least 3 characters."),
    "email_text_input": ({}, "nobody", "Please enter a valid email address."),
    "url_text_input": ({}, "javascript:alert(1)", "Please enter a valid URL."),
    "number_input": ({"is_decimal_allowed": False, "max_value": "9"}, "10", "Please enter a number that is at most 9."),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_slack_itself_refuses_a_wrong_field(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser, kind: str
) -> None:
    more, given, problem = WRONG[kind]
    element = {"type": kind, "action_id": "it", **more}
    block = {"type": "input", "block_id": "b", "label": plain("It"), "element": element}
    view = await opened(heard, client, anna, {**modal(), "blocks": [block]})
    assert (await anna.submit(view["id"], {"b": {"it": given}}))["errors"] == {"b": problem}
    assert (await anna.until(lambda view: view.errors)) == {"b": problem}
    assert [body for body in heard.things if body.get("type") == "view_submission"] == []
