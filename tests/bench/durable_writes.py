"""Write an action and its event durably, against plain writes to the disk and against separate commits."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.bench import comparison
from tests.bench.comparison import Row, Sample, Scale
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, serving

SLOW_SYNC = Path(__file__).with_name("slow_sync.c")


async def measure(folder: Path, scale: Scale) -> list[Row]:
    normal = await _measured(folder / "normal", scale)
    rows = [
        comparison.row(
            "durable write of action and event, sequential",
            normal,
            "store, sequential",
            "write + fdatasync",
            comparison.milliseconds,
        ),
        comparison.row(
            "the same, against as many bytes as its WAL gets",
            normal,
            "store, sequential",
            "write of 6 pages + fdatasync",
            comparison.milliseconds,
        ),
        comparison.row(
            "the same", normal, "store, sequential", "separate commits, sequential", comparison.milliseconds
        ),
        comparison.row(
            "durable writes, 32 at once",
            normal,
            "store, 32 at once",
            "separate commits, 32 at once",
            comparison.per_second,
        ),
    ]
    compiler = shutil.which("cc")
    if compiler is None:
        return rows
    slow = await _measured(folder / "slow", scale, await asyncio.to_thread(_slow_sync, compiler, folder))
    rows.append(
        comparison.row(
            "the same with each sync 2 ms slower",
            slow,
            "store, 32 at once",
            "separate commits, 32 at once",
            comparison.per_second,
        )
    )
    return rows


def _slow_sync(compiler: str, folder: Path) -> Mapping[str, str]:
    library = folder / "slow_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SLOW_SYNC, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


async def _measured(folder: Path, scale: Scale, env: Mapping[str, str] | None = None) -> Mapping[str, list[Sample]]:
    """On both CPUs, since a store has a writer thread."""
    settings = {"rounds": scale.rounds, "seconds": scale.seconds / 2, "calls": scale.calls}
    async with serving("servers.stores", folder, cpus=SERVER_CPUS | CLIENT_CPUS, env=env, **settings) as stores:
        samples: Mapping[str, list[Sample]] = stores.ready["samples"]
    return samples
