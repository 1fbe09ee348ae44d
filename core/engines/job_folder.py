"""The folder of one run: what the program is given, and what it left behind.

    JOB/            core's own: facts.json, started, stop, follower, gate, and printed, which the program has open
    JOB/run/        the program's: its argument, and its HOME
    JOB/run/input/  what it reads
    JOB/run/output/ where it writes its answer

A folder of an earlier release has `input` and `output` beside core's own files; runs that were open then go on in it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.engines import files
from core.engines.base import Job, Report, describe_error
from core.engines.decoding import decode_json
from core.engines.definitions import ConfiguredResponder
from core.engines.redaction import (
    SHORTEST_SECRET,
    Redactor,
    redact_keys,
    redact_urls,
    secrets_in,
    secrets_in_url,
)

PRINTED_LIMIT_BYTES = 64 * 1024
"""How much is kept of what a program printed, half from its head and half from its tail (`responder-process.md 2`)."""

OUTPUT_LIMIT_BYTES = 4 * 1024**2
"""How much of an answer is read, where the settings say nothing."""

_OUTPUT_KEYS = ("full", "summary", "artifacts", "operations", "errorMessage", "input")

_LAST_LINES = 10
_LAST_LINES_CHARACTERS = 2000
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

_FACTS_LIMIT_BYTES = 16 * 1024**2
_STOP_LIMIT_BYTES = 100

_HOLD_TRIES = 500
_HOLD_PAUSE_S = 0.01


VANISHED = "The job folder of this run has vanished, and its result with it. Run the responder again if it is needed."


STOP_REASONS = ("timeout", "cancel")


@dataclass(frozen=True)
class RunFacts:
    """What a later core must know to end this run, even when the definition is gone by then."""

    timeout_minutes: float
    secret_names: frozenset[str]
    secrets: tuple[str, ...]
    """The values themselves, to be taken out of all that the program gives back."""
    config: Mapping[str, Any]
    """As it goes into the report, secrets removed."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What a report says in place of paths of this machine."""


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
    def run(self) -> Path:
        """What the program is given."""
        run = self.path / "run"
        return run if run.is_dir() and not run.is_symlink() else self.path

    @property
    def homes(self) -> tuple[Path, ...]:
        """What the HOME of its processes may be."""
        return self.path / "run", self.path

    @property
    def cacerts(self) -> Path:
        return self.run / "input" / "cacerts"

    def is_decided(self) -> bool:
        """Whether something was started here, or must not be any more."""
        return os.path.lexists(self.started) or os.path.lexists(self.stop)

    def stop_reason(self) -> str:
        """Why core ended the run ("timeout", "cancel"), `""` when it didn't."""
        try:
            text = self._read("stop", limit_bytes=_STOP_LIMIT_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return text if text in STOP_REASONS else ""

    def mark_stopped(self, reason: str) -> None:
        """Note why core ends the run, for the core that reads its result. Raises OSError."""
        files.replace(self.path.parent, self.path.name, "stop", content=reason.encode())

    def facts(self) -> RunFacts:
        """Read back what `create` wrote. Raises OSError or ValueError when somebody took it away."""
        content = self._read("facts.json", limit_bytes=_FACTS_LIMIT_BYTES)
        try:
            raw = json.loads(content)
            return RunFacts(
                float(raw["timeout_minutes"]),
                frozenset(raw["secret_names"]),
                tuple(map(str, raw["secrets"])),
                dict(raw["config"]),
                dict(raw.get("names", {})),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"facts.json is not what was written there ({error})") from error

    def _read(self, name: str, *, limit_bytes: int) -> bytes:
        return files.read_regular(self.path.parent, self.path.name, name, limit_bytes=limit_bytes)


def folder_name(engine: str, action_id: str) -> str:
    """The same for the same action always; it is the engine's job id (`semantics.md 5`)."""
    number = action_id.removeprefix("~")
    if not re.fullmatch(r"[0-9]+", number):
        number = str(int(hashlib.sha256(action_id.encode()).hexdigest()[:16], 16))
    return f"{_slug(engine)}-{number}"


def _slug(engine: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", engine)
    return plain if plain == engine else f"{plain}_{hashlib.sha256(engine.encode()).hexdigest()[:8]}"


def create(folder: JobFolder, job: Job, configured: ConfiguredResponder) -> None:
    """Make the folder whole or not at all: built beside its place and renamed. One that is there is left alone."""
    os.close(create_and_follow(folder, job, configured))


def create_and_follow(folder: JobFolder, job: Job, configured: ConfiguredResponder) -> int:
    """`create`, and hold the folder from its first moment on, as `follow` does."""
    jobs = folder.path.parent
    files.make_private(jobs)
    new = jobs / f".{folder.path.name}.{secrets.token_hex(8)}"
    _make(new)
    _write(new / "follower", "")
    hold = follow(JobFolder(new))
    try:
        _fill(new, job, configured)
        moved = _moved(new, folder.path)
        _sync(jobs)
    except BaseException:
        os.close(hold)
        files.remove_tree(new)
        raise
    if moved:
        return hold
    os.close(hold)
    return follow(folder)


def _fill(new: Path, job: Job, configured: ConfiguredResponder) -> None:
    run = new / "run"
    for directory in (run, run / "input", run / "output"):
        _make(directory)
    _write(run / "input" / "input.json", json.dumps(input_of(job, configured), ensure_ascii=False))
    if configured.cacerts:
        _write(run / "input" / "cacerts", _pem(configured.cacerts))
    _write(new / "facts.json", json.dumps(_facts_of(configured), ensure_ascii=False))
    _write(new / "printed", "")


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    directory.chmod(0o700)  # whatever the umask says


def _moved(new: Path, place: Path) -> bool:
    """False when somebody else's folder is in the place already."""
    try:
        new.rename(place)
    except NotADirectoryError:  # a file or a link, so nothing that core has made
        files.remove_tree(place)
        new.rename(place)
    except OSError:
        files.remove_tree(new)
        if not place.is_dir():
            raise
        return False
    return True


def _write(path: Path, text: str) -> None:
    files.write_new(path, text.encode("utf-8", "replace"))


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pem(cacerts: str) -> str:
    return cacerts if "-----BEGIN" in cacerts else Path(cacerts).read_text()


def input_of(job: Job, configured: ConfiguredResponder) -> dict[str, Any]:
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


def config_of(configured: ConfiguredResponder) -> dict[str, Any]:
    """The definition's fixed values, the items', then the checks and the proxy."""
    return {
        **configured.config,
        "check_tlp": configured.check_tlp,
        "max_tlp": configured.max_tlp,
        "check_pap": configured.check_pap,
        "max_pap": configured.max_pap,
        "proxy": {"http": configured.proxy_http, "https": configured.proxy_https},
    }


def reported_config(configured: ConfiguredResponder) -> dict[str, Any]:
    """The configuration as a report shows it: without secrets, with what the run was bound to."""
    config: dict[str, Any] = redact_urls(redact_keys(config_of(configured), configured.secret_names))
    proxy = {"http": _without_login(configured.proxy_http), "https": _without_login(configured.proxy_https)}
    return {**config, "proxy": proxy, "cacerts": configured.cacerts, "jobTimeout": configured.timeout_minutes}


def _without_login(proxy: str | None) -> str | None:
    """A proxy's address may do without `http://`."""
    if not proxy or "://" in proxy:
        return proxy and str(redact_urls(proxy))
    return str(redact_urls(f"http://{proxy}")).removeprefix("http://")


def _facts_of(configured: ConfiguredResponder) -> dict[str, Any]:
    root = configured.definition.root
    return {
        "timeout_minutes": configured.timeout_minutes,
        "secret_names": sorted(configured.secret_names),
        "secrets": secrets_of(configured, os.environ),
        "config": reported_config(configured),
        "names": {str(root): root.name},
    }


def secrets_of(configured: ConfiguredResponder, outer: Mapping[str, str]) -> list[str]:
    """The secret values that are long enough to be looked for in texts; a definition's own defaults are public.

    Logins of proxies are among them, also of those in `outer`, the environment that is passed on.
    """
    found = secrets_in(config_of(configured), configured.secret_names, urls=True)
    proxies = [configured.proxy_http, configured.proxy_https, *(outer.get(name) for name in _PROXY_VARIABLES)]
    for proxy in proxies:
        if proxy:
            found |= secrets_in_url(proxy if "://" in proxy else f"http://{proxy}")
    defaults = [item.default for item in configured.definition.items]
    public = {str(text) for default in defaults for text in (default if isinstance(default, list) else [default])}
    return sorted(text for text in found - public if len(text) >= SHORTEST_SECRET)


@dataclass(frozen=True)
class RunOutput:
    """What a program left behind, read and bounded."""

    output: Any
    """The parsed `output.json`."""
    fault: str
    """Why there is no usable output, `""` when there is."""
    printed: str


def read_left(folder: JobFolder) -> RunOutput:
    """Read a job folder after its program's end."""
    printed = read_printed(folder.printed)
    try:
        return RunOutput(decode_json(_output_bytes(folder)), "", printed)
    except FileNotFoundError:
        return RunOutput(None, "wrote no output/output.json", printed)
    except (OSError, UnicodeDecodeError) as error:
        return RunOutput(None, f"wrote an output/output.json that can't be read ({error})", printed)
    except ValueError as error:
        return RunOutput(
            None, f"wrote an output/output.json that is not JSON, or none that can be used ({error})", printed
        )


def _output_bytes(folder: JobFolder) -> bytes:
    """The output file itself: no link to another file, no pipe that would block the reader for ever."""
    names = folder.run.relative_to(folder.path.parent).parts
    limit_bytes = folder.output_limit_bytes
    with os.fdopen(files.open_regular(folder.path.parent, *names, "output", "output.json"), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(f"it is over {limit_bytes} bytes, the output_limit_bytes of the settings")
    return content


def read_printed(path: Path, limit_bytes: int = PRINTED_LIMIT_BYTES) -> str:
    """Head and tail of what was printed, with a line between them that says how much is left out."""
    try:
        descriptor = files.open_regular(path.parent.parent, path.parent.name, path.name)
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


def report_of(folder: JobFolder, facts: RunFacts | None, stop_reason: str, ended: str) -> Report:
    """The report of a run that has ended; `ended` says how in words, `""` when nobody knows."""
    if facts is None:
        return Report(success=False, message=VANISHED)
    paths = {str(folder.path), os.path.realpath(folder.path)}
    return judged(facts, read_left(folder), stop_reason, ended, dict.fromkeys(paths, folder.path.name))


def judged(
    facts: RunFacts, left: RunOutput, stop_reason: str, ended: str, names: Mapping[str, str] | None = None
) -> Report:
    """Decide what a run's end means. `names` are what to say in place of paths, beside those of the facts."""
    redact = Redactor(facts.secrets, {**facts.names, **(names or {})})
    printed = redact.text(left.printed)
    if stop_reason == "timeout":
        return _failure(facts, f"Timed out after {facts.timeout_minutes:g} minutes", printed)
    if stop_reason == "cancel":
        return _failure(facts, "Cancelled", printed)
    if left.fault:
        return _failure(facts, _no_output(redact.text(left.fault), ended, printed), printed)
    if not isinstance(left.output, dict) or not isinstance(left.output.get("success"), bool):
        return _failure(facts, "The responder's output.json is no object with `success` true or false.", printed)
    output = {key: redact.value(left.output.get(key)) for key in _OUTPUT_KEYS}  # its own keys are never a secret
    if not left.output["success"]:
        return _failed(facts, output, printed)
    if not isinstance(output["full"], dict):
        return _failure(facts, "The responder's output.json says success, but its `full` is no object.", printed)
    return _succeeded(facts, output, printed)


def _no_output(fault: str, ended: str, printed: str) -> str:
    sentence = f"The responder {fault}"
    if ended:
        sentence += f" ({ended})"
    lines = last_lines(printed)
    return f"{sentence}. It printed last:\n{lines}" if lines else f"{sentence}, and printed nothing."


def _failure(facts: RunFacts, message: str, printed: str) -> Report:
    return Report(success=False, message=message, error_message=message, config=facts.config, printed=printed)


def _failed(facts: RunFacts, output: dict[str, Any], printed: str) -> Report:
    error_message, given = output["errorMessage"], output["input"]
    return Report(
        success=False,
        message=describe_error(error_message),
        error_message=error_message,
        input=_safe(given, facts) if isinstance(given, dict) else None,
        config=facts.config,
        printed=printed,
    )


def _safe(given: dict[str, Any], facts: RunFacts) -> Mapping[str, Any]:
    safe: dict[str, Any] = redact_keys(given, facts.secret_names)
    return {**safe, "config": redact_urls(safe["config"])} if "config" in safe else safe


def _succeeded(facts: RunFacts, output: dict[str, Any], printed: str) -> Report:
    full, summary = output["full"], output["summary"]
    message = full.get("message", full.get("Message"))  # some public responders write it large
    return Report(
        success=True,
        message=message if isinstance(message, str) else "",
        full=full,
        summary=summary if isinstance(summary, dict) else {},
        artifacts=_as_tuple(output["artifacts"]),
        operations=_as_tuple(output["operations"]),
        config=facts.config,
        printed=printed,
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """A list as it is; null is none; anything else is kept as one entry, to be refused where operations are judged."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def follow(folder: JobFolder) -> int:
    """A shared lock that keeps another core's sweep away; close the descriptor to let go. Raises OSError.

    It is held by a sweep only while that looks, or removes a folder that nobody wants. Whoever keeps it longer wants to
    stop us, and keeps sweeps away as well.
    """
    descriptor = _open_follower(folder)
    for _ in range(_HOLD_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_HOLD_PAUSE_S)
        else:
            break
    return descriptor


def _open_follower(folder: JobFolder) -> int:
    directory = files.open_directory(folder.path.parent, folder.path.name)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open("follower", flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def unfollowed(folder: JobFolder) -> Iterator[bool]:
    """Whether nobody follows the job; while the block runs nobody begins to."""
    try:
        descriptor = _open_follower(folder)
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
    """Remove a job folder, also one that its program made read-only; what can't be removed stays."""
    files.remove_tree(folder.path)


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
