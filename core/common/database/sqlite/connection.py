"""Connections to a SQLite file, and its migrations."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import sqlite_utils

from core.common.accounts import access_problem
from core.common.database.schema import Migration, Opening
from core.common.database.sqlite.errors import STORE_ERRORS, code_of, describe, is_damage
from core.common.database.sqlite.files import out_of_space
from core.common.errors import ResponderBotError

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
