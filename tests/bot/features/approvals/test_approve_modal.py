"""Approve asks once more, in a modal with all that is decided; what was read there is what is approved."""

import asyncio
import json
from typing import Any

from bot.block_kit import ids, names
from bot.block_kit.notices import CHANGED
from bot.block_kit.text import VIEW_TITLE_LIMIT
from bot.clearance import RedactedView, Subject
from bot.features.alerts.views.card import alert_card
from bot.features.approvals.views import approval_request, approve_view, approved
from bot.features.runs.views.runs import awaits_approval
from core.models import Action, OfferedResponder, Override, Policy, Refusal, TargetArtifact, Undo
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import modal, reply_to, text_of
from tests.bot.running import SOC
from tests.bot.samples import NOW, alert, artifact, awaiting, fine_view, responder
from tests.bot.samples import button as token

HOST = artifact(1, data_type="hostname", data="SRV-DC01", message="host inside")
ADDRESS = artifact(2, data="203.0.113.2")


def asked(action: Action, offered: OfferedResponder | None = None, clearance: int = 2) -> dict[str, Any]:
    view = RedactedView(Subject.alert(alert(artifacts=[HOST, ADDRESS])), clearance)
    return approve_view(action, view, token, responder=offered, now_ms=NOW)


def isolation(**more: Any) -> Action:
    target = [TargetArtifact(id=HOST.id, data_type="hostname", data=HOST.data or "", tlp=2, message=HOST.message)]
    undo = Undo(responder="Release_1_0", title="Release Host", after_minutes=15)
    return awaiting(**{"responder_title": "Isolate Host", "target": target, "undo": undo, "note": "It beacons", **more})


def test_the_button_that_asks_says_the_deed_where_it_has_the_room() -> None:
    titles = ("Isolate Host", "MS Defender Isolate Machine")
    asks = [names.deed(responder(title=title), 1, VIEW_TITLE_LIMIT) for title in titles]
    assert asks == ["Ask to isolate host", "Ask for approval"]
    sends = [responder(policy=Policy(sends_to=[host])) for host in ("mx.example", "tickets.corp.example")]
    assert [names.deed(one, 0, VIEW_TITLE_LIMIT) for one in sends] == ["Send to mx.example", "Send"]
    assert [names.deed(one, 1, VIEW_TITLE_LIMIT) for one in sends] == ["Ask to send", "Ask to send"]


def test_an_approval_names_deed_target_duration_requester_note_effect_and_way_back() -> None:
    policy = Policy(confirm="Takes the host off the network.", approval=1, approve_by=["lea"])
    shown = asked(isolation(), responder(policy=policy))
    assert (shown["title"]["text"], shown["submit"]["text"], shown["close"]["text"]) == (
        "Isolate Host?",
        "Isolate Host",
        "Not now",
    )
    assert '"danger"' not in json.dumps(shown)  # Slack can't make the deed red, so nothing beside it is
    text = text_of(shown)
    for words in (
        "*Isolate Host on hostname `SRV-DC01` for 15 minutes?* · host inside\\n*anna* asks · 🟠 HIGH ET MALWARE Beacon "
        'to known C2 (~12) · \\"It beacons\\"\\n'
        "Ends by itself (Release Host); *Undo now* ends it earlier.",
        "Takes the host off the network.",
        "Starts as soon as you approve it; answer by <!date^",
        "Can be approved by: lea.",
    ):
        assert words in text, words
    assert text.count("15 minutes") == 1
    assert "1 approval" not in text
    gets_it = asked(isolation(artifacts=[HOST]))
    assert "can also read" not in text_of(gets_it)
    two = text_of(asked(isolation(artifacts=[HOST, ADDRESS])))
    assert "It can also read 1 other observable of ~12" in two
    assert "203[.]0[.]113[.]2" not in two


def test_an_approval_says_what_is_overridden_and_why_and_how_many_are_missing() -> None:
    refusal = Refusal(rule="protect", message="203.0.113.2 is protected", lift="nobody")
    override = Override(reason="It spreads", overrides=[refusal])
    shown = text_of(asked(isolation(override=override, note="It spreads", needed=3)))
    for words in (
        '(~12) · \\"It spreads\\"\\n*Against the rules*: 203.0.113.2 is protected.\\n',
        "After yours it needs 2 more approvals; answer by <!date^",
    ):
        assert words in shown
    assert "tarts as soon" not in shown


def test_an_override_waits_for_an_org_admin_whoever_else_has_approved_it() -> None:
    override = Override(reason="It spreads", overrides=[])
    waits = isolation(override=override, agreed=("ben", "eve"), needed=2)
    assert awaits_approval(waits)
    assert "Starts as soon as you approve it; answer by" in text_of(asked(waits))
    assert "it needs 1 more approval" in approved(waits, RedactedView(Subject.alert(alert()), 2), "").text
    done = isolation(override=override.model_copy(update={"approved_by": "lea"}), agreed=("ben", "lea"), needed=2)
    assert not awaits_approval(done)


def test_what_core_lets_wait_can_be_decided_by_whatever_clock() -> None:
    waits = isolation()
    assert waits.approval is not None
    late = waits.model_copy(update={"approval": waits.approval.model_copy(update={"expires_at": 1})})
    subject = Subject.alert(alert(artifacts=[HOST, ADDRESS]))
    request = approval_request(late, subject, clearance=2, button=token, now_ms=NOW)
    shown_card = alert_card(alert(), [late], clearance=2, button=token)
    assert all(ids.APPROVE in text_of({"blocks": message.blocks}) for message in (request, shown_card))


def test_a_button_named_after_a_long_deed_fits_and_what_it_does_is_never_empty() -> None:
    shown = asked(isolation(responder_title="Isolate the host from every network", undo=None), responder())
    assert shown["submit"]["text"] == "Isolate the host from e…"
    assert len(shown["title"]["text"]) <= 24
    assert "What CloseFalsePositive does" in text_of(shown)
    assert "No button ends it earlier." in text_of(shown)


def test_every_target_is_read() -> None:
    hosts = [TargetArtifact(id=f"~{n}", data_type="hostname", data=f"{'h' * 60}-{n}", tlp=2) for n in range(120)]
    shown = asked(isolation(target=hosts))
    fine_view(shown)
    assert all(f"-{n}" in text_of(shown) for n in range(100))
    assert "20 more" in text_of(shown)
    all_but_one = text_of(asked(isolation(target=hosts[:101])))
    assert "-100" in all_but_one  # it takes no more room than to say that there is one
    assert " more" not in all_but_one


def test_a_long_target_is_read_in_full_and_the_ends_of_many() -> None:
    names = [f"{'h' * 60}-{n}-{'d' * 60}-{n}" for n in range(20)]
    hosts = [TargetArtifact(id=f"~{n}", data_type="hostname", data=name, tlp=2) for n, name in enumerate(names)]
    few, many = asked(isolation(target=hosts[:2])), asked(isolation(target=hosts))
    fine_view(few)
    fine_view(many)
    assert all(name in text_of(few) for name in names[:2])
    assert all(f"d-{n}" in text_of(many) for n in range(20))


def test_what_is_above_the_clearance_is_counted_and_not_named() -> None:
    target = [TargetArtifact(id=HOST.id, data_type="hostname", data="SRV-DC01", tlp=3)]
    shown = text_of(asked(isolation(target=target)))
    assert "SRV-DC01" not in shown
    assert "*Isolate Host on 1 withheld for 15 minutes?*" in shown


def test_a_vote_of_somebody_else_changes_nothing_of_what_was_read_and_a_longer_time_does() -> None:
    read, voted = isolation(needed=2), isolation(agreed=("ben",), needed=2)
    longer = isolation(undo=Undo(responder="Release_1_0", title="Release Host", after_minutes=60))
    first, second, third = (json.loads(asked(one)["private_metadata"])["shown"] for one in (read, voted, longer))
    assert first == second != third


async def asked_in_thread(env: FeatureEnvironment, responder_name: str) -> tuple[Any, dict[str, Any]]:
    """An alert with a run on it that waits for approval, and the request in its thread."""
    found, card = await env.alert_and_card("ben", sourceRef=responder_name)
    body = {"responderId": f"{responder_name}_1_0", "objectType": "alert", "objectId": found.id}
    await env.client.run(body)
    return found, await env["ben"].sees(reply_to(card, "asks · "))


async def test_nothing_is_approved_before_the_modal_is_submitted(env: FeatureEnvironment) -> None:
    found, request = await asked_in_thread(env, "Isolate")
    await env["ben"].presses("Approve", request)
    form = await env["ben"].sees(modal("Isolate?"))
    await env["ben"].close(form["id"])
    (action,) = await env.client.actions("alert", found.id)
    assert action.approval is not None
    assert action.approval.approved_by == []
    await env["ben"].confirms("Approve", request)
    receipt = text_of(await env["ben"].sees(modal("it starts now")))
    assert "No button ends it earlier." in receipt
    assert "|Its card>" in receipt
    assert (await env.ended_run(found)).status == "Success"


async def test_what_has_changed_since_it_was_read_is_read_again(env: FeatureEnvironment) -> None:
    found, request = await asked_in_thread(env, "Isolate")
    await env["ben"].presses("Approve", request)
    form = await env["ben"].sees(modal("Isolate?"))
    await env.client.request("PATCH", f"/api/alert/{found.id}", {"title": "Beacon of the payroll server"})
    await env["ben"].submits(form)
    again = await env["ben"].sees(modal(CHANGED))
    (new,) = again["blocks"][0]["text"]["text"].splitlines()[1:]  # of all that it says
    assert new == f">*admin* asks · 🟠 HIGH Beacon of the payroll server ({found.id})"
    (action,) = await env.client.actions("alert", found.id)
    assert action.approval is not None
    assert action.approval.approved_by == []
    await env["ben"].submits(again)
    await env["ben"].sees(modal("it starts now"))


async def test_a_run_that_was_denied_meanwhile_is_not_decided_again(env: FeatureEnvironment) -> None:
    found, request = await asked_in_thread(env, "Isolate")
    await env["ben"].presses("Approve", request)
    form = await env["ben"].sees(modal("Isolate?"))
    (action,) = await env.client.actions("alert", found.id)
    for name in ("anna", "lea"):
        await env[name].command(SOC, f"/responder deny {action.id}")
    late = await env["anna"].sees(modal("Deny Isolate?"))
    await env["lea"].submits(await env["lea"].sees(modal("Deny Isolate?")))
    await env["lea"].reads("You denied")
    await env["anna"].submits(late)
    await env["anna"].sees(modal("No longer waits", "no longer waits for approval. Denied by lea."))
    await env["ben"].submits(form)
    await env["ben"].sees(modal("no longer waits for approval. Denied by lea."))
    assert (await env.client.action(action.id)).outcome == "denied"
    await env["ben"].command(SOC, f"/responder approve {action.id}")
    await env["ben"].reads("no longer waits for approval. Denied by lea.")


async def test_two_people_approve_at_once(env: FeatureEnvironment) -> None:
    for name, words in (("Quarantine", "You approved"), ("Isolate", "no longer waits for approval")):
        found, request = await asked_in_thread(env, name)
        for who in ("ben", "anna"):
            await env[who].presses("Approve", request)
        forms = {who: await env[who].sees(modal(f"{name}?")) for who in ("ben", "anna")}
        await asyncio.gather(*(env[who].submits(form) for who, form in forms.items()))
        receipts = [text_of(await env[who].sees(modal("Approve"))) for who in forms]
        assert sum("it starts now" in text for text in receipts) == 1
        assert all("it starts now" in text or words in text for text in receipts)
        assert (await env.ended_run(found)).status == "Success"
