"""Open core's database."""

from collections.abc import Sequence
from functools import partial

from core.common.clock import now_ms
from core.common.database import Database, Transaction
from core.common.database.location import Location, PostgresqlUrl
from core.common.database.opening import forget_place, open_postgresql
from core.common.database.schema import Migration, Opening
from core.common.database.sqlite.database import SqliteDatabase
from core.common.database.transfer import Store
from core.common.errors import ResponderBotError
from core.common.private_files import create_database
from core.store.database import backup
from core.store.database.schema import MIGRATIONS, migrate

SCHEMA = "responder_core"
SETTING = "[core] database"
TABLE = "sequence"  # which only these tables have
_BOTS = ("responder_bot", "[bot] database")


def open_database(
    location: Location, opening: Opening | None = None, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """Open the database, or create it; a file is for this account only. Raises ResponderBotError.

    On PostgreSQL, tables that were restored from a dump are marked as a backup is.
    """
    if isinstance(location, PostgresqlUrl):
        return open_postgresql(
            location, SCHEMA, migrations, _prepare, table=TABLE, setting=SETTING, opening=opening or Opening()
        )
    try:
        create_database(location)
        return SqliteDatabase(location, partial(migrate, opening=opening, migrations=migrations))
    except OSError as error:
        sentence = f"The database {location} can't be opened ({error.strerror}); name another with [core] database."
        raise ResponderBotError("unavailable", sentence) from error


def _prepare(tx: Transaction, is_copy: bool) -> None:
    if is_copy:
        backup.mark(tx, now_ms())


def mark_restored(core_database: Location, bot_database: Location) -> list[str]:
    """Mark the databases on PostgreSQL as restored, for the next start; returns the settings that name them.

    It is for a server that was restored as a whole. Raises ResponderBotError.
    """
    settings = []
    for location, (schema, setting) in ((core_database, (SCHEMA, SETTING)), (bot_database, _BOTS)):
        if isinstance(location, PostgresqlUrl):
            forget_place(location, schema, setting=setting)
            settings.append(setting)
    return settings


STORE = Store("core", migrate, open_database, "SELECT host FROM owner WHERE stopped = 0 AND lease_until > :now")
