"""Keeps one object's failure from stopping the others."""

from collections.abc import Awaitable
from typing import TypeVar

import structlog

from core.common.errors import ResponderBotError

CORE_UNAVAILABLE = ("unavailable", "authentication", "forbidden")  # for the bot itself: everything must wait

log = structlog.get_logger("bot.notifier")

T = TypeVar("T")


async def isolated(work: Awaitable[list[T]]) -> list[T]:
    """The result, or nothing where one object can't be rendered. Raises ResponderBotError while core is unavailable."""
    try:
        return await work
    except ResponderBotError as error:
        if error.code in CORE_UNAVAILABLE:
            raise
        log.warning("event_skipped", code=error.code, reason=error.message)
    except Exception:
        log.exception("event_failed")
    return []
