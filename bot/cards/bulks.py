"""A responder on several objects: the question before it runs, what became of it, and how far it is."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.cards import approvals, ids, names, questions, runs, undo_state, undos
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import (
    DAY_AND_TIME,
    clip,
    clip_middle,
    context,
    count,
    defang_indicators,
    foreign,
    person_name,
    plain,
    readable_name,
    section,
    slack_date,
)
from bot.redaction import RedactedView
from core.models import OPEN_STATUSES, Action, Bulk, BulkAnswer, BulkCounts, BulkTarget, OfferedResponder, Policy

LISTED = 25  # objects with their titles
REASONS = 10
PAGE = 40  # objects in Show each
INPUT_LIMIT = 100_000  # characters of one input as mrkdwn, more than the longest that core takes for several objects
TITLE_LIMIT = 80
CONFIRM_INPUT_LIMIT = 300  # of one in the question, whose author typed it
REVIEW_TITLE_LIMIT = 200  # of what somebody approves
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
    parameters: Mapping[str, Any] | None = None,
    undo_after_minutes: int | None = None,
) -> Message:
    """Asks to confirm the runs. `refused` are ids with why, foreign text; `on` says on what; `start` is its button.

    `parameters` are the inputs of each run; core undoes each after `undo_after_minutes` (None: as the policy says).
    """
    text = f"Run {names.shown(responder)} on {on}?"
    blocks: list[Block] = [section(f"*{names.shown(responder)}* on *{on}*")]
    policy = responder.policy
    blocks += questions.policy_words(policy) if policy else []
    if ready:
        lines = runs.parameter_lines(parameters or {}, responder.parameters or (), ready[0], CONFIRM_INPUT_LIMIT)
        blocks += _section(["*Inputs of each*", *(f"• {line}" for line in lines)]) if lines else []
        blocks += _listed(f"*Runs on {count(len(ready), 'object')}*", ready)
    if refused:
        blocks.append(section(_why(f"*Will be refused on {count(len(refused), 'object')}*", refused)))
    if not ready:
        return Message(text, (*blocks, context("Nothing was run.")))
    if policy and (limits := [rate for rate in policy.rate or () if int(rate.partition("/")[0]) < len(ready)]):
        blocks.append(section(f"⚠️ Its rate is {' and '.join(limits)}: core refuses the runs beyond it."))
    begins = f"Each starts after {count(policy.approval, 'approval')}." if policy and policy.approval else ""
    lasts = _lasts(policy, undo_after_minutes)
    blocks.append(context(f"{begins or 'All start at once.'}{lasts} Core checks each as a run on that object alone."))
    run = {
        "type": "button",
        "action_id": ids.BULK_START,
        "text": plain(f"Run on {count(len(ready), 'object')}"),
        "style": "danger",
        "value": button(start),
    }
    return Message(text, (*blocks, {"type": "actions", "elements": [run]}))


def _lasts(policy: Policy | None, minutes: int | None) -> str:
    if policy is None or not policy.undo:
        return ""
    minutes = policy.undo_after_minutes if minutes is None else minutes
    until = f"is released after {undo_state.minutes(minutes)}" if minutes else "lasts until somebody releases it"
    return f" Each {until}."


def outcome(answer: BulkAnswer) -> Message:
    """How many runs were accepted, how many refused, and why."""
    accepted = [entry for entry in answer.actions if entry.action is not None]
    refused = [(entry.object_id, entry.message or "") for entry in answer.actions if entry.action is None]
    text = f"{count(len(accepted), 'run')} accepted, {len(refused)} refused."
    blocks: list[Block] = [section(text)]
    if refused:
        blocks.append(section(_why("*Refused*", refused)))
    blocks.append(context("One message tells how it goes."))
    return Message(text, tuple(blocks))


def progress(bulk: BulkCounts, *, button: ButtonIds, mention: str = "") -> Message:
    """How far a bulk is. Nothing of its objects is in it, so that it fits any channel.

    `mention` calls those who may approve, while something waits for that.
    """
    name, words = _name(bulk), _words(bulk)
    by = f"asked for by {person_name(bulk.created_by)} · {bulk.id}"
    blocks: list[Block] = [section(f"*{name}* on {count(bulk.total, 'object')}: {words}")]
    elements: list[dict[str, Any]] = []
    if bulk.awaiting:
        until = f", the first until {slack_date(bulk.expires_at, DAY_AND_TIME)}" if bulk.expires_at else ""
        blocks.append(section(f"{bulk.awaiting} wait for approval{until}. {mention}".rstrip()))
        elements.append(_button(ids.BULK_REVIEW, "Review", Intent("bulk_review", bulk.id), button))
    if bulk.timed and bulk.release_at is not None:
        blocks.append(context(f"{bulk.timed} to be released {slack_date(bulk.release_at, DAY_AND_TIME)}"))
    if bulk.not_released:
        blocks.append(section(f"⚠️ *{bulk.not_released} not released*. *Show each* says why."))
    if bulk.retried_by:
        blocks.append(context(f"What failed was run again as {bulk.retried_by}."))
    elif has_ended(bulk) and _can_retry(bulk):
        if bulk.free_at is not None:
            blocks.append(context(f"The rate is free again {slack_date(bulk.free_at, DAY_AND_TIME)}; retry then."))
        elements.append(_retry(bulk, button))
    elements.append(_button(ids.BULK_DETAILS, "Show each", Intent("bulk_details", bulk.id), button))
    return Message(f"{name}: {words}", (*blocks, context(by), {"type": "actions", "elements": elements}))


def ended(bulk: BulkCounts) -> Message:
    """The one message in the thread, once all of its runs have ended."""
    succeeded = bulk.counts.get("Success", 0)
    who = f"asked for by {person_name(bulk.created_by)}"
    text = f"*{_name(bulk)}* is over, {who}: {succeeded} of {bulk.total} succeeded{_others(bulk)}."
    return Message(text, (section(text),))


def late(bulk: BulkCounts) -> Message:
    """Tells the thread that core could not undo some of its runs, or that it has done so since."""
    text = f"*{_name(bulk)}*: all that was to be released is."
    if bulk.not_released:
        text = (
            f"⚠️ *{_name(bulk)}*: {bulk.not_released} of {bulk.total} were to be released and were not. "
            "They still stand, as far as core knows. *Show each* says why, and has *Release now*."
        )
    return Message(text, (section(text),))


def _name(bulk: BulkCounts) -> str:
    return foreign(bulk.title or readable_name(bulk.responder_name), names.NAME_LIMIT)


def _words(bulk: BulkCounts) -> str:
    """Such as `12 of 25, 1 failed, 1 refused, 2 denied`."""
    failed = bulk.outcomes.get("failed", 0)
    others = [f"{number} {outcome}" for outcome, number in bulk.outcomes.items() if outcome != "failed"]
    return ", ".join(
        [f"{bulk.total - _open(bulk)} of {bulk.total}", f"{failed} failed", f"{bulk.refused} refused", *others]
    )


def _others(bulk: BulkCounts) -> str:
    parts = [f"{number} {outcome}" for outcome, number in bulk.outcomes.items()]
    parts += [f"{bulk.refused} refused"] if bulk.refused else []
    return "".join(f", {part}" for part in parts)


def _button(action_id: str, words: str, intent: Intent, button: ButtonIds) -> dict[str, Any]:
    return {"type": "button", "action_id": action_id, "text": plain(words), "value": button(intent)}


# --- each of its objects --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownTarget:
    """A target of a bulk that a person may see, with its action, and the policy of what undoes that."""

    target: BulkTarget
    view: RedactedView
    action: Action | None = None
    undo_policy: Policy | None = None


def details(bulk: Bulk, shown: Sequence[ShownTarget], start: int, *, button: ButtonIds) -> Message:
    """What became of each object that the person may see, from number `start` on, and how it can be undone.

    First what was refused or failed.
    """
    ordered = sorted(shown, key=lambda one: _urgency(one.target))
    blocks: list[Block] = [section(f"*{_name(bulk)}* on {count(bulk.total, 'object')}: {_words(bulk)}")]
    lines: list[str] = []
    for one in ordered[start : start + PAGE]:
        found = undos.buttons(one.action, one.view, button, one.undo_policy) if one.action is not None else []
        line = _line(one)
        if found or len(lines) == REASONS or len("\n".join([*lines, line])) > LINES_LIMIT:
            blocks += _section(lines)
            lines = []
        if len(found) == 1:
            blocks.append({**section(line), "accessory": found[0]})
        elif found:
            blocks += [section(line), {"type": "actions", "elements": found}]
        else:
            lines.append(line)
    blocks += _section(lines)
    if hidden := len(bulk.targets) - len(shown):
        blocks.append(context(f"{hidden} more that you may not see, or that are gone."))
    pages = [("Earlier ones", start - PAGE), ("More", start + PAGE)]
    buttons = [
        _button(ids.numbered(ids.BULK_DETAILS, str(at)), words, Intent("bulk_details", bulk.id, str(at)), button)
        for words, at in pages
        if 0 <= at < len(ordered)
    ]
    more: list[Block] = [{"type": "actions", "elements": buttons}] if buttons else []
    return Message(f"{_name(bulk)}: {count(len(shown), 'object')}", (*blocks, *more))


def _section(lines: Sequence[str]) -> list[Block]:
    return [section(clip("\n".join(lines), LINES_LIMIT))] if lines else []


def review(
    bulk: BulkCounts, waiting: Sequence[ShownTarget], hidden: int, why_not: str, confirm: str, *, button: ButtonIds
) -> Message:
    """All that somebody approves with one decision: each object, the inputs, the policy.

    `hidden` objects they may not see, so that they can't decide; `why_not` is another reason; `confirm` is the policy.
    """
    total = len(waiting) + hidden
    head = f"*{person_name(bulk.created_by)}* asks to run *{_name(bulk)}* on *{count(total, 'object')}*"
    blocks: list[Block] = [section(head)]
    if waiting and waiting[0].action is not None:
        if not hidden:
            blocks += _inputs(waiting[0].action, [one.view for one in waiting])
        if confirm:
            blocks.append(section(foreign(confirm, approvals.POLICY_LIMIT, lines=True) or " "))
        blocks.append(context(approvals.decision(waiting[0].action, 0)))
    lines = [f"• {one.target.object_id} · {_whole_title(one.view)}" for one in waiting]
    for start in range(0, len(lines), REASONS):
        blocks += _section(lines[start : start + REASONS])
    if hidden:
        why_not = (
            f"You may not see {hidden} of these objects, so you can't decide on all at once. The cards of the others"
            " have Approve and Deny."
        )
    if why_not or not waiting:
        return Message(head, (*blocks, context(why_not or "Nothing of it waits any more.")))
    approve = _button(ids.BULK_APPROVE, f"Approve all {total}", Intent("bulk_approve", bulk.id), button)
    deny = _button(ids.BULK_DENY, f"Deny all {total}", Intent("bulk_deny", bulk.id), button)
    elements = [{**approve, "style": "primary"}, {**deny, "style": "danger"}]
    return Message(head, (*blocks, {"type": "actions", "elements": elements}))


def _inputs(action: Action, views: Sequence[RedactedView]) -> list[Block]:
    """What all the runs get, whole, with what is hidden of any object masked in it."""
    others = {one.id: one for view in views for one in (*view.subject.artifacts, *view.subject.others)}
    highest = max(views, key=lambda view: max(view.subject.tlp, view.subject.parent_tlp))
    view = replace(highest, subject=replace(highest.subject, others=tuple(others.values())))
    if action.parameters is None:
        return [section("Inputs: not recorded")]
    left, blocks = "\n".join(f"• {line}" for line in runs.input_lines(action, view, INPUT_LIMIT)), list[Block]()
    while len(left) > LINES_LIMIT:
        cut = max(left.rfind(" ", LINES_LIMIT // 2, LINES_LIMIT), left.rfind("\n", LINES_LIMIT // 2, LINES_LIMIT))
        cut = cut if cut > 0 else LINES_LIMIT
        blocks.append(section(left[:cut]))
        left = left[cut:].lstrip()
    return [*blocks, section(left)] if left else blocks


def _whole_title(view: RedactedView) -> str:
    """With both ends of a long one, by which people tell hashes and URLs apart."""
    return foreign(clip_middle(view.title(), REVIEW_TITLE_LIMIT), REVIEW_TITLE_LIMIT)


def decided(answer: BulkAnswer, verb: str) -> Message:
    """What became of a decision on all."""
    refused = [(entry.object_id, entry.message or "") for entry in answer.actions if entry.action is None]
    text = f"You {verb} {count(len(answer.actions) - len(refused), 'run')}."
    blocks: list[Block] = [section(text)]
    if refused:
        blocks.append(section(_why("*Not decided*", refused)))
    return Message(text, tuple(blocks))


def has_ended(bulk: BulkCounts) -> bool:
    """Whether none of its runs is open."""
    return not _open(bulk)


def _open(bulk: BulkCounts) -> int:
    return sum(bulk.counts.get(status, 0) for status in OPEN_STATUSES)


def _can_retry(bulk: BulkCounts) -> int:
    return bulk.outcomes.get("failed", 0) + bulk.outcomes.get("expired", 0) + bulk.refused


def _retry(bulk: BulkCounts, button: ButtonIds) -> dict[str, Any]:
    failed, expired = (bulk.outcomes.get(outcome, 0) for outcome in ("failed", "expired"))
    expired_too = f", expired ({expired})" if expired else ""
    text = f"It runs again on what failed ({failed}){expired_too} or was refused ({bulk.refused})."
    return {
        **_button(ids.BULK_RETRY, "Retry failed", Intent("bulk_retry", bulk.id), button),
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


def _line(shown: ShownTarget) -> str:
    target, view = shown.target, shown.view
    state = {"Waiting": "waits", "InProgress": "runs"}.get(target.action_status or "", target.outcome or "failed")
    if target.action_id is None:
        state = f"refused: {_reason(view.text(target.message or ''))}"
    elif shown.action is not None:
        state += undo_state.words(shown.action, view)
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
