"""What one run costs that is chosen in a menu: calls from the bot to core, and commits."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import MINUTE_MS, now_ms
from core.models import BulkInput, RunTarget
from core.settings import EngineSection
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import feature_environment
from tests.bot.outbox.harness import all_sent, until_read
from tests.bot.people import card_of, direct_message, find_card, menu_block, reply_to, updated
from tests.bot.running import ANNA, CHANNELS, OPEN, SOC, BotEnvironment, calls_to_core, running_bot
from tests.responder_folders import write_responder

PERSON = 'method="GET",route="/api/user/by-slack/{team}/{user}",status="200"'
PATCH = 'method="PATCH",route="/api/alert/{id}",status="200"'
DOCUMENT = 'method="GET",route="/api/document",status="200"'
RUN = 'method="POST",route="/api/connector/engine/action",status="201"'
PROGRAM = """
import json, sys
from pathlib import Path
report = {"success": True, "full": {"message": "Looked it up."}, "operations": [{"type": "MarkAlertAsRead"}]}
(Path(sys.argv[1]) / "output" / "output.json").write_text(json.dumps(report))
"""
MAX_COMMITS = 11
"""Accept the click, let the next card's menu forget what was chosen, record and dispatch the run, note who waits for
the card, end the click; note that it runs, and its end; store what the messages say, update the cards, begin the
replies, note that they are sent."""


async def test_a_run_costs_no_more_than_its_budget(tmp_path: Path) -> None:
    opened, chosen, commits = await cost_of_a_run(tmp_path, [SOC, OPEN])
    assert opened == {PERSON: 1, DOCUMENT: 1}
    assert chosen == {PERSON: 1, DOCUMENT: 1, RUN: 1}
    assert commits <= MAX_COMMITS


@pytest.mark.slow
async def test_another_channel_adds_no_call(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert (await cost_of_a_run(one, [SOC]))[:2] == (await cost_of_a_run(two, [SOC, OPEN]))[:2]


async def cost_of_a_run(folder: Path, channels: list[str]) -> tuple[Counter[str], Counter[str], int]:
    """Calls to core by method and route when a menu opens, and when its responder is chosen minutes later until all is
    shown; commits of core and the bot for the latter."""
    sections, proxy, passed_ms = [section for section in CHANNELS if section["id"] in channels], CoreProxy(), [0]
    write_responder(folder / "responders", "Look", PROGRAM)
    engine = EngineSection(name="local", responders=(folder / "responders",))
    options = {"channels": sections, "core_proxy": proxy.serve, "clock_ms": lambda: now_ms() + passed_ms[0]}
    async with running_bot(folder, engine=(engine,), **options) as env:  # type: ignore[arg-type]
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        for channel in channels:
            await anna.sees(card_of(alert_id, channel=channel))
        await all_sent(env.bot)
        proxy.hold("GET /api/event", response=True)
        await anna.sees(card_of(await env.post_alert(sourceRef="another")))  # the answer to the next request is held
        await all_sent(env.bot)
        counts, card = [await calls_to_core(env)], await anna.sees(card_of(alert_id))
        menu = {"action_id": ids.MENU, "block_id": menu_block(card)}
        (group,) = await anna.options(SOC, card["ts"], query="look", **menu)
        counts.append(await calls_to_core(env))
        passed_ms[0] += MINUTE_MS
        before = commits_of(env, folder)
        await anna.click(SOC, card["ts"], value=group["options"][0]["value"], **menu)
        ended = "SELECT 1 FROM action WHERE status = 'Success'"
        await until_read(lambda: env.core.core.database.fetch_in_background(ended), lambda rows: rows)
        proxy.release()  # so that the run counts as a quick one on any machine
        for channel in channels:
            await anna.until(partial(shows_the_end, alert_id=alert_id, channel=channel))
        await all_sent(env.bot)
        commits = commits_of(env, folder) - before
        counts.append(await calls_to_core(env))
        return counts[1] - counts[0], counts[2] - counts[1], commits


async def test_a_task_reads_no_alert_of_its_case_and_an_alert_that_hides_no_more_one_document(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert, card = await env.alert_and_card("anna")
        case_id = (await env.client.create_case_from_alert(alert.id)).id
        task = await env.client.add_task(case_id, {"title": "Call the owner"})
        await env.client.add_log(task.id, {"message": "Called."})
        await env.client.run({"responderId": "Quarantine_1_0", "objectType": "case", "objectId": case_id})
        await env["anna"].sees(reply_to(card, "Called."))
        await env["anna"].sees(reply_to(card, "Quarantine?", alert.title))
        await all_followed(env)
        before = await calls_to_core(env)
        await env.client.add_task(case_id, {"title": "Restore it"})
        await env["anna"].sees(reply_to(card, "0 of 2 tasks done"))
        assert (await calls_to_core(env) - before)[DOCUMENT] == 1  # of what its messages are about
        await all_followed(env)
        before, edits = await calls_to_core(env), edited(env)
        await env.client.request("PATCH", f"/api/alert/{alert.id}", {"title": "Another title"})
        await env["anna"].sees(updated(card, "Another title"))
        await all_followed(env)
        assert await calls_to_core(env) - before == {PATCH: 1, DOCUMENT: 1}
        assert edited(env) - edits == {card["ts"]: 1}


async def test_a_change_of_an_alert_that_hides_what_it_hid_reads_no_run_of_a_bulk_that_is_over(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alerts = [await env.create_alert(sourceRef=str(number)) for number in range(3)]
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").run_bulk(BulkInput(responder_id="Fail_1_0", targets=targets))
        told = await env["anna"].sees(direct_message(f"Failed: Fail on {alerts[0].id} (ET MALWARE"))
        await all_followed(env)
        before = await calls_to_core(env)
        await env.client.request("PATCH", f"/api/alert/{alerts[0].id}", {"title": "Another title"})
        await all_followed(env)
        assert await calls_to_core(env) - before == {PATCH: 1}
        await env.client.request("PATCH", f"/api/alert/{alerts[0].id}", {"tlp": 3})
        await env["anna"].sees(updated(told, f"Failed: Fail on {alerts[1].id} (ET MALWARE"))


async def all_followed(env: BotEnvironment) -> None:
    """Wait until the bot has sent all that core's events say by now."""
    last = (await env.client.events(None, wait_s=0)).last
    await until_read(env.bot.outbox.cursor, lambda cursor: cursor == last)
    await all_sent(env.bot)


def edited(env: BotEnvironment) -> Counter[str]:
    """How often each message was edited so far."""
    return Counter(body["ts"] for _, what, body, _ in env.emulator.traffic if what == "chat.update")


def shows_the_end(view: EmulatorView, alert_id: str, channel: str) -> bool:
    """Whether the card and its thread say that the run is done."""
    card = find_card(view.messages(channel), alert_id)
    return card is not None and "done" in str(card) and "done" in str(view.thread(channel, card["ts"])[1:])


def commits_of(env: BotEnvironment, folder: Path) -> int:
    """Apart from those that renew a lease."""
    renewed = sum(
        stores.rows(folder / "core.db", f"SELECT sum(beat) FROM {table}")[0][0]  # noqa: S608
        for table in ("owner", "replica")
    )
    return env.core.core.database.commits + env.bot.outbox.commits - int(renewed)
