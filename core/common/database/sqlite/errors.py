"""SQLite's errors: which mean that the file is damaged or can't be used now; all others are bugs."""

import sqlite3

DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FILE_ERRORS = (
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM),
    *DAMAGE,
)

STORE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter when SQLite's message quotes damaged text


def code_of(error: Exception) -> int | None:
    """SQLite's primary result code; None if Python failed to decode what was read."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_file_error(error: Exception) -> bool:
    return is_damage(error) or code_of(error) in FILE_ERRORS


def is_damage(error: Exception) -> bool:
    """Whether the content of the file is damaged, such as text that is not valid UTF-8."""
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, UnicodeDecodeError)  # such as in a table's name
    code = code_of(error)
    return code in DAMAGE or (code is None and "decode" in str(error))


def describe(error: Exception) -> str:
    """SQLite's message. Python's would quote the damaged text, which may be confidential."""
    return "a text in it is not valid UTF-8" if is_damage(error) and code_of(error) is None else str(error)
