"""What a person may not see they can't act on, and are told so calmly wherever they try."""

from typing import Any

import pytest

from bot.block_kit import ids
from core.models import RunInput
from tests.bot.features.environment import FeatureEnvironment, text_of, topmost
from tests.bot.features.runs.test_runs import menu_block
from tests.bot.running import SOC

ABOVE = "You may see up to TLP:AMBER. Ben or lea can open this."


async def test_menu_and_list_offer_nothing_on_what_one_may_not_see(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna", tlp=3)
    place: dict[str, Any] = {"action_id": ids.MENU, "block_id": menu_block(card)}
    ((group,),) = [await env["anna"].options(SOC, card["ts"], **place)]
    assert [o["text"]["text"] for o in group["options"]] == [ABOVE]
    offered = await env["ben"].options(SOC, card["ts"], **place)
    assert f"Alert {alert.id}" in [group["label"]["text"] for group in offered]
    await env["anna"].command(SOC, f"/responder list {alert.id}")
    listed = text_of(await env.told("anna", ABOVE))
    assert "*Tell*" not in listed
    assert ids.MENU not in listed


async def test_run_command_says_calmly_that_one_may_not_see_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(tlp=3)
    for name in ("tell", "nonsense"):
        await env["anna"].command(SOC, f"/responder run {name} {alert.id}")
        await env.told("anna", f"{ABOVE} Nothing was done.")
    assert await env.client.actions("alert", alert.id) == []


async def test_run_modal_offers_no_menu_for_what_one_may_not_see(env: FeatureEnvironment) -> None:
    _alert, card = await env.alert_and_card("anna", tlp=3)
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = await env.until("anna", topmost(ids.START_VIEW, ABOVE))
    assert ids.START_RESPONDER not in text_of(view)
    place = {"view_id": view["id"], "action_id": "value:object"}
    (found,) = await env["anna"].options(query="beacon", **place)
    assert [o["value"] for o in found["options"]] == ["none"]


async def test_a_menu_tells_who_is_not_linked_in_plain_words(env: FeatureEnvironment) -> None:
    card = await env.card_of("anna", await env.create_alert())
    place: dict[str, Any] = {"action_id": ids.MENU, "block_id": menu_block(card)}
    (group,) = await env["uma"].options(SOC, card["ts"], query="203", **place)
    assert [o["text"]["text"][:44] for o in group["options"]] == ["You're not linked yet: ask an administrator "]


@pytest.mark.parametrize("root", ["alert", "case"])
async def test_no_command_tells_of_a_run_or_decides_on_it_once_its_root_is_above_the_clearance(
    env: FeatureEnvironment, root: str
) -> None:
    alert = await env.create_alert()
    run = RunInput(
        responder_id="Quarantine_1_0",
        object_type="case_artifact",
        object_id=alert.artifacts[0].id,
        parameters={"why": "payroll"},
    )
    action = await env.client.run(run)
    path = f"/api/alert/{alert.id}"
    if root == "case":
        path = f"/api/case/{(await env.client.create_case_from_alert(alert.id)).id}"
    await env.core.send("PATCH", path, {"tlp": 3})
    for verb in ("approve", "deny", "cancel"):
        await env["anna"].command(SOC, f"/responder {verb} {action.id}")
        await env.told("anna", f"{ABOVE} Nothing was done.")
    assert not [text for shown in env["anna"].live_view.ephemerals(SOC) if "payroll" in (text := text_of(shown))]
    waiting = await env.client.action(action.id)
    assert waiting.approval is not None
    assert (waiting.status, waiting.approval.votes) == ("Waiting", [])
