"""The life of an action, from the request to its end."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.actions.approvals import Choice
from core.authorization import COMMAND_LINE
from core.common.errors import ResponderBotError
from core.engines.base import Job, Report
from core.hosts import LEASE_MS
from core.reports import operations
from core.settings import ResponderSection
from tests.core.actions.harness import (
    ANNA,
    BEN,
    LEAD,
    another_core,
    ended_with,
    next_run,
    open_harness,
    run_input,
    started_run,
)
from tests.core.scripted_engine import ScriptedEngine


async def test_an_action_goes_from_waiting_to_in_progress_to_success(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await harness.engine.taken.get()
        await run.begin()
        running = await harness.action(started.action.id)
        run.finish(Report(True, full={"message": "Host is cut off"}))
        ended = await harness.ended(started.action.id)
        page = await harness.feed.page(0, wait_s=0)
    assert (started.action.status, started.action.operations, started.action.report) == ("Waiting", "[]", "{}")
    assert started.action.end_date is None
    assert (running.status, running.engine_job_id) == ("InProgress", "job-1")
    assert (ended.status, ended.start_date, ended.created_by) == (
        "Success",
        started.action.start_date,
        "anna@example.org",
    )
    report = json.loads(ended.report)
    assert (report["success"], report["message"]) == (True, "Host is cut off")
    assert [event.type for event in page.events if event.object_id == ended.id] == [
        "action.created",
        "action.updated",
        "action.ended",
    ]


async def test_operations_are_applied_one_by_one_and_recorded_with_their_outcome(tmp_path: Path) -> None:
    operations = (
        {"type": "AddTagToAlert", "tag": "blocked"},
        {"type": "AddTagToCase", "tag": "x"},
        {"type": "LaunchRocket"},
        "rubbish",
        {"type": "MarkAlertAsRead"},
    )
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await harness.engine.taken.get()
        run.finish(Report(True, operations=operations))
        ended = await harness.ended(started.action.id)
        target = json.loads(await harness.alert_json())
    shown = [
        (operation["type"], operation["status"], operation["message"]) for operation in json.loads(ended.operations)
    ]
    assert shown == [
        ("AddTagToAlert", "Success", ""),
        ("AddTagToCase", "Failure", "Unable to apply action AddTagToCase without case"),
        ("LaunchRocket", "Failure", "Unknown operation LaunchRocket; nothing was done."),
        ("", "Failure", "This is not an operation: it has no type."),
        ("MarkAlertAsRead", "Success", ""),
    ]
    assert (target["tags"], target["status"]) == (["blocked"], "Ignored")


async def test_a_repeated_key_starts_nothing_and_refuses_another_body(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        many = await asyncio.gather(
            *(harness.actions.start(ANNA, run_input(harness), key="k", body="b") for _ in range(64))
        )
        with pytest.raises(ResponderBotError) as caught:
            await harness.actions.start(ANNA, run_input(harness), key="k", body="other")
        theirs = await harness.actions.start(BEN, run_input(harness), key="k", body="b")
        harness.clock.now_ms += 24 * 3_600_000 + 1
        later = await harness.actions.start(ANNA, run_input(harness), key="k", body="other")
        again = await harness.actions.start(ANNA, run_input(harness), key="k", body="other")
    assert len({started.action.id for started in many}) == 1
    assert [started.new for started in many].count(True) == 1
    assert caught.value.code == "key_reused"
    assert theirs.new
    assert later.new
    assert (again.action.id, again.new) == (later.action.id, False)


async def test_a_run_takes_three_commits_or_four_if_it_waits_for_a_slot(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        before = harness.database.commits
        first, run = await started_run(harness)
        run.finish(Report(True))
        await harness.ended(first.id)
        assert harness.database.commits - before == 3
        second, run = await started_run(harness)
        before = harness.database.commits
        third = (await harness.actions.start(ANNA, run_input(harness))).action
        assert harness.database.commits - before == 1
        run.finish(Report(True))
        await harness.ended(second.id)
        run = await next_run(harness.engine)
        await run.begin()
        run.finish(Report(True))
        await harness.ended(third.id)
        assert harness.database.commits - before == 1 + 4


async def test_refused_and_repeated_requests_take_no_slot(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=3)) as harness:
        request = run_input(harness, onlyIfIdle=True)
        await asyncio.gather(*(harness.actions.start(ANNA, request) for _ in range(8)), return_exceptions=True)
        repeated = await asyncio.gather(
            *(harness.actions.start(BEN, run_input(harness), key="k", body="b") for _ in range(8))
        )
        assert [started.new for started in repeated].count(True) == 1
        started = [await harness.actions.start(ANNA, run_input(harness)) for _ in range(2)]
        for _ in range(3):
            run = await next_run(harness.engine)
        assert run.job.action_id == started[0].action.id
        assert harness.engine.taken.empty()
        run.finish(Report(True))
        assert (await next_run(harness.engine)).job.action_id == started[1].action.id


async def test_an_engine_that_names_its_jobs_is_called_after_a_commit_of_its_own(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1, fixed_job_ids=False)) as harness:
        before = harness.database.commits
        await harness.actions.start(ANNA, run_input(harness))
        await next_run(harness.engine)
        assert harness.database.commits - before == 2


@pytest.mark.parametrize(
    ("alert", "changes", "code", "says"),
    [
        ({"tlp": 3}, {}, "bad_request", "TLP:RED is above the TLP:AMBER"),
        ({"pap": 3}, {}, "bad_request", "PAP:RED"),
        ({}, {"responderId": "Nothing_1_0"}, "not_found", "Responder Nothing_1_0 not found"),
        ({}, {"engineId": "moon"}, "not_found", "Engine moon not found"),
        ({}, {"objectId": "~999"}, "not_found", "Alert not found"),
        ({}, {"objectId": "x"}, "not_found", "Alert not found"),
        ({}, {"objectType": "case_task_log"}, "log_not_found", "Log not found"),
    ],
)
async def test_a_run_that_is_not_possible_is_refused_with_the_reason(
    tmp_path: Path, alert: dict[str, Any], changes: dict[str, Any], code: str, says: str
) -> None:
    async with open_harness(tmp_path, **alert) as harness:
        with pytest.raises(ResponderBotError, match=says) as caught:
            await harness.actions.start(ANNA, run_input(harness, **changes))
        assert harness.engine.runs == []
    assert caught.value.code == code


async def test_an_action_that_waits_for_a_slot_can_be_cancelled(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        first = await harness.actions.start(ANNA, run_input(harness))
        run = await harness.engine.taken.get()
        second = await harness.actions.start(ANNA, run_input(harness))
        with pytest.raises(ResponderBotError, match="or an administrator may cancel"):
            await harness.actions.cancel(BEN, second.action.id)
        await harness.actions.cancel(LEAD, second.action.id)
        run.finish(Report(True))
        await harness.ended(first.action.id)
        cancelled = await harness.action(second.action.id)
        with pytest.raises(ResponderBotError, match="has ended") as caught:
            await harness.actions.cancel(ANNA, second.action.id)
    assert cancelled.status == "Deleted"
    assert caught.value.code == "conflict"
    assert len(harness.engine.runs) == 1


async def test_a_missing_right_is_reported_before_the_state_of_the_action(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=TWO_PEOPLE) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        await harness.actions.decide(BEN, started.action.id, "deny")
        for refused in (
            harness.actions.cancel(BEN, started.action.id),
            harness.actions.decide(ANNA, started.action.id, "approve"),
        ):
            with pytest.raises(ResponderBotError) as caught:
                await refused
            assert caught.value.code == "forbidden"


async def test_a_running_action_is_stopped_by_its_engine(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        await (await harness.engine.taken.get()).begin()
        await harness.actions.cancel(ANNA, started.action.id)
        ended = await harness.ended(started.action.id)
    assert ended.status == "Failure"
    assert json.loads(ended.report)["errorMessage"] == "Cancelled by anna@example.org"


async def test_a_cancel_that_the_engine_refuses_changes_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(stoppable=False)) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await harness.engine.taken.get()
        await run.begin()
        with pytest.raises(ResponderBotError, match="can't stop"):
            await harness.actions.cancel(ANNA, started.action.id)
        run.finish(Report(False, message="It broke"))
        ended = await harness.ended(started.action.id)
    assert json.loads(ended.report)["errorMessage"] == "It broke"


@dataclass
class OverBeforeTheAnswer(ScriptedEngine):
    """An engine that refuses a cancel once another one has ended the run."""

    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def clean_up(self, run_id: str) -> None:
        self.is_over.set()

    async def cancel(self, job: Job) -> None:
        await super().cancel(job)
        await self.is_over.wait()
        raise ResponderBotError("conflict", "This run has already ended.")


async def test_a_cancel_that_is_refused_after_the_end_is_not_withdrawn(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=OverBeforeTheAnswer()) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        await (await harness.engine.taken.get()).begin()
        cancelling = asyncio.create_task(harness.actions.cancel(ANNA, started.action.id))
        ended = await harness.ended(started.action.id)
        with pytest.raises(ResponderBotError, match="already ended"):
            await cancelling
        rows = await harness.database.read(lambda reads: reads.rows("SELECT what FROM audit"))
    assert json.loads(ended.report)["errorMessage"] == "Cancelled by anna@example.org"
    assert "run.cancel_withdrawn" not in [row["what"] for row in rows]


@dataclass
class RefusesTheFirst(ScriptedEngine):
    """An engine that refuses the first cancel of a run, when it may answer, and accepts the others."""

    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    has_accepted: asyncio.Event = field(default_factory=asyncio.Event)

    async def cancel(self, job: Job) -> None:
        if self.is_asked.is_set():
            self.has_accepted.set()
            return
        self.is_asked.set()
        await self.may_answer.wait()
        raise ResponderBotError("conflict", "This engine didn't start this run, so it can't stop it.")


async def test_of_two_cancels_at_once_the_end_names_who_made_the_one_that_was_accepted(tmp_path: Path) -> None:
    engine = RefusesTheFirst()
    async with open_harness(tmp_path, engine=engine) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await engine.taken.get()
        refused = asyncio.create_task(harness.actions.cancel(ANNA, started.action.id))
        await engine.is_asked.wait()
        accepted = asyncio.create_task(harness.actions.cancel(LEAD, started.action.id))
        for _ in range(20):  # the second gets as far as it can while the first has no answer
            await harness.database.transaction(lambda tx: None)
        engine.may_answer.set()
        with pytest.raises(ResponderBotError, match="didn't start"):
            await refused
        await engine.has_accepted.wait()
        run.finish(Report(False, message="Cancelled"))
        await accepted
        ended = await harness.ended(started.action.id)
    assert (ended.outcome, json.loads(ended.report)["errorMessage"]) == ("stopped", "Cancelled by lead@example.org")


TWO_PEOPLE = {"BlockHost_1_0": ResponderSection(approval=2, approval_expires_minutes=10)}


async def test_a_damaged_action_does_not_keep_others_from_expiring(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=TWO_PEOPLE) as harness:
        damaged, expired = [await harness.actions.start(ANNA, run_input(harness)) for _ in range(2)]
        await harness.database.transaction(
            lambda tx: tx.run("UPDATE action SET doc = '{' WHERE id = :id", {"id": int(damaged.action.id[1:])})
        )
        harness.clock.now_ms += 10 * 60_000
        await harness.due.look()
        assert (await harness.action(expired.action.id)).outcome == "expired"


async def test_a_large_report_is_cut_in_lists_and_whole_in_the_action(tmp_path: Path) -> None:
    async with open_harness(tmp_path, report_limit_bytes=2048) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await harness.engine.taken.get()).finish(Report(True, full={"text": "x" * 5000}))
        whole = await harness.ended(started.action.id)
        listed = json.loads(await harness.actions.list_json("alert", harness.alert_id) or "")[0]
    assert json.loads(whole.report)["full"] == {"text": "x" * 5000}
    assert json.loads(listed["report"])["full"]["truncated"] is True
    assert len(listed["report"]) <= 2048


async def test_operations_over_the_limit_are_reported_in_one_entry(tmp_path: Path) -> None:
    many = [{"type": "AddTagToAlert", "tag": f"t{number}"} for number in range(30_000)]
    long = [{"type": "AddTagToAlert", "tag": f"{number}" + "x" * 3000} for number in range(10)]
    limits = operations.OperationLimits(count=250, bytes=20_000)
    async with open_harness(tmp_path, operation_limits=limits) as harness:
        ended = [await ended_with(harness, report) for report in (many, long)]
        tags = json.loads(await harness.alert_json())["tags"]
    first, second = (json.loads(action.operations) for action in ended)
    assert ([entry["status"] for entry in first], len(tags)) == (["Success"] * 250 + ["Failure"], 256)
    assert first[-1]["message"].startswith("29750 more operations were not applied: a run may ask for at most 250")
    assert [entry["status"] for entry in second] == [*["Success"] * 6, "Failure"]
    assert second[-1]["message"].startswith("4 more")


async def test_a_slice_of_operations_saves_an_object_once_with_one_event(tmp_path: Path) -> None:
    numbers = range(3 * operations.SLICE_SIZE // 2)
    many = [
        operation
        for number in numbers
        for operation in (
            {"type": "AddTagToAlert", "tag": f"t{number}"},
            {"type": "AddArtifactToAlert", "dataType": "other", "data": f"a{number}"},
        )
    ]
    async with open_harness(tmp_path) as harness:
        action = await ended_with(harness, many)
        page = await harness.feed.page(0, wait_s=0)
        alert = json.loads(await harness.alert_json())
    assert alert["tags"] == [f"t{number}" for number in numbers]
    assert [artifact["data"] for artifact in alert["artifacts"]] == [f"a{number}" for number in numbers]
    assert [event.type for event in page.events if event.at][-4:] == [*["alert.updated"] * 3, "action.ended"]
    assert {entry["status"] for entry in json.loads(action.operations)} == {"Success"}


async def test_other_writers_come_in_between_two_slices_of_operations(tmp_path: Path) -> None:
    many = [{"type": "AddTagToAlert", "tag": f"t{number}"} for number in range(10 * operations.SLICE_SIZE)]
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await harness.engine.taken.get()).finish(Report(True, operations=tuple(many)))
        seen = set()
        while (await harness.action(started.action.id)).end_date is None:
            await harness.database.transaction(lambda tx: None)
            seen.add(len(json.loads(await harness.alert_json())["tags"]))
    assert len(seen) > 2


async def test_the_next_core_continues_after_the_last_stored_slice_without_the_engine(tmp_path: Path) -> None:
    """The first core loses its lease between two slices; the second applies the others without calling the engine."""
    many = [{"type": "AddTagToAlert", "tag": f"t{number}"} for number in range(9 * operations.SLICE_SIZE)]
    many += [{"type": "CreateTask", "title": "not here"}, *many[:1]]
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        run = await harness.engine.taken.get()
        number = int(started.action.id[1:])
        run.finish(Report(True, full={"message": "of the first"}, operations=tuple(many)))
        while not await harness.lifecycle.has_stored_report(number):
            await harness.database.transaction(lambda tx: None)
        await harness.runner.close()  # between two slices
        half = json.loads(await harness.alert_json())["tags"]
        engine = ScriptedEngine()
        harness.clock.now_ms += LEASE_MS
        async with another_core(harness, engine):
            ended = await harness.ended(started.action.id)
        tags = json.loads(await harness.alert_json())["tags"]
    applied = json.loads(ended.operations)
    assert engine.runs == []
    assert 0 < len(half) < len(tags)
    assert tags == [f"t{number}" for number in range(9 * operations.SLICE_SIZE)]
    assert [entry["status"] for entry in applied] == ["Success"] * 9 * operations.SLICE_SIZE + ["Failure", "Success"]
    assert json.loads(ended.report)["message"] == "of the first"
    assert json.loads(ended.report)["operations"] == applied


async def test_the_report_limit_covers_operations_in_lists(tmp_path: Path) -> None:
    many = [{"type": "Nonsense", "text": "ü" * 90} for number in range(200)]
    async with open_harness(tmp_path, report_limit_bytes=4096) as harness:
        whole = await ended_with(harness, many)
        (listed,) = json.loads(await harness.actions.list_json("alert", harness.alert_id) or "")
    shown = json.loads(listed["operations"])
    assert len((listed["operations"] + listed["report"]).encode()) <= 4096
    assert json.loads(listed["report"])["success"] is True
    assert (
        shown[-1]["message"] == f"{200 - len(shown) + 1} more are left out of this list; the action itself shows them."
    )
    assert shown[:-1] == json.loads(whole.operations)[: len(shown) - 1] != []
    assert len(json.loads(whole.operations)) == len(json.loads(whole.report)["operations"]) == 200


async def test_a_vote_is_refused_if_the_voter_lost_their_rights_after_authentication(tmp_path: Path) -> None:
    policies = {"BlockHost_1_0": ResponderSection(approval=1)}
    async with open_harness(tmp_path, policies=policies) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.people.disable(COMMAND_LINE, "ben")
        choices: tuple[Choice, ...] = ("approve", "deny")
        for choice in choices:
            with pytest.raises(ResponderBotError, match="You have no right to decide on runs") as caught:
                await harness.actions.decide(BEN, action.id, choice)
            assert caught.value.code == "forbidden"
        waiting = await harness.action(action.id)
        await harness.actions.decide(LEAD, action.id, "approve")
        run = await harness.engine.taken.get()
        run.finish(Report(True))
        ended = await harness.ended(action.id)
    assert waiting.status == "Waiting"
    assert waiting.approval is not None
    assert waiting.approval.approved_by == []
    assert (ended.status, len(harness.engine.runs)) == ("Success", 1)


async def test_an_accepted_action_is_not_started_once_its_requester_lost_their_rights(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        await harness.actions.start(LEAD, run_input(harness))
        run = await harness.engine.taken.get()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.people.set_profile("anna", "read-only")
        run.finish(Report(True))
        ended = await harness.ended(action.id)
    assert (ended.status, len(harness.engine.runs)) == ("Failure", 1)
    assert json.loads(ended.report)["errorMessage"] == (
        "anna@example.org asked for this and may no longer run responders, so it did not run;"
        " run it yourself if it is still needed."
    )


async def test_a_secret_parameter_is_removed_from_report_artifacts_and_operations(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(
            ANNA, run_input(harness, parameters={"password": "hunter2222", "reason": "noise"})
        )
        run = await harness.engine.taken.get()
        echo = {"message": "Used hunter2222", "hunter2222": ["hunter2222"]}
        asked = ({"type": "AddTagToAlert", "tag": "hunter2222"}, "hunter2222")
        run.finish(Report(True, config=echo, full=echo, summary=echo, artifacts=(echo,), operations=asked, input=echo))
        ended = await harness.ended(started.action.id)
        assert "hunter2222" not in await harness.actions.get_json(started.action.id)
        assert "hunter2222" not in await harness.alert_json()
    assert run.job.parameters["password"] == "hunter2222"
    report = json.loads(ended.report)
    assert report["message"] == "Used REMOVED"
    own = {"user": "anna@example.org", "organisation": "soc"}
    assert report["parameters"] == {"password": "REMOVED", "reason": "noise", **own}


async def test_operations_on_a_full_object_fail_and_the_run_ends(tmp_path: Path) -> None:
    tags = [{"type": "AddTagToAlert", "tag": f"t{number}"} for number in range(2 * operations.SLICE_SIZE)]
    fields = [
        {"type": "AddCustomFields", "name": f"f{number}", "tpe": "string", "value": "v"} for number in range(2_000)
    ]
    limits = operations.OperationLimits(count=3_000)
    async with open_harness(tmp_path, tags=[f"x{number}" for number in range(950)], operation_limits=limits) as harness:
        ended = await ended_with(harness, [*tags, *fields])
        alert = json.loads(await harness.alert_json())
    applied = json.loads(ended.operations)
    assert [entry["status"] for entry in applied[: len(tags)]] == ["Success"] * 50 + ["Failure"] * 150
    assert "would have 1001 tags; at most 1000 are kept" in applied[50]["message"]
    done = [entry["name"] for entry in applied[len(tags) :] if entry["status"] == "Success"]
    assert (len(alert["tags"]), list(alert["customFields"])) == (1000, done)
    assert 0 < len(done) < 1_500
