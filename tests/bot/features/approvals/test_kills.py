"""Each who may decide is asked once, and once more, though the bot is killed wherever it asks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from core.models import BulkInput, RunTarget
from tests.bot.chaos import CHANNELS, SOURCES, Installation, installation, start_process
from tests.bot.people import Person
from tests.bot.running import ANNA, BEN, LEA, add_people_and_channels
from tests.bot.storm import LOW, create
from tests.core.core_process import until

POST = "chat.postMessage"
HALF = " left."


@asynccontextmanager
async def installed_at(folder: Path) -> AsyncIterator[tuple[Installation, Callable[[], Awaitable[None]]]]:
    """A running installation, and what kills its bot and starts it again; a request waits for a minute."""
    emulator = SlackEmulator()
    add_people_and_channels(emulator)
    for channel in CHANNELS:
        emulator.add_channel(channel, name=channel.lower())
    async with emulator, AsyncExitStack() as stack:
        installed = await installation(folder, emulator)
        settings = folder / "responder-bot.toml"
        policy = '[responder."Approved_1_0"]\n'
        settings.write_text(settings.read_text().replace(policy, f"{policy}approval_expires_minutes = 1\n"))
        core, bot = await start_process(installed, "core"), await start_process(installed, "bot")
        processes = [core, bot]
        stack.push_async_callback(lambda: asyncio.gather(*(process.stop() for process in processes)))
        for process in processes:
            await process.up()
        await emulator.wait_connected()

        async def kill_and_start() -> None:
            await processes[-1].kill()
            processes[-1] = await start_process(installed, "bot")
            await processes[-1].up()

        yield installed, kill_and_start


@pytest.mark.slow
async def test_each_is_asked_once_and_reminded_once_though_the_bot_is_killed(tmp_path: Path) -> None:
    async with installed_at(tmp_path) as (installed, kill_and_start):
        emulator, never = installed.emulator, asyncio.Event()
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


@pytest.mark.slow
async def test_who_asked_for_several_hears_once_of_the_first_decision_though_the_bot_is_killed(tmp_path: Path) -> None:
    async with installed_at(tmp_path) as (installed, kill_and_start):
        emulator, held = installed.emulator, asyncio.Event()
        async with (
            Person(emulator.url, emulator.page_token, BEN) as ben,
            Person(emulator.url, emulator.page_token, ANNA) as anna,
            CoreClient(installed.core_url, installed.keys["bot"]) as client,
            CoreClient(installed.core_url, installed.keys["lea"]) as own,
        ):
            alert_ids = [await create(own, f"Beacon {number}", LOW, SOURCES[0]) for number in range(2)]
            targets = [RunTarget(object_type="alert", object_id=alert_id) for alert_id in alert_ids]
            bulk = await client.as_user("anna").run_bulk(BulkInput(responder_id="Approved_1_0", targets=targets))
            first, second = [one.action.id for one in bulk.actions if one.action]
            await ben.until(lambda view: "Asked by anna" in str(view.notifications), timeout_s=60)

            def asked(messages: list[dict[str, Any]]) -> bool:
                return any("lea" in str(anna.live_view.thread(CHANNELS[0], one["ts"])[1:]) for one in messages)

            await anna.until(lambda view: asked(view.messages(CHANNELS[0])), timeout_s=60)
            emulator.faults.hold(POST, held, 1)
            await own.approve_bulk(bulk.id, [first])
            await until(lambda: not emulator.faults.waiting(POST), "a message on its way")
            await kill_and_start()
            held.set()
            await anna.until(lambda view: "Approved by lea" in str(view.notifications), timeout_s=60)
            emulator.faults.lose_answer(POST)
            await own.deny_bulk(bulk.id, [second])
            await anna.until(lambda view: "1 denied" in str(view.notifications), timeout_s=60)
            direct = await anna.dm(emulator.bot_user_id)
            told = [one["text"] for one in await anna.messages(direct) if not one.get("ephemeral")]
            assert Counter("In all, 2 targets" in text for text in told) == {True: 1, False: 1}
            assert len(anna.live_view.notifications) == 2
