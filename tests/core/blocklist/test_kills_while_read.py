"""Cores are killed (SIGKILL) at any point of a change, while firewalls read the list of any core that lives."""

import asyncio
import json
import math
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientError, ClientSession, TCPConnector

from tests import stores
from tests.core.blocklist.harness import BLOCK, RUN, UNBLOCK
from tests.core.core_process import ALERT, CoreSetup, core_process, hosts_in

pytestmark = pytest.mark.slow

KILLS = 8
ONCE = "ancient"
"""The reader that reads before the first change, and never again."""
READERS = {ONCE: 0.0, **{f"edge-{n}": 5.0 + n for n in range(5)}, **{f"fw-{n}": 0.2 for n in range(14)}}
"""Each with its pause between two reads (s); core names the first ten by name."""
KEPT = [f"192.0.2.{n}" for n in range(10)]
"""Blocked from the beginning to the end."""
CHANGED = [f"198.51.100.{n}" for n in range(200)]
AT_ONCE = 16
"""Changes."""
PATH = "/api/blocklist/ip.txt"


@dataclass(frozen=True)
class Answer:
    status: int
    tag: str
    text: str


@dataclass(frozen=True)
class Read:
    reader: str
    begun: float
    ended: float
    targets: frozenset[str]


@dataclass(frozen=True)
class Claim:
    """What core said of a block: who has it."""

    target: str
    readers: frozenset[str]
    at: float


@dataclass
class Firewalls:
    """What readers and analysts saw of cores, by the clock of this process."""

    keys: dict[str, str]
    http: ClientSession
    urls: dict[str, str] = field(default_factory=dict)
    """Of the cores that live, by host."""
    reads: list[Read] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    listed: list[tuple[str, float, float]] = field(default_factory=list)
    """Targets that were blocked all that time."""
    absent: list[tuple[str, float, float]] = field(default_factory=list)
    """Targets that nothing blocked all that time."""
    blocks: dict[str, str] = field(default_factory=dict)
    """Actions of Block that succeeded, with their target."""
    answers: int = 0
    is_over: bool = False

    async def send(self, method: str, path: str, key: str, body: Any = None, tag: str = "") -> Answer:
        """The answer of any core. Raises ClientError if that core is killed before it has answered."""
        while not self.urls:  # noqa: ASYNC110 - another process starts
            await asyncio.sleep(0.01)
        url = random.choice([*self.urls.values()])  # noqa: S311 - no secret
        headers = {"Authorization": f"Bearer {self.keys[key]}", "If-None-Match": tag}
        async with self.http.request(method, url + path, json=body, headers=headers) as answer:
            return Answer(answer.status, answer.headers.get("etag", ""), await answer.text())

    async def read(self, reader: str) -> None:
        """Read until cancelled; ONCE reads once."""
        by_tag: dict[str, frozenset[str]] = {}
        tag = ""
        while True:
            begun = time.monotonic()
            with suppress(ClientError):
                answer = await self.send("GET", PATH, reader, tag=tag)
                if answer.status == 503:  # core is stopping, or its database
                    continue
                assert answer.status in (200, 304), answer.text
                tag = answer.tag
                if answer.status == 200:
                    assert by_tag.setdefault(tag, frozenset(answer.text.splitlines())) == {*answer.text.splitlines()}
                self.reads.append(Read(reader, begun, time.monotonic(), by_tag[tag]))
                if reader == ONCE:
                    return
            await asyncio.sleep(READERS[reader])

    async def run(self, responder: str, artifact: str) -> str | None:
        """The id of a run that succeeded; None if no core answered whether it runs."""
        body = {"responderId": responder, "objectType": "case_artifact", "objectId": artifact}
        try:
            answer = await self.send("POST", RUN, "anna", body)
        except ClientConnectorError:  # that core had no part of it
            return await self.run(responder, artifact)
        except ClientError:
            return None
        if answer.status == 503:
            return None
        assert answer.status == 201, answer.text
        self.answers += 1
        action = json.loads(answer.text)
        async with asyncio.timeout(90):
            while action.get("endDate") is None:
                with suppress(ClientError):
                    shown = await self.send("GET", f"{RUN}/{action['_id']}?wait=1", "anna")
                    action = json.loads(shown.text) if shown.status == 200 else action
                await asyncio.sleep(0.01)
        assert action["status"] == "Success", action
        return str(action["_id"])

    async def change(self, artifacts: list[tuple[str, str]]) -> None:
        """Block each target and release it, until it is over; one that no core answers is left alone after that."""
        for target, artifact in artifacts:
            if self.is_over:
                return
            self.absent.append((target, 0.0, time.monotonic()))
            block = await self.run(BLOCK, artifact)
            if block is not None:
                listed_since = time.monotonic()
                self.blocks[block] = target
                await asyncio.sleep(random.uniform(0, 3))  # noqa: S311 - who has read it is stored within a second
                self.listed.append((target, listed_since, time.monotonic()))
                if await self.run(UNBLOCK, artifact) is not None:
                    self.absent.append((target, time.monotonic(), math.inf))

    async def ask(self) -> None:
        """Ask who has read the last blocks, until cancelled."""
        while True:
            for action_id, target in [*self.blocks.items()][-10:]:
                with suppress(ClientError):
                    readers = await self.readers_of(action_id)
                    self.claims.append(Claim(target, readers, time.monotonic()))
            await asyncio.sleep(0.1)

    async def readers_of(self, action_id: str) -> frozenset[str]:
        """Who has read a block, as core says. Raises ClientError."""
        answer = await self.send("GET", f"{RUN}/{action_id}", "anna")
        if answer.status != 200:
            raise ClientError(answer.text)
        return frozenset(one["name"] for one in json.loads(answer.text).get("readers") or () if one.get("at"))


async def killed(firewalls: Firewalls, setup: CoreSetup, kills: int, ready: asyncio.Barrier) -> None:
    """Start a core and kill it, so often; the last one lives until it is cancelled."""
    host = setup.folder.name
    for number in range(kills):
        async with core_process(setup) as core:
            firewalls.urls[host] = core.url
            before = firewalls.answers
            while firewalls.answers < before + number % 3 + 1:  # noqa: ASYNC110 - killed as soon as so many are answered
                await asyncio.sleep(0.001)
            await asyncio.sleep(random.uniform(0, 0.1))  # noqa: S311 - at any point of the changes that run
            del firewalls.urls[host]
            await core.kill()
    async with core_process(setup) as core:
        firewalls.urls[host] = core.url
        await ready.wait()
        await asyncio.Event().wait()


async def listed_now(firewalls: Firewalls) -> list[str]:
    return (await firewalls.send("GET", PATH, "anna")).text.splitlines()


async def in_force_now(firewalls: Firewalls) -> list[str]:
    measures = json.loads((await firewalls.send("GET", "/api/connector/engine/measure", "anna")).text)
    return sorted({one["target"][0]["data"] for one in measures if one["state"] != "starting"})


async def watched(firewalls: Firewalls, setups: list[CoreSetup]) -> None:
    """Let firewalls read while targets are blocked and released, and cores killed."""
    async with core_process(setups[0]) as core:
        firewalls.urls["one"] = core.url
        artifacts = [{"dataType": "ip", "data": target} for target in (*KEPT, *CHANGED)]
        made = await core.client("lead").create_alert({**ALERT, "artifacts": artifacts})
        of = {artifact.data or "": artifact.id for artifact in made.artifacts}
        kept = [await firewalls.run(BLOCK, of[target]) for target in KEPT]
        await firewalls.read(ONCE)
        while await firewalls.readers_of(str(kept[-1])) != {ONCE}:  # noqa: ASYNC110 - its own pace
            await asyncio.sleep(0.05)
    del firewalls.urls["one"]
    changes = [(target, of[target]) for target in CHANGED]
    ready = asyncio.Barrier(len(setups) + 1)
    async with asyncio.TaskGroup() as group:
        cores = [group.create_task(killed(firewalls, setup, KILLS // len(setups), ready)) for setup in setups]
        reading = [group.create_task(firewalls.read(name)) for name in READERS if name != ONCE]
        asking = group.create_task(firewalls.ask())
        changing = [group.create_task(firewalls.change(changes[n::AT_ONCE])) for n in range(AT_ONCE)]
        await ready.wait()
        firewalls.is_over = True
        await asyncio.gather(*changing)
        async with asyncio.timeout(60):
            while {read.reader for read in firewalls.reads} != READERS.keys():  # noqa: ASYNC110 - a slow one's cores died
                await asyncio.sleep(0.1)
            while await listed_now(firewalls) != await in_force_now(firewalls):  # noqa: ASYNC110 - runs of killed cores end
                await asyncio.sleep(0.1)
        for task in (*reading, asking, *cores):
            task.cancel()


async def test_no_list_is_wrong_and_no_read_invented_while_cores_are_killed(tmp_path: Path) -> None:
    setups = await hosts_in(tmp_path, ("one",) if stores.dialect() == "sqlite" else ("one", "two"))
    await setups[0].users(*((name, "reader") for name in READERS))
    async with ClientSession(connector=TCPConnector(force_close=True)) as http:
        seen = Firewalls(setups[0].keys, http)
        await watched(seen, setups)
    print(f"{len(seen.reads)} reads, {len(seen.blocks)} blocks, {len(seen.claims)} answers who has read one")  # noqa: T201
    has_read: dict[tuple[str, str], float] = {}
    for read in seen.reads:
        assert read.reader == ONCE or read.targets >= {*KEPT}
        for target in read.targets:
            has_read.setdefault((read.reader, target), read.begun)

    def reads_within(since: float, until: float) -> list[Read]:
        return [read for read in seen.reads if since < read.begun and read.ended < until]

    assert not [period for period in seen.listed for read in reads_within(*period[1:]) if period[0] not in read.targets]
    assert not [period for period in seen.absent for read in reads_within(*period[1:]) if period[0] in read.targets]
    claimed = [(name, claim.target, claim.at) for claim in seen.claims for name in claim.readers]
    assert claimed
    assert not [one for one in claimed if has_read.get(one[:2], math.inf) > one[2]]
