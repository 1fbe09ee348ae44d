"""From a click to the final status on the card, less the responder's own time: the bot, and one that polls.

Each has an emulator of its own, with its rates off; both pages are used by the same person, over the page's own
interface. The clock begins as the click is sent and ends as the open page shows the final status. What the responder
says itself of its work (from its first line after the imports to its last before it answers) is taken away; to start
it and to import is not.

The bot and core have their defaults. Each click is on a card of its own. A card shows progress at most once in 3 s and
an end at once; longer runs, whose progress has been shown, are measured apart. A turn's figure is the median of its
clicks.
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

from bot.cards import ids, runs
from bot.slack_emulator import EmulatedUser, EmulatorView, SlackEmulator
from core.client import CoreClient
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, SERVICE_KEY, alert, fill
from tests.bench.programs import CLIENT_CORES, SERVER_CORES, Child, serving
from tests.bench.running import RESPONDERS
from tests.bench.servers.polling_bot import card

BOT, PEER = "the bot and core", "Bolt's defaults, new client, ORM, exec, polling every 250 ms"
TEAM, USER, CHANNEL = "T0BENCH", "U0BENCH", "C0BENCH"
RESPONDER, PROGRAM = "Bench_Working_1_0", RESPONDERS / "Working" / "working.py"
QUICK_S, LONG_S = 0.0, 0.5
"""The responder's own time is this, and up to a polling interval more: it may end at any moment of one."""
INTERVAL_S = 0.25
BOTH = SERVER_CORES | CLIENT_CORES
DONE = runs.MARKS["Success"]


@dataclass(frozen=True)
class Way:
    """What one click led to, in seconds: since the click up to `began`, then since the responder's last line."""

    acknowledged: float
    accepted: float
    repainted: float
    began: float
    stored: float
    shown: float
    total: float
    """Click to final status on the card, less the responder's own time."""
    told: float
    """The same, to the first word of the end: on the card or in its thread."""

    @classmethod
    def of(cls, ways: Sequence["Way"]) -> "Way":
        return cls(*(median(getattr(way, field.name) for way in ways) for field in fields(cls)))


Click = Callable[[float], Awaitable[Way]]


async def measure(folder: Path, scale: Scale) -> list[Row]:
    async with _bot(folder, scale) as ours, _peer(folder / "peer", scale) as peer:
        quick = await _in_turns(ours, peer, _works(QUICK_S, scale), scale)
        longer = await _in_turns(ours, peer, _works(LONG_S, scale), scale)
    return [*_rows("up to 0.25 s", quick, Goal("at least", 25)), *_rows("0.5 to 0.75 s", longer)[:2]]


def _rows(work: str, ways: Mapping[str, Sequence[Way]], goal: Goal | None = None) -> list[Row]:
    """The whole way of a responder whose own time is `work`, and what it is made of."""

    def row(what: str, of: Callable[[Way], float], goal: Goal | None = None) -> Row:
        seconds = {name: [of(way) for way in found] for name, found in ways.items()}
        return figures.row(what, seconds, BOT, PEER, figures.milliseconds, goal, turned=True)

    what = f"click to final status on the card, less the responder's own time of {work}"
    return [
        row(what, lambda way: way.total, goal),
        row("the same, to the first word of the end on the card or in its thread", lambda way: way.told),
        row("of it: click to acknowledgement", lambda way: way.acknowledged),
        row("of it: click to the run accepted in the store", lambda way: way.accepted),
        row("of it: click to the first repaint", lambda way: way.repainted),
        row("of it: click to the responder's first line", lambda way: way.began),
        row("of it: its last line to its end in the store", lambda way: way.stored),
        row("of it: its last line to the final status on the card", lambda way: way.shown),
    ]


def _works(least_s: float, scale: Scale) -> list[float]:
    return [least_s + INTERVAL_S * (n + 0.5) / scale.clicks for n in range(scale.clicks)]


async def _in_turns(ours: Click, peer: Click, works: Sequence[float], scale: Scale) -> dict[str, list[Way]]:
    ways: dict[str, list[Way]] = {BOT: [], PEER: []}

    async def turn(name: str, click: Click) -> Figure:
        ways[name].append(Way.of([await click(work) for work in works]))
        return ways[name][-1].total

    await figures.in_turns({BOT: lambda: turn(BOT, ours), PEER: lambda: turn(PEER, peer)}, scale.rounds)
    return {name: found[1:] for name, found in ways.items()}


@asynccontextmanager
async def _desk() -> AsyncIterator[tuple[SlackEmulator, EmulatedUser]]:
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


# the bot


@asynccontextmanager
async def _bot(folder: Path, scale: Scale) -> AsyncIterator[Click]:
    """A click on a new alert's menu, with the bot and core as users run them."""
    await asyncio.to_thread(fill, folder / "core" / "core.db", 1, 0)
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    channel = {"id": CHANNEL, "clearance": "amber", "alerts": {}}
    async with AsyncExitStack() as stack:
        emulator, person = await stack.enter_async_context(_desk())
        core = await stack.enter_async_context(serving("servers.ours", folder / "core", on=BOTH, engines=[engine]))
        slack = _slack(emulator)
        bot = await stack.enter_async_context(
            serving("servers.bot", folder / "bot", on=BOTH, slack=slack, core_url=core.url, core_key=SERVICE_KEY,
                    channels=[channel])
        )  # fmt: skip
        emulator.requests_url = f"{bot.url}{bot.said['path']}"
        client = await stack.enter_async_context(CoreClient(core.url, KEY))
        sample = json.loads(alert(1).to_json())
        numbers = iter(range(1_000_000))

        async def click(work: float) -> Way:
            await asyncio.sleep(scale.apart_s)
            fields = {
                name: sample[name] for name in ("type", "source", "description", "severity", "tags", "tlp", "pap")
            }
            title = f"{work} s of work, {sample['title']}"
            made = await client.create_alert({**fields, "title": title, "sourceRef": f"click-{next(numbers)}"})
            card = await person.until(lambda view: _card(view, made.id))
            menu = next(block["block_id"] for block in _blocks(card) if block["block_id"].startswith(ids.MENU_BLOCK))
            place = {"action_id": ids.MENU, "block_id": menu}
            groups = await person.options(CHANNEL, card["ts"], query=RESPONDER, **place)
            value = next(option["value"] for group in groups for option in group["options"])
            return await _clicked(person, card["ts"], core, made.id, value=value, **place)

        yield click


def _card(view: EmulatorView, alert_id: str) -> dict[str, Any]:
    return next((message for message in view.messages(CHANNEL) if f"alert {alert_id}:" in message["text"]), {})


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    inner = [block for part in message.get("attachments") or [] for block in part.get("blocks") or []]
    return [*(message.get("blocks") or []), *inner]


# the peer


@asynccontextmanager
async def _peer(folder: Path, scale: Scale) -> AsyncIterator[Click]:
    """A click on an alert's button, with the bot and the core that are its peers."""
    works = [*_works(QUICK_S, scale), *_works(LONG_S, scale)]
    titles = [f"{work} s of work, {alert(1).title}" for work in works]
    async with AsyncExitStack() as stack:
        emulator, person = await stack.enter_async_context(_desk())
        core = await stack.enter_async_context(
            serving("servers.peer", folder, on=BOTH, actions=0, titles=titles, program=PROGRAM)
        )
        bot = await stack.enter_async_context(
            serving("servers.polling_bot", folder, on=BOTH, slack=_slack(emulator), core_url=core.url, core_key=KEY)
        )
        emulator.requests_url = f"{bot.url}{bot.said['path']}"
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)

        async def click(work: float) -> Way:
            alert_id = f"~{works.index(work) + 1}"
            posted = await slack.chat_postMessage(channel=CHANNEL, **card(alert_id))
            ts = str(posted["ts"])
            await person.until(lambda view: view.message(CHANNEL, ts))
            return await _clicked(person, ts, core, alert_id, action_id="run")

        yield click


# both


async def _clicked(person: EmulatedUser, ts: str, core: Child, alert_id: str, **what: Any) -> Way:
    """Click, and look at the page until the card shows the end."""
    seen: dict[str, float] = {}
    before = await person.until(lambda view: view.message(CHANNEL, ts) or {})

    def look(view: EmulatorView) -> bool:
        now = time.time()
        message = view.message(CHANNEL, ts) or {}
        if message.get("text") != before["text"]:
            seen.setdefault("repainted", now)
        if DONE in json.dumps(message, ensure_ascii=False):
            seen.setdefault("shown", now)
        if len(view.thread(CHANNEL, ts)) > 1:
            seen.setdefault("replied", now)
        return "shown" in seen

    clicked = time.time()
    looking = asyncio.create_task(person.until(look))
    answer = await person.click(CHANNEL, ts, **what)
    acknowledged = time.time()
    if not answer["ok"]:
        raise RuntimeError(f"the click was not acknowledged: {answer}")
    await looking
    action = await _action(core, alert_id)
    full = json.loads(action["report"])["full"]
    began, own = full["began"] - clicked, full["ended"] - full["began"]
    return Way(
        acknowledged=acknowledged - clicked,
        accepted=action["startDate"] / 1000 - clicked,
        repainted=seen["repainted"] - clicked,
        began=began,
        stored=action["endDate"] / 1000 - full["ended"],
        shown=seen["shown"] - full["ended"],
        total=seen["shown"] - clicked - own,
        told=seen.get("replied", seen["shown"]) - clicked - own,
    )


async def _action(core: Child, alert_id: str) -> dict[str, Any]:
    """The last run on this alert."""
    async with httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        answer = await client.get(f"/api/connector/engine/action/alert/{alert_id}")
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found[0]
