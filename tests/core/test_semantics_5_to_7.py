"""`semantics.md 5` to `7`, rule by rule, where no other test holds it: actions, operations, what a responder gets."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import (
    Action,
    AlertUpdate,
    ArtifactsInput,
    CaseInput,
    CaseTaskInput,
    CaseUpdate,
    Kind,
    LogInput,
    RunInput,
)
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Parts, parts
from tests.core.actions.harness import run_input as ask
from tests.core.running import RunningCore, running_core
from tests.core.scripted_engine import ScriptedEngine

ENGINE = "/api/connector/engine"
NAME = "Notify_2_1"


@dataclass
class Place:
    """A store with one object of each kind, and the parts that run responders on them."""

    here: Parts
    alerts: Alerts
    cases: Cases
    ids: dict[Kind, str]

    async def run(self, kind: Kind, *operations: Any, **more: Any) -> Action:
        """An action on the object of that kind, ended with these operations."""
        asked = RunInput.model_validate(
            {"responderId": NAME, "objectType": kind, "objectId": self.ids[kind], **more.pop("asked", {})}
        )
        started = await self.here.actions.start(ANNA, asked)
        run = await self.here.engine.taken.get()
        run.finish(Report(True, operations=operations, **more))
        return await self.here.ended(started.action.id)

    async def outcomes(self, kind: Kind, *operations: Any) -> list[tuple[str, str, str]]:
        """Type, status and message of each operation of a run."""
        recorded = json.loads((await self.run(kind, *operations)).operations)
        return [(operation["type"], operation["status"], operation["message"]) for operation in recorded]


@asynccontextmanager
async def place(tmp_path: Path, **options: Any) -> AsyncIterator[Place]:
    artifacts = [{"dataType": "ip", "data": "198.51.100.1"}]
    async with parts(tmp_path, artifacts=artifacts, **options) as here:
        database: Database = here.database
        cases = Cases(database, here.clock)
        case = await cases.create(LEAD, CaseInput(title="c", description="d", tlp=1, pap=0))
        task = await cases.add_task(LEAD, case.id, CaseTaskInput(title="t"))
        log = await cases.add_log(LEAD, task.id, LogInput(message="m"))
        asked = ArtifactsInput(data_type="ip", data=["192.0.2.1"], tlp=3)
        (artifact,) = await cases.add_artifacts(LEAD, case.id, asked)
        ids: dict[Kind, str] = {
            "alert": here.alert_id,
            "case": case.id,
            "case_task": task.id,
            "case_task_log": log.id,
            "case_artifact": artifact.id,
        }
        yield Place(here, Alerts(database, here.clock, "soc"), cases, ids)


# --- 5: actions -----------------------------------------------------------------------------------------------------


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


# --- 5: on the wire -------------------------------------------------------------------------------------------------

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
POLICY = {CLOSE: ResponderSection(approval=1)}


@dataclass
class Asked:
    """An action that waits for approval, and its alert."""

    core: RunningCore
    alert: str
    action: dict[str, Any]

    async def send(self, method: str, path: str = "", profile: Any = "org-admin", **options: Any) -> tuple[int, Any]:
        answer = await self.core.send(method, f"{ENGINE}/action/{self.action['id']}{path}", profile=profile, **options)
        return answer.status_code, answer.json()


@asynccontextmanager
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    async with running_core(tmp_path, responder=POLICY) as core:
        body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        alert = (await core.send("POST", "/api/alert", body)).json()["id"]
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert}
        started = await core.send("POST", f"{ENGINE}/action", run, profile="analyst")
        assert started.status_code == 201
        yield Asked(core, alert, started.json())


async def test_who_may_not_decide_is_403_and_what_is_no_longer_open_409(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        await here.core.key("analyst", "second")
        other = {"Authorization": f"Bearer {await here.core.key('analyst', 'second')}"}
        requester = [(await here.send("POST", path, "analyst"))[0] for path in ("/approve", "/deny")]
        reader = [(await here.send("POST", path, "read-only"))[0] for path in ("/approve", "/deny")]
        cancelled_by_another = await here.send("DELETE", profile=None, headers=other)
        denied = await here.send("POST", "/deny", body={"message": "not now"})
        late = [await here.send("POST", path) for path in ("/approve", "/deny")]
        gone = await here.send("DELETE")
    assert here.action["approval"] | {"expiresAt": 0} == {"needed": 1, "approvedBy": [], "expiresAt": 0}
    assert (requester, reader) == ([403, 403], [403, 403])
    assert cancelled_by_another[0] == 403
    assert (denied[0], denied[1]["status"]) == (200, "Failure")
    assert json.loads(denied[1]["report"])["message"] == "Denied by org-admin@responder-bot.local: not now"
    assert [(status, body["type"]) for status, body in (*late, gone)] == [(409, "ConflictError")] * 3


async def test_an_agreed_run_shows_who_agreed_and_keeps_its_start(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        status, agreed = await here.send("POST", "/approve")
        ended = agreed
        while "endDate" not in ended:
            ended = (await here.send("GET", "?wait=20"))[1]
    assert (status, agreed["approval"]["approvedBy"]) == (200, ["org-admin@responder-bot.local"])
    assert (ended["status"], ended["startDate"]) == ("Success", here.action["startDate"])
    final = ("engineId", "responderId", "responderName", "responderDefinition", "createdBy", "createdAt")
    assert [ended[key] for key in final] == [here.action[key] for key in final]


async def test_what_waits_is_cancelled_by_its_owner_and_never_runs(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        status, cancelled = await here.send("DELETE", profile="analyst")
        unknown = await here.core.send("DELETE", f"{ENGINE}/action/~999")
    assert (status, cancelled["status"]) == (200, "Deleted")
    assert "endDate" in cancelled
    assert (unknown.status_code, unknown.json()["message"]) == (404, "Action not found")


async def test_a_wait_is_a_number_of_seconds(tmp_path: Path) -> None:
    waits = {"0": 200, "0.01": 200, "-1": 400, "x": 400, "": 400, "1e9": 400, "nan": 400}
    async with asked(tmp_path) as here:
        for wait, status in waits.items():
            assert (await here.send("GET", f"?wait={wait}"))[0] == status, wait
            assert (await here.core.send("GET", f"/api/event?wait={wait}")).status_code == status, wait


async def test_a_wait_ends_with_the_next_change(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        headers = {"Authorization": f"Bearer {await here.core.key('analyst')}"}
        path = f"{here.core.url}{ENGINE}/action/{here.action['id']}?wait=99999"
        waiting = asyncio.ensure_future(here.core.http.get(path, headers=headers))
        await here.send("POST", "/deny")
        answer = await waiting
    assert answer.json()["status"] == "Failure"


@pytest.mark.parametrize("word", ["engine", "cortex"])
async def test_both_listings_answer_alike_newest_first(tmp_path: Path, word: str) -> None:
    async with asked(tmp_path) as here:
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": here.alert}
        second = (await here.core.send("POST", f"{ENGINE}/action", run)).json()
        base = f"/api/connector/{word}/action"
        long = (await here.core.send("GET", f"{base}/responder/alert/{here.alert}")).json()
        short = (await here.core.send("GET", f"{base}/alert/{here.alert}")).json()
    assert [action["id"] for action in long] == [second["id"], here.action["id"]]
    assert short == long
    assert long[0][f"{word}Id"] == "local"


async def test_a_key_counts_for_its_user_and_for_decoded_bodies(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        sent = {"Idempotency-Key": "k"}
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": here.alert, "engineId": "local"}
        first = await here.core.send("POST", f"{ENGINE}/action", run, profile="analyst", headers=sent)
        reordered = json.dumps(dict(reversed(run.items())), indent=2).encode()
        again = await here.core.send("POST", f"{ENGINE}/action", profile="analyst", headers=sent, content=reordered)
        renamed = json.dumps(run).replace("engineId", "cortexId").encode()
        alias = await here.core.send(
            "POST", "/api/connector/cortex/action", profile="analyst", headers=sent, content=renamed
        )
        other = await here.core.send("POST", f"{ENGINE}/action", {**run, "x": 1}, profile="analyst", headers=sent)
        theirs = await here.core.send("POST", f"{ENGINE}/action", run, headers=sent)
        for_her = {**sent, "X-On-Behalf-Of": "analyst"}
        through = await here.core.send("POST", f"{ENGINE}/action", run, profile="service", headers=for_her)
    same = (first, again, alias, through)
    assert [answer.status_code for answer in same] == [201, 200, 200, 200]
    assert len({answer.json()["id"] for answer in same}) == 1
    assert (other.status_code, theirs.status_code) == (422, 201)


# --- 6: operations --------------------------------------------------------------------------------------------------

TAG_CASE: Mapping[str, Any] = {"type": "AddTagToCase", "tag": "x"}
TAG_ALERT: Mapping[str, Any] = {"type": "AddTagToAlert", "tag": "x"}
TAG_ARTIFACT: Mapping[str, Any] = {"type": "AddTagToArtifact", "tag": "x"}
READ: Mapping[str, Any] = {"type": "MarkAlertAsRead"}
TASK: Mapping[str, Any] = {"type": "CreateTask", "title": "Look", "description": "closely"}
FIELD: Mapping[str, Any] = {"type": "AddCustomFields", "name": "score", "tpe": "integer", "value": 5}
CLOSE_TASK: Mapping[str, Any] = {"type": "CloseTask"}
LOG: Mapping[str, Any] = {"type": "AddLogToTask", "content": "done"}
ARTIFACT: Mapping[str, Any] = {
    "type": "AddArtifactToCase",
    "data": "203.0.113.9",
    "dataType": "ip",
    "message": "m",
    "tlp": 1,
    "tags": ["a"],
}
ASSIGN: Mapping[str, Any] = {"type": "AssignCase", "owner": "ben@example.org"}
ALL = (TAG_CASE, TAG_ALERT, TAG_ARTIFACT, READ, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, ASSIGN)


@pytest.mark.parametrize(
    ("kind", "applied"),
    [
        ("alert", (TAG_ALERT, READ, FIELD)),
        ("case", (TAG_CASE, TASK, FIELD, ARTIFACT, ASSIGN)),
        ("case_task", (TAG_CASE, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, ASSIGN)),
        ("case_task_log", (TAG_CASE, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, ASSIGN)),
        ("case_artifact", (TAG_CASE, TAG_ARTIFACT, TASK, FIELD, ARTIFACT, ASSIGN)),
    ],
)
async def test_each_operation_works_from_where_it_makes_sense_and_fails_alone_elsewhere(
    tmp_path: Path, kind: Kind, applied: Sequence[Mapping[str, Any]]
) -> None:
    async with place(tmp_path) as there:
        action = await there.run(kind, *ALL)
        recorded = json.loads(action.operations)
        page = await there.here.feed.page(0, wait_s=0)
    assert action.status == "Success"
    assert [operation["type"] for operation in recorded] == [operation["type"] for operation in ALL]
    assert {operation["type"] for operation in recorded if operation["status"] == "Success"} == {
        operation["type"] for operation in applied
    }
    for operation, given in zip(recorded, ALL, strict=True):
        own = [key for key in given if key != "message"]  # that one tells how it went
        assert [operation[key] for key in own] == [given[key] for key in own]
        assert (operation["message"] == "") == (operation["status"] == "Success")
    started = next(event.seq for event in page.events if event.type == "action.created")
    assert {event.user for event in page.events if event.seq > started} == {ANNA.login}


async def test_what_operations_did_is_there(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        await there.run("case_task_log", TAG_CASE, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, ASSIGN, TAG_CASE)
        case, task = there.cases.get_case(there.ids["case"]), there.cases.get_task(there.ids["case_task"])
        await there.run("case_artifact", TAG_ARTIFACT)
        artifact = there.cases.get_artifact(there.ids["case_artifact"])
        database = there.here.database
        made = [
            json.loads(row["doc"]) for row in database.rows("SELECT doc FROM object WHERE kind != 'alert' ORDER BY id")
        ]
    assert (case.tags, case.owner, case.custom_fields["score"]["integer"]) == (["x"], "ben@example.org", 5)
    assert (task.status, artifact.tags) == ("Completed", ["x"])
    kinds = {word["_type"]: word for word in made}
    assert (kinds["case_task"]["title"], kinds["case_task"]["description"]) == ("Look", "closely")
    assert (kinds["case_task_log"]["message"], kinds["case_task_log"]["createdBy"]) == ("done", ANNA.login)
    shown = {key: kinds["case_artifact"][key] for key in ("data", "dataType", "message", "tlp", "tags")}
    assert shown == {key: value for key, value in ARTIFACT.items() if key != "type"}


async def test_in_a_case_an_alert_s_operations_reach_the_case(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        assert await there.outcomes("alert", TAG_CASE) == [
            ("AddTagToCase", "Failure", "Unable to apply action AddTagToCase without case")
        ]
        case = await there.alerts.create_case(LEAD, there.ids["alert"])
        outcomes = await there.outcomes("alert", TAG_CASE, TASK, FIELD, READ)
        after = there.cases.get_case(case.id)
        alert = there.alerts.get(there.ids["alert"])
    assert [status for _, status, _ in outcomes] == ["Success"] * 4
    assert (after.tags, after.custom_fields["score"]["integer"], alert.status) == (["x"], 5, "Imported")


@pytest.mark.parametrize(
    "operation",
    [
        {"type": "AddTagToCase"},
        {"type": "AddTagToCase", "tag": 5},
        {"type": "CreateTask"},
        {"type": "AddCustomFields", "name": "a", "tpe": "integer", "value": "x"},
        {"type": "AddCustomFields", "name": "a", "tpe": "rubbish", "value": "x"},
        {"type": "AddArtifactToCase", "data": 5, "dataType": "ip"},
        {"type": "AssignCase", "owner": None},
        {"type": "AddLogToTask", "content": ["x"]},
        {"type": "LaunchRocket"},
        {"type": 5},
        {},
        None,
        ["AddTagToCase"],
    ],
)
async def test_a_wrong_operation_fails_with_a_sentence_and_stops_nothing_else(tmp_path: Path, operation: Any) -> None:
    async with place(tmp_path) as there:
        outcomes = await there.outcomes("case_task_log", operation, TAG_CASE)
    assert [status for _, status, _ in outcomes] == ["Failure", "Success"]
    assert outcomes[0][2]


async def test_what_failed_changes_nothing(tmp_path: Path) -> None:
    operations = [{"type": "AddTagToCase", "tag": "late"}]
    async with parts(tmp_path) as here:
        started = await here.actions.start(ANNA, ask(here))
        (await here.engine.taken.get()).finish(Report(False, operations=tuple(operations)))
        ended = await here.ended(started.action.id)
    assert (ended.status, ended.operations) == ("Failure", "[]")


# --- 2 and 7: levels, and what a responder gets ---------------------------------------------------------------------


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


async def test_an_org_admin_may_cancel_through_the_bot_too(tmp_path: Path) -> None:
    async with asked(tmp_path) as here:
        await here.core.key("org-admin")
        status, body = await here.send("DELETE", profile="service", headers={"X-On-Behalf-Of": "org-admin"})
    assert (status, body["status"]) == (200, "Deleted")
