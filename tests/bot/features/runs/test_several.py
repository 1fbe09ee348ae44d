"""Choose several observables, or several alerts, and run a responder on them: two forms."""

import json
from pathlib import Path
from typing import Any

from tests.bot.features.bulks.bulk import alerts, asked, shown, start
from tests.bot.features.environment import feature_environment
from tests.bot.people import Person, card_of, field_of, modal, text_of
from tests.bot.running import SOC


async def offered(person: Person, form: dict[str, Any], typed: str = "") -> list[str]:
    """The ids that the menu of objects lists."""
    return [option["value"] for group in await person.searches(form, typed) for option in group["options"]]


async def choose_responder(person: Person, title: str) -> str:
    """Choose a responder for what was chosen; its description. The same form then asks for the rest."""
    form = await person.sees(modal("Selected (", "*Responder*"))
    assert form.get("submit") is None  # the form that follows takes its place, with the deed where a Next would be
    await person.chooses(title, form, "Responder")
    (menu,) = [block["accessory"] for block in form["blocks"] if block.get("block_id") == "responder"]
    (option,) = [one for one in menu["options"] if one["text"]["text"] == title]
    return str(option["description"]["text"])


async def run_all(person: Person, label: str, words: str, **fields: Any) -> str:
    """Fill in and submit the form with these words, whose button is the deed; what it said."""
    form = await person.sees(modal(words, "Each is checked"))
    assert form["submit"]["text"] == label
    await person.submits(form, **fields)
    await person.sees(modal(f"One message in <#{SOC}> tells how it goes."))
    return text_of(form)


async def test_several_observables_of_an_alert_are_chosen_in_details_and_run_on_at_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        artifacts: list[dict[str, Any]] = [{"dataType": "ip", "data": f"203.0.113.{n}"} for n in range(4)]
        artifacts += [{"dataType": "domain", "data": "evil.example"}]
        artifacts += [{"dataType": "ip", "data": "198.51.100.9", "tlp": 3}]
        alert = await env.create_alert(artifacts=artifacts)
        by_data = {one.data: one.id for one in alert.artifacts}
        await env["anna"].command(SOC, f"/responder alert {alert.id}")
        details = await env["anna"].sees(modal("Run on several"))
        await env["anna"].presses("Run on several", details)
        view = await env["anna"].sees(modal(f"Observables of {alert.id}"))
        visible = [by_data[one["data"]] for one in artifacts[:5]]
        assert await offered(env["anna"], view) == visible
        assert await offered(env["anna"], view, "evil[.]ex") == [by_data["evil.example"]]
        wanted = [by_data["203.0.113.1"], by_data["203.0.113.2"], by_data["evil.example"]]
        await env["anna"].submits(view, targets=wanted)
        assert await choose_responder(env["anna"], "Fail") == "on 2 of 3"
        text = await run_all(env["anna"], "Fail (2)", "Each is checked")
        assert "*Runs on 2 targets*" in text
        assert "*Will be refused on 1 target*\\n• 🟠 domain evil[.]example, for HIGH " in text
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
        listed = await env["anna"].sees(modal("Run on several"))
        await env["anna"].presses("Run on several", listed)
        view = await env["anna"].sees(modal(f"Observables of {case.id}"))
        found = await offered(env["anna"], view)
        assert len(found) == 3
        await env["anna"].submits(view, targets=found[:2])
        assert await choose_responder(env["anna"], "Fail") == "on each"
        await run_all(env["anna"], "Fail (2)", "*Runs on 2 targets*")
        await shown(env, "0 of 2 succeeded, 2 failed")


async def test_what_only_reads_says_for_several_what_it_does_and_that_each_starts_at_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Stall": {"protect": False}}) as env:
        ids = await alerts(env, 2)
        await env["anna"].command(SOC, f"/responder run stall {' '.join(ids)}")
        form = text_of(await env["anna"].sees(modal("*Stall* on *2 targets*")))
        assert ">Watches what a file does." in form
        assert "Starts at once, without approval; *Stop* is on each card while it runs. It puts nothing" in form


async def test_several_alerts_of_the_channel_are_chosen_and_their_inputs_given_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        (secret,) = await alerts(env, 1, tlp=3, title="Nobody here reads this")
        for alert_id in alert_ids:
            await env["anna"].sees(card_of(alert_id))
        await env["anna"].command(SOC, "/responder")
        start = await env["anna"].sees(modal("Run on several alerts"))
        await env["anna"].presses("Run on several alerts", start)
        view = await env["anna"].sees(modal("Alerts; typing searches all"))
        assert await offered(env["anna"], view) == alert_ids[::-1]
        assert secret not in await offered(env["anna"], view, "Nobody here")
        answer = await env["anna"].submits(view, targets=[])
        assert "targets" in answer["errors"]
        await env["anna"].submits(view, targets=alert_ids[:2])
        await choose_responder(env["anna"], "Ban an address")
        given = {"reason": "C2", "list": "inbound", "owner": "U0BEN", "minutes": "5"}
        await run_all(env["anna"], "Ask for approval (2)", "Which list", **given)
        await shown(env, "2 wait for approval")
        for alert_id in alert_ids[:2]:
            (action,) = await env.client.actions("alert", alert_id)
            got = json.loads(action.parameters or "")
            assert (got["reason"], got["list"], got["minutes"]) == ("C2", "inbound", 5)
            assert got["owner"].startswith("ben@")
        assert await env.client.actions("alert", alert_ids[2]) == []


async def test_each_step_names_the_worst_that_the_person_may_see(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        for n in range(7):
            artifacts = [{"dataType": "ip", "data": f"203.0.113.{n}"}, {"dataType": "domain", "data": "c2.example"}]
            await alerts(env, 1, severity=4 if n == 5 else 2, artifacts=artifacts)
        (secret,) = await alerts(env, 1, tlp=3, severity=4, title="Nobody here", description="other")
        await env["ben"].command(SOC, "/responder find beacon")
        await env["ben"].presses("Select several", await env["ben"].sees(modal("Select several")))
        chosen = await env["ben"].sees(modal("All 7 of them"))
        ids = [option["value"] for option in field_of(chosen, "targets")["element"]["options"][1:]]
        await env["ben"].submits(chosen, targets=ids)
        step = text_of(await env["ben"].sees(modal("*Responder*")))
        assert await choose_responder(env["ben"], "Ban an address") == "needs 1 approval · on each"
        form = text_of(await env["ben"].sees(modal("Which list")))
        await env["anna"].command(SOC, f"/responder run ban an address {secret} {' '.join(ids)}")
        typed = text_of(await env["anna"].sees(modal("Which list")))
        assert "*7 alerts*\\n• 🔴 CRITICAL ET MALWARE Beacon to known C2 (~" in step  # what runs acts on something
        assert (step.count(")\\n    ↳ ip 203[.]0[.]113[.]"), " more" in step) == (7, False)
        for text in (form, typed):
            assert "*Runs on 7 targets*\\n• 🔴 CRITICAL ET MALWARE Beacon to known C2 (~" in text
            assert text.count("🟡 ") == 6
        assert step.count("🟡 ") == 6
        assert secret not in step + form
        assert "Nobody here" not in typed  # which says that there is nothing to see under that id


async def test_what_was_found_can_be_run_on_and_a_command_asks_for_the_inputs(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 3)
        await alerts(env, 2, title="Something else", tags=["other"], artifacts=[], description="other")
        await env["anna"].command(SOC, "/responder find beacon")
        found = await env["anna"].sees(modal("*3 alerts* with"))
        await env["anna"].presses("Select several", found)
        view = await env["anna"].sees(modal("Alerts found", "All 3 of them"))
        options = field_of(view, "targets")["element"]["options"]
        assert sorted(option["value"] for option in options[1:]) == sorted(alert_ids)
        await env["anna"].submits(view, targets=alert_ids)
        assert await choose_responder(env["anna"], "Tell") == "on each"
        await run_all(env["anna"], "Tell (3)", "*Runs on 3 targets*")
        await shown(env, "3 of 3 succeeded")

        await env["anna"].command(SOC, f"/responder run vendor drop {' and '.join(alert_ids)} reason=C2 minutes=7")
        await run_all(env["anna"], "Drop traffic (3)", "*Runs on 3 targets*", list="outbound")
        await shown(env, "0 of 3 succeeded, 3 failed")
        given = json.loads((await env.client.actions("alert", alert_ids[0]))[0].parameters or "")
        assert (given["reason"], given["minutes"], given["list"]) == ("C2", 7, "outbound")
        assert await asked(env, "anna", "tell", alert_ids)


async def test_a_responder_that_is_refused_on_all_says_why_and_another_can_be_chosen(tmp_path: Path) -> None:
    async with feature_environment(tmp_path) as env:
        alert_ids = await alerts(env, 2)
        await start(env, "anna", "isolate", alert_ids)
        await shown(env, "2 wait for approval")
        await env["anna"].command(SOC, "/responder find beacon")
        await env["anna"].presses("Select several", await env["anna"].sees(modal("Select several")))
        await env["anna"].submits(await env["anna"].sees(modal("All 2 of them")), targets=alert_ids)
        assert await choose_responder(env["anna"], "Isolate") == "needs 1 approval · on 0 of 2, asked for already"
        refused = await env["anna"].sees(modal("*Will be refused on 2 targets*", "Already waiting for approval since"))
        (action,) = await env.client.actions("alert", alert_ids[0])
        assert text_of(refused).count(f", asked by anna; to withdraw all: `/responder cancel {action.bulk}`") == 1
        assert "/responder pending" not in text_of(refused)
        assert (refused["submit"], refused["close"]["text"]) == (None, "Not now")
        await env["anna"].chooses("Fail", refused, "Responder")
        await run_all(env["anna"], "Fail (2)", "*Runs on 2 targets*")
        await shown(env, "0 of 2 succeeded, 2 failed")
