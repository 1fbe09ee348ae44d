"""Several cores on one database, in random order: every action ends once, and is run at most once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.actions.due import Due
from core.actions.runner import Runner
from core.actions.service import Actions
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.engines.base import Job, OnProgress, Progress, Report
from core.hosts import LEASE_MS
from core.models import RunInput
from core.settings import ResponderSection
from core.store import actions as stored
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, action_parts, open_harness, silence
from tests.core.core_process import POLL_TIMEOUT_S, until
from tests.core.scripted_engine import NOTIFY, ScriptedEngine, action_id_of
from tests.stores import opened

SLOTS = 2
POLICIES = {NOTIFY.name: ResponderSection(approval=1)}


@dataclass
class SharedJobs:
    """The jobs that run on the machine which all cores share."""

    ends: dict[str, asyncio.Future[Report]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)


@dataclass
class SharedEngine(ScriptedEngine):
    """One core's engine: a job is started by the first core that asks, and followed by the others."""

    shared_jobs: SharedJobs = field(default_factory=SharedJobs)
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while this core is suspended."""
    following: int = 0

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        self.following += 1
        try:
            await self.awake.wait()
            if job.action_id not in self.shared_jobs.ends:
                self.shared_jobs.starts[job.action_id] += 1
                self.shared_jobs.ends[job.action_id] = asyncio.get_running_loop().create_future()
            await on_progress(Progress(engine_job_id=f"job-of-{job.action_id}", running=True))
            report = await asyncio.shield(self.shared_jobs.ends[job.action_id])
            await self.awake.wait()
            return report
        finally:
            self.following -= 1

    async def cancel(self, job: Job) -> None:
        if not self.stoppable:
            raise ResponderBotError("conflict", "It can't be stopped.")
        end = self.shared_jobs.ends.get(job.action_id)
        if end is not None and not end.done():
            end.set_result(Report(False, message="killed"))

    async def clean_up(self, run_id: str) -> None:
        self.shared_jobs.ends.pop(action_id_of(run_id), None)


@dataclass
class Core:
    engine: SharedEngine
    actions: Actions
    runner: Runner
    due: Due
    database: Database


@asynccontextmanager
async def core_on(path: Path, harness: Harness, engine: SharedEngine) -> AsyncIterator[Core]:
    async with (
        opened(path) as database,
        action_parts(database, harness.clock, engine, policies=POLICIES) as own,
    ):
        try:
            yield Core(engine, own.actions, own.runner, own.due, database)
        finally:
            engine.awake.set()


class Cluster:
    """Cores that start, stop, are suspended and resumed in an order that a seed decides."""

    def __init__(self, seed: int, path: Path, harness: Harness, stack: AsyncExitStack, *, fixed: bool) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - the same each time
        self.path, self.harness, self.stack, self.fixed = path, harness, stack, fixed
        self.shared_jobs = SharedJobs()
        self.cores: list[Core] = []
        self.stacks: dict[int, AsyncExitStack] = {}
        self.ids: list[str] = []
        self.cancels: list[asyncio.Task[None]] = []

    async def come(self) -> Core:
        engine = SharedEngine(at_once=SLOTS, fixed_job_ids=self.fixed, shared_jobs=self.shared_jobs)
        engine.stoppable = self.dice.random() < 0.7
        engine.awake.set()
        own = await self.stack.enter_async_context(AsyncExitStack())
        core = await own.enter_async_context(core_on(self.path, self.harness, engine))
        self.stacks[id(core)] = own
        self.cores.append(core)
        return core

    async def go(self, core: Core) -> None:
        self.cores.remove(core)
        await self.stacks.pop(id(core)).aclose()

    def awake(self) -> list[Core]:
        return [core for core in self.cores if core.engine.awake.is_set()]

    async def step(self) -> None:
        core = self.dice.choice(self.awake())
        known = self.dice.choice(self.ids) if self.ids else ""
        kind = self.dice.choices(
            ["start", "ask", "approve", "deny", "cancel", "finish", "tick", "time", "sleep", "wake", "come", "go"],
            [20, 6, 8, 2, 6, 14, 10, 8, 3, 3, 1, 1],
        )[0]
        with suppress(ResponderBotError):
            match kind:
                case "start" | "ask":
                    name = "BlockHost_1_0" if kind == "start" else NOTIFY.name
                    request = RunInput.model_validate(
                        {"responderId": name, "objectType": "alert", "objectId": self.harness.alert_id}
                    )
                    if self.dice.random() < 0.2:
                        await hung_up(core.actions.start(ANNA, request))
                    else:
                        self.ids.append((await core.actions.start(ANNA, request)).action.id)
                case "approve":
                    await core.actions.decide(BEN, known, "approve")
                case "deny":
                    await core.actions.decide(BEN, known, "deny")
                case "cancel":
                    self.cancels.append(asyncio.create_task(core.actions.cancel(LEAD, known)))
                case "finish":
                    self.finish_one()
                case "tick":
                    await core.runner.tick()
                    await core.due.look()
                case "time":
                    self.harness.clock.now_ms += self.dice.choice([1_000, LEASE_MS // 3, LEASE_MS // 2, LEASE_MS])
                case "sleep" if len(self.awake()) > 1:
                    core.engine.awake.clear()
                case "wake":
                    for other in self.cores:
                        other.engine.awake.set()
                case "come" if len(self.cores) < 4:
                    await self.come()
                case "go" if len(self.awake()) > 1:
                    await self.go(core)
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    def finish_one(self) -> None:
        running = [end for end in self.shared_jobs.ends.values() if not end.done()]
        if running:
            self.dice.choice(running).set_result(Report(self.dice.random() < 0.7, message="told"))

    async def open_run_ids(self) -> list[str]:
        return await self.cores[0].database.read(stored.open_run_ids)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_every_action_ends_once_and_runs_at_most_once(tmp_path: Path, seed: int, fixed: bool) -> None:
    path = tmp_path / "core.db"
    async with open_harness(tmp_path) as harness, AsyncExitStack() as stack:
        await harness.runner.close()
        cluster = Cluster(seed, path, harness, stack, fixed=fixed)
        await cluster.come()
        await cluster.come()
        for _ in range(300):
            await cluster.step()
        for core in cluster.cores:
            core.engine.awake.set()
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while await cluster.open_run_ids():
                harness.clock.now_ms += 600_000
                await silence(harness.clock, LEASE_MS, *cluster.cores)
                for core in cluster.cores:
                    await core.due.look()
                for end in cluster.shared_jobs.ends.values():
                    if not end.done():
                        end.set_result(Report(True))
        await until(lambda: not any(core.runner.followed() for core in cluster.cores), "the end of all follows")
        await asyncio.gather(*cluster.cancels, return_exceptions=True)
        database = cluster.cores[0].database
        ended = await database.fetch_in_background("SELECT id, status FROM action")
        events = await database.fetch_in_background("SELECT object_id FROM event WHERE type = 'action.ended'")
        end_events = Counter(row["object_id"] for row in events)
        assert end_events == {row["id"]: 1 for row in ended}
        assert set(cluster.shared_jobs.starts.values()) == {1}
        for row in ended:
            assert row["status"] != "Deleted" or f"~{row['id']}" not in cluster.shared_jobs.starts
        for core in list(cluster.cores[1:]):
            await cluster.go(core)
        await all_slots_are_free(cluster.cores[0], harness)
    async with opened(path) as database:
        assert await database.fetch_in_background("SELECT holder FROM owner WHERE stopped = 0") == []


async def hung_up(request: Coroutine[Any, Any, Any]) -> None:
    """A client that hangs up before it gets an answer."""
    task = asyncio.create_task(request)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def all_slots_are_free(core: Core, harness: Harness) -> None:
    """Check that as many actions run at once as the engine has slots, and no more."""
    request = {"responderId": "BlockHost_1_0", "objectType": "alert", "objectId": harness.alert_id}
    for _ in range(SLOTS + 2):
        await core.actions.start(ANNA, RunInput.model_validate(request))
    await until(lambda: core.engine.following == SLOTS, "all slots taken")
    await core.runner.tick()
    assert (core.engine.following, core.runner.followed()) == (SLOTS, SLOTS)
