"""Accept runs durably, 32 at once, with an engine that does nothing."""

import asyncio
from pathlib import Path

from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEYS, fill
from tests.bench.load import LoadMeter, request
from tests.bench.processes import ServerProcess, serving

CORE, PEER = "core", "FastAPI + async ORM"
PATH = "/api/connector/engine/action"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    busy = await _against_peer(
        folder / "busy", scale, "run accepted (durable), 32 at once; the engine is busy", ends=False
    )
    ended = await _against_peer(
        folder / "ended", scale, "run accepted (durable), ended, and its end stored; 32 at once", ends=True
    )
    return [*busy, *ended]


async def _against_peer(folder: Path, scale: Scale, row_name: str, *, ends: bool) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    mode = "ends_at_once" if ends else "never_ends"
    meter = LoadMeter()
    async with (
        serving("servers.core", folder / "ours", mode=mode) as ours,
        serving("servers.peer_core", folder / "peer", ends=ends) as peer,
    ):
        found = await comparison.interleaved(
            {
                CORE: lambda: started_rate(meter, CORE, ours, scale),
                PEER: lambda: started_rate(meter, PEER, peer, scale),
            },
            scale.rounds,
        )
    goal = Goal("at least", 8)
    return [
        comparison.row(row_name, found, CORE, PEER, comparison.per_second, goal),
        comparison.row(
            "the same, processor time per run",
            meter.cpu_s_per_answer,
            CORE,
            PEER,
            comparison.microseconds,
            goal,
            inverse=True,
        ),
    ]


async def started_rate(
    meter: LoadMeter, name: str, server: ServerProcess, scale: Scale, alerts: range = range(1, 2)
) -> Sample:
    """Runs of 32 analysts accepted per second, on these alerts in turn."""
    bodies = [{"responderId": "r-idle", "objectType": "alert", "objectId": f"~{number}"} for number in alerts]
    headers = [{"Authorization": f"Bearer {key}"} for key in KEYS]
    requests = [request("POST", server.url, PATH, headers=of, body=body) for body in bodies for of in headers]
    return await meter.rate(name, server, requests, seconds=scale.seconds, status=201)
