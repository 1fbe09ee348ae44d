"""The command line of podman or docker: starts, follows, stops and removes containers.

Nothing secret is in an argument: whoever lists processes can read those.
"""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Program = Literal["podman", "docker"]

NOT_FOUND = 127
"""The exit code of `run` when the runtime has prepared a container and its program is not in the image."""

LOG_BYTES = 1024**2
"""The most that is kept of what a container prints."""

_USER = "65534:65534"
"""Nobody; images must not need another."""

_TIMEOUT_S = 60.0
_PULL_TIMEOUT_S = 1800.0
_AT_ONCE = 8
_MOST_PROCESSES = 4096
_OPEN_FILES = 512

_PASSED_ON = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS", "REGISTRY_AUTH_FILE")
_PASSED_ON_PREFIXES = ("XDG_", "DOCKER_", "CONTAINER_", "CONTAINERS_", "STORAGE_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")

_NOT_STARTED = ("configured", "created", "initialized", "creating")
_ENDED = ("exited", "stopped", "dead")


class UnavailableError(Exception):
    """Why the runtime can't be used now, as a sentence that says what to do."""


@dataclass(frozen=True)
class Answer:
    """How a command of the runtime ended."""

    code: int
    out: str
    error: str
    """The last line that it wrote to standard error."""


@dataclass(frozen=True)
class ContainerState:
    status: str
    exit_code: int
    is_out_of_memory: bool
    error: str
    """Why it could not be started, if that is so."""

    @property
    def is_not_started(self) -> bool:
        return self.status in _NOT_STARTED

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDED


@dataclass(frozen=True)
class Limits:
    """Which limits this machine can hold a container to."""

    memory: bool = True
    processes: bool = True
    cgroups: bool = True

    def missing(self) -> str:
        """What can't be limited, for a sentence; `""` if all can."""
        lacking = [] if self.memory else ["memory"]
        return " and ".join([*lacking, *([] if self.processes else ["the number of processes"])])


@dataclass(frozen=True)
class Sandbox:
    """What a container may use; every one is read-only, without capabilities and without an account."""

    memory_mib: int
    processes: int
    file_mib: int
    """Size of any file that it writes."""
    disk_mib: int
    """Size of its temporary folder."""
    network: bool


@dataclass(frozen=True)
class Image:
    """An image on this machine."""

    id: str
    """Digest of its content, with `sha256:`."""
    digests: tuple[str, ...]
    """Its names in registries, each with the digest there; none for an image that was made here."""


class Runtime:
    """podman or docker. Every method but `program` raises UnavailableError when it can't be used."""

    def __init__(self, program: Program, environ: Mapping[str, str] = os.environ) -> None:
        self.program = program
        self._environment = {name: value for name, value in environ.items() if _is_passed_on(name)}
        self._pulling = {name: value for name, value in environ.items() if name.upper() in _PROXIES}
        # Not the threads of the event loop: a runtime that hangs must hold up nothing else.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=program)

    async def close(self) -> None:
        """Wait for running commands, so that the next core finds a container that is being started."""
        await asyncio.to_thread(self._threads.shutdown)

    # --- images

    async def images(self) -> frozenset[str]:
        """The ids of all images here."""
        answer = await self._checked("image", "ls", "--quiet", "--no-trunc")
        return frozenset(map(_image_id, answer.out.split()))

    async def image(self, name: str) -> Image | None:
        """The image of that name or id; None if it is not here."""
        answer = await self._call("image", "inspect", name)
        if answer.code:
            await self.images()  # raises if that isn't why
            return None
        try:
            raw = json.loads(answer.out)[0]
            return Image(_image_id(str(raw["Id"])), tuple(map(str, raw.get("RepoDigests") or ())))
        except (ValueError, LookupError, TypeError) as error:
            raise UnavailableError(
                f"{self.program} describes the image {name} in a way that is not known; see its version."
            ) from error

    async def pull(self, name: str) -> str:
        """Fetch an image from its registry. Returns `""`, or why that failed."""
        answer = await self._call("pull", "--quiet", name, timeout_s=_PULL_TIMEOUT_S, environment=self._pulling)
        return "" if not answer.code else answer.error or f"{self.program} pull failed without a message."

    # --- limits

    async def limits(self) -> Limits:
        """The limits that the runtime says it has."""
        answer = await self._checked("info", "--format", "{{json .}}")
        try:
            raw = json.loads(answer.out)
            if self.program == "docker":
                return Limits(bool(raw.get("MemoryLimit")), bool(raw.get("PidsLimit")))
            controllers = raw["host"]["cgroupControllers"] or ()
            return Limits("memory" in controllers, "pids" in controllers)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._unknown("info") from error

    async def try_out(self, image: str, limits: Limits) -> str:
        """Prepare a container without running anything. Returns `""`, or why containers can't be run with `limits`."""
        sandbox = Sandbox(memory_mib=64, processes=16, file_mib=1, disk_mib=1, network=False)
        name = "/nothing-to-run-in-this-image"
        answer = await self._call("run", "--rm", *self._options(sandbox, limits), "--entrypoint", name, image)
        return "" if answer.code == NOT_FOUND else answer.error or f"exit code {answer.code}"

    # --- containers

    async def run(
        self,
        name: str,
        image: str,
        *,
        labels: Mapping[str, str],
        mounts: Sequence[tuple[Path, str, str]],
        variables: Mapping[str, str],
        sandbox: Sandbox,
        limits: Limits,
        arguments: Sequence[str],
    ) -> Answer:
        """Start a container in the background; at most one of a name. It may have started although this failed.

        It finishes even if the caller is cancelled. `mounts` are source, target and options.
        """
        options = [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
        options += [part for key, value in variables.items() for part in ("--env", f"{key}={value}")]
        options += [part for source, target, how in mounts for part in ("-v", f"{source}:{target}:{how}")]
        driver = "k8s-file" if self.program == "podman" else "json-file"
        options += ["--log-driver", driver, "--log-opt", f"max-size={LOG_BYTES}"]
        begun = self._call(
            *("run", "--detach", "--name", name, *self._options(sandbox, limits), *options, image, *arguments)
        )
        return await asyncio.shield(asyncio.ensure_future(begun))

    def _options(self, sandbox: Sandbox, limits: Limits) -> list[str]:
        mib = 1024**2
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        most = _MOST_PROCESSES if most == resource.RLIM_INFINITY else min(_MOST_PROCESSES, most)
        file_bytes = sandbox.file_mib * mib
        options = [
            *("--pull=never", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--user", _USER),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,noexec,size={sandbox.disk_mib}m,mode=1777", "--no-healthcheck"),  # noqa: S108
            *("--ulimit", f"nofile={_OPEN_FILES}:{_OPEN_FILES}", "--ulimit", f"nproc={most}:{most}"),
            *("--ulimit", "core=0:0", "--ulimit", f"fsize={file_bytes}:{file_bytes}"),
        ]
        if self.program == "podman":
            # Else podman adds temporary folders without a bound, and the proxies of core with their logins.
            options += ["--read-only-tmpfs=false", "--http-proxy=false"]
        if not sandbox.network:
            options += ["--network", "none"]
        if limits.memory:
            options += ["--memory", f"{sandbox.memory_mib}m", "--memory-swap", f"{sandbox.memory_mib}m"]
        if limits.processes:
            options += ["--pids-limit", str(sandbox.processes)]
        return options if limits.cgroups else [*options, "--cgroups=disabled"]

    async def state(self, name: str) -> ContainerState | None:
        """The state of a container; None if there is none of that name."""
        answer = await self._call("container", "inspect", name)
        if answer.code:
            listed = await self._checked("ps", "--all", "--filter", f"name=^{name}$", "--format", "{{.Names}}")
            if name not in listed.out.split():
                return None
            answer = await self._checked("container", "inspect", name)
        try:
            raw: dict[str, Any] = json.loads(answer.out)[0]["State"]
            return ContainerState(
                str(raw["Status"]).lower(), int(raw["ExitCode"]), bool(raw.get("OOMKilled")), str(raw.get("Error", ""))
            )
        except (ValueError, LookupError, TypeError) as error:
            raise UnavailableError(
                f"{self.program} describes a container in a way that is not known; see its version."
            ) from error

    async def wait(self, name: str) -> None:
        """Return when a container has ended, or when that can't be waited for any more."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(self.program, "wait", name),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise self._missing(error) from error
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def printed(self, name: str) -> str:
        """What a container printed, at most the last LOG_BYTES or so."""
        return (await self._checked("logs", name, is_merged=True)).out

    async def stop(self, name: str, grace_s: float) -> None:
        """Send SIGTERM to a container's program, and SIGKILL after the grace period; return when it has ended."""
        await self._call("stop", "-t", str(max(0, round(grace_s))), name, timeout_s=grace_s + _TIMEOUT_S)

    async def remove(self, name: str, *, even_if_running: bool) -> bool:
        """Remove a container; False if that failed. One that is gone already counts as removed."""
        answer = await self._call("rm", *(("--force",) if even_if_running else ()), name)
        return not answer.code or await self.state(name) is None

    async def find(self, labels: Mapping[str, str]) -> list[str]:
        """The names of all containers with `labels`."""
        filters = [part for key, value in labels.items() for part in ("--filter", f"label={key}={value}")]
        answer = await self._checked("ps", "--all", *filters, "--format", "{{.Names}}")
        return answer.out.split()

    # --- one command

    async def _checked(self, *arguments: str, is_merged: bool = False) -> Answer:
        answer = await self._call(*arguments, is_merged=is_merged)
        if answer.code:
            said = (answer.error or f"exit code {answer.code}").rstrip(".")
            raise UnavailableError(
                f"{self.program} does not work ({said}); start it or correct that, and see that core's account may"
                f" use it: `{self.program} {arguments[0]}` has to work there."
            )
        return answer

    async def _call(
        self,
        *arguments: str,
        timeout_s: float = _TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        is_merged: bool = False,
    ) -> Answer:
        """Run one command in a thread, so that it finishes even if the caller is cancelled."""

        def call() -> Answer:
            try:
                done = subprocess.run(  # noqa: S603 - podman or docker, without a shell
                    [self.program, *arguments],
                    env={**self._environment, **(environment or {})},
                    cwd=tempfile.gettempdir(),  # podman's conmon leaves a file `oom` where it was started
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if is_merged else subprocess.PIPE,
                    timeout=timeout_s,
                    start_new_session=True,  # a signal to core is not one to it
                    check=False,
                )
            except subprocess.TimeoutExpired:
                what = f"`{self.program} {arguments[0]}` did not end within {timeout_s:g} s"
                raise UnavailableError(f"{what}; see what holds {self.program} up, or restart it.") from None
            except OSError as error:
                raise self._missing(error) from error
            out, said = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr or b""))
            return Answer(done.returncode, out, _last_line(out if is_merged else said))

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _unknown(self, command: str) -> UnavailableError:
        return UnavailableError(
            f"`{self.program} {command}` answers in a way that is not known; see that it is {self.program}."
        )

    def _missing(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self.program} can't be started ({error.strerror}); install it, or name another in [[engine]] runtime."
        )


def without(limits: Limits, *, cgroups: bool) -> Limits:
    """No limits that need cgroups; with `cgroups` False, none are used at all."""
    return replace(limits, memory=False, processes=False, cgroups=cgroups)


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)


def _image_id(text: str) -> str:
    return text if text.startswith("sha256:") else f"sha256:{text}"


def _last_line(text: str) -> str:
    """The error, without docker's advice to read its help, which follows it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "--help" not in line]
    return lines[-1].removeprefix("Error: ").removeprefix("docker: ")[-500:] if lines else ""
