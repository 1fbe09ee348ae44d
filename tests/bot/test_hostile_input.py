"""Untrusted payloads: each is acknowledged, nothing runs without a permission, nothing raises an internal error."""

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.app.interactions import parse
from bot.app.replies import MAX_AT_ONCE, ResponseUrls
from bot.block_kit import ids
from bot.message import Intent
from core.common.clock import boot_ms, now_ms
from core.models import Action
from tests.bot.people import card_of, message_in, modal, reply_to
from tests.bot.running import ANNA, BEN, LEA, NINA, OPEN, ROB, SOC, UNCONFIGURED, BotEnvironment, running_bot
from tests.bot.signed_requests import ResponseUrlServer, http_bot

EXTRACT = "ResponderBot_ExtractIndicators_1_0"
TEAM, GUEST, BOT = "T0LOCAL", "T0OTHER", "B0BOT"
ACTIONS = "/api/connector/engine/action/_search"
WEEK_MS = 7 * 86_400_000
TIMEOUT_S = 30  # ample, for busy machines
Json = dict[str, Any]


def common(kind: str, user: str = ANNA, team: str = TEAM) -> Json:
    return {"type": kind, "user": {"id": user, "name": "x", "team_id": team}, "team": {"id": team, "domain": "d"},
            "api_app_id": "A1", "trigger_id": "1.2.3", "is_enterprise_install": False}  # fmt: skip


def click(action_id: str, value: str, responses: ResponseUrlServer | None = None, **more: Any) -> Json:
    """A click on a button in a message."""
    origin = {"channel": SOC, "ts": "1.000001", "user": ANNA, "team": TEAM, "block_id": "b", "at": "1.5", **more}
    element: Json = {
        "type": "button",
        "action_id": action_id,
        "block_id": origin["block_id"],
        "action_ts": origin["at"],
    }
    if action_id in (ids.MENU, ids.MORE):
        element["selected_option"] = {"text": {"type": "plain_text", "text": "x"}, "value": value}
    return {
        **common("block_actions", origin["user"], origin["team"]),
        "container": {"type": "message", "message_ts": origin["ts"], "channel_id": origin["channel"]},
        "channel": {"id": origin["channel"], "name": "soc"},
        "message": {"ts": origin["ts"], "text": "x"},
        "response_url": responses.url if responses else "",
        "actions": [{**element, "value": value}],
    }


def submission(callback_id: str, metadata: str, values: Json, **more: Any) -> Json:
    blocks = [{"type": "input", "block_id": block} for block in values]
    view = {"id": "V1", "type": "modal", "callback_id": callback_id, "private_metadata": metadata, "hash": "1.a",
            "state": {"values": values}, "blocks": blocks}  # fmt: skip
    return {**common("view_submission"), "view": view, **more}


# --- single payloads --------------------------------------------------------------------------------------------------


async def issue_button(env: BotEnvironment, alert_id: str, what: str, channel: str = SOC) -> str:
    """The id of a button on the alert's card."""
    key = f"alert:{alert_id}:{channel}"
    argument = "alert" if what == "menu" else ""
    return await env.bot.outbox.buttons.issue(channel, key, lambda button: button(Intent(what, alert_id, argument)))


async def test_forged_or_forwarded_button_runs_nothing_and_offers_refresh(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (env, slack, responses):
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        ts = (await anna.sees(card_of(alert_id)))["ts"]
        read_it = await issue_button(env, alert_id, "read")
        forged = [
            click(ids.MORE, "AAAAAAAAAAAAAAAAAAAAAA", responses, ts=ts, at="1"),
            click(ids.MORE, read_it, responses, ts="1.000009", at="2"),
            click(ids.MORE, read_it, responses, channel=OPEN, ts=ts, at="3"),
            click(ids.RUN, f'{{"run": "{EXTRACT}", "on": "{alert_id}"}}', responses, ts=ts, at="4"),
            click(ids.RUN, alert_id, responses, ts=ts, at="5"),
            click(ids.APPROVE, read_it + "x", responses, ts=ts, at="6"),
        ]
        for number, payload in enumerate(forged, start=1):
            assert (await slack.send(payload))[0] == 200
            await responses.until_count(number)
        for response in map(json.dumps, responses.received):
            assert "Nothing was run" in response
        assert (await env.client.alert(alert_id)).status == "New"
        assert await env.client.search(Action, ACTIONS) == []


async def test_an_expired_button_runs_nothing_and_its_card_gets_new_ones(tmp_path: Path) -> None:
    later = 0
    async with running_bot(tmp_path, clock_ms=lambda: now_ms() + later) as env:
        anna, _alert_id, card = await env.first_card()
        later = WEEK_MS + 1
        await anna.presses("Details", card)
        await anna.sees(modal("This button is too old"))
        await anna.until(lambda s: str(s.message(SOC, card["ts"])) != str(card))
        await anna.presses("Details", card)
        await anna.sees(modal("command and control"))


async def test_unlinked_read_only_and_bot_users_change_nothing(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (env, slack, responses):
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        ts = (await anna.sees(card_of(alert_id)))["ts"]
        read_it, case = await issue_button(env, alert_id, "read"), await issue_button(env, alert_id, "case")
        for user, words in (
            (NINA, "You're not linked yet"),
            (BOT, "You're not linked yet"),
            ("", "You're not linked yet"),
            (ROB, "You can't change alerts."),
        ):
            responses.received.clear()
            await slack.send(click(ids.MORE, read_it, responses, ts=ts, user=user, at=f"{user}1"))
            await responses.until(words)
            await slack.send(click(ids.MORE, case, responses, ts=ts, user=user, at=f"{user}2"))
        alert = await env.client.alert(alert_id)
        assert (alert.status, alert.case) == ("New", None)


async def test_guest_of_another_team_is_refused_for_every_interaction_type(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (env, slack, responses):
        alert_id = await env.post_alert()
        await (await env.person(ANNA)).sees(card_of(alert_id))
        command = {"command": "/responder", "text": f"run {EXTRACT} {alert_id}", "team_id": GUEST, "user_id": ANNA,
                   "channel_id": SOC, "trigger_id": "1"}  # fmt: skip
        status, text = await slack.send(command)
        assert (status, "Only members" in text) == (200, True)
        await slack.send(click(ids.MENU, "x", responses, team=GUEST))
        await responses.until("Only members")
        mixed = {**click(ids.MENU, "x"), "user": {"id": ANNA, "team_id": GUEST}}
        assert (await slack.send(mixed))[0] == 200
        status, text = await slack.send({**submission(ids.START_VIEW, "{}", {}), "team": {"id": GUEST}})
        assert "Only members" in text
        status, text = await slack.send({**common("block_suggestion", team=GUEST), "action_id": ids.MENU, "value": ""})
        assert "Only members" in text
        assert await env.client.search(Action, ACTIONS) == []


@pytest.mark.parametrize("fault", ["error", "lose_request"])
async def test_whom_slack_does_not_tell_of_reads_so(tmp_path: Path, fault: str) -> None:
    async with http_bot(tmp_path, link_by_email=True) as (env, slack, responses):
        if fault == "error":
            env.emulator.faults.error("users.info", "ratelimited")
        else:
            env.emulator.faults.lose_request("users.info", times=4)
        await slack.send(click(ids.MORE, "x", responses, user=NINA))
        await responses.until("Slack doesn't say who you are now")


async def test_channel_without_settings_shows_and_changes_nothing(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (env, slack, responses):
        alert_id = await env.post_alert(title="Quiet words")
        await (await env.person(ANNA)).sees(card_of(alert_id))
        command = {"command": "/responder", "team_id": TEAM, "user_id": ANNA, "channel_id": UNCONFIGURED,
                   "response_url": responses.url}  # fmt: skip
        for number, text in enumerate((f"alert {alert_id}", f"run {EXTRACT} {alert_id}", "", "template")):
            await slack.send({**command, "text": text, "trigger_id": f"{number}"})
        await slack.send(click(ids.MORE, await issue_button(env, alert_id, "read"), responses, channel=UNCONFIGURED))
        await responses.until_count(5)
        assert all("not set up" in json.dumps(response) for response in responses.received)
        assert await env.client.search(Action, ACTIONS) == []


async def test_shared_channel_shows_only_tlp_clear(tmp_path: Path) -> None:
    channels = [{"id": "C0SHARED", "clearance": "red", "alerts": {}}]

    async with running_bot(tmp_path, channels=channels, shared=("C0SHARED",)) as env:
        anna = await env.person(ANNA)
        amber = await env.post_alert(tlp=2, title="Amber words", sourceRef="a")
        body = {"responderId": EXTRACT, "objectType": "alert", "objectId": amber}
        await env.client.run(body)
        clear = await env.post_alert(tlp=0, title="Clear words", sourceRef="c", artifacts=[])
        assert "Clear words" in str(await anna.sees(card_of(clear, channel="C0SHARED")))
        assert len(anna.live_view.messages("C0SHARED")) == 1  # nor that there is one, how severe it is, or what ran


async def test_asked_state_in_a_forged_view_grants_no_permission(tmp_path: Path) -> None:
    """The metadata of a view comes from the client, so core checks the permissions at each step."""
    async with http_bot(tmp_path) as (env, slack, _):
        alert_id = await env.post_alert()
        offered = await env.client.responders("alert", alert_id)
        close = next(r.id for r in offered if r.name == EXTRACT)
        claimed = {"targets": f"alert {alert_id}", "responder_id": close, "anyway": "~1", "channel": SOC}
        for user, words in ((ROB, "no right to run responders"), (NINA, "linked")):
            payload = submission(ids.START_VIEW, json.dumps(claimed), {})
            status, text = await slack.send({**payload, "user": {"id": user, "team_id": TEAM}})
            assert (status, words in text) == (200, True)
        assert await env.client.search(Action, ACTIONS) == []


async def test_unknown_ids_are_acknowledged_with_a_message(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (_, slack, responses):
        assert (await slack.send(click("from_another_app", "x", responses)))[0] == 200
        await responses.until("another release")
        status, text = await slack.send(submission("unknown_view", "{}", {}))
        assert (status, "another release" in text) == (200, True)
        status, text = await slack.send({**common("block_suggestion"), "action_id": "no_such_menu", "value": ""})
        assert (status, "another release" in text) == (200, True)
        assert (await slack.send({**common("shortcut"), "callback_id": "gone", "action_ts": "1"}))[0] == 200
        closed = {**common("view_closed"), "view": {"type": "modal", "callback_id": "start", "id": "V1"}}
        assert (await slack.send(closed))[0] == 200


async def test_what_slack_gave_up_over_http_is_not_carried_out(tmp_path: Path) -> None:
    async with http_bot(tmp_path) as (env, slack, responses):
        alert_id = await env.post_alert()
        command = {"command": "/responder", "text": f"run {EXTRACT} {alert_id}", "team_id": TEAM, "user_id": ANNA,
                   "channel_id": SOC, "trigger_id": "1", "response_url": responses.url}  # fmt: skip
        assert (await slack.send(command, age_s=30))[0] == 200
        assert "nothing was done, so ask again" in await responses.until("Slack has told you that it failed")
        assert await env.client.search(Action, ACTIONS) == []


async def test_what_waited_while_the_bot_was_frozen_is_not_carried_out(tmp_path: Path) -> None:
    frozen_ms = 0
    async with running_bot(tmp_path, boot_ms=lambda: boot_ms() + frozen_ms) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        card = await anna.sees(card_of(alert_id))
        frozen_ms = 30_000
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        await anna.sees(message_in(SOC, "Slack has told you that it failed"))
        assert await env.client.search(Action, ACTIONS) == []
        frozen_ms += 2_500  # less than what Slack waits
        await anna.command(SOC, f"/responder run {EXTRACT} {alert_id}")
        await anna.sees(reply_to(card, "done"))


async def test_kinds_that_no_release_knows_are_no_error(tmp_path: Path) -> None:
    kinds = ("workflow_step_edit", "interactive_message", "dialog_submission", "dialog_cancellation", "x")
    async with http_bot(tmp_path) as (_, slack, _):
        for kind in kinds:
            for more in ({}, {"callback_id": 1}, {"callback_id": "x", "actions": [{}]}):
                assert (await slack.send({**common(kind), **more}))[0] < 500, kind


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.slack.com/x",
        "https://slack.com.example/x",
        "https://example/.slack.com",
        "https://hooks.slack.com@example/x",
        "https://hooks.slack.com:8443/x",
        "https://user@hooks.slack.com/x",
        "https://xslack.com/x",
        "http://localhost/x",
        "ftp://127.0.0.1/x",
        "//127.0.0.1/",
        "https://[::1/x",
        "https://hooks.slack.com\\@example/x",
    ],
)
async def test_nothing_is_posted_to_a_host_that_is_not_slacks(url: str) -> None:
    class Untouched:
        def post(self, *_: Any, **__: Any) -> None:
            raise AssertionError

    assert await ResponseUrls(Untouched(), "http://127.0.0.1:9/api/").post(url, {}) is False  # type: ignore[arg-type]


async def test_a_response_url_is_not_followed_and_those_that_hang_delay_nobody(tmp_path: Path) -> None:
    asked: list[str] = []
    hanging = asyncio.Event()

    async def serve(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/hang":
            await hanging.wait()
        if request.path == "/elsewhere":
            raise web.HTTPTemporaryRedirect("/reached")
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/{path}", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession() as session:
            urls = ResponseUrls(session, base)
            assert not await urls.post(f"{base}/elsewhere", {})
            assert asked == ["/elsewhere"]
            hung = [asyncio.create_task(urls.post(f"{base}/hang", {})) for _ in range(40)]
            done, waiting = await asyncio.wait(hung, timeout=1)
            assert len(waiting) == MAX_AT_ONCE  # the others go another way at once
            assert not any(task.result() for task in done)
            hanging.set()
            assert all(await asyncio.gather(*waiting))
            assert await urls.post(f"{base}/ok", {})
    finally:
        hanging.set()
        await runner.cleanup()


# --- random payloads --------------------------------------------------------------------------------------------------

UNEXPECTED: Sequence[Any] = (
    None, True, 0, -1, 2**70, 1.5, "", " ", "\x00", "\ud800", "~", "~0", "~12", "~" + "9" * 40, "x" * 5_000,
    "<!channel>", "menu:", "menu:" + "x" * 255, "../../etc/passwd", "' OR 1=1 --", "{}", "[]", "null",
    '{"id": []}', "{" * 2_000, [], [[]], [None], {}, {"id": {}}, {"value": []}, "%00", "‮", "=1+1", "U0LEA\u200b",
)  # fmt: skip
LETTERS = st.text(st.characters(codec="utf-8"), max_size=30)
VERBS = ("alert", "list", "run", "actions", "template", "doctor", "help", "start", "", "RUN")
WITHOUT_PERMISSIONS = (ROB, NINA, BOT, "", "U0NOBODY")
"""People who may not run or change anything."""
INTERNAL_ERRORS = ("internal_error", "leading_failed", "render_failed")


@st.composite
def payloads(draw: st.DrawFn, users: Sequence[str], tokens: Mapping[str, str], alert_id: str, ts: str) -> Json:
    """A payload of any interaction type by one of these people, with real ids, mutated in up to three places."""
    user, token = draw(st.sampled_from(users)), draw(st.sampled_from([*tokens.values(), "A" * 22]))
    origin: Json = {"user": user, "ts": ts, "at": draw(st.text("0123456789.", min_size=1, max_size=8))}
    name = draw(st.sampled_from([EXTRACT, "close", "Responder", '"', "x"]) | LETTERS)
    clicks = [ids.RUN, ids.RUN_ANYWAY, ids.RUN_AGAIN, ids.DISMISS, ids.MENU, ids.MORE, ids.CANCEL, ids.APPROVE,
              ids.DENY, ids.WITHDRAW, ids.SHOW_AGAIN, ids.DETAILS, ids.LINK, ids.VALUE]  # fmt: skip
    action_id = draw(st.sampled_from(clicks))
    view = draw(
        st.sampled_from(
            [
                ids.START_VIEW,
                ids.TEMPLATE_VIEW,
                ids.APPROVE_VIEW,
                ids.DENY_VIEW,
            ]
        )
    )
    values = {
        block: {"v": {"type": "plain_text_input", "value": draw(LETTERS)}} for block in ("object", "name", "json")
    }
    draft = {"tasks": [0], "fields": [1], "next": 2, "file": "http://127.0.0.1:9/x"}
    claims = {"id": alert_id, "targets": f"alert {alert_id}", "responder_id": name, "anyway": "~1", "channel": SOC}
    metadata = json.dumps({**claims, **draft})
    menu, modal = draw(st.sampled_from([ids.MENU, ids.START_RESPONDER])), {"id": "V1", "type": "modal"}
    shortcut = {"callback_id": ids.RUN_MESSAGE_SHORTCUT, "channel": {"id": SOC}, "response_url": ""}
    home = {"id": "V1", "type": "home", "private_metadata": metadata}
    common_now = common("", user)
    made: Json = draw(
        st.sampled_from(
            [
                {"command": "/responder", "text": f"{draw(st.sampled_from(VERBS))} {name} {alert_id}", "team_id": TEAM,
                 "user_id": user, "channel_id": SOC, "trigger_id": origin["at"], "response_url": ""},
                click(action_id, token, **origin, block_id=f"{ids.MENU_BLOCK}{token}"),
                {**click(action_id, token, **origin), "view": home},
                {**common_now, "type": "block_suggestion", "action_id": menu,
                 "block_id": f"{ids.MENU_BLOCK}{token}", "value": name, "channel": {"id": SOC},
                 "container": {"message_ts": ts, "channel_id": SOC}, "view": {"private_metadata": metadata}},
                {**submission(view, metadata, values), "user": {"id": user, "team_id": TEAM}},
                {**common_now, "type": "view_closed", "view": {**modal, "callback_id": view}, "is_cleared": True},
                {**common_now, "type": "shortcut", "callback_id": ids.RUN_SHORTCUT, "action_ts": origin["at"]},
                {**common_now, "type": "message_action", **shortcut,
                 "message": {"ts": ts, "text": f"{alert_id} {name}", "blocks": [{"text": name}]}},
                {"type": "event_callback", "team_id": TEAM, "event_id": origin["at"],
                 "event": {"type": "app_home_opened", "user": user, "tab": "home", "channel": "D1"}},
            ]
        )
    )  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        made = mutated(draw, made)
    return made


def mutated(draw: st.DrawFn, payload: Json) -> Json:
    """The payload with one value, somewhere in it, removed or replaced by an unexpected one."""
    changed = copy.deepcopy(payload)
    holder: Any = changed
    while True:
        keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return changed
        key = draw(st.sampled_from(keys))
        if isinstance(holder[key], dict | list) and holder[key] and draw(st.booleans()):
            holder = holder[key]
            continue
        if draw(st.booleans()):
            holder[key] = draw(st.sampled_from(UNEXPECTED))
        else:
            del holder[key]
        return changed


def send_payloads(folder: Path, users: Sequence[str]) -> tuple[int, list[Any]]:
    """Send random payloads of these people to a bot. Returns the number of runs and changes, and logged errors."""
    with structlog.testing.capture_logs() as logs, asyncio.Runner() as runner:
        bot = http_bot(folder)
        env, slack, _ = runner.run(bot.__aenter__())
        try:
            alert_id = runner.run(env.post_alert())
            ts = runner.run(_card_ts(env, alert_id))
            wanted = ("menu", "details", "read", "unread", "case", "refresh")
            tokens = {what: runner.run(issue_button(env, alert_id, what)) for what in wanted}

            @given(payload=payloads(users, tokens, alert_id, ts))
            @settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))
            def send(payload: Json) -> None:
                status, _ = runner.run(slack.send(payload))
                assert status in (200, 400, 404)  # 4xx only for payloads that are not Slack's

            send()
            alert = runner.run(env.client.alert(alert_id))
            changed = alert.status != "New" or alert.case is not None
            runs = runner.run(env.client.search(Action, ACTIONS))
        finally:
            runner.run(bot.__aexit__(None, None, None))
    return len(runs) + changed, [entry for entry in logs if entry["event"] in INTERNAL_ERRORS]


@pytest.mark.hypothesis
def test_any_payload_without_permissions_is_acknowledged_and_changes_nothing(tmp_path: Path) -> None:
    assert send_payloads(tmp_path, WITHOUT_PERMISSIONS) == (0, [])


@pytest.mark.hypothesis
def test_any_payload_of_an_org_admin_causes_no_internal_error(tmp_path: Path) -> None:
    assert send_payloads(tmp_path, (LEA,))[1] == []


async def _card_ts(env: BotEnvironment, alert_id: str) -> str:
    return str((await (await env.person(ANNA)).sees(card_of(alert_id)))["ts"])


def test_idempotency_key_is_equal_for_repeated_deliveries_only() -> None:
    """It depends on team, user, channel, message, action_id and action_ts."""
    base = click(ids.RUN, "t")
    assert parse("action", base).idempotency_key == parse("action", copy.deepcopy(base)).idempotency_key
    others = [
        click(ids.RUN, "t", at="1.6"),
        click(ids.RUN, "t", user=BEN),
        click(ids.RUN, "t", channel=OPEN),
        click(ids.RUN, "t", ts="2.0"),
        click(ids.RUN_ANYWAY, "t"),
        click(ids.RUN, "t", team=GUEST),
    ]
    assert len({parse("action", one).idempotency_key for one in [base, *others]}) == 7
