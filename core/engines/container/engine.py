"""The container engine: runs responders in containers of podman or docker, which outlive core."""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from core.common.errors import ResponderBotError
from core.engines import files, job_folder, run_report
from core.engines.base import Catalogue, Job, OnProgress, OpenRunIds, Progress, Report
from core.engines.container.catalogue_loader import CatalogueLoader, RunnableImage, not_installed
from core.engines.container.images import Images, PullStatus
from core.engines.container.runtime import ContainerState, Limits, Runtime, Sandbox, UnavailableError, without
from core.engines.job_folder import OUTPUT_LIMIT_BYTES, JobFolder, RunFacts
from core.engines.process.launcher import Usage
from core.engines.secret_reader import SecretReader, UnreadableSecretError
from core.settings import ResponderSection, section_for

ACTION_LABEL = "action"
CORE_LABEL = "responder-bot.core"
ENGINE_LABEL = "responder-bot.engine"

_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""

_LOOK_S = 1.0
"""How often the size of what a container wrote is looked at."""

_RETRY_S = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses while the runtime can't be asked about a container that runs."""

_KILLED = 137
"""The exit code of a program that was killed by SIGKILL, as it is when memory runs out."""

_STARTED_LIMIT_BYTES = 4096
_JOB = "/job"
"""Where a container finds its job folder, as on a Cortex server."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Run:
    """One run whose container was started."""

    action_id: str
    run_id: str
    name: str
    """The responder's name."""
    container: str
    folder: JobFolder
    facts: RunFacts | None
    """None if they can't be read any more."""
    section: ResponderSection
    started_at: float
    """Seconds since the epoch."""


class ContainerEngine:
    """The engine described in core/docs/responder-process.md#containers."""

    def __init__(
        self,
        name: str,
        *,
        runtime: Runtime,
        core_id: str,
        organisation: str,
        product: str,
        responders: Sequence[Path],
        sections: Mapping[str, ResponderSection],
        jobs: Path,
        environments: Path,
        capacity: int,
        keep_jobs: bool,
        clock: Callable[[], float] = time.time,
        grace_s: float = _GRACE_S,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        """`core_id` tells the containers of this core's database from all others; `responders` are folders and files.

        `clock` returns seconds since the epoch.
        """
        self._name = name
        self._runtime = runtime
        self._jobs = jobs.absolute()
        self._core = hashlib.sha256(f"{core_id}\0{self._jobs}".encode()).hexdigest()[:16]
        self._product = product
        self._sections = sections
        self._capacity = capacity
        self._keep_jobs = keep_jobs
        self._clock = clock
        self._grace_s = grace_s
        self._output_limit_bytes = output_limit_bytes
        self._images = Images(runtime, environments.absolute())
        self._catalogue = CatalogueLoader(
            name,
            organisation=organisation,
            roots=[root.absolute() for root in responders],
            sections=sections,
            images=self._images,
        )
        self._secret_reader = SecretReader()
        self._limits: Limits | None = None
        """None until the runtime has been tried out with an image."""
        self._followers: dict[str, int] = {}
        """How many `run` calls each run has now."""
        self._containers: dict[str, str] = {}
        """By run, the container that this engine follows."""
        self._stop_reasons: dict[str, str] = {}

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
        """What is on offer now; only responders whose image is installed are.

        Raises ResponderBotError("unavailable") when the runtime is missing, doesn't answer, or can't run containers.
        """
        try:
            self._catalogue.here = await self._runtime.images()
            loaded = await asyncio.to_thread(self._catalogue.load)
            if loaded.by_id and self._limits is None:
                self._limits = await self._try_out(next(iter(loaded.by_id.values())).pin.id)
        except UnavailableError as error:
            raise ResponderBotError("unavailable", str(error)) from error
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            sentence = f"The responders can't be read now ({reason}); raise that limit, or run less on this machine."
            raise ResponderBotError("unavailable", sentence) from error
        missing = self._limits.missing() if self._limits else ""
        warnings = (self._without(missing),) if missing else ()
        return replace(loaded.catalogue, warnings=warnings)

    async def install(self, on_progress: Callable[[PullStatus], None], *, upgrade: bool) -> tuple[PullStatus, ...]:
        """Pull and pin the images of the responders here, as `Images.install` does.

        Those that lack a value are left out, and of a file with many definitions those that the settings don't name.
        Raises ResponderBotError("unavailable").
        """
        try:
            wanted = await asyncio.to_thread(self._catalogue.wanted)
            return await self._images.install((found.image for found in wanted), on_progress, upgrade=upgrade)
        except UnavailableError as error:
            raise ResponderBotError("unavailable", str(error)) from error

    async def unreadable_secrets(self) -> list[str]:
        """A sentence for each responder with a value that can't be read now. Reads all values, and runs no responder.

        Raises as `catalogue` does.
        """
        await self.catalogue()
        loaded = await asyncio.to_thread(self._catalogue.load)
        return await self._secret_reader.problems(runnable.configured for runnable in loaded.by_id.values())

    def job_id(self, run_id: str) -> str:
        return job_folder.folder_name(self._name, run_id)

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """See `Engine.run`. Container and job folder stay until `clean_up`, so that the report can be read again."""
        self._followers[job.run_id] = self._followers.get(job.run_id, 0) + 1
        try:
            return await self._run(job, on_progress)
        finally:
            self._followers[job.run_id] -= 1
            if not self._followers[job.run_id]:
                del self._followers[job.run_id]
                self._containers.pop(job.run_id, None)
                self._stop_reasons.pop(job.run_id, None)

    async def cancel(self, job: Job) -> None:
        """Stop the container, by SIGKILL after the grace period. Raises "conflict" when nothing runs."""
        container = self._containers.get(job.run_id) or self._container(job.run_id)
        is_followed = job.run_id in self._followers
        try:
            state = await self._runtime.state(container)
            if state is None or state.is_not_started:
                if not is_followed and not job.cancelled:
                    raise ResponderBotError("conflict", "This engine didn't start this run, so it can't stop it.")
            elif state.has_ended:
                raise ResponderBotError("conflict", "This run has already ended.")
            self._stop_reasons.setdefault(job.run_id, "cancel")
            await asyncio.to_thread(_mark_stopped, self._folder(job.run_id), self._stop_reasons[job.run_id])
            if state is not None and not state.is_not_started:
                await self._runtime.stop(container, self._grace_s)
        except UnavailableError as error:
            if is_followed:
                self._stop_reasons.pop(job.run_id, None)
            raise ResponderBotError("conflict", f"This run can't be stopped now. {error}") from error
        finally:
            if not is_followed:
                self._stop_reasons.pop(job.run_id, None)

    async def clean_up(self, run_id: str) -> None:
        """Remove the container, and its job folder unless `keep_jobs` is set."""
        await self._remove(self._container(run_id), self._folder(run_id))

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        """At start, `clean_up` after all runs that aren't open, except those that another core follows."""
        try:
            listed = await self._runtime.find(self._labels())
        except UnavailableError as error:
            log.warning("containers_not_swept", engine=self._name, reason=str(error))
            listed = []
        folders = await asyncio.to_thread(job_folder.list_folders, self._jobs, self._name)
        open_ids = await open_run_ids()
        running = {self._container(run_id) for run_id in open_ids}
        ended = {name for name in listed if name.startswith(self._container("")) and name not in running}
        ended |= {f"{self._prefix()}{one.path.name}" for one in job_folder.of_ended_runs(folders, self._name, open_ids)}
        for container in sorted(ended):
            folder = JobFolder(self._jobs / container.removeprefix(self._prefix()))
            with job_folder.locked_for_removal(folder) as is_free:
                if is_free:
                    await self._remove(container, folder)

    async def close(self) -> None:
        """End commands that print secrets, and wait for those of the runtime; containers go on."""
        self._secret_reader.close()
        await self._runtime.close()

    # --- names

    def _folder(self, run_id: str) -> JobFolder:
        return JobFolder(self._jobs / self.job_id(run_id), self._output_limit_bytes)

    def _prefix(self) -> str:
        return f"responder-bot-{self._core}-"

    def _container(self, run_id: str) -> str:
        """The container's name is always the same for a run, so the runtime has at most one for it."""
        return f"{self._prefix()}{self.job_id(run_id)}"

    def _labels(self) -> dict[str, str]:
        return {CORE_LABEL: self._core, ENGINE_LABEL: self._name}

    # --- one run

    async def _run(self, job: Job, on_progress: OnProgress) -> Report:
        folder = self._folder(job.run_id)
        lock = -1
        try:
            if not await self._is_started(job, folder):
                lock, job = await self._prepare(job, folder)
                await self._start(job, folder)
            else:
                lock = await asyncio.to_thread(job_folder.lock, folder)
            run = await asyncio.to_thread(self._started_run, job, folder)
            self._containers[job.run_id] = run.container
            await on_progress(Progress(self.job_id(job.run_id), running=True))
            return await self._follow(run)
        except _EndedError as error:
            return error.report
        except (UnreadableSecretError, UnavailableError) as error:
            log.warning("run_not_started", action_id=job.action_id, reason=str(error))
            return Report(success=False, message=str(error))
        except OSError as error:
            log.warning("run_not_prepared", action_id=job.action_id, reason=str(error))
            return Report(success=False, message=job_folder.why_not_prepared(error))
        finally:
            if lock >= 0:
                os.close(lock)

    async def _is_started(self, job: Job, folder: JobFolder) -> bool:
        """Whether an earlier core started the container; what it created and did not start is removed.

        Raises _EndedError when there is no trace of a container that ran.
        """
        if not job.resumed:
            return False
        container = self._container(job.run_id)
        was_started = job.seen_running or await asyncio.to_thread(os.path.lexists, folder.started)
        state = await self._state_when_available(container, was_started)
        if state is not None and not state.is_not_started:
            return True
        if was_started:
            raise _EndedError(run_report.VANISHED)
        if state is not None:
            # Its creator may be about to start it: whoever comes first wins, and the other's command fails.
            await self._runtime.remove(container, even_if_running=False)
        return False

    async def _state_when_available(self, container: str, was_started: bool) -> ContainerState | None:
        """The state of a container; if it was started, as soon as the runtime answers again."""
        for pause_s in (*_RETRY_S, 0.0):
            try:
                return await self._runtime.state(container)
            except UnavailableError as error:
                if not was_started or not pause_s:
                    known = "It is not known how the responder ended; check its effect." if was_started else ""
                    raise UnavailableError(f"{error} {known}".rstrip()) from error
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _prepare(self, job: Job, folder: JobFolder) -> tuple[int, Job]:
        """Create the job folder. Returns the lock on it, and the job as its program sees it."""
        if job.cancelled or job.run_id in self._stop_reasons:
            raise _EndedError("Cancelled")
        runnable = await self._runnable(job)
        configured = await self._secret_reader.fill_in(runnable.configured)
        job = replace(job, data_type=job.data_type if ":" in job.data_type else f"{self._product}:{job.data_type}")
        lock = await asyncio.to_thread(job_folder.create_locked, folder, job, configured)
        try:
            await asyncio.to_thread(_open_to_container, folder)
        except BaseException:
            os.close(lock)
            raise
        return lock, job

    async def _runnable(self, job: Job) -> RunnableImage:
        runnable = None
        if self._catalogue.here:
            runnable = (await asyncio.to_thread(self._catalogue.load)).by_id.get(job.responder_id)
        if runnable is None:  # listed before core was restarted, or since the last look
            self._catalogue.here = await self._runtime.images()
            loaded = await asyncio.to_thread(self._catalogue.load)
            runnable = loaded.by_id.get(job.responder_id)
            if runnable is None:
                skipped = [item.reason for item in loaded.catalogue.skipped if item.name == job.responder_name]
                raise _EndedError(" ".join(skipped) or f"{job.responder_name} is no longer on offer here.")
        return runnable

    async def _start(self, job: Job, folder: JobFolder) -> None:
        """Start the container. Raises _EndedError with the reason if it can't be."""
        runnable, container = await self._runnable(job), self._container(job.run_id)
        if self._limits is None:
            self._limits = await self._try_out(runnable.pin.id)
        section = runnable.section
        mounts = [(folder.run / "input", f"{_JOB}/input", "ro,Z"), (folder.run / "output", f"{_JOB}/output", "rw,Z")]
        mounts += [(path, str(path), "ro") for path in section.readable]
        mounts += [(path, str(path), "rw") for path in section.writable]
        variables = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108 - its own, in memory
        if await asyncio.to_thread(folder.cacerts.exists):
            variables["REQUESTS_CA_BUNDLE"] = f"{_JOB}/input/cacerts"
        answer = await self._runtime.run(
            container,
            runnable.pin.id,
            labels={ACTION_LABEL: job.action_id, **self._labels()},
            mounts=mounts,
            variables=variables,
            sandbox=_sandbox(section),
            limits=self._limits,
            arguments=[_JOB],
        )
        if not answer.code:
            return
        state = await self._runtime.state(container)
        if state is not None and not state.is_not_started:
            return  # by an earlier core, whose command was still on its way, or it has ended at once
        if state is not None:
            await self._runtime.remove(container, even_if_running=False)
        if await self._runtime.image(runnable.pin.id) is None:
            missing = not_installed(runnable.pin)
            raise _EndedError(f"{job.responder_name} did not run: {missing}")
        raise _EndedError(
            f"The container could not be started: {answer.error.rstrip('.')}. See that the image"
            f" {runnable.pin.image} is one of a responder, and that {self._runtime.program} can run it."
        )

    def _started_run(self, job: Job, folder: JobFolder) -> _Run:
        """What is known of a run whose container was started; records that it was."""
        section = section_for(job.responder_name, self._sections) or ResponderSection()
        try:
            facts: RunFacts | None = folder.facts()
        except (OSError, ValueError):
            facts = None
        names = (folder.path.parent, folder.path.name, folder.started.name)
        try:
            at = float(json.loads(files.read_regular(*names, limit_bytes=_STARTED_LIMIT_BYTES))["at"])
        except FileNotFoundError:
            at = self._clock()
            files.replace(*names, content=json.dumps({"at": at}).encode())
        except (ValueError, LookupError, TypeError):
            at = self._clock()
        container = self._container(job.run_id)
        return _Run(job.action_id, job.run_id, job.responder_name, container, folder, facts, section, at)

    async def _follow(self, run: _Run) -> Report:
        """Wait until the container ends, stop it if that is due, and read its result."""
        stopped = self._stop_reasons.get(run.run_id) or await asyncio.to_thread(run.folder.stop_reason)
        state: ContainerState | None = None
        if not stopped:
            minutes = run.facts.timeout_minutes if run.facts else 0.0  # there can be no result: stop it now
            try:
                async with asyncio.timeout(max(0.0, run.started_at + minutes * 60 - self._clock())):
                    state, stopped = await self._until_ended_or_full(run)
            except TimeoutError:
                stopped = "timeout"
        if stopped:
            state = await self._stop(run, self._stop_reasons.setdefault(run.run_id, stopped))
        return await self._collect(run, state, self._stop_reasons.get(run.run_id, ""))

    async def _until_ended_or_full(self, run: _Run) -> tuple[ContainerState | None, str]:
        """The state of the container when it has ended, or "disk" or "files" as the reason to stop it."""
        ended = asyncio.create_task(self._until_ended(run.container))
        full = asyncio.create_task(_until_over(run))
        try:
            await asyncio.wait((ended, full), return_when=asyncio.FIRST_COMPLETED)
            return (ended.result(), "") if ended.done() else (None, full.result())
        finally:
            for task in (ended, full):
                task.cancel()
            await asyncio.gather(ended, full, return_exceptions=True)

    async def _until_ended(self, container: str) -> ContainerState | None:
        """The state of a container that has ended; None if it is gone. A runtime that is away is waited for."""
        attempt = 0
        while True:
            try:
                await self._runtime.wait(container)
                state = await self._runtime.state(container)
                if state is None or state.has_ended:
                    return state
            except UnavailableError as error:
                log.warning("container_not_followed", container=container, reason=str(error))
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _stop(self, run: _Run, reason: str) -> ContainerState | None:
        """Stop the container. Raises _EndedError when it can't be stopped."""
        await asyncio.to_thread(_mark_stopped, run.folder, reason)
        try:
            await self._runtime.stop(run.container, self._grace_s)
            state = await self._runtime.state(run.container)
        except UnavailableError as error:
            why = {"timeout": "It reached its time limit", "cancel": "It was cancelled"}.get(
                reason, "It wrote too much"
            )
            raise _EndedError(f"{why} and can't be stopped, so it may still run. {error}") from error
        if state is not None and not state.has_ended:
            raise _EndedError(f"{run.name} can't be stopped; remove its container {run.container} by hand.")
        return state

    async def _collect(self, run: _Run, state: ContainerState | None, stopped: str) -> Report:
        """The report of a run whose container has ended; `state` is None if it was removed."""
        exit_description = f"exit code {state.exit_code}" if state else "its container was removed by someone else"
        if state:
            await self._keep_printed(run)
        failure = ""
        if state and not stopped and (state.exit_code == _KILLED or (state.is_out_of_memory and state.exit_code)):
            failure = self._killed(run, state)
        return await asyncio.to_thread(
            run_report.make_report, run.folder, run.facts, stopped, exit_description, failure
        )

    async def _keep_printed(self, run: _Run) -> None:
        names = (run.folder.path.parent, run.folder.path.name, run.folder.printed.name)
        try:
            printed = (await self._runtime.printed(run.container)).encode("utf-8", "replace")
            await asyncio.to_thread(lambda: files.replace(*names, content=printed))
        except (UnavailableError, OSError) as error:
            log.warning("printed_not_read", action_id=run.action_id, reason=str(error))

    def _killed(self, run: _Run, state: ContainerState) -> str:
        """Why a container ended that core did not stop."""
        advice = f'raise memory_mib in [responder."{run.name}"] if it needs more.'
        limit = f"all of its {run.section.memory_mib} MiB of memory"
        if state.is_out_of_memory:
            return f"It was killed since it used {limit}; {advice}"
        if self._limits is not None and self._limits.memory:
            return f"It was killed (exit code {_KILLED}), as happens when it uses {limit}; {advice}"
        return f"It was killed (exit code {_KILLED}), as happens when the machine is out of memory; run less on it."

    # --- the runtime

    async def _try_out(self, image: str) -> Limits:
        """The limits that containers can be run with. Raises UnavailableError when none can be run."""
        offered = await self._runtime.limits()
        reason = await self._runtime.try_out(image, offered)
        usable = offered
        for usable in () if not reason else (without(offered, cgroups=True), without(offered, cgroups=False)):
            if usable.cgroups or self._runtime.program == "podman":
                reason = reason if await self._runtime.try_out(image, usable) else ""
            if not reason:
                break
        if reason:
            raise UnavailableError(
                f"{self._runtime.program} can't run containers on this machine: {reason.rstrip('.')}."
                f" Correct that, until `{self._runtime.program} run` works under core's account."
            )
        if missing := usable.missing():
            log.warning("container_limits_missing", engine=self._name, reason=self._without(missing))
        return usable

    def _without(self, missing: str) -> str:
        return (
            f"{self._runtime.program} can't limit {missing} of containers here, so a responder can use all that the"
            " machine has; give this machine cgroups with the controllers memory and pids."
        )

    async def _remove(self, container: str, folder: JobFolder) -> None:
        try:
            if not await self._runtime.remove(container, even_if_running=True):
                log.warning("container_not_removed", container=container)
                return
        except UnavailableError as error:  # the sweep of the next start finds it by its label
            log.warning("container_not_removed", container=container, reason=str(error))
        if not self._keep_jobs:
            await asyncio.to_thread(files.remove_tree, folder.path)


class _EndedError(Exception):
    """The end of a run that has no container to follow: a Failure with this message."""

    @property
    def report(self) -> Report:
        return Report(success=False, message=str(self))


def _sandbox(section: ResponderSection) -> Sandbox:
    return Sandbox(
        section.memory_mib, section.processes, section.file_mib, section.disk_mib, network=section.network == "all"
    )


def _open_to_container(folder: JobFolder) -> None:
    """Let another account read the input and write the output. The job folder around them stays core's own."""
    for name, mode in (("input", 0o755), ("output", 0o777)):
        (folder.run / name).chmod(mode)
    for file in (folder.run / "input").iterdir():
        file.chmod(0o644)


def _mark_stopped(folder: JobFolder, reason: str) -> None:
    """Record why a run is stopped, for the core that will report on it; an error must not delay the stop."""
    try:
        folder.mark_stopped(reason)
    except FileNotFoundError:
        return  # the folder does not exist yet, or no longer
    except OSError as error:
        log.warning("stop_reason_not_recorded", folder=folder.path.name, error=str(error))


async def _until_over(run: _Run) -> str:
    """Return "disk" or "files" when a container has written more than it may, which it can exceed for a moment."""
    while True:
        if over := await asyncio.to_thread(_over, run):
            return over
        await asyncio.sleep(_LOOK_S)


def _over(run: _Run) -> str:
    usage = Usage(run.section.disk_mib * 1024**2, run.section.files)
    usage.add_folders(str(run.folder.path))
    return usage.over
