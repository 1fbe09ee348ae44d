"""SQL for actions, who holds them, and their idempotency keys."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.common.database import Database, Reads, Row, Search, Transaction
from core.common.errors import ResponderBotError, bad_request

IDEMPOTENCY_KEY_MS = 24 * 3_600_000  # how long a repeated Idempotency-Key finds what the first request started
RECENT = 300  # actions by which menus know what is used most
OPEN = "status IN ('Waiting', 'InProgress')"
_COLUMNS = (
    "id, kind, object_id, root_id, responder_name, engine_name, engine_responder_id, status, created_by, acted_through,"
    " created_at, dispatched_at, owner, host_id, engine_job_id, cancelled_by, parameters, secret_names,"
    " awaits_approval, bulk_id, undoes, run_id, request_id, doc"
)


def insert(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Record an action, given as values by column; `owner` holds it only while its lease lasts."""
    places = {name: f":{name}" for name in values} | {"owner": "(SELECT holder FROM owner WHERE holder = :owner)"}
    tx.run(f"INSERT INTO action ({', '.join(places)}) VALUES ({', '.join(places.values())})", values)


def find(reads: Reads, action_id: int) -> Row | None:
    """An action with its `target`, which is null once it is no longer needed."""
    return reads.row(f"SELECT {_COLUMNS}, target FROM action WHERE id = :id", {"id": action_id})


def existing(reads: Reads, action_ids: Iterable[int]) -> set[int]:
    """Those of these ids that actions have."""
    return set(
        reads.column(
            "SELECT id FROM action WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))",
            {"ids": json.dumps(list(action_ids))},
        )
    )


def whole_doc(reads: Reads, action_id: int) -> Row | None:
    """`doc, whole_report, whole_operations, whole_parameters`; null unless those in `doc` were truncated."""
    columns = "doc, whole_report, whole_operations, whole_parameters"
    return reads.row(f"SELECT {columns} FROM action WHERE id = :id", {"id": action_id})


def newest_docs_of(reads: Reads, kind: str, object_id: int, limit: int) -> list[str]:
    """The response JSON of an object's newest actions, newest first."""
    return reads.column(
        "SELECT doc FROM action WHERE object_id = :object_id AND kind = :kind ORDER BY id DESC LIMIT :limit",
        {"object_id": object_id, "kind": kind, "limit": limit},
    )


_FAILED = "outcome IN ('failed', 'expired')"  # as in the indexes
_IN_FORCE = "id IN (SELECT action_id FROM in_force WHERE state <> 'ended')"  # likewise
_NEWEST: Mapping[tuple[str, bool], str] = {
    ("open", True): f"created_by = :by AND {OPEN} ORDER BY id DESC",
    ("active", True): f"created_by = :by AND {_IN_FORCE} ORDER BY id DESC",
    ("ended", True): "created_by = :by AND status IN ('Success', 'Failure', 'Deleted') ORDER BY id DESC",
    ("waiting", False): "id IN (SELECT action_id FROM approval WHERE is_waiting = 1) ORDER BY id DESC",
    ("failed", False): f"{_FAILED} AND ended_at >= :since ORDER BY ended_at DESC, id DESC",
    ("failed", True): f"created_by = :by AND {_FAILED} AND ended_at >= :since ORDER BY ended_at DESC, id DESC",
}


def newest_ids(reads: Reads, state: str, by: str, since: int, limit: int) -> list[Row]:
    """The ids of the newest actions in a state (`id`); with `by` of this person. Raises "bad_request"."""
    condition = _NEWEST.get((state, bool(by)))
    if condition is None:
        raise bad_request("`state` is open, active or ended with `by`, waiting without it, or failed with or without")
    values = {"by": by, "since": since, "limit": limit}
    return reads.rows(f"SELECT id FROM action WHERE {condition} LIMIT :limit", values)


def recent_runs(reads: Reads) -> Counter[str]:
    """How many of the newest actions are runs of each responder."""
    newest = reads.rows(f"SELECT responder_name FROM action WHERE id > 0 ORDER BY id DESC LIMIT {RECENT}")
    return Counter(row["responder_name"] for row in newest)


def ids_of(search: Search, kind: str, object_id: int, offset: int, limit: int) -> Iterator[Row]:
    """The ids of an object's actions (`id`), newest first."""
    return search.rows(
        "SELECT id FROM action WHERE object_id = :object_id AND kind = :kind ORDER BY id DESC"
        " LIMIT :limit OFFSET :offset",
        {"object_id": object_id, "kind": kind, "limit": limit, "offset": offset},
    )


def count_of(search: Search, kind: str, object_id: int) -> int:
    """How many actions an object has."""
    sql = "SELECT count(*) AS total FROM action WHERE object_id = :object_id AND kind = :kind"
    return int(next(search.rows(sql, {"object_id": object_id, "kind": kind}))["total"])


_SHOWN = (
    "id, root_id, kind, object_id, responder_name, bulk_id, doc,"
    " coalesce(whole_report, whole_operations, whole_parameters) IS NOT NULL AS is_cut"
)


def find_shown(reads: Reads, action_id: int) -> Row | None:
    """The columns of an action for documents; `is_cut` if report, operations or parameters are shortened."""
    return reads.row(f"SELECT {_SHOWN} FROM action WHERE id = :id", {"id": action_id})


def shown_of(reads: Reads, kind: str, object_id: int, limit: int) -> tuple[list[Row], int]:
    """As `find_shown`, the open actions on an object and then the newest, and how many it has in all."""
    values = {"object_id": object_id, "kind": kind, "limit": limit}
    of_object = "FROM action WHERE object_id = :object_id AND kind = :kind"
    total = reads.number(f"SELECT count(*) {of_object}", values)
    if not total:
        return [], 0
    # Sort ids only, without reading documents.
    ids = f"SELECT id {of_object} ORDER BY {OPEN} DESC, id DESC LIMIT :limit"
    return reads.rows(f"SELECT {_SHOWN} FROM action WHERE id IN ({ids}) ORDER BY id DESC", values), total


def decided_on(reads: Reads, responder_name: str, object_id: int, digests: Iterable[str], since: int) -> list[Row]:
    """The actions of a responder that were denied, or undone and not on time, if only in part: `id, root_id, doc`.

    The newest ten on an object, and of each of these targets since then (ms), whatever object has it; of alerts and
    cases of each TLP, so that what somebody may not see hides nothing that they may.
    """
    asked = {"name": responder_name, "object_id": object_id, "since": since}
    is_on_time = "coalesce((SELECT min(is_due) FROM in_force WHERE action_id = action.id), 0)"
    is_partly_undone = (
        "EXISTS (SELECT 1 FROM in_force WHERE action_id = action.id AND digest = :digest"
        " AND undo_status = 'undone' AND is_due = 0)"
    )
    ranked = (
        "SELECT action.id, row_number() OVER (PARTITION BY object.tlp ORDER BY action.id DESC) AS place"
        " FROM action LEFT JOIN object ON object.id = root_id"
        " WHERE action.id IN (SELECT id FROM action WHERE object_id = :object_id"
        " AND :digest = '' UNION ALL SELECT action_id FROM action_target WHERE target = :digest"
        " UNION ALL SELECT action_id FROM in_force WHERE state = 'ended' AND digest = :digest)"
        f" AND responder_name = :name AND (outcome = 'denied' OR undo_status = 'undone' AND {is_on_time} = 0"
        f" OR {is_partly_undone})"
        " AND (object_id = :object_id OR action.created_at >= :since)"
    )
    newest = f"SELECT id FROM ({ranked}) AS ranked WHERE place <= 10"
    sql = f"SELECT id, root_id, doc FROM action WHERE id IN ({newest}) ORDER BY id DESC"
    # Each target by itself, so that none hides what was decided on another.
    rows = [row for digest in ("", *digests) for row in reads.rows(sql, {**asked, "digest": digest})]
    return list({row["id"]: row for row in rows}.values())


def dispatched_on(reads: Reads, responder_name: str, digests: Iterable[str], since: int) -> list[Row]:
    """The newest actions of a responder on one of these targets that were dispatched after this time (ms).

    `root_id, doc`; some needed no approval.
    """
    return reads.rows(
        "SELECT root_id, doc FROM action WHERE id IN (SELECT action_id FROM action_target"
        " WHERE target IN (SELECT value FROM json_each(:digests))) AND responder_name = :name"
        " AND dispatched_at > :since ORDER BY id DESC LIMIT 20",
        {"name": responder_name, "digests": json.dumps(sorted(digests)), "since": since},
    )


def add_targets(tx: Transaction, action_id: int, digests: Iterable[str]) -> None:
    """Record what an action is to act on, where a rate or an approval asks for it."""
    tx.insert("action_target", *({"target": digest, "action_id": action_id} for digest in digests))


def targets_of(reads: Reads, action_id: int) -> set[str]:
    return set(reads.column("SELECT target FROM action_target WHERE action_id = :id", {"id": action_id}))


def waiting_on(reads: Reads, digests: Iterable[str]) -> list[Row]:
    """The actions that wait for approval, with each of these targets that they have, newest first.

    `id, target, root_id, doc`.
    """
    return reads.rows(
        "SELECT action.id, named.target, root_id, doc FROM approval JOIN action ON action.id = approval.id"
        " JOIN action_target AS named ON named.action_id = action.id WHERE is_waiting = 1"
        " AND named.target IN (SELECT value FROM json_each(:digests)) ORDER BY action.id DESC",
        {"digests": json.dumps(sorted(digests))},
    )


def dispatched_since(reads: Reads, responder_name: str, since: int, limit: int) -> list[Row]:
    """The newest actions of a responder that were dispatched after this time (ms): `root_id, doc`."""
    sql = "SELECT root_id, doc FROM action WHERE responder_name = :name AND dispatched_at > :since"
    values = {"name": responder_name, "since": since, "limit": limit}
    return reads.rows(f"{sql} ORDER BY dispatched_at DESC, id DESC LIMIT :limit", values)


def open_on(reads: Reads, object_id: int) -> list[Row]:
    """The actions on an object that have not ended, newest first."""
    return reads.rows(
        f"SELECT {_COLUMNS} FROM action WHERE object_id = :object_id AND {OPEN} ORDER BY id DESC",
        {"object_id": object_id},
    )


def shown_on_artifacts(reads: Reads, artifact_ids: Iterable[int], limit: int) -> tuple[list[Row], dict[int, int]]:
    """As `shown_of`, for several artifacts together, and how many actions each has in all."""
    values = {"ids": json.dumps(list(artifact_ids)), "limit": limit}
    of_artifacts = (
        "FROM action WHERE kind = 'case_artifact' AND object_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
    )
    totals = reads.rows(f"SELECT object_id, count(*) AS total {of_artifacts} GROUP BY object_id", values)
    if not totals:
        return [], {}
    ids = f"SELECT id {of_artifacts} ORDER BY {OPEN} DESC, id DESC LIMIT :limit"
    rows = reads.rows(f"SELECT {_SHOWN} FROM action WHERE id IN ({ids}) ORDER BY id DESC", values)
    return rows, {row["object_id"]: row["total"] for row in totals}


def newest_on_artifacts(reads: Reads, case_id: int, limit: int) -> list[int]:
    """The newest actions on the artifacts of a case."""
    return reads.column(
        "SELECT id FROM action WHERE root_id = :root AND kind = 'case_artifact' ORDER BY id DESC LIMIT :limit",
        {"root": case_id, "limit": limit},
    )


def move_artifacts(tx: Transaction, ids: Mapping[int, int], case_id: int) -> None:
    """Move the actions on artifacts to a case; `ids` maps the artifacts to their ids there."""
    values = [{"root": case_id, "before": before, "now": now} for before, now in ids.items()]
    for value in values:
        if value["before"] != value["now"]:
            _name_object(tx, value["before"], value["now"])
    tx.run_all(
        "UPDATE action SET root_id = :root, object_id = :now WHERE object_id = :before AND kind = 'case_artifact'",
        values,
    )


def _name_object(tx: Transaction, before: int, now: int) -> None:
    """Change the artifact that the documents of actions name; a damaged document stays as it is."""
    of_artifact = "SELECT id, doc FROM action WHERE object_id = :before AND kind = 'case_artifact'"
    for row in tx.rows(of_artifact, {"before": before}):
        with suppress(ValueError, TypeError):
            doc = json.dumps(
                {**json.loads(row["doc"]), "objectId": f"~{now}"}, ensure_ascii=False, separators=(",", ":")
            )
            tx.run("UPDATE action SET doc = :doc WHERE id = :id", {"doc": doc, "id": row["id"]})


def dispatch(tx: Transaction, action_id: int, holder: str, host_id: str | None, now: int) -> int:
    """Mark an action as dispatched, before its engine is called, and store the host that runs it.

    Returns 0 if this core may not dispatch it.
    """
    return tx.run(
        "UPDATE action SET dispatched_at = :now, host_id = :host_id WHERE id = :id AND owner = :holder"
        " AND status = 'Waiting' AND dispatched_at IS NULL AND awaits_approval = 0",
        {"id": action_id, "holder": holder, "host_id": host_id, "now": now},
    )


def set_end(tx: Transaction, values: Mapping[str, Any], *, keep_target: bool) -> None:
    """Store the end of an action; its target stays only if it left something in force.

    `id, status, doc, whole_report, whole_operations, parameters, now`; `parameters`, those in `doc`, replace the stored
    ones, which may have secrets.
    """
    tx.run(
        "UPDATE action SET status = :status, doc = :doc, whole_report = :whole_report,"
        " whole_operations = :whole_operations, parameters = coalesce(whole_parameters, :parameters),"
        " owner = NULL, awaits_approval = 0, report_at = :now"
        f"{'' if keep_target else ', target = NULL'} WHERE id = :id",
        values,
    )


def change(tx: Transaction, action_id: int, **values: str | None) -> None:
    """Store other values in columns of an action, such as its JSON (`doc`), or its `owner` (None: any may claim it)."""
    columns = ", ".join(f"{name} = :{name}" for name in values)
    tx.run(f"UPDATE action SET {columns} WHERE id = :id", {**values, "id": action_id})


def find_report(reads: Reads, action_id: int) -> Row | None:
    """The report of an action while its operations are applied in several commits (`at, report`), or None."""
    return reads.row("SELECT at, report FROM ending WHERE action_id = :id", {"id": action_id})


def outcomes(reads: Reads, action_id: int) -> str | None:
    """The outcomes (JSON) of the operations of such a report that were applied so far, or None."""
    return reads.value("SELECT outcomes FROM ending WHERE action_id = :id", {"id": action_id})


def insert_report(tx: Transaction, action_id: int, at: int, report: str) -> None:
    tx.insert("ending", {"action_id": action_id, "at": at, "report": report, "outcomes": "[]"})


def set_outcomes(tx: Transaction, action_id: int, outcomes: str) -> None:
    tx.run("UPDATE ending SET outcomes = :outcomes WHERE action_id = :id", {"id": action_id, "outcomes": outcomes})


def delete_report(tx: Transaction, action_id: int) -> None:
    tx.run("DELETE FROM ending WHERE action_id = :id", {"id": action_id})


def set_approved(tx: Transaction, action_id: int, doc: str, holder: str | None) -> None:
    """Store the last approval. `holder` may then dispatch the action; any core may, if it is None or has no lease."""
    tx.run(
        "UPDATE action SET doc = :doc, owner = (SELECT holder FROM owner WHERE holder = :holder), awaits_approval = 0"
        " WHERE id = :id",
        {"id": action_id, "doc": doc, "holder": holder},
    )


HELD = f"SELECT id, engine_name, dispatched_at FROM action WHERE {OPEN} AND owner = :holder"
"""The open actions whose lease a core holds."""


def timed(reads: Reads, limit: int) -> list[int]:
    """The first actions that core undoes, or whose approval expires, at a time."""
    return reads.column(
        "SELECT action_id FROM in_force WHERE id IN (SELECT id FROM due WHERE kind = 'undo')"
        " UNION SELECT action_id FROM approval WHERE is_waiting = 1 ORDER BY action_id LIMIT :limit",
        {"limit": limit},
    )


_UNCLAIMED = f"{OPEN} AND owner IS NULL AND awaits_approval = 0"  # as in the index


def unclaimed_of(reads: Reads, engine_name: str, names: Sequence[str] | None, limit: int) -> list[int]:
    """The oldest unclaimed actions of an engine, at most `limit`, for responders with these `names` (None: all)."""
    return reads.column(
        f"SELECT id FROM action WHERE engine_name = :engine AND {_UNCLAIMED}{_named(names)} ORDER BY id LIMIT :limit",
        {"engine": engine_name, "names": json.dumps(names), "limit": limit},
    )


def claim(tx: Transaction, engine_name: str, names: Sequence[str] | None, limit: int, holder: str) -> list[Row]:
    """Give a core the oldest unclaimed actions of an engine: `id, run_id, dispatched_at`, oldest first."""
    rows = tx.rows(
        f"UPDATE action SET owner = :holder WHERE id IN (SELECT id FROM action WHERE engine_name = :engine"
        f" AND {_UNCLAIMED}{_named(names)} ORDER BY id LIMIT :limit) RETURNING id, run_id, dispatched_at",
        {"holder": holder, "engine": engine_name, "names": json.dumps(names), "limit": limit},
    )
    return sorted(rows, key=lambda row: int(row["id"]))


def _named(names: Sequence[str] | None) -> str:
    return "" if names is None else " AND responder_name IN (SELECT value FROM json_each(:names))"


def unclaimed(reads: Reads, limit: int) -> list[Row]:
    """The oldest actions that wait for a core: `id, engine_name, responder_name, dispatched_at`."""
    columns = "id, engine_name, responder_name, dispatched_at"
    return reads.rows(f"SELECT {columns} FROM action WHERE {_UNCLAIMED} ORDER BY id LIMIT :limit", {"limit": limit})


def claim_one(tx: Transaction, action_id: int, holder: str) -> int:
    """Give a core one unclaimed action. Returns 0 if another core has claimed it."""
    values = {"id": action_id, "holder": holder}
    return tx.run(f"UPDATE action SET owner = :holder WHERE id = :id AND {_UNCLAIMED}", values)


def cancelled_of(reads: Reads, holder: str) -> list[int]:
    """The open actions that a core has dispatched and somebody has cancelled."""
    return reads.column(
        f"SELECT id FROM action WHERE {OPEN} AND owner = :holder AND dispatched_at IS NOT NULL"
        " AND cancelled_by IS NOT NULL",
        {"holder": holder},
    )


def release_waiting(tx: Transaction, holder: str) -> int:
    """Let any core claim the actions that a core holds and has not dispatched."""
    return tx.run(
        f"UPDATE action SET owner = NULL WHERE {OPEN} AND owner = :holder AND dispatched_at IS NULL",
        {"holder": holder},
    )


def dispatched_by(reads: Reads, holder: str) -> list[Row]:
    """The actions that a core has dispatched and that are open, as `find` gives them."""
    return reads.rows(
        f"SELECT {_COLUMNS}, target FROM action WHERE {OPEN} AND owner = :holder AND dispatched_at IS NOT NULL"
        " ORDER BY id",
        {"holder": holder},
    )


def open_run_ids(reads: Reads) -> list[str]:
    return reads.column(f"SELECT run_id FROM action WHERE {OPEN}")


def unreported_ids(reads: Reads) -> list[int]:
    """The open actions without a report; those with one are being ended."""
    sql = f"SELECT id FROM action WHERE {OPEN} AND id NOT IN (SELECT action_id FROM ending)"
    return reads.column(sql)


def remembered(reads: Reads, login: str, key: str, body: str, now: int) -> int | None:
    """What the request with this Idempotency-Key started; None if none had it, or none was given.

    Raises ResponderBotError("key_reused") if that had another body.
    """
    row = reads.row(
        "SELECT digest, action_id FROM idempotency WHERE login = :login AND key = :key AND created_at >= :since",
        {"login": login, "key": key, "since": now - IDEMPOTENCY_KEY_MS},
    )
    if row is not None and row["digest"] != digest_of(body):
        sentence = "This Idempotency-Key was used before with another body; use a new key for a new request."
        raise ResponderBotError("key_reused", sentence)
    return None if row is None else int(row["action_id"])


def remember(tx: Transaction, login: str, key: str, body: str, action_id: int, now: int) -> None:
    """Store an Idempotency-Key, in place of an expired one, and a digest of the body, which may hold secrets."""
    values = {"digest": digest_of(body), "action_id": action_id, "created_at": now}
    tx.put("idempotency", ("login", "key"), {"login": login, "key": key, **values})


def digest_of(body: str) -> str:
    """The digest of a request's body, which shows whether a repeated key has the same body."""
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()


def forget_keys(tx: Transaction, before: int, limit: int) -> int:
    some = "SELECT login, key FROM idempotency WHERE created_at < :before LIMIT :limit"
    sql = f"DELETE FROM idempotency WHERE (login, key) IN ({some})"
    return tx.run(sql, {"before": before, "limit": limit})


def queued(reads: Reads) -> int:
    """Number of actions that wait for a slot on their engine or for approval."""
    # The first condition selects the partial index.
    return reads.number(
        "SELECT count(*) AS count FROM action WHERE status IN ('Waiting', 'InProgress') AND status = 'Waiting'"
    )


async def counts(database: Database) -> list[Row]:
    """`status, responder_name, count` of all actions; in the background, since it scans them all."""
    return await database.fetch_in_background(
        "SELECT status, responder_name, count(*) AS count FROM action GROUP BY responder_name, status"
    )


# --- runs that rates count --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SameTarget:
    """Selects the actions on the same target as a run."""

    is_artifact: bool
    object_id: int
    names: Sequence[str]
    """The targets that an artifact names, as hashes; empty for other kinds."""
    roots: Sequence[int] = ()
    """For other kinds: the alerts and the case that count as one target."""


_SAME_TARGET = (
    " AND CASE WHEN :is_artifact = 1 THEN kind = 'case_artifact' AND (object_id = :object_id OR id IN"
    " (SELECT action_id FROM action_target WHERE target IN (SELECT value FROM json_each(:names))))"
    " ELSE kind <> 'case_artifact' AND root_id IN (SELECT CAST(value AS BIGINT) FROM json_each(:roots)) END"
)


def dispatched(
    reads: Reads, responder_name: str, since: int, until: int, limit: int, *, but: int, on: SameTarget | None = None
) -> list[int]:
    """The times of the newest dispatches of a responder, after `since` and up to `until` (ms), newest first.

    Excludes the action `but`; with `on` only those on that target.
    """
    return reads.column(
        "SELECT dispatched_at AS at FROM action WHERE responder_name = :name AND dispatched_at > :since"
        f" AND dispatched_at <= :until AND id <> :but{_SAME_TARGET if on else ''}"
        " ORDER BY dispatched_at DESC LIMIT :limit",
        {"name": responder_name, "since": since, "until": until, "limit": limit, "but": but, **_values(on)},
    )


def count_waiting(reads: Reads, responder_name: str, *, on: SameTarget | None = None) -> int:
    """How many runs of a responder wait for approval or for their engine."""
    return reads.number(
        "SELECT count(*) AS total FROM action WHERE status = 'Waiting' AND responder_name = :name"
        f" AND dispatched_at IS NULL{_SAME_TARGET if on else ''}",
        {"name": responder_name, **_values(on)},
    )


def _values(on: SameTarget | None) -> dict[str, object]:
    if on is None:
        return {}
    return {
        "is_artifact": on.is_artifact,
        "object_id": on.object_id,
        "names": json.dumps(list(on.names)),
        "roots": json.dumps(list(on.roots)),
    }
