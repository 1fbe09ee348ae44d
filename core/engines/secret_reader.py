"""Values of the configuration that a command prints or a file holds: read when a run needs them, kept for minutes."""

import asyncio
import contextlib
import os
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

from core.engines.configuration import ConfiguredResponder, with_read_values
from core.engines.definitions import UnusableDefinitionError
from core.settings import SecretSource

KEPT_S = 300.0
"""A value is read again after this time, so that a rotated one comes into use."""

LIMIT_BYTES = 16 * 1024
"""The longest value: redaction searches for each of its encodings."""

_TIMEOUT_S = 10.0
_POLL_S = 0.1
_PASSED_ON = ("PATH", "HOME", "LANG")
_READERS = 8


class UnreadableSecretError(Exception):
    """Why a value can't be read; never with what the command printed or the file holds."""


class SecretReader:
    """Reads values off the event loop, each once for all runs that need it at the same time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, timeout_s: float = _TIMEOUT_S) -> None:
        """`clock` returns seconds; a command that runs longer than `timeout_s` is killed."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._kept: dict[SecretSource, tuple[str, float]] = {}
        """The value, and when its reading began."""
        self._pending: dict[SecretSource, asyncio.Task[str]] = {}
        # Not the threads of the event loop: commands that hang would keep other runs from starting.
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="secrets")
        self._stopped = threading.Event()

    async def fill_in(self, configured: ConfiguredResponder) -> ConfiguredResponder:
        """The configuration with the values of its sources. Raises UnreadableSecretError with a whole sentence."""
        if not configured.sources:
            return configured
        name = configured.definition.name
        texts = await asyncio.gather(*(self._item(name, item, source) for item, source in configured.sources.items()))
        try:
            return with_read_values(configured, dict(zip(configured.sources, texts, strict=True)))
        except UnusableDefinitionError as error:
            sentence = f"{name} can't run: {str(error).rstrip('.')}; correct what its command or file gives."
            raise UnreadableSecretError(sentence) from None  # the cause may hold the value

    async def problems(self, configured: Iterable[ConfiguredResponder]) -> list[str]:
        """A sentence for each responder with a value that can't be read now. Reads all values."""
        results = await asyncio.gather(*map(self.fill_in, configured), return_exceptions=True)
        return sorted(str(problem) for problem in results if isinstance(problem, UnreadableSecretError))

    def close(self) -> None:
        """Stop reading, and kill the commands."""
        self._stopped.set()
        for task in self._pending.values():
            task.cancel()

    async def _item(self, name: str, item: str, source: SecretSource) -> str:
        try:
            return await self._read(source)
        except UnreadableSecretError as error:
            advice = "run that command under core's account to see why" if source.command else "correct path or rights"
            raise UnreadableSecretError(
                f"{name} can't run: its configuration item {item!r} can't be read, since its {error};"
                f' {advice}, or change {item} in [responder."{name}".config].'
            ) from None

    async def _read(self, source: SecretSource) -> str:
        kept = self._kept.get(source)
        if kept and self._clock() - kept[1] < KEPT_S:
            return kept[0]
        if source not in self._pending:
            self._pending[source] = asyncio.create_task(self._read_and_keep(source))
        return await asyncio.shield(self._pending[source])  # cancelling one run must not cancel the reading for others

    async def _read_and_keep(self, source: SecretSource) -> str:
        began = self._clock()
        loop = asyncio.get_running_loop()
        try:
            text = await loop.run_in_executor(self._threads, self._read_now, source)
        finally:
            del self._pending[source]
        self._kept[source] = (text, began)
        loop.call_later(KEPT_S, self._kept.pop, source, None)  # not in memory for longer either
        return text

    def _read_now(self, source: SecretSource) -> str:
        if source.file is not None:
            what, raw = "file", _content(source.file)
        else:
            what, raw = "command", _output(source.command, self._timeout_s, self._stopped)
        if len(raw) > LIMIT_BYTES:
            raise UnreadableSecretError(f"{what} gives more than {LIMIT_BYTES} bytes")
        try:
            text = raw.decode().strip()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise UnreadableSecretError(f"{what} gives no UTF-8 text")
        if not text:
            raise UnreadableSecretError(f"{what} gives nothing")
        return text


def _content(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableSecretError("file is not a regular file")
            return file.read(LIMIT_BYTES + 1)
    except IsADirectoryError:
        raise UnreadableSecretError("file is not a regular file") from None
    except (OSError, ValueError) as error:
        raise UnreadableSecretError(f"file can't be opened ({_reason(error)})") from None


def _output(command: Sequence[str], timeout_s: float, stopped: threading.Event) -> bytes:
    """What a command prints. It and what it leaves in its process group are killed before this returns."""
    deadline = time.monotonic() + timeout_s
    try:
        process = subprocess.Popen(  # noqa: S603 - the settings name it; there is no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LANG": "C.UTF-8"} | {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise UnreadableSecretError(f"command could not be started ({_reason(error)})") from None
    try:
        raw = _read_to_end(process, lambda descriptor: _wait(descriptor, deadline, timeout_s, stopped))
    except OSError as error:
        raise UnreadableSecretError(f"command could not be followed ({_reason(error)})") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so its id is not another's
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    if process.returncode and len(raw) <= LIMIT_BYTES:
        ended = f"exited with {process.returncode}" if process.returncode > 0 else "was killed"
        raise UnreadableSecretError(f"command {ended}")
    return raw


def _read_to_end(process: subprocess.Popen[bytes], wait: Callable[[int], None]) -> bytes:
    """What a process prints until it has ended, or one byte more than LIMIT_BYTES; `wait` waits for a descriptor."""
    raw = b""
    with cast(IO[bytes], process.stdout) as stdout:
        while len(raw) <= LIMIT_BYTES:
            wait(stdout.fileno())
            part = os.read(stdout.fileno(), LIMIT_BYTES + 1 - len(raw))
            if not part:
                pidfd = os.pidfd_open(process.pid)
                try:
                    wait(pidfd)
                finally:
                    os.close(pidfd)
                break
            raw += part
    return raw


def _wait(descriptor: int, deadline: float, timeout_s: float, stopped: threading.Event) -> None:
    """Wait until a descriptor is readable. Raises UnreadableSecretError at the deadline or when core stops."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not stopped.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            raise UnreadableSecretError(f"command did not end within {timeout_s:g} s")
        if poll.poll(min(left, _POLL_S) * 1000):
            return
    raise UnreadableSecretError("command was given up when core stopped")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or "it holds a zero byte"
