"""Choose several observables of an alert or case, or several alerts, and run a responder on them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bot.cards import ids, inputs, names, several, start, undos, views
from bot.cards.lists import MAX_OPTIONS, can_run, message_option, responder_of_option
from bot.cards.message import Block
from bot.cards.several import TITLE
from bot.cards.start import WizardState
from bot.features import bulk, find, responses, run, subjects
from bot.features.access import own_clearance
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.bulk import MOST, Target
from bot.features.payload import view_of
from bot.features.start import chosen_logins
from bot.redaction import RedactedView, Subject, refanged
from core.common.errors import ResponderBotError

GONE = "None of them is there any more for you to see. Nothing was run."


async def on_several_button(context: Context) -> None:
    """Ask for the observables of an alert or case, or for alerts: first those that a search had found."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    responses.require_permission(context, "manageAction")
    place, _, text = intent.argument.partition(" ")
    state, chosen = WizardState(channel=place), list[Block]()
    if intent.what == "several_found":
        clearance = own_clearance(context)
        alerts = (await find.search(context.core, text, clearance))[:MOST]
        chosen = [start.object_option(Subject.alert(alert), clearance) for alert in alerts]
    else:
        subject = await subjects.find(context.core, intent.object_id)
        subjects.require_visible(context, subject)
        state = replace(state, id=subject.id, kind=subject.kind)
    if not await responses.show_view(context, several.targets_view(state, chosen, MOST)):
        raise ResponderBotError("unavailable", "Slack opened no form. Try again.")


async def on_alerts_button(context: Context) -> None:
    """Ask for alerts, in place of the run modal's one."""
    responses.require_permission(context, "manageAction")
    channel = WizardState.from_text(str(view_of(context).get("private_metadata") or "")).channel
    await responses.show_view(context, several.targets_view(WizardState(channel=channel), [], MOST))


async def on_target_options(context: Context) -> Json:
    """What can be chosen: visible observables with what is typed; of alerts those of the channel, until one types."""
    state, typed = _state(context), str(context.payload.get("value") or "")
    if state.id:
        found = await _observables(context, state.id)
        words = refanged(typed).casefold().split()
        options = [
            start.object_option(view.subject, view.clearance)
            for view in found
            if all(word in refanged(view.title()).casefold() for word in words)
        ]
        return {"options": options[:MAX_OPTIONS]} if options else message_option("No observable has this text.")
    options = await _alert_options(context, state.channel, typed)
    return {"options": options} if options else message_option("No alert that you may see has this text.")


async def _alert_options(context: Context, channel: str, typed: str) -> list[dict[str, Any]]:
    clearance = own_clearance(context)
    if not typed.strip():
        newest = await context.services.outbox.alerts_in(channel, MAX_OPTIONS)
        found = (await bulk.find_targets(context, newest, responders=False)).values() if newest else ()
        if shown := [one.view.subject for one in found if one.view.subject.kind == "alert"]:
            return [start.object_option(subject, clearance) for subject in shown]
    alerts = await find.search(context.core, typed, clearance)
    return [start.object_option(Subject.alert(alert), clearance) for alert in alerts[:MAX_OPTIONS]]


async def _observables(context: Context, object_id: str) -> list[RedactedView]:
    """The observables of an alert or case that this person may see."""
    subject, document = await subjects.with_document(context.core, object_id)
    case = document.case
    if case is not None:
        found = {one.id: Subject.artifact(one, case) for one in (*document.artifacts, *document.other_artifacts)}
    else:
        found = {one.id: part for one in subject.artifacts if (part := subject.part(one.id)) is not None}
    shown = [RedactedView(part, own_clearance(context)) for part in found.values()]
    return [view for view in shown if view.is_open]


async def on_several_view(context: Context) -> Json:
    """Handle Next: from the objects to a responder, to its inputs, to the question."""
    view, state = view_of(context), _state(context)
    wanted = state.targets or [one for one in views.chosen(view, "targets") if subjects.OBJECT_ID.fullmatch(one)]
    if not wanted or len(wanted) > MOST:
        return views.errors({"targets": f"Choose up to {MOST}."})
    targets = list((await bulk.find_targets(context, wanted)).values())
    if not targets:
        return views.problem(GONE)
    if not state.targets:
        return _with_responders(state, targets)
    offered = bulk.offered_on(targets)
    responder = responder_of_option(offered, state.responder or views.values(view).get("responder", ""))
    if responder is None:
        return views.problem("That responder is no longer on offer for them; choose again.")
    asks = bool(responder.parameters) or run.is_timed(responder)
    if asks and not several.is_asked(view, state, responder):
        return views.update(await run.inputs_of_several(context, state, responder, {}))
    declared, values = responder.parameters or (), dict[str, Any]()
    if declared:
        values, problems = inputs.submitted(view, declared, state.responder)
        problems |= await chosen_logins(context, declared, values, state.responder)
        if problems:
            return views.errors(problems)
        values = {**state.kept, **values}
    minutes = undos.minutes_of(views.values(view).get(start.undo_block(state.responder), ""))
    on = bulk.on_so_many(len(targets), len(wanted))
    asked = await bulk.question(
        context, responder, targets, on, channel=state.channel, parameters=values, undo_after_minutes=minutes
    )
    return views.update(views.message_view(bulk.TITLE, asked))


def _with_responders(state: WizardState, targets: Sequence[Target]) -> Json:
    """The modal's next step: what can run on at least one of them."""
    counts = {
        one.id: sum(can_run(here) for target in targets for here in target.offered if here.id == one.id)
        for one in bulk.offered_on(targets)
    }
    found = [(one, counts[one.id]) for one in bulk.offered_on(targets) if counts[one.id]]
    if not found:
        return views.errors({"targets": "No responder can run on any of these now."})
    found.sort(key=lambda pair: (-pair[1], names.title(pair[0]).casefold()))
    first = targets[0].view.subject
    ids_ = tuple(target.view.subject.id for target in targets)
    return views.update(several.responder_view(replace(state, id=first.id, kind=first.kind, targets=ids_), found))


def _state(context: Context) -> WizardState:
    return WizardState.from_text(str(view_of(context).get("private_metadata") or ""))


FEATURE = Feature(
    actions={
        ids.SEVERAL: Entry(on_several_button, modal_title=TITLE),
        ids.SEVERAL_ALERTS: Entry(on_alerts_button),
    },
    options={ids.SEVERAL_TARGETS: Entry(on_target_options, Ack.ANSWER)},
    views={ids.SEVERAL_VIEW: Entry(on_several_view, Ack.ANSWER)},
)
