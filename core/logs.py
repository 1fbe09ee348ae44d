"""Structured logs: one JSON line an event on standard error, without secrets."""

import io
import json
import logging
import sys
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, TextIO

import structlog

_SECRET_WORDS = ("authorization", "api_key", "token", "secret", "password", "cookie")
_JSON = json.JSONEncoder(ensure_ascii=False, default=repr)  # json.dumps would make one for each line
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str = "info", *, to: TextIO | None = None, human: bool = False) -> None:
    """Send this program's logs, and those of its libraries, to `to` (default: standard error).

    `human` writes aligned text in place of JSON, for a terminal.
    """
    stream = to or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # text of the stack only: local variables may hold secrets
        hide_secrets,
    ]
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=False) if human else _as_json
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    _libraries(stream, shared, renderer)


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


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _JSON.encode(event)


def _libraries(stream: TextIO, shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor) -> None:
    """Libraries log through the standard module: from warnings on, in the same form."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
