"""From the start of the program to its first answer, and the memory that it then has."""

import asyncio
import time
from pathlib import Path
from statistics import median

from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import load, request
from tests.bench.programs import serving


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    memory: dict[str, list[Figure]] = {"core": [], "FastAPI + async ORM": []}

    async def start(name: str, module: str, place: Path) -> Figure:
        times = []
        for _ in range(scale.starts):
            started = time.perf_counter()
            async with serving(module, place) as server:
                asked = request(
                    "GET",
                    server.url,
                    "/api/connector/engine/action/alert/~1",
                    headers={"Authorization": f"Bearer {KEY}"},
                )
                await load(server.url, [asked], seconds=0, at_once=1)
                times.append(time.perf_counter() - started)
                memory[name].append(server.memory_mb())
        return median(times)

    found = await figures.in_turns(
        {
            "core": lambda: start("core", "servers.ours", folder / "ours"),
            "FastAPI + async ORM": lambda: start("FastAPI + async ORM", "servers.peer", folder / "peer"),
        },
        scale.rounds,
    )
    return [
        figures.row(
            "start of core to its first answer",
            found,
            "core",
            "FastAPI + async ORM",
            figures.milliseconds,
            Goal("at most", 0.30),
        ),
        figures.row(
            "memory after it",
            memory,
            "core",
            "FastAPI + async ORM",
            lambda megabytes: f"{median(megabytes):.0f} MB",
            Goal("at most", 0.55),
        ),
    ]
