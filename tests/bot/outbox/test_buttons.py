"""Button ids work only where they belong."""

from pathlib import Path

import pytest

from bot.cards.message import Intent
from core.common.errors import ResponderBotError
from tests.bot.outbox.harness import SOC, all_sent, desired, outbox_environment


async def test_a_button_works_only_in_its_message_and_until_it_expires(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        intent = Intent("cancel", "~7")
        token = (await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", [intent]))(intent)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        await all_sent(env)
        ts = (await env.anna.messages(SOC))[0]["ts"]
        press = env.outbox.buttons.resolve
        assert await press(token, channel=SOC, message_ts=ts, user="U0ANNA") == intent
        assert await press(token, channel=SOC, message_ts=ts, user="U0BEN") == intent
        for channel, at in ((SOC, "1.000001"), ("C0OTHER", ts)):
            with pytest.raises(ResponderBotError, match="does not belong here"):
                await press(token, channel=channel, message_ts=at, user="U0ANNA")
        with pytest.raises(ResponderBotError, match="does not belong here"):
            await press("forged", channel=SOC, message_ts=ts, user="U0ANNA")
        env.clock.ahead_ms = 8 * 86_400_000
        with pytest.raises(ResponderBotError, match="too old") as old:
            await press(token, channel=SOC, message_ts=ts, user="U0ANNA")
        assert old.value.details == {"root_id": "~1"}


async def test_the_button_of_an_ephemeral_message_works_only_for_its_person(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        intent = Intent("run", "~1")
        token = (await env.outbox.buttons.issue(SOC, "only:T0LOCAL:U0ANNA:confirm", [intent]))(intent)
        assert await env.outbox.buttons.resolve(token, channel=SOC, message_ts="", user="U0ANNA") == intent
        with pytest.raises(ResponderBotError):
            await env.outbox.buttons.resolve(token, channel=SOC, message_ts="", user="U0BEN")


async def test_an_unchanged_card_keeps_its_buttons(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        intents = [Intent("menu", "~1", "alert"), Intent("refresh", "~1")]
        first = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", intents)
        second = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", intents)
        assert [first(i) for i in intents] == [second(i) for i in intents]
        assert len(first(intents[0])) >= 22  # 128 bits
