"""The App Home of a person: approvals to give, running and failed runs, and what they may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.cards import ids, runs
from bot.cards.message import Block, ButtonIds, Intent
from bot.cards.text import context, foreign, person_name, plain, section
from bot.redaction import RedactedView, Subject
from core.models import TLP_NAMES, Action, Person

MAX_RUNS = 10
TITLE_LIMIT = 100

RunWithSubject = tuple[Action, Subject]


@dataclass(frozen=True)
class Home:
    """The runs that a Home shows, each with what it runs on."""

    running: Sequence[RunWithSubject] = ()
    waiting: Sequence[RunWithSubject] = ()  # for this person's approval
    failed: Sequence[RunWithSubject] = ()


def home_view(
    home: Home, person: Person, help_lines: Sequence[str], *, button: ButtonIds, now_ms: int
) -> dict[str, Any]:
    """The Home of a person, within their clearance."""
    blocks: list[Block] = [
        {"type": "header", "text": plain("Responders")},
        context(f"You are {person_name(person.login)}, and see up to TLP:{TLP_NAMES[person.clearance].upper()}."),
    ]
    blocks += _part("Waiting for your approval", home.waiting, person, now_ms, button, "approve")
    blocks += _part("Running for you", home.running, person, now_ms, button, "cancel")
    blocks += _part("Failed in the last day", home.failed, person, now_ms, button, "")
    blocks += [{"type": "divider"}, section("\n".join(help_lines))]
    return {"type": "home", "callback_id": ids.HOME_VIEW, "blocks": blocks}


def notice_home(text: str) -> dict[str, Any]:
    """A Home with one sentence, such as that core is down."""
    return {"type": "home", "callback_id": ids.HOME_VIEW, "blocks": [section(text)]}


def _part(
    title: str, shown: Sequence[RunWithSubject], person: Person, now_ms: int, button: ButtonIds, what: str
) -> list[Block]:
    blocks: list[Block] = [section(f"*{title}* ({len(shown)})" if shown else f"*{title}*: nothing")]
    for action, subject in shown[:MAX_RUNS]:
        view = RedactedView(subject, person.clearance)
        named = f"{subject.id} {foreign(view.title(), TITLE_LIMIT)}".rstrip()
        blocks.append(section(f"{runs.run_line(action, view, now_ms=now_ms)} · {named}"))
        if what == "approve":
            blocks.append(_buttons(action, button, (("Approve", ids.APPROVE), ("Deny", ids.DENY))))
        elif what == "cancel" and action.status == "Waiting":
            blocks.append(_buttons(action, button, (("Cancel", ids.CANCEL),)))
    if len(shown) > MAX_RUNS:
        blocks.append(context(f"and {len(shown) - MAX_RUNS} more"))
    return blocks


_WHAT: Mapping[str, str] = {ids.APPROVE: "approve", ids.DENY: "deny", ids.CANCEL: "cancel"}


def _buttons(action: Action, button: ButtonIds, offered: Sequence[tuple[str, str]]) -> Block:
    made = [
        {
            "type": "button",
            "action_id": ids.numbered(action_id, action.id),
            "text": plain(words),
            "value": button(Intent(_WHAT[action_id], action.id)),
        }
        for words, action_id in offered
    ]
    return {"type": "actions", "elements": made}
