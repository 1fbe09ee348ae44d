"""The event feed misses no event and wakes waiting readers."""

import asyncio
from pathlib import Path
from typing import Any

from core.common.clock import DAY_MS
from core.common.database import Database
from core.common.settings_file import RetentionSection
from core.records.events import GATHER_STEP_S, PAGE_EVENTS, Feed
from core.retention.pruning import AT_ONCE, Retention
from core.store import events
from core.store.events import bounds
from tests.clock import SetClock
from tests.stores import opened


async def change(database: Database, number: int, at: int = 1, type: str = "alert.created") -> None:
    await database.transaction(
        lambda tx: events.record(tx, number, at=at, type=type, object_type="Alert", root_id=number, user="a@b.c")
    )


def retention(database: Database, clock: SetClock) -> Retention:
    return Retention(database, clock, RetentionSection(), event_days=30, step_s=0, pause_s=0)


async def test_earlier_events_are_answered_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        feed = await Feed.open(database)
        await change(database, 5)
        page = await feed.page(0, wait_s=30)
    assert [(event.seq, event.object_id, event.root_id, event.type) for event in page.events] == [
        (1, "~5", "~5", "alert.created")
    ]
    assert page.last == 1


async def test_without_after_only_new_events_are_answered(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        feed = await Feed.open(database)
        await change(database, 5)
        waiting = asyncio.ensure_future(feed.page(None, wait_s=30))
        while not waiting.done():  # what is committed before it waits is not new
            await change(database, 6)
        page = await waiting
    assert {event.object_id for event in page.events} == {"~6"}


async def test_a_commit_of_another_process_is_seen_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as here, opened(tmp_path / "a.db") as there:
        feed = await Feed.open(here)
        waiting = asyncio.ensure_future(feed.page(0, wait_s=30))
        await asyncio.sleep(0)
        await change(there, 9)
        page = await waiting
    assert [event.object_id for event in page.events] == ["~9"]


async def test_a_wait_without_events_ends_empty(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        page = await (await Feed.open(database)).page(0, wait_s=0.05)
    assert (page.events, page.last) == ([], 0)


async def test_new_alerts_wait_for_more_but_never_hold_up_anything_else(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        feed = await Feed.open(database)
        waiting = asyncio.ensure_future(feed.page(0, wait_s=30, gather_s=3600))
        for number in (5, 6, 7):
            await change(database, number)
        assert not (await asyncio.wait([waiting], timeout=10 * GATHER_STEP_S))[0]
        await change(database, 5, type="alert.updated")
        await change(database, 8)
        page = await waiting
        assert [event.type for event in page.events][:4] == [*["alert.created"] * 3, "alert.updated"]
        assert page.last == page.events[-1].seq

        later = await feed.page(4, wait_s=30, gather_s=0.001)
        assert [event.object_id for event in later.events] == ["~8"]
        assert (await feed.page(5, wait_s=0, gather_s=3600)).events == []

        waiting = asyncio.ensure_future(feed.page(5, wait_s=30, gather_s=3600))
        await change(database, 9)
        many: dict[str, Any] = {"at": 1, "type": "alert.created", "object_type": "Alert", "root_id": 1, "user": "a@b.c"}
        await database.transaction(lambda tx: events.record(tx, *range(PAGE_EVENTS), **many))
        assert len((await waiting).events) == PAGE_EVENTS


async def test_a_reader_at_the_end_of_a_pruned_feed_continues(tmp_path: Path) -> None:
    clock = SetClock()
    async with opened(tmp_path / "a.db") as database:
        feed = await Feed.open(database)
        await change(database, 1, at=clock() - 31 * DAY_MS)
        await retention(database, clock).prune()
        page = await feed.page(1, wait_s=0)
    assert page.events == []


async def test_many_events_are_pruned_bit_by_bit(tmp_path: Path) -> None:
    """Everybody who writes waits for each of these transactions."""
    clock = SetClock()
    old = {"at": clock() - 31 * DAY_MS, "type": "x", "object_type": "Alert", "root_id": 1, "user": "a@b.c"}
    async with opened(tmp_path / "a.db") as database:
        await database.transaction(
            lambda tx: events.record(tx, *range(2 * AT_ONCE + 1), **old)  # type: ignore[arg-type] # of one dict
        )
        await change(database, 2, at=clock())
        before = database.commits
        assert await retention(database, clock).preview() == {"event": 2 * AT_ONCE + 1}
        assert await retention(database, clock).prune() == {"event": 2 * AT_ONCE + 1}
        assert database.commits - before == 3
        assert await database.read(bounds) == (2 * AT_ONCE + 2,) * 2


async def test_the_first_event_never_looks_like_a_gap(tmp_path: Path) -> None:
    """If both bounds were read in two statements, an event between them would look like a pruned one."""
    for number in range(10):
        async with opened(tmp_path / f"{number}.db") as here, opened(tmp_path / f"{number}.db") as there:
            writing = asyncio.ensure_future(change(there, 1))
            seen = (0, 0)
            while seen == (0, 0):
                await asyncio.sleep(0)  # lets the writer go on; not a wait
                seen = await here.read(bounds)
            await writing
        assert seen == (1, 1)
