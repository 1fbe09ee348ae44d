"""An emulator with people and a channel, and a small app of Bolt's own making on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Faults, SlackEmulator


def fill(emulator: SlackEmulator) -> None:
    emulator.add_user("U0ANNA", name="anna", real_name="Anna Analyst", email="anna@example.org")
    emulator.add_user("U0BEN", name="ben", real_name="Ben Second", email="ben@example.org")
    emulator.add_channel("C0SOC", name="soc-alerts")


@dataclass
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def emulator(faults: Faults) -> AsyncIterator[SlackEmulator]:
    emulator = SlackEmulator(faults=faults, event_retries_s=(0, 0.05, 0.05))
    fill(emulator)
    await emulator.start()
    yield emulator
    await emulator.stop()


@pytest.fixture
async def anna(emulator: SlackEmulator) -> AsyncIterator[EmulatedUser]:
    async with EmulatedUser(emulator.url, emulator.page_token, "U0ANNA") as person:
        yield person


@pytest.fixture
async def ben(emulator: SlackEmulator) -> AsyncIterator[EmulatedUser]:
    async with EmulatedUser(emulator.url, emulator.page_token, "U0BEN") as person:
        yield person


@pytest.fixture
def client(emulator: SlackEmulator) -> AsyncWebClient:
    return AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)


@pytest.fixture
def app(emulator: SlackEmulator, client: AsyncWebClient) -> AsyncApp:
    # without a name it reads the sources of all its callers for one
    return AsyncApp(name="app", client=client, signing_secret=emulator.signing_secret)


@asynccontextmanager
async def socket_mode(emulator: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncSocketModeHandler]:
    """The app connected by Socket Mode."""
    handler = AsyncSocketModeHandler(app, emulator.app_token, ping_interval=1)
    await handler.connect_async()  # type: ignore[no-untyped-call]  # the SDK has no type for it
    await emulator.wait_connected()
    yield handler
    await handler.close_async()  # type: ignore[no-untyped-call]  # the SDK has no type for it


@asynccontextmanager
async def http_requests(emulator: SlackEmulator, app: AsyncApp) -> AsyncIterator[None]:
    """The app behind an address for signed requests."""
    runner = web.AppRunner(app.web_app("/slack/events"), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    emulator.requests_url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    yield
    await runner.cleanup()


@pytest.fixture
async def connected(emulator: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncSocketModeHandler]:
    async with socket_mode(emulator, app) as handler:
        yield handler
