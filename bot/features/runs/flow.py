"""From a request to a run: why it can't run, the form that asks for its inputs or to confirm it, the start."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from bot.block_kit import names, notices
from bot.block_kit.names import title
from bot.clearance import SHARED, RedactedView, Subject
from bot.features import responses, subjects
from bot.features.authorization import own_clearance, who_may_override
from bot.features.base import Context
from bot.features.payload import clicked_element, is_ephemeral, is_in_modal
from bot.features.responders.views import is_for_alerts, lifted, shown_reasons, with_names
from bot.features.retries import until_answered
from bot.features.runs import parameters
from bot.features.runs.targets import (
    Target,
    find_targets,
    in_force_already,
    load,
    to_choose,
    used_by,
)
from bot.features.runs.views import acts_on, questions, runs
from bot.features.runs.views.request import RunRequest
from bot.features.runs.views.undo_state import Able, for_how_long
from bot.message import Message
from bot.outbox.models import BULK, BULK_TOLD, BULK_UNDONE, RefreshRequest, bulk_key
from core.common.errors import ResponderBotError
from core.models import Action, Bulk, BulkAnswer, BulkEntry, OfferedResponder

CANNOT = "Can't run"
UNKNOWN = "The runs may have started: the responder service stopped answering. Click again; nothing runs twice."


async def proceed(
    context: Context,
    request: RunRequest,
    responder: OfferedResponder,
    targets: Sequence[Target],
    *,
    is_complete: bool = False,
) -> bool:
    """Start the run, or show what comes before it: why it can't run, or its form. True if it started.

    `is_complete`: the inputs are those that the person wants to give. One that is left of several objects has the form
    of several.
    """
    responses.require_permission(context, "manageAction")
    view, is_one = targets[0].view, len(request.targets) == 1
    if is_one:
        responder = responder.on(request.targets[0].target)
        if not responder.can_run:
            await responses.show(context, CANNOT, await refusal(context, request, responder, view))
            return False
    needs_form = to_choose(request, targets) or _needs_form(context, request, responder, is_complete=is_complete)
    if request.without or not is_one or needs_form:
        await show_form(context, request, responder, targets)
        return False
    return await start(context, request, responder, view)


def _needs_form(context: Context, request: RunRequest, responder: OfferedResponder, *, is_complete: bool) -> bool:
    """Whether its form comes before a run: somebody is to give its inputs, or how long it lasts, or to confirm it."""
    if not is_complete and (responder.parameters or responder.is_timed):
        return True
    policy = responder.policy
    # Somebody else may have given its inputs, or denied it.
    is_repeated = bool(request.again and (request.parameters or policy.approval)) or context.asks
    return is_repeated or questions.is_confirmed(policy)


async def refusal(context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView) -> Message:
    """Why the run can't start, what is in force already, and what this person may do."""
    may_override = context.person.profile == "org-admin" and responder.can_be_overridden
    may_make_case = responder.lacks == ["case"] and "manageCase" in context.person.permissions
    asks = responder.can_be_overridden and not may_override
    who = await who_may_override(context, view.subject.clearance) if asks else "you"
    then = [*filter(None, [await used_by(context, responder)]), *lifted(responder, who)]
    known = await _through_alert(context, responder, view.subject)
    why = shown_reasons(known, view, 1500, is_short=True)
    refused = partial(questions.cannot_run, request, responder, view, why, then=then)
    already = await in_force_already(context, acts_on.by_object(request.targets, responder), responder)
    run, of_case = f"{context.services.command} run {title(responder)}", is_for_alerts(responder, view.subject)
    instead = [f"{run} {alert_id}" for alert_id in view.subject.alert_ids[:3] if of_case]
    render = partial(refused, in_force=already, instead=instead, may_override=may_override, may_make_case=may_make_case)
    return await responses.with_buttons(context, f"cannot:{view.subject.id}:{responder.id}", render)


async def _through_alert(context: Context, responder: OfferedResponder, subject: Subject) -> OfferedResponder:
    """The responder with what it acts on through the alert of this artifact, if it does."""
    if subject.kind != "case_artifact" or responder.target is not None or subject.alert_ids:
        return responder
    _, offered = await subjects.offered(context.core, subject.root_id)
    target = next((one.target for one in offered if one.id == responder.id and one.can_run), None)
    return responder.model_copy(update={"target": target})


async def show_form(
    context: Context,
    request: RunRequest,
    responder: OfferedResponder,
    targets: Sequence[Target],
    running: Action | None = None,
) -> None:
    """Show its form: what it acts on and does, and its inputs as fields; if it already runs, that too."""
    shown = await parameters.form_view(context, request, responder, targets, running)
    await responses.open_view(context, shown, "Nothing was run; ask again.")


def as_before(
    request: RunRequest, previous: Action | Bulk, responder: OfferedResponder, view: RedactedView, minutes: int | None
) -> RunRequest:
    """The request with the inputs, the note and the time (if it had one) of what it repeats.

    Raises ResponderBotError("conflict") if it can't have those inputs.
    """
    if not responder.parameters and runs.withheld_inputs(previous, view):  # a form asks for these again
        raise ResponderBotError(
            "conflict",
            f"{title(responder)} can't be repeated: its inputs had a secret, which isn't kept, or you may not "
            "see all of them. Nothing was run. Run it with new inputs.",
        )
    values, note = {} if responder.parameters else runs.given_inputs(previous), runs.note_again(previous, view)
    minutes = minutes if responder.policy.undo else None
    return replace(request, responder_id=responder.id, parameters=values, undo_after_minutes=minutes, note=note)


# --- start ----------------------------------------------------------------------------------------------------------


async def start(context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView) -> bool:
    """Have core start the run, and say so; core checks it all. Returns whether it started.

    If the same responder is open on the object, show that run.
    """
    try:
        action = await create_action(context, request, context.idempotency_key, responder, view)
    except ResponderBotError as error:
        running = open_action(error)
        if running is None:
            raise
        await show_form(context, replace(request, anyway=running.id), responder, [Target(view)], running)
        return False
    await responses.refresh_cards(context, view.subject)
    await _confirm_start(context, names.titled_by(action, responder), view)
    return True


async def create_action(
    context: Context, request: RunRequest, key: str, responder: OfferedResponder, view: RedactedView
) -> Action:
    """Have core start the run, once for each `key`. Raises ResponderBotError; a rule's names what this person may see.

    If core's answer is lost, such as when core is killed, ask again under the same Idempotency-Key, which starts
    nothing twice.
    """
    body = request.run_input()
    name, command = title(responder)[:100], context.services.command
    unknown = (
        f"{name} may have started on {body.object_id}: the responder service stopped answering. Before you ask "
        f"again, see what ran with {command} actions {body.object_id}."
    )
    try:
        return await until_answered(lambda: context.core.run(body, idempotency_key=key), unknown)
    except ResponderBotError as error:
        if "rule" not in error.details:
            raise
        named = error.message.replace(responder.name, title(responder))
        sentence = view.text(with_names(named.replace(" can't run:", f" can't run on {runs.target(view)}:", 1), view))
        raise ResponderBotError(error.code, f"{sentence} Nothing was run.", details=error.details) from error


def open_action(error: ResponderBotError) -> Action | None:
    """The open action that kept core from starting the same one (`onlyIfIdle`); None for other errors."""
    action = error.details.get("action") if error.code == "conflict" else None
    return None if action is None else Action.model_validate(action)


async def offered(context: Context, request: RunRequest) -> tuple[OfferedResponder, Sequence[Target]]:
    """The responder and the targets as they are now. Raises ResponderBotError if they are gone or not visible."""
    targets = await load(context, [target.object_id for target in request.targets])
    responder = next((here for one in targets if (here := one.responder(request.responder_id))), None)
    if responder is None:
        on = ", ".join(target.object_id for target in request.targets[:3])
        raise ResponderBotError("not_found", f"{request.responder_id} is no longer available for {on}.")
    return responder if len(request.targets) > 1 else responder.on(request.targets[0].target), targets


async def _confirm_start(context: Context, action: Action, view: RedactedView) -> None:
    """Say that it was started, unless its line on the clicked card already does."""
    is_shown = bool(clicked_element(context.payload)) and not is_ephemeral(context) and not is_in_modal(context)
    if runs.awaits_approval(action) or not is_shown:
        await responses.respond(context, await started_message(context, action, view), started_title(action))


def started_title(action: Action) -> str:
    return "Asked" if runs.awaits_approval(action) else "Started"


async def started_message(context: Context, action: Action, view: RedactedView) -> Message:
    """Says that the action runs or has ended already, or who may approve it until when, with Withdraw."""
    run = runs.heading(action, view)
    if runs.awaits_approval(action):
        asked = partial(questions.asked, action, view, await able_to_decide(context, (action, view)))
        return await responses.with_buttons(context, f"asked:{action.id}", asked)
    if not runs.is_open(action):
        return notices.notice(f"{run} {runs.state(action)}.")
    link = (await subjects.card_links(context, [view.subject.root_id]))[view.subject.root_id]
    tells = f"{f'<{link}|Its card>' if link else 'Its card'} and thread tell"
    if view.subject.alert_ids:
        tells = f"The case's card, in the thread of {view.subject.alert_ids[0]}, tells"
    return notices.notice(f"Started {run}{for_how_long(action)}. {tells} how it goes.")


async def able_to_decide(context: Context, *waiting: tuple[Action, RedactedView]) -> Able:
    """Who may approve what waits, or a part of it, and whether they are asked; nobody where core doesn't answer now."""
    with suppress(ResponderBotError):
        able, are_asked = await subjects.deciders(context.core, *(run.id for run, _ in waiting))
        on_each = [(runs.distinct_targets([one]), able.get(one[0].id, ())) for one in waiting]
        return Able.on(on_each, are_asked=are_asked)
    return Able()


async def start_several(
    context: Context, request: RunRequest, key: str, responder: OfferedResponder, targets: Sequence[Target]
) -> tuple[str, Message]:
    """Have core start the runs, once for each `key`. Returns what says so, and its title."""
    body = request.bulk_input()
    response = await until_answered(lambda: context.core.run_bulk(body, key), UNKNOWN)
    accepted = _accepted(context, response, responder, targets)
    waiting = [one for one in accepted if runs.awaits_approval(one[0])]
    destination = _destination(context, request.channel, is_waiting=bool(waiting))
    if destination:
        context.refresh_requests.append(RefreshRequest(bulk_key(response.id, destination)))
    if request.is_bulk:
        await _refresh_messages_on(context, request.again)
    where = "A direct message" if waiting else "Your Home, opened again," if accepted else ""
    if destination:
        where = f"One message in <#{destination}>" if destination == request.channel else "A direct message"
    listed = waiting or accepted
    able = await able_to_decide(context, *waiting)
    asked = {one.object_id for one in request.targets}
    left_out = [one.view for one in targets if one.view.subject.id not in asked]
    render = partial(questions.outcome, await masked(context, response), listed, able, where, request.without, left_out)
    told = await responses.with_buttons(context, f"asked:{response.id}", render)
    return started_title(listed[0][0]) if listed else CANNOT, told


def _accepted(
    context: Context, response: BulkAnswer, responder: OfferedResponder, targets: Sequence[Target]
) -> list[tuple[Action, RedactedView]]:
    """The runs that wait or were started, each with what this person may see of its object."""
    views, clearance = {one.view.subject.id: one.view for one in targets}, own_clearance(context)
    started = [names.titled_by(entry.action, responder) for entry in response.actions if entry.action is not None]
    return [(run, views.get(run.object_id) or RedactedView(Subject.of_action(run), clearance)) for run in started]


def _destination(context: Context, channel: str, *, is_waiting: bool) -> str:
    """Where a message tells how several runs go: the channel, or the `TEAM:USER` who asked there; "" for nowhere."""
    if not channel:  # in Home nobody is rung for what they start
        return ""
    if context.services.clearance(channel) not in (None, SHARED):
        return channel
    return "" if is_waiting else f"{context.team}:{context.user}"


async def _refresh_messages_on(context: Context, bulk_id: str) -> None:
    """Have what tells of a bulk say that it is repeated."""
    for kind in (BULK, BULK_TOLD, BULK_UNDONE):
        found = await context.services.outbox.messages_named(f"{kind}:{bulk_id}:")
        context.refresh_requests.extend(RefreshRequest(one.key) for one in found)


async def masked(
    context: Context, response: BulkAnswer, listed: Sequence[tuple[Action, RedactedView]] = ()
) -> BulkAnswer:
    """The answer, the most severe first, with each object as this person reads it, with the target of a `listed` run.

    What they may not see is masked in core's reasons, such as an artifact that is protected.
    """
    decided = {entry.action.id for entry in response.actions if entry.action}
    left = [(run, view) for run, view in listed if run.id not in decided and runs.awaits_decision(run)]
    refused = [entry.object_id for entry in response.actions if entry.action is None]
    found = await find_targets(context, refused, responders=False)
    views = {object_id: target.view for object_id, target in found.items()}
    views |= {run.object_id: view for run, view in left}
    worst = {on: -view.subject.severity for on, view in views.items()}
    own = [entry for entry in response.actions if not entry.covered_by]  # the run that covers one names it
    entries = sorted(own, key=lambda entry: worst.get(entry.object_id, 0))
    return response.model_copy(update={"actions": [_masked(one, views.get(one.object_id), left) for one in entries]})


def _masked(entry: BulkEntry, view: RedactedView | None, left: Sequence[tuple[Action, RedactedView]]) -> BulkEntry:
    """The entry as this person reads it, with the target of the run that is `left`; as it is without a view."""
    if view is None:
        return entry
    of = [one for one in left if one[0].object_id == entry.object_id and runs.is_on(one[0], entry.target)]
    on = runs.distinct_targets(of) if of and of[0][0].target else runs.named_targets(entry.target, view)
    message = view.text(with_names(entry.message or "", view))
    return entry.model_copy(update={"object_id": questions.named(view, on), "message": message})
