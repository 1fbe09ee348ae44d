"""Core's tables, as migrations: each runs once, in order, and is never changed after it has landed.

For a time `first_tables` was edited in place, so a migration may find that a table already has what it would add. Such
migrations check the tables as well (`tests/core/store/earlier` has a database of each shape).
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from sqlite_utils import Database, Migrations

from core.common.database.sqlite import apply
from core.store.backup import MARK

migrations = Migrations("core")
NEEDED = "undos"
"""The newest migration without which a process can't use the database; one that follows it only adds to the tables."""


@migrations()
def first_tables(db: Database) -> None:
    # Objects and actions share one sequence of ids.
    db.table("sequence").create({"id": int, "last": int}, pk="id")
    db.table("sequence").insert({"id": 1, "last": 0})

    # doc: the response JSON, ready to send. unique_key: unique for each kind, such as an alert's reference or a
    # template's name.
    db.table("object").create(
        {"id": int, "kind": str, "parent_id": int, "unique_key": str, "doc": str},
        pk="id",
        not_null={"kind", "doc"},
    )
    db.table("object").create_index(["kind", "unique_key"], unique=True)
    db.table("object").create_index(["kind", "id"])
    db.table("object").create_index(["parent_id", "kind", "id"])

    # doc: the response JSON. whole_report: only if the one in doc was truncated. handed_at: when it was dispatched.
    # owner and lease_until: the core that follows it. approval_expires_at: only while it waits for approval.
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

    # The last known catalogue of each engine, so that lists are complete while an engine is down.
    db.table("catalogue").create({"engine": str, "doc": str, "at": int}, pk="engine")


@migrations()
def a_lease_for_each_core(db: Database) -> None:
    if db.table("owner").exists():
        return  # made by a commit whose first_tables had all of this
    # Leases of cores on their actions: one whose lease has expired, or that has no row, has lost them.
    db.table("owner").create({"id": str, "lease_until": int}, pk="id", not_null={"lease_until"})
    db.execute("DROP INDEX action_open")
    db.execute("ALTER TABLE action DROP COLUMN lease_until")
    db.execute("CREATE INDEX action_open ON action (owner, id) WHERE status IN ('Waiting', 'InProgress')")
    db.execute("DROP INDEX idx_event_at")  # events are deleted oldest first, which needs no index


@migrations()
def what_the_first_commits_lacked(db: Database) -> None:
    action = db.table("action")
    if "hold" in action.columns_dict:  # from before actions could be stored
        action.add_column("approval_expires_at", int)
        db.execute("ALTER TABLE action DROP COLUMN hold")
    action.create_index(["status", "responder_name"], if_not_exists=True)


@migrations()
def an_end_in_several_commits(db: Database) -> None:
    # Ends whose operations are being applied in several commits: the report, and the outcomes so far. If the core dies
    # the next one continues after the last outcome.
    db.table("ending").create(
        {"action_id": int, "at": int, "report": str, "outcomes": str},
        pk="action_id",
        not_null={"at", "report", "outcomes"},
    )
    db.execute("ALTER TABLE action ADD COLUMN whole_operations TEXT")  # only if those in doc were truncated


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
    # Response JSON is stored, so older artifacts need the fields that were added. Damaged JSON is left as it is.
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


@migrations()
def whole_parameters(db: Database) -> None:
    db.execute("ALTER TABLE action ADD COLUMN whole_parameters TEXT")  # only if those in doc were truncated


@migrations()
def alerts_by_case(db: Database) -> None:
    # As in objects.alerts_of. Alerts without a case, which are most, take no room in it; nor does damaged JSON.
    case = "CASE WHEN json_valid(doc) THEN json_extract(doc, '$.case') END"
    db.execute(f"CREATE INDEX alert_case ON object ({case}) WHERE kind = 'alert' AND {case} IS NOT NULL")


@migrations()
def outcomes_that_reports_tell(db: Database) -> None:
    # Of actions that did not simply succeed or fail. The status tells those, and rewriting all would take long.
    report = "CASE WHEN json_valid(doc) THEN json_extract(doc, '$.report') END"
    found = db.execute(
        f"SELECT id, status, cancelled_by, CASE WHEN json_valid({report}) THEN json_extract({report}, '$.message') END"
        " FROM action WHERE status = 'Deleted'"
        " OR (status = 'Failure' AND (dispatched_at IS NULL OR cancelled_by IS NOT NULL))"
    ).fetchall()
    for number, status, cancelled_by, message in found:
        outcome, ended_by = _outcome_in_message(status, cancelled_by, str(message))
        changes = {"$.outcome": outcome, "$.endedBy": ended_by}
        for path, value in changes.items():
            if value:
                change = "UPDATE action SET doc = json_set(doc, ?, ?) WHERE id = ? AND json_valid(doc)"
                db.execute(change, [path, value, number])


@migrations()
def assignees_of_alerts(db: Database) -> None:
    # Response JSON is stored, so older alerts need the field. Damaged JSON is left as it is.
    missing = "CASE WHEN json_valid(doc) THEN json_type(doc, '$.assignee') IS NULL END"
    db.execute(f"UPDATE object SET doc = json_set(doc, '$.assignee', NULL) WHERE kind = 'alert' AND {missing}")


@migrations()
def artifacts_of_alerts(db: Database) -> None:
    # Artifacts are stored in their alert, and once that is in a case as objects of the case as well. id: the one that
    # the artifact got in the alert. artifact_id: the one that it has now: another if the case had an equal one.
    db.table("alert_artifact").create(
        {"id": int, "alert_id": int, "artifact_id": int}, pk="id", not_null={"alert_id", "artifact_id"}
    )
    db.table("alert_artifact").create_index(["artifact_id"])
    # For the newest actions on the artifacts of a case.
    db.execute("CREATE INDEX action_on_artifact ON action (root_id, id) WHERE kind = 'case_artifact'")
    doc = "CASE WHEN json_valid(doc) THEN doc ELSE '{}' END"
    item_id = "CASE WHEN item.type = 'object' THEN json_extract(item.value, '$.id') END"
    number = f"CAST(substr({item_id}, 2) AS INTEGER)"
    db.execute(
        f"INSERT OR IGNORE INTO alert_artifact (id, alert_id, artifact_id) SELECT {number}, object.id, {number}"
        f" FROM object, json_each({doc}, '$.artifacts') AS item"
        f" WHERE object.kind = 'alert' AND {item_id} GLOB '~[0-9]*'"
    )
    # A case had copies of its alerts' artifacts under other ids; now both are one, as the case shows it.
    case = "CASE WHEN json_valid(doc) THEN json_extract(doc, '$.case') END"
    in_cases = f"SELECT id, {case}, doc FROM object WHERE kind = 'alert' AND {case} IS NOT NULL"
    for alert, case_id, text in db.execute(in_cases).fetchall():
        shown = json.loads(text)
        shown["artifacts"] = [_of_case(db, int(case_id[1:]), artifact) for artifact in shown.get("artifacts", [])]
        now = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        db.execute("UPDATE object SET doc = ? WHERE id = ?", [now, alert])


def _of_case(db: Database, case: int, artifact: Mapping[str, Any]) -> Mapping[str, Any]:
    """The case's artifact in place of an alert's that equals it."""
    file = artifact.get("attachment")
    identity = ["file", file["id"]] if file else [artifact.get("data") or ""]
    key = hashlib.sha256(json.dumps([case, artifact.get("dataType"), *identity]).encode()).hexdigest()
    found = db.execute(
        "SELECT id, doc FROM object WHERE kind = 'case_artifact' AND unique_key = ? AND json_valid(doc)", [key]
    ).fetchone()
    if found is None:
        return artifact
    change = "UPDATE alert_artifact SET artifact_id = ? WHERE id = CAST(substr(?, 2) AS INTEGER)"
    db.execute(change, [found[0], artifact.get("id") or ""])
    return {**dict.fromkeys(artifact), **json.loads(found[1])}


def _outcome_in_message(status: str, cancelled_by: str | None, message: str) -> tuple[str, str]:
    """What the sentence of a report tells: the outcome, and who brought it about; `""` for nothing."""
    cancelled, denied = "Cancelled by ", "Denied by "
    if status == "Deleted":
        return "cancelled", message.removeprefix(cancelled) if message.startswith(cancelled) else ""
    if cancelled_by is not None:
        is_stopped = message == f"{cancelled}{cancelled_by}" and not cancelled_by.startswith("core: ")
        return ("stopped", cancelled_by) if is_stopped else ("", "")
    if message.startswith(denied):
        return "denied", message.removeprefix(denied).partition(":")[0]
    return ("expired", "") if message.startswith(("Nobody agreed in time;", "Not approved in time;")) else ("", "")


@migrations()
def people_in_slack(db: Database) -> None:
    # Somebody in Slack who asked for access. login: the one that they got, or would get.
    db.table("access_request").create(
        {
            **{"id": int, "team": str, "slack_user": str, "name": str, "login": str, "status": str, "profile": str},
            **{"message": str, "created_at": int, "expires_at": int, "decided_by": str, "decided_at": int},
        },
        pk="id",
        not_null={"team", "slack_user", "name", "login", "status", "created_at", "expires_at"},
    )
    db.table("group_member").create({"name": str, "login": str}, pk=("name", "login"))


@migrations()
def runs_in_bulk(db: Database) -> None:
    # request: what was asked for, but for the targets. targets: each with its action, or why there is none.
    # retried_by: the bulk that ran again what had failed.
    db.table("bulk").create(
        {
            **{"id": int, "created_by": str, "created_at": int, "responder_name": str, "request": str, "targets": str},
            **{"total": int, "refused": int, "retried_by": int},
        },
        pk="id",
        not_null={"created_by", "created_at", "request", "targets", "total", "refused"},
    )
    db.execute("ALTER TABLE action ADD COLUMN bulk_id INTEGER")
    db.execute("CREATE INDEX action_in_bulk ON action (bulk_id, status) WHERE bulk_id IS NOT NULL")


@migrations()
def rules_of_responders(db: Database) -> None:
    # For rates: when a responder ran, and on what, whatever object it was (guards.SameTarget).
    db.execute(
        "CREATE INDEX action_dispatched ON action (responder_name, dispatched_at) WHERE dispatched_at IS NOT NULL"
    )
    db.execute("ALTER TABLE action ADD COLUMN target_key TEXT")
    # For breakers: the failures that may still count, and since when and until when a responder was paused.
    db.table("failure").create({"action_id": int, "responder_name": str, "at": int}, pk="action_id")
    db.table("failure").create_index(["responder_name", "at"])
    db.table("pause").create(
        {
            **{"id": int, "responder_name": str, "opened_at": int, "failures": int, "within_minutes": int},
            **{"action_id": int, "closed_at": int, "closed_by": str},
        },
        pk="id",
        not_null={"responder_name", "opened_at", "failures", "within_minutes", "action_id"},
    )
    db.execute("CREATE UNIQUE INDEX pause_open ON pause (responder_name) WHERE closed_at IS NULL")


@migrations()
def undos(db: Database) -> None:
    # undoes: the action that this one undoes. undo_at: when core undoes this one; null for never, and once it has.
    db.execute("ALTER TABLE action ADD COLUMN undoes INTEGER")
    db.execute("ALTER TABLE action ADD COLUMN undo_at INTEGER")
    db.execute("CREATE INDEX action_undo_at ON action (undo_at) WHERE undo_at IS NOT NULL")


@migrations()
def several_hosts(db: Database) -> None:
    # A row of owner is a core; host, version and started_at tell people which. beat: how often it renewed its lease, as
    # clocks of hosts differ. stopped: it has ended and left programs running. Cores of earlier releases set none.
    for column in ("host TEXT", "host_id TEXT", "version TEXT", "started_at INTEGER"):
        db.execute(f"ALTER TABLE owner ADD COLUMN {column}")
    for column in ("beat", "draining", "stopped"):
        db.execute(f"ALTER TABLE owner ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    # host_id: the host on which an action's program runs; null while there is none, and of a remote engine.
    db.execute("ALTER TABLE action ADD COLUMN host_id TEXT")
    db.execute(
        "CREATE INDEX action_unclaimed ON action (engine_name, id)"
        " WHERE status IN ('Waiting', 'InProgress') AND owner IS NULL AND approval_expires_at IS NULL"
    )
    # What each host offers. capacity: of its engine, null for one without limit.
    db.table("host_catalogue").create(
        {"host_id": str, "engine": str, "host": str, "up": int, "capacity": int, "doc": str, "at": int},
        pk=("host_id", "engine"),
        not_null={"host", "up", "doc", "at"},
    )
    # Hosts that were lost and have not come back. ended: how many actions ended with them.
    db.table("lost_host").create(
        {"host_id": str, "host": str, "at": int, "ended": int}, pk="host_id", not_null={"host", "at", "ended"}
    )


@migrations()
def number_of_the_last_event(db: Database) -> None:
    # The newest number ever given, whether or not its event is still there; PostgreSQL has a view of the same name.
    db.execute(
        "CREATE VIEW last_event AS SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0) AS seq"
    )


def migrate(db: Database) -> None:
    """Apply the migrations that are pending."""
    apply(migrations, db, NEEDED)
