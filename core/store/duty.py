"""SQL for the steps of duties: who is asked next about what waits for approval (core/docs/duty.md)."""

from core.common.database import Reads, Row, Transaction

REMINDER = -1
"""The step that reminds those who were asked."""


def add(tx: Transaction, number: int, step: int, due_at: int, wait: int) -> None:
    """Have a step about an action or a bulk come at `due_at`, in `wait` from now (ms)."""
    tx.run(
        "INSERT INTO duty (id, step, due_at, wait) VALUES (:id, :step, :due_at, :wait)",
        {"id": number, "step": step, "due_at": due_at, "wait": wait},
    )


def of(reads: Reads, number: int) -> list[Row]:
    """What is to come about an action or a bulk, the reminder first: `id, step, due_at, wait`."""
    return reads.rows("SELECT id, step, due_at, wait FROM duty WHERE id = :id ORDER BY step", {"id": number})


def all_of(reads: Reads) -> list[Row]:
    """What is to come about all that waits, as `of`."""
    return reads.rows("SELECT id, step, due_at, wait FROM duty ORDER BY id, step")


def delete(tx: Transaction, number: int, step: int | None = None) -> None:
    """Delete a step; None: all about an action or a bulk."""
    one = "" if step is None else " AND step = :step"
    tx.run(f"DELETE FROM duty WHERE id = :id{one}", {"id": number, "step": step})
