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


FUNCTIONS = r"""
-- The members of a bound list.
CREATE FUNCTION json_each(list TEXT) RETURNS TABLE (value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT * FROM json_array_elements_text(CAST(replace(list, '\u0000', '\ufffd') AS JSON)) $$;
CREATE FUNCTION min(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN least(one, other) END $$;
CREATE FUNCTION max(one BIGINT, other BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$ SELECT CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN greatest(one, other) END $$;
"""
"""Functions of SQLite's that our statements use on PostgreSQL too; made by each schema's first migration."""
