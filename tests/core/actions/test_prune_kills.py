"""Retention is killed fifty times in the middle: nothing that stays loses a part, and all that is due goes at last."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from core.common.clock import DAY_MS
from core.models import CaseUpdate, CommentInput, LogInput, TaskInput
from tests import stores
from tests.core.actions.harness import ANNA
from tests.core.actions.test_retention import (
    BLOCK,
    DAYS,
    GUARDED,
    PLAIN,
    TIMED,
    Soc,
    check_prune,
    due_roots,
    soc_in,
)
from tests.core.core_process import until

KILLS = 50
PRUNE = """
import asyncio, sys
from core.retention.pruning import Retention
from core.common.database.location import parse_location
from core.common.settings_file import RetentionSection
from core.store.database.opening import open_database

async def main(location, now_ms, days):
    database = open_database(parse_location(location))
    retention = Retention(database, lambda: now_ms, RetentionSection(alert_days=days), step_s=0, pause_s=0.001)
    await retention.prune()
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
"""Deletes one part of an alert or a case in each transaction."""


@pytest.mark.slow
async def test_retention_that_is_killed_loses_nothing_that_stays(tmp_path: Path) -> None:
    async with soc_in(tmp_path) as soc:
        await seed(soc)
        soc.later(DAYS + 1)
        before = soc.docs()
        due = due_roots(before, soc.clock.now_ms - DAYS * DAY_MS)
        start, parts = left(soc), (await soc.retention().preview()).total()
        ends = 0
        for kill in range(1, KILLS + 1):
            goal = start - parts * kill // (KILLS + 1)
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PRUNE, stores.setting(soc.parts.location)),
                *(str(soc.clock.now_ms), str(DAYS)),
            )
            await until(lambda goal=goal: left(soc) <= goal or None, f"{goal} parts are left")  # type: ignore[misc]
            child.kill()
            ends += await child.wait() == -9
            check_kept(soc, before, due)
        assert ends == KILLS
        await check_prune(soc)
        after = soc.docs()
        assert not due & (after["alert"].keys() | after["case"].keys())
        assert all(before[kind].keys() - after[kind].keys() for kind in ("alert", "case", "action", "comment"))


async def seed(soc: Soc) -> None:
    """Alerts and cases that are due, and some that stay for each reason."""
    for number in range(30):
        alert = await soc.closed("198.51.100.7", file=f"file {number}")
        await soc.ran(PLAIN, alert)
        await soc.comments.add(ANNA, alert, CommentInput(message="seen"), kind="alert")
    for number in range(10):
        case = await soc.alerts.create_case(ANNA, await soc.alert("198.51.100.8", file=f"evidence {number}"))
        task = await soc.cases.add_task(ANNA, case.id, TaskInput(title="t"))
        log = await soc.cases.add_log(ANNA, task.id, LogInput(message="l"))
        await soc.ran(PLAIN, log.id, "case_task_log")
        await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Resolved"))
    for number in range(3):
        await soc.ran(PLAIN, await soc.alert("198.51.100.9"))  # open
        await soc.started(GUARDED, await soc.closed())  # waits for an approval
        await soc.ran(TIMED, await soc.closed())  # to be undone
        await soc.ran(BLOCK, await soc.closed())  # in force without an end
        reopened = await soc.closed(file=f"reopened {number}")
        await soc.ran(PLAIN, reopened)
        await soc.alerts.mark_unread(ANNA, reopened)


def left(soc: Soc) -> int:
    """How many parts there are of alerts and cases."""
    return soc.rows("object") + soc.rows("action")


def check_kept(soc: Soc, before: dict[str, dict[str, Any]], due: set[str]) -> None:
    """Nothing is changed, nothing is gone of what stays, and no action is left of an alert that is gone."""
    after = soc.docs()
    for kind, docs in before.items():
        assert all(docs[part] == doc for part, doc in after[kind].items())
    roots = after["alert"].keys() | after["case"].keys()
    kept = (before["alert"].keys() | before["case"].keys()) - due
    assert kept <= roots
    for part, action in before["action"].items():
        assert part in after["action"] or action["objectId"] not in kept
    assert all(one["objectId"] in roots for one in after["action"].values() if one["objectType"] == "Alert")
