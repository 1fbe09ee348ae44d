"""Cores are killed at random moments under load; in the end each requested run has happened once."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.models import Action
from tests import stores
from tests.core.core_process import CoreProcess, CoreSetup, core_process, setup_in
from tests.fake_cortex import BLOCKER, FakeCortex, FakeJob

SEED = 20_261_121
SOAK_S = 12.0
LIVES_S = (0.05, 2.0)
KILLS = 5  # at the least, however long a core takes to start
CALLERS = 4
REMOTE = {**BLOCKER, "dataTypeList": ["thehive:case"]}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@dataclass
class Soak:
    """The cores that live at the moment, and what callers were told."""

    setup: CoreSetup
    cortex: FakeCortex
    chance: random.Random
    cores: dict[int, CoreProcess] = field(default_factory=dict)
    case: str = ""
    answered: dict[str, str] = field(default_factory=dict)
    """Key to the id of the action that a caller was told."""
    kills: int = 0

    def client_of_any(self) -> CoreProcess:
        if not self.cores:
            raise ResponderBotError("unavailable", "No core lives.")
        return self.chance.choice(list(self.cores.values()))

    def goes_on(self, until: float) -> bool:
        return time.monotonic() < until or self.kills < KILLS

    async def keep_killing(self, number: int, until: float) -> None:
        """One core after the other, each killed at a random moment of its life."""
        while self.goes_on(until):
            async with core_process(self.setup, f"core-{number}") as core:
                self.cores[number] = core
                await asyncio.sleep(self.chance.uniform(*LIVES_S))
                await core.kill()
                del self.cores[number]
                self.kills += 1

    async def keep_asking(self, caller: int, until: float) -> None:
        """One run after the other, each asked for with its key until somebody answers."""
        number = 0
        while self.goes_on(until):
            key = f"{caller}-{number}"
            number += 1
            self.answered[key] = await self.start_run(key)
            await asyncio.sleep(self.chance.uniform(0, 0.1))

    async def start_run(self, key: str) -> str:
        local = self.chance.random() < 0.7
        operations = [{"type": "CreateTask", "title": key}]
        steps = ["count", f"sleep {self.chance.uniform(0, 0.1):.3f}", "write"]
        body = {
            "responderId": "Stepwise_1_0" if local else REMOTE["name"],
            "objectType": "case",
            "objectId": self.case,
            "parameters": {"key": key, "runs": str(self.setup.runs(key)), "steps": steps, "operations": operations},
        }
        while True:
            try:
                return (await self.client_of_any().client().run(body, key)).id
            except ResponderBotError as error:
                assert error.code in ("unavailable", "bad_request"), error
                assert error.code == "unavailable" or "AMBER" not in error.message
                await asyncio.sleep(0.02)  # no core lives at this moment


async def drive_job(cortex: FakeCortex, job: FakeJob) -> None:
    """The remote engine's jobs live for a moment, and ask for the operations that they were told."""
    await asyncio.sleep(0.05)
    await cortex.begin(job.id)
    await asyncio.sleep(0.3)
    await cortex.succeed(job.id, operations=job.body["parameters"]["operations"])


@asynccontextmanager
async def soak_in(folder: Path) -> AsyncIterator[Soak]:
    cortex = FakeCortex(responders=[REMOTE], drive_job=drive_job)
    await cortex.start()
    try:
        setup = await setup_in(
            folder,
            engines=[{"name": "remote", "type": "cortex", "url": cortex.url, "api_key": cortex.api_key}],
            max_concurrent_actions=3,
        )
        yield Soak(setup, cortex, random.Random(SEED))  # noqa: S311 - chance that can be repeated is the point
    finally:
        await cortex.stop()


def titles(setup: CoreSetup) -> Counter[str]:
    """How often each task is there."""
    rows = stores.rows(setup.database, "SELECT doc FROM object WHERE kind = 'case_task'")
    return Counter(json.loads(doc)["title"] for (doc,) in rows)


async def events_by_action(core: CoreProcess) -> dict[str, Counter[str]]:
    after, found = 0, dict[str, Counter[str]]()
    while (page := await core.client().events(after, 0)).events:
        for event in page.events:
            if event.object_type == "Action":
                found.setdefault(event.object_id, Counter())[event.type] += 1
        after = page.last
    return found


@pytest.mark.parametrize("number_of_cores", [1, 2])
async def test_whatever_dies_when_each_run_happens_once(tmp_path: Path, number_of_cores: int) -> None:
    async with soak_in(tmp_path) as soak, AsyncExitStack() as stack:
        async with core_process(soak.setup) as first:
            soak.case = (await first.client().create_case({"title": "t", "description": "d"})).id
        until = time.monotonic() + SOAK_S
        killers = [asyncio.create_task(soak.keep_killing(n, until)) for n in range(number_of_cores)]
        callers = [asyncio.create_task(soak.keep_asking(n, until)) for n in range(CALLERS)]
        await asyncio.gather(*killers)
        last = soak.cores[-1] = await stack.enter_async_context(core_process(soak.setup))
        await asyncio.gather(*callers)
        ended = {key: await last.ended(action_id) for key, action_id in soak.answered.items()}
        events = await events_by_action(last)
        listed = [action.id for action in await last.client().actions("case", soak.case)]
        failed = judged(soak, ended)
    assert sorted(listed) == sorted(action.id for action in ended.values())
    assert {action_id: counts["action.ended"] for action_id, counts in events.items()} == dict.fromkeys(listed, 1)
    assert {counts["action.created"] for counts in events.values()} == {1}
    done = [key for key in ended if key not in failed]
    assert titles(soak.setup) == Counter(done)
    assert len(done) > len(failed)


def judged(soak: Soak, ended: dict[str, Action]) -> dict[str, Any]:
    """The runs whose start nobody can know; all others ran once."""
    unknown = {}
    labels = Counter(job.body["label"].partition("-")[0] for job in soak.cortex.jobs.values())
    for key, action in ended.items():
        remote = action.engine_id == "remote"
        ran = labels[action.id] if remote else soak.setup.counted(key)
        if action.status == "Success":
            assert ran == 1, (key, action)
        else:
            message = json.loads(action.report)["message"]
            assert remote, (key, message)
            assert message.startswith("It is not known whether Blocker_1_0 ran on engine 'remote'"), message
            assert ran <= 1, key
            unknown[key] = message
    return unknown
