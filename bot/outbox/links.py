"""Addresses of messages in Slack."""

from collections.abc import Callable, Iterable

from bot.outbox.models import MessageRecord


def card_link(cards: Iterable[MessageRecord], clearance_of: Callable[[str], int | None], workspace_url: str) -> str:
    """The address of the card in the channel that shows most; "" before one is posted."""
    posted = [card for card in cards if card.ts]
    best = max(posted, key=lambda card: clearance_of(card.channel) or 0, default=None)
    if best is None or not workspace_url:
        return ""
    return f"{workspace_url.rstrip('/')}/archives/{best.slack_channel}/p{best.ts.replace('.', '')}"
