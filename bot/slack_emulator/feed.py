"""What changed, told live to the pages that are open."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]


class PageFeed:
    """Hands each event to the open pages of the people it concerns."""

    def __init__(self) -> None:
        self._pages: dict[asyncio.Queue[Event], str] = {}

    @contextmanager
    def page(self, user_id: str) -> Iterator["asyncio.Queue[Event]"]:
        """The events for one open page, as long as the block lasts."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._pages[queue] = user_id
        try:
            yield queue
        finally:
            del self._pages[queue]

    def is_open(self, user_id: str) -> bool:
        """Whether this person has the page open."""
        return user_id in self._pages.values()

    def publish(self, event: Event, to: Collection[str] | None = None) -> None:
        """Tell the pages of these people; of everybody when `to` is None."""
        for queue, user_id in self._pages.items():
            if to is None or user_id in to:
                queue.put_nowait(event)
