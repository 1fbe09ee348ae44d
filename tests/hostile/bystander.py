"""Latencies of another client, for `/health` and a write, while a run or a request attacks core.

Core is a process of its own, so that the test itself doesn't slow its event loop.
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
"""No answer may take longer. A busy machine delays it by some hundred milliseconds, a blocked loop by seconds."""

IDLE_PROBES = 30

_numbers = itertools.count(1)


@dataclass
class Latencies:
    """Latency of each answer, in seconds."""

    health: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Answers with an unexpected status."""

    def longest(self) -> float:
        return max([*self.health, *self.writes])

    def ratio(self, idle: "Latencies") -> str:
        """Medians relative to those of an idle core, and the longest answer; for the log of a test run."""
        health = statistics.median(self.health) / statistics.median(idle.health)
        writes = statistics.median(self.writes) / statistics.median(idle.writes)
        return f"health {health:.1f} x, write {writes:.1f} x idle, longest answer {self.longest() * 1000:.0f} ms"


class Bystander:
    """Another client of the same core."""

    def __init__(self, core: CoreProcess) -> None:
        self._http = httpx.AsyncClient(base_url=core.url, timeout=60)
        self._key = {"Authorization": f"Bearer {core.setup.keys['lead']}"}

    async def close(self) -> None:
        await self._http.aclose()

    async def probe(self, latencies: Latencies) -> None:
        """Time one `/health` and the creation of one alert."""
        started = time.perf_counter()
        health = await self._http.get("/health")
        latencies.health.append(time.perf_counter() - started)
        started = time.perf_counter()
        alert = {**ALERT, "sourceRef": f"beside-{next(_numbers)}"}
        written = await self._http.post("/api/alert", json=alert, headers=self._key)
        latencies.writes.append(time.perf_counter() - started)
        for answer, expected in ((health, 200), (written, 201)):
            if answer.status_code != expected:
                latencies.refused.append(f"{answer.status_code}: {answer.text[:200]}")


async def measure_idle(core: CoreProcess) -> Latencies:
    """Latencies while core has nothing else to do."""
    bystander, latencies = Bystander(core), Latencies()
    try:
        for _ in range(IDLE_PROBES):
            await bystander.probe(latencies)
    finally:
        await bystander.close()
    return latencies


@asynccontextmanager
async def measured_bystander(core: CoreProcess) -> AsyncIterator[Latencies]:
    """Probe core from before the block until after it."""
    bystander, latencies = Bystander(core), Latencies()

    async def keep_probing() -> None:
        while True:
            await bystander.probe(latencies)

    await bystander.probe(latencies)
    probing = asyncio.create_task(keep_probing())
    try:
        yield latencies
        await bystander.probe(latencies)
    finally:
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        await bystander.close()


def assert_unaffected(latencies: Latencies, baseline: Latencies, what: str) -> None:
    """Fail if the bystander was refused, or waited as long as only a blocked event loop makes it wait."""
    print(f"{what}: {latencies.ratio(baseline)}")  # noqa: T201 - the figures of this run
    assert not latencies.refused, f"{what}: {latencies.refused[:3]}"
    assert latencies.longest() < STUCK_S, f"{what}: the bystander waited for {latencies.longest():.1f} s"
