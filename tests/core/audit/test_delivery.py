"""Delivery to a collector: nothing is lost, repeats are recognisable, and lag shows."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from core.audit import trail
from core.audit.delivery import LATE_MINUTES, Delivery
from core.audit.verify import NO_HASH, verify
from core.common.clock import DAY_MS, MINUTE_MS
from core.common.database import Database
from core.settings import CoreSection
from tests.clock import SetClock
from tests.core.core_process import until
from tests.core.running import running_core

ROWS = 3_000
LATE_MS = LATE_MINUTES * MINUTE_MS
Answer = Callable[[bytes], Awaitable[int]]


@asynccontextmanager
async def collector(answer: Answer) -> AsyncIterator[str]:
    async def take(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer t"
        return web.Response(status=await answer(await request.read()))

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/audit", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/audit"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def delivering(delivery: Delivery) -> AsyncIterator[None]:
    task = asyncio.create_task(delivery.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def write(database: Database, clock: SetClock, count: int) -> None:
    def work(tx: object) -> None:
        for number in range(count):
            trail.record(tx, clock(), "user.enabled", by="lead@x", object=f"u{number}@x", texts={"reason": "secret"})  # type: ignore[arg-type]

    await database.transaction(work)


async def test_a_collector_that_often_fails_loses_nothing_while_the_delivery_is_killed(database: Database) -> None:
    clock, chance = SetClock(), random.Random(28)  # noqa: S311 - the same failures each time
    await write(database, clock, ROWS)
    batches, done = list[list[bytes]](), asyncio.Event()
    last, calls = 0, 0
    task: asyncio.Task[None] | None = None

    async def answer(body: bytes) -> int:
        nonlocal last, calls
        calls += 1
        fate = chance.random()
        if fate < 0.15:
            return 503
        lines = body.splitlines(keepends=True)
        batches.append(lines)
        last = json.loads(lines[-1])["head"]["number"]
        if last == ROWS:
            done.set()
        elif calls % 2 and task is not None:
            task.cancel()
        return 500 if fate < 0.3 else 200  # it has the rows, and says that it hasn't

    async with collector(answer) as url:
        while not done.is_set():
            delivery = Delivery(database, clock, url, "t", tick_s=0)
            task = asyncio.create_task(delivery.run())
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            for each in (task, waiting):
                each.cancel()
            await asyncio.gather(task, waiting, return_exceptions=True)
    number, hash_, repeats = 0, NO_HASH, 0
    for lines in batches:
        audit = verify(lines)  # each verifies alone
        anchor = json.loads(lines[0])["anchor"]
        if anchor["number"] < number:
            repeats += 1
        else:
            assert (anchor["number"], anchor["hash"]) == (number, hash_)
            number, hash_ = audit.number, audit.hash
        assert b"secret" not in b"".join(lines)
    assert number == ROWS
    assert repeats > 0


async def test_a_collector_that_lags_degrades_health(database: Database) -> None:
    clock, steady, lags, asked = SetClock(), SetClock(0), list[float](), asyncio.Event()
    await write(database, clock, 1)
    clock.now_ms += LATE_MS

    async def answer(_: bytes) -> int:
        return 401

    def observe(lag: float) -> None:
        lags.append(lag)
        asked.set()

    async with collector(answer) as url:
        delivery = Delivery(database, clock, url, "t", observe_lag=observe, steady_clock=steady, tick_s=60)
        async with delivering(delivery):
            await asked.wait()
    assert lags == [LATE_MS / 1000]
    assert await delivery.problem() == (
        "The collector of [core] audit_url lacks rows of the last 5 minutes (it answered 401); look at it."
    )


async def test_a_clock_that_is_set_back_hides_no_lag(database: Database) -> None:
    clock, steady, lags, asked = SetClock(), SetClock(0), list[float](), asyncio.Queue[None]()
    await write(database, clock, 1)
    clock.now_ms -= DAY_MS

    async def answer(_: bytes) -> int:
        steady.now_ms += LATE_MS
        asked.put_nowait(None)
        return 503

    async with collector(answer) as url:
        delivery = Delivery(database, clock, url, "t", observe_lag=lags.append, steady_clock=steady, tick_s=0)
        async with delivering(delivery):
            for _ in range(2):
                await asked.get()
    assert lags[0] == LATE_MS / 1000
    assert "lacks rows of the last" in await delivery.problem()


async def test_what_nobody_expected_shows_and_delivery_goes_on(database: Database) -> None:
    clock, came = SetClock(), asyncio.Queue[bytes]()
    await write(database, clock, 3)
    (row,) = await database.read(lambda reads: reads.rows("SELECT doc FROM audit WHERE number = 1"))
    change = "UPDATE audit SET doc = :doc WHERE number = 1"
    await database.transaction(lambda tx: tx.run(change, {"doc": "{"}))
    clock.now_ms += LATE_MS

    async def answer(body: bytes) -> int:
        came.put_nowait(body)
        return 200

    async with collector(answer) as url:
        delivery = Delivery(database, clock, url, "t", tick_s=0.01)
        with capture_logs() as logged:
            async with delivering(delivery):
                await until(lambda: logged or None, "an error")
                assert "(the log says why)" in await delivery.problem()
                await database.transaction(lambda tx: tx.run(change, {"doc": row["doc"]}))
                assert verify((await came.get()).splitlines(keepends=True)).number == 3
    assert logged[0]["event"] == "work_failed"


async def test_core_delivers_its_own_rows(tmp_path: Path) -> None:
    came = asyncio.Queue[bytes]()

    async def answer(body: bytes) -> int:
        came.put_nowait(body)
        return 200

    async with (
        collector(answer) as url,
        running_core(tmp_path, core={"audit_url": url, "audit_token": "t"}),
    ):
        first = (await came.get()).splitlines(keepends=True)
    assert json.loads(first[1])["row"]["what"] == "settings.loaded"
    verify(first)


@pytest.mark.parametrize("url", ["http://collector.example.org/audit", "ftp://x", "collector"])
def test_rows_leave_the_machine_encrypted_only(url: str) -> None:
    with pytest.raises(ValueError, match="audit_url"):
        CoreSection(audit_url=url)
