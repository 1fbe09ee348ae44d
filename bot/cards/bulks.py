"""A responder on several objects: the question before it runs, what became of it, and how far it is."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.cards import ids, names
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import clip, context, count, defang_indicators, foreign, person_name, plain, readable_name, section
from bot.redaction import RedactedView
from core.models import OPEN_STATUSES, Bulk, BulkAnswer, BulkCounts, BulkTarget, OfferedResponder

LISTED = 25  # objects with their titles
REASONS = 10
TITLE_LIMIT = 80
REASON_LIMIT = 200
LINES_LIMIT = 2900  # characters of a section


def confirm(
    responder: OfferedResponder,
    ready: Sequence[RedactedView],
    refused: Sequence[tuple[str, str]],
    on: str,
    start: Intent,
    *,
    button: ButtonIds,
) -> Message:
    """Asks to confirm the runs. `refused` are ids with why, foreign text; `on` says on what; `start` is its button."""
    text = f"Run {names.shown(responder)} on {on}?"
    blocks: list[Block] = [section(f"*{names.shown(responder)}* on *{on}*")]
    policy = responder.policy
    if policy and policy.confirm:
        quoted = foreign(policy.confirm, 1500, lines=True).replace("\n", "\n>")
        blocks.append(section(f">{quoted}"))
    if ready:
        blocks += _listed(f"*Runs on {count(len(ready), 'object')}*", ready)
    if refused:
        blocks.append(section(_why(f"*Will be refused on {count(len(refused), 'object')}*", refused)))
    if not ready:
        return Message(text, (*blocks, context("Nothing was run.")))
    begins = f"Each starts after {count(policy.approval, 'approval')}." if policy and policy.approval else ""
    blocks.append(context(f"{begins or 'All start at once.'} Core checks each as a run on that object alone."))
    run = {
        "type": "button",
        "action_id": ids.BULK_START,
        "text": plain(f"Run on {count(len(ready), 'object')}"),
        "style": "danger",
        "value": button(start),
    }
    return Message(text, (*blocks, {"type": "actions", "elements": [run]}))


def outcome(answer: BulkAnswer) -> Message:
    """How many runs were accepted, how many refused, and why."""
    accepted = [entry for entry in answer.actions if entry.action is not None]
    refused = [(entry.object_id, entry.message or "") for entry in answer.actions if entry.action is None]
    text = f"{count(len(accepted), 'run')} accepted, {len(refused)} refused."
    blocks: list[Block] = [section(text)]
    if refused:
        blocks.append(section(_why("*Refused*", refused)))
    blocks.append(context("A message in the channel tells how it goes."))
    return Message(text, tuple(blocks))


def progress(bulk: BulkCounts, *, button: ButtonIds) -> Message:
    """How far a bulk is. Nothing of its objects is in it, so that it fits any channel."""
    name = foreign(bulk.title or readable_name(bulk.responder_name), names.NAME_LIMIT)
    failed = bulk.counts.get("Failure", 0)
    words = f"{bulk.total - _open(bulk)} of {bulk.total}, {failed} failed, {bulk.refused} refused"
    by = f"asked for by {person_name(bulk.created_by)} · {bulk.id}"
    blocks: list[Block] = [section(f"*{name}* on {count(bulk.total, 'object')}: {words}"), context(by)]
    details = {
        "type": "button",
        "action_id": ids.BULK_DETAILS,
        "text": plain("Show each"),
        "value": button(Intent("bulk_details", bulk.id)),
    }
    elements = [details]
    if bulk.retried_by:
        blocks.append(context(f"What failed was run again as {bulk.retried_by}."))
    elif has_ended(bulk) and failed + bulk.refused:
        elements.insert(0, _retry(bulk, failed, button))
    return Message(f"{name}: {words}", (*blocks, {"type": "actions", "elements": elements}))


def details(bulk: Bulk, views: Mapping[str, RedactedView]) -> Message:
    """What became of each object that the person may see: first what was refused or failed."""
    seen = [target for target in bulk.targets if target.object_id in views]
    lines = [_line(target, views[target.object_id]) for target in sorted(seen, key=_urgency)]
    name = foreign(bulk.title or readable_name(bulk.responder_name), names.NAME_LIMIT)
    blocks: list[Block] = [section(f"*{name}* on {count(bulk.total, 'object')}")]
    for start in range(0, len(lines), REASONS):
        blocks.append(section(clip("\n".join(lines[start : start + REASONS]), LINES_LIMIT)))
    if hidden := len(bulk.targets) - len(seen):
        blocks.append(context(f"{hidden} more that you may not see, or that are gone."))
    return Message(f"{name}: {count(len(seen), 'object')}", tuple(blocks))


def has_ended(bulk: BulkCounts) -> bool:
    """Whether none of its runs is open."""
    return not _open(bulk)


def _open(bulk: BulkCounts) -> int:
    return sum(bulk.counts.get(status, 0) for status in OPEN_STATUSES)


def _retry(bulk: BulkCounts, failed: int, button: ButtonIds) -> dict[str, Any]:
    text = f"It runs again on what failed ({failed}) or was refused ({bulk.refused})."
    return {
        "type": "button",
        "action_id": ids.BULK_RETRY,
        "text": plain("Retry failed"),
        "value": button(Intent("bulk_retry", bulk.id)),
        "confirm": {
            "title": plain("Retry failed?"),
            "text": plain(text),
            "confirm": plain("Retry failed"),
            "deny": plain("Cancel"),
        },
    }


def _urgency(target: BulkTarget) -> int:
    if target.action_id is None:
        return 0
    return {"Failure": 1, "Waiting": 2, "InProgress": 2}.get(target.action_status or "", 3)


def _line(target: BulkTarget, view: RedactedView) -> str:
    state = {"Waiting": "waits", "InProgress": "runs"}.get(target.action_status or "", target.outcome or "failed")
    if target.action_id is None:
        state = f"refused: {_reason(target.message or '')}"
    return f"• {target.object_id} · {foreign(view.title(), TITLE_LIMIT)} · {state}"


def _listed(head: str, views: Sequence[RedactedView]) -> Iterable[Block]:
    """Ids with titles; of those past LISTED only the ids."""
    lines = [f"• {view.subject.id} · {foreign(view.title(), TITLE_LIMIT)}" for view in views[:LISTED]]
    yield section(clip("\n".join([head, *lines]), LINES_LIMIT))
    if left := views[LISTED:]:
        yield section(clip(f"and {', '.join(view.subject.id for view in left)}", LINES_LIMIT))


def _why(head: str, refused: Iterable[tuple[str, str]]) -> str:
    """Each reason once, with the ids that it is about."""
    why: dict[str, list[str]] = {}
    for object_id, reason in refused:
        why.setdefault(_reason(reason), []).append(object_id)
    lines = [f"• {', '.join(found)}: {reason}" for reason, found in why.items()]
    if len(lines) > REASONS:
        lines = [*lines[:REASONS], f"and {count(len(lines) - REASONS, 'other reason')}"]
    return clip("\n".join([head, *lines]), LINES_LIMIT)


def _reason(words: str) -> str:
    return foreign(defang_indicators(words), REASON_LIMIT) or "no reason was given"


def start_argument(
    responder_id: str,
    targets: Iterable[RedactedView],
    parameters: Mapping[str, Any],
    undo_after_minutes: int | None = None,
) -> str:
    """What the button of the question stores, for `BulkInput`."""
    named = [{"object_type": view.subject.kind, "object_id": view.subject.id} for view in targets]
    asked: dict[str, Any] = {"responder_id": responder_id, "targets": named, "parameters": dict(parameters)}
    if undo_after_minutes is not None:
        asked["undo_after_minutes"] = undo_after_minutes
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":"))
