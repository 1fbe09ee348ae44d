"""Choose several objects to run on: observables of an alert or case, or alerts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import MAX_OPTIONS, message_option
from bot.clearance import RedactedView, Subject, refanged
from bot.features import responses, subjects
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import metadata_text, view_of
from bot.features.responders import views as responders
from bot.features.runs.targets import MOST, Target, find_targets, offered_on, run_target, worst_first
from bot.features.runs.views import run_form
from bot.features.runs.views.request import RunRequest
from core.common.errors import ResponderBotError
from core.common.words import count
from core.models import parse_id

GONE = "None of them is there any more for you to see. Nothing was run."


def request_of(context: Context) -> RunRequest:
    """What the modal keeps of the request."""
    return RunRequest.from_text(metadata_text(context))


async def on_several_button(context: Context) -> None:
    """Ask for the observables of an alert or case, or for alerts: first those that a search had found."""
    intent = await responses.clicked_intent(context)
    responses.require_permission(context, "manageAction")
    channel, _, text = intent.argument.partition(" ")
    request, of, options = RunRequest(channel=channel), "Open alerts", list[dict[str, Any]]()
    if intent.what == "several_found":
        options, of = await _found(context, text, MOST), "Alerts found"
    elif intent.what == "several_of_group":
        worst = await context.services.outbox.alert_groups.members(intent.object_id, 0, MOST)
        options, of = await _options(context, [member.root_id for member in worst]), "Alerts of this group"
    elif intent.what == "several":
        subject, of = await subjects.find(context.core, intent.object_id), f"Observables of {intent.object_id}"
        subjects.require_visible(context, subject)
        request = replace(request, targets=(run_target(subject),))
    await responses.open_view(context, run_form.targets_view(request, of, options, MOST), "Try again.")


async def on_alerts_button(context: Context) -> None:
    """Ask for alerts, in place of the run modal's one."""
    responses.require_permission(context, "manageAction")
    view = run_form.targets_view(RunRequest(channel=request_of(context).channel), "Alerts", [], MOST)
    await responses.open_view(context, view, "Try again.")


async def on_target_options(context: Context) -> Json:
    """What can be chosen: visible observables with what is typed; of alerts those of the channel, until one types."""
    request, typed = request_of(context), str(context.payload.get("value") or "")
    if request.targets:
        words = refanged(typed).casefold().split()
        found = [
            view.subject
            for view in await _observables(context, request.targets[0].object_id)
            if all(word in refanged(view.title()).casefold() for word in words)
        ]
        options = run_form.object_options(found[:MAX_OPTIONS], own_clearance(context))
        return {"options": options} if options else message_option("No observable has this text.")
    options = await _alert_options(context, request.channel, typed)
    return {"options": options} if options else message_option("No alert that you may see contains this.")


async def _alert_options(context: Context, channel: str, typed: str) -> list[dict[str, Any]]:
    if not typed.strip():
        newest = await context.services.outbox.alerts_in(channel, MAX_OPTIONS) if channel else ()
        ids_ = newest or [alert.id for alert in (await context.core.open_alerts(""))[:MAX_OPTIONS]]
        if options := await _options(context, ids_):
            return options
    return await _found(context, typed, MAX_OPTIONS)


async def _found(context: Context, text: str, most: int) -> list[dict[str, Any]]:
    """The alerts that show this text to the person."""
    clearance = own_clearance(context)
    alerts = await subjects.search(context.core, text, clearance, most)
    return run_form.object_options(map(Subject.alert, alerts), clearance)


async def _options(context: Context, alert_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Those of these alerts that the person may see."""
    found = [view for view in await subjects.visible_of(context, alert_ids) if view.subject.kind == "alert"]
    return run_form.object_options([view.subject for view in found], own_clearance(context))


async def _observables(context: Context, object_id: str) -> list[RedactedView]:
    """The observables of an alert or case that this person may see."""
    subject, document = await subjects.with_document(context.core, object_id)
    case, artifacts = document.case, (*document.artifacts, *document.other_artifacts)
    own = artifacts if case is not None else subject.artifacts
    parts = {one.id: Subject.artifact(one, case) if case is not None else subject.part(one.id) for one in own}
    shown = [RedactedView(part, own_clearance(context)) for part in parts.values() if part is not None]
    return [view for view in shown if view.is_open]


async def next_view(context: Context, request: RunRequest) -> Json:
    """The next step after the objects: what can run on at least one of them."""
    chosen = modals.chosen(view_of(context), "targets")
    if run_form.EVERY in chosen:
        chosen = [modals.option_value(option) for option in modals.options(view_of(context), "targets")]
    chosen = [one for one in chosen if parse_id(one) is not None]
    if not chosen or len(chosen) > MOST:
        return modals.errors({"targets": f"Choose up to {MOST}."})
    targets = list((await find_targets(context, chosen)).values())
    if not targets:
        return modals.problem(GONE)
    try:
        on = count(len(chosen), "observable" if request.targets else "alert")
        on = on if len(targets) == len(chosen) else f"{len(targets)} of {on}, those that you may see"
        return modals.update(responder_view(request, targets, on))
    except ResponderBotError as error:
        return modals.errors({"targets": error.message})


def responder_view(request: RunRequest, targets: Sequence[Target], on: str) -> dict[str, Any]:
    """Asks for a responder that can run on at least one of these; `on` says on which.

    One whose rate is used has an entry too, before what undoes it: Slack finds "block" in both.
    Raises ResponderBotError("not_found") if there is none.
    """
    offered = offered_on(targets)
    counts = Counter(here.id for target in targets for here in target.offered if here.can_run and not here.open_run)
    now = [(one, counts[one.id] if one.can_run else -1) for one in offered if one.can_run or responders.not_now([one])]
    if not now and any(target.view.subject.kind != "alert" for target in targets):
        raise ResponderBotError("not_found", "No responder can run on any of these now.")
    now.sort(key=lambda pair: (responders.in_order(pair[0])[0], -pair[1], responders.in_order(pair[0])))
    request = replace(request, targets=tuple(run_target(target.view.subject) for target in worst_first(targets)))
    return run_form.responder_view(request, now, on, [target.view for target in targets])


FEATURE = Feature(
    actions={
        ids.SEVERAL: Entry(on_several_button, modal_title=run_form.SEVERAL_TITLE),
        ids.SEVERAL_ALERTS: Entry(on_alerts_button),
    },
    options={ids.SEVERAL_TARGETS: Entry(on_target_options, Ack.RESPONSE)},
)
