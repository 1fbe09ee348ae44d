"""The run modal: from the command alone, the global shortcut, or the shortcut on a message."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.cards import ids, notices, start, views
from bot.cards.lists import MAX_OPTIONS, can_run, message_option, reasons, responder_of_option
from bot.cards.start import WizardState
from bot.cards.text import escape
from bot.features import find, responses, run, subjects
from bot.features.access import own_clearance, who_may_see
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import find_ids, parse_id
from bot.features.payload import view_of
from bot.redaction import Subject, may_see
from core.common.errors import ResponderBotError

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
    found = [*responses.roots_at(context, *places), *find_ids(" ".join(_texts(message)))]
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
    typed, clearance = str(context.payload.get("value") or ""), own_clearance(context)
    by_id = await _known(context, [found] if (found := parse_id(typed)) else [])
    alerts = [Subject.alert(alert) for alert in await find.search(context.core, typed, clearance)]
    shown = {subject.id: start.object_option(subject, clearance) for subject in [*by_id, *alerts]}
    if not shown:
        return message_option("No alert that you may see has this text.")
    return {"options": list(shown.values())[:MAX_OPTIONS]}


async def on_object_field(context: Context) -> None:
    """Show the object that was chosen, and its menu of responders."""
    view = view_of(context)
    subject = await _typed_subject(context, views.values(view).get("object", ""))
    state = _for_subject(_state(view), subject)
    shown = await _start_view(context, state, subject)
    await context.services.slack.views_update(view_id=str(view.get("id")), hash=str(view.get("hash") or ""), view=shown)


async def _start_view(context: Context, state: WizardState, subject: Subject) -> dict[str, Any]:
    choices = await _known(context, state.choices)
    clearance = own_clearance(context)
    who = "" if may_see(clearance, subject.tlp) else await who_may_see(context.services, subject.tlp)
    return start.start_view(state, subject, clearance=clearance, choices=choices, who=who)


async def on_start_view(context: Context) -> Json | None:
    """Handle Next, Run and Run anyway. Core checks each step again, since the state comes from the client."""
    view = view_of(context)
    state = _state(view)
    if state.confirmed:
        subject = await subjects.of_kind(context.core, state.kind, state.id)
        return await _run(context, state, subject, state.responder, view)
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
    return await _run(context, state, subject, selected, view)


async def _run(context: Context, state: WizardState, subject: Subject, selected: str, view: Json) -> Json | None:
    subjects.require_visible(context, subject)
    offered = await context.core.responders(subject.kind, subject.id, explain=True)
    responder = responder_of_option(offered, selected)
    if responder is None:
        return _menu_error(state, subject, "That responder is no longer on offer; choose again.")
    if not can_run(responder):
        return _menu_error(state, subject, f"It can't run: {reasons(responder)}")
    text = views.values(view).get("parameters", "")
    try:
        parameters = start.parse_parameters(text)
    except ValueError as error:
        return views.errors({"parameters": str(error)})
    request = run.RunRequest(subject, responder, parameters, confirmed=state.confirmed, anyway=state.anyway)
    state = replace(state, responder=selected, confirmed=True)
    if run.needs_confirmation(request):
        clearance = own_clearance(context)
        return views.update(start.confirm_view(state, responder, subject, clearance=clearance, parameters=text))
    return await _create_action(context, state, request, text)


async def _create_action(context: Context, state: WizardState, request: run.RunRequest, parameters: str) -> Json:
    responder, subject = request.responder, request.subject
    try:
        action = await run.create_action(context, request)
    except ResponderBotError as error:
        existing = run.open_action(error)
        if existing is None:
            return views.problem(notices.sentence(error))
        state = replace(state, anyway=True)
        return views.update(start.collision_view(state, existing, responder, subject, parameters=parameters))
    responses.refresh_cards(context, subject)
    return views.update(views.message_view("Started", run.started_message(action, subject)))


def _menu_error(state: WizardState, subject: Subject, text: str) -> Json:
    """An error at the menu of responders, or as a view in later steps, which have no menu."""
    return views.problem(text) if state.confirmed else views.errors({f"responder:{subject.id}": text})


def _state(view: Mapping[str, Any]) -> WizardState:
    return WizardState.from_text(str(view.get("private_metadata") or ""))


def _for_subject(state: WizardState, subject: Subject) -> WizardState:
    return replace(state, id=subject.id, kind=subject.kind)


async def _typed_subject(context: Context, typed: str) -> Subject:
    found = parse_id(typed.strip()) or next(iter(find_ids(typed)), None)
    if found is None:
        raise ResponderBotError("bad_request", "Choose an alert.")
    return await subjects.find(context.core, found)


FEATURE = Feature(
    commands={"start": Command(Entry(on_start_command, modal_title=start.TITLE), "start", "", "manageAction")},
    actions={ids.VALUE: Entry(on_object_field)},
    options={ids.VALUE: Entry(on_object_options, Ack.ANSWER)},
    views={ids.START_VIEW: Entry(on_start_view, Ack.ANSWER)},
    shortcuts={
        ids.RUN_SHORTCUT: Entry(on_start_command, modal_title=start.TITLE),
        ids.RUN_MESSAGE_SHORTCUT: Entry(on_message_shortcut, modal_title=start.TITLE),
    },
)
