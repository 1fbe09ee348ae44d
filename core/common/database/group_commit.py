"""A writer thread, and group commit: works of several callers share a commit."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

import structlog

from core.common.database.base import Note, Transaction
from core.common.errors import StoreUnavailableError

T = TypeVar("T")

_STOP = object()
BACK_S = 2.0  # on a full disk some commits still find room

log = structlog.get_logger()


class Work:
    """Work for the writer, and its outcome."""

    def __init__(self, work: Callable[[Transaction], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self._context = copy_context()
        self._notes: list[Note] = []

    def settle(self) -> None:
        """Log its notes, and give the caller its outcome; runs on the caller's loop."""
        if self.error is None:
            for event, fields in self._notes:
                self._context.run(log.info, event, **fields)
        if self.done.cancelled():
            return
        if self.error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.error)

    def attempt(self, transaction: Transaction) -> None:
        """Run it in its caller's context, and store its result or error.

        Raises an error that fails the whole commit.
        """
        self.result = self.error = None
        self._notes, transaction.at_end = [], {}
        transaction.notes = self._notes
        try:
            self.result = self._context.run(self.work, transaction)
            for do, collected in transaction.at_end.items():
                self._context.run(do, transaction, collected)
        except Exception as error:
            if transaction.is_in_doubt(error):
                raise  # such as a full disk
            self.error = error


class Writer:
    """A thread that calls `commit` with all works that have arrived, which sets their results or errors.

    `afterwards` is called once the callers have them.
    """

    def __init__(self, commit: Callable[[list[Work]], None], afterwards: Callable[[], None] = lambda: None) -> None:
        self._commit = commit
        self._afterwards = afterwards
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pending: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False
        self._failure, self._failed_at = "", 0.0  # the last one, until it is over
        self._thread = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Commit what is pending; later work raises ResponderBotError("unavailable")."""
        self._is_closed = True
        self._enqueue(asyncio.get_running_loop())
        self._queue.put([_STOP])
        await asyncio.to_thread(self._thread.join)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a commit and return its result once that is durable."""
        if self._is_closed:
            raise StoreUnavailableError("The store is closed; start again, or ask the one that runs.")
        loop = asyncio.get_running_loop()
        item = Work(work, loop)
        pending = self._pending.setdefault(loop, [])
        pending.append(item)
        if len(pending) == 1:
            # Enqueued two iterations of the loop later, when requests that arrived together have become work too: the
            # writer wakes for the first item, and a small commit costs as much as a large one.
            loop.call_soon(loop.call_soon, self._enqueue, loop)
        result: T = await item.done
        return result

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop of each caller after a commit."""
        self._listeners.append(listener)

    def notify(self) -> None:
        """Call the listeners; on their loop."""
        for listener in self._listeners:
            listener()

    def _enqueue(self, loop: asyncio.AbstractEventLoop) -> None:
        pending = self._pending.pop(loop, None)
        if pending:
            self._queue.put(pending)

    def _write(self) -> None:
        while True:
            batch = list(self._queue.get())
            with suppress(queue.Empty):
                while True:
                    batch += self._queue.get_nowait()
            works = [item for item in batch if item is not _STOP]
            if works:
                try:
                    self._commit(works)
                except Exception as error:  # this thread must not end: nobody else writes
                    for item in works:
                        item.error = error
                self._tell(works)
                self._deliver(works)
                self._afterwards()
            if len(works) < len(batch):
                return

    def _tell(self, works: list[Work]) -> None:
        """Log when nothing can be written any more, and when all could be for BACK_S."""
        failed = next((str(item.error) for item in works if isinstance(item.error, StoreUnavailableError)), "")
        now = time.monotonic()
        if failed:
            if not self._failure:
                log.warning("store_unwritable", reason=failed)
            self._failure, self._failed_at = failed, now
        elif self._failure and now - self._failed_at >= BACK_S:
            log.info("store_writable", after=self._failure)
            self._failure = ""

    def _deliver(self, works: list[Work]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        for item in works:
            by_loop.setdefault(item.loop, []).append(item)
        for loop, items in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, items)

    def _settle(self, items: list[Work]) -> None:
        for item in items:
            item.settle()
        self.notify()
