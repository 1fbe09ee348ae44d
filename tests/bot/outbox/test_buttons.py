"""Button ids work only where they belong."""

from collections.abc import Collection
from pathlib import Path

import pytest

from bot.message import Intent
from bot.outbox.buttons import LIFE_MS
from core.common.errors import ResponderBotError
from core.models import ClosedObjects
from tests import stores
from tests.bot.outbox.harness import SOC, all_sent, desired, outbox_environment


async def test_a_button_works_only_in_its_message_and_until_it_expires(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        intent = Intent("cancel", "~7")
        token = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", lambda button: button(intent))
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
        token = await env.outbox.buttons.issue(SOC, "only:T0LOCAL:U0ANNA:confirm", lambda button: button(intent))
        assert await env.outbox.buttons.resolve(token, channel=SOC, message_ts="", user="U0ANNA") == intent
        with pytest.raises(ResponderBotError):
            await env.outbox.buttons.resolve(token, channel=SOC, message_ts="", user="U0BEN")


async def test_an_unchanged_card_keeps_its_buttons(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        intents = [Intent("menu", "~1", "alert"), Intent("refresh", "~1")]
        first = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", lambda button: [*map(button, intents)])
        second = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", lambda button: [*map(button, intents)])
        assert first == second
        assert len(first[0].partition(".")[0]) >= 22  # 128 bits


async def never_asked(ids: Collection[str]) -> ClosedObjects:
    raise AssertionError(ids)


async def test_what_a_button_means_is_deleted_once_it_expires(tmp_path: Path) -> None:
    """It may hold inputs, which may be secret."""
    async with outbox_environment(tmp_path, send=False) as env:
        case = Intent("case", "~1", '{"parameters":{"passphrase":"hunter22"}}')
        key, place = "only:T0LOCAL:U0ANNA:cannot:~1:R", {"channel": "", "message_ts": "", "user": "U0ANNA"}
        press = env.outbox.buttons.resolve
        token = await env.outbox.buttons.issue("", key, lambda button: button(case))
        env.clock.ahead_ms = LIFE_MS - 60_000
        card = Intent("refresh", "~1")
        new = await env.outbox.buttons.issue(SOC, "alert:~1:C0SOC", lambda button: button(card))
        await env.outbox.retention(0, never_asked).prune()
        assert await press(token, **place) == case
        env.clock.ahead_ms = LIFE_MS + 60_000
        with pytest.raises(ResponderBotError, match="too old; nothing was run"):
            await press(token, **place)
        await env.outbox.retention(0, never_asked).prune()
        assert "hunter22" not in str(stores.rows(env.location, "SELECT * FROM button_set"))
        assert await press(new, **{**place, "channel": SOC}) == card
