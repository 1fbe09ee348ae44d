"""`/responder alert ~id`: an alert in full, for the one who asked."""

from functools import partial

from bot.features import responses, subjects
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from bot.features.alerts.views.details import alert_in_full
from bot.features.authorization import own_clearance, who_else_may_see
from bot.features.base import Command, Context, Entry, Feature
from core.common.errors import ResponderBotError

USAGE = "alert ~id"


async def on_alert_command(context: Context) -> None:
    """Show everything in the alert that this person may see."""
    _, object_id = subjects.require_id(context, USAGE)
    await show(context, object_id)


async def show(context: Context, object_id: str, start: int = 0, channel: str = "") -> None:
    """Show the alert to the person who asked in `channel`, by default this one; its artifacts from number `start` on.

    Raises ResponderBotError("not_found") with a hint for ids of other objects.
    """
    command = context.services.command
    try:
        alert = await context.core.alert(object_id)
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        if await _shows_case(context, object_id):
            return
        hint = f"if it is a task, log or observable, {command} list {object_id} shows what can run on it"
        raise ResponderBotError("not_found", f"There is no alert {object_id}; {hint}.") from error
    note = f"`{command} list {alert.id}` shows what can run on it."
    clearance = own_clearance(context)
    who = await who_else_may_see(context, alert.tlp)
    await responses.show_with_buttons(
        context,
        f"Alert {alert.id}",
        f"details:{alert.id}",
        lambda button: alert_in_full(
            alert,
            clearance=clearance,
            button=button,
            note=note,
            who=who,
            start=start,
            channel=channel or context.channel,
        ),
    )


async def _shows_case(context: Context, object_id: str) -> bool:
    """Show the case with this id as far as this person may see it; False if it is none."""
    try:
        subject, document = await subjects.with_document(context.core, object_id)
    except ResponderBotError as error:
        if error.code == "not_found":
            return False
        raise
    case = document.case
    if case is None or subject.id != case.id:
        return False
    subjects.require_visible(context, subject)
    tasks, whole = await context.core.tasks_of(case.id, MOST_COUNTED + 1), document.model_copy(update={"alert_ids": []})
    render = partial(case_card, case, whole, tasks, clearance=own_clearance(context))
    await responses.show_with_buttons(
        context, f"Case {case.id}", f"details:{case.id}", lambda button: render(button=button)
    )
    return True


FEATURE = Feature(commands={"alert": Command(Entry(on_alert_command), USAGE, "an alert in full")})
