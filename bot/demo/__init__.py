"""`responder-bot try`: core, bot and Slack emulator on this machine, without any account."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bot.demo.environment import Start, demo_environment, listen, pointers
from bot.demo.script import run_script

Print = Callable[[str], None]


async def serve(
    state: Path,
    start: Start,
    manifest: Mapping[str, Any],
    print_line: Print,
    *,
    port: int,
) -> None:
    """Post the sample alerts, print the page's address, serve until cancelled."""
    async with demo_environment(state, start, manifest, port=port) as environment:
        alert_ids = [await environment.post_alert(number) for number in range(3)]
        environment.emulator.pointers += pointers(environment, alert_ids)
        print_line(f"Open this in your browser: {environment.emulator.page_url}   (Ctrl+C stops it)")
        await asyncio.Event().wait()


async def main_job(
    state: Path,
    start: Start,
    manifest: Mapping[str, Any],
    print_line: Print,
) -> int:
    """Run the scripted demo once; return the exit status, 0 on success."""
    async with demo_environment(state, start, manifest) as environment:
        return await run_script(environment, print_line)


async def emulator_only(print_line: Print, port: int) -> None:
    """Serve the emulator alone, for an app of your own: print addresses and tokens, then wait until cancelled."""
    from bot.slack_emulator import SlackEmulator

    emulator = SlackEmulator()
    emulator.add_user("U0ANNA", name="anna", real_name="Anna", email="anna@responder-bot.local")
    emulator.add_user("U0BEN", name="ben", real_name="Ben", email="ben@responder-bot.local")
    emulator.add_channel("C0GENERAL", name="general")
    await listen(emulator, port)
    try:
        print_line(f"page: {emulator.page_url}")
        print_line("channel: C0GENERAL (#general); people: U0ANNA (Anna), U0BEN (Ben)")
        print_line("`responder-bot setup` connects to it, where you have pasted these:")
        print_line(f"export SLACK_API_URL={emulator.api_url}")
        print_line(f"export SLACK_BOT_TOKEN={emulator.bot_token}")
        print_line(f"export SLACK_APP_TOKEN={emulator.app_token}")
        await asyncio.Event().wait()
    finally:
        await emulator.stop()
