"""What failed, what somebody started and what waits for approval, over all alerts, as commands and in the App Home."""

from pathlib import Path

from bot.block_kit import ids
from bot.features.home import views
from bot.features.home.views import MAX_LINES
from core.client import CoreClient
from core.models import Person
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import app_home, card_of, ephemeral, modal, text_of
from tests.bot.running import NO_CARDS, SOC


async def test_failed_lists_what_failed_for_anybody_and_repeats_it(env: FeatureEnvironment) -> None:
    alert, red = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3, title="Lemur calls home")
    await env["ben"].sees(card_of(red))
    for one in (alert, red):
        await env["ben"].command(SOC, f"/responder run fail {one.id}")
        await env["ben"].sees(ephemeral(f"({one.id}). "))
        await env.ended_run(one)
    await env["anna"].command(SOC, "/responder failed")
    shown = await env["anna"].sees(modal("*Failed or expired in the last day* (1)"))
    words = text_of(shown)
    assert "The firewall said no." in words
    assert f"|{alert.title}> ({alert.id})" in words
    assert "1 run above your clearance" in words
    assert red.id not in words
    await env["anna"].presses("Run again", shown)
    await env["anna"].sees(modal(f"({alert.id}). ", "and thread tell how it goes."))
    assert (await env.ended_run(alert)).created_by.startswith("anna")
    assert len(await env.client.actions("alert", alert.id)) == 2
    await env["eve"].command(SOC, "/responder failed")
    assert ids.RUN_AGAIN not in text_of(await env["eve"].sees(modal("*Failed or expired in the last day* (2)")))


async def test_pending_is_decided_in_the_list_and_shows_what_waits_for_others(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["ben"].sees(card_of(alert))
    await env["ben"].command(SOC, f"/responder run isolate {alert.id}")
    await env["ben"].sees(card_of(alert, "needs 1 approval"))
    await env["ben"].command(SOC, "/responder pending")
    own = text_of(await env["ben"].sees(modal("*Waiting for others* (1)")))
    assert ids.APPROVE not in own
    assert ids.WITHDRAW in own
    await env["eve"].command(SOC, "/responder pending")
    read = text_of(await env["eve"].sees(modal("*Waiting for others* (1)")))
    assert ids.WITHDRAW not in read
    assert alert.id in read
    await env["anna"].command(SOC, "/responder pending")
    shown = await env["anna"].sees(modal("*Waiting for your approval* (1)"))
    await env["anna"].confirms("Review", shown)
    await env["anna"].sees(modal(f"You approved Isolate on {alert.id}"))
    assert (await env.ended_run(alert)).status == "Success"


async def test_mine_and_the_home_show_the_newest_runs_of_many(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=str(n)) for n in range(10)]
    async with CoreClient(env.core.url, env.service_key) as service:
        anna = service.as_user("anna@responder-bot.local")
        for alert in alerts:
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
            await anna.cancel((await anna.run(body)).id)
    await env["anna"].open_home()
    home = text_of(await env["anna"].sees(app_home()))
    assert f"({alerts[-1].id})" in home
    assert f"({alerts[0].id})" not in home
    await env["anna"].command(SOC, "/responder mine")
    mine = text_of(await env["anna"].sees(modal("*Your runs* (10)")))
    assert all(f"({alert.id})" in mine for alert in alerts)


async def test_the_home_repeats_what_failed(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].sees(card_of(alert))
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env["anna"].sees(card_of(alert, "*Fail*"))
    await env.ended_run(alert)
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home("said no"))
    await env["anna"].presses("Run again", home)
    await env["anna"].sees(lambda view: view.home and view.home["hash"] != home["hash"])
    await env.ended_run(alert)
    assert len(await env.client.actions("alert", alert.id)) == 2
    await env["anna"].open_home()
    again = await env["anna"].sees(app_home("*Failed or expired in the last day* (2)", "You see up to TLP:AMBER."))
    assert text_of(again).partition("*Failed or expired")[2].count(f"> ({alert.id})") == 1
    assert "You see up to" in text_of({"blocks": again["blocks"][-2:]})


async def test_a_bulk_counts_once_with_its_true_numbers_and_hides_nothing_older(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60}}
    async with feature_environment(tmp_path, rules, channels=NO_CARDS) as env:
        alerts = [await env.create_alert(sourceRef=str(n)) for n in range(MAX_LINES + 1)]
        targets = [{"objectType": "alert", "objectId": alert.id} for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as service:
            anna = service.as_user("anna@responder-bot.local")
            for name in ("Shun_1_0", "Fail_1_0"):
                await anna.run({"responderId": name, **targets[0]})
                await env.ended_run(alerts[0])
            await anna.run_bulk({"responderId": "Fail_1_0", "targets": targets})
        for alert in alerts:
            await env.ended_run(alert)
        await env["anna"].command(SOC, "/responder mine")
        mine = text_of(await env["anna"].sees(modal("*Your runs* (3)")))
        assert "❌ *Fail* on 21 targets: 0 of 21 succeeded, 21 failed\\n🟠 HIGH " in mine
        assert mine.index("🔒 *Shun* ") < mine.index("*Fail* on 21 targets")
        await env["anna"].open_home()
        await env["anna"].sees(app_home("*Failed or expired in the last day* (2)"))


def test_a_list_says_that_there_are_older_runs() -> None:
    anna = Person(login="anna", profile="analyst", permissions=[], clearance=2)
    shown = views.run_list("Your runs", [], anna, button=lambda intent: "-", is_all=False)
    assert "there are older ones" in text_of(shown.payload())
