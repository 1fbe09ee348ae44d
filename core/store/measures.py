"""SQL for measures: what runs have left in force, and what they act on (core/docs/in-force.md#measures)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core.common.database import Reads, Row, Transaction

CHECK = "check"
"""The `kind` of an action that only looks whether something is in force.

Its `object_id` is the action that left it, and it has no root, so that no list of actions has it; it is deleted when it
ends.
"""
_COLUMNS = (
    "action_id, kind, root_id, state, since, ends_at, is_crossed, verify_at, checked_at, check_id, answer, answered_at"
)

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
    """`state, count`; `contradicted` is a state here."""
    return reads.rows(
        "SELECT CASE WHEN answer = 'contradicted' THEN answer ELSE state END AS state, count(*) AS count FROM measure"
        " GROUP BY 1"
    )


# --- checks -----------------------------------------------------------------------------------------------------------


def set_verify_at(tx: Transaction, action_id: int, verify_at: int | None) -> None:
    """Have core check it at this time (ms), or (None) never."""
    tx.run("UPDATE measure SET verify_at = :verify_at WHERE action_id = :id", {"id": action_id, "verify_at": verify_at})


def next_to_check(reads: Reads, now: int) -> Row | None:
    """The measure that waits longest to be checked at `now` (ms), without those whose check has not ended.

    One that was checked ahead of `now`, by a clock that was set back since, is due as well.
    """
    return reads.row(
        f"SELECT {_COLUMNS} FROM measure WHERE verify_at IS NOT NULL AND (verify_at <= :now OR checked_at > :now)"
        " AND state <> 'starting' AND NOT EXISTS (SELECT 1 FROM action WHERE action.id = measure.check_id)"
        " ORDER BY verify_at, action_id LIMIT 1",
        {"now": now},
    )


def open_checks(reads: Reads) -> int:
    """How many checks have not ended."""
    sql = "SELECT count(*) AS total FROM action WHERE kind = 'check' AND status IN ('Waiting', 'InProgress')"
    row = reads.row(sql)
    return row["total"] if row else 0


def begin_check(tx: Transaction, action_id: int, check_id: int | None, now: int, verify_at: int) -> None:
    """Note that a measure is checked now, by that action, and when the next time is."""
    tx.run(
        "UPDATE measure SET check_id = :check_id, checked_at = :now, verify_at = :verify_at WHERE action_id = :id",
        {"id": action_id, "check_id": check_id, "now": now, "verify_at": verify_at},
    )


def set_answer(tx: Transaction, action_id: int, answer: str, now: int) -> None:
    tx.run(
        "UPDATE measure SET answer = :answer, answered_at = :now, check_id = NULL WHERE action_id = :id",
        {"id": action_id, "answer": answer, "now": now},
    )


def void_checks(tx: Transaction, kind: str, names: Iterable[str]) -> None:
    """Have no check that runs now answer for the measures of this kind on one of these."""
    tx.run(f"UPDATE measure SET check_id = NULL WHERE {_ON}", {"kind": kind, "names": json.dumps(sorted(names))})


def check_again(tx: Transaction, kind: str, names: Iterable[str], now: int) -> None:
    """Forget what checks said of the measures of this kind on one of these, and have them checked at once."""
    tx.run(
        "UPDATE measure SET check_id = NULL, answer = NULL,"
        f" verify_at = CASE WHEN verify_at IS NULL THEN NULL ELSE CAST(:now AS BIGINT) END WHERE {_ON}",
        {"kind": kind, "names": json.dumps(sorted(names)), "now": now},
    )


def changing(reads: Reads, kind: str) -> list[int]:
    """The dispatched and open actions of a responder that undoes measures of this kind."""
    rows = reads.rows(
        "SELECT id FROM action WHERE responder_name = :kind AND status IN ('Waiting', 'InProgress')"
        " AND dispatched_at IS NOT NULL AND kind <> 'check'",
        {"kind": kind},
    )
    return [row["id"] for row in rows]
