"""Cortex servers that attack core by how they answer: nobody else waits, and core's memory stays as it was."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.core.core_process import ROOT, CoreProcess, alert_in, core_process, setup_in
from tests.hostile.bystander import Latencies, assert_unaffected, measured_bystander
from tests.hostile.cortex import ATTACKS

pytestmark = pytest.mark.hostile

MORE_MIB = 64
"""Core's memory may grow by this much: it reads 4 MiB of an answer, and parses them."""


@asynccontextmanager
async def attacking_server(what: str) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """Its URL, and a line for each attack that is over."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hostile.cortex", what, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}", process.stdout
    finally:
        process.kill()
        await process.wait()


def peak_mib(core: CoreProcess) -> int:
    """The most memory that core has had."""
    lines = Path(f"/proc/{core.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


async def measured(folder: Path, engines: list[dict[str, str]], attacks: asyncio.StreamReader) -> tuple[Latencies, int]:
    """What a bystander sees from the start of a core until two attacks are over, and the memory of that core."""
    folder.mkdir()
    async with core_process(await setup_in(folder, engines=engines)) as core, measured_bystander(core) as latencies:
        for _ in range(2):
            assert await attacks.readline()
        await core.client("lead").alert(await alert_in(core))
        return latencies, peak_mib(core)


@pytest.mark.parametrize("what", ATTACKS)
async def test_a_server_that_attacks_hurts_nobody(tmp_path: Path, what: str) -> None:
    none = asyncio.StreamReader()
    none.feed_data(b"over\n" * 2)
    quiet, quiet_mib = await measured(tmp_path / "quiet", [], none)
    async with attacking_server(what) as (url, attacks):
        engine = {"name": "soar", "type": "cortex", "url": url, "api_key": "k" * 10}
        latencies, mib = await measured(tmp_path / "attacked", [engine], attacks)
    print(f"{what}: {mib} MiB, quiet {quiet_mib} MiB")  # noqa: T201 - the figures of this run
    assert_unaffected(latencies, quiet, what)
    assert mib - quiet_mib < MORE_MIB
