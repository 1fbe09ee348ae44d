"""A database that lost its last actions gives their numbers to others, which take over nothing of them."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from core.engines.base import Report
from core.records.events import FILE, Feed
from tests import stores
from tests.core.actions.harness import ANNA, another_core, next_run, open_harness, run_input, started_run
from tests.core.core_process import CoreSetup, alert_in, core_process, counting, hosts_in, run_body, setup_in, stepwise
from tests.core.engines.process.engines import engine_in
from tests.core.test_cli import Ended, run


async def command(setup: CoreSetup, *args: str) -> Ended:
    return await run(setup.folder, *args, "--config", "settings.toml")


async def test_a_new_action_runs_its_own_program_beside_the_folder_of_a_lost_one(tmp_path: Path) -> None:
    stepwise(tmp_path / "responders", "Stepwise")
    async with open_harness(tmp_path) as harness:
        await harness.runner.close()
        engine = engine_in(
            tmp_path, folders=(tmp_path / "responders",), python=Path(sys.executable), keep_jobs=True, name="local"
        )
        async with another_core(harness, engine) as core:
            put_back = stores.kept(tmp_path / "core.db")
            found = []
            for name in ("lost", "new"):
                parameters = {"runs": str(tmp_path / name), "steps": ["count", f"write {name}"]}
                started = await core.actions.start(ANNA, run_input(harness, "Stepwise_1_0", parameters=parameters))
                found.append(await core.ended(started.action.id))
                if name == "lost":
                    put_back()
        await engine.close()
    lost, new = found
    assert (new.id, new.status) == (lost.id, "Success")
    assert ['"lost"' in lost.report, '"new"' in new.report] == [True, True]
    assert [(tmp_path / name).read_text() for name in ("lost", "new")] == ["one run\n"] * 2
    assert len(list((tmp_path / "jobs").glob("local-*"))) == 2


async def test_a_lost_run_neither_begins_nor_ends_the_action_with_its_number(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        put_back = stores.kept(tmp_path / "core.db")
        lost, run_of_lost = await started_run(harness)
        put_back()
        new = (await harness.actions.start(ANNA, run_input(harness))).action
        assert new.id == lost.id
        await run_of_lost.begin()
        run_of_lost.finish(Report(True, message="of the lost one"))
        while harness.runner.followed():
            await harness.database.transaction(lambda tx: None)
        assert (await harness.action(new.id)).status == "Waiting"
        await harness.runner.tick()
        run_of_new = await next_run(harness.engine)
        assert run_of_new.job.run_id != run_of_lost.job.run_id
        run_of_new.finish(Report(True, message="of the new one"))
        assert "of the new one" in (await harness.ended(new.id)).report


async def test_a_core_whose_database_went_back_stops_and_starts_again_once_it_is_restored(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, keep_jobs=True)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        put_back = stores.kept(setup.database)
        lost = await core.client().run(run_body(alert, **counting(setup, "lost")))
        assert (await core.ended(lost.id)).status == "Success"
        newest = (await alert_in(core, "two"), await alert_in(core, "three"))[-1]
        put_back()
        await alert_in(core, "four")
        assert await core.process.wait() == 2
        said = core.log.read_text().splitlines()[-1]
    assert said.startswith("The database ends with event ")
    assert "responder-bot restore" in said

    refused = await command(setup, "core")
    assert (refused.code, refused.out, "Traceback" in refused.err) == (2, "", False)
    assert refused.err.splitlines()[-1].startswith("The database ends with event ")

    if stores.dialect() == "postgresql":
        restored = await command(setup, "restore")
    else:
        with closing(sqlite3.connect(setup.database)) as copied, closing(sqlite3.connect(tmp_path / "copy.db")) as into:
            copied.backup(into)
        restored = await command(setup, "restore", "copy.db")
    assert restored.code == 0, restored.err
    async with core_process(setup, "again") as core:
        new = await core.client().run(run_body(alert, **counting(setup, "new")))
        assert int(new.id[1:]) > int(newest[1:]) + 1000
        assert (await core.ended(new.id)).status == "Success"
    assert [setup.counted(name) for name in ("lost", "new")] == [1, 1]


async def test_only_a_host_that_saw_more_is_refused(tmp_path: Path) -> None:
    here, there = await hosts_in(tmp_path, ["here", "there"])
    async with core_process(here) as core:
        put_back = stores.kept(here.database)
        await alert_in(core)
        await core.kill()  # before it looks again: what a change was answered with is remembered
    (here.folder / "jobs" / FILE).write_text(await remembered(here, 10))
    put_back()
    refused = await command(here, "core")
    assert refused.err.splitlines()[-1].startswith("The database ends with event ")
    async with core_process(there) as core:
        assert (await core.send("GET", "/health")).status_code == 200


async def remembered(setup: CoreSetup, number: int) -> str:
    async with stores.opened(setup.database) as database:
        return f"{(await Feed.open(database)).database_id} {number}"


@pytest.mark.parametrize("text", ["", "rubbish", "another-database 999999", "\xff"])
async def test_what_is_remembered_of_another_database_or_damaged_keeps_nobody_from_starting(
    tmp_path: Path, text: str
) -> None:
    setup = await setup_in(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / FILE).write_text(text, encoding="latin-1")
    async with core_process(setup) as core:
        await alert_in(core)
