"""A log that can't be written costs log lines, and nothing else."""

import asyncio
import fcntl
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import structlog

from core.common import logs
from tests import programs
from tests.core.core_process import ALERT, CoreSetup, setup_in
from tests.programs import Program

PIPE_BYTES = 16_384


@contextmanager
def full() -> Iterator[int]:
    """A file on a disk without room."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def dead() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


@contextmanager
def stuck() -> Iterator[int]:
    """A pipe that is full, and whose reader stands still."""
    reading, writing = os.pipe()
    _fill(writing)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def _fill(writing: int) -> None:
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b".")
    os.set_blocking(writing, True)


@asynccontextmanager
async def core_that_logs_to(setup: CoreSetup, stderr: int) -> AsyncIterator[tuple[Program, str]]:
    process = await programs.start(
        *("core.cli", "core", "--config", str(setup.folder / "settings.toml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().removeprefix("core: ").strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("target", "reason"),
    [(full, "No space left on device"), (dead, "Broken pipe"), (stuck, "its reader does not read")],
)
async def test_what_is_committed_is_answered_with_its_success(
    tmp_path: Path, target: Callable[[], AbstractContextManager[int]], reason: str
) -> None:
    setup = await setup_in(tmp_path)
    with target() as stderr:
        async with (
            core_that_logs_to(setup, stderr) as (process, url),
            httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {setup.keys['lead']}"}) as http,
        ):
            for number in range(20):
                answer = await http.post("/api/alert", json={**ALERT, "sourceRef": str(number)})
                assert answer.status_code == 201
            assert (await http.post("/api/alert", json={})).status_code == 400
            assert (await http.get("/api/alert/~999")).status_code == 404
            health = await http.get("/health")
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    assert health.status_code == 200
    assert health.json()["status"] == "degraded"
    log = health.json()["parts"][-1]
    assert (log["name"], log["ok"]) == ("log", False)
    assert reason in log["message"]


async def test_nobody_needs_to_read_the_line_that_tells_the_address(tmp_path: Path) -> None:
    """Standard output is full: core serves all the same, until it is told to stop."""
    (tmp_path / "settings.toml").write_text("[core]\nport = 0\nlog_level = 'info'\n")
    with full() as stdout:
        process = await programs.start(
            *("core.cli", "core", "--config", str(tmp_path / "settings.toml")),
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        lines = [json.loads(line) async for line in _until_listening(process.stderr)]
        async with httpx.AsyncClient(base_url=lines[-1]["url"]) as http:
            while True:
                with suppress(httpx.ConnectError):
                    assert (await http.get("/health")).status_code == 200
                    break
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()
    assert (process.returncode, b"Traceback" in rest) == (0, False)


async def _until_listening(lines: asyncio.StreamReader) -> AsyncIterator[str]:
    async for line in lines:
        yield line.decode()
        if b'"listening"' in line:
            return


async def test_an_error_that_nobody_can_read_still_ends_with_its_code(tmp_path: Path) -> None:
    with full() as stderr:
        process = await programs.start("core.cli", "core", "--config", str(tmp_path / "missing.toml"), stderr=stderr)
        assert await process.wait() == 2


# --- one log --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Ends of a small pipe that logs go to; afterwards logging is as it was."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(reading, False)
    with closing(os.fdopen(writing, "w")) as stream:
        logs.configure("info", to=stream)
        yield reading, writing
    os.close(reading)
    logs.silence()
    structlog.reset_defaults()
    root.handlers, root.level = before


def test_lines_that_were_lost_are_counted_where_the_log_goes_on(pipe: tuple[int, int]) -> None:
    reading, _ = pipe
    log = structlog.get_logger()
    for number in range(100):
        log.info("event", number=number, text="x" * 1_000)
    assert "its reader does not read" in logs.problem()
    before = [json.loads(line) for line in os.read(reading, PIPE_BYTES).decode().splitlines() if line.endswith("}")]
    assert logs.problem() == ""
    log.info("back")
    logging.getLogger("library").warning("of a library")
    lines = os.read(reading, PIPE_BYTES).decode().lstrip("\n").splitlines()
    lost, *after = [json.loads(line) for line in lines]
    assert (lost["event"], lost["lines"]) == ("log_lines_lost", 100 - len(before))
    assert [line["number"] for line in before] == list(range(len(before)))
    assert [line["event"] for line in after] == ["back", "of a library"]


async def test_each_line_is_written_at_once_or_counted(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    log = structlog.get_logger()
    log.info("first")
    log.warning("second")
    await asyncio.to_thread(log.info, "of a thread")
    assert [line["event"] for line in _lines_in(reading)] == ["first", "second", "of a thread"]
    _fill(writing)
    log.info("lost")
    log.info("lost as well")
    assert "2 lines are lost" in logs.problem()


def test_what_the_garbage_collector_logs_in_the_middle_of_a_write_is_written_after_it(tmp_path: Path) -> None:
    """As asyncio does for a task whose error nobody looks at. Into a file, since a pipe may be full."""
    program = """
import gc, logging, structlog
from core.common import logs

class Noisy:
    def __init__(self):
        self.cycle = self

    def __del__(self):
        logging.getLogger("asyncio").error("late")

logs.configure("info")
for threshold in range(1, 25):
    gc.set_threshold(threshold)
    for _ in range(100):
        Noisy()
        structlog.get_logger().info("line")
gc.collect()
"""
    with (tmp_path / "log").open("w") as file:
        subprocess.run([sys.executable, "-c", program], stderr=file, timeout=30, check=True)
    found = Counter(json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines())
    assert found == {"line": 2_400, "late": 2_400}


def _lines_in(reading: int) -> list[dict[str, object]]:
    return [json.loads(line) for line in os.read(reading, PIPE_BYTES).decode().splitlines()]


def test_a_line_larger_than_the_pipe_does_not_block(pipe: tuple[int, int]) -> None:
    structlog.get_logger().info("event", exception="x" * 1_000_000)  # which isn't cut, as other values are
    assert "1 lines are lost" in logs.problem()


class Unprintable:
    """A value that can't be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


def test_a_value_that_cannot_be_shown_costs_its_line_only(pipe: tuple[int, int]) -> None:
    reading, _ = pipe
    log = structlog.get_logger()
    log.info("rude", value=Unprintable())
    log.info("half of a pair", text="\ud800")
    lines = [json.loads(line) for line in os.read(reading, PIPE_BYTES).decode().splitlines()]
    assert [line["event"] for line in lines] == ["log_lines_lost", "half of a pair"]


def test_a_stream_that_is_closed_costs_its_lines_only() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    stream = io.StringIO()
    logs.configure("info", to=stream)
    stream.close()
    structlog.get_logger().info("event")
    assert "closed file" in logs.problem()
    logs.silence()
    structlog.reset_defaults()
    root.handlers, root.level = before
