"""`responder-bot try` as a process, and a person's hands at its page."""

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
PREPARED: list[dict[str, Any]] = json.loads((ROOT / "bot" / "demo" / "alerts.json").read_text("utf-8"))
ALERTS, SHARED = "C0ALERTS", "C0SHARED"
ANNA, BEN, LEA, TOM = "U0ANNA", "U0BEN", "U0LEA", "U0TOM"
RUN_ENDS_MS = 45_000  # a responder ends in well under a second, but machines are busy
_numbers = count(1)


@dataclass(frozen=True)
class Tried:
    """Where it listens, and the keys of its people."""

    page: str
    core: str
    keys: Mapping[str, str]


@contextmanager
def trying(state: Path) -> Iterator[Tried]:
    """Start it, wait until it says its addresses, end it as Ctrl+C does."""
    command = [sys.executable, "-m", "bot.cli", "try", "--state", str(state)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=state, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline(), process.stdout.readline()]
            told = json.loads((state / "try.json").read_text("utf-8"))
            assert [line.split()[1] for line in said] == [told["page"], told["core"]]
            yield Tried(told["page"], told["core"], told["keys"])
        finally:
            process.send_signal(signal.SIGINT)


@dataclass
class Story:
    """Everything a test of the bot's flows needs; `trouble` holds what the pages complained of."""

    tried: Tried
    core: httpx.AsyncClient
    window: Callable[..., Awaitable[Page]]
    trouble: list[str]

    async def look(self, user: str = ANNA, channel: str = ALERTS, **options: Any) -> Page:
        """A new window for this person."""
        return await self.window(f"{self.tried.page}#/{user}/{channel}", self.trouble, **options)

    async def alert(self, kind: int = 0, **changes: Any) -> tuple[str, str]:
        """One more of the prepared alerts, of a host of its own; its id and title."""
        number = next(_numbers)
        title = changes.pop("title", re.sub(r"\.45$", f".{100 + number}", PREPARED[kind]["title"]))
        body = {**PREPARED[kind], **changes, "title": title, "sourceRef": f"{PREPARED[kind]['sourceRef']}-{number}"}
        return (await self.request("POST", "/api/alert", "siem", body))["id"], title

    async def request(self, method: str, path: str, who: str, body: Any = None) -> Any:
        """Core's own interface, as one of its users."""
        headers = {"Authorization": f"Bearer {self.tried.keys[who]}"}
        answer = await self.core.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()


async def card(page: Page, words: str) -> Locator:
    """The card with these words, once it is there and drawn."""
    found = page.locator("main .message.card:not(.ephemeral)").filter(has_text=words)
    await expect(found).to_have_count(1)
    return found


def whisper(page: Page, words: str | re.Pattern[str]) -> Locator:
    """What only this person sees, the newest with these words."""
    return page.locator("main .message.ephemeral").filter(has_text=words).last


async def command(page: Page, text: str) -> None:
    """Type a command and send it."""
    await page.fill("#box", text)
    await page.focus("#box")
    await page.keyboard.press("Enter")


async def act_as(page: Page, name: str) -> None:
    """Change to somebody else, by the menu in the corner."""
    await page.click(".person")
    await page.click(f"[role=menuitemradio]:has-text('{name}')")
    await page.wait_for_selector(f".person:has-text('{name}')")
    await page.wait_for_selector(".message.card")


async def choose(page: Page, shown: Locator, typed: str) -> None:
    """Open the card's menu, type, and take what is found."""
    await shown.locator(".select-box").click()
    await page.wait_for_selector(".picker .option")
    await page.keyboard.type(typed)
    await expect(page.locator(".picker .option")).to_have_count(1)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".picker", state="detached")


async def within_the_window(page: Page, selector: str) -> None:
    """Nothing of it is cut off by an edge, once it stands: what grows is moved before the next frame is drawn."""
    await page.wait_for_function(
        """selector => {
            const {left, top, right, bottom} = document.querySelector(selector).getBoundingClientRect();
            return Math.min(left, top) >= 0 && right <= innerWidth && bottom <= innerHeight;
        }""",
        arg=selector,
    )
