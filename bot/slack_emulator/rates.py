"""Slack's rate limits: tiers per method, and one message per second and channel."""

import math
from collections import deque
from collections.abc import Callable

from bot.slack_emulator.errors import SlackError

WINDOW_S = 60.0
# Calls per minute (docs.slack.dev, "Rate limits"): the least that Slack guarantees.
TIERS = {1: 10, 2: 20, 3: 50, 4: 100}  # tier 1 is "1+"; bursts let an app open all ten sockets
POSTS_BURST = 5  # Slack allows "short bursts" without a number
POSTS_PER_S = 1.0
POSTS_IN_TEAM = 300  # "several hundred messages per minute" per workspace


class RateLimits:
    """Counts calls in a sliding window of one minute. With `on=False` nothing is limited."""

    def __init__(self, clock: Callable[[], float], *, on: bool = True) -> None:
        self.on = on
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}
        self._buckets: dict[str, tuple[float, float]] = {}

    def count_call(self, method: str, tier: int) -> None:
        """Count a call of a method. Raises `ratelimited` above the tier's limit."""
        self._count(method, TIERS[tier])

    def count_message(self, channel_id: str) -> None:
        """Count a message to a channel. Raises `ratelimited`."""
        self._count("chat.postMessage", POSTS_IN_TEAM)
        now = self._clock()
        left, seen_at = self._buckets.get(channel_id, (float(POSTS_BURST), now))
        left = min(POSTS_BURST, left + (now - seen_at) * POSTS_PER_S)
        if self.on and left < 1:
            self._buckets[channel_id] = (left, now)
            raise _ratelimited((1 - left) / POSTS_PER_S)
        self._buckets[channel_id] = (left - 1, now)

    def _count(self, method: str, limit: int) -> None:
        now = self._clock()
        calls = self._calls.setdefault(method, deque())
        while calls and now - calls[0] >= WINDOW_S:
            calls.popleft()
        if self.on and len(calls) >= limit:
            raise _ratelimited(WINDOW_S - (now - calls[0]))
        calls.append(now)


def _ratelimited(wait_s: float) -> SlackError:
    return SlackError("ratelimited", status=429, retry_after_s=max(1, math.ceil(wait_s)))
