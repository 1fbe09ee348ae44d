"""`/responder run NAME ~id`: what a command names, and the inputs that it gives."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.block_kit import names
from bot.clearance import RedactedView, Subject
from bot.features import responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.command_text import find_ids, parse_id, same_name, split_inputs, split_name_and_id, split_name_and_ids
from bot.features.responders.matching import closest, matching, none_called
from bot.features.runs import flow
from bot.features.runs.targets import (
    MOST,
    MOST_NAMED,
    Target,
    find_targets,
    offered_on,
    require_few,
    run_target,
    with_typed_target,
    worst_first,
)
from bot.features.runs.views import inputs, questions
from bot.features.runs.views.request import RunRequest
from core.common.errors import ResponderBotError
from core.common.words import some_of
from core.models import Artifact, OfferedResponder


async def on_run_command(context: Context) -> None:
    """Run the named responder, or say why not, with the command that works where another alert has what was typed."""
    responses.require_permission(context, "manageAction")
    try:
        await _run(context)
    except ResponderBotError as error:
        unknown, responder_id = error.details.get("unknown", ""), error.details.get("responder", "")
        if (other := await _alert_with(context, unknown, responder_id)) is None:
            raise
        left_out = error.details.get("nothing_on", ())
        typed = [word for word in context.text.split() if parse_id(word) not in left_out]
        then = f"{other} has it: type `{context.services.command} run {' '.join([*typed, other])}`."
        raise ResponderBotError(error.code, f"{error.message} {then}") from error


async def _alert_with(context: Context, typed: str, responder_id: str) -> str | None:
    """The only open alert that shows this person an observable that was typed; None if there are none, or several.

    None if the responder can't act on it there either.
    """
    found = await subjects.search(context.core, typed, own_clearance(context), MOST) if typed else ()
    views = [RedactedView(Subject.alert(one), own_clearance(context)) for one in found if one.status != "Ignored"]
    having = [view for view in views if not subjects.split_targets(typed, view.artifacts())[0]]
    is_one = len(having) == 1 and await _acts_on(context, typed, having[0], responder_id)
    return having[0].subject.id if is_one else None


async def _acts_on(context: Context, typed: str, view: RedactedView, responder_id: str) -> bool:
    """Whether the responder can act on all that was typed of this alert, through it or itself."""
    there = await subjects.targets(context.core, view.subject.id)
    responder = next((one for one in there.offered if one.id == responder_id), None)
    fits = {one.id for one in responder.target.artifacts} if responder and responder.target else set[str]()
    fits |= {on for on, able in there.by_artifact.items() if responder and responder.name in able}
    return all(fits & {one.id for one in each} for each in subjects.split_targets(typed, view.artifacts())[1])


@dataclass(frozen=True)
class _Typed:
    """What a command with one object has: the object, and what else it says."""

    object_id: str
    targets: subjects.Targets
    view: RedactedView
    name: str
    """The words that name no object."""
    named: Sequence[Sequence[Artifact]]
    """The observables of an alert that it names, of each all that have this data."""


async def _run(context: Context) -> None:
    """Run it, after asking for inputs that it still needs, and for confirmation if it wants one."""
    text, typed = split_inputs(context.text)
    name, object_ids = split_name_and_ids(text)
    if len(object_ids) > 1 and await _on_several(context, name, object_ids, typed):
        return
    about = await _read(context, *split_name_and_id(" ".join([name, *object_ids])))
    # A name doesn't have the id of another object, though its version may have the same digits.
    responders = [] if find_ids(about.name) else _named(about.name, about.targets.offered)
    if len(responders) > 1:
        asks = questions.ambiguous_name(about.name, responders, about.targets.subject, context.services.command)
        await responses.show(context, "Which one?", asks)
        return
    if not responders:
        responders, typed["target"] = _with_target(about, context.services.command)
    await _on_one(context, about, responders[0], typed)


async def _read(context: Context, name: str, object_id: str) -> _Typed:
    """The object with what of the name are its observables. Raises ResponderBotError: not_found, forbidden."""
    try:
        targets = await subjects.targets(context.core, object_id)
    except ResponderBotError as error:
        then = " Nothing was run." if error.code == "not_found" else ""
        raise ResponderBotError(error.code, f"{error.message}{then}", details=error.details) from error
    view = subjects.require_visible(context, targets.subject)

    def is_all(rest: str, number: int) -> bool:  # else an observable that is called as a responder changes what is run
        return bool(_named(rest, targets.offered)) if number else is_name(rest, targets.offered)

    artifacts = view.artifacts() if view.subject.kind == "alert" else ()
    name, named = subjects.split_targets(name, artifacts, is_all)
    return _Typed(object_id, targets, view, name, named)


def _with_target(about: _Typed, command: str) -> tuple[list[OfferedResponder], str]:
    """The responder that only the first words name, and the others: what it acts on. Raises ResponderBotError."""
    offered, named = about.targets.offered, about.named
    meant, _ = _before_target(" ".join(one for one in about.name.split() if not find_ids(one)), offered)
    if refusal := subjects.no_target(about.name, about.view, command, names.example(meant[0]) if meant else ""):
        refusal.details["nothing_on"] = [] if named else [about.object_id]
        refusal.details["responder"] = meant[0].id if meant else ""
        raise refusal
    responders, words = _before_target(about.name, offered)
    if not responders:
        on = [each[0].data or each[0].id for each in named]
        raise none_called(about.name, offered, about.object_id, command, "run", on)
    return responders, words


async def _on_one(context: Context, about: _Typed, responder: OfferedResponder, typed: dict[str, str]) -> None:
    """Run it on the object, or on its observables that are named: through their alert, or on each itself."""
    targets, view, command = about.targets, about.view, context.services.command
    takes = any(responder.name in targets.by_artifact.get(one.id, ()) for each in about.named for one in each)
    on = _through_alert(responder, about.named)
    if on and not takes:
        typed["target"] = ",".join([*on, *filter(None, [typed.get("target")])])
    elif takes or (about.named and not context.asks):  # else they only say which alert
        artifact_ids = [_one_of(each, responder, targets, command) for each in about.named]
        if len(artifact_ids) > 1 and await _on_several(context, about.name, artifact_ids, typed):
            return
        subject, offered = await subjects.offered(context.core, artifact_ids[0])
        view = subjects.require_visible(context, subject)
        responder = next((r for r in offered if r.id == responder.id), responder)
    elif not responder.can_run and (artifacts := subjects.takers(responder, targets, view)):
        raise subjects.runs_elsewhere(responder, artifacts, view, f"{command} run {names.example(responder)}")
    await _proceed(context, responder, [Target(view, [responder])], typed)


def _through_alert(responder: OfferedResponder, named: Sequence[Sequence[Artifact]]) -> list[str]:
    """What a run on their alert is to act on, if several observables are named, or one that it can act on."""
    fits = {one.id for one in responder.target.artifacts} if responder.can_run and responder.target else set[str]()
    on = list[str]()
    for each in named:
        on += [one.id for one in each if one.id in fits] or [each[0].data or each[0].id]
    return on if len(named) > 1 or fits & {*on} else []


async def _proceed(
    context: Context,
    responder: OfferedResponder,
    targets: Sequence[Target],
    typed: Mapping[str, str],
    without: str = "",
) -> None:
    """Run it with the inputs that are typed, or show what comes before; `without` says which objects are left out."""
    objects = tuple(run_target(one.view.subject) for one in worst_first(targets))
    request = RunRequest(objects, responder.id, channel=context.channel, without=without)
    # `target=` says what it is to act on, unless that is an input's name.
    if "target" in typed and responder.can_run and inputs.called(responder.parameters or (), "target") is None:
        request = with_typed_target(request, targets, typed["target"], names.title(responder))
        typed = {name: text for name, text in typed.items() if name != "target"}
    request = request.with_typed(responder, typed)
    is_complete = bool(responder.parameters) and not inputs.missing(responder.parameters or (), request.parameters)
    await flow.proceed(context, request, responder, targets, is_complete=is_complete)


async def _on_several(context: Context, name: str, object_ids: Sequence[str], typed: Mapping[str, str]) -> bool:
    """Ask to confirm the runs on several objects, if a command names them; False for one, or one and its observable."""
    require_few(object_ids)
    found = await find_targets(context, object_ids)
    first = found[object_ids[0]].view.subject if object_ids[0] in found else None
    is_part = first is not None and first.kind != "case_artifact" and first.part(object_ids[1]) is not None
    if len(object_ids) == 2 and (is_part or len(found) == 1):
        return False  # an alert and its observable, or what isn't there, as with one id
    if not found:
        raise ResponderBotError("not_found", f"You may see none of these {len(object_ids)} targets. Nothing was run.")
    responder, words = _meant(name, offered_on(found.values()), object_ids[0], context.services.command)
    if words and (responder.target is not None or not context.asks):  # else they only say which alerts
        typed = {"target": words, **typed}
    without = some_of([one for one in object_ids if one not in found], MOST_NAMED)
    without = without and f"Left out: {without}, where you see nothing."
    await _proceed(context, responder, [*found.values()], typed, without)
    return True


def _meant(
    name: str, offered: Sequence[OfferedResponder], object_id: str, command: str
) -> tuple[OfferedResponder, str]:
    """The responder for one of several objects, and the words behind its name. Raises ResponderBotError."""
    called = _named(name, offered)
    responders, words = (called, "") if called else _before_target(name, offered)
    if not responders:
        raise none_called(name, offered, object_id, command, "run")
    if len(responders) > 1:
        which = ", ".join(names.title(item) for item in responders[:10])
        raise ResponderBotError("bad_request", f"{name[:100]!r} may be {which}. Type more of the name.")
    return responders[0], words


def _one_of(named: Sequence[Artifact], responder: OfferedResponder, targets: subjects.Targets, command: str) -> str:
    """The id of the artifact that is meant, of several with the same data the one that the responder takes."""
    candidates = [one for one in named if responder.name in targets.by_artifact.get(one.id, ())] or [*named]
    if len(candidates) == 1:
        return candidates[0].id
    each = ", ".join(f"{artifact.data_type} ({artifact.id})" for artifact in candidates[:10])
    example = f"{command} run {names.example(responder)} {candidates[0].id}"
    raise ResponderBotError("bad_request", f"{len(candidates)} observables have this data: {each}. Type `{example}`.")


def _named(name: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """The responders that a typed name, title or id may mean."""
    exact = [r for r in offered if name in (r.id, r.name)][:1]
    return exact or matching(name, offered) or matching(re.sub(r"(?i)( on| and| &)+$", "", name), offered)


def _before_target(name: str, offered: Sequence[OfferedResponder]) -> tuple[list[OfferedResponder], str]:
    """The responder that the first words name, and the others, which are none of its name: what it is to act on."""
    words = name.split()
    for end in range(len(words) - 1, 0, -1):
        found, rest = _named(" ".join(words[:end]), offered), " ".join(words[end:])
        if len(found) == 1 and closest(rest, found) is None:
            return found, rest
    return [], ""


def is_name(typed: str, offered: Sequence[OfferedResponder]) -> bool:
    """Whether it is the whole name or title of a responder, but for case and punctuation."""
    return any(same_name(typed, known) for r in offered for known in (r.id, *names.typed_names(r)))


FEATURE = Feature(
    commands={"run": Command(Entry(on_run_command, Ack.WRITE), "run NAME ~id", "run a responder", "manageAction")}
)
