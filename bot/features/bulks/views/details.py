"""Each target of a bulk, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.block_kit import ids
from bot.block_kit.elements import actions, pages
from bot.block_kit.text import clip, context, section, sections, slack_date
from bot.clearance import RedactedView
from bot.features.bulks.views import messages, states
from bot.features.runs.views import questions, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import Action, Bulk, BulkTarget, Measure

PAGE = 40  # objects in Show each
_URGENCY: Mapping[str | None, int] = {None: 0, "Failure": 1, "Waiting": 2, "InProgress": 2}  # first in Show each


@dataclass(frozen=True)
class ShownTarget:
    """A target of a bulk that a person may see, with its action."""

    target: BulkTarget
    view: RedactedView
    action: Action | None = None
    in_force: Sequence[Measure] = ()  # by others, where this did not run


def still_in_force(action: Action | None, measures: Sequence[Measure]) -> Sequence[Measure]:
    """What of these is in force on the target of a run that did not run."""
    if action is None or action.undo is None or action.outcome not in states.NOT_RUN:
        return ()
    on, undone_by = {(one.kind, one.data) for one in action.target or ()}, action.undo.responder
    alike = [one for one in measures if one.undo is not None and one.undo.responder == undone_by]
    return [one for one in alike if not on.isdisjoint((target.kind, target.data) for target in one.target or ())]


def message(bulk: Bulk, shown: Sequence[ShownTarget], start: int, login: str, button: ButtonIds) -> Message:
    """What became of each object that `login` may see, from number `start` on, and how it can be undone.

    First what was refused or failed.
    """
    ordered = sorted(shown, key=lambda target: _URGENCY.get(target.target.action_status, 3))
    of_runs = [(one.action, one.view) for one in shown if one.action]
    note = states.quoted_note(of_runs) if len(of_runs) == bulk.total - bulk.refused else ""
    blocks: list[Block] = [section(f"{states.head(bulk, is_on_phone=True)}{note}")]  # each says itself until when
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
        others += withdraw if bulk.awaiting else messages.again_button(bulk, button)
    blocks += [actions(*others)] if others else []
    return Message(f"{states.name(bulk)}: {count(len(shown), 'target')}", tuple(blocks))


def ended_before(shown: Sequence[ShownTarget]) -> Block:
    """How what a form asks for again ended, when and why, and what it leaves out, since that was done; mrkdwn."""
    again = [(one.action, one.view) for one in shown if one.action and one.target.has_failed]
    refused = [(one.target, one.view) for one in shown if one.action is None and one.target.has_failed]
    done = [(one.action, one.view) for one in shown if one.action and not one.target.has_failed]
    left = [(mark, f"{now}, not asked again", "", on) for mark, now, _, on in states.each_state(done)]
    said = [*states.in_lines(states.each_state(again, refused, has_times=True)), *states.in_lines(left)]
    return context(clip("\n".join(said), states.SAID_LIMIT))


def _line(shown: ShownTarget, bulk: Bulk) -> str:
    target, view, action = shown.target, shown.view, shown.action
    if action is None:
        on = f"• {questions.named(view, states.named_target(target, view))}"
        state = f"refused {slack_date(bulk.created_at)}: {questions.reason_shown(view.text(target.message or ''))}"
    else:
        on = states.target_line(action, view, runs.MAX_TARGETS)
        why = runs.result_text(action, view) if target.outcome in ("failed", "denied") else ""
        now = f"{undo_state.summary(action, view)}{runs.waiting_end(action, view)}"
        still = "".join(f"; still contained {undo_state.until_by(one)}" for one in shown.in_force)
        state = f"{runs.state(action, view)}{f': {why}' if why else ''}{still}{now}"
    return questions.with_said(*f"{on} · {state}".splitlines())
