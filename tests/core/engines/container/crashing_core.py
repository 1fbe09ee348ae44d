"""A minimal core for the crash tests: runs one action in a container, until it is killed or kills itself."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from core.engines.base import Job, Progress
from core.engines.container.engine import ContainerEngine
from core.settings import ResponderSection
from tests.core.engines.container.engines import engine_in


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def on_progress(progress: Progress) -> None:
    if POINT == "running reported":
        die()


async def live(engine: ContainerEngine, job: Job) -> None:
    await engine.catalogue()
    if POINT == "recorded":
        die()
    if POINT in ("folder written", "container started", "runtime called"):
        folder, runnable = engine._folder(job.run_id), await engine._runnable(job)
        await engine._create(folder, job, runnable)
        if POINT != "folder written":
            start = asyncio.create_task(engine._start(folder, job, runnable))
            # The runtime is killed anywhere within the call.
            await asyncio.wait([start], timeout=0.05 if POINT == "runtime called" else None)
        die()
    await engine.run(job, on_progress)
    if POINT == "report read":
        die()
    raise SystemExit(f"{POINT} was never reached")


if __name__ == "__main__":
    POINT, place, raw = sys.argv[1:]
    facts: dict[str, Any] = json.loads(raw)
    sections = {key: ResponderSection(**values) for key, values in facts["sections"].items()}
    asyncio.run(live(engine_in(Path(place), None, sections=sections), Job(**facts["job"])))
