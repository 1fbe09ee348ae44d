"""Ask core until it answers, under an Idempotency-Key, so that nothing runs twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.common.tasks import Backoff

T = TypeVar("T")
UNKNOWN_DECISION = (
    "The responder service stopped answering, so your decision may not have been recorded. "
    "Look at the card before you decide again."
)
ASKING = Backoff(0.2, 4.0)  # a core that is restarted is up within a few seconds
RETRY_LIMIT_S = 9.0  # so that a core that hangs is asked only once


async def answered(decision: Awaitable[T], unknown: str = UNKNOWN_DECISION) -> T:
    """Core's answer. Raises ResponderBotError; where it was lost, with the sentence `unknown`."""
    try:
        return await decision
    except ResponderBotError as error:
        if UNANSWERED not in error.details:
            raise
        raise ResponderBotError("unavailable", unknown) from error


async def until_answered(ask: Callable[[], Awaitable[T]], unknown: str) -> T:
    """Ask core, under an Idempotency-Key, until it answers. Raises as `answered` does."""
    loop = asyncio.get_running_loop()
    deadline, pause_s, failures = loop.time() + RETRY_LIMIT_S, 0.0, 0
    while loop.time() + pause_s < deadline:
        await asyncio.sleep(pause_s)
        try:
            return await ask()
        except ResponderBotError as error:
            if UNANSWERED not in error.details:
                raise
        failures += 1
        pause_s = ASKING.after(failures)
    raise ResponderBotError("unavailable", unknown)
