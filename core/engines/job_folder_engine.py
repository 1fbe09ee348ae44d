"""What the engines share that run responders on this host, each run in a job folder."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import structlog

from core.common.errors import ResponderBotError
from core.engines import files, job_folder
from core.engines.base import Catalogue, Engine, Job, OnProgress, OpenRunIds, Progress, Report
from core.engines.catalogue_loader import CatalogueLoader, LoadedCatalogue, R
from core.engines.job_folder import OUTPUT_LIMIT_BYTES, JobFolder, RunFacts
from core.engines.secret_reader import SecretReader, UnreadableSecretError
from core.settings import ResponderSection

GRACE_S = 5.0

_MARK_TIMEOUT_S = 1.0
"""A stop waits no longer than this for a slow disk to record the reason."""

RunState = Literal["not started", "running", "ended"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EngineOptions:
    """What the settings say to every engine that uses job folders."""

    name: str
    organisation: str
    product: str
    responders: Mapping[str, ResponderSection]
    jobs: Path
    environments: Path
    capacity: int
    keep_jobs: bool
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES
    grace_s: float = GRACE_S
    """Between SIGTERM and SIGKILL."""
    clock: Callable[[], float] = time.time
    """Returns seconds since the epoch."""


@dataclass
class Run:
    """A run whose program was started."""

    job: Job
    folder: JobFolder
    facts: RunFacts | None
    """None if the program has removed them."""
    stop_reason: str
    """Why it is to be stopped, as an earlier core recorded; else ""."""
    started_at: float
    """Seconds since the epoch."""
    has_ended: bool
    """Whether it had before this core followed it."""
    held: ExitStack
    """The lock on the folder, and what else is open while it is followed."""


RunT = TypeVar("RunT", bound=Run)


class NoResultError(Exception):
    """Why a run has no result, as a sentence: it can't start, or can't be stopped."""


class NotStartedError(NoResultError):
    """Why its program never ran."""


class JobFolderEngine(Engine, Generic[R, RunT]):
    """Follows runs, and stops them when they are cancelled or reach their deadline."""

    def __init__(
        self, options: EngineOptions, catalogue: CatalogueLoader[Any, R], secret_reader: SecretReader | None = None
    ) -> None:
        self._name = options.name
        self._catalogue = catalogue
        self._product = options.product
        self._jobs = options.jobs.absolute()
        self._capacity = options.capacity
        self._keep_jobs = options.keep_jobs
        self._clock = options.clock
        self._grace_s = options.grace_s
        self._output_limit_bytes = options.output_limit_bytes
        self._secret_reader = secret_reader or SecretReader()
        self._followers: dict[str, int] = {}
        """How many `run` calls each run has now."""
        self._running: dict[str, RunT] = {}
        self._stop_reasons: dict[str, str] = {}
        """Of the runs that this engine follows: unlike JOB/stop, a program can't change them."""

    # --- what differs between engines

    @abstractmethod
    async def _begin(self, folder: JobFolder, job: Job) -> RunT:
        """Start the program unless an earlier core did.

        Raises NoResultError, UnreadableSecretError, OSError or ValueError.
        """

    @abstractmethod
    async def _until_ended(self, run: RunT) -> str:
        """Wait until a run ends. Returns "" then, or earlier with one of STOP_REASONS if it has to be stopped."""

    @abstractmethod
    async def _stop(self, run_id: str) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Returns when the run has ended."""

    @abstractmethod
    async def _report(self, run: RunT, stop_reason: str) -> Report:
        """The report of a run that has ended."""

    @abstractmethod
    async def _state(self, run_id: str) -> RunState:
        """What has become of a run."""

    @abstractmethod
    async def _end(self, folder: JobFolder) -> bool:
        """Kill and remove all of a run but its job folder; False if that failed."""

    async def _leftovers(self) -> set[str]:
        """The job ids of all runs that have left anything, whether or not they have ended."""
        folders = await asyncio.to_thread(job_folder.list_folders, self._jobs, self._name)
        return {folder.path.name for folder in folders}

    # --- the engine

    @property
    def name(self) -> str:
        return self._name

    @property
    def capacity(self) -> int | None:
        return self._capacity

    @property
    def runs_here(self) -> bool:
        return True

    async def catalogue(self) -> Catalogue:
        """The responders now; files are read again only if they have changed.

        Raises ResponderBotError("unavailable") when it can't be found out, as when the machine is out of memory.
        """
        return (await self._load()).catalogue

    async def _load(self) -> LoadedCatalogue[R]:
        """As `catalogue`, with what runs the responders."""
        try:
            return await asyncio.to_thread(self._catalogue.load)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            sentence = f"The responders can't be read now ({reason}); raise that limit, or run less on this machine."
            raise ResponderBotError("unavailable", sentence) from error

    async def unreadable_secrets(self) -> list[str]:
        loaded = await self._load()
        return await self._secret_reader.problems(runnable.configured for runnable in loaded.by_id.values())

    def job_id(self, run_id: str) -> str:
        return job_folder.folder_name(self._name, run_id)

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """See `Engine.run`. What is kept of the run stays until `clean_up`, so that its report can be read again."""
        run_id = job.run_id
        self._followers[run_id] = self._followers.get(run_id, 0) + 1
        try:
            return await self._run(job, on_progress)
        except NoResultError as error:
            return Report(success=False, is_known=isinstance(error, NotStartedError), message=str(error))
        finally:
            self._followers[run_id] -= 1
            if not self._followers[run_id]:
                del self._followers[run_id]
                self._running.pop(run_id, None)
                self._stop_reasons.pop(run_id, None)

    async def cancel(self, job: Job) -> None:
        """Stop a run. Raises "conflict" when nothing runs."""
        state = await self._state(job.run_id)
        is_followed = job.run_id in self._followers
        if state == "ended":
            raise ResponderBotError("conflict", "This run has already ended.")
        if state == "not started" and not is_followed and not job.cancelled:
            raise ResponderBotError("conflict", "This engine didn't start this run, so it can't stop it.")
        reason = self._stop_reasons.setdefault(job.run_id, "cancel") if is_followed else "cancel"
        await self._mark_stopped(job.run_id, reason)
        if state == "running":
            await self._stop(job.run_id)

    async def clean_up(self, run_id: str) -> None:
        """End what is left of a run; remove its job folder unless `keep_jobs` is set."""
        await self._clean_up(self._folder(run_id))

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        """At start, `clean_up` after all runs that aren't open, except those that another core follows."""
        job_ids = await self._leftovers()
        open_job_ids = {self.job_id(run_id) for run_id in await open_run_ids()}
        for job_id in sorted(job_ids - open_job_ids):
            folder = JobFolder(self._jobs / job_id)
            with ExitStack() as stack:
                if await asyncio.to_thread(stack.enter_context, job_folder.locked_for_removal(folder)):
                    await self._clean_up(folder)

    async def close(self) -> None:
        """End commands that print secrets. Runs go on; their descriptors are closed by `run`."""
        self._secret_reader.close()

    def _folder(self, run_id: str) -> JobFolder:
        return JobFolder(self._jobs / self.job_id(run_id), self._output_limit_bytes)

    async def _clean_up(self, folder: JobFolder) -> None:
        if await self._end(folder) and not self._keep_jobs:
            await asyncio.to_thread(files.remove_tree, folder.path)

    # --- one run

    async def _run(self, job: Job, on_progress: OnProgress) -> Report:
        if ":" not in job.data_type:
            job = replace(job, data_type=f"{self._product}:{job.data_type}")
        folder = self._folder(job.run_id)
        try:
            run = await self._begin(folder, job)
        except UnreadableSecretError as error:
            log.warning("secret_not_read", action_id=job.action_id, reason=str(error))
            raise NotStartedError(str(error)) from None
        except (OSError, ValueError) as error:
            log.warning("run_not_prepared", action_id=job.action_id, reason=str(error))
            await self._end(folder)  # it may have started
            raise NoResultError(job_folder.why_not_prepared(error)) from error
        try:
            self._running[job.run_id] = run
            await on_progress(Progress(self.job_id(job.run_id), running=True))
            return await self._follow(run)
        finally:
            run.held.close()

    async def _follow(self, run: RunT) -> Report:
        """Wait until the run ends, stop it if that is due, and read its result."""
        run_id = run.job.run_id
        reason = self._stop_reasons.get(run_id) or run.stop_reason
        if not reason and not run.has_ended:
            minutes = run.facts.timeout_minutes if run.facts else 0.0  # without facts there can be no result
            try:
                async with asyncio.timeout(max(0.0, run.started_at + minutes * 60 - self._clock())):
                    reason = await self._until_ended(run)
            except TimeoutError:
                reason = "timeout"
        if reason:
            reason = self._stop_reasons.setdefault(run_id, reason)
            if not run.has_ended:
                await self._mark_stopped(run_id, reason)
                await self._stop(run_id)
        return await self._report(run, self._stop_reasons.get(run_id, ""))

    def _is_cancelled(self, job: Job) -> bool:
        """Whether a run was cancelled, here or while an earlier core had it. Blocks."""
        return job.cancelled or job.run_id in self._stop_reasons or bool(self._folder(job.run_id).stop_reason())

    async def _mark_stopped(self, run_id: str, reason: str) -> None:
        """Record why a run is stopped, for the core that will report on it.

        An error of the folder or the disk neither prevents the stop nor delays it by more than _MARK_TIMEOUT_S.
        """
        marking = asyncio.ensure_future(asyncio.to_thread(self._folder(run_id).mark_stopped, reason))
        await asyncio.wait([marking], timeout=_MARK_TIMEOUT_S)
