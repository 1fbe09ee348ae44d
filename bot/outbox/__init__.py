"""The durable queue to Slack: desired state for each message, pacing, retries; inbox of acknowledged clicks."""

from bot.outbox.models import DesiredMessage, MessageRecord
from bot.outbox.outbox import NEVER, DeliveryProblem, MessageOutbox, PendingInteraction, Seen, forget_messages
from bot.outbox.rate_limiter import RateLimiter
from bot.outbox.sender import ClearanceGuard
from bot.outbox.store import REPAINT_MS

__all__ = [
    "NEVER",
    "REPAINT_MS",
    "ClearanceGuard",
    "DeliveryProblem",
    "DesiredMessage",
    "MessageOutbox",
    "MessageRecord",
    "PendingInteraction",
    "RateLimiter",
    "Seen",
    "forget_messages",
]
