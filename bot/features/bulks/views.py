"""A responder on several objects: the question before it runs, what became of it, and how far it is."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions, button_element, pages
from bot.block_kit.text import (
    DAY_AND_TIME,
    MESSAGE_TEXT_LIMIT,
    OPTION_LIMIT,
    clip,
    clip_apart,
    context,
    first_of,
    foreign,
    people,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import RedactedView, artifact_title, view_of_all
from bot.features.approvals import views as approvals
from bot.features.runs.views import questions, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.clock import MINUTE_MS
from core.common.words import count, some_of
from core.models import (
    OPEN_STATUSES,
    SEVERITY_NAMES,
    Action,
    Bulk,
    BulkAnswer,
    BulkCounts,
    BulkTarget,
    Extension,
    Measure,
    OfferedResponder,
    Person,
    Policy,
)
from core.models.inputs import NOTE_LIMIT

PAGE = 40  # objects in Show each
_URGENCY: Mapping[str | None, int] = {None: 0, "Failure": 1, "Waiting": 2, "InProgress": 2}  # first in Show each
INPUT_LIMIT = 100_000  # characters of one input as mrkdwn, more than the longest that core takes for several objects
DECISIONS = "Denied", "Approved"
NOT_RUN = {"denied", "expired", "cancelled"}  # how runs that wait for approval end without it
MOST_NAMED = 10  # objects in the direct message to who decides
TICKED = "decide"  # the fields of what somebody decides on
SAID_LIMIT = questions.LINES_LIMIT // 2  # characters
TARGET_LIMIT = 1000  # characters
REVIEW_TARGETS = 10  # of each object, so that a hundred fit into a modal

_Run = tuple[Action, RedactedView]
Listed = Sequence[_Run]
"""Runs of a bulk, each with what one person may see of what it is on."""
Refused = Sequence[tuple[BulkTarget, RedactedView]]
"""Its targets that core refused, likewise."""
Asked = tuple[Action, RedactedView, Extension | None]
"""Such a run, or more time for it."""


T = TypeVar("T")
_End = tuple[Action, RedactedView, Extension]


def by_request(listed: Iterable[tuple[Action, T]]) -> dict[str, list[tuple[Action, T, Extension]]]:
    """Those for which more time is, or was, asked for at once with others, by that request."""
    found = dict[str, list[tuple[Action, T, Extension]]]()
    for action, of_action in listed:
        for one in action.extensions:
            if one.request:
                found.setdefault(one.request, []).append((action, of_action, one))
    return found


def asked(listed: Iterable[tuple[Action, T]], request: str) -> Sequence[tuple[Action, T, Extension | None]]:
    """Those of these runs for which this request asks for more time; without one all."""
    return by_request(listed).get(request, ()) if request else [(run, of_run, None) for run, of_run in listed]


def waiting(listed: Iterable[tuple[Action, T]], request: str = "") -> list[tuple[Action, T, Extension | None]]:
    """Those that wait for approval, or whose later end does for which this request asks."""
    return [one for one in asked(listed, request) if _waits(one[0], one[2])]


def decided_since(listed: Listed, request: str, read: Container[str]) -> list[str]:
    """Who has decided on those of these runs, or with a `request` of these later ends, that were read; mrkdwn."""
    ends = [one for one in by_request(listed).get(request, ()) if one[2].id in read and one[2].outcome is not None]
    over = [one for one in listed if one[0].id in read and not runs.awaits_approval(one[0])]
    return _later_decisions(ends) if ends else _in_lines(_states(over))


def decided_in_part(listed: Sequence[tuple[Action, Any, Extension | None]]) -> list[str]:
    """How somebody has decided on some of these while others wait: `Approved`, once all that has run, or `Denied`."""
    decided = [(_decision(run, end), end is None and runs.is_open(run)) for run, _, end in listed]
    hows = DECISIONS if any(_waits(run, end) for run, _, end in listed) else ()
    return [how for how in hows if {is_open for by, is_open in decided if by.startswith(how)} == {False}]


def told_in_part(bulk: BulkCounts, listed: Sequence[Asked], how: Sequence[str], button: ButtonIds) -> Message:
    """Tells who asked who has decided so on which of these and why, and which still wait.

    Once none does, and no run is under way, another message tells all that.
    """
    more, lasts = ("more time for ", "") if listed[0][2] else ("", undo_state.lasts(bulk.undo_after_minutes))
    still = [(run, view) for run, view, end in listed if _waits(run, end)]
    if not still and (more or not open_runs(bulk)):
        what = f"{more}{_name(bulk)} on {count(len(listed), 'target')}"
        return notices.notice(f"{' and '.join(how)} in part: {what}, see below.")
    found = dict[tuple[str, str | None], list[_Run]]()
    for run, view, end in listed:
        why = end.message if end else runs.reason(run)
        found.setdefault((_decision(run, end), why), []).append((run, view))
    said = [
        _sentence(
            _on_phone(by, is_more_time=bool(more)),
            f"{_name(bulk)} on {_on(on)}{lasts}",
            _quoted(why, view_of_all([view for _, view in on])),
        ).rstrip(".")
        for (by, why), on in sorted(found.items(), key=lambda one: one[0][0].startswith("Approved"))
        if by.startswith(tuple(how))
    ]
    waits = f"{_on(still)} still {'waits' if len(still) == 1 else 'wait'}" if still else ""
    told = notices.notice(f"{'; '.join(filter(None, [*said, waits]))}.")
    if more or "Approved" not in how:
        return told
    by_how = [(run, view) for run, view, end in listed if _decision(run, end).startswith(tuple(how))]
    lines = [*by_state([one for one in by_how if approvals.sees_all(one[1].clearance, one[1].subject)]), waits]
    ends = actions(*_ends(bulk, button, has_again=False), show_each(bulk, button))
    return Message(told.text, (*sections(first_of([f"{head(bulk)}.", *filter(None, lines)], MOST_NAMED)), ends))


def _waits(action: Action, extension: Extension | None) -> bool:
    return extension.outcome is None if extension else runs.awaits_approval(action)


def _decision(action: Action, extension: Extension | None) -> str:
    return approvals.later_end_decision(action, extension) if extension else _outcome(action)


def progress(
    bulk: BulkCounts,
    named: Listed = (),
    refused: Refused = (),
    later: Mapping[str, Sequence[_End]] | None = None,
    *,
    button: ButtonIds,
    reader: Person | None = None,
    reminded: str = "",
) -> Message:
    """How far a bulk is. It says what became of each of `named` and `refused`, which its readers may see, and why.

    `later` are the requests for more time that wait. `reader` is who gets it in a direct message, which names the rest,
    too; of the one who asked for it nothing is asked.
    """
    is_own = reader is not None and reader.login == bulk.created_by
    is_for_requester = is_own or reader is None
    waiting = [one for one in named if runs.awaits_approval(one[0])]
    read = waiting if reader is not None else ()
    said = by_state([one for one in named if not runs.is_open(one[0])], refused)
    undone = f"⚠️ *{bulk.not_released} not undone*. *Show each* says why." if bulk.not_released else ""
    denied = more_time_denied([one for one in named if undo_state.later_end(one[0]) is None])  # else as it is asked for
    lines = [head(bulk), undone, *first_of([*said, *denied], MOST_NAMED)]
    blocks: list[Block] = sections(filter(None, lines))
    if bulk.awaiting:
        by_when = f" Answer by {slack_date(bulk.expires_at, DAY_AND_TIME)}." if bulk.expires_at else ""
        rows = [_row(action, view, runs.MAX_TARGETS) for action, view in read]
        on = f": {runs.distinct_targets(waiting, bulk.awaiting)}" if waiting else ". *Review* names each"
        asks = f"{approvals.closed_among(waiting)}⏳ *{_asked(bulk)}*{'' if rows else on}."
        before = [approvals.decided_before(run)[0] for run, _ in waiting if not rows]
        contained = [one for one in waiting if undo_state.contained(*one) and not rows]
        which = f" ({runs.distinct_targets(contained)})" if 0 < len(contained) < bulk.awaiting else ""
        note = _note(waiting if len(waiting) == bulk.awaiting else read)
        blocks.append(section(f"{asks}{by_when} {reminded}{note}{questions.warned(before, contained, on=which)}"))
        blocks += sections(first_of(rows, MOST_NAMED, bulk.awaiting)) if rows else []
        decide = runs.bulk_buttons(bulk.id, None, button, "Withdraw")
        blocks.append(actions(*(decide if is_for_requester else decide[:1])))
    for of_request in (later or {}).values():
        if ends := [one for one in of_request if one[2].outcome is None]:
            decide = runs.bulk_buttons(bulk.id, ends[0][2], button, "Deny", "Withdraw")
            needed = context(undo_state.needed([one[2] for one in ends]))
            blocks += [*_more_time_asked(ends, runs.MAX_TARGETS), needed, actions(*decide)]
    elements = _ends(bulk, button, has_again=is_for_requester)
    if bulk.retried_by:
        blocks.append(context(f"Asked for again as {bulk.retried_by}."))
    elif is_for_requester and bulk.free_at is not None and not open_runs(bulk):
        at = slack_date(bulk.free_at, DAY_AND_TIME)
        blocks += [context(f"*{one['text']['text']}* works from {at}, when the rate is free.") for one in elements[-1:]]
    push = _push(bulk, read, is_own=is_own) if bulk.awaiting else head(bulk, is_on_phone=True)
    whose = context(f"{_whose(bulk, named)} · {bulk.id}")
    return Message(push, (*blocks, whose, actions(*elements, show_each(bulk, button))))


def more_time_denied(listed: Listed) -> list[str]:
    """Who denied or withdrew more time, for which of these targets, and why; mrkdwn."""
    found = dict[str, list[_Run]]()
    for run, view in listed:
        found.setdefault(runs.more_time_denied(run, view), []).append((run, view))
    return [questions.with_said(f"• {runs.distinct_targets(on)}", said) for said, on in found.items() if said]


def show_each(bulk: BulkCounts, button: ButtonIds, of: str = "") -> dict[str, Any]:
    return button_element("Show each", ids.BULK_DETAILS, button(Intent("bulk_details", bulk.id)), of=of)


def _ends(bulk: BulkCounts, button: ButtonIds, *, has_again: bool) -> list[dict[str, Any]]:
    """Extend all of what ends by itself, Undo all of what can be undone; once it is over, what runs it again."""
    can_undo = bulk.undo_after_minutes is not None and bulk.timed + bulk.endless + bulk.not_released
    can_extend = bulk.timed > bulk.later_ends  # those that wait are decided in Review
    found = [("Extend all", ids.BULK_EXTEND, can_extend), ("Undo all", ids.BULK_UNDO, can_undo)]
    shown = [button_element(label, what, button(Intent(what, bulk.id))) for label, what, is_shown in found if is_shown]
    return [*shown, *(again_button(bulk, button) if has_again else ())]


def again_button(bulk: BulkCounts, button: ButtonIds) -> list[dict[str, Any]]:
    """Once it is over, what asks again for what was not done, or was undone by somebody."""
    has_failed = bool(bulk.refused or bulk.outcomes or bulk.undone_by)
    was_asked = bulk.approved_by or bulk.outcomes.keys() & NOT_RUN or not bulk.counts
    label, what = "Ask again" if was_asked else "Run again", button(Intent(ids.BULK_RETRY, bulk.id))
    can_repeat = has_failed and not open_runs(bulk) and not bulk.retried_by
    return [button_element(label, ids.BULK_RETRY, what, of=bulk.id)] if can_repeat else []


def undo_all_view(
    bulk: BulkCounts,
    in_force: Listed,
    rows: Mapping[str, str],
    policy: Policy,
    login: str,
    read: Container[str] | None = None,
) -> dict[str, Any]:
    """Asks `login` to undo these of its runs, with all that ends: the `rows` of each; `policy` is of what undoes them.

    The metadata has the runs, each with a digest of what is shown of it.
    """
    undo, number = in_force[0][0].undo, len(in_force)
    title = undo_state.title(undo) if undo is not None else ""
    after = f", after {count(policy.approval, 'approval')}" if policy.approval else ""
    hidden = bulk.timed + bulk.endless + bulk.not_released - number
    stays = f"It stays on {count(hidden, 'more target')} that you may not see." if hidden > 0 else ""
    approved_by = [one for action, _ in in_force if action.approval is not None for one in action.approval.approved_by]
    told = undo_state.hears(bulk.created_by, approved_by, login)
    is_asked = any(undo_state.later_end(action) is not None for action, _ in in_force)
    how = "*Withdraw all*" if login == bulk.created_by else "*Deny* in *Review*"
    later = f"On {count(bulk.awaiting, 'target')} it still waits and may start after this: {how}, on its message."
    ends_too = "More time is asked for: that request ends too." if is_asked else ""
    more = filter(None, [stays, ends_too, told])
    ends = section(f"🔓 *{foreign(title, names.NAME_LIMIT)}* runs on each{after}, and ends it there.")
    asks = [*notices.changed(rows.values(), read), *([section(f"⚠️ {later}")] if bulk.awaiting else ())]
    asks += [*_in_force_lines("Undo", bulk, in_force, rows.values()), ends]
    return modals.modal(
        names.in_view(f"Undo {bulk.title}", f" ({number})?"),
        [*asks, *questions.policy_words(policy), *map(context, more)],
        callback_id=ids.UNDO_ALL_VIEW,
        submit=names.in_view(title, f" ({number})"),
        metadata=json.dumps({"id": bulk.id, "runs": digests(rows)}, separators=(",", ":")),
        close="Leave it",
    )


def in_force_rows(in_force: Listed, measures: Sequence[Measure], own: Container[str], login: str) -> dict[str, str]:
    """By run its target, until when it is in force there, and what ends with it that is none of the bulk's `own`."""
    rows = dict[str, str]()
    for action, view in in_force:
        ends = list[str]()
        for one in measures:
            others = zip(one.actions, [*one.others, one], strict=True) if action.id in one.actions else ()
            on = undo_state.targets(one, view)
            ends += [undo_state.ended(run, on, login) for run_id, run in others if run_id not in own]
        line = f"{_target_line(action, view, REVIEW_TARGETS)} · {undo_state.in_force(action, view)}"
        rows[action.id] = questions.with_said(line, *ends)
    return rows


def digests(rows: Mapping[str, str]) -> dict[str, str]:
    """Tells by run whether the same was read of it."""
    return {run_id: notices.mark_of(row) for run_id, row in rows.items()}


def _in_force_lines(verb: str, bulk: BulkCounts, in_force: Listed, rows: Iterable[str]) -> list[Block]:
    """The question, whose runs they are, and the row of each."""
    asks = f"*{verb} {_name(bulk)} on {count(len(in_force), 'target')}?*"
    whose = f"*{person_name(bulk.created_by)}* asked for it{runs.approved_by(*(action for action, _ in in_force))}"
    moved = _said_of_all([undo_state.moved(action) for action, _ in in_force]) if len(in_force) > 1 else ""
    of_all = f". Each was{moved.removeprefix(',')}." if moved else ""
    return sections([f"{asks}\n{whose}{of_all}", *(row.replace(moved, "") for row in rows)])


def extend_all_view(
    bulk: BulkCounts, in_force: Listed, timed: Listed, policy: Policy, now_ms: int, able: Sequence[str] = ()
) -> dict[str, Any]:
    """Asks how much longer the `timed` are to last, which `able` may approve. The metadata has them."""
    said, endless = [runs.waiting_end(*one).strip() for one in timed], [one for one in in_force if one not in timed]
    of_all, rows = _said_of_all(said), in_force_rows(timed, (), (), "").values()
    left_out = f"Left out: {runs.distinct_targets(endless)}, which only *Undo* ends." if endless else ""
    below = [""] * len(timed) if of_all else said
    lines = [*map(questions.with_said, rows, below), of_all, left_out]
    about = _in_force_lines("Extend", bulk, timed, filter(None, lines))
    shown = undos.longer_view("Extend all", about, [action for action, _ in timed], policy, now_ms, able)
    metadata = json.dumps({"id": bulk.id, "runs": [action.id for action, _ in timed]})
    return {**shown, "callback_id": ids.EXTEND_ALL_VIEW, "private_metadata": metadata}


def with_an_end(in_force: Listed, measures: Sequence[Measure] = ()) -> Listed:
    """Those that end by themselves; not one whose targets another run keeps with no end, by these measures."""
    end = {id_: one.until for one in sorted(measures, key=lambda one: one.until or 0) for id_ in one.actions}
    return [one for one in in_force if (undo := one[0].undo) and undo.at is not None and end.get(one[0].id, True)]


def changed_all(
    verb: str, changed: Listed, waiting: int, refused: Sequence[tuple[_Run, str]], needs: str = ""
) -> Message:
    """On which targets runs of a bulk were `changed`, how many of these wait and for what, and why others were not."""
    number, named = len(changed) - waiting, runs.distinct_targets(changed)
    of_some = f"On {named}." if number and waiting else ""
    on, on_waiting = [named if named and not of_some else count(one, "target") for one in (number, waiting)]
    asked = f"Asked for on {on_waiting}{needs or ': it waits for approval.'}" if waiting else ""
    done = f"{verb} on {on}." if number or not waiting else ""
    why_not = [(questions.named(view, runs.targets(run, view)), view.inputs(why)) for (run, view), why in refused]
    return questions.with_reasons(" ".join(filter(None, [done, asked, of_some])), "*Refused*", why_not)


def ended(bulk: BulkCounts, named: Listed = ()) -> Message:
    """The one message in the thread, once all of its runs have ended."""
    whose = f" · {_whose(bulk, named)}."
    return Message(f"{head(bulk, is_on_phone=True)}{whose}", (section(f"{head(bulk)}{whose}"),))


def ended_for(
    bulk: BulkCounts, listed: Listed, refused: Refused, undone: str, reader: str, button: ButtonIds
) -> Message:
    """That to who asked for them: who decided, on which targets, for how long; or who has `undone` some; mrkdwn.

    A `reader` who approved them hears only that, and asks for nothing again.
    """
    seen = [(run, view) for run, view in listed if approvals.sees_all(view.clearance, view.subject)]
    states = _states(seen, refused, is_on_phone=True)
    what = f"{_asked(bulk, _targets(bulk, bulk.total), seen)}: {_result(bulk, is_on_phone=True)}"
    text = f"{_name(bulk)} on {what}."
    if states:
        (_, by, why, on), *others = states
        is_all = not others and len(seen) == bulk.total
        news = _sentence(by, f"{_name(bulk)} on {_asked(bulk, on, seen) if is_all else on}", why)
        rest = [f"In all, {what}.", *(_sentence(by, on, why) for _, by, why, on in others)]
        text = news if is_all else " ".join([news, *rest])
        if is_all and "expired" in bulk.outcomes:
            text = f"Nobody answered: {_name(bulk)} on {on}{undo_state.lasts(bulk.undo_after_minutes)} was not run."
    is_said = bulk.total in bulk.outcomes.values()  # by the text, which names no time then
    lines = [text] if is_said else [f"{head(bulk)}.", *first_of(by_state(seen, refused), MOST_NAMED)]
    buttons = actions(*_ends(bulk, button, has_again=reader == bulk.created_by), show_each(bulk, button))
    return Message(undone or clip(text, MESSAGE_TEXT_LIMIT), (*sections(lines), buttons))


def no_longer_waits(listed: Listed, request: str = "") -> str:
    """Who decided on these runs, or with a `request` on more time for them, or that nobody did in time; mrkdwn."""
    ends = [one for one in by_request(listed).get(request, ()) if one[2].outcome is not None]
    over = [] if request else [one for one in listed if not runs.awaits_approval(one[0])]
    expired_at = max((run.end_date or 0 for run, _ in over if run.outcome == "expired"), default=0)
    since = f", since {slack_date(expired_at)}" if expired_at else ""
    said = _later_decisions(ends) if ends else by_state(over)
    return clip("\n".join([f"Nothing of it waits any more{since}.", *said]), questions.LINES_LIMIT)


def _sentence(by: str, on: str, why: str) -> str:
    return f"{by}: {on}{why and f' · {why}'}".rstrip(".") + "."


def _quoted(reason: str | None, view: RedactedView) -> str:
    return runs.quoted((reason or "").rstrip("."), approvals.REASON_LIMIT, view)


def undone_by(bulk: BulkCounts, listed: Listed, reader: str) -> str:
    """Who else than `reader` and its requester undid which of these runs, once none is being undone; mrkdwn."""
    states = [action.undo.status for action, _ in listed if action.undo is not None]
    is_over = "running" not in states and states.count("undone") <= bulk.undone  # else the next event tells it
    ended = [one for one in listed if one[0].undone_by not in ("", reader, bulk.created_by)]
    who = people(action.undone_by for action, _ in ended)
    said = f"{who} undid {_name(bulk)} on {runs.first_targets(ended)}"
    return f"{clip(said, SAID_LIMIT)}." if ended and is_over else ""


def by_state(listed: Listed, refused: Refused = ()) -> list[str]:
    """`🔒 Approved by lea, in force until 9:31: hostname LT-0901.`: each state, with its targets; mrkdwn."""
    states = _states(listed, refused)
    return ["\n>".join(filter(None, [f"{mark} {now}: {on}.", why])) for mark, now, why, on in states]


def _in_lines(states: Iterable[Sequence[str]]) -> list[str]:
    """`🚫 Denied by ben: hostname LT-0901 · "known tool"`: each state in a line; mrkdwn."""
    return [f"{mark} {now}: {on}" + (f' · "{why}"' if why else "") for mark, now, why, on in states]


def _states(
    listed: Listed, refused: Refused = (), *, is_on_phone: bool = False, has_times: bool = False
) -> list[tuple[str, ...]]:
    """The mark and words of each state that these runs are in, why, and their targets; mrkdwn.

    What was denied or failed comes first, then what ends first; ends that read alike are one. Last what was `refused`.
    A phone formats no time, and shows first what failed, then what was decided last. `has_times`: also when each ended.
    """
    found, first, end = dict[tuple[str, str, str], list[int]](), ("denied", "failed"), 0
    ended = [(runs.state_of(run) in first, undo_state.ends_at(run), n) for n, (run, _) in enumerate(listed)]
    newest = sorted(ended, key=lambda one: (listed[one[2]][0].outcome != "failed", -(listed[one[2]][0].end_date or 0)))
    for is_first, at, n in newest if is_on_phone else sorted(ended, key=lambda one: (not one[0], one[1] or 0)):
        action, view = listed[n]
        now, why = _outcome(action), runs.result_text(action, view, approvals.REASON_LIMIT) if is_first else ""
        if is_on_phone and action.outcome == "denied":
            now, why = _on_phone(now), _quoted(runs.reason(action), view)
        end = at if at and at // MINUTE_MS > end // MINUTE_MS else end
        until = "" if at is None or is_on_phone else f" until {slack_date(end)}" if at else " with no end"
        until += f", {slack_date(_ended_at(action))}" if has_times else ""
        found.setdefault((runs.mark(action, view), f"{now}{until}", why), []).append(n)
    states = [(*state, runs.distinct_targets([listed[n] for n in sorted(on)])) for state, on in found.items()]
    why_not = dict[str, list[str]]()
    for target, view in refused:
        if approvals.sees_all(view.clearance, view.subject):
            why = questions.reason_shown(view.inputs(target.message or ""))
            why_not.setdefault(why, []).append(_asked_for(target, view) or runs.on_what(view.subject, view))
    return [*states, *(("🚫", "Refused", why, some_of(on, runs.MAX_TARGETS)) for why, on in why_not.items())]


def _ended_at(action: Action) -> int:
    """The minute (ms) in which an ended run was undone, or else ended."""
    undone_at = action.measure.ended_at if action.measure is not None else None
    return (undone_at or action.end_date or 0) // MINUTE_MS * MINUTE_MS


def _asked_for(target: BulkTarget, view: RedactedView) -> str:
    """`hostname LT-0301`: what a target without a run names; mrkdwn."""
    named = [one for one in view.artifacts() if {one.id, one.data}.intersection(target.target)]
    return some_of([foreign(artifact_title(one), runs.TARGET_LIMIT) for one in named], runs.MAX_TARGETS)


def _outcome(action: Action) -> str:
    """`Approved by ben, in force`, `Approved by ben, failed`, `Undone by mia`, `Not approved in time`."""
    now = undo_state.in_short(action) or runs.state(action)
    if action.approval is None or runs.missing_approvals(action):
        return f"{now[0].upper()}{now[1:]}"
    return f"{approvals.decision(action).rstrip('.')}, {now}"


def ask(bulk: BulkCounts, who: str, *, is_broadcast: bool, is_later_end: bool = False) -> Message:
    """Mentions in the thread those who are asked to decide."""
    push = f"{approvals.level(bulk.severity)}: more time for {_name(bulk)}?" if is_later_end else _push(bulk)
    what = f"More time for *{_name(bulk)}*" if is_later_end else f"*{_name(bulk)}* on {_asked(bulk)}"
    review = "Its button" if is_later_end else "*Review*"
    return Message(push, (section(f"{who} {what}. {review} above shows each.".strip()),), is_broadcast)


def more_time(bulk: BulkCounts, of_request: Sequence[_End], person: Person | None, *, button: ButtonIds) -> Message:
    """What asks `person` for more time for several runs of a bulk, or tells them or a thread how that was decided.

    `of_request` are all of that request, each with what its readers may see.
    """
    bulk = bulk.model_copy(update={"severity": None})  # which is that of other runs, those that wait for approval
    ends = [one for one in of_request if one[2].outcome is None] or of_request
    if not ends:
        return notices.notice(f"*{_name(bulk)}*: more time was asked for again later.")
    extension = ends[0][2]
    seen = [one for one in ends if approvals.sees_all(one[1].clearance, one[1].subject)]
    keep = f"keep {_name(bulk)} on {count(len(ends), 'target')} {undo_state.longer(extension)}"
    if extension.outcome is None:
        asked, before = f"Asked by {person_name(extension.asked_by)}", _decided_before(ends)
        text = _asks_in_short(bulk, [one[:2] for one in seen], len(ends), keep, asked, before, _note((), ends))
        said = context(undo_state.needed([one[2] for one in ends]))
    else:
        said = section(clip("\n".join(_later_decisions(ends)), questions.LINES_LIMIT))
        decided = " ".join(_later_decisions(ends, is_on_phone=True))
        text = f"{decided} That was to {keep}{_up_to(bulk, seen)}, asked by {person_name(extension.asked_by)}"
    blocks = [*_more_time_asked(ends, MOST_NAMED), said]
    able = [run for run, view, end in ends if person and approvals.may_decide(run, person, view.subject, end)]
    if able and extension.outcome is None:
        blocks.append(actions(*runs.bulk_buttons(bulk.id, extension, button, "Deny")))
    return Message(clip(text, MESSAGE_TEXT_LIMIT), tuple(blocks))


def _more_time_asked(ends: Sequence[_End], most: int) -> list[Block]:
    """Who asks for more time and why, and `most` of the targets that may be seen, until when each is to be kept."""
    seen = [one for one in ends if approvals.sees_all(one[1].clearance, one[1].subject)]
    asks, *rows = _later_rows(ends, seen)
    return sections([f"{asks}{_note((), ends)}", *first_of(rows, most, len(ends))])


def _later_decisions(ends: Sequence[_End], *, is_on_phone: bool = False) -> list[str]:
    """Who decided on these requests for more time, on which and why, denials first; mrkdwn."""
    found, of_all = dict[tuple[str, str], list[_Run]](), view_of_all([view for _, view, _ in ends])
    for run, view, end in sorted(ends, key=lambda one: one[2].outcome != "denied"):
        by, why = approvals.later_end_decision(run, end), runs.why(end.message, of_all, approvals.REASON_LIMIT)
        found.setdefault((_on_phone(by, is_more_time=True) if is_on_phone else by, why), []).append((run, view))
    return [f"{by}: {_on(on)}{why}." for (by, why), on in found.items()]


def _on_phone(decided: str, *, is_more_time: bool = False) -> str:
    """`Denied by lea, not run`, or `More time denied by lea, it ends as before`, which formats no time; mrkdwn."""
    then = (", it ends as before" if is_more_time else ", not run") if decided.startswith("Denied") else ""
    is_named = is_more_time and decided.startswith((*DECISIONS, "Withdrawn"))
    return f"More time {decided[0].lower()}{decided[1:]}{then}" if is_named else f"{decided}{then}"


def _decided_before(asked: Sequence[tuple[Action, RedactedView, Action | Extension]]) -> str:
    """Who denied or undid before what is asked for, and on which; mrkdwn."""
    found = [(run, view, *approvals.decided_before(of)) for run, view, of in asked]
    of_how = {how: [(run, view, by if so == how else ()) for run, view, so, by in found] for how in runs.DECIDED}
    return "".join(_before(how, each) for how, each in of_how.items())


def _before(how: str, asked: Sequence[tuple[Action, RedactedView, Sequence[str]]]) -> str:
    """Who decided so before against what is asked for, or contains its target, and on which unless on all; mrkdwn."""
    found = [one for one in asked if one[2]]
    which = f" ({_on([one[:2] for one in found])})" if len(found) < len(asked) else ""
    return approvals.said_before(how, [one for *_, by in found for one in by], which)


def _later_rows(ends: Sequence[_End], seen: Sequence[_End]) -> list[str]:
    """Who asks to keep what, and until when; each target that was `seen`, with its end now and then; mrkdwn."""
    action, _, extension = ends[0]
    is_asked = extension.outcome is None
    closed = approvals.closed_among([one[:2] for one in ends]) if is_asked else ""
    before = _said_of_all([runs.denied_before(end, view) if is_asked else "" for _, view, end in ends])
    rows = [f"{closed}{before}{approvals.asks_to_keep(action, extension, len(ends))}"]
    for run, view, end in seen:
        denied = "" if before or not is_asked else runs.denied_before(end, view)
        then = f"; then *{undo_state.until(end.at, end.asked_at)}*" if is_asked else ""
        decided = undo_state.end_decided(end)
        now = f"its {decided}" if decided else f"now it {undo_state.ends(run)}"
        now = f" · {now}" if undo_state.is_in_force(run) else undo_state.summary(run, view)
        line = f"{_target_line(run, view, REVIEW_TARGETS)}{now}{then}"
        rows.append(questions.with_said(line, approvals.closed(view, end.asked_at), denied))
    return rows


def _said_of_all(texts: Sequence[str]) -> str:
    """What was said of each, if all of them show the same of it."""
    return texts[0] if len(set(texts)) == 1 else ""


def _push(bulk: BulkCounts, waiting: Listed = (), *, is_own: bool = False) -> str:
    """What a locked phone shows of a bulk that waits for approval."""
    if is_own:
        on = runs.distinct_targets(waiting, bulk.awaiting) if waiting else ""
        return clip(f"Waits for approval: {_name(bulk)} on {_asked(bulk, on)}", MESSAGE_TEXT_LIMIT)
    before = _decided_before([(*one, one[0]) for one in waiting])
    contained = [(*one, [measure.created_by for measure in undo_state.contained(*one)]) for one in waiting]
    before += _before("contained", contained)
    asked = f"Asked {'again ' if bulk.retries else ''}by {person_name(bulk.created_by)}"
    deed = f"{_name(bulk)} on {_targets(bulk, bulk.awaiting)}{undo_state.lasts(bulk.undo_after_minutes)}"
    return _asks_in_short(bulk, waiting, bulk.awaiting, deed, asked, before, _note(waiting))


def _asks_in_short(bulk: BulkCounts, seen: Listed, total: int, deed: str, asked: str, before: str, why: str) -> str:
    on = f": {runs.distinct_targets(seen, total)}" if seen else ""
    happened = f"{approvals.closed_among(seen, is_on_phone=True)}{before}"
    return approvals.asks_in_short(_severity(bulk, seen), f"{deed}{on}", asked, happened, why)


def _asked(bulk: BulkCounts, on: str = "", seen: Listed = ()) -> str:
    """`4 targets for 1 hour · up to CRITICAL`, or those that it is `on`."""
    return f"{on or _targets(bulk, bulk.awaiting)}{undo_state.lasts(bulk.undo_after_minutes)}{_up_to(bulk, seen)}"


def _up_to(bulk: BulkCounts, seen: Sequence[tuple[Any, ...]]) -> str:
    severity, is_one = _severity(bulk, seen), max(len(seen), bulk.awaiting or bulk.total) == 1
    return f" · {'' if is_one else 'up to '}{SEVERITY_NAMES[severity].upper()}" if severity else ""


def _on(listed: Listed) -> str:
    """The targets of those of these runs that may be seen, or else how many they are; mrkdwn."""
    seen = [one for one in listed if approvals.sees_all(one[1].clearance, one[1].subject)]
    return runs.distinct_targets(seen, len(listed)) if seen else count(len(listed), "target")


def _severity(bulk: BulkCounts, seen: Sequence[tuple[Any, ...]]) -> int:
    return bulk.severity or max((view.subject.severity for _, view, *_ in seen), default=0)


def late(bulk: BulkCounts) -> Message:
    """Tells the thread that core could not undo some of its runs, or that it has done so since."""
    if bulk.not_released:
        what = f"{bulk.not_released} of {bulk.total} were to be undone and were not. They may still be in force."
        return notices.notice(f"⚠️ *{_name(bulk)}*: {what} *Show each* says why, and has *Undo now*.")
    return notices.notice(f"*{_name(bulk)}*: all that was to be undone is.")


def _name(bulk: BulkCounts) -> str:
    return foreign(bulk.title, names.NAME_LIMIT)


def head(bulk: BulkCounts, *, is_on_phone: bool = False) -> str:
    sign = {bulk.timed + bulk.endless: "🔒 ", bulk.undone: "🔓 "}.get(bulk.total, "")  # only where that is so of all
    return f"{sign}*{_name(bulk)}* on {_targets(bulk, bulk.total)}: {_result(bulk, is_on_phone=is_on_phone)}"


def _targets(bulk: BulkCounts, number: int) -> str:
    """`4 targets`, or of all of a bulk `4 targets in 6 alerts`, where several alerts have the same."""
    alerts = f" in {count(bulk.objects, 'alert')}" if number == bulk.total < bulk.objects else ""
    return f"{count(number, 'target')}{alerts}"


def _whose(bulk: BulkCounts, named: Listed) -> str:
    """`asked by anna · "third wave", approved by lea and ben, more time by mia`; mrkdwn.

    What waits for approval says itself why it is asked for; nobody reads that who may not see all of them.
    """
    note = _note(named) if not bulk.awaiting and len(named) == bulk.total - bulk.refused else ""
    approved = f", approved by {_people(bulk.approved_by)}" if bulk.approved_by else ""
    return f"asked by {person_name(bulk.created_by)}{note}{approved}{undo_state.more_time_by(run for run, _ in named)}"


def _people(logins: Sequence[str]) -> str:
    return foreign(notices.either(logins, "and"), names.NAME_LIMIT)


def _result(bulk: BulkCounts, *, is_on_phone: bool) -> str:
    """`4 wait for approval, 2 refused`, `3 under way, 12 of 25 succeeded, 1 failed`, `3 in force until 14:30`.

    That they have succeeded goes without saying where the rest says more of each. A phone formats no time.
    """
    succeeded, running = bulk.counts.get("Success", 0), under_way(bulk)
    waits = f"{bulk.awaiting} {'waits' if bulk.awaiting == 1 else 'wait'} for approval" if bulk.awaiting else ""
    parts = [waits, f"{running} under way" if running else ""]
    are_said = 0 < bulk.timed + bulk.endless + bulk.undoing + bulk.undone == succeeded
    has_run = succeeded or not (open_runs(bulk) or {*bulk.outcomes} <= NOT_RUN)
    if has_run and not are_said:
        parts.append(f"{succeeded} of {bulk.total} succeeded")
    elif not open_runs(bulk) and not succeeded:
        parts.append("nothing was run")
    at = "" if bulk.undone_at is None or is_on_phone else f", {slack_date(bulk.undone_at)}"
    by = f" by {_people(bulk.undone_by)}" if bulk.undone_by else ""
    others = [
        *((runs.WORDS.get(outcome, outcome), number) for outcome, number in bulk.outcomes.items()),
        ("refused", bulk.refused),
        (f"in force{'' if is_on_phone else _until(bulk.first_release_at or 0, bulk.release_at or 0)}", bulk.timed),
        ("in force with no end", bulk.endless),
        ("being undone", bulk.undoing),
        (f"undone{by}{at}", bulk.undone - bulk.by_itself),
        ("ended on time", bulk.by_itself),
    ]
    return ", ".join(filter(None, [*parts, *(f"{number} {what}" for what, number in others if number)]))


def _until(*ends_at: int) -> str:
    """` until 14:30`, or where the ends differ ` until 14:30 – 14:35`; mrkdwn."""
    first, last = min(ends_at), max(ends_at)
    is_one = first // MINUTE_MS == last // MINUTE_MS
    return f" until {slack_date(first)}{'' if is_one else f' – {slack_date(last)}'}"


# --- each of its objects --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownTarget:
    """A target of a bulk that a person may see, with its action."""

    target: BulkTarget
    view: RedactedView
    action: Action | None = None
    in_force: Sequence[Measure] = ()  # by others, where this did not run


def still_in_force(action: Action | None, measures: Sequence[Measure]) -> Sequence[Measure]:
    """What of these is in force on the target of a run that did not run."""
    if action is None or action.undo is None or action.outcome not in NOT_RUN:
        return ()
    on, undone_by = {(one.kind, one.data) for one in action.target or ()}, action.undo.responder
    alike = [one for one in measures if one.undo is not None and one.undo.responder == undone_by]
    return [one for one in alike if not on.isdisjoint((target.kind, target.data) for target in one.target or ())]


def details(bulk: Bulk, shown: Sequence[ShownTarget], start: int, login: str, button: ButtonIds) -> Message:
    """What became of each object that `login` may see, from number `start` on, and how it can be undone.

    First what was refused or failed.
    """
    ordered = sorted(shown, key=lambda target: _URGENCY.get(target.target.action_status, 3))
    of_runs = [(one.action, one.view) for one in shown if one.action]
    note = _note(of_runs) if len(of_runs) == bulk.total - bulk.refused else ""
    blocks: list[Block] = [section(f"{head(bulk, is_on_phone=True)}{note}")]  # each says itself until when
    lines: list[str] = []
    for target in ordered[start : start + PAGE]:
        undo_buttons = undos.buttons(target.action, target.view, button) if target.action is not None else []
        if undo_buttons:  # which belong to this one alone
            blocks += [*sections(lines), section(_line(target, bulk)), actions(*undo_buttons)]
        lines = [] if undo_buttons else [*lines, _line(target, bulk)]
    blocks += sections(lines)
    if hidden := bulk.total - len(shown):
        blocks.append(context(f"{hidden} more that you may not see, or that are gone."))
    others = pages(ids.BULK_DETAILS, Intent("bulk_details", bulk.id), start, PAGE, len(ordered), button)
    withdraw = runs.bulk_buttons(bulk.id, None, button, "Withdraw")[1:]
    if login == bulk.created_by:
        others += withdraw if bulk.awaiting else again_button(bulk, button)
    blocks += [actions(*others)] if others else []
    return Message(f"{_name(bulk)}: {count(len(shown), 'target')}", tuple(blocks))


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
    over: Sequence[str] = (),
) -> dict[str, Any]:
    """Asks to approve what waits of it: each object first, then how long it lasts, what it does and the inputs.

    They decide on those that they tick. With a `request` to let it last longer, as that asks.
    `hidden` others they may not see, and don't decide on; `why_not`: why they decide on none, where the `deed` of who
    asked is *Withdraw*. The metadata has a digest of what is shown, and the runs, each with a mark of its row; `read`
    has the marks that were read before, and `over` says what no longer waits of these runs.
    """
    waits, ends = [action for action, _ in waiting], by_request(waiting).get(request, [])
    total, decided_on = len(waits), [end for *_, end in ends] or waits
    ids_, before = [one.id for one in decided_on], [approvals.decided_before(one)[0] for one in decided_on]
    not_ticked = [id_ for id_, how in zip(ids_, before, strict=True) if how]
    label, has_ticks = undo_state.keep(ends[0][2]) if ends else bulk.title, total > 1 and not why_not
    short = "Keep longer" if ends and ends[0][2].at is not None else label
    title = names.in_view(label, "?") if total < 2 else names.in_view(short, f" ({total})?" if why_not else "?")
    of_ticked = names.in_view("No end" if ends and short == label else short, " (ticked)")  # Slack changes no button
    asks, *rows = _asks("", bulk, waiting, ends, now_ms) if waits else [f"*{_name(bulk)}*"]
    each, marks = rows, digests(dict(zip(ids_, rows, strict=True)))
    now = [at for run, *_ in ends if run.undo is not None and (at := run.undo.at) is not None]
    asks += f", now{_until(*now)}" if now and has_ticks else ""
    asks = asks if ends or bulk.title in title else f"*{_name(bulk)}?*\n{asks}"
    needs = why_not or (undo_state.needed([one[2] for one in ends]) if ends else approvals.decision_on_all(waits))
    contained = [one for one in waiting if undo_state.contained(*one) and not ends]
    ticked = f": *{total - len(not_ticked)} of {total} ticked* at first" if has_ticks else ""
    asks += questions.warned(before, contained, ticked) + _note(waiting, ends)
    able = approvals.named_approvers(responder.policy if responder is not None else None)
    who = [context(able)] if able else []
    shown, below = [section(asks), *who, *sections(rows)], list[Block]()
    if has_ticks:
        options, rows = _options(ids_, waiting, rows, [end for *_, end in ends])
        ticks = modals.ticked_fields(TICKED, "Decide only on the ticked; the rest goes on waiting", options, not_ticked)
        shown, below = [section(asks), *who, *ticks], sections(rows)
    said = [undo_state.ONLY_UNDO] if ends and ends[0][2].at is None else []
    if waits and not ends:
        lines = approvals.input_lines(waits[0], view_of_all([view for _, view in waiting]), INPUT_LIMIT)
        starts = "" if why_not else approvals.starts(waits)
        said = [f"{starts} {undo_state.planned(*waiting, is_bulk=True)}".lstrip(), *lines]
    below += [
        *approvals.effect(None if ends else responder),
        *map(section, notices.parts("\n".join(said)) if said else ()),
    ]
    others = f"{count(hidden, 'more target')} that you may not see: somebody else decides." if hidden else ""
    below += [context(others)] if others else []
    deny = f"Withdraw all {total}" if why_not else "Deny the ticked" if total > 1 else "Deny"
    decide = button_element(deny, ids.BULK_DENY, button(Intent("bulk_deny", bulk.id, request)))
    more = [actions(decide)] if waits and (not why_not or deed == "Withdraw") else []
    about = {"id": bulk.id, "runs": marks, "request": request, "shown": approvals.digest([*shown, *below])}
    head = section(f"{asks}\n{why_not}" if why_not else f"{asks} · {needs}")
    blocks = [*notices.changed(each, read, over), head, *shown[1:], *more, *below]
    submit = "" if why_not else of_ticked if has_ticks else names.in_view(label)
    metadata = json.dumps(about, separators=(",", ":"))  # a hundred runs have room
    return modals.modal(
        title, blocks, callback_id=ids.BULK_APPROVE_VIEW, submit=submit, metadata=metadata, close="Not now"
    )


def deny_view(bulk: BulkCounts, waiting: Listed, request: str = "", deed: str = "Deny") -> dict[str, Any]:
    """Asks why these runs of it are denied, or that they last longer; who asked withdraws them without a reason."""
    ends = by_request(waiting).get(request, [])
    asked_by, ids_, what = bulk.created_by, [action.id for action, _ in waiting], count(len(waiting), "run")
    title, submit = f"{deed} {what}?", f"{deed} {what}"
    if ends:
        asked_by, ids_ = ends[0][2].asked_by, [end.id for *_, end in ends]
        title, submit = f"{deed} more time?", f"{deed} more time ({len(ends)})"
    about = {"id": bulk.id, "runs": ids_, "request": request, "deed": deed}
    question, *rows = _asks(f"{deed} ", bulk, waiting, ends)
    asks = [section(question), *sections(rows)]
    reader = asked_by if deed == "Deny" else ""
    return approvals.deny_form(title, asks, reader, about, callback_id=ids.BULK_DENY_VIEW, submit=submit)


def _note(waiting: Listed, ends: Sequence[_End] = ()) -> str:
    """` · "ransomware"`: why these runs are asked for, or the `ends` of theirs, where it is the same of all; mrkdwn."""
    if ends:
        why = _said_of_all([runs.quoted(end.note or "", NOTE_LIMIT, view) for _, view, end in ends])
        return f" · {why}" if why else ""
    return approvals.note(waiting[0][0], view_of_all([view for _, view in waiting])) if waiting else ""


def _asks(verb: str, bulk: BulkCounts, waiting: Listed, ends: Sequence[_End], now_ms: int | None = None) -> list[str]:
    """Who asks for what; each target, whether that is closed, and what is in force there already.

    With `ends` what is in force, until when, and until when it is to be.
    """
    if ends:
        stays = f"it {undo_state.ends(ends[0][0])}" if len(ends) == 1 else "each ends as it does now"
        asks, *rows = _later_rows(ends, ends)
        return [f"{asks}{_note((), ends)}\nIf you {verb.lower()}it, {stays}." if verb else asks, *rows]
    on, lasts = f" on {_targets(bulk, len(waiting))}", undo_state.for_how_long(waiting[0][0]) if waiting else ""
    by = f"*{person_name(bulk.created_by)}* asks{' again' if bulk.retries else ''}"
    rest = bulk.awaiting - len(waiting)
    stays = f" It goes on waiting for {count(rest, 'other')}." if rest > 0 else ""
    then = f"\nIf you {verb.lower()}it, it will not run: nothing changes there.{stays}"
    asks = f"*{verb}{_name(bulk)}{on}?*\n{by}{_note(waiting)}{then}" if verb else f"{by} for it{on}{lasts}"
    return [f"{approvals.closed_among(waiting)}{asks}", *(_row(*one, REVIEW_TARGETS, now_ms) for one in waiting)]


def _options(
    ids_: Sequence[str], waiting: Listed, rows: Sequence[str], ends: Sequence[Extension] = ()
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The options of these targets, with what their alerts say of them, and what of their rows has no room there.

    With `ends` each has its new end, as the question says when they end now.
    """
    says = [[undo_state.in_option(undo_state.until(end.at, end.asked_at))] for end in ends]
    options, left = list[tuple[str, str, str]](), list[str]()
    all_called = clip_apart([runs.called_in_plain(*one, TARGET_LIMIT) for one in waiting], OPTION_LIMIT)
    own = ("    ↳ ⚠️", "    ↳ also for ", *(["    ↳ 🚫"] if ends else []))
    says = says or [approvals.warnings(*one) for one in waiting]
    for id_, one, row, name, warnings in zip(ids_, waiting, rows, all_called, says, strict=True):
        text, below, has_room = runs.in_option(*one, name, warnings)
        said = row.removeprefix(_target_line(*one, REVIEW_TARGETS)) if has_room else row
        says_all = warnings[: 1 if one[0].decided_before else 2]
        if has_room and any(what in below for what in says_all):
            said = "".join(f"\n{line}" for line in said.splitlines() if line.startswith(own))
        options.append((id_, text, below))
        called = f"• {runs.distinct_targets([one])} ({one[1].subject.root_id or one[1].subject.id})"
        left.append(f"{called}{said}" if has_room and said else said)
    return options, [*filter(None, left)]


def _row(action: Action, view: RedactedView, most: int, now_ms: int | None = None) -> str:
    said = approvals.happened(action, view), *approvals.already(action, view, now_ms)
    return questions.with_said(_target_line(action, view, most), undo_state.also_for(action.also_for)[2:], *said)


def _target_line(action: Action, view: RedactedView, most: int) -> str:
    acts_on = ", ".join(runs.target_lines(action.target or (), view, most))
    return f"• {questions.named(view, acts_on or approvals.observables_in_short(action, view))}"


def decided(bulk: BulkCounts, response: BulkAnswer, verb: str, shown: Listed, request: str) -> Message:
    """What became of a decision on all of these, or with a `request` on their later ends."""
    refused = [(entry.object_id, questions.why_not(entry)) for entry in response.actions if questions.why_not(entry)]
    done = {one.action.id: one.action for one in response.actions if one.action and not questions.why_not(one)}
    seen = [(done[run.id], view) for run, view in shown if run.id in done]
    ends = [(run, view, run.extensions[0]) for run, view in seen if request]
    what = "more time for" if request else f"{count(len(done), 'run')}:"
    on = runs.first_targets(seen, most=MOST_NAMED) or count(len(done), "target")
    text = f"You {verb} {what} {_name(bulk)} on {on}."
    waits = undo_state.later_end if request else runs.awaits_approval
    waiting = sum(bool(waits(action)) for action in done.values())
    text += f" Still wait for approval: {waiting}." if waiting else ""
    if done and verb == "approved" and not request:
        undo = "" if bulk.undo_after_minutes is None else " *Undo all* will be on its message."
        starts = " It starts now." if len(done) == 1 else " They start now."
        text += f"{'' if waiting else starts}{undo}"
    return questions.with_reasons(text, "*Not decided*", refused, rows=_later_rows(ends, ends)[1:] if ends else ())


def open_runs(bulk: BulkCounts) -> int:
    """How many of its runs have not ended."""
    return sum(bulk.counts.get(status, 0) for status in OPEN_STATUSES)


def under_way(bulk: BulkCounts) -> int:
    return open_runs(bulk) - bulk.awaiting


def ended_before(shown: Sequence[ShownTarget]) -> Block:
    """How what a form asks for again ended, when and why, and what it leaves out, since that was done; mrkdwn."""
    again = [(one.action, one.view) for one in shown if one.action and one.target.has_failed]
    refused = [(one.target, one.view) for one in shown if one.action is None and one.target.has_failed]
    done = [(one.action, one.view) for one in shown if one.action and not one.target.has_failed]
    left = [(mark, f"{now}, not asked again", "", on) for mark, now, _, on in _states(done)]
    said = [*_in_lines(_states(again, refused, has_times=True)), *_in_lines(left)]
    return context(clip("\n".join(said), SAID_LIMIT))


def _line(shown: ShownTarget, bulk: Bulk) -> str:
    target, view, action = shown.target, shown.view, shown.action
    if action is None:
        on = f"• {questions.named(view, _asked_for(target, view))}"
        state = f"refused {slack_date(bulk.created_at)}: {questions.reason_shown(view.text(target.message or ''))}"
    else:
        on = _target_line(action, view, runs.MAX_TARGETS)
        why = runs.result_text(action, view) if target.outcome in ("failed", "denied") else ""
        now = f"{undo_state.summary(action, view)}{runs.waiting_end(action, view)}"
        still = "".join(f"; still contained {undo_state.until_by(one)}" for one in shown.in_force)
        state = f"{runs.state(action, view)}{f': {why}' if why else ''}{still}{now}"
    return questions.with_said(*f"{on} · {state}".splitlines())
