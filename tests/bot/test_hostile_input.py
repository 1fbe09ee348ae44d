"""All of Slack's input is hostile: whatever comes, it is acknowledged, nothing runs without a right, nothing breaks."""

import asyncio
import copy
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import structlog
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.app.interactions import parse
from bot.app.transports import EVENTS_PATH, HttpTransport
from bot.cards import ids
from bot.cards.lists import option_value
from bot.cards.message import Intent
from core.common.clock import now_ms
from tests.bot.running import ANNA, BEN, LEA, NINA, OPEN, ROB, SOC, UNCONFIGURED, BotEnvironment, running_bot

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
TEAM, GUEST, BOT = "T0LOCAL", "T0OTHER", "B0BOT"
WEEK_MS = 7 * 86_400_000
PATIENCE_S = 30  # far more than anything here takes on a busy machine
Json = dict[str, Any]


@dataclass
class Ear:
    """Stands where `response_url` leads; keeps what the bot says there."""

    url: str = ""
    heard: list[Json] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def hear(self, request: web.Request) -> web.Response:
        async with self._changed:
            self.heard.append(await request.json())
            self._changed.notify_all()
        return web.Response(text="ok")

    async def until(self, words: str) -> str:
        """What was said, once it holds these words."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: words in json.dumps(self.heard))
        return json.dumps(self.heard)

    async def times(self, number: int) -> None:
        """Until something was said that many times."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.heard) >= number)


@asynccontextmanager
async def listening() -> AsyncIterator[Ear]:
    ear, app = Ear(), web.Application()
    app.router.add_post("/", ear.hear)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ear.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield ear
    finally:
        await runner.cleanup()


class Slack:
    """Sends the bot whatever it is told to, signed as Slack would."""

    def __init__(self, env: BotEnvironment, session: aiohttp.ClientSession) -> None:
        assert isinstance(env.bot.transport, HttpTransport)
        self._url, self._session = env.bot.transport.url + EVENTS_PATH, session
        self._secret = env.emulator.signing_secret

    async def send(self, payload: Mapping[str, Any]) -> tuple[int, str]:
        """Status and text of the acknowledgement."""
        if payload.get("command"):
            return await self.post(
                urlencode({k: v for k, v in payload.items() if isinstance(v, str)}, errors="replace")
            )
        if "event" in payload:
            return await self.post(json.dumps(payload), "application/json")
        return await self.post(urlencode({"payload": json.dumps(payload)}))

    async def post(self, body: str, kind: str = "application/x-www-form-urlencoded") -> tuple[int, str]:
        now, raw = int(time.time()), body.encode("utf-8", "replace")
        digest = hmac.new(self._secret.encode(), f"v0:{now}:".encode() + raw, hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": f"v0={digest}", "Content-Type": kind}
        async with asyncio.timeout(PATIENCE_S), self._session.post(self._url, data=raw, headers=headers) as answer:
            return answer.status, await answer.text()


def common(kind: str, user: str = ANNA, team: str = TEAM) -> Json:
    return {"type": kind, "user": {"id": user, "name": "x", "team_id": team}, "team": {"id": team, "domain": "d"},
            "api_app_id": "A1", "trigger_id": "1.2.3", "is_enterprise_install": False}  # fmt: skip


def click(action_id: str, value: str, ear: Ear | None = None, **more: Any) -> Json:
    """A click on a button in a message."""
    place = {"channel": SOC, "ts": "1.000001", "user": ANNA, "team": TEAM, "block_id": "b", "at": "1.5", **more}
    element: Json = {"type": "button", "action_id": action_id, "block_id": place["block_id"], "action_ts": place["at"]}
    if action_id in (ids.MENU, ids.MORE):
        element["selected_option"] = {"text": {"type": "plain_text", "text": "x"}, "value": value}
    return {
        **common("block_actions", place["user"], place["team"]),
        "container": {"type": "message", "message_ts": place["ts"], "channel_id": place["channel"]},
        "channel": {"id": place["channel"], "name": "soc"},
        "message": {"ts": place["ts"], "text": "x"},
        "response_url": ear.url if ear else "",
        "actions": [{**element, "value": value}],
    }


def submission(callback_id: str, metadata: str, values: Json, **more: Any) -> Json:
    blocks = [{"type": "input", "block_id": block} for block in values]
    view = {"id": "V1", "type": "modal", "callback_id": callback_id, "private_metadata": metadata, "hash": "1.a",
            "state": {"values": values}, "blocks": blocks}  # fmt: skip
    return {**common("view_submission"), "view": view, **more}


# --- told one by one ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stage(folder: Path, **parts: Any) -> AsyncIterator[tuple[BotEnvironment, Slack, Ear]]:
    async with (
        running_bot(folder, transport="http", **parts) as env,
        aiohttp.ClientSession() as session,
        listening() as ear,
    ):
        yield env, Slack(env, session), ear


async def minted(env: BotEnvironment, alert_id: str, what: str, channel: str = SOC) -> str:
    """A real id from the alert's card."""
    key = f"alert:{alert_id}:{channel}"
    argument = "alert" if what == "menu" else ""
    return (await env.bot.outbox.buttons.issue(channel, key, [Intent(what, alert_id, argument)]))(
        Intent(what, alert_id, argument)
    )


async def test_a_forged_a_forwarded_and_another_persons_button_run_nothing_and_offer_refresh(tmp_path: Path) -> None:
    async with stage(tmp_path) as (env, slack, ear):
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        ts = (await env.card(anna, alert_id))["ts"]
        read_it = await minted(env, alert_id, "read")
        forged = [
            click(ids.MORE, "AAAAAAAAAAAAAAAAAAAAAA", ear, ts=ts, at="1"),
            click(ids.MORE, read_it, ear, ts="1.000009", at="2"),
            click(ids.MORE, read_it, ear, channel=OPEN, ts=ts, at="3"),
            click(ids.RUN, f'{{"run": "{CLOSE}", "on": "{alert_id}"}}', ear, ts=ts, at="4"),
            click(ids.RUN, alert_id, ear, ts=ts, at="5"),
            click(ids.APPROVE, read_it + "x", ear, ts=ts, at="6"),
        ]
        for number, payload in enumerate(forged, start=1):
            assert (await slack.send(payload))[0] == 200
            await ear.times(number)
        for said in map(json.dumps, ear.heard):
            assert "Nothing was run" in said
            assert ids.REFRESH in said
        assert (await env.client.alert(alert_id)).status == "New"
        assert await env.client.search_actions({}) == []


async def test_an_expired_button_runs_nothing_and_refresh_brings_one_that_counts(tmp_path: Path) -> None:
    later = 0
    async with running_bot(tmp_path, clock_ms=lambda: now_ms() + later) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        card = await env.card(anna, alert_id)
        later = WEEK_MS + 1
        await anna.click(SOC, card["ts"], action_id=ids.DETAILS)
        stale = (await anna.until(lambda s: [m for m in s.ephemerals(SOC) if "no longer good" in m["text"]]))[0]
        await anna.click(SOC, stale["ts"], action_id=ids.REFRESH)
        await anna.until(lambda s: str(s.message(SOC, card["ts"])) != str(card))
        await anna.click(SOC, card["ts"], action_id=ids.DETAILS)
        await anna.until(lambda s: [m for m in s.ephemerals(SOC) if "command and control" in str(m)])


async def test_who_is_not_linked_has_no_right_or_is_a_bot_changes_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as (env, slack, ear):
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        ts = (await env.card(anna, alert_id))["ts"]
        read_it, case = await minted(env, alert_id, "read"), await minted(env, alert_id, "case")
        for user, words in ((NINA, "isn't linked"), (BOT, "isn't linked"), ("", "isn't linked"), (ROB, "manageAlert")):
            ear.heard.clear()
            await slack.send(click(ids.MORE, read_it, ear, ts=ts, user=user, at=f"{user}1"))
            await ear.until(words)
            await slack.send(click(ids.MORE, case, ear, ts=ts, user=user, at=f"{user}2"))
        alert = await env.client.alert(alert_id)
        assert (alert.status, alert.case) == ("New", None)


async def test_a_guest_of_another_company_is_refused_on_every_surface(tmp_path: Path) -> None:
    async with stage(tmp_path) as (env, slack, ear):
        alert_id = await env.post_alert()
        await env.card(await env.person(ANNA), alert_id)
        command = {"command": "/responder", "text": f"run {CLOSE} {alert_id}", "team_id": GUEST, "user_id": ANNA,
                   "channel_id": SOC, "trigger_id": "1"}  # fmt: skip
        status, text = await slack.send(command)
        assert (status, "Only members" in text) == (200, True)
        await slack.send(click(ids.MENU, "x", ear, team=GUEST))
        await ear.until("Only members")
        mixed = {**click(ids.MENU, "x"), "user": {"id": ANNA, "team_id": GUEST}}
        assert (await slack.send(mixed))[0] == 200
        status, text = await slack.send({**submission(ids.START_VIEW, "{}", {}), "team": {"id": GUEST}})
        assert "Only members" in text
        status, text = await slack.send({**common("block_suggestion", team=GUEST), "action_id": ids.MENU, "value": ""})
        assert "Only members" in text
        assert await env.client.search_actions({}) == []


async def test_a_channel_that_is_not_set_up_shows_and_changes_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as (env, slack, ear):
        alert_id = await env.post_alert(title="Quiet words")
        await env.card(await env.person(ANNA), alert_id)
        command = {"command": "/responder", "team_id": TEAM, "user_id": ANNA, "channel_id": UNCONFIGURED,
                   "response_url": ear.url}  # fmt: skip
        for number, text in enumerate((f"alert {alert_id}", f"run {CLOSE} {alert_id}", "", "template", "watch ~1")):
            await slack.send({**command, "text": text, "trigger_id": f"{number}"})
        await slack.send(click(ids.MORE, await minted(env, alert_id, "read"), ear, channel=UNCONFIGURED))
        await ear.times(6)
        assert all("not set up" in json.dumps(said) for said in ear.heard)
        assert await env.client.search_actions({}) == []


async def test_a_channel_shared_with_another_company_shows_only_what_is_clear(tmp_path: Path) -> None:
    channels = [{"id": "C0SHARED", "clearance": "red", "alerts": {}}]

    async with running_bot(tmp_path, channels=channels, shared=("C0SHARED",)) as env:
        anna = await env.person(ANNA)
        amber = await env.post_alert(tlp=2, title="Amber words", sourceRef="a")
        clear = await env.post_alert(tlp=0, title="Clear words", sourceRef="c", artifacts=[])
        assert "Amber words" not in str(await env.card(anna, amber, "C0SHARED"))
        assert "Clear words" in str(await env.card(anna, clear, "C0SHARED"))


async def test_a_form_that_says_it_was_confirmed_still_needs_the_right(tmp_path: Path) -> None:
    """What a view's metadata claims is the client's word; rights are core's, at each step."""
    async with stage(tmp_path) as (env, slack, _):
        alert_id = await env.post_alert()
        claimed = {"id": alert_id, "kind": "alert", "responder": "x", "confirmed": True, "anyway": True, "channel": SOC}
        offered = await env.client.responders("alert", alert_id, explain=True)
        claimed["responder"] = option_value(next(r for r in offered if r.name == CLOSE))
        for user, words in ((ROB, "manageAction"), (NINA, "linked")):
            payload = submission(ids.START_VIEW, json.dumps(claimed), {})
            status, text = await slack.send({**payload, "user": {"id": user, "team_id": TEAM}})
            assert (status, words in text) == (200, True)
        assert await env.client.search_actions({}) == []


async def test_what_no_release_ever_had_is_acknowledged_with_a_word(tmp_path: Path) -> None:
    async with stage(tmp_path) as (_, slack, ear):
        assert (await slack.send(click("from_another_app", "x", ear)))[0] == 200
        await ear.until("another release")
        status, text = await slack.send(submission("unknown_view", "{}", {}))
        assert (status, "another release" in text) == (200, True)
        status, text = await slack.send({**common("block_suggestion"), "action_id": "no_such_menu", "value": ""})
        assert (status, "another release" in text) == (200, True)
        assert (await slack.send({**common("shortcut"), "callback_id": "gone", "action_ts": "1"}))[0] == 200
        closed = {**common("view_closed"), "view": {"type": "modal", "callback_id": "start", "id": "V1"}}
        assert (await slack.send(closed))[0] == 200


# --- at random ------------------------------------------------------------------------------------------------------

NASTY: Sequence[Any] = (
    None, True, 0, -1, 2**70, 1.5, "", " ", "\x00", "\ud800", "~", "~0", "~12", "~" + "9" * 40, "x" * 5_000,
    "<!channel>", "menu:", "menu:" + "x" * 255, "../../etc/passwd", "' OR 1=1 --", "{}", "[]", "null",
    '{"id": []}', "{" * 2_000, [], [[]], [None], {}, {"id": {}}, {"value": []}, "%00", "‮", "=1+1", "U0LEA\u200b",
)  # fmt: skip
LETTERS = st.text(st.characters(codec="utf-8"), max_size=30)
VERBS = ("alert", "list", "run", "actions", "template", "watch", "doctor", "help", "start", "", "RUN", "watch off")
WITHOUT_RIGHTS = (ROB, NINA, BOT, "", "U0NOBODY")
"""None of them may run or change anything."""
FAULTS = ("internal_error", "leading_failed", "event_failed")


@st.composite
def payloads(draw: st.DrawFn, users: Sequence[str], tokens: Mapping[str, str], alert_id: str, ts: str) -> Json:
    """A payload of some surface by one of these people, with real ids in it, bent in up to three places."""
    user, token = draw(st.sampled_from(users)), draw(st.sampled_from([*tokens.values(), "A" * 22]))
    place: Json = {"user": user, "ts": ts, "at": draw(st.text("0123456789.", min_size=1, max_size=8))}
    name = draw(st.sampled_from([CLOSE, "close", "Responder", '"', "x"]) | LETTERS)
    clicks = [ids.RUN, ids.RUN_ANYWAY, ids.RUN_AGAIN, ids.DISMISS, ids.MENU, ids.MORE, ids.CANCEL, ids.APPROVE,
              ids.DENY, ids.REFRESH, ids.DETAILS, ids.LINK, ids.VALUE, ids.TEMPLATE_ADD_TASK, ids.TEMPLATE_REMOVE_FIELD,
              ids.TEMPLATE_FROM_JSON]  # fmt: skip
    action_id = draw(st.sampled_from(clicks))
    view = draw(st.sampled_from([ids.START_VIEW, ids.TEMPLATE_VIEW, ids.TEMPLATE_JSON_VIEW, ids.TEMPLATE_CHECK_VIEW]))
    values = {
        block: {"v": {"type": "plain_text_input", "value": draw(LETTERS)}} for block in ("object", "name", "json")
    }
    draft = {"tasks": [0], "fields": [1], "next": 2, "file": "http://127.0.0.1:9/x"}
    claims = {"id": alert_id, "kind": "alert", "responder": name, "confirmed": True, "anyway": True, "channel": SOC}
    metadata = json.dumps({**claims, **draft})
    menu, modal = draw(st.sampled_from([ids.MENU, ids.START_RESPONDER])), {"id": "V1", "type": "modal"}
    shortcut = {"callback_id": ids.RUN_MESSAGE_SHORTCUT, "channel": {"id": SOC}, "response_url": ""}
    home = {"id": "V1", "type": "home", "private_metadata": metadata}
    common_now = common("", user)
    made: Json = draw(
        st.sampled_from(
            [
                {"command": "/responder", "text": f"{draw(st.sampled_from(VERBS))} {name} {alert_id}", "team_id": TEAM,
                 "user_id": user, "channel_id": SOC, "trigger_id": place["at"], "response_url": ""},
                click(action_id, token, **place, block_id=f"{ids.MENU_BLOCK}{token}"),
                {**click(action_id, token, **place), "view": home},
                {**common_now, "type": "block_suggestion", "action_id": menu,
                 "block_id": f"{ids.MENU_BLOCK}{token}", "value": name, "channel": {"id": SOC},
                 "container": {"message_ts": ts, "channel_id": SOC}, "view": {"private_metadata": metadata}},
                {**submission(view, metadata, values), "user": {"id": user, "team_id": TEAM}},
                {**common_now, "type": "view_closed", "view": {**modal, "callback_id": view}, "is_cleared": True},
                {**common_now, "type": "shortcut", "callback_id": ids.RUN_SHORTCUT, "action_ts": place["at"]},
                {**common_now, "type": "message_action", **shortcut,
                 "message": {"ts": ts, "text": f"{alert_id} {name}", "blocks": [{"text": name}]}},
                {"type": "event_callback", "team_id": TEAM, "event_id": place["at"],
                 "event": {"type": "app_home_opened", "user": user, "tab": "home", "channel": "D1"}},
            ]
        )
    )  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        made = bent(draw, made)
    return made


def bent(draw: st.DrawFn, payload: Json) -> Json:
    """The same with one value, somewhere in it, taken away or made nasty."""
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
            holder[key] = draw(st.sampled_from(NASTY))
        else:
            del holder[key]
        return changed


def thrown(folder: Path, users: Sequence[str], examples: int) -> tuple[int, list[Any]]:
    """Throws payloads of these people at a bot; how many runs there were, and what the log calls a fault of ours."""
    with structlog.testing.capture_logs() as logs, asyncio.Runner() as runner:
        place = stage(folder)
        env, slack, _ = runner.run(place.__aenter__())
        try:
            alert_id = runner.run(env.post_alert())
            ts = runner.run(_card_ts(env, alert_id))
            wanted = ("menu", "details", "read", "unread", "case", "watch", "refresh")
            tokens = {what: runner.run(minted(env, alert_id, what)) for what in wanted}

            @given(payload=payloads(users, tokens, alert_id, ts))
            @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
            def throw(payload: Json) -> None:
                status, _ = runner.run(slack.send(payload))
                assert status in (200, 400, 404)  # no payload of Slack's has a shape that isn't 200

            throw()
            alert = runner.run(env.client.alert(alert_id))
            changed = alert.status != "New" or alert.case is not None
            runs = runner.run(env.client.search_actions({}))
        finally:
            runner.run(place.__aexit__(None, None, None))
    return len(runs) + changed, [entry for entry in logs if entry["event"] in FAULTS]


def test_whatever_comes_from_people_without_rights_is_acknowledged_and_changes_nothing(tmp_path: Path) -> None:
    assert thrown(tmp_path, WITHOUT_RIGHTS, 180) == (0, [])


def test_whatever_comes_from_an_org_admin_breaks_nothing(tmp_path: Path) -> None:
    assert thrown(tmp_path, (LEA,), 80)[1] == []


async def _card_ts(env: BotEnvironment, alert_id: str) -> str:
    return str((await env.card(await env.person(ANNA), alert_id))["ts"])


def test_the_key_of_a_repeated_delivery_is_the_same_and_of_another_click_is_not() -> None:
    """Team, user, channel, message, action and time of it; `trigger_id` of a command, `view.id` of a form."""
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
