"""An emulator, a small app connected to it, and a headless Chromium that looks at the page."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, async_playwright, expect

from bot.slack_emulator import SlackEmulator
from tests.bot.browser.sample_app import MANIFEST, SampleApp, people
from tests.bot.browser.story import Story, Tried, trying

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
PATIENCE_MS = 30_000  # far more than anything here takes on a busy machine


@dataclass
class Desk:
    """Everything a test needs; `trouble` holds what the page complained of."""

    emulator: SlackEmulator
    app: SampleApp
    browser: Browser
    page: Page
    trouble: list[str]

    async def look(self, user: str = "U0ANNA", channel: str = "C0SOC", **options: Any) -> Page:
        """A new window for this person, in this channel."""
        return await window(self.browser, f"{self.emulator.page_url}#/{user}/{channel}", self.trouble, **options)

    async def command(self, text: str) -> None:
        """Type a command and send it."""
        await self.page.fill("#box", text)
        await self.page.keyboard.press("Escape")
        await self.page.focus("#box")
        await self.page.keyboard.press("Enter")

    async def everything(self) -> None:
        """All blocks and elements are there."""
        await self.command("/everything")
        await self.page.wait_for_selector("[data-block=buttons]")


async def window(browser: Browser, url: str, trouble: list[str], **options: Any) -> Page:
    """A new window, of nobody's cookies; what its page complains of goes to `trouble`."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda said: trouble.append(said.text) if said.type in ("error", "warning") else None)
    await page.goto(url)
    await page.wait_for_selector(".room.current", state="attached")
    return page


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's Chromium, headless."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("No chromium found. Install it from the system's packages: apt-get install chromium")
    async with async_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = await playwright.chromium.launch(executable_path=program, headless=True, args=ARGUMENTS)
        yield browser
        await browser.close()


@asynccontextmanager
async def held(page: Page, address: str) -> AsyncIterator[asyncio.Event]:
    """The page's requests to this address wait until the block ends; the event says that one has come."""
    came, ended = asyncio.Event(), asyncio.Event()

    async def later(route: Route) -> None:
        came.set()
        await ended.wait()
        await route.continue_()

    await page.route(address, later)
    try:
        yield came
    finally:
        ended.set()


async def keep(page: Page, name: str) -> None:
    """A screenshot among the run's artefacts."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTEFACTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png")


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    emulator = SlackEmulator(MANIFEST, rates=False)
    people(emulator)
    await emulator.start()
    app = SampleApp(emulator)
    await app.start()
    await emulator.wait_connected()
    async with chromium() as browser:
        desk = Desk(emulator, app, browser, None, [])  # type: ignore[arg-type]  # the page is opened in the next line
        desk.page = await desk.look()
        yield desk
    await app.stop()
    await emulator.stop()
    assert desk.trouble == []


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """`responder-bot try` in a process of its own, once for a module: its tests post alerts of their own."""
    with trying(tmp_path_factory.mktemp("try")) as running:
        yield running


@pytest_asyncio.fixture
async def story(tried: Tried) -> AsyncIterator[Story]:
    """Windows on it, and alerts for it."""
    async with chromium() as browser, httpx.AsyncClient(base_url=tried.core, timeout=30) as core:
        story = Story(tried, core, partial(window, browser), [])
        yield story
    assert story.trouble == []
