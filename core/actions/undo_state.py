"""Whether an action can be undone, and when core does it: the `undo` of its JSON (core/docs/semantics.md#undo)."""

import json
from typing import Any

from core.audit import trail
from core.common.clock import MINUTE_MS
from core.common.database import Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import Action, EndChange, Extension, MeasureOfRun, Undo, number_of
from core.settings import OWN_ENGINE, ResponderSection
from core.store import actions as stored
from core.store import approvals, events, measures, objects
from core.store.approvals import StoredApproval

RETRY_MS = MINUTE_MS  # until core tries a refused undo again; grows with its delay up to LAST_RETRY_MS
LAST_RETRY_MS = 60 * MINUTE_MS


class Entry:
    """What the audit says of a change of an undo."""

    def __init__(self, what: trail.What, *, by: str = trail.CORE, text: str | None = None, **details: Any) -> None:
        self.what, self.by, self.text, self.details = what, by, text, details

    def record(self, tx: Transaction, now: int, row: Row) -> None:
        """Add it as a row of that action."""
        trail.record(
            tx,
            now,
            self.what,
            by=self.by,
            object=f"~{row['id']}",
            root=f"~{row['root_id']}",
            on=f"~{row['object_id']}",
            responder=row["responder_name"],
            texts={"reason": self.text},
            **self.details,
        )


def of_run(section: ResponderSection, minutes: int | None, *, is_installed: bool) -> Undo | None:
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


def begun(action: Action, now: int) -> Undo | None:
    """The `undo` of an action that has just succeeded."""
    undo = action.undo
    if undo is None:
        return None
    at = None if undo.after_minutes is None else now + undo.after_minutes * MINUTE_MS
    approved_until = None if action.approval is None else at
    return undo.model_copy(update={"status": "available", "at": at, "approved_until": approved_until})


def require_undoable(tx: Reads, number: int) -> Row:
    """The row of an action that can be undone now. Raises ResponderBotError("conflict") with the reason."""
    row = stored.find(tx, number)
    if row is None:
        raise ResponderBotError("not_found", "Action not found")
    undo = _loaded(row).undo
    if reason := _why_not(row, undo):
        raise ResponderBotError("conflict", reason, details=_undo_action(tx, undo))
    return row


def _why_not(row: Row, undo: Undo | None) -> str:
    if row["undoes"] is not None:
        return f"This undid ~{row['undoes']}; to have that back, run its responder again."
    if undo is None:
        return f"{row['responder_name']} had no undo when this ran."
    if undo.status is None:
        return f"Only what has succeeded can be undone; this is {row['status']}."
    if undo.status == "running":
        return f"It is already being undone, by {undo.action_id}."
    if undo.status == "undone":
        return f"It was undone, by {undo.action_id}."
    return ""


def _undo_action(reads: Reads, undo: Undo | None) -> dict[str, Any]:
    """The `action` that undoes it or has undone it, as details of an error."""
    row = None if undo is None or undo.action_id is None else stored.find(reads, number_of(undo.action_id))
    return {} if row is None else {"action": json.loads(row["doc"])}


def started(tx: Transaction, row: Row, by: Action, now: int, *, is_due: bool) -> None:
    """Note that an action is being undone; clear its timer if that started the undo (`is_due`)."""
    undo_at = None if is_due else row["undo_at"]
    entry = Entry("undo.started", by=trail.CORE if is_due else by.created_by, action=by.id)
    save(tx, row, by.created_by, now, undo_at, entry, status="running", action_id=by.id, message=None)


def is_timed(reads: Reads, by: Row) -> bool:
    """Whether an open action is a timed undo."""
    row = None if by["undoes"] is None else stored.find(reads, by["undoes"])
    return row is not None and row["undo_at"] is None and _at(row) is not None


def failed(tx: Transaction, number: int, by: Action, now: int) -> None:
    """Note that the run which was to undo an action has not. A time that is yet to come stays."""
    row = stored.find(tx, number)
    if row is None:  # deleted by hand
        return
    undo = _loaded(row).undo
    if undo is None or undo.action_id != by.id:
        return
    entry = Entry("undo.failed", action=by.id)
    save(tx, row, by.created_by, now, row["undo_at"], entry, status="failed", at=row["undo_at"])


def set_time(tx: Transaction, row: Row, section: ResponderSection, undo_at: int | None, user: str, now: int) -> Action:
    """Have an action undone at this time, or (None) not by itself; ask for what goes beyond its approval.

    Raises ResponderBotError("bad_request") for what the settings don't allow.
    """
    _require_allowed(section, 0 if undo_at is None else -(-(undo_at - now) // MINUTE_MS))
    action = _loaded(row)
    until = None if action.undo is None else action.undo.approved_until
    if action.approval is None or until is None or (undo_at is not None and undo_at <= until):
        changed = _moved(tx, row, undo_at, user, now)
        entry = Entry("undo.moved", by=user, before=changed.before, after=undo_at)
        return save(tx, row, user, now, undo_at, entry, status="available", at=undo_at, message=None, changed=changed)
    due = _at(row) or now
    expires_at = due if due > now else now + section.approval_expires_minutes * MINUTE_MS
    number = objects.next_id(tx)
    asked = StoredApproval(number, row["id"], user, now, action.approval.needed, expires_at, ends_at=undo_at)
    approvals.delete_of(tx, row["id"])
    approvals.insert(tx, asked)
    extension = Extension(id=f"~{number}", asked_by=user, asked_at=now, at=undo_at, approval=asked.shown())
    entry = Entry("extension.requested", by=user, extension=extension.id, before=_at(row), after=undo_at)
    return save(tx, row, user, now, row["undo_at"], entry, extension=extension)


def extended(tx: Transaction, row: Row, action: Action, now: int) -> Action:
    """Set the later end that was approved."""
    undo = action.undo
    if undo is None or undo.extension is None:
        return action
    at, extension = undo.extension.at, undo.extension.model_copy(update={"outcome": "approved"})
    changed = _moved(tx, row, at, extension.asked_by, now)
    changes = {"status": "available", "at": at, "approved_until": at, "extension": extension, "changed": changed}
    action = action.model_copy(update={"undo": undo.model_copy(update={**changes, "message": None})})
    approvals.delete_of(tx, row["id"])
    stored.set_undo(tx, row["id"], action.to_json(), at)
    return action


def _moved(tx: Transaction, row: Row, undo_at: int | None, user: str, now: int) -> EndChange:
    """Move the end of what an action has left in force; returns who did so, from when to when."""
    measure = measures.find(tx, row["id"])
    if measure is not None:
        measures.set_state(tx, row["id"], measure["state"], undo_at)
    return EndChange(by=user, at=now, before=_at(row), after=undo_at)


def postponed(tx: Transaction, row: Row, message: str, now: int) -> None:
    """Note why a due action could not be undone, and when to try again."""
    late = now - (_at(row) or now)
    undo_at = now + min(max(RETRY_MS, late // 2), LAST_RETRY_MS)
    undo = _loaded(row).undo
    if undo is not None and (undo.status, undo.message) == ("waiting", message):
        stored.set_undo(tx, row["id"], row["doc"], undo_at)  # nothing that anybody sees has changed
    else:
        entry = Entry("undo.refused", text=message)
        save(tx, row, row["created_by"], now, undo_at, entry, status="waiting", message=message)


def replaced(tx: Transaction, row: Row, by: int, now: int) -> None:
    """Note that another run keeps the same in force for longer."""
    message = f"~{by} acts on the same and ends later, so that decides when it is undone."
    entry = Entry("undo.replaced", action=f"~{by}")
    save(tx, row, row["created_by"], now, None, entry, status="replaced", at=None, message=message)


def end_timers(tx: Transaction, message: str, now: int) -> None:
    """Clear all timers of undos."""
    for number in stored.with_undo_at(tx):
        row = stored.find(tx, number)
        if row is not None and row["engine_name"] != OWN_ENGINE:  # whose effect is what is in force
            entry = Entry("undo.failed", text=message)
            save(tx, row, row["created_by"], now, None, entry, status="failed", at=None, message=message)


def save(
    tx: Transaction,
    row: Row,
    user: str,
    now: int,
    undo_at: int | None,
    entry: Entry,
    *,
    measure: MeasureOfRun | None = None,
    **changes: Any,
) -> Action:
    """Store a changed `undo` and, if it is given, `measure`, with its event and its row of the audit.

    An extension that waits lapses, unless it only waits for another vote.
    """
    action = _loaded(row)
    undo = action.undo
    if undo is not None:
        waits = undo.extension is not None and undo.extension.outcome is None
        if undo.extension is not None and waits and changes.get("status", "waiting") != "waiting":
            approvals.delete_of(tx, row["id"])
            changes = {"extension": undo.extension.model_copy(update={"outcome": "lapsed"}), **changes}
        undo = undo.model_copy(update=changes)
    changed = action.model_copy(update={"undo": undo, "measure": measure or action.measure})
    stored.set_undo(tx, row["id"], changed.to_json(), undo_at)
    events.record(tx, row["id"], at=now, type="action.updated", object_type="Action", root_id=row["root_id"], user=user)
    entry.record(tx, now, row)
    return changed


def _at(row: Row) -> int | None:
    undo = _loaded(row).undo
    return None if undo is None else undo.at


def _loaded(row: Row) -> Action:
    return Action.model_validate_json(row["doc"])
