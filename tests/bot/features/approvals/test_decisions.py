"""Approving, denying, cancelling, marking as read."""

import json
from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import EmulatorView
from core.models import Alert, RunInput
from tests.bot.features.environment import FeatureEnvironment, card_in, fine, text_of, topmost, within_limits
from tests.bot.features.runs.test_runs import blocks, choose
from tests.bot.running import OPEN, SOC, approve, until_asked_to_approve


def in_thread(ts: str, words: str) -> Any:
    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in view.thread(SOC, ts)[1:] if words in text_of(m) and not m.get("ephemeral")), None)

    return look


def button(message: dict[str, Any], action_id: str) -> str:
    """The full action_id of a button of this family."""
    found = [e for b in blocks(message) for e in [*(b.get("elements") or []), b.get("accessory")] if e]
    return next(str(e["action_id"]) for e in found if ids.family(str(e.get("action_id"))) == action_id)


async def deny(env: FeatureEnvironment, name: str, reason: str = "") -> dict[str, Any]:
    """Fill in the form that Deny has opened; returns the form."""
    form = fine(await env.until(name, topmost(ids.DENY_VIEW)))
    await env[name].submit(form["id"], {"reason": {"value:reason": reason}})
    return form


async def test_another_person_approves_and_the_requester_is_refused(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    await env.ephemeral("anna", "needs 1 approval, answer by")
    request = within_limits(await env.until("ben", in_thread(card["ts"], "asks · ")))
    await env.until("ben", lambda s: card_in(s, SOC, alert.id, "needs 1 approval"))
    await env["anna"].click(SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.told("anna", "You asked for this run; somebody else must approve or deny it.")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"
    await env["eve"].click(SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.told("eve", "You can't run responders.")
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.told("ben", f"You approved Isolate on {alert.id}; it starts now.")
    decided = await env.until("anna", in_thread(card["ts"], "Approved by ben."))
    assert ids.APPROVE not in text_of(within_limits(decided))
    assert (await env.ended_run(alert)).status == "Success"


async def test_the_approver_sees_all_inputs_everywhere_and_the_policy_where_they_approve(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("ben")
    given = {"minutes": 60, "reason": "lateral movement"}
    await env.client.run(
        RunInput(responder_id="Contain_1_0", object_type="alert", object_id=alert.id, parameters=given)
    )
    shown = await env.until("ben", lambda s: card_in(s, SOC, alert.id, "minutes: 60, reason: lateral movement"))
    request = text_of(within_limits(await env.until("ben", in_thread(card["ts"], "asks · "))))
    assert "• minutes: 60\\n• reason: lateral movement" in request
    assert "Cuts the host off." not in request + text_of(within_limits(shown))
    form = await approve(env["ben"], SOC, shown["ts"], action_id=button(shown, ids.APPROVE))
    assert "Cuts the host off." in text_of(form)
    await env.told("ben", f"You approved Contain on {alert.id}; it starts now.")
    assert json.loads((await env.ended_run(alert)).parameters or "") == given


async def test_who_could_not_decide_gets_no_form_to_deny(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await env["anna"].click(SOC, request["ts"], action_id=button(request, ids.DENY))
    await env.told("anna", "You asked for this run; somebody else must approve or deny it.")
    await env["eve"].click(SOC, request["ts"], action_id=button(request, ids.DENY))
    await env.told("eve", "You can't run responders. Ask admin or lea.")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"


async def test_who_loses_the_right_while_the_form_is_open_reads_why(env: FeatureEnvironment) -> None:
    _, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await env["ben"].click(SOC, request["ts"], action_id=button(request, ids.APPROVE))
    form = await until_asked_to_approve(env["ben"])
    await env.core.core.people.set_profile("ben", "read-only")
    await env["ben"].submit(form["id"], {})
    await env.told("ben", "You can't run responders. Ask admin or lea.")


async def test_approval_says_how_many_more_are_needed(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Quarantine")
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.told("ben", f"You approved Quarantine on {alert.id}; it needs 1 more approval.")


async def test_refusal_of_a_click_and_details_are_shown_in_a_modal(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    failed = await env.until("anna", in_thread(card["ts"], "Run again"))
    await env["eve"].click(SOC, failed["ts"], action_id=button(failed, ids.RUN_AGAIN))
    refused = fine(await env.until("eve", topmost(ids.NOTICE_VIEW, "You can't run responders. Ask admin or lea.")))
    await env["eve"].close(refused["id"])
    await env["eve"].click(SOC, card["ts"], action_id=ids.DETAILS)
    shown = text_of(fine(await env.until("eve", topmost(ids.NOTICE_VIEW, "host web-3 beacons"))))
    assert "*Observables*" in shown
    assert "beacons to 203[.]0[.]113[.]7 every" in shown
    assert "TLP:AMBER PAP:AMBER" in shown
    assert not env["eve"].live_view.ephemerals(SOC)


async def test_denied_run_never_starts(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await env["ben"].click(SOC, request["ts"], action_id=button(request, ids.DENY))
    form = await deny(env, "ben", "It is the <backup> server")
    assert form["title"]["text"] == "Deny Isolate?"
    assert "If you deny it, it will not run: nothing changes on the target." in text_of(form)
    assert f"({alert.id})" in text_of(form)
    await env.until("ben", topmost(ids.NOTICE_VIEW, f"You denied Isolate on {alert.id}; it will not run."))
    assert (await env.ended_run(alert)).status == "Failure"
    failed = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Isolate* denied by ben"))
    assert "It is the &lt;backup&gt; server" in text_of(within_limits(failed))
    await env["ben"].command(SOC, f"/responder deny {(await env.ended_run(alert)).id}")
    await env.told("ben", "denied")


async def test_waiting_run_can_be_cancelled_from_its_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    waiting = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "needs 1 approval"))
    (withdraw,) = [
        e for b in blocks(waiting) for e in b.get("elements", ()) if e["action_id"].startswith(f"{ids.CANCEL}:")
    ]
    assert "anna asked for it. On" in text_of({"blocks": withdraw["confirm"]["text"]})
    await env["anna"].click(SOC, waiting["ts"], action_id=button(waiting, ids.CANCEL))
    told = await env.ephemeral("anna", f"You withdrew Isolate on {alert.id}; it will not run.")
    assert "thread_ts" not in told  # the card was clicked in the channel
    done = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Isolate* withdrawn by anna"))
    assert ids.CANCEL not in text_of(within_limits(done))


async def test_who_may_not_cancel_is_told_who_may(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Isolate")
    waiting = await env.until("ben", lambda s: card_in(s, SOC, alert.id, "needs 1 approval"))
    await env["ben"].click(SOC, waiting["ts"], action_id=button(waiting, ids.CANCEL))
    told = text_of(await env.told("ben", "anna started this run, so only they or an administrator can cancel it."))
    assert "Nothing changed." in told
    assert "@responder-bot.local" not in told
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"


async def test_a_run_that_runs_is_stopped_from_its_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, "Wait")
    running = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Wait* running"))
    await env["anna"].click(SOC, within_limits(running)["ts"], action_id=button(running, ids.CANCEL))
    stopped = await env.until("ben", lambda s: card_in(s, SOC, alert.id, "🛑 *Wait* stopped by anna"))
    assert ids.RUN_AGAIN not in text_of(within_limits(stopped))
    assert (await env.ended_run(alert)).outcome == "stopped"


async def test_an_alert_is_assigned_unassigned_and_reassigned_only_after_a_question(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].click(SOC, card["ts"], action_id=ids.ASSIGN)
    taken = within_limits(await env.until("ben", lambda s: card_in(s, SOC, alert.id, "assigned to *anna*")))
    await env["ben"].click(SOC, taken["ts"], action_id=ids.UNASSIGN)
    question = await env.told("ben", f"anna works on {alert.id}. Nothing was changed.")
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    await env["ben"].click(None, view_id=question["id"], action_id=ids.ASSIGN)
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "assigned to *ben*"))
    assert (await env.client.alert(alert.id)).assignee == "ben@responder-bot.local"
    await env["ben"].click(SOC, taken["ts"], action_id=ids.UNASSIGN)
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "Assign to me"))
    assert (await env.client.alert(alert.id)).assignee is None


async def test_a_channel_below_the_alert_names_no_responder_person_or_login(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    here, there = await env.card_of("anna", alert), await env.card_of("anna", alert, OPEN)
    await env.client.assign_alert(alert.id, "lea@responder-bot.local")
    await env.client.run({"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id})
    request = await env.until("ben", in_thread(here["ts"], "asks · "))
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.ended_run(alert)
    await env.client.run({"responderId": "Fail_1_0", "objectType": "alert", "objectId": alert.id})

    def told(view: EmulatorView) -> list[dict[str, Any]] | None:
        thread = view.thread(OPEN, there["ts"])
        runs = [m for m in thread if "A run on" in text_of(m)]
        return thread if len(runs) == 3 and "2 runs" in text_of(thread[0]) else None

    shown = "".join(text_of(m) for m in await env.until("ben", told)).lower()
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


def direct(view: EmulatorView) -> list[dict[str, Any]]:
    """The direct messages on a person's view."""
    return [m for c in view.channels if c.startswith("D") for m in view.messages(c)]


async def test_withheld_details_are_shown_to_people_with_the_clearance(
    env: FeatureEnvironment,
) -> None:
    alert = await env.create_alert(tlp=2)
    card = within_limits(await env.card_of("eve", alert, OPEN))
    assert "Beacon" not in text_of(card)
    assert "details withheld (TLP:AMBER)" in text_of(card)
    await env["eve"].click(OPEN, card["ts"], action_id=ids.DETAILS)
    await env.told("eve", "host web-3 beacons")
    _red, card = await env.alert_and_card("anna", tlp=3, sourceRef="red")
    await env["anna"].click(SOC, card["ts"], action_id=ids.DETAILS)
    told = await env.told("anna", "You may see up to TLP:AMBER. Ben or lea can open this.")
    assert "Beacon" not in text_of(told)


async def test_nobody_changes_or_runs_on_what_they_may_not_see(env: FeatureEnvironment) -> None:
    red, card = await env.alert_and_card("anna", tlp=3)
    await pick(env, "anna", card, "Close")
    told = text_of(await env.told("anna", "You may see up to TLP:AMBER. Ben or lea can open this. Nothing was done."))
    assert "Beacon" not in told
    await env["anna"].command(SOC, f"/responder run tell {red.id}")
    await env.told("anna", "You may see up to TLP:AMBER. Ben or lea can open this. Nothing was done.")
    assert (await env.client.alert(red.id)).status == "New"
    assert await env.client.actions("alert", red.id) == []


async def test_marking_as_read_updates_the_card_and_its_menu(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await pick(env, "anna", await env.card_of("anna", alert), "Close")
    form = fine(await env.until("anna", topmost(ids.CLOSE_VIEW, "HIGH ET MALWARE Beacon")))
    assert "Still in force" not in text_of(form)
    await env["anna"].submit(form["id"], {"reason": {"value:reason": "A scanner of ours"}})
    read = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*closed* by anna"))
    assert ": A scanner of ours" in text_of(within_limits(read))
    assert '"Close"' not in text_of(read)
    assert (await env.client.alert(alert.id)).summary == "A scanner of ours"
    await pick(env, "ben", read, "Reopen")
    unread = await env.until("anna", lambda s: card_in(s, SOC, alert.id, "new · unassigned"))
    assert '"Close"' in text_of(within_limits(unread))
    assert (await env.client.alert(alert.id)).status == "New"


async def pick(env: FeatureEnvironment, name: str, card: dict[str, Any], words: str) -> None:
    """Choose an option of the card's overflow menu."""
    found = [e for b in blocks(card) for e in [b.get("accessory") or {}, *(b.get("elements") or [])]]
    more = next(e for e in found if e.get("action_id") == ids.MORE)
    value = next(o["value"] for o in more["options"] if o["text"]["text"] == words)
    await env[name].click(SOC, card["ts"], action_id=ids.MORE, value=value)


async def test_doctor_command_shows_every_check_to_an_org_admin(env: FeatureEnvironment) -> None:
    await env["lea"].command(SOC, "/responder doctor")
    told = text_of(await env.ephemeral("lea", "this channel"))
    for name in ("you", "your rights", "core", "engine local", "token", "channel #soc", "channel #open"):
        assert f"*{name}*" in told


async def test_doctor_command_shows_others_what_concerns_them(env: FeatureEnvironment) -> None:
    """And who may see the rest: that tells of channels and of how responders are confined."""
    env.emulator.archive(OPEN)
    await env["eve"].command(SOC, "/responder doctor")
    told = text_of(await env.ephemeral("eve", "this channel"))
    assert "✓ *you*: linked to eve@responder-bot.local, who may see up to TLP:AMBER" in told
    assert "✗ *your rights*: you can't run responders" in told
    assert "checks of responder-bot need attention; ask admin or lea, who sees them here" in told
    assert [words for words in ("engine", "confinement", OPEN, "channel #soc", "token") if words in told] == []
    await env["uma"].command(SOC, "/responder doctor")
    told = text_of(await env.ephemeral("uma", "You're not linked yet"))
    assert "responder-bot user add YOUR-LOGIN" in told
    assert [words for words in ("✓", "✗", "TLP", SOC, OPEN, "core") if words in told] == []


async def change(env: FeatureEnvironment, alert: Alert, *artifacts: Any) -> None:
    kept = [{"dataType": one.data_type, "data": one.data} for one in alert.artifacts]
    await env.client.request("PATCH", f"/api/alert/{alert.id}", {"artifacts": [*(artifacts or kept[1:])]})


async def test_an_approver_reads_and_starts_what_was_asked_for_whatever_the_alert_has_by_now(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("anna", artifacts=[{"dataType": "ip", "data": "198.51.100.7"}])
    await choose(env, "anna", card, "Isolate")
    request = within_limits(await env.until("ben", in_thread(card["ts"], "asks · ")))
    assert "It may act on this observable:\\n• ip 198[.]51[.]100[.]7" in text_of(request)
    more = [{"dataType": "ip", "data": data} for data in ("198.51.100.7", "192.0.2.1")]
    await change(env, alert, *more)
    await env["ben"].command(SOC, f"/responder approve {(await env.client.actions('alert', alert.id))[0].id}")
    asked = text_of(await env.told("ben", "asks · "))
    assert "It may act on this observable:" in asked
    assert "192[.]0[.]2[.]1" not in asked
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    await env.told("ben", f"You approved Isolate on {alert.id}; it starts now.")
    assert (await env.ended_run(alert)).status == "Success"


async def test_who_approves_what_has_changed_is_offered_to_ask_again(env: FeatureEnvironment) -> None:
    first, second = [{"dataType": "ip", "data": data} for data in ("198.51.100.7", "192.0.2.1")]
    alert, card = await env.alert_and_card("anna", artifacts=[first, second])
    await choose(env, "anna", card, "Isolate")
    request = await env.until("ben", in_thread(card["ts"], "asks · "))
    await change(env, alert, second)
    await approve(env["ben"], SOC, request["ts"], action_id=button(request, ids.APPROVE))
    refused = await env.told("ben", f"was removed from {alert.id} since this was asked for, so it did not run")
    assert "Ask again" in text_of(refused)
    assert "Ask again" in text_of(await env.until("anna", lambda view: card_in(view, SOC, alert.id, "Ask again")))
    await env["ben"].click(None, view_id=refused["id"], action_id=button(refused, ids.RUN_AGAIN))
    await env.told("ben", "needs 1 approval, answer by")
    newest, ended = await env.client.actions("alert", alert.id)
    assert (newest.status, newest.created_by.partition("@")[0], ended.status) == ("Waiting", "ben", "Failure")
    again = await env.until("anna", in_thread(card["ts"], "*ben* asks"))
    assert "It may act on this observable:\\n• ip 192[.]0[.]2[.]1" in text_of(again)
