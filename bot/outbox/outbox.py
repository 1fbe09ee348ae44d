"""What the rest of the bot asks of delivery: desired states, buttons, the inbox, the cursor, the lease, watches."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.cards.message import ButtonIds, Intent
from bot.outbox import tables
from bot.outbox.models import DesiredMessage, MessageRecord, digest, shown
from bot.outbox.rate_limiter import RateLimiter
from bot.outbox.sender import ClearanceGuard, Sender
from bot.outbox.store import open_store
from core.common import process_identity as owner
from core.common.database.probe import Probe
from core.common.database.sqlite import Reads, Row, Transaction
from core.common.errors import ResponderBotError

BUNDLE_MS = 3_000  # progress of machines repaints a message at most this often (slack.md 2), and so does other news
SETTLE_MS = 250  # progress waits a moment: a quick run is over by then, and is shown once
BUTTON_BYTES = 16  # 128 random bits (slack.md 2)
BUTTON_LIFE_MS = 7 * 86_400_000
LEASE_MS = 10_000
INBOX_LEASE_MS = 60_000
INBOX_KEEP_MS = 86_400_000  # as long as core keeps an Idempotency-Key (semantics.md 5)
OVERWRITE = 2**62  # a writing that nothing comes after
ONLY = "only:"  # keys of messages that one person sees: only:<team>:<user>:<about>


@dataclass(frozen=True)
class DeliveryProblem:
    """Something that keeps messages from their channel, for `doctor`; `since` in ms."""

    channel: str
    message: str
    waiting: int
    since: int


@dataclass(frozen=True)
class PendingInteraction:
    """A click that was acknowledged at `at` (ms) and perhaps not carried out."""

    key: str
    payload: Mapping[str, Any]
    at: int


@dataclass(frozen=True)
class FeedCheckpoint:
    """How far core's feed was followed: the last event, and the id of the database that it is from ("": unknown)."""

    cursor: int
    database: str
    event: str


class MessageOutbox:
    """The durable queue to Slack and the inbox of acknowledged clicks; replicas of the bot share its file."""

    def __init__(
        self,
        path: Path,
        slack: AsyncWebClient,
        clock_ms: Callable[[], int],
        *,
        pace: RateLimiter | None = None,
        lease_ms: int = LEASE_MS,
        gate: ClearanceGuard | None = None,
    ) -> None:
        self._store = open_store(path)
        self.probe = Probe(self._store, tables.touch)
        self._clock = clock_ms
        self._me = owner.me()
        self._lease_ms = lease_ms
        self._pace = pace or RateLimiter()
        self.sender = Sender(self._store, slack, clock_ms, self._pace, gate or ClearanceGuard())

    async def close(self) -> None:
        await self._store.close()

    # what messages shall show

    def written(self) -> int:
        """The number of the last writing, to be asked before core is read for the next one."""
        return int(tables.value(self._store, "written") or 0)

    async def want(self, *desired: DesiredMessage, since: int = OVERWRITE) -> set[str]:
        """Durable: the states that these messages shall have.

        Those that another changed after the writing `since` stay as they are, since that one may have read core later;
        they are to be made once more. Returns the alerts and cases that these tell of.
        """
        return await self._write(desired, since)

    async def follow(
        self, desired: Sequence[DesiredMessage], cursor: int, *, since: int = OVERWRITE, last_event: str = ""
    ) -> set[str]:
        """The same, and the place in core's feed that they come from, in one transaction; that stays where it was
        as long as something is to be made once more. `last_event`
        tells what stands there."""

        def after(tx: Transaction, overtaken: set[str]) -> None:
            if not overtaken:
                tables.set_value(tx, "cursor", str(cursor))
                tables.set_value(tx, "last_event", last_event)

        return await self._write(desired, since, after)

    async def obey(self, desired: Sequence[DesiredMessage], kept: Mapping[str, int], *, since: int) -> bool:
        """The states of messages that were made for another clearance; `kept`: which stay as they are, for which.

        False when some of them must be looked at once more.
        """

        def after(tx: Transaction, overtaken: set[str]) -> None:
            overtaken.update(key for key, now in kept.items() if not tables.set_clearance(tx, key, now, since))

        return not await self._write(desired, since, after)

    async def doubt_all(self) -> None:
        """After a gap in the feed each message is to be looked at again, since its levels may have changed."""
        await self._store.transaction(tables.doubt_all)

    async def _write(
        self,
        desired: Sequence[DesiredMessage],
        since: int,
        after: Callable[[Transaction, set[str]], None] = lambda _tx, _overtaken: None,
    ) -> set[str]:
        now = self._clock()
        rows = [(one.subject, {**_row(one, now), "since": since}) for one in desired]

        def work(tx: Transaction) -> set[str]:
            _refuse_mismatch(tx)
            number = int(tables.value(tx, "written") or 0) + 1
            overtaken = set()
            for subject, row in rows:
                if tables.is_overtaken(tx, row):
                    overtaken.add(subject)
                else:
                    tables.want(tx, {**row, "written": number})
            if rows:
                tables.set_value(tx, "written", str(number))
            after(tx, overtaken)
            return overtaken

        overtaken = await self._store.transaction(work)
        self.sender.wake()
        return overtaken

    def cursor(self) -> int | None:
        """How far core's feed was followed; None before the first time."""
        text = tables.value(self._store, "cursor")
        return int(text) if text else None

    def seen(self) -> FeedCheckpoint | None:
        """How far core's feed was followed, and of which core; None before the first time."""
        found = tables.values(self._store, ("cursor", "core", "last_event"))
        if not found.get("cursor"):
            return None
        return FeedCheckpoint(int(found["cursor"]), found.get("core", ""), found.get("last_event", ""))

    async def recognize(self, database: str) -> None:
        """Core's database is the one that the messages tell of."""
        if tables.values(self._store, ("core", "mismatch")) == {"core": database}:
            return

        def work(tx: Transaction) -> None:
            tables.set_value(tx, "core", database)
            tables.drop_value(tx, "mismatch")

        await self._store.transaction(work)

    async def refuse(self, sentence: str) -> None:
        """Core's database is not the one that the messages tell of: none is changed, no button of theirs counts,
        in any replica, until it is recognized or the messages are forgotten."""
        if tables.value(self._store, "mismatch") != sentence:
            await self._store.transaction(lambda tx: tables.set_value(tx, "mismatch", sentence))

    def message(self, key: str) -> MessageRecord | None:
        """A message as delivery knows it."""
        row = tables.by_key(self._store, key)
        return shown(row) if row else None

    def message_at(self, channel: str, ts: str) -> MessageRecord | None:
        """The message of ours that stands there."""
        row = tables.in_slack(self._store, channel, ts)
        return shown(row) if row else None

    def cards(self, subject: str) -> list[MessageRecord]:
        """The top-level messages of an alert or a case."""
        return [shown(row) for row in tables.cards_of(self._store, subject)]

    def story(self, subject: str) -> list[MessageRecord]:
        """All messages of an alert or a case, its cards among them, oldest first."""
        return [shown(row) for row in tables.of_subject(self._store, subject)]

    def channels(self) -> Mapping[str, str]:
        """Where messages stand, or shall (channels, and people for direct messages), with the key of one of them."""
        return {row["channel"]: row["key"] for row in tables.channels(self._store)}

    def made_for_another(self, channel: str, clearance: int, *, unsent_only: bool = False) -> Sequence[str]:
        """Alerts and cases of which something there was made for another clearance than this, newest first."""
        return tables.made_for_another(self._store, channel, clearance, unsent_only)

    async def subjects(self, channel: str, limit: int) -> Sequence[str]:
        """Ids of the alerts whose cards stand in this channel, newest first."""
        return [row["subject"] for row in tables.subjects(self._store, channel, limit)]

    def recent_subjects(self, since: int) -> Sequence[str]:
        """Ids whose cards were posted or repainted since then (ms)."""
        return [row["subject"] for row in tables.recent_subjects(self._store, since)]

    def problems(self) -> list[DeliveryProblem]:
        """What can't be delivered, and why."""
        found = [DeliveryProblem(r["channel"], r["problem"], r["n"], r["since"]) for r in tables.problems(self._store)]
        if self.sender.trouble and not found:
            found.append(DeliveryProblem("", self.sender.trouble, self.waiting(), self._clock()))
        return found

    def waiting(self) -> int:
        """How many messages are not yet as they shall be."""
        return tables.waiting(self._store)

    async def hurry(self, channel: str) -> None:
        """Something changed about this channel (the bot was invited): try now, and let other replicas look too."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            tables.hurry(tx, channel, now)
            tables.set_value(tx, "to_look", str(now))

        await self._store.transaction(work)
        self.sender.wake()

    def to_look(self) -> str:
        """Another text than before, when a replica has heard since that a channel changed."""
        return tables.value(self._store, "to_look") or ""

    # buttons

    async def buttons(self, channel: str, message_key: str, intents: Sequence[Intent]) -> ButtonIds:
        """Opaque ids for these intents, bound to the channel ("" for views) and the message.

        An id that has more than half its life left is used again, so that an unchanged card stays unchanged.
        """
        known = self._known(channel, message_key)
        new = {intent: secrets.token_urlsafe(BUTTON_BYTES) for intent in intents if intent not in known}
        if new:
            expires_at = self._clock() + BUTTON_LIFE_MS
            rows = [_button_row(intent, token, channel, message_key, expires_at) for intent, token in new.items()]
            await self._store.transaction(lambda tx: tables.add_buttons(tx, rows))
        return {**known, **new}.__getitem__

    def _known(self, channel: str, message_key: str) -> dict[Intent, str]:
        rows = tables.buttons_of(self._store, channel, message_key, self._clock() + BUTTON_LIFE_MS // 2)
        return {_intent(row): row["token"] for row in rows}

    async def renew(self, token: str) -> None:
        """Let the next rendering have another id in its place; until then, and in an old card, this one still counts.

        Slack keeps an entry that was chosen in a menu on show for as long as the menu's block has the same id.
        """
        until = self._clock() + BUTTON_LIFE_MS // 2
        await self._store.transaction(lambda tx: tables.last_until(tx, token, until))

    async def press(self, token: str, *, channel: str, message_ts: str, user: str) -> Intent:
        """What the button means; pressing doesn't use it up.

        Raises ResponderBotError("gone") for an expired, forwarded or forged one, with `subject` in its
        details where the button was ours and in its place, so that Refresh can be offered; "conflict" while core's
        database is not the one that the messages tell of.
        """
        _refuse_mismatch(self._store)
        row = tables.button(self._store, token)
        if row is None or not self._in_its_place(row, channel, message_ts, user):
            raise ResponderBotError("gone", "This button does not belong here; nothing was run. Refresh the card.")
        if row["expires_at"] <= self._clock():
            raise ResponderBotError(
                "gone",
                "This button is too old; nothing was run. Refresh the card.",
                details={"subject": self._subject(row)},
            )
        return _intent(row)

    def _subject(self, row: Row) -> str:
        """The alert or case whose card holds the button."""
        message = self.message(row["message_key"])
        return (message.subject if message else "") or str(row["object_id"])

    def _in_its_place(self, row: Row, channel: str, message_ts: str, user: str) -> bool:
        key = row["message_key"]
        if key.startswith(ONLY) and key.split(":")[2] != user:
            return False
        if not row["channel"]:
            return True  # in a view, which only its person has
        message = self.message(key)
        if message is None:
            return bool(row["channel"] == channel)  # an ephemeral: its ts is not told to us
        if channel not in (message.channel, message.conversation or message.channel):
            return False
        # A post whose answer is still out has no ts yet; the click itself shows that it stands there.
        return message.ts == message_ts or not message.ts

    # inbox

    async def accept(self, key: str, payload: Mapping[str, Any]) -> bool:
        """Write an acknowledged click down before its acknowledgement; False when this key came before."""
        now, text = self._clock(), json.dumps(payload)
        return await self._store.transaction(
            lambda tx: tables.accept(tx, key, text, now, self._me, now + INBOX_LEASE_MS)
        )

    async def settle(self, key: str) -> None:
        """The click was carried out, or refused for good."""
        now = self._clock()
        await self._store.transaction(lambda tx: tables.settle(tx, key, now))

    async def left_behind(self) -> list[PendingInteraction]:
        """Clicks whose process ended before it carried them out; they are ours from now on."""
        now = self._clock()
        rows = [row for row in tables.unsettled(self._store) if self._abandoned(row["owner"], row["owned_until"], now)]

        def work(tx: Transaction) -> list[PendingInteraction]:
            until = now + INBOX_LEASE_MS
            return [
                PendingInteraction(row["key"], json.loads(row["payload"]), row["at"])
                for row in rows
                if tables.take_over(tx, row["key"], row["owner"], self._me, until)
            ]

        return await self._store.transaction(work) if rows else []

    # one of several

    async def hold_lease(self) -> bool:
        """Be, or stay, the one replica that follows the feed and sends."""
        now = self._clock()

        def work(tx: Transaction) -> bool:
            row = tables.lease(tx, "lead")
            if row and row["owner"] != self._me and not self._abandoned(row["owner"], row["until"], now):
                return False
            tables.set_lease(tx, "lead", self._me, now + self._lease_ms)
            return True

        return await self._store.transaction(work)

    async def release_lease(self) -> None:
        await self._store.transaction(lambda tx: tables.release(tx, "lead", self._me))

    def _abandoned(self, who: str, until: int, now: int) -> bool:
        return until <= now if who == self._me else until <= now or owner.is_dead(who)

    async def prune(self) -> None:
        """Forget what nothing needs any more."""
        now = self._clock()
        await self._store.transaction(lambda tx: tables.prune(tx, now - INBOX_KEEP_MS, now - 30 * BUTTON_LIFE_MS))

    # watches

    async def watch(self, team: str, user: str, subject: str) -> bool:
        """Remember that this person watches an id (`~12`) or a responder (`responder:<name>`). False: already so."""
        now = self._clock()
        return await self._store.transaction(lambda tx: tables.watch(tx, team, user, subject, now))

    async def unwatch(self, team: str, user: str, subject: str) -> bool:
        """Forget it. False: it wasn't so."""
        return await self._store.transaction(lambda tx: tables.unwatch(tx, team, user, subject))

    async def watched(self, team: str, user: str) -> Sequence[str]:
        """What this person watches."""
        return [row["subject"] for row in tables.watched(self._store, team, user)]

    def watchers(self, subjects: Sequence[str]) -> list[tuple[str, str]]:
        """Team and user of those who watch any of these."""
        return [(row["team"], row["user"]) for row in tables.watchers(self._store, subjects)]


def _refuse_mismatch(reads: Reads) -> None:
    sentence = tables.value(reads, "mismatch")
    if sentence:
        raise ResponderBotError("conflict", sentence)


async def forget_messages(path: Path) -> int:
    """Forget every message in the bot's database; how many there were. They stay in Slack as they are."""
    store = open_store(path)
    try:
        return await store.transaction(tables.forget_messages)
    finally:
        await store.close()


def _row(desired: DesiredMessage, now: int) -> dict[str, str | int]:
    payload = desired.payload()
    name, text = desired.file or ("", "")
    view = desired.view
    return {
        "key": desired.key,
        "channel": desired.channel,
        "subject": desired.subject,
        "thread_of": desired.thread_of,
        "payload": payload,
        "digest": digest(payload),
        "mark": secrets.token_hex(BUTTON_BYTES),
        "by_person": 1 if desired.by_person else -int(desired.in_bulk),
        "now": now,
        "soon": now + SETTLE_MS if desired.is_progress else now,
        "news": int(not desired.is_progress),
        "bundle_ms": BUNDLE_MS,
        "file_name": name,
        "file_text": text,
        "file_sent": int(desired.file is None),
        "clearance": view.clearance if view else 0,
        "about": f"{view.subject.kind} {view.subject.id}" if view else "",
        "sight": view.fingerprint if view else "",
    }


def _button_row(intent: Intent, token: str, channel: str, message_key: str, expires_at: int) -> dict[str, str | int]:
    return {
        "token": token,
        "channel": channel,
        "message_key": message_key,
        "what": intent.what,
        "object_id": intent.object_id,
        "argument": intent.argument,
        "expires_at": expires_at,
    }


def _intent(row: Row) -> Intent:
    return Intent(row["what"], row["object_id"], row["argument"])
