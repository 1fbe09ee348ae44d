"""Paths, ids, parameters and fields, for every kind of object."""

import time
from typing import Any

import httpx
import pytest

from tests.core.running import RunningCore, made
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}


async def one_of_each(core: RunningCore, name: str) -> dict[str, dict[str, Any]]:
    """Address of each kind of object, and the answer to its creation."""
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": name, "artifacts": [{"dataType": "ip", "data": "a"}]})
    case = await made(core, "/api/case", {"title": "t", "description": "d"})
    task = await made(core, f"/api/case/{case['id']}/task", {"title": "t"})
    log = await made(core, f"/api/case/task/{task['id']}/log", {"message": "m"})
    artifact = await made(core, f"/api/case/{case['id']}/artifact", {"dataType": "ip", "data": "192.0.2.1"})
    template = await made(core, "/api/case/template", {"name": name, "tasks": [{"title": "t"}]})
    return {
        "/api/alert": alert,
        "/api/case": case,
        "/api/case/task": task,
        "/api/case/task/log": log,
        "/api/case/artifact": artifact,
        "/api/case/template": template,
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/alert/_search", "POST"),
        ("PATCH", "/api/alert/_search", "POST"),
        ("PATCH", "/api/case/template/_search", "POST"),
        ("GET", f"{ENGINE}/action/_search", "POST"),
        ("DELETE", "/api/event", "GET"),
        ("PUT", "/api/connector/cortex/action", "POST"),
        ("GET", "/api/alert/~1/markAsRead", "POST"),
    ],
)
async def test_a_wrong_method_is_405_and_never_an_object_of_that_name(
    core: RunningCore, method: str, path: str, allowed: str
) -> None:
    answer = await core.send(method, path)
    assert (answer.status_code, answer.json()["type"], answer.headers["allow"]) == (405, "MethodNotAllowed", allowed)


async def test_a_template_may_have_the_name_of_another_methods_route(core: RunningCore) -> None:
    made = await core.send("POST", "/api/case/template", {"name": "_search"})
    assert made.status_code == 201
    found = await core.send("GET", "/api/case/template/_search")
    assert (found.status_code, found.json()["_id"]) == (200, made.json()["_id"])
    searched = await core.send("POST", "/api/case/template/_search", {"query": {"_field": "name", "_value": "_search"}})
    assert [template["_id"] for template in searched.json()] == [made.json()["_id"]]


async def test_ids_share_one_number_space_and_may_be_percent_encoded(core: RunningCore) -> None:
    objects = await one_of_each(core, "ids")
    ids = []
    for path, answered in objects.items():
        assert answered["_id"] == answered["id"]
        ids.append(answered["id"])
        found = [
            (await core.send("GET", f"{path}/{spelled}")).json()["id"]
            for spelled in (answered["id"], f"%7E{answered['id'][1:]}", f"%7e{answered['id'][1:]}")
        ]
        assert found == [answered["id"]] * 3
    ids += [answered["id"] for answered in objects["/api/alert"]["artifacts"] + objects["/api/case/template"]["tasks"]]
    assert len(set(ids)) == len(ids)
    assert all(id[0] == "~" and len(id) < 6 for id in ids)


async def test_a_404_names_the_kind_of_object(core: RunningCore) -> None:
    names = {
        "alert": "Alert",
        "case": "Case",
        "case/task": "Task",
        "case/task/log": "Log",
        "case/artifact": "Artifact",
        "case/template": "CaseTemplate",
        "connector/engine/action": "Action",
        "connector/engine/action/responder/alert": "Alert",
        "connector/engine/responder/alert": "Alert",
        "connector/engine/responder/case_task_log": "Log",
    }
    for path, name in names.items():
        body = (await core.send("GET", f"/api/{path}/~99999", profile="read-only")).json()
        assert (body["type"], body["message"]) == ("NotFoundError", f"{name} not found"), path


async def test_a_repeated_query_parameter_is_a_list(core: RunningCore) -> None:
    for title, number in (("b", 1), ("a", 1), ("a", 2)):
        await made(core, "/api/alert", {**ALERT, "type": "order", "sourceRef": f"{title}{number}", "title": title})
    query = {"query": {"type": "order"}}
    found = (await core.send("POST", "/api/alert/_search?sort=title&sort=-createdAt&sort=-sourceRef", query)).json()
    joined = (await core.send("POST", "/api/alert/_search?sort=title,-createdAt,-sourceRef", query)).json()
    assert [alert["sourceRef"] for alert in found] == ["a2", "a1", "b1"]
    assert joined == found


async def test_absent_values_are_null_in_alerts_and_cases_and_left_out_elsewhere(core: RunningCore) -> None:
    objects = await one_of_each(core, "absent")
    nulls = {path: [key for key, value in answered.items() if value is None] for path, answered in objects.items()}
    assert nulls == {
        "/api/alert": ["updatedBy", "updatedAt", "externalLink", "case", "assignee", "caseTemplate"],
        "/api/case": [
            "updatedBy",
            "updatedAt",
            "endDate",
            "resolutionStatus",
            "impactStatus",
            "summary",
            "template",
        ],
        "/api/case/task": [],
        "/api/case/task/log": [],
        "/api/case/artifact": [],
        "/api/case/template": [],
    }
    assert not [key for task in objects["/api/case/template"]["tasks"] for key, value in task.items() if value is None]
    for path, answered in objects.items():
        assert isinstance(answered["createdAt"], int)
        assert answered["createdAt"] > 1_700_000_000_000, path


async def test_wrong_fields_at_every_depth_are_reported_at_once(core: RunningCore) -> None:
    wrong = {
        "type": 5,
        "source": None,
        "title": "",
        "description": ["x" * 500],
        "severity": 9,
        "tlp": "amber",
        "pap": -1,
        "follow": 7,
        "tags": ["fine", 5, None],
        "artifacts": [{"dataType": "ip", "data": "a"}, {"data": "b", "tlp": 4}, "rubbish", {"dataType": "ip"}],
        "customFields": {"a": {"integer": "x"}, "b": {"date": True}},
    }
    body = (await core.send("POST", "/api/alert", wrong)).json()
    assert body["type"] == "AttributeCheckingError"
    assert {(error["name"], error["type"].removesuffix("AttributeError")) for error in body["errors"]} == {
        ("type", "InvalidFormat"),
        ("source", "Missing"),
        ("sourceRef", "Missing"),
        ("title", "InvalidFormat"),
        ("description", "InvalidFormat"),
        ("severity", "InvalidFormat"),
        ("tlp", "InvalidFormat"),
        ("pap", "InvalidFormat"),
        ("follow", "InvalidFormat"),
        ("tags[1]", "InvalidFormat"),
        ("tags[2]", "InvalidFormat"),
        ("artifacts[1].dataType", "Missing"),
        ("artifacts[1].tlp", "InvalidFormat"),
        ("artifacts[2]", "InvalidFormat"),
        ("artifacts[3].data", "Missing"),
        ("customFields.a.integer", "InvalidFormat"),
        ("customFields.b.date", "InvalidFormat"),
    }
    assert "[Attribute sourceRef is missing]" in body["message"]
    told = {error["name"]: (error["format"], error["value"]) for error in body["errors"] if "format" in error}
    assert (told["tlp"], told["severity"]) == (("integer", "amber"), ("less than or equal to 4", 9))
    assert len(told["description"][1]) == 101


async def test_a_number_without_a_fraction_is_an_integer(core: RunningCore) -> None:
    content = (
        b'{"name": "whole", "severity": 3.0, "tlp": 1e0, "tasks": [{"title": "t", "order": 2.0}],'
        b' "customFields": {"a": {"integer": 5.0, "order": 1.0}, "b": {"date": 1.7e12}, "c": {"float": 2.0}}}'
    )
    answer = await core.send("POST", "/api/case/template", content=content)
    assert answer.status_code == 201, answer.text
    template = answer.json()
    assert (template["severity"], template["tlp"], template["tasks"][0]["order"]) == (3, 1, 2)
    fields = template["customFields"]
    assert (fields["a"]["integer"], fields["a"]["order"], fields["b"]["date"]) == (5, 1, 1_700_000_000_000)
    assert '"integer":5,' in answer.text
    assert '"float":2.0,' in answer.text
    for value in (b"2.5", b"1e300", b"true", b'"2"'):
        content = b'{"name": "part", "severity": ' + value + b"}"
        refused = await core.send("POST", "/api/case/template", content=content)
        assert refused.json()["errors"][0]["name"] == "severity", value


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/api/case/_bulk"),
        ("PATCH", "/api/v1/case/_bulk"),
        ("PATCH", "/api/case/task/_bulk"),
        ("PATCH", "/api/v1/observable/_bulk"),
        ("DELETE", "/api/v1/case/_bulk"),
        ("GET", "/api/case/_stats"),
        ("POST", "/api/alert/_bulk/createCase"),
        ("POST", "/api/case/~1/_merge"),
        ("GET", "/api/alert//x"),
        ("GET", "/nothing"),
    ],
)
async def test_an_operation_without_a_route_is_no_object(core: RunningCore, method: str, path: str) -> None:
    answer = await core.send(method, path, {"ids": []})
    assert (answer.status_code, answer.json()["message"]) == (
        404,
        "There is no route at this address; /api/docs lists all of them.",
    )


async def test_a_name_may_begin_like_an_operation(core: RunningCore) -> None:
    await made(core, "/api/case/template", {"name": "_bulk"})
    assert (await core.send("GET", "/api/case/template/_bulk")).json()["name"] == "_bulk"
    await made(core, "/api/alert", {**ALERT, "type": "_bulk", "sourceRef": "name"})
    assert (await core.send("GET", "/api/alert/_bulk;s;name")).json()["type"] == "_bulk"


FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


async def form(core: RunningCore, method: str, path: str, content: bytes, status: int = 201) -> Any:
    answer = await core.send(method, path, content=content, headers=FORM)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_body_may_be_a_url_encoded_form(core: RunningCore) -> None:
    fields = (
        b"type=siem&source=s&sourceRef=form&title=B%C3%BCro+%26+co&description=&severity=3&tlp=1&follow=false&tags=a"
    )
    alert = await form(core, "POST", "/api/alert", fields)
    shown = {name: alert[name] for name in ("title", "description", "severity", "tlp", "follow", "tags")}
    assert shown == {"title": "Büro & co", "description": "", "severity": 3, "tlp": 1, "follow": False, "tags": ["a"]}
    path = f"/api/alert/{alert['id']}"
    changed = await form(core, "PATCH", path, b"tags=b&tags=c&customFields.unit.string=HR", 200)
    assert (changed["tags"], changed["customFields"]["unit"]["string"]) == (["b", "c"], "HR")
    added = await form(core, "POST", f"{path}/artifact", b"dataType=ip&data=192.0.2.1&data=192.0.2.2&ioc=1&tags[]=x")
    assert [(item["data"], item["ioc"], item["tags"]) for item in added] == [
        ("192.0.2.1", True, ["x"]),
        ("192.0.2.2", True, ["x"]),
    ]
    assert (await form(core, "POST", f"/api/v1{path[4:]}/case", b"title=From+a+form&tlp=3"))["title"] == "From a form"


async def test_json_that_curl_calls_a_form_is_json(core: RunningCore) -> None:
    for number, body in enumerate(
        (b' {"title": "t", "description": "a=b&c"}', b'\n{"title":"t","description":"a=b&c"}')
    ):
        case = await form(core, "POST", "/api/case", body)
        assert case["description"] == "a=b&c", number
    await form(core, "POST", "/api/case", b"[1]", 400)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"title=t&severity=high&description=d", {"severity"}),
        (b"title=t&title=u&description=d&tlp=9", {"title", "tlp"}),
        (b"title=&description=d&tasks=x&customFields=y", {"title", "tasks[0]", "customFields"}),
        (b"title", {"title", "description"}),
    ],
)
async def test_wrong_fields_of_a_form_are_named(core: RunningCore, content: bytes, wrong: set[str]) -> None:
    refused = await form(core, "POST", "/api/case", content, 400)
    assert {error["name"] for error in refused["errors"]} == wrong


@pytest.mark.parametrize("content", [b"title=%ff&description=d", "title=ü".encode(), b"a=&" * 30_001, b"title=%00%"])
async def test_what_is_neither_json_nor_a_form_is_refused(core: RunningCore, content: bytes) -> None:
    assert (await form(core, "POST", "/api/case", content, 400))["type"] in ("BadRequest", "AttributeCheckingError")


async def test_truncated_json_is_a_bad_request(core: RunningCore) -> None:
    answer: httpx.Response = await core.send("POST", "/api/alert", content=b'{"type": "siem"')
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequest")
    assert "not valid JSON" in answer.json()["message"]


async def test_responses_do_not_wait_for_a_delayed_ack(core: RunningCore) -> None:
    """A listener that keeps Nagle's algorithm answers each request after the 40 ms of a delayed acknowledgement."""
    times = []
    for _ in range(21):
        started = time.perf_counter()
        await core.http.get("/api/event")
        times.append(time.perf_counter() - started)
    assert min(times[10:]) < 0.03, times  # the first ones are not waited for even then
