"""Two targets are one only if they are equal: what was asked for is what the program gets and what an undo releases."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from core.models import is_same_target
from core.protection import parse
from tests.core.running import RunningCore, ended, made, running_core
from tests.responder_folders import write_responder

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASE = "/api/connector/engine"
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
data = json.loads((folder / "input/input.json").read_text())["data"]
got = [artifact["data"] for artifact in data.get("artifacts", [data])]
report = {"success": True, "full": {"got": got}, "operations": []}
(folder / "output/output.json").write_text(json.dumps(report))
"""
RUN = [
    ("url", "https://files.example/a", "https://files.example/b"),
    ("hostname", "srv7", "x/srv7"),
    ("other", "host/admin", "bob/admin"),
]
PAIRS = [
    *RUN,
    ("other", "S-1-5-21-1004336348-1177238915-682003330-512", "S-1-5-21-1004336348-1177238915-682003330-1104"),
    ("other", "arn:aws:iam::123456789012:role/admin", "arn:aws:iam::123456789012:role/web"),
    ("username", "alice@corp", "bob@corp"),
    ("other", "sensor:12345", "sensor:67890"),
    ("other", "/srv/evil", "/opt/evil"),
    ("other", r"\\srv1\c$", r"\\srv2\c$"),
    ("registry", r"HKLM\Run\evil", r"HKCU\Run\evil"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    folder = tmp_path_factory.mktemp("core")
    for name in ("Contain", "Release"):
        write_responder(folder / "responders", name, PROGRAM, dataTypeList=["thehive:alert"])
    own = {"Contain_1_0": {"undo": "Release_1_0", "target": sorted({pair[0] for pair in RUN})}}
    engine = {"name": "local", "responders": (folder / "responders",)}
    async with running_core(folder, engine=(engine,), responder=own) as running:
        yield running


async def alert_with(core: RunningCore, ref: str, data_type: str, *data: str) -> str:
    artifacts = [{"dataType": data_type, "data": item} for item in data]
    body = {"type": "t", "source": "s", "sourceRef": ref, "title": "t", "description": "d", "artifacts": artifacts}
    return str((await core.send("POST", "/api/alert", body)).json()["id"])


async def contained(core: RunningCore, alert: str, target: str) -> dict[str, Any]:
    body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert, "target": target}
    return await ended(core, (await made(core, f"{BASE}/action", body))["id"])


def got(action: dict[str, Any]) -> Any:
    return json.loads(action["report"])["full"]["got"]


async def listed(core: RunningCore, target: str) -> list[list[str]]:
    found = await core.send("GET", f"{BASE}/measure", params={"target": target})
    return [measure["actions"] for measure in found.json()]


@pytest.mark.parametrize(("data_type", "first", "second"), PAIRS)
async def test_two_that_are_not_equal_are_parsed_as_two(data_type: str, first: str, second: str) -> None:
    assert parse(data_type, first).digest != parse(data_type, second).digest
    assert not is_same_target(data_type, first, second)


@pytest.mark.parametrize(("data_type", "first", "second"), RUN)
async def test_two_that_are_not_equal_are_two(core: RunningCore, data_type: str, first: str, second: str) -> None:
    alert = await alert_with(core, f"{data_type} {first}", data_type, first, second)
    actions = {target: await contained(core, alert, target) for target in (first, second)}
    for target, action in actions.items():
        assert (got(action), [one["data"] for one in action["target"]]) == ([target], [target])
        assert await listed(core, target) == [[action["id"]]]
    answer = await core.send("POST", f"{BASE}/action/{actions[second]['id']}/undo", {})
    assert got(await ended(core, answer.json()["id"])) == [second]
    left = (await core.send("GET", f"{BASE}/action/{actions[first]['id']}")).json()
    assert (left["measure"]["state"], left["undo"]["status"]) == ("in_force", "available")
    assert (await listed(core, first), await listed(core, second)) == ([[actions[first]["id"]]], [])
