"""SQL for the steps of duties: whom to ask next about what waits for approval (core/docs/duty.md)."""

from core.common.database import Reads, Row, Transaction


def set_next(tx: Transaction, number: int, step: int, due_at: int, wait: int) -> None:
    """Have a step of the duty of an action or a bulk come at `due_at`, in `wait` from now (ms)."""
    tx.run(
        "INSERT INTO duty (id, step, due_at, wait) VALUES (:id, :step, :due_at, :wait)"
        " ON CONFLICT (id) DO UPDATE SET step = excluded.step, due_at = excluded.due_at, wait = excluded.wait",
        {"id": number, "step": step, "due_at": due_at, "wait": wait},
    )


def find(reads: Reads, number: int) -> Row | None:
    """The next step of an action or a bulk: `id, step, due_at, wait`."""
    return reads.row("SELECT id, step, due_at, wait FROM duty WHERE id = :id", {"id": number})


def all_of(reads: Reads) -> list[Row]:
    """The next steps of all that waits, as `find`."""
    return reads.rows("SELECT id, step, due_at, wait FROM duty ORDER BY id")


def delete(tx: Transaction, number: int) -> None:
    tx.run("DELETE FROM duty WHERE id = :id", {"id": number})
