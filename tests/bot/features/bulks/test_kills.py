"""A run on a hundred alerts, with core and bot killed in the middle, over Socket Mode."""

import asyncio
import fcntl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pytest

from bot.slack_emulator import EmulatorView, SlackEmulator
from core.client import CoreClient
from tests.bot.chaos import CHANNELS, BotProcess, Installation, installation, start_process
from tests.bot.people import Person, modal, text_of
from tests.bot.running import ANNA, add_people_and_channels
from tests.bot.storm import LOW, create
from tests.core.core_process import until

SOC = CHANNELS[0]
MANY = 100
ALL = f"Runs on {MANY} targets"
FREE = MANY // 4
"""How many runs end before the second kill; the others wait until it is over."""
COMMANDS: tuple[Literal["core", "bot"], ...] = ("core", "bot")


def hold_all_but_some(installed: Installation) -> BinaryIO:
    """Have each program of Quick that finds FREE others wait until the file is closed."""
    gate = installed.folder / "gate"
    waits = f"""def quick():
    if len(list(COUNTS.glob("Quick *"))) > {FREE}:
        import fcntl
        fcntl.flock(os.open({str(gate)!r}, os.O_RDONLY), fcntl.LOCK_SH)
"""
    (program,) = installed.folder.glob("responders/Quick/*.py")
    program.write_text(program.read_text().replace("def quick():\n", waits))
    held = gate.open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def actions(installed: Installation) -> int:
    """How many runs core has recorded."""
    ((found,),) = installed.rows("SELECT count(*) FROM action")
    return int(found)


def runs(installed: Installation) -> int:
    return len(list(installed.counts.glob("Quick *")))


def asked_or_refused(before: int) -> Callable[[EmulatorView], dict[str, Any]]:
    """The question, or how often it was refused by now, if that is more than `before`."""

    def seen(view: EmulatorView) -> dict[str, Any]:
        refusals = sum(" Nothing was run" in text_of(message) for message in view.ephemerals(SOC))
        return modal(ALL)(view) or ({"refusals": refusals} if refusals > before else {})

    return seen


async def started(installed: Installation) -> list[BotProcess]:
    """Core and bot, up."""
    processes = []
    for command in COMMANDS:
        processes.append(await start_process(installed, command))
        await processes[-1].up()
    return processes


@pytest.mark.slow
async def test_of_a_hundred_each_runs_once_and_one_message_tells_it_though_core_and_bot_are_killed(
    tmp_path: Path,
) -> None:
    emulator = SlackEmulator()
    add_people_and_channels(emulator)
    for channel in CHANNELS:
        emulator.add_channel(channel, name=channel.lower())
    async with emulator, AsyncExitStack() as stack:
        installed = await installation(tmp_path, emulator)
        file = tmp_path / "responder-bot.toml"
        file.write_text(file.read_text().replace("group = false\n", ""))
        held = stack.enter_context(hold_all_but_some(installed))
        processes = await started(installed)
        stack.push_async_callback(lambda: asyncio.gather(*(process.stop() for process in processes)))
        await emulator.wait_connected()
        async with (
            Person(emulator.url, emulator.page_token, ANNA) as anna,
            CoreClient(installed.core_url, installed.keys["lea"]) as client,
        ):
            alert_ids = await asyncio.gather(
                *(create(client, f"Logon failed {n} times", LOW, "sensor0") for n in range(MANY))
            )
            await anna.until(lambda view: f"{MANY} alerts that say the same" in str(view.messages(SOC)), timeout_s=60)
            question: dict[str, Any] = {"refusals": 0}
            while "refusals" in question:  # a busy core answers too late for a command or for a window, which says so
                await anna.command(SOC, f"/responder run quick {' '.join(alert_ids)}")
                question = await anna.until(asked_or_refused(question["refusals"]), timeout_s=60)
            await anna.presses(f"Quick ({MANY})", question)

            async def kill_once(enough: Callable[[], bool]) -> None:
                await until(enough, "enough runs")
                await asyncio.gather(*(process.kill() for process in processes))
                processes[:] = await started(installed)

            await kill_once(lambda: actions(installed) > 0)  # mostly before the bot has core's answer
            await kill_once(lambda: runs(installed) >= FREE)
            assert runs(installed) < MANY
            held.close()
            over = f"{MANY} of {MANY} succeeded"

            def told(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
                return [message for message in messages if "Show each" in text_of(message)]

            await anna.until(lambda view: over in str(told(view.messages(SOC))), timeout_s=120)
            assert {one: installed.counted("Quick", one) for one in alert_ids} == dict.fromkeys(alert_ids, 1)
            assert actions(installed) == MANY
            messages = [message for message in await anna.messages(SOC) if not message.get("ephemeral")]
            (card,) = told(messages)
            await anna.until(lambda view: over in str(view.thread(SOC, card["ts"])[1:]), timeout_s=60)
            replies = {message["ts"]: anna.live_view.thread(SOC, message["ts"])[1:] for message in messages}
        own = [message for message in messages if message is not card and f"{MANY} alerts" not in message["text"]]
        assert len(messages) - len(own) == 1 + 1  # the bulk's, and the card of the group
        assert len(own) <= 3  # before it
        assert {ts: len(found) for ts, found in replies.items() if found} == {card["ts"]: 1}
