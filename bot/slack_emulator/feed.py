"""Live events for the open pages."""

import asyncio
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]


class PageFeed:
    """Publishes events to the open pages of the users concerned."""

    def __init__(self) -> None:
        self._pages: dict[asyncio.Queue[str], tuple[str, bool]] = {}

    @contextmanager
    def page(self, user_id: str, *, panel: bool = True) -> Iterator["asyncio.Queue[str]"]:
        """Subscribe an open page, with or without the developer panel, to its events for the duration of the block."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._pages[queue] = (user_id, panel)
        try:
            yield queue
        finally:
            del self._pages[queue]

    def is_open(self, user_id: str) -> bool:
        """Whether this user has the page open."""
        return any(user_id == reader for reader, _ in self._pages.values())

    def publish(self, event: Event, to: Collection[str] | None = None) -> None:
        """Publish to the pages of these users, or to all if `to` is None."""
        self._put(event, [queue for queue, (user_id, _) in self._pages.items() if to is None or user_id in to])

    def publish_payload(self, payload: Event) -> None:
        """Publish to developer panels; a page without one learns only that there was a payload."""
        for panel, event in ((True, payload), (False, {"type": payload["type"]})):
            self._put(event, [queue for queue, (_, has_panel) in self._pages.items() if has_panel is panel])

    def _put(self, event: Event, queues: Collection["asyncio.Queue[str]"]) -> None:
        if queues:
            text = json.dumps(event)
            for queue in queues:
                queue.put_nowait(text)
