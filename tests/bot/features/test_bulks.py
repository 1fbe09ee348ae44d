"""A responder on several objects: one question, one message that tells how far it is, and what failed again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.app import running
from bot.cards import ids
from bot.outbox import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import now_ms
from tests.bot.features.environment import (
    FeatureEnvironment,
    feature_environment,
    fine,
    text_of,
    topmost,
    within_limits,
)
from tests.bot.features.test_decisions import button, in_thread
from tests.bot.running import SOC, UNLIMITED

RULES: Mapping[str, Mapping[str, Any]] = {"Tell": {"only_on": {"tags": ["c2"]}}}


def bulk_messages(view: EmulatorView, words: str = "") -> list[dict[str, Any]]:
    return [m for m in view.messages(SOC) if "Show each" in text_of(m) and words in text_of(m)]


async def alerts(env: FeatureEnvironment, count: int, **more: Any) -> list[str]:
    return [(await env.create_alert(sourceRef=f"{n}-{more}", **more)).id for n in range(count)]


async def asked(env: FeatureEnvironment, name: str, responder: str, alert_ids: list[str]) -> dict[str, Any]:
    """The question after the command."""
    await env[name].command(SOC, f"/responder run {responder} {' '.join(alert_ids)}")
    return fine(await env.until(name, topmost(ids.NOTICE_VIEW, "Core checks each")))


async def start(env: FeatureEnvironment, name: str, responder: str, alert_ids: list[str]) -> None:
    question = await asked(env, name, responder, alert_ids)
    await env[name].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))


async def shown(env: FeatureEnvironment, words: str) -> dict[str, Any]:
    """The message of a bulk, once it has these words."""
    return within_limits(await env.until("anna", lambda view: next(iter(bulk_messages(view, words)), None)))


async def test_a_run_on_thirty_alerts_posts_one_message_that_is_true_in_the_end(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 28)
        (untagged,) = await alerts(env, 1, tags=["other"])
        (secret,) = await alerts(env, 1, tlp=3, title="Nobody here reads this")
        everything = [*alert_ids, untagged, secret]
        question = await asked(env, "anna", "tell", [*everything, "~999999"])
        text = text_of(question)
        assert "29 of 31 objects, those that you may see" in text
        assert "*Runs on 28 objects*" in text
        assert f"*Will be refused on 1 object*\\n• {untagged}: " in text
        assert all(one in text for one in alert_ids)
        assert secret not in text
        assert "Nobody here" not in text
        for _ in range(2):  # a double click
            await env["anna"].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))
        told = text_of(await env.until("anna", topmost(ids.NOTICE_VIEW, "28 runs accepted, 1 refused")))
        assert f"{untagged}: " in told
        message = await shown(env, "29 of 29, 0 failed, 1 refused")
        assert secret not in text_of(message)
        for alert_id in alert_ids:
            (action,) = await env.client.actions("alert", alert_id)
            assert action.status == "Success"
        for alert_id in (untagged, secret):
            assert await env.client.actions("alert", alert_id) == []
        for alert_id in alert_ids:  # each card tells of its run
            await env.card_of("anna", await env.client.alert(alert_id))
        await env.until(
            "anna", lambda view: len([m for m in view.messages(SOC) if "*Tell* done" in text_of(m)]) == 28 or None
        )
        posts = [body for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
        posts = [body for body in posts if body["channel"] == SOC]
        assert not [body for body in posts if body.get("thread_ts")]
        assert len(posts) == 30 + 1
        await env["anna"].click(SOC, message["ts"], action_id=button(message, ids.BULK_DETAILS))
        each = text_of(fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "succeeded"))))
        assert f"• {untagged} · ET MALWARE Beacon to known C2 · refused: " in each
        assert each.index(untagged) < each.index(alert_ids[0])
        assert secret not in each


async def test_what_failed_runs_again_once_as_a_bulk_of_its_own(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "fail", alert_ids)
        message = await shown(env, "3 of 3, 3 failed, 0 refused")
        retry = button(message, ids.BULK_RETRY)
        await env["ben"].click(SOC, message["ts"], action_id=retry)
        await env.told("ben", "or an org-admin may run this again")
        await env["eve"].click(SOC, message["ts"], action_id=retry)
        await env.told("eve", "You can't run responders")
        for _ in range(2):
            await env["anna"].click(SOC, message["ts"], action_id=retry)
        await env.told("anna", "Runs again on 3 objects; 0 refused")
        await env.until("anna", lambda view: len(bulk_messages(view, "3 of 3, 3 failed")) == 2 or None)
        earlier = await shown(env, "What failed was run again as ~")
        assert earlier["ts"] == message["ts"]
        assert ids.BULK_RETRY not in text_of(earlier)
        for alert_id in alert_ids:
            assert len(await env.client.actions("alert", alert_id)) == 2
        assert len(bulk_messages(env["anna"].live_view)) == 2


async def test_the_message_goes_on_after_the_bot_was_down_in_the_middle(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 3)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "0 of 3, 0 failed, 0 refused")
        assert ids.BULK_RETRY not in text_of(message)
        await env.bot.close()
        for alert_id in alert_ids:
            (action,) = await env.client.actions("alert", alert_id)
            await env.client.approve(action.id)
            while action.end_date is None:
                action = await env.client.action(action.id, wait_s=10)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            ended = await shown(env, "3 of 3, 0 failed, 0 refused")
        assert ended["ts"] == message["ts"]
        assert len(bulk_messages(env["anna"].live_view)) == 1


@pytest.mark.parametrize(
    ("name", "command", "answer"),
    [
        ("eve", "run tell {ids}", "You can't run responders"),
        ("anna", "run nosuch {ids}", "There is no responder"),
        ("anna", "run vendor ban {ids}", "Which list"),
        ("anna", "run tell ~777771 ~777772", "You may see none of these 2 objects"),
        ("anna", "run tell " + " ".join(f"~{n}" for n in range(1, 102)), "At most 100 objects at once, not 101"),
    ],
)
async def test_what_cannot_run_on_several_says_why(tmp_path: Path, name: str, command: str, answer: str) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 2)
        await env[name].command(SOC, f"/responder {command.format(ids=' '.join(alert_ids))}")
        await env.told(name, answer)
        assert [await env.client.actions("alert", one) for one in alert_ids] == [[], []]
        assert bulk_messages(env["anna"].live_view) == []


async def test_runs_on_several_ask_for_the_approval_of_each_and_take_typed_inputs(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 2)
        cards = [await env.card_of("anna", await env.client.alert(one)) for one in alert_ids]
        await start(env, "anna", "vendor ban reason=C2 list=inbound", alert_ids)
        await shown(env, "0 of 2, 0 failed, 0 refused")
        for alert_id, card in zip(alert_ids, cards, strict=True):
            await env.until("anna", in_thread(card["ts"], "approval"))
            (action,) = await env.client.actions("alert", alert_id)
            assert '"reason":"C2"' in (action.parameters or "").replace(" ", "")


async def test_asked_in_a_direct_message_it_is_told_there(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert_ids = await alerts(env, 2)
        conversation = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].command(conversation, f"/responder run fail {' '.join(alert_ids)}")
        question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Core checks each")))
        await env["anna"].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))

        def told(view: EmulatorView) -> list[dict[str, Any]] | None:
            return [m for m in view.messages(conversation) if "2 of 2, 2 failed" in text_of(m)] or None

        (message,) = await env.until("anna", told)
        await env["anna"].click(conversation, message["ts"], action_id=button(message, ids.BULK_RETRY))
        await env.until("anna", lambda view: len(told(view) or ()) == 2 or None)
        assert bulk_messages(env["anna"].live_view) == []


async def test_an_alert_and_its_observable_are_not_several(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert = await env.create_alert()
        artifact = alert.artifacts[0].id
        await env["anna"].command(SOC, f"/responder run fail {alert.id} {artifact}")
        await env.until("anna", lambda view: "The firewall said no" in str(view.messages(SOC)) or None)
        (action,) = await env.client.actions("case_artifact", artifact)
        assert action.object_id == artifact
        assert action.bulk is None
