"""Operations of responders: which work from which kind of object, and what they change."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.engines.base import Report
from core.models import (
    Alert,
    AlertUpdate,
    Artifact,
    ArtifactUpdate,
    Case,
    CreateCaseInput,
    Kind,
    SearchInput,
    Task,
)
from core.settings import ResponderSection
from tests import stores
from tests.core.actions.every_kind import NAME, ObjectsOfEveryKind, objects_of_every_kind
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
OBSERVE: Mapping[str, Any] = {**ARTIFACT, "type": "AddArtifactToAlert"}
ASSIGN: Mapping[str, Any] = {"type": "AssignCase", "owner": "ben@example.org"}
ALL = (TAG_CASE, TAG_ALERT, TAG_ARTIFACT, READ, TASK, FIELD, CLOSE_TASK, LOG, ARTIFACT, OBSERVE, ASSIGN)


@pytest.mark.parametrize(
    ("kind", "applied"),
    [
        ("alert", (TAG_ALERT, READ, FIELD, OBSERVE)),
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
            Case.model_validate_json(await objects.cases.get_json("case", objects.ids["case"])),
            Task.model_validate_json(await objects.cases.get_json("case_task", objects.ids["case_task"])),
        )
        await objects.run("case_artifact", TAG_ARTIFACT)
        artifact = Artifact.model_validate_json(
            await objects.cases.get_json("case_artifact", objects.ids["case_artifact"])
        )
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
        after = Case.model_validate_json(await objects.cases.get_json("case", case.id))
        alert = Alert.model_validate_json(await objects.alerts.get_json(objects.ids["alert"]))
    assert [status for _, status, _ in outcomes] == ["Success"] * 4
    assert (after.tags, after.custom_fields["score"]["integer"], alert.status) == (["x"], 5, "Imported")


INVALID: tuple[Any, ...] = (
    {"type": "AddTagToCase"},
    {"type": "AddTagToCase", "tag": 5},
    {"type": "CreateTask"},
    {"type": "AddCustomFields", "name": "a", "tpe": "integer", "value": "x"},
    {"type": "AddCustomFields", "name": "a", "tpe": "rubbish", "value": "x"},
    {"type": "AddArtifactToCase", "data": 5, "dataType": "ip"},
    {"type": "AddArtifactToCase", "data": "192.0.2.9"},
    {"type": "AddArtifactToCase", "data": "192.0.2.9", "dataType": "ip", "tlp": 4},
    {"type": "AssignCase", "owner": None},
    {"type": "AddLogToTask", "content": ["x"]},
    {"type": "LaunchRocket"},
    {"type": 5},
    {},
    None,
    ["AddTagToCase"],
)


async def test_an_invalid_operation_fails_with_a_sentence_and_the_others_are_applied(tmp_path: Path) -> None:
    async with objects_of_every_kind(tmp_path) as objects:
        outcomes = await objects.outcomes("case_task_log", *INVALID, TAG_CASE)
    assert [status for _, status, _ in outcomes] == [*["Failure"] * len(INVALID), "Success"]
    assert all(message for _, _, message in outcomes[:-1])


async def artifacts_of(objects: ObjectsOfEveryKind, kind: Kind) -> list[tuple[str | None, int]]:
    """Data and TLP of the artifacts of the alert or case."""
    if kind == "alert":
        found = Alert.model_validate_json(await objects.alerts.get_json(objects.ids["alert"])).artifacts
    else:
        docs = (await objects.cases.search("case_artifact", SearchInput(range="all"))).docs
        found = [Artifact.model_validate_json(doc) for doc in docs]
    return [(artifact.data, artifact.tlp) for artifact in found]


@pytest.mark.parametrize(("kind", "name", "tlp"), [("alert", "Alert", 2), ("case_task_log", "Case", 1)])
async def test_an_added_artifact_is_a_target_with_the_tlp_of_where_it_was_found(
    tmp_path: Path, kind: Kind, name: str, tlp: int
) -> None:
    """And adding it again changes nothing."""
    asked = [
        {"type": f"AddArtifactTo{name}", "dataType": "ip", "data": f"203.0.113.{number}", "tlp": asked}
        for number, asked in enumerate((None, 0, 3))
    ]
    async with objects_of_every_kind(tmp_path) as objects:
        before = await artifacts_of(objects, kind)
        first = await objects.outcomes(kind, *asked, {**asked[0], "message": "again"})
        second = await objects.outcomes(kind, *asked)
        after = await artifacts_of(objects, kind)
        alert = Alert.model_validate_json(await objects.alerts.get_json(objects.ids["alert"]))
        for artifact in alert.artifacts:
            assert (await objects.cases.get_json("case_artifact", artifact.id)) == artifact.to_json()
    assert after == [*before, ("203.0.113.0", tlp), ("203.0.113.1", tlp), ("203.0.113.2", 3)]
    assert {status for _, status, _ in [*first, *second]} == {"Success"}
    assert [bool(message) for _, _, message in [*first, *second]] == [False] * 3 + [True] * 4
    assert (
        second[0][2]
        == {
            "alert": "The alert has this ip already.",
            "case_task_log": f"The case {objects.ids['case']} has this ip already.",
        }[kind]
    )


async def test_what_is_found_in_a_red_artifact_is_red(tmp_path: Path) -> None:
    policies = {NAME: ResponderSection(target=("ip",))}
    async with objects_of_every_kind(tmp_path, policies=policies) as objects:
        (red,) = json.loads(await objects.alerts.get_json(objects.ids["alert"]))["artifacts"]
        red_alone = {"target": [red["id"]]}
        await objects.cases.update_artifact(LEAD, red["id"], ArtifactUpdate(tlp=3))
        found = {"dataType": "ip", "data": "203.0.113.1", "tlp": 0}
        await objects.run("case_artifact", {**found, "type": "AddArtifactToCase"})
        objects.ids["case_artifact"] = red["id"]
        await objects.run("case_artifact", {**found, "type": "AddArtifactToAlert"})
        assert (await artifacts_of(objects, "case"))[-1] == ("203.0.113.1", 3)
        await objects.run("alert", {**found, "type": "AddArtifactToAlert", "data": "203.0.113.2"}, request=red_alone)
        assert (await artifacts_of(objects, "alert"))[-2:] == [("203.0.113.1", 3), ("203.0.113.2", 3)]


async def test_a_custom_field_counts_as_high_as_the_runs_that_set_its_value_until_somebody_changes_it(
    tmp_path: Path,
) -> None:
    policies = {NAME: ResponderSection(target=("ip",))}
    async with objects_of_every_kind(tmp_path, policies=policies) as objects:
        alerts, number = objects.alerts, objects.ids["alert"]
        (red,) = json.loads(await alerts.get_json(number))["artifacts"]
        await objects.cases.update_artifact(LEAD, red["id"], ArtifactUpdate(tlp=3))

        async def levels() -> dict[str, int]:
            read: dict[str, Any] = json.loads(await alerts.get_json(number))
            return dict(read.get("fieldLevels", {}))

        async def sets(**more: Any) -> dict[str, int]:
            await objects.run("alert", {**FIELD, **more}, request={"target": [red["id"]]})
            return await levels()

        async def changes(**body: Any) -> dict[str, int]:
            await alerts.update(LEAD, number, AlertUpdate(**body))
            return await levels()

        assert await changes(customFields={"score": {"integer": 5}, "unit": {"string": "HR"}}) == {}
        assert await sets() == {}  # as it was
        assert await sets(value=6) == {"score": 3}
        assert await changes(title="t") == {"score": 3}
        assert await changes(**{"customFields.unit.string": "IT"}) == {"score": 3}
        read = json.loads(await alerts.get_json(number))["customFields"]
        assert await changes(customFields={**read, "unit": {"string": "HR"}}) == {"score": 3}
        assert await changes(**{"customFields.score.integer": 6}) == {}
        assert await sets(value=7) == {"score": 3}
        assert await changes(customFields={"score": {"integer": 8}}) == {}
        await sets(name="rank")
        assert await sets(value=9) == {"rank": 3, "score": 3}
        case = await alerts.create_case(LEAD, number, CreateCaseInput(custom_fields={"rank": {"integer": 1}}))
        assert case.field_levels == {"score": 3}


async def test_an_alert_takes_no_more_artifacts_than_it_keeps(tmp_path: Path) -> None:
    many = [{"type": "AddArtifactToAlert", "dataType": "other", "data": f"{number}"} for number in range(1_000)]
    async with objects_of_every_kind(tmp_path) as objects:
        outcomes = await objects.outcomes("alert", *many)
        kept = await artifacts_of(objects, "alert")
    assert [status for _, status, _ in outcomes] == ["Success"] * 999 + ["Failure"]
    assert outcomes[-1][2].endswith("would have 1001 artifacts; at most 1000 are kept, so remove some first.")
    assert len(kept) == 1_000


async def test_operations_of_a_failed_run_are_not_applied(tmp_path: Path) -> None:
    operations = [{"type": "AddTagToCase", "tag": "late"}]
    async with open_harness(tmp_path) as harness:
        started = await harness.actions.start(ANNA, run_input(harness))
        (await harness.engine.taken.get()).finish(Report(False, operations=tuple(operations)))
        ended = await harness.ended(started.action.id)
    assert (ended.status, ended.operations) == ("Failure", "[]")


async def test_an_operation_with_a_text_that_is_too_long_for_an_index_fails_alone(tmp_path: Path) -> None:
    """As the indexes of PostgreSQL are; those of SQLite take any. The action ends on both."""
    owner = os.urandom(4_000).hex()
    async with objects_of_every_kind(tmp_path) as objects:
        found = await objects.outcomes("case", {**ASSIGN, "owner": owner}, TAG_CASE)
    message = "The operation AssignCase could not be applied; core's log says why."
    assigned = ("Success", "") if stores.dialect() == "sqlite" else ("Failure", message)
    assert found == [("AssignCase", *assigned), ("AddTagToCase", "Success", "")]
