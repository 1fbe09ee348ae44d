"""The OpenAPI document, its page, and the vendor alias."""

import json
import re
from html import unescape
from pathlib import Path

import httpx
import pytest

from core.api.aliases.alias import endpoints
from tests.core.running import RunningCore, running_core
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
NAME = "ResponderBot_CloseAsFalsePositive_1_0"


async def test_the_document_has_every_endpoint_and_needs_no_key(core: RunningCore) -> None:
    response = await core.send("GET", "/api/openapi.json", profile=None)
    table = core.core.endpoints
    found = response.json()
    described = {(path, method.upper()) for path, methods in found["paths"].items() for method in methods}
    assert described == {(endpoint.path, endpoint.method) for endpoint in table}
    assert {
        ("/api/connector/engine/action", "POST"),
        ("/api/connector/engine/action/responder/{kind}/{id}", "GET"),
        ("/api/connector/engine/responder/{kind}/{id}", "GET"),
        ("/api/case/template", "POST"),
    } <= described
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


async def test_every_referenced_schema_exists(core: RunningCore) -> None:
    text = (await core.send("GET", "/api/openapi.json", profile=None)).text
    schemas = json.loads(text)["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= set(schemas)
    assert "anyOf" in schemas["AlertInput"]["properties"]["severity"], "in requests null means absent"
    assert set(schemas["CaseTemplate"]["required"]) >= {"_id", "id", "name", "tasks", "customFields"}


async def test_inputs_are_described(core: RunningCore) -> None:
    found = (await core.send("GET", "/api/openapi.json", profile=None)).json()
    operations = [operation for methods in found["paths"].values() for operation in methods.values()]
    assert [p for operation in operations for p in operation["parameters"] if not p.get("description")] == []
    offered = found["paths"]["/api/connector/engine/responder/{kind}/{id}"]["get"]["parameters"]
    assert {"kind", "id", "explain"} <= {parameter["name"] for parameter in offered}
    kind = next(parameter for parameter in offered if parameter["name"] == "kind")
    assert kind["schema"]["enum"] == ["alert", "case", "case_task", "case_task_log", "case_artifact"]
    run = found["components"]["schemas"]["RunInput"]["properties"]
    assert [name for name, schema in run.items() if not schema.get("description")] == []
    assert run["objectId"]["description"] == "The object's id, `~` and digits.", "a field that is inherited"
    assert [o["summary"] for o in operations if re.search(r"\b[Aa] [aeiou]", o["summary"])] == []


async def test_fields_of_answers_are_described_by_their_json_names(core: RunningCore) -> None:
    schemas = (await core.send("GET", "/api/openapi.json", profile=None)).json()["components"]["schemas"]
    fields = {name: schema.get("properties", {}) for name, schema in schemas.items()}
    action = fields["Action"]
    plain = {"responderName", "responderDefinition", "status"}
    assert {name for name, field in action.items() if not field.get("description")} == plain
    assert action["startDate"]["description"] == "When core accepted it. (milliseconds since the epoch)"
    texts = [field.get("description", "") for found in fields.values() for field in found.values()]
    assert [text for text in texts if re.search(r"\bNone\b|`(?!case_)[a-z]+_[a-z]\w*`", text)] == []


async def test_the_page_shows_the_document_and_loads_nothing(core: RunningCore) -> None:
    document = (await core.send("GET", "/api/openapi.json", profile=None)).json()
    response = await core.send("GET", "/api/docs", profile=None)
    assert response.headers["content-type"].startswith("text/html")
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    assert response.headers["content-security-policy"] == policy
    assert set(re.findall(r"<(\w+)", response.text)) == {
        *("html", "meta", "title", "h1", "p", "code", "a", "details", "summary", "pre"),
    }
    assert not re.search(r"https?://|<[^>]+\s(src|on\w+)=", response.text)
    shown = re.findall(r"<summary>(.*?)</summary><pre>(.*?)</pre>", response.text, re.DOTALL)
    titles = [
        f"{method.upper()} {path}: {operation['summary']}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    assert [unescape(title) for title, _ in shown] == [*titles, *schemas]
    assert [json.loads(unescape(part)) for _, part in shown[len(titles) :]] == list(schemas.values())


async def test_no_other_origin_is_allowed_to_read(core: RunningCore) -> None:
    response: httpx.Response = await core.send("GET", "/api/event", headers={"Origin": "https://elsewhere.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_the_vendor_alias_translates_both_directions(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/alert", ALERT)).json()
    base = "/api/connector/cortex"
    offered = (await core.send("GET", f"{base}/responder/alert/{alert['id']}")).json()
    assert offered[0]["cortexIds"] == ["local"]
    body = {"responderId": NAME, "objectType": "alert", "objectId": alert["id"], "cortexId": "local"}
    unknown = await core.send("POST", f"{base}/action", {**body, "cortexId": "none"})
    assert (unknown.status_code, unknown.json()["message"]) == (404, "Engine none not found")
    made = await core.send("POST", f"{base}/action", body)
    action = made.json()
    assert (made.status_code, action["cortexId"]) == (201, "local")
    assert isinstance(action["cortexJobId"], str)
    assert not [key for key in action if key.startswith("engine")]
    listed = (await core.send("GET", f"{base}/action/responder/alert/{alert['id']}")).json()
    assert [item["cortexId"] for item in listed] == ["local"]
    plain = (await core.send("GET", f"/api/connector/engine/action/{action['id']}")).json()
    assert plain["engineJobId"] == action["cortexJobId"]


async def test_the_vendor_alias_can_be_changed_or_switched_off(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"vendor_alias": ""}) as core:
        assert (
            (await core.send("GET", "/api/connector/cortex/action/alert/~1")).json()["message"].startswith("There is")
        )
        table = core.core.endpoints
    assert endpoints(table, "engine") == []
    assert {endpoint.path.split("/")[3] for endpoint in endpoints(table, "acme")} == {"acme"}
    rename = endpoints(table, "acme")[0].translate_response
    assert rename is not None
    assert rename(b'{"engineId":"engineId","report":"{\\"engineId\\":1}"}') == (
        b'{"acmeId":"engineId","report":"{\\"engineId\\":1}"}'
    )
