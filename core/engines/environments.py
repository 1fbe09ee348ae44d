"""Interpreters for responders: an environment of its own for each folder with requirements, built by uv."""

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

from core.engines.definitions import raise_if_exhausted

_BUILD_SECONDS = 1800.0
"""An environment that is not there after half an hour never will be."""

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PASSED_ON_PREFIXES = ("UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs a responder's program."""

    path: Path


@dataclass(frozen=True)
class Unavailable:
    """Why there is no interpreter for a responder's folder, in one sentence."""

    reason: str


@dataclass(frozen=True)
class BuildStatus:
    """News of `Environments.install`: one folder's environment, and how it stands."""

    folder: Path
    state: Literal["cached", "building", "built", "failed"]
    message: str = ""


class Environments:
    """All environments below one folder, found by the hash of requirements and Python version."""

    def __init__(self, root: Path, *, python: Path | None = None, uv: str | None = None) -> None:
        """`python` runs folders without requirements, and is the base of the others; default: this program's own,
        without its packages, so that a responder never imports from responder-bot by accident.
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
        place = self._place(requirements)
        if is_whole(place):
            return Interpreter(place / "bin" / "python")
        reason = _read_failure(_failure_of(place))
        cure = f"run `responder-bot responders install {folder}`."
        return Unavailable(f"{reason} Mend that and {cure}" if reason else f"its environment is not built; {cure}")

    def _plain(self) -> Interpreter | Unavailable:
        if self._python:
            is_there = self._python.exists()
            missing = Unavailable(f"{self._python} is missing; correct [[engine]] python.")
            return Interpreter(self._python) if is_there else missing
        place = self._root / f"plain-{_digest(self._python_version(), sys.executable)}"
        try:
            if not is_whole(place):
                _make_whole(place, _build_plain)
        except (OSError, subprocess.SubprocessError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            return Unavailable(f"the environment {place} can't be made: {error}")
        return Interpreter(place / "bin" / "python")

    def _place(self, requirements: bytes) -> Path:
        return self._root / _digest(self._python_version(), requirements.decode("utf-8", "surrogateescape"))

    def _python_version(self) -> str:
        """Asked once; raises OSError when the configured interpreter doesn't run."""
        if not self._version:
            self._version = sys.version if self._python is None else _version_of(self._python)
        return self._version

    async def install(
        self, folders: Iterable[Path], on_progress: Callable[[BuildStatus], None], *, at_once: int = 4
    ) -> tuple[BuildStatus, ...]:
        """Build what is missing, `at_once` side by side; those that failed before are tried again.

        The answer has one entry for each folder with requirements; one that fails stops no other.
        """
        turns = asyncio.Semaphore(at_once)
        locks: dict[Path, asyncio.Lock] = {}

        async def one(folder: Path, requirements: bytes) -> BuildStatus:
            place = self._place(requirements)
            async with locks.setdefault(place, asyncio.Lock()), turns:
                return await self._install(folder, place, on_progress)

        wanted = [(folder, read_requirements(folder)) for folder in dict.fromkeys(folders)]
        return tuple(await asyncio.gather(*(one(folder, text) for folder, text in wanted if text)))

    async def _install(self, folder: Path, place: Path, on_progress: Callable[[BuildStatus], None]) -> BuildStatus:
        if is_whole(place):
            news = BuildStatus(folder, "cached")
        else:
            on_progress(BuildStatus(folder, "building"))
            news = await self._build(folder, place)
        on_progress(news)
        return news

    async def _build(self, folder: Path, place: Path) -> BuildStatus:
        uv = self._uv or os.environ.get("UV") or shutil.which("uv")
        if not uv:
            return BuildStatus(folder, "failed", "uv is not found: install it, or set the variable UV to its path.")
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=self._root))
        try:
            fault = await self._fill(uv, folder, new)
            if fault:
                _note_failure(_failure_of(place), fault)
                return BuildStatus(folder, "failed", fault)
            _put(new, place)
        except OSError as error:
            return BuildStatus(folder, "failed", f"{error.filename or uv}: {error.strerror}.")
        finally:
            shutil.rmtree(new, ignore_errors=True)
        _failure_of(place).unlink(missing_ok=True)
        return BuildStatus(folder, "built")

    async def _fill(self, uv: str, folder: Path, new: Path) -> str:
        """Make the environment in `new`; the answer is uv's own last line when it can't be made, else `""`."""
        base = str(self._python or _base_executable())
        steps = (
            (uv, "venv", "--relocatable", "--allow-existing", "--no-project", "--python", base, str(new)),
            (uv, "pip", "install", "--python", str(new / "bin" / "python"), "-r", str(folder / "requirements.txt")),
        )
        for step in steps:
            fault = await _run_uv(step, folder)
            if fault:
                return fault
        return ""


def read_requirements(folder: Path) -> bytes:
    """The requirements of a responder's folder; empty when there are none worth the name."""
    try:
        raw = (folder / "requirements.txt").read_bytes()
    except OSError as error:
        raise_if_exhausted(error)
        return b""
    lines = (line.strip() for line in raw.splitlines())
    return raw if any(line and not line.startswith(b"#") for line in lines) else b""


def is_whole(place: Path) -> bool:
    """An environment is there whole or not at all; still, an interpreter that was upgraded away breaks it."""
    return (place / "bin" / "python").exists()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _base_executable() -> str:
    """The interpreter below this program's own environment."""
    return getattr(sys, "_base_executable", "") or sys.executable


def _version_of(python: Path) -> str:
    told = subprocess.run(  # noqa: S603 - the interpreter that the settings name
        [str(python), "-I", "-S", "-c", "import sys; print(sys.version)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={},
    )
    return told.stdout


def _build_plain(place: Path) -> None:
    """An interpreter with the standard library and nothing else; done by the standard library, without uv."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)


def _make_whole(place: Path, build: Callable[[Path], None]) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        build(new)
        _put(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, place: Path) -> None:
    """Rename a finished environment to its place; one that another process put there meanwhile is as good."""
    if place.exists() and not is_whole(place):
        shutil.rmtree(place)
    try:
        new.rename(place)
    except OSError:
        if not is_whole(place):
            raise


def _failure_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.failed.json")


def _read_failure(file: Path) -> str:
    try:
        return str(json.loads(file.read_bytes())["reason"])
    except (OSError, ValueError, KeyError):
        return ""


def _note_failure(file: Path, reason: str) -> None:
    file.write_text(json.dumps({"reason": reason}))


async def _run_uv(step: Sequence[str], folder: Path) -> str:
    """Run one step; `""` when it went well, else the last line that uv said."""
    process = await asyncio.create_subprocess_exec(
        *step,
        cwd=folder,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_BUILD_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        return f"uv did not end within {_BUILD_SECONDS / 60:g} minutes."
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    return "" if process.returncode == 0 else last_sentence(said.decode("utf-8", "replace"))


def last_sentence(said: str) -> str:
    """The resolver's own last line; lines that it broke for the terminal's sake are put together again."""
    lines = [line.strip().lstrip("╰─▶│×├").strip() for line in said.splitlines() if line.strip()]
    if not lines:
        return "uv failed and said nothing."
    last: list[str] = []
    for raw in reversed([line for line in said.splitlines() if line.strip()]):
        last.insert(0, raw.strip().lstrip("╰─▶│×├").strip())
        if raw.lstrip().startswith(("╰", "×", "├", "error", "hint", "Caused")):
            break
    return " ".join(last)[-600:]


def _environment() -> dict[str, str]:
    """What uv and the build programs of packages may see: how to reach the network, none of the service's tokens."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    passed |= {name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON_PREFIXES)}
    return passed | {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
