"""Several hosts on one database: actions go to a host that has their responder and a free slot, and each ends once."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from core.actions.runner import CLAIM_AT_ONCE, WITHOUT_HOST_MS
from core.common.clock import DAY_MS, MINUTE_MS
from core.common.database import Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.hosts import LEASE_MS, STOPPED_LEASE_MS, Host, drain
from core.models import Action, UndoInput
from core.reports import report as reports
from core.settings import ResponderSection
from core.store import actions as stored_actions
from core.store import hosts as stored
from tests.clock import SetClock
from tests.core.actions.harness import (
    ANNA,
    HERE,
    ActionParts,
    Harness,
    another_core,
    next_run,
    open_harness,
    run_input,
    silence,
    started_run,
)
from tests.core.core_process import until
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine
from tests.other_process import other_process


def host(
    harness: Harness, name: str, engine: ScriptedEngine, **options: Any
) -> AbstractAsyncContextManager[ActionParts]:
    """A core of another host on the database of `harness`, with the same clock of leases."""
    options = {"host": Host(name, f"id-of-{name}"), "lease_clock": harness.clock, **options}
    return another_core(harness, engine, **options)


async def look(*cores: ActionParts | Harness) -> None:
    """Let each core look for what the others have changed."""
    for core in cores:
        await core.runner.tick()


async def rows(harness: Harness, sql: str) -> Sequence[Row]:
    return await harness.database.read(lambda reads: reads.rows(sql))


def message_of(action: Action) -> str:
    return str(json.loads(action.report)["message"])


async def test_a_full_host_leaves_actions_to_another_oldest_first(tmp_path: Path) -> None:
    full, free = ScriptedEngine(at_once=1), ScriptedEngine(at_once=2)
    async with open_harness(tmp_path, engine=full) as harness, host(harness, "web2", free) as other:
        await look(harness, other)
        ids = [(await harness.actions.start(ANNA, run_input(harness))).action.id for _ in range(4)]
        assert (await next_run(full)).job.action_id == ids[0]
        await look(other)
        assert [(await next_run(free)).job.action_id for _ in range(2)] == ids[1:3]
        full.runs[0].finish(Report(True))
        assert (await next_run(full)).job.action_id == ids[3]
        for run in (*full.runs[1:], *free.runs):
            run.finish(Report(True))
        assert [(await harness.ended(number)).status for number in ids] == ["Success"] * 4
    assert (len(full.runs), len(free.runs)) == (2, 2)


async def test_a_responder_of_another_host_is_offered_and_runs_there(tmp_path: Path) -> None:
    here, there = ScriptedEngine(offered=(BLOCK_HOST,)), ScriptedEngine(offered=(NOTIFY,), engine_name="theirs")
    async with open_harness(tmp_path, engine=here) as harness:
        async with host(harness, "web2", there) as other:
            await look(harness)
            assert [(offer.name, offer.by_engine[0][0]) for offer in harness.registry.all()] == [
                ("BlockHost_1_0", "local"),
                ("Notify_2_1", "theirs"),
            ]
            action = (await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))).action
            assert (action.status, action.engine_id) == ("Waiting", "theirs")
            await look(other)
            run = await next_run(there)
            await run.begin("their-job")
            assert (await harness.action(action.id)).engine_job_id == "their-job"
            run.finish(Report(True))
            assert (await harness.ended(action.id)).status == "Success"
            await other.database.transaction(lambda tx: tx.run("UPDATE owner SET draining = 1 WHERE host = 'web2'"))
            await look(harness)
            with pytest.raises(ResponderBotError, match=r"only host web2 has it, and it is draining\.$"):
                await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))
        await look(harness)
        with pytest.raises(ResponderBotError, match=r"only host web2 has it, and it is stopped\.$"):
            await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))
    assert here.runs == []


# --- lost hosts -------------------------------------------------------------------------------------------------------


async def test_an_engine_without_a_limit_goes_on_to_claim_after_many(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        await harness.runner.close()
        for _ in range(CLAIM_AT_ONCE + 1):  # which a core that has ended leaves to others
            await harness.actions.start(ANNA, run_input(harness))
        await look(other)
        for _ in range(CLAIM_AT_ONCE + 1):
            (await next_run(engine)).finish(Report(True))


async def lose(harness: Harness, other: ActionParts) -> None:
    """Let the lease of the harness's core end, as the other sees it."""
    await silence(harness.clock, LEASE_MS, other)


async def test_what_ran_on_a_lost_host_ends_and_what_had_not_begun_runs_elsewhere(tmp_path: Path) -> None:
    lost, engine = ScriptedEngine(at_once=1), ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=lost) as harness:
        ran, late = await started_run(harness)
        waits = (await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))).action
        async with host(harness, "web2", engine) as other:
            assert (await next_run(engine)).job.action_id == waits.id  # there is a free slot
            await lose(harness, other)
            ended = await harness.ended(ran.id)
            assert message_of(ended) == "Host here was lost while it ran. Look at the target before you run it again."
            assert (ended.status, ended.outcome) == ("Failure", "failed")
            late.finish(Report(True, full={"message": "late"}))  # the host was only frozen
            await until(lambda: not harness.runner.followed(), "the late end")
            assert lost.forgotten == [ran.id]
            before = await rows(harness, "SELECT seq FROM event")
            await look(harness)
            assert await rows(harness, "SELECT seq FROM event") == before
            assert await harness.action(ran.id) == ended
            again = (await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))).action  # it is back
            assert (await next_run(lost)).job.action_id == again.id
            assert await rows(harness, "SELECT host FROM lost_host") == []
    assert (len(lost.runs), len(engine.runs)) == (2, 1)


async def test_an_end_that_a_lost_host_has_begun_to_store_is_completed_by_another(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        report = reports.prepare(Report(True, full={"message": "blocked"}), {}, reports.ReportLimits()).to_text()
        await harness.database.transaction(
            lambda tx: stored_actions.insert_report(tx, action.number, harness.clock(), report)
        )
        await lose(harness, other)
        ended = await harness.ended(action.id)
        assert (ended.status, message_of(ended)) == ("Success", "blocked")
    assert engine.runs == []


async def test_a_core_that_comes_back_stops_what_was_given_up(tmp_path: Path) -> None:
    lost, engine = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path, engine=lost) as harness:
        action, _ = await started_run(harness)
        async with host(harness, "web2", engine) as other:
            await lose(harness, other)
            holder = harness.hosts.holder
            await look(harness)
            assert harness.hosts.holder != holder
            assert (harness.runner.followed(), lost.forgotten) == (0, [action.id])
        assert engine.runs == []


async def lose_lease(harness: ActionParts | Harness, other: ActionParts | Harness) -> str:
    """Let the other find the lease of the first over, and not yet take over; whose lease it was."""
    holder = harness.hosts.holder
    await look(other)
    for _ in range(3):
        harness.clock.now_ms += LEASE_MS // 3
        over = await other.hosts.look()
    assert over == [holder]
    return holder


async def test_a_host_where_a_core_starts_at_the_last_moment_is_not_lost(tmp_path: Path) -> None:
    engine, again = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        holder = await lose_lease(harness, other)
        async with another_core(harness, again) as same:
            await other.hosts._database.transaction(lambda tx: other.lifecycle.take_over(tx, holder))
            assert await rows(harness, "SELECT host FROM lost_host") == []
            await silence(harness.clock, LEASE_MS, same)
            assert (await next_run(again)).job.action_id == action.id
    assert engine.runs == []


async def test_a_core_that_renews_its_lease_at_the_last_moment_keeps_its_actions(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        holder = await lose_lease(harness, other)
        await harness.hosts.renew()
        assert await harness.database.transaction(lambda tx: other.lifecycle.take_over(tx, holder)) == []
        assert (await harness.action(action.id)).status == "InProgress"


async def test_a_core_that_has_lost_its_own_lease_takes_nothing_over(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        holder = await lose_lease(harness, other)

        def take_over(tx: Transaction) -> Sequence[Row]:
            stored.remove(tx, other.hosts.holder)
            return other.lifecycle.take_over(tx, holder)

        assert await harness.database.transaction(take_over) == []
        assert (await harness.action(action.id)).status == "InProgress"


async def test_a_core_that_dispatches_before_its_lease_ends_keeps_it(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        await look(other)
        for _ in range(2):
            harness.clock.now_ms += LEASE_MS // 3
            await look(other)
        action, _ = await started_run(harness)
        harness.clock.now_ms += LEASE_MS // 3
        await look(other)
        assert (await harness.action(action.id)).status == "InProgress"


async def test_what_a_dead_core_followed_is_taken_over_at_once_by_its_host_alone(tmp_path: Path) -> None:
    engine, elsewhere = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", elsewhere) as other:
        action, _ = await started_run(harness)
        with other_process() as process:

            def hold(tx: Transaction) -> None:
                holders = {"its": process.holder, "own": harness.hosts.holder}
                tx.run("UPDATE owner SET holder = :its WHERE holder = :own", holders)
                tx.run("UPDATE action SET owner = :its WHERE owner = :own", holders)

            await harness.database.transaction(hold)
            async with another_core(harness, ScriptedEngine()) as same:
                await look(same)
                assert same.runner.followed() == 0
            process.end()
            await silence(harness.clock, LEASE_MS - 1, other)
            assert (await harness.action(action.id)).status == "InProgress"
            async with another_core(harness, engine) as same:
                await look(same)
                assert (await next_run(engine)).job.action_id == action.id
    assert elsewhere.runs == []


async def test_a_core_that_is_drained_and_loses_its_lease_goes_on_to_drain(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        await started_run(harness)
        await harness.database.transaction(lambda tx: drain(tx, harness.clock(), "lead@example.org", HERE.name))
        await look(harness, other)
        assert harness.hosts.draining
        await lose(harness, other)
        for _ in range(2):
            await look(harness)
            assert harness.hosts.draining
        assert harness.runner.drained.is_set()  # what it ran was given up


async def test_a_remote_run_of_a_lost_host_is_followed_by_another(tmp_path: Path) -> None:
    lost = ScriptedEngine(local=False, fixed_job_ids=False)
    engine = ScriptedEngine(local=False, fixed_job_ids=False)
    async with open_harness(tmp_path, engine=lost) as harness:
        action, _ = await started_run(harness)
        async with host(harness, "web2", engine) as other:
            await lose(harness, other)
            run = await next_run(engine)
            assert (run.job.action_id, run.job.engine_job_id, run.job.resumed) == (action.id, "job-1", True)
            run.finish(Report(True))
            assert (await harness.ended(action.id)).status == "Success"
            await look(harness)
            assert (harness.runner.followed(), (await harness.action(action.id)).status) == (0, "Success")


async def test_a_frozen_core_records_no_run_as_its_own(tmp_path: Path) -> None:
    frozen, engine = ScriptedEngine(at_once=1), ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=frozen) as harness, host(harness, "web2", engine) as other:
        await look(harness, other)
        await lose(harness, other)
        action = (await harness.actions.start(ANNA, run_input(harness))).action  # before it has noticed
        claimed = await harness.database.transaction(lambda tx: harness.lifecycle.claim(tx, frozen.name, None, 1))
        owners = [row["owner"] for row in await rows(harness, "SELECT owner FROM action")]
        assert (claimed, owners) == ([], [None])
        await look(other)
        assert (await next_run(engine)).job.action_id == action.id
    assert frozen.runs == []


async def test_a_core_that_was_frozen_after_a_dispatch_does_not_start_what_was_given_up(tmp_path: Path) -> None:
    engine, without = ScriptedEngine(at_once=1), ScriptedEngine(offered=())
    async with open_harness(tmp_path, engine=engine) as harness, host(harness, "web2", without) as other:
        await started_run(harness)
        waits = (await harness.actions.start(ANNA, run_input(harness))).action
        [(number, job)] = await harness.database.transaction(lambda tx: harness.lifecycle.claim(tx, "local", None, 1))
        await lose(harness, other)
        assert (await harness.action(waits.id)).status == "Failure"
        harness.runner.follow(number, "local", None, job)
        await until(lambda: harness.runner.followed() == 1, "the end of what it does not start")
        assert len(engine.runs) == 1


@pytest.mark.parametrize("turns", range(4))
async def test_a_run_that_is_recorded_as_the_core_finds_its_lease_lost_is_run(tmp_path: Path, turns: int) -> None:
    """`turns` of the event loop lie between both; after some of them they share a commit."""
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        await harness.runner.tick()
        await harness.database.transaction(lambda tx: stored.remove(tx, harness.hosts.holder))
        starting = asyncio.create_task(harness.actions.start(ANNA, run_input(harness)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await harness.runner.tick()
        action = (await starting).action
        await harness.runner.tick()
        run = await next_run(harness.engine)
        run.finish(Report(True))
        assert (run.job.action_id, (await harness.ended(action.id)).status) == (action.id, "Success")


async def test_a_stopped_core_leaves_to_any_other_what_it_has_claimed_and_not_begun(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        await started_run(harness)
        claimed, holder = (await harness.actions.start(ANNA, run_input(harness))).action, harness.hosts.holder
        await harness.database.transaction(lambda tx: stored_actions.change(tx, claimed.number, owner=holder))
        await harness.runner.close()
        owners = [row["owner"] for row in await rows(harness, "SELECT owner FROM action ORDER BY id")]
        assert owners == [holder, None]


async def test_what_began_since_it_was_read_stays_with_its_core(tmp_path: Path) -> None:
    engine = ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=engine) as harness, host(harness, "web2", ScriptedEngine()) as other:
        action, _ = await started_run(harness)
        await harness.lifecycle.give_back(action.number)
        assert not await other.lifecycle.claim_one(action.number)
        assert [row["owner"] for row in await rows(harness, "SELECT owner FROM action")] == [harness.hosts.holder]


async def test_a_run_that_a_tick_has_found_first_is_followed_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        action, run = await started_run(harness)
        harness.runner.follow(action.number, "local", None, None)
        await look(harness)
        run.finish(Report(True))
        await harness.ended(action.id)
        assert len(harness.engine.runs) == 1


async def test_a_stopped_core_leaves_its_programs_to_the_next_of_its_host_for_a_minute(tmp_path: Path) -> None:
    first, engine = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path, engine=first) as harness, host(harness, "web2", engine) as other:
        adopted, _ = await started_run(harness)
        await harness.runner.close()
        await look(other)
        await silence(harness.clock, STOPPED_LEASE_MS - 1, other)
        assert (await harness.action(adopted.id)).status == "InProgress"
        again = ScriptedEngine()
        async with another_core(harness, again) as next_core:
            assert ((await next_run(again)).job.action_id, next_core.runner.followed()) == (adopted.id, 1)
        await look(other)
        await silence(harness.clock, STOPPED_LEASE_MS, other)
        assert message_of(await harness.ended(adopted.id)).startswith("Host here was lost while it ran.")
    assert engine.runs == []


async def test_a_live_core_of_the_same_host_adopts_and_others_leave_it_to_that(tmp_path: Path) -> None:
    first, replica, engine = ScriptedEngine(), ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path, engine=first) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        async with another_core(harness, replica) as same:
            await look(other, same)
            await silence(harness.clock, LEASE_MS - 1, same, other)  # which so renew their own leases
            await silence(harness.clock, 1, other)
            assert (await harness.action(action.id)).status == "InProgress"
            await look(same)
            assert (await next_run(replica)).job.action_id == action.id
    assert engine.runs == []


async def test_nobody_is_lost_since_nobody_could_renew_for_a_while(tmp_path: Path) -> None:
    """As after an outage of the database: whoever comes back first gives the others time to renew their leases."""
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        action, _ = await started_run(harness)
        await look(other, other, other)
        harness.clock.now_ms += 10 * LEASE_MS
        await silence(harness.clock, LEASE_MS - 1, other)
        assert (await harness.action(action.id)).status == "InProgress"
        await look(harness, other)
        assert (await harness.action(action.id)).status == "InProgress"
        await silence(harness.clock, LEASE_MS, other)
        assert (await harness.action(action.id)).status == "Failure"


async def test_a_run_on_another_host_is_stopped_there(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness, host(harness, "web2", engine) as other:
        await look(harness, other)
        action, _ = await started_run(harness)
        await other.actions.cancel(ANNA, action.id)
        ended = await harness.ended(action.id)
        assert (ended.status, ended.outcome) == ("Failure", "stopped")
        assert message_of(ended) == "Cancelled by anna@example.org"
    assert engine.runs == []


async def test_what_is_due_is_done_once_by_three_cores_at_the_same_moment(tmp_path: Path) -> None:
    policies = {
        BLOCK_HOST.name: ResponderSection(undo=NOTIFY.name, undo_after_minutes=1),
        NOTIFY.name: ResponderSection(approval=1, approval_expires_minutes=1),
    }
    engines = [ScriptedEngine(), ScriptedEngine()]
    async with (
        open_harness(tmp_path, policies=policies) as harness,
        host(harness, "web2", engines[0], policies=policies) as second,
        host(harness, "web3", engines[1], policies=policies) as third,
    ):
        _, run = await started_run(harness)
        run.finish(Report(True))
        await harness.ended(run.job.action_id)
        harness.clock.now_ms += 60_000
        await asyncio.gather(*(core.due.look() for core in (harness, second, third)))
        assert len(await rows(harness, "SELECT id FROM action WHERE undoes IS NOT NULL")) == 1
        harness.clock.now_ms += 60_000  # nobody approves them
        await asyncio.gather(*(core.due.look() for core in (harness, second, third)))
        ended = await rows(harness, "SELECT object_id FROM event WHERE type = 'action.ended'")
        assert len(ended) == len({row["object_id"] for row in ended}) == 2


async def test_a_lost_undo_may_be_asked_for_again(tmp_path: Path) -> None:
    policies = {BLOCK_HOST.name: ResponderSection(undo=NOTIFY.name)}
    lost, engine = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path, engine=lost, policies=policies) as harness:
        action, run = await started_run(harness)
        run.finish(Report(True))
        await harness.ended(action.id)
        async with host(harness, "web2", engine, policies=policies) as other:
            undo = await harness.undos.undo(ANNA, action.id, UndoInput())
            await (await next_run(lost)).begin()
            await lose(harness, other)
            assert (await harness.ended(undo.action.id)).status == "Failure"
            found = (await harness.action(action.id)).undo
            assert found is not None
            assert found.status == "failed"
            again = await other.undos.undo(ANNA, action.id, UndoInput())
            (await next_run(engine)).finish(Report(True))
            assert (await harness.ended(again.action.id)).status == "Success"
            found = (await harness.action(action.id)).undo
            assert found is not None
            assert found.status == "undone"


async def test_an_action_waits_for_a_host_that_may_come_back_but_not_for_ever(tmp_path: Path) -> None:
    here, there = ScriptedEngine(offered=(BLOCK_HOST,)), ScriptedEngine(engine_name="theirs")
    async with open_harness(tmp_path, engine=here) as harness:
        async with host(harness, "web2", there) as other:
            await look(harness)
            await other.runner.close()  # before it looks again
            action = (await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))).action
        await look(harness)
        harness.clock.now_ms += WITHOUT_HOST_MS - 1
        await look(harness)
        assert (await harness.action(action.id)).status == "Waiting"
        harness.clock.now_ms += 1
        await look(harness)
        expected = "No host that has Notify_2_1 on the engine theirs takes runs, so it did not run."
        assert message_of(await harness.ended(action.id)).startswith(expected)


async def test_of_a_remote_run_that_no_host_can_follow_nobody_says_that_it_did_not_run(tmp_path: Path) -> None:
    there = ScriptedEngine(engine_name="theirs", local=False)
    async with open_harness(tmp_path, engine=ScriptedEngine(offered=(BLOCK_HOST,))) as harness:
        async with host(harness, "web2", there) as other:
            await look(harness)
            action = (await harness.actions.start(ANNA, run_input(harness, NOTIFY.name))).action
            await look(other)
            await (await next_run(there)).begin()
        await look(harness)
        harness.clock.now_ms += WITHOUT_HOST_MS
        await look(harness)
        assert message_of(await harness.ended(action.id)) == (
            "No host follows runs of Notify_2_1 on the engine theirs any more, so nobody knows how it ended."
            " Look at the target before you run it again."
        )


# --- what hosts offer -------------------------------------------------------------------------------------------------


async def test_an_engine_that_has_not_answered_since_the_start_is_down_for_other_hosts(tmp_path: Path) -> None:
    sql = "SELECT up FROM host_catalogue WHERE host = 'web2'"
    async with open_harness(tmp_path) as harness:
        for down, up in (("", 1), ("Connection refused", 0), ("", 1)):
            async with host(harness, "web2", ScriptedEngine(down=down)):
                assert [row["up"] for row in await rows(harness, sql)] == [up]


async def test_a_host_that_was_away_for_long_offers_again_what_it_has(tmp_path: Path) -> None:
    there = ScriptedEngine(engine_name="theirs")
    async with open_harness(tmp_path) as harness, host(harness, "web2", there) as other:
        await look(harness)
        await silence(harness.clock, LEASE_MS, harness)
        assert [row["host"] for row in await rows(harness, "SELECT host FROM lost_host")] == ["web2"]
        await harness.database.transaction(lambda tx: stored.forget_lost(tx, harness.clock.now_ms + 1))
        await look(other)
        await other.registry.refresh()
        await look(harness)
        assert [name for name, _ in harness.registry.all()[0].by_engine] == ["local", "theirs"]


# --- clocks -----------------------------------------------------------------------------------------------------------


async def test_clocks_that_differ_and_hosts_of_one_name_are_told(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        wrong = SetClock(harness.clock() - 60_000)
        async with host(harness, "web2", ScriptedEngine(), clock=wrong) as other:
            assert await harness.hosts.problems() == []
            await look(harness, other, harness)
            (told,) = await harness.hosts.problems()
            assert told == (
                "The clock of host web2 is some 60 s behind that of here; keep both in step, with NTP for instance."
            )
            (told,) = await other.hosts.problems()
            assert told.startswith("The clock of host here is some 60 s ahead of that of web2;")
        async with host(harness, "web3", ScriptedEngine(), host=Host("here", "another")) as other:
            await look(harness)
            assert await harness.hosts.problems() == []  # it may have left
            await look(other, harness)
            assert await harness.hosts.problems() == ["2 hosts are called here; give each another [core] host_name."]
            with pytest.raises(ResponderBotError, match="2 hosts are called here: name one core with --core"):
                await harness.database.transaction(lambda tx: drain(tx, harness.clock(), "lead", "here"))


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_database_that_moved_to_another_machine_has_no_two_hosts_of_one_name(
    tmp_path: Path, is_stopped: bool
) -> None:
    async with open_harness(tmp_path) as harness:
        await started_run(harness)
        if is_stopped:
            await harness.runner.close()
        async with host(harness, "new", ScriptedEngine(), host=Host("here", "another")) as moved:
            await look(moved, moved)
            assert await moved.hosts.problems() == []
            await silence(harness.clock, STOPPED_LEASE_MS, moved)
            (told,) = await moved.hosts.problems()
            assert told.endswith(
                " and 1 action ended with it; another of that name runs. This is reported for 24 hours."
            )


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_host_that_has_ended_leaves_its_name_to_another(tmp_path: Path, is_stopped: bool) -> None:
    async with open_harness(tmp_path) as harness:
        await started_run(harness)
        async with host(harness, "web2", ScriptedEngine(), host=Host("here", "another")) as other:
            await look(other, harness, other)
            assert await other.hosts.problems() == ["2 hosts are called here; give each another [core] host_name."]
            await (harness.runner.close() if is_stopped else lose_lease(harness, other))
            assert await other.hosts.problems() == []


async def test_a_host_is_up_while_one_of_its_cores_is(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        harness.clock.now_ms += 1
        async with another_core(harness, ScriptedEngine()) as later:
            await lose_lease(later, harness)
            assert await harness.hosts.up() == {HERE.name: True}


async def test_a_database_that_is_slow_for_both_hosts_is_no_wrong_clock(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness, host(harness, "web2", ScriptedEngine()) as other:
        await look(harness, other, harness)
        await other.hosts.renew()
        harness.clock.now_ms += 40_000  # nobody could read or write meanwhile
        await look(harness)
        assert await harness.hosts.problems() == []
        await look(other, harness)
        assert await harness.hosts.problems() == []


@pytest.mark.parametrize("ahead_ms", [60_000, -60_000, 86_400_000])
async def test_leases_hold_while_clocks_of_hosts_differ(tmp_path: Path, ahead_ms: int) -> None:
    engine = ScriptedEngine()
    async with open_harness(tmp_path) as harness:
        wrong = SetClock(harness.clock() + ahead_ms)
        action, run = await started_run(harness)
        async with host(harness, "web2", engine, clock=wrong) as other:
            theirs = (await other.actions.start(ANNA, run_input(harness, NOTIFY.name))).action
            await (await next_run(engine)).begin()
            for _ in range(3):
                await silence(harness.clock, LEASE_MS - 1, harness, other)
                wrong.now_ms -= 120_000  # it jumps, too
            assert (harness.runner.followed(), other.runner.followed()) == (1, 1)
            for each in (run, engine.runs[0]):
                each.finish(Report(True))
            assert [(await harness.ended(one.id)).status for one in (action, theirs)] == ["Success"] * 2


@pytest.mark.parametrize("ahead_ms", [10 * MINUTE_MS, -10 * MINUTE_MS, 3 * DAY_MS, -3 * DAY_MS])
@pytest.mark.parametrize("first", [0, 1])
async def test_a_rate_holds_while_clocks_of_hosts_differ(tmp_path: Path, ahead_ms: int, first: int) -> None:
    """Whichever of them the first run goes through."""
    policies = {NOTIFY.name: ResponderSection(rate=("1/5m",))}
    async with open_harness(tmp_path, policies=policies) as harness:
        wrong = SetClock(harness.clock() + ahead_ms)
        async with host(harness, "web2", harness.engine, clock=wrong, policies=policies) as other:
            cores = harness, other

            async def passes(ms: int) -> None:
                harness.clock.now_ms += ms
                wrong.now_ms += ms
                await look(*cores, *cores)

            await passes(0)
            await cores[first].actions.start(ANNA, run_input(harness, NOTIFY.name))
            for ms in (0, 5 * MINUTE_MS - 1):
                await passes(ms)
                for core in cores:
                    with pytest.raises(ResponderBotError, match="the limit of 1 run in 5 minutes is reached"):
                        await core.actions.start(ANNA, run_input(harness, NOTIFY.name))
            await passes(1)
            await cores[1 - first].actions.start(ANNA, run_input(harness, NOTIFY.name))
