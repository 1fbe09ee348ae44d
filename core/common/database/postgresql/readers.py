"""Threads for short reads, each with a connection of its own."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from core.common.database.group_commit import Pending
from core.common.database.postgresql.statements import Connection
from core.common.errors import StoreUnavailableError

T = TypeVar("T")

_Read = Callable[[Connection], Any]


class Readers:
    """Runs reads as they come; `run` runs one on the connection of the thread that calls it.

    Each takes some 50 µs, so what a thread pool of the standard library does for each would cost as much again. Here a
    loop that is busy is woken once for all reads that have ended meanwhile.
    """

    def __init__(self, run: Callable[[_Read], Any], threads: int) -> None:
        self._run = run
        self._queue: queue.SimpleQueue[Pending[_Read] | None] = queue.SimpleQueue()
        self._ended: dict[asyncio.AbstractEventLoop, deque[Pending[_Read]]] = {}
        self._woken: set[asyncio.AbstractEventLoop] = set()
        self._is_closed = False
        names = [f"store-reader-{number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    async def run(self, read: Callable[[Connection], T]) -> T:
        """Run a read, and return its result."""
        if self._is_closed:
            raise StoreUnavailableError("The store is closed; start again, or ask the one that runs.")
        loop = asyncio.get_running_loop()
        self._ended.setdefault(loop, deque())
        item = Pending[_Read](read, loop)
        self._queue.put(item)
        result: T = await item.done
        return result

    def close(self) -> None:
        """Run what has come, then end the threads."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            if not item.done.cancelled():
                try:
                    item.result = self._run(item.work)
                except BaseException as error:  # the thread has to go on
                    item.error = error
            self._hand_back(item)

    def _hand_back(self, item: Pending[_Read]) -> None:
        loop = item.loop
        self._ended[loop].append(item)
        if loop not in self._woken:
            self._woken.add(loop)
            with suppress(RuntimeError):  # it is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, loop)

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woken.discard(loop)  # first, so that a read that ends from now on wakes the loop again
        ended = self._ended[loop]
        while ended:
            ended.popleft().settle()
