"""Fault injection for tests: faults are queued per method, and each call consumes one."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Fault:
    """One fault for one call."""

    kind: Literal["status", "error", "lose_answer", "late", "lose_request", "slow", "hold"]
    status: int = 200
    error: str = ""
    retry_after_s: int = 0
    seconds: float = 0.0
    until: asyncio.Event | None = None


class Faults:
    """Queues of faults. A method is a Web API method, `response_url`, `upload` or `download`.

    Faults of deliveries to the app are keyed by payload kind: `slash_commands`, `interactive`, `events_api`.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Fault]] = {}

    def ratelimit(self, method: str, retry_after_s: int = 1, times: int = 1) -> None:
        """Respond 429 with Retry-After without running the call."""
        self._add(method, Fault("status", status=429, error="ratelimited", retry_after_s=retry_after_s), times)

    def fail(self, method: str, status: int = 500, times: int = 1) -> None:
        """Respond with this HTTP status without running the call."""
        self._add(method, Fault("status", status=status), times)

    def error(self, method: str, code: str, times: int = 1) -> None:
        """Respond with this Slack error code without running the call."""
        self._add(method, Fault("error", error=code), times)

    def lose_answer(self, method: str, times: int = 1) -> None:
        """Run the call, then close the connection instead of responding."""
        self._add(method, Fault("lose_answer"), times)

    def late(self, method: str, until: asyncio.Event, times: int = 1) -> None:
        """Close the connection instead of responding; run the call once the event is set."""
        self._add(method, Fault("late", until=until), times)

    def lose_request(self, method: str, times: int = 1) -> None:
        """Close the connection without running the call."""
        self._add(method, Fault("lose_request"), times)

    def slow(self, method: str, seconds: float, times: int = 1) -> None:
        """Delay the call by this many seconds."""
        self._add(method, Fault("slow", seconds=seconds), times)

    def hold(self, method: str, until: asyncio.Event, times: int = 1) -> None:
        """Run the call once the event is set."""
        self._add(method, Fault("hold", until=until), times)

    def deliver_twice(self, kind: str, times: int = 1) -> None:
        """Deliver the next payload of this kind twice, as Slack sometimes does."""
        self._add(f"twice:{kind}", Fault("error"), times)

    def take(self, method: str) -> Fault | None:
        """Consume the next fault for this method, if any."""
        queue = self._queues.get(method)
        return queue.popleft() if queue else None

    def waiting(self, method: str) -> int:
        """Number of faults left for this method."""
        return len(self._queues.get(method, ()))

    def _add(self, method: str, fault: Fault, times: int) -> None:
        self._queues.setdefault(method, deque()).extend([fault] * times)
