"""The durable queue to Slack (desired messages), the inbox of interactions, and what replicas share."""

from bot.outbox.inbox import PendingInteraction
from bot.outbox.models import DesiredMessage, MessageRecord, RefreshRequest
from bot.outbox.outbox import DeliveryProblem, MessageOutbox
from bot.outbox.refreshes import StoredRequest
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.sending.sender import ClearanceGuard
from bot.outbox.store import REFRESH_MS, Stores, open_stores

__all__ = [
    "REFRESH_MS",
    "ClearanceGuard",
    "DeliveryProblem",
    "DesiredMessage",
    "MessageOutbox",
    "MessageRecord",
    "PendingInteraction",
    "RateLimiter",
    "RefreshRequest",
    "StoredRequest",
    "Stores",
    "open_stores",
]
