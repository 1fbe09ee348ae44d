"""`semantics.md 1`, rule by rule, where no other test holds it: the common rules of the wire."""

import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path_factory.mktemp("core")) as running:
        yield running


async def made(core: RunningCore, path: str, body: Any) -> dict[str, Any]:
    answer = await core.send("POST", path, body)
    assert answer.status_code == 201, answer.text
    word: dict[str, Any] = answer.json()
    return word


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


# --- who asks -------------------------------------------------------------------------------------------------------


async def test_without_a_key_every_address_and_method_below_api_is_401(core: RunningCore) -> None:
    paths = {endpoint.path.replace("{", "").replace("}", "") for endpoint in core.core.endpoints}
    paths |= {path.replace("/engine/", "/cortex/") for path in paths}
    paths |= {"/api", "/api/", "/api/nothing", "/api/alert/~1/nothing", "/api/docs/x", "/api/openapi.json/x"}
    for path in sorted(path for path in paths if path not in ("/api/docs", "/api/openapi.json", "/health", "/metrics")):
        for method in METHODS:
            answer = await core.http.request(method, path)
            assert answer.status_code == 401, (method, path)
            if method != "HEAD":
                body = answer.json()
                assert (body["type"], body["message"]) == ("AuthenticationError", "Authentication failure")


async def test_the_open_addresses_know_other_methods_too(core: RunningCore) -> None:
    for path in ("/api/docs", "/api/openapi.json", "/health", "/metrics"):
        answers = [(await core.http.request(method, path)).status_code for method in ("GET", "HEAD", "POST")]
        assert answers == [200, 200, 405], path


async def test_a_login_of_basic_may_leave_out_the_domain_and_take_any_case(core: RunningCore) -> None:
    key = await core.key("analyst")
    statuses = {}
    for login in ("analyst", "ANALYST", "Analyst@Responder-Bot.Local", "read-only", "analyst@example.org", ""):
        basic = base64.b64encode(f"{login}:{key}".encode()).decode()
        answer = await core.http.get("/api/user/current", headers={"Authorization": f"Basic {basic}"})
        statuses[login] = answer.status_code
    assert list(statuses.values()) == [200, 200, 200, 401, 401, 401]


async def test_a_key_and_a_user_end_in_every_process_with_the_next_request(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here, running_core(tmp_path) as there:
        key = await here.key("analyst")
        headers = {"Authorization": f"Bearer {key}"}
        before = await there.http.get("/api/user/current", headers=headers)
        renewed = {"Authorization": f"Bearer {await here.core.access.new_key('analyst')}"}
        after = [(await there.http.get("/api/user/current", headers=sent)).status_code for sent in (headers, renewed)]
        await here.core.access.disable("analyst")
        gone = await there.http.get("/api/user/current", headers=renewed)
    assert (before.status_code, after, gone.status_code) == (200, [401, 200], 401)


# --- acting for somebody --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("login", "named"),
    [
        ("nobody", "nobody@responder-bot.local"),
        ("Gone@Responder-Bot.Local", "gone@responder-bot.local"),
        ("service", "service@responder-bot.local"),
        ("other-bot", "other-bot@responder-bot.local"),
        ("", "@responder-bot.local"),
    ],
)
async def test_who_can_not_be_acted_for_is_named(core: RunningCore, login: str, named: str) -> None:
    await core.key("service", "other-bot")
    await core.key("analyst", "gone")
    await core.core.access.disable("gone")
    answer = await core.send("GET", "/api/event", profile="service", headers={"X-On-Behalf-Of": login})
    body = answer.json()
    assert (answer.status_code, body["type"]) == (403, "AuthorizationError")
    assert body["message"] == f"User {named} is unknown or disabled"


async def test_a_wrong_key_is_401_whomever_it_wants_to_act_for(core: RunningCore) -> None:
    headers = {"Authorization": "Bearer wrong", "X-On-Behalf-Of": "analyst"}
    assert (await core.send("GET", "/api/event", profile=None, headers=headers)).status_code == 401


async def test_who_may_not_act_for_others_is_told_so_even_for_oneself(core: RunningCore) -> None:
    answer = await core.send("GET", "/api/event", profile="org-admin", headers={"X-On-Behalf-Of": "org-admin"})
    words = "You are not authorized to act for somebody else, you haven't the permission actOnBehalf"
    assert (answer.status_code, answer.json()["message"]) == (403, words)


async def test_the_rights_are_the_users_less_managing_users(core: RunningCore) -> None:
    await core.key("org-admin")
    await core.key("read-only")
    lead = await core.send("GET", "/api/user/current", profile="service", headers={"X-On-Behalf-Of": "org-admin"})
    reader = {"X-On-Behalf-Of": "read-only"}
    refused = await core.send("POST", "/api/alert", ALERT, profile="service", headers=reader)
    assert (lead.json()["login"], lead.json()["permissions"]) == (
        "org-admin@responder-bot.local",
        ["manageAction", "manageAlert", "manageCase", "manageCaseTemplate", "manageTask"],
    )
    words = "You are not authorized to create alert, you haven't the permission manageAlert"
    assert (refused.status_code, refused.json()["message"]) == (403, words)


async def test_the_record_names_both_who_acted_and_through_whose_key(core: RunningCore) -> None:
    await core.key("analyst")
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "audit"})
    body = {"responderId": "ResponderBot_CloseAsFalsePositive_1_0", "objectType": "alert", "objectId": alert["id"]}
    with capture_logs() as logs:
        for_her = {"X-On-Behalf-Of": "analyst"}
        started = await core.send("POST", f"{ENGINE}/action", body, profile="service", headers=for_her)
    row = core.core.database.row(
        "SELECT created_by, acted_through FROM action WHERE id = :id", {"id": int(started.json()["id"][1:])}
    )
    both = ("analyst@responder-bot.local", "service@responder-bot.local")
    assert row is not None
    assert (row["created_by"], row["acted_through"]) == both
    assert [(line["login"], line["key_owner"]) for line in logs if line["event"] == "request_answered"] == [both]


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "permissions"),
    [
        ("analyst", ["manageAction", "manageAlert", "manageCase", "manageTask"]),
        (
            "org-admin",
            ["manageAction", "manageAlert", "manageCase", "manageCaseTemplate", "manageTask", "manageUser"],
        ),
        ("read-only", []),
        ("service", ["actOnBehalf"]),
    ],
)
async def test_a_profile_is_its_permissions(core: RunningCore, profile: Any, permissions: list[str]) -> None:
    assert (await core.send("GET", "/api/user/current", profile=profile)).json()["permissions"] == permissions


async def test_whoever_has_a_key_may_read_everything(core: RunningCore) -> None:
    reads = [endpoint for endpoint in core.core.endpoints if not endpoint.writes and not endpoint.is_public]
    assert len(reads) > 15
    for endpoint in reads:
        path = endpoint.path.replace("{kind}", "alert").replace("{", "").replace("}", "")
        body: Any = {} if endpoint.method == "POST" else None
        answer = await core.send(endpoint.method, path, body, profile="read-only")
        assert (answer.status_code == 403) == ("/by-slack/" in path), (endpoint.method, path, answer.text)


async def test_whoever_has_no_right_is_refused_every_change(core: RunningCore) -> None:
    # What is unknown is ignored, so that one body suits all.
    anything = {
        **ALERT,
        "name": "n",
        "message": "m",
        "dataType": "ip",
        "data": "a",
        "responderId": "r",
        "objectType": "alert",
        "objectId": "~1",
        "ids": ["~9"],
        "alertIds": ["~9"],
        "caseId": "~9",
    }
    changes = [endpoint for endpoint in core.core.endpoints if endpoint.permission and endpoint.writes]
    assert len(changes) > 12
    for endpoint in changes:
        body = None if endpoint.method == "DELETE" else anything
        answer = await core.send(endpoint.method, endpoint.path.replace("{id}", "~9"), body, profile="read-only")
        words = f"You are not authorized to {endpoint.purpose}, you haven't the permission {endpoint.permission}"
        assert answer.status_code == 403, (endpoint.path, answer.text)
        assert answer.json()["type"] == "AuthorizationError"
        assert answer.json()["message"].startswith(words)
        if endpoint.path == f"{ENGINE}/action":
            assert answer.json()["message"] == f"{words} (manageTask)"


# --- addresses ------------------------------------------------------------------------------------------------------


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
async def test_a_wrong_method_is_405_and_never_an_object_called_like_the_address(
    core: RunningCore, method: str, path: str, allowed: str
) -> None:
    answer = await core.send(method, path)
    assert (answer.status_code, answer.json()["type"], answer.headers["allow"]) == (405, "MethodNotAllowed", allowed)


async def test_a_template_may_be_called_like_an_address_of_another_method(core: RunningCore) -> None:
    made = await core.send("POST", "/api/case/template", {"name": "_search"})
    assert made.status_code == 201
    found = await core.send("GET", "/api/case/template/_search")
    assert (found.status_code, found.json()["_id"]) == (200, made.json()["_id"])
    searched = await core.send("POST", "/api/case/template/_search", {"query": {"_field": "name", "_value": "_search"}})
    assert [template["_id"] for template in searched.json()] == [made.json()["_id"]]


async def test_ids_share_one_number_space_and_may_be_escaped_in_addresses(core: RunningCore) -> None:
    objects = await one_of_each(core, "ids")
    ids = []
    for path, word in objects.items():
        assert word["_id"] == word["id"]
        ids.append(word["id"])
        found = [
            (await core.send("GET", f"{path}/{spelled}")).json()["id"]
            for spelled in (word["id"], f"%7E{word['id'][1:]}", f"%7e{word['id'][1:]}")
        ]
        assert found == [word["id"]] * 3
    ids += [word["id"] for word in objects["/api/alert"]["artifacts"] + objects["/api/case/template"]["tasks"]]
    assert len(set(ids)) == len(ids)
    assert all(id[0] == "~" and len(id) < 6 for id in ids)


async def test_what_is_not_there_is_named_by_its_kind(core: RunningCore) -> None:
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


async def test_a_parameter_that_is_repeated_is_read_as_a_list(core: RunningCore) -> None:
    for title, number in (("b", 1), ("a", 1), ("a", 2)):
        await made(core, "/api/alert", {**ALERT, "type": "order", "sourceRef": f"{title}{number}", "title": title})
    query = {"query": {"type": "order"}}
    found = (await core.send("POST", "/api/alert/_search?sort=title&sort=-createdAt&sort=-sourceRef", query)).json()
    joined = (await core.send("POST", "/api/alert/_search?sort=title,-createdAt,-sourceRef", query)).json()
    assert [alert["sourceRef"] for alert in found] == ["a2", "a1", "b1"]
    assert joined == found


# --- fields ---------------------------------------------------------------------------------------------------------


async def test_what_is_absent_is_null_in_alerts_and_cases_and_left_out_elsewhere(core: RunningCore) -> None:
    objects = await one_of_each(core, "absent")
    nulls = {path: [key for key, value in word.items() if value is None] for path, word in objects.items()}
    assert nulls == {
        "/api/alert": ["updatedBy", "updatedAt", "externalLink", "case", "caseTemplate"],
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
    for path, word in objects.items():
        assert isinstance(word["createdAt"], int)
        assert word["createdAt"] > 1_700_000_000_000, path


async def test_all_wrong_fields_of_all_depths_are_named_at_once(core: RunningCore) -> None:
    wrong = {
        "type": 5,
        "source": None,
        "title": "",
        "severity": 0,
        "tags": ["fine", 5, None],
        "artifacts": [{"dataType": "ip", "data": "a"}, {"data": "b", "tlp": 4}, "rubbish"],
        "customFields": {"a": {"integer": "x"}, "b": {"date": True}},
    }
    body = (await core.send("POST", "/api/alert", wrong)).json()
    assert body["type"] == "AttributeCheckingError"
    assert {(error["name"], error["type"].removesuffix("AttributeError")) for error in body["errors"]} == {
        ("type", "InvalidFormat"),
        ("source", "Missing"),
        ("sourceRef", "Missing"),
        ("title", "InvalidFormat"),
        ("description", "Missing"),
        ("severity", "InvalidFormat"),
        ("tags[1]", "InvalidFormat"),
        ("tags[2]", "InvalidFormat"),
        ("artifacts[1].dataType", "Missing"),
        ("artifacts[1].tlp", "InvalidFormat"),
        ("artifacts[2]", "InvalidFormat"),
        ("customFields.a.integer", "InvalidFormat"),
        ("customFields.b.date", "InvalidFormat"),
    }
    assert "[Attribute sourceRef is missing]" in body["message"]


async def test_a_number_without_a_fraction_is_an_integer_however_it_is_written(core: RunningCore) -> None:
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


async def test_a_body_that_is_not_read_to_its_end_names_what_is_wrong(core: RunningCore) -> None:
    answer: httpx.Response = await core.send("POST", "/api/alert", content=b'{"type": "siem"')
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequest")
    assert "not valid JSON" in answer.json()["message"]


async def test_an_answer_does_not_wait_for_the_client_to_nod(core: RunningCore) -> None:
    """A listener that keeps Nagle's algorithm answers each request after the 40 ms of a delayed acknowledgement."""
    times = []
    for _ in range(21):
        started = time.perf_counter()
        await core.http.get("/api/event")
        times.append(time.perf_counter() - started)
    assert min(times[10:]) < 0.03, times  # the first ones are not waited for even then
