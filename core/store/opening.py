"""Open core's database."""

from pathlib import Path

from core.common.database import Database
from core.common.database.sqlite import SqliteDatabase
from core.common.errors import ResponderBotError
from core.common.private_files import create_database
from core.store.schema import migrate


def open_database(path: Path) -> Database:
    """Open the database, or create it; only this account can read it. Raises ResponderBotError("unavailable")."""
    try:
        create_database(path)
        return SqliteDatabase(path, migrate)
    except OSError as error:
        sentence = f"The database {path} can't be opened ({error.strerror}); name another with [core] database."
        raise ResponderBotError("unavailable", sentence) from error
