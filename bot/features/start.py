"""The run modal: from the command alone, the global shortcut, or the shortcut on a message."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.cards import ids, notices, start, views
from bot.cards.lists import can_run, reasons, responder_of_option
from bot.cards.start import WizardState
from bot.cards.text import escape
from bot.features import responses, run, subjects
from bot.features.access import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import find_ids, parse_id
from bot.features.payload import view_of
from bot.redaction import Subject
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
    await context.show_modal(await _view_of_first_known(context, list(dict.fromkeys(found))))


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


async def _view_of_first_known(context: Context, object_ids: list[str]) -> dict[str, Any]:
    """The modal for the first of these ids that core knows; a notice if core is down."""
    clearance, state = own_clearance(context), WizardState(channel=context.channel)
    for number, candidate in enumerate(object_ids[:LOOKUP_LIMIT]):
        try:
            subject = await subjects.find(context.core, candidate)
        except ResponderBotError as error:
            if error.code == "not_found":
                continue
            return views.notice("Not now", escape(notices.sentence(error)))
        also = tuple(object_ids[number + 1 :])
        return start.start_view(_for_subject(state, subject), subject, clearance=clearance, also=also)
    return start.start_view(state, None, clearance=clearance)


async def on_object_field(context: Context) -> None:
    """Show the object that was typed, and its menu of responders, once the person presses Enter in the field."""
    view = view_of(context)
    typed = views.values(view).get("object", "")
    subject = await _typed_subject(context, typed)
    state = _for_subject(_state(view), subject)
    shown = start.start_view(state, subject, clearance=own_clearance(context), typed=typed)
    await context.services.slack.views_update(view_id=str(view.get("id")), hash=str(view.get("hash") or ""), view=shown)


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
        return views.update(start.start_view(state, subject, clearance=own_clearance(context), typed=typed))
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
        raise ResponderBotError("bad_request", "This is not an id; one looks like ~12.")
    return await subjects.find(context.core, found)


FEATURE = Feature(
    commands={"start": Command(Entry(on_start_command, modal_title=start.TITLE), "start", "", "manageAction")},
    actions={ids.VALUE: Entry(on_object_field)},
    views={ids.START_VIEW: Entry(on_start_view, Ack.ANSWER)},
    shortcuts={
        ids.RUN_SHORTCUT: Entry(on_start_command, modal_title=start.TITLE),
        ids.RUN_MESSAGE_SHORTCUT: Entry(on_message_shortcut, modal_title=start.TITLE),
    },
)
