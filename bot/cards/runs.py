"""Runs of responders, one line each: who, when, how long, with what result."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import ids
from bot.cards.message import ButtonIds, Intent
from bot.cards.reports import read_report
from bot.cards.text import count, defang_indicators, duration, foreign, person_name, plain, slack_date
from bot.redaction import RedactedView
from core.common.decoding import mapping
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
INPUT_LIMIT = 120
OWN_PARAMETERS = ("user", "organisation")  # which core adds to the parameters in a report
REMOVED = "REMOVED"  # stands in core's records in place of a secret
MAX_INPUTS = 6


def is_open(action: Action) -> bool:
    return action.status in OPEN_STATUSES


def awaits_approval(action: Action) -> bool:
    """Whether it starts only after further approvals."""
    approval = action.approval
    return action.status == "Waiting" and approval is not None and len(approval.approved_by) < approval.needed


def can_be_approved(action: Action, view: RedactedView, now_ms: int) -> bool:
    """Whether a message for this clearance has Approve and Deny: nobody decides on what they can't read there."""
    approval = action.approval
    return awaits_approval(action) and approval is not None and approval.expires_at > now_ms and view.shows_inputs


def decision_buttons(action: Action, button: ButtonIds) -> list[dict[str, Any]]:
    """Approve and Deny."""
    return [
        _button("Approve", ids.APPROVE, action, button(Intent("approve", action.id)), style="primary"),
        _button("Deny", ids.DENY, action, button(Intent("deny", action.id)), style="danger"),
    ]


def cancel_button(action: Action, button: ButtonIds) -> dict[str, Any]:
    return _button("Cancel", ids.CANCEL, action, button(Intent("cancel", action.id)))


def _button(words: str, action_id: str, action: Action, value: str, **more: Any) -> dict[str, Any]:
    own_id = ids.numbered(action_id, action.id)
    return {"type": "button", "action_id": own_id, "text": plain(words), "value": value, **more}


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


def run_line(action: Action, view: RedactedView, *, now_ms: int) -> str:
    """One line for a card: mark, name, inputs, state, who and when, and the result."""
    name = foreign(action.responder_name, NAME_LIMIT)
    by = f"{person_name(action.created_by)}, {slack_date(action.start_date)}"
    given = inputs_in_brackets(action, view)
    return f"{MARKS[action.status]} *{name}*{given} {state(action)} · {by}{_tail(action, view, now_ms)}"


def _tail(action: Action, view: RedactedView, now_ms: int) -> str:
    if action.approval is not None and awaits_approval(action):
        left = action.approval.expires_at - now_ms
        ends = f"expires {slack_date(action.approval.expires_at)}" if left > 0 else "expired"
        return f" · {ends}"
    if is_open(action):
        return ""
    result = result_text(action, view)
    return f" · {result}" if result else ""


def given_inputs(action: Action) -> Mapping[str, Any]:
    """What the requester gave the run, by name; for one that ended in an earlier release, from its report."""
    try:
        if action.parameters is not None:
            return mapping(json.loads(action.parameters))
        reported = mapping(mapping(json.loads(action.report)).get("parameters"))
    except (ValueError, RecursionError):
        return {}
    return {name: value for name, value in reported.items() if name not in OWN_PARAMETERS}


def lost_secret(action: Action) -> bool:
    """Whether a secret was removed from the inputs, so that they can't be used again."""
    return REMOVED in json.dumps(given_inputs(action))


def inputs(action: Action, view: RedactedView) -> list[tuple[str, str]]:
    """Name and text of each input, as far as they may be shown; foreign text, not escaped."""
    return [(view.inputs(name), view.inputs(_text(value, view))) for name, value in given_inputs(action).items()]


def _text(value: Any, view: RedactedView) -> str:
    return value if isinstance(value, str) else json.dumps(_masked(value, view), ensure_ascii=False)


def _masked(value: Any, view: RedactedView) -> Any:
    """A JSON value whose strings are masked before quotes and backslashes in them are escaped."""
    if isinstance(value, str):
        return view.inputs(value)
    if isinstance(value, list):
        return [_masked(item, view) for item in value]
    if isinstance(value, dict):
        return {view.inputs(name): _masked(item, view) for name, item in value.items()}
    return value


def input_lines(action: Action, view: RedactedView, limit: int) -> list[str]:
    """`minutes: 60`, one for each input, with at most `limit` characters of each value; mrkdwn."""
    if given_inputs(action) and not view.shows_inputs:
        return [f"inputs: {view.inputs('')}"]
    return [
        f"{foreign(name, 100)}: {foreign(defang_indicators(text[: limit * 4]), limit)}"
        for name, text in inputs(action, view)
    ]


def inputs_in_brackets(action: Action, view: RedactedView) -> str:
    """` (minutes: 60, reason: lateral movement)` for a run's line; "" without inputs."""
    lines = input_lines(action, view, INPUT_LIMIT)
    more = f", and {len(lines) - MAX_INPUTS} more" if len(lines) > MAX_INPUTS else ""
    return f" ({', '.join(lines[:MAX_INPUTS])}{more})" if lines else ""


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
