"""What people see who ask the bot for something while core doesn't answer."""

import json
from pathlib import Path

from tests.bot.running import SOC, running_bot


async def test_a_home_that_was_never_opened_says_that_core_is_away(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.stop_core()
        anna = await env.person()
        await anna.open_home()
        view = await anna.until(lambda view: view if view.home else None)
        assert view is not None  # `until` waits for it
        home = json.dumps(view.home)
        assert "The responder service isn't answering." in home
        assert "Open this page again" in home
        assert env.settings.bot.core_url not in home
        assert [m for channel in view.channels if channel.startswith("D") for m in view.messages(channel)] == []


async def test_doctor_shows_every_check_while_core_is_away(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.stop_core()
        anna = await env.person()
        await anna.command(SOC, "/responder doctor")
        told = json.dumps(await anna.until(lambda view: view.ephemerals(SOC)), ensure_ascii=False)
        for check in ("✗ *core*", "✓ *token*", "✓ *this channel*", f"✓ *channel {SOC}*", "*feed*"):
            assert check in told
