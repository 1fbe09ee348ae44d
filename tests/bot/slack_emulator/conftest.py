"""A workspace with people and a channel, and a small app of Bolt's own making on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Faults, SlackEmulator


def fill(workspace: SlackEmulator) -> None:
    workspace.add_user("U0ANNA", name="anna", real_name="Anna Analyst", email="anna@example.org")
    workspace.add_user("U0BEN", name="ben", real_name="Ben Second", email="ben@example.org")
    workspace.add_channel("C0SOC", name="soc-alerts")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def workspace(faults: Faults) -> AsyncIterator[SlackEmulator]:
    workspace = SlackEmulator(faults=faults, event_retries_s=(0, 0.05, 0.05))
    fill(workspace)
    await workspace.start()
    yield workspace
    await workspace.stop()


@pytest.fixture
async def anna(workspace: SlackEmulator) -> AsyncIterator[EmulatedUser]:
    async with EmulatedUser(workspace.url, workspace.page_token, "U0ANNA") as person:
        yield person


@pytest.fixture
async def ben(workspace: SlackEmulator) -> AsyncIterator[EmulatedUser]:
    async with EmulatedUser(workspace.url, workspace.page_token, "U0BEN") as person:
        yield person


@pytest.fixture
def client(workspace: SlackEmulator) -> AsyncWebClient:
    return AsyncWebClient(token=workspace.bot_token, base_url=workspace.api_url)


@pytest.fixture
def app(workspace: SlackEmulator, client: AsyncWebClient) -> AsyncApp:
    return AsyncApp(client=client, signing_secret=workspace.signing_secret)


@asynccontextmanager
async def socket_mode(workspace: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncSocketModeHandler]:
    """The app connected by Socket Mode."""
    handler = AsyncSocketModeHandler(app, workspace.app_token, ping_interval=1)
    await handler.connect_async()  # type: ignore[no-untyped-call]  # the SDK has no type for it
    await workspace.wait_connected()
    yield handler
    await handler.close_async()  # type: ignore[no-untyped-call]  # the SDK has no type for it


@asynccontextmanager
async def http_requests(workspace: SlackEmulator, app: AsyncApp) -> AsyncIterator[None]:
    """The app behind an address for signed requests."""
    runner = web.AppRunner(app.web_app("/slack/events"), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    workspace.requests_url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    yield
    await runner.cleanup()


@pytest.fixture
async def connected(workspace: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncSocketModeHandler]:
    async with socket_mode(workspace, app) as handler:
        yield handler
