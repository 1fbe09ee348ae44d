"""Runs on several targets while something else changes: rights, levels, channels, core, and other people."""

import asyncio
import re
from pathlib import Path

from core.settings import ProtectSection
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.bulks.bulk import alerts, asked, bulk_messages, posted_to, shown, start
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.people import card_of, message_in, modal, text_of
from tests.bot.running import OPEN, SOC, another

TITLE = "Beacon to known C2"


async def ran(env: FeatureEnvironment, object_ids: list[str]) -> list[int]:
    return [len(await env.client.actions("alert", one)) for one in object_ids]


async def test_what_changes_between_the_question_and_the_click_counts(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        case = await env.client.create_case_from_alert(alert_ids[2])
        question = await asked(env, "anna", "quarantine", [*alert_ids[:2], case.id])
        assert "Runs on 3 targets" in text_of(question)
        await env.client.request("PATCH", f"/api/alert/{alert_ids[0]}", {"tlp": 3, "title": "Raised to red"})
        await env.client.request("DELETE", f"/api/case/{case.id}")
        await env["anna"].presses("Ask to quarantine (3)", question)
        told = text_of(await env["anna"].sees(modal(f"One message in <#{SOC}> tells how it goes.")))
        assert f"{alert_ids[0]}: " in told
        assert "Raised to red" not in told
        assert (await ran(env, alert_ids))[:2] == [0, 1]
        message = await shown(env, "*Quarantine* on 3 targets")
        await env["anna"].presses("Show each", message)
        each = text_of(await env["anna"].sees(modal("that you may not see")))
        assert "Raised to red" not in each
        assert alert_ids[0] not in each

        question = await asked(env, "anna", "tell", alert_ids[1:])
        before = await ran(env, alert_ids)
        await env.core.core.people.set_profile("anna", "read-only")
        await env["anna"].presses("Tell (2)", question)
        await env["anna"].reads("You can't run responders or decide on runs.")
        assert await ran(env, alert_ids) == before
        assert len(bulk_messages(env["anna"].live_view)) == 1


async def test_a_refusal_does_not_name_what_one_may_not_see(tmp_path: Path) -> None:
    async with feature_environment(
        tmp_path, protect=ProtectSection(artifacts=["203.0.113.66", "dc01", "10.0.0.0/8"])
    ) as env:
        hidden = [{"dataType": "ip", "data": "203.0.113.66", "tlp": 3}]
        alert_ids = [*await alerts(env, 1), *await alerts(env, 1, artifacts=hidden)]
        question = await asked(env, "anna", "tell", alert_ids)
        await env["anna"].presses("Tell (1)", question)
        told = await env["anna"].sees(modal("Started *Tell* on ", "*Refused on 1 target*"))
        await env["anna"].command(SOC, f"/responder list {alert_ids[1]}")
        listed = await env["anna"].sees(modal("Can't run ("))
        for view in (question, told, listed):
            assert "is protected ([withheld])" in text_of(view)
            assert not re.search(r"\b113\b", text_of(view))
        seen = [{"dataType": "hostname", "data": "dc01"}, {"dataType": "ip", "data": "10.0.0.5"}]
        alert = await env.create_alert(sourceRef="seen", artifacts=seen)
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        await env["anna"].sees(modal("*Tell*: dc01 is protected; 10[.]0[.]0[.]5 is protected (10.0.0.0/8);"))
        await env["anna"].command(SOC, f"/responder run wait {alert.artifacts[1].id}")
        await env["anna"].reads(
            "can't run on ip 10[.]0[.]0[.]5: 10[.]0[.]0[.]5 is protected (10.0.0.0/8). Nothing was run."
        )


async def test_two_people_at_once_on_two_bots_run_it_once_on_each(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert_ids = await alerts(env, 3)
        questions = {name: await asked(env, name, "isolate", alert_ids) for name in ("anna", "ben")}
        presses = [env[name].presses("Ask to isolate (3)", question) for name, question in questions.items()]
        await asyncio.gather(*presses)
        told = [await env[name].sees(modal(f"One message in <#{SOC}> tells how it goes.")) for name in questions]
        words = (
            ("Nothing was asked for or started.", "*Refused on 3 targets*"),
            ("; 1 approval, answer by ", "Withdraw all"),
        )
        said = [[all(word in text_of(view) for word in each) for each in words] for view in told]
        assert sorted(said) == [[False, True], [True, False]]
        assert await ran(env, alert_ids) == [1, 1, 1]
        await env["anna"].sees(lambda view: len(bulk_messages(view)) == 2)
        await shown(env, "nothing was run, 3 refused")
        await shown(env, "3 wait for approval")


async def test_core_that_loses_its_answers_or_is_away_runs_nothing_twice(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with feature_environment(tmp_path, core_proxy=proxy.serve) as env:
        alert_ids = await alerts(env, 2)
        question = await asked(env, "anna", "isolate", alert_ids)
        proxy.drop_responses("POST /api/connector/engine/action/_bulk", 2)
        await env["anna"].presses("Ask to isolate (2)", question)
        await env["anna"].sees(modal("*Isolate* on ", "; 1 approval, answer by "))
        message = await shown(env, "2 wait for approval")
        # A vote whose answer is lost is not repeated, and is told as that.
        await env["ben"].presses("Review", message)
        view = await env["ben"].sees(modal(" on 2 targets"))
        proxy.drop_responses("POST /api/connector/engine/action/_bulk", 1)
        await env["ben"].submits(view)
        await env["ben"].reads("your decision may not have been recorded")
        await shown(env, "2 of 2 succeeded")
        assert await ran(env, alert_ids) == [1, 1]
        assert len(bulk_messages(env["anna"].live_view)) == 1


async def test_a_channel_that_is_shared_or_archived_meanwhile_shows_nothing_of_the_objects(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await env["anna"].command(OPEN, f"/responder run vendor ban {' '.join(alert_ids)} reason=C2 list=inbound")
        question = await env["anna"].sees(modal("Each is checked"))
        await env["anna"].presses("Ask for approval (2)", question)
        await env["anna"].sees(message_in(OPEN, "2 wait for approval"))
        message = await shown(env, "2 wait for approval")  # also where the alerts are shown
        for body in (*posted_to(env, OPEN), *posted_to(env, SOC)):
            if "wait for approval" in str(body):
                assert "inbound" not in str(body)
        assert TITLE in text_of(message)
        env.emulator.share(SOC)
        await env["anna"].sees(lambda view: TITLE not in str(view.messages(SOC)))
        env.emulator.archive(SOC)
        bulk = (await env.client.actions("alert", alert_ids[0]))[0].bulk or ""
        await env.client.deny_bulk(bulk)
        await env["anna"].sees(message_in(OPEN, "nothing was run, 2 denied"))
        assert "2 wait for approval" in str(env["anna"].live_view.message(SOC, message["ts"]))  # Slack takes no update


async def test_the_same_id_twice_and_an_alert_with_its_observable_are_one(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        for number, named in enumerate(("{0} {0}", "{0} ~{1}", "{0} {2}")):
            alert = await env.create_alert(sourceRef=f"{number}")
            (artifact,) = alert.artifacts
            given = named.format(alert.id, alert.id[1:].zfill(9), artifact.id)
            await env["anna"].command(SOC, f"/responder run fail {given}")
            await env["anna"].sees(card_of(alert, "The firewall said no"))
            found = (env.client.actions("case_artifact", artifact.id), env.client.actions("alert", alert.id))
            (action,) = [run for runs in await asyncio.gather(*found) for run in runs]
            assert action.bulk is None


async def test_who_has_lost_access_reads_nothing_more_of_a_bulk(tmp_path: Path) -> None:
    clock = ManualClock()
    async with feature_environment(tmp_path, clock_ms=clock) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        direct = await env["lea"].dm(env.emulator.bot_user_id)
        await env["lea"].sees(message_in(direct, "2 wait for approval"))
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
        await env["ben"].presses("Review", message)
        told = await env["ben"].reads("Press *Review* again")
        assert " on 2 targets" not in text_of(told)
        await env["ben"].presses("Review", message)
        await env["ben"].sees(modal(" on 2 targets"))


async def test_who_may_only_read_can_neither_start_nor_decide_with_a_copied_button(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        message = await shown(env, "2 wait for approval")
        await env["ben"].presses("Review", message)
        await env["ben"].sees(modal(" on 2 targets"))
        await env.core.core.people.set_profile("ben", "read-only")
        view = env["ben"].live_view.modal or {}
        await env["ben"].submits(view)
        await env["ben"].sees(modal("*This has changed", "You have no right to decide on runs; an administrator"))
        await env["eve"].presses("Show each", message)  # to read is allowed
        each = text_of(await env["eve"].sees(modal("needs 1 approval")))
        assert all(one in each for one in alert_ids)
        bulk = await env.client.bulk((await env.client.actions("alert", alert_ids[0]))[0].bulk or "")
        assert bulk.awaiting == 2
