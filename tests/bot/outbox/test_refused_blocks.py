"""A message whose blocks Slack refuses is sent as text, and its later content with blocks again."""

from pathlib import Path
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.block_kit.text import section
from bot.message import Message
from bot.outbox.models import DesiredMessage
from tests.bot.outbox.harness import SOC, all_sent, outbox_environment


class Unchecked(Message):
    """Blocks as they are, also more than Slack takes."""

    def payload(self) -> dict[str, Any]:
        return {"text": self.text, "blocks": [dict(b) for b in self.blocks], "attachments": []}


TOO_LONG = Unchecked("HIGH alert ~1: beacon", tuple(section("x" * 2900) for _ in range(5)))
INVALID = Unchecked("HIGH alert ~1: beacon", ({"type": "tabel", "rows": []},))


@pytest.mark.parametrize(("message", "code"), [(TOO_LONG, "msg_blocks_too_long"), (INVALID, "invalid_blocks")])
async def test_refused_blocks_become_text_and_later_ones_are_tried_again(
    tmp_path: Path, message: Message, code: str
) -> None:
    async with outbox_environment(tmp_path) as env:
        slack = AsyncWebClient(token=env.emulator.bot_token, base_url=env.emulator.api_url)
        with pytest.raises(SlackApiError) as refused:
            await slack.api_call("chat.postMessage", json={"channel": SOC, **message.payload()})
        assert refused.value.response["error"] == code
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, message, root_id="~1", by_person=True))
        await env.shows("HIGH alert ~1: beacon")
        (shown,) = await env.anna.messages(SOC)
        assert not shown.get("blocks")
        await all_sent(env)
        later = Message("closed", (section("It is closed."),))
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, later, root_id="~1", by_person=True))
        await env.shows("closed")
        (shown,) = await env.anna.messages(SOC)
        assert shown["blocks"][0]["text"]["text"] == "It is closed."
        await env.outbox.upsert(
            DesiredMessage("alert:~1:C0SOC", SOC, message, root_id="~1", by_person=True)
        )  # an update too
        await env.shows("HIGH alert ~1: beacon")
        (shown,) = await env.anna.messages(SOC)
        assert not shown.get("blocks")


async def test_what_is_too_long_together_keeps_its_head_and_its_buttons(tmp_path: Path) -> None:
    button = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "Press"}}
    lines = [section(f"{n} " + "x" * 2900) for n in range(6)]
    long = Message("text", (lines[0], {"type": "actions", "elements": [button]}, *lines[1:]))
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(DesiredMessage("alert:~1:C0SOC", SOC, long, root_id="~1", by_person=True))
        await env.shows("text")
        (shown,) = await env.anna.messages(SOC)
    rest = shown["blocks"][1:]
    assert [block["type"] for block in rest] == ["actions", "section", "section", "section", "context"]
    assert rest[-1]["elements"][0]["text"] == "The rest is left out: Slack takes no longer message."
