"""Operations of responders: which work from which kind of object, and what they change."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.engines.base import Report
from core.models import (
    Alert,
    Artifact,
    Case,
    Kind,
)
from tests.core.actions.every_kind import objects_of_every_kind
from tests.core.actions.harness import ANNA, LEAD, open_harness, run_input

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
async def test_each_operation_works_for_some_kinds_of_objects_and_fails_alone_for_others(
    tmp_path: Path, kind: Kind, applied: Sequence[Mapping[str, Any]]
) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        action = await objects.run(kind, *ALL)
        recorded = json.loads(action.operations)
        page = await objects.harness.feed.page(0, wait_s=0)
    assert action.status == "Success"
    assert [operation["type"] for operation in recorded] == [operation["type"] for operation in ALL]
    assert {operation["type"] for operation in recorded if operation["status"] == "Success"} == {
        operation["type"] for operation in applied
    }
    for operation, given in zip(recorded, ALL, strict=True):
        own = [key for key in given if key != "message"]  # replaced by the outcome
        assert [operation[key] for key in own] == [given[key] for key in own]
        assert (operation["message"] == "") == (operation["status"] == "Success")
    started = next(event.seq for event in page.events if event.type == "action.created")
    assert {event.user for event in page.events if event.seq > started} == {ANNA.login}


async def test_operations_change_what_they_say(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        await objects.run("case_task_log", TAG_CASE, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, ASSIGN, TAG_CASE)
        case, task = (
            Case.model_validate_json(await objects.cases.get_case_json(objects.ids["case"])),
            await objects.cases.get_task(objects.ids["case_task"]),
        )
        await objects.run("case_artifact", TAG_ARTIFACT)
        artifact = Artifact.model_validate_json(await objects.cases.get_artifact_json(objects.ids["case_artifact"]))
        database = objects.harness.database
        rows = await database.fetch_in_background("SELECT doc FROM object WHERE kind <> 'alert' ORDER BY id")
        made = [json.loads(row["doc"]) for row in rows]
    assert (case.tags, case.owner, case.custom_fields["score"]["integer"]) == (["x"], "ben@example.org", 5)
    assert (task.status, artifact.tags) == ("Completed", ["x"])
    kinds = {word["_type"]: word for word in made}
    assert (kinds["case_task"]["title"], kinds["case_task"]["description"]) == ("Look", "closely")
    assert (kinds["case_task_log"]["message"], kinds["case_task_log"]["createdBy"]) == ("done", ANNA.login)
    shown = {key: kinds["case_artifact"][key] for key in ("data", "dataType", "message", "tlp", "tags")}
    assert shown == {key: value for key, value in ARTIFACT.items() if key != "type"}


async def test_operations_on_an_alert_in_a_case_change_the_case(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        assert await objects.outcomes("alert", TAG_CASE) == [
            ("AddTagToCase", "Failure", "Unable to apply action AddTagToCase without case")
        ]
        case = await objects.alerts.create_case(LEAD, objects.ids["alert"])
        outcomes = await objects.outcomes("alert", TAG_CASE, TASK, FIELD, READ)
        after = Case.model_validate_json(await objects.cases.get_case_json(case.id))
        alert = Alert.model_validate_json(await objects.alerts.get_json(objects.ids["alert"]))
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
async def test_an_invalid_operation_fails_with_a_sentence_and_the_others_are_applied(
    tmp_path: Path, operation: Any
) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        outcomes = await objects.outcomes("case_task_log", operation, TAG_CASE)
    assert [status for _, status, _ in outcomes] == ["Failure", "Success"]
    assert outcomes[0][2]


async def test_operations_of_a_failed_run_are_not_applied(tmp_path: Path) -> None:
    operations = [{"type": "AddTagToCase", "tag": "late"}]
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await harness.engine.taken.get()).finish(Report(False, operations=tuple(operations)))
        ended = await harness.ended(started.action.id)
    assert (ended.status, ended.operations) == ("Failure", "[]")
