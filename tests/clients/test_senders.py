"""What other programs that know the interface send, as their HTTP requests: 201 for each alert.

The bodies are of the form that each program builds, with values of our own.
"""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.models import OBJECT_TYPES, Kind
from tests.clients.responder import NAME, engine_for_every_kind
from tests.core.running import RunningCore, running_core

Body = dict[str, Any]

pytestmark = pytest.mark.clients

ELASTALERT2: Body = {
    "artifacts": [
        {"data": "192.0.2.7", "dataType": "ip", "message": None, "tags": [], "tlp": 2},
        {"data": "host-1", "dataType": "hostname", "message": "seen by sensor", "tags": ["lab"], "tlp": 3},
    ],
    "customFields": {
        "rule": {"order": 0, "string": "ssh brute force"},
        "count": {"integer": 12, "order": 1},
        "confirmed": {"boolean": False, "order": 2},
    },
    "date": 1_700_000_000_000,
    "description": "ssh brute force\n\nAt least 10 events occurred",
    "description_missing_value": "<MISSING VALUE>",
    "follow": True,
    "severity": 2,
    "source": "elastalert",
    "sourceRef": "3f6b6f2e-7f0e-4f57-9a66-2f0a3f1c7a01",
    "status": "New",
    "tags": ["elastalert", "ssh"],
    "title": "ssh brute force",
    "tlp": 3,
    "type": "external",
}

WAZUH_SCRIPT: Body = {  # thehive4py 1.x, told nothing about versions, sends no `pap` and no `externalLink`
    "artifacts": [
        {"data": "192.0.2.7", "dataType": "ip", "ioc": False, "message": None, "sighted": False, "tags": [], "tlp": 2},
        {
            "data": "https://x.example/a",
            "dataType": "url",
            "ioc": False,
            "message": None,
            "sighted": False,
            "tags": [],
            "tlp": 2,
        },
    ],
    "caseTemplate": None,
    "customFields": {},
    "date": 1_700_000_000_000,
    "description": "### Timestamp\n| key | val |\n| --- | --- |\n| **timestamp** | 2026-01-01T00:00:00.000+0000 |\n",
    "severity": 2,
    "source": "wazuh",
    "sourceRef": "5a1c0e",
    "tags": ["wazuh", "rule=5710", "agent_name=web-1", "agent_id=001", "agent_ip=no agent ip"],
    "title": "sshd: Attempt to login using a non-existent user",
    "tlp": 2,
    "type": "wazuh_alert",
}

N8N: Body = {
    "title": "Phish",
    "description": "reported by a user",
    "severity": 2,
    "date": 1_700_000_000_000,
    "tags": ["mail"],
    "tlp": 2,
    "status": "New",
    "type": "mail",
    "source": "n8n",
    "sourceRef": "m-1",
    "follow": True,
    "caseTemplate": "Phishing",
    "customFields": {"business-unit": {"string": "HR"}, "score": 7},
    "artifacts": [
        {"message": "", "tags": [""], "dataType": "mail", "data": "boss@x.example"},
        {"message": "the mail", "tags": ["a", " b"], "dataType": "file", "data": "mail.eml;message/rfc822;RnJvbTog"},
    ],
}

SHUFFLE: Body = {
    "artifacts": [
        {"data": "192.0.2.7", "dataType": "ip", "ioc": False, "message": None, "sighted": False, "tags": [], "tlp": 2}
    ],
    "caseTemplate": None,
    "customFields": {},
    "date": 1_700_000_000_000,
    "description": "",
    "severity": 1,
    "source": "shuffle",
    "sourceRef": "s-1",
    "tags": [],
    "title": "From a workflow",
    "tlp": 1,
    "type": "workflow",
}

CURL: Body = {
    "type": "event",
    "source": "SIEM",
    "sourceRef": "alert-001",
    "title": "Login",
    "description": "from a SIEM",
}

SPLUNK_SOAR: Body = {  # its action names no case template by an empty one
    "title": "Notable",
    "description": "from a playbook",
    "type": "notable",
    "source": "soar",
    "sourceRef": "n-1",
    "caseTemplate": "",
    "severity": 3,
    "tlp": 2,
    "tags": ["a"],
    "artifacts": [{"dataType": "domain", "data": "x.example"}],
}

SENDERS: dict[str, Body] = {
    "splunk_soar": SPLUNK_SOAR,
    "elastalert2": ELASTALERT2,
    "wazuh": WAZUH_SCRIPT,
    "n8n": N8N,
    "shuffle": SHUFFLE,
    "curl": CURL,
}


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path, engine=(engine_for_every_kind(tmp_path),)) as opened:
        yield opened


async def sent(core: RunningCore, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await core.send(method, path, body, profile="analyst")
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("sender", SENDERS)
async def test_an_alert_of_a_known_sender_is_taken(core: RunningCore, sender: str) -> None:
    body = SENDERS[sender]
    alert = await sent(core, "POST", "/api/alert", body, 201)
    for key in ("type", "source", "sourceRef", "title", "description", "tags"):
        assert alert[key] == body.get(key, [])
    artifacts = body.get("artifacts", [])
    files = [item["attachment"]["name"] for item in alert["artifacts"] if "attachment" in item]
    assert files == [item["data"].partition(";")[0] for item in artifacts if item["dataType"] == "file"]
    texts = [item["data"] for item in artifacts if item["dataType"] != "file"]
    assert [item["data"] for item in alert["artifacts"] if "data" in item] == texts
    assert alert["status"] == "New"


async def test_n8n_looks_whether_its_key_works(core: RunningCore) -> None:
    assert await sent(core, "GET", "/api/case") == []
    assert (await core.send("GET", "/api/case", headers={"Authorization": "Bearer wrong"})).status_code == 401


@pytest.mark.parametrize("kind", ["alert", "case", "case_task", "case_task_log", "case_artifact"])
async def test_n8n_runs_a_responder_and_reads_how_it_went(core: RunningCore, kind: Kind) -> None:
    objects = await one_of_each(core)
    offered = await sent(core, "GET", f"/api/connector/cortex/responder/{kind}/{objects[kind]}")
    responder = next(item for item in offered if item["name"] == NAME)
    requested = {"responderId": responder["id"], "objectId": objects[kind], "objectType": kind}
    action = await sent(core, "POST", "/api/connector/cortex/action", requested, 201)
    same = [{"_field": name, "_value": action[name]} for name in ("cortexId", "objectId", "startDate")]
    query = {"query": [{"_name": "listAction"}, {"_name": "filter", "_and": same}]}
    found = await sent(core, "POST", "/api/v1/query?name=log-actions", query)
    assert [item["_id"] for item in found] == [action["id"]]
    assert found[0]["cortexJobId"] == action["cortexJobId"]


async def test_n8n_counts_lists_and_reads_within_a_case(core: RunningCore) -> None:
    objects = await one_of_each(core)
    await sent(core, "POST", "/api/alert", CURL, 201)
    like = {"_name": "filter", "_and": [{"_like": {"_field": "title", "_value": "*o*"}}]}
    newest = {"_name": "sort", "_fields": [{"_createdAt": "desc"}]}
    page = {"_name": "page", "from": 0, "to": 1}

    async def query(*steps: dict[str, Any]) -> Any:
        return await sent(core, "POST", "/api/v1/query", {"query": list(steps)})

    assert await query({"_name": "listAlert"}, like, {"_name": "count"}) == 2
    assert [item["title"] for item in await query({"_name": "listAlert"}, like, newest, page)] == ["Login"]
    case = {"_name": "getCase", "idOrName": objects["case"]}
    assert [item["_id"] for item in await query(case)] == [objects["case"]]
    assert [item["_id"] for item in await query(case, {"_name": "tasks"})] == [objects["case_task"]]
    assert [item["_id"] for item in await query(case, {"_name": "observables"}, newest)] == [objects["case_artifact"]]
    assert [
        item["_id"] for item in await query({"_name": "listCase"}, like, {"_name": "tasks"}, {"_name": "logs"})
    ] == [objects["case_task_log"]]


async def test_shuffle_reads_marks_and_merges(core: RunningCore) -> None:
    objects = await one_of_each(core)
    alert = objects["alert"]
    assert (await sent(core, "GET", f"/api/alert/{alert}?similarity=1"))["id"] == alert
    assert (await sent(core, "POST", f"/api/alert/{alert}/markAsRead"))["status"] == "Ignored"
    assert (await sent(core, "POST", f"/api/alert/{alert}/merge/{objects['case']}"))["id"] == objects["case"]


async def test_xsoar_reads_a_case_with_tasks_logs_and_observables(core: RunningCore) -> None:
    objects = await one_of_each(core)
    assert (await sent(core, "GET", "/api/status"))["versions"]["TheHive"].startswith("4")
    page = {"_name": "page", "from": 0, "to": 15, "extraData": ["seen", "shareCount"]}
    case, task = (
        {"_name": "getCase", "idOrName": objects["case"]},
        {"_name": "getTask", "idOrName": objects["case_task"]},
    )
    requested: dict[Kind, list[Body]] = {
        "case_artifact": [case, {"_name": "observables"}, sort({"startDate": "desc"}), page],
        "case_task": [case, {"_name": "tasks"}, sort({"flag": "desc"}, {"order": "asc"}, {"startDate": "asc"}), page],
        "case_task_log": [task, {"_name": "logs"}, sort({"date": "desc"}), page],
    }
    for kind, steps in requested.items():
        found = await sent(core, "POST", "/api/v1/query", {"query": steps})
        assert [item["_id"] for item in found] == [objects[kind]]


async def test_an_alert_that_names_its_case_template_by_nothing_becomes_a_case(core: RunningCore) -> None:
    alert = await sent(core, "POST", "/api/alert/", SPLUNK_SOAR, 201)
    case = await sent(core, "POST", f"/api/alert/{alert['id']}/createCase", {"caseTemplate": ""}, 201)
    assert (case["title"], case["template"]) == ("Notable", None)
    made = await sent(core, "POST", "/api/case", {"title": "c", "description": "d", "template": ""}, 201)
    assert made["template"] is None


async def packed(core: RunningCore, content: bytes, encoding: str = "gzip") -> httpx.Response:
    headers = {"Content-Encoding": encoding, "Authorization": f"Bearer {await core.key('analyst')}"}
    return await core.http.post("/api/alert", content=content, headers=headers)


async def test_logstash_packs_its_alerts(core: RunningCore) -> None:
    content = json.dumps(CURL).encode()
    assert (await packed(core, gzip.compress(content))).status_code == 201
    bomb = gzip.compress(b" " * 1_048_577)
    assert (await packed(core, bomb)).status_code == 413
    one = gzip.compress(content)
    for broken, encoding in ((one[:-9], "gzip"), (one + one, "gzip"), (content, "gzip"), (content, "br")):
        answer = await packed(core, broken, encoding)
        assert (answer.status_code, answer.json()["type"]) == (400, "BadRequest")
    assert (await packed(core, json.dumps({**CURL, "sourceRef": "2"}).encode(), "identity")).status_code == 201


async def test_n8n_sets_the_status_of_an_alert(core: RunningCore) -> None:
    alert = (await one_of_each(core))["alert"]
    for status in ("Ignored", "New"):
        await sent(core, "PATCH", f"/api/v1/alert/{alert}", {"status": status})
        assert (await sent(core, "GET", f"/api/v1/alert/{alert}"))["status"] == status
    await sent(core, "PATCH", f"/api/v1/alert/{alert}", {"status": "Imported"}, 400)
    refused = await sent(core, "PATCH", f"/api/v1/alert/{alert}", {"status": "InProgress"}, 400)
    assert [error["name"] for error in refused["errors"]] == ["status"]


async def test_a_sender_with_an_address_that_ends_in_a_slash_is_understood(core: RunningCore) -> None:
    await sent(core, "POST", f"{core.url}//api/alert", CURL, 201)
    assert (await core.send("POST", f"{core.url}//api/alert", CURL, profile=None)).status_code == 401


async def test_a_sender_that_marks_its_text_as_utf_8_is_understood(core: RunningCore) -> None:
    key = await core.key("analyst")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json;charset=UTF-8"}
    content = b"\xef\xbb\xbf" + json.dumps({**CURL, "title": "Zoë"}, ensure_ascii=False).encode()
    answer = await core.http.post("/api/alert", content=content, headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (201, "Zoë")


async def test_an_old_script_lists_the_logs_of_a_task(core: RunningCore) -> None:
    objects = await one_of_each(core)
    path = f"/api/case/task/{objects['case_task']}/log"
    assert [log["message"] for log in await sent(core, "GET", path)] == ["seen"]
    assert (await sent(core, "GET", "/api/case/task/~999/log", status=404))["message"] == "Task not found"


async def test_a_script_follows_an_action_by_the_kind_that_its_answer_named(core: RunningCore) -> None:
    objects = await one_of_each(core)
    for kind, object_id in objects.items():
        for word in (kind, OBJECT_TYPES[kind]):
            assert await sent(core, "GET", f"/api/connector/cortex/action/{word}/{object_id}") == []


def sort(*fields: Body) -> Body:
    return {"_name": "sort", "_fields": list(fields)}


async def one_of_each(core: RunningCore) -> dict[Kind, str]:
    """An object of each kind: its kind in an address, and its id."""
    case = await sent(core, "POST", "/api/case", {"title": "Look into it", "description": "d"}, 201)
    task = await sent(core, "POST", f"/api/case/{case['id']}/task", {"title": "Look"}, 201)
    log = await sent(core, "POST", f"/api/case/task/{task['id']}/log", {"message": "seen"}, 201)
    observable = {"dataType": "ip", "data": "192.0.2.7", "tlp": 2, "ioc": False, "sighted": False, "status": "Ok"}
    artifact = await sent(core, "POST", f"/api/case/{case['id']}/artifact", observable, 201)
    alert = await sent(core, "POST", "/api/alert", {**CURL, "sourceRef": "first", "title": "Look"}, 201)
    return {
        "alert": alert["id"],
        "case": case["id"],
        "case_task": task["id"],
        "case_task_log": log["id"],
        "case_artifact": artifact["id"],
    }
