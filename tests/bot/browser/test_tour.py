"""The things to try, done one after the other on the page as each says."""

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Page, expect

from tests.bot.browser.conftest import screenshot
from tests.bot.browser.flows import RUN_ENDS_MS, FlowEnvironment, card, leave_modal, modal

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
FIRST = "Cobalt Strike"

Step = Callable[[Page], Awaitable[None]]


def press(button: str, words: str = "") -> Step:
    """Press the button of the form, once it has these words."""

    async def step(page: Page) -> None:
        await modal(page, words).get_by_role("button", name=button, exact=True).click()

    return step


def on_card(button: str, then: Step) -> Step:
    """Press the button of the first alert's card, and then in the form that this opens."""

    async def step(page: Page) -> None:
        await (await card(page, FIRST)).get_by_role("button", name=button).click()
        await then(page)

    return step


async def undone(page: Page) -> None:
    """Leave it, which ticks nothing, and then undo it."""
    await press("Leave it")(page)
    await expect(page.locator(".pointer:has-text('End it early')")).not_to_contain_text("done")
    await on_card("Undo now: Isolate Host", press("Release Host"))(page)


async def longer(page: Page) -> None:
    """Choose the first of the times, as none is chosen, and ask for it."""
    await page.locator("[role=radiogroup] input").first.check()
    await press("Ask to extend")(page)


def at_home(then: Step) -> Step:
    """Review the only request that waits in Home."""

    async def step(page: Page) -> None:
        await page.locator("main").get_by_role("button", name="Review", exact=True).click()
        await then(page)

    return step


def phone(words: str) -> Step:
    """The phone showed this; the way back to the list is one click."""

    async def step(page: Page) -> None:
        await expect(page.locator("#pane")).to_contain_text(words)
        await screenshot(page, f"tour-{words}")
        await page.click("#pane button:has-text('Back to things to try')")

    return step


def filled(first: str, button: str) -> Step:
    """Press `first` if it has a text, fill in the first field of the form, and press the button."""

    async def step(page: Page) -> None:
        if first:
            await press(first)(page)
        await modal(page, "Cancel").get_by_role("textbox").first.fill("a server of the same family")
        await press(button)(page)

    return step


async def nothing(page: Page) -> None:
    pass


async def lists_no_secret(page: Page) -> None:
    """Anna is in no channel that shows her the alert that she may not see."""
    await expect(page.locator(".lists")).to_contain_text("soc-alerts")
    await expect(page.locator(".lists")).not_to_contain_text("soc-major")


STEPS: dict[str, Step] = {
    "See what came in": lists_no_secret,
    "See what can be done": nothing,
    "Try to block the victim": nothing,
    "Block an address": press("Block"),
    "Run one": nothing,
    "Be asked first": press("Send to 127.0.0.1"),
    "Need a second person": press("Ask to isolate host"),
    "See what Ben's phone showed": phone("HIGH: Isolate Host"),
    "Approve it as Ben": at_home(press("Isolate Host")),
    "See what Anna's phone showed": phone("Approved"),
    "Ask for more time": on_card("Extend: Isolate Host", longer),
    "End it early": on_card("Undo now: Isolate Host", undone),
    "Run on several": press("Extract Indicators (2)"),
    "Make a case": press("Make a case"),
    "See a storm": nothing,
    "See one fail": press("Send to example.org"),
    "Override a limit as Lea": filled("Override ...", "Ask to override"),
    "Approve that as Mia": at_home(press("Block")),
    "Close a false alarm": press("Close As False Positive"),
    "See less": nothing,
    "Make a case template": filled("", "Create"),
}


async def test_each_thing_to_try_ticks_itself_alone(flows: FlowEnvironment) -> None:
    page = await flows.open_page()
    await expect(page.locator(".pointer b")).to_have_text(list(STEPS))
    for number, (title, step) in enumerate(STEPS.items(), 1):
        pointer = page.locator(".pointer").nth(number - 1)
        command = await pointer.locator("code").all_inner_texts()
        await pointer.click()
        if command:
            await expect(page.locator("#box")).to_have_value(command[0])
            await expect(page.locator("#box")).to_be_focused()
            await page.keyboard.press("Enter")
        if title in ("Ask for more time", "End it early", "See one fail"):
            await expect(page.locator("main .message.card").filter(has_text=FIRST).first).to_be_in_viewport(ratio=0.8)
        await step(page)
        done = page.locator(".pointer.done b")
        await expect(done).to_have_text([f"{one}done" for one in list(STEPS)[:number]], timeout=RUN_ENDS_MS)
        if title == "See a storm":
            await expect(await card(page, "59 ×")).to_be_in_viewport()
        if number < len(STEPS):
            await expect(page.locator(".pointer:not(.done)").first).to_be_in_viewport()
            assert await page.evaluate("[document.documentElement, document.body].every((one) => one.scrollTop === 0)")
        await leave_modal(page)
