"""Open core's database."""

from pathlib import Path

from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.store.schema import migrate


def open_database(path: Path) -> Database:
    """Open the database, or create it with mode 0600. Raises ResponderBotError("unavailable")."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # SQLite gives its files beside it the same mode
        return Database(path, migrate)
    except OSError as error:
        sentence = f"The database {path} can't be opened ({error.strerror}); name another with [core] database."
        raise ResponderBotError("unavailable", sentence) from error
