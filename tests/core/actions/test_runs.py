"""Runs: on each kind of object, what is stored of their reports, and the levels that count."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import (
    AlertUpdate,
    CaseUpdate,
    Kind,
)
from core.settings import ResponderSection
from tests.core.actions.every_kind import NAME, objects_of_every_kind
from tests.core.actions.harness import ANNA, BEN, LEAD, another_core, open_harness, run_input
from tests.core.core_process import POLL_TIMEOUT_S
from tests.core.scripted_engine import BLOCK_HOST, ScriptedEngine


@pytest.mark.parametrize(
    ("kind", "object_type"),
    [
        ("alert", "Alert"),
        ("case", "Case"),
        ("case_task", "Task"),
        ("case_task_log", "Log"),
        ("case_artifact", "Observable"),
    ],
)
async def test_an_action_names_the_type_of_its_object(tmp_path: Path, kind: Kind, object_type: str) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        action = await objects.run(kind)
    assert (action.object_type, action.object_id) == (object_type, objects.ids[kind])


@pytest.mark.parametrize("kind", ["case", "case_task", "case_task_log", "case_artifact"])
async def test_a_deleted_case_and_its_parts_take_no_runs_until_it_is_opened_again(tmp_path: Path, kind: Kind) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        case_id = objects.ids["case"]
        await objects.cases.update_case(LEAD, case_id, CaseUpdate(status="Deleted"))
        with pytest.raises(ResponderBotError, match=f"Case {case_id} is deleted; open it again") as refused:
            await objects.run(kind)
        assert refused.value.code == "not_found"
        assert json.loads(await objects.harness.actions.list_json(kind, objects.ids[kind]) or "[]") == []
        await objects.cases.update_case(LEAD, case_id, CaseUpdate(status="Open"))
        assert (await objects.run(kind)).status == "Success"


async def test_an_alert_in_a_deleted_case_takes_runs(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        case = await objects.alerts.create_case(LEAD, objects.ids["alert"])
        await objects.cases.update_case(LEAD, case.id, CaseUpdate(status="Deleted"))
        assert (await objects.run("alert")).status == "Success"


async def test_without_only_if_idle_two_requests_are_two_runs(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        first, second = (
            await harness.actions.start(ANNA, run_input(harness)),
            await harness.actions.start(ANNA, run_input(harness)),
        )
        runs = [await harness.engine.taken.get(), await harness.engine.taken.get()]
        for run in runs:
            run.finish(Report(True))
        await harness.ended(first.action.id)
        await harness.ended(second.action.id)
        listed = [
            action["id"] for action in json.loads(await harness.actions.list_json("alert", harness.alert_id) or "")
        ]
    assert listed == [second.action.id, first.action.id]
    assert {run.job.action_id for run in runs} == set(listed)


async def test_only_if_idle_looks_at_the_same_responder_on_the_same_object(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        harness = objects.harness
        await harness.actions.start(ANNA, run_input(harness, onlyIfIdle=True))
        other = await harness.actions.start(BEN, run_input(harness, NAME, onlyIfIdle=True))
        elsewhere = run_input(
            harness, objectType="case_task_log", objectId=objects.ids["case_task_log"], onlyIfIdle=True
        )
        assert other.new
        assert (await harness.actions.start(BEN, elsewhere)).new
        for run in [await harness.engine.taken.get() for _ in range(3)]:
            run.finish(Report(True))


async def test_a_report_has_all_keys_whatever_the_engine_reports(tmp_path: Path) -> None:
    keys = [
        "summary",
        "full",
        "success",
        "artifacts",
        "operations",
        "errorMessage",
        "input",
        "message",
        "parameters",
        "config",
    ]
    config = {"proxy", "cacerts", "check_tlp", "max_tlp", "check_pap", "max_pap", "jobTimeout"}
    async with objects_of_every_kind(tmp_path) as objects:
        started = await objects.harness.actions.start(ANNA, run_input(objects.harness))
        (await objects.harness.engine.taken.get()).finish(Report(False))
        reports = [
            json.loads((await objects.harness.ended(started.action.id)).report),
            json.loads((await objects.run("alert")).report),
            json.loads((await objects.run("alert", full={"a": 1}, summary={"taxonomies": "rubbish"})).report),
        ]
    for report in reports:
        assert list(report) == keys
        assert set(report["config"]) == config
        assert report["config"]["proxy"] == {"http": None, "https": None}
        assert report["summary"] == {"taxonomies": []}
    assert [(report["success"], report["errorMessage"]) for report in reports] == [
        (False, "The responder failed and gave no reason."),
        (True, None),
        (True, None),
    ]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"message": "Host unknown"}, "Host unknown"),
        (["a", 1], "The responder failed and said: ['a', 1]"),
        (7, "The responder failed and said: 7"),
        ("  ", "The responder failed and gave no reason."),
    ],
)
async def test_an_error_message_of_any_json_becomes_text(tmp_path: Path, error: Any, shown: str) -> None:
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await harness.engine.taken.get()).finish(Report(False, error_message=error))
        ended = await harness.ended(started.action.id)
    assert (ended.status, json.loads(ended.report)["errorMessage"]) == ("Failure", shown)


async def test_values_under_secret_keys_are_removed_from_input_config_and_parameters(tmp_path: Path) -> None:
    words = {"api_key": "s3cret", "Password": "s3cret", "smtpPwd": "s3cret", "client-secret": 53, "token": ["s3cret"]}
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness, parameters={"deep": [words], "plain": "x"}))
        run = await harness.engine.taken.get()
        run.finish(Report(True, input={"config": words, "plain": "x"}, config=words))
        ended = await harness.ended(started.action.id)
    report = json.loads(ended.report)
    removed = dict.fromkeys(words, "REMOVED")
    assert "s3cret" not in ended.report
    assert report["input"] == {"config": removed, "plain": "x"}
    added = {"user": "anna@example.org", "organisation": "soc"}  # added by core for each responder
    assert report["parameters"] == {"deep": [removed], "plain": "x", **added}
    assert {key: report["config"][key] for key in words} == removed


async def test_a_tlp_raised_before_the_last_vote_ends_the_run(tmp_path: Path) -> None:
    policy = {"BlockHost_1_0": ResponderSection(approval=1)}
    async with objects_of_every_kind(tmp_path, policies=policy) as objects:
        harness = objects.harness
        started = await harness.actions.start(ANNA, run_input(harness))
        await objects.alerts.update(LEAD, harness.alert_id, AlertUpdate(tlp=3))
        with pytest.raises(ResponderBotError, match="was raised to RED since this was asked for") as error:
            await harness.actions.decide(BEN, started.action.id, "approve")
        ended = await harness.ended(started.action.id)
        assert harness.engine.runs == []
    assert ended.status == "Failure"
    assert json.loads(ended.report)["errorMessage"] == error.value.message


async def test_a_maximum_that_was_set_since_ends_a_run_on_a_server_at_dispatch(tmp_path: Path) -> None:
    """Another core has the settings as they are now."""
    servers = [ScriptedEngine(offered=[replace(BLOCK_HOST, max_tlp=3)], local=False) for _ in range(2)]
    before, now = ({"BlockHost_1_0": ResponderSection(approval=1, max_tlp=maximum)} for maximum in (2, 1))
    async with (
        open_harness(tmp_path, engine=servers[0], policies=before) as harness,
        another_core(harness, servers[1], policies=now) as core,
    ):
        with pytest.raises(ResponderBotError, match="TLP:AMBER is above the TLP:GREEN that it may see"):
            await core.actions.start(ANNA, run_input(harness))
        started = await harness.actions.start(ANNA, run_input(harness))
        await core.actions.decide(BEN, started.action.id, "approve")
        ended = await core.ended(started.action.id)
    assert [server.runs for server in servers] == [[], []]
    assert ended.status == "Failure"
    assert "TLP:AMBER is above the TLP:GREEN" in json.loads(ended.report)["errorMessage"]


async def test_no_answer_waits_for_the_job_id_of_a_run_that_has_ended(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(fixed_job_ids=False)) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        run = await harness.engine.taken.get()
        waiting = asyncio.create_task(harness.runner.wait_for_job_id(action.number, 2 * POLL_TIMEOUT_S))
        await asyncio.sleep(0)  # it waits now
        run.finish(Report(True))
        async with asyncio.timeout(POLL_TIMEOUT_S):
            await waiting
        assert (await harness.ended(action.id)).engine_job_id == ""


async def test_an_answer_waits_a_moment_for_a_remote_job_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(fixed_job_ids=False)) as harness:
        prompt, late = [(await harness.actions.start(ANNA, run_input(harness))).action for _ in range(2)]
        runs = {run.job.action_id: run for run in [await harness.engine.taken.get(), await harness.engine.taken.get()]}
        answering = asyncio.ensure_future(harness.actions.with_job_id(prompt))
        await runs[prompt.id].begin("remote-1")
        answers = [await answering, await harness.actions.with_job_id(late)]
        await runs[late.id].begin("remote-2")
        later = await harness.action(late.id)
        for run in runs.values():
            run.finish(Report(True))
        await harness.ended(late.id)
        await harness.ended(prompt.id)
    assert (prompt.engine_job_id, [answer.engine_job_id for answer in answers]) == ("", ["remote-1", ""])
    assert (later.engine_job_id, later.status) == ("remote-2", "InProgress")


async def test_an_event_of_an_action_names_the_alert_or_case_it_belongs_to(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        on = {(await objects.run(kind)).id: kind for kind in objects.ids}
        page = await objects.harness.feed.page(0, wait_s=0)
    for event in page.events:
        if event.object_type == "Action":
            root = objects.ids["alert" if on[event.object_id] == "alert" else "case"]
            assert (event.root_id, event.user) == (root, ANNA.login)


async def test_a_responder_gets_the_object_with_its_parents_and_the_levels_that_count(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path, engine=ScriptedEngine()) as objects:
        jobs = {}
        for kind in objects.ids:
            await objects.run(kind, request={"parameters": {"reason": "r"}})
            jobs[kind] = objects.harness.engine.runs[-1].job
    assert {kind: (job.tlp, job.pap) for kind, job in jobs.items()} == {
        "alert": (2, 2),
        "case": (1, 0),
        "case_task": (1, 0),
        "case_task_log": (1, 0),
        "case_artifact": (3, 0),
    }
    assert [job.data_type for job in jobs.values()] == [f"thehive:{kind}" for kind in jobs]
    assert jobs["alert"].parameters == {"reason": "r", "user": ANNA.login, "organisation": "soc"}
    assert [artifact["data"] for artifact in jobs["alert"].data["artifacts"]] == ["198.51.100.1"]
    assert jobs["case_task"].data["case"]["id"] == objects.ids["case"]
    assert jobs["case_task_log"].data["case_task"]["id"] == objects.ids["case_task"]
    assert jobs["case_task_log"].data["case_task"]["case"]["id"] == objects.ids["case"]
    assert jobs["case_artifact"].data["case"]["id"] == objects.ids["case"]
    assert {kind: job.data["id"] for kind, job in jobs.items()} == objects.ids
