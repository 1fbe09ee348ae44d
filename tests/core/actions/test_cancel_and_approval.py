"""Cancelling and approving over HTTP with real programs: what is stopped, who stopped it, and what was approved."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.app import Core
from core.authorization import COMMAND_LINE
from core.common.listener import bind, http_server
from core.engines.process.processes import wait_readable
from core.models import Action
from core.settings import EngineSection, ResponderSection
from tests.clock import SetClock
from tests.core.core_process import ALERT, run_body, stepwise
from tests.core.engines.process.conftest import is_alive
from tests.core.running import settings_in

ACTION = "/api/connector/engine/action"
PEOPLE = ("anna", "ben", "carl")
BY_ANNA = {"user": "anna@responder-bot.local", "organisation": "default"}  # added by core to her parameters


@dataclass
class CoreWithUsers:
    """A core with a responder that needs two people's approval, and an alert."""

    core: Core
    http: httpx.AsyncClient
    clock: SetClock
    keys: dict[str, str]
    folder: Path
    alert: str = ""

    async def send(self, user: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        sent = {"Authorization": f"Bearer {self.keys[user]}", **headers}
        return await self.http.request(method, path, json=body, headers=sent)

    async def run(self, user: str = "anna", /, responder: str = "Stepwise_1_0", **parameters: Any) -> Action:
        body = run_body(self.alert, responder, parameters=parameters)
        answer = await self.send(user, "POST", ACTION, body)
        assert answer.status_code == 201, answer.text
        return Action.model_validate_json(answer.content)

    async def ended(self, action: Action) -> Action:
        while True:
            answer = await self.send("anna", "GET", f"{ACTION}/{action.id}?wait=20")
            found = Action.model_validate_json(answer.content)
            if found.end_date is not None:
                return found

    def pipe(self, name: str) -> Path:
        os.mkfifo(self.folder / name)
        return self.folder / name


@asynccontextmanager
async def core_in(folder: Path, clock: SetClock, keys: dict[str, str], **parts: Any) -> AsyncIterator[CoreWithUsers]:
    if not (folder / "responders").exists():
        stepwise(folder / "responders", "Stepwise")
        stepwise(folder / "responders", "Asking")
    policies = {"Asking_1_0": ResponderSection(approval=2, approval_expires_minutes=10)}
    settings = settings_in(
        folder, engine=(EngineSection(name="local", responders=(folder / "responders",)), *parts.get("engines", ())),
        responder=policies, core=parts.get("core", {}),
    )  # fmt: skip
    core = await Core.open(settings, clock)
    try:
        for name in PEOPLE:
            if name not in keys:
                keys[name] = await core.people.add(name, "analyst")
        if "lead" not in keys:
            keys["lead"] = await core.people.add("lead", "org-admin")
            keys["reader"] = await core.people.add("reader", "read-only")
        async with (
            http_server(core.asgi, bind("127.0.0.1", 0), grace_s=0) as url,
            httpx.AsyncClient(base_url=url, timeout=30) as http,
        ):
            running = CoreWithUsers(core, http, clock, keys, folder)
            await running.send("lead", "POST", "/api/alert", dict(ALERT))
            running.alert = (await running.send("lead", "GET", "/api/alert/siem;tests;1")).json()["id"]
            yield running
    finally:
        await core.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[CoreWithUsers]:
    async with core_in(tmp_path, SetClock(), {}) as running:
        yield running


async def read(pipe: Path) -> str:
    return (await asyncio.to_thread(pipe.read_text)).strip()


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_running_program_is_killed_with_its_children(running: CoreWithUsers) -> None:
    pipe = running.pipe("pipe")
    action = await running.run(steps=[f"child {pipe}", f"wait {running.pipe('never')}"])
    child = int(await read(pipe))
    watch = os.pidfd_open(child)
    refused = await running.send("ben", "DELETE", f"{ACTION}/{action.id}")
    reader = await running.send("reader", "DELETE", f"{ACTION}/{action.id}")
    assert is_alive(child)
    answer = await running.send("anna", "DELETE", f"{ACTION}/{action.id}")
    ended = await running.ended(action)
    await wait_readable(watch)
    os.close(watch)
    again = await running.send("anna", "DELETE", f"{ACTION}/{action.id}")
    assert (refused.status_code, reader.status_code) == (403, 403)
    assert "administrator" in refused.json()["message"]
    assert (answer.status_code, answer.json()["status"]) == (200, "Failure")
    assert (ended.status, json.loads(ended.report)["message"]) == ("Failure", "Cancelled by anna@responder-bot.local")
    assert (again.status_code, again.json()["type"]) == (409, "ConflictError")


async def test_64_simultaneous_cancels_end_an_action_once(running: CoreWithUsers) -> None:
    action = await running.run(steps=[f"wait {running.pipe('never')}"])
    answers = await asyncio.gather(*(running.send("anna", "DELETE", f"{ACTION}/{action.id}") for _ in range(64)))
    ended = await running.ended(action)
    events = (await running.send("anna", "GET", "/api/event?after=0")).json()["events"]
    types = [event["type"] for event in events if event["objectId"] == action.id]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert 200 in {answer.status_code for answer in answers}
    assert json.loads(ended.report)["message"] == "Cancelled by anna@responder-bot.local"
    assert types.count("action.ended") == 1


# --- approval ---------------------------------------------------------------------------------------------------------


async def decide(running: CoreWithUsers, user: str, action: Action, what: str = "approve", **body: Any) -> int:
    return (await running.send(user, "POST", f"{ACTION}/{action.id}/{what}", body)).status_code


async def test_two_votes_start_the_run_with_the_parameters_that_were_approved(running: CoreWithUsers) -> None:
    parameters: dict[str, Any] = {"runs": str(running.folder / "runs"), "steps": ["count", "write"]}
    action = await running.run(responder="Asking_1_0", **parameters)
    assert action.approval is not None
    assert (action.status, action.approval.needed, action.approval.approved_by) == ("Waiting", 2, [])
    assert await decide(running, "anna", action) == 403
    assert await decide(running, "reader", action) == 403
    assert (
        await decide(running, "ben", action, parameters={"steps": ["write other"]}, responderId="Stepwise_1_0") == 200
    )
    assert await decide(running, "ben", action) == 200
    assert not (running.folder / "runs").exists()
    assert await decide(running, "carl", action, message="go") == 200
    ended = await running.ended(action)
    assert await decide(running, "lead", action) == 409
    report = json.loads(ended.report)
    assert (ended.status, report["message"], report["parameters"]) == ("Success", "done", {**parameters, **BY_ANNA})
    assert (running.folder / "runs").read_text() == "one run\n"
    assert ended.approval is not None
    assert ended.approval.approved_by == [f"{name}@responder-bot.local" for name in ("ben", "carl")]


async def test_a_waiting_action_can_not_be_changed_by_repeating_its_key(running: CoreWithUsers) -> None:
    body = run_body(running.alert, "Asking_1_0", parameters={"steps": ["write"]})
    key = {"Idempotency-Key": "k"}
    made = await running.send("anna", "POST", ACTION, body, **key)
    other = await running.send("anna", "POST", ACTION, {**body, "parameters": {"steps": ["write other"]}}, **key)
    action = Action.model_validate_json(made.content)
    put = [
        await running.send("lead", method, f"{ACTION}/{action.id}", {"parameters": {}}) for method in ("PUT", "PATCH")
    ]
    await decide(running, "ben", action)
    await decide(running, "carl", action)
    assert other.status_code == 422
    assert [answer.status_code for answer in put] == [405, 405]
    assert json.loads((await running.ended(action)).report)["parameters"] == {"steps": ["write"], **BY_ANNA}


async def test_many_simultaneous_votes_start_a_run_once(running: CoreWithUsers) -> None:
    action = await running.run(responder="Asking_1_0", runs=str(running.folder / "runs"), steps=["count", "write"])
    others = ("ben", "carl", "lead") * 10
    statuses = await asyncio.gather(*(decide(running, name, action) for name in others))
    ended = await running.ended(action)
    assert set(statuses) <= {200, 409}
    assert ended.approval is not None
    assert len(ended.approval.approved_by) == 2
    assert (running.folder / "runs").read_text() == "one run\n"


async def test_an_approval_expires_also_while_core_is_down_but_not_by_a_clock_that_jumps(tmp_path: Path) -> None:
    clock, keys = SetClock(), dict[str, str]()
    async with core_in(tmp_path, clock, keys) as running:
        action = await running.run(responder="Asking_1_0", runs=str(tmp_path / "runs"), steps=["count"])
        clock.now_ms += 10 * 60_000
        assert await decide(running, "ben", action) == 200
    async with core_in(tmp_path, clock, keys) as running:
        late = await decide(running, "carl", action)
        ended = await running.ended(action)
    assert (late, ended.status, ended.outcome) == (409, "Failure", "expired")
    assert json.loads(ended.report)["message"] == "Not approved in time; run it again if it is still needed."
    assert not (tmp_path / "runs").exists()


async def test_the_last_vote_checks_again_whether_the_responder_is_offered(running: CoreWithUsers) -> None:
    action = await running.run(responder="Asking_1_0", runs=str(running.folder / "runs"), steps=["count"])
    (running.folder / "responders" / "Asking" / "program.py").unlink()
    await running.core.registry.refresh()
    await decide(running, "ben", action)
    await decide(running, "carl", action)
    ended = await running.ended(action)
    assert ended.status == "Failure"
    assert json.loads(ended.report)["message"] == "The engine local no longer offers Asking_1_0."


async def test_an_unknown_action_is_not_found(running: CoreWithUsers) -> None:
    answers = [await running.send("anna", "DELETE", f"{ACTION}/{name}") for name in ("~99", "x", "%7E99")]
    assert {answer.status_code for answer in answers} == {404}


async def test_a_user_with_a_new_key_keeps_their_vote(running: CoreWithUsers) -> None:
    action = await running.run(responder="Asking_1_0", runs=str(running.folder / "runs"), steps=["count", "write"])
    await decide(running, "ben", action)
    await running.core.people.disable(COMMAND_LINE, "ben")
    assert await decide(running, "ben", action) == 401
    await running.core.people.enable(COMMAND_LINE, "ben")
    await running.core.people.new_key(COMMAND_LINE, "ben")  # the same user with another key
    assert await decide(running, "carl", action) == 200
    assert (await running.ended(action)).status == "Success"
