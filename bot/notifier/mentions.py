"""Who is mentioned about new alerts, such as whoever is on call about a critical one (bot/docs/storms.md#mentions)."""

from bot.notifier.grouper import AlertGrouper
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess, Thread, Timeline
from bot.outbox import DesiredMessage, MessageOutbox
from core.common.clock import MINUTE_MS

EVERY_MS = 10 * MINUTE_MS  # senders set the severity, and could page people all night


class Mentions:
    """The mentions of one page of the feed; `mentioned` is then written with it."""

    def __init__(self, outbox: MessageOutbox, access: ChannelAccess, renderer: Renderer, now_ms: int) -> None:
        self._outbox = outbox
        self._access = access
        self._renderer = renderer
        self._now = now_ms
        self.mentioned: dict[str, int] = {}
        """When somebody was mentioned last, by channel (ms)."""

    async def of(self, timeline: Timeline, grouper: AlertGrouper) -> list[DesiredMessage]:
        """A reply to the card of a new alert, or to that of its group, in each channel that wants one now."""
        alert, replies = timeline.alert, list[DesiredMessage]()
        if alert is None:
            return []
        for channel, by_severity in self._access.mentions.items():
            entry = grouper.changes.alerts.get((alert.id, channel))
            if entry is None or alert.severity not in by_severity or not await self._is_due(channel):
                continue
            self.mentioned[channel] = self._now
            card = next((thread for thread in timeline.threads if thread.channel == channel), None)
            replies += await self._renderer.mentions(timeline, [card or Thread(channel, entry.group)])
        return replies

    async def _is_due(self, channel: str) -> bool:
        last = self.mentioned.get(channel) or await self._outbox.mentioned_at(channel)
        return not 0 <= self._now - last < EVERY_MS  # also after the clock was set back
