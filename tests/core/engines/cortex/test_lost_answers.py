"""After a lost answer the job is searched for, and never started twice."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from core.engines.base import Progress
from core.engines.cortex import CortexEngine
from tests.core.engines.cortex.conftest import JOB, RESUMED, ProgressLog
from tests.fake_cortex import CutConnection, DelayedAnswer, FakeCortex, Fault, Reply, at_once

UNKNOWN = "It is not known whether Blocker_1_0 ran on engine 'soar'"


@pytest.mark.parametrize(
    "fault",
    [CutConnection(done=True), CutConnection(after_bytes=20, done=True), DelayedAnswer(asyncio.Event(), done=True)],
)
async def test_a_job_whose_answer_was_lost_is_found_and_followed(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog, fault: Fault
) -> None:
    cortex.behave("run", fault)
    cortex.drive_job = at_once
    report = await make_engine(timeout_s=2).run(JOB, progress)
    assert report.success
    (job,) = cortex.jobs.values()
    assert progress == [Progress(job.id), Progress(job.id, running=True)]
    call = await cortex.until("search_jobs")
    assert call.body["query"] == {"_field": "label", "_value": "~12-5e"}


async def test_a_job_that_is_not_in_the_index_yet_is_looked_for_again(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.behave("run", CutConnection(done=True))
    cortex.behave(
        "search_jobs", Reply(body=[]), Reply(503), CutConnection(), Reply(raw=b"{"), Reply(429), Reply(body=[])
    )
    cortex.drive_job = at_once
    assert (await engine.run(JOB, progress)).success
    assert cortex.count("run") == 1


@pytest.mark.parametrize(
    "fault", [CutConnection(), Reply(500, {"type": "CreateError"}), Reply(504), Reply(200, ["no job"]), Reply(raw=b"")]
)
async def test_a_job_that_is_not_found_is_never_started_again(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog, fault: Fault
) -> None:
    cortex.behave("run", fault)
    report = await engine.run(JOB, progress)
    assert report.message.startswith(UNKNOWN)
    assert (cortex.count("run"), cortex.count("search_jobs"), progress) == (1, 3, [])


async def test_a_search_that_is_not_allowed_says_so(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.behave("run", CutConnection())
    cortex.behave("search_jobs", Reply(403, {"type": "AuthorizationError"}))
    report = await engine.run(JOB, progress)
    assert report.message.startswith(UNKNOWN)
    assert "api_key" in report.message


async def test_whether_it_ran_stays_unknown_if_the_engine_never_comes_back(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], progress: ProgressLog
) -> None:
    cortex.behave("run", CutConnection())
    cortex.always("search_jobs", CutConnection())
    report = await make_engine(deadline_minutes=0.001).run(JOB, progress)
    assert report.message.startswith(UNKNOWN)


async def test_a_resumed_job_with_its_id_is_followed(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    job = cortex.seed({"label": "~12-5e", "data": {}, "dataType": "thehive:alert"})
    await cortex.succeed(job.id)
    assert (await engine.run(replace(RESUMED, engine_job_id=job.id), progress)).success
    assert (cortex.count("run"), cortex.count("search_jobs")) == (0, 0)
    assert progress == [Progress(job.id, running=True)]


async def test_a_resumed_job_without_its_id_is_found_by_its_label(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.seed({"label": "~12-6f", "data": dict(JOB.data), "dataType": "thehive:alert"})
    job = cortex.seed({"label": "~12-5e", "data": dict(JOB.data), "dataType": "thehive:alert"})
    await cortex.succeed(job.id)
    assert (await engine.run(RESUMED, progress)).success
    assert (cortex.count("run"), progress[0]) == (0, Progress(job.id))


async def test_a_resumed_job_that_is_not_found_is_not_started(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    report = await engine.run(RESUMED, progress)
    assert report.message.startswith(UNKNOWN)
    assert cortex.count("run") == 0


async def test_a_job_of_another_core_with_the_same_label_is_ignored(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.seed({"label": "~12-5e", "data": {"_id": "~7", "createdAt": 999}, "dataType": "thehive:alert"})
    cortex.seed({"label": "~12-5e", "data": dict(JOB.data), "dataType": "x"}, {"id": "other", "name": "Other_1_0"})
    assert (await engine.run(RESUMED, progress)).message.startswith(UNKNOWN)


async def test_jobs_with_another_label_are_ignored_if_the_server_ignores_the_query(
    cortex: FakeCortex, engine: CortexEngine, progress: ProgressLog
) -> None:
    cortex.always("search_jobs", Reply(body=[{"id": "x", "label": "~99"}, {"id": "y"}, 3, None]))
    assert (await engine.run(RESUMED, progress)).message.startswith(UNKNOWN)
