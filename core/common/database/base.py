"""The interface of a database, which `sqlite` and `postgresql` implement."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

from core.common.errors import ResponderBotError

T = TypeVar("T")

Params = Mapping[str, Any]

Note = tuple[str, Mapping[str, Any]]
"""An event for the log, and its fields."""

Dialect = Literal["sqlite", "postgresql"]
"""Almost all SQL is the same for both databases; where it differs, a store checks the dialect."""


class Row(Protocol):
    """A row of a result, whose values are found by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any: ...

    def keys(self) -> Iterable[str]:
        """The names of the columns."""


class Reads(Protocol):
    """Runs queries."""

    def rows(self, sql: str, params: Params | None = None) -> list[Row]: ...

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row, or None."""

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """The values of a query's only column."""
        return [row[name] for row in self.rows(sql, params) for name in row.keys()]  # noqa: SIM118 - no dictionary

    def value(self, sql: str, params: Params | None = None) -> Any | None:
        """What a query gives in its only column and row; None without a row."""
        return next(iter(self.column(sql, params)), None)

    def number(self, sql: str, params: Params | None = None) -> int:
        """Likewise; 0 without a row."""
        return self.value(sql, params) or 0


class Transaction(Reads, Protocol):
    """Reads and writes that are committed together, or not at all."""

    def run(self, sql: str, params: Params | None = None) -> int:
        """Run a statement and return the number of rows that it changed."""

    def run_all(self, sql: str, params: Iterable[Params]) -> int:
        """Run a statement once for each set of parameters, and return the number of rows that it changed in all."""

    def insert(self, table: str, *rows: Params, otherwise: str = "") -> int:
        """Insert rows, each given as its values by column, and return how many; `otherwise` follows ON CONFLICT.

        The rows have the same columns, whose names no request gives.
        """
        if not rows:
            return 0
        columns, values = ", ".join(f'"{name}"' for name in rows[0]), ", ".join(f":{name}" for name in rows[0])
        conflict = f" ON CONFLICT {otherwise}" if otherwise else ""
        return self.run_all(f'INSERT INTO "{table}" ({columns}) VALUES ({values}){conflict}', rows)  # noqa: S608

    def put(self, table: str, key: Collection[str], row: Params) -> None:
        """Insert a row, or replace these columns of the one with its key."""
        others = ", ".join(f'"{name}" = excluded."{name}"' for name in row if name not in key)
        self.insert(table, row, otherwise=f"({', '.join(key)}) DO UPDATE SET {others}")

    def savepoint(self) -> AbstractContextManager[None]:
        """Roll back what is written within when it raises; the rest of the transaction stays."""

    notes: list[Note]
    """Events to log once the work is committed."""
    at_end: "AtEnd"
    """What to do once after the work, in its transaction, with what was collected for it."""

    def is_in_doubt(self, error: Exception) -> bool:
        """Whether the database failed, such as on a full disk. Re-raise such an error: everything is rolled back."""


AtEnd = dict[Callable[[Transaction, Any], None], dict[Any, Any]]


class Search(Protocol):
    """Reads rows one by one, so that a search can stop early."""

    def rows(self, sql: str, params: Params | None = None) -> Iterator[Row]:
        """The rows of a query, read one by one. Raises ResponderBotError("bad_request") once the search is stopped."""


def search_too_slow(limit_s: float) -> ResponderBotError:
    sentence = f"The search took over {limit_s:g} s and was stopped; ask for less, or more precisely."
    return ResponderBotError("bad_request", sentence)


class Database(Protocol):
    """A database. Each method that reads or writes raises ResponderBotError("unavailable") when it can't be used.

    `work` is synchronous, must change nothing but the database, and may be run twice.
    """

    @property
    def dialect(self) -> Dialect: ...

    @property
    def commits(self) -> int:
        """How many commits of this process have written something."""

    async def close(self) -> None:
        """Commit pending work, then close; later work raises ResponderBotError("unavailable")."""

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Run short queries on committed data. Another commit may come between two of them: see `snapshot`.

        It may suspend, or not.
        """

    async def snapshot(self, work: Callable[[Reads], T]) -> T:
        """Run several short queries on one snapshot."""

    async def search(self, work: Callable[[Search], T]) -> T:
        """Run a client's search; a few run at once, each for a limited time. Cancelling the caller stops it. Raises
        ResponderBotError("bad_request") when the time is over.
        """

    async def fetch_in_background(self, sql: str, params: Params | None = None) -> list[Row]:
        """Run a long query of core's or the bot's own; use `search` for queries of clients."""

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`; return its result once it is durable.

        Work of several callers may share one commit. If `work` raises, it alone is rolled back, and the error is raised
        here. Commits are serial, over all processes.
        """

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the caller's loop after each commit of this process."""

    def version(self) -> int:
        """A number that changes when another process has committed."""

    async def overwrite_deleted(self) -> None:
        """Leave nothing of what was deleted in the files. PostgreSQL locks one table after the other for it.

        Raises ResponderBotError("conflict") while somebody reads what was there before.
        """

    async def size_bytes(self) -> int:
        """The size of what is stored."""

    async def out_of_space(self) -> str:
        """Why the largest request doesn't fit on the disk, or "" (also if that is unknown)."""

    def remark(self) -> str:
        """A sentence about how the database is reached that an administrator should know, or ""."""

    def damage(self) -> str:
        """A sentence about damage found since the database was opened, or ""."""

    def failure(self, within_s: float) -> str:
        """The last error of a read or write, as a sentence, if it is at most `within_s` old; else ""."""

    def forget_failure(self) -> None:
        """Clear what `failure` returns."""
