"""The content that messages should have, as other packages ask for it; and how far core's feed was followed."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.clearance import SHARED
from bot.message import NOT_SHOWN
from bot.outbox import alert_groups, buttons, messages, refreshes, state
from bot.outbox.alert_groups import AlertGroup, AlertGroups, GroupChanges
from bot.outbox.buttons import Buttons
from bot.outbox.inbox import Inbox
from bot.outbox.models import DesiredMessage, MessageRecord, RefreshRequest, digest, is_person, record_of
from bot.outbox.refreshes import StoredRequest
from bot.outbox.replicas import Replicas
from bot.outbox.retention import AskCore, Retention
from bot.outbox.sending import files
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.sending.sender import ClearanceGuard, Sender
from bot.outbox.store import Stores
from bot.storms import Storm
from core.common.clock import Clock, boot_ms
from core.common.database import Reads, Row, Transaction
from core.common.database.probe import Probe, ProbeResult

POLL_S = 0.2  # how soon a request of another replica is seen


@dataclass(frozen=True)
class DeliveryProblem:
    """What keeps messages from a channel, for `doctor`."""

    channel: str
    message: str
    waiting: int


class MessageOutbox:
    """The bot's tables: desired messages, and with them buttons, inbox and leases, which replicas of the bot share."""

    def __init__(
        self,
        stores: Stores,
        slack: AsyncWebClient,
        clock_ms: Callable[[], int],
        *,
        rate_limiter: RateLimiter | None = None,
        guard: ClearanceGuard | None = None,
        lease_clock: Clock = boot_ms,
    ) -> None:
        self._stores = stores
        self._store = store = stores.messages
        self._clock = clock_ms
        self._probes = [Probe(store, state.touch)]
        if stores.inbox is not store:
            self._probes.append(Probe(stores.inbox, lambda _: None))
        self.buttons = Buttons(store, clock_ms)
        self.replicas = Replicas(store, clock_ms, lease_clock=lease_clock)
        self.inbox = Inbox(stores.inbox, clock_ms, self.replicas)
        self.alert_groups = AlertGroups(store)
        self._refresh_requested = asyncio.Event()
        rate_limiter = rate_limiter or RateLimiter()
        self.update_every_s = rate_limiter.update_every_s
        self.sender = Sender(store, slack, clock_ms, rate_limiter, guard or ClearanceGuard(), self.replicas)

    async def release(self) -> None:
        """Let another replica lead, and carry out what this one has left, at once."""
        await self.replicas.release()
        await self.inbox.release()

    async def check(self) -> ProbeResult:
        """What is wrong with the database."""
        results = [await probe.check() for probe in self._probes]
        return next((result for result in results if result.message), results[0])

    async def close(self) -> None:
        await self._stores.close()

    def retention(self, days: int, ask_core: AskCore) -> Retention:
        """What deletes what is old; messages so many days after their alert or case was closed."""
        return Retention(self._stores, self._clock, days, ask_core)

    @property
    def commits(self) -> int:
        """How many commits of this process have written something."""
        return sum(database.commits for database in {self._store, self._stores.inbox})

    # --- writing ----------------------------------------------------------------------------------------------------

    async def upsert(self, *desired: DesiredMessage) -> None:
        """Store what these messages should show, durably."""
        await self._write(desired)

    async def commit_page(
        self,
        desired: Sequence[DesiredMessage],
        cursor: int,
        *,
        grouped: GroupChanges | None = None,
        asked: str = "",
        reminders: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Upsert the messages of a page of core's feed, and move the cursor past it, in one transaction.

        `grouped` is what it changes of groups; `asked` and `reminders` are those of `Asking`.
        """

        def move(tx: Transaction, now: int) -> None:
            state.set_value(tx, "cursor", str(cursor))
            for root_id, at in reminders:
                refreshes.add_later(tx, root_id, at)
            refreshes.fulfil_until(tx, cursor, now)

        await self._write(desired, move, grouped, asked)

    async def commit_refresh(
        self,
        desired: Sequence[DesiredMessage],
        requests: Sequence[StoredRequest],
        grouped: GroupChanges | None = None,
        asked: str = "",
    ) -> None:
        """Upsert what was rendered for these requests, and send it first; `asked` is that of `Asking`."""

        await self._write(desired, lambda tx, now: refreshes.fulfil(tx, requests, now), grouped, asked)

    async def commit_groups(self, desired: Sequence[DesiredMessage], rendered: Sequence[AlertGroup]) -> None:
        """Upsert the cards of these groups."""

        def note(tx: Transaction, _now: int) -> None:
            for group in rendered:
                alert_groups.rendered(tx, group)

        await self._write(desired, note)

    async def enforce_clearance(self, desired: Sequence[DesiredMessage], kept: Mapping[str, int]) -> None:
        """Upsert messages that were rendered for another clearance. `kept`: those that needn't be, and for which."""

        def keep(tx: Transaction, _now: int) -> None:
            for key, clearance in kept.items():
                messages.set_clearance(tx, key, clearance)

        await self._write(desired, keep)

    async def invalidate_clearances(self) -> None:
        """Check each message again before it is sent, since its TLP may have changed in a gap of the feed."""

        def work(tx: Transaction) -> None:
            messages.invalidate_clearances(tx)
            alert_groups.forget_texts(tx)

        await self._store.transaction(work)

    async def _write(
        self,
        desired: Sequence[DesiredMessage],
        also: Callable[[Transaction, int], None] = lambda _tx, _now: None,
        grouped: GroupChanges | None = None,
        asked: str = "",
    ) -> None:
        """`also` runs first. Raises ResponderBotError("conflict") if another replica leads."""
        now = self._clock()
        rows = [(message, _row(message, now, self.update_every_s)) for message in map(_without_secrets, desired)]

        def work(tx: Transaction) -> None:
            self.replicas.refuse_others(tx)
            for message, row in rows:
                if message.is_secret and messages.forget_unsent(tx, message.key):
                    continue
                messages.upsert(tx, row)
                files.upsert(tx, message.key, message.file, now)
                if message.buttons is not None:
                    buttons.save(tx, message.buttons)
            also(tx, now)
            if grouped is not None:
                alert_groups.write(tx, grouped)
            if asked:
                state.set_value(tx, "asked", asked)

        await self._store.transaction(work)
        self.sender.wake()

    async def finish(self, requests: Sequence[RefreshRequest] = (), *, key: str = "") -> None:
        """Note what people wait to see, then that an interaction was carried out (its `key` in the inbox).

        What is killed in between carries it out once more, with the same key for core.
        """
        now = self._clock()

        def work(tx: Transaction) -> None:
            cursor = int(state.value(tx, "cursor") or 0)
            for request in requests:
                refreshes.add(tx, request, cursor, now)

        if requests:
            await self._store.transaction(work)
            self.sender.wake()
            self._refresh_requested.set()
        if key:
            await self.inbox.complete(key)

    async def refresh_requests(self, limit: int) -> Sequence[StoredRequest]:
        """The oldest requests to render something again."""
        return await self._store.read(lambda reads: refreshes.pending(reads, limit, self._clock()))

    async def refresh_requested(self) -> None:
        """Return once there is such a request, of this replica or another."""
        while True:
            self._refresh_requested.clear()  # before it is read, so that none is missed in between
            if await self.refresh_requests(1):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._refresh_requested.wait()

    async def retry_now(self, channel: str) -> None:
        """Send to this channel now, since something about it changed, and let other replicas check it too."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            messages.retry_now(tx, channel, now)
            state.set_value(tx, "channels_changed_at", str(now))

        await self._store.transaction(work)
        self.sender.wake()

    async def channels_changed_at(self) -> str:
        """Another text than before once any replica has heard that a channel changed."""
        return await self._store.read(lambda reads: state.value(reads, "channels_changed_at")) or ""

    # --- core's feed ------------------------------------------------------------------------------------------------

    async def cursor(self) -> int | None:
        """The number of the last event that was followed; None before the first time."""
        text = await self._store.read(lambda reads: state.value(reads, "cursor"))
        return int(text) if text else None

    async def asked(self) -> str:
        """Who was asked how often lately, as `Asking` stored it."""
        return await self._store.read(lambda reads: state.value(reads, "asked")) or "{}"

    async def core_database(self) -> str:
        """The id of the database that the messages are of; "" before the first time."""
        return await self._store.read(lambda reads: state.value(reads, "core_database")) or ""

    async def lost_by_restore(self, ts: str) -> int:
        """When the last backup was restored (ms), if it was made before this `ts`, and restored after it; else 0."""

        def work(reads: Reads) -> tuple[int, int]:
            return int(state.value(reads, "restored_from") or 0), int(state.value(reads, "restored_at") or 0)

        made_at, restored_at = await self._store.read(work)
        return restored_at if made_at <= float(ts or 0) * 1000 < restored_at else 0

    async def set_core_database(self, database: str) -> None:
        await self._store.transaction(lambda tx: state.set_value(tx, "core_database", database))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def message(self, key: str) -> MessageRecord | None:
        row = await self._store.read(lambda reads: messages.by_key(reads, key))
        return record_of(row) if row else None

    async def message_at(self, channel: str, ts: str) -> MessageRecord | None:
        """Our message with this `ts` in a channel."""
        row = await self._store.read(lambda reads: messages.by_ts(reads, channel, ts))
        return record_of(row) if row else None

    async def cards(self, root_id: str) -> list[MessageRecord]:
        """The top-level messages of an alert or a case."""
        return await self._records(lambda reads: messages.cards_of(reads, root_id))

    async def cards_of(self, root_ids: Sequence[str]) -> Mapping[str, Sequence[MessageRecord]]:
        """The top-level messages of each of these alerts and cases."""

        def work(reads: Reads) -> Mapping[str, Sequence[MessageRecord]]:
            return {root_id: [record_of(row) for row in messages.cards_of(reads, root_id)] for root_id in root_ids}

        return await self._store.read(work)

    async def messages_of(self, root_id: str) -> list[MessageRecord]:
        """All messages of an alert or a case, its cards among them, oldest first."""
        return await self._records(lambda reads: messages.of_root(reads, root_id))

    async def messages_of_run(self, action_id: str) -> list[MessageRecord]:
        """Likewise about a run, also those from before its alert became a case."""
        return await self._records(lambda reads: messages.of_run(reads, action_id))

    async def messages_named(self, prefix: str) -> list[MessageRecord]:
        """All messages whose key begins with this, which ends with a colon."""
        return await self._records(lambda reads: messages.named(reads, prefix))

    async def _records(self, query: Callable[[Reads], list[Row]]) -> list[MessageRecord]:
        return [record_of(row) for row in await self._store.read(query)]

    async def channels(self) -> Mapping[str, str]:
        """Each channel (or user, for direct messages) that has messages, with the key of one of them."""
        return {row["channel"]: row["key"] for row in await self._store.read(messages.channels)}

    async def stale_roots(self, channel: str, clearance: int, *, unsent_only: bool = False) -> Sequence[str]:
        """Alerts and cases with a message there that was rendered for another clearance than this, newest first."""
        return await self._store.read(lambda reads: messages.stale_roots(reads, channel, clearance, unsent_only))

    async def alerts_in(self, channel: str, limit: int) -> Sequence[str]:
        """Ids of the alerts and cases that stand in this channel, on cards of their own or in groups; newest first."""
        rows = await self._store.fetch_in_background(messages.ALERTS_IN, {"channel": channel, "limit": limit})
        return [row["root_id"] for row in rows]

    async def recent_roots(self, since: int) -> Sequence[str]:
        """Ids of the alerts and cases with a card that was posted or updated since then (ms)."""
        return await self._store.read(lambda reads: messages.recent_roots(reads, since))

    async def waiting(self) -> int:
        """How many messages Slack doesn't have as desired."""
        return await self._store.read(messages.waiting)

    async def storms(self) -> list[Storm]:
        """The storms that go on, one for each channel."""
        return await self.alert_groups.storms(self._clock())

    async def problems(self) -> list[DeliveryProblem]:
        """What can't be delivered, and why."""
        rows = await self._store.read(messages.problems)
        problems = [DeliveryProblem(row["channel"], row["problem"], row["n"]) for row in rows]
        if self.sender.problem and not problems:
            problems.append(DeliveryProblem("", self.sender.problem, await self.waiting()))
        return problems


def _without_secrets(desired: DesiredMessage) -> DesiredMessage:
    """What a shared channel shows of a message that was posted before it was shared."""
    return replace(desired, message=NOT_SHOWN, file=None, buttons=None) if desired.is_secret else desired


def _row(desired: DesiredMessage, now: int, update_every_s: float) -> dict[str, Any]:
    payload, view, update_every_ms = desired.payload(), desired.view, int(update_every_s * 1000)
    return {
        **vars(desired),
        "payload": payload,
        "digest": digest(payload),
        "post_id": secrets.token_hex(16),
        "rank": desired.rank,
        "post_rank": desired.post_rank,
        "now": now,
        "update_every_ms": update_every_ms,
        "progress_ms": update_every_ms if desired.is_progress and is_person(desired.channel) else 0,
        "clearance": view.clearance if view else SHARED,
        "about": f"{view.subject.kind} {view.subject.id}" if view else "",
        "fingerprint": (desired.fingerprint or view.fingerprint) if view else "",
    }
