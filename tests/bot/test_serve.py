"""`responder-bot serve`: core and bot in one process, killed and started again."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bot.slack_emulator import EmulatedUser, SlackEmulator
from core.client import CoreClient
from tests import programs
from tests.bot.running import ALERT, ANNA, SOC, add_people_and_channels, find_card
from tests.core.running import running_core
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


async def test_bot_exits_at_once_if_core_refuses_its_key(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for key, words in (
            ("wrong", "core refuses it (Authentication failure); make one: "),
            (await core.key("analyst"), "it is that of analyst@responder-bot.local, who may not act for people; "),
        ):
            environment = {"RESPONDER_BOT_BOT_CORE_URL": core.url, "RESPONDER_BOT_BOT_CORE_API_KEY": key}
            tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
            process = await started(tmp_path, ["bot"], {**environment, **tokens}, asyncio.subprocess.PIPE)
            out, err = await process.communicate()
            assert (process.returncode, out) == (2, b"")
            assert err.decode().startswith(f"[bot] core_api_key: {words}")
            assert err.decode().count("\n") == 1


@pytest.mark.slow
async def test_restart_after_sigkill_posts_what_came_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").write_text(SETTINGS)
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    async with emulator, EmulatedUser(emulator.url, emulator.page_token, ANNA) as anna:
        slack = {
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "SLACK_API_URL": emulator.api_url,
        }
        key = await user_added(tmp_path, "anna", "analyst", "--slack-id", ANNA)
        first = await script(tmp_path, "serve", **slack)
        core = await output_after(first, "core: ")
        await output_after(first, "bot: ")
        async with CoreClient(core, key) as client:
            one = (await client.create_alert(ALERT)).id
            await anna.until(lambda view: find_card(view.messages(SOC), one) or {})
            two = (await client.create_alert({**ALERT, "sourceRef": "just before the end"})).id
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await script(tmp_path, "serve", **slack)
        await output_after(second, "bot: ")
        await anna.until(lambda view: find_card(view.messages(SOC), two) or {})
        await anna.command(SOC, f"/responder list {two}")
        await anna.until(lambda view: view.modal)
        cards = [m["text"] for m in await anna.messages(SOC) if not m.get("ephemeral")]
        assert len(cards) == 2
        drain = await script(tmp_path, "drain")
        assert await drain.wait() == 0
        assert await second.wait() == 0  # it runs nothing, so it ends
