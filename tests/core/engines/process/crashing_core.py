"""A minimal core for the crash tests: runs one action, and kills itself with SIGKILL at a given point."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from core.engines import job_folder
from core.engines.base import Job, Progress
from core.engines.process.engine import ProcessEngine
from tests.core.engines.process.engines import engine_in


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def on_progress(progress: Progress) -> None:
    """The program has started."""
    if POINT == "running reported":
        die()


async def live(engine: ProcessEngine, job: Job) -> None:
    runnable = engine._catalogue.load().by_id[job.responder_id]
    if POINT == "recorded":
        die()
    if POINT == "folder written":
        job_folder.create(engine._folder(job.run_id), job, runnable.configured)
        die()
    if POINT == "launcher sent":
        folder = engine._folder(job.run_id)
        job_folder.create(folder, job, runnable.configured)
        _, status = os.pipe()
        engine._starter.spawn(folder, runnable, status)
        die()
    await engine.run(job, on_progress)
    if POINT == "report read":
        die()
    raise SystemExit(f"{POINT} was never reached")


if __name__ == "__main__":
    POINT, folder, raw = sys.argv[1:]
    facts: dict[str, Any] = json.loads(raw)
    settings: dict[str, Any] = {"config": facts["config"]}
    if facts["folders"]:
        settings["folders"] = tuple(map(Path, facts["folders"]))
    asyncio.run(live(engine_in(Path(folder), **settings), Job(**facts["job"])))
