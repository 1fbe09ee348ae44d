"""The wall clock, passed as an argument so that tests can set it; milliseconds since the Unix epoch."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """The current time of this machine (ms)."""
    return time.time_ns() // 1_000_000
