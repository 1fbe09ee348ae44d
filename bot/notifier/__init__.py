"""Follows core's event feed and decides which messages must change: see bot/docs/delivery.md."""

from bot.notifier.changes import FeedChanges
from bot.notifier.notifier import Notifier
from bot.notifier.timeline import ChannelAccess

__all__ = ["ChannelAccess", "FeedChanges", "Notifier"]
