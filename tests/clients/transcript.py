"""Calls of a client from a thread of its own, as a person's script makes them, and a record of what came back."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

SHOWN_CHARS = 140


class Transcript:
    """What was called, and what came back."""

    def __init__(self, title: str) -> None:
        self._lines = [f"## {title}"]

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a client, which blocks, outside the loop that core runs in."""
        try:
            came = await asyncio.to_thread(function, *args, **options)
        except Exception as error:
            self._note(function, f"raised {type(error).__name__}: {error}")
            raise
        self._note(function, _text(came))
        return came

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n\n"

    def _note(self, function: Callable[..., Any], came: str) -> None:
        owner = type(getattr(function, "__self__", None)).__name__
        name = getattr(function, "__name__", type(function).__name__)
        called = name if owner == "NoneType" else f"{owner}.{name}"
        self._lines.append(f"- `{called}` -> {came[:SHOWN_CHARS]}{'…' if len(came) > SHOWN_CHARS else ''}")


def _text(came: Any) -> str:
    status, body = getattr(came, "status_code", None), getattr(came, "text", None)
    if status is not None:
        return f"{status} {body}"
    if isinstance(came, dict | list):
        return json.dumps(came)
    return str(getattr(came, "__dict__", came))
