"""What a person may not see they can't act on, and are told so calmly wherever they try."""

from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from bot.slack_emulator.elements import walk
from core.models import RunInput
from tests.bot.features.environment import CLEAR, DONE, FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import card_of, direct_message, message_in, modal, replies, reply_to, text_of
from tests.bot.running import OPEN, SOC

ABOVE = "You may see up to TLP:AMBER. Ben or lea can open this."


async def test_menu_and_list_offer_nothing_on_what_one_may_not_see(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna", tlp=3)
    (group,) = await env["anna"].searches(card)
    assert [o["text"]["text"] for o in group["options"]] == [ABOVE]
    offered = await env["ben"].searches(card)
    assert f"Alert {alert.id}" in [group["label"]["text"] for group in offered]
    await env["anna"].command(SOC, f"/responder list {alert.id}")
    listed = text_of(await env["anna"].reads(ABOVE))
    assert "*Tell*" not in listed
    assert ids.MENU not in listed


async def test_run_command_says_calmly_that_one_may_not_see_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(tlp=3)
    for name in ("tell", "nonsense"):
        await env["anna"].command(SOC, f"/responder run {name} {alert.id}")
        await env["anna"].reads(f"{ABOVE} Nothing was done.")
    assert await env.client.actions("alert", alert.id) == []


async def test_run_modal_offers_no_menu_for_what_one_may_not_see(env: FeatureEnvironment) -> None:
    _alert, card = await env.alert_and_card("anna", tlp=3)
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = await env["anna"].sees(modal(ABOVE))
    assert ids.START_RESPONDER not in text_of(view)
    (found,) = await env["anna"].searches(view, "beacon")
    assert [o["value"] for o in found["options"]] == ["none"]


async def test_a_menu_tells_who_is_not_linked_in_plain_words(env: FeatureEnvironment) -> None:
    card = await env["anna"].sees(card_of(await env.create_alert()))
    (group,) = await env["uma"].searches(card, "203")
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
        await env["anna"].reads(f"{ABOVE} Nothing was done.")
    assert not [text for shown in env["anna"].live_view.ephemerals(SOC) if "payroll" in (text := text_of(shown))]
    waiting = await env.client.action(action.id)
    assert waiting.approval is not None
    assert (waiting.status, waiting.approval.votes) == ("Waiting", [])


@pytest.mark.parametrize("shared", [[], [OPEN]])
async def test_a_run_on_a_withheld_host_is_not_taken_for_one_on_the_host_that_its_card_shows(
    tmp_path: Path, shared: list[str]
) -> None:
    hosts = [{"dataType": "hostname", "data": data, "tlp": tlp} for data, tlp in (("LT-0701", 0), ("SECRET-DC-01", 2))]
    isolate: dict[str, Any] = {"target": "hostname", "undo": "Tell_1_0", "undo_after_minutes": 60}
    field = {"type": "AddCustomFields", "name": "containment", "tpe": "string", "value": "isolated by policy"}
    operations = [*DONE["operations"], {"type": "AddTagToAlert", "tag": "host-isolated"}, field]
    reports = {"Isolate": {**DONE, "operations": operations}}
    async with feature_environment(tmp_path, {"Isolate": isolate}, reports, shared=shared) as env:
        alert, card = await env.alert_and_card("ben", tlp=0, artifacts=hosts)
        await env["anna"].command(OPEN, f'/responder run isolate {alert.id} target=SECRET-DC-01 note="our DC"')
        await env["anna"].submits(await env["anna"].sees(modal("SECRET-DC-01", "our DC")))
        request = await env["ben"].sees(reply_to(card, "asks · "))
        await env["ben"].confirms("Approve", request)
        await env["ben"].sees(reply_to(card, "*Isolate* done on hostname SECRET-DC-01", 'Note: \\"our DC\\"'))
        await env["ben"].sees(card_of(alert, "*Isolate* on hostname SECRET-DC-01 is in force until"))
        await all_sent(env.bot)
        seen = await env["uma"].sees(card_of(alert, channel=OPEN))
        shown = [seen, *replies(env["uma"].live_view, seen, OPEN)]
        for words in ("Isolate", "our DC", "SECRET", "in force", "LT-0701"):
            assert words not in "".join(map(text_of, shown))
        told = [["withheld (TLP:AMBER)" in text_of(one), "A run on" in text_of(one)] for one in shown]
        await env.core.core.people.set_clearance("eve", 0)
        for name, is_shown in (("anna", True), ("eve", False)):
            for added in ("host-isolated", "policy"):
                await env[name].command(OPEN, f"/responder find {added}")
                await env[name].reads("*1 alert* with" if is_shown else "No alert that you may see contains")
            await env[name].command(OPEN, f"/responder alert {alert.id}")
            details = text_of(await env[name].sees(modal("*Facts*")))
            assert ("host-isolated" in details, "1 run, details withheld" in details) == (is_shown, not is_shown)
            assert ("isolated by policy" in details) == is_shown
        assert told == ([[False, False]] if shared else [[True, False], [True, True], [True, True]])


async def test_cards_of_a_channel_that_is_shared_later_read_alike_whether_or_not_something_is_hidden(
    env: FeatureEnvironment,
) -> None:
    hidden = [*CLEAR["artifacts"], {"dataType": "hostname", "data": "SECRET-DC-01", "tlp": 2}]
    alerts = [await env.create_alert(**{**CLEAR, "sourceRef": str(len(of)), "artifacts": of}) for of in (hidden, [])]
    for alert in alerts:
        card = await env["anna"].sees(card_of(alert, channel=OPEN, without="only what is TLP:CLEAR"))
        assert ("1 withheld" in text_of(card)) == (alert is alerts[0])
    env.emulator.share(OPEN, True)
    for alert in alerts:
        await env["anna"].sees(card_of(alert, f"{alert.id} · only what is TLP:CLEAR", channel=OPEN, without="withheld"))


async def test_a_shared_channel_shows_that_a_run_waits_or_failed_and_nothing_to_press(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, shared=[OPEN]) as env:
        alert = await env.create_alert(**CLEAR)
        await env["anna"].command(OPEN, f"/responder run fail {alert.id}")
        shown = [await env["uma"].sees(card_of(alert, "❌ *Fail* failed", channel=OPEN))]
        await env["anna"].sees(card_of(alert, "The firewall said no.", "Run again"))  # in a channel of our own
        await env["anna"].command(OPEN, f"/responder run isolate {alert.id}")
        shown.append(await env["uma"].sees(card_of(alert, "⏳ *Isolate*", channel=OPEN)))
        await env["lea"].sees(direct_message("asks · ", "Approve"))
        other = await env.create_alert(**{**CLEAR, "sourceRef": "other"})
        await env["anna"].command(OPEN, f"/responder run contain {alert.id} {other.id}")
        await env["anna"].submits(await env["anna"].sees(modal("Contain")))
        shown.append(await env["uma"].sees(message_in(OPEN, "2 wait for approval")))
        await all_sent(env.bot)
        shown += replies(env["uma"].live_view, shown[0], OPEN)
        pressed = {ids.family(one["action_id"]) for message in shown for _, one in walk(message) if "action_id" in one}
        assert pressed <= {ids.DETAILS, ids.MORE, ids.BULK_DETAILS}
        assert "The firewall said no." not in "".join(map(text_of, shown))
