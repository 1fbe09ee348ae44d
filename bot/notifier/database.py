"""Whether core's database is the one that the bot's messages belong to."""

import asyncio
from typing import TYPE_CHECKING, NoReturn

from bot.outbox import FeedCheckpoint, MessageOutbox
from core.common.errors import ResponderBotError
from core.models import Event

if TYPE_CHECKING:
    from core.client import CoreClient


def event_fingerprint(event: Event) -> str:
    """What differs from an event of another database that has the same number."""
    return f"{event.seq} {event.at} {event.type} {event.object_id}"


class DatabaseCheck:
    """Compares core's feed with the outbox's checkpoint, at start and after each time that core was away."""

    def __init__(self, core: "CoreClient", outbox: MessageOutbox) -> None:
        self._core = core
        self._outbox = outbox
        self.passed = asyncio.Event()
        self.id = ""
        """The database that was verified last."""

    def reset(self) -> None:
        """Core was away: another database may be behind it when it is back."""
        self.passed.clear()

    async def verify(self) -> None:
        """Check unless it has passed already; at the very first start note where core's feed ends.

        Raises ResponderBotError("conflict") with what to do if core's database is another one.
        """
        checkpoint = await self._outbox.checkpoint()
        if checkpoint is None:
            page = await self._core.events(None, wait_s=0)
            await self._outbox.commit_page([], page.last)
            await self._accept(page.database)
        elif not self.passed.is_set():
            await self._compare(checkpoint)
        self.passed.set()

    async def _compare(self, checkpoint: FeedCheckpoint) -> None:
        try:
            page = await self._core.events(checkpoint.cursor, wait_s=0)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            if "restored" in error.details:
                await self._reject("it was restored from a backup, and this bot knows of what came after that")
            page = await self._core.events(None, wait_s=0)
        if checkpoint.database and page.database != checkpoint.database:
            await self._reject("it is another one")
        if page.last < checkpoint.cursor:
            await self._reject(f"it ends at event {page.last}, and this bot has seen event {checkpoint.cursor}")
        if checkpoint.event and await self._event(checkpoint.cursor) not in ("", checkpoint.event):
            await self._reject(f"event {checkpoint.cursor} was another one")
        await self._accept(page.database)

    async def _accept(self, database: str) -> None:
        await self._outbox.accept_database(database)
        self.id = database

    async def _event(self, number: int) -> str:
        """The fingerprint of the event with this number; "" if core has deleted it."""
        try:
            page = await self._core.events(number - 1, wait_s=0)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            return ""
        return event_fingerprint(page.events[0]) if page.events else ""

    async def _reject(self, why: str) -> NoReturn:
        sentence = (
            f"Core's database is not the one that this bot's messages were made from ({why}): put the right one back,"
            " or the bot's of the same backup (`responder-bot restore FILE` does both), or run"
            " `responder-bot forget-messages`, which leaves the old messages in Slack as they are."
        )
        await self._outbox.reject_database(sentence)
        raise ResponderBotError("conflict", sentence)
