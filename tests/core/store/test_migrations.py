"""A migration says what it does and how far it is, needs its room, and is undone when it is interrupted.

The next one is made up here.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from core.app import serving
from core.common.database import Dialect
from core.common.database.schema import Migration, Opening
from core.common.errors import ResponderBotError
from core.store.database.opening import open_database
from core.store.database.schema import MIGRATIONS
from tests import stores
from tests.core.core_process import POLL_INTERVAL_S, POLL_TIMEOUT_S
from tests.core.object_api import ALERT
from tests.core.running import running_core, settings_in
from tests.ports import free_port

DOES = "index tags by when they were added"
ADD, INDEX = "ALTER TABLE alert_tag ADD COLUMN added INTEGER", "CREATE INDEX alert_tag_added ON alert_tag (added)"
FOREVER_ON_SQLITE = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
FOREVER_ON_POSTGRESQL = "SELECT pg_sleep(3600)"
SECOND = Migration(DOES, sqlite=[ADD, INDEX], postgresql=[ADD, INDEX])
ENDLESS = Migration(
    DOES, sqlite=[ADD, FOREVER_ON_SQLITE, INDEX], postgresql=[ADD, FOREVER_ON_POSTGRESQL, INDEX], disk=0.001
)
HUGE = Migration(DOES, sqlite=[ADD, INDEX], postgresql=[ADD, INDEX], disk=1e9)
PROGRAM = """
import sys
from core.common.database.location import parse_location
from core.store.database.opening import open_database
from core.store.database.schema import MIGRATIONS
from tests.core.store.test_migrations import ENDLESS

open_database(parse_location(sys.argv[1]), migrations=[*MIGRATIONS, ENDLESS])
"""


@pytest_asyncio.fixture(params=stores.DIALECTS)
async def folder(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """With a database of this release that has an alert."""
    dialect: Dialect = request.param
    with stores.using(dialect):
        async with running_core(tmp_path) as core:
            await core.send("POST", "/api/alert", {**ALERT, "tags": ["kept"]})
        yield tmp_path


def tags(folder: Path) -> list[str]:
    return [row[0] for row in stores.rows(folder / "core.db", "SELECT tag FROM alert_tag")]


def is_migrated(folder: Path) -> bool:
    sql = {
        "sqlite": "SELECT count(*) FROM pragma_table_info('alert_tag') WHERE name = 'added'",
        "postgresql": "SELECT count(*) FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'alert_tag' AND column_name = 'added'",
    }
    return bool(stores.rows(folder / "core.db", sql[stores.dialect()])[0][0])


async def opened_with(folder: Path, *migrations: Migration) -> None:
    open_ = partial(open_database, migrations=[*MIGRATIONS, *migrations])
    async with (
        serving(settings_in(folder), grace_s=0, open_=open_) as (_, url),
        httpx.AsyncClient(base_url=url) as http,
    ):
        assert (await http.get("/readyz")).status_code == 200


async def answer_when_it_has(http: httpx.AsyncClient, words: str) -> httpx.Response:
    """What `/readyz` answers, once these words are in it."""
    async with asyncio.timeout(POLL_TIMEOUT_S):
        while True:
            with suppress(httpx.ConnectError):
                answer = await http.get("/readyz")
                if words in answer.text:
                    return answer
            await asyncio.sleep(POLL_INTERVAL_S)


async def test_core_lives_but_is_not_ready_while_it_migrates_and_undoes_it_when_stopped(folder: Path) -> None:
    port = free_port()
    open_ = partial(open_database, migrations=[*MIGRATIONS, ENDLESS])

    async def serve() -> None:
        async with serving(settings_in(folder, core={"port": port}), grace_s=0, open_=open_):
            raise AssertionError("the migration has no end")

    with capture_logs() as logged:
        served = asyncio.create_task(serve())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            ready = await answer_when_it_has(http, "is being migrated: step 2 of 3")
            alive = await http.get("/livez")
            others = [await http.post("/api/alert", json=ALERT), await http.get("/health"), await http.get("/api/x")]
        served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await served
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.headers["Retry-After"]) == (503, "1")
    assert f"({DOES}), for " in ready.json()["message"]
    assert " kB of disk." in ready.json()["message"]
    assert {(other.status_code, other.json()["type"]) for other in others} == {(503, ready.json()["type"])}
    steps = [line["message"].partition(": ")[2] for line in logged if line["event"] == "migrating"]
    assert [step.partition(", for ")[0] for step in steps] == [f"step 1 of 3 ({DOES})", f"step 2 of 3 ({DOES})"]
    assert not is_migrated(folder)
    assert tags(folder) == ["kept"]

    await opened_with(folder)
    await opened_with(folder, SECOND)
    assert is_migrated(folder)
    assert tags(folder) == ["kept"]


@asynccontextmanager
async def killed_in_the_middle(folder: Path) -> AsyncIterator[None]:
    """Another process migrates within, and is killed in the end."""
    location = stores.setting(folder / "core.db")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, location), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    while b"step 2 of 3" not in await child.stdout.readline():
        pass
    try:
        yield
    finally:
        child.kill()
        await child.communicate()


@pytest.mark.slow
async def test_another_process_waits_and_says_so(folder: Path) -> None:
    async with killed_in_the_middle(folder):
        with pytest.raises(ResponderBotError, match="Another process of responder-bot fills or migrates") as error:
            await opened_with(folder)
    assert error.value.code == "unavailable"


async def test_a_migration_that_is_killed_is_undone(folder: Path) -> None:
    async with killed_in_the_middle(folder):
        pass
    await opened_with(folder)
    assert not is_migrated(folder)
    await opened_with(folder, SECOND)
    assert is_migrated(folder)
    assert tags(folder) == ["kept"]


async def test_a_migration_without_room_is_refused_and_changes_nothing(folder: Path) -> None:
    if stores.dialect() == "postgresql":  # its disk can't be seen
        await opened_with(folder, HUGE)
        assert is_migrated(folder)
        return
    with pytest.raises(
        ResponderBotError, match=r"core.db must be migrated, which takes .* are free; make room"
    ) as error:
        await opened_with(folder, HUGE)
    assert error.value.code == "unavailable"
    assert not is_migrated(folder)
    await opened_with(folder)


async def test_a_command_tells_each_step(folder: Path) -> None:
    told: list[str] = []
    location = stores.location(folder / "core.db")
    await open_database(location, Opening(told.append), [*MIGRATIONS, SECOND]).close()
    assert [sentence.partition(": ")[2].partition(", for ")[0] for sentence in told] == [
        f"step {number} of 2 ({DOES})" for number in (1, 2)
    ]


async def test_nothing_is_told_of_tables_that_are_made(tmp_path: Path) -> None:
    with capture_logs() as logged:
        await opened_with(tmp_path, SECOND)
    assert "migrating" not in [line["event"] for line in logged]


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_who_approved_the_runs_of_a_bulk_is_kept_of_those_before(tmp_path: Path, dialect: Dialect) -> None:
    with stores.using(dialect):
        location = stores.location(tmp_path / "core.db")
        await open_database(location, migrations=MIGRATIONS[:1]).close()
        columns = "id, kind, object_id, status, created_by, created_at, run_id, bulk_id, doc"
        approved = json.dumps({"approval": {"approvedBy": ["ben", "lea"]}})
        rows = ", ".join(
            f"({n}, 'alert', 9, 'Success', 'anna', 1, '{n}', 5, '{doc}')" for n, doc in ((1, approved), (2, "{}"))
        )
        stores.rows(location, f"INSERT INTO action ({columns}) VALUES {rows}")  # noqa: S608
        await open_database(location).close()
        kept = stores.rows(location, "SELECT approved_by FROM action ORDER BY id")
        assert [row[0] and json.loads(row[0]) for row in kept] == [["ben", "lea"], None]


@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_what_a_bulk_was_refused_is_kept_of_those_before(tmp_path: Path, dialect: Dialect) -> None:
    with stores.using(dialect):
        location = stores.location(tmp_path / "core.db")
        await open_database(location, migrations=MIGRATIONS[:2]).close()
        refused = [{"objectId": id_, "code": "conflict"} for id_ in ("~7", "~7", "none")]
        targets = json.dumps([{"objectId": "~6", "action": 9}, *refused])
        columns = "id, created_by, created_at, request, targets, total, refused"
        stores.rows(location, f"INSERT INTO bulk ({columns}) VALUES (5, 'anna', 1, '', '{targets}', 4, 3)")  # noqa: S608
        await open_database(location).close()
        assert {*stores.rows(location, "SELECT object_id, bulk_id FROM bulk_refused")} == {("~7", 5), ("none", 5)}
