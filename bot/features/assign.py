"""`/responder take ~id` and `release ~id`: who works on an alert."""

from bot.cards import notices
from bot.cards.text import person_name
from bot.features import responses, subjects
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.redaction import Subject
from core.common.errors import ResponderBotError

TAKE, RELEASE = "take ~id", "release ~id"
ANYWAY = "anyway"


async def on_take_command(context: Context) -> None:
    """Assign the alert to this person; from somebody else only with `anyway` behind the id."""
    word, alert_id = subjects.require_id(context, TAKE)
    alert = await context.core.alert(alert_id)
    login = context.person.login if context.person else ""
    subjects.require_visible(context, Subject.alert(alert))
    if alert.assignee not in (None, login) and word.casefold() != ANYWAY:
        take = f"`{context.services.command} take {alert_id} {ANYWAY}` takes it over."
        raise ResponderBotError(
            "conflict", f"{person_name(alert.assignee or '')} works on {alert_id}. Nothing was changed. {take}"
        )
    await context.core.assign_alert(alert_id, login)
    context.refresh(alert_id)
    await responses.respond(context, notices.notice(f"You work on {alert_id} now."))


async def on_release_command(context: Context) -> None:
    """Let nobody work on the alert that this person had taken."""
    _, alert_id = subjects.require_id(context, RELEASE)
    alert = await context.core.alert(alert_id)
    subjects.require_visible(context, Subject.alert(alert))
    if context.person is None or alert.assignee != context.person.login:
        who = f"{person_name(alert.assignee)} works" if alert.assignee else "Nobody works"
        raise ResponderBotError("conflict", f"{who} on {alert_id}, so you can't release it. Nothing was changed.")
    await context.core.assign_alert(alert_id, "")
    context.refresh(alert_id)
    await responses.respond(context, notices.notice(f"Nobody works on {alert_id} now."))


FEATURE = Feature(
    commands={
        "take": Command(
            Entry(on_take_command, Ack.WRITE),
            TAKE,
            "work on an alert",
            "manageAlert",
            usage_error=subjects.missing_id(TAKE),
        ),
        "release": Command(
            Entry(on_release_command, Ack.WRITE),
            RELEASE,
            "no longer work on it",
            "manageAlert",
            usage_error=subjects.missing_id(RELEASE),
        ),
    }
)
