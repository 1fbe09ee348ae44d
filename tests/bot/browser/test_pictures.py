"""The pictures of the README, taken from a `responder-bot try` of their own."""

from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.bot.browser.conftest import screenshot
from tests.bot.browser.flows import BEN, RUN_ENDS_MS, FlowEnvironment, card, choose, ephemeral

pytestmark = pytest.mark.browser
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def test_an_alert_whose_runs_have_ended_with_its_thread(flows: FlowEnvironment) -> None:
    page = await flows.open_page(BEN)  # the picture is Anna's: what only Ben was told is not in it
    _, title = await flows.alert()
    shown = await card(page, title)
    await choose(page, shown, "webhook")
    await ephemeral(page, "It can't be called back.").get_by_role("button", name="Run", exact=True).click()
    await expect(shown).to_contain_text("Webhook_1_0 done", timeout=RUN_ENDS_MS)
    await choose(page, shown, "extract")
    await expect(shown).to_contain_text("ExtractIndicators_1_0 done", timeout=RUN_ENDS_MS)
    await expect(shown.locator(".thread-link")).to_contain_text("3 replies", timeout=RUN_ENDS_MS)
    for scheme in SCHEMES:
        await taken(await flows.open_page(color_scheme=scheme), title, scheme)


async def taken(page: Page, title: str, scheme: str) -> None:
    """The card at the end of the channel, its thread beside it, nothing under the pointer."""
    shown = await card(page, title)
    await shown.locator(".thread-link").click()
    await expect(page.locator("#pane .file")).to_be_visible()
    await page.mouse.move(0, 0)
    await page.evaluate("document.activeElement.blur()")
    await screenshot(page, f"readme-alert-{scheme}")
