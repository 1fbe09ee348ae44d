"""Backups: a consistent copy of a SQLite file while others write to it, and what happens when one is put back.

A copy is marked as one, with its time, by a row in its table `backup`. Whoever opens it as a live database finds the
mark, undoes nothing, runs nothing of what was open in it, and takes the mark away in the same transaction.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from core.common.database.sqlite import Reads, Transaction
from core.common.errors import ResponderBotError

MARK = "CREATE TABLE IF NOT EXISTS backup (made_at INTEGER NOT NULL)"
FAR = 1_000_000_000  # further than the numbers that a database gives away between a backup and its loss
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file


# --- files ------------------------------------------------------------------------------------------------------------


def copy(source: Path, target: Path, now: int) -> None:
    """Copy `source` to a new file that only this user can read, marked as a backup made at `now` (ms). Blocks.

    The name appears when the copy is whole. Raises ResponderBotError("exists") for a target that is there already,
    "not_found" for a source that is not, "unavailable" where the copy fails; then nothing is left behind.
    """
    if not source.is_file():
        raise ResponderBotError("not_found", f"There is no database {source} to copy; see --config.")
    if os.path.lexists(target) or not target.name:
        raise ResponderBotError("exists", f"{target} exists already; name another file.")
    with _copied(source, target, now) as made:
        try:
            os.link(made, target)  # unlike a rename it never replaces a file
        except FileExistsError as error:
            raise ResponderBotError("exists", f"{target} exists already; name another file.") from error
        except OSError:  # a file system without links
            made.rename(target)


def put_back(backup: Path, target: Path, table: str) -> tuple[int, Path | None]:
    """Put a backup in the place of the database `target`, which nobody may have open. Blocks.

    A copy without a mark, such as one made with cp, gets one, with the time of the file. `table` is one that such a
    database has. Gives the backup's time (ms), and where the database of before is kept (None: there was none). May
    be killed and repeated at any moment: `target` is always a whole database, the one of before or the backup.

    Raises ResponderBotError: "not_found", "bad_request" for what is no such database, "conflict" while `target` is in
    use, "unavailable" where it can't be written.
    """
    if not backup.is_file():
        raise ResponderBotError(
            "not_found", f"There is no backup {backup}; name a file made by `responder-bot backup`."
        )
    _refuse_other(backup, table)
    _let_go(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(backup, target, error) from error
    with _copied(backup, target, int(backup.stat().st_mtime * 1000)) as made:
        with closing(sqlite3.connect(made)) as connection:
            made_at = int(connection.execute("SELECT min(made_at) FROM backup").fetchone()[0])
        try:
            kept = _set_aside(target, made)
            made.replace(target)
        except OSError as error:
            raise _cannot(backup, target, error) from error
    return made_at, kept


@contextmanager
def _copied(source: Path, target: Path, now: int) -> Iterator[Path]:
    """A marked copy beside `target`, under a name that is gone at the end unless it was moved."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # private to this user
        os.close(number)
    except OSError as error:
        raise ResponderBotError(
            "unavailable", f"{target} can't be written ({error.strerror}); name another."
        ) from error
    made = Path(name)
    try:
        try:
            with closing(_reading(source)) as original, closing(sqlite3.connect(made)) as into:
                original.backup(into)
                into.execute("PRAGMA journal_mode = DELETE")  # one file, and nothing beside it
                with into:
                    into.execute(MARK)
                    into.execute("INSERT INTO backup SELECT ? WHERE NOT EXISTS (SELECT 1 FROM backup)", [now])
        except sqlite3.Error as error:
            sentence = f"{source} can't be copied to {target} ({error}); mend that, or name another file."
            raise ResponderBotError("unavailable", sentence) from error
        yield made
    finally:
        for beside in ("", *_BESIDE):
            Path(f"{made}{beside}").unlink(missing_ok=True)


def _reading(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _refuse_other(backup: Path, table: str) -> None:
    try:
        with closing(_reading(backup)) as connection:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone()
    except sqlite3.Error as error:
        raise ResponderBotError("bad_request", f"{backup} is no backup ({error}); name another file.") from error
    if not found:
        raise ResponderBotError(
            "bad_request",
            f"{backup} is not a backup of this database; FILE is core's, and the bot's is FILE.slack beside it.",
        )


def _let_go(target: Path) -> None:
    """Have what stands beside the file written into it. Raises ResponderBotError("conflict") while it is in use."""
    if not target.is_file():
        return
    try:
        with closing(sqlite3.connect(target, timeout=1, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # which nobody can while another has it open
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _IN_USE:
            sentence = f"{target} is in use; stop every responder-bot that uses it, and restore again."
            raise ResponderBotError("conflict", sentence) from error
        # It is damaged, which is why a backup is put back.


def _set_aside(target: Path, made: Path) -> Path | None:
    """Keep the database of before under another name, and what is left beside it: it would be read into the backup."""
    if not target.exists():
        return None
    before = target.stat()
    with suppress(PermissionError):
        os.chown(made, before.st_uid, before.st_gid)  # root may restore for the user that core runs as
    number = 1
    while os.path.lexists(kept := target.with_name(f"{target.name}.before-restore-{number}")):
        number += 1
    try:
        os.link(target, kept)
    except OSError:  # a file system without links
        shutil.copy2(target, kept)
    for beside in _BESIDE:
        with suppress(FileNotFoundError):
            Path(f"{target}{beside}").rename(f"{kept}{beside}")
    return kept


def _cannot(backup: Path, target: Path, error: OSError) -> ResponderBotError:
    sentence = f"{backup} can't be put to {target} ({error.strerror}); correct that, and restore again."
    return ResponderBotError("unavailable", sentence)


# --- in a database ----------------------------------------------------------------------------------------------------


def made_at(reads: Reads) -> int | None:
    """When this database was copied (ms), if it is a backup that nobody has opened as a live one yet."""
    row = reads.row("SELECT min(made_at) AS at FROM backup")
    return row["at"] if row else None


def resume(tx: Transaction, copied_at: int, now: int) -> None:
    """Make core's marked copy a live database: its ids and event numbers go on where none was ever given.

    What was given between the backup and its loss may stand in Slack, in other programs and in people's heads. Since
    fewer than a thousand are given in a second, the time in ms is always further on, also when the same backup is
    restored twice. `restore` keeps which event numbers were lost.
    """
    last = tx.row("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0) AS seq,"
                  " (SELECT last FROM sequence WHERE id = 1) AS id")  # fmt: skip
    assert last is not None  # noqa: S101 - a select without a table always gives a row
    event, number = _beyond(last["seq"], now), _beyond(last["id"], now)
    tx.run("UPDATE sequence SET last = :number WHERE id = 1", {"number": number})
    tx.run("DELETE FROM sqlite_sequence WHERE name = 'event'")
    tx.run("INSERT INTO sqlite_sequence (name, seq) VALUES ('event', :event)", {"event": event})
    tx.run("DELETE FROM owner")
    tx.run(
        "INSERT INTO restore (at, made_at, last_event, next_event) VALUES (:at, :made_at, :last_event, :next_event)",
        {"at": now, "made_at": copied_at, "last_event": last["seq"], "next_event": event},
    )
    tx.run("DELETE FROM backup")


def lost(reads: Reads, event: int) -> int | None:
    """The time (ms) of the backup by whose restoring the event with this number was lost, if it was."""
    row = reads.row("SELECT made_at FROM restore WHERE last_event < :event AND :event < next_event", {"event": event})
    return row["made_at"] if row else None


def database_id(reads: Reads) -> str:
    """Random, made with the database; its copies have it too."""
    row = reads.row("SELECT id FROM identity")
    return str(row["id"]) if row else ""


def as_time(ms: int) -> str:
    """A backup's time in words."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _beyond(last: int, now: int) -> int:
    return now if now > last else last + FAR  # a clock that was set back
