"""Responders by their titles, and the inputs that they declare: in modals, by command, and where people approve."""

from bot.cards import ids
from tests.bot.features.environment import BAN, FeatureEnvironment, card_in, fine, text_of, topmost
from tests.bot.features.test_decisions import direct
from tests.bot.features.test_runs import menu_block
from tests.bot.running import SOC


async def test_people_read_and_type_the_title_of_a_responder(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    card = await env.card_of("anna", alert)
    for typed in ("BAN an", "vendor_ban"):
        groups = await env["anna"].options(SOC, card["ts"], query=typed, action_id=ids.MENU, block_id=menu_block(card))
        assert [o["text"]["text"] for g in groups for o in g["options"]] == [BAN]
    for typed in ("ban AN address", "Vendor_Ban_1_0"):
        await env["anna"].command(SOC, f"/responder list {alert.id} {typed}")
        shown = fine(await env.told("anna", f"✓ *{BAN}*"))
        assert f"/responder run {BAN} {alert.id}" in text_of(shown)
        assert "Vendor_Ban_1_0" not in text_of(shown)
    await env["anna"].command(SOC, f"/responder run bann an adress {alert.id}")
    await env.told("anna", f"Did you mean `/responder run {BAN} {alert.id}`?")
    await env["anna"].command(SOC, f"/responder watch {BAN}")
    await env.ephemeral("anna", f"You watch {BAN}")
    await env["anna"].command(SOC, "/responder watch")
    await env.ephemeral("anna", f"• {BAN}")
    body = {"responderId": "Vendor_Ban_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "parameters": {"reason": "C2", "list": "inbound"}})
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, f"*{BAN}*"))
    await env["anna"].command(SOC, f"/responder actions {alert.id}")
    assert "Vendor_Ban_1_0" not in text_of(await env.told("anna", f"*{BAN}*"))
    await env["ben"].command(SOC, f"/responder approve {action.id}")
    asked = await env.until("ben", topmost(ids.NOTICE_VIEW, f"asks to run *{BAN}*"))
    await env["ben"].click(None, view_id=asked["id"], action_id=ids.numbered(ids.DENY, action.id))
    await env.until("ben", topmost(ids.NOTICE_VIEW, f"You denied {BAN}"))
    await env.until("anna", lambda s: next((m for m in direct(s) if f"*{BAN}* denied by ben" in text_of(m)), None))
    await env["anna"].command(SOC, f"/responder watch off {BAN.upper()}")
    await env.ephemeral("anna", f"You no longer watch {BAN}")
