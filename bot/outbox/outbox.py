"""The content that messages should have, as other rooms ask for it; and how far core's feed was followed."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import messages, state
from bot.outbox.buttons import LIFE_MS, Buttons
from bot.outbox.inbox import Inbox
from bot.outbox.leases import LEASE_MS, LeaderLease
from bot.outbox.models import FOR_EVENT, FOR_PERSON, IN_BULK, DesiredMessage, MessageRecord, digest, record_of
from bot.outbox.rate_limiter import RateLimiter
from bot.outbox.sender import ClearanceGuard, Sender
from bot.outbox.store import open_store
from bot.outbox.watches import Watches
from core.common import leases
from core.common.database.probe import Probe
from core.common.database.sqlite import Transaction

UPDATE_EVERY_MS = 3_000  # events update a message at most this often, progress and the rest counted apart
MERGE_MS = 250  # progress waits this long: a quick run is over by then, and is shown once
INBOX_KEEP_MS = 86_400_000  # as long as core keeps an Idempotency-Key
BUTTONS_KEEP_MS = 30 * LIFE_MS  # so that an expired one can still offer Refresh
POST_ID_BYTES = 16
IGNORE_LATER_WRITES = 2**62  # as `since`: no write has a higher number, so none counts as later


@dataclass(frozen=True)
class DeliveryProblem:
    """What keeps messages from a channel, for `doctor`; since when, in ms."""

    channel: str
    message: str
    waiting: int
    since: int


@dataclass(frozen=True)
class FeedCheckpoint:
    """The last event that was followed, and the id of core's database that it is from ("": unknown)."""

    cursor: int
    database: str
    event: str


class MessageOutbox:
    """The bot's database: desired messages, and with them buttons, inbox, leader lease and watches.

    Replicas of the bot share its file.
    """

    def __init__(
        self,
        path: Path,
        slack: AsyncWebClient,
        clock_ms: Callable[[], int],
        *,
        rate_limiter: RateLimiter | None = None,
        lease_ms: int = LEASE_MS,
        guard: ClearanceGuard | None = None,
    ) -> None:
        self._store = open_store(path)
        self._clock = clock_ms
        holder = leases.new_holder()
        self.probe = Probe(self._store, state.touch)
        self.buttons = Buttons(self._store, clock_ms)
        self.inbox = Inbox(self._store, clock_ms, holder)
        self.leader = LeaderLease(self._store, clock_ms, holder, lease_ms)
        self.watches = Watches(self._store, clock_ms)
        self.sender = Sender(self._store, slack, clock_ms, rate_limiter or RateLimiter(), guard or ClearanceGuard())

    async def close(self) -> None:
        await self._store.close()

    @property
    def commits(self) -> int:
        """How many commits of this process have written something."""
        return self._store.commits

    # --- writing ----------------------------------------------------------------------------------------------------

    def last_write(self) -> int:
        """The number of the last write. Ask for it before core is read, and pass it as `since` with the result."""
        return int(state.value(self._store, "last_write") or 0)

    async def upsert(self, *desired: DesiredMessage, since: int = IGNORE_LATER_WRITES) -> set[str]:
        """Store what these messages should show, durably.

        A message that another writer has changed after the write `since` is left alone, since that writer may have
        read core later. Returns the alerts and cases of such messages: render them again.
        """
        return await self._write(desired, since)

    async def commit_page(
        self, desired: Sequence[DesiredMessage], cursor: int, *, since: int = IGNORE_LATER_WRITES, last_event: str = ""
    ) -> set[str]:
        """Upsert the messages of a page of core's feed, and move the cursor past it, in one transaction.

        The cursor stays while anything must be rendered again. `last_event` identifies the event at the cursor.
        """

        def after(tx: Transaction, overtaken: set[str]) -> None:
            if not overtaken:
                state.set_value(tx, "cursor", str(cursor))
                state.set_value(tx, "last_event", last_event)

        return await self._write(desired, since, after)

    async def enforce_clearance(
        self, desired: Sequence[DesiredMessage], kept: Mapping[str, int], *, since: int
    ) -> bool:
        """Upsert messages that were rendered for another clearance; `kept`: those that are right for which clearance.

        Returns False if some were changed meanwhile and must be checked again.
        """

        def after(tx: Transaction, overtaken: set[str]) -> None:
            overtaken.update(key for key, now in kept.items() if not messages.set_clearance(tx, key, now, since))

        return not await self._write(desired, since, after)

    async def invalidate_clearances(self) -> None:
        """Check each message again before it is sent, since its TLP may have changed in a gap of the feed."""
        await self._store.transaction(messages.invalidate_clearances)

    async def _write(
        self,
        desired: Sequence[DesiredMessage],
        since: int,
        after: Callable[[Transaction, set[str]], None] = lambda _tx, _overtaken: None,
    ) -> set[str]:
        now = self._clock()
        rows = [(message.root_id, {**_row(message, now), "since": since}) for message in desired]

        def work(tx: Transaction) -> set[str]:
            state.refuse_mismatch(tx)
            number = int(state.value(tx, "last_write") or 0) + 1
            overtaken = set()
            for root_id, row in rows:
                if messages.is_overtaken(tx, row):
                    overtaken.add(root_id)
                else:
                    messages.upsert(tx, {**row, "write_number": number})
            if rows:
                state.set_value(tx, "last_write", str(number))
            after(tx, overtaken)
            return overtaken

        overtaken = await self._store.transaction(work)
        self.sender.wake()
        return overtaken

    async def retry_now(self, channel: str) -> None:
        """Send to this channel now, since something about it changed, and let other replicas check it too."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            messages.retry_now(tx, channel, now)
            state.set_value(tx, "channels_changed_at", str(now))

        await self._store.transaction(work)
        self.sender.wake()

    def channels_changed_at(self) -> str:
        """Another text than before once any replica has heard that a channel changed."""
        return state.value(self._store, "channels_changed_at") or ""

    async def prune(self) -> None:
        """Delete completed interactions and long expired buttons. Messages stay, as old cards live for ever."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            tx.run("DELETE FROM inbox WHERE done_at > 0 AND done_at < :before", {"before": now - INBOX_KEEP_MS})
            tx.run("DELETE FROM button WHERE expires_at < :before", {"before": now - BUTTONS_KEEP_MS})

        await self._store.transaction(work)

    # --- core's feed ------------------------------------------------------------------------------------------------

    def cursor(self) -> int | None:
        """The number of the last event that was followed; None before the first time."""
        text = state.value(self._store, "cursor")
        return int(text) if text else None

    def checkpoint(self) -> FeedCheckpoint | None:
        """The last event that was followed, and of which database; None before the first time."""
        rows = self._store.rows("SELECT name, value FROM state WHERE name IN ('cursor', 'core_database', 'last_event')")
        found = {row["name"]: row["value"] for row in rows}
        if not found.get("cursor"):
            return None
        return FeedCheckpoint(int(found["cursor"]), found.get("core_database", ""), found.get("last_event", ""))

    async def accept_database(self, database: str) -> None:
        """Note that this database of core is the one that the messages belong to."""
        if (state.value(self._store, "core_database"), state.value(self._store, "mismatch")) == (database, None):
            return

        def work(tx: Transaction) -> None:
            state.set_value(tx, "core_database", database)
            state.delete_value(tx, "mismatch")

        await self._store.transaction(work)

    async def reject_database(self, sentence: str) -> None:
        """Note that core's database is another one, and what to do about it.

        Until it is accepted, or the messages are forgotten, every replica refuses writes and buttons with `sentence`.
        """
        if state.value(self._store, "mismatch") != sentence:
            await self._store.transaction(lambda tx: state.set_value(tx, "mismatch", sentence))

    # --- reading ----------------------------------------------------------------------------------------------------

    def message(self, key: str) -> MessageRecord | None:
        """The message with this key."""
        row = messages.by_key(self._store, key)
        return record_of(row) if row else None

    def message_at(self, channel: str, ts: str) -> MessageRecord | None:
        """Our message with this `ts` in a channel."""
        row = messages.by_ts(self._store, channel, ts)
        return record_of(row) if row else None

    def cards(self, root_id: str) -> list[MessageRecord]:
        """The top-level messages of an alert or a case."""
        return [record_of(row) for row in messages.cards_of(self._store, root_id)]

    def messages_of(self, root_id: str) -> list[MessageRecord]:
        """All messages of an alert or a case, its cards among them, oldest first."""
        return [record_of(row) for row in messages.of_root(self._store, root_id)]

    def channels(self) -> Mapping[str, str]:
        """Each channel (or user, for direct messages) that has messages, with the key of one of them."""
        return {row["channel"]: row["key"] for row in messages.channels(self._store)}

    def stale_roots(self, channel: str, clearance: int, *, unsent_only: bool = False) -> Sequence[str]:
        """Alerts and cases with a message there that was rendered for another clearance than this, newest first."""
        return messages.stale_roots(self._store, channel, clearance, unsent_only)

    async def roots_in(self, channel: str, limit: int) -> Sequence[str]:
        """Ids of the alerts and cases with a card in this channel, newest first."""
        return [row["root_id"] for row in messages.roots_in(self._store, channel, limit)]

    def recent_roots(self, since: int) -> Sequence[str]:
        """Ids of the alerts and cases with a card that was posted or updated since then (ms)."""
        return [row["root_id"] for row in messages.recent_roots(self._store, since)]

    def waiting(self) -> int:
        """How many messages Slack doesn't have as desired."""
        return messages.waiting(self._store)

    def problems(self) -> list[DeliveryProblem]:
        """What can't be delivered, and why."""
        rows = messages.problems(self._store)
        found = [DeliveryProblem(row["channel"], row["problem"], row["n"], row["since"]) for row in rows]
        if self.sender.problem and not found:
            found.append(DeliveryProblem("", self.sender.problem, self.waiting(), self._clock()))
        return found


async def forget_messages(path: Path) -> int:
    """Delete from the bot's database all that names objects of core; returns how many messages it knew.

    The messages stay in Slack as they are. Who watches a responder still does.
    """

    def work(tx: Transaction) -> int:
        count = tx.run("DELETE FROM message")
        tx.run("DELETE FROM button")
        tx.run("UPDATE inbox SET done_at = at, payload = '' WHERE done_at = 0")
        tx.run("DELETE FROM watch WHERE watched LIKE '~%'")
        tx.run("DELETE FROM state WHERE name IN ('cursor', 'core_database', 'last_event', 'mismatch')")
        return count

    store = open_store(path)
    try:
        return await store.transaction(work)
    finally:
        await store.close()


def _priority(desired: DesiredMessage) -> int:
    if desired.by_person:
        return FOR_PERSON
    return IN_BULK if desired.in_bulk else FOR_EVENT


def _row(desired: DesiredMessage, now: int) -> dict[str, str | int]:
    payload = desired.payload()
    name, text = desired.file or ("", "")
    view = desired.view
    return {
        "key": desired.key,
        "channel": desired.channel,
        "root_id": desired.root_id,
        "thread_of": desired.thread_of,
        "payload": payload,
        "digest": digest(payload),
        "post_id": secrets.token_hex(POST_ID_BYTES),
        "priority": _priority(desired),
        "now": now,
        "soon": now + MERGE_MS if desired.is_progress else now,
        "is_progress": int(desired.is_progress),
        "bundle_ms": UPDATE_EVERY_MS,
        "file_name": name,
        "file_text": text,
        "file_sent": int(desired.file is None),
        "clearance": view.clearance if view else 0,
        "about": f"{view.subject.kind} {view.subject.id}" if view else "",
        "fingerprint": view.fingerprint if view else "",
    }
