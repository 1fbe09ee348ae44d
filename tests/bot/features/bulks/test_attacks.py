"""Runs on several targets while something else changes: rights, levels, channels, core, and other people."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from core.settings import ProtectSection
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.bulks.test_bulks import alerts, asked, bulk_messages, posted_to, shown, start
from tests.bot.features.environment import FeatureEnvironment, feature_environment, fine, text_of, topmost
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.running import OPEN, SOC
from tests.bot.test_replicas import another

TITLE = "Beacon to known C2"


async def ran(env: FeatureEnvironment, object_ids: list[str]) -> list[int]:
    return [len(await env.client.actions("alert", one)) for one in object_ids]


async def confirm(env: FeatureEnvironment, name: str, question: dict[str, Any]) -> None:
    await env[name].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))


async def test_what_changes_between_the_question_and_the_click_counts(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        case = await env.client.create_case_from_alert(alert_ids[2])
        question = await asked(env, "anna", "quarantine", [*alert_ids[:2], case.id])
        assert "Runs on 3 targets" in text_of(question)
        await env.client.request("PATCH", f"/api/alert/{alert_ids[0]}", {"tlp": 3, "title": "Raised to red"})
        await env.client.request("DELETE", f"/api/case/{case.id}")
        await confirm(env, "anna", question)
        told = text_of(await env.until("anna", topmost(ids.NOTICE_VIEW, "One message tells")))
        assert f"{alert_ids[0]}: " in told
        assert "Raised to red" not in told
        assert (await ran(env, alert_ids))[:2] == [0, 1]
        message = await shown(env, "*Quarantine* on 3 targets")
        await env["anna"].click(SOC, message["ts"], action_id=ids.BULK_DETAILS)
        each = text_of(fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "that you may not see"))))
        assert "Raised to red" not in each
        assert alert_ids[0] not in each

        question = await asked(env, "anna", "tell", alert_ids[1:])
        before = await ran(env, alert_ids)
        await env.core.core.people.set_profile("anna", "read-only")
        await confirm(env, "anna", question)
        await env.told("anna", "You can't run responders.")
        assert await ran(env, alert_ids) == before
        assert len(bulk_messages(env["anna"].live_view)) == 1


async def test_a_refusal_does_not_name_what_one_may_not_see(tmp_path: Path) -> None:
    async with feature_environment(
        tmp_path, protect=ProtectSection(artifacts=["203.0.113.66", "dc01", "10.0.0.0/8"])
    ) as env:
        hidden = [{"dataType": "ip", "data": "203.0.113.66", "tlp": 3}]
        alert_ids = [*await alerts(env, 1), *await alerts(env, 1, artifacts=hidden)]
        question = await asked(env, "anna", "tell", alert_ids)
        await confirm(env, "anna", question)
        told = await env.until("anna", topmost(ids.NOTICE_VIEW, "1 started; 1 refused."))
        await env["anna"].command(SOC, f"/responder list {alert_ids[1]}")
        listed = await env.until("anna", topmost(ids.NOTICE_VIEW, "Can't run ("))
        for view in (question, told, listed):
            assert "is protected ([withheld])" in text_of(view)
            assert not re.search(r"\b113\b", text_of(view))
        seen = [{"dataType": "hostname", "data": "dc01"}, {"dataType": "ip", "data": "10.0.0.5"}]
        alert = await env.create_alert(sourceRef="seen", artifacts=seen)
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        await env.until(
            "anna", topmost(ids.NOTICE_VIEW, "*Tell*: dc01 is protected; 10[.]0[.]0[.]5 is protected (10.0.0.0/8);")
        )
        await env["anna"].command(SOC, f"/responder run wait {alert.artifacts[1].id}")
        await env.told("anna", "can't run on ip 10[.]0[.]0[.]5: 10[.]0[.]0[.]5 is protected (10.0.0.0/8);")


async def test_two_people_at_once_on_two_bots_run_it_once_on_each(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert_ids = await alerts(env, 3)
        questions = {name: await asked(env, name, "isolate", alert_ids) for name in ("anna", "ben")}
        await asyncio.gather(*(confirm(env, name, question) for name, question in questions.items() for _ in range(3)))
        told = [await env.until(name, topmost(ids.NOTICE_VIEW, "One message tells")) for name in questions]
        words = sorted(view["blocks"][0]["text"]["text"].partition("<")[0] for view in told)
        assert words == ["3 refused.", "3 wait for approval, answer by "]
        assert await ran(env, alert_ids) == [1, 1, 1]
        await env.until("anna", lambda view: len(bulk_messages(view)) == 2 or None)
        await shown(env, "nothing was run, 3 refused")
        await shown(env, "3 wait for approval")


async def test_core_that_loses_its_answers_or_is_away_runs_nothing_twice(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with feature_environment(tmp_path, core_proxy=proxy.serve) as env:
        alert_ids = await alerts(env, 2)
        question = await asked(env, "anna", "isolate", alert_ids)
        proxy.drop_responses("POST /api/connector/engine/action/_bulk", 2)
        await confirm(env, "anna", question)
        await env.until("anna", topmost(ids.NOTICE_VIEW, "2 wait for approval, answer by "))
        message = await shown(env, "2 wait for approval")
        # A vote whose answer is lost is not repeated, and is told as that.
        await env["ben"].click(SOC, message["ts"], action_id=ids.BULK_REVIEW)
        view = await env.until("ben", topmost(ids.BULK_APPROVE_VIEW, "Deny all 2"))
        proxy.drop_responses("POST /api/connector/engine/action/_bulk", 1)
        await env["ben"].submit(view["id"], {})
        await env.told("ben", "your decision may not have been recorded")
        await shown(env, "2 of 2 succeeded")
        assert await ran(env, alert_ids) == [1, 1]
        assert len(bulk_messages(env["anna"].live_view)) == 1


async def test_a_channel_that_is_shared_or_archived_meanwhile_shows_nothing_of_the_objects(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await env["anna"].command(OPEN, f"/responder run vendor ban {' '.join(alert_ids)} reason=C2 list=inbound")
        question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Each is checked")))
        await confirm(env, "anna", question)
        await env.until("anna", lambda view: "2 wait for approval" in str(view.messages(OPEN)) or None)
        message = await shown(env, "2 wait for approval")  # also where the alerts are shown
        for body in (*posted_to(env, OPEN), *posted_to(env, SOC)):
            if "wait for approval" in str(body):
                assert TITLE not in str(body)
                assert not any(one in str(body) for one in alert_ids)
                assert "inbound" not in str(body)
        env.emulator.share(SOC)
        await env.until("anna", lambda view: TITLE not in str(view.messages(SOC)) or None)
        env.emulator.archive(SOC)
        bulk = (await env.client.actions("alert", alert_ids[0]))[0].bulk or ""
        await env.client.deny_bulk(bulk)
        await env.until("anna", lambda view: "nothing was run, 2 denied" in str(view.messages(OPEN)) or None)
        assert "2 wait for approval" in str(env["anna"].live_view.message(SOC, message["ts"]))  # Slack takes no update


@pytest.mark.parametrize("command", ["run fail {0} {0}", "run fail {0} ~{1}"])
async def test_the_same_id_twice_is_one(tmp_path: Path, command: str) -> None:
    async with feature_environment(tmp_path) as env:
        (alert_id,) = await alerts(env, 1)
        await env["anna"].command(SOC, f"/responder {command.format(alert_id, alert_id[1:].zfill(9))}")
        await env.until("anna", lambda view: "The firewall said no" in str(view.messages(SOC)) or None)
        (action,) = await env.client.actions("alert", alert_id)
        assert action.bulk is None


async def test_who_has_lost_access_reads_nothing_more_of_a_bulk(tmp_path: Path) -> None:
    clock = ManualClock()
    async with feature_environment(tmp_path, clock_ms=clock) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        direct = await env["lea"].dm(env.emulator.bot_user_id)
        await env.until("lea", lambda view: "2 wait for approval" in str(view.messages(direct)) or None)
        await env.core.core.people.unlink("lea")
        clock.advance(11_000)  # answers of who somebody is are kept for 10 s
        await env.client.deny_bulk((await env.client.actions("alert", alert_ids[0]))[0].bulk or "")
        await shown(env, "2 denied")
        await all_sent(env.bot)
        (told,) = await env["lea"].messages(direct)
        assert "2 wait for approval" in text_of(told)


async def test_where_slack_opens_no_window_nobody_is_offered_to_approve_what_they_cannot_read(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        await start(env, "anna", "isolate", await alerts(env, 2))
        message = await shown(env, "2 wait for approval")
        env.emulator.faults.error("views.open", "expired_trigger_id", times=2)
        await env["ben"].click(SOC, message["ts"], action_id=ids.BULK_REVIEW)
        told = await env.told("ben", "Press *Review* again")
        assert "Deny all" not in text_of(told)
        await env["ben"].click(SOC, message["ts"], action_id=ids.BULK_REVIEW)
        await env.until("ben", topmost(ids.BULK_APPROVE_VIEW, "Deny all 2"))


async def test_who_may_only_read_can_neither_start_nor_decide_with_a_copied_button(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "2 wait for approval")
        await env["ben"].click(SOC, message["ts"], action_id=ids.BULK_REVIEW)
        await env.until("ben", topmost(ids.BULK_APPROVE_VIEW, "Deny all 2"))
        await env.core.core.people.set_profile("ben", "read-only")
        view = env["ben"].live_view.modal or {}
        await env["ben"].submit(view["id"], {})
        await env.told("ben", "You can't run responders.")
        await env["eve"].click(SOC, message["ts"], action_id=ids.BULK_DETAILS)  # to read is allowed
        each = text_of(fine(await env.until("eve", topmost(ids.NOTICE_VIEW, "waits"))))
        assert all(one in each for one in alert_ids)
        bulk = await env.client.bulk((await env.client.actions("alert", alert_ids[0]))[0].bulk or "")
        assert bulk.awaiting == 2
