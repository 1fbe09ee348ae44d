"""Approvers are told: in the thread, in direct messages and in the App Home."""

from bot.block_kit import ids
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import app_home, card_of, direct_message, direct_messages, modal, text_of
from tests.bot.running import SOC


async def test_who_is_asked_approves_from_a_direct_message(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("ben")
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
    await env.client.run({**body, "parameters": {"minutes": 60, "reason": "lateral movement to 10.0.0.9"}})
    request = await env["ben"].sees(direct_message("asks · "))
    shown = text_of(request)
    for part in (
        "*Isolate on ~",
        "minutes: 60",
        "lateral movement to 10[.]0[.]0[.]9",
        "1 approval, answer by",
        "HIGH",
    ):
        assert part in shown
    assert f"/archives/{SOC}/p{card['ts'].replace('.', '')}|{alert.title}>" in shown
    assert request["text"] == f"HIGH: Isolate? {alert.title} ({alert.id}), asked by admin"
    await env["ben"].confirms("Approve", request)
    decided = await env["lea"].sees(direct_message("Approved by ben."))
    assert ids.APPROVE not in text_of(decided)
    assert (await env.ended_run(alert)).status == "Success"
    assert len([m for m in await env["ben"].sees(direct_messages) if not m.get("ephemeral")]) == 1


async def test_nobody_is_told_who_may_not_see_or_decide(env: FeatureEnvironment) -> None:
    red = await env.create_alert(tlp=3)
    await env["ben"].sees(card_of(red))
    await env["ben"].command(SOC, f"/responder run isolate {red.id}")
    await env["lea"].sees(direct_message("asks · "))
    keys = {m.key.split(":")[3] for m in await env.bot.outbox.messages_of(red.id) if m.key.startswith("ask:")}
    assert keys == {"U0LEA"}  # anna may see up to TLP:AMBER, ben asked for it


async def test_a_direct_request_is_withheld_once_its_reader_may_not_see_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["ben"].sees(card_of(alert))
    body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
    await env.client.run({**body, "parameters": {"reason": "lemurs"}})
    assert "lemurs" in text_of(await env["anna"].sees(direct_message("asks · ")))
    await env.core.send("PATCH", f"/api/alert/{alert.id}", {"tlp": 3})
    withheld = text_of(await env["anna"].sees(direct_message("details withheld")))
    assert "lemurs" not in withheld
    assert "Beacon" not in withheld
    assert ids.APPROVE not in withheld


async def test_home_has_a_line_for_what_waits_for_approval_and_review_all_that_a_decision_needs(
    env: FeatureEnvironment,
) -> None:
    alert, red = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3, title="Lemur calls home")
    card = await env["ben"].sees(card_of(alert))
    for one in (alert, red):
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": one.id}
        await env.client.run({**body, "parameters": {"reason": "lateral movement"}})
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home())
    shown = text_of(home)
    for part in ("*Waiting for your approval* (1)", "🟠 *Isolate on ", "1 approval, answer by ", "Review"):
        assert part in shown
    assert "lateral movement" not in shown
    assert f"/archives/{SOC}/p{card['ts'].replace('.', '')}|{alert.title}>" in shown
    assert red.id not in shown  # anna may see up to TLP:AMBER
    form = await env["anna"].confirms("Review", home)
    assert "• reason: lateral movement" in text_of(form)
    assert '"Deny"' in text_of(form)
    assert (await env.ended_run(alert)).status == "Success"
    decided = await env["anna"].sees(app_home(without="*Waiting for your approval*"))
    assert "Approved by anna" not in text_of(decided)


async def test_home_lists_own_alerts_cases_and_runs_and_what_nobody_works_on(env: FeatureEnvironment) -> None:
    mine, other = await env.create_alert(), await env.create_alert(sourceRef="other", title="Somebody else's")
    await env.create_alert(sourceRef="red", tlp=3, title="Not for anna")
    free = await env.create_alert(sourceRef="free", title="Nobody's yet")
    in_case = await env.create_alert(sourceRef="case", title="Ransomware")
    await env["anna"].command(SOC, f"/responder case {in_case.id}")
    await env["anna"].submits(await env["anna"].sees(modal("The case has its title")))
    await env["anna"].sees(card_of(in_case, "*in case ~"))
    await env["anna"].sees(card_of(mine))
    await env.core.send("PATCH", f"/api/alert/{mine.id}", {"assignee": "anna@responder-bot.local"})
    await env["anna"].command(SOC, f"/responder run tell {other.id}")
    await env["anna"].sees(card_of(other, "*Tell*"))
    await env.ended_run(other)
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home())
    shown = text_of(home)
    assert "*Your alerts and cases* (2)" in shown
    assert "🟠 case HIGH Ransomware (" in shown
    assert "*Assigned to nobody* (1)" in shown
    assert "Not for anna" not in shown
    assert "🟠 HIGH <" in shown
    assert f"|{mine.title}> ({mine.id}) · " in shown
    assert "*Your last runs* (1)" in shown
    await env["anna"].presses("Help", home)
    await env["anna"].sees(modal("`/responder list ~id [NAME]`"))
    await env["anna"].presses("Assign to me", home, beside=free.id)
    await env["anna"].sees(app_home("*Your alerts and cases* (3)"))
    assert (await env.client.alert(free.id)).assignee == "anna@responder-bot.local"
    await env["lea"].open_home()
    assert "*Your alerts and cases*" not in text_of(await env["lea"].sees(app_home()))


async def test_home_finds_an_approval_among_many_waiting_runs_and_stays_small(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=str(n), title=f"Beacon {n}") for n in range(12)]
    alerts.insert(0, await env.create_alert(sourceRef="worst", title="Ransomware", severity=4))
    for alert in alerts:
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
        await env.client.run({**body, "parameters": {"reason": "x" * 5000}})
    await env["ben"].open_home()
    home = await env["ben"].sees(app_home())
    shown = text_of(home)
    assert "*Waiting for your approval* (13)" in shown
    assert "and 10 more" in shown
    assert shown.index("Ransomware") < shown.index("Beacon 11") < shown.index("Beacon 10")
    assert len(shown[: shown.index("*Assigned to nobody*")]) < 6000  # five sections: it fits a phone's screen
    await env["ben"].presses("Show all", home)
    assert text_of(await env["ben"].sees(modal("*Waiting for your approval* (13)"))).count("Beacon ") == 12
