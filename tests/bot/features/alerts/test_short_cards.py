"""What a card and a list leave out, and what they suggest first."""

from pathlib import Path

from bot.block_kit import ids
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import card_of, modal, text_of, within_limits
from tests.bot.running import SOC


async def test_a_fresh_card_has_five_lines_and_leaves_levels_and_tags_to_details(env: FeatureEnvironment) -> None:
    _, card = await env.alert_and_card("anna", tags=["c2", "lab"])
    shown = text_of(within_limits(card))
    texts = [b.get("text", {}).get("text") or b["elements"][0].get("text", "") for b in card["blocks"][:-1]]
    lines = "\n".join(map(str, texts)).split("\n")
    assert len(lines) == 4, lines  # and the buttons
    assert "PAP" not in shown
    assert "#c2" not in shown
    await env["anna"].presses("Details", card)
    details = text_of(await env["anna"].sees(modal("PAP:AMBER")))
    assert "`c2`" in details


async def test_a_list_suggests_what_contains_and_closing_asks(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0"}}) as env:
        alert = await env.create_alert(severity=4)
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        assert "run Block ~1" in text_of(await env["anna"].sees(modal("*Can run")))
        await env["anna"].command(SOC, f"/responder run close as false positive {alert.id}")
        await env["anna"].sees(modal("Closes the alert"))
        assert (await env.client.alert(alert.id)).status == "New"


async def test_runs_that_were_undone_share_a_line_that_says_so(tmp_path: Path) -> None:
    rules = {"Isolate": {"undo": "Tell_1_0", "target": "ip", "approval": 0}}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert()
        for _ in range(3):
            run = await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id})
            await env.ended_run(alert)
        card = await env["anna"].sees(card_of(alert, f"action_undo:{run.id}"))
        assert text_of(card).count("is in force until somebody undoes it") == 1
        await env["anna"].confirms("Undo now", card, beside=f"action_undo:{run.id}")
        await env["anna"].sees(card_of(alert, "🔓 *Isolate*"))
        await env.client.mark_alert_unread(alert.id)
        undone = await env["anna"].sees(card_of(alert, "3 runs, all undone · the last by admin, "))
        assert text_of(undone).count(" · undone") == 1
        assert "in force" not in text_of(undone)
        assert ids.UNDO not in text_of(undone)


async def test_alert_with_the_id_of_a_case_shows_the_case(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(title="Ransomware on LT-0198")
    case = await env.client.create_case_from_alert(alert.id)
    await env.client.add_task(case.id, {"title": "Call the owner"})
    await env["anna"].command(SOC, f"/responder alert {case.id}")
    shown = text_of(await env["anna"].sees(modal("Call the owner")))
    assert "Ransomware on LT-0198" in shown
    assert "owner " in shown


async def test_the_menu_of_a_host_lists_what_acts_on_it_through_the_alert(tmp_path: Path) -> None:
    rules = {"Isolate": {"undo": "Tell_1_0", "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env:
        alert, card = await env.alert_and_card("anna")
        menu = next(b for b in card["blocks"] if b.get("accessory", {}).get("type") == "external_select")
        assert menu["accessory"]["placeholder"]["text"] == "Act on ip 203[.]0[.]113[.]7"
        await env["anna"].chooses("Isolate", card, beside="Act on ip 203[.]0[.]113[.]7")
        question = await env["anna"].sees(modal("203[.]0[.]113[.]7"))
        await env["anna"].presses("Ask to isolate", question)
        await env["anna"].sees(card_of(alert, "*Isolate* on ip 203[.]0[.]113[.]7"))


async def test_the_menu_of_a_host_runs_on_the_alert_of_its_card_also_in_a_case(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {name: {"target": "ip"} for name in ("Isolate", "Quarantine")}) as env:
        case = await env.client.create_case_from_alert((await env.create_alert()).id)
        alert, _ = await env.alert_and_card("anna", sourceRef="2025-2")
        await env.client.merge_alerts([alert.id], case.id)
        card = await env["anna"].sees(card_of(alert, f"*in case {case.id}*"))
        for name in ("Isolate", "Quarantine"):  # which is for observables as well
            await env["anna"].chooses(name, card, beside="Act on ip 203[.]0[.]113[.]7")
            card = await env["anna"].sees(card_of(alert, f"*{name}* on ip 203[.]0[.]113[.]7"))
        typed = str(await env["anna"].searches(card, "quarantine 203.0.113.7", beside="Run a responder"))
        (artifact,) = (await env.client.alert(alert.id)).artifacts  # which is the case's
        assert f"'{alert.id}={artifact.id}:" in typed
        groups = await env["anna"].searches(card, beside="Act on ip 203[.]0[.]113[.]7")
        assert "Isolate" not in str([group for group in groups if "Can't run" in str(group)])
        assert {run.object_id for run in await env.client.actions("alert", alert.id)} == {alert.id}
