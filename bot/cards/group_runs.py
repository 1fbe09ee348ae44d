"""A run on all alerts of a group: which responder, what it will do, and what became of it."""

from collections.abc import Sequence
from typing import Any

from bot.cards import ids, names
from bot.cards.lists import MAX_OPTIONS
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import OPTION_LIMIT, clip, context, count, foreign, foreign_plain, plain, section
from bot.redaction import RedactedView
from core.models import BulkAnswer, OfferedResponder

LISTED = 10  # alerts, and reasons why some were refused


def menu(key: str, offered: Sequence[OfferedResponder], on: str, *, button: ButtonIds) -> Message:
    """A menu of the responders that can run on all; `on` says on which alerts."""
    options = [
        {
            "text": plain(foreign_plain(names.title(one), OPTION_LIMIT)),
            "value": button(Intent("group_ask", key, one.id)),
        }
        for one in offered[:MAX_OPTIONS]
    ]
    element: dict[str, Any] = {
        "type": "static_select",
        "action_id": ids.numbered(ids.GROUP_RUN, "choose"),
        "placeholder": plain("Choose a responder"),
        "options": options,
    }
    text = f"Run on {on}"
    only = "Only responders that can run on each of them, and need no inputs, are here. It asks before it runs."
    return Message(text, (section(text), {"type": "actions", "elements": [element]}, context(only)))


def confirm(
    key: str, responder: OfferedResponder, views: Sequence[RedactedView], on: str, *, button: ButtonIds
) -> Message:
    """Asks to confirm the runs; these and no other alerts are then run on."""
    text = f"Run {names.shown(responder)} on {on}?"
    lines = [f"• {view.subject.id} · {foreign(view.title(), 120)}" for view in views[:LISTED]]
    lines += [f"and {len(views) - LISTED} more"] if len(views) > LISTED else []
    blocks: list[Block] = [section(f"*{names.shown(responder)}* on *{on}*"), section("\n".join(lines))]
    policy = responder.policy
    if policy and policy.confirm:
        quoted = foreign(policy.confirm, 1500, lines=True).replace("\n", "\n>")
        blocks.append(section(f">{quoted}"))
    begins = f"Each starts after {count(policy.approval, 'approval')}." if policy and policy.approval else ""
    blocks.append(context(f"{begins or 'All start at once.'} Core checks each as a run on that alert alone."))
    targets = ",".join(view.subject.id for view in views)
    run = {
        "type": "button",
        "action_id": ids.GROUP_START,
        "text": plain(f"Run on {count(len(views), 'alert')}"),
        "style": "danger",
        "value": button(Intent("group_start", key, f"{targets} {responder.id}")),
    }
    return Message(text, (*blocks, {"type": "actions", "elements": [run]}))


def outcome(answer: BulkAnswer, command: str) -> Message:
    """How many runs were accepted, how many refused, and why."""
    accepted = [entry for entry in answer.actions if entry.action is not None]
    refused = [entry for entry in answer.actions if entry.action is None]
    text = f"{count(len(accepted), 'run')} accepted, {len(refused)} refused."
    blocks: list[Block] = [section(text)]
    why: dict[str, list[str]] = {}
    for entry in refused:
        why.setdefault(entry.message or "no reason was given", []).append(entry.object_id)
    lines = [f"• {', '.join(found[:3])}{_more(found[3:])}: {foreign(reason, 200)}" for reason, found in why.items()]
    lines = [*lines[:LISTED], *([f"and {len(lines) - LISTED} other reasons"] if len(lines) > LISTED else [])]
    if lines:
        blocks.append(section(clip("\n".join(["*Refused*", *lines]), 2900)))
    if accepted:
        blocks.append(context(f"`{command} actions {accepted[0].object_id}` shows how it goes there."))
    return Message(text, tuple(blocks))


def _more(left: Sequence[str]) -> str:
    return f" and {count(len(left), 'more', 'more')}" if left else ""
