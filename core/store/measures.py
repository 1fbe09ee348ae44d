"""The SQL of what is measured: the store itself, and how many actions are in which state."""

from core.common.database.sqlite import Database, Reads, Row, Transaction


def touch(tx: Transaction) -> None:
    """A write that means nothing and shows that the store can be written.

    It counts, in a row of its own: SQLite sees when a value stays the same and then writes nothing at all.
    """
    tx.run("INSERT INTO sequence (id, last) VALUES (2, 1) ON CONFLICT (id) DO UPDATE SET last = last + 1")


def size_bytes(reads: Reads) -> int:
    """How large the file is, without its write-ahead log."""
    row = reads.row("SELECT page_count * page_size AS size FROM pragma_page_count, pragma_page_size")
    return int(row["size"]) if row else 0


def queued(reads: Reads) -> int:
    """How many actions wait: for a place on their engine, or for people to agree."""
    row = reads.row(
        "SELECT count(*) AS count FROM action WHERE status IN ('Waiting', 'InProgress') AND status = 'Waiting'"
    )
    return int(row["count"]) if row else 0


async def action_counts(database: Database) -> list[Row]:
    """`status, responder_name, count` of all actions, read beside the loop since it looks at each of them."""
    return await database.fetch_in_background(
        "SELECT status, responder_name, count(*) AS count FROM action GROUP BY responder_name, status"
    )
