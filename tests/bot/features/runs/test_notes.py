"""The note of a run: why, as somebody says in a command or a form; on the card, in the thread, to who approves."""

import json

import pytest

from bot.block_kit import ids
from tests.bot.features.approvals.test_decisions import button, in_thread
from tests.bot.features.bulks.test_bulks import alerts
from tests.bot.features.environment import FeatureEnvironment, card_in, fine, text_of, topmost
from tests.bot.features.runs.test_inputs import entered, shown_in
from tests.bot.features.runs.test_runs import again
from tests.bot.running import SOC

NOTE = "Seen <twice> & told Ben"
SHOWN = "Note: Seen &lt;twice&gt; &amp; told Ben"


async def test_the_note_of_a_command_is_on_the_card_in_the_thread_and_in_run_again(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f'/responder run fail {alert.id} note="{NOTE}"')
    await env.until("ben", lambda view: card_in(view, SOC, alert.id, SHOWN))
    failed = await env.until("ben", in_thread(card["ts"], SHOWN))
    first = await env.ended_run(alert)
    assert (first.note, first.parameters) == (NOTE, "{}")
    await env["ben"].click(SOC, failed["ts"], action_id=again(failed))
    await env.until("ben", lambda view: view.thread(SOC, card["ts"])[2:])
    second = await env.ended_run(alert)
    assert (second.id != first.id, second.note) == (True, NOTE)


async def test_run_again_leaves_out_what_the_person_may_not_see(env: FeatureEnvironment) -> None:
    """In the note, and in the inputs of a responder that declares none, which has no fields to type them again."""
    alert, card = await env.alert_and_card("anna", artifacts=[{"dataType": "domain", "data": "evil.example", "tlp": 3}])
    body = {"objectType": "alert", "objectId": alert.id, "note": "Spoke to evil[.]example"}
    given = {"reason": "C2", "list": "inbound"}
    await env.client.run({**body, "responderId": "Vendor_Drop_1_0", "parameters": given})
    await env.ended_run(alert)
    dropped = await env.until("anna", lambda view: next(iter(view.thread(SOC, card["ts"])[1:]), None))
    await env["anna"].click(SOC, dropped["ts"], action_id=again(dropped))
    form = fine(await env.until("anna", topmost(ids.START_VIEW)))
    assert shown_in(form)["note"] is None
    assert "evil" not in json.dumps(form)
    await env["ben"].click(SOC, dropped["ts"], action_id=again(dropped))
    assert shown_in(await env.until("ben", topmost(ids.START_VIEW)))["note"] == "Spoke to evil[.]example"

    await env.client.run({**body, "responderId": "Fail_1_0", "parameters": {"to": "evil.example"}})
    await env.ended_run(alert)
    failed = await env.until("anna", lambda view: next(iter(view.thread(SOC, card["ts"])[2:]), None))
    await env["anna"].click(SOC, failed["ts"], action_id=again(failed))
    await env.told("anna", "or you may not see all of them. Nothing was run.")
    assert len(await env.client.actions("alert", alert.id)) == 2
    await env["ben"].click(SOC, failed["ts"], action_id=again(failed))
    await env.until("ben", lambda view: view.thread(SOC, card["ts"])[3:])
    assert json.loads((await env.ended_run(alert)).parameters or "") == {"to": "evil.example"}


async def test_who_is_asked_to_confirm_or_to_approve_reads_the_note(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f'/responder run contain {alert.id} note="{NOTE}"')
    question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Cuts the host off.")))
    assert SHOWN in text_of(question)
    await env["anna"].click(None, view_id=question["id"], action_id=ids.RUN)
    asked = await env.until("ben", in_thread(card["ts"], "asks · "))
    quoted = SHOWN.removeprefix("Note: ")
    assert f' · \\"{quoted}\\"' in text_of(asked)
    await env["ben"].open_home()
    home = fine(await env.until("ben", lambda view: view.home))
    await env["ben"].click(None, view_id=home["id"], action_id=button(home, ids.APPROVE))
    await env.until("ben", lambda view: quoted in text_of(view.modal or {}) or None)


async def test_a_form_takes_a_note_and_starts_with_that_of_the_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f'/responder run vendor drop {alert.id} reason=C2 note="{NOTE}"')
    form = fine(await env.until("anna", topmost(ids.START_VIEW, "Which list")))
    assert "told Ben" not in form["private_metadata"]
    field = next(block["element"] for block in form["blocks"] if block.get("block_id") == "note")
    assert field["initial_value"] == NOTE
    long = {**entered(form, list="inbound"), "note": {field["action_id"]: "x" * 501}}
    assert "This has 501 characters; at most 500 fit." in (await env["anna"].submit(form["id"], long))["errors"]["note"]
    other = {**entered(form, list="inbound"), "note": {field["action_id"]: "Another note"}}
    await env["anna"].submit(form["id"], other)
    assert (await env.ended_run(alert)).note == "Another note"


async def test_several_runs_have_the_note_of_their_question(env: FeatureEnvironment) -> None:
    alert_ids = await alerts(env, 2)
    await env["anna"].command(SOC, f'/responder run tell {" ".join(alert_ids)} note="{NOTE}"')
    question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Each is checked")))
    assert SHOWN in text_of(question)
    await env["anna"].click(None, view_id=question["id"], action_id=button(question, ids.BULK_START))
    await env.told("anna", "2 started")
    assert [(await env.client.actions("alert", one))[0].note for one in alert_ids] == [NOTE, NOTE]


@pytest.mark.parametrize("length", [500, 501])
async def test_a_note_has_at_most_500_characters(env: FeatureEnvironment, length: int) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder run tell {alert.id} note={'x' * length}")
    await env.told("anna", "Started Tell" if length == 500 else "Nothing was run. The note is too long.")
    assert len(await env.client.actions("alert", alert.id)) == (length == 500)
