"""Responders by their titles, and the inputs that they declare: in modals, by command, and where people approve."""

import copy
import json
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from core.authorization import COMMAND_LINE
from tests.bot.features.environment import BAN, DROP, FeatureEnvironment, feature_environment
from tests.bot.people import Look, app_home, card_of, field_of, filled_in, modal, reply_to, text_of
from tests.bot.running import SOC


async def test_people_read_and_type_the_title_of_a_responder(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    for typed in ("BAN an", "vendor_ban"):
        groups = await env["anna"].searches(card, typed)
        assert [o["text"]["text"] for g in groups for o in g["options"]] == [BAN]
    for typed in ("ban AN address", "Vendor_Ban_1_0"):
        await env["anna"].command(SOC, f"/responder list {alert.id} {typed}")
        shown = await env["anna"].reads(f"• *{BAN}*")
        assert "Vendor_Ban_1_0" not in text_of(shown)
    await env["anna"].command(SOC, f"/responder run bann an adress {alert.id}")
    await env["anna"].reads(f"Did you mean `/responder run {BAN} {alert.id}`?")
    body = {"responderId": "Vendor_Ban_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "parameters": {"reason": "C2", "list": "inbound"}})
    await env["anna"].sees(card_of(alert, f"*{BAN}*"))
    await env["anna"].command(SOC, f"/responder actions {alert.id}")
    assert "Vendor_Ban_1_0" not in text_of(await env["anna"].reads(f"*{BAN}*"))
    await env["ben"].command(SOC, f"/responder approve {action.id}")
    asked = await env["ben"].sees(modal(f"*{BAN} on "))
    await env["ben"].confirms("Deny", asked)
    await env["ben"].sees(modal(f"You denied {BAN}"))
    await env["anna"].sees(card_of(alert, f"{BAN} denied by ben"))


BEN = "ben@responder-bot.local"
GIVEN: dict[str, Any] = {
    "reason": "lateral <movement>",
    "notes": "one\ntwo",
    "minutes": 2.5,
    "everywhere": False,
    "list": "outbound",
    "tell": ["owner", "provider"],
    "until": "2026-01-31",
    "owner": BEN,
}


IN_SLACK = {**GIVEN, "minutes": "2.5", "everywhere": [], "owner": "U0BEN"}


async def test_a_responder_asks_for_its_inputs_with_a_field_for_each_type(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].chooses(BAN, card)
    view = await env["anna"].sees(modal("Nobody reaches it any more."))
    assert "ET MALWARE Beacon" in text_of(view)
    fields = [block for block in view["blocks"] if block["type"] == "input"]
    assert {block["block_id"].rpartition(":")[2]: block["element"]["type"] for block in fields} == {
        "reason": "plain_text_input",
        "notes": "plain_text_input",
        "minutes": "number_input",
        "everywhere": "checkboxes",
        "list": "static_select",
        "tell": "multi_static_select",
        "until": "datepicker",
        "owner": "users_select",
        "note": "plain_text_input",
    }
    reason = next(b for b in view["blocks"] if b["block_id"].endswith(":reason"))
    assert (reason["label"]["text"], reason["hint"]["text"], reason["optional"]) == (
        "Reason", "Why; it stands in the log", False)  # fmt: skip
    assert (filled_in(view)["minutes"], filled_in(view)["everywhere"]) == ("60", ["Yes"])
    assert await env.client.actions("alert", alert.id) == []
    errors = (await env["anna"].submits(view, **{**IN_SLACK, "owner": "U0UMA"}))["errors"]
    assert {block.rpartition(":")[2]: text for block, text in errors.items()} == {
        "owner": "This person has no access to responder-bot; choose somebody who has."
    }
    await env["anna"].submits(view, **IN_SLACK)
    asked = await env["anna"].sees(
        modal("Asked", f"on {alert.id} waits for approval; nothing has run yet.\\nben and lea are asked")
    )
    await env["anna"].presses("Withdraw", asked)
    await env["anna"].close((await env["anna"].sees(modal("Withdraw", without="Asked")))["id"])
    (action,) = await env.client.actions("alert", alert.id)
    assert json.loads(action.parameters or "") == GIVEN
    request = await env["ben"].sees(reply_to(card))
    for line in ("Reason: lateral &lt;movement&gt;", "Minutes: 2.5", "Everywhere: no", "Tell: owner, provider",
                 "Which list: outbound", "Until: 2026-01-31", "Who answers for it: ben"):  # fmt: skip
        assert f"• {line}" in text_of(request).replace("\\n", "\n")
    await env["ben"].open_home()
    home = await env["ben"].sees(app_home())
    await env["ben"].presses("Review", home)
    await env["ben"].sees(modal("• Who answers for it: ben"))
    assert "Reason: lateral" in text_of(await env["anna"].sees(card_of(alert)))


async def test_core_errors_are_shown_at_their_fields(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["ben"].command(SOC, f"/responder list {alert.id}")  # the bot knows him for some seconds from now on
    await env["ben"].reads("Can run")
    await env["anna"].chooses(BAN, await env["anna"].sees(card_of(alert)))
    view = await env["anna"].sees(modal("Ban an address"))
    await env.core.core.people.disable(COMMAND_LINE, "ben")
    answer = await env["anna"].submits(view, **IN_SLACK)
    assert answer["errors"] == {
        field_of(view, "owner")["block_id"]: "This should be the login of a person with access."
    }
    assert await env.client.actions("alert", alert.id) == []


async def test_run_again_shows_the_inputs_of_the_run_in_their_fields(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Vendor_Drop_1_0", "objectType": "alert", "objectId": alert.id}
    given = {**GIVEN, "notes": "x" * 3001}
    await env.client.run({**body, "parameters": given})
    await env.ended_run(alert)
    failed = await env["anna"].sees(reply_to(card))
    assert "confirm" not in text_of(failed)
    await env["anna"].presses("Run again", failed)
    view = await env["anna"].sees(modal("Drop traffic"))
    assert filled_in(view) == {**IN_SLACK, "notes": None, "note": None}
    notes = next(block for block in view["blocks"] if block["block_id"].endswith(":notes"))
    assert notes["hint"]["text"] == "If empty: the 3001 characters it has already."
    await env["anna"].submits(view, minutes="5")
    await env["anna"].sees(modal("Started", "Started *"))
    await env["anna"].sees(reply_to(card, number=2))
    newest = (await env.client.actions("alert", alert.id))[0]
    whole = json.loads((await env.client.action(newest.id)).parameters or "")
    assert whole == {**given, "minutes": 5}


async def test_inputs_with_a_secret_or_above_the_clearance_are_asked_anew(env: FeatureEnvironment) -> None:
    hidden = [{"dataType": "domain", "data": "evil.example", "tlp": 3}]
    alert, card = await env.alert_and_card("anna", artifacts=hidden)
    body = {"responderId": "Vendor_Drop_1_0", "objectType": "alert", "objectId": alert.id}
    given = {**GIVEN, "reason": "spoke to evil[.]example", "notes": "evil.example"}
    await env.client.run({**body, "parameters": given})
    await env.ended_run(alert)
    failed = await env["anna"].sees(reply_to(card))
    await env["anna"].presses("Run again", failed)
    view = await env["anna"].sees(modal("Drop traffic"))
    assert filled_in(view) == {**IN_SLACK, "notes": None, "reason": None, "note": None}
    assert "evil" not in json.dumps(view)
    assert "What the last run had is withheld from you." in text_of(view)
    await env["anna"].submits(view, reason="as before")
    await env["anna"].sees(modal("Started", "Started *"))
    newest = (await env.client.actions("alert", alert.id))[0]
    expected = {**GIVEN, "reason": "as before"}
    del expected["notes"]
    assert json.loads(newest.parameters or "") == expected
    await env["ben"].presses("Run again", failed)
    assert filled_in(await env["ben"].sees(modal("Drop traffic")))["notes"] == "evil.example"


async def test_inputs_are_given_by_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    for typed, words in (
        ("minutes=0 list=inbound reason=x", "minutes should be a number of at least 1 and at most 600."),
        ("list=middle reason=x", "list should be one of inbound, outbound."),
        ("everywhere=maybe colour=red", "everywhere should be yes or no. It has no input colour; it takes reason,"),
        ("tell=owner,boss until=soon", "tell should be a list of owner, helpdesk, provider. until should be a date"),
        ("list=inbound reason=x owner=@nobody", "owner should be the login of a person with access. Nothing was run."),
    ):
        await env["anna"].command(SOC, f"/responder run {DROP} {alert.id} {typed}")
        await env["anna"].reads(words)
    assert await env.client.actions("alert", alert.id) == []
    typed = "reason=“lateral <movement>” notes='one two' WhichList=OUTBOUND minutes=2.5 everywhere=no"
    await env["anna"].command(
        SOC,
        f"/responder run {DROP} {typed} {alert.id} tell=owner,Provider until=2026-01-31 owner=@Ben",
    )
    await env["anna"].reads(f"{DROP}")
    (action,) = await env.client.actions("alert", alert.id)
    assert json.loads(action.parameters or "") == {**GIVEN, "notes": "one two"}


async def test_a_command_without_a_needed_input_opens_the_form_with_the_others(env: FeatureEnvironment) -> None:
    alert, _ = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f'/responder run {DROP} {alert.id} reason="lateral movement" minutes=5')
    view = await env["anna"].sees(modal("Drop traffic"))
    held = filled_in(view)
    assert (held["reason"], held["minutes"], held["list"]) == ("lateral movement", "5", None)
    await env["anna"].close(view["id"])
    await env["anna"].command(SOC, f"/responder run {BAN} {alert.id} reason=C2 list=inbound")
    view = await env["anna"].sees(modal("Nobody reaches it any more."))
    assert (filled_in(view)["reason"], filled_in(view)["list"]) == ("C2", "inbound")
    await env["anna"].submits(view)
    await env["anna"].reads("ben and lea are asked; 1 approval, answer by")
    await env["ben"].command(SOC, f"/responder run {BAN} {alert.id} reason=mine list=outbound")
    view = await env["ben"].sees(modal("Nobody reaches it any more.", "asked by anna", "still waits for approval"))
    assert (filled_in(view)["reason"], view["submit"]["text"]) == ("mine", "Ask anyway")
    await env["ben"].submits(view)
    await env["ben"].reads("anna and lea are asked; 1 approval, answer by")
    given = [json.loads(a.parameters or "")["reason"] for a in await env.client.actions("alert", alert.id)]
    assert given == ["mine", "C2"]


async def test_a_responder_without_declared_inputs_takes_any(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f'/responder run Shun {alert.id} to="the boss" n=1')
    view = await env["anna"].sees(modal("Blocks the host at the firewall.", "it declares none, and may ignore these"))
    assert filled_in(view) == {"parameters": '{"to": "the boss", "n": "1"}', "note": None}
    await env["anna"].submits(view, parameters='{"to": "the boss", "n": 1}')
    assert json.loads((await env.ended_run(alert)).parameters or "") == {"to": "the boss", "n": 1}


async def test_a_typed_time_is_refused_where_the_form_asks_how_long(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"undo": "Tell_1_0", "undo_after_minutes": 60}}) as env:
        alert = await env.create_alert()
        for typed in ("duration=2h", "reason=C2 Minutes=30"):
            await env["anna"].command(SOC, f"/responder run isolate {alert.id} {typed}")
            name = typed.split()[-1].split("=")[0].lower()
            await env["anna"].reads(
                f"Nothing was run. The form of Isolate asks how long: type the command without {name!r}."
            )
        await env["anna"].command(SOC, f"/responder run isolate {alert.id} for 2h")
        await env["anna"].reads("Nothing was run")
        assert await env.client.actions("alert", alert.id) == []


async def test_the_run_modal_asks_for_the_inputs_of_the_responder_that_is_chosen(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = await env["anna"].sees(modal("ET MALWARE"))
    await env["anna"].chooses(DROP, view)
    view = await env["anna"].sees(modal("Which list"))
    await env["anna"].chooses(BAN, view)
    view = await env["anna"].sees(modal("Nobody reaches it any more."))
    await env["anna"].chooses("Tell", view)
    view = await env["anna"].sees(modal(without="Which list"))
    await env["anna"].chooses(DROP, view)
    view = await env["anna"].sees(modal("Which list"))
    await env["anna"].submits(view, reason="C2", list="inbound")
    await env["anna"].sees(modal("Started", "Started *"))
    given = json.loads((await env.client.actions("alert", alert.id))[0].parameters or "")
    assert given == {"reason": "C2", "list": "inbound", "minutes": 60, "everywhere": True}


async def test_where_no_modal_opens_nothing_runs_and_that_is_said(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()

    def told(often: int) -> Look[bool]:
        said = "Slack opened no window for it. Nothing was run; ask again."
        return lambda view: [message["text"] for message in view.ephemerals(SOC)] == [said] * often

    for number, name in enumerate((DROP, "Shun"), 1):  # which has no inputs
        env.emulator.faults.error("views.open", "expired_trigger_id", times=2)
        await env["anna"].chooses(name, await env["anna"].sees(card_of(alert)))
        await env["anna"].sees(told(number))
    assert await env.client.actions("alert", alert.id) == []


async def test_an_input_with_many_options_finds_them_by_what_is_typed(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].chooses("Pick", await env["anna"].sees(card_of(alert)))
    view = await env["anna"].sees(modal("Sites"))
    types = [block["element"]["type"] for block in view["blocks"] if block["type"] == "input"]
    assert types[:2] == ["external_select", "multi_external_select"]
    (found,) = await env["anna"].searches(view, "HOST 42")
    assert [option["text"]["text"] for option in found["options"]] == ["host 42"]
    await env["anna"].submits(view, host=found["options"][0]["value"])
    await env["anna"].sees(modal("Started", "Started *"))
    assert json.loads((await env.client.actions("alert", alert.id))[0].parameters or "") == {"host": "host 42"}


async def test_a_form_that_arrives_twice_with_other_inputs_starts_one_run(env: FeatureEnvironment) -> None:
    """As when the bot is killed before it has told Slack, and the person changes something meanwhile."""
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder run {DROP} {alert.id} reason=C2")
    view = await env["anna"].sees(modal("Drop traffic"))
    await env["anna"].submits(view, list="inbound")
    submitted = next(copy.deepcopy(body) for _, what, body, _ in env.emulator.traffic if what == "view_submission")
    await env["anna"].sees(lambda view: not modal("Which list")(view))  # closed or, if it took long, a notice
    answers: list[Any] = []

    async def ack(answer: Any = None) -> None:
        answers.append(answer)

    for fields in submitted["view"]["state"]["values"].values():
        for element in fields.values():
            if element["type"] == "plain_text_input":
                element["value"] = "another reason"
    await env.bot.dispatcher.dispatch("view", submitted, ack)
    assert "A run was started from this form already" in str(answers)
    assert len(await env.client.actions("alert", alert.id)) == 1
