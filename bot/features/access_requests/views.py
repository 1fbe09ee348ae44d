"""Requests for access: the button to ask, the card for admins, the messages to the person, and the modals to decide."""

import json
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element, confirmation
from bot.block_kit.notices import request_button
from bot.block_kit.text import context, count, foreign, foreign_plain, person_name, section, slack_date
from bot.message import Block, ButtonIds, Intent, Message
from core.models import AccessRequest

MAX_SHOWN = 20  # requests in the modal
WHEN = "{date_short_pretty} {time}"
PROFILES = ("analyst", "read-only")
APPROVE, DENY = "access_approve", "access_deny"  # of intents


def waiting(request: AccessRequest) -> str:
    """What somebody with a pending request reads."""
    until = slack_date(request.expires_at, WHEN)
    return f"Your request for access waits for an admin until {until}. I'll let you know here in Slack."


# --- for admins -----------------------------------------------------------------------------------------------------


def card(request: AccessRequest, button: ButtonIds) -> Message:
    """The request with buttons, or what became of it."""
    blocks: list[Block] = [section(_who(request))]
    if request.status == "pending":
        blocks += [context(_would_get(request)), _buttons(request, button)]
        return Message(f"{foreign(request.name, 100)} asks for access to responder-bot", tuple(blocks))
    blocks.append(context(_outcome(request)))
    by = f" by {person_name(request.decided_by)}" if request.decided_by else ""
    return Message(f"{foreign(request.name, 100)} asked for access: {request.status}{by}", tuple(blocks))


def _who(request: AccessRequest) -> str:
    # The name is what they call themselves; the mention leads to their profile in Slack.
    asks = "asks" if request.status == "pending" else "asked"
    return f"*{foreign(request.name, 100)}* (<@{request.slack_user}>) {asks} for access to responder-bot"


def _would_get(request: AccessRequest) -> str:
    until = slack_date(request.expires_at, WHEN)
    return f"Would be {foreign(request.login, 254)}, and see up to TLP:AMBER · expires {until}"


def _outcome(request: AccessRequest) -> str:
    if request.status == "expired":
        return "Expired: nobody decided within 24 hours."
    by = f"by {person_name(request.decided_by or '')}, {slack_date(request.decided_at or request.created_at, WHEN)}"
    if request.status == "approved":
        return f"Approved as {request.profile} ({foreign(request.login, 254)}) {by}"
    reason = foreign(request.message or "", 1000)
    return f"Denied {by}" + (f": {reason}" if reason else "")


def _buttons(request: AccessRequest, button: ButtonIds) -> Block:
    elements = []
    for profile in PROFILES:
        may = "run responders" if profile == "analyst" else "read, and run nothing"
        text = f"{foreign_plain(request.name, 60)} will be {request.login[:100]}, may {may}, and sees up to TLP:AMBER."
        element = button_element(
            f"Approve as {profile}",
            ids.ACCESS_APPROVE,
            button(Intent(APPROVE, request.id, profile)),
            of=f"{profile}{request.id}",
            style="primary" if profile == PROFILES[0] else "",
            confirm=confirmation("Give access?", text, "Approve"),
        )
        elements.append(element)
    deny = button_element("Deny", ids.ACCESS_DENY, button(Intent(DENY, request.id)), of=request.id, style="danger")
    return actions(*elements, deny)


def requests_view(requests: Sequence[AccessRequest], button: ButtonIds, done: str = "") -> dict[str, Any]:
    """The requests that wait, the newest first; `done` says what was decided just now."""
    pending = [request for request in requests if request.status == "pending"]
    head = f"{count(len(pending), 'request')} for access" if pending else "Nobody waits for access."
    blocks: list[Block] = [section(foreign(done, 1000))] if done else []
    blocks.append(section(f"*{head}*"))
    for request in pending[:MAX_SHOWN]:
        blocks += [section(_who(request)), context(_would_get(request)), _buttons(request, button)]
    if len(pending) > MAX_SHOWN:
        blocks.append(context(f"and {len(pending) - MAX_SHOWN} more, which are shown once these are decided"))
    return modals.modal("Requests for access", blocks, callback_id=ids.NOTICE_VIEW)


def deny_view(request: AccessRequest, *, in_list: bool) -> dict[str, Any]:
    """Asks for the reason, which the person reads."""
    reason = modals.text_field(
        "reason", "Reason", multiline=True, hint="The person reads it, and the admins on the card."
    )
    metadata = json.dumps({"id": request.id, "in_list": in_list})
    blocks = [section(_who(request)), reason]
    return modals.modal(
        "Deny access", blocks, callback_id=ids.ACCESS_DENY_VIEW, submit="Deny", metadata=metadata, close="Cancel"
    )


def login_view(request: AccessRequest, profile: str, why: str, *, in_list: bool) -> dict[str, Any]:
    """Asks for another login, since the one of the request can't be had (`why`)."""
    slack_id = foreign(f"{request.team}:{request.slack_user}", 100)
    link = f"`responder-bot user link {foreign(request.login, 254)} --slack-id {slack_id}`"
    blocks = [
        section(_who(request)),
        section(f"{foreign(why, 500)} If that user is the same person, run {link} instead."),
        modals.text_field("login", "Login for this person", placeholder="such as carla.m", optional=False),
    ]
    metadata = json.dumps({"id": request.id, "profile": profile, "in_list": in_list})
    submit = f"Approve as {profile}"
    return modals.modal(
        "Another login", blocks, callback_id=ids.ACCESS_LOGIN_VIEW, submit=submit, metadata=metadata, close="Cancel"
    )


# --- for the person -------------------------------------------------------------------------------------------------


def decision(request: AccessRequest, command: str) -> Message:
    """What the person who asked reads once it is decided or has expired."""
    if request.status == "approved":
        may = "see alerts and run responders" if request.profile == "analyst" else "see alerts, and run nothing"
        text = (
            f"You have access to responder-bot now, as {foreign(request.login, 254)}: you may {may}. "
            f"`{command} help` shows what you can do."
        )
        return Message(text, (section(text),))
    if request.status == "denied":
        reason = foreign(request.message or "", 1000, lines=True)
        text = f"{person_name(request.decided_by or '')} denied your request for access to responder-bot" + (
            f": {reason}" if reason else "."
        )
        return Message(text, (section(text),))
    text = "Nobody decided on your request for access to responder-bot within 24 hours. You can ask again."
    return Message(text, (section(text), request_button()))
