"""Running responders from Slack: command, menu, confirmation, duplicate, failure."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.block_kit import ids
from bot.block_kit.elements import actions, button_element
from bot.block_kit.notices import CHANGED
from bot.features.runs.views.request import RunRequest
from bot.message import ButtonIds, Intent
from bot.slack_emulator import EmulatorView
from bot.slack_emulator.elements import all_blocks
from core.authorization import COMMAND_LINE
from core.client import CoreClient
from core.models import Alert, RunTarget
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import app_home, card_of, ephemeral, filled_in, menu_block, modal, reply_to, text_of
from tests.bot.running import SOC


async def test_list_says_what_can_run_and_why_the_rest_cannot(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    async with CoreClient(env.core.url, env.service_key) as bot:
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
        waits = await bot.as_user("anna").run(body)
    assert (await env["anna"].command(SOC, f"/responder list {alert.id[1:]}"))["ok"]
    shown = text_of(await env["anna"].sees(modal("*Can run")))
    assert "\\n• *Tell*\\n" in shown
    assert "• *Ban an address*: needs 1 approval · asks for 8 inputs\\n" in shown
    assert "• *Isolate*: needs 1 approval\\n    ◦ already waiting for approval since <!date^" in shown
    assert "• *Secret*: " in shown
    assert "TLP" in shown.partition("*Secret*")[2]
    assert f", asked by anna; to withdraw it: `/responder cancel {waits.id}`\\n" in shown
    await env["anna"].command(SOC, f"/responder cancel {waits.id}")
    await env["anna"].sees(modal("Withdraw Isolate?"))


async def test_list_of_one_name_says_only_of_that_what_cannot_run(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder list {alert.id} isoalte")
    lists_all = f"`/responder list {alert.id}` lists all."
    none_called = f"There is no responder 'isoalte' for {alert.id}."
    await env["anna"].reads(f"{none_called} Did you mean `/responder list Isolate {alert.id}`? {lists_all}")
    await env["anna"].command(SOC, f"/responder list {alert.id} <zzz>")
    await env["anna"].reads(f"There is no responder '&lt;zzz&gt;' for {alert.id}. {lists_all}")
    await env["anna"].command(SOC, f"/responder list {alert.id} secret")
    assert "Nothing can run" not in text_of(await env["anna"].sees(modal("*Can't run (1)*", "• *Secret*: ")))


async def test_list_is_in_the_order_of_the_menu_what_contains_first_and_on_which_target(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0", "target": "ip"}}) as env:
        alert, card = await env.alert_and_card("anna")
        own = [group for group in await env["anna"].searches(card) if f"lert {alert.id}" in group["label"]["text"]]
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        listed = text_of(await env["anna"].sees(modal("*Can run")))
        lines = [line for line in listed.partition("*Can't run")[0].split("\\n") if line[:1] == "•"]
        assert own[0]["label"]["text"] == f"Contain · Alert {alert.id}"
        assert "• *Isolate*: 203[.]0[.]113[.]7 · needs 1 approval" in lines[: len(own[0]["options"])]
        idle = listed.partition("*Nothing is known to be in force that these would end*")[2].split("\\n")
        assert [line.split("*")[1] for line in idle if line[:1] == "•"] == ["Tell", "Unblock"]
        runnable = [line.split("*")[1] for line in lines if line[:1] == "•"]
        assert runnable == [o["text"]["text"] for group in own for o in group["options"]]
        assert "ip 203[.]0[.]113[.]7 (~2): Block, Isolate, " in listed


async def test_list_folds_what_the_same_can_act_on_and_undoes_only_what_is_in_force(env: FeatureEnvironment) -> None:
    url = f"https://updates.example/{'a' * 280}.exe"
    found = [{"dataType": "ip", "data": f"198.51.100.{n}"} for n in range(1, 61)]
    alert = await env.create_alert(artifacts=[{"dataType": "url", "data": url}, *found])
    shown = f"{url.replace('https://', 'hxxps[://]').replace('.', '[.]')}"
    await env["anna"].command(SOC, f"/responder list {alert.id}")
    before = text_of(await env["anna"].sees(modal("*On its observables*")))
    assert before.count(shown) == 1
    assert before.index("*Can't run (") < before.index("*On its observables*")
    of_observables = before.partition("*On its observables*")[2].partition("*Nothing is known")[0]
    ips = "• ip 198[.]51[.]100[.]1 (~3), ip 198[.]51[.]100[.]2 (~4), ip 198[.]51[.]100[.]3 (~5) and 57 more: Block, "
    assert ips in of_observables
    assert "Unblock" not in of_observables
    await env["anna"].command(SOC, f"/responder run block {alert.id} target=198.51.100.2")
    await env["anna"].submits(await env["anna"].sees(modal("Starts at once")))
    await env.ended_run(alert)
    await env["anna"].command(SOC, f"/responder list {alert.id}")
    after = text_of(await env["anna"].sees(modal("*On its observables*", "is contained already")))
    lines = after.partition("*On its observables*")[2].split("\\n")
    assert [line for line in lines if "Unblock" in line and line.startswith("• ip 198[.]51[.]100[.]2 (~4): ")]
    assert [line for line in lines if "Unblock" not in line and "198[.]51[.]100[.]4 (~6) and 56 more" in line]


async def test_an_address_that_a_responder_names_is_defanged_on_the_card_and_in_the_thread(tmp_path: Path) -> None:
    said = "The mail server 127.0.0.1:9 could not take the mail: winword.exe"
    async with feature_environment(tmp_path, reports={"Fail": {"success": False, "errorMessage": said}}) as env:
        alert, card = await env.alert_and_card("anna")
        await env["anna"].command(SOC, f"/responder run fail {alert.id}")
        shown = "The mail server 127[.]0[.]0[.]1:9 could not take the mail: winword.exe"
        assert shown in text_of(await env["anna"].sees(card_of(alert, "❌")))
        assert said not in text_of(await env["anna"].sees(reply_to(card, shown)))


async def test_run_command_shows_the_result_on_card_and_thread(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    card = await env["anna"].sees(card_of(alert))
    await env["anna"].command(SOC, f"/responder run tell {alert.id}")
    await env["anna"].sees(ephemeral(f"Started *Tell* on HIGH ET MALWARE Beacon to known C2 ({alert.id}). "))
    assert (await env.ended_run(alert)).created_by == "anna@responder-bot.local"
    done = await env["ben"].sees(card_of(alert, "✅ *Tell* done"))
    assert done["ts"] == card["ts"]
    assert "Told the firewall." in text_of(done)
    assert "*closed* by anna (Tell)" in text_of(done)
    reply = await env["ben"].sees(reply_to(card))
    assert "closed the alert" in text_of(reply)


async def test_second_click_is_told_who_started_the_run(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Wait", card)
    running = await env["ben"].sees(card_of(alert, "*Wait* running"))
    await env["ben"].chooses("Wait", running)
    told = await env["ben"].sees(modal("anna started it"))
    assert len(await env.client.actions("alert", alert.id)) == 1
    await env["ben"].presses("Run anyway", told)
    await env["ben"].sees(lambda s: len(lines_of("Wait", s, alert.id)) == 2)
    await cancel_open(env, alert)
    assert len(await env.client.actions("alert", alert.id)) == 2


async def test_run_anyway_asks_anew_once_the_run_has_ended(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Wait", card)
    running = await env["ben"].sees(card_of(alert, "*Wait* running"))
    await env["ben"].chooses("Wait", running)
    told = await env["ben"].sees(modal("anna started it"))
    await env.release_responder()
    await env.ended_run(alert)
    await env["ben"].presses("Run anyway", told)
    asked = await env["ben"].sees(modal(CHANGED, without="Nothing new was started"))
    assert len(await env.client.actions("alert", alert.id)) == 1
    await env["ben"].presses("Wait", asked)
    await env["ben"].sees(modal("Started", "Started *"))
    await env.release_responder()
    assert (await env.ended_run(alert)).created_by == "ben@responder-bot.local"


async def test_run_again_keeps_the_inputs_of_a_responder_that_declares_none(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    given = {"to": "boss@responder-bot.local", "lines": [1, 2]}
    body = {"responderId": "Fail_1_0", "objectType": "alert", "objectId": alert.id}
    await env.client.run({**body, "parameters": given})
    first = await env.ended_run(alert)
    failed = await env["ben"].sees(reply_to(card))
    await env["ben"].presses("Run again", failed)
    form = await env["ben"].sees(modal("Starts at once, without approval"))
    assert json.loads(str(filled_in(form)["parameters"])) == given
    await env["ben"].presses("Fail", form)
    await env["ben"].sees(reply_to(card, number=2))
    second = await env.ended_run(alert)
    assert (second.id != first.id, json.loads(second.parameters or "")) == (True, given)


async def test_run_anyway_keeps_the_inputs_of_the_run_that_is_repeated(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Stall_1_0", "objectType": "alert", "objectId": alert.id}
    await env.client.run({**body, "parameters": {"to": "boss"}})
    await env.release_responder()
    await env.ended_run(alert)
    failed = await env["ben"].sees(reply_to(card))
    await env.client.run(body)
    await env["ben"].presses("Run again", failed)
    await env["ben"].presses("Stall", await env["ben"].sees(modal("boss")))
    told = await env["ben"].sees(modal("already"))
    await env["ben"].presses("Run anyway", told)
    await env["ben"].sees(lambda s: len(lines_of("Stall", s, alert.id)) == 3)
    newest = (await env.client.actions("alert", alert.id))[0]
    assert (newest.created_by, newest.parameters) == ("ben@responder-bot.local", '{"to":"boss"}')
    await cancel_open(env, alert)


async def test_inputs_that_had_a_secret_are_not_repeated_without_it(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Fail_1_0", "objectType": "alert", "objectId": alert.id}
    await env.client.run({**body, "parameters": {"password": "correct horse battery"}})
    await env.ended_run(alert)
    failed = await env["ben"].sees(reply_to(card))
    await env["ben"].presses("Run again", failed)
    await env["ben"].reads("its inputs had a secret, which isn't kept, or you may")
    assert len(await env.client.actions("alert", alert.id)) == 1


def lines_of(responder: str, view: EmulatorView, alert_id: str) -> list[Any]:
    """The lines of a responder's runs on the card."""
    blocks = all_blocks(card_of(alert_id)(view) or {})
    return [one for one in blocks if str(one.get("block_id")).startswith("run:") and responder in str(one)]


async def cancel_open(env: FeatureEnvironment, alert: Alert) -> None:
    for action in await env.client.actions("alert", alert.id):
        if action.end_date is None:
            await env.client.cancel(action.id)


async def test_confirmation_repeats_what_runs_on_what_in_a_modal(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder run Shun {alert.id}")
    form = await env["anna"].sees(modal("Blocks the host at the firewall."))
    assert "ET MALWARE Beacon" in text_of(form)
    assert (form["submit"]["text"], form["close"]["text"]) == ("Shun", "Cancel")
    assert "Starts at once, without approval; *Stop* is on the card while it runs. No button undoes it." in text_of(
        form
    )
    await env["anna"].close(form["id"])
    assert await env.client.actions("alert", alert.id) == []
    await env["anna"].command(SOC, f"/responder run Shun {alert.id}")
    form = await env["anna"].sees(modal("Blocks the host at the firewall."))
    await env["anna"].presses("Shun", form)
    assert (await env.ended_run(alert)).status == "Success"


@pytest.mark.parametrize("action_id", [ids.RUN, ids.RUN_ANYWAY])
async def test_a_button_of_an_earlier_version_leads_to_the_form_and_runs_nothing(
    env: FeatureEnvironment, action_id: str
) -> None:
    """0.2.0 asked to confirm a run in a message of its own."""
    alert = await env.create_alert()
    on = RunTarget(object_type="alert", object_id=alert.id)
    request = RunRequest((on,), "Shun_1_0", anyway="~40")
    asked = {"Run": Intent("run", alert.id, request.to_text()), "Cancel": Intent("dismiss", alert.id)}

    def rendered(button: ButtonIds) -> list[dict[str, Any]]:
        run, cancel = (button(intent) for intent in asked.values())
        return [dict(actions(button_element("Run", action_id, run), button_element("Cancel", ids.DISMISS, cancel)))]

    blocks = await env.bot.outbox.buttons.issue("", "only:T0LOCAL:U0ANNA:run:1", rendered)
    slack = AsyncWebClient(token=env.emulator.bot_token, base_url=env.emulator.api_url)
    await slack.chat_postEphemeral(channel=SOC, user="U0ANNA", text="Run it?", blocks=blocks)
    question = await env["anna"].sees(ephemeral("Run it?"))
    await env["anna"].presses("Run", question)
    await env["anna"].sees(modal("Blocks the host at the firewall."))
    await env["anna"].presses("Cancel", question)
    await env["anna"].sees(lambda view: not view.ephemerals(SOC))
    assert await env.client.actions("alert", alert.id) == []


async def test_responder_that_cannot_run_shows_the_reason(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].chooses("Secret", await env["anna"].sees(card_of(alert)))
    await env["anna"].sees(modal("Nothing was run."))
    assert await env.client.actions("alert", alert.id) == []


async def test_menu_is_reset_after_a_choice_and_its_old_id_stays_valid(env: FeatureEnvironment) -> None:
    """Slack keeps showing the chosen option while the block of the menu keeps its id."""
    alert, card = await env.alert_and_card("anna")
    before = menu_block(card)
    await env["anna"].chooses("Secret", card)
    await env["ben"].sees(card_of(alert, without=before))
    old = before.removeprefix(ids.MENU_BLOCK)
    intent = await env.bot.outbox.buttons.resolve(old, channel=SOC, message_ts=card["ts"], user="U0BEN")
    assert intent == Intent("menu", alert.id, "alert")


async def test_long_report_is_a_file_in_the_thread(env: FeatureEnvironment) -> None:
    _alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses("Report", card)

    def with_file(view: Any) -> Any:
        return [f for m in view.thread(SOC, card["ts"]) for f in m.get("files") or []]

    (file,) = await env["anna"].sees(with_file)
    text = (await env["anna"].file(file["id"])).decode()
    assert "line 199 of the report" in text


async def test_mistyped_commands_are_answered_with_what_to_type(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    for typed, words in {
        "lsit ~1": "Did you mean",
        "list": "Which one? Type `/responder list ~id`; instead of the id, a host",
        "list ~999": "Nothing has the id ~999",
        "run tell ~999": "Nothing has the id ~999: no alert, case, task, log or observable. Nothing was run.",
        f"run Tel1_1_0 {alert.id}": f"Did you mean `/responder run Tell {alert.id}`?",
        f"run isloate {alert.id}": f"Did you mean `/responder run Isolate {alert.id}`?",
        f"run {alert.id}": "Run what?",
        "run Isolate Host": f"an alert will do.\\n• 🟠 *HIGH*  *ET MALWARE Beacon to known C2* · {alert.id}",
        f"run isloate {alert.id} 203.0.113.7": f"Did you mean `/responder run Isolate {alert.id} 203.0.113.7`?",
        f"cancel {alert.id}": f"If it is an alert, `/responder actions {alert.id}` lists its runs",
        "help": "What you can do with",
        "-h": "What you can do with",
        "help run": "`/responder run NAME ~id ~id` on each of several",
        "help undo": "`/responder undo ~id` of an alert, a case, a run, or several that were asked for together",
        "help deny": "its form asks why, and who asked reads that",
        "help mine": "*Decide*",
        "help start": "`/responder start` a form that asks what to run on what",
        "help status": "`/responder active ~id` of an alert, a case, a run, or several",
        "statu": "Did you mean `/responder status`?",
        "deny": "Nothing that you may see waits for approval.",
        "cancel": "`/responder mine` lists your runs.",
        alert.id: "host web-3 beacons",
        "undo": "Nothing is in force, as far as you may see",
        f"status {alert.id}": f"Nothing is in force on {alert.id}, as far as you may see",
        "mute": "Unknown command `mute`. `/responder help` lists all commands.",
        "alert ~999": "Nothing has the id ~999",
        f"actions {alert.id}": f"Nothing ran on {alert.id} yet.",
        f"alert {alert.id}": "host web-3 beacons",
    }.items():
        await env["anna"].command(SOC, f"/responder {typed}")
        await env["anna"].reads(words)


async def test_the_id_of_an_observable_a_run_or_a_bulk_is_answered_with_what_is_there(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"target": "ip"}}) as env:
        alert, hidden = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3)
        host = {"dataType": "hostname", "data": "LT-7"}
        both = await env.create_alert(sourceRef="both", artifacts=[{"dataType": "ip", "data": "192.0.2.7"}, host])
        alone = await env.create_alert(sourceRef="alone", severity=4, artifacts=[host])
        ip, on = alert.artifacts[0].id, {"objectType": "alert", "objectId": alert.id}
        bulk = (await env.client.run_bulk({"responderId": "Tell_1_0", "targets": [on]})).id
        run = (await env.client.run({**on, "responderId": "Shun_1_0"})).id
        for typed, words in {
            f"actions {ip}": f"1 run on {ip}",
            f"actions {hidden.id}": "You may see up to TLP:AMBER.",
            f"actions {run}": f"{run} is a run, or a bulk of them: `/responder active {run}` shows",
            f"list {bulk}": f"{bulk} is a run, or a bulk of them",
            f"alert {bulk}": f"`audit {bulk}` who decided.",
            f"run shun {both.artifacts[1].id}": "can't run on hostname LT-7: only on ip 192[.]0[.]2[.]7. Nothing",
            "run shun": f" · {both.id}",
        }.items():
            await env["anna"].command(SOC, f"/responder {typed}")
            told = text_of(await env["anna"].reads(words))
        assert alone.id not in told  # where it can't run


CANNOT = "You can't run responders or decide on runs. Ask admin or lea."


async def test_whoever_may_only_read_is_told_once_why_and_whom_to_ask(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["eve"].command(SOC, f"/responder run tell {alert.id}")
    await env["eve"].reads(CANNOT)
    assert await env.client.actions("alert", alert.id) == []
    await env["eve"].command(SOC, "/responder")
    await env["eve"].reads(CANNOT)
    await env["eve"].shortcut(ids.RUN_SHORTCUT)
    assert (await env["eve"].reads(CANNOT))["type"] == "modal"
    await env["eve"].command(SOC, f"/responder run nosuch {alert.id}")
    await env["eve"].reads(CANNOT)
    await env["eve"].command(SOC, f"/responder list {alert.id}")
    listed = text_of(await env["eve"].reads(CANNOT))
    assert "manageAction" not in listed
    red = await env.create_alert(sourceRef="red", tlp=3)
    waits = await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": red.id})
    for verb in ("approve", "deny", "cancel"):
        await env["eve"].command(SOC, f"/responder {verb} {waits.id}")
        await env["eve"].reads(CANNOT)
    await env["eve"].open_home()
    await env["eve"].sees(app_home(f"You see up to TLP:AMBER. {CANNOT}"))
    assert listed.count("Fail") == 1
    card = await env["eve"].sees(card_of(alert))
    (group,) = await env["eve"].searches(card)
    assert [option["text"]["text"] for option in group["options"]] == [CANNOT]


async def test_help_shows_permitted_commands_and_a_copied_line_acts_on_no_alert(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    card = await env["eve"].sees(card_of(alert))
    for typed in ("run", "run isolate", "run isolate 203.0.113.7", "deny", "assign web-3"):
        await env["eve"].command(SOC, f"/responder {typed}")
        await env["eve"].reads("You can't change alerts." if "assign" in typed else CANNOT)
    await env["eve"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    await env["eve"].reads(CANNOT)
    await env["eve"].command(SOC, "/responder help lst")
    told = text_of(await env["eve"].sees(modal("There is no command `lst`.", "What you can do with")))
    act = told.index("\\n*Act*\\n• `/responder list ~id")
    assert told.index("`/responder pending`") < act < told.index("\\n*Look*")
    assert "/responder approve" not in told
    assert alert.id not in told
    assert "/responder run" not in told
    assert "/responder template" not in told
    assert "You may read, but not run responders." in told


async def test_help_offers_unlinked_people_only_what_they_may_do(env: FeatureEnvironment) -> None:
    await env["uma"].command(SOC, "/responder help")
    told = text_of(await env["uma"].sees(modal("What you can do with")))
    assert "You're not linked yet" in told
    assert [verb for verb in ("list", "alert", "actions", "run") if f"/responder {verb}" in told] == []
    assert "/responder doctor" in told


async def test_task_log_is_shown_with_a_menu_of_responders(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    case = await env.client.create_case_from_alert(alert.id)
    task = await env.client.add_task(case.id, {"title": "Look into it"})
    log = await env.client.add_log(task.id, {"message": "called the owner of web-3"})

    before = await env["anna"].sees(reply_to(card, f"*Task log* {log.id}"))
    await env["anna"].chooses("Tell", before)
    after = await env["anna"].sees(reply_to(card, f"*Task log* {log.id}", "✅ *Tell* done"))
    assert menu_block(after) != menu_block(before)
    assert after["ts"] == before["ts"]
    await env["anna"].command(SOC, f"/responder list {log.id}")
    assert "called the owner" in text_of(await env["anna"].reads(f"{log.id} · called the owner"))


async def test_unlinked_person_is_told_the_command_that_links_them(env: FeatureEnvironment) -> None:
    await env["uma"].command(SOC, "/responder list ~1")
    assert "--slack-id T0LOCAL:U0UMA" in text_of(await env["uma"].sees(ephemeral("You're not linked yet")))


async def test_who_lost_access_reads_who_ended_it_and_no_way_back(env: FeatureEnvironment) -> None:
    _, card = await env.alert_and_card("ben")
    await env.core.core.people.disable(replace(COMMAND_LINE, login="lea@responder-bot.local"), "ben")
    ended = "Your access (ben) was ended by lea. Ask an administrator if that is wrong."
    await env["ben"].command(SOC, "/responder list ~1")
    assert "--slack-id" not in text_of(await env["ben"].sees(ephemeral(ended)))
    await env["ben"].presses("Details", card)
    await env["ben"].sees(modal(ended))
    await env["ben"].open_home()
    await env["ben"].sees(app_home(ended))
    (group,) = await env["ben"].searches(card, "203")
    assert group["options"][0]["text"]["text"][:35] == ended[:35]


async def test_command_in_a_channel_without_settings_is_refused(env: FeatureEnvironment) -> None:
    await env["anna"].command("C0STRANGE", "/responder list ~1")
    await env["anna"].sees(ephemeral("not set up", channel="C0STRANGE"))
