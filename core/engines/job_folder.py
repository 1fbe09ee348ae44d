"""The folder of one run: its input, what core notes about it, and the locks on it.

JOB/            core's own: facts.json, started, stop, follower, gate; printed, the program's output stream
JOB/run/        the program's argument
JOB/run/input/  what the program reads
JOB/run/output/ where the program writes its report
JOB/run/tmp/    the program's HOME and temporary folder
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from core.common.private_files import make_private
from core.engines import files
from core.engines.base import Job
from core.engines.configuration import ConfiguredResponder
from core.engines.secret_redaction import (
    REMOVED,
    SHORTEST_SECRET,
    redact_keys,
    redact_urls,
    secrets_in,
    secrets_in_url,
)

OUTPUT_LIMIT_BYTES = 4 * 1024**2  # of output.json
"""The largest output.json that is read, unless the settings say otherwise."""

STOP_REASONS = ("timeout", "cancel", "disk", "files", "processes")
"""Core writes the first two, the supervisor the others."""

_FULL = (errno.ENOSPC, errno.EDQUOT)

_ROOM_BYTES, _ROOM_FILES = 65_536, 16
"""What a run needs at least."""

_FACTS_LIMIT_BYTES = 16 * 1024**2
_STOP_LIMIT_BYTES = 100

_LOCK_TRIES = 500
_LOCK_RETRY_S = 0.01

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RunFacts:
    """What another core needs to finish this run and report on it, even without the definition."""

    timeout_minutes: float
    secret_names: frozenset[str]
    secrets: tuple[str, ...]
    """Secret values, to be redacted in everything the program returns."""
    config: Mapping[str, Any]
    """The configuration as the report shows it, redacted."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Paths of this machine with what a report shows in their place."""
    confined: str = ""
    """How the program was confined: "landlock" or "bwrap"."""


_FACTS = TypeAdapter(RunFacts)


@dataclass(frozen=True)
class JobFolder:
    """The paths in one job folder, and core's notes there."""

    path: Path

    @property
    def started(self) -> Path:
        """The launcher's record of what it started."""
        return self.path / "started"

    @property
    def stop(self) -> Path:
        """Why the run was stopped; forbids a start."""
        return self.path / "stop"

    @property
    def printed(self) -> Path:
        """The program's output stream."""
        return self.path / "printed"

    @property
    def run(self) -> Path:
        """The folder that the program gets as its argument."""
        return self.path / "run"

    @property
    def home(self) -> Path:
        """The program's HOME and temporary folder."""
        return self.run / "tmp"

    @property
    def cacerts(self) -> Path:
        """The CA certificates of the configuration, in PEM."""
        return self.run / "input" / "cacerts"

    def stop_reason(self) -> str:
        """One of STOP_REASONS if core ended the run, else `""`."""
        try:
            text = self._read("stop", limit_bytes=_STOP_LIMIT_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return text if text in STOP_REASONS else ""

    def mark_stopped(self, reason: str) -> None:
        """Record one of STOP_REASONS for the core that will report on the run. Logs what prevents that."""
        try:
            files.replace(self.path.parent, self.path.name, "stop", content=reason.encode())
        except FileNotFoundError:
            return  # the folder does not exist yet, or no longer
        except OSError as error:
            log.warning("stop_reason_not_recorded", folder=self.path.name, error=str(error))

    def facts(self) -> RunFacts:
        """Read back what `create` wrote. Raises OSError or ValueError when the program removed or replaced it."""
        try:
            return _FACTS.validate_json(self._read("facts.json", limit_bytes=_FACTS_LIMIT_BYTES))
        except ValidationError:  # whose text may quote a secret
            raise ValueError("facts.json was replaced") from None

    def facts_left(self) -> RunFacts | None:
        """As `facts`; None when the program removed or replaced them."""
        try:
            return self.facts()
        except (OSError, ValueError):
            return None

    def _read(self, name: str, *, limit_bytes: int) -> bytes:
        return files.read_regular(self.path.parent, self.path.name, name, limit_bytes=limit_bytes)


def folder_name(engine: str, run_id: str) -> str:
    """The name of a run's job folder, which is also the engine's job id. It is always the same for a run."""
    return f"{_slug(engine)}-{run_id}"


def _slug(engine: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", engine)
    return plain if plain == engine else f"{plain}_{hashlib.sha256(engine.encode()).hexdigest()[:8]}"


def create(folder: JobFolder, job: Job, configured: ConfiguredResponder, *, confined: str = "") -> int:
    """Create the folder atomically, by rename, and locked, as by `lock`.

    Leaves an existing one alone. Raises OSError.
    """
    jobs = folder.path.parent
    make_private(jobs)
    new = jobs / f".{folder.path.name}.{secrets.token_hex(8)}"
    _make_directory(new)
    files.write_new(new / "follower", b"")
    lock_descriptor = lock(JobFolder(new))
    try:
        _fill(new, job, configured, confined)
        renamed = _rename(new, folder.path)
        _sync(jobs)
    except BaseException:
        os.close(lock_descriptor)
        files.remove_tree(new)
        raise
    if renamed:
        return lock_descriptor
    os.close(lock_descriptor)
    return lock(folder)


def _fill(new: Path, job: Job, configured: ConfiguredResponder, confined: str) -> None:
    run = new / "run"
    for directory in (run, run / "input", run / "output", run / "tmp"):
        _make_directory(directory)
    program_input = {**job.input(), "config": _program_config(configured)}
    _write(run / "input" / "input.json", json.dumps(program_input, ensure_ascii=False))
    if configured.cacerts:
        is_pem = "-----BEGIN" in configured.cacerts
        _write(run / "input" / "cacerts", configured.cacerts if is_pem else Path(configured.cacerts).read_text())
    _write(new / "facts.json", json.dumps({**_facts(configured), "confined": confined}, ensure_ascii=False))
    _write(new / "printed", "")


def _make_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    directory.chmod(0o700)  # regardless of the umask


def _write(path: Path, text: str) -> None:
    files.write_new(path, text.encode("utf-8", "replace"))


def _rename(new: Path, path: Path) -> bool:
    """Rename `new` to `path`; False, and `new` removed, when another core has created that folder already."""
    try:
        new.rename(path)
    except NotADirectoryError:  # a file or a symlink, which core never creates there
        files.remove_tree(path)
        new.rename(path)
    except OSError:
        files.remove_tree(new)
        if not path.is_dir():
            raise
        return False
    return True


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _program_config(configured: ConfiguredResponder) -> dict[str, Any]:
    return {
        **configured.config,
        "check_tlp": configured.check_tlp,
        "max_tlp": configured.max_tlp,
        "check_pap": configured.check_pap,
        "max_pap": configured.max_pap,
        "proxy": {"http": configured.proxy_http, "https": configured.proxy_https},
    }


def _facts(configured: ConfiguredResponder) -> dict[str, Any]:
    root = configured.definition.root
    return {
        "timeout_minutes": configured.timeout_minutes,
        "secret_names": sorted(configured.secret_names),
        "secrets": secrets_of(configured, os.environ),
        "config": _report_config(configured),
        "names": {str(root): root.name},
    }


def _report_config(configured: ConfiguredResponder) -> dict[str, Any]:
    config: dict[str, Any] = redact_urls(redact_keys(_program_config(configured), configured.secret_names))
    proxy = {
        scheme: REMOVED if f"proxy_{scheme}" in configured.secret_names else _redact_proxy(value)
        for scheme, value in (("http", configured.proxy_http), ("https", configured.proxy_https))
    }
    return {**config, "proxy": proxy, "cacerts": configured.cacerts, "jobTimeout": configured.timeout_minutes}


def _redact_proxy(proxy: str | None) -> str | None:
    """The address of a proxy without its login; it may lack `http://`."""
    if not proxy or "://" in proxy:
        return proxy and str(redact_urls(proxy))
    return str(redact_urls(f"http://{proxy}")).removeprefix("http://")


def secrets_of(configured: ConfiguredResponder, environ: Mapping[str, str]) -> list[str]:
    """The secret values to redact in what the program returns: those long enough, logins of proxies among them.

    `environ` is core's environment, whose proxy variables the program gets. The definition's defaults are public.
    """
    secrets = secrets_in(_program_config(configured), configured.secret_names, urls=True)
    proxies = [configured.proxy_http, configured.proxy_https, *(environ.get(name) for name in _PROXY_VARIABLES)]
    for proxy in proxies:
        if proxy:
            secrets |= secrets_in_url(proxy if "://" in proxy else f"http://{proxy}")
    defaults = [item.default for item in configured.definition.items]
    public = {str(text) for default in defaults for text in (default if isinstance(default, list) else [default])}
    return sorted(text for text in (secrets - public) | configured.read_secrets if len(text) >= SHORTEST_SECRET)


def why_not_prepared(error: OSError | ValueError) -> str:
    """Why a run could not be prepared, and what to do, in a sentence."""
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
    if isinstance(error, OSError) and error.errno in _FULL:
        return (
            f"The run could not be prepared, since the disk of the job folders is full ({reason});"
            " free space or inodes on it, and run it again."
        )
    return f"The run could not be prepared: {reason}."


def problem(jobs: Path) -> str:
    """Why no job folder can be made below `jobs`, and what to do, in a sentence; or `""`. Leaves no file there."""
    try:
        with tempfile.TemporaryFile(dir=jobs, buffering=0) as file:
            file.write(bytes(_ROOM_BYTES))
        room = os.statvfs(jobs)
        if room.f_files and room.f_favail < _ROOM_FILES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        if error.errno in _FULL:
            return f"No run can start, since {jobs} is full ({error.strerror}); free space or inodes on it."
        return f"No run can start, since {jobs} can't be written to ({error.strerror}); correct that."
    return ""


def lock(folder: JobFolder) -> int:
    """Take a shared lock on `JOB/follower`, so that no core removes the folder; close the descriptor to release it.

    Raises OSError. A core that cleans up holds the lock exclusively only for a moment, so after some retries the
    descriptor is returned without a lock: what still holds the lock then is the program, and it blocks removal as well.
    """
    descriptor = _open_follower(folder)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_RETRY_S)
        else:
            break
    return descriptor


@contextlib.contextmanager
def locked_for_removal(folder: JobFolder) -> Iterator[bool]:
    """Hold the lock exclusively while the block runs; False when a core follows the run, so the folder must stay."""
    try:
        descriptor = _open_follower(folder)
    except OSError:
        yield True  # not a folder that a core could follow
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = True
    except OSError:
        is_free = False
    try:
        yield is_free
    finally:
        os.close(descriptor)


def _open_follower(folder: JobFolder) -> int:
    directory = files.open_directory(folder.path.parent, folder.path.name)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open("follower", flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)


def list_folders(jobs: Path, engine: str) -> list[JobFolder]:
    """The job folders of `engine` below `jobs`, partly created ones included."""
    pattern = re.compile(rf"\.?{re.escape(_slug(engine))}-[0-9]+-[0-9a-f]+(\..*)?")
    if not jobs.is_dir():
        return []
    return [JobFolder(path) for path in sorted(jobs.iterdir()) if pattern.fullmatch(path.name)]


def by_action(jobs: Path, engine: str) -> dict[int, JobFolder]:
    """The whole job folders of `engine` below `jobs`, by the number of their action."""
    prefix = f"{_slug(engine)}-"
    whole = [
        folder
        for folder in list_folders(jobs, engine)
        if re.fullmatch(r"[0-9]+-[0-9a-f]+", folder.path.name.removeprefix(prefix))
    ]
    return {int(folder.path.name.removeprefix(prefix).partition("-")[0]): folder for folder in whole}


def remove_free(folders: Iterable[JobFolder]) -> None:
    """Remove those that no core follows."""
    for folder in folders:
        with locked_for_removal(folder) as is_free:
            if is_free:
                files.remove_tree(folder.path)
