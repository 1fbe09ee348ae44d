"""An engine for tests that does what it is told, when it is told, over the real contract."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Engine, Job, OnProgress, OpenRunIds, Progress, Report, Responder, Skipped

BLOCK_HOST = Responder(
    id="r-block",
    name="BlockHost_1_0",
    version="1.0",
    description="Cuts a host off the network",
    data_types=("thehive:alert", "thehive:case_task_log"),
    max_tlp=2,
    max_pap=2,
)
NOTIFY = Responder(
    id="r-notify",
    name="Notify_2_1",
    version="2.1",
    description="Tells somebody",
    data_types=("thehive:alert", "thehive:case", "thehive:case_task", "thehive:case_task_log", "thehive:case_artifact"),
)


@dataclass
class Run:
    """One job in the engine's hands."""

    job: Job
    on_progress: OnProgress
    outcome: asyncio.Future[Report]

    async def begin(self, job_id: str = "job-1") -> None:
        await self.on_progress(Progress(engine_job_id=job_id, running=True))

    def finish(self, report: Report) -> None:
        self.outcome.set_result(report)


def run_id_of(action_id: str) -> str:
    """The run id of a job that a test makes, and not core."""
    return f"{action_id.removeprefix('~')}-5e"


def action_id_of(run_id: str) -> str:
    return f"~{run_id.partition('-')[0]}"


def open_actions(*ids: str) -> OpenRunIds:
    """What an engine is given to learn that the runs of these actions are open."""

    async def open_run_ids() -> Sequence[str]:
        return [run_id_of(action_id) for action_id in ids]

    return open_run_ids


@dataclass
class ScriptedEngine(Engine):
    """Keeps each job until the test finishes it; `taken` tells when one has come."""

    engine_name: str = "local"
    offered: Sequence[Responder] = (BLOCK_HOST, NOTIFY)
    at_once: int | None = None
    stoppable: bool = True
    fixed_job_ids: bool = True
    local: bool = True
    down: str = ""
    left_out: tuple[Skipped, ...] = ()
    runs: list[Run] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    swept: list[set[str]] = field(default_factory=list)
    taken: asyncio.Queue[Run] = field(default_factory=asyncio.Queue)

    @property
    def name(self) -> str:
        return self.engine_name

    @property
    def capacity(self) -> int | None:
        return self.at_once

    @property
    def runs_here(self) -> bool:
        return self.local

    async def catalogue(self) -> Catalogue:
        if self.down:
            raise ResponderBotError("unavailable", self.down)
        return Catalogue(tuple(self.offered), self.left_out)

    def job_id(self, run_id: str) -> str:
        return f"job-of-{action_id_of(run_id)}" if self.fixed_job_ids else ""

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        run = Run(job, on_progress, asyncio.get_running_loop().create_future())
        self.runs.append(run)
        self.taken.put_nowait(run)
        return await run.outcome

    async def cancel(self, job: Job) -> None:
        if not self.stoppable:
            raise ResponderBotError("conflict", f"The engine {self.name} can't stop a running responder.")
        for run in self.runs:
            if run.job.action_id == job.action_id and not run.outcome.done():
                run.finish(Report(False, message="killed"))

    async def clean_up(self, run_id: str) -> None:
        self.forgotten.append(action_id_of(run_id))

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        self.swept.append(set(map(action_id_of, await open_run_ids())))
