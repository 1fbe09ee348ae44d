"""Structured logs: one JSON line an event on standard error, without secrets.

Logging never raises and never waits: a request that is committed is answered with its success even if its log line
can't be written. Lines that could not be written are counted, and `trouble` says why.
"""

import errno
import io
import json
import logging
import os
import select
import sys
import threading
from collections.abc import MutableMapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import structlog

_SECRET_WORDS = ("authorization", "api_key", "token", "secret", "password", "cookie")
_JSON = json.JSONEncoder(ensure_ascii=False, default=repr)  # json.dumps would make one for each line
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_CHUNK_BYTES = 4_096  # PIPE_BUF: a pipe that polls as writable takes this much without blocking


class _Sink:
    """Where log lines go. A line that can't be written now is dropped and counted.

    Lines go to the file descriptor itself: a buffer between would keep what failed, and fail again at exit.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._descriptor = _descriptor_of(stream)
        self._lock = threading.Lock()
        self._is_cut = False
        self._lost = 0
        self._reason = ""

    def write(self, line: str) -> None:
        with self._lock:
            if self._lost and not self._told_lost():
                self._lost += 1
            else:
                self._attempt(line)

    def flush(self) -> None:
        """Nothing is buffered."""

    def drop(self, reason: str) -> None:
        """Count a line that could not be made."""
        with self._lock:
            self._drop(reason)

    def trouble(self) -> str:
        with self._lock:
            if not self._lost or self._told_lost():
                return ""
            return (
                f"The log can't be written ({self._reason}): {self._lost} lines are lost since it last could."
                " Make room for it, or start again with another standard error."
            )

    def _told_lost(self) -> bool:
        """Log how many lines are lost, which also shows whether lines can be written again."""
        lost, reason = self._lost, self._reason
        facts = {"event": "log_lines_lost", "level": "error", "lines": lost, "reason": reason}
        self._lost = 0
        if self._attempt(_JSON.encode({**facts, "timestamp": datetime.now(UTC).isoformat()}) + "\n"):
            return True
        self._lost = lost
        return False

    def _attempt(self, line: str) -> bool:
        try:
            self._put(line)
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self._drop(getattr(error, "strerror", None) or str(error))
            return False
        return True

    def _drop(self, reason: str) -> None:
        self._lost += 1
        self._reason = reason

    def _put(self, line: str) -> None:
        if self._descriptor is None:
            if self._stream is None:
                raise ValueError("there is no standard error")
            self._stream.write(line)
            self._stream.flush()
            return
        left = memoryview((("\n" if self._is_cut else "") + line).encode("utf-8", "backslashreplace"))
        while left:
            if not _is_writable(self._descriptor):
                raise BlockingIOError(errno.EAGAIN, "its reader does not read")
            written = os.write(self._descriptor, left[:_CHUNK_BYTES])
            left = left[written:]
            self._is_cut = bool(left)  # then the next line begins with a line feed


def _descriptor_of(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):  # it is in memory, or closed
        return None


def _is_writable(descriptor: int) -> bool:
    """Whether a write won't block. A pipe without a reader counts: the write itself then says what is wrong."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


_sink = _Sink(io.StringIO())


def trouble() -> str:
    """Why log lines are lost now and what to do, or "". Tries to write one if the last could not be written."""
    return _sink.trouble()


def configure(level: str = "info", *, to: TextIO | None = None, human: bool = False) -> None:
    """Send this program's logs, and those of its libraries, to `to` (default: standard error).

    `human` writes aligned text in place of JSON, for a terminal.
    """
    global _sink
    _sink = _Sink(to or sys.stderr)
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # text of the stack only: local variables may hold secrets
        hide_secrets,
    ]
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=False) if human else _as_json
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=_never_raising(structlog.make_filtering_bound_logger(_LEVELS[level])),
        logger_factory=structlog.WriteLoggerFactory(_sink),  # type: ignore[arg-type] # it needs write and flush
    )
    _libraries(_sink, shared, renderer)


def silence() -> None:
    """No logs at all, not even of libraries: for a command whose report says everything."""
    configure("error", to=io.StringIO())


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The last line of defence: nobody should log such a key, and if somebody does it says nothing."""
    for name in event:
        if _secret(name):
            event[name] = "REMOVED"
    return event


@lru_cache(maxsize=1_000)
def _secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def _never_raising(wrapper: type[structlog.typing.FilteringBoundLogger]) -> Any:
    """A line that can't be made, such as of a value whose repr raises, is lost, and nothing else."""

    class NeverRaising(wrapper):  # type: ignore[misc, valid-type] # made by structlog at run time
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **more: Any) -> Any:
            try:
                return super()._proxy_to_logger(method_name, event, **more)
            except Exception as error:
                _sink.drop(f"a line could not be made: {type(error).__name__}")

    return NeverRaising


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _JSON.encode(event)


def _libraries(stream: _Sink, shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor) -> None:
    """Libraries log through the standard module: from warnings on, in the same form."""
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
