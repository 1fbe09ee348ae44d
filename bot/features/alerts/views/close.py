"""The modal that asks before an alert, or all alerts of a group, are closed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.subjects import severities
from bot.block_kit.text import section, sections
from bot.clearance import RedactedView, Subject, withheld
from bot.features.runs.views import runs, undo_state
from bot.message import Block
from core.common.words import count
from core.models import Document

TITLE, ALL = "Close", "Close all"
MAX_IN_FORCE = 5


def close_view(document: Document, view: RedactedView) -> dict[str, Any]:
    """Asks for the reason to close an alert, and says what is still in force on it."""
    return _view(TITLE, ids.CLOSE_VIEW, document.id, [named(view)], in_force(document, view.clearance))


def close_all_view(key: str, alerts: Sequence[RedactedView], lines: Sequence[str], most: int) -> dict[str, Any]:
    """Likewise for these alerts, the worst first; names `most` of them, and says what is in force on them."""
    number, numbers = count(len(alerts), "alert"), Counter(view.subject.severity for view in alerts)
    what = f"{number}: {severities([numbers[n] for n in (1, 2, 3, 4)])}."
    more = [f"and {len(alerts) - most} more"] if len(alerts) > most else []
    return _view(f"Close {number}", ids.CLOSE_ALL_VIEW, key, [what, *map(named, alerts[:most]), *more], lines)


def named(view: RedactedView) -> str:
    """An alert with its severity and id; mrkdwn."""
    return f"{runs.sign(view)}{runs.of_root(view.subject, view)}"


def in_force(document: Document, clearance: int) -> list[str]:
    """What is in force on an alert, one line each, as far as it may be shown."""
    lines = []
    for action, _ in (part for one in document.actions for part in undo_state.in_force_by_target(one)):
        subject = Subject.in_document(document, action.object_id)
        view = RedactedView(subject or Subject.unknown(action), clearance)
        shown = f"*{runs.name(action)}*{runs.on_target(action, view)} is {undo_state.in_force(action, view)}"
        lines.append(f"🔒 {shown}" if view.is_open else f"🔒 {withheld(view.subject.tlp)}")
    return lines


def _view(title: str, callback_id: str, key: str, what: Sequence[str], lines: Sequence[str]) -> dict[str, Any]:
    blocks: list[Block] = [*sections(what)]
    if lines:
        more = [f"and {len(lines) - MAX_IN_FORCE} more"] if len(lines) > MAX_IN_FORCE else []
        head = "*Still in force*, and closing undoes nothing of it:"
        blocks.append(section("\n".join([head, *lines[:MAX_IN_FORCE], *more])))
    hint = "Everybody who sees the card reads it. Reopen is on each alert's own card."
    blocks.append(modals.text_field("reason", "Reason", multiline=True, hint=hint))
    return modals.modal(title, blocks, callback_id=callback_id, submit=title, metadata=key, close="Cancel")
