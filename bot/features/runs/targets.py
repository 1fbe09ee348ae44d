"""The objects of a run: those that the person may see, each with the responders for it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from bot.block_kit import modals, names
from bot.block_kit.text import defang_indicators, foreign, person_name, slack_date
from bot.clearance import RedactedView, Subject
from bot.features import subjects
from bot.features.authorization import own_clearance
from bot.features.base import Context
from bot.features.responders.views import ByArtifact, reasons
from bot.features.runs.views import acts_on, questions, runs
from bot.features.runs.views.request import RunRequest
from core.common.clock import duration_ms
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.words import some_of
from core.models import (
    Action,
    Artifact,
    Document,
    Measure,
    OfferedResponder,
    RunTarget,
    TargetArtifact,
)

MOST = 100  # of one request to core
MOST_NAMED = 10  # artifacts in a sentence
MOST_WAITING = 500
RECENT = 50  # runs
SEARCH = "/api/connector/engine/action/_search"
T = TypeVar("T", bound=Measure | Action)
ActedOn = Mapping[str, Sequence[TargetArtifact]]
"""By object the artifacts that a run on it acts on; none: the object itself counts."""


@dataclass(frozen=True)
class Target:
    """An object that the person may see, with the responders for it, also those that can't run and why."""

    view: RedactedView
    offered: Sequence[OfferedResponder] = ()

    def responder(self, responder_id: str, chosen: Sequence[str] | None = ()) -> OfferedResponder | None:
        """The responder with this id or name, for a run on what is `chosen`; None if the object isn't one for it."""
        return next((one.on(chosen) for one in self.offered if responder_id in (one.id, one.name)), None)

    def fitting(self, responder_id: str) -> Sequence[TargetArtifact] | None:
        """What of the object the responder may act on; None where it can't run, or nobody knows what it acts on."""
        here = self.responder(responder_id)
        return here.target.artifacts if here is not None and here.target is not None else None

    def may_come_to_run(self, responder_id: str) -> bool:
        """Whether the responder can run here, or could but for a rule or an open run: not where no host is."""
        here = self.responder(responder_id)
        return here is not None and (here.can_run or bool(here.refusals or here.open_run))


def run_target(subject: Subject) -> RunTarget:
    """The object as a request names it."""
    return RunTarget(object_type=subject.kind, object_id=subject.id)


async def load(context: Context, object_ids: Sequence[str]) -> Sequence[Target]:
    """Read the objects with these ids; of several only those that this person may see.

    Raises ResponderBotError: not_found, forbidden, if there is one id.
    """
    if len(object_ids) != 1:
        return list((await find_targets(context, object_ids)).values())
    subject, offered = await subjects.offered(context.core, object_ids[0])
    return [Target(subjects.require_visible(context, subject), offered)]


async def find_targets(context: Context, object_ids: Sequence[str], *, responders: bool = True) -> Mapping[str, Target]:
    """The objects with these ids, in this order; without those that aren't there, or that this person may not see."""
    clearance, targets, object_ids = own_clearance(context), dict[str, Target](), [*dict.fromkeys(object_ids)]
    for document in await subjects.documents(context.core, object_ids, responders=responders):
        for object_id in within(document, object_ids):
            subject = Subject.in_document(document, object_id)
            view = RedactedView(subject, clearance) if subject is not None else None
            if view is not None and view.is_open and (not responders or object_id in document.responders):
                targets[object_id] = Target(view, document.responders.get(object_id, ()))
    return {object_id: targets[object_id] for object_id in object_ids if object_id in targets}


def within(document: Document, object_ids: Sequence[str]) -> Sequence[str]:
    """Those of these ids that the document may have."""
    if document.alert is None:
        return object_ids
    known = {document.id, *(artifact.id for artifact in document.alert.artifacts)}
    return [object_id for object_id in object_ids if object_id in known]


def require_few(named: Collection[object]) -> None:
    """Raise ResponderBotError("bad_request") for more than core takes at once."""
    if len(named) > MOST:
        raise ResponderBotError("bad_request", f"At most {MOST} targets at once, not {len(named)}.")


def worst_first(targets: Iterable[Target]) -> list[Target]:
    """As core gets them, which runs on the first of those with one target."""
    return sorted(targets, key=lambda one: -one.view.subject.severity)


def offered_on(targets: Iterable[Target]) -> Sequence[OfferedResponder]:
    """The responders for these objects, each as it is where it can run, if it can anywhere."""
    every = sorted((one for target in targets for one in target.offered), key=lambda one: one.can_run)
    return list({one.id: one for one in every}.values())


class _Asked(NamedTuple):
    """What somebody asks to run something on: its row in the form, and what becomes of the run."""

    row: questions.Row
    is_to_choose: bool
    """Whether somebody has yet to choose what it acts on."""
    once_on: frozenset[str]
    """The artifacts on which core runs it once for all objects that have them; none if it runs for each."""
    why_not: str | None
    """Why core will refuse it, foreign text."""


async def on_each(
    context: Context, request: RunRequest, responder: OfferedResponder, targets: Sequence[Target]
) -> questions.OnEach:
    """What the form before runs on several targets shows of each, and which it leaves out."""
    found = await ends_or_stays(context, request, responder, targets)
    each = _all_asked(request, responder, targets, found)
    before = (await context.core.bulk(request.again)).targets if request.is_bulk else ()
    withdrawn = {" ".join([one.object_id, *one.target]) for one in before if one.outcome == "cancelled"}
    ready = [one._replace(is_withdrawn=not withdrawn.isdisjoint(_requested(one))) for one in _each_run(each)]
    undecided = [one.row for one in each if one.why_not is None and one.is_to_choose]
    hidden = len(request.targets) - len(each)
    without = request.without or (f"Left out: {hidden} that you may not see." if hidden else "")
    return questions.OnEach(ready, undecided, _refused(each), without, context.person.login, request.is_bulk)


def _requested(row: questions.Row) -> set[str]:
    """How requests may name what is asked for: each object alone, or with what a run is to act on, by id or data."""
    on = [name for one in row.on for name in (one.id, one.data)]
    return {" ".join([one.object_id, *name]) for one in row.wanted for name in ((), *((each,) for each in on))}


def only_ticked(
    modal: modals.View, request: RunRequest, responder: OfferedResponder, targets: Sequence[Target]
) -> tuple[RunRequest, dict[str, str]]:
    """The request without what its form has to tick and nobody ticked, and what is wrong by block id.

    Also without what core would refuse by now, but not what the form said that it will refuse.
    """
    fields, ticked = modals.ticked(modal, questions.TICKED)
    offered = {modals.option_value(option) for field in fields for option in modals.options(modal, field)}
    each = _all_asked(request, responder, targets, ()) if fields else ()
    rows = [one.row for one in each if one.why_not is not None and one.row.tick in offered]
    left = [one for row in [*_each_run(each), *rows] if row.tick not in ticked for one in row.wanted]
    kept = tuple(one for one in request.targets if one not in left)
    return replace(request, targets=kept), {} if kept else dict.fromkeys(fields, modals.TICK_ONE)


def _all_asked(
    request: RunRequest, responder: OfferedResponder, targets: Sequence[Target], found: Iterable[Measure | Action]
) -> list[_Asked]:
    """All that somebody asks for and may see, on the most severe objects first."""
    by_id = {one.view.subject.id: one for one in targets}
    asked = [(by_id[one.object_id], one) for one in request.targets if one.object_id in by_id]
    asked.sort(key=lambda one: -one[0].view.subject.severity)
    return [_asked(request, responder, target, wanted, found) for target, wanted in asked]


def _asked(
    request: RunRequest,
    responder: OfferedResponder,
    target: Target,
    wanted: RunTarget,
    found: Iterable[Measure | Action],
) -> _Asked:
    here, policy = target.responder(request.responder_id, wanted.target), responder.policy
    is_to_choose = here is not None and here.can_run and acts_on.needs_choice(wanted, here)
    of = acts_on.chosen(wanted, here or responder)
    on = "" if here is None or is_to_choose else ", ".join(runs.target_lines(of, target.view))
    named, able = _named(of if on else (), target.view), here.approvers if here is not None else None
    row = questions.Row(target.view, on, _acting_on({wanted.object_id: of}, found), [], named, able, [wanted], of)
    is_once = (policy.contains or policy.is_undo) and not is_to_choose and all(one.kind != "file" for one in of)
    once_on = frozenset(_names(of) if is_once else ())
    return _Asked(row, is_to_choose, once_on, _why_refused(here, responder, target.view))


def _named(of: Sequence[TargetArtifact], view: RedactedView) -> str:
    return runs.in_short(of, view) or foreign(runs.target_in_full(view), runs.TARGET_LIMIT)


def _why_refused(here: OfferedResponder | None, responder: OfferedResponder, view: RedactedView) -> str | None:
    if here is None:
        return f"{names.title(responder)} doesn't take it"
    if here.open_run:
        return here.open_run
    return None if here.can_run else reasons(here, view)


def _each_run(each: Iterable[_Asked]) -> list[questions.Row]:
    """A row for each run that core starts: of the first object, with the others that have the same artifacts."""
    first = list[_Asked]()
    for one in (one for one in each if one.why_not is None and not one.is_to_choose):
        same = next((other.row for other in first if one.once_on and one.once_on <= other.once_on), None)
        if same is None:
            first.append(one)
        else:
            same.also.append(one.row.view)
            same.wanted.extend(one.row.wanted)
            same.in_force.extend(known for known in one.row.in_force if known not in same.in_force)
    return [one.row for one in first]


def _refused(each: Iterable[_Asked]) -> list[tuple[list[questions.Row], str]]:
    """What core will refuse, with why: together the objects with the same artifacts and the same reason."""
    why = ((one.once_on or one.row.view.subject.id, one.why_not, one.row) for one in each)
    alike = grouped(((on, why_not), row) for on, why_not, row in why if why_not is not None)
    return [(rows, why_not) for (_, why_not), rows in alike.items()]


# --- what a run is to act on ----------------------------------------------------------------------------------------


def to_choose(request: RunRequest, targets: Sequence[Target], responder_id: str = "") -> Sequence[acts_on.Choice]:
    """The objects on which several artifacts fit, where nobody has said yet which."""
    by_id = {target.view.subject.id: target for target in targets}
    choices: list[acts_on.Choice] = []
    for wanted in request.targets:
        target = by_id.get(wanted.object_id)
        responder = target.responder(responder_id or request.responder_id) if target is not None else None
        if target is None or responder is None or responder.target is None or not responder.can_run:
            continue
        if acts_on.needs_choice(wanted, responder):
            choices.append(acts_on.Choice(target.view, responder.target))
    return choices


def with_typed_target(request: RunRequest, targets: Sequence[Target], typed: str, title: str) -> RunRequest:
    """The request with what `target=...`, or what is typed behind the responder's title, names.

    By data in any spelling or by id, several separated by commas, of each object its own. Raises
    ResponderBotError("bad_request") with what could be named if a part of it is on none of the objects.
    """
    fitting = [(one.view, found) for one in targets if (found := one.fitting(request.responder_id)) is not None]
    by_object, left = dict[str, list[str]](), list[list[str]]()
    for view, artifacts in fitting:
        rest, named = subjects.split_targets(typed, artifacts)
        left.append(rest.split())
        if named:
            by_object[view.subject.id] = [one.id for each in named for one in each]
    on_none = " ".join(word for word in left[0] if all(word in words for words in left)) if left else typed
    if not by_object or on_none not in ("", "and", "&"):
        nothing_on = [one.view.subject.id for one in targets if one.view.subject.id not in by_object]
        unknown = on_none.removeprefix("and ")
        details = {"unknown": unknown, "nothing_on": nothing_on, "responder": request.responder_id}
        raise ResponderBotError("bad_request", _not_on(on_none, targets, fitting, title), details=details)
    request = acts_on.with_artifacts(request, by_object, each_alone=True)
    require_few(request.targets)
    return request


def _not_on(
    typed: str, targets: Sequence[Target], fitting: Iterable[tuple[RedactedView, Sequence[TargetArtifact]]], title: str
) -> str:
    """Says that nothing was run, as what was typed is on none of these, and what the responder can act on."""
    fits = dict.fromkeys(line for view, artifacts in fitting for line in runs.target_lines(artifacts, view))
    could = f"can act on {some_of([*fits], MOST_NAMED)}, but not on" if fits else "takes no target, so not"
    on = some_of([one.view.subject.id for one in targets], MOST_NAMED)
    return f"On {on} {title[:100]} {could} {defang_indicators(typed[:100])!r}. Nothing was run."


def with_targets_again(
    request: RunRequest, targets: Sequence[Target], before: Sequence[tuple[str, Collection[object]]]
) -> RunRequest:
    """The request on what runs on these objects acted on `before`, by data, as ids may be others by now, or by id."""
    by_object = dict[str, list[str]]()
    for target in targets:
        fitting, id_ = target.fitting(request.responder_id) or (), target.view.subject.id
        wanted = {name for object_id, names in before if object_id == id_ for name in names}
        ids = [one.id for one in fitting if one.id in wanted or (one.data_type, one.data) in wanted]
        if len(fitting) > 1 and ids:
            by_object[id_] = ids
    return acts_on.with_artifacts(request, by_object, each_alone=request.is_bulk)


def acted_on(action: Action) -> Collection[object]:
    """What tells of an artifact, by type and data, whether a run acted on it."""
    return {(artifact.data_type, artifact.data) for artifact in action.target or ()}


async def ends_or_stays(
    context: Context, request: RunRequest, responder: OfferedResponder, targets: Sequence[Target]
) -> Sequence[Measure | Action]:
    """What is in force that the run would undo or repeat, or waits for approval, as far as this person may see it."""
    on = _acted_on(request, responder, targets)
    if responder.policy.is_undo:
        return [*await in_force_on(context, on, responder.name), *await waiting_on(context, on, responder.name)]
    return await stays(context, on, responder)


def _acted_on(request: RunRequest, responder: OfferedResponder, targets: Sequence[Target]) -> ActedOn:
    """What the run on each object acts on, by its id."""
    of = {target.view.subject.id: target.responder(responder.id) or responder for target in targets}
    found = defaultdict[str, list[TargetArtifact]](list)
    for one in request.targets:
        if one.object_id in of:
            found[one.object_id] += acts_on.chosen(one, of[one.object_id])
    return found


async def in_force_on(context: Context, acted_on: ActedOn, undone_by: str) -> Sequence[Measure]:
    """As `_undone_by`, of what this person may see."""
    return _undone_by(undone_by, acted_on, await context.core.measures())


async def undone_by_each(
    context: Context, responder: OfferedResponder | None, releases: Iterable[Action]
) -> Mapping[str, Sequence[Measure]]:
    """What each of these runs of a responder would undo, by its id; nothing where that undoes none."""
    if responder is None or not responder.policy.is_undo:
        return {}
    found = await context.core.measures()
    return {run.id: _undone_by(responder.name, {run.object_id: run.target or ()}, found) for run in releases}


def ended_or_repeated(responder: OfferedResponder, subject: Subject, found: Iterable[Measure]) -> Sequence[Measure]:
    """What of all that is in force a responder can end, or repeat, on this object."""
    policy = responder.policy
    on = acts_on.by_object([run_target(subject)], responder)
    return _undone_by(responder.name if policy.is_undo else policy.undo, on, found)


def undoing(view: RedactedView, offered: Iterable[OfferedResponder], found: Sequence[Measure]) -> ByArtifact:
    """By id of an object and of its observables, the names of the responders that undo what is in force there."""
    subject, on = view.subject, {artifact.id: _undoing(artifact, found) for artifact in view.artifacts()}
    own = {one.name for one in offered if _undone_by(one.name, acts_on.by_object([run_target(subject)], one), found)}
    return on | {subject.id: own | on.get(subject.id, set())}


def _undoing(artifact: Artifact, found: Iterable[Measure]) -> set[str]:
    target = artifact.target
    on = {artifact.id, f"{target.kind} {target.value or artifact.label}" if target else ""}
    return {one.undo.responder for one in found if one.undo and on & {one.object_id, *_names(one.target or ())}}


def _undone_by(name: str | None, acted_on: ActedOn, found: Iterable[Measure]) -> Sequence[Measure]:
    """What a responder of this name undoes of all that is in force on these (by object, which counts without any)."""
    return [one for one in _acting_on(acted_on, found) if one.undo is not None and one.undo.responder == name]


async def waiting_on(context: Context, acted_on: ActedOn, undone_by: str) -> Sequence[Action]:
    """The runs that wait for approval to act on these, and that a responder of this name would undo."""
    found = _acting_on(acted_on, await context.core.newest_actions("waiting", limit=MOST_WAITING))
    waiting = [one for one in found if runs.awaits_approval(one) and one.undo and one.undo.responder == undone_by]
    seen = await find_targets(context, [one.object_id for one in waiting], responders=False)
    return [one for one in waiting if one.object_id in seen]


def _acting_on(acted_on: ActedOn, found: Iterable[T]) -> list[T]:
    """Those that are on one of these artifacts (by object, which counts without any)."""
    names = {name for object_id, artifacts in acted_on.items() for name in _names(artifacts) or {object_id}}
    return [one for one in found if names & (_names(one.target or ()) or {one.object_id})]


def _names(artifacts: Iterable[TargetArtifact]) -> set[str]:
    return {f"{one.kind} {one.data}" for one in artifacts}


async def in_force_already(context: Context, acted_on: ActedOn, responder: OfferedResponder) -> Sequence[Measure]:
    """What a containing run finds in force."""
    undone_by = responder.policy.undo
    return await in_force_on(context, acted_on, undone_by) if undone_by else []


async def stays(context: Context, acted_on: ActedOn, responder: OfferedResponder) -> Sequence[Measure | Action]:
    """Likewise, and what waits to do the same.

    Where nobody knows what a run acts on, such as one that closes, what is left of others on its object: what is in
    force, and what waits for approval; nothing of one that only tells.
    """
    policy, object_id = responder.policy, next(iter(acted_on), "")
    in_force = await in_force_already(context, acted_on, responder)
    decided = await _decided_before(context, acted_on, responder)
    if responder.target is not None or policy.undo or policy.is_undo or policy.sends_to or len(acted_on) > 1:
        waiting = await waiting_on(context, acted_on, policy.undo) if policy.undo else []
        return [*decided, *in_force, *waiting]
    waiting = await context.core.newest_actions("waiting", limit=MOST_WAITING)
    waits = [one for one in waiting if one.object_id == object_id and runs.awaits_approval(one)]
    return [*decided, *await context.core.measures(of=[object_id]), *waits]


async def _decided_before(context: Context, acted_on: ActedOn, responder: OfferedResponder) -> Sequence[Action]:
    """The run of the responder on each of these that somebody denied or undid last, for whatever alert."""
    if not (responder.policy.approval or responder.policy.undo):
        return []
    found = _acting_on(acted_on, await context.core.decided_before(responder.name, acted_on))
    once = {(one.decided_against, *sorted(_names(one.target or ()) or {one.object_id})): one for one in reversed(found)}
    return [*once.values()][::-1]  # each decision for all objects that have its target, as of the first


async def used_by(context: Context, responder: OfferedResponder) -> str:
    """`Used by anna on hostname LT-0901, 14:32.`: which run counts no more when it is free.

    "" where that is unknown, or of what this person may not see; mrkdwn.
    """
    if not (limits := _limits_by_first_run(responder)):
        return ""
    query = {"responderName": responder.name}
    newest = await context.core.search(Action, SEARCH, query, f"0-{RECENT}", ["-createdAt"])
    first = next((one for one in newest if one.dispatched_at in limits), None)
    if first is None or first.dispatched_at is None:
        return ""
    action, subject = await subjects.of_action(context.core, first)
    view = RedactedView(subject, own_clearance(context))
    if not view.is_open:
        return ""
    used = "Used" if limits[first.dispatched_at].startswith("1/") else "The first of these was"
    on = runs.on_target(action, view) or f" on {subject.id}"
    return f"{used} by {person_name(action.created_by)}{on}, {slack_date(first.dispatched_at)}."


def _limits_by_first_run(responder: OfferedResponder) -> Mapping[int, str]:
    """The limits that are used up, such as `1/1h`, by when the run started that is first to count no more (ms)."""
    free_at = [one.until for one in responder.refusals or () if one.rule == "rate" and one.until is not None]
    rates = responder.policy.rate or ()
    return {at - duration_ms(rate.partition("/")[2]): rate for at in free_at for rate in rates}
