"""Each who may decide is asked once, and once more, though the bot is killed wherever it asks."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests.bot.chaos import CHANNELS, SOURCES, installation, start_process
from tests.bot.people import Person
from tests.bot.running import ANNA, BEN, LEA, add_people_and_channels
from tests.bot.storm import LOW, create
from tests.core.core_process import until

POST = "chat.postMessage"
HALF = "Half of the time"


@pytest.mark.slow
async def test_each_is_asked_once_and_reminded_once_though_the_bot_is_killed(tmp_path: Path) -> None:
    emulator = SlackEmulator()
    add_people_and_channels(emulator)
    for channel in CHANNELS:
        emulator.add_channel(channel, name=channel.lower())
    async with emulator, AsyncExitStack() as stack:
        installed = await installation(tmp_path, emulator)
        settings = tmp_path / "responder-bot.toml"
        policy = '[responder."Approved_1_0"]\n'
        settings.write_text(settings.read_text().replace(policy, f"{policy}approval_expires_minutes = 1\n"))
        core, bot = await start_process(installed, "core"), await start_process(installed, "bot")
        processes = [core, bot]
        stack.push_async_callback(lambda: asyncio.gather(*(process.stop() for process in processes)))
        for process in processes:
            await process.up()
        await emulator.wait_connected()
        never = asyncio.Event()

        async def kill_and_start() -> None:
            await processes[-1].kill()
            processes[-1] = await start_process(installed, "bot")
            await processes[-1].up()

        async with (
            Person(emulator.url, emulator.page_token, BEN) as ben,
            Person(emulator.url, emulator.page_token, LEA) as lea,
            Person(emulator.url, emulator.page_token, ANNA) as anna,
            CoreClient(installed.core_url, installed.keys["bot"]) as client,
        ):
            async with CoreClient(installed.core_url, installed.keys["lea"]) as own:
                alert_id = await create(own, "Beacon", LOW, SOURCES[0])
            await anna.until(lambda view: "Beacon" in str(view.messages(CHANNELS[0])), timeout_s=60)
            emulator.faults.lose_answer(POST)
            emulator.faults.hold(POST, never, 2)
            body = {"responderId": "Approved_1_0", "objectType": "alert", "objectId": alert_id}
            await client.as_user("anna").run(body)
            await until(lambda: not emulator.faults.waiting(POST), "posts on their way")
            await kill_and_start()
            never.set()
            people = (ben, lea)
            for person in people:
                await person.until(lambda view: "asked by anna" in str(view.notifications), timeout_s=60)
            held = asyncio.Event()
            emulator.faults.hold(POST, held, 1)
            await until(lambda: not emulator.faults.waiting(POST), "a reminder on its way")
            await kill_and_start()
            held.set()
            for person in people:
                await person.until(lambda view: HALF in str(view.notifications), timeout_s=60)
            await anna.until(lambda view: "Nobody answered" in str(view.notifications), timeout_s=90)
            for person in people:
                direct = await person.dm(emulator.bot_user_id)
                messages = [m for m in await person.messages(direct) if not m.get("ephemeral")]
                assert len(messages) == 2
            told = [n["text"] for n in anna.live_view.notifications]
            assert Counter("Nobody answered" in text for text in told) == {True: 1}
