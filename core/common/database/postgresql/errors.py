"""PostgreSQL's errors: which mean that it can't be used now, in words without secrets; all others are bugs."""

import psycopg
from psycopg import errors

_UNAVAILABLE = (
    *(psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError),
    *(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction, errors.UndefinedTable, errors.UndefinedColumn),
    *(errors.InvalidSchemaName, errors.FeatureNotSupported),
)
_OF_A_STATEMENT = (errors.InFailedSqlTransaction, errors.ProgramLimitExceeded)  # although psycopg calls them otherwise
_DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)

ADVICE = (
    ("password authentication failed", "correct the user and the password in the settings"),
    ("no password supplied", "put the password into the settings"),
    ("does not exist", "create it, or name another in the settings"),
    ("onnection refused", "start PostgreSQL there, or correct the settings"),
    ("no such file", "start PostgreSQL there, or correct the settings"),
    ("imeout expired", "start PostgreSQL there, or correct the settings"),
    ("translate host name", "correct the host in the settings"),
    ("pg_hba.conf", "allow this host and user in the server's pg_hba.conf"),
    ("session is read-only", "name the server that takes writes in the settings"),
    ("invalid response", "name the host and port of a PostgreSQL in the settings"),
    ("starting up", "try again in a moment"),
    ("too many clients", "raise max_connections of the server"),
    ("remaining connection slots", "raise max_connections of the server"),
)
_OTHERWISE = "correct that, or name another database in the settings"


def is_unavailable(error: BaseException) -> bool:
    """Whether the database can't be used now, rather than a statement being wrong."""
    return isinstance(error, _UNAVAILABLE) and not isinstance(error, errors.ProgramLimitExceeded)


def is_in_doubt(error: BaseException) -> bool:
    """Whether nothing that the transaction wrote can be committed any more, such as after a lost connection.

    Not after a statement that failed, for which all others are refused up to the last savepoint.
    """
    if isinstance(error, _OF_A_STATEMENT):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError)


def is_damage(error: BaseException) -> bool:
    """Whether PostgreSQL has found that its files are damaged."""
    return isinstance(error, _DAMAGE)


def describe(error: BaseException) -> str:
    """The error in PostgreSQL's words, on one line; never what a row holds."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    # Of a connection: `connection to server at ... failed: FATAL:  ...` for each address that was tried.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = next((line for line in lines if "failed:" in line or "FATAL" in line), lines[0] if lines else "no answer")
    for before in ("connection failed: ", "FATAL:  "):
        message = message.rpartition(before)[2]
    return (message.rpartition(" failed: ")[2] or message).rstrip(".")


def advice(message: str) -> str:
    """What to do about a database that can't be opened."""
    return next((text for part, text in ADVICE if part in message), _OTHERWISE)
