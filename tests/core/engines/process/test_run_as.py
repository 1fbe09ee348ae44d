"""Programs that run as another account than core, and settings of that which can't work."""

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.common.accounts import account_named, account_problems
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.engines.confinement import Mode, unavailable
from core.engines.process.engine import ProcessEngine
from core.settings import ResponderSection
from tests.core.engines.process.conftest import ProgressLog, job_for
from tests.core.engines.process.engines import engine_in
from tests.core.engines.process.test_confinement import SYSTEM_PYTHON, responders_in
from tests.core.running import running_core

NOBODY = account_named("nobody")

PROGRAM = """
import json, os, sys
job = sys.argv[1]

def error_of(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

def fork_until_refused():
    while True:
        if os.fork() == 0:
            import signal
            signal.pause()

full = {
    "who": [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
    "input": error_of(lambda: open(f"{job}/input/input.json")),
    "write input": error_of(lambda: open(f"{job}/input/input.json", "a")),
    "plant": error_of(lambda: open(f"{job}/planted", "w")),
    "stop": error_of(lambda: open(f"{os.path.dirname(job)}/stop", "w")),
    "settings": error_of(lambda: open(json.load(open(f"{job}/input/input.json"))["parameters"]["settings"])),
    "temporary": error_of(lambda: open(f"{job}/tmp/mine", "w")),
    "become root": error_of(lambda: os.setuid(0)),
    "fork": error_of(fork_until_refused),
}
json.dump({"success": True, "full": full}, open(f"{job}/output/output.json", "w"))
"""

only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can run a program as another account")


@pytest.fixture
async def shared() -> AsyncIterator[Path]:
    """A folder that an ordinary user can pass through; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - that is the point
        yield Path(folder)


async def run(shared: Path, confinement: Mode) -> tuple[ProcessEngine, Report]:
    responders = responders_in(shared / "responders")
    (responders / "Trying" / "trying.py").write_text(PROGRAM)
    (shared / "settings").write_text("token")
    (shared / "settings").chmod(0o600)
    section = ResponderSection(run_as="nobody", processes=20)
    engine = engine_in(
        shared,
        folders=(responders,),
        confinement=confinement,
        python=SYSTEM_PYTHON,
        sections={"Trying_1_0": section},
    )
    report = await engine.run(await job_for(engine, "Trying_1_0", settings=str(shared / "settings")), ProgressLog())
    await engine.close()
    return engine, report


@only_root
@pytest.mark.parametrize("confinement", ["none", "landlock", "bwrap"])
async def test_a_program_runs_as_the_account_that_the_settings_name(shared: Path, confinement: Mode) -> None:
    if reason := unavailable(confinement, NOBODY.uid):
        pytest.skip(reason)
    engine, report = await run(shared, confinement)
    assert report.success, report.message
    found: dict[str, Any] = dict(report.full)
    assert found.pop("who")[:3] == [NOBODY.uid, NOBODY.uid, NOBODY.gid]
    assert [name for name, outcome in found.items() if outcome == "done"] == ["input", "temporary"]
    assert found["fork"] == "BlockingIOError"
    await engine.clean_up("8257-5e")
    assert not list(engine._jobs.iterdir())


def problems(jobs: Path, run_as: str) -> list[str]:
    return account_problems({"Mailer_1_0": run_as}, jobs)


def test_an_account_that_is_not_there_is_a_problem(shared: Path) -> None:
    assert problems(shared / "jobs", "nobody-at-all") == [
        '[responder."Mailer_1_0"] run_as: this machine has no account nobody-at-all; create it, or name another.'
    ]
    assert account_problems({"Mailer_1_0": ""}, shared) == []


@only_root
def test_an_account_that_is_root_or_can_not_pass_is_a_problem(shared: Path) -> None:
    assert problems(shared / "jobs", "nobody") == []
    assert problems(shared / "jobs", "root") == [
        '[responder."Mailer_1_0"] run_as is root; name an account that owns nothing, or remove it.'
    ]
    shared.chmod(0o700)
    assert problems(shared / "jobs", "nobody") == [
        f'[responder."Mailer_1_0"] run_as: nobody can\'t reach the job folders through {shared}; `chmod o+x {shared}`, '
        "or move [core] jobs."
    ]


async def test_core_does_not_start_with_an_account_that_can_not_work(tmp_path: Path) -> None:
    with pytest.raises(ResponderBotError) as raised:
        async with running_core(tmp_path, responder={"Mailer_1_0": ResponderSection(run_as="nobody-at-all")}):
            raise AssertionError("it started")
    assert "run_as: this machine has no account nobody-at-all; create it" in raised.value.message
