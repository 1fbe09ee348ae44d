"""Backup of a SQLite file in use, and restore (core/docs/storage.md#backups).

A row in the table `backup` marks a copy, with its time. The first process that opens the copy as a live database ends
what was open in it without running it, and deletes the mark in the same transaction.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.common.private_files import give_to_owner_of_folder, make_private, narrow_database
from core.store.database import sequences

MARK = "CREATE TABLE IF NOT EXISTS backup (made_at INTEGER NOT NULL)"
IDS_A_MS = 10
LEAST_GAP = 1_000_000
ID_GAP = 1_000_000_000  # more ids than a database allocates between a backup and its loss
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SIDE_FILES = ("-wal", "-shm", "-journal")  # files of SQLite beside the database
_CLICKS = "-inbox"  # what came after the backup is not carried out


# --- files ------------------------------------------------------------------------------------------------------------


def copy(source: Path, target: Path, now: int) -> None:
    """Copy `source` to a new file that only this user can read, marked as a backup made at `now` (ms). Blocks.

    The target appears only when the copy is complete; a failed copy leaves no files. Raises ResponderBotError:
    "exists" if the target exists, "not_found" if the source doesn't, "unavailable" if the copy fails.
    """
    if not source.is_file():
        raise ResponderBotError("not_found", f"There is no database {source} to copy; see --config.")
    if os.path.lexists(target) or not target.name:
        raise ResponderBotError("exists", f"{target} exists already; name another file.")
    with _marked_copy(source, target, now) as made:
        try:
            os.link(made, target)  # unlike a rename it never replaces a file
        except FileExistsError as error:
            raise ResponderBotError("exists", f"{target} exists already; name another file.") from error
        except OSError:  # a file system without links
            made.rename(target)


def restore_backup(backup: Path, target: Path) -> tuple[int, Path | None]:
    """Replace the database `target`, which no process may have open, with a backup. Blocks.

    A copy without a mark, such as one made with cp, is marked with the time of its file. Returns the time of the backup
    (ms), and where the replaced database is kept with the files beside it (None if there was none). Safe to kill and
    repeat: `target` is always either database, complete.

    Raises ResponderBotError: "not_found", "bad_request" for a file that isn't such a backup, "conflict" while `target`
    is in use, "unavailable" if it can't be written.
    """
    if not backup.is_file():
        raise ResponderBotError(
            "not_found", f"There is no backup {backup}; name a file made by `responder-bot backup`."
        )
    _check_is_ours(backup)
    _checkpoint(target)
    try:
        make_private(target.parent)
    except OSError as error:
        raise _restore_failed(backup, target, error) from error
    with _marked_copy(backup, target, int(backup.stat().st_mtime * 1000)) as made:
        with closing(sqlite3.connect(made)) as connection:
            made_at = int(connection.execute("SELECT min(made_at) FROM backup").fetchone()[0])
        try:
            kept = _set_aside(target, made)
            made.replace(target)
        except OSError as error:
            raise _restore_failed(backup, target, error) from error
    return made_at, kept


def audit_head(backup: Path) -> str:
    """`<number>:<hash>` of the last row of the audit in a backup; "" without any."""
    with closing(_open_read_only(backup)) as connection:
        row = connection.execute("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1").fetchone()
    return f"{row[0]}:{row[1]}" if row else ""


@contextmanager
def _marked_copy(source: Path, target: Path, now: int) -> Iterator[Path]:
    """A marked copy beside `target`, under a temporary name; deleted at the end unless it was moved."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
        os.close(number)
    except OSError as error:
        raise ResponderBotError(
            "unavailable", f"{target} can't be written ({error.strerror}); name another."
        ) from error
    made = Path(name)
    try:
        try:
            with closing(_open_read_only(source)) as original, closing(sqlite3.connect(made)) as into:
                original.backup(into)
                into.execute("PRAGMA journal_mode = DELETE")  # a single file, without a write-ahead log
                with into:
                    into.execute(MARK)
                    into.execute("INSERT INTO backup SELECT ? WHERE NOT EXISTS (SELECT 1 FROM backup)", [now])
        except sqlite3.Error as error:
            sentence = f"{source} can't be copied to {target} ({error}); correct that, or name another file."
            raise ResponderBotError("unavailable", sentence) from error
        yield made
    finally:
        for suffix in ("", *_SIDE_FILES):
            Path(f"{made}{suffix}").unlink(missing_ok=True)


def _open_read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _check_is_ours(backup: Path) -> None:
    try:
        with closing(_open_read_only(backup)) as connection:
            row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sequence'").fetchone()
    except sqlite3.Error as error:
        raise ResponderBotError("bad_request", f"{backup} isn't a backup ({error}); name another file.") from error
    if not row:
        raise ResponderBotError("bad_request", f"{backup} is not a backup of this database; name another file.")


def _checkpoint(target: Path) -> None:
    """Move the write-ahead log into the file. Raises ResponderBotError("conflict") while the file is in use."""
    if not target.is_file():
        return
    try:
        with closing(sqlite3.connect(target, timeout=1, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # fails while another process has it open
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _IN_USE:
            sentence = f"{target} is in use; stop every responder-bot that uses it, and restore again."
            raise ResponderBotError("conflict", sentence) from error
        # Other errors: it is damaged, which is why it is being replaced.


def _set_aside(target: Path, made: Path) -> Path | None:
    """Keep the current database under another name, with its log, which SQLite would apply to the backup."""
    number = 1
    while any(os.path.lexists(f"{target}.before-restore-{number}{suffix}") for suffix in ("", _CLICKS)):
        number += 1
    kept = target.with_name(f"{target.name}.before-restore-{number}")
    has_database = target.exists()
    if has_database:
        current = target.stat()
        with suppress(PermissionError):
            os.chown(made, current.st_uid, current.st_gid)  # root may restore for the user that core runs as
        try:
            os.link(target, kept)
        except OSError:  # a file system without links
            shutil.copy2(target, kept)
    else:
        give_to_owner_of_folder(made)
    for suffix in (*_SIDE_FILES, _CLICKS, *(f"{_CLICKS}{side}" for side in _SIDE_FILES)):
        with suppress(FileNotFoundError):
            Path(f"{target}{suffix}").rename(f"{kept}{suffix}")
    narrow_database(kept)
    return kept if has_database else None


def _restore_failed(backup: Path, target: Path, error: OSError) -> ResponderBotError:
    sentence = f"{backup} can't be restored to {target} ({error.strerror}); correct that, and restore again."
    return ResponderBotError("unavailable", sentence)


# --- in a database ----------------------------------------------------------------------------------------------------


def made_at(reads: Reads) -> int | None:
    """When this backup was made (ms); None for a live database."""
    return reads.value("SELECT min(made_at) AS at FROM backup")


def require_live(reads: Reads) -> None:
    """Raises ResponderBotError("conflict") for a restored backup."""
    if made_at(reads) is not None:
        raise ResponderBotError("conflict", "This database is a restored backup; start core with it first.")


def mark(tx: Transaction, now: int) -> None:
    """Mark these tables as a backup, unless they are: made when their last event was, as a dump holds no time."""
    tx.run(
        "INSERT INTO backup (made_at) SELECT coalesce((SELECT at FROM event ORDER BY seq DESC LIMIT 1), :now)"
        " WHERE NOT EXISTS (SELECT 1 FROM backup)",
        {"now": now},
    )


def resume(tx: Transaction, copied_at: int, now: int) -> None:
    """Make core's marked copy a live database, whose ids and event numbers continue beyond any used before.

    Numbers allocated after the backup may be known in Slack and elsewhere, so none may be reused. At most IDS_A_MS
    are allocated, so the time since then is a bound, also when a backup is restored twice. The table `restore` records
    which event numbers were lost.
    """
    last_event = sequences.last(tx, "event")
    event = _next_free(last_event, now - copied_at)
    sequences.skip_to(tx, "event", event)
    sequences.skip_to(tx, "id", _next_free(sequences.last(tx, "id"), now - copied_at))
    tx.run("DELETE FROM owner")
    tx.insert("restore", {"at": now, "made_at": copied_at, "last_event": last_event, "next_event": event})
    tx.run("DELETE FROM backup")


def lost(reads: Reads, event: int) -> int | None:
    """If the event with this number was lost by a restore: the time of its backup (ms), else None."""
    return reads.value(
        "SELECT made_at FROM restore WHERE last_event < :event AND :event < next_event", {"event": event}
    )


def database_id(reads: Reads) -> str:
    """Random id made with the database; copies have the same."""
    return str(reads.value("SELECT id FROM identity") or "")


def _next_free(last: int, age_ms: int) -> int:
    return last + (LEAST_GAP + age_ms * IDS_A_MS if age_ms > 0 else ID_GAP)  # a clock that was set back
