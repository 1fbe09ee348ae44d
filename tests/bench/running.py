"""Responders run in a second through core's HTTP interface, against the same programs bare."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from core.client import CoreClient
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import KEY, alert, fill
from tests.bench.programs import CLIENT_CORES, ROOT, SERVER_CORES, serving

RESPONDERS = Path(__file__).with_name("responders")
BUNDLED = ROOT / "core" / "bundled"
FORK, EXEC, BARE = "core, fork server", "core, exec", "xargs -P2"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    both = SERVER_CORES | CLIENT_CORES
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    for place in (folder / "fork", folder / "exec"):
        await asyncio.to_thread(fill, place / "core.db", 1, 0)
    async with (
        serving("servers.ours", folder / "fork", on=both, engines=[engine], core={"fork_server": True}) as forking,
        serving("servers.ours", folder / "exec", on=both, engines=[engine], core={"fork_server": False}) as plain,
        CoreClient(forking.url, KEY) as fork_client,
        CoreClient(plain.url, KEY) as exec_client,
    ):
        clients = {FORK: fork_client, EXEC: exec_client}
        imports = await _against_bare(
            folder, clients, scale, "Bench_Importing_1_0", RESPONDERS / "Importing" / "importing.py"
        )
        bundled = await _against_bare(
            folder,
            clients,
            scale,
            "ResponderBot_CloseAsFalsePositive_1_0",
            BUNDLED / "CloseAsFalsePositive" / "close_as_false_positive.py",
        )
    what = "responder that imports requests, through core's HTTP interface, two cores"
    also = "bundled responder (close as false positive), the same"
    return [
        figures.row(f"{what}; fork server", imports, FORK, BARE, figures.per_second, Goal("at least", 10)),
        figures.row(f"{what}; each by exec", imports, EXEC, BARE, figures.per_second),
        figures.row(f"{also}; fork server", bundled, FORK, BARE, figures.per_second),
        figures.row(f"{also}; each by exec", bundled, EXEC, BARE, figures.per_second),
    ]


async def _against_bare(
    folder: Path, clients: Mapping[str, CoreClient], scale: Scale, name: str, program: Path
) -> dict[str, list[Figure]]:
    offered = {responder.name: responder.id for responder in await clients[EXEC].responders("alert", "~1")}
    return await figures.in_turns(
        {
            FORK: lambda: _through_core(clients[FORK], offered[name], scale.runs),
            EXEC: lambda: _through_core(clients[EXEC], offered[name], scale.runs),
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
