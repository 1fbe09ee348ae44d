"""`doctor` has Slack check each kind of payload that the bot sends."""

from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.doctor import examples, payload_checks
from bot.slack_emulator import SlackEmulator
from bot.slack_emulator.limits import problems
from core.common.clock import now_ms

SENT = examples.payloads(now_ms())


@pytest.mark.parametrize("name", SENT)
def test_every_kind_is_within_slacks_limits(name: str) -> None:
    kind, payload = SENT[name]
    surface: Any = "message" if kind == "message" else payload["type"]
    assert problems(surface, payload) == []


async def test_slack_checks_every_kind_and_shows_nothing() -> None:
    async with SlackEmulator(rates=False) as emulator:
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url, retry_handlers=[])
        (well,) = await payload_checks(slack, SENT)
        assert (well.ok, well.message) == (True, f"Slack accepts all {len(SENT)} kinds of messages and views")
        wrong: dict[str, examples.Payload] = {
            "card": ("message", {"text": "x", "blocks": [{"type": "sektion"}]}),
            "App Home": ("view", {"type": "home", "blocks": [{"type": "divider"}, {"type": "header"}]}),
        }
        card, home = await payload_checks(slack, {**SENT, **wrong})
        assert "Slack refuses the card (unsupported type: sektion at /blocks/0/type)" in card.message
        assert "Slack refuses the App Home (missing required field: text at /blocks/1)" in home.message
        emulator.faults.error("blocks.validate", "unknown_method")
        (unknown,) = await payload_checks(slack, SENT)
        assert (unknown.ok, "0 of" in unknown.message, "unknown_method" in unknown.message) == (True, True, True)
        emulator.faults.ratelimit("blocks.validate")
        (limited,) = await payload_checks(slack, SENT)
        assert (limited.ok, "ratelimited" in limited.message) == (True, True)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "invalid_arguments"),
        ({"blocks": "[]", "view": "{}"}, "invalid_arguments"),
        ({"message": "[]"}, "invalid_arguments"),
        ({"blocks": '[{"type": "x"}]'}, "invalid_blocks"),
        ({"message": '{"blocks": [{"type": "x"}]}'}, "invalid_message"),
        ({"view": '{"type": "modal", "blocks": []}'}, "invalid_view"),
    ],
)
async def test_the_emulator_refuses_as_slack_does(given: dict[str, str], code: str) -> None:
    async with SlackEmulator(rates=False) as emulator:
        slack = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)
        with pytest.raises(SlackApiError) as refused:
            await slack.api_call("blocks.validate", json=given)
        assert refused.value.response["error"] == code
