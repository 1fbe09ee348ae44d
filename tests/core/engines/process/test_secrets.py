"""Reports show neither secrets of the configuration nor paths of this machine."""

import asyncio
import io
import json
import logging
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from core.common import logs
from core.engines.base import Report
from core.engines.process.engine import ProcessEngine
from core.engines.secret_reader import KEPT_S, LIMIT_BYTES, SecretReader
from core.settings import ResponderSection, SecretSource
from tests.core.core_process import until
from tests.core.engines.process.conftest import MakeEngine, ProgressLog, is_alive, job_for
from tests.core.running import running_core

LEAKY = """
import base64, json, sys, urllib.parse
from pathlib import Path

job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text())
config = asked["config"]
key, url, pin = config["api_key"], config["url"], config["pin_token"]
login = base64.b64encode(b"bo:" + key.encode()).decode()
said = [key, url, f"Basic {login}", urllib.parse.quote(key, safe=""), json.dumps({"k": key}), {key: 1}, pin, str(pin)]
print(*said, sep="\\n")
if asked["parameters"].get("raises"):
    raise RuntimeError(f"no answer from {url} in {job}")
(job / "output" / "output.json").write_text(json.dumps({
    "success": asked["parameters"]["success"],
    "full": {"message": f"Used {key}", "said": said},
    "summary": {"taxonomies": [{"namespace": "n", "predicate": "p", "value": key}]},
    "artifacts": [{"data": url}],
    "operations": [{"type": "AddTagToAlert", "tag": key}, *said],
    "errorMessage": said,
    "input": asked,
}))
"""
KEY = 'open "sesame" & close/it+'
SECRETS = (KEY, "hunter22", "k-77-88", "sesame", "123456")


async def leaked(make_engine: MakeEngine, tmp_path: Path, **parameters: Any) -> Report:
    folder = tmp_path / "own" / "Leaky"
    folder.mkdir(parents=True)
    (folder / "leaky.py").write_text(LEAKY)
    items = [
        {"name": name, "type": kind}
        for name, kind in (("api_key", "string"), ("url", "string"), ("pin_token", "number"))
    ]
    definition = {"name": "Leaky", "version": "1", "dataTypeList": ["thehive:alert"], "command": "Leaky/leaky.py"}
    (folder / "Leaky.json").write_text(json.dumps({**definition, "configurationItems": items}))
    config = {
        "api_key": KEY,
        "url": "https://ann:hunter22@siem.example/x?q=1&api_key=k-77-88",
        "pin_token": 123456,
        "proxy_http": "bo:hunter22@proxy.example:3128",
    }
    engine = make_engine(folders=(folder.parent,), config={"Leaky_1": config})
    return await engine.run(await job_for(engine, "Leaky_1", **parameters), ProgressLog())


def all_of(report: Report) -> str:
    return json.dumps([report.__dict__], ensure_ascii=False)


async def test_no_secret_of_the_configuration_is_in_a_report(make_engine: MakeEngine, tmp_path: Path) -> None:
    report = await leaked(make_engine, tmp_path, success=True)
    assert report.success
    assert [secret for secret in SECRETS if secret in all_of(report)] == []
    assert report.operations[0] == {"type": "AddTagToAlert", "tag": "REMOVED"}
    assert report.message == "Used REMOVED"
    assert report.full["said"][:4] == [
        "REMOVED",
        "https://REMOVED@siem.example/x?q=1&api_key=REMOVED",
        report.full["said"][2],
        "REMOVED",
    ]
    assert report.config["url"] == "https://REMOVED@siem.example/x?q=1&api_key=REMOVED"
    assert report.config["proxy"] == {"http": "REMOVED@proxy.example:3128", "https": None}


async def test_no_secret_is_in_the_report_of_a_failure(make_engine: MakeEngine, tmp_path: Path) -> None:
    report = await leaked(make_engine, tmp_path, success=False)
    assert not report.success
    assert [secret for secret in SECRETS if secret in all_of(report)] == []
    assert report.input is not None
    assert report.input["config"]["proxy"]["http"] == "REMOVED@proxy.example:3128"


async def test_a_traceback_shows_neither_login_nor_paths_of_this_machine(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    report = await leaked(make_engine, tmp_path, raises=True)
    assert (
        "RuntimeError: no answer from https://REMOVED@siem.example/x?q=1&api_key=REMOVED in local-8257"
        in report.message
    )
    assert 'File "own/Leaky/leaky.py"' in report.printed
    assert [text for text in (*SECRETS, str(tmp_path / "jobs"), str(tmp_path / "own")) if text in all_of(report)] == []


# --- values that a command or a file gives

ECHOING = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path

job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text())
Path(__file__).with_name("seen").write_text(json.dumps([asked["config"], sys.argv, dict(os.environ)]))
print(asked["config"])
if asked["parameters"].get("fails"):
    report = {"success": False, "errorMessage": f"refused {asked['config']}", "input": asked}
else:
    report = {"success": True, "full": {"message": str(asked["config"]), "config": asked["config"]}}
(job / "output" / "output.json").write_text(json.dumps(report))
"""
SHELL = """#!/bin/sh
echo '{"success": true, "full": {}}' > "$1/output/output.json"
"""
KINDS = {"address": "string", "pin": "number", "verify": "boolean", "hosts": "string"}


def echoing(tmp_path: Path, text: str = ECHOING) -> Path:
    """A responder that returns its configuration; none of its items is secret by name."""
    folder = tmp_path / "own" / "Echoing"
    folder.mkdir(parents=True)
    program = folder / "echoing"
    program.write_text(text)
    program.chmod(0o700)
    items = [{"name": name, "type": kind, "multi": name == "hosts"} for name, kind in KINDS.items()]
    items[0]["required"] = True
    definition = {"name": "Echoing", "version": "1", "dataTypeList": ["thehive:alert"], "command": "Echoing/echoing"}
    (folder / "Echoing.json").write_text(json.dumps({**definition, "configurationItems": items}))
    return folder


def printing(tmp_path: Path, text: str, after_s: int = 0) -> SecretSource:
    """A command that appends a line to the file `calls`, and prints `text` some seconds later."""
    script = f"echo x >> {shlex.quote(str(tmp_path / 'calls'))}; sleep {after_s}; printf %s {shlex.quote(text)}"
    return SecretSource(command=("sh", "-c", script))


def calls(tmp_path: Path) -> int:
    file = tmp_path / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def engine_with(
    make_engine: MakeEngine, tmp_path: Path, config: Mapping[str, Any], reader: SecretReader | None = None
) -> ProcessEngine:
    sections = {"Echoing_1": ResponderSection(config=config)}
    return make_engine(folders=(tmp_path / "own",), sections=sections, secret_reader=reader)


async def run(engine: ProcessEngine, action_id: str = "~8257", **parameters: Any) -> Report:
    return await engine.run(await job_for(engine, "Echoing_1", action_id=action_id, **parameters), ProgressLog())


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """Everything that is logged; afterwards logging is as it was."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    lines = io.StringIO()
    logs.configure("debug", to=lines)
    yield lines
    logs.silence()
    structlog.reset_defaults()
    root.handlers, root.level = before


@pytest.mark.parametrize("fails", [False, True])
async def test_values_of_commands_and_files_reach_the_program_and_nothing_else(
    make_engine: MakeEngine, tmp_path: Path, log_lines: io.StringIO, fails: bool
) -> None:
    folder = echoing(tmp_path)
    (tmp_path / "pin").write_text("73519462\n")
    config = {
        "address": printing(tmp_path, "https://ann:walrus-77@siem.example/"),
        "pin": SecretSource(file=tmp_path / "pin"),
        "verify": printing(tmp_path, "true"),
        "hosts": printing(tmp_path, "alpha.example, beta.example"),
        "proxy_http": printing(tmp_path, "bo:tapir-88@proxy.example:3128"),
    }
    report = await run(engine_with(make_engine, tmp_path, config), fails=fails)
    seen, argv, environ = json.loads((folder / "seen").read_text())
    assert report.success is not fails
    assert [seen["address"], seen["pin"], seen["verify"]] == ["https://ann:walrus-77@siem.example/", 73519462, True]
    assert seen["hosts"] == ["alpha.example", "beta.example"]
    assert seen["proxy"]["http"] == environ["http_proxy"] == "bo:tapir-88@proxy.example:3128"
    assert {name: report.config[name] for name in KINDS} == dict.fromkeys(KINDS, "REMOVED")
    assert report.config["proxy"]["http"] == "REMOVED"
    shown = all_of(report) + str(argv) + log_lines.getvalue()
    secrets = ("walrus", "siem.example", "73519462", "alpha.example", "beta.example", "tapir", "proxy.example")
    assert [secret for secret in secrets if secret in shown] == []
    if report.input is not None:
        assert report.input["config"]["verify"] == "REMOVED"


async def test_nothing_is_read_before_a_run(make_engine: MakeEngine, tmp_path: Path) -> None:
    echoing(tmp_path)
    engine = engine_with(make_engine, tmp_path, {"address": printing(tmp_path, "open sesame")})
    assert "Echoing_1" in [item.name for item in (await engine.catalogue()).responders]
    assert calls(tmp_path) == 0
    assert (await run(engine)).success
    assert calls(tmp_path) == 1


@pytest.mark.parametrize("item", ["max_tlp", "check_pap", "jobTimeout", "cacerts"])
async def test_what_is_needed_before_a_run_is_not_read(make_engine: MakeEngine, tmp_path: Path, item: str) -> None:
    echoing(tmp_path)
    engine = engine_with(make_engine, tmp_path, {"address": "here", item: printing(tmp_path, "2")})
    (skipped,) = [found for found in (await engine.catalogue()).skipped if found.name == "Echoing_1"]
    assert f"{item} can't come from a command or a file; set its value." in skipped.reason


async def test_a_command_sees_three_variables_and_no_shell(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = echoing(tmp_path)
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("LANG", "C")
    engine = engine_with(make_engine, tmp_path, {"address": SecretSource(command=("env",))})
    assert (await run(engine)).success
    seen = json.loads((folder / "seen").read_text())[0]["address"].splitlines()
    assert {line.partition("=")[0] for line in seen} == {"PATH", "HOME", "LANG"}
    engine = engine_with(make_engine, tmp_path, {"address": SecretSource(command=("echo", "$HOME;", "`id`"))})
    assert (await run(engine, "~2")).success
    assert json.loads((folder / "seen").read_text())[0]["address"] == "$HOME; `id`"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (("sh", "-c", "echo walrus; echo walrus >&2; exit 3"), "its command exited with 3; run that command under"),
        (("sh", "-c", "echo walrus; kill -9 $$"), "its command was killed;"),
        (("no-such-command", "walrus"), "its command could not be started (No such file or directory);"),
        (("echo", "\0walrus"), "its command could not be started (it holds a zero byte);"),
        (("true",), "its command gives nothing;"),
        (("sh", "-c", "printf '\\377walrus'"), "its command gives no UTF-8 text;"),
        (("sh", "-c", "printf 'walrus\\0'"), "its command gives no UTF-8 text;"),
        (("sh", "-c", "yes walrus"), f"its command gives more than {LIMIT_BYTES} bytes;"),
        ("missing", "its file can't be opened (No such file or directory); correct path or rights"),
        ("empty", "its file gives nothing;"),
        ("long", f"its file gives more than {LIMIT_BYTES} bytes;"),
        ("pipe", "its file is not a regular file;"),
        ("", "its file is not a regular file;"),
    ],
)
async def test_what_can_t_be_read_fails_the_run_without_being_shown(
    make_engine: MakeEngine,
    tmp_path: Path,
    log_lines: io.StringIO,
    source: tuple[str, ...] | str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "PATH", os.defpath
    )  # a folder that can't be read would be the reason for a command that isn't there
    folder = echoing(tmp_path)
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "long").write_text("walrus" * LIMIT_BYTES)
    os.mkfifo(tmp_path / "pipe")
    made = SecretSource(file=tmp_path / source) if isinstance(source, str) else SecretSource(command=source)
    report = await run(engine_with(make_engine, tmp_path, {"address": made}))
    assert not report.success
    assert report.message.startswith("Echoing_1 can't run: its configuration item 'address' can't be read, since ")
    assert reason in report.message
    assert report.message.endswith(', or change address in [responder."Echoing_1".config].')
    logged = log_lines.getvalue()
    assert "secret_not_read" in logged
    assert [text for text in ("walrus", str(tmp_path)) if text in all_of(report) + logged] == []
    assert not (folder / "seen").exists()


async def test_a_value_that_does_not_fit_its_item_is_not_shown(make_engine: MakeEngine, tmp_path: Path) -> None:
    echoing(tmp_path)
    config = {"address": "here", "pin": printing(tmp_path, "walrus"), "hosts": printing(tmp_path, "alpha.example")}
    report = await run(engine_with(make_engine, tmp_path, config))
    assert report.message == (
        "Echoing_1 can't run: the configuration item 'pin' must be a number; correct what its command or file gives."
    )


async def test_a_command_that_hangs_is_killed_with_its_children_and_holds_nobody_up(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    echoing(tmp_path)
    script = f"sleep 300 & echo $! > {shlex.quote(str(tmp_path / 'child'))}; wait"
    config = {"address": SecretSource(command=("sh", "-c", script))}
    engine = engine_with(make_engine, tmp_path, config, SecretReader(timeout_s=0.5))
    task = asyncio.create_task(run(engine))
    longest = 0.0
    while not task.done():
        before = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - before)
    assert "its command did not end within 0.5 s;" in task.result().message
    assert longest < 0.4
    child = int((tmp_path / "child").read_text())
    await until(lambda: not is_alive(child), "the child killed")  # whoever adopted it reaps it


async def test_a_core_that_stops_leaves_no_command_and_no_failure(make_engine: MakeEngine, tmp_path: Path) -> None:
    echoing(tmp_path)
    script = f"echo $$ > {shlex.quote(str(tmp_path / 'pid'))}.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 300"
    engine = engine_with(make_engine, tmp_path, {"address": SecretSource(command=("sh", "-c", script))})
    task = asyncio.create_task(run(engine))
    await until((tmp_path / "pid").exists, "the command started")
    await engine.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_alive(int((tmp_path / "pid").read_text())), "the command killed")


async def test_a_rotated_file_is_read_again_once_the_value_is_five_minutes_old(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    folder = echoing(tmp_path)
    now = [1000.0]
    file = tmp_path / "secret"
    config = {"address": SecretSource(file=file)}
    engine = engine_with(make_engine, tmp_path, config, SecretReader(clock=lambda: now[0]))
    seen = []
    for number, (later, text) in enumerate([(0.0, "first one"), (KEPT_S - 1, "second one"), (1.0, "third one")]):
        now[0] += later
        file.write_text(text)
        report = await run(engine, f"~{number}")
        assert "'address': 'REMOVED'" in report.full["message"]
        seen.append(json.loads((folder / "seen").read_text())[0]["address"])
    assert seen == ["first one", "first one", "third one"]
    assert KEPT_S == 300


async def test_a_failure_is_not_kept(make_engine: MakeEngine, tmp_path: Path) -> None:
    echoing(tmp_path)
    engine = engine_with(make_engine, tmp_path, {"address": SecretSource(file=tmp_path / "later")})
    assert not (await run(engine)).success
    (tmp_path / "later").write_text("open sesame")
    assert (await run(engine, "~2")).success


async def test_core_says_at_its_start_what_it_can_t_read_and_starts(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("open sesame")
    config = {name: SecretSource(file=tmp_path / name) for name in ("there", "missing")}
    with capture_logs() as logs:
        async with running_core(tmp_path, responder={"Echo_1_0": ResponderSection(config=config)}):
            pass
    (told,) = [line for line in logs if line["event"] == "secret_unreadable"]
    sentence = f'[responder."Echo_1_0".config] missing: {tmp_path}/missing can\'t be read; correct path or rights.'
    assert (told["log_level"], told["reason"]) == ("warning", sentence)


@pytest.mark.slow
async def test_a_hundred_runs_at_once_call_the_command_once(make_engine: MakeEngine, tmp_path: Path) -> None:
    echoing(tmp_path, SHELL)
    engine = engine_with(make_engine, tmp_path, {"address": printing(tmp_path, "open sesame", after_s=1)})
    reports = await asyncio.gather(*(run(engine, f"~{number}") for number in range(1, 101)))
    assert [report.message for report in reports if not report.success] == []
    assert calls(tmp_path) == 1


async def test_a_run_that_is_given_up_does_not_end_the_reading_of_others(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    echoing(tmp_path, SHELL)
    engine = engine_with(make_engine, tmp_path, {"address": printing(tmp_path, "open sesame", after_s=1)})
    given_up, other = (asyncio.create_task(run(engine, action_id)) for action_id in ("~1", "~2"))
    await until(lambda: calls(tmp_path), "the command called")
    given_up.cancel()
    assert (await other).success
    assert calls(tmp_path) == 1


async def test_a_run_cancelled_while_its_secret_is_read_is_not_started(make_engine: MakeEngine, tmp_path: Path) -> None:
    folder = echoing(tmp_path)
    engine = engine_with(make_engine, tmp_path, {"address": printing(tmp_path, "open sesame", after_s=1)})
    job = await job_for(engine, "Echoing_1")
    task = asyncio.create_task(engine.run(job, ProgressLog()))
    await until(lambda: calls(tmp_path), "the command called")
    await engine.cancel(job)
    assert (await task).message == "Cancelled"
    assert not (folder / "seen").exists()
