"""The SQL of the event feed."""

from core.store.database import Reads, Row, Transaction


def append(tx: Transaction, *, at: int, type: str, object_type: str, object_id: int, root_id: int, user: str) -> None:
    tx.run(
        "INSERT INTO event (at, type, object_type, object_id, root_id, user)"
        " VALUES (:at, :type, :object_type, :object_id, :root_id, :user)",
        {"at": at, "type": type, "object_type": object_type, "object_id": object_id, "root_id": root_id, "user": user},
    )


def after(reads: Reads, seq: int, limit: int) -> list[Row]:
    return reads.rows(
        "SELECT seq, at, type, object_type, object_id, root_id, user FROM event"
        " WHERE seq > :seq ORDER BY seq LIMIT :limit",
        {"seq": seq, "limit": limit},
    )


def bounds(reads: Reads) -> tuple[int, int]:
    """The first seq that is kept (0 when there is none) and the last one ever given."""
    first = reads.row("SELECT min(seq) AS first FROM event")
    last = reads.row("SELECT seq AS last FROM sqlite_sequence WHERE name = 'event'")
    return (first["first"] or 0) if first else 0, last["last"] if last else 0


def prune(tx: Transaction, before: int) -> int:
    return tx.run("DELETE FROM event WHERE at < :before", {"before": before})
