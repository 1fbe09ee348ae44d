"""Does what is due at a time: one loop, with a handler for each kind (core/docs/storage.md#what-is-due).

While a core runs it measures by the uptime of its machine, so a clock that is set moves nothing. After a start the
clock counts.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from core.common.clock import Clock, boot_ms
from core.common.database import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.tasks import Backoff, repeat
from core.store import due as stored
from core.store.database import sequences

LOOK_S = 0.5
AT_ONCE = 50  # in one transaction
PAGE = 1_000
NAMED = 10
AFTER_REFUSAL = Backoff(60.0, 3_600.0)

Followup = Callable[[], None]
Handler = Callable[[Transaction, Row], Followup | None]
"""Does in a transaction what is due of a subject (`id`) at a time (`at`); returns what to do after the commit.

Raises ResponderBotError if it can't be done now: it is tried again.
"""

log = structlog.get_logger()


@dataclass(frozen=True, order=True)
class _Waiting:
    """A row of `due`, and when its time comes by the uptime of this machine."""

    due_at: int
    number: int


class Due:
    """Handles each row of `due` once its time has come; of several cores one does."""

    def __init__(
        self, database: Database, clock: Clock, handlers: Mapping[stored.Kind, Handler], *, uptime: Clock = boot_ms
    ) -> None:
        """`handlers` in the order in which they go if much is due."""
        self._database = database
        self._clock = clock
        self._uptime = uptime
        self._handlers = handlers
        self._waiting: Mapping[str, list[_Waiting]] = {kind: [] for kind in handlers}  # heaps
        self._newest: int | None = None  # the row that was put last; None before the first look
        self._looked_at = 0  # by the uptime
        self._offset = 0  # of the clock from the uptime at that time

    async def run(self) -> None:
        """Handle what is due until cancelled."""
        await repeat("due", LOOK_S, self.look)

    async def look(self, *kinds: stored.Kind) -> int:
        """Handle what is due now, of these kinds (none: of all); returns how much was."""
        handled = 0
        await self._read()
        while (batch := self._next_batch(kinds or self._handlers)) is not None:
            kind, rows = batch
            try:
                followups = await self._database.transaction(
                    lambda tx, kind=kind, rows=rows: self._handle(tx, kind, rows)  # type: ignore[misc]
                )
            except BaseException:
                for row in rows:
                    heapq.heappush(self._waiting[kind], row)
                raise
            for followup in followups:
                followup()
            handled += len(rows)
            await self._read()  # what has come due meanwhile may go before the rest
        return handled

    async def problem(self) -> str:
        """What is set aside, as a sentence; "" without any."""
        rows = await self._database.read(lambda reads: stored.damaged(reads, NAMED))
        named = ", ".join(f"~{row['id']} ({row['kind']})" for row in rows)
        sentence = "was due and could not be handled, as its record is damaged; do what the log says, and restart core."
        return f"{named} {sentence}" if rows else ""

    async def _read(self) -> None:
        """Read what was put since the last time, and when its time comes by the uptime."""
        if await self._database.read(lambda reads: sequences.last(reads, "due")) < (self._newest or 0):
            self._newest = None  # a copy that lacks the last rows went on, and gives their numbers again
            self._waiting = {kind: [] for kind in self._handlers}
        is_first = self._newest is None
        if is_first:
            await self._database.transaction(stored.take_up)
        newest, is_all = self._newest or 0, False
        while not is_all:
            rows = await self._database.read(lambda reads, newest=newest: stored.after(reads, newest, PAGE))  # type: ignore[misc]
            now, uptime = self._clock(), self._uptime()
            for row in rows:
                left = row["at"] - now if is_first else row["wait"] - self._passed(row, now, uptime)
                if row["kind"] in self._waiting:
                    heapq.heappush(self._waiting[row["kind"]], _Waiting(uptime + left, row["number"]))
                newest = row["number"]
            is_all = len(rows) < PAGE
        self._newest, self._looked_at, self._offset = newest, uptime, now - uptime

    def _passed(self, row: Row, now: int, uptime: int) -> int:
        """How long ago a row was put, at least: not before the last look, and by no jump of the clock since."""
        jumped = max(0, now - uptime - self._offset)
        return int(min(max(0, now - (row["at"] - row["wait"]) - jumped), uptime - self._looked_at))

    def _next_batch(self, kinds: Iterable[stored.Kind]) -> tuple[stored.Kind, list[_Waiting]] | None:
        uptime = self._uptime()
        for kind in kinds:
            heap, rows = self._waiting[kind], list[_Waiting]()
            while heap and heap[0].due_at <= uptime and len(rows) < AT_ONCE:
                rows.append(heapq.heappop(heap))
            if rows:
                return kind, rows
        return None

    def _handle(self, tx: Transaction, kind: stored.Kind, rows: Sequence[_Waiting]) -> list[Followup]:
        followups = []
        for waiting in rows:
            try:
                with tx.savepoint():
                    row = stored.take(tx, waiting.number)
                    followup = None if row is None else self._handle_one(tx, kind, row)
            except Exception as error:
                if tx.is_in_doubt(error):
                    raise
                log.exception("due_failed", kind=kind, number=waiting.number)
                stored.set_aside(tx, waiting.number)
            else:
                followups += [followup] if followup else []
        return followups

    def _handle_one(self, tx: Transaction, kind: stored.Kind, row: Row) -> Followup | None:
        try:
            with tx.savepoint():
                return self._handlers[kind](tx, row)
        except ResponderBotError as error:
            log.warning("due_refused", kind=kind, id=f"~{row['id']}", reason=error.message)
            tries, now = row["tries"] + 1, self._clock()
            stored.put(tx, kind, row["id"], now + int(AFTER_REFUSAL.after(tries) * 1000), now, tries=tries)
            return None
