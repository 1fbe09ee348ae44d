"""`responder-bot try` as a process, and what people do on its page."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Locator, Page, expect

ROOT = Path(__file__).parents[3]
SAMPLE_ALERTS: list[dict[str, Any]] = json.loads((ROOT / "bot" / "demo" / "alerts.json").read_text("utf-8"))
ALERTS, SHARED = "C0ALERTS", "C0SHARED"
ANNA, BEN, LEA, TOM = "U0ANNA", "U0BEN", "U0LEA", "U0TOM"
RUN_ENDS_MS = 45_000  # a responder ends in well under a second, but machines are busy
_numbers = count(1)


@dataclass(frozen=True)
class RunningDemo:
    """Its addresses, and the API keys of its users."""

    page: str
    core: str
    keys: Mapping[str, str]


@contextmanager
def running_demo(state: Path) -> Iterator[RunningDemo]:
    """Start the demo, wait until it prints its address, and stop it as Ctrl+C does."""
    command = [sys.executable, "-m", "bot.cli", "try", "--state", str(state)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=state, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            addresses = json.loads((state / "try.json").read_text("utf-8"))
            assert line == f"Open this in your browser: {addresses['page']}   (Ctrl+C stops it)\n"
            yield RunningDemo(addresses["page"], addresses["core"], addresses["keys"])
        finally:
            process.send_signal(signal.SIGINT)


@dataclass
class FlowEnvironment:
    """Everything a test of the bot's flows needs; `console_errors` holds errors and warnings of the pages' consoles."""

    demo: RunningDemo
    core: httpx.AsyncClient
    open_window: Callable[..., Awaitable[Page]]
    console_errors: list[str]

    async def open_page(self, user: str = ANNA, channel: str = ALERTS, **options: Any) -> Page:
        """A new window for this person; a modal that another test left open is closed."""
        page = await self.open_window(f"{self.demo.page}#/{user}/{channel}", self.console_errors, **options)
        await leave_modal(page)
        return page

    async def alert(self, kind: int = 0, **changes: Any) -> tuple[str, str]:
        """Create one of the sample alerts with a host and a type of its own, so that it has a card of its own too.

        Returns its id and title.
        """
        number = next(_numbers)
        title = changes.pop("title", re.sub(r"\.45$", f".{100 + number}", SAMPLE_ALERTS[kind]["title"]))
        body = {
            **SAMPLE_ALERTS[kind],
            "type": f"{SAMPLE_ALERTS[kind]['type']}-{number}",
            **changes,
            "title": title,
            "sourceRef": f"{SAMPLE_ALERTS[kind]['sourceRef']}-{number}",
        }
        return (await self.request("POST", "/api/alert", "siem", body))["id"], title

    async def request(self, method: str, path: str, who: str, body: Any = None) -> Any:
        """Call core's interface as one of its users."""
        headers = {"Authorization": f"Bearer {self.demo.keys[who]}"}
        answer = await self.core.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()


async def card(page: Page, words: str) -> Locator:
    """The card with these words, once it is shown."""
    found = page.locator("main .message.card:not(.ephemeral)").filter(has_text=words)
    await expect(found).to_have_count(1)
    return found


def ephemeral(page: Page, words: str | re.Pattern[str]) -> Locator:
    """The newest ephemeral message with these words."""
    return page.locator("main .message.ephemeral").filter(has_text=words).last


def modal(page: Page, words: str | re.Pattern[str] = "") -> Locator:
    """The modal, if it has these words."""
    return page.locator("#modal").filter(has_text=words)


async def command(page: Page, text: str) -> None:
    """Type a command and send it."""
    await page.fill("#box", text)
    await page.focus("#box")
    await page.keyboard.press("Enter")


async def switch_user(page: Page, name: str) -> None:
    """Act as another person, by the menu in the corner."""
    await page.click(".person")
    await page.click(f"[role=menuitemradio]:has-text('{name}')")
    await page.wait_for_selector(f".person:has-text('{name}')")
    await page.wait_for_selector(".message.card")


async def choose(page: Page, shown: Locator, typed: str) -> None:
    """Open the card's menu, type, and choose the first option found, which is one for the alert itself."""
    await shown.locator(".block-actions .select-box").click()
    await choose_first(page, typed)


async def choose_first(page: Page, typed: str) -> None:
    """Type into the open menu and choose the first option that this finds; Enter waits for those."""
    await page.wait_for_selector(".picker .option")
    await page.keyboard.type(typed)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".picker", state="detached")


async def leave_modal(page: Page) -> None:
    """Close the modal, whatever it says; it would cover the windows of the same person."""
    if await page.locator("#modal").is_visible():
        await page.keyboard.press("Escape")
    await expect(page.locator("#modal")).to_be_hidden()


async def assert_in_viewport(page: Page, selector: str) -> None:
    """Wait until the whole element is inside the viewport; what grows is moved before the next frame is drawn."""
    is_inside = """selector => {
        const {left, top, right, bottom} = document.querySelector(selector).getBoundingClientRect();
        return Math.min(left, top) >= 0 && right <= innerWidth && bottom <= innerHeight;
    }"""
    await until_true(page, is_inside, selector)


async def until_true(page: Page, function: str, arg: object = None) -> None:
    """Look at each frame until the function of JavaScript returns true, for at most 30 s.

    The page's policy lets nobody evaluate text in it later on, as Playwright's `wait_for_function` does.
    """
    await page.evaluate(
        "arg => new Promise((resolve, reject) => { const is_true = " + function + ", end = performance.now() + 30000;"
        " const look = () => is_true(arg) ? resolve()"
        " : performance.now() > end ? reject(new Error('never true')) : requestAnimationFrame(look); look(); })",
        arg,
    )
