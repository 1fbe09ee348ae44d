"""How a run can be undone: what its line says, Undo and Extend, and how long it is to last."""

import json
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element, confirmation
from bot.block_kit.text import (
    OPTION_LIMIT,
    context,
    foreign,
    foreign_plain,
    mentions,
    person_name,
    plain_name,
    section,
    slack_date,
)
from bot.clearance import RedactedView, Subject, withheld
from bot.features.runs.views import runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.clock import MINUTE_MS
from core.common.words import count
from core.models import Action, Policy, Undo

CAN_UNDO = ("available", "waiting", "failed", "replaced")
PROBLEMS_SHOWN = 5  # of the targets of one run


# --- buttons --------------------------------------------------------------------------------------------------------


def buttons(
    action: Action, view: RedactedView, button: ButtonIds, policy: Policy | None = None, *, part: str = ""
) -> list[dict[str, Any]]:
    """Undo; also Extend, of what core is to undo while no later end waits for approval.

    `policy` is that of the responder that undoes it.

    `part` is the id of one of several targets, which are undone one by one.
    """
    undo = action.undo
    if undo is None or undo.status not in CAN_UNDO or not view.is_open:
        return []
    is_timed = undo.at is not None
    label = "Undo now" if is_timed or undo.status != "available" else "Undo"
    dialog = _dialog(action, view, policy)
    press = button_element(
        *(label, ids.UNDO, button(Intent("undo", action.id, part))),
        of=f"{action.id}{part}",
        confirm=dialog,
        about=_about(action, view),
    )
    waiting = undo.extension if undo.extension is not None and undo.extension.outcome is None else None
    if not is_timed or (waiting is not None and (not part or part in waiting.targets)):
        return [press]
    return [
        button_element(
            *("Extend", ids.EXTEND, button(Intent("extend", action.id, part))),
            of=f"{action.id}{part}",
            about=_about(action, view),
        ),
        press,
    ]


def _about(action: Action, view: RedactedView) -> str:
    return f"{runs.title(action)} on {runs.target_in_plain(action, view, OPTION_LIMIT)}"


def _dialog(action: Action, view: RedactedView, policy: Policy | None) -> dict[str, Any]:
    """Says what runs on what, what that ends, who asked for that, when it would end by itself, and who hears of it."""
    undo, who = action.undo, plain_name(action.created_by)
    name = undo_state.title(undo) if undo is not None else ""
    approvals = f" after {count(policy.approval, 'approval')}" if policy is not None and policy.approval else ""
    approved = ", ".join(map(plain_name, action.approval.approved_by if action.approval is not None else ()))
    asked = f"{who} asked for{f' and {approved} approved' if approved else ''}"
    told = f"{who} hears of it if somebody else undoes it." if not action.bulk else ""
    text = (
        f"{name[:40]} runs on {runs.target_in_plain(action, view, 110)}{approvals}. It ends {runs.title(action)[:40]}, "
        f"which {asked}; by itself it would {undo_state.ends_after(action)}. {told} "
        f"{policy.confirm if policy is not None else ''}"
    )
    title = foreign_plain(f"Undo {runs.title(action)}?", 100)
    return confirmation(title, foreign_plain(text, 300), "Undo", "Leave it")


# --- how long -------------------------------------------------------------------------------------------------------


def extend_view(action: Action, view: RedactedView, policy: Policy, now_ms: int, *, part: str = "") -> dict[str, Any]:
    """Asks how much later a run, or one of its targets, shall end than it does now, or from now on if that is past."""
    undo = action.undo
    at = undo.at if undo is not None and undo.at is not None else now_ms
    who = f"*{person_name(action.created_by)}* asked for it."
    about = section(f"{runs.heading(action, view)}. {who} {undo_state.end(undo.at if undo is not None else None)}")
    field = undo_state.longer_field("longer", policy, max(0, -((now_ms - at) // MINUTE_MS)))
    if not field:
        return modals.notice("How much longer?", f"{about['text']['text']} {undo_state.no_later_end(policy)}")
    until = undo.approved_until if undo is not None else None
    after = f"Beyond {slack_date(until)} it needs approval again." if until else ""
    return modals.modal(
        "How much longer?",
        [about, *field, *([context(after)] if after else [])],
        callback_id=ids.EXTEND_VIEW,
        submit="Extend",
        metadata=json.dumps({"id": part or action.id, "at": max(at, now_ms)}),
        close="Cancel",
    )


# --- in the thread --------------------------------------------------------------------------------------------------


def has_problem(action: Action) -> bool:
    """Whether the thread says that core could not carry out, or finish, what it was to undo."""
    return action.undo is not None and action.undo.status in ("waiting", "failed")


def problem_reply(action: Action, subject: Subject, *, clearance: int, button: ButtonIds) -> Message:
    """Says what of a run was to be undone and was not, why, and what to do; later, how that went."""
    view = RedactedView(subject, clearance)
    if action.undo is None or not view.is_open:
        text = f"⚠️ A run on {subject.id}: {withheld(subject.tlp)}"
        return Message(text, (section(text),))
    parts = [(part, id_) for part, id_ in undo_state.in_force_by_target(action) if has_problem(part)]
    told, blocks = parts[:PROBLEMS_SHOWN] or [(action, "")], list[Block]()
    for part, id_ in told:
        undo, shown = part.undo or action.undo, buttons(part, view, button, part=id_)
        ended = slack_date(undo.at or 0)
        blocks += [section(_problem(part, undo, view, ended)), *([actions(*shown)] if shown else [])]
    if left := len(parts[PROBLEMS_SHOWN:]):
        blocks.append(context(f"{count(left, 'target')} more; /responder active shows all."))
    return Message(_problem(told[0][0], told[0][0].undo or action.undo, view, "by now"), tuple(blocks))


def _problem(action: Action, undo: Undo, view: RedactedView, was_to_end: str) -> str:
    """What is wrong on one target, or what became of it; mrkdwn. `was_to_end` says when; a phone formats no time."""
    on = runs.heading(action, view)
    if undo.status == "waiting":
        return (
            f"⚠️ {on} was to end {was_to_end} and is still in force: "
            f"{undo_state.why(undo, view)}. The bot keeps trying. *Undo now* does it in your name, *Extend* gives it "
            "more time."
        )
    if undo.status == "failed":
        because = f"{undo.action_id} did not succeed; the thread has its reason"
        why = undo_state.why(undo, view) if undo.message else because
        return f"⚠️ {on} was not undone: {why}. It may still be in force. Check the target, then press *Undo now*."
    return f"{on}: {undo_state.summary(action, view).removeprefix(' · ')}."


def is_told(action: Action) -> bool:
    """Whether the thread says that what is in force was marked as ended, or that nobody knows any more."""
    return action.measure is not None and bool(action.measure.message)


def is_undone_elsewhere(action: Action, known: Sequence[Action]) -> bool:
    """Whether a run of another alert has undone it, which those of its own thread would not read of."""
    undo, by = action.undo, {one.id for one in known}
    return undo is not None and undo.status == "undone" and bool(undo.action_id) and undo.action_id not in by


def measure_reply(
    action: Action, subject: Subject, told: Sequence[str], *, clearance: int, button: ButtonIds
) -> Message:
    """Says who marked a run as ended or why nobody knows, also to those who are `told`, by their ids in Slack."""
    view, measure = RedactedView(subject, clearance), action.measure
    if measure is None or not view.is_open:
        text = f"A run on {subject.id}: {withheld(subject.tlp)}"
        return Message(text, (section(text),))
    on, why = runs.heading(action, view), foreign(view.inputs(measure.message or ""), undo_state.MESSAGE_LIMIT)
    if measure.state == "ended":
        by = person_name(measure.ended_by or "")
        text = f"{on} was marked as ended by *{by}*, and nothing was run: {why}"
        if not measure.message:
            text = f"{on} was undone by *{by}*, with a run on another alert. It is no longer in force."
    else:
        text = f"⚠️ {on} may not be in force any more: {why}"
    text = f"{text} {mentions(told)}".rstrip()
    shown = buttons(action, view, button)
    return Message(text, (section(text), *([actions(*shown)] if shown else [])))
