"""Clearance over HTTP: nobody acts through the bot on what they may not see in Slack."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.settings import ResponderSection
from tests.core.running import RunningCore, running_core

ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
REFUSED = "it is TLP:RED and you may see up to TLP:AMBER; ask somebody who may see it"


@dataclass
class ClearedCore:
    """A core with `amber` and `red`, analysts with these clearances, and the org-admin `lead`, cleared for amber."""

    core: RunningCore

    async def act(self, login: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """A request of the bot on behalf of a user."""
        return await self.core.send(method, path, body, profile="service", headers={"X-On-Behalf-Of": login})

    async def own(self, method: str, path: str, body: Any = None) -> Any:
        """A request of `amber` with their own key."""
        headers = {"Authorization": f"Bearer {self.core.keys['amber']}"}
        answer = await self.core.send(method, path, body, profile=None, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def alert(self, tlp: int = 3, reference: str = "1") -> str:
        body = {"type": "siem", "source": "s", "sourceRef": reference, "title": "t", "description": "d", "tlp": tlp}
        return str((await self.core.send("POST", "/api/alert", body)).json()["id"])

    async def run(self, login: str, object_id: str, kind: str = "alert", responder: str = CLOSE) -> httpx.Response:
        body = {"responderId": responder, "objectType": kind, "objectId": object_id}
        return await self.act(login, "POST", ACTION, body)

    async def ended(self, action_id: str) -> dict[str, Any]:
        action: dict[str, Any] = {}
        while "endDate" not in action:
            action = (await self.core.send("GET", f"{ACTION}/{action_id}?wait=20")).json()
        return action

    async def events(self) -> int:
        return int((await self.core.send("GET", "/api/event")).json()["last"])


@asynccontextmanager
async def cleared_core(folder: Path, **policy: Any) -> AsyncIterator[ClearedCore]:
    parts: dict[str, Any] = {"responder": {CLOSE: ResponderSection(**policy)}} if policy else {}
    async with running_core(folder, **parts) as core:
        core.keys["amber"] = await core.core.access.add("amber", "analyst", clearance=2)
        core.keys["red"] = await core.core.access.add("red", "analyst", clearance=3)
        core.keys["lead"] = await core.core.access.add("lead", "org-admin", clearance=2)
        yield ClearedCore(core)


def is_refused(answer: httpx.Response) -> None:
    body = answer.json()
    assert (answer.status_code, body["type"]) == (403, "AuthorizationError"), answer.text
    assert body["message"].startswith("You are not authorized to ")
    assert body["message"].endswith(REFUSED)
    assert (body["tlp"], body["clearance"]) == (3, 2)


@pytest.mark.parametrize("login", ["amber", "lead"])
async def test_a_run_on_an_object_above_the_clearance_is_refused_through_the_bot_only(
    tmp_path: Path, login: str
) -> None:
    async with cleared_core(tmp_path) as cleared:
        alert = await cleared.alert()
        before = await cleared.events()
        is_refused(await cleared.run(login, alert))
        is_refused(await cleared.run(login, alert, responder="no such responder"))
        assert await cleared.events() == before
        explained = await cleared.act(login, "GET", f"/api/connector/engine/responder/alert/{alert}?explain=true")
        reasons = [entry["reasons"] for entry in explained.json() if entry["verdict"] == "can_run"]
        assert reasons == []
        assert "it is TLP:RED and you may see up to TLP:AMBER" in str(explained.json())
        assert (await cleared.run("red", alert)).status_code == 201
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert}
        assert (await cleared.own("POST", ACTION, run))["createdBy"] == "amber@responder-bot.local"


async def test_tasks_and_logs_have_the_level_of_their_case_and_artifacts_their_own(tmp_path: Path) -> None:
    async with cleared_core(tmp_path) as cleared:
        send = cleared.core.send
        case = (await send("POST", "/api/case", {"title": "t", "description": "d", "tlp": 3})).json()["id"]
        task = (await send("POST", f"/api/case/{case}/task", {"title": "t"})).json()["id"]
        log = (await send("POST", f"/api/case/task/{task}/log", {"message": "m"})).json()["id"]
        fields = {"dataType": "ip", "data": "192.0.2.1", "tlp": 2}
        artifact = (await send("POST", f"/api/case/{case}/artifact", fields)).json()["id"]
        for kind, number in (("case", case), ("case_task", task), ("case_task_log", log)):
            is_refused(await cleared.run("amber", number, kind))
        assert (await cleared.run("amber", artifact, "case_artifact")).status_code == 400  # not for this kind
        for method, path, body in (
            ("PATCH", f"/api/case/{case}", {"title": "x"}),
            ("DELETE", f"/api/case/{case}", None),
            ("POST", f"/api/case/{case}/task", {"title": "x"}),
            ("POST", f"/api/case/{case}/artifact", {"dataType": "ip", "data": "192.0.2.2"}),
            ("POST", f"/api/case/{case}/comment", {"message": "x"}),
            ("PATCH", f"/api/case/task/{task}", {"title": "x"}),
            ("POST", f"/api/case/task/{task}/log", {"message": "x"}),
            ("PATCH", f"/api/case/task/log/{log}", {"message": "x"}),
        ):
            is_refused(await cleared.act("amber", method, path, body))
        changed = await cleared.act("amber", "PATCH", f"/api/case/artifact/{artifact}", {"message": "x"})
        assert changed.status_code == 200


async def test_changes_of_an_alert_above_the_clearance_are_refused(tmp_path: Path) -> None:
    async with cleared_core(tmp_path) as cleared:
        red, amber = await cleared.alert(), await cleared.alert(2, "2")
        case = (await cleared.core.send("POST", "/api/case", {"title": "t", "description": "d", "tlp": 3})).json()["id"]
        comment = (await cleared.core.send("POST", f"/api/alert/{red}/comment", {"message": "m"})).json()["id"]
        before = await cleared.events()
        for method, path, body in (
            ("PATCH", f"/api/alert/{red}", {"status": "Ignored"}),
            ("PATCH", f"/api/alert/{red}", {"tlp": 2}),
            ("PATCH", "/api/alert/_bulk", {"ids": [amber, red], "addTags": ["x"]}),
            ("POST", f"/api/alert/{red}/markAsRead", None),
            ("POST", f"/api/alert/{red}/markAsUnread", None),
            ("POST", f"/api/alert/{red}/follow", None),
            ("POST", f"/api/alert/{red}/artifact", {"dataType": "ip", "data": "192.0.2.1"}),
            ("POST", f"/api/alert/{red}/comment", {"message": "x"}),
            ("DELETE", f"/api/comment/{comment}", None),
            ("POST", f"/api/alert/{red}/createCase", None),
            ("POST", f"/api/alert/{amber}/merge/{case}", None),
            ("POST", "/api/alert/merge/_bulk", {"caseId": case, "alertIds": [red]}),
            ("PATCH", f"/api/v1/alert/{red}", {"tlp": 2}),
        ):
            is_refused(await cleared.act("lead" if "comment" in path else "amber", method, path, body))
        assert await cleared.events() == before
        assert (await cleared.act("red", "POST", f"/api/alert/{red}/createCase")).status_code == 201
        await cleared.own("POST", f"/api/alert/{red}/markAsRead")


async def test_who_may_not_see_the_object_neither_approves_denies_nor_cancels(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, approval=1) as cleared:
        alert = await cleared.alert()
        action = (await cleared.run("red", alert)).json()["id"]
        own = (await cleared.own("POST", ACTION, {"responderId": CLOSE, "objectType": "alert", "objectId": alert}))[
            "id"
        ]
        before = await cleared.events()
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action}/approve"))
        is_refused(await cleared.act("amber", "POST", f"{ACTION}/{action}/deny"))
        is_refused(await cleared.act("lead", "DELETE", f"{ACTION}/{action}"))
        is_refused(await cleared.act("amber", "DELETE", f"{ACTION}/{own}"))
        assert await cleared.events() == before
        assert (await cleared.own("POST", f"{ACTION}/{action}/approve"))["status"] == "Waiting"
        assert (await cleared.ended(action))["status"] == "Success"
        assert (await cleared.own("DELETE", f"{ACTION}/{own}"))["status"] == "Deleted"


async def test_a_requester_who_may_not_see_the_object_any_more_starts_nothing(tmp_path: Path) -> None:
    async with cleared_core(tmp_path, approval=1) as cleared:
        raised, lowered, own = [await cleared.alert(2, str(number)) for number in range(3)]
        one = (await cleared.run("amber", raised)).json()["id"]
        other = (await cleared.run("amber", lowered)).json()["id"]
        body = {"responderId": CLOSE, "objectType": "alert", "objectId": own}
        third = (await cleared.own("POST", ACTION, body))["id"]
        await cleared.core.send("PATCH", f"/api/alert/{raised}", {"tlp": 3})
        await cleared.act("red", "POST", f"{ACTION}/{one}/approve")
        first = await cleared.ended(one)
        await cleared.core.core.access.set_clearance("amber", 1)
        for number in (other, third):
            await cleared.act("red", "POST", f"{ACTION}/{number}/approve")
        second, with_own_key = await cleared.ended(other), await cleared.ended(third)
    messages = [json.loads(action["report"])["message"] for action in (first, second)]
    assert [first["status"], second["status"], with_own_key["status"]] == ["Failure", "Failure", "Success"]
    for level, (message, tlp) in zip(("AMBER", "GREEN"), zip(messages, ("RED", "AMBER"), strict=True), strict=True):
        assert message == (
            f"amber@responder-bot.local asked for this, but it is TLP:{tlp} and they may see up to TLP:{level},"
            " so it did not run; ask somebody who may see it."
        )
