"""A restored backup runs none of the actions open in it, and reuses no id."""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from core.actions.lifecycle import Lifecycle
from core.actions.parts import Parts
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.hosts import Hosts
from core.reports import operations
from core.reports.report import ReportLimits
from core.responders.guards import Guards
from core.responders.registry import Registry
from core.store.database.backup import copy
from core.store.database.opening import open_database
from tests.core.actions.harness import HERE, action_parts, open_harness, started_run
from tests.core.core_process import (
    ROOT,
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    counting,
    events_of,
    open_pipe_for_writing,
    run_body,
    setup_in,
    write_pipe,
)
from tests.core.scripted_engine import ScriptedEngine
from tests.core.test_cli import Ended, is_one_sentence, run
from tests.stores import opened

# Each starts several processes; databases on PostgreSQL are backed up and restored by its own tools.
pytestmark = [pytest.mark.slow, pytest.mark.sqlite]

RESPONDERS = {"Stepwise": {}, "Asking": {"approval": 1}}
RESTORED = "Core was restored from a backup of "


async def command(setup: CoreSetup, *args: str) -> Ended:
    return await run(setup.folder, *args, "--config", "settings.toml")


async def message_at_the_end(core: CoreProcess, action_id: str) -> tuple[str, str]:
    action = await core.ended(action_id)
    return action.status, str(json.loads(action.report)["errorMessage"])


async def test_what_was_open_in_a_backup_ends_without_running_again(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders=RESPONDERS, max_concurrent_actions=2)
    names = ["one", "two", "three", "four"]  # two run, two wait for a slot
    for name in names:
        os.mkfifo(tmp_path / f"{name}.pipe")
    async with core_process(setup) as core:
        alert = await alert_in(core)
        steps = {name: counting(setup, name, f"wait {tmp_path / name}.pipe") for name in names}
        runs = {name: await core.client().run(run_body(alert, **steps[name]), f"key {name}") for name in names}
        asking = await core.client().run(run_body(alert, "Asking_1_0", **counting(setup, "asking")))
        pipes = [await open_pipe_for_writing(tmp_path / f"{name}.pipe") for name in names[:2]]
        assert (await command(setup, "backup", "copy.db")).code == 0
        for pipe in pipes:
            os.close(pipe)
        for name in names[2:]:
            await write_pipe(tmp_path / f"{name}.pipe")
        for started in runs.values():
            assert (await core.ended(started.id)).status == "Success"
        await core.client("ben").approve(asking.id)
        await core.ended(asking.id)
        newest = await alert_in(core, "after the backup")
        lost = (await core.client().events(None, 0)).last
        await core.kill()
    restored = await command(setup, "restore", "copy.db")
    assert (restored.code, restored.err.count("\n")) == (0, 1)
    assert "kept as" in restored.err
    async with core_process(setup, "again") as core:
        for action in (*runs.values(), asking):
            status, message = await message_at_the_end(core, action.id)
            assert (status, message.startswith(RESTORED)) == ("Failure", True)
            assert "; it may have run. " in message
            assert (await events_of(core, action.id))[-1] == "action.ended"
        again = await core.client().run(run_body(alert, **steps["one"]), "key one")
        assert (again.id, again.status) == (runs["one"].id, "Failure")
        assert [setup.counted(name) for name in (*names, "asking")] == [1] * 5
        assert list((tmp_path / "jobs" / "local").glob("*-*")) == []

        with pytest.raises(ResponderBotError, match=f"^{RESTORED}") as gone:
            await core.client().events(lost, 0)
        assert gone.value.code == "gone"
        first = await alert_in(core, "after the restoring")
        assert int(newest[1:]) + 1000 < int(first[1:]) < 10**10  # people type it
        page = await core.client().events(gone.value.details["first"] - 1, 0)
        assert [event.object_id for event in page.events] == [first]
        assert page.events[0].seq > lost + 1000


async def test_an_end_that_a_backup_caught_halfway_goes_on_without_its_engine(tmp_path: Path) -> None:
    many = [{"type": "AddTagToAlert", "tag": f"t{number}"} for number in range(9 * operations.SLICE_SIZE)]
    async with open_harness(tmp_path) as harness:
        ending, run = await started_run(harness)
        running, _ = await started_run(harness)
        run.finish(Report(True, operations=tuple(many)))
        while not await harness.lifecycle.has_stored_report(int(ending.id[1:])):
            await harness.database.transaction(lambda tx: None)
        copy(tmp_path / "core.db", tmp_path / "copy.db", harness.clock())
    engine = ScriptedEngine()
    async with opened(tmp_path / "copy.db") as database:
        registry = Registry([engine], {}, database, harness.clock)
        lifecycle = Lifecycle(
            Parts(database, registry, Guards({}, harness.clock), harness.clock),
            Hosts(database, HERE, harness.clock),
            organisation="soc",
            product="thehive",
            limits=ReportLimits(),
        )
        await lifecycle.end_restored()
        async with action_parts(database, harness.clock, engine) as core:
            found, ended = await core.action(running.id), await core.ended(ending.id)
    assert engine.runs == []
    assert (found.status, ended.status) == ("Failure", "Success")
    assert [entry["status"] for entry in json.loads(ended.operations)] == ["Success"] * len(many)


async def test_the_same_backup_restored_twice_gives_no_number_twice(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    async with core_process(setup) as core:
        await alert_in(core)
        await command(setup, "backup", "copy.db")
    given, events = list[int](), list[int]()
    for name in ("first", "second"):
        assert (await command(setup, "restore", "copy.db")).code == 0
        async with core_process(setup, name) as core:
            given += [int((await alert_in(core, f"{name} {number}"))[1:]) for number in range(3)]
            events.append((await core.client().events(None, 0)).last)
    assert (len(set(given)), given) == (6, sorted(given))
    assert events[1] > events[0]


async def test_a_database_in_use_is_not_replaced(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    async with core_process(setup) as core:
        await command(setup, "backup", "copy.db")
        refused = await command(setup, "restore", "copy.db")
        assert refused.code == 2
        assert is_one_sentence(refused.err)
        assert "is in use; stop every responder-bot" in refused.err
        alert = await alert_in(core)
        assert (await core.client().alert(alert)).id == alert
    assert not list(tmp_path.glob("*before-restore*"))


async def test_a_damaged_database_is_replaced_with_what_stands_beside_it(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    await command(setup, "backup", "copy.db")
    async with core_process(setup) as core:
        await alert_in(core)
        await core.kill()
    assert (tmp_path / "core.db-wal").stat().st_size  # of the database of before: read into another one it is damage
    with (tmp_path / "core.db").open("r+b") as file:
        file.write(b"rubbish" * 1000)
    assert (await command(setup, "restore", "copy.db")).code == 0
    with closing(sqlite3.connect(setup.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM object WHERE kind = 'alert'").fetchone() == (0,)
    assert (tmp_path / "core.db.before-restore-1").read_bytes().startswith(b"rubbish")
    assert (tmp_path / "core.db.before-restore-1-wal").exists()
    async with core_process(setup, "again") as core:
        await alert_in(core)


async def test_a_copy_made_with_cp_counts_as_a_backup_once_it_is_restored(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders=RESPONDERS)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        asking = await core.client().run(run_body(alert, "Asking_1_0"))
        await core.kill()
    for name in ("core.db", "core.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / name.replace("core", "copy"))
    assert (await command(setup, "restore", "copy.db")).code == 0
    async with core_process(setup, "again") as core:
        status, message = await message_at_the_end(core, asking.id)
        assert (status, message.startswith(RESTORED)) == ("Failure", True)


@pytest.mark.parametrize("what", ["nothing", "rubbish", "another database"])
async def test_what_is_no_backup_of_core_replaces_nothing(tmp_path: Path, what: str) -> None:
    setup = await setup_in(tmp_path)
    if what == "rubbish":
        (tmp_path / "copy.db").write_text("rubbish")
    elif what == "another database":
        with closing(sqlite3.connect(tmp_path / "copy.db")) as bots:
            bots.execute("CREATE TABLE message (ts TEXT)")
    refused = await command(setup, "restore", "copy.db")
    assert refused.code == 2
    assert is_one_sentence(refused.err)
    assert not list(tmp_path.glob("*before-restore*"))
    async with core_process(setup) as core:
        await alert_in(core)


KILLED = """
import json, os, shutil, sqlite3, sys
from pathlib import Path
from typing import Any
from core.store.database import backup

def at(line):
    def trace(frame, event, argument):
        if frame.f_code.co_filename == backup.__file__:
            if event == "line" and frame.f_lineno == line:
                os._exit(9)
            return trace
    return trace

seen = []
for line in range(1, len(Path(backup.__file__).read_text().splitlines())):
    shutil.copytree("origin", "harness")
    child = os.fork()
    if not child:
        sys.settrace(at(line))
        backup.restore_backup(Path("copy.db"), Path("harness/core.db"))
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9:
        found = sqlite3.connect("harness/core.db")
        whole = found.execute("PRAGMA integrity_check").fetchone()[0]
        names = [name for name, in found.execute("SELECT file_id FROM dropped_file")]
        marks = found.execute("SELECT count(*) FROM backup").fetchone()[0]
        found.close()
        backup.restore_backup(Path("copy.db"), Path("harness/core.db"))
        found = sqlite3.connect("harness/core.db")
        seen.append([whole, names, marks, found.execute("SELECT count(*) FROM backup").fetchone()[0]])
        found.close()
    shutil.rmtree("harness")
print(json.dumps(seen))
"""


@pytest.mark.slow
async def test_a_restore_that_is_killed_leaves_one_database_or_the_other_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    database = open_database(tmp_path / "core.db")
    copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
    await database.transaction(lambda tx: tx.run("INSERT INTO dropped_file (file_id) VALUES ('new')"))
    for name in ("core.db", "core.db-wal"):  # as kill -9 leaves them: what is new stands in the second one
        shutil.copy(tmp_path / name, tmp_path / "origin" / name)
    await database.close()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    seen = json.loads(out)
    assert process.returncode == 0
    assert {json.dumps(one) for one in seen} == {'["ok", ["new"], 0, 1]', '["ok", [], 1, 1]'}
    assert len(seen) > 30


def test_a_backup_is_never_over_another_file_and_leaves_nothing_where_it_fails(tmp_path: Path) -> None:
    (tmp_path / "core.db").write_text("rubbish" * 1000)
    with pytest.raises(ResponderBotError, match="can't be copied"):
        copy(tmp_path / "core.db", tmp_path / "copy.db", now_ms())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["core.db"]
