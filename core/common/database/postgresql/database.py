"""PostgreSQL: one writer thread with group commit, and threads with a connection each for readers.

See core/docs/storage.md#postgresql.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from core.common.database.base import Dialect, Params, Reads, Row, Search, Transaction, search_too_slow
from core.common.database.group_commit import Writer
from core.common.database.postgresql.server import Server, migrate, size_bytes
from core.common.database.postgresql.statements import (
    Connection,
    PostgresqlSearch,
    describe,
    is_damage,
    is_unavailable,
    run_plainly,
)
from core.common.database.postgresql.writer import GroupWriter, Listener
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
