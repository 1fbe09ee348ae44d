"""`semantics.md 9` to `11`, rule by rule, where no other test holds it: the alias, Slack people, health."""

import asyncio
import json
import resource
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
DAY_MS = 86_400_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path_factory.mktemp("core")) as running:
        yield running


async def alert(core: RunningCore, ref: str) -> str:
    answer = await core.send("POST", "/api/alert", {**ALERT, "sourceRef": ref})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def events(core: RunningCore, query: str) -> dict[str, Any]:
    answer = await core.send("GET", f"/api/event?{query}", profile="read-only")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


# --- 9: public clients ----------------------------------------------------------------------------------------------


async def test_the_alias_speaks_its_word_in_errors_and_searches_too(core: RunningCore) -> None:
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


async def test_what_stands_in_the_way_is_told_in_the_alias_s_word(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: {"approval": 1}}) as here:
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": await alert(here, "1"), "onlyIfIdle": True}
        first = (await here.send("POST", "/api/connector/cortex/action", run)).json()
        alias = await here.send("POST", "/api/connector/cortex/action", run)
        plain = await here.send("POST", "/api/connector/engine/action", run)
    for answer, word in ((alias, "cortex"), (plain, "engine")):
        body = answer.json()
        assert (answer.status_code, body["type"], body["action"]["id"]) == (409, "ConflictError", first["id"])
        assert {key for key in body["action"] if key.startswith(("engine", "cortex"))} == {f"{word}Id", f"{word}JobId"}


async def test_a_body_s_own_words_are_left_alone_by_the_alias(core: RunningCore) -> None:
    text = 'he said "engineId": and "cortexId":'
    run = {
        "responderId": CLOSE,
        "objectType": "alert",
        "objectId": await alert(core, "words"),
        "parameters": {"reason": text, "cortexId": "mine"},
    }
    made = (await core.send("POST", "/api/connector/cortex/action", run)).json()
    while "endDate" not in made:
        made = (await core.send("GET", f"/api/connector/cortex/action/{made['id']}?wait=20")).json()
    assert json.loads(made["report"])["parameters"] == {
        "reason": text,
        "cortexId": "mine",
        "user": "org-admin@responder-bot.local",
        "organisation": "default",
    }


# --- 10: who is who in Slack ----------------------------------------------------------------------------------------


async def test_a_slack_person_is_found_by_team_and_id_while_they_may_come_in(core: RunningCore) -> None:
    access = core.core.access
    await access.add("linked", "analyst", slack_id="T1:U1", clearance=3)
    await access.add("homeless", "read-only", slack_id="U2")

    async def found(team: str, user: str, profile: Any = "service") -> tuple[int, Any]:
        answer = await core.send("GET", f"/api/user/by-slack/{team}/{user}", profile=profile)
        return answer.status_code, answer.json()

    linked = await found("T1", "U1")
    missing = [(await found(team, user))[0] for team, user in (("T2", "U1"), ("T1", "u1"), ("T1", "U3"))]
    homeless = await found("T9", "U2")
    forbidden = [(await found("T1", "U1", profile))[0] for profile in ("analyst", "org-admin", "read-only", None)]
    await access.disable("linked")
    disabled = await found("T1", "U1")
    permissions = ["manageAction", "manageAlert", "manageCase", "manageTask"]
    assert linked == (
        200,
        {"login": "linked@responder-bot.local", "profile": "analyst", "permissions": permissions, "clearance": 3},
    )
    assert (missing, forbidden) == ([404] * 3, [403, 403, 403, 401])
    assert homeless[1]["login"] == "homeless@responder-bot.local"
    assert (disabled[0], disabled[1]["type"]) == (404, "NotFoundError")


# --- 11: health -----------------------------------------------------------------------------------------------------


async def test_a_store_whose_file_is_gone_is_down(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here:
        (tmp_path / "core.db").rename(tmp_path / "elsewhere.db")
        answer = await here.http.get("/health")
    store = answer.json()["parts"][0]
    assert (answer.status_code, answer.json()["status"]) == (503, "down")
    assert (store["name"], store["ok"]) == ("store", False)
    assert "was removed or replaced" in store["message"]
    assert str(tmp_path) not in answer.text


async def test_a_store_that_is_full_is_down_and_says_so_to_who_writes(tmp_path: Path) -> None:
    async with running_core(tmp_path) as made:
        key = await made.key("org-admin")
    full = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "core.cli",
        "core",
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RESPONDER_BOT_CORE_PORT": "0",
            "RESPONDER_BOT_CORE_DATABASE": "core.db",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert full.stdout is not None
    url = (await full.stdout.readline()).decode().removeprefix("core: ").strip()
    resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (0, 0))
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        health = await http.get("/health")
        refused = await http.post("/api/alert", json=ALERT)
        read = await http.get("/api/user/current")
        listed = await http.post("/api/alert/_search", json={})
        metrics = await http.get("/metrics")
    full.terminate()
    await full.communicate()
    assert (health.status_code, health.json()["status"]) == (503, "down")
    assert (refused.status_code, refused.json()["type"], refused.headers["retry-after"]) == (
        503,
        "UnavailableError",
        "1",
    )
    assert "can't be written" in refused.json()["message"]
    assert (read.status_code, listed.json(), metrics.status_code) == (200, [], 200)


async def test_a_backup_of_a_core_that_writes_is_whole(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here:
        await here.key("org-admin")
        writing = [asyncio.ensure_future(alert(here, str(number))) for number in range(60)]
        await writing[0]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "core.cli",
            "backup",
            "copy.db",
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "RESPONDER_BOT_CORE_DATABASE": "core.db",
            },
        )
        code = await process.wait()
        await asyncio.gather(*writing)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "copy.db", again / "core.db")
    async with running_core(again) as restored:
        restored.keys.update(here.keys)
        total = int((await restored.send("POST", "/api/alert/_search", {})).headers["x-total"])
        last = (await events(restored, "wait=0"))["last"]
        more = await alert(restored, "one more")
    assert code == 0
    assert total >= 1
    assert min(last, int(more[1:])) > 1000 * total  # a restored database gives no number of before
