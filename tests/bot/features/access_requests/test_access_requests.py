"""People without a command line: they ask for access in Slack, and admins decide there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest_asyncio
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import running
from bot.block_kit import ids
from bot.outbox import MessageOutbox
from bot.outbox.store import open_store
from bot.slack_emulator import EmulatorView
from core.authorization import COMMAND_LINE
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import AccessRequest
from core.people import MAX_PENDING
from tests import stores
from tests.bot.features.environment import MANIFEST, fine, text_of, within_limits
from tests.bot.running import ANNA, LEA, NINA, PEOPLE, ROB, SOC, BotEnvironment, running_bot

ADMINS = "C0ADMINS"
MAX = "U0MAX"  # another org-admin
OSKAR = "U0OSKAR"  # not linked
SETUP: Mapping[str, Any] = {
    "manifest": MANIFEST,
    "people": {**PEOPLE, MAX: ("max", "org-admin", 3), OSKAR: ("oskar", None, 0)},
    "access_channel": ADMINS,
}


@pytest_asyncio.fixture
async def env(tmp_path: Path) -> AsyncIterator[BotEnvironment]:
    async with running_bot(tmp_path, **SETUP) as running:
        yield running


def button_in(shown: Mapping[str, Any], words: str) -> dict[str, Any]:
    """The button with these words, in a message or view."""
    blocks = shown.get("blocks", [])
    elements = [e for block in blocks for e in (*block.get("elements", ()), block.get("accessory") or {})]
    return next(e for e in elements if e.get("type") == "button" and words in e["text"]["text"])


def message_with(channel: str, *words: str) -> Callable[[EmulatorView], dict[str, Any] | None]:
    """Looks for the newest message with all these words."""

    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in reversed(view.messages(channel)) if all(w in text_of(m) for w in words)), None)

    return look


def modal_with(*words: str) -> Callable[[EmulatorView], dict[str, Any] | None]:
    return lambda view: view.modal if view.modal and all(w in text_of(view.modal) for w in words) else None


async def seen(env: BotEnvironment, who: str, look: Callable[[EmulatorView], dict[str, Any] | None]) -> dict[str, Any]:
    found = await (await env.person(who)).until(look)
    assert found is not None
    return fine(found) if found.get("type") in ("modal", "home") else within_limits(found)


async def ask(env: BotEnvironment, who: str = NINA) -> AccessRequest:
    """Somebody is refused and asks for access. Returns the request."""
    person = await env.person(who)
    await person.command(SOC, "/responder list ~1")
    refused = await seen(env, who, message_with(SOC, "You're not linked yet"))
    await person.click(SOC, refused["ts"], action_id=button_in(refused, "Request access")["action_id"])
    await seen(env, who, message_with(SOC, "Your request for access waits"))
    return next(r for r in await env.client.access_requests() if r.slack_user == who)


async def press(env: BotEnvironment, who: str, channel: str, card: Mapping[str, Any], words: str) -> None:
    await (await env.person(who)).click(channel, card["ts"], action_id=button_in(card, words)["action_id"])


async def test_who_is_not_linked_asks_and_an_admin_gives_access(env: BotEnvironment) -> None:
    request = await ask(env)
    assert (request.name, request.login) == ("Nina", "nina@responder-bot.local")
    card = await seen(env, LEA, message_with(ADMINS, "Nina", "<@U0NINA>", "asks for access", "up to TLP:AMBER"))
    await press(env, ROB, ADMINS, card, "Approve as analyst")
    refused = await seen(env, ROB, modal_with("only an administrator is"))
    assert refused["type"] == "modal"
    # Two admins at once: one of them decides, the other is told so.
    await asyncio.gather(*(press(env, who, ADMINS, card, "Approve as read-only") for who in (LEA, MAX)))
    done = await seen(env, LEA, message_with(ADMINS, "Approved as read-only (nina@responder-bot.local) by "))
    first, second = ("lea", MAX) if "by lea" in text_of(done) else ("max", LEA)
    await seen(env, second, modal_with(f"{first} approved this request already. Nothing was changed."))
    await seen(env, LEA, message_with(ADMINS, f"by {first}"))
    direct = await (await env.person(NINA)).dm(env.emulator.bot_user_id)
    await seen(env, NINA, message_with(direct, "You have access to responder-bot now", "and run nothing"))
    found = await env.client.access_request(request.id)
    assert (found.status, found.profile, found.decided_by) == ("approved", "read-only", f"{first}@responder-bot.local")
    cards = [m for m in (await env.person(LEA)).live_view.messages(ADMINS) if "<@U0NINA>" in text_of(m)]
    assert len(cards) == 1


async def test_a_denial_has_a_reason_and_the_person_reads_it(env: BotEnvironment) -> None:
    request = await ask(env)
    card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
    for who in (LEA, MAX):
        await press(env, who, ADMINS, card, "Deny")
    modal, late = await seen(env, LEA, modal_with("Reason")), await seen(env, MAX, modal_with("Reason"))
    lea = await env.person(LEA)
    await lea.submit(modal["id"], {"reason": {"value:reason": "Wrong <!channel> team"}})
    await seen(env, LEA, message_with(ADMINS, "Denied by lea", "Wrong &lt;!channel&gt; team"))
    direct = await (await env.person(NINA)).dm(env.emulator.bot_user_id)
    await seen(env, NINA, message_with(direct, "lea denied your request", "Wrong &lt;!channel&gt; team"))
    assert (await env.client.access_request(request.id)).message == "Wrong <!channel> team"
    await (await env.person(MAX)).submit(late["id"], {"reason": {"value:reason": "no"}})
    await seen(env, MAX, modal_with("lea denied this request already"))


async def test_the_card_tells_that_a_request_has_expired(env: BotEnvironment) -> None:
    request = await ask(env)
    card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
    await press(env, LEA, ADMINS, card, "Deny")
    modal = await seen(env, LEA, modal_with("Reason"))
    over = {"id": int(request.id[1:]), "at": now_ms()}
    await env.core.core.database.transaction(
        lambda tx: tx.run("UPDATE access_request SET expires_at = :at WHERE id = :id", over)
    )
    await seen(env, LEA, message_with(ADMINS, "Expired: nobody decided within 24 hours."))
    direct = await (await env.person(NINA)).dm(env.emulator.bot_user_id)
    told = await seen(env, NINA, message_with(direct, "You can ask again"))
    await (await env.person(LEA)).submit(modal["id"], {"reason": {"value:reason": "no"}})
    await seen(env, LEA, modal_with("This request has expired"))
    await press(env, NINA, direct, told, "Request access")
    await seen(env, NINA, message_with(direct, "Your request for access waits"))
    statuses = sorted(r.status for r in await env.client.access_requests() if r.slack_user == NINA)
    assert statuses == ["expired", "pending"]


async def test_every_place_that_refuses_offers_to_ask(env: BotEnvironment) -> None:
    nina, _alert_id, card = await env.first_card(by=NINA)
    await nina.click(SOC, card["ts"], action_id=ids.DETAILS)
    assert button_in(await seen(env, NINA, modal_with("You're not linked yet")), "Request access")
    await nina.shortcut(ids.RUN_SHORTCUT)
    direct = await nina.dm(env.emulator.bot_user_id)
    assert button_in(await seen(env, NINA, message_with(direct, "You're not linked yet")), "Request access")
    await nina.open_home()
    home = await seen(env, NINA, lambda view: view.home)
    await nina.click(None, view_id=home["id"], action_id=button_in(home, "Request access")["action_id"])
    asked = await seen(
        env, NINA, lambda view: view.home if view.home and "waits for an admin" in text_of(view.home) else None
    )
    assert "Request access" not in text_of(asked)
    assert [request.slack_user for request in await env.client.access_requests()] == [NINA]


async def test_without_a_channel_each_linked_admin_is_asked(tmp_path: Path) -> None:
    async with running_bot(tmp_path, **{**SETUP, "access_channel": ""}) as env:
        await env.core.core.people.disable(COMMAND_LINE, "max")
        await ask(env)
        direct = await (await env.person(LEA)).dm(env.emulator.bot_user_id)
        card = await seen(env, LEA, message_with(direct, "Nina", "asks for access"))
        other = await env.person(MAX)
        assert other.live_view.messages(await other.dm(env.emulator.bot_user_id)) == []
        await press(env, LEA, direct, card, "Approve as analyst")
        await seen(env, LEA, message_with(direct, "Approved as analyst", "by lea"))
        await env.core.core.people.unlink("lea")
        oskar = await env.person(OSKAR)
        await oskar.command(SOC, "/responder list ~1")
        refused = await seen(env, OSKAR, message_with(SOC, "You're not linked yet"))
        await press(env, OSKAR, SOC, refused, "Request access")
        await seen(env, OSKAR, modal_with("no administrator of responder-bot is linked"))
        assert [r.slack_user for r in await env.client.access_requests()] == [NINA]


async def test_a_login_that_is_taken_is_replaced(env: BotEnvironment) -> None:
    await env.core.core.people.add("nina", "analyst")
    request = await ask(env)
    card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
    await press(env, LEA, ADMINS, card, "Approve as analyst")
    modal = await seen(env, LEA, modal_with("There is a user nina@responder-bot.local already"))
    lea = await env.person(LEA)
    answer = await lea.submit(modal["id"], {"login": {"value:login": "anna"}})
    assert "There is a user anna@responder-bot.local already" in answer["errors"]["login"]
    await lea.submit(modal["id"], {"login": {"value:login": "nina.b"}})
    await seen(env, LEA, message_with(ADMINS, "Approved as analyst (nina.b@responder-bot.local)"))
    assert (await env.client.access_request(request.id)).login == "nina.b@responder-bot.local"


async def test_the_wrong_person_is_refused(env: BotEnvironment) -> None:
    request = await ask(env)
    card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
    # Who was disabled is refused like who isn't linked, and can't get in by asking.
    await env.core.core.people.disable(COMMAND_LINE, "rob")
    await env.core.core.people.unlink("anna")
    for user, name, account, words in (
        ("U0APP", "app", {"is_bot": True}, "only people can"),
        ("U0GONE", "gone", {"deleted": True}, "Only active members"),
        ("U0ELSE", "else", {"team_id": "T0OTHER"}, "Only active members"),
    ):
        env.emulator.add_user(user, name=name, **account)
        person = await env.person(user)
        await person.open_home()
        home = await seen(env, user, lambda view: view.home)
        await person.click(None, view_id=home["id"], action_id=button_in(home, "Request access")["action_id"])
        await seen(env, user, modal_with(words))
    rob = await env.person(ROB)
    await rob.open_home()
    home = await seen(env, ROB, lambda view: view.home)
    await rob.click(None, view_id=home["id"], action_id=button_in(home, "Request access")["action_id"])
    await seen(env, ROB, modal_with("was ended; only an administrator can give it back"))
    # Slack is busy: nobody is taken at their word.
    env.emulator.faults.ratelimit("users.info")
    oskar = await env.person(OSKAR)
    await oskar.open_home()
    home = await seen(env, OSKAR, lambda view: view.home)
    await oskar.click(None, view_id=home["id"], action_id=button_in(home, "Request access")["action_id"])
    await seen(env, OSKAR, modal_with("Slack doesn't say who this is. Nothing was done. Try again in a minute."))
    # A deactivated account gets no user.
    env.emulator.add_user(NINA, name="nina", deleted=True)
    await press(env, LEA, ADMINS, card, "Approve as analyst")
    await seen(env, LEA, modal_with("was deactivated"))
    assert [(r.id, r.status) for r in await env.client.access_requests()] == [(request.id, "pending")]


async def test_an_admin_manages_requests_and_people_from_the_home(env: BotEnvironment) -> None:
    for number in range(30):
        await env.core.core.people.add(f"many{number:02}", "analyst")
    await ask(env)
    lea = await env.person(LEA)
    await lea.open_home()
    home = await seen(env, LEA, lambda view: view.home)
    await lea.click(None, view_id=home["id"], action_id=button_in(home, "Requests for access (1)")["action_id"])
    modal = await seen(env, LEA, modal_with("1 request for access", "Nina"))
    await lea.click(None, view_id=modal["id"], action_id=button_in(modal, "Deny")["action_id"])
    modal = await seen(env, LEA, modal_with("Reason"))
    await lea.submit(modal["id"], {"reason": {"value:reason": "no"}})
    await seen(env, LEA, modal_with("Denied.", "Nobody waits for access."))
    await lea.click(None, view_id=home["id"], action_id=ids.ADMIN_PEOPLE)
    modal = await seen(env, LEA, modal_with("People", "page 1 of"))
    await lea.click(None, view_id=modal["id"], action_id=button_in(modal, "Next")["action_id"])
    await seen(env, LEA, modal_with("page 2 of"))
    await lea.submit(modal["id"], {"find": {"value:find": "anna"}})
    modal = await seen(env, LEA, modal_with("1 person", "anna@responder-bot.local"))
    (menu,) = [b["accessory"] for b in modal["blocks"] if "accessory" in b]
    end, key = (option["value"] for option in menu["options"])
    await lea.click(None, view_id=modal["id"], action_id=menu["action_id"], value=key)
    shown = await seen(env, LEA, modal_with("responder-bot user key anna@responder-bot.local"))
    assert "Keys don't pass through Slack" in text_of(shown)
    await lea.click(None, view_id=shown["id"], action_id=button_in(shown, "Back")["action_id"])
    modal = await seen(env, LEA, modal_with("1 person"))
    await lea.click(None, view_id=modal["id"], action_id=menu["action_id"], value=end)
    modal = await seen(env, LEA, modal_with("can do nothing any more"))
    await lea.submit(modal["id"], {})
    await seen(env, LEA, modal_with("anna@responder-bot.local no longer has access.", "*disabled*"))
    (anna,) = [user for user in await env.client.users() if user.login.startswith("anna@")]
    assert anna.disabled
    # Nobody else has that part, and core refuses whoever finds the button.
    person = await env.person(ROB)
    await person.open_home()
    others = await seen(env, ROB, lambda view: view.home)
    assert "Administration" not in text_of(others)


async def test_names_are_foreign_text(env: BotEnvironment) -> None:
    env.emulator.add_user(OSKAR, name="o", real_name="*<!here>* `x` \u202e" + "&" * 400)
    await ask(env, OSKAR)
    card = await seen(env, LEA, message_with(ADMINS, "U0OSKAR"))
    blocks = [block for block in card["blocks"] if "text" in block]
    assert not [text for text in (card["text"], *(block["text"]["text"] for block in blocks)) if "<!" in text]
    await press(env, LEA, ADMINS, card, "Approve as analyst")
    await seen(env, LEA, message_with(ADMINS, "Approved as analyst"))


async def test_a_shared_channel_learns_of_no_request(tmp_path: Path) -> None:
    async with running_bot(tmp_path, **SETUP, shared=[ADMINS]) as env:
        await ask(env)
        direct = await (await env.person(LEA)).dm(env.emulator.bot_user_id)
        await seen(env, LEA, message_with(direct, "asks for access"))
        assert (await env.person(ANNA)).live_view.messages(ADMINS) == []
        (check,) = [check for check in await env.bot.checks() if ADMINS in check.name]
        assert not check.ok
        assert "requests for access go to each admin instead" in check.message


async def test_nothing_is_lost_when_the_bot_dies_between_a_decision_and_its_messages(tmp_path: Path) -> None:
    async with running_bot(tmp_path, **SETUP, transport="http") as env:
        request = await ask(env)
        card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
        await env.bot.close()
        # It died after core had recorded the decision: the click is in the inbox, and no message was changed.
        button = button_in(card, "Approve as analyst")
        body = {
            "type": "block_actions",
            "team": {"id": "T0LOCAL"},
            "user": {"id": LEA, "team_id": "T0LOCAL"},
            "channel": {"id": ADMINS},
            "container": {"type": "message", "message_ts": card["ts"], "channel_id": ADMINS},
            "actions": [{"type": "button", "action_id": button["action_id"], "value": button["value"]}],
        }
        died = MessageOutbox(
            open_store(stores.location(tmp_path / "slack.db")), AsyncWebClient(), lambda: now_ms() - 120_000
        )
        assert await died.inbox.accept("the-click", {"surface": "action", "body": body})
        await died.close()
        async with CoreClient(env.core.url, env.service_key) as core:
            await core.as_user("lea").approve_access(request.id, "analyst")
            async with running(env.settings, core, clock_ms=now_ms):
                await seen(env, LEA, message_with(ADMINS, "Approved as analyst", "by lea"))
                direct = await (await env.person(NINA)).dm(env.emulator.bot_user_id)
                await seen(env, NINA, message_with(direct, "You have access to responder-bot now"))
        again = MessageOutbox(open_store(stores.location(tmp_path / "slack.db")), AsyncWebClient(), now_ms)
        assert await again.inbox.take_over_abandoned() == []
        await again.close()
        views = [(await env.person(who)).live_view for who in (LEA, NINA)]
        assert [
            len([m for m in views[0].messages(ADMINS) if "<@U0NINA>" in text_of(m)]),
            len(views[1].messages(direct)),
        ] == [1, 1]
        assert not [m for m in views[0].ephemerals(ADMINS) if "already" in text_of(m)]


async def test_a_decision_while_core_is_away_changes_nothing_and_says_so(env: BotEnvironment) -> None:
    await ask(env)
    card = await seen(env, LEA, message_with(ADMINS, "asks for access"))
    await env.stop_core()
    await press(env, LEA, ADMINS, card, "Approve as analyst")
    await seen(env, LEA, modal_with("isn't answering"))
    oskar = await env.person(OSKAR)
    await oskar.open_home()
    await seen(env, OSKAR, lambda view: view.home if view.home and "isn't answering" in text_of(view.home) else None)


async def test_an_admin_makes_and_changes_groups(tmp_path: Path) -> None:
    synchronized = {"leads": ("S0LEADS", [LEA])}
    async with running_bot(tmp_path, **SETUP, groups=synchronized) as env:
        lea = await env.person(LEA)
        await env.core.core.people.add("api", "analyst")  # not in Slack
        await lea.open_home()
        home = await seen(env, LEA, lambda view: view.home)
        await lea.click(None, view_id=home["id"], action_id=ids.ADMIN_GROUPS)
        modal = await seen(env, LEA, modal_with("Groups", "<!subteam^S0LEADS>"))
        assert "Change" not in text_of(modal)  # Slack says who is in it
        new = button_in(modal, "New group")["action_id"]
        await lea.click(None, view_id=modal["id"], action_id=new)
        modal = await seen(env, LEA, modal_with("Name"))

        async def save(name: str, *users: str) -> Any:
            given = {"members": {"value:members": list(users)}}
            return await lea.submit(modal["id"], {**given, **({"name": {"value:name": name}} if name else {})})

        assert "1 of them has no access yet" in (await save("oncall", ANNA, NINA))["errors"]["members"]
        assert "can't be a group" in (await save("On call", ANNA))["errors"]["name"]
        assert "There is a group @leads already." in (await save("leads", ANNA))["errors"]["name"]
        await save("@oncall", ANNA, ROB)
        modal = await seen(env, LEA, modal_with("@oncall has 2 members now.", "anna, rob"))
        await env.client.set_group("oncall", ["anna", "api", "rob"])
        await lea.click(None, view_id=modal["id"], action_id=button_in(modal, "Change")["action_id"])
        modal = await seen(env, LEA, modal_with("Not in Slack, and they stay: api"))
        assert modal["blocks"][0]["element"]["initial_users"] == [ANNA, ROB]
        await save("", LEA)
        await seen(env, LEA, modal_with("@oncall has 2 members now.", "api, lea"))
        members = {group.name: group.members for group in await env.client.groups()}
        assert members["oncall"] == ["api@responder-bot.local", "lea@responder-bot.local"]


async def test_a_flood_of_requests_ends_at_a_hundred_and_all_of_them_can_be_decided(env: BotEnvironment) -> None:
    async with CoreClient(env.core.url, env.service_key) as core:
        asked = [await core.request_access("T0LOCAL", f"U0FLOOD{n}", f"Flood {n}") for n in range(MAX_PENDING)]
    lea = await env.person(LEA)
    await lea.until(lambda view: len([m for m in view.messages(ADMINS) if "Flood" in m["text"]]) == MAX_PENDING)
    nina = await env.person(NINA)
    await nina.command(SOC, "/responder list ~1")
    refused = await seen(env, NINA, message_with(SOC, "You're not linked yet"))
    await press(env, NINA, SOC, refused, "Request access")
    await seen(env, NINA, modal_with("100 requests wait for an admin already; ask again later."))
    await lea.open_home()
    home = await seen(env, LEA, lambda view: view.home)
    await lea.click(None, view_id=home["id"], action_id=button_in(home, "Requests for access (100)")["action_id"])
    modal = await seen(env, LEA, modal_with("and 80 more"))
    await lea.click(None, view_id=modal["id"], action_id=button_in(modal, "Approve as analyst")["action_id"])
    await seen(env, LEA, modal_with("was deactivated"))  # Slack knows none of them
    assert {request.status for request in await env.client.access_requests()} == {"pending"}
    assert len(asked) == MAX_PENDING
