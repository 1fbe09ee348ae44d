"""The app's messages: validated as Slack does, then posted, updated or deleted."""

import json
from collections import deque
from typing import Any

from bot.slack_emulator.delivery import AppDelivery
from bot.slack_emulator.elements import with_ids
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.interactions import event_changed, event_deleted, event_message
from bot.slack_emulator.limits import BLOCKS_OF_MESSAGE, TEXT_OF_MESSAGE, blocks_size, problems
from bot.slack_emulator.state import Channel, Json, Team

TEXT_OF_UPDATE = 4000
KEPT_VERSIONS = 3  # of an updated message: whoever presses a button may not have seen the newest yet
METADATA_BYTES = 15_000  # Slack's limit for message metadata


def check(content: Json, *, text_limit: int = TEXT_OF_MESSAGE) -> None:
    """Raise Slack's error for a message that is empty, too long or malformed."""
    text = content.get("text")
    if not text and not content.get("blocks") and not content.get("attachments"):
        raise SlackError("no_text")
    if text is not None and not isinstance(text, str):
        raise SlackError("invalid_arguments")
    if text and len(text) > text_limit:
        raise SlackError("msg_too_long")
    for name in ("blocks", "attachments"):
        if content.get(name) is not None and not isinstance(content[name], list):
            raise SlackError("invalid_blocks_format" if name == "blocks" else "invalid_attachments")
    faults = problems("message", content)
    if len(faults) == 1 and blocks_size(content) > BLOCKS_OF_MESSAGE:
        raise SlackError("msg_blocks_too_long")
    if faults:
        messages = [f"[ERROR] {problem}" for problem in faults]
        raise SlackError("invalid_blocks", errors=faults, response_metadata={"messages": messages})
    _check_metadata(content.get("metadata"))


def _check_metadata(metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
        raise SlackError("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise SlackError("invalid_metadata_format")
    if len(json.dumps(metadata)) > METADATA_BYTES:
        raise SlackError("metadata_too_large")


def content_of(fields: Json) -> Json:
    """Text, blocks, attachments and metadata, with generated ids where the app set none."""
    content: Json = {"text": fields.get("text") or ""}
    if fields.get("blocks"):
        content["blocks"] = with_ids(fields["blocks"])
    if fields.get("attachments"):
        content["attachments"] = [
            _attachment(n, attachment) for n, attachment in enumerate(fields["attachments"], start=1)
        ]
    if fields.get("metadata"):
        content["metadata"] = fields["metadata"]
    return content


def _attachment(number: int, fields: Json) -> Json:
    attachment = {"id": number, "fallback": "[no preview available]", **fields}
    if attachment.get("blocks"):
        attachment["blocks"] = with_ids(attachment["blocks"])
    return attachment


def from_app(team: Team, content: Json) -> Json:
    """A message whose author is the app's bot."""
    author = {"user": team.bot_user_id, "bot_id": team.bot_id, "app_id": team.app_id, "team": team.id}
    return {"type": "message", **author, **content}


def send(team: Team, delivery: AppDelivery, channel: Channel, message: Json) -> Json:
    """Post a message and send the app the `message` event."""
    posted = team.post(channel, message)
    _send_message_event(team, delivery, channel, event_message(team, channel, posted))
    return posted


def update(team: Team, delivery: AppDelivery, channel: Channel, ts: str, changes: Json) -> Json:
    """Update one of the app's messages; keys set to None are removed."""
    before = dict(channel.messages[ts])
    channel.earlier.setdefault(ts, deque(maxlen=KEPT_VERSIONS)).append(before)
    edited = {"user": team.bot_user_id, "ts": team.next_ts()}
    changed = team.change(channel, ts, {**changes, "edited": edited})
    _send_message_event(team, delivery, channel, event_changed(team, channel, before, changed))
    return changed


def delete(team: Team, delivery: AppDelivery, channel: Channel, ts: str) -> None:
    """Delete one of the app's messages."""
    before = dict(channel.messages[ts])
    team.remove(channel, ts)
    _send_message_event(team, delivery, channel, event_deleted(team, channel, before))


def _send_message_event(team: Team, delivery: AppDelivery, channel: Channel, event: Json) -> None:
    if team.bot_user_id in channel.members:
        event_name = {"channel": "message.channels", "group": "message.groups", "im": "message.im"}[channel.kind]
        delivery.send_event(event_name, event, channel)
