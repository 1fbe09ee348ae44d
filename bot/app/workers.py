"""Tasks that run as long as the bot does."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait, repeat

RESTART_PAUSE_S = 1.0  # so that a worker that fails at once doesn't fill the log
REPORT_S = 300.0  # how long health reports a restart


class Workers:
    """Repeats the work of the bot, and counts how often some broke."""

    def __init__(self, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._restarted_at = float("-inf")
        self.restarts = 0

    def start(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, every_s: float = RESTART_PAUSE_S, count: int = 1
    ) -> None:
        """Run `work` in `count` tasks until `close`, again `every_s` after it has ended, for whatever reason."""
        name, once = work.__name__.strip("_"), partial(self._once, work)
        self._tasks += [asyncio.create_task(repeat(name, every_s, once)) for _ in range(count)]

    async def close(self) -> None:
        """Cancel all workers and wait for their end."""
        await cancel_and_wait(*self._tasks)
        self._tasks.clear()

    def problem(self) -> str:
        """A sentence if workers were restarted lately, else ""."""
        if self._seconds() - self._restarted_at > REPORT_S:
            return ""
        return f"Workers broke and were started again, {self.restarts} times so far; the log says why."

    async def _once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())  # in a task of its own, so that a stray cancellation ends only that
        try:
            await asyncio.wait({task})
        finally:
            await cancel_and_wait(task)
        error = RuntimeError("it was cancelled") if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, ResponderBotError):
                self.restarts += 1
                self._restarted_at = self._seconds()
            raise error
