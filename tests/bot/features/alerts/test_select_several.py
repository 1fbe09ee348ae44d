"""Several alerts are closed, assigned and run on at once: from a search, the App Home and a group."""

from pathlib import Path
from typing import Any

from bot.block_kit import ids
from core.models import Alert
from tests.bot.features.alert_groups import test_alert_groups as groups
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.environment import FeatureEnvironment, fine, text_of, topmost
from tests.bot.running import SOC


async def twenty(env: FeatureEnvironment) -> list[Alert]:
    return [await env.create_alert(sourceRef=str(n), title=f"Lemur {'abcdefghijklmnopqrst'[n]}") for n in range(20)]


async def selected(env: FeatureEnvironment) -> dict[str, Any]:
    """The modal with what can be done with all alerts that a search has found."""
    await env["anna"].command(SOC, "/responder find lemur")
    found = await env.until("anna", topmost(ids.NOTICE_VIEW, "Select several"))
    await env["anna"].click(None, view_id=found["id"], action_id=ids.SEVERAL)
    form = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW)))
    assert form["title"]["text"] == "Alerts found"
    element = form["blocks"][0]["element"]
    every, *each = element["options"]
    assert (every["text"]["text"], len(each)) == ("All 20 of them", 20)
    assert {one["description"]["text"] for one in each} == {"🟠 HIGH · ip 203[.]0[.]113[.]7"}
    assert "initial_options" not in element
    await env["anna"].submit(form["id"], {"targets": {element["action_id"]: [every["value"]]}})
    return fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, "*20 targets*")))


async def test_twenty_different_alerts_are_closed_in_six_clicks(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    shown = await selected(env)  # three clicks
    await env["anna"].click(None, view_id=shown["id"], action_id=ids.SEVERAL_CLOSE)
    asks = fine(await env.until("anna", topmost(ids.CLOSE_ALL_VIEW, "20 alerts: 20 high.")))
    assert all(f"🟠 HIGH {alert.title} ({alert.id})" in text_of(asks) for alert in alerts)
    await env["anna"].submit(asks["id"], {"reason": {"value:reason": "A drill"}})
    await env.until("anna", topmost(ids.NOTICE_VIEW, "20 alerts closed."))
    closed = [await env.client.alert(alert.id) for alert in alerts]
    assert {(one.status, one.summary) for one in closed} == {("Ignored", "A drill")}


async def test_several_alerts_are_assigned_but_those_of_others(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    await env.client.assign_alert(alerts[0].id, "ben@responder-bot.local")
    shown = await selected(env)
    await env["anna"].click(None, view_id=shown["id"], action_id=ids.SEVERAL_ASSIGN)
    await env.until("anna", topmost(ids.NOTICE_VIEW, "You work on 19 alerts now. Others work on 1, which stay theirs."))
    names = [(await env.client.alert(alert.id)).assignee for alert in alerts]
    assert names == ["ben@responder-bot.local", *["anna@responder-bot.local"] * 19]


async def test_the_home_selects_among_all_open_alerts(env: FeatureEnvironment) -> None:
    alerts = await twenty(env)
    await env["anna"].open_home()
    home = fine(await env.until("anna", lambda view: view.home if "(20)" in text_of(view.home or {}) else None))
    await env["anna"].click(None, view_id=home["id"], action_id=button(home, ids.SEVERAL))
    form = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, "Open alerts; typing searches all, closed ones too")))
    assert "Then: assign or close them, or run a responder. Nothing happens yet." in text_of(form)
    assert form["title"]["text"] == "Open alerts"
    options = await env["anna"].options(action_id=ids.SEVERAL_TARGETS, view_id=form["id"])
    values = [option["value"] for group in options for option in group.get("options", [group])]
    assert sorted(values) == sorted(alert.id for alert in alerts)


async def test_several_of_a_group_are_chosen_among_those_that_the_person_may_see(tmp_path: Path) -> None:
    async with groups.grouping_bot(tmp_path) as (env, anna):
        alert_ids = await groups.post(env, range(5))
        (secret,) = await groups.post(env, range(5, 6), tlp=3)
        card = await groups.group_card(anna, 6)
        await anna.click(SOC, card["ts"], action_id=ids.GROUP_ALERTS)
        page = await groups.modal(anna, "1 to 6 of 6")
        await anna.click(None, view_id=page["id"], action_id=ids.SEVERAL)
        form = fine(await anna.until(topmost(ids.SEVERAL_VIEW)))
        assert form["title"]["text"] == "Alerts of this group"
        element = form["blocks"][0]["element"]
        assert {option["value"] for option in element["options"][1:]} == set(alert_ids)
        await anna.submit(form["id"], {"targets": {element["action_id"]: alert_ids[:2]}})
        chosen = fine(await anna.until(topmost(ids.SEVERAL_VIEW, "*2 targets*")))
        await anna.click(None, view_id=chosen["id"], action_id=ids.SEVERAL_CLOSE)
        asks = await anna.until(topmost(ids.CLOSE_ALL_VIEW, "2 alerts: 2 low."))
        await anna.submit(asks["id"], {"reason": {"value:reason": "A drill"}})
        await anna.until(topmost(ids.NOTICE_VIEW, "2 alerts closed."))
        statuses = [(await env.client.alert(one)).status for one in (*alert_ids, secret)]
    assert statuses == [*["Ignored"] * 2, *["New"] * 4]
