"""A signed slash command that only reads, acknowledged by the bot, by a floor, and by Bolt with its defaults.

The bot is the whole one, with every command and button registered, so its goals are the stricter ones of a single
command (with everything, 2.2 x the floor would do). It then does what was asked (it answers with its help), the others
nothing: at 32 at once that work is part of the bot's figure.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode, urlsplit

from bot.slack_emulator import SlackEmulator
from bot.slack_emulator.http_delivery import signature
from tests.bench import figures
from tests.bench.figures import Figure, Goal, Row, Scale
from tests.bench.filling import SERVICE_KEY, fill
from tests.bench.load import load, request
from tests.bench.programs import CLIENT_CORES, Child, serving

BOT, FLOOR, BOLT = "the bot", "checks the signature only", "Bolt's defaults"
APART_S = 0.02  # one command after the other, once the work behind the one before is done
USER, CHANNEL = "U0BENCH", "C0BENCH"


async def measure(folder: Path, scale: Scale) -> list[Row]:
    await asyncio.to_thread(fill, folder / "core" / "core.db", 1, 0)
    emulator = SlackEmulator(team_id="T0BENCH", rates=False)
    emulator.add_user(USER, name="bench")
    emulator.add_channel(CHANNEL, name="bench", members=[USER, emulator.bot_user_id])
    async with emulator:
        slack = {
            "bot_token": emulator.bot_token,
            "signing_secret": emulator.signing_secret,
            "api_url": emulator.api_url,
        }
        async with (
            serving("servers.ours", folder / "core", on=CLIENT_CORES, manner="holds") as core,
            serving("servers.bot", folder / "bot", slack=slack, core_url=core.url, core_key=SERVICE_KEY) as bot,
            serving("servers.slack_app", folder / "floor", manner="floor", slack=slack) as floor,
            serving("servers.slack_app", folder / "bolt", manner="bolt", slack=slack) as bolt,
        ):
            servers = {BOT: bot, FLOOR: floor, BOLT: bolt}
            alone = await figures.in_turns(
                {name: partial(_alone, server, slack, scale.calls // 3) for name, server in servers.items()},
                scale.rounds,
            )
            at_once = await figures.in_turns(
                {name: partial(_at_once, server, slack, scale.seconds) for name, server in servers.items()},
                scale.rounds,
            )
    what = "a slash command that only reads, acknowledged with every command and button registered"
    ms, rate = figures.milliseconds, figures.per_second
    return [
        figures.row(f"{what}, alone", alone, BOT, FLOOR, ms, Goal("at most", 2.0)),
        figures.row(f"{what}, alone", alone, BOT, BOLT, ms, Goal("at least", 40), turned=True),
        figures.row(f"{what}, 32 at once", at_once, BOT, FLOOR, rate, Goal("at least", 0.45)),
        figures.row(f"{what}, 32 at once", at_once, BOT, BOLT, rate),
    ]


async def _alone(server: Child, slack: Mapping[str, str], calls: int) -> Figure:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
    asked, times = _command(server, slack), []
    for _ in range(calls):
        started = time.perf_counter()
        writer.write(asked)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
        times.append(time.perf_counter() - started)
        if not head.startswith(b"http/1.1 200 "):
            raise RuntimeError(f"not acknowledged: {head!r}")
        await asyncio.sleep(APART_S)
    writer.close()
    return median(times)


async def _at_once(server: Child, slack: Mapping[str, str], seconds: float) -> Figure:
    return (await load(server.url, [_command(server, slack)], seconds=seconds)).per_second


def _command(server: Child, slack: Mapping[str, str]) -> bytes:
    """`/responder help`, as Slack sends it; its signature is good for five minutes."""
    payload = {
        "team_id": "T0BENCH",
        "team_domain": "bench",
        "channel_id": CHANNEL,
        "channel_name": "bench",
        "user_id": USER,
        "user_name": "bench",
        "command": "/responder",
        "text": "help",
        "api_app_id": "A0BENCH",
        "response_url": f"{slack['api_url'].removesuffix('api/')}commands/T0BENCH/1/none",
        "trigger_id": "1.2.bench",
    }
    body, at = urlencode(payload).encode(), str(int(time.time()))
    headers: dict[str, Any] = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": at,
        "X-Slack-Signature": signature(slack["signing_secret"], at, body),
    }
    return request("POST", server.url, str(server.said["path"]), headers=headers, body=body)
