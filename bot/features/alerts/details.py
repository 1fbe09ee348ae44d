"""`/responder alert ~id`: an alert in full, for the one who asked."""

from bot.clearance import may_see
from bot.features import responses, subjects
from bot.features.alerts.views.details import alert_in_full
from bot.features.authorization import own_clearance, who_may_see
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
        hint = f"if it is a case, task, log or observable, {command} list {object_id} shows what can run on it"
        raise ResponderBotError("not_found", f"There is no alert {object_id}; {hint}.") from error
    note = f"`{command} list {alert.id}` shows what can run on it."
    clearance = own_clearance(context)
    who = "" if may_see(clearance, alert.tlp) else await who_may_see(context.services, alert.tlp)
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


FEATURE = Feature(
    commands={
        "alert": Command(Entry(on_alert_command), USAGE, "an alert in full", usage_error=subjects.missing_id(USAGE))
    }
)
