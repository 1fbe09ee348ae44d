"""The modal that asks before an alert, or all alerts of a group, are closed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.subjects import severities
from bot.block_kit.text import first_of, person_name, section, sections
from bot.clearance import RedactedView, Subject, withheld
from bot.features.approvals import views as approvals
from bot.features.runs.views import runs, undo_state
from bot.message import Block
from core.common.words import count
from core.models import Document

TITLE, ALL = "Close", "Close all"
HEADS = {
    "🔒": "*Still in force*, and closing undoes nothing of it:",
    "⏳": "*Still waits for approval*, and closing withdraws nothing of it:",
}
MAX_LINES = 5  # of each


def close_view(document: Document, view: RedactedView) -> dict[str, Any]:
    """Asks for the reason to close an alert, and says what is still in force on it, and what waits for approval."""
    return _view(TITLE, ids.CLOSE_VIEW, document.id, [named(view)], left_open(document, view.clearance))


def close_all_view(key: str, alerts: Sequence[RedactedView], lines: Sequence[str], most: int) -> dict[str, Any]:
    """Likewise for these alerts, the worst first; names `most` of them, and has the `lines` of `left_open`."""
    return _view(f"Close {count(len(alerts), 'alert')}", ids.CLOSE_ALL_VIEW, key, several(alerts, most), lines)


def several(alerts: Sequence[RedactedView], most: int) -> list[str]:
    """How many alerts there are of each severity, and `most` of them by name; mrkdwn."""
    numbers = Counter(view.subject.severity for view in alerts)
    what = f"{count(len(alerts), 'alert')}: {severities([numbers[n] for n in (1, 2, 3, 4)])}."
    return [what, *first_of([*map(named, alerts)], most)]


def named(view: RedactedView) -> str:
    """An alert with its severity and id; mrkdwn."""
    return f"{runs.sign(view)}{runs.of_root(view.subject, view)}"


def left_open(document: Document, clearance: int) -> list[str]:
    """What is in force on an alert and what waits for approval, one line each, as far as it may be shown."""
    lines = list[str]()
    for action in document.actions:
        view = RedactedView(Subject.in_document(document, action.object_id) or Subject.unknown(action), clearance)
        own = [
            f"🔒 *{approvals.run_on(part, view)}* is {undo_state.in_force(part, view)}"
            for part, _ in undo_state.in_force_by_target(action)
        ]
        if runs.awaits_approval(action):
            deed = f"*{approvals.run_on(action, view)}*{undo_state.for_how_long(action)}"
            own.append(f"⏳ {deed}, asked by {person_name(action.created_by)}{runs.answer_by(action)}")
        if extension := undo_state.later_end(action):
            own.append(runs.later_end_line(action, extension, view))
        lines += own if view.is_open else [f"{line[0]} {withheld(view.subject.tlp)}" for line in own]
    return lines


def _view(title: str, callback_id: str, key: str, what: Sequence[str], lines: Sequence[str]) -> dict[str, Any]:
    blocks: list[Block] = [*sections(what)]
    for sign, head in HEADS.items():
        own = [line for line in lines if line.startswith(sign)]
        if own:
            blocks.append(section("\n".join([head, *first_of(own, MAX_LINES)])))
    hint = "Everybody who sees the card reads it. Reopen is on each alert's own card."
    blocks.append(modals.text_field("reason", "Reason", multiline=True, hint=hint))
    return modals.modal(title, blocks, callback_id=callback_id, submit=title, metadata=key, close="Cancel")
