"""SQL for the event feed."""

from core.common import logs
from core.common.database import Reads, Row, Transaction
from core.store.database import sequences


def record(
    tx: Transaction,
    *object_ids: int,
    at: int,
    type: str,
    object_type: str,
    root_id: int,
    user: str,
    request_id: str | None = None,
) -> None:
    """Record an event for each of these objects, in the transaction of their change.

    `at` is in ms, `type` is `<kind>.<created|updated|ended|deleted>` or `alert.raised`, `root_id` the alert or case
    that the objects belong to, `request_id` that of the request behind the change, by default the one that goes on.
    """
    change = {"at": at, "type": type, "object_type": object_type, "root_id": root_id}
    shared = {**change, "user": user, "request_id": logs.request_id() if request_id is None else request_id}
    numbers = sequences.take(tx, "event", len(object_ids)) if object_ids else ()
    named = zip(numbers, object_ids, strict=True)
    tx.insert("event", *({**shared, "seq": seq, "object_id": object_id} for seq, object_id in named))


def after(reads: Reads, seq: int, limit: int) -> list[Row]:
    return reads.rows(
        'SELECT seq, at, type, object_type, object_id, root_id, "user", request_id FROM event'
        " WHERE seq > :seq ORDER BY seq LIMIT :limit",
        {"seq": seq, "limit": limit},
    )


def bounds(reads: Reads) -> tuple[int, int]:
    """The first seq still stored (0 if none), and the last one ever allocated."""
    # One statement, so both come from one snapshot: a commit between two would look like a gap.
    row = reads.row(
        "SELECT coalesce((SELECT min(seq) FROM event), 0) AS first, last FROM sequence WHERE name = 'event'"
    )
    return (row["first"], row["last"]) if row else (0, 0)


def last(reads: Reads) -> int:
    """The last seq ever allocated."""
    return sequences.last(reads, "event")


def oldest(reads: Reads, after: int, limit: int) -> list[Row]:
    """The first events that are stored after number `after`: `id, at`."""
    return reads.rows(
        "SELECT seq AS id, at FROM event WHERE seq > :after ORDER BY seq LIMIT :limit", {"after": after, "limit": limit}
    )


def ahead(reads: Reads, at: int, among: int) -> list[Row]:
    """Of the newest events, so many as `among`, those of a later time than `at` (ms): `at, object_type, object_id`."""
    return reads.rows(
        "SELECT at, object_type, object_id FROM event WHERE seq > (SELECT max(seq) FROM event) - :among AND at > :at"
        " ORDER BY seq",
        {"among": among, "at": at},
    )


def delete_until(tx: Transaction, last: int) -> int:
    """Delete all events up to number `last`; returns how many."""
    return tx.run("DELETE FROM event WHERE seq <= :last", {"last": last})
