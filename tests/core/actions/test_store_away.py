"""PostgreSQL is killed while responders run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from core.common.database.location import PostgresqlUrl
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.store import hosts
from tests.core.actions.harness import ANNA, HERE, Harness, next_run, open_harness, run_input
from tests.core.core_process import POLL_TIMEOUT_S, until
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine
from tests.postgresql_process import PostgresqlServer


@asynccontextmanager
async def on_server(tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[tuple[PostgresqlServer, Harness]]:
    server = PostgresqlServer()
    try:
        await server.create()
        location = PostgresqlUrl(server.url("core"))
        async with open_harness(tmp_path, engine=engine, database_at=location) as harness:
            yield server, harness
    finally:
        await server.close()


async def test_a_run_that_starts_while_the_store_is_away_goes_on(tmp_path: Path) -> None:
    async with on_server(tmp_path, ScriptedEngine()) as (server, harness):
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await next_run(harness.engine)
        await server.kill()
        beginning = asyncio.create_task(run.begin())
        await until(lambda: harness.database.failure(60), "a failure")
        assert not beginning.done()  # the program runs, and the store has yet to know
        await server.start()
        await beginning
        run.finish(Report(True))
        assert (await harness.ended(started.action.id)).status == "Success"


async def test_what_an_engine_offers_by_now_is_stored_once_the_store_is_back(tmp_path: Path) -> None:
    engine = ScriptedEngine(offered=(BLOCK_HOST,))
    async with on_server(tmp_path, engine) as (server, harness):
        await server.kill()
        engine.offered = (BLOCK_HOST, NOTIFY)
        await harness.registry.refresh()
        await server.start()
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while True:
                await harness.registry.refresh()
                with suppress(ResponderBotError):  # one attempt a second is made
                    stored = await harness.database.read(lambda reads: hosts.catalogue_of(reads, HERE.id, engine.name))
                    if stored is not None and NOTIFY.name in stored:
                        break
