"""Runs of a responder per second through core's HTTP interface, against the program alone under xargs."""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import KEY, alert, fill
from tests.bench.processes import CLIENT_CPUS, ROOT, SERVER_CPUS, serving

RESPONDERS = Path(__file__).with_name("responders")
BUNDLED = ROOT / "core" / "bundled"
CORE, UNCONFINED, XARGS = "core", "unconfined", "xargs -P2"
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


async def compile_requests() -> None:
    """Compile what the programs import, as it is in an environment that core has built or pip has filled.

    A confined program can't write there, so each run would compile it again.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import requests", env=environment)
    if await process.wait():
        raise RuntimeError("requests can't be imported; run it with uv run --group bench")


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await compile_requests()
    both = SERVER_CPUS | CLIENT_CPUS
    engine = {"name": "local", "python": sys.executable, "responders": [RESPONDERS]}
    clients, servers, offered = {}, {}, {}
    async with AsyncExitStack() as stack:
        for mode in ("landlock", "none"):
            await asyncio.to_thread(fill, folder / mode / "core.db", 1, 0)
            core = {"confinement": mode}
            servers[mode] = await stack.enter_async_context(
                serving("servers.core", folder / mode, cpus=both, engines=[engine], core=core)
            )
            clients[mode] = await stack.enter_async_context(CoreClient(servers[mode].url, KEY))
            offered = {item.name: item.id for item in await clients[mode].responders("alert", "~1")}
        rows = []
        for what, name, program, goal in PROGRAMS:
            before_s = servers["landlock"].cpu_s()
            found = await _interleaved(folder, clients, offered[name], program, scale)
            own_ms = (servers["landlock"].cpu_s() - before_s) / (scale.runs * (scale.rounds + 1)) * 1000
            rows += [
                comparison.row(
                    f"{what}, through core's HTTP interface",
                    found,
                    CORE,
                    XARGS,
                    comparison.per_second,
                    goal,
                    note=f"core's own processor time is {own_ms:.1f} ms a run",
                ),
                comparison.row(f"{what}, confined by Landlock", found, CORE, UNCONFINED, comparison.per_second),
            ]
        return rows


async def _interleaved(
    folder: Path, clients: Mapping[str, CoreClient], responder_id: str, program: Path, scale: Scale
) -> dict[str, list[Sample]]:
    return await comparison.interleaved(
        {
            CORE: lambda: _through_core(clients["landlock"], responder_id, scale.runs),
            UNCONFINED: lambda: _through_core(clients["none"], responder_id, scale.runs),
            XARGS: lambda: _xargs(folder / "xargs", program, scale.runs),
        },
        scale.rounds,
    )


async def _through_core(client: CoreClient, responder_id: str, runs: int) -> Sample:
    """Runs per second, from the first request to the event of the last end. Raises RuntimeError if a run failed."""
    last = (await client.events(None, 0)).last
    body = {"responderId": responder_id, "objectType": "alert", "objectId": "~1"}
    started = time.perf_counter()
    requested = asyncio.gather(*(client.run(body) for _ in range(runs)))
    ended = 0
    while ended < runs:
        page = await client.events(last, 30)
        last = page.last
        ended += sum(event.type == "action.ended" for event in page.events)
    elapsed_s = time.perf_counter() - started
    for action in (await requested)[-3:]:
        found = await client.action(action.id)
        if found.status != "Success":
            raise RuntimeError(f"the responder failed: {found.report}")
    return runs / elapsed_s


async def _xargs(folder: Path, program: Path, runs: int) -> Sample:
    jobs = await asyncio.to_thread(_job_folders, folder, runs)
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", ",".join(map(str, SERVER_CPUS | CLIENT_CPUS)), "xargs", "-P2", "-n1", sys.executable,
        str(program), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await process.communicate("\n".join(map(str, jobs)).encode())
    elapsed_s = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{program} failed")
    await asyncio.to_thread(shutil.rmtree, folder)
    return runs / elapsed_s


def _job_folders(folder: Path, runs: int) -> list[Path]:
    jobs = [folder / str(number) for number in range(runs)]
    data = json.loads(alert(1).to_json())
    input_json = json.dumps(
        {"data": data, "dataType": "thehive:alert", "tlp": 2, "pap": 2, "parameters": {}, "config": {}}
    )
    for job in jobs:
        (job / "input").mkdir(parents=True)
        (job / "input" / "input.json").write_text(input_json)
    return jobs
