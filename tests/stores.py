"""Which database tests run on: SQLite, or PostgreSQL with `TEST_STORE=postgresql`.

Tests of the store itself run on both, by the fixture `store`; those about SQLite's files are marked `sqlite`.
"""

import hashlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from bot.outbox.store import Stores, inbox_file, open_stores
from core.common.database import Database, Dialect
from core.common.database.location import Location, PostgresqlUrl
from core.common.database.schema import OpenedT
from core.store.database.opening import open_database
from tests.postgresql import schema_url

DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgresql")

_chosen: list[Dialect] = ["postgresql" if os.environ.get("TEST_STORE") == "postgresql" else "sqlite"]


def dialect() -> Dialect:
    return _chosen[-1]


@contextmanager
def using(dialect: Dialect) -> Iterator[None]:
    """Let tests run on this database within."""
    _chosen.append(dialect)
    try:
        yield
    finally:
        _chosen.pop()


def location(path: Location) -> Location:
    """The database for this path: that file, or schemas of its own on PostgreSQL; a URL is that of the database."""
    return path if dialect() == "sqlite" or isinstance(path, PostgresqlUrl) else on_postgresql(path)


def inbox(path: Location) -> Location:
    """Where the inbox of the database for this path is."""
    return inbox_file(path) if isinstance(path, Path) and dialect() == "sqlite" else path


def on_postgresql(path: Path) -> PostgresqlUrl:
    """The schemas for this path on PostgreSQL, the same each time, whatever tests run on."""
    return PostgresqlUrl(schema_url(f"t_{hashlib.sha256(str(path).encode()).hexdigest()[:20]}"))


def setting(path: Location) -> str:
    """As `location`, for a settings file."""
    found = location(path)
    return found.text if isinstance(found, PostgresqlUrl) else str(found)


def rows(path: Location, sql: str) -> list[tuple[Any, ...]]:
    """What a connection of its own answers; it may write. `path` as for `location`."""
    found = location(path)
    if isinstance(found, PostgresqlUrl):
        with _connected(found) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(found)) as database, database:
        return database.execute(sql).fetchall()


def _connected(url: PostgresqlUrl) -> psycopg.Connection:
    """A connection that finds core's tables and the bot's."""
    connection = psycopg.connect(url.text, autocommit=True)
    connection.execute("SELECT set_config('search_path', concat(current_schema, '_bot, ', current_schema), false)")
    return connection


def clicks(path: Location, sql: str) -> list[tuple[Any, ...]]:
    """As `rows`, in the inbox."""
    return rows(inbox(path), sql)


def kept(path: Path) -> Callable[[], None]:
    """Keep all rows of a database; gives what puts them back, as after a failover to a copy that lagged."""
    found = location(path)
    if isinstance(found, PostgresqlUrl):
        name = f"kept_{hashlib.sha256(str(path).encode()).hexdigest()[:20]}"
        with psycopg.connect(found.text, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT table_name, array_agg(CAST(column_name AS TEXT)) FROM information_schema.columns"
                " JOIN pg_tables ON schemaname = table_schema AND tablename = table_name"
                " WHERE table_schema = current_schema() AND is_generated = 'NEVER' GROUP BY table_name"
            ).fetchall()
            tables = [(Identifier(table), SQL(", ").join(map(Identifier, columns))) for table, columns in rows]
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
            for table, _ in tables:
                connection.execute(SQL("CREATE TABLE {}.{} AS TABLE {}").format(Identifier(name), table, table))

        def put_back() -> None:
            insert = SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2}.{0}")
            with psycopg.connect(found.text) as connection:
                connection.execute("SET LOCAL session_replication_role = replica")  # no triggers, as on a copy
                for table, columns in tables:
                    connection.execute(SQL("TRUNCATE {}").format(table))
                    connection.execute(insert.format(table, columns, Identifier(name)))
                connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))

        return put_back
    copy = path.with_name(f"{path.name}.kept")
    with closing(sqlite3.connect(found)) as database, closing(sqlite3.connect(copy)) as into:
        database.backup(into)

    def put_back_rows() -> None:
        with closing(sqlite3.connect(found, isolation_level=None)) as database:
            database.execute("ATTACH ? AS kept", [str(copy)])
            database.execute("BEGIN IMMEDIATE")
            for (table,) in database.execute("SELECT name FROM kept.sqlite_master WHERE type = 'table'").fetchall():
                written = database.execute("SELECT name FROM pragma_table_info(?)", [table])  # but no generated ones
                columns = ", ".join(f'"{row[0]}"' for row in written)
                database.execute(f'DELETE FROM main."{table}"')  # noqa: S608 - our own tables
                insert = f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM kept."{table}"'  # noqa: S608
                database.execute(insert)
            database.execute("COMMIT")

    return put_back_rows


def hold(path: Location, *, bots: bool = False) -> sqlite3.Connection | psycopg.Connection:
    """Keep others from writing until the connection is closed; `bots`: into the bot's tables on PostgreSQL."""
    found = location(path)
    if isinstance(found, PostgresqlUrl):
        connection = psycopg.connect(found.text, autocommit=True)
        schema = "concat(current_schema, '_bot')" if bots else "current_schema"
        connection.execute(f"SELECT pg_advisory_lock(hashtext('responder-bot'), hashtext({schema}))".encode())
        return connection
    lock = sqlite3.connect(found, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    return lock


def opened(path: Location) -> AbstractAsyncContextManager[Database]:
    """Core's database; `path` as for `location`."""
    return _closed_at_the_end(open_database, location(path))


def opened_bots(path: Location) -> AbstractAsyncContextManager[Stores]:
    """The bot's tables; `path` as for `location`."""
    return _closed_at_the_end(open_stores, location(path))


@asynccontextmanager
async def _closed_at_the_end(open_: Callable[[Location], OpenedT], found: Location) -> AsyncIterator[OpenedT]:
    database = open_(found)
    try:
        yield database
    finally:
        await database.close()
