"""The card of a case: who owns it, its tasks, observables and runs."""

from collections import ChainMap
from collections.abc import Sequence

from bot.block_kit import ids
from bot.block_kit.elements import button_element, overflow
from bot.block_kit.subjects import headline, hosts_first, menu_row, observable, with_menu
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    context,
    foreign,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import SHARED, RedactedView, Subject, may_see, tlp_name
from bot.features.alerts.views.card import DATA_LIMIT, MESSAGE_LIMIT, run_lines
from bot.features.runs.views import runs, undo_state
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count, some_of, spaced
from core.models import OBJECT_TYPES, TLP_NAMES, Action, Case, Document, Task

MAX_TASKS = 8
MOST_COUNTED = 100  # tasks
TASK_LIMIT = 80  # characters of its title, and of its group
DESCRIPTION_LIMIT = 300  # of a task
MARKS = {"Waiting": "☐", "InProgress": "🔄", "Completed": "☑", "Cancel": "➖"}
OPEN_TASKS = ("Waiting", "InProgress")


def case_card(
    case: Case,
    document: Document,
    tasks: Sequence[Task],
    alerts: Sequence[Document],
    button: ButtonIds,
    *,
    clearance: int,
    is_posted: bool = True,
) -> Message:
    """The card as this clearance may see it, kept current in the thread of the alert that it was made from.

    `tasks` are the first MOST_COUNTED, and one more if there are more. One that isn't posted is for one person, at one
    moment, and has all of the runs on its `alerts`.
    """
    documents = (document, *alerts)

    def view_of(action: Action) -> RedactedView:
        return RedactedView(Subject.of_action(action, *documents), clearance)

    view = RedactedView(Subject.in_documents(documents, case.id) or Subject.case(case), clearance)
    counts = ChainMap(*(one.action_counts for one in documents))
    found = {action.id: action for one in documents for action in one.actions if not is_posted or _is_now(action, one)}
    newest = runs.newest_first([one for one in found.values() if not view_of(one).is_secret])
    beside = sum(one.object_id != case.id for one in newest)
    total = max(counts.get(case.id, 0) + beside if is_posted else sum(counts.values()), len(newest))
    push = clip(f"Case {runs.of_root(view.subject, view)}: {_state(case, tasks, view)}", MESSAGE_TEXT_LIMIT)
    if not view.is_open:
        return Message(push, (headline(view), context(runs.on_withheld_card(newest, total, view))))
    urgent, more = run_lines(newest, view_of, button, case.id, total=total)
    blocks: list[Block] = [_head(case, document, tasks, view), *urgent]
    if tasks:
        blocks += sections(_task_lines(tasks, view, in_full=not is_posted))
    if not (is_posted and document.alert_ids):  # those of an alert are on its card
        blocks += _observables(document, view, button)
    return Message(push, (*blocks, _facts(case, document, view), _controls(case, button, is_posted), *more))


def _head(case: Case, document: Document, tasks: Sequence[Task], view: RedactedView) -> Block:
    """Its title, of how many alerts it is, its state, and who closed it and why."""
    number, closed = document.alert_count, view.subject.closed
    of = f" of {number:,} alerts" if number > 1 else ""
    lines = [headline(view)["text"]["text"], f"case{of} · {_state(case, tasks, view)}"]
    return section("\n".join([*lines, *([runs.closed_by(closed, view)] if closed is not None else [])]))


def _is_now(action: Action, document: Document) -> bool:
    """Whether a posted card has a run of this document, the case's or an alert's, where only what is in force counts.

    Of one on a task or a log an event tells no more than once.
    """
    on_artifact, is_in_force = action.object_type == OBJECT_TYPES["case_artifact"], undo_state.is_in_force(action)
    if document.case is None:
        return is_in_force
    return action.object_id == document.id or (on_artifact and (is_in_force or runs.is_open(action)))


def _state(case: Case, tasks: Sequence[Task], view: RedactedView) -> str:
    """`open · owner anna · 1 of 3 tasks done`, `resolved as true positive · ...`."""
    owner = f"owner {person_name(case.owner)}" if case.owner else "no owner"
    done = sum(task.status not in OPEN_TASKS for task in tasks)
    some = f"{done} of {count(len(tasks), 'task')} done" if tasks else ""
    progress = some if len(tasks) <= MOST_COUNTED else f"{MOST_COUNTED}+ tasks"
    outcome = view.text(spaced(case.resolution_status or "")).lower() if case.status == "Resolved" else ""
    status = f"{case.status.lower()}{f' as {foreign(outcome, TASK_LIMIT)}' if outcome and view.is_open else ''}"
    return " · ".join(part for part in (status, owner if view.is_open else "", progress) if part)


def _task_lines(tasks: Sequence[Task], view: RedactedView, *, in_full: bool) -> list[str]:
    """Those to do before those that are done."""
    ordered = sorted(tasks, key=lambda task: task.status not in OPEN_TASKS)[:MAX_TASKS]
    lines = [_task_line(task, view, in_full=in_full) for task in ordered]
    left = f"{len(tasks) - MAX_TASKS} more" if len(tasks) <= MOST_COUNTED else "more"
    return [*lines, *([f"and {left}"] if len(tasks) > MAX_TASKS else [])]


def _task_line(task: Task, view: RedactedView, *, in_full: bool) -> str:
    """Its state, title and owner; `in_full` also its group, if it is in one, and its description."""
    group = foreign(view.text(task.group), TASK_LIMIT) if in_full and task.group != "default" else ""
    description = foreign(view.text(task.description), DESCRIPTION_LIMIT) if in_full else ""
    owner = person_name(task.owner) if task.owner else ""
    title = f"{MARKS[task.status]} {foreign(view.text(task.title), TASK_LIMIT)}"
    return " · ".join(filter(None, [title, group, owner])) + (f"\n>{description}" if description else "")


def _observables(document: Document, view: RedactedView, button: ButtonIds) -> list[Block]:
    """What most of its alerts have, with its menu, and how many others there are."""
    every = [*document.artifacts, *document.other_artifacts]
    seen = hosts_first(artifact for artifact in every if may_see(view.clearance, artifact.tlp))
    shown = sorted(seen, key=lambda one: -document.alerts_with.get(one.id, 1))
    is_less = len(every) > len(shown) and view.clearance != SHARED
    hidden = [f"{len(every) - len(shown)} withheld"] * is_less
    if not shown:
        return [context(", ".join(hidden))] if hidden else []
    more = [f"+{len(shown) - 1}\u00a0more"] if len(shown) > 1 else []
    several = [f"in {alerts:,} alerts"] if (alerts := document.alerts_with.get(shown[0].id, 1)) > 1 else []
    line = " · ".join([observable(shown[0], view, DATA_LIMIT, MESSAGE_LIMIT), *several, *more, *hidden])
    return [with_menu(line, shown[0], view, button)]


def _facts(case: Case, document: Document, view: RedactedView) -> Block:
    only = " only" if view.clearance == SHARED else ""
    levels = f"{tlp_name(case.tlp)}{only} PAP:{TLP_NAMES[case.pap].upper()}"
    listed = some_of(document.alert_ids, 3, document.alert_count)
    tags = " ".join(f"#{foreign(tag, 40)}" for tag in view.tags(case)[:3])
    parts = [levels, slack_date(case.start_date), case.id, f"of {listed}" if listed else "", tags]
    return context(" · ".join(part for part in parts if part))


def _controls(case: Case, button: ButtonIds, is_posted: bool) -> Block:
    details = [button_element("Details", ids.DETAILS, button(Intent("details", case.id)))] if is_posted else []
    more = overflow(ids.MORE, [("What ran here", Intent("actions", case.id))], button)
    return menu_row("case", case.id, button, *details, more)
