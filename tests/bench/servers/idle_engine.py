"""An engine that does nothing, so that only core is measured."""

import asyncio
from typing import Literal

from core.engines.base import Catalogue, Engine, Job, OnProgress, Progress, Report, Responder

IDLE = Responder(
    id="r-idle",
    name="Idle_1_0",
    version="1.0",
    description="Does nothing",
    data_types=("thehive:alert", "thehive:case", "thehive:case_task", "thehive:case_task_log", "thehive:case_artifact"),
)


class IdleEngine(Engine):
    """Runs that never end, or that end at once."""

    def __init__(self, mode: Literal["never_ends", "ends_at_once"], capacity: int | None) -> None:
        self._mode = mode
        self._capacity = capacity
        self.started: asyncio.Queue[OnProgress] = asyncio.Queue()

    @property
    def name(self) -> str:
        return "local"

    @property
    def capacity(self) -> int | None:
        return self._capacity

    @property
    def runs_here(self) -> bool:
        return True

    async def catalogue(self) -> Catalogue:
        return Catalogue((IDLE,))

    def job_id(self, run_id: str) -> str:
        return f"local-{run_id}"

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        if self._mode == "never_ends":
            await on_progress(Progress(self.job_id(job.run_id), running=True))
            self.started.put_nowait(on_progress)
            await asyncio.get_running_loop().create_future()
        return Report(True, message="Nothing was done.")

    async def cancel(self, job: Job) -> None:
        return
