"""An app of Bolt's own making, unchanged, over both transports."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.app.async_app import AsyncApp

from bot.slack_emulator import EmulatedUser, SlackEmulator
from tests.bot.slack_emulator.conftest import http_requests, socket_mode
from tests.bot.slack_emulator.starter_app import add_listeners


@pytest.fixture(params=[socket_mode, http_requests])
async def starter(request: pytest.FixtureRequest, emulator: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncApp]:
    add_listeners(app)
    async with request.param(emulator, app):
        yield app


async def _hello(anna: EmulatedUser) -> dict[str, Any]:
    await anna.say("C0SOC", "hello")
    return await anna.until(lambda view: next((m for m in view.messages("C0SOC") if "Hey" in m["text"]), {}))


@pytest.mark.usefixtures("starter")
async def test_a_message_is_answered(anna: EmulatedUser) -> None:
    answer = await _hello(anna)
    assert answer["text"] == "Hey there <@U0ANNA>!"


@pytest.mark.usefixtures("starter")
async def test_a_click_replaces_the_message_by_its_response_url(anna: EmulatedUser) -> None:
    answer = await _hello(anna)
    assert await anna.click("C0SOC", answer["ts"], action_id="clicked") == {"ok": True}
    changed = await anna.until(lambda view: "clicked 7" in (view.message("C0SOC", answer["ts"]) or {})["text"])
    assert changed


@pytest.mark.usefixtures("starter")
async def test_a_menu_offers_what_the_app_says_and_takes_the_choice(anna: EmulatedUser) -> None:
    answer = await _hello(anna)
    groups = await anna.options("C0SOC", answer["ts"], action_id="picked", query="lookup")
    assert [o["value"] for o in groups[0]["options"]] == ["lookup"]
    await anna.click("C0SOC", answer["ts"], action_id="picked", value="lookup")
    await anna.until(lambda view: any(m["text"] == "picked lookup" for m in view.messages("C0SOC")))


@pytest.mark.usefixtures("starter")
async def test_a_command_is_answered_in_its_acknowledgement(anna: EmulatedUser) -> None:
    assert await anna.command("C0SOC", "/echo one two") == {"ok": True}
    assert [m["text"] for m in await anna.ephemerals("C0SOC")] == ["You said: one two"]


@pytest.mark.usefixtures("starter")
async def test_a_modal_opens_shows_an_error_at_its_field_and_closes(anna: EmulatedUser) -> None:
    await anna.command("C0SOC", "/form")
    view = await anna.until(lambda view: view.modal)
    assert view is not None
    required = await anna.submit(view["id"], {"name": {"text": ""}})
    assert required["errors"] == {"name": "Please complete this required field."}
    taken = await anna.submit(view["id"], {"name": {"text": "taken"}})
    assert taken == {"ok": True, "errors": {"name": "This name is taken."}}
    assert await anna.submit(view["id"], {"name": {"text": "mine"}}) == {"ok": True}
    assert await anna.modal() is None
    await anna.until(lambda view: any(m["text"] == "U0ANNA saved mine" for m in view.messages("C0SOC")))


@pytest.mark.usefixtures("starter")
async def test_the_home_is_published_when_it_is_opened(anna: EmulatedUser) -> None:
    await anna.open_home()
    home = await anna.until(lambda view: view.home)
    assert home is not None
    assert home["blocks"][0]["text"]["text"] == "Home of U0ANNA"
