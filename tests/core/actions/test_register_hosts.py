"""The register of two hosts that are killed and away for three days: it is the truth, and each end happens once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from core.common.clock import DAY_MS
from core.common.database import Dialect
from tests import stores
from tests.core.core_process import (
    ALERT,
    POLL_INTERVAL_S,
    POLL_TIMEOUT_S,
    CoreProcess,
    CoreSetup,
    core_process,
    events_of,
    hosts_in,
    run_body,
    until,
)

DAY = 1_440  # minutes
ENDS = (DAY, 4 * DAY, 0)  # minutes after the run; 0: never
TARGETS = [f"srv-{number:02}" for number in range(12)]
RULES = {"Isolate": {"undo": "Release_1_0", "target": "hostname"}, "Release": {"target": "hostname"}}
PROGRAM = """
import json, sys
from pathlib import Path
job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text())
with (Path({truth!r}) / asked["data"]["title"]).open("a") as truth:
    truth.write({name!r} + "\\n")
(job / "output" / "output.json").write_text(json.dumps({{"success": True, "full": {{}}, "operations": []}}))
"""


async def hosts(folder: Path, truth: Path) -> list[CoreSetup]:
    """Two hosts whose programs write into a file for each target what they have done to it."""
    setups = await hosts_in(folder, ["web1", "web2"], responders=RULES, max_concurrent_actions=2)
    for setup in setups:
        for name in RULES:
            program = setup.folder / "responders" / name / "program.py"
            program.write_text(PROGRAM.format(truth=str(truth), name=name))
    truth.mkdir()
    return setups


def done_to(truth: Path) -> dict[str, list[str]]:
    return {file.name: file.read_text().split() for file in truth.iterdir()}


async def isolated(core: CoreProcess, target: str, minutes: int) -> str:
    artifacts = [{"dataType": "hostname", "data": target}]
    body = {**ALERT, "sourceRef": target, "title": target, "artifacts": artifacts}
    alert = await core.client("lead").create_alert(body)
    return (await core.client().run(run_body(alert.id, "Isolate_1_0", undoAfterMinutes=minutes))).id


def pass_days(setup: CoreSetup, days: int) -> None:
    """Have all that is stored so many days older, as it is once no core has run for as long."""
    passed = days * DAY_MS
    times = ", ".join(f"{name} = {name} - {passed}" for name in ("ends_at", "since"))
    stores.rows(setup.database, f"UPDATE in_force SET {times}")  # noqa: S608
    stores.rows(setup.database, f"UPDATE due SET at = at - {passed}")  # noqa: S608


async def in_force(core: CoreProcess) -> dict[str, int | None]:
    """By target: when core undoes it."""
    return {(measure.target or [])[0].data: measure.until for measure in await core.client().measures()}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", stores.DIALECTS)
async def test_the_register_of_two_hosts_is_true_after_kills_and_three_days_away(
    tmp_path: Path, dialect: Dialect
) -> None:
    truth, ids = tmp_path / "truth", dict[str, str]()
    with stores.using(dialect):
        one, two = await hosts(tmp_path, truth)
        async with AsyncExitStack() as stack:
            killed, stays = [await stack.enter_async_context(core_process(setup)) for setup in (one, two)]
            for number, target in enumerate(TARGETS):
                core = (killed, stays)[number % 2]
                ids[target] = await isolated(core, target, ENDS[number % 3])
            await until(lambda: done_to(truth), "the first run")
            await killed.kill()
            again = await stack.enter_async_context(core_process(one))
            ended = {target: await again.ended(action_id) for target, action_id in ids.items()}
            await asyncio.gather(again.kill(), stays.kill())
        pass_days(one, 3)
        due = {target: (action.undo.at or 0) - 3 * DAY_MS for target, action in ended.items() if action.undo}
        expected: dict[str, Any] = {
            target: due[target] if ENDS[number % 3] else None
            for number, target in enumerate(TARGETS)
            if ENDS[number % 3] != DAY
        }
        async with AsyncExitStack() as stack:
            killed, stays = [await stack.enter_async_context(core_process(setup)) for setup in (one, two)]
            await until(lambda: any("Release" in done for done in done_to(truth).values()), "the first end")
            await killed.kill()
            again = await stack.enter_async_context(core_process(one))
            async with asyncio.timeout(POLL_TIMEOUT_S):
                while await in_force(again) != expected:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(POLL_INTERVAL_S)
            assert await in_force(stays) == expected
            assert done_to(truth) == {
                target: ["Isolate"] if target in expected else ["Isolate", "Release"] for target in TARGETS
            }
            for target, action_id in ids.items():
                assert (await events_of(again, action_id)).count("action.ended") == 1, target
