"""Export and import of rows as JSON lines, from SQLite to PostgreSQL or back, one store after the other.

The first line of each names it. A line with `table` begins a table, and each row of it is a list, in the order of
`columns`. Its last line has the number of rows and the SHA-256 of each table.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TextIO

import sqlite_utils

from core.common.database.base import Database, Reads, Row, Transaction
from core.common.database.location import Location
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError

ROWS_AT_ONCE = 100  # in memory: a document may have a megabyte
_CUT = "it is cut or was changed, or the database stored something else"


@dataclass(frozen=True)
class Store:
    """Tables that have a file or a schema of their own, or share a file with another store."""

    name: str
    migrate: Callable[[sqlite_utils.Database], None]
    """Makes its tables on SQLite."""
    open: Callable[[Location, Opening], Database]
    """Opens or creates it. Raises ResponderBotError."""
    running: str
    """Selects `host` of each process that works on it at `:now` (ms); "": those of another store tell."""


@dataclass(frozen=True)
class Sum:
    """The rows of a table."""

    rows: int
    sha256: str


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    is_numbered: bool
    """Whether the database gives its numbers."""


async def export(store: Store, database: Database, file: TextIO, now: int) -> Mapping[str, Sum]:
    """Write all rows, as of one moment. Raises ResponderBotError("conflict") while a process works on them."""

    def write(reads: Reads) -> dict[str, Sum]:
        for row in reads.rows(store.running, {"now": now}) if store.running else ():
            sentence = f"A responder-bot on {row['host']} uses this database; stop it first."
            raise ResponderBotError("conflict", sentence)
        _write(file, {"store": store.name})
        sums = {}
        for table in tables(store):
            _write(file, {"table": table.name, "columns": table.columns})
            sums[table.name] = _sum(_each(_lines(reads, table), file.write))
        _write(file, {"tables": {name: [each.rows, each.sha256] for name, each in sums.items()}})
        return sums

    return await database.snapshot(write)


async def load(store: Store, database: Database, file: TextIO) -> Mapping[str, Sum]:
    """Fill an empty database with what `export` wrote next in the file, all or nothing; then read it and compare.

    Raises ResponderBotError: "exists" if it isn't empty, "bad_request" for a file that is no export of this store, is
    cut or was changed.
    """
    by_name, start = {table.name: table for table in tables(store)}, file.tell()

    def fill(tx: Transaction) -> dict[str, Sum]:
        _clear(tx, by_name)
        file.seek(start)
        sums = _fill(tx, store, by_name, file)
        if database.dialect == "postgresql":
            for numbered in by_name.values():
                _go_on_numbering(tx, numbered)
        return sums

    return await database.transaction(fill)


def _fill(tx: Transaction, store: Store, by_name: Mapping[str, Table], file: TextIO) -> dict[str, Sum]:
    """Insert what the file has next. Returns the rows of each table, as the database has them then."""
    lines = _parsed(file)
    if next(lines, None) != {"store": store.name}:
        raise _unreadable(f"it is no export of the {store.name}")
    table, sums, rows = None, dict[str, Sum](), list[dict[str, Any]]()
    for line in lines:
        if isinstance(line, list) and table is not None and len(line) == len(table.columns):
            rows.append(dict(zip(table.columns, line, strict=True)))
            if len(rows) == ROWS_AT_ONCE:
                _insert(tx, table, rows)
            continue
        if table is not None:
            _insert(tx, table, rows)
            sums[table.name] = _sum(_lines(tx, table))
        match line:
            case {"table": str(name), "columns": list(columns)}:
                table = by_name.get(name)
                if table is None or columns != list(table.columns) or name in sums:
                    raise _unreadable(f"its table {name} isn't one of this release")
            case {"tables": dict(expected)}:
                _require_same(expected, sums, by_name)
                return sums
            case _:
                raise _unreadable("it is damaged")
    raise _unreadable(_CUT)


def _require_same(expected: object, sums: Mapping[str, Sum], by_name: Mapping[str, Table]) -> None:
    stored = {name: [each.rows, each.sha256] for name, each in sums.items()}
    if expected != stored or stored.keys() != by_name.keys():
        raise _unreadable(_CUT)


def tables(store: Store) -> list[Table]:
    """The tables of a store, without those of an index."""
    with closing(sqlite_utils.Database(memory=True)) as db:
        store.migrate(db)
        return [
            Table(
                table.name,
                tuple(column.name for column in table.columns),
                tuple(table.pks if table.pks != ["rowid"] else table.columns_dict),
                "AUTOINCREMENT" in table.schema,
            )
            for table in db.tables
            if not table.name.startswith(("sqlite_", "_sqlite_")) and "_fts" not in table.name  # those of an index
        ]


def page(reads: Reads, table: Table, last: Row | None) -> list[Row]:
    """The next rows of a table after `last`, by its key; the last page has fewer than ROWS_AT_ONCE."""
    columns, key = _quoted(table.columns), _quoted(table.key)
    after = f"({key}) > ({', '.join(f':after_{number}' for number in range(len(table.key)))})"
    values = {f"after_{number}": last[column] for number, column in enumerate(table.key)} if last else {}
    where = f"WHERE {after}" if last else ""
    return reads.rows(f'SELECT {columns} FROM "{table.name}" {where} ORDER BY {key} LIMIT {ROWS_AT_ONCE}', values)


async def matching(
    store: Store, database: Database, matches: Callable[[str], bool], only: Collection[str] = ()
) -> AsyncIterator[tuple[Table, Row]]:
    """Each row that has a text which matches, with its table; reads all tables, or `only` these, page by page."""
    for table in tables(store):
        if only and table.name not in only:
            continue
        last: Row | None = None
        while True:
            rows = await database.snapshot(lambda reads, table=table, last=last: page(reads, table, last))  # type: ignore[misc]
            for row in rows:
                if any(isinstance(row[column], str) and matches(row[column]) for column in table.columns):
                    yield table, row
            if len(rows) < ROWS_AT_ONCE:
                break
            last = rows[-1]


def delete(tx: Transaction, table: Table, row: Row) -> int:
    where = " AND ".join(f'"{column}" = :{column}' for column in table.key)
    return tx.run(f'DELETE FROM "{table.name}" WHERE {where}', {column: row[column] for column in table.key})


def _lines(reads: Reads, table: Table) -> Iterator[str]:
    """The rows of a table by its key, each as a line."""
    last: Row | None = None
    while True:
        rows = page(reads, table, last)
        for row in rows:
            yield _line([_portable(row[column]) for column in table.columns])
        if len(rows) < ROWS_AT_ONCE:
            return
        last = rows[-1]


def _clear(tx: Transaction, by_name: Mapping[str, Table]) -> None:
    """Delete what every new database has. Raises ResponderBotError("exists") if it has more."""
    first = ("sequence", "identity")
    for name in by_name:
        if name not in first and tx.row(f'SELECT 1 FROM "{name}" LIMIT 1') is not None:
            raise ResponderBotError("exists", "The database of the settings isn't empty; name a new one.")
    for name in first:
        if name in by_name:
            tx.run(f'DELETE FROM "{name}"')


def _insert(tx: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    try:
        tx.insert(table.name, *rows)
    except Exception as error:
        if tx.is_in_doubt(error):
            raise
        raise _unreadable(f"a row of {table.name} can't be stored ({str(error).splitlines()[0]})") from error
    rows.clear()


def _go_on_numbering(tx: Transaction, table: Table) -> None:
    if table.is_numbered:
        (key,) = table.key
        tx.row(
            "SELECT setval(pg_get_serial_sequence(:table, :key), number) FROM"
            f' (SELECT max("{key}") AS number FROM "{table.name}") AS last WHERE number IS NOT NULL',
            {"table": table.name, "key": key},
        )


def _portable(value: Any) -> Any:
    """The value as both databases store it: PostgreSQL takes no NUL."""
    if not isinstance(value, str | int | None):
        raise ResponderBotError("bad_request", f"{value!r:.40} is neither a text nor a number; restore a backup.")
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _each(lines: Iterator[str], use: Callable[[str], object]) -> Iterator[str]:
    for line in lines:
        use(line)
        yield line


def _sum(lines: Iterator[str]) -> Sum:
    digest, count = hashlib.sha256(), 0
    for line in lines:
        digest.update(line.encode())
        count += 1
    return Sum(count, digest.hexdigest())


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _write(file: TextIO, value: object) -> None:
    file.write(_line(value))


def _parsed(file: TextIO) -> Iterator[Any]:
    try:
        for line in iter(file.readline, ""):  # unlike `for line in file`, after which nobody can tell where it is
            yield json.loads(line)
    except (ValueError, RecursionError):
        raise _unreadable("it is damaged") from None


def _unreadable(what: str) -> ResponderBotError:
    return ResponderBotError("bad_request", f"Nothing was imported from the file, since {what}; export it once more.")
