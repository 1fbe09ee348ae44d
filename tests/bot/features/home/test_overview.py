"""What failed, what somebody started and what waits for approval, over all alerts, as commands and in the App Home."""

from pathlib import Path

from bot.block_kit import ids
from core.client import CoreClient
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.environment import FeatureEnvironment, card_in, feature_environment, fine, text_of, topmost
from tests.bot.running import SOC, approve

SHOWN = ids.NOTICE_VIEW


async def test_failed_lists_what_failed_for_anybody_and_repeats_it(env: FeatureEnvironment) -> None:
    alert, red = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3, title="Lemur calls home")
    await env.card_of("ben", red)
    for one in (alert, red):
        await env["ben"].command(SOC, f"/responder run fail {one.id}")
        await env.ephemeral("ben", f"Started Fail on {one.id}")
        await env.ended_run(one)
    await env["anna"].command(SOC, "/responder failed")
    shown = fine(await env.until("anna", topmost(SHOWN, "*Failed or expired in the last day* (1)")))
    words = text_of(shown)
    assert "The firewall said no." in words
    assert f"|{alert.title}> ({alert.id})" in words
    assert "1 run above your clearance" in words
    assert red.id not in words
    await env["anna"].click(None, view_id=shown["id"], action_id=button(shown, ids.RUN_AGAIN))
    await env.until("anna", topmost(SHOWN, f"Started Fail on {alert.id}"))
    assert (await env.ended_run(alert)).created_by.startswith("anna")
    assert len(await env.client.actions("alert", alert.id)) == 2
    await env["eve"].command(SOC, "/responder failed")
    assert ids.RUN_AGAIN not in text_of(
        await env.until("eve", topmost(SHOWN, "*Failed or expired in the last day* (2)"))
    )


async def test_pending_is_decided_in_the_list_and_shows_what_waits_for_others(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.card_of("ben", alert)
    await env["ben"].command(SOC, f"/responder run isolate {alert.id}")
    await env.until("ben", lambda s: card_in(s, SOC, alert.id, "needs 1 approval"))
    await env["ben"].command(SOC, "/responder pending")
    own = text_of(fine(await env.until("ben", topmost(SHOWN, "*Waiting for others* (1)"))))
    assert ids.APPROVE not in own
    assert ids.CANCEL in own
    await env["anna"].command(SOC, "/responder pending")
    shown = fine(await env.until("anna", topmost(SHOWN, "*Waiting for your approval* (1)")))
    await approve(env["anna"], None, view_id=shown["id"], action_id=button(shown, ids.APPROVE))
    await env.until("anna", topmost(SHOWN, f"You approved Isolate on {alert.id}"))
    assert (await env.ended_run(alert)).status == "Success"


async def test_who_may_not_approve_a_run_is_not_asked_in_a_list(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"approve_by": ["lea"]}}) as env:
        alert = await env.create_alert()
        await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id})
        for name, head in (("ben", "Waiting for others"), ("lea", "Waiting for your approval")):
            await env[name].command(SOC, "/responder pending")
            await env.until(name, topmost(SHOWN, f"*{head}* (1)"))


async def test_mine_and_the_home_show_the_newest_runs_of_many(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=str(n)) for n in range(10)]
    async with CoreClient(env.core.url, env.service_key) as service:
        anna = service.as_user("anna@responder-bot.local")
        for alert in alerts:
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
            await anna.cancel((await anna.run(body)).id)
    await env["anna"].open_home()
    home = text_of(await env.until("anna", lambda s: s.home))
    assert f"({alerts[-1].id})" in home
    assert f"({alerts[0].id})" not in home
    await env["anna"].command(SOC, "/responder mine")
    mine = text_of(fine(await env.until("anna", topmost(SHOWN, "*Your runs* (10)"))))
    assert all(f"({alert.id})" in mine for alert in alerts)


async def test_the_home_repeats_what_failed(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env.card_of("anna", alert)
    await env["anna"].command(SOC, f"/responder run fail {alert.id}")
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, "*Fail*"))
    await env.ended_run(alert)
    await env["anna"].open_home()
    home = fine(await env.until("anna", lambda s: s.home if s.home and "said no" in text_of(s.home) else None))
    await env["anna"].click(None, view_id=home["id"], action_id=button(home, ids.RUN_AGAIN))
    await env.until("anna", lambda s: s.home if s.home and s.home["hash"] != home["hash"] else None)
    assert len(await env.client.actions("alert", alert.id)) == 2
