"""Who is asked to work on an alert that nobody is assigned to, by direct message and in the thread."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from core.common.settings_file import ChannelAlerts, Route
from tests.bot.features.approvals.test_decisions import button, direct
from tests.bot.features.duty.test_duty import STEPS, asked_directly, has_lines, lines, on_duty, sent_to
from tests.bot.features.environment import FeatureEnvironment, text_of, within_limits
from tests.bot.running import OPEN, SOC

ASKS = "Nobody is assigned to"


@asynccontextmanager
async def on_duty_for_alerts(
    tmp_path: Path, steps: Sequence[tuple[str, str]] = STEPS
) -> AsyncIterator[FeatureEnvironment]:
    channel = ChannelAlerts(id=SOC, alerts=Route(), unassigned="leads")
    async with on_duty(tmp_path, steps, channel=(channel,)) as env:
        yield env


async def test_one_is_asked_and_the_next_until_somebody_is_assigned(tmp_path: Path) -> None:
    async with on_duty_for_alerts(tmp_path) as env:
        alert = await env.create_alert()
        card, elsewhere = await env.card_of("ben", alert), await env.card_of("ben", alert, OPEN)
        request = within_limits(await env.until("anna", asked_directly(ASKS)))
        assert "You were asked as `@oncall`, by the duty `leads`." in text_of(request)
        (first,) = await env.until("ben", has_lines(card, 1))
        assert first.startswith("🔔 Asked anna (`@oncall`) to work on it. If nobody is assigned, next at <!date^")
        assert first.endswith(": `@leads`.")
        here = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].click(here, request["ts"], action_id=button(request, ids.NOT_ME))
        await env.told("anna", "Noted. Asked ben and lea (`@leads`) to work on it.", here)
        asked = [await env.until(name, asked_directly(ASKS)) for name in ("ben", "lea")]
        first, second = await env.until("ben", has_lines(card, 2))
        assert first == "🔔 Asked anna (`@oncall`) to work on it. Not anna."
        assert second.startswith("🔔 Asked ben and lea (`@leads`) to work on it. If nobody is assigned, next at")
        passed = await env.until("anna", asked_directly("You passed it on."))
        assert ids.NOT_ME not in text_of(passed)
        assert ids.ASSIGN in text_of(passed)
        ben = await env["ben"].dm(env.emulator.bot_user_id)
        await env["ben"].click(ben, asked[0]["ts"], action_id=button(asked[0], ids.ASSIGN))
        for name in ("anna", "ben", "lea"):
            done = within_limits(await env.until(name, asked_directly("ben works on")))
            assert not any(one in text_of(done) for one in (ids.ASSIGN, ids.NOT_ME))

        def has_ended(view: EmulatorView) -> bool | None:
            return lines(view, card)[1] == "🔔 Asked ben and lea (`@leads`) to work on it." or None

        await env.until("lea", has_ended)
        lea = await env["lea"].dm(env.emulator.bot_user_id)
        assert [sent_to(env, conversation) for conversation in (here, ben, lea)] == [1, 1, 1]
        assert lines(env["ben"].live_view, elsewhere, OPEN) == []  # that channel has no duty
        assert (await env.client.alert(alert.id)).assignee == "ben@responder-bot.local"


async def test_the_channel_is_asked_by_who_may_work_on_it(tmp_path: Path) -> None:
    async with on_duty_for_alerts(tmp_path, [("0m", "channel")]) as env:
        alert = await env.create_alert()
        card = await env.card_of("ben", alert)
        (line,) = await env.until("ben", has_lines(card, 1))
        assert line == "🔔 <@U0ANNA> <@U0BEN> <@U0LEA> Nobody is assigned yet. Please assign it to yourself."
        assert [m for m in direct(env["ben"].live_view) if not m.get("ephemeral")] == []
        await env.client.assign_alert(alert.id, "anna@responder-bot.local")

        def has_ended(view: EmulatorView) -> bool | None:
            return lines(view, card) == ["🔔 Asked here who could work on it."] or None

        await env.until("ben", has_ended)


@pytest.mark.parametrize(("how", "words"), [("close", "Closed: "), ("case", "In a case: ")])
async def test_a_request_says_what_became_of_the_alert(tmp_path: Path, how: str, words: str) -> None:
    async with on_duty_for_alerts(tmp_path, [("0m", "anna")]) as env:
        alert = await env.create_alert()
        await env.until("anna", asked_directly(ASKS))
        if how == "close":
            await env.client.close_alerts([alert.id])
        else:
            await env.client.create_case_from_alert(alert.id)
        assert ids.ASSIGN not in text_of(within_limits(await env.until("anna", asked_directly(words))))


async def test_an_alert_of_a_group_gets_a_card_of_its_own_once_people_are_asked(tmp_path: Path) -> None:
    async with on_duty_for_alerts(tmp_path, [("0m", "anna")]) as env:
        for number in range(5):
            alert = await env.create_alert(sourceRef=str(number))
            await env.until("ben", has_lines(await env.card_of("ben", alert), 1))
            await env.until("anna", asked_directly(f"({alert.id})"))
        assert sent_to(env, await env["anna"].dm(env.emulator.bot_user_id)) == 5


async def test_who_may_not_see_it_any_more_reads_nothing_of_it(tmp_path: Path) -> None:
    async with on_duty_for_alerts(tmp_path, [("0m", "anna")]) as env:
        alert = await env.create_alert()
        await env.until("anna", asked_directly(ASKS))
        await env.client.request("PATCH", f"/api/alert/{alert.id}", {"tlp": 3})
        withheld = within_limits(await env.until("anna", asked_directly("You were asked to work on")))
        assert alert.title not in text_of(withheld)
        assert ids.ASSIGN not in text_of(withheld)
