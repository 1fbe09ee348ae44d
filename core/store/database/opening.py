"""Open core's database."""

from collections.abc import Callable, Sequence

import sqlite_utils

from core.common.clock import now_ms
from core.common.database import Database, Transaction
from core.common.database.location import SETTING, Location, PostgresqlUrl
from core.common.database.opening import CORES_SCHEMA, forget_place, postgresql_database
from core.common.database.schema import Migration, Opening
from core.common.database.sqlite.database import SqliteDatabase
from core.common.database.transfer import Store
from core.common.errors import ResponderBotError
from core.common.private_files import create_database
from core.store.database import backup
from core.store.database.schema import MIGRATIONS, migrate

_BOTS = "responder_bot", "_bot"
_NEW_TABLE = "in_force"  # databases of 0.1.0 have not got it


def open_database(
    location: Location,
    opening: Opening | None = None,
    migrations: Sequence[Migration] = MIGRATIONS,
    *,
    beside: Callable[[sqlite_utils.Database, Opening], None] = lambda _db, _opening: None,
) -> Database:
    """Open the database, or create it; a file is for this account only. Raises ResponderBotError.

    `beside` makes further tables in a SQLite file. On PostgreSQL, tables that were restored from a dump are marked as a
    backup is.
    """
    opening = opening or Opening()
    if isinstance(location, PostgresqlUrl):
        opened = postgresql_database()
        return opened(location.text, CORES_SCHEMA, migrations, _prepare, table=_NEW_TABLE, opening=opening)

    def migrate_all(db: sqlite_utils.Database) -> None:
        migrate(db, opening, migrations)
        beside(db, opening)

    try:
        create_database(location)
        return SqliteDatabase(location, migrate_all)
    except OSError as error:
        sentence = f"The database {location} can't be opened ({error.strerror}); name another with {SETTING}."
        raise ResponderBotError("unavailable", sentence) from error


def _prepare(tx: Transaction, is_copy: bool) -> None:
    if is_copy:
        backup.mark(tx, now_ms())


def mark_restored(location: PostgresqlUrl) -> None:
    """Mark core's tables and the bot's as restored, for the next start. Raises ResponderBotError.

    It is for a server that was restored as a whole.
    """
    try:
        forget_place(location, *_BOTS)
    except ResponderBotError as error:
        if error.code != "not_found":  # no bot has run
            raise
    forget_place(location, CORES_SCHEMA)


STORE = Store("core", migrate, open_database, "SELECT host FROM owner WHERE stopped = 0 AND lease_until > :now")
