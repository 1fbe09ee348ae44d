"""The bot's own small database: one writer with a connection of its own, one reader on the loop.

The same traps and the same cure as in core's store (`architecture.md 2`), without its grouped commits: what the bot
writes is a few rows for each click and each message.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import sqlite_utils

from core.errors import ResponderBotError

T = TypeVar("T")
Params = Mapping[str, Any]
Row = sqlite3.Row
Reads = Callable[[str, Params], list[Row]]

BUSY_TIMEOUT_S = 10.0  # another replica's commit is waited for this long


class Transaction:
    """Reads and writes that become visible together."""

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


class Store:
    """The SQLite file of `[bot] database`; replicas of the bot share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = _connect(path)
        _prepare(self._writing)
        self._reading = _connect(path)
        self._reading.execute("PRAGMA query_only = ON")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="delivery-writer")

    async def close(self) -> None:
        """Commit what was handed in, then let go of the file."""
        await asyncio.to_thread(self._writer.shutdown)
        self._reading.close()
        self._writing.close()

    def rows(self, sql: str, params: Params | None = None) -> list[Row]:
        """A short read of what is committed, at once on the loop."""
        return self._reading.execute(sql, params or {}).fetchall()

    def row(self, sql: str, params: Params | None = None) -> Row | None:
        row: Row | None = self._reading.execute(sql, params or {}).fetchone()
        return row

    def version(self) -> int:
        """Changes when another connection has committed."""
        return int(self._reading.execute("PRAGMA data_version").fetchone()[0])

    async def transaction(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in the writer; returns what it returns, once that is durable.

        Raises ResponderBotError("unavailable") when the file can't be written.
        """
        running = asyncio.get_running_loop().run_in_executor(self._writer, self._commit, work)
        return await asyncio.shield(running)

    def _commit(self, work: Callable[[Transaction], T]) -> T:
        connection = self._writing
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(Transaction(connection))
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            _undo(connection)
            raise ResponderBotError(
                "unavailable", f"The bot's database can't be written ({error}); try again in a moment."
            ) from error
        except BaseException:
            _undo(connection)
            raise
        return result


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    # Used by the writer's thread, or by the loop's, never by both: each has a connection of its own.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrate(sqlite_utils.Database(connection))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def migrate(db: sqlite_utils.Database) -> None:
    """Bring the schema up to date; each step runs once, in order, inside the caller's transaction."""
    at = int(db.conn.execute("PRAGMA user_version").fetchone()[0])
    if at > len(STEPS):
        raise ResponderBotError(
            "bad_request",
            "The bot's database was made by a newer release; run that one, or name another file in [bot] database.",
        )
    for number, step in enumerate(STEPS[at:], start=at + 1):
        step(db)
        db.conn.execute(f"PRAGMA user_version = {number}")


def _first(db: sqlite_utils.Database) -> None:
    db.table("message").create(
        {
            "key": str,  # what it shows, such as alert:~12:C0SOC
            "channel": str,  # as in the settings; a person's id for a direct message
            "conversation": str,  # as Slack answers it; differs from channel for a direct message
            "subject": str,  # the id of the alert or case whose story it belongs to
            "thread_of": str,  # key of the message that it answers
            "payload": str,  # JSON of the state it shall have
            "digest": str,  # of payload, so that the same state is not sent twice
            "wanted": int,  # number of that state
            "sent": int,  # number of the state that Slack has
            "tried": int,  # number of the state of the attempt that is on its way
            "tried_at": int,  # when the first attempt without a known end began; 0: none
            "mark": str,  # random, in the message's metadata: by it a lost post is found again
            "ts": str,
            "by_person": int,
            "wanted_at": int,
            "due_at": int,
            "changed_at": int,
            "machine_at": int,  # when news of a machine repainted it last
            "failures": int,
            "problem": str,
            "plain": int,  # Slack refused its blocks: only text is sent
            "gone": int,  # somebody deleted it in Slack
            "file_name": str,
            "file_text": str,
            "file_id": str,
            "file_sent": int,
            "created_at": int,
        },
        pk="key",
        not_null={"channel", "payload", "wanted", "sent", "mark", "ts"},
    )
    db.table("message").create_index(["subject"])
    db.table("message").create_index(["channel", "ts"])
    db.execute("CREATE INDEX message_open ON message(due_at) WHERE sent < wanted OR file_sent = 0")
    db.table("button").create(
        {
            "token": str,
            "channel": str,
            "message_key": str,
            "what": str,
            "object_id": str,
            "argument": str,
            "expires_at": int,
        },
        pk="token",
    )
    db.table("button").create_index(["message_key", "channel"])
    db.table("button").create_index(["expires_at"])
    db.table("inbox").create(
        {"key": str, "payload": str, "at": int, "owner": str, "owned_until": int, "done_at": int}, pk="key"
    )
    db.table("state").create({"name": str, "value": str}, pk="name")
    db.table("lease").create({"name": str, "owner": str, "until": int}, pk="name")
    db.table("watch").create({"team": str, "user": str, "subject": str, "at": int}, pk=("team", "user", "subject"))
    db.table("watch").create_index(["subject"])


STEPS: tuple[Callable[[sqlite_utils.Database], None], ...] = (_first,)
"""Migrations. A step that was released never changes; append a new one."""
