"""Trouble on demand, for tests: each fault is queued for a method and used up by its calls."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Fault:
    """One piece of trouble for one call."""

    kind: Literal["status", "error", "lost", "late", "unheard", "slow", "held"]
    status: int = 200
    error: str = ""
    retry_after_s: int = 0
    seconds: float = 0.0
    until: asyncio.Event | None = None


class Faults:
    """The queue of trouble. A method is `chat.postMessage` and so on, `response_url`, or `upload`.

    Trouble on the way to the app is named by what is sent: `slash_commands`, `interactive`, `events_api`.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Fault]] = {}

    def ratelimit(self, method: str, retry_after_s: int = 1, times: int = 1) -> None:
        """Answer 429 with Retry-After, and do nothing."""
        self._add(method, Fault("status", status=429, error="ratelimited", retry_after_s=retry_after_s), times)

    def fail(self, method: str, status: int = 500, times: int = 1) -> None:
        """Answer this HTTP status, and do nothing."""
        self._add(method, Fault("status", status=status), times)

    def error(self, method: str, code: str, times: int = 1) -> None:
        """Answer this error word of Slack's, and do nothing."""
        self._add(method, Fault("error", error=code), times)

    def lose_answer(self, method: str, times: int = 1) -> None:
        """Do it, then close the connection instead of answering."""
        self._add(method, Fault("lost"), times)

    def late(self, method: str, until: asyncio.Event, times: int = 1) -> None:
        """Close the connection instead of answering, and do it when the event is set."""
        self._add(method, Fault("late", until=until), times)

    def lose_request(self, method: str, times: int = 1) -> None:
        """Close the connection without having done anything."""
        self._add(method, Fault("unheard"), times)

    def slow(self, method: str, seconds: float, times: int = 1) -> None:
        """Do it this much later."""
        self._add(method, Fault("slow", seconds=seconds), times)

    def hold(self, method: str, until: asyncio.Event, times: int = 1) -> None:
        """Do it when the event is set."""
        self._add(method, Fault("held", until=until), times)

    def deliver_twice(self, kind: str, times: int = 1) -> None:
        """Send the app the next payload of this kind two times, as Slack sometimes does."""
        self._add(f"twice:{kind}", Fault("error"), times)

    def take(self, method: str) -> Fault | None:
        """The next fault for this call, if any."""
        queue = self._queues.get(method)
        return queue.popleft() if queue else None

    def waiting(self, method: str) -> int:
        """How many faults are still to come for this method."""
        return len(self._queues.get(method, ()))

    def _add(self, method: str, fault: Fault, times: int) -> None:
        self._queues.setdefault(method, deque()).extend([fault] * times)
