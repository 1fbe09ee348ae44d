"""More time for several runs of a bulk: what asks for it, and how that was decided."""

from collections.abc import Sequence

from bot.block_kit import notices
from bot.block_kit.elements import actions
from bot.block_kit.text import MESSAGE_TEXT_LIMIT, clip, context, first_of, person_name, section, sections
from bot.clearance import view_of_all
from bot.features.approvals import views as approvals
from bot.features.bulks.views import states
from bot.features.bulks.views.states import End, Run
from bot.features.runs.views import questions, runs, undo_state
from bot.message import Block, ButtonIds, Message
from core.common.grouping import grouped
from core.common.words import count
from core.models import BulkCounts, Person


def request(bulk: BulkCounts, of_request: Sequence[End], person: Person | None, *, button: ButtonIds) -> Message:
    """What asks `person` for more time for several runs of a bulk, or tells them or a thread how that was decided.

    `of_request` are all of that request, each with what its readers may see.
    """
    bulk = bulk.model_copy(update={"severity": None})  # which is that of other runs, those that wait for approval
    ends = [one for one in of_request if one[2].outcome is None] or of_request
    if not ends:
        return notices.notice(f"*{states.name(bulk)}*: more time was asked for again later.")
    extension = ends[0][2]
    seen = states.visible(ends)
    if extension.outcome is None:
        by, why = f"Asked by {person_name(extension.asked_by)}", states.quoted_note((), ends)
        longer = undo_state.longer(extension.at, extension.before)
        keep = f"keep {states.name(bulk)} on {count(len(ends), 'target')} {longer}"
        before = ["denied before" for *_, end in ends if end.denials]
        text = states.asks_in_short(bulk, [one[:2] for one in seen], len(ends), keep, by, why, *before)
        said = context(undo_state.needed([one[2] for one in ends]))
    else:
        said = section(clip("\n".join(decisions(ends)), questions.LINES_LIMIT))
        text = " ".join(decided_in_short(ends, states.up_to(bulk, seen)))
    blocks = [*asked(ends, states.MOST_NAMED), said]
    able = [run for run, view, end in ends if person and approvals.may_decide(run, person, view.subject, end)]
    if able and extension.outcome is None:
        blocks.append(actions(*runs.bulk_buttons(bulk.id, extension, button, "Deny")))
    return Message(clip(text, MESSAGE_TEXT_LIMIT), tuple(blocks))


def asked(ends: Sequence[End], most: int) -> list[Block]:
    """Who asks for more time and why, and `most` of the targets that may be seen, until when each is to be kept."""
    asks = approvals.asks_to_keep(ends[0][0], ends[0][2], len(ends)) + states.quoted_note((), ends, "\n")
    of_each = first_of(rows(ends, states.visible(ends)), most, len(ends)) if most else ()
    return sections([f"{asks}\n{warned(ends, has_rows=most > 0)}".rstrip(), *of_each])


def decisions(ends: Sequence[End], *, has_ends: bool = False) -> list[str]:
    """Who decided on these requests for more time, on which and why, denials first, or until when; mrkdwn."""
    found, of_all = dict[tuple[str, str], list[Run]](), view_of_all([view for _, view, _ in ends])
    for run, view, end in sorted(ends, key=lambda one: one[2].outcome != "denied"):
        by, why = approvals.later_end_decision(run, end), runs.why(end.message, of_all, approvals.REASON_LIMIT)
        by = ", ".join(filter(None, [by, undo_state.end_decided(end) if has_ends else ""]))
        found.setdefault((by, why), []).append((run, view))
    return [f"{by}: {states.seen_targets(on)}{why}." for (by, why), on in found.items()]


def decided_in_short(ends: Sequence[End], level: str = "") -> list[str]:
    """`More time of 1 hour denied by ben: Isolate on LT-0198 ends in 52 minutes.`: likewise, for a phone; mrkdwn.

    The `level` of all where all were decided alike.
    """
    of_all, said = view_of_all([view for _, view, _ in ends]), list[str]()
    denials_first = sorted(ends, key=lambda one: one[2].outcome != "denied")
    found = grouped(((approvals.later_end_in_short(one[0], one[2])[0], one[2].message), one) for one in denials_first)
    for (_, why), each in found.items():
        by, then = approvals.later_end_in_short(each[0][0], *(end for *_, end in each))
        on = states.seen_targets([one[:2] for one in each])
        of = level if len(found) == 1 else ""
        said.append(states.sentence(by, f"{runs.name(each[0][0])} on {on}{then}{of}", states.quoted(why, of_all)))
    return said


def warned(ends: Sequence[End], *, has_rows: bool = True) -> str:
    """Lines on how many are closed, and on who denied more time for all of them before; mrkdwn.

    Of one that `has_rows` its row says both.
    """
    if ends[0][2].outcome is not None or (has_rows and len(ends) == 1):
        return ""
    return f"{approvals.closed_among([one[:2] for one in ends])}{_denied_of_all(ends)}"


def _denied_of_all(ends: Sequence[End]) -> str:
    """The lines on who denied more time before, if they are the same of several."""
    return states.said_of_all([runs.denied_before(end, view) for _, view, end in ends]) if len(ends) > 1 else ""


def rows(ends: Sequence[End], seen: Sequence[End]) -> list[str]:
    """Each target of these that was `seen`, with its end now and then; mrkdwn."""
    found, is_asked, before = list[str](), ends[0][2].outcome is None, _denied_of_all(ends)
    for run, view, end in seen:
        denied = "" if before or not is_asked else runs.denied_before(end, view)
        then = f"; then *{undo_state.until(end.at)}*" if is_asked and end.at is not None else ""
        now = undo_state.end_decided(end) or f"now it {undo_state.ends(run)}"
        now = f" · {now}" if undo_state.is_in_force(run) else runs.left(run, view)
        line = f"{states.target_line(run, view)}{now}{then}"
        found.append(questions.with_said(line, approvals.closed(view, end.asked_at), denied))
    return found
