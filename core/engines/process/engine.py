"""The process engine: runs responders as processes of this machine that outlive core."""

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from core.common.errors import ResponderBotError
from core.engines import files, job_folder, run_report
from core.engines.base import Catalogue, Job, OnProgress, OpenRunIds, Progress, Report
from core.engines.confinement import Mode
from core.engines.definitions import BUNDLED
from core.engines.environments import Environments
from core.engines.job_folder import OUTPUT_LIMIT_BYTES, JobFolder, RunFacts
from core.engines.process import processes
from core.engines.process.catalogue_loader import CatalogueLoader, RunnableResponder
from core.engines.process.processes import StartRecord
from core.engines.process.starter import ProgramStarter, RunLimits
from core.engines.secret_reader import SecretReader, UnreadableSecretError
from core.settings import ResponderSection

_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""

_MARK_TIMEOUT_S = 1.0
"""A kill waits no longer than this for a slow disk to record the reason."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ProcessEngine:
    """The engine described in core/docs/responder-process.md#one-run."""

    def __init__(
        self,
        name: str,
        *,
        organisation: str,
        product: str,
        folders: Sequence[Path],
        responders: Mapping[str, ResponderSection],
        jobs: Path,
        environments: Path,
        capacity: int,
        keep_jobs: bool,
        clock: Callable[[], float] = time.time,
        python: Path | None = None,
        limits: RunLimits | None = None,
        grace_s: float = _GRACE_S,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        confinement: Mode = "landlock",
        secret_reader: SecretReader | None = None,
    ) -> None:
        """`folders` hold responder folders and win over the bundled ones; `clock` returns seconds since the epoch."""
        self._name = name
        self._product = product
        self._jobs = jobs.absolute()
        self._capacity = capacity
        self._keep_jobs = keep_jobs
        self._clock = clock
        self._grace_s = grace_s
        self._output_limit_bytes = output_limit_bytes
        self._catalogue = CatalogueLoader(
            name,
            organisation=organisation,
            folders=(*(folder.absolute() for folder in folders), BUNDLED),
            sections=responders,
            environments=Environments(environments.absolute(), python=python),
        )
        self._starter = ProgramStarter(limits, confinement)
        self._secret_reader = secret_reader or SecretReader()
        self._followers: dict[str, int] = {}
        """How many `run` calls each run has now."""
        self._running: dict[str, StartRecord] = {}
        self._stop_reasons: dict[str, str] = {}
        """Of the runs that this engine follows: unlike JOB/stop, a program can't change them."""

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
        """What is on offer now; files are read again only when they have changed.

        Raises ResponderBotError("unavailable") when the machine is out of descriptors, memory or threads.
        """
        try:
            return (await asyncio.to_thread(self._catalogue.load)).catalogue
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            sentence = f"The responders can't be read now ({reason}); raise that limit, or run less on this machine."
            raise ResponderBotError("unavailable", sentence) from error

    def job_id(self, run_id: str) -> str:
        return job_folder.folder_name(self._name, run_id)

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """See `Engine.run`. The job folder stays until `clean_up`: a report that wasn't stored can be read again."""
        self._followers[job.run_id] = self._followers.get(job.run_id, 0) + 1
        try:
            return await self._run(job, on_progress)
        finally:
            self._followers[job.run_id] -= 1
            if not self._followers[job.run_id]:
                del self._followers[job.run_id]
                self._running.pop(job.run_id, None)
                self._stop_reasons.pop(job.run_id, None)

    async def cancel(self, job: Job) -> None:
        """Terminate a run, and kill it after the grace period. Raises "conflict" when nothing runs."""
        folder = self._folder(job.run_id)
        try:
            record = await self._start_record(job.run_id)
            if record is None:
                if job.run_id not in self._followers and not job.cancelled:
                    raise ResponderBotError("conflict", "This engine didn't start this run, so it can't stop it.")
                self._stop_reasons.setdefault(job.run_id, "cancel")
                await _mark_stopped(folder, "cancel")
                record = await self._start_record(job.run_id)
        except (OSError, ValueError) as error:  # the program has tampered with its folder; `run` will see its end
            log.warning("job_folder_unreadable", action_id=job.action_id, error=str(error))
            await asyncio.to_thread(_kill_run, folder)
            return
        if record is None:
            return
        with _pidfd(record) as pidfd:
            if pidfd is None:
                raise ResponderBotError("conflict", "This run has already ended.")
            await self._stop(job.run_id, record, pidfd, "cancel")

    async def unreadable_secrets(self) -> list[str]:
        """A sentence for each responder with a value that can't be read now. Reads all values, and runs no responder.

        Raises as `catalogue` does.
        """
        await self.catalogue()
        loaded = await asyncio.to_thread(self._catalogue.load)
        return await self._secret_reader.problems(runnable.configured for runnable in loaded.by_id.values())

    async def clean_up(self, run_id: str) -> None:
        """Kill what still runs in the job folder; remove it unless `keep_jobs` is set."""
        await asyncio.to_thread(self._kill_and_remove, self._folder(run_id))

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        """At start, `clean_up` after all runs that aren't open, except those that another core follows."""
        folders = await asyncio.to_thread(job_folder.list_folders, self._jobs, self._name)
        ended = job_folder.of_ended_runs(folders, self._name, await open_run_ids())
        await asyncio.to_thread(self._clean_up_all, ended)

    async def close(self) -> None:
        """End commands that print secrets. Running jobs go on; their descriptors are closed by `run`."""
        self._secret_reader.close()

    def _folder(self, run_id: str) -> JobFolder:
        return JobFolder(self._jobs / self.job_id(run_id), self._output_limit_bytes)

    async def _start_record(self, run_id: str) -> StartRecord | None:
        """What was started, from memory if possible, where no program can change it. Raises OSError or ValueError."""
        known = self._running.get(run_id)
        return known or await asyncio.to_thread(StartRecord.read, self._folder(run_id).started)

    # --- one run

    async def _run(self, job: Job, on_progress: OnProgress) -> Report:
        folder = self._folder(job.run_id)
        try:
            begun = await self._start_or_adopt(folder, job)
        except _CannotRunError as error:
            return Report(success=False, message=str(error))
        except (OSError, ValueError) as error:
            log.warning("run_not_prepared", action_id=job.action_id, reason=str(error))
            await asyncio.to_thread(_kill_run, folder)  # it may have started
            return Report(success=False, message=job_folder.why_not_prepared(error))
        try:
            if begun.record is None:
                return await asyncio.to_thread(self._report_not_started, job.run_id, begun.facts)
            self._running[job.run_id] = begun.record
            await on_progress(Progress(self.job_id(job.run_id), running=True))
            return await self._follow(job.run_id, begun.record, begun)
        finally:
            os.close(begun.lock)

    async def _start_or_adopt(self, folder: JobFolder, job: Job) -> "_BegunRun":
        """Start the program unless an earlier core did. Raises _CannotRunError, OSError or ValueError.

        It takes one thread, and a second one if secrets have to be read in between.
        """
        found = await _begin(lambda: self._adopt_or_start(folder, job))
        if isinstance(found, _BegunRun):
            return found
        try:
            runnable = replace(found, configured=await self._secret_reader.fill_in(found.configured))
        except UnreadableSecretError as error:
            log.warning("secret_not_read", action_id=job.action_id, reason=str(error))
            raise _CannotRunError(str(error)) from None
        return await _begin(lambda: self._start(folder, job, runnable))

    def _adopt_or_start(self, folder: JobFolder, job: Job) -> "_BegunRun | RunnableResponder":
        """As `_start_or_adopt`; the responder if some of its secrets have to be read first. Blocks."""
        record = StartRecord.read(folder.started)
        if record:
            return _adopt(folder, record)
        if job.seen_running:
            processes.kill_leftovers(None, folder.home, just_ended=False)
            raise _CannotRunError(run_report.VANISHED)
        runnable = self._catalogue.load().by_id.get(job.responder_id)
        if runnable is None:
            raise _CannotRunError(f"{job.responder_name} is no longer on offer here.")
        return runnable if runnable.configured.sources else self._start(folder, job, runnable)

    def _start(self, folder: JobFolder, job: Job, runnable: RunnableResponder) -> "_BegunRun":
        """Create the folder and start the program. Blocks for some milliseconds."""
        if refusal := self._starter.refusal(runnable):
            log.warning("run_refused", action_id=job.action_id, reason=refusal)
            raise _CannotRunError(refusal)
        job = replace(job, data_type=job.data_type if ":" in job.data_type else f"{self._product}:{job.data_type}")
        mode, account = self._starter.mode(runnable), runnable.account
        confined = "" if mode == "none" else mode
        lock = job_folder.create_locked(folder, job, runnable.configured, confined=confined, account=account)
        try:
            facts = folder.facts()  # before the program can change them
            if job.run_id in self._stop_reasons:
                _try_to_mark_stopped(folder, "cancel")
            return _BegunRun(lock, self._starter.start(folder, runnable), facts, folder.stop_reason())
        except BaseException:
            os.close(lock)
            raise

    def _report_not_started(self, run_id: str, facts: RunFacts | None) -> Report:
        folder = self._folder(run_id)
        if reason := self._stop_reasons.get(run_id) or folder.stop_reason():
            return run_report.make_report(folder, facts, reason, "")
        lines = run_report.last_lines(run_report.read_printed(folder.printed))
        return Report(success=False, message=f"The responder could not be started. {lines}".strip())

    async def _follow(self, run_id: str, record: StartRecord, begun: "_BegunRun") -> Report:
        """Wait until the run ends, stop it if that is due, and read its result."""
        facts = begun.facts
        if begun.stop_reason:
            self._stop_reasons.setdefault(run_id, begun.stop_reason)
        with _pidfd(record) as pidfd:
            if pidfd is not None and (reason := self._stop_reasons.get(run_id, "")):
                await self._stop(run_id, record, pidfd, reason)
            elif pidfd is not None:
                await self._wait_until_deadline(run_id, record, facts, pidfd)
            return await asyncio.to_thread(self._collect, run_id, record, facts, pidfd is not None)

    async def _wait_until_deadline(self, run_id: str, record: StartRecord, facts: RunFacts | None, pidfd: int) -> None:
        minutes = facts.timeout_minutes if facts else 0.0  # without facts there can be no result: stop it now
        try:
            async with asyncio.timeout(max(0.0, record.at + minutes * 60 - self._clock())):
                await processes.wait_readable(pidfd)
        except TimeoutError:
            await self._stop(run_id, record, pidfd, "timeout")

    async def _stop(self, run_id: str, record: StartRecord, pidfd: int, reason: str) -> None:
        """Terminate the process group, and kill it if it still runs after the grace period."""
        if run_id in self._followers:
            reason = self._stop_reasons.setdefault(run_id, reason)
        await _mark_stopped(self._folder(run_id), reason)
        processes.signal_group(record, signal.SIGTERM)
        if not await _ends(pidfd, self._grace_s):
            processes.signal_group(record, signal.SIGKILL)
            if not await _ends(pidfd, self._grace_s):
                await asyncio.to_thread(processes.kill_leftovers, record, self._folder(run_id).home, just_ended=True)
                processes.kill_supervisor(record)
                await processes.wait_readable(pidfd)

    def _collect(self, run_id: str, record: StartRecord, facts: RunFacts | None, just_ended: bool) -> Report:
        """Read what the program wrote, once all processes of the run are killed.

        A supervisor that exited by itself has killed them, and only then has it an exit code. It is reaped last: as
        long as it is a zombie, its pid can't be reused.
        """
        folder = self._folder(run_id)
        exit_description = processes.exit_of_child(record.supervisor, reap=False)
        if not processes.is_exit(exit_description):
            processes.kill_leftovers(record, folder.home, just_ended=just_ended)
        processes.exit_of_child(record.supervisor, reap=True)
        reason = self._stop_reasons.get(run_id) or folder.stop_reason()
        if not exit_description and not just_ended:
            exit_description = run_report.RESTARTED if processes.is_of_earlier_boot(record) else run_report.UNSEEN
        return run_report.make_report(folder, facts, reason, exit_description)

    # --- leftovers

    def _clean_up_all(self, ended: Sequence[JobFolder]) -> None:
        if not ended:
            return
        homes = processes.homes_in_use()
        for folder in ended:
            with job_folder.locked_for_removal(folder) as is_free:
                if is_free:
                    self._kill_and_remove(folder, homes)

    def _kill_and_remove(self, folder: JobFolder, homes: Collection[bytes] | None = None) -> None:
        _kill_run(folder, homes)
        if not self._keep_jobs:
            files.remove_tree(folder.path)


class _CannotRunError(Exception):
    """Why a run can't start, as a sentence."""


@dataclass(frozen=True)
class _BegunRun:
    """A run whose program was started, or should have been."""

    lock: int
    """Descriptor of the lock on the folder."""
    record: StartRecord | None
    """What was started; None if it could not be."""
    facts: RunFacts | None
    """None if the program has removed them."""
    stop_reason: str
    """Why it is to be stopped, as asked for before the start or by an earlier core; else ""."""


def _adopt(folder: JobFolder, record: StartRecord) -> _BegunRun:
    lock = job_folder.lock(folder)
    try:
        return _BegunRun(lock, record, folder.facts(), folder.stop_reason())
    except (OSError, ValueError):
        return _BegunRun(lock, record, None, folder.stop_reason())


async def _begin(begin: Callable[[], T]) -> T:
    """Call `begin` in a thread, which finishes also if core stops meanwhile; the lock is freed then."""
    beginning = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(_free_lock)
        raise


def _free_lock(beginning: asyncio.Future[Any]) -> None:
    if not beginning.cancelled() and beginning.exception() is None and isinstance(beginning.result(), _BegunRun):
        os.close(beginning.result().lock)


async def _mark_stopped(folder: JobFolder, reason: str) -> None:
    """Record why a run is stopped before it is signalled, for the core that will report on it.

    An error of the folder or the disk neither prevents the signal nor delays it by more than _MARK_TIMEOUT_S.
    """

    marking = asyncio.ensure_future(asyncio.to_thread(_try_to_mark_stopped, folder, reason))
    await asyncio.wait([marking], timeout=_MARK_TIMEOUT_S)


def _try_to_mark_stopped(folder: JobFolder, reason: str) -> None:
    try:
        folder.mark_stopped(reason)
    except FileNotFoundError:
        return  # the folder does not exist yet, or no longer
    except OSError as error:
        log.warning("stop_reason_not_recorded", folder=folder.path.name, error=str(error))


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


def _kill_run(folder: JobFolder, homes: Collection[bytes] | None = None) -> None:
    """Kill all processes of the run in a job folder. `homes` is the HOME of every process, if known."""
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
                if not select.select([pidfd], [], [], _GRACE_S)[0]:
                    processes.kill_supervisor(record)
    has_leftovers = is_tampered if homes is None else os.fsencode(folder.home) in homes
    if is_alive or has_leftovers:
        processes.kill_leftovers(None if is_tampered else record, folder.home, just_ended=is_alive)
