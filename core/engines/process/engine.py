"""The process engine: runs responders as processes of this machine that outlive core."""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from core.engines import job_folder, run_report
from core.engines.base import Job, Report
from core.engines.confinement import Mode
from core.engines.definitions import BUNDLED
from core.engines.environments import Environments
from core.engines.job_folder import JobFolder, RunFacts
from core.engines.job_folder_engine import (
    GRACE_S,
    EngineOptions,
    JobFolderEngine,
    NoResultError,
    NotStartedError,
    Run,
    RunState,
)
from core.engines.process import processes
from core.engines.process.catalogue_loader import CatalogueLoader, RunnableResponder
from core.engines.process.processes import StartRecord
from core.engines.process.starter import ProgramStarter, RunLimits
from core.engines.secret_reader import SecretReader

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass
class _ProcessRun(Run):
    record: StartRecord
    pidfd: int | None
    """Readable when the run has ended; None if it had before this core followed it."""


class ProcessEngine(JobFolderEngine[RunnableResponder, _ProcessRun]):
    """The engine described in core/docs/responder-process.md#one-run."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        folders: Sequence[Path],
        python: Path | None = None,
        limits: RunLimits | None = None,
        confinement: Mode = "landlock",
        secret_reader: SecretReader | None = None,
    ) -> None:
        """`folders` hold responder folders and win over the bundled ones."""
        catalogue = CatalogueLoader(
            options.name,
            organisation=options.organisation,
            folders=(*(folder.absolute() for folder in folders), BUNDLED),
            sections=options.responders,
            environments=Environments(options.environments.absolute(), python=python),
            confinement=confinement,
        )
        super().__init__(options, catalogue, secret_reader)
        self._starter = ProgramStarter(limits, confinement)
        self._homes: Collection[bytes] = ()
        """The HOME of every process when core started: which job folders have processes that no core follows."""

    async def _leftovers(self) -> set[str]:
        job_ids = await super()._leftovers()
        if job_ids:
            self._homes = await asyncio.to_thread(processes.homes_in_use)
        return job_ids

    # --- one run

    @property
    def runs_programs(self) -> bool:
        return True

    async def _begin(self, folder: JobFolder, job: Job) -> _ProcessRun:
        """It takes one thread, and a second one if secrets have to be read in between."""
        begun = await _in_thread(lambda: self._adopt_or_start(folder, job))
        if isinstance(begun, RunnableResponder):
            runnable = replace(begun, configured=await self._secret_reader.fill_in(begun.configured))
            return await _in_thread(lambda: self._start(folder, job, runnable))
        return begun

    def _adopt_or_start(self, folder: JobFolder, job: Job) -> _ProcessRun | RunnableResponder:
        """As `_begin`; the responder if some of its secrets have to be read first. Blocks."""
        record = StartRecord.read(folder.started)
        if record:
            with ExitStack() as held:
                held.callback(os.close, job_folder.lock(folder))
                return _followed(held, folder, job, record, folder.facts_left())
        if job.seen_running:
            processes.kill_leftovers(None, folder.home, just_ended=False)
            raise NoResultError(run_report.VANISHED)
        runnable = self._catalogue.load().by_id.get(job.responder_id)
        if runnable is None:
            raise NotStartedError(f"{job.responder_name} is no longer available here.")
        return runnable if runnable.configured.sources else self._start(folder, job, runnable)

    def _start(self, folder: JobFolder, job: Job, runnable: RunnableResponder) -> _ProcessRun:
        """Create the folder and start the program. Blocks for some milliseconds."""
        if refusal := self._starter.refusal(runnable):
            log.warning("run_refused", action_id=job.action_id, reason=refusal)
            raise NotStartedError(refusal)
        mode = self._starter.mode(runnable)
        confined = "" if mode == "none" else mode
        with ExitStack() as held:
            held.callback(os.close, job_folder.create(folder, job, runnable.configured, confined=confined))
            facts = folder.facts()  # before the program can change them
            # The launcher starts nothing that is cancelled from here on: then JOB/stop says so.
            record = None if self._is_cancelled(job) else self._starter.start(folder, runnable)
            if record is None:
                lines = run_report.last_lines(run_report.read_printed(folder.printed))
                failure = f"The responder could not be started. {lines}".strip()
                raise NotStartedError("Cancelled" if self._is_cancelled(job) else failure)
            return _followed(held, folder, job, record, facts)

    async def _until_ended(self, run: _ProcessRun) -> str:
        if run.pidfd is not None:
            await processes.wait_readable(run.pidfd)
        return ""

    async def _record(self, run_id: str) -> StartRecord | None:
        """What was started, from memory if possible, where no program can change it. Raises OSError or ValueError."""
        known = self._running.get(run_id)
        return known.record if known else await asyncio.to_thread(StartRecord.read, self._folder(run_id).started)

    async def _state(self, run_id: str) -> RunState:
        try:
            record = await self._record(run_id)
        except (OSError, ValueError):
            return "running"  # the program has tampered with its folder
        if record is None:
            return "not started"
        with _pidfd(record) as pidfd:
            return "ended" if pidfd is None else "running"

    async def _stop(self, run_id: str) -> None:
        """Terminate the process group, and kill it if it still runs after the grace period."""
        folder = self._folder(run_id)
        try:
            record = await self._record(run_id)
        except (OSError, ValueError) as error:  # `run` will see its end
            log.warning("job_folder_unreadable", folder=folder.path.name, error=str(error))
            await self._end(folder)
            return
        if record is None:
            return
        with _pidfd(record) as pidfd:
            if pidfd is None:
                return
            processes.signal_group(record, signal.SIGTERM)
            if not await _ends(pidfd, self._grace_s):
                processes.signal_group(record, signal.SIGKILL)
                if not await _ends(pidfd, self._grace_s):
                    await asyncio.to_thread(processes.kill_leftovers, record, folder.home, just_ended=True)
                    processes.kill_supervisor(record)
                    await processes.wait_readable(pidfd)

    async def _report(self, run: _ProcessRun, stop_reason: str) -> Report:
        return await asyncio.to_thread(_collect, run, stop_reason)

    async def _end(self, folder: JobFolder) -> bool:
        await asyncio.to_thread(_kill_run, folder, self._homes)
        return True


def _followed(held: ExitStack, folder: JobFolder, job: Job, record: StartRecord, facts: RunFacts | None) -> _ProcessRun:
    """The run, which takes over what is `held`."""
    pidfd = processes.pidfd_if_alive(record)
    if pidfd is not None:
        held.callback(os.close, pidfd)
    return _ProcessRun(
        job,
        folder,
        facts,
        stop_reason=folder.stop_reason(),
        started_at=record.at,
        has_ended=pidfd is None,
        held=held.pop_all(),
        record=record,
        pidfd=pidfd,
    )


async def _in_thread(begin: Callable[[], T]) -> T:
    """Call `begin` in a thread, which finishes also if core stops meanwhile; the run is let go of then."""
    beginning = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(_let_go)
        raise


def _let_go(beginning: asyncio.Future[Any]) -> None:
    if not beginning.cancelled() and beginning.exception() is None and isinstance(beginning.result(), _ProcessRun):
        beginning.result().held.close()


def _collect(run: _ProcessRun, stop_reason: str) -> Report:
    """Read what the program wrote, once all processes of the run are killed.

    A supervisor that exited by itself has killed them, and only then has it an exit code. It is reaped last: as long as
    it is a zombie, its pid can't be reused.
    """
    exit_description = processes.exit_of_child(run.record.supervisor, reap=False)
    if not processes.is_exit(exit_description):
        processes.kill_leftovers(run.record, run.folder.home, just_ended=not run.has_ended)
    processes.exit_of_child(run.record.supervisor, reap=True)
    if not exit_description and run.has_ended:
        exit_description = run_report.RESTARTED if processes.is_of_earlier_boot(run.record) else run_report.UNSEEN
    return run_report.make_report(run.folder, run.facts, stop_reason or run.folder.stop_reason(), exit_description)


async def _ends(pidfd: int, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await processes.wait_readable(pidfd)
    except TimeoutError:
        return False
    return True


@contextlib.contextmanager
def _pidfd(record: StartRecord) -> Iterator[int | None]:
    """A descriptor that becomes readable when the run ends; None when it has ended."""
    pidfd = processes.pidfd_if_alive(record)
    try:
        yield pidfd
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _kill_run(folder: JobFolder, homes: Collection[bytes]) -> None:
    """Kill all processes of the run in a job folder. `homes` is the HOME of every process, as far as known."""
    record, is_tampered = None, False
    try:
        record = StartRecord.read(folder.started)
    except (OSError, ValueError):
        is_tampered = True
    is_alive = False
    if record:
        with _pidfd(record) as pidfd:
            is_alive = pidfd is not None
            if pidfd is not None:
                processes.signal_group(record, signal.SIGKILL)
                if not select.select([pidfd], [], [], GRACE_S)[0]:
                    processes.kill_supervisor(record)
    if is_alive or is_tampered or os.fsencode(folder.home) in homes:
        processes.kill_leftovers(None if is_tampered else record, folder.home, just_ended=is_alive)
