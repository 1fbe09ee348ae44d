"""What a run's line says of how it can be undone, or was."""

from bot.block_kit import modals
from bot.block_kit.text import count, foreign, slack_date
from bot.clearance import RedactedView
from bot.features.runs.views import undo_state
from bot.message import Block
from core.models import OPEN_STATUSES, Action, Policy, Undo

IN_FORCE = ("available", "waiting", "running", "failed")
MESSAGE_LIMIT = 300


def is_in_force(action: Action) -> bool:
    """Whether what the run did still stands, as far as core knows, and can be undone."""
    return action.undo is not None and action.undo.status in IN_FORCE


def outlook(action: Action, view: RedactedView) -> str:
    """` · to be released today at 14:30` for a run's line; "" for what can't be undone, or nobody may read here."""
    undo = action.undo
    if undo is None or not view.is_open:
        return ""
    at = slack_date(undo.at, "{date_short_pretty} at {time}") if undo.at is not None else ""
    if undo.status is None:  # it has not ended yet, or did nothing
        length = undo.after_minutes if action.status in OPEN_STATUSES else None
        return f" · to be released after {minutes(length)}" if length else ""
    states = {
        "available": f"to be released {at}" if at else "",
        "waiting": f"⚠️ *not released* {at}: {why(undo, view)}",
        "running": "being released",
        "undone": "released",
        "failed": "⚠️ *not released*" + (f": {why(undo, view)}" if undo.message else f", {undo.action_id} failed"),
        "replaced": "a later run decides when it is released",
    }[undo.status]
    return f" · {states}" if states else ""


def why(undo: Undo, view: RedactedView) -> str:
    """Core's sentence on why it was not undone, without its full stop; mrkdwn."""
    return foreign(view.inputs(undo.message or ""), MESSAGE_LIMIT).rstrip(".")


def minutes(number: int) -> str:
    """`15 minutes`, `4 hours`, `1 day`."""
    for unit, length in (("day", 1440), ("hour", 60)):
        if number % length == 0:
            return count(number // length, unit)
    return count(number, "minute")


NEVER = "0"  # the option of a run that lasts until somebody undoes it


_STEPS = (15, 30, 60, 240, 480, 1440, 4320, 10080)  # minutes


def time_field(block_id: str, policy: Policy) -> list[Block]:
    """A menu of how long a run lasts, as the settings allow; none for a responder without undo."""
    if not policy.undo:
        return []
    longest = policy.undo_after_minutes
    is_free = not longest or bool(policy.allow_permanent)
    steps = sorted({*_STEPS, *((longest,) if longest else ())})
    options = [(str(step), undo_state.minutes(step)) for step in steps if is_free or step <= (longest or 0)]
    options += [(NEVER, "Until somebody releases it")] if is_free else []
    hint = "After this time core undoes it, also if everything was down meanwhile."
    return [modals.choice_field(block_id, "How long", options, str(longest or NEVER), hint)]


def minutes_of(value: str) -> int | None:
    """The minutes of a chosen option; None for what isn't one."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 7 else None
