"""A search of SQLite that can be stopped."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator

from core.common.database.base import Params, Row
from core.common.errors import ResponderBotError

SEARCH_CHECK_STEPS = 1_000_000  # virtual machine instructions between checks for a stop, some 10 ms


class SqliteSearch:
    """A search on a connection that is lent to it.

    `stop` may be called from any thread at any time, also before `begin` and after `end`.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._open: set[sqlite3.Cursor] = set()

    def rows(self, sql: str, params: Params | None = None) -> Iterator[Row]:
        assert self._connection is not None  # noqa: S101 - only between begin and end
        if self._is_stopped:
            raise ResponderBotError("bad_request", "The search was stopped.")
        cursor = self._connection.execute(sql, params or {})
        self._open.add(cursor)
        for row in cursor:  # noqa: UP028 - `yield from` would close the cursor whenever the generator is collected
            yield row
        self._open.remove(cursor)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Search on this connection from here on; raises nothing."""
        # An interrupt between two statements is lost; the handler sees it soon after. It is not called more often since
        # the thread has to acquire the GIL each time.
        connection.set_progress_handler(lambda: self._is_stopped, SEARCH_CHECK_STEPS)
        with self._lock:
            self._connection = connection

    def limit(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Stop the search after this time; call it on the loop that waits for the result."""
        if not self._is_stopped:
            self._timer = loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        """Interrupt what runs; further rows are refused."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def end(self) -> None:
        """Close what is open, so that the connection can be used again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            for cursor in self._open:  # an open statement would keep its old snapshot for the next search
                cursor.close()
            connection.set_progress_handler(None, 0)
