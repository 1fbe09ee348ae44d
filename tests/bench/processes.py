"""Processes that the measurements start, with servers and client pinned to different CPUs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 60.0
CLOCK_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit of processor time in `/proc`."""


def cpu_sets() -> tuple[set[int], set[int]]:
    """The CPUs of servers, and those of the client: the same one if there is only one."""
    available = sorted(os.sched_getaffinity(0))
    return ({available[0]}, {available[1]}) if len(available) > 1 else (set(available), set(available))


SERVER_CPUS, CLIENT_CPUS = cpu_sets()
"""Read at import, before this process pins itself."""


@dataclass
class ServerProcess:
    """A running server."""

    process: asyncio.subprocess.Process
    ready: Mapping[str, Any]
    """Its first line: `url`, and more."""

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_s(self) -> float:
        """Processor time of all its threads so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * CLOCK_TICK_S

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Send a line of JSON, and return the line that it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        line = await self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line)
        return answer


async def spawn(
    module: str, settings: Mapping[str, Any], *, cpus: set[int], env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start `python -m tests.bench.<module> SETTINGS` on those CPUs; its log goes to a file in its folder."""
    argv: Sequence[str] = (sys.executable, "-m", f"tests.bench.{module}", json.dumps(settings, default=str))
    with (Path(settings["folder"]) / f"{module}.log").open("ab") as log, on_cpus(cpus):
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )


@contextmanager
def on_cpus(cpus: set[int]) -> Iterator[None]:
    """Processes that are started within inherit these CPUs, so they never run anywhere else."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def send_line(content: Mapping[str, Any]) -> None:
    """Send a line of JSON to the parent, over standard output."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def serving(
    module: str, folder: Path, *, cpus: set[int] = SERVER_CPUS, env: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[ServerProcess]:
    """A server that runs until the end of the block; all its files are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    process = await spawn(module, {"folder": folder, **settings}, cpus=cpus, env=env)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY_TIMEOUT_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start; see {folder / f'{module}.log'}")
        yield ServerProcess(process, json.loads(line))
    finally:
        await terminate(process)


async def terminate(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, after 10 s SIGKILL, and wait for the end."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()
