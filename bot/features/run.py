"""Run a responder: by command, from a menu, by a button. Asks for confirmation, and prevents duplicate runs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.cards import ids, inputs, names, notices, questions, runs, several
from bot.cards import start as start_card
from bot.cards.lists import (
    NOTHING,
    can_be_overridden,
    can_run,
    option_value,
    responder_of_option,
    shown_reasons,
    target_of_option,
)
from bot.cards.message import Message
from bot.cards.start import Given, WizardState
from bot.cards.text import count, foreign, slack_date
from bot.features import bulk, home, responses, subjects
from bot.features.access import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.command_text import (
    closest_match,
    find_ids,
    match_names,
    same_name,
    split_inputs,
    split_name_and_id,
    split_name_and_ids,
)
from bot.features.payload import button_token, clicked_element, is_ephemeral, is_in_modal, selected_value
from bot.features.retries import until_answered
from bot.redaction import RedactedView, Subject
from core.common.errors import ResponderBotError
from core.models import Action, Artifact, BreakGlassInput, OfferedResponder, Parameter, RunInput

USAGE = "run NAME ~id"
MAX_KEPT = 2000  # characters of logins in a modal's metadata, which has 3,000
MAX_PEOPLE = 20  # that are looked up for a form


@dataclass(frozen=True)
class RunRequest:
    """A run that somebody asks for.

    `is_complete`: they gave the inputs that they want to give, if the responder declares any. `confirmed`: they were
    asked for confirmation and gave it. `anyway`: run even if the same run is still open. `repeated` is the action whose
    inputs are used again, `ended` a run that was open when they were asked before.
    """

    subject: Subject
    responder: OfferedResponder
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_complete: bool = False
    confirmed: bool = False
    anyway: bool = False
    repeated: Action | None = None
    ended: Action | None = None
    undo_after_minutes: int | None = None  # None: as the settings say
    glass: str = ""  # why rules are overridden


async def on_run_command(context: Context) -> None:
    """Run the named responder, after asking for inputs that it still needs, and for confirmation if it wants one."""
    text, typed = split_inputs(context.text)
    rest, named_ids = split_name_and_ids(text)
    wanted = list(dict.fromkeys(named_ids))
    if len(wanted) > 1 and await _on_several(context, rest, wanted, typed):
        return
    if len(wanted) < len(named_ids):  # the same id twice
        text = " ".join([rest, *wanted])
    name, object_id = subjects.require_id(replace(context, text=text), USAGE)
    command, targets = context.services.command, await subjects.targets(context.core, object_id)
    view = subjects.require_visible(context, targets.subject)
    named: Sequence[Artifact] = ()
    if not is_name(name, targets.offered):  # else an observable that is called as a responder changes what is run
        name, named = subjects.split_target(name, view)
    # A name doesn't have the id of another object, though its version may have the same digits.
    found = [] if find_ids(name) else _named(name, targets.offered)
    if len(found) > 1:
        shown = questions.ambiguous_name(name, found, targets.subject, command)
        await responses.show(context, "Which one?", shown)
        return
    if not found:
        raise subjects.no_target(name, view, command) or _no_such_responder(
            name, targets.offered, targets.subject, command
        )
    subject, responder = targets.subject, found[0]
    if named:
        subject, offered = await subjects.offered(context.core, _one_of(named, responder, targets, command))
        subjects.require_visible(context, subject)
        responder = next((r for r in offered if r.id == responder.id), responder)
    elif not can_run(responder) and (artifacts := subjects.takers(responder, targets, view)):
        raise subjects.runs_elsewhere(responder, artifacts, view, f"{command} run {names.example(responder)}")
    await start(context, await _typed_request(RunRequest(subject, responder), typed))


async def _on_several(context: Context, name: str, wanted: Sequence[str], typed: Mapping[str, str]) -> bool:
    """Ask to confirm the runs on several objects, if a command names them; False for one, or one and its observable."""
    responses.require_permission(context, "manageAction")
    if len(wanted) > bulk.MOST:
        raise ResponderBotError("bad_request", f"At most {bulk.MOST} objects at once, not {len(wanted)}.")
    targets = list((await bulk.find_targets(context, wanted)).values())
    is_part = any(one.view.subject.part(wanted[1]) for one in targets if one.view.subject.id == wanted[0])
    if len(wanted) == 2 and (is_part or len(targets) == 1):
        return False  # an alert and its observable, or what isn't there, which is told as for one
    if not targets:
        raise ResponderBotError("not_found", f"You may see none of these {len(wanted)} objects. Nothing was run.")
    offered = bulk.offered_on(targets)
    found = _named(name, offered)
    if not found:
        raise _no_such_responder(name, offered, targets[0].view.subject, context.services.command)
    if len(found) > 1:
        which = ", ".join(names.title(one) for one in found[:10])
        raise ResponderBotError("bad_request", f"{name[:100]!r} may be {which}. Type more of the name.")
    request = await _typed_request(RunRequest(targets[0].view.subject, found[0]), typed)
    lacking = inputs.missing(found[0].parameters or (), request.parameters)
    if lacking and can_run(found[0]):
        state = WizardState(
            channel=context.channel,
            id=targets[0].view.subject.id,
            kind=targets[0].view.subject.kind,
            targets=tuple(target.view.subject.id for target in targets),
        )
        if await responses.show_view(context, await inputs_of_several(context, state, found[0], request.parameters)):
            return True
        given = " ".join(f"{one.name}=..." for one in lacking)
        sentence = f"{names.title(found[0])} needs inputs: add {given} to the command. Nothing was run."
        raise ResponderBotError("bad_request", sentence)
    on = bulk.on_so_many(len(targets), len(wanted))
    await bulk.ask(context, found[0], targets, on, channel=context.channel, parameters=request.parameters)
    return True


def _one_of(named: Sequence[Artifact], responder: OfferedResponder, targets: subjects.Targets, command: str) -> str:
    """The id of the artifact that is meant, of several with the same data the one that the responder takes."""
    taken = [one for one in named if responder.name in targets.by_artifact.get(one.id, ())] or list(named)
    if len(taken) == 1:
        return taken[0].id
    each = ", ".join(f"{one.data_type} ({one.id})" for one in taken[:10])
    example = f"{command} run {names.example(responder)} {taken[0].id}"
    raise ResponderBotError("bad_request", f"{len(taken)} observables have this data: {each}. Type `{example}`.")


async def _typed_request(request: RunRequest, typed: Mapping[str, str]) -> RunRequest:
    """The request with the inputs of a command. Raises ResponderBotError with what is wrong with each."""
    declared = request.responder.parameters
    if not declared or not can_run(request.responder):
        return replace(request, parameters=dict(typed))
    values, problems = inputs.take_typed(declared, typed)
    if problems:
        title = names.title(request.responder)
        raise ResponderBotError("bad_request", f"{title} was not run. {' '.join(problems)}")
    return replace(request, parameters=values, is_complete=not inputs.missing(declared, values))


def _usage_error(rest: str, command: str) -> str:
    rest = split_inputs(rest)[0]
    name, object_id = split_name_and_id(rest)
    if object_id is None or name:
        return subjects.missing_id(USAGE)(rest, command)
    return f"Run what? `{command} list {object_id}` shows what can run on {object_id}."


def _named(name: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """The responders that a typed name, title or id may mean."""
    exact = [r for r in offered if name in (r.id, r.name)]
    return exact[:1] or matching(name, offered)


def matching(typed: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """The responders that a typed name or title may mean; those whose title or name is the same before others."""
    found = set(match_names(typed, [known for r in offered for known in names.typed_names(r)]))
    return [r for r in offered if not found.isdisjoint(names.typed_names(r))]


def is_name(typed: str, offered: Sequence[OfferedResponder]) -> bool:
    """Whether it is the whole name or title of a responder, but for case and punctuation."""
    return any(same_name(typed, known) for r in offered for known in (r.id, *names.typed_names(r)))


def closest(typed: str, offered: Sequence[OfferedResponder]) -> OfferedResponder | None:
    """The responder that was probably meant; None if none is called anything like it."""
    meant = closest_match(typed, [known for r in offered for known in names.typed_names(r)])
    return next((r for r in offered if meant in names.typed_names(r)), None)


def _no_such_responder(
    name: str, offered: Sequence[OfferedResponder], subject: Subject, command: str
) -> ResponderBotError:
    meant = closest(name, offered)
    hint = (
        f"Did you mean `{command} run {names.example(meant)} {subject.id}`?"
        if meant
        else f"{command} list {subject.id} shows what there is."
    )
    return ResponderBotError("not_found", f"There is no responder {name[:100]!r}. {hint}")


async def on_responder_menu(context: Context) -> None:
    """Run the responder that was chosen on a card, ask for confirmation, or say why it can't run."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    rotated = asyncio.create_task(context.services.outbox.buttons.rotate(button_token(context)))
    try:
        target_id = target_of_option(selected_value(context)) or intent.object_id
        subject, offered = await subjects.offered(context.core, target_id)
    finally:
        await rotated
    started = False
    try:
        started = await _start_selected(context, subject, offered)
    finally:
        if not started and not is_ephemeral(context):
            await responses.refresh_cards(context, subject)  # else the menu keeps showing the selected option


async def _start_selected(context: Context, subject: Subject, offered: Sequence[OfferedResponder]) -> bool:
    subjects.require_visible(context, subject)
    responses.require_permission(context, "manageAction")
    if selected_value(context) == NOTHING:
        return False
    responder = responder_of_option(offered, selected_value(context))
    if responder is None:
        raise ResponderBotError("not_found", "That responder is no longer on offer; open the menu again.")
    return await start(context, RunRequest(subject, responder))


async def on_run_button(context: Context) -> None:
    """Run, or Run anyway: the person was asked and confirmed."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    responder_id, again, running_id = questions.asked_run(intent)
    subject, responder = await _offered(context, intent.object_id, responder_id)
    repeated = await context.core.action(again) if again else None
    request = _repeating(RunRequest(subject, responder), repeated)
    if intent.what != "run_anyway":
        await start(context, replace(request, confirmed=True))
        return
    running = await context.core.action(running_id) if running_id else None
    if running is not None and runs.is_open(running):
        await start(context, replace(request, confirmed=True, anyway=True))
    else:  # what they were told isn't true any more
        await _ask_for_confirmation(context, replace(request, ended=running))


async def on_run_again_button(context: Context) -> None:
    """Run the same responder on the same object again, after confirmation if its policy wants one."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    previous = await context.core.action(intent.object_id)
    subject, responder = await _offered(context, previous.object_id, previous.responder_id)
    previous = runs.titled_by(previous, responder)
    # Slack sends the click of a button with a confirm dialog only after the person confirmed.
    request = RunRequest(subject, responder, confirmed=intent.argument == "confirmed")
    started = await start(context, _repeating(request, previous))
    if started and home.is_home(context):
        await home.publish(context)


def _repeating(request: RunRequest, previous: Action | None) -> RunRequest:
    """The request with the inputs of an earlier run. Raises ResponderBotError("conflict") if they aren't kept."""
    if previous is None:
        return request
    if request.responder.parameters:  # a form shows them, and asks anew for a secret
        return replace(request, parameters=runs.given_inputs(previous), repeated=previous)
    if runs.lost_secret(previous):
        raise ResponderBotError(
            "conflict",
            f"{runs.title(previous)} can't be repeated: its inputs had a secret, which isn't kept. Nothing was run. "
            "Run it with new inputs.",
        )
    return replace(request, parameters=runs.given_inputs(previous), repeated=previous)


async def on_dismiss_button(context: Context) -> None:
    """Delete the question and run nothing."""
    await context.replace_original(None)


async def _offered(context: Context, object_id: str, responder_id: str) -> tuple[Subject, OfferedResponder]:
    subject, offered = await subjects.offered(context.core, object_id)
    found = next((r for r in offered if responder_id in (r.id, r.name)), None)
    if found is None:
        raise ResponderBotError("not_found", f"{responder_id} is no longer on offer for {subject.id}.")
    return subject, found


# --- from a request to a run ----------------------------------------------------------------------------------------


async def start(context: Context, request: RunRequest) -> bool:
    """Start the run and say so. Else say why it can't run, ask for inputs or confirmation, or show the open run.

    This is where every choice of a responder leads, whatever it is to run on. Returns whether the run was started.
    """
    responder, subject = request.responder, request.subject
    view = subjects.require_visible(context, subject)
    responses.require_permission(context, "manageAction")
    if not can_run(responder):
        is_admin = context.person is not None and context.person.profile == "org-admin"
        may_break = is_admin and can_be_overridden(responder)
        await responses.show_with_buttons(
            context,
            "Can't run",
            f"cannot:{subject.id}:{responder.id}",
            lambda button: questions.cannot_run(
                responder, view, shown_reasons(responder, view, 1500), button=button if may_break else None
            ),
        )
        return False
    if _wants_form(request):
        await _show_form(context, request)
        return False
    if needs_confirmation(request):
        await _ask_for_confirmation(context, request)
        return False
    try:
        action = await create_action(context, request)
    except ResponderBotError as error:
        existing = open_action(error)
        if existing is None:
            raise
        await _show_open_action(context, request, existing)
        return False
    await responses.refresh_cards(context, subject)
    await _confirm_start(context, action, subject)
    return True


def _wants_form(request: RunRequest) -> bool:
    """Whether to show the inputs as fields: they are to be given, or typed ones are to be confirmed."""
    if request.responder.parameters:
        return not request.is_complete or needs_confirmation(request)
    if is_timed(request.responder):
        return not request.is_complete
    return needs_confirmation(request) and _is_typed(request)


def is_timed(responder: OfferedResponder) -> bool:
    """Whether core undoes its runs by itself, so that people are asked how long one is to last."""
    return responder.policy is not None and bool(responder.policy.undo_after_minutes)


def _is_typed(request: RunRequest) -> bool:
    """Whether the inputs are only in the request, so that a button, which has no room for them, would lose them."""
    return bool(request.parameters) and request.repeated is None


async def on_glass_button(context: Context) -> None:
    """Ask an org-admin why rules are to be overridden, and for the inputs."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    subject, responder = await _offered(context, intent.object_id, intent.argument)
    subjects.require_visible(context, subject)
    if can_run(responder):
        raise ResponderBotError("conflict", "No rule stands in the way of it any more; run it as usual.")
    await _show_form(context, RunRequest(subject, responder), breaks_glass=True)


async def _show_form(
    context: Context, request: RunRequest, running: Action | None = None, *, breaks_glass: bool = False
) -> None:
    """Show the inputs as fields, with what they are for; if it already runs, that too."""
    responder, subject, clearance = request.responder, request.subject, own_clearance(context)
    given, kept = await given_inputs(context, request)
    _require_room(request, given, kept)
    state = WizardState(
        id=subject.id,
        kind=subject.kind,
        responder=option_value(responder),
        asked=True,
        anyway=running is not None,
        channel=context.channel,
        again=request.repeated.id if request.repeated is not None else "",
        glass=breaks_glass or bool(request.glass),
        kept=kept,
    )
    if running is not None:
        view = start_card.collision_view(state, running, responder, RedactedView(subject, clearance), given=given)
    else:
        view = start_card.run_view(state, subject, responder, clearance=clearance, given=given)
    if not await responses.show_view(context, view):
        again = state.again
        await responses.show_with_buttons(
            context,
            "Inputs",
            f"inputs:{subject.id}:{responder.id}:{again}",
            lambda button: questions.needs_inputs(
                responder,
                RedactedView(subject, clearance),
                button=button,
                again=again,
                is_typed=_is_typed(request),
            ),
        )


async def inputs_of_several(
    context: Context, state: WizardState, responder: OfferedResponder, typed: Mapping[str, Any]
) -> dict[str, Any]:
    """The form for the inputs of a responder on the targets of the state, with what was typed in a command."""
    subject = await subjects.find(context.core, state.targets[0])
    request = RunRequest(subject, responder, typed)
    given, kept = await given_inputs(context, request)
    state = replace(state, responder=option_value(responder), asked=True).keeping(kept)
    _require_room(request, given, state.kept)
    return several.inputs_view(state, responder, given)


async def given_inputs(context: Context, request: RunRequest) -> tuple[Given, Mapping[str, str]]:
    """What the fields hold when they are shown, and the logins that count where a field stays empty."""
    declared, previous = request.responder.parameters, request.repeated
    if not declared:
        text = json.dumps(dict(request.parameters), ensure_ascii=False) if request.parameters else ""
        return Given(text=text), {}
    values = request.parameters if previous is None else runs.given_inputs(previous)
    users = await _people(context, declared, values)
    view = RedactedView(request.subject, own_clearance(context))
    if previous is not None:
        found = inputs.form_again(declared, previous, view, users)
    else:
        found = inputs.form(declared, values, people=users)
    people = {name: str(found.kept[name]) for name in found.kept if _type_of(name, declared) == "user"}
    return Given(found), people if len(json.dumps(people)) <= MAX_KEPT else {}


def _require_room(request: RunRequest, given: Given, kept: Mapping[str, str]) -> None:
    """Raise ResponderBotError("bad_request") if something that was typed in a command has no room in the modal."""
    found = given.form.kept if given.form is not None and request.repeated is None else {}
    if lost := [name for name in found if name in request.parameters and name not in kept]:
        raise ResponderBotError(
            "bad_request",
            f"{', '.join(lost)[:200]} is too long for Slack's form. Give the other inputs in the command too. "
            "Nothing was run.",
        )


async def _people(context: Context, declared: Sequence[Parameter], values: Mapping[str, Any]) -> Mapping[str, str]:
    """The Slack users of the logins in the values and the defaults."""
    given = [values.get(one.name) or one.default for one in declared if one.type == "user"]
    logins = list(dict.fromkeys(login for login in given if isinstance(login, str)))[:MAX_PEOPLE]
    found = await asyncio.gather(*(context.services.slack_user(context.team, login) for login in logins))
    return {login: user for login, user in zip(logins, found, strict=True) if user}


def _type_of(name: str, declared: Sequence[Parameter]) -> str:
    return next(one.type for one in declared if one.name == name)


async def _ask_for_confirmation(context: Context, request: RunRequest) -> None:
    responder, subject, clearance = request.responder, request.subject, own_clearance(context)
    await responses.show_with_buttons(
        context,
        "Run this?",
        f"confirm:{subject.id}:{responder.id}",
        lambda button: questions.confirm(
            responder, subject, clearance=clearance, button=button, repeated=request.repeated, ended=request.ended
        ),
    )


async def _show_open_action(context: Context, request: RunRequest, action: Action) -> None:
    responder, subject = request.responder, request.subject
    if responder.parameters or _is_typed(request) or is_timed(responder):
        await _show_form(context, request, running=action)
        return
    again = request.repeated.id if request.repeated is not None else ""
    view = RedactedView(subject, own_clearance(context))
    await responses.show_with_buttons(
        context,
        "It already runs",
        f"collision:{subject.id}:{responder.id}",
        lambda button: questions.collision(action, responder, view, button=button, again=again),
    )


def needs_confirmation(request: RunRequest) -> bool:
    """Whether the policy of the responder wants a confirmation that wasn't given yet.

    Core enforces approvals, but leaves confirmations to its clients.
    """
    policy = request.responder.policy
    return policy is not None and bool(policy.confirm) and not request.confirmed


async def create_action(context: Context, request: RunRequest) -> Action:
    """Have core start the run, once however often Slack delivers the interaction. Raises ResponderBotError.

    If core's answer is lost, such as when core is killed, ask again under the same Idempotency-Key, which starts
    nothing twice.
    """
    body = RunInput(
        responder_id=request.responder.id,
        object_type=request.subject.kind,
        object_id=request.subject.id,
        parameters=dict(request.parameters),
        only_if_idle=not request.anyway,
        undo_after_minutes=request.undo_after_minutes,
        break_glass=BreakGlassInput(reason=request.glass) if request.glass else None,
    )
    # A key of its own: core refuses a key with another body, and a modal keeps its view id when it asks again.
    key = f"{context.idempotency_key}-anyway" if request.anyway else context.idempotency_key
    action = await until_answered(lambda: context.core.run(body, idempotency_key=key))
    if action is None:
        raise _unknown_outcome(request, context.services.command)
    return runs.titled_by(action, request.responder)


def _unknown_outcome(request: RunRequest, command: str) -> ResponderBotError:
    name, object_id = names.title(request.responder)[:100], request.subject.id
    return ResponderBotError(
        "unavailable",
        f"{name} may have started on {object_id}: the responder service stopped answering. Before you ask again, "
        f"see what ran with {command} actions {object_id}.",
    )


def open_action(error: ResponderBotError) -> Action | None:
    """The open action because of which core refused to start the same one (`onlyIfIdle`); None for other errors."""
    found = error.details.get("action")
    if error.code != "conflict" or found is None:
        return None
    return found if isinstance(found, Action) else Action.model_validate(found)


async def _confirm_start(context: Context, action: Action, subject: Subject) -> None:
    """Say that it was started, unless its line on the clicked card already does."""
    message = started_message(action, RedactedView(subject, own_clearance(context)))
    if is_ephemeral(context) or is_in_modal(context) or not clicked_element(context):
        await responses.respond(context, message, "Started")
    elif runs.awaits_approval(action):
        await context.respond(message)


def started_message(action: Action, view: RedactedView) -> Message:
    """Says that the action runs, waits for approval, or has ended already."""
    name, on = runs.name(action), foreign(runs.target(view), runs.TARGET_LIMIT)
    approval = action.approval
    if approval is not None and runs.awaits_approval(action):
        approvals = count(approval.needed - len(approval.approved_by), "approval")
        return notices.notice(
            f"{name} on {on} needs {approvals} until "
            f"{slack_date(approval.expires_at, '{date_short_pretty} {time}')} ({action.id})."
        )
    if not runs.is_open(action):
        return notices.notice(f"{name} {runs.state(action)} on {on} ({action.id}).")
    return notices.notice(f"Started {name} on {on} ({action.id}). Its card and thread tell how it goes.")


FEATURE = Feature(
    commands={
        "run": Command(
            Entry(on_run_command, Ack.WRITE),
            USAGE,
            "run a responder, on each of several ids too; a part of its name will do",
            "manageAction",
            usage_error=_usage_error,
        )
    },
    actions={
        ids.MENU: Entry(on_responder_menu, Ack.WRITE),
        ids.RUN: Entry(on_run_button, Ack.WRITE),
        ids.RUN_ANYWAY: Entry(on_run_button, Ack.WRITE),
        ids.BREAK_GLASS: Entry(on_glass_button, modal_title=start_card.TITLE),
        ids.RUN_AGAIN: Entry(on_run_again_button, Ack.WRITE),
        ids.DISMISS: Entry(on_dismiss_button),
    },
)
