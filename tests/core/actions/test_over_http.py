"""Actions of a running core, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.settings import ResponderSection
from tests.core.running import RunningCore, ended, running_core

ENGINE = "/api/connector/engine"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
POLICY = {CLOSE: ResponderSection(approval=1)}


@dataclass
class WaitingAction:
    """An action that waits for approval, and its alert."""

    core: RunningCore
    alert: str
    action: dict[str, Any]

    async def send(self, method: str, path: str = "", profile: Any = "org-admin", **options: Any) -> tuple[int, Any]:
        answer = await self.core.send(method, f"{ENGINE}/action/{self.action['id']}{path}", profile=profile, **options)
        return answer.status_code, answer.json()


@asynccontextmanager
async def waiting_action(tmp_path: Path) -> AsyncIterator[WaitingAction]:
    async with running_core(tmp_path, responder=POLICY) as core:
        body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        alert = (await core.send("POST", "/api/alert", body)).json()["id"]
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert}
        started = await core.send("POST", f"{ENGINE}/action", run, profile="analyst")
        assert started.status_code == 201
        yield WaitingAction(core, alert, started.json())


async def test_a_vote_without_the_right_is_403_and_on_an_ended_action_409(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        await waiting.core.key("analyst", "second")
        other = {"Authorization": f"Bearer {await waiting.core.key('analyst', 'second')}"}
        requester = [(await waiting.send("POST", path, "analyst"))[0] for path in ("/approve", "/deny")]
        reader = [(await waiting.send("POST", path, "read-only"))[0] for path in ("/approve", "/deny")]
        cancelled_by_another = await waiting.send("DELETE", profile=None, headers=other)
        denied = await waiting.send("POST", "/deny", body={"message": "not now"})
        late = [await waiting.send("POST", path) for path in ("/approve", "/deny")]
        gone = await waiting.send("DELETE")
    assert waiting.action["approval"] | {"expiresAt": 0} == {
        "needed": 1,
        "approvedBy": [],
        "expiresAt": 0,
        "votes": [],
    }
    assert (requester, reader) == ([403, 403], [403, 403])
    assert cancelled_by_another[0] == 403
    assert (denied[0], denied[1]["status"]) == (200, "Failure")
    assert json.loads(denied[1]["report"])["message"] == "Denied by org-admin@responder-bot.local: not now"
    assert [(status, body["type"]) for status, body in (*late, gone)] == [(409, "ConflictError")] * 3


async def test_an_approved_run_shows_its_voters_and_keeps_its_start_date(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        status, agreed = await waiting.send("POST", "/approve")
        run = await ended(waiting.core, waiting.action["id"])
    assert (status, agreed["approval"]["approvedBy"]) == (200, ["org-admin@responder-bot.local"])
    assert (run["status"], run["startDate"]) == ("Success", waiting.action["startDate"])
    final = ("engineId", "responderId", "responderName", "responderDefinition", "createdBy", "createdAt")
    assert [run[key] for key in final] == [waiting.action[key] for key in final]


async def test_a_requester_cancels_a_waiting_action(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        status, cancelled = await waiting.send("DELETE", profile="analyst")
        unknown = await waiting.core.send("DELETE", f"{ENGINE}/action/~999")
    assert (status, cancelled["status"]) == (200, "Deleted")
    assert "endDate" in cancelled
    assert (unknown.status_code, unknown.json()["message"]) == (404, "Action not found")


async def test_wait_takes_seconds(tmp_path: Path) -> None:
    waits = {"0": 200, "0.01": 200, "-1": 400, "x": 400, "": 400, "1e9": 400, "nan": 400}
    async with waiting_action(tmp_path) as waiting:
        for wait, status in waits.items():
            assert (await waiting.send("GET", f"?wait={wait}"))[0] == status, wait
            assert (await waiting.core.send("GET", f"/api/event?wait={wait}")).status_code == status, wait


async def test_a_wait_ends_with_the_next_change(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        headers = {"Authorization": f"Bearer {await waiting.core.key('analyst')}"}
        path = f"{waiting.core.url}{ENGINE}/action/{waiting.action['id']}?wait=99999"
        response = asyncio.ensure_future(waiting.core.http.get(path, headers=headers))
        await waiting.send("POST", "/deny")
        answer = await response
    assert answer.json()["status"] == "Failure"


@pytest.mark.parametrize("word", ["engine", "cortex"])
async def test_both_list_addresses_answer_the_same_newest_first(tmp_path: Path, word: str) -> None:
    async with waiting_action(tmp_path) as waiting:
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": waiting.alert}
        second = (await waiting.core.send("POST", f"{ENGINE}/action", run)).json()
        base = f"/api/connector/{word}/action"
        long = (await waiting.core.send("GET", f"{base}/responder/alert/{waiting.alert}")).json()
        short = (await waiting.core.send("GET", f"{base}/alert/{waiting.alert}")).json()
    assert [action["id"] for action in long] == [second["id"], waiting.action["id"]]
    assert short == long
    assert long[0][f"{word}Id"] == "local"


async def test_an_idempotency_key_counts_for_its_user_and_the_decoded_body(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        sent = {"Idempotency-Key": "k"}
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": waiting.alert, "engineId": "local"}
        first = await waiting.core.send("POST", f"{ENGINE}/action", run, profile="analyst", headers=sent)
        reordered = json.dumps(dict(reversed(run.items())), indent=2).encode()
        again = await waiting.core.send("POST", f"{ENGINE}/action", profile="analyst", headers=sent, content=reordered)
        renamed = json.dumps(run).replace("engineId", "cortexId").encode()
        alias = await waiting.core.send(
            "POST", "/api/connector/cortex/action", profile="analyst", headers=sent, content=renamed
        )
        other = await waiting.core.send("POST", f"{ENGINE}/action", {**run, "x": 1}, profile="analyst", headers=sent)
        theirs = await waiting.core.send("POST", f"{ENGINE}/action", run, headers=sent)
        for_her = {**sent, "X-On-Behalf-Of": "analyst"}
        through = await waiting.core.send("POST", f"{ENGINE}/action", run, profile="service", headers=for_her)
        long = await waiting.core.send("POST", f"{ENGINE}/action", run, headers={"Idempotency-Key": "k" * 300})
    same = (first, again, alias, through)
    assert [answer.status_code for answer in same] == [201, 200, 200, 200]
    assert len({answer.json()["id"] for answer in same}) == 1
    assert (other.status_code, theirs.status_code, long.status_code) == (422, 201, 400)


async def test_an_org_admin_may_cancel_on_behalf_through_the_bot(tmp_path: Path) -> None:
    async with waiting_action(tmp_path) as waiting:
        await waiting.core.key("org-admin")
        status, body = await waiting.send("DELETE", profile="service", headers={"X-On-Behalf-Of": "org-admin"})
    assert (status, body["status"]) == (200, "Deleted")
