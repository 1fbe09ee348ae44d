"""Slack's rates, on a clock that the test moves."""

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack_emulator import SlackEmulator
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.rates import RateLimits
from tests.bot.slack_emulator.conftest import Clock, fill


def test_a_channel_takes_a_short_burst_and_then_one_message_a_second() -> None:
    clock = Clock()
    rates = RateLimits(clock)
    for _ in range(5):
        rates.count_message("C1")
    rates.count_message("C2")
    with pytest.raises(SlackError) as limited:
        rates.count_message("C1")
    assert (limited.value.status, limited.value.retry_after_s) == (429, 1)
    clock.now += 1
    rates.count_message("C1")
    with pytest.raises(SlackError):
        rates.count_message("C1")


@pytest.mark.parametrize(("tier", "limit"), [(2, 20), (3, 50), (4, 100)])
def test_a_tier_counts_the_calls_of_a_minute_for_each_method(tier: int, limit: int) -> None:
    clock = Clock()
    rates = RateLimits(clock)
    for _ in range(limit):
        rates.count_call("chat.update", tier)
    clock.now += 20
    with pytest.raises(SlackError) as limited:
        rates.count_call("chat.update", tier)
    assert limited.value.retry_after_s == 40
    rates.count_call("chat.delete", tier)
    clock.now += 40
    rates.count_call("chat.update", tier)


def test_switched_off_the_rates_let_everything_pass() -> None:
    rates = RateLimits(Clock(), on=False)
    for _ in range(500):
        rates.count_message("C1")
        rates.count_call("chat.update", 3)


async def test_the_app_is_told_how_long_to_wait() -> None:
    clock = Clock()
    async with SlackEmulator(clock=clock) as emulator:
        fill(emulator)
        client = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)
        for n in range(5):
            await client.chat_postMessage(channel="C0SOC", text=f"{n}")
        with pytest.raises(SlackApiError) as limited:
            await client.chat_postMessage(channel="C0SOC", text="too many")
        assert limited.value.response.status_code == 429
        assert limited.value.response.headers["Retry-After"] == "1"
        assert limited.value.response["error"] == "ratelimited"
        clock.now += 1
        await client.chat_postMessage(channel="C0SOC", text="in time")
