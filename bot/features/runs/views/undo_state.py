"""What a run's line says of how it can be undone, or was."""

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from bot.block_kit import modals, notices
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.subjects import target_data
from bot.block_kit.text import code, core_says, foreign, people, person_name, readable_name, slack_date, time_ahead
from bot.clearance import SHARED, RedactedView, Subject, may_see
from bot.message import Block
from core.common.clock import FOR_EVER, MINUTE_MS
from core.common.grouping import grouped
from core.common.words import count, some_of
from core.models import OPEN_STATUSES, Action, EndChange, Extension, Measure, MeasureRun, Policy, Reader, Undo

IN_SHORT = {
    "available": "in force",
    "running": "in force, being undone",
    "waiting": "in force, not undone",
    "failed": "maybe in force, not undone",
    "replaced": "a later run decides when it ends",
}
IN_FORCE = ("available", "waiting", "running", "failed")
MESSAGE_LIMIT = 300
TARGET_LIMIT = 600  # which has room for the longest host name
MAX_PEOPLE = 5
MOST_ASKED = 3
MOST_ALSO = 10  # alerts
LATER_END = "The later of the two ends counts."
NO_END = "With no end, this takes that end away."
NOTHING_LATER = "A second run changes nothing."
CHANGES_NOTHING = "This would end earlier, so it changes nothing."
NOTHING_LEFT = "It puts nothing in force."
MOST_DECIDERS = 10  # that core names (core/docs/http-interface.md); beyond them it may be anybody


class Able(NamedTuple):
    """Who may approve a run, and whether it is these who are asked, in a message each or in one that counts many."""

    logins: Sequence[str] = ()
    are_asked: bool = False
    only: str = ""
    """`, on hostname LT-0901 only lea`: on which of several targets not all of them may, and who may; mrkdwn."""

    @staticmethod
    def on(each: Sequence[tuple[str, Sequence[str]]], *, are_asked: bool = False) -> "Able":
        """Who may on any of these targets (mrkdwn), each with those who may there."""
        every = list(dict.fromkeys(login for _, logins in each for login in logins))
        found = grouped((tuple(sorted(logins)), name) for name, logins in each if 0 < len(logins) < MOST_DECIDERS)
        some = {logins: names for logins, names in found.items() if len(logins) < len(every)}
        only = (f", on {some_of(names, MOST_ASKED)} only {notices.all_of(logins)}" for logins, names in some.items())
        return Able(every, bool(every) and are_asked, "".join(only))


NOBODY = Able()


def is_in_force(action: Action) -> bool:
    """Whether what the run did is in force, as far as core knows, and no later run decides when it ends."""
    if action.undo is not None:
        return action.undo.status in IN_FORCE
    return action.measure is not None and action.measure.state != "ended"


def acted_on(run: Action | Measure) -> frozenset[Hashable]:
    """What tells its targets from others, whose names may be cut alike: kind and data of each."""
    return frozenset((one.kind, one.data) for one in run.target or ())


def in_force_by_target(action: Action) -> list[tuple[Action, str]]:
    """A run for each of its targets that is in force, with the id of that."""
    return [(part, id_) for part, id_ in action.by_target() if is_in_force(part)]


def together(action: Action, parts: Sequence[Action]) -> Action:
    """A run as if it had acted on some of its targets alone, with the state of the last; all of it without any."""
    target = [one for part in parts for one in part.target or ()]
    return parts[-1].model_copy(update={"target": target or None}) if parts else action


def moved_last(action: Action) -> tuple[Action, Sequence[Action]]:
    """A run on those of its targets whose end somebody changed last, and the others, each alone."""
    parts = [part for part, _ in action.by_target()]
    at = [part.undo.changed.at if part.undo and part.undo.changed else 0 for part in parts]
    moved = [part for part, when in zip(parts, at, strict=True) if when == max(at)]
    return together(action, moved), [part for part in parts if part not in moved]


def of_extension(action: Action, extension: Extension) -> Action:
    """A run on those of its targets that a later end is asked for."""
    return together(action, [part for part, id_ in action.by_target() if id_ in extension.targets])


def still(action: Action) -> Action:
    """A run on those of its targets alone on which it is in force, if it is."""
    parts = [part for part, _ in in_force_by_target(action)]
    return action.model_copy(update={"target": together(action, parts).target})


def has_own_ends(action: Action) -> bool:
    """Whether what it has in force ends at different times."""
    return len({part.undo.at for part, _ in in_force_by_target(action) if part.undo is not None}) > 1


def summary(action: Action, view: RedactedView) -> str:
    """` · in force until 14:30` or ` · undone`, for a run's line; "" if there is nothing to say of it."""
    undo = action.undo
    if not view.is_open:
        return ""
    if undo is None:
        return f" · {in_force(action, view)}" if is_in_force(action) else ""
    if undo.status is None:  # it has not ended yet, or did nothing
        length = undo.after_minutes if action.status in OPEN_STATUSES else None
        return f" · for {minutes(length)}{also_for(action.also_for)}" if length else ""
    ended = {"undone": undone(action), "replaced": "a later run decides when it ends"}
    return f" · {ended.get(undo.status) or in_force(action, view)}"


def is_undone(action: Action) -> bool:
    return action.undo is not None and action.undo.status == "undone"


def undone(action: Action) -> str:
    """`undone by lea, 14:44`, nobody where it ended on time; of a Block also which reader still has it; mrkdwn."""
    ended, readers = action.measure, _readers(action)
    if ended is None or ended.ended_at is None:
        return f"undone{readers}"
    what = "undone" if action.undo is not None and action.undo.action_id else "marked as ended"
    return f"{what}{_undone_by(action)}, {slack_date(ended.ended_at)}{readers}"


def _undone_by(action: Action) -> str:
    return f" by {person_name(action.undone_by)}" if action.undone_by else ""


def in_short(action: Action) -> str:
    """`in force`, `undone by lea`, without a time; "" if it left nothing in force."""
    if is_undone(action):
        return f"undone{by}" if (by := _undone_by(action)) else "ended on time"
    otherwise = "in force; nothing undoes it" if is_in_force(action) else ""
    now = IN_SHORT.get(action.undo.status or "", "") if action.undo is not None else otherwise
    is_unknown = action.measure is not None and action.measure.state == "unknown"
    return f"maybe {now}" if now.startswith("in force") and is_unknown else now


def ends_at(action: Action) -> int | None:
    """When what is in force ends by itself (ms), 0 for what has no end; None for all else."""
    undo = action.undo
    return undo.at or 0 if undo is not None and undo.status == "available" else None


def kept_longer(action: Action, view: RedactedView) -> Measure | None:
    """What another run keeps in force for longer on all targets of this one, as far as this person may see it."""
    own_end = ends_at(action)
    longer = [one for one in contained(action, view) if own_end and (one.until or FOR_EVER) > own_end]
    is_kept = acted_on(action) <= frozenset[Hashable]().union(*map(acted_on, longer))
    return min(longer, key=lambda one: one.until or FOR_EVER) if longer and is_kept else None


def for_how_long(action: Action | Measure) -> str:
    """As `lasts`, of a run."""
    return lasts(action.undo.after_minutes or 0 if action.undo is not None else None)


def lasts(after_minutes: int | None) -> str:
    """` for 1 hour`, ` with no end` (0) for what somebody has to undo; "" for what nothing undoes."""
    return "" if after_minutes is None else f" for {minutes(after_minutes)}" if after_minutes else " with no end"


def planned(action: Action, *, is_bulk: bool = False, where: str = "") -> str:
    """How long what a run does, or each of several, will last, and how, and where, it is taken back; mrkdwn."""
    undo = action.undo
    if action.undoes:
        return f"It ends what {action.undoes} did."
    if undo is None:
        return NOTHING_LEFT if action.only_tells else "No button ends it earlier."
    by = foreign(title(undo), NAME_LIMIT)
    if undo.installed is False:
        return f"No button ends it before {by} is installed."
    deed = f"*{'Undo all' if is_bulk else 'Undo now'}*{where}"
    if undo.after_minutes:
        return f"Ends by itself ({by}); {deed} ends it earlier."
    return f"Until somebody presses {deed}, which runs {by}."


def title(undo: Undo) -> str:
    """What people call the responder that undoes a run; foreign text, not escaped."""
    return undo.title or readable_name(undo.responder)


def _readers(action: Action) -> str:
    """` · read by edge-fw 14:32 · not read yet by dc-fw` of a Block in force; of what was undone, who still has it."""
    readers = action.readers or ()
    if is_undone(action):
        return _still_has(readers) if action.readers is not None else ""
    by = [f"{foreign(one.name, NAME_LIMIT)} {slack_date(one.at, '{time}')}" for one in readers if one.at is not None]
    left = [foreign(reader.name, NAME_LIMIT) for reader in readers if reader.at is None]
    read = f" · read by {', '.join(by)}" if by else ""
    return f"{read} · not read yet by {', '.join(left)}" if left else read


def _still_has(readers: Sequence[Reader]) -> str:
    names = [foreign(reader.name, NAME_LIMIT) for reader in readers if reader.at is not None]
    if not names:
        return " · no reader has it any more"
    return f" · {', '.join(names)} still {'have' if len(names) > 1 else 'has'} it"


def in_force(action: Action, view: RedactedView) -> str:
    """`in force until 14:30`, of a run that is, and of a Block who has read it; mrkdwn."""
    return _until(action, view) + (_readers(action) if view.is_open else "")


def _until(action: Action, view: RedactedView) -> str:
    undo, is_unknown = action.undo, action.measure is not None and action.measure.state == "unknown"
    if not view.is_open:
        return ""
    if undo is None:
        return "maybe in force; nothing undoes it" if is_unknown else "in force; nothing undoes it"
    if undo.status == "waiting":
        return f"still in force, was to end {slack_date(undo.at or 0)}: {why(undo, view)}"
    if undo.status == "failed":
        return "maybe still in force: " + (why(undo, view) or f"the undo {undo.action_id} failed")
    if undo.status == "running":
        return "in force, being undone"
    if action.status in OPEN_STATUSES:
        return f"starting, then in force{for_how_long(action)}"
    ends = _in_force_until(action, undo, view)
    return f"maybe {ends}: nobody knows whether it took effect" if is_unknown else ends


def _in_force_until(action: Action, undo: Undo, view: RedactedView) -> str:
    """`in force until 14:30`, or whose other run there has no end, so that its own end does not count; mrkdwn."""
    kept = kept_longer(action, view)
    if kept is not None and kept.until is None:
        other, own = f"by {person_name(kept.created_by)}, for {kept.root_id}", slack_date(undo.at or 0)
        return f"in force with no end {other}: its own end, {own}{moved(action)}, doesn't count"
    ends = slack_date(undo.at) if undo.at else "somebody undoes it"
    return f"in force until {ends}{moved(action)}{_also(action, view)}"


def moved(action: Action) -> str:
    """`, moved from 14:30 by anna, approved by mia`, `, set by anna` with no end; "" for an end as it was; mrkdwn."""
    changed = action.undo.changed if action.undo is not None else None
    if changed is None:
        return ""
    is_moved = changed.before is not None and changed.after is not None
    how = f"moved from {slack_date(changed.before or 0)}" if is_moved else "set"
    return f", {how} {moved_by(action, changed)}"


def moved_in_short(action: Action, changed: EndChange) -> tuple[str, str]:
    """`Extended by anna, approved by mia` and ` ends in 2 hours`: on a phone before and behind a run; mrkdwn."""
    is_later = changed.after is None or (changed.before is not None and changed.after > changed.before)
    ends = " with no end" if changed.after is None else f" ends in {time_left(changed.after, changed.at)}"
    return f"{'Extended' if is_later else 'Shortened'} {moved_by(action, changed)}", ends


def moved_by(action: Action, changed: EndChange) -> str:
    """`by anna, approved by mia`; mrkdwn."""
    approved = f", approved by {by}" if (by := people(action.more_time_by)) else ""
    return f"by {person_name(changed.by)}{approved}"


def more_time_by(actions: Iterable[Action]) -> str:
    """`, more time by mia` of those in force; "" for nobody; mrkdwn."""
    by = people(login for action in actions if is_in_force(action) for login in action.more_time_by)
    return f", more time by {by}" if by else ""


def why(undo: Undo, view: RedactedView) -> str:
    """Core's sentence on why it was not undone, without its full stop; mrkdwn."""
    return core_says(view.inputs(undo.message or ""), MESSAGE_LIMIT).rstrip(".")


def minutes(number: int) -> str:
    """`15 minutes`, `4 hours`, `1 day`."""
    for unit, length in (("day", 1440), ("hour", 60)):
        if number % length == 0:
            return count(number // length, unit)
    return count(number, "minute")


def time_left(at: int, now_ms: int) -> str:
    """`29 minutes`; from two hours on in whole hours."""
    number = max(1, round((at - now_ms) / MINUTE_MS))
    return minutes(number if number < 120 else round(number / 60) * 60)


ONLY_UNDO = "With no end, it lasts until somebody undoes it."
NEVER = "0"  # the option of a run that lasts until somebody undoes it


_STEPS = (15, 30, 60, 240, 480, 1440, 4320, 10080)  # minutes


def may_last(policy: Policy) -> bool:
    """Whether somebody may choose that a run lasts until it is undone."""
    return not policy.undo_after_minutes or bool(policy.allow_permanent)


def time_field(block_id: str, policy: Policy, asked: int | None = None) -> list[Block]:
    """A menu of how long a run lasts, first as `asked` if the settings allow it; none for a responder without undo."""
    if not policy.undo:
        return []
    longest, is_free = policy.undo_after_minutes, may_last(policy)
    steps = sorted({*_STEPS, *((longest,) if longest else ()), *((asked,) if asked else ())})
    options = [(str(step), minutes(step)) for step in steps if is_free or step <= (longest or 0)]
    options += [(NEVER, "Until somebody undoes it")] if is_free else []
    initial = str(asked) if str(asked) in dict(options) else str(longest or NEVER)
    return [modals.choice_field(block_id, "How long", options, initial)]


def longer_field(policy: Policy, ends: Sequence[int], now_ms: int) -> list[Block]:
    """How much longer runs last that end at these times, each from then or from now on; none if nothing is allowed.

    Nothing is chosen. Each option says until when that is: of ends within a minute the first, of others the last.
    """
    longest, last, is_free = policy.undo_after_minutes, max([*ends, now_ms]), may_last(policy)
    most = (longest or 0) + (now_ms - last) // MINUTE_MS
    steps = _STEPS if is_free else sorted({step for step in (*_STEPS, most) if 0 < step <= most})
    label, until, at = "How much longer", "until", max(min([last, *ends]), now_ms)
    if last - at >= MINUTE_MS:
        label, until, at = f"{label}, each from its own end", "last:", last
    options = [(str(step), f"+{minutes(step)}", f"{until} {slack_date(at + step * MINUTE_MS)}") for step in steps]
    options += [(NEVER, "Until somebody undoes it", ONLY_UNDO)] if is_free else []
    return [modals.radio_field("longer", label, options)] if options else []


def minutes_of(value: str) -> int | None:
    """The minutes of a chosen option; None for what isn't one."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 7 else None


def already(measure: Measure, view: RedactedView, changes: str = LATER_END, state: str = "contained already") -> str:
    """``🔒 `LT-0198` is contained already until 15:31 by lea, for ~18. ``, and what a second run changes; mrkdwn.

    Or what somebody else asks for there, which waits for approval. `state` is what it is called once it has begun.
    """
    names = targets(measure, view)
    if measure.state == "asked":
        what = f"*{foreign(measure.title, NAME_LIMIT)}* on {names or measure.object_id}"
        asks = f"{person_name(measure.created_by)} also asks for {what}"
        since = f"that has waited since {slack_date(measure.since)}"
        return f"⏳ {asks}{for_how_long(measure)}, for {measure.root_id}; {since}."
    is_now = "just being contained" if measure.state == "starting" else state
    if changes and measure.state == "in_force" and measure.until is None:
        changes = NOTHING_LATER
    return f"🔒 {names or measure.object_id} is {is_now} {until_by(measure)}. {changes}".rstrip()


def denied_longer(measure: Measure, view: RedactedView) -> list[Extension]:
    """The requests that it lasts longer which were denied since one was approved, or it was given another end.

    None for another alert or case where another company reads.
    """
    if view.clearance == SHARED and measure.root_id != (view.subject.root_id or view.subject.id):
        return []
    newest = measure.undo.extension if measure.undo is not None and measure.until is not None else None
    if newest is None or newest.outcome in ("approved", "lapsed"):
        return []
    denied = [one for one in (*newest.denials, newest) if one.outcome == "denied"]
    return [one for one in denied if measure.others or measure.id in one.targets]


def until_by(measure: Measure) -> str:
    """`until 15:31 by lea, for ~18`, and of what is starting only whose it is; mrkdwn."""
    lasts = f"{until(measure.until)} " if measure.state != "starting" else ""
    return f"{lasts}by {person_name(measure.created_by)}, for {measure.root_id}"


def already_in_short(measure: Measure, *, is_named: bool = False) -> str:
    """`🔒 contained until 15:31 by lea`."""
    by = f" by {person_name(measure.created_by)}" if is_named else ""
    other = {"asked": "⏳ also asked for", "starting": "🔒 just being contained"}
    now = f"🔒 {'contained ' if is_named else ''}{until_in_option(measure.until, measure.since)}"
    return f"{other.get(measure.state, now)}{by}"


def until_in_option(at: int | None, since_ms: int) -> str:
    """As `until`, with its day only if it is half a day after `since_ms`, since an option has little room."""
    return in_option(until(at) if at is None else f"until {time_ahead(at, since_ms)}")


def new_end_in_option(extension: Extension, *, is_said: bool) -> list[str]:
    """`🚫 denied before · until 15:30`, or what there is room for of that; not an end that `is_said`; mrkdwn."""
    before, then = "🚫 denied before", "" if is_said else until_in_option(extension.at, extension.asked_at)
    whole = " · ".join(filter(None, [before if extension.denials else "", then]))
    return [*filter(None, dict.fromkeys([whole, then]))]


def in_option(text: str) -> str:
    """Without what an old client shows instead of a time, which Slack counts."""
    return re.sub(r"[|][^>]*>", "|?>", text)


def targets(measure: Measure, view: RedactedView) -> str:
    """The targets as the alert or case of the view writes them; mrkdwn."""
    return ", ".join(code(target_data(one, view), TARGET_LIMIT) for one in measure.target or ())


def until(at: int | None) -> str:
    """`until tomorrow 2:46`, or `with no end`; mrkdwn."""
    return f"until {slack_date(at)}" if at is not None else "with no end"


def whose(run: MeasureRun, on: str = "") -> str:
    """``*Isolate Host* on `LT-0198` until 15:31 by lea, approved by ben, for ~18``; mrkdwn."""
    ends = until(run.until)
    lasts = {"starting": ", which is starting,", "unknown": f" maybe {ends}"}.get(run.state, f" {ends}")
    return f"*{foreign(run.title, NAME_LIMIT)}*{f' on {on}' if on else ''}{lasts} {_by(run)}, for {run.root_id}"


def _by(run: MeasureRun) -> str:
    approved = f", approved by {some_of([*map(person_name, run.approved_by)], MAX_PEOPLE)}" if run.approved_by else ""
    return f"by {person_name(run.created_by)}{approved}"


def all_ended(measures: Sequence[Measure], view: RedactedView, login: str, own: str = "") -> list[str]:
    """What ends when `login` releases these targets, a line for each run, and who hears of it; mrkdwn.

    The run with the id `own` is first, or else the one that ends last. Who hears of several is said once.
    """
    each = [(*run, one) for one in measures for run in zip(one.actions[::-1], [one, *one.others[::-1]], strict=True)]
    each.sort(key=lambda one: one[0] != own)
    told = [hears(login, run) for _, run, _ in each]
    last = {told[at]: at for at, (_, run, _) in enumerate(each) if run.state != "starting"}
    lines = list[str]()
    for at, (number, run, one) in enumerate(each):
        line = ended(run, targets(one, view), "⚠️ It also ends" if number != own and lines else "🔓 It ends")
        lines.append(f"{line} {told[at]}".rstrip() if last.get(told[at]) == at else line)
    return lines


def ended_alone(run: MeasureRun, action: Action, login: str, now_ms: int) -> str:
    """Likewise of the only run, whose target and alert are named above it, and when it would end by itself; mrkdwn."""
    who, at = hears(login, run), run.until
    by = f" ({change.removeprefix(', ')})" if (change := moved(action)) else ""
    by_itself = f"It has no end{by}: only this ends it."
    if at is not None:
        ends = f"{slack_date(at)}, {time_left(at, now_ms)} from now"
        by_itself = f"By itself it would end {ends}{by}." if at > now_ms else ""
    return f"It ends *{foreign(run.title, NAME_LIMIT)}* {_by(run)}. {who}\n{by_itself}".rstrip()


def ended(run: MeasureRun, on: str, verb: str = "⚠️ It also ends") -> str:
    """What happens to a run when somebody releases its target; mrkdwn."""
    if run.state == "starting":
        return f"⚠️ {whose(run, on)}: afterwards nobody knows whether it is in force."
    return f"{verb} {whose(run, on)}."


def notified(
    login: str | None, run: Action | MeasureRun, *, is_end: bool = True, has_reason: bool = False
) -> list[str]:
    """Who is notified that `login` ends a run, or only moves its end.

    Who asked for it and who approved that; where it ends also whose is the end that it has now, and who approved that.
    Of what `login` asked for themselves nobody is, unless that `has_reason`.
    """
    of_end = [*filter(None, [run.moved_by]), *run.more_time_by] if is_end else []
    is_own, of_run = login == run.created_by and not has_reason, [*run.approved_by, run.created_by]
    if is_own:
        of_end, of_run = [] if login == run.moved_by else of_end, []
    return [one for one in dict.fromkeys([*of_end, *of_run]) if one != login]


def hears(login: str, *runs: Action | MeasureRun, is_end: bool = True) -> str:
    """`anna is notified; mia isn't: the message that asked for approval shows it.`, as `notified` says; mrkdwn."""
    told = dict.fromkeys(one for run in runs for one in notified(login, run, is_end=is_end))
    every = [one for run in runs for one in notified(login, run, is_end=is_end, has_reason=True)]
    others = dict.fromkeys(one for one in every if one not in told)
    said = [are([*told], "notified")] if told else []
    if others:
        not_told = "isn't notified" if len(others) == 1 else "aren't notified"
        said.append(f"{notices.all_of([*others])} {not_told}: the message that asked for approval shows it")
    return f"{'; '.join(said)}." if said else ""


def are(logins: Sequence[str], what: str) -> str:
    """`anna and ben are asked`; mrkdwn."""
    return f"{notices.all_of(logins)} {'is' if len(logins) == 1 else 'are'} {what}"


def in_force_already(action: Action, view: RedactedView) -> list[Measure]:
    """What others have in force on the targets of a run, as far as this person may see it."""
    seen = [one for one in action.already if may_see(view.clearance, one.clearance or 0) and one.state != "ended"]
    asked = [one for one in seen if one.state == "asked"]
    return [one for one in seen if one not in asked[MOST_ASKED:]]


def contained(action: Action, view: RedactedView) -> list[Measure]:
    """What of that has taken effect."""
    return [one for one in in_force_already(action, view) if one.state not in ("asked", "starting")]


def held_on(found: Iterable[Measure], view: RedactedView) -> list[Measure]:
    """What of this is on observables of an alert, as far as its clearance may see that."""
    seen = [one for one in found if one.target and may_see(view.clearance, one.clearance or 0)]
    on = {(one.target.kind, one.target.value or one.label) for one in view.artifacts() if one.target}
    return [one for one in seen if acted_on(one) <= on]


def decided_before(decided: Sequence[Action], clearance: int) -> list[Action]:
    """Those of what somebody denied or undid before that this clearance may know of; another company of none."""
    levels = {
        earlier.clearance for one in decided if (earlier := one.earlier) and may_see(clearance, earlier.clearance)
    }
    level = max(levels, default=None) if clearance != SHARED else None
    return [one for one in decided if one.earlier is not None and one.earlier.clearance == level]


def undone_since(action: Action, view: RedactedView) -> dict[str, str]:
    """By run what would have undone a run that waits, since it was asked for, as far as this person may see it."""
    ran = [one for one in action.already if may_see(view.clearance, one.clearance or 0) and one.state == "ended"]
    return {
        one.id: f"⚠️ *{foreign(one.title, NAME_LIMIT)}* by {person_name(one.created_by)} ran on it"
        f" {slack_date(one.since)}, after this was asked.\n"
        for one in ran[:MOST_ASKED]
    }


def _also(action: Action, view: RedactedView) -> str:
    """`, also for ~20 until 17:00`: what else contains its target, and nothing that its levels may withhold later."""
    same = [one for one in contained(action, view) if acted_on(one) <= acted_on(action)]
    each = [run for one in same for run in (one, *one.others[::-1])]
    alone = [id_ for id_ in action.also_for or () if id_ not in [one.root_id for one in each]]
    return also_for(alone) + "".join(f", {also(one, view.subject)}" for one in each)


def also(run: MeasureRun, subject: Subject) -> str:
    """`also for ~20 until 17:00`, or `also by lea until 17:00` for the alert of the subject, or its case; mrkdwn."""
    is_same = run.root_id in (subject.root_id or subject.id, subject.case_id)
    whose_else = f"by {person_name(run.created_by)}" if is_same else f"for {run.root_id}"
    return f"also {whose_else} {until(run.until)}"


def also_for(alert_ids: Sequence[str] | None) -> str:
    """`, also for ~20, ~21`: the other alerts with its target that a run was asked for with."""
    return f", also for {some_of(alert_ids, MOST_ALSO)}" if alert_ids else ""


def change_of_any(policy: Policy) -> str:
    """What a second run changes of what is in force already, for as long as somebody has yet to choose."""
    return f"{LATER_END} {NO_END}" if may_last(policy) else LATER_END


def change_of_second(action: Action, measure: Measure, now_ms: int | None) -> str:
    """What a run that starts now changes of what is in force already; without `now_ms` whenever it starts."""
    lasts = action.undo.after_minutes if action.undo is not None else None
    if measure.until is None and measure.state == "in_force":
        return NOTHING_LATER
    if measure.state == "starting" or measure.until is None:
        return LATER_END
    if not lasts:
        return NO_END
    if now_ms is None:
        return LATER_END
    if now_ms + lasts * MINUTE_MS <= measure.until:
        return CHANGES_NOTHING
    return f"This lasts longer: {minutes(lasts)} from when it starts."


def later_end(action: Action | Measure) -> Extension | None:
    """The later end that somebody can still approve or deny, as core says: only core's time counts."""
    extension = action.undo.extension if action.undo is not None else None
    return extension if extension is not None and extension.outcome is None else None


def request_ends(run: Action | Measure) -> str:
    """`⏳ anna asks to keep it until 15:44. That request ends too.`, where one waits; mrkdwn."""
    end = later_end(run)
    return f"⏳ {person_name(end.asked_by)} asks to keep it {until(end.at)}. That request ends too." if end else ""


def keep(extension: Extension) -> str:
    """`Keep 45 minutes longer`, what the button that approves it is called; a button formats no time."""
    return f"Keep {longer(extension.at, extension.before).removeprefix('for ')}"


def longer(at: int | None, before: int | None) -> str:
    """`for 45 minutes longer`, or `with no end`, of an end (ms) and that before; for a phone, which formats no time."""
    if at is None or before is None:
        return "with no end" if at is None else "until a set time"
    return f"for {minutes(max(1, round((at - before) / MINUTE_MS)))} longer"


def more_time(extension: Extension) -> str:
    """`More time of 45 minutes`, or `More time with no end`: what was asked for."""
    return f"More time {longer(extension.at, extension.before)}".replace("for ", "of ").removesuffix(" longer")


def needed(asked: Sequence[Extension], able: Able = NOBODY) -> str:
    """`1 approval by ben, answer by 14:30; otherwise it ends 15:00.`, with who is `able` to give it; of the first.

    Without the time to answer by where that is when it ends.
    """
    approval = min((one.approval for one in asked), key=lambda one: one.expires_at)
    more = approvals_by(approval.needed - len(approval.approved_by), able)
    first, is_one = asked[0], len(asked) == 1
    at = slack_date(first.before) if is_one and first.before and len(first.targets) < 2 else "as planned"
    has_end = at != "as planned" and abs(approval.expires_at - (first.before or 0)) < MINUTE_MS
    answer_by = "" if has_end else f", answer by {time_ahead(approval.expires_at, first.asked_at)}"
    return f"{more}{answer_by}; otherwise {'it' if is_one else 'each'} ends {at}."


def approvals_by(number: int, able: Able) -> str:
    """`1 approval by ben or lea`, without them where nobody knows, or `ben and lea are asked; 1 approval`; mrkdwn."""
    needs = count(number, "approval")
    if able.are_asked:
        return f"{are(able.logins, 'asked')}{able.only}; {needs}"
    return f"{needs} by {foreign(notices.either(able.logins), 200)}{able.only}" if able.logins else needs


def ends(action: Action) -> str:
    """`ends tomorrow at 14:30`: when what a run has in force does, unless that is changed."""
    at = action.undo.at if action.undo is not None else None
    return f"ends {slack_date(at)}" if at is not None else "lasts until somebody undoes it"


def end_decided(extension: Extension) -> str:
    """`extended to today 15:44`, or `ends as before, today 14:44`: what became of a later end; "" for none."""
    if extension.outcome == "approved":
        return f"extended {f'to {slack_date(extension.at)}' if extension.at is not None else 'with no end'}"
    stayed = extension.before is not None and extension.outcome not in (None, "lapsed")
    return f"ends as before, {slack_date(extension.before or 0)}" if stayed else ""
