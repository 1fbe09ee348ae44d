"""SQL for numbers that are never reused: ids of objects and actions, and the order of events."""

from core.common.database import Reads, Transaction


def take(tx: Transaction, name: str, count: int = 1) -> range:
    """The next `count` numbers of a sequence; those of a rolled back transaction are reused."""
    sql = "UPDATE sequence SET last = last + :count WHERE name = :name RETURNING last"
    last = tx.number(sql, {"name": name, "count": count})
    return range(last - count + 1, last + 1)


def last(reads: Reads, name: str) -> int:
    """The last number given."""
    return reads.number("SELECT last FROM sequence WHERE name = :name", {"name": name})


def skip_to(tx: Transaction, name: str, number: int) -> None:
    """Give numbers beyond this one from now on."""
    tx.run("UPDATE sequence SET last = :number WHERE name = :name", {"name": name, "number": number})


def touch(tx: Transaction) -> None:
    """Write to the database, to show that it can be written."""
    take(tx, "probe")  # SQLite writes nothing when a value stays the same
