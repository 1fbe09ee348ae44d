"""SQL for the last known catalogue of each engine."""

from core.common.database import Reads, Transaction


def save(tx: Transaction, engine: str, doc: str, at: int) -> None:
    tx.run(
        "INSERT INTO catalogue (engine, doc, at) VALUES (:engine, :doc, :at)"
        " ON CONFLICT (engine) DO UPDATE SET doc = excluded.doc, at = excluded.at",
        {"engine": engine, "doc": doc, "at": at},
    )


def find(reads: Reads, engine: str) -> str | None:
    """The JSON of an engine's last known catalogue, or None."""
    row = reads.row("SELECT doc FROM catalogue WHERE engine = :engine", {"engine": engine})
    return None if row is None else str(row["doc"])
