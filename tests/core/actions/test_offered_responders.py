"""Responders on offer: kinds, levels, engines that have the same one, and the reasons why one can't run."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.engines.base import Responder
from core.models import Profile
from core.responders.target import applies
from core.settings import EngineSection, ResponderSection
from tests.core.running import RunningCore, made, running_core
from tests.responder_folders import write_responder

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "elastalert", "sourceRef": "0", "title": "t", "description": "d"}


def written(root: Path, name: str, data_types: list[str], **more: Any) -> None:
    write_responder(root, name, "", **{"dataTypeList": data_types, "description": f"{name} of mine", **more})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    every = ["thehive:case", "thehive:case_task", "thehive:case_task_log", "thehive:case_artifact"]
    first, second = folder / "first", folder / "second"
    written(first, "Everywhere", [*every, "thehive:alert"])
    written(first, "Shouting", ["TheHive:ALERT", "elsewhere:Case"])
    written(first, "Bare", ["alert"])
    written(first, "Narrow", ["thehive:alert"], config={"check_tlp": True, "max_tlp": 1, "check_pap": True})
    written(first, "Unbound", ["thehive:alert"], config={"check_tlp": False})
    written(first, "Default", ["thehive:alert"], config={"check_tlp": True})
    written(second, "Everywhere", ["thehive:alert"], description="of the second")
    engines = (EngineSection(name="one", responders=(first,)), EngineSection(name="two", responders=(second,)))
    asks = {"Everywhere_1_0": ResponderSection(approval=1)}
    async with running_core(folder, engine=engines, core={"organisation": "soc"}, responder=asks) as running:
        await running.key("analyst")  # of whoever could approve it
        yield running


async def offered(core: RunningCore, kind: str, object_id: str, query: str = "") -> list[dict[str, Any]]:
    """The offered responders of this module."""
    answer = await core.send("GET", f"{ENGINE}/responder/{kind}/{object_id}{query}", profile="read-only")
    assert answer.status_code == 200, answer.text
    return [one for one in answer.json() if not one["name"].startswith("ResponderBot_")]


async def test_responders_are_offered_for_their_kinds_whatever_case_and_product_prefix(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "offered", "tlp": 1, "pap": 2})
    case = await made(core, "/api/case", {"title": "t", "description": "d"})
    task = await made(core, f"/api/case/{case['id']}/task", {"title": "t"})
    log = await made(core, f"/api/case/task/{task['id']}/log", {"message": "m"})
    artifact = await made(core, f"/api/case/{case['id']}/artifact", {"dataType": "ip", "data": "192.0.2.1"})
    names = {
        kind: [one["name"] for one in await offered(core, kind, word["id"])]
        for kind, word in (
            ("alert", alert),
            ("case", case),
            ("case_task", task),
            ("case_task_log", log),
            ("case_artifact", artifact),
        )
    }
    assert names == {
        "alert": ["Bare_1_0", "Default_1_0", "Everywhere_1_0", "Narrow_1_0", "Shouting_1_0", "Unbound_1_0"],
        "case": ["Everywhere_1_0", "Shouting_1_0"],
        "case_task": ["Everywhere_1_0"],
        "case_task_log": ["Everywhere_1_0"],
        "case_artifact": ["Everywhere_1_0"],
    }
    shouting = next(one for one in await offered(core, "alert", alert["id"]) if one["name"] == "Shouting_1_0")
    assert shouting["dataTypeList"] == ["TheHive:ALERT", "elsewhere:Case"]


async def test_responders_are_hidden_from_objects_above_their_tlp_and_pap(core: RunningCore) -> None:
    hidden = {}
    for tlp, pap in ((2, 2), (3, 0), (0, 3), (3, 3)):
        alert = await made(core, "/api/alert", {**ALERT, "sourceRef": f"levels {tlp}{pap}", "tlp": tlp, "pap": pap})
        names = {one["name"] for one in await offered(core, "alert", alert["id"])}
        listed = await offered(core, "alert", alert["id"], "?explain=true")
        assert names == {one["name"] for one in listed if not any("PAP" in r or "TLP" in r for r in one["reasons"])}
        hidden[tlp, pap] = sorted({"Default_1_0", "Narrow_1_0", "Unbound_1_0"} - names)
    assert hidden == {
        (2, 2): ["Narrow_1_0"],
        (3, 0): ["Default_1_0", "Narrow_1_0"],
        (0, 3): ["Narrow_1_0"],
        (3, 3): ["Default_1_0", "Narrow_1_0"],
    }


async def test_what_ran_lately_is_counted_for_each_responder(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "counted"})

    async def counted() -> dict[str, int]:
        listed = await offered(core, "alert", alert["id"], "?explain=true")
        (document,) = (await core.send("GET", f"/api/document?ids={alert['id']}&include=responders")).json()[
            "documents"
        ]
        of_document = {one["name"]: one.get("recentRuns") for one in document["responders"][alert["id"]]}
        assert of_document.items() >= {one["name"]: one.get("recentRuns") for one in listed}.items()
        return {name: runs for name, runs in of_document.items() if runs is not None}

    before = await counted()
    for name in ("Bare_1_0", "Bare_1_0", "Unbound_1_0"):
        body = {"responderId": name, "objectType": "alert", "objectId": alert["id"]}
        await made(core, f"{ENGINE}/action", body)
    after = await counted()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "Bare_1_0": 2,
        "Unbound_1_0": 1,
    }


async def test_a_responder_of_two_engines_is_one_offer_with_the_id_of_the_first(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "merged"})
    everywhere = next(one for one in await offered(core, "alert", alert["id"]) if one["name"] == "Everywhere_1_0")
    started = [
        await made(
            core,
            f"{ENGINE}/action",
            {"responderId": responder, "objectType": "alert", "objectId": alert["id"], **engine},
        )
        for responder in (everywhere["id"], "Everywhere_1_0")
        for engine in ({}, {"engineId": "two"})
    ]
    assert (everywhere["engineIds"], everywhere["description"]) == (["one", "two"], "Everywhere of mine")
    assert [action["engineId"] for action in started] == ["one", "two"] * 2
    assert {action["responderId"] for action in started} == {everywhere["id"]}
    only_first = {"responderId": "Bare_1_0", "objectType": "alert", "objectId": alert["id"], "engineId": "two"}
    refused = await made(core, f"{ENGINE}/action", only_first, 404)
    assert refused["message"] == "Responder Bare_1_0 not found"


async def test_a_responder_that_is_not_configured_is_explained_and_not_listed(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "unconfigured"})
    explained = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}?explain=true")).json()
    webhook = next(one for one in explained if one["name"] == "ResponderBot_Webhook_1_0")
    assert webhook["verdict"] == "cannot_run"
    assert webhook["reasons"] == ["not configured: url missing; an administrator can set it"]
    listed = (await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}")).json()
    assert "ResponderBot_Webhook_1_0" not in [one["name"] for one in listed]


async def test_a_run_that_waits_for_approval_is_told_apart_from_one_that_runs(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "waits"})
    run = {"responderId": "Everywhere_1_0", "objectType": "alert", "objectId": alert["id"]}
    action = await made(core, f"{ENGINE}/action", run)
    said: dict[Profile, str] = {"org-admin": "to withdraw it: cancel", "read-only": "wait for the decision on"}
    for profile, then in said.items():
        answer = await core.send("GET", f"{ENGINE}/responder/alert/{alert['id']}?explain=true", profile=profile)
        open_run = next(one for one in answer.json() if one["name"] == "Everywhere_1_0")["openRun"]
        since, by = "since [-0-9]{10} [:0-9]{5} UTC", "asked by org-admin@responder-bot.local"
        assert re.fullmatch(f"already waiting for approval {since}, {by}; {then} {action['id']}", open_run)


async def test_a_missing_permission_is_a_reason(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "right", "tlp": 1})
    listed = await offered(core, "alert", alert["id"], "?explain=true")
    assert {one["verdict"] for one in listed} == {"cannot_run"}
    bare = next(one for one in listed if one["name"] == "Bare_1_0")
    assert bare["reasons"] == ["you have no right to run responders; an administrator can give it"]
    assert bare["policy"] == {"confirm": "", "approval": 0}


async def test_running_a_hidden_responder_is_refused_with_the_reason_and_stores_nothing(core: RunningCore) -> None:
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "hidden"})
    run = {"responderId": "Narrow_1_0", "objectType": "alert", "objectId": alert["id"]}
    refused = await made(core, f"{ENGINE}/action", run, 400)
    assert (refused["type"], refused["message"]) == (
        "BadRequest",
        "Narrow_1_0 can't run on this: TLP:AMBER is above the TLP:GREEN that it may see.",
    )
    case = await made(core, "/api/case", {"title": "t", "description": "d"})
    wrong_kind = await made(
        core, f"{ENGINE}/action", {**run, "responderId": "Bare_1_0", "objectType": "case", "objectId": case["id"]}, 400
    )
    assert wrong_kind["message"] == "Bare_1_0 can't run on this: it is not for this kind of target (Case)."
    assert (await core.send("GET", f"{ENGINE}/action/responder/alert/{alert['id']}")).json() == []


async def test_a_kind_does_not_match_the_beginning_of_another() -> None:
    assert not applies(("thehive:case_task",), "case")
    assert not applies(("thehive:case",), "case_task")
    assert not applies((), "alert")
    assert Responder("", "", "", "", ()).max_tlp == 3
