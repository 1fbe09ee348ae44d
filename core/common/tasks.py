"""Tasks that last as long as core or the bot, and what is tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from core.common.errors import ResponderBotError

T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True)
class Backoff:
    """Pauses between attempts, in seconds: the first, then each twice as long as the one before, up to the longest.

    It counts nothing itself, as some count in a loop and others in a row of a table.
    """

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """The pause after so many failures in a row, at least one."""
        return min(self.first_s * 2.0 ** min(failures - 1, 32), self.longest_s)


STORE_RETRY = Backoff(1.0, 1.0)
"""While the database is away, what waits for it goes on within a second."""


async def repeat(
    name: str,
    every_s: float,
    work: Callable[[], Awaitable[object]],
    *,
    at_once: bool = True,
    backoff: Backoff | None = None,
) -> None:
    """Do this work until cancelled, with a pause after each time; `at_once`: also before the first pause.

    An error is logged as `work_failed` with this name, and ends nothing. After one the pause is that of `backoff`, if
    there is one. Work that went on for longer than its longest pause, and fails then, begins with its first.
    """
    if not at_once:
        await asyncio.sleep(every_s)
    pauses, loop, failures = backoff or Backoff(every_s, every_s), asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        try:
            await work()
            failures = 0
        except Exception as error:
            failures = 1 if loop.time() - began > pauses.longest_s else failures + 1
            if isinstance(error, ResponderBotError):  # such as on a full disk, which says why itself
                log.warning("work_failed", work=name, reason=error.message)
            else:
                log.exception("work_failed", work=name)
        await asyncio.sleep(pauses.after(failures) if failures else every_s)


async def until_stored(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a write or read while the database is away; returns its result. Other errors are raised."""
    failures = 0
    while True:
        try:
            return await ask()
        except ResponderBotError as error:
            if error.code != "unavailable":
                raise
            log.warning("store_not_usable", reason=error.message)
        failures += 1
        await asyncio.sleep(STORE_RETRY.after(failures))


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel these tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
