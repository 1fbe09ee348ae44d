"""What one decision on several runs of a bulk is about: the forms that approve and deny, and what came of it."""

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import (
    OPTION_LIMIT,
    clip,
    clip_apart,
    context,
    foreign,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import view_of_all
from bot.features.approvals import views as approvals
from bot.features.bulks.views import more_time, states
from bot.features.bulks.views.states import End, Listed, Run
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.clock import MINUTE_MS
from core.common.words import count
from core.models import BulkAnswer, BulkCounts, Measure, OfferedResponder, Policy

INPUT_LIMIT = 100_000  # characters of one input as mrkdwn, more than the longest that core takes for several objects
TICKED = "decide"  # the fields of what somebody decides on
TARGET_LIMIT = 1000  # characters


def decided_since(listed: Listed, request: str, read: Container[str]) -> list[str]:
    """Who has decided on those of these runs, or with a `request` of these later ends, that were read; mrkdwn."""
    asked = states.by_request(listed).get(request, ())
    ends = [one for one in asked if one[2].id in read and one[2].outcome is not None]
    over = [one for one in listed if one[0].id in read and not runs.awaits_approval(one[0])]
    return more_time.decisions(ends, has_ends=True) if ends else states.in_lines(states.each_state(over))


def not_decided(deed: str, over: Sequence[str]) -> list[Block]:
    """What of this was `over`, so that a denial or withdrawal left it as it was."""
    verb = "denied" if deed == "Deny" else "withdrawn"
    return sections([f"*Not {verb}*", *over] if over else ())


def no_longer_waits(listed: Listed, request: str = "", hidden: str = "") -> str:
    """Who decided on these runs, or with a `request` on more time for them, or that nobody did in time; mrkdwn.

    First what is `hidden` and waits.
    """
    ends = [one for one in states.by_request(listed).get(request, ()) if one[2].outcome is not None]
    over = [] if request else [one for one in listed if not runs.awaits_approval(one[0])]
    expired_at = max((run.end_date or 0 for run, _ in over if run.outcome == "expired"), default=0)
    since = f", since {slack_date(expired_at)}" if expired_at else ""
    said = more_time.decisions(ends) if ends else states.by_state(over)
    return clip("\n".join([hidden or f"Nothing of it waits any more{since}.", *said]), questions.LINES_LIMIT)


class _Decision(NamedTuple):
    """What one decision is on, in words; mrkdwn, but for the title and the button."""

    title: str
    submit: str
    question: str
    """What is asked, on how many."""
    before: Mapping[str, str]
    """By run, or by later end, how that was decided against before; "" where it was not."""
    by: str = ""
    """Who asks, and why."""
    warned: str = ""
    """How many are closed, were decided against before or are contained already, unless their rows alone say so."""
    needs: str = ""
    then: str = ""
    """What follows, and what ends that."""
    rows: Sequence[str] = ()
    """Each target, with what is said of it."""
    own: Sequence[str] = ()
    """How the lines of a row begin that no option says."""
    in_option: Sequence[Sequence[str]] = ()
    """What the option of each says besides, all or the shortest; nothing here of runs."""
    inputs: Sequence[str] = ()


def review_view(
    bulk: BulkCounts,
    waiting: Listed,
    hidden: str,
    why_not: str,
    responder: OfferedResponder | None,
    now_ms: int,
    undone: Mapping[str, Sequence[Measure]],
    button: ButtonIds,
    *,
    request: str = "",
    deed: str = "Deny",
    read: Container[str] | None = None,
    ticked: Container[str] | None = None,
    over: Sequence[str] = (),
    every: Listed = (),
) -> dict[str, Any]:
    """Asks to approve what waits of it: the question, what it does and how that ends, then each object and the inputs.

    The question says who asks and why, what it needs and what warns. They decide on those that they tick. With a
    `request` to let it last longer, as that asks.
    `hidden` says what waits that they may not see; `why_not`: why they decide on none, where the `deed` of who asked
    is *Withdraw*. The metadata has a digest of what is shown, and the runs, each with a mark of its row. Shown
    again, `read` has the marks that were read before, `ticked` what was ticked, and `over` what no longer waits.
    `every`: all of its runs that they may see, from which the names of those that wait differ. `undone`: what each
    would undo, by its id; without any, they are no releases.
    """
    ends, is_ticked = states.by_request(waiting).get(request, []), len(waiting) > 1 and not why_not
    if ends:
        decision = _on_later_ends(ends, is_ticked=is_ticked)
    elif waiting:
        decision = _on_runs(bulk, waiting, now_ms, undone, is_ticked=is_ticked, can_decide=not why_not)
    else:
        asks = (f"*{states.name(bulk)}*", "") if request or not bulk.awaiting else _asked(bulk, waiting)
        decision = _Decision(bulk.title, "", asks[0], {}, asks[1])
    before, rows = decision.before, decision.rows
    title = names.in_view(decision.title, f" ({len(waiting)})?" if why_not and len(waiting) > 1 else "?")
    title = notices.title(title, read)
    effect = approvals.effect(None if ends else responder, decision.then)
    able = approvals.named_approvers(responder.policy if responder is not None else Policy())
    targets, below, number = sections(rows), list[Block](), ""
    if is_ticked:
        kept = _kept(before, () if ends else waiting, ticked)
        targets, below = _ticks(decision, waiting, kept, every)
        number = f"{'.' if ends else ''} {len(kept) or 'none'} {'ticked for you' if ticked is None else 'still ticked'}"
    deny = _deny(bulk.id, request, len(waiting), why_not, deed, button)
    below += map(section, notices.parts("\n".join(decision.inputs)) if decision.inputs else ())
    first = f"{decision.question}{number}", decision.by, why_not or decision.needs, hidden, decision.warned.rstrip()
    shown = [*sections(filter(None, first)), *effect, *([context(able)] if able else []), *targets, *deny, *below]
    same = [decision.question, decision.by, decision.warned, able, *rows, *effect, *below]  # whatever is ticked
    marks = states.digests(dict(zip(before, rows, strict=True)))
    about = {"id": bulk.id, "runs": marks, "request": request, "shown": notices.digest(same)}
    metadata = json.dumps(about, separators=(",", ":"))  # a hundred runs have room
    blocks, submit = [*notices.changed(rows, read, over), *shown], "" if why_not else decision.submit
    return modals.modal(
        title, blocks, callback_id=ids.BULK_APPROVE_VIEW, submit=submit, metadata=metadata, close="Not now"
    )


def _on_runs(
    bulk: BulkCounts,
    waiting: Listed,
    now_ms: int,
    undone: Mapping[str, Sequence[Measure]],
    *,
    is_ticked: bool,
    can_decide: bool,
) -> _Decision:
    """On runs that wait for approval. What all of them change of what is in force already is said once."""
    waits, rows = [action for action, _ in waiting], [states.row(*one, now_ms) for one in waiting]
    held = [(run, one) for run, view in waiting for one in undo_state.contained(run, view)]
    changes = [undo_state.change_of_second(*one, now_ms) for one in held]
    change, own = states.said_of_all(changes) if len(waiting) > 1 else "", ["    ↳ ⚠️"]
    if change:
        rows = [row.replace(f" {change}", "") for row in rows]
    elif changes:
        own.append("    ↳ 🔒")
    starts = approvals.starts(waits) if can_decide else ""
    before = {run.id: approvals.decided_before(run, view)[0] for run, view in waiting}
    needs, follows = approvals.decision_on_all(waits), undo_state.planned(waits[0], is_bulk=True)
    if undone:
        ended = [undo_state.all_ended(undone[run.id], view, bulk.created_by) for run, view in waiting]
        rows = [questions.with_said(row, *lines) for row, lines in zip(rows, ended, strict=True)]
        own.append("    ↳ 🔓")
        follows = "" if any(ended) else questions.NOTHING_KNOWN
    then = f"{starts} {follows}".strip()
    inputs = approvals.input_lines(waits[0], view_of_all([view for _, view in waiting]), INPUT_LIMIT)
    submit, (asks, by) = names.in_view(bulk.title, " (ticked)" if is_ticked else ""), _asked(bulk, waiting, "?")
    warned = _warned(waiting, before, change, questions.TO_TICK if is_ticked else "")
    return _Decision(bulk.title, submit, asks, before, by, warned, needs, then, rows, own, inputs=inputs)


def _warned(waiting: Listed, before: Mapping[str, str], change: str, more: str) -> str:
    """How many of several are closed, were decided against before, or contained already, with what that `change`s."""
    if len(waiting) == 1:
        return ""
    contained = [one for one in waiting if undo_state.contained(*one)]
    warned = questions.warned([*before.values()], contained, more, {"contained": change and f". {change}"})
    return f"{approvals.closed_among(waiting, more)}{warned.lstrip()}"


def _on_later_ends(ends: Sequence[End], *, is_ticked: bool) -> _Decision:
    """On more time for what is in force."""
    extensions = [end for *_, end in ends]
    asks, warned = approvals.asks_to_keep(ends[0][0], extensions[0], len(ends)), more_time.warned(ends)
    new = states.said_of_all([undo_state.until(end.at) for end in extensions])
    asks += _until_when(ends, new) if is_ticked else ""
    title, then = undo_state.keep(extensions[0]), undo_state.ONLY_UNDO
    if extensions[0].at is not None:
        title, then = "Keep longer" if len(ends) > 1 else title, "*Undo all* ends it earlier."
    submit = names.in_view(title, " (ticked)" if is_ticked else "")
    if is_ticked and extensions[0].at is None:  # Slack changes no button with the ticks, and this one has no more room
        submit = "Keep ticked with no end"
    before = {end.id: approvals.decided_before(end, view)[0] for _, view, end in ends}
    warned += questions.warned([*before.values()], (), questions.TO_TICK).lstrip() if is_ticked else ""
    by, needs, own = states.quoted_note((), ends, ""), undo_state.needed(extensions), ["    ↳ ⚠️", "    ↳ 🚫"]
    in_option = [undo_state.new_end_in_option(end, is_said=bool(new)) for end in extensions]
    return _Decision(title, submit, asks, before, by, warned, needs, then, more_time.rows(ends, ends), own, in_option)


def _until_when(ends: Sequence[End], new: str) -> str:
    """`, now until 14:30, the last until 14:35, then until 15:30`, with the `new` end that all have, if one; mrkdwn."""
    now, said = [run.undo.at for run, *_ in ends if run.undo is not None and run.undo.at is not None], ""
    if now:
        last = max(now)
        said = f", now until {slack_date(min(now))}"
        said += f", the last until {slack_date(last)}" if last // MINUTE_MS > min(now) // MINUTE_MS else ""
    return f"{said}, then {new}" if new and ends[0][2].at is not None else said


def _deny(bulk_id: str, request: str, number: int, why_not: str, deed: str, button: ButtonIds) -> list[Block]:
    """Deny, or Withdraw for who asked for it; nothing for who decides on none, or where nothing waits."""
    if not number or (why_not and deed != "Withdraw"):
        return []
    label, of_all = ("Withdraw", f" all {number}") if why_not else ("Deny", " the ticked")
    label += of_all if number > 1 else ""
    return [actions(button_element(label, ids.BULK_DENY, button(Intent("bulk_deny", bulk_id, request))))]


def deny_view(bulk: BulkCounts, waiting: Listed, request: str = "", deed: str = "Deny") -> dict[str, Any]:
    """Asks why these runs of it are denied, or that they last longer; who asked withdraws them without a reason."""
    ends, number = states.by_request(waiting).get(request, []), len(waiting)
    if ends:
        asked_by, ids_ = ends[0][2].asked_by, [end.id for *_, end in ends]
        title, submit = approvals.more_time_title(deed), f"{deed} more time ({number})"
        asks, warned = approvals.asks_to_keep(ends[0][0], ends[0][2], number), more_time.warned(ends)
        by, rows = states.quoted_note((), ends, ""), more_time.rows(ends, ends)
        then = f"it {undo_state.ends(ends[0][0])}" if number == 1 else "each ends as planned"
    else:
        asked_by, ids_, rest = bulk.created_by, [action.id for action, _ in waiting], bulk.awaiting - number
        title, submit = names.in_view(f"{deed} {bulk.title}", "?"), f"{deed} {count(number, 'run')}"
        asks, by = _asked(bulk, waiting)
        warned = approvals.closed_among(waiting) if number > 1 else ""
        rows = [states.row(*one) for one in waiting]
        stays = f". {count(rest, 'other target')} {'goes' if rest == 1 else 'go'} on waiting" if rest > 0 else ""
        held = bulk.timed + bulk.endless
        stays += f". {count(held, 'target')} {'stays' if held == 1 else 'stay'} in force" if held else ""
        then = f"it will not run: nothing changes there{stays}"
    question = "\n".join(filter(None, [asks, by, f"{warned}If you {deed.lower()} it, {then}."]))
    about = {"id": bulk.id, "runs": ids_, "request": request, "deed": deed}
    shown, reader = [section(question), *sections(rows)], asked_by if deed == "Deny" else ""
    return approvals.deny_form(title, shown, reader, about, callback_id=ids.BULK_DENY_VIEW, submit=submit)


def _asked(bulk: BulkCounts, waiting: Listed, mark: str = "") -> tuple[str, str]:
    """`*Isolate on 4 targets for 1 hour?*`, which ends with the `mark`; who asks for it, and why; mrkdwn.

    Of those that somebody sees `waiting`; without any of all that wait.
    """
    on = f"{states.how_many(bulk, len(waiting) or bulk.awaiting)}{undo_state.lasts(bulk.undo_after_minutes)}"
    by = f"*{person_name(bulk.created_by)}* asks for it{' again' if bulk.retries else ''}"
    return f"*{states.name(bulk)} on {on}{mark}*", f"{by}{states.quoted_note(waiting, between=': ')}"


def _kept(before: Mapping[str, str], waiting: Listed, ticked: Container[str] | None) -> Sequence[str]:
    """What is ticked: at first what was not decided against, shown again the `ticked`; no run on a closed alert."""
    closed = {run.id for run, view in waiting if approvals.closed_by_now(view)}
    return [id_ for id_, how in before.items() if id_ not in closed and (not how if ticked is None else id_ in ticked)]


def _ticks(
    decision: _Decision, waiting: Listed, ticked: Container[str], every: Listed
) -> tuple[list[Block], list[Block]]:
    """The targets to tick, with what their alerts say of them; and below them what of their rows has no room there.

    Their names are cut so that they differ from those of `every` other.
    """
    options, whole, alike = list[tuple[str, str, str]](), list[str](), dict[str, list[str]]()
    called = clip_apart(
        [runs.called_in_plain(run.target or (), view, TARGET_LIMIT) for run, view in (*waiting, *every)], OPTION_LIMIT
    )
    says = decision.in_option or [approvals.warnings(*one) for one in waiting]
    for id_, run, row, name, warnings in zip(decision.before, waiting, decision.rows, called, says, strict=False):
        text, below, has_room = runs.in_option(run[0].target or (), run[0].also_for, run[1], name, warnings)
        options.append((id_, text, below))
        title = f": {foreign(runs.title_of_root(run[1]), runs.TITLE_LIMIT)}" if "…" in f"{text}{below}" else ""
        if not has_room:
            whole.append(row)
        elif said := title + _not_in_option(run, row, below, warnings, decision.own):
            of = f"{runs.distinct_targets([run])} ({run[1].subject.root_id or run[1].subject.id})"
            alike.setdefault(said, []).append(of)
    fields = modals.ticked_fields(TICKED, "Decide only on the ticked; the rest goes on waiting", options, ticked)
    others = [*whole, *(f"• {', '.join(of)}{said}" for said, of in alike.items())]
    return fields, sections([questions.MORE, *others] if others else ())


def _not_in_option(run: Run, row: str, below: str, warnings: Sequence[str], own: Sequence[str]) -> str:
    """The lines of a row that its option does not say, whose second text is `below`; "" for none.

    All of them where that has room for none of the first `warnings`, else those that begin as one of its `own`.
    """
    lines = row.removeprefix(states.target_line(*run))
    says_all = warnings[: 1 if approvals.decided_before(*run)[0] else 2]
    if warnings and not any(one in below for one in says_all):
        return lines
    kept = (*own, *(() if ", also for " in below else ("    ↳ also for ",)))
    return "".join(f"\n{line}" for line in lines.splitlines() if line.startswith(kept))


def decided(bulk: BulkCounts, response: BulkAnswer, verb: str, shown: Listed, request: str, link: str = "") -> Message:
    """What became of a decision on all of these, or with a `request` on their later ends.

    `link` is the address of the bulk's message.
    """
    refused = [(one.object_id, why) for one in response.actions if (why := questions.why_not(one))]
    done = {one.action.id: one.action for one in response.actions if one.action and not questions.why_not(one)}
    seen = [(done[run.id], view) for run, view in shown if run.id in done]
    on = f"{states.name(bulk)} on {runs.first_targets(seen, most=states.MOST_NAMED) or count(len(done), 'target')}"
    waits = undo_state.later_end if request else runs.awaits_approval
    waiting = sum(bool(waits(action)) for action in done.values())
    still = f" Still wait for approval: {waiting}." if waiting else ""
    if request:
        now, rows = _now_ends(seen)
        text = f"You {verb} more time for {on}{now}.{still}"
        return questions.with_reasons(text, "*The rest*", refused, rows=rows)
    then = _once_approved(bulk, len(done), waiting, link) if done and verb == "approved" else ""
    text = f"You {verb} {count(len(done), 'run')}: {on}.{still}{then}"
    return questions.with_reasons(text, "*The rest*", refused)


def _now_ends(seen: Listed) -> tuple[str, Sequence[str]]:
    """`: extended to today 15:44`, if the later ends of all of these were decided so; else each of them; mrkdwn."""
    ends = [(run, view, run.extensions[0]) for run, view in seen]
    now = states.said_of_all([undo_state.end_decided(end) for *_, end in ends])
    if now:
        return f": {now}", ()
    return "", more_time.rows(ends, ends) if ends else ()


def _once_approved(bulk: BulkCounts, number: int, waiting: int, link: str) -> str:
    """That this many runs start now, unless some are `waiting` for more approvals, and where they are undone."""
    starts = " It starts now." if number == 1 else " They start now."
    its_message = f"<{link}|its message>" if link else "its message"
    undo = "" if bulk.undo_after_minutes is None else f" *Undo all* will be on {its_message}."
    return f"{'' if waiting else starts}{undo}"
