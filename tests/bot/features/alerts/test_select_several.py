"""Several alerts are closed, assigned and run on at once: from a search, the App Home and a group."""

from pathlib import Path
from typing import Any

from core.models import Alert
from tests.bot.features.alert_groups.grouping import group_card, grouping_bot, post
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import app_home, message_in, modal, on_phone, text_of
from tests.bot.running import SOC


async def twenty(env: FeatureEnvironment) -> list[Alert]:
    return [await env.create_alert(sourceRef=str(n), title=f"Lemur {'abcdefghijklmnopqrst'[n]}") for n in range(20)]


async def selected(env: FeatureEnvironment) -> dict[str, Any]:
    """The modal with what can be done with all alerts that a search has found."""
    await env["anna"].command(SOC, "/responder find lemur")
    found = await env["anna"].sees(modal("Select several"))
    await env["anna"].presses("Select several", found)
    form = await env["anna"].sees(modal("Nothing happens yet."))
    assert form["title"]["text"] == "Select several"
    element = form["blocks"][0]["element"]
    every, *each = element["options"]
    assert (every["text"]["text"], len(each)) == ("All 20 of them", 20)
    assert {one["description"]["text"] for one in each} == {"🟠 HIGH · ip 203[.]0[.]113[.]7"}
    assert "initial_options" not in element
    await env["anna"].submits(form, targets=[every["value"]])
    return await env["anna"].sees(modal("Selected (20)"))


async def test_twenty_different_alerts_are_closed_in_six_clicks(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    shown = await selected(env)  # three clicks
    await env["anna"].presses("Close ...", shown)
    asks = await env["anna"].sees(modal("20 alerts: 20 high."))
    assert all(f"🟠 ip 203[.]0[.]113[.]7, for HIGH {alert.title} ({alert.id})" in text_of(asks) for alert in alerts)
    await env["anna"].submits(asks, reason="A drill")
    await env["anna"].sees(modal("20 alerts closed."))
    closed = [await env.client.alert(alert.id) for alert in alerts]
    assert {(one.status, one.summary) for one in closed} == {("Ignored", "A drill")}


async def test_the_worst_is_named_first_in_whatever_order_they_were_clicked(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=f"{n}", title=f"Lemur {n}", severity=n) for n in (2, 3, 4)]
    await env["anna"].command(SOC, "/responder find lemur")
    await env["anna"].presses("Select several", await env["anna"].sees(modal("Select several")))
    form = await env["anna"].sees(modal("Nothing happens yet."))
    await env["anna"].submits(form, targets=[alert.id for alert in alerts])
    await env["anna"].presses("Close ...", await env["anna"].sees(modal("Selected (3)")))
    asks = text_of(await env["anna"].sees(modal("3 alerts: 1 critical, 1 high, 1 medium.")))
    assert asks.index("Lemur 4") < asks.index("Lemur 3") < asks.index("Lemur 2")


async def test_two_long_names_of_hosts_are_told_apart_in_the_menu_and_on_their_cards(env: FeatureEnvironment) -> None:
    both = ("encrypting-node-01", "backup-node-02")
    for severity, host in enumerate((f"srv-fileserver-production-emea-frankfurt-rack17-{what}" for what in both), 3):
        named = [{"dataType": "hostname", "data": f"{host}.corp.example.net"}]
        await env.create_alert(sourceRef=host, title=f"Lemur {severity}", severity=severity, artifacts=named)
    await env["anna"].command(SOC, "/responder find lemur")
    await env["anna"].presses("Select several", await env["anna"].sees(modal("Select several")))
    form = await env["anna"].sees(modal("Nothing happens yet."))
    _, *each = form["blocks"][0]["element"]["options"]
    assert sorted(one["description"]["text"] for one in each) == [
        "🔴 CRITICAL · hostname srv-fi…17-backup-node-02[.]corp[.]example[.]net",
        "🟠 HIGH · hostname srv-fi…17-encrypting-node-01[.]corp[.]example[.]net",
    ]
    for end in ("pting-node-01", "ackup-node-02"):
        await env["anna"].sees(message_in(SOC, f"Act on hostname srv-fileserver-production-…{end}"))


async def test_several_alerts_are_assigned_but_those_of_others(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    await env.client.assign_alert(alerts[0].id, "ben@responder-bot.local")
    shown = await selected(env)
    await env["anna"].presses("Assign to me", shown)
    await env["anna"].sees(modal(f"You work on 19 alerts now. ben works on {alerts[0].id} already."))
    names = [(await env.client.alert(alert.id)).assignee for alert in alerts]
    assert names == ["ben@responder-bot.local", *["anna@responder-bot.local"] * 19]
    await env["anna"].presses("Assign to me", await selected(env))
    ben = f"ben works on {alerts[0].id} already."
    shown = await env["anna"].sees(modal("Nothing was changed. You work on ", f"{alerts[1].id} already. {ben}"))
    await env["anna"].close(shown["id"])
    await env["anna"].presses("Close ...", await selected(env))
    asks = text_of(await env["anna"].sees(modal("20 alerts: 20 high.")))
    assert f"*Somebody else works on*:\\n👤 {alerts[0].id}: ben" in asks
    assert asks.count("👤") == 1


async def test_several_alerts_become_one_case_and_later_ones_go_into_it(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    await env["anna"].presses("Make a case", await selected(env))
    asks = await env["anna"].sees(modal("20 alerts: 20 high.", "no button takes one out."))
    assert {(await env.client.alert(alert.id)).case for alert in alerts} == {None}
    await env["anna"].submits(asks)
    made = await env["anna"].sees(modal("20 alerts went into case "))
    case_id = (await env.client.alert(alerts[0].id)).case
    assert {(await env.client.alert(alert.id)).case for alert in alerts} == {case_id}
    await env["anna"].presses("Show case", made)
    await env["anna"].sees(modal(f"Case {case_id}"))
    later = await env.create_alert(sourceRef="later", title="Lemur again")
    await env["anna"].command(SOC, "/responder find lemur")
    await env["anna"].presses("Select several", await env["anna"].sees(modal("*21 alerts*")))
    form = await env["anna"].sees(modal("Nothing happens yet."))
    await env["anna"].submits(form, targets=[later.id, alerts[3].id])
    await env["anna"].presses("Make a case", await env["anna"].sees(modal("Selected (2)")))
    await env["anna"].submits(await env["anna"].sees(modal(f"They go into case {case_id}, where others of these are.")))
    await env["anna"].sees(modal(f"Lemur again ({later.id}) went into case {case_id}."))
    assert (await env.client.alert(later.id)).case == case_id


async def test_one_reads_what_a_case_of_several_alerts_shows_to_more_people(env: FeatureEnvironment) -> None:
    worst = await env.create_alert(sourceRef="amber", title="Lemur", severity=4)
    red = [await env.create_alert(sourceRef=f"red {n}", title="Lemur", tlp=3) for n in range(2)]
    for targets, which in (([worst.id, red[0].id], f"{red[0].id} is"), ([worst.id, red[1].id], f"{red[1].id} is")):
        await env["ben"].command(SOC, "/responder find lemur")
        await env["ben"].presses("Select several", await env["ben"].sees(modal("Select several")))
        await env["ben"].submits(await env["ben"].sees(modal("Nothing happens yet.")), targets=targets)
        await env["ben"].presses("Make a case", await env["ben"].sees(modal("Selected (2)")))
        asks = await env["ben"].sees(modal(f"⚠️ {which} TLP:RED: whoever may see the case then sees its tags"))
        assert "observables that are not above TLP:AMBER themselves" in text_of(asks)
        await env["ben"].submits(asks)  # the second goes into the case of the first
        await env["ben"].sees(modal("went into case "))


async def test_the_home_selects_among_all_open_alerts(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home("(20)"))
    await env["anna"].presses("Select several", home)
    form = await env["anna"].sees(modal("Open alerts; typing searches all, closed ones too"))
    assert "Then: assign or close them, make a case, or run a responder. Nothing happens yet." in text_of(form)
    assert form["title"]["text"] == "Select several"
    values = [option["value"] for group in await env["anna"].searches(form) for option in group["options"]]
    assert sorted(values) == sorted(alert.id for alert in alerts)


async def test_who_starts_several_in_home_reads_there_how_it_goes_and_is_rung_only_if_one_fails(
    env: FeatureEnvironment,
) -> None:
    anna, alerts = env["anna"], await twenty(env)
    await anna.connect()
    for title, ended, on in (("Tell", "2 of 2 succeeded", alerts[:2]), ("Fail", "2 failed", alerts[2:4])):
        await anna.open_home()
        await anna.presses("Select several", await anna.sees(app_home("Select several")))
        form = await anna.sees(modal("Open alerts; typing searches all, closed ones too"))
        await anna.submits(form, targets=[alert.id for alert in on])
        await anna.chooses(title, await anna.sees(modal("Selected (2)")), "Responder")
        await anna.submits(await anna.sees(modal("Each is checked")))
        told = await anna.sees(modal(f"Started *{title}* on ", "Your Home, opened again, tells how it goes."))
        await anna.sees(app_home(f"*{title}* on 2 targets: "))
        for alert in on:
            await env.ended_run(alert)
        await anna.close(told["id"])
        await anna.open_home()
        await anna.sees(app_home(f"*{title}* on 2 targets: ", ended))
    await anna.sees(on_phone("Failed: Fail on "))
    await all_sent(env.bot)
    assert len(anna.phone) == 1
    await anna.presses("Select several", await anna.sees(app_home("Select several")))
    form = await anna.sees(modal("Open alerts; typing searches all, closed ones too"))
    await anna.submits(form, targets=[alert.id for alert in alerts[4:6]])
    await anna.chooses("Isolate", await anna.sees(modal("Selected (2)")), "Responder")
    await anna.submits(await anna.sees(modal("Each is checked")))
    await anna.sees(modal("waits for approval", "A direct message tells how it goes."))  # of what was decided, or not


async def test_several_of_a_group_are_chosen_among_those_that_the_person_may_see(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(5))
        (secret,) = await post(env, range(5, 6), tlp=3)
        card = await group_card(anna, 6)
        await anna.presses("Show alerts", card)
        page = await anna.sees(modal("1 to 6 of 6"))
        await anna.presses("Select several", page)
        form = await anna.sees(modal("Alerts of this group"))
        assert form["title"]["text"] == "Select several"
        element = form["blocks"][0]["element"]
        assert {option["value"] for option in element["options"][1:]} == set(alert_ids)
        await anna.submits(form, targets=alert_ids[:2])
        chosen = await anna.sees(modal("Selected (2)"))
        await anna.presses("Close ...", chosen)
        asks = await anna.sees(modal("2 alerts: 2 low."))
        await anna.submits(asks, reason="A drill")
        await anna.sees(modal("2 alerts closed."))
        statuses = [(await env.client.alert(one)).status for one in (*alert_ids, secret)]
    assert statuses == [*["Ignored"] * 2, *["New"] * 4]
