"""A run accepted, durably, 32 at once; the engine does nothing."""

import asyncio
from pathlib import Path

from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import Weighed, request
from tests.bench.programs import Child, serving

CORE, PEER = "core", "FastAPI + async ORM"
PATH = "/api/connector/engine/action"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    busy = await _against_peer(
        folder / "busy", scale, "run accepted (durable), 32 at once; engine busy, the rest waits", ends=False
    )
    ended = await _against_peer(
        folder / "ended", scale, "run accepted, ended at once, and its end stored; 32 at once", ends=True
    )
    return [*busy, *ended]


async def _against_peer(folder: Path, scale: Scale, what: str, *, ends: bool) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    manner = "ends" if ends else "holds"
    weighed = Weighed()
    async with (
        serving("servers.ours", folder / "ours", manner=manner) as ours,
        serving("servers.peer", folder / "peer", ends=ends) as peer,
    ):
        found = await figures.in_turns(
            {
                CORE: lambda: started_rate(weighed, CORE, ours, scale),
                PEER: lambda: started_rate(weighed, PEER, peer, scale),
            },
            scale.rounds,
        )
    goal = None if ends else Goal("at least", 15)
    return [
        figures.row(what, found, CORE, PEER, figures.per_second, goal),
        figures.row(
            "the same, processor time of a run",
            weighed.spent,
            CORE,
            PEER,
            figures.microseconds,
            goal,
            turned=True,
        ),
    ]


async def started_rate(weighed: Weighed, name: str, server: Child, scale: Scale, alerts: range = range(1, 2)) -> Figure:
    """Runs accepted in a second, on these alerts one after the other."""
    headers = {"Authorization": f"Bearer {KEY}"}
    bodies = ({"responderId": "r-idle", "objectType": "alert", "objectId": f"~{number}"} for number in alerts)
    requests = [request("POST", server.url, PATH, headers=headers, body=body) for body in bodies]
    return await weighed.rate(name, server, requests, seconds=scale.seconds, status=201)
