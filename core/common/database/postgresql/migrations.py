"""Migrations of a schema of PostgreSQL: numbered, each applied once, in order."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress

import psycopg
from psycopg import errors

from core.common.database.base import Reads, Transaction
from core.common.database.location import SETTING
from core.common.database.postgresql.errors import describe
from core.common.database.postgresql.server import Server, application_name
from core.common.database.postgresql.statements import Connection, PostgresqlTransaction, run_plainly
from core.common.database.schema import Migration, Opening
from core.common.errors import ResponderBotError

MIGRATION_S = 3_600.0
CANCEL_S = 2.0  # how long a request to stop may take
_TABLES = """
CREATE TABLE migration (
  number BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  applied_by TEXT NOT NULL DEFAULT current_user);
CREATE TABLE place (tables TEXT NOT NULL, server TEXT NOT NULL, release BIGINT NOT NULL)
"""
# Numbers that PostgreSQL gave to the tables: those of tables that were restored from a dump differ.
_TABLES_NOW = """
SELECT string_agg(CAST(oid AS TEXT), ' ' ORDER BY oid) AS tables FROM pg_class
  WHERE relnamespace = to_regnamespace(%(schema)s) AND relname IN ('migration', 'place')
"""
# Those of the server and its database; a new release of PostgreSQL that takes them over (pg_upgrade) changes them too.
_SERVER_NOW = """
SELECT concat((SELECT oid FROM pg_database WHERE datname = current_database()), ' ', {server}) AS server,
  CAST(current_setting('server_version_num') AS BIGINT) / 10000 AS release
"""
_MAY_ASK_FOR_SERVER = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AS is_permitted"
_SERVER = "(SELECT system_identifier FROM pg_control_system())"

_FOUND = """
SELECT to_regnamespace(%(schema)s) IS NOT NULL AS has_schema, to_regclass(%(migrations)s) IS NOT NULL AS has_migrations,
  to_regclass(%(table)s) IS NOT NULL AS has_table
"""
_USED = """
SELECT pid FROM pg_stat_activity
  WHERE application_name = %(name)s AND datname = current_database() AND pid <> pg_backend_pid()
"""


def lock(schema: str) -> str:
    """A statement that waits for all others that write to this schema, on any host, until their commit."""
    return f"SELECT pg_advisory_xact_lock(hashtext('responder-bot'), hashtext('{schema}'))"


def migrate(
    connection: Connection,
    server: Server,
    migrations: Sequence[Migration],
    prepare: Callable[[Transaction, bool], None],
    table: str,
    opening: Opening,
) -> None:
    """Apply the migrations that are pending, then `prepare`, in one transaction.

    `table` is one that these tables have always had, and no other store's. Raises ResponderBotError: "bad_request" if a
    newer release has applied more, or for a schema of other tables; "unavailable" if the role may not create or
    use the tables, or if another process migrates them for long.
    """
    usual_s = connection.answer_s
    try:
        run_plainly(connection, f"{server.begin()}; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '10s'")
        run_plainly(connection, lock(server.schema))
        connection.answer_s = max(usual_s, MIGRATION_S)  # indexes on large tables take minutes
        run_plainly(connection, "SET LOCAL lock_timeout = 0")
        applied = _applied(connection, server, table)
        if applied > len(migrations):
            raise ResponderBotError(
                "bad_request", "This database was made by a newer release; run that one, or name another database."
            )
        with suppress(psycopg.Error), connection.transaction():  # not every system lets the server see who is killed
            run_plainly(connection, "SET LOCAL client_connection_check_interval = '1s'")
        opening.stop = lambda: connection.cancel_safe(timeout=CANCEL_S)
        if applied and (pending := migrations[applied:]):
            steps = sum(len(migration.postgresql) for migration in pending)
            opening.begin(server.place, pending, steps, size_bytes(connection.reads, server.schema), None)
        for number, migration in enumerate(migrations[applied:], applied + 1):
            for statement in opening.statements(migration, migration.postgresql):
                run_plainly(connection, statement)
            connection.execute("INSERT INTO migration (number) VALUES (%(number)s)", {"number": number})
        prepare(PostgresqlTransaction(connection), _is_copy(connection, server.schema))
        run_plainly(connection, "COMMIT")
    except errors.InsufficientPrivilege as error:
        info = connection.info
        sentence = (
            f"The role {info.user} has too few rights in {server.place} ({describe(error)});"
            f' as its owner, `GRANT CREATE, CONNECT ON DATABASE "{info.dbname}" TO "{info.user}"`,'
            f" and let the role own the schema {server.schema} ({SETTING})."
        )
        raise ResponderBotError("unavailable", sentence) from None
    except errors.LockNotAvailable:
        sentence = f"Another process of responder-bot fills or migrates {server.place}; start again when it has ended."
        raise ResponderBotError("unavailable", sentence) from None
    except psycopg.Error as error:  # such as of tables that somebody else has made there
        sentence = (
            f"The database {server.place} can't be opened ({describe(error)}); correct that, or name another schema"
            f" than {server.schema} ({SETTING})."
        )
        raise ResponderBotError("unavailable", sentence) from error
    finally:
        opening.stop = lambda: None
        connection.answer_s = usual_s
        if not connection.closed and connection.info.transaction_status:
            run_plainly(connection, "ROLLBACK")


def _applied(connection: Connection, server: Server, table: str) -> int:
    """How many steps have been applied; makes the schema if there is none."""
    values = {"schema": server.schema, "table": f"{server.schema}.{table}"}
    found = connection.execute(_FOUND, {**values, "migrations": f"{server.schema}.migration"}).fetchone()
    assert found is not None  # noqa: S101 - a select without a table always gives a row
    if not found["has_migrations"]:
        if not found["has_schema"]:
            run_plainly(connection, f'CREATE SCHEMA "{server.schema}"')
        run_plainly(connection, _TABLES)
    elif not found["has_table"]:
        sentence = (
            f"The schema {server.schema} of {server.place} holds other tables than {SETTING} is for, or those"
            " from before 0.2.0, which can't be upgraded; core and bot need a schema each, so name another search path"
            " there, or another database."
        )
        raise ResponderBotError("bad_request", sentence)
    row = connection.execute("SELECT coalesce(max(number), 0) AS last FROM migration").fetchone()
    return int(row["last"]) if row else 0


def _is_copy(connection: Connection, schema: str) -> bool:
    """Whether these tables are a copy of those that were opened last, such as from a dump; remembers where they are."""
    tables = connection.execute(_TABLES_NOW, {"schema": schema}).fetchone()
    asked = connection.execute(_MAY_ASK_FOR_SERVER).fetchone()
    may_ask = asked is not None and asked["is_permitted"]  # not everywhere where PostgreSQL is a service
    server = connection.execute(_SERVER_NOW.format(server=_SERVER if may_ask else "''")).fetchone()
    assert tables is not None  # noqa: S101 - a select without a table always gives a row
    assert server is not None  # noqa: S101 - as above
    now = {**tables, **server}
    before = connection.execute("SELECT tables, server, release FROM place").fetchone()
    if before == now:
        return False
    connection.execute("DELETE FROM place")
    connection.execute("INSERT INTO place (tables, server, release) VALUES (%(tables)s, %(server)s, %(release)s)", now)
    if before is None:
        return False
    servers = sorted([before["server"], now["server"]])
    is_same_server = servers[1].startswith(servers[0])  # one may lack the number of the server, at the end
    return bool(before["tables"] != now["tables"] or (before["release"] == now["release"] and not is_same_server))


def size_bytes(reads: Reads, schema: str) -> int:
    """The size of the tables with their indexes."""
    sql = (
        "SELECT CAST(coalesce(sum(pg_total_relation_size(oid)), 0) AS BIGINT) AS size FROM pg_class"
        " WHERE relnamespace = to_regnamespace(:schema) AND relkind = 'r'"
    )
    return reads.number(sql, {"schema": schema})


def is_used(connection: Connection, schema: str) -> bool:
    """Whether another session of responder-bot is on this schema."""
    connection.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees the same each time
    return connection.execute(_USED, {"name": application_name(schema)}).fetchone() is not None


def forget(url: str, schema: str, suffix: str) -> None:
    """Let the next start take the tables for a copy. Raises ResponderBotError: "conflict" while they are in use."""
    server = Server(url, schema, suffix)
    with closing(server.open()) as connection:
        if is_used(connection, server.schema):
            raise ResponderBotError("conflict", f"{server.place} is in use; stop every responder-bot that uses it.")
        try:
            run_plainly(connection, server.begin())
            run_plainly(connection, "UPDATE place SET tables = ''; COMMIT")
        except errors.UndefinedTable:
            sentence = f"There are no tables of responder-bot in the schema {server.schema} of {server.place}."
            raise ResponderBotError("not_found", f"{sentence[:-1]}; correct {SETTING}.") from None
