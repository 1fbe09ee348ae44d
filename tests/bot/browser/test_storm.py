"""A channel in a storm and after it, as people see it: the real bot at Slack's published rates."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from bot.outbox.sending.rate_limiter import RateLimiter
from core.common.clock import MINUTE_MS
from tests.bot.browser.conftest import SCHEMES, close_windows, documented, open_window
from tests.bot.outbox.harness import ManualClock, channel_alerts, second, seconds_until, until
from tests.bot.running import SOC, BotEnvironment, running_bot

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
CHANNELS = [{"id": SOC, "clearance": "amber", "alerts": {}, "group": {"after": 1}}]
WHAT = ("DNS tunnel", "ET SCAN Nmap", "New service", "Macro in a mail", "Odd login time", "USB stick", "Blocked upload")
WHERE = ("vpn", "mail", "file server", "proxy", "build host", "kiosk", "jump host", "printer", "intranet")
WHO = ("finance", "sales", "support")


def others() -> list[dict[str, Any]]:
    """Alerts that differ from each other."""
    titles = [f"{what} at the {where} of {who}" for what in WHAT for where in WHERE for who in WHO]
    sources = ("wazuh", "suricata")
    return [
        {"title": title, "sourceRef": f"o{n}", "source": sources[n % 3 == 0], "severity": 1 + (n % 9 == 0)}
        for n, title in enumerate(titles)
    ]


def alike(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "title": f"Logon failed {17 + n} times for svc-backup from 198.51.100.7",
            "sourceRef": f"a{n}",
            "source": "wazuh",
            "severity": 1,
            "artifacts": [{"dataType": "ip", "data": f"198.51.100.{7 + 2 * (n % 4 == 0)}"}],
        }
        for n in numbers
    ]


async def post(env: BotEnvironment, alerts: Sequence[dict[str, Any]]) -> None:
    plain = {"description": "", "tags": [], "artifacts": []}
    await asyncio.gather(*(env.post_alert(**{**plain, **alert}) for alert in alerts))


def called(env: BotEnvironment, words: str) -> bool:
    """Whether the bot has sent Slack these words."""
    return any(words in str(body) for _, _, body, _ in env.emulator.traffic)


async def test_the_channel_in_a_storm_and_after_it(tmp_path: Path, chromium: Browser) -> None:
    clock, limiter, console = ManualClock(), RateLimiter(), list[str]()
    clock.stop()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock, rates=True, rate_limiter=limiter) as env:
        page = await open_window(chromium, f"{env.emulator.page_url}#/U0ANNA/{SOC}", console)
        shown = page.locator("main .message.card")
        await post(env, alike(range(1)))
        await expect(shown).to_have_count(1)
        await post(env, alike(range(1, 88)))
        await expect(shown).to_have_count(2)
        await post(env, others())
        await until(lambda: len(channel_alerts(tmp_path)) == 88 + len(others()))
        await seconds_until(env, clock, lambda: called(env, "more than Slack takes"))
        await expect(page.get_by_text("more than Slack takes")).to_be_visible()
        await post(env, [{"title": "Domain admin added on dc-1", "sourceRef": "c", "severity": 4}])
        await until(lambda: len(channel_alerts(tmp_path)) == 89 + len(others()))
        await seconds_until(env, clock, lambda: called(env, "Domain admin added"))
        await expect(page.get_by_text("Domain admin added on dc-1", exact=True)).to_be_visible()  # its own card
        for _ in range(4):  # by then the cards of groups may be updated again
            await second(env, clock)
        await pictured(page, "storm", "88 × Logon failed")
        clock.ahead_ms += 11 * MINUTE_MS
        await expect(page.get_by_text("The storm is over")).to_be_visible()
        await pictured(page, "storm-after", "The storm is over")
        await close_windows(chromium)
    assert console == []


async def pictured(page: Page, name: str, words: str) -> None:
    """The channel from the card with these words on, light and dark."""
    await page.mouse.move(0, 0)
    await page.set_viewport_size({"width": 1040, "height": 1000})
    first = page.locator("main .message.card", has_text=words)
    await first.evaluate("shown => shown.scrollIntoView({block: 'start'})")
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.evaluate("document.querySelector('main .jump').hidden = true")
        await page.locator("main .scroller").screenshot(path=documented(name, scheme))
