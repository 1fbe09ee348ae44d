"""What the Notifier does when core answers oddly, when much is asked at once, and when it breaks itself."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.app import running
from bot.identity import CACHE_MS
from bot.outbox.models import RefreshRequest
from core.client import CoreClient
from core.common import leases
from core.common.clock import now_ms
from core.models import RunInput
from core.settings import ResponderSection
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.outbox.harness import ManualClock, all_sent, until, until_read
from tests.bot.people import card_of, message_in, reply_to
from tests.bot.running import ANNA, CHANNELS, NINA, SOC, BotEnvironment, calls_to_core, running_bot

EXTRACT = "ResponderBot_ExtractIndicators_1_0"
DOCUMENTS = "/api/document"


def ids_of(request: web.Request) -> list[str]:
    return request.query["ids"].split(",") if request.path == DOCUMENTS else []


async def at_rest(env: BotEnvironment) -> None:
    """Wait until all events were followed, nobody waits to see anything, and all is sent."""
    last = (await env.core.core.feed.page(None, 0)).last
    await until_read(env.bot.outbox.cursor, lambda cursor: (cursor or 0) >= last)
    await until_read(lambda: env.bot.outbox.refresh_requests(1), lambda requests: not requests)
    await all_sent(env.bot)


def stored(env: BotEnvironment, sql: str) -> Any:
    """What a second connection to the database answers; it may write."""
    return stores.rows(env.settings.core.database, sql)


async def test_one_alert_that_core_fails_to_read_keeps_no_other_from_being_refreshed(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        bad, good = await env.post_alert(sourceRef="bad"), await env.post_alert(sourceRef="good")
        await anna.sees(card_of(bad))
        await anna.sees(card_of(good))
        await at_rest(env)
        stored(env, "UPDATE message SET digest = ''")  # so that what is rendered again is sent again
        proxy.replace(lambda request: web.Response(status=500) if bad in ids_of(request) else None)
        await env.bot.outbox.finish([RefreshRequest(bad), RefreshRequest(good), RefreshRequest("~999999999")])
        await at_rest(env)
        assert env.bot.notifier.problem == ""
        assert {root_id for (root_id,) in stored(env, "SELECT root_id FROM message WHERE digest = ''")} == {bad}


async def test_a_core_that_answers_no_document_is_told_by_doctor(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        _anna, alert_id, _ = await env.first_card()
        asked: list[str] = []

        def all_left(request: web.Request) -> web.Response | None:
            if not (ids := ids_of(request)):
                return None
            asked.extend(ids)
            body = {"asOf": 1, "database": "x", "documents": [], "missing": [], "left": ids}
            return web.json_response(body)

        proxy.replace(all_left)
        await env.bot.outbox.finish([RefreshRequest(alert_id)])
        await until(lambda: env.bot.notifier.problem)
        assert len(asked) < 10
        proxy.release()
        await at_rest(env)


async def test_what_does_not_fit_into_one_answer_is_not_taken_for_deleted(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        case_id = (await env.client.create_case({"title": "Many logs", "description": "d", "severity": 4})).id
        task = await env.client.add_task(case_id, {"title": "Look"})
        long = "x" * 900_000  # five of these are more than an answer of core's may have
        logs = [(await env.client.add_log(task.id, {"message": f"Seen {n} {long}"})).id for n in range(6)]
        await at_rest(env)
        stored(env, "UPDATE message SET clearance = -3")
        env.bot.channels.refreshed.set()
        await until(lambda: not stored(env, "SELECT 1 FROM message WHERE clearance = -3"))
        await at_rest(env)
        (first,) = await anna.messages(SOC)
        shown = str([m["text"] for m in await anna.thread(SOC, first["ts"])])
        assert [log for log in logs if log not in shown] == []
        assert "no longer knows" not in shown


async def test_a_thousand_presses_of_refresh_render_an_alert_once(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        _anna, alert_id, _ = await env.first_card()
        await at_rest(env)
        before = await calls_to_core(env)
        await env.bot.outbox.finish([RefreshRequest(alert_id)] * 1_000)
        await at_rest(env)
        asked = await calls_to_core(env) - before
        assert sum(count for labels, count in asked.items() if DOCUMENTS in labels) == 1


async def test_an_internal_error_is_logged_and_told_and_stops_no_sending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_bot(tmp_path) as env:
        anna, _alert_id, _ = await env.first_card()
        await at_rest(env)
        stored(env, "UPDATE message SET key = replace(key, ':', ' '), clearance = -3")
        env.bot.channels.refreshed.set()
        await until(lambda: env.bot.notifier.problem)
        assert env.bot.leading.is_set()
        assert "internal error" in env.bot.notifier.problem
        (feed,) = [check for check in await env.bot.health() if check.name == "feed"]
        assert not feed.ok
        assert "work_failed" in capsys.readouterr().out
        stored(env, "UPDATE message SET key = replace(key, ' ', ':')")
        await until(lambda: not env.bot.notifier.problem)
        await anna.sees(card_of(await env.post_alert(sourceRef="after")))


async def test_requests_and_held_progress_survive_the_end_of_the_bot(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna, alert_id, _ = await env.first_card()
        await at_rest(env)
        stored(env, "UPDATE message SET digest = ''")
        proxy.hold(f"GET {DOCUMENTS}")
        await env.bot.outbox.finish([RefreshRequest(alert_id)])
        await proxy.request_held.wait()  # between the commit of the request and its rendering
        await env.client.run(RunInput(responder_id=EXTRACT, object_type="alert", object_id=alert_id))
        await env.bot.close()
        assert stored(env, "SELECT root_id FROM refresh") == [(alert_id,)]
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=now_ms),
        ):
            await until(lambda: not stored(env, "SELECT 1 FROM refresh"))
            await anna.sees(card_of(alert_id, "done"))
            await until(lambda: not stored(env, "SELECT 1 FROM message WHERE digest = ''"))


async def test_a_leader_that_loses_its_lease_within_a_page_leaves_it_to_the_next(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna = await env.person(ANNA)
        case_id = (await env.client.create_case({"title": "One", "description": "d", "severity": 4})).id
        task = await env.client.add_task(case_id, {"title": "Look"})
        log_id = (await env.client.add_log(task.id, {"message": "Seen"})).id
        card = await anna.sees(card_of(case_id))
        await anna.sees(reply_to(card, log_id))
        await at_rest(env)
        proxy.hold(f"GET {DOCUMENTS}")
        response = await env.core.send("PATCH", f"/api/case/{case_id}", {"tlp": 3})
        assert response.status_code == 200
        await proxy.request_held.wait()  # the page is being rendered
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=now_ms) as second,
        ):
            namespace, _, rest = leases.new_holder().partition(":")
            dead = f"{namespace}:{rest.partition(':')[0]}:1:dead"
            leader = "SELECT holder FROM replica WHERE leads = 1"
            first, now = stored(env, leader), [(dead,)]
            while now in (first, [(dead,)]):  # the first may be quicker to lead again
                stored(env, f"UPDATE replica SET holder = '{dead}' WHERE leads = 1")  # noqa: S608
                await until(lambda: stored(env, leader) != [(dead,)])
                now = stored(env, leader)
            await second.leading.wait()
            proxy.release()
            last = (await env.core.core.feed.page(None, 0)).last
            await until_read(second.outbox.cursor, lambda cursor: cursor == last)
            await all_sent(second)
            await until(lambda: not env.bot.leading.is_set())
            assert "Seen" not in str(await anna.thread(SOC, card["ts"]))


async def test_a_request_waits_while_slack_does_not_say_who_is_asked_and_not_once_it_refuses(tmp_path: Path) -> None:
    clock, responder = ManualClock(), {EXTRACT: ResponderSection(approval=1, ask=(NINA,))}
    async with running_bot(
        tmp_path, channels=[CHANNELS[0]], clock_ms=clock, link_by_email=True, responder=responder
    ) as env:
        await env.core.core.people.add("nina", "analyst")
        nina, alert_id, _ = await env.first_card(by=NINA)
        direct = await nina.dm(env.emulator.bot_user_id)
        run = RunInput(responder_id=EXTRACT, object_type="alert", object_id=alert_id, only_if_idle=False)
        requests = "SELECT count(*) FROM message WHERE key LIKE 'approval:%' AND status = 'shown'"
        clock.ahead_ms += CACHE_MS + 1
        env.emulator.faults.fail("users.info")
        await env.client.run(run)
        await until(lambda: stored(env, requests) == [(1,)])
        await nina.sees(message_in(direct, "HIGH: Extract Indicators?"))
        clock.ahead_ms += CACHE_MS + 1
        env.emulator.faults.error("users.info", "missing_scope")
        await env.client.run(run)
        await until(lambda: stored(env, requests) == [(2,)])
        await at_rest(env)
        assert len([m for m in await nina.messages(direct) if "HIGH: Extract Indicators?" in m["text"]]) == 1


@pytest.mark.slow
async def test_ends_of_old_runs_come_back_when_the_tlp_does(tmp_path: Path) -> None:
    async with running_bot(tmp_path, channels=[CHANNELS[0]]) as env:
        _anna, alert_id, _ = await env.first_card(tlp=0)
        run = RunInput(responder_id=EXTRACT, object_type="alert", object_id=alert_id, only_if_idle=False)
        for _ in range(33):  # more than a document has without being asked for them
            await env.client.run(run)
        ends = "FROM message WHERE key LIKE 'end:%'"
        await until(lambda: stored(env, f"SELECT count(*) {ends}") == [(33,)])
        for tlp in (3, 0):
            assert (await env.core.send("PATCH", f"/api/alert/{alert_id}", {"tlp": tlp})).status_code == 200
            await at_rest(env)
        assert stored(env, f"SELECT count(*) {ends} AND payload LIKE '%done%'") == [(33,)]
        assert "no longer knows" not in str(stored(env, "SELECT payload FROM message"))
