"""An outbox that sends to Slack's emulator, and a person who looks at the channel."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from bot.message import Message
from bot.outbox.models import DesiredMessage
from bot.outbox.outbox import MessageOutbox
from bot.outbox.replicas import LEASE_MS, RENEW_MS
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.sending.sender import ClearanceGuard
from bot.outbox.store import open_stores
from bot.slack_emulator import EmulatorView, SlackEmulator
from core.common.clock import now_ms
from core.common.database.location import Location
from tests import stores, templates
from tests.bot.people import Person
from tests.bot.running import UNLIMITED, BotEnvironment

T = TypeVar("T")
SOC = "C0SOC"
REPORT = ("report.txt", "a\nlong\nreport")


@dataclass
class OutboxEnvironment:
    """An outbox, usually with its sender running, and what a test of it needs."""

    outbox: MessageOutbox
    emulator: SlackEmulator
    anna: Person
    clock: "ManualClock"
    location: Location
    """Where the outbox is stored, for another replica."""

    async def shows(self, *texts: str) -> None:
        """Wait until the channel and its threads hold just these texts, in any order."""
        await self.anna.until(lambda view: sorted(texts) == sorted(texts_in(view)) or None)


class ManualClock:
    """Real time, which a test can stop and move forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._stopped_ms = 0

    def stop(self) -> None:
        """Let time pass only as a test adds to `ahead_ms`."""
        self._stopped_ms = now_ms()

    def advance(self, ms: int) -> None:
        self.ahead_ms += ms

    def __call__(self) -> int:
        return (self._stopped_ms or now_ms()) + self.ahead_ms


def texts_in(view: EmulatorView) -> list[str]:
    return [m["text"] for root in view.messages(SOC) for m in (view.thread(SOC, root["ts"]) or [root])]


def desired(key: str, text: str, **more: Any) -> DesiredMessage:
    return DesiredMessage(key, SOC, Message(text), root_id="~1", **more)


@asynccontextmanager
async def outbox_environment(
    folder: Path, *, send: bool = True, rate_limiter: RateLimiter | None = None, guard: ClearanceGuard | None = None
) -> AsyncIterator[OutboxEnvironment]:
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(emulator_with_channel())
        anna = await stack.enter_async_context(Person(emulator.url, emulator.page_token, "U0ANNA"))
        clock = ManualClock()
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url, retry_handlers=[])
        location = templates.made(stores.location(folder / "core.db"), bots=True)
        outbox = MessageOutbox(
            open_stores(location),
            slack,
            clock,
            rate_limiter=rate_limiter or RateLimiter(**UNLIMITED),
            guard=guard,
            lease_clock=clock,
        )
        stack.push_async_callback(outbox.close)
        if send:
            sending = asyncio.create_task(outbox.sender.run())
            stack.push_async_callback(cancelled, sending)
        yield OutboxEnvironment(outbox, emulator, anna, clock, location)


def emulator_with_channel() -> SlackEmulator:
    emulator = SlackEmulator(rates=False)
    emulator.add_user("U0ANNA", name="anna")
    emulator.add_channel(SOC, name="soc")
    return emulator


async def cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def look_on(outbox: MessageOutbox, advance: Callable[[int], None]) -> None:
    """Let a lease pass in which nobody renews and this replica looks on, so that it may lead at its next look."""
    for _ in range(LEASE_MS // RENEW_MS):
        assert not await outbox.replicas.acquire()
        advance(RENEW_MS)


async def until(claim: Callable[[], object]) -> None:
    """Wait for something without an event, such as a request that has come to the emulator."""
    while not claim():  # noqa: ASYNC110  # see above
        await asyncio.sleep(0.02)


async def until_read(read: Callable[[], Awaitable[T]], claim: Callable[[T], object]) -> None:
    """Wait until the claim holds of what is read from a database."""
    while not claim(await read()):  # noqa: ASYNC110  # another task or process changes it
        await asyncio.sleep(0.02)


class HasOutbox(Protocol):
    outbox: MessageOutbox


async def all_sent(env: HasOutbox) -> None:
    await until_read(env.outbox.waiting, lambda waiting: not waiting)


async def files_in(anna: Person) -> list[dict[str, Any]]:
    roots = await anna.messages(SOC)
    threads = [await anna.thread(SOC, root["ts"]) for root in roots]
    return [file for thread in threads for message in thread for file in message.get("files") or []]


def channel_alerts(folder: Path) -> list[tuple[str, str, str]]:
    """Alert, where it stands, and whether it has a card of its own."""
    rows = stores.rows(folder / "core.db", "SELECT root_id, group_key, card FROM channel_alert")
    return [(root_id, group.partition(":")[0] or "alone", card) for root_id, group, card in rows]


async def second(env: BotEnvironment, clock: ManualClock) -> None:
    """Let a second pass, and the bot do what it can do in it."""
    clock.ahead_ms += 1_000
    before = -1
    while before != len(env.emulator.traffic):
        before = len(env.emulator.traffic)
        env.bot.outbox.sender.wake()
        await asyncio.sleep(0.15)  # longer than calls wait for each other to share a commit


async def seconds_until(env: BotEnvironment, clock: ManualClock, claim: Callable[[], object]) -> None:
    """Let seconds pass until the claim holds."""
    while not claim():
        await second(env, clock)
