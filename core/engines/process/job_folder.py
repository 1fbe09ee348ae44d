"""The folder of one run: what the program is given, and what it left behind."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from core.engines.base import REMOVED, Job, Report, as_sentence, without_secrets
from core.engines.decoding import decoded
from core.engines.process.definitions import Configured

PRINTED_LIMIT_BYTES = 64 * 1024
"""How much is kept of what a program printed, half from its head and half from its tail (`responder-process.md 2`)."""

OUTPUT_LIMIT_BYTES = 4 * 1024**2
"""How much of an answer is read, where the settings say nothing."""

_LAST_LINES = 10
_LAST_LINES_CHARACTERS = 2000
_SHORTEST_SECRET = 6
"""A value shorter than this is not blotted out of texts: it would blot out half of every word."""


VANISHED = "The job folder of this run has vanished, and its result with it. Run the responder again if it is needed."


@dataclass(frozen=True)
class Facts:
    """What a later core must know to end this run, even when the definition is gone by then."""

    timeout_minutes: float
    secret_names: frozenset[str]
    secrets: tuple[str, ...]
    """The values themselves, to be blotted out of what the program prints."""
    config: Mapping[str, Any]
    """As it goes into the report, secrets removed."""


@dataclass(frozen=True)
class JobFolder:
    """The paths of one job folder."""

    path: Path
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES
    """How large an output file may be."""

    @property
    def started(self) -> Path:
        return self.path / "started"

    @property
    def stop(self) -> Path:
        return self.path / "stop"

    @property
    def printed(self) -> Path:
        return self.path / "printed"

    @property
    def cacerts(self) -> Path:
        return self.path / "input" / "cacerts"

    def stop_reason(self) -> str:
        """Why core ended the run ("timeout", "cancel"), `""` when it didn't."""
        try:
            return self.stop.read_text()
        except FileNotFoundError:
            return ""

    def facts(self) -> Facts:
        """Read back what `create` wrote. Raises OSError or ValueError when somebody took it away."""
        raw = json.loads((self.path / "facts.json").read_bytes())
        return Facts(raw["timeout_minutes"], frozenset(raw["secret_names"]), tuple(raw["secrets"]), raw["config"])


def folder_name(engine: str, action_id: str) -> str:
    """The same for the same action always; it is the engine's job id (`semantics.md 5`)."""
    number = action_id.removeprefix("~")
    if not re.fullmatch(r"[0-9]+", number):
        number = str(int(hashlib.sha256(action_id.encode()).hexdigest()[:16], 16))
    return f"{_slug(engine)}-{number}"


def _slug(engine: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", engine)
    return plain if plain == engine else f"{plain}_{hashlib.sha256(engine.encode()).hexdigest()[:8]}"


def create(folder: JobFolder, job: Job, configured: Configured) -> None:
    """Make the folder whole or not at all: built beside its place and renamed. One that is there is left alone."""
    os.close(create_and_follow(folder, job, configured))


def create_and_follow(folder: JobFolder, job: Job, configured: Configured) -> int:
    """`create`, and hold the folder from its first moment on, as `follow` does."""
    jobs = folder.path.parent
    jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.path.name}.", dir=jobs))
    hold = follow(JobFolder(new))
    try:
        _fill(new, job, configured)
        moved = _moved(new, folder.path)
        _sync(jobs)
    except BaseException:
        os.close(hold)
        raise
    if moved:
        return hold
    os.close(hold)
    return follow(folder)


def _fill(new: Path, job: Job, configured: Configured) -> None:
    (new / "input").mkdir(mode=0o700)
    (new / "output").mkdir(mode=0o700)
    _write(new / "input" / "input.json", json.dumps(input_of(job, configured), ensure_ascii=False))
    if configured.cacerts:
        _write(new / "input" / "cacerts", _pem(configured.cacerts))
    _write(new / "facts.json", json.dumps(_facts_of(configured), ensure_ascii=False))
    _write(new / "printed", "")


def _moved(new: Path, place: Path) -> bool:
    """False when somebody else's folder is in the place already."""
    try:
        new.rename(place)
    except OSError:
        shutil.rmtree(new)
        if not place.is_dir():
            raise
        return False
    return True


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pem(cacerts: str) -> str:
    return cacerts if "-----BEGIN" in cacerts else Path(cacerts).read_text()


def input_of(job: Job, configured: Configured) -> dict[str, Any]:
    """What the program reads, keys in the order of `responder-process.md 2`."""
    return {
        "data": job.data,
        "dataType": job.data_type,
        "tlp": job.tlp,
        "pap": job.pap,
        "message": job.message,
        "parameters": job.parameters,
        "config": config_of(configured),
    }


def config_of(configured: Configured) -> dict[str, Any]:
    """The definition's fixed values, the items', then the checks and the proxy."""
    return {
        **configured.config,
        "check_tlp": configured.check_tlp,
        "max_tlp": configured.max_tlp,
        "check_pap": configured.check_pap,
        "max_pap": configured.max_pap,
        "proxy": {"http": configured.proxy_http, "https": configured.proxy_https},
    }


def reported_config(configured: Configured) -> dict[str, Any]:
    """The configuration as a report shows it: secrets removed, with what the run was bound to (`semantics.md 5`)."""
    config: dict[str, Any] = without_secrets(config_of(configured), configured.secret_names)
    config["proxy"] = {"http": _without_login(configured.proxy_http), "https": _without_login(configured.proxy_https)}
    return {**config, "cacerts": configured.cacerts, "jobTimeout": configured.timeout_minutes}


def _without_login(proxy: str | None) -> str | None:
    if not proxy or "@" not in proxy:
        return proxy
    parts = urlsplit(proxy)
    return urlunsplit(parts._replace(netloc=f"{REMOVED}@{parts.netloc.rpartition('@')[2]}"))


def _facts_of(configured: Configured) -> dict[str, Any]:
    return {
        "timeout_minutes": configured.timeout_minutes,
        "secret_names": sorted(configured.secret_names),
        "secrets": secrets_of(configured),
        "config": reported_config(configured),
    }


def secrets_of(configured: Configured) -> list[str]:
    """The secret values that are long enough to be looked for in texts; a definition's own defaults are public."""
    public = [item.default for item in configured.definition.items]
    found = []
    for name in configured.secret_names:
        value = configured.config.get(name)
        values = value if isinstance(value, list) else [value]
        texts = [text for text in values if isinstance(text, str) and text not in public]
        found += [text for text in texts if len(text) >= _SHORTEST_SECRET]
    return sorted(found, key=len, reverse=True)


@dataclass(frozen=True)
class Left:
    """What a program left behind, read and bounded."""

    output: Any
    """The parsed `output.json`."""
    fault: str
    """Why there is no usable output, `""` when there is."""
    printed: str


def read_left(folder: JobFolder) -> Left:
    """Read a job folder after its program's end."""
    printed = read_printed(folder.printed)
    try:
        return Left(decoded(_output_bytes(folder.path, folder.output_limit_bytes)), "", printed)
    except FileNotFoundError:
        return Left(None, "wrote no output/output.json", printed)
    except (OSError, UnicodeDecodeError) as error:
        return Left(None, f"wrote an output/output.json that can't be read ({error})", printed)
    except ValueError as error:
        return Left(None, f"wrote an output/output.json that is not JSON, or none that can be used ({error})", printed)


def _output_bytes(path: Path, limit_bytes: int) -> bytes:
    """The output file itself: no link to another file, no pipe that would block the reader for ever."""
    directory = os.open(path / "output", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        descriptor = os.open("output.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        content = file.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise OSError(f"it is over {limit_bytes} bytes, the output_limit_bytes of the settings")
        return content


def read_printed(path: Path, limit_bytes: int = PRINTED_LIMIT_BYTES) -> str:
    """Head and tail of what was printed, with a line between them that says how much is left out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size <= limit_bytes:
            return _as_text(file.read(limit_bytes))
        half = limit_bytes // 2
        head = file.read(half)
        file.seek(size - half)
        return f"{_as_text(head)}\n... {size - 2 * half} bytes left out ...\n{_as_text(file.read(half))}"


def _as_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def last_lines(printed: str) -> str:
    """The end of what was printed, short enough for a message."""
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:])[-_LAST_LINES_CHARACTERS:]


def report_of(folder: JobFolder, ended: str) -> Report:
    """The report of a run that has ended; `ended` says how in words, `""` when nobody knows."""
    try:
        facts = folder.facts()
    except (OSError, ValueError, KeyError):
        return Report(success=False, message=VANISHED)
    left = read_left(folder)
    return judged(facts, left, folder.stop_reason(), ended)


def judged(facts: Facts, left: Left, stop_reason: str, ended: str) -> Report:
    """Decide what a run's end means."""
    printed = blotted(left.printed, facts.secrets)
    if stop_reason == "timeout":
        return _failure(facts, f"Timed out after {facts.timeout_minutes:g} minutes", printed)
    if stop_reason == "cancel":
        return _failure(facts, "Cancelled", printed)
    if left.fault:
        return _failure(facts, _no_output(left.fault, ended, printed), printed)
    output = left.output
    if not isinstance(output, dict) or not isinstance(output.get("success"), bool):
        return _failure(facts, "The responder's output.json is no object with `success` true or false.", printed)
    if not output["success"]:
        return _failed(facts, output, printed)
    if not isinstance(output.get("full"), dict):
        return _failure(facts, "The responder's output.json says success, but its `full` is no object.", printed)
    return _succeeded(facts, output, printed)


def blotted(value: Any, secrets: Collection[str]) -> Any:
    """`value` with every secret that stands in one of its texts replaced by REMOVED."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REMOVED)
        return value
    if isinstance(value, dict):
        return {blotted(key, secrets): blotted(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [blotted(item, secrets) for item in value]
    return value


def _no_output(fault: str, ended: str, printed: str) -> str:
    sentence = f"The responder {fault}"
    if ended:
        sentence += f" ({ended})"
    lines = last_lines(printed)
    return f"{sentence}. It printed last:\n{lines}" if lines else f"{sentence}, and printed nothing."


def _failure(facts: Facts, message: str, printed: str) -> Report:
    return Report(success=False, message=message, error_message=message, config=facts.config, printed=printed)


def _failed(facts: Facts, output: dict[str, Any], printed: str) -> Report:
    error_message = blotted(output.get("errorMessage"), facts.secrets)
    given = output.get("input")
    return Report(
        success=False,
        message=as_sentence(error_message),
        error_message=error_message,
        input=_safe(given, facts) if isinstance(given, dict) else None,
        config=facts.config,
        printed=printed,
    )


def _safe(given: dict[str, Any], facts: Facts) -> Mapping[str, Any]:
    safe: Mapping[str, Any] = without_secrets(blotted(given, facts.secrets), facts.secret_names)
    return safe


def _succeeded(facts: Facts, output: dict[str, Any], printed: str) -> Report:
    full = blotted(output["full"], facts.secrets)
    summary = output.get("summary")
    message = full.get("message", full.get("Message"))  # some public responders write it large
    return Report(
        success=True,
        message=message if isinstance(message, str) else "",
        full=full,
        summary=summary if isinstance(summary, dict) else {},
        artifacts=_as_tuple(output.get("artifacts")),
        operations=_as_tuple(output.get("operations")),
        config=facts.config,
        printed=printed,
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """A list as it is; null is none; anything else is kept as one entry, to be refused where operations are judged."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def follow(folder: JobFolder) -> int:
    """A shared lock that keeps another core's sweep away; close the descriptor to let go."""
    descriptor = os.open(folder.path / "follower", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits only while a sweep looks, or removes a folder that nobody wants
    return descriptor


@contextlib.contextmanager
def unfollowed(folder: JobFolder) -> Iterator[bool]:
    """Whether nobody follows the job; while the block runs nobody begins to."""
    try:
        descriptor = os.open(folder.path / "follower", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True  # not even a folder that could be followed
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except OSError:
        free = False
    try:
        yield free
    finally:
        os.close(descriptor)


def remove(folder: JobFolder) -> None:
    """Remove a job folder, also one that its program made read-only."""
    for directory, _, _ in os.walk(folder.path):
        with contextlib.suppress(OSError):
            os.chmod(directory, 0o700)  # the program may have taken its own rights away
    shutil.rmtree(folder.path, ignore_errors=True)


def left(jobs: Path, engine: str) -> list[JobFolder]:
    """The job folders of `engine` that are there, half-made ones among them."""
    pattern = re.compile(rf"\.?{re.escape(_slug(engine))}-[0-9]+(\..*)?")
    if not jobs.is_dir():
        return []
    return [JobFolder(path) for path in sorted(jobs.iterdir()) if pattern.fullmatch(path.name)]


def orphans(folders: Iterable[JobFolder], engine: str, keep: Collection[str]) -> list[JobFolder]:
    """Those for actions not in `keep`; some may still be followed by another core."""
    kept = {folder_name(engine, action_id) for action_id in keep}
    return [folder for folder in folders if folder.path.name not in kept]
