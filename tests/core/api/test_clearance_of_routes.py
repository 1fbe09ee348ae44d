"""Every route that changes something, with keys that may see nothing of what it names."""

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from core.api.http.endpoint import Endpoint
from core.api.http.router import Router
from core.settings import ResponderSection
from tests.core.actions.test_may_decide import sent
from tests.core.running import RunningCore, ended, running_core

ACTION, MEASURE = "/api/connector/engine/action", "/api/connector/engine/measure"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK, RELEASE = "ResponderBot_Block_1_0", "ResponderBot_Unblock_1_0"

MAKE_SOMETHING = {
    "POST /api/alert",
    "POST /api/case",
    "POST /api/case/template",
    "POST /api/v1/alert",
    "POST /api/v1/case",
    "POST /api/v1/caseTemplate",
}
"""Routes that name nothing which is there."""
OF_OTHERS = re.compile(r"/api/(group|host|ingest|responder|user)(/|$)")
"""Routes of people, hosts, responders and sources, which have no level."""


@dataclass
class World:
    """A core with a TLP:RED alert and case, and what is in them and runs on them."""

    core: RunningCore
    alert: str
    case: str
    ids: Mapping[str, str]
    """By what it is, each thing that a route may name."""
    bulk: str

    def body(self) -> dict[str, Any]:
        """What makes every route act on something RED; each takes of it what it knows."""
        target = {"objectType": "alert", "objectId": self.alert}
        return {
            **target,
            **{"responderId": CLOSE, "targets": [target], "ids": [self.alert], "caseId": self.case},
            **{"alertIds": [self.alert], "undoAfterMinutes": 30, "until": 4_000_000_000_000, "reason": "r"},
            "ends": {self.ids["containment"]: None},
            **{"title": "t", "description": "d", "message": "m", "dataType": "ip", "data": "192.0.2.99", "tlp": 0},
        }

    async def state(self) -> list[Any]:
        """All that is RED, as it is now, and what happened to it."""
        send, seen = self.core.send, []
        for kind, path in (("alert", "/api/alert"), ("case", "/api/case"), ("comment", "/api/comment")):
            seen.append(sorted((await send("POST", f"{path}/_search?range=all", {})).json(), key=lambda one: one["id"]))
            assert seen[-1], kind
        for object_id in (self.alert, self.case):
            seen.append((await send("GET", f"/api/document?ids={object_id}")).json()["documents"])
        seen.append((await send("GET", f"{ACTION}/_newest?state=waiting")).json())
        return [*seen, (await send("GET", MEASURE)).json()]


async def red_world(core: RunningCore) -> World:
    level = {"title": "t", "description": "d", "tlp": 2}
    artifact = {"dataType": "ip", "data": "192.0.2.1", "tlp": 2}
    new = {**level, "type": "siem", "source": "s", "sourceRef": "1", "artifacts": [artifact]}
    alert = await sent(core, "POST", "/api/alert", new)
    case = (await sent(core, "POST", "/api/case", level))["id"]
    task = (await sent(core, "POST", f"/api/case/{case}/task", {"title": "t"}))["id"]
    log = (await sent(core, "POST", f"/api/case/task/{task}/log", {"message": "m"}))["id"]
    of_case = (await sent(core, "POST", f"/api/case/{case}/artifact", {**artifact, "data": "192.0.2.2"}))["id"]
    comments = [
        (await sent(core, "POST", f"/api/{kind}/{root}/comment", {"message": "m"}, by="anna"))["id"]
        for kind, root in (("alert", alert["id"]), ("case", case))
    ]
    block = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": alert["artifacts"][0]["id"]}
    blocked = (await sent(core, "POST", ACTION, block, by="anna"))["id"]
    await sent(core, "POST", f"{ACTION}/{blocked}/approve", by="ben")
    await ended(core, blocked)
    extension = (await sent(core, "PATCH", f"{ACTION}/{blocked}/undo", {"undoAfterMinutes": 0}, by="anna"))["undo"]
    close = {"responderId": CLOSE, "targets": [{"objectType": "alert", "objectId": alert["id"]}]}
    bulk = await sent(core, "POST", f"{ACTION}/_bulk", close, by="anna")
    for kind, root in (("alert", alert["id"]), ("case", case)):
        await sent(core, "PATCH", f"/api/{kind}/{root}", {"tlp": 3})
    return World(
        core,
        alert["id"],
        case,
        {
            **{"alert": alert["id"], "artifact": alert["artifacts"][0]["id"], "case": case, "task": task, "log": log},
            **{"artifact of the case": of_case, "comment": comments[0], "comment on the case": comments[1]},
            **{"containment": blocked, "extension": extension["extension"]["id"]},
            **{"run that waits": bulk["actions"][0]["action"]["id"], "bulk": bulk["id"]},
        },
        bulk["id"],
    )


def paths(world: World, endpoint: Endpoint) -> list[str]:
    """The addresses of a route, one for each thing that `{id}` may name."""
    path = endpoint.path.replace("{caseId}", world.case).replace("{extension}", world.ids["extension"])
    return [path.replace("{id}", number) for number in world.ids.values()] if "{id}" in path else [path]


def is_refused(answer: httpx.Response) -> bool:
    """Whether a request was refused for the clearance: whole, or (a bulk) each of its runs."""
    if answer.status_code == 200:
        outcomes = answer.json().get("actions", [])
        assert outcomes, answer.text
        assert all("TLP:RED" in json.dumps(outcome) and "action" not in outcome for outcome in outcomes), answer.text
        return True
    assert answer.status_code in (403, 404), f"{answer.request.method} {answer.request.url} {answer.text}"
    return answer.status_code == 403 and answer.json().get("tlp") == 3


HOW = ("own key", "bot with a key for what is clear", "bot for somebody cleared for little")


async def test_no_route_acts_on_what_its_caller_may_not_see(tmp_path: Path) -> None:
    sections = {
        BLOCK: ResponderSection(approval=1, undo=RELEASE, undo_after_minutes=60, allow_permanent=True),
        RELEASE: ResponderSection(),
        CLOSE: ResponderSection(approval=1),
    }
    async with running_core(tmp_path, responder=sections) as core:
        people = core.core.people
        for name in ("anna", "ben"):
            core.keys[name] = await people.add(name, "analyst", clearance=3)
        await people.add("lead", "org-admin", clearance=3)
        await people.add("low", "org-admin", clearance=0)
        await people.add("bot", "service", clearance=3)
        keys = [await people.add_key(login, "bound", clearance=0) for login in ("lead", "bot")]
        keys.append(await people.add_key("bot", "free", clearance=3))
        of_whom = [{}, {"X-On-Behalf-Of": "lead"}, {"X-On-Behalf-Of": "low"}]
        callers = [{"Authorization": f"Bearer {key}", **acting} for key, acting in zip(keys, of_whom, strict=True)]
        world = await red_world(core)
        before = await world.state()
        assert isinstance(core.core.asgi, Router)
        walked = [
            endpoint
            for endpoint in core.core.asgi.endpoints
            if endpoint.writes and not OF_OTHERS.match(endpoint.path)
            if f"{endpoint.method} {endpoint.path}" not in MAKE_SOMETHING
        ]
        for endpoint in walked:
            body = world.body() if endpoint.method not in ("GET", "DELETE") else None
            refused = []
            for path in paths(world, endpoint):
                first = await core.send(endpoint.method, path, body, profile=None, headers=callers[0])
                if is_refused(first):  # else it names nothing of that kind
                    refused.append(path)
            assert refused, f"{endpoint.method} {endpoint.path} refused nothing"
            for path, (how, headers) in itertools.product(refused, zip(HOW[1:], callers[1:], strict=True)):
                answer = await core.send(endpoint.method, path, body, profile=None, headers=headers)
                assert is_refused(answer), f"{endpoint.method} {path} by {how}: {answer.text}"
        assert await world.state() == before
        assert len(walked) > 80
