"""A search that can be stopped."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg

from core.common.database.base import Params, Row
from core.common.database.postgresql.statements import Connection
from core.common.errors import ResponderBotError

CANCEL_S = 2.0  # timeout of a request to cancel


class PostgresqlSearch:
    """Reads rows of a transaction; `stop` may be called from any thread at any time."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self.is_stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def rows(self, sql: str, params: Params | None = None) -> Iterator[Row]:
        """The rows of a query. Raises ResponderBotError("bad_request") once the search is stopped."""
        assert self._connection is not None  # noqa: S101 - only between begin and end
        if self.is_stopped:
            raise ResponderBotError("bad_request", "The search was stopped.")
        yield from self._connection.reads.rows(sql, params)

    def begin(self, connection: Connection) -> None:
        with self._lock:
            self._connection = connection

    def limit(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Stop the search after this time; call it on the loop that waits for the result."""
        if not self.is_stopped:
            self._timer = loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        """Refuse further rows, and have the server stop what runs."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_stopped:
            self.is_stopped = True
            with self._lock:
                is_running = self._connection is not None
            if is_running:  # in a thread, since it opens a connection
                threading.Thread(target=self._cancel, name="store-cancel", daemon=True).start()

    def _cancel(self) -> None:
        with self._lock, suppress(psycopg.Error):  # a server that can't be reached ends it by its own limit
            if self._connection is not None:
                self._connection.cancel_safe(timeout=CANCEL_S)

    def end(self) -> None:
        """Let go of the connection, so that it can be used again."""
        with self._lock:
            self._connection = None
