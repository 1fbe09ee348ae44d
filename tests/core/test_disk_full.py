"""On a full disk writes are 503 and health is down; both recover once there is space."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.core.core_process import ALERT, core_process, setup_in


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


@pytest.mark.sqlite
async def test_health_is_down_while_alerts_find_no_room(small_disk: Path) -> None:
    setup = await setup_in(small_disk)
    async with (
        core_process(setup) as core,
        httpx.AsyncClient(base_url=core.url, headers={"Authorization": f"Bearer {setup.keys['lead']}"}) as http,
    ):
        large = {**ALERT, "description": "x" * 500_000}
        acknowledged = [(await http.post("/api/alert", json=large)).json()["id"]]
        assert (await http.get("/health")).json()["status"] == "ok"
        fill(small_disk / "filler")
        for number in range(2, 30):
            answer = await http.post("/api/alert", json={**large, "sourceRef": str(number)})
            if answer.status_code == 201:
                acknowledged.append(answer.json()["id"])
                continue
            assert answer.status_code == 503
            assert answer.json()["message"].endswith("try again in a moment.")
        assert len(acknowledged) < 29
        await until_health(http, 503)
        health = (await http.get("/health")).json()
        assert health["status"] == "down"
        assert "full" in health["parts"][0]["message"] or "room" in health["parts"][0]["message"]
        os.unlink(small_disk / "filler")
        assert (await http.post("/api/alert", json={**large, "sourceRef": "new"})).status_code == 201
        await until_health(http, 200)
        assert (await http.get("/health")).json()["status"] == "ok"
        await core.kill()
    async with core_process(setup) as again:
        for alert_id in acknowledged:
            assert (await again.client("lead").alert(alert_id)).id == alert_id


async def until_health(http: httpx.AsyncClient, status: int) -> None:
    """Health is looked at anew once a second at most."""
    async with asyncio.timeout(60):
        while (await http.get("/health")).status_code != status:  # noqa: ASYNC110 - no event: another process looks
            await asyncio.sleep(0.05)
