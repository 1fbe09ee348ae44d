"""The modals that lead to a run: from the command alone, the shortcuts, and buttons for inputs or several objects."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import MAX_OPTIONS, message_option
from bot.block_kit.text import escape
from bot.clearance import RedactedView, Subject, refanged, view_of_all
from bot.features import responses, subjects
from bot.features.authorization import own_clearance, who_else_may_see
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import find_ids, parse_id
from bot.features.payload import metadata_text, selected_value, view_of
from bot.features.responders.views import in_order, not_now, responder_of_option, target_of_option
from bot.features.runs import flow, parameters
from bot.features.runs.targets import (
    MOST,
    Target,
    ends_or_stays,
    find_targets,
    load,
    offered_on,
    only_ticked,
    run_target,
    to_choose,
    worst_first,
)
from bot.features.runs.views import acts_on, inputs, run_form, runs
from bot.features.runs.views.request import RunRequest
from core.common.errors import Ignoring, ResponderBotError
from core.common.words import count
from core.models import OfferedResponder

LOOKUP_LIMIT = 5  # ids in a message that are looked up
GONE = "None of them is there any more for you to see. Nothing was run."


def request_of(context: Context) -> RunRequest:
    """What the modal keeps of the request."""
    return RunRequest.from_text(metadata_text(context))


async def on_start_command(context: Context) -> None:
    """Open the run modal, for `/responder` alone and for the global shortcut."""
    responses.require_permission(context, "manageAction")
    request = RunRequest(channel=context.channel)
    await context.show_modal(run_form.start_view(request, None, clearance=own_clearance(context)))


async def on_message_shortcut(context: Context) -> None:
    """Open the run modal for the object that a message is about; works in threads, where commands don't."""
    responses.require_permission(context, "manageAction")
    await context.show_modal(modals.loading(run_form.TITLE))
    message = context.payload.get("message")
    timestamps = [str(message.get(key) or "") for key in ("ts", "thread_ts")] if isinstance(message, Mapping) else []
    object_ids = [*await responses.roots_at(context, *timestamps), *find_ids(" ".join(_texts(message)))]
    await context.show_modal(await _view_of_known(context, list(dict.fromkeys(object_ids))))


def _texts(value: Any) -> Iterator[str]:
    """Every text in a message: its own, and those of its blocks and attachments."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("text", "fallback", "title", "url") and isinstance(item, str):
                yield item
            else:
                yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


async def _view_of_known(context: Context, object_ids: list[str]) -> dict[str, Any]:
    """The modal for the one of these ids that core knows, or asking which of them; a notice if core is down."""
    try:
        known = await _known(context, object_ids[:LOOKUP_LIMIT])
    except ResponderBotError as error:
        return modals.notice("Not now", escape(notices.sentence(error)))
    clearance, request = own_clearance(context), RunRequest(channel=context.channel)
    if len(known) == 1:
        return await _start_view(context, _on(request, known[0]), known[0])
    choices = run_form.object_options(known, clearance)
    return run_form.start_view(request, None, clearance=clearance, choices=choices)


async def _known(context: Context, object_ids: Iterable[str]) -> list[Subject]:
    known: list[Subject] = []
    for object_id in object_ids:
        with Ignoring("not_found"):
            known.append(await subjects.find(context.core, object_id))
    return known


# --- options and fields ---------------------------------------------------------------------------------------------


async def on_object_options(context: Context) -> Json:
    """Alerts for what is typed, newest first; an id also finds a case, task, log or observable."""
    if str(context.payload.get("block_id") or "").startswith(inputs.PREFIX):
        return await _input_options(context)
    typed, clearance = str(context.payload.get("value") or ""), own_clearance(context)
    by_id = await _known(context, [object_id] if (object_id := parse_id(typed)) else [])
    alerts = await subjects.search(context.core, typed, clearance, MAX_OPTIONS)
    matches = {subject.id: subject for subject in [*by_id, *map(Subject.alert, alerts)]}
    if not matches:
        return message_option("No alert that you may see contains this.")
    return {"options": run_form.object_options([*matches.values()][:MAX_OPTIONS], clearance)}


async def _input_options(context: Context) -> Json:
    """The options of an input that has too many for the modal itself."""
    request, name = request_of(context), str(context.payload.get("block_id") or "").rpartition(":")[2]
    responder, _ = await flow.offered(context, request)
    parameter = next((candidate for candidate in responder.parameters or () if candidate.name == name), None)
    if parameter is None:
        return message_option("This input is no longer there; close this and start again.")
    return {"options": inputs.options_of(parameter, str(context.payload.get("value") or ""))[:MAX_OPTIONS]}


async def on_object_field(context: Context) -> None:
    """Show the object that was chosen, and its menu of responders."""
    subject = await _typed_subject(context, modals.values(view_of(context)).get("object", ""))
    await _update(context, await _start_view(context, _on(request_of(context), subject), subject))


async def on_responder_field(context: Context) -> None:
    """Show the inputs of the responder that was chosen, and what its policy says."""
    request, selected = request_of(context), selected_value(context)
    if run_form.RESPONDER in modals.labels(view_of(context)):
        await _show_several(context, request, selected)
        return
    object_id = target_of_option(selected)[0] or (request.targets[0].object_id if request.targets else "")
    subject, offered = await subjects.offered(context.core, object_id)
    responder = responder_of_option(offered, selected)
    if responder is not None and responder.can_run:
        subjects.require_visible(context, subject)
        await _update(context, await _start_view(context, _on(request, subject), subject, responder))


async def _show_several(context: Context, request: RunRequest, selected: str) -> None:
    """Show the form of the responder that was chosen for these objects."""
    targets = await load(context, [target.object_id for target in request.targets])
    responder = responder_of_option(offered_on(targets), selected)
    if responder is not None:
        await _update(context, await _form(context, request, targets, responder))


async def _form(
    context: Context, request: RunRequest, targets: Sequence[Target], responder: OfferedResponder
) -> dict[str, Any]:
    """The form of this responder, in place of the modal that shows another, or none."""
    if request.responder_id != responder.id:
        request = replace(request, responder_id=responder.id, parameters={})
    menu = modals.options(view_of(context), run_form.RESPONDER)
    return await parameters.form_view(context, request, responder, targets, menu=menu)


async def _update(context: Context, shown: Json) -> None:
    view = view_of(context)
    view_id, state = str(view.get("id")), str(view.get("hash") or "")
    await context.services.slack.views_update(view_id=view_id, hash=state, view=context.opened_here(shown))


async def _start_view(
    context: Context, request: RunRequest, subject: Subject, responder: OfferedResponder | None = None
) -> dict[str, Any]:
    """The modal for this object, with the inputs of this responder."""
    clearance = own_clearance(context)
    choices = modals.options(view_of(context), "object")
    who = await who_else_may_see(context, subject.tlp)
    start_view = partial(run_form.start_view, clearance=clearance, choices=choices, who=who, login=context.person.login)
    if responder is None:
        return start_view(request, subject)
    request = replace(request, responder_id=responder.id, parameters={})
    view = RedactedView(subject, clearance)
    form, logins = await parameters.form_of(context, request, responder, view)
    request = request.keeping(logins)
    targets = [Target(view, [responder])]
    asked = to_choose(request, targets)
    already = await ends_or_stays(context, request, responder, targets)
    request = parameters.beside_what_waits(request, responder, already, asked)
    return start_view(request, subject, responder=responder, form=form, to_choose=asked, in_force=already)


# --- several objects: observables of an alert or case, or alerts ----------------------------------------------------


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


async def _next_view(context: Context, request: RunRequest) -> Json:
    """The next step after the objects: what can run on at least one of them."""
    chosen = modals.chosen(view_of(context), "targets")
    if run_form.EVERY in chosen:
        chosen = [modals.option_value(option) for option in modals.options(view_of(context), "targets")]
    chosen = [one for one in chosen if parse_id(one) == one]
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
    now = [(one, counts[one.id] if one.can_run else -1) for one in offered if one.can_run or not_now([one])]
    if not now and any(target.view.subject.kind != "alert" for target in targets):
        raise ResponderBotError("not_found", "No responder can run on any of these now.")
    now.sort(key=lambda pair: (in_order(pair[0])[0], -pair[1], in_order(pair[0])))
    request = replace(request, targets=tuple(run_target(target.view.subject) for target in worst_first(targets)))
    return run_form.responder_view(request, now, on, [target.view for target in targets])


# --- submissions ----------------------------------------------------------------------------------------------------


async def on_run_view(context: Context) -> Json | None:
    """Handle Next, Run and Run anyway: from the objects to a responder, to its form, to the run.

    Core checks each step again, since what the modal keeps comes from the client.
    """
    view, request = view_of(context), request_of(context)
    blocks = modals.labels(view)
    if "targets" in blocks:
        return await _next_view(context, request)
    if "object" in blocks:
        return await _object_chosen(context, request)
    if not request.targets:
        return modals.problem("This form is out of date. Close it and start again.")
    targets = await load(context, [target.object_id for target in request.targets])
    if not targets:
        return modals.problem(GONE)
    offered = offered_on(targets)
    responder = next((candidate for candidate in offered if candidate.id == request.responder_id), None)
    if run_form.RESPONDER in blocks:
        responder = responder_of_option(offered, modals.values(view).get(run_form.RESPONDER, ""))
    return await _submitted(context, request, targets, responder)


async def _object_chosen(context: Context, request: RunRequest) -> Json | None:
    """The next step after an object, and perhaps a responder and its inputs."""
    values = modals.values(view_of(context))
    try:
        subject = await _typed_subject(context, values.get("object", ""))
    except ResponderBotError as error:
        if error.code not in ("bad_request", "not_found"):
            raise
        return modals.errors({"object": error.message})
    request = _on(request, subject)
    selected = values.get(f"responder:{subject.id}", "")
    if not selected:
        return modals.update(await _start_view(context, request, subject))
    targets = await load(context, [target_of_option(selected)[0] or subject.id])
    request = _on(request, targets[0].view.subject)
    return await _submitted(context, request, targets, responder_of_option(targets[0].offered, selected))


async def _submitted(
    context: Context, request: RunRequest, targets: Sequence[Target], responder: OfferedResponder | None
) -> Json | None:
    """Run it, or show the form with what is lacking."""
    view, modal = targets[0].view, view_of(context)
    if responder is None:
        text, menu = "That responder is no longer available; choose again.", f"responder:{view.subject.id}"
        return modals.errors({menu: text}) if menu in modals.values(modal) else modals.problem(text)
    if not responder.can_run and request.override_reason is None and not request.is_several:
        refusal = await flow.refusal(context, request, responder, view)
        return modals.update(modals.message_view(flow.CANNOT, refusal))
    choices = to_choose(request, targets, responder.id)
    if not run_form.is_shown(modal, request, responder, choices):
        if "object" in modals.labels(modal):
            return modals.update(await _start_view(context, request, view.subject, responder))
        return modals.update(await _form(context, request, targets, responder))
    of_all = view_of_all([one.view for one in targets])
    request, problems = await parameters.submitted(context, request, responder, of_all, modal)
    is_several = request.is_several
    request, unticked = only_ticked(modal, request, responder, targets)
    request, more = acts_on.submitted(modal, request, choices, inputs.key_of(responder))
    if wrong := {**problems, **unticked, **more}:
        return modals.errors(wrong)
    request = replace(request, responder_id=responder.id)
    if is_several:
        return await _start_several(context, request, targets, responder)
    if choices and responder.policy.is_undo:  # all that ends on what was chosen
        return modals.update(await _form(context, request, targets, responder))
    return await _start(context, request, responder, view)


async def _start_several(
    context: Context, request: RunRequest, targets: Sequence[Target], responder: OfferedResponder
) -> Json:
    try:
        title, message = await flow.start_several(context, request, context.idempotency_key, responder, targets)
    except ResponderBotError as error:
        return _core_error(view_of(context), responder, error)
    return modals.update(modals.message_view(title, message))


async def _start(context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView) -> Json:
    targets = [Target(view)]
    if request.anyway and await _is_other_by_now(context, request, responder, targets):
        shown = await parameters.form_view(context, request, responder, targets)
        return modals.update({**shown, "blocks": [*notices.changed(), *shown["blocks"]]})
    # A key of its own: core refuses a key with another body, and a modal keeps its view id when it asks again.
    key = f"{context.idempotency_key}-anyway" if request.anyway else context.idempotency_key
    try:
        action = await flow.create_action(context, request, key, responder, view)
    except ResponderBotError as error:
        running = flow.open_action(error)
        if running is None:
            return _core_error(view_of(context), responder, error)
        request = replace(request, anyway=running.id)
        return modals.update(await parameters.form_view(context, request, responder, targets, running))
    await responses.refresh_cards(context, view.subject)
    message = await flow.started_message(context, names.titled_by(action, responder), view)
    return modals.update(modals.message_view(flow.started_title(action), message))


async def _is_other_by_now(
    context: Context, request: RunRequest, responder: OfferedResponder, targets: Sequence[Target]
) -> bool:
    """Whether the run beside which somebody asked for another has ended, or a newer one waits."""
    if not runs.is_open(await context.core.action(request.anyway)):
        return True
    found = await ends_or_stays(context, request, responder, targets)
    return parameters.beside_what_waits(request, responder, found).anyway not in ("", request.anyway)


def _core_error(view: Mapping[str, Any], responder: OfferedResponder, error: ResponderBotError) -> Json:
    """Core's errors at the fields that they are about, of a rule at the target or the last; as a view without one."""
    if error.code == "key_reused":  # Slack didn't get the answer to an earlier submission
        return modals.problem("A run was started from this form already, with other inputs; its card shows it.")
    key = inputs.key_of(responder)
    problems = {
        inputs.block_id(key, str(entry.get("name")).removeprefix("parameters.")): _field_error(entry)
        for entry in error.fields
    }
    if error.code == "invalid_fields" and problems and problems.keys() <= modals.labels(view).keys():
        return modals.errors(problems)
    fields = [block for block, label in modals.labels(view).items() if label]
    if "rule" in error.details and "until" not in error.details and fields:  # a field shows no time in one's own zone
        chosen = [block for block in fields if block.startswith("target:")]
        return modals.errors({[*fields, *chosen][-1]: notices.sentence(error)})
    return modals.problem(notices.sentence(error))


def _field_error(entry: Mapping[str, Any]) -> str:
    expected = str(entry.get("format") or "")
    return f"This should be {expected}." if expected else "This is needed."


def _on(request: RunRequest, subject: Subject) -> RunRequest:
    """The request for this object; that for another one forgets the responder."""
    if [known.object_id for known in request.targets] == [subject.id]:
        return request
    return replace(request, targets=(run_target(subject),), responder_id="", parameters={})


async def _typed_subject(context: Context, typed: str) -> Subject:
    object_id = parse_id(typed.strip()) or next(iter(find_ids(typed)), None)
    if object_id is None:
        raise ResponderBotError("bad_request", "Choose an alert.")
    return await subjects.find(context.core, object_id)


FEATURE = Feature(
    commands={
        "start": Command(
            Entry(on_start_command, modal_title=run_form.TITLE),
            "start",
            "a form that asks what to run on what",
            "manageAction",
        )
    },
    actions={
        ids.VALUE: Entry(on_object_field),
        ids.START_RESPONDER: Entry(on_responder_field),
        ids.SEVERAL: Entry(on_several_button, modal_title=run_form.SEVERAL_TITLE),
        ids.SEVERAL_ALERTS: Entry(on_alerts_button),
    },
    options={
        ids.VALUE: Entry(on_object_options, Ack.RESPONSE),
        ids.SEVERAL_TARGETS: Entry(on_target_options, Ack.RESPONSE),
    },
    views={ids.START_VIEW: Entry(on_run_view, Ack.RESPONSE), ids.SEVERAL_VIEW: Entry(on_run_view, Ack.RESPONSE)},
    shortcuts={
        ids.RUN_SHORTCUT: Entry(on_start_command, modal_title=run_form.TITLE),
        ids.RUN_MESSAGE_SHORTCUT: Entry(on_message_shortcut, modal_title=run_form.TITLE),
    },
)
