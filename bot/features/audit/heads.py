"""Posts what the audit publishes, changes of rights above all, in the channel of admins."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from bot.features.audit import views
from bot.outbox import DesiredMessage, MessageOutbox
from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from core.client import CoreClient

LOOK_S = 2.0

log = structlog.get_logger("bot.notifier")


class Heads:
    """Follows the heads of the audit from the last one that was posted; at the first start from the newest."""

    def __init__(self, core: "CoreClient", outbox: MessageOutbox, channel: Callable[[], str]) -> None:
        """`channel` gives the channel; "" while it may not be posted to, which only delays."""
        self._core = core
        self._outbox = outbox
        self._channel = channel

    async def run(self) -> None:
        """Post what is new until cancelled."""
        while True:
            try:
                if channel := self._channel():
                    await self._post(channel)
            except ResponderBotError as error:
                log.warning("heads_not_posted", code=error.code, reason=error.message)
            except Exception:  # the bot would stop to lead
                log.exception("heads_not_posted")
            await asyncio.sleep(LOOK_S)

    async def _post(self, channel: str) -> None:
        after = await self._outbox.head()
        rows = await self._core.heads(after)
        if rows and after is not None:
            desired = [
                DesiredMessage(f"audit:{row.number}:{channel}", channel, views.published(row), by_person=True)
                for row in rows
            ]
            await self._outbox.commit_heads(desired, rows[-1].number)
        elif after is None:
            await self._outbox.commit_heads([], rows[-1].number if rows else 0)
