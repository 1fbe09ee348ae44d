"""A durable write of an action and its event, against the disk itself and against commits one by one."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.programs import CLIENT_CORES, SERVER_CORES, serving

SLOW_SYNC = Path(__file__).with_name("slow_sync.c")


async def measure(folder: Path, scale: Scale) -> list[Row]:
    quick = await _writers(folder / "quick", scale)
    rows = [
        figures.row(
            "durable write of action and event, alone",
            quick,
            "store alone",
            "write + fdatasync",
            figures.milliseconds,
            Goal("at most", 1.8),
        ),
        figures.row(
            "the same, against as many bytes as its log gets",
            quick,
            "store alone",
            "write of 6 pages + fdatasync",
            figures.milliseconds,
        ),
        figures.row("the same", quick, "store alone", "direct alone", figures.milliseconds),
        figures.row(
            "durable writes, 32 at once",
            quick,
            "store, 32 at once",
            "direct, 32 at once",
            figures.per_second,
            Goal("at least", 4),
        ),
    ]
    compiler = shutil.which("cc")
    if compiler is None:
        return rows
    slow = await _writers(folder / "slow", scale, await asyncio.to_thread(_slowed, compiler, folder))
    rows.append(
        figures.row(
            "the same with a sync made 2 ms slower",
            slow,
            "store, 32 at once",
            "direct, 32 at once",
            figures.per_second,
            Goal("at least", 20),
        )
    )
    return rows


def _slowed(compiler: str, folder: Path) -> Mapping[str, str]:
    library = folder / "slow_sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SLOW_SYNC, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


async def _writers(folder: Path, scale: Scale, env: Mapping[str, str] | None = None) -> Mapping[str, list[Figure]]:
    """Both cores: a store has a thread of its own for writing."""
    asked = {"rounds": scale.rounds, "seconds": scale.seconds / 2, "calls": scale.calls}
    async with serving("servers.writers", folder, on=SERVER_CORES | CLIENT_CORES, env=env, **asked) as writers:
        found: Mapping[str, list[Figure]] = writers.said["figures"]
    return found
