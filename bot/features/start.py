"""The run modal: from the command alone, the global shortcut, or the shortcut on a message."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.cards import ids, inputs, notices, runs, start, undos, views
from bot.cards.lists import (
    MAX_OPTIONS,
    can_run,
    message_option,
    option_value,
    reasons,
    responder_of_option,
    target_of_option,
)
from bot.cards.start import Given, WizardState
from bot.cards.text import escape
from bot.features import find, responses, run, subjects
from bot.features.access import own_clearance, who_may_see
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import find_ids, parse_id
from bot.features.payload import selected_value, view_of
from bot.redaction import RedactedView, Subject, may_see
from core.common.errors import ResponderBotError
from core.models import OfferedResponder, Parameter

GLASS_LIMIT = 1000  # characters, as many as core takes
LOOKUP_LIMIT = 5  # ids in a message that are looked up


async def on_start_command(context: Context) -> None:
    """Open the run modal, for `/responder` alone and for the global shortcut."""
    view = start.start_view(WizardState(channel=context.channel), None, clearance=own_clearance(context))
    await context.show_modal(view)


async def on_message_shortcut(context: Context) -> None:
    """Open the run modal for the object that a message is about; works in threads, where commands don't."""
    await context.show_modal(views.loading(start.TITLE))
    message = context.payload.get("message")
    places = [str(message.get(key) or "") for key in ("ts", "thread_ts")] if isinstance(message, Mapping) else []
    found = [*await responses.roots_at(context, *places), *find_ids(" ".join(_texts(message)))]
    await context.show_modal(await _view_of_known(context, list(dict.fromkeys(found))))


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
        found = await _known(context, object_ids[:LOOKUP_LIMIT])
    except ResponderBotError as error:
        return views.notice("Not now", escape(notices.sentence(error)))
    clearance, state = own_clearance(context), WizardState(channel=context.channel)
    if len(found) == 1:
        return await _start_view(context, _for_subject(state, found[0]), found[0])
    state = replace(state, choices=tuple(subject.id for subject in found))
    return start.start_view(state, None, clearance=clearance, choices=found)


async def _known(context: Context, object_ids: Iterable[str]) -> list[Subject]:
    found: list[Subject] = []
    for object_id in object_ids:
        try:
            found.append(await subjects.find(context.core, object_id))
        except ResponderBotError as error:
            if error.code != "not_found":
                raise
    return found


async def on_object_options(context: Context) -> Json:
    """Alerts for what is typed, newest first; an id also finds a case, task, log or observable."""
    if str(context.payload.get("block_id") or "").startswith(inputs.PREFIX):
        return await _input_options(context)
    typed, clearance = str(context.payload.get("value") or ""), own_clearance(context)
    by_id = await _known(context, [found] if (found := parse_id(typed)) else [])
    alerts = [Subject.alert(alert) for alert in await find.search(context.core, typed, clearance)]
    shown = {subject.id: start.object_option(subject, clearance) for subject in [*by_id, *alerts]}
    if not shown:
        return message_option("No alert that you may see has this text.")
    return {"options": list(shown.values())[:MAX_OPTIONS]}


async def _input_options(context: Context) -> Json:
    """The options of an input that has too many for the modal itself."""
    state, name = _state(view_of(context)), inputs.input_name(str(context.payload.get("block_id") or ""))
    offered = await context.core.responders(state.kind, state.id, explain=True)
    responder = responder_of_option(offered, state.responder)
    found = next((one for one in (responder.parameters if responder else None) or () if one.name == name), None)
    if found is None:
        return message_option("This input is no longer there; close this and start again.")
    return {"options": inputs.options_of(found, str(context.payload.get("value") or ""))[:MAX_OPTIONS]}


async def on_object_field(context: Context) -> None:
    """Show the object that was chosen, and its menu of responders."""
    view = view_of(context)
    subject = await _typed_subject(context, views.values(view).get("object", ""))
    await _update(context, await _start_view(context, _for_subject(_state(view), subject), subject))


async def on_responder_field(context: Context) -> None:
    """Show the inputs of the responder that was chosen, and what its policy says."""
    state, selected = _state(view_of(context)), selected_value(context)
    subject, offered = await subjects.offered(context.core, target_of_option(selected) or state.id)
    responder = responder_of_option(offered, selected)
    if responder is not None and can_run(responder):
        subjects.require_visible(context, subject)
        await _update(context, await _start_view(context, _for_subject(state, subject), subject, responder))


async def _update(context: Context, shown: Json) -> None:
    view = view_of(context)
    view_id, state = str(view.get("id")), str(view.get("hash") or "")
    await context.services.slack.views_update(view_id=view_id, hash=state, view=dict(shown))


async def _start_view(
    context: Context, state: WizardState, subject: Subject, responder: OfferedResponder | None = None
) -> dict[str, Any]:
    """The modal for this object, with the inputs of this responder."""
    choices = await _known(context, state.choices)
    clearance = own_clearance(context)
    who = "" if may_see(clearance, subject.tlp) else await who_may_see(context.services, subject.tlp)
    given: Given | None = None
    if responder is not None:
        given, kept = await run.given_inputs(context, run.RunRequest(subject, responder))
        state = replace(state, responder=option_value(responder), kept=kept)
    return start.start_view(
        state, subject, clearance=clearance, choices=choices, responder=responder, given=given, who=who
    )


async def on_start_view(context: Context) -> Json | None:
    """Handle Next, Run and Run anyway. Core checks each step again, since the state comes from the client."""
    view = view_of(context)
    state = _state(view)
    if state.asked:
        return await _run(context, state, state.responder)
    typed = views.values(view).get("object", "")
    try:
        subject = await _typed_subject(context, typed)
    except ResponderBotError as error:
        if error.code not in ("bad_request", "not_found"):
            raise
        return views.errors({"object": error.message})
    state = _for_subject(state, subject)
    selected = views.values(view).get(f"responder:{subject.id}", "")
    if not selected:
        return views.update(await _start_view(context, state, subject))
    if target_id := target_of_option(selected):
        state = _for_subject(state, await subjects.find(context.core, target_id))
    return await _run(context, state, selected)


async def _run(context: Context, state: WizardState, selected: str) -> Json | None:
    subject, offered = await subjects.offered(context.core, state.id)
    subjects.require_visible(context, subject)
    responder = responder_of_option(offered, selected)
    if responder is None:
        return _menu_error(context, subject, "That responder is no longer on offer; choose again.")
    if not can_run(responder) and not state.glass:
        why = reasons(responder, RedactedView(subject, own_clearance(context)))
        return _menu_error(context, subject, f"It can't run: {why}")
    view, declared = view_of(context), responder.parameters or ()
    if not _is_shown(view, state, responder):
        return views.update(await _asked(context, state, subject, responder))
    if declared:
        values, problems = inputs.submitted(view, declared, state.responder)
        problems |= await chosen_logins(context, declared, values, state.responder)
        if problems:
            return views.errors(problems)
        values = {**await _kept(context, state, subject, responder), **values}
    else:
        try:
            values = dict(start.parse_parameters(views.values(view).get("parameters", "")))
        except ValueError as error:
            return views.errors({"parameters": str(error)})
    request = run.RunRequest(subject, responder, values, is_complete=True, confirmed=True, anyway=state.anyway)
    chosen = views.values(view).get(start.undo_block(state.responder), "")
    glass = views.values(view).get("glass", "").strip()
    if state.glass and not glass:
        return views.errors({"glass": "Say why."})
    if len(glass) > GLASS_LIMIT:  # whoever approves is to read all of it
        return views.errors({"glass": f"Say it in at most {GLASS_LIMIT:,} characters, not {len(glass):,}."})
    request = replace(request, undo_after_minutes=undos.minutes_of(chosen), glass=glass)
    return await _create_action(context, state, request)


def _is_shown(view: Mapping[str, Any], state: WizardState, responder: OfferedResponder) -> bool:
    """Whether the modal shows the inputs that the responder has now, and what its policy says."""
    declared = responder.parameters or ()
    if state.responder != option_value(responder):
        return not declared and not (responder.policy and responder.policy.confirm) and not run.is_timed(responder)
    blocks = views.labels(view)
    return all(inputs.block_id(state.responder, one.name) in blocks for one in declared)


async def _asked(context: Context, state: WizardState, subject: Subject, responder: OfferedResponder) -> Json:
    """The modal with the inputs of the responder; what its fields have stays in them."""
    if not state.asked:
        return await _start_view(context, state, subject, responder)
    given, kept = await run.given_inputs(context, run.RunRequest(subject, responder))
    state = replace(state, responder=option_value(responder), kept=kept)
    return start.run_view(state, subject, responder, clearance=own_clearance(context), given=given)


async def chosen_logins(
    context: Context, declared: Sequence[Parameter], values: dict[str, Any], key: str
) -> Mapping[str, str]:
    """Put the logins of the people who were chosen in their place. Returns what is wrong by block id."""
    problems: dict[str, str] = {}
    for parameter in declared:
        if parameter.type != "user" or parameter.name not in values:
            continue
        login = await context.services.login(context.team, str(values[parameter.name]))
        if login:
            values[parameter.name] = login
        else:
            problem = "This person has no access to responder-bot; choose somebody who has."
            problems[inputs.block_id(key, parameter.name)] = problem
    return problems


async def _kept(
    context: Context, state: WizardState, subject: Subject, responder: OfferedResponder
) -> Mapping[str, Any]:
    """The values that count for empty fields: those for which the modal had no room."""
    previous = await context.core.action(state.again) if state.again else None
    if previous is None or previous.responder_name != responder.name or previous.object_id != subject.id:
        return state.kept
    request = run.RunRequest(subject, responder, runs.given_inputs(previous), repeated=previous)
    given, _ = await run.given_inputs(context, request)
    return {**(given.form.kept if given.form else {}), **state.kept}


async def _create_action(context: Context, state: WizardState, request: run.RunRequest) -> Json:
    responder, subject = request.responder, request.subject
    view = RedactedView(subject, own_clearance(context))
    try:
        action = await run.create_action(context, request)
    except ResponderBotError as error:
        existing = run.open_action(error)
        if existing is None:
            return _core_error(view_of(context), state, error)
        given, _ = await run.given_inputs(context, request)
        state = replace(state, responder=option_value(responder), asked=True, anyway=True)
        return views.update(start.collision_view(state, existing, responder, view, given=given))
    await responses.refresh_cards(context, subject)
    return views.update(views.message_view("Started", run.started_message(action, view)))


def _core_error(view: Mapping[str, Any], state: WizardState, error: ResponderBotError) -> Json:
    """Core's errors at the fields that they are about; as a view if one of them has no field."""
    if error.code == "key_reused":  # Slack didn't get the answer to an earlier submission
        return views.problem("A run was started from this form already, with other inputs; its card shows it.")
    found = {
        inputs.block_id(state.responder, str(entry.get("name")).removeprefix("parameters.")): _field_error(entry)
        for entry in error.fields
    }
    blocks = views.labels(view)
    if error.code == "invalid_fields" and found and found.keys() <= blocks.keys():
        return views.errors(found)
    return views.problem(notices.sentence(error))


def _field_error(entry: Mapping[str, Any]) -> str:
    expected = str(entry.get("format") or "")
    return f"This should be {expected}." if expected else "This is needed."


def _menu_error(context: Context, subject: Subject, text: str) -> Json:
    """An error at the menu of responders, or as a view where there is no menu for this object."""
    block_id = f"responder:{subject.id}"
    is_shown = block_id in views.values(view_of(context))
    return views.errors({block_id: text}) if is_shown else views.problem(text)


def _state(view: Mapping[str, Any]) -> WizardState:
    return WizardState.from_text(str(view.get("private_metadata") or ""))


def _for_subject(state: WizardState, subject: Subject) -> WizardState:
    """The state for this object; that of another one forgets the responder."""
    if state.id == subject.id:
        return state
    return replace(state, id=subject.id, kind=subject.kind, responder="", kept={})


async def _typed_subject(context: Context, typed: str) -> Subject:
    found = parse_id(typed.strip()) or next(iter(find_ids(typed)), None)
    if found is None:
        raise ResponderBotError("bad_request", "Choose an alert.")
    return await subjects.find(context.core, found)


FEATURE = Feature(
    commands={"start": Command(Entry(on_start_command, modal_title=start.TITLE), "start", "", "manageAction")},
    actions={ids.VALUE: Entry(on_object_field), ids.START_RESPONDER: Entry(on_responder_field)},
    options={ids.VALUE: Entry(on_object_options, Ack.ANSWER)},
    views={ids.START_VIEW: Entry(on_start_view, Ack.ANSWER)},
    shortcuts={
        ids.RUN_SHORTCUT: Entry(on_start_command, modal_title=start.TITLE),
        ids.RUN_MESSAGE_SHORTCUT: Entry(on_message_shortcut, modal_title=start.TITLE),
    },
)
