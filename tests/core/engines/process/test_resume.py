"""Recovery: core is killed at each point of a run, and the next one finishes the run without starting it twice."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from core.engines import job_folder
from core.engines.base import Job
from core.engines.job_folder import JobFolder
from core.engines.process.processes import StartRecord, pidfd_if_alive, wait_readable
from tests import programs
from tests.core.engines.process.conftest import (
    MakeEngine,
    NamedPipe,
    ProgressLog,
    is_alive,
    job_for,
    program_pid,
)
from tests.core.scripted_engine import open_actions
from tests.programs import Program

ROOT = Path(__file__).parents[4]


async def start_crashing_core(
    point: str, root: Path, job: Job, config: Mapping[str, Any], folders: Sequence[Path] = ()
) -> Program:
    """Start a core that kills itself at `point`, or is killed by the test."""
    facts = {"job": asdict(job), "config": config, "folders": [str(folder) for folder in folders]}
    return await programs.start("tests.core.engines.process.crashing_core", point, str(root), json.dumps(facts))


async def run_until_killed(root: Path, job: Job, ready: NamedPipe) -> None:
    """A core that is killed once the program of the job runs."""
    core = await start_crashing_core("none", root, job, {})
    await ready.received()
    core.kill()
    await core.wait()


async def slow_job(make_engine: MakeEngine, root: Path, ready: NamedPipe, go: NamedPipe, **more: Any) -> Job:
    return await job_for(
        make_engine(), "Slow_1_0", runs=str(root / "runs"), ready=str(ready.path), go=str(go.path), **more
    )


@pytest.fixture
async def job(make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe) -> Job:
    """A job whose program counts its runs, tells that it runs, and goes on when it is told."""
    return await slow_job(make_engine, tmp_path, ready, go)


@pytest.fixture
async def orphan(job: Job, tmp_path: Path, ready: NamedPipe) -> Job:
    """The job, running, once its core was killed."""
    await run_until_killed(tmp_path, job, ready)
    return job


@pytest.mark.parametrize("point", ["recorded", "folder written", "launcher sent", "running reported"])
async def test_the_next_core_ends_the_run_of_a_core_that_died(
    point: str, make_engine: MakeEngine, job: Job, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    dead = await start_crashing_core(point, tmp_path, job, {})
    assert await dead.wait() == -9
    progress_log = ProgressLog()
    running = asyncio.create_task(make_engine().run(replace(job, resumed=True), progress_log))
    await ready.received()
    go.send()
    report = await running
    assert (report.success, report.message) == (True, "Slow")
    assert [progress.running for progress in progress_log.progress] == [True]
    assert (tmp_path / "runs").read_text() == "one run\n"


async def test_a_running_program_is_adopted(
    make_engine: MakeEngine, orphan: Job, tmp_path: Path, go: NamedPipe
) -> None:
    progress_log = ProgressLog()
    engine = make_engine()
    running = asyncio.create_task(engine.run(replace(orphan, resumed=True), progress_log))
    await progress_log.first()
    assert is_alive(program_pid(engine))
    go.send()
    assert (await running).message == "Slow"
    assert (tmp_path / "runs").read_text() == "one run\n"


async def test_a_program_that_ended_without_a_core_is_collected(
    make_engine: MakeEngine, orphan: Job, tmp_path: Path, go: NamedPipe
) -> None:
    started = StartRecord.read(tmp_path / "jobs" / make_engine().job_id(orphan.run_id) / "started")
    assert started
    await ended(started, go)
    report = await make_engine().run(replace(orphan, resumed=True), ProgressLog())
    assert (report.success, report.message) == (True, "Slow")
    assert (tmp_path / "runs").read_text() == "one run\n"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_program_that_was_lost_with_its_core_or_machine_is_told_as_such(
    is_restarted: bool, make_engine: MakeEngine, orphan: Job, tmp_path: Path
) -> None:
    file = tmp_path / "jobs" / make_engine().job_id(orphan.run_id) / "started"
    started = StartRecord.read(file)
    assert started
    watch = pidfd_if_alive(started)
    assert watch is not None
    os.killpg(started.pid, signal.SIGKILL)
    await wait_readable(watch)
    os.close(watch)
    if is_restarted:
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot": "another"}))
    report = await make_engine().run(replace(orphan, resumed=True), ProgressLog())
    how = "the machine was restarted while it ran" if is_restarted else "it ended while no core followed it"
    advice = "look at the target before you run it again"
    assert report.message == f"The responder wrote no output/output.json ({how}; {advice}), and printed nothing."


LAUNCHED = {"pid": 812, "pid_started": 90, "supervisor": 811, "supervisor_started": 89, "boot": "this"}


@pytest.mark.parametrize("wrong", [{"pid": 1}, {"supervisor": 1}, {"pid": -5}, {"pid": 2**22}, {"boot": None}])
def test_a_start_record_names_no_process_that_a_launcher_cannot_start(wrong: dict[str, object]) -> None:
    assert StartRecord.parse(json.dumps(LAUNCHED).encode()) == StartRecord(812, 90, 811, 89, "this")
    with pytest.raises(ValueError, match=r"^not what the launcher writes$"):
        StartRecord.parse(json.dumps({**LAUNCHED, **wrong}).encode())


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 4096, b'{"pid": 1e999}'])
def test_a_start_record_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not what the launcher writes$"):
        StartRecord.parse(content)


async def ended(started: StartRecord, go: NamedPipe) -> None:
    watch = pidfd_if_alive(started)
    assert watch is not None
    go.send()
    await wait_readable(watch)
    os.close(watch)


async def test_an_early_output_file_does_not_end_a_run(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    job = await slow_job(make_engine, tmp_path, ready, go, early=True)
    await run_until_killed(tmp_path, job, ready)
    running = asyncio.create_task(make_engine().run(replace(job, resumed=True), ProgressLog()))
    go.send()
    assert (await running).message == "Slow"


async def test_a_report_that_was_not_stored_is_read_again(
    make_engine: MakeEngine, job: Job, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    dead = await start_crashing_core("report read", tmp_path, job, {})
    await ready.received()
    go.send()
    assert await dead.wait() == -9
    assert (await make_engine().run(replace(job, resumed=True), ProgressLog())).message == "Slow"
    assert (tmp_path / "runs").read_text() == "one run\n"


async def test_an_adopted_run_keeps_its_deadline_and_its_children_die_with_it(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe
) -> None:
    config = {"Hanging_1_0": {"jobTimeout": 0.05}}
    engine = make_engine(config=config)
    job = await job_for(engine, "Hanging_1_0", ready=str(ready.path))
    dead = await start_crashing_core("none", tmp_path, job, config)
    pids = json.loads(await ready.received())
    dead.kill()
    await dead.wait()
    report = await engine.run(replace(job, resumed=True), ProgressLog())
    assert report.message == "Timed out after 0.05 minutes"
    assert not [pid for pid in pids if is_alive(pid)]


async def test_a_clock_that_was_set_forward_ends_no_run(
    make_engine: MakeEngine, orphan: Job, tmp_path: Path, go: NamedPipe
) -> None:
    engine = make_engine()
    started = tmp_path / "jobs" / engine.job_id(orphan.run_id) / "started"
    wall = {"at": time.time() - 3600}  # as the time of day was before, which a record may have
    started.write_text(json.dumps({**json.loads(started.read_text()), **wall}))
    running = asyncio.create_task(engine.run(replace(orphan, resumed=True), ProgressLog()))
    go.send()
    assert (await running).message == "Slow"


async def test_a_cancellation_interrupted_by_a_crash_is_finished(
    make_engine: MakeEngine, orphan: Job, tmp_path: Path
) -> None:
    engine = make_engine()
    (tmp_path / "jobs" / engine.job_id(orphan.run_id) / "stop").write_text("cancel")
    assert (await engine.run(replace(orphan, resumed=True), ProgressLog())).message == "Cancelled"


async def test_cancelling_the_coroutine_leaves_the_program_running(
    make_engine: MakeEngine, job: Job, ready: NamedPipe, go: NamedPipe
) -> None:
    engine, progress_log = make_engine(), ProgressLog()
    running = asyncio.create_task(engine.run(job, progress_log))
    await ready.received()
    await progress_log.first()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert is_alive(program_pid(engine))
    again = asyncio.create_task(engine.run(replace(job, resumed=True), ProgressLog()))
    go.send()
    assert (await again).message == "Slow"


async def test_a_core_that_stops_while_a_run_is_started_leaves_it_to_the_next_one(
    make_engine: MakeEngine, job: Job, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    folder = JobFolder(tmp_path / "jobs" / engine.job_id(job.run_id))
    while not folder.path.exists():  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await ready.received()  # it runs all the same
    is_free = False
    while not is_free:
        with job_folder.locked_for_removal(folder) as is_free:
            await asyncio.sleep(0.01)
    go.send()
    assert (await make_engine().run(replace(job, resumed=True), ProgressLog())).message == "Slow"
    assert (tmp_path / "runs").read_text() == "one run\n"


async def test_a_process_with_a_reused_pid_is_not_mistaken_for_the_run(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    job = await job_for(engine, "Forking_1_0")
    await engine.run(job, ProgressLog())
    bystander = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    started = tmp_path / "jobs" / engine.job_id(job.run_id) / "started"
    facts = json.loads(started.read_text())
    started.write_text(json.dumps({**facts, "pid": bystander.pid}))
    report = await engine.run(replace(job, resumed=True), ProgressLog())
    assert report.message == "Forked"
    assert is_alive(bystander.pid)
    await bystander.communicate(b"\n")


async def test_a_run_whose_folder_has_vanished_fails_and_is_not_started_again(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    job = await job_for(make_engine(), "Slow_1_0", runs=str(tmp_path / "runs"))
    report = await make_engine().run(replace(job, resumed=True, seen_running=True), ProgressLog())
    assert report.success is False
    assert report.message.startswith("The job folder of this run has vanished")
    assert not (tmp_path / "runs").exists()


async def test_a_clean_up_at_start_removes_folders_of_actions_that_are_not_open(
    make_engine: MakeEngine, orphan: Job, tmp_path: Path
) -> None:
    engine = make_engine()
    folder = tmp_path / "jobs" / engine.job_id(orphan.run_id)
    started = StartRecord.read(folder / "started")
    assert started
    (tmp_path / "jobs" / f".{folder.name}.half").mkdir()
    (tmp_path / "jobs" / "other-1").mkdir()
    await engine.clean_up_ended(open_actions(orphan.action_id))
    assert folder.exists()
    await engine.clean_up_ended(open_actions("~1"))
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["other-1"]
    assert not is_alive(started.pid)


async def test_a_clean_up_at_start_keeps_folders_that_another_core_follows(
    make_engine: MakeEngine, job: Job, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    await make_engine().clean_up_ended(open_actions())
    go.send()
    assert (await running).message == "Slow"
