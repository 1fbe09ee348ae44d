"""Runs: on each kind of object, what is stored of their reports, and the levels that count."""

import asyncio
import json
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
from tests.core.actions.every_kind import NAME, place
from tests.core.actions.harness import ANNA, BEN, LEAD, parts
from tests.core.actions.harness import run_input as ask
from tests.core.scripted_engine import ScriptedEngine


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
async def test_an_answer_names_the_kind_of_its_object(tmp_path: Path, kind: Kind, object_type: str) -> None:
    async with place(tmp_path) as there:
        action = await there.run(kind)
    assert (action.object_type, action.object_id) == (object_type, there.ids[kind])


@pytest.mark.parametrize("kind", ["case", "case_task", "case_task_log", "case_artifact"])
async def test_what_is_in_a_deleted_case_takes_no_runs_until_it_is_opened_again(tmp_path: Path, kind: Kind) -> None:
    async with place(tmp_path) as there:
        case_id = there.ids["case"]
        await there.cases.update_case(LEAD, case_id, CaseUpdate(status="Deleted"))
        with pytest.raises(ResponderBotError, match=f"Case {case_id} is deleted; open it again") as refused:
            await there.run(kind)
        assert refused.value.code == "not_found"
        assert json.loads(there.here.actions.list_json(kind, there.ids[kind]) or "[]") == []
        await there.cases.update_case(LEAD, case_id, CaseUpdate(status="Open"))
        assert (await there.run(kind)).status == "Success"


async def test_an_alert_takes_runs_whatever_became_of_its_case(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        case = await there.alerts.create_case(LEAD, there.ids["alert"])
        await there.cases.update_case(LEAD, case.id, CaseUpdate(status="Deleted"))
        assert (await there.run("alert")).status == "Success"


async def test_without_only_if_idle_two_requests_are_two_runs(tmp_path: Path) -> None:
    async with parts(tmp_path) as here:
        first, second = await here.actions.start(ANNA, ask(here)), await here.actions.start(ANNA, ask(here))
        runs = [await here.engine.taken.get(), await here.engine.taken.get()]
        for run in runs:
            run.finish(Report(True))
        await here.ended(first.action.id)
        await here.ended(second.action.id)
        listed = [action["id"] for action in json.loads(here.actions.list_json("alert", here.alert_id) or "")]
    assert listed == [second.action.id, first.action.id]
    assert {run.job.action_id for run in runs} == set(listed)


async def test_one_responder_in_the_way_is_not_another_nor_another_object(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        here = there.here
        await here.actions.start(ANNA, ask(here, onlyIfIdle=True))
        other = await here.actions.start(BEN, ask(here, NAME, onlyIfIdle=True))
        elsewhere = ask(here, objectType="case_task_log", objectId=there.ids["case_task_log"], onlyIfIdle=True)
        assert other.new
        assert (await here.actions.start(BEN, elsewhere)).new
        for run in [await here.engine.taken.get() for _ in range(3)]:
            run.finish(Report(True))


async def test_every_key_of_a_report_is_there_whatever_the_engine_said(tmp_path: Path) -> None:
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
    async with place(tmp_path) as there:
        started = await there.here.actions.start(ANNA, ask(there.here))
        (await there.here.engine.taken.get()).finish(Report(False))
        reports = [
            json.loads((await there.here.ended(started.action.id)).report),
            json.loads((await there.run("alert")).report),
            json.loads((await there.run("alert", full={"a": 1}, summary={"taxonomies": "rubbish"})).report),
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
    ("said", "shown"),
    [
        ({"message": "Host unknown"}, "Host unknown"),
        (["a", 1], "The responder failed and said: ['a', 1]"),
        (7, "The responder failed and said: 7"),
        ("  ", "The responder failed and gave no reason."),
    ],
)
async def test_an_error_message_of_any_json_becomes_text(tmp_path: Path, said: Any, shown: str) -> None:
    async with parts(tmp_path) as here:
        started = await here.actions.start(ANNA, ask(here))
        (await here.engine.taken.get()).finish(Report(False, error_message=said))
        ended = await here.ended(started.action.id)
    assert (ended.status, json.loads(ended.report)["errorMessage"]) == ("Failure", shown)


async def test_secrets_of_input_config_and_parameters_are_removed_by_the_words_in_their_keys(tmp_path: Path) -> None:
    words = {"api_key": "s3cret", "Password": "s3cret", "smtpPwd": "s3cret", "client-secret": 53, "token": ["s3cret"]}
    async with parts(tmp_path) as here:
        started = await here.actions.start(ANNA, ask(here, parameters={"deep": [words], "plain": "x"}))
        run = await here.engine.taken.get()
        run.finish(Report(True, input={"config": words, "plain": "x"}, config=words))
        ended = await here.ended(started.action.id)
    report = json.loads(ended.report)
    removed = dict.fromkeys(words, "REMOVED")
    assert "s3cret" not in ended.report
    assert report["input"] == {"config": removed, "plain": "x"}
    added = {"user": "anna@example.org", "organisation": "soc"}  # what core tells each responder
    assert report["parameters"] == {"deep": [removed], "plain": "x", **added}
    assert {key: report["config"][key] for key in words} == removed


async def test_a_level_that_rises_before_the_last_one_agrees_ends_the_run(tmp_path: Path) -> None:
    policy = {"BlockHost_1_0": ResponderSection(approval=1)}
    async with place(tmp_path, policies=policy) as there:
        here = there.here
        started = await here.actions.start(ANNA, ask(here))
        await there.alerts.update(LEAD, here.alert_id, AlertUpdate(tlp=3))
        await here.actions.approve(BEN, started.action.id)
        ended = await here.ended(started.action.id)
        assert here.engine.runs == []
    assert ended.status == "Failure"
    assert "TLP:RED is above the TLP:AMBER" in json.loads(ended.report)["errorMessage"]


async def test_a_remote_job_s_id_is_waited_for_a_moment_and_may_come_later(tmp_path: Path) -> None:
    async with parts(tmp_path, engine=ScriptedEngine(fixed_job_ids=False)) as here:
        prompt, late = [(await here.actions.start(ANNA, ask(here))).action for _ in range(2)]
        runs = {run.job.action_id: run for run in [await here.engine.taken.get(), await here.engine.taken.get()]}
        answering = asyncio.ensure_future(here.actions.with_job_id(prompt))
        await runs[prompt.id].begin("remote-1")
        answers = [await answering, await here.actions.with_job_id(late)]
        await runs[late.id].begin("remote-2")
        later = here.action(late.id)
        for run in runs.values():
            run.finish(Report(True))
        await here.ended(late.id)
        await here.ended(prompt.id)
    assert (prompt.engine_job_id, [answer.engine_job_id for answer in answers]) == ("", ["remote-1", ""])
    assert (later.engine_job_id, later.status) == ("remote-2", "InProgress")


async def test_an_event_of_an_action_names_the_alert_or_case_it_belongs_to(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        on = {(await there.run(kind)).id: kind for kind in there.ids}
        page = await there.here.feed.page(0, wait_s=0)
    for event in page.events:
        if event.object_type == "Action":
            root = there.ids["alert" if on[event.object_id] == "alert" else "case"]
            assert (event.root_id, event.user) == (root, ANNA.login)


async def test_a_responder_gets_the_object_with_its_parents_and_the_levels_that_hold(tmp_path: Path) -> None:
    async with place(tmp_path, engine=ScriptedEngine()) as there:
        jobs = {}
        for kind in there.ids:
            await there.run(kind, asked={"parameters": {"reason": "r"}})
            jobs[kind] = there.here.engine.runs[-1].job
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
    assert jobs["case_task"].data["case"]["id"] == there.ids["case"]
    assert jobs["case_task_log"].data["case_task"]["id"] == there.ids["case_task"]
    assert jobs["case_task_log"].data["case_task"]["case"]["id"] == there.ids["case"]
    assert jobs["case_artifact"].data["case"]["id"] == there.ids["case"]
    assert {kind: job.data["id"] for kind, job in jobs.items()} == there.ids
