"""Programs that try to outlive their run, or to make core change files that are not theirs."""

import asyncio
import json
import os
import signal
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.engines import files
from core.engines.process.launcher import Usage
from core.engines.process.processes import StartRecord, wait_readable
from tests.core.engines.process.conftest import (
    PREAMBLE,
    MakeEngine,
    NamedPipe,
    ProgressLog,
    is_alive,
    job_for,
    program_pid,
    responder,
)
from tests.core.engines.process.test_resume import slow_job, start_crashing_core
from tests.core.scripted_engine import open_actions

DAEMON = f"""{PREAMBLE}
    import os, signal
    from pathlib import Path
    asked = json.loads((Path(sys.argv[1]) / "input" / "input.json").read_text())["parameters"]
    alive, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.write(told, str(os.getpid()).encode())
            os.closerange(0, 100)
            os.execve(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], {{}})
        os._exit(0)
    daemon = int(os.read(alive, 100))
    say(message="Left a daemon", daemon=daemon, program=os.getpid())
    if "ready" in asked:
        Path(asked["ready"]).write_text(json.dumps([os.getpid(), daemon]))
        with open(asked["go"]) as go:
            go.readline()
"""
"""Leaves a process without any trace of its run: its own session, no variables, no inherited files, no parent."""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of responders with the daemon."""
    responder(tmp_path / "own", "Daemon", DAEMON)
    return tmp_path / "own"


async def wait_gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    await wait_readable(watch)
    os.close(watch)


async def test_a_daemon_without_any_trace_of_its_run_ends_with_it(make_engine: MakeEngine, own: Path) -> None:
    engine = make_engine(folders=(own,))
    report = await engine.run(await job_for(engine, "Daemon_1_0"), ProgressLog())
    assert (report.success, report.message) == (True, "Left a daemon")
    assert not is_alive(report.full["daemon"])


async def test_a_daemon_of_one_run_ends_and_that_of_another_goes_on(
    make_engine: MakeEngine, own: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine(folders=(own,))
    longer = await job_for(engine, "Daemon_1_0", ready=str(ready.path), go=str(go.path))
    running = asyncio.create_task(engine.run(longer, ProgressLog()))
    _, daemon = json.loads(await ready.received())
    report = await engine.run(await job_for(engine, "Daemon_1_0", action_id="~2"), ProgressLog())
    assert (is_alive(report.full["daemon"]), is_alive(daemon)) == (False, True)
    go.send()
    await running
    assert not is_alive(daemon)


async def test_a_daemon_ends_with_a_run_that_is_cancelled(
    make_engine: MakeEngine, own: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine(folders=(own,))
    job = await job_for(engine, "Daemon_1_0", ready=str(ready.path), go=str(go.path))
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    pids = json.loads(await ready.received())
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    assert not [pid for pid in pids if is_alive(pid)]


async def test_a_daemon_ends_with_its_run_while_no_core_lives(
    make_engine: MakeEngine, own: Path, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine(folders=(own,))
    job = await job_for(engine, "Daemon_1_0", ready=str(ready.path), go=str(go.path))
    dead = await start_crashing_core("none", tmp_path, job, {}, folders=(own,))
    _, daemon = json.loads(await ready.received())
    dead.kill()
    await dead.wait()
    go.send()
    await wait_gone(daemon)
    report = await engine.run(replace(job, resumed=True), ProgressLog())
    assert (report.success, report.message) == (True, "Left a daemon")


UNSUPERVISED = f"""{PREAMBLE}
    import os, signal
    from pathlib import Path
    asked = json.loads((Path(sys.argv[1]) / "input" / "input.json").read_text())["parameters"]
    child = os.fork()
    if child == 0:
        os.environ.clear()
        os.execve(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], {{}})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(asked["ready"]).write_text(json.dumps([os.getpid(), child]))
    os.kill(os.getppid(), asked["signal"])
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_program_that_kills_its_supervisor_ends_with_its_run(
    number: signal.Signals, make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe
) -> None:
    responder(tmp_path / "own", "Unsupervised", UNSUPERVISED)
    engine = make_engine(folders=(tmp_path / "own",), grace_s=0.2)
    job = await job_for(engine, "Unsupervised_1_0", ready=str(ready.path), signal=int(number))
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    pids = json.loads(await ready.received())
    if number == signal.SIGSTOP:
        await engine.cancel(job)
    report = await running
    assert report.success is False
    for pid in pids:  # they are sent SIGKILL, which the kernel carries out in its own time
        await wait_gone(pid)


async def test_orphans_of_a_run_do_not_stay_zombies(make_engine: MakeEngine, tmp_path: Path) -> None:
    program = f"""{PREAMBLE}
    import os
    for _ in range(200):
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            os._exit(0)
        os.wait()
    reaped = lambda: all(line.split()[2] != "Z" or line.split()[3] != str(os.getppid())
                         for line in (open(f"/proc/{{name}}/stat").read() for name in os.listdir("/proc")
                                      if name.isdigit() and os.path.exists(f"/proc/{{name}}/stat")))
    import time
    while not reaped():
        time.sleep(0.01)
    say(message="Reaped")
    """
    responder(tmp_path / "own", "Orphans", program)
    engine = make_engine(folders=(tmp_path / "own",))
    assert (await engine.run(await job_for(engine, "Orphans_1_0"), ProgressLog())).message == "Reaped"


# --- programs that replace core's own files


def planting(kind: str, target: Path, *, then: str = "") -> str:
    """A program that replaces every file that core may read in a job folder."""
    return textwrap.dedent(f"""
    import json, os, signal, sys
    from pathlib import Path
    run = Path(sys.argv[1])
    asked = json.loads((run / "input" / "input.json").read_text())["parameters"]
    os.chdir("/")
    for folder in (run, run.parent):
        for name in ("stop", "started", "facts.json", "follower", "gate", "printed", "output"):
            path = folder / name
            if os.path.lexists(path):
                os.rename(path, f"{{path}}.aside")
            if {kind!r} == "pipe":
                os.mkfifo(path)
            elif {kind!r} == "directory":
                (path / "in" / "it").mkdir(parents=True)
            else:
                path.symlink_to({str(target)!r})
    Path(asked["ready"]).write_text(str(os.getpid()))
    {then or "signal.pause()"}
    """)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """A folder of someone else, whose modes and content must not change."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("unchanged")
    (target / "inner").mkdir()
    for path in (target, target / "inner"):
        path.chmod(0o751)
    (target / "file").chmod(0o644)
    yield target
    seen = {path.name: oct(path.stat().st_mode & 0o777) for path in (target, *target.rglob("*"))}
    assert seen == {"target": "0o751", "file": "0o644", "inner": "0o751"}
    assert (target / "file").read_text() == "unchanged"


@pytest.mark.parametrize("kind", ["directory", "link"])
async def test_a_deadline_holds_whatever_is_in_the_job_folder(
    kind: str, make_engine: MakeEngine, tmp_path: Path, target: Path, ready: NamedPipe
) -> None:
    responder(tmp_path / "own", "Planting", planting(kind, target))
    engine = make_engine(folders=(tmp_path / "own",), config={"Planting_1_0": {"jobTimeout": 0.02}})
    job = await job_for(engine, "Planting_1_0", ready=str(ready.path))
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    pid = int(await ready.received())
    assert (await running).message == "Timed out after 0.02 minutes"
    assert not is_alive(pid)
    await engine.clean_up(job.run_id)
    assert not (tmp_path / "jobs" / engine.job_id(job.run_id)).exists()


@pytest.mark.parametrize("kind", ["directory", "link"])
async def test_cancelling_works_whatever_is_in_the_job_folder(
    kind: str, make_engine: MakeEngine, tmp_path: Path, target: Path, ready: NamedPipe
) -> None:
    responder(tmp_path / "own", "Planting", planting(kind, target))
    engine = make_engine(folders=(tmp_path / "own",))
    job = await job_for(engine, "Planting_1_0", ready=str(ready.path))
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    pid = int(await ready.received())
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    assert not is_alive(pid)


async def test_a_run_whose_folder_was_removed_is_killed(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    job = await slow_job(make_engine, tmp_path, ready, go)
    dead = await start_crashing_core("none", tmp_path, job, {})
    await ready.received()
    dead.kill()
    await dead.wait()
    folder = tmp_path / "jobs" / engine.job_id(job.run_id)
    started = StartRecord.read(folder / "started")
    assert started
    folder.rename(tmp_path / "aside")
    report = await engine.run(replace(job, resumed=True, seen_running=True), ProgressLog())
    assert report.message.startswith("The job folder of this run has vanished")
    await wait_gone(started.pid)


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
async def test_a_clean_up_at_start_kills_what_runs_in_a_folder_that_it_cannot_read(
    kind: str, make_engine: MakeEngine, tmp_path: Path, target: Path, ready: NamedPipe
) -> None:
    responder(tmp_path / "own", "Planting", planting(kind, target))
    engine = make_engine(folders=(tmp_path / "own",))
    job = await job_for(engine, "Planting_1_0", ready=str(ready.path))
    dead = await start_crashing_core("none", tmp_path, job, {}, folders=(tmp_path / "own",))
    pid = int(await ready.received())
    dead.kill()
    await dead.wait()
    await engine.clean_up_ended(open_actions())
    await wait_gone(pid)
    assert not (tmp_path / "jobs" / engine.job_id(job.run_id)).exists()


@pytest.mark.parametrize("removal", ["clean_up", "clean_up_ended"])
async def test_a_symlink_in_place_of_a_job_folder_is_removed_and_not_followed(
    removal: str, make_engine: MakeEngine, tmp_path: Path, target: Path
) -> None:
    program = f"""{PREAMBLE}
    import os, shutil
    run = pathlib.Path(sys.argv[1])
    say(message="Gone")
    job = run if (run / "started").exists() else run.parent
    os.rename(job, {str(tmp_path / "aside")!r})
    os.symlink({str(target)!r}, job)
    """
    responder(tmp_path / "own", "Moving", program)
    engine = make_engine(folders=(tmp_path / "own",))
    job = await job_for(engine, "Moving_1_0")
    await engine.run(job, ProgressLog())
    folder = tmp_path / "jobs" / engine.job_id(job.run_id)
    assert folder.is_symlink()
    await (engine.clean_up(job.run_id) if removal == "clean_up" else engine.clean_up_ended(open_actions()))
    assert not folder.is_symlink()


def test_nothing_behind_a_symlink_counts_as_used_by_a_run(tmp_path: Path) -> None:
    job, other = tmp_path / "job", tmp_path / "other"
    for folder in (job / "run", other / "run"):
        (folder / "output").mkdir(parents=True)
        (folder / "output" / "file").write_bytes(bytes(65_536))
    assert usage_over(job) == "disk"
    (job / "run").rename(tmp_path / "aside")
    (job / "run").symlink_to(other / "run")
    assert usage_over(job) == ""
    (tmp_path / "link").symlink_to(other)
    assert usage_over(tmp_path / "link") == ""


def usage_over(job: Path) -> str:
    usage = Usage(most_bytes=4096, most_files=10)
    usage.add_folders(str(job))
    return usage.over


async def test_a_symlink_in_place_of_a_new_job_folder_is_replaced(
    make_engine: MakeEngine, tmp_path: Path, target: Path
) -> None:
    engine = make_engine()
    job = await job_for(engine, "Forking_1_0")
    folder = tmp_path / "jobs" / engine.job_id(job.run_id)
    folder.parent.mkdir()
    folder.symlink_to(target)
    assert (await engine.run(job, ProgressLog())).message == "Forked"


async def test_deeply_nested_unreadable_directories_are_removed(tmp_path: Path, target: Path) -> None:
    top = tmp_path / "jobs" / "local-1"
    top.mkdir(parents=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        os.symlink(target, "link", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o000)
        os.close(here)
        here = below
    os.close(here)
    await asyncio.to_thread(files.remove_tree, top)
    assert not top.exists()


async def test_many_entries_in_one_directory_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "jobs" / "local-1"
    top.mkdir(parents=True)
    for number in range(2500):
        (top / f"file{number}").touch()
        if number % 100 == 0:
            (top / f"d{number}" / "in" / "it").mkdir(parents=True)
    await asyncio.to_thread(files.remove_tree, top)
    assert not top.exists()


@pytest.mark.parametrize("umask", [0o000, 0o777])
async def test_modes_are_private_whatever_the_umask(umask: int, make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine()
    engine._jobs = tmp_path / "state" / "jobs"
    job = await job_for(engine, "Slow_1_0", runs="/dev/null", ready="/dev/null", go="/dev/null")
    before = os.umask(umask)
    try:
        report = await engine.run(job, ProgressLog())
    finally:
        os.umask(before)
    assert report.message == "Slow"
    found = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_file()} == {"0o600"}


# --- programs that still run when their action has ended


async def run_without_core(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe, **settings: Any
) -> tuple[Any, int]:
    engine = make_engine(**settings)
    job = await slow_job(make_engine, tmp_path, ready, go)
    dead = await start_crashing_core("none", tmp_path, job, {})
    await ready.received()
    dead.kill()
    await dead.wait()
    progress_log = ProgressLog()
    following = asyncio.create_task(engine.run(replace(job, resumed=True), progress_log))
    await progress_log.first()
    pid = program_pid(engine)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert is_alive(pid)
    return engine, pid


@pytest.mark.parametrize("keep_jobs", [False, True])
async def test_clean_up_kills_a_run(
    keep_jobs: bool, make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine, pid = await run_without_core(make_engine, tmp_path, ready, go, keep_jobs=keep_jobs)
    await engine.clean_up("8257-5e")
    await wait_gone(pid)
    assert (tmp_path / "jobs" / engine.job_id("8257-5e")).exists() is keep_jobs


async def test_a_clean_up_at_start_kills_even_if_job_folders_are_kept(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine, pid = await run_without_core(make_engine, tmp_path, ready, go, keep_jobs=True)
    await engine.clean_up_ended(open_actions("~8257"))
    assert is_alive(pid)
    await engine.clean_up_ended(open_actions())
    await wait_gone(pid)
    assert (tmp_path / "jobs" / engine.job_id("8257-5e")).exists()
