"""The tables of core, as migrations: each runs once, in order, and is never changed after it has landed.

The first tables were edited in place for a time, so what a migration finds may already have what it would make: it
looks at the tables, not only at which migrations are recorded (`tests/core/store/earlier` has a file of each shape).
"""

import secrets

from sqlite_utils import Database, Migrations

from core.common.database.sqlite import apply
from core.store.backup import MARK

migrations = Migrations("core")


@migrations()
def first_tables(db: Database) -> None:
    # One number space for every object and action (semantics.md 1), kept in a row so that it is the same everywhere.
    db.table("sequence").create({"id": int, "last": int}, pk="id")
    db.table("sequence").insert({"id": 1, "last": 0})

    # doc: the answer's JSON, ready-made. unique_key: what may exist once of a kind (an alert's reference, a
    # template's name).
    db.table("object").create(
        {"id": int, "kind": str, "parent_id": int, "unique_key": str, "doc": str},
        pk="id",
        not_null={"kind", "doc"},
    )
    db.table("object").create_index(["kind", "unique_key"], unique=True)
    db.table("object").create_index(["kind", "id"])
    db.table("object").create_index(["parent_id", "kind", "id"])

    # doc: the answer's JSON. whole_report: only where the one in doc was cut. handed_at: when the engine was about to
    # be called. owner and lease_until: which core follows it. approval_expires_at: only while it waits for people.
    db.table("action").create(
        {
            "id": int,
            "kind": str,
            "object_id": int,
            "root_id": int,
            "responder_name": str,
            "engine_name": str,
            "engine_responder_id": str,
            "status": str,
            "created_by": str,
            "acted_through": str,
            "created_at": int,
            "handed_at": int,
            "ended_at": int,
            "owner": str,
            "lease_until": int,
            "engine_job_id": str,
            "pid": int,
            "pid_started": int,
            "cancelled_by": str,
            "parameters": str,
            "approval_expires_at": int,
            "doc": str,
            "whole_report": str,
        },
        pk="id",
        not_null={"kind", "object_id", "status", "created_by", "created_at", "doc"},
    )
    db.table("action").create_index(["object_id", "id"])
    db.table("action").create_index(["created_by", "id"])
    db.table("action").create_index(["status", "responder_name"])
    db.execute("CREATE INDEX action_open ON action (id) WHERE status IN ('Waiting', 'InProgress')")

    db.table("idempotency").create(
        {"login": str, "key": str, "body": str, "action_id": int, "created_at": int}, pk=("login", "key")
    )
    db.table("idempotency").create_index(["created_at"])

    db.execute(
        "CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, type TEXT NOT NULL,"
        " object_type TEXT NOT NULL, object_id INTEGER NOT NULL, root_id INTEGER NOT NULL, user TEXT NOT NULL)"
    )
    db.table("event").create_index(["at"])

    db.table("user").create(
        {"login": str, "profile": str, "clearance": int, "key_hash": str, "disabled": int, "created_at": int},
        pk="login",
        not_null={"profile", "clearance"},
    )
    db.table("user").create_index(["key_hash"], unique=True)
    db.table("slack_link").create({"team": str, "slack_user": str, "login": str}, pk=("team", "slack_user"))
    db.table("slack_link").create_index(["login"])

    # What each engine offered when it was last heard of, so that a list is whole while an engine is down.
    db.table("catalogue").create({"engine": str, "doc": str, "at": int}, pk="engine")


@migrations()
def a_lease_for_each_core(db: Database) -> None:
    if db.table("owner").exists():
        return  # made by a commit that had all of this among its first tables
    # The cores that follow actions: one whose lease is over, or that has no row, has lost them.
    db.table("owner").create({"id": str, "lease_until": int}, pk="id", not_null={"lease_until"})
    db.execute("DROP INDEX action_open")
    db.execute("ALTER TABLE action DROP COLUMN lease_until")
    db.execute("CREATE INDEX action_open ON action (owner, id) WHERE status IN ('Waiting', 'InProgress')")
    db.execute("DROP INDEX idx_event_at")  # events are forgotten from the oldest on, which needs none


@migrations()
def what_the_first_commits_lacked(db: Database) -> None:
    action = db.table("action")
    if "hold" in action.columns_dict:  # of a time when actions could not be recorded yet
        action.add_column("approval_expires_at", int)
        db.execute("ALTER TABLE action DROP COLUMN hold")
    action.create_index(["status", "responder_name"], if_not_exists=True)


@migrations()
def an_end_in_several_commits(db: Database) -> None:
    # The ends whose operations are being applied: the report, and what became of those that were. A core that dies
    # meanwhile leaves it here, and the next one goes on behind the last of them.
    db.table("ending").create(
        {"action_id": int, "at": int, "report": str, "outcomes": str},
        pk="action_id",
        not_null={"at", "report", "outcomes"},
    )
    db.execute("ALTER TABLE action ADD COLUMN whole_operations TEXT")  # only where those in doc were cut


@migrations()
def identity_and_backups(db: Database) -> None:
    db.table("identity").create({"id": str}, pk="id")
    db.table("identity").insert({"id": secrets.token_hex(16)})
    # made_at: when the backup was made. Events between last_event and next_event were lost with what was replaced.
    db.table("restore").create(
        {"id": int, "at": int, "made_at": int, "last_event": int, "next_event": int},
        pk="id",
        not_null={"at", "made_at", "last_event", "next_event"},
    )
    db.execute(MARK)


@migrations()
def fields_of_artifacts(db: Database) -> None:
    # Answers are what is stored, so artifacts of earlier cores get what those of today have. Damage stays as it is.
    added = (
        "json_set({doc}, '$.startDate', json_extract({doc}, '$.createdAt'),"
        " '$.reports', json_object(), '$.stats', json_object())"
    )
    db.execute(f"UPDATE object SET doc = {added.format(doc='doc')} WHERE kind = 'case_artifact' AND json_valid(doc)")
    each = f"SELECT json_group_array({added.format(doc='value')}) FROM json_each(doc, '$.artifacts')"
    db.execute(
        f"UPDATE object SET doc = json_set(doc, '$.artifacts', ({each})) WHERE kind = 'alert'"
        " AND CASE WHEN json_valid(doc) THEN json_array_length(doc, '$.artifacts') > 0 END"
    )


@migrations()
def columns_that_nothing_reads(db: Database) -> None:
    for column in ("pid", "pid_started", "ended_at"):
        db.execute(f"ALTER TABLE action DROP COLUMN {column}")
    db.execute("ALTER TABLE action RENAME COLUMN handed_at TO dispatched_at")


def migrate(db: Database) -> None:
    """Bring core's tables up to date."""
    apply(migrations, db)
