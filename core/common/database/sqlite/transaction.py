"""Statements on a connection to SQLite."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from core.common.database.base import AtEnd, Note, Params, Row, Transaction


class SqliteTransaction(Transaction):
    """The statements of a transaction that is open on this connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.notes: list[Note] = []
        self.at_end: AtEnd = {}

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return self._connection.execute(sql, params or {}).fetchall()

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        row: Row | None = self._connection.execute(sql, params or {}).fetchone()
        return row

    def run(self, sql: str, params: Params | None = None) -> int:
        return self._connection.execute(sql, params or {}).rowcount

    def run_all(self, sql: str, params: Iterable[Params]) -> int:
        return max(self._connection.executemany(sql, params).rowcount, 0)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT inner")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO inner")
            raise
        finally:
            self._connection.execute("RELEASE inner")

    def is_in_doubt(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError)
