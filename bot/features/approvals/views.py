"""What somebody who is to approve a run reads: the question, who asks and why, the target, and what follows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import actions
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clean,
    clip,
    clip_apart,
    code,
    context,
    core_says,
    defang_indicators,
    escape,
    first_of,
    foreign,
    people,
    person_name,
    plain_name,
    section,
    sections,
    slack_date,
    time_ahead,
)
from bot.clearance import SHARED, Closing, RedactedView, Subject, artifact_title, may_see, tlp_name, withheld
from bot.features.responders import views as responders
from bot.features.runs.views import questions, runs, undo_state
from bot.features.runs.views.runs import run_again_button
from bot.features.undos import views as undos
from bot.message import Block, ButtonIds, Message
from core.common.clock import MINUTE_MS
from core.common.grouping import grouped
from core.common.words import count, some_of
from core.models import NOTE_LIMIT, SEVERITY_NAMES, Action, Extension, Measure, OfferedResponder, Person, Policy

REASON_LIMIT = 1000  # characters of why somebody denied it
WHY_LIMIT = 200  # characters of why an alert was closed
INPUTS_LIMIT = 2000  # of all together
MAX_OBSERVABLES = 10
CUT_INPUT_LIMIT, CUT_INPUTS = 300, 6  # if they don't fit
POLICY_LIMIT = 1000
MOST_LISTED = 10  # of what a command may mean
ENDS = "It ends what is in force there, which *Approve* names."


def named_approvers(policy: Policy) -> str:
    """Who may approve a run, if the settings name them; mrkdwn."""
    if policy.approve_by is None:
        return ""
    named = ", ".join(map(plain_name, policy.approve_by))
    return foreign(f"Can be approved by: {named or 'nobody'}.", POLICY_LIMIT)


def inputs(action: Action, view: RedactedView) -> list[str]:
    """What the requester gave the run beside the note, one line each. Says if these are not all."""
    if action.parameters is None or not _needs_file(action, view):
        return input_lines(action, view, INPUTS_LIMIT)
    lines = input_lines(action, view, CUT_INPUT_LIMIT)[:CUT_INPUTS]
    return [*lines, f"*Not all inputs fit here*: {_file_name(action)} in the thread of the card has them."]


def input_lines(action: Action, view: RedactedView, limit: int) -> list[str]:
    """Likewise, each with at most `limit` characters."""
    if action.parameters is None:
        return ["Inputs: not recorded"]
    return [f"• {line}" for line in runs.input_lines(action, view, limit)]


def _may_act_on(action: Action, view: RedactedView) -> list[str]:
    """The observables of the alert, one line each, where nobody has declared what the run acts on."""
    shown = _titles(action, view)
    number, hidden = _number_of_observables(action, view)
    if action.target is not None or not number:
        return []
    lines = [f"• {escape(title)}" for title in clip_apart(shown[:MAX_OBSERVABLES], runs.TARGET_LIMIT)]
    if (more := len(shown) - MAX_OBSERVABLES) > 0:
        lines.append(f"*and {more} more*: {_file_name(action)} in the thread of the card has them.")
    if hidden:
        lines.append(f"and {hidden} withheld ({tlp_name(max(artifact.tlp for artifact in action.artifacts))})")
    may_act = "It may act on this observable:" if number == 1 else f"It may act on any of {number} observables:"
    return [f"It gets {count(number, 'observable')}:" if action.only_tells else may_act, *lines]


def _can_also_read(action: Action, view: RedactedView) -> str:
    """How many observables a run gets beside its targets; "" for none."""
    number = _number_of_observables(action, view)[0] - len(action.target or ())
    of = view.subject.root_id or view.subject.id
    return f"It can also read {count(number, 'other observable')} of {of}" if action.target and number > 0 else ""


def _number_of_observables(action: Action, view: RedactedView) -> tuple[int, int]:
    """How many the run gets, and how many of them are withheld, as far as that may be said."""
    shown = len(_titles(action, view))
    number = len(action.artifacts) if view.clearance != SHARED else shown
    return number, number - shown


def observables_in_short(action: Action, view: RedactedView) -> str:
    """Likewise, in one line of a list."""
    shown = [escape(title) for title in clip_apart(_titles(action, view)[:3], 200)]
    return some_of(shown, len(shown), len(action.artifacts))


def _titles(action: Action, view: RedactedView) -> list[str]:
    """Those that may be shown; foreign text, not escaped."""
    seen = [artifact for artifact in action.artifacts if view.is_open and may_see(view.clearance, artifact.tlp)]
    return [clean(view.text(artifact_title(artifact))) for artifact in seen]


def whole_request(action: Action, subject: Subject, clearance: int) -> tuple[str, str] | None:
    """Name and text of a file with all inputs and observables; None if the request shows them, or they are withheld."""
    view = RedactedView(subject, clearance)
    parts = [f"{name}:\n{text}" for name, text in runs.inputs(action, view)] if view.shows_inputs else []
    titles = _titles(action, view) if action.target is None else []
    if len(titles) <= MAX_OBSERVABLES and not _needs_file(action, view):
        return None
    return _file_name(action), "\n\n".join([*parts, *(["Observables:\n" + "\n".join(titles)] if titles else [])])


def _needs_file(action: Action, view: RedactedView) -> bool:
    characters = sum(len(escape(name + text)) + 8 for name, text in runs.inputs(action, view))
    return view.shows_inputs and characters > INPUTS_LIMIT


def _file_name(action: Action) -> str:
    return f"request-{action.number}.txt"


def _asked(
    action: Action,
    view: RedactedView,
    now_ms: int,
    *,
    link: str = "",
    who: str = "",
    follows: str = "",
    is_kept: bool = False,
    used_by: str = "",
) -> list[Block]:
    """The question, what happened to it before, who asks and why, against which rules, the targets, and what `follows`.

    Without it, while it waits, what follows once it is approved. Then what it changes of what is in force already.
    """
    held = already(action, view, now_ms, is_kept=is_kept)
    then = [follows or undo_state.planned(action), *held] if follows or runs.awaits_approval(action) else []
    asks, targets = _question(action, view)
    by = f"*{person_name(action.created_by)}* asks · {runs.named(view, link)}"
    about = [*targets, *_may_act_on(action, view), *inputs(action, view)]
    return sections(
        [
            f"{who} {_override(action)}{asks}".strip(),
            *_warned(action, view, is_kept=is_kept),
            f"{by}{note(action, view)}",
            *against(action, view, used_by),
            *about,
            *then,
        ]
    )


def _targets(action: Action, view: RedactedView) -> list[str]:
    """What the run acts on, a line each with what the alert says of it; mrkdwn."""
    lines = runs.target_lines(action.target or (), view)
    return lines if len(lines) == 1 else [f"• {line}" for line in lines]


def _several(action: Action, view: RedactedView) -> list[str]:
    """Likewise, unless it is one, which the question names."""
    return _targets(action, view) if len(action.target or ()) > 1 else []


def already(action: Action, view: RedactedView, now_ms: int | None = None, *, is_kept: bool = False) -> list[str]:
    """What is in force already, and what a run changes of it if it starts now; without `now_ms` at any time; mrkdwn."""
    held = undo_state.in_force_already(action, view)
    return [runs.already(one, view, undo_state.change_of_second(action, one, now_ms), is_kept=is_kept) for one in held]


def warnings(action: Action, view: RedactedView) -> list[str]:
    """What an option says of a closed alert, a denial or undo before and what is in force: all, or the shortest."""
    found, asks = undo_state.in_force_already(action, view), runs.awaits_approval(action)
    why, run = "", next(iter(_last_first(action, view)), None)
    decided = run.decided_against if run is not None else None
    before = ["⚠️ alert closed" if view.subject.closed else "", ""]
    if run is not None and decided is not None:
        so = f"{runs.DECIDED[decided.how]} {decided.how}"
        before[1], because = f"{so} before", runs.why_decided(run, view)
        then = f": {because}" if because else f", {undo_state.in_option(slack_date(decided.at))}"
        why = f"{so} {runs.decided_by(run, decided)}{runs.for_another(run, view)}{then}"
    if not (asks and view.is_open and any([*before, *found])):
        return []
    whole = [before[0], why, *(undo_state.already_in_short(one, is_named=True) for one in found)]
    short = [*before, *map(undo_state.already_in_short, found)]
    shortest = [*before, "🔒 contained already" if undo_state.contained(action, view) else ""]
    return [said for texts in (whole, short, shortest) if (said := " · ".join(filter(None, texts)))]


def _question(action: Action, view: RedactedView) -> tuple[str, list[str]]:
    """``*Isolate on hostname `LT-0777` for 1 hour?* · host inside``, or on how many targets, and lines on these."""
    lines, number, what, said = _targets(action, view), len(action.target or ()), run_on(action, view), ""
    if number > 1:
        what = f"{runs.name(action)} on {count(number, 'target')}"
    elif lines:
        on, said = runs.only_target(action.target or (), view)
        what, lines = f"{runs.name(action)} on {on}", []
    asks = f"{what}{undo_state.for_how_long(action)}{'?' if runs.awaits_approval(action) else ''}"
    return f"*{asks}*{said}", lines


def note(action: Action, view: RedactedView) -> str:
    """Why it is asked for, or rules are overridden, as a quotation; mrkdwn."""
    if action.override is not None:
        return f" · {runs.quoted(action.override.reason, REASON_LIMIT, view)}"
    return runs.noted(action, view, NOTE_LIMIT, " · ")


def _override(action: Action) -> str:
    """What whoever decides reads before the question."""
    return "🔴 *Override*: " if action.override is not None and runs.awaits_approval(action) else ""


def _warned(action: Action, view: RedactedView, *, is_kept: bool = False) -> list[str]:
    """What they read directly below it."""
    return happened(action, view, is_kept=is_kept).splitlines() if runs.awaits_approval(action) else []


def happened(action: Action, view: RedactedView, *, is_kept: bool) -> str:
    """Lines on that the alert or case was closed, on who undid the same since or decided against it before; mrkdwn.

    In a message, which `is_kept`, without why that was for another alert: its levels may withhold that later.
    """
    if not view.is_open:
        return ""
    since = undo_state.undone_since(action, view)
    decided = [one for one in _last_first(action, view) if one.undo is None or one.undo.action_id not in since]
    before = "".join(f"{line}\n" for line in runs.decided_lines(decided, view, is_kept=is_kept))
    return f"{closed(view, action.created_at)}{''.join(since.values())}{before}"


def _last_first(action: Action, view: RedactedView) -> list[Action]:
    """What was decided against before on its targets, as far as this view may see it."""
    seen = undo_state.decided_before(action.decided_before, view.clearance)
    return sorted(seen, key=lambda one: one.decided_against.at if one.decided_against else 0, reverse=True)


def closed(view: RedactedView, asked_at: int) -> str:
    """A line on that the alert or case was closed, since or before something was asked; "" while it is open; mrkdwn."""
    closing = view.subject.closed
    if closing is None or not view.is_open:
        return ""
    order, why = "since" if closing.at > asked_at else "before", runs.quoted(closing.why, WHY_LIMIT, view)
    said = f"{_closed_by(closing)}, {slack_date(closing.at)}, {order} this was asked"
    return f"⚠️ *{said}*{f': {why}' if why else ''}\n"


def _closed_by(closing: Closing) -> str:
    return f"{closing.what} closed by {person_name(closing.by)}" if closing.by else f"{closing.what} closed"


def closed_among(listed: Sequence[tuple[object, RedactedView]], more: str = "") -> str:
    """How many of these are closed, and `more` on those, for a list that says so of each."""
    number, total = sum(closed_by_now(view) for _, view in listed), len(listed)
    if total == 1:
        return "⚠️ *Alert closed by now*\n" if number else ""
    said = f"{'All' if number == total else f'{number} of'} {total} {'is' if number == 1 else 'are'} closed by now"
    return f"⚠️ *{said}*{more}\n" if number else ""


def closed_by_now(view: RedactedView) -> bool:
    return view.is_open and view.subject.closed is not None


def request_line(action: Action, view: RedactedView, *, button: ButtonIds, link: str) -> Block:
    """The request in two lines, with the button that opens all that a decision needs, Deny too."""
    if not sees_all(view.clearance, view.subject):
        return section(f"A run on {view.subject.id} needs approval, {view.inputs('')}")
    extension = undo_state.later_end(action)
    review = runs.review_button(action, button, extension)
    if extension is not None:
        return section(f"{later_end(action, extension, view)}\n{undo_state.needed([extension])}", accessory=review)
    what = f"{run_on(action, view)}{undo_state.for_how_long(action)}?"
    asks = f"{runs.sign(view)}{_override(action)}*{what}* · {person_name(action.created_by)}"
    on = f"{runs.of_root(view.subject, view, link)} · {decision(action)}"
    held = [undo_state.already_in_short(one, is_named=True) for one in undo_state.contained(action, view)]
    return section("\n".join([asks, *_warned(action, view), on, *held]), accessory=review)


def which(waiting: Sequence[tuple[Action, RedactedView]], typed: str, command: str) -> Message:
    """Asks on which of these a command decides, with what to type for each, or says that nothing waits."""
    on, listed = f" on {foreign(defang_indicators(typed), 100)}" if typed else "", list[str]()
    for action, view in waiting:
        deed, by, extension = deed_on(action, view), action.created_by, undo_state.later_end(action)
        if extension is not None:
            deed, by = f"more time for {run_on(action, view)}", extension.asked_by
        asked = f"asked by {person_name(by)}, for {runs.of_root(view.subject, view)}"
        listed.append(f"• {code(f'{command} {action.id}', 100)} {deed}, {asked}")
    said = "Several wait. Type:" if listed else f"Nothing that you may see waits for approval{on}."
    return Message(said, (section("\n".join([said, *first_of(listed, MOST_LISTED)])),))


def bulk_request(waiting: Sequence[tuple[Action, RedactedView]], button: ButtonIds) -> Block:
    """The requests of one bulk that somebody may see, which are decided together."""
    action = waiting[0][0]
    extension = undo_state.later_end(action)
    (review,) = runs.bulk_buttons(action.bulk or "", extension, button)
    if extension is not None:
        ends = [end for run, _ in waiting if (end := undo_state.later_end(run)) is not None]
        what, needs = asks_to_keep(action, extension, len(waiting)), undo_state.needed(ends)
    else:
        deed = f"*{runs.name(action)} on {count(len(waiting), 'target')}{undo_state.for_how_long(action)}?*"
        what, needs = f"{deed} · {person_name(action.created_by)}", decision_on_all([run for run, _ in waiting])
    asks = f"{what} ({action.bulk})"
    before = [decided_before(*one)[0] for one in waiting if extension is None]
    contained = [one for one in waiting if undo_state.contained(*one) and extension is None]
    warned = f"\n{closed_among(waiting)}".rstrip() + questions.warned(before, contained)
    return section(f"{asks}\n{runs.first_targets(waiting)} · {needs}{warned}", accessory=review)


def asks_to_keep(action: Action, extension: Extension, number: int) -> str:
    """`⏳ *anna* asks to keep *with no end*: *Isolate Host* on 4 targets`: more time for runs of a bulk; mrkdwn."""
    by = f"*{person_name(extension.asked_by)}*"
    asks = f"⏳ {by} asks" if extension.outcome is None else f"{by} asked"
    longer = undo_state.longer(extension.at, extension.before)
    return f"{asks} to keep *{longer}*: *{runs.name(action)}* on {count(number, 'target')}"


def push_text(action: Action, view: RedactedView) -> str:
    """What a locked phone shows: `HIGH: Isolate Host on hostname LT-0777 for 1 hour? ET ... (~12), asked by Anna`."""
    if not runs.awaits_approval(action):
        what = f"{decision(action).rstrip('.')}: {deed_on(action, view)} · {runs.of_root(view.subject, view)}"
        return clip(f"{what}, asked by {person_name(action.created_by)}", MESSAGE_TEXT_LIMIT)
    held = undo_state.contained(action, view)
    by = [one.created_by for one in held]
    longer = _denied_longer([end for one in held for end in undo_state.denied_longer(one, view)])
    decided = grouped((one.how, one.by) for run in _last_first(action, view) if (one := run.decided_against))
    before = "".join(said_before(*one) for one in [*decided.items(), ("contained", by)]) + longer
    return _asks_of_one(action, deed_on(action, view), before, action.created_by, note(action, view), view)


def _overrides(action: Action, view: RedactedView) -> str:
    """` · Against the rules: dc01 is protected`; "" of a run that overrides nothing; mrkdwn."""
    if action.override is None:
        return ""
    return f" · Against the rules: {responders.overridden(action.override.overrides, view, is_on_phone=True)}"


def level(severity: int | None) -> str:
    """How a question begins on a locked phone, which cuts its end."""
    return SEVERITY_NAMES[severity].upper() if severity else "Approve or deny"


def _asks_of_one(action: Action, deed: str, before: str, by: str, why: str, view: RedactedView) -> str:
    deed = f"OVERRIDE: {deed}" if action.override is not None else deed
    closing = f"{_closed_by(view.subject.closed)}. " if view.subject.closed else ""
    of = f"{runs.of_root(replace(view.subject, severity=0), view)}, asked by {person_name(by)}"
    return asks_in_short(view.subject.severity, deed, f"{closing}{before}", of, f"{why}{_overrides(action, view)}")


def asks_in_short(severity: int | None, deed: str, happened: str, asked: str, why: str) -> str:
    """Severity, deed and what happened before come first, since a phone cuts the end; then who asks and why."""
    return clip(f"{level(severity)}: {deed}? {happened}{asked}{why}", MESSAGE_TEXT_LIMIT)


def _denied_longer(ends: Sequence[Extension]) -> str:
    """`More time of 1 hour denied by mia. `, what was asked for last; "" where nobody has denied it; mrkdwn."""
    by = people(end.ended_by or "" for end in ends)
    return f"{undo_state.more_time(ends[-1])} denied by {by}. " if ends else ""


def said_before(how: str, by: Sequence[str]) -> str:
    """`Denied before by mia. `, or `Contained already by lea. `; "" where nobody has; mrkdwn."""
    return f"{how.capitalize()} {'already' if how == 'contained' else 'before'} by {people(by)}. " if by else ""


def reminder(asks: str, answer_by: int, now_ms: int, first: str = "", who: str = "") -> Message:
    """Tells `who` in a thread, or somebody whose `first` message (its address) has the buttons, how much time is left.

    A phone shows the question before that, as at first, and a duration, since it formats no time.
    """
    question, mark, more = asks.partition("? ")
    both = f"{undo_state.time_left(answer_by, now_ms)} left.", f"Answer by {slack_date(answer_by)}."
    text, here = (f"{question}{mark.strip()} {left} {more}".strip() for left in both)
    shown = section(f"{who} ⏰ {clip(here, 2500)}{first and f' *<{first}|Review>*'}".strip())
    return Message(clip(text, MESSAGE_TEXT_LIMIT), (shown,))


def reminded(logins: Sequence[str], *, is_answered: bool) -> str:
    """`Nobody has answered yet; lea and ben were reminded.`, once they were; mrkdwn."""
    were = f"{notices.all_of(logins)} {'was' if len(logins) == 1 else 'were'} reminded."
    return "" if not logins else were if is_answered else f"Nobody has answered yet; {were}"


def decided_before(of: Action | Extension, view: RedactedView) -> tuple[str, Sequence[str]]:
    """How the same was decided against last, `denied` or `undone`, and who did so; "" where it was not."""
    if isinstance(of, Extension):
        return "denied" if of.denials else "", [one.ended_by or "" for one in of.denials]
    decided = [one for run in _last_first(of, view) if (one := run.decided_against) is not None]
    return (decided[0].how, [one.by for one in decided if one.how == decided[0].how]) if decided else ("", ())


def deed_on(action: Action, view: RedactedView) -> str:
    """`Isolate Host on hostname LT-0777 for 1 hour`, without a time once its end was moved; mrkdwn."""
    lasts = "" if undo_state.moved(action) else undo_state.for_how_long(action)
    return f"{runs.name(action)}{runs.on_target(action, view)}{lasts}"


def may_decide(action: Action, person: Person, subject: Subject, extension: Extension | None = None) -> bool:
    """Whether core would take this person's vote on a run, or on a later end of it.

    They may run responders, see the object, and neither asked for it nor have approved it.
    """
    asked_by = action.created_by if extension is None else extension.asked_by
    is_other = person.login != asked_by and not has_voted(action, person.login, extension)
    return "manageAction" in person.permissions and is_other and sees_all(person.clearance, subject)


def against(action: Action, view: RedactedView, used_by: str = "") -> list[str]:
    """What it overrides, below the question, which says the rest; once that was decided also who allowed it; mrkdwn."""
    override = action.override
    if override is None or not view.is_open:
        return []
    rules = responders.overridden(override.overrides, view)
    if runs.awaits_approval(action):
        return [f"*Against the rules*: {rules}. {used_by}".rstrip()]
    asked_by, allowed_by = person_name(action.created_by), override.approved_by
    who = f"*{person_name(allowed_by)}* let *{asked_by}*" if allowed_by else f"*{asked_by}* asked to"
    return [f"🔴 *Override*: {who} run it although {rules}"]


def sees_all(clearance: int, subject: Subject) -> bool:
    """Whether this clearance covers the subject and its case."""
    return may_see(clearance, subject.clearance)


def has_voted(action: Action, login: str, extension: Extension | None = None) -> bool:
    """Whether this person has approved the run, or the later end of it."""
    approval = action.approval if extension is None else extension.approval
    return approval is not None and login in approval.approved_by


def decision(action: Action) -> str:
    """What is still needed and until when, or how it was decided."""
    approval = action.approval
    if approval is None:
        return "No approval is needed."
    if runs.awaits_approval(action):
        missing = count(runs.missing_approvals(action), "approval")
        return f"{missing}{runs.answer_by(action)}{runs.approved_by(action)}"
    if not runs.missing_approvals(action):
        return f"Approved by {people(approval.approved_by)}."
    by = f" by {person_name(action.ended_by)}" if action.ended_by else ""
    return {"denied": f"Denied{by}.", "cancelled": f"Withdrawn{by}."}.get(
        action.outcome or "", "Not approved in time, nothing ran."
    )


def decision_on_all(actions: Sequence[Action]) -> str:
    """What runs that wait still need, and until when."""
    missing = [runs.missing_approvals(action) for action in actions]
    fewest, most = min(missing), max(missing)
    needs = count(most, "approval") if fewest == most else f"{fewest} to {most} approvals"
    ends = [action.approval.expires_at for action in actions if action.approval is not None]
    first = "the first " if max(ends) - min(ends) >= MINUTE_MS else ""
    until = f"answer {first}by {time_ahead(min(ends), min(action.start_date for action in actions))}"
    return f"{needs}, {until}{runs.approved_by(*actions)}"


def approve_view(
    action: Action,
    view: RedactedView,
    button: ButtonIds,
    *,
    responder: OfferedResponder | None,
    now_ms: int,
    extension: Extension | None = None,
    read: str | None = None,
    used_by: str = "",
    ends: Sequence[Measure] = (),
) -> dict[str, Any]:
    """Asks once more, with all that an approval of a run or of a later end decides on; the metadata has a digest of it.

    `responder` is the run's, None if it isn't there any more; `read` are the marks of the lines that were read before.
    `used_by` says who used the limit that is overridden; mrkdwn. `ends` is what a run that undoes would undo.
    """
    deed, does = runs.title(action) if extension is None else undo_state.keep(extension), list[Block]()
    hints = _hints(responder, action, view) if responder is not None else []
    label, title = names.in_view(deed), names.in_view(deed, "?")
    if extension is not None:
        action = undo_state.of_extension(action, extension)
        who = f"In force {runs.since(action, view)}{runs.approved_by(action)}."
        follows = f"{who} {undo_state.ONLY_UNDO}" if extension.at is None else who
        shown = sections([later_end(action, extension, view), *_several(action, view), follows])
        needs = [undo_state.needed([extension])]
    else:
        title = title if action.override is None else names.overriding(title)
        policy, follows = responder.policy if responder is not None else Policy(), ""
        if policy.is_undo:
            ended = undo_state.all_ended(ends, view, action.created_by)
            follows = "\n".join(ended or [questions.NOTHING_KNOWN])
        shown, does = _asked(action, view, now_ms, used_by=used_by, follows=follows), effect(responder)
        until = f"; {runs.answer_by(action).removeprefix(', ')}{runs.approved_by(action)}"
        needs = [starts([action], until), named_approvers(policy), _can_also_read(action, view)]
    deny = runs.decision_buttons(action, button, extension)[1]
    of = extension.id if extension is not None else ""
    lines = [line for block in shown if "text" in block for line in block["text"]["text"].splitlines()]
    about = {"id": action.id, "extension": of, "shown": notices.digest([*shown, *does])}
    about["lines"] = "".join(map(notices.mark_of, lines))
    needed = context(" · ".join(filter(None, needs)))
    blocks = [*notices.changed(lines, read), *shown, actions(deny), *does, *hints, needed]
    return modals.modal(
        title, blocks, callback_id=ids.APPROVE_VIEW, submit=label, metadata=json.dumps(about), close="Not now"
    )


def _hints(responder: OfferedResponder, action: Action, view: RedactedView) -> list[Block]:
    """What the form before the run says of what is in force on what may be the same, and of who reads the block list.

    Nothing of what else the responder could act on there.
    """
    of = {one.data for one in action.target or ()}
    able = responder.target.artifacts if responder.target and of else ()
    others = tuple(f"{one.data} " for one in able if one.data not in of)
    hints = [one for one in responder.hints or () if not one.startswith(others)]
    return questions.notes(responder.model_copy(update={"reasons": None, "hints": hints}), view)


def effect(responder: OfferedResponder | None, then: str = "") -> list[Block]:
    """What the settings say that a run does, or else its author, and what `then` ends that.

    Only that if the responder isn't there any more.
    """
    policy = responder.policy if responder is not None else Policy()
    does = policy.confirm or (responder.description if responder is not None else "")
    said = "\n".join(filter(None, [foreign(does, POLICY_LIMIT, lines=True), questions.sends_to(policy), then]))
    return [context(said)] if said else []


def starts(actions: Sequence[Action], until: str = ".") -> str:
    """What happens once this person has approved it, or each of these, and `until` when they can."""
    is_one, more = len(actions) == 1, {runs.missing_approvals(action) - 1 for action in actions}
    if more != {0}:
        needs = f"{'it' if is_one else 'each'} needs {count(max(more), 'more approval')}"
        return f"After yours {needs}{until}" if len(more) == 1 else ""
    return f"{'Starts' if is_one else 'Each starts'} as soon as you approve it{until}"


def approved(
    action: Action, view: RedactedView, link: str, waits: Iterable[tuple[str, Sequence[Block]]] = ()
) -> Message:
    """The receipt: what was approved and for how long, who hears of it, and where it is taken back.

    Before that what still `waits` to do the same (mrkdwn), each with its buttons.
    """
    missing, told = runs.missing_approvals(action), undo_state.are([action.created_by], "notified")
    then = f"needs {count(missing, 'more approval')}." if missing else f"starts now. {told}."
    text = f"You approved {run_on(action, view)}{undo_state.for_how_long(action)}; it {then}"
    see = f"<{link}|Its card> shows how it goes." if link else "Its card shows how it goes."
    left = [block for line, buttons in waits for block in (section(line), *buttons)]
    held = [one for one in undo_state.in_force_already(action, view) if one.state != "asked"]
    changes = [runs.already(one, view, undo_state.change_of_second(action, one, None)) for one in held]
    ends = " ".join([undo_state.planned(action, where=" on its card"), *changes])
    return Message(text, (section(text), *left, context(f"{ends}\n{see}".lstrip())))


def run_on(action: Action, view: RedactedView) -> str:
    """`Isolate Host on hostname SRV-FILE02`; mrkdwn."""
    acts_on = runs.on_target(action, view) or f" on {foreign(runs.target(view), runs.TARGET_LIMIT)}"
    return f"{runs.name(action)}{acts_on}"


def no_longer_waits(action: Action, view: RedactedView) -> str:
    """What a run does that nobody can decide on any more, who decided, and what ends what is in force; mrkdwn."""
    now = "no longer waits for approval"
    if undo_state.is_in_force(action):
        ends = "; *Undo now* on its card ends it" if action.undo is not None else ""
        now = f"is {undo_state.in_force(action, view)}{ends}"
    elif undo_state.is_undone(action):
        now = f"was {undo_state.undone(action)}"
    return f"{run_on(action, view)} {now}. {decision(action)}"


def later_end_no_longer_waits(action: Action, extension_id: str, view: RedactedView) -> str:
    """What became of a request for more time that nobody can decide on any more; mrkdwn."""
    extension = next((one for one in action.extensions if one.id == extension_id), None)
    if extension is None or extension.outcome is None:
        return "This extension no longer waits for approval; nothing was changed."
    return later_end_decided(undo_state.of_extension(action, extension), extension, view)


def later_end(action: Action, extension: Extension, view: RedactedView) -> str:
    """All that asks for a later end, after who closed the alert, before who denied such a request; mrkdwn."""
    asks = f"{closed(view, extension.asked_at)}{runs.later_end_line(action, extension, view)}"
    override = runs.override_text(action, view, f" by {person_name(action.created_by)}").removeprefix(" · ")
    return "\n".join(filter(None, [asks, override, runs.denied_before(extension, view).rstrip()]))


def later_end_request(
    action: Action,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    who: str = "",
    is_broadcast: bool = False,
    can_decide: bool = True,
    is_replaced: bool = False,
) -> Message:
    """Who asks that what a run left in force ends later; once that was decided, how.

    `who` is mentioned; `can_decide` is false for a reader who can't. `is_replaced`: of the request before it.
    """
    view, extension = RedactedView(subject, clearance), action.undo.extension if action.undo is not None else None
    action = undo_state.of_extension(action, extension) if extension is not None else action
    if extension is None or not view.is_open:
        text = f"An extension of a run on {subject.id}: {withheld(subject.tlp)}"
        return Message(text, (section(text),), is_broadcast)
    by, run, root = person_name(extension.asked_by), run_on(action, view), runs.of_root(subject, view)
    if is_replaced:
        text = f"{by} asked for another end of {run} · {root}; the request before is over."
        return Message(clip(text, MESSAGE_TEXT_LIMIT), (section(text),), is_broadcast)
    longer, approvers = undo_state.longer(extension.at, extension.before), people(extension.approval.approved_by)
    if undo_state.later_end(action) is None:
        kept = undo_state.until(extension.at)
        asked = f"*{by}* asked to keep *{kept}* · {runs.sign(view)}{root}"
        news, then = later_end_in_short(action, extension)
        shown = section(later_end_decided(action, extension, view))
        quoted = runs.quoted(extension.message or "", WHY_LIMIT, view)
        text = " · ".join(filter(None, [f"{news}: {run}{then}", root, quoted]))
        return Message(clip(text, MESSAGE_TEXT_LIMIT), (shown, context(asked)), is_broadcast)
    needs = f"{undo_state.needed([extension])}{f' Approved by {approvers}.' if approvers else ''}"
    asks = f"{who} {later_end(action, extension, view)}".strip()
    blocks: list[Block] = [*sections([asks, *_several(action, view)]), context(needs)]
    blocks += [actions(*runs.decision_buttons(action, button, extension))] if can_decide else []
    why = runs.quoted(extension.note or "", NOTE_LIMIT, view)
    deed, before = f"keep {run} {longer}", _denied_longer(extension.denials)
    text = _asks_of_one(action, deed, before, extension.asked_by, why and f" · {why}", view)
    return Message(text, tuple(blocks), is_broadcast)


def later_end_decided(action: Action, extension: Extension, view: RedactedView) -> str:
    """`*More time for Isolate on hostname LT-0777*: denied by ben: one hour is enough.` and when it ends; mrkdwn."""
    decided, end = later_end_decision(action, extension), undo_state.end_decided(extension)
    if extension.outcome == "lapsed":
        decided, end = "no longer asked for", f"it {undo_state.ends(action)}"
    then = f" {end[0].upper()}{end[1:]}." if end else ""
    if end and undo_state.is_undone(action):
        then = f"\n{runs.mark(action, view)} {undo_state.undone(action)}"
    why = runs.why(extension.message, view, REASON_LIMIT)
    return f"*More time for {run_on(action, view)}*: {decided[0].lower()}{decided[1:]}{why}.{then}"


def later_end_decision(action: Action, extension: Extension) -> str:
    """How a request for more time was decided, or what came before that; mrkdwn."""
    by = person_name(extension.ended_by or "")
    lapsed = f"{person_name(action.undone_by)} undid it" if action.undone_by else "It was undone, or given another end,"
    return {
        "approved": f"Approved by {people(extension.approval.approved_by)}",
        "denied": f"Denied by {by}",
        "cancelled": f"Withdrawn by {by}",
        "lapsed": f"{lapsed} before that was approved",
    }.get(extension.outcome or "", "Nobody answered in time")


def later_end_in_short(action: Action, *extensions: Extension) -> tuple[str, str]:
    """`More time of 1 hour denied by ben` and ` ends in 52 minutes`: on a phone before and behind runs; mrkdwn."""
    extension, is_later = extensions[0], extensions[0].outcome == "approved"
    if extension.outcome == "lapsed":
        by = f" by {person_name(action.undone_by)}" if action.undone_by else ", or given another end,"
        return f"Undone{by} before more time was approved", ""
    decided = later_end_decision(action, extension) if extension.outcome != "expired" else "Not approved in time"
    news = f"{undo_state.more_time(extension)} {decided[0].lower()}{decided[1:]}"
    if is_later and undo_state.is_undone(action):
        return f"{news}, {undo_state.in_short(action)}", ""
    ends = [(one.at if is_later else one.before) or 0 for one in extensions]
    return news, _ends_in(ends, extension) or ("" if is_later else " ends as planned")


def _ends_in(ends: Sequence[int], decided: Extension) -> str:
    """In how long from when it was decided, if somebody did and these ends (ms) are alike."""
    at = max((one.at for one in decided.approval.votes), default=0) if decided.outcome in ("approved", "denied") else 0
    is_told = at and min(ends) - at >= MINUTE_MS > max(ends) - min(ends)
    return f" ends in {undo_state.time_left(min(ends), at)}" if is_told else ""


def more_time_title(deed: str) -> str:
    """Of the form that denies a request for more time, or withdraws it: none was given."""
    return "Deny more time?" if deed == "Deny" else "Withdraw the request?"


def deny_view(action: Action, view: RedactedView, deed: str, login: str, now_ms: int) -> dict[str, Any]:
    """Asks `login` why the run, or the later end, is denied or withdrawn; only to confirm what they asked for."""
    extension = undo_state.later_end(action)
    asked_by, title = action.created_by, names.in_view(f"{deed} {runs.title(action)}", "?")
    if_so = f"If you {deed.lower()} it, it"
    asks = _asked(action, view, now_ms, follows=f"{if_so} will not run: nothing changes on the target.")
    if extension is not None:
        action = undo_state.of_extension(action, extension)
        stays = f"{if_so} {undo_state.ends(action)}."
        asks = sections([later_end(action, extension, view), *_several(action, view), stays])
        asked_by, title = extension.asked_by, more_time_title(deed)
    of = extension.id if extension is not None else ""
    about = {"id": action.id, "extension": of, "deed": deed}
    return deny_form(title, asks, "" if asked_by == login else asked_by, about, callback_id=ids.DENY_VIEW, submit=deed)


def deny_form(title: str, asks: Sequence[Block], reader: str, about: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """Asks why something is denied or withdrawn, which `reader` reads; without one only to confirm that."""
    hint = f"{person_name(reader)} reads it, and everybody who sees the request."
    why = [modals.text_field("reason", "Reason", multiline=True, hint=hint)] if reader else []
    close = "Keep asking" if about["deed"] == "Withdraw" else ""
    return modals.modal(title, [*asks, *why], metadata=json.dumps(about), close=close, **more)


def approval_request(
    action: Action,
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    now_ms: int,
    policy: Policy = Policy(),  # noqa: B008 - it is frozen
    who: str = "",
    is_broadcast: bool = False,
    link: str = "",
    voter: str | None = None,
    can_decide: bool = True,
) -> Message:
    """What is asked for and until when; with buttons while it is open.

    Core decides who may approve: anybody with manageAction but the requester. `who` is mentioned. In a direct message
    it has buttons for as long as `voter` can decide, and what became of a run that they approved, with what undoes it;
    nothing once they may not see all of it.
    """
    view = RedactedView(subject, clearance)
    waits = runs.awaits_approval(action)
    if not (view.is_open if voter is None else sees_all(clearance, subject)):
        is_approved = not runs.missing_approvals(action)
        state = "was approved" if is_approved else "needs approval" if waits else runs.state(action, view)
        mark = runs.MARKS["succeeded" if is_approved else runs.state_of(action)]
        text = f"{mark} A run on {subject.id} {state}, {withheld(subject.clearance)}"
        return Message(clip(text, MESSAGE_TEXT_LIMIT), (section(text),), is_broadcast)
    why = runs.result_text(action, view, REASON_LIMIT) if action.outcome in ("denied", "cancelled") else ""
    decided = f"{decision(action).rstrip('.')}: {why}" if why else decision(action)
    needs = filter(None, [decided, named_approvers(policy), _can_also_read(action, view)])
    follows = ENDS if waits and policy.is_undo else ""
    asked = _asked(action, view, now_ms, link=link, who=who, follows=follows, is_kept=True)
    blocks = [*asked, context(" · ".join(needs))]
    if runs.can_be_approved(action, view) and not has_voted(action, voter or ""):
        decide = actions(*runs.decision_buttons(action, button))
        blocks.append(decide if can_decide else context("You can't decide on it any more."))
    elif has_voted(action, voter or "") and not runs.missing_approvals(action):
        blocks += _became(action, view, button)
    return Message(push_text(action, view), tuple(blocks), is_broadcast)


def _became(action: Action, view: RedactedView, button: ButtonIds) -> list[Block]:
    """Whether an approved run runs, is in force or failed, and why, with what undoes it."""
    left = "" if runs.is_open(action) else left_by(action, view)
    state = "" if left and action.outcome == "succeeded" else runs.state(action, view)
    why = f": {runs.result_text(action, view)}" if action.outcome == "failed" else ""
    said, buttons = f"{state}{left}{why}".removeprefix(", "), undos.buttons(action, view, button)
    now = said.strip() if said.startswith("\n") else f"{runs.mark(action, view)} {said}"
    return [context(now), *([actions(*buttons)] if buttons else [])]


def left_by(action: Action, view: RedactedView, *, is_on_phone: bool = False) -> str:
    """`, in force until 14:30` of what has ended, or `, not in force` of what failed; "" if it left nothing; mrkdwn."""
    now = undo_state.in_short(action) if is_on_phone else runs.left(action, view).removeprefix(" · ")
    now = now or ("not in force" if action.outcome == "failed" and action.undo is not None else "")
    return now if now.startswith("\n") else f", {now}" if now else ""


def not_approved(
    action: Action, view: RedactedView, reason: str, responder: OfferedResponder | None, button: ButtonIds
) -> Message:
    """Says why core ended a run that somebody wanted to approve, and offers to ask again if `responder` can run."""
    said, again = view.inputs(reason), responder and responder.can_run and run_again_button(action, view, button)
    return Message(said, (section(core_says(said, 1500)), *([actions(again)] if again else [])))
