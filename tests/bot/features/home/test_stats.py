"""`/responder stats`: how long people took."""

from bot.block_kit import ids
from bot.features.home.views.stats import stats
from core.common.clock import MINUTE_MS
from core.models import Figure
from tests.bot.features.environment import FeatureEnvironment, fine, text_of, topmost, within_limits
from tests.bot.running import SOC


async def test_a_lead_reads_how_long_people_took(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder stats")
    await env.told("anna", "Nothing was counted in the last 28 days.")
    alert = await env.create_alert()
    await env.core.send("PATCH", f"/api/alert/{alert.id}", {"assignee": "anna@responder-bot.local"})
    await env.client.run({"responderId": "Tell_1_0", "objectType": "alert", "objectId": alert.id})
    await env.ended_run(alert)
    await env["eve"].command(SOC, "/responder stats")  # who may only read may read it
    shown = text_of(fine(await env.until("eve", topmost(ids.NOTICE_VIEW, "*Week of 20"))))
    assert "• from an alert to who works on it: 1 time, " in shown
    assert "on average, 100 % within 5m, " in shown
    assert "*Tell_1_0*\\n• from an alert to the first run: 1 time, " in shown
    assert alert.title not in shown


def test_many_figures_fit() -> None:
    def figure(about: str, kind: str) -> Figure:
        within = {"5m": 1, "15m": 3, "1h": 6, "4h": 9, "1d": 9}
        return Figure(about=about, figure=kind, number=10, mean_ms=MINUTE_MS, max_ms=10**11, within=within)

    kinds = ("assigned", "first_run", "contained", "approved", "denied", "expired")
    weeks = [figure(f"2026-01-{day:02}", kind) for day in range(1, 6) for kind in kinds]
    responders = [figure(f"<@U{number}>*_" * 30, kind) for number in range(40) for kind in kinds]
    shown = stats(weeks, responders, 28)
    within_limits(shown.payload())
    assert "60 % within 1h" in text_of(shown.payload())
    assert "30 more responders." in text_of(shown.payload())
