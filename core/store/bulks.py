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
    outcome = "CASE WHEN json_valid(doc) THEN json_extract(doc, '$.outcome') END AS outcome"
    return reads.rows(f"SELECT id, status, {outcome} FROM action WHERE bulk_id = :id", {"id": bulk_id})


def docs_of(reads: Reads, bulk_id: int) -> dict[int, str]:
    """The response JSON of the actions of a bulk, by number."""
    rows = reads.rows("SELECT id, doc FROM action WHERE bulk_id = :id", {"id": bulk_id})
    return {row["id"]: row["doc"] for row in rows}


def find_all(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """Several bulks, without their requests and targets."""
    return reads.rows(
        "SELECT id, created_by, created_at, responder_name, total, refused, retried_by FROM bulk"
        " WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id",
        {"ids": json.dumps(list(bulk_ids))},
    )


def counts(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """How many actions of each bulk have each status: `bulk_id, status, count`; read from an index alone."""
    return reads.rows(
        "SELECT bulk_id, status, count(*) AS count FROM action"
        " WHERE bulk_id IN (SELECT value FROM json_each(:ids)) AND bulk_id IS NOT NULL GROUP BY bulk_id, status",
        {"ids": json.dumps(list(bulk_ids))},
    )
