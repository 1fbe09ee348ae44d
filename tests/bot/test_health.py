"""If the log, the database or a worker breaks, people are still answered, and `/health` reports it."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from bot.app.workers import Workers
from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from core.common.errors import ResponderBotError
from tests import programs
from tests.bot.people import Person, card_of
from tests.bot.running import ALERT, ANNA, SOC, add_people_and_channels, running_bot
from tests.bot.serving import SETTINGS, output_after, serving, started, user_added
from tests.ports import free_port


async def test_worker_is_restarted_however_it_ends() -> None:
    workers = Workers()
    runs, again = 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("broken")
        if runs == 2:
            raise asyncio.CancelledError
        if runs == 3:
            raise ResponderBotError("unavailable", "The disk is full.")  # which the check of the store tells
        again.set()
        await asyncio.Event().wait()

    assert workers.problem() == ""
    workers.start(work, every_s=0)
    await again.wait()
    assert workers.restarts == 2
    assert "2 times" in workers.problem()
    await workers.close()
    assert runs == 4


async def test_restarts_of_workers_are_reported_for_five_minutes() -> None:
    now = 0.0
    workers = Workers(seconds=lambda: now)
    first, second = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        if not first.is_set():
            first.set()
            raise ValueError("broken")
        second.set()
        await asyncio.Event().wait()

    workers.start(work, every_s=0)
    await second.wait()
    assert workers.problem()
    now = 301.0
    assert workers.problem() == ""
    await workers.close()


async def probed(folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of `responder-bot health`, and what it prints."""
    process = await started(folder, ["health"], environment, asyncio.subprocess.DEVNULL)
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_the_bots_metrics_ask_for_their_token_where_one_is_set(tmp_path: Path) -> None:
    port = free_port()
    environment = {"RESPONDER_BOT_CORE_METRICS_TOKEN": "s3cret", "RESPONDER_BOT_BOT_HEALTH_PORT": str(port)}
    async with (
        serving(tmp_path, fault=lambda _: None, **environment) as (_, _, process),
        aiohttp.ClientSession() as http,
    ):
        await output_after(process, "bot: ")
        url = f"http://127.0.0.1:{port}/metrics"
        for token, status in (("", 401), ("s3cre", 401), ("s3cret", 200)):
            async with http.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}) as response:
                assert (response.status, "responder_bot_leads" in await response.text()) == (status, status == 200)


async def failed(folder: Path, environment: Mapping[str, str]) -> str:
    """What the probe prints, once it fails: a store is tried once a second."""
    while (result := await probed(folder, environment))[0] == 0:
        pass
    return result[1]


@pytest.mark.sqlite
async def test_a_probe_asks_core_or_a_bot_that_runs_alone(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        assert env.bot.health_server is not None
        core, bot = (url.rpartition(":")[2] for url in (env.core.url, env.bot.health_server.url))
        of_core = {"RESPONDER_BOT_CORE_PORT": core}
        of_bot = {"RESPONDER_BOT_BOT_CORE_URL": "https://core.example:9000", "RESPONDER_BOT_BOT_HEALTH_PORT": bot}
        assert await probed(tmp_path, of_core) == (0, "ok\n")
        assert await probed(tmp_path, of_bot) == (0, "ok\n")
        (tmp_path / "core.db").unlink()
        assert (await failed(tmp_path, of_bot)).startswith("store: core.db was removed or replaced")
        assert (await failed(tmp_path, of_core)).startswith("core.db was removed or replaced")
    sentence = f"127.0.0.1:{core}/readyz gives no answer ([Errno 111] Connection refused); see whether responder-bot"
    assert await probed(tmp_path, of_core) == (1, f"{sentence} runs here.\n")


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ["core.db", "core.db-wal", "core.db-inbox"])
async def test_deleted_database_is_reported_and_nothing_runs(tmp_path: Path, name: str) -> None:
    async with running_bot(tmp_path) as env, aiohttp.ClientSession() as session:
        anna, alert_id, _ = await env.first_card()
        (tmp_path / name).unlink()
        await anna.command(SOC, f"/responder run ResponderBot_ExtractIndicators {alert_id}")
        # A busy core may let the client wait until it can't know any more whether something was run.
        away = "isn't answering. Nothing was run|may have started"
        refusal = "can't be used now" if name.endswith("inbox") else away
        await anna.until(lambda view: [m for m in view.ephemerals(SOC) if re.search(refusal, m["text"])])
        if name.endswith("inbox"):
            assert await env.client.actions("alert", alert_id) == []
        assert env.bot.health_server is not None
        async with session.get(env.bot.health_server.url + "/health") as answer:
            assert answer.status == 503
            health = await answer.json()
        async with session.get(env.bot.health_server.url + "/metrics") as answer:
            assert answer.status == 200
        assert health["status"] == "down"
        store = next(part for part in health["parts"] if part["name"] == "store")
        assert store["message"].startswith(f"{name} was removed")


async def test_commands_are_answered_if_the_log_cannot_be_written(tmp_path: Path) -> None:
    """Each refused command writes a log line; there are more of them than workers."""
    port = free_port()
    (tmp_path / "responder-bot.toml").write_text(f"{SETTINGS}\n[bot]\nhealth_port = {port}\n")
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    reading, writing = os.pipe()
    os.close(reading)
    async with emulator, Person(emulator.url, emulator.page_token, ANNA) as anna:
        slack = {
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "SLACK_API_URL": emulator.api_url,
        }
        key = await user_added(tmp_path, "anna", "analyst", "--slack-id", ANNA)
        process = await programs.start(
            *("bot.cli", "serve"),
            cwd=tmp_path,
            env={**os.environ, **slack},
            stdout=asyncio.subprocess.PIPE,
            stderr=writing,
        )
        os.close(writing)
        try:
            core = await output_after(process, "core: ")
            await output_after(process, "bot: ")
            async with CoreClient(core, key) as client:
                alert_id = (await client.create_alert(ALERT)).id
                await anna.sees(card_of(alert_id))
                for count in range(1, 41):
                    await anna.command(SOC, "/responder run NoSuchResponder ~999999")
                    await anna.until(lambda view, count=count: len(view.ephemerals(SOC)) >= count)  # type: ignore[misc] # bound here
                await anna.command(SOC, f"/responder run ResponderBot_ExtractIndicators {alert_id}")
                while not await client.actions("alert", alert_id):
                    await client.events(0, 1)
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/health") as answer:
                health = await answer.json()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert health["status"] == "degraded"
    log = next(part for part in health["parts"] if part["name"] == "log")
    assert "Broken pipe" in log["message"]
    assert not [part for part in health["parts"] if part["name"] == "workers"]
