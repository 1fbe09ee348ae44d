"""What many users, responders and channels and a long report cost, beside few and a short one, by processor time."""

import asyncio
import json
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, NOW, SERVICE_KEY, fill
from tests.bench.large_store import megabytes
from tests.bench.load import LoadMeter, request
from tests.bench.processes import CLIENT_CPUS, ServerProcess, serving
from tests.bench.responder_runs import RESPONDERS

FEW_USERS, FEW_RESPONDERS, FEW_CHANNELS = 10, 10, 3
MANY_CHANNELS = 300
LISTED_ACTIONS, LISTED_RESPONDERS = "/api/connector/engine/action/alert/~1", "/api/connector/engine/responder/alert/~1"
REPORTS: Mapping[str, int] = {"1 kB": 1_000, "3 MB": 3_000_000, "10 MB": 10_000_000}
"""Bytes: core reads at most 4 MiB of a report and keeps 1 MiB of it; a longer one ends as a Failure."""
REPORT_ALERTS = {name: number for number, name in enumerate(REPORTS, 1)}
POLL_S = 0.02


async def measure(folder: Path, scale: Scale) -> list[Row]:
    users, responders = scale.alerts // 100, max(scale.alerts // 1_000, 2 * FEW_RESPONDERS)
    return [
        *await _with_users(folder / "users", users, scale),
        *await _with_responders(folder / "responders", responders, scale),
        *await _with_channels(folder / "channels", scale),
        *await _with_reports(folder / "reports", scale),
    ]


def _rows(
    what: str, of: str, found: Mapping[int, Sequence[Sample]], few: int, many: int, goal: Goal | None = None
) -> Row:
    samples = {f"{count:,} {of}": samples for count, samples in found.items()}
    ours, peer = f"{many:,} {of}", f"{few:,} {of}"
    return comparison.row(f"{what}, {ours}", samples, ours, peer, comparison.milliseconds, goal)


def _memory(what: str, of: str, servers: Mapping[int, ServerProcess], few: int, many: int) -> Row:
    samples = {f"{count:,} {of}": [server.memory_mb()] for count, server in servers.items()}
    ours, peer = f"{many:,} {of}", f"{few:,} {of}"
    return comparison.row(f"memory of {what}, {ours}", samples, ours, peer, megabytes)


async def _with_users(folder: Path, many: int, scale: Scale) -> list[Row]:
    """Each request comes through the bot's key for one of them."""
    meter = LoadMeter()
    async with AsyncExitStack() as stack:
        servers, requests = {}, {}
        for count in (FEW_USERS, many):
            path = folder / str(count) / "core.db"
            await asyncio.to_thread(fill, path, 1, 10)
            _add_users(path, count)
            servers[count] = await stack.enter_async_context(serving("servers.core", path.parent, mode="never_ends"))
            chosen = random.choices(range(count), k=200)  # noqa: S311 - who reads
            requests[count] = [_as_user(servers[count], number) for number in chosen]
        await comparison.interleaved(
            {
                str(count): partial(meter.median_s, str(count), server, requests[count], seconds=scale.seconds)
                for count, server in servers.items()
            },
            scale.rounds,
        )
        memory = _memory("core", "users", servers, FEW_USERS, many)
    found = {count: meter.cpu_s_per_answer[str(count)][1:] for count in servers}
    return [_rows("list an alert's 10 actions", "users", found, FEW_USERS, many, Goal("at most", 1.5)), memory]


def _add_users(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            'INSERT INTO "user" (login, profile, clearance, disabled, created_at) VALUES (?, ?, 3, 0, ?)',
            ((_login(n), "analyst", NOW) for n in range(count)),
        )
        links = ((f"U{n:08}", _login(n)) for n in range(count))
        database.executemany("INSERT INTO slack_link (team, slack_user, login) VALUES ('T0BENCH', ?, ?)", links)


def _login(number: int) -> str:
    return f"person-{number}@responder-bot.local"


def _as_user(server: ServerProcess, number: int) -> bytes:
    headers = {"Authorization": f"Bearer {SERVICE_KEY}", "X-On-Behalf-Of": _login(number)}
    return request("GET", server.url, LISTED_ACTIONS, headers=headers)


async def _with_responders(folder: Path, many: int, scale: Scale) -> list[Row]:
    """The list has them all; core reads their definitions again each minute."""
    meter = LoadMeter()
    async with AsyncExitStack() as stack:
        servers = {}
        for count in (FEW_RESPONDERS, many):
            own = folder / str(count)
            await asyncio.to_thread(fill, own / "core.db", 1, 10)
            await asyncio.to_thread(_define, own / "responders", count)
            servers[count] = await stack.enter_async_context(
                serving("servers.core", own, **_engine(own / "responders"))
            )
        for path in (LISTED_RESPONDERS, LISTED_ACTIONS):
            trials = {}
            for count, server in servers.items():
                asked = [request("GET", server.url, path, headers={"Authorization": f"Bearer {KEY}"})]
                name = f"{path} {count}"
                trials[name] = partial(meter.median_s, name, server, asked, seconds=scale.seconds)
            await comparison.interleaved(trials, scale.rounds)
        memory = _memory("core", "responders", servers, FEW_RESPONDERS, many)
    rows = []
    for what, path, goal in (
        ("list an alert's 10 actions", LISTED_ACTIONS, Goal("at most", 1.5)),
        ("list all responders", LISTED_RESPONDERS, Goal("at most", many / FEW_RESPONDERS)),
    ):
        found = {count: meter.cpu_s_per_answer[f"{path} {count}"][1:] for count in servers}
        rows.append(_rows(what, "responders", found, FEW_RESPONDERS, many, goal))
    return [*rows, memory]


def _engine(responders: Path) -> dict[str, Any]:
    engine = {"name": "local", "python": sys.executable, "responders": [responders]}
    return {"engines": [engine], "core": {"confinement": "none"}}


def _define(folder: Path, count: int) -> None:
    definition = json.loads((RESPONDERS / "Reporting" / "Reporting.json").read_text())
    program = (RESPONDERS / "Reporting" / "reporting.sh").read_text()
    for number in range(count):
        name = f"Responder{number}"
        own = folder / name
        own.mkdir(parents=True)
        (own / f"{name}.json").write_text(json.dumps({**definition, "name": name, "command": f"{name}/run.sh"}))
        (own / "run.sh").write_text(program)
        (own / "run.sh").chmod(0o755)


async def _with_channels(folder: Path, scale: Scale) -> list[Row]:
    """Alerts come to three channels, one for each source, however many there are."""
    async with AsyncExitStack() as stack:
        benches = {
            count: await stack.enter_async_context(_channels(folder / str(count), count))
            for count in (FEW_CHANNELS, MANY_CHANNELS)
        }
        found = await comparison.interleaved(
            {str(count): partial(bench.sample, scale.calls // 20 or 1) for count, bench in benches.items()},
            scale.rounds,
        )
        bots = {count: bench.bot for count, bench in benches.items()}
        memory = _memory("the bot", "channels", bots, FEW_CHANNELS, MANY_CHANNELS)
    of_bot = {count: found[str(count)] for count in benches}
    what = "card of a new alert, the bot's time"
    return [_rows(what, "channels", of_bot, FEW_CHANNELS, MANY_CHANNELS, Goal("at most", 1.5)), memory]


class _Channels:
    """A bot whose channels each take the alerts of one source."""

    def __init__(self, emulator: SlackEmulator, core: CoreClient, bot: ServerProcess) -> None:
        self._emulator, self._core, self.bot = emulator, core, bot
        self._sent = 0

    async def sample(self, alerts: int) -> Sample:
        """The bot's processor time for the card of an alert."""
        before = self.bot.cpu_s()
        for _ in range(alerts):
            source = f"source-{self._sent % FEW_CHANNELS}"
            self._sent += 1
            await self._core.create_alert(
                {"type": "siem", "source": source, "sourceRef": f"{self._sent}", "title": "Scan", "description": "d"}
            )
        while len([one for one in self._emulator.traffic if one[1] == "chat.postMessage"]) < self._sent:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return (self.bot.cpu_s() - before) / alerts


@asynccontextmanager
async def _channels(folder: Path, count: int) -> AsyncIterator[_Channels]:
    await asyncio.to_thread(fill, folder / "core" / "core.db", 1, 0)
    emulator = SlackEmulator(team_id="T0BENCH", rates=False)
    ids = [f"C{number:06}" for number in range(count)]
    for number, channel in enumerate(ids):
        emulator.add_channel(channel, name=f"channel-{number}", members=[emulator.bot_user_id])
    channels = [
        {"id": channel, "clearance": "amber", "alerts": {"sources": [f"source-{number}"]}, "group": False}
        for number, channel in enumerate(ids)
    ]
    async with emulator:
        slack = {
            "bot_token": emulator.bot_token,
            "signing_secret": emulator.signing_secret,
            "api_url": emulator.api_url,
        }
        async with (
            serving("servers.core", folder / "core", cpus=CLIENT_CPUS, mode="never_ends") as core,
            CoreClient(core.url, KEY) as client,
            serving(
                "servers.bot",
                folder / "bot",
                slack=slack,
                channels=channels,
                core_url=core.url,
                core_key=SERVICE_KEY,
                database=folder / "core" / "core.db",
            ) as bot,
        ):
            yield _Channels(emulator, client, bot)


async def _with_reports(folder: Path, scale: Scale) -> list[Row]:
    """Core's own time, without that of the program."""
    await asyncio.to_thread(fill, folder / "core.db", len(REPORTS), 0)
    async with serving("servers.core", folder, **_engine(RESPONDERS)) as core, CoreClient(core.url, KEY) as client:
        (responder,) = [one.id for one in await client.responders("alert", "~1") if one.name == "Bench_Reporting_1_0"]
        found = await comparison.interleaved(
            {name: partial(_run, core, client, responder, name, scale.runs // 5 or 1) for name in REPORTS},
            scale.rounds,
        )
    return [
        comparison.row(f"run with a report of {name}", found, name, "1 kB", comparison.milliseconds)
        for name in REPORTS
        if name != "1 kB"
    ]


async def _run(core: ServerProcess, client: CoreClient, responder: str, size: str, runs: int) -> Sample:
    alert = f"~{REPORT_ALERTS[size]}"
    asked = {"responderId": responder, "objectType": "alert", "objectId": alert, "parameters": {"bytes": REPORTS[size]}}
    before = core.cpu_s()
    for _ in range(runs):
        action = await client.run(asked)
        while action.end_date is None:
            action = await client.action(action.id, wait_s=20)
    return (core.cpu_s() - before) / runs
