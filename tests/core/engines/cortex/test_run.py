"""A job on a remote engine, from the call to the report."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Engine, Progress, Report
from core.engines.cortex import CortexEngine, PollTiming
from tests.core.engines.cortex.conftest import JOB, QUICK, RESUMED, ProgressLog, begun
from tests.core.scripted_engine import open_actions
from tests.fake_cortex import BLOCKER, CutConnection, DelayedAnswer, FakeCortex, Reply, at_once

ASK_TIMEOUT = Reply(500, {"type": "akka.pattern.AskTimeoutException", "message": "Ask timed out"})


async def test_a_job_runs_and_its_report_is_returned(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.until("wait")
    await cortex.begin(job.id)
    await progress.running.wait()
    operations = [{"type": "AddTagToAlert", "tag": "blocked"}]
    await cortex.succeed(job.id, {"message": "blocked", "n": 1}, operations=operations)
    assert await run == Report(
        True,
        message="blocked",
        full={"message": "blocked", "n": 1},
        summary={"taxonomies": []},
        operations=tuple(operations),
    )
    assert progress == [Progress(job.id), Progress(job.id, running=True)]


async def test_the_call_carries_the_label_and_what_the_responder_needs(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.drive_job = at_once
    await engine.run(JOB, progress)
    call = await cortex.until("run")
    assert call.path == f"/api/responder/{BLOCKER['id']}/run"
    assert call.authorization == f"Bearer {cortex.api_key}"
    assert call.body == {
        "label": "~12-5e",
        "data": {"_id": "~7", "id": "~7", "title": "Port scan", "createdAt": 1},
        "dataType": "thehive:alert",
        "tlp": 2,
        "pap": 1,
        "message": "",
        "parameters": {"user": "anna@soc.local"},
    }
    assert (await cortex.until("wait")).query == {"atMost": "1seconds"}


async def test_a_job_that_ends_between_two_polls_is_reported_as_running_first(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.drive_job = at_once
    assert (await engine.run(JOB, progress)).success
    assert [one.running for one in progress] == [False, True]


async def test_a_failing_responder_is_a_report_without_secrets(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.begin(job.id)
    given = {"data": {"title": "x"}, "config": {"api_key": "s3cr3t", "jobTimeout": 30}}
    await cortex.fail(job.id, "Mail server says no", given)
    assert await run == Report(
        False,
        is_known=True,
        message="Mail server says no",
        error_message="Mail server says no",
        input={"data": {"title": "x"}, "config": {"api_key": "REMOVED", "jobTimeout": 30}},
        config={"api_key": "REMOVED", "jobTimeout": 30},
    )


async def test_a_failing_responder_leaks_no_secret_of_its_input(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.begin(job.id)
    config = {"password": "hunter22", "proxy": {"http": "http://ann:s3cr3t-proxy@p:1"}}
    basic = base64.b64encode(b"ann:hunter22").decode()
    await cortex.fail(
        job.id, f"refused hunter22, {basic}, http://ann:s3cr3t-proxy@p:1", {"config": config, "a": ["hunter22"]}
    )
    report = await run
    assert report.message.startswith("refused REMOVED, ")
    assert report.input == {
        "config": {"password": "REMOVED", "proxy": {"http": "http://REMOVED@p:1"}},
        "a": ["REMOVED"],
    }
    for word in ("hunter22", "s3cr3t", basic):
        assert word not in json.dumps(report.__dict__)


@pytest.mark.parametrize(
    ("error_message", "sentence"),
    [
        (500, "The responder failed and said: 500"),
        ({"message": "no route"}, "no route"),
        ("", "The responder failed and gave no reason."),
        (None, "The responder failed and gave no reason."),
    ],
)
async def test_an_error_message_may_be_any_json(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog, error_message: object, sentence: str
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.fail(job.id, error_message)
    report = await run
    assert (report.success, report.message, report.error_message) == (False, sentence, error_message)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"success": True, "full": [1]}, "`full` is not an object"),
        ({"success": True}, "`full` is not an object"),
        ({"success": False, "errorMessage": "it did not"}, "it did not"),
        ("Running", "has status Success but no report"),
        (None, "has status Success but no report"),
    ],
)
async def test_a_report_of_the_wrong_shape_is_a_failure_with_the_reason(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog, report: object, words: str
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.say(job.id, "Success", report)
    ended = await run
    assert not ended.success
    assert words in ended.message


async def test_operations_null_are_no_operations(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.succeed(job.id, operations=None, artifacts=None, summary=None)
    assert await run == Report(True, message="done", full={"message": "done"})


async def test_a_deleted_job_is_a_failure(cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.remove(job.id)
    assert "deleted" in (await run).message


async def test_a_job_the_engine_forgot_is_a_failure(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.begin(job.id)
    await progress.running.wait()
    cortex.forget(job.id)
    assert "no longer knows" in (await run).message


async def test_a_single_404_does_not_end_polling(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.behave("wait", Reply(404, {"type": "NotFoundError"}))
    cortex.drive_job = at_once
    assert (await engine.run(JOB, progress)).success


async def test_errors_in_between_do_not_end_polling(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.behave(
        "wait",
        ASK_TIMEOUT,
        Reply(502, raw=b"<html>bad gateway</html>"),
        Reply(520),
        Reply(429, {"type": "RateLimitExceeded"}, {"Retry-After": "3600"}),
        CutConnection(),
        CutConnection(after_bytes=10),
        Reply(raw=b"not json"),
        Reply(body={"status": "Dancing"}),
    )
    cortex.drive_job = at_once
    assert (await engine.run(JOB, progress)).success
    assert cortex.count("run") == 1


async def test_a_slow_poll_is_asked_again(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    cortex.behave("wait", DelayedAnswer(asyncio.Event()))
    cortex.drive_job = at_once
    engine = make_engine(timeout_s=2)
    assert (await engine.run(JOB, progress)).success


async def test_unusable_answers_without_end_are_a_failure(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.always("wait", Reply(raw=b"<html>log in, please</html>"))
    report = await engine.run(JOB, progress)
    assert "returned no usable report" in report.message
    assert "not usable JSON" in report.message


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_names_what_to_fix(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog, status: int
) -> None:
    cortex.always("wait", Reply(status, {"type": "AuthorizationError", "message": "no"}))
    report = await engine.run(JOB, progress)
    assert "api_key of this engine in the settings" in report.message
    assert "may still run" in report.message


async def test_a_refused_key_at_the_start_says_that_nothing_was_started(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    report = await make_engine(api_key="wrong-key-0000").run(JOB, progress)
    assert report.message == (
        "Engine 'soar' refused the API key. Put a valid one into api_key of this engine in the settings. "
        "Nothing was started."
    )
    assert (progress, cortex.jobs) == ([], {})


async def test_a_responder_that_vanished_is_a_failure(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    report = await engine.run(replace(JOB, responder_id="../gone"), progress)
    assert "no longer knows" in report.message
    assert (await cortex.until("run")).path == "/api/responder/../gone/run"


async def test_a_refused_job_shows_the_message_of_the_engine(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.behave("run", Reply(400, {"type": "BadRequest", "message": "[Attribute data is missing]"}))
    report = await engine.run(JOB, progress)
    assert report.message == (
        "Engine 'soar' refused to run Blocker_1_0 (400). [Attribute data is missing] Nothing was started."
    )


async def test_a_redirect_is_not_followed(cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog) -> None:
    cortex.behave("run", Reply(302, headers={"Location": "http://127.0.0.1:1/"}))
    assert "Put its real address into url" in (await engine.run(JOB, progress)).message


async def test_a_rate_limited_start_is_retried(cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog) -> None:
    full = Reply(429, {"type": "RateLimitExceeded", "message": "Rate limit of 1 per Day reached"}, {"Retry-After": "1"})
    cortex.behave("run", full, full)
    cortex.drive_job = at_once
    assert (await engine.run(JOB, progress)).success
    assert len(cortex.jobs) == 1


async def test_a_start_that_stays_rate_limited_is_a_failure(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.always("run", Reply(429, {"type": "RateLimitExceeded", "message": "Rate limit of 1 per Day reached"}))
    report = await engine.run(JOB, progress)
    assert report.message == (
        "Engine 'soar' accepts no more runs now, so nothing was started. Rate limit of 1 per Day reached"
    )


async def test_an_engine_that_is_down_is_a_failure_that_started_nothing(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    await cortex.stop()
    report = await engine.run(JOB, progress)
    assert report.message == (
        "Engine 'soar' can't be reached: it accepts no connection. Nothing was started; try again later."
    )


async def test_a_running_job_ends_at_cores_own_deadline(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    engine = make_engine(deadline_minutes=0.005)
    run, job = await begun(engine, cortex, progress)
    await cortex.begin(job.id)
    report = await run
    assert report.message.startswith("Timed out after 0.005 minutes. The responder may still run on engine 'soar'.")


async def test_a_restart_that_forgets_a_running_job_ends_at_the_deadline(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    run = asyncio.create_task(make_engine(deadline_minutes=0.005).run(JOB, progress))
    job = await cortex.until_job()
    await cortex.begin(job.id)
    await progress.running.wait()
    await cortex.restart()
    assert "Timed out" in (await run).message
    assert cortex.count("run") == 1


async def test_queueing_does_not_count_for_the_deadline(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    cortex.always("wait", Reply(body={"status": "Waiting", "report": "Waiting"}))
    engine = make_engine(deadline_minutes=0.001, timing=replace(QUICK, quick_poll_s=0.1))  # each pause is longer
    run = asyncio.create_task(engine.run(JOB, progress))
    await cortex.until("wait", 3)
    cortex.always("wait", None)
    await cortex.succeed((await cortex.until_job()).id)
    assert (await run).success


async def test_a_job_that_never_starts_is_given_up(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    engine = make_engine(timing=replace(QUICK, waiting_limit_s=0.05))
    report = await engine.run(JOB, progress)
    assert "had not started it after" in report.message
    assert progress == [Progress(next(iter(cortex.jobs)))]


async def test_no_other_clock_ends_a_job(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    """A proxy in between writes its own `Date`, and the job's `startDate` is by the clock of the server."""
    job = cortex.seed({"label": "~12-5e", "data": {}, "dataType": "thehive:alert"}, status="InProgress")
    job.start_ms, job.report = job.created_ms - 3_600_000, "Running"
    cortex.behave("wait", Reply(body=job.to_json(), headers={"Date": "Fri, 31 Dec 2100 23:59:59 GMT"}))
    run = asyncio.create_task(make_engine(deadline_minutes=30).run(replace(RESUMED, engine_job_id=job.id), progress))
    await cortex.until("wait", 2)
    await cortex.succeed(job.id)
    assert (await run).success


async def test_a_job_on_an_unreachable_engine_ends_at_the_deadline(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    run = asyncio.create_task(make_engine(deadline_minutes=0.02).run(JOB, progress))
    job = await cortex.until_job()
    await cortex.say(job.id, "InProgress", "Running")  # no startDate: the deadline counts from when it is seen
    await progress.running.wait()
    await cortex.stop()
    report = await run
    assert "Timed out" in report.message
    assert "The engine's last problem" in report.message


async def test_stopping_core_leaves_the_job_alone(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    run, job = await begun(engine, cortex, progress)
    await cortex.until("wait")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (job.status, cortex.count("run")) == ("Waiting", 1)


async def test_an_error_of_the_listener_is_not_swallowed(cortex: FakeCortex, engine: CortexEngine) -> None:
    async def lost_lease(progress: Progress) -> None:
        raise LookupError(progress.engine_job_id)

    with pytest.raises(LookupError):
        await engine.run(JOB, lost_lease)


async def test_a_running_job_cannot_be_cancelled(engine: CortexEngine) -> None:
    with pytest.raises(ResponderBotError, match="can't stop a responder") as caught:
        await engine.cancel(JOB)
    assert caught.value.code == "conflict"


async def test_the_engine_has_no_job_id_in_advance_and_no_capacity(make_engine: Callable[..., CortexEngine]) -> None:
    engine: Engine = make_engine()
    assert (engine.name, engine.job_id("12-5e"), engine.capacity) == ("soar", "", None)
    await engine.clean_up("12-5e")
    await engine.clean_up_ended(open_actions("~12"))


def test_polls_are_long_by_default() -> None:
    assert (PollTiming().waiting_poll_s, PollTiming().running_poll_s) == (2, 30)
