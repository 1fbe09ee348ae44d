"""Choose several observables, or several alerts, and run a responder on them after one question."""

import json
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.bulks.test_bulks import alerts, asked, shown
from tests.bot.features.environment import FeatureEnvironment, feature_environment, fine, text_of, topmost
from tests.bot.features.runs.test_inputs import entered
from tests.bot.running import SOC

TARGETS, RESPONDER = "targets", "responder"


async def offered(env: FeatureEnvironment, name: str, view: dict[str, Any], query: str = "") -> list[str]:
    """What the menu of objects has."""
    found = await env[name].options(view_id=view["id"], action_id=ids.SEVERAL_TARGETS, block_id=TARGETS, query=query)
    return [option["value"] for group in found for option in group["options"]]


async def chosen(env: FeatureEnvironment, name: str, view: dict[str, Any], object_ids: list[str]) -> Any:
    """The next step after these objects were chosen."""
    return await env[name].submit(view["id"], {TARGETS: {ids.SEVERAL_TARGETS: object_ids}})


async def responder(env: FeatureEnvironment, name: str, title: str) -> str:
    """Choose a responder in the second step; its description."""
    view = fine(await env.until(name, topmost(ids.SEVERAL_VIEW, '"block_id": "responder"')))
    menu = next(block for block in view["blocks"] if block["block_id"] == RESPONDER)
    option = next(one for one in menu["element"]["options"] if one["text"]["text"] == title)
    await env[name].submit(view["id"], {RESPONDER: {menu["element"]["action_id"]: option["value"]}})
    return str(option["description"]["text"])


async def run_all(env: FeatureEnvironment, name: str, words: str) -> str:
    """Confirm the question; what it said."""
    question = fine(await env.until(name, topmost(ids.NOTICE_VIEW, words)))
    await env[name].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))
    await env.until(name, topmost(ids.NOTICE_VIEW, "One message tells"))
    return text_of(question)


async def test_several_observables_of_an_alert_are_chosen_in_details_and_run_on_at_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        artifacts: list[dict[str, Any]] = [{"dataType": "ip", "data": f"203.0.113.{n}"} for n in range(4)]
        artifacts += [{"dataType": "domain", "data": "evil.example"}]
        artifacts += [{"dataType": "ip", "data": "198.51.100.9", "tlp": 3}]
        alert = await env.create_alert(artifacts=artifacts)
        by_data = {one.data: one.id for one in alert.artifacts}
        await env["anna"].command(SOC, f"/responder alert {alert.id}")
        details = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Run on several")))
        await env["anna"].click(None, view_id=details["id"], action_id=button(details, ids.SEVERAL))
        view = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, f"Observables of {alert.id}")))
        visible = [by_data[one["data"]] for one in artifacts[:5]]
        assert await offered(env, "anna", view) == visible
        assert await offered(env, "anna", view, "evil[.]ex") == [by_data["evil.example"]]
        wanted = [by_data["203.0.113.1"], by_data["203.0.113.2"], by_data["evil.example"]]
        await chosen(env, "anna", view, wanted)
        assert await responder(env, "anna", "Fail") == "on 2 of 3"
        text = await run_all(env, "anna", "Each is checked")
        assert "*Runs on 2 targets*" in text
        assert f"*Will be refused on 1 target*\\n• {wanted[2]}: " in text
        await shown(env, "0 of 3 succeeded, 2 failed, 1 refused")
        ran = {one: len(await env.client.actions("case_artifact", one)) for one in by_data.values()}
        assert [one for one, times in ran.items() if times] == wanted[:2]
        assert set(ran.values()) == {0, 1}


async def test_several_observables_of_a_case_are_chosen_in_its_list(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        artifacts = [{"dataType": "ip", "data": f"203.0.113.{n}"} for n in range(3)]
        alert = await env.create_alert(artifacts=artifacts)
        case = await env.client.create_case_from_alert(alert.id)
        await env["anna"].command(SOC, f"/responder list {case.id}")
        listed = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Run on several")))
        await env["anna"].click(None, view_id=listed["id"], action_id=button(listed, ids.SEVERAL))
        view = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, f"Observables of {case.id}")))
        found = await offered(env, "anna", view)
        assert len(found) == 3
        await chosen(env, "anna", view, found[:2])
        assert await responder(env, "anna", "Fail") == "on each"
        await run_all(env, "anna", "*Runs on 2 targets*")
        await shown(env, "0 of 2 succeeded, 2 failed")


async def test_several_alerts_of_the_channel_are_chosen_and_their_inputs_given_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        (secret,) = await alerts(env, 1, tlp=3, title="Nobody here reads this")
        for alert_id in alert_ids:
            await env.card_of("anna", await env.client.alert(alert_id))
        await env["anna"].command(SOC, "/responder")
        start = fine(await env.until("anna", topmost(ids.START_VIEW, "Run on several alerts")))
        await env["anna"].click(None, view_id=start["id"], action_id=ids.SEVERAL_ALERTS)
        view = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, "Alerts")))
        assert await offered(env, "anna", view) == alert_ids[::-1]
        assert secret not in await offered(env, "anna", view, "Nobody here")
        answer = await chosen(env, "anna", view, [])
        assert TARGETS in answer["errors"]
        await chosen(env, "anna", view, alert_ids[:2])
        await responder(env, "anna", "Ban an address")
        form = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, "Which list")))
        await env["anna"].submit(form["id"], entered(form, reason="C2", list="inbound", owner="U0BEN", minutes="5"))
        await run_all(env, "anna", "• Which list: inbound")
        await shown(env, "2 wait for approval")
        for alert_id in alert_ids[:2]:
            (action,) = await env.client.actions("alert", alert_id)
            given = json.loads(action.parameters or "")
            assert (given["reason"], given["list"], given["minutes"]) == ("C2", "inbound", 5)
            assert given["owner"].startswith("ben@")
        assert await env.client.actions("alert", alert_ids[2]) == []


async def test_what_was_found_can_be_run_on_and_a_command_asks_for_the_inputs(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        await alerts(env, 2, title="Something else", tags=["other"], artifacts=[], description="other")
        await env["anna"].command(SOC, "/responder find beacon")
        found = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "*3 alerts* with")))
        await env["anna"].click(None, view_id=found["id"], action_id=button(found, ids.SEVERAL))
        view = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, alert_ids[0])))
        menu = next(block["element"] for block in view["blocks"] if block["block_id"] == TARGETS)
        assert sorted(option["value"] for option in menu["options"][1:]) == sorted(alert_ids)
        await chosen(env, "anna", view, alert_ids)
        assert await responder(env, "anna", "Tell") == "on each"
        await run_all(env, "anna", "*Runs on 3 targets*")
        await shown(env, "3 of 3 succeeded")

        await env["anna"].command(SOC, f"/responder run vendor drop {' '.join(alert_ids)} reason=C2 minutes=7")
        form = fine(await env.until("anna", topmost(ids.SEVERAL_VIEW, "Which list")))
        await env["anna"].submit(form["id"], entered(form, list="outbound"))
        await run_all(env, "anna", "*Runs on 3 targets*")
        await shown(env, "0 of 3 succeeded, 3 failed")
        given = json.loads((await env.client.actions("alert", alert_ids[0]))[0].parameters or "")
        assert (given["reason"], given["minutes"], given["list"]) == ("C2", 7, "outbound")
        # Who may only read is told so.
        await env["eve"].command(SOC, "/responder find beacon")
        found = fine(await env.until("eve", topmost(ids.NOTICE_VIEW, "*3 alerts* with")))
        await env["eve"].click(None, view_id=found["id"], action_id=button(found, ids.SEVERAL))
        await env.told("eve", "You can't run responders")
        assert await asked(env, "anna", "tell", alert_ids)
