"""What a bulk is and what became of its runs, in words: its name and counts, and each state with its targets."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bot.block_kit import ids, names, notices
from bot.block_kit.elements import button_element
from bot.block_kit.text import foreign, people, person_name, slack_date
from bot.clearance import RedactedView, view_of_all
from bot.features.approvals import views as approvals
from bot.features.responders.views import with_names
from bot.features.runs.views import questions, runs, undo_state
from bot.message import ButtonIds, Intent
from core.common.clock import MINUTE_MS
from core.common.grouping import grouped
from core.common.words import count, some_of
from core.models import NOTE_LIMIT, OPEN_STATUSES, SEVERITY_NAMES, Action, BulkCounts, BulkTarget, Extension

DECISIONS = "Denied", "Approved"
NOT_RUN = {"denied", "expired", "cancelled"}  # how runs that wait for approval end without it
MOST_NAMED = 10  # objects in the direct message to who decides
SAID_LIMIT = questions.LINES_LIMIT // 2  # characters
MOST_TARGETS = 10  # of a run that has several, so that a hundred fit into a modal
Run = tuple[Action, RedactedView]
Listed = Sequence[Run]
"""Runs of a bulk, each with what one person may see of what it is on."""
Refused = Sequence[tuple[BulkTarget, RedactedView]]
"""Its targets that core refused, likewise."""
Asked = tuple[Action, RedactedView, Extension | None]
"""Such a run, or more time for it."""
End = tuple[Action, RedactedView, Extension]
"""More time for such a run."""

T = TypeVar("T")
Seen = TypeVar("Seen", bound=tuple[Any, ...])


def visible(listed: Iterable[Seen]) -> list[Seen]:
    """Those with an object that their reader may see, and its case too."""
    return [one for one in listed if approvals.sees_all(one[1].clearance, one[1].subject)]


def by_request(listed: Iterable[tuple[Action, T]]) -> dict[str, list[tuple[Action, T, Extension]]]:
    """Those for which more time is, or was, asked for at once with others, by that request."""
    ends = ((action, of_action, one) for action, of_action in listed for one in action.extensions)
    return grouped((end[2].request, end) for end in ends if end[2].request)


def asked(listed: Iterable[tuple[Action, T]], request: str) -> Sequence[tuple[Action, T, Extension | None]]:
    """Those of these runs for which this request asks for more time; without one all."""
    return by_request(listed).get(request, ()) if request else [(run, of_run, None) for run, of_run in listed]


def waiting(listed: Iterable[tuple[Action, T]], request: str = "") -> list[tuple[Action, T, Extension | None]]:
    """Those that wait for approval, or whose later end does for which this request asks."""
    return [one for one in asked(listed, request) if waits(one[0], one[2])]


def waits(action: Action, extension: Extension | None) -> bool:
    return extension.outcome is None if extension else runs.awaits_approval(action)


def has_news(listed: Sequence[tuple[Action, T, Extension | None]], rang: Mapping[str, float]) -> bool:
    """Whether more became of these than who asked withdrew or undid themselves, and heard or read of before.

    `rang`: by how somebody decided, when that rang them (ms). What is in force is said by the form that withdraws.
    """
    withdrawn_at = max((run.end_date or 0 for run, *_ in listed if _is_withdrawn(run)), default=0)
    return not all(_is_known(run, end, rang, withdrawn_at) for run, _, end in listed)


def _is_withdrawn(run: Action) -> bool:
    """Whether who asked for it did that."""
    return (run.outcome, run.ended_by) == ("cancelled", run.created_by)


def _is_known(run: Action, end: Extension | None, rang: Mapping[str, float], withdrawn_at: int) -> bool:
    if end is None and (_is_withdrawn(run) or (undo_state.is_in_force(run) and (run.end_date or 0) <= withdrawn_at)):
        return True
    if end is not None and (end.outcome == "lapsed" or (end.outcome, end.ended_by) == ("cancelled", end.asked_by)):
        return True
    at = max(vote.at for vote in end.approval.votes) if end is not None and end.approval.votes else run.end_date or 0
    return any(at <= when for how, when in rang.items() if decision(run, end).startswith(how))


def decision(action: Action, extension: Extension | None) -> str:
    return approvals.later_end_decision(action, extension) if extension else _outcome(action)


def more_time_denied(listed: Listed) -> list[str]:
    """Who denied or withdrew more time, for which of these targets, and why; mrkdwn."""
    found = grouped((runs.more_time_denied(run, view), (run, view)) for run, view in listed)
    return [questions.with_said(f"• {runs.distinct_targets(on)}", said) for said, on in found.items() if said]


def show_each(bulk: BulkCounts, button: ButtonIds, of: str = "") -> dict[str, Any]:
    return button_element("Show each", ids.BULK_DETAILS, button(Intent("bulk_details", bulk.id)), of=of)


def digests(rows: Mapping[str, str]) -> dict[str, str]:
    """Tells by run whether the same was read of it."""
    return {run_id: notices.mark_of(row) for run_id, row in rows.items()}


def sentence(by: str, on: str, why: str) -> str:
    return f"{by}: {on}{why and f' · {why}'}".rstrip(".") + "."


def quoted(reason: str | None, view: RedactedView) -> str:
    return runs.quoted((reason or "").rstrip("."), approvals.REASON_LIMIT, view)


def by_state(listed: Listed, refused: Refused = (), bulk: BulkCounts | None = None) -> list[str]:
    """`🔒 Approved by lea, in force until 9:31: hostname LT-0901.`: each state, with its targets; mrkdwn.

    In the message of the `bulk` without what its head and its last line say of all.
    """
    lines = list[str]()
    for mark, now, why, on in each_state(listed, refused):
        shown = now if bulk is None else _unsaid(bulk, listed, now)
        lines.append("\n>".join(filter(None, [f"{mark} {shown and f'{shown}: '}{on}.", why])))
    return lines


def _unsaid(bulk: BulkCounts, listed: Listed, now: str) -> str:
    """A state without who approved it, if the same have approved all; "" if the head says it of all; mrkdwn."""
    approved = [run.approval for run, _ in listed if run.approval and not runs.missing_approvals(run)]
    is_alike = all(one.approved_by == bulk.approved_by for one in approved)
    left = now.removeprefix(f"Approved by {people(bulk.approved_by)}, ") if is_alike else now
    said, _, _ = result(bulk, listed, is_on_phone=False).partition(", ")
    is_said = len(listed) == bulk.total and said == f"{bulk.total} {left[0].lower()}{left[1:]}"
    return "" if is_said else f"{left[0].upper()}{left[1:]}"


def withheld(bulk: BulkCounts, seen: Listed) -> list[str]:
    """`🚫 1 denied: details withheld`: what did not run or is in force, as the counts tell, and isn't `seen`."""
    left = Counter[str]({how: number for how, number in bulk.outcomes.items() if seen and how in NOT_RUN})
    left["in force"] = bulk.timed + bulk.endless if seen else 0
    left -= Counter("in force" if undo_state.is_in_force(run) else str(run.outcome) for run, _ in seen)
    shown = [(runs.MARKS.get(how, "🔒"), number, runs.WORDS.get(how, how)) for how, number in left.items()]
    return [f"{mark} {number} {how}: details withheld." for mark, number, how in shown]


def in_lines(states: Iterable[Sequence[str]]) -> list[str]:
    """`🚫 Denied by ben: hostname LT-0901 · "known tool"`: each state in a line; mrkdwn."""
    return [f"{mark} {now}: {on}" + (f' · "{why}"' if why else "") for mark, now, why, on in states]


def each_state(
    listed: Listed, refused: Refused = (), *, is_on_phone: bool = False, has_times: bool = False
) -> list[tuple[str, ...]]:
    """The mark and words of each state that these runs are in, why, and their targets; mrkdwn.

    They come as `rank` says, first what ends first; last what was `refused`.
    A phone formats no time, and shows first what failed, then what was decided last. `has_times`: also when each ended.
    """
    found = dict[tuple[str, str, str], list[int]]()
    for n, until in _newest_first(listed) if is_on_phone else _first_to_end(listed):
        action, view = listed[n]
        now, why = _outcome(action), ""
        if action.outcome in ("denied", "cancelled") and is_on_phone:
            now, why = on_phone(now), quoted(runs.reason(action), view)
        elif action.outcome in ("denied", "cancelled", "failed"):
            why = runs.result_text(action, view, approvals.REASON_LIMIT)
        ended = f", {slack_date(_ended_at(action))}" if has_times else ""
        found.setdefault((runs.mark(action, view), f"{now}{until}{ended}", why), []).append(n)
    of_each = [(state, [listed[n] for n in sorted(on)]) for state, on in found.items()]
    states = [(*state, runs.distinct_targets(on)) for state, on in of_each]
    return [*states, *(("🚫", "Refused", why, some_of(on, MOST_NAMED)) for why, on in _why(refused).items())]


def _newest_first(listed: Listed) -> Iterator[tuple[int, str]]:
    """The numbers of these runs, first what failed, then what was decided last by others; none with a time."""
    at = [(run.outcome != "failed", _is_withdrawn(run), -(run.end_date or 0), n) for n, (run, _) in enumerate(listed)]
    return ((n, "") for *_, n in sorted(at))


def _first_to_end(listed: Listed) -> Iterator[tuple[int, str]]:
    """The numbers of these runs as `rank` says, first what ends first, each with ` until today 14:30` or the like.

    Ends that read alike are one. What another run keeps longer ends when that does.
    """
    kept, end = [undo_state.kept_longer(*one) for one in listed], 0
    ends = [by.until or 0 if by else undo_state.ends_at(run) for by, (run, _) in zip(kept, listed, strict=True)]
    for n in sorted(range(len(listed)), key=lambda n: (rank(listed[n][0]), ends[n] or 0)):
        at, by = ends[n] or 0, kept[n]
        end = at if at // MINUTE_MS > end // MINUTE_MS else end
        lasts = f"until {slack_date(end)}" if at else "with no end"
        yield n, "" if ends[n] is None else f", kept {undo_state.until_by(by)}" if by else f" {lasts}"


def _why(refused: Refused) -> dict[str, list[str]]:
    """By why core refused some, these targets, each once, as far as they may be seen; mrkdwn."""
    found = dict[str, dict[Hashable, str]]()
    for target, view in visible(refused):
        on = frozenset((one.data_type, one.data) for one in runs.named_artifacts(target.target, view))
        shown = runs.named_targets(target.target, view) or runs.on_what(view.subject, view)
        found.setdefault(why_refused(target, view), {}).setdefault(on or target.object_id, shown)
    return {why: [*on.values()] for why, on in found.items()}


def why_refused(target: BulkTarget, view: RedactedView) -> str:
    return questions.reason_shown(view.inputs(with_names(target.message or "", view)))


def rank(run: Action | None) -> tuple[bool, ...]:
    """Sorts what waits for approval first, then what is under way, in force, failed or was refused (None), the rest."""
    if run is None:
        return True, True, True, False
    is_open, is_in_force = runs.is_open(run), undo_state.is_in_force(run)
    return not runs.awaits_approval(run), not is_open, not is_in_force, run.outcome == "succeeded"


def _ended_at(action: Action) -> int:
    """The minute (ms) in which an ended run was undone, or else ended."""
    undone_at = action.measure.ended_at if action.measure is not None else None
    return (undone_at or action.end_date or 0) // MINUTE_MS * MINUTE_MS


def _outcome(action: Action) -> str:
    """`Approved by ben, in force`, `Approved by ben, failed`, `Undone by mia`, `Not approved in time`."""
    if runs.awaits_approval(action):
        return "Waits for approval"
    now = "under way" if runs.is_open(action) else undo_state.in_short(action) or runs.state(action)
    if action.approval is None or runs.missing_approvals(action):
        return f"{now[0].upper()}{now[1:]}"
    return f"{approvals.decision(action).rstrip('.')}, {now}"


def on_phone(decided: str) -> str:
    """`Denied by lea, not run`, or how else it was decided; mrkdwn."""
    return f"{decided}, not run" if decided.startswith("Denied") else decided


def said_of_all(texts: Sequence[str]) -> str:
    """What was said of each, if all of them show the same of it, with times to the minute."""
    shown = {re.sub(r"(?<=<!date\^)\d+", lambda found: str(int(found[0]) // 60), text) for text in texts}
    return texts[0] if len(shown) == 1 else ""


def asks_in_short(bulk: BulkCounts, seen: Listed, total: int, deed: str, asked: str, why: str, *hows: str) -> str:
    """`HIGH: Isolate on 5 targets? 2 denied before. Asked by anna: ...`: `hows` each was decided on before; mrkdwn."""
    closed = sum(approvals.closed_by_now(view) for _, view in seen)
    counts = *((hows.count(how), how) for how in dict.fromkeys(hows)), (closed, "closed by now")
    happened = ", ".join(f"{number} {how}" for number, how in counts if number)
    on = f": {runs.distinct_targets(seen, total)}" if seen else ""
    return approvals.asks_in_short(_severity(bulk, seen), deed, happened and f"{happened}. ", f"{asked}{on}", why)


def what_is_asked(bulk: BulkCounts, on: str = "", seen: Listed = ()) -> str:
    """`4 targets for 1 hour · up to CRITICAL`, or those that it is `on`."""
    return f"{on or how_many(bulk, bulk.awaiting)}{undo_state.lasts(bulk.undo_after_minutes)}{up_to(bulk, seen)}"


def up_to(bulk: BulkCounts, seen: Sequence[tuple[Any, ...]]) -> str:
    severity, is_one = _severity(bulk, seen), max(len(seen), bulk.awaiting or bulk.total) == 1
    return f" · {'' if is_one else 'up to '}{SEVERITY_NAMES[severity].upper()}" if severity else ""


def level_of(bulk: BulkCounts, listed: Listed) -> str:
    """Likewise, of these runs of it alone, as far as they may be seen."""
    alone = bulk.model_copy(update={"severity": None, "awaiting": 0, "total": len(listed)})
    return up_to(alone, visible(listed))


def seen_targets(listed: Listed) -> str:
    """The targets of those of these runs that may be seen, or else how many they are; mrkdwn."""
    seen = visible(listed)
    return runs.distinct_targets(seen, len(listed)) if seen else count(len(listed), "target")


def _severity(bulk: BulkCounts, seen: Sequence[tuple[Any, ...]]) -> int:
    return max((view.subject.severity for _, view, *_ in seen), default=bulk.severity or 0)


def name(bulk: BulkCounts) -> str:
    return foreign(bulk.title, names.NAME_LIMIT)


def head(bulk: BulkCounts, listed: Listed = (), *, is_on_phone: bool = False) -> str:
    """`🔒 *Isolate* on 3 targets: 3 in force until 14:30 (1 kept longer)`, as these runs of it say."""
    sign = {bulk.timed + bulk.endless: "🔒 ", bulk.undone: "🔓 "}.get(bulk.total, "")  # only where that is so of all
    return f"{sign}*{name(bulk)}* on {how_many(bulk, bulk.total)}: {result(bulk, listed, is_on_phone=is_on_phone)}"


def how_many(bulk: BulkCounts, number: int) -> str:
    """`4 targets`, or of all of a bulk `4 targets in 6 alerts`, unless each alert has one of its own."""
    alerts = f" in {count(bulk.objects, 'alert')}" if number == bulk.total != bulk.objects else ""
    return f"{count(number, 'target')}{alerts}"


def of_waiting(bulk: BulkCounts, seen: Listed) -> str:
    """`2 targets (1 more that you may not see, CRITICAL)`: those of what waits that its reader has `seen`, or all."""
    more = bulk.awaiting - len(seen) if seen else 0
    is_worse = (bulk.severity or 0) > _severity(bulk, seen)
    level = f", {SEVERITY_NAMES[bulk.severity or 0].upper()}" if is_worse else ""
    return f"{how_many(bulk, bulk.awaiting - more)}{f' ({more} more that you may not see{level})' if more else ''}"


def who_asked(bulk: BulkCounts, named: Listed) -> str:
    """`asked by anna, approved by lea and ben, more time by mia · "third wave"`; mrkdwn.

    What waits for approval says itself why it is asked for; nobody reads that who may not see all of them.
    """
    note = quoted_note(named) if not bulk.awaiting and len(named) == bulk.total - bulk.refused else ""
    approved = f", approved by {notices.all_of(bulk.approved_by)}" if bulk.approved_by else ""
    return f"asked by {person_name(bulk.created_by)}{approved}{undo_state.more_time_by(run for run, _ in named)}{note}"


def result(bulk: BulkCounts, listed: Listed = (), *, is_on_phone: bool) -> str:
    """`4 wait for approval, 2 refused`, `3 under way, 12 of 25 succeeded, 1 failed`, `3 in force until 14:30`.

    That they have succeeded goes without saying where the rest says more of each. A phone formats no time.
    """
    running = under_way(bulk)
    waits = f"{bulk.awaiting} {'waits' if bulk.awaiting == 1 else 'wait'} for approval" if bulk.awaiting else ""
    parts = [waits, f"{running} under way" if running else "", _succeeded(bulk)]
    at = "" if bulk.undone_at is None or is_on_phone else f", {slack_date(bulk.undone_at)}"
    by = f" by {notices.all_of(bulk.undone_by)}" if bulk.undone_by else ""
    kept = sum(undo_state.kept_longer(*one) is not None for one in listed)
    ends = f"{until(bulk.first_release_at or 0, bulk.release_at or 0)}{f' ({kept} kept longer)' if kept else ''}"
    ends = " (kept longer)" if kept and kept == bulk.timed else ends
    others = [
        *((runs.WORDS.get(outcome, outcome), number) for outcome, number in bulk.outcomes.items()),
        ("refused", bulk.refused),
        (f"in force{'' if is_on_phone else ends}", bulk.timed),
        ("in force with no end", bulk.endless),
        ("being undone", bulk.undoing),
        (f"undone{by}{at}", bulk.undone - bulk.by_itself),
        ("ended on time", bulk.by_itself),
    ]
    return ", ".join(filter(None, [*parts, *(f"{number} {what}" for what, number in others if number)]))


def _succeeded(bulk: BulkCounts) -> str:
    """`12 of 25 succeeded`, `nothing was run`, or "" where what is in force or undone says so of each."""
    succeeded = bulk.counts.get("Success", 0)
    if 0 < bulk.timed + bulk.endless + bulk.undoing + bulk.undone == succeeded:
        return ""
    if succeeded or not (open_runs(bulk) or {*bulk.outcomes} <= NOT_RUN):
        return f"{succeeded} of {bulk.total} succeeded"
    return "" if open_runs(bulk) else "nothing was run"


def until(*ends_at: int) -> str:
    """` until today 14:30`, or where the ends differ ` until today 14:30 or later`; mrkdwn."""
    first, last = min(ends_at), max(ends_at)
    return f" until {slack_date(first)}{'' if first // MINUTE_MS == last // MINUTE_MS else ' or later'}"


def quoted_note(waiting: Listed, ends: Sequence[End] = (), between: str = " · ") -> str:
    """` · "ransomware"`, with what is `between`: why these runs are asked for, or the `ends` of theirs; mrkdwn.

    "" where it is not the same of all.
    """
    if ends:
        why = said_of_all([runs.quoted(end.note or "", NOTE_LIMIT, view) for _, view, end in ends])
        return f"{between}{why}" if why else ""
    views = [view for _, view in waiting]
    return runs.noted(waiting[0][0], view_of_all(views), NOTE_LIMIT, between) if waiting else ""


def row(action: Action, view: RedactedView, now_ms: int | None = None) -> str:
    is_kept = now_ms is None
    held = approvals.already(action, view, now_ms, is_kept=is_kept)
    said = approvals.happened(action, view, is_kept=is_kept), *held
    return questions.with_said(target_line(action, view), undo_state.also_for(action.also_for)[2:], *said)


def target_line(action: Action, view: RedactedView) -> str:
    acts_on = ", ".join(runs.target_lines(action.target or (), view, MOST_TARGETS))
    return f"• {questions.named(view, acts_on or approvals.observables_in_short(action, view))}"


def open_runs(bulk: BulkCounts) -> int:
    """How many of its runs have not ended."""
    return sum(bulk.counts.get(status, 0) for status in OPEN_STATUSES)


def under_way(bulk: BulkCounts) -> int:
    return open_runs(bulk) - bulk.awaiting
