"""The durable queue to Slack: desired state for each message, pacing, retries; inbox of acknowledged clicks."""

from bot.outbox.models import DesiredMessage, MessageRecord
from bot.outbox.outbox import (
    OVERWRITE,
    DeliveryProblem,
    FeedCheckpoint,
    MessageOutbox,
    PendingInteraction,
    forget_messages,
)
from bot.outbox.rate_limiter import RateLimiter
from bot.outbox.sender import ClearanceGuard
from bot.outbox.store import REFRESH_MS

__all__ = [
    "OVERWRITE",
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
