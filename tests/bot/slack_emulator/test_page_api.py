"""The page's side: its token, its addresses, its shapes."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Faults, Pointer, Refused, SlackEmulator
from tests.bot.slack_emulator.apps import MANIFEST


@pytest.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def test_nothing_is_shown_without_the_token(emulator: SlackEmulator, browser: aiohttp.ClientSession) -> None:
    for path in ("/", "/?token=wrong", "/page/state?user=U0ANNA", "/page/messages?user=U0ANNA&channel=C0SOC"):
        async with browser.get(emulator.url + path) as answer:
            assert answer.status == 403
    async with browser.post(f"{emulator.url}/page/say", json={"user": "U0ANNA"}) as answer:
        assert answer.status == 403
    with pytest.raises(Refused):
        await EmulatedUser(emulator.url, "wrong", "U0ANNA").connect()


async def test_the_printed_address_sets_a_cookie_and_leaves_the_token_behind(
    emulator: SlackEmulator, browser: aiohttp.ClientSession
) -> None:
    async with browser.get(emulator.page_url + "&user=U0BEN", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/?user=U0BEN")
        assert "HttpOnly" in answer.headers["Set-Cookie"]
        assert "SameSite=Strict" in answer.headers["Set-Cookie"]
    async with browser.get(f"{emulator.url}/") as answer:
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    async with browser.get(f"{emulator.url}/page/state") as answer:
        assert (await answer.json())["me"] == "U0ANNA"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
@pytest.mark.parametrize("path", ["/", "/api/api.test", "/page/state?user=U0ANNA"])
async def test_other_sites_are_turned_away(
    emulator: SlackEmulator, browser: aiohttp.ClientSession, path: str, headers: dict[str, str]
) -> None:
    async with browser.get(emulator.url + path, headers={**headers, "X-Page-Token": emulator.page_token}) as answer:
        assert answer.status == 403


async def test_only_the_loopback_is_served() -> None:
    with pytest.raises(ValueError, match="loopback interface only"):
        await SlackEmulator().start(host="0.0.0.0")  # noqa: S104  # that it is refused is the point


@pytest.mark.parametrize("path", ["../server.py", "%2e%2e/server.py", "none.js"])
async def test_static_files_stay_in_their_folder(
    emulator: SlackEmulator, browser: aiohttp.ClientSession, path: str
) -> None:
    async with browser.get(f"{emulator.url}/static/{path}") as answer:
        assert answer.status in (403, 404)


async def test_the_state_is_all_that_a_page_needs(anna: EmulatedUser) -> None:
    async with SlackEmulator(MANIFEST) as emulator:
        emulator.add_user("U0ANNA", name="anna", real_name="Anna Analyst")
        emulator.add_user("U0BEN", name="ben", real_name="Ben Second")
        emulator.add_channel("C0SOC", name="soc-alerts")
        emulator.add_channel("C0B", name="bens", members=["U0BEN"], is_private=True)
        emulator.add_message("C0SOC", "U0BEN", "Good morning")
        emulator.pointers.append(Pointer("Try it", "List what can run", channel="C0SOC", insert="/responder list ~12"))
        async with EmulatedUser(emulator.url, emulator.page_token, "U0ANNA") as person:
            state = await person.state()
            assert [m["text"] for m in await person.messages("C0SOC")] == ["Good morning"]
    assert state == {
        "ok": True,
        "team": {"id": "T0LOCAL", "name": "Local workspace"},
        "me": "U0ANNA",
        "bot": "U0BOT",
        "users": [
            {"id": "U0BOT", "name": "responder", "real_name": "Responder", "is_bot": True},
            {"id": "U0ANNA", "name": "anna", "real_name": "Anna Analyst", "is_bot": False},
            {"id": "U0BEN", "name": "ben", "real_name": "Ben Second", "is_bot": False},
        ],
        "channels": [
            {
                "id": "C0SOC",
                "name": "soc-alerts",
                "is_im": False,
                "is_private": False,
                "is_shared": False,
                "is_archived": False,
                "members": ["U0ANNA", "U0BEN", "U0BOT"],
                "unread": 1,
                "mentions": 0,
            }
        ],
        "commands": [{"command": "/responder", "description": "Alerts", "usage_hint": "list ~id"}],
        "shortcuts": [{"callback_id": "show", "name": "Show", "type": "message"}],
        "pointers": [
            {
                "title": "Try it",
                "text": "List what can run",
                "channel": "C0SOC",
                "insert": "/responder list ~12",
            }
        ],
        "views": [],
        "notifications": [],
        "home": None,
        "has_home": False,
    }


async def test_a_manifest_says_what_exists() -> None:
    async with SlackEmulator(MANIFEST) as emulator:
        emulator.add_user("U0ANNA", name="anna")
        emulator.add_channel("C0SOC", name="soc-alerts")
        async with EmulatedUser(emulator.url, emulator.page_token, "U0ANNA") as anna:
            answer = await anna.command("C0SOC", "/other")
            assert (answer["error"], answer["text"][:31]) == ("unknown_command", "/other is not a valid command. ")
            with pytest.raises(Refused, match="no_such_shortcut"):
                await anna.shortcut("other")
            with pytest.raises(Refused, match="no_home"):
                await anna.open_home()


def test_a_manifest_that_slack_would_refuse_is_refused() -> None:
    manifest = {"settings": {"event_subscriptions": {"bot_events": ["message.im", "app_home_opened"]}}}
    with pytest.raises(ValueError, match=r"The event message\.im needs the bot scope im:history"):
        SlackEmulator(manifest)


async def test_a_person_can_upload_a_file(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    form = aiohttp.FormData({"user": "U0ANNA", "channel": "C0SOC"})
    form.add_field("file", b"<script>alert(1)</script>", filename="notes.html", content_type="text/html")
    headers = {"X-Page-Token": emulator.page_token}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.post(f"{emulator.url}/page/upload", data=form) as answer:
            assert answer.status == 200
        shown = (await anna.messages("C0SOC"))[0]["files"][0]
        async with session.get(f"{emulator.url}/page/file/{shown['id']}") as answer:
            assert answer.headers["Content-Disposition"] == 'attachment; filename="notes.html"'
            assert answer.content_type == "application/octet-stream"


async def test_the_panel_sees_the_traffic_without_its_secrets(
    emulator: SlackEmulator, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    await anna.command("C0SOC", "/hello")
    await client.chat_postMessage(channel="C0SOC", text="hi")
    assert [(direction, what) for direction, what, _, _ in emulator.traffic[:3]] == [
        ("to_app", "slash_commands"),
        ("from_app", "chat.postMessage"),
        ("to_app", "event message"),
    ]
    everything = str(emulator.traffic)
    assert emulator.bot_token not in everything
    assert "/actions/" not in everything


async def test_waiting_for_what_never_comes_says_what_was_seen(anna: EmulatedUser, faults: Faults) -> None:
    await anna.say("C0SOC", "hello")
    await anna.until(lambda view: view.messages("C0SOC"))
    with pytest.raises(TimeoutError, match=r"Not seen within 0\.2 s\. In view: C0SOC: 'hello'"):
        await anna.until(lambda view: view.modal, timeout_s=0.2)
