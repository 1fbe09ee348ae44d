"""The process engine: runs responders as processes of this machine that outlive core, each in a job folder."""

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog

from core.common.errors import ResponderBotError
from core.engines import files, job_folder, run_report
from core.engines.base import Catalogue, Engine, Job, OnProgress, OpenRunIds, Progress, Report
from core.engines.configuration import ConfiguredResponder
from core.engines.confinement import Confinement, Mode, interpreter_folders, unavailable
from core.engines.definitions import BUNDLED
from core.engines.environments import Environments
from core.engines.job_folder import JobFolder, RunFacts
from core.engines.process import launcher, processes
from core.engines.process.catalogue_loader import CatalogueLoader, LoadedCatalogue, RunnableResponder
from core.engines.process.processes import StartRecord
from core.engines.secret_reader import SecretReader, UnreadableSecretError
from core.settings import ResponderSection

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class RunLimits:
    """What each process of a run may use."""

    cpu_s: int = 1800
    memory_bytes: int = 2 * 1024**3
    """Address space."""
    file_bytes: int = 64 * 1024**2
    """Size of any file that it writes; output.json and the file of its output stream are among them."""
    open_files: int = 512
    processes: int = 256
    """Beside those that the account runs already. The kernel doesn't apply it to root, but the supervisor does."""
    disk_bytes: int = 256 * 1024**2
    """All that it writes to its output, its temporary folder and its output stream, together."""
    files: int = 20_000
    """How many files and folders it may have there."""

    def for_launcher(self) -> str:
        """The limits as the launcher takes them."""
        limits = {
            "disk_bytes": self.disk_bytes,
            "files": self.files,
            "processes": self.processes,
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
            "RLIMIT_AS": self.memory_bytes,
        }
        return " ".join(f"{name}={limit}" for name, limit in limits.items())


class ProgramStarter:
    """Starts programs, each confined to what it needs."""

    def __init__(self, limits: RunLimits | None, confinement: Mode) -> None:
        """`limits` in place of those of the settings; `confinement` where a responder's settings name none."""
        self._limits = limits
        self._confinement = confinement

    def start(self, folder: JobFolder, runnable: RunnableResponder) -> StartRecord | None:
        """Start the program; return when it runs, or None when it can't be started or must not be.

        Blocks for some milliseconds. Call it in a thread, so that it finishes even when core stops meanwhile. Raises
        OSError or ValueError.
        """
        read_end, write_end = os.pipe()
        try:
            pid = self.spawn(folder, runnable, write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            announced = pipe.read()  # ends when the launcher closes its end: by exec, or by its own end
        if announced:
            return StartRecord.parse(announced)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED)
        return StartRecord.read(folder.started)  # another launcher may have been first

    def spawn(self, folder: JobFolder, runnable: RunnableResponder, status: int) -> int:
        """Start the launcher, which reports on the descriptor `status`. Returns its pid."""
        definition = runnable.configured.definition
        limits, ruleset = self._limits_of(runnable).for_launcher(), self._ruleset(folder, runnable)
        interpreter = [str(runnable.interpreter)] if definition.is_python else []
        program = [*interpreter, str(definition.program), str(folder.run)]
        arguments = [str(folder.path), str(definition.root), limits, ruleset, *program]
        # Not through a symlink, and without waiting for the reader of a named pipe.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        # Unlike fork, this takes as long with much memory in use.
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-E", "-s", "-S", _LAUNCH, *arguments],
            program_environment(folder, runnable.configured, runnable.interpreter, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder.printed), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, status, launcher.STATUS_FD),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
        )

    def mode(self, runnable: RunnableResponder) -> Mode:
        """How the program is confined."""
        mode = runnable.section.confinement or self._confinement
        return "none" if mode == "landlock" and unavailable() else mode

    def refusal(self, runnable: RunnableResponder) -> str:
        """Why it must not be started, as a sentence, or "". Blocks at the first call."""
        if self.mode(runnable) != "bwrap":
            return ""
        reason = unavailable("bwrap")
        return reason and f"{reason} The settings want it for this responder, so it was not started."

    def _limits_of(self, runnable: RunnableResponder) -> RunLimits:
        section, mib = runnable.section, 1024**2
        return self._limits or RunLimits(
            memory_bytes=section.memory_mib * mib,
            processes=section.processes,
            disk_bytes=section.disk_mib * mib,
        )

    def _ruleset(self, folder: JobFolder, runnable: RunnableResponder) -> str:
        """What the program may reach, for `confine.apply`; empty where it is not confined."""
        section, mode = runnable.section, self.mode(runnable)
        if mode == "none":
            return ""
        definition = runnable.configured.definition
        own = (definition.folder, folder.run, *interpreter_folders(runnable.interpreter))
        confinement = Confinement(
            readable=(*own, *section.readable),
            writable=(folder.run / "output", folder.home, *section.writable),
            network=section.network == "all",
        )
        if mode == "bwrap":
            return confinement.bwrap_ruleset(definition.root)
        return replace(confinement, writable=(*confinement.writable, folder.printed)).ruleset()


def program_environment(
    folder: JobFolder, configured: ConfiguredResponder, interpreter: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables of a program: an allow-list of `environ`, which is core's own, and those of its run."""
    passed_on = {name: environ[name] for name in (*_PASSED_ON, *_PROXY_VARIABLES) if name in environ}
    variables = {"LANG": "C.UTF-8", **passed_on, "PATH": _path(interpreter, environ)}
    variables |= {"HOME": str(folder.home), "TMPDIR": str(folder.home)}
    for scheme, proxy in (("http", configured.proxy_http), ("https", configured.proxy_https)):
        if proxy:
            variables |= {f"{scheme}_proxy": proxy, f"{scheme.upper()}_PROXY": proxy}
    if configured.cacerts:
        variables["REQUESTS_CA_BUNDLE"] = str(folder.cacerts)
    return variables


def _path(interpreter: Path, environ: Mapping[str, str]) -> str:
    """PATH with the programs of the responder's environment first, and without those of core's."""
    own = os.path.join(sys.prefix, "bin")
    rest = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if part and part != own]
    return os.pathsep.join([str(interpreter.parent), *rest])


# --- the engine -------------------------------------------------------------------------------------------------------


GRACE_S = 5.0

_MARK_TIMEOUT_S = 1.0
"""A stop waits no longer than this for a slow disk to record the reason."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EngineOptions:
    """What the settings say."""

    name: str
    organisation: str
    responders: Mapping[str, ResponderSection]
    jobs: Path
    environments: Path
    capacity: int
    keep_jobs: bool
    grace_s: float = GRACE_S
    """Between SIGTERM and SIGKILL."""


@dataclass
class Run:
    """A run whose program was started."""

    job: Job
    folder: JobFolder
    facts: RunFacts | None
    """None if the program has removed them."""
    stop_reason: str
    """Why it is to be stopped, as an earlier core recorded; else ""."""
    record: StartRecord
    pidfd: int | None
    """Readable when the run has ended; None if it had before this core followed it."""
    held: ExitStack
    """The lock on the folder, and what else is open while it is followed."""


class NoResultError(Exception):
    """Why a run has no result, as a sentence: it can't start, or can't be stopped."""


class NotStartedError(NoResultError):
    """Why its program never ran."""


class ProcessEngine(Engine):
    """The engine described in core/docs/responder-process.md#one-run.

    It follows runs, and stops them when they are cancelled or reach their deadline.
    """

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
        self._catalogue = CatalogueLoader(
            options.name,
            organisation=options.organisation,
            folders=(*(folder.absolute() for folder in folders), BUNDLED),
            sections=options.responders,
            environments=Environments(options.environments.absolute(), python=python),
            confinement=confinement,
        )
        self._starter = ProgramStarter(limits, confinement)
        self._options = options
        self._jobs = options.jobs.absolute()
        self._secret_reader = secret_reader or SecretReader()
        self._followers: dict[str, int] = {}
        """How many `run` calls each run has now."""
        self._running: dict[str, Run] = {}
        self._stop_reasons: dict[str, str] = {}
        """Of the runs that this engine follows: unlike JOB/stop, a program can't change them."""
        self._homes: Collection[bytes] = ()
        """The HOME of every process when core started: which job folders have processes that no core follows."""

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def capacity(self) -> int | None:
        return self._options.capacity

    @property
    def runs_here(self) -> bool:
        return True

    @property
    def runs_programs(self) -> bool:
        return True

    async def catalogue(self) -> Catalogue:
        """The responders now; files are read again only if they have changed.

        Raises ResponderBotError("unavailable") when it can't be found out, as when the machine is out of memory.
        """
        return (await self._load()).catalogue

    async def _load(self) -> LoadedCatalogue:
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
        return job_folder.folder_name(self._options.name, run_id)

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

    async def cancel(self, job: Job) -> None:
        """Stop a run. Raises "conflict" when nothing runs, unless an earlier cancel stopped it."""
        state = await self._state(job.run_id)
        stopped = self._stop_reasons.get(job.run_id) or await asyncio.to_thread(self._folder(job.run_id).stop_reason)
        if state != "running" and stopped == "cancel":
            return
        is_followed = job.run_id in self._followers
        if state == "ended":
            raise ResponderBotError("conflict", "This run has already ended.")
        if state == "not started" and not is_followed and not job.cancelled:
            raise ResponderBotError("conflict", "This run is just starting or ending; stop it again if it goes on.")
        reason = self._stop_reasons.setdefault(job.run_id, "cancel") if is_followed else "cancel"
        await self._mark_stopped(job.run_id, reason)
        if state == "running":
            await self._stop(job.run_id)

    async def clean_up(self, run_id: str) -> None:
        """End what is left of a run; remove its job folder unless `keep_jobs` is set."""
        self._stop_reasons.pop(run_id, None)
        await self._clean_up(self._folder(run_id))

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        """At start, `clean_up` after all runs that aren't open, except those that another core follows."""
        job_ids = {
            folder.path.name
            for folder in await asyncio.to_thread(job_folder.list_folders, self._jobs, self._options.name)
        }
        if job_ids:
            self._homes = await asyncio.to_thread(processes.homes_in_use)
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
        return JobFolder(self._jobs / self.job_id(run_id))

    async def _clean_up(self, folder: JobFolder) -> None:
        await self._end(folder)
        if not self._options.keep_jobs:
            await asyncio.to_thread(files.remove_tree, folder.path)

    # --- one run

    async def _run(self, job: Job, on_progress: OnProgress) -> Report:
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

    async def _follow(self, run: Run) -> Report:
        """Wait until the run ends, stop it if that is due, and read its result."""
        run_id = run.job.run_id
        reason = self._stop_reasons.get(run_id) or run.stop_reason
        if not reason and run.pidfd is not None:
            minutes = run.facts.timeout_minutes if run.facts else 0.0  # without facts there can be no result
            if not await _ends(run.pidfd, max(0.0, minutes * 60 - run.record.running_s)):
                reason = "timeout"
        if reason:
            reason = self._stop_reasons.setdefault(run_id, reason)
            if run.pidfd is not None:
                await self._mark_stopped(run_id, reason)
                await self._stop(run_id)
        return await asyncio.to_thread(_collect, run, self._stop_reasons.get(run_id, ""))

    def _is_cancelled(self, job: Job) -> bool:
        """Whether a run was cancelled, here or while an earlier core had it. Blocks."""
        return job.cancelled or job.run_id in self._stop_reasons or bool(self._folder(job.run_id).stop_reason())

    async def _mark_stopped(self, run_id: str, reason: str) -> None:
        """Record why a run is stopped, for the core that will report on it.

        An error of the folder or the disk neither prevents the stop nor delays it by more than _MARK_TIMEOUT_S.
        """
        marking = asyncio.ensure_future(asyncio.to_thread(self._folder(run_id).mark_stopped, reason))
        await asyncio.wait([marking], timeout=_MARK_TIMEOUT_S)

    async def _begin(self, folder: JobFolder, job: Job) -> Run:
        """Start the program unless an earlier core did: in one thread, and a second one if secrets have to be read.

        Raises NoResultError, UnreadableSecretError, OSError or ValueError.
        """
        begun = await _in_thread(lambda: self._adopt_or_start(folder, job))
        if isinstance(begun, RunnableResponder):
            runnable = replace(begun, configured=await self._secret_reader.fill_in(begun.configured))
            return await _in_thread(lambda: self._start(folder, job, runnable))
        return begun

    def _adopt_or_start(self, folder: JobFolder, job: Job) -> Run | RunnableResponder:
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

    def _start(self, folder: JobFolder, job: Job, runnable: RunnableResponder) -> Run:
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

    async def _record(self, run_id: str) -> StartRecord | None:
        """What was started, from memory if possible, where no program can change it. Raises OSError or ValueError."""
        known = self._running.get(run_id)
        return known.record if known else await asyncio.to_thread(StartRecord.read, self._folder(run_id).started)

    async def _state(self, run_id: str) -> Literal["not started", "running", "ended"]:
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
            if not await _ends(pidfd, self._options.grace_s):
                processes.signal_group(record, signal.SIGKILL)
                if not await _ends(pidfd, self._options.grace_s):
                    await asyncio.to_thread(processes.kill_leftovers, record, folder.home, just_ended=True)
                    processes.kill_supervisor(record)
                    await processes.wait_readable(pidfd)

    async def _end(self, folder: JobFolder) -> None:
        """Kill all of a run."""
        await asyncio.to_thread(_kill_run, folder, self._homes)


def _followed(held: ExitStack, folder: JobFolder, job: Job, record: StartRecord, facts: RunFacts | None) -> Run:
    """The run, which takes over what is `held`."""
    pidfd = processes.pidfd_if_alive(record)
    if pidfd is not None:
        held.callback(os.close, pidfd)
    return Run(job, folder, facts, folder.stop_reason(), record, pidfd, held.pop_all())


async def _in_thread(begin: Callable[[], T]) -> T:
    """Call `begin` in a thread, which finishes also if core stops meanwhile; the run is let go of then."""
    beginning = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(_let_go)
        raise


def _let_go(beginning: asyncio.Future[Any]) -> None:
    if not beginning.cancelled() and beginning.exception() is None and isinstance(beginning.result(), Run):
        beginning.result().held.close()


def _collect(run: Run, stop_reason: str) -> Report:
    """Read what the program wrote, once all processes of the run are killed.

    A supervisor that exited by itself has killed them, and only then has it an exit code. It is reaped last: as long as
    it is a zombie, its pid can't be reused.
    """
    exit_description = processes.exit_of_child(run.record.supervisor, reap=False)
    if not processes.is_exit(exit_description):
        processes.kill_leftovers(run.record, run.folder.home, just_ended=run.pidfd is not None)
    processes.exit_of_child(run.record.supervisor, reap=True)
    if not exit_description and run.pidfd is None:
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
