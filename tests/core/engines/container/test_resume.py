"""Recovery: core is killed at each point of a run, and the next one ends it without starting a second container."""

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from core.engines.base import Job
from core.settings import ResponderSection
from tests.core.engines.container.conftest import MakeEngine, Offer
from tests.core.engines.container.engines import REPORT, Podman, job_for
from tests.core.engines.process.conftest import NamedPipe, ProgressLog
from tests.core.scripted_engine import open_actions, run_id_of

pytestmark = pytest.mark.container

ROOT = Path(__file__).parents[4]


@pytest.fixture
def sections(shared: Path) -> dict[str, ResponderSection]:
    return {"Slow_1_0": ResponderSection(writable=(shared,))}


@pytest.fixture
def new_engine(make_engine: MakeEngine, sections: dict[str, ResponderSection]) -> MakeEngine:
    """Creates engines with the settings of the job."""
    return partial(make_engine, sections=sections)


@pytest.fixture
async def job(new_engine: MakeEngine, offer: Offer, ready: NamedPipe, go: NamedPipe, shared: Path) -> Job:
    """A job whose program counts its runs, tells that it runs, and goes on when it is told."""
    runs = f"echo one run >> {shared}/runs; echo started > {ready.path}; read line < {go.path}"
    offer("Slow", f"{runs}; echo {REPORT % 'Slow'}")
    engine = new_engine()
    await engine.install(lambda news: None, upgrade=False)
    return await job_for(engine, "Slow_1_0")


async def start_core(point: str, place: Path, podman: Podman, job: Job, shared: Path) -> asyncio.subprocess.Process:
    """Start a core that kills itself at `point`, or is killed by the test."""
    facts = {"job": asdict(job), "sections": {"Slow_1_0": {"writable": [str(shared)]}}}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.core.engines.container.crashing_core", point, str(place), json.dumps(facts)),
        cwd=ROOT,
        env={**os.environ, **podman.environment},
    )


@pytest.fixture
async def orphan(job: Job, podman: Podman, tmp_path: Path, ready: NamedPipe, shared: Path) -> Job:
    """The job, running, once its core was killed."""
    core = await start_core("never", tmp_path, podman, job, shared)
    await ready.received()
    core.kill()
    await core.wait()
    return job


POINTS = ["recorded", "folder written", "runtime called", "container started", "running reported"]


@pytest.mark.parametrize("point", POINTS)
async def test_the_next_core_ends_the_run_of_a_core_that_died(
    point: str,
    new_engine: MakeEngine,
    podman: Podman,
    tmp_path: Path,
    job: Job,
    ready: NamedPipe,
    go: NamedPipe,
    shared: Path,
) -> None:
    dead = await start_core(point, tmp_path, podman, job, shared)
    assert await dead.wait() == -9
    progress_log, engine = ProgressLog(), new_engine()
    running = asyncio.create_task(engine.run(replace(job, resumed=True), progress_log))
    await ready.received()
    go.send()
    report = await running
    assert (report.success, report.message) == (True, "Slow")
    assert [progress.running for progress in progress_log.progress] == [True]
    assert (shared / "runs").read_text() == "one run\n"
    await engine.clean_up(job.run_id)
    assert podman.containers() == []


async def test_a_container_outlives_a_core_that_is_killed_in_its_middle(
    new_engine: MakeEngine, orphan: Job, go: NamedPipe, shared: Path
) -> None:
    engine = new_engine()
    running = asyncio.create_task(engine.run(replace(orphan, resumed=True, seen_running=True), ProgressLog()))
    go.send()
    assert (await running).message == "Slow"
    assert (shared / "runs").read_text() == "one run\n"
    # A core that died before it stored the report reads it again.
    again = await new_engine().run(replace(orphan, resumed=True, seen_running=True), ProgressLog())
    assert again.message == "Slow"
    assert (shared / "runs").read_text() == "one run\n"


async def test_a_container_that_ended_in_time_has_a_result_also_after_the_deadline(
    new_engine: MakeEngine, podman: Podman, orphan: Job, go: NamedPipe
) -> None:
    go.send()
    engine = new_engine(clock=lambda: time.time() + 3600)
    podman("wait", engine._container(orphan.run_id))
    assert (await engine.run(replace(orphan, resumed=True), ProgressLog())).message == "Slow"


async def test_a_core_that_stops_leaves_the_container_running(
    new_engine: MakeEngine, podman: Podman, job: Job, ready: NamedPipe, go: NamedPipe
) -> None:
    first = new_engine()
    running = asyncio.create_task(first.run(job, ProgressLog()))
    await ready.received()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await first.close()
    assert len(podman.containers()) == 1
    go.send()
    report = await new_engine().run(replace(job, resumed=True), ProgressLog())
    assert report.message == "Slow"


async def test_a_cancelled_run_of_a_dead_core_is_cancelled_by_the_next(new_engine: MakeEngine, orphan: Job) -> None:
    engine, job = new_engine(), replace(orphan, resumed=True, seen_running=True, cancelled=True)
    await engine.cancel(job)
    assert (await engine.run(job, ProgressLog())).message == "Cancelled"


async def test_a_run_whose_container_is_gone_is_not_run_again(
    new_engine: MakeEngine, podman: Podman, job: Job, shared: Path
) -> None:
    engine = new_engine()
    report = await engine.run(replace(job, resumed=True, seen_running=True), ProgressLog())
    assert report.message.startswith("The job folder of this run has vanished")
    assert not (shared / "runs").exists()
    cancelled = await engine.run(replace(job, resumed=True, cancelled=True), ProgressLog())
    assert cancelled.message == "Cancelled"
    assert podman.containers() == []


async def test_a_container_that_was_created_and_not_started_is_replaced(
    new_engine: MakeEngine, podman: Podman, job: Job, ready: NamedPipe, go: NamedPipe, shared: Path
) -> None:
    engine = new_engine()
    podman("create", "--name", engine._container(job.run_id), "--network=none", "localhost/slow:1")
    running = asyncio.create_task(engine.run(replace(job, resumed=True), ProgressLog()))
    await ready.received()
    go.send()
    assert (await running).message == "Slow"
    assert (shared / "runs").read_text() == "one run\n"


async def test_a_container_that_somebody_removes_is_a_failure_that_says_so(
    new_engine: MakeEngine, podman: Podman, job: Job, ready: NamedPipe
) -> None:
    engine = new_engine()
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    podman("rm", "--force", "--time", "0", *podman.containers())
    assert (await running).message == (
        "The responder wrote no output/output.json (its container was removed by someone else), and printed nothing."
    )


async def test_only_leftovers_of_the_same_database_are_removed(
    new_engine: MakeEngine, podman: Podman, job: Job, ready: NamedPipe
) -> None:
    mine, others = new_engine(), new_engine(core_id="two")
    for engine, number in ((mine, "~1"), (others, "~1"), (mine, "~2")):
        other = replace(job, action_id=number, run_id=run_id_of(number))
        running = asyncio.create_task(engine.run(other, ProgressLog()))
        await ready.received()
        running.cancel()  # its core stops
        await asyncio.gather(running, return_exceptions=True)
    podman("run", "--detach", "--name", "foreign", "--network=none", "--label=action=~1",
           *("--ulimit", "nofile=512:512", "--ulimit", "nproc=1024:1024", "--entrypoint", "/bin/sh"),
           *("localhost/slow:1", "-c", "sleep 600"))  # fmt: skip
    assert len(podman.containers()) == 4
    await new_engine().clean_up_ended(open_actions("~2"))
    assert sorted(podman.containers()) == sorted(["foreign", others._container("1-5e"), mine._container("2-5e")])
    podman("rm", "--force", "--time", "0", *podman.containers())
