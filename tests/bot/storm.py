"""A storm of alerts against core and bot as processes of their own, and the emulator at Slack's published rates.

`uv run python -m tests.bot.storm 10000 60` posts 10,000 low alerts in 60 s, then a critical one, and prints what that
took. `--kill` kills core and bot in the middle, `--alike 0.5` lets half of the alerts say the same, `--more 90000`
posts so many more afterwards to compare memory.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.features.runs.views import runs
from bot.slack_emulator import EmulatorView, SlackEmulator
from bot.slack_emulator.elements import all_blocks
from core.client import CoreClient
from core.common.errors import ResponderBotError
from tests.bot.chaos import CHANNELS, SOURCES, BotProcess, Installation, installation, start_process
from tests.bot.people import Person, menu_block
from tests.bot.running import ALERT, ANNA, add_people_and_channels
from tests.bot.serving import ROOT

STORM, QUIET = CHANNELS[0], CHANNELS[1]
DONE = runs.MARKS["succeeded"]
PAGE_S = 0.2
CLICKS = 8
CLICK_S = 4.0  # from one to the next: each changes its card twice or more, and Slack takes 50 updates a minute
LOW, CRITICAL = 1, 4
AT_ONCE = 64
STANDS_S = 300.0


@dataclass(frozen=True)
class Click:
    """Seconds from a click to its acknowledgement and to the final status, and of the latter those of the run."""

    acknowledged: float
    final: float
    run: float
    """From the engine's start of the program to its end."""


@dataclass
class Figures:
    """What a storm took; times in seconds, memory in MiB."""

    alerts: int = 0
    posting: float = 0.0
    critical: float = 0.0
    standing: float = 0.0
    posts: int = 0
    posts_a_minute: int = 0
    refused: int = 0
    quiet_clicks: list[Click] = field(default_factory=list)
    storm_clicks: list[Click] = field(default_factory=list)
    memory: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)
    twice: int = 0

    def table(self) -> str:
        """The figures as lines."""
        steps: Mapping[str, Callable[[Click], float]] = {
            "click to acknowledgement": lambda one: one.acknowledged,
            "click to final status": lambda one: one.final,
            "the same, less the run itself": lambda one: one.final - one.run,
        }
        lines = {
            f"{self.alerts:,} alerts posted in": f"{self.posting:.1f} s",
            "critical alert, from its POST to its card": f"{self.critical:.2f} s",
            "until every alert stands somewhere": f"{self.standing:.1f} s after the last",
            "messages posted, and most in a minute": f"{self.posts}, {self.posts_a_minute}",
            "answers 429": f"{self.refused}",
            **{f"{name}, quiet and storm": self._compared(metric) for name, metric in steps.items()},
            "where alerts stand": ", ".join(f"{name} {n:,}" for name, n in sorted(self.shown.items())),
            "messages posted twice": f"{self.twice}",
        }
        lines |= {f"memory of {name}, MiB": ", ".join(f"{one:.0f}" for one in at) for name, at in self.memory.items()}
        lines |= {f"processor time of {name} in the storm": f"{s:.1f} s" for name, s in self.processor.items()}
        return "\n".join(f"{name:48} {value}" for name, value in lines.items())

    def _compared(self, metric: Callable[[Click], float]) -> str:
        if not self.quiet_clicks or not self.storm_clicks:
            return "not measured"
        quiet, storm = (
            statistics.median(metric(one) for one in clicks) for clicks in (self.quiet_clicks, self.storm_clicks)
        )
        return f"{quiet * 1000:.0f} ms, {storm * 1000:.0f} ms: {storm / quiet:.2f}"


async def post(url: str, key: str, count: int, seconds: float, alike: float, first: int) -> None:
    """Post so many low alerts, evenly spread; one whose answer is lost is posted again."""
    chance = random.Random(first)  # noqa: S311  # the same storm each time
    waiting: set[asyncio.Task[str]] = set()
    async with CoreClient(url, key) as client:
        began = time.monotonic()
        for n in range(count):
            late = began + n * seconds / count - time.monotonic()
            if late > 0:
                await asyncio.sleep(late)
            title = f"Logon failed {n} times" if chance.random() < alike else f"Alert {_letters(first + n)}"
            waiting.add(asyncio.create_task(create(client, title, LOW, SOURCES[0])))
            if len(waiting) >= AT_ONCE:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)


async def create(client: CoreClient, title: str, severity: int, source: str) -> str:
    """Create an alert, however often core is away; its id, or "" if it was there already."""
    body = {**ALERT, "title": title, "severity": severity, "source": source, "sourceRef": uuid.uuid4().hex}
    while True:
        try:
            return (await client.create_alert(body)).id
        except ResponderBotError as error:
            if error.code == "exists":
                return ""
            await asyncio.sleep(PAGE_S)


@dataclass
class _Storm:
    installed: Installation
    anna: Person
    figures: Figures
    processes: dict[str, BotProcess]
    client: CoreClient
    number: int = 0

    async def post(self, count: int, seconds: float, alike: float) -> None:
        """Post so many alerts from a process of its own, so that it slows down no click in this one."""
        began = time.monotonic()
        given = (self.installed.core_url, self.installed.keys["lea"], count, seconds, alike, self.number)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bot.storm", "post", *map(str, given), cwd=ROOT
        )
        assert await process.wait() == 0
        self.number += count
        self.figures.alerts += count
        self.figures.posting = time.monotonic() - began

    async def create(self, title: str, severity: int, source: str = SOURCES[0]) -> str:
        return await create(self.client, title, severity, source)

    async def click(self) -> Click:
        """Run a responder from the card of a new alert."""
        await asyncio.sleep(CLICK_S)
        alert_id = await self.create(f"Clicked {_letters(self.number)}", 2, SOURCES[1])
        self.number += 1
        card = await self.anna.until(lambda view: _card(view, QUIET, alert_id), timeout_s=60)
        menu = {"action_id": "responder_menu", "block_id": menu_block(card)}
        groups = await self.anna.options(QUIET, card["ts"], query="Quick", **menu)
        value = next(option["value"] for group in groups for option in group["options"])
        began = time.monotonic()
        watching = asyncio.create_task(
            self.anna.until(lambda view: DONE in str(all_blocks(view.message(QUIET, card["ts"]) or {})), timeout_s=60)
        )
        await self.anna.click(QUIET, card["ts"], value=value, **menu)
        acknowledged = time.monotonic() - began
        await watching
        final = time.monotonic() - began
        (action,) = await self.client.actions("alert", alert_id)
        assert action.end_date is not None
        assert action.dispatched_at is not None
        return Click(acknowledged, final, (action.end_date - action.dispatched_at) / 1000)

    async def kill(self) -> None:
        """Kill core and the first bot, and start them again; the bot only if no other can go on."""
        for name in ("core", "bot"):
            await self.processes.pop(name).kill()
        for name in ("core", "bot")[: 1 if self.processes else 2]:
            self.processes[name] = await start_process(self.installed, "core" if name == "core" else "bot")
            await self.processes[name].up()

    def channel_alerts(self) -> list[tuple[str, str, str]]:
        """Alert, the key of its group, and whether it has a card of its own, in the channel of the storm."""
        return self.installed.rows(
            f"SELECT root_id, group_key, card FROM channel_alert WHERE channel = '{STORM}'"  # noqa: S608  # a constant
        )

    def is_standing(self, count: int) -> bool:
        """Whether each alert has a card that Slack shows, or is counted on the card of a group."""
        shown = {key for (key,) in self.installed.rows("SELECT key FROM message WHERE ts <> ''")}
        alerts = self.channel_alerts()
        if len(alerts) != count:
            return False
        return all(group in shown or f"alert:{root}:{STORM}" in shown for root, group, _ in alerts)

    def memory(self) -> None:
        for name, process in self.processes.items():
            self.figures.memory.setdefault(name, []).append(_memory_mib(process.pid))


async def storm(
    folder: Path,
    alerts: int,
    seconds: float,
    *,
    alike: float = 1.0,
    kill: bool = False,
    more: int = 0,
    clicks: int = CLICKS,
    replicas: int = 1,
) -> Figures:
    """Run a storm in this folder, with so many bots."""
    figures = Figures()
    emulator = SlackEmulator(rates=True)
    add_people_and_channels(emulator)
    for channel in CHANNELS:
        emulator.add_channel(channel, name=channel.lower())
    async with emulator:
        installed = await installation(folder, emulator)
        file = folder / "responder-bot.toml"
        file.write_text(file.read_text().replace("group = false\n", ""))
        async with (
            _running(installed, replicas) as processes,
            Person(emulator.url, emulator.page_token, ANNA) as anna,
            CoreClient(installed.core_url, installed.keys["lea"]) as client,
        ):
            made = _Storm(installed, anna, figures, processes, client)
            await _measure(made, alerts, seconds, alike, kill, more, clicks)
            messages = await anna.messages(STORM)
    figures.posts, figures.posts_a_minute = len(messages), _most_in_a_minute(messages)
    figures.twice = sum(n - 1 for n in Counter(message["text"] for message in messages).values())
    figures.refused = sum(text.count("rate_limited") for _, text in installed.logs())
    return figures


async def _measure(made: _Storm, alerts: int, seconds: float, alike: float, kill: bool, more: int, clicks: int) -> None:
    figures = made.figures
    figures.quiet_clicks = [await made.click() for _ in range(clicks)]
    before = {process.pid: _processor_s(process.pid) for process in made.processes.values()}
    posting = asyncio.create_task(made.post(alerts, seconds, alike))
    await asyncio.sleep(seconds / 4)
    if kill:
        await made.kill()
    else:
        while len(figures.storm_clicks) < clicks and not posting.done():
            figures.storm_clicks.append(await made.click())
    await posting
    processes = made.processes.items()
    figures.processor = {name: _processor_s(one.pid) - before.get(one.pid, 0.0) for name, one in processes}
    ended = time.monotonic()
    critical = await made.create("Domain admin added", CRITICAL)
    await made.anna.until(lambda view: _card(view, STORM, critical), timeout_s=120)
    figures.critical = time.monotonic() - ended
    await _until_standing(made, alerts + 1)
    figures.standing = time.monotonic() - ended
    figures.shown = Counter(
        "on a card" if card != "later" else f"in a {group.partition(':')[0]}"
        for _, group, card in made.channel_alerts()
    )
    made.memory()
    if more:
        await made.post(more, more * seconds / alerts, alike)
        await _until_standing(made, alerts + more + 1)
        made.memory()


async def _until_standing(made: _Storm, count: int) -> None:
    async with asyncio.timeout(STANDS_S):
        while not made.is_standing(count):  # noqa: ASYNC110  # another process writes the database
            await asyncio.sleep(PAGE_S)


@asynccontextmanager
async def _running(installed: Installation, replicas: int) -> AsyncIterator[dict[str, BotProcess]]:
    processes: dict[str, BotProcess] = {}
    try:
        processes["core"] = await start_process(installed, "core")
        await processes["core"].up()
        for number in range(1, replicas + 1):
            name = "bot" if number == 1 else f"bot {number}"
            processes[name] = await start_process(installed, "bot")
            await processes[name].up()
        await installed.emulator.wait_connected(replicas)
        yield processes
    finally:
        for process in processes.values():
            await process.stop()


def _most_in_a_minute(messages: list[dict[str, Any]]) -> int:
    at = sorted(float(message["ts"]) for message in messages)
    return max((sum(first <= one < first + 60 for one in at) for first in at), default=0)


def _card(view: EmulatorView, channel: str, alert_id: str) -> dict[str, Any]:
    return next((m for m in view.messages(channel) if f"alert {alert_id}:" in m["text"]), {})


def _letters(number: int) -> str:
    """A number in letters, which count when titles are compared."""
    return "".join(chr(ord("g") + int(digit)) for digit in str(number))


def _memory_mib(pid: int) -> float:
    """The process's own memory, without files such as its database, whose pages it maps."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1]) / 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    if sys.argv[1] == "post":
        os.nice(10)  # it stands for another machine, and takes no processor time from those that are measured
        url, key, count, seconds, alike, first = sys.argv[2:]
        asyncio.run(post(url, key, int(count), float(seconds), float(alike), int(first)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("alerts", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--alike", type=float, default=1.0)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--replicas", type=int, default=1, help="bots; with --kill another goes on for the first")
    parser.add_argument("--more", type=int, default=0)
    parser.add_argument("--clicks", type=int, default=CLICKS, help="before the storm, and at most as many in it")
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(storm(Path(folder), **given))
    sys.stdout.write(figures.table() + "\n")


if __name__ == "__main__":
    main()
