"""What a run's line says of how it can be undone, or was."""

from bot.block_kit import modals
from bot.block_kit.text import DAY_AND_TIME, count, foreign, slack_date
from bot.clearance import RedactedView
from bot.message import Block
from core.models import OPEN_STATUSES, Action, Policy, Undo

IN_FORCE = ("available", "waiting", "running", "failed")
MESSAGE_LIMIT = 300


def is_in_force(action: Action) -> bool:
    """Whether what the run did still stands, as far as core knows, and can be undone."""
    return action.undo is not None and action.undo.status in IN_FORCE


def summary(action: Action, view: RedactedView) -> str:
    """` · in force until today at 14:30` or ` · undone`, for a run's line; "" if there is nothing to say of it."""
    undo = action.undo
    if undo is None or not view.is_open:
        return ""
    if undo.status is None:  # it has not ended yet, or did nothing
        length = undo.after_minutes if action.status in OPEN_STATUSES else None
        return f" · ends {minutes(length)} after it succeeded" if length else ""
    ended = {"undone": "undone", "replaced": "a later run decides when it ends"}
    return f" · {ended.get(undo.status) or in_force(action, view)}"


def in_force(action: Action, view: RedactedView) -> str:
    """`in force until today at 14:30`, of a run that is; mrkdwn."""
    undo = action.undo
    if undo is None or not view.is_open:
        return ""
    at = slack_date(undo.at, DAY_AND_TIME) if undo.at is not None else ""
    if undo.status == "waiting":
        return f"still in force, was to end {at}: {why(undo, view)}"
    if undo.status == "failed":
        return "maybe still in force: " + (why(undo, view) or f"the undo {undo.action_id} failed")
    if undo.status == "running":
        return "in force, being undone"
    return f"in force until {at}" if at else "in force until somebody undoes it"


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
    options = [(str(step), minutes(step)) for step in steps if is_free or step <= (longest or 0)]
    options += [(NEVER, "Until somebody undoes it")] if is_free else []
    hint = "After this time core undoes it, also if everything was down meanwhile."
    return [modals.choice_field(block_id, "How long", options, str(longest or NEVER), hint)]


def minutes_of(value: str) -> int | None:
    """The minutes of a chosen option; None for what isn't one."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 7 else None
