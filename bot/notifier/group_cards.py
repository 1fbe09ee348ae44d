"""Renders the cards of groups and digests."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bot.clearance import CLEAR, RED, RedactedView, Subject
from bot.features.alert_groups.views import closed_by_one, group_card, in_case
from bot.features.alerts.views.close import left_open
from bot.message import ButtonIds, Message
from bot.notifier.isolation import isolated
from bot.notifier.renderer import Renderer
from bot.notifier.timeline import ChannelAccess
from bot.outbox.alert_groups import AlertGroup
from bot.outbox.models import FOR_PERSON, NEWS, WITHHOLDING, DesiredMessage
from bot.outbox.outbox import MessageOutbox
from bot.storms import GroupContent
from core.client import CoreClient
from core.models import Document

READ_AT_ONCE = 200
MOST_WAITING = 500
ReadDocuments = Callable[[Mapping[str, Iterable[str]]], Awaitable[Mapping[str, Document]]]
"""Reads the documents of these roots from core, each with what is named of it."""


class GroupCards:
    """The cards of groups. What is to be done is in the database, so that a crash loses nothing of it."""

    def __init__(
        self,
        renderer: Renderer,
        outbox: MessageOutbox,
        access: ChannelAccess,
        clock_ms: Callable[[], int],
        read_documents: ReadDocuments,
        core: CoreClient,
    ) -> None:
        self._renderer = renderer
        self._outbox = outbox
        self._access = access
        self._clock = clock_ms
        self._read_documents = read_documents
        self._core = core

    async def render_urgent(self) -> None:
        """Render new cards, those that somebody waits for, and those that may show too much."""
        await self._render(await self._outbox.alert_groups.changed(self._clock(), WITHHOLDING))

    async def render_changed(self) -> bool:
        """Render all cards that have changed; False once there is nothing left to do.

        While a storm or a mute goes on there is: its end changes the card.
        """
        await self._render(await self._outbox.alert_groups.changed(self._clock()))
        return await self._outbox.alert_groups.are_waiting()

    async def enforce(self, channel: str, clearance: int) -> None:
        """Render the cards again that were rendered for another clearance of the channel."""
        stale = await self._outbox.alert_groups.stale(channel, clearance)
        await self._render([replace(group, rank=WITHHOLDING) for group in stale])

    async def _render(self, groups: Sequence[AlertGroup]) -> None:
        cards = [(group, await isolated(self._card(group), group.key, otherwise=None)) for group in groups]
        rendered = [(group, card) for group, card in cards if card is not None]
        if rendered:
            await self._outbox.commit_groups([card for _, card in rendered], [group for group, _ in rendered])

    async def _card(self, group: AlertGroup) -> DesiredMessage:
        clearance = self._access.clearance_of(group.channel)
        content = await self._outbox.alert_groups.content(group, clearance)
        if content.is_closed and content.count <= READ_AT_ONCE:
            content = await self._of_closed(content, clearance)
        elif not content.is_digest:
            content = replace(content, left_open=await self._left_open(content.key, clearance))
        now = self._clock()

        def render(*, clearance: int, button: ButtonIds) -> Message:
            return group_card(content, button=button, now_ms=now)

        tlp = CLEAR if content.count else RED
        view = RedactedView(Subject("alert", "", "", tlp, severity=content.severity), clearance)
        card = await self._renderer.message(group.key, view, group.channel, render)
        is_progress = group.rank is None or group.rank > NEWS
        by_person, must_go = group.rank == FOR_PERSON, group.rank == WITHHOLDING
        return replace(card, by_person=by_person, must_go=must_go, is_progress=is_progress)

    async def _left_open(self, key: str, clearance: int) -> list[str]:
        """What is in force on the worst alerts of a group, and what waits: two requests to core without any."""
        ids = [member.root_id for member in await self._outbox.alert_groups.members(key, 0, READ_AT_ONCE)]
        measures = await self._core.measures(of=ids)
        waiting = await self._core.newest_actions("waiting", limit=MOST_WAITING)
        on = {run.root_id for one in measures for run in (one, *one.others)} | {one.object_id for one in waiting}
        observables = [one.object_id for one in waiting if one.object_type == "Observable"]  # maybe of these alerts
        documents = await self._read_documents(dict.fromkeys([*on.intersection(ids), *observables], ()))
        lines = left_open([documents[one] for one in ids if one in documents], clearance)
        return [one for sign in "🔒⏳" for one in lines if one.startswith(sign)]

    async def _of_closed(self, content: GroupContent, clearance: int) -> GroupContent:
        """With who closed all of them, or the case in which all are."""
        members = await self._outbox.alert_groups.members(content.key, 0, READ_AT_ONCE)
        documents = [*(await self._read_documents({member.root_id: () for member in members})).values()]
        subjects = (Subject.in_document(one, one.id) for one in documents)
        views = [RedactedView(subject, clearance) for subject in subjects if subject is not None]
        ids = {one.alert.case for one in documents if one.alert is not None}
        is_shown = len(ids) == 1 and all(view.is_open for view in views)
        read = await self._read_documents({one: () for one in ids if one and is_shown})
        case = next((one.case for one in read.values()), None)
        if case is not None:
            return replace(content, closed_by=in_case(case, clearance), case=case.id)
        return replace(content, closed_by=closed_by_one(views))
