"""How long, and how often, a remote engine is asked again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PollInterval:
    """The rhythm of the calls to a remote engine. All in seconds."""

    backoff_s: tuple[float, ...] = (0.5, 1, 2, 4, 8, 15)
    """Pauses after answers that were no use, one after the other; the last one repeats."""
    search_s: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    """Pauses between looks for a lost job. The engine's index lags about a second behind what it has accepted."""
    start_s: float = 60
    """How long an engine that can't be reached or takes no more is asked to start a job."""
    retry_after_s: float = 60
    """A longer `Retry-After` is cut to this."""
    waiting_poll_s: int = 2
    """Length of a long poll while the job waits: the engine answers it only when the job has ended, never when it
    has started, and people want to see that it runs."""
    running_poll_s: int = 30
    """Length of a long poll while the job runs."""
    quick_poll_s: float = 0.5
    """Pause after a long poll that came back at once (some versions don't wait for a job that waits itself)."""
    waiting_limit_s: float = 24 * 3600
    """A job that the engine still has not started after this is given up, so that no action hangs."""


class Backoff:
    """A time limit with growing pauses in it."""

    def __init__(self, clock: Callable[[], float], limit_s: float, pace: PollInterval) -> None:
        self._clock = clock
        self._until = clock() + limit_s
        self._pace = pace
        self._pauses = 0

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._clock())

    def limit(self, limit_s: float) -> None:
        """Start the time limit anew, from now."""
        self._until = self._clock() + limit_s

    def rested(self) -> None:
        """The engine is well again: the next pause is a short one."""
        self._pauses = 0

    async def pause(self, asked_s: float | None = None) -> bool:
        """Wait as long as the engine asked (bounded), else as long as it is due. False when the time is over."""
        due = self._pace.backoff_s[min(self._pauses, len(self._pace.backoff_s) - 1)]
        self._pauses += 1
        return await self.rest(due if asked_s is None else min(asked_s, self._pace.retry_after_s))

    async def rest(self, pause_s: float) -> bool:
        """Wait, but not beyond the limit. False when the time is over."""
        await asyncio.sleep(min(pause_s, self.left_s))
        return self.left_s > 0
