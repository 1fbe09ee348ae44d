"""The page as people use it: commands, live messages, threads, people, keys, looks."""

import pytest
from playwright.async_api import Route, expect

from tests.bot.browser.conftest import BrowserEnvironment, requests_held, screenshot
from tests.bot.browser.sample_blocks import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_a_command_is_completed_by_keys_and_its_card_is_shown(env: BrowserEnvironment) -> None:
    page = env.page
    await page.locator("body").press("/")
    await page.keyboard.type("res")
    await page.wait_for_selector(".completion .option:has-text('/responder')")
    await page.keyboard.press("Tab")
    await page.keyboard.type("alert ~12")
    await page.keyboard.press("Enter")
    assert await env.app.hear("command") == "alert ~12"
    await page.wait_for_selector("[data-block=head] >> text=Phishing mail")
    assert (
        await page.locator(".attachment").evaluate("node => getComputedStyle(node).borderLeftColor")
        == "rgb(217, 54, 79)"
    )
    await screenshot(page, "card-light")


async def test_hostile_text_stays_text(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    await page.fill("#box", HOSTILE)
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".message-text:has-text('<script>')")
    for name in ("hostile", "hostile-plain"):
        assert await page.inner_text(f"[data-block={name}]") == HOSTILE
    assert await page.evaluate("window.hurt") is None
    assert await page.locator("main img, main script, main iframe").count() == 0
    links = await page.eval_on_selector_all("a", "nodes => nodes.map(node => node.getAttribute('href'))")
    assert [link for link in links if not link.startswith(("http://", "https://", "#", "/page/"))] == []
    assert "javascript:window.hurt=1" in await page.inner_text("[data-block=bad-link]")
    await screenshot(page, "hostile")


async def test_mrkdwn_looks_like_slacks(env: BrowserEnvironment) -> None:
    page = env.page
    await env.show_all_blocks()
    shown = page.locator("[data-block=text]")
    for tag, words in (("b", "bold"), ("i", "italic"), ("s", "strike"), ("code", "code"), ("pre", "GET /path?a=1&b=2")):
        assert await shown.locator(tag).first.inner_text() == words
    assert await shown.locator("blockquote").inner_text() == "a quote, with bold"
    assert await shown.locator(".mention").all_inner_texts() == ["@Ben Second", "#soc-alerts", "@channel"]
    assert "snake_case_name and 2 * 3 * 4 stay" in await shown.inner_text()


async def test_a_card_is_repainted_in_place_and_its_runs_are_in_the_thread(env: BrowserEnvironment) -> None:
    page = env.page
    await env.command("/responder alert ~12")
    await page.click("[data-action=run]")
    await page.wait_for_selector("[data-block=new-run]")
    assert await page.locator("main .message:has([data-block=head])").count() == 1
    assert await page.evaluate("document.activeElement.dataset.action") == "run"
    await page.click(".thread-link:has-text('2 replies')")
    await page.wait_for_selector(".pane .file >> text=Report")
    await page.click(".pane .file >> text=Preview")
    await page.wait_for_selector(".pane .snippet:has-text('<b>checked</b>')")
    async with page.expect_download() as download:
        await page.click("[aria-label='Download Report']")
    assert (await download.value).suggested_filename == "report.txt"
    await page.fill("#thread-box", "Well done")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".pane .message-text:has-text('Well done')")
    await page.wait_for_selector(".thread-link:has-text('3 replies')")
    await page.fill("#thread-box", "/responder help")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".pane .message:has-text('is not supported in threads')")
    await screenshot(page, "thread")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#pane .pointers")


async def test_an_ephemeral_message_is_seen_by_one_person_only(env: BrowserEnvironment) -> None:
    other = await env.open_page("U0BEN")
    await env.command("/responder help")
    await env.page.wait_for_selector(".message.ephemeral:has-text('Only visible to you')")
    env.emulator.add_message("C0SOC", "U0NORA", "after it")
    await other.wait_for_selector(".message-text:has-text('after it')")
    assert await other.locator(".message.ephemeral").count() == 0
    await env.page.click("text=Dismiss message")
    await env.page.wait_for_selector(".message.ephemeral", state="detached")


async def test_a_late_answer_is_told_to_the_person_alone(env: BrowserEnvironment) -> None:
    await env.command("/late")
    await env.page.wait_for_selector(".message.ephemeral:has-text('/late failed with the error \"operation_timeout\"')")
    assert await env.page.locator(".message.ephemeral").count() == 1
    await env.command("/nonsense")
    await env.page.wait_for_selector(".message.ephemeral:has-text('/nonsense is not a valid command')")
    await screenshot(env.page, "late-answer")


async def test_a_message_shortcut_is_reached_by_keys(env: BrowserEnvironment) -> None:
    page = env.page
    env.emulator.add_message("C0SOC", "U0BEN", "make this a case")
    await page.wait_for_selector(".message-text:has-text('make this a case')")
    await page.focus("#box")
    await page.keyboard.press("Shift+Tab")
    await page.wait_for_selector(".message:focus")
    await page.focus(".message [aria-label='More actions']")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[role=menuitem]:focus:has-text('Make a case of this')")
    await page.keyboard.press("Enter")
    assert await env.app.hear("shortcut") == ("message_action", "case_of")
    await page.wait_for_selector("#modal[open]")


async def test_unread_marks_and_the_way_between_channels_by_keys(env: BrowserEnvironment) -> None:
    page = env.page
    env.emulator.add_message("C0TALK", "U0BEN", "news")
    await page.wait_for_selector("[data-channel=C0TALK].unread")
    await page.focus("#box")
    await page.keyboard.press("Alt+ArrowUp")
    await page.keyboard.press("Alt+ArrowUp")
    await page.wait_for_selector("[data-channel=C0TALK].current")
    await page.wait_for_selector(".unread-line")
    await page.wait_for_selector("[data-channel=C0TALK]:not(.unread)")
    await page.click("[data-channel=C0SOC]")
    for number in range(60):
        env.emulator.add_message("C0TALK", "U0BEN", f"news {number}")
    await page.click("[data-channel=C0TALK].unread")
    await expect(page.locator(".unread-line")).to_be_in_viewport()  # it opens where one has left off, as in Slack
    await page.click("button:has-text('New messages')")
    await expect(page.locator(".message-text:has-text('news 59')")).to_be_in_viewport()


async def test_typed_text_survives_live_messages_and_a_restart_of_the_server(env: BrowserEnvironment) -> None:
    page = env.page
    await page.fill("#box", "half a sentence")
    env.emulator.add_message("C0SOC", "U0BEN", "live")
    await page.wait_for_selector(".message-text:has-text('live')")
    port = int(env.emulator.url.rpartition(":")[2])
    await env.app.stop()
    await env.emulator.stop()
    await page.wait_for_selector("#connection:has-text('Not connected')")
    env.emulator.add_message("C0SOC", "U0BEN", "said meanwhile")
    await env.emulator.start(port=port)
    await page.wait_for_selector(".message-text:has-text('said meanwhile')")
    await page.wait_for_selector("#connection", state="hidden")
    assert await page.input_value("#box") == "half a sentence"
    assert await page.evaluate("document.activeElement.id") == "box"
    env.console_errors.clear()  # the browser itself notes each connection that was refused


async def test_acting_as_somebody_else_shows_their_channels_and_direct_messages(env: BrowserEnvironment) -> None:
    page = env.page
    await page.wait_for_selector("[data-channel=C0RED]")
    await page.focus(".person")
    await page.keyboard.press("Enter")
    await page.keyboard.press("n")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".person:has-text('Nora Newcomer')")
    await page.wait_for_selector("[data-channel=C0RED]", state="detached")
    await page.click(".channel-row:has-text('Anna Analyst')")
    await page.fill("#box", "hi Anna")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".message-text:has-text('hi Anna')")
    anna = await env.open_page()
    await anna.wait_for_selector(".channel-row.unread:has-text('Nora Newcomer')")


async def test_what_is_typed_while_a_direct_message_opens_never_goes_to_the_channel_before(
    env: BrowserEnvironment,
) -> None:
    page = env.page
    await page.fill("#box", "half a sentence for the channel")
    async with requests_held(page, "**/page/dm") as held:
        await page.click(".channel-row:has-text('Nora Newcomer')")
        await held.wait()
        assert await page.locator("#box").count() == 0
    await page.fill("#box", "hi Nora")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".scroller:has(.intro:has-text('Nora Newcomer')) .message-text:has-text('hi Nora')")
    await page.click("[data-channel=C0SOC]")
    await expect(page.locator("#box")).to_have_value("half a sentence for the channel")
    assert await page.locator(".message-text:has-text('hi Nora')").count() == 0


async def test_a_direct_message_that_can_not_be_opened_leads_back(env: BrowserEnvironment) -> None:
    page = env.page

    async def refused(route: Route) -> None:
        await route.fulfill(status=500, json={"text": "The emulator is not ready; try again."})

    await page.route("**/page/dm", refused)
    await page.click(".channel-row:has-text('Nora Newcomer')")
    await page.wait_for_selector(".toast:has-text('not ready')")
    await page.wait_for_selector("[data-channel=C0SOC].current")
    await page.wait_for_selector("#box")
    env.console_errors.clear()  # the browser itself notes an answer of 500


async def test_the_focus_stays_where_it_is_put_while_messages_load(env: BrowserEnvironment) -> None:
    page = env.page
    env.emulator.add_message("C0TALK", "U0BEN", "news")
    async with requests_held(page, "**/page/messages?*") as held:
        await page.click("[data-channel=C0TALK]")
        await held.wait()
        assert await page.evaluate("document.activeElement.id") == "box"
        await page.focus(".person")
    await page.wait_for_selector(".message-text:has-text('news')")
    assert await page.evaluate("document.activeElement.className") == "person"


async def test_the_state_of_the_one_acted_as_before_comes_too_late(env: BrowserEnvironment) -> None:
    page = env.page
    async with (
        page.expect_request_finished(lambda request: request.url.endswith("user=U0NORA")),
        requests_held(page, "**/page/state?user=U0NORA") as held,
    ):
        await page.click(".person")
        await page.click("[role=menuitemradio]:has-text('Nora Newcomer')")
        await held.wait()
        await page.click(".person")
        await page.click("[role=menuitemradio]:has-text('Ben Second')")
        await page.wait_for_selector(".person:has-text('Ben Second')")
    await page.fill("#box", "who am I?")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".message:has(.author:has-text('Ben Second')):has-text('who am I?')")


async def test_the_developers_panel_shows_what_goes_both_ways(env: BrowserEnvironment) -> None:
    page = env.page
    await page.click("text=Developer")
    await env.command("/responder list ~12")
    await page.wait_for_selector(".payload.from")
    await page.fill("[aria-label='Filter payloads']", "slash_commands")
    await expect(page.locator(".payload")).to_have_count(1)
    await page.click(".payload summary")
    await page.wait_for_selector(".payload .json-string:has-text('list ~12')")
    assert env.emulator.bot_token not in await page.inner_text("#developer")
    await screenshot(page, "developer")


async def test_a_thing_to_try_puts_its_text_into_the_box(env: BrowserEnvironment) -> None:
    page = env.page
    await page.click(".pointer:has-text('Look at an alert')")
    assert await page.input_value("#box") == "/responder alert ~12"
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[data-block=head]")


async def test_its_text_is_there_before_the_messages_are(env: BrowserEnvironment) -> None:
    page = env.page
    await page.click("[data-channel=C0TALK]")
    await page.wait_for_selector("[data-channel=C0TALK].current")
    async with requests_held(page, "**/page/messages?*") as held:
        await page.click(".pointer:has-text('Look at an alert')")
        await held.wait()
        await expect(page.locator("#box")).to_have_value("/responder alert ~12")
        await page.keyboard.type("3")
    await page.wait_for_selector(".intro:has-text('#soc-alerts')")
    await expect(page.locator("#box")).to_have_value("/responder alert ~123")


async def test_a_click_that_a_live_change_falls_into_still_counts(env: BrowserEnvironment) -> None:
    page = env.page
    ts = env.emulator.add_message("C0SOC", "U0NORA", "strange mail")
    env.emulator.add_message("C0SOC", "U0NORA", "the sender is new", thread_ts=ts)
    await page.hover(".thread-link:has-text('1 reply') b")
    await page.mouse.down()
    env.emulator.add_message("C0SOC", "U0NORA", "and so is the host", thread_ts=ts)
    await page.wait_for_selector(".thread-link:has-text('2 replies')")
    await page.mouse.up()
    await page.wait_for_selector(".pane .message:has-text('and so is the host')")


async def test_a_file_goes_up(env: BrowserEnvironment) -> None:
    async with env.page.expect_file_chooser() as chooser:
        await env.page.click("[aria-label='Attach a file']")
    await (await chooser.value).set_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"})
    await env.page.wait_for_selector(".file:has-text('notes.txt')")


async def test_a_picture_that_goes_up_is_shown_in_the_channel(env: BrowserEnvironment) -> None:
    drawn = await env.page.screenshot(clip={"x": 0, "y": 0, "width": 120, "height": 60})
    async with env.page.expect_file_chooser() as chooser:
        await env.page.click("[aria-label='Attach a file']")
    await (await chooser.value).set_files({"name": "screen.png", "mimeType": "image/png", "buffer": drawn})
    picture = env.page.get_by_role("img", name="screen.png")
    await expect(picture).to_be_visible()
    await expect(picture).to_have_js_property("naturalWidth", 120)
    await screenshot(env.page, "picture")


async def test_on_a_narrow_window_the_pane_covers_the_channel_until_it_is_left(env: BrowserEnvironment) -> None:
    page = await env.open_page(viewport={"width": 820, "height": 700})
    await expect(page.locator("#pane")).to_be_hidden()
    await page.click("[aria-label='Things to try']")
    await page.wait_for_selector("#pane .pointers")
    await screenshot(page, "narrow-pointers")
    await page.click("[data-channel=C0TALK]")
    await expect(page.locator("#pane")).to_be_hidden()
    await page.click("[aria-label='Things to try']")
    await page.keyboard.press("Escape")
    await expect(page.locator("#pane")).to_be_hidden()
    await page.click("[aria-label='Things to try']")
    await page.click(".pointer:has-text('Look at an alert')")
    await expect(page.locator("#pane")).to_be_hidden()
    await expect(page.locator("#box")).to_have_value("/responder alert ~12")


async def test_dark_light_and_phone(env: BrowserEnvironment) -> None:
    page = env.page
    await env.command("/responder alert ~12")
    await page.wait_for_selector("[data-block=head]")
    await page.click("[aria-label^=Colours]")
    await page.click("[role=menuitemradio]:has-text('Dark')")
    await page.reload()
    await page.wait_for_selector("[data-block=head]")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 25, 30)"
    await screenshot(page, "card-dark")
    phone = await env.open_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    await phone.wait_for_selector("[data-block=head]")
    assert await phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await screenshot(phone, "phone-card")
    await phone.tap(".drawer-open")
    await phone.tap("[data-channel=C0TALK]")
    await phone.wait_for_selector(".top h1:has-text('general')")
    await screenshot(phone, "phone-channel")


async def test_a_permalink_shows_its_message_and_arrows_walk_on_from_it(env: BrowserEnvironment) -> None:
    first = env.emulator.add_message("C0TALK", "U0BEN", "the one that is meant")
    env.emulator.add_message("C0TALK", "U0NORA", "the next one")
    page = env.page
    await page.goto("about:blank")
    await page.goto(f"{env.emulator.url}/archives/C0TALK/p{first.replace('.', '')}")
    await page.wait_for_selector(".message:focus:has-text('the one that is meant')")
    await page.keyboard.press("ArrowDown")
    await page.wait_for_selector(".message:focus:has-text('the next one')")
    await page.keyboard.press("t")
    await page.wait_for_selector(".pane .message:has-text('the next one')")
    await page.wait_for_selector("#thread-box:focus")


async def test_an_old_bots_attachment_is_shown_in_full(env: BrowserEnvironment) -> None:
    attachment = {
        "color": "warning",
        "pretext": "Before",
        "title": "A *title*",
        "title_link": "https://example.org/",
        "text": "with _mrkdwn_",
        "fields": [{"title": "Status", "value": "New", "short": True}],
        "footer": "Mail gateway",
        "fallback": "A title",
    }
    await env.app.client.chat_postMessage(channel="C0SOC", text="Above", attachments=[attachment])
    shown = env.page.locator(".attachment")
    await expect(shown.locator("a")).to_have_attribute("href", "https://example.org/")
    assert await shown.locator("i").inner_text() == "mrkdwn"
    assert await shown.locator(".field").inner_text() == "Status\nNew"
    assert await shown.evaluate("node => getComputedStyle(node).borderLeftColor") == "rgb(236, 178, 46)"
