"""The messages of a bulk: in its channel and thread, and to who decides and who asked."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.block_kit import ids, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.text import (
    DAY_AND_TIME,
    MESSAGE_TEXT_LIMIT,
    clip,
    context,
    first_of,
    foreign,
    people,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import RedactedView, view_of_all
from bot.features.approvals import views as approvals
from bot.features.bulks.views import more_time, states
from bot.features.bulks.views.states import Asked, End, Listed, Refused
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.grouping import grouped
from core.common.words import count
from core.models import Action, BulkCounts, EndChange, Extension, Person


def decided_in_part(listed: Sequence[tuple[Action, Any, Extension | None]]) -> list[str]:
    """How somebody has decided on some of these while others wait: `Approved`, once all that has run, or `Denied`."""
    decided = [(states.decision(run, end), end is None and runs.is_open(run)) for run, _, end in listed]
    hows = states.DECISIONS if any(states.waits(run, end) for run, _, end in listed) else ()
    return [how for how in hows if {is_open for by, is_open in decided if by.startswith(how)} == {False}]


def told_in_part(
    bulk: BulkCounts,
    listed: Sequence[Asked],
    how: Sequence[str],
    able: Sequence[str],
    button: ButtonIds,
    *,
    has_end: bool,
) -> Message:
    """Tells who asked who has decided so on which of these and why, and which still wait for one who is `able`.

    Once none does, and no run is under way, another message tells all that if there `has_end` to be told.
    """
    is_more_time = listed[0][2] is not None
    still = [(run, view) for run, view, end in listed if states.waits(run, end)]
    if has_end and not still and (is_more_time or not states.open_runs(bulk)):
        on = f"{'more time for ' if is_more_time else ''}{states.name(bulk)} on {count(len(listed), 'target')}"
        return notices.notice(f"{' and '.join(how)} in part: {on}, see below.")
    by_how = [one for one in listed if states.decision(one[0], one[2]).startswith(tuple(how))]
    each = _decided_in_short(bulk, by_how if has_end or not is_more_time else listed)
    waits = _still_waiting(still, able)
    told = notices.notice(f"{'; '.join(one.rstrip('.') for one in each)}. {waits}".rstrip())
    if is_more_time:
        ends = more_time.decisions([(run, view, end) for run, view, end in by_how if end], has_ends=True)
        return Message(told.text, tuple(sections(filter(None, [f"More time for *{states.name(bulk)}*", *ends, waits]))))
    if "Approved" not in how:
        return told
    return Message(told.text, _so_far(bulk, [one[:2] for one in by_how], waits, button))


def _still_waiting(listed: Listed, able: Sequence[str]) -> str:
    """`Still waiting: hostname LT-0901; ben or lea decides.`, or "" for none; mrkdwn."""
    return f"Still waiting: {states.seen_targets(listed)}{_who_decides(able)}." if listed else ""


def _who_decides(able: Sequence[str]) -> str:
    """`; ben or lea decides`, or "" where nobody can; mrkdwn."""
    return f"; {foreign(notices.either(able), NAME_LIMIT)} decides" if able else ""


def _so_far(bulk: BulkCounts, listed: Listed, waits: str, button: ButtonIds) -> tuple[Block, ...]:
    """What became of these of its runs that may be seen, and what still waits, with what ends them."""
    seen = states.visible(listed)
    lines = [f"{states.head(bulk, seen)}.", *states.by_state(seen), *([waits] if waits else [])]
    buttons = actions(*end_buttons(bulk, button, has_again=False), states.show_each(bulk, button))
    return (*sections(first_of(lines, states.MOST_NAMED)), buttons)


def _decided_in_short(bulk: BulkCounts, listed: Sequence[Asked]) -> list[str]:
    """`Denied by lea, not run: Isolate on LT-0198 for 1 hour · "known tool".`: who decided, denials first; mrkdwn."""
    if ends := [(run, view, end) for run, view, end in listed if end]:
        return more_time.decided_in_short(ends, states.level_of(bulk, [one[:2] for one in ends]))
    lasts, said = undo_state.lasts(bulk.undo_after_minutes), list[str]()
    found = grouped(((states.decision(run, None), runs.reason(run)), (run, view)) for run, view, _ in listed)
    for (by, why), on in sorted(found.items(), key=lambda one: one[0][0].startswith("Approved")):
        targets = f"{states.name(bulk)} on {states.seen_targets(on)}"
        why = states.quoted(why, view_of_all([view for _, view in on]))
        said.append(states.sentence(states.on_phone(by), f"{targets}{lasts}{states.level_of(bulk, on)}", why))
    return said


def progress(
    bulk: BulkCounts,
    named: Listed = (),
    refused: Refused = (),
    later: Mapping[str, Sequence[End]] | None = None,
    *,
    button: ButtonIds,
    reader: Person | None = None,
    reminded: str = "",
    able: Sequence[str] = (),
) -> Message:
    """How far a bulk is: what waits, then what became of each of `named` and `refused`, which its readers may see.

    `later` are the requests for more time that wait. `reader` is who gets it in a direct message, which names the rest,
    too; of one who decides on nothing of it, as who asked for it, nothing is asked: it says who is `able` to.
    """
    is_for_requester = reader is None or reader.login == bulk.created_by
    waiting = [one for one in named if runs.awaits_approval(one[0])]
    read = waiting if reader is not None else ()
    undone = f"⚠️ *{bulk.not_released} not undone*. *Show each* says why." if bulk.not_released else ""
    blocks: list[Block] = sections(filter(None, [states.head(bulk, named), undone]))
    if bulk.awaiting:
        others = "" if reader is None else _others_decide(waiting, reader, able)
        blocks += _asks(bulk, waiting, read, reminded, others)
        blocks += _deeds(bulk, button, can_decide=not others, can_withdraw=is_for_requester)
    for ends in (later or {}).values():
        blocks += _asks_for_more_time(bulk, [one for one in ends if one[2].outcome is None], reader, button)
    elements = end_buttons(bulk, button, has_again=is_for_requester)
    blocks += _became(bulk, named, refused)
    blocks += _about_again(bulk, elements[-1:] if is_for_requester else ())
    push = push_text(bulk, read) if bulk.awaiting else states.head(bulk, is_on_phone=True)
    whose = context(f"{states.who_asked(bulk, named)} · {bulk.id}")
    return Message(push, (*blocks, whose, actions(*elements, states.show_each(bulk, button))))


def _deeds(bulk: BulkCounts, button: ButtonIds, *, can_decide: bool, can_withdraw: bool) -> list[Block]:
    review, withdraw = runs.bulk_buttons(bulk.id, None, button, "Withdraw", number=bulk.awaiting)
    shown = [*([review] if can_decide else []), *([withdraw] if can_withdraw else [])]
    return [actions(*shown)] if shown else []


def _others_decide(waiting: Listed, reader: Person, able: Sequence[str]) -> str:
    """`; ben or lea decides`, who are `able` to, where the reader decides on none of these; else ""; mrkdwn."""
    is_own = any(approvals.may_decide(run, reader, view.subject) for run, view in waiting)
    return "" if is_own else _who_decides(able)


def _asks(bulk: BulkCounts, waiting: Listed, read: Listed, reminded: str, others: str) -> list[Block]:
    """What waits for approval and until when: each that the reader of a direct message has `read`, or in one line.

    `others` says who decides on it where that reader doesn't; mrkdwn.
    """
    by_when = f" Answer by {slack_date(bulk.expires_at, DAY_AND_TIME)}." if bulk.expires_at else ""
    asked = states.what_is_asked(bulk, states.of_waiting(bulk, read), read)
    review = f". *Review* names {'it' if bulk.awaiting == 1 else 'each'} to whoever may see it"
    unnamed = ", which you may not see" if others else review
    on = f": {runs.distinct_targets(waiting, bulk.awaiting)}" if waiting else unnamed
    asks = f"⏳ *{asked}*{'' if read else on}{others}.{by_when}{reminded and f' {reminded}'}"
    note = states.quoted_note(waiting if len(waiting) == bulk.awaiting else read, between="\n")
    which = "" if read else _unless_all([one for one in waiting if approvals.closed_by_now(one[1])], len(waiting))
    closed = "" if len(read) == 1 else f"\n{approvals.closed_among(waiting, which)}".rstrip()  # which its row says
    warned = "" if read else _warned(waiting, bulk.awaiting)
    rows = first_of([states.row(*one) for one in read], states.MOST_NAMED)
    return [section(f"{asks}{note}{closed}{warned}"), *sections(rows)]


def _asks_for_more_time(bulk: BulkCounts, ends: Sequence[End], reader: Person | None, button: ButtonIds) -> list[Block]:
    """Likewise what is to end later; who decides on that is asked in a message of its own."""
    if not ends:
        return []
    deeds = ["Deny", "Withdraw"] if reader is None else []
    if reader is not None and reader.login == ends[0][2].asked_by:
        deeds = ["Withdraw"]
    asked = more_time.asked(ends, runs.MAX_TARGETS if deeds else 0)
    needed = context(undo_state.needed([one[2] for one in ends]))
    return [*asked, needed, actions(*runs.bulk_buttons(bulk.id, ends[0][2], button, *deeds))]


def _became(bulk: BulkCounts, named: Listed, refused: Refused) -> list[Block]:
    """What became of each that does not wait for approval, and who denied more time."""
    listed = [one for one in named if not runs.awaits_approval(one[0])]
    said = states.by_state(listed, refused, bulk)
    denied = states.more_time_denied([one for one in named if undo_state.later_end(one[0]) is None])  # else it waits
    return sections(first_of([*said, *states.withheld(bulk, named), *denied], states.MOST_NAMED))


def _about_again(bulk: BulkCounts, again: Iterable[Mapping[str, Any]]) -> list[Block]:
    """That it was asked for again, or from when the button that asks `again` works."""
    if bulk.retried_by:
        return [context(f"Asked for again as {bulk.retried_by}.")]
    if bulk.free_at is None or states.open_runs(bulk):
        return []
    at = slack_date(bulk.free_at, DAY_AND_TIME)
    return [context(f"*{one['text']['text']}* works from {at} for what a limit refused.") for one in again]


def _warned(waiting: Listed, total: int) -> str:
    """Names those that somebody denied or undid before, and who, and those that are contained already; mrkdwn."""
    before = [approvals.decided_before(*one) for one in waiting]
    contained = [one for one in waiting if undo_state.contained(*one)]
    which = {"contained": _unless_all(contained, total)}
    for what in runs.DECIDED:
        on = [one for one, (how, _) in zip(waiting, before, strict=True) if how == what]
        which[what] = f" by {people(by[0] for how, by in before if how == what)}{_unless_all(on, total)}"
    return questions.warned([how for how, _ in before], contained, which=which)


def _unless_all(some: Listed, total: int) -> str:
    """These in brackets, unless they are all; mrkdwn."""
    return f" ({runs.distinct_targets(some)})" if len(some) < total else ""


def end_buttons(bulk: BulkCounts, button: ButtonIds, *, has_again: bool) -> list[dict[str, Any]]:
    """Extend all of what ends by itself, Undo all of what can be undone; once it is over, what runs it again."""
    can_undo = bulk.undo_after_minutes is not None and bulk.timed + bulk.endless + bulk.not_released
    can_extend = bulk.timed > bulk.later_ends  # those that wait are decided in Review
    found = [("Extend all", ids.BULK_EXTEND, can_extend), ("Undo all", ids.BULK_UNDO, can_undo)]
    shown = [
        button_element(label, what, button(Intent(what, bulk.id)), of=bulk.id)
        for label, what, is_shown in found
        if is_shown
    ]
    return [*shown, *(again_button(bulk, button) if has_again else ())]


def again_button(bulk: BulkCounts, button: ButtonIds) -> list[dict[str, Any]]:
    """Once it is over, what asks again for what was not done, or was undone by somebody."""
    has_failed = bool(bulk.refused or bulk.outcomes or bulk.undone_by)
    was_asked = bulk.approved_by or bulk.outcomes.keys() & states.NOT_RUN or not bulk.counts
    label, what = "Ask again" if was_asked else "Run again", button(Intent(ids.BULK_RETRY, bulk.id))
    can_repeat = has_failed and not states.open_runs(bulk) and not bulk.retried_by
    return [button_element(label, ids.BULK_RETRY, what, of=bulk.id)] if can_repeat else []


def ended(bulk: BulkCounts, named: Listed = ()) -> Message:
    """The one message in the thread, once all of its runs have ended."""
    whose = f" · {states.who_asked(bulk, named)}."
    return Message(f"{states.head(bulk, is_on_phone=True)}{whose}", (section(f"{states.head(bulk, named)}{whose}"),))


def ended_for(
    bulk: BulkCounts, listed: Listed, refused: Refused, undone: Listed, reader: str, button: ButtonIds
) -> Message:
    """That to who asked for them: who decided, on which targets, for how long; or who has `undone` some.

    A `reader` who approved them hears only that, or that some failed, and asks for nothing again.
    """
    seen = states.visible(listed)
    found = states.each_state(seen, refused, is_on_phone=True)
    asked = states.what_is_asked(bulk, states.how_many(bulk, bulk.total), seen)
    what = f"{asked}: {states.result(bulk, is_on_phone=True)}"
    text = f"{states.name(bulk)} on {what}."
    if found:
        (_, by, why, on), *others = found
        is_all = not others and len(seen) == bulk.total
        asked = states.what_is_asked(bulk, on, seen) if is_all else on
        news = states.sentence(by, f"{states.name(bulk)} on {asked}", why)
        rest = [f"In all, {what}.", *(states.sentence(by, on, why) for _, by, why, on in others)]
        text = news if is_all else " ".join([news, *rest])
        if is_all and "expired" in bulk.outcomes:
            lasts = undo_state.lasts(bulk.undo_after_minutes)
            text = f"Nobody answered: {states.name(bulk)} on {on}{lasts} was not run{states.up_to(bulk, seen)}."
    is_said = bulk.total in bulk.outcomes.values()  # by the text, which names no time then
    by_state = first_of([*states.by_state(seen, refused), *states.withheld(bulk, seen)], states.MOST_NAMED)
    lines = [text] if is_said else [f"{states.head(bulk, seen)}.", *by_state]
    buttons = actions(*end_buttons(bulk, button, has_again=reader == bulk.created_by), states.show_each(bulk, button))
    text = _undone(bulk, undone) if undone else clip(text, MESSAGE_TEXT_LIMIT)
    return Message(text, (*sections(lines), buttons))


def see_below(bulk: BulkCounts, undone: Listed) -> Message:
    """The same, in a line, for who reads what became of all in a later message."""
    told = _undone(bulk, undone).removesuffix(".") if undone else states.head(bulk, is_on_phone=True)
    return notices.notice(f"{told}, see below.")


def undone(bulk: BulkCounts, listed: Listed, reader: str) -> Listed:
    """The runs that somebody undid and `reader` is notified of, the first first, once none is being undone.

    Threads tell which were only marked as ended.
    """
    undos = [action.undo.status for action, _ in listed if action.undo is not None]
    if "running" in undos or undos.count("undone") > bulk.undone:  # the next event tells it
        return []
    by_run = [one for one in listed if one[0].undone_by and one[0].undo and one[0].undo.action_id]
    ended = [one for one in by_run if reader in undo_state.notified(one[0].undone_by, one[0])]
    return sorted(ended, key=lambda one: (one[0].measure and one[0].measure.ended_at) or 0)


def _undone(bulk: BulkCounts, ended: Listed) -> str:
    """Who undid these runs; mrkdwn."""
    who = people(action.undone_by for action, _ in ended)
    said = f"Undone by {who}: {states.name(bulk)} on {runs.distinct_targets(ended)}"
    return f"{clip(said, states.SAID_LIMIT)}{states.level_of(bulk, ended)}."


def moved(bulk: BulkCounts, listed: Sequence[tuple[Action, RedactedView, EndChange]], button: ButtonIds) -> Message:
    """The direct message to whoever asked for or approved runs of it whose ends somebody else moved at once."""
    on, (run, _, changed), ends = [one[:2] for one in listed], listed[0], [one.after for *_, one in listed]
    how, then = undo_state.moved_in_short(run, changed)
    said = f"{how}: {states.name(bulk)} on {states.seen_targets(on)}"
    until = undo_state.until(None) if None in ends else states.until(*filter(None, ends)).strip()
    then = "" if until.endswith("later") else then
    text = f"{said}{then}{states.level_of(bulk, on)}."
    return Message(text, (section(f"{said}, {until}."), actions(states.show_each(bulk, button))))


def ask(bulk: BulkCounts, who: str, *, is_broadcast: bool, is_later_end: bool = False) -> Message:
    """Mentions in the thread those who are asked to decide."""
    name, review = states.name(bulk), "Its button" if is_later_end else "*Review*"
    push = f"{approvals.level(bulk.severity)}: more time for {name}?" if is_later_end else push_text(bulk)
    what = f"More time for *{name}*" if is_later_end else f"*{name}* on {states.what_is_asked(bulk)}"
    return Message(push, (section(f"{who} {what}. {review} above shows each.".strip()),), is_broadcast)


def push_text(bulk: BulkCounts, waiting: Listed = ()) -> str:
    """What a locked phone shows of a bulk that waits for approval."""
    hows = [f"{how} before" for one in waiting if (how := approvals.decided_before(*one)[0])]
    hows += ["contained already" for one in waiting if undo_state.contained(*one)]
    asked = f"Asked {'again ' if bulk.retries else ''}by {person_name(bulk.created_by)}"
    deed = f"{states.name(bulk)} on {states.of_waiting(bulk, waiting)}{undo_state.lasts(bulk.undo_after_minutes)}"
    return states.asks_in_short(bulk, waiting, len(waiting), deed, asked, states.quoted_note(waiting), *hows)


def not_undone(bulk: BulkCounts, listed: Listed, button: ButtonIds) -> Message:
    """Tells in a direct message which of its runs were to be undone and were not."""
    on = states.seen_targets(listed)
    text = f"⚠️ Not undone: {states.name(bulk)} on {on} may still be in force{states.level_of(bulk, listed)}."
    return Message(text, (section(f"{text} *Show each* says why."), actions(states.show_each(bulk, button))))


def late(bulk: BulkCounts) -> Message:
    """Tells the thread that core could not undo some of its runs, or that it has done so since."""
    if bulk.not_released:
        what = f"{bulk.not_released} of {bulk.total} were to be undone and were not. They may still be in force."
        return notices.notice(f"⚠️ *{states.name(bulk)}*: {what} *Show each* says why, and has *Undo now*.")
    return notices.notice(f"*{states.name(bulk)}*: all that was to be undone is.")
