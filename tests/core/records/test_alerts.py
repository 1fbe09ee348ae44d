"""Alerts over HTTP."""

import asyncio
from typing import Any

import pytest

from tests.core.object_api import ALERT, ObjectApi

KEYS = (
    "_id,id,createdBy,updatedBy,createdAt,updatedAt,_type,type,source,sourceRef,externalLink,case,title,description,"
    "severity,date,tags,tlp,pap,status,assignee,follow,customFields,caseTemplate,artifacts,similarCases"
)


async def test_an_alert_answers_all_its_keys_in_order(api: ObjectApi) -> None:
    alert = await api.post("/api/alert", ALERT)
    assert ",".join(alert) == KEYS
    now = api.clock.now_ms
    expected = {
        **ALERT,
        "_id": "~1",
        "id": "~1",
        "_type": "alert",
        "createdBy": "admin@soc.example",
        "updatedBy": None,
        "createdAt": now,
        "updatedAt": None,
        "externalLink": None,
        "case": None,
        "severity": 2,
        "date": now,
        "tags": [],
        "tlp": 2,
        "pap": 2,
        "status": "New",
        "assignee": None,
        "follow": True,
        "customFields": {},
        "caseTemplate": None,
        "artifacts": [],
        "similarCases": [],
    }
    assert alert == expected
    assert await api.get("/api/alert/~1") == expected


async def test_null_means_absent_and_unknown_fields_are_ignored(api: ObjectApi) -> None:
    silent = {"severity": None, "tags": None, "artifacts": None, "customFields": None, "caseTemplate": None}
    alert = await api.post("/api/alert", {**ALERT, **silent, "status": "Imported", "somethingElse": {"a": [1]}})
    assert (alert["severity"], alert["tags"], alert["artifacts"], alert["status"]) == (2, [], [], "New")


async def test_a_reference_can_not_be_used_twice(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    answer = await api.post("/api/alert", {**ALERT, "title": "another"}, 400)
    assert (answer["type"], answer["message"]) == (
        "CreateError",
        "Alert siem:elastalert:8257b4 already exist in organisation default",
    )
    await api.post("/api/alert", {**ALERT, "type": "siem:elastalert", "source": "8257b4"})


async def test_of_simultaneous_alerts_with_one_reference_one_is_created(api: ObjectApi) -> None:
    answers = await asyncio.gather(*(api.send("POST", "/api/alert", ALERT) for _ in range(16)))
    assert sorted(answer.status_code for answer in answers) == [201] + [400] * 15


async def test_duplicate_artifacts_are_dropped_and_the_rest_have_ids(api: ObjectApi) -> None:
    artifacts = [
        {"dataType": "ip", "data": "45.9.20.101", "message": "CnC", "tlp": 3, "tags": ["c2"], "ioc": True},
        {"dataType": "ip", "data": "45.9.20.101", "message": "again"},
        {"dataType": "domain", "data": "45.9.20.101"},
    ]
    alert = await api.post("/api/alert", {**ALERT, "artifacts": artifacts})
    assert [(a["dataType"], a["data"], a["message"], a["tlp"], a["ioc"]) for a in alert["artifacts"]] == [
        ("ip", "45.9.20.101", "CnC", 3, True),
        ("domain", "45.9.20.101", None, 2, False),
    ]
    assert len({alert["id"], *(a["id"] for a in alert["artifacts"])}) == 3


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ({}, "siem;elastalert;8257b4"),
        ({}, "%7E1"),
        ({"sourceRef": "a;b/c"}, "siem;elastalert;a;b%2Fc"),
        ({"source": "a/b", "sourceRef": "x y;z?"}, "siem%3Ba%2Fb%3Bx%20y%3Bz%3F"),
        ({"type": "a;b", "sourceRef": "x"}, "a;b;elastalert;x"),
        ({"sourceRef": ";" * 40}, "siem;elastalert;" + ";" * 40),
    ],
)
async def test_an_alert_is_found_by_id_and_by_reference(api: ObjectApi, reference: Any, path: str) -> None:
    alert = await api.post("/api/alert", {**ALERT, **reference})
    assert await api.get(f"/api/alert/{path}") == alert


@pytest.mark.parametrize("path", ["~99", "~", "1", "~99999999999999999999", "siem;elastalert", "a;b;c", ";;", "~١"])
async def test_an_unknown_alert_is_not_found(api: ObjectApi, path: str) -> None:
    await api.post("/api/alert", ALERT)
    answer = await api.get(f"/api/alert/{path}", 404)
    assert (answer["type"], answer["message"]) == ("NotFoundError", "Alert not found")


async def test_an_alert_is_marked_as_read_and_unread(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    api.clock.now_ms += 5
    read = await api.post("/api/alert/~1/markAsRead", status=200)
    assert (read["status"], read["updatedBy"], read["updatedAt"]) == ("Ignored", "admin@soc.example", api.clock.now_ms)
    assert (await api.post("/api/alert/siem;elastalert;8257b4/markAsUnread", status=200))["status"] == "New"
    assert (await api.get("/api/alert/~1"))["status"] == "New"
    await api.post("/api/alert/~9/markAsRead", status=404)


async def test_a_case_is_created_from_an_alert_with_its_artifacts(api: ObjectApi) -> None:
    template = {
        "name": "Malware",
        "titlePrefix": "[SOC] ",
        "severity": 4,
        "tags": ["malware"],
        "tasks": [{"title": "a"}],
    }
    await api.post("/api/case/template", template)
    artifacts = [{"dataType": "ip", "data": "45.9.20.101", "tlp": 1, "tags": ["c2"]}, {"dataType": "ip", "data": "::1"}]
    fields = {"score": {"integer": 7}}
    request = {**ALERT, "severity": 3, "tlp": 1, "tags": ["et"], "artifacts": artifacts, "customFields": fields}
    alert = await api.post("/api/alert", {**request, "caseTemplate": "Malware"})
    case = await api.post(f"/api/alert/{alert['id']}/createCase", {"caseTemplate": None})

    shown = (case["title"], case["severity"], case["tlp"], case["tags"], case["template"], case["status"])
    assert shown == (f"[SOC] {ALERT['title']}", 3, 1, ["malware", "et"], "Malware", "Open")
    assert case["customFields"]["score"]["integer"] == 7
    imported = await api.get(f"/api/alert/{alert['id']}")
    assert (imported["case"], imported["status"]) == (case["id"], "Imported")
    parent = {"query": {"_parent": {"_type": "case", "_id": case["id"]}}}
    found = await api.post("/api/case/artifact/_search", parent, 200)
    assert [(a["data"], a["tlp"], a["tags"]) for a in found] == [("45.9.20.101", 1, ["c2"]), ("::1", 2, [])]
    assert [a["id"] for a in found] == [a["id"] for a in alert["artifacts"]] == [a["id"] for a in imported["artifacts"]]
    assert [task["title"] for task in await api.post("/api/case/task/_search", parent, 200)] == ["a"]


async def test_a_second_case_of_one_alert_is_refused(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    answers = await asyncio.gather(*(api.send("POST", "/api/alert/~1/createCase") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [400] * 7
    refused = next(answer.json() for answer in answers if answer.status_code == 400)
    assert refused["type"] == "BadRequest"
    assert "already" in refused["message"]
    assert (await api.send("POST", "/api/case/_search", {})).headers["x-total"] == "1"


async def test_an_alert_in_a_case_is_updated_or_imported(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    await api.post("/api/alert/~1/createCase")
    assert (await api.post("/api/alert/~1/markAsUnread", status=200))["status"] == "Updated"
    assert (await api.post("/api/alert/~1/markAsRead", status=200))["status"] == "Imported"


async def test_an_unknown_template_changes_nothing(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    answer = await api.post("/api/alert/~1/createCase", {"caseTemplate": "none"}, 404)
    assert (answer["type"], answer["message"]) == ("NotFoundError", "CaseTemplate not found")
    assert (await api.get("/api/alert/~1"))["case"] is None
    assert (await api.send("POST", "/api/case/_search", {})).headers["x-total"] == "0"


async def test_an_alert_is_merged_into_a_case(api: ObjectApi) -> None:
    case = await api.post("/api/case", {"title": "c", "description": "d", "tags": ["a"]})
    await api.post(f"/api/case/{case['id']}/artifact", {"dataType": "ip", "data": "::1"})
    artifacts = [{"dataType": "ip", "data": "::1"}, {"dataType": "ip", "data": "::2"}]
    alert = await api.post("/api/alert", {**ALERT, "tags": ["b"], "artifacts": artifacts})
    merged = await api.post(f"/api/alert/{alert['id']}/merge/{case['id']}", {}, 200)
    assert (merged["id"], merged["tags"]) == (case["id"], ["a", "b"])
    assert (await api.get(f"/api/alert/{alert['id']}"))["status"] == "Imported"
    assert len(await api.post("/api/case/artifact/_search", {}, 200)) == 2


async def test_an_update_changes_the_named_fields_only(api: ObjectApi) -> None:
    artifacts = [{"dataType": "ip", "data": "::1"}, {"dataType": "ip", "data": "::2"}]
    fields = {"a": {"string": "x"}, "b": {"integer": 1}}
    before = await api.post("/api/alert", {**ALERT, "artifacts": artifacts, "customFields": fields})
    update = {
        "severity": 4,
        "tags": ["x", "x"],
        "title": None,
        "sourceRef": "other",
        "artifacts": [{**before["artifacts"][1], "message": "kept"}, {"dataType": "ip", "data": "::3"}],
        "customFields": {"b": {"integer": 2, "order": 1, "_id": "~1"}, "c": True},
    }
    after = await api.patch("/api/alert/~1", update)
    assert (after["severity"], after["tags"], after["title"], after["sourceRef"]) == (
        4,
        ["x"],
        ALERT["title"],
        "8257b4",
    )
    assert [(a["data"], a["message"]) for a in after["artifacts"]] == [("::2", "kept"), ("::3", None)]
    assert after["artifacts"][0]["id"] == before["artifacts"][1]["id"]
    assert list(after["customFields"]) == ["b", "c"]
    assert after["customFields"]["b"]["_id"] == before["customFields"]["b"]["_id"]
    wrong = await api.patch("/api/alert/~1", {"severity": 9, "tags": "x", "customFields": {"a": {"date": "x"}}}, 400)
    assert [error["name"] for error in wrong["errors"]] == ["severity", "tags", "customFields.a.date"]


async def test_a_request_that_copies_a_text_too_often_is_refused(api: ObjectApi) -> None:
    shared = {"dataType": "ip", "data": [str(number) for number in range(100)], "message": "x" * 500_000}
    await api.post("/api/alert", {**ALERT, "artifacts": [shared]}, 413)
    ids = [(await api.post("/api/alert", {**ALERT, "sourceRef": str(number)}))["id"] for number in range(50)]
    case = (await api.post("/api/case", {"title": "t", "description": "d"}))["id"]
    for path in (f"/api/alert/{ids[0]}/artifact", f"/api/case/{case}/artifact"):
        await api.post(path, shared, 413)
        assert len(await api.post(path, {**shared, "message": "x"})) == 100
    for change in ({"description": "x" * 500_000}, {"artifacts": [{**shared, "message": "x" * 5_000}]}):
        await api.patch(f"/api/alert/{ids[0]}", change)
        refused = await api.patch("/api/alert/_bulk", {"ids": ids, **change}, 413)
        assert refused["type"] == "TooLargeError"
    assert len((await api.send("PATCH", "/api/alert/_bulk", {"ids": ids, "description": "x"})).json()) == 50


async def test_a_missing_permission_is_named(api: ObjectApi) -> None:
    key = await api.user("read-only")
    answer = await api.post("/api/alert", ALERT, 403, key=key)
    assert answer["message"] == "You are not authorized to create alert, you haven't the permission manageAlert"
    await api.post("/api/alert", {}, 400, key=key)
    assert (await api.send("POST", "/api/alert/_search", {}, key=key)).status_code == 200


async def test_each_change_is_one_event(api: ObjectApi) -> None:
    await api.post("/api/alert", ALERT)
    await api.post("/api/alert", ALERT, 400)
    await api.post("/api/alert/~1/markAsRead", status=200)
    case = await api.post("/api/alert/~1/createCase")
    assert await api.events() == [
        ("alert.created", "~1", "~1"),
        ("alert.updated", "~1", "~1"),
        ("case.created", case["id"], case["id"]),
        ("alert.updated", "~1", "~1"),
    ]
