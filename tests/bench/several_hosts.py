"""Runs of a responder that waits a second: three cores on one PostgreSQL, each with its own slots, against one core."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, fill_postgresql
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, on_cpus, serving
from tests.bench.responder_runs import RESPONDERS
from tests.postgresql_process import PostgresqlServer

ONE, THREE = "one core", "three cores"
RESPONDER = "Bench_Waiting_1_0"
ALL_CPUS = SERVER_CPUS | CLIENT_CPUS


async def measure(folder: Path, scale: Scale) -> list[Row]:
    server = PostgresqlServer()
    with on_cpus(ALL_CPUS):
        await server.create()
    try:
        async with AsyncExitStack() as stack:
            clients = {name: await _cores(stack, folder, server, name, n) for name, n in ((ONE, 1), (THREE, 3))}
            offered = {
                name: next(item.id for item in await found[0].responders("alert", "~1") if item.name == RESPONDER)
                for name, found in clients.items()
            }
            runs = scale.runs * 4
            found = await comparison.interleaved(
                {
                    name: lambda name=name: _runs_rate(clients[name], offered[name], runs)  # type: ignore[misc]
                    for name in (THREE, ONE)
                },
                scale.rounds,
            )
    finally:
        await server.close()
    name = "runs of a responder that waits 1 s, asked of any core"
    return [comparison.row(name, found, THREE, ONE, comparison.per_second, Goal("at least", 2.8))]


async def _cores(
    stack: AsyncExitStack, folder: Path, server: PostgresqlServer, name: str, count: int
) -> list[CoreClient]:
    """So many cores, each as a host of its own, on a schema that they share."""
    url = server.url(name.replace(" ", "_"))
    await fill_postgresql(url)
    engine = {"name": "local", "responders": [RESPONDERS]}
    clients = []
    for number in range(count):
        host = f"{name.partition(' ')[0]}{number}"
        core = {"database": url, "host_name": host, "confinement": "none"}
        started = serving("servers.core", folder / host, cpus=ALL_CPUS, engines=[engine], core=core)
        process = await stack.enter_async_context(started)
        clients.append(await stack.enter_async_context(CoreClient(process.url, KEY)))
    return clients


async def _runs_rate(clients: Sequence[CoreClient], responder_id: str, runs: int) -> Sample:
    """Runs per second, from the first request to the event of the last end. Raises RuntimeError if one failed."""
    last = (await clients[0].events(None, 0)).last
    body = {"responderId": responder_id, "objectType": "alert", "objectId": "~1"}
    started = time.perf_counter()
    actions = await asyncio.gather(*(clients[number % len(clients)].run(body) for number in range(runs)))
    waiting = {action.id for action in actions}
    while waiting:
        page = await clients[0].events(last, 30)
        last = page.last
        waiting -= {event.object_id for event in page.events if event.type == "action.ended"}
    elapsed_s = time.perf_counter() - started
    for action in actions[-3:]:
        found = await clients[0].action(action.id)
        if found.status != "Success":
            raise RuntimeError(f"the responder failed: {found.report}")
    return runs / elapsed_s
