"""Deletes what the bot keeps of alerts and cases that were closed long ago (bot/docs/delivery.md#retention).

Their messages stay in Slack as they are.
"""

# ruff: noqa: S608  # every fragment is a constant of this module, every value is bound

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from operator import methodcaller

from bot.outbox import state
from bot.outbox.store import Stores
from core.common.clock import DAY_MS, Clock
from core.common.database import Reads, Row, Transaction
from core.common.database.shrinking import PAUSE_S, STEP_S, shrink
from core.common.errors import ResponderBotError
from core.models import MAX_IDS, ClosedObjects

CONTENT_KEEP_MS = 30 * DAY_MS  # of a message that Slack shows; one that changes is rendered anyway
AT_ONCE = MAX_IDS  # as core takes no more

_PARTS = {
    "file": "file WHERE message_key IN ({keys})",
    "button_set": "button_set WHERE message_key IN ({keys})",
    "channel_alert": "channel_alert WHERE root_id = :root_id",
    "message": "message WHERE key IN ({keys})",
}
"""What goes with an alert, a case or a single message; messages last, as they lead to the others."""
_KEYS_OF_ROOT = "SELECT key FROM message WHERE root_id = :root_id"
_STAYS = """SELECT 1 FROM message m LEFT JOIN file f ON f.message_key = m.key WHERE m.key IN ({keys})
    AND (m.status NOT IN ('shown', 'deleted') OR m.duplicate_check_at > 0 OR f.status <> 'shown'
        OR m.created_at >= :before OR (m.root_id = '' AND m.changed_at >= :before)) LIMIT 1"""
_LONG_SHOWN = "status = 'shown' AND payload <> '' AND changed_at < :before"  # as in the index

# What goes by its own age: a table, its key, which rows (as in an index), and how long they are kept.
_SHORT_LIVED = (
    ("inbox", "key", "done_at > 0 AND done_at < :before", DAY_MS),  # as long as core keeps an Idempotency-Key
    ("button_set", "nonce", "expires_at < :before", 30 * DAY_MS),  # so that an expired one can still offer Refresh
    ("button_set", "nonce", "message_key >= 'only:' AND message_key < 'only;' AND expires_at < :before", 0),
    # Where an alert with a card of its own stands is only of use while others like it may come.
    ("channel_alert", "root_id, channel", "group_key = '' AND at < :before", DAY_MS),
    ("channel_alert", "root_id, channel", "group_key <> '' AND at < :before", 30 * DAY_MS),
    ("alert_group", "key", "last_at < :before", 30 * DAY_MS),
)

AskCore = Callable[[Collection[str]], Awaitable[ClosedObjects]]


@dataclass(frozen=True)
class _Subject:
    """An alert or a case with its messages or, where `root_id` is "", a single message."""

    root_id: str
    key: str

    def sql(self, text: str) -> str:
        return text.format(keys=_KEYS_OF_ROOT if self.root_id else ":key")


_Work = Callable[[Sequence[_Subject], str | None], Awaitable[Counter[str]]]
"""Does something with what is due, as core's database with this id says; None: core was not asked."""


class Retention:
    """Deletes messages with what belongs to them `days` after their alert or case was closed; 0: never."""

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        days: int,
        ask_core: AskCore,
        *,
        step_s: float = STEP_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`ask_core` says which alerts and cases are over; it takes AT_ONCE ids of objects."""
        self._stores = stores
        self._store = stores.messages
        self._clock = clock
        self._days = days
        self._ask_core = ask_core
        self._step_s, self._pause_s = step_s, pause_s
        self.counts: Counter[str] = Counter()
        """How much of each kind this process has deleted."""

    async def prune(self) -> Counter[str]:
        """Delete what is due, and of other old messages the content; returns how much of each kind.

        Raises ResponderBotError: "conflict" if core's database is not the one that the messages belong to.
        """
        counts = Counter[str]()
        await self._prune_short_lived()
        while dropped := await self._store.transaction(self._drop_content):
            counts["content"] += dropped
            await asyncio.sleep(self._pause_s)
        counts += await self._each(self._delete)
        for store in {self._store, self._stores.inbox}:
            await shrink(store, self._step_s, self._pause_s)
        self.counts += counts
        return counts

    async def _prune_short_lived(self) -> None:
        now = self._clock()
        for table, key, rows, keep_ms in _SHORT_LIVED:
            some = f"SELECT {key} FROM {table} WHERE {rows} LIMIT :limit"
            sql = f"DELETE FROM {table} WHERE ({key}) IN ({some})"
            work = methodcaller("run", sql, {"before": now - keep_ms, "limit": AT_ONCE})
            store, deleted = self._stores.inbox if table == "inbox" else self._store, AT_ONCE
            while deleted == AT_ONCE:
                deleted = await store.transaction(work)
                await asyncio.sleep(self._pause_s)

    async def preview(self) -> Counter[str]:
        """How much of each kind `prune` would delete now."""
        values = {"before": self._clock() - CONTENT_KEEP_MS}
        sql = f"SELECT count(*) AS total FROM message WHERE {_LONG_SHOWN}"
        content = await self._store.read(lambda reads: reads.number(sql, values))
        return Counter({"content": content}) + await self._each(self._count)

    async def _each(self, work: _Work) -> Counter[str]:
        """Do something with all that is due."""
        counts, after, seen = Counter[str](), 0, set[str]()
        if not self._days:
            return counts
        while rows := await self._old_messages(after):
            after = rows[-1]["number"]
            subjects = {row["root_id"] or row["key"]: _Subject(row["root_id"], row["key"]) for row in rows}
            counts += await self._due(list(subjects.values()), seen, work)
        return counts

    async def _due(
        self,
        subjects: Sequence[_Subject],
        seen: set[str],
        work: _Work,
    ) -> Counter[str]:
        roots = [subject.root_id for subject in subjects if subject.root_id and subject.root_id not in seen]
        seen.update(roots)
        response = await self._ask_core(roots) if roots else None
        over = {root_id for root_id, at in response.closed_at.items() if at < self._before} if response else set()
        gone = {*over, *response.missing} if response else over
        due = [subject for subject in subjects if not subject.root_id or subject.root_id in gone]
        return await work(due, response.database if response else None) if due else Counter()

    @property
    def _before(self) -> int:
        return self._clock() - self._days * DAY_MS

    async def _old_messages(self, after: int) -> Sequence[Row]:
        """The next messages that were made before then, in the order in which they were."""
        sql = "SELECT number, key, root_id, created_at FROM message WHERE number > :after ORDER BY number LIMIT :limit"
        rows = await self._store.read(lambda reads: reads.rows(sql, {"after": after, "limit": AT_ONCE}))
        return [row for row in rows if row["created_at"] < self._before]

    def _drop_content(self, tx: Transaction) -> int:
        """Forget what Slack shows for long, as its digest tells whether it changes."""
        # Without `number = number` SQLite would keep the pages, each nearly empty.
        return tx.run(
            f"""UPDATE message SET payload = '', number = number WHERE {_LONG_SHOWN} AND number IN (
                  SELECT number FROM message WHERE {_LONG_SHOWN} ORDER BY changed_at LIMIT :limit)""",
            {"before": self._clock() - CONTENT_KEEP_MS, "limit": AT_ONCE},
        )

    async def _count(self, due: Sequence[_Subject], database: str | None) -> Counter[str]:
        def work(reads: Reads) -> Counter[str]:
            counts = Counter[str]()
            for subject in due:
                values = vars(subject)
                if reads.row(subject.sql(_STAYS), {**values, "before": self._before}) is None:
                    for kind, part in _PARTS.items():
                        counts[kind] += reads.number(f"SELECT count(*) AS total FROM {subject.sql(part)}", values)
            return +counts

        return await self._store.snapshot(work)

    async def _delete(self, due: Sequence[_Subject], database: str | None) -> Counter[str]:
        counts, left = Counter[str](), list(due)

        def work(tx: Transaction) -> tuple[int, Counter[str]]:
            if database is not None and database != state.value(tx, "core_database"):
                raise ResponderBotError(
                    "conflict", "Core has another database than these messages; nothing is deleted."
                )
            until, deleted = time.monotonic() + self._step_s, Counter[str]()
            for done, subject in enumerate(left, 1):
                values = vars(subject)
                if tx.row(subject.sql(_STAYS), {**values, "before": self._before}) is None:
                    for kind, part in _PARTS.items():
                        deleted[kind] += tx.run(f"DELETE FROM {subject.sql(part)}", values)
                if time.monotonic() >= until:
                    return done, deleted
            return len(left), deleted

        while left:
            done, deleted = await self._store.transaction(work)
            counts += deleted
            left = left[done:]
            await asyncio.sleep(self._pause_s)
        return counts
