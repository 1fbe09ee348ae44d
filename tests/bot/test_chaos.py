"""The product is killed at random while analysts work; in the end each thing that was asked for has happened once."""

import asyncio
import json
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.slack_emulator import SlackEmulator
from tests.bot.chaos import CHANNELS, Command, Installation, Killer, installation, start_process
from tests.bot.chaos_scene import Scene, cancelled, check_runs, faults_in, slack_shows, truth, unsettled
from tests.bot.people import Person
from tests.bot.running import ANNA, BEN, LEA, add_people_and_channels
from tests.core.core_process import until

SEED = int(os.environ.get("CHAOS_SEED", "20261122"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("commands", "kills"), [(("serve",), 20), (("core", "bot"), 12)], ids=["serve", "core and bot"]
)
async def test_whatever_is_killed_each_thing_happens_once_and_slack_shows_it(
    tmp_path: Path, commands: Sequence[Command], kills: int
) -> None:
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it where the test fails
    async with AsyncExitStack() as stack:
        emulator = SlackEmulator(rates=False)
        add_people_and_channels(emulator)
        members = [ANNA, BEN, LEA, emulator.bot_user_id]
        for channel in CHANNELS:
            emulator.add_channel(channel, name=channel[2:].lower(), members=members)
        await stack.enter_async_context(emulator)
        people = {
            one: await stack.enter_async_context(Person(emulator.url, emulator.page_token, one))
            for one in (ANNA, BEN, LEA)
        }
        installed = await installation(tmp_path, emulator)
        chance = random.Random(SEED)  # noqa: S311 - chance that can be repeated is the point
        scene = Scene(installed, emulator, people, chance, is_together=len(commands) == 1)
        stack.push_async_callback(scene.close)
        moments = (
            scene.somebody_asks,
            scene.a_message_is_sent,
            scene.a_program_runs,
            scene.many_operations_are_applied,
        )
        killers = [Killer(installed, one, random.Random(f"{SEED} {one}"), kills, moments) for one in commands]  # noqa: S311
        for killer in killers:
            stack.push_async_callback(killer.close)
        await first_start(installed, commands)
        deciding = asyncio.create_task(scene.decide())
        stack.push_async_callback(cancelled, deciding)
        async with asyncio.TaskGroup() as group:
            killing = [group.create_task(killer.run()) for killer in killers]
            group.create_task(scene.work(lambda: all(task.done() for task in killing)))
        await until(lambda: not unsettled(installed), "an inbox in which nothing is left to do")
        expected = await truth(scene)
        assert await slack_shows(expected, scene, people[LEA]) == []
        counts = check_runs(scene, expected.actions)
        assert [await killer.stop() for killer in killers] == [0] * len(killers)
        assert expected.differences(people[LEA].live_view) == []
        assert (installed.job_folders(), installed.processes()) == ([], [])
        assert not deciding.done()
        assert faults_in(installed) == []
    messages = sum(sum(thread.values()) for thread in expected.threads.values())
    with_subjects = {"kills": sum(killer.kills for killer in killers), **counts, "messages": messages}
    print(json.dumps({"seed": SEED, **with_subjects, "files": sum(expected.files.values())}))  # noqa: T201
    assert counts["actions"] > kills
    assert "Confirmed" in {request.responder for request in scene.requests}  # so a question was seen and answered


async def first_start(installed: Installation, commands: Sequence[Command]) -> None:
    """At its very first start the bot remembers where core's feed stands, and tells nothing of what came before."""
    processes = []
    for command in commands:
        processes.append(await start_process(installed, command))
        await processes[-1].up()
    for one in processes:
        await one.kill()
