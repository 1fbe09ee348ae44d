"""An alert or a case and the threads that its messages go to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from bot.outbox import MessageRecord
from bot.settings import Route
from core.models import Alert, Artifact, Case, Person


@dataclass(frozen=True)
class Thread:
    """A thread by the key of its root message, and its channel."""

    channel: str
    key: str


@dataclass(frozen=True)
class ChannelAccess:
    """Which messages go where, and who sees what there."""

    routes: Mapping[str, Route]  # by channel: which alerts are posted there
    clearance: Callable[[str], int | None]  # of a channel; None: it isn't in the settings
    is_known: Callable[[str], bool]  # whether Slack has told about the channel, or it isn't in the settings
    changed: asyncio.Event  # set after each refresh of the channels, and when a message was held back
    person: Callable[[str, str], Awaitable[Person | None]]  # by team and Slack user

    def clearance_of(self, channel: str) -> int:
        """A channel that was taken out of the settings may show nothing any more."""
        return self.clearance(channel) or 0


@dataclass
class Timeline:
    """A root with what was read of it, while its messages are rendered."""

    root_id: str
    threads: list[Thread] = field(default_factory=list)
    alert: Alert | None = None  # None: it is a case
    case: Case | None = None  # once it was needed
    artifacts: dict[str, Artifact] = field(default_factory=dict)  # those that were needed, by id

    def in_thread_of(self, message: MessageRecord) -> "Timeline":
        """A copy with only the thread of this message."""
        return replace(self, threads=[Thread(message.channel, message.thread_of or message.key)])
