"""`responder-bot try`: the whole thing on this machine, with no account anywhere."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bot.demo.environment import OpenCore, listen, opened
from bot.demo.script import once

Tell = Callable[[str], None]


async def serve(
    state: Path,
    open_core: OpenCore,
    manifest: Mapping[str, Any],
    clock_ms: Callable[[], int],
    tell: Tell,
    stop: Callable[[], Awaitable[None]],
    *,
    port: int = 0,
) -> int:
    """Post the morning's alerts, print the addresses, serve until asked to stop."""
    async with opened(state, open_core, manifest, clock_ms, port=port) as environment:
        tell(f"page: {environment.emulator.page_url}")
        tell(f"core: {environment.core_url}")
        for number in range(3):
            await environment.alert(number)
        await stop()
    return 0


async def main_job(
    state: Path,
    open_core: OpenCore,
    manifest: Mapping[str, Any],
    clock_ms: Callable[[], int],
    tell: Tell,
    *,
    as_json: bool = False,
) -> int:
    """The main job once; 0 if it went as it should."""
    async with opened(state, open_core, manifest, clock_ms) as environment:
        return await once(environment, tell, as_json=as_json)


async def emulator_only(tell: Tell, stop: Callable[[], Awaitable[None]], port: int) -> int:
    """A local Slack for somebody's own app: addresses and tokens, then nothing but waiting."""
    from bot.slack_emulator import SlackEmulator

    emulator = SlackEmulator()
    emulator.add_user("U0ANNA", name="anna", real_name="Anna")
    emulator.add_user("U0BEN", name="ben", real_name="Ben")
    emulator.add_channel("C0GENERAL", name="general")
    await listen(emulator, port)
    try:
        tell(f"page: {emulator.page_url}")
        tell(f"SLACK_API_URL={emulator.api_url}")
        tell(f"SLACK_BOT_TOKEN={emulator.bot_token}")
        tell(f"SLACK_APP_TOKEN={emulator.app_token}")
        tell("channel: C0GENERAL (#general); people: U0ANNA (Anna), U0BEN (Ben)")
        await stop()
    finally:
        await emulator.stop()
    return 0
