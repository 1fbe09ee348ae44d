"""`/responder alert ~id`: an alert in full, for the one who asked."""

from functools import partial

from bot.features import command_text, responses, subjects
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from bot.features.alerts.views.details import alert_in_full
from bot.features.authorization import own_clearance
from bot.features.base import Command, Context, Entry, Feature
from bot.features.runs.views import undo_state
from core.models import OBJECT_TYPES


async def on_alert_command(context: Context) -> None:
    """Show everything in the alert that this person may see."""
    _, object_id = command_text.split_name_and_id(context.text)
    await show(context, object_id)


async def show(context: Context, object_id: str, start: int = 0, channel: str = "", note: str = "") -> None:
    """Show the alert to the person who asked in `channel`, by default this one; its artifacts from number `start` on.

    Or a case, with what ran on its alerts. Raises ResponderBotError: not_found for ids of other objects, forbidden.
    """
    subject, document = await subjects.with_document(context.core, object_id)
    case, clearance = document.case if subject.id == document.id else None, own_clearance(context)
    subjects.require_visible(context, subject)
    if case is not None:
        tasks = await context.core.tasks_of(case.id, MOST_COUNTED + 1)
        alerts = await context.core.alerts_of(document, document.alert_ids)
        render = partial(case_card, case, document, tasks, alerts, clearance=clearance, is_posted=False)
    else:
        alert = subjects.as_alert(context, subject, document)
        ran = {run.id for run in document.actions if undo_state.is_in_force(run)}
        elsewhere = [one for one in await context.core.measures(target=alert.id) if ran.isdisjoint(one.actions)]
        note = note or f"`{context.services.command} list {alert.id}` shows what can run on it."
        in_full = partial(alert_in_full, alert, document, start=start, channel=channel or context.channel)
        render = partial(in_full, clearance=clearance, note=note, held=elsewhere)
    title = f"{OBJECT_TYPES[subject.kind]} {subject.id}"
    await responses.show_with_buttons(context, title, f"details:{subject.id}", render)


FEATURE = Feature(commands={"alert": Command(Entry(on_alert_command), "alert ~id", "an alert in full")})
