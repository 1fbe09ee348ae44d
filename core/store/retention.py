"""SQL for what is deleted because it is old or is erased, with what belongs to it (core/docs/storage.md#retention)."""

import json
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from core.common.database import Reads, Row, Transaction
from core.models import parse_id
from core.store import attachments, objects, texts
from core.store.actions import OPEN

Root = Literal["alert", "case"]

_ROOTS = "(SELECT CAST(:id AS BIGINT) UNION ALL SELECT id FROM object WHERE case_id = :case)"
"""An alert or a case, and the alerts of that case."""
_REFUSED = "refused = total AND created_at < :before"


class Item(NamedTuple):
    """An object or an action to delete."""

    kind: str
    """The kind of the object, or `action`."""
    id: int
    root_id: int
    """The alert or case that it belongs to."""
    bulk_id: int | None = None
    """The bulk of an action."""


def closed(reads: Reads, kind: Root, before: int, after: tuple[int, int], limit: int) -> list[Row]:
    """Alerts in no case, or cases, that are closed and unchanged since `before` (ms): `id, closed_at`, oldest first.

    Those behind `after`, the `closed_at` and id of another one.
    """
    return reads.rows(
        "SELECT id, closed_at FROM object WHERE kind = :kind AND case_id IS NULL AND closed_at IS NOT NULL"
        " AND (closed_at, id) > (:at, :after) AND closed_at < :before ORDER BY closed_at, id LIMIT :limit",
        {"kind": kind, "before": before, "at": after[0], "after": after[1], "limit": limit},
    )


def root_of(reads: Reads, number: int) -> int | None:
    """The alert or case that an object or an action belongs to; None if there is none with this number."""
    row = reads.row("SELECT kind, parent_id FROM object WHERE id = :id", {"id": number})
    if row is not None:
        return number if row["parent_id"] is None else root_of(reads, row["parent_id"])
    of_alert = objects.find_alert_artifact(reads, number)
    if of_alert is not None:
        return int(of_alert["alert_id"])
    return reads.value("SELECT root_id FROM action WHERE id = :id", {"id": number})


def deciding_root(reads: Reads, root_id: int) -> int:
    """The case of an alert that is in one, else the alert or case itself."""
    case = parse_id(reads.value("SELECT case_id FROM object WHERE id = :id", {"id": root_id}) or "")
    return root_id if case is None else case


def closed_at(reads: Reads, root_id: int) -> int | None:
    """When an alert in no case, or a case or one of its alerts, was last changed (ms).

    None while any of them is open, waiting or in force.
    """
    values = {"id": root_id, "case": f"~{root_id}"}
    row = reads.row(
        "SELECT closed_at, (SELECT 1 FROM object WHERE case_id = :case AND closed_at IS NULL LIMIT 1) AS has_open,"
        " (SELECT max(closed_at) FROM object WHERE case_id = :case) AS alert_closed_at FROM object WHERE id = :id",
        values,
    )
    if row is None or row["closed_at"] is None or row["has_open"]:
        return None
    if reads.row(f"SELECT 1 FROM action WHERE root_id IN {_ROOTS} AND {OPEN} LIMIT 1", values):
        return None
    active = "SELECT 1 FROM in_force WHERE action_id = action.id AND state <> 'ended'"
    if reads.row(f"SELECT 1 FROM action WHERE root_id IN {_ROOTS} AND EXISTS ({active}) LIMIT 1", values):
        return None
    return max(int(row["closed_at"]), row["alert_closed_at"] or 0)


def is_due(reads: Reads, root_id: int, before: int) -> bool:
    """Whether an alert in no case, or a case, may be deleted: closed, unchanged and without the end of a run since."""
    at = closed_at(reads, root_id)
    if at is None or at >= before:
        return False
    values = {"id": root_id, "case": f"~{root_id}", "before": before}
    sql = f"SELECT 1 FROM action WHERE root_id IN {_ROOTS} AND ended_at >= :before LIMIT 1"
    return reads.row(sql, values) is None


def items(reads: Reads, kind: str, number: int, root_id: int) -> Iterator[Item]:
    """An object with all that belongs to it, which comes before it."""
    if kind == "case":
        of_case = reads.rows("SELECT id FROM object WHERE case_id = :case ORDER BY id", {"case": f"~{number}"})
        for row in of_case:
            yield from items(reads, "alert", row["id"], row["id"])
    if number == root_id:
        for row in reads.rows("SELECT id, bulk_id FROM action WHERE root_id = :root", {"root": number}):
            yield Item("action", row["id"], root_id, row["bulk_id"])
    for row in reads.rows("SELECT id, kind FROM object WHERE parent_id = :id", {"id": number}):
        yield from items(reads, row["kind"], row["id"], root_id)
    yield Item(kind, number, root_id)


def delete(tx: Transaction, item: Item) -> bool:
    """Delete an item, after what belongs to it; False if it is gone."""
    values = {"id": item.id}
    if item.kind == "alert":
        texts.forget(tx, item.id)
        tx.run("DELETE FROM alert_artifact WHERE alert_id = :id", values)
    if item.kind != "action":
        attachments.save(tx, item.id, ())
        return objects.delete(tx, item.id)
    for table in ("action_target", "approval", "in_force"):
        tx.run(f"DELETE FROM {table} WHERE action_id = :id", values)
    return bool(tx.run("DELETE FROM action WHERE id = :id", values))


def delete_empty_bulk(tx: Transaction, bulk_id: int) -> bool:
    """Delete a bulk that has no action any more."""
    is_empty = "NOT EXISTS (SELECT 1 FROM action WHERE bulk_id = :id)"
    tx.run(f"DELETE FROM bulk_refused WHERE bulk_id = :id AND {is_empty}", {"id": bulk_id})
    return bool(tx.run(f"DELETE FROM bulk WHERE id = :id AND {is_empty}", {"id": bulk_id}))


def delete_refused_bulks(tx: Transaction, before: int, limit: int) -> int:
    """Delete the oldest bulks from before then (ms) that have no action."""
    oldest = f"IN (SELECT id FROM bulk WHERE {_REFUSED} ORDER BY created_at LIMIT :limit)"
    tx.run(f"DELETE FROM bulk_refused WHERE bulk_id {oldest}", {"before": before, "limit": limit})
    return tx.run(f"DELETE FROM bulk WHERE id {oldest}", {"before": before, "limit": limit})


def count_refused_bulks(reads: Reads, before: int) -> int:
    return reads.number(f"SELECT count(*) AS total FROM bulk WHERE {_REFUSED}", {"before": before})


def delete_file(tx: Transaction, file_id: str) -> bool:
    """Delete the content of a dropped file, unless it has a reference again."""
    attachments.settle(tx, file_id)
    if attachments.count_references(tx, file_id):
        return False
    return bool(tx.run("DELETE FROM object WHERE kind = 'file' AND unique_key = :file", {"file": file_id}))


def shared_by(reads: Reads, item: Item) -> list[tuple[str, str]]:
    """What an item shares with others and is deleted with the last of them: kind and key."""
    if item.kind == "action":
        return [] if item.bulk_id is None else [("bulk", str(item.bulk_id))]
    return [("file", file_id) for file_id in attachments.files_of(reads, item.id)]


def count_sharing(reads: Reads, kind: str, key: str) -> int:
    """How many items share that."""
    if kind == "file":
        return attachments.count_references(reads, key)
    return reads.number("SELECT count(*) AS total FROM action WHERE bulk_id = :bulk", {"bulk": int(key)})


def reports(reads: Reads, before: int, after: tuple[int, int], limit: int) -> list[Row]:
    """Actions that ended before then (ms) and have their report: `id, report_at, root_id`, oldest first."""
    return reads.rows(
        "SELECT id, report_at, root_id FROM action WHERE report_at IS NOT NULL AND report_at < :before"
        " AND (report_at, id) > (:at, :after) ORDER BY report_at, id LIMIT :limit",
        {"before": before, "at": after[0], "after": after[1], "limit": limit},
    )


def remove_report(tx: Transaction, action_id: int, doc: str) -> bool:
    """Keep only `doc` of an action; delete its whole report, operations and parameters."""
    # Without `id = id` SQLite would keep the pages, each nearly empty.
    return bool(
        tx.run(
            "UPDATE action SET id = id, doc = :doc, whole_report = NULL, whole_operations = NULL, report_at = NULL"
            " WHERE id = :id AND report_at IS NOT NULL",
            {"doc": doc, "id": action_id},
        )
    )


# --- what is erased beside alerts and cases ---------------------------------------------------------------------------


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
