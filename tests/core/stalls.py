"""How long the event loop stands still."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

TICK_S = 0.005


@dataclass
class LoopStall:
    """The most processor time, in seconds, that this process spent between two turns of the loop.

    What other programs use of the machine meanwhile doesn't count, so that a busy machine fails no test.
    """

    seconds: float = 0.0


@asynccontextmanager
async def longest_stall() -> AsyncIterator[LoopStall]:
    """Watch the loop while the block runs."""
    stall = LoopStall()

    async def watch() -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(TICK_S)
            stall.seconds = max(stall.seconds, time.process_time() - before)

    watching = asyncio.create_task(watch())
    try:
        yield stall
        await asyncio.sleep(0)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
