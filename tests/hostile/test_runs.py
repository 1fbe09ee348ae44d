"""Responders that attack core by the files they leave, by how they end, and by their output."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from core.engines.confinement import unavailable
from core.models import Action
from tests.core.core_process import CoreProcess, CoreSetup, alert_in, core_process, run_body, setup_in, until
from tests.hostile.bystander import Latencies, assert_unaffected, measure_idle, measured_bystander
from tests.responder_folders import write_responder

pytestmark = pytest.mark.hostile

HARMLESS = {"steps": ["write"]}
LONGEST_RUN_S = 60.0

BROKEN = re.compile(r"\b(?!OSError|PermissionError)[A-Z]\w+Error\b")
"""What Python prints when an attack is wrong itself. Confinement causes the two exceptions."""

PREAMBLE = """
import json, os, shutil, signal, socket, subprocess, sys, time
job = sys.argv[1]
known = json.load(open(f"{job}/input/input.json"))

def answer(**report):
    with open(f"{job}/output/output.json", "w") as file:
        json.dump({"success": True, "full": {}, **report}, file)

def everywhere():
    # each folder around the job that could hold what core reads: the job's own, its parent, its siblings
    folders = [job, os.path.dirname(job), os.path.dirname(os.path.dirname(job))]
    for folder in list(folders):
        try:
            folders += [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            pass
    return list(dict.fromkeys(folders))

def plant(make):
    for folder in everywhere():
        for name in ("stop", "started", "facts.json", "follower", "printed"):
            path = os.path.join(folder, name)
            try:
                if os.path.isdir(path) and not os.path.islink(path):
                    continue
                if os.path.lexists(path):
                    os.unlink(path)
                make(path)
            except OSError:
                pass
"""

PROGRAMS = {
    "fifos instead of everything core reads": "plant(os.mkfifo)\nanswer()",
    "a fifo as output": "os.mkfifo(f'{job}/output/output.json')",
    "folders instead of everything core reads": "plant(os.mkdir)\nanswer()",
    "links to an endless file": "plant(lambda path: os.symlink('/dev/zero', path))\nanswer()",
    "an output that links to an endless file": "os.symlink('/dev/zero', f'{job}/output/output.json')",
    "an output folder that is a link": "shutil.rmtree(f'{job}/output')\nos.symlink('/etc', f'{job}/output')",
    "a huge sparse output": "open(f'{job}/output/output.json', 'w').truncate(1 << 33)",
    "ten thousand tags": "answer(operations=[{'type': 'AddTagToAlert', 'tag': f't{n}'} for n in range(10_000)])",
    "thirty thousand of one tag": "answer(operations=[{'type': 'AddTagToAlert', 'tag': 't'}] * 30_000)",
    "a million unknown operations": "answer(operations=[{'type': 'x'}] * 1_000_000)",
    "megabytes in operations": "answer(operations=[{'type': 'AddTagToAlert', 'tag': 'x' * 1_000_000}] * 20)",
    "sixty megabytes of empty objects": (
        "with open(f'{job}/output/output.json', 'w') as file:\n"
        '    file.write(\'{"success":true,"full":{"a":[\')\n'
        "    for _ in range(2_000):\n"
        "        file.write('{},' * 10_000)\n"
        "    file.write('{}]}}')"
    ),
    "a million levels": "open(f'{job}/output/output.json', 'w').write('[' * 1_000_000)",
    "a number without an end": "open(f'{job}/output/output.json', 'w').write('9' * 5_000_000)",
    "infinity": "open(f'{job}/output/output.json', 'w').write('{\"success\":true,\"full\":{\"n\":1e999}}')",
    "a megabyte of a key": "answer(full={'k' * 1_000_000: 1})",
    "a hundred megabytes printed": "for _ in range(1_600):\n    sys.stdout.write('x' * 65_536)\nanswer()",
    "half a character": r"""open(f'{job}/output/output.json', 'w').write('{"success":true,"full":{"a":"\\ud800"}}')""",
    "half a character as bytes": (
        r"""open(f'{job}/output/output.json', 'wb').write(b'{"success":true,"full":{"a":"\xed\xa0\x80"}}')"""
    ),
    "its own folder removed": "shutil.rmtree(job, ignore_errors=True)",
    "a daemon": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        environ = {}\n"
        "        os.execve(sys.executable, ['sleeper', '-c', 'import time; time.sleep(86399)'], environ)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "answer()"
    ),
    "death by its own hand": "os.kill(os.getpid(), signal.SIGKILL)",
    "a killed session": "os.killpg(0, signal.SIGKILL)",
}
"""The attacks, and the code of each after PREAMBLE."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["landlock", "bwrap", "none"])
async def core(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[CoreProcess]:
    if reason := unavailable(request.param):
        pytest.skip(reason)
    setup = await setup_in(tmp_path_factory.mktemp("runs"), confinement=request.param)
    for number, program in enumerate(PROGRAMS.values()):
        write_responder(setup.folder / "responders", f"Hostile{number}", PREAMBLE + program + "\n")
    async with core_process(setup) as core:
        yield core


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def baseline(core: CoreProcess) -> Latencies:
    return await measure_idle(core)


async def ended(core: CoreProcess, action_id: str) -> Action:
    async with asyncio.timeout(LONGEST_RUN_S):
        return await core.ended(action_id)


@pytest.mark.parametrize("what", PROGRAMS)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_that_attacks_core_ends_and_affects_no_one_else(
    core: CoreProcess, baseline: Latencies, what: str
) -> None:
    name = f"Hostile{list(PROGRAMS).index(what)}_1_0"
    alert = await alert_in(core, what)
    async with measured_bystander(core) as latencies:
        action = await core.client().run(run_body(alert, name))
        end = await ended(core, action.id)
        json.loads(end.report, parse_constant=_no_json)
        json.loads(end.operations, parse_constant=_no_json)
        assert not BROKEN.search(end.report), f"the attack itself is broken: {end.report}"
        listed = await core.client().actions("alert", alert)
        assert [item.id for item in listed] == [action.id]
        next_one = await core.client().run(run_body(alert, parameters=HARMLESS))
        assert (await ended(core, next_one.id)).status == "Success"
    assert_unaffected(latencies, baseline, what)
    assert sum(len(item.report) + len(item.operations) for item in listed) < 4_000_000
    assert not left_running(core.setup)


def _no_json(word: str) -> None:
    raise AssertionError(f"{word} is in a report")


def left_running(setup: CoreSetup) -> list[str]:
    """Command lines of programs of this core's responders that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "time.sleep(86399)" in line or ("Hostile" in line and str(setup.folder) in line):
            found.append(line)
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_hostile_runs_at_once_free_their_capacity(core: CoreProcess, baseline: Latencies) -> None:
    alert = await alert_in(core, "four")
    async with measured_bystander(core) as latencies:
        runs = [await core.client().run(run_body(alert, "Hostile0_1_0")) for _ in range(8)]
        for run in runs:
            await ended(core, run.id)
        assert (
            await ended(core, (await core.client().run(run_body(alert, parameters=HARMLESS))).id)
        ).status == "Success"
    assert_unaffected(latencies, baseline, "eight runs that leave pipes")


async def test_a_core_killed_while_hostile_runs_are_collected_starts_and_ends_them(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    wanted = ["fifos instead of everything core reads", "folders instead of everything core reads", "ten thousand tags"]
    for number, what in enumerate(wanted):
        program = PREAMBLE + PROGRAMS[what] + "\nopen(known['parameters']['done'], 'w')\n"
        write_responder(setup.folder / "responders", f"Hostile{number}", program)
    ids = []
    async with core_process(setup) as first:
        alert = await alert_in(first)
        for number in range(len(wanted)):
            done = str(setup.folder / f"done{number}")
            run = await first.client().run(run_body(alert, f"Hostile{number}_1_0", parameters={"done": done}))
            ids.append((run.id, done))
            # One after the other, since the first two also spoil the folders of runs that have not begun.
            await until(lambda path=done: os.path.exists(path), done)  # type: ignore[misc]  # mypy loses the default
        await first.kill()
    async with core_process(setup) as second:
        for action_id, _ in ids:
            await ended(second, action_id)
        assert (
            await ended(second, (await second.client().run(run_body(alert, parameters=HARMLESS))).id)
        ).status == "Success"
