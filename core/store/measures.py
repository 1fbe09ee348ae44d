"""SQL for measures: what runs have left in force, and what they act on (core/docs/in-force.md#measures)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction

_COLUMNS = "action_id, kind, root_id, state, since, ends_at, is_crossed"

_ON = (
    "kind = :kind AND action_id IN (SELECT action_id FROM measure_target WHERE is_certain = 1"
    " AND name IN (SELECT value FROM json_each(:names)))"
)


def insert(tx: Transaction, values: Mapping[str, Any], names: Iterable[str], possible: Iterable[str]) -> None:
    """Record what a run may leave in force (`action_id, kind, root_id, state, since`).

    `names` are hashes of what it acts on, `possible` of what it may act on beside that.
    """
    tx.run(
        "INSERT INTO measure (action_id, kind, root_id, state, since, is_crossed)"
        " VALUES (:action_id, :kind, :root_id, :state, :since, 0)",
        values,
    )
    certain = set(names)
    tx.run_all(
        "INSERT INTO measure_target (name, action_id, is_certain) VALUES (:name, :id, :is_certain)",
        [
            {"name": name, "id": values["action_id"], "is_certain": int(name in certain)}
            for name in sorted(certain | set(possible))
        ],
    )


def find(reads: Reads, action_id: int) -> Row | None:
    return reads.row(f"SELECT {_COLUMNS} FROM measure WHERE action_id = :id", {"id": action_id})


def names_of(reads: Reads, action_id: int) -> frozenset[str]:
    """What a run that left a measure acts on."""
    sql = "SELECT name FROM measure_target WHERE action_id = :id AND is_certain = 1"
    return frozenset(row["name"] for row in reads.rows(sql, {"id": action_id}))


def on(reads: Reads, kind: str, names: Iterable[str]) -> list[Row]:
    """The measures of this kind from runs that act on one of these, by action."""
    return reads.rows(
        f"SELECT {_COLUMNS} FROM measure WHERE {_ON} ORDER BY action_id",
        {"kind": kind, "names": json.dumps(sorted(names))},
    )


def all_of(reads: Reads) -> list[Row]:
    """All measures, by action."""
    return reads.rows(f"SELECT {_COLUMNS} FROM measure ORDER BY action_id")


def names_by_action(reads: Reads) -> dict[int, tuple[set[str], set[str]]]:
    """What each run that left a measure acts on, and what it may act on."""
    found: dict[int, tuple[set[str], set[str]]] = {}
    for row in reads.rows("SELECT name, action_id, is_certain FROM measure_target"):
        found.setdefault(row["action_id"], (set(), set()))[0 if row["is_certain"] else 1].add(row["name"])
    return found


def set_state(tx: Transaction, action_id: int, state: str, ends_at: int | None) -> None:
    tx.run(
        "UPDATE measure SET state = :state, ends_at = :ends_at WHERE action_id = :id",
        {"id": action_id, "state": state, "ends_at": ends_at},
    )


def cross(tx: Transaction, action_id: int) -> None:
    """Note that something undid the same while a run was starting."""
    tx.run("UPDATE measure SET is_crossed = 1 WHERE action_id = :id", {"id": action_id})


def delete(tx: Transaction, action_id: int) -> None:
    tx.run("DELETE FROM measure_target WHERE action_id = :id", {"id": action_id})
    tx.run("DELETE FROM measure WHERE action_id = :id", {"id": action_id})


def counts(reads: Reads) -> list[Row]:
    """`state, count`."""
    return reads.rows("SELECT state, count(*) AS count FROM measure GROUP BY state")
