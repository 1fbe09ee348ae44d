"""What replicas share: the inbox, the leader's lease, desired messages."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox.models import RefreshRequest
from bot.outbox.outbox import MessageOutbox
from bot.outbox.replicas import LEASE_MS
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.store import open_stores
from core.common.errors import ResponderBotError
from tests import stores
from tests.bot.outbox.harness import (
    SOC,
    cancelled,
    desired,
    look_on,
    outbox_environment,
    until,
    until_read,
)
from tests.bot.running import UNLIMITED
from tests.other_process import other_process


async def test_an_interaction_is_accepted_once_and_taken_over_until_completed(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        assert await env.outbox.inbox.accept("k1", {"n": 1}) is True
        assert await env.outbox.inbox.accept("k1", {"n": 1}) is False
        assert await env.outbox.inbox.take_over_abandoned() == []
        env.clock.ahead_ms = 61_000
        assert [left.payload for left in await env.outbox.inbox.take_over_abandoned()] == [{"n": 1}]
        await env.outbox.inbox.complete("k1")
        env.clock.ahead_ms = 200_000
        assert await env.outbox.inbox.take_over_abandoned() == []
        assert await env.outbox.inbox.accept("k1", {"n": 1}) is False


async def test_a_click_in_hand_is_not_taken_from_a_replica_that_has_no_lease_yet(tmp_path: Path) -> None:
    """It takes one once Slack has said where it is installed, and may be sent clicks before."""
    async with outbox_environment(tmp_path, send=False) as env:
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        await env.outbox.inbox.accept("k1", {"n": 1})
        assert await other.inbox.take_over_abandoned() == []
        env.clock.ahead_ms = 61_000  # and it has not come to it
        assert [left.key for left in await other.inbox.take_over_abandoned()] == ["k1"]
        await other.release()  # as it ends
        assert [left.key for left in await env.outbox.inbox.take_over_abandoned()] == ["k1"]
        await other.close()


@pytest.mark.sqlite
async def test_a_click_is_not_done_before_what_people_wait_to_see_is_stored(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        await env.outbox.inbox.accept("k1", {"n": 1})
        await env.outbox._store.transaction(lambda tx: tx.rows("PRAGMA busy_timeout = 100"))
        with closing(stores.hold(env.location, bots=True)), pytest.raises(ResponderBotError):
            await env.outbox.finish([RefreshRequest("~1")], key="k1")
        assert await env.outbox.inbox.holds("k1")


async def test_only_one_of_two_replicas_holds_the_lease(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        assert await env.outbox.replicas.acquire()
        await look_on(other, env.clock.advance)
        assert await other.replicas.acquire()
        assert not await env.outbox.replicas.acquire()
        await other.replicas.release()
        assert await env.outbox.replicas.acquire()
        await other.close()


async def test_hosts_whose_clocks_differ_do_not_take_the_lead_from_each_other(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        ahead = MessageOutbox(
            open_stores(env.location),
            AsyncWebClient(token="x"),
            lambda: env.clock() + 300_000,
            lease_clock=env.clock,
        )
        assert await env.outbox.replicas.acquire()
        await env.outbox.inbox.accept("k1", {"n": 1})
        assert await ahead.inbox.take_over_abandoned() == []
        for _ in range(8):
            env.clock.ahead_ms += LEASE_MS // 3
            assert not await ahead.replicas.acquire()
            assert await ahead.inbox.take_over_abandoned() == []
            assert await env.outbox.replicas.acquire()
        await ahead.close()


async def test_a_click_that_a_lost_replica_has_acknowledged_is_carried_out_by_another(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        assert await env.outbox.replicas.acquire()
        await env.outbox.inbox.accept("k1", {"n": 1})
        assert await other.inbox.take_over_abandoned() == []
        assert await env.outbox.inbox.holds("k1")
        await look_on(other, env.clock.advance)
        assert await other.replicas.acquire()
        assert [left.payload for left in await other.inbox.take_over_abandoned()] == [{"n": 1}]
        assert not await env.outbox.inbox.holds("k1")  # once it goes on, after having been frozen
        assert await other.inbox.holds("k1")
        lost, leader = (await other.replicas.all())[::-1]
        assert (leader.leads, leader.silent_ms, lost.leads, lost.silent_ms) == (True, 0, False, LEASE_MS)
        assert leader.name.endswith(f"(process {os.getpid()})")
        await other.close()


async def test_a_dead_replica_of_this_host_loses_lead_and_clicks_at_once(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        former = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        with other_process() as process:
            former.replicas.holder = former.replicas._leases.holder = process.holder
            await former.inbox.accept("before it has a lease", {"n": 1})
            assert await env.outbox.inbox.take_over_abandoned() == []
            assert await former.replicas.acquire()
            await former.inbox.accept("with one", {"n": 2})
            assert not await env.outbox.replicas.acquire()
            assert await env.outbox.inbox.take_over_abandoned() == []
            process.end()
            assert len(await env.outbox.inbox.take_over_abandoned()) == 2
            await former.inbox.accept("late", {"n": 3})
            assert await env.outbox.replicas.acquire()
            assert len(await env.outbox.replicas.all()) == 1
            assert [left.payload for left in await env.outbox.inbox.take_over_abandoned()] == [{"n": 3}]
        await former.close()


async def test_who_could_not_look_on_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        assert await env.outbox.replicas.acquire()
        assert not await other.replicas.acquire()
        await env.outbox.inbox.accept("k1", {"n": 1})
        env.clock.ahead_ms += 2 * LEASE_MS  # it was frozen, or the database was away from both
        assert await other.inbox.take_over_abandoned() == []
        assert not await other.replicas.acquire()
        assert await other.inbox.take_over_abandoned() == []
        assert [one.silent_ms for one in await other.replicas.all()] == [0, 0]
        await look_on(other, env.clock.advance)
        assert await other.replicas.acquire()
        assert [left.payload for left in await other.inbox.take_over_abandoned()] == [{"n": 1}]
        await other.close()


async def test_a_replica_that_was_frozen_sends_nothing_that_it_had_chosen(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        assert await env.outbox.replicas.acquire()
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        env.clock.ahead_ms += LEASE_MS
        await env.outbox.upsert(desired("alert:~2:C0SOC", "another"))
        await until_read(lambda: env.outbox.message("alert:~2:C0SOC"), lambda found: found and found.attempted_at)
        assert await env.outbox.replicas.acquire()  # nobody else has led meanwhile
        await env.shows("card", "another")
        (row,) = [call for call in env.emulator.traffic if call[1] == "chat.postMessage"][1:]
        assert row[2]["text"] == "another"


async def test_a_refresh_that_another_replica_has_requested_before_one_looks_is_found(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        await other.finish([RefreshRequest("~1")])
        await asyncio.wait_for(env.outbox.refresh_requested(), 5)
        await other.close()


async def test_the_leader_sends_what_another_replica_writes(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        other = MessageOutbox(open_stores(env.location), AsyncWebClient(token="x"), env.clock, lease_clock=env.clock)
        await other.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await other.close()


async def test_a_card_keeps_its_thread_when_a_former_leader_gets_an_answer_late(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        slack = AsyncWebClient(token=env.emulator.bot_token, base_url=env.emulator.api_url, retry_handlers=[])
        former = MessageOutbox(open_stores(env.location), slack, env.clock, rate_limiter=RateLimiter(**UNLIMITED))
        faults, arrive = env.emulator.faults, asyncio.Event()
        faults.hold("chat.postMessage", arrive)
        await former.upsert(desired("alert:~1:C0SOC", "card"))
        former_sending = asyncio.create_task(former.sender.run())
        await until(lambda: not faults.waiting("chat.postMessage"))
        env.clock.ahead_ms += 2_100
        sending = asyncio.create_task(env.outbox.sender.run())
        await env.shows("card")  # posted by the leader, which had not found it
        (card,) = await env.anna.messages(SOC)
        faults.lose_answer("chat.postMessage")
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await env.shows("card", "done")
        await until_read(env.outbox.problems, bool)  # whether the reply arrived isn't known
        await cancelled(sending)

        arrive.set()
        await former.upsert(desired("alert:~3:C0SOC", "another"))  # sent once the answer is recorded
        await env.shows("card", "done", "card", "another")
        env.clock.ahead_ms += 61_000
        former.sender.wake()
        await env.shows("card", "done", "another")
        await until_read(former.waiting, lambda waiting: not waiting)
        assert [reply["text"] for reply in await env.anna.thread(SOC, card["ts"])] == ["card", "done"]
        await cancelled(former_sending)
        await former.close()
