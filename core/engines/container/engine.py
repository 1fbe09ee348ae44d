"""The container engine: runs responders in containers of podman or docker, which outlive core."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait
from core.engines import files, job_folder, run_report
from core.engines.base import Catalogue, Job, Report
from core.engines.catalogue_loader import LoadedCatalogue
from core.engines.container.catalogue_loader import CatalogueLoader, RunnableImage, not_installed
from core.engines.container.images import Images, PullStatus
from core.engines.container.runtime import ContainerState, Limits, Runtime, Sandbox, UnavailableError, without
from core.engines.job_folder import JobFolder
from core.engines.job_folder_engine import EngineOptions, JobFolderEngine, NoResultError, NotStartedError, Run, RunState
from core.engines.process.launcher import Usage
from core.settings import ResponderSection, section_for

ACTION_LABEL = "action"
CORE_LABEL = "responder-bot.core"
ENGINE_LABEL = "responder-bot.engine"

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


@dataclass
class _ContainerRun(Run):
    container: str
    section: ResponderSection
    state: ContainerState | None
    """Of a container that has ended; None if it was removed by someone else."""


class ContainerEngine(JobFolderEngine[RunnableImage, _ContainerRun]):
    """The engine described in core/docs/responder-process.md#containers."""

    _catalogue: CatalogueLoader

    def __init__(self, options: EngineOptions, *, runtime: Runtime, core_id: str, responders: Sequence[Path]) -> None:
        """`core_id` tells the containers of this core's database from others; `responders` are folders and files."""
        self._runtime = runtime
        self._images = Images(runtime, options.environments.absolute())
        catalogue = CatalogueLoader(
            options.name,
            organisation=options.organisation,
            roots=[root.absolute() for root in responders],
            sections=options.responders,
            images=self._images,
        )
        super().__init__(options, catalogue)
        self._core = hashlib.sha256(f"{core_id}\0{self._jobs}".encode()).hexdigest()[:16]
        self._prefix = f"responder-bot-{self._core}-"
        self._labels = {CORE_LABEL: self._core, ENGINE_LABEL: self._name}
        self._sections = options.responders
        self._limits: Limits | None = None
        """None until the runtime has been tried out with an image."""

    async def catalogue(self) -> Catalogue:
        """The responders whose image is installed.

        Raises ResponderBotError("unavailable") also when the runtime is missing, doesn't answer, or can't run
        containers.
        """
        catalogue = await super().catalogue()
        missing = self._limits.missing() if self._limits else ""
        return replace(catalogue, warnings=(self._without(missing),)) if missing else catalogue

    async def _load(self) -> LoadedCatalogue[RunnableImage]:
        try:
            self._catalogue.here = await self._runtime.images()
            loaded = await super()._load()
            if loaded.by_id and self._limits is None:
                self._limits = await self._try_out(next(iter(loaded.by_id.values())).pin.id)
        except UnavailableError as error:
            raise ResponderBotError("unavailable", str(error)) from error
        return loaded

    async def install(self, on_progress: Callable[[PullStatus], None], *, upgrade: bool) -> tuple[PullStatus, ...]:
        """Pull and pin the images of the responders here, as `Images.install` does.

        Those that lack a value are left out, and of a file with many definitions those that the settings don't name.
        Raises ResponderBotError("unavailable").
        """
        try:
            definitions = await asyncio.to_thread(self._catalogue.wanted)
            return await self._images.install(
                (definition.image for definition in definitions), on_progress, upgrade=upgrade
            )
        except UnavailableError as error:
            raise ResponderBotError("unavailable", str(error)) from error

    async def cancel(self, job: Job) -> None:
        try:
            await super().cancel(job)
        except UnavailableError as error:
            self._stop_reasons.pop(job.run_id, None)
            raise ResponderBotError("conflict", f"This run can't be stopped now. {error}") from error

    async def close(self) -> None:
        """Also waits for the commands of the runtime; containers go on."""
        await super().close()
        await self._runtime.close()

    def _container(self, run_id: str) -> str:
        """The container's name is always the same for a run, so the runtime has at most one for it."""
        return f"{self._prefix}{self.job_id(run_id)}"

    # --- one run

    async def _begin(self, folder: JobFolder, job: Job) -> _ContainerRun:
        try:
            with ExitStack() as held:
                state = await self._state_of_earlier(folder, job)
                if state is None:
                    runnable = await self._runnable(job)
                    held.callback(os.close, await self._create(folder, job, runnable))
                    await self._start(folder, job, runnable)
                else:
                    held.callback(os.close, await asyncio.to_thread(job_folder.lock, folder))
                return _ContainerRun(
                    job,
                    folder,
                    await asyncio.to_thread(folder.facts_left),
                    stop_reason=await asyncio.to_thread(folder.stop_reason),
                    started_at=await asyncio.to_thread(self._started_at, folder),
                    has_ended=state is not None and state.has_ended,
                    held=held.pop_all(),
                    container=self._container(job.run_id),
                    section=section_for(job.responder_name, self._sections) or ResponderSection(),
                    state=state,
                )
        except UnavailableError as error:
            log.warning("run_not_started", action_id=job.action_id, reason=str(error))
            raise NoResultError(str(error)) from error

    async def _state_of_earlier(self, folder: JobFolder, job: Job) -> ContainerState | None:
        """The state of the container if an earlier core started it. What it created and did not start is removed.

        Raises NoResultError when there is no trace of a container that ran.
        """
        if not job.resumed:
            return None
        container = self._container(job.run_id)
        was_started = job.seen_running or await asyncio.to_thread(os.path.lexists, folder.started)
        state = await self._state_when_available(container, was_started)
        if state is not None and not state.is_not_started:
            return state
        if was_started:
            raise NoResultError(run_report.VANISHED)
        if state is not None:
            # Its creator may be about to start it: the first command wins, and the other one fails.
            await self._runtime.remove(container, even_if_running=False)
        return None

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

    async def _runnable(self, job: Job) -> RunnableImage:
        runnable = None
        if self._catalogue.here:
            runnable = (await asyncio.to_thread(self._catalogue.load)).by_id.get(job.responder_id)
        if runnable is None:  # listed before core was restarted, or installed since the last listing
            self._catalogue.here = await self._runtime.images()
            loaded = await asyncio.to_thread(self._catalogue.load)
            runnable = loaded.by_id.get(job.responder_id)
            if runnable is None:
                skipped = [item.reason for item in loaded.catalogue.skipped if item.name == job.responder_name]
                raise NotStartedError(" ".join(skipped) or f"{job.responder_name} is no longer available here.")
        return runnable

    async def _create(self, folder: JobFolder, job: Job, runnable: RunnableImage) -> int:
        """Create the job folder. Returns the descriptor of the lock on it."""
        if await asyncio.to_thread(self._is_cancelled, job):
            raise NotStartedError("Cancelled")
        configured = await self._secret_reader.fill_in(runnable.configured)
        return await asyncio.to_thread(job_folder.create, folder, job, configured, share=_open_to_container)

    async def _start(self, folder: JobFolder, job: Job, runnable: RunnableImage) -> None:
        """Start the container. Raises NoResultError with the reason if it can't be."""
        container = self._container(job.run_id)
        if self._limits is None:
            self._limits = await self._try_out(runnable.pin.id)
        section = runnable.section
        mounts = [(folder.run / "input", f"{_JOB}/input", "ro,Z"), (folder.run / "output", f"{_JOB}/output", "rw,Z")]
        mounts += [(path, str(path), "ro") for path in section.readable]
        mounts += [(path, str(path), "rw") for path in section.writable]
        variables = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108 - its own, in memory
        if runnable.configured.cacerts:
            variables["REQUESTS_CA_BUNDLE"] = f"{_JOB}/input/cacerts"
        answer = await self._runtime.run(
            container,
            runnable.pin.id,
            labels={ACTION_LABEL: job.action_id, **self._labels},
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
            return  # started by an earlier core's delayed command, or ended at once
        if state is not None:
            await self._runtime.remove(container, even_if_running=False)
        if await self._runtime.image(runnable.pin.id) is None:
            missing = not_installed(runnable.pin)
            raise NotStartedError(f"{job.responder_name} did not run: {missing}")
        raise NotStartedError(
            f"The container could not be started: {answer.error.rstrip('.')}. See that the image"
            f" {runnable.pin.image} is one of a responder, and that {self._runtime.program} can run it."
        )

    def _started_at(self, folder: JobFolder) -> float:
        """When the container was started, in seconds since the epoch; recorded when first asked for. Blocks."""
        names = (folder.path.parent, folder.path.name, folder.started.name)
        try:
            return float(json.loads(files.read_regular(*names, limit_bytes=_STARTED_LIMIT_BYTES))["at"])
        except FileNotFoundError:
            at = self._clock()
            files.replace(*names, content=json.dumps({"at": at}).encode())
            return at
        except (ValueError, LookupError, TypeError):
            return self._clock()

    async def _follow(self, run: _ContainerRun) -> Report:
        try:
            return await super()._follow(run)
        except UnavailableError as error:
            reason = self._stop_reasons.get(run.job.run_id, "cancel")
            why = {"timeout": "It reached its time limit", "cancel": "It was cancelled"}.get(
                reason, "It wrote too much"
            )
            raise NoResultError(f"{why} and can't be stopped, so it may still run. {error}") from error

    async def _until_ended(self, run: _ContainerRun) -> str:
        ended = asyncio.create_task(self._until_exited(run.container))
        full = asyncio.create_task(_until_full(run))
        try:
            await asyncio.wait((ended, full), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return full.result()
            run.state = ended.result()
            return ""
        finally:
            await cancel_and_wait(ended, full)

    async def _until_exited(self, container: str) -> ContainerState | None:
        """The state of a container once it has ended; None if it is gone. Waits for an unavailable runtime."""
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

    async def _state(self, run_id: str) -> RunState:
        state = await self._runtime.state(self._container(run_id))
        if state is None or state.is_not_started:
            return "not started"
        return "ended" if state.has_ended else "running"

    async def _stop(self, run_id: str) -> None:
        await self._runtime.stop(self._container(run_id), self._grace_s)

    async def _report(self, run: _ContainerRun, stop_reason: str) -> Report:
        state = await self._runtime.state(run.container) if stop_reason else run.state
        if state is not None and not state.has_ended:
            name = run.job.responder_name
            raise NoResultError(f"{name} can't be stopped; remove its container {run.container} by hand.")
        exit_description = f"exit code {state.exit_code}" if state else "its container was removed by someone else"
        if state:
            await self._keep_printed(run)
        failure = ""
        if state and not stop_reason and (state.exit_code == _KILLED or (state.is_out_of_memory and state.exit_code)):
            failure = self._killed(run, state)
        return await asyncio.to_thread(
            run_report.make_report, run.folder, run.facts, stop_reason, exit_description, failure
        )

    async def _keep_printed(self, run: _ContainerRun) -> None:
        names = (run.folder.path.parent, run.folder.path.name, run.folder.printed.name)
        try:
            printed = (await self._runtime.printed(run.container)).encode("utf-8", "replace")
            await asyncio.to_thread(lambda: files.replace(*names, content=printed))
        except (UnavailableError, OSError) as error:
            log.warning("printed_not_read", action_id=run.job.action_id, reason=str(error))

    def _killed(self, run: _ContainerRun, state: ContainerState) -> str:
        """Why a container was killed that core did not stop."""
        advice = f'raise memory_mib in [responder."{run.job.responder_name}"] if it needs more.'
        limit = f"all of its {run.section.memory_mib} MiB of memory"
        if state.is_out_of_memory:
            return f"It was killed since it used {limit}; {advice}"
        if self._limits is not None and self._limits.memory:
            return f"It was killed (exit code {_KILLED}), as happens when it uses {limit}; {advice}"
        return f"It was killed (exit code {_KILLED}), as happens when the machine is out of memory; run less on it."

    # --- the runtime

    async def _try_out(self, image: str) -> Limits:
        """The limits that work for containers here. Raises UnavailableError when none can be run."""
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

    async def _end(self, folder: JobFolder) -> bool:
        container = f"{self._prefix}{folder.path.name}"
        try:
            if await self._runtime.remove(container, even_if_running=True):
                return True
            reason = f"{self._runtime.program} rm failed"
        except UnavailableError as error:  # the clean-up of the next start finds it by its label
            reason = str(error)
        log.warning("container_not_removed", container=container, reason=reason)
        return False

    async def _leftovers(self) -> set[str]:
        try:
            containers = await self._runtime.find(self._labels)
        except UnavailableError as error:
            log.warning("containers_not_swept", engine=self._name, reason=str(error))
            containers = []
        mine = [name for name in containers if name.startswith(self._container(""))]
        return await super()._leftovers() | {name.removeprefix(self._prefix) for name in mine}


def _sandbox(section: ResponderSection) -> Sandbox:
    return Sandbox(
        section.memory_mib, section.processes, section.file_mib, section.disk_mib, network=section.network == "all"
    )


def _open_to_container(new: Path) -> None:
    """Let another account read the input and write the output. The job folder around them stays core's own."""
    for name, mode in (("input", 0o755), ("output", 0o777)):
        (new / "run" / name).chmod(mode)
    for file in (new / "run" / "input").iterdir():
        file.chmod(0o644)


async def _until_full(run: _ContainerRun) -> str:
    """Return "disk" or "files" when a container has written more than it may, which it can exceed for a moment."""
    while True:
        if over := await asyncio.to_thread(_over, run):
            return over
        await asyncio.sleep(_LOOK_S)


def _over(run: _ContainerRun) -> str:
    usage = Usage(run.section.disk_mib * 1024**2, run.section.files)
    usage.add_folders(str(run.folder.path))
    return usage.over
