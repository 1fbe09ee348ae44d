"""Structured logs: one JSON line per event on standard error, without secrets.

Logging never raises and never blocks: a committed request is answered with success even if its log line can't be
written. Dropped lines are counted, and `problem` says why.
"""

import asyncio
import atexit
import errno
import io
import json
import logging
import os
import select
import stat
import sys
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any, TextIO

import structlog

_SECRET_WORDS = ("authorization", "api_key", "token", "secret", "password", "cookie")
_JSON = json.JSONEncoder(ensure_ascii=False, default=repr)  # json.dumps would create one per line
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LINE_FEED = 10
_CHUNK_BYTES = 4_096  # PIPE_BUF: a pipe that polls as writable takes this much without blocking


class _Sink:
    """Write log lines; drop and count those that can't be written now.

    Writes go to the file descriptor: a buffered stream would keep a failed line, and fail again at exit.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._descriptor = _descriptor_of(stream)
        self._is_file = _is_file(self._descriptor)  # which takes every write, or refuses it
        self._lock = threading.RLock()  # in the middle of a write the garbage collector may run something that logs
        self._is_writing = False
        self._soon: list[str] = []
        """Lines to write: in the next turn of `_loop`, with the next line, or after the write that goes on."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cut = False
        self._dropped = 0
        self._reason = ""

    def write(self, line: str) -> None:
        with self._lock:
            self._soon.append(line)
            self._write_lines()

    def write_soon(self, line: str) -> None:
        """On an event loop, write the lines of one turn together: each write lets other threads in between."""
        loop = None
        with suppress(RuntimeError):  # there is none in this thread
            loop = asyncio.get_running_loop()
        if loop is None or self._descriptor is None:
            self.write(line)
            return
        with self._lock:
            is_due = bool(self._soon) and loop is self._loop
            self._soon.append(line)
            self._loop = loop
        if not is_due:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is to be written soon."""
        with self._lock:
            if self._soon:
                self._write_lines()

    def drop(self, reason: str) -> None:
        """Count a line that could not be rendered."""
        with self._lock:
            self._drop(reason)

    def problem(self) -> str:
        with self._lock:
            self._write_lines()
            if not self._dropped:
                return ""
            return (
                f"The log can't be written ({self._reason}): {self._dropped} lines are lost since it last could."
                " Make room for it, or start again with another standard error."
            )

    def _write_lines(self) -> None:
        """Write what is to be written, after how many lines were dropped before."""
        if self._is_writing:
            return
        self._is_writing = True
        try:
            while self._soon or self._dropped:
                lines, self._soon = self._soon, []
                if self._dropped and not self._log_dropped():
                    self._dropped += len(lines)
                elif lines:
                    self._attempt(lines)
                if not self._soon:
                    return
        finally:
            self._is_writing = False

    def _log_dropped(self) -> bool:
        """Log how many lines were dropped. True if that line could be written."""
        dropped, reason = self._dropped, self._reason
        fields = {"event": "log_lines_lost", "level": "error", "lines": dropped, "reason": reason}
        self._dropped = 0
        if self._attempt([_JSON.encode({**fields, "timestamp": datetime.now(UTC).isoformat()}) + "\n"]):
            return True
        self._dropped = dropped
        return False

    def _attempt(self, lines: Sequence[str]) -> bool:
        """Write the lines, and drop those that can't be written any more. True if all are written."""
        encoded = [line.encode("utf-8", "backslashreplace") for line in lines]
        if self._is_cut:
            encoded[0] = b"\n" + encoded[0]
        content, written = b"".join(encoded), 0
        try:
            if self._descriptor is None:
                self._write_to_stream(lines)
                return True
            while written < len(content):
                if not self._is_file and not _is_writable(self._descriptor):
                    raise BlockingIOError(errno.EAGAIN, "its reader does not read")
                written += os.write(self._descriptor, content[written : written + _CHUNK_BYTES])
                self._is_cut = content[written - 1] != _LINE_FEED  # the next line then starts with one
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            ends = accumulate(len(line) for line in encoded)
            self._drop(getattr(error, "strerror", None) or str(error), lines=sum(end > written for end in ends))
            return False
        return True

    def _drop(self, reason: str, lines: int = 1) -> None:
        self._dropped += lines
        self._reason = reason

    def _write_to_stream(self, lines: Sequence[str]) -> None:
        if self._stream is None:
            raise ValueError("there is no standard error")
        self._stream.write("".join(lines))
        self._stream.flush()


class _Logger:
    """What structlog hands rendered lines to, by their level."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def info(self, line: str) -> None:
        self._sink.write_soon(line + "\n")

    def warning(self, line: str) -> None:
        self._sink.write(line + "\n")

    debug = info  # structlog finds them by name
    error = critical = exception = warning


def _descriptor_of(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):  # an in-memory stream, or a closed one
        return None


def _is_file(descriptor: int | None) -> bool:
    try:
        return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _is_writable(descriptor: int) -> bool:
    """Whether a write won't block. True for a pipe without a reader: the write itself then fails."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


_sink = _Sink(io.StringIO())


def problem() -> str:
    """Why log lines are being dropped and what to do, or "". Tries to write one if the last write failed."""
    return _sink.problem()


def configure(level: str = "info", *, to: TextIO | None = None, human: bool = False) -> None:
    """Send the logs of this program and its libraries to `to` (default: standard error).

    `human` writes aligned text instead of JSON, for a terminal.
    """
    global _sink
    sink = _sink = _Sink(to or sys.stderr)
    atexit.register(sink.flush)
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # the stack without local variables, which may hold secrets
        hide_secrets,
    ]
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=False) if human else _as_json
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=_never_raising(structlog.make_filtering_bound_logger(_LEVELS[level])),
        logger_factory=lambda *_: _Logger(sink),
    )
    _configure_libraries(_sink, shared, renderer)


def silence() -> None:
    """Turn off all logs, those of libraries too: for commands that print their own report."""
    configure("error", to=io.StringIO())


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the values of keys that name a secret: a safety net, since no code should log them."""
    for name in event:
        if _names_secret(name):
            event[name] = "REMOVED"
    return event


@lru_cache(maxsize=1_000)
def _names_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS)


@lru_cache(maxsize=1_000)
def _never_raising(wrapper: type[structlog.typing.FilteringBoundLogger]) -> Any:
    """Drop a line that can't be rendered, such as one with a value whose repr raises, instead of raising."""

    class NeverRaising(wrapper):  # type: ignore[misc, valid-type] # made by structlog at run time
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **more: Any) -> Any:
            try:
                return super()._proxy_to_logger(method_name, event, **more)
            except Exception as error:
                _sink.drop(f"a line could not be made: {type(error).__name__}")

    return NeverRaising


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _JSON.encode(event)


def _configure_libraries(
    stream: _Sink, shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor
) -> None:
    """Send warnings and errors that libraries log through the standard module to the same place, in the same form."""
    handler: logging.Handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
