"""`/responder alert ~id`: an alert in full, for the one who asked."""

from bot.cards.lists import alert_in_full
from bot.features import answers, subjects
from bot.features.base import Command, Context, Entry, Feature
from bot.features.gate import own_clearance
from core.common.errors import ResponderBotError

USAGE = "alert ~id"


async def on_alert_command(moment: Context) -> None:
    """Answers with everything this person may see of it."""
    _, object_id = subjects.id_in(moment, USAGE)
    await show(moment, object_id)


async def show(moment: Context, object_id: str) -> None:
    """The alert, to this person."""
    try:
        alert = await moment.core.alert(object_id)
    except ResponderBotError as error:
        if error.code != "not_found":
            raise
        hint = f"if it is a case, task, log or artifact, {moment.tools.command} list {object_id} tells of it"
        raise ResponderBotError("not_found", f"There is no alert {object_id}; {hint}.") from error
    note = f"`{moment.tools.command} list {alert.id}` shows what can run on it."
    await answers.answer(moment, alert_in_full(alert, clearance=own_clearance(moment), note=note))


FEATURE = Feature(
    commands={"alert": Command(Entry(on_alert_command), USAGE, "an alert in full", mistake=subjects.no_id(USAGE))}
)
