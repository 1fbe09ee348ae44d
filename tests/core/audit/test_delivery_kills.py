"""A core is killed 200 times as it delivers its audit to a collector that often fails: nothing is lost."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.audit.delivery import BATCH
from core.audit.verify import NO_HASH, verify
from tests import stores
from tests.clock import SetClock
from tests.core.audit.test_delivery import collector, write
from tests.core.core_process import core_process, setup_in

ROWS, AT_ONCE = 100_000, 5_000
KILLS = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class FailingCollector:
    """Fails three times in ten, half of them after it has kept the batch; says when core is to be killed."""

    chance: random.Random
    batches: list[list[bytes]] = field(default_factory=list)
    held: int = 0
    """The number of the last row."""
    calls: int = 0
    failures: int = 0
    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    is_killed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """For the next life of core."""
        self.is_due, self.is_killed = asyncio.Event(), asyncio.Event()

    async def answer(self, body: bytes) -> int:
        self.calls += 1
        fate, lines = self.chance.random(), body.splitlines(keepends=True)
        if fate >= 0.15:
            self.batches.append(lines)
            self.held = max(self.held, json.loads(lines[-1])["head"]["number"])
        if fate < 0.3:
            self.failures += 1
            self.is_due.set()  # as core would wait 5 s
            return 503
        if fate < 0.4:
            self.is_due.set()
            await self.is_killed.wait()  # nobody hears the answer
        elif fate < 0.5 or len(lines) < BATCH + 2:
            self.is_due.set()  # while core notes that it was delivered, or once there is no more
        return 200


async def test_a_core_that_is_killed_while_a_collector_fails_loses_no_row(tmp_path: Path) -> None:
    failing, kills = FailingCollector(random.Random(28)), 0  # noqa: S311 - the same failures each time
    async with collector(failing.answer) as url:
        setup = await setup_in(tmp_path, audit_url=url, audit_token="t")
        async with stores.opened(setup.database) as database:
            for _ in range(ROWS // AT_ONCE):
                await write(database, SetClock(), AT_ONCE)
        while kills < KILLS or failing.held < stores.rows(setup.database, "SELECT max(number) FROM audit")[0][0]:
            failing.begin()
            async with core_process(setup) as core:
                await failing.is_due.wait()
                await core.kill()
            assert core.process.returncode == -9
            kills += 1
            failing.is_killed.set()
    rows, hash_, repeats = list[bytes](), NO_HASH, 0
    for lines in failing.batches:
        audit, anchor = verify(lines), json.loads(lines[0])["anchor"]  # each verifies alone
        known = rows[anchor["number"] : anchor["number"] + len(lines) - 2]
        if known:
            repeats += 1
            assert lines[1 : len(known) + 1] == known
        else:
            assert (anchor["number"], anchor["hash"]) == (len(rows), hash_)
        rows += lines[len(known) + 1 : -1]
        if audit.number == len(rows):
            hash_ = audit.hash
    assert stores.rows(setup.database, "SELECT count(*), max(number) FROM audit") == [(len(rows), len(rows))]
    assert stores.rows(setup.database, f"SELECT hash FROM audit WHERE number = {len(rows)}") == [(hash_,)]  # noqa: S608
    assert len(rows) > ROWS
    assert repeats > KILLS // 10
    assert failing.failures > failing.calls // 5
