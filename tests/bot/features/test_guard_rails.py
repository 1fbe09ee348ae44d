"""Rules of the settings as people meet them in Slack: who, on what, how often, and what failed too often."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.cards import ids
from tests.bot.features.environment import FeatureEnvironment, card_in, feature_environment, fine, text_of, topmost
from tests.bot.features.test_decisions import button, in_thread
from tests.bot.running import SOC

RULES: Mapping[str, Mapping[str, Any]] = {
    "Fail": {"breaker": {"failures": 1, "within_minutes": 10}},
}


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(tmp_path, RULES) as environment:
        yield environment


async def test_what_failed_too_often_is_told_in_the_thread_and_resumed_by_org_admins(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    card = await env.card_of("anna", alert)
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env.until("anna", in_thread(card["ts"], "*Fail* was paused"))
    replies = [m for m in env["anna"].live_view.thread(SOC, card["ts"])[1:] if "was paused" in text_of(m)]
    assert len(replies) == 1
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env.told("anna", "paused since")
    await env["anna"].command(SOC, "/responder paused")
    shown = text_of(fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "*Paused responders* (1)"))))
    assert "1 run failed within 10 minutes" in shown
    assert ids.RESUME not in shown
    await env["lea"].open_home()
    home = fine(await env.until("lea", lambda s: s.home))
    assert "*Paused responders* (1)" in text_of(home)
    await env["lea"].click(None, view_id=home["id"], action_id=f"{ids.OVERVIEW}:paused")
    listed = await env.until("lea", topmost(ids.NOTICE_VIEW, "*Paused responders* (1)"))
    await env["lea"].click(None, view_id=listed["id"], action_id=button(listed, ids.RESUME))
    await env.until("lea", topmost(ids.NOTICE_VIEW, "*Fail* runs again."))
    assert await env.client.paused() == []
    await env["lea"].click(None, view_id=home["id"], action_id=button(home, ids.RESUME))
    await env.told("lea", "is not paused; nothing was changed")
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "2 runs, 2 failed"))
