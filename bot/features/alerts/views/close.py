"""The modal that asks before an alert, or all alerts of a group, are closed."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.subjects import severities
from bot.block_kit.text import defang_indicators, first_of, foreign, person_name, section, sections
from bot.clearance import RedactedView, Subject, may_see, withheld
from bot.features.approvals import views as approvals
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block
from bot.storms import common
from core.common.words import count, some_of
from core.models import Action, Document

TITLE, ALL, REOPEN = "Close", "Close all", "Reopen all"
HEADS = {
    "👤": "*Somebody else works on*:",
    "🔒": "*Still in force*, and closing undoes nothing of it:",
    "⏳": "*Still waits for approval*, and closing withdraws nothing of it:",
}
MAX_LINES = 5  # of each
LEAST_NAMED, MOST_NAMED = 10, 100  # alerts
TITLE_LIMIT = 80  # of each of several titles


def close_view(document: Document, view: RedactedView, login: str) -> dict[str, Any]:
    """Asks for the reason to close an alert, and says who works on it, what is still in force on it, and what waits."""
    lines, back = left_open([document], view.clearance, login), "Reopen, in the card's menu, opens it again."
    return _view(TITLE, ids.CLOSE_VIEW, document.id, [named(view)], lines, back)


def close_all_view(key: str, alerts: Sequence[RedactedView], lines: Sequence[str], hidden: int) -> dict[str, Any]:
    """Likewise for these alerts, the worst first, with the `lines` of `left_open`; `hidden` others are open, too."""
    back = "Reopen opens one again: /responder alert and its id has it."
    if not key.startswith("~"):
        back = f"New ones still come in. {REOPEN}, on the group's card, opens these again."
    title, what = f"Close {count(len(alerts), 'alert')}", several(key, alerts)
    what += [f"{hidden} more that you may not see {'stays' if hidden == 1 else 'stay'} open."] if hidden else []
    return _view(title, ids.CLOSE_ALL_VIEW, key, what, lines, back)


def reopen_all_view(key: str, alerts: Sequence[RedactedView]) -> dict[str, Any]:
    """Asks before these closed alerts of a group, the worst first, are opened again."""
    title = f"Reopen {count(len(alerts), 'alert')}"
    note = "They are open alerts again, also those that somebody closed one by one. Nothing runs."
    return modals.ask(title, ids.REOPEN_VIEW, key, sections([*several(key, alerts), note]))


def several(key: str, alerts: Sequence[RedactedView]) -> list[str]:
    """How many alerts, the worst first, there are of each severity, and which; mrkdwn.

    Of a group not all are named: LEAST_NAMED, or all that are HIGH or worse if these are more, up to MOST_NAMED.
    """
    grave = sum(view.subject.severity >= 3 for view in alerts)  # HIGH
    most = MOST_NAMED if key.startswith("~") else min(max(grave, LEAST_NAMED), MOST_NAMED)
    what = f"{count(len(alerts), 'alert')}: {severities(Counter(view.subject.severity for view in alerts))}."
    kinds = Counter(common(view.title()) for view in alerts if view.is_open)
    if len(alerts) > most and len(kinds) > 1:
        often = [
            f"{foreign(defang_indicators(one), TITLE_LIMIT)}{f' ×{n}' * (n > 1)}" for one, n in kinds.most_common()
        ]
        what += f"\n{len(kinds)} different titles: {some_of(often, MAX_LINES)}"
    return [what, *first_of([*map(named, alerts)], most)]


def named(view: RedactedView) -> str:
    """An alert with its first observable, its severity and id; mrkdwn."""
    return questions.named(view, runs.beside_title(view))


def left_open(documents: Iterable[Document], clearance: int, login: str = "") -> list[str]:
    """Who else than `login` works on these alerts, what is in force on them and what waits, where shown.

    A line for each, and one for what the same person asks for on several.
    """
    lines, asked = list[str](), dict[tuple[str, str], list[tuple[Action, RedactedView]]]()
    for document in documents:
        alert = document.alert
        if alert is not None and alert.assignee not in (None, "", login) and may_see(clearance, alert.tlp):
            lines.append(f"👤 {alert.id}: {person_name(alert.assignee)}")
        for action in document.actions:
            view, waits = RedactedView(Subject.of_action(action, document), clearance), runs.awaits_approval(action)
            own = _in_force(action, view)
            if view.is_open and waits:
                deed = f"{runs.name(action)}{undo_state.for_how_long(action)}"
                asked.setdefault((deed, action.created_by), []).append((action, view))
            hidden = (
                [] if view.is_secret else [f"{line[0]} {withheld(view.subject.tlp)}" for line in [*own, *"⏳" * waits]]
            )
            lines += own if view.is_open else hidden
    return [*lines, *map(_waiting, asked.values())]


def _in_force(action: Action, view: RedactedView) -> list[str]:
    """What a run has in force, and the later end that waits, one line each; mrkdwn."""
    parts = [part for part, _ in undo_state.in_force_by_target(action)]
    lines = [f"🔒 *{approvals.run_on(part, view)}* is {undo_state.in_force(part, view)}" for part in parts]
    extension = undo_state.later_end(action)
    return [*lines, *([runs.later_end_line(action, extension, view)] if extension else [])]


def _waiting(asked: Sequence[tuple[Action, RedactedView]]) -> str:
    """`⏳ *Isolate Host* on hostname LT-0777, LT-0778 and 2 more for 1 hour, asked by anna, 1 approval ... (~79)`."""
    of = [action for action, _ in asked]
    deed = f"*{runs.name(of[0])}* on {runs.distinct_targets(asked)}{undo_state.for_how_long(of[0])}"
    ids_ = some_of(list(dict.fromkeys(action.bulk or action.id for action in of)), runs.MAX_TARGETS)
    return f"⏳ {deed}, asked by {person_name(of[0].created_by)}, {approvals.decision_on_all(of)} ({ids_})"


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
