"""Two cores on one database: each action is followed by one, and the actions of a dead core by the other."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.authorization import COMMAND_LINE
from core.common.clock import now_ms
from core.common.database import Transaction
from core.common.leases import Leases
from core.engines.base import Report
from core.hosts import LEASE_MS
from core.models import Action
from core.people import People
from tests import stores
from tests.core.actions.harness import (
    ANNA,
    another_core,
    next_run,
    open_harness,
    run_input,
    silence,
    started_run,
)
from tests.core.core_process import (
    POLL_INTERVAL_S,
    POLL_TIMEOUT_S,
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    events_of,
    open_pipe_for_writing,
    run_body,
    setup_in,
    until,
    write_pipe,
)
from tests.core.scripted_engine import ScriptedEngine
from tests.stores import opened

# --- the second core, in this process ---------------------------------------------------------------------------------


async def test_a_core_whose_lease_ended_does_not_clean_up_the_job(tmp_path: Path) -> None:
    other = ScriptedEngine()
    async with open_harness(tmp_path) as harness:
        action, late = await started_run(harness)
        async with another_core(harness, other) as core:
            await silence(harness.clock, LEASE_MS, core)
            run = await next_run(other)
            late.finish(Report(True, full={"message": "late"}))
            await until(lambda: not harness.runner.followed(), "the end of what the first follows")
            assert harness.engine.forgotten == []
            run.finish(Report(True, full={"message": "by the second"}))
            ended = await harness.ended(action.id)
        assert json.loads(ended.report)["message"] == "by the second"
        assert other.forgotten == []  # the first core may come back at any point, and must find that the job has run


async def test_a_taken_over_job_that_may_run_needs_no_free_slot(tmp_path: Path) -> None:
    other = ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        action, _ = await started_run(harness)
        queued = (await harness.actions.start(ANNA, run_input(harness))).action
        async with another_core(harness, other) as core:
            assert (await next_run(other)).job.action_id == queued.id
            own = (await core.actions.start(ANNA, run_input(harness))).action
            await silence(harness.clock, LEASE_MS, core)
            adopted = await next_run(other)
            job = adopted.job
            assert (job.action_id, job.resumed, job.seen_running) == (action.id, True, True)
            assert other.taken.empty()
            other.runs[0].finish(Report(True))
            assert other.taken.empty()  # the one that was taken over has its slot
            adopted.finish(Report(True))
            assert (await next_run(other)).job.action_id == own.id


async def test_taking_over_renews_the_lease_at_once(tmp_path: Path) -> None:
    other, third = ScriptedEngine(), ScriptedEngine()
    async with open_harness(tmp_path) as harness:
        action, _ = await started_run(harness)
        async with another_core(harness, other) as core, another_core(harness, third) as late:
            await silence(harness.clock, LEASE_MS, core)
            assert (await next_run(other)).job.action_id == action.id
            await late.runner.tick()
            assert late.runner.followed() == 0


async def test_a_lease_lasts_from_before_the_commit_that_renews_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        leases = Leases(harness.database, "owner", LEASE_MS, harness.clock, harness.clock)

        def renew_slowly(tx: Transaction) -> None:
            leases.take(tx, leases.holder, "here", host_id="here")
            harness.clock.now_ms += 4_000

        await leases.hold(renew_slowly)
        assert leases.left_ms() == LEASE_MS - 4_000


@pytest.mark.slow
async def test_a_long_search_does_not_keep_a_core_from_renewing_its_lease(tmp_path: Path) -> None:
    long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT max(i) FROM n"
    other = ScriptedEngine()
    async with (
        open_harness(tmp_path) as harness,
        another_core(harness, other, tick_s=POLL_INTERVAL_S) as core,
    ):

        async def is_renewed() -> bool:
            sql, lease = "SELECT 1 FROM owner WHERE lease_until = :until", {"until": harness.clock.now_ms + LEASE_MS}
            return await core.database.read(lambda reads: reads.row(sql, lease)) is not None

        await core.actions.start(ANNA, run_input(harness))
        await next_run(other)
        search = asyncio.create_task(core.database.fetch_in_background(long))
        for _ in range(3):
            harness.clock.now_ms += LEASE_MS
            async with asyncio.timeout(POLL_TIMEOUT_S):
                while not await is_renewed():  # noqa: ASYNC110 - another core writes it
                    await asyncio.sleep(POLL_INTERVAL_S)
        assert not search.done()
        await search


async def test_a_core_on_another_machine_keeps_its_actions_while_its_lease_lasts(tmp_path: Path) -> None:
    def moved(tx: Transaction) -> None:
        tx.run("UPDATE owner SET holder = '1-1-elsewhere-1' WHERE holder = (SELECT owner FROM action)")
        tx.run("UPDATE action SET owner = '1-1-elsewhere-1'")

    other = ScriptedEngine()
    async with open_harness(tmp_path) as harness:
        action, _ = await started_run(harness)
        async with another_core(harness, other) as core:
            await harness.database.transaction(moved)
            await core.runner.tick()
            (row,) = await harness.database.fetch_in_background("SELECT owner FROM action")
            assert row["owner"] == "1-1-elsewhere-1"
            await silence(harness.clock, LEASE_MS, core)
            assert (await next_run(other)).job.action_id == action.id


async def test_a_cancel_that_the_engine_refuses_after_a_restart_is_withdrawn(tmp_path: Path) -> None:
    other = ScriptedEngine(stoppable=False)
    async with open_harness(tmp_path) as harness:
        action, _ = await started_run(harness)
        await harness.lifecycle.cancel(ANNA, action.id)
        async with another_core(harness, other) as core:
            await silence(harness.clock, LEASE_MS, core)
            (await next_run(other)).finish(Report(False, message="It broke by itself"))
            ended = await harness.ended(action.id)
    assert json.loads(ended.report)["errorMessage"] == "It broke by itself"


async def test_nobody_waits_for_the_job_id_of_an_action_that_has_ended(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(fixed_job_ids=False)) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await next_run(harness.engine)).finish(Report(False, message="No such responder there"))
        async with asyncio.timeout(POLL_TIMEOUT_S):
            assert (await harness.actions.with_job_id(started.action)).engine_job_id == ""


# --- two processes ----------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """Two cores on one database, and actions whose programs end when their pipe is written to."""

    setup: CoreSetup
    one: CoreProcess
    other: CoreProcess
    alert: str

    async def run(self, core: CoreProcess, name: str) -> Action:
        os.mkfifo(self.pipe(name))
        operations = [{"type": "AddTagToAlert", "tag": name}]
        steps = ["count", f"wait {self.pipe(name)}", "write"]
        parameters = {"runs": str(self.setup.runs(name)), "steps": steps, "operations": operations}
        return await core.client().run(run_body(self.alert, parameters=parameters))

    async def go(self, name: str) -> None:
        await write_pipe(self.pipe(name))

    def pipe(self, name: str) -> Path:
        return self.setup.folder / f"{name}.pipe"

    def owners(self) -> dict[str, str]:
        """Action id to the core that holds its lease, of open actions."""
        rows = stores.rows(self.setup.database, "SELECT id, owner FROM action WHERE owner IS NOT NULL")
        return {f"~{number}": owner for number, owner in rows}


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    setup = await setup_in(folder, max_concurrent_actions=2)
    async with core_process(setup, "one") as one, core_process(setup, "other") as other:
        yield Pair(setup, one, other, await alert_in(one))


@pytest.mark.slow
async def test_the_other_core_takes_over_the_actions_of_a_killed_one(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        names = ["first", "second", "queued"]
        theirs = {name: await two.run(two.one, name) for name in names}
        mine = await two.run(two.other, "mine")
        for action in (*theirs.values(), mine):
            await two.other.running(action.id)
        followed = two.owners()
        await two.one.kill()
        await until(lambda: set(two.owners().values()) == {followed[mine.id]}, "the other core taking over")
        assert (await two.other.client().health())["status"] == "ok"
        for name in [*names, "mine"]:
            await two.go(name)
        ended = [await two.other.ended(action.id) for action in (*theirs.values(), mine)]
        events = {action.id: await events_of(two.other, action.id) for action in ended}
        tags = (await two.other.client().alert(two.alert)).tags
    assert len(set(followed.values())) == 2
    assert followed[mine.id] not in {followed[theirs[name].id] for name in ("first", "second")}
    assert followed[theirs["queued"].id] == followed[mine.id]  # which had a free slot
    assert [action.status for action in ended] == ["Success"] * 4
    assert [two.setup.counted(name) for name in [*names, "mine"]] == [1] * 4
    assert sorted(tags) == sorted([*names, "mine"])
    for types in events.values():
        assert types.count("action.ended") == 1
        assert types[-1] == "action.ended"


async def test_either_core_shows_and_cancels_the_actions_of_the_other(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        running = await two.run(two.one, "running")
        beside = await two.run(two.one, "beside")
        more = [await two.run(two.one, name) for name in ("more", "still more")]  # which the other has slots for
        for action in (running, beside, *more):
            await two.other.running(action.id)
        queued = await two.run(two.one, "queued")
        cancelled = await two.other.client().cancel(queued.id)
        await two.other.client().cancel(running.id)
        stopped = await two.other.ended(running.id)
        waiting = asyncio.create_task(two.other.ended(beside.id))
        await two.go("beside")
        assert (await waiting).status == "Success"
        for name, action in zip(("more", "still more"), more, strict=True):  # programs outlive their core
            await two.go(name)
            assert (await two.other.ended(action.id)).status == "Success"
    assert cancelled.status == "Deleted"
    assert (stopped.status, json.loads(stopped.report)["message"]) == ("Failure", "Cancelled by anna@example.org")
    assert [two.setup.counted(name) for name in ("running", "beside", "queued")] == [1, 1, 0]


@pytest.mark.slow
async def test_a_core_resumed_after_its_lease_ended_changes_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        actions = {name: await two.run(two.one, name) for name in ("ends", "runs on")}
        for action in actions.values():
            await two.one.running(action.id)
        before = set(two.owners().values())
        two.one.pause()
        await until(lambda: not before & set(two.owners().values()), "the lease ending")
        await two.go("ends")
        ended = await two.other.ended(actions["ends"].id)
        two.one.resume()
        assert (await two.one.client().action(ended.id)).status == "Success"
        await two.go("runs on")
        last = await two.other.ended(actions["runs on"].id)
        events = [await events_of(two.one, action.id) for action in (ended, last)]
    assert [action.status for action in (ended, last)] == ["Success"] * 2
    assert [two.setup.counted(name) for name in actions] == [1, 1]
    assert [types.count("action.ended") for types in events] == [1, 1]


def reads(core: CoreProcess, file: Path) -> bool:
    """Whether a core has this file open."""
    found = Path(f"/proc/{core.process.pid}/fd").iterdir()
    return any(os.path.realpath(descriptor) == str(file) for descriptor in found)


@pytest.mark.slow
async def test_a_core_resumed_after_the_other_ran_a_job_does_not_start_it_again(tmp_path: Path) -> None:
    """The certificate file is a pipe, which holds a core while it writes the job folder."""
    pem = tmp_path / "pem"
    os.mkfifo(pem)
    setup = await setup_in(tmp_path, responders={"Held": {"config": {"cacerts": str(pem)}}})
    async with core_process(setup, "one") as one, core_process(setup, "other") as other:
        runs = {"runs": str(setup.runs("held"))}
        action = await one.client().run(run_body(await alert_in(one), "Held_1_0", parameters=runs))
        writer = await open_pipe_for_writing(pem)
        one.pause()
        await until(lambda: reads(other, pem), "the other at the same place")
        os.write(writer, b"pem\n")
        os.close(writer)  # the first can go on too, as soon as it is resumed
        ended = await other.ended(action.id)
        assert (ended.status, setup.counted("held")) == ("Success", 1)
        one.resume()
        await one.client().health()
        later = await one.client().run(run_body(await alert_in(one, "2"), "Held_1_0", parameters={"steps": ["write"]}))
        await write_pipe(pem)
        await one.ended(later.id)
        await one.client().health()
        assert setup.counted("held") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["disabled", "cancelled"])
async def test_a_run_cancelled_between_dispatch_and_start_is_not_started_by_the_next_core(
    tmp_path: Path, how: str
) -> None:
    """The certificate file is a pipe, which holds a core while it writes the job folder."""
    pem = tmp_path / "pem"
    os.mkfifo(pem)
    setup = await setup_in(tmp_path, responders={"Held": {"config": {"cacerts": str(pem)}}})
    async with core_process(setup, "one") as one:
        runs = {"runs": str(setup.runs("held"))}
        action = await one.client().run(run_body(await alert_in(one), "Held_1_0", parameters=runs))
        writer = await open_pipe_for_writing(pem)  # it has been dispatched
        if how == "cancelled":
            await one.client().cancel(action.id)
        await one.kill()
        os.close(writer)
    async with opened(setup.database) as database:
        (row,) = await database.fetch_in_background("SELECT status, dispatched_at FROM action")
        assert (row["status"], row["dispatched_at"] is None) == ("Waiting", False)
        if how == "disabled":
            await People(database, "example.org", now_ms).disable(COMMAND_LINE, "anna")
    async with core_process(setup, "next") as after:
        await write_pipe(pem, "pem\n")
        ended = await after.ended(action.id, "lead")
    assert (ended.status, setup.counted("held")) == ("Failure", 0)
    messages = {
        "disabled": "Cancelled by core: anna@example.org asked for this and may no longer run responders",
        "cancelled": "Cancelled by anna@example.org",
    }
    assert json.loads(ended.report)["message"].startswith(messages[how])
    assert ended.outcome == {"disabled": "failed", "cancelled": "stopped"}[how]
