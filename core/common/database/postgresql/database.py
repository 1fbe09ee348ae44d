"""PostgreSQL: one writer thread with group commit, and threads with a connection each for readers.

See core/docs/storage.md#postgresql.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from core.common.database.base import Dialect, Params, Reads, Row, Search, Transaction, search_too_slow
from core.common.database.group_commit import Work, Writer
from core.common.database.postgresql.server import Server, lock, migrate, size_bytes
from core.common.database.postgresql.statements import (
    Connection,
    PostgresqlSearch,
    PostgresqlTransaction,
    describe,
    is_damage,
    is_in_doubt,
    is_unavailable,
    run_plainly,
)
from core.common.database.schema import Migration, Opening
from core.common.errors import ResponderBotError

T = TypeVar("T")

MAX_READS = 4
MAX_SEARCHES = 4
MAX_SNAPSHOTS = 2
SEARCH_LIMIT_S = 10.0
BACKGROUND_S = 600

_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A plan that doesn't know the tag reads all alerts, since most tags have many: 1 s instead of 1 ms with 100,000.
_PLANNED_EACH_TIME = "SET LOCAL plan_cache_mode = force_custom_plan"


class PostgresqlDatabase:
    """A `Database` in a schema of a PostgreSQL; `migrations` make its tables, and `prepare` follows them.

    `table` is one that these tables have always had, and no other store's. `suffix` is for a store beside the one whose
    schema the URL may name. `prepare` is called in the transaction of the migrations, with whether the tables are a
    copy that was restored from a dump. A short read that takes longer than `read_limit_s` fails. Raises
    ResponderBotError for a URL that names no database that can be used.
    """

    dialect: Dialect = "postgresql"

    def __init__(
        self,
        url: str,
        schema: str,
        migrations: Sequence[Migration],
        prepare: Callable[[Transaction, bool], None],
        *,
        table: str,
        opening: Opening,
        suffix: str = "",
        search_limit_s: float = SEARCH_LIMIT_S,
        read_limit_s: float | None = None,
    ) -> None:
        self._read_limit_s = read_limit_s
        self._search_limit_s = search_limit_s
        self._version = 0
        self._loops: set[asyncio.AbstractEventLoop] = set()
        self._local = threading.local()
        self._connections: set[Connection] = set()
        self._searches: set[PostgresqlSearch] = set()
        self._server = Server(url, schema, suffix)
        connection = self._server.open()
        try:
            migrate(connection, self._server, migrations, prepare, table, opening)
        except BaseException:
            connection.close()
            raise
        name = secrets.token_hex(8)
        self._listener = Listener(self._server, self._server.schema, name, self._on_foreign_commit)
        self._group_writer = GroupWriter(self._server, self._listener, connection)
        self._writer = Writer(self._group_writer.commit)
        self._readers = ThreadPoolExecutor(MAX_READS, thread_name_prefix="store-reader")
        self._searchers = ThreadPoolExecutor(MAX_SEARCHES, thread_name_prefix="store-search")
        self._snapshots = ThreadPoolExecutor(MAX_SNAPSHOTS, thread_name_prefix="store-snapshot")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="store-background")

    async def close(self) -> None:
        await self._writer.close()
        for search in list(self._searches):
            search.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for executor in (self._readers, self._searchers, self._snapshots, self._background):
            executor.shutdown()
        self._listener.close()
        self._group_writer.close()
        for connection in self._connections:
            connection.close()

    # --- reads --------------------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Runs in a thread."""

        def run(connection: Connection) -> T:
            if not self._server.is_pooled:
                return work(connection.reads)
            with self._begun(connection, "READ ONLY") as reads:
                return work(reads)

        try:
            async with asyncio.timeout(self._read_limit_s):
                return await self._in_thread(self._readers, run)
        except TimeoutError as error:
            raise self._server.unreachable(psycopg.OperationalError("it does not answer")) from error

    async def snapshot(self, work: Callable[[Reads], T]) -> T:
        """Runs in a thread, apart from short reads and searches."""

        def run(connection: Connection) -> T:
            with self._begun(connection, _SNAPSHOT) as reads:
                return work(reads)

        return await self._in_thread(self._snapshots, run)

    async def fetch_in_background(self, sql: str, params: Params | None = None) -> list[Row]:
        def run(connection: Connection) -> list[Row]:
            connection.answer_s = BACKGROUND_S
            with self._begun(connection, "READ ONLY", f"SET LOCAL statement_timeout = '{BACKGROUND_S}s'") as reads:
                return reads.rows(sql, params)

        return await self._in_thread(self._background, run)

    async def search(self, work: Callable[[Search], T]) -> T:
        """Runs in a thread, at most MAX_SEARCHES at once."""
        loop, search = asyncio.get_running_loop(), PostgresqlSearch()
        limits = (f"SET LOCAL statement_timeout = {int(self._search_limit_s * 1000)}", _PLANNED_EACH_TIME)

        def run(connection: Connection) -> T:
            with self._begun(connection, _SNAPSHOT, *limits):
                loop.call_soon_threadsafe(search.limit, loop, self._search_limit_s)
                search.begin(connection)
                try:
                    return work(search)
                except psycopg.errors.QueryCanceled as error:
                    raise search_too_slow(self._search_limit_s) from error
                finally:
                    search.end()

        self._searches.add(search)
        try:
            return await self._in_thread(self._searchers, run)
        finally:
            self._searches.discard(search)
            search.stop()

    @contextmanager
    def _begun(self, connection: Connection, kind: str, *limits: str) -> Iterator[Reads]:
        """A transaction of this kind, within `limits` (statements); `_attempt` rolls back what fails."""
        run_plainly(connection, "; ".join([self._server.begin(kind), *limits]))
        yield connection.reads
        run_plainly(connection, "COMMIT")

    async def _in_thread(self, executor: ThreadPoolExecutor, work: Callable[[Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, self._run, work)
        except RuntimeError as error:
            if "after shutdown" not in str(error):
                raise
            raise ResponderBotError(
                "unavailable", "The store is closed; start again, or ask the one that runs."
            ) from None

    def _run(self, work: Callable[[Connection], T], *, is_again: bool = False) -> T:
        """Run it on this thread's connection; once more on a new one if that was lost, as after a restart."""
        connection = self._own_connection()
        try:
            return self._attempt(connection, work)
        except psycopg.Error as error:
            if not is_unavailable(error):
                raise
            if is_again or not connection.closed:
                raise self._unreadable(error) from error
        return self._run(work, is_again=True)

    def _own_connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            if connection is not None:
                self._connections.discard(connection)
            connection = self._local.connection = self._server.connect()
            self._connections.add(connection)
        return connection

    @staticmethod
    def _attempt(connection: Connection, work: Callable[[Connection], T]) -> T:
        try:
            return work(connection)
        finally:
            if connection.pgconn.transaction_status and not connection.closed:
                with suppress(psycopg.Error):
                    run_plainly(connection, "ROLLBACK")
                if connection.pgconn.transaction_status:
                    connection.close()

    def _unreadable(self, error: psycopg.Error) -> ResponderBotError:
        sentence = f"The store can't be read ({describe(error)}); look at PostgreSQL at {self._server.place}."
        return self._server.failures.unavailable(sentence, error, is_damage=is_damage(error))

    # --- writes -------------------------------------------------------------------------------------------------------

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Runs in the writer thread."""
        self._loops.add(asyncio.get_running_loop())
        return await self._writer.run(work)

    @property
    def commits(self) -> int:
        return self._group_writer.commits

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Calls it soon after commits of other processes as well."""
        with suppress(RuntimeError):
            self._loops.add(asyncio.get_running_loop())
        self._writer.on_commit(listener)

    def version(self) -> int:
        return self._version

    def _on_foreign_commit(self) -> None:
        self._version += 1
        for loop in list(self._loops):
            try:
                loop.call_soon_threadsafe(self._writer.notify)
            except RuntimeError:  # it is closed
                self._loops.discard(loop)

    # --- health -------------------------------------------------------------------------------------------------------

    async def overwrite_deleted(self) -> None:
        """Writes each table into a new file, and its statistics, which quote values.

        The write-ahead log, archives and replicas keep older ones for a while.
        """

        def rewrite(connection: Connection) -> None:
            connection.answer_s = BACKGROUND_S
            schema, sql = self._server.schema, "SELECT tablename FROM pg_tables WHERE schemaname = :schema ORDER BY 1"
            run_plainly(connection, f"SET statement_timeout = '{BACKGROUND_S}s'")
            for row in connection.reads.rows(sql, {"schema": schema}):
                run_plainly(connection, f'VACUUM (FULL, ANALYZE) "{schema}"."{row["tablename"]}"')
            run_plainly(connection, "VACUUM FULL pg_statistic")  # with a warning it does nothing for another role

        await self._in_thread(self._background, rewrite)

    async def size_bytes(self) -> int:
        return await self.read(lambda reads: size_bytes(reads, self._server.schema))

    async def out_of_space(self) -> str:
        return ""  # a full disk of the server shows in the write that health tries

    def remark(self) -> str:
        if self._listener.is_listening:
            return ""
        return (
            "A pooler keeps notifications from arriving, so other hosts' changes are looked for four times a second;"
            " connect to PostgreSQL itself, or use the pooler's session mode."
        )

    def damage(self) -> str:
        return self._server.failures.damage

    def failure(self, within_s: float) -> str:
        return self._server.failures.last(within_s)

    def forget_failure(self) -> None:
        self._server.failures.forget()


# --- commits groups of works on a connection of its own, and notices commits of other hosts ---------------------------


DOUBT_S = 10.0  # how long to ask whether a commit whose answer was lost took place
DOUBT_PAUSE_S = 0.1
_TOO_LONG = (
    "A text by which PostgreSQL has to find something is too long for its index, such as the sourceRef of an alert, or"
    " a name; send one of at most 2,000 bytes."
)
_TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) AS timeline"
_SEES_COMMITS = "ISOLATION LEVEL READ COMMITTED"  # also those made while it waits for its turn; a role may have another


class CommitLostError(Exception):
    """The connection was lost, and nothing of the transaction is written."""


class GroupWriter:
    """Commits groups of works, one after the other over all hosts, so that the feed has the order of the commits."""

    def __init__(self, server: Server, listener: "Listener", connection: Connection) -> None:
        self._server = server
        self._listener = listener
        self._connection: Connection | None = connection
        self._timeline = _timeline(connection)
        self.commits = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def commit(self, works: list[Work]) -> None:
        """Run and commit them, each with its own result or error."""
        try:
            try:
                self._commit(works)
            except CommitLostError:  # such as after a restart of the server: works may be run twice
                self._commit(works)
        except CommitLostError as error:
            self._fail(works, self._server.unreachable(error.__cause__ or error))
        except psycopg.Error as error:
            self._fail(works, self._unwritable(error))
        except ResponderBotError as error:
            self._fail(works, error)
        else:
            for item in works:
                if isinstance(item.error, psycopg.errors.ProgramLimitExceeded):
                    item.error = ResponderBotError("too_large", _TOO_LONG)
                elif isinstance(item.error, psycopg.Error) and is_unavailable(item.error):
                    item.error = self._unwritable(item.error)

    def _commit(self, works: list[Work]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
            self._timeline = _timeline(self._connection)
        connection = self._connection
        try:
            transaction_id = self._begin(connection)
            changed = _all_at_once(works, PostgresqlTransaction(connection))
            if changed is None:
                connection.rollback()
                transaction_id = self._begin(connection)
                changed = _one_by_one(works, PostgresqlTransaction(connection))
        except psycopg.Error as error:
            self._give_up(connection, error)
            raise
        if not changed:
            self._end(connection, "COMMIT")
            return
        try:
            run_plainly(connection, f"{self._listener.notification()}; COMMIT")
        except psycopg.Error as error:
            if not _is_lost(connection):
                self._give_up(connection, error)
                raise
            if not self._took_place(transaction_id, error):
                raise CommitLostError from error
        self.commits += 1
        self._listener.expect()

    def _begin(self, connection: Connection) -> str:
        """Begin a transaction once all before it, on any host, have committed; returns its number."""
        number = "SELECT CAST(pg_current_xact_id() AS TEXT) AS number"
        begin = self._server.begin(_SEES_COMMITS)
        row = run_plainly(connection, f"{begin}; {lock(self._server.schema)}; {number}").fetchone()
        return str(row["number"]) if row else ""

    def _end(self, connection: Connection, how: str) -> None:
        """End a transaction that has written nothing."""
        try:
            run_plainly(connection, how)
        except psycopg.Error:
            connection.close()

    def _give_up(self, connection: Connection, error: psycopg.Error) -> None:
        """Roll back; raises CommitLostError if the connection is lost, and with it the transaction."""
        if _is_lost(connection):
            connection.close()
            raise CommitLostError from error
        with suppress(psycopg.Error):
            connection.rollback()
            return
        connection.close()

    def _took_place(self, transaction_id: str, cause: psycopg.Error) -> bool:
        """Whether a commit without an answer took place. Raises ResponderBotError("unavailable") if nobody can tell.

        A standby that was promoted may have given its number to another transaction.
        """
        until, timeline = time.monotonic() + DOUBT_S, self._timeline
        while True:
            with suppress(ResponderBotError, psycopg.Error):
                self._connection = self._server.connect()
                self._timeline = _timeline(self._connection)
                if self._timeline != timeline:
                    break
                status = self._connection.execute(
                    "SELECT pg_xact_status(CAST(%(number)s AS xid8)) AS status", {"number": transaction_id}
                ).fetchone()
                if status is not None and status["status"] in ("committed", "aborted"):
                    return bool(status["status"] == "committed")
                self._connection.close()
            if time.monotonic() > until:
                break
            time.sleep(DOUBT_PAUSE_S)
        raise self._server.unreachable(cause)

    def _unwritable(self, error: psycopg.Error) -> ResponderBotError:
        after = "restore a backup" if is_damage(error) else "try again in a moment, or look at PostgreSQL"
        if isinstance(error, psycopg.errors.DiskFull):
            after = "make room on its disk"
        sentence = f"The store can't be written ({describe(error)}); {after}."
        return self._server.failures.unavailable(sentence, error, is_damage=is_damage(error))

    @staticmethod
    def _fail(works: list[Work], error: ResponderBotError) -> None:
        for item in works:
            item.error = error


def _timeline(connection: Connection) -> str:
    """The timeline of the server, which is another one on a copy that has taken its place; `""` if it isn't told."""
    with suppress(psycopg.errors.DatabaseError):
        row = connection.execute(_TIMELINE).fetchone()
        return str(row["timeline"]) if row else ""
    return ""


def _is_lost(connection: Connection) -> bool:
    return bool(connection.closed or connection.broken)


def _all_at_once(works: list[Work], transaction: PostgresqlTransaction) -> int | None:
    """Run each without a savepoint, the usual case, and return how many rows they have written.

    None if one has raised after it had written something, or if a statement has failed: PostgreSQL then refuses all
    others.
    """
    for item in works:
        before = transaction.changed
        item.attempt(transaction)
        if transaction.is_aborted() or (item.error is not None and transaction.changed != before):
            return None
    return transaction.changed


def _one_by_one(works: list[Work], transaction: PostgresqlTransaction) -> int:
    """Run each in a savepoint of its own, rolled back if it raises; returns how many rows they have written."""
    for item in works:
        before = transaction.changed
        try:
            with transaction.savepoint("work"):
                item.attempt(transaction)
                if item.error is not None:
                    raise _UndoError
        except _UndoError:
            transaction.changed = before
        except psycopg.Error as error:  # work that had caught the error of a statement
            if is_in_doubt(error):
                raise
            item.error, transaction.changed = error, before
    return transaction.changed


class _UndoError(Exception):
    """Roll back a work alone."""


# --- commits of other hosts: by LISTEN, and by polling where a pooler breaks that -------------------------------------


POLL_S = 0.25  # without LISTEN
CHECK_S = 2.0  # with it, to notice a lost connection
LATE_S = 2.0  # a notification of this process's own commit that takes longer shows that LISTEN does not work


class Listener:
    """A thread that calls `on_foreign_commit` soon after another process has committed."""

    def __init__(self, server: Server, channel: str, name: str, on_foreign_commit: Callable[[], None]) -> None:
        self._server = server
        self._channel = channel
        self._name = name
        self._on_foreign_commit = on_foreign_commit
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._sent = self._received = 0  # numbers of this process's own notifications
        self._behind_since: float | None = None
        self._closed = threading.Event()
        self._seen = ""
        self.is_listening = not server.is_pooled
        """Whether notifications arrive."""
        self._thread = threading.Thread(target=self._run, name="store-listener", daemon=True)
        self._thread.start()

    def notification(self) -> str:
        """The statement by which a transaction tells all others that it has committed."""
        return f"""NOTIFY "{self._channel}", '{self._name} {self._sent + 1}'"""

    def expect(self) -> None:
        """Call after a commit with that statement: its own notification shows that LISTEN works."""
        self._sent += 1

    def close(self) -> None:
        """Stop; blocks until it has."""
        self._closed.set()
        with self._lock:
            if self._connection is not None:
                _cut(self._connection)
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                connection = self._server.connect()
                with self._lock:
                    self._connection = connection
                try:
                    self._follow(connection)
                finally:
                    with self._lock:
                        self._connection = None
                    connection.close()
            except (psycopg.Error, ResponderBotError, OSError):
                self._closed.wait(1.0)

    def _follow(self, connection: Connection) -> None:
        if not self._server.is_pooled:
            connection.execute(f'LISTEN "{self._channel}"', prepare=False)
            self._behind_since = None
        self._on_foreign_commit()  # other processes may have committed meanwhile
        while not self._closed.is_set():
            if self._server.is_pooled:
                self._closed.wait(POLL_S)
            else:
                self._listen(connection)
            if not self.is_listening:
                self._poll(connection)
            elif not self._closed.is_set():
                connection.execute("SELECT 1")

    def _listen(self, connection: Connection) -> None:
        for note in connection.notifies(timeout=CHECK_S if self.is_listening else POLL_S, stop_after=1):
            name, _, number = note.payload.partition(" ")
            if name == self._name:
                self._received, self._behind_since, self.is_listening = int(number), None, True
            else:
                self._on_foreign_commit()
        if self._sent <= self._received:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.monotonic()
        elif time.monotonic() - self._behind_since > LATE_S:
            self.is_listening = False

    def _poll(self, connection: Connection) -> None:
        """Any transaction of this server changes what is compared, so waking is too frequent, and never too rare."""
        row = connection.execute("SELECT CAST(pg_current_snapshot() AS TEXT) AS now", prepare=False).fetchone()
        now = row["now"] if row else ""
        if now != self._seen:
            self._seen = now
            self._on_foreign_commit()


def _cut(connection: Connection) -> None:
    """End what a connection waits for in another thread, which then raises there."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=connection.fileno()) as wrapped:
        try:
            wrapped.shutdown(socket.SHUT_RDWR)
        finally:
            wrapped.detach()
