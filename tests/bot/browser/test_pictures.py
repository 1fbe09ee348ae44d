"""Pictures of the README, and of every surface in both themes, wide and narrow, from a `try` of their own."""

import time
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from playwright.async_api import Locator, Page, expect

from bot.demo.environment import CLOSE, EXTRACT, ISOLATE, MAIL
from bot.features.alert_groups.views import group_card
from bot.storms import GroupContent
from tests.bot.browser.conftest import SCHEMES, BrowserEnvironment, documented, screenshot
from tests.bot.browser.flows import (
    BEN,
    RUN_ENDS_MS,
    SHARED,
    FlowEnvironment,
    card,
    choose,
    choose_first,
    command,
    leave_modal,
    modal,
)

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
WIDTHS = (1280, 420)
NOW = int(time.time() * 1000)  # so that the pictures say "today"
ALIKE = GroupContent(
    key="g1",
    is_digest=False,
    count=412,
    cards=3,
    closed=0,
    first_at=NOW - 1_500_000,
    last_at=NOW - 4_000,
    muted_until=0,
    severities=Counter({1: 371, 2: 41}),
    worst=[(2, "Logon failed 17 times for svc-backup from 198.51.100.7", "~31")],
    sampled=412,
    titles=[("Logon failed 17 times for svc-backup from 198.51.100.7", 412)],
    sources=[("wazuh", 412)],
    facts=[("ip 198.51.100.7", 301), ("ip 198.51.100.9", 88), ("hostname vpn-2", 23)],
)
STORM = replace(
    ALIKE,
    key="g2",
    is_digest=True,
    count=10_240,
    cards=0,
    severities=Counter({1: 9_102, 2: 1_100, 3: 36, 4: 2}),
    worst=[(4, "Wazuh 92052: Files encrypted on LT-0231", "~9871"), (3, "ET MALWARE Beacon to known C2", "~9620")],
    sampled=500,
    titles=[("Wazuh 5710: Attempt to login with a non-existent user", 311), ("ET SCAN Nmap", 120), ("DNS tunnel", 69)],
    sources=[("wazuh", 311), ("suricata", 189)],
)
TEMPLATE = {"name": "Malware", "tasks": [{"title": "Identify the host"}, {"title": "Contain it"}]}


async def test_an_alert_with_an_isolated_host_and_its_thread(flows: FlowEnvironment) -> None:
    ben, anna = await flows.open_page(BEN), await flows.open_page()
    _, title = await flows.alert()
    shown = await card(ben, title)
    await choose(anna, await card(anna, title), "isolate")
    await modal(anna, "one of them approves").get_by_role("button", name="Ask to isolate host").click()
    await shown.get_by_role("button", name="Approve").click()
    await modal(ben, "for 1 hour?").get_by_role("button", name="Isolate Host").click()
    await expect(shown).to_contain_text("is in force until", timeout=RUN_ENDS_MS)
    await leave_modal(ben)
    await choose(ben, shown, "extract")
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await expect(shown.locator(".thread-link")).to_contain_text("3 replies", timeout=RUN_ENDS_MS)
    for scheme in SCHEMES:
        await taken(await flows.open_page(color_scheme=scheme), title, scheme)


async def taken(page: Page, title: str, scheme: str) -> None:
    """The card at the end of the channel, its thread beside it, nothing under the pointer."""
    shown = await card(page, title)
    await shown.locator(".thread-link").click()
    await expect(page.locator("#pane")).to_contain_text("Extract Indicators")
    await page.mouse.move(0, 0)
    await page.evaluate("document.activeElement.blur()")
    await page.screenshot(path=documented("alert", scheme))


@dataclass
class Phone:
    """A phone's page, and its pictures by scheme."""

    page: Page
    taken: dict[str, list[bytes]]

    async def shows(self, *buttons: Locator) -> None:
        """Take a picture once these are in sight without scrolling, light and dark."""
        for button in buttons:
            await expect(button).to_be_in_viewport(ratio=1)
        for scheme in SCHEMES:
            await self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.taken.setdefault(scheme, []).append(await self.page.screenshot())

    async def decision(self, on: str, button: str) -> None:
        """The request for approval with these words, as Home's Review shows it."""
        request = self.page.locator("main [data-block]", has_text=on)
        await request.get_by_role("button", name="Review").click()
        shown = modal(self.page, "answer by")
        await self.shows(shown.get_by_role("button", name=button), shown.get_by_role("button", name="Deny"))
        await leave_modal(self.page)

    async def side_by_side(self, name: str) -> None:
        """Write the pictures of each scheme into one, for the documents."""
        for scheme, pictures in self.taken.items():
            shown = "".join(f'<img src="data:image/png;base64,{b64encode(one).decode()}">' for one in pictures)
            empty = await self.page.context.new_page()
            await empty.set_content(f'<body style="margin:0;display:inline-flex;gap:8px">{shown}</body>')
            await empty.locator("body").screenshot(path=documented(name, scheme), omit_background=True)
            await empty.close()


async def isolate(page: Page, alert_ids: Sequence[str]) -> None:
    """Ask to isolate the hosts of these alerts."""
    await command(page, f"/responder run Isolate Host {' '.join(alert_ids)}")
    await modal(page, "one of them approves").get_by_role("button", name="Ask to isolate host").click()
    await expect(modal(page, "one of them approves")).to_be_hidden()
    await leave_modal(page)


async def test_what_is_decided_on_a_phone_is_in_sight(flows: FlowEnvironment) -> None:
    """A fresh card, an approval, one of four hosts, and Home in a storm."""
    page = await flows.open_page(BEN, viewport={"width": 390, "height": 844})
    phone = Phone(page, {})
    alert_id, title = await flows.alert()
    fresh = await card(page, title)
    await fresh.scroll_into_view_if_needed()
    await phone.shows(
        *[fresh.get_by_role("button", name=name) for name in ("Act on hostname", "Assign to me", "Details")]
    )
    hosts = ("SRV-FILE-02.prod.example.org", "SRV-FILE-02-BACKUP.prod.example.org", "LT-0777", "LT-0778")
    several = [await flows.alert(artifacts=[{"dataType": "hostname", "data": host}]) for host in hosts]
    anna = await flows.open_page()
    await isolate(anna, [alert_id])
    await isolate(anna, [one for one, _ in several])
    await flows.alert(title="Domain admin added on dc-1", severity=4)
    for number in range(40):
        await flows.alert(title=f"ET SCAN Potential SSH Scan from 203.0.113.{number}", severity=1)
    await page.evaluate("location.hash = '#/U0BEN/home'")
    home = page.locator("main")
    await expect(home).to_contain_text("Domain admin added on dc-1")
    await phone.decision(f"({alert_id})", "Isolate Host")
    await phone.decision("4 targets", "Isolate Host (ticked)")
    critical = home.locator("[data-block]", has_text="Domain admin added on dc-1")
    await phone.shows(home.get_by_role("button", name="Review").last, critical.get_by_role("button"))
    await phone.side_by_side("surfaces")


async def test_every_surface_in_both_themes_on_a_wide_and_a_narrow_screen(flows: FlowEnvironment) -> None:
    await flows.request("POST", "/api/case/template", "lea", TEMPLATE)
    page = await flows.open_page(BEN)
    alert_id, title = await flows.alert()
    await card(page, title)
    body = {"objectType": "alert", "objectId": alert_id}
    await flows.request("PATCH", f"/api/alert/{alert_id}", "ben", {"assignee": "ben@responder-bot.local"})
    for name in (EXTRACT, EXTRACT, MAIL, MAIL, ISOLATE):
        parameters = {"minutes": 60, "reason": "lateral movement to 198.51.100.23"} if name == ISOLATE else {}
        run = {"responderId": name, **body, "parameters": parameters}
        await flows.request("POST", "/api/connector/engine/action", "anna", run)
    await expect(await card(page, title)).to_contain_text("2 runs failed", timeout=RUN_ENDS_MS)
    await messages(page, title)
    await app(page, alert_id)
    await modals(flows, title, alert_id)
    await withheld(flows)


async def messages(page: Page, title: str) -> None:
    """The card with a group of runs, and its thread."""
    await leave_pane(page)
    shown = await card(page, title)
    await pictured(page, "card", shown)
    await shown.locator(".thread-link").click()
    await expect(page.locator("#pane")).to_contain_text("asks · ")
    await pictured(page, "thread", page.locator("#pane"))
    await leave_pane(page)


async def app(page: Page, alert_id: str) -> None:
    """The App Home, and the direct message to somebody who may approve."""
    await page.evaluate("location.hash = '#/U0BEN/home'")
    await expect(page.locator("main")).to_contain_text("Waiting for your approval")
    await pictured(page, "home")
    await page.get_by_text("Messages", exact=True).click()
    request = page.locator("main .message", has_text=f"({alert_id})")
    await expect(request).to_have_count(1)
    await pictured(page, "approval", request)
    await page.get_by_role("button", name="Phone", exact=True).click()
    await expect(page.locator("#pane")).to_contain_text("HIGH: Isolate Host")
    await pictured(page, "phone", page.locator("#pane"))
    await leave_pane(page)


async def modals(flows: FlowEnvironment, title: str, alert_id: str) -> None:
    """What asks, explains or lists; and the closed card."""
    page = await flows.open_page()
    await leave_modal(page)
    await leave_pane(page)
    shown = await card(page, title)
    await shown.locator(".select-box", has_text="Run a responder").click()
    await expect(page.locator(".picker")).to_contain_text("needs 1 approval")
    await pictured(page, "responder-menu", page.locator(".picker .option").last)
    await page.keyboard.press("Escape")
    await shown.get_by_role("button", name="Details").click()
    await expect(modal(page)).to_contain_text("Observables")
    await pictured(page, "details")
    await leave_modal(page)
    await command(page, f"/responder run Webhook {alert_id}")
    await expect(modal(page)).to_contain_text("nothing calls that back")
    await pictured(page, "confirm")
    await leave_modal(page)
    for typed, words, name in (
        (f"list {alert_id}", "Can run", "list"),
        (f"case {alert_id}", "Malware", "template"),
        (f"actions {alert_id}", "runs", "what-ran"),
        (f"audit {alert_id}", "asked to run", "audit"),
    ):
        await command(page, f"/responder {typed}")
        await expect(modal(page)).to_contain_text(words)
        await pictured(page, name)
        await leave_modal(page)
    await page.click("[aria-label=Shortcuts]")
    await page.click("[role=menuitem]:has-text('Run a responder')")
    for number, (typed, shown_then) in enumerate(((alert_id, title), ("Block", "How long")), 1):
        await expect(page.locator("#modal .select-box")).to_have_count(number)  # the app's answer brings the next menu
        await page.locator("#modal .select-box").last.click()
        await choose_first(page, typed)
        await expect(modal(page)).to_contain_text(shown_then)
    await pictured(page, "run-modal")
    await leave_modal(page)
    await command(page, "/responder help")
    await expect(modal(page)).to_contain_text("What you can do with")
    await pictured(page, "help")
    await leave_modal(page)
    reason = {"reason": "a scanner of our own"}
    run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert_id, "parameters": reason}
    await flows.request("POST", "/api/connector/engine/action", "anna", run)
    await expect(shown).to_contain_text("closed by Anna", timeout=RUN_ENDS_MS)
    await pictured(page, "closed", shown)


async def withheld(flows: FlowEnvironment) -> None:
    """What stands in a channel that another company shares, and what somebody is told who may not see an alert."""
    red, _ = await flows.alert(1, tlp=3)
    _, clear = await flows.alert(2, title="Reported phishing: your parcel waits")
    page = await flows.open_page(channel=SHARED)
    await leave_pane(page)
    shown = await card(page, clear)
    await pictured(page, "shared", shown)
    page = await flows.open_page()
    await leave_pane(page)
    shown = await card(page, f"{red} ·")
    await shown.get_by_role("button", name="Details").click()
    await expect(modal(page)).to_contain_text("Lea or Mia can open this.")
    await pictured(page, "withheld")
    await leave_modal(page)


async def test_the_cards_of_alerts_that_say_the_same_and_of_a_storm(env: BrowserEnvironment) -> None:
    for content in (ALIKE, STORM, replace(ALIKE, key="g3", muted_until=NOW + 8 * 3_600_000)):
        card = group_card(content, button=lambda intent: f"{intent.what}-{intent.object_id}", now_ms=NOW)
        await env.app.client.chat_postMessage(channel="C0SOC", **card.payload())
    await expect(env.page.get_by_text("Muted until")).to_be_visible()
    await leave_pane(env.page)
    await pictured(env.page, "storm")
    await env.page.get_by_role("button", name="More", exact=True).first.click()
    await expect(env.page.get_by_text("Make one case", exact=True)).to_be_visible()
    await pictured(env.page, "storm-menu")


async def pictured(page: Page, name: str, shown: Locator | None = None) -> None:
    """Pictures of what is open, light and dark, wide and narrow; nothing is wider than the screen."""
    await page.mouse.move(0, 0)
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width in reversed(WIDTHS):
            await page.set_viewport_size({"width": width, "height": 860})
            if shown is not None:
                await shown.scroll_into_view_if_needed()
            await screenshot(page, f"surface-{name}-{scheme}-{width}")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    await page.emulate_media(color_scheme="light")


async def leave_pane(page: Page) -> None:
    if await page.locator("#pane [aria-label^=Close]").count():
        await page.click("#pane [aria-label^=Close]")
