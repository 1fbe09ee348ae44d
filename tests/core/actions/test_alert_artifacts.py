"""The artifacts of an alert as targets of responders: before, in and after its case."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import AlertUpdate, ArtifactsInput, CaseInput
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, next_run, open_harness, run_input
from tests.core.running import RunningCore, ended, made, running_core, sent
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine
from tests.responder_folders import write_responder

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "s", "title": "t", "description": "d"}
IP, DOMAIN = {"dataType": "ip", "data": "198.51.100.7", "tlp": 1}, {"dataType": "domain", "data": "evil.example"}
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
asked = json.loads((folder / "input/input.json").read_text())
report = {"success": True, "full": {"message": "done", "seen": asked}, "operations": asked["parameters"].get("ask", [])}
(folder / "output/output.json").write_text(json.dumps(report))
"""
RESPONDERS = {
    "Observe": ["thehive:case_artifact"],
    "Address": ["IP"],
    "Site": ["url", "domain"],
    "OnAlert": ["thehive:alert"],
}


def add_responders(folder: Path) -> Path:
    for name, data_types in RESPONDERS.items():
        write_responder(folder, name, PROGRAM, dataTypeList=data_types)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    engine = {"name": "local", "responders": (add_responders(folder / "responders"),)}
    async with running_core(folder, engine=(engine,)) as running:
        yield running


async def new_alert(core: RunningCore, ref: str, *artifacts: dict[str, Any], **fields: Any) -> tuple[str, list[str]]:
    """Ids of an alert and of its artifacts."""
    body = {**ALERT, "sourceRef": ref, "artifacts": artifacts, **fields}
    alert = await sent(core, "POST", "/api/alert", body, status=201)
    return alert["id"], [artifact["id"] for artifact in alert["artifacts"]]


async def run(core: RunningCore, object_id: str, name: str = "Observe_1_0", **parameters: Any) -> dict[str, Any]:
    """An ended action on an artifact."""
    body = {"responderId": name, "objectType": "case_artifact", "objectId": object_id, "parameters": parameters}
    return await ended(core, (await made(core, f"{ENGINE}/action", body))["id"])


async def history(core: RunningCore, object_id: str) -> list[str]:
    """Ids of the actions on an artifact, which both routes list."""
    found = await sent(core, "GET", f"{ENGINE}/action/case_artifact/{object_id}")
    assert found == await sent(core, "GET", f"{ENGINE}/action/responder/case_artifact/{object_id}")
    return [action["id"] for action in found]


def outcomes(action: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(item["type"], item["status"], item["message"]) for item in json.loads(action["operations"])]


async def last(core: RunningCore) -> int:
    return int((await sent(core, "GET", "/api/event"))["last"])


async def document(core: RunningCore, object_id: str, more: str = "") -> dict[str, Any]:
    (found,) = (await sent(core, "GET", f"/api/document?ids={object_id}{more}"))["documents"]
    return dict(found)


async def test_an_artifact_of_an_alert_is_an_object_under_its_id(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "object", IP, DOMAIN, pap=3)
    shown = await sent(core, "GET", f"/api/case/artifact/{ip}")
    assert (shown["id"], shown["_type"], shown["data"], shown["tlp"]) == (ip, "case_artifact", "198.51.100.7", 1)
    context = await sent(core, "GET", f"{ENGINE}/object/case_artifact/{ip}")
    alert = await sent(core, "GET", f"/api/alert/{alert_id}")
    assert (context["rootId"], context["tlp"], context["pap"]) == (alert_id, 1, 3)
    assert context["object"] == {**shown, "alert": {**alert, "artifacts": alert["artifacts"][:1]}}
    seq = await last(core)
    action = await run(core, ip)
    assert (action["objectType"], action["objectId"], action["status"]) == ("Observable", ip, "Success")
    asked = json.loads(action["report"])["full"]["seen"]
    assert (asked["dataType"], asked["tlp"], asked["pap"]) == ("thehive:case_artifact", 1, 3)
    assert asked["data"] == context["object"]
    assert (await history(core, ip), await history(core, domain)) == ([action["id"]], [])
    events = (await sent(core, "GET", f"/api/event?after={seq}"))["events"]
    assert {(event["objectType"], event["rootId"]) for event in events} == {("Action", alert_id)}
    for path in ("/api/v1/observable", "/api/case/artifact"):
        assert (await sent(core, "GET", f"{path}/{domain}"))["data"] == "evil.example"
    for connector in ("/api/connector/cortex", "/api/v1/connector/cortex"):
        offered = await sent(core, "GET", f"{connector}/responder/case_artifact/{ip}")
        assert own([item["name"] for item in offered]) == ["Address_1_0", "Observe_1_0"]
        (listed,) = await sent(core, "GET", f"{connector}/action/case_artifact/{ip}")
        assert listed["cortexId"] == "local"
    first = {"_name": "getObservable", "idOrName": ip}
    (found,) = await sent(core, "POST", "/api/v1/query", {"query": [first]})
    assert (found["_id"], found["_type"]) == (ip, "Observable")
    (found,) = await sent(core, "POST", "/api/v1/query", {"query": [first, {"_name": "actions"}]})
    assert found["_id"] == action["id"]
    assert await sent(core, "POST", "/api/v1/query", {"query": [first, {"_name": "count"}]}) == 1


def own(names: list[str]) -> list[str]:
    """Without the bundled ones, which are always offered."""
    return [name for name in names if not name.startswith("ResponderBot_")]


async def test_only_responders_that_take_its_data_are_offered(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "offers", IP, DOMAIN)
    expected = {ip: ["Address_1_0", "Observe_1_0"], domain: ["Observe_1_0", "Site_1_0"]}
    for object_id, names in expected.items():
        offered = await sent(core, "GET", f"{ENGINE}/responder/case_artifact/{object_id}")
        assert own([item["name"] for item in offered]) == names
    explained = await sent(core, "GET", f"{ENGINE}/responder/case_artifact/{domain}?explain=true")
    (address,) = [item for item in explained if item["name"] == "Address_1_0"]
    assert address["reasons"] == ["it is not for this kind of target (Observable, domain)"]
    shown = await document(core, alert_id, "&include=responders")
    assert {key: own(names) for key, names in shown["artifactResponders"].items()} == expected
    read_only = await sent(core, "GET", f"/api/document?ids={alert_id}&include=responders", profile="read-only")
    assert read_only["documents"][0]["artifactResponders"] == {ip: [], domain: []}
    refused = {"responderId": "Address_1_0", "objectType": "case_artifact", "objectId": domain}
    await sent(core, "POST", f"{ENGINE}/action", refused, status=400)


async def test_operations_from_it_change_the_alert_and_those_for_a_case_fail_alone(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "operations", IP, DOMAIN)
    ask = [
        {"type": "AddTagToArtifact", "tag": "blocked"},
        {"type": "AddTagToAlert", "tag": "contained"},
        {"type": "AddTagToCase", "tag": "x"},
        {"type": "MarkAlertAsRead"},
        {"type": "AddTagToArtifact", "tag": "twice"},
    ]
    action = await run(core, ip, ask=ask)
    assert [status for _, status, _ in outcomes(action)] == ["Success", "Success", "Failure", "Success", "Success"]
    assert outcomes(action)[2][2] == "Unable to apply action AddTagToCase without case"
    alert = await sent(core, "GET", f"/api/alert/{alert_id}")
    assert (alert["tags"], alert["status"]) == (["contained"], "Ignored")
    assert [artifact["tags"] for artifact in alert["artifacts"]] == [["blocked", "twice"], []]
    case = await sent(core, "POST", f"/api/alert/{alert_id}/createCase", status=201)
    action = await run(core, domain, ask=[*ask, {"type": "AssignCase", "owner": "x"}])
    assert [status for _, status, _ in outcomes(action)] == ["Success"] * 6
    changed = await sent(core, "GET", f"/api/case/{case['id']}")
    assert (changed["tags"], changed["owner"]) == (["contained", "x"], "x")
    for shown in (
        await sent(core, "GET", f"/api/case/artifact/{domain}"),
        (await sent(core, "GET", f"/api/alert/{alert_id}"))["artifacts"][1],
    ):
        assert shown["tags"] == ["blocked", "twice"]


async def test_a_case_made_of_the_alert_keeps_ids_and_history(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "case", IP, DOMAIN, pap=0)
    before = await run(core, ip)
    case_id = (await sent(core, "POST", f"/api/alert/{alert_id}/createCase", status=201))["id"]
    await sent(core, "PATCH", f"/api/case/{case_id}", {"pap": 3})
    in_case = await sent(
        core, "POST", "/api/case/artifact/_search", {"query": {"_parent": {"_type": "case", "_id": case_id}}}
    )
    assert [item["id"] for item in in_case] == [ip, domain]
    context = await sent(core, "GET", f"{ENGINE}/object/case_artifact/{ip}")
    assert (context["rootId"], context["pap"], context["object"]["case"]["id"]) == (case_id, 3, case_id)
    assert "alert" not in context["object"]
    seq = await last(core)
    after = await run(core, ip)
    assert await history(core, ip) == [after["id"], before["id"]]
    page = await sent(core, "GET", f"/api/event?after={seq}&include=documents")
    assert {event["rootId"] for event in page["events"]} == {case_id}
    assert sorted(item["id"] for item in page["documents"]) == sorted([case_id, alert_id])  # both cards change
    for object_id in (alert_id, case_id):
        shown = await document(core, object_id)
        assert [item["id"] for item in shown["actions"]] == [after["id"], before["id"]]
        assert shown["actionCounts"][ip] == 2
    shown = await document(core, case_id)
    assert [[item["id"] for item in shown[name]] for name in ("artifacts", "otherArtifacts")] == [[ip], [domain]]
    later = {"dataType": "ip", "data": "198.51.100.77", "tlp": 1}
    await sent(core, "PATCH", f"/api/alert/{alert_id}", {"tlp": 3, "artifacts": [later]})
    of_alert = (await document(core, case_id))["alertArtifacts"]
    assert [(item["data"], item["tlp"]) for item in of_alert] == [(later["data"], 3)]  # as high as its alert


async def test_equal_artifacts_of_alerts_in_one_case_become_one(core: RunningCore) -> None:
    first, (kept,) = await new_alert(core, "equal 1", {**IP, "tags": ["one"]})
    second, (other,) = await new_alert(core, "equal 2", {**IP, "tlp": 3, "tags": ["two"], "ioc": True})
    actions = [(await run(core, kept))["id"], (await run(core, other))["id"]]
    case_id = (await sent(core, "POST", f"/api/alert/{first}/createCase", status=201))["id"]
    await sent(core, "POST", f"/api/alert/{second}/merge/{case_id}", {})
    assert await sent(core, "GET", f"/api/case/artifact/{other}") == await sent(
        core, "GET", f"/api/case/artifact/{kept}"
    )
    assert (await sent(core, "GET", f"/api/case/artifact/{other}"))["id"] == kept
    assert await history(core, kept) == await history(core, other) == actions[::-1]
    assert {item["objectId"] for item in await sent(core, "GET", f"{ENGINE}/action/case_artifact/{kept}")} == {kept}
    actions.append((await run(core, other))["id"])
    for object_id in (first, second, case_id):
        shown = await document(core, object_id)
        assert [item["id"] for item in shown["actions"]] == actions[::-1]
    assert (await document(core, other))["id"] == case_id
    assert [item["id"] for item in (await sent(core, "GET", f"/api/alert/{second}"))["artifacts"]] == [kept]
    for alert in (first, second):  # neither shows less than the case, nor more than it may
        (artifact,) = (await sent(core, "GET", f"/api/alert/{alert}"))["artifacts"]
        assert (artifact["tlp"], artifact["tags"], artifact["ioc"]) == (3, ["one", "two"], True)
    # One artifact: whoever changes it anywhere changes it everywhere.
    await sent(core, "PATCH", f"/api/case/artifact/{other}", {"tlp": 0, "message": "m"})
    for alert in (first, second):
        (artifact,) = (await sent(core, "GET", f"/api/alert/{alert}"))["artifacts"]
        assert (artifact["id"], artifact["tlp"], artifact["message"]) == (kept, 0, "m")
    seq = await last(core)
    await sent(core, "PATCH", f"/api/alert/{second}", {"artifacts": [{**IP, "tlp": 2}]})
    assert (await sent(core, "GET", f"/api/case/artifact/{kept}"))["tlp"] == 2
    assert (await sent(core, "GET", f"/api/alert/{first}"))["artifacts"][0]["tlp"] == 2
    events = (await sent(core, "GET", f"/api/event?after={seq}"))["events"]
    assert sorted((event["type"], event["rootId"]) for event in events) == sorted(
        [("case_artifact.updated", case_id), ("alert.updated", first), ("alert.updated", second)]
    )


async def test_it_is_changed_like_any_artifact(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "change", IP, DOMAIN)
    seq = await last(core)
    changed = await sent(core, "PATCH", f"/api/case/artifact/{ip}", {"tlp": 3, "tags": ["x"]})
    assert (changed["id"], changed["tlp"], changed["tags"]) == (ip, 3, ["x"])
    shown = (await sent(core, "GET", f"/api/alert/{alert_id}"))["artifacts"]
    assert [(item["id"], item["tlp"], item["tags"]) for item in shown] == [(ip, 3, ["x"]), (domain, 2, [])]
    (event,) = (await sent(core, "GET", f"/api/event?after={seq}"))["events"]
    assert (event["type"], event["objectId"], event["rootId"]) == ("case_artifact.updated", ip, alert_id)


async def test_one_that_its_alert_has_no_more_keeps_its_history_only(core: RunningCore) -> None:
    alert_id, (ip, domain) = await new_alert(core, "gone", IP, DOMAIN)
    action = await run(core, ip)
    await sent(core, "PATCH", f"/api/alert/{alert_id}", {"artifacts": [DOMAIN]})
    refused = {"responderId": "Observe_1_0", "objectType": "case_artifact", "objectId": ip}
    assert (await sent(core, "POST", f"{ENGINE}/action", refused, status=404))["message"] == "Artifact not found"
    await sent(core, "GET", f"/api/case/artifact/{ip}", status=404)
    assert (await sent(core, "GET", f"/api/document?ids={ip}"))["missing"] == [ip]
    assert await history(core, ip) == [action["id"]]
    assert (await sent(core, "GET", f"/api/case/artifact/{domain}"))["id"] == domain


async def test_clearance_goes_by_its_own_tlp(core: RunningCore) -> None:
    _, (red, amber) = await new_alert(core, "clearance", {**IP, "tlp": 3}, DOMAIN)
    await core.key("analyst")
    headers = {"X-On-Behalf-Of": "analyst@responder-bot.local"}
    body = {"responderId": "Observe_1_0", "objectType": "case_artifact"}
    for object_id, status in ((red, 403), (amber, 201)):
        answer = await core.send(
            "POST", f"{ENGINE}/action", {**body, "objectId": object_id}, profile="service", headers=headers
        )
        assert answer.status_code == status, answer.text


async def test_simultaneous_runs_and_a_case_leave_one_history(core: RunningCore) -> None:
    alert_id, (ip,) = await new_alert(core, "race", IP)
    made, *actions = await asyncio.gather(
        sent(core, "POST", f"/api/alert/{alert_id}/createCase", status=201), *(run(core, ip) for _ in range(12))
    )
    assert sorted(await history(core, ip)) == sorted(action["id"] for action in actions)
    assert {action["status"] for action in actions} == {"Success"}
    roots = "SELECT DISTINCT root_id FROM action WHERE kind = 'case_artifact' AND object_id = :id"
    rows = await core.core.database.fetch_in_background(roots, {"id": int(ip[1:])})
    assert [f"~{row['root_id']}" for row in rows] == [made["id"]]


@pytest.mark.parametrize("text", ["~0", "~999999999999999999", "x", "~", "~-1", "%00", "~1e3"])
async def test_an_unknown_id_is_a_404(core: RunningCore, text: str) -> None:
    for path in (
        "/api/case/artifact/{}",
        f"{ENGINE}/responder/case_artifact/{{}}",
        f"{ENGINE}/action/case_artifact/{{}}",
    ):
        assert (await core.send("GET", path.format(text))).status_code == 404


async def test_what_ran_on_an_artifact_names_the_one_of_the_case_from_then_on(tmp_path: Path) -> None:
    """Also beside a run whose stored answer is damaged, which stays as it is."""
    offered = [replace(responder, data_types=("thehive:case_artifact",)) for responder in (BLOCK_HOST, NOTIFY)]
    async with open_harness(tmp_path, engine=ScriptedEngine(offered=offered), artifacts=[IP]) as harness:
        alerts, cases = Alerts(harness.database, harness.clock, "soc"), Cases(harness.database, harness.clock)
        (before,) = json.loads(await harness.alert_json())["artifacts"]
        on = {"object_type": "case_artifact", "object_id": before["id"]}
        ids = []
        for _ in range(3):
            ids.append((await harness.actions.start(ANNA, run_input(harness).model_copy(update=on))).action.id)
            run = await next_run(harness.engine)
            run.finish(Report(True, full={"message": "über\u2028"}))
            await harness.ended(ids[-1])
        damaged = dict(zip(ids[1:], ["{damaged", "[1]"], strict=True))
        for action_id, doc in damaged.items():
            values = {"id": int(action_id[1:]), "doc": doc}
            await harness.database.transaction(
                lambda tx, values=values: tx.run("UPDATE action SET doc = :doc WHERE id = :id", values)  # type: ignore[misc] # values is bound here
            )
        whole = await harness.actions.get_json(ids[0])
        case = await cases.create(LEAD, CaseInput.model_validate({"title": "c", "description": "d"}))
        (kept,) = await cases.add_artifacts(LEAD, case.id, ArtifactsInput.model_validate(IP))
        assert kept.id != before["id"]
        await alerts.merge_into(LEAD, [harness.alert_id], case.id)
        found = [await harness.actions.get_json(action_id) for action_id in ids]
        assert found == [whole.replace(f'"objectId":"{before["id"]}"', f'"objectId":"{kept.id}"'), *damaged.values()]
        listed = await harness.actions.list_json("case_artifact", kept.id)
        assert listed == f"[{','.join(reversed(found))}]"


async def test_a_run_whose_artifact_is_removed_meanwhile_ends(tmp_path: Path) -> None:
    policies = {"BlockHost_1_0": ResponderSection(approval=1)}
    offered = [replace(responder, data_types=("thehive:case_artifact",)) for responder in (BLOCK_HOST, NOTIFY)]
    engine = ScriptedEngine(offered=offered)
    async with open_harness(tmp_path, engine=engine, policies=policies, artifacts=[IP, DOMAIN]) as harness:
        alerts = Alerts(harness.database, harness.clock, "soc")
        artifacts = json.loads(await harness.alert_json())["artifacts"]
        on = {"object_type": "case_artifact", "object_id": artifacts[0]["id"]}
        waiting = (await harness.actions.start(ANNA, run_input(harness).model_copy(update=on))).action
        running = (await harness.actions.start(ANNA, run_input(harness, "Notify_2_1").model_copy(update=on))).action
        run = await next_run(harness.engine)
        await run.begin()
        removed = AlertUpdate.model_validate({"artifacts": [{"dataType": "domain", "data": "evil.example"}]})
        await alerts.update(LEAD, harness.alert_id, removed)
        with pytest.raises(ResponderBotError, match="was removed from its alert, so nothing ran on it"):
            await harness.actions.decide(BEN, waiting.id, "approve")
        ended = await harness.ended(waiting.id)
        assert ended.status == "Failure"
        assert "was removed from its alert, so nothing ran on it" in ended.report
        run.finish(Report(True, operations=({"type": "AddTagToArtifact", "tag": "x"},)))
        ended = await harness.ended(running.id)
        assert ended.status == "Success"
        assert "Artifact not found" in ended.operations
