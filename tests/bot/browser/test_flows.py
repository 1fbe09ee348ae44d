"""The bot's flows as people go through them in `responder-bot try`, each with a picture."""

import re

import pytest
from playwright.async_api import Page, expect

from bot.demo.environment import EXTRACT
from tests.bot.browser.conftest import screenshot
from tests.bot.browser.flows import (
    ANNA,
    BEN,
    LEA,
    RUN_ENDS_MS,
    SHARED,
    TOM,
    FlowEnvironment,
    assert_in_viewport,
    card,
    choose,
    choose_first,
    command,
    ephemeral,
    leave_modal,
    modal,
    switch_user,
)

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
MENU = ".block-actions"  # of a card: its responders; observables have menus of their own above


async def test_a_list_by_command_says_what_can_run_and_the_picked_line_can_be_run(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    await card(page, title)
    await command(page, f"/responder list {alert_id}")
    listed = modal(page, "Close As False Positive")
    await expect(listed).to_contain_text(alert_id)
    await screenshot(page, "flow-list")
    await leave_modal(page)


async def test_a_run_by_command_ends_on_the_card_and_in_the_thread(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    await command(page, f"/responder run ResponderBot_Extract {alert_id}")
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await expect(ephemeral(page, alert_id)).to_be_visible()
    await screenshot(page, "flow-run-by-command")
    await shown.locator(".thread-link").click()
    thread = page.locator("#pane")
    await expect(thread).to_contain_text("Extract Indicators", timeout=RUN_ENDS_MS)
    await expect(thread).to_contain_text("domain: updates[.]example[.]net", timeout=RUN_ENDS_MS)
    await screenshot(page, "flow-thread")


async def test_a_block_on_a_phone_shows_how_long_above_boxes_with_their_origin(flows: FlowEnvironment) -> None:
    page = await flows.open_page(viewport={"width": 390, "height": 844})
    alert_id, title = await flows.alert(title="ET MALWARE Cobalt Strike Beacon Activity (GET) from 192.0.2.171")
    shown = await card(page, title)
    await command(page, f"/responder run Extract Indicators {alert_id}")
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await leave_modal(page)
    await command(page, f"/responder run Block {alert_id}")
    form = modal(page, "What should it act on?")
    for words in ("How long", "Starts at once", "ip · named in the title · Added by Extract Indicators"):
        await expect(form.get_by_text(words)).to_be_in_viewport(ratio=1)
    await expect(form).to_contain_text("Not offered: 192[.]0[.]2[.]45 (Host inside) is protected")
    await expect(form.get_by_role("checkbox")).to_have_count(5)
    await screenshot(page, "flow-block-phone")
    await leave_modal(page)


async def test_the_cards_menu_stays_in_the_window_and_runs_what_is_typed(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    _, title = await flows.alert()
    shown = await card(page, title)
    await shown.locator(".block-actions .select-box").click()
    await page.wait_for_selector(".picker .option:has-text('Webhook')")
    await assert_in_viewport(page, ".picker")
    await screenshot(page, "flow-menu")
    await page.keyboard.press("Escape")
    await choose(page, shown, "false positive")
    await modal(page, "Why it is a false positive").get_by_label("Reason").fill("a scanner of our own")
    await screenshot(page, "flow-reason")
    await page.locator("#modal .sheet-foot .primary").click()
    await expect(shown).to_contain_text("(Reason: a scanner of our own) done", timeout=RUN_ENDS_MS)
    await leave_modal(page)
    await expect(shown).to_contain_text("false-positive", timeout=RUN_ENDS_MS)
    await screenshot(page, "flow-run-by-menu")


async def test_the_webhook_asks_first_and_cancel_runs_nothing(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    await choose(page, shown, "webhook")
    question = modal(page, "nothing calls that back")
    await expect(question).to_contain_text(alert_id)
    await screenshot(page, "flow-confirm")
    await question.get_by_role("button", name="Cancel").click()
    await expect(question).to_have_count(0)
    assert await flows.request("GET", f"/api/connector/cortex/action/alert/{alert_id}", "anna") == []
    await choose(page, shown, "webhook")
    await question.get_by_role("button", name="Send to 127.0.0.1").click()
    await expect(shown).to_contain_text("Webhook done", timeout=RUN_ENDS_MS)
    await screenshot(page, "flow-confirmed")
    await leave_modal(page)


async def test_the_second_of_two_analysts_is_told_and_may_run_it_anyway(flows: FlowEnvironment) -> None:
    anna, ben = await flows.open_page(ANNA), await flows.open_page(BEN)
    alert_id, title = await flows.alert()
    shown = await card(anna, title)
    await choose(anna, shown, "detonate")
    theirs = await card(ben, title)
    await expect(theirs).to_contain_text("Detonate running", timeout=RUN_ENDS_MS)
    await choose(ben, theirs, "detonate")
    response = modal(ben, "Nothing new was started")
    await expect(response).to_contain_text("Anna")
    for menu in (shown.locator(f"{MENU} .select-label"), theirs.locator(f"{MENU} .select-label")):
        await expect(menu).to_have_text("Run a responder", timeout=RUN_ENDS_MS)  # it asks again
    await screenshot(ben, "flow-collision")
    await response.get_by_role("button", name="Run anyway").click()
    await leave_modal(ben)
    for name in ("Anna", "Ben"):
        await expect(theirs).to_contain_text(f"Detonate running · by {name}", timeout=RUN_ENDS_MS)
    assert len(await flows.request("GET", f"/api/connector/cortex/action/alert/{alert_id}", "anna")) == 2
    assert await modal(anna, "Nothing new was started").count() == 0


async def test_another_person_approves_and_the_one_who_asked_can_not(flows: FlowEnvironment) -> None:
    page = await flows.open_page(ANNA)
    _, title = await flows.alert()
    shown = await card(page, title)
    await choose(page, shown, "isolate")
    await (
        modal(page, "Asks Ben, Lea and Mia; one of them approves.")
        .get_by_role("button", name="Ask to isolate host")
        .click()
    )
    await expect(modal(page, "Ben, Lea and Mia are asked; 1 approval")).to_be_visible()
    await leave_modal(page)
    await expect(shown).to_contain_text("needs 1 approval")
    await shown.locator(".thread-link").click()
    approve = page.locator("#pane").get_by_role("button", name="Approve").last  # the card above has one too
    await expect(approve).to_be_visible()
    await screenshot(page, "flow-approval-asked")
    await approve.click()
    await expect(modal(page, "You asked for this run")).to_be_visible()
    await screenshot(page, "flow-approval-refused")
    await leave_modal(page)
    await switch_user(page, "Ben (analyst)")
    shown = await card(page, title)
    await shown.locator(".thread-link").click()
    await approve.click()
    asked = modal(page, title[-20:])
    await expect(asked).to_contain_text("for 1 hour?")
    await screenshot(page, "flow-approval-asked-again")
    await asked.get_by_role("button", name="Isolate Host").click()
    await expect(
        modal(page, "You approved Isolate Host on hostname LT-0198 for 1 hour; it starts now. Anna is")
    ).to_be_visible()
    await leave_modal(page)
    await expect(shown).to_contain_text("Isolate Host on hostname LT-0198 is in force", timeout=RUN_ENDS_MS)
    await expect(page.locator("#pane").get_by_role("button", name="Approve")).to_have_count(0)
    await expect(page.locator("#pane")).to_contain_text("Approved by Ben")
    await screenshot(page, "flow-approval-given")


async def test_a_duplicate_name_of_a_template_shows_at_its_field(flows: FlowEnvironment) -> None:
    await flows.request("POST", "/api/case/template", "lea", {"name": "Malware beacon"})
    page = await flows.open_page(LEA)
    await command(page, "/responder template")
    name = page.locator("#modal [data-block=name]")
    await name.locator("input").fill("Malware beacon")
    await page.fill("#modal [data-block=tasks] textarea", "Isolate the host")
    create = page.locator("#modal").get_by_role("button", name="Create")
    await create.click()
    await expect(name.locator(".field-error")).to_contain_text("Malware beacon")
    await expect(name.locator("input")).to_be_focused()
    await screenshot(page, "flow-template-duplicate")
    await name.locator("input").fill("Malware beacon, DMZ")
    await create.click()
    await expect(create).to_have_count(0)
    await expect(page.locator("#modal")).to_contain_text("Malware beacon, DMZ")
    await screenshot(page, "flow-template-created")
    await page.keyboard.press("Escape")
    await expect(page.locator("#modal")).to_be_hidden()


async def test_a_shared_channel_has_only_what_anybody_may_see(flows: FlowEnvironment) -> None:
    page = await flows.open_page(TOM, SHARED)
    alert_id, title = await flows.alert()
    _, clear = await flows.alert(2, title="Reported phishing: An invoice is overdue")
    await card(page, clear)
    await screenshot(page, "flow-shared")
    shown = await page.inner_text("main")
    assert alert_id not in shown
    assert title not in shown
    assert "withheld" not in shown


async def test_somebody_without_rights_is_told_which_and_who_can_give_them(flows: FlowEnvironment) -> None:
    page = await flows.open_page(TOM)
    alert_id, title = await flows.alert(2, title="Reported phishing: Parcel held at customs")
    shown = await card(page, title)
    await shown.locator(".block-actions .select-box").click()
    await expect(page.locator(".picker .option")).to_have_text(
        re.compile("You can't run responders or decide on runs.*Ask Lea or Mia")
    )
    await screenshot(page, "flow-no-rights-menu")
    await page.keyboard.press("Enter")
    await expect(modal(page)).to_contain_text("You can't run responders or decide on runs. Ask Lea or Mia.")
    await leave_modal(page)
    await command(page, f"/responder run ResponderBot_Close {alert_id}")
    await expect(ephemeral(page, "You can't run responders or decide on runs. Ask Lea or Mia.")).to_be_visible()
    await screenshot(page, "flow-no-rights")
    await command(page, "/responder template")
    await expect(ephemeral(page, "You can't make case templates.")).to_contain_text("Ask Lea or Mia.")
    await command(page, "/responder help")
    helped = modal(page, "What you can do with")
    await expect(helped).to_contain_text("/responder list")
    assert "/responder run" not in await helped.inner_text()


async def test_home_shows_what_waits_for_me_and_what_failed(flows: FlowEnvironment) -> None:
    page = await flows.open_page(BEN)
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    await choose(page, shown, "mail")
    await modal(page, "nothing calls that back").get_by_role("button", name="Send to example.org").click()
    await leave_modal(page)
    await expect(shown).to_contain_text("Mail failed", timeout=RUN_ENDS_MS)
    await screenshot(page, "flow-failed")
    run_body = {"responderId": "Demo_Isolate_Host_1_0", "objectType": "alert", "objectId": alert_id}
    await flows.request("POST", "/api/connector/cortex/action", "anna", run_body)
    await page.click("[data-channel=app]")
    home = page.locator(".home-page")
    await expect(home).to_contain_text("Isolate Host")
    await expect(home).to_contain_text(re.compile("Mail failed"))
    await screenshot(page, "flow-home")
    await home.get_by_role("button", name="Review").click()
    await modal(page, "for 1 hour").get_by_role("button", name="Deny").click()
    await modal(page, "asks · ").get_by_label("Reason").fill("It is the backup server")
    await screenshot(page, "flow-deny")
    await page.locator("#modal").get_by_role("button", name="Deny").click()
    await expect(modal(page, "You denied Isolate Host")).to_be_visible()
    await leave_modal(page)
    await expect(home).not_to_contain_text("Waiting for your approval")
    await page.click("[data-channel=C0ALERTS]")
    await expect(await card(page, title)).to_contain_text(re.compile("Isolate Host .*denied", re.IGNORECASE))


async def test_the_global_shortcut_leads_from_an_id_to_a_run(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    await page.click("[aria-label=Shortcuts]")
    await page.click("[role=menuitem]:has-text('Run a responder')")
    await pick_in_modal(page, alert_id)
    await expect(page.locator("#modal")).to_contain_text(title)
    await screenshot(page, "flow-shortcut-alert")
    await pick_in_modal(page, "Extract")
    await screenshot(page, "flow-shortcut")
    await page.locator("#modal .sheet-foot .primary").click()
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await leave_modal(page)


async def test_the_message_shortcut_finds_the_alert_in_what_somebody_wrote(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    alert_id, title = await flows.alert()
    shown = await card(page, title)
    await page.fill("#box", f"can somebody look at {alert_id}, please?")
    await page.keyboard.press("Enter")
    posted = page.locator("main .message", has_text=f"look at {alert_id}, please")
    await posted.hover()
    await posted.get_by_role("button", name="More actions").click()
    await page.click("[role=menuitem]:has-text('Run a responder')")
    await expect(page.locator("#modal")).to_contain_text(title)
    await pick_in_modal(page, "Webhook")
    await expect(page.locator("#modal")).to_contain_text("nothing calls that back")
    await screenshot(page, "flow-message-shortcut")
    await page.locator("#modal .sheet-foot .primary").click()
    await expect(shown).to_contain_text("Webhook done", timeout=RUN_ENDS_MS)
    await leave_modal(page)


async def test_the_flows_are_readable_in_the_dark_and_on_a_phone(flows: FlowEnvironment) -> None:
    alert_id, title = await flows.alert()
    run_body = {"responderId": EXTRACT, "objectType": "alert", "objectId": alert_id}
    dark = await flows.open_page(color_scheme="dark")
    shown = await card(dark, title)
    await flows.request("POST", "/api/connector/cortex/action", "anna", run_body)
    await expect(shown).to_contain_text("Extract Indicators done", timeout=RUN_ENDS_MS)
    await shown.locator(".thread-link").click()
    await expect(dark.locator("#pane")).to_contain_text("Extract Indicators", timeout=RUN_ENDS_MS)
    await screenshot(dark, "flow-thread-dark")

    phone = await flows.open_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    small = await card(phone, title)
    await small.locator(".block-actions .select-box").tap()
    await phone.wait_for_selector(".picker .option:has-text('Webhook')")
    await assert_in_viewport(phone, ".picker")
    await screenshot(phone, "flow-menu-phone")
    await phone.tap(".picker .option:has-text('Webhook')")
    await expect(modal(phone, "nothing calls that back")).to_be_visible()
    await screenshot(phone, "flow-confirm-phone")
    await leave_modal(phone)
    await small.locator(".thread-link").tap()
    await expect(phone.locator("#pane")).to_contain_text("Extract Indicators")
    await screenshot(phone, "flow-thread-phone")
    assert await phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def pick_in_modal(page: Page, typed: str) -> None:
    await page.locator("#modal .select-box").last.click()
    await page.wait_for_selector(".picker .option")
    await assert_in_viewport(page, ".picker")
    await choose_first(page, typed)


async def test_a_thing_to_try_switches_the_person_opens_and_fills(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    await page.click(".pointer:has-text('Approve it as Ben')")
    await page.wait_for_selector(".person:has-text('Ben')")
    await expect(page.locator("main")).to_contain_text("You see up to TLP:AMBER")
    await screenshot(page, "things-to-try")
    await page.click(".pointer:has-text('See less')")
    await page.wait_for_selector(".person:has-text('Anna')")
    await page.wait_for_selector("[data-channel=C0SHARED].current")
    await page.click(".pointer:has-text('Make a case template')")
    await page.wait_for_selector(".person:has-text('Lea')")
    await expect(page.locator("#box")).to_have_value("/responder template")
