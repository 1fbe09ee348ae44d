"""The one writer of messages: it follows core's event feed, and renders what people and clearances ask for."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from bot.features.runs.views import undo_state
from bot.notifier.asking import Asking
from bot.notifier.bulks import BulkMessages
from bot.notifier.changes import FeedChanges, HeldEvents, ReadDocument, has_new_alerts, merge
from bot.notifier.clearances import ClearanceEnforcer
from bot.notifier.group_cards import GroupCards
from bot.notifier.grouper import AlertGrouper
from bot.notifier.isolation import CORE_UNAVAILABLE, isolated
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess, Thread, Timeline, ids_in
from bot.outbox.alert_groups import is_group
from bot.outbox.models import BULK, FOR_PERSON, LOG, LOST, DesiredMessage, card_key, digest, is_bulk
from bot.outbox.outbox import MessageOutbox
from bot.outbox.refreshes import StoredRequest
from bot.outbox.store import REFRESH_MS
from bot.storms import CLOSE_S, GATHER_S
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.tasks import Backoff, cancel_and_wait, repeat
from core.models import BulkCounts, Document, EventPage, parse_id

if TYPE_CHECKING:
    from core.client import CoreClient

WAIT_S = 30  # how long core may hold a request for the next events
MERGE_S = 0.15  # progress waits this long for what follows: a quick run is over by then, and is shown once
REQUESTS_AT_ONCE = 20
AFTER_FAILURE = Backoff(0.2, 5.0)

INTERNAL_ERROR = (
    "Core's changes can't be followed because of an internal error of the bot, which the log describes; it is tried"
    " again. Please report it."
)

log = structlog.get_logger("bot.notifier")


@dataclass
class _Page:
    """What is written together: for a page of the feed its documents and changes; `desired` isn't stored yet."""

    documents: Sequence[Document]
    changes: FeedChanges
    grouper: AlertGrouper
    asking: Asking
    desired: list[DesiredMessage] = field(default_factory=list)

    def has_run(self, document: Document) -> bool:
        """Whether something ran on this alert, which is not new."""
        return document.alert is not None and document.id in self.changes.acted_on


class Notifier:
    """Decides what messages shall show. Of several replicas only the leader runs it, so that nothing overtakes it."""

    def __init__(
        self, core: "CoreClient", outbox: MessageOutbox, channels: ChannelAccess, clock_ms: Callable[[], int]
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._channels = channels
        self._clock = clock_ms
        self._database = ""  # the id of core's
        self.is_misled = asyncio.Event()
        """Set once core has another database than the messages are of: none of them changes any more."""
        self._renderer = Renderer(core, outbox, channels, clock_ms)
        self._bulks = BulkMessages(core, outbox, channels, self._renderer)
        self._group_cards = GroupCards(self._renderer, outbox, channels, clock_ms, self._documents, core)
        self._enforcer = ClearanceEnforcer(
            self._renderer, outbox, channels, self._documents, self._group_cards, self._bulks
        )
        self._groups_at: float | None = None  # on the loop's clock: when to render the cards of groups; None: no need
        self._has_gap = False  # the bot was away longer than core keeps events
        self._rendered_as_of: dict[str, int] = {}  # by root: documents that are newer than the feed's cursor
        self.problem = ""
        """Why the feed isn't followed, as a sentence; "" while it is."""

    async def begin(self) -> None:
        """Check core's database, which may be another one than before whenever core was away.

        At the very first start note where its feed ends: only later events are shown. Raises `misled`.
        """
        cursor, database = await self._outbox.cursor(), await self._outbox.core_database()
        try:
            page = await self._core.events(cursor, wait_s=0)
        except ResponderBotError as error:
            if error.code != "gone":
                raise
            page = await self._core.events(None, wait_s=0)
        if database and (page.database != database or page.last < (cursor or 0)):
            self.is_misled.set()
            self.problem = self.misled().message
            raise self.misled()
        if cursor is None:
            await self._outbox.commit_page([], page.last)
        if not database:
            await self._outbox.set_core_database(page.database)
        self._database = page.database

    def misled(self) -> ResponderBotError:
        sentence = "Core has another database than this bot's messages are of; name the one of this core with "
        return ResponderBotError("conflict", f"{sentence}[core] database, or its core with [bot] core_url.")

    async def run(self) -> None:
        """Follow the feed until cancelled. While core is down it is asked again without limit."""
        await repeat("feed", 0, self._follow_until_failure, backoff=AFTER_FAILURE)

    async def _follow_until_failure(self) -> None:
        try:
            await self._follow()
        except ResponderBotError as error:
            if error.code != "gone":
                self.problem = error.message
                raise
        except Exception:
            self.problem = INTERNAL_ERROR
            raise

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Do what comes next, one thing after the other. Raises ResponderBotError when core or the database fails."""
        await self.begin()
        if self._has_gap:
            await self._catch_up()
            self._has_gap = False
        await self._serve_requests()
        loop, held = asyncio.get_running_loop(), HeldEvents(last=await self._outbox.cursor())
        self._rendered_as_of.clear()
        self._groups_at = loop.time()
        self._enforcer.restart()
        is_enforcing = True
        alerts_at = 0.0  # when alerts came last
        page = asyncio.create_task(self._next_page(held.last))
        requested = asyncio.create_task(self._outbox.refresh_requested())
        changed = asyncio.create_task(self._channels.changed.wait())
        try:
            while True:
                timeout = 0.0 if is_enforcing else _left_s(loop.time(), held.commit_at, self._groups_at)
                await asyncio.wait({page, requested, changed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if requested.done():
                    requested.result()
                    await self._serve_requests()
                    requested = asyncio.create_task(self._outbox.refresh_requested())
                await self._render_changed_groups()
                if changed.done():
                    self._channels.changed.clear()
                    changed = asyncio.create_task(self._channels.changed.wait())
                    self._enforcer.restart()
                    is_enforcing = True
                if page.done():
                    events = page.result()
                    if events.last < (held.last or 0):
                        return  # to look at core's database again
                    self._hold(events, held)
                    is_storm = loop.time() - alerts_at < CLOSE_S
                    if has_new_alerts(events):
                        alerts_at = loop.time()
                    page = asyncio.create_task(self._next_page(held.last, GATHER_S if is_storm else 0.0))
                if held.is_due(loop.time()):
                    await self._commit(held)
                    held = HeldEvents(last=held.last)
                elif is_enforcing:
                    is_enforcing = await self._enforcer.enforce_some()
                    if not is_enforcing:
                        self.problem = ""
        finally:
            await cancel_and_wait(page, requested, changed)

    def _hold(self, page: EventPage, held: HeldEvents) -> None:
        now = asyncio.get_running_loop().time()
        if page.events:
            held.commit_at = held.commit_at or now + MERGE_S
        held.add(page)
        self.problem = ""
        # `erase` or another replica may have changed a group, which is no event.
        self._groups_at = self._groups_at or now + self._outbox.update_every_s

    async def _next_page(self, after: int | None, gather_s: float = 0.0) -> EventPage:
        try:
            return await self._core.events(
                after, wait_s=WAIT_S, database=self._database, documents=True, gather_s=gather_s
            )
        except ResponderBotError as error:
            self._has_gap = self._has_gap or error.code == "gone"
            raise

    async def _serve_requests(self) -> None:
        """Render what people asked to see again."""
        while requests := await self._outbox.refresh_requests(REQUESTS_AT_ONCE):
            of_roots = (one for one in requests if not is_group(one.root_id) and not is_bulk(one.root_id))
            named = grouped((one.root_id, one.also.removeprefix(f"{LOG}:")) for one in of_roots)
            documents = await self._documents(named)
            grouper = await AlertGrouper.of(self._outbox, self._channels, self._clock, named)
            progress = [one.root_id for one in requests if is_bulk(one.root_id) and not one.reminds_at]
            page = _Page([], FeedChanges(), grouper, Asking(self._outbox, self._clock(), is_reminder=True))
            page.desired += await isolated(self._bulks.read(progress, by_person=True), "", otherwise=[])
            for request in requests:
                work = self._of_request(request, documents.get(request.root_id), page)
                page.desired += await isolated(work, request.root_id, otherwise=[])
            page.desired += await self._counts(page.asking)
            await self._outbox.commit_refresh(page.desired, requests, grouper.changes, page.asking.state)
            await self._render_groups(grouper)

    async def _of_request(self, request: StoredRequest, document: Document | None, page: _Page) -> list[DesiredMessage]:
        """What somebody wants to see again, or what reminds of it; `document` is None of a group or a bulk."""
        if is_group(request.root_id):
            page.grouper.changes.needs_update(request.root_id, FOR_PERSON)
        elif is_bulk(request.root_id) and request.reminds_at:
            return await self._bulks.remind(request.root_id.partition(":")[2], page.asking)
        elif document is not None and request.reminds_at:
            return await self._reminders(document, page.asking)
        elif document is not None:
            return await self._requested(document, request.also, page, only_in=request.channel)
        return []

    async def _counts(self, asking: Asking) -> list[DesiredMessage]:
        """What counts the requests for those who are not asked about each, and shows them the worst."""
        named = grouped((root_id, run_id) for _, (_, root_id, run_id) in asking.counted.values())
        documents, desired = await self._documents(named), list[DesiredMessage]()
        for key, (number, (_, root_id, run_id)) in asking.counted.items():
            of_bulk = self._bulks.counted(key, number, root_id) if root_id and not run_id else None
            desired.append(await (of_bulk or self._renderer.counted(key, number, documents.get(root_id), run_id)))
        return desired

    async def _reminders(self, document: Document, asking: Asking) -> list[DesiredMessage]:
        """The requests on an alert or a case for which half of the time is over."""
        timeline = await self._renderer.timeline(document)
        return [one for action in document.actions for one in await self._renderer.requests(action, timeline, asking)]

    async def _requested(
        self, document: Document, also: str, page: _Page | None, *, only_in: str = ""
    ) -> list[DesiredMessage]:
        """The cards of what somebody wants to see; what is in a group gets a card of its own, in one channel or all."""
        timeline = await self._renderer.timeline(document, page.desired if page is not None else ())
        if page is not None:
            await page.grouper.set_threads(timeline, needs_card=True, only_in=only_in)
        if only_in and self._channels.is_set_up(only_in) and document.alert is not None:
            card = Thread(only_in, card_key(document.id, only_in))  # which the bot may have forgotten
            timeline.threads = list(dict.fromkeys([*timeline.threads, card]))
        cards = [*await self._renderer.alert_cards(timeline), *await self._renderer.case_cards(timeline)]
        cards += [one for run in document.actions for one in await self._renderer.replaced(run, timeline)]
        if also.startswith(LOST):
            return cards + await self._renderer.lost(also, timeline)
        return cards + (await self._renderer.log_cards(also.removeprefix(f"{LOG}:"), timeline) if also else [])

    async def _documents(self, named: Mapping[str, Iterable[str]]) -> Mapping[str, Document]:
        """The documents of these roots as core has them now, each with what is named of it.

        One that doesn't exist is left out. One that core fails to read is `unreadable`, and stops no other. Raises
        ResponderBotError if core is unavailable.
        """
        try:
            return await self._read_documents(i for root_id, parts in named.items() for i in (root_id, *parts))
        except ResponderBotError as error:
            if error.code in CORE_UNAVAILABLE:
                raise
            if len(named) == 1:
                log.warning("document_unreadable", root_id=next(iter(named)), code=error.code, reason=error.message)
                return {root_id: Document(id=root_id, unreadable=[root_id]) for root_id in named}
        documents: dict[str, Document] = {}
        for root_id, parts in named.items():
            documents.update(await self._documents({root_id: parts}))
        return documents

    async def _read_documents(self, ids: Iterable[str]) -> Mapping[str, Document]:
        documents: dict[str, Document] = {}
        async for response in self._core.documents_in_pages(i for i in ids if parse_id(i) is not None):
            for document in response.documents:
                earlier = documents.get(document.id)
                documents[document.id] = document if earlier is None else merge(earlier, document)
                self._rendered_as_of[document.id] = response.as_of
        return documents

    # --- pages of the feed ------------------------------------------------------------------------------------------

    async def _commit(self, held: HeldEvents) -> None:
        """Write all messages that these events change, and move the cursor."""
        await self._read_again_what_is_stale(held)
        changes, last = FeedChanges.of(held.events), held.last or 0
        grouper = await AlertGrouper.of(self._outbox, self._channels, self._clock, changes.roots)
        documents = [held.documents[root_id].document for root_id in changes.roots if root_id in held.documents]
        page = _Page(documents, changes, grouper, Asking(self._outbox, self._clock()))
        page.asking.told = await self._renderer.told_of_undos(documents)
        await self._render_roots(page)
        page.desired += await isolated(self._of_cases(documents, changes), "", otherwise=[])
        for root_id, read in held.documents.items():
            if root_id not in changes.roots:  # an alert that shares with a case the artifact on which something ran
                page.desired += await isolated(self._card(read.document, changes), root_id, otherwise=[])
        for bulk, as_of in held.bulks.values():
            await self._render_bulk(bulk, as_of, page)
        await self._outbox.commit_page(
            [*page.desired, *await self._counts(page.asking)],
            last,
            grouped=grouper.changes,
            asked=page.asking.state,
            reminders=page.asking.reminders,
        )
        for root_id, request_ids in changes.request_ids.items():
            log.info("cards_rendered", root=root_id, request_ids=list(request_ids))
        await self._render_groups(grouper)
        self._rendered_as_of = {root: as_of for root, as_of in self._rendered_as_of.items() if as_of > last}
        self._bulks.followed(last)

    async def _render_roots(self, page: _Page) -> None:
        """Render alerts on which something runs first, since their cards are waited for, and cases last."""
        awaited = [one for one in page.documents if page.has_run(one)]
        for document in awaited:
            page.desired += await isolated(self._of_root(document, page), document.id, otherwise=[])
        if awaited and page.changes.created_alerts:
            await self._outbox.upsert(*page.desired)  # many alerts may follow; all is done again after a crash
            page.desired = []
        others = [one for one in page.documents if not page.has_run(one)]
        # A case's messages go into the threads of its alerts' cards, which may be new themselves.
        for document in sorted(others, key=lambda document: document.alert is None):
            if document.id in page.changes.deleted and document.deleted:
                continue  # what Slack shows of it stays as it is
            await asyncio.sleep(0)  # clicks and what is to be sent come in between
            page.desired += await isolated(self._of_root(document, page), document.id, otherwise=[])

    async def _render_bulk(self, bulk: BulkCounts, as_of: int, page: _Page) -> None:
        """Render the message of a bulk wherever those of its runs want it on which there is something new."""
        runs = [(one, run) for one in page.documents for run in one.actions if run.bulk == bulk.id]
        acted = {*page.changes.actions}
        ran = [(one, run) for one, run in runs if (run.id, one.id) in acted]
        if not ran and await self._bulks.are_current(bulk, page.documents):
            return
        destinations = dict[str, float]()
        for document, run in ran:
            found = self._renderer.bulk_destinations(run, document, page.desired)
            for one, urgency in (await isolated(found, document.id, otherwise={})).items():
                destinations[one] = max(urgency, destinations.get(one, 0))
        messages = self._bulks.of(bulk, as_of, destinations, page.asking, has_run=bool(ran))
        page.desired += await isolated(messages, bulk.id, otherwise=[])

    async def _render_changed_groups(self) -> None:
        """Render the cards of groups if it is time to, and note when to do so next, if any are left."""
        loop = asyncio.get_running_loop()
        if self._groups_at is not None and loop.time() >= self._groups_at:
            is_left = await self._group_cards.render_changed()
            self._groups_at = loop.time() + self._outbox.update_every_s if is_left else None

    async def _render_groups(self, grouper: AlertGrouper) -> None:
        """Render cards of groups that this page changed: at once what is urgent, the rest soon."""
        if grouper.changes.ranks:
            await self._group_cards.render_urgent()
            self._groups_at = self._groups_at or asyncio.get_running_loop().time() + self._outbox.update_every_s

    async def _read_again_what_is_stale(self, held: HeldEvents) -> None:
        """Messages may have been rendered from newer documents meanwhile, and must not go back."""
        stale = [root for root, read in held.documents.items() if read.as_of < self._rendered_as_of.get(root, 0)]
        if not stale:
            return
        changes = FeedChanges.of(held.events)
        parts = (*changes.actions, *changes.logs)
        named = {root_id: [part for part, of in parts if of == root_id] for root_id in stale}
        for root_id, document in (await self._documents(named)).items():
            held.documents[root_id] = ReadDocument(document, self._rendered_as_of.get(root_id, 0))

    async def _of_root(self, document: Document, page: _Page) -> list[DesiredMessage]:
        """All messages of an alert or a case that events change, besides those of the page before it."""
        root_id, changes = document.id, page.changes
        # One that was raised is new where nothing took it before.
        is_new = root_id in changes.created_alerts or root_id in changes.raised
        timeline = await self._renderer.timeline(document, page.desired, is_new=is_new)
        acted = changes.actions_of(root_id)
        await page.grouper.set_threads(timeline, is_new=is_new, needs_card=_needs_card(timeline, changes))
        # What became of a run that has ended, such as that another alert's undoes it, is news.
        is_progress = all(run.end_date is None for run in map(timeline.action, acted) if run is not None)
        desired = await self._renderer.alert_cards(timeline, is_progress=is_progress)
        desired += await self._renderer.case_cards(timeline)
        desired += await self._mentions(timeline, page) if is_new else []
        for log_id, case_id in changes.logs:
            if case_id == root_id:
                desired += await self._renderer.log_cards(log_id, timeline)
        for action_id in acted:
            action, has_ended = timeline.action(action_id), action_id in changes.ended
            if action is not None:
                work = self._renderer.action_messages(action, timeline, page.asking, has_ended=has_ended)
                desired += await isolated(work, root_id, otherwise=[])
        if root_id in changes.changed:
            desired += await self._others(timeline, {message.key for message in desired})
        return desired

    async def _mentions(self, timeline: Timeline, page: _Page) -> list[DesiredMessage]:
        """A reply to the card of a new alert, or to that of its group, in each channel that wants one, or a count."""
        desired, alert = list[DesiredMessage](), timeline.alert
        for channel, by_severity in self._channels.mentions.items():
            entry = page.grouper.changes.alerts.get((timeline.root_id, channel))
            if entry is None or alert is None or alert.severity not in by_severity:
                continue
            card = next((thread for thread in timeline.threads if thread.channel == channel), None)
            here = replace(timeline, threads=[card or Thread(channel, entry.group)])
            who, key, number = f"new:{channel}:{alert.severity}", f"mention:{alert.id}:{alert.severity}:{channel}", 0
            says = (who, alert.source, alert.type, alert.title, sorted(one.data or "" for one in alert.artifacts))
            if not await page.asking.may_ask(who, same=digest(repr(says))):
                since, number = page.asking.more(who)
                key = f"new:{since}:{alert.severity}:{channel}"
            desired += self._renderer.mention(key, here, number)
        return desired

    async def _card(self, document: Document, changes: FeedChanges) -> list[DesiredMessage]:
        timeline = await self._renderer.timeline(document)
        return await self._renderer.alert_cards(timeline, is_progress=not changes.ended)

    async def _of_cases(self, documents: Sequence[Document], changes: FeedChanges) -> list[DesiredMessage]:
        """The messages of cases whose alerts changed: they mask what those hide, and a card shows what is in force.

        An alert on which nothing has run lately or is in force changes only what they mask.
        """
        changed = [(one.alert.case, one) for one in documents if one.alert is not None and one.alert.case]
        acted = {case for case, one in changed if one.id in changes.acted_on}
        acted |= {case for case, one in changed if any(map(undo_state.is_in_force, one.actions))}
        desired = list[DesiredMessage]()
        for case_id in sorted({case for case, _ in changed}.difference(one.id for one in documents)):
            posted = await self._outbox.messages_of(case_id)
            named = {case_id: set[str]().union(*map(ids_in, posted))} if posted else {}
            for document in (await self._documents(named)).values():
                timeline = await self._renderer.timeline(document)
                desired += (await self._enforcer.refresh(posted, timeline, only_masks=case_id not in acted))[0]
        return desired

    async def _others(self, timeline: Timeline, rendered: set[str]) -> list[DesiredMessage]:
        """The root changed itself: its other messages that show more or less than they are to now."""
        messages = await self._outbox.messages_of(timeline.root_id)
        others = [message for message in messages if message.key not in rendered]
        if not others:
            return []
        named = {object_id for message in others for object_id in ids_in(message)}
        if not named <= timeline.ids:  # such as an old run, or an artifact whose own level counts
            documents = await self._documents({timeline.root_id: named})
            timeline = await self._renderer.timeline(documents.get(timeline.root_id, timeline.document))
        return (await self._enforcer.refresh(others, timeline, only_masks=False))[0]

    async def _catch_up(self) -> None:
        """Render recent cards again, then go on from now."""
        last = (await self._core.events(None, wait_s=0)).last
        await self._outbox.invalidate_clearances()
        recent = list(await self._outbox.recent_roots(self._clock() - REFRESH_MS))
        for start in range(0, len(recent), REQUESTS_AT_ONCE):
            documents = await self._documents(dict.fromkeys(recent[start : start + REQUESTS_AT_ONCE], ()))
            desired: list[DesiredMessage] = []
            for root_id, document in documents.items():
                desired += await isolated(self._requested(document, "", None), root_id, otherwise=[])
            await self._outbox.upsert(*desired)
        posted = [message.key for message in await self._outbox.messages_named(f"{BULK}:")]
        await self._outbox.upsert(*await isolated(self._bulks.read(posted), "", otherwise=[]))
        await self._outbox.commit_page([], last)
        self._channels.changed.set()


def _needs_card(timeline: Timeline, changes: FeedChanges) -> bool:
    """Whether an alert gets a card of its own, since somebody works on it or something other than a bulk ran.

    A bulk has a message of its own, and may run on all alerts of a group.
    """
    if timeline.alert is not None and timeline.alert.assignee and timeline.root_id in changes.changed:
        return True
    acted = map(timeline.action, changes.actions_of(timeline.root_id))
    return any(action is None or not timeline.is_in_bulk(action) for action in acted)


def _left_s(now: float, *moments: float | None) -> float | None:
    """How many seconds are left until the first of these moments; None if there is none."""
    return min((max(moment - now, 0.0) for moment in moments if moment is not None), default=None)
