"""Child processes on a core of their own: servers here, the client there."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY_S = 60.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""What processor time is counted in."""


def cores() -> tuple[set[int], set[int]]:
    """The cores of servers, and those of the client."""
    have = sorted(os.sched_getaffinity(0))
    return ({have[0]}, {have[1]}) if len(have) > 1 else (set(have), set(have))


SERVER_CORES, CLIENT_CORES = cores()
"""Taken at import, before anything is pinned."""


@dataclass
class Child:
    """A running server."""

    process: asyncio.subprocess.Process
    said: Mapping[str, Any]
    """What it printed when it was ready: `url`, and more."""

    @property
    def url(self) -> str:
        return str(self.said["url"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def busy_s(self) -> float:
        """Processor time so far, of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    async def ask(self, **question: Any) -> dict[str, Any]:
        """One line of JSON in, one out."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        line = await self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
        return found


async def spawn(
    module: str, settings: Mapping[str, Any], *, on: set[int], env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start `python -m tests.bench.<module> SETTINGS` on those cores; what it logs goes to a file in its folder."""
    argv: Sequence[str] = (sys.executable, "-m", f"tests.bench.{module}", json.dumps(settings, default=str))
    with (Path(settings["folder"]) / f"{module}.log").open("ab") as logged:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, on)  # inherited, so that the child never runs anywhere else
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=logged,
            )
        finally:
            os.sched_setaffinity(0, before)


def tell(said: Mapping[str, Any]) -> None:
    """What a child says to who started it: one line of JSON on standard output."""
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def serving(
    module: str, folder: Path, *, on: set[int] = SERVER_CORES, env: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Child]:
    """A server that runs until the end of the block; all its files are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    process = await spawn(module, {"folder": folder, **settings}, on=on, env=env)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start; see {folder / f'{module}.log'}")
        yield Child(process, json.loads(line))
    finally:
        await ended(process)


async def ended(process: asyncio.subprocess.Process) -> None:
    """Ask a child to end, and wait."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()
