"""Modals: triggers, the stack, hashes, Slack's own checks, and what an app answers to a submission."""

import asyncio
from typing import Any

import pytest
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import EmulatedUser, Refused, SlackEmulator
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.feed import PageFeed
from bot.slack_emulator.state import Team, User
from bot.slack_emulator.views import Views
from tests.bot.slack_emulator.conftest import Clock
from tests.bot.slack_emulator.starter_app import modal, plain


@pytest.fixture
def views(clock: Clock) -> Views:
    team = Team("T1", clock, PageFeed(), "app")
    team.add_user(User("U1", "one", "One", ""))
    return Views(team)


def refusal(call: Any, *args: Any) -> SlackError:
    with pytest.raises(SlackError) as caught:
        call(*args)
    return caught.value


def test_a_trigger_lives_three_seconds(views: Views, clock: Clock) -> None:
    late, in_time = views.new_trigger_id("U1"), views.new_trigger_id("U1")
    clock.now += 2.9
    views.open(in_time, modal())
    clock.now += 0.2
    assert refusal(views.open, late, modal()).code == "expired_trigger_id"


def test_a_trigger_works_once(views: Views) -> None:
    trigger = views.new_trigger_id("U1")
    views.open(trigger, modal())
    assert refusal(views.open, trigger, modal()).code == "exchanged_trigger_id"


def test_an_invented_trigger_is_refused(views: Views) -> None:
    assert refusal(views.open, "1.2.x", modal()).code == "invalid_arguments"


def test_a_malformed_view_is_refused_and_leaves_the_trigger_unused(views: Views) -> None:
    trigger = views.new_trigger_id("U1")
    refused = refusal(views.open, trigger, modal("A title that is far too long"))
    assert refused.body() == {
        "ok": False,
        "error": "invalid_arguments",
        "response_metadata": {"messages": ["[ERROR] must be less than 25 characters [json-pointer:/view/title/text]"]},
    }
    views.open(trigger, modal())


def test_a_stack_holds_three_views(views: Views) -> None:
    root = views.open(views.new_trigger_id("U1"), modal("1"))
    second = views.push(views.new_trigger_id("U1", root["id"]), modal("2"))
    third = views.push(views.new_trigger_id("U1", second["id"]), modal("3"))
    assert (third["root_view_id"], third["previous_view_id"]) == (root["id"], second["id"])
    assert refusal(views.push, views.new_trigger_id("U1"), modal("4")).code == "push_limit_reached"
    top = views.find("U1", third["id"])
    assert top is not None
    views.close("U1", top)
    assert [view["title"]["text"] for view in views.stack("U1")] == ["1", "2"]


def test_an_old_hash_conflicts(views: Views) -> None:
    first = views.open(views.new_trigger_id("U1"), modal())
    second = views.update(first["id"], None, first["hash"], modal("New"))
    assert second["hash"] != first["hash"]
    assert refusal(views.update, first["id"], None, first["hash"], modal()).code == "hash_conflict"
    assert refusal(views.update, "VNONE", None, None, modal()).code == "not_found"


def test_typed_values_stay_where_the_ids_stay(views: Views) -> None:
    opened = views.open(views.new_trigger_id("U1"), modal())
    mine = views.find("U1", opened["id"])
    assert mine is not None
    views.set_value(mine, "name", "text", {"type": "plain_text_input", "value": "typed"})
    updated = views.update(opened["id"], None, None, modal("New"))
    assert updated["state"]["values"]["name"]["text"]["value"] == "typed"


def test_a_choice_that_is_no_longer_listed_is_dropped(views: Views) -> None:
    one, two = ({"text": plain(name), "value": name} for name in ("one", "two"))
    kinds = ("checkboxes", "multi_static_select", "static_select", "radio_buttons")

    def form(*options: Any) -> dict[str, Any]:
        fields = {kind: {"type": kind, "action_id": kind, "options": [*options]} for kind in kinds}
        blocks = [
            {"type": "input", "block_id": kind, "label": plain(kind), "element": of} for kind, of in fields.items()
        ]
        return {**modal(), "blocks": blocks}

    opened = views.open(views.new_trigger_id("U1"), form(one, two))
    mine = views.find("U1", opened["id"])
    assert mine is not None
    for kind in kinds:
        chosen = {"selected_options": [one, two]} if kind in kinds[:2] else {"selected_option": one}
        views.set_value(mine, kind, kind, {"type": kind, **chosen})
    left = views.update(opened["id"], None, None, form(two))["state"]["values"]
    assert [left[kind][kind].get("selected_options") for kind in kinds[:2]] == [[two], [two]]
    assert [left[kind][kind]["selected_option"] for kind in kinds[2:]] == [None, None]


def test_an_external_id_is_used_once(views: Views) -> None:
    view = {**modal(), "external_id": "mine"}
    first = views.open(views.new_trigger_id("U1"), view)
    assert views.update(None, "mine", None, view)["id"] == first["id"]
    assert refusal(views.push, views.new_trigger_id("U1"), view).code == "duplicate_external_id"


def test_a_home_is_replaced_in_place(views: Views) -> None:
    first = views.publish("U1", None, {"type": "home", "blocks": []})
    second = views.publish("U1", first["hash"], {"type": "home", "blocks": [{"type": "divider"}]})
    assert (second["id"], len(second["blocks"])) == (first["id"], 1)
    assert refusal(views.publish, "U1", first["hash"], {"type": "home", "blocks": []}).code == "hash_conflict"
    assert refusal(views.publish, "U2", None, {"type": "home", "blocks": []}).code == "user_not_found"


# with an app


@pytest.fixture
async def opened(app: AsyncApp, connected: object, anna: EmulatedUser) -> dict[str, Any]:
    """A modal with a form, opened by a command."""

    @app.command("/form")
    async def form(ack: Any, client: AsyncWebClient, body: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view={**modal(), "notify_on_close": True})

    await anna.command("C0SOC", "/form")
    view = await anna.until(lambda view: view.modal)
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("answer", "titles"),
    [
        ({"response_action": "update", "view": modal("Updated")}, ["Updated"]),
        ({"response_action": "push", "view": modal("Pushed")}, ["A form", "Pushed"]),
        ({"response_action": "clear"}, []),
    ],
    ids=["update", "push", "clear"],
)
async def test_a_submission_can_be_answered_by_a_view(
    app: AsyncApp, anna: EmulatedUser, opened: dict[str, Any], answer: dict[str, Any], titles: list[str]
) -> None:
    @app.view("form")
    async def saved(ack: Any) -> None:
        await ack(answer)

    assert await anna.submit(opened["id"], {"name": {"text": "x"}}) == {"ok": True}
    assert [view["title"]["text"] for view in (await anna.state())["views"]] == titles


@pytest.mark.parametrize(
    "answer",
    [
        {"response_action": "errors", "errors": {"nowhere": "Wrong."}},
        {"response_action": "update", "view": modal("A title that is far too long")},
        {"response_action": "dance"},
    ],
)
async def test_an_answer_that_slack_cant_read_leaves_the_form_open(
    app: AsyncApp, anna: EmulatedUser, opened: dict[str, Any], answer: dict[str, Any]
) -> None:
    @app.view("form")
    async def saved(ack: Any) -> None:
        await ack(answer)

    result = await anna.submit(opened["id"], {"name": {"text": "x"}})
    assert (result["ok"], result["error"]) == (False, "invalid_response")
    view = await anna.modal()
    assert view is not None
    assert view["state"]["values"]["name"]["text"]["value"] == "x"


async def test_a_late_answer_leaves_the_form_open_with_a_notice(
    emulator: SlackEmulator, app: AsyncApp, anna: EmulatedUser, opened: dict[str, Any]
) -> None:
    emulator.ack_limit_s = 0.2
    release = asyncio.Event()

    @app.view("form")
    async def saved(ack: Any) -> None:
        await release.wait()
        await ack()

    result = await anna.submit(opened["id"], {"name": {"text": "x"}})
    assert (result["ok"], result["error"]) == (False, "operation_timeout")
    notices = await anna.until(lambda view: view.notices)
    assert notices[0]["text"] == "We had some trouble connecting. Try again?"
    release.set()
    assert await anna.modal() is not None


async def test_a_form_is_submitted_once_at_a_time(app: AsyncApp, anna: EmulatedUser, opened: dict[str, Any]) -> None:
    reached, release = asyncio.Event(), asyncio.Event()

    @app.view("form")
    async def saved(ack: Any) -> None:
        reached.set()
        await release.wait()
        await ack()

    first = asyncio.create_task(anna.submit(opened["id"], {"name": {"text": "x"}}))
    await reached.wait()
    now = await anna.modal()
    assert now is not None
    assert now["busy"] is True
    with pytest.raises(Refused, match="busy"):
        await anna.submit(opened["id"], {"name": {"text": "x"}})
    release.set()
    assert await first == {"ok": True}


async def test_closing_tells_the_app_when_it_asked(app: AsyncApp, anna: EmulatedUser, opened: dict[str, Any]) -> None:
    received: list[Any] = []

    @app.view_closed("form")
    async def closed(ack: Any, body: Any) -> None:
        received.append(body)
        await ack()

    await anna.close(opened["id"])
    await anna.close(opened["id"])  # as the app may have closed it while she pressed Escape
    assert [(body["type"], body["is_cleared"], body["view"]["id"]) for body in received] == [
        ("view_closed", False, opened["id"])
    ]
    assert await anna.modal() is None


async def test_the_app_opens_a_view_by_the_web_api_only_in_time(
    emulator: SlackEmulator, client: AsyncWebClient
) -> None:
    with pytest.raises(SlackApiError) as refused:
        await client.views_open(trigger_id="1.2.x", view={**modal(), "title": plain("Hi")})
    assert refused.value.response["error"] == "invalid_arguments"
    assert emulator.traffic[-1][1:] == (
        "views.open",
        {
            "trigger_id": "…",
            "view": modal("Hi"),
            "answer": dict(refused.value.response.data),
        },
        "invalid_arguments",
    )
