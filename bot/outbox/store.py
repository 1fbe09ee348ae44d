"""The schema of the bot's database and its migrations.

Both of the first migrations were edited in place for a time, and before that no migration was recorded at all, so each
checks what is there (`tests/core/store/earlier` has a file of each shape).
"""

import sqlite_utils

from bot.outbox.postgresql import STEPS
from core.common.database import Database, Transaction
from core.common.database.copying import Store
from core.common.database.location import Location, PostgresqlUrl
from core.common.database.opening import open_postgresql
from core.common.database.sqlite import SqliteDatabase, apply
from core.common.database.transaction import SqliteTransaction

migrations = sqlite_utils.Migrations("bot")
SCHEMA = "responder_bot"
NEEDED = "several_hosts"  # as in core/store/schema.py
READ_LIMIT_S = 2.0  # Slack waits 3 s for an answer to a click
REFRESH_MS = 7 * 86_400_000  # after a gap in core's feed, or a restore: cards this recent are rendered again


def open_store(location: Location) -> Database:
    """The database of `[bot] database`; replicas of the bot share it. Raises ResponderBotError.

    A restored backup becomes a live database here, in the transaction that opens it.
    """
    if isinstance(location, PostgresqlUrl):
        return open_postgresql(
            location,
            SCHEMA,
            STEPS,
            _prepare,
            table=STORE.table,
            setting="[bot] database",
            read_limit_s=READ_LIMIT_S,
        )
    return SqliteDatabase(location, _migrate)


def _migrate(db: sqlite_utils.Database) -> None:
    apply(migrations, db, NEEDED)
    if db.table("backup").exists():
        made_at = int(db.execute("SELECT min(made_at) FROM backup").fetchone()[0])
        _resume(SqliteTransaction(db.conn), made_at)
        db.execute("DROP TABLE backup")


def _prepare(tx: Transaction, is_copy: bool) -> None:
    if is_copy:
        row = tx.row("SELECT max(max(created_at, changed_at)) AS at FROM message")  # a dump holds no time
        _resume(tx, row["at"] or 0 if row else 0)


def _resume(tx: Transaction, made_at: int) -> None:
    """What was pending in this backup was done after it was made (ms), so nothing of it is repeated unchecked."""
    values = {"made_at": made_at, "recent": made_at - REFRESH_MS}
    tx.run("UPDATE inbox SET done_at = :made_at, payload = '' WHERE done_at = 0", values)  # never carried out again
    # Pending posts are looked for in Slack first.
    tx.run(
        "UPDATE message SET status = 'posting', attempted_version = version,"
        " attempted_at = CASE WHEN attempted_at = 0 THEN pending_since ELSE attempted_at END"
        " WHERE status IN ('unsent', 'posting')"
    )
    # Slack may show later content than this backup has: recent messages are rendered again.
    tx.run(
        "UPDATE message SET clearance = CASE root_id WHEN '' THEN clearance ELSE -1 END, fingerprint = '', digest = ''"
        " WHERE created_at > :recent OR changed_at > :recent",
        values,
    )
    tx.run("DELETE FROM refresh")
    tx.run("DELETE FROM lease")
    tx.run("DELETE FROM replica")


@migrations()
def first_tables(db: sqlite_utils.Database) -> None:
    if db.table("message").exists():
        return
    db.table("message").create(
        {
            "key": str,  # such as alert:~12:C0SOC
            "channel": str,  # as in the settings; a person's id for a direct message
            "conversation": str,  # as Slack answers it; differs from channel for a direct message
            "subject": str,  # the id of its alert or case
            "thread_of": str,  # key of the message that it replies to
            "payload": str,  # JSON of the desired content
            "digest": str,  # of payload, so that equal content is not sent twice
            "wanted": int,  # version of the desired content
            "sent": int,  # version that Slack has
            "tried": int,  # version of the post that is under way
            "tried_at": int,  # when the first post without a known outcome began; 0: none
            "mark": str,  # random, in the message's metadata, by which a lost post is found
            "ts": str,
            "by_person": int,  # 1: a person waits for it; -1: one of many
            "wanted_at": int,
            "due_at": int,
            "changed_at": int,
            "machine_at": int,  # when an event updated it last
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


@migrations()
def levels_and_doubts(db: sqlite_utils.Database) -> None:
    message = db.table("message")
    # What it was rendered for; -1: not known, as in older messages, which are checked once; -2: withheld for now.
    message.add_column("clearance", int, not_null_default=-1)
    message.add_column("about", str, not_null_default="")  # kind and id of its object, such as `case_task ~9`
    message.add_column("sight", str, not_null_default="")  # fingerprint of what it withholds
    message.add_column("written", int, not_null_default=0)  # number of the write that changed it last
    message.add_column("news", int, not_null_default=0)  # 1: the desired content is more than progress
    message.add_column("news_at", int, not_null_default=0)  # when an event that is more than progress updated it last
    message.add_column("doubt_at", int, not_null_default=0)  # when to check for a duplicate post; 0: no reason to
    message.create_index(["channel", "clearance"])
    db.execute("CREATE INDEX message_doubt ON message(doubt_at) WHERE doubt_at > 0")


@migrations()
def columns_of_every_commit(db: sqlite_utils.Database) -> None:
    message = db.table("message")
    for column in ("machine_at", "written", "news", "news_at"):
        if column not in message.columns_dict:
            message.add_column(column, int, not_null_default=0)
    if "seen_at" in message.columns_dict:
        db.execute("ALTER TABLE message DROP COLUMN seen_at")  # what `written` replaced


@migrations()
def plain_names(db: sqlite_utils.Database) -> None:
    """One name for each column and the field that is read from it."""
    renamed = {
        "message": {
            "subject": "root_id",
            "wanted": "version",
            "sent": "sent_version",
            "tried": "attempted_version",
            "tried_at": "attempted_at",
            "mark": "post_id",
            "by_person": "priority",
            "wanted_at": "pending_since",
            "machine_at": "event_updated_at",
            "news_at": "nonprogress_updated_at",  # when an event that is more than progress updated it last
            "news": "is_progress",  # the desired content changes only a progress; inverted below
            "plain": "is_plain",
            "gone": "is_deleted",
            "sight": "fingerprint",
            "written": "write_number",
            "doubt_at": "duplicate_check_at",
        },
        "watch": {"subject": "watched"},
        "inbox": {"owner": "holder", "owned_until": "leased_until"},
        "lease": {"owner": "holder"},
    }
    for table, columns in renamed.items():
        for before, after in columns.items():
            db.execute(f"ALTER TABLE {table} RENAME COLUMN {before} TO {after}")
    db.execute("UPDATE message SET is_progress = 1 - is_progress")
    for before, after in (("written", "last_write"), ("to_look", "channels_changed_at"), ("core", "core_database")):
        db.execute("UPDATE state SET name = ? WHERE name = ?", [after, before])


@migrations()
def states_of_messages(db: sqlite_utils.Database) -> None:
    """One status for each message instead of several flags; files and requests for a refresh have their own tables."""
    message = db.table("message")
    message.add_column("status", str, not_null_default="unsent")
    db.execute(
        """UPDATE message SET status = CASE
             WHEN is_deleted = 1 THEN 'deleted'
             WHEN ts = '' AND attempted_at > 0 THEN 'posting'
             WHEN ts = '' THEN 'unsent'
             WHEN sent_version < version THEN 'outdated'
             ELSE 'shown' END"""
    )
    db.table("file").create(
        {
            "message_key": str,
            "name": str,
            "text": str,
            "slack_id": str,
            "status": str,  # FileStatus of models.py
            "due_at": int,
            "failures": int,
            "problem": str,
        },
        pk="message_key",
        not_null={"status", "slack_id"},
    )
    db.execute(
        """INSERT INTO file
           SELECT key, file_name, file_text, file_id,
             CASE WHEN file_name = '' THEN 'removing' WHEN file_sent = 1 THEN 'shown'
               WHEN file_id = '' THEN 'unsent' ELSE 'uploading' END,
             due_at, 0, ''
           FROM message
           WHERE (file_name <> '' OR (file_id <> '' AND file_sent = 0))
             AND (is_deleted = 0 OR file_sent = 1 OR file_name = '')"""
    )
    db.execute("CREATE INDEX file_pending ON file(due_at) WHERE status <> 'shown'")
    db.execute("DROP INDEX message_open")
    for column in ("sent_version", "is_deleted", "file_name", "file_text", "file_id", "file_sent", "write_number"):
        db.execute(f"ALTER TABLE message DROP COLUMN {column}")
    db.execute("CREATE INDEX message_pending ON message(due_at) WHERE status IN ('unsent', 'posting', 'outdated')")
    db.execute("DELETE FROM state WHERE name = 'last_write'")
    db.execute(
        """CREATE TABLE refresh (
             number INTEGER PRIMARY KEY AUTOINCREMENT, root_id TEXT NOT NULL, log_id TEXT NOT NULL,
             after_event INTEGER NOT NULL)"""
    )


@migrations()
def rank_of_messages(db: sqlite_utils.Database) -> None:
    """What is sent first, in more than three steps."""
    message = db.table("message")
    message.add_column("rank", int, not_null_default=7)  # from FOR_PERSON to IN_BULK of models.py
    db.execute("UPDATE message SET rank = CASE priority WHEN 1 THEN 0 WHEN -1 THEN 8 ELSE 7 END")
    db.execute("ALTER TABLE message DROP COLUMN priority")
    db.execute(
        """CREATE INDEX message_next ON message(channel, status, rank, pending_since)
           WHERE status IN ('unsent', 'posting', 'outdated')"""
    )


@migrations()
def groups_of_alerts(db: sqlite_utils.Database) -> None:
    """Where each alert stands in a channel, and the groups of alerts that share a card."""
    db.execute(
        """CREATE TABLE alert_group (
             key TEXT PRIMARY KEY, channel TEXT NOT NULL, alike TEXT NOT NULL, began_at INTEGER NOT NULL,
             last_at INTEGER NOT NULL, muted_until INTEGER NOT NULL DEFAULT 0, is_ungrouped INTEGER NOT NULL DEFAULT 0,
             changes INTEGER NOT NULL DEFAULT 0, rank INTEGER NOT NULL DEFAULT 99) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX alert_group_open ON alert_group(channel, alike, last_at)")
    db.execute("CREATE INDEX alert_group_changed ON alert_group(rank) WHERE rank < 99")
    db.execute("CREATE INDEX alert_group_last ON alert_group(last_at)")
    db.execute(
        """CREATE TABLE placement (
             root_id TEXT NOT NULL, channel TEXT NOT NULL, alike TEXT NOT NULL, group_key TEXT NOT NULL,
             has_card INTEGER NOT NULL, at INTEGER NOT NULL, severity INTEGER NOT NULL, clearance INTEGER NOT NULL,
             title TEXT NOT NULL, source TEXT NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (root_id, channel)
           ) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX placement_alike ON placement(channel, alike, at, severity)")
    db.execute("CREATE INDEX placement_of_group ON placement(group_key, at, severity, has_card) WHERE group_key <> ''")


@migrations()
def several_hosts(db: sqlite_utils.Database) -> None:
    # beat: how often a replica has renewed its lease, as clocks of hosts differ; host, pid, version and started_at tell
    # people which one it is.
    db.execute(
        """CREATE TABLE replica (
             holder TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL,
             started_at INTEGER NOT NULL, beat INTEGER NOT NULL) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX inbox_pending ON inbox(at) WHERE done_at = 0")


STORE = Store("message", SCHEMA, STEPS, _prepare, _migrate)
