"""SQLite: one writer thread with group commit, and connections of their own for readers (core/docs/storage.md).

There is one writer because a connection shared between threads can lose an acknowledged write, and because a deferred
BEGIN fails at once when it has to be upgraded to a write.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlite_utils
import structlog

from core.common.database.base import AtEnd, Dialect, Note, Params, Reads, Row, Search, Transaction, search_too_slow
from core.common.database.group_commit import Work, Writer
from core.common.database.probe import Failures
from core.common.database.sqlite.connection import (
    BUSY_TIMEOUT_S,
    STORE_ERRORS,
    WAL_BYTES,
    OpenFiles,
    apply,
    code_of,
    connect,
    describe,
    has_table,
    is_damage,
    is_file_error,
    open_writer,
    out_of_space,
)
from core.common.errors import ResponderBotError

__all__ = ["SqliteDatabase", "apply", "has_table"]

T = TypeVar("T")

log = structlog.get_logger("core.store")

FILE_CHECK_EVERY_S = 0.02  # how often reads and beginning writes check that the files are still there
RESTART_WAIT_MS = 250  # timeout of the writer for readers, once the write-ahead log is too long
LOG_STEP_BYTES = WAL_BYTES // 4
LOG_BOUND_BYTES = 64_000_000  # writes fail once a log that can't be checkpointed is this long
CHECKPOINT_AGAIN_S = 1.0
MAX_SEARCHES = 4
MAX_SNAPSHOTS = 2
SEARCH_LIMIT_S = 10.0  # a search by index takes milliseconds, one over a million documents takes seconds


class _Reads(Reads):
    """Queries on one connection."""

    def __init__(self, fetch: Callable[[str, Params | None], list[Row]]) -> None:
        self._fetch = fetch

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return self._fetch(sql, params)

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        return next(iter(self._fetch(sql, params)), None)


class SqliteDatabase:
    """A `Database` in a SQLite file; `migrate` brings its schema up to date.

    Raises ResponderBotError("unavailable") for a file that isn't a database, or when the disk is full.
    """

    dialect: Dialect = "sqlite"

    def __init__(
        self,
        path: Path,
        migrate: Callable[[sqlite_utils.Database], None],
        *,
        search_limit_s: float = SEARCH_LIMIT_S,
    ) -> None:
        self.path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._log_limit = WAL_BYTES + LOG_STEP_BYTES  # `_tend_log` looks at a log that is longer
        self._stuck = ""  # why the log can't be checkpointed
        self._tried_at = float("-inf")
        self._search_limit_s = search_limit_s
        self.commits = 0
        self._lost = ""  # what is wrong with the files, as of `_files_checked_at`
        self._files_checked_at = float("-inf")
        self._failures = Failures()
        with ExitStack() as opened:
            self._writer_connection = opened.enter_context(closing(open_writer(path, migrate)))
            self._reader = opened.enter_context(closing(connect(path, read_only=True)))
            self._reads = _Reads(partial(self._fetch, self._reader))
            self._background_reader = opened.enter_context(closing(connect(path, read_only=True)))
            self._files = OpenFiles(path, int(self._reader.execute("PRAGMA page_size").fetchone()[0]))
            self._background = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
            self._searchers = ThreadPoolExecutor(MAX_SEARCHES, thread_name_prefix="store-search")
            self._snapshots = ThreadPoolExecutor(MAX_SNAPSHOTS, thread_name_prefix="store-snapshot")
            self._searches: set[SqliteSearch] = set()
            self._idle_readers: list[sqlite3.Connection] = []
            self._writer = Writer(self._commit, self._tend_log)
            opened.pop_all()

    async def close(self) -> None:
        await self._writer.close()
        for search in list(self._searches):
            search.stop()
        self._searchers.shutdown()
        self._snapshots.shutdown()
        self._background.shutdown()
        for connection in (self._reader, self._background_reader, self._writer_connection, *self._idle_readers):
            connection.close()
        self._files.close()

    async def read(self, work: Callable[[Reads], T]) -> T:
        """Runs at once, on the calling thread: it takes less time than to hand it over."""
        return work(self._reads)

    async def search(self, work: Callable[[Search], T]) -> T:
        """Runs in a thread, at most MAX_SEARCHES at once."""
        loop, search = asyncio.get_running_loop(), SqliteSearch()
        self._searches.add(search)
        try:
            return await loop.run_in_executor(self._searchers, self._run_search, work, search, loop)
        finally:
            self._searches.discard(search)
            search.stop()

    def _run_search(self, work: Callable[[Search], T], search: "SqliteSearch", loop: asyncio.AbstractEventLoop) -> T:
        with self._own_reader() as connection:
            try:
                search.begin(connection)
                loop.call_soon_threadsafe(search.limit, loop, self._search_limit_s)
                return work(search)
            except STORE_ERRORS as error:
                if code_of(error) != sqlite3.SQLITE_INTERRUPT:
                    raise
                raise search_too_slow(self._search_limit_s) from error
            finally:
                search.end()

    async def snapshot(self, work: Callable[[Reads], T]) -> T:
        """Runs in a thread, apart from searches."""
        return await asyncio.get_running_loop().run_in_executor(self._snapshots, self._run_snapshot, work)

    def _run_snapshot(self, work: Callable[[Reads], T]) -> T:
        with self._own_reader() as connection:
            try:
                connection.execute("BEGIN")
                return work(SqliteTransaction(connection))  # the connection refuses writes
            finally:
                if connection.in_transaction:
                    with suppress(*STORE_ERRORS):
                        connection.execute("ROLLBACK")

    @contextmanager
    def _own_reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for this thread alone, until the block ends. It fails as `_fetch` does."""
        self._check_files_if_due()
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            connection = self._open_reader()
        try:
            yield connection
        except STORE_ERRORS as error:
            if not is_file_error(error):
                raise
            raise self._unreadable(error) from error
        finally:
            self._idle_readers.append(connection)

    def _open_reader(self) -> sqlite3.Connection:
        try:
            connection = connect(self.path, read_only=True)
        except sqlite3.Error as error:  # such as when no file descriptor is left
            raise self._unreadable(error) from error
        try:
            self._check_files()  # after opening: it must not be of a file that replaced ours
        except ResponderBotError:
            connection.close()
            raise
        return connection

    async def fetch_in_background(self, sql: str, params: Params | None = None) -> list[Row]:
        def read() -> list[Row]:
            return self._fetch(self._background_reader, sql, params)

        return await asyncio.get_running_loop().run_in_executor(self._background, read)

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Runs in the writer thread."""
        return await self._writer.run(work)

    def on_commit(self, listener: Callable[[], None]) -> None:
        self._writer.on_commit(listener)

    def version(self) -> int:
        return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    async def overwrite_deleted(self) -> None:
        """Empties the write-ahead log: in the file `secure_delete` has overwritten it."""

        def truncate() -> bool:
            with closing(connect(self.path)) as connection:
                return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

        if not await asyncio.to_thread(truncate):
            sentence = f"Somebody reads {self.path} all the time, so its log still has what was deleted; repeat it."
            raise ResponderBotError("conflict", sentence)

    async def size_bytes(self) -> int:
        """The size of the file, without its write-ahead log."""
        return self._reads.number("SELECT page_count * page_size AS size FROM pragma_page_count, pragma_page_size")

    async def out_of_space(self) -> str:
        return await asyncio.to_thread(out_of_space, self.path)

    def remark(self) -> str:
        return ""

    def damage(self) -> str:
        return self._failures.damage

    def failure(self, within_s: float) -> str:
        if self._stuck:
            return f"{self._stuck}, so its write-ahead log grows with each change; look at its disk."
        return self._failures.last(within_s)

    def forget_failure(self) -> None:
        self._failures.forget()

    def _unavailable(self, sentence: str, cause: Exception | None = None) -> ResponderBotError:
        return self._failures.unavailable(sentence, cause, is_damage=cause is not None and is_damage(cause))

    def _check_files(self) -> None:
        """Raise ResponderBotError("unavailable") if the files are not those that were opened."""
        self._lost = self._files.problem()
        self._files_checked_at = time.monotonic()
        if self._lost:
            raise self._unavailable(self._lost)

    def _check_files_if_due(self) -> None:
        """`_check_files`, at most once in FILE_CHECK_EVERY_S while the files are fine."""
        if self._lost or time.monotonic() - self._files_checked_at > FILE_CHECK_EVERY_S:
            self._check_files()

    def _fetch(self, connection: sqlite3.Connection, sql: str, params: Params | None) -> list[Row]:
        """Raise "unavailable" for what is wrong with the file; any other error is a bug and passes through."""
        self._check_files_if_due()
        try:
            return connection.execute(sql, params or {}).fetchall()
        except STORE_ERRORS as error:
            if not is_file_error(error):
                raise
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ResponderBotError:
        sentence = f"The store can't be read ({describe(error)}); look at its disk, or restore a backup."
        return self._unavailable(sentence, error)

    def _commit(self, works: list[Work]) -> None:
        connection = self._writer_connection
        try:
            self._check_files_if_due()
            self._check_log()
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            if not _all_at_once(works, connection):
                connection.execute("ROLLBACK")
                connection.execute("BEGIN IMMEDIATE")
                _one_by_one(works, connection)
            connection.execute("COMMIT")
            self.commits += connection.total_changes != before
            self._check_files()  # before anything is acknowledged
        except STORE_ERRORS as error:
            if connection.in_transaction:
                with suppress(*STORE_ERRORS):
                    connection.execute("ROLLBACK")
            for item in works:
                item.error = self._unwritable(error)
        except ResponderBotError as error:
            for item in works:
                item.error = error
        else:
            for item in works:
                if isinstance(item.error, STORE_ERRORS) and is_damage(item.error):
                    item.error = self._unwritable(item.error)

    def _unwritable(self, error: Exception) -> ResponderBotError:
        after = "restore a backup" if is_damage(error) else "try again in a moment"
        if code_of(error) == sqlite3.SQLITE_FULL:
            after = "make room on its disk"
        return self._unavailable(f"The store can't be written ({describe(error)}); {after}.", error)

    def _tend_log(self) -> None:
        """Checkpoint the write-ahead log where SQLite's own checkpoints don't suffice.

        They hide their errors, so this tries one when the log is longer than they should leave it. And they can't begin
        the log again while somebody reads, and reads may overlap without a pause: once it is twice as long as it should
        be, the writer waits a moment for those that have begun; if one takes longer, it is tried again when the log has
        grown as much again.
        """
        try:
            size = self._log.stat().st_size
        except OSError:  # the next commit tells what is wrong
            return
        is_again = self._stuck and time.monotonic() - self._tried_at > CHECKPOINT_AGAIN_S
        if self._lost or (size <= self._log_limit and not is_again):
            return
        self._tried_at = time.monotonic()
        is_long = size > 2 * WAL_BYTES
        try:
            self._writer_connection.execute(f"PRAGMA busy_timeout = {RESTART_WAIT_MS}")
            try:
                how = "RESTART" if is_long else "PASSIVE"
                is_busy = self._writer_connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[0]
            finally:
                self._writer_connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        except STORE_ERRORS as error:
            self._log_limit = size + LOG_STEP_BYTES
            self._set_stuck(f"{self.path.name} can't be written ({describe(error)})")
            return
        self._set_stuck("")
        self._log_limit = size + WAL_BYTES if is_long and is_busy else min(size + LOG_STEP_BYTES, 2 * WAL_BYTES)

    def _set_stuck(self, reason: str) -> None:
        if bool(reason) != bool(self._stuck):
            write, event = (log.error, "checkpoint_failed") if reason else (log.info, "checkpoint_succeeded")
            write(event, **({"reason": reason} if reason else {}))
        self._stuck = reason

    def _check_log(self) -> None:
        """Raise ResponderBotError("unavailable") if the log is too long and can't be written to the database."""
        if not self._stuck or self._log.stat().st_size < LOG_BOUND_BYTES:
            return
        self._tend_log()
        if self._stuck:
            raise self._unavailable(
                f"{self._stuck}, and its log has over {LOG_BOUND_BYTES // 1_000_000} MB, so nothing more is stored;"
                " look at its disk."
            )


def _all_at_once(works: list[Work], connection: sqlite3.Connection) -> bool:
    """Run each without a savepoint, the usual case; False if one has raised after it had written something."""
    transaction = SqliteTransaction(connection)
    for item in works:
        before = connection.total_changes
        _attempt(item, transaction)
        if item.error is not None and connection.total_changes != before:
            return False
    return True


def _one_by_one(works: list[Work], connection: sqlite3.Connection) -> None:
    """Run each in a savepoint of its own, rolled back if it raises."""
    transaction = SqliteTransaction(connection)
    for item in works:
        connection.execute("SAVEPOINT item")
        _attempt(item, transaction)
        if item.error is not None:
            connection.execute("ROLLBACK TO item")
        connection.execute("RELEASE item")


def _attempt(item: Work, transaction: "SqliteTransaction") -> None:
    try:
        item.attempt(transaction)
    except STORE_ERRORS as error:
        if not is_damage(error):
            raise
        item.error = error


# --- transactions -----------------------------------------------------------------------------------------------------


class SqliteTransaction(Transaction):
    """The statements of a transaction that is open on this connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.notes: list[Note] = []
        self.at_end: AtEnd = {}

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return self._connection.execute(sql, params or {}).fetchall()

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        row: Row | None = self._connection.execute(sql, params or {}).fetchone()
        return row

    def run(self, sql: str, params: Params | None = None) -> int:
        return self._connection.execute(sql, params or {}).rowcount

    def run_all(self, sql: str, params: Iterable[Params]) -> int:
        return max(self._connection.executemany(sql, params).rowcount, 0)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT inner")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO inner")
            raise
        finally:
            self._connection.execute("RELEASE inner")

    def is_in_doubt(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError)


# --- searches ---------------------------------------------------------------------------------------------------------


SEARCH_CHECK_STEPS = 1_000_000  # virtual machine instructions between checks for a stop, some 10 ms


class SqliteSearch:
    """A search on a connection that is lent to it.

    `stop` may be called from any thread at any time, also before `begin` and after `end`.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._open: set[sqlite3.Cursor] = set()

    def rows(self, sql: str, params: Params | None = None) -> Iterator[Row]:
        assert self._connection is not None  # noqa: S101 - only between begin and end
        if self._is_stopped:
            raise ResponderBotError("bad_request", "The search was stopped.")
        cursor = self._connection.execute(sql, params or {})
        self._open.add(cursor)
        for row in cursor:  # noqa: UP028 - `yield from` would close the cursor whenever the generator is collected
            yield row
        self._open.remove(cursor)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Search on this connection from here on; raises nothing."""
        # An interrupt between two statements is lost; the handler sees it soon after. It is not called more often since
        # the thread has to acquire the GIL each time.
        connection.set_progress_handler(lambda: self._is_stopped, SEARCH_CHECK_STEPS)
        with self._lock:
            self._connection = connection

    def limit(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Stop the search after this time; call it on the loop that waits for the result."""
        if not self._is_stopped:
            self._timer = loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        """Interrupt what runs; further rows are refused."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def end(self) -> None:
        """Close what is open, so that the connection can be used again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            for cursor in self._open:  # an open statement would keep its old snapshot for the next search
                cursor.close()
            connection.set_progress_handler(None, 0)
