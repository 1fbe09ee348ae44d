"""The SQL of alerts, cases, tasks, logs, artifacts and case templates: one table, told apart by kind."""

import sqlite3

from core.errors import ResponderBotError
from core.store.database import Reads, Row, Transaction

MAX_ID_DIGITS = 18  # what fits into SQLite's integer


def parse_id(text: str) -> int | None:
    """The number of an id as the wire writes it (`~12`); None for what is no id, so that it names nothing."""
    digits = text.removeprefix("~")
    if len(text) - len(digits) != 1 or not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_ID_DIGITS:
        return None
    return int(digits)


def next_id(tx: Transaction) -> int:
    """A number that no object or action has had."""
    row = tx.row("UPDATE sequence SET last = last + 1 WHERE id = 1 RETURNING last")
    assert row is not None  # noqa: S101 - the row is made with the table
    return int(row["last"])


def insert(
    tx: Transaction, object_id: int, kind: str, doc: str, *, parent_id: int | None = None, unique_key: str | None = None
) -> None:
    """Add an object. Raises ResponderBotError("exists") where its unique key is taken."""
    try:
        tx.run(
            "INSERT INTO object (id, kind, parent_id, unique_key, doc)"
            " VALUES (:id, :kind, :parent_id, :unique_key, :doc)",
            {"id": object_id, "kind": kind, "parent_id": parent_id, "unique_key": unique_key, "doc": doc},
        )
    except sqlite3.IntegrityError as error:
        raise ResponderBotError("exists", "That name is taken; choose another.") from error


def update(tx: Transaction, object_id: int, doc: str) -> None:
    tx.run("UPDATE object SET doc = :doc WHERE id = :id", {"id": object_id, "doc": doc})


def find(reads: Reads, kind: str, object_id: int) -> Row | None:
    """The row of one object (`id, kind, parent_id, doc`), if it is of that kind."""
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE id = :id AND kind = :kind",
        {"id": object_id, "kind": kind},
    )


def exists(reads: Reads, kind: str, object_id: int) -> bool:
    sql = "SELECT 1 FROM object WHERE id = :id AND kind = :kind"
    return reads.row(sql, {"id": object_id, "kind": kind}) is not None


def find_unique(reads: Reads, kind: str, unique_key: str) -> Row | None:
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE kind = :kind AND unique_key = :key",
        {"kind": kind, "key": unique_key},
    )


def children(reads: Reads, kind: str, parent_id: int) -> list[Row]:
    """The objects of a kind below another, oldest first."""
    return reads.rows(
        "SELECT id, kind, parent_id, doc FROM object WHERE parent_id = :parent AND kind = :kind ORDER BY id",
        {"parent": parent_id, "kind": kind},
    )
