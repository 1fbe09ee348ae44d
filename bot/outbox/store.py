"""The bot's tables, which are in core's database, and how they are opened.

On SQLite they are in core's file, with migrations of their own; on PostgreSQL in a schema of their own. A click must be
stored at once, also while core's writer works for seconds, so on SQLite the inbox is in the file `<database>-inbox`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlite_utils

from bot.outbox import state
from core.common.clock import now_ms
from core.common.database import Database, Transaction
from core.common.database.location import SETTING, Location, PostgresqlUrl
from core.common.database.opening import CORES_SCHEMA, CORES_TABLE, FUNCTIONS, postgresql_database
from core.common.database.schema import Migration, Opening, on_postgresql, on_sqlite
from core.common.database.sqlite.database import SqliteDatabase, SqliteTransaction, apply, has_table
from core.common.database.transfer import Store
from core.common.errors import ResponderBotError
from core.common.leases import COLUMNS
from core.common.private_files import create_database, narrow_database

SCHEMA = "responder_bot"
READ_LIMIT_S = 2.0  # Slack waits 3 s for an answer to a click
REFRESH_MS = 7 * 86_400_000  # after a gap in core's feed, or a restore: cards this recent are rendered again


@dataclass(frozen=True)
class Stores:
    """Where the bot's tables are."""

    messages: Database
    inbox: Database
    own: tuple[Database, ...]
    """Those that nobody else in this process uses."""

    async def close(self) -> None:
        for database in self.own:
            await database.close()


def inbox_file(database: Path) -> Path:
    return database.with_name(f"{database.name}-inbox")


def open_stores(location: Location, opening: Opening | None = None, *, shared: Database | None = None) -> Stores:
    """Open the bot's tables in core's database; `shared` is core's, if this process has opened it.

    What a restored backup has is made live in the transaction that opens it. Raises ResponderBotError: "not_found"
    where core has made no database.
    """
    if isinstance(location, PostgresqlUrl):
        database = open_messages(location, opening)
        return Stores(database, database, (database,))
    clicks = open_inbox(location, opening)
    if shared is not None:
        return Stores(shared, clicks, (clicks,))
    messages = open_messages(location, opening)
    return Stores(messages, clicks, (messages, clicks))


def open_messages(location: Location, opening: Opening | None = None) -> Database:
    """As `open_stores`, all but the inbox on SQLite."""
    if not isinstance(location, PostgresqlUrl):
        _require_core(location)
        narrow_database(location)
        return SqliteDatabase(location, partial(migrate, opening=opening))
    return postgresql_database()(
        location.text,
        SCHEMA,
        MIGRATIONS,
        _prepare,
        table="message",
        opening=opening or Opening(),
        suffix="_bot",
        read_limit_s=READ_LIMIT_S,
    )


def open_inbox(location: Location, opening: Opening | None = None) -> Database:
    """The inbox for the database in this place."""
    if isinstance(location, PostgresqlUrl):
        return open_messages(location, opening)
    _require_core(location)
    file = inbox_file(location)
    try:
        create_database(file)
    except OSError as error:
        sentence = f"The file {file} can't be opened ({error.strerror}); correct that, or set {SETTING}."
        raise ResponderBotError("unavailable", sentence) from error
    return SqliteDatabase(file, _migrate_inbox)


def _require_core(database: Path) -> None:
    """Raises ResponderBotError("not_found") for a file that isn't core's."""
    if not database.is_file() or not has_table(database, CORES_TABLE):
        raise _no_core(str(database))


def _no_core(place: str) -> ResponderBotError:
    sentence = f"Core has no database in {place}; start core first, or name the one that it has with {SETTING}."
    return ResponderBotError("not_found", sentence)


def migrate(db: sqlite_utils.Database, opening: Opening | None = None) -> None:
    """Make the bot's tables, and what a restored backup has in them live, in core's file."""
    apply("bot", MIGRATIONS, db, opening or Opening(), beside="core")
    if db.table("restore").exists():  # not where only the names of tables are asked for
        tx = SqliteTransaction(db.conn)
        row = tx.row("SELECT min(made_at) AS made_at, :now AS at FROM backup HAVING count(*) > 0", {"now": now_ms()})
        row = row or tx.row("SELECT made_at, at FROM restore ORDER BY at DESC LIMIT 1")  # core was here first
        if row is not None and state.value(tx, "restored_from") != str(row["made_at"]):
            _resume(tx, row["made_at"], row["at"])


def _migrate_inbox(db: sqlite_utils.Database) -> None:
    apply("inbox", INBOX_MIGRATIONS, db, Opening())


def _prepare(tx: Transaction, is_copy: bool) -> None:
    """Raises ResponderBotError("not_found") where core has no tables."""
    own = str(tx.value("SELECT current_schema()"))
    core = CORES_SCHEMA if own == SCHEMA else own.removesuffix("_bot")
    values = {"schema": core, "table": CORES_TABLE}
    if tx.row("SELECT 1 FROM pg_tables WHERE schemaname = :schema AND tablename = :table", values) is None:
        raise _no_core(f"the schema {core}")
    if is_copy:
        made_at = tx.number("SELECT max(max(created_at, changed_at)) FROM message")  # a dump holds no time
        tx.run("UPDATE inbox SET done_at = :made_at, payload = '' WHERE done_at = 0", {"made_at": made_at})
        _resume(tx, made_at, now_ms())


def _resume(tx: Transaction, made_at: int, restored_at: int) -> None:
    """What was pending in this backup was done after it was made (ms), so nothing of it is repeated unchecked."""
    state.set_value(tx, "restored_from", str(made_at))
    state.set_value(tx, "restored_at", str(restored_at))
    # Pending posts are looked for in Slack first.
    tx.run(
        "UPDATE message SET status = 'posting', attempted_version = version,"
        " attempted_at = CASE WHEN attempted_at = 0 THEN pending_since ELSE attempted_at END"
        " WHERE status IN ('unsent', 'posting')"
    )
    # Slack may show later content than this backup has: recent messages are rendered again.
    tx.run(
        "UPDATE message SET clearance = CASE root_id WHEN '' THEN clearance ELSE -3 END, fingerprint = '', digest = ''"
        " WHERE created_at > :recent OR changed_at > :recent",
        {"recent": made_at - REFRESH_MS},
    )
    tx.run("DELETE FROM refresh")
    tx.run("DELETE FROM replica")


_TABLES = """
-- key: such as alert:~12:C0SOC. channel: as in the settings, or a person's id for a direct message; conversation: as
-- Slack's response has it. thread_of: the key of the message that it replies to. payload: "" once Slack
-- has shown it for long. version: of the desired content;
-- attempted_version: of the post that is under way; attempted_at: when the first post without a known outcome began, or
-- 0. post_id: random, in its metadata, by which a lost post is found. is_plain: Slack refused its blocks: only text is
-- sent.
-- clearance: what it was rendered for; -1: that of a shared channel; -2: withheld for now; -3: not known, so it is
-- checked. about: kind and id of its object, such as `case_task ~9`. fingerprint: of what it withholds.
-- is_progress: the desired content changes only a progress. duplicate_check_at: when to look for a duplicate post, or
-- 0. rank: what is sent first (models.py).
CREATE TABLE message (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, channel TEXT NOT NULL, conversation TEXT,
  root_id TEXT, thread_of TEXT, payload TEXT NOT NULL, digest TEXT, version INTEGER NOT NULL,
  attempted_version INTEGER, attempted_at INTEGER, post_id TEXT NOT NULL, ts TEXT NOT NULL, pending_since INTEGER,
  due_at INTEGER, changed_at INTEGER, event_updated_at INTEGER, failures INTEGER, problem TEXT, is_plain INTEGER,
  created_at INTEGER, clearance INTEGER NOT NULL DEFAULT -3, about TEXT NOT NULL DEFAULT '',
  fingerprint TEXT NOT NULL DEFAULT '', is_progress INTEGER NOT NULL DEFAULT 0,
  nonprogress_updated_at INTEGER NOT NULL DEFAULT 0, duplicate_check_at INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'unsent', rank INTEGER NOT NULL DEFAULT 7);
CREATE INDEX message_root ON message (root_id);
CREATE INDEX message_card ON message (channel, number) WHERE thread_of = '' AND root_id <> '';
CREATE INDEX message_thread ON message (thread_of) WHERE thread_of <> '';
CREATE INDEX message_ts ON message (ts);
CREATE INDEX message_clearance ON message (channel, clearance);
CREATE INDEX message_doubt ON message (duplicate_check_at) WHERE duplicate_check_at > 0;
CREATE INDEX message_pending ON message (due_at) WHERE status IN ('unsent', 'posting', 'outdated');
CREATE INDEX message_content ON message (changed_at) WHERE status = 'shown' AND payload <> '';
CREATE INDEX message_next ON message (channel, status, rank, pending_since, number)
  WHERE status IN ('unsent', 'posting', 'outdated');

CREATE TABLE file (
  message_key TEXT PRIMARY KEY, name TEXT, text TEXT, slack_id TEXT NOT NULL, status TEXT NOT NULL, due_at INTEGER,
  failures INTEGER, problem TEXT) WITHOUT ROWID;
CREATE INDEX file_pending ON file (due_at) WHERE status <> 'shown';

-- intents: what the buttons of a message mean, by digest (buttons.py).
CREATE TABLE button_set (
  nonce TEXT PRIMARY KEY, channel TEXT NOT NULL, message_key TEXT NOT NULL, intents TEXT NOT NULL,
  expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX button_set_message ON button_set (message_key, channel);
CREATE INDEX button_set_expires_at ON button_set (expires_at);

CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT);
-- The leases of the bot's replicas (core/common/leases.py). leads: 1 for the one that follows core and sends.
CREATE TABLE replica ({lease}, pid INTEGER NOT NULL, leads INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
-- due_at: of a reminder; else 0.
CREATE TABLE refresh (
  number INTEGER PRIMARY KEY AUTOINCREMENT, root_id TEXT NOT NULL, log_id TEXT NOT NULL, after_event INTEGER NOT NULL,
  due_at INTEGER NOT NULL DEFAULT 0);

-- Where each alert stands in a channel, and the groups of alerts that share a card.
-- rank: of the update that its card needs, or NULL. over_at: when the storm or mute that its card tells of is over, so
-- that it must be rendered; or NULL.
CREATE TABLE alert_group (
  key TEXT PRIMARY KEY, channel TEXT NOT NULL, alike TEXT NOT NULL, began_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL, muted_until INTEGER NOT NULL DEFAULT 0,
  changes INTEGER NOT NULL DEFAULT 0, rank INTEGER, over_at INTEGER) WITHOUT ROWID;
CREATE INDEX alert_group_open ON alert_group (channel, alike, last_at);
CREATE INDEX alert_group_changed ON alert_group (rank) WHERE (rank IS NOT NULL OR over_at IS NOT NULL);
CREATE INDEX alert_group_last ON alert_group (last_at);
CREATE TABLE channel_alert (
  root_id TEXT NOT NULL, channel TEXT NOT NULL, alike TEXT NOT NULL, group_key TEXT NOT NULL, card TEXT NOT NULL,
  at INTEGER NOT NULL, severity INTEGER NOT NULL, clearance INTEGER NOT NULL, title TEXT NOT NULL,
  source TEXT NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (root_id, channel)) WITHOUT ROWID;
CREATE INDEX channel_alert_alike ON channel_alert (channel, alike, at, severity);
CREATE INDEX channel_alert_alone ON channel_alert (at) WHERE group_key = '';
CREATE INDEX channel_alert_grouped ON channel_alert (at) WHERE group_key <> '';
CREATE INDEX channel_alert_of_group ON channel_alert (group_key, at, severity, card) WHERE group_key <> '';
""".replace("{lease}", COLUMNS)

_CLOSED = "ALTER TABLE channel_alert ADD COLUMN is_closed INTEGER NOT NULL DEFAULT 0;\n"
_MUTED_BY = "ALTER TABLE alert_group ADD COLUMN muted_by TEXT NOT NULL DEFAULT '';\n"
_COUNTED = "ALTER TABLE message ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;\n"

_INBOX = """
CREATE TABLE inbox (
  key TEXT PRIMARY KEY, payload TEXT, at INTEGER, holder TEXT, leased_until INTEGER, done_at INTEGER);
CREATE INDEX inbox_pending ON inbox (at) WHERE done_at = 0;
CREATE INDEX inbox_done ON inbox (done_at) WHERE done_at > 0;
"""

MIGRATIONS = (
    Migration("make the tables", on_sqlite(_TABLES), [FUNCTIONS + on_postgresql(_TABLES) + on_postgresql(_INBOX)]),
    Migration("note which alerts of a group are closed", on_sqlite(_CLOSED), [on_postgresql(_CLOSED)]),
    Migration("note who muted a group", on_sqlite(_MUTED_BY), [on_postgresql(_MUTED_BY)]),
    Migration("note how many requests or alerts a message counts", on_sqlite(_COUNTED), [on_postgresql(_COUNTED)]),
)
INBOX_MIGRATIONS = (Migration("make the table of clicks", on_sqlite(_INBOX), []),)


STORES = (
    Store("bot", migrate, open_messages, "SELECT host FROM replica WHERE lease_until > :now"),
    Store("inbox", _migrate_inbox, open_inbox, ""),
)
