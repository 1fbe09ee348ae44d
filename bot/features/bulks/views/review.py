"""What one decision on several runs of a bulk is about: the forms that approve and deny, and what came of it."""

import json
from collections.abc import Container, Sequence
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import OPTION_LIMIT, clip, clip_apart, context, person_name, section, sections, slack_date
from bot.clearance import view_of_all
from bot.features.approvals import views as approvals
from bot.features.bulks.views import more_time, states
from bot.features.bulks.views.states import End, Listed
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import Action, BulkAnswer, BulkCounts, Extension, OfferedResponder

INPUT_LIMIT = 100_000  # characters of one input as mrkdwn, more than the longest that core takes for several objects
TICKED = "decide"  # the fields of what somebody decides on
TARGET_LIMIT = 1000  # characters
MORE = "*More about these targets*"


def decided_since(listed: Listed, request: str, read: Container[str]) -> list[str]:
    """Who has decided on those of these runs, or with a `request` of these later ends, that were read; mrkdwn."""
    asked = states.by_request(listed).get(request, ())
    ends = [one for one in asked if one[2].id in read and one[2].outcome is not None]
    over = [one for one in listed if one[0].id in read and not runs.awaits_approval(one[0])]
    return more_time.decisions(ends) if ends else states.in_lines(states.each_state(over))


def no_longer_waits(listed: Listed, request: str = "") -> str:
    """Who decided on these runs, or with a `request` on more time for them, or that nobody did in time; mrkdwn."""
    ends = [one for one in states.by_request(listed).get(request, ()) if one[2].outcome is not None]
    over = [] if request else [one for one in listed if not runs.awaits_approval(one[0])]
    expired_at = max((run.end_date or 0 for run, _ in over if run.outcome == "expired"), default=0)
    since = f", since {slack_date(expired_at)}" if expired_at else ""
    said = more_time.decisions(ends) if ends else states.by_state(over)
    return clip("\n".join([f"Nothing of it waits any more{since}.", *said]), questions.LINES_LIMIT)


def review_view(
    bulk: BulkCounts,
    waiting: Listed,
    hidden: int,
    why_not: str,
    responder: OfferedResponder | None,
    now_ms: int,
    button: ButtonIds,
    *,
    request: str = "",
    deed: str = "Deny",
    read: Container[str] | None = None,
    ticked: Container[str] | None = None,
    over: Sequence[str] = (),
) -> dict[str, Any]:
    """Asks to approve what waits of it: the question, what it does and how that ends, then each object and the inputs.

    They decide on those that they tick. With a `request` to let it last longer, as that asks.
    `hidden` others they may not see, and don't decide on; `why_not`: why they decide on none, where the `deed` of who
    asked is *Withdraw*. The metadata has a digest of what is shown, and the runs, each with a mark of its row. Shown
    again, `read` has the marks that were read before, `ticked` what was ticked, and `over` what no longer waits.
    """
    waits, ends = [action for action, _ in waiting], states.by_request(waiting).get(request, [])
    decided_on: Sequence[Action | Extension] = [end for *_, end in ends] or waits
    total = len(waits)
    ids_ = [one.id for one in decided_on]
    before = [approvals.decided_before(of, view)[0] for of, (_, view) in zip(decided_on, waiting, strict=True)]
    not_ticked = [id_ for id_, how in zip(ids_, before, strict=True) if how]
    label, has_ticks = undo_state.keep(ends[0][2]) if ends else bulk.title, total > 1 and not why_not
    short = "Keep longer" if ends and ends[0][2].at is not None else label
    title = names.in_view(label, "?") if total < 2 else names.in_view(short, f" ({total})?" if why_not else "?")
    # Slack changes no button with the ticks, and this one has no room for "Keep with no end (ticked)".
    of_ticked = "Keep ticked with no end" if ends and short == label else names.in_view(short, " (ticked)")
    asks, *rows = _asks(bulk, waiting, ends, now_ms) if waits else [f"*{states.name(bulk)}*"]
    contained = [one for one in waiting if undo_state.contained(*one) and not ends]
    of_each = [(run, one) for run, view in contained for one in undo_state.contained(run, view)]
    changes = [undo_state.change_of_second(*one, now_ms) for one in of_each]
    change = states.said_of_all(changes)
    rows = [row.replace(f" {change}", "") if change else row for row in rows]
    each, marks = rows, states.digests(dict(zip(ids_, rows, strict=True)))
    now = [at for run, *_ in ends if run.undo is not None and (at := run.undo.at) is not None]
    asks += f", now{states.until(*now)}" if now and has_ticks else ""
    asks = asks if ends or bulk.title in title else f"*{states.name(bulk)}?*\n{asks}"
    needs = why_not or (undo_state.needed([one[2] for one in ends]) if ends else approvals.decision_on_all(waits))
    which = {"contained": f". {change}" if change else ""}
    asks += questions.warned(before, contained, ": not ticked for you" if has_ticks else "", which)
    asks += states.quoted_note(waiting, ends)
    able = approvals.named_approvers(responder.policy if responder is not None else None)
    then = undo_state.ONLY_UNDO if ends and ends[0][2].at is None else "*Undo all* ends it earlier." if ends else ""
    inputs = list[str]()
    if waits and not ends:
        then = f"{'' if why_not else approvals.starts(waits)} {undo_state.planned(waits[0], is_bulk=True)}".lstrip()
        inputs = approvals.input_lines(waits[0], view_of_all([view for _, view in waiting]), INPUT_LIMIT)
    effect = approvals.effect(None if ends else responder, then if waits else "")
    shown, below = [*effect, *([context(able)] if able else []), *sections(rows)], list[Block]()
    if has_ticks:
        own = ["    ↳ ⚠️", *(["    ↳ 🚫"] if ends else []), *(["    ↳ 🔒"] if changes and not change else [])]
        options, rows = _options(ids_, waiting, rows, own, ends)
        keeps = [one for one in ids_ if one not in not_ticked] if ticked is None else ticked
        ticks = modals.ticked_fields(TICKED, "Decide only on the ticked; the rest goes on waiting", options, keeps)
        shown, below = [*effect, *([context(able)] if able else []), *ticks], sections([MORE, *rows] if rows else ())
    below += map(section, notices.parts("\n".join(inputs)) if inputs else ())
    others = f"{count(hidden, 'more target')} that you may not see: somebody else decides." if hidden else ""
    below += [context(others)] if others else []
    deny = f"Withdraw all {total}" if why_not else "Deny the ticked" if total > 1 else "Deny"
    decide = button_element(deny, ids.BULK_DENY, button(Intent("bulk_deny", bulk.id, request)))
    more = [actions(decide)] if waits and (not why_not or deed == "Withdraw") else []
    digest = notices.digest([section(asks), *effect, *sections([able, *each]), *below])  # the same whatever is ticked
    about = {"id": bulk.id, "runs": marks, "request": request, "shown": digest}
    head = section(f"{asks}\n{why_not}" if why_not else f"{asks} · {needs}")
    blocks = [*notices.changed(each, read, over), head, *shown, *more, *below]
    submit = "" if why_not else of_ticked if has_ticks else names.in_view(label)
    metadata = json.dumps(about, separators=(",", ":"))  # a hundred runs have room
    return modals.modal(
        title, blocks, callback_id=ids.BULK_APPROVE_VIEW, submit=submit, metadata=metadata, close="Not now"
    )


def deny_view(bulk: BulkCounts, waiting: Listed, request: str = "", deed: str = "Deny") -> dict[str, Any]:
    """Asks why these runs of it are denied, or that they last longer; who asked withdraws them without a reason."""
    ends, number = states.by_request(waiting).get(request, []), len(waiting)
    if ends:
        asked_by, ids_ = ends[0][2].asked_by, [end.id for *_, end in ends]
        title, submit, head = f"{deed} more time?", f"{deed} more time ({number})", ""
        then = f"it {undo_state.ends(ends[0][0])}" if number == 1 else "each ends as planned"
    else:
        asked_by, ids_, rest = bulk.created_by, [action.id for action, _ in waiting], bulk.awaiting - number
        title, submit = names.in_view(f"{deed} {bulk.title}", "?"), f"{deed} {count(number, 'run')}"
        head = "" if bulk.title in title else f"*{deed} {states.name(bulk)}?*\n"
        stays = f". {count(rest, 'other target')} {'goes' if rest == 1 else 'go'} on waiting" if rest > 0 else ""
        then = f"it will not run: nothing changes there{stays}"
    asks, *rows = _asks(bulk, waiting, ends)
    question = f"{head}{asks}{states.quoted_note(waiting, ends)}\nIf you {deed.lower()} it, {then}."
    about = {"id": bulk.id, "runs": ids_, "request": request, "deed": deed}
    shown, reader = [section(question), *sections(rows)], asked_by if deed == "Deny" else ""
    return approvals.deny_form(title, shown, reader, about, callback_id=ids.BULK_DENY_VIEW, submit=submit)


def _asks(bulk: BulkCounts, waiting: Listed, ends: Sequence[End], now_ms: int | None = None) -> list[str]:
    """Who asks for what; each target, whether that is closed, and what is in force there already.

    With `ends` what is in force, until when, and until when it is to be.
    """
    if ends:
        return more_time.question_and_rows(ends, ends)
    by = f"*{person_name(bulk.created_by)}* asks{' again' if bulk.retries else ''}"
    on = f"{states.how_many(bulk, len(waiting))}{undo_state.for_how_long(waiting[0][0])}"
    asks = f"{approvals.closed_among(waiting)}{by} for it on {on}"
    return [asks, *(states.row(*one, now_ms) for one in waiting)]


def _options(
    ids_: Sequence[str], waiting: Listed, rows: Sequence[str], own: Sequence[str], ends: Sequence[End] = ()
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The options of these targets, with what their alerts say of them, and what of their rows has no room there.

    The lines that begin as one of `own` are such. With `ends` each has its new end; the question says the end of now.
    """
    says = [undo_state.new_end_in_option(run, end) for run, _, end in ends]
    options, whole, alike = list[tuple[str, str, str]](), list[str](), dict[str, list[str]]()
    all_called = clip_apart([runs.called_in_plain(*one, TARGET_LIMIT) for one in waiting], OPTION_LIMIT)
    says = says or [approvals.warnings(*one) for one in waiting]
    for id_, one, row, name, warnings in zip(ids_, waiting, rows, all_called, says, strict=True):
        text, below, has_room = runs.in_option(*one, name, warnings)
        said = row.removeprefix(states.target_line(*one))
        says_all = warnings[: 1 if approvals.decided_before(*one)[0] else 2]
        kept = (*own, *(() if ", also for " in below else ("    ↳ also for ",)))
        if any(what in below for what in says_all) or not warnings:
            said = "".join(f"\n{line}" for line in said.splitlines() if line.startswith(kept))
        options.append((id_, text, below))
        if not has_room:
            whole.append(row)
        elif said:
            called = f"{runs.distinct_targets([one])} ({one[1].subject.root_id or one[1].subject.id})"
            alike.setdefault(said, []).append(called)
    return options, [*whole, *(f"• {', '.join(of)}{said}" for said, of in alike.items())]


def decided(bulk: BulkCounts, response: BulkAnswer, verb: str, shown: Listed, request: str, link: str = "") -> Message:
    """What became of a decision on all of these, or with a `request` on their later ends.

    `link` is the address of the bulk's message.
    """
    refused = [(entry.object_id, questions.why_not(entry)) for entry in response.actions if questions.why_not(entry)]
    done = {one.action.id: one.action for one in response.actions if one.action and not questions.why_not(one)}
    seen = [(done[run.id], view) for run, view in shown if run.id in done]
    ends = [(run, view, run.extensions[0]) for run, view in seen if request]
    what = "more time for" if request else f"{count(len(done), 'run')}:"
    on = runs.first_targets(seen, most=states.MOST_NAMED) or count(len(done), "target")
    now = states.said_of_all([undo_state.end_decided(end) for *_, end in ends])
    text = f"You {verb} {what} {states.name(bulk)} on {on}{now and f': {now}'}."
    waits = undo_state.later_end if request else runs.awaits_approval
    waiting = sum(bool(waits(action)) for action in done.values())
    text += f" Still wait for approval: {waiting}." if waiting else ""
    if done and verb == "approved" and not request:
        its_message = f"<{link}|its message>" if link else "its message"
        undo = "" if bulk.undo_after_minutes is None else f" *Undo all* will be on {its_message}."
        starts = " It starts now." if len(done) == 1 else " They start now."
        text += f"{'' if waiting else starts}{undo}"
    rows = more_time.question_and_rows(ends, ends)[1:] if ends and not now else ()
    return questions.with_reasons(text, "*Not decided*", refused, rows=rows)
