"""An app of Bolt's own making, unchanged, over both transports."""

from typing import Any

import pytest
from slack_bolt.app.async_app import AsyncApp

from bot.slack_emulator import EmulatedUser, SlackEmulator
from tests.bot.slack_emulator.conftest import http_requests, socket_mode
from tests.bot.slack_emulator.starter_app import add_listeners


@pytest.mark.parametrize("transport", [socket_mode, http_requests])
async def test_it_answers_messages_clicks_menus_commands_and_forms(
    transport: Any, emulator: SlackEmulator, app: AsyncApp, anna: EmulatedUser
) -> None:
    add_listeners(app)
    async with transport(emulator, app):
        await anna.say("C0SOC", "hello")
        answer = await anna.until(lambda view: next((m for m in view.messages("C0SOC") if "Hey" in m["text"]), {}))
        assert answer["text"] == "Hey there <@U0ANNA>!"

        groups = await anna.options("C0SOC", answer["ts"], action_id="picked", query="lookup")
        assert [o["value"] for o in groups[0]["options"]] == ["lookup"]
        await anna.click("C0SOC", answer["ts"], action_id="picked", value="lookup")
        await anna.until(lambda view: any(m["text"] == "picked lookup" for m in view.messages("C0SOC")))

        # by its response_url
        assert await anna.click("C0SOC", answer["ts"], action_id="clicked") == {"ok": True}
        await anna.until(lambda view: "clicked 7" in (view.message("C0SOC", answer["ts"]) or {})["text"])

        assert await anna.command("C0SOC", "/echo one two") == {"ok": True}
        assert [m["text"] for m in await anna.ephemerals("C0SOC")] == ["You said: one two"]

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

        await anna.open_home()
        home = await anna.until(lambda view: view.home)
        assert home is not None
        assert home["blocks"][0]["text"]["text"] == "Home of U0ANNA"
