"""Copy all tables of a store to another database, of the same or the other kind, in one transaction of the target.

So a target holds nothing or everything, whenever the copying ends. The source is locked meanwhile and stays as it is:
of one of an earlier release the copy is brought up to date, by a transaction of the source that is rolled back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, TypeVar

import sqlite_utils

from core.common.database.base import Dialect, Transaction
from core.common.database.location import Location, PostgresqlUrl
from core.common.database.opening import check_installed
from core.common.errors import ResponderBotError

T = TypeVar("T")
Value = str | int | None
Values = tuple[Value, ...]

BATCH_ROWS = 500
BATCH_CHARACTERS = 4_000_000
_NAMED = 10  # rows in one sentence
_ROWID = "rowid"  # every table of SQLite has it without a word, unless it says WITHOUT ROWID
_CHECKSUMS = 2**128


class RowRefusedError(Exception):
    """The target can't store a row of a batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True)
class LastNumber:
    """A row of a table in which PostgreSQL alone keeps the last number of another table."""

    of: str
    table: str
    id: int


@dataclass(frozen=True)
class Store:
    """A store's tables in either database, and what makes them."""

    table: str
    """One that every release has had, and only this store."""
    schema: str
    """The schema of PostgreSQL, unless the URL has a search path."""
    steps: Sequence[str]
    """PostgreSQL's migrations."""
    prepare: Callable[[Transaction, bool], None]
    """Follows PostgreSQL's migrations; as in `open_postgresql`."""
    migrate: Callable[[sqlite_utils.Database], None]
    """Brings a SQLite file up to date."""
    last_number: LastNumber | None = None


class Tables(Protocol):
    """The tables of a store in an open transaction; nothing is listed by hand, so that none is forgotten."""

    dialect: Dialect

    def columns(self) -> Mapping[str, frozenset[str]]:
        """By table; without tables of migrations."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[str, Values]]:
        """Each row, with how to find it. Reads them bit by bit."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Raises RowRefusedError."""

    def clear(self) -> None:
        """Delete all rows."""

    def last_numbers(self) -> Mapping[str, int]:
        """The last number ever given, by table; such a number is not given again when its row is deleted."""

    def set_last_numbers(self, numbers: Mapping[str, int]) -> None: ...

    def stored(self, value: Value) -> Value:
        """The value as this database stores it."""

    def damaged_documents(self, table: str) -> Sequence[str]:
        """Some rows whose column `doc` is no JSON, if this database takes such."""


@dataclass(frozen=True)
class CopiedTable:
    name: str
    rows: int
    checksum: int
    """Over all values of all rows, in any order; computed from what was read, and from what the target then holds."""

    @property
    def digest(self) -> str:
        return f"{self.checksum:032x}"


@dataclass(frozen=True)
class Copied:
    tables: Sequence[CopiedTable]
    was_there: bool
    """Whether the target held exactly this before, and nothing was written."""
    changed: Sequence[str]
    """Some rows whose text PostgreSQL can't store as it is."""


def exists(location: Location, store: Store, name: str) -> bool:
    """Whether there is such a store; `name` is what it is called in messages. Raises ResponderBotError."""
    if not isinstance(location, PostgresqlUrl):
        return location.is_file()
    check_installed(name)
    from core.common.database.postgresql.copying import has_schema

    return has_schema(location, store, name)


def copy(store: Store, source: Location, target: Location) -> Copied:
    """Copy the store, or find that the target holds exactly it. Blocks.

    Raises ResponderBotError: "not_found" without a source, "conflict" if a process has it open, "exists" if the target
    holds anything else, "bad_request" for a row that the target can't store, "unavailable" if either can't be used.
    """
    if not exists(source, store, "FROM"):
        place = "it" if isinstance(source, PostgresqlUrl) else source
        raise ResponderBotError("not_found", f"There is nothing of responder-bot in {place} (FROM); name another.")

    def from_source(tables: Tables) -> Copied:
        def into_target(made: Tables, is_new: bool) -> Copied:
            return _fill(tables, made) if is_new else _compare(tables, made)

        return _write(store, target, into_target)

    return _read(store, source, from_source)


def _read(store: Store, source: Location, work: Callable[[Tables], T]) -> T:
    if isinstance(source, PostgresqlUrl):
        check_installed("FROM")
        from core.common.database.postgresql.copying import read_tables

        return read_tables(store, source, work)
    from core.common.database.sqlite_copying import read_tables as read_file

    return read_file(store, source, work)


def _write(store: Store, target: Location, work: Callable[[Tables, bool], T]) -> T:
    if isinstance(target, PostgresqlUrl):
        check_installed("TO")
        from core.common.database.postgresql.copying import write_tables

        return write_tables(store, target, work)
    from core.common.database.sqlite_copying import write_tables as write_file

    return write_file(store, target, work)


# --- tables -----------------------------------------------------------------------------------------------------------


def _fill(source: Tables, target: Tables) -> Copied:
    """Copy all tables, read them again, and compare."""
    columns = _columns(source, target)
    if target.dialect == "postgresql":
        _refuse_damaged(source, columns)
    target.clear()
    changed: list[str] = []
    copied = [_copy_table(source, target, name, columns[name], changed) for name in columns]
    target.set_last_numbers(source.last_numbers())
    for table in copied:
        found = _sum(table.name, (values for _, values in target.rows(table.name, columns[table.name])))
        if found != table:
            raise ResponderBotError(
                "unavailable",
                f"The table {table.name} has {found.rows} rows with the checksum {found.digest} after {table.rows} rows"
                f" with {table.digest} were copied; nothing is kept of it. Look at the disks of both.",
            )
    return Copied(copied, False, changed)


def _compare(source: Tables, target: Tables) -> Copied:
    """Find that both hold the same, such as after an earlier run. Raises ResponderBotError("exists")."""
    columns = _columns(source, target)
    tables = []
    is_same = True
    for name, of_table in columns.items():
        held = _sum(name, (tuple(map(target.stored, values)) for _, values in source.rows(name, of_table)))
        is_same = is_same and _sum(name, (values for _, values in target.rows(name, of_table))) == held
        tables.append(held)
    numbers, of_target = source.last_numbers(), target.last_numbers()
    is_same = is_same and all(of_target.get(name, number) >= number for name, number in numbers.items())
    if not is_same:
        raise ResponderBotError("exists", "holds other data")
    return Copied(tables, True, ())


def _columns(source: Tables, target: Tables) -> dict[str, list[str]]:
    """What to copy, by table."""
    of_source, of_target = source.columns(), target.columns()
    found = {}
    for name in sorted(of_source.keys() | of_target.keys()):
        both = of_source.get(name, frozenset()), of_target.get(name, frozenset())
        if both[0] - {_ROWID} != both[1] - {_ROWID} or not both[0]:
            raise ResponderBotError(
                "bad_request",
                f"The table {name} isn't in both databases, or has other columns in one; name another database.",
            )
        found[name] = sorted(both[0] & both[1])
    return found


def _refuse_damaged(source: Tables, columns: Mapping[str, Sequence[str]]) -> None:
    for name, of_table in columns.items():
        if "doc" in of_table and (damaged := source.damaged_documents(name)):
            raise ResponderBotError(
                "bad_request",
                f"{', '.join(damaged)}: the column doc holds no JSON, which PostgreSQL needs; correct or delete that in"
                " FROM, and copy again.",
            )


def _copy_table(source: Tables, target: Tables, table: str, columns: Sequence[str], changed: list[str]) -> CopiedTable:
    def converted() -> Iterator[tuple[str, Values]]:
        for name, values in source.rows(table, columns):
            stored = tuple(map(target.stored, values))
            if stored != values and len(changed) < _NAMED:
                changed.append(name)
            yield name, stored

    def written() -> Iterator[Values]:
        for batch in _batches(converted()):
            try:
                target.insert(table, columns, [values for _, values in batch])
            except RowRefusedError as error:
                name = batch[error.index][0] if 0 <= error.index < len(batch) else table
                sentence = f"{name} can't be copied ({error.reason}); correct or delete it in FROM, and copy again."
                raise ResponderBotError("bad_request", sentence) from error
            yield from (values for _, values in batch)

    return _sum(table, written())


def _batches(rows: Iterable[tuple[str, Values]]) -> Iterator[list[tuple[str, Values]]]:
    batch: list[tuple[str, Values]] = []
    size = 0
    for name, values in rows:
        batch.append((name, values))
        size += sum(len(value) for value in values if isinstance(value, str))
        if len(batch) == BATCH_ROWS or size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sum(table: str, rows: Iterable[Values]) -> CopiedTable:
    count = total = 0
    for values in rows:
        digest = blake2b(digest_size=16)
        for value in values:
            if isinstance(value, str):
                encoded = value.encode()
                digest.update(b"t%d:" % len(encoded))
                digest.update(encoded)
            else:
                digest.update(b"n" if value is None else b"i%d;" % value)
        count += 1
        total += int.from_bytes(digest.digest())
    return CopiedTable(table, count, total % _CHECKSUMS)
