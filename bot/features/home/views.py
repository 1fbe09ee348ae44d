"""The App Home of a person, and the lists of runs and of what is in force. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element, for_person
from bot.block_kit.subjects import severities
from bot.block_kit.text import (
    code,
    context,
    defang_indicators,
    foreign,
    foreign_plain,
    person_name,
    plain,
    section,
    slack_date,
)
from bot.clearance import RedactedView, Subject, side_by_side, tlp_name, withheld
from bot.features.alerts.views.details import first_observables, group_line
from bot.features.approvals import views as approvals
from bot.features.bulks.views import messages, states
from bot.features.cases.views import case_button
from bot.features.responders.views import several_button
from bot.features.runs.views import runs, undo_state
from bot.features.runs.views.runs import run_again_button
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import Action, BulkCounts, Person

MAX_SHOWN = 8  # of each part
AGAIN = "Open this page again to refresh it."
MAX_REQUESTS = 3  # so that the worst alert is on a phone's first screen
MAX_UNASSIGNED = 5
NOBODY, RUNNING = "Assigned to nobody", "Waiting or running"
MAX_LINES = 20  # each with a button
MAX_OTHERS = 5  # so that a message has at most 50 blocks
MAX_LISTED = 20  # with two blocks each, of the 50 of a message
MAX_IN_HOME = 3  # of the 100 blocks of a Home
TEXT_LIMIT = 100
ON_BUTTON = 60  # characters of a target


@dataclass(frozen=True)
class HomeRun:
    """A run with what it runs on, and the address of its card."""

    action: Action
    subject: Subject
    link: str = ""
    bulk: BulkCounts | None = None
    others: Sequence["HomeRun"] = ()  # of the same bulk
    part: str = ""  # the id of what it has in force, if this is one of several targets
    also: str = ""  # for which other alerts the same is in force, or until when by another run
    is_typed: bool = False  # whether the id of its bulk was

    @property
    def in_place(self) -> BulkCounts | None:
        """The bulk that is shown in place of the run: it has several of those listed, or its id was typed."""
        return self.bulk if self.others or self.is_typed else None


@dataclass(frozen=True)
class HomeAlert:
    """An alert or a case with the time (ms) when it was raised or made, and the address of its card.

    Of a group this is the worst: `counts` are those of its open alerts by severity, which may all have its title.
    """

    subject: Subject
    raised_at: int
    link: str = ""
    is_assigned: bool = True
    group: str = ""
    counts: Counter[int] = field(default_factory=Counter)
    is_one_title: bool = False


@dataclass(frozen=True)
class HomeAlerts:
    """The first lines, the most severe first, and how many alerts and cases there are in all, by severity."""

    shown: Sequence[HomeAlert] = ()
    counts: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Home:
    """What a Home shows, each part with the newest first. Of what is beyond MAX_SHOWN only the count is shown."""

    waiting: Sequence[HomeRun] = ()  # for this person's approval
    alerts: HomeAlerts = field(default_factory=HomeAlerts)  # and cases, of this person
    unassigned: HomeAlerts = field(default_factory=HomeAlerts)
    running: Sequence[HomeRun] = ()
    failed: Sequence[HomeRun] = ()
    recent: Sequence[HomeRun] = ()
    storms: Sequence[tuple[str, str]] = ()  # channels with more new alerts than Slack takes, and a sentence on each
    refused: str = ""  # why this person can't run anything
    at: int = 0  # when it was read (ms)


def home_view(
    home: Home, person: Person, button: ButtonIds, *, in_force: Sequence[HomeRun] = (), total: int = 0
) -> dict[str, Any]:
    """The Home of a person, within their clearance; `in_force` are the first of `total` that anybody has."""
    storms = [f"🌩 *Storm in <#{channel}>*: {sentence}." for channel, sentence in home.storms[:MAX_SHOWN]]
    blocks: list[Block] = [context(f"As of {slack_date(home.at)}. {AGAIN}")]
    blocks += [section("\n".join(storms))] if storms else []
    if home.waiting:
        blocks += head("Waiting for your approval", len(home.waiting))
        blocks += [request(run, person, button) for run in home.waiting[:MAX_REQUESTS]]
        if (more := len(home.waiting) - MAX_REQUESTS) > 0:
            blocks.append(section(f"and {more:,} more", accessory=button_element("Show all", ids.PENDING)))
    for title, alerts in ((NOBODY, home.unassigned), ("Your alerts and cases", home.alerts)):
        blocks += [{"type": "divider"}, *_part(title, alerts, person, button)] if alerts.counts else []
    for title, shown, listed in (
        (RUNNING, home.running, "`/responder mine` lists all"),
        ("Failed or expired in the last day", home.failed, "`/responder failed` lists all"),
        ("Your last runs", home.recent, ""),
    ):
        blocks += [{"type": "divider"}, *head(title, len(shown))] if shown else []
        above = ["", *("" if run.others else _of(run, person) for run in shown)]
        blocks += [run_block(run, person, button, under=of) for run, of in zip(shown[:MAX_SHOWN], above, strict=False)]
        blocks += _rest(len(shown) - MAX_SHOWN, listed)
        blocks += in_home(in_force, person, total=total, button=button) if title == RUNNING else []
    sees = f"You see up to {tlp_name(person.clearance)}. {foreign(home.refused, TEXT_LIMIT)}".rstrip()
    blocks += [context(sees), actions(button_element("Help", ids.HELP))]
    return {"type": "home", "callback_id": ids.HOME_VIEW, "blocks": for_person(blocks, person)}


def open_alerts(alerts: HomeAlerts, person: Person, button: ButtonIds) -> Message:
    """More of the open alerts of nobody than their Home has."""
    return Message(NOBODY, tuple(_part(NOBODY, alerts, person, button, is_first=False)))


def _part(title: str, alerts: HomeAlerts, person: Person, button: ButtonIds, *, is_first: bool = True) -> list[Block]:
    """The alerts that are shown, and how many more there are; `is_first`: with what shows more of these."""
    number, left = alerts.counts.total(), alerts.counts - sum(map(_counts, alerts.shown), Counter())
    blocks = [*head(title, number), *(_alert(alert, person, button) for alert in alerts.shown)]
    blocks += _rest(left.total(), severities(left))
    if number > 1 and title == NOBODY:
        every = [button_element("Show all alerts", ids.OPEN_ALERTS)] if left and is_first else []
        blocks.append(actions(*every, several_button(Intent("several_open", ""), button)))
    return blocks


def notice_home(text: str) -> dict[str, Any]:
    """A Home with one sentence, such as that core is down."""
    return {"type": "home", "callback_id": ids.HOME_VIEW, "blocks": [section(text)]}


def head(title: str, number: int) -> list[Block]:
    """The title of a part with the number of what it has."""
    return [section(f"*{title}* ({number:,})" if number else f"*{title}*: nothing")]


def _rest(left_out: int, said: str) -> list[Block]:
    """How many more there are, and what is said of them."""
    return [context(f"and {left_out:,} more{said and f': {said}'}")] if left_out > 0 else []


def request(run: HomeRun, person: Person, button: ButtonIds) -> Block:
    """A request for approval, with the button that opens all that this person's decision needs."""
    view = RedactedView(run.subject, person.clearance)
    if run.others:
        return approvals.bulk_request(_together(run, person), button)
    return approvals.request_line(run.action, view, button=button, link=run.link)


def by_bulk(listed: Sequence[HomeRun], *, is_by_request: bool = False) -> list[HomeRun]:
    """The runs, with one in place of several of a bulk; `is_by_request`: those for which more time waits apart."""
    by_key: dict[str, HomeRun] = {}
    for run in listed:
        later = undo_state.later_end(run.action) if is_by_request and run.action.bulk else None
        key = (later.request if later is not None else run.action.bulk) or run.action.id
        earlier = by_key.get(key)
        by_key[key] = run if earlier is None else replace(earlier, others=[*earlier.others, run])
    return list(by_key.values())


def urgency(run: HomeRun) -> tuple[int, int, int]:
    """Sorts what is under way before what is in force, the most severe first, then what ends first; the rest stays."""
    extension, severity = undo_state.later_end(run.action), -run.subject.severity
    if extension is not None or runs.is_open(run.action):
        approval = (extension or run.action).approval
        return 0, severity, approval.expires_at if approval is not None else 0
    return (1, severity, undo_state.ends_at(run.action) or 0) if undo_state.is_in_force(run.action) else (2, 0, 0)


def _together(run: HomeRun, person: Person) -> list[tuple[Action, RedactedView]]:
    return side_by_side([(one.action, RedactedView(one.subject, person.clearance)) for one in (run, *run.others)])


def _counts(alert: HomeAlert) -> Counter[int]:
    """How many alerts or cases its line is about, by severity."""
    return alert.counts or Counter([alert.subject.severity])


def _alert(alert: HomeAlert, person: Person, button: ButtonIds) -> Block:
    """Its line, of a case with Show case, of what nobody works on with Assign to me; of a group with Show alerts."""
    view = RedactedView(alert.subject, person.clearance)
    if alert.counts.total() > 1:
        same = alert.is_one_title
        return group_line(view, alert.counts, alert.group, alert.raised_at, button, is_one_title=same)
    case = "case " if alert.subject.kind == "case" else ""
    at = slack_date(alert.raised_at)
    what = f"{runs.sign(view)}{case}{runs.on_what(alert.subject, view, alert.link)}"
    line = " · ".join([what, *first_observables(view), at])
    if case:
        return section(line, accessory=case_button(alert.subject.id, button) if view.is_open else None)
    if alert.is_assigned:
        return section(line)
    value = button(Intent("assign", alert.subject.id))
    return section(
        line, accessory=button_element("Assign to me", ids.ASSIGN, value, of=alert.subject.id, about=view.title())
    )


def _of(run: HomeRun, person: Person) -> str:
    """What a run is on, as above its line."""
    view = RedactedView(run.subject, person.clearance)
    return f"{runs.sign(view)}{runs.of_root(run.subject, view, run.link)}"


def run_block(run: HomeRun, person: Person, button: ButtonIds, *, under: str = "", has_again: bool = True) -> Block:
    """A run's line with its object, unless that is `under` the same, and the button that applies.

    That is Stop, Cancel, or Run again; of several Show each.
    """
    view, action = RedactedView(run.subject, person.clearance), run.action
    extension = undo_state.later_end(action)
    is_own = person.login == (action.created_by if extension is None else extension.asked_by)
    if run.in_place is not None:
        return _bulk(run, run.in_place, person, button, has_withdraw=has_again)
    of, line = _of(run, person), f"{runs.run_line(action, view)}{runs.waiting_end(action, view)}"
    line = line if of == under else f"{of}\n{line}"
    if runs.is_open(action) or extension is not None:
        end = runs.end_button(action, view, button, extension) if is_own or person.profile == "org-admin" else None
        return section(line, accessory=end)
    return section(line, accessory=run_again_button(action, view, button, is_own=is_own) if has_again else None)


def _bulk(run: HomeRun, bulk: BulkCounts, person: Person, button: ButtonIds, *, has_withdraw: bool) -> Block:
    """The line of a bulk; this run of it and the others are listed. While they all wait, who asked withdraws them."""
    listed, action = _together(run, person), run.action
    of, head, said = [run for run, _ in listed], states.head(bulk, listed), states.by_state(listed)
    by = f"by {person_name(action.created_by)}, {slack_date(action.start_date)}{runs.approved_by(*of)}"
    mark, on = runs.mark(*listed[0]), runs.first_targets(listed, bulk.total - bulk.refused)
    sign = "" if mark in "🔒🔓" else f"{mark} "  # which the head has where that is so of all
    line = f"{sign}{head}\n{on}\n{by}{undo_state.more_time_by(of)} · {bulk.id}"
    has_more = len(said) > 1 or any("\n>" in one for one in said)  # than the head says, or why
    closed = [one for one in listed if runs.awaits_decision(one[0]) and approvals.closed_by_now(one[1])]
    which = [f"⚠️ Alert closed by now: {runs.distinct_targets(closed)}"] * bool(closed)
    text = "\n".join([line, *which, *(said if has_more else ()), *states.more_time_denied(listed)])
    *_, withdraw = runs.bulk_buttons(bulk.id, None, button, "Withdraw")
    waits = has_withdraw and action.created_by == person.login and all(map(runs.awaits_approval, of))
    return section(text, accessory=withdraw if waits else states.show_each(bulk, button, action.id))


# --- lists of runs --------------------------------------------------------------------------------------------------


def run_list(
    title: str, shown: Sequence[HomeRun], person: Person, button: ButtonIds, *, hidden: int = 0, is_all: bool = True
) -> Message:
    """Runs, the newest first, with what can be done about them; `hidden` more are above this person's clearance."""
    blocks = [*head(title, len(shown)), *_with_deeds(shown[:MAX_LINES], person, button)]
    return Message(f"{title}: {len(shown)}", (*blocks, *_left_out(len(shown) - MAX_LINES, hidden, is_all=is_all)))


def _with_deeds(shown: Sequence[HomeRun], person: Person, button: ButtonIds) -> list[Block]:
    """The lines of runs, each with what this person can do about it; of a bulk with what its message has."""
    blocks = list[Block]()
    for run in shown:
        below, view = list[dict[str, Any]](), RedactedView(run.subject, person.clearance)
        if run.in_place:
            below += _bulk_buttons(run, run.in_place, person, button)
        elif undo_state.is_in_force(run.action):
            below += undos.buttons(run.action, view, button)
        is_asked = not run.in_place and runs.awaits_approval(run.action) and person.login != run.action.created_by
        line = request(run, person, button) if is_asked else run_block(run, person, button, has_again=not below)
        blocks += [line, actions(*below)] if below else [line]
    return blocks


def _bulk_buttons(run: HomeRun, bulk: BulkCounts, person: Person, button: ButtonIds) -> list[dict[str, Any]]:
    """What the message of a bulk has; who asked for what waits has Withdraw, with the only target that does."""
    is_own, found = person.login == run.action.created_by, list[dict[str, Any]]()
    if bulk.awaiting:
        review, withdraw = runs.bulk_buttons(bulk.id, None, button, "Withdraw", number=bulk.awaiting)
        on = [one for one in _together(run, person) if runs.awaits_approval(one[0])]
        if len(on) == bulk.awaiting == 1 and (name := runs.targets_in_plain(*on[0], ON_BUTTON)):
            withdraw["text"] = plain(f"Withdraw {foreign_plain(name, ON_BUTTON)}")
        found.append(withdraw if is_own else review)
    # What one run of it asks for alone is decided on its own message.
    ends = [end for one in (run, *run.others) if (end := undo_state.later_end(one.action)) and end.request]
    if ends:
        review, withdraw = runs.bulk_buttons(bulk.id, ends[0], button, "Withdraw")
        found.append(withdraw if ends[0].asked_by == person.login else review)
    return found + messages.end_buttons(bulk, button, has_again=is_own or person.profile == "org-admin")


def pending(
    to_decide: Sequence[HomeRun], others: Sequence[HomeRun], person: Person, button: ButtonIds, *, hidden: int = 0
) -> Message:
    """What waits for this person's approval, then what waits for somebody else's."""
    blocks: list[Block] = [*head("Waiting for your approval", len(to_decide))]
    blocks += [request(run, person, button) for run in to_decide[:MAX_LINES]]
    blocks += _left_out(len(to_decide) - MAX_LINES, 0)
    blocks += head("Waiting for others", len(others)) if others else []
    blocks += [run_block(run, person, button) for run in others[:MAX_OTHERS]]
    text = f"{count(len(to_decide), 'run')} for you to approve, {len(others)} for others"
    return Message(text, (*blocks, *_left_out(len(others) - MAX_OTHERS, hidden)))


def _left_out(left_out: int, hidden: int, *, is_all: bool = True) -> list[Block]:
    parts = [f"and {left_out} more"] if left_out > 0 else []
    parts += [f"{count(hidden, 'run')} above your clearance"] if hidden else []
    parts += [] if is_all else ["there are older ones, which aren't listed"]
    return [context(" · ".join(parts))] if parts else []


# --- what is in force -----------------------------------------------------------------------------------------------


def in_force_list(
    shown: Sequence[HomeRun],
    person: Person,
    text: str,
    button: ButtonIds,
    *,
    total: int,
    ignored: str,
    named: Sequence[HomeRun] = (),
) -> Message:
    """What is in force on what was typed, or on anything: the first of `total`, and how much is withheld.

    `ignored` is what else was typed, `named` are the runs and bulks whose ids were.
    """
    above = [run.subject.tlp for run in shown if not RedactedView(run.subject, person.clearance).is_open]
    shown = [run for run in shown if RedactedView(run.subject, person.clearance).is_open]
    hidden = f"{count(len(above), 'measure')}, {withheld(max(above))}" if above else ""
    on = f" on {foreign(defang_indicators(text), TEXT_LIMIT)}" if text else ""
    number = count(total, "measure") if total else hidden
    nothing = f"Nothing is in force{on}, as far as you may see, up to {tlp_name(person.clearance)}."
    head = f"In force{on}: {number}" if number else nothing
    title = section((f"*{head}*" if number else head) + (f"\n{hidden}." if hidden and total else ""))
    not_read = f"{code(ignored, TEXT_LIMIT)} was not understood, and nothing was changed."
    not_read += " *Extend* asks for how long." * bool(re.search(r"\d", ignored))
    left = _rest(total - len(shown), "type a target to find it")
    rows = [*_with_deeds(named, person, button), *measures(shown, person, button)]
    return Message(head, (title, *([context(not_read)] if ignored else []), *rows, *left))


def in_home(shown: Sequence[HomeRun], person: Person, *, total: int, button: ButtonIds) -> list[Block]:
    """The first of what is in force, for a Home; nothing if nothing is."""
    listed = [section(f"*In force* ({total})"), *measures(shown, person, button, marks=False)]
    listed += _rest(total - len(shown), "`/responder active` lists them")
    return [{"type": "divider"}, *listed] if total else []


def measures(shown: Sequence[HomeRun], person: Person, button: ButtonIds, *, marks: bool = True) -> list[Block]:
    """What each run has left in force, where, and what can be done about it; `marks`: also Mark as ended."""
    blocks: list[Block] = []
    for run in shown:
        view = RedactedView(run.subject, person.clearance)
        of = f"{runs.sign(view)}{runs.of_root(run.subject, view, run.link)}{run.also}"
        blocks.append(section(f"{runs.in_force_line(run.action, view)}\n{of}{runs.waiting_end(run.action, view)}"))
        shown_buttons = undos.buttons(run.action, view, button, part=run.part)
        if marks and (run.action.undo is None or run.action.undo.at is None or person.profile == "org-admin"):
            intent, of = button(Intent("mark_ended", run.action.id, run.part)), f"{run.action.id}{run.part}"
            shown_buttons.append(button_element("Mark as ended", ids.MARK_ENDED, intent, of=of))
        blocks += [actions(*shown_buttons)] if shown_buttons else []
    return blocks


def mark_ended_view(action: Action, view: RedactedView, part: str) -> dict[str, Any]:
    """Asks how somebody knows that it has ended, or one of its targets."""
    about = f"{runs.heading(action, view)} is then listed as ended. Nothing runs, and nothing will undo it."
    reason = modals.text_field("reason", "How do you know?", multiline=True, optional=False)
    return modals.ask("Mark as ended", ids.MARK_ENDED_VIEW, f"{action.id} {part}", [section(about), reason])
