"""response_url: five uses in thirty minutes; ephemeral, in the channel, or in place of the original."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.slack_emulator import EmulatedUser, SlackEmulator
from tests.bot.slack_emulator.conftest import Clock, fill, socket_mode
from tests.bot.slack_emulator.starter_app import BUTTON, plain

SECTION = {"type": "section", "text": plain("Hello"), "accessory": BUTTON}


@pytest.fixture
async def emulator(clock: Clock) -> AsyncIterator[SlackEmulator]:
    async with SlackEmulator(clock=clock) as emulator:
        fill(emulator)
        yield emulator


@pytest.fixture
async def url(emulator: SlackEmulator, app: AsyncApp, anna: EmulatedUser) -> AsyncIterator[str]:
    """The response_url of a command."""
    urls: list[str] = []

    @app.command("/go")
    async def go(ack: Any, command: Any) -> None:
        urls.append(command["response_url"])
        await ack()

    async with socket_mode(emulator, app):
        await anna.command("C0SOC", "/go")
        yield urls[0]


async def test_the_first_five_answers_are_shown_and_the_sixth_is_refused(url: str, anna: EmulatedUser) -> None:
    hook = AsyncWebhookClient(url)
    for n in range(5):
        answer = await hook.send(text=f"answer {n}")
        assert (answer.status_code, answer.body) == (200, "ok")
    sixth = await hook.send(text="answer 5")
    assert (sixth.status_code, sixth.body) == (404, '{"ok": false, "error": "used_url"}')
    assert [m["text"] for m in await anna.ephemerals("C0SOC")] == [f"answer {n}" for n in range(5)]


async def test_after_thirty_minutes_it_is_refused(url: str, clock: Clock) -> None:
    clock.now += 30 * 60 + 1
    late = await AsyncWebhookClient(url).send(text="late")
    assert (late.status_code, late.body) == (404, '{"ok": false, "error": "expired_url"}')


async def test_an_invented_address_is_refused(emulator: SlackEmulator) -> None:
    answer = await AsyncWebhookClient(f"{emulator.url}/actions/T0LOCAL/none").send(text="x")
    assert answer.status_code == 404


async def test_a_malformed_answer_is_refused_and_not_counted(url: str) -> None:
    hook = AsyncWebhookClient(url)
    for _ in range(6):
        refused = await hook.send(text="x", blocks=[{"type": "header"}])
        assert refused.status_code == 400
        assert "invalid_blocks" in refused.body
    assert (await hook.send(text="fine")).status_code == 200


async def test_an_answer_for_everybody_is_a_message(url: str, ben: EmulatedUser) -> None:
    await AsyncWebhookClient(url).send(text="for all", response_type="in_channel")
    assert [m["text"] for m in await ben.messages("C0SOC")] == ["for all"]


@pytest.fixture
async def clicks(app: AsyncApp, url: str) -> list[dict[str, Any]]:
    """The payloads of clicks."""
    found: list[dict[str, Any]] = []

    @app.action("clicked")
    async def clicked(ack: Any, body: Any) -> None:
        found.append(body)
        await ack()

    return found


async def test_an_ephemeral_message_is_replaced_and_deleted_by_its_click(
    url: str, clicks: list[dict[str, Any]], anna: EmulatedUser
) -> None:
    await AsyncWebhookClient(url).send(text="Run?", blocks=[SECTION])
    question = (await anna.ephemerals("C0SOC"))[0]
    await anna.click("C0SOC", question["ts"], action_id="clicked")
    assert clicks[0]["container"]["is_ephemeral"] is True
    assert "message" not in clicks[0]
    hook = AsyncWebhookClient(clicks[0]["response_url"])
    await hook.send(text="Running", replace_original=True)
    assert [(m["ts"], m["text"]) for m in await anna.ephemerals("C0SOC")] == [(question["ts"], "Running")]
    await hook.send(delete_original=True)
    assert await anna.ephemerals("C0SOC") == []
    await anna.until(lambda view: not view.ephemerals("C0SOC"))


async def test_a_message_is_replaced_and_deleted_by_its_click(
    clicks: list[dict[str, Any]], client: AsyncWebClient, anna: EmulatedUser
) -> None:
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=[SECTION]))["ts"]
    await anna.click("C0SOC", ts, action_id="clicked")
    hook = AsyncWebhookClient(clicks[0]["response_url"])
    await hook.send(text="Done", replace_original=True)
    message = (await anna.messages("C0SOC"))[0]
    assert (message["ts"], message["text"], "blocks" in message) == (ts, "Done", False)
    await hook.send(delete_original=True)
    assert await anna.messages("C0SOC") == []
