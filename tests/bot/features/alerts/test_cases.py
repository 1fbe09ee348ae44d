"""The card of a case."""

from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import message_in, modal, reply_to, text_of
from tests.bot.running import SOC


async def test_a_case_has_a_card_in_its_alerts_thread_which_is_kept_current(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder case {alert.id}")
    await env["anna"].submits(await env["anna"].sees(modal("The case has its title")))
    of_case = await env["anna"].sees(reply_to(card, "open · owner anna"))
    case_id = (await env.client.alert(alert.id)).case or ""
    assert of_case["text"] == f"HIGH case 1 ({case_id}): open · owner anna"
    assert alert.title not in text_of(of_case)  # which may name what is hidden in the alert
    assert "observable" not in text_of(of_case)  # which the card of the alert above has
    first = await env.client.add_task(case_id, {"title": "Call the owner"})
    await env.client.add_task(case_id, {"title": "Restore web-3"})
    await env["anna"].sees(reply_to(card, "0 of 2 tasks done"))
    await env.client.add_log(first.id, {"message": "Called."})
    shown = text_of(await env["anna"].sees(reply_to(card, "🔄 Call the owner")))
    assert "☐ Restore web-3" in shown
    await env["anna"].command(SOC, f"/responder run quarantine {case_id}")
    waiting = await env["ben"].sees(reply_to(card, "*Quarantine* needs 2 approvals"))
    assert waiting["ts"] == of_case["ts"]
    assert waiting["blocks"][1]["block_id"].startswith("run:")
    await env["ben"].presses("Deny", waiting)
    await env["ben"].sees(modal("Deny Quarantine?"))


async def test_a_case_without_an_alert_has_its_card_in_its_channels(env: FeatureEnvironment) -> None:
    case = await env.client.create_case({"title": "Lost laptop", "description": "Train, this morning.", "severity": 3})
    card = await env["anna"].sees(message_in(SOC, "Lost laptop"))
    task = await env.client.add_task(case.id, {"title": "Wipe it"})
    await env.client.add_log(task.id, {"message": "Wiped at noon."})
    await env["anna"].sees(reply_to(card, "Wiped at noon."))
