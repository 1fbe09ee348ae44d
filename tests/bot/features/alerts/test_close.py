"""The form that closes alerts says what closing changes nothing of."""

from pathlib import Path

from tests.bot.features.approvals.asking import ISOLATE, isolate
from tests.bot.features.environment import feature_environment
from tests.bot.people import card_of, modal, text_of
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
        await env.client.assign_alert(alert.id, "ben@responder-bot.local")
        card = await env["anna"].sees(card_of(alert, "assigned to *ben*"))
        # A responder may close it, too; nothing declares that.
        await env["anna"].command(SOC, f"/responder run contain {alert.id}")
        asks = text_of(await env["anna"].sees(modal("Cuts the host off.")))
        assert "🔒 *Shun* on `198[.]51[.]100[.]7` until <!date^" in asks
        assert f"by admin, for {alert.id} stays in force." in asks
        assert asks.count("⚠️ Your request of <!date^") == 3
        assert asks.count("*Isolate* on ip 198[.]51[.]100[.]7 for 1 hour, still waits for approval.") == 3
        assert "and 3 more" in asks
        await env["anna"].chooses("Close", card)
        one = await env["anna"].sees(modal("Close"))
        await env["anna"].close(one["id"])
        await env["anna"].command(SOC, "/responder find lemur")
        found = await env["anna"].sees(modal("Select several"))
        await env["anna"].presses("Select several", found)
        form = await env["anna"].sees(modal("Nothing happens yet."))
        await env["anna"].submits(form, targets=[alert.id])
        shown = await env["anna"].sees(modal("*1 alert*"))
        await env["anna"].presses("Close ...", shown)
        several = await env["anna"].sees(modal("Close 1 alert"))
        waits = "⏳ *Isolate* on ip 198[.]51[.]100[.]7 (6 runs) for 1 hour, asked by anna, 1 approval, answer "
        for form in (one, several):
            text = text_of(form)
            assert "*Still in force*, and closing undoes nothing of it:\\n🔒 *Shun on ip 198[.]51[.]100[.]7* is" in text
            assert f"*Still waits for approval*, and closing withdraws nothing of it:\\n{waits}" in text
            assert text.count("⏳") == 1
            assert f"*Somebody else works on*:\\n👤 {alert.id}: ben" in text
        assert "Reopen, in the card's menu, opens it again." in text_of(one)
        assert "Reopen opens one again: /responder alert and its id has it." in text_of(several)
        await env["anna"].submits(several, reason="An exercise")
        await env["anna"].sees(modal("1 alert closed.", without="Reopen"))
        await env["anna"].command(SOC, "/responder find lemur")
        await env["anna"].presses("Select several", await env["anna"].sees(modal("Select several")))
        await env["anna"].submits(await env["anna"].sees(modal("Nothing happens yet.")), targets=[alert.id])
        await env["anna"].sees(modal("*1 alert*", "⚠️ Alert closed by anna, <!date^", "An exercise"))
        await env["anna"].command(SOC, f"/responder alert {alert.id}")
        await env["anna"].presses("Reopen", await env["anna"].sees(modal("*Facts*", "Reopen")))
        await env["anna"].sees(modal(f"{alert.id} is open again."))
        assert (await env.client.alert(alert.id)).status == "New"
