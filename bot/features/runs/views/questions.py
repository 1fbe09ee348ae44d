"""What the forms before a run say, why one can't run, and what is said once it was asked for."""

import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions, button_element
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.subjects import object_line
from bot.block_kit.text import (
    OPTION_LIMIT,
    VIEW_TITLE_LIMIT,
    clip,
    clip_apart,
    clip_middle,
    code,
    context,
    defang_indicators,
    first_of,
    foreign,
    in_own_time,
    person_name,
    readable_name,
    said,
    section,
    sections,
    slack_date,
)
from bot.clearance import RedactedView, Subject, view_of_all
from bot.features.responders.views import LATER_COUNTS, with_names
from bot.features.runs.views import acts_on, runs, undo_state
from bot.features.runs.views.reports import read_report
from bot.features.runs.views.request import RunRequest
from bot.features.runs.views.undo_state import Able
from bot.message import Block, ButtonIds, Intent, Message
from core.common.clock import MINUTE_MS, duration_ms
from core.common.grouping import grouped
from core.common.words import count, some_of
from core.models import (
    MAX_TARGETS,
    Action,
    BulkAnswer,
    BulkEntry,
    Measure,
    OfferedResponder,
    Policy,
    RunTarget,
    TargetArtifact,
)

Listed = tuple[RedactedView, str, Sequence[str]]
"""An object, what a run on it acts on, and what is said of it below; mrkdwn."""

TITLE_LIMIT = 200
TOLD = "You get a message when it is decided."
NOTHING_KNOWN = "⚠️ responder-bot knows of nothing that this would end."
TICKED = "ask_again"  # the fields of what somebody asks for again
TO_TICK = ": left for you to tick"
MORE = "*More about these targets*"
MOST_LEFT = 3  # of what is in force, and of what waits
REASONS = 10
REASON_LIMIT = 500
LINES_LIMIT = 2900  # characters of a section
ACTS_ON_LIMIT = 2700  # in it, so that it also says for what
_USED = re.compile(r"\b(\d+) of (\d+) runs in ")  # core's note on a limit that is used in part


def intent_of(what: str, request: RunRequest, view: RedactedView) -> Intent:
    """To show the `form` of what is requested, or to make the `case` that it needs; `view` is of the first target."""
    return Intent(what, view.subject.root_id or view.subject.id, request.to_text())


def asked(action: Action, view: RedactedView, able: Able, button: ButtonIds) -> Message:
    """Says that the run waits, who may approve it, and until when; with Withdraw."""
    override = "🔴 *Override*: " if action.override is not None else ""
    run = f"*{runs.name(action)}*{runs.on_target(action, view) or f' on {_target(view)}'}"
    text = _waits(f"{override}{run}", action, able)
    then = section(f"{text}\n{TOLD}")
    return Message(text, (then, actions(runs.end_button(action, view, button))))


def _waits(what: str, action: Action, able: Able) -> str:
    """`*Isolate* on ip 203[.]0[.]113[.]7 for 1 hour waits ...`, and below who may approve it, by when; mrkdwn."""
    below = f"{undo_state.approvals_by(runs.missing_approvals(action), able)}{runs.answer_by(action)}"
    return f"{what}{undo_state.for_how_long(action)} waits for approval; nothing has run yet.\n{below}."


class Row(NamedTuple):
    """A target in the form before several runs: the object that it is for, and what the run acts on; mrkdwn."""

    view: RedactedView
    acts_on: str
    in_force: list[Measure | Action]
    """What the run ends or repeats there, and how somebody decided before."""
    also: list[RedactedView]
    """The other objects that this run is for."""
    named: str
    """Likewise, or the object, without what its alert says of it; mrkdwn."""
    approvers: Sequence[str] | None
    """Who may approve it; logins."""
    wanted: list[RunTarget]
    """What is asked for it, of each object."""
    on: Sequence[TargetArtifact]
    """What the run acts on, if known."""
    is_withdrawn: bool = False
    """Whether it was withdrawn in the request that is repeated."""

    @property
    def tick(self) -> str:
        """The value of the option that asks for it again."""
        return " ".join([self.wanted[0].object_id, *self.wanted[0].target])

    @property
    def is_closed(self) -> bool:
        return all(view.subject.closed for view in (self.view, *self.also))

    @property
    def warnings(self) -> list[str]:
        """What an option says of a closed alert, a denial or undo before and what is in force; mrkdwn."""
        closed = "⚠️ alert closed" if self.is_closed else ""
        decided = f"{runs.DECIDED[self.decided]} {self.decided} before" if self.decided else ""
        held = "🔒 contained already" if self.is_contained else ""
        return [*filter(None, [" · ".join(filter(None, [closed, decided, held]))])]

    @property
    def is_contained(self) -> bool:
        return any(isinstance(one, Measure) and one.state != "asked" for one in self.in_force)

    @property
    def decided(self) -> str:
        """How somebody decided against it before, or that it was withdrawn; or ""."""
        decided = [one.decided_against for one in self.in_force if isinstance(one, Action)]
        return next((one.how for one in decided if one is not None), "withdrawn" if self.is_withdrawn else "")

    def listed(self, responder: OfferedResponder, login: str) -> Listed:
        """With whether its alert is closed, the other objects, and what is in force there or was decided before."""
        also = undo_state.also_for([view.subject.id for view in self.also])[2:]
        lines = in_force_lines(self.in_force, responder, view_of_all([self.view, *self.also]), login, says_change=False)
        return self.view, self.acts_on, [runs.closed_line(self.view), also, *lines]


class OnEach(NamedTuple):
    """On which of several targets something runs."""

    ready: Sequence[Row]
    undecided: Sequence[Row] = ()
    """Where somebody has yet to choose what it acts on."""
    refused: Sequence[tuple[Sequence[Row], str]] = ()
    """What core refuses, each with all objects that have this target, and why, foreign text."""
    without: str = ""
    """That some are left out, and why."""
    login: str = ""
    """Who is asked."""
    is_again: bool = False
    """Whether a bulk is asked for again."""

    @property
    def kept(self) -> list[str]:
        """What is ticked at first: not what somebody decided against before, or whose alerts are closed."""
        return [row.tick for row in self.ready if not (row.decided or row.is_closed)]

    @property
    def is_ticked(self) -> bool:
        """Whether somebody ticks what they ask for again."""
        return self.is_again and 1 < len(self.ready) > len(self.kept)

    @property
    def accepted(self) -> list[Row]:
        """Where core won't refuse it."""
        return [*self.ready, *self.undecided]

    @property
    def able(self) -> Able:
        """Who may approve these runs."""
        return Able.on([(row.named, row.approvers or ()) for row in self.accepted])

    @property
    def on(self) -> str:
        """`6 targets in 5 alerts, and those that you choose of ~26`."""
        of = [[row.view, *row.also] for row in self.ready]
        of = of or ([] if self.undecided else [[row.view for row in rows] for rows, _ in self.refused])
        known, ids_ = count(len(of), "target"), {view.subject.id for views in of for view in views}
        known += f" in {count(len(ids_), 'alert')}" if len(ids_) != len(of) else ""
        chosen = some_of([row.view.subject.id for row in self.undecided], runs.MAX_TARGETS)
        choose = f"{'and ' if of else ''}those that you choose of {chosen}" if chosen else ""
        return ", ".join(filter(None, [known if of else "", choose]))


def on_each(responder: OfferedResponder, each: OnEach, first: Sequence[Block] = ()) -> list[Block]:
    """On what it runs and what happened there before, what is to be read `first`, and each.

    Last those that core will refuse.
    """
    policy = responder.policy
    blocks: list[Block] = [section(_about_each(responder, each)), *first]
    if each.accepted:
        blocks += _rows(responder, each)
        blocks += [] if any(row.in_force for row in each.accepted) else sections(nothing_known(responder))
    if each.refused:
        why = [(refused(rows, policy), why_not) for rows, why_not in each.refused]
        blocks.append(section(why_refused(f"*Will be refused on {count(len(why), 'target')}*", why)))
    able = able_now(responder, each)
    if each.is_ticked and able < len(each.ready):
        blocks.append(section(f"⚠️ {_beyond(policy)}: the others are refused."))
    elif able < (most := _most_now(responder)) < able + sum(len(row.on) for row in each.undecided):
        blocks.append(section(f"⚠️ {_beyond(policy)}: of what you choose at most {most - able} can run."))
    return blocks


def _beyond(policy: Policy) -> str:
    return f"More than its limit of {' and '.join(_rates(policy))}"


def _about_each(responder: OfferedResponder, each: OnEach) -> str:
    """`*Isolate* on *6 targets*, after 1 approval; *2 will be refused*`, and what happened there before; mrkdwn."""
    policy, accepted = responder.policy, each.accepted
    able, number = able_now(responder, each), len(each.ready)
    beyond, on = 0 if each.is_ticked else number - able, each.on
    if beyond:
        of = f"{able} of {count(number + len(each.refused), 'target')}"
        on = on.replace(count(number, "target"), of, 1)
    about = f"*{names.shown(responder)}* on *{on}*"
    if accepted and policy.approval:
        about += f", after {count(policy.approval, 'approval')}"
    if accepted and (refused := len(each.refused) + beyond):
        about += f"; *{refused} will be refused*"
    contained = [row for row in accepted if policy.undo and row.is_contained]
    decided = [row.decided for row in accepted]
    about += _ticked_for_you(each) if each.is_ticked else ""
    left_out = f"\n{foreign(each.without, LINES_LIMIT)}".rstrip()
    which, more = {"contained": f". {undo_state.change_of_any(policy)}"}, TO_TICK if each.is_ticked else ""
    return about + warned(decided, contained, more, which) + left_out


def _ticked_for_you(each: OnEach) -> str:
    """` · 18 of 20 ticked for you`, and how many are not, as their alerts are closed; mrkdwn."""
    closed = sum(row.is_closed for row in each.ready)
    are_closed = f"{closed} of {len(each.ready)} {'is' if closed == 1 else 'are'} closed by now"
    left = f"\n⚠️ *{are_closed}*{TO_TICK}" if closed else ""
    return f" · {len(each.kept) or 'none'} of {len(each.ready)} ticked for you{left}"


def _rows(responder: OfferedResponder, each: OnEach) -> list[Block]:
    """Each target that core won't refuse: first those that are ready, then where somebody has yet to choose.

    Core runs on the first, as far as the limits allow, so the others are below.
    """
    blocks, number, able = list[Block](), len(each.ready), able_now(responder, each)
    rows = [row.listed(responder, each.login) for row in each.ready]
    beyond = f"{_beyond(responder.policy)}: refused on"
    if each.is_ticked:
        blocks += _ticks(responder, each)
    elif each.ready:
        blocks += listed(f"*Runs on {count(able, 'target')}*", rows[:able]) if able else []
        blocks += listed(f"*{beyond}*", rows[able:]) if rows[able:] else []
    if each.undecided:
        on = beyond if able == _most_now(responder) else "And on" if number else "Runs on"
        undecided = [row.listed(responder, each.login) for row in each.undecided]
        blocks += listed(f"*{on} what you choose below of*", undecided)
    return blocks


def _ticks(responder: OfferedResponder, each: OnEach) -> list[Block]:
    """The targets to tick, and below them what their options don't say."""
    options, more = list[tuple[str, str, str]](), list[Listed]()
    called = clip_apart([runs.called_in_plain(row.on, row.view, runs.TARGET_LIMIT) for row in each.ready], OPTION_LIMIT)
    for row, name in zip(each.ready, called, strict=True):
        also = [view.subject.id for view in row.also]
        text, below, has_room = runs.in_option(row.on, also, row.view, name, row.warnings)
        options.append((row.tick, text, below))
        about = row.listed(responder, each.login)
        more += [about] if not has_room or any(about[2]) or "…" in f"{text}{below}" else []
    fields = modals.ticked_fields(TICKED, "Ask only for the ticked", options, each.kept)
    return [*fields, *(listed(MORE, more) if more else [])]


def able_now(responder: OfferedResponder, each: OnEach) -> int:
    """On how many of those that are ready it runs now."""
    return min(len(each.ready), _most_now(responder))


def _most_now(responder: OfferedResponder) -> int:
    """On how many targets it may run now: its limits, and what of these is used, may allow fewer than core takes."""
    left = [int(rate.partition("/")[0]) for rate in responder.policy.rate or ()]
    left += [int(most) - int(of) for of, most in _USED.findall("; ".join(responder.reasons or ()))]
    return min([MAX_TARGETS, *left])


def in_force_lines(
    found: Sequence[Measure | Action],
    responder: OfferedResponder,
    view: RedactedView,
    login: str,
    *,
    says_change: bool = True,
) -> list[str]:
    """What the run would undo, whose it is, until when, who hears; what waits, was denied or undone, or is repeated.

    Behind what contains the target already, what a second run changes, if that is to be said.
    """
    lines = runs.decided_lines([one for one in found if isinstance(one, Action)], view)
    left, waits, policy = list[str](), list[str](), responder.policy
    for one in found:
        if isinstance(one, Action) and one.decided_against is not None:
            continue
        if isinstance(one, Action):
            waits.append(_waits_beside(one, view, login, ": withdraw or deny it too" if policy.is_undo else ""))
        elif one.undo is None or one.undo.responder != responder.name:
            stays = f"🔒 {undo_state.whose(one, undo_state.targets(one, view))} stays in force."
            changes = undo_state.change_of_any(policy) if says_change else ""
            (lines if policy.undo else left).append(runs.already(one, view, changes) if policy.undo else stays)
        else:
            lines += filter(None, [*undo_state.all_ended([one], view, login), undo_state.request_ends(one)])
    return [*lines, *first_of(left, MOST_LEFT), *first_of(waits, MOST_LEFT)]


def _waits_beside(run: Action, view: RedactedView, login: str, then: str) -> str:
    """That a run still waits for approval, who asked, on what other object it is, and what `then` to do; mrkdwn."""
    what = f"*{runs.name(run)}* on {runs.targets(run, view) or run.object_id}{undo_state.for_how_long(run)}"
    at, of = slack_date(run.start_date), f", for {run.object_id} ({run.id})"
    own, by = f"Your request of {at}, {what}", f"{what}, asked by {person_name(run.created_by)}, {at}"
    which = f"{own if run.created_by == login else by}{'' if run.object_id == view.subject.id else of}"
    return f"⚠️ {which}, still waits for approval{then}."


def warned(
    decided: Sequence[str], contained: Sized, more: str = "", which: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A line `🚫 1 denied before · 🔒 2 contained already`, or "".

    `decided` says how each was decided against before, "" where it was not; `more` is on those. `which` says of the
    `denied`, the `undone` and the `contained` which they are, or what changes there.
    """
    counts = [(how, mark, decided.count(how)) for how, mark in runs.DECIDED.items()]
    each = [f"{mark} *{number} {how} before*{which.get(how, '')}" for how, mark, number in counts if number]
    before = f"{' · '.join(each)}{more}" if each else ""
    held = f"🔒 *{len(contained)} contained already*{which.get('contained', '')}" if contained else ""
    return f"\n{' · '.join(filter(None, [before, held]))}".rstrip()


def nothing_known(responder: OfferedResponder) -> list[str]:
    """What a run that undoes says if it finds nothing in force: somebody else may have contained the target."""
    return [NOTHING_KNOWN] if responder.policy.is_undo else []


def deed(request: RunRequest, responder: OfferedResponder, limit: int = VIEW_TITLE_LIMIT) -> str:
    """The label of the button that starts the run, or asks for it, or does so beside the same run."""
    needed = approvals_needed(request, responder)
    if request.anyway:
        return "Ask anyway" if needed else "Run anyway"
    return names.deed(responder, needed, limit)


def is_confirmed(policy: Policy) -> bool:
    """Whether somebody confirms a run in its form: it contains, undoes or sends something, or the policy asks."""
    return bool(policy.confirm or policy.contains or policy.is_undo or policy.sends_to)


def approvals_needed(request: RunRequest, responder: OfferedResponder) -> int:
    """How many approvals the run will need, with the one more of an override."""
    return responder.policy.approval + (request.override_reason is not None)


def _lasts(policy: Policy, it: str, undo: str) -> str:
    """How long what a run does lasts, whichever time is chosen; "" for a run that undoes something."""
    if policy.undo:
        by = foreign(policy.undo_title or readable_name(policy.undo), NAME_LIMIT)
        ends = f"With a time {it} ends" if undo_state.may_last(policy) else "Ends"
        return f"{ends} by itself ({by}); *{undo}* ends it at any moment."
    if policy.sends_to is not None or policy.is_undo:  # where it sends to says it, or what it ends
        return "" if policy.sends_to or policy.is_undo else undo_state.NOTHING_LEFT
    return "No button ends it earlier." if policy.contains else "No button undoes it."


def on_what(request: RunRequest, responder: OfferedResponder, view: RedactedView) -> list[Block]:
    """The question with what the run acts on, where that is known, and the object that it is for."""
    lines, chosen = acts_on.lines(request.targets[0], responder, view), acts_on.chosen(request.targets[0], responder)
    if view.subject.kind == "case_artifact" and not lines:
        lines = [foreign(runs.target(view), runs.TARGET_LIMIT)]
    elif responder.target is None or not lines:
        return [*sections(filter(None, [runs.closed_line(view), subject_line(view), *lines]))]
    on, said = count(len(chosen), "target"), ""
    if len(lines) == 1:
        (on, said), lines = runs.only_target(chosen, view) if chosen else (lines[0], ""), []
    asks = f"*{names.shown(responder)} on {on}?*{said}"
    return [*sections(filter(None, [asks, runs.closed_line(view), *lines, subject_line(view)]))]


def subject_line(view: RedactedView) -> str:
    """The severity, linked title and id of an alert, or what names another object; of an artifact what has it."""
    subject = view.subject
    if subject.kind == "case_artifact":
        return f"of {runs.named(view)}"
    named = str(object_line(view)["text"]["text"])
    return f"{named} · {subject.id}" if subject.kind == "alert" else named


def effect(responder: OfferedResponder, request: RunRequest, each: OnEach | None = None) -> list[Block]:
    """When the run, or `each` of several, starts, how long it lasts, and what takes it back."""
    policy, is_several = responder.policy, each is not None
    number = approvals_needed(request, responder)
    if policy.sends_to == [] and not policy.is_undo and not number and (policy.confirm or not is_several):
        return [] if responder.parameters else [context(undo_state.NOTHING_LEFT)]  # it only reads, or closes
    checked, it, undo, of = "", "it", "Undo now", ""
    if is_several:
        checked, it, undo, of = "Each is checked by itself. ", "each", "Undo all", " each"
    if number:
        able = each.able if each is not None and each.able.logins else Able(responder.approvers or ())
        is_override = request.override_reason is not None
        asks = asks_for_approval("Starts after", policy, number, able, of, is_override=is_override)
        begins = f"{asks}. You can withdraw {it} until then."
    else:
        stop = "" if policy.sends_to else f"; *Stop* is on {'each' if is_several else 'the'} card while it runs"
        begins = f"Starts at once, without approval{stop}."
    return [context(f"{checked}{begins} {_lasts(policy, it, undo)}".rstrip())]


def asks_for_approval(
    after: str, policy: Policy, number: int, offered: Able, each: str = "", *, is_override: bool = False
) -> str:
    """`Asks ben and lea; one of them approves`, or `after` that `1 approval by ben` where nobody is asked; mrkdwn."""
    able = offered if offered.logins else Able(policy.approve_by or ())
    needs = f"{after} {undo_state.approvals_by(number, able)}"
    if is_override and (number > 1 or not able.logins):
        return f"{needs}{', one of them' if number > 1 else ''} of another administrator"
    if not offered.logins or policy.ask:
        return needs
    who = f"the administrator{'s' if len(able.logins) > 1 else ''} " if is_override else ""
    needs = f"one of them approves{each}" if number == 1 < len(able.logins) else f"it needs {count(number, 'approval')}"
    return f"Asks {who}{notices.all_of(able.logins)}{able.only}; {needs}"


def notes(responder: OfferedResponder, view: RedactedView, *, is_choosing: bool = False) -> list[Block]:
    """What core notes of a run that contains; where somebody chooses what it acts on, also what of it is protected."""
    protected = responder.target.protected if responder.target is not None else {}
    here = view.artifacts() if is_choosing else ()
    shown = [f"not offered: {protected[one.id]}" for one in here if one.id in protected]
    if responder.policy.contains:
        others = [note for note in responder.notes if note not in protected.values()]
        shown += [note for note in others if LATER_COUNTS not in note]
    named = [view.text(with_names(note, view, is_described=True)) for note in shown]
    text = "\n".join(f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in named)
    return [section(in_own_time(foreign(defang_indicators(text), 1500, lines=True)))] if text else []


def limit(policy: Policy) -> list[Block]:
    """`Limit for everybody together: 1 run in 1 hour. Choose all ...`, where a run may act on several targets."""
    each = _rates(policy)
    said = f"Limit for everybody together: {' and '.join(each)}. Choose all that you need now."
    return [context(said)] if each else []


def _rates(policy: Policy) -> list[str]:
    """`2 runs in 1 hour`, each."""
    rates = [rate.partition("/") for rate in policy.rate or ()]
    periods = [(int(most), duration_ms(period) // MINUTE_MS) for most, _, period in rates]
    return [f"{count(most, 'run')} in {undo_state.minutes(minutes)}" for most, minutes in periods if minutes]


def policy_words(policy: Policy, does: str = "") -> list[Block]:
    """What the policy says of the effect, or else what it `does`, as a quotation, and where it sends what it gets."""
    quotation = foreign(policy.confirm or does, 1500, lines=True).replace("\n", "\n>")
    return sections(filter(None, [f">{quotation}" if quotation else "", sends_to(policy)]))


def sends_to(policy: Policy) -> str:
    """To which hosts or mail addresses the run sends what it gets, if its settings name them; mrkdwn."""
    to = [code(one, NAME_LIMIT) for one in policy.sends_to or ()]
    return f"It sends what it gets to {some_of(to, REASONS)}, and nothing calls that back." if to else ""


def _target(view: RedactedView) -> str:
    return foreign(clip_middle(runs.target(view), runs.TARGET_LIMIT), runs.TARGET_LIMIT)


def open_run(
    request: RunRequest, running: Action, responder: OfferedResponder, view: RedactedView, review: Sequence[Block]
) -> list[Block]:
    """Who started the same run before, or asked for it, what opens that for `review`, and what both act on."""
    began = "asked for" if runs.awaits_approval(running) else "started"
    does = ("waits" if running.status == "Waiting" else "runs") + runs.on_object(running, view, _target(view))
    by = f"{person_name(running.created_by)} {began} it {slack_date(running.start_date)} ({runs.state(running)})"
    said = f"*{names.shown(responder)}* already {does}. {by}. Nothing new was started."
    return [section(said), *review, *sections(acts_on.lines(request.targets[0], responder, view))]


def cannot_run(
    request: RunRequest,
    responder: OfferedResponder,
    view: RedactedView,
    reason: str,
    button: ButtonIds,
    *,
    then: Sequence[str] = (),
    in_force: Sequence[Measure] = (),
    may_override: bool = False,
    may_make_case: bool = False,
    instead: Sequence[str] = (),
) -> Message:
    """Why a responder was not run (`reason`, mrkdwn), what is in force already, and what this person may do.

    `then` are lines on who used its limit, when it can run again, and who can override that; mrkdwn. `instead` are
    commands that run it on something else.
    """
    name = names.shown(responder)
    text = f"*{name}* can't run on {_target(view)}: {reason}. Nothing was run."
    text += f" Type {' or '.join(code(one, 200) for one in instead)}." if instead else ""
    blocks = sections(
        [text, *then, *first_of([undo_state.already(one, view, "").rstrip() for one in in_force], REASONS)]
    )
    if may_override:
        value = button(intent_of("form", replace(request, parameters={}, override_reason=""), view))
        blocks.append(actions(button_element("Override ...", ids.BREAK_GLASS, value, style="danger")))
    if may_make_case:
        blocks.append(actions(button_element("Make a case", ids.MAKE_CASE, button(intent_of("case", request, view)))))
    return Message(f"{name} can't run on {_target(view)}.", tuple(blocks))


def ambiguous_name(typed: str, responders: list[OfferedResponder], subject: Subject, command: str) -> Message:
    """Asks which of several responders with such a name is meant."""
    lines = [f"• {code(f'{command} run {names.example(r)} {subject.id}', 250)}" for r in responders]
    asks = f"{foreign(typed, 100)} could be {count(len(responders), 'responder')}; which one?"
    return Message(asks, (section("\n".join([asks, *first_of(lines, 10)])),))


def listed(head: str, each: Sequence[Listed], most: int = 0) -> list[Block]:
    """The most severe first; all of them where somebody decides by them, else the first `most`."""
    worst_first = sorted(each, key=lambda one: -one[0].subject.severity)
    lines = [with_said(f"• {named(view, on)}", *said) for view, on, said in worst_first]
    return sections([head, *first_of(lines, most or len(each))])


def with_said(row: str, *said: str) -> str:
    """A row, with what is said of it alone indented below it."""
    return "\n    ↳ ".join([row, *(line for text in said for line in text.splitlines())])


def named(view: RedactedView, acts_on: str = "") -> str:
    """``🟠 hostname `LT-0198`, for HIGH its title (~12)``: what a run `acts_on`, and the object that has it; mrkdwn."""
    root = runs.of_root(view.subject, view)
    if view.subject.kind == "case_artifact":
        acts_on = acts_on or foreign(clip_middle(view.title(), TITLE_LIMIT), TITLE_LIMIT)
    return f"{runs.sign(view)}{f'{clip(acts_on, ACTS_ON_LIMIT)}, for {root}' if acts_on else root}"


def refused(on: Sequence[Row], policy: Policy) -> str:
    """The first of these objects with one target, the others by id, and what contains the target already; mrkdwn."""
    first, *others = on
    found = first.in_force if policy.undo else ()
    already = [undo_state.already(one, first.view, "").rstrip() for one in found if isinstance(one, Measure)]
    also = undo_state.also_for([one.view.subject.id for one in others])
    return with_said(named(first.view, first.acts_on) + also, *already)


def why_refused(head: str, refused: Iterable[tuple[str, str]]) -> str:
    """Each reason once, with what it is about, `named` as above; last those that several have, above their lines."""
    why, lines = grouped((reason_shown(reason), f"• {name}") for name, reason in refused), list[str]()
    for reason, rows in sorted(why.items(), key=lambda one: len(one[1]) > 1):
        if len(rows) > 1:
            rows = [f"{reason[0].upper()}{reason[1:].rstrip('.')}:", *first_of(rows, REASONS)]
        else:
            rows = [with_said(rows[0], reason) if "\n" in rows[0] else f"{rows[0]}: {reason}"]
        lines.append("\n".join(rows))
    return clip("\n".join([head, *first_of(lines, REASONS)]), LINES_LIMIT)


def with_reasons(
    text: str, head: str, refused: Sequence[tuple[str, str]], *more: Block, rows: Sequence[str] = ()
) -> Message:
    """What was done, on which `rows`, and below the head why the rest was not."""
    why = [section(why_refused(head, refused))] if refused else []
    return Message(text, (*sections([text, *rows]), *why, *more))


def reason_shown(reason: str) -> str:
    return in_own_time(foreign(defang_indicators(said(reason)), REASON_LIMIT)) or "no reason was given"


def outcome(
    response: BulkAnswer,
    listed: Sequence[tuple[Action, RedactedView]],
    able: Able,
    where: str,
    without: str,
    left_out: Sequence[RedactedView],
    button: ButtonIds,
) -> Message:
    """Says that the `listed` runs wait, as one alone does, or were started; on what others were refused, and why.

    `where` tells how it goes, such as `A direct message`, or "". `without`: what the form left out. Nothing was
    chosen of what was `left_out`.
    """
    text, more = "Nothing was asked for or started.", list[Block]()
    if listed:
        action, what = listed[0][0], f"*{runs.name(listed[0][0])}* on {runs.distinct_targets(listed, most=REASONS)}"
        waits = runs.awaits_approval(action)
        text = _waits(what, action, able) if waits else f"Started {what}{undo_state.for_how_long(action)}."
        _, withdraw = runs.bulk_buttons(response.id, None, button, "Withdraw", number=len(listed))
        more = [actions(withdraw)] if waits else []
    refused = [(entry.object_id, why_not(entry)) for entry in response.actions if why_not(entry)]
    undo = ", with *Undo all*" if listed and not more and listed[0][0].undo is not None else ""
    more += [context(f"{where} tells how it goes{undo}.")] if where else []
    left = some_of([runs.of_root(view.subject, view) for view in left_out], REASONS)
    rows = [*filter(None, [foreign(without, LINES_LIMIT), f"Left out, as not chosen: {left}." if left else ""])]
    return with_reasons(text, f"*Refused on {count(len(refused), 'target')}*", refused, *more, rows=rows)


def why_not(entry: BulkEntry) -> str:
    """Why a run was not decided: core refused it, or what it runs on has changed; "" if it was."""
    if entry.action is None:
        return entry.message or "refused"
    return read_report(entry.action).message if runs.state_of(entry.action) == "failed" else ""
