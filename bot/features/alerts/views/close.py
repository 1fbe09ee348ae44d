"""The modal that asks before an alert, or all alerts of a group, are closed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.subjects import severities
from bot.block_kit.text import first_of, foreign, person_name, section, sections
from bot.clearance import RedactedView, Subject, may_see, withheld
from bot.features.approvals import views as approvals
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block
from core.common.words import count
from core.models import Document

TITLE, ALL, REOPEN = "Close", "Close all", "Reopen all"
HEADS = {
    "👤": "*Somebody else works on*:",
    "🔒": "*Still in force*, and closing undoes nothing of it:",
    "⏳": "*Still waits for approval*, and closing withdraws nothing of it:",
}
MAX_LINES = 5  # of each


def close_view(document: Document, view: RedactedView, login: str) -> dict[str, Any]:
    """Asks for the reason to close an alert, and says who works on it, what is still in force on it, and what waits."""
    lines, back = left_open(document, view.clearance, login), "Reopen, in the card's menu, opens it again."
    return _view(TITLE, ids.CLOSE_VIEW, document.id, [named(view)], lines, back)


def close_all_view(
    key: str, alerts: Sequence[RedactedView], lines: Sequence[str], most: int, hidden: int
) -> dict[str, Any]:
    """Likewise for these alerts, the worst first; names `most` of them, and has the `lines` of `left_open`.

    `hidden` others are open, too.
    """
    back = "Reopen opens one again: /responder alert and its id has it."
    if not key.startswith("~"):
        back = f"New ones still come in. {REOPEN}, on the group's card, opens these again."
    title, what = f"Close {count(len(alerts), 'alert')}", several(alerts, most)
    what += [f"{hidden} more that you may not see {'stays' if hidden == 1 else 'stay'} open."] if hidden else []
    return _view(title, ids.CLOSE_ALL_VIEW, key, what, lines, back)


def reopen_all_view(key: str, alerts: Sequence[RedactedView], most: int) -> dict[str, Any]:
    """Asks before these closed alerts of a group, the worst first, are opened again."""
    title = f"Reopen {count(len(alerts), 'alert')}"
    note = "They are open alerts again, also those that somebody closed one by one. Nothing runs."
    return modals.ask(title, ids.REOPEN_VIEW, key, sections([*several(alerts, most), note]))


def several(alerts: Sequence[RedactedView], most: int) -> list[str]:
    """How many alerts there are of each severity, and `most` of them by name; mrkdwn."""
    what = f"{count(len(alerts), 'alert')}: {severities(Counter(view.subject.severity for view in alerts))}."
    return [what, *first_of([*map(named, alerts)], most)]


def named(view: RedactedView) -> str:
    """An alert with its first observable, its severity and id; mrkdwn."""
    return questions.named(view, foreign(runs.first_observable(view), runs.OBSERVABLE_LIMIT))


def left_open(document: Document, clearance: int, login: str = "") -> list[str]:
    """Who else than `login` works on an alert, what is in force on it and what waits, one line each, where shown."""
    lines, alert = list[str](), document.alert
    if alert is not None and alert.assignee not in (None, "", login) and may_see(clearance, alert.tlp):
        lines.append(f"👤 {alert.id}: {person_name(alert.assignee)}")
    for action in document.actions:
        view = RedactedView(Subject.of_action(action, document), clearance)
        own = [
            f"🔒 *{approvals.run_on(part, view)}* is {undo_state.in_force(part, view)}"
            for part, _ in undo_state.in_force_by_target(action)
        ]
        if runs.awaits_approval(action):
            deed = f"*{approvals.run_on(action, view)}*{undo_state.for_how_long(action)}"
            own.append(f"⏳ {deed}, asked by {person_name(action.created_by)}{runs.answer_by(action)}")
        if extension := undo_state.later_end(action):
            own.append(runs.later_end_line(action, extension, view))
        hidden = [] if view.is_secret else [f"{line[0]} {withheld(view.subject.tlp)}" for line in own]
        lines += own if view.is_open else hidden
    return lines


def _view(
    title: str, callback_id: str, key: str, what: Sequence[str], lines: Sequence[str], back: str
) -> dict[str, Any]:
    """`back` says how it is taken back."""
    blocks: list[Block] = [*sections(what)]
    for sign, head in HEADS.items():
        own = [line for line in lines if line.startswith(sign)]
        if own:
            blocks.append(section("\n".join([head, *first_of(own, MAX_LINES)])))
    hint = f"Everybody who sees the card reads it. {back}"
    blocks.append(modals.text_field("reason", "Reason", multiline=True, hint=hint))
    return modals.ask(title, callback_id, key, blocks)
