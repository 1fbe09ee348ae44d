"""Deletes what is closed and old enough (core/docs/storage.md#retention).

Each step is a transaction that checks again what it deletes, so it can be interrupted anywhere, and several cores can
prune at once.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from core.audit import trail
from core.common.clock import DAY_MS, FOR_EVER, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.database.shrinking import PAUSE_S, STEP_S, shrink
from core.common.settings_file import RetentionSection
from core.models import ClosedObjects, parse_ids
from core.records.writes import record_event
from core.reports.report import without_report
from core.settings import CoreSettings, Rate, ResponderSection
from core.store import actions as stored_actions
from core.store import attachments, audit, events
from core.store import retention as stored
from core.store.database import backup

AT_ONCE = 200  # rows that are looked up together
ROOTS: tuple[stored.Root, ...] = ("case", "alert")

Position = tuple[int, int]
"""The time and id of the last row that was looked at."""
START: Position = (0, 0)


@dataclass
class Step:
    """What one transaction deletes, by kind, and until when it may go on."""

    until: float
    """By the monotonic clock."""
    counts: Counter[str] = field(default_factory=Counter)
    deleted: list[str] = field(default_factory=list)
    """The alerts and cases."""
    is_silent: bool = False
    """Whether there is no event of it: in a backup its number would be that of one which is lost."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


Work = Callable[[Transaction, Step, Position], Position | None]
"""Deletes from that position until the step is over. Returns the next position, or None at the end."""


def longest_rule_ms(sections: Collection[ResponderSection]) -> int:
    """How long a run counts for some rate."""
    rates = (Rate.parse(text).ms for section in sections for text in (*section.rate, *section.rate_per_target))
    return max(rates, default=0)


class Retention:
    """Deletes what is older than `[retention]` says; what is open, in force or waits stays."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        section: RetentionSection,
        *,
        event_days: int = 0,
        rules_ms: int = 0,
        step_s: float = STEP_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Events go after `event_days`; 0: never.

        Nothing else goes that is younger than `rules_ms` (see `longest_rule_ms`), lest a rate forgets it.
        """
        self._step_s, self._pause_s = step_s, pause_s
        self._database = database
        self._clock = clock
        self._section = section
        self._event_days = event_days
        self._rules_ms = rules_ms
        self.counts: Counter[str] = Counter()
        """How much of each kind this process has deleted."""

    @classmethod
    def of(cls, settings: CoreSettings, database: Database, clock: Clock) -> "Retention":
        rules_ms = longest_rule_ms(settings.responder.values())
        return cls(database, clock, settings.retention, event_days=settings.core.event_days, rules_ms=rules_ms)

    async def closed(self, ids: Collection[str]) -> ClosedObjects:
        """Which of these objects belong to closed alerts and cases. Raises as `parse_ids` does."""
        numbers = parse_ids(ids)

        def read(reads: Reads) -> ClosedObjects:
            roots = {text: stored.root_of(reads, number) for text, number in numbers.items()}
            missing = [text for text, root_id in roots.items() if root_id is None]
            closed = {
                text: stored.closed_at(reads, stored.deciding_root(reads, root_id))
                for text, root_id in roots.items()
                if root_id is not None
            }
            return ClosedObjects(
                closed_at={text: at for text, at in closed.items() if at is not None},
                missing=missing,
                database=backup.database_id(reads),
            )

        return await self._database.snapshot(read)

    async def prune(self) -> Counter[str]:
        """Delete all that is due; returns how much of each kind."""
        already = self.counts.copy()
        if self._event_days:
            await self._run(self._delete_events)
        await self._run(self._delete_keys)
        if self._section.alert_days:
            for kind in ROOTS:
                await self._run(partial(self._delete_roots, kind))
            await self._run(self._delete_bulks)
        if self._section.report_days:
            await self._run(self._remove_reports)
        if self._section.audit_days:
            await self._run(self._delete_rows)
        await self._run(_delete_files)
        await shrink(self._database, self._step_s, self._pause_s)
        return self.counts - already

    async def delete(self, roots: Sequence[tuple[stored.Root, int]], *, is_forced: bool = False) -> None:
        """Delete these alerts and cases whatever their age.

        What is open or in force stays, unless it `is_forced`, as in a backup from before it was erased; that
        has no events then.
        """
        await self._run(partial(self._delete_each, roots, is_forced))
        await self._run(_delete_files)
        await shrink(self._database, self._step_s, self._pause_s)

    def _delete_each(
        self, roots: Sequence[tuple[stored.Root, int]], is_forced: bool, tx: Transaction, step: Step, at: Position
    ) -> Position | None:
        step.is_silent = is_forced
        for place, (kind, number) in enumerate(roots[at[0] :], at[0]):
            goes = is_forced or stored.is_due(tx, number, FOR_EVER)
            for item in stored.items(tx, kind, number, number) if goes else ():
                if is_forced and item.kind == "action":
                    stored_actions.delete_report(tx, item.id)
                self._delete(tx, item, step)
                if step.is_over:
                    return place, 0
        return None

    async def preview(self) -> Counter[str]:
        """How much of each kind `prune` would delete now."""
        counts, shared = Counter[str](), Counter[tuple[str, str]]()

        def count(after: Position, reads: Reads, *, kind: stored.Root) -> Position | None:
            rows = stored.closed(reads, kind, self._alerts_before, after, AT_ONCE)
            for row in rows:
                for item in self._due_items(reads, kind, row["id"]):
                    counts[item.kind] += 1
                    shared.update(stored.shared_by(reads, item))
            return _last(rows, "closed_at")

        def count_events(after: Position, reads: Reads) -> Position | None:
            rows = self._old_events(reads, after)
            counts["event"] += len(rows)
            return _last(rows, "at")

        def count_reports(after: Position, reads: Reads) -> Position | None:
            rows = stored.reports(reads, self._reports_before, after, AT_ONCE)
            counts["report"] += sum(self._report_goes(reads, row) for row in rows)
            return _last(rows, "report_at")

        def count_shared(reads: Reads) -> None:
            shared.update(("file", file_id) for file_id in attachments.dropped(reads))
            for (kind, key), gone in shared.items():
                counts[kind] += stored.count_sharing(reads, kind, key) <= gone
            if self._section.alert_days:
                counts["bulk"] += stored.count_refused_bulks(reads, self._alerts_before)
            if self._section.audit_days:
                counts["audit"] += audit.count_older(reads, self._clock() - self._section.audit_days * DAY_MS)

        if self._event_days:
            await self._read_all(count_events)
        for kind in ROOTS if self._section.alert_days else ():
            await self._read_all(partial(count, kind=kind))
        if self._section.report_days:
            await self._read_all(count_reports)
        await self._database.snapshot(count_shared)
        return +counts

    @property
    def _alerts_before(self) -> int:
        return self._clock() - max(self._section.alert_days * DAY_MS, self._rules_ms)

    @property
    def _reports_before(self) -> int:
        return self._clock() - self._section.report_days * DAY_MS

    async def _read_all(self, page: Callable[[Position, Reads], Position | None]) -> None:
        after: Position | None = START
        while after is not None:
            after = await self._database.snapshot(partial(page, after))

    async def _run(self, work: Work) -> None:
        """Do all steps of a work."""
        at: Position | None = START
        while at is not None:
            at, counts = await self._database.transaction(partial(self._step, work, at))
            self.counts += counts
            if at is not None:
                await asyncio.sleep(self._pause_s)

    def _step(self, work: Work, at: Position, tx: Transaction) -> tuple[Position | None, Counter[str]]:
        step = Step(time.monotonic() + self._step_s)
        position = work(tx, step, at)
        if counts := +step.counts:
            trail.record(
                tx,
                self._clock(),
                "pruned",
                by=trail.CORE,
                object="retention",
                counts=dict(counts),
                deleted=step.deleted,
            )
        return position, step.counts

    def _old_events(self, reads: Reads, after: Position) -> list[Row]:
        """The next events that are old enough; they are in order of time, but for a clock that was set back."""
        before = self._clock() - self._event_days * DAY_MS
        return list(takewhile(lambda row: row["at"] < before, events.oldest(reads, after[1], AT_ONCE)))

    def _delete_events(self, tx: Transaction, step: Step, at: Position) -> Position | None:
        while rows := self._old_events(tx, START):
            step.counts["event"] += events.delete_until(tx, rows[-1]["id"])
            if step.is_over:
                return at
        return None

    def _delete_rows(self, tx: Transaction, step: Step, at: Position) -> Position | None:
        """Rows of the audit up to the first that is young enough, so that those that stay have no gap."""
        rows = self._old_rows(tx)
        if rows:
            until, now = rows[-1]["number"], self._clock()
            # First, as it follows the last row, which may go.
            trail.record(tx, now, "audit.pruned", by=trail.CORE, object="audit", until=until, hash=rows[-1]["hash"])
            step.counts["audit"] += audit.delete_until(tx, until)
        return at if len(rows) == AT_ONCE else None

    def _old_rows(self, reads: Reads) -> list[Row]:
        before = self._clock() - self._section.audit_days * DAY_MS
        return list(takewhile(lambda row: row["at"] < before, audit.oldest(reads, AT_ONCE)))

    def _delete_keys(self, tx: Transaction, step: Step, at: Position) -> Position | None:
        before = self._clock() - stored_actions.IDEMPOTENCY_KEY_MS
        while stored_actions.forget_keys(tx, before, AT_ONCE):
            if step.is_over:
                return at
        return None

    def _due_items(self, reads: Reads, kind: stored.Root, root_id: int) -> Iterator[stored.Item]:
        """Delete the parts of an alert or a case, then the object itself; nothing while it must stay."""
        if stored.is_due(reads, root_id, self._alerts_before):
            yield from stored.items(reads, kind, root_id, root_id)

    def _delete_roots(self, kind: stored.Root, tx: Transaction, step: Step, at: Position) -> Position | None:
        rows = stored.closed(tx, kind, self._alerts_before, at, AT_ONCE)
        for row in rows:
            for item in self._due_items(tx, kind, row["id"]):
                self._delete(tx, item, step)
                if step.is_over:
                    return at
            at = row["closed_at"], row["id"]
            if step.is_over:
                return at
        return _last(rows, "closed_at")

    def _delete(self, tx: Transaction, item: stored.Item, step: Step) -> None:
        if not stored.delete(tx, item):
            return
        step.counts[item.kind] += 1
        if item.bulk_id is not None:
            step.counts["bulk"] += stored.delete_empty_bulk(tx, item.bulk_id)
        for kind in ROOTS:
            if item.kind == kind:
                step.deleted.append(f"~{item.id}")
                if step.is_silent:
                    return
                record_event(tx, kind, "deleted", item.id, item.id, "", self._clock())

    def _delete_bulks(self, tx: Transaction, step: Step, at: Position) -> Position | None:
        step.counts["bulk"] += stored.delete_refused_bulks(tx, self._alerts_before, AT_ONCE)
        return at if step.counts["bulk"] == AT_ONCE else None

    def _remove_reports(self, tx: Transaction, step: Step, at: Position) -> Position | None:
        rows = stored.reports(tx, self._reports_before, at, AT_ONCE)
        for row in rows:
            action = stored_actions.find(tx, row["id"]) if _is_over(tx, row["root_id"]) else None
            if action is not None:
                step.counts["report"] += stored.remove_report(tx, row["id"], without_report(action["doc"]))
            at = row["report_at"], row["id"]
            if step.is_over:
                return at
        return _last(rows, "report_at")

    def _report_goes(self, reads: Reads, row: Row) -> bool:
        """Whether only the report of an action goes, and not all of it."""
        root_id = stored.deciding_root(reads, row["root_id"])
        all_goes = bool(self._section.alert_days) and stored.is_due(reads, root_id, self._alerts_before)
        return _is_over(reads, row["root_id"]) and not all_goes


def _is_over(reads: Reads, root_id: int) -> bool:
    return stored.closed_at(reads, stored.deciding_root(reads, root_id)) is not None


def _delete_files(tx: Transaction, step: Step, at: Position) -> Position | None:
    """Files that were dropped: the content may have a megabyte, so time is looked at after each."""
    for file_id in attachments.dropped(tx):
        step.counts["file"] += stored.delete_file(tx, file_id)
        if step.is_over:
            return at
    return None


def _last(rows: Sequence[Row], column: str) -> Position | None:
    """The position of the last of these rows; None if they are the last ones."""
    return (rows[-1][column], rows[-1]["id"]) if len(rows) == AT_ONCE else None
