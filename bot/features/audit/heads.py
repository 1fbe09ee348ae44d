"""Posts what the audit publishes, changes of rights above all, in the channel of admins."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bot.features.audit import views
from bot.outbox import DesiredMessage, MessageOutbox
from core.common.tasks import repeat

if TYPE_CHECKING:
    from core.client import CoreClient

LOOK_S = 2.0


class Heads:
    """Follows the heads of the audit from the last one that was posted; at the first start from the newest."""

    def __init__(self, core: "CoreClient", outbox: MessageOutbox, channel: Callable[[], str]) -> None:
        """`channel` gives the channel; "" while it may not be posted to, which only delays."""
        self._core = core
        self._outbox = outbox
        self._channel = channel

    async def run(self) -> None:
        """Post what is new until cancelled."""
        await repeat("posting heads of the audit", LOOK_S, self._post)

    async def _post(self) -> None:
        channel = self._channel()
        if not channel:
            return
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
