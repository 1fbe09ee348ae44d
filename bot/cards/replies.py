"""Replies in the thread of a card (end of a run, approval request, task log), and direct messages to watchers."""

from collections.abc import Sequence
from typing import Any

from bot.cards import approvals, ids, questions, runs
from bot.cards.alert import GREY, responder_menu
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.reports import ReportView, read_report
from bot.cards.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    code,
    context,
    count,
    defang_indicators,
    foreign,
    person_name,
    plain,
    section,
    slack_date,
)
from bot.redaction import RedactedView, Subject, withheld
from core.models import Action, Log

MAX_REPORT_LINES = 8
MAX_REPORT_CHARACTERS = 1200
MAX_LABELS = 8
MAX_CHANGES = 10
GREEN, RED, AMBER = "#3a9b5c", "#c62f3b", "#d9a441"


def end_reply(action: Action, subject: Subject, *, clearance: int, button: ButtonIds, confirm: str = "") -> Message:
    """The reply at an action's end: the result, labels, changes, the report's first lines.

    `confirm` is the policy's text, which "Run again" asks to confirm.
    """
    view = RedactedView(subject, clearance)
    report = read_report(action)
    blocks: list[Block] = [section(_headline(action))]
    blocks += _result(action, report, view)
    if view.shows_reports:
        blocks += _labels(report) + _changes(report) + _report_lines(report)
    blocks += _run_again_button(action, view, button, confirm)
    return Message(clip(runs.plain_line(action, view), MESSAGE_TEXT_LIMIT), tuple(blocks), _color(action))


def report_file(action: Action, subject: Subject, *, clearance: int) -> tuple[str, str] | None:
    """Name and text of the whole report; None if the reply shows all of it, or it is withheld."""
    report = read_report(action)
    if not RedactedView(subject, clearance).shows_reports or _is_short(report.full):
        return None
    return f"report-{action.id[1:]}.txt", report.full


def _headline(action: Action) -> str:
    name = foreign(action.responder_name, runs.NAME_LIMIT)
    state = f"{runs.state(action)} on {action.object_id}"
    return f"{runs.MARKS[action.status]} *{name}* {state}, started by {person_name(action.created_by)}."


def _result(action: Action, report: ReportView, view: RedactedView) -> list[Block]:
    if not report.message:
        return []
    if not view.shows_reports:
        hint = f"`/responder actions {action.object_id}` shows it to those who may see it"
        return [section(f"Result: {withheld(view.highest_tlp)}; {hint}.")]
    return [section(foreign(report.message, 2500, lines=True) or " ")]


def _labels(report: ReportView) -> list[Block]:
    """The report's taxonomies."""
    shown = [code(label, 80) for label in report.labels[:MAX_LABELS]]
    left = len(report.labels) - len(shown)
    return [context(" ".join(shown) + (f" and {left} more" if left > 0 else ""))] if shown else []


def _changes(report: ReportView) -> list[Block]:
    """What the run changed, one line each."""
    shown = [f"• {foreign(defang_indicators(change), 200)}" for change in report.changes[:MAX_CHANGES]]
    left = len(report.changes) - len(shown)
    if left > 0:
        shown.append(f"and {left} more")
    return [section("\n".join(shown))] if shown else []


def _report_lines(report: ReportView) -> list[Block]:
    if report.truncated:
        return [context("The report is too long to be listed; core keeps it whole.")]
    # Says nothing of the file, since Slack may refuse it.
    whole: list[Block] = [] if _is_short(report.full) else [context("The report is longer; core keeps it whole.")]
    if not report.shown:
        return whole
    first = "\n".join(report.shown[: MAX_REPORT_CHARACTERS * 2].split("\n")[:MAX_REPORT_LINES])
    shown = foreign(first.replace("```", "ˋˋˋ"), MAX_REPORT_CHARACTERS, lines=True)
    return [section(f"```\n{shown or ' '}\n```"), *whole]


def _is_short(full: str) -> bool:
    return len(full) <= MAX_REPORT_CHARACTERS and full.count("\n") < MAX_REPORT_LINES


def _run_again_button(action: Action, view: RedactedView, button: ButtonIds, confirm: str) -> list[Block]:
    """Only after a failure; after a success the menu will do."""
    if action.status != "Failure":
        return []
    again: dict[str, Any] = {
        "type": "button",
        "action_id": ids.RUN_AGAIN,
        "text": plain("Run again"),
        "value": button(Intent("run_again", action.id, "confirmed" if confirm else "")),
    }
    if confirm or runs.given_inputs(action):
        again["confirm"] = questions.confirm_dialog(action, view, confirm)
    return [{"type": "actions", "elements": [again]}]


def _color(action: Action) -> str:
    return {"Success": GREEN, "Failure": RED}.get(action.status, GREY)


# --- approval -------------------------------------------------------------------------------------------------------


def approval_request(
    action: Action,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    now_ms: int,
    confirm: str = "",
    mention: str = "",
) -> Message:
    """Who asks for what, the policy's text, until when; with buttons and `mention` while it is open.

    Core decides who may approve: anybody with manageAction but the requester. The mention is in the first block, since
    Slack notifies nobody who is mentioned in an attachment.
    """
    view = RedactedView(subject, clearance)
    title = foreign(view.title(), 200)
    name = foreign(action.responder_name, runs.NAME_LIMIT)
    text = f"*{person_name(action.created_by)}* asks to run *{name}* on {subject.id} ({title})."
    is_open = runs.awaits_approval(action) and action.approval is not None and action.approval.expires_at > now_ms
    blocks: list[Block] = [section(f"{mention} {text}" if mention and is_open else text)]
    if given := approvals.inputs(action, view):
        blocks.append(section(given))
    if confirm:
        blocks.append(section(foreign(confirm, 1000, lines=True) or " "))
    blocks.append(context(_decision(action, is_open, view)))
    if runs.can_be_approved(action, view, now_ms):
        blocks.append({"type": "actions", "elements": runs.decision_buttons(action, button)})
    push = f"Approval needed: {name} on {subject.id}, asked by {person_name(action.created_by)}"
    return Message(clip(push, MESSAGE_TEXT_LIMIT), tuple(blocks), AMBER if is_open else _color(action))


def _decision(action: Action, is_open: bool, view: RedactedView) -> str:
    approval = action.approval
    if approval is None:
        return "No approval is needed."
    approvers = ", ".join(person_name(login) for login in approval.approved_by[:20])
    if is_open:
        ends = slack_date(approval.expires_at, "{date_short_pretty} {time}")
        needs = f"Needs {count(approval.needed - len(approval.approved_by), 'approval')}"
        by = f" · approved by {approvers}" if approval.approved_by else ""
        return f"{needs}{by} · expires {ends}"
    if len(approval.approved_by) >= approval.needed:
        return f"Approved by {approvers}."
    if action.status == "Deleted":
        return "Cancelled before it was decided."
    return runs.result_text(action, view) or "Expired, nothing ran."


# --- logs, watchers -------------------------------------------------------------------------------------------------


def task_log_card(
    log: Log, actions: Sequence[Action], subject: Subject, *, clearance: int, button: ButtonIds, now_ms: int
) -> Message:
    """A task log with a menu of the responders for logs; `subject` is Subject.log(log, case)."""
    view = RedactedView(subject, clearance)
    shown = foreign(log.message, 800, lines=True) if view.is_open else withheld(subject.tlp)
    blocks: list[Block] = [
        section(f"*Task log* {log.id} by {person_name(log.created_by)}\n{shown or ' '}"),
        {
            "type": "actions",
            "block_id": ids.MENU_BLOCK + button(Intent("menu", log.id, "case_task_log")),
            "elements": [responder_menu("Run a responder on this log")],
        },
    ]
    blocks += [context(runs.run_line(action, view, now_ms=now_ms)) for action in runs.newest_first(actions)[:10]]
    text = f"Task log {log.id}: {foreign(view.title(), 200)}"
    return Message(clip(text, MESSAGE_TEXT_LIMIT), tuple(blocks), GREY)


def watcher_message(action: Action, subject: Subject, *, clearance: int) -> Message:
    """The direct message to somebody who watches, at the end of a run."""
    view = RedactedView(subject, clearance)
    title = foreign(view.title(), 200)
    lines = [_headline(action), title]
    if result := runs.result_text(action, view, 1000):
        lines.append(result)
    end = "You asked to be told. `/responder watch` shows what you watch, and how to end it."
    blocks = (section("\n".join(lines)), context(end))
    return Message(clip(f"{runs.plain_line(action, view)} ({subject.id})", MESSAGE_TEXT_LIMIT), blocks, _color(action))
