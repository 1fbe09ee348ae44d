"""The tables of a schema of PostgreSQL that is copied, or made as a copy (core/common/database/copying.py)."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from core.common.database.base import Dialect, Transaction
from core.common.database.copying import RowRefusedError, Store, Value, Values
from core.common.database.location import PostgresqlUrl
from core.common.database.postgresql.errors import describe
from core.common.database.postgresql.migrations import is_used, migrate
from core.common.database.postgresql.server import Server
from core.common.database.postgresql.statements import Connection, run_plainly, storable
from core.common.errors import ResponderBotError

T = TypeVar("T")

_OF_MIGRATIONS = ("migration", "place")
_LINE = re.compile(r"line (\d+)")
_FETCHED_ROWS = 200
_DAY_S = 86_400.0
_ENDING_S = 2.0
_COLUMNS = """
SELECT c.relname AS name, a.attname AS column, a.attidentity <> '' AS is_numbered
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind = 'r'
"""


class PostgresqlTables:
    """`Tables` of a connection with an open transaction."""

    dialect: Dialect = "postgresql"

    def __init__(self, connection: Connection, server: Server, store: Store) -> None:
        self._connection = connection
        self.schema = server.schema
        self._last = store.last_number

    def are_new(self) -> bool:
        """Whether this transaction has made the tables."""
        earlier = "SELECT count(*) AS number FROM migration WHERE applied_at <> transaction_timestamp()"
        return self._number(earlier) == 0

    def are_used(self) -> bool:
        """Whether another session is on these tables; one that has just ended is listed for a moment."""
        until = time.monotonic() + _ENDING_S
        while is_used(self._connection, self.schema):
            if time.monotonic() > until:
                return True
            time.sleep(_ENDING_S / 20)
        return False

    def columns(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for row in self._listed():
            found.setdefault(row["name"], set()).add(row["column"])
        return {name: frozenset(columns) for name, columns in found.items()}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[str, Values]]:
        sql = f"SELECT {_quoted(columns)} FROM {_quoted([table])}"
        if self._last is not None and self._last.table == table:
            sql += f" WHERE id <> {self._last.id}"
        run_plainly(self._connection, f"DECLARE copied NO SCROLL CURSOR FOR {sql}")
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            while rows := cursor.execute(f"FETCH {_FETCHED_ROWS} FROM copied", prepare=False).fetchall():
                yield from ((table, values) for values in rows)
        run_plainly(self._connection, "CLOSE copied")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        try:
            with (
                self._connection.cursor() as cursor,
                cursor.copy(f"COPY {_quoted([table])} ({_quoted(columns)}) FROM STDIN") as copied,
            ):
                for values in rows:
                    copied.write_row(values)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            line = _LINE.search(error.diag.context or "")
            raise RowRefusedError(int(line[1]) - 1 if line else -1, describe(error)) from error

    def clear(self) -> None:
        for name in self.columns():
            run_plainly(self._connection, f"DELETE FROM {_quoted([name])}")

    def last_numbers(self) -> Mapping[str, int]:
        found = {}
        for table, column in self._numbered():
            state = f"SELECT last_value, is_called FROM {self._sequence_of(table, column)}"
            row = run_plainly(self._connection, state).fetchone()
            if row is not None and row["is_called"]:
                found[table] = int(row["last_value"])
        if self._last is not None:
            found[self._last.of] = max(
                self._number(f"SELECT max(seq) AS number FROM {_quoted([self._last.of])}"),
                self._number(f"SELECT last AS number FROM {_quoted([self._last.table])} WHERE id = {self._last.id}"),
            )
        return found

    def set_last_numbers(self, numbers: Mapping[str, int]) -> None:
        for table, column in self._numbered():
            newest = self._number(f"SELECT max({_quoted([column])}) AS number FROM {_quoted([table])}")
            if last := max(newest, numbers.get(table, 0)):
                run_plainly(self._connection, f"SELECT setval('{self._sequence_of(table, column)}', {last})")
        if self._last is not None:
            last = numbers.get(self._last.of, 0)
            run_plainly(
                self._connection,
                f"INSERT INTO {_quoted([self._last.table])} (id, last) VALUES ({self._last.id}, {last})",
            )

    def stored(self, value: Value) -> Value:
        return storable(value) if isinstance(value, str) else value

    def damaged_documents(self, table: str) -> Sequence[str]:
        return ()

    def _listed(self) -> list[dict[str, Any]]:
        found = self._connection.execute(_COLUMNS, {"schema": self.schema}).fetchall()
        return [row for row in found if row["name"] not in _OF_MIGRATIONS]

    def _numbered(self) -> list[tuple[str, str]]:
        return [(row["name"], row["column"]) for row in self._listed() if row["is_numbered"]]

    def _sequence_of(self, table: str, column: str) -> str:
        found = self._connection.execute(
            "SELECT pg_get_serial_sequence(%(table)s, %(column)s) AS name",
            {"table": f'"{self.schema}"."{table}"', "column": column},
        ).fetchone()
        return str(found["name"]) if found else ""

    def _number(self, sql: str) -> int:
        row = run_plainly(self._connection, sql).fetchone()
        return int(row["number"] or 0) if row else 0


def has_schema(url: PostgresqlUrl, store: Store, name: str) -> bool:
    """Whether the schema has the store's tables. Raises ResponderBotError."""
    server = Server(url.text, store.schema, name)
    connection = server.open()
    try:
        found = connection.execute("SELECT to_regclass(%(name)s) AS found", {"name": f"{server.schema}.{store.table}"})
        row = found.fetchone()
        return row is not None and row["found"] is not None
    finally:
        connection.close()


def read_tables(store: Store, url: PostgresqlUrl, work: Callable[[PostgresqlTables], T]) -> T:
    """Run `work` on the tables as this release has them, while no process can write; changes nothing."""

    def unused(tables: PostgresqlTables, place: str) -> T:
        if tables.are_used():
            raise ResponderBotError(
                "conflict", f"{place} is in use; stop every responder-bot that uses it, and copy again."
            )
        return work(tables)

    return _in_transaction(store, url, "FROM", unused)


def write_tables(store: Store, url: PostgresqlUrl, work: Callable[[PostgresqlTables, bool], T]) -> T:
    """Run `work` on the tables of this schema, and whether it made them; commits them if it did."""

    def filled(tables: PostgresqlTables, place: str) -> T:
        try:
            return work(tables, tables.are_new())
        except ResponderBotError as error:
            if error.code != "exists":
                raise
            sentence = (
                f"The schema {tables.schema} of {place} (TO) {error.message} than FROM; name another database, or"
                f" `DROP SCHEMA {tables.schema} CASCADE` if nobody needs what is in it."
            )
            raise ResponderBotError("exists", sentence) from error

    return _in_transaction(store, url, "TO", filled)


class _DoneError(Exception):
    """Roll back what only had to be read."""


def _in_transaction(
    store: Store,
    url: PostgresqlUrl,
    name: str,
    work: Callable[[PostgresqlTables, str], T],
) -> T:
    """Run `work` in the transaction that brings the tables up to date; it is committed if it has made the target's."""
    server = Server(url.text, store.schema, name)
    connection = server.open()
    connection.answer_s = _DAY_S
    results: list[T] = []

    def prepare(tx: Transaction, is_copy: bool) -> None:
        run_plainly(connection, "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0")
        store.prepare(tx, is_copy)
        tables = PostgresqlTables(connection, server, store)
        results.append(work(tables, server.place))
        if name == "FROM" or not tables.are_new():
            raise _DoneError

    try:
        migrate(connection, server, store.steps, prepare, store.table)
    except _DoneError:
        pass
    except psycopg.Error as error:
        raise ResponderBotError(
            "unavailable", f"{server.place} can't be used ({describe(error)}); correct that, and copy again ({name})."
        ) from error
    finally:
        connection.close()
    return results[0]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
