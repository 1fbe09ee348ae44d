"""Approval, cancelling, watching, marking as read: what people decide beside running, as transcripts."""

from typing import Any

from bot.cards import ids
from bot.slack_emulator import EmulatorView
from tests.bot.features.environment import OPEN, SOC, FeatureEnvironment, card_in, checked, said
from tests.bot.features.test_running import blocks, choose


def in_thread(ts: str, words: str) -> Any:
    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in view.thread(SOC, ts)[1:] if words in said(m) and not m.get("ephemeral")), None)

    return look


def button(message: dict[str, Any], action_id: str) -> str:
    """The full action_id of a button of this kind."""
    found = [e for b in blocks(message) for e in [*(b.get("elements") or []), b.get("accessory")] if e]
    return next(str(e["action_id"]) for e in found if ids.family(str(e.get("action_id"))) == action_id)


async def test_another_approves_and_the_requester_is_refused(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    card = await env.card("anna", alert)
    await choose(env, "anna", card, "Isolate")
    await env.told("anna", "waits for 1 other person")
    request = checked(await env.seen("ben", in_thread(card["ts"], "asks to run")))
    await env.seen("ben", lambda s: card_in(s, SOC, alert.id, "waiting for approval (0 of 1): see the thread"))
    await env["anna"].click(SOC, request["ts"], action_id=ids.APPROVE)
    refused = await env.told("anna", "You asked for this action; somebody else must approve or deny it.")
    assert refused["thread_ts"] == card["ts"]
    assert (await env.admin.actions("alert", alert.id))[0].status == "Waiting"
    await env["eve"].click(SOC, request["ts"], action_id=ids.APPROVE)
    await env.told("eve", "manageAction")
    await env["ben"].click(SOC, request["ts"], action_id=ids.APPROVE)
    agreed = await env.told("ben", f"You approved Isolate_1_0 on {alert.id}; it starts now.")
    assert agreed["thread_ts"] == card["ts"]
    decided = await env.seen("anna", in_thread(card["ts"], "Approved by ben."))
    assert ids.APPROVE not in said(checked(decided))
    assert (await env.ended(alert)).status == "Success"


async def test_an_approval_that_is_not_the_last_says_how_many_must_still_agree(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    card = await env.card("anna", alert)
    await choose(env, "anna", card, "Quarantine")
    request = await env.seen("ben", in_thread(card["ts"], "asks to run"))
    await env["ben"].click(SOC, request["ts"], action_id=ids.APPROVE)
    await env.told("ben", f"You approved Quarantine_1_0 on {alert.id}; 1 more must agree.")


async def test_a_question_in_a_thread_is_answered_there(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    card = await env.card("anna", alert)
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    failed = await env.seen("anna", in_thread(card["ts"], "Run again"))
    await env["eve"].click(SOC, failed["ts"], action_id=ids.RUN_AGAIN)
    refused = await env.told("eve", "manageAction")
    assert refused["thread_ts"] == card["ts"]
    root = await env.card("eve", alert)
    assert root["thread_ts"] == root["ts"]
    await env["eve"].click(SOC, root["ts"], action_id=ids.DETAILS)
    assert "thread_ts" not in await env.told("eve", "host web-3 beacons")


async def test_a_denied_run_never_starts_and_says_so(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    card = await env.card("anna", alert)
    await choose(env, "anna", card, "Isolate")
    request = await env.seen("ben", in_thread(card["ts"], "asks to run"))
    await env["ben"].click(SOC, request["ts"], action_id=ids.DENY)
    await env.told("ben", f"You denied Isolate_1_0 on {alert.id}; it will not run.")
    assert (await env.ended(alert)).status == "Failure"
    failed = await env.seen("anna", lambda s: card_in(s, SOC, alert.id, "*Isolate_1_0* failed"))
    assert "ben" in said(checked(failed))


async def test_a_run_that_waits_can_be_cancelled_from_its_line(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    card = await env.card("anna", alert)
    await choose(env, "anna", card, "Isolate")
    waiting = await env.seen("anna", lambda s: card_in(s, SOC, alert.id, "waiting for approval"))
    await env["anna"].click(SOC, waiting["ts"], action_id=button(waiting, ids.CANCEL))
    told = await env.told("anna", f"You cancelled Isolate_1_0 on {alert.id}; it will not run.")
    assert "thread_ts" not in told  # the card was clicked in the channel
    done = await env.seen("anna", lambda s: card_in(s, SOC, alert.id, "*Isolate_1_0* cancelled"))
    assert ids.CANCEL not in said(checked(done))


async def test_a_watcher_gets_one_direct_message_at_the_end(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    await env.card("ben", alert)
    await env["ben"].command(SOC, f"/responder watch {alert.id}")
    await env.told("ben", "You watch")
    await env["anna"].command(SOC, f"/responder run tell {alert.id}")

    (message,) = await env.seen("ben", direct)
    assert "Told the firewall." in said(checked(message))
    await env["ben"].command(SOC, f"/responder watch off {alert.id}")
    await env.told("ben", "You no longer watch")
    await env["ben"].command(SOC, "/responder watch")
    await env.told("ben", "You watch nothing.")


def direct(view: EmulatorView) -> list[dict[str, Any]]:
    """The direct messages that somebody sees."""
    return [m for c in view.channels if c.startswith("D") for m in view.messages(c)]


async def test_a_responder_is_watched_by_its_name(env: FeatureEnvironment) -> None:
    await env["ben"].command(SOC, "/responder watch tell")
    await env.told("ben", "There is no alert yet")
    alert = await env.alert()
    await env.card("ben", alert)
    elsewhere = await env["ben"].dm(env.emulator.bot_user_id)
    await env["ben"].command(elsewhere, "/responder watch tell")
    await env.told("ben", "You watch Tell_1_0", channel=elsewhere)
    await env["ben"].command(SOC, "/responder watch")
    await env.told("ben", "• Tell_1_0")
    await env["anna"].command(SOC, f"/responder run tell {alert.id}")
    message = await env.seen("ben", lambda s: next((m for m in direct(s) if "started by anna" in said(m)), None))
    assert f"on {alert.id}, started by anna" in said(checked(message))


async def test_a_card_above_the_clearance_withholds_details_and_gives_them_to_who_may_see(
    env: FeatureEnvironment,
) -> None:
    alert = await env.alert(tlp=2)
    card = checked(await env.card("eve", alert, OPEN))
    assert "Beacon" not in said(card)
    assert "details withheld (TLP:AMBER)" in said(card)
    await env["eve"].click(OPEN, card["ts"], action_id=ids.DETAILS)
    await env.told("eve", "host web-3 beacons", channel=OPEN)
    red = await env.alert(tlp=3, sourceRef="red")
    card = await env.card("anna", red)
    await env["anna"].click(SOC, card["ts"], action_id=ids.DETAILS)
    told = await env.told("anna", f"Alert {red.id}: details withheld")
    assert "Beacon" not in said(told)


async def test_marking_as_read_repaints_the_card_and_takes_the_entry_away(env: FeatureEnvironment) -> None:
    alert = await env.alert()
    await pick(env, "anna", await env.card("anna", alert), "Mark as read")
    read = await env.seen("anna", lambda s: card_in(s, SOC, alert.id, "Marked as read by anna"))
    assert '"Mark as read"' not in said(checked(read))
    await pick(env, "ben", read, "Mark as unread")
    unread = await env.seen("anna", lambda s: card_in(s, SOC, alert.id, "Changed by ben"))
    assert '"Mark as read"' in said(checked(unread))
    assert (await env.admin.alert(alert.id)).status == "New"


async def pick(env: FeatureEnvironment, name: str, card: dict[str, Any], words: str) -> None:
    """Choose an entry of the card's overflow."""
    more = next(e for b in blocks(card) for e in b.get("elements") or [] if e.get("action_id") == ids.MORE)
    value = next(o["value"] for o in more["options"] if o["text"]["text"] == words)
    await env[name].click(SOC, card["ts"], action_id=ids.MORE, value=value)


async def test_the_doctor_names_every_link(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder doctor")
    told = said(await env.told("anna", "this channel"))
    for name in ("you", "your rights", "core", "engine local", "token"):
        assert f"*{name}*" in told
