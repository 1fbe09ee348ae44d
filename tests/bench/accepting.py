"""A run accepted, durably, 32 at once; the engine does nothing."""

import asyncio
from pathlib import Path

from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import load, request
from tests.bench.programs import Child, serving

PATH = "/api/connector/engine/action"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    busy = await _against_peer(folder / "busy", scale, ends=False)
    ended = await _against_peer(folder / "ended", scale, ends=True)
    return [
        figures.row(
            "run accepted (durable), 32 at once; engine busy, the rest waits",
            busy,
            "core",
            "FastAPI + async ORM",
            figures.per_second,
            Goal("at least", 15),
        ),
        figures.row(
            "the same; each run ends at once, and its end is stored too",
            ended,
            "core",
            "FastAPI + async ORM",
            figures.per_second,
        ),
    ]


async def _against_peer(folder: Path, scale: Scale, *, ends: bool) -> dict[str, list[Figure]]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    manner = "ends" if ends else "holds"
    async with (
        serving("servers.ours", folder / "ours", manner=manner) as ours,
        serving("servers.peer", folder / "peer", ends=ends) as peer,
    ):
        return await figures.in_turns(
            {"core": lambda: started_rate(ours, scale), "FastAPI + async ORM": lambda: started_rate(peer, scale)},
            scale.rounds,
        )


async def started_rate(server: Child, scale: Scale, alerts: range = range(1, 2)) -> Figure:
    """Runs accepted in a second, on these alerts one after the other."""
    headers = {"Authorization": f"Bearer {KEY}"}
    bodies = ({"responderId": "r-idle", "objectType": "alert", "objectId": f"~{number}"} for number in alerts)
    requests = [request("POST", server.url, PATH, headers=headers, body=body) for body in bodies]
    return (await load(server.url, requests, seconds=scale.seconds, status=201)).per_second
