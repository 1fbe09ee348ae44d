"""The durable queue to Slack (desired messages), the inbox of interactions, and what replicas share."""

from bot.outbox.inbox import PendingInteraction
from bot.outbox.models import DesiredMessage, MessageRecord
from bot.outbox.outbox import IGNORE_LATER_WRITES, DeliveryProblem, FeedCheckpoint, MessageOutbox, forget_messages
from bot.outbox.rate_limiter import RateLimiter
from bot.outbox.sender import ClearanceGuard
from bot.outbox.store import REFRESH_MS

__all__ = [
    "IGNORE_LATER_WRITES",
    "REFRESH_MS",
    "ClearanceGuard",
    "DeliveryProblem",
    "DesiredMessage",
    "FeedCheckpoint",
    "MessageOutbox",
    "MessageRecord",
    "PendingInteraction",
    "RateLimiter",
    "forget_messages",
]
