"""Triggers that fail each transaction which changes a user, link, group, key or decision without a row of the audit."""

from core.common.database import Database, Transaction
from core.common.database.sqlite.database import SqliteDatabase

# What a change leaves here, the row of the audit takes away; a deferred constraint fails the commit of the rest.
_SQLITE_TABLES = """
CREATE TABLE IF NOT EXISTS no_row (id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS unaudited (
  object TEXT, missing INTEGER REFERENCES no_row (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER IF NOT EXISTS audited AFTER INSERT ON audit BEGIN
  DELETE FROM unaudited WHERE object = NEW.object OR (NEW.what = 'pruned' AND object = 'deleted'); END
"""
_POSTGRESQL_TABLES = """
CREATE TABLE unaudited (object TEXT);
CREATE FUNCTION member(doc TEXT, name TEXT) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
  RETURN CAST(doc AS JSONB) -> name; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;
CREATE FUNCTION audited() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM unaudited WHERE object = NEW.object OR (NEW.what = 'pruned' AND object = 'deleted'); RETURN NULL; END $$;
CREATE FUNCTION missing() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (SELECT FROM unaudited WHERE object = NEW.object) THEN
    RAISE 'no row of the audit for %', NEW.object USING ERRCODE = '23503'; END IF; RETURN NULL; END $$;
CREATE TRIGGER audited AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audited();
CREATE CONSTRAINT TRIGGER missing AFTER INSERT ON unaudited DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION missing()
"""
_RIGHTS = {'"user"': "{}.login", "slack_link": "{}.login", "group_member": "'@' || {}.name"}
_UNLESS = {('"user"', "UPDATE"): "OLD.decided_at = NEW.decided_at"}  # the vote itself has a row
_DECIDED = ("dispatched_at", "cancelled_by", "awaits_approval")
_IN_DOC = ("approval", "undo", "measure", "outcome")


def _changes(is_sqlite: bool) -> list[tuple[str, str, str, str]]:
    """Table, operation, what it changes and a condition, of each change that needs a row."""
    found = [
        (table, operation, key.format("OLD" if operation == "DELETE" else "NEW"), _UNLESS.get((table, operation), ""))
        for table, key in _RIGHTS.items()
        for operation in ("INSERT", "UPDATE", "DELETE")
    ]
    differs = "{0} IS NOT {1}" if is_sqlite else "{0} IS DISTINCT FROM {1}"
    member = "member({}.doc, '{}')"
    if is_sqlite:
        member = "CASE WHEN json_valid({0}.doc) THEN json_extract({0}.doc, '$.{1}') END"
    columns = [(f"OLD.{name}", f"NEW.{name}") for name in _DECIDED]
    columns += [(member.format("OLD", name), member.format("NEW", name)) for name in _IN_DOC]
    changed = " OR ".join(differs.format(*pair) for pair in columns)
    readable = " AND ".join(
        f"{member.format(row, '_id')} IS NOT NULL" for row in ("OLD", "NEW")
    )  # not damaged by a test
    changed = f"{readable} AND ({changed})"
    return [
        *found,
        ("api_key", "INSERT", "NEW.login", ""),
        ("api_key", "DELETE", "OLD.login", ""),
        ("api_key", "UPDATE", "NEW.login", differs.format("OLD.expires_at", "NEW.expires_at")),
        ("action", "INSERT", "'~' || NEW.id", ""),
        ("action", "UPDATE", "'~' || NEW.id", changed),
        ("action", "DELETE", "'deleted'", ""),
    ]


def _statements(is_sqlite: bool) -> list[str]:
    if not is_sqlite:
        made = [_POSTGRESQL_TABLES]
        for number, (table, operation, changed, condition) in enumerate(_changes(is_sqlite)):
            when = f" WHEN ({condition})" if condition else ""
            made += [
                f"CREATE FUNCTION note_{number}() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN"
                f" INSERT INTO unaudited (object) VALUES ({changed}); RETURN NULL; END $$;"
                f" CREATE TRIGGER note_{number} AFTER {operation} ON {table} FOR EACH ROW{when}"
                f" EXECUTE FUNCTION note_{number}()"
            ]
        return made
    made = [part for part in _SQLITE_TABLES.split(";\n") if part.strip()]
    made = [*made[:2], ";\n".join(made[2:])]
    for number, (table, operation, changed, condition) in enumerate(_changes(is_sqlite)):
        when = f" WHEN {condition}" if condition else ""
        made.append(
            f"CREATE TRIGGER IF NOT EXISTS note_{number} AFTER {operation} ON {table}{when} BEGIN"
            f" INSERT INTO unaudited (object, missing) VALUES ({changed}, 1); END"
        )
    return made


async def require_rows(database: Database) -> Database:
    """Have this database refuse changes without a row; on SQLite only what is written through this object."""
    made = "SELECT 1 AS made WHERE to_regclass('unaudited') IS NOT NULL"
    if isinstance(database, SqliteDatabase):
        database._writer_connection.execute("PRAGMA foreign_keys = ON")
        made = "SELECT 1 AS made FROM sqlite_master WHERE name = 'unaudited'"
    if not await database.read(lambda reads: reads.rows(made)):

        def make(tx: Transaction) -> None:
            for statement in _statements(isinstance(database, SqliteDatabase)):
                tx.run(statement)

        await database.transaction(make)
    return database
