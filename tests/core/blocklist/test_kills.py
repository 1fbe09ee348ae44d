"""Core is killed (SIGKILL) while it blocks; the next core ends every run, and the list is what they say."""

import asyncio
from pathlib import Path

import httpx

from core.common.errors import ResponderBotError
from tests.core.blocklist.harness import BLOCK
from tests.core.core_process import CoreProcess, core_process, setup_in

TARGETS = 40


async def test_a_core_killed_in_between_never_has_a_wrong_list(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    async with core_process(setup) as core:
        artifacts = [{"dataType": "ip", "data": f"198.51.100.{number}"} for number in range(TARGETS)]
        alert = {"type": "ids", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        made = await core.client().create_alert({**alert, "artifacts": artifacts})
        observables = [artifact.id for artifact in made.artifacts]
    asked: list[str] = []

    async def block(core: CoreProcess, object_id: str) -> None:
        try:
            run = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": object_id}
            asked.append((await core.client().run(run)).id)
        except (ResponderBotError, httpx.HTTPError):
            pass  # the core was killed before it answered

    for number, answers in enumerate((0, 0, 1, 1, 2, 3, 4, 5)):
        async with core_process(setup) as core:
            share = observables[number::8]
            running = [asyncio.create_task(block(core, object_id)) for object_id in share]
            before = len(asked)
            async with asyncio.timeout(30):
                while len(asked) < before + answers:  # noqa: ASYNC110 - killed as soon as so many are answered
                    await asyncio.sleep(0.001)
            await core.kill()
            await asyncio.gather(*running)
    async with core_process(setup) as core:
        ended = [await core.ended(action_id) for action_id in asked]
        auth = {"Authorization": f"Bearer {setup.keys['anna']}"}
        async with httpx.AsyncClient() as http, asyncio.timeout(30):
            while True:
                body = (await http.get(f"{core.url}/api/blocklist/ip.txt", headers=auth)).text
                measures = await core.client().measures()
                if all(measure.state != "starting" for measure in measures):
                    break
                await asyncio.sleep(0.1)
    in_force = sorted(one.data for measure in measures for one in measure.target or ())
    assert {action.status for action in ended} == {"Success"}
    assert body.splitlines() == in_force
    assert {one.data for action in ended for one in action.target or ()} <= set(in_force)
    assert len(in_force) == len(set(in_force))
