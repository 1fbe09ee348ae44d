"""The card of a case."""

from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from tests.bot.features.approvals.test_decisions import button, in_thread
from tests.bot.features.environment import FeatureEnvironment, text_of, topmost, within_limits
from tests.bot.running import SOC


async def test_a_case_has_a_card_in_its_alerts_thread_which_is_kept_current(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder case {alert.id}")
    of_case = within_limits(await env.until("anna", in_thread(card["ts"], "open · owner anna")))
    case_id = (await env.client.alert(alert.id)).case or ""
    assert of_case["text"] == f"HIGH case 1 ({case_id}): open · owner anna"
    assert alert.title not in text_of(of_case)  # which may name what is hidden in the alert
    assert "observable" not in text_of(of_case)  # which the card of the alert above has
    first = await env.client.add_task(case_id, {"title": "Call the owner"})
    await env.client.add_task(case_id, {"title": "Restore web-3"})
    await env.until("anna", in_thread(card["ts"], "0 of 2 tasks done"))
    await env.client.add_log(first.id, {"message": "Called."})
    shown = text_of(await env.until("anna", in_thread(card["ts"], "🔄 Call the owner")))
    assert "☐ Restore web-3" in shown
    await env["anna"].command(SOC, f"/responder run quarantine {case_id}")
    waiting = within_limits(await env.until("ben", in_thread(card["ts"], "*Quarantine* needs 2 approvals")))
    assert waiting["ts"] == of_case["ts"]
    assert waiting["blocks"][1]["block_id"].startswith("run:")
    await env["ben"].click(SOC, waiting["ts"], action_id=button(waiting, ids.DENY))
    await env.until("ben", topmost(ids.DENY_VIEW))


async def test_a_case_without_an_alert_has_its_card_in_its_channels(env: FeatureEnvironment) -> None:
    case = await env.client.create_case({"title": "Lost laptop", "description": "Train, this morning.", "severity": 3})

    def posted(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in view.messages(SOC) if "Lost laptop" in text_of(m)), None)

    card = within_limits(await env.until("anna", posted))
    task = await env.client.add_task(case.id, {"title": "Wipe it"})
    await env.client.add_log(task.id, {"message": "Wiped at noon."})
    await env.until("anna", in_thread(card["ts"], "Wiped at noon."))
