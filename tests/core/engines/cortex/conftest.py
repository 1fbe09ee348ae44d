"""Fixtures: a fake Cortex server, engines that call it, and a log of their progress."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.common.tasks import Backoff
from core.engines.base import Engine, Job, Progress, Report
from core.engines.cortex import CortexEngine, PollTiming
from tests.fake_cortex import BLOCKER, FakeCortex, FakeJob

QUICK = PollTiming(
    backoff=Backoff(0.005, 0.01),
    searches=3,
    start_s=1.0,
    retry_after_s=0.01,
    quick_poll_s=0.005,
    waiting_poll_s=1,
    running_poll_s=1,
)

JOB = Job(
    action_id="~12",
    run_id="12-5e",
    responder_id=str(BLOCKER["id"]),
    responder_name="Blocker_1_0",
    data={"_id": "~7", "id": "~7", "title": "Port scan", "createdAt": 1},
    data_type="thehive:alert",
    tlp=2,
    pap=1,
    parameters={"user": "anna@soc.local"},
)
RESUMED = replace(JOB, resumed=True)


class ProgressLog(list[Progress]):
    """Records the progress of a run; a test can wait until the program runs."""

    def __init__(self) -> None:
        super().__init__()
        self.running = asyncio.Event()

    async def __call__(self, progress: Progress) -> None:
        self.append(progress)
        if progress.running:
            self.running.set()


async def begun(engine: Engine, cortex: FakeCortex, progress: ProgressLog) -> tuple[asyncio.Task[Report], FakeJob]:
    """A run, and the server's job for it."""
    return asyncio.create_task(engine.run(JOB, progress)), await cortex.until_job()


@pytest.fixture
async def cortex() -> AsyncIterator[FakeCortex]:
    server = FakeCortex()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def progress() -> ProgressLog:
    return ProgressLog()


@pytest.fixture
async def make_engine(cortex: FakeCortex) -> AsyncIterator[Callable[..., CortexEngine]]:
    made: list[CortexEngine] = []

    def make(**more: Any) -> CortexEngine:
        settings: dict[str, Any] = {
            "url": cortex.url,
            "api_key": cortex.api_key,
            "timing": QUICK,
            "timeout_s": 30.0,
        } | more
        made.append(CortexEngine("soar", **settings))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture
def engine(make_engine: Callable[..., CortexEngine]) -> CortexEngine:
    return make_engine()
