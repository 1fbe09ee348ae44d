"""Who works on an alert: `/responder assign ~id` and `unassign ~id`, and the buttons of its card."""

from functools import partial

from bot.block_kit import notices
from bot.block_kit.text import person_name
from bot.clearance import RedactedView, Subject
from bot.features import command_text, responses, subjects
from bot.features.alerts import find
from bot.features.alerts.views import card
from bot.features.authorization import own_clearance
from bot.features.base import Ack, Command, Context, Entry, Feature, Handler
from bot.features.payload import clicked_element, is_ephemeral, is_in_modal
from bot.features.runs.views import runs
from bot.message import Intent
from bot.outbox.models import LOST, RefreshRequest
from core.common.errors import ResponderBotError
from core.models import Alert

ANYWAY = "anyway"


async def on_assign_command(context: Context) -> None:
    """Assign the alert or the case to this person; from somebody else only with `anyway` behind the id."""
    word, object_id = command_text.split_name_and_id(context.text)
    subject, document = await subjects.with_document(context.core, object_id)
    case, login = document.case if subject.id == document.id else None, context.person.login
    alert = subjects.as_alert(context, subject, document) if case is None else None
    view = subjects.require_visible(context, subject)
    if word.casefold() not in ("", ANYWAY):
        hint = f"Type `{context.services.command} assign {object_id}` to make it yours."
        raise ResponderBotError("bad_request", f"Nothing was changed: `assign` doesn't take {word[:100]!r}. {hint}")
    by = case.owner if case is not None else alert and alert.assignee
    if by not in (None, "", login) and word.casefold() != ANYWAY:
        take = f"`{context.services.command} assign {object_id} {ANYWAY}` assigns it to you."
        sentence = f"{person_name(by or '')} works on {runs.target_in_full(view)}. Nothing was changed. {take}"
        raise ResponderBotError("conflict", sentence)
    if alert is not None:
        await _assign(context, alert, login)
        return
    responses.require_permission(context, "manageCase")
    await context.core.request("PATCH", f"/api/case/{object_id}", {"owner": login})
    context.refresh(object_id)
    await responses.respond(context, notices.notice(f"You own the case {runs.named(view)} now."), "Assigned")


async def on_unassign_command(context: Context) -> None:
    """Unassign the alert, if the caller is its assignee."""
    _, alert_id = command_text.split_name_and_id(context.text)
    await _unassign(context, await subjects.alert(context, alert_id))


async def on_release_command(context: Context) -> None:
    """Show what is in force on the alert with Undo, beside Unassign; unassign it if nothing is."""
    _, alert_id = command_text.split_name_and_id(context.text)
    if await context.core.measures(of=[alert_id]):
        note = "Nothing was changed: *Undo now* ends what is in force, *Unassign* leaves the alert."
        await find.show_in_full(context, alert_id, note=note)
    else:
        await _unassign(context, await subjects.alert(context, alert_id))


async def _unassign(context: Context, alert: Alert) -> None:
    subjects.require_visible(context, Subject.alert(alert))
    if alert.assignee != context.person.login and "manageAlert" in context.person.permissions:  # else core refuses
        who = f"{person_name(alert.assignee)} works" if alert.assignee else "Nobody works"
        raise ResponderBotError("conflict", f"{who} on {alert.id}, so you can't unassign it. Nothing was changed.")
    await _assign(context, alert, "")


async def on_assign_button(context: Context, intent: Intent) -> None:
    """Assign the alert to this person, or unassign it; ask first if it was assigned since they saw it."""
    alert, login = await context.core.alert(intent.object_id), context.person.login
    assignee = alert.assignee or ""
    if assignee not in ("", login, intent.argument):
        ask = partial(card.reassign, subjects.require_visible(context, Subject.alert(alert)), assignee)
        await responses.show_with_buttons(context, "Assigned", f"assign:{alert.id}", ask)
        return
    await _assign(context, alert, login if intent.what == "assign" else "")


async def _assign(context: Context, alert: Alert, login: str) -> None:
    """Have it assigned, and say so where no card was clicked that shows it, and to whoever loses it."""
    own, team = context.person.login, context.team
    await context.core.assign_alert(alert.id, login)
    context.refresh(alert.id)
    lost = alert.assignee if alert.assignee != own else None
    if user := await context.services.slack_user(team, lost) if lost else "":
        key = f"{LOST}:{alert.id}:{team}:{user}:{context.core.last_event}:{own}"
        context.refresh_requests.append(RefreshRequest(alert.id, key))
    if is_ephemeral(context) or is_in_modal(context) or not clicked_element(context.payload):
        view = RedactedView(Subject.alert(alert), own_clearance(context))
        text = f"{'You work' if login else 'Nobody works'} on {runs.named(view)} now."
        await responses.respond(context, notices.notice(text), "Assigned" if login else "Unassigned")


def _command(usage: str, handler: Handler, summary: str = "") -> Command:
    """One without a summary is not in `help`."""
    return Command(Entry(handler, Ack.WRITE), usage, summary, "manageAlert")


FEATURE = Feature(
    commands={
        "assign": _command(f"assign ~id [{ANYWAY}]", on_assign_command, "work on an alert; unassign: no longer"),
        "unassign": _command("unassign ~id", on_unassign_command),
        "take": _command(f"take ~id [{ANYWAY}]", on_assign_command),
        "release": _command("release ~id", on_release_command),
    }
)
