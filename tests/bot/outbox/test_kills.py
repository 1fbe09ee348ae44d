"""Each message is in Slack once, wherever the bot was killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from bot.slack_emulator import SlackEmulator
from tests import stores, templates
from tests.bot.outbox.harness import (
    SOC,
    emulator_with_channel,
    texts_in,
    until,
)
from tests.bot.people import Person

SENDER = """
import asyncio, sys
from slack_sdk.web.async_client import AsyncWebClient
from bot.message import Message
from bot.outbox.models import DesiredMessage
from bot.outbox.outbox import MessageOutbox
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.store import open_stores
from core.common.clock import now_ms
from core.common.database.location import parse_location

async def main(database, url, token):
    slack = AsyncWebClient(token=token, base_url=url, retry_handlers=[])
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=60000)
    outbox = MessageOutbox(open_stores(parse_location(database)), slack, now_ms, rate_limiter=rate_limiter)
    for n in range(1, 4):
        root = f"alert:~{n}:C0SOC"
        card = DesiredMessage(root, "C0SOC", Message(f"card {n} at its end"), root_id=f"~{n}", by_person=True)
        await outbox.upsert(card)
        await outbox.upsert(DesiredMessage(f"end:{n}", "C0SOC", Message(f"reply {n}"), thread_of=root, root_id=f"~{n}"))
    print("wanted", flush=True)
    await outbox.sender.run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("point", ["before the post", "after the post", "in a reply", "in an update"])
async def test_each_message_is_in_slack_once_after_a_kill_at_any_point(tmp_path: Path, point: str) -> None:
    async with (
        emulator_with_channel() as emulator,
        Person(emulator.url, emulator.page_token, "U0ANNA") as anna,
    ):
        never = asyncio.Event()
        method = "chat.postMessage"
        if point == "before the post":
            emulator.faults.hold(method, never)
        elif point == "after the post":
            emulator.faults.lose_answer(method)
        elif point == "in a reply":
            emulator.faults.slow(method, 0, 3)
            emulator.faults.hold(method, never)
        first = await started(tmp_path, emulator)
        if point == "before the post":
            await until(lambda: not emulator.faults.waiting(method))
        elif point == "in an update":
            await anna.until(lambda view: len(texts_in(view)) == 6)
        elif point == "in a reply":
            await until(lambda: not emulator.faults.waiting(method))
            sql = "SELECT 1 FROM message WHERE key LIKE 'end:%' AND attempted_at > 0"
            assert stores.rows(tmp_path / "core.db", sql)  # an attempt to post one of these is on its way
        else:
            await anna.until(lambda view: texts_in(view))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await started(tmp_path, emulator)
        try:
            wanted = sorted([f"card {n} at its end" for n in (1, 2, 3)] + [f"reply {n}" for n in (1, 2, 3)])
            await anna.until(lambda view: sorted(texts_in(view)) == wanted or None)
            never.set()
            await anna.until(lambda view: len(texts_in(view)) >= 6)
            assert sorted(await all_texts(anna)) == wanted
        finally:
            second.kill()
            await second.wait()


async def started(folder: Path, emulator: SlackEmulator) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SENDER,
        stores.setting(templates.made(stores.location(folder / "core.db"))),
        emulator.api_url,
        emulator.bot_token,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"wanted\n"
    return process


async def all_texts(anna: Person) -> list[str]:
    roots = await anna.messages(SOC)
    return [m["text"] for root in roots for m in await anna.thread(SOC, root["ts"])]
