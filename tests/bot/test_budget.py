"""What one run costs: calls from the bot to core, and commits of both databases."""

from collections import Counter
from functools import partial
from pathlib import Path

import httpx
import pytest

from bot.slack_emulator import EmulatorView
from core.settings import ResponderSection
from tests.bot.core_proxy import CoreProxy
from tests.bot.outbox.harness import all_sent, until, until_read
from tests.bot.running import ANNA, CHANNELS, OPEN, SOC, BotEnvironment, find_card, running_bot

CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"  # its report fits into a message: a file would take two commits more
MAX_CALLS = 6
MAX_COMMITS = 10


async def test_a_run_seen_in_two_channels_costs_no_more_than_its_budget(tmp_path: Path) -> None:
    calls, commits = await cost_of_a_run(tmp_path, [SOC, OPEN])
    assert sum(calls.values()) <= MAX_CALLS, calls
    assert commits <= MAX_COMMITS


@pytest.mark.slow
async def test_another_channel_adds_no_call(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert (await cost_of_a_run(one, [SOC]))[0] == (await cost_of_a_run(two, [SOC, OPEN]))[0]


async def cost_of_a_run(folder: Path, channels: list[str]) -> tuple[Counter[str], int]:
    """Calls to core by method and route, and commits of core and the bot, from a command until all is shown."""
    sections, proxy = [section for section in CHANNELS if section["id"] in channels], CoreProxy()
    rules = {CLOSE: ResponderSection(confirm="")}  # so that it runs without a question
    async with running_bot(folder, channels=sections, core_proxy=proxy.serve, responder=rules) as env:
        anna = await env.person(ANNA)
        alert_id = await env.post_alert()
        for channel in channels:
            await env.card(anna, alert_id, channel)
        await all_sent(env.bot)
        before = commits_of(env)
        await until(lambda: commits_of(env) > before)  # the lease was renewed, and won't be for some seconds
        proxy.hold("GET /api/event", response=True)
        await env.card(anna, await env.post_alert(sourceRef="another"))  # the answer to the next request is held
        await all_sent(env.bot)
        calls_before, before = await calls_to_core(env), commits_of(env)
        await anna.command(SOC, f"/responder run {CLOSE} {alert_id}")
        ended = "SELECT 1 FROM action WHERE status = 'Success'"
        await until_read(lambda: env.core.core.database.fetch_in_background(ended), lambda rows: rows)
        proxy.release()  # so that the run counts as a quick one on any machine
        for channel in channels:
            await anna.until(partial(shows_the_end, alert_id=alert_id, channel=channel))
        await all_sent(env.bot)
        commits = commits_of(env) - before
        return await calls_to_core(env) - calls_before, commits


def shows_the_end(view: EmulatorView, alert_id: str, channel: str) -> bool:
    """Whether the card and its thread say that the run is done."""
    card = find_card(view.messages(channel), alert_id)
    return card is not None and "done" in str(card) and "done" in str(view.thread(channel, card["ts"])[1:])


def commits_of(env: BotEnvironment) -> int:
    return env.core.core.database.commits + env.bot.outbox.commits


async def calls_to_core(env: BotEnvironment) -> Counter[str]:
    """Requests that core has answered, apart from long polls and scrapes of its metrics."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{env.core.url}/metrics")).text
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith("responder_bot_requests_total{"):
            labels, _, value = line.partition("{")[2].rpartition("} ")
            if '"/api/event"' not in labels and '"/metrics"' not in labels:
                counts[labels] += int(float(value))
    return counts
