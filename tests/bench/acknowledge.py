"""Acknowledge a signed slash command: the bot, a server that only checks the signature, and Bolt with its defaults.

The bot has every command and button registered, and also answers with its help; the others only acknowledge. At 32 at
once that work is part of the bot's figure.
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
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale
from tests.bench.dataset import SERVICE_KEY, fill
from tests.bench.load import load, request
from tests.bench.processes import CLIENT_CPUS, ServerProcess, serving

BOT, SIGNATURE, BOLT = "the bot", "checks the signature only", "Bolt's defaults"
INTERVAL_S = 0.02  # between commands, for the work after the acknowledgement
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
            serving("servers.core", folder / "core", cpus=CLIENT_CPUS, mode="never_ends") as core,
            serving(
                "servers.bot",
                folder / "bot",
                slack=slack,
                core_url=core.url,
                core_key=SERVICE_KEY,
                database=folder / "core" / "core.db",
            ) as bot,
            serving("servers.slack_app", folder / "signature", mode="signature", slack=slack) as only_signature,
            serving("servers.slack_app", folder / "bolt", mode="bolt", slack=slack) as bolt,
        ):
            servers = {BOT: bot, SIGNATURE: only_signature, BOLT: bolt}
            sequential = await comparison.interleaved(
                {name: partial(_latency, server, slack, scale.calls // 3) for name, server in servers.items()},
                scale.rounds,
            )
            at_once = await comparison.interleaved(
                {name: partial(_throughput, server, slack, scale.seconds) for name, server in servers.items()},
                scale.rounds,
            )
    what = "slash command acknowledged"
    ms, rate = comparison.milliseconds, comparison.per_second
    return [
        comparison.row(f"{what}, sequential", sequential, BOT, SIGNATURE, ms, Goal("at most", 2.5)),
        comparison.row(f"{what}, sequential", sequential, BOT, BOLT, ms, inverse=True),
        comparison.row(f"{what}, 32 at once", at_once, BOT, SIGNATURE, rate),
        comparison.row(f"{what}, 32 at once", at_once, BOT, BOLT, rate),
    ]


async def _latency(server: ServerProcess, slack: Mapping[str, str], calls: int) -> Sample:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
    command, times = _command(server, slack), []
    for _ in range(calls):
        started = time.perf_counter()
        writer.write(command)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
        times.append(time.perf_counter() - started)
        if not head.startswith(b"http/1.1 200 "):
            raise RuntimeError(f"not acknowledged: {head!r}")
        await asyncio.sleep(INTERVAL_S)
    writer.close()
    return median(times)


async def _throughput(server: ServerProcess, slack: Mapping[str, str], seconds: float) -> Sample:
    return (await load(server.url, [_command(server, slack)], seconds=seconds)).per_second


def _command(server: ServerProcess, slack: Mapping[str, str]) -> bytes:
    """`/responder help`, as Slack sends it; its signature is valid for five minutes."""
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
    return request("POST", server.url, str(server.ready["path"]), headers=headers, body=body)
