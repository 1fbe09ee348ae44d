"""Questions about who works on an alert."""

from collections.abc import Sequence

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import person_name, section
from bot.clearance import RedactedView
from bot.features.runs.views import runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.models import Action

MAX_RUNS = 5


def reassign(alert_id: str, assignee: str, button: ButtonIds) -> Message:
    """Says who works on an alert, with a button that assigns it to whoever is asked."""
    text = f"{person_name(assignee)} works on {alert_id}. Nothing was changed."
    assign = button_element("Assign to me", ids.ASSIGN, button(Intent("assign", alert_id, assignee)))
    return Message(text, (section(text), actions(assign)))


def release_what(
    alert_id: str,
    in_force: Sequence[tuple[Action, str, RedactedView]],
    *,
    is_own: bool,
    button: ButtonIds,
) -> Message:
    """Asks whether to undo what is in force, target by target, or to unassign the alert."""
    text = f"Release what on {alert_id}? Nothing was changed."
    blocks: list[Block] = [section(text)]
    for action, part, view in in_force[:MAX_RUNS]:
        line = f"*{runs.name(action)}*{runs.on_target(action, view)} is {undo_state.in_force(action, view)}"
        blocks.append(section(line))
        if undo := undos.buttons(action, view, button, part=part):
            blocks.append(actions(*undo))
    if is_own:
        unassign = button_element("Unassign", ids.UNASSIGN, button(Intent("unassign", alert_id)))
        blocks += [section("You work on it."), actions(unassign)]
    return Message(text, tuple(blocks))
