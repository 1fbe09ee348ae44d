"""Fork servers: forked programs behave as if started by exec, and no run depends on a server."""

import asyncio
import json
import os
import re
import signal
import stat
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.engines.process.engine import ProcessEngine
from core.engines.process.fork_server import ForkServer, ForkServers
from core.engines.process.starter import RunLimits
from tests.core.engines.process.conftest import Bell, ProgressLog, job_for, program_pid
from tests.core.engines.process.engines import engine_in

PLAIN: dict[str, Any] = {"version": "1.0", "dataTypeList": ["thehive:alert"]}


def responder(root: Path, name: str, program: str) -> None:
    """Write a responder with one file below `root`."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(textwrap.dedent(program))
    (folder / f"{name}.json").write_text(json.dumps({**PLAIN, "name": name, "command": f"{name}/program.py"}))


PREAMBLE = """
    import json, pathlib, sys
    def say(**full):
        (pathlib.Path(sys.argv[1]) / "output" / "output.json").write_text(json.dumps({"success": True, "full": full}))
"""


def exec_and_fork_folders(tmp_path: Path, environments: Path) -> tuple[Path, Path]:
    """The state folders of two engines with shared environments: one starts programs by exec, the other forks them."""
    by_exec, forking = tmp_path / "a", tmp_path / "b"
    for place in (by_exec, forking):
        place.mkdir()
        (place / "environments").symlink_to(environments)
    (forking / "fork").touch()
    return by_exec, forking


def without_paths(value: Any, place: Path) -> Any:
    """JSON without the path of `place` and without memory addresses."""
    return json.loads(re.sub("0x[0-9a-f]+", "0x0", json.dumps(value).replace(str(place), "PLACE")))


def only_server(engine: ProcessEngine) -> ForkServer:
    assert engine._starter.fork_servers
    (server,) = engine._starter.fork_servers.servers()
    return server


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def bundled_configuration(tmp_path: Path) -> dict[str, dict[str, Any]]:
    known = tmp_path / "known.csv"
    known.write_text("indicator,verdict\n198.51.100.7,bad\n")
    return {
        "ResponderBot_Lookup_1_0": {"csv": str(known)},
        "ResponderBot_Mail_1_0": {"smtp_host": "127.0.0.1", "smtp_port": 1, "from": "a@example.org", "to": "b@c.org"},
        "ResponderBot_Webhook_1_0": {"url": "http://127.0.0.1:1/"},
    }


PARAMETERS: dict[str, dict[str, Any]] = {
    "Failing_1_0": {"error": {"message": "quota"}},
    "Hog_1_0": {"wants": "memory"},
    "Noisy_1_0": {"bytes": 100_000},
    "Rubbish_1_0": {"text": "[]"},
}
WITH_BELLS = ("Hanging_1_0", "Slow_1_0", "Stubborn_1_0")
"""Those that need a bell; other tests run them with exec and fork."""


async def both_reports(engine: ProcessEngine, place: Path) -> dict[str, Any]:
    """Message, printed text and output of each responder, without what differs from run to run."""
    found: dict[str, Any] = {}
    for item in (await engine.catalogue()).responders:
        if item.name in WITH_BELLS:
            continue
        job = await job_for(engine, item.name, **PARAMETERS.get(item.name, {}))
        report = await engine.run(job, ProgressLog())
        output = place / "jobs" / engine.job_id(job.action_id) / "run" / "output" / "output.json"
        text = output.read_text() if output.exists() else ""
        said = (report.message, report.printed, _without_numbers(text))
        found[item.name] = without_paths(said, place)
        await engine.clean_up(job.action_id)
    return found


def _without_numbers(text: str) -> Any:
    """The output without the pid of a child."""
    output = json.loads(text) if text.startswith("{") else text
    if isinstance(output, dict) and "child" in output.get("full", {}):
        del output["full"]["child"]
    return output


async def test_each_responder_returns_the_same_with_exec_and_fork(
    tmp_path: Path, environments: Path, bundled_configuration: dict[str, dict[str, Any]]
) -> None:
    config = {**bundled_configuration, "Echo_1_0": {"greeting": "hello", "names": ["a"], "api_key": "open sesame"}}
    reports = []
    for place in exec_and_fork_folders(tmp_path, environments):
        engine = engine_in(place, config=config)
        reports.append(await both_reports(engine, place))
        await engine.close()
    by_exec, forked = reports
    assert len(by_exec) == 12
    assert forked == by_exec


async def test_a_forked_program_sees_the_same_as_an_executed_one(tmp_path: Path, environments: Path) -> None:
    program = f"""{PREAMBLE}
    import __main__, os, resource, signal, threading, pickle
    class Thing: pass
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    say(
        name=__name__, file=__file__, main=__main__.__file__, spec=__spec__,
        pickled=pickle.loads(pickle.dumps(Thing)) is Thing,
        argv=sys.argv[0], original=sys.orig_argv[:-1], path=sys.path, flags=str(sys.flags), executable=sys.executable,
        limits=[resource.getrlimit(kind) for kind in (0, 1, 4, 7, 9)], umask=os.umask(0), cwd=os.getcwd(),
        privileges=status["NoNewPrivs"].strip(), blocked=status["SigBlk"].strip(), ignored=status["SigIgn"].strip(),
        caught=status["SigCgt"].strip(), threads=threading.active_count(), group=os.getpgrp() == os.getpid(),
        command=open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))[:-1],
        environ=[part for part in open("/proc/self/environ").read().split(chr(0)) if part and "HOME=" not in part],
        buffering=[sys.stdout.line_buffering, sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors],
    )
    """
    responder(tmp_path / "own", "Mirror", program)
    seen = []
    for place in exec_and_fork_folders(tmp_path, environments):
        engine = engine_in(place, folders=(tmp_path / "own",))
        report = await engine.run(await job_for(engine, "Mirror_1_0"), ProgressLog())
        assert report.success, report.printed
        seen.append(without_paths(report.full, place))
        await engine.close()
    assert seen[0] == seen[1]
    assert seen[1]["privileges"] == "1"
    assert seen[1]["limits"][3][0] == RunLimits().open_files


ENDS = {
    "Raising": "raise ValueError('no such user')",
    "Nested": "def f():\n    try:\n        1 / 0\n    except ArithmeticError:\n        raise KeyError('k')\nf()",
    "Broken": "if True print('x')",
    "Leaving": "import sys\nsys.exit('nothing to do')",
    "AtTheEnd": "import atexit, threading as t\natexit.register(print, 'bye')\nt.Timer(0.01, print, ['late']).start()",
    "Number": "import sys\nsys.exit(300)",
    "Untrue": "import sys\nsys.exit(True)",
    "Dropped": "class Thing:\n    def __del__(self): print('dropped')\nthing = Thing()\nthing.own = thing",
    "LeftOpen": "import sys\nfile = open(sys.argv[1] + '/output/output.json', 'w')\nfile.write('{\"success\": 1')",
    "LeftInFunction": (
        "import sys\ndef f():\n    file = open(sys.argv[1] + '/output/output.json', 'w')\n    file.write('{}')\n"
        "    sys.exit(4)\nf()"
    ),
    "Daemon": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('on')",
    "InPrinting": "import ctypes\nctypes.CDLL(None).printf(b'by the library')",
    "AtExitFails": "import atexit\n@atexit.register\ndef bad(): raise ValueError('late')",
    "FullAtTheEnd": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\nprint('x' * 100)",
    "Killed": "import os\nprint('half', flush=True)\nos.kill(os.getpid(), 11)",
    "Hooked": "import sys\nsys.excepthook = lambda kind, error, tb: print('hook', kind, error)\nraise OSError('x')",
}


async def test_every_way_to_exit_looks_the_same_with_exec_and_fork(tmp_path: Path, environments: Path) -> None:
    for name, program in ENDS.items():
        responder(tmp_path / "own", name, program)
    seen = []
    for place in exec_and_fork_folders(tmp_path, environments):
        engine = engine_in(place, folders=(tmp_path / "own",))
        reports = [
            await engine.run(await job_for(engine, f"{name}_1_0", action_id=f"~{number}"), ProgressLog())
            for number, name in enumerate(ENDS)
        ]
        seen.append(without_paths([(report.message, report.printed) for report in reports], place))
        await engine.close()
    assert seen[0] == seen[1]


async def test_seeds_differ_from_run_to_run(tmp_path: Path, environments: Path) -> None:
    program = f"""{PREAMBLE}
    import random, ssl, uuid, tempfile
    say(a=random.random(), b=ssl.RAND_bytes(8).hex(), c=str(uuid.uuid4()), d=tempfile.mktemp())
    """
    responder(tmp_path / "own", "Dice", program)
    engine = engine_in(exec_and_fork_folders(tmp_path, environments)[1], folders=(tmp_path / "own",))
    reports = [await engine.run(await job_for(engine, "Dice_1_0", action_id=f"~{n}"), ProgressLog()) for n in range(3)]
    for letter in "abcd":
        assert len({report.full[letter] for report in reports}) == 3
    await engine.close()


def memory_of(pid: int) -> Iterator[bytes]:
    """The readable memory of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            if not rights.startswith("r") or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in place.split("-"))
            memory.seek(begin)
            yield memory.read(end - begin)


async def test_no_secret_is_ever_in_a_servers_memory(
    tmp_path: Path, environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-" + "never-to-be-seen")
    monkeypatch.setenv("http_proxy", "http://ann:" + "proxy-never-seen@127.0.0.1:1")
    engine = engine_in(
        exec_and_fork_folders(tmp_path, environments)[1], config={"Echo_1_0": {"api_key": "key-" + "never-seen"}}
    )
    report = await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    assert report.full["environment"]["http_proxy"] == "http://REMOVED@127.0.0.1:1"
    server = only_server(engine)
    held = [
        word
        for part in memory_of(server.pid)
        for word in (b"never-to-be-seen", b"proxy-never-seen", b"key-never-seen", b"Beacon to")
        if word in part
    ]
    assert held == []
    opened = sorted(os.readlink(f"/proc/{server.pid}/fd/{name}") for name in os.listdir(f"/proc/{server.pid}/fd"))
    assert opened[:3] == [os.devnull] * 3
    assert stat.S_ISSOCK(os.stat(f"/proc/{server.pid}/fd/3").st_mode)
    assert len(opened) == 4
    await engine.close()


async def test_a_run_outlives_its_server(tmp_path: Path, environments: Path, bell: Bell, go: Bell) -> None:
    engine, progress_log = engine_in(exec_and_fork_folders(tmp_path, environments)[1]), ProgressLog()
    parameters: dict[str, Any] = {"runs": str(tmp_path / "runs"), "bell": str(bell.path), "go": str(go.path)}
    running = asyncio.create_task(engine.run(await job_for(engine, "Slow_1_0", **parameters), progress_log))
    await bell.rung()
    await progress_log.first()
    pid, server = program_pid(engine), only_server(engine).pid
    assert parent_of(parent_of(pid)) == server  # the parent is the supervisor
    os.kill(server, signal.SIGKILL)
    go.ring()
    assert (await running).message == "Slow"
    again = await engine.run(await job_for(engine, "Silent_1_0", action_id="~2"), ProgressLog())
    assert "(exit code 3)" in again.message
    assert only_server(engine).pid != server
    await engine.close()


async def test_a_forked_child_is_reaped_once_its_exit_was_read(tmp_path: Path, environments: Path) -> None:
    engine, progress_log = engine_in(exec_and_fork_folders(tmp_path, environments)[1]), ProgressLog()
    await engine.run(await job_for(engine, "Silent_1_0"), progress_log)
    server = only_server(engine)
    assert (server.runs, server.references) == (1, 0)
    assert not Path(f"/proc/{program_pid(engine)}").exists()
    await engine.close()
    assert not Path(f"/proc/{server.pid}").exists()


async def test_a_program_beside_a_module_of_a_loaded_name_is_started_by_exec(
    tmp_path: Path, environments: Path
) -> None:
    responder(tmp_path / "own", "Shadow", f"{PREAMBLE}\n    import smtplib\n    say(message=smtplib.MINE)")
    (tmp_path / "own" / "Shadow" / "smtplib.py").write_text("MINE = 'my own'\n")
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=30.0), folders=(tmp_path / "own",))
    report = await engine.run(await job_for(engine, "Shadow_1_0"), ProgressLog())
    assert report.message == "my own"
    assert only_server(engine).runs == 0
    await engine.close()


def forking_engine(tmp_path: Path, environments: Path, servers: ForkServers, **settings: Any) -> ProcessEngine:
    """An engine that may use fork servers, and may do without."""
    place = tmp_path / "c"
    place.mkdir()
    (place / "environments").symlink_to(environments)
    engine = engine_in(place, **settings)
    engine._starter.fork_servers = servers
    return engine


async def test_a_server_that_cannot_start_is_not_needed(tmp_path: Path, environments: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *fork_program*) exit 1;; esac\nexec {environments_python(environments)} "$@"\n'
    )
    python.chmod(0o755)
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=30.0), python=python)
    for number in (1, 2):
        report = await engine.run(await job_for(engine, "Silent_1_0", action_id=f"~{number}"), ProgressLog())
        assert "(exit code 3)" in report.message
    assert engine._starter.fork_servers is not None
    assert engine._starter.fork_servers.servers() == ()
    await engine.close()


def environments_python(environments: Path) -> Path:
    return next(environments.glob("plain-*/bin/python"))


async def test_a_server_that_does_not_answer_is_killed_and_not_needed(tmp_path: Path, environments: Path) -> None:
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=30.0, answer_s=2.0))
    await engine.run(await job_for(engine, "Silent_1_0"), ProgressLog())
    server = only_server(engine).pid
    os.kill(server, signal.SIGSTOP)
    report = await engine.run(await job_for(engine, "Silent_1_0", action_id="~2"), ProgressLog())
    assert "(exit code 3)" in report.message
    assert not Path(f"/proc/{server}").exists()
    await engine.close()


async def test_a_server_is_renewed_after_some_runs_and_when_its_environment_changes(
    tmp_path: Path, environments: Path
) -> None:
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=30.0, renewed_after=2))
    seen = []
    for number in range(5):
        progress_log = ProgressLog()
        await engine.run(await job_for(engine, "Silent_1_0", action_id=f"~{number}"), progress_log)
        pids = [server.pid for server in engine._starter.fork_servers.servers()] if engine._starter.fork_servers else []
        seen.append(pids)
        if number == 2:
            (site,) = environments.glob("plain-*/lib/python*/site-packages")
            (site / "new.py").touch()
            (site / "new.py").unlink()
    assert [len(pids) for pids in seen] == [1, 0, 1, 1, 0]
    assert seen[2] != seen[3]
    await engine.close()


async def test_an_idle_server_ends_and_the_next_run_starts_a_new_one(tmp_path: Path, environments: Path) -> None:
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=30.0, idle_s=0.0))
    for number in (1, 2):
        report = await engine.run(await job_for(engine, "Silent_1_0", action_id=f"~{number}"), ProgressLog())
        assert "(exit code 3)" in report.message
    await engine.close()


async def test_a_run_does_not_wait_for_ever_for_a_server(tmp_path: Path, environments: Path) -> None:
    engine = forking_engine(tmp_path, environments, ForkServers(wait_s=0.0))
    report = await engine.run(await job_for(engine, "Silent_1_0"), ProgressLog())
    assert "(exit code 3)" in report.message
    assert only_server(engine).runs == 0
    await engine.close()


async def test_there_are_never_more_servers_than_allowed(tmp_path: Path, environments: Path) -> None:
    servers = ForkServers(wait_s=30.0, most=1)
    engine = forking_engine(tmp_path, environments, servers)
    other = forking_other(tmp_path, environments, servers)
    for number, one in enumerate((engine, other, engine)):
        await one.run(await job_for(one, "Silent_1_0", action_id=f"~{number}"), ProgressLog())
        assert len(servers.servers()) == 1
    await engine.close()


def forking_other(tmp_path: Path, environments: Path, servers: ForkServers) -> ProcessEngine:
    """An engine with another interpreter, which needs another server."""
    python = tmp_path / "other" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(environments_python(environments))
    place = tmp_path / "d"
    place.mkdir()
    engine = engine_in(place, python=python)
    engine._starter.fork_servers = servers
    return engine
