"""Of 64 simultaneous equal requests one is carried out, with one core and with two on one database."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from core.models import Action
from tests.core.core_process import (
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    events_of,
    run_body,
    setup_in,
    write_pipe,
)

CLIENTS = 64
RUN = "/api/connector/engine/action"


@dataclass(frozen=True)
class Answers:
    """The answers to 64 equal requests."""

    answers: Sequence[httpx.Response]

    @property
    def statuses(self) -> Counter[int]:
        return Counter(answer.status_code for answer in self.answers)

    def bodies(self, status: int) -> list[dict[str, Any]]:
        return [answer.json() for answer in self.answers if answer.status_code == status]


async def at_once(
    cores: Sequence[CoreProcess], path: str, body: Mapping[str, Any], *, user: str, headers: Mapping[str, str]
) -> Answers:
    """Send a request 64 times, each on its own connection that is open before the first request."""
    sent = {"Authorization": f"Bearer {cores[0].setup.keys[user]}", **headers}
    connections = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=core.url, headers=sent, transport=AiohttpTransport(limits=connections), timeout=30
                )
            )
            for core in cores
        ]
        in_turn = [clients[number % len(clients)] for number in range(CLIENTS)]
        await asyncio.gather(*(client.get("/api/event?wait=0.2") for client in in_turn))
        return Answers(await asyncio.gather(*(client.post(path, json=dict(body)) for client in in_turn)))


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of all requests to the cores of one database."""

    templates: Answers
    keyed: Answers
    idle: Answers
    unknown: Answers
    runs: Mapping[str, int]
    """How often programs ran, by the name of the request."""
    on_the_alerts: Mapping[str, Sequence[Action]]
    events: Mapping[str, Sequence[str]]
    """Types of the events of each action."""


async def send_all(folder: Path, number_of_cores: int) -> Outcomes:
    setup = await setup_in(folder, max_concurrent_actions=2)
    async with AsyncExitStack() as stack:
        starting = [stack.enter_async_context(core_process(setup)) for _ in range(number_of_cores)]
        cores = [await start for start in starting]
        alerts = {name: await alert_in(cores[0], name) for name in ("keyed", "idle", "unknown")}

        async def run(name: str, headers: Mapping[str, str], **more: Any) -> Answers:
            parameters = {"runs": str(setup.runs(name)), "steps": more.pop("steps")}
            body = run_body(alerts[name], parameters=parameters, **more)
            return await at_once(cores, RUN, body, user="anna", headers=headers)

        template = {"name": "Phishing", "tasks": [{"title": "Look"}]}
        templates = await at_once(cores, "/api/case/template", template, user="lead", headers={})
        keyed = await run("keyed", {"Idempotency-Key": "k-1"}, steps=["count", "write"])
        idle = await run("idle", {}, onlyIfIdle=True, steps=["count", f"wait {pipe(setup)}", "write"])
        await write_pipe(pipe(setup))
        unknown = await at_once(
            cores,
            RUN,
            run_body(alerts["unknown"], "Nothing_1_0"),
            user="anna",
            headers={},
        )
        client = cores[-1].client()
        listed = {name: await client.actions("alert", alert) for name, alert in alerts.items()}
        ended = {name: [await cores[-1].ended(action.id) for action in found] for name, found in listed.items()}
        events = {action.id: await events_of(cores[0], action.id) for found in ended.values() for action in found}
        runs = {name: setup.counted(name) for name in alerts}
        return Outcomes(templates, keyed, idle, unknown, runs, ended, events)


def pipe(setup: CoreSetup) -> Path:
    path = setup.folder / "pipe"
    if not path.exists():
        os.mkfifo(path)
    return path


# One core is the easier case, so it is left to the slow tests.
@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 2], ids=["one core", "two cores"])
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return asyncio.run(send_all(tmp_path_factory.mktemp("simultaneous"), request.param))


def test_one_template_is_created_and_63_requests_learn_that_it_exists(outcome: Outcomes) -> None:
    assert outcome.templates.statuses == {201: 1, 400: 63}
    assert {(body["type"], body["message"]) for body in outcome.templates.bodies(400)} == {
        ("CreateError", 'The case template "Phishing" already exists')
    }


def test_64_requests_with_one_idempotency_key_are_one_action_and_one_run(outcome: Outcomes) -> None:
    (made,) = outcome.keyed.bodies(201)
    assert outcome.keyed.statuses == {201: 1, 200: 63}
    assert {body["id"] for body in outcome.keyed.bodies(200)} == {made["id"]}
    assert [action.id for action in outcome.on_the_alerts["keyed"]] == [made["id"]]
    assert outcome.runs["keyed"] == 1


def test_only_if_idle_starts_one_run_and_63_requests_get_the_open_action(outcome: Outcomes) -> None:
    (made,) = outcome.idle.bodies(201)
    assert outcome.idle.statuses == {201: 1, 409: 63}
    assert {(body["type"], body["action"]["id"]) for body in outcome.idle.bodies(409)} == {
        ("ConflictError", made["id"])
    }
    assert outcome.runs["idle"] == 1


def test_refused_requests_store_nothing(outcome: Outcomes) -> None:
    assert outcome.unknown.statuses == {404: 64}
    assert outcome.on_the_alerts["unknown"] == []


def test_every_action_ends_and_each_of_its_events_comes_once(outcome: Outcomes) -> None:
    assert {action.status for found in outcome.on_the_alerts.values() for action in found} == {"Success"}
    for types in outcome.events.values():
        assert (types[0], types[-1]) == ("action.created", "action.ended")
        assert types.count("action.created") == types.count("action.ended") == 1
