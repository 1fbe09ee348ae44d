"""The durable queue to Slack: desired state for each message, pacing, retries; inbox of acknowledged clicks."""

from bot.delivery.desk import NEVER, Delivery, Left, Problem, Seen, forget_messages
from bot.delivery.pace import Pace
from bot.delivery.sender import Gate
from bot.delivery.store import REPAINT_MS
from bot.delivery.words import Desired, Shown

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
