"""List the ten actions of an alert, 32 requests at once."""

import asyncio
from pathlib import Path

from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, fill
from tests.bench.load import LoadMeter, request
from tests.bench.processes import ServerProcess, serving

PATH = "/api/connector/engine/action/alert/~1"
CORE, PEER, STATIC = "core", "FastAPI + async ORM", "static bytes"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "ours" / "core.db", 1, 10)
    async with (
        serving("servers.core", folder / "ours", mode="never_ends") as ours,
        serving("servers.peer_core", folder / "peer") as peer,
    ):
        size = (await _answer_bytes(ours), await _answer_bytes(peer))
        async with serving("servers.static", folder / "static", answer_bytes=size[0]) as static:
            meter = LoadMeter()
            found = await comparison.interleaved(
                {
                    CORE: lambda: _rate(meter, CORE, ours, scale),
                    PEER: lambda: _rate(meter, PEER, peer, scale),
                    STATIC: lambda: _rate(meter, STATIC, static, scale),
                },
                scale.rounds,
            )
    what = f"list 10 actions ({size[0] / 1000:.0f} KB), 32 at once"
    cpu = "the same, processor time per answer"
    note = f"the peer's answer has {size[1] / 1000:.0f} KB"
    return [
        comparison.row(what, found, CORE, PEER, comparison.per_second, Goal("at least", 8), note=note),
        comparison.row(
            cpu, meter.cpu_s_per_answer, CORE, PEER, comparison.microseconds, Goal("at least", 8), inverse=True
        ),
        comparison.row(what, found, CORE, STATIC, comparison.per_second),
        comparison.row(cpu, meter.cpu_s_per_answer, CORE, STATIC, comparison.microseconds, inverse=True),
    ]


async def _rate(meter: LoadMeter, name: str, server: ServerProcess, scale: Scale) -> Sample:
    requests = [request("GET", server.url, PATH, headers=AUTHORIZED)]
    return await meter.rate(name, server, requests, seconds=scale.seconds)


async def _answer_bytes(server: ServerProcess) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(request("GET", server.url, PATH, headers=AUTHORIZED))
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
