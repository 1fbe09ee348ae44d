"""Each target of a bulk, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.block_kit import ids
from bot.block_kit.elements import actions, pages
from bot.block_kit.text import clip, context, section, sections, slack_date
from bot.clearance import RedactedView
from bot.features.approvals import views as approvals
from bot.features.bulks.views import messages, states
from bot.features.runs.views import questions, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import Action, Bulk, BulkTarget, Measure

PAGE = 40  # objects in Show each


@dataclass(frozen=True)
class ShownTarget:
    """A target of a bulk that a person may see, with its action."""

    target: BulkTarget
    view: RedactedView
    action: Action | None = None
    in_force: Sequence[Measure] = ()  # by others, where this did not run

    @property
    def is_refused(self) -> bool:
        """Whether core refused it, and nothing else covers it."""
        return self.target.has_failed and not (self.action or self.target.covered_by)


def still_in_force(action: Action | None, measures: Sequence[Measure]) -> Sequence[Measure]:
    """What of these is in force on the target of a run that did not run."""
    if action is None or action.undo is None or action.outcome not in states.NOT_RUN:
        return ()
    on, undone_by = {(one.kind, one.data) for one in action.target or ()}, action.undo.responder
    alike = [one for one in measures if one.undo is not None and one.undo.responder == undone_by]
    return [one for one in alike if not on.isdisjoint((target.kind, target.data) for target in one.target or ())]


def message(bulk: Bulk, shown: Sequence[ShownTarget], start: int, login: str, button: ButtonIds) -> Message:
    """What became of each object that `login` may see, from number `start` on, and how it can be undone.

    First what waits for approval or is under way, then what is in force, then what was refused or failed.
    """
    ordered = sorted(shown, key=lambda one: states.rank(one.action))
    of_runs = [(one.action, one.view) for one in shown if one.action]
    note = states.quoted_note(of_runs) if len(of_runs) == bulk.total - bulk.refused else ""
    blocks: list[Block] = [section(f"{states.head(bulk, is_on_phone=True)}{note}")]  # each says itself until when
    is_own = login == bulk.created_by
    page = ordered[start : start + PAGE]
    waiting = [one for one in page if one.action and runs.awaits_approval(one.action)]
    blocks += sections(_line(one, bulk) for one in waiting)
    if bulk.awaiting and is_own:
        blocks.append(actions(*runs.bulk_buttons(bulk.id, None, button, "Withdraw", number=bulk.awaiting)[1:]))
    blocks += _with_undo(page[len(waiting) :], bulk, button)
    if hidden := bulk.total - len(shown):
        more = f"{hidden} more that you may not see, or that are gone."
        blocks.append(context(more if shown else "You may see none of its targets."))
    others = pages(ids.BULK_DETAILS, Intent("bulk_details", bulk.id), start, PAGE, len(ordered), button)
    others += messages.again_button(bulk, button) if is_own and not bulk.awaiting else []
    blocks += [actions(*others)] if others else []
    return Message(f"{states.name(bulk)}: {count(len(shown), 'target')}", tuple(blocks))


def _with_undo(shown: Sequence[ShownTarget], bulk: Bulk, button: ButtonIds) -> list[Block]:
    """What became of each of these, with the buttons that undo this one alone below it."""
    blocks, lines = list[Block](), list[str]()
    for one in shown:
        lines.append(_line(one, bulk))
        if one.action is not None and (undo_buttons := undos.buttons(one.action, one.view, button)):
            blocks += [*sections(lines[:-1]), section(lines[-1]), actions(*undo_buttons)]
            lines.clear()
    return [*blocks, *sections(lines)]


def ended_before(shown: Sequence[ShownTarget], asked: Sequence[ShownTarget]) -> list[Block]:
    """How what a form asks for again ended, when and why, and what it leaves out: what was done, or can't run; mrkdwn.

    Not what was denied or undone, as the form's rows say that.
    """
    again = [(one.action, one.view) for one in asked if one.action and not one.action.decided_against]
    refused_again = [(one.target, one.view) for one in asked if one.is_refused]
    refused_now = [(one.target, one.view) for one in shown if one.is_refused and one not in asked]
    done = [(one.action, one.view) for one in shown if one.action and not one.target.has_failed]
    left = [(mark, f"{now}, not asked again", *why_on) for mark, now, *why_on in states.each_state(done, refused_now)]
    said = [*states.in_lines(states.each_state(again, refused_again, has_times=True)), *states.in_lines(left)]
    return [context(clip("\n".join(said), states.SAID_LIMIT))] if said else []


def _line(shown: ShownTarget, bulk: Bulk) -> str:
    target, view, action, before = shown.target, shown.view, shown.action, ""
    if action is None:
        on = f"• {questions.named(view, runs.named_targets(target.target, view))}"
        state = f"refused {slack_date(bulk.created_at)}: {states.why_refused(target, view)}"
    else:
        on = states.target_line(action, view)
        before = approvals.happened(action, view, is_kept=False) if runs.awaits_approval(action) else ""
        why = runs.result_text(action, view) if target.outcome in ("failed", "denied") else ""
        left = runs.left(action, view)
        still = "".join(f"; still contained {undo_state.until_by(one)}" for one in shown.in_force)
        on += runs.approved_by(action) if left else ""
        ended = "" if left and action.outcome == "succeeded" else runs.state(action, view)
        state = f"{ended}{f': {why}' if why else ''}{still}{left}{runs.waiting_end(action, view)}".removeprefix(" · ")
    return questions.with_said(*f"{on} · {state}\n{before}".splitlines())
