"""The card of a case: who owns it, its tasks, observables and runs."""

from collections.abc import Sequence

from bot.block_kit import ids
from bot.block_kit.subjects import by_ioc, headline, observable, responder_menu, with_menu
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    context,
    foreign,
    person_name,
    plain,
    section,
    slack_date,
)
from bot.clearance import SHARED, RedactedView, Subject, may_see
from bot.features.alerts.views.card import DATA_LIMIT, MESSAGE_LIMIT, run_lines
from bot.features.runs.views import runs
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import SEVERITY_NAMES, TLP_NAMES, Case, Document, Task

MAX_TASKS = 8
MOST_COUNTED = 100  # tasks
MOST_ALERTS = 20  # of a document
TASK_LIMIT = 80  # characters of its title
MARKS = {"Waiting": "☐", "InProgress": "🔄", "Completed": "☑", "Cancel": "➖"}
OPEN_TASKS = ("Waiting", "InProgress")


def case_card(case: Case, document: Document, tasks: Sequence[Task], *, clearance: int, button: ButtonIds) -> Message:
    """The card as this clearance may see it, kept current in the thread of the alert that it was made from.

    `tasks` are the first MOST_COUNTED, and one more if there are more.
    """
    view = RedactedView(Subject.in_document(document, case.id) or Subject.case(case), clearance)
    # Runs on a task, a log or an artifact are in a document only if an event named it; their replies are in the thread.
    newest = runs.newest_first([action for action in document.actions if action.object_id == case.id])
    total = max(document.action_counts.get(case.id, 0), len(newest))
    push = clip(f"{_title(case, document, view)}: {_state(case, tasks, view)}", MESSAGE_TEXT_LIMIT)
    if not view.is_open:
        return Message(push, (headline(view), context(runs.withheld_line(newest, total))))
    head = headline(view)["text"]["text"] if not document.alert_ids else f"{runs.sign(view)}*Case {case.case_id}*"
    urgent, more = run_lines(newest, lambda _: view, button, case.id, total=total, policies=document.policies)
    blocks: list[Block] = [section(f"{head}\n{_state(case, tasks, view)}"), *urgent]
    if tasks:
        blocks.append(section("\n".join(_task_lines(tasks, view))))
    if not document.alert_ids:  # those of an alert are on its card, and its level isn't known here
        blocks += _observables(document, view, button)
    return Message(push, (*blocks, _facts(case, document, view), _controls(case, button), *more))


def _title(case: Case, document: Document, view: RedactedView) -> str:
    """`HIGH case 12 (~30)` in the thread of an alert, whose card has a title; else the case's own.

    An observable that is hidden in the alert isn't known here, and would not be masked in the title.
    """
    if document.alert_ids and view.is_open:
        return f"{SEVERITY_NAMES[case.severity].upper()} case {case.case_id} ({case.id})"
    return f"Case {runs.of_root(view.subject, view)}"


def _state(case: Case, tasks: Sequence[Task], view: RedactedView) -> str:
    """`open · owner anna · 1 of 3 tasks done`."""
    owner = f"owner {person_name(case.owner)}" if case.owner else "no owner"
    done = sum(task.status not in OPEN_TASKS for task in tasks)
    progress = f"{done} of {count(len(tasks), 'task')} done" if tasks else ""
    if len(tasks) > MOST_COUNTED:
        progress = f"{MOST_COUNTED}+ tasks"
    named = owner if view.is_open else ""
    return " · ".join(part for part in (case.status.lower(), named, progress) if part)


def _task_lines(tasks: Sequence[Task], view: RedactedView) -> list[str]:
    """Those to do before those that are done."""
    ordered = sorted(tasks, key=lambda task: task.status not in OPEN_TASKS)
    lines = []
    for task in ordered[:MAX_TASKS]:
        owner = f" · {person_name(task.owner)}" if task.owner else ""
        lines.append(f"{MARKS[task.status]} {foreign(view.text(task.title), TASK_LIMIT)}{owner}")
    left = f"{len(tasks) - MAX_TASKS} more" if len(tasks) <= MOST_COUNTED else "more"
    return [*lines, *([f"and {left}"] if len(tasks) > MAX_TASKS else [])]


def _observables(document: Document, view: RedactedView, button: ButtonIds) -> list[Block]:
    """The first one, IOCs first, with its menu, and how many more there are."""
    every = [*document.artifacts, *document.other_artifacts]
    if view.clearance == SHARED:
        every = [artifact for artifact in every if may_see(SHARED, artifact.tlp)]
    shown = by_ioc(artifact for artifact in every if may_see(view.clearance, artifact.tlp))
    hidden = [f"{len(every) - len(shown)} withheld"] if len(every) > len(shown) else []
    if not shown:
        return [context(", ".join(hidden))] if hidden else []
    more = [f"+{len(shown) - 1}\u00a0more"] if len(shown) > 1 else []
    line = " · ".join([observable(shown[0], view, DATA_LIMIT, MESSAGE_LIMIT), *more, *hidden])
    return [with_menu(line, shown[0], view, button)]


def _facts(case: Case, document: Document, view: RedactedView) -> Block:
    levels = f"TLP:{TLP_NAMES[case.tlp].upper()} PAP:{TLP_NAMES[case.pap].upper()}"
    alerts = f"of {', '.join(document.alert_ids[:3])}" if document.alert_ids else ""
    left = len(document.alert_ids) - 3
    more = f"and {count(left, 'more alert')}" if left > 0 else ""
    more = "and more alerts" if len(document.alert_ids) == MOST_ALERTS else more
    of_alerts = f"{alerts} {more}".strip()
    tags = " ".join(f"#{foreign(view.text(tag), 40)}" for tag in case.tags[:3])
    parts = [levels, slack_date(case.start_date), case.id, of_alerts, tags]
    return context(" · ".join(part for part in parts if part))


def _controls(case: Case, button: ButtonIds) -> Block:
    options = [{"text": plain("What ran here"), "value": button(Intent("actions", case.id))}]
    return {
        "type": "actions",
        "block_id": ids.MENU_BLOCK + button(Intent("menu", case.id, "case")),
        "elements": [
            responder_menu("Run a responder"),
            {"type": "overflow", "action_id": ids.MORE, "options": options},
        ],
    }
