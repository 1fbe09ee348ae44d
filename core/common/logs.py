"""Structured logs: one JSON line per event on standard error, without secrets.

Logging never raises and never blocks: a committed request is answered with success even if its log line can't be
written. Dropped lines are counted, and `problem` says why.
"""

import errno
import io
import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import structlog

_SECRET_WORDS = ("authorization", "api_key", "token", "secret", "password", "cookie")
_JSON = json.JSONEncoder(ensure_ascii=False, default=repr)  # json.dumps would create one per line
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_TEXT_LIMIT = 1_000  # of a value, which may be foreign
REPEAT_S = 60.0
MOST_REPEATS = 1_000
_CHUNK_BYTES = 4_096  # PIPE_BUF: a pipe that polls as writable takes this much without blocking


class _Sink:
    """Write log lines to a descriptor; drop and count those that can't be written now.

    A handler of the standard library would wait for a pipe's reader; behind a queue of its own (`QueueHandler`), the
    lines of the last moments before a crash would be lost.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._descriptor = _descriptor_of(stream)  # a buffered stream would keep a failed line, and fail again at exit
        self._poll = select.poll()
        if self._descriptor is not None:
            self._poll.register(self._descriptor, select.POLLOUT)
        self._lines: deque[str] = deque()
        self._lock = threading.Lock()
        self._is_cut = False
        self._dropped = 0
        self._reason = ""

    def write(self, line: str) -> None:
        self._lines.append(line)
        self._write_lines()

    def flush(self) -> None:
        """Nothing is kept; `StreamHandler` asks."""

    def problem(self) -> str:
        with self._lock:
            self._log_dropped()
        self._write_lines()
        if not self._dropped:
            return ""
        return (
            f"The log can't be written ({self._reason}): {self._dropped} lines are lost since it last could."
            " Make room for it, or start again with another standard error."
        )

    def _write_lines(self) -> None:
        """Write all lines. If the lock is taken, its owner does.

        That may be this thread: in the middle of a write the garbage collector may run something that logs.
        """
        while self._lines and self._lock.acquire(blocking=False):
            try:
                while self._lines:
                    line = self._lines.popleft()
                    if not self._log_dropped() or not self._attempt(line):
                        self._dropped += 1
            finally:
                self._lock.release()

    def _log_dropped(self) -> bool:
        """Log how many lines were dropped. False if that can't be written either."""
        if self._dropped and self._attempt(_lost_line(self._dropped, self._reason)):
            self._dropped = 0
        return not self._dropped

    def _attempt(self, line: str) -> bool:
        """Write as much of the line as fits now. True if that is all of it."""
        content, written = line.encode("utf-8", "backslashreplace"), 0
        if self._is_cut:
            content = b"\n" + content
        try:
            if self._descriptor is None:
                self._write_to_stream(line)
                return True
            while written < len(content):
                if not self._poll.poll(0):  # also true for a pipe without a reader, where the write itself fails
                    raise BlockingIOError(errno.EAGAIN, "its reader does not read")
                written += os.write(self._descriptor, content[written : written + _CHUNK_BYTES])
                self._is_cut = written < len(content)  # the next line then starts with a line feed
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self._reason = getattr(error, "strerror", None) or str(error)
            return False
        return True

    def _write_to_stream(self, line: str) -> None:
        if self._stream is None:
            raise ValueError("there is no standard error")
        self._stream.write(line)
        self._stream.flush()


class _Logger:
    """Writes the lines that structlog renders."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def info(self, line: str) -> None:
        self._sink.write(line + "\n")

    debug = warning = error = critical = exception = info  # structlog finds them by name


def _lost_line(count: int, reason: str) -> str:
    fields = {"event": "log_lines_lost", "level": "error", "lines": count, "reason": reason}
    return _JSON.encode({**fields, "timestamp": datetime.now(UTC).isoformat()}) + "\n"


def _descriptor_of(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):  # an in-memory stream, or a closed one
        return None


_sink = _Sink(io.StringIO())
_request_id: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """The id of the request that this task or transaction works for, or ""."""
    return _request_id.get()


def set_request_id(request_id: str) -> None:
    """Have each line that this task and those it creates log carry the request's id."""
    _request_id.set(request_id)


def problem() -> str:
    """Why log lines are being dropped and what to do, or "". Tries to write one if the last write failed."""
    return _sink.problem()


def configure(level: str = "info", *, to: TextIO | None = None) -> None:
    """Send the logs of this program and its libraries to `to` (default: standard error)."""
    global _sink
    sink = _sink = _Sink(to or sys.stderr)
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # the stack without local variables, which may hold secrets
        add_request_id,
        hide_secrets,
    ]
    structlog.configure(
        processors=[Repeats(), *shared, _as_json],
        wrapper_class=_never_raising(structlog.make_filtering_bound_logger(_LEVELS[level])),
        logger_factory=lambda *_: _Logger(sink),
    )
    _configure_libraries(sink, shared)


def silence() -> None:
    """Turn off all logs, those of libraries too: for commands that print their own report."""
    configure("error", to=io.StringIO())


class Repeats:
    """Leaves out a warning that says the same as one of the last minute: while a database is away, many do each second.

    One that belongs to a request is always written.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[int, float] = {}  # when it was written, by the hash of what it says

    def __call__(self, _: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if level != "warning" or request_id():
            return event
        said, now = hash(repr(event)), self._clock()
        if now - self._last.get(said, -REPEAT_S) < REPEAT_S:
            raise structlog.DropEvent
        if len(self._last) == MOST_REPEATS:
            self._last.clear()
        self._last[said] = now
        return event


def add_request_id(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the request in what is logged."""
    if found := request_id():
        event.setdefault("request_id", found)
    return event


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the values of keys that name a secret: a safety net, since no code should log them. Cut long values."""
    for name, value in event.items():
        if _names_secret(name):
            event[name] = "REMOVED"
        elif isinstance(value, str) and len(value) > _TEXT_LIMIT and name != "exception":
            event[name] = f"{value[:_TEXT_LIMIT]}..."
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
                _sink.write(_lost_line(1, f"a line could not be made: {type(error).__name__}"))

    return NeverRaising


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _JSON.encode(event)


def _configure_libraries(stream: _Sink, shared: list[structlog.typing.Processor]) -> None:
    """Send warnings and errors that libraries log through the standard module to the same place, in the same form."""
    handler: logging.Handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _as_json],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
