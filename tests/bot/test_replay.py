"""Interactions that were acknowledged by a bot that was then killed."""

from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import MessageOutbox
from core.common.clock import now_ms
from tests.bot.running import ANNA, SOC, running_bot

MINUTE_MS = 60_000
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


async def leave_pending(folder: Path, text: str, minutes: int) -> None:
    """Put a command into the inbox, as a bot that was killed that many minutes ago."""
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
async def test_pending_command_is_replayed_unless_it_is_too_old(tmp_path: Path, minutes: int, answer: str) -> None:
    await leave_pending(tmp_path, f"run {CLOSE} ~404", minutes)
    async with running_bot(tmp_path) as env:
        anna = await env.person(ANNA)
        responses = await anna.until(lambda view: view.ephemerals(SOC))
    assert answer in responses[0]["text"]
