"""What statements run on: reads, and a transaction."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

Params = Mapping[str, Any]
Row = sqlite3.Row


class Reads(Protocol):
    """What queries run on: a Database, or a Transaction."""

    def rows(self, sql: str, params: Params | None = None) -> list[Row]: ...

    def row(self, sql: str, params: Params | None = None) -> Row | None: ...


class Transaction:
    """Reads and writes that are committed together, or not at all."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return self._connection.execute(sql, params or {}).fetchall()

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        row: Row | None = self._connection.execute(sql, params or {}).fetchone()
        return row

    def run(self, sql: str, params: Params | None = None) -> int:
        """Run a statement and return the number of rows that it changed."""
        return self._connection.execute(sql, params or {}).rowcount

    def run_all(self, sql: str, params: Iterable[Params]) -> None:
        """Run a statement once for each set of parameters."""
        self._connection.executemany(sql, params)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back what is written within when it raises; the rest of the transaction stays."""
        self._connection.execute("SAVEPOINT inner")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO inner")
            raise
        finally:
            self._connection.execute("RELEASE inner")
