"""Statements on a connection to PostgreSQL, in the SQL that both databases take; searches; what its errors mean."""

import asyncio
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.postgres import types as known_types
from psycopg.pq import TransactionStatus

from core.common.database.base import AtEnd, Note, Params, Reads, Row, Transaction
from core.common.errors import ResponderBotError

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


# --- a search that can be stopped -------------------------------------------------------------------------------------


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


# --- errors: which mean that it can't be used now, in words without secrets; all others are bugs ----------------------


_UNAVAILABLE = (
    *(psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError),
    *(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction, errors.UndefinedTable, errors.UndefinedColumn),
    *(errors.InvalidSchemaName, errors.FeatureNotSupported),
)
_OF_A_STATEMENT = (errors.InFailedSqlTransaction, errors.ProgramLimitExceeded)  # although psycopg calls them otherwise
_DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)

ADVICE = (
    ("password authentication failed", "correct the user and the password in the settings"),
    ("no password supplied", "put the password into the settings"),
    ("does not exist", "create it, or name another in the settings"),
    ("onnection refused", "start PostgreSQL there, or correct the settings"),
    ("no such file", "start PostgreSQL there, or correct the settings"),
    ("imeout expired", "start PostgreSQL there, or correct the settings"),
    ("translate host name", "correct the host in the settings"),
    ("pg_hba.conf", "allow this host and user in the server's pg_hba.conf"),
    ("session is read-only", "name the server that takes writes in the settings"),
    ("invalid response", "name the host and port of a PostgreSQL in the settings"),
    ("starting up", "try again in a moment"),
    ("too many clients", "raise max_connections of the server"),
    ("remaining connection slots", "raise max_connections of the server"),
)
_OTHERWISE = "correct that, or name another database in the settings"


def is_unavailable(error: BaseException) -> bool:
    """Whether the database can't be used now, rather than a statement being wrong."""
    return isinstance(error, _UNAVAILABLE) and not isinstance(error, errors.ProgramLimitExceeded)


def is_in_doubt(error: BaseException) -> bool:
    """Whether nothing that the transaction wrote can be committed any more, such as after a lost connection.

    Not after a statement that failed, for which all others are refused up to the last savepoint.
    """
    if isinstance(error, _OF_A_STATEMENT):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError)


def is_damage(error: BaseException) -> bool:
    """Whether PostgreSQL has found that its files are damaged."""
    return isinstance(error, _DAMAGE)


def describe(error: BaseException) -> str:
    """The error in PostgreSQL's words, on one line; never what a row holds."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    # Of a connection: `connection to server at ... failed: FATAL:  ...` for each address that was tried.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = next((line for line in lines if "failed:" in line or "FATAL" in line), lines[0] if lines else "no answer")
    for before in ("connection failed: ", "FATAL:  "):
        message = message.rpartition(before)[2]
    return (message.rpartition(" failed: ")[2] or message).rstrip(".")


def advice(message: str) -> str:
    """What to do about a database that can't be opened."""
    return next((text for part, text in ADVICE if part in message), _OTHERWISE)
