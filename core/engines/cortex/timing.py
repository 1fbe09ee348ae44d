"""When and for how long calls to a remote engine are repeated."""

import asyncio
import time
from dataclasses import dataclass

from core.common.tasks import Backoff


@dataclass(frozen=True)
class PollTiming:
    """Pauses, lengths and limits of the calls to a remote engine, in seconds."""

    backoff: Backoff = Backoff(0.5, 15)  # noqa: RUF009 - frozen
    """After failed calls, and between searches for a lost job. The server's index lags about a second behind."""
    searches: int = 6
    """How often a lost job is looked for."""
    start_s: float = 60
    """How long starting a job is retried while the server can't be reached or limits its rate."""
    retry_after_s: float = 60
    """The longest `Retry-After` that is respected."""
    waiting_poll_s: int = 2
    """Length of a long poll while the job waits. It is short because the server answers only when the job has ended,
    not when it starts, and people want to see that it runs."""
    running_poll_s: int = 30
    """Length of a long poll while the job runs."""
    quick_poll_s: float = 0.5
    """Pause after a long poll that returned at once, as some versions do for a waiting job."""
    waiting_limit_s: float = 24 * 3600
    """A job that the server has not started by then is given up."""


class Deadline:
    """A deadline, and growing pauses until then."""

    def __init__(self, limit_s: float, timing: PollTiming) -> None:
        self.set_limit(limit_s)
        self._timing = timing
        self._failures = 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self._deadline - time.monotonic())

    def set_limit(self, limit_s: float) -> None:
        """Move the deadline to `limit_s` from now."""
        self._deadline = time.monotonic() + limit_s

    def reset(self) -> None:
        """Begin with the shortest pause again, after a call that succeeded."""
        self._failures = 0

    async def pause(self, retry_after_s: float | None = None) -> bool:
        """Wait before a retry: as long as the server asked (bounded), else the next pause. False after the deadline."""
        self._failures += 1
        pause_s = self._timing.backoff.after(self._failures)
        return await self.sleep(pause_s if retry_after_s is None else min(retry_after_s, self._timing.retry_after_s))

    async def sleep(self, seconds: float) -> bool:
        """Wait, at most until the deadline. False after the deadline."""
        await asyncio.sleep(min(seconds, self.left_s))
        return self.left_s > 0
