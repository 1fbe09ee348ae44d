"""How fast the bot may call Slack: Slack's published limits, and what its 429 responses ask for."""

from collections import defaultdict
from dataclasses import dataclass

from bot.outbox.models import OTHER, WITHHOLDING

BURST_SHARE = 0.4  # of a minute's updates, this share may go at once
NEWS_RESERVE = 0.25  # of what may go at once, this share is kept for what people cause and what must go
OTHER_RESERVE = 0.6  # and this one for that and for news: progress, cards of groups and bulk updates can wait


@dataclass
class _Bucket:
    """A token bucket: `size` calls at once, then `per_s` a second."""

    size: float
    per_s: float
    left: float = 0.0
    at: int = 0
    """When it had `left`: at first long ago, so it is full."""

    def wait_ms(self, now: int, need: float) -> int:
        self.left = min(self.size, self.left + max(0, now - self.at) / 1000 * self.per_s)
        self.at = now
        return 0 if self.left >= need else int((need - self.left) / self.per_s * 1000) + 1


class RateLimiter:
    """Token buckets in memory; after a restart the first 429 says how long to wait. All times are in ms."""

    def __init__(
        self,
        *,
        post_burst: float = 3.0,
        posts_per_s: float = 0.95,
        updates_a_minute: float = 50.0,
        update_every_s: float = 3.0,
    ) -> None:
        self.update_every_s = update_every_s
        """How often events update a message at most, progress and the rest counted apart; so do cards of groups."""
        # A burst and what refills within a minute are together no more than Slack takes in any minute.
        burst = updates_a_minute * BURST_SHARE
        self._tier_3 = {
            method: _Bucket(burst, (updates_a_minute - burst) / 60) for method in ("chat.update", "files.delete")
        }
        self._posts: defaultdict[str, _Bucket] = defaultdict(lambda: _Bucket(post_burst, posts_per_s))
        self._blocked_until: dict[str, int] = {}

    def wait_ms(self, method: str, channel: str, now: int, *, rank: int, ahead: int = 0) -> int:
        """How long a call must wait, with `ahead` others of its method that aren't recorded yet; 0: not at all."""
        until = max(self._blocked_until.get(name, 0) for name in (method, f"{method} {channel}", ""))
        if until > now:
            return until - now
        bucket, need = self._bucket(method, channel), 1.0 + (ahead if method in self._tier_3 else 0)
        if method == "chat.update" and rank > WITHHOLDING:
            need += bucket.size * (OTHER_RESERVE if rank >= OTHER else NEWS_RESERVE)
        return bucket.wait_ms(now, need)

    def record(self, method: str, channel: str) -> None:
        """Count a call."""
        self._bucket(method, channel).left -= 1

    def block(self, method: str, channel: str, now: int, wait_ms: int) -> None:
        """Wait before the next call of this method (chat.postMessage: to this channel); method "" blocks all."""
        name = f"{method} {channel}" if method == "chat.postMessage" else method
        self._blocked_until[name] = max(self._blocked_until.get(name, 0), now + wait_ms)

    def follow_clock(self, by_ms: int) -> None:
        """Move what is blocked with a clock that was changed by so much."""
        self._blocked_until = {name: until + by_ms for name, until in self._blocked_until.items()}

    def _bucket(self, method: str, channel: str) -> _Bucket:
        return self._tier_3[method] if method in self._tier_3 else self._posts[channel]
