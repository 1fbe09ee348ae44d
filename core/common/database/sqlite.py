"""The connection to SQLite: one writer that groups commits, readers of their own.

Three methods are all that the rest of the store uses (`rows`, `run`, `transaction`), so that a second database could
stand behind them. Why so: a connection shared between threads can lose an acknowledged write, and a deferred BEGIN
fails at once when it must turn into a write (`architecture.md 2`).
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlite_utils

from core.common.database.files import OpenFiles
from core.common.errors import ResponderBotError

T = TypeVar("T")
Params = Mapping[str, Any]
Row = sqlite3.Row

# With reports of 2.3 KB an action takes 3.5 KB, with smaller pages 4.4. A lone commit takes 0.55 ms instead of 0.45:
# nobody sees that, but everybody keeps the file for years.
PAGE_BYTES = 16_384
BUSY_TIMEOUT_S = 10.0  # another process's commit is waited for this long
WAL_PAGES = 1_000  # the write-ahead log is copied into the database once it is this long (16 MB)
MMAP_BYTES = 0x7FFF0000  # the most that SQLite maps: halves the time of a short read, and is only reserved until read
LOOK_EVERY_S = 0.002  # how often a read or the start of a write looks whether the files are still there
SEARCHES_AT_ONCE = 4
SEARCH_LIMIT_S = 10.0  # a client's question of an index takes milliseconds; of a million documents, seconds
SEARCH_LOOK_STEPS = 1_000_000  # of SQLite's machine, between two looks at whether to go on: some 10 ms

DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FILE_TROUBLE = (
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM),
    *DAMAGE,
)

StoreTrouble = sqlite3.OperationalError
"""What a transaction raises where the whole commit is in doubt, such as a full disk."""

STORE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter where SQLite's own message holds damaged text

_STOP = object()


class Reads(Protocol):
    """What can be read from: the database outside, a transaction inside."""

    def rows(self, sql: str, params: Params | None = None) -> list[Row]: ...

    def row(self, sql: str, params: Params | None = None) -> Row | None: ...


class Transaction:
    """What the writer hands to a piece of work: reads and writes that become visible together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        return self._connection.execute(sql, params or {}).fetchall()

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        row: Row | None = self._connection.execute(sql, params or {}).fetchone()
        return row

    def run(self, sql: str, params: Params | None = None) -> int:
        """Run a statement; how many rows it touched."""
        return self._connection.execute(sql, params or {}).rowcount

    def run_all(self, sql: str, params: Iterable[Params]) -> None:
        """Run a statement once for each of these."""
        self._connection.executemany(sql, params)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back what is written within when it raises; the rest of the transaction stays."""
        self._connection.execute("SAVEPOINT inner")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO inner")
            raise
        finally:
            self._connection.execute("RELEASE inner")


class Search:
    """What a search reads from: rows one by one, so that it can stop where it has enough.

    `stop` may come from another thread at any time, before `begin` and after `end` too.
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
        for row in cursor:  # noqa: UP028 - that would close it, perhaps too late, when the generator is thrown away
            yield row
        self._open.remove(cursor)

    def begin(self, connection: sqlite3.Connection) -> None:
        # An interrupt between two statements is lost; this sees it soon after. Asking oftener would cost more than it
        # gives, as each time the thread has to wait for the interpreter's lock.
        connection.set_progress_handler(lambda: self._is_stopped, SEARCH_LOOK_STEPS)
        with self._lock:
            self._connection = connection

    def limit(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Stop it after so many seconds; called on the loop that waits for it."""
        if not self._is_stopped:
            self._timer = loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def end(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            for cursor in self._open:  # an open statement would show the next search what was so before
                cursor.close()
            connection.set_progress_handler(None, 0)


class _Work:
    """One piece of work on its way through the writer."""

    def __init__(self, work: Callable[[Transaction], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.done.cancelled():
            return
        if self.error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.error)


class Database:
    """A SQLite file; `migrate` brings its schema up to date.

    Raises ResponderBotError("unavailable") for a file that is no database, or that there is no room for.
    """

    def __init__(
        self,
        path: Path,
        migrate: Callable[[sqlite_utils.Database], None],
        *,
        search_limit_s: float = SEARCH_LIMIT_S,
    ) -> None:
        self.path = path
        self._search_limit_s = search_limit_s
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Work]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False
        self._lost = ""  # what is wrong with the files, as of `_looked_at`
        self._looked_at = float("-inf")
        self._is_rescued = False
        self._failure: tuple[float, str] | None = None
        self._damage = ""
        with ExitStack() as opened:
            self._writer_connection = opened.enter_context(closing(_opened(path, migrate)))
            self._reader = opened.enter_context(closing(_connect(path, read_only=True)))
            self._background_reader = opened.enter_context(closing(_connect(path, read_only=True)))
            self._files = OpenFiles(path, int(self._reader.execute("PRAGMA page_size").fetchone()[0]))
            self._background = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
            self._searchers = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="store-search")
            self._searches: set[Search] = set()
            self._idle_readers: list[sqlite3.Connection] = []
            self._writer = threading.Thread(target=self._write, name="store-writer", daemon=True)
            self._writer.start()
            opened.pop_all()

    async def close(self) -> None:
        """Commit what was handed in, then let go of the file; what comes later is "unavailable"."""
        self._is_closed = True
        self._hand_in(asyncio.get_running_loop())
        self._queue.put([_STOP])
        await asyncio.to_thread(self._writer.join)
        for search in list(self._searches):
            search.stop()
        self._searchers.shutdown()
        self._background.shutdown()
        for connection in (self._reader, self._background_reader, self._writer_connection, *self._idle_readers):
            connection.close()
        self._files.close()

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        """A short read of what is committed, at once on the calling loop. Raises ResponderBotError("unavailable")."""
        return self._fetched(self._reader, sql, params)

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row of a short read. Raises as `rows` does."""
        return next(iter(self._fetched(self._reader, sql, params)), None)

    async def search(self, work: Callable[[Search], T]) -> T:
        """Run what reads on behalf of a client in a thread, beside a few others; its time is limited.

        It is stopped when the caller is cancelled. Raises ResponderBotError("bad_request") when its time is over.
        """
        loop, search = asyncio.get_running_loop(), Search()
        self._searches.add(search)
        try:
            return await loop.run_in_executor(self._searchers, self._searched, work, search, loop)
        finally:
            self._searches.discard(search)
            search.stop()

    def _searched(self, work: Callable[[Search], T], search: Search, loop: asyncio.AbstractEventLoop) -> T:
        self._check_files_lately()
        connection = self._idle_readers.pop() if self._idle_readers else self._another_reader()
        try:
            search.begin(connection)
            loop.call_soon_threadsafe(search.limit, loop, self._search_limit_s)
            return work(search)
        except STORE_ERRORS as error:
            if _is_file_trouble(error):
                raise self._unreadable(error) from error
            if _code_of(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            sentence = (
                f"The search took over {self._search_limit_s:g} s and was stopped; ask for less, or more precisely."
            )
            raise ResponderBotError("bad_request", sentence) from error
        finally:
            search.end()
            self._idle_readers.append(connection)

    def _another_reader(self) -> sqlite3.Connection:
        try:
            connection = _connect(self.path, read_only=True)
        except sqlite3.Error as error:  # no file descriptor is left, say
            raise self._unreadable(error) from error
        try:
            self._check_files()  # after it was opened: it is not to be of a file put in the place of ours
        except ResponderBotError:
            connection.close()
            raise
        return connection

    async def fetch_in_background(self, sql: str, params: Params | None = None) -> list[Row]:
        """Run a long read of core's own in a thread; use `search` for what clients ask for. Raises as `rows` does."""

        def read() -> list[Row]:
            return self._fetched(self._background_reader, sql, params)

        return await asyncio.get_running_loop().run_in_executor(self._background, read)

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in the writer; returns what it returns, once that is durable.

        Work of several callers shares one commit. Work that raises is undone alone, and the error comes out here.
        `work` may be run twice, and changes nothing but the store. Raises ResponderBotError("unavailable") when the
        file can't be written.
        """
        if self._is_closed:
            raise ResponderBotError("unavailable", "The store is closed; start again, or ask the one that runs.")
        loop = asyncio.get_running_loop()
        item = _Work(work, loop)
        gathered = self._gathered.setdefault(loop, [])
        gathered.append(item)
        if len(gathered) == 1:
            # Handed in once this turn of the loop is over, and the next, in which its requests become work: the
            # writer wakes at the first one that it sees, and a commit of few works costs as much as one of many.
            loop.call_soon(loop.call_soon, self._hand_in, loop)
        result: T = await item.done
        return result

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the caller's loop after each commit of this process."""
        self._listeners.append(listener)

    def version(self) -> int:
        """Changes when another process has committed (`semantics.md 8`)."""
        return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def damage(self) -> str:
        """What was found to be damaged in the file since it was opened, as a sentence, or ""."""
        return self._damage

    def failure(self, within_s: float) -> str:
        """The last error of a read or a write, as a sentence, if it is not longer ago than this, or ""."""
        if self._failure is None or time.monotonic() - self._failure[0] > within_s:
            return ""
        return self._failure[1]

    def forget_failure(self) -> None:
        """What `failure` tells of is over."""
        self._failure = None

    def _unavailable(self, sentence: str, cause: Exception | None = None) -> ResponderBotError:
        self._failure = (time.monotonic(), sentence)
        if cause is not None and _is_damage(cause):
            self._damage = sentence
        failure = ResponderBotError("unavailable", sentence)
        failure.__cause__ = cause
        return failure

    def _check_files(self) -> None:
        """Raises ResponderBotError("unavailable") where the files are not those that were opened."""
        self._lost = self._files.trouble()
        self._looked_at = time.monotonic()
        if self._lost:
            raise self._unavailable(self._lost)

    def _check_files_lately(self) -> None:
        """As `_check_files`, where that was not done just now."""
        if self._lost or time.monotonic() - self._looked_at > LOOK_EVERY_S:
            self._check_files()

    def _fetched(self, connection: sqlite3.Connection, sql: str, params: Params | None) -> list[Row]:
        """Rows, or "unavailable" for what is wrong with the file; any other error is a bug and stays what it is."""
        self._check_files_lately()
        try:
            return connection.execute(sql, params or {}).fetchall()
        except STORE_ERRORS as error:
            if not _is_file_trouble(error):
                raise
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ResponderBotError:
        sentence = f"The store can't be read ({_reason(error)}); look at its disk, or restore a backup."
        return self._unavailable(sentence, error)

    def _hand_in(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered = self._gathered.pop(loop, None)
        if gathered:
            self._queue.put(gathered)

    def _write(self) -> None:
        while True:
            batch = list(self._queue.get())
            with suppress(queue.Empty):
                while True:
                    batch += self._queue.get_nowait()
            works = [item for item in batch if item is not _STOP]
            if works:
                self._commit(works)
                self._tell(works)
            if len(works) < len(batch):
                return

    def _commit(self, works: list[_Work]) -> None:
        connection = self._writer_connection
        try:
            self._check_files_lately()
            connection.execute("BEGIN IMMEDIATE")
            if not _all_at_once(works, connection):
                connection.execute("ROLLBACK")
                connection.execute("BEGIN IMMEDIATE")
                _one_by_one(works, connection)
            connection.execute("COMMIT")
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
            self._rescue()
        else:
            for item in works:
                if isinstance(item.error, STORE_ERRORS) and _is_damage(item.error):
                    item.error = self._unwritable(item.error)

    def _unwritable(self, error: Exception) -> ResponderBotError:
        after = "restore a backup" if _is_damage(error) else "try again in a moment"
        return self._unavailable(f"The store can't be written ({_reason(error)}); {after}.", error)

    def _rescue(self) -> None:
        """Once, after the files were tampered with: empty the write-ahead log.

        Without its path it is lost with this process, and beside another database SQLite would apply it to that one.
        """
        if not self._is_rescued and self._files.may_checkpoint():
            self._is_rescued = True
            with suppress(*STORE_ERRORS):
                self._writer_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _tell(self, works: list[_Work]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Work]] = {}
        for item in works:
            by_loop.setdefault(item.loop, []).append(item)
        for loop, items in by_loop.items():
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, items)

    def _settle(self, items: list[_Work]) -> None:
        for item in items:
            item.settle()
        for listener in self._listeners:
            listener()


def apply(migrations: sqlite_utils.Migrations, db: sqlite_utils.Database) -> None:
    """Bring the tables up to date; does nothing where they are.

    Raises ResponderBotError("bad_request") where a newer release has changed them in ways that are not known here.
    """
    with closing(sqlite_utils.Database(memory=True)) as empty:
        known = {one.name for one in migrations.pending(empty)}
    if not {one.name for one in migrations.applied(db)} <= known:
        raise ResponderBotError(
            "bad_request", "This database was made by a newer release; run that one, or name another file."
        )
    migrations.apply(db)


def _all_at_once(works: list[_Work], connection: sqlite3.Connection) -> bool:
    """Run each once, as nearly always all can stay; False where one has raised after it had changed something."""
    transaction = Transaction(connection)
    for item in works:
        before = connection.total_changes
        _attempt(item, transaction)
        if item.error is not None and connection.total_changes != before:
            return False
    return True


def _one_by_one(works: list[_Work], connection: sqlite3.Connection) -> None:
    """Run each in a part of its own, which is undone if it raises."""
    transaction = Transaction(connection)
    for item in works:
        connection.execute("SAVEPOINT one")
        _attempt(item, transaction)
        if item.error is not None:
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")


def _attempt(item: _Work, transaction: Transaction) -> None:
    item.result = item.error = None
    try:
        item.result = item.work(transaction)
    except Exception as error:
        if isinstance(error, StoreTrouble) and not _is_damage(error):
            raise  # disk full, file gone: the whole commit is in doubt
        item.error = error


def _code_of(error: Exception) -> int | None:
    """SQLite's code, of which the low byte says what it is; None where Python itself refuses what was read."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_file_trouble(error: Exception) -> bool:
    return _is_damage(error) or _code_of(error) in FILE_TROUBLE


def _is_damage(error: Exception) -> bool:
    """Whether the content of the file is not what was written; a text that is no UTF-8 is not."""
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, UnicodeDecodeError)  # in the name of a table, say
    code = _code_of(error)
    return code in DAMAGE or (code is None and "decode" in str(error))


def _reason(error: Exception) -> str:
    """What SQLite says; Python would show the text itself, which is nobody's business who sees an error."""
    return "a text in it is no UTF-8" if _is_damage(error) and _code_of(error) is None else str(error)


def _opened(path: Path, migrate: Callable[[sqlite_utils.Database], None]) -> sqlite3.Connection:
    connection = None
    try:
        connection = _connect(path)
        _prepare(connection, migrate)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, STORE_ERRORS):
            raise
        sentence = (
            f"The database {path} can't be opened ({_reason(error)}); mend that, or name another file in the settings."
        )
        raise ResponderBotError("unavailable", sentence) from error
    return connection


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare(connection: sqlite3.Connection, migrate: Callable[[sqlite_utils.Database], None]) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    # What a long read has kept from being copied makes the log longer; afterwards it is cut again.
    connection.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * PAGE_BYTES}")
    # One process migrates, a second one waits here and then finds nothing to do.
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrate(sqlite_utils.Database(connection))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
