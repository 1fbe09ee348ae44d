"""What one person asked for: responders with reasons, menus of them, actions, an alert in full."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from bot.block_kit import ids, names, notices
from bot.block_kit.elements import MAX_LINES, MAX_OPTIONS, button_element, listed, message_option
from bot.block_kit.subjects import by_ioc, menu_row, object_line, target_data
from bot.block_kit.text import (
    DAY_AND_TIME,
    OPTION_LIMIT,
    clip_apart,
    clip_middle,
    code,
    context,
    core_says,
    defang_indicators,
    foreign,
    foreign_plain,
    in_own_time,
    plain,
    said,
    section,
    sections,
    slack_date,
    strip_markup,
    utc_time,
)
from bot.clearance import RedactedView, Subject, artifact_name, artifact_title, defang, may_see, refanged
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count, some_of
from core.models import OBJECT_TYPES, OVERRIDE, Artifact, OfferedResponder, OfferedTarget, Refusal

NOT_ITS_KIND = "it is not for this kind of target"  # begins a reason of core's
LATER_COUNTS = "the later end counts"  # ends one of what is in force already
_NAMED = re.compile(r"(the observable ~[0-9]+|its target)( is protected)?(?(2)(?: \(([^()]*)\))?)")
MAX_TITLES = 6  # of responders, in the line of an artifact; of targets, in the line of a responder
MOST_ALIKE = 3  # artifacts that the same can act on
LINE_LIMIT = 600  # characters of a responder's or an artifact's line
HEADING_LIMIT = 44  # characters of an artifact above its entries of a menu, which is one line on a phone
CANNOT = "Can't run, because ..."
CONTAIN, UNDO = "Contain · ", "Undo · "
URL_LIMIT = OPTION_LIMIT - len(CONTAIN)  # likewise of a URL, for its host in full

ByArtifact = Mapping[str, Collection[str]]  # names of responders


def split(offered: Sequence[OfferedResponder]) -> tuple[list[OfferedResponder], list[OfferedResponder]]:
    """Those that can run and those that can't, each in the order of menus."""
    ordered = sorted(offered, key=in_order)
    return [r for r in ordered if r.can_run], [r for r in ordered if not r.can_run]


def in_order(responder: OfferedResponder) -> tuple[int, int, str, str]:
    """By kind, then what runs most first."""
    return _kind(responder), -(responder.recent_runs or 0), names.title(responder).casefold(), responder.name


CONTAINS, OTHER, UNDOES = range(3)  # the kinds of responders, in the order of menus


def _kind(responder: OfferedResponder) -> int:
    """CONTAINS what leaves something in force, such as an isolated host, and UNDOES what ends that."""
    policy = responder.policy
    if policy.undo:
        return CONTAINS
    return UNDOES if policy.is_undo else OTHER


def responder_list(
    offered: Sequence[OfferedResponder],
    by_artifact: Mapping[str, Sequence[str]],
    subject: Subject,
    in_force: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ends: ByArtifact = MappingProxyType({}),
    *,
    clearance: int,
    button: ButtonIds,
    command: str,
    refused: str = "",
    who: str = "",
    channel: str = "",
) -> Message:
    """What can run on an object, what on each artifact of an alert, and why the rest can't run.

    `by_artifact` and `ends` as in `responder_options`; `in_force` is what a responder would repeat or end, by name;
    `refused` is why this person can't run anything; `who` can open it if this person can't; `channel` is where they
    asked.
    """
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance, who))
    if refused:
        return _refused(offered, view, refused)
    on_artifacts, elsewhere = _on_artifacts(offered, by_artifact, ends, view)
    can, cannot = split(offered)
    idle = _ending_nothing(offered, elsewhere, ends)
    already = [r for r in can if in_force.get(r.name) and (_kind(r) == UNDOES or _acts_on_one(r))]
    now = [r for r in can if r not in (*idle, *already)]
    why_not = [f"• *{names.shown(r)}*: {shown_reasons(r, view, 300)}" for r in cannot if r.name not in elsewhere]
    text = f"{count(len(can), 'responder')} can run on {subject.id}" + (f", {len(why_not)} can't" if why_not else "")
    blocks: list[Block] = [
        object_line(view),
        *listed(f"*Can run ({len(now)})*", [_can_line(r, view, in_force.get(r.name, ())) for r in now]),
        *listed("*In force already, and what ends it*", _lines_in_force(already, in_force, ends, view)),
        *sections([f"Nothing can run on {subject.id} now."] * (not offered)),
        *listed(f"*Can't run ({len(why_not)})*", why_not),
        *listed("*On its observables*", on_artifacts),
        *listed("*Nothing is known to be in force that these would end*", [_can_line(r, view, ()) for r in idle]),
    ]
    if can or elsewhere:
        blocks += [menu_block(view, button, channel), *_how_to_type(now, subject, command)]
    return Message(text, tuple(blocks))


def _refused(offered: Sequence[OfferedResponder], view: RedactedView, why: str) -> Message:
    """Why this person can't run anything, and what others can."""
    for_others = [names.shown(r) for r in split(offered)[1] if not r.refusals and len(r.reasons or []) == 1]
    others = [context(f"Others can run {some_of(for_others, MAX_LINES)}.")] if for_others else []
    return Message(why, (object_line(view), section(foreign(why, 500)), *others))


def _ending_nothing(
    offered: Sequence[OfferedResponder], elsewhere: Collection[str], ends: ByArtifact
) -> list[OfferedResponder]:
    """Those that undo, here or `elsewhere`, and would end nothing that is known to be in force."""
    ending = set[str]().union(*ends.values())
    undoing = [r for r in sorted(offered, key=in_order) if _kind(r) == UNDOES and r.name not in ending]
    return [r if r.can_run else _without_reasons(r) for r in undoing if r.can_run or r.name in elsewhere]


def _lines_in_force(
    already: Sequence[OfferedResponder], in_force: Mapping[str, Sequence[str]], ends: ByArtifact, view: RedactedView
) -> list[str]:
    """A line for each that would repeat or end what is in force; what would be repeated isn't said again to end it."""
    repeated = {line for r in already if _kind(r) == CONTAINS for line in in_force[r.name]}
    lines = list[str]()
    for responder in already:
        own = [line for line in in_force[responder.name] if _kind(responder) == CONTAINS or line not in repeated]
        lines.append(_can_line(_on_what_it_ends(responder, ends), view, own))
    return lines


def _how_to_type(now: Sequence[OfferedResponder], subject: Subject, command: str) -> list[Block]:
    """What to type to run the first that has no open run, if it leaves something in force."""
    first = next((r for r in now if not r.open_run), None)
    if first is None or _kind(first) != CONTAINS:
        return []
    return [context(f"Or type {code(f'{command} run {names.example(first)} {subject.id}', 200)}.")]


def _on_artifacts(
    offered: Sequence[OfferedResponder], by_artifact: ByArtifact, ends: ByArtifact, view: RedactedView
) -> tuple[list[str], set[str]]:
    """A line for the artifacts that may be shown and that the same can act on, and the names of those responders.

    What undoes something only where that is in force.
    """
    on = dict[str, list[str]]()
    elsewhere: set[str] = set()
    for artifact in by_ioc(view.artifacts()):
        runnable = {*by_artifact.get(artifact.id, ()), *(r.name for r in acting_through(offered, artifact.id))}
        able = [r for r in sorted(offered, key=in_order) if r.name in runnable]
        elsewhere |= {r.name for r in able}
        named = foreign(clip_middle(view.text(artifact_title(artifact)), LINE_LIMIT), LINE_LIMIT)
        titles = [names.shown(r) for r in able if _kind(r) != UNDOES or r.name in ends.get(artifact.id, ())]
        on.setdefault(some_of(titles, MAX_TITLES), []).append(f"{named} ({artifact.id})")
    return [f"• {some_of(alike, MOST_ALIKE)}: {titles}" for titles, alike in on.items() if titles], elsewhere


def _on_what_it_ends(responder: OfferedResponder, ends: ByArtifact) -> OfferedResponder:
    """One that undoes on those artifacts alone on which something is in force that it ends."""
    if responder.target is None:
        return responder
    held = [one for one in responder.target.artifacts if responder.name in ends.get(one.id, ())]
    target = responder.target.model_copy(update={"artifacts": held or responder.target.artifacts})
    return responder.model_copy(update={"target": target})


def _without_reasons(responder: OfferedResponder) -> OfferedResponder:
    """Without those that are of another object than it runs on."""
    return responder.model_copy(update={"reasons": None})


def _can_line(responder: OfferedResponder, view: RedactedView, in_force: Sequence[str]) -> str:
    """`• *Isolate Host*: LT-0198 · needs 1 approval`, and what is in force and to know of it on lines of their own."""
    about = about_option(responder, None if view.subject.kind == "case_artifact" else view, is_whole=True)
    parts = [f"• *{names.shown(responder)}*{f': {foreign(about, LINE_LIMIT)}' if about else ''}"]
    parts += [f"asks for {count(len(responder.parameters), 'input')}"] if responder.parameters else []
    protected = responder.target.protected.values() if responder.target and _kind(responder) == UNDOES else ()
    told = [*filter(None, [said(responder.open_run or "")]), *responder.notes]
    told = [note for note in told if note not in protected and not (in_force and LATER_COUNTS in note)]
    notes = [view.text(with_names(reason, view, is_described=True)) for reason in told]
    lines = [" · ".join(parts), *in_force]
    return "\n    ◦ ".join([*lines, *(in_own_time(foreign(defang_indicators(note), 400)) for note in notes)])


def reasons(responder: OfferedResponder, view: RedactedView, *, is_short: bool = False) -> str:
    """Why it can't run on the view's subject, as far as that may be shown; foreign text, not escaped.

    A reason may name an artifact, such as one that is protected. `is_short`: without what `lifted` says.
    """
    refusals, at = responder.refusals or (), _free_at(responder)
    free = [f"free again {utc_time(at)}"] if at is not None else []
    lifts = [] if is_short else [*free, *dict.fromkeys(one.lift for one in refusals)]
    sentences = [*(refusal.message for refusal in refusals), *lifts, *(responder.reasons or ())]
    on_kinds = _on_kinds(responder, view)
    sentences = [on_kinds if reason.startswith(NOT_ITS_KIND) else reason for reason in sentences]
    return view.text(with_names(said("; ".join(sentences)), view, is_described=True)) or "it gives no reason"


def shown_reasons(responder: OfferedResponder, view: RedactedView, limit: int, *, is_short: bool = False) -> str:
    """Likewise as mrkdwn, with times in each reader's time."""
    return in_own_time(foreign(reasons(responder, view, is_short=is_short), limit))


def lifted(responder: OfferedResponder, who: str) -> list[str]:
    """Lines on when it can run again, and what can be done before, such as that `who` may override a limit; mrkdwn."""
    at, lifts = _free_at(responder), dict.fromkeys(one.lift for one in responder.refusals or ())
    lines = [lift for lift in lifts if lift != OVERRIDE or responder.can_be_overridden]
    lines = [lift.replace("an administrator", who, 1) if lift == OVERRIDE and who else lift for lift in lines]
    if (number := len(responder.refusals or ())) > 1:
        lines = [line.replace("override it", f"override {'both' if number == 2 else 'all of these'}") for line in lines]
    free = [f"Free again {slack_date(at, DAY_AND_TIME)}."] if at is not None else []
    return [*free, *(core_says(f"{line[0].upper()}{line[1:]}.", 400) for line in lines)]


def _free_at(responder: OfferedResponder) -> int | None:
    """When the last of the rates that refuse it is free again (ms), if that is known."""
    return max((one.until for one in responder.refusals or () if one.until is not None), default=None)


def not_now(offered: Sequence[OfferedResponder]) -> str:
    """`Can't run now: *Block* (limit used, free again 9:05 PM)`: what only a used rate keeps from running; mrkdwn."""
    said_of = list[str]()
    for one in (one for one in offered if not one.reasons):
        used = [refusal for refusal in one.refusals or () if refusal.rule == "rate"]
        at = _free_at(one)
        free = f", free again {slack_date(at)}" if at is not None else ""
        said_of += [f"*{names.shown(one)}* (limit used{free})"] if used else []
    return f"Can't run now: {some_of(said_of, MAX_TITLES)}." if said_of else ""


def is_for_alerts(responder: OfferedResponder, subject: Subject) -> bool:
    """Whether it runs not on this case, or what is in it, but on its alerts."""
    is_other = any(reason.startswith(NOT_ITS_KIND) for reason in responder.reasons or ())
    return bool(subject.alert_ids) and is_other and "thehive:alert" in responder.data_type_list


def _on_kinds(responder: OfferedResponder, view: RedactedView) -> str:
    """What it runs on, such as `only on its ip`, and so not on this object; its target is that on the alert of this."""
    if is_for_alerts(responder, view.subject):
        return f"only on an alert of the case: {' or '.join(view.subject.alert_ids[:3])}"
    if responder.target is not None and responder.target.artifacts:
        on = [f"{one.data_type} {target_data(one, view)}" for one in responder.target.artifacts]
        return f"only on {some_of(on, MAX_TITLES)}"
    names = {f"thehive:{kind}": name for kind, name in OBJECT_TYPES.items()}
    kinds = [names.get(kind, kind) for kind in responder.data_type_list]
    return f"only on its {', '.join(kinds[:3])}{' and more' if len(kinds) > 3 else ''}"


def overridden(
    refusals: Iterable[Refusal], view: RedactedView, *, is_described: bool = False, is_on_phone: bool = False
) -> str:
    """`dc01 is protected`: the rules that are overridden, and when a rate is free again; mrkdwn.

    Without that time on a phone, which formats none.
    """
    said = list[str]()
    for refusal in refusals:
        until = None if is_on_phone else refusal.until
        free = f" (free again {slack_date(until, DAY_AND_TIME)})" if until is not None else ""
        named = view.inputs(with_names(refusal.message, view, is_described=is_described))
        said.append(core_says(named, 800).rstrip(".") + free)
    return "; ".join(said)


def with_names(sentence: str, view: RedactedView, *, is_described: bool = False) -> str:
    """A sentence of core's with observables of the view's subject by their data, as far as they may be shown.

    ``dc01 is protected``, with the entry of the settings behind it if that is another text; if `is_described`, also
    with what the alert says of it.
    """
    messages = {f"the observable {one.id}": one.message for one in view.artifacts() if one.message and is_described}
    called = {f"the observable {one.id}": artifact_name(one) for one in view.artifacts()}
    if view.subject.kind == "case_artifact" and view.is_open:
        called["its target"] = view.subject.title.partition(" ")[2]

    def named(match: re.Match[str]) -> str:
        name, entry = called.get(match[1], match[1]), match[3] or ""
        why = f" ({entry})" if entry and defang(entry).casefold() != name.casefold() else ""
        says = f" ({messages[match[1]]})" if match[1] in messages else ""
        return f"{name}{says}{match[2] or ''}{why}"

    return _NAMED.sub(named, sentence)


# --- menus ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entries:
    """Entries of a menu under one heading, each with the responder and what can be typed to find it."""

    label: str
    entries: Sequence[tuple[OfferedResponder, str]]
    target: str  # in front of the values of its options
    about: Callable[[OfferedResponder], str]


def acting_through(offered: Sequence[OfferedResponder], artifact_id: str) -> list[OfferedResponder]:
    """The responders that can run on an alert and act on this one of its artifacts, where it is not protected."""
    can = [r for r in _acting_on(offered, artifact_id) if r.can_run]
    return [r for r in can if r.target and artifact_id not in r.target.protected]


def _acting_on(offered: Iterable[OfferedResponder], artifact_id: str) -> list[OfferedResponder]:
    return [r for r in offered if r.target and any(one.id == artifact_id for one in r.target.artifacts)]


def responder_options(
    offered: Sequence[OfferedResponder],
    by_artifact: Mapping[str, Sequence[str]],
    view: RedactedView,
    typed: str,
    alert_id: str = "",
    through: Sequence[OfferedResponder] = (),
    ends: ByArtifact = MappingProxyType({}),
) -> dict[str, Any]:
    """The entries of a menu, grouped by what they run on: the subject, then each artifact that may be shown.

    `by_artifact` has the names of the responders that can run on each artifact of an alert. All words of `typed` must
    be found in the responder's title, name or description, or in the target's type or data. `through` are those that
    run on an artifact's alert (`alert_id`) and act on the artifact. `ends` has the names of those that would end
    something, by id of the subject and of each artifact; others that undo are listed only where something is typed. Of
    the subject those that can't run follow at the end, with the reasons. Slack takes 100 entries; the last of more says
    to type.
    """
    words = refanged(typed).casefold().split()
    groups = [
        replace(group, entries=[entry for entry in group.entries if all(word in entry[1] for word in words)])
        for group in _Menu(offered, by_artifact, view, words, alert_id, through, ends).groups()
    ]
    left = sum(len(group.entries) for group in groups)
    room = MAX_OPTIONS if left <= MAX_OPTIONS else MAX_OPTIONS - 1
    by_label = dict[str, list[dict[str, Any]]]()
    for group in groups:
        options = [option(r, group.about(r), group.target) for r, _ in group.entries[:room]]
        room, left = room - len(options), left - len(options)
        if options:
            by_label.setdefault(foreign_plain(group.label, OPTION_LIMIT), []).extend(options)
    shown = [{"label": plain(label), "options": options} for label, options in by_label.items()]
    if left:
        more = message_option("Type a responder, an address or a data type to find them.")
        shown.append({"label": plain(f"{left} more"), **more})
    return {"option_groups": shown} if shown else {"options": []}


@dataclass(frozen=True)
class _Menu:
    """What a menu has: as for `responder_options`, with the `words` that were typed."""

    offered: Sequence[OfferedResponder]
    by_artifact: Mapping[str, Sequence[str]]
    view: RedactedView
    words: Sequence[str]
    alert_id: str
    through: Sequence[OfferedResponder]
    ends: ByArtifact

    def groups(self) -> list[_Entries]:
        """What contains something first, and last what can't run."""
        subject = self.view.subject
        name = self.view.title() if self._is_of_artifact else f"{OBJECT_TYPES[subject.kind]} {subject.id}"
        label, own = clip_middle(name, URL_LIMIT), refanged(name).casefold()
        every = [r for r in self.offered if self._can_be_chosen(r)]
        through, artifacts = self._through_alert(every), self._artifacts()
        can = [r for r in every if r not in through]
        on_it = _with(own, self._listed(subject.id, can))
        on_alert = _with(own, self._listed(subject.id, through))
        groups = [
            *_by_kind(label, on_it, view=None if self._is_of_artifact else self.view),
            *_by_kind(label, on_alert, f"{self.alert_id}={subject.id}:"),
            *chain.from_iterable(self._on_artifact(one, heading, can) for one, heading in artifacts),
        ]
        elsewhere = {r.name for r in (*every, *self.through)}
        elsewhere.update(*(self.by_artifact.get(one.id, ()) for one, _ in artifacts))
        cannot = [r for r in self.offered if r.name not in elsewhere and self._is_worth_a_reason(r)]
        groups.append(_Entries(CANNOT, _with(own, cannot), "", partial(reasons, view=self.view, is_short=True)))
        # Whoever types "block" is not to be led to Unblock.
        return sorted(
            groups, key=lambda one: (not one.label.startswith(CONTAIN), bool(self.words) and one.label.startswith(UNDO))
        )

    @property
    def _is_of_artifact(self) -> bool:
        return self.view.subject.kind == "case_artifact"

    def _can_be_chosen(self, responder: OfferedResponder) -> bool:
        """Whether it can run, or on an artifact lacks nothing but a case, to which whoever chooses it is led."""
        lacks_case = responder.lacks == ["case"] and len(responder.reasons or ()) == 1
        return responder.can_run or (self._is_of_artifact and lacks_case)

    def _through_alert(self, can: Sequence[OfferedResponder]) -> list[OfferedResponder]:
        """What acts on the artifact as it runs on its alert; in a case, a run on the observable would be the case's."""
        by_name, is_in_case = {r.name: r for r in can}, bool(self.view.subject.alert_ids)
        return [by_name.get(r.name, r) for r in self.through if is_in_case or r.name not in by_name]

    def _listed(self, object_id: str, responders: Iterable[OfferedResponder]) -> list[OfferedResponder]:
        """Those of these that a menu lists on an object: what undoes only if it ends something, or words were typed."""
        ending = self.ends.get(object_id, ())
        return [r for r in responders if self.words or _kind(r) != UNDOES or r.name in ending]

    def _artifacts(self) -> list[tuple[Artifact, str]]:
        """Those that may be shown, each with a heading: of a URL as much as fits, of others one line on a phone."""
        shown = by_ioc(self.view.artifacts()) if self.by_artifact else []
        titles = [self.view.text(artifact_title(artifact)) for artifact in shown]
        headings, of_urls = clip_apart(titles, HEADING_LIMIT), clip_apart(titles, URL_LIMIT)
        in_full = zip(shown, headings, of_urls, strict=True)
        return [(one, whole if one.data_type == "url" else short) for one, short, whole in in_full]

    def _on_artifact(self, artifact: Artifact, heading: str, can: Sequence[OfferedResponder]) -> list[_Entries]:
        """What runs on an artifact, then what acts on it through the subject: once, unless words were typed.

        What `can` run on the subject and acts on the artifact is an entry of the subject.
        """
        runnable = self.by_artifact.get(artifact.id, ())
        once = set() if self.words else {r.name for r in _acting_on(can, artifact.id)}
        able = [_without_reasons(r) for r in self.offered if r.name in runnable and r.name not in once]
        on_alert = {r.name for r in acting_through(self.offered, artifact.id)}
        own = self._listed(artifact.id, [r for r in able if r.name not in on_alert])
        through = self._listed(artifact.id, [r for r in able if r.name in on_alert])
        target = refanged(self.view.text("\n".join([artifact.data_type, *artifact.texts]))).casefold()
        return [
            *_by_kind(heading, _with(target, own), f"{artifact.id}:"),
            *_by_kind(heading, _with(target, through), f"{self.view.subject.id}={artifact.id}:"),
        ]

    def _is_worth_a_reason(self, responder: OfferedResponder) -> bool:
        """Whether a menu says why it can't run: nobody who asks about an address needs it of what takes a domain."""
        if responder.can_run or not self._is_of_artifact:
            return not responder.can_run
        is_of_alert = _kind(responder) == CONTAINS and is_for_alerts(responder, self.view.subject)
        return is_of_alert or any(self.view.subject.title.startswith(f"{kind} ") for kind in responder.data_type_list)


def _by_kind(
    label: str,
    entries: Sequence[tuple[OfferedResponder, str]],
    target: str = "",
    view: RedactedView | None = None,
) -> list[_Entries]:
    """What contains, what looks something up or tells somebody, and what undoes."""
    about, heads = partial(about_option, view=view), (f"{CONTAIN}{label}", label, f"{UNDO}{label}")
    of_kinds = [[entry for entry in entries if _kind(entry[0]) == kind] for kind in range(len(heads))]
    return [_Entries(head, of, target, about) for head, of in zip(heads, of_kinds, strict=True) if of]


def _with(target: str, responders: Sequence[OfferedResponder]) -> list[tuple[OfferedResponder, str]]:
    ordered = sorted(responders, key=in_order)
    return [(r, f"{target}\n{' '.join([*names.typed_names(r), r.description]).casefold()}") for r in ordered]


def option(responder: OfferedResponder, about: str, target: str = "") -> dict[str, Any]:
    """A responder as an entry of a menu, with what is said of it below; foreign texts, not escaped."""
    entry: dict[str, Any] = {
        "text": plain(foreign_plain(names.title(responder), OPTION_LIMIT)),
        "value": target + option_value(responder),
    }
    if about.strip():
        entry["description"] = plain(foreign_plain(about, OPTION_LIMIT))
    return entry


def about_option(responder: OfferedResponder, view: RedactedView | None = None, *, is_whole: bool = False) -> str:
    """`LT-0198 · needs 1 approval · Takes the host off`, one line of a menu; foreign text, not escaped.

    What it acts on only with a `view`: elsewhere the heading has it. One of several are named if there is room for
    the `is_whole` text.
    """
    on = _acts_on(responder.target, view, is_whole=is_whole) if view is not None and responder.target else ""
    case = "needs a case" if "case" in (responder.lacks or ()) else ""
    held = "🔒 contained already" if _acts_on_one(responder) and not is_whole and is_in_force(responder) else ""
    return " · ".join(filter(None, [on, held, needs(responder, case), strip_markup(responder.description)]))


def _acts_on(target: OfferedTarget, view: RedactedView, *, is_whole: bool) -> str:
    """`LT-0198`, the only one that it can act on, or that one is to be chosen; "" if it needs none."""
    fitting = [one for one in target.artifacts if one.id not in target.protected]
    named = clip_apart([target_data(one, view) for one in fitting], OPTION_LIMIT)
    if len(fitting) == 1:
        limit = URL_LIMIT if fitting[0].data_type == "url" else HEADING_LIMIT
        return named[0] if is_whole else clip_middle(named[0], limit)
    if not target.required:
        return ""
    return f"one of {some_of(named, MAX_TITLES)}: you choose" if is_whole and named else "choose which"


def _acts_on_one(responder: OfferedResponder) -> bool:
    return responder.target is not None and len(responder.target.artifacts) == 1


def is_in_force(responder: OfferedResponder) -> bool:
    """Whether core notes that another run has it in force on something that a run would act on."""
    return any(LATER_COUNTS in note for note in responder.notes)


def needs(responder: OfferedResponder, more: str) -> str:
    """`needs 1 approval`, if it does, and what more is to be said; foreign text, not escaped."""
    number = responder.policy.approval
    approval = f"needs {count(number, 'approval')}" if number else ""
    return " · ".join(filter(None, [approval, more]))


def option_value(responder: OfferedResponder) -> str:
    """A hash of a responder's id, which may be longer than the 150 characters of an option's value."""
    return hashlib.sha256(responder.id.encode("utf-8", "replace")).hexdigest()[:32]


def responder_of_option(offered: Sequence[OfferedResponder], value: str) -> OfferedResponder | None:
    """The responder with this option value; None if it is no longer offered."""
    return next((r for r in offered if option_value(r) == value.rpartition(":")[2]), None)


def target_of_option(value: str) -> tuple[str, str]:
    """The id of what an option runs on ("": the subject of the menu), and of its artifact to act on, or ""."""
    object_id, _, artifact_id = value.rpartition(":")[0].partition("=")
    return object_id, artifact_id


# --- actions, an alert ----------------------------------------------------------------------------------------------


def menu_block(view: RedactedView, button: ButtonIds, channel: str) -> Block:
    """The menu of what can run on a subject and its artifacts, and what leads to a run on several of these."""
    subject = view.subject
    others = subject.others if subject.kind == "case" else ()
    visible = {one.id for one in (*view.artifacts(), *others) if may_see(view.clearance, one.tlp)}
    has_several = len(visible) > 1 and subject.kind in ("alert", "case")
    several = [several_button(Intent("several", subject.id, channel), button)] if has_several else []
    return menu_row(subject.kind, subject.id, button, *several)


def several_button(intent: Intent, button: ButtonIds) -> dict[str, Any]:
    """Opens the modal in which one chooses what to run on, or alerts to assign or close."""
    label = "Run on several" if intent.what == "several" else "Select several"
    return button_element(label, ids.SEVERAL, button(intent))
