"""SQL for what core does at a time (core/actions/due.py). Times in ms."""

from typing import Literal

from core.common.database import Reads, Row, Transaction
from core.store.database import sequences

Kind = Literal["undo", "approval"]


def put(tx: Transaction, kind: Kind, number: int, at: int, now: int, *, tries: int = 0) -> None:
    """Have core handle this subject at this time, and at no other; `tries`: how often that was refused."""
    (row,) = sequences.take(tx, "due")
    values = {"number": row, "at": at, "wait": at - now, "tries": tries, "is_damaged": 0}
    tx.put("due", ("kind", "id"), {"kind": kind, "id": number, **values})


def drop(tx: Transaction, kind: Kind, number: int) -> None:
    """Have core handle this subject at no time."""
    tx.run("DELETE FROM due WHERE kind = :kind AND id = :id", {"kind": kind, "id": number})


def is_waiting(reads: Reads, kind: Kind, number: int) -> bool:
    """Whether no core has found yet that the time of this subject is over."""
    sql = "SELECT 1 FROM due WHERE kind = :kind AND id = :id AND tries = 0 AND is_damaged = 0"
    return reads.row(sql, {"kind": kind, "id": number}) is not None


def after(reads: Reads, number: int, limit: int) -> list[Row]:
    """The rows that were put after the one with this number: `number, kind, id, at, wait`."""
    sql = "SELECT number, kind, id, at, wait FROM due WHERE number > :number ORDER BY number LIMIT :limit"
    return reads.rows(sql, {"number": number, "limit": limit})


def take(tx: Transaction, number: int) -> Row | None:
    """Delete a row, and return its `id, at, tries`; None if it was moved or deleted, or is set aside."""
    sql = "DELETE FROM due WHERE number = :number AND is_damaged = 0 RETURNING id, at, tries"
    rows = tx.rows(sql, {"number": number})
    return rows[0] if rows else None


def set_aside(tx: Transaction, number: int) -> None:
    """Have no core handle this row until one starts."""
    tx.run("UPDATE due SET is_damaged = 1 WHERE number = :number", {"number": number})


def damaged(reads: Reads, limit: int) -> list[Row]:
    """The first rows that are set aside: `kind, id`."""
    return reads.rows("SELECT kind, id FROM due WHERE is_damaged = 1 ORDER BY number LIMIT :limit", {"limit": limit})


def take_up(tx: Transaction) -> None:
    """Let what is set aside be handled again."""
    tx.run("UPDATE due SET is_damaged = 0 WHERE is_damaged = 1")
