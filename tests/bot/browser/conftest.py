"""An emulator, a small app connected to it, and a headless Chromium that looks at the page."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Route, async_playwright, expect

from bot.slack_emulator import SlackEmulator
from tests.bot.browser.flows import FlowEnvironment, RunningDemo, running_demo
from tests.bot.browser.sample_app import MANIFEST, SampleApp, people
from tests.ports import free_port

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ARTEFACTS = Path(__file__).parents[3] / "artefacts" / "browser"
TIMEOUT_MS = 30_000  # far more than anything here takes on a busy machine


@dataclass
class BrowserEnvironment:
    """Everything a test needs; `console_errors` holds errors and warnings of the page's console."""

    emulator: SlackEmulator
    app: SampleApp
    browser: Browser
    page: Page
    console_errors: list[str]

    async def open_page(self, user: str = "U0ANNA", channel: str = "C0SOC", **options: Any) -> Page:
        """A new window for this person, in this channel."""
        return await open_window(
            self.browser, f"{self.emulator.page_url}#/{user}/{channel}", self.console_errors, **options
        )

    async def command(self, text: str) -> None:
        """Type a command and send it."""
        await self.page.fill("#box", text)
        await self.page.keyboard.press("Escape")
        await self.page.focus("#box")
        await self.page.keyboard.press("Enter")

    async def show_all_blocks(self) -> None:
        """Show each block and element."""
        await self.command("/everything")
        await self.page.wait_for_selector("[data-block=buttons]")


async def open_window(browser: Browser, url: str, console_errors: list[str], **options: Any) -> Page:
    """A new window without cookies; what its console reports is added to `console_errors`."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.on("pageerror", lambda error: console_errors.append(str(error)))

    def noted(entry: ConsoleMessage) -> None:
        if entry.type in ("error", "warning"):
            console_errors.append(f"{entry.text} {entry.location['url']}")

    page.on("console", noted)
    await page.goto(url)
    await page.wait_for_selector(".channel-row.current", state="attached")
    return page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """The system's Chromium, headless; its start costs as much as a test, so a module has one."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("No chromium found. Install it from the system's packages: apt-get install chromium")
    async with async_playwright() as playwright:
        expect.set_options(timeout=TIMEOUT_MS)
        browser = await playwright.chromium.launch(executable_path=program, headless=True, args=ARGUMENTS)
        yield browser
        await browser.close()


async def close_windows(browser: Browser) -> None:
    """Close all windows, with what they keep."""
    for context in browser.contexts:
        await context.close()


@asynccontextmanager
async def requests_held(page: Page, address: str) -> AsyncIterator[asyncio.Event]:
    """The page's requests to this address wait until the block ends; the event says that one has come."""
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def later(route: Route) -> None:
        arrived.set()
        await ended.wait()
        await route.continue_()

    await page.route(address, later)
    try:
        yield arrived
    finally:
        ended.set()


async def screenshot(page: Page, name: str) -> None:
    """A screenshot among the run's artefacts."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTEFACTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png")


def documented(name: str, scheme: str) -> Path:
    """Where a picture of the documents is written; `cp artefacts/browser/documents/* .github/` takes all of them."""
    folder = ARTEFACTS / "documents"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}{'-dark' if scheme == 'dark' else ''}.png"


@pytest_asyncio.fixture(loop_scope="module")
async def env(chromium: Browser) -> AsyncIterator[BrowserEnvironment]:
    emulator = SlackEmulator(MANIFEST, rates=False)
    people(emulator)
    await emulator.start(port=free_port())
    app = SampleApp(emulator)
    await app.start()
    await emulator.wait_connected()
    env = BrowserEnvironment(emulator, app, chromium, None, [])  # type: ignore[arg-type]  # the page is opened in the next line
    env.page = await env.open_page()
    yield env
    await close_windows(chromium)
    await app.stop()
    await emulator.stop()
    assert env.console_errors == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """`responder-bot try` in a process of its own, once for a module: its tests post alerts of their own."""
    with running_demo(tmp_path_factory.mktemp("try")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def flows(demo: RunningDemo, chromium: Browser) -> AsyncIterator[FlowEnvironment]:
    """Windows on the demo, and alerts for it."""
    async with httpx.AsyncClient(base_url=demo.core, timeout=30) as core:
        flows = FlowEnvironment(demo, core, partial(open_window, chromium), [])
        yield flows
        await close_windows(chromium)
    assert flows.console_errors == []


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
