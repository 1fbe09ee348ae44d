"""Several replicas of the bot, and several people at once."""

import asyncio
import os
import socket
from pathlib import Path

from bot.app import running
from bot.outbox.models import RefreshRequest
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import now_ms
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import feature_environment
from tests.bot.outbox.harness import until_read
from tests.bot.people import card_of, ephemeral, menu_block, text_of
from tests.bot.running import SOC, another, running_bot


def sees_collision(view: EmulatorView) -> bool:
    return "Nothing new was started" in str(view.modal)


async def test_simultaneous_clicks_on_two_replicas_start_one_run(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert = await env.create_alert()
        card = await env["anna"].sees(card_of(alert))
        await asyncio.gather(env["anna"].chooses("Wait", card), env["ben"].chooses("Wait", card))
        await env["anna"].sees(card_of(alert, "*Wait* running"))
        people = [env["anna"], env["ben"]]
        waiting = [asyncio.create_task(person.until(sees_collision)) for person in people]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        assert len(done) == 1
        (action,) = await env.client.actions("alert", alert.id)
        first = action.created_by.partition("@")[0]
        second = "ben" if first == "anna" else "anna"
        assert f"{first} started it" in text_of(await env[second].reads("Nothing new was started"))
        await env.release_responder()
        await env.ended_run(alert)


async def test_replicas_resolve_each_others_buttons_and_post_nothing_twice(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env, another(env):
        alert = await env.create_alert()
        for _ in range(4):  # connections take turns
            card = await env["anna"].sees(card_of(alert))
            await env["anna"].presses("Details", card)
            await env["anna"].reads("host web-3 beacons")
            await env["ben"].chooses("Secret", card)
            await env["ben"].reads("Nothing was run.")
            await env["anna"].sees(card_of(alert, without=menu_block(card)))
        assert len([m for m in await env["anna"].messages(SOC) if not m.get("ephemeral")]) == 1
        await env["lea"].command(SOC, "/responder doctor")
        own = f"{socket.gethostname()} (process {os.getpid()})"
        await env["lea"].sees(ephemeral(f"✓ *replicas*: {own} sends; {own} stands by"))
        assert await env.client.actions("alert", alert.id) == []


async def test_another_replica_takes_over_when_the_leader_ends(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, env.service_key) as core:
        await env.bot.leading.wait()
        async with running(env.settings, core, clock_ms=now_ms) as second:
            await env.bot.close()
            await second.leading.wait()
            anna = await env.person()
            assert await anna.sees(card_of(await env.post_alert()))


async def test_a_page_that_comes_late_does_not_bring_back_older_state(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with running_bot(tmp_path, core_proxy=proxy.serve) as env:
        anna, alert_id, _ = await env.first_card()
        proxy.hold("GET /api/event", response=True)
        await anna.sees(card_of(await env.post_alert(sourceRef="eve-2")))  # the answer to the next request is held
        await env.client.close_alerts([alert_id])
        await proxy.request_held.wait()  # the page says that the alert is read
        await env.client.mark_alert_unread(alert_id)
        await env.bot.outbox.finish([RefreshRequest(alert_id)])
        await until_read(lambda: env.bot.outbox.refresh_requests(1), lambda requests: not requests)
        cursor = await env.bot.outbox.cursor()
        proxy.release()
        proxy.hold("GET /api/event")  # the page that would mend it
        await until_read(env.bot.outbox.cursor, lambda found: found != cursor)
        assert "*closed*" not in str((await env.bot.outbox.cards(alert_id))[0].payload)
