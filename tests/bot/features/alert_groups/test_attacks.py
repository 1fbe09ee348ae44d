"""Groups under hostile titles, changes of their alerts, and clocks that jump."""

from pathlib import Path

import pytest

from bot.app import running
from bot.outbox.sending.rate_limiter import RateLimiter
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import RunInput
from tests.bot.features.alert_groups.grouping import SAME, choose_responder, group_card, grouping_bot, post
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.people import card_of, find_card, message_in, modal, reply_to
from tests.bot.running import OPEN, SOC, UNLIMITED


async def test_titles_with_markup_are_shown_as_text_on_the_card_of_a_group(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        for n in range(6):
            title = f"<!channel> *{n}* `x` <https://evil.example/{n}|click> _y_ ~z~ &amp; \u202e{n}"
            await env.post_alert(sourceRef=f"ref-{n}", title=title, severity=1)
        card = await group_card(anna, 6)
        shown = str(card["blocks"])
        assert "<!channel>" not in shown
        assert "|click>" not in shown
        assert "<https://evil" not in shown
        assert "\u202e" not in shown


@pytest.mark.slow
async def test_an_alert_that_changes_while_it_is_grouped_changes_the_card_and_stays_where_it_is(tmp_path: Path) -> None:
    clock = ManualClock()
    async with grouping_bot(tmp_path, clock_ms=clock) as (env, anna):
        alert_ids = await post(env, range(3))
        for alert_id in alert_ids:
            await anna.sees(card_of(alert_id))
        alert_ids += await post(env, range(3, 6))
        await group_card(anna, 6)
        await env.client.request("PATCH", f"/api/alert/{alert_ids[5]}", {"title": "Renamed", "severity": 3})
        card = await anna.sees(message_in(SOC, SAME, "1 high"))
        assert "6 × Renamed" in str(card)
        await env.client.close_alerts([alert_ids[4]])
        clock.ahead_ms -= 3_600_000  # the clock is set back
        await post(env, range(6, 8))
        await group_card(anna, 8)
        clock.ahead_ms += 3_600_000
        await post(env, range(8, 9))
        await group_card(anna, 9)
        messages = await anna.messages(SOC)
        assert len(messages) == 4
        assert find_card(messages, alert_ids[4]) is None


async def test_what_is_hidden_in_their_case_is_masked_in_the_texts_of_grouped_alerts(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        title = "Logon of zebra failed"
        alert_ids = [await env.post_alert(sourceRef=f"z{n}", title=title, severity=1) for n in range(4)]
        card = await group_card(anna, 4)
        assert f"4 × {title}" in str(card)
        hidden = [{"dataType": "other", "data": "zebra", "tlp": 3}]
        source = await env.post_alert(sourceRef="source", title="Something else", artifacts=hidden)
        case = await env.client.create_case_from_alert(source)
        await env.client.merge_alerts(alert_ids, case.id)
        await anna.sees(message_in(SOC, SAME, "4 × Logon of [withheld] failed"))
        await anna.presses("Show alerts", card)
        listed = await anna.sees(modal("Logon of"))
        assert "zebra" not in str(listed)


async def test_a_channel_that_left_the_settings_gets_no_card_of_a_grouped_alert(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(4), tlp=0)
        await group_card(anna, 4, OPEN)
        await env.bot.close()
        left = [channel for channel in env.settings.channel if channel.id != OPEN]
        settings = env.settings.model_copy(update={"channel": left})
        limiter = RateLimiter(**UNLIMITED)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(settings, core, clock_ms=now_ms, rate_limiter=limiter) as bot,
        ):
            await env.client.run(RunInput(responder_id="Tell_1_0", object_type="alert", object_id=alert_ids[3]))
            card = await anna.sees(card_of(alert_ids[3]))
            await anna.sees(reply_to(card))
            await all_sent(bot)
            assert find_card(await anna.messages(OPEN), alert_ids[3]) is None


@pytest.mark.slow
async def test_a_group_of_more_alerts_than_one_request_takes(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(3))
        for alert_id in alert_ids:
            await anna.sees(card_of(alert_id))
        alert_ids += await post(env, range(3, 120))
        card = await group_card(anna, 120)
        await anna.presses("Run on all", card)
        asked = await anna.sees(modal("the worst 100 of 120 alerts"))
        await choose_responder(anna, asked, "Isolate")
        question = await anna.sees(modal("Runs on 100 targets"))
        await anna.presses("Ask to isolate (100)", question)
        await anna.sees(modal(" and 90 more waits for approval"))
        ran = [len(await env.client.actions("alert", one)) for one in alert_ids]
        assert ran == [0] * 20 + [1] * 100
        # The last says how far the runs are.
        await anna.until(lambda view: len([one for one in view.messages(SOC) if not one.get("ephemeral")]) == 1 + 3 + 1)
