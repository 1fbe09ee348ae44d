"""Several replicas of the bot, and several people at once."""

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
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import SOC, FeatureEnvironment, bot_settings, card_in, feature_environment, text_of
from tests.bot.features.test_runs import choose, menu_block
from tests.bot.outbox.harness import until
from tests.bot.running import UNLIMITED, BotEnvironment, find_card, running_bot


@asynccontextmanager
async def another(env: FeatureEnvironment) -> AsyncIterator[Bot]:
    """A second bot on the same database."""
    key = await env.core.core.access.add("second", "service")
    settings = bot_settings(env.folder, env.emulator, env.core.url, key)
    async with CoreClient(env.core.url, key) as core, running(settings, core, clock_ms=now_ms) as bot:
        await env.emulator.wait_connected(2)
        yield bot


@asynccontextmanager
async def slow_replica(env: BotEnvironment, proxy: CoreProxy) -> AsyncIterator[Bot]:
    """A second bot that reaches core through this proxy."""
    async with (
        proxy.serve(env.core.url) as address,
        CoreClient(address, env.service_key) as core,
        running(env.settings, core, clock_ms=now_ms, rate_limiter=RateLimiter(**UNLIMITED)) as bot,
    ):
        yield bot


def sees_collision(view: EmulatorView) -> bool:
    return any("Nothing new was started" in text_of(m) for m in view.ephemerals(SOC))


async def test_simultaneous_clicks_on_two_replicas_start_one_run(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert = await env.create_alert()
        card = await env.card("anna", alert)
        await asyncio.gather(choose(env, "anna", card, "Wait"), choose(env, "ben", card, "Wait"))
        await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Wait_1_0* running"))
        people = [env["anna"], env["ben"]]
        waiting = [asyncio.create_task(person.until(sees_collision)) for person in people]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        assert len(done) == 1
        (action,) = await env.admin.actions("alert", alert.id)
        first = action.created_by.partition("@")[0]
        second = "ben" if first == "anna" else "anna"
        assert f"{first} started it" in text_of(await env.ephemeral(second, "Nothing new was started"))
        await env.release_responder()
        await env.ended_run(alert)


async def test_replicas_resolve_each_others_buttons_and_post_nothing_twice(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert = await env.create_alert()
        before = ""
        for _ in range(4):  # connections take turns
            card = await env.card("anna", alert)
            await env["anna"].click(SOC, card["ts"], action_id=ids.DETAILS)
            await env.ephemeral("anna", "host web-3 beacons")
            await choose(env, "ben", card, "Secret")
            await env.ephemeral("ben", "Nothing was run.")
            before = menu_block(card)

            def changed(view: EmulatorView, before: str = before) -> bool:
                now = card_in(view, SOC, alert.id)
                return now is not None and menu_block(now) != before

            await env["anna"].until(changed)
        assert len([m for m in await env["anna"].messages(SOC) if not m.get("ephemeral")]) == 1
        assert await env.admin.actions("alert", alert.id) == []


async def test_another_replica_takes_over_when_the_leader_ends(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, env.service_key) as core:
        await env.bot.leading.wait()
        async with running(env.settings, core, clock_ms=now_ms) as second:
            await env.bot.close()
            await second.leading.wait()
            anna = await env.person()
            assert await env.card(anna, await env.post_alert())


async def test_late_write_of_older_state_does_not_replace_newer_state(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path) as env, slow_replica(env, proxy) as other:
        anna = await env.person()
        alert_id = await env.post_alert()
        await env.card(anna, alert_id)
        proxy.hold("GET /api/connector/engine/action/alert/", response=True)
        late = asyncio.create_task(other.notifier.refresh(alert_id))
        await proxy.request_held.wait()
        await env.client.mark_alert_read(alert_id)
        await anna.until(lambda view: "Marked as read" in str(find_card(view.messages(SOC), alert_id)))
        proxy.release()
        await late
        await until(lambda: env.bot.outbox.waiting() == 0)
        assert "Marked as read" in str(find_card(await anna.messages(SOC), alert_id))


async def test_reset_menu_stays_reset_when_older_state_of_its_card_comes_late(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env, slow_replica(env, CoreProxy()) as other:
        anna = await env.person()
        first, second = await env.post_alert(), await env.post_alert(sourceRef="eve-2")
        chosen = menu_block(await env.card(anna, first))
        await env.card(anna, second)
        proxy.hold("GET /api/event")
        await env.client.mark_alert_read(first)
        await proxy.request_held.wait()
        await env.client.mark_alert_unread(first)  # comes with the next in one page of the feed
        await env.client.mark_alert_read(second)
        proxy.release()
        proxy.hold(f"GET /api/alert/{second}")
        await proxy.request_held.wait()  # the first card was made, and is not yet written
        await other.outbox.buttons.rotate(chosen.removeprefix(ids.MENU_BLOCK))
        await other.notifier.refresh(first)
        await anna.until(lambda view: menu_block(find_card(view.messages(SOC), first) or {}) != chosen)
        proxy.release()
        await anna.until(lambda view: "Marked as read" in str(find_card(view.messages(SOC), second)))
        await until(lambda: env.bot.outbox.waiting() == 0)
        assert menu_block(find_card(await anna.messages(SOC), first) or {}) != chosen
