"""Parse what Slack delivers. Pure functions; payloads are not trusted and may have any shape."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.block_kit.ids import HOME_VIEW, family
from bot.features.base import Entry
from bot.features.payload import clicked_element
from bot.features.registry import ACTIONS, EVENTS, OPTIONS, SHORTCUTS, VIEWS, command_for
from core.common.decoding import mapping

InteractionType = Literal["command", "action", "options", "view", "shortcut", "event"]
INTERACTION_TYPES: tuple[InteractionType, ...] = ("command", "action", "options", "view", "shortcut", "event")


@dataclass(frozen=True)
class Interaction:
    """One thing that somebody did in Slack. `teams` are all teams that the payload names."""

    type: InteractionType
    body: Mapping[str, Any]
    payload: Mapping[str, Any]
    team: str
    teams: frozenset[str]
    user: str
    channel: str
    message_ts: str
    thread_ts: str
    trigger_id: str
    response_url: str
    idempotency_key: str = ""

    @property
    def is_of_home(self) -> bool:
        """Whether it opens the App Home, or is in it or in a modal that was opened from there."""
        opens = self.payload.get("type") == "app_home_opened" and self.payload.get("tab", "home") == "home"
        return opens or _text(self.body, "view", "callback_id").rpartition(":")[2] == HOME_VIEW


def parse(interaction_type: InteractionType, body: Mapping[str, Any]) -> Interaction:
    """The interaction in a payload; what the payload lacks is an empty string."""
    teams = [_text(body, "team_id"), _text(body, "team", "id"), _text(body, "user", "team_id")]
    payload = mapping(body.get("event")) if interaction_type == "event" else body
    interaction = Interaction(
        type=interaction_type,
        body=body,
        payload=payload,
        team=next(filter(None, teams), ""),
        teams=frozenset(filter(None, [*teams, _text(payload, "user_team")])),
        user=_text(body, "user_id") or _text(payload, "user", "id") or _text(payload, "user"),
        channel=_channel(interaction_type, payload),
        message_ts=_text(body, "container", "message_ts") or _text(body, "message", "ts"),
        thread_ts=_text(body, "message", "thread_ts") or _text(body, "container", "thread_ts"),
        trigger_id=_text(body, "trigger_id"),
        response_url=_text(body, "response_url"),
    )
    return replace(interaction, idempotency_key=_idempotency_key(interaction))


def is_well_formed(body: Mapping[str, Any]) -> bool:
    """Whether a payload has the fields that Bolt relies on; it raises errors for others."""
    kind = body.get("type", "")
    if not isinstance(kind, str) or not isinstance(body.get("command", ""), str):
        return False
    if not all(isinstance(body.get(name), Mapping | None) for name in ("team", "user", "view", "event", "enterprise")):
        return False
    if kind == "block_actions":
        return _has_texts(clicked_element(body), "type", "action_id")
    if kind in ("view_submission", "view_closed"):
        return _has_texts(mapping(body.get("view")), "type", "callback_id")
    if kind == "block_suggestion":
        return _has_texts(body, "action_id")
    if kind in ("shortcut", "message_action"):
        return _has_texts(body, "callback_id")
    if kind == "event_callback":
        return _has_texts(mapping(body.get("event")), "type")
    return kind in ("", "url_verification")  # a command, and Slack's question for an address; the bot has no others


def _has_texts(holder: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(holder.get(name), str) for name in names)


def entry_of(interaction: Interaction) -> tuple[Entry | None, str]:
    """The feature's entry for it, and for a command the text after its verb. None: no release ever had one."""
    body = interaction.body
    if interaction.type == "command":
        return command_for(_text(body, "text"))
    if interaction.type == "action":
        return ACTIONS.get(family(_text(clicked_element(body), "action_id"))), ""
    if interaction.type == "options":
        return OPTIONS.get(family(_text(body, "action_id"))), ""
    if interaction.type == "view":
        return VIEWS.get(family(_text(body, "view", "callback_id"))), ""
    if interaction.type == "shortcut":
        return SHORTCUTS.get(_text(body, "callback_id")), ""
    return EVENTS.get(_text(interaction.payload, "type")), ""


def _channel(interaction_type: InteractionType, payload: Mapping[str, Any]) -> str:
    """The channel; "" in a view and in the App Home, whose event names the direct message channel beside it."""
    if interaction_type == "event" and _text(payload, "type") == "app_home_opened":
        return ""
    return (
        _text(payload, "channel_id")
        or _text(payload, "channel", "id")
        or _text(payload, "container", "channel_id")
        or _text(payload, "channel")
    )


def _idempotency_key(interaction: Interaction) -> str:
    """The same for each delivery of one interaction, see `bot/docs/slack.md#idempotency-key`."""
    body, clicked = interaction.body, clicked_element(interaction.body)
    parts = {
        "command": [interaction.trigger_id],
        "action": [interaction.message_ts or _text(body, "view", "id"), _text(clicked, "action_id"),
                   _text(clicked, "action_ts")],
        "options": [_text(body, "action_id"), _text(body, "value")],
        "view": [_text(body, "view", "id"), _text(body, "view", "hash")],  # what is changed is submitted once more
        "shortcut": [_text(body, "callback_id"), _text(body, "action_ts"), interaction.trigger_id],
        "event": [_text(body, "event_id")],
    }[interaction.type]  # fmt: skip
    fields = [interaction.type, interaction.team, interaction.user, interaction.channel, *parts]
    return hashlib.sha256("\x00".join(fields).encode("utf-8", "replace")).hexdigest()


def _text(body: Mapping[str, Any], *path: str) -> str:
    value: Any = body
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
