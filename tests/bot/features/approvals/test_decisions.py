"""Approving, denying, cancelling, marking as read."""

import json
from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from core.models import Alert, RunInput
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import app_home, card_of, direct_message, ephemeral, labels_of, modal, replies, reply_to, text_of
from tests.bot.running import OPEN, SOC


async def test_another_person_approves_and_the_requester_is_refused(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    await env["anna"].sees(ephemeral("\\nben and lea are asked; 1 approval, answer by"))
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env["ben"].sees(card_of(alert, "needs 1 approval"))
    await env["anna"].presses("Approve", request)
    await env["anna"].reads("You asked for this run; somebody else must approve or deny it. You can withdraw it.")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"
    await env["eve"].presses("Approve", request)
    await env["eve"].reads("You may not approve or deny runs. Ask ben or lea.")
    await env["ben"].confirms("Approve", request)
    receipt = await env["ben"].reads(f"You approved Isolate on {alert.id}; it starts now. anna is notified.")
    assert receipt["title"]["text"] == "Approved"
    decided = await env["anna"].sees(reply_to(card, "Approved by ben."))
    assert ids.APPROVE not in text_of(decided)
    assert (await env.ended_run(alert)).status == "Success"


async def test_the_approver_sees_all_inputs_everywhere_and_the_policy_where_they_approve(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("ben")
    given = {"minutes": 60, "reason": "lateral movement"}
    await env.client.run(
        RunInput(responder_id="Contain_1_0", object_type="alert", object_id=alert.id, parameters=given)
    )
    shown = await env["ben"].sees(card_of(alert, "minutes: 60, reason: lateral movement"))
    request = text_of(await env["ben"].sees(reply_to(card, "asks · ")))
    assert "• minutes: 60\\n• reason: lateral movement" in request
    assert "Cuts the host off." not in request + text_of(shown)
    form = await env["ben"].confirms("Approve", shown)
    assert "Cuts the host off." in text_of(form)
    await env["ben"].reads(f"You approved Contain on {alert.id}; it starts now.")
    assert json.loads((await env.ended_run(alert)).parameters or "") == given


async def test_who_could_not_decide_gets_no_form_to_deny(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env["anna"].presses("Deny", request)
    await env["anna"].reads("You asked for this run; somebody else must approve or deny it. You can withdraw it.")
    await env["eve"].presses("Deny", request)
    await env["eve"].reads("You may not approve or deny runs. Ask ben or lea.")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"


async def test_who_loses_the_right_while_the_form_is_open_reads_why(env: FeatureEnvironment) -> None:
    _, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env["ben"].presses("Approve", request)
    form = await env["ben"].sees(modal("Isolate?"))
    await env.core.core.people.set_profile("ben", "read-only")
    await env["ben"].submits(form)
    await env["ben"].reads("You can't run responders or decide on runs. Ask admin or lea.")


async def test_refusal_of_a_click_and_details_are_shown_in_a_modal(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    failed = await env["anna"].sees(reply_to(card, "Run again"))
    await env["eve"].presses("Run again", failed)
    refused = await env["eve"].sees(modal("You can't run responders or decide on runs. Ask admin or lea."))
    await env["eve"].close(refused["id"])
    await env["eve"].presses("Details", card)
    shown = text_of(await env["eve"].sees(modal("host web-3 beacons")))
    assert "*Observables*" in shown
    assert "beacons to 203[.]0[.]113[.]7 every" in shown
    assert "TLP:AMBER PAP:AMBER" in shown
    assert not env["eve"].live_view.ephemerals(SOC)


async def test_denied_run_never_starts(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    form = await env["ben"].confirms("Deny", request, reason="It is the <backup> server")
    assert form["title"]["text"] == "Deny Isolate?"
    assert "If you deny it, it will not run: nothing changes on the target." in text_of(form)
    assert f"({alert.id})" in text_of(form)
    await env["ben"].sees(modal(f"You denied Isolate on {alert.id}; it will not run. anna is notified."))
    assert (await env.ended_run(alert)).status == "Failure"
    why = ' · ben: \\"It is the &lt;backup&gt; server\\"'
    await env["anna"].sees(card_of(alert, "*Isolate* denied by ben", why))
    await all_sent(env.bot)
    (only,) = replies(env["anna"].live_view, card)  # which says all that a second one could
    assert "Denied by ben: It is the &lt;backup&gt; server" in text_of(only)
    await env["anna"].presses("Ask again", await env["anna"].sees(direct_message("Denied by ben: ")))
    again = await env["anna"].sees(modal("🚫 *Denied before by ben, <!date^"))
    assert again["submit"]["text"] == "Ask to isolate"
    await env["ben"].command(SOC, f"/responder deny {(await env.ended_run(alert)).id}")
    await env["ben"].reads("no longer waits for approval. Denied by ben.")

    await env["anna"].command(SOC, f"/responder run quarantine {alert.id}")
    other = await env["ben"].sees(reply_to(card, "*Quarantine on"))
    assert "🚫" not in text_of(other)
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    again = await env["ben"].sees(reply_to(card, "?*\\n🚫 *Denied before by ben, <!date^"))
    await env["ben"].presses("Approve", again)
    for shown in (again, await env["ben"].sees(modal("Isolate?"))):
        assert '*: \\"It is the &lt;backup&gt; server\\"\\n*anna* asks · ' in text_of(shown)  # the question is above it

    await env["anna"].open_home()
    home = text_of(await env["anna"].sees(app_home("You see up to TLP:AMBER.")))
    assert "*Waiting or running* (2)" in home
    assert "denied" in home.partition("*Your last runs* (1)")[2]
    assert "*Failed or expired in the last day*" not in home


async def test_waiting_run_can_be_cancelled_from_its_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    waiting = await env["anna"].sees(card_of(alert, "needs 1 approval"))
    form = await env["anna"].confirms("Withdraw", waiting)
    assert "*anna* asks" in text_of(form)
    assert "If you withdraw it, it will not run: nothing changes on the target." in text_of(form)
    assert "reason" not in text_of(form)  # who asked owes nobody one
    await env["anna"].reads(f"You withdrew Isolate on {alert.id}; it will not run.")
    done = await env["anna"].sees(card_of(alert, "*Isolate* withdrawn by anna, <!date^"))
    assert ids.WITHDRAW not in text_of(done)
    await env["anna"].chooses("Isolate", card)
    await env["lea"].confirms("Withdraw", await env["lea"].sees(card_of(alert, "needs 1 approval")))
    await env["anna"].sees(card_of(alert, "2 runs withdrawn by lea, anna · the last"))


async def test_who_asked_reads_in_the_alert_who_decides_and_can_only_withdraw(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    await env["anna"].sees(card_of(alert, "needs 1 approval"))
    for name, buttons in (("anna", ["Withdraw"]), ("ben", ["Approve", "Deny", "Withdraw"])):
        await env[name].command(SOC, f"/responder alert {alert.id}")
        shown = await env[name].sees(modal("needs 1 approval"))
        assert [label for label in labels_of(shown) if label in ("Approve", "Deny", "Withdraw")] == buttons
        assert ("ben or lea can decide." in text_of(shown)) == (name == "anna")
        await env[name].close(shown["id"])


async def test_who_may_not_cancel_is_told_who_may(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    waiting = await env["ben"].sees(card_of(alert, "needs 1 approval"))
    await env["ben"].presses("Withdraw", waiting)
    told = text_of(await env["ben"].reads("Only anna, who asked for this, or an administrator can end it; *Deny*"))
    assert "Nothing changed." in told
    assert "@responder-bot.local" not in told
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"


async def test_who_withdraws_what_somebody_else_asked_for_says_why(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Isolate", card)
    waiting = await env["lea"].sees(card_of(alert, "needs 1 approval"))
    form = await env["lea"].confirms("Withdraw", waiting, reason="It is the <backup> server.")
    assert "*anna* asks" in text_of(form)
    assert "anna reads it, and everybody who sees the request." in text_of(form)
    why = "It is the &lt;backup&gt; server."
    await env["lea"].reads("You withdrew Isolate")
    await env["ben"].sees(card_of(alert, "*Isolate* withdrawn by lea", why))
    await env["ben"].sees(reply_to(card, "Withdrawn by lea", why))
    await env["anna"].sees(direct_message("Withdrawn by lea: *Isolate", why))
    (action,) = await env.client.actions("alert", alert.id)
    assert (action.outcome, action.ended_by) == ("cancelled", "lea@responder-bot.local")


async def test_a_run_that_runs_is_stopped_from_its_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Wait", card)
    running = await env["anna"].sees(card_of(alert, "*Wait* running"))
    await env["anna"].presses("Stop", running)
    stopped = await env["ben"].sees(card_of(alert, "🛑 *Wait* stopped by anna"))
    assert ids.RUN_AGAIN not in text_of(stopped)
    assert (await env.ended_run(alert)).outcome == "stopped"


async def test_an_alert_is_assigned_unassigned_and_reassigned_only_after_a_question(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].presses("Assign to me", card)
    taken = await env["ben"].sees(card_of(alert, "assigned to *anna*"))
    await env["ben"].presses("Unassign", taken)
    question = await env["ben"].reads(f"anna works on 🟠 HIGH {alert.title} ({alert.id}). Nothing was changed.")
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    await env["ben"].presses("Assign to me", question)
    await env["anna"].sees(card_of(alert, "assigned to *ben*"))
    assert (await env.client.alert(alert.id)).assignee == "ben@responder-bot.local"
    await env["ben"].presses("Unassign", taken)
    await env["anna"].sees(card_of(alert, "Assign to me"))
    assert (await env.client.alert(alert.id)).assignee is None


async def test_a_channel_below_the_alert_names_no_responder_person_or_login(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    here, there = await env["anna"].sees(card_of(alert)), await env["anna"].sees(card_of(alert, channel=OPEN))
    await env.client.assign_alert(alert.id, "lea@responder-bot.local")
    await env.client.run({"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id})
    request = await env["ben"].sees(reply_to(here, "asks · "))
    await env["ben"].confirms("Approve", request)
    await env.ended_run(alert)
    await env.client.run({"responderId": "Fail_1_0", "objectType": "alert", "objectId": alert.id})

    def told(view: EmulatorView) -> list[dict[str, Any]] | None:
        thread = view.thread(OPEN, there["ts"])
        runs = [m for m in thread if "A run on" in text_of(m)]
        return thread if len(runs) == 3 and "2 runs" in text_of(thread[0]) else None

    shown = "".join(text_of(m) for m in await env["ben"].sees(told)).lower()
    for word in (
        "contain",
        "fail_1_0",
        "*fail*",
        "anna",
        "ben",
        "lea",
        "admin",
        "responder-bot.local",
        "cuts the host",
    ):
        assert word not in shown, word


async def test_withheld_details_are_shown_to_people_with_the_clearance(
    env: FeatureEnvironment,
) -> None:
    alert = await env.create_alert(tlp=2)
    card = await env["eve"].sees(card_of(alert, channel=OPEN))
    assert "Beacon" not in text_of(card)
    assert "details withheld (TLP:AMBER)" in text_of(card)
    await env["eve"].presses("Details", card)
    await env["eve"].reads("host web-3 beacons")
    _red, card = await env.alert_and_card("anna", tlp=3, sourceRef="red")
    await env["anna"].presses("Details", card)
    told = await env["anna"].reads("You may see up to TLP:AMBER. Ben or lea can open this.")
    assert "Beacon" not in text_of(told)


async def test_nobody_changes_or_runs_on_what_they_may_not_see(env: FeatureEnvironment) -> None:
    red, card = await env.alert_and_card("anna", tlp=3)
    await env["anna"].chooses("Close", card)
    told = text_of(await env["anna"].reads("You may see up to TLP:AMBER. Ben or lea can open this. Nothing was done."))
    assert "Beacon" not in told
    await env["anna"].command(SOC, f"/responder run tell {red.id}")
    await env["anna"].reads("You may see up to TLP:AMBER. Ben or lea can open this. Nothing was done.")
    assert (await env.client.alert(red.id)).status == "New"
    assert await env.client.actions("alert", red.id) == []


async def test_marking_as_read_updates_the_card_and_its_menu(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].chooses("Close", await env["anna"].sees(card_of(alert)))
    form = await env["anna"].sees(modal("Close", "HIGH ET MALWARE Beacon"))
    assert "Still in force" not in text_of(form)
    await env["anna"].submits(form, reason="A scanner of ours")
    read = await env["anna"].sees(card_of(alert, "*closed* by anna"))
    assert ": A scanner of ours" in text_of(read)
    assert '"Close"' not in text_of(read)
    assert (await env.client.alert(alert.id)).summary == "A scanner of ours"
    await env["ben"].chooses("Reopen", read)
    unread = await env["anna"].sees(card_of(alert, "new · unassigned"))
    assert '"Close"' in text_of(unread)
    assert (await env.client.alert(alert.id)).status == "New"


async def test_doctor_command_shows_every_check_to_an_org_admin(env: FeatureEnvironment) -> None:
    await env["lea"].command(SOC, "/responder doctor")
    told = text_of(await env["lea"].sees(ephemeral("this channel")))
    for name in ("you", "your rights", "core", "engine local", "token", "channel #soc", "channel #open"):
        assert f"*{name}*" in told


async def test_doctor_command_shows_others_what_concerns_them(env: FeatureEnvironment) -> None:
    """And who may see the rest: that tells of channels and of how responders are confined."""
    await env["eve"].command(SOC, "/responder doctor")
    await env["eve"].sees(ephemeral("*1 of 4 needs attention.*"))
    env.emulator.archive(OPEN)
    await env["eve"].command(SOC, "/responder doctor")
    told = text_of(await env["eve"].sees(ephemeral("*2 of 4 need attention.*")))
    assert "✓ *you*: linked, and may see up to TLP:AMBER" in told
    assert "✗ *your rights*: you can't run responders; ask admin or lea, who can let you" in told
    assert "checks of responder-bot needs attention; ask admin or lea, who sees them here" in told
    assert [words for words in ("engine", "confinement", OPEN, "channel #soc", "token") if words in told] == []
    await env["uma"].command(SOC, "/responder doctor")
    told = text_of(await env["uma"].sees(ephemeral("You're not linked yet")))
    assert "responder-bot user add YOUR-LOGIN" in told
    assert [words for words in ("✓", "✗", "TLP", SOC, OPEN, "core") if words in told] == []


async def change(env: FeatureEnvironment, alert: Alert, *artifacts: Any) -> None:
    kept = [{"dataType": one.data_type, "data": one.data} for one in alert.artifacts]
    await env.client.request("PATCH", f"/api/alert/{alert.id}", {"artifacts": [*(artifacts or kept[1:])]})


async def test_an_approver_reads_and_starts_what_was_asked_for_whatever_the_alert_has_by_now(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("anna", artifacts=[{"dataType": "ip", "data": "198.51.100.7"}])
    await env["anna"].chooses("Isolate", card)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert "It may act on this observable:\\n• ip 198[.]51[.]100[.]7" in text_of(request)
    more = [{"dataType": "ip", "data": data} for data in ("198.51.100.7", "192.0.2.1")]
    await change(env, alert, *more)
    await env["ben"].command(SOC, f"/responder approve {(await env.client.actions('alert', alert.id))[0].id}")
    asked = text_of(await env["ben"].reads("asks · "))
    assert "It may act on this observable:" in asked
    assert "192[.]0[.]2[.]1" not in asked
    await env["ben"].confirms("Approve", request)
    await env["ben"].reads(f"You approved Isolate on {alert.id}; it starts now.")
    assert (await env.ended_run(alert)).status == "Success"


async def test_who_approves_what_has_changed_is_offered_to_ask_again(env: FeatureEnvironment) -> None:
    first, second = [{"dataType": "ip", "data": data} for data in ("198.51.100.7", "192.0.2.1")]
    alert, card = await env.alert_and_card("anna", artifacts=[first, second])
    await env["anna"].chooses("Isolate", card)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await change(env, alert, second)
    await env["ben"].confirms("Approve", request)
    refused = await env["ben"].reads(f"was removed from {alert.id} since this was asked for, so it did not run")
    assert (refused["title"]["text"], "Ask again" in text_of(refused)) == ("No longer waits", True)
    assert "Ask again" in text_of(await env["anna"].sees(card_of(alert, "Ask again")))
    await env["ben"].presses("Ask again", refused)
    await env["ben"].presses("Ask to isolate", await env["ben"].sees(modal("It gets the alert's only observable")))
    await env["ben"].reads("anna and lea are asked; 1 approval, answer by")
    newest, ended = await env.client.actions("alert", alert.id)
    assert (newest.status, newest.created_by.partition("@")[0], ended.status) == ("Waiting", "ben", "Failure")
    again = await env["anna"].sees(reply_to(card, "*ben* asks"))
    assert "It may act on this observable:\\n• ip 192[.]0[.]2[.]1" in text_of(again)
