"""Bots on several hosts, as processes on one database: the leader is killed or frozen, and another one goes on."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bot.outbox.replicas import LEASE_MS, LOOK_MS, RENEW_MS
from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from core.common.clock import DAY_MS, now_ms
from core.common.database import Database, Dialect
from core.common.settings_file import RetentionSection
from core.retention.pruning import Retention
from core.settings import ResponderSection
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.people import Person, card_of, modal
from tests.bot.running import ALERT, ANNA, SOC, add_people_and_channels, add_users
from tests.bot.running import PEOPLE as EVERYBODY
from tests.bot.serving import ROOT, output_after
from tests.core.core_process import until
from tests.core.running import running_core

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
CLOSED = "false positive"
SETTINGS = """
[[channel]]
id = "C0SOC"
clearance = "amber"
alerts = {}
group = false
"""
# A process in a PID namespace of its own can't be seen to be dead from others, like one on another host.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child")


@cache
def can_be_elsewhere() -> bool:
    try:
        return subprocess.run([*ELSEWHERE, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


@dataclass
class Hosts:
    """Emulator and core, and bots on one database, each a process as on a host of its own."""

    folder: Path
    emulator: SlackEmulator
    core: CoreClient
    database: Database
    """Core's."""
    proxy: CoreProxy
    environment: dict[str, str]
    anna: Person
    bots: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, **settings: str) -> tuple[asyncio.subprocess.Process, str]:
        """Start a bot, with more variables as `settings`. Returns its process, and where its health is."""
        command = [sys.executable, "-m", "bot.cli", "bot"]
        with open(self.folder / f"bot{len(self.bots)}.log", "wb") as log:  # noqa: ASYNC230  # at once
            process = await asyncio.create_subprocess_exec(
                *(ELSEWHERE if can_be_elsewhere() else ()),
                *command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment, **settings},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self.bots.append(process)
        line = await output_after(process, "bot: ")
        return process, line.rpartition(" at ")[2]

    async def alert(self, **changes: Any) -> str:
        return (await self.core.create_alert({**ALERT, **changes})).id

    async def card(self, alert_id: str, words: str = "") -> dict[str, Any]:
        return await self.anna.until(lambda view: card_of(alert_id, words)(view) or {}, 60)


@asynccontextmanager
async def hosts(folder: Path, transport: str) -> AsyncIterator[Hosts]:
    (folder / "responder-bot.toml").write_text(SETTINGS)
    emulator, proxy = SlackEmulator(rates=False), CoreProxy()
    add_people_and_channels(emulator)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(emulator)
        anna = await stack.enter_async_context(Person(emulator.url, emulator.page_token, ANNA))
        core = await stack.enter_async_context(running_core(folder, responder={CLOSE: ResponderSection(confirm="")}))
        service = await add_users(core, EVERYBODY)
        client = await stack.enter_async_context(CoreClient(core.url, await core.key("org-admin", "admin")))
        environment = {
            "RESPONDER_BOT_BOT_CORE_URL": await stack.enter_async_context(proxy.serve(core.url)),
            "RESPONDER_BOT_BOT_CORE_API_KEY": service,
            "RESPONDER_BOT_CORE_DATABASE": stores.setting(folder / "core.db"),
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_API_URL": emulator.api_url,
            "RESPONDER_BOT_SLACK_PORT": "0",
        }
        if transport == "socket":
            environment["SLACK_APP_TOKEN"] = emulator.app_token
        else:
            environment["SLACK_SIGNING_SECRET"] = emulator.signing_secret
        made = Hosts(folder, emulator, client, core.core.database, proxy, environment, anna)
        try:
            yield made
        finally:
            for process in made.bots:
                if process.returncode is None:
                    process.kill()
                await process.communicate()  # until its children, too, have closed its output


def test_the_lease_lets_the_next_true_card_come_within_ten_seconds() -> None:
    # The next leader sees the last renewal and the end of the lease one look later each; 2 s are for the card itself.
    assert LEASE_MS + 2 * LOOK_MS + 2_000 <= 10_000
    assert 2 * RENEW_MS < LEASE_MS  # one renewal may fail


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["socket", "http"])
async def test_another_bot_goes_on_where_the_leader_was_killed(tmp_path: Path, transport: str) -> None:
    async with hosts(tmp_path, transport) as here:
        first, address = await here.start()
        here.emulator.requests_url = address if transport == "http" else None
        one = await here.alert()
        await here.card(one)
        here.proxy.hold("POST /api/connector/engine/action")
        await here.anna.command(SOC, f"/responder run {CLOSE} {one}")  # acknowledged, and under way
        await asyncio.wait_for(here.proxy.request_held.wait(), 30)
        for process in (first.pid, *children_of(first.pid)):  # it would give up the request, were the start long
            os.kill(process, signal.SIGSTOP)
        _, address = await here.start()
        here.emulator.requests_url = address if transport == "http" else None
        first.kill()
        killed_at = time.monotonic()
        await first.wait()
        here.proxy.release()
        two = await here.alert(sourceRef="while nobody leads")
        await here.card(two)
        print(f"true card {time.monotonic() - killed_at:.1f} s after kill -9 ({transport})")  # noqa: T201  # measured
        await here.card(one, "*closed*")
        card = await here.card(one)
        await here.anna.until(lambda view: CLOSED in str(view.thread(SOC, card["ts"])))
        (action,) = await here.core.actions("alert", one)
        assert (action.status, action.created_by) == ("Success", "anna@responder-bot.local")
        assert len([m for m in await here.anna.messages(SOC) if not m.get("ephemeral")]) == 2


@pytest.mark.slow
async def test_a_leader_that_was_frozen_comes_back_and_changes_nothing(tmp_path: Path) -> None:
    async with hosts(tmp_path, "socket") as here:
        frozen, _ = await here.start()
        one = await here.alert()
        await here.card(one)
        await here.start()
        processes = [frozen.pid, *children_of(frozen.pid)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            frozen_at = time.monotonic()
            await here.core.close_alerts([one])
            await here.card(one, "*closed*")
            print(f"true card {time.monotonic() - frozen_at:.1f} s after SIGSTOP")  # noqa: T201  # measured
            two = await here.alert(sourceRef="while it is frozen")
            before = await here.card(two)
            calls = len(here.emulator.traffic)
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)
        three = await here.alert(sourceRef="when it is back")
        await here.card(three)
        await here.core.mark_alert_unread(one)
        await here.core.close_alerts([three])
        await here.card(three, "*closed*")
        sent = [call for call in here.emulator.traffic[calls:] if call[1] in ("chat.postMessage", "chat.update")]
        assert [call[1] for call in sent].count("chat.postMessage") == 1
        assert await here.card(two) == before
        assert len([m for m in await here.anna.messages(SOC) if not m.get("ephemeral")]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_no_card_lies_after_a_failover_in_the_middle_of_retention(tmp_path: Path, dialect: Dialect) -> None:
    """Core deletes closed alerts while the bot that leads is killed; the next one forgets their messages."""
    with stores.using(dialect):
        async with hosts(tmp_path, "socket") as here:
            first, _ = await here.start()
            alerts = [await here.alert(sourceRef=str(number)) for number in range(12)]
            cards = {alert: await here.card(alert) for alert in alerts}
            closed, open_ = alerts[:10], alerts[10:]
            for alert in closed:
                await here.core.close_alerts([alert])
                cards[alert] = await here.card(alert, "*closed*")
            stores.rows(tmp_path / "core.db", f"UPDATE message SET created_at = created_at - {2 * DAY_MS}")  # noqa: S608
            await here.start(RESPONDER_BOT_RETENTION_MESSAGE_DAYS="1")
            section = RetentionSection(alert_days=90)
            core = Retention(here.database, lambda: now_ms() + 91 * DAY_MS, section, step_s=0, pause_s=0.05)
            pruning = asyncio.create_task(core.prune())
            while core.counts["alert"] < 5:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0)
            first.kill()
            assert (await pruning)["alert"] == len(closed)
            await here.core.close_alerts([open_[0]])
            await here.card(open_[0], "*closed*")
            of_open = await until(lambda: forgotten(tmp_path / "core.db", closed), "their messages are forgotten")
            assert of_open == set(open_)
            for alert in closed:
                assert await here.card(alert) == cards[alert]
            assert await here.card(open_[1]) == cards[open_[1]]
            old = cards[closed[0]]
            await here.anna.chooses("Details", old)
            told = await here.anna.sees(modal("from long ago"))
            assert "Nothing was run" in str(told)
            await here.anna.presses("Show again", told)
            await here.anna.sees(modal(f"{closed[0]} was deleted"))


def forgotten(database: Path, alerts: list[str]) -> set[str]:
    """The alerts that the bot has messages of, once there are none of these."""
    left = {row[0] for row in stores.rows(database, "SELECT root_id FROM message WHERE root_id <> ''")}
    return set() if left & set(alerts) else left


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [child for one in text.split() for child in (int(one), *children_of(int(one)))]
