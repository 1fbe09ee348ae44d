"""Python environments of responders: one for each folder with a `requirements.txt`, built by uv."""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.common.private_files import make_private
from core.engines import files
from core.engines.files import raise_if_exhausted

_BUILD_TIMEOUT_S = 1800.0

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PASSED_ON_PREFIXES = ("UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Interpreter:
    """The Python interpreter that runs a responder's program."""

    path: Path


@dataclass(frozen=True)
class Unavailable:
    """A responder's folder has no interpreter, for this reason."""

    reason: str


@dataclass(frozen=True)
class BuildStatus:
    """Progress of `Environments.install` on the environment of one folder."""

    folder: Path
    state: Literal["cached", "building", "built", "failed"]
    message: str = ""
    """Why it failed."""


class Environments:
    """The environments below one folder, each named by the hash of its requirements and Python version."""

    def __init__(self, root: Path, *, python: Path | None = None, uv: str | None = None) -> None:
        """`python` runs responders without requirements, and is the base of the other environments.

        Without it the interpreter of core is used, but not its packages, so that no responder imports responder-bot.
        """
        self._root = root
        self._python = python
        self._uv = uv
        self._version = ""

    @property
    def root(self) -> Path:
        return self._root

    def interpreter(self, folder: Path) -> Interpreter | Unavailable:
        """The interpreter for a responder's folder. Blocks for some milliseconds the first time."""
        requirements = read_requirements(folder)
        if not requirements:
            return self._plain()
        path = self._path(requirements)
        if is_usable(path):
            return Interpreter(path / "bin" / "python")
        reason = _read_failure(_failure_file(path))
        advice = f"run `responder-bot responders install {folder}`."
        return Unavailable(f"{reason} Fix that and {advice}" if reason else f"its environment is not built; {advice}")

    def _plain(self) -> Interpreter | Unavailable:
        if self._python:
            if self._python.exists():
                return Interpreter(self._python)
            return Unavailable(f"{self._python} is missing; correct [[engine]] python.")
        path = self._root / f"plain-{_digest(self._python_version(), sys.executable)}"
        try:
            if not is_usable(path):
                _build_plain(path)
        except (OSError, subprocess.SubprocessError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            return Unavailable(f"the environment {path} can't be created: {error}")
        return Interpreter(path / "bin" / "python")

    def _path(self, requirements: bytes) -> Path:
        return self._root / _digest(self._python_version(), requirements.decode("utf-8", "surrogateescape"))

    def _python_version(self) -> str:
        """Cached. Raises OSError or SubprocessError when the configured interpreter doesn't run."""
        if not self._version:
            self._version = sys.version if self._python is None else _version_of(self._python)
        return self._version

    async def install(
        self, folders: Iterable[Path], on_progress: Callable[[BuildStatus], None], *, at_once: int = 4
    ) -> tuple[BuildStatus, ...]:
        """Build the missing environments, `at_once` in parallel; those that failed before are tried again.

        Returns the final status of each folder with requirements. One that fails doesn't affect the others.
        """
        slots = asyncio.Semaphore(at_once)
        locks: dict[Path, asyncio.Lock] = {}

        async def install_one(folder: Path, requirements: bytes) -> BuildStatus:
            path = self._path(requirements)
            async with locks.setdefault(path, asyncio.Lock()), slots:
                return await self._install(folder, path, on_progress)

        all_requirements = [(folder, read_requirements(folder)) for folder in dict.fromkeys(folders)]
        return tuple(await asyncio.gather(*(install_one(folder, text) for folder, text in all_requirements if text)))

    async def _install(self, folder: Path, path: Path, on_progress: Callable[[BuildStatus], None]) -> BuildStatus:
        if is_usable(path):
            status = BuildStatus(folder, "cached")
        else:
            on_progress(BuildStatus(folder, "building"))
            status = await self._build(folder, path)
        if status.state != "failed":
            await _compile(path)
        on_progress(status)
        return status

    async def _build(self, folder: Path, path: Path) -> BuildStatus:
        uv = self._uv or os.environ.get("UV") or shutil.which("uv")
        if not uv:
            return BuildStatus(folder, "failed", "uv is not found: install it, or set the variable UV to its path.")
        make_private(self._root)
        new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=self._root))
        try:
            reason = await self._fill(uv, folder, new)
            if reason:
                files.replace(self._root, _failure_file(path).name, content=json.dumps({"reason": reason}).encode())
                return BuildStatus(folder, "failed", reason)
            _publish(new, path)
        except OSError as error:
            return BuildStatus(folder, "failed", f"{error.filename or uv}: {error.strerror}.")
        finally:
            shutil.rmtree(new, ignore_errors=True)
        _failure_file(path).unlink(missing_ok=True)
        return BuildStatus(folder, "built")

    async def _fill(self, uv: str, folder: Path, new: Path) -> str:
        """Create the environment in `new`. Returns `""`, or the last message of uv when that fails."""
        own: str = getattr(sys, "_base_executable", "") or sys.executable  # not that of core's environment
        base = str(self._python or own)
        steps = (
            (uv, "venv", "--relocatable", "--allow-existing", "--no-project", "--python", base, str(new)),
            (uv, "pip", "install", "--python", str(new / "bin" / "python"), "-r", str(folder / "requirements.txt")),
        )
        for step in steps:
            reason = await _run(step, folder)
            if reason:
                return reason
        return ""


async def _compile(path: Path) -> None:
    """Compile the packages of an environment: a confined run can't write there, so each would compile them anew.

    What can't be compiled is left to the run that imports it. Takes some 50 ms if all is compiled.
    """
    with contextlib.suppress(OSError):
        await _run((str(path / "bin" / "python"), "-I", "-S", "-m", "compileall", "-q", str(path / "lib")), path)


def read_requirements(folder: Path) -> bytes:
    """The content of a responder's `requirements.txt`; empty when it has only comments or can't be read."""
    try:
        raw = (folder / "requirements.txt").read_bytes()
    except OSError as error:
        raise_if_exhausted(error)
        return b""
    lines = (line.strip() for line in raw.splitlines())
    return raw if any(line and not line.startswith(b"#") for line in lines) else b""


def is_usable(path: Path) -> bool:
    """Whether an environment exists and its interpreter, a symlink, has not been uninstalled since."""
    return (path / "bin" / "python").exists()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _version_of(python: Path) -> str:
    process = subprocess.run(  # noqa: S603 - the interpreter that the settings name
        [str(python), "-I", "-S", "-c", "import sys; print(sys.version)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={},
    )
    return process.stdout


def _build_plain(path: Path) -> None:
    """Create an environment with the standard library only, without uv."""
    make_private(path.parent)
    new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        venv.EnvBuilder(symlinks=True, with_pip=False).create(new)
        _publish(new, path)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _publish(new: Path, path: Path) -> None:
    """Rename a finished environment to `path`, unless another process has published the same one meanwhile."""
    if path.exists() and not is_usable(path):
        shutil.rmtree(path)
    try:
        new.rename(path)
    except OSError:
        if not is_usable(path):
            raise


def _failure_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.failed.json")


def _read_failure(file: Path) -> str:
    try:
        return str(json.loads(file.read_bytes())["reason"])
    except (OSError, ValueError, KeyError):
        return ""


async def _run(step: Sequence[str], folder: Path) -> str:
    """Run one command of a build. Returns `""`, or the last message of uv when it fails."""
    process = await asyncio.create_subprocess_exec(
        *step,
        cwd=folder,
        env=_build_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_BUILD_TIMEOUT_S):
            _, stderr = await process.communicate()
    except TimeoutError:
        return f"{step[0]} did not end within {_BUILD_TIMEOUT_S / 60:g} minutes."
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    return "" if process.returncode == 0 else last_message(stderr.decode("utf-8", "replace"))


def last_message(stderr: str) -> str:
    """The last message of uv, with the lines joined that it wrapped for the terminal."""
    message: list[str] = []
    for line in reversed([line.strip() for line in stderr.splitlines() if line.strip()]):
        message.insert(0, line.lstrip("╰─▶│×├").strip())
        if line.startswith(("╰", "×", "├", "error", "hint", "Caused")):
            break
    return " ".join(message)[-600:] or "uv failed without a message."


def _build_environment() -> dict[str, str]:
    """The variables that uv and build scripts of packages get: access to the network, none of core's tokens."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    passed |= {name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON_PREFIXES)}
    return passed | {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
