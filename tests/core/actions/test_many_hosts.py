"""Several hosts on one database, all at once and in random order: every action ends once, and is run at most once."""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.hosts import Host
from core.store import actions as stored
from tests.core.actions.harness import ANNA, ActionParts, Harness, another_core, open_harness, run_input
from tests.core.core_process import POLL_TIMEOUT_S
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine

HOSTS = ("here", "web2", "web3")  # one core more than the first of the harness's own
STEPS = 120


class Cluster:
    """Cores that look around, run actions and freeze at moments that a seed decides; nobody waits for another."""

    def __init__(self, seed: int, harness: Harness) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - the same each time
        self.harness = harness
        self.engines = [harness.engine]
        self.cores: list[Harness | ActionParts] = [harness]
        self.frozen: set[int] = set()
        self.going_on: list[asyncio.Task[None]] = []

    async def open(self, stack: AsyncExitStack) -> None:
        for name in HOSTS:
            self.engines.append(ScriptedEngine(at_once=self.dice.choice([1, 2, 3])))
            host = Host(name, "here" if name == "here" else f"id-of-{name}")
            core = another_core(self.harness, self.engines[-1], host=host, lease_clock=self.harness.clock)
            self.cores.append(await stack.enter_async_context(core))

    async def step(self) -> None:
        for _ in range(self.dice.randrange(3)):
            self._begin(self._start(self.dice.choice(self.cores)))
        ids = [run.job.action_id for engine in self.engines for run in engine.runs]
        if ids and self.dice.random() < 0.1:
            self._begin(self._cancel(self.dice.choice(self.cores), self.dice.choice(ids)))
        for number in self._awake():
            self.finish(self.engines[number], chance=0.2)
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)
        if self.dice.random() < 0.15:
            self.frozen ^= {self.dice.randrange(len(self.cores))}
        self.harness.clock.now_ms += self.dice.choice([1_000, 5_000])
        looking = [asyncio.create_task(self.cores[number].runner.tick()) for number in self._awake()]
        if self.dice.random() < 0.5:
            await asyncio.gather(*looking)
        self.going_on += looking

    def _awake(self) -> list[int]:
        found = [number for number in range(len(self.cores)) if number not in self.frozen]
        self.dice.shuffle(found)
        return found

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.going_on.append(asyncio.create_task(work))

    async def _start(self, core: Harness | ActionParts) -> None:
        name = self.dice.choice([BLOCK_HOST.name, NOTIFY.name])
        await core.actions.start(ANNA, run_input(self.harness, name))

    async def _cancel(self, core: Harness | ActionParts, action_id: str) -> None:
        with suppress(ResponderBotError):  # it has ended
            await core.actions.cancel(ANNA, action_id)

    def finish(self, engine: ScriptedEngine, *, chance: float = 1.0) -> None:
        for run in engine.runs:
            if not run.outcome.done() and self.dice.random() < chance:
                run.finish(Report(True))

    async def settle(self) -> None:
        """Let all cores look on until every action has ended."""
        await asyncio.gather(*self.going_on)
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while await self.harness.database.read(stored.open_run_ids) or any(
                core.runner.followed() for core in self.cores
            ):
                self.harness.clock.now_ms += 5_000
                for engine, core in zip(self.engines, self.cores, strict=True):
                    self.finish(engine)
                    await core.runner.tick()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5, 9])
async def test_every_action_of_several_hosts_ends_once_and_runs_at_most_once(tmp_path: Path, seed: int) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=2)) as harness, AsyncExitStack() as stack:
        cluster = Cluster(seed, harness)
        await cluster.open(stack)
        for _ in range(STEPS):
            await cluster.step()
        await cluster.settle()
        rows = await harness.database.fetch_in_background("SELECT id FROM action")
        events = await harness.database.fetch_in_background("SELECT object_id FROM event WHERE type = 'action.ended'")
        assert Counter(row["object_id"] for row in events) == {row["id"]: 1 for row in rows}
        runs = [run.job for engine in cluster.engines for run in engine.runs if not run.job.resumed]
        assert max(Counter(job.action_id for job in runs).values()) == 1
        for engine, core in zip(cluster.engines, cluster.cores, strict=True):
            slots = [core.runner.take_slot(engine.name) for _ in range(engine.at_once or 0)]
            assert None not in slots  # each was given back
