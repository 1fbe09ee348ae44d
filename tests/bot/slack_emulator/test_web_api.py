"""Web API methods as the SDK calls them, and Slack's refusals."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Faults, SlackEmulator
from bot.slack_emulator.manifest import EVENT_SCOPES, Manifest
from bot.slack_emulator.web_api import METHODS
from tests.bot.slack_emulator.apps import MANIFEST
from tests.bot.slack_emulator.conftest import fill

ROOT = Path(__file__).parents[3]
SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "Hello"}}


async def refusal(call: Awaitable[Any]) -> dict[str, Any]:
    with pytest.raises(SlackApiError) as caught:
        await call
    return dict(caught.value.response.data)


def client_of(emulator: SlackEmulator, token: str | None) -> AsyncWebClient:
    return AsyncWebClient(token=token, base_url=emulator.api_url)


@pytest.fixture
async def strict() -> AsyncIterator[SlackEmulator]:
    """An emulator with a manifest of few scopes."""
    async with SlackEmulator(MANIFEST) as emulator:
        fill(emulator)
        yield emulator


async def test_the_app_learns_who_it_is(emulator: SlackEmulator, client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert (answer["user_id"], answer["team_id"], answer["bot_id"]) == (emulator.bot_user_id, "T0LOCAL", "B0LOCAL")


async def test_tokens_are_checked(emulator: SlackEmulator) -> None:
    assert (await refusal(client_of(emulator, None).auth_test()))["error"] == "not_authed"
    assert (await refusal(client_of(emulator, "xoxb-wrong").auth_test()))["error"] == "invalid_auth"
    app_token = client_of(emulator, emulator.app_token)
    assert (await refusal(app_token.auth_test()))["error"] == "not_allowed_token_type"
    bot_token = client_of(emulator, emulator.bot_token)
    opened = bot_token.apps_connections_open(app_token=emulator.bot_token)
    assert (await refusal(opened))["error"] == "not_allowed_token_type"


async def test_an_unknown_method_is_named(client: AsyncWebClient) -> None:
    answer = await refusal(client.api_call("chat.sing"))
    assert answer == {"ok": False, "error": "unknown_method", "req_method": "chat.sing"}


async def test_a_scope_that_the_manifest_lacks_is_named(strict: SlackEmulator) -> None:
    client = client_of(strict, strict.bot_token)
    provided = "chat:write,commands,channels:read,app_mentions:read"
    answer = await refusal(client.users_info(user="U0ANNA"))
    assert answer == {"ok": False, "error": "missing_scope", "needed": "users:read", "provided": provided}
    history = await refusal(client.conversations_history(channel="C0SOC"))
    assert history["needed"] == "channels:history"
    assert (await client.auth_test()).headers["x-oauth-scopes"] == provided


async def test_without_a_manifest_the_app_has_every_scope_that_anything_here_needs(client: AsyncWebClient) -> None:
    granted = set((await client.auth_test()).headers["x-oauth-scopes"].split(","))
    needed = {method.scope for method in METHODS.values() if method.scope}
    needed |= {scope for scopes in EVENT_SCOPES.values() for scope in scopes}
    needed |= set(Manifest(yaml.safe_load((ROOT / "manifest.yml").read_text())).scopes)
    assert needed <= granted


async def test_a_message_can_be_posted_changed_and_deleted(client: AsyncWebClient, anna: EmulatedUser) -> None:
    posted = await client.chat_postMessage(channel="C0SOC", text="One", blocks=[SECTION])
    ts = posted["ts"]
    assert posted["message"]["blocks"][0]["block_id"]
    await client.chat_update(channel="C0SOC", ts=ts, text="Two")
    changed = (await anna.messages("C0SOC"))[0]
    assert changed["text"] == "Two"
    assert changed["blocks"] == posted["message"]["blocks"], "blocks stay when none are given"
    await client.chat_update(channel="C0SOC", ts=ts, text="Three", blocks=[])
    assert "blocks" not in (await anna.messages("C0SOC"))[0]
    await client.chat_delete(channel="C0SOC", ts=ts)
    assert await anna.messages("C0SOC") == []
    assert (await refusal(client.chat_update(channel="C0SOC", ts=ts, text="Four")))["error"] == "message_not_found"


async def test_what_isnt_the_apps_own_cant_be_changed(client: AsyncWebClient, anna: EmulatedUser) -> None:
    ts = (await anna.say("C0SOC", "mine"))["ts"]
    assert (await refusal(client.chat_update(channel="C0SOC", ts=ts, text="x")))["error"] == "cant_update_message"
    assert (await refusal(client.chat_delete(channel="C0SOC", ts=ts)))["error"] == "cant_delete_message"


async def test_places_where_the_app_cant_post(emulator: SlackEmulator, client: AsyncWebClient) -> None:
    emulator.add_channel("C0OUT", name="elsewhere", bot=False)
    emulator.add_channel("C0SECRET", name="secret", is_private=True, bot=False)
    emulator.add_channel("C0OLD", name="old", is_archived=True)
    for channel, error in [
        ("C0NONE", "channel_not_found"),
        ("C0OUT", "not_in_channel"),
        ("C0SECRET", "channel_not_found"),
        ("C0OLD", "is_archived"),
    ]:
        assert (await refusal(client.chat_postMessage(channel=channel, text="x")))["error"] == error


async def test_messages_that_slack_refuses(client: AsyncWebClient) -> None:
    nothing = client.api_call("chat.postMessage", params={"channel": "C0SOC", "text": ""})
    assert (await refusal(nothing))["error"] == "no_text"
    long = await refusal(client.chat_postMessage(channel="C0SOC", text="x" * 40_001))
    assert long["error"] == "msg_too_long"
    ts = (await client.chat_postMessage(channel="C0SOC", text="x" * 40_000))["ts"]
    assert (await refusal(client.chat_update(channel="C0SOC", ts=ts, text="x" * 4001)))["error"] == "msg_too_long"
    header = {"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}
    problem = "must be less than 151 characters [json-pointer:/blocks/0/text/text]"
    assert await refusal(client.chat_postMessage(channel="C0SOC", text="x", blocks=[header])) == {
        "ok": False,
        "error": "invalid_blocks",
        "errors": [problem],
        "response_metadata": {"messages": [f"[ERROR] {problem}"]},
    }
    form = client.api_call("chat.postMessage", data={"channel": "C0SOC", "blocks": "[{"})
    assert (await refusal(form))["error"] == "invalid_blocks_format"
    missing = client.chat_postMessage(channel="C0SOC", text="x", thread_ts="1.000001")
    assert (await refusal(missing))["error"] == "thread_not_found"


async def test_an_ephemeral_message_is_for_one_person(
    client: AsyncWebClient, anna: EmulatedUser, ben: EmulatedUser
) -> None:
    await client.chat_postEphemeral(channel="C0SOC", user="U0ANNA", text="psst")
    assert [m["text"] for m in await anna.ephemerals("C0SOC")] == ["psst"]
    assert await ben.messages("C0SOC") == []
    assert (await client.conversations_history(channel="C0SOC"))["messages"] == []
    stranger = client.chat_postEphemeral(channel="C0SOC", user="U0NOBODY", text="psst")
    assert (await refusal(stranger))["error"] == "user_not_in_channel"


async def test_history_goes_back_in_pages_and_shows_metadata_when_asked(client: AsyncWebClient) -> None:
    metadata = {"event_type": "card", "event_payload": {"key": "k1"}}
    for n in range(3):
        await client.chat_postMessage(channel="C0SOC", text=f"m{n}", metadata=metadata)
    first = await client.conversations_history(channel="C0SOC", limit=2)
    assert ([m["text"] for m in first["messages"]], first["has_more"]) == (["m2", "m1"], True)
    assert "metadata" not in first["messages"][0]
    cursor = first["response_metadata"]["next_cursor"]
    second = await client.conversations_history(channel="C0SOC", limit=2, cursor=cursor, include_all_metadata=True)
    assert [(m["text"], m["metadata"]) for m in second["messages"]] == [("m0", metadata)]
    newest = first["messages"][0]["ts"]
    only = await client.conversations_history(channel="C0SOC", oldest=newest, inclusive=True)
    assert [m["text"] for m in only["messages"]] == ["m2"]


async def test_a_thread_counts_its_replies(client: AsyncWebClient, anna: EmulatedUser) -> None:
    root = (await client.chat_postMessage(channel="C0SOC", text="root"))["ts"]
    await client.chat_postMessage(channel="C0SOC", text="reply", thread_ts=root)
    shown = await client.chat_postMessage(channel="C0SOC", text="both", thread_ts=root, reply_broadcast=True)
    replies = (await client.conversations_replies(channel="C0SOC", ts=root))["messages"]
    assert [m["text"] for m in replies] == ["root", "reply", "both"]
    assert (replies[0]["reply_count"], replies[0]["latest_reply"]) == (2, shown["ts"])
    assert [m["text"] for m in await anna.messages("C0SOC")] == ["root", "both"]
    assert [m["text"] for m in await anna.thread("C0SOC", root)] == ["root", "reply", "both"]
    await client.chat_delete(channel="C0SOC", ts=root)
    tombstone = (await anna.messages("C0SOC"))[0]
    assert (tombstone["subtype"], tombstone["text"]) == ("tombstone", "This message was deleted.")


async def test_channels_and_people_are_described(emulator: SlackEmulator, client: AsyncWebClient) -> None:
    emulator.add_channel("C0SHARED", name="with-friends", is_shared=True)
    shared = (await client.conversations_info(channel="C0SHARED"))["channel"]
    assert (shared["is_ext_shared"], shared["is_member"]) == (True, True)
    members = (await client.conversations_members(channel="C0SOC"))["members"]
    assert members == ["U0ANNA", "U0BEN", emulator.bot_user_id]
    listed = await client.users_conversations(types="public_channel,im")
    assert [c["id"] for c in listed["channels"]] == ["C0SOC", "C0SHARED"]
    assert (await client.users_info(user="U0ANNA"))["user"]["profile"]["real_name"] == "Anna Analyst"
    assert (await refusal(client.users_info(user="U0NOBODY")))["error"] == "user_not_found"


async def test_a_direct_message_is_opened_once(client: AsyncWebClient, anna: EmulatedUser) -> None:
    first = (await client.conversations_open(users="U0ANNA"))["channel"]["id"]
    again = (await client.conversations_open(users=["U0ANNA"], return_im=True))["channel"]
    assert (again["id"], again["user"], again["is_im"]) == (first, "U0ANNA", True)
    posted = await client.chat_postMessage(channel="U0ANNA", text="hi")
    assert posted["channel"] == first
    seen = await anna.until(lambda view: view.channels.get(first))
    assert seen is not None
    assert [m["text"] for m in await anna.messages(first)] == ["hi"]


async def test_a_file_takes_three_steps(client: AsyncWebClient, anna: EmulatedUser) -> None:
    root = (await client.chat_postMessage(channel="C0SOC", text="root"))["ts"]
    await client.files_upload_v2(
        channel="C0SOC", content="a,b\n1,2\n", filename="report.csv", title="Report", thread_ts=root
    )
    reply = (await anna.thread("C0SOC", root))[1]
    shown = reply["files"][0]
    assert (shown["name"], shown["title"], shown["size"]) == ("report.csv", "Report", 8)
    assert await anna.file(shown["id"]) == b"a,b\n1,2\n"


async def test_a_deleted_file_leaves_a_tombstone(client: AsyncWebClient, anna: EmulatedUser) -> None:
    root = (await client.chat_postMessage(channel="C0SOC", text="root"))["ts"]
    await client.files_upload_v2(channel="C0SOC", content="a,b\n", filename="report.csv", thread_ts=root)
    file_id = (await anna.thread("C0SOC", root))[1]["files"][0]["id"]
    await client.files_delete(file=file_id)
    assert (await anna.thread("C0SOC", root))[1]["files"] == [{"id": file_id, "mode": "tombstone"}]
    with pytest.raises(aiohttp.ClientResponseError, match="404"):
        await anna.file(file_id)
    assert (await refusal(client.files_delete(file=file_id)))["error"] == "file_deleted"
    assert (await refusal(client.files_delete(file="F0NONE")))["error"] == "file_not_found"
    theirs = await anna.upload("theirs.txt", b"theirs", "C0SOC")
    assert (await refusal(client.files_delete(file=theirs["id"])))["error"] == "cant_delete_file"


async def test_a_permalink_leads_to_the_message(emulator: SlackEmulator, client: AsyncWebClient) -> None:
    ts = (await client.chat_postMessage(channel="C0SOC", text="x"))["ts"]
    link = f"{(await client.auth_test())['url']}archives/C0SOC/p{ts.replace('.', '')}"
    async with aiohttp.ClientSession() as session, session.get(link, allow_redirects=False) as answer:
        assert answer.headers["Location"] == f"/?channel=C0SOC&ts={ts}"


async def test_a_request_that_isnt_json_is_refused(emulator: SlackEmulator) -> None:
    headers = {"Authorization": f"Bearer {emulator.bot_token}", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{emulator.api_url}chat.postMessage", data="{") as answer,
    ):
        assert await answer.json() == {"ok": False, "error": "invalid_json"}


async def test_trouble_comes_when_it_is_asked_for(faults: Faults, client: AsyncWebClient, anna: EmulatedUser) -> None:
    client.retry_handlers.clear()
    faults.ratelimit("chat.postMessage", retry_after_s=7)
    with pytest.raises(SlackApiError) as limited:
        await client.chat_postMessage(channel="C0SOC", text="first")
    assert (limited.value.response.status_code, limited.value.response.headers["Retry-After"]) == (429, "7")
    faults.fail("chat.postMessage", 503)
    with pytest.raises(SlackApiError):
        await client.chat_postMessage(channel="C0SOC", text="second")
    faults.error("chat.postMessage", "fatal_error")
    assert (await refusal(client.chat_postMessage(channel="C0SOC", text="third")))["error"] == "fatal_error"
    faults.lose_request("chat.postMessage")
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel="C0SOC", text="fourth")
    assert await anna.messages("C0SOC") == []
    faults.lose_answer("chat.postMessage")
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel="C0SOC", text="done, answer lost")
    assert [m["text"] for m in await anna.messages("C0SOC")] == ["done, answer lost"]


async def test_the_sdk_doubles_a_post_whose_answer_was_lost(
    faults: Faults, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    faults.lose_answer("chat.postMessage")
    await client.chat_postMessage(channel="C0SOC", text="once?")
    assert [m["text"] for m in await anna.messages("C0SOC")] == ["once?", "once?"]
