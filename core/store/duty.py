"""SQL for the steps of duties: who is asked next about what waits (core/docs/duty.md)."""

import json
from collections.abc import Collection

from core.common.database import Reads, Row, Transaction

REMINDER = -1
"""The step that reminds those who were asked."""
LATELY = -2
"""No step: people were asked about an alert less than some minutes ago."""


def add(tx: Transaction, number: int, step: int, due_at: int, wait: int, name: str | None = None) -> None:
    """Have a step come at `due_at`, in `wait` from now (ms); `name` is that of an alert's duty."""
    tx.run(
        "INSERT INTO duty (id, step, due_at, wait, name) VALUES (:id, :step, :due_at, :wait, :name)",
        {"id": number, "step": step, "due_at": due_at, "wait": wait, "name": name},
    )


def of(reads: Reads, number: int) -> list[Row]:
    """What is to come about something, the reminder first: `id, step, due_at, wait, name`."""
    return reads.rows("SELECT id, step, due_at, wait, name FROM duty WHERE id = :id ORDER BY step", {"id": number})


def all_of(reads: Reads) -> list[Row]:
    """What is to come about all that waits: `id, step, due_at, wait`."""
    return reads.rows("SELECT id, step, due_at, wait FROM duty ORDER BY id, step")


def delete(tx: Transaction, number: int, step: int | None = None) -> None:
    """Delete a step; None: the reminder and all steps that can wait beside it."""
    which = "step >= :step" if step is None else "step = :step"
    tx.run(f"DELETE FROM duty WHERE id = :id AND {which}", {"id": number, "step": REMINDER if step is None else step})


def asked_lately(reads: Reads, name: str, number: int) -> int:
    """About how many alerts a duty asked lately, of the severity of this one or a higher one."""
    row = reads.row(
        "SELECT count(*) AS number FROM duty JOIN object ON object.id = duty.id WHERE duty.step = :step"
        " AND duty.name = :name AND object.severity >= (SELECT severity FROM object WHERE id = :id)",
        {"step": LATELY, "name": name, "id": number},
    )
    return int(row["number"]) if row else 0


def unassigned(reads: Reads, object_ids: Collection[int], severity: int) -> list[int]:
    """The open alerts among these objects, of this severity or a higher one, that nobody is assigned to."""
    rows = reads.rows(
        "SELECT id, severity FROM object WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
        " AND kind = 'alert' AND status = 'New' AND assignee IS NULL ORDER BY id",
        {"ids": json.dumps(list(object_ids))},
    )
    return [row["id"] for row in rows if row["severity"] >= severity]


def seen(reads: Reads) -> int | None:
    """The event up to which duties know such alerts; None if they ask about none."""
    row = reads.row("SELECT seq FROM unassigned")
    return None if row is None else int(row["seq"])


def set_seen(tx: Transaction, seq: int | None) -> None:
    """Store what `seen` returns."""
    tx.run("DELETE FROM unassigned")
    if seq is not None:
        tx.run("INSERT INTO unassigned (seq) VALUES (:seq)", {"seq": seq})
