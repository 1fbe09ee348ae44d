"""What everybody else feels while one run or one request is hostile: `/health` and a write, over and over, timed.

The core is a process of its own, so that nothing the test itself does slows the loop that is watched.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.core.core_process import ALERT, CoreProcess

STUCK_S = 2.0
"""No answer may take longer. A busy machine delays one by some hundred milliseconds, a stuck loop by many seconds."""

QUIET_ROUNDS = 30

_numbers = itertools.count(1)


@dataclass
class Watch:
    """How long each answer took, in seconds."""

    health: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What was answered by anything but a success."""

    def longest(self) -> float:
        return max([*self.health, *self.writes])

    def ratio(self, quiet: "Watch") -> str:
        """Medians against those of a quiet core, and the longest answer; for the log of a test run."""
        health = statistics.median(self.health) / statistics.median(quiet.health)
        writes = statistics.median(self.writes) / statistics.median(quiet.writes)
        return f"health {health:.1f} x, write {writes:.1f} x quiet, longest answer {self.longest() * 1000:.0f} ms"


class Outsider:
    """Somebody else who uses the same core."""

    def __init__(self, core: CoreProcess) -> None:
        self._http = httpx.AsyncClient(base_url=core.url, timeout=60)
        self._key = {"Authorization": f"Bearer {core.place.keys['lead']}"}

    async def close(self) -> None:
        await self._http.aclose()

    async def look(self, watch: Watch) -> None:
        """One `/health` and one alert, both timed."""
        started = time.perf_counter()
        health = await self._http.get("/health")
        watch.health.append(time.perf_counter() - started)
        started = time.perf_counter()
        alert = {**ALERT, "sourceRef": f"beside-{next(_numbers)}"}
        written = await self._http.post("/api/alert", json=alert, headers=self._key)
        watch.writes.append(time.perf_counter() - started)
        for answer, expected in ((health, 200), (written, 201)):
            if answer.status_code != expected:
                watch.refused.append(f"{answer.status_code}: {answer.text[:200]}")


async def quiet(core: CoreProcess) -> Watch:
    """The same answers while nothing else happens."""
    outsider, watch = Outsider(core), Watch()
    try:
        for _ in range(QUIET_ROUNDS):
            await outsider.look(watch)
    finally:
        await outsider.close()
    return watch


@asynccontextmanager
async def beside(core: CoreProcess) -> AsyncIterator[Watch]:
    """Keep asking from before the block until after it."""
    outsider, watch = Outsider(core), Watch()

    async def keep_asking() -> None:
        while True:
            await outsider.look(watch)

    await outsider.look(watch)
    asking = asyncio.create_task(keep_asking())
    try:
        yield watch
        await outsider.look(watch)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await outsider.close()


def hold(watch: Watch, at_rest: Watch, what: str) -> None:
    """Fail where somebody else was refused or had to wait for as long as only a stuck loop makes them."""
    print(f"{what}: {watch.ratio(at_rest)}")  # noqa: T201 - the figures of this run
    assert not watch.refused, f"{what}: {watch.refused[:3]}"
    assert watch.longest() < STUCK_S, f"{what}: somebody else waited for {watch.longest():.1f} s"
