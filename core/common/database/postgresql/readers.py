"""Threads for short reads, each with a connection of its own."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from core.common.database.group_commit import Pending
from core.common.database.postgresql.statements import Connection
from core.common.errors import StoreUnavailableError

_CLOSED = "The store is closed; start again, or ask the one that runs."

T = TypeVar("T")


class _Read(Pending[Callable[[Connection], Any]]):
    """A read, and those that get the same result."""

    def __init__(self, work: Callable[[Connection], Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(work, loop)
        self.key: tuple[asyncio.AbstractEventLoop, Hashable] | None = None
        """By which others find it until it begins."""
        self.others: list[_Read] = []


class Readers:
    """Runs reads as they come; `run` runs one on the connection of the thread that calls it.

    Each takes some 50 µs, so what a thread pool of the standard library does for each would cost as much again. Here a
    loop that is busy is woken once for all reads that have ended meanwhile.
    """

    def __init__(self, run: Callable[[Callable[[Connection], Any]], Any], threads: int) -> None:
        self._run = run
        self._queue: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._waiting: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Read] = {}
        """Reads that have not begun, by what they share."""
        self._ended: dict[asyncio.AbstractEventLoop, deque[_Read]] = {}
        self._woken: set[asyncio.AbstractEventLoop] = set()
        self._is_closed = False
        names = [f"store-reader-{number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Connection], T], shared: Hashable = None) -> T:
        """Run a read, and return its result; it may be that of another with the same `shared` that has not begun."""
        if self._is_closed:
            raise StoreUnavailableError(_CLOSED)
        loop = asyncio.get_running_loop()
        read = _Read(work, loop)
        first = None if shared is None else self._waiting.get((loop, shared))
        if first is not None:
            first.others.append(read)
        else:
            if shared is not None:
                read.key = loop, shared
                self._waiting[read.key] = read
            self._queue.put(read)
        result: T = await read.done
        return result

    def refuse(self) -> None:
        """Take no more reads; on the loop, so that none comes after the threads have ended."""
        self._is_closed = True

    def close(self) -> None:
        """Run what has come, then end the threads; after `refuse`."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (read := self._queue.get()) is not None:
            if read.key is not None:
                del self._waiting[read.key]  # who comes from now on has to see what is stored from now on
            if read.done.cancelled() and not read.others:
                read.error = asyncio.CancelledError()  # who shares it from now on is to get a result of its own
            else:
                try:
                    read.result = self._run(read.work)
                except BaseException as error:  # the thread has to go on
                    read.error = error
            self._hand_back(read)

    def _hand_back(self, read: _Read) -> None:
        loop = read.loop
        self._ended.setdefault(loop, deque()).append(read)
        if loop not in self._woken:
            self._woken.add(loop)
            with suppress(RuntimeError):  # it is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, loop)

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woken.discard(loop)  # first, so that a read that ends from now on wakes the loop again
        ended = self._ended[loop]
        while ended:
            read = ended.popleft()
            read.settle()
            for other in read.others:
                if read.error is None:
                    other.result = read.result
                elif self._is_closed:
                    other.error = StoreUnavailableError(_CLOSED)  # there may be no thread any more
                else:
                    self._queue.put(other)  # each gets an error of its own
                    continue
                other.settle()
