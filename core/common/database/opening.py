"""Open a database on PostgreSQL, if what that needs is installed."""

from collections.abc import Callable, Sequence

from core.common.database.base import Database, Transaction
from core.common.database.location import PostgresqlUrl, check_installed
from core.common.database.schema import Migration, Opening

SETTING = "[core] database"
CORES_SCHEMA = "responder_core"
CORES_TABLE = "sequence"  # which only core's tables have


def open_postgresql(
    url: PostgresqlUrl,
    schema: str,
    migrations: Sequence[Migration],
    prepare: Callable[[Transaction, bool], None],
    *,
    table: str,
    setting: str,
    opening: Opening,
    suffix: str = "",
    read_limit_s: float | None = None,
) -> Database:
    """Open the database and bring its schema up to date by `migrations`; `setting` names the setting of the URL.

    `table` is one that these tables have always had, and no other store's. `suffix` is for a store beside the one whose
    schema the URL may name. `prepare` is called in the same transaction,
    with whether the tables are a copy that was restored from a dump. A short read that takes longer than `read_limit_s`
    fails. Raises ResponderBotError.
    """
    check_installed(setting)
    from core.common.database.postgresql import PostgresqlDatabase

    return PostgresqlDatabase(
        url.text,
        schema,
        migrations,
        prepare,
        table=table,
        setting=setting,
        opening=opening,
        suffix=suffix,
        read_limit_s=read_limit_s,
    )


def forget_place(url: PostgresqlUrl, schema: str, *, setting: str, suffix: str = "") -> None:
    """Mark these tables as restored, for the next start. Raises ResponderBotError."""
    check_installed(setting)
    from core.common.database.postgresql import forget

    forget(url.text, schema, setting, suffix)
