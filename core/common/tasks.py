"""Tasks that last as long as core or the bot."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from core.common.errors import ResponderBotError

log = structlog.get_logger()


async def repeat(name: str, every_s: float, work: Callable[[], Awaitable[object]], *, at_once: bool = True) -> None:
    """Do this work until cancelled, with a pause after each time; `at_once`: also before the first pause.

    An error is logged as `work_failed` with this name, and ends nothing.
    """
    if not at_once:
        await asyncio.sleep(every_s)
    while True:
        try:
            await work()
        except ResponderBotError as error:  # such as on a full disk, which says why itself
            log.warning("work_failed", work=name, reason=error.message)
        except Exception:
            log.exception("work_failed", work=name)
        await asyncio.sleep(every_s)


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel these tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
