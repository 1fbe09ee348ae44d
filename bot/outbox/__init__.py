"""The durable queue to Slack: desired state for each message, pacing, retries; inbox of acknowledged clicks."""

from bot.outbox.models import Desired, Shown
from bot.outbox.outbox import NEVER, Delivery, Left, Problem, Seen, forget_messages
from bot.outbox.rate_limiter import Pace
from bot.outbox.sender import Gate
from bot.outbox.store import REPAINT_MS

__all__ = [
    "NEVER",
    "REPAINT_MS",
    "Delivery",
    "Desired",
    "Gate",
    "Left",
    "Pace",
    "Problem",
    "Seen",
    "Shown",
    "forget_messages",
]
