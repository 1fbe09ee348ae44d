"""Version 1 of the interface: field names and queries."""

from collections.abc import Sequence
from typing import Any

import pytest

from core.authorization import COMMAND_LINE
from tests.core.running import RunningCore

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
CASE = {"title": "Beacons", "description": "On three hosts"}
LIST = {"_name": "listAlert"}


async def run_query(core: RunningCore, *steps: Any, status: int = 200) -> Any:
    answer = await core.send("POST", "/api/v1/query", {"query": list(steps)}, profile="read-only")
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_query_filters_sorts_pages_and_counts(core: RunningCore) -> None:
    for reference in "abc":
        await core.send("POST", "/api/alert", {**ALERT, "sourceRef": reference})
    some = {"_name": "filter", "_or": [{"_field": "sourceRef", "_value": "a"}, {"_eq": {"sourceRef": "c"}}]}
    down = {"_name": "sort", "_fields": [{"_createdBy": "asc"}, {"sourceRef": "desc"}]}
    first = {"_name": "page", "from": 0, "to": 1, "extraData": []}
    assert [item["sourceRef"] for item in await run_query(core, LIST, some, down)] == ["c", "a"]
    assert [item["sourceRef"] for item in await run_query(core, LIST, some, down, first)] == ["c"]
    assert await run_query(core, LIST, some, {"_name": "count"}) == 2
    mine = {"_name": "filter", "_createdBy": "org-admin@responder-bot.local"}
    assert await run_query(core, LIST, mine, {"_name": "count"}) == 3


INVALID: Sequence[list[Any]] = (
    [],
    ["listAlert"],
    [{"_name": "listNothing"}],
    [{"_name": ["listAlert"]}],
    [{"_name": "getAlert"}],
    [{"_name": "getAlert", "idOrName": 1}],
    [LIST, {"_name": "tasks"}],
    [LIST, {"_name": "filter", "_like": 1}],
    [LIST, {"_name": "filter", "_field": "nothing", "_value": 1}],
    [LIST, {"_name": "sort", "_fields": [{"title": "asc", "tlp": "asc"}]}],
    [LIST, {"_name": "sort", "_fields": ["title"]}],
    [LIST, {"_name": "sort", "_fields": [{"nothing": "asc"}]}],
    [LIST, {"_name": "page", "from": 2, "to": 1}],
    [LIST, {"_name": "page", "from": True, "to": 1}],
    [LIST, *[{"_name": "count"}] * 20],
)


async def test_an_invalid_query_is_a_400(core: RunningCore) -> None:
    for steps in INVALID:
        assert (await run_query(core, *steps, status=400))["type"] == "BadRequest"
    no_queries: Sequence[Any] = (None, [], 1, {}, {"query": {}}, {"query": None})
    for body in no_queries:
        assert (await core.send("POST", "/api/v1/query", body)).status_code == 400


async def test_a_query_only_reads_so_the_bots_key_may_send_it(core: RunningCore) -> None:
    body = {"query": [{"_name": "listAlert"}]}
    assert (await core.send("POST", "/api/v1/query", body, profile="service")).status_code == 200


async def test_a_missing_object_is_a_404(core: RunningCore) -> None:
    assert (await run_query(core, {"_name": "getAlert", "idOrName": "~9"}, status=404))["message"] == "Alert not found"


async def test_an_action_is_found_by_its_object_with_the_vendors_field_names(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/alert", ALERT)).json()
    run = {
        "responderId": "ResponderBot_CloseAsFalsePositive_1_0",
        "objectType": "alert",
        "objectId": alert["id"],
    }
    action = (await core.send("POST", "/api/connector/engine/action", run)).json()
    of_alert = {"_name": "filter", "_and": [{"_field": "objectId", "_value": alert["id"]}, {"cortexId": "local"}]}
    (found,) = await run_query(core, {"_name": "listAction"}, of_alert)
    assert (found["_id"], found["_type"], found["cortexJobId"]) == (action["id"], "Action", action["engineJobId"])
    assert not [key for key in found if key.startswith("engine")]
    assert await run_query(core, {"_name": "listAction"}, {"_name": "filter", "objectId": "~999"}) == []
    like = {"_name": "filter", "_like": {"objectId": "~*"}}
    assert await run_query(core, {"_name": "listAction"}, like, {"_name": "count"}) == 1


async def test_an_alert_of_version_1_is_the_same_alert(core: RunningCore) -> None:
    sent = {
        **ALERT,
        "observables": [{"dataType": "ip", "data": "192.0.2.7"}],
        "customFields": [{"name": "unit", "value": "HR"}, {"name": "none"}],
    }
    made = (await core.send("POST", "/api/v1/alert", sent)).json()
    own = (await core.send("GET", f"/api/alert/{made['_id']}")).json()
    assert [item["data"] for item in own["artifacts"]] == ["192.0.2.7"]
    assert list(own["customFields"]) == ["unit", "none"]
    assert [item.get("value") for item in made["customFields"]] == ["HR", None]
    refused = await core.send("POST", "/api/v1/alert", {**sent, "sourceRef": "2", "tlp": 9})
    assert [item["name"] for item in refused.json()["errors"]] == ["tlp"]


STAMPS = {"_id", "_type", "_createdBy", "_createdAt", "_updatedBy", "_updatedAt"}
LABELS = {"severity", "severityLabel", "tlp", "tlpLabel", "pap", "papLabel"}
SHAPES: dict[str, tuple[set[str], set[str]]] = {
    "Alert": (
        LABELS
        | {"type", "source", "sourceRef", "title", "description", "date", "follow", "observableCount", "status"}
        | {"stage", "extraData", "newDate", "timeToDetect"},
        {"externalLink", "tags", "customFields", "caseTemplate", "caseId", "assignee"},
    ),
    "Case": (
        LABELS
        | {"number", "title", "description", "startDate", "flag", "status", "stage", "access", "extraData", "newDate"}
        | {"timeToDetect"},
        {"endDate", "tags", "summary", "impactStatus", "assignee", "customFields"},
    ),
    "Task": (
        {"title", "group", "status", "flag", "order", "mandatory", "extraData"},
        {"description", "startDate", "endDate", "assignee", "dueDate"},
    ),
    "Log": ({"message", "date", "owner", "extraData"}, set()),
    "Observable": (
        {"dataType", "startDate", "tlp", "tlpLabel", "pap", "papLabel", "ioc", "sighted", "reports", "extraData"}
        | {"ignoreSimilarity", "external"},
        {"data", "tags", "message"},
    ),
    "CaseTemplate": (
        {"name", "displayName", "flag", "extraData"},
        LABELS | {"titlePrefix", "description", "tags", "customFields", "tasks"},
    ),
    "Action": (
        {"responderId", "objectType", "objectId", "status", "startDate", "operations", "report"},
        {"responderName", "responderDefinition", "cortexId", "cortexJobId", "endDate"},
    ),
    "User": (
        {"login", "name", "hasKey", "hasPassword", "hasMFA", "locked", "profile", "organisation", "type", "extraData"},
        {"permissions"},
    ),
}
"""What a strict client of version 1 needs in an answer, and what else it knows; it refuses everything beyond."""


def is_strict(kind: str, shown: dict[str, Any]) -> None:
    needed, known = SHAPES[kind]
    assert shown.get("_type", "User") == kind
    assert (needed | {"_id", "_createdBy", "_createdAt"}) - set(shown) == set()
    assert set(shown) - needed - known - STAMPS == set()


async def test_strict_clients_accept_every_object(core: RunningCore) -> None:
    async def sent(method: str, path: str, body: Any = None) -> Any:
        answer = await core.send(method, f"/api/v1{path}", body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    observable = {"dataType": "ip", "data": "192.0.2.7"}
    alert = await sent("POST", "/alert", {**ALERT, "observables": [observable]})
    is_strict("Alert", alert)
    is_strict("Alert", await sent("PATCH", f"/alert/{alert['_id']}", {"tlp": 3, "customFields": {"unit": "HR"}}))
    is_strict("Observable", (await sent("POST", f"/alert/{alert['_id']}/observable", observable))[0])
    nothing = await core.send("POST", f"/api/v1/alert/{alert['_id']}/case", content=b"null")
    case = nothing.json()
    is_strict("Case", case)
    is_strict(
        "Observable", (await sent("POST", f"/case/{case['_id']}/observable", {**observable, "tlp": 0, "data": "x"}))[0]
    )
    task = await sent("POST", f"/case/{case['_id']}/task", {"title": "t"})
    is_strict("Task", task)
    is_strict("Log", await sent("POST", f"/task/{task['_id']}/log", {"message": "m"}))
    template = await sent("POST", "/caseTemplate", {"name": "T", "tasks": [{"title": "t"}]})
    is_strict("CaseTemplate", template)
    is_strict("Task", template["tasks"][0])
    is_strict("User", await sent("GET", "/user/current"))
    for kind in ("Alert", "Case", "Task", "Log", "Observable", "CaseTemplate"):
        found = await run_query(core, {"_name": f"list{kind}"})
        assert found
        for item in found:
            is_strict(kind, item)


async def test_responders_run_under_the_prefix_of_version_1(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/v1/alert", ALERT)).json()["_id"]
    base = "/api/v1/connector/cortex"
    offered = (await core.send("GET", f"{base}/responder/alert/{alert}")).json()
    assert set(offered[0]) == {"id", "name", "version", "description", "dataTypeList", "cortexIds"}
    run = {"responderId": offered[0]["id"], "objectType": "alert", "objectId": alert, "cortexId": "local"}
    made = await core.send("POST", f"{base}/action", run)
    assert made.status_code == 201, made.text
    is_strict("Action", made.json())
    assert (made.json()["status"], made.json()["cortexId"]) == ("Waiting", "local")
    for path in (f"{base}/action/alert/{alert}", f"{base}/action/responder/alert/{alert}"):
        (listed,) = (await core.send("GET", path)).json()
        is_strict("Action", listed)
        assert listed["cortexJobId"] == made.json()["cortexJobId"]
    missing = await core.send("POST", f"{base}/action", {**run, "objectType": "case_task_log", "objectId": "~9"})
    assert missing.json()["message"] == "Log not found"
    wrong = await core.send("POST", f"{base}/action", {**run, "cortexId": 7})
    assert [error["name"] for error in wrong.json()["errors"]] == ["cortexId"]


async def test_a_query_gets_the_observables_of_an_alert(core: RunningCore) -> None:
    observables = [{"dataType": "domain", "data": name} for name in ("b.example", "a.example", "c.example")]
    alert = (await core.send("POST", "/api/v1/alert", {**ALERT, "observables": observables})).json()["_id"]
    of_alert = [{"_name": "getAlert", "idOrName": alert}, {"_name": "observables"}]
    assert [item["data"] for item in await run_query(core, *of_alert)] == ["b.example", "a.example", "c.example"]
    down = {"_name": "sort", "_fields": [{"data": "desc"}]}
    page = {"_name": "page", "from": 1, "to": 2}
    assert [item["data"] for item in await run_query(core, *of_alert, down, page)] == ["b.example"]
    assert await run_query(core, *of_alert, {"_name": "count"}) == 3


async def test_observables_of_alerts_are_filtered(core: RunningCore) -> None:
    of_first = [{"dataType": "domain", "data": "b.example", "tags": ["c2"]}, {"dataType": "ip", "data": "192.0.2.9"}]
    alert = (await core.send("POST", "/api/v1/alert", {**ALERT, "observables": of_first})).json()["_id"]
    other = {
        **ALERT,
        "sourceRef": "2",
        "observables": [{"dataType": "ip", "data": "192.0.2.10", "tlp": 3, "ioc": True}],
    }
    await core.send("POST", "/api/v1/alert", other)
    of_alert = [{"_name": "getAlert", "idOrName": alert}, {"_name": "observables"}]

    async def data(*steps: Any) -> list[str]:
        return [item["data"] for item in await run_query(core, *steps)]

    assert await data(*of_alert, {"_name": "filter", "dataType": "ip"}) == ["192.0.2.9"]
    assert await data(*of_alert, {"_name": "filter", "_eq": {"_field": "tags", "_value": "c2"}}) == ["b.example"]
    assert await data(*of_alert, {"_name": "filter", "_not": {"_like": {"data": "*.example"}}}) == ["192.0.2.9"]
    of_all = [LIST, {"_name": "observables"}]
    addresses = {"_name": "filter", "_in": {"_field": "dataType", "_values": ["ip", "url"]}}
    down = {"_name": "sort", "_fields": [{"tlp": "desc"}]}
    assert await data(*of_all, addresses, down) == ["192.0.2.10", "192.0.2.9"]
    assert await data(*of_all, addresses, down, {"_name": "page", "from": 1, "to": 5}) == ["192.0.2.9"]
    assert await run_query(core, *of_all, addresses, {"_name": "filter", "ioc": True}, {"_name": "count"}) == 1
    (found,) = await run_query(core, *of_all, {"_name": "filter", "keyword": "192.0.2.10"})
    is_strict("Observable", found)
    by_id = {"_name": "filter", "_id": found["_id"]}
    assert await data(*of_all, by_id) == ["192.0.2.10"]
    refused = await run_query(core, *of_alert, {"_name": "filter", "colour": "red"}, status=400)
    assert refused["message"].startswith("There is no field 'colour'; there are _id")


async def test_a_case_made_of_an_alert_has_what_the_request_says(core: RunningCore) -> None:
    sent = {**ALERT, "tags": ["a"], "severity": 1, "customFields": {"unit": "HR", "score": 1}}
    alert = (await core.send("POST", "/api/v1/alert", sent)).json()["_id"]
    asked = {
        "title": "Beacon on web-1",
        "severity": 4,
        "tlp": 3,
        "tags": ["b", "a"],
        "flag": True,
        "assignee": "ben@soc.example",
        "customFields": [{"name": "score", "value": 7}],
        "tasks": [{"title": "Look", "assignee": "carl@soc.example"}],
        "startDate": 7,
    }
    answer = await core.send("POST", f"/api/v1/alert/{alert}/case", asked)
    assert answer.status_code == 201, answer.text
    case = answer.json()
    is_strict("Case", case)
    for name in ("title", "severity", "tlp", "flag", "assignee", "startDate"):
        assert case[name] == asked[name]
    assert (case["description"], case["pap"], case["tags"]) == (ALERT["description"], 2, ["a", "b"])
    assert {field["name"]: field["value"] for field in case["customFields"]} == {"unit": "HR", "score": 7}
    (task,) = await run_query(core, {"_name": "getCase", "idOrName": case["_id"]}, {"_name": "tasks"})
    assert (task["title"], task["assignee"]) == ("Look", "carl@soc.example")
    wrong = await core.send("POST", f"/api/v1/alert/{alert}/case", {"title": "", "tlp": 4})
    assert {error["name"] for error in wrong.json()["errors"]} == {"title", "tlp"}


async def test_nobody_can_be_the_assignee(core: RunningCore) -> None:
    case = (await core.send("POST", "/api/v1/case", {**CASE, "assignee": None})).json()
    assert case["assignee"] == "org-admin@responder-bot.local"
    task = (await core.send("POST", f"/api/v1/case/{case['_id']}/task", {"title": "t", "assignee": "ben"})).json()
    for path in (f"/case/{case['_id']}", f"/task/{task['_id']}"):
        for nobody in (None, ""):
            assert (await core.send("PATCH", f"/api/v1{path}", {"assignee": "ben"})).json()["assignee"] == "ben"
            answer = await core.send("PATCH", f"/api/v1{path}", {"assignee": nobody})
            assert (answer.status_code, answer.json().get("assignee")) == (200, None)
    case = (await core.send("GET", f"/api/case/{case['_id']}")).json()
    assert case["owner"] is None
    unassigned = {"_name": "filter", "_not": {"_contains": "assignee"}}
    assert await run_query(core, {"_name": "listCase"}, unassigned, {"_name": "count"}) == 1
    owned = await core.send("PATCH", f"/api/case/{case['_id']}", {"owner": "ben", "tlp": 1})
    again = await core.send("PATCH", f"/api/case/{case['_id']}", {"owner": None, "tlp": 2})
    assert (owned.json()["owner"], again.json()["owner"]) == ("ben", "ben")  # null means absent there


CLOSED = ("TruePositive", "FalsePositive", "Indeterminate", "Other")


async def test_a_case_of_version_1_has_its_statuses(core: RunningCore) -> None:
    made = {status: (await core.send("POST", "/api/v1/case", CASE)).json() for status in ("New", *CLOSED, "Duplicated")}
    for status, case in made.items():
        assert (case["status"], case["stage"]) == ("New", "New")
        changed = (await core.send("PATCH", f"/api/v1/case/{case['_id']}", {"status": status})).json()
        assert (changed["status"], changed["stage"]) == (status, "New" if status == "New" else "Closed")
        is_strict("Case", changed)
    own = {status: (await core.send("GET", f"/api/case/{case['_id']}")).json() for status, case in made.items()}
    assert [own[status]["status"] for status in own] == ["Open", *["Resolved"] * 4, "Duplicate"]
    assert own["TruePositive"]["resolutionStatus"] == "TruePositive"
    resolved = (await core.send("POST", "/api/v1/case", CASE)).json()["_id"]
    await core.send("PATCH", f"/api/case/{resolved}", {"status": "Resolved"})
    everything = {status: {case["_id"]} for status, case in made.items()}
    everything["Other"].add(resolved)

    async def found(**criterion: Any) -> set[str]:
        return {item["_id"] for item in await run_query(core, {"_name": "listCase"}, {"_name": "filter", **criterion})}

    for status, ids in everything.items():
        assert await found(status=status) == await found(_field="status", _value=status) == ids
        assert (
            await found(_and=[{"_eq": {"status": status}}, {"_eq": {"_field": "title", "_value": CASE["title"]}}])
            == ids
        )
        rest = set().union(*everything.values()) - ids
        assert await found(_ne={"_field": "status", "_value": status}) == rest
        assert await found(_not={"_in": {"_field": "status", "_values": [status]}}) == rest
    several = {"_field": "status", "_values": ["New", "Duplicated", "Resolved"]}
    assert await found(_in=several) == set().union(*everything.values())
    assert await found(_or=[{"status": "New"}, {"status": "Other"}]) == everything["New"] | everything["Other"]
    assert await found(status="nonsense") == set()
    refused = await core.send("PATCH", f"/api/v1/case/{resolved}", {"status": "InProgress"})
    assert (refused.status_code, refused.json()["message"]) == (
        400,
        "A case has one of the statuses New, TruePositive, FalsePositive, Indeterminate, Other, Duplicated, Deleted;"
        " choose one of them.",
    )
    for word in ("Open", "Resolved", "Duplicate"):
        assert (await core.send("PATCH", f"/api/v1/case/{resolved}", {"status": word})).status_code == 200
    await run_query(
        core, {"_name": "listCase"}, {"_name": "filter", "_in": {"_field": "status", "_values": [7]}}, status=400
    )


@pytest.mark.parametrize("prefix", ["/api/v1/alert/{alert}", "/api/v1/case/{case}"])
async def test_the_data_type_of_an_observable_is_changed(core: RunningCore, prefix: str) -> None:
    alert = (await core.send("POST", "/api/v1/alert", ALERT)).json()["_id"]
    case = (await core.send("POST", "/api/v1/case", CASE)).json()["_id"]
    path = f"{prefix.format(alert=alert, case=case)}/observable"
    one, two = [
        (await core.send("POST", path, {"dataType": kind, "data": "evil.example"})).json()[0]["_id"]
        for kind in ("other", "domain")
    ]
    refused = await core.send("PATCH", f"/api/v1/observable/{one}", {"dataType": "domain"})
    assert (refused.status_code, refused.json()["type"]) == (400, "CreateError")
    assert refused.json()["message"].endswith("has this domain already.")
    changed = (await core.send("PATCH", f"/api/v1/observable/{one}", {"dataType": "fqdn", "tlp": 3})).json()
    assert (changed["dataType"], changed["tlp"], changed["_id"]) == ("fqdn", 3, one)
    assert (await core.send("PATCH", f"/api/v1/observable/{two}", {"dataType": "other"})).json()["dataType"] == "other"
    file = await core.send("PATCH", f"/api/v1/observable/{one}", {"dataType": "file"})
    assert (file.status_code, file.json()["type"]) == (400, "BadRequest")
    if "case" in prefix:
        again = await core.send("POST", path, {"dataType": "fqdn", "data": "evil.example"})
        assert (again.status_code, again.json()["type"]) == (400, "CreateError")
        assert (await core.send("POST", path, {"dataType": "domain", "data": "evil.example"})).status_code == 201


async def test_an_observable_of_an_alert_in_a_case_changes_its_type_in_both(core: RunningCore) -> None:
    observable = {"dataType": "other", "data": "evil.example"}
    alert = (await core.send("POST", "/api/v1/alert", {**ALERT, "observables": [observable]})).json()["_id"]
    case = (await core.send("POST", f"/api/v1/alert/{alert}/case", {})).json()["_id"]
    (shown,) = (await core.send("GET", f"/api/alert/{alert}")).json()["artifacts"]
    later = (await core.send("POST", f"/api/v1/alert/{alert}/observable", {**observable, "dataType": "fqdn"})).json()
    taken = await core.send("PATCH", f"/api/v1/observable/{shown['id']}", {"dataType": "fqdn"})
    assert (taken.status_code, taken.json()["message"]) == (400, f"The alert {alert} has this fqdn already.")
    await core.send("PATCH", f"/api/v1/observable/{shown['id']}", {"dataType": "domain"})
    artifacts = (await core.send("GET", f"/api/alert/{alert}")).json()["artifacts"]
    assert [(item["id"], item["dataType"]) for item in artifacts] == [
        (shown["id"], "domain"),
        (later[0]["_id"], "fqdn"),
    ]
    of_case = [{"_name": "getCase", "idOrName": case}, {"_name": "observables"}]
    assert [item["dataType"] for item in await run_query(core, *of_case)] == ["domain"]


async def test_a_query_gets_the_children_of_an_object(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/v1/alert", ALERT)).json()["_id"]
    await core.send("POST", "/api/v1/alert", {**ALERT, "sourceRef": "2"})
    run = {"responderId": "ResponderBot_CloseAsFalsePositive_1_0", "objectType": "alert", "objectId": alert}
    action = (await core.send("POST", "/api/v1/connector/cortex/action", run)).json()["_id"]
    case = (await core.send("POST", f"/api/v1/alert/{alert}/case", {})).json()["_id"]
    of_alert, of_case = {"_name": "getAlert", "idOrName": alert}, {"_name": "getCase", "idOrName": case}
    assert [item["_id"] for item in await run_query(core, of_alert, {"_name": "actions"})] == [action]
    assert [item["_id"] for item in await run_query(core, of_case, {"_name": "alerts"})] == [alert]
    assert await run_query(core, of_case, {"_name": "actions"}, {"_name": "count"}) == 0
    await run_query(core, {"_name": "listCase"}, {"_name": "alerts"}, status=400)
    for never in ("comments", "procedures", "attachments", "similarAlerts", "similarCases"):
        page = {"_name": "page", "from": 0, "to": 5}
        assert await run_query(core, of_alert, {"_name": never}, page) == []
        assert await run_query(core, {"_name": "listAlert"}, {"_name": never}, {"_name": "count"}) == 0


async def test_fields_of_version_1_can_be_searched_under_its_names(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/v1/alert", ALERT)).json()["_id"]
    case = (await core.send("POST", f"/api/v1/alert/{alert}/case", {})).json()
    assert [item["_id"] for item in await run_query(core, LIST, {"_name": "filter", "caseId": case["_id"]})] == [alert]
    by_number = {"_name": "filter", "_field": "number", "_value": case["number"]}
    assert await run_query(core, {"_name": "listCase"}, by_number, {"_name": "count"}) == 1


@pytest.mark.parametrize("kind", ["alert", "case"])
@pytest.mark.parametrize("version", ["", "/v1"])
async def test_custom_fields_are_changed_one_by_one(core: RunningCore, kind: str, version: str) -> None:
    fields = {"unit": {"string": "HR", "order": 3}, "score": {"integer": 7}}
    body = {**ALERT, "customFields": fields}
    made = (await core.send("POST", f"/api/{kind}", body)).json()
    path = f"/api{version}/{kind}/{made['id']}"

    async def changed(**body: Any) -> dict[str, Any]:
        answer = await core.send("PATCH", path, body)
        assert answer.status_code == 200, answer.text
        found = (await core.send("GET", f"/api/{kind}/{made['id']}")).json()["customFields"]
        return {name: {key: item for key, item in field.items() if key != "_id"} for name, field in found.items()}

    found = await changed(**{"customFields.unit.string": "IT", "customFields.new.name": 1.5})
    assert found == {
        "unit": {"string": "IT", "order": 3},
        "score": {"integer": 7, "order": 2},
        "new.name": {"float": 1.5, "order": 3},
    }
    assert (await changed(**{"customFields.score.integer": None}))["score"] == {"integer": None, "order": 2}
    assert (await changed(tlp=1)).keys() == found.keys()
    assert await changed(customFields={"a": "b"}, **{"customFields.c": True}) == {
        "a": {"string": "b", "order": 1},
        "c": {"boolean": True, "order": 2},
    }
    wrong = await core.send("PATCH", path, {"customFields.score.integer": "x", "customFields.unit.string": []})
    assert {error["name"] for error in wrong.json()["errors"]} == {
        "customFields.score.integer",
        "customFields.unit.string",
    }


@pytest.mark.parametrize("kind", ["alert", "case"])
async def test_tags_are_added_and_removed(core: RunningCore, kind: str) -> None:
    made = (await core.send("POST", f"/api/{kind}", {**ALERT, "tags": ["a", "b"]})).json()
    path = f"/api/v1/{kind}/{made['id']}"
    assert (await core.send("PATCH", path, {"addTags": ["c", "a"]})).json()["tags"] == ["a", "b", "c"]
    assert (await core.send("PATCH", path, {"removeTags": ["b"], "addTags": ["d"]})).json()["tags"] == ["a", "c", "d"]


async def test_several_alerts_are_changed_or_none(core: RunningCore) -> None:
    ids = [(await core.send("POST", "/api/alert", {**ALERT, "sourceRef": name})).json()["id"] for name in "abc"]
    assert (await core.send("PATCH", "/api/v1/alert/_bulk", {"ids": ids[:2], "severity": 4})).status_code == 200
    refused = await core.send("PATCH", "/api/v1/alert/_bulk", {"ids": [ids[2], "~999"], "severity": 4})
    assert (refused.status_code, refused.json()["message"]) == (404, "Alert not found")
    found = await core.send("GET", "/api/alert", params={"sort": "sourceRef"})
    assert [alert["severity"] for alert in found.json()] == [4, 4, 2]
    assert (await core.send("PATCH", "/api/v1/alert/_bulk", {"severity": 4})).status_code == 400


async def test_a_custom_field_of_a_kind_that_a_client_does_not_know_is_kept(core: RunningCore) -> None:
    """n8n leaves the kind empty where no list of custom fields names the field."""
    sent = {"unit": {"": "HR"}, "place": {"": "x", "order": 7}}
    made = (await core.send("POST", "/api/alert", {**ALERT, "customFields": sent})).json()
    assert made["customFields"]["unit"]["string"] == "HR"
    assert (made["customFields"]["place"]["string"], made["customFields"]["place"]["order"]) == ("x", 7)
    changed = (await core.send("PATCH", f"/api/alert/{made['id']}", {"customFields.unit.": 7})).json()
    assert changed["customFields"]["unit"]["integer"] == 7


@pytest.mark.parametrize("version", ["", "/v1"])
async def test_several_alerts_are_merged_into_a_case_or_none(core: RunningCore, version: str) -> None:
    ids = [
        (await core.send("POST", "/api/alert", {**ALERT, "sourceRef": name, "tags": [name]})).json()["id"]
        for name in "abc"
    ]
    case = (await core.send("POST", "/api/case", {"title": "c", "description": "d"})).json()["id"]
    path = f"/api{version}/alert/merge/_bulk"
    merged = await core.send("POST", path, {"caseId": case, "alertIds": ids[:2]})
    assert (merged.status_code, merged.json()["_id"], merged.json()["tags"]) == (200, case, ["a", "b"])
    refused = await core.send("POST", path, {"caseId": case, "alertIds": [ids[2], ids[0]]})
    assert (refused.status_code, refused.json()["type"]) == (400, "BadRequest")
    found = (await core.send("GET", "/api/alert", params={"sort": "sourceRef"})).json()
    assert [alert["status"] for alert in found] == ["Imported", "Imported", "New"]
    assert (await core.send("POST", path, {"caseId": "~999", "alertIds": [ids[2]]})).status_code == 404


async def test_choice_lists_are_answered(core: RunningCore) -> None:
    fields = {"unit": {"string": "HR"}, "score": {"integer": None}}
    await core.send("POST", "/api/alert", {**ALERT, "customFields": fields})
    await core.send("POST", "/api/case/template", {"name": "T", "customFields": {"seen": {"date": 1}}})
    kinds = {"score": "integer", "seen": "date", "unit": "string"}
    await core.send(
        "POST", "/api/alert", {**ALERT, "sourceRef": "2", "customFields": {"score": {"float": 1.5}, "a.b": 1}}
    )
    kinds |= {"score": "float", "a.b": "integer"}
    for path in ("/api/customField", "/api/v1/customField"):
        listed = (await core.send("GET", path)).json()
        assert {field["reference"]: field["type"] for field in listed} == kinds
    assert {field["name"]: field["type"] for field in await run_query(core, {"_name": "listCustomField"})} == kinds
    for path in ("/api/observable/type?range=all", "/api/v1/observable/type"):
        assert {"ip", "file"} <= {kind["name"] for kind in (await core.send("GET", path)).json()}
    assert [
        kind["name"] for kind in await run_query(core, {"_name": "listObservableType"}) if kind["isAttachment"]
    ] == ["file"]
    await core.core.people.add("gone", "analyst")
    await core.core.people.disable(COMMAND_LINE, "gone")
    logins = [user["login"] for user in await run_query(core, {"_name": "listUser"})]
    assert logins == ["org-admin@responder-bot.local", "read-only@responder-bot.local"]
    statuses = {status["value"]: status["stage"] for status in await run_query(core, {"_name": "listAlertStatus"})}
    assert statuses == {"New": "New", "Updated": "New", "Ignored": "Closed", "Imported": "Imported"}
    assert "TruePositive" in [status["value"] for status in await run_query(core, {"_name": "listCaseStatus"})]
    assert (await core.send("GET", "/api/customField", profile=None)).status_code == 401


async def test_choice_lists_are_sorted_paged_and_counted(core: RunningCore) -> None:
    for name in ("anna", "ben", "carl"):
        await core.core.people.add(name, "analyst")
    users, first = {"_name": "listUser"}, {"_name": "page", "from": 0, "to": 1}
    down = {"_name": "sort", "_fields": [{"login": "desc"}]}
    logins = sorted(user["login"] for user in await run_query(core, users))
    assert await run_query(core, users, {"_name": "count"}) == len(logins)
    assert [user["login"] for user in await run_query(core, users, first)] == logins[:1]
    assert [user["login"] for user in await run_query(core, users, down, first)] == logins[-1:]
    for step in (
        {"_name": "filter", "_field": "login", "_value": "anna"},
        {"_name": "comments"},
        {"_name": "tasks"},
        7,
    ):
        refused = await run_query(core, users, step, status=400)
        assert refused["type"] == "BadRequest"


@pytest.mark.parametrize("odd", [7, {"value": 3}, {"name": 7, "value": 3}, None])
async def test_a_custom_field_without_a_name_is_refused(core: RunningCore, odd: Any) -> None:
    refused = await core.send("POST", "/api/v1/alert", {**ALERT, "customFields": [{"name": "a", "value": 1}, odd]})
    assert (refused.status_code, refused.json()["type"]) == (400, "BadRequest")
