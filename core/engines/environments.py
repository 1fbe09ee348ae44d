"""Python environments of responders: one for each set of requirements, built by uv."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement

from core.common.private_files import make_private
from core.engines import files
from core.engines.files import raise_if_exhausted, read_in_folder

_BUILD_TIMEOUT_S = 1800.0
AT_ONCE = 4

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PASSED_ON_PREFIXES = ("UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Unavailable:
    """A responder's folder has no interpreter, for this reason."""

    reason: str


@dataclass(frozen=True)
class EnvironmentSpec:
    """The environment that a responder needs."""

    folder: Path
    allow_builds: bool = False
    """Whether uv may also install what has to be built, by code of the package that runs as core's account."""


@dataclass(frozen=True)
class BuildStatus:
    """Progress of `Environments.install` on the environment of one folder."""

    folder: Path
    state: Literal["cached", "building", "built", "failed"]
    message: str = ""
    """Why it failed."""


class Environments:
    """The environments below one folder, each named by a hash of all that it is built from."""

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

    def interpreter(self, spec: EnvironmentSpec) -> Path | Unavailable:
        """The Python interpreter that runs a responder. Blocks for some milliseconds the first time."""
        advice = f"run `responder-bot responders install {spec.folder}`."
        try:
            lines = read_requirements(spec.folder, allow_builds=spec.allow_builds)
        except UnusableRequirementsError as error:
            return Unavailable(f"{error} Fix that and {advice}")
        if not lines:
            return self._plain()
        path = self._path(lines, spec)
        if is_usable(path):
            return path / "bin" / "python"
        reason = _read_failure(_failure_file(path))
        return Unavailable(f"{reason} Fix that and {advice}" if reason else f"its environment is not built; {advice}")

    def _plain(self) -> Path | Unavailable:
        if self._python:
            if self._python.exists():
                return self._python
            return Unavailable(f"{self._python} is missing; correct [[engine]] python.")
        path = self._root / f"plain-{_digest(self._python_version(), sys.executable)}"
        try:
            if not is_usable(path):
                _build_plain(path)
        except (OSError, subprocess.SubprocessError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            return Unavailable(f"the environment {path} can't be created: {error}")
        return path / "bin" / "python"

    def _path(self, lines: Sequence[str], spec: EnvironmentSpec) -> Path:
        how = "builds" if spec.allow_builds else "wheels"
        return self._root / _digest(self._python_version(), how, *lines)

    def _python_version(self) -> str:
        """Cached. Raises OSError or SubprocessError when the configured interpreter doesn't run."""
        if not self._version:
            self._version = sys.version if self._python is None else _version_of(self._python)
        return self._version

    async def install(
        self, specs: Iterable[EnvironmentSpec], on_progress: Callable[[BuildStatus], None]
    ) -> tuple[BuildStatus, ...]:
        """Build the missing environments; those that failed before are tried again.

        Returns the final status of each folder with requirements. One that fails doesn't affect the others.
        """
        slots = asyncio.Semaphore(AT_ONCE)
        locks: dict[Path, asyncio.Lock] = {}

        async def install_one(spec: EnvironmentSpec) -> BuildStatus | None:
            try:
                lines = read_requirements(spec.folder, allow_builds=spec.allow_builds)
            except UnusableRequirementsError as error:
                status = BuildStatus(spec.folder, "failed", str(error))
                on_progress(status)
                return status
            if not lines:
                return None
            path = self._path(lines, spec)
            async with locks.setdefault(path, asyncio.Lock()), slots:
                return await self._install(spec, lines, path, on_progress)

        statuses = await asyncio.gather(*map(install_one, dict.fromkeys(specs)))
        return tuple(status for status in statuses if status)

    async def _install(
        self, spec: EnvironmentSpec, lines: Sequence[str], path: Path, on_progress: Callable[[BuildStatus], None]
    ) -> BuildStatus:
        if is_usable(path):
            status = BuildStatus(spec.folder, "cached")
        else:
            on_progress(BuildStatus(spec.folder, "building"))
            status = await self._build(spec, lines, path)
        if status.state != "failed":
            await self._compile(path)
        on_progress(status)
        return status

    async def _build(self, spec: EnvironmentSpec, lines: Sequence[str], path: Path) -> BuildStatus:
        folder = spec.folder
        uv = self._uv or os.environ.get("UV") or shutil.which("uv")
        if not uv:
            return BuildStatus(folder, "failed", "uv is not found: install it, or set the variable UV to its path.")
        make_private(self._root)
        new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=self._root))
        try:
            files.write_new(new / FILE, "".join(f"{line}\n" for line in lines).encode())
            reason = await self._fill(uv, new, allow_builds=spec.allow_builds)
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

    async def _fill(self, uv: str, new: Path, *, allow_builds: bool) -> str:
        """Create the environment in `new`, which has its requirements. Returns `""`, or why that failed.

        uv sees nothing of the responder's folder, which could configure it.
        """
        steps = (
            ("venv", "--relocatable", "--allow-existing", "--no-project", "--python", self._base, str(new)),
            (
                *("pip", "install", "--python", str(new / "bin" / "python"), "-r", str(new / FILE)),
                *(() if allow_builds else ("--no-build",)),
            ),
        )
        for step in steps:
            reason = await _run((uv, "--no-config", *step), new)
            if reason:
                trust = ". If you trust its code, set allow_builds = true for this responder."
                return f"{reason}{trust}" if "--no-build" in reason else reason
        return ""

    @property
    def _base(self) -> str:
        """The interpreter that environments are made from; not that of core's environment."""
        own: str = getattr(sys, "_base_executable", "") or sys.executable
        return str(self._python or own)

    async def _compile(self, path: Path) -> None:
        """Compile the packages of an environment: a confined run can't write there, so each would compile them again.

        Not by its own interpreter, whose standard library a package may have replaced. What can't be compiled is left
        to the run that imports it. Takes some 50 ms if all is compiled.
        """
        with contextlib.suppress(OSError):
            await _run((self._base, "-I", "-S", "-m", "compileall", "-q", str(path / "lib")), path)


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
    return process.stdout.removesuffix("\n")  # as `sys.version` is here


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
    """The variables for uv and build scripts of packages: those for the network, and none of core's tokens."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    passed |= {name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON_PREFIXES)}
    return passed | {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}


# --- the packages in the `requirements.txt` of a responder, by name; nothing else is allowed there --------------------

# Its author is not trusted: whatever else uv understands there (other indexes and files, paths of this machine, code
# that runs to build a package) would be done by core's account, outside the confinement of runs.

FILE = "requirements.txt"

_LIMIT_BYTES = 1024**2
_COMMENT = re.compile(r"(^|\s)#.*")
_HASH = re.compile(r"\s--hash[=\s]\s*(sha(?:256|384|512):[0-9a-f]{64,128})(?!\S)")
_OPTION = re.compile(r"--[a-z-]+|-[A-Za-z]")
_SOURCE = re.compile(r"(git\+)?https://[!-~]+|git\+ssh://[!-~]+")


class UnusableRequirementsError(Exception):
    """Why they can't be installed, as a sentence that names file and line."""


def read_requirements(folder: Path, *, allow_builds: bool) -> tuple[str, ...]:
    """The packages that the program in `folder` needs, each as a line for uv; none if the file is missing.

    With `allow_builds` a line may also name the source of a package, by https or git. Raises UnusableRequirementsError,
    and OSError when the machine is out of resources.
    """
    try:
        text = read_in_folder(folder, FILE, limit_bytes=_LIMIT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise_if_exhausted(error)
        raise UnusableRequirementsError(f"{folder / FILE} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UnusableRequirementsError(f"{folder / FILE} is not UTF-8 text.") from error
    packages = []
    for number, line in _lines(text):
        try:
            packages.append(_requirement(line, allow_builds=allow_builds))
        except ValueError as reason:
            raise UnusableRequirementsError(f"{folder / FILE}, line {number}: {reason}") from reason
    return tuple(packages)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without comments; one that ends with a backslash goes on with the next."""
    begun, number = "", 1
    for following, line in enumerate(text.splitlines(), start=1):
        number = number if begun else following
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        whole, begun = _COMMENT.sub("", begun + line).strip(), ""
        if whole:
            yield number, whole
    if begun.strip():
        yield number, begun.strip()


def _requirement(line: str, *, allow_builds: bool) -> str:
    """The line for uv. Raises ValueError with a sentence, which doesn't quote what may be a password."""
    hashes = [f" --hash={digest}" for digest in _HASH.findall(line)]
    line = _HASH.sub("", line).strip()
    if option := _OPTION.match(line):
        raise ValueError(f"the option {option[0]} is not allowed; name packages only.")
    if "${" in line:
        raise ValueError("it names a variable; write its value.")
    try:
        requirement = None if _SOURCE.fullmatch(line) else Requirement(line)
    except InvalidRequirement:
        raise ValueError("it is not the name of a package, such as requests>=2.31; write one.") from None
    source = requirement.url if requirement else line
    if source and not allow_builds:
        raise ValueError("it names where a package comes from, which allow_builds in the settings would permit.")
    if source and not _SOURCE.fullmatch(source):
        raise ValueError("a package can come from https:// or git+https:// only.")
    return "".join([str(requirement or line), *hashes])
