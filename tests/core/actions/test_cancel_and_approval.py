"""Cancel and approval over real HTTP: what is stopped, by whom, and what people agreed to (`semantics.md 5`)."""

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
from core.common.listener import bind, http_server
from core.engines.process.processes import wait_readable
from core.models import Action
from core.settings import EngineSection, ResponderSection
from tests.clock import SetClock
from tests.core.core_process import ALERT, asked, feed, stepwise
from tests.core.engines.process.conftest import is_alive
from tests.core.running import settings_in
from tests.fake_cortex import FakeCortex

ACTION = "/api/connector/engine/action"
PEOPLE = ("anna", "ben", "carl")
BY_ANNA = {"user": "anna@responder-bot.local", "organisation": "default"}  # what core adds to her parameters


@dataclass
class Here:
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
        body = asked(self.alert, responder, parameters=parameters)
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
async def core_in(folder: Path, clock: SetClock, keys: dict[str, str], **parts: Any) -> AsyncIterator[Here]:
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
                keys[name] = await core.access.add(name, "analyst")
        if "lead" not in keys:
            keys["lead"] = await core.access.add("lead", "org-admin")
            keys["reader"] = await core.access.add("reader", "read-only")
        async with (
            http_server(core.asgi, bind("127.0.0.1", 0), grace_s=0) as url,
            httpx.AsyncClient(base_url=url, timeout=30) as http,
        ):
            here = Here(core, http, clock, keys, folder)
            await here.send("lead", "POST", "/api/alert", dict(ALERT))
            here.alert = (await here.send("lead", "GET", "/api/alert/siem;tests;1")).json()["id"]
            yield here
    finally:
        await core.close()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with core_in(tmp_path, SetClock(), {}) as here:
        yield here


async def read(pipe: Path) -> str:
    return (await asyncio.to_thread(pipe.read_text)).strip()


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_running_program_is_killed_with_its_children(here: Here) -> None:
    bell = here.pipe("bell")
    action = await here.run(steps=[f"child {bell}", f"wait {here.pipe('never')}"])
    child = int(await read(bell))
    watch = os.pidfd_open(child)
    refused = await here.send("ben", "DELETE", f"{ACTION}/{action.id}")
    reader = await here.send("reader", "DELETE", f"{ACTION}/{action.id}")
    assert is_alive(child)
    answer = await here.send("anna", "DELETE", f"{ACTION}/{action.id}")
    ended = await here.ended(action)
    await wait_readable(watch)
    os.close(watch)
    again = await here.send("anna", "DELETE", f"{ACTION}/{action.id}")
    assert (refused.status_code, reader.status_code) == (403, 403)
    assert "org-admin" in refused.json()["message"]
    assert (answer.status_code, answer.json()["status"]) == (200, "Failure")
    assert (ended.status, json.loads(ended.report)["message"]) == ("Failure", "Cancelled by anna@responder-bot.local")
    assert (again.status_code, again.json()["type"]) == (409, "ConflictError")


async def test_an_admin_may_cancel_what_others_run(here: Here) -> None:
    action = await here.run(steps=[f"wait {here.pipe('never')}"])
    answer = await here.send("lead", "DELETE", f"{ACTION}/{action.id}")
    ended = await here.ended(action)
    assert answer.status_code == 200
    assert json.loads(ended.report)["message"] == "Cancelled by lead@responder-bot.local"


async def test_what_waits_for_its_turn_is_cancelled_and_never_runs(tmp_path: Path) -> None:
    async with core_in(tmp_path, SetClock(), {}, core={"max_concurrent_actions": 1}) as here:
        bell = here.pipe("bell")
        first = await here.run(steps=[f"wait {bell}", "write"])
        second = await here.run(runs=str(tmp_path / "runs"), steps=["count", "write"])
        answer = await here.send("anna", "DELETE", f"{ACTION}/{second.id}")
        await feed(bell)
        assert (await here.ended(first)).status == "Success"
    assert (answer.status_code, answer.json()["status"]) == (200, "Deleted")
    assert not (tmp_path / "runs").exists()


async def test_64_cancels_at_once_end_it_once(here: Here) -> None:
    action = await here.run(steps=[f"wait {here.pipe('never')}"])
    answers = await asyncio.gather(*(here.send("anna", "DELETE", f"{ACTION}/{action.id}") for _ in range(64)))
    ended = await here.ended(action)
    events = (await here.send("anna", "GET", "/api/event?after=0")).json()["events"]
    types = [event["type"] for event in events if event["objectId"] == action.id]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert 200 in {answer.status_code for answer in answers}
    assert json.loads(ended.report)["message"] == "Cancelled by anna@responder-bot.local"
    assert types.count("action.ended") == 1


async def test_a_remote_engine_says_honestly_that_it_can_not_stop_it(tmp_path: Path) -> None:
    cortex = FakeCortex()
    await cortex.start()
    remote = EngineSection(name="soar", type="cortex", url=cortex.url, api_key=cortex.api_key)
    try:
        async with core_in(tmp_path, SetClock(), {}, engines=(remote,)) as here:
            action = await here.run(responder="Blocker_1_0")
            answer = await here.send("anna", "DELETE", f"{ACTION}/{action.id}")
            await cortex.fail(action.engine_job_id, "No route to host")
            ended = await here.ended(action)
    finally:
        await cortex.stop()
    assert (answer.status_code, answer.json()["type"]) == (409, "ConflictError")
    assert answer.json()["message"] == (
        "Engine 'soar' is remote and can't stop a responder once it has it. "
        "Wait for its end, or stop it on that server."
    )
    assert json.loads(ended.report)["message"] == "No route to host"


# --- approval ---------------------------------------------------------------------------------------------------------


async def decide(here: Here, user: str, action: Action, what: str = "approve", **body: Any) -> int:
    return (await here.send(user, "POST", f"{ACTION}/{action.id}/{what}", body)).status_code


async def test_it_runs_once_two_others_agree_with_the_parameters_that_they_agreed_to(here: Here) -> None:
    parameters: dict[str, Any] = {"runs": str(here.folder / "runs"), "steps": ["count", "write"]}
    action = await here.run(responder="Asking_1_0", **parameters)
    assert action.approval is not None
    assert (action.status, action.approval.needed, action.approval.approved_by) == ("Waiting", 2, [])
    assert await decide(here, "anna", action) == 403
    assert await decide(here, "reader", action) == 403
    assert await decide(here, "ben", action, parameters={"steps": ["write other"]}, responderId="Stepwise_1_0") == 200
    assert await decide(here, "ben", action) == 200
    assert not (here.folder / "runs").exists()
    assert await decide(here, "carl", action, message="go") == 200
    ended = await here.ended(action)
    assert await decide(here, "lead", action) == 409
    report = json.loads(ended.report)
    assert (ended.status, report["message"], report["parameters"]) == ("Success", "done", {**parameters, **BY_ANNA})
    assert (here.folder / "runs").read_text() == "one run\n"
    assert ended.approval is not None
    assert ended.approval.approved_by == [f"{name}@responder-bot.local" for name in ("ben", "carl")]


async def test_the_same_key_with_other_parameters_changes_nothing_that_waits(here: Here) -> None:
    body = asked(here.alert, "Asking_1_0", parameters={"steps": ["write"]})
    key = {"Idempotency-Key": "k"}
    made = await here.send("anna", "POST", ACTION, body, **key)
    other = await here.send("anna", "POST", ACTION, {**body, "parameters": {"steps": ["write other"]}}, **key)
    action = Action.model_validate_json(made.content)
    put = [await here.send("lead", method, f"{ACTION}/{action.id}", {"parameters": {}}) for method in ("PUT", "PATCH")]
    await decide(here, "ben", action)
    await decide(here, "carl", action)
    assert other.status_code == 422
    assert [answer.status_code for answer in put] == [405, 405]
    assert json.loads((await here.ended(action)).report)["parameters"] == {"steps": ["write"], **BY_ANNA}


async def test_many_who_agree_at_once_start_it_once(here: Here) -> None:
    action = await here.run(responder="Asking_1_0", runs=str(here.folder / "runs"), steps=["count", "write"])
    others = ("ben", "carl", "lead") * 10
    statuses = await asyncio.gather(*(decide(here, name, action) for name in others))
    ended = await here.ended(action)
    assert set(statuses) <= {200, 409}
    assert ended.approval is not None
    assert len(ended.approval.approved_by) == 2
    assert (here.folder / "runs").read_text() == "one run\n"


async def test_denied_it_ends_and_so_it_does_when_cancelled_by_who_asked(here: Here) -> None:
    denied, withdrawn = [await here.run(responder="Asking_1_0") for _ in range(2)]
    assert await decide(here, "anna", denied, "deny") == 403
    assert await decide(here, "ben", denied, "deny", message="not this host") == 200
    cancelled = await here.send("anna", "DELETE", f"{ACTION}/{withdrawn.id}")
    ended = await here.ended(denied)
    assert (ended.status, json.loads(ended.report)["message"]) == (
        "Failure",
        "Denied by ben@responder-bot.local: not this host",
    )
    assert cancelled.json()["status"] == "Deleted"
    assert [await decide(here, "carl", action) for action in (denied, withdrawn)] == [409, 409]


async def test_nobody_can_agree_any_more_when_the_time_is_over_also_while_core_was_away(tmp_path: Path) -> None:
    clock, keys = SetClock(), dict[str, str]()
    async with core_in(tmp_path, clock, keys) as here:
        action = await here.run(responder="Asking_1_0", runs=str(tmp_path / "runs"), steps=["count"])
        clock.now_ms += 10 * 60_000
        late = await here.send("ben", "POST", f"{ACTION}/{action.id}/approve", {})
    async with core_in(tmp_path, clock, keys) as here:
        ended = await here.ended(action)
    assert (late.status_code, late.json()["message"]) == (409, "The time to approve this action is over; run it again.")
    assert ended.status == "Failure"
    assert json.loads(ended.report)["message"] == "Nobody agreed in time; run it again if it is still needed."
    assert not (tmp_path / "runs").exists()


async def test_what_was_asked_for_is_judged_anew_when_the_last_one_agrees(here: Here) -> None:
    action = await here.run(responder="Asking_1_0", runs=str(here.folder / "runs"), steps=["count"])
    (here.folder / "responders" / "Asking" / "stepwise.py").unlink()
    await here.core.responders.refresh()
    await decide(here, "ben", action)
    await decide(here, "carl", action)
    ended = await here.ended(action)
    assert ended.status == "Failure"
    assert json.loads(ended.report)["message"] == "The engine local no longer offers Asking_1_0."


async def test_an_unknown_action_is_not_found(here: Here) -> None:
    answers = [await here.send("anna", "DELETE", f"{ACTION}/{name}") for name in ("~99", "x", "%7E99")]
    assert {answer.status_code for answer in answers} == {404}


# --- rights that end while it waits -----------------------------------------------------------------------------------


async def end_rights(here: Here, name: str, how: str) -> None:
    """As `responder-bot user disable` and `user profile` do."""
    if how == "disabled":
        await here.core.access.disable(name)
    else:
        await here.core.access.set_profile(name, "read-only")


async def restore_rights(here: Here, name: str) -> None:
    await here.core.access.enable(name)
    await here.core.access.set_profile(name, "analyst")


HOW = pytest.mark.parametrize("how", ["disabled", "demoted"])


@HOW
@pytest.mark.parametrize("votes_before", [0, 1])
async def test_what_a_former_analyst_asked_for_ends_at_the_next_vote(here: Here, how: str, votes_before: int) -> None:
    action = await here.run(responder="Asking_1_0", runs=str(here.folder / "runs"), steps=["count", "write"])
    if votes_before:
        assert await decide(here, "ben", action) == 200
    await end_rights(here, "anna", how)
    answer = await here.send("carl", "POST", f"{ACTION}/{action.id}/approve", {})
    await restore_rights(here, "anna")
    ended = await here.ended(action)
    sentence = (
        "anna@responder-bot.local asked for this and may no longer run responders, so it did not run;"
        " run it yourself if it is still needed."
    )
    assert (answer.status_code, answer.json()["type"], answer.json()["message"]) == (409, "ConflictError", sentence)
    assert (ended.status, json.loads(ended.report)["message"]) == ("Failure", sentence)
    assert await decide(here, "lead", action) == 409
    assert not (here.folder / "runs").exists()


@HOW
async def test_a_vote_does_not_count_once_who_gave_it_may_no_longer_run_responders(here: Here, how: str) -> None:
    action = await here.run(responder="Asking_1_0", runs=str(here.folder / "runs"), steps=["count", "write"])
    assert await decide(here, "ben", action) == 200
    await end_rights(here, "ben", how)
    second = await here.send("carl", "POST", f"{ACTION}/{action.id}/approve", {})
    assert second.status_code == 200
    assert second.json()["approval"]["approvedBy"] == ["carl@responder-bot.local"]
    assert not (here.folder / "runs").exists()
    third = await here.send("lead", "POST", f"{ACTION}/{action.id}/approve", {})
    ended = await here.ended(action)
    assert third.json()["approval"]["approvedBy"] == [f"{name}@responder-bot.local" for name in ("carl", "lead")]
    assert ended.status == "Success"
    assert (here.folder / "runs").read_text() == "one run\n"


async def test_who_lost_a_vote_may_vote_again_and_others_keep_theirs(here: Here) -> None:
    action = await here.run(responder="Asking_1_0", runs=str(here.folder / "runs"), steps=["count", "write"])
    await decide(here, "ben", action)
    await here.core.access.disable("ben")
    assert await decide(here, "ben", action) == 401
    await here.core.access.enable("ben")
    await here.core.access.new_key("ben")  # the person stays the same with another key
    assert await decide(here, "carl", action) == 200
    assert (await here.ended(action)).status == "Success"


@HOW
@pytest.mark.parametrize("who", ["anna", "ben"])
async def test_what_waits_for_a_place_does_not_start_without_the_rights_of_those_who_wanted_it(
    tmp_path: Path, how: str, who: str
) -> None:
    async with core_in(tmp_path, SetClock(), {}, core={"max_concurrent_actions": 1}) as here:
        bell = here.pipe("bell")
        first = await here.run("lead", steps=[f"wait {bell}", "write"])
        approved = await here.run(responder="Asking_1_0", runs=str(tmp_path / "runs"), steps=["count", "write"])
        plain = await here.run(who, runs=str(tmp_path / "runs"), steps=["count", "write"])
        assert [await decide(here, name, approved) for name in ("ben", "carl")] == [200, 200]
        await end_rights(here, who, how)
        await feed(bell)
        keys, here.keys["anna"] = here.keys["anna"], here.keys["lead"]  # who asks for the end must still have a key
        ended = [await here.ended(action) for action in (first, approved, plain)]
        here.keys["anna"] = keys
    messages = [json.loads(action.report)["message"] for action in ended]
    login = f"{who}@responder-bot.local"
    assert [action.status for action in ended] == ["Success", "Failure", "Failure"]
    assert messages[2].startswith(f"{login} asked for this and may no longer run responders")
    verb = "asked for" if who == "anna" else "agreed to"
    assert messages[1].startswith(f"{login} {verb} this and may no longer run responders, so it did not run;")
    assert not (tmp_path / "runs").exists()


async def test_nobody_passes_for_somebody_else_in_the_report_of_a_run(here: Here) -> None:
    forged: dict[str, Any] = {"user": "lead@responder-bot.local", "organisation": "other", "steps": ["write"]}
    done = await here.ended(await here.run(**forged))
    waiting = await here.run(responder="Asking_1_0", **forged)
    await decide(here, "ben", waiting, "deny")
    denied = await here.ended(waiting)
    true = {"steps": ["write"], **BY_ANNA}
    assert [json.loads(action.report)["parameters"] for action in (done, denied)] == [true, true]
