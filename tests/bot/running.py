"""Run the bot for tests: Slack's emulator, core and the bot in one event loop, over Socket Mode or signed HTTP."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from bot.app import Bot, running
from bot.app.transports import EVENTS_PATH, HttpTransport
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.settings import BotSettings, parse
from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.database.location import Location
from core.models import Profile
from core.settings import CoreSettings
from tests import stores, templates
from tests.bot.people import SOC as SOC
from tests.bot.people import Person, card_of
from tests.core.running import RunningCore, running_core
from tests.ports import free_port

OPEN = "C0OPEN"  # clearance clear, all alerts
RED = "C0RED"  # clearance red, high and critical alerts
UNCONFIGURED = "C0STRANGE"  # the bot is a member, but the channel is not in the settings
ANNA, BEN, LEA, ROB, NINA = "U0ANNA", "U0BEN", "U0LEA", "U0ROB", "U0NINA"

PEOPLE: Mapping[str, tuple[str, Profile | None, int]] = {
    ANNA: ("anna", "analyst", 2),
    BEN: ("ben", "analyst", 2),
    LEA: ("lea", "org-admin", 3),
    ROB: ("rob", "read-only", 2),
    NINA: ("nina", None, 0),  # not linked
}
CHANNELS: Sequence[Mapping[str, Any]] = (
    {"id": SOC, "clearance": "amber", "alerts": {}, "group": False},
    {"id": OPEN, "clearance": "clear", "alerts": {}, "group": False},
    {"id": RED, "clearance": "red", "alerts": {"severity_at_least": 3}, "group": False},
)
NO_CARDS = ({**CHANNELS[0], "alerts": {"severity_at_least": 4}},)
"""Where the alerts of tests are too low for a card."""
UNLIMITED = {"post_burst": 1000.0, "posts_per_s": 1000.0, "updates_a_minute": 60_000.0}
AT_ONCE = {**UNLIMITED, "update_every_s": 0.2}

ALERT: Mapping[str, Any] = {
    "type": "siem",
    "source": "suricata",
    "sourceRef": "eve-1",
    "title": "ET MALWARE beacon to known C2",
    "description": "A host speaks to a known command and control server.",
    "severity": 3,
    "tags": ["suricata"],
    "artifacts": [{"dataType": "ip", "data": "198.51.100.7"}],
}


@dataclass
class BotEnvironment:
    """Everything that a test of the bot needs."""

    emulator: SlackEmulator
    core: RunningCore
    bot: Bot
    client: CoreClient
    """A client of core with the key of an org-admin."""
    settings: BotSettings
    service_key: str
    _core_stack: AsyncExitStack
    _stack: AsyncExitStack

    async def stop_core(self) -> CoreSettings:
        """Stop core. Returns the settings that start it again at the same address."""
        settings, port = self.core.core.settings, int(self.core.url.rpartition(":")[2])
        await self._core_stack.aclose()
        return settings.model_copy(update={"core": settings.core.model_copy(update={"port": port})})

    async def person(self, user_id: str = ANNA) -> Person:
        """A person at the emulator's page."""
        user = self.reader(user_id)
        await user.connect()
        return user

    def reader(self, user_id: str) -> Person:
        """As `person`, but the page is opened once something is done or looked for there."""
        user = Person(self.emulator.url, self.emulator.page_token, user_id)
        self._stack.push_async_callback(user.disconnect)
        return user

    async def post_alert(self, **changes: Any) -> str:
        """Create an alert. Returns its id."""
        alert = await self.client.create_alert({**ALERT, **changes})
        return alert.id

    async def new_card(self, who: Person, **changes: Any) -> tuple[str, dict[str, Any]]:
        """The id of a new alert, and its card."""
        alert_id = await self.post_alert(**changes)
        return alert_id, await who.sees(card_of(alert_id))

    async def first_card(self, by: str = ANNA, **changes: Any) -> tuple[Person, str, dict[str, Any]]:
        """Anna, or another person, at the emulator's page, the id of a new alert, and its card there."""
        who = await self.person(by)
        return who, *await self.new_card(who, **changes)


@asynccontextmanager
async def running_bot(
    folder: Path,
    *,
    transport: Literal["socket", "http"] = "socket",
    manifest: Mapping[str, object] | None = None,
    people: Mapping[str, tuple[str, Profile | None, int]] = PEOPLE,
    channels: Sequence[Mapping[str, Any]] = CHANNELS,
    rates: bool = False,
    link_by_email: bool = False,
    clock_ms: Callable[[], int] = now_ms,
    shared: Sequence[str] = (),
    core_proxy: Callable[[str], AbstractAsyncContextManager[str]] | None = None,
    rate_limiter: RateLimiter | None = None,
    boot_ms: Callable[[], int] = lambda: 0,
    trigger_life_s: float = 60.0,
    database: Location | None = None,
    **core_parts: Any,
) -> AsyncIterator[BotEnvironment]:
    """Run the emulator with people and channels, core with the same people, and the bot between them.

    The emulator has the bot's clock, since the bot looks for lost posts around the time of its own clock.
    `core_proxy` maps core's URL to the one that the bot uses, see `CoreProxy.serve`. `shared` channels are shared with
    another company. Without `rate_limiter` the bot sends as fast as it can, and without `boot_ms` no pause of a busy
    machine makes it drop a click as one that waited while it was frozen. A trigger lives for longer than Slack's
    3 s, so that a busy machine has time to open a modal.
    """
    async with AsyncExitStack() as stack:
        emulator = SlackEmulator(manifest, rates=rates, clock=lambda: clock_ms() / 1000, trigger_life_s=trigger_life_s)
        add_people_and_channels(emulator, people)
        for channel in shared:
            members = [*people, emulator.bot_user_id]
            emulator.add_channel(channel, name=channel[2:].lower(), members=members, is_shared=True)
        await stack.enter_async_context(emulator)
        if database is None:
            audited = core_parts.get("audited", True)
            await templates.copy_to(stores.location(folder / "core.db"), audited=audited, bots=True)
        core_stack = await stack.enter_async_context(AsyncExitStack())
        core_parts["core"] = {"port": free_port(), **core_parts.get("core", {})}  # where it may start again
        core = await core_stack.enter_async_context(running_core(folder, **core_parts))
        service = await add_users(core, people)
        settings = bot_settings(folder, emulator, core, service, transport, channels, link_by_email)
        if database is not None:
            elsewhere = settings.core.model_copy(update={"database": database})
            settings = settings.model_copy(update={"core": elsewhere})
        client = await stack.enter_async_context(CoreClient(core.url, await core.key("org-admin", "admin")))
        address = await stack.enter_async_context(core_proxy(core.url)) if core_proxy else core.url
        as_service = await stack.enter_async_context(CoreClient(address, service))
        bot = await stack.enter_async_context(
            running(
                settings,
                as_service,
                clock_ms=clock_ms,
                rate_limiter=rate_limiter or RateLimiter(**AT_ONCE),
                boot_ms=boot_ms,
            )
        )
        await bot.connected.wait()
        if isinstance(bot.transport, HttpTransport):
            emulator.requests_url = bot.transport.url + EVENTS_PATH
        else:
            await emulator.wait_connected()
        yield BotEnvironment(emulator, core, bot, client, settings, service, core_stack, stack)


def add_people_and_channels(
    emulator: SlackEmulator, people: Mapping[str, tuple[str, Profile | None, int]] = PEOPLE
) -> None:
    """Add the people and channels to the emulator."""
    for user_id, (name, _, _) in people.items():
        emulator.add_user(user_id, name=name, real_name=name.title(), email=f"{name}@responder-bot.local")
    members = [*people, emulator.bot_user_id]
    for channel in (SOC, OPEN, RED, UNCONFIGURED):
        emulator.add_channel(channel, name=channel[2:].lower(), members=members)


async def add_users(core: RunningCore, people: Mapping[str, tuple[str, Profile | None, int]]) -> str:
    """Add the same people as users of core, linked to Slack. Returns the key of the bot's own user."""
    adding = (
        core.core.people.add(name, profile, clearance=clearance, slack_id=f"T0LOCAL:{user_id}")
        for user_id, (name, profile, clearance) in people.items()
        if profile is not None
    )
    *_, key = await asyncio.gather(*adding, core.key("service", "bot"))
    return key


def bot_settings(
    folder: Path,
    emulator: SlackEmulator,
    core: RunningCore,
    service_key: str,
    transport: str = "socket",
    channels: Sequence[Mapping[str, Any]] = CHANNELS,
    link_by_email: bool = False,
) -> BotSettings:
    """Settings of a bot for this emulator and core."""
    database = stores.setting(folder / "core.db")
    socket, http = {"app_token": emulator.app_token}, {"signing_secret": emulator.signing_secret}
    return parse(
        {
            "bot": {"core_url": core.url, "core_api_key": service_key, "health_port": 0},
            "core": {"database": database},
            "slack": {
                "bot_token": emulator.bot_token,
                "api_url": emulator.api_url,
                "port": 0,
                "link_by_email": link_by_email,
                **(socket if transport == "socket" else http),
            },
            "channel": [dict(channel) for channel in channels],
        },
        folder,
    )


@asynccontextmanager
async def another(env: BotEnvironment) -> AsyncIterator[Bot]:
    """A second bot on the same database."""
    async with (
        CoreClient(env.core.url, env.service_key) as core,
        running(env.settings, core, clock_ms=now_ms) as bot,
    ):
        await env.emulator.wait_connected(2)
        yield bot


async def calls_to_core(env: BotEnvironment) -> Counter[str]:
    """Requests that core has answered, apart from long polls and scrapes of its metrics."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{env.core.url}/metrics")).text
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith("responder_bot_requests_total{"):
            labels, _, value = line.partition("{")[2].rpartition("} ")
            if '"/api/event"' not in labels and '"/metrics"' not in labels:
                counts[labels] += int(float(value))
    return counts
