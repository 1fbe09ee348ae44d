"""The form that closes alerts says what closing changes nothing of."""

from pathlib import Path

from bot.block_kit import ids
from tests.bot.features.approvals.test_asking import ISOLATE, isolate
from tests.bot.features.approvals.test_decisions import pick
from tests.bot.features.environment import card_in, feature_environment, fine, text_of, topmost
from tests.bot.running import SOC


async def test_what_is_in_force_and_what_waits_is_named_before_alerts_are_closed(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": ISOLATE, "Shun": ISOLATE}) as env:
        alert = await env.create_alert(title="Lemur", artifacts=[{"dataType": "ip", "data": "198.51.100.7"}])
        await env.create_alert(sourceRef="other", title="Lemur as well")
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        await env.ended_run(alert)  # which closed it
        await env.client.mark_alert_unread(alert.id)
        for _ in range(6):
            await isolate(env, alert)
        card = await env.until("anna", lambda view: card_in(view, SOC, alert.id, "new · unassigned"))
        # A responder may close it, too; nothing declares that.
        await env["anna"].command(SOC, f"/responder run contain {alert.id}")
        asks = text_of(fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Cuts the host off."))))
        assert "🔒 *Shun* on `198[.]51[.]100[.]7` until <!date^" in asks
        assert f"by admin, for {alert.id} stays in force." in asks
        assert asks.count("⚠️ *Isolate* on ip 198[.]51[.]100[.]7 for 1 hour, asked by anna (~") == 3
        assert asks.count("), still waits for approval.") == 3
        await pick(env, "anna", card, "Close")
        one = fine(await env.until("anna", topmost(ids.CLOSE_VIEW)))
        await env["anna"].close(one["id"])
        await env["anna"].command(SOC, "/responder find lemur")
        found = await env.until("anna", topmost(ids.NOTICE_VIEW, "Select several"))
        await env["anna"].click(None, view_id=found["id"], action_id=ids.SEVERAL)
        form = await env.until("anna", topmost(ids.SEVERAL_VIEW))
        chosen = {"targets": {form["blocks"][0]["element"]["action_id"]: [alert.id]}}
        await env["anna"].submit(form["id"], chosen)
        shown = await env.until("anna", topmost(ids.SEVERAL_VIEW, "*1 target*"))
        await env["anna"].click(None, view_id=shown["id"], action_id=ids.SEVERAL_CLOSE)
        several = fine(await env.until("anna", topmost(ids.CLOSE_ALL_VIEW)))
        waits = "⏳ *Isolate on ip 198[.]51[.]100[.]7* for 1 hour, asked by anna, answer by <!date^"
        for form in (one, several):
            text = text_of(form)
            assert "*Still in force*, and closing undoes nothing of it:\\n🔒 *Shun on ip 198[.]51[.]100[.]7* is" in text
            assert f"*Still waits for approval*, and closing withdraws nothing of it:\\n{waits}" in text
            assert (text.count(waits), "and 1 more" in text) == (5, True)
