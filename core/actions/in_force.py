"""What runs leave in force: a row for each target, from the dispatch until it is undone (core/docs/in-force.md).

The rows are the truth. What the JSON of an action says of them, its `undo` and `measure`, is written in the transaction
that changes them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from core.audit import trail
from core.authorization import Caller
from core.common.clock import FOR_EVER, HOUR_MS, MINUTE_MS, time_text
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.models import (
    CAN_UNDO,
    Action,
    EndChange,
    Extension,
    InForce,
    MeasureOfRun,
    Outcome,
    TargetArtifact,
    Undo,
    UndoState,
    number_of,
)
from core.protection import BLOCK, Look, Parsed, look_of
from core.records import block_readers
from core.responders import target as targets
from core.responders.target import Target
from core.settings import OWN_ENGINE, ResponderSection
from core.store import actions as stored_actions
from core.store import approvals, due, events, objects
from core.store import in_force as stored
from core.store.approvals import StoredApproval

OBJECT = "object"  # the kind of a target that nobody knows, so that it may be anything in its object
_URGENCY = ("waiting", "failed", "available", "running", "replaced", "undone", None)
"""Of several targets the action shows the first of these states."""
MOST_EARLIER = 3  # of its extensions that an action keeps beside the newest
RETRY_MS = MINUTE_MS  # until core tries a refused undo again; grows with its delay up to LAST_RETRY_MS
LAST_RETRY_MS = HOUR_MS

Known = tuple[Action, int, Set[str]]
"""A run, its root, and the digests of what it is to act on."""
SectionOf = Callable[[str], ResponderSection]
"""The settings of a responder."""


# --- from a run's request to its end --------------------------------------------------------------------------------


def undo_of_run(section: ResponderSection, minutes: int | None, *, is_installed: bool) -> Undo | None:
    """How a run can be undone that requests `minutes` (0: no end; None: as the settings say).

    `is_installed`: whether what undoes it is there now. Raises ResponderBotError("bad_request") for what the settings
    don't allow.
    """
    if not section.undo:
        if minutes:
            raise ResponderBotError(
                "bad_request", "This responder has no undo, so it can't end by itself; leave out undoAfterMinutes."
            )
        return None
    asked = section.undo_after_minutes if minutes is None else minutes
    _require_allowed(section, asked)
    return Undo(responder=section.undo, installed=None if is_installed else False, after_minutes=asked or None)


def _require_allowed(section: ResponderSection, minutes: int) -> None:
    longest = section.undo_after_minutes
    if longest and not section.allow_permanent and not 0 < minutes <= longest:
        sentence = f"This responder is to be undone after at most {longest} minutes; give it 1 to {longest}."
        raise ResponderBotError("bad_request", sentence)


def begin(tx: Transaction, action: Action, row: Row, section: ResponderSection, target: Target, now: int) -> None:
    """Record what a run which contains something may leave in force: what it is to act on, or its object."""
    if action.undoes is not None or not (action.undo or section.contains):
        return
    undone_by = what_undoes(action)
    common = {"action_id": row["id"], "responder": row["responder_name"], "undone_by": undone_by, "since": now}
    rows: dict[str, tuple[dict[str, Any], Look | None]] = {}
    for artifact, named in targets.acted_on(action.target, target).items():
        of_target = {"artifact": artifact, "target_kind": named.kind, "target": named.value, "digest": named.digest}
        rows.setdefault(named.digest, ({**common, **of_target}, look_of(named)))
    if not rows:
        digest, on = _digest_of_object(action.object_id), action.object_id
        rows[digest] = ({**common, "artifact": None, "target_kind": OBJECT, "target": on, "digest": digest}, None)
    ids = objects.next_ids(tx, len(rows))
    stored.insert(tx, [({**values, "id": id_}, look) for id_, (values, look) in zip(ids, rows.values(), strict=True)])


def _digest_of_object(object_id: str) -> str:
    return sha256(f"{OBJECT}\0{object_id}".encode()).hexdigest()


def settle(
    tx: Transaction, row: Row, action: Action, outcome: Outcome, section_of: SectionOf, now: int, *, is_known: bool
) -> Action:
    """Store what a run that has ended leaves; returns its action with that. `is_known`: it said itself how it ended."""
    begun = stored.of_action(tx, row["id"])
    if not begun or (is_known and outcome != "succeeded"):
        return _left_nothing(tx, row, action, now)
    undo, at, limits = action.undo, _planned_end(action.undo, now), list[_Limit]()
    is_own = row["engine_name"] == OWN_ENGINE  # whose effect is what is in force
    for one in begun:
        limit = None if undo is None or action.approval is not None else _limit(tx, one, at)
        if limit is not None:
            limits.append(limit)
        is_in_force = is_own or (outcome == "succeeded" and not one["is_crossed"])
        values = {
            "state": "in_force" if is_in_force else "unknown",
            "undo_status": None if undo is None else "available",
            "approved_until": None if action.approval is None else at,
            **_until(at if limit is None else limit.until),
        }
        stored.change(tx, one["id"], values, now)
    _request_extensions(tx, limits, End(at), section_of, row["created_by"], now)
    _tell_others(tx, begun, row["created_by"], now)
    return _with_rows(tx, action)


def _left_nothing(tx: Transaction, row: Row, action: Action, now: int) -> Action:
    """Forget what a run was to leave; those that wait for the same hear of that."""
    stored.delete_of(tx, row["id"])
    on = stored_actions.targets_of(tx, row["id"]) if action.approval is not None else ()
    _tell_waiting(tx, {(what_undoes(action), digest) for digest in on}, row["created_by"], now, but=action.bulk)
    return action


def _planned_end(undo: Undo | None, now: int) -> int | None:
    """When core undoes what succeeds now (ms); None: not by itself."""
    return None if undo is None or not undo.after_minutes else now + undo.after_minutes * MINUTE_MS


def _tell_others(tx: Transaction, rows: Iterable[Row], user: str, now: int) -> None:
    """Record an event for the other runs with something in force on the same, or that wait to: they say until when."""
    on = {(one["undone_by"], one["digest"]): one["action_id"] for one in rows}
    same = [other for undone_by, digest in on for other in stored.on(tx, undone_by, [digest])]
    for row, _ in _by_action(tx, (other for other in same if other["action_id"] not in on.values())):
        _tell(tx, row["id"], row["root_id"], user, now)
    _tell_waiting(tx, on.keys(), user, now)


def _tell_waiting(
    tx: Transaction, on: Iterable[tuple[str, str]], user: str, now: int, *, but: str | None = None
) -> None:
    """Likewise only for the runs that wait, in another bulk, for what this responder undoes on these digests.

    A transaction asks for them once, at its end.
    """
    for key in on:
        tx.at_end.setdefault(_tell_all_waiting, {}).setdefault(key, {})[but] = user, now


def _tell_all_waiting(tx: Transaction, on: Mapping[tuple[str, str], Mapping[str | None, tuple[str, int]]]) -> None:
    for run, root, digests in waiting_on(tx, {digest for _, digest in on}):
        found = [on[key] for digest in digests if (key := (what_undoes(run), digest)) in on]
        others = [each for by_bulk in found for bulk, each in by_bulk.items() if bulk is None or bulk != run.bulk]
        for user, now in others[:1]:
            _tell(tx, run.number, root, user, now)


def _tell(tx: Transaction, number: int, root: int, user: str, now: int) -> None:
    events.record(tx, number, at=now, type="action.updated", object_type="Action", root_id=root, user=user)


# --- the action's JSON ----------------------------------------------------------------------------------------------


def _with_rows(reads: Reads, action: Action) -> Action:
    """An action that has ended with what its rows say."""
    rows = stored.of_action(reads, action.number)
    if not rows:
        return action
    first = min(rows, key=lambda one: (_URGENCY.index(one["undo_status"]), -end_of(one)[0]))
    undo = undo_of(action, first)
    states = {one["state"] for one in rows}
    state = next(one for one in ("in_force", "unknown", "ended") if one in states)
    shown = max((one for one in rows if one["state"] == state), key=lambda one: (one["ended_at"] or 0, one["id"]))
    measure = MeasureOfRun(
        **_in_force_state(shown), targets=[_shown(one, is_undoable=undo is not None) for one in rows]
    )
    return action.model_copy(update={"undo": undo, "measure": measure})


def _shown(one: Row, *, is_undoable: bool) -> InForce:
    undo = _undo_state(one) if is_undoable else None
    return InForce(id=f"~{one['id']}", target=one["artifact"], undo=undo, **_in_force_state(one))


def _in_force_state(one: Row) -> dict[str, Any]:
    names = ("state", "since", "ended_at", "ended_by")
    return {**{name: one[name] for name in names}, "message": one["reason"]}


def _undo_state(one: Row) -> UndoState:
    moved = one["moved_by"] and EndChange(
        by=one["moved_by"], at=one["moved_at"], before=one["moved_from"], after=one["ends_at"]
    )
    return UndoState(
        status=one["undo_status"],
        at=_undo_at(one),
        action_id=None if one["undo_id"] is None else f"~{one['undo_id']}",
        message=one["message"],
        approved_until=one["approved_until"],
        changed=moved or None,
    )


def _undo_at(one: Row) -> int | None:
    """When core undoes a row, or has begun to at its time (ms); None: not by itself."""
    has_begun = one["undo_status"] in ("running", "undone") and one["is_due"]
    at: int | None = one["ends_at"]
    if one["undo_status"] == "failed":
        at = one["due_at"]
    elif one["due_at"] is None and not has_begun:
        at = None
    return at


def undo_of(action: Action, one: Row) -> Undo | None:
    """The `undo` of an action for one of its rows alone."""
    return None if action.undo is None else action.undo.model_copy(update=dict(_undo_state(one)))


def _change(
    tx: Transaction,
    row: Row,
    changes: Mapping[int, Mapping[str, Any]],
    what: trail.What,
    user: str,
    now: int,
    *,
    by: str = trail.CORE,
    reason: str | None = None,
    asked: Extension | None = None,
    details: Mapping[str, Any] | None = None,
) -> Action:
    """Change rows of an action by their ids, and its JSON with them, with an event and a row of the audit (`what`).

    An extension that waits lapses with the last of its targets that was changed; `asked`, if given, replaces it.
    """
    changed = [stored.change(tx, number, values, now) for number, values in changes.items()]
    _tell_others(tx, [one for one in changed if "ends_at" in changes[one["id"]]], user, now)
    action = _loaded(stored_actions.find(tx, row["id"]) or row)  # as it is by now
    if action.undo is not None:
        extension = asked or _without_changed(tx, row["id"], action.undo.extension, changes)
        action = action.model_copy(update={"undo": action.undo.model_copy(update={"extension": extension})})
    action = _with_rows(tx, action)
    stored_actions.change(tx, row["id"], doc=action.to_json())
    _tell(tx, row["id"], row["root_id"], user, now)
    of = {*changes, *map(number_of, asked.targets if asked else ())}
    texts = {"reason": reason, "target": _named_if_part(stored.of_action(tx, row["id"]), of)}
    trail.record_run(tx, now, what, row, by=by, texts=texts, **(details or {}))
    return action


def _without_changed(
    tx: Transaction, number: int, extension: Extension | None, changes: Mapping[int, Mapping[str, Any]]
) -> Extension | None:
    """An extension of an action that waits for its other rows only; it lapses with the last of them."""
    over = {f"~{id_}" for id_, values in changes.items() if values.get("undo_status", "waiting") != "waiting"}
    if extension is None or extension.outcome is not None or not over.intersection(extension.targets):
        return extension
    left = [one for one in extension.targets if one not in over]
    if left:
        return extension.model_copy(update={"targets": left})
    approvals.delete_of(tx, number)
    return extension.model_copy(update={"outcome": "lapsed"})


def _named_if_part(rows: Collection[Row], ids: Set[int]) -> str | None:
    """What those of an action's rows with these ids are on; None if these are all."""
    if len(ids) >= len(rows):
        return None
    return " ".join(one["target"] for one in rows if one["id"] in ids) or None


def _loaded(row: Row) -> Action:
    return Action.model_validate_json(row["doc"])


# --- undone -----------------------------------------------------------------------------------------------------------


def require_undoable(reads: Reads, number: int, numbers: Collection[int] = ()) -> tuple[Row, list[Row]]:
    """An action, and those of its rows (`numbers`; none: all) that can be undone now.

    Raises ResponderBotError("conflict") with the reason if none can.
    """
    row = stored_actions.find(reads, number)
    if row is None:
        raise ResponderBotError("not_found", "Action not found")
    rows = [one for one in stored.of_action(reads, number) if not numbers or one["id"] in numbers]
    found = [one for one in rows if one["undo_status"] in CAN_UNDO]
    if found and row["undoes"] is None:
        return row, found
    known = min(rows, key=lambda one: _URGENCY.index(one["undo_status"]), default=None)
    by = None if known is None or known["undo_id"] is None else stored_actions.find(reads, known["undo_id"])
    details = {} if by is None else {"action": json.loads(by["doc"])}
    raise ResponderBotError("conflict", _why_not(row, known), details=details)


def _why_not(row: Row, known: Row | None) -> str:
    if row["undoes"] is not None:
        return f"This undid ~{row['undoes']}; to have that back, run its responder again."
    if _loaded(row).undo is None:
        return f"{row['responder_name']} had no undo when this ran."
    if known is None or known["undo_status"] is None:
        return f"Only what has succeeded can be undone; this is {row['status']}."
    if known["undo_status"] == "running":
        return f"It is already being undone, by ~{known['undo_id']}."
    by = f"It was undone, by ~{known['undo_id']}" if known["undo_id"] else f"{known['ended_by']} marked it as ended"
    return f"{by}."


def undo_started(tx: Transaction, row: Row, rows: Iterable[Row], by: Action, now: int, *, is_due: bool) -> None:
    """Note that rows of an action are being undone; their time is over if that started it (`is_due`)."""
    values: dict[str, Any] = {"undo_status": "running", "undo_id": by.number, "is_due": int(is_due), "message": None}
    values |= {"due_at": None} if is_due else {}
    changes, who = {one["id"]: values for one in rows}, trail.CORE if is_due else by.created_by
    _change(tx, row, changes, "undo.started", by.created_by, now, by=who, details={"action": by.id})


def is_timed(reads: Reads, by: Row) -> bool:
    """Whether an open action is a timed undo."""
    rows = [] if by["undoes"] is None else stored.of_action(reads, by["undoes"])
    return any(one["undo_id"] == by["id"] and one["is_due"] for one in rows)


def undo_failed(tx: Transaction, number: int, by: Action, now: int) -> None:
    """Note that the run which was to undo an action has not. A time that is yet to come stays."""
    row = stored_actions.find(tx, number)
    rows = [one for one in stored.of_action(tx, number) if one["undo_id"] == by.number and one["state"] != "ended"]
    if row is not None and rows:  # else it was deleted by hand
        changes = {one["id"]: {"undo_status": "failed"} for one in rows}
        _change(tx, row, changes, "undo.failed", by.created_by, now, details={"action": by.id})


def end_undone(tx: Transaction, row: Row, by: Action, target: Target, now: int) -> None:
    """End what a successful run undoes: all that its responder undoes on what it acted on.

    What began while it ran is unknown from then on, and so is what may be the same.
    """
    named = targets.acted_on(by.target, target)
    digests = {one.digest for one in named.values()} or {_digest_of_object(by.object_id)}
    ended, newer = _to_undo(tx, row), list[Row]()
    ids = {one["id"] for one in ended}
    same = stored.on(tx, row["responder_name"], digests)
    same = _without_starting(tx, (one for one in same if one["id"] not in ids and _covers(tx, row, one)), now)
    for one in same:
        if one["since"] <= (row["dispatched_at"] or 0) or _is_own(tx, one):
            ended.append(one)
        else:
            newer.append(one)
    alike = _without_starting(tx, stored.alike(tx, row["responder_name"], _looks(named.values())), now)
    alike = [one for one in alike if not _is_own(tx, one)]
    end(tx, ended, by.created_by, now, by=by)
    _doubt(tx, newer, now)
    sentence = f"{by.id} undid what may be the same. Look at the target, then undo this or mark it as ended."
    _doubt(tx, alike, now, sentence)


def _to_undo(reads: Reads, row: Row) -> list[Row]:
    """What a run was started to undo, as far as that has not ended; nothing of one that only has the same effect."""
    rows = [] if row["undoes"] is None else stored.of_action(reads, row["undoes"])
    return [one for one in rows if one["undo_id"] == row["id"] and one["state"] != "ended"]


def _without_starting(tx: Transaction, rows: Iterable[Row], now: int) -> list[Row]:
    """Those of these rows that aren't only starting; the others are unknown once they have begun."""
    begun = list[Row]()
    for one in rows:
        if one["state"] == "starting":
            stored.change(tx, one["id"], {"is_crossed": 1}, now)
        else:
            begun.append(one)
    return begun


def _is_own(reads: Reads, one: Row) -> bool:
    """Whether it is of core's own engine, whose effect is what is in force."""
    row = stored_actions.find(reads, one["action_id"])
    return row is not None and row["engine_name"] == OWN_ENGINE


def undone_by(reads: Reads, responder_name: str, object_id: str, acts_on: Iterable[TargetArtifact]) -> list[Row]:
    """What is in force that a run of this responder on these artifacts, or without any on the object, would end."""
    return stored.on(reads, responder_name, digests_of(object_id, acts_on))


def digests_of(object_id: str, acts_on: Iterable[TargetArtifact]) -> set[str]:
    """What a run on these artifacts, or without any on the object, acts on."""
    return {Parsed(one.kind, one.data.strip()).digest for one in acts_on} or {_digest_of_object(object_id)}


def known(rows: Iterable[Row]) -> list[Known]:
    """Of rows with `root_id, doc`; without those that are damaged, which must not stop the others."""
    found = list[Known]()
    for row in rows:
        with suppress(ValueError):
            run = _loaded(row)
            found.append((run, row["root_id"], digests_of(run.object_id, run.target or ())))
    return found


def waiting_on(reads: Reads, digests: Iterable[str]) -> list[Known]:
    """The runs that wait for approval to act on one of these, newest first, each with those of them that it acts on."""
    rows, on = dict[int, Row](), dict[int, set[str]]()
    for row in stored_actions.waiting_on(reads, digests):
        rows[row["id"]] = row
        on.setdefault(row["id"], set()).add(row["target"])
    return [(run, root, on[run.number]) for run, root, _ in known(rows.values())]


def what_undoes(action: Action) -> str:
    """What undoes a run; itself, if nothing does."""
    return action.undo.responder if action.undo is not None else action.responder_name


def _covers(reads: Reads, row: Row, one: Row) -> bool:
    """Whether a run on the same target acts on all of it: on an object also on all that the other run may act on."""
    if one["target_kind"] != OBJECT:
        return True
    other = stored_actions.find(reads, one["action_id"])
    return other is not None and targets.covers(row, other)


def _looks(named: Iterable[Parsed]) -> list[tuple[str, Look]]:
    return [(one.digest, look_of(one)) for one in named]


def _by_action(reads: Reads, rows: Iterable[Row]) -> list[tuple[Row, list[Row]]]:
    """These rows with their actions."""
    found = grouped((one["action_id"], one) for one in rows)
    actions = ((stored_actions.find(reads, number), of_action) for number, of_action in found.items())
    return [(row, of_action) for row, of_action in actions if row is not None]


def end(
    tx: Transaction, rows: Collection[Row], login: str, now: int, *, by: Action | None = None, reason: str | None = None
) -> list[Action]:
    """End rows, which a run has undone (`by`), or which somebody says have ended, with the `reason`."""
    values = {"state": "ended", "ended_at": now, "ended_by": login, "due_at": None, "reason": reason, "message": reason}
    is_due = by is not None and any(one["is_due"] and one["undo_id"] == by.number for one in rows)
    undone = {"undo_status": "undone", "undo_id": by.number if by else None, "is_due": int(is_due)}
    who, said = (trail.CORE, {"action": by.id}) if by else (login, {"action": None})
    ended = []
    for row, of_action in _by_action(tx, rows):
        new = values if _loaded(row).undo is None else {**values, **undone}
        changes = {one["id"]: new for one in of_action}
        ended.append(_change(tx, row, changes, "measure.ended", login, now, by=who, reason=reason, details=said))
        left = [one for one in stored.of_action(tx, row["id"]) if one["state"] != "ended"]
        if not left:
            stored_actions.change(tx, row["id"], target=None)
        if row["responder_name"] == BLOCK:
            block_readers.ended(tx, row["id"], [one["target_kind"] for one in left], now)
    _tell_waiting(tx, {(one["undone_by"], one["digest"]) for one in rows}, login, now)
    return ended


def _doubt(tx: Transaction, rows: Iterable[Row], now: int, reason: str | None = None) -> None:
    """Note that nobody knows whether rows are in force; `reason` is why, for their threads."""
    for row, of_action in _by_action(tx, (one for one in rows if one["state"] != "unknown")):
        changes = {one["id"]: {"state": "unknown", "reason": reason} for one in of_action}
        _change(tx, row, changes, "undo.doubted", row["created_by"], now, reason=reason)


def doubt_all(tx: Transaction, message: str, now: int) -> None:
    """Note that nobody knows what is in force, and end all times, but for what is core's own."""
    _doubt(tx, [one for one in stored.active(tx) if not _is_own(tx, one)], now)
    values = {"undo_status": "failed", "due_at": None, "message": message}
    for row, rows in _by_action(tx, [one for one in stored.with_time(tx) if not _is_own(tx, one)]):
        changes = {one["id"]: values for one in rows}
        _change(tx, row, changes, "undo.failed", row["created_by"], now, reason=message)


# --- its end ----------------------------------------------------------------------------------------------------------


def _end(at: int | None) -> int:
    return FOR_EVER if at is None else at


def end_of(one: Row) -> tuple[int, int]:
    """When a row ends, so that of several with the same end one is the last."""
    return _end(one["ends_at"]), one["id"]


def _until(at: int | None) -> dict[str, Any]:
    """The columns that say when core undoes a row: the only place that gives it a time."""
    return {"ends_at": at, "due_at": at}


class _Limit(NamedTuple):
    """The latest end that was approved for a target."""

    until: int
    id: int
    row: Row
    """The action for which it was approved."""


def _limit(reads: Reads, one: Row, until: int | None) -> _Limit | None:
    """The latest end that was approved for what the same undoes on a target, if this end is later.

    None if no run on it took approvals.
    """
    same = [other for other in stored.on(reads, one["undone_by"], [one["digest"]]) if other["undo_status"]]
    limits = [
        _Limit(_end(other["approved_until"]), other["id"], row)
        for row, rows in _by_action(reads, same)
        for other in rows
        if _loaded(row).approval is not None
    ]
    latest = max(limits, key=lambda limit: limit[:2], default=None)
    return latest if latest is not None and _end(until) > latest.until else None


class End(NamedTuple):
    """When somebody wants core to undo something."""

    at: int | None
    """None: not by itself (ms)."""
    note: str = ""
    """Why."""
    request: str | None = None
    """The id of the request, if it is one of several at once."""


def set_time(
    tx: Transaction, row: Row, rows: Sequence[Row], end: End, section_of: SectionOf, user: str, now: int
) -> Action:
    """Have rows of an action undone at this time; returns the action that decides.

    What goes beyond the end that was approved for a target, for whichever run, is only asked for. Raises
    ResponderBotError("bad_request") for what the settings don't allow.
    """
    _require_allowed(section_of(row["responder_name"]), 0 if end.at is None else -(-(end.at - now) // MINUTE_MS))
    limits = [limit for one in rows if (limit := _limit(tx, one, end.at)) is not None]
    if asked := _request_extensions(tx, limits, end, section_of, user, now):
        return asked[-1]
    before = _undo_at(max(rows, key=end_of))
    changes = {one["id"]: {**_moved(one, end.at, user, now), "message": None} for one in rows}
    times = {"before": before, "after": end.at}
    return _change(tx, row, changes, "undo.moved", user, now, by=user, reason=end.note or None, details=times)


def _moved(one: Row, until: int | None, user: str, now: int) -> dict[str, Any]:
    moved = {"moved_by": user, "moved_at": now, "moved_from": _undo_at(one)}
    return {"undo_status": "available", **_until(until), **moved}


def _request_extensions(
    tx: Transaction, limits: Iterable[_Limit], end: End, section_of: SectionOf, user: str, now: int
) -> list[Action]:
    """Ask for a later end than these, of each action for which they were approved."""
    numbers: dict[int, set[int]] = {}
    for limit in limits:
        numbers.setdefault(limit.row["id"], set()).add(limit.id)
    asked = []
    for number, ids in numbers.items():
        rows = [one for one in stored.of_action(tx, number) if one["id"] in ids]
        before = _undo_at(max(rows, key=end_of))
        ((row, _),) = _by_action(tx, rows[:1])
        action, section = _loaded(row), section_of(row["responder_name"])
        expires_at = before if before and before > now else now + section.approval_expires_minutes * MINUTE_MS
        needed = 0 if action.approval is None else action.approval.needed
        waiting = StoredApproval(objects.next_id(tx), number, user, now, needed, expires_at, ends_at=end.at)
        approvals.delete_of(tx, number)
        approvals.insert(tx, waiting)
        id_, of_rows, why = f"~{waiting.id}", [f"~{one['id']}" for one in rows], end.note or None
        about = {"id": id_, "asked_by": user, "asked_at": now, "at": end.at, "before": before, "note": why}
        more = {"request": end.request, "approval": waiting.shown(), "targets": of_rows, **_since_last(action)}
        extension = Extension(**about, **more)
        said = {"extension": id_, "before": before, "after": end.at}
        asked.append(
            _change(tx, row, {}, "extension.requested", user, now, by=user, reason=why, asked=extension, details=said)
        )
    return asked


def _since_last(action: Action) -> Mapping[str, Any]:
    """What the next extension says of those before: the last that ended, and what it replaces.

    Who asked for what it replaces hears of that; of a request of several at once nobody does.
    """
    last = action.undo.extension if action.undo is not None else None
    if last is None:
        return {}
    if last.outcome is not None:
        return {"earlier": [last.model_copy(update={"earlier": []}), *last.earlier][:MOST_EARLIER]}
    replaced = {} if last.request else {"replaces": last.id, "asked_before": last.asked_by}
    return {"earlier": last.earlier, **replaced}


def extended(tx: Transaction, row: Row, action: Action, now: int) -> Action:
    """Set the later end that was approved."""
    undo = action.undo
    if undo is None or undo.extension is None:
        return action
    at, asked_by, approved = undo.extension.at, undo.extension.asked_by, {"outcome": "approved"}
    for one in stored.of_action(tx, row["id"]):
        if f"~{one['id']}" in undo.extension.targets:
            moved = _moved(one, at, asked_by, now)
            stored.change(tx, one["id"], {**moved, "approved_until": at, "message": None}, now)
    approvals.delete_of(tx, row["id"])
    _tell_others(tx, stored.of_action(tx, row["id"]), asked_by, now)
    extension = undo.extension.model_copy(update=approved)
    action = _with_rows(tx, action.model_copy(update={"undo": undo.model_copy(update={"extension": extension})}))
    stored_actions.change(tx, row["id"], doc=action.to_json())
    return action


def look_again(tx: Transaction, one: Row, now: int) -> None:
    """Check a row again after a moment, such as while somebody else undoes it."""
    due.put(tx, "undo", one["id"], now + RETRY_MS, now)


def postponed(tx: Transaction, row: Row, rows: Iterable[Row], message: str, now: int) -> None:
    """Note why due rows of an action could not be undone, and when to try again."""
    changes: dict[int, Mapping[str, Any]] = {}
    for one in rows:
        late = now - (one["ends_at"] or now)
        due_at = now + min(max(RETRY_MS, late // 2), LAST_RETRY_MS)
        if (one["undo_status"], one["message"]) == ("waiting", message):  # nothing that anybody sees has changed
            due.put(tx, "undo", one["id"], due_at, now)
        else:
            changes[one["id"]] = {"undo_status": "waiting", "message": message, "due_at": due_at}
    if changes:
        _change(tx, row, changes, "undo.refused", row["created_by"], now, reason=message)


def replaced(tx: Transaction, row: Row, one: Row, by: int, now: int) -> None:
    """Note that another run keeps the same in force for longer."""
    message = f"~{by} acts on the same and ends later, so that decides when it is undone."
    values = {"undo_status": "replaced", "due_at": None, "message": message}
    _change(tx, row, {one["id"]: values}, "undo.replaced", row["created_by"], now, details={"action": f"~{by}"})


@dataclass(frozen=True)
class Holder:
    """Another run that keeps in force what a row has."""

    number: int
    is_settled: bool
    """False while it starts or is being undone."""
    is_whole: bool
    """Whether it keeps all of it, so that the row need not be undone by itself."""


def holder(reads: Reads, one: Row) -> Holder | None:
    """What keeps in force, for longer, what a row has; None if it decides itself when that ends."""
    found: list[Holder] = []
    for other in stored.on(reads, one["undone_by"], [one["digest"]]):
        row = stored_actions.find(reads, other["action_id"])
        is_open = other["state"] == "starting"
        if row is None or other["id"] == one["id"] or not (is_open or end_of(other) > end_of(one)):
            continue
        is_settled = not is_open and other["undo_status"] != "running"
        found.append(Holder(other["action_id"], is_settled, _covers(reads, row, one)))
    return max(found, key=lambda held: (not held.is_settled, held.is_whole, held.number), default=None)


def lookalike(reads: Reads, one: Row) -> Row | None:
    """What lasts longer and may be on the same as a row, or None."""
    if one["target_kind"] == OBJECT:
        return None
    looks = _looks([Parsed(one["target_kind"], one["target"])])
    others = stored.alike(reads, one["undone_by"], looks)
    later = [other for other in others if other["state"] == "starting" or end_of(other) > end_of(one)]
    return max(later, key=end_of, default=None)


# --- listed -----------------------------------------------------------------------------------------------------------


def groups(reads: Reads) -> list[list[Row]]:
    """All that is in force, by target and what undoes it; oldest first."""
    return list(grouped(((one["undone_by"], one["digest"]), one) for one in stored.active(reads)).values())


class Lookalikes:
    """What is in force on a target, or on what may be the same, for somebody who is about to contain that."""

    def __init__(self, reads: Reads, caller: Caller) -> None:
        self._reads = reads
        self._sees_up_to = caller.sees_up_to
        self._by_look: dict[tuple[str, str], list[tuple[bool, Row]]] = {}
        for one in stored.active(reads):
            whole = dict.fromkeys((one["look"], one["look_folded"]))
            for look, is_label in (*((look, False) for look in whole), (one["look_label"], True)):
                self._by_look.setdefault((one["undone_by"], look), []).append((is_label, one))

    def sentences(self, undone_by: str, artifacts: Iterable[TargetArtifact]) -> list[str]:
        """Such as `lt-0198 looks like LT-0198.corp.example, which ~12 has in force until ...`, or that it is."""
        if not undone_by or not self._by_look:
            return []
        found: dict[int, str] = {}
        for artifact in artifacts:
            named = Parsed(artifact.kind, artifact.data.strip())
            rows = self._looking_like(undone_by, named)
            last = max((one for one in rows if one["digest"] == named.digest), key=end_of, default=None)
            for one in rows:
                if one is last or one["digest"] != named.digest:
                    found.setdefault(one["id"], self._sentence(artifact, one))
        return [sentence for _, sentence in sorted(found.items()) if sentence]

    def _looking_like(self, undone_by: str, named: Parsed) -> list[Row]:
        """What is in force on this target, and on what may be the same; a file looks like no other."""
        if named.kind == "file":
            return []
        look = look_of(named)
        rows = [one for own in look.whole for _, one in self._by_look.get((undone_by, own), ())]
        labels = (pair for own in look.label for pair in self._by_look.get((undone_by, own), ()))
        return rows + [one for is_label, one in labels if not is_label]

    def _sentence(self, artifact: TargetArtifact, one: Row) -> str:
        row = stored_actions.find(self._reads, one["action_id"])
        if row is None or targets.of_action(self._reads, row)[0].clearance > self._sees_up_to:
            return ""
        other = next((item for item in _loaded(row).target or () if item.id == one["artifact"]), None)
        until = f" until {time_text(one['ends_at'])}" if one["ends_at"] is not None else ""
        if other is None or other.tlp > self._sees_up_to:
            return ""
        if one["digest"] == Parsed(artifact.kind, artifact.data.strip()).digest:
            return f"~{row['id']} has it in force on {other.data} already{until}; the later end counts"
        return f"{artifact.data} looks like {other.data}, which ~{row['id']} has in force{until}"
