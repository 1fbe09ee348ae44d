"""Listing ten actions of an alert, 32 at once."""

import asyncio
from pathlib import Path

from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, fill
from tests.bench.load import Weighed, request
from tests.bench.programs import Child, serving

PATH = "/api/connector/engine/action/alert/~1"
CORE, PEER, FLOOR = "core", "FastAPI + async ORM", "static bytes"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    async with (
        serving("servers.ours", folder / "ours", manner="holds") as ours,
        serving("servers.peer", folder / "peer") as peer,
    ):
        size = (await _answer_bytes(ours), await _answer_bytes(peer))
        async with serving("servers.floor", folder / "floor", answer_bytes=size[0]) as floor:
            weighed = Weighed()
            found = await figures.in_turns(
                {
                    CORE: lambda: _rate(weighed, CORE, ours, scale),
                    PEER: lambda: _rate(weighed, PEER, peer, scale),
                    FLOOR: lambda: _rate(weighed, FLOOR, floor, scale),
                },
                scale.rounds,
            )
    what = f"list 10 actions ({size[0] / 1000:.0f} KB), 32 at once"
    spent = "the same, processor time of an answer"
    note = f"the peer's answer has {size[1] / 1000:.0f} KB"
    return [
        figures.row(what, found, CORE, PEER, figures.per_second, Goal("at least", 10), note=note),
        figures.row(spent, weighed.spent, CORE, PEER, figures.microseconds, Goal("at least", 10), turned=True),
        figures.row(what, found, CORE, FLOOR, figures.per_second, Goal("at least", 0.30)),
        figures.row(spent, weighed.spent, CORE, FLOOR, figures.microseconds, Goal("at least", 0.30), turned=True),
    ]


async def _rate(weighed: Weighed, name: str, server: Child, scale: Scale) -> Figure:
    requests = [request("GET", server.url, PATH, headers=AUTHORIZED)]
    return await weighed.rate(name, server, requests, seconds=scale.seconds)


async def _answer_bytes(server: Child) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(request("GET", server.url, PATH, headers=AUTHORIZED))
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
