"""The event feed: every change of an object, in order, and the wait for the next one."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from core.common.clock import as_time
from core.common.database import Database, Reads, Row
from core.common.errors import ResponderBotError
from core.common.private_files import replace_text
from core.common.tasks import repeat
from core.models import NEW_ALERT, Event, EventPage
from core.store import events as stored
from core.store.database import backup

PAGE_EVENTS = 500  # keeps an answer well below the body limit
POLL_S = 0.1  # between polls for commits of other processes, while a reader waits
GATHER_STEP_S = 0.005  # between polls for further events, while new alerts are gathered


@dataclass(frozen=True)
class FeedPosition:
    """A position in the store's history, for `Feed.changed`."""

    committed: asyncio.Event
    version: int


class Feed:
    """Reads the feed, and waits for changes."""

    def __init__(self, database: Database, database_id: str) -> None:
        self._database = database
        self._committed = asyncio.Event()
        """Set by the next commit of this process."""
        self.newest = LastEvent(database, database_id)
        self._last = 0
        self._last_at: asyncio.Event | None = None
        """The value of `_committed` when `_last` was read."""
        self._reading_last = asyncio.Lock()
        self.database_id = database_id
        """Sequence numbers of another database mean other events."""
        database.on_commit(self._on_commit)

    @classmethod
    async def open(cls, database: Database) -> "Feed":
        """The feed of a database. Raises ResponderBotError("unavailable")."""
        return cls(database, await database.read(backup.database_id))

    async def page(self, after: int | None, wait_s: float, database: str = "", *, gather_s: float = 0.0) -> EventPage:
        """The events after number `after` (None: after the newest); waits up to `wait_s` if there are none yet.

        While all of them are new alerts, it waits up to `gather_s` for further events. Raises ResponderBotError("gone")
        with `first` if some of them were pruned, or if `after` is a number of another `database`; and with `restored`,
        the time of the backup (ms), if `after` was lost when that was restored.
        """
        seq, page = await self._database.read(lambda reads: self._first(reads, after, database))
        if wait_s <= 0 or (after is not None and after > seq):
            return page  # this number was never given, so its database was replaced
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not page.events:
                    position = self.position()
                    page = await self._after(seq)
                    if not page.events:
                        await self.changed(position)
                        page = await self._after(seq)  # before the next position, which costs as much
        until = asyncio.get_running_loop().time() + gather_s
        while _has_only_new_alerts(page) and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(GATHER_STEP_S)
            page = await self._after(seq)
        return page

    def _first(self, reads: Reads, after: int | None, database: str) -> tuple[int, EventPage]:
        """The number that a page begins after, and the page as it is now."""
        newest = stored.last(reads)
        _check_not_lost(reads, after, newest)
        if database not in ("", self.database_id):
            raise ResponderBotError(
                "gone",
                "Core has another database now; read all objects again, and go on without `after`.",
                details={"first": newest + 1},
            )
        seq = newest if after is None else min(after, newest)
        page = self.read(reads, seq)
        _check_not_pruned(reads, seq)  # afterwards: what was pruned before it was read would be missing
        return seq, page

    async def _after(self, seq: int) -> EventPage:
        return await self._database.read(lambda reads: self.read(reads, seq))

    def position(self) -> FeedPosition:
        """The current position; take it before reading, so that `changed` misses nothing."""
        return FeedPosition(self._committed, self._database.version())

    async def changed(self, position: FeedPosition) -> None:
        """Return once this or another process has committed something after the position."""
        while not position.committed.is_set() and self._database.version() == position.version:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await position.committed.wait()

    async def last(self) -> int:
        """A number not below that of the caller's last event; requests that share a commit read it once."""
        async with self._reading_last:
            if self._last_at is not self._committed:
                committed = self._committed
                self._last, self._last_at = await self.newest.read(), committed
            return self._last

    def _on_commit(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()

    def read(self, reads: Reads, seq: int) -> EventPage:
        """The events after that number, without waiting for any."""
        events = [_event(row) for row in stored.after(reads, seq, PAGE_EVENTS)]
        return EventPage(events=events, last=events[-1].seq if events else seq, database=self.database_id)


def _has_only_new_alerts(page: EventPage) -> bool:
    return 0 < len(page.events) < PAGE_EVENTS and all(event.type == NEW_ALERT for event in page.events)


def _check_not_lost(reads: Reads, after: int | None, newest: int) -> None:
    made_at = None if after is None else backup.lost(reads, after)
    if made_at is not None:
        raise ResponderBotError(
            "gone",
            f"Core was restored from a backup of {as_time(made_at)}, without event {after}; read all"
            " objects again, and go on without `after`.",
            details={"first": newest + 1, "restored": made_at},
        )


def _check_not_pruned(reads: Reads, seq: int) -> None:
    first, newest = stored.bounds(reads)
    oldest_readable = first - 1 if first else newest
    if seq < oldest_readable:
        raise ResponderBotError(
            "gone",
            f"Events before {oldest_readable + 1} are no longer kept; read the objects again.",
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
        request_id=row["request_id"],
    )


# --- the newest event that this host has seen; a database that ends before it has lost events -------------------------


LOOK_S = 5.0
FILE = "last-event"  # beside `host-id`

log = structlog.get_logger(__name__)


class LastEvent:
    """Reads the number of the newest event, and notices when it goes back."""

    def __init__(self, database: Database, database_id: str) -> None:
        self._database = database
        self._database_id = database_id
        self._file: Path | None = None
        self._newest = self._seen = self._remembered = 0
        self.went_back = asyncio.Event()
        """Set once the newest event of the database is older than one seen before: nothing may run on it."""

    async def read(self) -> int:
        """The number of the newest event. Raises ResponderBotError("unavailable") if it went back."""
        seen = self._seen  # before the read: another one may end meanwhile
        number = await self._database.read(stored.last)
        if number < seen:
            if not self.went_back.is_set():
                log.error("database_went_back", newest=number, seen=seen)
            self._newest = number
            self.went_back.set()
            raise self.error()
        self._seen = max(self._seen, number)
        return number

    def error(self) -> ResponderBotError:
        """The error once the number went back, with what to do."""
        return ResponderBotError(
            "unavailable",
            f"The database ends with event {self._newest}, and this host has seen event {self._seen}: a copy without"
            " the last changes has taken its place. Stop every responder-bot and put the right one back, or run"
            " `responder-bot restore` (core/docs/storage.md#a-copy-without-the-last-changes), and start again.",
        )

    async def remember_in(self, folder: Path) -> None:
        """Continue from the number that this host has seen, and keep it up to date. Raises as `read` does."""
        self._file = folder / FILE
        self._seen = await asyncio.to_thread(self._read_file, self._file)
        await self._look()

    async def watch(self) -> None:
        """Poll the number until cancelled."""
        await repeat("newest event", LOOK_S, self._look)

    async def _look(self) -> None:
        await self.read()
        await self.remember()

    async def remember(self) -> None:
        """Save the number for the next process of this host."""
        if self._file is None or self._remembered == self._seen:
            return
        number = self._seen
        try:
            await asyncio.to_thread(replace_text, self._file, f"{self._database_id} {number}")
        except OSError as error:
            log.warning("last_event_not_remembered", reason=error.strerror)
        else:
            self._remembered = number

    def _read_file(self, file: Path) -> int:
        """0 if nothing is remembered of this database."""
        try:
            database_id, _, number = file.read_text().partition(" ")
            return int(number) if database_id == self._database_id else 0
        except (OSError, ValueError):
            return 0
