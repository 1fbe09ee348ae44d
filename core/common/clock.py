"""Clocks, passed as arguments so that tests can set them; in milliseconds."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
FOR_EVER = 2**62  # later than any time
_UNIT_MS = {"s": 1_000, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}

Clock = Callable[[], int]
"""Usually the wall clock: milliseconds since the Unix epoch."""


def now_ms() -> int:
    """The current time of this machine (ms)."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """The uptime of this machine, including sleep (ms). Unlike the wall clock, nobody sets it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def duration_ms(text: str) -> int:
    """The length of a period such as `1h`, as the settings have it."""
    return int(text[:-1]) * _UNIT_MS[text[-1]]


def day_ms(day: date) -> int:
    """When a day begins (UTC)."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def as_time(ms: int) -> str:
    """A time as people read it."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def time_text(ms: int) -> str:
    """A time in a sentence, without its seconds; who shows it can tell it in another time zone."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
