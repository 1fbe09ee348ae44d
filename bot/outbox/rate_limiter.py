"""How fast we may speak to Slack: its published rates, and what it told us by 429 (`slack.md 1`)."""

from dataclasses import dataclass

BURST_SHARE = 0.4  # of a minute's updates, this much may go at once
MACHINE_RESERVE = 5.0  # of the budget for updates, this much is kept for what people cause


@dataclass
class _Bucket:
    """`size` calls at once, `per_s` each second after."""

    size: float
    per_s: float
    left: float
    at: int

    def wait_ms(self, now: int, need: float) -> int:
        self.left = min(self.size, self.left + max(0, now - self.at) / 1000 * self.per_s)
        self.at = now
        return 0 if self.left >= need else int((need - self.left) / self.per_s * 1000) + 1


class RateLimiter:
    """Remembers what was sent, in memory: after a restart the first 429 teaches it again."""

    def __init__(self, *, post_burst: float = 3.0, posts_per_s: float = 1.0, updates_a_minute: float = 50.0) -> None:
        self._post_burst = post_burst
        self._posts_per_s = posts_per_s
        # What may go at once and what comes back within a minute are together no more than Slack takes in any minute.
        burst = updates_a_minute * BURST_SHARE
        self._tier_3 = {
            method: _Bucket(burst, (updates_a_minute - burst) / 60, burst, 0)
            for method in ("chat.update", "files.delete")
        }
        self._posts: dict[str, _Bucket] = {}
        self._held: dict[str, int] = {}

    def wait_ms(self, method: str, channel: str, now: int, *, by_person: bool) -> int:
        """How long a call must wait; 0: not at all."""
        held = max(self._held.get(method, 0), self._held.get(f"{method} {channel}", 0), self._held.get("", 0)) - now
        if held > 0:
            return held
        need = 1.0 if by_person or method != "chat.update" else 1.0 + MACHINE_RESERVE
        return self._bucket(method, channel, now).wait_ms(now, need)

    def took(self, method: str, channel: str, now: int) -> None:
        """A call was made."""
        self._bucket(method, channel, now).left -= 1

    def hold(self, method: str, channel: str, now: int, wait_ms: int) -> None:
        """Slack said 429. A post is limited by channel, everything else for the whole app; `method` "" is all."""
        name = f"{method} {channel}" if method == "chat.postMessage" else method
        self._held[name] = max(self._held.get(name, 0), now + wait_ms)

    def held(self, now: int) -> dict[str, int]:
        """What Slack holds back now, and for how many ms more."""
        return {name: until - now for name, until in self._held.items() if until > now}

    def _bucket(self, method: str, channel: str, now: int) -> _Bucket:
        if method in self._tier_3:
            return self._tier_3[method]
        if channel not in self._posts:
            self._posts[channel] = _Bucket(self._post_burst, self._posts_per_s, self._post_burst, now)
        return self._posts[channel]
