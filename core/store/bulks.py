"""SQL for runs of one responder on several objects at once."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction

_COLUMNS = "id, created_by, created_at, responder_name, request, targets, total, refused, retried_by"


_LATER_END = "(SELECT id FROM approval WHERE action_id = action.id AND id <> action.id AND is_waiting = 1) AS later_end"


def insert(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Store a bulk: `id, created_by, created_at, responder_name, request, targets, total, refused`."""
    tx.insert("bulk", values)
    refused = {one["objectId"] for one in json.loads(values["targets"]) if "code" in one}
    tx.insert("bulk_refused", *({"object_id": one, "bulk_id": values["id"]} for one in refused))


def find(reads: Reads, bulk_id: int) -> Row | None:
    return next(iter(find_all(reads, [bulk_id])), None)


def set_retried(tx: Transaction, bulk_id: int, retried_by: int) -> None:
    tx.run("UPDATE bulk SET retried_by = :by WHERE id = :id", {"id": bulk_id, "by": retried_by})


def actions_of(reads: Reads, bulk_id: int) -> list[Row]:
    """The actions of a bulk: `id, object_id, status, outcome, is_undone` (1: by somebody, before its time)."""
    undone = "SELECT max(1) FROM in_force WHERE action_id = action.id AND is_due = 0 AND action.undo_status = 'undone'"
    columns = f"id, object_id, status, outcome, ({undone}) AS is_undone"
    return reads.rows(f"SELECT {columns} FROM action WHERE bulk_id = :id", {"id": bulk_id})


def docs_of(reads: Reads, bulk_id: int) -> dict[int, str]:
    """The response JSON of the actions of a bulk, by number."""
    rows = reads.rows("SELECT id, doc FROM action WHERE bulk_id = :id", {"id": bulk_id})
    return {row["id"]: row["doc"] for row in rows}


def awaiting(reads: Reads, bulk_id: int) -> list[int]:
    """The actions of a bulk that wait for approval, oldest first."""
    return reads.column(
        "SELECT id FROM action WHERE bulk_id = :id AND awaits_approval = 1 ORDER BY id", {"id": bulk_id}
    )


def later_ends(reads: Reads, bulk_id: int) -> dict[int, str]:
    """The ids of the extensions that wait for approval, by the actions of a bulk."""
    rows = reads.rows(f"SELECT id, {_LATER_END} FROM action WHERE bulk_id = :id", {"id": bulk_id})
    return {row["id"]: f"~{row['later_end']}" for row in rows if row["later_end"] is not None}


def told_of(reads: Reads, root_id: int) -> set[int]:
    """The bulks whose messages may name an alert or a case, since they have runs on it or were refused some.

    Likewise on what an alert shares with its case.
    """
    return set(
        reads.column(
            "SELECT bulk_id FROM action WHERE root_id = :id AND bulk_id IS NOT NULL UNION ALL SELECT bulk_id"
            " FROM alert_artifact JOIN action ON object_id = artifact_id WHERE alert_id = :id AND bulk_id IS NOT NULL"
            " UNION ALL SELECT bulk_id FROM bulk_refused WHERE object_id IN (SELECT '~' || id FROM (SELECT :id AS id"
            " UNION ALL SELECT artifact_id FROM alert_artifact WHERE alert_id = :id"
            " UNION ALL SELECT id FROM object WHERE parent_id = :id) AS named)",
            {"id": root_id},
        )
    )


def targets_of(reads: Reads, bulk_id: int) -> list[Any]:
    """What a bulk names, as it is stored."""
    row = find(reads, bulk_id)
    return [] if row is None else json.loads(row["targets"])


def refused_on(reads: Reads, object_id: int) -> list[int]:
    """The bulks that have no run on an object which they name."""
    return reads.column("SELECT bulk_id FROM bulk_refused WHERE object_id = :id", {"id": f"~{object_id}"})


def find_all(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    return reads.rows(
        f"SELECT {_COLUMNS} FROM bulk WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids)) ORDER BY id",
        {"ids": json.dumps(list(bulk_ids))},
    )


def people(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """Who approved the runs of each bulk, and who undid them.

    `bulk_id, approved_by` (JSON), `undone_by` (null for what core undid by itself), and of these `undone_at` (when the
    last one was, ms), `by_itself` (how many core undid).
    """
    return reads.rows(
        "SELECT bulk_id, approved_by, CASE is_due WHEN 0 THEN ended_by END AS undone_by,"
        " max(in_force.ended_at) AS undone_at, count(DISTINCT CASE is_due WHEN 1 THEN action_id END) AS by_itself"
        " FROM action LEFT JOIN in_force ON in_force.action_id = action.id AND action.undo_status = 'undone'"
        " WHERE bulk_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
        " GROUP BY 1, 2, 3 ORDER BY min(action.id)",
        {"ids": json.dumps(list(bulk_ids))},
    )


def counts(reads: Reads, bulk_ids: Iterable[int]) -> list[Row]:
    """How many actions of each bulk are in which state.

    `bulk_id, status, outcome` (of those that did not succeed), `awaits` (1: for approval), `count`, `expires_at` (the
    first, ms), `later_ends` (how many extensions wait), `severity` (the highest), `first_id` of the actions; `timed`
    (how many core undoes), `release_at` and `first_release_at` (the last and the first, ms), `endless` (how many are in
    force beside those), `undoing`, `undone`, `not_released` (their undo waits or failed).
    """
    return reads.rows(
        "SELECT bulk_id, status, outcome, awaits, count(*) AS count, min(expires_at) AS expires_at,"
        " count(later_end) AS later_ends, max(severity) AS severity, min(id) AS first_id,"
        " count(CASE undo WHEN 'available' THEN due_at END) AS timed,"
        " max(CASE undo WHEN 'available' THEN due_at END) AS release_at,"
        " min(CASE undo WHEN 'available' THEN due_at END) AS first_release_at,"
        " count(CASE WHEN undo = 'available' AND due_at IS NULL THEN active END) AS endless,"
        " count(CASE undo WHEN 'running' THEN 1 END) AS undoing, count(CASE undo WHEN 'undone' THEN 1 END) AS undone,"
        " count(CASE WHEN undo IN ('waiting', 'failed') THEN 1 END) AS not_released"
        " FROM (SELECT action.id, bulk_id, status, awaits_approval AS awaits, approval.expires_at,"
        " CASE status WHEN 'Failure' THEN coalesce(outcome, 'failed') WHEN 'Deleted' THEN 'cancelled' END AS outcome,"
        " CASE status WHEN 'Success' THEN coalesce(undo_status, 'available') ELSE 'available' END AS undo,"
        f" {_LATER_END},"
        " (SELECT severity FROM object WHERE object.id = action.root_id) AS severity,"
        " (SELECT max((SELECT at FROM due WHERE kind = 'undo' AND due.id = in_force.id)) FROM in_force"
        " WHERE action_id = action.id) AS due_at,"
        " (SELECT max(1) FROM in_force WHERE action_id = action.id AND state IN ('in_force', 'unknown')) AS active"
        " FROM action LEFT JOIN approval ON approval.id = action.id"
        " WHERE bulk_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))) AS run"
        " GROUP BY bulk_id, status, outcome, awaits",
        {"ids": json.dumps(list(bulk_ids))},
    )
