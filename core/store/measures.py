"""SQL for measures: what runs have left in force, and what they act on (core/docs/in-force.md#measures)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction
from core.protection import Look

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


def insert_looks(tx: Transaction, action_id: int, looks: Iterable[tuple[str, Look]]) -> None:
    """Record how what a run acts on looks, each with its digest."""
    tx.run_all(
        "INSERT INTO measure_look (look, name, action_id, is_label) VALUES (:look, :name, :id, :is_label)"
        " ON CONFLICT DO NOTHING",
        [
            {"look": look, "name": name, "id": action_id, "is_label": is_label}
            for name, own in looks
            for is_label, part in enumerate(own)
            for look in sorted(part)
        ],
    )


def alike(reads: Reads, kind: str, looks: Iterable[tuple[str, Look]]) -> list[Row]:
    """The measures of this kind from runs that act on what may be the same as one of these, by action.

    Not those from runs that act on the same: `looks` have the digest of each.
    """
    found: dict[int, Row] = {}
    for name, look in looks:
        rows = reads.rows(
            f"SELECT {_COLUMNS} FROM measure WHERE kind = :kind AND action_id IN (SELECT action_id FROM measure_look"
            " WHERE name <> :name AND (look IN (SELECT value FROM json_each(:whole)) OR (is_label = 0"
            " AND look IN (SELECT value FROM json_each(:label))))) AND action_id NOT IN"
            " (SELECT action_id FROM measure_target WHERE name = :name AND is_certain = 1)",
            {
                "kind": kind,
                "name": name,
                "whole": json.dumps(sorted(look.whole)),
                "label": json.dumps(sorted(look.label)),
            },
        )
        found |= {row["action_id"]: row for row in rows}
    return [found[number] for number in sorted(found)]


def looks(reads: Reads) -> list[Row]:
    """How what is in force looks: `look, name, is_label, action_id, kind`."""
    return reads.rows(
        "SELECT look, name, is_label, measure.action_id, kind FROM measure_look JOIN measure"
        " ON measure.action_id = measure_look.action_id"
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
    tx.run("DELETE FROM measure_look WHERE action_id = :id", {"id": action_id})
    tx.run("DELETE FROM measure WHERE action_id = :id", {"id": action_id})


def counts(reads: Reads) -> list[Row]:
    """`state, count`."""
    return reads.rows("SELECT state, count(*) AS count FROM measure GROUP BY state")
