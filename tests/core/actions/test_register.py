"""What is in force against the truth: thousands of random steps."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.actions.measures import MeasureFilter, Measures
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import AlertInput, Measure
from core.records.alerts import Alerts
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, open_harness, run_input
from tests.core.actions.test_undo import BLOCK, MINUTE_MS, RELEASE, RELEASE_HOST
from tests.core.scripted_engine import BLOCK_HOST, Run, ScriptedEngine

HOSTS = ("h0", "h1", "h2", "h3")
LOST = Report(False, message="Timed out after 30 minutes")
SAID_NO = Report(False, message="no", is_known=True)
DONE = Report(True, full={"message": "done"})


@dataclass
class World:
    """Hosts as they are, and what ought to be known of them."""

    harness: Harness
    dice: random.Random
    alert: str
    """It names all hosts."""
    blocked: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(HOSTS, False))
    expected: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(HOSTS, False))
    """By host: whether the register ought to have it."""

    @property
    def measures(self) -> Measures:
        core = self.harness
        return Measures(core.undos, core.registry, core.guards, core.database, core.clock)

    def hosts_of(self, run: Run) -> list[str]:
        return [str(artifact["data"]) for artifact in run.job.data["artifacts"]]

    def some(self) -> list[str]:
        return sorted(self.dice.sample(HOSTS, self.dice.choice((1, 1, 2, 3))))

    async def finish(self, run: Run, report: Report) -> None:
        run.finish(report)
        while run.job.action_id not in self.harness.engine.forgotten:  # noqa: ASYNC110 - forgetting has no event
            await asyncio.sleep(0)

    async def carry_out(self) -> None:
        """Have the runs that were dispatched do what they are for, or fail in one of the ways that there are."""
        while self.harness.runner.followed():
            if self.harness.engine.taken.empty():
                await asyncio.sleep(0)
                continue
            run = self.harness.engine.taken.get_nowait()
            name = run.job.responder_name
            how = self.dice.choices(("done", "no", "lost_done", "lost_undone"), (12, 2, 1, 1))[0]
            has_acted = how in ("done", "lost_done")
            report = DONE if how == "done" else SAID_NO if how == "no" else LOST
            for host in self.hosts_of(run):
                if has_acted:
                    self.blocked[host] = name == BLOCK
                if name == BLOCK and report is not SAID_NO:
                    self.expected[host] = True
                if name == RELEASE and report is DONE:
                    self.expected[host] = False
            await self.finish(run, report)

    # --- steps --------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        steps = (self.block, self.release, self.mark, self.change, self.pass_time)
        await self.dice.choices(steps, (4, 2, 1, 1, 4))[0]()
        await self.carry_out()
        await self.compare()

    async def block(self) -> None:
        more: dict[str, Any] = {"undoAfterMinutes": self.dice.choice((5, 60, 600))} if self.dice.random() < 0.5 else {}
        await self.harness.actions.start(ANNA, run_input(self.harness, BLOCK, **self.on(), **more))

    def on(self) -> dict[str, Any]:
        """The fields of a run on some hosts."""
        return {"objectId": self.alert, "target": self.some()}

    async def release(self) -> None:
        measures = await self.listed()
        if measures and self.dice.random() < 0.7:
            await self.measures.undo(BEN, self.dice.choice(list(measures.values())).id)
        else:  # by hand, whatever core knows
            await self.harness.actions.start(BEN, run_input(self.harness, RELEASE, **self.on()))

    async def mark(self) -> None:
        """Somebody looks, finds it free, and says so."""
        for host, measure in (await self.listed()).items():
            if not self.blocked[host]:
                await self.measures.mark_as_ended(LEAD, measure.id, "looked")
                self.expected[host] = False
                break

    async def change(self) -> None:
        """Somebody changes a host past core."""
        host = self.dice.choice(HOSTS)
        self.blocked[host] = self.dice.random() < 0.3

    async def pass_time(self) -> None:
        self.harness.clock.now_ms += self.dice.choice((1_000, MINUTE_MS, 10 * MINUTE_MS))
        await self.harness.due.look()

    async def listed(self) -> dict[str, Measure]:
        found = await self.measures.listed(ANNA, MeasureFilter())
        return {(measure.target or [])[0].data: measure for measure in found}

    async def compare(self) -> None:
        assert sorted(await self.listed()) == sorted(host for host in HOSTS if self.expected[host])


@asynccontextmanager
async def world(tmp_path: Path, seed: int) -> AsyncIterator[World]:
    sections = {BLOCK: {"undo": RELEASE, "target": "hostname"}, RELEASE: {"target": "hostname"}}
    own = {name: ResponderSection.model_validate(section) for name, section in sections.items()}
    engine = ScriptedEngine(offered=[BLOCK_HOST, RELEASE_HOST])
    async with open_harness(tmp_path, engine=engine, policies=own) as harness:
        fields = {"type": "siem", "source": "s", "sourceRef": "hosts", "title": "t", "description": "d"}
        artifacts = [{"dataType": "hostname", "data": host} for host in HOSTS]
        request = AlertInput.model_validate({**fields, "artifacts": artifacts})
        alert = (await Alerts(harness.database, harness.clock, "soc").create(LEAD, request)).id
        yield World(harness, random.Random(seed), alert)  # noqa: S311 - the same each time


async def walk(tmp_path: Path, seed: int, steps: int) -> None:
    async with world(tmp_path, seed) as scene:
        for number in range(steps):
            try:
                await scene.step()
            except (AssertionError, ResponderBotError) as error:
                error.add_note(f"in step {number} of seed {seed}")
                raise


async def test_the_register_is_the_truth(tmp_path: Path) -> None:
    await walk(tmp_path, 1, 200)


@pytest.mark.slow
async def test_the_register_is_the_truth_over_a_thousand_steps(tmp_path: Path) -> None:
    await walk(tmp_path, 0, 1_000)
