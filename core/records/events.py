"""The event feed: every change of an object, in order, and the wait for the next one (`semantics.md 8`)."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from core.common.clock import Clock
from core.common.database.sqlite import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.models import Event, EventPage
from core.store import backup
from core.store import events as stored

PAGE_EVENTS = 500  # one answer stays well below the body limit
OTHERS_LOOK_S = 0.1  # how soon a commit of another process is seen; looked for only while somebody waits
DAY_MS = 86_400_000


def record(tx: Transaction, *, at: int, type: str, object_type: str, object_id: int, root_id: int, user: str) -> None:
    """Write one event, in the transaction of the change that it tells of.

    `type` is `<kind>.<created|updated|ended|deleted>`, `root_id` the alert or case to which the object belongs.
    """
    record_all(tx, at=at, type=type, object_type=object_type, object_ids=[object_id], root_id=root_id, user=user)


def record_all(
    tx: Transaction, *, at: int, type: str, object_type: str, object_ids: Iterable[int], root_id: int, user: str
) -> None:
    """Write one such event for each object."""
    stored.append(tx, at=at, type=type, object_type=object_type, object_ids=object_ids, root_id=root_id, user=user)


@dataclass(frozen=True)
class FeedPosition:
    """A place in the store's history, for `Feed.changed`."""

    committed: asyncio.Event
    version: int


class Feed:
    """The reader's side of the feed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._committed = asyncio.Event()
        self._waiting = 0
        self._database_id = backup.database_id(database)
        database.on_commit(self._wake)

    async def page(self, after: int | None, wait_s: float) -> EventPage:
        """What came after `after` (None: nothing yet), at once if there is any, else after at most `wait_s`.

        Raises ResponderBotError("gone") with `first` where some of it is no longer kept, and with `restored`, the
        time of the backup (ms), where `after` was lost when that was restored.
        """
        last = self.last()
        self._refuse_lost(after)
        # A number that was never given is from a store that has been put back since: such a reader goes on from now.
        seq = last if after is None else min(after, last)
        self._refuse_gone(seq)
        page = self._read(seq)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(wait_s, 0)):
                while not page.events:
                    mark = self.mark()
                    page = self._read(seq)
                    if not page.events:
                        await self.changed(mark)
                        page = self._read(seq)  # before the next mark: it would cost as much again
        return page

    def mark(self) -> FeedPosition:
        """Where the store stands; take it before you look, and `changed` misses nothing."""
        return FeedPosition(self._committed, self._database.version())

    async def changed(self, mark: FeedPosition) -> None:
        """Return once something was committed after `mark`, by this process or by another."""
        while not mark.committed.is_set() and self._database.version() == mark.version:
            with suppress(TimeoutError):
                async with asyncio.timeout(OTHERS_LOOK_S):
                    await mark.committed.wait()

    def last(self) -> int:
        """The number of the newest event."""
        return stored.bounds(self._database)[1]

    async def prune(self, days: int) -> None:
        """Forget what is older than `days`."""
        before = self._clock() - days * DAY_MS
        await self._database.transaction(lambda tx: stored.prune(tx, before))

    def _wake(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()

    def _read(self, seq: int) -> EventPage:
        events = [_event(row) for row in stored.after(self._database, seq, PAGE_EVENTS)]
        return EventPage(events=events, last=events[-1].seq if events else seq, database=self._database_id)

    def _refuse_lost(self, after: int | None) -> None:
        made_at = None if after is None else backup.lost(self._database, after)
        if made_at is not None:
            raise ResponderBotError(
                "gone",
                f"Core was restored from a backup of {backup.as_time(made_at)}, without event {after}; look at all"
                " objects anew, and go on without `after`.",
                details={"first": self.last() + 1, "restored": made_at},
            )

    def _refuse_gone(self, seq: int) -> None:
        first, last = stored.bounds(self._database)
        oldest_readable = first - 1 if first else last
        if seq < oldest_readable:
            raise ResponderBotError(
                "gone",
                f"Events before {oldest_readable + 1} are no longer kept; look at the objects anew.",
                details={"first": oldest_readable + 1},
            )


def _event(row: Row) -> Event:
    return Event(
        seq=row["seq"],
        at=row["at"],
        type=row["type"],
        object_type=row["object_type"],
        object_id=f"~{row['object_id']}",
        root_id=f"~{row['root_id']}",
        user=row["user"],
    )
