"""The loop that follows core's event feed."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from bot.notifier.changes import FeedChanges
from bot.notifier.clearances import BACKOFF_S, ClearanceEnforcer
from bot.notifier.database import DatabaseCheck, event_fingerprint
from bot.notifier.isolation import isolated
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess
from bot.outbox import IGNORE_LATER_WRITES, REFRESH_MS, DesiredMessage, MessageOutbox
from core.common.errors import ResponderBotError

if TYPE_CHECKING:
    from core.client import CoreClient

WAIT_S = 30  # how long core may hold a request for the next events
MAX_ATTEMPTS = 5  # to write what was read while others write too

log = structlog.get_logger("bot.notifier")


class Notifier:
    """Turns events into desired messages. Of several replicas only the leader runs it."""

    def __init__(
        self, core: "CoreClient", outbox: MessageOutbox, channels: ChannelAccess, clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._channels = channels
        self._clock = clock_ms
        self._database = DatabaseCheck(core, outbox)
        self._renderer = Renderer(core, outbox, channels, clock_ms)
        self._enforcer = ClearanceEnforcer(self._renderer, outbox, channels)
        self.problem = ""
        """Why the feed isn't followed, as a sentence; "" while it is."""

    async def begin(self) -> None:
        """Check core's database. At the very first start note where its feed ends: only later events are shown.

        Raises ResponderBotError("conflict") with what to do if it isn't the one that the messages belong to.
        """
        await self._database.verify()

    async def run(self) -> None:
        """Follow the feed until cancelled. While core is down it is asked again without limit."""
        failures = 0
        self._database.reset()
        while True:
            try:
                await self._follow_once()
                failures, self.problem = 0, ""
            except ResponderBotError as error:
                self._database.reset()
                self.problem = error.message
                log.warning("feed_failed", code=error.code, reason=error.message)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    async def enforce_clearances(self) -> None:
        """Render again what shows more or less than a clearance covers; runs until cancelled."""
        await self._enforcer.run(self._database.passed)

    async def refresh(self, root_id: str, log_id: str = "") -> None:
        """Render the cards of this alert or case, and of a task log, before any events: a person did something."""
        await self._refresh(root_id, log_id, by_person=True)

    async def _refresh(self, root_id: str, log_id: str = "", *, by_person: bool) -> list[DesiredMessage]:
        desired: list[DesiredMessage] = []
        for _ in range(MAX_ATTEMPTS):
            since = self._outbox.last_write()
            timeline = await self._renderer.timeline(root_id)
            desired = await self._renderer.alert_cards(timeline, by_person=by_person)
            if log_id:
                log_cards = await self._renderer.log_cards(log_id, timeline)
                desired += [replace(card, by_person=by_person) for card in log_cards]
            if not await self._outbox.upsert(*desired, since=since):
                break
        return desired

    async def _follow_once(self) -> None:
        await self._database.verify()
        cursor = self._outbox.cursor()
        try:
            page = await self._core.events(cursor, wait_s=WAIT_S)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            self._database.reset()
            await self._database.verify()
            await self._catch_up()
            return
        if cursor is not None and page.last < cursor:
            self._database.reset()
            return
        self.problem = ""
        if page.events:
            last_event = event_fingerprint(page.events[-1])
            await self._commit_page(FeedChanges.of(page.events), page.last, last_event)

    async def _commit_page(self, changes: FeedChanges, last: int, last_event: str) -> None:
        """Write all messages of a page; those that another wrote meanwhile are rendered again, since either may be the
        older. The last attempt overwrites."""
        for attempt in range(MAX_ATTEMPTS):
            since = self._outbox.last_write() if attempt < MAX_ATTEMPTS - 1 else IGNORE_LATER_WRITES
            desired: list[DesiredMessage] = []
            for root_id in changes.roots:
                desired += await isolated(self._of_root(root_id, changes), root_id, otherwise=[])
            overtaken = await self._outbox.commit_page(desired, last, since=since, last_event=last_event)
            if not overtaken:
                return
            changes = replace(changes, roots=tuple(r for r in changes.roots if r in overtaken) or changes.roots)

    async def _of_root(self, root_id: str, changes: FeedChanges) -> list[DesiredMessage]:
        """All messages of an alert or a case that a page changes."""
        timeline = await self._renderer.timeline(root_id, is_new=root_id in changes.created_alerts)
        action_ids = [action_id for action_id, of_root in changes.actions if of_root == root_id]
        is_progress = changes.ended.isdisjoint(action_ids)
        desired = await isolated(self._renderer.alert_cards(timeline, is_progress=is_progress), root_id, otherwise=[])
        for log_id, case_id in changes.logs:
            if case_id == root_id:
                desired += await self._renderer.log_cards(log_id, timeline)
        for action_id in action_ids:
            has_ended = action_id in changes.ended
            desired += await isolated(
                self._renderer.action_messages(action_id, timeline, has_ended=has_ended), root_id, otherwise=[]
            )
        if root_id not in changes.changed:
            return desired
        rendered = {message.key for message in desired}
        others = [message for message in self._outbox.messages_of(root_id) if message.key not in rendered]
        return desired + (await self._enforcer.refresh(others, timeline))[0]

    async def _catch_up(self) -> None:
        """The bot was away longer than core keeps events: render recent cards again, then go on from now."""
        last = (await self._core.events(None, wait_s=0)).last
        await self._outbox.invalidate_clearances()
        for root_id in self._outbox.recent_roots(self._clock() - REFRESH_MS):
            await isolated(self._refresh(root_id, by_person=False), root_id, otherwise=[])
        await self._outbox.commit_page([], last)
        self._channels.changed.set()
