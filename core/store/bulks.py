"""SQL for runs of one responder on several objects at once."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction

_COLUMNS = "id, created_by, created_at, responder_name, request, targets, total, refused, retried_by"


def insert(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Store a bulk. `values` has a key for each parameter of the statement."""
    tx.run(
        "INSERT INTO bulk (id, created_by, created_at, responder_name, request, targets, total, refused)"
        " VALUES (:id, :created_by, :created_at, :responder_name, :request, :targets, :total, :refused)",
        values,
    )


def find(reads: Reads, bulk_id: int) -> Row | None:
    return reads.row(f"SELECT {_COLUMNS} FROM bulk WHERE id = :id", {"id": bulk_id})


def set_retried(tx: Transaction, bulk_id: int, retried_by: int) -> None:
    tx.run("UPDATE bulk SET retried_by = :by WHERE id = :id", {"id": bulk_id, "by": retried_by})


def actions_of(reads: Reads, bulk_id: int) -> list[Row]:
    """The actions of a bulk: `id, status, outcome`."""
    return reads.rows("SELECT id, status, outcome FROM action WHERE bulk_id = :id", {"id": bulk_id})


def docs_of(reads: Reads, bulk_id: int) -> dict[int, str]:
    """The response JSON of the actions of a bulk, by number."""
    rows = reads.rows("SELECT id, doc FROM action WHERE bulk_id = :id", {"id": bulk_id})
    return {row["id"]: row["doc"] for row in rows}


def awaiting(reads: Reads, bulk_id: int) -> list[int]:
    """The actions of a bulk that wait for approval, oldest first."""
    rows = reads.rows("SELECT id FROM action WHERE bulk_id = :id AND awaits_approval = 1 ORDER BY id", {"id": bulk_id})
    return [row["id"] for row in rows]


def find_all(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """Several bulks, without their requests."""
    return reads.rows(
        "SELECT id, created_by, created_at, responder_name, targets, total, refused, retried_by FROM bulk"
        " WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids)) ORDER BY id",
        {"ids": json.dumps(list(bulk_ids))},
    )


def counts(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """How many actions of each bulk are in which state.

    `bulk_id, status, outcome` (of failures), `awaits` (1: for approval), `undo_status`, `count`,
    `expires_at` (the first, ms), `release_at` (the last, ms), `severity` (the highest), `first_id` of the actions.
    """
    return reads.rows(
        "SELECT bulk_id, status, CASE status WHEN 'Failure' THEN outcome END AS outcome,"
        " awaits_approval AS awaits,"
        " CASE status WHEN 'Success' THEN undo_status END AS undo_status,"
        " count(*) AS count, min(approval.expires_at) AS expires_at, min(action.id) AS first_id,"
        " max((SELECT severity FROM object WHERE object.id = action.root_id)) AS severity,"
        " max((SELECT max(due.at) FROM in_force JOIN due ON due.kind = 'undo' AND due.id = in_force.id"
        " WHERE in_force.action_id = action.id)) AS release_at FROM action"
        " LEFT JOIN approval ON approval.id = action.id"
        " WHERE bulk_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
        " GROUP BY bulk_id, status, outcome, awaits, undo_status",
        {"ids": json.dumps(list(bulk_ids))},
    )
