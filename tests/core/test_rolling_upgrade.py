"""A core of the release before, and one of this release, side by side on one database while actions run."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.core.core_process import (
    ROOT,
    CoreSetup,
    alert_in,
    core_process,
    counting,
    events_of,
    held,
    run_body,
    setup_in,
    write_pipe,
)

BEFORE = "c23e27b5eec6928f7afd3fca023c00d7386cc932"
"""The last commit without several hosts."""


def code_before(folder: Path) -> Path:
    """The product as it was at BEFORE."""
    archive = subprocess.run(["git", "archive", BEFORE, "core"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"no history with {BEFORE} here: {archive.stderr.decode().strip()}")
    code = folder / "before"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(code, filter="data")
    return code


def command_before(code: Path, setup: CoreSetup, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "core.cli", *args, "--config", str(setup.folder / "settings.toml")],
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.sqlite  # all that the release before has
async def test_a_core_of_the_release_before_and_one_of_this_share_a_database(tmp_path: Path) -> None:
    code = code_before(tmp_path)
    setup = await setup_in(tmp_path, beside=CoreSetup(tmp_path, {}, tmp_path / "core.db"), max_concurrent_actions=2)
    for name, profile in (("anna", "analyst"), ("lead", "org-admin")):
        added = command_before(code, setup, "user", "add", name, "--profile", profile)
        setup.keys[name] = added.stdout.strip()
        assert added.returncode == 0, added.stderr
    async with core_process(setup, "before", code=code) as before:
        alert = await alert_in(before)
        actions = {name: await held(before, alert, tmp_path / f"{name}.pipe") for name in ("first", "second", "third")}
        for name in ("first", "second"):
            await before.running(actions[name].id)
        async with core_process(setup, "now") as now:  # migrates the database
            for name in ("fourth", "fifth"):
                actions[name] = await held(now, alert, tmp_path / f"{name}.pipe")
            await write_pipe(tmp_path / "first.pipe")  # what the earlier one has is its own
            assert (await now.ended(actions["first"].id)).status == "Success"
            asked = [await core.client().run(run_body(alert, **counting(setup, "many"))) for core in (before, now) * 5]
            for name in ("second", "third", "fourth"):
                await write_pipe(tmp_path / f"{name}.pipe")
            for action in (*asked, *(actions[name] for name in ("second", "third", "fourth"))):
                assert (await before.ended(action.id)).status == "Success"
            assert (await before.client("lead").health())["status"] == "ok"
            assert (await now.client("lead").health())["status"] == "ok"
            await now.running(actions["fifth"].id)
            await now.kill()
        async with asyncio.timeout(60):
            await write_pipe(tmp_path / "fifth.pipe")
            assert (await before.ended(actions["fifth"].id)).status == "Success"  # taken over by the earlier one
        for name in ("sixth", "seventh", "eighth"):
            actions[name] = await held(before, alert, tmp_path / f"{name}.pipe")
        await before.running(actions["seventh"].id)
        async with core_process(setup, "next") as last:
            await before.kill()
            for name in ("sixth", "seventh", "eighth"):
                await write_pipe(tmp_path / f"{name}.pipe")
                assert (await last.ended(actions[name].id)).status == "Success"  # by the later one
            events = {action.id: await events_of(last, action.id) for action in (*asked, *actions.values())}
    assert [types.count("action.ended") for types in events.values()] == [1] * len(events)
    assert {name: setup.counted(name) for name in actions} == dict.fromkeys(actions, 1)
    assert setup.counted("many") == len(asked)
    refused = command_before(code, setup, "user", "list")  # it knows nothing of what may be added
    assert (refused.returncode, "made by a newer release" in refused.stderr) == (2, True)
