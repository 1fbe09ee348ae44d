"""Pictures of the README, and of every surface in both themes, wide and narrow, from a `try` of their own."""

from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from bot.demo.environment import EXTRACT, ISOLATE, MAIL
from tests.bot.browser.conftest import screenshot
from tests.bot.browser.flows import (
    BEN,
    RUN_ENDS_MS,
    FlowEnvironment,
    card,
    choose,
    command,
    ephemeral,
    leave_modal,
    modal,
)

pytestmark = pytest.mark.browser
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1280, 420)


async def test_an_alert_whose_runs_have_ended_with_its_thread(flows: FlowEnvironment) -> None:
    page = await flows.open_page(BEN)  # the picture is Anna's: what only Ben was told is not in it
    _, title = await flows.alert()
    shown = await card(page, title)
    await choose(page, shown, "webhook")
    await modal(page, "It can't be called back.").get_by_role("button", name="Run on").click()
    await expect(shown).to_contain_text("Webhook done", timeout=RUN_ENDS_MS)
    await leave_modal(page)
    await choose(page, shown, "extract")
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await expect(shown.locator(".thread-link")).to_contain_text("2 replies", timeout=RUN_ENDS_MS)
    for scheme in SCHEMES:
        await taken(await flows.open_page(color_scheme=scheme), title, scheme)


async def taken(page: Page, title: str, scheme: str) -> None:
    """The card at the end of the channel, its thread beside it, nothing under the pointer."""
    shown = await card(page, title)
    await shown.locator(".thread-link").click()
    await expect(page.locator("#pane")).to_contain_text("Extract Indicators")
    await page.mouse.move(0, 0)
    await page.evaluate("document.activeElement.blur()")
    await screenshot(page, f"readme-alert-{scheme}")


async def test_every_surface_in_both_themes_on_a_wide_and_a_narrow_screen(flows: FlowEnvironment) -> None:
    page = await flows.open_page(BEN)
    await command(page, "/responder watch approvals")
    await expect(ephemeral(page, "You watch approvals")).to_be_visible()
    alert_id, title = await flows.alert()
    await card(page, title)
    body = {"objectType": "alert", "objectId": alert_id}
    await flows.request("PATCH", f"/api/alert/{alert_id}", "ben", {"assignee": "ben@responder-bot.local"})
    for name in (EXTRACT, MAIL, ISOLATE):
        parameters = {"minutes": 60, "reason": "lateral movement to 198.51.100.23"} if name == ISOLATE else {}
        run = {"responderId": name, **body, "parameters": parameters}
        await flows.request("POST", "/api/connector/engine/action", "anna", run)
    await expect(await card(page, title)).to_contain_text("refused", timeout=RUN_ENDS_MS)
    for scheme in SCHEMES:
        for width in WIDTHS:
            size: dict[str, Any] = {"viewport": {"width": width, "height": 860}, "color_scheme": scheme}
            await surfaces(await flows.open_page(BEN, **size), title, alert_id, f"{scheme}-{width}")


async def surfaces(page: Page, title: str, alert_id: str, name: str) -> None:
    """Card, thread, App Home, direct message, and what commands show."""
    if await page.locator("#pane .pointers").count():
        await page.click("#pane [aria-label^=Close]")
    shown = await card(page, title)
    await shown.scroll_into_view_if_needed()
    await screenshot(page, f"surface-card-{name}")
    await shown.locator(".thread-link").click()
    await expect(page.locator("#pane")).to_contain_text("asks to run")
    await screenshot(page, f"surface-thread-{name}")
    await page.click("#pane [aria-label^=Close]")
    await page.evaluate("location.hash = '#/U0BEN/home'")
    await expect(page.locator("main")).to_contain_text("Waiting for your approval")
    await screenshot(page, f"surface-home-{name}")
    await assert_no_overflow(page)


async def assert_no_overflow(page: Page) -> None:
    """Nothing is wider than the screen."""
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
