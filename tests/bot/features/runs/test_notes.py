"""The note of a run: why, as somebody says in a command or a form; on the card, in the thread, to who approves."""

import json
import re

from tests.bot.features.bulks.bulk import alerts
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import app_home, card_of, field_of, filled_in, modal, reply_to, text_of
from tests.bot.running import SOC

NOTE = "Seen <twice> & told Ben"
SHOWN = "Note: Seen &lt;twice&gt; &amp; told Ben"


async def test_the_note_of_a_command_is_on_the_card_in_the_thread_and_in_run_again(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f'/responder run fail {alert.id} note="{NOTE}"')
    quoted = f'\\"{SHOWN.removeprefix("Note: ")}\\"'
    ended = await env["ben"].sees(card_of(alert, "failed · by anna, <", quoted))
    assert re.search(f"failed · by anna, <[^>]*>: {re.escape(quoted)}", text_of(ended))
    failed = await env["ben"].sees(reply_to(card, f"Note: {quoted}"))
    first = await env.ended_run(alert)
    assert (first.note, first.parameters) == (NOTE, "{}")
    await env["ben"].presses("Run again", failed)
    await env["ben"].sees(reply_to(card, number=2))
    second = await env.ended_run(alert)
    assert (second.id != first.id, second.note) == (True, NOTE)


async def test_run_again_leaves_out_what_the_person_may_not_see(env: FeatureEnvironment) -> None:
    """In the note, and in the inputs of a responder that declares none, which has no fields to type them again."""
    alert, card = await env.alert_and_card("anna", artifacts=[{"dataType": "domain", "data": "evil.example", "tlp": 3}])
    body = {"objectType": "alert", "objectId": alert.id, "note": "Spoke to evil[.]example"}
    given = {"reason": "C2", "list": "inbound"}
    await env.client.run({**body, "responderId": "Vendor_Drop_1_0", "parameters": given})
    await env.ended_run(alert)
    dropped = await env["anna"].sees(reply_to(card))
    await env["anna"].presses("Run again", dropped)
    form = await env["anna"].sees(modal("Drop traffic"))
    assert filled_in(form)["note"] is None
    assert "evil" not in json.dumps(form)
    await env["ben"].presses("Run again", dropped)
    assert filled_in(await env["ben"].sees(modal("Drop traffic")))["note"] == "Spoke to evil[.]example"

    await env.client.run({**body, "responderId": "Fail_1_0", "parameters": {"to": "evil.example"}})
    await env.ended_run(alert)
    failed = await env["anna"].sees(reply_to(card, number=2))
    await env["anna"].presses("Run again", failed)
    await env["anna"].reads("or you may not see all of them. Nothing was run.")
    assert len(await env.client.actions("alert", alert.id)) == 2
    await env["ben"].presses("Run again", failed)
    await env["ben"].presses("Fail", await env["ben"].sees(modal('{\\"to\\": \\"evil.example\\"}')))
    await env["ben"].sees(reply_to(card, number=3))
    assert json.loads((await env.ended_run(alert)).parameters or "") == {"to": "evil.example"}


async def test_who_is_asked_to_confirm_or_to_approve_reads_the_note(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f'/responder run contain {alert.id} note="{NOTE}"')
    form = await env["anna"].sees(modal("Cuts the host off."))
    assert filled_in(form)["note"] == NOTE
    await env["anna"].presses("Ask to contain", form)
    asked = await env["ben"].sees(reply_to(card, "asks · "))
    quoted = SHOWN.removeprefix("Note: ")
    assert f' · \\"{quoted}\\"' in text_of(asked)
    await env["ben"].open_home()
    home = await env["ben"].sees(app_home())
    await env["ben"].presses("Review", home)
    await env["ben"].sees(modal(quoted))


async def test_a_form_takes_a_note_and_starts_with_that_of_the_command(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f'/responder run vendor drop {alert.id} reason=C2 note="{NOTE}"')
    form = await env["anna"].sees(modal("Which list"))
    assert "told Ben" not in form["private_metadata"]
    assert field_of(form, "note")["element"]["initial_value"] == NOTE
    refused = await env["anna"].submits(form, list="inbound", note="x" * 501)
    assert "This has 501 characters; at most 500 fit." in refused["errors"]["note"]
    await env["anna"].submits(form, list="inbound", note="Another note")
    assert (await env.ended_run(alert)).note == "Another note"


async def test_several_runs_have_the_note_of_their_form(env: FeatureEnvironment) -> None:
    alert_ids = await alerts(env, 2)
    await env["anna"].command(SOC, f'/responder run tell {" ".join(alert_ids)} note="{NOTE}"')
    question = await env["anna"].sees(modal("Each is checked"))
    assert filled_in(question)["note"] == NOTE
    await env["anna"].submits(question, note=f"{NOTE}!")
    await env["anna"].reads("Started *Tell* on ")
    assert [(await env.client.actions("alert", one))[0].note for one in alert_ids] == [f"{NOTE}!"] * 2


async def test_a_note_has_at_most_500_characters(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    for length, answer in ((501, "Nothing was run. The note is too long."), (500, "Started *Tell*")):
        await env["anna"].command(SOC, f"/responder run tell {alert.id} note={'x' * length}")
        await env["anna"].reads(answer)
        assert len(await env.client.actions("alert", alert.id)) == (length == 500)
