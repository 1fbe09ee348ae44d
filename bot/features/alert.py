"""`/responder alert ~id`: an alert in full, for the one who asked."""

from bot.cards.lists import alert_in_full
from bot.features import answers, subjects
from bot.features.base import Command, Entry, Feature, Moment
from bot.features.gate import own_clearance

USAGE = "alert ~id"


async def on_alert_command(moment: Moment) -> None:
    """Answers with everything this person may see of it."""
    _, object_id = subjects.id_in(moment, USAGE)
    await show(moment, object_id)


async def show(moment: Moment, object_id: str) -> None:
    """The alert, to this person."""
    alert = await moment.core.alert(object_id)
    note = f"`{moment.tools.command} list {alert.id}` shows what can run on it."
    await answers.answer(moment, alert_in_full(alert, clearance=own_clearance(moment), note=note))


FEATURE = Feature(commands={"alert": Command(Entry(on_alert_command), USAGE, "an alert in full")})
