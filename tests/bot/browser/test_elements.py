"""Each interactive element, used once by hand or by key, tells the app what was chosen."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.bot.browser.conftest import BrowserEnvironment, requests_held, screenshot
from tests.bot.browser.flows import assert_in_viewport

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def chosen(env: BrowserEnvironment, action_id: str, key: str) -> Any:
    """What the app heard from this element."""
    action = await env.app.hear("action")
    assert action["action_id"] == action_id
    return action[key]


async def test_menus_are_searched_and_used_by_mouse_and_by_keys(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()

    await page.click("[data-action=static_select] .select-box")
    await page.click(".picker .option:has-text('Medium')")
    assert (await chosen(env, "static_select", "selected_option"))["value"] == "medium"

    await page.focus("[data-action=users_select] .select-box")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.type("ben")
    await expect(page.locator(".picker .option")).to_have_count(1)
    await page.keyboard.press("Enter")
    assert await chosen(env, "users_select", "selected_user") == "U0BEN"

    await page.click("[data-action=channels_select] .select-box")
    await page.click(".picker .option:has-text('#general')")
    assert await chosen(env, "channels_select", "selected_channel") == "C0TALK"

    await page.click("[data-action=conversations_select] .select-box")
    await page.click(".picker .option:has-text('incident-red')")
    assert await chosen(env, "conversations_select", "selected_conversation") == "C0RED"


async def test_an_external_menu_lists_in_groups_and_filters_while_typing(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    await page.click("[data-action=external_select] .select-box")
    await page.wait_for_selector('.picker .menu-heading:has-text("Can\'t run")')
    assert await page.locator(".picker .option").count() == 3
    await screenshot(page, "menu-in-groups")
    await page.keyboard.type("reset")
    await expect(page.locator(".picker .option")).to_have_count(1)
    await page.keyboard.press("Enter")
    assert (await chosen(env, "external_select", "selected_option"))["value"] == "reset"
    assert await page.inner_text("[data-action=external_select] .select-label") == "Reset password"


async def test_enter_takes_what_was_typed_and_not_what_was_listed_before(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    await page.click("[data-action=static_select] .select-box")
    await page.wait_for_selector(".picker .option")
    await page.locator(".picker-box").evaluate(
        "box => { box.value = 'high'; box.dispatchEvent(new Event('input'));"
        " box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'})); }"
    )
    assert (await chosen(env, "static_select", "selected_option"))["value"] == "high"

    await page.click("[data-action=external_select] .select-box")
    await page.wait_for_selector(".picker .option")
    async with requests_held(page, "**/page/options") as held:
        await page.keyboard.type("reset")
        await held.wait()
        await page.keyboard.press("Enter")
    assert (await chosen(env, "external_select", "selected_option"))["value"] == "reset"


async def test_dates_ticks_and_several_choices_reach_the_app(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()

    await page.fill("[data-action=datepicker]", "2026-03-04")
    await page.keyboard.press("Enter")
    assert await chosen(env, "datepicker", "selected_date") == "2026-03-04"
    await page.fill("[data-action=timepicker]", "17:45")
    await page.keyboard.press("Enter")
    assert await chosen(env, "timepicker", "selected_time") == "17:45"

    await page.focus("[data-action=checkboxes] input >> nth=1")
    await page.keyboard.press("Space")
    assert [one["value"] for one in await chosen(env, "checkboxes", "selected_options")] == ["medium"]
    await page.click("[data-action=radio_buttons] >> text=High")
    assert (await chosen(env, "radio_buttons", "selected_option"))["value"] == "high"

    await page.click("[data-action=multi_static_select] .select-box")
    await page.click(".picker .option:has-text('Low')")
    await page.click(".picker .option:has-text('High')")
    await page.keyboard.press("Escape")
    found = await chosen(env, "multi_static_select", "selected_options")
    assert [one["value"] for one in found] == ["low", "high"]


async def test_buttons_and_overflow_by_mouse_and_by_keys(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    await page.focus("[data-action=plain]")
    await page.keyboard.press("Enter")
    assert await chosen(env, "plain", "value") == "plain"

    await page.click("[data-action=overflow]")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    assert (await chosen(env, "overflow", "selected_option"))["value"] == "medium"

    link = page.locator("[data-action=docs]")
    assert await link.get_attribute("href") == "https://example.org/docs"
    assert await link.get_attribute("rel") == "noopener noreferrer"


async def test_a_confirm_dialog_asks_first_and_no_means_nothing(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    await page.click("[data-action=sure]")
    await page.wait_for_selector("dialog.confirm >> text=It can be undone.")
    await screenshot(page, "confirm")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("dialog.confirm", state="detached")
    await page.click("[data-action=sure]")
    await page.click("dialog.confirm >> text=Keep it")
    await page.click("[data-action=sure]")
    await page.click("dialog.confirm >> text=Isolate >> nth=-1")
    assert await chosen(env, "sure", "value") == "sure"
    assert env.app.heard.empty()


@pytest.mark.parametrize("size", [(1280, 860), (390, 640), (900, 420)])
async def test_no_popup_is_cut_off_by_the_windows_edge(env: BrowserEnvironment, size: tuple[int, int]) -> None:
    page = await env.open_page(viewport={"width": size[0], "height": size[1]})
    await env.show_all_blocks()
    await page.wait_for_selector("[data-action=overflow]")
    opened = page.locator(".popup")
    for anchor in await page.locator("main .select-box, main .button.overflow, .composer [aria-haspopup=menu]").all():
        await anchor.click()
        await expect(opened.locator(".option, .menu-item").first).to_be_visible()
        await assert_in_viewport(page, ".popup")
        await page.keyboard.press("Escape")
        await expect(opened).to_have_count(0)
