"""Several replicas of the bot, and several people at once: any replica takes a click, one run comes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.app import Bot, running
from bot.cards import ids
from bot.outbox import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import now_ms
from tests.bot.door import Door
from tests.bot.features.stage import SOC, Stage, bot_settings, card_in, said, stage
from tests.bot.features.test_running import choose, menu_block
from tests.bot.running import QUICK, Scene, find_card, running_bot
from tests.bot.test_delivery import until


@asynccontextmanager
async def another(scene: Stage) -> AsyncIterator[Bot]:
    """A second bot on the same database, with a connection of its own."""
    key = await scene.core.core.access.add("second", "service")
    settings = bot_settings(scene.folder, scene.workspace, scene.core.url, key)
    async with CoreClient(scene.core.url, key) as core, running(settings, core, clock_ms=now_ms) as bot:
        await scene.workspace.wait_connected(2)
        yield bot


@asynccontextmanager
async def slow_replica(scene: Scene, door: Door) -> AsyncIterator[Bot]:
    """A second bot that reaches core by this door."""
    async with (
        door.way(scene.core.url) as address,
        CoreClient(address, scene.service_key) as core,
        running(scene.settings, core, clock_ms=now_ms, pace=RateLimiter(**QUICK)) as bot,
    ):
        yield bot


def told_of_the_other(sight: EmulatorView) -> bool:
    return any("Nothing new was started" in said(m) for m in sight.ephemerals(SOC))


async def test_two_people_who_click_at_once_start_one_run_whichever_replica_they_meet(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene, another(scene):
        alert = await scene.alert()
        card = await scene.card("anna", alert)
        await asyncio.gather(choose(scene, "anna", card, "Wait"), choose(scene, "ben", card, "Wait"))
        await scene.seen("anna", lambda s: card_in(s, SOC, alert.id, "*Wait_1_0* running"))
        people = [scene["anna"], scene["ben"]]
        waiting = [asyncio.create_task(person.until(told_of_the_other)) for person in people]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        assert len(done) == 1
        (action,) = await scene.admin.actions("alert", alert.id)
        first = action.created_by.partition("@")[0]
        second = "ben" if first == "anna" else "anna"
        assert f"{first} started it" in said(await scene.told(second, "Nothing new was started"))
        await scene.go()
        await scene.ended(alert)


async def test_what_one_replica_painted_the_other_understands_and_nothing_stands_twice(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene, another(scene):
        alert = await scene.alert()
        before = ""
        for _ in range(4):  # connections take turns
            card = await scene.card("anna", alert)
            await scene["anna"].click(SOC, card["ts"], action_id=ids.DETAILS)
            await scene.told("anna", "host web-3 beacons")
            await choose(scene, "ben", card, "Secret")
            await scene.told("ben", "Nothing was run.")
            before = menu_block(card)

            def changed(sight: EmulatorView, before: str = before) -> bool:
                now = card_in(sight, SOC, alert.id)
                return now is not None and menu_block(now) != before

            await scene["anna"].until(changed)
        assert len([m for m in await scene["anna"].messages(SOC) if not m.get("ephemeral")]) == 1
        assert await scene.admin.actions("alert", alert.id) == []


async def test_when_the_one_that_leads_ends_the_other_takes_over(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as scene, CoreClient(scene.core.url, scene.service_key) as core:
        await scene.bot.leads.wait()
        async with running(scene.settings, core, clock_ms=now_ms) as second:
            await scene.bot.close()
            await second.leads.wait()
            anna = await scene.person()
            assert await scene.card(anna, await scene.post_alert())


async def test_who_reads_core_and_writes_late_does_not_undo_what_was_shown_since(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path) as scene, slow_replica(scene, door) as other:
        anna = await scene.person()
        alert_id = await scene.post_alert()
        await scene.card(anna, alert_id)
        door.shut("GET /api/connector/engine/action/alert/", after=True)
        late = asyncio.create_task(other.notifier.repaint(alert_id))
        await door.came.wait()
        await scene.client.mark_alert_read(alert_id)
        await anna.until(lambda sight: "Marked as read" in str(find_card(sight.messages(SOC), alert_id)))
        door.open()
        await late
        await until(lambda: scene.bot.outbox.waiting() == 0)
        assert "Marked as read" in str(find_card(await anna.messages(SOC), alert_id))


async def test_a_menu_that_asks_anew_goes_on_asking_when_an_older_state_of_its_card_comes_late(tmp_path: Path) -> None:
    door = Door()
    async with running_bot(tmp_path, way=door.way) as scene, slow_replica(scene, Door()) as other:
        anna = await scene.person()
        first, second = await scene.post_alert(), await scene.post_alert(sourceRef="eve-2")
        chosen = menu_block(await scene.card(anna, first))
        await scene.card(anna, second)
        door.shut("GET /api/event")
        await scene.client.mark_alert_read(first)
        await door.came.wait()
        await scene.client.mark_alert_unread(first)  # comes with the next in one page of the feed
        await scene.client.mark_alert_read(second)
        door.open()
        door.shut(f"GET /api/alert/{second}")
        await door.came.wait()  # the first card was made, and is not yet written
        await other.outbox.renew(chosen.removeprefix(ids.MENU_BLOCK))
        await other.notifier.repaint(first)
        await anna.until(lambda sight: menu_block(find_card(sight.messages(SOC), first) or {}) != chosen)
        door.open()
        await anna.until(lambda sight: "Marked as read" in str(find_card(sight.messages(SOC), second)))
        await until(lambda: scene.bot.outbox.waiting() == 0)
        assert menu_block(find_card(await anna.messages(SOC), first) or {}) != chosen
