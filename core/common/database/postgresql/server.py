"""Where a database is, connections to it, and the migrations of a schema."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.rows import dict_row

from core.common.database.base import Reads, Transaction
from core.common.database.location import SETTING
from core.common.database.postgresql.statements import (
    Connection,
    PostgresqlTransaction,
    adapt,
    advice,
    describe,
    run_plainly,
)
from core.common.database.probe import Failures
from core.common.database.schema import Migration, Opening
from core.common.errors import ResponderBotError, StoreUnavailableError

OLDEST = 14
CONNECT_TIMEOUT_S = 5
RETRY_S = 1.0  # while the server can't be reached, one attempt a second is made; all others fail at once
CUT_S = 10.0  # until a silent connection is given up
IDLE_IN_TRANSACTION_S = 10  # the server ends a transaction whose host has stopped in the middle, since others wait

_KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(CUT_S * 1000),
}
_SEARCH_PATH = re.compile(r"\s*-c\s*search_path=(\S+)")


def application_name(schema: str) -> str:
    """What PostgreSQL's administrators see of our connections, and by which commands find that there are any."""
    return f"responder-bot {schema}"[:63]


class Server:
    """A PostgreSQL, by the URL of the settings.

    The tables are in `schema` or, if the URL has a search path, in the schema of that name with `suffix`.
    """

    def __init__(self, url: str, schema: str, suffix: str = "") -> None:
        self.failures = Failures()
        self.is_pooled = False
        """Whether a pooler is in between, so that no session state can be relied on."""
        self._lock = threading.Lock()
        self._down: ResponderBotError | None = None
        self._retry_at = float("-inf")
        try:
            options_of_url: dict[str, Any] = conninfo.conninfo_to_dict(url)
        except psycopg.Error:  # its message may quote a password
            sentence = f"{SETTING} is no URL of a PostgreSQL; write postgresql://USER:PASSWORD@HOST/DATABASE."
            raise ResponderBotError("bad_request", sentence) from None
        options = str(options_of_url.pop("options", ""))
        search_path = _SEARCH_PATH.search(options)
        self.schema = f"{search_path[1]}{suffix}" if search_path else schema
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self.schema):
            sentence = f"The search path in {SETTING} names no schema; write a word of small letters."
            raise ResponderBotError("bad_request", sentence)
        rest = _SEARCH_PATH.sub("", options).strip()
        self._password = str(options_of_url.get("password") or "")
        self._given: dict[str, Any] = {
            **{"connect_timeout": CONNECT_TIMEOUT_S, "target_session_attrs": "read-write", **_KEEPALIVES},
            **options_of_url,
            **({"options": rest} if rest else {}),
            **{"client_encoding": "UTF8", "application_name": application_name(self.schema)},
        }
        host = str(options_of_url.get("host") or options_of_url.get("hostaddr") or "localhost")
        port = f":{options_of_url['port']}" if options_of_url.get("port") else ""
        self.place = f"postgresql://{host}{port}/{options_of_url.get('dbname') or ''}"
        """For messages, without user and password."""

    def open(self) -> Connection:
        """The first connection. Raises ResponderBotError with what is wrong with the settings or the server."""
        try:
            connection = self._open(is_first=True)
        except psycopg.Error as error:
            message = self._redacted(describe(error))
            sentence = f"The database {self.place} can't be opened ({message}); {advice(message)} ({SETTING})."
            raise ResponderBotError("unavailable", sentence) from None
        version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
        problem = ""
        if version < OLDEST * 10_000:
            old = f"{version // 10_000}.{version % 10_000}"
            problem = f"is PostgreSQL {old}; upgrade it to {OLDEST} or later"
        elif encoding != "UTF8":
            problem = f"has the encoding {encoding}; create one with `ENCODING 'UTF8' TEMPLATE template0`"
        if problem:
            connection.close()
            raise ResponderBotError("unavailable", f"The database {self.place} {problem}, or name another.")
        return connection

    def connect(self) -> Connection:
        """A further connection. Raises ResponderBotError("unavailable"), at once if others just failed."""
        with self._lock:
            if self._down is not None:
                if time.monotonic() < self._retry_at:
                    raise StoreUnavailableError(self._down.message)
                self._retry_at = time.monotonic() + RETRY_S
        try:
            connection = self._open()
        except psycopg.Error as error:
            with self._lock:
                self._down = self.unreachable(error)
                self._retry_at = time.monotonic() + RETRY_S
                raise self._down from None
        self._down = None
        return connection

    def unreachable(self, error: BaseException) -> ResponderBotError:
        message = self._redacted(describe(error))
        sentence = (
            f"The store can't be reached ({message}); look at PostgreSQL at {self.place}."
            " Work goes on by itself once it is back."
        )
        return self.failures.unavailable(sentence)

    def begin(self, kind: str = "") -> str:
        """The statements that begin a transaction, in one round trip."""
        return f"BEGIN {kind}" + (f"; {self._session('LOCAL ')}" if self.is_pooled else "")

    def _open(self, *, is_first: bool = False) -> Connection:
        connection = Connection.connect(**self._given, autocommit=True, row_factory=dict_row)
        try:
            adapt(connection)
            if is_first:
                self.is_pooled = self._is_behind_pooler(connection)
            if self.is_pooled:  # what is set or prepared would be another client's
                connection.prepare_threshold = None
            else:
                run_plainly(connection, self._session(""))
        except BaseException:
            connection.close()
            raise
        return connection

    def _session(self, local: str) -> str:
        """What holds for a session, or for a transaction."""
        settings = {
            "search_path": self.schema,
            "statement_timeout": "10s",
            "lock_timeout": "10s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
            "standard_conforming_strings": "on",
            "tcp_keepalives_idle": "3",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": f"{CUT_S:g}s",
        }
        lines = [f"SET {local}{name} = '{value}'" for name, value in settings.items()]
        # What was acknowledged survives a power loss, whatever the server's or the role's setting is.
        durable = f"set_config('synchronous_commit', 'on', {'true' if local else 'false'})"
        lines.append(f"SELECT {durable} WHERE current_setting('synchronous_commit') = 'off'")
        return "; ".join(lines)

    @staticmethod
    def _is_behind_pooler(connection: Connection) -> bool:
        """A pooler tells its clients another process id than the server's, since it shares the server's processes."""
        row = connection.execute("SELECT pg_backend_pid() AS pid").fetchone()
        return row is None or row["pid"] != connection.info.backend_pid

    def _redacted(self, message: str) -> str:
        return message.replace(self._password, "...") if self._password else message


# --- migrations: numbered, each applied once, in order ----------------------------------------------------------------


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
