"""A clock that was set back holds nothing up, and posts nothing twice."""

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from tests.bot.outbox.harness import all_sent, cancelled, desired, outbox_environment, until, until_read

HOUR_MS = 3_600_000


async def test_what_waits_when_the_bot_starts_is_sent_although_it_was_stored_by_a_later_clock(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.ahead_ms = HOUR_MS
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"), desired("alert:~2:C0SOC", "another"))
        env.clock.ahead_ms = 0
        sending = asyncio.create_task(env.outbox.sender.run())
        await env.shows("card", "another")
        await cancelled(sending)


async def test_a_limit_of_slack_lasts_no_longer_when_the_clock_is_set_back(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.faults.ratelimit("chat.postMessage", retry_after_s=30)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await until_read(env.outbox.problems, bool)
        with capture_logs() as logs:
            env.clock.ahead_ms = -HOUR_MS
            await until(lambda: [line for line in logs if line["event"] == "clock_set_back"])
        env.clock.ahead_ms += 31_000
        await env.shows("card")


async def test_a_lost_post_is_found_although_the_clock_was_set_back_since(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.clock.ahead_ms = HOUR_MS
        env.emulator.faults.lose_answer("chat.postMessage")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.anna.until(lambda view: view.messages("C0SOC"))
        env.clock.ahead_ms = 0
        await all_sent(env)
        await env.shows("card")
        looked = [what for _, what, *_ in env.emulator.traffic if what.startswith("conversations.")]
        assert looked == ["conversations.history"]
