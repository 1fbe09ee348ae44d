"""What the thread of an alert tells: how a run ended, who must agree, a new task log; and the watcher's message."""

from collections.abc import Sequence
from typing import Any

from bot.cards import ids, questions, runs
from bot.cards.alert import responder_menu
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.reports import ReportView, read
from bot.cards.text import MESSAGE_TEXT, clip, code, context, defang_indicators, foreign, plain, section, when, who
from bot.redaction import RedactedView, Subject, withheld
from core.models import Action, Log

FIRST_LINES = 8
FIRST_CHARACTERS = 1200
SHOWN_LABELS = 8
SHOWN_CHANGES = 10
GREEN, RED, GREY, AMBER = "#3a9b5c", "#c62f3b", "#8d8d8d", "#d9a441"


def end_reply(action: Action, subject: Subject, *, clearance: int, button: ButtonIds, confirm: str = "") -> Message:
    """The reply at an action's end: the result, short labels, what was changed, the report's first lines.

    `confirm` is its policy's text, which "Run again" then asks with.
    """
    view = RedactedView(subject, clearance)
    report = read(action)
    blocks: list[Block] = [section(_headline(action))]
    blocks += _result(action, report, view)
    if view.shows_reports:
        blocks += _labels(report) + _changes(report) + _first_lines(report)
    blocks += _again(action, view, button, confirm)
    return Message(clip(runs.plain_line(action, view), MESSAGE_TEXT), tuple(blocks), _color(action))


def report_file(action: Action, subject: Subject, *, clearance: int) -> tuple[str, str] | None:
    """Name and text of the whole report, where the reply shows only its first lines; None where it shows all."""
    report = read(action)
    if not RedactedView(subject, clearance).shows_reports or _is_short(report.full):
        return None
    return f"report-{action.id[1:]}.txt", report.full


def _headline(action: Action) -> str:
    name = foreign(action.responder_name, runs.NAME)
    state = f"{runs.state(action)} on {action.object_id}"
    return f"{runs.MARKS[action.status]} *{name}* {state}, started by {who(action.created_by)}."


def _result(action: Action, report: ReportView, view: RedactedView) -> list[Block]:
    if not report.message:
        return []
    if not view.shows_reports:
        hint = f"`/responder actions {action.object_id}` shows it to those who may see it"
        return [section(f"Result: {withheld(view.highest)}; {hint}.")]
    return [section(foreign(report.message, 2500, lines=True) or " ")]


def _labels(report: ReportView) -> list[Block]:
    """Taxonomies as short labels."""
    shown = [code(label, 80) for label in report.labels[:SHOWN_LABELS]]
    left = len(report.labels) - len(shown)
    return [context(" ".join(shown) + (f" and {left} more" if left > 0 else ""))] if shown else []


def _changes(report: ReportView) -> list[Block]:
    """What it changed, one line each."""
    shown = [f"• {foreign(defang_indicators(change), 200)}" for change in report.changes[:SHOWN_CHANGES]]
    left = len(report.changes) - len(shown)
    if left > 0:
        shown.append(f"and {left} more")
    return [section("\n".join(shown))] if shown else []


def _first_lines(report: ReportView) -> list[Block]:
    if report.truncated:
        return [context("The report is too long to be listed; core keeps it whole.")]
    # The file beneath speaks for itself: this line must also hold where Slack refuses it.
    whole: list[Block] = [] if _is_short(report.full) else [context("The report is longer; core keeps it whole.")]
    if not report.shown:
        return whole
    first = "\n".join(report.shown[: FIRST_CHARACTERS * 2].split("\n")[:FIRST_LINES])
    shown = foreign(first.replace("```", "ˋˋˋ"), FIRST_CHARACTERS, lines=True)
    return [section(f"```\n{shown or ' '}\n```"), *whole]


def _is_short(full: str) -> bool:
    return len(full) <= FIRST_CHARACTERS and full.count("\n") < FIRST_LINES


def _again(action: Action, view: RedactedView, button: ButtonIds, confirm: str) -> list[Block]:
    """Running it again makes sense after it failed; after a success it is one menu away."""
    if action.status != "Failure":
        return []
    again: dict[str, Any] = {
        "type": "button",
        "action_id": ids.RUN_AGAIN,
        "text": plain("Run again"),
        "value": button(Intent("run_again", action.id, "confirmed" if confirm else "")),
    }
    if confirm:
        again["confirm"] = questions.confirm_object(action.responder_name, view, confirm)
    return [{"type": "actions", "elements": [again]}]


def _color(action: Action) -> str:
    return {"Success": GREEN, "Failure": RED}.get(action.status, GREY)


# --- approval -------------------------------------------------------------------------------------------------------


def approval_request(
    action: Action, subject: Subject, *, clearance: int, button: ButtonIds, now_ms: int, confirm: str = ""
) -> Message:
    """Who asks for what, what it does (the policy's words), until when; buttons only while it is open.

    Core decides who may press them: anybody with manageAction but the requester (`semantics.md 5`).
    """
    view = RedactedView(subject, clearance)
    title = foreign(view.title(), 200)
    name = foreign(action.responder_name, runs.NAME)
    text = f"*{who(action.created_by)}* asks to run *{name}* on {subject.id} ({title})."
    blocks: list[Block] = [section(text)]
    if confirm:
        blocks.append(section(foreign(confirm, 1000, lines=True) or " "))
    is_open = runs.awaits_approval(action) and action.approval is not None and action.approval.expires_at > now_ms
    blocks.append(context(_decision(action, is_open, view)))
    if is_open:
        blocks.append(_approval_buttons(action, button))
    push = f"Approval wanted: {name} on {subject.id}, asked by {who(action.created_by)}"
    return Message(clip(push, MESSAGE_TEXT), tuple(blocks), AMBER if is_open else _color(action))


def _decision(action: Action, is_open: bool, view: RedactedView) -> str:
    approval = action.approval
    if approval is None:
        return "No approval is needed."
    agreed = ", ".join(who(login) for login in approval.approved_by[:20]) or "nobody yet"
    if is_open:
        ends = when(approval.expires_at, "{date_short_pretty} {time}")
        return f"{approval.needed - len(approval.approved_by)} more must agree · agreed: {agreed} · expires {ends}"
    if len(approval.approved_by) >= approval.needed:
        return f"Approved by {agreed}."
    if action.status == "Deleted":
        return "Cancelled before it was decided."
    return runs.result_of(action, view) or "Expired, nothing ran."


def _approval_buttons(action: Action, button: ButtonIds) -> Block:
    approve = {
        "type": "button",
        "action_id": ids.APPROVE,
        "style": "primary",
        "text": plain("Approve"),
        "value": button(Intent("approve", action.id)),
    }
    deny = {
        "type": "button",
        "action_id": ids.DENY,
        "style": "danger",
        "text": plain("Deny"),
        "value": button(Intent("deny", action.id)),
    }
    return {"type": "actions", "elements": [approve, deny]}


# --- logs, watchers -------------------------------------------------------------------------------------------------


def task_log_card(
    log: Log, actions: Sequence[Action], subject: Subject, *, clearance: int, button: ButtonIds, now_ms: int
) -> Message:
    """A task log with the responders for logs (issue 6, 3); `subject` is Subject.log(log, case)."""
    view = RedactedView(subject, clearance)
    shown = foreign(log.message, 800, lines=True) if view.is_open else withheld(subject.tlp)
    blocks: list[Block] = [
        section(f"*Task log* {log.id} by {who(log.created_by)}\n{shown or ' '}"),
        {
            "type": "actions",
            "block_id": ids.MENU_BLOCK + button(Intent("menu", log.id, "case_task_log")),
            "elements": [responder_menu("Run a responder on this log")],
        },
    ]
    blocks += [context(runs.run_line(action, view, now_ms=now_ms)) for action in runs.newest_first(actions)[:10]]
    text = f"Task log {log.id}: {foreign(view.title(), 200)}"
    return Message(clip(text, MESSAGE_TEXT), tuple(blocks), GREY)


def watcher_message(action: Action, subject: Subject, *, clearance: int) -> Message:
    """The direct message to somebody who watches: one for each end."""
    view = RedactedView(subject, clearance)
    title = foreign(view.title(), 200)
    lines = [_headline(action), title]
    if result := runs.result_of(action, view, 1000):
        lines.append(result)
    end = "You asked to be told. `/responder watch` shows what you watch, and how to end it."
    blocks = (section("\n".join(lines)), context(end))
    return Message(clip(f"{runs.plain_line(action, view)} ({subject.id})", MESSAGE_TEXT), blocks, _color(action))
