"""Call core as the bot does, through `core.client` and with plain httpx."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import httpx

from core.client import CoreClient
from core.models import Person
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import SERVICE_KEY, fill
from tests.bench.processes import serving

PATH = "/api/user/by-slack/T0BENCH/U0BENCH"
CALLERS = 32

Call = Callable[[], Awaitable[Person]]


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "core.db", 1, 10)
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with (
        serving("servers.core", folder, mode="never_ends") as core,
        CoreClient(core.url, SERVICE_KEY) as client,
        httpx.AsyncClient(
            base_url=core.url, headers={"Authorization": f"Bearer {SERVICE_KEY}"}, limits=limits
        ) as plain,
    ):

        async def through_client() -> Person:
            return await client.person_by_slack("T0BENCH", "U0BENCH")

        async def through_httpx() -> Person:
            response = await plain.get(PATH)
            response.raise_for_status()
            return Person.model_validate_json(response.content)

        sequential = await comparison.interleaved(
            {"core.client": lambda: _latency(through_client, scale), "httpx": lambda: _latency(through_httpx, scale)},
            scale.rounds,
        )
        at_once = await comparison.interleaved(
            {
                "core.client": lambda: _throughput(through_client, scale),
                "httpx": lambda: _throughput(through_httpx, scale),
            },
            scale.rounds,
        )
    what = "call from bot to core"
    return [
        comparison.row(
            f"{what}, sequential",
            sequential,
            "core.client",
            "httpx",
            comparison.milliseconds,
            Goal("at least", 1.5),
            inverse=True,
        ),
        comparison.row(f"{what}, 32 at once", at_once, "core.client", "httpx", comparison.per_second),
    ]


async def _latency(call: Call, scale: Scale) -> Sample:
    times = []
    for _ in range(scale.calls):
        started = time.perf_counter()
        await call()
        times.append(time.perf_counter() - started)
    return median(times)


async def _throughput(call: Call, scale: Scale) -> Sample:
    started = time.perf_counter()
    deadline = started + scale.seconds
    count = 0

    async def caller() -> None:
        nonlocal count
        while time.perf_counter() < deadline:
            await call()
            count += 1

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count / (time.perf_counter() - started)
