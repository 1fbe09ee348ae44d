"""Named values that all replicas share."""

from core.common.database import Reads, Transaction


def value(reads: Reads, name: str) -> str | None:
    """A value; None when it was never set."""
    return reads.value("SELECT value FROM state WHERE name = :name", {"name": name})


def set_value(tx: Transaction, name: str, text: str) -> None:
    tx.put("state", ("name",), {"name": name, "value": text})


def delete_value(tx: Transaction, name: str) -> None:
    tx.run("DELETE FROM state WHERE name = :name", {"name": name})


def touch(tx: Transaction) -> None:
    """A write without effect, which shows that the database can be written."""
    tx.run(
        "INSERT INTO state (name, value) VALUES ('probe', '1')"
        " ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(state.value AS BIGINT) + 1 AS TEXT)"
    )
