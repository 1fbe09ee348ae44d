"""SQL for what `erase` deletes beside alerts and cases (core/docs/storage.md#erasure)."""

import json
from collections.abc import Iterable

from core.common.database import Reads, Transaction
from core.store.actions import OPEN


def rows_about(reads: Reads, ids: Iterable[int]) -> list[int]:
    """The rows of the audit that have texts and are about these objects, or about what belongs to them."""
    about = "SELECT number FROM audit WHERE {} IN (SELECT value FROM json_each(:ids))"
    return reads.column(
        "SELECT DISTINCT number FROM audit_text"
        f" WHERE number IN ({about.format('object')} UNION {about.format('root')}) ORDER BY number",
        {"ids": json.dumps([f"~{number}" for number in ids])},
    )


def delete_texts(tx: Transaction, numbers: Iterable[int]) -> int:
    """Delete the texts of rows of the audit, with their salts."""
    return tx.run(
        "DELETE FROM audit_text WHERE number IN (SELECT CAST(value AS BIGINT) FROM json_each(:numbers))",
        {"numbers": json.dumps(list(numbers))},
    )


def open_of(reads: Reads, login: str) -> list[int]:
    """The runs of a person that have not ended."""
    return reads.column(f"SELECT id FROM action WHERE created_by = :login AND {OPEN} ORDER BY id", {"login": login})


def timed_of(reads: Reads, login: str) -> list[int]:
    """The runs of a person that core will undo."""
    rows = reads.rows(
        "SELECT action_id FROM in_force JOIN action ON action.id = action_id"
        " WHERE created_by = :login AND in_force.id IN (SELECT id FROM due WHERE kind = 'undo')",
        {"login": login},
    )
    return sorted({row["action_id"] for row in rows})


def hand_over(tx: Transaction, numbers: Iterable[int], login: str) -> None:
    """Have core undo these runs for somebody else."""
    tx.run_all(
        "UPDATE action SET created_by = :login, acted_through = :login WHERE id = :id",
        [{"id": number, "login": login} for number in numbers],
    )


def merge_words(tx: Transaction) -> None:
    """Leave nothing of deleted words in the full-text index on SQLite."""
    tx.run("INSERT INTO object_text_fts (object_text_fts) VALUES ('optimize')")
