"""Payloads on their way to the app: several connections, renewal, repeats, late and missing acknowledgements."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Faults, SlackEmulator
from tests.bot.slack_emulator.apps import Heard
from tests.bot.slack_emulator.conftest import http_requests, socket_mode
from tests.bot.slack_emulator.starter_app import BUTTON


@pytest.fixture
def heard() -> Heard:
    return Heard()


def listen(app: AsyncApp, heard: Heard) -> None:
    @app.command("/who")
    async def who(ack: Any, command: Any) -> None:
        await heard.add(command["text"])  # first: the acknowledgement is what tests wait for
        await ack()


async def test_each_payload_goes_to_one_of_several_connections(
    emulator: SlackEmulator, app: AsyncApp, anna: EmulatedUser, heard: Heard
) -> None:
    listen(app, heard)
    used: set[int] = set()

    def watch(handler: AsyncSocketModeHandler, number: int) -> None:
        async def see(message: Any) -> None:
            if "slash_commands" in message.data:
                used.add(number)

        handler.client.on_message_listeners.append(see)

    async with socket_mode(emulator, app) as one, socket_mode(emulator, app) as two:
        await emulator.wait_connected(2)
        watch(one, 1)
        watch(two, 2)
        for n in range(4):
            await anna.command("C0SOC", f"/who {n}")
    assert heard.things == ["0", "1", "2", "3"]
    assert used == {1, 2}


async def test_a_renewed_connection_loses_nothing(
    emulator: SlackEmulator, app: AsyncApp, connected: object, anna: EmulatedUser, heard: Heard
) -> None:
    listen(app, heard)
    await emulator.refresh_connections()
    assert await anna.command("C0SOC", "/who now") == {"ok": True}
    assert heard.things == ["now"]
    assert emulator.connections == 1


async def test_the_app_comes_back_after_its_connection_was_cut(
    emulator: SlackEmulator, app: AsyncApp, connected: object, anna: EmulatedUser, heard: Heard
) -> None:
    listen(app, heard)
    emulator.drop_connections()
    answer = await anna.command("C0SOC", "/who now")
    assert (answer["ok"], answer["error"]) == (False, "dispatch_failed")
    await emulator.wait_connected()
    assert await anna.command("C0SOC", "/who again") == {"ok": True}
    assert heard.things == ["again"]


async def test_without_an_app_a_command_fails_as_in_slack(anna: EmulatedUser) -> None:
    answer = await anna.command("C0SOC", "/who")
    assert answer == {
        "ok": False,
        "error": "dispatch_failed",
        "text": "/who failed because the app did not respond",
    }
    assert (await anna.until(lambda view: view.notices))[0]["channel"] == "C0SOC"


async def test_a_late_acknowledgement_is_shown(
    emulator: SlackEmulator, app: AsyncApp, connected: object, anna: EmulatedUser
) -> None:
    emulator.ack_limit_s = 0.2
    release = asyncio.Event()

    @app.command("/slow")
    async def slow(ack: Any) -> None:
        await release.wait()
        await ack("late")

    answer = await anna.command("C0SOC", "/slow")
    assert answer["error"] == "operation_timeout"
    assert answer["text"] == '/slow failed with the error "operation_timeout"'
    release.set()
    assert await anna.ephemerals("C0SOC") == []


async def test_a_click_that_is_not_acknowledged_in_time_is_shown(
    emulator: SlackEmulator, app: AsyncApp, client: AsyncWebClient, connected: object, anna: EmulatedUser
) -> None:
    emulator.ack_limit_s = 0.2
    release = asyncio.Event()

    @app.action("clicked")
    async def clicked(ack: Any) -> None:
        await release.wait()
        await ack()

    blocks = [{"type": "actions", "elements": [BUTTON]}]
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=blocks))["ts"]
    answer = await anna.click("C0SOC", ts, action_id="clicked")
    assert (answer["ok"], answer["error"]) == (False, "operation_timeout")
    notices = await anna.until(lambda view: view.notices)
    assert (notices[0]["channel"], notices[0]["text"]) == ("C0SOC", "This app took too long to respond.")
    release.set()


async def test_a_slow_or_held_method_is_done_later(faults: Faults, client: AsyncWebClient, anna: EmulatedUser) -> None:
    release = asyncio.Event()
    faults.hold("chat.postMessage", release)
    faults.slow("chat.postMessage", 0.05)
    held = asyncio.create_task(client.chat_postMessage(channel="C0SOC", text="held"))
    await anna.until(lambda view: faults.waiting("chat.postMessage") == 1)
    await client.chat_postMessage(channel="C0SOC", text="slow")
    release.set()
    await held
    assert [m["text"] for m in await anna.messages("C0SOC")] == ["slow", "held"]


async def test_a_repeated_delivery_comes_with_the_same_payload(
    app: AsyncApp, connected: object, faults: Faults, anna: EmulatedUser, heard: Heard
) -> None:
    @app.command("/who")
    async def who(ack: Any, body: Any) -> None:
        await ack()
        await heard.add(body)

    faults.deliver_twice("slash_commands")
    await anna.command("C0SOC", "/who")
    first, second = await heard.wait(2)
    assert first == second


@asynccontextmanager
async def bare_socket(emulator: SlackEmulator) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Socket Mode without Bolt: the test itself reads and acknowledges."""
    client = AsyncWebClient(base_url=emulator.api_url)
    address = (await client.apps_connections_open(app_token=emulator.app_token))["url"]
    async with aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
        hello = await socket.receive_json(timeout=5)
        assert hello["type"] == "hello"
        yield socket


async def test_an_unacknowledged_event_comes_again_by_socket(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    emulator.ack_limit_s = 0.1
    async with bare_socket(emulator) as socket:
        await anna.say("C0SOC", "hello")
        envelopes = [await socket.receive_json(timeout=5) for _ in range(4)]
    assert [(e["retry_attempt"], e["retry_reason"]) for e in envelopes] == [
        (0, ""),
        (1, "timeout"),
        (2, "timeout"),
        (3, "timeout"),
    ]
    assert len({e["payload"]["event_id"] for e in envelopes}) == 1
    assert len({e["envelope_id"] for e in envelopes}) == 4
    assert {(e["type"], e["accepts_response_payload"]) for e in envelopes} == {("events_api", False)}


async def test_an_event_that_was_on_a_lost_connection_comes_on_the_next(
    emulator: SlackEmulator, anna: EmulatedUser
) -> None:
    async with bare_socket(emulator) as first:
        await anna.say("C0SOC", "hello")
        lost = await first.receive_json(timeout=5)
        async with bare_socket(emulator) as second:
            await first.close()
            again = await second.receive_json(timeout=5)
            await second.send_json({"envelope_id": again["envelope_id"]})
    assert again["payload"] == lost["payload"]


async def test_an_update_and_a_deletion_reach_the_app_as_messages(
    emulator: SlackEmulator, client: AsyncWebClient
) -> None:
    async with bare_socket(emulator) as socket:

        async def next_event() -> Any:
            envelope = await socket.receive_json(timeout=5)
            await socket.send_json({"envelope_id": envelope["envelope_id"]})
            return envelope["payload"]["event"]

        ts = (await client.chat_postMessage(channel="C0SOC", text="One"))["ts"]
        posted = await next_event()
        await client.chat_update(channel="C0SOC", ts=ts, text="Two")
        changed = await next_event()
        await client.chat_delete(channel="C0SOC", ts=ts)
        deleted = await next_event()
    assert (posted["text"], posted["bot_id"]) == ("One", "B0LOCAL")
    assert (changed["subtype"], changed["previous_message"]["text"], changed["message"]["text"]) == (
        "message_changed",
        "One",
        "Two",
    )
    assert (deleted["subtype"], deleted["deleted_ts"]) == ("message_deleted", ts)
    assert "user" not in changed


async def test_what_happens_to_channels_and_to_the_app_itself_is_told(
    emulator: SlackEmulator, client: AsyncWebClient
) -> None:
    async with bare_socket(emulator) as socket:
        emulator.rename("C0SOC", "soc")
        emulator.share("C0SOC")
        emulator.share("C0SOC", False)
        emulator.archive("C0SOC")
        emulator.archive("C0SOC", False)
        emulator.add_channel("C0PRIVATE", name="private", is_private=True)
        emulator.rename("C0PRIVATE", "secret")
        emulator.archive("C0PRIVATE")
        emulator.archive("C0PRIVATE", False)
        emulator.uninstall()
        payloads = [(await socket.receive_json(timeout=5))["payload"] for _ in range(10)]
    assert [payload["event"]["type"] for payload in payloads] == [
        "channel_rename",
        "channel_shared",
        "channel_unshared",
        "channel_archive",
        "channel_unarchive",
        "group_rename",
        "group_archive",
        "group_unarchive",
        "tokens_revoked",
        "app_uninstalled",
    ]
    with pytest.raises(SlackApiError, match="token_revoked"):
        await client.auth_test()


async def test_an_eleventh_connection_is_one_too_many() -> None:
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(SlackEmulator(rates=False))
        for _ in range(10):
            await stack.enter_async_context(bare_socket(emulator))
        client = AsyncWebClient(base_url=emulator.api_url)
        address = (await client.apps_connections_open(app_token=emulator.app_token))["url"]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        socket = await stack.enter_async_context(session.ws_connect(address))
        assert (await socket.receive_json(timeout=5))["reason"] == "too_many_websockets"


async def test_a_ticket_opens_one_connection(emulator: SlackEmulator) -> None:
    client = AsyncWebClient(base_url=emulator.api_url)
    address = (await client.apps_connections_open(app_token=emulator.app_token))["url"]
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(address):
            pass
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(address)


# signed requests


class Endpoint:
    """A bare HTTP endpoint that answers as the test says and remembers what came."""

    def __init__(self, *answers: web.Response) -> None:
        self.heard = Heard()
        self._answers = list(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await self.heard.add((dict(request.headers), await request.text()))
        return self._answers.pop(0) if self._answers else web.Response()


@asynccontextmanager
async def serving(emulator: SlackEmulator, endpoint: Endpoint) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/in", endpoint.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    emulator.requests_url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield
    await runner.cleanup()


async def test_requests_carry_slacks_signature_and_forms(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    endpoint = Endpoint(web.json_response({"text": "hi"}))
    async with serving(emulator, endpoint):
        await anna.command("C0SOC", "/who a&b")
        await anna.say("C0SOC", "hello")
        command, event = await endpoint.heard.wait(2)
    verifier = SignatureVerifier(emulator.signing_secret)
    for headers, body in (command, event):
        assert verifier.is_valid_request(body, headers)
        assert not verifier.is_valid_request(body + " ", headers)
    form = dict(parse_qsl(command[1], keep_blank_values=True))
    assert form["text"] == "a&b"
    assert form["response_url"].startswith(emulator.url)
    assert json.loads(event[1])["event"]["text"] == "hello"
    assert [m["text"] for m in await anna.ephemerals("C0SOC")] == ["hi"]


async def test_a_failed_event_request_comes_again_with_its_number(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    endpoint = Endpoint(web.Response(status=500), web.Response(status=500))
    async with serving(emulator, endpoint):
        await anna.say("C0SOC", "hello")
        requests = await endpoint.heard.wait(3)
    numbers = [(h.get("X-Slack-Retry-Num"), h.get("X-Slack-Retry-Reason")) for h, _ in requests]
    assert numbers == [(None, None), ("1", "http_error"), ("2", "http_error")]


async def test_an_app_can_ask_for_no_repeats(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    endpoint = Endpoint(web.Response(status=500, headers={"X-Slack-No-Retry": "1"}))
    async with serving(emulator, endpoint):
        await anna.say("C0SOC", "one")
        await endpoint.heard.wait(1)
        await anna.say("C0SOC", "two")
        requests = await endpoint.heard.wait(2)
    assert [json.loads(body)["event"]["text"] for _, body in requests] == ["one", "two"]


@pytest.mark.parametrize(("status", "word"), [(404, "http_client_error"), (500, "http_service_error")])
async def test_a_refused_command_is_shown(emulator: SlackEmulator, anna: EmulatedUser, status: int, word: str) -> None:
    async with serving(emulator, Endpoint(web.Response(status=status))):
        assert (await anna.command("C0SOC", "/who"))["text"] == f'/who failed with the error "{word}"'


async def test_bolt_passes_slacks_handshake(emulator: SlackEmulator, app: AsyncApp) -> None:
    async with http_requests(emulator, app):
        assert await emulator.verify_requests_url()
