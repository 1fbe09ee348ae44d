"""An event loop that records when another thread last woke it: core's writer thread does, just after its commit."""

import contextvars
import time
from collections.abc import Callable
from typing import Any

import uvloop


class WakeupTimestampLoop(uvloop.Loop):
    """`woken_at` is in seconds of the monotonic clock, which all processes of a machine share."""

    woken_at = 0.0

    def call_soon_threadsafe(  # type: ignore[override]  # the arguments are only passed on
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        self.woken_at = time.perf_counter()
        return super().call_soon_threadsafe(callback, *args, context=context)
