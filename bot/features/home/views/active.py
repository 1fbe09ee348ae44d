"""The list of what is in force, and the question before something is marked as ended."""

from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import context, foreign, section
from bot.clearance import RedactedView
from bot.features.home.views.home import HomeRun
from bot.features.runs.views import runs
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import Action, Person

MAX_LISTED = 20  # with two blocks each, of the 50 of a message
MAX_IN_HOME = 3  # of the 100 blocks of a Home
TEXT_LIMIT = 100


def listed(shown: Sequence[HomeRun], person: Person, text: str, *, total: int, button: ButtonIds) -> Message:
    """What is in force on what was typed, or on anything: the first of `total`."""
    on = f" on {foreign(text, TEXT_LIMIT)}" if text else ""
    head = f"In force{on}: {count(total, 'measure')}" if total else f"Nothing is in force{on}, as far as you may see."
    blocks: list[Block] = [section(f"*{head}*" if total else head), *measures(shown, person, button)]
    more = [context(f"and {total - len(shown)} more; type a target to find it")] if total > len(shown) else []
    return Message(head, (*blocks, *more))


def in_home(shown: Sequence[HomeRun], person: Person, *, total: int, button: ButtonIds) -> list[Block]:
    """The first of what is in force, for a Home; nothing if nothing is."""
    if not total:
        return []
    more = [context(f"and {total - len(shown)} more")] if total > len(shown) else []
    return [section(f"*In force* ({total})"), *measures(shown, person, button, marks=False), *more, {"type": "divider"}]


def measures(shown: Sequence[HomeRun], person: Person, button: ButtonIds, *, marks: bool = True) -> list[Block]:
    """What each run has left in force, where, and what can be done about it; `marks`: also Mark as ended."""
    blocks: list[Block] = []
    for run in shown:
        view = RedactedView(run.subject, person.clearance)
        of = runs.of_root(run.subject, view, run.link)
        blocks.append(section(f"{runs.in_force_line(run.action, view)}\n{of}{runs.waiting_end(run.action, view)}"))
        if "manageAction" in person.permissions and view.is_open:
            shown_buttons = undos.buttons(run.action, view, button, part=run.part)
            if marks and (run.action.undo is None or run.action.undo.at is None or person.profile == "org-admin"):
                intent, of = button(Intent("mark_ended", run.action.id, run.part)), f"{run.action.id}{run.part}"
                shown_buttons.append(button_element("Mark as ended", ids.MARK_ENDED, intent, of=of))
            blocks += [actions(*shown_buttons)] if shown_buttons else []
    return blocks


def mark_ended_view(action: Action, view: RedactedView, part: str) -> dict[str, Any]:
    """Asks how somebody knows that it has ended, or one of its targets."""
    about = f"{runs.heading(action, view)} is then listed as ended. Nothing runs, and nothing will undo it."
    reason = modals.text_field("reason", "How do you know?", multiline=True, optional=False)
    return modals.ask("Mark as ended", ids.MARK_ENDED_VIEW, f"{action.id} {part}", [section(about), reason])
