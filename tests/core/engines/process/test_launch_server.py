"""A launch server saves the start of an interpreter; no run depends on it, and nothing of it is in a program."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.engines.process import launch_program
from core.engines.process.engine import ProcessEngine
from core.engines.process.launch_server import LaunchServer
from core.engines.process.processes import StartRecord
from tests.core.engines.process.conftest import MakeEngine, NamedPipe, ProgressLog, is_alive, job_for, program_pid


async def ended(engine: ProcessEngine, action_id: str = "~1") -> str:
    return (await engine.run(await job_for(engine, "Silent_1_0", action_id=action_id), ProgressLog())).message


def server_of(engine: ProcessEngine) -> int:
    return engine._starter.launch_server.pid


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def slow_run(engine: ProcessEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe) -> "asyncio.Task[Any]":
    """A run whose program waits for `go`."""
    progress_log = ProgressLog()
    parameters: dict[str, Any] = {"runs": str(tmp_path / "runs"), "ready": str(ready.path), "go": str(go.path)}
    running = asyncio.create_task(engine.run(await job_for(engine, "Slow_1_0", **parameters), progress_log))
    await ready.received()
    await progress_log.first()
    return running


async def test_one_server_launches_children_of_core(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    await ended(engine)
    server = server_of(engine)
    assert parent_of(server) == os.getpid()
    running = await slow_run(engine, tmp_path, ready, go)
    assert server_of(engine) == server
    supervisor = parent_of(program_pid(engine))
    assert parent_of(supervisor) == os.getpid()
    go.send()
    assert (await running).message == "Slow"
    assert not Path(f"/proc/{supervisor}").exists()  # reaped
    await engine.close()
    assert not is_alive(server)


async def test_runs_outlive_the_server_and_the_next_one_has_another(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    engine = make_engine()
    running = await slow_run(engine, tmp_path, ready, go)
    server = server_of(engine)
    os.kill(server, signal.SIGKILL)
    assert "(exit code 3)" in await ended(engine)  # core starts this launcher itself
    assert "(exit code 3)" in await ended(engine, "~2")
    assert server_of(engine) not in (0, server)
    go.send()
    assert (await running).message == "Slow"


async def test_a_server_that_does_not_answer_is_killed_and_not_needed(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine._starter.launch_server = LaunchServer(answer_s=0.5)
    await ended(engine)
    server = server_of(engine)
    os.kill(server, signal.SIGSTOP)
    assert "(exit code 3)" in await ended(engine, "~2")
    assert not is_alive(server)
    assert "(exit code 3)" in await ended(engine, "~3")
    assert server_of(engine) not in (0, server)


async def test_what_is_too_long_for_the_server_is_started_by_core(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "x" * launch_program.LIMIT_BYTES)
    engine = make_engine()
    report = await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    assert report.full["environment"]["no_proxy"] == "x" * launch_program.LIMIT_BYTES
    assert server_of(engine) == 0


async def test_a_hundred_runs_at_once_each_run_once(make_engine: MakeEngine) -> None:
    engine = make_engine()
    messages = await asyncio.gather(*(ended(engine, f"~{number}") for number in range(100)))
    assert [message for message in messages if "(exit code 3)" not in message] == []
    records = [StartRecord.read(engine._folder(f"~{number}").started) for number in range(100)]
    assert len({record.pid for record in records if record}) == 100


def memory_of(pid: int) -> Iterator[bytes]:
    """The readable memory of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            addresses, rights = line.split()[:2]
            if not rights.startswith("r") or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in addresses.split("-"))
            memory.seek(begin)
            yield memory.read(end - begin)


async def test_the_server_holds_no_secret_and_nothing_open(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-" + "never-to-be-seen")
    monkeypatch.setenv("http_proxy", "http://ann:" + "proxy-never-seen@127.0.0.1:1")
    engine = make_engine(config={"Echo_1_0": {"api_key": "key-" + "never-seen"}})
    report = await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    assert report.full["environment"]["http_proxy"] == "http://REMOVED@127.0.0.1:1"
    server = server_of(engine)
    secrets = (b"never-to-be-seen", b"proxy-never-seen", b"key-never-seen", b"Beacon to")
    assert [word for part in memory_of(server) for word in secrets if word in part] == []
    opened = sorted(os.readlink(f"/proc/{server}/fd/{name}") for name in os.listdir(f"/proc/{server}/fd"))
    assert (opened[:3], opened[3].partition(":")[0], len(opened)) == ([os.devnull] * 3, "socket", 4)
