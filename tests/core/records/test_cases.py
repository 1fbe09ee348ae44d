"""Cases, tasks, logs and artifacts over HTTP."""

import asyncio
import json
from typing import Any

import pytest

from core.common.database import Transaction
from core.models import Kind, TaskInput
from core.records import cases
from tests.core.object_api import ALERT, ObjectApi

CASE = {"title": "A case", "description": "d"}
TEMPLATE: dict[str, Any] = {
    "name": "T",
    "titlePrefix": "[T] \t",
    "severity": 4,
    "tlp": 3,
    "pap": 1,
    "tags": ["a", "b"],
    "tasks": [{"title": "t2", "order": 2, "group": "g"}, {"title": "t1", "order": 1}],
    "customFields": {"x": {"string": "of the template"}, "y": {"integer": 1}},
}


async def test_a_case_shows_absent_fields_as_null(api: ObjectApi) -> None:
    case = await api.post("/api/case", {**CASE, "template": None, "metrics": {"a": 1}})
    assert case == {
        **CASE,
        "_id": "~1",
        "id": "~1",
        "_type": "case",
        "createdBy": "admin@soc.example",
        "updatedBy": None,
        "createdAt": api.clock.now_ms,
        "updatedAt": None,
        "caseId": 1,
        "severity": 2,
        "startDate": api.clock.now_ms,
        "endDate": None,
        "owner": "admin@soc.example",
        "flag": False,
        "tlp": 2,
        "pap": 2,
        "tags": [],
        "status": "Open",
        "resolutionStatus": None,
        "impactStatus": None,
        "summary": None,
        "template": None,
        "customFields": {},
        "metrics": {},
        "stats": {},
        "permissions": [],
    }
    assert await api.get("/api/case/~1") == case
    assert await api.get("/api/case/1") == case
    assert (await api.post("/api/case", CASE))["caseId"] == 2


async def test_simultaneous_cases_have_numbers_of_their_own(api: ObjectApi) -> None:
    made = await asyncio.gather(*(api.post("/api/case", CASE) for _ in range(16)))
    assert sorted(case["caseId"] for case in made) == list(range(1, 17))


async def test_a_template_fills_in_what_the_request_leaves_out(api: ObjectApi) -> None:
    await api.post("/api/case/template", TEMPLATE)
    case = await api.post("/api/case", {**CASE, "template": "T"})
    assert (case["title"], case["severity"], case["tlp"], case["pap"]) == ("[T] A case", 4, 3, 1)
    assert (case["tags"], case["template"]) == (["a", "b"], "T")
    assert await titles(api, case) == ["t2", "t1"]


async def test_the_request_takes_precedence_over_the_template(api: ObjectApi) -> None:
    template = await api.post("/api/case/template", TEMPLATE)
    own = {"severity": 1, "tlp": 0, "pap": 0, "tags": ["b", "c"], "tasks": [{"title": "mine"}, {"title": "t1"}]}
    fields = {"y": {"integer": 2}, "z": True}
    case = await api.post("/api/case", {**CASE, **own, "template": "T", "customFields": fields})
    assert (case["severity"], case["tlp"], case["pap"], case["tags"]) == (1, 0, 0, ["a", "b", "c"])
    assert await titles(api, case) == ["t2", "t1", "mine", "t1"]
    shown = {name: {k: v for k, v in field.items() if k != "_id"} for name, field in case["customFields"].items()}
    assert shown == {
        "x": {"string": "of the template", "order": 1},
        "y": {"integer": 2, "order": 1},
        "z": {"boolean": True, "order": 2},
    }
    assert case["customFields"]["x"]["_id"] != template["customFields"]["x"]["_id"]


async def test_a_template_without_prefix_leaves_the_title_alone(api: ObjectApi) -> None:
    await api.post("/api/case/template", {"name": "T", "titlePrefix": "  "})
    assert (await api.post("/api/case", {**CASE, "template": "T"}))["title"] == "A case"


async def test_an_unknown_template_is_not_found_and_nothing_is_created(api: ObjectApi) -> None:
    answer = await api.post("/api/case", {**CASE, "template": "t"}, 404)
    assert (answer["type"], answer["message"]) == ("NotFoundError", "CaseTemplate not found")
    assert await api.events() == []


async def test_a_log_sets_its_waiting_task_in_progress(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    task = await api.post("/api/case/~1/task", {"title": "t"})
    shown = {"title": "t", "group": "default", "description": "", "order": 0, "status": "Waiting", "flag": False}
    by = {"createdBy": "admin@soc.example", "createdAt": api.clock.now_ms}
    assert task == {**shown, **by, "_id": "~2", "id": "~2", "_type": "case_task"}
    log = await api.post("/api/case/task/~2/log", {"message": "seen"})
    assert log == {
        **by,
        "_id": "~3",
        "id": "~3",
        "_type": "case_task_log",
        "message": "seen",
        "startDate": api.clock.now_ms,
        "status": "Ok",
        "owner": "admin@soc.example",
    }
    assert (await api.get("/api/case/task/~2"))["status"] == "InProgress"
    assert await api.get("/api/case/task/log/~3") == log
    await api.post("/api/case/task/~2/log", {"message": "again"})
    assert await api.events() == [
        ("case.created", "~1", "~1"),
        ("case_task.created", "~2", "~1"),
        ("case_task_log.created", "~3", "~1"),
        ("case_task.updated", "~2", "~1"),
        ("case_task_log.created", "~4", "~1"),
    ]


async def test_a_completed_task_stays_completed_when_a_log_is_added(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    await api.post("/api/case/~1/task", {"title": "t", "status": "Completed", "owner": "me@soc.example"})
    await api.post("/api/case/task/~2/log", {"message": "late"})
    task = await api.get("/api/case/task/~2")
    assert (task["status"], task["owner"], task["endDate"]) == ("Completed", "me@soc.example", api.clock.now_ms)


async def test_an_artifact_is_unique_in_its_case(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    await api.post("/api/case", CASE)
    sent = {"dataType": "ip", "data": "::1", "tlp": 3, "tags": ["a", "a"], "message": None, "ignoreSimilarity": True}
    artifact = await api.post("/api/case/~1/artifact", sent)
    assert (artifact["tlp"], artifact["tags"], artifact["_type"]) == (3, ["a"], "case_artifact")
    assert await api.get(f"/api/case/artifact/{artifact['id']}") == artifact
    assert (await api.post("/api/case/~1/artifact", sent, 400))["type"] == "CreateError"
    await api.post("/api/case/~2/artifact", sent)


UNKNOWN: tuple[tuple[str, str, Any, str], ...] = (
    ("GET", "/api/case/~9", None, "Case not found"),
    ("GET", "/api/case/9", None, "Case not found"),
    ("GET", "/api/case/task/~9", None, "Task not found"),
    ("GET", "/api/case/task/log/~9", None, "Log not found"),
    ("GET", "/api/case/artifact/~9", None, "Artifact not found"),
    ("GET", "/api/case/task/~1", None, "Task not found"),
    ("POST", "/api/case/~9/task", {"title": "t"}, "Case not found"),
    ("POST", "/api/case/task/~9/log", {"message": "m"}, "Task not found"),
    ("POST", "/api/case/x/artifact", {"dataType": "ip", "data": "::1"}, "Case not found"),
    ("PATCH", "/api/case/~9", {}, "Case not found"),
    ("PATCH", "/api/case/task/~9", {}, "Task not found"),
)


async def test_unknown_objects_are_not_found(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    for method, path, body, message in UNKNOWN:
        answer = (await api.send(method, path, body, status=404)).json()
        assert (answer["type"], answer["message"]) == ("NotFoundError", message), path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/case", ["title", "description"]),
        ("/api/case/~9/task", ["title"]),
        ("/api/case/task/~9/log", ["message"]),
        ("/api/case/~9/artifact", ["dataType", "data"]),
    ],
)
async def test_an_invalid_body_is_reported_before_rights_and_missing_objects(
    api: ObjectApi, path: str, names: list[str]
) -> None:
    key = await api.user("read-only")
    answer = await api.post(path, {}, 400, key=key)
    assert [error["name"] for error in answer["errors"]] == names
    body = dict.fromkeys(["title", "description", "message", "dataType", "data"], "x")
    assert (await api.post(path, body, 403, key=key))["type"] == "AuthorizationError"


async def test_an_update_changes_the_named_fields_only(api: ObjectApi) -> None:
    await api.post("/api/case", {**CASE, "customFields": {"a": "x"}})
    api.clock.now_ms += 7
    update = {"status": "Resolved", "resolutionStatus": "FalsePositive", "summary": "s", "owner": None, "caseId": 99}
    case = await api.patch("/api/case/~1", update)
    assert (case["status"], case["resolutionStatus"], case["summary"]) == ("Resolved", "FalsePositive", "s")
    assert (case["endDate"], case["updatedAt"]) == (api.clock.now_ms, api.clock.now_ms)
    assert (case["owner"], case["caseId"], case["customFields"]["a"]["string"]) == ("admin@soc.example", 1, "x")
    wrong = await api.patch("/api/case/~1", {"status": "Closed", "tlp": 9, "title": ""}, 400)
    assert [error["name"] for error in wrong["errors"]] == ["title", "tlp", "status"]


async def test_a_task_has_the_dates_of_its_start_and_end(api: ObjectApi) -> None:
    await api.post("/api/case", {**CASE, "tasks": [{"title": "t"}]})
    assert (await api.patch("/api/case/task/~2", {"status": "InProgress"}))["startDate"] == api.clock.now_ms
    api.clock.now_ms += 7
    task = await api.patch("/api/case/task/~2", {"status": "Completed", "order": 3})
    assert (task["endDate"] - task["startDate"], task["order"]) == (7, 3)


async def test_an_artifact_is_updated(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    await api.post("/api/case/~1/artifact", {"dataType": "ip", "data": "::1"})
    changed = await api.patch("/api/case/artifact/~2", {"ioc": True, "tags": ["x"], "data": "::2"})
    assert (changed["ioc"], changed["tags"], changed["data"]) == (True, ["x"], "::1")


async def test_the_case_of_each_object_is_found(api: ObjectApi) -> None:
    await api.post("/api/case", CASE)
    await api.post("/api/case/~1/task", {"title": "t"})
    await api.post("/api/case/task/~2/log", {"message": "m"})
    await api.post("/api/case/~1/artifact", {"dataType": "ip", "data": "::1"})
    objects: list[tuple[Kind, int]] = [("case", 1), ("case_task", 2), ("case_task_log", 3), ("case_artifact", 4)]
    found = await api.database.read(lambda reads: [cases.case_of(reads, *item).id for item in objects])
    assert found == ["~1"] * 4
    assert (await api.database.read(lambda reads: cases.task_of_log(reads, 3))).id == "~2"


async def test_a_new_custom_field_gets_an_id_and_the_others_keep_theirs(api: ObjectApi) -> None:
    made = await api.post("/api/case", {**CASE, "customFields": {"a": "x"}})

    def work(tx: Transaction) -> None:
        case = cases.load_case(tx, 1)
        fields = {**case.custom_fields, "b": {"integer": 1, "order": 2}}
        cases.save_case(tx, case.model_copy(update={"custom_fields": fields}), "me@soc.example", 5, case)
        cases.new_tasks(tx, case, [TaskInput(title="t")], "me@soc.example", 5)

    await api.database.transaction(work)
    case = await api.get("/api/case/~1")
    assert case["customFields"]["a"] == made["customFields"]["a"]
    assert case["customFields"]["b"]["_id"].startswith("~")
    assert (case["updatedBy"], case["updatedAt"]) == ("me@soc.example", 5)


async def titles(api: ObjectApi, case: Any) -> list[str]:
    """Titles of a case's tasks, in the order of their creation."""
    query = {"query": {"_parent": {"_type": "case", "_query": {"_id": case["id"]}}}}
    return [task["title"] for task in await api.post("/api/case/task/_search", query, 200, params={"range": "all"})]


async def test_answers_are_the_stored_json(api: ObjectApi) -> None:
    made = await api.send("POST", "/api/alert", {**ALERT, "title": "ü \u2028 \u0000 </script>"}, status=201)
    got = await api.send("GET", "/api/alert/~1", status=200)
    assert got.content == made.content
    assert json.loads(got.content)["title"] == "ü \u2028 \u0000 </script>"
