"""The four operations that the interface was given as, over real HTTP with real responders."""

import json
from pathlib import Path
from typing import Any

from tests.core.running import RunningCore, ended, made, running_core
from tests.documents import ROOT
from tests.responder_folders import write_responder

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
EXTRACT = "ResponderBot_ExtractIndicators_1_0"
WEBHOOK = "ResponderBot_Webhook_1_0"
ENGINE = "/api/connector/engine"
SEEN = """
import pathlib, sys
pathlib.Path(sys.argv[1], "output", "output.json").write_text('{"success": true, "full": {}}')
"""


async def alert(core: RunningCore, **more: Any) -> str:
    body = {"type": "siem", "source": "suricata", "sourceRef": "1", "title": "t", "description": "d", **more}
    return str((await made(core, "/api/alert", body))["id"])


async def log_of_a_task(core: RunningCore, message: str = "Beacon to 192.0.2.7 seen", **case: Any) -> str:
    case_id = (await made(core, "/api/case", {"title": "c", "description": "d", **case}))["id"]
    task_id = (await made(core, f"/api/case/{case_id}/task", {"title": "t"}))["id"]
    return str((await made(core, f"/api/case/task/{task_id}/log", {"message": message}))["id"])


async def run(core: RunningCore, responder: str, kind: str, object_id: str, **more: Any) -> dict[str, Any]:
    body = {"responderId": responder, "objectType": kind, "objectId": object_id, **more}
    answer = await core.send("POST", f"{ENGINE}/action", body, profile="analyst")
    assert answer.status_code == 201, answer.text
    started: dict[str, Any] = answer.json()
    return started


async def test_a_responder_runs_on_an_alert_and_is_listed(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert_id = await alert(core)
        none_yet = await core.send("GET", f"{ENGINE}/action/responder/alert/{alert_id}")
        offered = (await core.send("GET", f"{ENGINE}/responder/alert/{alert_id}")).json()
        close = next(responder for responder in offered if responder["name"] == CLOSE)
        started = await run(core, close["id"], "alert", alert_id, parameters={"reason": "scanner of ours"})
        finished = await ended(core, started["id"])
        listed = (await core.send("GET", f"{ENGINE}/action/responder/alert/{alert_id}")).json()
        closed = (await core.send("GET", f"/api/alert/{alert_id}")).json()
    assert (none_yet.status_code, none_yet.json()) == (200, [])
    assert set(close) == {"id", "name", "version", "description", "dataTypeList", "engineIds"}
    assert (close["dataTypeList"], close["engineIds"]) == (["thehive:alert"], ["local"])
    assert (started["status"], started["operations"], started["report"]) == ("Waiting", "[]", "{}")
    assert (started["objectType"], started["objectId"], started["engineId"]) == ("Alert", alert_id, "local")
    assert "endDate" not in started
    assert started["createdBy"] == "analyst@responder-bot.local"
    assert finished["status"] == "Success"
    assert finished["startDate"] == started["startDate"]
    assert listed == [finished]
    assert "false positive" in json.loads(finished["report"])["message"]
    assert json.loads(finished["parameters"]) == {"reason": "scanner of ours"}
    assert [operation["status"] for operation in json.loads(finished["operations"])] == ["Success", "Success"]
    assert (closed["tags"], closed["status"]) == (["false-positive"], "Ignored")


async def test_a_responder_runs_on_a_log_and_answers_with_a_log(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        log_id = await log_of_a_task(core)
        started = await run(core, EXTRACT, "case_task_log", log_id)
        finished = await ended(core, started["id"])
        listed = (await core.send("GET", f"{ENGINE}/action/case_task_log/{log_id}")).json()
    assert (started["objectType"], started["status"]) == ("Log", "Waiting")
    assert finished["status"] == "Success"
    assert listed == [finished]


async def test_what_is_found_in_the_text_of_a_siem_is_a_target_of_the_next_responder(tmp_path: Path) -> None:
    sample = json.loads((ROOT / "tests/core/engines/process/siem/suricata_http.json").read_text())
    write_responder(tmp_path / "responders", "Seen", SEEN, dataTypeList=["thehive:case_artifact"])
    engine = {"name": "local", "responders": (tmp_path / "responders",)}
    async with running_core(tmp_path, engine=(engine,)) as core:
        known = [{"dataType": "ip", "data": "198.51.100.20", "tlp": 1}]
        alert_id = await alert(core, description=json.dumps(sample["event"]), artifacts=known, tlp=3)
        extracted = await ended(core, (await run(core, EXTRACT, "alert", alert_id))["id"])
        artifacts = (await core.send("GET", f"/api/alert/{alert_id}")).json()["artifacts"]
        runs = [(await run(core, "Seen_1_0", "case_artifact", item["id"]))["id"] for item in artifacts[:3]]
        outcomes = {(await ended(core, action))["status"] for action in runs}
    assert {item["status"] for item in json.loads(extracted["operations"])} == {"Success"}
    found = {(kind, value) for kind, values in sample["indicators"].items() for value in values}
    assert {(item["dataType"], item["data"]) for item in artifacts} == found
    assert [item["tlp"] for item in artifacts] == [1, *[3] * (len(found) - 1)]
    assert outcomes == {"Success"}


async def test_a_run_on_a_missing_object_names_it(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for body, status, kind, message in (
            ({"objectType": "case_task_log", "objectId": "~99"}, 404, "AuthenticationError", "Log not found"),
            ({"objectType": "alert", "objectId": "~99"}, 404, "NotFoundError", "Alert not found"),
            ({"objectType": "rocket", "objectId": "~99"}, 400, "AttributeCheckingError", ""),
            ({"objectType": "alert", "objectId": 99}, 400, "AttributeCheckingError", ""),
            ({"objectType": "alert"}, 400, "AttributeCheckingError", "[Attribute objectId is missing]"),
        ):
            answer = await core.send("POST", f"{ENGINE}/action", {"responderId": CLOSE, **body}, profile="analyst")
            assert (answer.status_code, answer.json()["type"]) == (status, kind)
            assert message in answer.json()["message"]


async def test_an_action_is_found_by_search_and_waited_for(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert_id = await alert(core)
        started = await run(core, CLOSE, "alert", alert_id)
        await ended(core, started["id"])
        query = {"query": {"_and": [{"status": "Success"}, {"createdBy": started["createdBy"]}]}}
        found = await core.send("POST", f"{ENGINE}/action/_search?range=all", query)
        none = await core.send("POST", f"{ENGINE}/action/_search", {"query": {"status": "Waiting"}})
        missing = await core.send("GET", f"{ENGINE}/action/~999")
        wrong = await core.send("GET", f"{ENGINE}/action/{started['id']}?wait=x")
    assert ([action["id"] for action in found.json()], found.headers["X-Total"]) == ([started["id"]], "1")
    assert none.json() == []
    assert (missing.status_code, missing.json()["message"]) == (404, "Action not found")
    assert wrong.status_code == 400


async def test_an_object_is_shown_with_its_parents_and_levels(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        log_id = await log_of_a_task(core, tlp=3, pap=1)
        shown = (await core.send("GET", f"{ENGINE}/object/case_task_log/{log_id}")).json()
        missing = await core.send("GET", f"{ENGINE}/object/rocket/{log_id}")
    assert (shown["objectType"], shown["objectId"], shown["tlp"], shown["pap"]) == ("Log", log_id, 3, 1)
    assert shown["object"]["case_task"]["case"]["id"] == shown["rootId"]
    assert missing.status_code == 404
