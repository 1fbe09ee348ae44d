"""Tasks that run as long as the bot does."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

PAUSE_S = 1.0  # before a worker that broke is started again, so that one that breaks at once doesn't fill the log
TOLD_S = 300.0  # how long health tells of it

log = structlog.get_logger("bot.app")


class Workers:
    """Starts a worker again that ends, whatever ended it, and counts."""

    def __init__(self, *, pause_s: float = PAUSE_S, seconds: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._seconds = seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._restarted_at = float("-inf")
        self.restarts = 0

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], *, count: int = 1) -> None:
        """Run `work` in `count` tasks until `close`."""
        self._tasks += [asyncio.create_task(self._kept(work)) for _ in range(count)]

    async def close(self) -> None:
        await cancelled(*self._tasks)
        self._tasks.clear()

    def trouble(self) -> str:
        """That workers broke lately and what to do, or ""."""
        if self._seconds() - self._restarted_at > TOLD_S:
            return ""
        return f"Workers broke and were started again, {self.restarts} times so far; the log says why."

    async def _kept(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            task = asyncio.create_task(work())  # of its own: a stray cancellation ends it alone
            try:
                await asyncio.wait({task})
            finally:
                await cancelled(task)
            self.restarts += 1
            self._restarted_at = self._seconds()
            error = None if task.cancelled() else task.exception()
            log.error("worker_restarted", worker=work.__name__.strip("_"), exc_info=error)
            await asyncio.sleep(self._pause_s)


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """End these tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
