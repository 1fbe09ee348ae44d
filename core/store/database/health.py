"""SQL for health and metrics: a write probe, and counts."""

from core.common.database import Database, Reads, Row, Transaction
from core.store.database import sequences


def touch(tx: Transaction) -> None:
    """Write to the database, to show that it can be written."""
    sequences.take(tx, "probe")  # SQLite writes nothing when a value stays the same


def queued(reads: Reads) -> int:
    """Number of actions that wait for a slot on their engine or for approval."""
    # The first condition selects the partial index.
    return reads.number(
        "SELECT count(*) AS count FROM action WHERE status IN ('Waiting', 'InProgress') AND status = 'Waiting'"
    )


async def action_counts(database: Database) -> list[Row]:
    """`status, responder_name, count` of all actions; in the background, since it scans them all."""
    return await database.fetch_in_background(
        "SELECT status, responder_name, count(*) AS count FROM action GROUP BY responder_name, status"
    )
