"""Renders the messages that tell how far a bulk is, and ask for its approval."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from bot.features.bulks import views as bulks
from bot.outbox import DesiredMessage, MessageOutbox
from bot.outbox.models import BULK, bulk_key, is_person
from core.models import BulkCounts, Person

if TYPE_CHECKING:
    from core.client import CoreClient


class BulkMessages:
    """Renders them from counts, which name no object.

    There is one where somebody asked for the bulk in Slack, in each channel that shows what waits for approval, and
    for each person who watches. In a channel one reply in its thread tells how it ended.
    """

    def __init__(
        self,
        core: "CoreClient",
        outbox: MessageOutbox,
        recipient: Callable[[str, str], Awaitable[Person | None]],
    ) -> None:
        """`recipient` is who gets news in a direct message, by team and Slack user; None for nobody any more."""
        self._core = core
        self._outbox = outbox
        self._recipient = recipient
        self._as_of: dict[str, int] = {}  # by bulk: the newest event that its message reflects

    async def of(self, bulk: BulkCounts, as_of: int, destinations: Iterable[str] = ()) -> list[DesiredMessage]:
        """The messages of a bulk there, and where it has some unless they reflect more than `as_of` already.

        `destinations` are channels, and `team:user` for direct messages.
        """
        posted = {message.key for message in await self._outbox.messages_named(f"{BULK}:{bulk.id}:")}
        keys = {bulk_key(bulk.id, destination): None for destination in destinations}
        if as_of < self._as_of.get(bulk.id, 0):
            keys = {key: None for key in keys if key not in posted}
        else:
            self._as_of.pop(bulk.id, None)
            keys |= dict.fromkeys(sorted(posted))
        return [message for key in keys for message in await self._messages(key, bulk)]

    def followed(self, last: int) -> None:
        """The feed was followed up to this event: what is asked for from now on is newer."""
        self._as_of = {bulk: as_of for bulk, as_of in self._as_of.items() if as_of > last}

    async def read(self, keys: Iterable[str], *, by_person: bool) -> list[DesiredMessage]:
        """The messages with these keys, as core has their bulks now. Raises ResponderBotError without its answer."""
        remaining = list(keys)
        bulks: dict[str, BulkCounts] = {}
        async for response in self._core.documents_in_pages(key.split(":")[1] for key in remaining):
            bulks.update({bulk.id: bulk for bulk in response.bulks})
            self._as_of.update({bulk.id: response.as_of for bulk in response.bulks})
        rendered = [(key, bulks.get(key.split(":")[1])) for key in remaining]
        desired: list[DesiredMessage] = []
        for key, bulk in rendered:
            if bulk is not None:
                desired += await self._messages(key, bulk, by_person=by_person)
        return desired

    async def _messages(self, key: str, bulk: BulkCounts, *, by_person: bool = False) -> list[DesiredMessage]:
        """The message for one destination, and in a channel the replies in its thread."""
        channel = key.rpartition(":")[2]
        is_direct = is_person(channel)
        person = await self._recipient(key.split(":")[2], channel) if is_direct else None
        if is_direct and person is None:
            return []

        buttons = await self._outbox.buttons.prepare(channel, key)
        content = bulks.progress(bulk, button=buttons)
        is_progress = not bulks.has_ended(bulk)
        desired = [DesiredMessage(key, channel, content, by_person=by_person, is_progress=is_progress, buttons=buttons)]
        if is_direct:
            return desired
        late = f"{BULK}late:{bulk.id}:{channel}"
        if not is_progress and bulk.counts:
            desired.append(DesiredMessage(f"{BULK}end:{bulk.id}:{channel}", channel, bulks.ended(bulk), thread_of=key))
        if bulk.not_released or await self._outbox.messages_named(f"{BULK}late:{bulk.id}:"):
            desired.append(DesiredMessage(late, channel, bulks.late(bulk), thread_of=key))
        return desired
