"""The bot as a whole, over both transports."""

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bot import doctor
from bot.app import running
from bot.app.interactions import INTERACTION_TYPES, entry_of, parse
from bot.app.transports import EVENTS_PATH, HttpTransport
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.settings import parse as parse_settings
from bot.slack_emulator import SlackEmulator
from core.app import serving
from core.client import CoreClient
from core.common.clock import now_ms
from tests.bot.features.environment import MANIFEST
from tests.bot.outbox.harness import until_read
from tests.bot.people import card_of, ephemeral, modal, reply_to
from tests.bot.running import (
    ANNA,
    BEN,
    CHANNELS,
    OPEN,
    RED,
    SOC,
    UNLIMITED,
    BotEnvironment,
    running_bot,
)
from tests.documents import ROOT

KEYS = ("team", "team_id", "user", "user_id", "id", "channel", "container", "message", "actions", "action_id", "view",
        "callback_id", "event", "type", "text", "message_ts", "response_url", "trigger_id")  # fmt: skip


async def test_new_alert_is_posted_and_command_is_answered_over_http(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env:
        anna, alert_id, card = await env.first_card()
        assert "ET MALWARE beacon" in card["text"]
        await anna.command(SOC, f"/responder list {alert_id}")
        await anna.sees(modal("Extract Indicators"))


async def test_command_delivered_twice_starts_one_run(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna, alert_id, card = await env.first_card()
        env.emulator.faults.deliver_twice("slash_commands")
        await anna.command(SOC, f"/responder run ResponderBot_ExtractIndicators {alert_id}")
        await anna.sees(reply_to(card, "done"))
        assert len(await env.client.actions("alert", alert_id)) == 1


async def test_details_above_a_channels_clearance_are_withheld(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert(tlp=3, title="Secret words")
        assert "Secret words" not in str(await anna.sees(card_of(alert_id, channel=OPEN)))
        assert "Secret words" not in str(await anna.sees(card_of(alert_id)))
        assert "Secret words" in str(await anna.sees(card_of(alert_id, channel=RED)))


async def test_bot_says_that_core_is_down_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna, alert_id, _ = await env.first_card()
        settings = await env.stop_core()
        await anna.command(SOC, f"/responder list {alert_id}")
        response = await anna.sees(ephemeral("isn't answering"))
        assert "127.0.0.1" not in str(response)
        assert str(settings.core.port) not in str(response)
        async with serving(settings, grace_s=0):
            _later, _ = await env.new_card(anna, sourceRef="eve-2", title="After the pause")


@pytest.mark.parametrize("is_private", [False, True])
async def test_the_bot_looks_again_once_a_channel_is_archived_or_no_longer(tmp_path: Path, is_private: bool) -> None:
    cases = "C0CASES"
    channel = {"id": cases, "clearance": "amber", "alerts": {}, "group": False}
    async with running_bot(tmp_path, manifest=MANIFEST, channels=[channel]) as env:
        env.emulator.add_channel(cases, name="cases", is_private=is_private)
        changed_at = env.bot.outbox.channels_changed_at
        for is_archived in (True, False):
            before = await changed_at()
            env.emulator.archive(cases, is_archived)
            async with asyncio.timeout(20):
                await until_read(changed_at, lambda now, before=before: now != before)  # type: ignore[misc]
        await (await env.person(ANNA)).sees(card_of(await env.post_alert(), channel=cases))


# --- signed requests ------------------------------------------------------------------------------------------------

BODY = "command=%2Fresponder&text=help&team_id=T0LOCAL&user_id=U0ANNA&channel_id=C0SOC&trigger_id=1.2"


def signed(secret: str, body: str, at: int) -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"v0:{at}:{body}".encode(), hashlib.sha256).hexdigest()
    return {
        "X-Slack-Request-Timestamp": str(at),
        "X-Slack-Signature": f"v0={digest}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


async def status_of(env: BotEnvironment, headers: dict[str, str], body: str = BODY) -> int:
    assert isinstance(env.bot.transport, HttpTransport)
    url = env.bot.transport.url + EVENTS_PATH
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status


async def test_only_recently_signed_requests_are_accepted(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env:
        secret, now = env.emulator.signing_secret, int(time.time())
        assert await status_of(env, signed(secret, BODY, now)) == 200
        assert await status_of(env, signed("another secret", BODY, now)) == 401
        assert await status_of(env, signed(secret, BODY, now - 301)) == 401
        assert await status_of(env, signed(secret, BODY + "x", now)) == 401
        assert await status_of(env, {}) == 401
        for garbage in ("", "payload=%7B", "payload=3", "payload=[]", "{", "\x00", '{"type": []}'):
            assert await status_of(env, signed(secret, garbage, now), garbage) < 500


async def test_malformed_signatures_are_refused(tmp_path: Path) -> None:
    now, signature = f"{time.time():.0f}", f"v0={'0' * 64}"
    times = ("junk", "", "-1", "1_0", "1e9", "9" * 5_000, "9" * 400, "\xb2", "nan")
    malformed = [(value, signature) for value in times]
    malformed += [(now, value) for value in ("", "v0=", "\xff" * 67, "v0=" + "\xe9" * 64, "x" * 8_000)]
    async with running_bot(tmp_path, transport="http") as env:
        for said, value in malformed:
            head = f"X-Slack-Request-Timestamp: {said}\r\nX-Slack-Signature: {value}\r\nContent-Length: {len(BODY)}"
            assert await statuses_of(env, head, BODY.encode()) == [401], (said[:9], value[:9])


async def test_http_listener_takes_requests_once_slack_said_where_the_app_is(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env, CoreClient(env.core.url, env.service_key) as core:
        answered = asyncio.Event()
        env.emulator.faults.hold("auth.test", answered)
        async with running(env.settings, core, clock_ms=now_ms) as second, aiohttp.ClientSession() as session:
            assert isinstance(second.transport, HttpTransport)
            url, headers = second.transport.url, signed(env.emulator.signing_secret, BODY, int(time.time()))
            async with session.post(url + EVENTS_PATH, data=BODY, headers=headers) as answer:
                assert answer.status == 503
            async with session.get(url + "/health") as answer:
                health = await answer.json()
            assert (health["status"], health["parts"][0]["message"][:24]) == ("degraded", "waiting until Slack says")
            answered.set()
            await second.connected.wait()
            async with session.post(url + EVENTS_PATH, data=BODY, headers=headers) as answer:
                assert answer.status == 200


async def test_http_listener_is_as_strict_as_cores(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env:
        right = signed(env.emulator.signing_secret, BODY, int(time.time()))
        head = "\r\n".join(f"{name}: {value}" for name, value in right.items())
        length, body = f"Content-Length: {len(BODY)}", BODY.encode()
        assert await statuses_of(env, f"{head}\r\n{length}", body) == [200]
        assert await statuses_of(env, f"{head}\r\nX-Slack-Signature: v0=0\r\n{length}", body) == [400]
        trailers = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n{head}\r\n\r\n".encode()
        assert await statuses_of(env, "Transfer-Encoding: chunked", trailers) == [401]
        large = 3 * 1_048_576
        assert await statuses_of(env, f"{head}\r\nContent-Length: {large}", b" " * large) == [413]


@pytest.mark.slow
async def test_idle_and_partial_connections_are_closed(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env:
        assert isinstance(env.bot.transport, HttpTransport)
        address = urlsplit(env.bot.transport.url)
        opened = [await asyncio.open_connection(address.hostname, address.port) for _ in range(90)]
        for number, (_, writer) in enumerate(opened):
            half = f"POST {EVENTS_PATH} HTTP/1.1\r\nHost: bot\r\n"
            writer.write(["", half, f"{half}Content-Length: 9\r\n\r\nx"][number % 3].encode())
        async with asyncio.timeout(90):
            ends = [await reader.read() for reader, _ in opened]
        assert {end[:12] for end in ends} == {b"", b"HTTP/1.1 400"}
        for _, writer in opened:
            writer.close()


async def statuses_of(env: BotEnvironment, head: str, body: bytes) -> list[int]:
    """The status of each answer to one raw request, after which its connection ends."""
    assert isinstance(env.bot.transport, HttpTransport)
    address = urlsplit(env.bot.transport.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    first = f"POST {EVENTS_PATH} HTTP/1.1\r\nHost: bot\r\nConnection: close\r\n"
    writer.write(f"{first}{head}\r\n\r\n".encode("latin-1") + body)
    heard = await reader.read()
    writer.close()
    await writer.wait_closed()
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", heard)]


async def test_person_of_another_team_is_refused_before_any_lookup(tmp_path: Path) -> None:
    async with running_bot(tmp_path, transport="http") as env:
        body = BODY.replace("T0LOCAL", "T0OTHER")
        headers = signed(env.emulator.signing_secret, body, int(time.time()))
        assert isinstance(env.bot.transport, HttpTransport)
        url = env.bot.transport.url + EVENTS_PATH
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
            assert "Only members of this workspace" in (await answer.json())["text"]


@pytest.mark.parametrize(("transport", "way_in"), [("socket", "socket"), ("http", "requests")])
async def test_health_and_metrics_are_served(tmp_path: Path, transport: Literal["socket", "http"], way_in: str) -> None:
    async with running_bot(tmp_path, transport=transport) as env, aiohttp.ClientSession() as session:
        anna = await env.person(ANNA)
        await anna.command(SOC, "/responder help")
        assert env.bot.health_server is not None
        urls = [
            env.bot.health_server.url,
            *([env.bot.transport.url] if isinstance(env.bot.transport, HttpTransport) else []),
        ]
        for url in urls:
            async with session.get(url + "/health") as answer:
                response = await answer.json()
            async with session.get(url + "/metrics") as answer:
                counted = (await answer.text()).splitlines()
            assert response["status"] == "ok"
            assert [part["name"] for part in response["parts"]] == [way_in, "delivery", "replicas", "feed"]
            assert 'responder_bot_acknowledge_seconds_count{surface="command"} 1.0' in counted
            assert "responder_bot_messages_stuck 0.0" in counted
            assert any(re.match("responder_bot_store_commits_total [1-9]", line) for line in counted)
            assert not [line for line in counted if "_created" in line]


@given(
    interaction_type=st.sampled_from(INTERACTION_TYPES),
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
        ),
        max_leaves=20,
    ),
)
def test_payloads_of_any_shape_are_parsed(interaction_type: Any, body: Any) -> None:
    entry_of(
        parse(interaction_type, body if isinstance(body, dict) else {"event": body, "user": body, "actions": body})
    )


async def test_waiting_card_is_posted_once_the_bot_is_invited(tmp_path: Path) -> None:
    channels = [*CHANNELS, {"id": "C0LATER", "clearance": "amber", "alerts": {}}]
    async with running_bot(tmp_path, channels=channels) as env:
        env.emulator.add_channel("C0LATER", name="later", is_private=True, members=[ANNA, BEN], bot=False)
        anna, alert_id, _ = await env.first_card()
        checks = {check.name: check for check in await env.bot.checks()}
        assert not checks["channel C0LATER"].ok
        await anna.command("C0LATER", f"/invite <@{env.emulator.bot_user_id}>")
        await anna.sees(card_of(alert_id, channel="C0LATER"))


async def test_two_replicas_post_each_card_once_and_each_accepts_commands(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, env.service_key) as core:
        async with running(env.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)):
            await env.emulator.wait_connected(2)
            anna = await env.person(ANNA)
            ids = [await env.post_alert(sourceRef=f"eve-{n}") for n in range(4)]
            cards = {alert_id: await anna.sees(card_of(alert_id)) for alert_id in ids}
            for alert_id in ids:
                await anna.command(SOC, f"/responder run ResponderBot_ExtractIndicators {alert_id}")
            for card in cards.values():
                await anna.sees(reply_to(card, "done"))
        messages = [m for m in await anna.messages(SOC) if not m.get("ephemeral")]
        assert len(messages) == len(ids)
        for message in messages:
            assert len(await anna.thread(SOC, message["ts"])) == 2


async def test_doctor_says_how_many_members_of_a_channel_may_see_less_than_it_shows(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, env.service_key) as core:
        (check,) = [check for check in await doctor.checks(env.settings, core, {}, now_ms) if not check.ok]
        assert (check.name, check.message.partition(",")[0]) == (
            f"members of #{RED[2:].lower()}",
            "3 members may see less than TLP:RED",
        )
        for login in ("anna", "ben", "rob"):
            await env.core.core.people.set_clearance(login, 3)
        assert all(check.ok for check in await doctor.checks(env.settings, core, {}, now_ms))


async def test_doctor_counts_who_is_linked_by_e_mail_where_the_settings_allow_it(tmp_path: Path) -> None:
    async with running_bot(tmp_path, channels=CHANNELS[:2]) as env, CoreClient(env.core.url, env.service_key) as core:
        await env.core.core.people.add("nina", "analyst", clearance=0)

        async def counted(*, by_email: bool) -> set[tuple[str, str]]:
            slack = env.settings.slack.model_copy(update={"link_by_email": by_email})
            checks = await doctor.checks(env.settings.model_copy(update={"slack": slack}), core, {}, now_ms)
            return {(check.name, check.message.split(",")[0]) for check in checks if check.name[:2] in ("pe", "me")}

        assert await counted(by_email=False) == {("people", "4 of 5 in the channels are linked")}
        sees_less = (f"members of #{SOC[2:].lower()}", "1 member may see less than TLP:AMBER")
        assert await counted(by_email=True) == {("people", "5 of 5 in the channels are linked"), sees_less}


async def test_doctor_says_what_scopes_cost_that_were_left_out_and_which_must_not_be(tmp_path: Path) -> None:
    manifest = yaml.safe_load((ROOT / "manifest.yml").read_text())
    scopes = manifest["oauth_config"]["scopes"]["bot"]

    async def told(left_out: Collection[str]) -> tuple[bool, str]:
        granted = {**manifest, "oauth_config": {"scopes": {"bot": [name for name in scopes if name not in left_out]}}}
        async with SlackEmulator(granted, rates=False) as emulator:
            slack = {"bot_token": emulator.bot_token, "app_token": emulator.app_token, "api_url": emulator.api_url}
            settings = parse_settings({"slack": slack, "bot": {"core_url": "http://127.0.0.1:9"}}, tmp_path)
            async with CoreClient(settings.bot.core_url, "") as core:
                checks = await doctor.checks(settings, core, manifest, now_ms)
        return next((check.ok, check.message) for check in checks if check.name == "scopes")

    assert await told([]) == (True, f"all {len(scopes)} are there")
    well, message = await told(doctor.LEFT_OUT)
    assert (well, message.count("without ")) == (True, len(doctor.LEFT_OUT))
    assert "without im:history, a message to a person" in message
    needed = "missing: chat:write; reinstall the app from manifest.yml"
    assert await told(["chat:write", "im:history"]) == (False, needed)


async def test_doctor_names_the_checks_that_fail(tmp_path: Path) -> None:
    async with running_bot(tmp_path, channels=CHANNELS[:2]) as env, CoreClient(env.core.url, env.service_key) as core:
        well = await doctor.checks(env.settings, core, {}, now_ms)
        assert [check for check in well if not check.ok] == []
        assert {"core", "key", "token", "clock", "files", "socket", f"channel #{SOC[2:].lower()}", "people"} <= {
            c.name for c in well
        }
        assert env.bot.health_server is not None
        port = int(env.bot.health_server.url.rpartition(":")[2])
        own = env.settings.bot.model_copy(update={"health_port": port})
        told = await doctor.checks(env.settings.model_copy(update={"bot": own}), core, {}, now_ms)
        assert next(check.message for check in told if check.name == "replicas").endswith(" sends")
        assert len({check.name for check in told}) == len(told)
        wrong = env.settings.slack.model_copy(update={"app_token": "xapp-wrong"})
        ill = await doctor.checks(env.settings.model_copy(update={"slack": wrong}), core, {}, now_ms)
        assert [check.name for check in ill if not check.ok] == ["socket"]
        for code in ("missing_scope", "unknown_method"):
            env.emulator.faults.error("files.getUploadURLExternal", code)
            (refused,) = [check for check in await doctor.checks(env.settings, core, {}, now_ms) if not check.ok]
            assert (refused.name, code in refused.message, "files:write" in refused.message) == ("files", True, True)
        away = env.settings.slack.model_copy(update={"api_url": "http://127.0.0.1:9/api/"})
        ill = await doctor.checks(env.settings.model_copy(update={"slack": away}), core, {}, now_ms)
        socket = next(check.message for check in ill if check.name == "socket")
        assert socket.startswith("Slack can't be reached (")
        async with CoreClient(env.core.url, await env.core.key("analyst")) as no_service:
            ill = await doctor.checks(env.settings, no_service, {}, now_ms)
        assert [check.name for check in ill if not check.ok] == ["key"]
        env.emulator.uninstall()
        ill = await doctor.checks(env.settings, core, {}, now_ms)
        assert "token" in [check.name for check in ill if not check.ok]
