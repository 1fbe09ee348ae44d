"""Keeps one object's failure from stopping the others."""

from collections.abc import Awaitable
from typing import TypeVar

import structlog

from core.common.errors import ResponderBotError

CORE_UNAVAILABLE = ("unavailable", "authentication", "forbidden")  # for the bot itself: everything must wait

log = structlog.get_logger("bot.notifier")

T = TypeVar("T")


async def isolated(work: Awaitable[T], root_id: str, *, otherwise: T) -> T:
    """The result, or `otherwise` where an object can't be rendered. Raises ResponderBotError if core is unavailable."""
    try:
        return await work
    except ResponderBotError as error:
        if error.code in CORE_UNAVAILABLE:
            raise
        log.warning("render_skipped", root_id=root_id, code=error.code, reason=error.message)
    except Exception:
        log.exception("render_failed", root_id=root_id)
    return otherwise
