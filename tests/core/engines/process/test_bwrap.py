"""Programs under bubblewrap: what they need is there, they end as others do, and nothing runs without it."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.engines import confinement
from core.engines.confinement import unavailable
from core.engines.process import processes
from core.engines.process.engine import ProcessEngine
from core.engines.run_report import IN_BWRAP
from core.settings import ResponderSection
from tests.core.engines.process.conftest import MakeEngine, NamedPipe, ProgressLog, is_alive, job_for, program_pid
from tests.core.engines.process.test_confinement import LASTING, not_refused, responders_in

works = pytest.mark.skipif(bool(unavailable("bwrap")), reason=unavailable("bwrap") or "works here")


@pytest.fixture(scope="module")
def environments() -> Iterator[Path]:
    """Not below /dev, where other tests have their files: a program under bubblewrap has a /dev of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """As above."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def trying(tmp_path: Path) -> Path:
    return responders_in(tmp_path / "responders")


def engine_of(make_engine: MakeEngine, folder: Path, program: str = "", **section: Any) -> ProcessEngine:
    """An engine whose Trying_1_0 runs under bwrap, with another program if one is given."""
    if program:
        (folder / "Trying" / "trying.py").write_text(
            f"import json, os, signal, sys, time\njob = sys.argv[1]\n{program}\n"
        )
    return make_engine(
        folders=(folder,),
        confinement="landlock",
        sections={"Trying_1_0": ResponderSection(confinement="bwrap", **section)},
    )


async def tried(engine: ProcessEngine, *attempts: tuple[str, Any]) -> dict[str, str]:
    report = await engine.run(await job_for(engine, "Trying_1_0", attempts=attempts), ProgressLog())
    assert report.success, report.message
    found: dict[str, str] = report.full["found"]
    return found


@works
async def test_what_a_responder_needs_is_there(make_engine: MakeEngine, trying: Path) -> None:
    needed = ["mine", "temporary", "home", "child", "stop child", "thread", "pipe", "certificates"]
    found = await tried(
        engine_of(make_engine, trying),
        *((what, "") for what in needed),
        *(("resolve", "localhost"), ("zone", "Europe/Berlin"), ("read", "/proc/self/status"), ("write", "/dev/stdout")),
    )
    assert {what: outcome for what, outcome in found.items() if outcome != "done"} == {}


@works
async def test_nothing_is_left_in_memory(make_engine: MakeEngine, trying: Path) -> None:
    assert not_refused(await tried(engine_of(make_engine, trying), *LASTING)) == {}


@works
async def test_the_settings_grant_more(make_engine: MakeEngine, trying: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "list.csv").write_text("known")
    (tmp_path / "state" / "inner").mkdir(parents=True)
    listed, state, inner = tmp_path / "link" / "list.csv", tmp_path / "state", tmp_path / "state" / "inner"
    engine = engine_of(make_engine, trying, readable=(listed, inner), writable=(state,))
    found = await tried(
        engine,
        *(("read", str(listed)), ("write", str(listed)), ("write", f"{state}/mine"), ("write", f"{inner}/mine")),
    )
    assert found.pop(f"write {listed}").startswith("OSError: Read-only")
    assert set(found.values()) == {"done"}
    assert (inner / "mine").read_text() == "planted"


@works
async def test_a_program_that_is_asked_to_end_has_time_to(
    make_engine: MakeEngine, trying: Path, ready: NamedPipe
) -> None:
    report_at_term = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(json.load(open(f"{job}/input/input.json"))["parameters"]["ready"], "w").write("x")
signal.sigwait([signal.SIGTERM])
open(f"{job}/tmp/asked", "w")
"""
    engine = engine_of(make_engine, trying, report_at_term, writable=(ready.path,))
    job = await job_for(engine, "Trying_1_0", ready=str(ready.path))
    run = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    pid = program_pid(engine)
    await engine.cancel(job)
    report = await run
    assert report.message == "Cancelled"
    assert (engine._folder(job.run_id).home / "asked").exists()
    assert not is_alive(pid)


@works
async def test_a_program_that_will_not_end_is_killed(make_engine: MakeEngine, trying: Path, ready: NamedPipe) -> None:
    stubborn = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(json.load(open(f"{job}/input/input.json"))["parameters"]["ready"], "w").write("x")
time.sleep(86396)
"""
    engine = engine_of(make_engine, trying, stubborn, writable=(ready.path,))
    engine._options = replace(engine._options, grace_s=0.2)
    job = await job_for(engine, "Trying_1_0", ready=str(ready.path))
    run = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    await engine.cancel(job)
    assert (await run).message == "Cancelled"
    assert os.fsencode(engine._folder(job.run_id).home) not in processes.homes_in_use()


@works
@pytest.mark.parametrize(
    ("program", "says"),
    [("sys.exit(3)", "(exit code 3)"), ("os.kill(os.getpid(), signal.SIGSEGV)", "(ended by SIGSEGV, a crash)")],
)
async def test_how_it_ended_is_told(make_engine: MakeEngine, trying: Path, program: str, says: str) -> None:
    engine = engine_of(make_engine, trying, program)
    report = await engine.run(await job_for(engine, "Trying_1_0"), ProgressLog())
    assert says in report.message


@works
async def test_the_report_of_a_refused_responder_says_what_to_grant(
    make_engine: MakeEngine, trying: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("token")
    engine = engine_of(make_engine, trying, f"open({str(tmp_path / 'secret')!r})")
    report = await engine.run(await job_for(engine, "Trying_1_0"), ProgressLog())
    assert f"No such file or directory: '{tmp_path / 'secret'}'" in report.message
    assert report.message.endswith(IN_BWRAP)


async def test_without_bwrap_nothing_runs(
    make_engine: MakeEngine, trying: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    confinement._bwrap_unavailable.cache_clear()
    try:
        engine = engine_of(make_engine, trying)
        report = await engine.run(await job_for(engine, "Trying_1_0", attempts=[]), ProgressLog())
        assert not report.success
        assert report.message == (
            "There is no bwrap on this machine; install bubblewrap. "
            "The settings want it for this responder, so it was not started."
        )
        (tmp_path / "bwrap").write_text(
            "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n"
        )
        (tmp_path / "bwrap").chmod(0o755)
        confinement._bwrap_unavailable.cache_clear()
        assert unavailable("bwrap") == ("bwrap doesn't work here (bwrap: No permissions to create a new namespace).")
    finally:
        confinement._bwrap_unavailable.cache_clear()
