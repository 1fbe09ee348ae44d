"""Notices commits of other hosts: by LISTEN, and by polling where a pooler breaks that."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import psycopg

from core.common.database.postgresql.server import Server
from core.common.database.postgresql.statements import Connection
from core.common.errors import ResponderBotError

POLL_S = 0.25  # without LISTEN
CHECK_S = 2.0  # with it, to notice a lost connection
LATE_S = 2.0  # a notification of this process's own commit that takes longer shows that LISTEN does not work


class Listener:
    """A thread that calls `on_foreign_commit` soon after another process has committed."""

    def __init__(self, server: Server, channel: str, name: str, on_foreign_commit: Callable[[], None]) -> None:
        self._server = server
        self._channel = channel
        self._name = name
        self._on_foreign_commit = on_foreign_commit
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._sent = self._received = 0  # numbers of this process's own notifications
        self._behind_since: float | None = None
        self._closed = threading.Event()
        self._seen = ""
        self.is_listening = not server.is_pooled
        """Whether notifications arrive."""
        self._thread = threading.Thread(target=self._run, name="store-listener", daemon=True)
        self._thread.start()

    def notification(self) -> str:
        """The statement by which a transaction tells all others that it has committed."""
        return f"""NOTIFY "{self._channel}", '{self._name} {self._sent + 1}'"""

    def expect(self) -> None:
        """Call after a commit with that statement: its own notification shows that LISTEN works."""
        self._sent += 1

    def close(self) -> None:
        """Stop; blocks until it has."""
        self._closed.set()
        with self._lock:
            if self._connection is not None:
                _cut(self._connection)
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                connection = self._server.connect()
                with self._lock:
                    self._connection = connection
                try:
                    self._follow(connection)
                finally:
                    with self._lock:
                        self._connection = None
                    connection.close()
            except (psycopg.Error, ResponderBotError, OSError):
                self._closed.wait(1.0)

    def _follow(self, connection: Connection) -> None:
        if not self._server.is_pooled:
            connection.execute(f'LISTEN "{self._channel}"', prepare=False)
            self._behind_since = None
        self._on_foreign_commit()  # other processes may have committed meanwhile
        while not self._closed.is_set():
            if self._server.is_pooled:
                self._closed.wait(POLL_S)
            else:
                self._listen(connection)
            if not self.is_listening:
                self._poll(connection)
            elif not self._closed.is_set():
                connection.execute("SELECT 1")

    def _listen(self, connection: Connection) -> None:
        for note in connection.notifies(timeout=CHECK_S if self.is_listening else POLL_S, stop_after=1):
            name, _, number = note.payload.partition(" ")
            if name == self._name:
                self._received, self._behind_since, self.is_listening = int(number), None, True
            else:
                self._on_foreign_commit()
        if self._sent <= self._received:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()
        elif time.monotonic() - self._behind_since > LATE_S:
            self.is_listening = False

    def _poll(self, connection: Connection) -> None:
        """Any transaction of this server changes what is compared, so waking is too frequent, and never too rare."""
        row = connection.execute("SELECT CAST(pg_current_snapshot() AS TEXT) AS now", prepare=False).fetchone()
        now = row["now"] if row else ""
        if now != self._seen:
            self._seen = now
            self._on_foreign_commit()


def _cut(connection: Connection) -> None:
    """End what a connection waits for in another thread, which then raises there."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=connection.fileno()) as wrapped:
        try:
            wrapped.shutdown(socket.SHUT_RDWR)
        finally:
            wrapped.detach()
