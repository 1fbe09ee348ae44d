"""From a click to the final status on the card, less the responder's own time: the bot, and a bot that polls.

Each bot has an emulator of its own, without rate limits, and a user at its page. A latency begins when the click is
sent and ends when the page shows the final status. The responder reports its own time, from after its imports until
before its report; starting and importing count. Neither bot can be quicker than the program alone, which is measured in
the same rounds.

The bot and core have their defaults, and each click is on a new card. A card shows progress at most once in 3 s and an
end at once; longer runs, whose progress is shown, are measured separately. A sample is the median of some clicks.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from slack_sdk.web.async_client import AsyncWebClient

from bot.block_kit import ids
from bot.features.runs.views import runs
from bot.slack_emulator import EmulatedUser, EmulatorView, SlackEmulator
from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, SERVICE_KEY, alert, fill
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, ServerProcess, on_cpus, serving
from tests.bench.responder_runs import RESPONDERS, compile_requests
from tests.bench.servers.peer_bot import card

BOT, PEER = "the bot and core", "Bolt's defaults, new client, ORM, exec, polling every 250 ms"
ALONE = "the program alone"
TEAM, USER, CHANNEL = "T0BENCH", "U0BENCH", "C0BENCH"
RESPONDER, PROGRAM = "Bench_Working_1_0", RESPONDERS / "Working" / "working.py"
QUICK_S, LONG_S = 0.0, 0.5
"""The shortest own time of the responder; up to a polling interval is added, so that it ends at any time within one."""
INTERVAL_S = 0.25
ALL_CPUS = SERVER_CPUS | CLIENT_CPUS
DONE = runs.MARKS["succeeded"]


@dataclass(frozen=True)
class ClickLatency:
    """The steps of one click, in seconds: since the click up to `program_started`, then since the program's end."""

    acknowledged: float
    accepted: float
    first_update: float
    program_started: float
    end_stored: float
    final_shown: float
    total: float
    """Click to final status on the card, less the responder's own time."""
    first_notice: float
    """Click to the first sign of the end, on the card or in its thread, less the responder's own time."""

    @classmethod
    def of(cls, latencies: Sequence["ClickLatency"]) -> "ClickLatency":
        return cls(*(median(getattr(latency, field.name) for latency in latencies) for field in fields(cls)))


Click = Callable[[float], Awaitable[ClickLatency]]


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await compile_requests()
    async with _bot(folder, scale) as ours, _peer(folder / "peer", scale) as peer:
        clicks = {BOT: ours, PEER: peer}
        quick = await _interleaved(clicks, folder / "alone", _own_times(QUICK_S, scale), scale)
        longer = await _interleaved(clicks, folder / "alone", _own_times(LONG_S, scale), scale)
    return [*_rows("up to 0.25 s", quick), *_rows("0.5 to 0.75 s", longer)[:3]]


@dataclass
class _Round:
    """The latencies of a round, by bot, and how long the program takes alone, from its start to its end."""

    clicks: dict[str, ClickLatency]
    alone: Sample


def _rows(work: str, rounds: Sequence[_Round]) -> list[Row]:
    """The rows of a responder whose own time is `work`: the total, and its steps."""

    def row(name: str, metric: Callable[[ClickLatency], float]) -> Row:
        seconds = {bot: [metric(one.clicks[bot]) for one in rounds] for bot in (BOT, PEER)}
        return comparison.row(name, seconds, BOT, PEER, comparison.milliseconds, inverse=True)

    total = f"click to final status on the card, less the responder's own time of {work}"
    totals = {BOT: [one.clicks[BOT].total for one in rounds], ALONE: [one.alone for one in rounds]}
    return [
        row(total, lambda latency: latency.total),
        comparison.row(
            "the same against the start, imports and end of the program",
            totals,
            BOT,
            ALONE,
            comparison.milliseconds,
            Goal("at most", 1.25),
        ),
        row(
            "the same, to the first sign of the end on the card or in its thread", lambda latency: latency.first_notice
        ),
        row("of it: click to acknowledgement", lambda latency: latency.acknowledged),
        row("of it: click to the run accepted in the store", lambda latency: latency.accepted),
        row("of it: click to the first update of the card", lambda latency: latency.first_update),
        row("of it: click to the start of the responder's program", lambda latency: latency.program_started),
        row("of it: end of the program to the end stored", lambda latency: latency.end_stored),
        row("of it: end of the program to the final status on the card", lambda latency: latency.final_shown),
    ]


def _own_times(least_s: float, scale: Scale) -> list[float]:
    return [least_s + INTERVAL_S * (n + 0.5) / scale.clicks for n in range(scale.clicks)]


async def _interleaved(
    clicks: Mapping[str, Click], folder: Path, own_times: Sequence[float], scale: Scale
) -> list[_Round]:
    """Each click is followed by one on the other bot and by the program alone; the first round is a warm-up."""
    rounds = []
    for _ in range(scale.rounds + 1):
        latencies: dict[str, list[ClickLatency]] = {name: [] for name in clicks}
        alone = []
        for work in own_times:
            for name, click in clicks.items():
                latencies[name].append(await click(work))
            alone.append(await _program_alone(folder, work))
        rounds.append(_Round({name: ClickLatency.of(found) for name, found in latencies.items()}, median(alone)))
    return rounds[1:]


async def _program_alone(folder: Path, work: float) -> Sample:
    """From the start of the program to its end, less its own time."""
    job = folder / str(work)
    (job / "input").mkdir(parents=True, exist_ok=True)
    (job / "input" / "input.json").write_text(json.dumps({"data": {"title": f"{work} s of work"}}))
    began = time.time()
    with on_cpus(ALL_CPUS):
        process = await asyncio.create_subprocess_exec(sys.executable, PROGRAM, job)
    await process.wait()
    ended = time.time()
    full = json.loads((job / "output" / "output.json").read_text())["full"]
    return float(ended - began - (full["ended"] - full["began"]))


@asynccontextmanager
async def _emulated_slack() -> AsyncIterator[tuple[SlackEmulator, EmulatedUser]]:
    emulator = SlackEmulator(team_id=TEAM, rates=False)
    emulator.add_user(USER, name="bench")
    emulator.add_channel(CHANNEL, name="bench", members=[USER, emulator.bot_user_id])
    async with emulator, EmulatedUser(emulator.url, emulator.page_token, USER) as person:
        yield emulator, person


def _slack(emulator: SlackEmulator) -> dict[str, str]:
    return {
        "bot_token": emulator.bot_token,
        "signing_secret": emulator.signing_secret,
        "api_url": emulator.api_url,
    }


@asynccontextmanager
async def _bot(folder: Path, scale: Scale) -> AsyncIterator[Click]:
    """Click a responder in the menu of a new alert's card, with the bot and core as users run them."""
    await asyncio.to_thread(fill, folder / "core" / "core.db", 1, 0)
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    channel = {"id": CHANNEL, "clearance": "amber", "alerts": {}, "group": False}
    async with AsyncExitStack() as stack:
        emulator, person = await stack.enter_async_context(_emulated_slack())
        core = await stack.enter_async_context(
            serving("servers.core", folder / "core", cpus=ALL_CPUS, engines=[engine])
        )
        slack = _slack(emulator)
        bot = await stack.enter_async_context(
            serving("servers.bot", folder / "bot", cpus=ALL_CPUS, slack=slack, core_url=core.url, core_key=SERVICE_KEY,
                    channels=[channel], database=folder / "core" / "core.db")
        )  # fmt: skip
        emulator.requests_url = f"{bot.url}{bot.ready['path']}"
        client = await stack.enter_async_context(CoreClient(core.url, KEY))
        sample = json.loads(alert(1).to_json())
        numbers = iter(range(1_000_000))

        async def click(work: float) -> ClickLatency:
            await asyncio.sleep(scale.click_interval_s)
            fields = {
                name: sample[name] for name in ("type", "source", "description", "severity", "tags", "tlp", "pap")
            }
            title = f"{work} s of work, {sample['title']}"
            created = await client.create_alert({**fields, "title": title, "sourceRef": f"click-{next(numbers)}"})
            card = await person.until(lambda view: _card(view, created.id))
            block_id = next(
                block["block_id"] for block in _blocks(card) if block["block_id"].startswith(ids.MENU_BLOCK)
            )
            menu = {"action_id": ids.MENU, "block_id": block_id}
            groups = await person.options(CHANNEL, card["ts"], query=RESPONDER, **menu)
            value = next(option["value"] for group in groups for option in group["options"])
            return await _clicked(person, card["ts"], core, created.id, value=value, **menu)

        yield click


def _card(view: EmulatorView, alert_id: str) -> dict[str, Any]:
    return next((message for message in view.messages(CHANNEL) if f"alert {alert_id}:" in message["text"]), {})


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    inner = [block for part in message.get("attachments") or [] for block in part.get("blocks") or []]
    return [*(message.get("blocks") or []), *inner]


@asynccontextmanager
async def _peer(folder: Path, scale: Scale) -> AsyncIterator[Click]:
    """Click the button of an alert's message, with the peers of the bot and of core."""
    own_times = [*_own_times(QUICK_S, scale), *_own_times(LONG_S, scale)]
    titles = [f"{work} s of work, {alert(1).title}" for work in own_times]
    async with AsyncExitStack() as stack:
        emulator, person = await stack.enter_async_context(_emulated_slack())
        core = await stack.enter_async_context(
            serving("servers.peer_core", folder, cpus=ALL_CPUS, actions=0, titles=titles, program=PROGRAM)
        )
        bot = await stack.enter_async_context(
            serving("servers.peer_bot", folder, cpus=ALL_CPUS, slack=_slack(emulator), core_url=core.url, core_key=KEY)
        )
        emulator.requests_url = f"{bot.url}{bot.ready['path']}"
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)

        async def click(work: float) -> ClickLatency:
            alert_id = f"~{own_times.index(work) + 1}"
            posted = await slack.chat_postMessage(channel=CHANNEL, **card(alert_id))
            ts = str(posted["ts"])
            await person.until(lambda view: view.message(CHANNEL, ts))
            return await _clicked(person, ts, core, alert_id, action_id="run")

        yield click


async def _clicked(person: EmulatedUser, ts: str, core: ServerProcess, alert_id: str, **element: Any) -> ClickLatency:
    """Click, and watch the page until the card shows the end."""
    seen: dict[str, float] = {}
    before = await person.until(lambda view: view.message(CHANNEL, ts) or {})

    def look(view: EmulatorView) -> bool:
        now = time.time()
        message = view.message(CHANNEL, ts) or {}
        if message.get("text") != before["text"]:
            seen.setdefault("first_update", now)
        if DONE in json.dumps(message, ensure_ascii=False):
            seen.setdefault("final", now)
        if len(view.thread(CHANNEL, ts)) > 1:
            seen.setdefault("reply", now)
        return "final" in seen

    clicked = time.time()
    watching = asyncio.create_task(person.until(look))
    answer = await person.click(CHANNEL, ts, **element)
    acknowledged = time.time()
    if not answer["ok"]:
        raise RuntimeError(f"the click was not acknowledged: {answer}")
    await watching
    action = await _action(core, alert_id)
    full = json.loads(action["report"])["full"]
    own = full["ended"] - full["began"]
    return ClickLatency(
        acknowledged=acknowledged - clicked,
        accepted=action["startDate"] / 1000 - clicked,
        first_update=seen["first_update"] - clicked,
        program_started=full["began"] - clicked,
        end_stored=action["endDate"] / 1000 - full["ended"],
        final_shown=seen["final"] - full["ended"],
        total=seen["final"] - clicked - own,
        first_notice=seen.get("reply", seen["final"]) - clicked - own,
    )


async def _action(core: ServerProcess, alert_id: str) -> dict[str, Any]:
    """The last run on this alert."""
    async with httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        answer = await client.get(f"/api/connector/engine/action/alert/{alert_id}")
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found[0]
