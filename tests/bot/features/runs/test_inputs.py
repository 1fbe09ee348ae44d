"""Responders by their titles, and the inputs that they declare: in modals, by command, and where people approve."""

import copy
import json
from typing import Any

from bot.block_kit import ids
from core.authorization import COMMAND_LINE
from tests.bot.features.approvals.test_decisions import button, deny
from tests.bot.features.environment import BAN, DROP, FeatureEnvironment, card_in, fine, text_of, topmost
from tests.bot.features.runs.test_runs import again, choose, menu_block
from tests.bot.running import SOC


async def test_people_read_and_type_the_title_of_a_responder(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    for typed in ("BAN an", "vendor_ban"):
        groups = await env["anna"].options(SOC, card["ts"], query=typed, action_id=ids.MENU, block_id=menu_block(card))
        assert [o["text"]["text"] for g in groups for o in g["options"]] == [BAN]
    for typed in ("ban AN address", "Vendor_Ban_1_0"):
        await env["anna"].command(SOC, f"/responder list {alert.id} {typed}")
        shown = fine(await env.told("anna", f"✓ *{BAN}*"))
        assert "Vendor_Ban_1_0" not in text_of(shown)
    await env["anna"].command(SOC, f"/responder run bann an adress {alert.id}")
    await env.told("anna", f"Did you mean `/responder run {BAN} {alert.id}`?")
    body = {"responderId": "Vendor_Ban_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "parameters": {"reason": "C2", "list": "inbound"}})
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, f"*{BAN}*"))
    await env["anna"].command(SOC, f"/responder actions {alert.id}")
    assert "Vendor_Ban_1_0" not in text_of(await env.told("anna", f"*{BAN}*"))
    await env["ben"].command(SOC, f"/responder approve {action.id}")
    asked = await env.until("ben", topmost(ids.APPROVE_VIEW, f"*{BAN} on "))
    await env["ben"].click(None, view_id=asked["id"], action_id=ids.numbered(ids.DENY, action.id))
    await deny(env, "ben")
    await env.until("ben", topmost(ids.NOTICE_VIEW, f"You denied {BAN}"))
    await env.until("anna", lambda s: card_in(s, SOC, alert.id, f"{BAN} denied by ben"))


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


def entered(view: dict[str, Any], **values: Any) -> dict[str, dict[str, Any]]:
    """What somebody enters: options by what they read."""
    found: dict[str, dict[str, Any]] = {}
    for block in view["blocks"]:
        name = str(block["block_id"]).rpartition(":")[2]
        if block["type"] != "input" or name not in values:
            continue
        element, value = block["element"], values[name]
        options = {option["text"]["text"]: option["value"] for option in element.get("options", [])}
        value = [options[one] for one in value] if isinstance(value, list) else options.get(value, value)
        found[block["block_id"]] = {element["action_id"]: value}
    return found


def shown_in(view: dict[str, Any]) -> dict[str, Any]:
    """What the fields hold, by input; options as people read them."""
    held: dict[str, Any] = {}
    for block in view["blocks"]:
        if block["type"] == "input":
            state = view["state"]["values"][block["block_id"]][block["element"]["action_id"]]
            (value,) = [item for key, item in state.items() if key != "type"]
            words = [v["text"]["text"] if isinstance(v, dict) else v for v in listed(value)]
            held[str(block["block_id"]).rpartition(":")[2]] = words if isinstance(value, list) else words[0]
    return held


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


IN_SLACK = {**GIVEN, "minutes": "2.5", "everywhere": [], "owner": "U0BEN"}


async def test_a_responder_asks_for_its_inputs_with_a_field_for_each_type(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await choose(env, "anna", card, BAN)
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Nobody reaches it any more.")))
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
    assert (shown_in(view)["minutes"], shown_in(view)["everywhere"]) == ("60", ["Yes"])
    assert await env.client.actions("alert", alert.id) == []
    wrong = entered(view, **{**IN_SLACK, "owner": "U0UMA"})
    errors = (await env["anna"].submit(view["id"], wrong))["errors"]
    assert {block.rpartition(":")[2]: text for block, text in errors.items()} == {
        "owner": "This person has no access to responder-bot; choose somebody who has."
    }
    await env["anna"].submit(view["id"], entered(view, **IN_SLACK))
    await env.closed("anna")
    (action,) = await env.client.actions("alert", alert.id)
    assert json.loads(action.parameters or "") == GIVEN
    request = await env.until("ben", lambda s: next(iter(s.thread(SOC, card["ts"])[1:]), None))
    for line in ("Reason: lateral &lt;movement&gt;", "Minutes: 2.5", "Everywhere: no", "Tell: owner, provider",
                 "Which list: outbound", "Until: 2026-01-31", "Who answers for it: ben"):  # fmt: skip
        assert f"• {line}" in text_of(request).replace("\\n", "\n")
    await env["ben"].open_home()
    home = await env.until("ben", lambda s: s.home)
    await env["ben"].click(None, view_id=home["id"], action_id=button(home, ids.APPROVE))
    await env.until("ben", lambda s: s.modal if "• Who answers for it: ben" in text_of(s.modal or {}) else None)
    assert "Reason: lateral" in text_of(await env.card_of("anna", alert))


async def test_core_errors_are_shown_at_their_fields(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["ben"].command(SOC, f"/responder list {alert.id}")  # the bot knows him for some seconds from now on
    await env.told("ben", "Can run")
    await choose(env, "anna", await env.card_of("anna", alert), BAN)
    view = await env.until("anna", topmost(ids.START_VIEW))
    await env.core.core.people.disable(COMMAND_LINE, "ben")
    answer = await env["anna"].submit(view["id"], entered(view, **IN_SLACK))
    owner = next(block for block in entered(view, owner="U0BEN"))
    assert answer["errors"] == {owner: "This should be the login of a person with access."}
    assert await env.client.actions("alert", alert.id) == []


async def test_run_again_shows_the_inputs_of_the_run_in_their_fields(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    body = {"responderId": "Vendor_Drop_1_0", "objectType": "alert", "objectId": alert.id}
    given = {**GIVEN, "notes": "x" * 3001}
    await env.client.run({**body, "parameters": given})
    await env.ended_run(alert)
    failed = await env.until("anna", lambda s: next(iter(s.thread(SOC, card["ts"])[1:]), None))
    assert "confirm" not in text_of(failed)
    await env["anna"].click(SOC, failed["ts"], action_id=again(failed))
    view = fine(await env.until("anna", topmost(ids.START_VIEW)))
    assert shown_in(view) == {**IN_SLACK, "notes": None, "note": None}
    notes = next(block for block in view["blocks"] if block["block_id"].endswith(":notes"))
    assert notes["hint"]["text"] == "If empty: the 3001 characters it has already."
    await env["anna"].submit(view["id"], entered(view, minutes="5"))
    await env.closed("anna")
    await env.until("anna", lambda s: s.thread(SOC, card["ts"])[2:])
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
    failed = await env.until("anna", lambda s: next(iter(s.thread(SOC, card["ts"])[1:]), None))
    await env["anna"].click(SOC, failed["ts"], action_id=again(failed))
    view = fine(await env.until("anna", topmost(ids.START_VIEW)))
    assert shown_in(view) == {**IN_SLACK, "notes": None, "reason": None, "note": None}
    assert "evil" not in json.dumps(view)
    assert "What the last run had is withheld from you." in text_of(view)
    await env["anna"].submit(view["id"], entered(view, reason="as before"))
    await env.closed("anna")
    newest = (await env.client.actions("alert", alert.id))[0]
    expected = {**GIVEN, "reason": "as before"}
    del expected["notes"]
    assert json.loads(newest.parameters or "") == expected
    await env["ben"].click(SOC, failed["ts"], action_id=again(failed))
    assert shown_in(await env.until("ben", topmost(ids.START_VIEW)))["notes"] == "evil.example"


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
        await env.told("anna", words)
    assert await env.client.actions("alert", alert.id) == []
    typed = "reason=“lateral <movement>” notes='one two' WhichList=OUTBOUND minutes=2.5 everywhere=no"
    await env["anna"].command(
        SOC,
        f"/responder run {DROP} {typed} {alert.id} tell=owner,Provider until=2026-01-31 owner=@Ben",
    )
    await env.told("anna", f"{DROP}")
    (action,) = await env.client.actions("alert", alert.id)
    assert json.loads(action.parameters or "") == {**GIVEN, "notes": "one two"}


async def test_a_command_without_a_needed_input_opens_the_form_with_the_others(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f'/responder run {DROP} {alert.id} reason="lateral movement" minutes=5')
    view = fine(await env.until("anna", topmost(ids.START_VIEW)))
    held = shown_in(view)
    assert (held["reason"], held["minutes"], held["list"]) == ("lateral movement", "5", None)
    await env["anna"].close(view["id"])
    await env["anna"].command(SOC, f"/responder run {BAN} {alert.id} reason=C2 list=inbound")
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Nobody reaches it any more.")))
    assert (shown_in(view)["reason"], shown_in(view)["list"]) == ("C2", "inbound")
    await env["anna"].submit(view["id"], {})
    await env.closed("anna")
    await env["ben"].command(SOC, f"/responder run {BAN} {alert.id} reason=mine list=outbound")
    view = await env.until("ben", topmost(ids.START_VIEW, "Nobody reaches it any more."))
    await env["ben"].submit(view["id"], {})
    view = fine(await env.until("ben", topmost(ids.START_VIEW, "anna started it")))
    assert shown_in(view)["reason"] == "mine"
    await env["ben"].submit(view["id"], {})
    await env.closed("ben")
    given = [json.loads(a.parameters or "")["reason"] for a in await env.client.actions("alert", alert.id)]
    assert given == ["mine", "C2"]


async def test_a_responder_without_declared_inputs_takes_any(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f'/responder run Shun {alert.id} to="the boss" n=1')
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Blocks the host at the firewall.")))
    assert shown_in(view) == {"parameters": '{"to": "the boss", "n": "1"}', "note": None}
    await env["anna"].submit(view["id"], {"parameters": {"value:parameters": '{"to": "the boss", "n": 1}'}})
    assert json.loads((await env.ended_run(alert)).parameters or "") == {"to": "the boss", "n": 1}


async def test_the_run_modal_asks_for_the_inputs_of_the_responder_that_is_chosen(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].shortcut(ids.RUN_MESSAGE_SHORTCUT, channel=SOC, message_ts=card["ts"])
    view = await env.until("anna", topmost(ids.START_VIEW, "ET MALWARE"))
    place: dict[str, Any] = {"view_id": view["id"], "action_id": ids.START_RESPONDER}
    values = {o["text"]["text"]: o["value"] for g in await env["anna"].options(**place) for o in g["options"]}
    await env["anna"].click(None, value=values[DROP], **place)
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Which list")))
    await env["anna"].click(None, value=values[BAN], **place)
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Nobody reaches it any more.")))
    await env["anna"].click(None, value=values["Tell"], **place)
    view = fine(await env.until("anna", lambda s: s.modal if "Which list" not in text_of(s.modal or {}) else None))
    await env["anna"].click(None, value=values[DROP], **place)
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Which list")))
    await env["anna"].submit(view["id"], entered(view, reason="C2", list="inbound"))
    await env.closed("anna")
    given = json.loads((await env.client.actions("alert", alert.id))[0].parameters or "")
    assert given == {"reason": "C2", "list": "inbound", "minutes": 60, "everywhere": True}


async def test_where_no_modal_opens_a_button_leads_to_the_inputs(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    env.emulator.faults.error("views.open", "expired_trigger_id", times=2)
    await choose(env, "anna", await env.card_of("anna", alert), DROP)
    told = await env.ephemeral("anna", f"{DROP} on {alert.id} needs inputs. Nothing was run.")
    await env["anna"].click(SOC, told["ts"], action_id=ids.RUN)
    await env.until("anna", topmost(ids.START_VIEW, "Which list"))
    env.emulator.faults.error("views.open", "expired_trigger_id", times=2)
    await env["anna"].command(SOC, f"/responder run {DROP} {alert.id} reason=C2")
    await env.ephemeral("anna", "Nothing was run. What you typed is not kept.")
    assert await env.client.actions("alert", alert.id) == []


async def test_an_input_with_many_options_finds_them_by_what_is_typed(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await choose(env, "anna", await env.card_of("anna", alert), "Pick")
    view = fine(await env.until("anna", topmost(ids.START_VIEW, "Sites")))
    host, sites, _ = [block for block in view["blocks"] if block["type"] == "input"]
    assert (host["element"]["type"], sites["element"]["type"]) == ("external_select", "multi_external_select")
    element = host["element"]["action_id"]
    place: dict[str, Any] = {"view_id": view["id"], "block_id": host["block_id"], "action_id": element}
    (found,) = await env["anna"].options(query="HOST 42", **place)
    assert [option["text"]["text"] for option in found["options"]] == ["host 42"]
    await env["anna"].submit(view["id"], {host["block_id"]: {element: found["options"][0]["value"]}})
    await env.closed("anna")
    assert json.loads((await env.client.actions("alert", alert.id))[0].parameters or "") == {"host": "host 42"}


async def test_a_form_that_arrives_twice_with_other_inputs_starts_one_run(env: FeatureEnvironment) -> None:
    """As when the bot is killed before it has told Slack, and the person changes something meanwhile."""
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder run {DROP} {alert.id} reason=C2")
    view = await env.until("anna", topmost(ids.START_VIEW))
    await env["anna"].submit(view["id"], entered(view, list="inbound"))
    submitted = next(copy.deepcopy(body) for _, what, body, _ in env.emulator.traffic if what == "view_submission")
    await env.until("anna", lambda view: not topmost(ids.START_VIEW)(view))  # closed or, if it took long, a notice
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
