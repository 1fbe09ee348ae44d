"""Requests for access: somebody who isn't linked asks, and admins decide."""

from collections.abc import Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackClientError

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import person_name
from bot.features import responses
from bot.features.access_requests import views
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import is_home, is_in_modal, view_metadata, view_of
from bot.features.retries import UNKNOWN_DECISION
from bot.identity import admins
from bot.outbox.errors import classify
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import AccessRequest

STALE = "This button is no longer valid. The Home tab of this app lists the requests that wait."
NOBODY = (
    "Nobody can decide on requests here: no administrator of responder-bot is linked in Slack. "
    "Ask whoever runs responder-bot to link you."
)


async def on_request_button(context: Context) -> None:
    """Ask for access for the one who clicked."""
    if context.linked is not None:
        text = f"You have access already. `{context.services.command} help` shows what you can do."
    else:
        name = await _name_in_slack(context)
        if not context.services.access_channel() and not admins(await context.services.core.users(), context.team):
            raise ResponderBotError("conflict", NOBODY)
        text = views.waiting(await context.services.core.request_access(context.team, context.user, name))
    if is_home(context):
        await context.services.publish_home(context)
    else:
        await responses.respond(context, notices.notice(text), "Request access")


async def _name_in_slack(context: Context) -> str:
    """What the person is called. Raises ResponderBotError("forbidden") for who may not ask."""
    profile = await _slack_user(context, context.user)
    if profile.get("is_bot") or profile.get("is_app_user"):
        raise ResponderBotError("forbidden", "Apps can't ask for access; only people can.")
    if profile.get("deleted") or profile.get("is_stranger"):
        raise ResponderBotError("forbidden", "Only active members of this workspace can ask for access.")
    return str(profile.get("real_name") or profile.get("name") or "")


async def _slack_user(context: Context, user: str) -> Mapping[str, Any]:
    """What Slack says of a user; as a deactivated one if it knows none. Raises ResponderBotError("unavailable")."""
    try:
        profile: Mapping[str, Any] = (await context.services.slack.users_info(user=user))["user"]
    except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
        failure = classify(error, user)
        if failure.code in ("user_not_found", "user_not_visible"):
            return {"deleted": True}
        why = failure.message if failure.kind == "app_refused" else "Try again in a minute."
        raise ResponderBotError("unavailable", f"Slack doesn't say who this is. Nothing was done. {why}") from error
    return profile


# --- deciding -------------------------------------------------------------------------------------------------------


async def on_approve_button(context: Context) -> None:
    """Give access with the profile of the button. Core refuses who isn't an org-admin."""
    intent = await responses.clicked_intent(context, STALE)
    if await _approve(context, intent.object_id, intent.argument):
        await _confirm(context, "Approved.")


async def _approve(context: Context, request_id: str, profile: str) -> bool:
    """False if another login is asked for instead."""
    request = await context.core.access_request(request_id)
    if request.status == "pending" and (await _slack_user(context, request.slack_user)).get("deleted"):
        sentence = "This person's Slack account was deactivated, so nobody gets access by it. Deny the request."
        raise ResponderBotError("conflict", sentence)
    try:
        await context.core.approve_access(request_id, profile)
    except ResponderBotError as error:
        if error.code == "exists":
            shown = views.login_view(request, profile, error.message, in_list=is_in_modal(context))
            await context.show_modal(shown)
            return False
        if not await _is_done(context, request_id, error, "approved"):
            raise
    return True


async def on_deny_button(context: Context) -> None:
    """Ask for the reason."""
    intent = await responses.clicked_intent(context, STALE)
    request = await context.core.access_request(intent.object_id)
    if request.status != "pending":
        raise ResponderBotError("conflict", _decided(request))
    await context.show_modal(views.deny_view(request, in_list=is_in_modal(context)))


async def on_deny_view(context: Context) -> Json | None:
    """Deny the request with the reason."""
    view = view_of(context)
    metadata = view_metadata(view)
    request_id = str(metadata.get("id") or "")
    try:
        await context.core.deny_access(request_id, modals.values(view).get("reason", ""))
    except ResponderBotError as error:
        if not await _is_done(context, request_id, error, "denied"):
            raise
    return await _next_view(context, metadata, "Denied.")


async def on_login_view(context: Context) -> Json | None:
    """Give access with the login that was typed; what is wrong with it is shown at its field."""
    view = view_of(context)
    metadata = view_metadata(view)
    request_id, profile = str(metadata.get("id") or ""), str(metadata.get("profile") or "")
    try:
        await context.core.approve_access(request_id, profile, modals.values(view).get("login", "").strip())
    except ResponderBotError as error:
        if error.code in ("exists", "bad_request", "forbidden"):
            return modals.errors({"login": notices.sentence(error)})
        if not await _is_done(context, request_id, error, "approved"):
            raise
    return await _next_view(context, metadata, "Approved.")


async def _is_done(context: Context, request_id: str, error: ResponderBotError, status: str) -> bool:
    """Whether this person had decided so already, such as before a crash. Raises for another decision."""
    if UNANSWERED in error.details:
        raise ResponderBotError("unavailable", UNKNOWN_DECISION) from error
    if error.code != "conflict":
        return False
    request = await context.core.access_request(request_id)
    if request.status == status and request.decided_by == context.person.login:
        return True
    raise ResponderBotError("conflict", _decided(request)) from error


def _decided(request: AccessRequest) -> str:
    if request.status == "expired":
        return "This request has expired: nobody decided within 24 hours. The person can ask again."
    return f"{person_name(request.decided_by or '')} {request.status} this request already. Nothing was changed."


async def _confirm(context: Context, done: str) -> None:
    """Show the list again if it was clicked there; else the card itself tells."""
    if is_in_modal(context):
        await context.show_modal(await _list_view(context, done))


async def _next_view(context: Context, metadata: Mapping[str, Any], done: str) -> Json | None:
    """The list again if that is where it began, else the modal closes."""
    return modals.update(await _list_view(context, done)) if metadata.get("in_list") is True else None


# --- the list -------------------------------------------------------------------------------------------------------


async def on_requests_button(context: Context) -> None:
    """Show the requests that wait."""
    await context.show_modal(await _list_view(context))


async def _list_view(context: Context, done: str = "") -> dict[str, Any]:
    requests = await context.core.access_requests()
    return await responses.with_buttons(context, "access", lambda button: views.requests_view(requests, button, done))


FEATURE = Feature(
    actions={
        ids.ACCESS_REQUEST: Entry(on_request_button, Ack.WRITE, is_public=True),
        ids.ACCESS_APPROVE: Entry(on_approve_button, Ack.WRITE),
        ids.ACCESS_DENY: Entry(on_deny_button, modal_title="Deny access"),
        ids.ADMIN_REQUESTS: Entry(on_requests_button, modal_title="Requests for access"),
    },
    views={
        ids.ACCESS_DENY_VIEW: Entry(on_deny_view, Ack.RESPONSE),
        ids.ACCESS_LOGIN_VIEW: Entry(on_login_view, Ack.RESPONSE),
    },
)
