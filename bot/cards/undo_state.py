"""What a run's line says of how it can be undone, or was."""

from bot.cards.text import count, foreign, slack_date
from bot.redaction import RedactedView
from core.models import OPEN_STATUSES, Action, Undo

IN_FORCE = ("available", "waiting", "running", "failed")
MESSAGE_LIMIT = 300


def is_in_force(action: Action) -> bool:
    """Whether what the run did still stands, as far as core knows, and can be undone."""
    return action.undo is not None and action.undo.status in IN_FORCE


def words(action: Action, view: RedactedView) -> str:
    """` · to be released today at 14:30` for a run's line; "" for what can't be undone, or nobody may read here."""
    undo = action.undo
    if undo is None or not view.is_open:
        return ""
    at = slack_date(undo.at, "{date_short_pretty} at {time}") if undo.at is not None else ""
    if undo.status is None:  # it has not ended yet, or did nothing
        length = undo.after_minutes if action.status in OPEN_STATUSES else None
        return f" · to be released after {minutes(length)}" if length else ""
    said = {
        "available": f"to be released {at}" if at else "",
        "waiting": f"⚠️ *not released* {at}: {why(undo, view)}",
        "running": "being released",
        "undone": "released",
        "failed": "⚠️ *not released*" + (f": {why(undo, view)}" if undo.message else f", {undo.action_id} failed"),
        "replaced": "a later run decides when it is released",
    }[undo.status]
    return f" · {said}" if said else ""


def why(undo: Undo, view: RedactedView) -> str:
    """Core's sentence on why it was not undone, without its full stop; mrkdwn."""
    return foreign(view.inputs(undo.message or ""), MESSAGE_LIMIT).rstrip(".")


def minutes(number: int) -> str:
    """`15 minutes`, `4 hours`, `1 day`."""
    for unit, length in (("day", 1440), ("hour", 60)):
        if number % length == 0:
            return count(number // length, unit)
    return count(number, "minute")
