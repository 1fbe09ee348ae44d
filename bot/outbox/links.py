"""Addresses of messages in Slack."""

from collections.abc import Callable, Iterable

from bot.outbox.models import MessageRecord


def permalink(workspace_url: str, channel: str, ts: str) -> str:
    """The address of a message; "" if it isn't posted yet."""
    return f"{workspace_url.rstrip('/')}/archives/{channel}/p{ts.replace('.', '')}" if workspace_url and ts else ""


def card_link(cards: Iterable[MessageRecord], clearance_of: Callable[[str], int | None], workspace_url: str) -> str:
    """The address of the card in the channel that shows most; "" before one is posted."""
    posted = [card for card in cards if card.ts]
    best = max(posted, key=lambda card: clearance_of(card.channel) or 0, default=None)
    return permalink(workspace_url, best.slack_channel, best.ts) if best else ""
