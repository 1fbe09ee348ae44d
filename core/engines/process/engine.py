"""The process engine: runs responders as processes of this machine that outlive core."""

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from core.common.errors import ResponderBotError
from core.engines import job_folder
from core.engines.base import Catalogue, Job, OnProgress, Progress, Report, Responder, Skipped
from core.engines.definitions import (
    RUN_SETTINGS,
    ConfiguredResponder,
    Definition,
    configure,
    load,
    raise_if_exhausted,
    responder_folders,
    responder_id,
    section_for,
)
from core.engines.environments import Environments, Interpreter, Unavailable
from core.engines.job_folder import OUTPUT_LIMIT_BYTES, JobFolder, RunFacts
from core.engines.process import launcher, processes
from core.engines.process.fork_server import ForkRequest, ForkServers
from core.engines.process.processes import StartRecord
from core.settings import ResponderSection

BUNDLED = Path(__file__).parents[2] / "bundled"
"""The responders that come along."""

_GRACE_S = 5.0
"""Between asking a program to end and killing it (`responder-process.md 2`)."""

_MARKING_S = 1.0
"""How long a run that is to end may go on because a disk is slow to note why."""

_ENVIRONMENT_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RunLimits:
    """What a run may use at most; each holds for one process of it."""

    cpu_s: int = 1800
    memory_bytes: int = 2 * 1024**3
    """Address space."""
    file_bytes: int = 64 * 1024**2
    """Size of any file it writes, its output and what it prints among them."""
    open_files: int = 512
    processes: int = 256
    """On top of what the account runs already; the kernel doesn't hold root to it."""

    def for_launcher(self) -> str:
        return (
            f"cpu={self.cpu_s},fsize={self.file_bytes},nofile={self.open_files},core=0,"
            f"nproc={self.processes},as={self.memory_bytes}"
        )


@dataclass(frozen=True)
class _Offer:
    """One entry of the catalogue with all that a run needs."""

    responder: Responder
    configured: ConfiguredResponder
    interpreter: Interpreter


@dataclass(frozen=True)
class _Loaded:
    signature: tuple[object, ...]
    offers: Mapping[str, _Offer]
    catalogue: Catalogue


class ProcessEngine:
    """Fulfils `core.engines.base.Engine` by programs on this machine (`responder-process.md 1 to 3`).

    Beside the contract: `forget` once a report is stored, `sweep` at start, `environments` for `responders install`.
    """

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
        fork_servers: ForkServers | None = None,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        """`folders` hold responder folders and win over the bundled ones; `clock` gives seconds since the epoch.

        Without `fork_servers` each run is started by exec.
        """
        self._name = name
        self._organisation = organisation
        self._product = product
        self._folders = (*(folder.absolute() for folder in folders), BUNDLED)
        self._sections = responders
        self._jobs = jobs.absolute()
        self._capacity = capacity
        self._keep_jobs = keep_jobs
        self._clock = clock
        self._limits = limits or RunLimits()
        self._grace_s = grace_s
        self._loaded: _Loaded | None = None
        self._following: dict[str, int] = {}
        self._running: dict[str, StartRecord] = {}
        self._stop_reasons: dict[str, str] = {}
        """Of runs that this engine follows, so that nothing a program does to its job folder changes why it ended."""
        self._fork_servers = fork_servers
        self._output_limit_bytes = output_limit_bytes
        self.environments = Environments(environments.absolute(), python=python)

    @property
    def name(self) -> str:
        return self._name

    @property
    def capacity(self) -> int | None:
        return self._capacity

    async def catalogue(self) -> Catalogue:
        """What is on offer now; read again only when a file has changed.

        Raises ResponderBotError("unavailable") where the machine has no file descriptor, memory or thread left for it.
        """
        try:
            return (await asyncio.to_thread(self._load)).catalogue
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            sentence = f"The responders can't be read now ({reason}); raise the limit on that, or run less here."
            raise ResponderBotError("unavailable", sentence) from error

    def job_id(self, action_id: str) -> str:
        return job_folder.folder_name(self._name, action_id)

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """See `Engine.run`. The job folder stays until `forget`: a report that was not stored can be read again."""
        self._following[job.action_id] = self._following.get(job.action_id, 0) + 1
        try:
            return await self._run(job, on_progress)
        finally:
            self._following[job.action_id] -= 1
            if not self._following[job.action_id]:
                del self._following[job.action_id]
                self._running.pop(job.action_id, None)
                self._stop_reasons.pop(job.action_id, None)

    async def cancel(self, job: Job) -> None:
        """Stop a run: ask its group to end, kill it after the grace. Raises "conflict" when nothing runs."""
        folder = self._folder(job.action_id)
        try:
            started = await self._started_of(job.action_id)
            if started is None:
                if job.action_id not in self._following and not job.cancelled:
                    raise ResponderBotError(
                        "conflict", "This run was not started by this engine, so it can't be ended."
                    )
                self._stop_reasons.setdefault(job.action_id, "cancel")
                await _marked(folder, "cancel")
                started = await self._started_of(job.action_id)
        except (OSError, ValueError) as error:  # somebody has tampered with it; who follows the run will see its end
            log.warning("job folder can't be read", action_id=job.action_id, error=str(error))
            await asyncio.to_thread(_killed, folder)
            return
        if started is None:
            return
        with _alive(started) as watch:
            if watch is None:
                raise ResponderBotError("conflict", "This run has already ended.")
            await self._end(job.action_id, started, watch, "cancel")

    async def _started_of(self, action_id: str) -> StartRecord | None:
        """What was started, as it was announced to this engine; else what the job folder says."""
        known = self._running.get(action_id)
        return known or await asyncio.to_thread(StartRecord.read, self._folder(action_id).started)

    async def clean_up(self, action_id: str) -> None:
        """The report is stored: remove the job folder, unless the settings keep them. May be called twice.

        Kills what still runs there, as after a fault of ours.
        """
        await asyncio.to_thread(self._cleared, self._folder(action_id))

    async def sweep(self, open_action_ids: Callable[[], Collection[str]]) -> None:
        """At start: remove the job folders of all actions but those still open, unless the settings keep them.

        What still runs there is killed, since nobody will ever read its report. Folders that another core follows
        are left alone.
        """
        left = await asyncio.to_thread(job_folder.left, self._jobs, self._name)
        await asyncio.to_thread(self._sweep, job_folder.orphans(left, self._name, open_action_ids()))

    async def close(self) -> None:
        """Let go of the fork servers. Running jobs go on, and every other descriptor belongs to a `run`."""
        if self._fork_servers:
            await asyncio.to_thread(self._fork_servers.close)

    def responder_folders(self) -> tuple[Path, ...]:
        """The folders of all responders this engine knows, usable or not; for `responders install`."""
        return responder_folders(self._folders)

    # --- the catalogue

    def _load(self) -> _Loaded:
        signature = self._signature()
        if self._loaded is None or self._loaded.signature != signature:
            before = self._loaded.catalogue.skipped if self._loaded else ()
            self._loaded = self._read(signature)
            for skipped in self._loaded.catalogue.skipped:
                if skipped not in before:
                    tell = log.warning if skipped.is_wanted else log.info
                    tell("responder skipped", engine=self._name, responder=skipped.name, reason=skipped.reason)
        return self._loaded

    def _signature(self) -> tuple[object, ...]:
        """Changes whenever a definition, a program's presence, a list of requirements or an environment does."""
        marks: list[object] = [_mark(self.environments.root)]
        for root in self._folders:
            marks.append(_mark(root))
            try:
                with os.scandir(root) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        marks += _marks_of_entry(entry)
            except OSError as error:
                raise_if_exhausted(error)
        return tuple(marks)

    def _read(self, signature: tuple[object, ...]) -> _Loaded:
        loaded = load(self._folders)
        skipped = list(loaded.skipped)
        offers: dict[str, _Offer] = {}
        for definition in loaded.definitions:
            offer = self._offer(definition)
            if isinstance(offer, Skipped):
                skipped.append(offer)
            else:
                offers[offer.responder.id] = offer
        responders = sorted((offer.responder for offer in offers.values()), key=lambda responder: responder.name)
        ordered = sorted(skipped, key=lambda item: item.name)
        # The plain environment may just have been made: look again, or the next call would read all anew.
        catalogue = Catalogue(tuple(responders), tuple(ordered), tuple(loaded.unreadable))
        return _Loaded((_mark(self.environments.root), *signature[1:]), offers, catalogue)

    def _offer(self, definition: Definition) -> _Offer | Skipped:
        section = section_for(definition.name, self._sections)
        configured = configure(definition, section.config if isinstance(section, ResponderSection) else {})
        responder = self._responder(definition)
        if isinstance(configured, Skipped):
            is_wanted = section is not None or not definition.file.is_relative_to(BUNDLED)
            return replace(configured, responder=responder, is_wanted=is_wanted)
        interpreter = self.environments.interpreter(definition.folder)
        if isinstance(interpreter, Unavailable):
            return Skipped(
                definition.name,
                f"{definition.file}: unavailable: {interpreter.reason}",
                responder,
                "its environment is not ready; an administrator can run `responder-bot responders install`",
            )
        bounded = replace(responder, max_tlp=configured.max_tlp, max_pap=configured.max_pap)
        return _Offer(bounded, configured, interpreter)

    def _responder(self, definition: Definition) -> Responder:
        return Responder(
            id=responder_id(self._organisation, definition.name),
            name=definition.name,
            version=definition.version,
            description=definition.description,
            data_types=definition.data_types,
            definition=definition.name,
            items=(*(item.name for item in definition.items), *RUN_SETTINGS),
        )

    # --- one run

    def _folder(self, action_id: str) -> JobFolder:
        return JobFolder(self._jobs / self.job_id(action_id), self._output_limit_bytes)

    async def _run(self, job: Job, on_progress: OnProgress) -> Report:
        folder = self._folder(job.action_id)
        try:
            hold, started, facts = await self._started(folder, job)
        except _CannotRun as error:
            return Report(success=False, message=str(error))
        except (OSError, ValueError) as error:
            log.warning("run not prepared", action_id=job.action_id, reason=str(error))
            await asyncio.to_thread(_killed, folder)  # it may have begun
            reason = (error.strerror if isinstance(error, OSError) else "") or error
            return Report(success=False, message=f"The run could not be prepared: {reason}.")
        try:
            if started is None:
                return await asyncio.to_thread(self._not_started, job.action_id, facts)
            self._running[job.action_id] = started
            await on_progress(Progress(self.job_id(job.action_id), True, started.pid, started.pid_started))
            return await self._followed(job.action_id, started, facts)
        finally:
            os.close(hold)

    async def _started(self, folder: JobFolder, job: Job) -> tuple[int, StartRecord | None, RunFacts | None]:
        """Have it started, by us or by who was here before; with a hold on its folder, and what is known of it.

        Facts are None where the folder doesn't tell them any more. Raises _CannotRun, OSError or ValueError.
        """
        started = await asyncio.to_thread(StartRecord.read, folder.started)
        if started:
            hold, facts = await asyncio.to_thread(_adopted, folder)
            return hold, started, facts
        if job.seen_running:
            await asyncio.to_thread(processes.kill_leftovers, None, folder.homes, just_ended=False)
            raise _CannotRun(job_folder.VANISHED)
        offer = (await asyncio.to_thread(self._load)).offers.get(job.responder_id)
        if offer is None:
            raise _CannotRun(f"{job.responder_name} is no longer on offer here.")
        job = replace(job, data_type=job.data_type if ":" in job.data_type else f"{self._product}:{job.data_type}")
        hold = await asyncio.to_thread(job_folder.create_and_follow, folder, job, offer.configured)
        try:
            facts = await asyncio.to_thread(folder.facts)  # before the program can change them
            if job.action_id in self._stop_reasons:
                await _marked(folder, "cancel")
            return hold, await asyncio.to_thread(self._launch, folder, offer), facts
        except BaseException:
            os.close(hold)
            raise

    def _launch(self, folder: JobFolder, offer: _Offer) -> StartRecord | None:
        """Fork the program or, where that can't be, send the launcher off; return when it runs or has given up.

        Blocks for some milliseconds, in a thread of its own, so that a core that stops leaves nothing half open.
        """
        if self._fork_servers and offer.configured.definition.is_python:
            started = self._fork_servers.launch(offer.interpreter.path, self._order(folder, offer))
            if started or folder.is_decided():
                return started or StartRecord.read(folder.started)
        heard, status = os.pipe()
        try:
            pid = self._spawn(folder, offer, status)
        except BaseException:
            os.close(heard)
            raise
        finally:
            os.close(status)
        with os.fdopen(heard, "rb") as said:
            announced = said.read()  # ends when the launcher's end closes: by exec, or with the launcher
        if announced:
            return StartRecord.parsed(announced)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED)
        return StartRecord.read(folder.started)  # another launcher was first

    def _order(self, folder: JobFolder, offer: _Offer) -> ForkRequest:
        definition = offer.configured.definition
        return ForkRequest(
            job=folder.path,
            home=folder.run,
            folder=definition.root,
            program=definition.program,
            limits=self._limits.for_launcher(),
            environment=environment_of(folder, offer.configured, offer.interpreter.path, os.environ),
        )

    def _spawn(self, folder: JobFolder, offer: _Offer, status: int) -> int:
        definition = offer.configured.definition
        os.set_inheritable(status, True)
        interpreter = [str(offer.interpreter.path)] if definition.is_python else []
        argv = [
            *(sys.executable, "-I", "-S", launcher.__file__, str(folder.path), str(status), str(definition.root)),
            *(self._limits.for_launcher(), *interpreter, str(definition.program), str(folder.run)),
        ]
        append = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        )  # no link, no pipe without reader
        return os.posix_spawn(
            sys.executable,
            argv,
            environment_of(folder, offer.configured, offer.interpreter.path, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder.printed), append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ],
        )

    def _not_started(self, action_id: str, facts: RunFacts | None) -> Report:
        folder = self._folder(action_id)
        if reason := self._stop_reasons.get(action_id) or folder.stop_reason():
            return job_folder.report_of(folder, facts, reason, "")
        lines = job_folder.last_lines(job_folder.read_printed(folder.printed))
        return Report(success=False, message=f"The responder could not be started. {lines}".strip())

    async def _followed(self, action_id: str, started: StartRecord, facts: RunFacts | None) -> Report:
        folder = self._folder(action_id)
        if reason := await asyncio.to_thread(folder.stop_reason):
            self._stop_reasons.setdefault(action_id, reason)  # asked for before it began, or by a core that died
        with _alive(started) as watch:
            if watch is not None and (reason := self._stop_reasons.get(action_id, "")):
                await self._end(action_id, started, watch, reason)
            elif watch is not None:
                await self._until_end(action_id, started, facts, watch)
            return await asyncio.to_thread(self._collected, action_id, started, facts, watch is not None)

    async def _until_end(self, action_id: str, started: StartRecord, facts: RunFacts | None, watch: int) -> None:
        minutes = facts.timeout_minutes if facts else 0.0  # nothing can come of this run any more
        try:
            async with asyncio.timeout(max(0.0, started.at + minutes * 60 - self._clock())):
                await processes.wait_readable(watch)
        except TimeoutError:
            await self._end(action_id, started, watch, "timeout")

    async def _end(self, action_id: str, started: StartRecord, watch: int, reason: str) -> None:
        """Terminate the group, and kill it when it is still there after the grace."""
        if action_id in self._following:
            reason = self._stop_reasons.setdefault(action_id, reason)
        await _marked(self._folder(action_id), reason)
        processes.signal_group(started, signal.SIGTERM)
        if not await _ends(watch, self._grace_s):
            processes.signal_group(started, signal.SIGKILL)
            if not await _ends(watch, self._grace_s):
                await asyncio.to_thread(processes.kill_leftovers, started, (), just_ended=True)
                processes.kill_supervisor(started)
                await processes.wait_readable(watch)

    def _collected(self, action_id: str, started: StartRecord, facts: RunFacts | None, just_ended: bool) -> Report:
        """Read what the program wrote, once all that it left behind is killed.

        Its supervisor has done that if it ended by itself, and only then has it an exit code. Reaped last, since a
        zombie keeps the number ours.
        """
        folder = self._folder(action_id)
        pid, _ = started.watched
        ended = self._exit_of(pid, reap=False)
        if not started.supervisor or not processes.is_exit(ended):
            processes.kill_leftovers(started, folder.homes, just_ended=just_ended)
        self._exit_of(pid, reap=True)
        reason = self._stop_reasons.get(action_id) or folder.stop_reason()
        return job_folder.report_of(folder, facts, reason, ended)

    def _exit_of(self, pid: int, *, reap: bool) -> str:
        """How a run ended, in words; "" when it is nobody's child here (adopted)."""
        ended = processes.exit_of_child(pid, reap=reap)
        if ended or not self._fork_servers:
            return ended
        return self._fork_servers.ended(pid, reap=reap)

    def _sweep(self, orphans: Sequence[JobFolder]) -> None:
        with contextlib.suppress(OSError):
            self._jobs.chmod(0o700)  # an earlier release left that to the umask
        if not orphans:
            return
        homes = processes.homes_in_use()
        for folder in orphans:
            with job_folder.unfollowed(folder) as free:
                if free:
                    self._cleared(folder, homes)

    def _cleared(self, folder: JobFolder, homes: Collection[bytes] | None = None) -> None:
        """Kill what still runs there, and remove it unless the settings keep it; `homes` as `_killed` has them."""
        _killed(folder, homes)
        if not self._keep_jobs:
            job_folder.remove(folder)


class _CannotRun(Exception):
    """Why a run can't begin, in a sentence."""


def _adopted(folder: JobFolder) -> tuple[int, RunFacts | None]:
    hold = job_folder.follow(folder)
    try:
        return hold, folder.facts()
    except (OSError, ValueError):
        return hold, None


async def _marked(folder: JobFolder, reason: str) -> None:
    """Note why a run is to end, before it is signalled: so the core that reads its result, which may be another one or
    the next, knows why it ended. Whatever is wrong with the folder neither stops nor delays the signal.
    """

    def mark() -> None:
        try:
            folder.mark_stopped(reason)
        except FileNotFoundError:
            return  # the folder is not there yet, or no longer
        except OSError as error:
            log.warning("the reason to end a run can't be noted", folder=folder.path.name, error=str(error))

    await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(mark))], timeout=_MARKING_S)


async def _ends(watch: int, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await processes.wait_readable(watch)
    except TimeoutError:
        return False
    return True


@contextlib.contextmanager
def _alive(started: StartRecord) -> Iterator[int | None]:
    """A descriptor that becomes readable when the run ends; None when it has ended."""
    watch = processes.pidfd_if_alive(started)
    try:
        yield watch
    finally:
        if watch is not None:
            os.close(watch)


def _killed(folder: JobFolder, homes: Collection[bytes] | None = None) -> None:
    """Kill what still runs in a job folder. `homes`: the HOME of every process, where the caller has looked already."""
    started, tampered = None, False
    try:
        started = StartRecord.read(folder.started)
    except (OSError, ValueError):
        tampered = True
    is_alive = False
    if started:
        with _alive(started) as watch:
            is_alive = watch is not None
            if watch is not None:
                processes.signal_group(started, signal.SIGKILL)
                if not select.select([watch], [], [], _GRACE_S)[0]:
                    processes.kill_supervisor(started)
    seen = tampered if homes is None else any(os.fsencode(home) in homes for home in folder.homes)
    if is_alive or seen:
        processes.kill_leftovers(None if tampered else started, folder.homes, just_ended=is_alive)


def environment_of(
    folder: JobFolder, configured: ConfiguredResponder, interpreter: Path, outer: Mapping[str, str]
) -> dict[str, str]:
    """The short allow-list of `responder-process.md 2`; `outer` is core's own environment."""
    passed = {name: outer[name] for name in (*_ENVIRONMENT_PASSED_ON, *_PROXY_VARIABLES) if name in outer}
    given = {"LANG": "C.UTF-8", **passed, "HOME": str(folder.run), "PATH": _path(interpreter, outer)}
    for scheme, proxy in (("http", configured.proxy_http), ("https", configured.proxy_https)):
        if proxy:
            given |= {f"{scheme}_proxy": proxy, f"{scheme.upper()}_PROXY": proxy}
    if configured.cacerts:
        given["REQUESTS_CA_BUNDLE"] = str(folder.cacerts)
    return given


def _path(interpreter: Path, outer: Mapping[str, str]) -> str:
    """The responder's own programs first, and not those of core's environment."""
    own = os.path.join(sys.prefix, "bin")
    rest = [part for part in outer.get("PATH", os.defpath).split(os.pathsep) if part and part != own]
    return os.pathsep.join([str(interpreter.parent), *rest])


def _mark(path: Path) -> object:
    try:
        facts = path.stat()
    except OSError:
        return None
    return (str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino)


def _marks_of_entry(entry: os.DirEntry[str]) -> list[object]:
    """A folder's own time changes when files come and go; those that matter are looked at one by one."""
    marks = [_mark(Path(entry.path))]
    try:
        with os.scandir(entry.path) as files:
            wanted = [file.path for file in files if file.name.endswith(".json") or file.name == "requirements.txt"]
    except OSError as error:
        raise_if_exhausted(error)
    else:
        marks += [_mark(Path(file)) for file in sorted(wanted)]
    return marks
