"""Start core: the time to its first answer, and its resident memory then."""

import asyncio
import time
from pathlib import Path
from statistics import median

from tests.bench import comparison
from tests.bench.comparison import Row, Sample, Scale
from tests.bench.dataset import KEY, fill
from tests.bench.load import load, request
from tests.bench.processes import serving


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    memory: dict[str, list[Sample]] = {"core": [], "FastAPI + async ORM": []}

    async def start(name: str, module: str, directory: Path) -> Sample:
        times = []
        for _ in range(scale.starts):
            started = time.perf_counter()
            async with serving(module, directory) as server:
                listing = request(
                    "GET",
                    server.url,
                    "/api/connector/engine/action/alert/~1",
                    headers={"Authorization": f"Bearer {KEY}"},
                )
                await load(server.url, [listing], seconds=0, at_once=1)
                times.append(time.perf_counter() - started)
                memory[name].append(server.memory_mb())
        return median(times)

    found = await comparison.interleaved(
        {
            "core": lambda: start("core", "servers.core", folder / "ours"),
            "FastAPI + async ORM": lambda: start("FastAPI + async ORM", "servers.peer_core", folder / "peer"),
        },
        scale.rounds,
    )
    return [
        comparison.row(
            "start of core until its first answer",
            found,
            "core",
            "FastAPI + async ORM",
            comparison.milliseconds,
        ),
        comparison.row(
            "resident memory then",
            memory,
            "core",
            "FastAPI + async ORM",
            lambda megabytes: f"{median(megabytes):.0f} MB",
        ),
    ]
