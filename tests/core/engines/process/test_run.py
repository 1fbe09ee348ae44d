"""A run of a responder as a process, from its job folder to its report."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Engine, Report
from core.engines.job_folder import JobFolder, RunFacts
from core.engines.process.engine import RunLimits, program_environment
from core.engines.process.processes import StartRecord
from core.engines.run_report import LIMIT_MESSAGES, make_report
from core.settings import ResponderSection
from tests.core.engines.process.conftest import (
    MakeEngine,
    NamedPipe,
    ProgressLog,
    is_alive,
    job_for,
    program_pid,
)
from tests.core.engines.process.engines import engine_in
from tests.core.stalls import longest_stall

ECHO = {"greeting": "hello", "names": ["a", "b"], "api_key": "open sesame"}


async def echoed(make_engine: MakeEngine, **config: Any) -> Report:
    engine = make_engine(config={"Echo_1_0": {**ECHO, **config}})
    return await engine.run(await job_for(engine, "Echo_1_0", user="ann@example.org"), ProgressLog())


async def test_the_input_has_its_keys_in_order_and_the_merged_configuration(make_engine: MakeEngine) -> None:
    engine = make_engine(config={"Echo_1_0": {"greeting": "hello", "proxy_http": "http://127.0.0.1:1"}})
    report = await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    assert report.full["keys"] == ["data", "dataType", "tlp", "pap", "message", "parameters", "config"]
    assert list(report.full["input"]["config"].items()) == [
        ("service", "echo"),
        ("greeting", "hello"),
        ("names", []),
        ("api_key", None),
        ("count", 3),
        ("check_tlp", False),
        ("max_tlp", 3),
        ("check_pap", False),
        ("max_pap", 3),
        ("proxy", {"http": "http://127.0.0.1:1", "https": None}),
    ]


async def test_a_maximum_of_the_settings_is_that_of_the_catalogue_and_of_the_program(make_engine: MakeEngine) -> None:
    section = ResponderSection(max_tlp=1, max_pap=2, config={"check_tlp": True})
    engine = make_engine(sections={"Echo_1_0": section})
    (echo,) = [one for one in (await engine.catalogue()).responders if one.name == "Echo_1_0"]
    assert (echo.max_tlp, echo.max_pap) == (1, 2)
    report = await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    config = report.full["input"]["config"]
    assert (config["check_tlp"], config["max_tlp"], config["max_pap"]) == (True, 1, 2)


async def test_a_program_gets_only_allowed_variables_and_no_standard_input(make_engine: MakeEngine) -> None:
    report = await echoed(make_engine)
    # LC_CTYPE is set by Python itself when it coerces the C locale
    assert set(report.full["environment"]) <= {
        *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "TMPDIR"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    }
    assert report.full["standard_input"] == ""


async def test_a_program_runs_above_its_own_folder_with_a_home_in_its_job_folder(
    make_engine: MakeEngine,
) -> None:
    report = await echoed(make_engine)
    folder = report.full["folder"]
    assert Path(folder).name == "responders"
    assert report.full["argv"][0] == f"{folder}/Echo/echo.py"
    assert report.full["argv"][1:] == [str(Path(report.full["environment"]["HOME"]).parent)]
    assert report.full["session"] is True


async def test_a_program_inherits_nothing_open_but_its_output(make_engine: MakeEngine) -> None:
    report = await echoed(make_engine)
    printed = f"{Path(report.full['environment']['HOME']).parents[1]}/printed"
    own = [name for name in report.full["open"] if not name.startswith("/proc/")]
    assert own == ["/dev/null", printed, printed]


async def test_a_program_cannot_import_packages_of_core(make_engine: MakeEngine) -> None:
    report = await echoed(make_engine)
    assert not [part for part in report.full["path"] if "site-packages" in part and ".venv" in part]
    assert str(Path(__file__).parents[4]) not in report.full["path"]


async def test_secrets_are_in_no_report(make_engine: MakeEngine) -> None:
    report = await echoed(make_engine)
    assert "open sesame" not in json.dumps([report.full, report.config, report.printed])
    assert report.printed == "the key is REMOVED\n"
    assert report.config["api_key"] == "REMOVED"
    assert report.config["jobTimeout"] == 30


async def test_the_job_folder_is_private_and_removed_by_clean_up(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine(config={"Echo_1_0": ECHO})
    await engine.run(await job_for(engine, "Echo_1_0"), ProgressLog())
    folder = tmp_path / "jobs" / engine.job_id("8257-5e")
    found = [folder, *folder.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in found} == {"0o700", "0o600"}
    await engine.clean_up("8257-5e")
    assert not folder.exists()
    await engine.clean_up("8257-5e")


async def test_it_is_an_engine(make_engine: MakeEngine) -> None:
    engine: Engine = make_engine()  # checked by mypy
    assert (engine.name, engine.capacity, engine.job_id("8257-5e")) == ("local", 4, "local-8257-5e")
    await engine.close()


async def test_running_is_reported_once(make_engine: MakeEngine) -> None:
    engine, progress_log = make_engine(), ProgressLog()
    await engine.run(await job_for(engine, "Silent_1_0"), progress_log)
    (progress,) = progress_log.progress
    assert (progress.engine_job_id, progress.running) == (engine.job_id("8257-5e"), True)


async def test_without_an_output_file_the_report_has_the_last_lines(make_engine: MakeEngine) -> None:
    engine = make_engine()
    report = await engine.run(await job_for(engine, "Silent_1_0"), ProgressLog())
    assert report.success is False
    assert report.message == (
        "The responder wrote no output/output.json (exit code 3). "
        "The last lines that it printed:\nreading the mail\nno such mailbox"
    )


NO_FULL = "The responder says success, but its `full` is not an object."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "The responder wrote an output/output.json that is not usable JSON"),
        (
            '{"success": true, "full": NaN}',
            "The responder wrote an output/output.json that is not usable JSON (NaN",
        ),
        (
            '{"success": true, "full": ' + '{"a":' * 300 + "1" + "}" * 301,
            "The responder wrote an output/output.json that",
        ),
        (
            '{"success": true, "full": {"figure": 1e999}}',
            "The responder wrote an output/output.json that is not usable JSON (1e999",
        ),
        ("[" * 100_000, "The responder wrote an output/output.json that is not usable JSON"),
        (
            '{"success": true, "full": "done"}',
            NO_FULL,
        ),
        ('{"success": true}', NO_FULL),
        ("[]", "The responder's output.json is not an object in which `success` is true or false."),
        ('{"success": "yes"}', "The responder's output.json is not an object in which `success` is true or false."),
    ],
)
def test_an_unusable_output_file_is_a_failure_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    report = report_of(tmp_path, text)
    assert report.success is False
    assert report.message.startswith(message)


def report_of(folder: Path, text: str) -> Report:
    """The report of a run whose program has left this output file."""
    output = JobFolder(folder).run / "output"
    output.mkdir(parents=True)
    (output / "output.json").write_text(text)
    return make_report(JobFolder(folder), RunFacts(1, frozenset(), (), {}), "", "")


@pytest.mark.parametrize(
    ("times", "says"),
    [(20_000_000, "output.json is longer than 4194304 bytes"), (1_300_000, "it has more than 50000 values")],
)
async def test_an_oversized_output_file_is_refused_without_blocking_core(
    make_engine: MakeEngine, times: int, says: str
) -> None:
    engine = make_engine(limits=RunLimits(file_bytes=100_000_000))
    text = '{"success": true, "full": {"rows": [BULK{}]}}'
    job = await job_for(engine, "Rubbish_1_0", text=text, bulk="{},", times=times)
    async with longest_stall() as stall:
        report = await engine.run(job, ProgressLog())
    assert not report.success
    assert says in report.message
    assert stall.seconds < 2  # parsed, the larger one holds the loop for 6 s


async def test_an_output_file_that_is_a_link_or_a_pipe_is_not_read(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for action_id, way in (("~1", {"link": "/etc/passwd"}), ("~2", {"pipe": True})):
        report = await engine.run(await job_for(engine, "Rubbish_1_0", action_id=action_id, **way), ProgressLog())
        assert report.message.startswith("The responder wrote an output/output.json that can't be read")


async def test_a_lone_surrogate_in_the_output_is_replaced(make_engine: MakeEngine) -> None:
    engine = make_engine()
    text = '{"success": true, "full": {"message": "half \\ud83d"}, "operations": [1, {"type": "?"}], "artifacts": {}}'
    report = await engine.run(await job_for(engine, "Rubbish_1_0", text=text), ProgressLog())
    assert report.message == "half ?"
    assert report.operations == (1, {"type": "?"})
    assert report.artifacts == ({},)


async def test_a_failure_comes_with_its_message_and_the_input(make_engine: MakeEngine) -> None:
    engine = make_engine()
    report = await engine.run(await job_for(engine, "Failing_1_0", error=500), ProgressLog())
    assert (report.success, report.error_message) == (False, 500)
    assert report.message == "The responder failed and said: 500"
    assert report.input is not None
    assert report.input["parameters"] == {"error": 500}


async def test_head_and_tail_of_the_printed_text_are_kept(make_engine: MakeEngine) -> None:
    engine = make_engine()
    report = await engine.run(await job_for(engine, "Noisy_1_0", bytes=300_000), ProgressLog())
    assert report.success is True
    assert 65_536 < len(report.printed) < 66_000
    assert "bytes left out" in report.printed
    assert "the head" in report.printed
    assert "the tail" in report.printed


async def test_printing_without_end_is_stopped_by_the_size_limit(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine(limits=RunLimits(file_bytes=1_000_000))
    report = await engine.run(await job_for(engine, "Noisy_1_0", bytes=5_000_000), ProgressLog())
    assert report.success is False
    assert (tmp_path / "jobs" / engine.job_id("8257-5e") / "printed").stat().st_size <= 1_000_000


async def test_a_hanging_run_is_killed_with_all_its_children(make_engine: MakeEngine, ready: NamedPipe) -> None:
    engine = make_engine(config={"Hanging_1_0": {"jobTimeout": 0.05}})
    running = asyncio.create_task(
        engine.run(await job_for(engine, "Hanging_1_0", ready=str(ready.path)), ProgressLog()),
    )
    pids = json.loads(await ready.received())
    report = await running
    assert (report.success, report.message) == (False, "Timed out after 0.05 minutes")
    assert len(pids) == 3
    assert not [pid for pid in pids if is_alive(pid)]


async def test_a_program_that_ignores_sigterm_is_killed(make_engine: MakeEngine, ready: NamedPipe) -> None:
    engine, progress_log = make_engine(grace_s=0.2), ProgressLog()
    job = await job_for(engine, "Stubborn_1_0", ready=str(ready.path))
    running = asyncio.create_task(engine.run(job, progress_log))
    assert await ready.received() == "ignoring"
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    assert not is_alive(program_pid(engine))


async def test_a_child_that_is_left_behind_is_killed_and_the_run_succeeds(make_engine: MakeEngine) -> None:
    engine = make_engine()
    report = await engine.run(await job_for(engine, "Forking_1_0"), ProgressLog())
    assert (report.success, report.message) == (True, "Forked")
    assert not is_alive(report.full["child"])


@pytest.mark.parametrize(
    ("wants", "limits", "says"),
    [
        ("memory", RunLimits(), "MemoryError"),
        ("cpu", RunLimits(cpu_s=1), "ended by SIGXCPU, its limit of processor time was reached"),
        ("output", RunLimits(file_bytes=1_000_000), "File too large"),
        ("files", RunLimits(), "Too many open files"),
        (
            *("processes", RunLimits(processes=20)),
            # The kernel doesn't hold root to a number of processes, so the supervisor does.
            LIMIT_MESSAGES["processes"] if os.getuid() == 0 else "Resource temporarily unavailable",
        ),
    ],
)
async def test_a_run_over_a_limit_fails(make_engine: MakeEngine, wants: str, limits: RunLimits, says: str) -> None:
    engine = make_engine(limits=limits)
    report = await engine.run(await job_for(engine, "Hog_1_0", wants=wants), ProgressLog())
    assert report.success is False
    assert says in report.message + report.printed


async def test_cancelling_what_does_not_run_is_a_conflict(make_engine: MakeEngine) -> None:
    engine = make_engine()
    job = await job_for(engine, "Silent_1_0")
    with pytest.raises(ResponderBotError) as never:
        await engine.cancel(job)
    await engine.run(job, ProgressLog())
    with pytest.raises(ResponderBotError) as over:
        await engine.cancel(job)
    assert (never.value.code, over.value.code) == ("conflict", "conflict")
    assert over.value.message == "This run has already ended."


@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_one_cancel_has_stopped_no_other_finds_ended(
    make_engine: MakeEngine, ready: NamedPipe, is_killed: bool
) -> None:
    engine = make_engine()
    job = await job_for(engine, "Hanging_1_0", ready=str(ready.path))
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await ready.received()
    await engine.cancel(job)
    assert (await running).message == "Cancelled"
    reporting = make_engine() if is_killed else engine
    await reporting.cancel(job)  # its report is not stored yet
    await reporting.clean_up(job.run_id)
    with pytest.raises(ResponderBotError):
        await reporting.cancel(job)


async def test_a_run_cancelled_before_its_program_starts_never_starts(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine()
    runs = tmp_path / "runs"
    job = await job_for(engine, "Slow_1_0", runs=str(runs), ready="/nowhere", go="/nowhere")
    running = asyncio.create_task(engine.run(job, ProgressLog()))
    await asyncio.sleep(0)  # one turn of the loop: the run has begun, its folder does not exist yet
    await engine.cancel(job)
    report = await running
    await engine.cancel(job)  # its report is not stored yet
    assert (report.success, report.message, runs.exists()) == (False, "Cancelled", False)


async def test_a_responder_that_was_removed_is_a_failure(make_engine: MakeEngine) -> None:
    engine = make_engine()
    job = replace(await job_for(engine, "Silent_1_0"), responder_id="gone")
    report = await engine.run(job, ProgressLog())
    assert report == Report(success=False, is_known=True, message="Silent_1_0 is no longer available here.")


async def test_two_runs_of_one_action_at_once_start_one_program(
    make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe
) -> None:
    first, second = make_engine(), make_engine()
    runs = tmp_path / "runs"
    job = await job_for(first, "Slow_1_0", runs=str(runs), ready=str(ready.path), go=str(go.path))
    both = asyncio.gather(first.run(job, ProgressLog()), second.run(replace(job, resumed=True), ProgressLog()))
    await ready.received()
    go.send()
    assert [report.message for report in await both] == ["Slow", "Slow"]
    assert runs.read_text() == "one run\n"


async def test_a_supervisor_is_reaped(make_engine: MakeEngine, tmp_path: Path, ready: NamedPipe, go: NamedPipe) -> None:
    engine, progress_log = make_engine(), ProgressLog()
    parameters: dict[str, Any] = {"runs": str(tmp_path / "runs"), "ready": str(ready.path), "go": str(go.path)}
    job = await job_for(engine, "Slow_1_0", **parameters)
    running = asyncio.create_task(engine.run(job, progress_log))
    await ready.received()
    await progress_log.first()
    record = StartRecord.read(engine._folder(job.run_id).started)
    assert record
    supervisor = Path(f"/proc/{record.supervisor}")
    assert f"PPid:\t{os.getpid()}\n" in (supervisor / "status").read_text()
    go.send()
    assert (await running).message == "Slow"
    assert not supervisor.exists()


@pytest.mark.slow
async def test_a_hundred_runs_at_once_each_run_once(make_engine: MakeEngine) -> None:
    engine = make_engine()
    jobs = [await job_for(engine, "Silent_1_0", action_id=f"~{number}") for number in range(100)]
    reports = await asyncio.gather(*(engine.run(job, ProgressLog()) for job in jobs))
    assert [report.message for report in reports if "(exit code 3)" not in report.message] == []
    records = [StartRecord.read(engine._folder(job.run_id).started) for job in jobs]
    assert len({record.pid for record in records if record}) == 100


def test_a_run_works_on_asyncios_own_loop_too(tmp_path: Path) -> None:
    async def once() -> Report:
        engine = engine_in(tmp_path)
        try:
            return await engine.run(await job_for(engine, "Forking_1_0"), ProgressLog())
        finally:
            await engine.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(once()).message == "Forked"


async def test_certificates_are_a_file_of_the_job(make_engine: MakeEngine, tmp_path: Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    report = await echoed(make_engine, cacerts=pem)
    run = Path(report.full["environment"]["HOME"]).parent
    assert report.full["environment"]["REQUESTS_CA_BUNDLE"] == f"{run}/input/cacerts"
    assert Path(tmp_path, "jobs", run, "input", "cacerts").read_text() == pem
    assert report.config["cacerts"] == pem


async def test_no_variable_of_core_leaks(make_engine: MakeEngine) -> None:
    engine = make_engine(config={"Echo_1_0": ECHO})
    await engine.catalogue()
    runnable = next(item for item in engine._catalogue.load().by_id.values() if item.responder.name == "Echo_1_0")
    outer = {"SLACK_BOT_TOKEN": "xoxb", "RESPONDER_BOT_BOT_CORE_API_KEY": "k", "PYTHONPATH": "/x", "PATH": "/bin"}
    given = program_environment(engine._folder("1-5e"), runnable.configured, runnable.interpreter, outer)
    assert set(given) == {"LANG", "HOME", "TMPDIR", "PATH"}


async def test_a_secret_in_a_proxy_address_is_not_reported(make_engine: MakeEngine) -> None:
    report = await echoed(make_engine, proxy_http="http://ann:secret@proxy.example:3128")
    assert report.config["proxy"] == {"http": "http://REMOVED@proxy.example:3128", "https": None}
