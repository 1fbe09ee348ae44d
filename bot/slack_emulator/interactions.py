"""Payloads that Slack sends for user actions. Pure functions."""

from dataclasses import dataclass
from typing import Any

from bot.slack_emulator.state import Channel, Json, Team, User, copied


@dataclass(frozen=True)
class InteractionOrigin:
    """Where an interaction happened: a message (possibly ephemeral), a view, or neither."""

    channel: Channel | None = None
    message: Json | None = None
    view: Json | None = None

    @property
    def holder(self) -> Json:
        """The message or view that contains the element."""
        return self.message or self.view or {}

    @property
    def is_ephemeral(self) -> bool:
        """Whether the message is ephemeral."""
        return bool(self.message and self.message.get("ephemeral"))

    @property
    def key(self) -> str:
        """Unique key of this message or view."""
        if self.view is not None:
            return str(self.view["id"])
        channel, message = self.channel_message()
        return f"{channel.id}:{message['ts']}"

    def channel_message(self) -> tuple[Channel, Json]:
        """Channel and message. Raises TypeError if the origin is not a message."""
        if self.channel is None or self.message is None:
            raise TypeError("the origin is not a message")
        return self.channel, self.message


def user_object(team: Team, user: User) -> Json:
    """The `user` object of an interaction."""
    return {"id": user.id, "username": user.name, "name": user.name, "team_id": team.id}


def shown_message(message: Json) -> Json:
    """A message as payloads include it."""
    return copied({key: value for key, value in message.items() if key not in ("ephemeral", "metadata")})


def base(team: Team, kind: str, user: User, token: str) -> Json:
    """Fields common to all interactions."""
    return {
        "type": kind,
        "user": user_object(team, user),
        "api_app_id": team.app_id,
        "token": token,
        "team": {"id": team.id, "domain": team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def _container(origin: InteractionOrigin, block_id: str) -> Json:
    if origin.view is not None:
        return {"type": "view", "view_id": origin.view["id"]}
    channel, message = origin.channel_message()
    container: Json = {
        "type": "message",
        "message_ts": message["ts"],
        "channel_id": channel.id,
        "is_ephemeral": origin.is_ephemeral,
    }
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    for number, attachment in enumerate(message.get("attachments") or [], start=1):
        if any(block["block_id"] == block_id for block in attachment.get("blocks") or []):
            container |= {"type": "message_attachment", "attachment_id": number, "is_app_unfurl": False}
    return container


def _context_fields(origin: InteractionOrigin) -> Json:
    if origin.view is not None:
        return {"view": copied(origin.view)}
    channel, message = origin.channel_message()
    where = {"id": channel.id, "name": channel.name}
    if origin.is_ephemeral:  # Slack omits ephemeral messages
        return {"channel": where}
    return {"channel": where, "message": shown_message(message)}


def block_actions(
    common: Json,
    origin: InteractionOrigin,
    actions: list[Json],
    *,
    trigger_id: str,
    response_url: str | None,
    state: Json,
) -> Json:
    """A click, a selection, or a dispatched input."""
    payload = {
        **common,
        "container": _container(origin, actions[0]["block_id"]),
        "trigger_id": trigger_id,
        **_context_fields(origin),
        "actions": actions,
    }
    if response_url is not None:
        payload |= {"state": {"values": copied(state)}, "response_url": response_url}
    return payload


def block_suggestion(common: Json, origin: InteractionOrigin, block: Json, element: Json, query: str) -> Json:
    """A query typed in a select menu with external options."""
    return {
        **common,
        "container": _container(origin, block["block_id"]),
        "action_id": element["action_id"],
        "block_id": block["block_id"],
        "value": query,
        **_context_fields(origin),
    }


def view_submission(common: Json, view: Json, trigger_id: str, response_urls: list[Json]) -> Json:
    """A submitted modal."""
    return {**common, "trigger_id": trigger_id, "view": copied(view), "response_urls": response_urls}


def view_closed(common: Json, view: Json, *, is_cleared: bool) -> Json:
    """A closed modal that has `notify_on_close`."""
    return {**common, "view": copied(view), "is_cleared": is_cleared}


def shortcut(common: Json, callback_id: str, trigger_id: str, action_ts: str) -> Json:
    """A global shortcut."""
    return {**common, "callback_id": callback_id, "trigger_id": trigger_id, "action_ts": action_ts}


def message_action(
    common: Json, callback_id: str, origin: InteractionOrigin, *, trigger_id: str, action_ts: str, response_url: str
) -> Json:
    """A message shortcut."""
    return {
        **common,
        "callback_id": callback_id,
        "trigger_id": trigger_id,
        "action_ts": action_ts,
        "response_url": response_url,
        "message_ts": origin.holder["ts"],
        **_context_fields(origin),
    }


CHANNEL_NAMES = {"im": "directmessage", "group": "privategroup"}


def slash_command(team: Team, user: User, channel: Channel, command: str, text: str, **more: Any) -> dict[str, str]:
    """A slash command, as form fields."""
    return {
        "team_id": team.id,
        "team_domain": team.domain,
        "channel_id": channel.id,
        "channel_name": CHANNEL_NAMES.get(channel.kind, channel.name),
        "user_id": user.id,
        "user_name": user.name,
        "command": command,
        "text": text,
        "api_app_id": team.app_id,
        "is_enterprise_install": "false",
        **more,
    }


def event_changed(team: Team, channel: Channel, before: Json, message: Json) -> Json:
    """The `message_changed` event. It has no `user`, so apps receive their own updates too."""
    inner = {"message": shown_message(message), "previous_message": shown_message(before)}
    return {**_hidden(team, channel, "message_changed"), **inner}


def event_deleted(team: Team, channel: Channel, before: Json) -> Json:
    """The `message_deleted` event."""
    inner = {"previous_message": shown_message(before), "deleted_ts": before["ts"]}
    return {**_hidden(team, channel, "message_deleted"), **inner}


def _hidden(team: Team, channel: Channel, subtype: str) -> Json:
    ts = team.next_ts()
    where = {"channel": channel.id, "channel_type": channel.kind, "ts": ts, "event_ts": ts}
    return {"type": "message", "subtype": subtype, "hidden": True, **where}


def event_message(team: Team, channel: Channel, message: Json) -> Json:
    """The `message` event for a new message."""
    shown = shown_message(message)
    return {
        **shown,
        "type": "message",
        "team": team.id,
        "channel": channel.id,
        "channel_type": channel.kind,
        "event_ts": message["ts"],
    }
