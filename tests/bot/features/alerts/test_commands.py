"""Commands: finding alerts, making cases, deciding about runs, and taking alerts."""

import re
from typing import Any

from bot.block_kit import ids
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import card_of, direct_message, direct_messages, labels_of, modal, on_phone, text_of
from tests.bot.running import SOC

TEMPLATES: list[dict[str, Any]] = [
    {"name": "Malware", "tasks": [{"title": "Identify the host"}, {"title": "Contain it"}]},
    {"name": "Phishing", "tasks": [{"title": "Find the recipients"}]},
]


async def test_find_lists_alerts_by_title_tag_observable_and_id(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.create_alert(sourceRef="2", title="Login from a new country", artifacts=[], tags=["vpn"], description="-")
    for text in ("beacon", "C2 malware", "203[.]0[.]113[.]7", alert.id):
        await env["anna"].command(SOC, f"/responder find {text}")
        found = text_of(await env["anna"].reads("*1 alert* with "))
        assert "ET MALWARE Beacon" in found
        assert "first" not in found
    await env["anna"].command(SOC, f"/responder find country {alert.id[1:]}")  # a number, where there are other words
    await env["anna"].reads("No alert that you may see contains")
    await env["anna"].command(SOC, "/responder find beacon")
    shown = await env["anna"].sees(modal("*1 alert* with "))
    await env["anna"].presses("Details", shown, beside=alert.id)
    await env["anna"].sees(modal("host web-3 beacons"))
    await env["anna"].command(SOC, "/responder find nothing-like-this")
    await env["anna"].reads("No alert that you may see contains")
    artifact = {"dataType": "url", "data": "http://updates.example.net/visit.js"}
    linked = await env.create_alert(sourceRef="3", artifacts=[artifact])
    await env["anna"].command(SOC, "/responder find hxxp[://]updates[.]example[.]net/visit[.]js")  # as cards have it
    await env["anna"].sees(modal("*1 alert*", linked.id))
    await env["anna"].command(SOC, "/responder find")
    await env["anna"].reads("Find what? Type `/responder find` and a text")


async def test_find_lists_the_most_severe_alert_of_a_day_first(env: FeatureEnvironment) -> None:
    for number, severity in enumerate((2, 4, 1, 4, 3)):
        await env.create_alert(sourceRef=f"r{number}", title=f"Beacon {number}", severity=severity)
    await env["anna"].command(SOC, "/responder find beacon")
    found = text_of(await env["anna"].reads("*5 alerts*"))
    assert re.findall(r"\bBeacon (\d)\*", found) == ["3", "1", "4", "0", "2"]


async def test_find_tells_nothing_of_what_is_withheld(env: FeatureEnvironment) -> None:
    await env.create_alert(tlp=3)
    hidden = [{"dataType": "domain", "data": "evil.example", "tlp": 3}]
    await env.create_alert(sourceRef="2", title="Query for evil.example by web-3", description="-", artifacts=hidden)
    for text in ("malware", "evil.example", "evil[.]example", "withheld"):
        await env["anna"].command(SOC, f"/responder find {text}")
        await env["anna"].reads("No alert that you may see contains")
    await env["ben"].command(SOC, "/responder find evil.example")
    await env["ben"].reads("Query for evil")
    await env["anna"].command(SOC, "/responder find web-3")
    assert "evil" not in text_of(await env["anna"].reads("*1 alert*"))


async def test_case_is_made_with_the_template_that_is_picked_on_the_card(env: FeatureEnvironment) -> None:
    for template in TEMPLATES:
        await env.client.create_case_template(template)
    alert = await env.create_alert()
    await env["anna"].chooses("Make a case", await env["anna"].sees(card_of(alert)))
    asked = await env["anna"].sees(modal("*Malware*"))
    assert "ET MALWARE Beacon" in text_of(asked)
    assert "2 tasks: Identify the host, Contain it" in text_of(asked)
    assert "Without a template" in text_of(asked)
    await env["anna"].presses("Use", asked, beside="*Malware*")
    await env["anna"].sees(modal("was made from alert"))
    (case,) = await env.client.open_cases()
    assert (case.template, case.owner) == ("Malware", "anna@responder-bot.local")


async def test_case_command_asks_with_the_typed_template_or_says_what_was_meant(env: FeatureEnvironment) -> None:
    for template in TEMPLATES:
        await env.client.create_case_template(template)
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder case {alert.id} Fishing")
    await env["anna"].reads(f"Did you mean `/responder case {alert.id} Phishing`?")
    await env["eve"].command(SOC, f"/responder case {alert.id}")
    await env["eve"].reads("You can't make cases. Ask admin or lea.")
    await env["anna"].command(SOC, f"/responder case {alert.id} phish")
    asked = await env["anna"].sees(modal("no button takes it out of its case", "*Phishing*", without="Malware"))
    assert (await env.client.alert(alert.id)).case is None
    await env["anna"].presses("Use", asked)
    made = await env["anna"].sees(modal("with the template `Phishing`"))
    await env["anna"].presses("Show case", made)
    await env["anna"].sees(modal("☐ Find the recipients"))
    assert (await env.client.alert(alert.id)).status == "Imported"


async def test_case_without_any_template_asks_before_it_is_made(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder case {alert.id} Ransomware")
    await env["anna"].reads(f"There is no case template yet. `/responder case {alert.id}` makes a case without one.")
    await env["anna"].command(SOC, f"/responder case {alert.id}")
    asked = await env["anna"].sees(modal("The case has its title and severity, and is yours."))
    assert "The alert leaves the open alerts; no button takes it out of its case." in text_of(asked)
    assert "closed" not in text_of(asked)
    await env.client.close_alerts([alert.id], "An exercise")
    await env["anna"].chooses("Make a case", await env["anna"].sees(card_of(alert, "*closed* by")))
    asked = await env["anna"].sees(modal("It is closed by admin, ", "An exercise"))
    assert (await env.client.alert(alert.id)).case is None
    await env["anna"].submits(asked)
    made = await env["anna"].sees(modal(f"🟠 HIGH {alert.title} ({alert.id}) went into case "))
    case_id = (await env.client.alert(alert.id)).case
    for shown in (made, await env["anna"].sees(card_of(alert, "in case ~"))):
        await env["anna"].presses("Show case", shown)
        await env["anna"].sees(modal(f"Case {case_id}", "open · owner anna"))
    for name, hint in ((alert.id, f"is in case {case_id} already: "), (case_id, "is no alert, it is a case: ")):
        await env["anna"].command(SOC, f"/responder case {name}")
        await env["anna"].reads(f"{hint}`/responder alert {case_id}` shows it.")


async def test_approve_command_shows_what_would_run_before_it_is_approved(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "parameters": {"minutes": 60}})
    await env["ben"].command(SOC, f"/responder approve {action.id}")
    asked = await env["ben"].sees(modal("asks · "))
    assert "minutes" in text_of(asked)
    assert (await env.client.action(action.id)).status == "Waiting"
    await env["ben"].submits(asked)
    await env["ben"].sees(modal("it starts now"))
    assert (await env.ended_run(alert)).status == "Success"


async def test_runs_are_denied_and_cancelled_by_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    for who, verb, label, told in (
        ("ben", "deny", "Deny", "You denied"),
        ("anna", "cancel", "Withdraw", "You withdrew"),
    ):
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        await env["anna"].reads("waits for approval; nothing has run yet.")
        newest = (await env.client.actions("alert", alert.id))[0]
        await env["ben"].command(SOC, f"/responder status {newest.id}")
        waits = await env["ben"].sees(modal(f"Nothing is in force on {newest.id}", "*Isolate on "))
        assert labels_of(waits) == ["Review"]
        of = newest.id if who == "ben" else alert.id  # on which nothing else waits
        await env[who].command(SOC, f"/responder {verb} {of}")
        await env[who].submits(await env[who].sees(modal(f"{label} Isolate?")))
        await env[who].reads(told)
        assert (await env.client.action(newest.id)).end_date is not None
    await env["anna"].command(SOC, "/responder cancel")
    await env["anna"].reads("Type `/responder cancel ~run`; `/responder mine` lists your runs")
    await env["anna"].command(SOC, "/responder aprove ~3")
    await env["anna"].reads("Did you mean `/responder approve ~3`?")
    await env["anna"].command(SOC, "/responder approve ~999")
    await env["anna"].reads("There is no run ~999.")
    await env["anna"].command(SOC, "/responder deny ~999")
    await env["anna"].reads("There is no run ~999.")


async def test_a_run_on_an_observable_of_an_alert_is_decided_by_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    body = {"responderId": "Quarantine_1_0", "objectType": "case_artifact", "objectId": alert.artifacts[0].id}
    action = await env.client.run(body)
    await env["anna"].command(SOC, f"/responder deny {action.id}")
    await env["anna"].submits(await env["anna"].sees(modal("Deny Quarantine?")))
    await env["anna"].reads("You denied Quarantine")
    assert (await env.client.action(action.id)).outcome == "denied"
    action = await env.client.run(body)
    await env["anna"].command(SOC, f"/responder approve {action.id}")
    await env["anna"].reads("*Quarantine on ")


async def test_decisions_on_what_one_may_not_see_are_refused_calmly(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(tlp=3)
    await env["ben"].command(SOC, f"/responder run isolate {alert.id}")
    await env["ben"].reads("waits for approval; nothing has run yet.")
    (action,) = await env.client.actions("alert", alert.id)
    for verb in ("approve", "deny"):
        await env["anna"].command(SOC, f"/responder {verb} {action.id}")
        told = text_of(await env["anna"].reads("You may see up to TLP:AMBER"))
        assert "authorized" not in told
    (action,) = await env.client.actions("alert", alert.id)
    assert (action.status, action.approval.approved_by if action.approval else None) == ("Waiting", [])


async def test_who_loses_an_alert_to_somebody_else_hears_of_it_within_their_clearance(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(tlp=2)
    for person in ("anna", "ben"):
        await env[person].connect()
    await env["anna"].command(SOC, f"/responder assign {alert.id}")
    await env["anna"].reads(f"You work on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env["ben"].command(SOC, f"/responder assign {alert.id} anyway")
    lost = f"ben took this from you: 🟠 HIGH ET MALWARE Beacon to known C2 ({alert.id})"
    message = await env["anna"].sees(direct_message(lost))
    await env["anna"].sees(on_phone("ben took this from you: "))
    await env["ben"].command(SOC, f"/responder unassign {alert.id}")
    await env["ben"].reads(f"Nobody works on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env.client.request("PATCH", f"/api/alert/{alert.id}", {"tlp": 3})
    await env["anna"].sees(direct_message("ben took this from you: details withheld", without="Beacon"))
    assert message["ts"]
    assert not any("took this" in text_of(one) for one in direct_messages(env["ben"].live_view))


async def test_an_alert_is_assigned_and_unassigned_by_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder take {alert.id}")
    await env["anna"].reads(f"You work on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env["ben"].command(SOC, f"/responder assign {alert.id}")
    await env["ben"].reads(f"anna works on {alert.id} ({alert.title}). Nothing was changed.")
    for verb in ("unassign", "release"):
        await env["ben"].command(SOC, f"/responder {verb} {alert.id}")
        await env["ben"].reads(f"anna works on {alert.id}, so you can't unassign it.")
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    await env["ben"].command(SOC, f"/responder assign {alert.id} anyway")
    await env["ben"].reads(f"You work on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env["ben"].command(SOC, f"/responder release {alert.id}")
    await env["ben"].reads(f"Nobody works on 🟠 HIGH {alert.title} ({alert.id}) now.")
    assert (await env.client.alert(alert.id)).assignee is None
    for verb in ("release", "unassign", "assign"):
        await env["eve"].command(SOC, f"/responder {verb} {alert.id}")
        await env["eve"].reads("You can't change alerts. Ask admin or lea.")
    await env["anna"].command(SOC, "/responder assign web-3")
    found = await env["anna"].sees(modal(f"Alert {alert.id}", "Nothing was changed: press the button above."))
    await env["anna"].presses("Assign to me", found)
    await env["anna"].sees(card_of(alert, "assigned to *anna*"))


async def test_a_command_refuses_the_words_that_it_does_not_take(env: FeatureEnvironment) -> None:
    alert, other = await env.create_alert(), await env.create_alert(sourceRef="2")
    for typed in ("ben", "@Ben", "to ben"):
        await env["anna"].command(SOC, f"/responder assign {alert.id} {typed}")
        await env["anna"].reads(
            f"`assign` doesn't take '{typed}'. Type `/responder assign {alert.id}` to make it yours."
        )
    assert (await env.client.alert(alert.id)).assignee is None
    await env["anna"].command(SOC, f"/responder assign {alert.id}")
    await env["anna"].reads(f"You work on 🟠 HIGH {alert.title} ({alert.id}) now.")
    await env["anna"].command(SOC, f"/responder unassign {alert.id} ben")
    await env["anna"].reads(f"`unassign` doesn't take 'ben'. Type `/responder unassign {alert.id}` alone.")
    assert (await env.client.alert(alert.id)).assignee == "anna@responder-bot.local"
    for typed, extra, right in (
        (f"alert {alert.id} {other.id}", other.id, f"alert {alert.id}` alone."),
        ("pending LT-0412", "LT-0412", "pending` alone."),
        ("mine ben", "ben", "mine` alone."),
        (f"deny {alert.id} because", "because", f"deny {alert.id}` alone; its form asks why."),
    ):
        await env["anna"].command(SOC, f"/responder {typed}")
        await env["anna"].reads(f"doesn't take '{extra}'. Type `/responder {right}")


async def test_a_case_is_assigned_by_command(env: FeatureEnvironment) -> None:
    case = await env.client.create_case_from_alert((await env.create_alert()).id)
    await env["ben"].command(SOC, f"/responder assign {case.id}")
    await env["ben"].reads(f"admin works on {case.id} ({case.title}). Nothing was changed.")
    await env["ben"].command(SOC, f"/responder assign {case.id} anyway")
    await env["ben"].reads(f"You own the case 🟠 HIGH {case.title} ({case.id}) now.")
    assert [one.id for one in await env.client.open_cases("ben@responder-bot.local")] == [case.id]
    await env["ben"].command(SOC, f"/responder unassign {case.id}")
    await env["ben"].reads(f"{case.id} is no alert, it is a case: `/responder alert {case.id}` shows it.")
    await env["eve"].command(SOC, f"/responder assign {case.id} anyway")
    await env["eve"].reads("You can't ")


async def test_who_may_only_read_is_offered_nothing_else_where_only_they_look(env: FeatureEnvironment) -> None:
    alert, _ = await env.create_alert(), await env.create_alert(sourceRef="2")
    await env.client.run({"responderId": "Wait_1_0", "objectType": "alert", "objectId": alert.id})
    for name in ("anna", "eve"):
        await env[name].command(SOC, f"/responder alert {alert.id}")
        shown = await env[name].sees(modal("*Facts*", "*Wait*"))
        offered = ["Assign to me" in labels_of(shown), bool(labels_of(shown)), ids.MENU in text_of(shown)]
        assert offered == [name == "anna"] * 3
    await env["eve"].command(SOC, "/responder find beacon")
    found = await env["eve"].sees(modal("newest day first"))
    assert labels_of(found) == ["Details", "Details"]
    await env["eve"].presses("Details", found, beside=alert.id)
    await env["eve"].sees(modal("*Facts*"))
    await env.release_responder()
