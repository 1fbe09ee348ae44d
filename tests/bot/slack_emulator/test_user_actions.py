"""What people do, and the payloads that the app gets for it."""

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Refused, SlackEmulator
from tests.bot.slack_emulator.apps import Heard, option
from tests.bot.slack_emulator.apps import heard as heard
from tests.bot.slack_emulator.starter_app import BUTTON, modal, plain

Json = dict[str, Any]


async def only(heard: Heard, kind: str) -> Json:
    """The only payload of this kind."""
    found = [body for body in heard.things if body.get("type") == kind]
    assert len(found) == 1
    return dict(found[0])


COMMON = {
    "user": {"id": "U0ANNA", "username": "anna", "name": "anna", "team_id": "T0LOCAL"},
    "team": {"id": "T0LOCAL", "domain": "local"},
    "api_app_id": "A0LOCAL",
    "enterprise": None,
    "is_enterprise_install": False,
}


def common(body: Json) -> Json:
    return {key: body[key] for key in COMMON}


async def test_a_command_has_slacks_fields(heard: Heard, anna: EmulatedUser) -> None:
    await anna.command("C0SOC", "/responder list ~12 ")
    body = heard.things[0]
    random = {key: body.pop(key) for key in ("token", "response_url", "trigger_id")}
    assert all(random.values())
    assert body == {
        "team_id": "T0LOCAL",
        "team_domain": "local",
        "channel_id": "C0SOC",
        "channel_name": "soc-alerts",
        "user_id": "U0ANNA",
        "user_name": "anna",
        "command": "/responder",
        "text": "list ~12",
        "api_app_id": "A0LOCAL",
        "is_enterprise_install": "false",
    }


async def test_a_click_on_a_message_has_slacks_fields(heard: Heard, client: AsyncWebClient, anna: EmulatedUser) -> None:
    section = {"type": "section", "block_id": "b", "text": plain("Hello"), "accessory": BUTTON}
    posted = await client.chat_postMessage(channel="C0SOC", text="Card", blocks=[section])
    await anna.click("C0SOC", posted["ts"], action_id="clicked")
    body = await only(heard, "block_actions")
    assert common(body) == COMMON
    assert body["container"] == {
        "type": "message",
        "message_ts": posted["ts"],
        "channel_id": "C0SOC",
        "is_ephemeral": False,
    }
    assert body["channel"] == {"id": "C0SOC", "name": "soc-alerts"}
    assert body["message"] == posted["message"]
    assert body["state"] == {"values": {}}
    assert body["trigger_id"]
    assert body["response_url"]
    action = body["actions"][0]
    assert float(action.pop("action_ts")) > 0
    assert action == {"block_id": "b", **BUTTON}


async def test_a_click_on_a_message_that_was_updated_under_the_finger_has_what_was_shown(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    def card(block_id: str, value: str) -> dict[str, Any]:
        buttons = [{"type": "button", "action_id": "clicked", "text": plain("Press"), "value": value}]
        return {
            "channel": "C0SOC",
            "text": value,
            "blocks": [{"type": "actions", "block_id": block_id, "elements": buttons}],
        }

    posted = await client.chat_postMessage(**card("b1", "old"))
    await client.chat_update(ts=posted["ts"], **card("b2", "new"))
    await anna.click("C0SOC", posted["ts"], action_id="clicked", block_id="b1")
    body = await only(heard, "block_actions")
    assert (body["actions"][0]["value"], body["message"]) == ("old", posted["message"])
    for n in range(3):
        await client.chat_update(ts=posted["ts"], **card(f"b{3 + n}", "newer"))
    with pytest.raises(Refused, match="no_such_element"):
        await anna.click("C0SOC", posted["ts"], action_id="clicked", block_id="b1")


async def test_a_click_in_a_thread_below_a_colour_bar_says_so(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    root = (await anna.say("C0SOC", "root"))["ts"]
    section = {"type": "section", "text": plain("Hello"), "accessory": BUTTON}
    bar = [{"color": "#d00", "blocks": [section]}]
    posted = await client.chat_postMessage(channel="C0SOC", thread_ts=root, text="Card", attachments=bar)
    await anna.click("C0SOC", posted["ts"], action_id="clicked")
    container = (await only(heard, "block_actions"))["container"]
    assert container == {
        "type": "message_attachment",
        "message_ts": posted["ts"],
        "attachment_id": 1,
        "channel_id": "C0SOC",
        "is_ephemeral": False,
        "is_app_unfurl": False,
        "thread_ts": root,
    }


async def test_a_menu_of_the_apps_own_options_takes_only_these(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    menu = {"type": "external_select", "action_id": "pick", "min_query_length": 0}
    blocks = [{"type": "actions", "block_id": "b", "elements": [menu]}]
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=blocks))["ts"]
    groups = await anna.options("C0SOC", ts, action_id="pick", query="o")
    assert [(g["label"]["text"], [o["value"] for o in g["options"]]) for g in groups] == [("Can run", ["one", "two"])]
    body = await only(heard, "block_suggestion")
    assert (body["value"], body["action_id"], body["block_id"]) == ("o", "pick", "b")
    assert common(body) == COMMON
    await anna.click("C0SOC", ts, action_id="pick", value="two")
    chosen = await only(heard, "block_actions")
    assert chosen["actions"][0]["selected_option"] == option("two")
    assert chosen["state"]["values"]["b"]["pick"]["selected_option"] == option("two")
    with pytest.raises(Refused, match="no_such_option"):
        await anna.click("C0SOC", ts, action_id="pick", value="three")


async def test_a_menu_waits_for_as_many_letters_as_it_asks(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    blocks = [{"type": "actions", "elements": [{"type": "external_select", "action_id": "pick"}]}]
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=blocks))["ts"]
    assert await anna.options("C0SOC", ts, action_id="pick", query="on") == [{"label": None, "options": []}]
    assert [body for body in heard.things if body.get("type") == "block_suggestion"] == []


async def test_two_people_choose_apart(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser, ben: EmulatedUser
) -> None:
    menu = {"type": "static_select", "action_id": "pick", "options": [option("one"), option("two")]}
    elements = [menu, {**BUTTON, "action_id": "go"}]
    blocks = [{"type": "actions", "block_id": "b", "elements": elements}]
    ts = (await client.chat_postMessage(channel="C0SOC", text="Card", blocks=blocks))["ts"]
    await anna.click("C0SOC", ts, action_id="pick", value="two")
    await ben.click("C0SOC", ts, action_id="go")
    bens = next(b for b in heard.things if b.get("type") == "block_actions" and b["user"]["id"] == "U0BEN")
    assert bens["state"]["values"] == {"b": {"pick": {"type": "static_select", "selected_option": None}}}


async def test_shortcuts_have_slacks_fields(heard: Heard, anna: EmulatedUser) -> None:
    ts = (await anna.say("C0SOC", "look"))["ts"]
    await anna.shortcut("show", "C0SOC", ts)
    await anna.shortcut("new")
    on_message = await only(heard, "message_action")
    assert (on_message["callback_id"], on_message["message_ts"]) == ("show", ts)
    assert on_message["message"]["text"] == "look"
    assert on_message["response_url"]
    everywhere = await only(heard, "shortcut")
    assert set(everywhere) == {*COMMON, "type", "token", "callback_id", "trigger_id", "action_ts"}


async def test_a_submission_has_slacks_fields(heard: Heard, client: AsyncWebClient, anna: EmulatedUser) -> None:
    await anna.command("C0SOC", "/form")
    view = {**modal(), "private_metadata": "~12"}
    opened = await client.views_open(trigger_id=heard.things[0]["trigger_id"], view=view)
    await anna.submit(opened["view"]["id"], {"name": {"text": "mine"}})
    body = await only(heard, "view_submission")
    assert common(body) == COMMON
    assert body["response_urls"] == []
    assert (body["view"]["private_metadata"], body["view"]["callback_id"]) == ("~12", "form")
    assert body["view"]["state"]["values"] == {"name": {"text": {"type": "plain_text_input", "value": "mine"}}}


async def test_a_mention_and_a_message_are_events(emulator: SlackEmulator, heard: Heard, anna: EmulatedUser) -> None:
    await anna.say("C0SOC", f"<@{emulator.bot_user_id}> a < b & @ben")
    bodies = await heard.wait(2)
    # Slack promises no order of two events.
    mention, message = sorted((body["event"] for body in bodies), key=lambda event: event["type"])
    assert (message["type"], mention["type"]) == ("message", "app_mention")
    assert message["text"] == f"<@{emulator.bot_user_id}> a &lt; b &amp; <@U0BEN>"
    assert (message["channel"], message["channel_type"], message["user"]) == ("C0SOC", "channel", "U0ANNA")
    envelope = {key: bodies[0][key] for key in ("type", "team_id", "api_app_id", "is_ext_shared_channel")}
    assert envelope == {
        "type": "event_callback",
        "team_id": "T0LOCAL",
        "api_app_id": "A0LOCAL",
        "is_ext_shared_channel": False,
    }
    assert bodies[0]["authorizations"][0]["user_id"] == emulator.bot_user_id


async def test_a_shared_channel_is_marked_in_its_events(
    emulator: SlackEmulator, heard: Heard, anna: EmulatedUser
) -> None:
    emulator.add_channel("C0FRIENDS", name="friends", is_shared=True)
    await anna.say("C0FRIENDS", "hello")
    assert (await heard.wait(1))[0]["is_ext_shared_channel"] is True


async def test_joining_and_direct_messages_are_events(
    emulator: SlackEmulator, heard: Heard, anna: EmulatedUser
) -> None:
    emulator.add_channel("C0NEW", name="new", members=["U0BEN"], bot=False)
    await anna.command("C0NEW", "/invite @app")
    await anna.say("C0NEW", "hi")
    dm = await anna.dm(emulator.bot_user_id)
    await anna.say(dm, "psst")
    events = [(b["event"]["type"], b["event"].get("channel_type")) for b in await heard.wait(5)]
    assert sorted(events, key=str) == [
        ("app_home_opened", None),
        ("member_joined_channel", "C"),
        ("member_joined_channel", "C"),
        ("message", "channel"),
        ("message", "im"),
    ]


async def test_a_second_modal_action_waits_in_the_form_until_it_is_submitted(
    heard: Heard, client: AsyncWebClient, anna: EmulatedUser
) -> None:
    await anna.command("C0SOC", "/form")
    view = (await client.views_open(trigger_id=heard.things[0]["trigger_id"], view=modal()))["view"]
    assert await anna.click(None, view_id=view["id"], action_id="text", value="typed") == {"ok": True}
    assert [body for body in heard.things if body.get("type") == "block_actions"] == []
    now = await anna.modal()
    assert now is not None
    assert now["state"]["values"]["name"]["text"]["value"] == "typed"


async def test_deeds_that_cant_be_done_are_refused_with_a_reason(emulator: SlackEmulator, anna: EmulatedUser) -> None:
    emulator.add_channel("C0SECRET", name="secret", members=["U0BEN"], is_private=True)
    with pytest.raises(Refused, match="channel_not_found"):
        await anna.say("C0SECRET", "x")
    with pytest.raises(Refused, match="no_such_message"):
        await anna.click("C0SOC", "1.000001", action_id="x")
    ts = (await anna.say("C0SOC", "x"))["ts"]
    with pytest.raises(Refused, match="no_such_element"):
        await anna.click("C0SOC", ts, action_id="x")
    with pytest.raises(Refused, match="no_such_view"):
        await anna.submit("VNONE", {})
    async with EmulatedUser(emulator.url, emulator.page_token, emulator.bot_user_id) as nobody:
        with pytest.raises(Refused, match="not_a_person"):
            await nobody.say("C0SOC", "x")


async def test_unread_marks_count_what_others_wrote(anna: EmulatedUser, ben: EmulatedUser) -> None:
    await anna.say("C0SOC", "one")
    await anna.say("C0SOC", "two")
    assert await ben.until(lambda view: view.channels["C0SOC"]["unread"] == 2)
    assert (await anna.state())["channels"][0]["unread"] == 0
    await ben.read("C0SOC")
    assert await ben.until(lambda view: view.channels["C0SOC"]["unread"] == 0)


async def test_phones_show_direct_messages_and_mentions_once_and_no_edit(
    emulator: SlackEmulator, client: AsyncWebClient, anna: EmulatedUser, ben: EmulatedUser
) -> None:
    emulator.set_usergroup("S0ONCALL", ["U0BEN"])
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "<!subteam^S0ONCALL> <@U0ANNA> Please look"}}]
    posted = await client.chat_postMessage(channel="C0SOC", text="Approve or deny", blocks=blocks)
    await client.chat_postMessage(channel="C0SOC", text="Nobody is named")
    await client.chat_update(channel="C0SOC", ts=posted["ts"], text="Approved", blocks=blocks)
    await client.chat_postMessage(channel="U0BEN", text="For you")
    await ben.until(lambda view: len(view.notifications) == 2)
    assert [shown["text"] for shown in ben.live_view.notifications] == ["Approve or deny", "For you"]
    assert [shown["text"] for shown in anna.live_view.notifications] == ["Approve or deny"]
    async with EmulatedUser(emulator.url, emulator.page_token, "U0BEN") as again:
        assert again.live_view.notifications == ben.live_view.notifications
