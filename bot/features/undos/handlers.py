"""Undo runs: Undo at once, Extend to another time."""

from bot.block_kit import ids, modals, notices
from bot.clearance import RedactedView
from bot.features import responses, subjects
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import is_ephemeral, is_in_modal, view_metadata, view_of
from bot.features.retries import answered, until_answered
from bot.features.runs.flow import started_message
from bot.features.runs.views import runs, undo_state
from bot.features.undos import views
from core.common.clock import MINUTE_MS
from core.common.errors import ResponderBotError
from core.models import Policy

UNKNOWN = "It may be on its way: the responder service stopped answering. Press it again; nothing is undone twice."
UNKNOWN_TIME = (
    "The responder service stopped answering, so the time may not have been set. See the run's line on its card before"
    " you set it again."
)


async def on_undo_button(context: Context) -> None:
    """Run what undoes a run, in this person's name; core refuses whoever may not, and what is undone already."""
    intent = await responses.clicked_intent(context)
    action, view = await subjects.visible_run(context, intent.object_id)
    core, key, part = context.core, context.idempotency_key, intent.argument
    try:
        if part:
            (undoing,) = await until_answered(lambda: core.undo_measure(part, idempotency_key=key), UNKNOWN)
        else:
            undoing = await until_answered(lambda: core.undo(action.id, idempotency_key=key), UNKNOWN)
    except ResponderBotError as error:
        if error.code not in ("conflict", "not_found"):
            raise
        await responses.refresh_cards(context, view.subject)  # which shows what it no longer does
        raise
    await responses.refresh_cards(context, view.subject)
    undoing, _ = await subjects.of_action(context.core, undoing)
    if is_ephemeral(context) or is_in_modal(context) or undoing.approval is not None:
        await responses.respond(context, started_message(undoing, view), "Undo")


async def on_extend_button(context: Context) -> None:
    """Ask how much later a run shall end."""
    intent = await responses.clicked_intent(context)
    action, view = await subjects.visible_run(context, intent.object_id)
    offered = await context.core.responders(view.subject.kind, view.subject.id)
    policy = next((r.policy for r in offered if r.name == action.responder_name), None)
    if policy is None or not policy.undo:
        policy = Policy(undo=action.undo.responder if action.undo else None)
    by_id = {id_: one for one, id_ in undo_state.in_force_by_target(action)}
    shown, now = by_id.get(intent.argument, action), context.services.clock_ms()
    await context.show_modal(views.extend_view(shown, view, policy, now, part=intent.argument))


async def on_extend_view(context: Context) -> Json:
    """Set the later end. Core refuses what the settings don't allow or is no later, and whoever may not."""
    view = view_of(context)
    metadata = view_metadata(view)
    minutes = undo_state.minutes_of(modals.values(view).get("longer", ""))
    if minutes is None:
        return modals.errors({"longer": "Choose how much longer."})
    until = int(metadata["at"]) + minutes * MINUTE_MS if minutes else None
    action = await answered(context.core.extend_measure(str(metadata["id"]), until), UNKNOWN_TIME)
    action, subject = await subjects.of_action(context.core, action)
    await responses.refresh_cards(context, subject)
    extension = undo_state.later_end(action)
    sentence = undo_state.end(action.undo.at if action.undo is not None else None)
    if extension is not None:
        sentence = f"More time than was approved. It needs {undo_state.needed(extension)}"
    shown = RedactedView(subject, context.person.clearance)
    title = "Done" if extension is None else "Asked"
    return modals.update(modals.message_view(title, notices.notice(f"{runs.heading(action, shown)}: {sentence}")))


FEATURE = Feature(
    actions={
        ids.UNDO: Entry(on_undo_button, Ack.WRITE),
        ids.EXTEND: Entry(on_extend_button, modal_title="How much longer?"),
    },
    views={
        ids.EXTEND_VIEW: Entry(on_extend_view, Ack.RESPONSE),
    },
)
