"""The rules of responders over HTTP: every route to a run, statuses and headers, pauses, what lists and health say."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.core.running import RunningCore, ended, made, running_core
from tests.responder_folders import write_responder

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "/api/connector/engine/action"
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
asked = json.loads((folder / "input/input.json").read_text())
success = not asked["parameters"].get("fail")
report = {"success": success, **({"full": {}, "operations": []} if success else {"errorMessage": "no"})}
(folder / "output/output.json").write_text(json.dumps(report))
"""
RULES: dict[str, dict[str, Any]] = {
    "Named": {"run_by": ["@containment"]},
    "Rated": {"rate": ["1/1h"]},
    "Approved": {"approval": 1, "approve_by": ["chief"]},
    "Fragile": {"protect": False},
    "Plain": {},
    "Grave": {"only_on": {"severity_at_least": 3}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    for name in RULES:
        types = ["thehive:alert", "thehive:case", "thehive:case_artifact"]
        write_responder(folder / "responders", name, PROGRAM, dataTypeList=types)
    async with running_core(
        folder,
        engine=({"name": "local", "responders": (folder / "responders",)},),
        responder={f"{name}_1_0": rule for name, rule in RULES.items()},
        protect={"artifacts": ("10.0.0.0/8",)},
    ) as running:
        await running.key("service")
        yield running


async def new_alert(core: RunningCore, ref: str, *data: str) -> dict[str, Any]:
    artifacts = [{"dataType": "ip", "data": item} for item in data]
    body = {"type": "t", "source": "s", "sourceRef": ref, "title": "t", "description": "d", "artifacts": artifacts}
    return dict((await core.send("POST", "/api/alert", body)).json())


def body_of(name: str, target: str, kind: str = "alert", **more: Any) -> dict[str, Any]:
    return {"responderId": f"{name}_1_0", "objectType": kind, "objectId": target, **more}


async def test_every_route_to_a_run_is_checked(core: RunningCore) -> None:
    alert = (await new_alert(core, "routes"))["id"]
    behalf = {"Authorization": f"Bearer {core.keys['service']}", "X-On-Behalf-Of": "analyst"}
    await core.key("analyst")
    body = body_of("Named", alert)
    for path, headers in (
        (RUN, {}),
        (RUN, behalf),
        ("/api/connector/cortex/action", {}),
        ("/api/v1/connector/cortex/action", {}),
        (RUN, {"Idempotency-Key": "again"}),
        (RUN, {"Idempotency-Key": "again"}),
    ):
        answer = await core.send("POST", path, body, profile="analyst", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "AuthorizationError"), path
        assert answer.json()["rule"] == "run_by"
        assert answer.json()["message"] == (
            "You are not authorized to run Named_1_0: only @containment may run it; ask one of them."
        )
    by_id = await core.send("GET", f"/api/connector/engine/responder/alert/{alert}?explain=true", profile="analyst")
    named = next(item for item in by_id.json() if item["name"] == "Named_1_0")
    answer = await core.send("POST", RUN, {**body, "responderId": named["id"]}, profile="analyst")
    assert answer.status_code == 403
    bulk = {
        "responderId": "Named_1_0",
        "targets": [{"objectType": "alert", "objectId": alert}],
        "breakGlass": {"reason": "x"},
    }
    (entry,) = (await core.send("POST", f"{RUN}/_bulk", bulk)).json()["actions"]
    assert (entry["status"], entry["type"]) == (403, "AuthorizationError")


async def test_a_rate_is_a_429_with_the_time_to_wait(core: RunningCore) -> None:
    alert = (await new_alert(core, "rate"))["id"]
    assert (await core.send("POST", RUN, body_of("Rated", alert))).status_code == 201
    answer = await core.send("POST", RUN, body_of("Rated", alert))
    refusal = answer.json()
    assert (answer.status_code, refusal["type"], refusal["rule"]) == (429, "RateLimitError", "rate")
    assert 0 < int(answer.headers["Retry-After"]) <= 3600
    assert refusal["until"] > 0
    bulk = {"responderId": "Rated_1_0", "targets": [{"objectType": "alert", "objectId": alert}] * 2}
    answers = (await core.send("POST", f"{RUN}/_bulk", bulk)).json()["actions"]
    assert {item["status"] for item in answers} <= {429, 400}


async def test_a_protected_target_is_a_400_and_lists_say_so(core: RunningCore) -> None:
    alert = await new_alert(core, "protect", "10[.]0.0.5", "198.51.100.7")
    bad, good = (item["id"] for item in alert["artifacts"])
    answer = await core.send("POST", RUN, body_of("Plain", bad, "case_artifact"))
    assert (answer.status_code, answer.json()["type"], answer.json()["rule"]) == (400, "BadRequest", "protect")
    assert (await core.send("POST", RUN, body_of("Plain", good, "case_artifact"))).status_code == 201
    document = (await core.send("GET", f"/api/document?ids={alert['id']}&include=responders")).json()["documents"][0]
    assert "Plain_1_0" in document["artifactResponders"][good]
    assert "Plain_1_0" not in document["artifactResponders"][bad]
    assert "Fragile_1_0" in document["artifactResponders"][bad]  # it only tells
    plain = next(item for item in document["responders"][alert["id"]] if item["name"] == "Plain_1_0")
    assert [refusal["rule"] for refusal in plain["refusals"]] == ["protect"]
    assert plain["verdict"] == "cannot_run"


async def test_lists_judge_an_artifact_of_a_case_by_that_case_as_a_run_does(core: RunningCore) -> None:
    alert = await new_alert(core, "grave", "198.51.100.8")
    (artifact,) = (item["id"] for item in alert["artifacts"])

    async def offered() -> bool:
        page = (await core.send("GET", f"/api/document?ids={alert['id']}&include=responders")).json()
        return "Grave_1_0" in page["documents"][0]["artifactResponders"][artifact]

    await core.send("PATCH", f"/api/alert/{alert['id']}", {"severity": 3})
    assert await offered()
    case = (await core.send("POST", f"/api/alert/{alert['id']}/createCase")).json()
    await core.send("PATCH", f"/api/case/{case['id']}", {"severity": 1})
    assert not await offered()
    answer = await core.send("POST", RUN, body_of("Grave", artifact, "case_artifact"))
    assert (answer.status_code, answer.json()["rule"]) == (400, "only_on")


async def test_who_approves_is_checked_and_shown(core: RunningCore) -> None:
    await core.key("org-admin", "chief")
    alert = (await new_alert(core, "approve"))["id"]
    action = await core.send("POST", RUN, body_of("Approved", alert), profile="analyst")
    path = f"{RUN}/{action.json()['id']}/approve"
    answer = await core.send("POST", path, {})
    assert (answer.status_code, answer.json()["rule"]) == (403, "approve_by")
    document = (await core.send("GET", f"/api/document?ids={alert}")).json()["documents"][0]
    named = ["chief@responder-bot.local"]
    assert document["policies"]["Approved_1_0"] == {"confirm": "", "approval": 1, "approveBy": named}
    chief = {"Authorization": f"Bearer {core.keys['chief']}"}
    assert (await core.send("POST", path, {}, headers=chief)).status_code == 200
    assert (await ended(core, action.json()["id"]))["status"] == "Success"


async def test_a_rule_is_overridden_over_http(core: RunningCore) -> None:
    await core.key("org-admin", "chief")
    alert = await new_alert(core, "override", "10.0.0.5")
    body = body_of("Plain", alert["id"], breakGlass={"reason": "It is infected"})
    assert (await core.send("POST", RUN, body, profile="analyst")).status_code == 403
    wrong = await core.send("POST", RUN, {**body, "breakGlass": {"reason": "  "}})
    assert (wrong.status_code, wrong.json()["errors"][0]["name"]) == (400, "breakGlass.reason")
    action = await core.send("POST", RUN, body)
    chief = {"Authorization": f"Bearer {core.keys['chief']}"}
    path = f"{RUN}/{action.json()['id']}/approve"
    assert (await core.send("POST", path, {}, profile="analyst")).status_code == 403
    assert (await core.send("POST", path, {}, headers=chief)).status_code == 200
    override = (await ended(core, action.json()["id"]))["breakGlass"]
    assert (override["reason"], override["approvedBy"]) == ("It is infected", "chief@responder-bot.local")
    assert [item["rule"] for item in override["overrides"]] == ["protect"]


async def test_a_note_is_kept_searched_and_read_by_no_rule(core: RunningCore) -> None:
    alert = (await new_alert(core, "note", "198.51.100.9"))["id"]
    note = "  Seen on 10.0.0.5 <too>, ask Ben\n"
    run = await ended(core, (await made(core, RUN, body_of("Plain", alert, note=note)))["id"])
    assert run["note"] == note.strip()
    assert "note" not in json.loads(run["report"])
    searched = await core.send("POST", "/api/connector/engine/action/_search", {"query": {"note": note.strip()}})
    assert [found["id"] for found in searched.json()] == [run["id"]]
    for none in ("", " \n", None):
        assert "note" not in (await core.send("POST", RUN, body_of("Plain", alert, note=none))).json()
    for wrong in ("x" * 501, 5, ["x"]):
        assert (await core.send("POST", RUN, body_of("Plain", alert, note=wrong))).status_code == 400
    assert (await core.send("POST", RUN, body_of("Plain", alert, note="é" * 500))).status_code == 201


async def test_the_runs_of_a_bulk_and_of_its_retry_have_its_note(core: RunningCore) -> None:
    targets = [{"objectType": "alert", "objectId": (await new_alert(core, f"note {n}"))["id"]} for n in range(2)]
    body = {"responderId": "Plain_1_0", "targets": targets, "parameters": {"fail": True}, "note": "drill"}
    bulk = (await core.send("POST", f"{RUN}/_bulk", body)).json()
    for entry in bulk["actions"]:
        assert entry["action"]["note"] == "drill"
        await ended(core, entry["action"]["id"])
    retried = (await core.send("POST", f"{RUN}/_bulk/{bulk['id']}/retry")).json()
    assert [entry["action"]["note"] for entry in retried["actions"]] == ["drill", "drill"]


async def test_the_reason_of_an_override_is_the_note(core: RunningCore) -> None:
    alert = await new_alert(core, "override note", "10.0.0.6")
    for more, status in (({"reason": "It spreads"}, 201), ({"reason": "x" * 501}, 400)):
        body = body_of("Plain", alert["artifacts"][0]["id"], "case_artifact", note="drill", breakGlass=more)
        answer = await core.send("POST", RUN, body)
        assert answer.status_code == status
        assert answer.json().get("note") == ("It spreads" if status == 201 else None)
