"""What is due at a time is done once, and never early, whatever clocks and cores do meanwhile."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from core.actions.due import AFTER_REFUSAL, Due, Followup
from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.database import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.store import due as stored
from core.store.database import sequences
from tests.clock import SetClock
from tests.stores import opened

START_MS = 1_700_000_000_000
MONTH_MS = 30 * DAY_MS


class Machine:
    """A clock that somebody sets, and the uptime."""

    def __init__(self) -> None:
        self.clock, self.uptime = SetClock(START_MS), SetClock(5_000)

    def passes(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.uptime.now_ms += ms


class Core:
    """A core that notes in the database what it has done, and when by the uptime."""

    def __init__(self, database: Database, machine: Machine) -> None:
        self.machine, self.database = machine, database
        self.done: list[tuple[int, int]] = []
        self.before: Callable[[Transaction, int], None] = lambda tx, number: None
        self.due = Due(database, machine.clock, {"approval": self.handle}, uptime=machine.uptime)

    def handle(self, tx: Transaction, due: Row) -> Followup:
        number = due["id"]
        self.before(tx, number)
        tx.run("INSERT INTO dropped_file (file_id) VALUES (:id)", {"id": f"~{number}"})  # fails if it is there
        return lambda: self.done.append((number, self.machine.uptime()))

    async def put(self, number: int, wait_ms: int) -> None:
        now = self.machine.clock()
        await self.database.transaction(lambda tx: stored.put(tx, "approval", number, now + wait_ms, now))


@asynccontextmanager
async def cores(tmp_path: Path, count: int = 1) -> AsyncIterator[tuple[Machine, list[Core]]]:
    machine = Machine()
    async with AsyncExitStack() as stack:
        made = [Core(await stack.enter_async_context(opened(tmp_path / "core.db")), machine) for _ in range(count)]
        yield machine, made


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 3 * DAY_MS, -3 * DAY_MS])
async def test_a_clock_that_jumps_moves_nothing_by_more_than_a_second(tmp_path: Path, jump_ms: int) -> None:
    async with cores(tmp_path) as (machine, (core,)):
        await core.due.look()
        await core.put(1, 30 * MINUTE_MS)
        await core.put(2, MONTH_MS)
        began = machine.uptime()
        machine.passes(500)
        await core.due.look()
        machine.clock.now_ms += jump_ms
        await core.put(3, 10 * MINUTE_MS)  # by the clock as it is now
        set_later = machine.uptime()
        for _ in range(31 * 60):
            machine.passes(1_000)
            await core.due.look()
        late = {3: set_later + 10 * MINUTE_MS, 1: began + 30 * MINUTE_MS}
        assert [number for number, _ in core.done] == [3, 1]
        assert all(0 <= at - late[number] <= 1_000 for number, at in core.done)


async def test_a_clock_that_jumps_just_after_something_was_put_brings_it_no_earlier(tmp_path: Path) -> None:
    async with cores(tmp_path) as (machine, (core,)):
        await core.due.look()
        machine.passes(100)
        await core.put(1, 1_000)
        machine.clock.now_ms += HOUR_MS
        machine.passes(900)
        await core.due.look()
        assert core.done == []
        machine.passes(1_000)
        await core.due.look()
        assert [number for number, _ in core.done] == [1]


async def test_after_a_start_the_clock_counts(tmp_path: Path) -> None:
    async with cores(tmp_path) as (machine, (core,)):
        await core.put(1, HOUR_MS)
        await core.put(2, 4 * DAY_MS)
    machine.clock.now_ms += 3 * DAY_MS
    machine.uptime.now_ms = 0  # the machine was off for three days
    async with opened(tmp_path / "core.db") as database:
        later = Core(database, machine)
        assert await later.due.look() == 1
        machine.passes(DAY_MS - 1)
        assert await later.due.look() == 0
        machine.passes(1)
        assert await later.due.look() == 1
        assert [number for number, _ in later.done] == [1, 2]


async def test_numbers_that_are_given_again_after_a_failover_hide_nothing(tmp_path: Path) -> None:
    """As when the copy of the database that goes on lacks the last rows."""
    async with cores(tmp_path) as (machine, (core,)):
        await core.put(1, HOUR_MS)
        before = await core.database.read(lambda reads: sequences.last(reads, "due"))
        await core.put(2, MINUTE_MS)
        await core.put(3, MINUTE_MS)
        await core.due.look()

        def lose(tx: Transaction) -> None:
            for number in (2, 3):
                stored.drop(tx, "approval", number)
            sequences.skip_to(tx, "due", before)

        await core.database.transaction(lose)
        await core.put(4, 30 * MINUTE_MS)  # has the number that another one had
        await core.due.look()
        machine.passes(30 * MINUTE_MS - 1)
        assert await core.due.look() == 0
        machine.passes(1)
        assert await core.due.look() == 1
        machine.passes(30 * MINUTE_MS)
        await core.due.look()
        assert [number for number, _ in core.done] == [4, 1]


async def test_what_was_moved_or_dropped_is_done_at_its_last_time_only(tmp_path: Path) -> None:
    async with cores(tmp_path) as (machine, (core,)):
        await core.put(1, HOUR_MS)
        await core.put(2, HOUR_MS)
        await core.due.look()
        await core.put(1, 2 * HOUR_MS)
        await core.database.transaction(lambda tx: stored.drop(tx, "approval", 2))
        machine.passes(HOUR_MS)
        await core.due.look()
        assert core.done == []
        machine.passes(HOUR_MS)
        await core.due.look()
        assert [number for number, _ in core.done] == [1]


async def test_much_that_is_due_at_once_is_done_once_by_two_cores(tmp_path: Path) -> None:
    count = 10_000
    async with cores(tmp_path, 2) as (machine, (first, second)):

        def put_all(tx: Transaction) -> None:
            for number in range(count):
                stored.put(tx, "approval", number, START_MS + HOUR_MS, START_MS)

        await first.database.transaction(put_all)
        machine.passes(HOUR_MS - 1)
        assert list(await asyncio.gather(first.due.look(), second.due.look())) == [0, 0]
        machine.passes(1)
        await asyncio.gather(first.due.look(), second.due.look())
        done = [number for number, _ in first.done + second.done]
        assert (len(done), len(set(done))) == (count, count)
        assert await first.database.read(lambda reads: stored.after(reads, 0, 1)) == []


async def test_what_is_refused_comes_again_after_a_minute_to_an_hour_for_ever(tmp_path: Path) -> None:
    async with cores(tmp_path) as (machine, (core,)):

        def refuse(tx: Transaction, number: int) -> None:
            raise ResponderBotError("conflict", "Not now.")

        core.before = refuse
        await core.put(1, 0)
        for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]:
            assert await core.due.look() == 1
            await core.due.look()
            machine.passes(pause * 1_000 - 1)
            assert await core.due.look() == 0
            machine.passes(1)
        core.before = lambda tx, number: None
        await core.due.look()
        assert [number for number, _ in core.done] == [1]
        assert (AFTER_REFUSAL.first_s, AFTER_REFUSAL.longest_s) == (60, 3_600)


async def test_a_damaged_row_is_set_aside_and_told_and_tried_again_at_the_next_start(tmp_path: Path) -> None:
    async with cores(tmp_path, 2) as (machine, (core, other)):

        def fail(tx: Transaction, number: int) -> None:
            if number == 2:
                tx.run("INSERT INTO dropped_file (file_id) VALUES ('half')")
                raise ValueError("it is no JSON")

        core.before = other.before = fail
        for number in (1, 2, 3):
            await core.put(number, 0)
        with capture_logs() as logged:
            await core.due.look()
            machine.passes(DAY_MS)
            await other.due.look()
        assert [number for number, _ in core.done + other.done] == [1, 3]
        assert [entry["event"] for entry in logged].count("due_failed") == 2  # one at each start
        assert (
            await core.database.read(lambda reads: reads.row("SELECT 1 FROM dropped_file WHERE file_id = 'half'"))
            is None
        )
        assert (await core.due.problem()).startswith("~2 (approval) was due and could not be handled")
        other.before = lambda tx, number: None
        machine.passes(DAY_MS)
        assert (await core.due.look(), await other.due.look()) == (0, 0)
        again = Core(other.database, machine)
        await again.due.look()
        assert [number for number, _ in again.done] == [2]
        assert await core.due.problem() == ""


@pytest.mark.sqlite
async def test_what_the_database_could_not_commit_is_done_later(tmp_path: Path) -> None:
    async with cores(tmp_path) as (_, (core,)):
        await core.put(1, 0)

        def fail(tx: Transaction, number: int) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        core.before = fail
        with pytest.raises(ResponderBotError):
            await core.due.look()
        core.before = lambda tx, number: None
        await core.due.look()
        assert [number for number, _ in core.done] == [1]
