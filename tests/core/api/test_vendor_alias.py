"""The connector's routes with a vendor's field names."""

import json
from pathlib import Path

import pytest

from tests.core.running import RunningCore, ended, made, running_core
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


async def alert(core: RunningCore, ref: str) -> str:
    return str((await made(core, "/api/alert", {**ALERT, "sourceRef": ref}))["id"])


async def test_errors_and_searches_use_the_vendors_field_names(core: RunningCore) -> None:
    base, alert_id = "/api/connector/cortex/action", await alert(core, "alias")
    run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert_id}
    wrong = (await core.send("POST", base, {**run, "cortexId": 5})).json()
    ours = (await core.send("POST", base.replace("cortex", "engine"), {**run, "engineId": 5})).json()
    made = (await core.send("POST", base, {**run, "cortexId": "local"})).json()
    query = {"query": {"_and": [{"_field": "cortexId", "_value": "local"}, {"cortexJobId": made["cortexJobId"]}]}}
    found = (await core.send("POST", f"{base}/_search", query)).json()
    none = (
        await core.send("POST", f"{base}/_search", {"query": {"_in": {"_field": "cortexId", "_values": ["x"]}}})
    ).json()
    assert (wrong["errors"][0]["name"], wrong["message"]) == (
        "cortexId",
        "[Invalid format for cortexId, expected string]",
    )
    assert ours["errors"][0]["name"] == "engineId"
    assert [action["id"] for action in found] == [made["id"]]
    assert found[0]["cortexId"] == "local"
    assert none == []


async def test_the_action_of_a_conflict_has_the_vendors_field_names(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: {"approval": 1}}) as here:
        await here.key("analyst")  # of whoever could approve it
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": await alert(here, "1"), "onlyIfIdle": True}
        first = (await here.send("POST", "/api/connector/cortex/action", run)).json()
        alias = await here.send("POST", "/api/connector/cortex/action", run)
        plain = await here.send("POST", "/api/connector/engine/action", run)
    for answer, vendor in ((alias, "cortex"), (plain, "engine")):
        body = answer.json()
        assert (answer.status_code, body["type"], body["action"]["id"]) == (409, "ConflictError", first["id"])
        assert {key for key in body["action"] if key.startswith(("engine", "cortex"))} == {
            f"{vendor}Id",
            f"{vendor}JobId",
        }


async def test_texts_and_parameters_are_not_translated(core: RunningCore) -> None:
    text = 'he said "engineId": and "cortexId":'
    run = {
        "responderId": "ResponderBot_ExtractIndicators_1_0",  # which declares no inputs, so any will do
        "objectType": "alert",
        "objectId": await alert(core, "words"),
        "parameters": {"reason": text, "cortexId": "mine"},
    }
    action = await ended(core, (await made(core, "/api/connector/cortex/action", run))["id"])
    assert json.loads(action["report"])["parameters"] == {
        "reason": text,
        "cortexId": "mine",
        "user": "org-admin@responder-bot.local",
        "organisation": "default",
    }
