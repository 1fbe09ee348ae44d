"""Tasks that run as long as the bot does."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from core.common.tasks import cancel_and_wait

RESTART_PAUSE_S = 1.0  # so that a worker that fails at once doesn't fill the log
REPORT_S = 300.0  # how long health reports a restart

log = structlog.get_logger("bot.app")


class Workers:
    """Restarts each worker that ends, for whatever reason, and counts the restarts."""

    def __init__(self, *, pause_s: float = RESTART_PAUSE_S, seconds: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._seconds = seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._restarted_at = float("-inf")
        self.restarts = 0

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], *, count: int = 1) -> None:
        """Run `work` in `count` tasks until `close`."""
        self._tasks += [asyncio.create_task(self._supervise(work)) for _ in range(count)]

    async def close(self) -> None:
        """Cancel all workers and wait for their end."""
        await cancel_and_wait(*self._tasks)
        self._tasks.clear()

    def problem(self) -> str:
        """A sentence if workers were restarted lately, else ""."""
        if self._seconds() - self._restarted_at > REPORT_S:
            return ""
        return f"Workers broke and were started again, {self.restarts} times so far; the log says why."

    async def _supervise(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            task = asyncio.create_task(work())  # in a task of its own, so that a stray cancellation ends only that
            try:
                await asyncio.wait({task})
            finally:
                await cancel_and_wait(task)
            self.restarts += 1
            self._restarted_at = self._seconds()
            error = None if task.cancelled() else task.exception()
            log.error("worker_restarted", worker=work.__name__.strip("_"), exc_info=error)
            await asyncio.sleep(self._pause_s)
