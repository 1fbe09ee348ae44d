"""Responders run in a second through core's HTTP interface, against the same programs bare."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from core.client import CoreClient
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, alert, fill
from tests.bench.programs import CLIENT_CORES, ROOT, SERVER_CORES, serving

RESPONDERS = Path(__file__).with_name("responders")
BUNDLED = ROOT / "core" / "bundled"
OURS, UNCONFINED, BARE = "core", "unconfined", "xargs -P2"
PROGRAMS = (
    (
        "responder that imports requests",
        "Bench_Importing_1_0",
        RESPONDERS / "Importing" / "importing.py",
        Goal("at least", 0.9),
    ),
    (
        "bundled responder (close as false positive)",
        "ResponderBot_CloseAsFalsePositive_1_0",
        BUNDLED / "CloseAsFalsePositive" / "close_as_false_positive.py",
        None,
    ),
)


async def measure(folder: Path, scale: Scale) -> list[Row]:
    both = SERVER_CORES | CLIENT_CORES
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    clients, offered = {}, {}
    async with AsyncExitStack() as stack:
        for mode in ("landlock", "none"):
            place = folder / mode
            await asyncio.to_thread(fill, place / "core.db", 1, 0)
            core = {"confinement": mode}
            server = await stack.enter_async_context(
                serving("servers.ours", place, on=both, engines=[engine], core=core)
            )
            clients[mode] = await stack.enter_async_context(CoreClient(server.url, KEY))
            offered = {item.name: item.id for item in await clients[mode].responders("alert", "~1")}
        rows = []
        for what, name, program, goal in PROGRAMS:
            found = await _in_turns(folder, clients, offered[name], program, scale)
            rows += [
                figures.row(f"{what}, through core's HTTP interface", found, OURS, BARE, figures.per_second, goal),
                figures.row(f"{what}, confined by Landlock", found, OURS, UNCONFINED, figures.per_second),
            ]
        return rows


async def _in_turns(
    folder: Path, clients: Mapping[str, CoreClient], responder_id: str, program: Path, scale: Scale
) -> dict[str, list[Figure]]:
    return await figures.in_turns(
        {
            OURS: lambda: _through_core(clients["landlock"], responder_id, scale.runs),
            UNCONFINED: lambda: _through_core(clients["none"], responder_id, scale.runs),
            BARE: lambda: _bare(folder / "bare", program, scale.runs),
        },
        scale.rounds,
    )


async def _through_core(client: CoreClient, responder_id: str, runs: int) -> Figure:
    """From the first request until the feed has told of the last end; all must have succeeded."""
    last = (await client.events(None, 0)).last
    asked = {"responderId": responder_id, "objectType": "alert", "objectId": "~1"}
    started = time.perf_counter()
    requested = asyncio.gather(*(client.run(asked) for _ in range(runs)))
    ended = 0
    while ended < runs:
        page = await client.events(last, 30)
        last = page.last
        ended += sum(event.type == "action.ended" for event in page.events)
    spent = time.perf_counter() - started
    for action in (await requested)[-3:]:
        found = await client.action(action.id)
        if found.status != "Success":
            raise RuntimeError(f"the responder failed: {found.report}")
    return runs / spent


async def _bare(folder: Path, program: Path, runs: int) -> Figure:
    jobs = await asyncio.to_thread(_job_folders, folder, runs)
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", ",".join(map(str, SERVER_CORES | CLIENT_CORES)), "xargs", "-P2", "-n1", sys.executable,
        str(program), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await process.communicate("\n".join(map(str, jobs)).encode())
    spent = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{program} failed")
    await asyncio.to_thread(shutil.rmtree, folder)
    return runs / spent


def _job_folders(folder: Path, runs: int) -> list[Path]:
    jobs = [folder / str(number) for number in range(runs)]
    data = json.loads(alert(1).to_json())
    asked = json.dumps({"data": data, "dataType": "thehive:alert", "tlp": 2, "pap": 2, "parameters": {}, "config": {}})
    for job in jobs:
        (job / "input").mkdir(parents=True)
        (job / "input" / "input.json").write_text(asked)
    return jobs
