"""Live events for the open pages."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]


class PageFeed:
    """Publishes events to the open pages of the users concerned."""

    def __init__(self) -> None:
        self._pages: dict[asyncio.Queue[Event], str] = {}

    @contextmanager
    def page(self, user_id: str) -> Iterator["asyncio.Queue[Event]"]:
        """Subscribe an open page to its events for the duration of the block."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._pages[queue] = user_id
        try:
            yield queue
        finally:
            del self._pages[queue]

    def is_open(self, user_id: str) -> bool:
        """Whether this user has the page open."""
        return user_id in self._pages.values()

    def publish(self, event: Event, to: Collection[str] | None = None) -> None:
        """Publish to the pages of these users, or to all if `to` is None."""
        for queue, user_id in self._pages.items():
            if to is None or user_id in to:
                queue.put_nowait(event)
