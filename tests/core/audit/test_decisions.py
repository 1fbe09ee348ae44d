"""Each route that changes something either decides, and so adds a row of the audit, or keeps records."""

import ast
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, get_args

from core.audit import trail
from core.common.clock import MINUTE_MS, now_ms
from core.settings import ResponderSection
from tests.core.audit.test_trail import rows_of
from tests.core.running import RunningCore, ended, running_core

RUN = "/api/connector/engine/action"
MEASURE = "/api/connector/engine/measure"
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
asked = json.loads((folder / "input/input.json").read_text())
success = not asked["parameters"].get("fail")
report = {"success": success, **({"full": {}, "operations": []} if success else {"errorMessage": "no"})}
(folder / "output/output.json").write_text(json.dumps(report))
"""
POLICIES: dict[str, dict[str, Any]] = {
    "Block": {"approval": 1, "undo": "Release_1_0", "undo_after_minutes": 60},
    "Release": {},
    "Plain": {},
}
RECORDS = ("/api/alert", "/api/case", "/api/comment", "/api/ingest/{name}")
"""What is below these and decides nothing keeps what is known of alerts and cases; the event feed says who did it."""


async def test_each_route_that_decides_adds_its_row(tmp_path: Path) -> None:
    for name in POLICIES:
        (tmp_path / "responders" / name).mkdir(parents=True)
        definition = {"name": name, "version": "1.0", "dataTypeList": ["thehive:alert"], "command": f"{name}/run.py"}
        (tmp_path / "responders" / name / f"{name}.json").write_text(json.dumps(definition))
        (tmp_path / "responders" / name / "run.py").write_text(PROGRAM)
    async with running_core(
        tmp_path,
        engine=({"name": "local", "responders": (tmp_path / "responders",)},),
        responder={f"{name}_1_0": ResponderSection.model_validate(policy) for name, policy in POLICIES.items()},
    ) as core:
        walk = Walk(core)
        await walk.runs()
        await walk.ends()
        await walk.bulks()
        await walk.people()
        await walk.others()
        routes = {(endpoint.method, endpoint.path) for endpoint in core.core.endpoints if endpoint.method != "GET"}
        left = {(method, path) for method, path in routes - walk.routes if not path.endswith("/_search")}
        assert {route for route in left if not route[1].startswith(RECORDS)} == set()
        assert walk.routes <= routes


class Walk:
    """Sends requests, and compares the rows that each adds."""

    def __init__(self, core: RunningCore) -> None:
        self.core = core
        self.routes: set[tuple[str, str]] = set()
        self._alerts = 0

    async def alert(self) -> str:
        self._alerts += 1
        fields = {"type": "t", "source": "s", "sourceRef": str(self._alerts), "title": "t", "description": "d"}
        return str((await self.core.send("POST", "/api/alert", fields)).json()["id"])

    async def send(self, method: str, route: str, what: trail.What, body: Any = None, **options: Any) -> Any:
        """The answer to a request, whose transaction adds a row `what`; `{id}` and the like are given as `id_=`."""
        self.routes.add((method, route))
        path = route
        for name in ("id", "name", "login", "extension"):
            path = path.replace(f"{{{name}}}", options.pop(f"{name}_", ""))
        before = len(await rows_of(self.core.core.database))
        answer = await self.core.send(method, path, body, **options)
        assert answer.status_code in (200, 201), (method, path, answer.text)
        added = (await rows_of(self.core.core.database))[before:]
        assert what in {row["what"] for row in added}, (method, path, added)
        return answer.json()

    async def run(self, name: str, *, approve: bool = False, **body: Any) -> str:
        """The id of a run on a new alert; with `approve` it has ended."""
        asked = {"responderId": f"{name}_1_0", "objectType": "alert", "objectId": await self.alert(), **body}
        action = str((await self.send("POST", RUN, "run.requested", asked))["id"])
        if approve:
            await self.send("POST", f"{RUN}/{{id}}/approve", "run.approved", {}, id_=action, profile="analyst")
            await self.ended(action)
        return action

    async def ended(self, action: str) -> None:
        await ended(self.core, action)
        (*_, row) = [row for row in await self.rows(action) if row["what"] == "run.ended"]
        assert row["outcome"]

    async def rows(self, object_id: str) -> Sequence[dict[str, Any]]:
        return [row for row in await rows_of(self.core.core.database) if row["object"] == object_id]

    async def runs(self) -> None:
        await self.core.key("analyst")
        action = await self.run("Block", approve=True)
        assert [row["what"] for row in await self.rows(action)] == [
            "run.requested", "run.approved", "run.dispatched", "run.ended",
        ]  # fmt: skip
        asked, _, dispatched, _ = await self.rows(action)
        assert (dispatched["version"], len(dispatched["code"])) == ("1.0", 64)
        assert dispatched["code"] == asked["code"]
        action = await self.run("Block")
        await self.send("POST", f"{RUN}/{{id}}/deny", "run.denied", {}, id_=action, profile="analyst")
        action = await self.run("Block")
        await self.send("DELETE", f"{RUN}/{{id}}", "run.cancelled", id_=action)
        action = await self.run("Block")
        await self.send("POST", f"{RUN}/{{id}}/cancel", "run.cancelled", {"message": "a lab host"}, id_=action)

    async def ends(self) -> None:
        """When what runs have left in force ends."""
        undo, decide = f"{RUN}/{{id}}/undo", f"{RUN}/{{id}}/undo/{{extension}}"
        action = await self.run("Block", approve=True)
        await self.send("PATCH", undo, "undo.moved", {"undoAfterMinutes": 30}, id_=action)
        asked = await self.send("PATCH", undo, "extension.requested", {"undoAfterMinutes": 60}, id_=action)
        waits = asked["undo"]["extension"]["id"]
        await self.send("POST", f"{decide}/cancel", "extension.cancelled", {}, id_=action, extension_=waits)
        for word, what in (("deny", "extension.denied"), ("approve", "extension.approved")):
            changed = await self.send("PATCH", undo, "extension.requested", {"undoAfterMinutes": 60}, id_=action)
            path = {"id_": action, "extension_": changed["undo"]["extension"]["id"], "profile": "analyst"}
            await self.send("POST", f"{decide}/{word}", what, {}, **path)  # type: ignore[arg-type]
        started = await self.send("POST", undo, "undo.started", {}, id_=action)
        await self.ended(started["id"])
        assert (await self.rows(action))[-1]["what"] == "measure.ended"
        action, now = await self.run("Block", approve=True), now_ms()
        await self.send("POST", f"{MEASURE}/{{id}}/shorten", "undo.moved", {"until": now + 10 * MINUTE_MS}, id_=action)
        await self.send("POST", f"{MEASURE}/{{id}}/extend", "undo.moved", {"until": now + 20 * MINUTE_MS}, id_=action)
        await self.send("POST", f"{MEASURE}/_extend", "undo.moved", {"ends": {action: now + 25 * MINUTE_MS}})
        await self.send("POST", f"{MEASURE}/{{id}}/end", "measure.ended", {"reason": "gone"}, id_=action)
        action = await self.run("Block", approve=True)
        (started,) = await self.send("POST", f"{MEASURE}/{{id}}/undo", "undo.started", id_=action)
        await self.ended(started["id"])

    async def bulks(self) -> None:
        for word, what in (("approve", "run.approved"), ("deny", "run.denied")):
            targets = [{"objectType": "alert", "objectId": await self.alert()} for _ in range(2)]
            body = {"responderId": "Block_1_0", "targets": targets}
            bulk = (await self.send("POST", f"{RUN}/_bulk", "run.requested", body))["id"]
            await self.send("POST", f"{RUN}/_bulk/{{id}}/{word}", what, {}, id_=bulk, profile="analyst")  # type: ignore[arg-type]
        targets = [{"objectType": "alert", "objectId": await self.alert()}]
        asked = {"responderId": "Release_1_0", "targets": targets, "parameters": {"fail": True}}
        failing = await self.send("POST", f"{RUN}/_bulk", "run.requested", asked)
        await self.ended(failing["actions"][0]["action"]["id"])
        await self.send("POST", f"{RUN}/_bulk/{{id}}/retry", "run.requested", id_=failing["id"])

    async def people(self) -> None:
        await self.core.core.people.add("person0", "analyst")
        words: Sequence[tuple[str, trail.What]] = (
            ("disable", "user.disabled"),
            ("enable", "user.enabled"),
            ("key", "key.made"),
        )
        for word, what in words:
            await self.send("POST", f"/api/user/{{login}}/{word}", what, login_="person0")
        members = {"members": ["person0"]}
        await self.send("PUT", "/api/group/{name}", "group.members", members, name_="containment")

    async def others(self) -> None:
        (host, *_) = (await self.core.send("GET", "/api/host")).json()
        for method, what in (("POST", "host.drained"), ("DELETE", "host.resumed")):
            body: dict[str, Any] | None = {} if method == "POST" else None
            await self.send(method, "/api/host/{name}/drain", what, body, name_=host["name"])  # type: ignore[arg-type]


def test_each_kind_of_row_is_written_somewhere() -> None:
    named = {name for file in Path("core").rglob("*.py") for name in _texts(file)}
    assert set(get_args(trail.What)) - named == set()


def _texts(file: Path) -> Collection[str]:
    """The texts of a module, without those of the two lists of all kinds: `What` and `SENTENCES`."""
    return {
        node.value
        for statement in ast.parse(file.read_text()).body
        if not ast.unparse(statement).startswith(("What = ", "SENTENCES: "))
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
