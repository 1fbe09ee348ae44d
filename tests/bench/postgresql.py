"""Accept runs durably on PostgreSQL: against the peer on the same server, and against SQLite in the same run."""

import asyncio
from pathlib import Path

from tests.bench import comparison
from tests.bench.accept_runs import CORE, PEER, started_rate
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, fill, fill_postgresql
from tests.bench.load import LoadMeter, request
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, ServerProcess, on_cpus, serving
from tests.postgresql_process import PostgresqlServer

SQLITE = "core on SQLite"
LISTED = "/api/connector/engine/action/alert/~1"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    server = PostgresqlServer()
    with on_cpus(SERVER_CPUS | CLIENT_CPUS):
        await server.create()
    try:
        return await _measured(folder, scale, server)
    finally:
        await server.close()


async def _measured(folder: Path, scale: Scale, server: PostgresqlServer) -> list[Row]:
    url = server.url("bench")
    await fill_postgresql(url, actions=10)
    await asyncio.to_thread(fill, folder / "sqlite" / "core.db", 1, 10)
    started, listed = LoadMeter(), LoadMeter()
    async with (
        serving("servers.core", folder / "postgresql", mode="never_ends", core={"database": url}) as ours,
        serving("servers.core", folder / "sqlite", mode="never_ends") as on_sqlite,
        serving("servers.peer_core", folder / "peer", database=server.url("public")) as peer,
    ):
        lists = await comparison.interleaved(
            {
                CORE: lambda: _listed_rate(listed, CORE, ours, scale),
                SQLITE: lambda: _listed_rate(listed, SQLITE, on_sqlite, scale),
            },
            scale.rounds,
        )
        runs = await comparison.interleaved(
            {
                CORE: lambda: started_rate(started, CORE, ours, scale),
                PEER: lambda: started_rate(started, PEER, peer, scale),
                SQLITE: lambda: started_rate(started, SQLITE, on_sqlite, scale),
            },
            scale.rounds,
        )
    what, rate = "run accepted (durable) on PostgreSQL, 32 at once; the engine is busy", comparison.per_second
    times, us = started.cpu_s_per_answer, comparison.microseconds
    return [
        comparison.row(what, runs, CORE, PEER, rate, Goal("at least", 1.5)),
        comparison.row(f"{what}; processor time per run", times, CORE, PEER, us, inverse=True),
        comparison.row(what, runs, CORE, SQLITE, rate),
        comparison.row("list an alert's 10 actions on PostgreSQL, 32 at once", lists, CORE, SQLITE, rate),
    ]


async def _listed_rate(meter: LoadMeter, name: str, server: ServerProcess, scale: Scale) -> Sample:
    asked = request("GET", server.url, LISTED, headers={"Authorization": f"Bearer {KEY}"})
    return await meter.rate(name, server, [asked], seconds=scale.seconds)
