"""How long the event loop stands still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

TICK_S = 0.01


@dataclass
class Stall:
    """The longest time, in seconds, in which the loop did not come round."""

    seconds: float = 0.0


@asynccontextmanager
async def longest_stall() -> AsyncIterator[Stall]:
    """Watch the loop while the block runs."""
    stall, loop = Stall(), asyncio.get_running_loop()

    async def watch() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(TICK_S)
            stall.seconds = max(stall.seconds, loop.time() - before - TICK_S)

    watching = asyncio.create_task(watch())
    try:
        yield stall
        await asyncio.sleep(0)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
