"""Several engines at once over real HTTP: merged, one dead, one slow, and a full one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from core.settings import EngineSection
from tests.core.core_process import ALERT, stepwise, until
from tests.core.running import RunningCore, ended, running_core
from tests.fake_cortex import BLOCKER, DelayedAnswer, FakeCortex, at_once

QUICK_S = 5.0  # far below the timeout of a call to an engine, which no list may wait for


def known_as(name: str, id: str) -> Mapping[str, Any]:
    """An entry of a remote engine's catalogue."""
    return {**BLOCKER, "id": id, "name": name, "workerDefinitionId": name}


STEPWISE_THERE = known_as("Stepwise_1_0", "remote-stepwise")


@asynccontextmanager
async def cortexes(**responders: Sequence[Mapping[str, Any]]) -> AsyncIterator[list[FakeCortex]]:
    """Remote engines that run each job to its end."""
    async with AsyncExitStack() as stack:
        servers = []
        for offered in responders.values():
            server = FakeCortex(responders=list(offered), drive_job=at_once)
            await server.start()
            stack.push_async_callback(server.stop)
            servers.append(server)
        yield servers


@asynccontextmanager
async def core_with(folder: Path, engines: Mapping[str, FakeCortex], **core: Any) -> AsyncIterator[RunningCore]:
    """A core with these engines, then a local one that has the responder Stepwise."""
    if not (folder / "responders").exists():
        stepwise(folder / "responders", "Stepwise")
    remote = [
        EngineSection(name=name, type="cortex", url=server.url, api_key=server.api_key)
        for name, server in engines.items()
    ]
    local = EngineSection(name="local", responders=(folder / "responders",))
    order = [local, *remote] if core.pop("local_first", False) else [*remote, local]
    async with running_core(folder, engine=tuple(order), core=core) as running:
        yield running


async def alert(core: RunningCore, ref: str = "1") -> str:
    made = await core.send("POST", "/api/alert", {**ALERT, "sourceRef": ref})
    assert made.status_code in (201, 400), made.text
    found = await core.send("GET", f"/api/alert/siem;tests;{ref}")
    alert_id: str = found.json()["id"]
    return alert_id


async def listed(core: RunningCore, alert_id: str, query: str = "") -> dict[str, dict[str, Any]]:
    """The offered responders by name; the answer must come quickly, whatever engines do."""
    async with asyncio.timeout(QUICK_S):
        answer = await core.send("GET", f"/api/connector/engine/responder/alert/{alert_id}{query}")
    assert answer.status_code == 200
    return {entry["name"]: entry for entry in answer.json()}


async def run(core: RunningCore, alert_id: str, responder: str, **more: Any) -> dict[str, Any]:
    body = {"responderId": responder, "objectType": "alert", "objectId": alert_id, **more}
    answer = await core.send("POST", "/api/connector/engine/action", body)
    assert answer.status_code == 201, answer.text
    action: dict[str, Any] = answer.json()
    return action


async def engine_health(core: RunningCore) -> tuple[str, dict[str, bool]]:
    answer = await core.send("GET", "/health", profile=None)
    parts = {part["name"]: part["ok"] for part in answer.json()["parts"] if part["name"].startswith("engine ")}
    return answer.json()["status"], parts


async def test_a_dead_and_a_slow_engine_delay_no_request_and_are_used_again_once_back(tmp_path: Path) -> None:
    only = {name: known_as(f"Only{name}_1_0", name) for name in ("Dead", "Slow", "Live")}
    shared = known_as("Shared_1_0", "shared")
    async with cortexes(dead=[only["Dead"], shared], slow=[only["Slow"]], live=[only["Live"], shared]) as servers:
        dead, slow, live = servers
        engines = {"dead": dead, "slow": slow, "live": live}
        async with core_with(tmp_path, engines) as core:
            alert_id = await alert(core)
            whole = await listed(core, alert_id)
            keys = core.keys
        answers = asyncio.Event()
        slow.always("search_responders", DelayedAnswer(answers))
        await dead.stop()
        async with core_with(tmp_path, engines) as core:
            core.keys = keys
            assert await listed(core, alert_id) == whole
            reasons = {name: entry["reasons"] for name, entry in (await listed(core, alert_id, "?explain=1")).items()}
            assert await engine_health(core) == (
                "degraded",
                {"engine dead": False, "engine slow": False, "engine live": True, "engine local": True},
            )
            metrics = (await core.send("GET", "/metrics", profile=None)).text
            went_to = (await run(core, alert_id, "Shared_1_0"))["engineId"]
            slow.always("search_responders", None)
            answers.set()
            await dead.start(port=urlsplit(dead.url).port or 0)
            await core.core.registry.refresh()
            assert (await engine_health(core))[0] == "ok"
            back = (await run(core, alert_id, "Shared_1_0"))["engineId"]
    assert whole["Shared_1_0"]["engineIds"] == ["dead", "live"]
    assert {"OnlyDead_1_0", "OnlySlow_1_0", "OnlyLive_1_0", "Stepwise_1_0"} < set(whole)
    assert reasons["OnlyDead_1_0"] == ["its engine dead does not answer"]
    assert reasons["OnlySlow_1_0"] == ["its engine slow does not answer"]
    assert reasons["OnlyLive_1_0"] == reasons["Shared_1_0"] == []
    assert 'responder_bot_engine_up{engine="dead"} 0.0' in metrics
    assert 'responder_bot_engine_up{engine="live"} 1.0' in metrics
    assert (went_to, back) == ("live", "dead")


@pytest.mark.slow
async def test_an_engine_that_is_back_is_noticed_without_a_request(tmp_path: Path) -> None:
    async with cortexes(remote=[BLOCKER]) as (remote,):
        port = urlsplit(remote.url).port or 0
        await remote.stop()
        async with core_with(tmp_path, {"remote": remote}) as core:
            assert (await engine_health(core))[0] == "degraded"
            await remote.start(port=port)
            await remote.until("search_responders")
            alert_id = await alert(core)
            await until(lambda: core.core.registry.states()[0].up, "the engine up again")
            assert (await engine_health(core))[0] == "ok"
            assert (await listed(core, alert_id))["Blocker_1_0"]["engineIds"] == ["remote"]


async def test_runs_wait_for_a_full_engine(tmp_path: Path) -> None:
    settings = {"local_first": True, "max_concurrent_actions": 1}
    async with (
        cortexes(remote=[STEPWISE_THERE]) as (remote,),
        core_with(tmp_path, {"remote": remote}, **settings) as core,
    ):
        alert_id = await alert(core)
        runs = [await run(core, alert_id, "Stepwise_1_0", parameters={"steps": ["write"]}) for _ in range(3)]
        statuses = [(await ended(core, action["id"]))["status"] for action in runs]
    assert [action["engineId"] for action in runs] == ["local"] * 3
    assert statuses == ["Success"] * 3
    assert remote.count("run") == 0
