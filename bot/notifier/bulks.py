"""Renders the one message that tells in a channel how far a bulk is."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bot.cards import bulks as cards
from bot.cards.message import ButtonIds, Message, intents_in
from bot.outbox import DesiredMessage, MessageOutbox
from bot.outbox.models import BULK
from core.models import BulkCounts

if TYPE_CHECKING:
    from core.client import CoreClient

IDS_AT_ONCE = 200  # as many as core answers


class BulkMessages:
    """Renders them from counts, which name no object. Only who asked in Slack causes the first rendering."""

    def __init__(self, core: "CoreClient", outbox: MessageOutbox) -> None:
        self._core = core
        self._outbox = outbox
        self._as_of: dict[str, int] = {}  # by bulk: the newest event that its message reflects

    async def of(self, bulk: BulkCounts, as_of: int) -> list[DesiredMessage]:
        """The messages of a bulk that have been asked for, unless they reflect more than `as_of` already."""
        if as_of < self._as_of.get(bulk.id, 0):
            return []
        self._as_of.pop(bulk.id, None)
        posted = await self._outbox.messages_named(f"{BULK}:{bulk.id}:")
        return [await self._message(message.key, bulk) for message in posted]

    async def read(self, keys: Iterable[str], *, by_person: bool) -> list[DesiredMessage]:
        """The messages with these keys, as core has their bulks now. Raises ResponderBotError without its answer."""
        wanted = list(keys)
        ids = list(dict.fromkeys(key.split(":")[1] for key in wanted))
        found: dict[str, BulkCounts] = {}
        for start in range(0, len(ids), IDS_AT_ONCE):
            answer = await self._core.documents(ids[start : start + IDS_AT_ONCE])
            found.update({bulk.id: bulk for bulk in answer.bulks})
            self._as_of.update({bulk.id: answer.as_of for bulk in answer.bulks})
        rendered = [(key, found.get(key.split(":")[1])) for key in wanted]
        return [await self._message(key, bulk, by_person=by_person) for key, bulk in rendered if bulk is not None]

    async def _message(self, key: str, bulk: BulkCounts, *, by_person: bool = False) -> DesiredMessage:
        channel = key.rpartition(":")[2]

        def render(button: ButtonIds) -> Message:
            return cards.progress(bulk, button=button)

        ids, new = await self._outbox.buttons.prepare(channel, key, intents_in(render))
        is_progress = not cards.has_ended(bulk)
        return DesiredMessage(key, channel, render(ids), by_person=by_person, is_progress=is_progress, buttons=new)
