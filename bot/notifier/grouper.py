"""Decides which message of a channel shows an alert: its own card, or that of a group (bot/docs/storms.md)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bot.clearance import RedactedView, Subject
from bot.features.alerts.views.card import is_closed
from bot.notifier.timeline import ChannelAccess, Thread, Timeline
from bot.outbox.alert_groups import (
    DIGEST,
    GROUP,
    NEEDED_CARD,
    NO_CARD,
    OWN_CARD,
    AlertGroup,
    AlertGroups,
    ChannelAlert,
    GroupChanges,
    new_key,
)
from bot.outbox.models import LAST_ALERT, NEWS, OTHER, WITHHOLDING, card_key
from bot.outbox.outbox import MessageOutbox
from bot.settings import Grouping
from bot.storms import CRITICAL_ALIKE, MOST_WAITING, STORM_MS, alike
from core.common.clock import MINUTE_MS
from core.models import Alert

TITLE_LIMIT = 300  # characters
FACTS, FACT_LIMIT = 8, 120


@dataclass
class _Alike:
    """The alerts of a channel that say the same, with those of the page that were grouped before."""

    group: AlertGroup | None
    count: int
    critical: int


class AlertGrouper:
    """Groups the alerts of one page of the feed; `changes` is then written with it."""

    def __init__(
        self, groups: AlertGroups, access: ChannelAccess, now: int, known: Mapping[str, list[ChannelAlert]]
    ) -> None:
        self._groups = groups
        self._access = access
        self._now = now
        self._known = known
        self._alike: dict[tuple[str, str], _Alike] = {}
        self._digests: dict[str, AlertGroup | None] = {}
        self._unsent: dict[tuple[str, int], int] = {}
        self._lately: dict[tuple[str, int], int] = {}
        self.changes = GroupChanges()

    @staticmethod
    async def of(
        outbox: MessageOutbox, access: ChannelAccess, clock_ms: Callable[[], int], root_ids: Iterable[str]
    ) -> "AlertGrouper":
        """With where these alerts stand already."""
        return AlertGrouper(outbox.alert_groups, access, clock_ms(), await outbox.alert_groups.channel_alerts(root_ids))

    async def set_threads(
        self,
        timeline: Timeline,
        *,
        is_new: bool = False,
        needs_card: bool = False,
        only_in: str = "",
    ) -> None:
        """Leave of the timeline's threads those of cards that the alert has or gets.

        With `needs_card` it gets one wherever it is in a group, or `only_in` a channel, if it isn't new: a person
        works on it, there is something to reply, or its channel has time for it now.
        """
        alert = timeline.alert
        if alert is None:
            return
        stored = self._known.get(alert.id, ())
        known = {entry.channel: self.changes.alerts.get((alert.id, entry.channel), entry) for entry in stored}
        threads: list[Thread] = []
        for thread in timeline.threads:
            channel = thread.channel
            if is_new and channel in known and not known[channel].has_card:
                continue  # it was raised, and is in a group
            if channel in known or not is_new or await self._gets_card(timeline, alert, channel, needs_card):
                threads.append(thread)
        for channel, before in known.items():
            is_wanted = needs_card and only_in in ("", channel)
            is_lifted = await self._is_lifted(alert, before, is_new=is_new, is_wanted=is_wanted)
            is_needed = is_wanted and (before.has_card or is_lifted)
            card = NEEDED_CARD if is_needed else OWN_CARD if is_lifted else before.card
            self._update(timeline, alert, before, card)
            if is_lifted:
                threads.append(Thread(channel, card_key(alert.id, channel)))
        timeline.threads = list(dict.fromkeys(threads))

    async def _is_lifted(self, alert: Alert, before: ChannelAlert, *, is_new: bool, is_wanted: bool) -> bool:
        """Whether an alert that is in a group gets a card of its own there now."""
        if before.has_card:
            return False
        is_raised = is_new or alert.severity > before.severity
        is_lifted = is_wanted or (is_raised and await self._breaks_out(alert, before))
        return is_lifted and self._access.is_set_up(before.channel)

    def _update(self, timeline: Timeline, alert: Alert, before: ChannelAlert, card: str) -> None:
        """Note what has changed of an alert in a channel, and that the card of its group is to show it."""
        shown = self._channel_alert(timeline, alert, before.channel, before.alike, before.group, card)
        after = replace(shown, at=before.at)
        if after != before or (before.group and timeline.document.actions):
            self._put(after)
            shows_less = bool({before.title, *before.facts} - {after.title, *after.facts, ""})
            of_runs = NEWS if any(run.end_date for run in timeline.document.actions) else OTHER
            self.changes.needs_update(before.group, WITHHOLDING if shows_less else of_runs)

    async def _gets_card(self, timeline: Timeline, alert: Alert, channel: str, needs_card: bool) -> bool:
        """Decide which message shows a new alert; whether it is a card of its own."""
        grouping = self._access.groupings.get(channel)
        same = alike(alert, grouping) if grouping else ""
        rank = LAST_ALERT + 1 - alert.severity
        waiting = await self._waiting(channel, rank)
        group, breaks_through = await self._count(alert, channel, same, is_full=waiting >= MOST_WAITING)
        is_in_group = group is not None and not breaks_through
        has_card = needs_card or not (is_in_group or waiting + await self._in_digest(channel, rank) >= MOST_WAITING)
        if not is_in_group and not has_card:
            group = await self._digest(channel)
            self.changes.full[group.key] = min(rank, self.changes.full.get(group.key, rank))
        card = NEEDED_CARD if needs_card else OWN_CARD if has_card else NO_CARD
        self._put(self._channel_alert(timeline, alert, channel, same, group.key if group else "", card))
        if group:
            self.changes.needs_update(group.key, OTHER if has_card else rank)
        if has_card or not is_in_group:
            for urgency in range(rank, LAST_ALERT + 1):
                self._unsent[channel, urgency] = await self._waiting(channel, urgency) + 1
        return has_card

    async def _count(self, alert: Alert, channel: str, same: str, *, is_full: bool) -> tuple[AlertGroup | None, bool]:
        """The group of the alerts that say the same, begun once they are many; whether this one is too urgent for it.

        None is begun while the channel is full.
        """
        alerts, grouping = await self._find(channel, same), self._access.groupings.get(channel)
        alerts.count += 1
        alerts.critical += alert.severity == 4
        is_muted = alerts.group is not None and alerts.group.muted_until > self._now
        breaks_through = alert.severity == 4 and (alerts.critical <= CRITICAL_ALIKE or is_muted)
        may_begin = alerts.group is None and not (breaks_through or is_full)
        if grouping is not None and may_begin and alerts.count > grouping.after:
            alerts.group = await self._begin_group(channel, same, grouping)
        return alerts.group, breaks_through

    async def _breaks_out(self, alert: Alert, entry: ChannelAlert) -> bool:
        """Whether a grouped alert that was raised gets a card of its own, as one that comes as critical would."""
        same = await self._find(entry.channel, entry.alike)
        same.critical += alert.severity == 4
        return alert.severity == 4 and same.critical <= CRITICAL_ALIKE

    async def _begin_group(self, channel: str, same: str, grouping: Grouping) -> AlertGroup:
        """A group of the alerts that have come within the window."""
        group = self._new_group(GROUP, channel, same)
        self.changes.collects_since[group.key] = self._now - grouping.window_minutes * MINUTE_MS
        if digest := await self._open_digest(channel):
            self.changes.needs_update(digest.key, OTHER)
        return group

    async def _find(self, channel: str, same: str) -> _Alike:
        """Those of the channel that say this; none, with "", or where it groups no alerts."""
        grouping = self._access.groupings.get(channel)
        if grouping is None or not same:
            return _Alike(None, 0, 0)
        if (channel, same) not in self._alike:
            since = self._now - grouping.window_minutes * MINUTE_MS
            group = await self._groups.open_group(channel, same, since, self._now)
            self._alike[channel, same] = _Alike(group, *await self._groups.alike(channel, same, since))
        return self._alike[channel, same]

    async def _open_digest(self, channel: str) -> AlertGroup | None:
        if channel not in self._digests:
            self._digests[channel] = await self._groups.open_group(channel, "", self._now - STORM_MS, self._now)
        return self._digests[channel]

    async def _digest(self, channel: str) -> AlertGroup:
        digest = self._digests[channel] = await self._open_digest(channel) or self._new_group(DIGEST, channel, "")
        return digest

    def _new_group(self, kind: str, channel: str, same: str) -> AlertGroup:
        group = AlertGroup(new_key(kind, channel), channel, same, self._now, self._now)
        self.changes.new_groups[group.key] = group
        return group

    async def _waiting(self, channel: str, rank: int) -> int:
        """How many new alerts of this rank or a higher one wait for their post, or go into the digest by this page."""
        if (channel, rank) not in self._unsent:
            self._unsent[channel, rank] = await self._groups.unsent_alerts(channel, rank, MOST_WAITING)
        return self._unsent[channel, rank]

    async def _in_digest(self, channel: str, rank: int) -> int:
        """How many of this rank or a higher one went into the digest in the last minute: without it they would wait."""
        if (channel, rank) not in self._lately:
            digest = await self._open_digest(channel)
            severity, since = LAST_ALERT + 1 - rank, self._now - MINUTE_MS
            newest = self._groups.newest_in(digest.key if digest else "", severity, since, self._now, MOST_WAITING)
            self._lately[channel, rank] = await newest
        return self._lately[channel, rank]

    def _channel_alert(
        self, timeline: Timeline, alert: Alert, channel: str, same: str, group: str, card: str
    ) -> ChannelAlert:
        clearance = self._access.clearance_of(channel)
        view = RedactedView(Subject.in_document(timeline.document, alert.id) or Subject.alert(alert), clearance)
        facts = [f"{a.data_type} {a.label}"[:FACT_LIMIT] for a in view.artifacts()[:FACTS]]
        return ChannelAlert(
            channel,
            alert.id,
            same,
            group,
            card,
            self._now,
            max(1, alert.severity),
            clearance,
            view.title()[:TITLE_LIMIT] if view.is_open else "",
            view.text(alert.source)[:FACT_LIMIT] if view.is_open else "",
            tuple(dict.fromkeys(facts)),
            is_closed(alert),
        )

    def _put(self, entry: ChannelAlert) -> None:
        self.changes.alerts[entry.root_id, entry.channel] = entry
