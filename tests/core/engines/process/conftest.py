"""Fixtures of the process engine: engines on real programs, and named pipes to synchronise with programs."""

import asyncio
import os
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from core.engines.base import Job, Progress
from core.engines.process.engine import ProcessEngine
from core.engines.process.processes import StartRecord, wait_readable
from tests.core.engines.process.engines import engine_in
from tests.core.scripted_engine import run_id_of
from tests.responder_folders import write_responder

MakeEngine = Callable[..., ProcessEngine]

PREAMBLE = """
    import json, pathlib, sys
    def say(**full):
        (pathlib.Path(sys.argv[1]) / "output" / "output.json").write_text(json.dumps({"success": True, "full": full}))
"""
"""Begins a program that answers with `say`."""


def responder(root: Path, name: str, program: str) -> None:
    """Write the responder `<name>_1_0` with one file below `root`."""
    write_responder(root, name, textwrap.dedent(program))


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by all tests: creating the plain environment takes a while."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
async def make_engine(tmp_path: Path, environments: Path) -> AsyncIterator[MakeEngine]:
    """Creates engines on the folder of this test. The second one stands for core after a restart."""
    (tmp_path / "environments").symlink_to(environments)
    made: list[ProcessEngine] = []

    def make(**settings: Any) -> ProcessEngine:
        made.append(engine_in(tmp_path, **settings))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


async def job_for(
    engine: ProcessEngine, name: str, *, action_id: str = "~8257", resumed: bool = False, **parameters: Any
) -> Job:
    """A job for the responder with the definition id `name`."""
    found = next(item for item in (await engine.catalogue()).responders if item.name == name)
    return Job(
        action_id=action_id,
        run_id=run_id_of(action_id),
        responder_id=found.id,
        responder_name=found.name,
        data={"_id": "~12", "title": "Beacon to 198.51.100.7"},
        data_type="thehive:alert",
        tlp=2,
        pap=1,
        parameters=parameters,
        resumed=resumed,
    )


class ProgressLog:
    """Records the progress of a run; a test can wait for the first report."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self._first = asyncio.Event()

    async def __call__(self, progress: Progress) -> None:
        self.progress.append(progress)
        self._first.set()

    async def first(self) -> Progress:
        await self._first.wait()
        return self.progress[0]


class NamedPipe:
    """A named pipe for a signal from a program (`received`) or to it (`send`)."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Opened for reading and writing, so that neither side waits for the other to open it.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    async def received(self) -> str:
        """Wait for the program; return what it wrote."""
        await wait_readable(self._descriptor)
        return os.read(self._descriptor, 4096).decode()

    def send(self) -> None:
        """Resume a program that reads a line from here."""
        os.write(self._descriptor, b"go\n")

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
async def ready(tmp_path: Path) -> AsyncIterator[NamedPipe]:
    ready = NamedPipe(tmp_path / "ready")
    yield ready
    ready.close()


@pytest.fixture
async def go(tmp_path: Path) -> AsyncIterator[NamedPipe]:
    go = NamedPipe(tmp_path / "go")
    yield go
    go.close()


def program_pid(engine: ProcessEngine, action_id: str = "~8257") -> int:
    """The pid of the program that was started for an action."""
    record = StartRecord.read(engine._folder(run_id_of(action_id)).started)
    assert record
    return record.pid


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
