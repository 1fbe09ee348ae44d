"""Connections to a SQLite file, its migrations, and what can be wrong with it."""

import errno
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import sqlite_utils

from core.common.database.schema import Migration, Opening
from core.common.errors import ResponderBotError
from core.common.private_files import access_problem

# With reports of 2.3 KB an action takes 3.5 KB on disk, with smaller pages 4.4 KB. A single commit takes 0.55 ms
# instead of 0.45: a good trade, since files are kept for years.
PAGE_BYTES = 16_384
BUSY_TIMEOUT_S = 10.0  # how long to wait for another process's commit
WAL_PAGES = 1_000  # a checkpoint is made once the write-ahead log is this long (16 MB)
WAL_BYTES = WAL_PAGES * PAGE_BYTES
_TABLE = re.compile(r'CREATE TABLE "?(\w+)')


def apply(
    store: str, migrations: Sequence[Migration], db: sqlite_utils.Database, opening: Opening, *, beside: str = ""
) -> None:
    """Apply the migrations that are pending. `beside`: the store that has this file, if it is another one.

    Raises ResponderBotError: "bad_request" if a newer release has applied others, or for a file of other tables,
    also those of a commit before the first release; "unavailable" without room.
    """
    path, tables = Path(db.execute("PRAGMA database_list").fetchone()[2]), db.table_names()
    known = sqlite_utils.Migrations(store)
    for number, migration in enumerate(migrations, 1):
        known(name=str(number))(_applying(migration, opening))
    applied = {migration.name for migration in known.applied(db)}
    if not applied <= {str(number) for number in range(1, len(migrations) + 1)}:
        sentence = f"The database {path} was made by a newer release; run that one, or name another file."
        raise ResponderBotError("bad_request", sentence)
    if tables and not applied and not sqlite_utils.Migrations(beside or store).applied(db):
        sentence = f"{path} has other tables than {beside or store}'s, such as {tables[0]}; name another file."
        raise ResponderBotError("bad_request", sentence)
    if len(applied) == 1 and not set(_TABLE.findall("".join(migrations[0].sqlite))) <= set(tables):
        sentence = f"{path} is from before 0.2.0 and can't be upgraded; move it away, or name another file."
        raise ResponderBotError("bad_request", sentence)
    pending = migrations[len(applied) :]
    if not pending:
        return
    if applied:
        size = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
        steps = sum(len(migration.sqlite) for migration in pending)
        opening.begin(path.name, pending, steps, size, shutil.disk_usage(path.parent).free)
    opening.stop = db.conn.interrupt
    try:
        known.apply(db)
    finally:
        opening.stop = lambda: None


def has_table(path: Path, name: str) -> bool:
    """Whether a file has this table, or can't be read: whoever opens it for work says why."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [name]).fetchone())
    except sqlite3.Error:
        return True


def _applying(migration: Migration, opening: Opening) -> Callable[[sqlite_utils.Database], None]:
    def apply_to(db: sqlite_utils.Database) -> None:
        for statement in opening.statements(migration, migration.sqlite):
            db.execute(statement)

    return apply_to


def open_writer(path: Path, migrate: Callable[[sqlite_utils.Database], None]) -> sqlite3.Connection:
    """Open the file for writing and bring its schema up to date. Raises ResponderBotError("unavailable")."""
    connection = None
    try:
        connection = connect(path)
        _prepare(connection, migrate)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, STORE_ERRORS):
            raise
        if code_of(error) == sqlite3.SQLITE_BUSY:
            sentence = f"Another process of responder-bot fills or migrates {path}; start again when it has ended."
            raise ResponderBotError("unavailable", sentence) from error
        sentence = (
            access_problem(path) or f"The database {path} can't be opened ({describe(error)}); {_advice(path, error)}."
        )
        raise ResponderBotError("unavailable", sentence) from error
    return connection


def _advice(path: Path, error: Exception) -> str:
    if is_damage(error):
        return "restore a backup, or name another file in the settings"
    if out_of_space(path):
        return "make room on its disk"
    return "correct that, or name another file in the settings"


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare(connection: sqlite3.Connection, migrate: Callable[[sqlite_utils.Database], None]) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    if not connection.execute("PRAGMA page_count").fetchone()[0]:  # before WAL writes the header
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten, such as secret inputs
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    # A long read keeps the log from being checkpointed, so it grows; afterwards it is truncated again.
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    # One process migrates; a second one waits here, and then finds nothing to do.
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrate(sqlite_utils.Database(connection))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


# --- errors: which mean that the file is damaged or can't be used now; all others are bugs ----------------------------


DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FILE_ERRORS = (
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM),
    *DAMAGE,
)

STORE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter when SQLite's message quotes damaged text


def code_of(error: Exception) -> int | None:
    """SQLite's primary result code; None if Python failed to decode what was read."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_file_error(error: Exception) -> bool:
    return is_damage(error) or code_of(error) in FILE_ERRORS


def is_damage(error: Exception) -> bool:
    """Whether the content of the file is damaged, such as text that is not valid UTF-8."""
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, UnicodeDecodeError)  # such as in a table's name
    code = code_of(error)
    return code in DAMAGE or (code is None and "decode" in str(error))


def describe(error: Exception) -> str:
    """SQLite's message. Python's would quote the damaged text, which may be confidential."""
    return "a text in it is not valid UTF-8" if is_damage(error) and code_of(error) is None else str(error)


# --- whether SQLite's open files were removed, replaced or cut, after which what it commits is lost -------------------


_HEADER_PAGES = 28  # where the header of a database holds its number of pages
FREE_BYTES = 2 * 1_048_576  # room for the largest request, since the probe's own write is small


class OpenFiles:
    """The database, its write-ahead log and its shared memory. Create it after SQLite has opened them."""

    def __init__(self, path: Path, page_bytes: int) -> None:
        self._path = str(path)
        real = os.path.realpath(path)  # SQLite resolves symbolic links before it names the other two
        self._identities = {name: _identity(name) for name in (self._path, f"{real}-wal", f"{real}-shm")}
        self._page_bytes = page_bytes
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Call after SQLite has closed the database: closing any descriptor of a file drops the process's locks."""
        os.close(self._descriptor)

    def problem(self) -> str:
        """What is wrong and what to do, or "". Takes some microseconds: it is called after each commit."""
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                return _sentence(path, "was removed or replaced")
        return _sentence(self._path, "was cut short") if self._is_cut() else ""

    def _is_cut(self) -> bool:
        """Whether the database is shorter than its header says. A VACUUM by another process is fine."""
        size = os.fstat(self._descriptor).st_size
        if size < self._size and (not size or self._pages_in_header() * self._page_bytes > size):
            return True
        self._size = size
        return False

    def _pages_in_header(self) -> int:
        return int.from_bytes(os.pread(self._descriptor, 4, _HEADER_PAGES), "big")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sentence(path: str, what: str) -> str:
    return (
        f"{Path(path).name} {what} while it was in use, so nothing is written to it any more;"
        " stop this process, put the file back or restore a backup, and start again."
    )


def out_of_space(path: Path) -> str:
    """Why FREE_BYTES can't be allocated beside this file, or "". Uses an unnamed file."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, FREE_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.strerror)
    return ""  # other errors: the file system can't allocate in advance
