"""SQL for cores with their leases, the catalogues of their engines, and hosts that were lost."""

from collections.abc import Mapping
from typing import Any

from core.common import leases
from core.common.database import Reads, Row, Transaction
from core.store.actions import OPEN

# --- cores ------------------------------------------------------------------------------------------------------------


def all_cores(reads: Reads) -> list[Row]:
    """All cores with a lease, expired ones too, by host."""
    return leases.all_in(reads, "owner")


def without_lease(reads: Reads) -> list[str]:
    """The holders of open actions that have no lease."""
    return reads.column(
        f"SELECT DISTINCT owner FROM action WHERE {OPEN} AND owner IS NOT NULL"
        " AND owner NOT IN (SELECT holder FROM owner)"
    )


def touch_catalogues(tx: Transaction, host_id: str, now: int) -> None:
    """Note that the catalogues of a host were true until now (ms)."""
    tx.run("UPDATE host_catalogue SET at = :now WHERE host_id = :host_id", {"host_id": host_id, "now": now})


def stop(tx: Transaction, holder: str, lease_until: int) -> None:
    """Note that a core has ended and left programs running."""
    tx.run(
        "UPDATE owner SET stopped = 1, beat = beat + 1, lease_until = :until WHERE holder = :holder",
        {"holder": holder, "until": lease_until},
    )


def remove(tx: Transaction, holder: str) -> None:
    """End the lease of a core."""
    tx.run("DELETE FROM owner WHERE holder = :holder", {"holder": holder})


def set_draining(tx: Transaction, holder: str, *, draining: bool) -> None:
    values = {"holder": holder, "draining": int(draining)}
    tx.run("UPDATE owner SET draining = :draining WHERE holder = :holder", values)


# --- lost hosts -------------------------------------------------------------------------------------------------------


def find_again(tx: Transaction, host_id: str) -> None:
    """Note that a host is no longer lost."""
    tx.run("DELETE FROM lost_host WHERE host_id = :host_id", {"host_id": host_id})


def add_lost(tx: Transaction, host_id: str, host: str, at: int, ended: int) -> None:
    """Record that a host was lost, and that so many actions ended with it."""
    added = "host = excluded.host, at = excluded.at, ended = lost_host.ended + excluded.ended"
    values = {"host_id": host_id, "host": host, "at": at, "ended": ended}
    tx.insert("lost_host", values, otherwise=f"(host_id) DO UPDATE SET {added}")


def lost(reads: Reads) -> list[Row]:
    """The hosts that were lost and have not come back (`host_id, host, at, ended`), by name."""
    return reads.rows("SELECT host_id, host, at, ended FROM lost_host ORDER BY host, host_id")


def forget_lost(tx: Transaction, before: int) -> None:
    """Forget hosts that were lost before that time (ms), and their catalogues."""
    values = {"before": before}
    tx.run(
        "DELETE FROM host_catalogue WHERE host_id IN (SELECT host_id FROM lost_host WHERE at < :before)"
        " OR (at < :before AND host_id NOT IN (SELECT host_id FROM lost_host)"
        " AND host_id NOT IN (SELECT host_id FROM owner))",
        values,
    )
    tx.run("DELETE FROM lost_host WHERE at < :before", values)


# --- catalogues -------------------------------------------------------------------------------------------------------


def save_catalogue(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Store the catalogue of an engine of a host: `host_id, engine, host, up, capacity, doc, at`."""
    tx.put("host_catalogue", ("host_id", "engine"), values)


def begin_catalogues(tx: Transaction, host_id: str, doc: str) -> None:
    """Note that no engine of a host has answered yet, and forget those that are not in `doc`, a JSON array of names."""
    values = {"host_id": host_id, "engines": doc}
    tx.run(
        "DELETE FROM host_catalogue WHERE host_id = :host_id AND engine NOT IN (SELECT value FROM json_each(:engines))",
        values,
    )
    tx.run("UPDATE host_catalogue SET up = 0 WHERE host_id = :host_id", values)


def catalogue_of(reads: Reads, host_id: str, engine: str) -> str | None:
    """The JSON of the last catalogue of an engine of a host, or None."""
    return reads.value(
        "SELECT doc FROM host_catalogue WHERE host_id = :host_id AND engine = :engine",
        {"host_id": host_id, "engine": engine},
    )


def last_catalogue(reads: Reads, host_id: str, engine: str) -> str | None:
    """The JSON of an engine's last catalogue on this host or, at its first start, on any; None if there is none."""
    return reads.value(
        "SELECT doc FROM host_catalogue WHERE engine = :engine ORDER BY host_id = :host_id DESC, at DESC LIMIT 1",
        {"host_id": host_id, "engine": engine},
    )


def engines_of(reads: Reads, host_id: str) -> list[Row]:
    """`engine, up, capacity` of each engine of a host, by name."""
    return reads.rows(
        "SELECT engine, up, capacity FROM host_catalogue WHERE host_id = :host_id ORDER BY engine",
        {"host_id": host_id},
    )


def peer_engines(reads: Reads, host_id: str) -> list[Row]:
    """Of each engine of other hosts: `host_id, engine, host, up, at`, by host."""
    return reads.rows(
        "SELECT host_id, engine, host, up, at FROM host_catalogue WHERE host_id <> :host_id"
        " ORDER BY host, host_id, engine",
        {"host_id": host_id},
    )
