"""Start responder-bot as a process of its own, as an operator does, and read what it says."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests import programs
from tests.bot.running import ANNA, add_people_and_channels
from tests.programs import PIPE, AnyProcess, Program

ROOT = Path(__file__).parents[2]

SETTINGS = """
[core]
port = 0

[[channel]]
id = "C0SOC"
clearance = "amber"
alerts = {}
"""


async def script(folder: Path, *args: str, **environment: str) -> Program:
    return await started(folder, args, environment, asyncio.subprocess.DEVNULL)


async def started(folder: Path, args: Sequence[str], environment: Mapping[str, str], stderr: int) -> Program:
    return await programs.start(
        "bot.cli", *args, cwd=folder, env={**os.environ, **environment}, stdout=PIPE, stderr=stderr
    )


async def output_after(process: AnyProcess, start: str) -> str:
    """The rest of the first line of output that starts with `start`."""
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise AssertionError(f"ended without the output {start!r}")


async def user_added(folder: Path, login: str, profile: str, *more: str) -> str:
    process = await script(folder, "user", "add", login, "--profile", profile, *more)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().strip()


@asynccontextmanager
async def serving(
    folder: Path, *, fault: Callable[[SlackEmulator], None], **changes: str
) -> AsyncIterator[tuple[SlackEmulator, CoreClient, AnyProcess]]:
    """Run `serve` with an emulator that has a fault from the start; core's client is Anna's."""
    (folder / "responder-bot.toml").write_text(SETTINGS)
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    async with emulator:
        fault(emulator)
        slack = {
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "SLACK_API_URL": emulator.api_url,
        }
        key = await user_added(folder, "anna", "analyst", "--slack-id", ANNA)
        process = await started(folder, ["serve"], {**slack, **changes}, asyncio.subprocess.PIPE)
        try:
            async with CoreClient(await output_after(process, "core: "), key) as client:
                yield emulator, client, process
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
