"""PostgreSQL is killed while responders run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.access import Access
from core.common.database import Database
from core.common.database.location import PostgresqlUrl
from core.engines.base import Report
from core.models import Action, AlertInput, RunInput
from core.records.alerts import Alerts
from core.records.events import Feed
from core.store.opening import open_database
from tests.clock import SetClock
from tests.core.actions.harness import ANNA, LEAD, action_parts
from tests.core.scripted_engine import ScriptedEngine
from tests.postgresql_process import PostgresqlServer


@asynccontextmanager
async def on_server() -> AsyncIterator[tuple[PostgresqlServer, Database]]:
    server = PostgresqlServer()
    await server.create()
    database = open_database(PostgresqlUrl(server.url("core")))
    try:
        yield server, database
    finally:
        await database.close()
        await server.close()


async def test_a_run_that_starts_while_the_store_is_away_goes_on() -> None:
    engine, clock = ScriptedEngine(), SetClock()
    async with on_server() as (server, database), action_parts(database, clock, engine) as core:
        await Access(database, "example.org", clock).add("anna", "analyst")
        fields = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        alert = await Alerts(database, clock, "soc").create(LEAD, AlertInput.model_validate(fields))
        body = {"responderId": "BlockHost_1_0", "objectType": "alert", "objectId": alert.id}
        started = await core.actions.start(ANNA, RunInput.model_validate(body))
        run = await engine.taken.get()
        await server.kill()
        beginning = asyncio.create_task(run.begin())
        done, _ = await asyncio.wait([beginning], timeout=1)
        assert not done  # the program runs, and the store has yet to know
        await server.start()
        await beginning
        run.finish(Report(True))
        feed = await Feed.open(database, clock)
        while True:
            position = feed.position()
            action = Action.model_validate_json(await core.actions.get_json(started.action.id))
            if action.end_date is not None:
                break
            await feed.changed(position)
        assert action.status == "Success"
