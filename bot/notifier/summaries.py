"""Posts a handover into channels at the times of the settings, once each (bot/docs/slack.md#handover)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import structlog

from bot.clearance import CLEAR, RedactedView, Subject
from bot.features.home.views import summary
from bot.features.home.views.summary import Item, Shift
from bot.notifier.timeline import ChannelAccess
from bot.outbox import DesiredMessage, MessageOutbox
from bot.outbox.links import card_link
from bot.outbox.models import SUMMARY
from core.common.clock import DAY_MS
from core.common.errors import ResponderBotError
from core.models import Action, Document

if TYPE_CHECKING:
    from core.client import CoreClient

LOOK_S = 5.0  # how late a handover may be
READ_AT_MOST = 500  # runs of each kind
STANDING_AT_MOST = 10_000  # alerts of a channel
UNASSIGNED_AT_MOST = 50  # as many as core lists

log = structlog.get_logger("bot.notifier")


class Times(NamedTuple):
    """The newest time of a schedule that has come, with the ones before and after it (ms)."""

    before: int
    due: int
    after: int


def times_at(now_ms: int, schedule: Sequence[str], zone: ZoneInfo) -> Times:
    """The times of a schedule (`08:00`, at least one) around a moment.

    A time that the clock skips comes when it would have come before the clock was changed; of a time that comes twice
    the first counts.
    """
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    days = (today + timedelta(days=number) for number in range(-3, 4))
    instants = {
        int(datetime.combine(day, time.fromisoformat(text), zone).timestamp() * 1000)
        for day in days
        for text in schedule
    }
    past = sorted(instant for instant in instants if instant <= now_ms)
    return Times(past[-2], past[-1], min(instant for instant in instants if instant > now_ms))


class Summaries:
    """Of several replicas only the leader runs it."""

    def __init__(
        self,
        core: "CoreClient",
        outbox: MessageOutbox,
        access: ChannelAccess,
        schedules: Mapping[str, Sequence[str]],
        zone: ZoneInfo,
        clock_ms: Callable[[], int],
    ) -> None:
        """`schedules` are by channel."""
        self._core = core
        self._outbox = outbox
        self._access = access
        self._schedules = schedules
        self._zone = zone
        self._clock = clock_ms

    async def run(self) -> None:
        """Post what is due until cancelled. While core is down it is asked again."""
        while True:
            for channel in self._schedules:
                try:
                    await self.post_due(channel)
                    await self.withhold(channel)
                except ResponderBotError as error:
                    log.warning("summary_failed", channel=channel, reason=error.message)
                except Exception:
                    log.exception("summary_failed", channel=channel)
            await asyncio.sleep(LOOK_S)

    def shift(self) -> tuple[int, int]:
        """When the shift that is on now began, and when it ends (ms): by the times of all channels, else half a day."""
        now, schedule = self._clock(), sorted({text for texts in self._schedules.values() for text in texts})
        if not schedule:
            return now - DAY_MS // 2, now + DAY_MS // 2
        times = times_at(now, schedule, self._zone)
        return times.due, times.after

    async def post_due(self, channel: str) -> None:
        """Post the newest handover of a channel that is due and was not posted; what was missed before it is not.

        What was due before the bot knew of it is not posted either.
        """
        now = self._clock()
        times = times_at(now, self._schedules[channel], self._zone)
        last = await self._outbox.summary_at(channel)
        if last is None or last > now + DAY_MS:  # the clock was ahead
            await self._outbox.commit_summary(channel, times.due)
        elif last < times.due and self._access.is_known(channel):
            clearance = self._access.clearance_of(channel)
            standing = set(await self._outbox.alerts_in(channel, STANDING_AT_MOST))
            shift = await read_shift(self._core, times.before, times.after, clearance, self._links, only=standing)
            key = f"{SUMMARY}:{times.due}:{channel}"
            message = DesiredMessage(key, channel, summary.for_channel(shift), view=_of_all(clearance))
            await self._outbox.commit_summary(channel, times.due, message)

    async def withhold(self, channel: str) -> None:
        """Withhold the handovers that were made for a higher clearance than the channel has now."""
        if not self._access.is_known(channel):
            return
        clearance = self._access.clearance_of(channel)
        posted = await self._outbox.messages_named(f"{SUMMARY}:")
        too_high = [one for one in posted if one.channel == channel and one.clearance > clearance]
        await self._outbox.upsert(
            *(
                DesiredMessage(one.key, channel, summary.WITHHELD, must_go=True, view=_of_all(clearance))
                for one in too_high
            )
        )

    async def _links(self, roots: Collection[str]) -> Mapping[str, str]:
        cards = await self._outbox.cards_of(list(roots))
        address = self._access.workspace_url()
        return {root: card_link(of_root, self._access.clearance, address) for root, of_root in cards.items()}


def _of_all(clearance: int) -> RedactedView:
    """The view of a handover, which is of no single object."""
    return RedactedView(Subject("alert", "", "", CLEAR), clearance)


Links = Callable[[Collection[str]], Awaitable[Mapping[str, str]]]
"""The addresses of the cards of alerts and cases."""


async def read_shift(
    core: "CoreClient",
    began_at: int,
    ends_at: int,
    clearance: int,
    links: Links,
    *,
    only: Collection[str] | None = None,
) -> Shift:
    """What a clearance may see of a shift; `only` what is on these alerts and cases, and the cases of these alerts."""
    measures, waiting, failed, unassigned = await asyncio.gather(
        core.measures(),
        core.newest_actions("waiting", limit=READ_AT_MOST),
        core.newest_actions("failed", since=began_at, limit=READ_AT_MOST),
        core.open_alerts(""),
    )
    left = [action_id for measure in measures[:READ_AT_MOST] for action_id in measure.actions]
    by_action: dict[str, Document] = {}
    async for response in core.documents_in_pages([*left, *(action.id for action in (*waiting, *failed))]):
        by_action |= {action.id: document for document in response.documents for action in document.actions}

    def item(action_id: str) -> Item | None:
        document = by_action.get(action_id)
        action = next((one for one in document.actions if one.id == action_id), None) if document else None
        if document is None or action is None:
            return None
        if only is not None and document.id not in only and not set(document.alert_ids).intersection(only):
            return None
        subject = Subject.in_document(document, action.object_id)
        is_open = subject is not None and RedactedView(subject, clearance).is_open
        return Item(subject, action) if subject is not None and is_open else None

    def items(actions: Sequence[Action]) -> list[Item]:
        return [found for action in actions if (found := item(action.id)) is not None]

    in_force = list[Item]()
    for measure in measures[:READ_AT_MOST]:
        seen = next((found for one in reversed(measure.actions) if (found := item(one)) is not None), None)
        in_force += [replace(seen, measure=measure)] if seen is not None else []
    alerts = [Item(Subject.alert(alert)) for alert in unassigned if only is None or alert.id in only]
    visible = [one for one in alerts if RedactedView(one.subject, clearance).is_open]
    parts = [in_force, items(waiting), visible, items(failed)]
    addresses = await links({_root(one) for part in parts for one in part})
    in_force, to_approve, visible, broken = (
        [replace(one, link=addresses.get(_root(one), "")) for one in part] for part in parts
    )
    is_cut = len(unassigned) >= UNASSIGNED_AT_MOST
    return Shift(began_at, ends_at, in_force, to_approve, visible, broken, is_cut)


def _root(item: Item) -> str:
    return item.subject.root_id or item.subject.id
