"""SQL for what came from each source, and for alerts that were sent again."""

from collections.abc import Iterable, Mapping

from core.common.database import Reads, Row, Transaction

COUNTS = ("created", "repeated", "resolved", "skipped", "unreadable")


def add_missing(tx: Transaction, names: Iterable[str], now: int) -> None:
    """Begin to count what comes from these sources."""
    tx.insert("source", *({"name": name, "since": now} for name in names), otherwise="DO NOTHING")


def count(tx: Transaction, name: str, now: int, counts: Mapping[str, int]) -> int | None:
    """Add to the counts of a source, which has said something `now`; returns its `silent_alert`, which ends."""
    added = ", ".join(f"{column} = {column} + :{column}" for column in COUNTS)
    row = tx.row(
        f"UPDATE source SET last_at = :now, {added} WHERE name = :name RETURNING silent_alert",
        {"name": name, "now": now, **{column: counts.get(column, 0) for column in COUNTS}},
    )
    if row is None or row["silent_alert"] is None:
        return None
    set_silent_alert(tx, name, None)
    return int(row["silent_alert"])


def set_silent_alert(tx: Transaction, name: str, alert_id: int | None) -> None:
    tx.run("UPDATE source SET silent_alert = :id WHERE name = :name", {"name": name, "id": alert_id})


def list_all(reads: Reads) -> list[Row]:
    """`name, since, last_at, silent_alert` and the counts of all sources."""
    return reads.rows(f"SELECT name, since, last_at, silent_alert, {', '.join(COUNTS)} FROM source ORDER BY name")


def add_repeated(tx: Transaction, alert_id: int, login: str, now: int) -> None:
    """Have `take_repeated` give this alert."""
    tx.insert("repeated_alert", {"alert_id": alert_id, "login": login, "since": now}, otherwise="DO NOTHING")


def has_repeated(reads: Reads, before: int) -> bool:
    """Whether `take_repeated` would give any."""
    return reads.row("SELECT 1 FROM repeated_alert WHERE since <= :before LIMIT 1", {"before": before}) is not None


def take_repeated(tx: Transaction, before: int, limit: int) -> list[Row]:
    """The alerts (`alert_id, login`) that were sent again before then, each once."""
    return tx.rows(
        "DELETE FROM repeated_alert WHERE alert_id IN"
        " (SELECT alert_id FROM repeated_alert WHERE since <= :before ORDER BY since LIMIT :limit)"
        " RETURNING alert_id, login",
        {"before": before, "limit": limit},
    )
