"""Replies in the thread of a card (end of a run, task log), and direct messages to whoever asked for a run."""

import re
from collections.abc import Sequence
from dataclasses import replace

from bot.block_kit.elements import actions
from bot.block_kit.notices import notice
from bot.block_kit.subjects import menu_row
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    code,
    context,
    defang_indicators,
    escape,
    first_of,
    foreign,
    person_name,
    section,
    sections,
)
from bot.clearance import RedactedView, Subject, withheld
from bot.features.alerts.views.details import first_observables
from bot.features.approvals import views as approvals
from bot.features.runs.views import runs, undo_state
from bot.features.runs.views.reports import ReportView, read_report
from bot.features.runs.views.runs import run_again_button
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Message
from core.common.words import count
from core.models import NOTE_LIMIT, SEVERITY_NAMES, Action, EndChange, Log

MAX_REPORT_LINES = 24  # less than a screen, without a file
FIRST_REPORT_LINES = 8  # of a longer one
MAX_REPORT_CHARACTERS = 1800
MAX_LABELS = 8
MAX_CHANGES = 10
NAME_LIMIT = 60  # characters of a file's name
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


def end_reply(
    action: Action,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
) -> Message:
    """The reply at an action's end: the result, labels, changes, the report's first lines, and how it is undone."""
    view = RedactedView(subject, clearance)
    report = read_report(action)
    blocks: list[Block] = [section(_headline(action, view))]
    if view.is_open:
        overrides = [f"{said}{approvals.note(action, view)}" for said in approvals.against(action, view)]
        blocks += _context(action, view) + sections(overrides)
        blocks += _result(action, report, view)
    if view.shows_reports:
        blocks += _labels(report) + _changes(report) + _report_lines(report)
    undo = runs.left(action, view).removeprefix(" · ").strip()
    if undo and undo != undo_state.undone(action):  # which the first line says
        blocks.append(context(undo[:1].upper() + undo[1:]))
    again = run_again_button(action, view, button)
    if buttons := [again] if again else undos.buttons(action, view, button):
        blocks.append(actions(*buttons))
    return Message(_push_text(action, view), tuple(blocks))


def _push_text(action: Action, view: RedactedView) -> str:
    """What a locked phone shows of an end: what ran on what, how it went, and what is left to do."""
    text = runs.plain_line(action, view)
    if view.is_open and runs.state_of(action) == "failed":
        text += f" {person_name(action.created_by)} can run it again."
    return clip(f"{text} · {runs.of_root(view.subject, view)}", MESSAGE_TEXT_LIMIT)


def report_file(action: Action, subject: Subject, clearance: int) -> tuple[str, str] | None:
    """Name and text of the whole report; None if the reply shows all of it, or it is withheld."""
    report = read_report(action)
    if not RedactedView(subject, clearance).shows_reports or report.truncated or report.removed or _is_short(report):
        return None
    name = _UNSAFE.sub("_", runs.title(action))[:NAME_LIMIT].strip("_") or "run"
    return f"{name}_report_{action.number}.txt", report.full


def _headline(action: Action, view: RedactedView) -> str:
    if not view.is_open:
        state = f"{runs.state(action, view)}, {withheld(view.subject.tlp)}"
        return f"{runs.mark(action, view)} A run on {action.object_id}: {state}"
    on = runs.on_object(action, view, foreign(runs.target(view), 200))
    by = f"{'asked' if action.dispatched_at is None else 'started'} by {person_name(action.created_by)}"
    said = f" {runs.state(action)}{on}, {by}"
    if undo_state.is_undone(action):
        is_of_all = "\n" not in runs.left(action, view)
        said = f"{on}, {by}{f': {undo_state.undone(action)}' if is_of_all else ''}"
    return f"{runs.mark(action, view)} *{runs.name(action)}*{said}."


def _context(action: Action, view: RedactedView) -> list[Block]:
    """What was given to the run, and who approved it."""
    note = [f"Note{why}"] if (why := runs.noted(action, view, NOTE_LIMIT)) else []
    parts = [*note, *runs.input_lines(action, view, runs.INPUT_LIMIT)][: runs.MAX_INPUTS]
    shown = f"{' · '.join(parts)}{runs.approved_by(action)}".removeprefix(" · ")
    return [context(shown)] if shown else []


def _result(action: Action, report: ReportView, view: RedactedView) -> list[Block]:
    if undo_state.is_undone(action) or not runs.result_text(action, view):
        return []
    if not view.shows_reports:  # in a shared channel the text is empty
        hint = f"`/responder actions {action.object_id}` shows it to those who may see it"
        return [section(f"Result: {withheld(view.highest_tlp)}; {hint}.")]
    if runs.state_of(action) in ("denied", "cancelled"):
        return [section(runs.result_or_why(action, view, 2500))]
    return [section(foreign(defang_indicators(report.message), 2500, lines=True) or " ")]


def _labels(report: ReportView) -> list[Block]:
    shown = first_of([code(label, 80) for label in report.labels], MAX_LABELS)
    return [context(" ".join(shown))] if shown else []


def _changes(report: ReportView) -> list[Block]:
    """What the run changed, one line each."""
    shown = first_of([f"• {foreign(defang_indicators(change), 200)}" for change in report.changes], MAX_CHANGES)
    return [section("\n".join(shown))] if shown else []


def _report_lines(report: ReportView) -> list[Block]:
    if report.removed:
        return [context("The report was deleted, since it is old.")]
    if report.truncated:
        return [context("The report is too long to be shown here.")]
    if not report.shown:
        return []
    most = MAX_REPORT_LINES if _is_short(report) else FIRST_REPORT_LINES
    facts = [f"• {foreign(name, 80)}: {foreign(defang_indicators(value), 400)}" for name, value in report.facts[:most]]
    blocks: list[Block] = [section("\n".join(facts))] if facts else []
    left = most - len(facts)
    for text in report.texts:
        lines = text.split("\n")[: max(left, 0)]
        left -= len(lines)
        if shown := foreign("\n".join(lines).replace("```", "ˋˋˋ"), MAX_REPORT_CHARACTERS, lines=True):
            blocks.append(section(f"```\n{shown}\n```"))
    # Says nothing of the file, since Slack may refuse it.
    return blocks if _is_short(report) else [*blocks, context("These are its first lines.")]


def _is_short(report: ReportView) -> bool:
    """Whether the reply shows all of it, which is less than a screen."""
    text = report.shown
    return len(escape(text)) <= MAX_REPORT_CHARACTERS and text.count("\n") < MAX_REPORT_LINES and not report.truncated


# --- who asked for a run --------------------------------------------------------------------------------------------


def told(
    action: Action,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    link: str = "",
    undoes: Action | None = None,
) -> Message:
    """The direct message to whoever asked for a run, at its end: who decided, how it went, and what they can do.

    Likewise, if it failed, to who approved it last, or what it was to undo.
    """
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notice(_headline(action, view))
    deed, decided = approvals.deed_on(action, view), approvals.decision(action).rstrip(".")
    state, by = runs.state_of(action), person_name(action.ended_by or "")
    ended = {
        "expired": f"Nobody answered: *{deed}* was not run",
        "cancelled": f"Withdrawn by {by}: *{deed}* was not run",
        "stopped": f"Stopped by {by}: *{deed}*",
        "failed": f"Failed: *{deed}*",
    }.get(state, f"{decided}: *{deed}* was not run")
    now, on_phone = approvals.left_by(action, view), approvals.left_by(action, view, is_on_phone=True)
    approved = runs.approved_by(action) if state == "failed" else ""
    if state == "failed" and undoes is not None:
        approved += f"; {runs.name(undoes)} may still be in force"
    head, push = f"{ended}{now}{approved}.", f"{ended}{on_phone}{approved}"
    if state == "succeeded":
        head, push = f"{decided}: *{deed}*{now or ', done'}.", f"{decided}{on_phone or ', done'}: {deed}"
    why = ""
    if state in ("denied", "cancelled", "failed") and (result := runs.result_text(action, view, 1000)):
        why = f' · "{runs.result_text(action, view)}"'
        head += f"\n>{result}".replace("\n", "\n>").replace("\n>>", "\n>")
    again = run_again_button(action, view, button, is_own=True)
    buttons = [*([again] if again else []), *undos.buttons(action, view, button)]
    blocks = [section(head), context(f"{runs.sign(view)}{runs.of_root(subject, view, link)}")]
    text = f"{push.replace('*', '')} · {runs.of_root(subject, view)}{why}"
    return Message(clip(text, MESSAGE_TEXT_LIMIT), (*blocks, *([actions(*buttons)] if buttons else [])))


def undone(
    together: Sequence[tuple[Action, Subject]], by: str, to: str, *, clearance: int, button: ButtonIds, link: str = ""
) -> Message:
    """The direct message `to` whoever asked for or approved runs that somebody else (`by`) undid at once; logins."""
    action, subject = together[0]
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notice(f"A run on {action.object_id} was undone, {withheld(subject.tlp)}")
    seen = [(one, RedactedView(its, clearance)) for one, its in together]
    deeds = list(dict.fromkeys(f"*{runs.name(one)}{runs.on_target(one, its)}*" for one, its in seen if its.is_open))
    asked_by = {end.asked_by for one, _ in together for end in one.extensions[:1] if end.outcome == "lapsed"}
    more = "; your request for more time is over too" if to in asked_by else ""
    said = f"Undone by {person_name(by)}: {' and '.join(deeds)}{more}"
    return _by_another(said, ". Nothing of it is in force any more.", view, link)


def moved(
    action: Action, subject: Subject, changed: EndChange, *, clearance: int, button: ButtonIds, link: str = ""
) -> Message:
    """The direct message to whoever asked for or approved a run whose end somebody else moved."""
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notice(f"A run on {action.object_id} was given another end, {withheld(subject.tlp)}")
    how, ends = undo_state.moved_in_short(action, changed)
    said = f"{how}: *{runs.name(action)}{runs.on_target(action, view)}*"
    return _by_another(said, f", {undo_state.until(changed.after)}.", view, link, on_phone=ends)


def _by_another(said: str, then: str, view: RedactedView, link: str, *, on_phone: str = "") -> Message:
    """What somebody else did, and `then` or, `on_phone`, what that shows; below it the alert or case; mrkdwn."""
    text = clip(f"{said.replace('*', '')}{on_phone} · {runs.of_root(view.subject, view)}", MESSAGE_TEXT_LIMIT)
    about = context(runs.named(view, link))
    return Message(text, (section(f"{said}{then}"), about))


def lost(view: RedactedView, by: str) -> Message:
    """The direct message to whoever worked on an alert that somebody else (`by`, a login) took."""
    return notice(f"{person_name(by)} took this from you: {runs.named(view)}.")


# --- logs, mentions -------------------------------------------------------------------------------------------------


def mention_reply(view: RedactedView, mention: str, counted: int, severity: int) -> Message:
    """Tells `mention`, such as whoever is on call, of a new alert, or of how many, with the newest."""
    level, what = SEVERITY_NAMES[severity].upper(), runs.of_root(replace(view.subject, severity=0), view)
    shown, push = f"{level} {what}" if view.is_open else f"{level} alert, {what}", "New: "
    shown = " · ".join([shown, *first_observables(view)])
    if counted:
        shown, push = f"{count(counted, f'more {level} alert')}{', newest' if counted > 1 else ''}: {what}", ""
    lists = "\nYour Home has the worst that nobody works on, *Select several* there lists all." if counted > 1 else ""
    return Message(f"{push}{shown}", (section(f"{mention} {runs.sign(view)}{shown}{lists}".strip()),))


def task_log_card(
    log: Log, actions: Sequence[Action], subject: Subject, *, clearance: int, button: ButtonIds
) -> Message:
    """A task log with a menu of the responders for logs; `subject` is the log."""
    view = RedactedView(subject, clearance)
    shown = foreign(view.text(log.message), 800, lines=True)
    by = f" by {person_name(log.created_by)}" if view.is_open else ""
    blocks: list[Block] = [
        section(f"*Task log* {log.id}{by}\n{shown or ' '}"),
        menu_row("case_task_log", log.id, button, placeholder="Run a responder on this log"),
    ]
    blocks += [context(runs.run_line(action, view)) for action in runs.newest_first(actions)[:10]]
    text = f"Task log{by}: {runs.on_what(subject, view)}"
    return Message(clip(text, MESSAGE_TEXT_LIMIT), tuple(blocks))
