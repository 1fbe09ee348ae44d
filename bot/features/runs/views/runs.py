"""Runs of responders, one line each: who, when, how long, with what result."""

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from bot.block_kit import ids
from bot.block_kit.elements import MAX_LINES, button_element, confirmation
from bot.block_kit.names import NAME_LIMIT
from bot.block_kit.notices import notice
from bot.block_kit.subjects import SHORT_TITLE, SIGNS, hosts_first, target_data
from bot.block_kit.text import (
    OPTION_LIMIT,
    clean,
    clip_apart,
    clip_middle,
    code,
    core_says,
    defang_indicators,
    escape,
    first_of,
    foreign,
    foreign_plain,
    people,
    person_name,
    plain,
    readable_name,
    sections,
    slack_date,
    time_ahead,
)
from bot.clearance import MASK, SHARED, Closing, RedactedView, Subject, artifact_title, may_see, refanged, withheld
from bot.features.responders.views import overridden, with_names
from bot.features.runs.views import undo_state
from bot.features.runs.views.reports import read_report
from bot.message import Block, ButtonIds, Intent, Message
from core.common.decoding import mapping
from core.common.grouping import grouped
from core.common.words import count, some_of
from core.models import (
    NOTE_LIMIT,
    OPEN_STATUSES,
    SEVERITY_NAMES,
    Action,
    Artifact,
    Bulk,
    DecidedAgainst,
    Extension,
    InputTitle,
    Measure,
    Outcome,
    Parameter,
    TargetArtifact,
)

State = Literal["waiting", "approval", "running"] | Outcome
MARKS: Mapping[str, str] = {
    "waiting": "🕓",
    "approval": "⏳",
    "running": "🔄",
    "succeeded": "✅",
    "failed": "❌",
    "denied": "🚫",
    "expired": "⌛",
    "cancelled": "➖",
    "stopped": "🛑",
}
WORDS: Mapping[str, str] = {
    "waiting": "about to start",
    "succeeded": "done",
    "cancelled": "withdrawn",
    "expired": "not approved in time",
}  # the others are called as they are
DECIDED: Mapping[str, str] = {"denied": MARKS["denied"], "undone": "🔓", "withdrawn": MARKS["cancelled"]}
"""How somebody decided against what is asked for once more, or who asked withdrew it, with its mark."""
WORTH_REPEATING: tuple[State, ...] = ("failed", "expired")  # somebody wanted the others to end so
RESULT_LIMIT = 300
TARGET_LIMIT = 600  # which has room for the longest host name
TITLE_LIMIT = 200
OBSERVABLE_LIMIT = 500  # characters of the first observable of each of several alerts
INPUT_LIMIT = 120
REMOVED = "REMOVED"  # stands in core's records in place of a secret
MAX_INPUTS = 6
MAX_TARGETS = 3
MAX_LISTED_TARGETS = 100  # each on a line
MAX_FULL_TARGETS, FULL_TARGET_LIMIT, MESSAGE_LIMIT = 10, 2000, 120


def is_open(action: Action) -> bool:
    return action.status in OPEN_STATUSES


def awaits_approval(action: Action) -> bool:
    """Whether somebody can still approve or deny it, as core says: only core's time counts."""
    return action.status == "Waiting" and missing_approvals(action) > 0


def awaits_decision(action: Action) -> bool:
    """Likewise, or a later end of it."""
    return awaits_approval(action) or undo_state.later_end(action) is not None


def missing_approvals(action: Action) -> int:
    """How many approvals it needs beside those that it has; an override always needs that of an org-admin."""
    approval, override = action.approval, action.override
    missing = approval.needed - len(approval.approved_by) if approval is not None else 0
    return max(missing, int(override is not None and override.approved_by is None))


def can_be_approved(action: Action, view: RedactedView) -> bool:
    """Whether a message for this clearance has Approve and Deny: nobody decides on what they can't read there."""
    return awaits_approval(action) and view.shows_inputs


def decision_buttons(action: Action, button: ButtonIds, extension: Extension | None = None) -> list[dict[str, Any]]:
    """What opens a modal with all that is decided on a run, or on a later end of it, and Deny."""
    contains, of = (action.undo is not None, "") if extension is None else (extension.at is None, extension.id)
    label = undo_state.keep(extension) if extension is not None and contains else "Approve"
    approve, deny = (button(Intent(what, action.id, of)) for what in ("approve", "deny"))
    return [
        button_element(label, ids.APPROVE, approve, of=of or action.id, style="danger" if contains else "primary"),
        button_element("Deny", ids.DENY, deny, of=of or action.id),
    ]


def review_button(action: Action, button: ButtonIds, extension: Extension | None = None) -> Block:
    """What opens that modal where the run is shown in short; what is to last with no end says so, in red."""
    review = decision_buttons(action, button, extension)[0]
    return review if extension and extension.at is None else {**review, "text": plain("Review"), "style": "primary"}


def waiting_buttons(
    action: Action, view: RedactedView, button: ButtonIds, extension: Extension | None = None
) -> list[dict[str, Any]]:
    """Likewise with Withdraw, beside the line of what waits; only that where its one reader can't decide."""
    decide = [] if action.why_not_decide else decision_buttons(action, button, extension)
    return [*decide, end_button(action, view, button, extension)]


def bulk_buttons(
    bulk_id: str, extension: Extension | None, button: ButtonIds, *deeds: str, number: int = 2
) -> list[dict[str, Any]]:
    """What opens all that one decision on a bulk is about, red where it keeps it with no end, and what ends that.

    `number`: how many runs wait.
    """
    keeps, request = extension is not None and extension.at is None, extension.request or "" if extension else ""
    about, of, of_all = (bulk_id, request), request or bulk_id, " all" if number > 1 else ""
    of_what = " more time" if extension else of_all
    label = "Keep with no end" if keeps else "Review more time" if extension else "Review"
    style: Literal["danger", "primary"] = "danger" if keeps else "primary"
    found = [button_element(label, ids.BULK_REVIEW, button(Intent("bulk_review", *about)), of=of, style=style)]
    for deed in deeds:
        intent = Intent(f"bulk_{deed.lower()}", *about)
        found.append(button_element(f"{deed}{of_what}", ids.BULK_DENY, button(intent), of=deed + of))
    return found


def heading(action: Action, view: RedactedView) -> str:
    """`*Isolate* on hostname SRV-FILE02, for HIGH its title (~12)`; mrkdwn."""
    return f"*{name(action)}*{on_object(action, view, on_what(view.subject, view))}"


def later_end_line(action: Action, extension: Extension, view: RedactedView, *, is_on_card: bool = False) -> str:
    """`⏳ *Keep with no end*, instead of until 15:44: *Isolate Host* on hostname LT-0198`, and below who asks; mrkdwn.

    Below the run's own line on a card only who asks.
    """
    action = undo_state.of_extension(action, extension)
    undo = action.undo
    now = undo_state.until(undo.at if undo is not None else None) + undo_state.moved(action)
    by, why = f"*{person_name(extension.asked_by)}* asks", quoted(extension.note or "", NOTE_LIMIT, view)
    if not is_on_card:
        is_one = view.is_open and len(action.target or ()) == 1
        on = f" on {''.join(only_target(action.target or (), view))}" if is_one else on_target(action, view)
        by = f"*{name(action)}*{on}\n{by} · {sign(view)}{of_root(view.subject, view)}"
    return f"⏳ *Keep {undo_state.until(extension.at)}*, instead of {now}: {by}{why and f' · {why}'}"


def decided_lines(before: Iterable[Action], view: RedactedView, *, is_kept: bool = False) -> list[str]:
    """`🚫 *Denied before by ben, 14:46*: why`, for who asks for the same once more, and who decides on that; mrkdwn.

    Or `🔓 *Undone before by ben, 14:46*`; if that was several times, `Denied 2 times, last by ben`, and behind it who
    denied it before that, and why. Where its alert has several observables, with the one that this was about; `for ~18`
    if that was for another alert or case, whose levels may withhold why from a message later, which `is_kept`.
    Nothing of what nobody decided against.
    """
    decided = [(one.decided_against, one) for one in before if one.decided_against is not None]
    alike = grouped(((how.how, acts_on(one)), (how, one)) for how, one in decided)
    has_several = len(view.artifacts()) > 1

    def when(how: DecidedAgainst, one: Action) -> tuple[str, str]:
        text = "" if is_kept and for_another(one, view) else why_decided(one, view)
        return f"{slack_date(how.at)}{for_another(one, view)}", f': "{text}"' if text else ""

    lines = list[str]()
    for each in alike.values():
        last, newest = each[0]
        on, (at, why) = targets(newest, view) if has_several else "", when(last, newest)
        how, by = f"{on}: {last.how}" if on else last.how.capitalize(), decided_by(newest, last, "before ")
        others = "".join(f"; before by {person_name(one.by)}, {''.join(when(one, run))}" for one, run in each[1:])
        lines.append(f"{DECIDED[last.how]} *{how} {by}, {at}*{why}{others}")
    return lines


def for_another(before: Action, view: RedactedView) -> str:
    """`, for ~18`: the alert or case of what was decided before, unless it is that of the view."""
    of = before.earlier.root_id if before.earlier is not None else ""
    return f", for {of}" if of not in ("", view.subject.root_id or view.subject.id) else ""


def why_decided(before: Action, view: RedactedView) -> str:
    """Why somebody denied it; "" of what was undone, whose report says what it did; mrkdwn.

    Of another object's only to who may read all that it may name there, since the view masks what is hidden of its own.
    """
    earlier = before.earlier
    is_own = before.object_id == view.subject.id
    is_shown = is_own or (earlier is not None and may_see(view.clearance, earlier.clearance_of_texts))
    return result_text(before, view) if before.outcome == "denied" and is_shown else ""


def decided_by(before: Action, decided: DecidedAgainst, once: str = "") -> str:
    """`by ben`, or `2 times, last by ben`; mrkdwn."""
    often = f"{before.earlier.times} times, last " if before.earlier and before.earlier.times > 1 else once
    return f"{often}by {person_name(decided.by)}"


def denied_before(extension: Extension, view: RedactedView) -> str:
    """Lines on who denied more time before, and why; mrkdwn."""
    return "".join(f"{_more_time_was(one, view)}\n" for one in extension.denials if view.is_open)


def _more_time_was(extension: Extension, view: RedactedView) -> str:
    """`🚫 *More time of 1 hour was denied by ben*: why`, or not approved in time, or who withdrew that; mrkdwn."""
    outcome, by = extension.outcome or "expired", people(filter(None, [extension.ended_by]))
    was = f"{undo_state.more_time(extension)} was {WORDS.get(outcome, outcome)}{by and f' by {by}'}"
    said = f"{by} withdrew the request for more time" if outcome == "cancelled" else was
    return f"{MARKS[outcome]} *{said}*{why(extension.message, view)}"


def already(measure: Measure, view: RedactedView, changes: str = undo_state.LATER_END, *, is_kept: bool = False) -> str:
    """As `undo_state.already`, with lines on who denied more time, if a second run may give it that; mrkdwn.

    Why, if that was for another alert or case, only to who may read all that it may name, in no message that `is_kept`.
    """
    level, is_own = measure.clearance_of_texts, measure.root_id == (view.subject.root_id or view.subject.id)
    is_shown = is_own or (level is not None and may_see(view.clearance, level) and not is_kept)
    denied = undo_state.denied_longer(measure, view) if changes != undo_state.CHANGES_NOTHING else []
    said = [one if is_shown else one.model_copy(update={"message": None}) for one in denied]
    return "\n".join([undo_state.already(measure, view, changes), *(_more_time_was(one, view) for one in said)])


def quoted(text: str, limit: int, view: RedactedView) -> str:
    """What somebody wrote of the subject, or that it is withheld; mrkdwn."""
    shown = foreign(defang_indicators(view.inputs(text)), limit) if text else ""
    return f'"{shown}"' if shown and view.shows_inputs else shown


def closed_by(closing: Closing, view: RedactedView) -> str:
    """`closed by anna, today 8:10 PM: "an exercise"`; mrkdwn."""
    by, why = f" by {person_name(closing.by)}" if closing.by else "", quoted(closing.why, RESULT_LIMIT, view)
    return f"closed{by}, {slack_date(closing.at)}{why and f': {why}'}"


def closed_line(view: RedactedView) -> str:
    """`⚠️ Alert closed by anna, today 8:10 PM: "an exercise"`, for who asks for a run; "" while it is open; mrkdwn."""
    closing = view.subject.closed
    return f"⚠️ {closing.what} {closed_by(closing, view)}" if closing is not None and view.is_open else ""


def more_time_denied(action: Action, view: RedactedView) -> str:
    """Lines on who denied or withdrew more time for what is in force, since more was approved, and why; mrkdwn."""
    extension = action.undo.extension if action.undo is not None and view.is_open else None
    if extension is None or extension.outcome in ("approved", "lapsed") or not undo_state.is_in_force(action):
        return ""
    return f"{denied_before(extension, view)}{_more_time_was(extension, view) if extension.outcome else ''}"


def waiting_end(action: Action, view: RedactedView) -> str:
    """Lines of their own on the later end that waits for approval, and by when, or who denied one; "" without."""
    extension, denied = undo_state.later_end(action) if view.is_open else None, more_time_denied(action, view)
    if extension is not None:
        asks = later_end_line(action, extension, view, is_on_card=True)
        denied = f"{asks}\n{denied}{undo_state.needed([extension])}"
    return f"\n{denied}".rstrip()


def why(reason: str | None, view: RedactedView, limit: int = RESULT_LIMIT) -> str:
    """`: one hour is enough`, without its full stop; "" where nobody gave a reason; mrkdwn."""
    shown = foreign(defang_indicators(view.inputs(reason)), limit).rstrip(".") if reason else ""
    return f": {shown}" if shown else ""


def end_button(
    action: Action, view: RedactedView, button: ButtonIds, extension: Extension | None = None
) -> dict[str, Any]:
    """Withdraw for what waits, a run or a later end of it, Stop for a run that runs.

    Core decides who may: the requester, and an org-admin.
    """
    about, of = title(action) if view.is_open else "", extension.id if extension is not None else ""
    if extension is not None or action.status == "Waiting":
        value = button(Intent("withdraw", action.id, of))
        return button_element("Withdraw", ids.WITHDRAW, value, of=of or action.id, about=about)
    on = foreign_plain(targets_in_plain(action, view, 150) or target(view), 150)
    whose = f"{foreign_plain(person_name(action.created_by), 60)} asked for it. " if view.is_open else ""
    text = f"{whose}On {on}. What it has changed by then stays changed."
    head = foreign_plain(f"Stop {title(action)}?", 100) if view.is_open else "Stop the run?"
    dialog, value = confirmation(head, text, "Stop", "Let it run", style="danger"), button(Intent("cancel", action.id))
    return button_element("Stop", ids.CANCEL, value, of=action.id, style="danger", confirm=dialog, about=about)


def target(view: RedactedView) -> str:
    """What a run is on: `ip 198[.]51[.]100[.]7`, or the id of what is no artifact or withheld; not escaped."""
    return view.title() if view.is_open and view.subject.kind == "case_artifact" else view.subject.id


def target_in_full(view: RedactedView) -> str:
    """`~12 (its title)`; `ip 198[.]51[.]100[.]7 of ~12 (its title)` for an artifact; not escaped."""
    subject = view.subject
    if subject.kind == "case_artifact":
        return f"{target(view)} of {subject.root_id} ({_short_title(view)})" if view.is_open else subject.id
    return f"{subject.id} ({_short_title(view)})"


def title_of_root(view: RedactedView) -> str:
    """The title of an alert or case, of an artifact that of what it is of; foreign text, not escaped."""
    is_artifact = view.subject.kind == "case_artifact" and view.is_open
    return view.parent_title() if is_artifact else view.title()


def _short_title(view: RedactedView) -> str:
    """Likewise, without its middle if it is long."""
    return clip_middle(title_of_root(view), SHORT_TITLE)


def on_what(subject: Subject, view: RedactedView, link: str = "") -> str:
    """The subject with its severity and id, linked to its card; of an artifact also the alert or case that it is of."""
    root = of_root(subject, view, link)
    if subject.kind != "case_artifact":
        return root
    return f"{foreign(target(view), TITLE_LIMIT)} of {root}" if view.is_open else root


def of_root(subject: Subject, view: RedactedView, link: str = "") -> str:
    """Likewise, without the artifact; `(case ~23)` behind the title of the case that one is of."""
    id_, title = (
        subject.id,
        foreign(_short_title(view), TITLE_LIMIT).replace("|", "ǀ") or subject.id,
    )
    if subject.kind == "case_artifact" and view.is_open:
        id_ = f"{'case ' if subject.root_id == subject.case_id else ''}{subject.root_id}"
    severity = SEVERITY_NAMES[subject.severity].upper() + " " if subject.severity and view.is_open else ""
    return f"{severity}{f'<{link}|{title}>' if link else title} ({id_})"


def named(view: RedactedView, link: str = "") -> str:
    """`🔴 CRITICAL its title (~12)`; mrkdwn."""
    return f"{sign(view)}{of_root(view.subject, view, link)}"


def first_observables(view: RedactedView, most: int = 1) -> str:
    """The first observables of an alert, hosts first, and how many there are, or ""; foreign text, not escaped."""
    found = hosts_first(view.artifacts()) if view.subject.kind == "alert" else ()
    return some_of([view.text(artifact_title(one)) for one in found[: most + 1]], most, len(found))


def beside_title(view: RedactedView) -> str:
    """Likewise, cut, unless the title has it: so most rows of alerts that say the same fit on a line; mrkdwn."""
    first = first_observables(view)
    is_in_title = refanged(first.partition(" ")[2]) in refanged(_short_title(view)).split()
    return "" if is_in_title else foreign(first, OBSERVABLE_LIMIT)


def sign(view: RedactedView) -> str:
    """The severity as a glyph, before `on_what`."""
    return f"{SIGNS[view.subject.severity]} " if view.subject.severity and view.is_open else ""


def target_in_plain(action: Action, view: RedactedView, limit: int) -> str:
    """What a run acts on, and the object that has it, for a dialog, where markup would show."""
    named = targets_in_plain(action, view, limit) if view.subject.kind != "case_artifact" else ""
    return foreign_plain(f"{named}, of {target_in_full(view)}" if named else target_in_full(view), limit)


def called_in_plain(on: Sequence[TargetArtifact], view: RedactedView, limit: int) -> str:
    """`hostname SRV-FILE02`: what a run acts on, else the artifact, or the title of the object; not escaped.

    Without its type where an option has no room for both.
    """
    is_artifact, kind = view.subject.kind == "case_artifact", on[0].data_type if on else ""
    named = target(view) if is_artifact else _in_plain(on, view, limit) or view.title()
    return foreign_plain(named if len(named) <= OPTION_LIMIT else named.removeprefix(f"{kind} "), limit)


def in_option(
    on: Sequence[TargetArtifact], also_for: Sequence[str] | None, view: RedactedView, name: str, warnings: Sequence[str]
) -> tuple[str, str, bool]:
    """What a run is `on`, called `name`, in the two texts of an option, the second mrkdwn, and whether all has room.

    `hostname LT-0198 · ET MALWARE ...` and `🟠 HIGH · Host inside (~12, also for ~14) · 🔒 contained until 15:31`: its
    alert, and what that says of it, or else the alert again, with the first of the `warnings`, mrkdwn, that fits.
    """
    is_artifact = view.subject.kind == "case_artifact"
    said = clean(view.text(on[0].message or "")) if len(on) == 1 else ""
    title, room = title_of_root(view), OPTION_LIMIT - len(name) - len(" · ")
    has_title = (said or warnings) and room >= 12  # less tells no alert from another
    text = f"{name} · {foreign_plain(title, room)}" if has_title else name
    below, is_whole = _below_in_option(also_for, view, said or ("" if has_title else title), warnings)
    has_room = (is_artifact or len(on) == 1) and "…" not in name and (is_whole or not said)
    return text, below, has_room


def _below_in_option(
    also_for: Sequence[str] | None, view: RedactedView, about: str, warnings: Sequence[str]
) -> tuple[str, bool]:
    """The second text of the option, and whether all of `about` is in it, with a warning if there is one; mrkdwn."""
    level, root_id = SEVERITY_NAMES[view.subject.severity].upper(), view.subject.root_id or view.subject.id
    start = " · ".join(filter(None, [f"{sign(view)}{level}", foreign(about, TITLE_LIMIT)]))
    also = dict.fromkeys([undo_state.also_for(also_for), ""])
    ends = [f" ({root_id}{more}){mark}" for mark in [f" · {one}" for one in warnings] or [""] for more in also]
    whole = next((end for end in ends if len(start) + len(end) <= OPTION_LIMIT), None)
    if whole is not None:
        return f"{start}{whole}", True
    end = next((one for one in reversed(ends) if len(level) + len(one) <= OPTION_LIMIT - 3), f" ({root_id})")
    room = OPTION_LIMIT - len(f"{sign(view)}{level} · {end}")
    cut = f" · {foreign(clip_middle(about, room), room)}" if room >= 12 else ""
    return f"{sign(view)}{level}{cut}{end}", False


def targets_in_plain(action: Action, view: RedactedView, limit: int) -> str:
    """`hostname SRV-FILE02`: likewise, without the object; "" if nobody has declared it; not escaped."""
    return _in_plain(action.target or (), view, limit)


def _in_plain(on: Sequence[TargetArtifact], view: RedactedView, limit: int) -> str:
    shown, others = _first(on, view, MAX_TARGETS)
    full = [f"{one.data_type} {target_data(one, view)}" for one in shown]
    return ", ".join([*clip_apart(full, limit // max(1, len(full))), *others])


def all_targets_in_plain(action: Action, view: RedactedView) -> str:
    """`SRV-FILE02, SRV-FILE03`: likewise, all of them, and whole."""
    shown, others = _first(action.target or (), view, MAX_LISTED_TARGETS)
    return ", ".join([*(clip_middle(target_data(one, view), FULL_TARGET_LIMIT) for one in shown), *others])


def on_target(action: Action, view: RedactedView) -> str:
    """` on hostname SRV-FILE02`: what a run acts on, "" where nobody knows more than its line stands beside; mrkdwn."""
    is_artifact = view.subject.kind == "case_artifact"
    named = foreign(clip_middle(target(view), TARGET_LIMIT), TARGET_LIMIT) if is_artifact else targets(action, view)
    return f" on {named}" if named and view.is_open else ""


def on_object(action: Action, view: RedactedView, named: str) -> str:
    """` on hostname SRV-FILE02, for ~12 (its title)`: what a run acts on, and the object, `named` so; mrkdwn."""
    is_artifact = view.subject.kind == "case_artifact"
    acts_on = targets(action, view) if view.is_open and not is_artifact else ""
    return f" on {acts_on}, for {named}" if acts_on else f" on {named}"


def targets(action: Action, view: RedactedView) -> str:
    """`hostname SRV-FILE02, ip 10[.]20[.]1[.]50`: the artifacts that a run acts on, "" if nobody has declared which."""
    return in_short(action.target or (), view)


def in_short(artifacts: Sequence[TargetArtifact], view: RedactedView) -> str:
    """Likewise, of these artifacts; mrkdwn."""
    shown, others = _first(artifacts, view, MAX_TARGETS)
    names = clip_apart([f"{one.data_type} {target_data(one, view)}" for one in shown], TARGET_LIMIT)
    return ", ".join([*map(escape, map(clean, names)), *others])


def target_lines(artifacts: Sequence[TargetArtifact], view: RedactedView, most: int = MAX_LISTED_TARGETS) -> list[str]:
    """``hostname `SRV-DC01` · host inside``, one line for each artifact with what its alert says of it; mrkdwn."""
    shown, others = _first(artifacts, view, most)
    limit = FULL_TARGET_LIMIT if len(shown) <= MAX_FULL_TARGETS else TARGET_LIMIT
    lines = list[str]()
    for one, data in zip(shown, clip_apart([target_data(one, view) for one in shown], limit), strict=True):
        said = foreign(view.text(one.message or ""), MESSAGE_LIMIT)
        lines.append(" · ".join(filter(None, [f"{foreign(one.data_type, 30)} {code(data, 5 * limit)}", said])))
    return [*lines, *others]


def only_target(artifacts: Sequence[TargetArtifact], view: RedactedView) -> tuple[str, str]:
    """``hostname `SRV-DC01` `` and ` · host inside`: the line of one target, and what its alert says of it; mrkdwn."""
    on = target_lines([one.model_copy(update={"message": None}) for one in artifacts], view)[0]
    return on, target_lines(artifacts, view)[0].removeprefix(on)


def _first(
    artifacts: Sequence[TargetArtifact], view: RedactedView, most: int
) -> tuple[Sequence[TargetArtifact], list[str]]:
    """The first artifacts that this view may show, and how many there are beside them: never just one more."""
    visible = [one for one in artifacts if view.is_open and may_see(view.clearance, one.tlp)]
    shown = visible if len(visible) == most + 1 else visible[:most]
    more, hidden = len(visible) - len(shown), len(artifacts) - len(visible)
    others = [f"{more} more"] if more else []
    return shown, [*others, *([f"{hidden} withheld"] if hidden and view.clearance != SHARED else [])]


def first_targets(listed: Sequence[tuple[Action, RedactedView]], total: int = 0, *, most: int = MAX_TARGETS) -> str:
    """`🟠 HIGH hostname LT-0777, LT-0778 and 2 more`: what runs act on, the most severe first; mrkdwn.

    Each with its severity where these differ.
    """
    levels = {_level(view) for _, view in listed}
    of_all = levels.pop() if len(levels) == 1 else ""
    return f"{of_all}{distinct_targets(listed, total, has_levels=bool(levels), most=most)}"


def _level(view: RedactedView) -> str:
    severity = view.subject.severity if view.is_open else 0
    return f"{SIGNS[severity]} {SEVERITY_NAMES[severity].upper()} " if severity else ""


def distinct_targets(
    listed: Sequence[tuple[Action, RedactedView]],
    total: int = 0,
    *,
    has_levels: bool = False,
    most: int = MAX_TARGETS,
) -> str:
    """`hostname LT-0901 (2 runs), LT-0902 and 2 more`, the worst first, of `total` if that is more; mrkdwn.

    Each with its type where these differ.
    """
    listed = sorted(listed, key=lambda one: (-one[1].subject.severity if one[1].is_open else 0, one[0].number))
    whole = [on_target(*one).removeprefix(" on ") or foreign(target_in_full(one[1]), MESSAGE_LIMIT) for one in listed]
    levels = [_level(view) if has_levels else "" for _, view in listed]
    on = Counter(zip(levels, whole, [acts_on(run) for run, _ in listed], strict=True))
    named = [f"{level}{name}{f' ({number} runs)' if number > 1 else ''}" for (level, name, _), number in on.items()]
    types = {" ".join(one.data_type for one in run.target or ()) for run, _ in listed}
    if len(types) == 1:
        (same,) = types
        named[1:] = [one.removeprefix(f"{same} ") for one in named[1:]]
    return some_of(named, most, max(total - len(listed), 0) + len(named))


def acts_on(action: Action) -> Hashable:
    """What tells apart on what runs act, whose names may be cut alike: its targets, or else its object."""
    return undo_state.acted_on(action) or action.object_id


def is_on(action: Action, names: Collection[str]) -> bool:
    """Whether a run acts on one of these artifacts, which a request named by id or data; for none true."""
    return not names or any({one.id, one.data}.intersection(names) for one in action.target or ())


def named_artifacts(names: Collection[str], view: RedactedView) -> list[Artifact]:
    """The artifacts that a request without a run named so, by id or data."""
    return [one for one in view.artifacts() if {one.id, one.data}.intersection(names)]


def named_targets(names: Collection[str], view: RedactedView) -> str:
    """`hostname LT-0301`: likewise; mrkdwn."""
    return some_of([foreign(artifact_title(one), TARGET_LIMIT) for one in named_artifacts(names, view)], MAX_TARGETS)


def newest_first(actions: Sequence[Action]) -> list[Action]:
    return sorted(actions, key=lambda a: (a.start_date, a.number), reverse=True)


def state_of(action: Action) -> State:
    """What is the case now."""
    if action.outcome is not None:
        return action.outcome
    if awaits_approval(action):
        return "approval"
    return "waiting" if action.status == "Waiting" else "running"


def mark(action: Action, view: RedactedView) -> str:
    """The sign of its state; a run that has left something in force, or has undone that, is not just done."""
    if view.is_open and undo_state.is_in_force(action):
        return "🔒"
    has_undone = action.undoes and action.outcome == "succeeded"
    return "🔓" if view.is_open and (has_undone or undo_state.is_undone(action)) else MARKS[state_of(action)]


def title(action: Action) -> str:
    """What people call its responder; foreign text, not escaped."""
    return action.responder_title or readable_name(action.responder_name)


def name(action: Action) -> str:
    """As `title`; mrkdwn."""
    return foreign(title(action), NAME_LIMIT)


def was_not_started(action: Action) -> bool:
    """Whether it asked for approval and ended without having run, other than by a person."""
    ended = action.approval is not None and action.dispatched_at is None
    return ended and state_of(action) in WORTH_REPEATING


def was_decided_against(action: Action) -> bool:
    """Whether it was denied or withdrawn while it waited for approval."""
    return missing_approvals(action) > 0 and state_of(action) in ("denied", "cancelled")


def state(action: Action, view: RedactedView | None = None) -> str:
    """`done`, `needs 1 approval`, `running`, `denied by lea` ...; with a `view` nobody is named above it."""
    now = state_of(action)
    if now == "approval":
        return f"needs {count(missing_approvals(action), 'approval')}"
    by = f" by {person_name(action.ended_by)}" if action.ended_by and (view is None or view.is_open) else ""
    return f"{WORDS.get(now, now)}{by if now in ('denied', 'cancelled', 'stopped') else ''}"


def left(action: Action, view: RedactedView) -> str:
    """As `undo_state.summary`; a line for the targets of each state and end where these differ; mrkdwn."""
    parts = [part for part, _ in action.by_target()]
    apart = target_states(parts, view)
    return "\n" + "\n".join(apart) if len(apart) > 1 else undo_state.summary(action, view)


def target_states(parts: Iterable[Action], view: RedactedView) -> list[str]:
    """`🔓 ip 198[.]51[.]100[.]23: undone by ben, today 17:52`, a line for the targets of each state and end; mrkdwn."""
    alike = grouped(((mark(part, view), undo_state.summary(part, view).removeprefix(" · ")), part) for part in parts)
    named = [(key, targets(undo_state.together(same[0], same), view)) for key, same in alike.items()]
    return first_of([f"{sign_} {on}: {state}" for (sign_, state), on in named if on and state], MAX_INPUTS)


def run_line(action: Action, view: RedactedView) -> str:
    """One line for a card: mark, name, inputs, state, who and when, and the result.

    Below it how far each target is undone, if these differ. Where the object is withheld, only the state: a name of a
    responder or a person tells what was found and who acts.
    """
    at = slack_date(action.start_date)
    if not view.is_open:
        return f"{mark(action, view)} A run: {state(action, view)} · {at} · {withheld(view.subject.tlp)}"
    lasts = undo_state.for_how_long(action) if awaits_approval(action) else ""
    asked = f"{_by_whom(action)}, {at}{noted(action, view)}"
    what = f"{mark(action, view)} *{name(action)}*{on_target(action, view)}{lasts}{inputs_in_brackets(action, view)}"
    if undo_state.is_undone(action) or "\n" in left(action, view):
        return f"{what} · {asked}{approved_by(action)}{left(action, view)}"
    now = undo_state.in_force(action, view) if undo_state.is_in_force(action) else state(action)
    when = f", {slack_date(action.end_date)}" if action.ended_by and action.end_date is not None else ""
    return f"{what} {now}{when}{answer_by(action)} · {asked}{_tail(action, view)}"


def answer_by(action: Action) -> str:
    """`, answer by 14:30` of a run that waits for approval; mrkdwn."""
    if action.approval is None or not awaits_approval(action):
        return ""
    return f", answer by {time_ahead(action.approval.expires_at, action.start_date)}"


def in_force_line(action: Action, view: RedactedView) -> str:
    """Of a run that is in force: until when, on what, who started and who approved it, and what it said.

    Of a Block who has read it takes the place of what it said.
    """
    is_stuck = action.undo is not None and action.undo.status in ("waiting", "failed")
    mark = "⚠️" if is_stuck else "🔒"
    is_said = set(action.approved_by) <= set(action.more_time_by)
    by = f"{since(action, view)}{'' if is_said else approved_by(action)}"
    head = f"{mark} *{name(action)}*{on_target(action, view)} is {undo_state.in_force(action, view)}"
    result = "" if action.readers else _outcome(action, view)
    return f"{head}\n{by}{inputs_in_brackets(action, view)}{result}{override_text(action, view)}"


def since(action: Action, view: RedactedView) -> str:
    """`since 14:30, asked for by anna: "it beacons"`, of a run that is in force; mrkdwn."""
    at = slack_date(action.measure.since if action.measure is not None else action.start_date)
    return f"since {at}, asked for by {person_name(action.created_by)}{noted(action, view)}"


def approved_by(*actions: Action) -> str:
    """` · approved by ben, lea`: all who approved these runs; "" for nobody."""
    names = people(login for action in actions for login in action.approved_by)
    return f" · approved by {names}" if names else ""


def _outcome(action: Action, view: RedactedView) -> str:
    """` · 3 indicators`: what a run said, or the first labels of a report that has no sentence; "" while it is open."""
    labels = ", ".join(foreign(view.report(label), 60) for label in read_report(action).labels[:3])
    result = "" if is_open(action) else result_or_why(action, view) or labels
    return f" · {result}" if result else ""


def _by_whom(action: Action) -> str:
    """`by anna`, or `asked by anna` for a run that has not started."""
    now = state_of(action)
    word = "by" if now in ("running", "succeeded", "failed") else "started by" if now == "stopped" else "asked by"
    return f"{word} {person_name(action.created_by)}"


def _tail(action: Action, view: RedactedView) -> str:
    is_said = awaits_approval(action) or undo_state.is_in_force(action)
    more = "" if is_said else undo_state.summary(action, view)
    return f"{approved_by(action)}{_outcome(action, view)}{override_text(action, view)}{more}"


def override_text(action: Action, view: RedactedView, by: str = "") -> str:
    """` · 🔴 *Override*: "C2 is live"` of a run for which rules were overridden; `by` says who did, if nothing else.

    With the rules while it waits for a decision.
    """
    if action.override is None or not view.is_open:
        return ""
    rules = overridden(action.override.overrides, view, is_on_phone=True) if awaits_decision(action) else ""
    return f" · 🔴 *Override*{rules and f' ({rules})'}{by}: {quoted(action.override.reason, RESULT_LIMIT, view)}"


def group_line(actions: Sequence[Action], view: RedactedView) -> str:
    """`✅ *Lookup*: 5 runs done · the last by anna, today`: runs of one responder that ended alike, newest first.

    Of those that were undone `5 runs, all undone`. `view` is of what the newest ran on.
    """
    newest, objects = actions[0], len({a.object_id for a in actions})
    on = "" if objects > 1 else on_target(newest, view)
    if on and len({acts_on(action) for action in actions}) > 1:
        on = f" on {distinct_targets([(action, view) for action in actions])}"
    ended = f" {WORDS.get(state_of(newest), state_of(newest))}"
    if by := people(action.ended_by for action in actions if action.ended_by):
        ended += f" by {by}"
    if undo_state.is_undone(newest):
        ended = f", {'both' if len(actions) == 2 else 'all'} undone"
    counts = f"{len(actions)} runs{f' on {objects} targets' if objects > 1 else ''}{ended}"
    last = f"the last{'' if on else on_target(newest, view)} {_by_whom(newest)}, {slack_date(newest.start_date)}"
    result = result_or_why(newest, view) if not undo_state.is_undone(newest) else ""
    overrides = [one for one in actions if one.override is not None]
    override = "".join(
        override_text(one, view, f" by {person_name(one.created_by)}{approved_by(one)}") for one in overrides[:1]
    )
    said = f"{f' · {result}' if result else ''}{override}{undo_state.summary(newest, view)}"
    return f"{mark(newest, view)} *{name(newest)}*{on}: {counts} · {last}{said}"


def withheld_line(actions: Sequence[Action], total: int) -> str:
    """How many runs there are, and how many wait or are under way, where the object is withheld."""
    states = [state_of(action) for action in actions]
    labels = {"approval": "waiting for approval", "waiting": WORDS["waiting"], "running": "running"}
    parts = [f"{states.count(status)} {label}" for status, label in labels.items() if status in states]
    return ", ".join([count(total, "run"), *parts])


def on_withheld_card(actions: Sequence[Action], total: int, view: RedactedView) -> str:
    """`🔒 1 measure in force, 2 runs`; another company doesn't learn that something is contained."""
    parts = [part for action in actions for part, _ in undo_state.in_force_by_target(action)]
    held = {(part.undo and part.undo.responder, acts_on(part)) for part in parts if view.clearance != SHARED}
    in_force = f"🔒 {count(len(held), 'measure')} in force, " if held else ""
    return f"{in_force}{withheld_line(actions, total)}"


def hidden_line(actions: Sequence[Action], views: Mapping[str, RedactedView]) -> str:
    """`1 run, details withheld (TLP:AMBER)`, of runs above the clearance; `views` by run."""
    return f"{withheld_line(actions, len(actions))}, {withheld(max(views[one.id].subject.tlp for one in actions))}"


def given_inputs(action: Action | Bulk) -> Mapping[str, Any]:
    """What the requester gave the run, by name."""
    try:
        return mapping(json.loads(action.parameters or "{}"))
    except (ValueError, RecursionError):  # cut, as too long
        return {}


def withheld_inputs(action: Action | Bulk, view: RedactedView) -> frozenset[str]:
    """The inputs of a run that can't be shown to be used again: withheld, masked in part, or with a secret removed."""
    values = given_inputs(action)
    texts = {name: view.inputs(f"{name}\n{_text(value, view)}") for name, value in values.items()}
    secret = {name for name, value in values.items() if REMOVED in json.dumps(value)}
    return frozenset(secret | {name for name, text in texts.items() if not view.shows_inputs or MASK in text})


def note_again(action: Action | Bulk, view: RedactedView) -> str:
    """The note of a run, for what repeats it; "" for one that can't be shown, like an input."""
    note = action.note or ""
    return "" if not view.shows_inputs or MASK in view.inputs(note) else note


def inputs(action: Action, view: RedactedView) -> list[tuple[str, str]]:
    """The note, and title (or name) and text of each input, as far as they may be shown; foreign text, not escaped."""
    noted = [("Note", view.inputs(action.note or ""))] if _has_note(action) else []
    return [*noted, *_titled(given_inputs(action), action.inputs, view)]


def _titled(
    values: Mapping[str, Any], declared: Sequence[Parameter | InputTitle], view: RedactedView
) -> list[tuple[str, str]]:
    known = {parameter.name: (parameter.title, parameter.type) for parameter in declared}
    ordered = [*(name for name in known if name in values), *(name for name in values if name not in known)]
    titled = [(*known.get(name, (name, "")), values[name]) for name in ordered]
    return [(view.inputs(title), view.inputs(_text(value, view, kind))) for title, kind, value in titled]


def _text(value: Any, view: RedactedView, kind: str = "") -> str:
    if isinstance(value, str):
        return value.partition("@")[0] if kind == "user" else value
    if kind == "boolean" and isinstance(value, bool):
        return "yes" if value else "no"
    if kind == "choices" and isinstance(value, list):
        return ", ".join(map(str, value))
    return json.dumps(_masked(value, view), ensure_ascii=False)


def _masked(value: Any, view: RedactedView) -> Any:
    """A JSON value whose strings are masked before quotes and backslashes in them are escaped."""
    if isinstance(value, str):
        return view.inputs(value)
    if isinstance(value, list):
        return [_masked(item, view) for item in value]
    if isinstance(value, dict):
        return {view.inputs(name): _masked(item, view) for name, item in value.items()}
    return value


def input_lines(action: Action, view: RedactedView, limit: int) -> list[str]:
    """`minutes: 60`, one for each input, with at most `limit` characters of each value; mrkdwn."""
    if given_inputs(action) and not view.shows_inputs:
        return [f"inputs: {text}"] if (text := view.inputs("")) else []
    titled = _titled(given_inputs(action), action.inputs, view)
    return [f"{foreign(title, 100)}: {foreign(defang_indicators(text[: limit * 4]), limit)}" for title, text in titled]


def _has_note(action: Action) -> bool:
    """Whether a note is shown beside the inputs; that of an override stands beside what it overrides."""
    return bool(action.note) and action.override is None


def noted(action: Action, view: RedactedView, limit: int = INPUT_LIMIT, between: str = ": ") -> str:
    """`: "it beacons"`, behind who asked; "" without a note, that of an override is shown with what it overrides."""
    note = quoted(action.note or "", limit, view) if _has_note(action) else ""
    return f"{between}{note}" if note else ""


def inputs_in_brackets(action: Action, view: RedactedView) -> str:
    """` (minutes: 60, reason: lateral movement)` for a run's line; "" without inputs."""
    lines = input_lines(action, view, INPUT_LIMIT)
    return f" ({some_of(lines, MAX_INPUTS)})" if lines else ""


def reason(action: Action) -> str:
    """Why a run was denied or withdrawn, as who did that said; foreign text, not escaped."""
    message = read_report(action).message
    return message.partition(": ")[2] if state_of(action) in ("denied", "cancelled") else ""


def result_text(action: Action, view: RedactedView, limit: int = RESULT_LIMIT) -> str:
    """The sentence of a report for a mrkdwn field, as far as it may be shown; of what was denied or withdrawn, why."""
    says_itself = ("denied", "expired", "cancelled", "stopped")  # what became of it
    message = reason(action) if state_of(action) in says_itself else read_report(action).message
    if action.dispatched_at is None and action.ended_by is None:
        return core_says(view.report(with_names(message, view)), limit)
    said = view.report(message)[: limit * 4]  # who wrote it may name a target
    return core_says(defang_indicators(view.text(said) if view.is_open else said), limit)


def result_or_why(action: Action, view: RedactedView, limit: int = RESULT_LIMIT) -> str:
    """As `result_text`, and of what was denied or withdrawn also who said it: `lea: "wait for 04:00"`."""
    text, by = result_text(action, view, limit), action.ended_by
    return f'{person_name(by)}: "{text}"' if text and by and state_of(action) in ("denied", "cancelled") else text


def plain_line(action: Action, view: RedactedView) -> str:
    """Name, state and result without markup, for a push notification."""
    if not view.is_open:
        return f"A run {state(action, view)}."
    is_undone, result = undo_state.is_undone(action), result_text(action, view)
    now = "undone" if is_undone else state(action)
    return f"{name(action)}{on_target(action, view)} {now}" + (f": {result}" if result and not is_undone else ".")


def summary(actions: Sequence[Action], total: int, noun: str = "run", on: str = "") -> str:
    """`3 runs on ~12, 1 of them open`: `total` runs; `actions` are the newest and all open ones."""
    running = sum(is_open(a) for a in actions)
    return f"{count(total, noun)}{on}" + (f", {running} of them open" if running else "")


def action_list(actions: Sequence[Action], object_id: str, views: Mapping[str, RedactedView], *, total: int) -> Message:
    """What ran on an object, newest first: the open and the newest of `total` actions, `views` by run."""
    newest = newest_first(actions)
    if not newest:
        return notice(f"Nothing ran on {object_id} yet.")
    of_each = [(a.id, *run_line(a, views[a.id]).partition("\n")) for a in newest]
    lines = [f"{line.rstrip('.')} · {id_}{end}{states}" for id_, line, end, states in of_each]
    head = summary(newest, total, on=f" on {object_id}")
    return Message(head, tuple(sections([f"*{head}*", *first_of(lines, MAX_LINES, total)])))


def run_again_button(
    action: Action, view: RedactedView, button: ButtonIds, *, is_own: bool = False
) -> dict[str, Any] | None:
    """Repeats the run with its inputs; None where nobody would want that, and where the run is withheld.

    Only who asked for it (`is_own`) may still want what somebody denied or withdrew.
    """
    is_denied = state_of(action) in ("denied", "cancelled")
    if not (state_of(action) in WORTH_REPEATING or (is_denied and is_own)) or not view.is_open:
        return None
    return button_element(
        "Ask again" if is_denied or was_not_started(action) else "Run again",
        ids.RUN_AGAIN,
        button(Intent("run_again", action.id)),
        of=action.id,
        about=f"{title(action)} on {target_in_plain(action, view, OPTION_LIMIT)}",
    )
