"""Running a responder step by step: the command alone, the global shortcut, the shortcut on a message."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.cards import ids, start, views
from bot.cards.lists import can_run, reasons, responder_of_option
from bot.cards.start import WizardState
from bot.cards.text import escape
from bot.features import answers, run, subjects
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.gate import own_clearance
from bot.features.typed import ids_in, object_id
from bot.redaction import Subject
from core.common.errors import ResponderBotError


async def on_start_command(moment: Context) -> None:
    """`/responder` alone, and the global shortcut."""
    view = start.start_view(WizardState(channel=moment.channel), None, clearance=own_clearance(moment))
    await moment.show(view)


async def on_message_shortcut(moment: Context) -> None:
    """Opens at once, then finds what the message speaks of; works in threads, where commands don't."""
    await moment.show(views.loading(start.TITLE))
    message = moment.payload.get("message")
    found = list(dict.fromkeys([*_own(moment, message), *ids_in(" ".join(strings(message)))]))
    await moment.show(await _first_known(moment, found))


def _own(moment: Context, message: Any) -> list[str]:
    """What a message of ours, or the thread it stands in, is about."""
    places = [message.get(key) for key in ("ts", "thread_ts")] if isinstance(message, Mapping) else []
    shown = [moment.tools.mail.message_at(moment.channel, str(ts)) for ts in places if ts]
    return [one.subject for one in shown if one is not None and one.subject]


def strings(value: Any) -> Iterator[str]:
    """Every text in a message: its own, and those of blocks and attachments."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("text", "fallback", "title", "url") and isinstance(item, str):
                yield item
            else:
                yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


async def _first_known(moment: Context, found: list[str]) -> dict[str, Any]:
    """The modal for the first of the ids that names something; core down is told in it."""
    clearance, place = own_clearance(moment), WizardState(channel=moment.channel)
    for number, candidate in enumerate(found[:5]):
        try:
            subject = await subjects.find(moment.core, candidate)
        except ResponderBotError as error:
            if error.code == "not_found":
                continue
            return views.notice("Not now", escape(error.message))
        also = tuple(found[number + 1 :])
        here = replace(place, id=subject.id, kind=subject.kind)
        return start.start_view(here, subject, clearance=clearance, also=also)
    return start.start_view(place, None, clearance=clearance)


async def on_object_field(moment: Context) -> None:
    """Enter in the object's field: shows what it is, and brings the menu of responders."""
    view = _view(moment)
    place = WizardState.from_text(str(view.get("private_metadata") or ""))
    typed = views.values(view).get("object", "")
    subject = await _subject(moment, typed)
    shown = start.start_view(_at(place, subject), subject, clearance=own_clearance(moment), typed=typed)
    await moment.tools.slack.views_update(view_id=str(view.get("id")), hash=str(view.get("hash") or ""), view=shown)


async def on_start_view(moment: Context) -> Json | None:
    """Next, Run, or Run anyway: each step is checked again in core."""
    view = _view(moment)
    place = WizardState.from_text(str(view.get("private_metadata") or ""))
    if place.confirmed:
        subject = await subjects.of_kind(moment.core, place.kind, place.id)
        return await _run(moment, place, subject, place.responder, view)
    typed = views.values(view).get("object", "")
    try:
        subject = await _subject(moment, typed)
    except ResponderBotError as error:
        if error.code not in ("bad_request", "not_found"):
            raise
        return views.errors({"object": error.message})
    chosen = views.values(view).get(f"responder:{subject.id}", "")
    if not chosen:
        shown = start.start_view(_at(place, subject), subject, clearance=own_clearance(moment), typed=typed)
        return views.update(shown)
    return await _run(moment, _at(place, subject), subject, chosen, view)


async def _run(moment: Context, place: WizardState, subject: Subject, chosen: str, view: Json) -> Json | None:
    offered = await moment.core.responders(subject.kind, subject.id, explain=True)
    responder = responder_of_option(offered, chosen)
    at = f"responder:{subject.id}"
    if responder is None:
        return _wrong(place, at, "That responder is no longer on offer; choose again.")
    if not can_run(responder):
        return _wrong(place, at, f"It can't run: {reasons(responder)}")
    text = views.values(view).get("parameters", "")
    try:
        parameters = start.parse_parameters(text)
    except ValueError as error:
        return views.errors({"parameters": str(error)})
    wish = run.RunRequest(subject, responder, parameters, confirmed=place.confirmed, anyway=place.anyway)
    place = replace(place, responder=chosen, confirmed=True)
    if run.asks_first(wish):
        clearance = own_clearance(moment)
        return views.update(start.confirm_view(place, responder, subject, clearance=clearance, parameters=text))
    return await _started(moment, place, wish, text)


async def _started(moment: Context, place: WizardState, wish: run.RunRequest, parameters: str) -> Json:
    try:
        action = await run.run(moment, wish)
    except ResponderBotError as error:
        running = run.open_action(error)
        if running is None:
            return views.problem(error.message)
        again = replace(place, anyway=True)
        return views.update(start.collision_view(again, running, wish.responder, wish.subject, parameters=parameters))
    await answers.repaint(moment, wish.subject)
    return views.update(views.message_view("Started", run.started(action, wish.subject)))


def _wrong(place: WizardState, at: str, text: str) -> Json:
    """At the menu while it is there; a later step has no field for it."""
    return views.problem(text) if place.confirmed else views.errors({at: text})


def _at(place: WizardState, subject: Subject) -> WizardState:
    return replace(place, id=subject.id, kind=subject.kind)


async def _subject(moment: Context, typed: str) -> Subject:
    found = object_id(typed.strip()) or next(iter(ids_in(typed)), None)
    if found is None:
        raise ResponderBotError("bad_request", "This is no id; one looks like ~12.")
    return await subjects.find(moment.core, found)


def _view(moment: Context) -> Mapping[str, Any]:
    view = moment.payload.get("view")
    return view if isinstance(view, Mapping) else {}


FEATURE = Feature(
    commands={"start": Command(Entry(on_start_command, opens=start.TITLE), "start", "", "manageAction")},
    actions={ids.VALUE: Entry(on_object_field)},
    views={ids.START_VIEW: Entry(on_start_view, Ack.ANSWER)},
    shortcuts={
        ids.RUN_SHORTCUT: Entry(on_start_command, opens=start.TITLE),
        ids.RUN_MESSAGE_SHORTCUT: Entry(on_message_shortcut, opens=start.TITLE),
    },
)
