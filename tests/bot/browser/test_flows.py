"""The bot's flows as people go through them in `responder-bot try`, each with a picture."""

import json
import re

import pytest
from playwright.async_api import Page, expect

from tests.bot.browser.conftest import keep
from tests.bot.browser.story import (
    ANNA,
    BEN,
    LEA,
    RUN_ENDS_MS,
    SHARED,
    TOM,
    Story,
    act_as,
    card,
    choose,
    command,
    whisper,
    within_the_window,
)

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}


async def test_a_list_by_command_says_what_can_run_and_the_picked_line_can_be_run(story: Story) -> None:
    page = await story.look()
    alert_id, title = await story.alert()
    await card(page, title)
    await command(page, f"/responder list {alert_id}")
    listed = whisper(page, "ResponderBot_CloseAsFalsePositive")
    await expect(listed).to_contain_text(alert_id)
    await keep(page, "flow-list")


async def test_a_run_by_command_ends_on_the_card_and_in_the_thread(story: Story) -> None:
    page = await story.look()
    alert_id, title = await story.alert()
    shown = await card(page, title)
    await command(page, f"/responder run ResponderBot_Extract {alert_id}")
    await expect(shown).to_contain_text(re.compile("ResponderBot_ExtractIndicators.* done"), timeout=RUN_ENDS_MS)
    await expect(whisper(page, alert_id)).to_be_visible()
    await keep(page, "flow-run-by-command")
    await shown.locator(".thread-link").click()
    thread = page.locator("#pane")
    await expect(thread).to_contain_text("ResponderBot_ExtractIndicators", timeout=RUN_ENDS_MS)
    await keep(page, "flow-thread")


async def test_the_cards_menu_stays_in_the_window_and_runs_what_is_typed(story: Story) -> None:
    page = await story.look()
    _, title = await story.alert()
    shown = await card(page, title)
    await shown.locator(".select-box").click()
    await page.wait_for_selector(".picker .option:has-text('Webhook')")
    await within_the_window(page, ".picker")
    await keep(page, "flow-menu")
    await page.keyboard.press("Escape")
    await choose(page, shown, "false positive")
    await expect(shown).to_contain_text(re.compile("CloseAsFalsePositive.* done"), timeout=RUN_ENDS_MS)
    await expect(shown).to_contain_text("false-positive", timeout=RUN_ENDS_MS)
    await keep(page, "flow-run-by-menu")


async def test_the_webhook_asks_first_and_cancel_runs_nothing(story: Story) -> None:
    page = await story.look()
    alert_id, title = await story.alert()
    shown = await card(page, title)
    await choose(page, shown, "webhook")
    asked = whisper(page, "It can't be called back.")
    await expect(asked).to_contain_text(alert_id)
    await keep(page, "flow-confirm")
    await asked.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".message.ephemeral")).to_have_count(0)
    assert await story.request("GET", f"/api/connector/cortex/action/alert/{alert_id}", "anna") == []
    await choose(page, shown, "webhook")
    await asked.get_by_role("button", name="Run", exact=True).click()
    await expect(shown).to_contain_text(re.compile("Webhook.* done"), timeout=RUN_ENDS_MS)


async def test_the_second_of_two_analysts_is_told_and_may_run_it_anyway(story: Story) -> None:
    anna, ben = await story.look(ANNA), await story.look(BEN)
    _, title = await story.alert()
    shown = await card(anna, title)
    await choose(anna, shown, "detonate")
    theirs = await card(ben, title)
    await expect(theirs).to_contain_text(re.compile("Demo_Detonate.* running"), timeout=RUN_ENDS_MS)
    await choose(ben, theirs, "detonate")
    told = whisper(ben, "Nothing new was started")
    await expect(told).to_contain_text("anna")
    await keep(ben, "flow-collision")
    await told.get_by_role("button", name="Run anyway").click()
    await expect(theirs.get_by_text(re.compile("Demo_Detonate"))).to_have_count(2, timeout=RUN_ENDS_MS)
    assert await anna.locator(".message.ephemeral").count() == 0


async def test_another_person_approves_and_the_one_who_asked_can_not(story: Story) -> None:
    page = await story.look(ANNA)
    alert_id, title = await story.alert()
    shown = await card(page, title)
    await choose(page, shown, "isolate")
    await whisper(page, "other person").get_by_role("button", name="Run", exact=True).click()
    approve = page.locator("main .message:not(.ephemeral)").filter(has_text=alert_id).get_by_role("button", name="Approve")
    await expect(approve).to_be_visible()
    await keep(page, "flow-approval-asked")
    await approve.click()
    await expect(whisper(page, re.compile("own|yourself|another person|somebody else", re.IGNORECASE))).to_be_visible()
    await keep(page, "flow-approval-refused")
    await act_as(page, "Ben (analyst)")
    await approve.click()
    await expect(await card(page, title)).to_contain_text(re.compile("Isolate_Host.* done"), timeout=RUN_ENDS_MS)
    await keep(page, "flow-approval-given")


async def test_a_duplicate_name_of_a_template_shows_at_its_field(story: Story) -> None:
    page = await story.look(LEA)
    for name in ("Malware beacon", "Malware beacon", "Malware beacon 2"):
        await command(page, "/responder template")
        field = page.locator("#modal .block-input", has_text="Name").first.locator("input")
        await field.fill(name)
        await page.locator("#modal .block-input", has_text="Title").first.locator("input").fill("[MAL]")
        await keep(page, f"flow-template-form")
        await page.locator("#modal").get_by_role("button", name="Create").click()
        break


async def test_less_is_shown_in_a_shared_channel_and_details_go_to_the_one_who_asks(story: Story) -> None:
    page = await story.look(ANNA, SHARED)
    other = await story.look(TOM, SHARED)
    alert_id, title = await story.alert()
    shown = await card(page, f"{alert_id} · details withheld")
    assert "Cobalt" not in await shown.inner_text()
    assert "192" not in await shown.inner_text()
    await shown.get_by_role("button", name="Details").click()
    await expect(whisper(page, title)).to_be_visible()
    await keep(page, "flow-redacted")
    await card(other, f"{alert_id} · details withheld")
    assert title not in await other.inner_text("main")


async def test_somebody_without_rights_is_told_which_and_who_can_give_them(story: Story) -> None:
    page = await story.look(TOM)
    _, title = await story.alert(2)
    shown = await card(page, title)
    await shown.locator(".select-box").click()
    await page.wait_for_selector(".picker .option, .picker .picker-note")
    await keep(page, "flow-no-rights-menu")
    await page.keyboard.press("Escape")


async def test_home_shows_what_waits_for_me_and_what_failed(story: Story) -> None:
    page = await story.look(BEN)
    _, title = await story.alert()
    shown = await card(page, title)
    await choose(page, shown, "mail")
    await expect(shown).to_contain_text(re.compile("Mail.* failed"), timeout=RUN_ENDS_MS)
    await keep(page, "flow-failed")
    await page.click("[data-room=app]")
    home = page.locator(".home-page")
    await expect(home).to_contain_text("Failed in the last day")
    await expect(home).to_contain_text("ResponderBot_Mail")
    await keep(page, "flow-home")


async def test_the_global_shortcut_leads_through(story: Story) -> None:
    page = await story.look()
    alert_id, title = await story.alert()
    await card(page, title)
    await page.click("[aria-label=Shortcuts]")
    await page.click("[role=menuitem]:has-text('Run a responder')")
    await page.fill("#modal input", alert_id)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#modal .select-box")
    await keep(page, "flow-shortcut")


async def test_the_message_shortcut_finds_the_alert_in_what_somebody_wrote(story: Story) -> None:
    page = await story.look()
    alert_id, title = await story.alert()
    await card(page, title)
    await page.fill("#box", f"can somebody look at {alert_id}, please?")
    await page.keyboard.press("Enter")
    said = page.locator("main .message", has_text=f"look at {alert_id}, please")
    await said.hover()
    await said.get_by_role("button", name="More actions").click()
    await page.click("[role=menuitem]:has-text('Run a responder')")
    await page.wait_for_selector("#modal .select-box")
    await keep(page, "flow-message-shortcut")
