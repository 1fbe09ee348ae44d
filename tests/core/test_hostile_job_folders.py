"""Core, over HTTP, while programs replace files in their job folders by pipes, directories and symlinks."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.models import Action
from tests.core.core_process import CoreProcess, CoreSetup, alert_in, core_process, run_body, setup_in, until
from tests.core.engines.process.conftest import is_alive
from tests.core.engines.process.test_hostile_runs import wait_gone

PLANTING = """
import json, os, signal, sys
from pathlib import Path

run = Path(sys.argv[1])
asked = json.loads((run / "input" / "input.json").read_text())["parameters"]
for folder in (run, run.parent):
    for name in asked["names"]:
        path = folder / name
        if os.path.lexists(path):
            os.rename(path, f"{path}.aside")
        if asked["kind"] == "pipe":
            os.mkfifo(path)
        elif asked["kind"] == "directory":
            (path / "in" / "it").mkdir(parents=True)
        else:
            path.symlink_to("/dev/zero")
Path(asked["pipe"]).write_text(str(os.getpid()))
while True:
    signal.pause()
"""

NAMES = (("started",), ("stop",), ("facts.json",), ("follower", "gate", "printed", "output"))
"""The files that each of four runs replaces, for each of KINDS."""

KINDS = ("pipe", "directory", "link")


async def planting_setup(folder: Path, **config: Any) -> CoreSetup:
    capacity = len(KINDS) * len(NAMES)
    setup = await setup_in(folder, responders={"Planting": {"config": config}}, max_concurrent_actions=capacity)
    (folder / "responders" / "Planting" / "program.py").write_text(PLANTING)
    return setup


async def planted(core: CoreProcess, names: Sequence[Sequence[str]]) -> tuple[list[Action], list[int]]:
    """Start runs that have replaced their files, one of each kind for each of `names`. Returns them with their pids."""
    alert, actions, pids = await alert_in(core), [], []
    for number, (kind, several) in enumerate(itertools.product(KINDS, names)):
        pipe = core.setup.folder / f"pipe{number}"
        os.mkfifo(pipe)
        parameters = {"names": several, "kind": kind, "pipe": str(pipe)}
        actions.append(await core.client().run({**run_body(alert, "Planting_1_0"), "parameters": parameters}))
        pids.append(int(await asyncio.to_thread(pipe.read_text)))
    return actions, pids


async def stopped(core: CoreProcess) -> int | None:
    """Terminate core as a service manager does; returns its exit code."""
    core.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        return await core.process.wait()


@pytest.mark.slow
async def test_hostile_runs_at_once_end_at_their_deadline(tmp_path: Path) -> None:
    setup = await planting_setup(tmp_path, jobTimeout=0.05)
    async with core_process(setup) as core:
        actions, pids = await planted(core, [[name for part in NAMES for name in part]] * 4)
        await core.client().health()
        for action in actions:
            ended = await core.ended(action.id)
            assert json.loads(ended.report)["message"] == "Timed out after 0.05 minutes"
        assert not [pid for pid in pids if is_alive(pid)]
        await until(lambda: not list((tmp_path / "jobs" / "local").iterdir()), "a folder without jobs")
        assert await stopped(core) == 0


@pytest.mark.slow
async def test_after_a_crash_the_next_core_ends_hostile_runs(tmp_path: Path) -> None:
    setup = await planting_setup(tmp_path)
    async with core_process(setup) as core:
        actions, pids = await planted(core, NAMES)
        for action in actions:
            await core.running(action.id)
        await core.kill()
    async with core_process(setup) as core:
        await core.client().health()
        for action in actions:
            if (await core.client().action(action.id)).end_date is None:
                with contextlib.suppress(ResponderBotError):  # it may have ended meanwhile
                    await core.client().cancel(action.id)
            assert (await core.ended(action.id)).status == "Failure"
        for pid in pids:
            await wait_gone(pid)
        await until(lambda: not list((tmp_path / "jobs" / "local").iterdir()), "a folder without jobs")
        assert await stopped(core) == 0
