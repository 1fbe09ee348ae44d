"""Core's feed makes the bot post cards where the settings say, and replies in their threads."""

from pathlib import Path

from bot.app import running
from bot.notifier.changes import FeedChanges, HeldEvents
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import Document, Event, EventPage, RunInput
from core.settings import ResponderSection
from tests.bot.core_proxy import CoreProxy
from tests.bot.outbox.harness import until, until_read
from tests.bot.people import card_of, find_card, reply_to
from tests.bot.running import ANNA, OPEN, RED, SOC, BotEnvironment, running_bot

EXTRACT = "ResponderBot_ExtractIndicators_1_0"
WEBHOOK = "ResponderBot_Webhook_1_0"
NOBODY = {"url": "http://127.0.0.1:9/"}


def event(seq: int, type: str, object_id: str, root_id: str, object_type: str = "Action") -> Event:
    return Event(seq=seq, at=seq, type=type, object_type=object_type, object_id=object_id, root_id=root_id, user="a@b")


def test_changes_name_each_object_once() -> None:
    changes = FeedChanges.of(
        [
            event(1, "alert.created", "~1", "~1", "Alert"),
            event(2, "action.created", "~2", "~1"),
            event(3, "action.updated", "~2", "~1"),
            event(4, "action.ended", "~2", "~1"),
            event(5, "case_task_log.created", "~9", "~7", "Log"),
            event(6, "case_template.created", "~8", "~8", "CaseTemplate"),
        ]
    )
    assert changes == FeedChanges(
        created_alerts=("~1",),
        roots=("~1", "~7"),
        actions=(("~2", "~1"),),
        ended=frozenset({"~2"}),
        changed=frozenset({"~1", "~7", "~8"}),
        logs=(("~9", "~7"),),
    )


def test_a_document_of_two_pages_is_as_new_as_its_older_part() -> None:
    held = HeldEvents()
    for last in (5, 9):
        held.add(EventPage(events=[], last=last, as_of=last, database="", documents=[Document(id="~1")]))
    assert held.documents["~1"].as_of == 5  # what was rendered from a newer one must not go back


async def test_an_alert_goes_to_the_channels_whose_route_takes_it(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        low = await scene.post_alert(severity=1, sourceRef="low")
        high = await scene.post_alert(severity=4, sourceRef="high")
        await anna.sees(card_of(high, channel=RED))
        await anna.sees(card_of(low, channel=OPEN))
        assert find_card(await anna.messages(RED), low) is None


async def test_a_log_of_a_case_without_an_alert_is_posted_in_the_routed_channel(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene:
        anna = await scene.person(ANNA)
        case = await scene.client.create_case({"title": "Lost laptop", "description": "Train, this morning."})
        log_id = await log_of(scene, case.id)
        await anna.sees(reply_to(await anna.sees(card_of(case.id)), log_id))


async def test_news_of_a_case_reaches_the_thread_of_an_alert_that_is_as_new(tmp_path: Path) -> None:
    proxy, responder = CoreProxy(), {WEBHOOK: ResponderSection(config=NOBODY)}
    async with running_bot(tmp_path, responder=responder, core_proxy=proxy.serve) as scene:
        anna = await scene.person(ANNA)
        await hold_feed(scene, proxy)
        await anna.sees(card_of(await scene.post_alert(sourceRef="before")))
        await proxy.request_held.wait()  # all that follows comes in one page
        older = (await scene.client.create_case({"title": "Beacons", "description": "All.", "severity": 1})).id
        merged, promoted = await scene.post_alert(sourceRef="merged"), await scene.post_alert(sourceRef="promoted")
        assert (await scene.core.send("POST", f"/api/alert/{merged}/merge/{older}")).status_code == 200
        wanted: list[tuple[str, str, str]] = []
        for alert_id, case_id in (merged, older), (promoted, (await scene.client.create_case_from_alert(promoted)).id):
            task = await scene.client.add_task(case_id, {"title": "Look"})
            log = await scene.client.add_log(task.id, {"message": "Seen at 198.51.100.7"})
            await scene.client.run(RunInput(responder_id=WEBHOOK, object_type="case_task", object_id=task.id))
            wanted.append((alert_id, log.id, task.id))
        open_ones = "SELECT 1 FROM action WHERE status <> 'Failure'"
        await until_read(lambda: scene.core.core.database.fetch_in_background(open_ones), lambda rows: not rows)
        proxy.release()
        for alert_id, *parts in wanted:
            card = await anna.sees(card_of(alert_id))
            for part in parts:
                await anna.sees(reply_to(card, part))


async def test_an_approval_is_requested_although_other_news_of_its_case_follows_at_once(tmp_path: Path) -> None:
    proxy, responder = CoreProxy(), {WEBHOOK: ResponderSection(config=NOBODY, approval=1)}
    async with running_bot(tmp_path, responder=responder, core_proxy=proxy.serve) as scene:
        anna, alert_id, card = await scene.first_card()
        case_id = (await scene.client.create_case_from_alert(alert_id)).id
        task = await scene.client.add_task(case_id, {"title": "Look"})
        await hold_feed(scene, proxy, response=True)
        await anna.sees(card_of(await scene.post_alert(sourceRef="before")))  # the answer to the next request is held
        await scene.client.run(RunInput(responder_id=WEBHOOK, object_type="case_task", object_id=task.id))
        await proxy.request_held.wait()
        await scene.client.add_task(case_id, {"title": "Tell"})  # in the page after that
        proxy.release()
        await anna.sees(reply_to(card, "Approve"))


async def test_the_end_of_a_run_does_not_wait_for_new_alerts_that_came_with_it(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as scene:
        anna, alert_id, _ = await scene.first_card()
        await hold_feed(scene, proxy)
        before = await scene.post_alert(sourceRef="before")
        await anna.sees(card_of(before))
        await proxy.request_held.wait()  # all that follows comes in one page
        others = [await scene.post_alert(sourceRef=f"other {number}") for number in range(5)]
        await scene.client.run(RunInput(responder_id=EXTRACT, object_type="alert", object_id=alert_id))
        ended = "SELECT 1 FROM action WHERE status = 'Success'"
        await until_read(lambda: scene.core.core.database.fetch_in_background(ended), lambda rows: rows)
        await scene.client.create_case_from_alert(before)
        proxy.release()
        proxy.hold("POST /api/case/task/_search")  # which the bot needs before the page as a whole can be shown
        await anna.sees(card_of(alert_id, "done"))
        await proxy.request_held.wait()
        assert find_card(await anna.messages(SOC), others[0]) is None
        proxy.release()
        for other in others:
            await anna.sees(card_of(other))


async def hold_feed(scene: BotEnvironment, proxy: CoreProxy, *, response: bool = False) -> None:
    """Let the bot's next request for the feed wait, once the one that follows all events is on its way."""
    last = (await scene.core.core.feed.page(None, 0)).last
    await until(lambda: proxy.followed == str(last))
    proxy.hold("GET /api/event", response=response)


async def log_of(scene: BotEnvironment, case_id: str) -> str:
    task = await scene.client.add_task(case_id, {"title": "Look"})
    return (await scene.client.add_log(task.id, {"message": "Seen at 198.51.100.7"})).id


async def test_after_a_gap_in_the_feed_recent_cards_are_rendered_again(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path) as scene:
        anna, alert_id, _ = await scene.first_card()
        await scene.bot.close()
        await scene.client.close_alerts([alert_id])
        await scene.core.prune_events(-1)
        proxy.hold("/api/document")
        async with (
            proxy.serve(scene.core.url) as url,
            CoreClient(url, scene.service_key) as core,
            running(scene.settings, core, clock_ms=now_ms),
        ):
            await proxy.request_held.wait()
            meanwhile = await scene.post_alert(sourceRef="meanwhile")
            proxy.release()
            await anna.sees(card_of(alert_id, "*closed* by"))
            await anna.sees(card_of(meanwhile))
