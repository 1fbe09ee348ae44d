"""Rules of the settings as people meet them in Slack: who, on what, how often, and what failed too often."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from core.models import Alert
from core.settings import ProtectSection
from tests import stores
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import until
from tests.bot.people import app_home, button_of, card_of, filled_in, labels_of, modal, options_of, reply_to, text_of
from tests.bot.running import OPEN, SOC

RULES: Mapping[str, Mapping[str, Any]] = {
    "Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60},
    "Isolate": {"approve_by": ["lea"]},
    "Contain": {"undo": "Quarantine_1_0", "undo_after_minutes": 60},
    "Quarantine": {"run_by": ["lea"], "approval": 0},
    "Report": {"undo": "Fail_1_0", "rate": ["1/1h"]},
}


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(tmp_path, RULES) as environment:
        yield environment


async def test_a_timed_run_is_given_its_time_extended_and_undone(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run shun {alert.id}")
    form = await env["anna"].sees(modal("How long"))
    assert "Ends by itself (Tell); *Undo now* ends it at any moment." in text_of(form)
    assert options_of(form, "undo_after") == ["15 minutes", "30 minutes", "1 hour"]
    assert filled_in(form)["undo_after"] == "1 hour"
    await env["anna"].submits(form, undo_after="15 minutes")
    shown = await env["anna"].sees(card_of(alert, "Undo now"))
    action = await env.ended_run(alert)
    assert action.undo is not None
    assert action.undo.after_minutes == 15
    assert action.undo.at is not None
    assert f" is in force until <!date^{action.undo.at // 1000}^" in text_of(shown)
    await env["anna"].presses("Extend", shown)
    longer = await env["anna"].sees(modal("Extend", "How much longer"))
    assert options_of(longer, "longer") == ["+15 minutes", "+30 minutes", "+45 minutes"]
    assert f"until <!date^{action.undo.at // 1000 + 45 * 60}^" in text_of(longer)
    await env["anna"].submits(longer, longer="+45 minutes")
    await env["anna"].sees(modal(" now ends <!date"))
    later = (await env.client.action(action.id)).undo
    assert later is not None
    assert later.at is not None
    assert later.at == action.undo.at + 45 * 60_000
    shown = await env["anna"].sees(card_of(alert, f"<!date^{later.at // 1000}^"))
    assert f", moved from <!date^{action.undo.at // 1000}^" in text_of(shown)
    await env["lea"].presses("Undo now", shown)
    of_another = await env["lea"].sees(modal("Tell?"))
    await env["anna"].command(SOC, "/responder active")
    listed = await env["anna"].sees(modal("*In force: 1 measure*"))
    question = text_of(await env["ben"].confirms("Undo now", shown))
    assert f"By itself it would end <!date^{later.at // 1000}^{{date_short_pretty}} {{time}}|" in question
    assert ", 1 hour from now (moved from <!date^" in question
    assert "anna is notified." in question
    reply = await env["ben"].sees(reply_to(card, ": undone by ben, <!date^"))
    assert "Told the firewall" not in str(reply["blocks"])
    await env["lea"].submits(of_another)
    await env["lea"].sees(modal(" · undone by ben, <!date^"))
    await env["anna"].presses("Extend", listed)
    await env["anna"].sees(modal("Extend", " · undone by ben, <!date^", without="How much longer"))
    await env["lea"].command(SOC, f"/responder cancel {action.id}")
    await env["lea"].reads("was undone by ben, <!date^")
    for verb in ("undo", "extend"):
        await env["lea"].command(SOC, f"/responder {verb} {action.id}")
        await env["lea"].sees(modal("In force", "Nothing is in force on", " · undone by ben, <!date^"))
    undone = [a for a in await env.client.actions("alert", alert.id) if a.undoes == action.id]
    assert len(undone) == 1
    assert undone[0].created_by.startswith("ben")


async def test_undo_is_requested_again_if_cores_answer_is_lost(tmp_path: Path) -> None:
    proxy = CoreProxy()
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0"}}, core_proxy=proxy.serve) as env:
        alert = await env.create_alert()
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        card = await env["anna"].sees(card_of(alert, '"Undo now"'))
        action = await env.ended_run(alert)
        proxy.drop_responses(f"POST /api/connector/engine/action/{action.id}/undo")
        await env["anna"].confirms("Undo now", card)
        await env["anna"].sees(card_of(alert, "🔓 *Shun*"))
        await until(lambda: not stores.clicks(env.folder / "core.db", "SELECT 1 FROM inbox WHERE done_at = 0"))
        assert "Nothing was run" not in str([*env["anna"].live_view.modals, *env["anna"].live_view.ephemerals(SOC)])
        assert len([one for one in await env.client.actions("alert", alert.id) if one.undoes]) == 1


async def test_release_asks_what_is_meant_only_while_a_run_is_in_force(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
    await env.ended_run(alert)
    await env["anna"].command(SOC, f"/responder take {alert.id}")
    await env["anna"].reads(f"You work on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env["anna"].command(SOC, f"/responder release {alert.id}")
    question = await env["anna"].reads("Nothing was changed: *Undo now* ends what is in force")
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    await env["ben"].command(SOC, f"/responder release {alert.id}")
    of_another = await env["ben"].reads("Nothing was changed: *Undo now* ends what is in force")
    await env["ben"].confirms("Undo now", of_another)
    await env["ben"].sees(card_of(alert, "🔓 *Shun*"))
    await env["anna"].presses("Unassign", question)
    await env["anna"].reads(f"Nobody works on 🟠 HIGH {alert.title} ({alert.id}) now.")
    assert (await env.client.alert(alert.id)).assignee is None
    await env["anna"].command(SOC, f"/responder release {alert.id}")
    await env["anna"].reads(f"Nobody works on {alert.id}, so you can't unassign it.")


async def run_report(env: FeatureEnvironment, alert: Alert) -> None:
    """Run it after the form that comes before what stays in force."""
    await env["anna"].command(SOC, f"/responder run report {alert.id}")
    form = await env["anna"].sees(modal("With a time it ends by itself (Fail); *Undo now*"))
    await env["anna"].presses("Report", form)


async def test_what_could_not_be_undone_is_told_in_the_thread_and_on_the_card(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await run_report(env, alert)
    shown = await env["anna"].sees(card_of(alert, '"Undo now"'))
    assert ">Puts it back." in text_of(await env["anna"].confirms("Undo now", shown))
    told = await env["anna"].sees(reply_to(card, "Not undone: "))
    assert "press *Undo now*" in text_of(told)
    assert "Undo now" in labels_of(told)
    await env["anna"].sees(card_of(alert, "still in force"))
    await env["anna"].sees(card_of(alert, "🔒 1 measure in force, 2 runs", channel=OPEN, without="still in force"))


@pytest.mark.slow  # core looks for what is due every few seconds
async def test_an_undo_that_core_is_refused_is_told_once_and_done_by_who_may(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    form = await env["anna"].sees(modal("How long"))
    await env["anna"].submits(form)
    waiting = (await env.client.actions("alert", alert.id))[0]
    await env.client.approve(waiting.id)
    action = await env.ended_run(alert)
    assert action.undo is not None
    assert action.undo.at is not None
    # As if its time had come: core reads the row again, as the newest.
    stores.rows(env.folder / "core.db", "UPDATE sequence SET last = last + 1 WHERE name = 'due'")
    newest = "(SELECT last FROM sequence WHERE name = 'due')"
    stores.rows(env.folder / "core.db", f"UPDATE due SET number = {newest}, wait = 0 WHERE kind = 'undo'")  # noqa: S608
    stores.rows(env.folder / "core.db", "UPDATE in_force SET ends_at = 1 WHERE ends_at > 1")
    told = await env["anna"].sees(reply_to(card, "⚠️ Still in force, was to end"))
    assert "only lea may run it" in text_of(told)
    assert "<@U0ANNA>" in text_of(told)
    await env["anna"].sees(card_of(alert, "still in force"))
    await env["anna"].confirms("Undo now", told)
    await env["anna"].reads("only lea may run it")
    await env["lea"].confirms("Undo now", told)
    await env["anna"].sees(reply_to(card, ": undone by lea, <!date^"))
    assert len([m for m in env["anna"].live_view.thread(SOC, card["ts"]) if ": undone by lea" in text_of(m)]) == 1
    undone = [one for one in await env.client.actions("alert", alert.id) if one.undoes]
    assert [one.created_by.partition("@")[0] for one in undone] == ["lea"]


async def test_a_used_up_rate_is_told_and_overridden_by_two_org_admins(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await run_report(env, alert)
    ran = await env.ended_run(alert)
    for name in ("anna", "lea"):
        await env[name].command(SOC, f"/responder run report {alert.id}")
        refused = await env[name].sees(modal("can't run"))
        at = f"<!date^{(ran.dispatched_at or 0) // 1000}^"
        lines = text_of(refused).split("\\n")
        assert lines[0].endswith(": the limit of 1 run in 1 hour is reached. Nothing was run.")
        assert lines[1].startswith(f"Used by anna on {alert.id}, {at}")
        assert lines[2].startswith("Free again <!date^")
        who = "Admin or lea" if name == "anna" else "You"
        assert lines[3] == f"{who} may override it, with a reason and another administrator's approval."
        assert lines[4].startswith(f"🔒 {alert.id} is contained already with no end by anna, for {alert.id}.")
        assert (ids.BREAK_GLASS in text_of(refused)) == (name == "lea")
    await env["lea"].presses("Override ...", refused)
    form = await env["lea"].sees(
        modal("🔴 *Against the rules*: the limit of 1 run in 1 hour", f"Used by anna on {alert.id}, ")
    )
    assert "Asks the administrator admin; it needs 1 approval. You can" in text_of(form)
    assert (form["title"]["text"], form["submit"]["text"]) == ("Override: Report", "Ask to override")
    for why in ("", "It spreads. " * 100):
        assert (await env["lea"].submits(form, override=why))["errors"]
    await env["lea"].submits(form, override="The beacon <!channel> spreads")
    await env["lea"].sees(modal("Asked", "🔴 *Override*: *Report* on", "1 approval, answer by", '"Withdraw"'))
    asked = await env["ben"].sees(reply_to(card, "*Against the rules*: the limit of 1 run in 1 hour is reached"))
    assert "The beacon &lt;!channel&gt; spreads" in text_of(asked)
    assert "HIGH: OVERRIDE: Report with no end? " in asked["text"]
    against = "Against the rules: the limit of 1 run in 1 hour is reached"
    assert asked["text"].endswith(f'asked by lea · "The beacon &lt;!channel&gt; spreads" · {against}')
    assert f"🔴 *Override*: *Report on {alert.id}" in asked["blocks"][0]["text"]["text"]
    assert text_of(asked).count("Override") == 1
    await env.core.core.people.set_profile("anna", "org-admin")
    for button in ("Approve", "Deny"):  # before he has read the form
        await env["ben"].presses(button, asked)
        refused = await env["ben"].sees(modal("may approve or deny this run, as it overrides rules. Ask anna."))
        await env["ben"].close(refused["id"])
    newest = (await env.client.actions("alert", alert.id))[0]
    await env.core.core.people.set_profile("ben", "org-admin")
    await env["ben"].presses("Approve", asked)
    review = await env["ben"].sees(modal("*Against the rules*", "A second run changes"))
    _, asks, against, *_ = review["blocks"][0]["text"]["text"].splitlines()
    assert (asks.startswith("*lea* asks"), asks.endswith(' · "The beacon &lt;!channel&gt; spreads"')) == (True, True)
    assert against.startswith("*Against the rules*: the limit of 1 run in 1 hour is reached (free again <!date^")
    assert f"). Used by anna on {alert.id}, {at}" in against
    assert labels_of({"blocks": review["blocks"][1:2]}) == ["Deny"]  # on a phone, too, without scrolling
    assert review["title"]["text"] == "Override: Report?"
    await env.client.approve(newest.id)
    decided = await env["anna"].sees(reply_to(card, "*admin* let *lea* run it although", "Approved by admin"))
    assert text_of(decided).count("Override") == 1
    assert "?" not in text_of(decided)
    await env["anna"].sees(card_of(alert, '🔴 *Override*: \\"The beacon', without="*Override* by"))
    await env["lea"].command(SOC, f"/responder audit {alert.id}")
    await env["lea"].sees(modal(", overriding its rate; it needs 1 approval"))


async def test_a_refusal_begins_with_what_is_protected_not_with_a_used_limit(tmp_path: Path) -> None:
    guards = ProtectSection(artifacts=["10.20.0.0/16"])
    async with feature_environment(tmp_path, {"Shun": {"target": "ip", "rate": ["1/1h"]}}, protect=guards) as env:
        red = await env.create_alert(tlp=3)
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": red.id})
        inside = await env.create_alert(sourceRef="2", artifacts=[{"dataType": "ip", "data": "10.20.1.50"}])
        await env["anna"].command(SOC, f"/responder run shun {inside.id}")
        refused = text_of(await env["anna"].sees(modal(f"can't run on {inside.id}: 10[.]20[.]1[.]50 is protected")))
        assert "; the limit of 1 run in 1 hour is reached. Nothing was run.\\nFree again <!date^" in refused
        assert "Used by" not in refused  # which she may not see
        assert "may override both, with a reason" in refused


async def test_choosing_for_several_alerts_says_which_limit_is_used(env: FeatureEnvironment) -> None:
    first, second = await env.create_alert(), await env.create_alert(sourceRef="2")
    await run_report(env, first)
    await env.ended_run(first)
    await env["anna"].command(SOC, "/responder find beacon")
    await env["anna"].presses("Select several", await env["anna"].sees(modal("newest day first")))
    chosen = await env["anna"].sees(modal("Then: assign or close them"))
    await env["anna"].submits(chosen, targets=[first.id, second.id])
    asked = await env["anna"].sees(modal("Can't run now: *Report* (limit used, free again <!date^"))
    assert {first.id, second.id} <= {*re.findall("~[0-9]+", text_of(asked))}
    # Slack keeps what has the typed letters anywhere, so that "block" must not leave "Unblock" alone, or first.
    (menu,) = [block["accessory"] for block in asked["blocks"] if block.get("block_id") == "responder"]
    titles = [option["text"]["text"] for option in menu["options"]]
    assert titles.index("Report") < titles.index("Fail")
    await env["anna"].chooses("Report", asked, "Responder")
    form = await env["anna"].sees(modal("Will be refused on 2 targets", "The limit of 1 run in 1 hour is reached"))
    assert form.get("submit") is None


async def test_a_search_lists_what_cannot_run_now_before_what_undoes(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await run_report(env, alert)
    await env["anna"].sees(card_of(alert, "*Report*"))
    labels = [group["label"]["text"] for group in await env["anna"].searches(card, "t")]
    assert labels.index("Can't run, because ...") < labels.index(f"Undo · Alert {alert.id}")


async def test_a_form_that_somebody_else_was_faster_than_says_what_is_in_force(tmp_path: Path) -> None:
    rules = {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "rate_per_target": ["1/1h"]}
    async with feature_environment(tmp_path, {"Shun": rules}) as env:
        alert, _ = await env.alert_and_card("lea")
        await env["lea"].command(SOC, f"/responder run shun {alert.id}")
        form = await env["lea"].sees(modal("How long"))
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        await env.ended_run(alert)
        await env["lea"].submits(form)
        refused = text_of(await env["lea"].sees(modal("is reached on this target")))
        assert "🔒 `203[.]0[.]113[.]7` is contained already until <!date^" in refused
        assert f" by admin, for {alert.id}." in refused
        assert ids.BREAK_GLASS in refused
        assert len(await env.client.actions("alert", alert.id)) == 1


async def test_only_those_whom_the_settings_name_approve_and_others_read_who_may(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    asked = await env["ben"].sees(reply_to(card, "Can be approved by: lea."))
    await env["ben"].presses("Approve", asked)
    await env["ben"].reads("Only lea may approve or deny runs of Isolate.")
    assert (await env.client.actions("alert", alert.id))[0].status == "Waiting"
    await env["ben"].command(SOC, "/responder pending")
    await env["ben"].reads("*Waiting for others* (1)")
    await env["lea"].open_home()
    home = await env["lea"].sees(app_home("🟠 *Isolate on "))
    form = await env["lea"].confirms("Review", home)
    assert "Can be approved by: lea." in text_of(form)
    assert (await env.ended_run(alert)).status == "Success"


async def extend(env: FeatureEnvironment, name: str, card: Any, minutes: str) -> None:
    await env[name].presses("Extend", card)
    form = await env[name].sees(modal("Extend", "How much longer"))
    assert "notified" not in text_of(form)  # who is asked is
    assert form["submit"]["text"] == "Ask to extend"  # all of it is more than was approved
    assert re.search(
        r"Asks .+; (one of them approves|it needs \d approvals?)\. Otherwise it ends <!date\^", text_of(form)
    )
    await env[name].submits(form, longer=minutes, note="It <beacons> still.")


async def test_who_has_approved_more_time_is_refused_before_the_modal(tmp_path: Path) -> None:
    rules = {"Contain": {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 2}}
    async with feature_environment(tmp_path, rules) as env:
        alert, card = await env.alert_and_card("anna")
        body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        action = await env.client.run(body)
        request = await env["ben"].sees(reply_to(card, "asks · "))
        for name in ("ben", "lea"):
            await env[name].confirms("Approve", request)
        await env.ended_run(alert)
        shown = await env["anna"].sees(card_of(alert, '"Extend"'))
        await extend(env, "anna", shown, "+45 minutes")
        asked = await env["ben"].sees(reply_to(card, "2 approvals; otherwise it ends"))
        await env["ben"].presses("Approve", asked)
        form = await env["ben"].sees(modal("Keep 45 minutes longer?"))
        assert form["submit"]["text"] == "Keep 45 minutes longer"
        await env["ben"].submits(form)
        await env["ben"].reads("It needs 1 approval; otherwise it ends")
        await env["ben"].presses("Approve", asked)
        await env["ben"].reads("You have approved it; it needs somebody else's approval as well.")
        assert (await env.client.action(action.id)).undo.extension.outcome is None  # type: ignore[union-attr]


async def test_more_time_than_was_approved_is_approved_in_the_thread(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
    action = await env.client.run(body)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env["ben"].confirms("Approve", request)
    await env.ended_run(alert)
    shown = await env["anna"].sees(card_of(alert, '"Extend"'))
    await extend(env, "anna", shown, "+45 minutes")
    asked = await env["anna"].sees(modal("⏳ *Keep until <!date^"))
    assert re.search("are asked; 1 approval; otherwise it ends <!", text_of(asked))
    assert "You get a message when it is decided." in text_of(asked)
    assert (asked["title"]["text"], labels_of(asked)) == ("Asked", ["Withdraw"])
    await env["anna"].close(asked["id"])
    before = (await env.client.action(action.id)).undo
    assert before is not None
    assert before.at == before.approved_until
    wanted = await env["ben"].sees(reply_to(card, "⏳ *Keep until"))
    waits = await env["lea"].sees(card_of(alert, "⏳ *Keep until"))
    assert "\\n1 approval; otherwise it ends <!date^" in text_of(waits)
    # What decides is where Extend was, Undo now where it is always.
    labels = [label for label in labels_of(waits) if label not in ("Assign to me", "Details")]
    assert labels == ["Approve", "Deny", "Withdraw", "Undo now"]
    await env["lea"].presses("Undo now", waits)
    ends = await env["lea"].sees(modal("approved by ben"))
    assert re.search("⏳ anna asks to keep it until <!date[^>]*>. That request ends too.", text_of(ends))
    assert "otherwise" not in text_of(ends)
    await env["lea"].close(ends["id"])
    await env["lea"].command(SOC, f"/responder run quarantine {alert.id}")
    released = await env["lea"].sees(modal("It ends *Contain*", without="Keep until"))
    assert "⏳ anna asks to keep it until <!date^" in text_of(released)
    await env["lea"].close(released["id"])
    to_ben = await env["ben"].dm(env.emulator.bot_user_id)
    first, _ = await env["ben"].sees(lambda s: m if len(m := s.messages(to_ben)) == 2 else None)
    assert "Contain for 15 minutes" in text_of(first)  # what he approved, whatever is asked for later
    assert "Approved by ben." in text_of(first)
    assert "*Keep until" not in text_of(first)
    await env["anna"].presses("Approve", wanted)
    await env["anna"].reads("You asked for this extension; somebody else must approve or deny it. You can withdraw it.")
    await env["ben"].presses("Deny", wanted)
    form = await env["ben"].sees(modal("Deny", "*Keep until <!date", ": *Contain*"))
    assert f"If you deny it, it ends <!date^{before.at // 1000}^" in text_of(form)  # type: ignore[operator]
    await env["ben"].submits(form)
    await env["ben"].reads(f"You denied more time for Contain on {alert.id}.")
    denied = await env["lea"].sees(reply_to(card, "*: denied by ben."))
    assert f"{ids.APPROVE}:" not in text_of(denied)
    await extend(env, "anna", shown, "+45 minutes")
    again = await env["lea"].sees(reply_to(card, "1 approval; otherwise it ends"))
    assert again["ts"] != wanted["ts"]
    await env["lea"].presses("Approve", again)
    form = await env["lea"].sees(modal("⏳ *Keep until <!date", "*anna* asks · "))
    assert re.search(r"⏳ \*Keep until .*\\n🚫 \*More time of 45 minutes was denied by ben\*", text_of(form))
    assert "It &lt;beacons&gt; still." in text_of(form)
    assert re.search(r"In force since <!date[^>]*>, asked for by admin · approved by ben[.]", text_of(form))
    assert text_of(form).count("<!date^") == 5  # both ends, one twice, since when it is in force, when it was closed
    extension = (await env.client.action(action.id)).undo.extension  # type: ignore[union-attr]  # it can be undone
    assert extension is not None
    assert extension.approval.approved_by == []
    await env["lea"].submits(form)
    await env["lea"].reads("You approved more time for *Contain*")
    await env["anna"].sees(reply_to(card, "approved by lea. Extended to <!date^"))
    assert (
        ", approved by lea" in text_of(await env["anna"].sees(card_of(alert, ", moved from"))).partition(", moved")[2]
    )
    after = (await env.client.action(action.id)).undo
    assert after is not None
    assert after.extension is not None
    assert after.at == after.approved_until == after.extension.at


async def test_what_is_to_last_with_no_end_says_so_wherever_somebody_decides(tmp_path: Path) -> None:
    rules = {"Contain": {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 1, "allow_permanent": True}}
    async with feature_environment(tmp_path, rules) as env:
        alert, card = await env.alert_and_card("anna")
        body = {"responderId": "Contain_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        action = await env.client.run(body)
        request = await env["ben"].sees(reply_to(card, "asks · "))
        await env["ben"].confirms("Approve", request)
        await env.ended_run(alert)
        shown = await env["anna"].sees(card_of(alert, '"Extend"'))
        await extend(env, "anna", shown, "Until somebody undoes it")
        asks = "⏳ *Keep with no end*, instead of until <!date"
        asked = await env["ben"].sees(reply_to(card, asks))
        on_card = await env["ben"].sees(card_of(alert, asks))
        await env["ben"].open_home()
        home = await env["ben"].sees(app_home(asks))
        await env["ben"].command(SOC, "/responder pending")
        listed = await env["ben"].reads(asks)
        for place in (home, listed):
            assert "*anna* asks · 🟠 HIGH" in text_of(place)
            assert "1 approval; otherwise it ends <!date" in text_of(place)
        await env["anna"].command(SOC, "/responder active")
        await env["anna"].reads(asks)
        for place in (asked, on_card, home, listed):
            assert "It &lt;beacons&gt; still." in text_of(place)
            keep = button_of(place, "Keep with no end")
            assert (ids.family(keep["action_id"]), keep["style"]) == (ids.APPROVE, "danger")
            assert place is not asked or "Deny" in labels_of(place)
            assert f'"{ids.EXTEND}:' not in text_of(place)  # nobody asks for more while more is asked for
        await env["ben"].command(SOC, f"/responder approve {action.id}")
        form = await env["ben"].sees(
            modal("Keep with no end?", asks, "With no end, it lasts until somebody undoes it.")
        )
        assert "Deny" in labels_of(form)
        await env["ben"].presses("Keep with no end", form)
        await env["ben"].reads("It lasts until somebody undoes it.")
        kept = await env["anna"].sees(card_of(alert, "until somebody undoes it, set by anna, approved by ben"))
        assert text_of(kept).count("approved by ben") == 1
