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

from core.engines.base import Catalogue, Job, Progress, Report, Responder, Skipped, Told
from core.engines.process import job_folder, launcher, processes
from core.engines.process.definitions import (
    RUN_SETTINGS,
    Configured,
    Definition,
    configure,
    load,
    responder_folders,
    responder_id,
    section_for,
)
from core.engines.process.environments import Environments, Interpreter, Unavailable
from core.engines.process.fork_server import ForkServers, Order
from core.engines.process.job_folder import OUTPUT_LIMIT_BYTES, JobFolder
from core.engines.process.processes import Started
from core.errors import ResponderBotError
from core.settings import ResponderSection

BUNDLED = Path(__file__).parents[2] / "bundled"
"""The responders that come along."""

_GRACE_S = 5.0
"""Between asking a program to end and killing it (`responder-process.md 2`)."""

_ENVIRONMENT_PASSED_ON = ("LANG", "LC_ALL", "TZ")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
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
    configured: Configured
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
        limits: Limits | None = None,
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
        self._limits = limits or Limits()
        self._grace_s = grace_s
        self._loaded: _Loaded | None = None
        self._following: dict[str, int] = {}
        self._stop_before_start: set[str] = set()
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
        """What is on offer now; read again only when a file has changed."""
        return (await asyncio.to_thread(self._load)).catalogue

    def job_id(self, action_id: str) -> str:
        return job_folder.folder_name(self._name, action_id)

    async def run(self, job: Job, told: Told) -> Report:
        """See `Engine.run`. The job folder stays until `forget`: a report that was not stored can be read again."""
        self._following[job.action_id] = self._following.get(job.action_id, 0) + 1
        try:
            return await self._run(job, told)
        finally:
            self._following[job.action_id] -= 1
            if not self._following[job.action_id]:
                del self._following[job.action_id]
                self._stop_before_start.discard(job.action_id)

    async def cancel(self, job: Job) -> None:
        """Stop a run: ask its group to end, kill it after the grace. Raises "conflict" when nothing runs."""
        folder = self._folder(job.action_id)
        started = await asyncio.to_thread(Started.read, folder.started)
        if started is None:
            if job.action_id not in self._following and not job.cancelled:
                raise ResponderBotError("conflict", "This run was not started by this engine, so it can't be ended.")
            self._stop_before_start.add(job.action_id)
            with contextlib.suppress(FileNotFoundError):
                folder.stop.write_text("cancel")
            started = await asyncio.to_thread(Started.read, folder.started)
            if started is None:
                return
        with _alive(started) as watch:
            if watch is None:
                raise ResponderBotError("conflict", "This run has already ended.")
            await self._end(folder, started, watch, "cancel")

    async def forget(self, action_id: str) -> None:
        """The report is stored: remove the job folder, unless the settings keep them. May be called twice."""
        if not self._keep_jobs:
            await asyncio.to_thread(job_folder.remove, self._folder(action_id))

    async def sweep(self, open_action_ids: Callable[[], Collection[str]]) -> None:
        """At start: remove the job folders of all actions but those still open.

        What still runs there is killed, since nobody will ever read its report. Folders that another core follows
        are left alone.
        """
        if not self._keep_jobs:
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
            with contextlib.suppress(OSError), os.scandir(root) as entries:
                for entry in sorted(entries, key=lambda item: item.name):
                    marks += _marks_of_entry(entry)
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

    async def _run(self, job: Job, told: Told) -> Report:
        folder = self._folder(job.action_id)
        try:
            hold, started = await self._started(folder, job)
        except OSError as error:
            log.warning("run not prepared", action_id=job.action_id, reason=str(error))
            return Report(success=False, message=f"The run could not be prepared: {error.strerror or error}.")
        if isinstance(hold, Report):
            return hold
        try:
            if started is None:
                return await asyncio.to_thread(self._not_started, folder)
            await told(Progress(self.job_id(job.action_id), True, started.pid, started.pid_started))
            return await self._followed(folder, started)
        finally:
            os.close(hold)

    async def _started(self, folder: JobFolder, job: Job) -> tuple[int | Report, Started | None]:
        """Have it started, by us or by who was here before. A Report when it can't come to that."""
        started = await asyncio.to_thread(Started.read, folder.started)
        if started:
            return job_folder.follow(folder), started
        if job.seen_running:
            return Report(success=False, message=job_folder.VANISHED), None
        offer = (await asyncio.to_thread(self._load)).offers.get(job.responder_id)
        if offer is None:
            return Report(success=False, message=f"{job.responder_name} is no longer on offer here."), None
        job = replace(job, data_type=job.data_type if ":" in job.data_type else f"{self._product}:{job.data_type}")
        hold = await asyncio.to_thread(job_folder.create_and_follow, folder, job, offer.configured)
        if job.action_id in self._stop_before_start:
            folder.stop.write_text("cancel")
        try:
            await asyncio.to_thread(self._launch, folder, offer)
            return hold, await asyncio.to_thread(Started.read, folder.started)
        except BaseException:
            os.close(hold)
            raise

    def _launch(self, folder: JobFolder, offer: _Offer) -> None:
        """Fork the program or, where that can't be, send the launcher off; return when it runs or has given up.

        Blocks for some milliseconds, in a thread of its own, so that a core that stops leaves nothing half open.
        """
        if self._fork_servers and offer.configured.definition.is_python:
            forked = self._fork_servers.launch(offer.interpreter.path, self._order(folder, offer))
            if forked or folder.started.exists() or folder.stop.exists():
                return
        heard, status = os.pipe()
        try:
            pid = self._spawn(folder, offer, status)
        except BaseException:
            os.close(heard)
            raise
        finally:
            os.close(status)
        with os.fdopen(heard, "rb") as said:
            said.read()  # ends when the launcher's end closes: by exec, or with the launcher
        _reap_unless_started(pid, folder)

    def _order(self, folder: JobFolder, offer: _Offer) -> Order:
        definition = offer.configured.definition
        return Order(
            job=folder.path,
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
            *(self._limits.for_launcher(), *interpreter, str(definition.program), str(folder.path)),
        ]
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
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

    def _not_started(self, folder: JobFolder) -> Report:
        if folder.stop_reason():
            return job_folder.report_of(folder, "")
        lines = job_folder.last_lines(job_folder.read_printed(folder.printed))
        return Report(success=False, message=f"The responder could not be started. {lines}".strip())

    async def _followed(self, folder: JobFolder, started: Started) -> Report:
        with _alive(started) as watch:
            if watch is not None and (reason := folder.stop_reason()):
                await self._end(folder, started, watch, reason)  # asked for before it began, or by a core that died
            elif watch is not None:
                await self._until_end(folder, started, watch)
            return await asyncio.to_thread(self._collected, folder, started, watch is not None)

    async def _until_end(self, folder: JobFolder, started: Started, watch: int) -> None:
        try:
            minutes = (await asyncio.to_thread(folder.facts)).timeout_minutes
        except (OSError, ValueError, KeyError):
            minutes = 0.0  # the folder has vanished: nothing can come of this run any more
        try:
            async with asyncio.timeout(max(0.0, started.at + minutes * 60 - self._clock())):
                await processes.readable(watch)
        except TimeoutError:
            await self._end(folder, started, watch, "timeout")

    async def _end(self, folder: JobFolder, started: Started, watch: int, reason: str) -> None:
        """Terminate the group, and kill it when it is still there after the grace."""
        with contextlib.suppress(FileNotFoundError):
            if not folder.stop_reason():
                folder.stop.write_text(reason)
        processes.signal_group(started, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace_s):
                await processes.readable(watch)
        except TimeoutError:
            processes.signal_group(started, signal.SIGKILL)
            await processes.readable(watch)

    def _collected(self, folder: JobFolder, started: Started, just_ended: bool) -> Report:
        """Kill what the program left behind, then read what it wrote.

        Reaped last, since a zombie keeps the number ours.
        """
        ended = self._exit_of(started.pid, reap=False)
        processes.kill_leftovers(started, folder.path, just_ended=just_ended)
        self._exit_of(started.pid, reap=True)
        return job_folder.report_of(folder, ended)

    def _exit_of(self, pid: int, *, reap: bool) -> str:
        """How a run ended, in words; "" when it is nobody's child here (adopted)."""
        ended = processes.exit_of_child(pid, reap=reap)
        if ended or not self._fork_servers:
            return ended
        return self._fork_servers.ended(pid, reap=reap)

    def _sweep(self, orphans: Sequence[JobFolder]) -> None:
        for folder in orphans:
            with job_folder.unfollowed(folder) as free:
                if free:
                    _removed(folder)


@contextlib.contextmanager
def _alive(started: Started) -> Iterator[int | None]:
    """A descriptor that becomes readable when the program ends; None when it has ended."""
    watch = processes.open_if_alive(started)
    try:
        yield watch
    finally:
        if watch is not None:
            os.close(watch)


def _removed(folder: JobFolder) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = Started.read(folder.started)
        if started:
            _killed(folder, started)
    job_folder.remove(folder)


def _killed(folder: JobFolder, started: Started) -> None:
    with _alive(started) as watch:
        if watch is not None:
            processes.signal_group(started, signal.SIGKILL)
            select.select([watch], [], [], _GRACE_S)  # until it is gone, so that it writes nothing behind our back
        processes.kill_leftovers(started, folder.path, just_ended=watch is not None)


def _reap_unless_started(pid: int, folder: JobFolder) -> None:
    """Reap a launcher that did not become the program."""
    started = Started.read(folder.started)
    if started and started.pid == pid:
        return
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED)


def environment_of(
    folder: JobFolder, configured: Configured, interpreter: Path, outer: Mapping[str, str]
) -> dict[str, str]:
    """The short allow-list of `responder-process.md 2`; `outer` is core's own environment."""
    passed = {name: outer[name] for name in (*_ENVIRONMENT_PASSED_ON, *_PROXY_VARIABLES) if name in outer}
    given = {"LANG": "C.UTF-8", **passed, "HOME": str(folder.path), "PATH": _path(interpreter, outer)}
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
    with contextlib.suppress(OSError), os.scandir(entry.path) as files:
        wanted = [file.path for file in files if file.name.endswith(".json") or file.name == "requirements.txt"]
        marks += [_mark(Path(file)) for file in sorted(wanted)]
    return marks
