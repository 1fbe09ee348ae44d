"""Whether the store works, asked by using it."""

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.common.database.sqlite import Database, Transaction
from core.common.errors import ResponderBotError

TIMEOUT_S = 2.0
PROBE_EVERY_S = 1.0  # a probe is a durable write: no number of callers makes more than one a second
FAILURE_TOLD_S = 30.0  # how long an error of other reads and writes is told while the probe itself succeeds
ROOM_BYTES = (
    2 * 1_048_576
)  # for the largest request: the probe's own write is small, and may find room where that won't


@dataclass(frozen=True)
class Found:
    """What is wrong and what to do; "" when nothing is."""

    message: str = ""
    is_down: bool = False
    """Nothing can be written; else some reads or writes fail."""


class Probe:
    """Looks by a write of its own (`touch`), at the room on the disk, and at the errors that others have met."""

    def __init__(
        self,
        database: Database,
        touch: Callable[[Transaction], None],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._touch = touch
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._looked = float("-inf")
        self._found = Found()
        self.write_s = 0.0

    async def look(self) -> Found:
        """How the store is now, or was within the last second."""
        async with self._lock:
            if self._seconds() - self._looked >= PROBE_EVERY_S:
                self._found = await self._look()
                self._looked = self._seconds()
            return self._found

    async def _look(self) -> Found:
        started = self._seconds()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._database.transaction(self._touch)
                self.write_s = self._seconds() - started
                no_room = await asyncio.to_thread(_no_room, self._database.path)
        except TimeoutError:
            return Found(f"The store took no write within {TIMEOUT_S:g} s; look at its disk.", True)
        except ResponderBotError as error:
            return Found(error.message, True)
        except RuntimeError as error:  # no thread can be started
            return Found(f"The store can't be looked at ({error}); raise the limit on processes.")
        if no_room:
            return Found(f"There is no room for what comes next ({no_room}); make room on the disk of the store.", True)
        if self._found.is_down:  # what others met then was the same, and is over
            self._database.forget_failure()
        return Found(self._database.damage() or self._database.failure(FAILURE_TOLD_S))


def _no_room(path: Path) -> str:
    """Why no file of ROOM_BYTES fits beside this one, or "". It is never written, and has no name."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.strerror)
    return ""  # a system that can't answer has nothing to complain of
