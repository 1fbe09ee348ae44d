"""Statements on a connection to PostgreSQL, in the SQL that both databases take."""

import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Dumper
from psycopg.postgres import types as known_types
from psycopg.pq import TransactionStatus

from core.common.database.base import AtEnd, Note, Params, Reads, Row, Transaction
from core.common.database.postgresql.errors import is_in_doubt

Cursor = psycopg.Cursor[dict[str, Any]]

_PARAMETER = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|(?<![:\w]):([a-z_]\w*)|(\sINDEXED BY \w+)")
_INT_LIMIT = 2**63
ANSWER_S = 15.0  # how long to wait for the answer to a statement; the server's own limits are shorter

T = TypeVar("T")


class Connection(psycopg.Connection[dict[str, Any]]):
    """A connection that is given up if an answer takes longer than `answer_s`."""

    answer_s = ANSWER_S

    @cached_property
    def reads(self) -> "PostgresqlReads":
        """For reads that are no transaction of their own."""
        return PostgresqlReads(self)

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.5, timeout: float | None = None) -> T:
        if timeout is None:
            gen = self._until(gen, time.monotonic() + self.answer_s)
        return super().wait(gen, interval, timeout)

    def _until(self, gen: Generator[Any, Any, T], end: float) -> Generator[Any, Any, T]:
        try:
            events = next(gen)
            while True:
                ready = yield events
                if not ready and time.monotonic() > end:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("it does not answer")
                events = gen.send(ready)
        except StopIteration as stop:
            result: T = stop.value
            return result


@lru_cache(maxsize=2_000)
def translated(sql: str) -> tuple[str, Sequence[str]]:
    """SQL with `:name` for each parameter as PostgreSQL takes it, and the names in the order of their numbers.

    PostgreSQL chooses the index itself.
    """
    numbers: dict[str, int] = {}

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return f"${numbers.setdefault(match[1], len(numbers) + 1)}"
        return "" if match[2] else match[0]

    return _PARAMETER.sub(replaced, sql), tuple(numbers)


def storable(text: str) -> str:
    """The text as PostgreSQL stores it: it takes no NUL; its escape in JSON is stored as it is."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


class _TextDumper(Dumper):
    """A text, also typed so: the type of a parameter must not depend on where it stands."""

    oid = known_types["text"].oid

    def dump(self, obj: str) -> bytes:
        return storable(obj).encode()


class _IntDumper(Dumper):
    """An integer or truth value: 64 bits whatever its value, so that a statement is planned once."""

    oid = known_types["int8"].oid

    def dump(self, obj: int) -> bytes:
        if not -_INT_LIMIT <= obj < _INT_LIMIT:
            raise OverflowError("Python int too large to convert to PostgreSQL bigint")  # as sqlite3 does
        return str(int(obj)).encode()


def adapt(connection: Connection) -> None:
    """Let parameters have the types that the tables have."""
    for kind, dumper in ((str, _TextDumper), (int, _IntDumper), (bool, _IntDumper)):
        connection.adapters.register_dumper(kind, dumper)


def run_plainly(connection: Connection, sql: str) -> Cursor:
    """Run statements without parameters, several in one round trip; gives the result of the last one."""
    cursor = connection.execute(sql, prepare=False)
    while cursor.nextset():
        pass
    return cursor


class PostgresqlReads(Reads):
    """The statements of a unit of work on this connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: Cursor = psycopg.RawCursor(connection)
        self.changed = 0
        """How many rows were written."""

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return [*self._execute(sql, params).fetchall()]

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        return self._execute(sql, params).fetchone()

    def _execute(self, sql: str, params: Params | None) -> Cursor:
        text, names = translated(sql)
        cursor = self._cursor.execute(text, [params[name] for name in names] if params else None)
        self._count(cursor)
        return cursor

    def _count(self, cursor: Cursor) -> None:
        if not (cursor.statusmessage or "").startswith("SELECT"):
            self.changed += max(cursor.rowcount, 0)


class PostgresqlTransaction(PostgresqlReads, Transaction):
    """The statements of a transaction that is open on this connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.notes: list[Note] = []
        self.at_end: AtEnd = {}

    def run(self, sql: str, params: Params | None = None) -> int:
        return self._execute(sql, params).rowcount

    def run_all(self, sql: str, params: Iterable[Params]) -> int:
        values = list(params)
        if len(values) < 2:  # the usual case, without a pipeline
            return self.run(sql, values[0]) if values else 0
        text, names = translated(sql)
        self._cursor.executemany(text, [[item[name] for name in names] for item in values])
        self._count(self._cursor)
        return self._cursor.rowcount

    @contextmanager
    def savepoint(self, name: str = "inner_work") -> Iterator[None]:
        with self._connection.transaction(name):  # as `rollback`, it forgets what it has prepared in vain
            yield
            if self._connection.info.transaction_status == TransactionStatus.INERROR:
                run_plainly(self._connection, "SELECT 1")  # raises that all is refused: an error was caught within

    def is_in_doubt(self, error: Exception) -> bool:
        return is_in_doubt(error)

    def is_aborted(self) -> bool:
        """Whether a statement has failed, so that PostgreSQL refuses all further ones."""
        return self._connection.info.transaction_status == TransactionStatus.INERROR
