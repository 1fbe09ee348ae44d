"""The tables of a SQLite file that is copied, or made as a copy (copying.py)."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import sqlite_utils

from core.common.database.base import Dialect
from core.common.database.connection import PAGE_BYTES, connect
from core.common.database.copying import RowRefusedError, Store, Value, Values
from core.common.database.errors import STORE_ERRORS, code_of, describe
from core.common.errors import ResponderBotError
from core.common.private_files import create_database

T = TypeVar("T")

_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_OF_SQLITE = ("sqlite_", "_sqlite_migration")  # how names of tables begin that hold nothing of the store
_NAMED = 10


class SqliteTables:
    """`Tables` of a connection with an open transaction."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("PRAGMA mmap_size = 0")  # each row is read once: a whole file need not stay in memory
        connection.row_factory = None
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")

    def columns(self) -> Mapping[str, frozenset[str]]:
        names = [row[0] for row in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for name in names:
            if not name.startswith(_OF_SQLITE):
                info = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
                found[name] = frozenset(row[1] for row in info) | ({"rowid"} if self._has_rowid(name) else set())
        return found

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[str, Values]]:
        first = "rowid" if self._has_rowid(table) else "NULL"
        for number, *values in self._connection.execute(f"SELECT {first}, {_quoted(columns)} FROM {_quoted([table])}"):
            name = f"{table} {values[0]}" if number is None else f"{table} {number}"
            for column, value in zip(columns, values, strict=True):
                problem = _problem(value)
                if problem:
                    sentence = f"{name}: {column} {problem}; correct or delete it in FROM, and copy again."
                    raise ResponderBotError("bad_request", sentence)
            yield name, tuple(values)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        places = ", ".join("?" for _ in columns)
        sql = f"INSERT INTO {_quoted([table])} ({_quoted(columns)}) VALUES ({places})"
        for index, values in enumerate(rows):
            try:
                self._connection.execute(sql, values)
            except sqlite3.IntegrityError as error:
                raise RowRefusedError(index, describe(error)) from error

    def clear(self) -> None:
        for name in self.columns():
            self._connection.execute(f"DELETE FROM {_quoted([name])}")

    def last_numbers(self) -> Mapping[str, int]:
        return dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence"))

    def set_last_numbers(self, numbers: Mapping[str, int]) -> None:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
        for (name,) in self._connection.execute(sql).fetchall():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", [name])
            if numbers.get(name):
                self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", [name, numbers[name]])

    def stored(self, value: Value) -> Value:
        return value

    def damaged_documents(self, table: str) -> Sequence[str]:
        sql = f"SELECT CAST({'rowid' if self._has_rowid(table) else 'NULL'} AS TEXT) FROM {_quoted([table])}"
        found = self._connection.execute(f"{sql} WHERE doc IS NOT NULL AND NOT json_valid(doc) LIMIT {_NAMED}")
        return [f"{table} {number or ''}".rstrip() for (number,) in found]

    def _has_rowid(self, table: str) -> bool:
        with suppress(sqlite3.OperationalError):
            self._connection.execute(f"SELECT rowid FROM {_quoted([table])} LIMIT 0")
            return True
        return False


def read_tables(store: Store, path: Path, work: Callable[[SqliteTables], T]) -> T:
    """Run `work` on the tables as this release has them, while no process can open the file; changes nothing."""
    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA busy_timeout = 1000")
            connection.execute("PRAGMA journal_mode = DELETE")  # fails while another process has it open
            connection.execute("BEGIN EXCLUSIVE")
            if not _has_table(connection, store.table):
                sentence = (
                    f"{path} (FROM) is another database than expected: it has no table {store.table}; name another."
                )
                raise ResponderBotError("bad_request", sentence)
            store.migrate(sqlite_utils.Database(connection))
            result = work(SqliteTables(connection))
            connection.execute("ROLLBACK")
            return result
    except STORE_ERRORS as error:
        if code_of(error) in _IN_USE:
            sentence = f"{path} is in use; stop every responder-bot that uses it, and copy again."
            raise ResponderBotError("conflict", sentence) from error
        raise ResponderBotError("unavailable", f"{path} can't be read ({describe(error)}); correct that.") from error


def write_tables(store: Store, path: Path, work: Callable[[SqliteTables, bool], T]) -> T:
    """Run `work` on the tables of this file, and whether it made them; commits them if it did."""
    is_missing = not os.path.lexists(path)
    try:
        create_database(path)
        with closing(connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("BEGIN EXCLUSIVE")
            is_new = not _has_table(connection, "%")
            if not is_new and not _has_table(connection, store.table):
                raise ResponderBotError("exists", "holds other data")
            store.migrate(sqlite_utils.Database(connection))
            result = work(SqliteTables(connection), is_new)
            connection.execute("COMMIT" if is_new else "ROLLBACK")
            return result
    except STORE_ERRORS as error:
        raise ResponderBotError("unavailable", f"{path} can't be written ({describe(error)}); correct that.") from error
    except OSError as error:
        raise ResponderBotError("unavailable", f"{path} can't be written ({error.strerror}); name another.") from error
    except ResponderBotError as error:
        if error.code == "exists":
            raise ResponderBotError("exists", f"{path} (TO) {error.message} than FROM; name a new file.") from error
        raise
    finally:
        if is_missing:
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE ?", [name]).fetchone() is not None


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _problem(value: object) -> str:
    """Why this value of SQLite, which takes any in any column, is none of the store's, or ""."""
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            value.encode()
            return ""
        return "is not valid UTF-8"
    return "" if value is None or isinstance(value, int) else "is neither a text nor a whole number"
