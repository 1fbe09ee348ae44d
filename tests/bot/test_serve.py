"""`responder-bot serve`: core and bot in one process, killed and started again."""

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests import stores
from tests.bot.people import Person, card_of
from tests.bot.running import ALERT, ANNA, SOC, add_people_and_channels
from tests.bot.serving import SETTINGS, output_after, script, serving, started, user_added
from tests.core.running import running_core
from tests.programs import AnyProcess


async def test_bot_exits_at_once_if_core_refuses_its_key(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for key, words in (
            ("wrong", "core refuses it (Authentication failure); make one: "),
            (await core.key("analyst"), "it is that of analyst@responder-bot.local, who may not act for people; "),
        ):
            environment = {"RESPONDER_BOT_BOT_CORE_URL": core.url, "RESPONDER_BOT_BOT_CORE_API_KEY": key}
            tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
            process = await started(tmp_path, ["bot"], {**environment, **tokens}, asyncio.subprocess.PIPE)
            out, err = await process.communicate()
            assert (process.returncode, out) == (2, b"")
            assert err.decode().startswith(f"[bot] core_api_key: {words}")
            assert err.decode().count("\n") == 1


async def test_a_bot_alone_follows_the_level_of_the_log(tmp_path: Path) -> None:
    emulator = SlackEmulator(rates=False)
    async with emulator, running_core(tmp_path) as core:
        environment = {
            "RESPONDER_BOT_BOT_CORE_URL": core.url,
            "RESPONDER_BOT_BOT_CORE_API_KEY": await core.key("service", "bot"),
            "RESPONDER_BOT_CORE_DATABASE": stores.setting(tmp_path / "core.db"),
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "SLACK_API_URL": emulator.api_url,
        }
        for level, events in (("info", ["slack_connected"]), ("warning", [])):
            leveled = {**environment, "RESPONDER_BOT_CORE_LOG_LEVEL": level}
            process = await started(tmp_path, ["bot"], leveled, asyncio.subprocess.PIPE)
            assert await output_after(process, "bot: ") == "connected"
            process.terminate()
            _, err = await process.communicate()
            assert [json.loads(line)["event"] for line in err.splitlines()] == events


async def logged(process: AnyProcess, event: str) -> dict[str, Any]:
    """The next line of the log with this event, or any if that is empty."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        entry: dict[str, Any] = json.loads(line)
        if event in ("", entry["event"]):
            return entry
    raise AssertionError(f"ended without the log line {event!r}")


async def bots_health(client: CoreClient) -> tuple[str, str]:
    """Core's status, and what it says of the bot."""
    health = await client.health()
    return health["status"], next((part["message"] for part in health["parts"] if part["name"] == "bot"), "")


def refuse_connection(emulator: SlackEmulator) -> None:
    emulator.faults.fail("apps.connections.open")


def lose_connection(emulator: SlackEmulator) -> None:
    emulator.faults.lose_answer("apps.connections.open")


def fail_auth_for_18_s(emulator: SlackEmulator) -> None:
    emulator.faults.fail("auth.test", times=6)


@pytest.mark.parametrize(
    "fault", [refuse_connection, lose_connection, pytest.param(fail_auth_for_18_s, marks=pytest.mark.slow)]
)
async def test_core_takes_alerts_while_slack_fails_and_the_bot_shows_them_later(
    tmp_path: Path, fault: Callable[[SlackEmulator], None]
) -> None:
    async with (
        serving(tmp_path, fault=fault) as (emulator, client, process),
        Person(emulator.url, emulator.page_token, ANNA) as anna,
    ):
        assert (await logged(process, "listening"))["version"] == version("responder-bot")
        entry = await logged(process, "slack_not_connected")
        assert entry["level"] == "warning"
        alert_id = (await client.create_alert(ALERT)).id
        await output_after(process, "bot: ")
        await anna.sees(card_of(alert_id))
        await anna.command(SOC, f"/responder list {alert_id}")
        await anna.until(lambda view: view.modal)


async def test_core_takes_alerts_while_slack_does_not_answer(tmp_path: Path) -> None:
    answered = asyncio.Event()

    def hold(emulator: SlackEmulator) -> None:
        emulator.faults.hold("apps.connections.open", answered)

    async with (
        serving(tmp_path, fault=hold) as (emulator, client, process),
        Person(emulator.url, emulator.page_token, ANNA) as anna,
    ):
        while await bots_health(client) != ("degraded", "socket: not connected to Slack; it is tried again"):
            pass
        alert_id = (await client.create_alert(ALERT)).id
        await anna.sees(card_of(alert_id))
        answered.set()
        await output_after(process, "bot: ")


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-wrong"}, "Slack refuses the bot's token (invalid_auth); put a valid one into "),
        ({"SLACK_APP_TOKEN": "xapp-wrong"}, "Slack refuses the app token (invalid_auth); make an app-level token "),
    ],
)
async def test_core_serves_and_says_which_token_is_wrong(
    tmp_path: Path, token: Mapping[str, str], sentence: str
) -> None:
    async with serving(tmp_path, fault=lambda _: None, **token) as (_, client, process):
        entry = await logged(process, "slack_not_connected")
        assert (entry["level"], entry["reason"][: len(sentence)]) == ("error", sentence)
        status, message = await bots_health(client)
        assert (status, message.startswith(f"socket: {sentence}")) == ("degraded", True)
        assert (await client.create_alert(ALERT)).id


async def test_bot_connects_again_after_slack_lost_the_connection(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, fault=lambda _: None) as (emulator, client, process),
        Person(emulator.url, emulator.page_token, ANNA) as anna,
    ):
        await logged(process, "slack_connected")
        emulator.faults.fail("apps.connections.open", times=2)
        emulator.drop_connections()
        await logged(process, "slack_lost")
        await logged(process, "slack_connected")
        alert_id = (await client.create_alert(ALERT)).id
        await anna.sees(card_of(alert_id))
        await anna.command(SOC, f"/responder list {alert_id}")
        await anna.until(lambda view: view.modal)


async def test_one_request_id_follows_a_command_to_the_card_that_shows_its_end(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, fault=lambda _: None) as (emulator, client, process),
        Person(emulator.url, emulator.page_token, ANNA) as anna,
    ):
        await logged(process, "slack_connected")
        alert_id = (await client.create_alert(ALERT)).id
        await anna.sees(card_of(alert_id))
        await anna.command(SOC, f"/responder run ResponderBot_ExtractIndicators {alert_id}")
        typed = await logged(process, "interaction")
        assert (typed["type"], typed["feature"], typed["user"]) == ("command", "runs", ANNA)
        found: dict[str, dict[str, Any]] = {}
        while typed["request_id"] not in found.get("cards_rendered", {}).get("request_ids", ()) or (
            "run_ended" not in found
        ):
            entry = await logged(process, "")
            found[entry["event"]] = entry
        action = (await client.actions("alert", alert_id))[0].id
        for event in ("run_requested", "run_started", "run_ended"):
            assert (found[event]["action"], found[event]["root"]) == (action, alert_id)
            assert found[event]["request_id"] == typed["request_id"]
        assert found["run_requested"]["login"] == "anna@responder-bot.local"
        assert (found["run_ended"]["outcome"], found["cards_rendered"]["root"]) == ("succeeded", alert_id)


@pytest.mark.slow
async def test_restart_after_sigkill_posts_what_came_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").write_text(SETTINGS)
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    async with emulator, Person(emulator.url, emulator.page_token, ANNA) as anna:
        slack = {
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "SLACK_API_URL": emulator.api_url,
        }
        key = await user_added(tmp_path, "anna", "analyst", "--slack-id", ANNA)
        first = await script(tmp_path, "serve", **slack)
        core = await output_after(first, "core: ")
        await output_after(first, "bot: ")
        async with CoreClient(core, key) as client:
            one = (await client.create_alert(ALERT)).id
            await anna.sees(card_of(one))
            two = (await client.create_alert({**ALERT, "sourceRef": "just before the end"})).id
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await script(tmp_path, "serve", **slack)
        await output_after(second, "bot: ")
        await anna.sees(card_of(two))
        await anna.command(SOC, f"/responder list {two}")
        await anna.until(lambda view: view.modal)
        cards = [m["text"] for m in await anna.messages(SOC) if not m.get("ephemeral")]
        assert len(cards) == 2
        drain = await script(tmp_path, "drain")
        assert await drain.wait() == 0
        assert await second.wait() == 0  # it runs nothing, so it ends
