"""SQL for alerts, cases, tasks, logs, artifacts and case templates: one table with a column `kind`."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.models import parse_id
from core.store.database import sequences

_NAMES: Mapping[str, str] = {
    "alert": "Alert",
    "case": "Case",
    "case_task": "Task",
    "case_task_log": "Log",
    "case_artifact": "Artifact",
    "case_template": "CaseTemplate",
    "comment": "Comment",
}


def parsed(doc: str) -> Any:
    """The JSON of a stored object. Raises ResponderBotError("unavailable") if it is damaged."""
    try:
        return from_json(doc)
    except ValueError as error:
        raise ResponderBotError("unavailable", "The stored record can't be read; restore a backup.") from error


def next_id(tx: Transaction) -> int:
    """Allocate an id that no object or action has had."""
    return next_ids(tx, 1)[0]


def next_ids(tx: Transaction, count: int) -> range:
    """Allocate `count` such ids at once."""
    return sequences.take(tx, "id", count)


@dataclass(frozen=True, slots=True)
class NewObject:
    id: int
    doc: str
    unique_key: str | None = None


def insert(
    tx: Transaction, object_id: int, kind: str, doc: str, *, parent_id: int | None = None, unique_key: str | None = None
) -> None:
    """Insert an object. Raises ResponderBotError("exists") if its unique key is taken."""
    insert_all(tx, kind, [NewObject(object_id, doc, unique_key)], parent_id=parent_id)


def insert_all(tx: Transaction, kind: str, new: Collection[NewObject], *, parent_id: int | None = None) -> None:
    """Insert objects of one kind and one parent. Raises as `insert` does."""
    rows = (
        {"id": item.id, "kind": kind, "parent_id": parent_id, "unique_key": item.unique_key, "doc": item.doc}
        for item in new
    )
    if tx.insert("object", *rows, otherwise="DO NOTHING") < len(new):
        raise ResponderBotError("exists", "That name is taken; choose another.")


def update(tx: Transaction, object_id: int, doc: str) -> None:
    tx.run("UPDATE object SET doc = :doc WHERE id = :id", {"id": object_id, "doc": doc})


def set_unique_key(tx: Transaction, object_id: int, key: str) -> None:
    tx.run("UPDATE object SET unique_key = :key WHERE id = :id", {"id": object_id, "key": key})


def delete(tx: Transaction, object_id: int) -> bool:
    """Delete an object; False if there is none. Rows of most other tables stay."""
    return bool(tx.run("DELETE FROM object WHERE id = :id", {"id": object_id}))


def find(reads: Reads, kind: str, object_id: int) -> Row | None:
    """The row of one object (`id, kind, parent_id, doc`), if it is of that kind."""
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE id = :id AND kind = :kind",
        {"id": object_id, "kind": kind},
    )


def require(reads: Reads, kind: str, object_id: int | None) -> Row:
    """As `find`. Raises ResponderBotError("not_found")."""
    row = None if object_id is None else find(reads, kind, object_id)
    if row is None:
        raise missing(kind)
    return row


def missing(kind: str) -> ResponderBotError:
    """The error for an id, a name or a number that no object of that kind has."""
    return ResponderBotError("not_found", f"{_NAMES[kind]} not found")


def find_any(reads: Reads, object_id: int) -> Row | None:
    """The row of an object of any kind (`id, kind, parent_id, doc`)."""
    return reads.row("SELECT id, kind, parent_id, doc FROM object WHERE id = :id", {"id": object_id})


def severities(reads: Reads, numbers: Iterable[int]) -> dict[int, int]:
    """How severe these alerts and cases are."""
    sql = "SELECT id, severity FROM object WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
    return {row["id"]: row["severity"] for row in reads.rows(sql, {"ids": json.dumps(list(numbers))})}


def alerts_of(reads: Reads, case_id: int, limit: int) -> list[int]:
    """The alerts that became this case or were merged into it, oldest first."""
    return reads.column(
        "SELECT id FROM object WHERE case_id = :case AND kind = 'alert' ORDER BY id LIMIT :limit",
        {"case": f"~{case_id}", "limit": limit},
    )


def alerts_in(reads: Reads, case_id: int, limit: int) -> list[Row]:
    """Likewise, with their JSON."""
    return reads.rows(
        "SELECT id, doc FROM object WHERE case_id = :case AND kind = 'alert' ORDER BY id LIMIT :limit",
        {"case": f"~{case_id}", "limit": limit},
    )


def open_alerts_of(reads: Reads, assignee: str, sees_up_to: int, limit: int) -> list[Row]:
    """The open alerts (`id, severity`) of an assignee, or with "" of nobody, up to a TLP, the most severe first."""
    return reads.rows(OPEN_ALERTS, {"assignee": assignee, "sees_up_to": sees_up_to, "limit": limit})


OPEN_ALERTS = """SELECT id, severity FROM object INDEXED BY object_open
    WHERE kind = 'alert' AND status IN ('New', 'Updated') AND coalesce(assignee, '') = :assignee AND tlp <= :sees_up_to
    ORDER BY severity DESC, id DESC LIMIT :limit"""


def exists(reads: Reads, kind: str, object_id: int) -> bool:
    sql = "SELECT 1 FROM object WHERE id = :id AND kind = :kind"
    return reads.row(sql, {"id": object_id, "kind": kind}) is not None


def existing(reads: Reads, kind: str, object_ids: Collection[int]) -> set[int]:
    """Those of `object_ids` that objects of this kind have."""
    return set(
        reads.column(
            "SELECT id FROM object WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids)) AND kind = :kind",
            {"ids": json.dumps(list(object_ids)), "kind": kind},
        )
    )


def find_unique(reads: Reads, kind: str, unique_key: str) -> Row | None:
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE kind = :kind AND unique_key = :key",
        {"kind": kind, "key": unique_key},
    )


def named(reads: Reads, kind: str, text: str, keys: Iterable[str]) -> Row:
    """The object of a kind with this id or, else, with the first of these keys that one has. Raises "not_found"."""
    number = parse_id(text)
    row = None if number is None else find(reads, kind, number)
    row = row or next(filter(None, (find_unique(reads, kind, key) for key in keys)), None)
    if row is None:
        raise missing(kind)
    return row


def by_unique_keys(reads: Reads, kind: str, unique_keys: Iterable[str]) -> dict[str, Row]:
    """The objects of a kind (`id, doc, unique_key`) with these keys, by key."""
    rows = reads.rows(
        "SELECT id, doc, unique_key FROM object"
        " WHERE kind = :kind AND unique_key IN (SELECT value FROM json_each(:keys))",
        {"kind": kind, "keys": json.dumps(list(unique_keys))},
    )
    return {row["unique_key"]: row for row in rows}


def insert_alert_artifacts(tx: Transaction, alert_id: int, artifact_ids: Iterable[int]) -> None:
    """Record which alert has these artifacts, which are stored in it."""
    rows = ({"id": number, "alert_id": alert_id, "artifact_id": number} for number in artifact_ids)
    tx.insert("alert_artifact", *rows)


def replace_artifacts(tx: Transaction, ids: Mapping[int, int]) -> None:
    """Redirect ids of alerts' artifacts to equal artifacts of a case."""
    tx.run_all(
        "UPDATE alert_artifact SET artifact_id = :now WHERE artifact_id = :before",
        ({"before": before, "now": now} for before, now in ids.items()),
    )


def find_alert_artifact(reads: Reads, object_id: int) -> Row | None:
    """`alert_id, artifact_id` of an id that an artifact got in an alert; `artifact_id` is the one that it has now."""
    return reads.row("SELECT alert_id, artifact_id FROM alert_artifact WHERE id = :id", {"id": object_id})


def alerts_with(reads: Reads, artifact_id: int) -> list[int]:
    """The alerts that have or had an artifact, oldest first."""
    sql = "SELECT DISTINCT alert_id FROM alert_artifact WHERE artifact_id = :id ORDER BY alert_id"
    return reads.column(sql, {"id": artifact_id})


def alerts_with_others(reads: Reads, case_id: int, limit: int) -> list[Row]:
    """The alerts of a case (`id, doc`) with artifacts that it doesn't have, oldest first."""
    return reads.rows(
        "SELECT id, doc FROM object AS alert WHERE case_id = :case AND kind = 'alert' AND EXISTS"
        " (SELECT 1 FROM alert_artifact WHERE alert_id = alert.id AND NOT EXISTS"
        " (SELECT 1 FROM object WHERE object.id = artifact_id AND parent_id = :parent)) ORDER BY id LIMIT :limit",
        {"case": f"~{case_id}", "parent": case_id, "limit": limit},
    )


def alerts_by_artifact(reads: Reads, case_id: int) -> dict[int, tuple[int, int]]:
    """By the id of each artifact of a case: the highest TLP of the alerts that have it, and how many do.

    Red if none can be read.
    """
    rows = reads.rows(
        "SELECT artifact.id, max(alert.tlp) AS level FROM object AS artifact"
        " JOIN alert_artifact ON artifact_id = artifact.id JOIN object AS alert ON alert.id = alert_id"
        " WHERE artifact.parent_id = :case_id AND artifact.kind = 'case_artifact' GROUP BY artifact.id, alert_id",
        {"case_id": case_id},
    )
    levels = grouped((row["id"], row["level"]) for row in rows)  # one of each alert
    return {id_: (max((one for one in of if one is not None), default=3), len(of)) for id_, of in levels.items()}


async def measure(database: Database, object_ids: Collection[int]) -> tuple[int, int]:
    """Number of characters and approximate number of values in the JSON of these objects, read in the background."""
    rows = await database.fetch_in_background(
        "SELECT coalesce(sum(length(doc)), 0) AS chars,"
        " coalesce(sum(length(doc) - length(replace(doc, ',', ''))), 0) AS commas"
        " FROM object WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))",
        {"ids": json.dumps(list(object_ids))},
    )
    return rows[0]["chars"], rows[0]["commas"] + len(object_ids)


def children(reads: Reads, kind: str, parent_id: int) -> list[Row]:
    """The objects of a kind with this parent, oldest first."""
    return reads.rows(
        "SELECT id, kind, parent_id, doc FROM object WHERE parent_id = :parent AND kind = :kind ORDER BY id",
        {"parent": parent_id, "kind": kind},
    )
