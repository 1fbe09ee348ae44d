"""The card of an alert: one message that is kept current, with a line for each run."""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element, overflow
from bot.block_kit.subjects import (
    TITLE_LIMIT,
    headline,
    hosts_first,
    menu_row,
    observable,
    with_menu,
)
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    context,
    defang_indicators,
    foreign,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import SHARED, RedactedView, Subject, tlp_name
from bot.features.cases.views import case_button
from bot.features.runs.views import reports, runs, undo_state
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.grouping import grouped
from core.common.words import count
from core.models import SEVERITY_NAMES, Action, Alert, Measure

MAX_RUNS = 15  # lines
MAX_ENDED = 3  # of these
MAX_IN_FORCE = 5  # of a responder, that can be undone
MAX_TARGETS = 3  # of a responder, with a line for each
MAX_RUN_CHARACTERS = 6000  # of JSON: Slack refuses a message whose blocks have about 13,000 (msg_blocks_too_long)
MAX_OBSERVABLES = 2
DATA_LIMIT = 300  # characters of an observable
MESSAGE_LIMIT = 60  # of what is said of it
DESCRIPTION_LIMIT = 50  # which is a line beside the menu
SUMMARY_LIMIT = 180
CHANGES_ALERT = {"MarkAlertAsRead", "AddTagToAlert", "AddArtifactToAlert", "AddCustomFields"}  # operations
STATUS_WORDS = {"New": "new", "Ignored": "closed", "Imported": "made into a case", "Updated": "updated"}


def alert_card(
    alert: Alert,
    actions: Sequence[Action],
    *,
    total: int = 0,
    clearance: int,
    button: ButtonIds,
    subject: Subject | None = None,
    held: Sequence[Measure] = (),
) -> Message:
    """The card as this clearance may see it; `total` counts all runs, if `actions` are only the newest.

    `subject` is the alert with what its case gives it; `held` is what runs on others have in force for it.
    """
    view = RedactedView(subject or Subject.alert(alert), clearance)
    newest = runs.newest_first([action for action in actions if not view.of(action).is_secret])
    total -= len(actions) - len(newest)
    if not view.is_open:
        ran = [context(runs.on_withheld_card(newest, max(total, len(newest)), view))] if newest else []
        blocks = [headline(view, "whoever may see them presses Details"), *ran, _controls(alert, view, button)]
        return Message(_push_notification(view, newest), tuple(blocks))
    urgent, more = run_lines(newest, view.of, button, alert.id, total=total, is_folded=is_folded(alert))
    held = undo_state.held_on(held, view)[:MAX_IN_FORCE]
    by_others = sections(undo_state.already(one, view, "") for one in held)
    blocks = [_title(alert, view, newest, button), *by_others, *urgent]
    if is_folded(alert):
        blocks.append(context(_facts(alert, view, newest, total)))
    else:
        blocks += [*_details(alert, view, button), _controls(alert, view, button)]
    return Message(_push_notification(view, newest), (*blocks, *more))


def _title(alert: Alert, view: RedactedView, newest: Sequence[Action], button: ButtonIds) -> Block:
    """The severity and the title, and below it the status and who works on it; of a closed alert with its menu."""
    text = f"{headline(view)['text']['text']}\n{status_line(alert, view, newest)}"
    if is_folded(alert):
        return section(text, accessory=_overflow(alert, button))
    return section(f"{text} · {_facts(alert, view)}")


def _details(alert: Alert, view: RedactedView, button: ButtonIds) -> list[Block]:
    """The first observable with its menu, hosts before IOCs, and the description, or the second where it is longer.

    They share a section: four cards shall be on a screen.
    """
    artifacts = hosts_first(view.artifacts())
    sentence = view.text(alert.description).strip().partition("\n\n")[0]  # what follows are the fields of a source
    shown = artifacts[: 1 if len(sentence) <= DESCRIPTION_LIMIT else MAX_OBSERVABLES]
    lines = [observable(artifact, view, DATA_LIMIT, MESSAGE_LIMIT) for artifact in shown]
    more = [f"+{len(artifacts) - len(shown)}\u00a0more"] if len(artifacts) > len(shown) else []
    if hidden := view.hidden_count():
        more.append(f"{hidden} withheld ({tlp_name(max(a.tlp for a in view.subject.artifacts))})")
    if more:
        lines[-1:] = [" · ".join([*lines[-1:], *more])]
    about = foreign(defang_indicators(sentence), DESCRIPTION_LIMIT) if len(shown) < MAX_OBSERVABLES else ""
    text = "\n".join(filter(None, [*lines, about]))
    if not text:
        return []
    return [with_menu(text, shown[0], view, button) if shown else section(text)]


def _facts(alert: Alert, view: RedactedView, newest: Sequence[Action] = (), total: int = 0) -> str:
    """Source, when and id; of a closed alert how many runs there were."""
    source, raised = foreign(view.text(alert.source), 80), slack_date(alert.date)
    parts = [source, raised, _before(alert), repeats(alert), alert.id]
    if is_folded(alert):
        parts = [source, alert.id, count(max(total, len(newest)), "run") if newest else ""]
    return " · ".join(
        filter(None, [*parts, "only what is TLP:CLEAR is shown here" if view.clearance == SHARED else ""])
    )


def _before(alert: Alert) -> str:
    """What it was before its source raised it; "" if it didn't."""
    before, at = alert.severity_before, alert.raised_at
    if before is None or at is None or before >= alert.severity:
        return ""
    return f"was {SEVERITY_NAMES[before].capitalize()} until {slack_date(at)}"


def repeats(alert: Alert) -> str:
    """How often its source has sent it, and when it did so last; "" for once."""
    if alert.count is None or alert.last_date is None:
        return ""
    return f"{alert.count} x, last {slack_date(alert.last_date)}"


def is_closed(alert: Alert) -> bool:
    return alert.status in ("Ignored", "Imported")


def is_folded(alert: Alert) -> bool:
    """Whether its card is its title and one line: one that was made into a case keeps its tools."""
    return alert.status == "Ignored"


def status_line(alert: Alert, view: RedactedView, newest: Sequence[Action] = ()) -> str:
    """The status and the assignee; of a closed alert its outcome, who closed it (or which of `newest` did) and when."""
    over = f"{foreign(view.text(alert.resolved_by), 80)} says it is over" if alert.resolved_by else ""
    closed, word = view.subject.closed, STATUS_WORDS[alert.status]
    if alert.status == "Imported":
        word = f"in case {alert.case}" if alert.case else word
        return " · ".join(part for part in (f"*{word}*", _owner(alert) if alert.assignee else "", over) if part)
    if closed is None:
        return " · ".join(part for part in (word, _owner(alert), over) if part)
    at = slack_date(closed.at)
    if over and closed.by.startswith(f"{alert.resolved_by}@"):
        return f"*{word}*, {over}, {at}"
    why = f": {foreign(defang_indicators(view.text(alert.summary)), SUMMARY_LIMIT)}" if alert.summary else ""
    return " · ".join(filter(None, [f"*{word}* by {_by(closed.by, closed.at, view, newest)}, {at}{why}", over]))


def _owner(alert: Alert) -> str:
    return f"assigned to *{person_name(alert.assignee)}*" if alert.assignee else "unassigned"


def _by(login: str, at: int, view: RedactedView, newest: Sequence[Action]) -> str:
    """Who closed the alert; if a run did, also which."""
    person = person_name(login)
    # Core applies a run's operations in the transaction that ends it: with its end date, by its requester.
    ended = (a for a in newest if a.end_date == at and a.created_by == login)
    run = next((a for a in ended if reports.applied_operations(a) & CHANGES_ALERT), None)
    return f"{person} ({runs.name(run)})" if run is not None and view.of(run).is_open else person


def _controls(alert: Alert, view: RedactedView, button: ButtonIds) -> Block:
    """The menu of responders, Assign to me (not in a case), Details, Show case, and what else applies now.

    Details shows the alert as far as whoever clicks may see it; so it is also on a withheld card.
    """
    owner = [owner_button(alert, button)] if view.is_open and alert.status != "Imported" else []
    details = button_element("Details", ids.DETAILS, button(Intent("details", alert.id)))
    case = [case_button(alert.case, button)] if view.is_open and alert.case else []
    return menu_row("alert", alert.id, button, *owner, details, *case, _overflow(alert, button))


def owner_button(alert: Alert, button: ButtonIds) -> dict[str, Any]:
    """Assign to me or Unassign; anybody but the assignee who presses Unassign is asked whether to reassign it."""
    if alert.assignee:
        return button_element("Unassign", ids.UNASSIGN, button(Intent("unassign", alert.id)))
    return button_element("Assign to me", ids.ASSIGN, button(Intent("assign", alert.id)))


def reassign(view: RedactedView, assignee: str, button: ButtonIds) -> Message:
    """Says who works on an alert, with a button that assigns it to whoever is asked."""
    text = f"{person_name(assignee)} works on {runs.named(view)}. Nothing was changed."
    assign = button_element("Assign to me", ids.ASSIGN, button(Intent("assign", view.subject.id, assignee)))
    return Message(text, (section(text), actions(assign)))


def _overflow(alert: Alert, button: ButtonIds) -> dict[str, Any]:
    """What is seldom wanted; of a closed alert also Details, which has its menus."""
    entries = [("Details", Intent("details", alert.id))] if is_folded(alert) else []
    entries.append(("What ran here", Intent("actions", alert.id)))
    if alert.status == "Ignored":
        entries.append(("Reopen", Intent("unread", alert.id)))
    elif alert.status != "Imported":
        entries.append(("Close", Intent("read", alert.id)))
    if not alert.case and alert.status != "Imported":
        entries.append(("Make a case", Intent("case", alert.id)))
    return overflow(ids.MORE, entries, button)


def run_lines(
    newest: Sequence[Action],
    view_of: Callable[[Action], RedactedView],
    button: ButtonIds,
    root_id: str,
    *,
    total: int = 0,
    is_folded: bool = False,
) -> tuple[list[Block], list[Block]]:
    """First what waits for a decision or is in force; then other open runs, ended ones, and how many are withheld.

    `view_of` gives what may be seen of what a run is on; `root_id` is the alert or case.
    """
    targets = {action.id: view_of(action) for action in newest}
    shown = [action for action in newest if targets[action.id].is_open]
    urgent, others, earlier = _lines(shown, is_folded=is_folded)
    now = {_does(action) for action in shown if _place(action) < OVER}

    def render(line: Sequence[Action]) -> list[Block]:
        can_repeat = not is_folded and _does(line[0]) not in now
        return _runs(line, targets[line[0].id], button, can_repeat=can_repeat)

    fitting = _fitting([*urgent, *others], render)
    first, more = list(chain(*fitting[: len(urgent)])), list(chain(*fitting[len(urgent) :]))
    unread, left_out = max(total - len(newest), 0), [*urgent, *others][len(fitting) :]
    rest = [*chain(*left_out), *earlier]
    if left_out:
        left = runs.summary(rest, len(rest) + unread, "more run")
        more.append(context(f"and {left}: `/responder actions {root_id}` shows all."))
    elif not is_folded and (further := len(rest) + unread):
        more.append(context(f"{_further(rest, further)}: `/responder actions {root_id}` shows all."))
    hidden = [action for action in newest if action not in shown]
    if hidden:
        more.append(context(runs.hidden_line(hidden, targets)))
    return first, more


def _further(rest: Sequence[Action], number: int) -> str:
    """`6 more runs, 2 failed`, or `1 more run, failed`."""
    failed = sum(runs.state_of(action) == "failed" for action in rest)
    of_these = "" if not failed else ", failed" if failed == number else f", {failed} failed"
    return f"{count(number, 'more run')}{of_these}"


def _fitting(lines: Sequence[Sequence[Action]], render: Callable[[Sequence[Action]], list[Block]]) -> list[list[Block]]:
    """The blocks of the first of these lines, as many as a card has room for."""
    fitting, characters = list[list[Block]](), 0
    for line in lines[:MAX_RUNS]:
        blocks = render(line)
        characters += len(json.dumps(blocks, ensure_ascii=False))
        if characters > MAX_RUN_CHARACTERS:
            break
        fitting.append(blocks)
    return fitting


Lines = list[list[Action]]  # the runs of each: several where they share a line


def _lines(shown: Sequence[Action], *, is_folded: bool) -> tuple[Lines, Lines, list[Action]]:
    """The lines of what waits for a decision or is in force, those of other runs, and the ended runs without one."""
    undone_by = {action.undo.action_id for action in shown if action.undo is not None and undo_state.is_undone(action)}
    ended = [action for action in shown if not runs.is_open(action) and action.id not in undone_by]
    lines = [*([action] for action in filter(runs.is_open, shown)), *_ended(ended)]
    at = grouped((_place(line[0]), line) for line in lines)
    in_force = _that_end_last(at.get(IN_FORCE, []))
    over = at.get(OVER, [])
    if is_folded:
        over = [] if in_force else _newest_and_success(over)
    over = sorted(over, key=lambda line: line not in over[:1] and _merely_succeeded(line))
    urgent, others = [*at.get(WAITING, []), *in_force], [*at.get(RUNNING, []), *over[:MAX_ENDED]]
    return urgent, others, list(chain(*over[MAX_ENDED:]))


def _that_end_last(in_force: Lines) -> Lines:
    """Of the lines that one undo ends the one that ends last, with the names of all."""
    last = {_ends_with(line[0]): line for line in sorted(in_force, key=lambda line: _until(line[0]))}
    return [_named(line, in_force) for line in in_force if line in last.values()]


def _newest_and_success(over: Lines) -> Lines:
    """What a closed alert says of ended runs: its line of facts counts the others."""
    success = next((line for line in over if runs.state_of(line[0]) == "succeeded"), None)
    return [line for line in over if line is over[0] or line is success]


def _merely_succeeded(line: Sequence[Action]) -> bool:
    """Whether these ended runs failed in nothing and contain nothing: they are below others, unless they ended last."""
    return runs.state_of(line[0]) == "succeeded" and line[0].undo is None


def _ended_at(action: Action) -> tuple[int, int]:
    """When it ended, or what it had put in force; of what ended at once the newest is last."""
    ended = action.measure.ended_at if action.measure is not None else None
    return ended or action.end_date or action.start_date, action.number


WAITING, IN_FORCE, RUNNING, OVER = range(4)  # for a decision, or until it is undone; in the order of a card


def _place(action: Action) -> int:
    """The place of a run's line."""
    if runs.is_open(action):
        return WAITING if runs.awaits_approval(action) else RUNNING
    return IN_FORCE if undo_state.is_in_force(action) else OVER


def _does(action: Action) -> Hashable:
    """Tells apart what runs do: what does the same now leaves nothing to ask for again."""
    return action.responder_name, runs.acts_on(action)


def _ends_with(action: Action) -> Hashable:
    """What one undo ends: runs on the same target, and a card shows the one that ends last, if that says as much."""
    undo, is_unknown = action.undo, action.measure is not None and action.measure.state == "unknown"
    if undo is None or undo.status != "available" or undo.extension is not None or is_unknown:
        return action.id
    return undo.responder, runs.acts_on(action)


def _named(line: Sequence[Action], in_force: Sequence[Sequence[Action]]) -> list[Action]:
    """The line with the names of all responders whose runs end with it."""
    names = dict.fromkeys(runs.title(one) for one, *_ in (line, *in_force) if _ends_with(one) == _ends_with(line[0]))
    return [line[0].model_copy(update={"responder_title": " and ".join(names)}), *line[1:]]


def _until(action: Action) -> tuple[float, int]:
    return (action.undo.at if action.undo is not None else 0) or math.inf, action.number


def _ended(ended: Sequence[Action]) -> list[list[Action]]:
    """Ended runs, the last first, with one line for those of a responder that ended alike on one target.

    If it ran on many targets, on all of them.
    """
    by_responder: dict[str, dict[str, list[Action]]] = {}
    for action in ended:
        by_responder.setdefault(action.responder_name, {}).setdefault(action.object_id, []).append(action)
    lines: list[list[Action]] = []
    for by_target in by_responder.values():
        kept = list(filter(undo_state.is_in_force, chain(*by_target.values())))[:MAX_IN_FORCE]
        alike: dict[tuple[str, runs.State, str | None], list[Action]] = {}
        for target, group in by_target.items():
            one_line = target if len(by_target) <= MAX_TARGETS else ""
            for action in group:
                if action not in kept:
                    undone = action.undo.status if action.undo is not None else None
                    alike.setdefault((one_line, runs.state_of(action), undone), []).append(action)
        lines += [[action] for action in kept]
        lines += [sorted(group, key=_ended_at, reverse=True) for group in alike.values()]
    return sorted(lines, key=lambda group: _ended_at(group[0]), reverse=True)


def _runs(
    group: Sequence[Action],
    view: RedactedView,
    button: ButtonIds,
    *,
    can_repeat: bool,
) -> list[Block]:
    """An open run, or ended ones of one responder that ended alike, newest first; `view` is of the newest's object."""
    action, block_id = group[0], f"run:{group[0].id}"
    parts = undo_state.in_force_by_target(action) if len(group) == 1 else []
    if parts and (parts[0][1] or undos.can_undo(action)):
        return undos.each_target(action, view, button)
    text = runs.run_line(action, view) if len(group) == 1 else runs.group_line(group, view)
    text = runs.in_force_line(action, view) if parts else text
    if not runs.is_open(action):
        is_asked_together = action.bulk and runs.was_not_started(action)  # and again on the message of all
        again = runs.run_again_button(action, view, button) if can_repeat and not is_asked_together else None
        if again is None:
            return [{**context(text), "block_id": block_id}]
        return [section(text, block_id=block_id, accessory=again)]
    if not runs.can_be_approved(action, view):
        return [section(text, block_id=block_id, accessory=runs.end_button(action, view, button))]
    return [section(text, block_id=block_id), actions(*runs.waiting_buttons(action, view, button))]


def _push_notification(view: RedactedView, newest: Sequence[Action]) -> str:
    """The push notification: the state of the run that matters most, and the title, as far as it may be shown."""
    subject = view.subject
    word = f"{SEVERITY_NAMES[subject.severity].capitalize()} alert" if subject.severity else "Alert"
    shown = next((action for action in newest if runs.awaits_approval(action)), newest[0] if newest else None)
    run = f"{runs.plain_line(shown, view.of(shown))} · " if shown is not None else ""
    return clip(f"{word} {subject.id}: {run}{foreign(view.title(), TITLE_LIMIT)}", MESSAGE_TEXT_LIMIT)
