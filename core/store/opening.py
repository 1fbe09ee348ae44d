"""Opening the store where it belongs, or saying why not."""

from pathlib import Path

from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.store.schema import migrate


def open_database(path: Path) -> Database:
    """The store, private to this user, made if there is none.

    Raises ResponderBotError("unavailable") with the file's name.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # what SQLite puts beside it gets the same mode
        return Database(path, migrate)
    except OSError as error:
        sentence = f"The database {path} can't be opened ({error.strerror}); name another with [core] database."
        raise ResponderBotError("unavailable", sentence) from error
