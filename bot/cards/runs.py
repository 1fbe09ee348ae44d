"""Runs of responders, one line each: who, when, how long, with what result."""

from collections.abc import Sequence

from bot.cards.reports import read_report
from bot.cards.text import count, duration, foreign, person_name, slack_date
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
NAME_LIMIT = 120  # characters
RESULT_LIMIT = 300


def is_open(action: Action) -> bool:
    return action.status in OPEN_STATUSES


def awaits_approval(action: Action) -> bool:
    """Whether it starts only after further approvals."""
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
    return f"{word}{link}{duration(action.end_date - action.start_date)}" if link else word


def run_line(action: Action, view: RedactedView, *, now_ms: int, where: str = "") -> str:
    """One line for a card: mark, name, state, who and when, and the result.

    `where` says where a run that awaits approval can be approved.
    """
    name = foreign(action.responder_name, NAME_LIMIT)
    by = f"{person_name(action.created_by)}, {slack_date(action.start_date)}"
    status = state(action) + (f": {where}" if where and awaits_approval(action) else "")
    return f"{MARKS[action.status]} *{name}* {status} · {by}{_tail(action, view, now_ms)}"


def _tail(action: Action, view: RedactedView, now_ms: int) -> str:
    if action.approval is not None and awaits_approval(action):
        left = action.approval.expires_at - now_ms
        ends = f"expires {slack_date(action.approval.expires_at)}" if left > 0 else "expired"
        return f" · {ends}"
    if is_open(action):
        return ""
    result = result_text(action, view)
    return f" · {result}" if result else ""


def result_text(action: Action, view: RedactedView, limit: int = RESULT_LIMIT) -> str:
    """The sentence of a report for a mrkdwn field, as far as it may be shown."""
    message = read_report(action).message
    return foreign(view.report(message), limit) if message else ""


def plain_line(action: Action, view: RedactedView) -> str:
    """Name, state and result without markup, for a push notification."""
    result = result_text(action, view)
    return f"{foreign(action.responder_name, NAME_LIMIT)} {state(action)}" + (f": {result}" if result else ".")


def summary(actions: Sequence[Action], total: int) -> str:
    """`3 runs, 1 of them open`: `total` runs, of which `actions` are the newest and all open ones."""
    running = sum(is_open(a) for a in actions)
    return count(total, "run") + (f", {running} of them open" if running else "")
