"""SQL for the event feed."""

from collections.abc import Iterable

from core.common.database import Reads, Row, Transaction

PRUNED_AT_ONCE = 5_000  # writers wait for it


def append(
    tx: Transaction, *, at: int, type: str, object_type: str, object_ids: Iterable[int], root_id: int, user: str
) -> None:
    """Append an event for each of these objects; `at` is in ms."""
    shared = {"at": at, "type": type, "object_type": object_type, "root_id": root_id, "user": user}
    for object_id in object_ids:
        tx.insert(
            'INSERT INTO event (at, type, object_type, object_id, root_id, "user")'
            " VALUES (:at, :type, :object_type, :object_id, :root_id, :user)",
            {**shared, "object_id": object_id},
        )


def after(reads: Reads, seq: int, limit: int) -> list[Row]:
    return reads.rows(
        'SELECT seq, at, type, object_type, object_id, root_id, "user" FROM event'
        " WHERE seq > :seq ORDER BY seq LIMIT :limit",
        {"seq": seq, "limit": limit},
    )


def bounds(reads: Reads) -> tuple[int, int]:
    """The first seq still stored (0 if none), and the last one ever allocated."""
    # One statement, so both come from one snapshot: a commit between two would look like a gap.
    row = reads.row("SELECT coalesce((SELECT min(seq) FROM event), 0) AS first, (SELECT seq FROM last_event) AS last")
    return (row["first"], row["last"]) if row else (0, 0)


def last(reads: Reads) -> int:
    """The last seq ever allocated."""
    row = reads.row("SELECT seq FROM last_event")
    return int(row["seq"]) if row else 0


def prune(tx: Transaction, before: int) -> int:
    """Delete the first events that are older than `before` (ms), at most PRUNED_AT_ONCE; returns how many.

    Events are in order of time, so no index on it is needed.
    """
    oldest = tx.row(
        "SELECT coalesce(min(CASE WHEN at >= :before THEN seq END), max(seq) + 1) AS kept"
        " FROM (SELECT seq, at FROM event ORDER BY seq LIMIT :limit) AS oldest",
        {"before": before, "limit": PRUNED_AT_ONCE},
    )
    if oldest is None or oldest["kept"] is None:
        return 0
    return tx.run("DELETE FROM event WHERE seq < :kept", {"kept": oldest["kept"]})
