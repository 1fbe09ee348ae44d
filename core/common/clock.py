"""The clock, as an argument: milliseconds since the epoch (`interface.md`, first paragraph)."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """Now, by this machine's clock."""
    return time.time_ns() // 1_000_000
