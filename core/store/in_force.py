"""SQL for what is in force: a row for each target of a run (core/docs/in-force.md).

A row has the columns of the table (core/store/database/schema.py), and `due_at`, when core undoes it or tries again.
Rows that have ended stay with their action; only `of_action` and `find` give them.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction
from core.protection import Look
from core.store import due

_COLUMNS = (
    "id, action_id, responder, undone_by, artifact, target_kind, target, digest, state, since, ends_at,"
    " is_crossed, undo_status, undo_id, is_due, message, approved_until, moved_by, moved_at, moved_from, ended_at,"
    " ended_by, reason, (SELECT at FROM due WHERE kind = 'undo' AND due.id = in_force.id) AS due_at"
)
_DUE = "SELECT id FROM due WHERE kind = 'undo'"
_ACTIVE = "state <> 'ended'"  # as in the indexes


def insert(tx: Transaction, rows: Iterable[tuple[Mapping[str, Any], Look | None]]) -> None:
    """Record what a run may leave in force, each row with how its target looks.

    `id, action_id, responder, undone_by, artifact, target_kind, target, digest, since`.
    """
    tx.insert("in_force", *({**row, **_looks(look), "state": "starting"} for row, look in rows))


def _looks(look: Look | None) -> Mapping[str, str | None]:
    whole = sorted(look.whole) if look else []
    label = next(iter(look.label), None) if look else None
    return {"look": next(iter(whole), None), "look_folded": whole[-1] if whole else None, "look_label": label}


def find(reads: Reads, number: int) -> Row | None:
    return reads.row(f"SELECT {_COLUMNS} FROM in_force WHERE id = :id", {"id": number})


def of_action(reads: Reads, action_id: int) -> list[Row]:
    """All that a run has left, also what has ended."""
    return reads.rows(f"SELECT {_COLUMNS} FROM in_force WHERE action_id = :id ORDER BY id", {"id": action_id})


def on(reads: Reads, undone_by: str, digests: Collection[str]) -> list[Row]:
    """What the same undoes on one of these targets, oldest first."""
    sql = (
        f"SELECT {_COLUMNS} FROM in_force WHERE undone_by = :undone_by AND {_ACTIVE}"
        " AND digest IN (SELECT value FROM json_each(:digests))"
    )
    rows = reads.rows(sql, {"undone_by": undone_by, "digests": json.dumps(sorted(digests))})
    return sorted(rows, key=lambda one: int(one["id"]))


def alike(reads: Reads, undone_by: str, looks: Iterable[tuple[str, Look]]) -> list[Row]:
    """What the same undoes on what may be the same as one of these targets, oldest first.

    Not what is on the same: `looks` have the digest of each.
    """
    found: dict[int, Row] = {}
    whole, label = ("(SELECT value FROM json_each(:whole))", "(SELECT value FROM json_each(:label))")
    sql = (
        f"SELECT {_COLUMNS} FROM in_force WHERE undone_by = :undone_by AND {_ACTIVE} AND digest <> :digest"
        f" AND (look IN {whole} OR look_folded IN {whole} OR look_label IN {whole} OR look IN {label}"
        f" OR look_folded IN {label})"
    )
    for digest, look in looks:
        own = {"whole": json.dumps(sorted(look.whole)), "label": json.dumps(sorted(look.label))}
        rows = reads.rows(sql, {"undone_by": undone_by, "digest": digest, **own})
        found |= {row["id"]: row for row in rows}
    return [found[number] for number in sorted(found)]


def active(reads: Reads) -> list[Row]:
    """All that is in force, or may be, oldest first; also `look, look_folded, look_label`."""
    return reads.rows(f"SELECT {_COLUMNS}, look, look_folded, look_label FROM in_force WHERE {_ACTIVE} ORDER BY id")


def change(tx: Transaction, number: int, values: Mapping[str, Any], now: int) -> Row:
    """Store other values in columns of a row, and when it is due; returns it."""
    if values.get("due_at") is not None:
        due.put(tx, "undo", number, values["due_at"], now)
    elif "due_at" in values:
        due.drop(tx, "undo", number)
    columns = ", ".join(f"{name} = :{name}" for name in values if name != "due_at")
    (row,) = tx.rows(f"UPDATE in_force SET {columns} WHERE id = :id RETURNING {_COLUMNS}", {**values, "id": number})
    return row


def delete_of(tx: Transaction, action_id: int) -> None:
    for row in tx.rows("DELETE FROM in_force WHERE action_id = :id RETURNING id", {"id": action_id}):
        due.drop(tx, "undo", row["id"])


def with_time(reads: Reads) -> list[Row]:
    """What core undoes by itself."""
    return reads.rows(f"SELECT {_COLUMNS} FROM in_force WHERE id IN ({_DUE}) ORDER BY id")


def count_waiting(reads: Reads) -> int:
    """How many actions core should have undone, and could not."""
    sql = f"SELECT count(DISTINCT action_id) AS total FROM in_force WHERE id IN ({_DUE}) AND undo_status = 'waiting'"
    return reads.number(sql)


def counts(reads: Reads) -> list[Row]:
    """`state, count`."""
    return reads.rows(f"SELECT state, count(*) AS count FROM in_force WHERE {_ACTIVE} GROUP BY state")
