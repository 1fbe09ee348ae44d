"""Questions about who works on an alert, and requests to do so."""

from collections.abc import Mapping, Sequence

from bot.block_kit import ids, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import MESSAGE_TEXT_LIMIT, clip, context, person_name, section
from bot.clearance import RedactedView, Subject, withheld
from bot.features.approvals import views as approvals
from bot.features.duty.views import not_me_button, why_asked
from bot.features.runs.views import runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.models import Action, Alert, Policy

MAX_RUNS = 5


def is_unassigned(alert: Alert) -> bool:
    """Whether people may be asked to work on it: it is open, in no case, and nobody is assigned to it."""
    return alert.status == "New" and alert.assignee is None


def work_request(alert: Alert, *, clearance: int, button: ButtonIds, link: str, login: str) -> Message:
    """The direct message to somebody who is asked to work on an alert; nothing of it once they may not see it."""
    subject = Subject.alert(alert)
    view = RedactedView(subject, clearance)
    if not approvals.sees_all(clearance, subject):
        return notices.notice(f"You were asked to work on {subject.id}: {withheld(subject.clearance)}")
    blocks: list[Block] = [section(_who_works(alert, f"{runs.sign(view)}{runs.on_what(subject, view, link)}"))]
    if is_unassigned(alert):
        assign = button_element("Assign to me", ids.ASSIGN, button(Intent("assign", alert.id)), style="primary")
        details = button_element("Details", ids.DETAILS, button(Intent("details", alert.id)))
        blocks.append(actions(assign, *not_me_button(alert.duty, login, alert.id, button), details))
    blocks.append(context(why_asked(alert.duty, login)))
    return Message(clip(_who_works(alert, runs.on_what(subject, view)), MESSAGE_TEXT_LIMIT), tuple(blocks))


def _who_works(alert: Alert, what: str) -> str:
    if is_unassigned(alert):
        return f"🔔 Nobody is assigned to {what}."
    if alert.case is not None:
        return f"In a case: {what}."
    return f"{person_name(alert.assignee)} works on {what}." if alert.assignee else f"Closed: {what}."


def reassign(alert_id: str, assignee: str, button: ButtonIds) -> Message:
    """Says who works on an alert, with a button that assigns it to whoever is asked."""
    text = f"{person_name(assignee)} works on {alert_id}. Nothing was changed."
    assign = button_element("Assign to me", ids.ASSIGN, button(Intent("assign", alert_id, assignee)))
    return Message(text, (section(text), actions(assign)))


def release_what(
    alert_id: str,
    in_force: Sequence[tuple[Action, RedactedView]],
    policies: Mapping[str, Policy],
    *,
    is_own: bool,
    button: ButtonIds,
) -> Message:
    """Asks whether to undo one of the runs that are in force, each with its target, or to unassign the alert."""
    text = f"Release what on {alert_id}? Nothing was changed."
    blocks: list[Block] = [section(text)]
    for action, view in in_force[:MAX_RUNS]:
        policy = policies.get(action.undo.responder) if action.undo is not None else None
        line = f"*{runs.name(action)}*{runs.on_target(action, view)} is {undo_state.in_force(action, view)}"
        blocks.append(section(line))
        if undo := undos.buttons(action, view, button, policy):
            blocks.append(actions(*undo))
    if is_own:
        unassign = button_element("Unassign", ids.UNASSIGN, button(Intent("unassign", alert_id)))
        blocks += [section("You work on it."), actions(unassign)]
    return Message(text, tuple(blocks))
