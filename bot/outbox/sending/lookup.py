"""Finds posts in Slack whose answer was lost, by the id in their metadata."""

from collections.abc import AsyncGenerator
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox.models import MessageRecord

EVENT_TYPE = "responder_bot"
CLOCK_SKEW_S = 600  # Slack's clock and ours may differ by this much
MAX_PAGES = 10


def metadata(post_id: str) -> dict[str, Any]:
    """The metadata of a message whose posts have this id."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": post_id}}


async def posts_of(
    slack: AsyncWebClient, message: MessageRecord, channel: str, from_ms: int, to_ms: int
) -> AsyncGenerator[str, None]:
    """The `ts` of each post of this message at about these times, in its channel or thread."""
    method = "conversations.replies" if message.root_ts else "conversations.history"
    request: dict[str, Any] = {
        "channel": channel,
        "ts": message.root_ts or None,
        "include_all_metadata": True,
        "limit": 200,
        "oldest": str(from_ms // 1000 - CLOCK_SKEW_S),
        "latest": str(to_ms // 1000 + 2 * CLOCK_SKEW_S),
    }
    for _ in range(MAX_PAGES):
        response = await slack.api_call(method, http_verb="GET", params=request)
        for candidate in response.get("messages") or []:
            if _post_id(candidate) == message.post_id:
                yield str(candidate["ts"])
        request["cursor"] = (response.get("response_metadata") or {}).get("next_cursor") or ""
        if not request["cursor"]:
            break


def _post_id(message: dict[str, Any]) -> str:
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != EVENT_TYPE:
        return ""
    return str((metadata.get("event_payload") or {}).get("key", ""))
