"""The card of a case."""

import re
from pathlib import Path
from typing import Any

from bot.clearance import MASK
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import until_read
from tests.bot.people import app_home, labels_of, message_in, modal, reply_to, text_of, updated
from tests.bot.running import SOC


async def test_a_case_has_a_card_in_its_alerts_thread_which_is_kept_current(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder case {alert.id}")
    await env["anna"].submits(await env["anna"].sees(modal("The case has its title")))
    of_case = await env["anna"].sees(reply_to(card, "open · owner anna"))
    case_id = (await env.client.alert(alert.id)).case or ""
    assert of_case["text"] == f"Case HIGH {alert.title} ({case_id}): open · owner anna"
    assert f"*HIGH*  *{alert.title}*\\ncase · open · owner anna" in text_of(of_case)
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
    over = {"status": "Resolved", "resolutionStatus": "TruePositive", "summary": "Rebuilt <web-3>"}
    await env.client.request("PATCH", f"/api/case/{case_id}", over)
    shown = text_of(await env["anna"].sees(reply_to(card, "case · resolved as true positive · owner anna")))
    assert ': \\"Rebuilt &lt;web-3&gt;\\"' in shown


async def test_a_case_without_an_alert_has_its_card_in_its_channels(env: FeatureEnvironment) -> None:
    case = await env.client.create_case({"title": "Lost laptop", "description": "Train, this morning.", "severity": 3})
    card = await env["anna"].sees(message_in(SOC, "Lost laptop"))
    task = await env.client.add_task(case.id, {"title": "Wipe it"})
    await env.client.add_log(task.id, {"message": "Wiped at noon."})
    await env["anna"].sees(reply_to(card, "Wiped at noon."))


async def test_a_case_and_details_show_what_is_in_force_on_its_alerts(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        hidden, secret = "198.51.100.77", [{"dataType": "ip", "data": "203.0.113.99"}]
        alert, card = await env.alert_and_card("anna", title=f"Beacon, as {hidden} did")
        red = await env.create_alert(sourceRef="red", tlp=3, artifacts=secret)
        await env["anna"].command(SOC, f"/responder run shun {alert.id}")
        await env["anna"].submits(await env["anna"].sees(modal("How long")))
        await env.ended_run(alert)
        await env["anna"].presses("Details", card)
        shown = await env["anna"].sees(modal("*Shun* on ip 203[.]0[.]113[.]7 is in force until"))
        assert "Undo now" in labels_of(shown)
        body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": red.id, "undoAfterMinutes": 15}
        await env.client.run(body)
        await env.ended_run(red)
        case = await env.client.create_case_from_alert(alert.id)
        await env.client.merge_alerts([red.id], case.id)
        posted = await env["anna"].sees(reply_to(card, f"Beacon, as {hidden} did", "1 run, details withheld (TLP:RED)"))
        more = {"artifacts": [*secret, {"dataType": "ip", "data": hidden}]}
        await env.client.request("PATCH", f"/api/alert/{red.id}", more)
        posted = await env["anna"].sees(updated(posted, f"Beacon, as {MASK} did"))
        assert "*Shun* on ip 203[.]0[.]113[.]7 is in force until" in text_of(posted)
        assert hidden not in str(posted)
        await env["anna"].presses("Details", posted)
        shown = await env["anna"].sees(modal(f"Case {case.id}", "*Shun* on ip 203[.]0[.]113[.]7 is in force until"))
        assert f"Beacon, as {MASK} did" in text_of(shown)  # which core has in no artifact of the case
        assert "1 run, details withheld (TLP:RED)" in text_of(shown)
        await env["anna"].confirms("Undo now", shown)
        await env["anna"].sees(updated(posted, without="Shun"))
        await env["anna"].command(SOC, f"/responder alert {case.id}")
        story = text_of(await env["anna"].sees(modal("Shun", "undone", without="Undo now")))
        assert re.search(r"203\[\.]0\[\.]113\[\.]7 · by anna, <!date\S+ [^>]+> · undone by anna, <!date", story)
        await env["ben"].command(SOC, f"/responder actions {case.id}")
        await env["ben"].sees(modal(f"3 runs on {case.id}"))


async def test_the_messages_of_a_case_mask_what_its_alerts_hide_later(env: FeatureEnvironment) -> None:
    address, domain = {"dataType": "ip", "data": "198.51.100.77"}, {"dataType": "domain", "data": "evil.example"}
    alert, card = await env.alert_and_card("anna", title="198.51.100.77 asks for evil.example", artifacts=[])
    case_id = (await env.client.create_case_from_alert(alert.id)).id
    posted = await env["anna"].sees(reply_to(card, f"Case HIGH {alert.title} ({case_id})"))
    await env.client.run({"responderId": "Quarantine_1_0", "objectType": "case", "objectId": case_id})
    request = await env["anna"].sees(reply_to(card, "Quarantine?", alert.title))
    last = (await env.client.events(None, wait_s=0)).last
    await until_read(env.bot.outbox.cursor, lambda cursor: cursor == last)  # no more of the case follows
    await env.client.request("PATCH", f"/api/alert/{alert.id}", {"artifacts": [{**address, "tlp": 3}, domain]})
    masked = await env["anna"].sees(updated(posted, f"Case HIGH {MASK} asks for evil.example"))
    of_run = await env["anna"].sees(updated(request, f"{MASK} asks for evil.example"))
    assert address["data"] not in f"{masked} {of_run}"
    await env.client.request("PATCH", f"/api/alert/{alert.id}", {"tlp": 3})
    await env["anna"].sees(updated(posted, f"Case HIGH {MASK} asks for {MASK}"))


async def test_the_card_of_a_case_says_nothing_of_an_alert_above_a_lowered_clearance(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60}}) as env:
        alert, card = await env.alert_and_card("anna", artifacts=[])
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        await env.ended_run(alert)
        case_id = (await env.client.create_case_from_alert(alert.id)).id
        await env.client.request("PATCH", f"/api/case/{case_id}", {"tlp": 0})
        posted = await env["anna"].sees(reply_to(card, f"({case_id})", "*Shun* is in force", "TLP:CLEAR"))
        env.emulator.share(SOC, True)
        await env.bot.channels.refresh()
        await env["anna"].sees(updated(posted, f"({case_id})", without="Shun"))


async def test_what_runs_on_alerts_alone_says_how_to_run_it_for_a_case(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0"}}) as env:
        alert, _ = await env.alert_and_card("anna")
        case_id = (await env.client.create_case_from_alert(alert.id)).id
        merged, card = await env.alert_and_card("anna", sourceRef="merged")
        await env.client.merge_alerts([merged.id], case_id)
        await env["anna"].sees(updated(card, f"*in case {case_id}*"))
        await env["anna"].command(SOC, f"/responder run shun {case_id}")
        only = f"only on an alert of the case: {alert.id} or {merged.id}"
        refused = await env["anna"].sees(modal("*Shun* can't run on", f"{only}. Nothing was run."))
        on_either = f"`/responder run Shun {alert.id}` or `/responder run Shun {merged.id}`"
        assert f"Nothing was run. Type {on_either}." in text_of(refused)
        for on in (case_id, alert.artifacts[0].id):
            await env["anna"].command(SOC, f"/responder list {on}")
            listed = await env["anna"].sees(modal(f"• *Shun*: {only}"))
            options = [one for group in await env["anna"].searches(listed) for one in group["options"]]
            (shun,) = [one for one in options if one["text"]["text"] == "Shun"]
            assert shun["description"]["text"] == only


async def test_details_of_a_case_have_group_and_description_of_its_tasks(env: FeatureEnvironment) -> None:
    case = await env.client.create_case({"title": "Ransomware", "description": "d"})
    card = await env["anna"].sees(message_in(SOC, "Ransomware"))
    artifact = {"dataType": "ip", "data": "198.51.100.77", "tlp": 3}
    await env.client.request("POST", f"/api/case/{case.id}/artifact", artifact)
    wipe = {"title": "Wipe it", "group": "Recovery", "description": "Ask <Mia>\nbefore; not 198.51.100.77"}
    await env.client.add_task(case.id, wipe)
    await env.client.add_task(case.id, {"title": "Call the owner"})
    await env["anna"].presses("Details", await env["anna"].sees(updated(card, "☐ Call the owner", without="Recovery")))
    shown = text_of(await env["anna"].sees(modal("☐ Wipe it · Recovery\\n>Ask &lt;Mia&gt; before")))
    assert f"; not {MASK}" in shown
    assert '☐ Call the owner"' in shown


async def test_who_starts_a_run_on_a_case_reads_whose_thread_tells_of_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Quarantine": {"approval": 0}}) as env:
        alert, card = await env.alert_and_card("anna")
        case_id = (await env.client.create_case_from_alert(alert.id)).id
        alone = await env.client.create_case({"title": "Lost laptop", "description": "d"})
        where = f"The case's card, in the thread of {alert.id}, tells how it goes."
        for on, tells in ((case_id, where), (alone.id, "and thread tell how it goes.")):
            await env["anna"].command(SOC, f"/responder run quarantine {on}")
            assert tells in text_of(await env["anna"].reads(f"({on}). "))
        await env["anna"].sees(reply_to(card, f"({case_id})", "*Quarantine*"))


async def test_home_masks_what_a_case_hides_in_its_title(env: FeatureEnvironment) -> None:
    case = await env.client.create_case({"title": "Beacon to 198.51.100.77", "description": "d"})
    hidden = {"dataType": "ip", "data": "198.51.100.77", "tlp": 3}
    await env.client.request("POST", f"/api/case/{case.id}/artifact", hidden)
    await env["anna"].command(SOC, f"/responder assign {case.id} anyway")
    await env["anna"].reads("You own the case")
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home(f"Beacon to {MASK}"))
    await env["anna"].presses("Show case", home, beside=f"Beacon to {MASK}")
    await env["anna"].sees(modal(f"Case {case.id}", "open · owner anna"))
    await env["eve"].command(SOC, f"/responder find {case.id}")
    await env["eve"].sees(modal(f"Case {case.id}", f"Beacon to {MASK}"))


async def test_a_case_of_many_alerts_has_its_title_their_number_and_first_what_they_share(
    env: FeatureEnvironment,
) -> None:
    own = [{"dataType": "ip", "data": f"203.0.113.{n}", "ioc": True} for n in range(24)]
    host, anna = {"dataType": "hostname", "data": "BASTION-01"}, env["anna"]
    alert, _ = await env.alert_and_card("anna", title="Beacon, as 198.51.100.77 did", artifacts=[own.pop(), host])
    case = await env.client.create_case_from_alert(alert.id)
    others = [(await env.create_alert(sourceRef=f"n{n}", artifacts=[ip, host])).id for n, ip in enumerate(own)]
    await env.client.merge_alerts(others, case.id)
    await anna.command(SOC, f"/responder alert {case.id}")
    shown = await anna.sees(modal("Beacon, as 198", "case of 24 alerts · open", "and 21 more"))
    assert "hostname `BASTION-01` · in 24 alerts · +24\u00a0more" in text_of(shown)
    later = {"artifacts": [{"dataType": "ip", "data": "198.51.100.77", "tlp": 3}]}  # which its case doesn't get
    for changed, title in ((others[22:], f"Beacon, as {MASK} did"), (others[:22], f"case {case.case_id}*")):
        for alert_id in changed:
            await env.client.request("PATCH", f"/api/alert/{alert_id}", later)
        await anna.command(SOC, f"/responder alert {case.id}")
        await anna.sees(modal(f"Case {case.id}", title))


async def test_an_alert_goes_into_an_open_case_that_its_analyst_may_see(env: FeatureEnvironment) -> None:
    old, secret, case = [
        await env.client.create_case({"title": f"Wave, as 198.51.100.77 {n}", "description": "d", "tlp": tlp})
        for n, tlp in enumerate((2, 3, 2))
    ]
    over = {"status": "Resolved", "resolutionStatus": "TruePositive", "summary": "Rebuilt", "impactStatus": "NoImpact"}
    await env.client.request("PATCH", f"/api/case/{old.id}", over)
    hidden = {"dataType": "ip", "data": "198.51.100.77", "tlp": 3}
    await env.client.request("POST", f"/api/case/{case.id}/artifact", hidden)
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Make a case", card)
    asked = await env["anna"].sees(modal("The case has its title and severity"))
    assert options_in(asked) == [f"{case.id} Wave, as {MASK} 2"]
    await env["anna"].chooses(f"{case.id} Wave, as {MASK} 2", asked)
    asked = await env["anna"].sees(modal(f"It goes into the case 🟡 MEDIUM Wave, as {MASK} 2 ({case.id})", without="⚠️"))
    assert "no button takes it out of its case" in text_of(asked)
    assert (await env.client.alert(alert.id)).case is None
    await env["anna"].submits(asked)
    await env["anna"].sees(
        modal(
            f"{alert.title} ({alert.id}) went into case {case.id}.",
            "press *Make a case* on the card of that",
            without="Case made",
        )
    )
    assert (await env.client.alert(alert.id)).case == case.id

    await env.client.create_case_template({"name": "Malware", "tasks": []})
    red = await env.create_alert(sourceRef="red", tlp=3)
    await env["ben"].command(SOC, f"/responder case {red.id}")
    assert options_in(await env["ben"].sees(modal("*Malware*")))[:2] == [
        f"{case.id} Wave, as 198.51.100.77 2",
        f"{secret.id} Wave, as 198.51.100.77 1",
    ]
    await env["ben"].command(SOC, f"/responder case {red.id} {case.id}")
    asked = await env["ben"].sees(modal(f"⚠️ {red.id} is TLP:RED: whoever may see the case then sees its tags, "))
    await env["ben"].submits(asked)
    await env["ben"].sees(modal(f"({red.id}) went into case {case.id}."))

    other = await env.create_alert(sourceRef="other")
    for into, why in ((old.id, f"{old.id} is no open case."), (secret.id, "You may see up to TLP:AMBER.")):
        await env["anna"].command(SOC, f"/responder case {other.id} {into}")
        await env["anna"].reads(why)
    assert (await env.client.alert(other.id)).case is None


def options_in(shown: dict[str, Any]) -> list[str]:
    """The texts of the menus of a modal."""
    elements = [element for block in shown["blocks"] for element in block.get("elements", ())]
    return [option["text"]["text"] for element in elements for option in element.get("options", ())]
