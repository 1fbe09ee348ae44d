"""Who works on an alert: `/responder take ~id` and `release ~id`, and the buttons of its card."""

from bot.block_kit import notices
from bot.block_kit.text import person_name
from bot.features import responses, subjects
from bot.features.alerts.views import assignment
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.payload import is_ephemeral, is_in_modal
from bot.message import Intent
from bot.redaction import Subject
from core.common.errors import ResponderBotError
from core.models import Alert

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
    await _assign(context, alert_id, login)
    await _confirm(context, alert_id, login)


async def on_release_command(context: Context) -> None:
    """Let nobody work on the alert that this person had taken."""
    _, alert_id = subjects.require_id(context, RELEASE)
    alert = await context.core.alert(alert_id)
    subjects.require_visible(context, Subject.alert(alert))
    if context.person is None or alert.assignee != context.person.login:
        who = f"{person_name(alert.assignee)} works" if alert.assignee else "Nobody works"
        raise ResponderBotError("conflict", f"{who} on {alert_id}, so you can't release it. Nothing was changed.")
    await _assign(context, alert_id, "")
    await _confirm(context, alert_id, "")


async def on_take_button(context: Context, intent: Intent) -> None:
    """Assign the alert to this person. One that somebody else has taken meanwhile isn't taken from them unasked."""
    login = context.person.login if context.person else ""
    alert = await context.core.alert(intent.object_id)
    if alert.assignee and alert.assignee not in (login, intent.argument):
        await _ask_to_take_over(context, alert)
        return
    await _assign(context, alert.id, login)
    if is_ephemeral(context) or is_in_modal(context):  # else the card itself tells
        await _confirm(context, alert.id, login)


async def on_release_button(context: Context, intent: Intent) -> None:
    """Let nobody work on the alert; ask somebody else than who does whether to take it over."""
    alert = await context.core.alert(intent.object_id)
    if alert.assignee and (context.person is None or alert.assignee != context.person.login):
        await _ask_to_take_over(context, alert)
        return
    await _assign(context, alert.id, "")


async def _ask_to_take_over(context: Context, alert: Alert) -> None:
    subjects.require_visible(context, Subject.alert(alert))
    about, assignee = f"take:{alert.id}", alert.assignee or ""
    await responses.show_with_buttons(
        context, "Taken", about, lambda button: assignment.take_over(alert.id, assignee, button)
    )


async def _assign(context: Context, alert_id: str, login: str) -> None:
    await context.core.assign_alert(alert_id, login)
    context.refresh(alert_id)


async def _confirm(context: Context, alert_id: str, login: str) -> None:
    await responses.respond(
        context, notices.notice(f"{'You work' if login else 'Nobody works'} on {alert_id} now."), "Taken"
    )


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
