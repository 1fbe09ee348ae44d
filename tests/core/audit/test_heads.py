"""The head of the audit where people find it: in the log, in a backup, over HTTP."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from core.audit import trail
from core.audit.reader import head, log_head_forever
from core.common.database import Database
from tests.core.core_process import until
from tests.core.running import running_core
from tests.core.test_cli import run
from tests.stores import rows


async def write(database: Database, count: int) -> None:
    def work(tx: object) -> None:
        for number in range(count):
            trail.record(tx, 0, "user.enabled", by="lead@x", object=f"u{number}@x")  # type: ignore[arg-type]

    await database.transaction(work)


async def test_the_head_is_logged_at_once_and_then_each_time(database: Database) -> None:
    await write(database, 3)
    with capture_logs() as logged:
        task = asyncio.create_task(log_head_forever(database, every_s=0.01))
        first = await until(lambda: logged[:1] or None, "a head")
        await write(database, 2)
        await until(lambda: logged[-1]["head"].startswith("5:") or None, "the next head")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert first[0]["event"] == "audit_head"
    assert first[0]["head"].startswith("3:")
    assert logged[-1]["head"] == await database.read(head)


async def test_core_logs_the_head_at_its_start_and_answers_it(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with running_core(tmp_path) as core:
            said = await until(lambda: [e for e in logged if e["event"] == "audit_head"] or None, "a head")
            number = int(said[0]["head"].partition(":")[0])
            answer = await core.send("GET", f"/api/audit/heads?after={number - 1}", profile="auditor")
            found = answer.json()
            assert len(found) == 1
            assert found[0]["number"] >= number
            last = found[0]["number"]
            assert (await core.send("GET", f"/api/audit/heads?after={last}", profile="auditor")).json() == []
            assert (await core.send("GET", "/api/audit/heads", profile="analyst")).status_code == 403


@pytest.mark.sqlite
async def test_a_backup_prints_the_head(tmp_path: Path) -> None:
    await run(tmp_path, "init")
    await run(tmp_path, "user", "add", "anna", "--profile", "analyst")
    ended = await run(tmp_path, "backup", "copy.db")
    found = rows(tmp_path / "responder-bot.db", "SELECT number || ':' || hash FROM audit ORDER BY number DESC LIMIT 1")
    assert f"The head of the audit in it is {found[0][0]}." in ended.err
