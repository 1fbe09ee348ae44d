"""An analyst who blocks as fast as core answers: what the rate lets through is the list, and nobody else waits."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from core.protection import BLOCK
from tests.core.core_process import ALERT, CoreProcess, core_process, run_body, setup_in
from tests.hostile.bystander import assert_unaffected, measure_idle, measured_bystander

pytestmark = pytest.mark.hostile

ASKED = 120
ALLOWED = 20
AT_ONCE = 60
TARGETS = [f"198.51.{number // 250}.{number % 250}" for number in range(ASKED)]
OTHERS = [f"203.0.{number // 250}.{number % 250}" for number in range(400)]
"""They make each run on the alert expensive."""


async def test_who_blocks_without_end_is_bounded_by_the_rate_and_delays_no_one(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    with (tmp_path / "settings.toml").open("a") as settings:
        settings.write(f'[responder."{BLOCK}"]\nrate = "{ALLOWED}/1h"\n')
    async with core_process(setup) as core:
        artifacts = [{"dataType": "ip", "data": target} for target in (*TARGETS, *OTHERS)]
        alert = await core.client("lead").create_alert({**ALERT, "artifacts": artifacts})
        idle, started = await measure_idle(core), time.monotonic()
        async with measured_bystander(core) as latencies:
            answers = await blocked_at_once(core, alert.id)
        print(f"{ASKED / (time.monotonic() - started) * 60:.0f} blocks a minute asked for")  # noqa: T201 - of this run
        listed = set[str]()
        async with asyncio.timeout(60):
            while len(listed) < ALLOWED:
                listed = set((await core.send("GET", "/api/blocklist/ip.txt")).text.split())
    refused = [answer for answer in answers if answer.status_code == 429]
    assert (len(answers), len(refused)) == (ASKED, ASKED - ALLOWED)
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    assert listed == {answer.json()["target"][0]["data"] for answer in answers if answer.status_code == 201}
    assert_unaffected(latencies, idle, "blocks beyond their rate")


async def blocked_at_once(core: CoreProcess, alert: str) -> list[httpx.Response]:
    """The answers to a block of each target, one after the other on several connections."""
    left, answers = iter(TARGETS), list[httpx.Response]()
    key = {"Authorization": f"Bearer {core.setup.keys['anna']}"}

    async def block(http: httpx.AsyncClient) -> None:
        for target in left:
            body = run_body(alert, BLOCK, target=target)
            answers.append(await http.post("/api/connector/engine/action", json=body))

    async with httpx.AsyncClient(base_url=core.url, headers=key, timeout=60) as http:
        await asyncio.gather(*(block(http) for _ in range(AT_ONCE)))
    return answers
