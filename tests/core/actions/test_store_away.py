"""PostgreSQL is killed while responders run."""

import asyncio
from pathlib import Path

from core.common.database.location import PostgresqlUrl
from core.engines.base import Report
from tests.core.actions.harness import ANNA, next_run, open_harness, run_input
from tests.core.core_process import until
from tests.postgresql_process import PostgresqlServer


async def test_a_run_that_starts_while_the_store_is_away_goes_on(tmp_path: Path) -> None:
    server = PostgresqlServer()
    try:
        await server.create()
        async with open_harness(tmp_path, database_at=PostgresqlUrl(server.url("core"))) as harness:
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
    finally:
        await server.close()
