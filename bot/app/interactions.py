"""What Slack delivers, read once. Pure; every payload is foreign and may have any shape."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bot.features import EVENTS, SHORTCUTS, VIEWS, action_for, command_for, options_for
from bot.features.base import Entry

InteractionType = Literal["command", "action", "options", "view", "shortcut", "event"]
INTERACTION_TYPES: tuple[InteractionType, ...] = ("command", "action", "options", "view", "shortcut", "event")


@dataclass(frozen=True)
class Interaction:
    """One thing that somebody did in Slack. `teams` are all teams that the payload names."""

    surface: InteractionType
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
    key: str


def read(surface: InteractionType, body: Mapping[str, Any]) -> Interaction:
    """The arrival in a payload; what is missing is an empty string."""
    team = _text(body, "team_id") or _text(body, "team", "id") or _text(body, "user", "team_id")
    payload = _mapping(body.get("event")) if surface == "event" else body
    arrival = Interaction(
        surface=surface,
        body=body,
        payload=payload,
        team=team,
        teams=_teams(body, payload),
        user=_text(body, "user_id") or _text(payload, "user", "id") or _text(payload, "user"),
        channel=_channel(surface, payload),
        message_ts=_text(body, "container", "message_ts") or _text(body, "message", "ts"),
        thread_ts=_text(body, "message", "thread_ts") or _text(body, "container", "thread_ts"),
        trigger_id=_text(body, "trigger_id"),
        response_url=_text(body, "response_url"),
        key="",
    )
    return Interaction(**{**vars(arrival), "key": _key(arrival)})


def is_of_slack(body: Mapping[str, Any]) -> bool:
    """Whether a payload has the shape that Slack's have; Bolt breaks on others before anything of ours sees them."""
    kind = body.get("type", "")
    if not isinstance(kind, str) or not isinstance(body.get("command", ""), str):
        return False
    if not _is_mapping_or_none(body, "team", "user", "view", "event", "enterprise"):
        return False
    view, event = _mapping(body.get("view")), _mapping(body.get("event"))
    if kind == "block_actions":
        return _has_texts(_clicked(body), "type", "action_id")
    if kind in ("view_submission", "view_closed"):
        return _has_texts(view, "type", "callback_id")
    if kind == "block_suggestion":
        return _has_texts(body, "action_id")
    if kind in ("shortcut", "message_action"):
        return _has_texts(body, "callback_id")
    if kind == "event_callback":
        return _has_texts(event, "type")
    return True


def _is_mapping_or_none(body: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(body.get(name), Mapping | None) for name in names)


def _has_texts(holder: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(holder.get(name), str) for name in names)


def entry_of(arrival: Interaction) -> tuple[Entry | None, str]:
    """The feature's entry for it, and the text of a command after its verb."""
    if arrival.surface == "command":
        entry, rest = command_for(_text(arrival.body, "text"))
        return entry, rest
    return _entry(arrival), ""


def _entry(arrival: Interaction) -> Entry | None:
    body = arrival.body
    if arrival.surface == "action":
        return action_for(_text(_clicked(body), "action_id"))
    if arrival.surface == "options":
        return options_for(_text(body, "action_id"))
    if arrival.surface == "view":
        return VIEWS.get(_text(body, "view", "callback_id"))
    if arrival.surface == "shortcut":
        return SHORTCUTS.get(_text(body, "callback_id"))
    return EVENTS.get(_text(arrival.payload, "type"))


def _channel(surface: InteractionType, payload: Mapping[str, Any]) -> str:
    """Where it happened; empty in a view, and in the Home, whose event names the direct message beside it."""
    if surface == "event" and _text(payload, "type") == "app_home_opened":
        return ""
    return (
        _text(payload, "channel_id")
        or _text(payload, "channel", "id")
        or _text(payload, "container", "channel_id")
        or _text(payload, "channel")
    )


def _teams(body: Mapping[str, Any], payload: Mapping[str, Any]) -> frozenset[str]:
    named = (
        _text(body, "team_id"),
        _text(body, "team", "id"),
        _text(body, "user", "team_id"),
        _text(payload, "user_team"),
    )
    return frozenset(team for team in named if team)


def _key(arrival: Interaction) -> str:
    """Material of the Idempotency-Key: the same for a delivery that Slack repeats (`slack.md 2`)."""
    body, clicked = arrival.body, _clicked(arrival.body)
    parts = {
        "command": [arrival.trigger_id],
        "action": [arrival.message_ts or _text(body, "view", "id"), _text(clicked, "action_id"),
                   _text(clicked, "action_ts")],
        "options": [_text(body, "action_id"), _text(body, "value")],
        "view": [_text(body, "view", "id")],
        "shortcut": [_text(body, "callback_id"), _text(body, "action_ts"), arrival.trigger_id],
        "event": [_text(body, "event_id")],
    }[arrival.surface]  # fmt: skip
    material = "\x00".join([arrival.surface, arrival.team, arrival.user, arrival.channel, *parts])
    return hashlib.sha256(material.encode("utf-8", "replace")).hexdigest()


def _clicked(body: Mapping[str, Any]) -> Mapping[str, Any]:
    actions = body.get("actions")
    return _mapping(actions[0]) if isinstance(actions, list) and actions else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(body: Mapping[str, Any], *path: str) -> str:
    found: Any = body
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else ""
