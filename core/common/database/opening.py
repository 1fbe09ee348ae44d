"""Open a database on PostgreSQL, if what that needs is installed."""

from typing import TYPE_CHECKING

from core.common.database.location import PostgresqlUrl, check_installed

if TYPE_CHECKING:
    from core.common.database.postgresql import PostgresqlDatabase

CORES_SCHEMA = "responder_core"
CORES_TABLE = "sequence"  # which only core's tables have


def postgresql_database() -> "type[PostgresqlDatabase]":
    """The class, imported only where it is used. Raises ResponderBotError("bad_request") without psycopg."""
    check_installed()
    from core.common.database.postgresql import PostgresqlDatabase

    return PostgresqlDatabase


def forget_place(url: PostgresqlUrl, schema: str, suffix: str = "") -> None:
    """Mark these tables as restored, for the next start. Raises ResponderBotError."""
    check_installed()
    from core.common.database.postgresql import forget

    forget(url.text, schema, suffix)
