"""Lists of many or large objects have limits, and long searches don't delay others."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.actions.service import LIST_LIMIT
from core.common.database import Transaction
from core.models import Action
from core.store import actions as stored
from core.store import objects
from core.store.search import RESPONSE_LIMIT_CHARS
from tests.core.api.test_request_limits import STALL_S
from tests.core.object_api import ALERT
from tests.core.running import RunningCore, running_core
from tests.core.stalls import longest_stall

LARGE = 900_000
WORDS = 'a quick brown fox, \\ and "quotes", "report":"x","createdBy":"y" '
PROMPT_S = 20.0  # ten searches one after the other take longer


async def alert_with_actions(core: RunningCore, count: int, report: dict[str, Any], operations: list[Any]) -> str:
    """The id of an alert on which so many actions have ended."""
    alert: str = (await core.send("POST", "/api/alert", {**ALERT, "sourceRef": f"with {count}"})).json()["id"]

    def write(tx: Transaction) -> None:
        for number in objects.next_ids(tx, count):
            stored.insert(tx, _row(number, int(alert[1:]), json.dumps(report), json.dumps(operations)))

    await core.core.database.transaction(write)
    return alert


def _row(number: int, alert: int, report: str, operations: str) -> dict[str, Any]:
    action = Action(
        id_=f"~{number}",
        id=f"~{number}",
        responder_id="r",
        responder_name="R_1_0",
        responder_definition="R_1_0",
        engine_id="local",
        engine_job_id="j",
        object_type="Alert",
        object_id=f"~{alert}",
        status="Success",
        start_date=1,
        end_date=2,
        operations=operations,
        report=report,
        created_by="anna",
        created_at=1,
    )
    same = {
        "run_id": f"{number}-5e",
        "kind": "alert",
        "object_id": alert,
        "root_id": alert,
        "bulk_id": None,
        "undoes": None,
        "target": None,
        "secret_names": "[]",
        "responder_name": "R_1_0",
        "engine_name": "local",
        "engine_responder_id": "r",
        "status": "Success",
        "created_by": "anna",
        "acted_through": "anna",
        "created_at": 1,
        "owner": None,
        "engine_job_id": "j",
        "parameters": "{}",
        "whole_parameters": None,
        "awaits_approval": 0,
    }
    return {**same, "id": number, "doc": action.to_json()}


def report(chars: int) -> dict[str, Any]:
    return {"success": True, "full": {"message": "m", "text": (WORDS * (chars // len(WORDS) + 1))[:chars]}}


ALL_WAYS = ("engine/action/alert/{id}", "engine/action/responder/alert/{id}", "cortex/action/alert/{id}")


async def test_a_list_of_large_reports_shortens_them(core: RunningCore) -> None:
    alert = await alert_with_actions(core, 60, report(LARGE), [{"type": "x", "message": "y" * 9_000}])
    await core.send("GET", "/api/user/current")
    for path in ALL_WAYS:
        async with longest_stall() as stall:
            answer = await core.send("GET", f"/api/connector/{path.format(id=alert)}")
        assert stall.seconds < STALL_S
        assert len(answer.text) < RESPONSE_LIMIT_CHARS
        actions = answer.json()
        assert len(actions) == 60
        ids = [int(action["id"][1:]) for action in actions]
        assert ids == sorted(ids, reverse=True)
        assert json.loads(actions[0]["report"])["full"]["text"] == report(LARGE)["full"]["text"]
        short = json.loads(actions[-1]["report"])
        assert short["full"]["truncated"] is True
        assert short["full"]["bytes"] >= LARGE
        assert short["success"] is True
        assert json.loads(actions[-1]["operations"]) == []
    whole = (await core.send("GET", f"/api/connector/engine/action/{actions[-1]['id']}")).json()
    assert json.loads(whole["report"]) == report(LARGE)
    for path, body in (
        ("/api/connector/engine/action/_search?range=all", {}),
        ("/api/v1/query", {"query": [{"_name": "listAction"}]}),
    ):
        async with longest_stall() as stall:
            found = await core.send("POST", path, body)
        assert (len(found.json()), found.headers["x-total"]) == (60, "60")
        assert len(found.text) < RESPONSE_LIMIT_CHARS
        assert stall.seconds < STALL_S


async def test_a_long_list_of_actions_has_the_newest_and_links_to_the_rest(core: RunningCore) -> None:
    alert = await alert_with_actions(core, LIST_LIMIT + 200, report(10), [])
    path = f"/api/connector/engine/action/alert/{alert}"
    first = await core.send("GET", path)
    assert (len(first.json()), first.headers["x-total"]) == (LIST_LIMIT, f"{LIST_LIMIT + 200}")
    assert first.headers["link"] == f'<?range={LIST_LIMIT}-{2 * LIST_LIMIT}>; rel="next"'
    rest = await core.send("GET", first.headers["link"].partition(">")[0].replace("<", path))
    assert (len(rest.json()), "link" in rest.headers) == (200, False)
    ids = [int(action["id"][1:]) for action in [*first.json(), *rest.json()]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == LIST_LIMIT + 200
    assert len((await core.send("GET", f"{path}?range=5-7")).json()) == 2
    assert (await core.send("GET", f"{path}?range=7-5")).status_code == 400


async def test_a_search_with_too_large_an_answer_asks_for_a_smaller_range(core: RunningCore) -> None:
    for number in range(10):
        large = {**ALERT, "sourceRef": f"{number}", "description": "d" * LARGE}
        assert (await core.send("POST", "/api/alert", large)).status_code == 201
    for path, body in (("/api/alert/_search?range=all", {}), ("/api/v1/query", {"query": [{"_name": "listAlert"}]})):
        refused = await core.send("POST", path, body)
        assert refused.status_code == 400
        assert "over 8 MiB; ask for a part with `range`" in refused.json()["message"]
    part = await core.send("POST", "/api/alert/_search?range=0-5", {})
    assert (len(part.json()), part.headers["x-total"]) == (5, "10")
    counted = await core.send("POST", "/api/v1/query", {"query": [{"_name": "listAlert"}, {"_name": "count"}]})
    assert counted.json() == 10


async def test_the_logs_of_a_task_can_be_read_in_parts(core: RunningCore) -> None:
    case = (await core.send("POST", "/api/case", {"title": "c", "description": ""})).json()
    task = (await core.send("POST", f"/api/case/{case['id']}/task", {"title": "t"})).json()
    path = f"/api/case/task/{task['id']}/log"
    for number in range(10):
        assert (await core.send("POST", path, {"message": f"{number}" * LARGE})).status_code == 201
    assert (await core.send("GET", path)).status_code == 400
    part = await core.send("GET", f"{path}?range=4-6")
    assert [log["message"][0] for log in part.json()] == ["4", "5"]
    assert part.headers["x-total"] == "10"


SLOW = {"query": {"_or": [{"_like": {"description": f"*{number}*b*c*"}} for number in range(190)]}, "range": "0-1"}


async def test_one_callers_long_searches_do_not_delay_others(core: RunningCore) -> None:
    for number in range(12):
        large = {**ALERT, "sourceRef": f"{number}", "description": "d" * LARGE}
        await core.send("POST", "/api/alert", large)
    key = await core.key("read-only")
    async with httpx.AsyncClient(base_url=core.url, timeout=60, headers={"Authorization": f"Bearer {key}"}) as other:
        searches = [asyncio.create_task(other.post("/api/alert/_search", json=SLOW)) for _ in range(10)]
        async with asyncio.timeout(PROMPT_S):
            for _ in range(5):
                found = await core.send("POST", "/api/alert/_search", {"query": {"sourceRef": "1"}})
                assert found.headers["x-total"] == "1"
        assert sum(search.done() for search in searches) < len(searches)
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
    async with asyncio.timeout(PROMPT_S):  # the ten hung up: their turns are free again
        headers = {"Authorization": f"Bearer {key}"}
        found = await core.http.post("/api/alert/_search", json={"query": {"sourceRef": "1"}}, headers=headers)
    assert found.headers["x-total"] == "1"


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path, core={"vendor_alias": "cortex"}, audited=False) as core:
        await core.key("org-admin")
        yield core
