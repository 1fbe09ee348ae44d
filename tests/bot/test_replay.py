"""Clicks that were acknowledged by a bot that then died."""

from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import MessageOutbox
from core.common.clock import now_ms
from tests.bot.running import ANNA, SOC, running_bot

MINUTE_MS = 60_000
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


async def left_behind(folder: Path, text: str, minutes: int) -> None:
    """A command that an earlier bot wrote down so long ago, before it died."""
    body = {
        "command": "/responder",
        "text": text,
        "team_id": "T0LOCAL",
        "user_id": ANNA,
        "channel_id": SOC,
        "trigger_id": "1.2.3",
    }
    earlier = MessageOutbox(folder / "slack.db", AsyncWebClient(), lambda: now_ms() - minutes * MINUTE_MS)
    assert await earlier.inbox.accept("the-click", {"surface": "command", "body": body})
    await earlier.close()


@pytest.mark.parametrize(
    ("minutes", "answer"), [(2, "Nothing has the id ~404"), (11, "The bot was away when you asked")]
)
async def test_a_click_is_taken_up_after_a_restart_unless_it_is_old(tmp_path: Path, minutes: int, answer: str) -> None:
    await left_behind(tmp_path, f"run {CLOSE} ~404", minutes)
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        told = await anna.until(lambda view: view.ephemerals(SOC))
    assert answer in told[0]["text"]
