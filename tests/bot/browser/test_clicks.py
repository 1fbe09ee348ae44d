"""How many clicks it takes to do what analysts do most."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, expect

from bot.demo.environment import ISOLATE, MAIL
from tests.bot.browser.flows import BEN, RUN_ENDS_MS, FlowEnvironment, card, leave_modal, until_true

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

COUNT = """() => {
    if (window.clicks === undefined)
        document.addEventListener("click", (event) => { window.clicks += event.isTrusted }, true);
    window.clicks = 0;
}"""


@asynccontextmanager
async def clicks(page: Page, expected: int) -> AsyncIterator[None]:
    """Count what a person clicks in the block."""
    await page.evaluate(COUNT)
    yield
    assert await page.evaluate("window.clicks") == expected


async def test_run_takes_2_clicks(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    _, title = await flows.alert()
    shown = await card(page, title)
    async with clicks(page, 2):
        await shown.locator(".block-actions .select-box").click()
        await page.locator(".picker .option", has_text="Extract").click()
        await expect(shown).to_contain_text("Found", timeout=RUN_ENDS_MS)


async def test_a_run_that_asks_first_takes_3_clicks(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    async with clicks(page, 3):
        await shown.locator(".block-actions .select-box").click()
        await page.locator(".picker .option", has_text="Webhook").first.click()
        await page.locator("#modal").get_by_role("button", name="Send to 127.0.0.1").click()
        await expect(shown).to_contain_text("Webhook done", timeout=RUN_ENDS_MS)
    assert [
        one["status"] for one in await flows.request("GET", f"/api/connector/engine/action/alert/{alert_id}", "lea")
    ]


async def test_an_approval_from_its_notification_takes_2_clicks_and_a_report_1(flows: FlowEnvironment) -> None:
    page = await flows.open_page(BEN)
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    for name in (MAIL, ISOLATE):
        run = {"responderId": name, "objectType": "alert", "objectId": alert_id}
        await flows.request("POST", "/api/connector/engine/action", "anna", run)
    await expect(shown.locator(".thread-link")).to_be_visible(timeout=RUN_ENDS_MS)
    async with clicks(page, 1):
        await shown.locator(".thread-link").click()
        await expect(page.locator("#pane")).to_contain_text("Connection refused", timeout=RUN_ENDS_MS)
    await page.locator("#sidebar").get_by_text("Responder Bot", exact=True).click()
    await page.get_by_text("Messages", exact=True).click()
    request = page.locator("main .message", has_text=f"({alert_id})")
    await expect(request).to_have_count(1)
    await page.get_by_role("button", name="Phone", exact=True).click()
    await expect(page.locator("#pane")).to_contain_text("HIGH: Isolate Host")
    async with clicks(page, 2):
        await request.get_by_role("button", name="Approve").click()
        await page.locator("#modal").get_by_role("button", name="Isolate Host").click()
        await expect(request).to_contain_text("Approved by Ben.")


async def test_a_case_with_a_template_takes_3_clicks(flows: FlowEnvironment) -> None:
    await flows.request("POST", "/api/case/template", "lea", {"name": "Malware", "tasks": [{"title": "Contain it"}]})
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    async with clicks(page, 3):
        await shown.get_by_role("button", name="More", exact=True).click()
        await page.get_by_role("menuitem", name="Make a case", exact=True).click()
        await page.locator("#modal").get_by_role("button", name="Use").first.click()
        await expect(page.locator("#modal")).to_contain_text("Case made", timeout=RUN_ENDS_MS)
    await leave_modal(page)
    await expect(shown).to_contain_text("in case ~", timeout=RUN_ENDS_MS)
    made = await flows.request("GET", f"/api/alert/{alert_id}", "lea")
    assert (await flows.request("GET", f"/api/case/{made['case']}", "lea"))["template"] == "Malware"


async def test_an_address_is_blocked_for_an_hour_in_3_clicks(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    address = {"dataType": "ip", "data": "198.51.100.23", "ioc": True}
    _, title = await flows.alert(title="Beacon to a known address", artifacts=[address])
    shown = await card(page, title)
    async with clicks(page, 3):
        await shown.get_by_text("Act on ip").click()
        await page.locator(".picker .option", has_text=re.compile("^Block")).click()
        await expect(page.locator("#modal")).to_contain_text("ip 198[.]51[.]100[.]23")
        await page.locator("#modal .sheet-foot .primary").click()
        await expect(shown).to_contain_text("Block on ip 198[.]51[.]100[.]23", timeout=RUN_ENDS_MS)
    await expect(shown).to_contain_text("is in force until", timeout=RUN_ENDS_MS)


WHOLE_CARDS = """() => {
    const area = document.querySelector("main .scroller").getBoundingClientRect();
    const cards = [...document.querySelectorAll("main .message.card")].map(card => card.getBoundingClientRect());
    return cards.filter(card => card.top >= area.top && card.bottom <= area.bottom).length;
}"""


async def test_four_open_cards_fit_a_screen(flows: FlowEnvironment) -> None:
    words = ("Cobalt Strike", "Sliver", "Havoc", "Mythic", "Brute Ratel")  # alike ones would share a card
    titles = [(await flows.alert(title=f"ET MALWARE {name} beacon from web-{name[:2]}"))[1] for name in words]
    page = await flows.open_page()
    await page.click("#pane [aria-label^=Close]")
    for title in titles:
        await card(page, title)
    await page.evaluate("document.querySelector('main .scroller').scrollTop = 1e9")
    await until_true(page, f"() => ({WHOLE_CARDS})() >= 4")
