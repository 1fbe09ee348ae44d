"""Modals: every input, errors at their fields, updates, the stack; and the Home tab."""

import pytest
from playwright.async_api import FilePayload, Page

from tests.bot.browser.conftest import BrowserEnvironment, screenshot

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def open_form(env: BrowserEnvironment) -> Page:
    page = env.page
    await page.click("[aria-label=Shortcuts]")
    await page.click("[role=menuitem]:has-text('New case')")
    await page.wait_for_selector("#modal[open] [data-block=title]")
    return page


def block(name: str, rest: str) -> str:
    return f"#modal [data-block={name}] {rest}"


async def test_every_input_of_a_form_is_filled_and_sent(env: BrowserEnvironment) -> None:
    page = await open_form(env)
    assert await env.app.hear("shortcut") == ("shortcut", "new_case")
    await page.keyboard.type("taken")  # the first field has the focus
    await page.fill(block("body", "textarea"), "two\nlines")
    await page.fill(block("count", "input"), "0")
    await page.fill(block("mail", "input"), "anna@example.org")
    await page.fill(block("link", "input"), "https://example.org/x")
    await page.click(block("severity", ".select-box"))
    await page.click(".picker .option:has-text('High')")
    await page.click(block("responders", ".select-box"))
    await page.wait_for_selector(".picker >> text=Type at least 2 characters")
    await page.keyboard.type("block")
    await page.click(".picker .option:has-text('Block sender')")
    await page.keyboard.press("Escape")
    for name, wanted in (("people", "Ben"), ("rooms", "general")):
        await page.click(block(name, ".select-box"))
        await page.click(f".picker .option:has-text('{wanted}')")
        await page.keyboard.press("Escape")
    await page.fill(block("day", "input"), "2026-05-06")
    await page.fill(block("hour", "input"), "08:15")
    await page.check(block("ticks", "input >> nth=0"))
    await page.check(block("radio", "input >> nth=2"))
    async with page.expect_file_chooser() as chooser:
        await page.click(block("files", ".button"))
    template: FilePayload = {"name": "template.json", "mimeType": "application/json", "buffer": b"{}"}
    await (await chooser.value).set_files([template])
    await page.wait_for_selector(block("files", ".chip:has-text('template.json')"))
    await screenshot(page, "form-filled")

    await page.click("#modal .button.primary")
    await page.wait_for_selector(block("count", ".field-error:has-text('at least 1')"))
    await page.fill(block("count", "input"), "4")
    await page.click("#modal .button.primary")
    await page.wait_for_selector(block("title", ".field-error:has-text('That title is taken.')"))
    await screenshot(page, "form-field-error")
    await page.fill(block("title", "input"), "Phishing wave")
    await page.wait_for_selector("#modal .sheet:not(.busy)")  # the errors may come before the answer does
    await page.keyboard.press("Enter")

    values = await env.app.hear("form")
    await page.wait_for_selector("#modal", state="hidden")
    flat = {block_id: next(iter(actions.values())) for block_id, actions in values.items()}
    assert flat["title"]["value"] == "Phishing wave"
    assert flat["body"]["value"] == "two\nlines"
    assert flat["count"]["value"] == "4"
    assert (flat["mail"]["value"], flat["link"]["value"]) == ("anna@example.org", "https://example.org/x")
    assert flat["severity"]["selected_option"]["value"] == "high"
    assert [one["value"] for one in flat["responders"]["selected_options"]] == ["block"]
    assert (flat["people"]["selected_users"], flat["rooms"]["selected_conversations"]) == (["U0BEN"], ["C0TALK"])
    assert (flat["day"]["selected_date"], flat["hour"]["selected_time"]) == ("2026-05-06", "08:15")
    assert [one["value"] for one in flat["ticks"]["selected_options"]] == ["low"]
    assert [file["name"] for file in flat["files"]["files"]] == ["template.json"]
    assert flat["radio"]["selected_option"]["value"] == "high"


async def test_typed_text_and_focus_survive_an_update_of_the_form(env: BrowserEnvironment) -> None:
    page = await open_form(env)
    await page.fill(block("title", "input"), "half a ti")
    await page.click("#modal [data-action=refill]")
    await page.wait_for_selector(block("note", ">> text=Refilled"))
    assert await page.input_value(block("title", "input")) == "half a ti"
    assert await page.evaluate("document.activeElement.dataset.action") == "refill"


async def test_a_form_upon_a_form_goes_back_to_the_first_as_it_was(env: BrowserEnvironment) -> None:
    page = await open_form(env)
    await page.fill(block("title", "input"), "kept")
    await page.click("#modal [data-action=push]")
    await page.wait_for_selector("#modal .sheet:not([hidden]) h2:has-text('Details')")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#modal .sheet:not([hidden]) h2:has-text('Everything')")
    await page.click("#modal [data-action=push]")
    await page.fill("#modal [data-block=note] input", "a note")
    await screenshot(page, "form-stack")
    await page.keyboard.press("Enter")
    assert await env.app.hear("details") == "a note"
    await page.wait_for_selector("#modal .sheet:not([hidden]) h2:has-text('Everything')")
    assert await page.input_value(block("title", "input")) == "kept"
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#modal", state="hidden")


async def test_the_home_tab_is_filled_and_refreshed(env: BrowserEnvironment) -> None:
    page = env.page
    await page.click("[data-channel=app]")
    await page.wait_for_selector(".home-page >> text=Shown 1 times.")
    await page.click("[data-action=home_refresh]")
    await page.wait_for_selector(".home-page >> text=Shown 2 times.")
    await screenshot(page, "home")
    await page.click("[role=tab]:has-text('Messages')")
    await page.wait_for_selector("#box")
    await page.fill("#box", "hello app")
    await page.keyboard.press("Enter")
    assert await env.app.hear("message") == "hello app"
