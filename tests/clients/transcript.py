"""Calls of a client from a thread of its own, as a person's script makes them, and a record of what came back."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

SHOWN_CHARS = 160
TELLING = (
    *("_id", "type", "message", "name", "title", "login", "caseId", "data", "status", "tlp", "tags"),
    *("responderId", "objectType", "objectId", "cortexId", "cortexJobId", "cortexIds"),
)
"""The fields that a reader of a transcript looks for."""


class Transcript:
    """What was called, and what came back."""

    def __init__(self, title: str) -> None:
        self._lines = [f"## {title}"]

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a client, which blocks, outside the loop that core runs in."""
        given = ", ".join(
            [*(_text(item) for item in args), *(f"{name}={_text(item)}" for name, item in options.items())]
        )
        called = f"{_name(function)}({_cut(given)})"
        try:
            came = await asyncio.to_thread(function, *args, **options)
        except Exception as error:
            self._lines.append(f"- `{called}` raised `{type(error).__name__}: {error}`")
            raise
        self._lines.append(f"- `{called}` -> `{_cut(_text(came))}`")
        return came

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n\n"


def _name(function: Callable[..., Any]) -> str:
    owner = type(getattr(function, "__self__", None)).__name__
    name = getattr(function, "__name__", type(function).__name__)
    return name if owner == "NoneType" else f"{owner}.{name}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _text(value: Any) -> str:
    if hasattr(value, "status_code"):
        return f"{value.status_code} {_text(value.json() if value.content else '')}"
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    fields = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if fields is None or not any(name in fields for name in TELLING):
        return json.dumps(value, default=str)
    telling = {name: fields[name] for name in TELLING if fields.get(name) not in (None, [], "")}
    return json.dumps(telling, default=str)
