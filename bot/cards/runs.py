"""Runs of responders as one line each: who, when, how long, with what result."""

from collections.abc import Sequence

from bot.cards.reports import read
from bot.cards.text import count, foreign, lasted, when, who
from bot.redaction import RedactedView
from core.models import OPEN_STATUSES, Action

STATE_WORDS = {
    "Waiting": "waiting",
    "InProgress": "running",
    "Success": "done",
    "Failure": "failed",
    "Deleted": "cancelled",
}
MARKS = {"Waiting": "○", "InProgress": "◐", "Success": "✓", "Failure": "✗", "Deleted": "–"}
NAME = 120
RESULT = 300


def is_open(action: Action) -> bool:
    return action.status in OPEN_STATUSES


def awaits_approval(action: Action) -> bool:
    """Whether people must still agree before it starts."""
    approval = action.approval
    return action.status == "Waiting" and approval is not None and len(approval.approved_by) < approval.needed


def newest_first(actions: Sequence[Action]) -> list[Action]:
    return sorted(actions, key=lambda a: (a.start_date, int(a.id[1:])), reverse=True)


def state(action: Action) -> str:
    """`done in 3.2 s`, `waiting for approval (1 of 2)`, `running` ..."""
    approval = action.approval
    if approval is not None and awaits_approval(action):
        return f"waiting for approval ({len(approval.approved_by)} of {approval.needed})"
    word = STATE_WORDS[action.status]
    if action.end_date is None:
        return word
    link = {"Success": " in ", "Failure": " after "}.get(action.status)
    return f"{word}{link}{lasted(action.end_date - action.start_date)}" if link else word


def run_line(action: Action, view: RedactedView, *, now_ms: int, where: str = "") -> str:
    """One line for a card: mark, name, state, who and when, and at the end the result.

    `where` tells where people agree to one that awaits it.
    """
    name = foreign(action.responder_name, NAME)
    by = f"{who(action.created_by)}, {when(action.start_date)}"
    told = state(action) + (f": {where}" if where and awaits_approval(action) else "")
    return f"{MARKS[action.status]} *{name}* {told} · {by}{_tail(action, view, now_ms)}"


def _tail(action: Action, view: RedactedView, now_ms: int) -> str:
    if action.approval is not None and awaits_approval(action):
        left = action.approval.expires_at - now_ms
        ends = f"expires {when(action.approval.expires_at)}" if left > 0 else "expired"
        return f" · {ends}"
    if is_open(action):
        return ""
    result = result_of(action, view)
    return f" · {result}" if result else ""


def result_of(action: Action, view: RedactedView, limit: int = RESULT) -> str:
    """The result's sentence, as far as it may be shown, ready for mrkdwn."""
    message = read(action).message
    return foreign(view.report(message), limit) if message else ""


def plain_line(action: Action, view: RedactedView) -> str:
    """The same for a push text, without markup."""
    result = result_of(action, view)
    return f"{foreign(action.responder_name, NAME)} {state(action)}" + (f": {result}" if result else ".")


def summary(actions: Sequence[Action]) -> str:
    """`3 runs, 1 of them open`."""
    still = sum(is_open(a) for a in actions)
    return count(len(actions), "run") + (f", {still} of them open" if still else "")
