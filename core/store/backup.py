"""A consistent copy of a SQLite file while others write to it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from core.errors import ResponderBotError


def copy(source: Path, target: Path) -> None:
    """Copy `source` to a new file that only this user can read. Blocks.

    Raises ResponderBotError("exists") for a target that is there already, "not_found" for a source that is not,
    "unavailable" where the copy fails; then nothing is left behind.
    """
    if not source.is_file():
        raise ResponderBotError("not_found", f"There is no database {source} to copy; see --config.")
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as error:
        raise ResponderBotError("exists", f"{target} exists already; name another file.") from error
    except OSError as error:
        raise ResponderBotError(
            "unavailable", f"{target} can't be written ({error.strerror}); name another."
        ) from error
    try:
        with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as made:
            original.backup(made)
    except sqlite3.Error as error:
        target.unlink()
        sentence = f"{source} can't be copied to {target} ({error}); mend that, or name another file."
        raise ResponderBotError("unavailable", sentence) from error
