"""Responders run in a second through core's HTTP interface, against the same programs bare."""

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

from core.client import CoreClient
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, alert, fill
from tests.bench.programs import CLIENT_CORES, ROOT, SERVER_CORES, Child, serving

RESPONDERS = Path(__file__).with_name("responders")
BUNDLED = ROOT / "core" / "bundled"
BARE = "xargs -P2"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "core.db", 1, 0)
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    async with (
        serving("servers.ours", folder, on=SERVER_CORES | CLIENT_CORES, engines=[engine]) as core,
        CoreClient(core.url, KEY) as client,
    ):
        imports = await _against_bare(
            folder, core, client, scale, "Bench_Importing_1_0", RESPONDERS / "Importing" / "importing.py"
        )
        bundled = await _against_bare(
            folder,
            core,
            client,
            scale,
            "ResponderBot_CloseAsFalsePositive_1_0",
            BUNDLED / "CloseAsFalsePositive" / "close_as_false_positive.py",
        )
    return [
        figures.row(
            "responder that imports requests, through core's HTTP interface, two cores",
            imports,
            "core",
            BARE,
            figures.per_second,
            Goal("at least", 10),
        ),
        figures.row("bundled responder (close as false positive), the same", bundled, "core", BARE, figures.per_second),
    ]


async def _against_bare(
    folder: Path, core: Child, client: CoreClient, scale: Scale, name: str, program: Path
) -> dict[str, list[Figure]]:
    offered = {responder.name: responder.id for responder in await client.responders("alert", "~1")}
    return await figures.in_turns(
        {
            "core": lambda: _through_core(client, offered[name], scale.runs),
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
    data = json.loads(alert(1).wire())
    asked = json.dumps({"data": data, "dataType": "thehive:alert", "tlp": 2, "pap": 2, "parameters": {}, "config": {}})
    for job in jobs:
        (job / "input").mkdir(parents=True)
        (job / "input" / "input.json").write_text(asked)
    return jobs
