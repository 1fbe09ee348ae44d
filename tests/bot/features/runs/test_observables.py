"""What people do with an alert's observables: from the card, by command, and once they are in a case."""

import re
from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids
from bot.block_kit.notices import CHANGED
from core.models import Action, Alert
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import card_of, filled_in, labels_of, modal, reply_to, text_of, within_limits
from tests.bot.running import SOC

BLOCK = "Block_Address_1_0"
ADDRESS, DEFANGED = "198.51.100.7", "ip 198[.]51[.]100[.]7"
SHOWN = "ip `198[.]51[.]100[.]7`"
OBSERVABLES = [
    {"dataType": "hash", "data": "9f86d081884c7d659a2feaa0c55ad015"},
    {"dataType": "domain", "data": "updates.evil.example"},
    {"dataType": "ip", "data": ADDRESS, "ioc": True},
    {"dataType": "ip", "data": "203.0.113.99", "tlp": 3},
]


async def alert_with_observables(env: FeatureEnvironment) -> tuple[Alert, str, str]:
    """An alert, the id of its address, and of the one that Anna may not see."""
    alert = await env.create_alert(artifacts=OBSERVABLES)
    address, hidden = (next(a.id for a in alert.artifacts if a.data == data) for data in (ADDRESS, "203.0.113.99"))
    return alert, address, hidden


def beside_block(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups of a menu without the first ones, which have what contains: core's own Block."""
    assert groups[0]["label"]["text"].startswith("Contain · ")
    return [group for group in groups if not group["label"]["text"].startswith("Contain · ")]


async def newest_ended(env: FeatureEnvironment, artifact_id: str) -> Action:
    """The newest run on an artifact, once it has ended."""
    run = (await env.client.actions("case_artifact", artifact_id))[0]
    while run.end_date is None:
        run = await env.client.action(run.id, wait_s=10)
    return run


async def test_an_address_is_blocked_in_three_clicks_and_keeps_its_history_in_a_case(env: FeatureEnvironment) -> None:
    anna = env["anna"]
    alert, address, _ = await alert_with_observables(env)
    card = await env["anna"].sees(card_of(alert))
    groups = beside_block(await anna.searches(card, beside=SHOWN))  # the first click
    assert groups[0]["label"]["text"] == DEFANGED
    await anna.chooses("Block Address", card, beside=SHOWN)  # the second
    form = await env["anna"].sees(modal(SHOWN))
    assert filled_in(form)["minutes"] == "60"
    assert f"of 🟠 HIGH {alert.title} ({alert.id})" in text_of(form)
    await anna.submits(form)  # the third
    line = f"✅ *Block Address* on {DEFANGED} (Minutes: 60) done"
    await env["anna"].sees(card_of(alert, line))
    (run,) = await env.client.actions("case_artifact", address)
    reply = await env["ben"].sees(reply_to(card))
    assert "*Block Address* done" in text_of(reply)
    assert f"on {DEFANGED}, started by anna" in text_of(reply)
    assert reply["text"].startswith(f"Block Address on {DEFANGED} done")
    assert reply["text"].endswith(f" · HIGH {alert.title} ({alert.id})")

    case = await env.client.create_case_from_alert(alert.id)
    assert [a.id for a in await env.client.actions("case_artifact", address)] == [run.id]
    kept = await env["anna"].sees(card_of(alert, f"in case {case.id}"))
    assert f"✅ *Block Address* on {DEFANGED}" in text_of(kept)
    await anna.command(SOC, f"/responder run Release Address {address}")
    await env["anna"].sees(card_of(alert, f"✅ *Release Address* on {DEFANGED} done"))
    assert len(await env.client.actions("case_artifact", address)) == 2


async def test_a_command_names_an_observable_by_its_data_or_id(env: FeatureEnvironment) -> None:
    anna = env["anna"]
    alert, address, hidden = await alert_with_observables(env)
    await env["anna"].sees(card_of(alert))
    for typed in (f"{alert.id} {ADDRESS}", f"{alert.id} 198[.]51[.]100[.]7", f"{alert.id} {address}", address):
        await anna.command(SOC, f"/responder run block address {typed} minutes=5")
        await env["anna"].reads(f"on {DEFANGED}")
        assert (await newest_ended(env, address)).status == "Success"
    assert len(await env.client.actions("case_artifact", address)) == 4
    body: dict[str, Any] = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": address}
    assert (await env.client.run({**body, "parameters": {"minutes": 60}})).object_id == address

    await anna.command(SOC, f"/responder run block address {alert.id}")
    told = await env["anna"].reads(f"Block Address can't run on {alert.id} itself, but on")
    assert f"/responder run Block Address {address}" in text_of(told)
    assert hidden not in text_of(told)
    for data in ("203.0.113.99", "203.0.113.98"):  # one that she may not see, and one that isn't there
        await anna.command(SOC, f"/responder run block address {alert.id} {data}")
        await env["anna"].reads(f"{alert.id} shows you no observable '{data}'")
    await anna.command(SOC, f"/responder run block address {hidden}")
    assert not re.search(r"\b203\b", text_of(await env["anna"].reads("You may see up to TLP:AMBER")))


async def test_a_command_runs_on_several_observables_each_by_itself(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(artifacts=[{"dataType": "ip", "data": f"198.51.100.{n}"} for n in (7, 8)])
    await env["anna"].command(
        SOC, f"/responder run block address {alert.id} 198.51.100.7, 198[.]51[.]100[.]8 minutes=5"
    )
    form = await env["anna"].sees(modal(f"*Runs on 2 targets*\\n• 🟠 {SHOWN}", "ip `198[.]51[.]100[.]8`"))
    await env["anna"].submits(form)
    await env["anna"].reads("Started *Block Address* on ip ")
    for artifact in alert.artifacts:
        assert (await newest_ended(env, artifact.id)).parameters == '{"minutes":5}'


async def test_menu_list_and_details_show_all_observables_that_one_may_see(env: FeatureEnvironment) -> None:
    alert, address, hidden = await alert_with_observables(env)
    card = await env["anna"].sees(card_of(alert))
    for name, addresses in (("anna", [DEFANGED]), ("ben", [DEFANGED, "ip 203[.]0[.]113[.]99"])):
        groups = beside_block(await env[name].searches(card))
        labels = [label for g in groups if not (label := g["label"]["text"]).startswith(("Contain · ", "Undo · "))]
        assert labels[: 1 + len(addresses)] == [f"Alert {alert.id}", *addresses]
        found = await env[name].searches(card, "block 203.0.113.99")
        found = [g for g in found if g["options"] and not g["label"]["text"].startswith("Undo · ")]
        assert [g["label"]["text"] for g in found] == addresses[1:]
    assert "withheld (TLP:RED)" in text_of(card)
    await env["anna"].command(SOC, f"/responder list {alert.id}")
    listed = await env["anna"].reads(f"• {DEFANGED} ({address}): Block")
    await env["anna"].presses("Details", card)
    details = await env["anna"].reads("updates[.]evil[.]example")
    menus = [e["action_id"] for b in details["blocks"] if (e := b.get("accessory"))]
    assert menus == [ids.numbered(ids.MENU, a.id) for a in sorted(alert.artifacts[:3], key=lambda a: not a.ioc)]
    for shown in (listed, details):
        assert hidden not in text_of(shown)
        assert not re.search(r"113(\[\.\]|\.)99", text_of(shown))
    await env["anna"].chooses("Block Address", details, beside=SHOWN)
    form = await env["anna"].sees(modal("Minutes", SHOWN))
    await env["anna"].submits(form)
    await env["anna"].sees(card_of(alert, f"*Block Address* on {DEFANGED}"))


async def test_what_a_hidden_observable_masks_in_its_alert_is_masked_in_its_case(env: FeatureEnvironment) -> None:
    hidden = "203.0.113.99"
    alert = await env.create_alert(title=f"Relay of {hidden}", artifacts=OBSERVABLES)
    address = next(a.id for a in alert.artifacts if a.data == ADDRESS)
    card = await env["anna"].sees(card_of(alert))
    body: dict[str, Any] = {"responderId": "Quarantine_1_0", "objectType": "case_artifact", "objectId": address}
    before = (await env.client.run({**body, "parameters": {"reason": f"before: talks to {hidden}"}})).object_id
    assert before == address
    await env["anna"].sees(reply_to(card, "before"))
    case = await env.client.create_case_from_alert(alert.id)
    for on, name in ((address, "case_artifact"), (case.id, "case")):
        asked = {"responderId": "Quarantine_1_0", "objectType": name, "objectId": on}
        await env.client.run({**asked, "parameters": {"reason": f"later on {on}: talks to {hidden}"}})
    await env["anna"].sees(reply_to(card, f"on {case.id}"))
    shown = [text_of(within_limits(m)) for m in env["anna"].live_view.thread(SOC, card["ts"])]
    assert [one for one in shown if re.search(r"113(\[\.\]|\.)99", one)] == []
    replies = [one for one in shown if "Case " not in one[:10]]  # its card shows runs on the case alone
    assert [one.count("talks to [withheld]") > 0 for one in replies] == [True] * 4


async def test_what_ran_on_an_observable_is_listed_for_its_alert_and_its_case(env: FeatureEnvironment) -> None:
    alert, address, hidden = await alert_with_observables(env)
    await env["anna"].sees(card_of(alert))
    for target in (address, hidden):
        run = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": target, "parameters": {"minutes": 5}}
        await env.client.run(run)
        await newest_ended(env, target)
    case_id = (await env.client.create_case_from_alert(alert.id)).id
    for root in (alert.id, case_id):
        await env["anna"].command(SOC, f"/responder actions {root}")
        told = text_of(await env["anna"].reads(f"*2 runs on {root}*"))
        assert f"*Block Address* on {DEFANGED}" in told
        assert "A run: done" in told
        assert "203[.]0[.]113[.]99" not in told


async def test_a_command_takes_its_target_from_what_names_one(env: FeatureEnvironment) -> None:
    """Whoever raises alerts chooses their data: it must not change what a command means."""
    other = await env.create_alert(sourceRef="other", artifacts=[])
    link = f"http://evil.example/{other.id}/x"
    observables = [
        *({"dataType": "ip", "data": data} for data in (ADDRESS, "address", "block address")),
        {"dataType": "filename", "data": "Invoice 7.exe"},
        {"dataType": "url", "data": link},
        {"dataType": "url", "data": "http://evil.example/?a=b c"},
    ]
    alert = await env.create_alert(artifacts=observables)
    ip = alert.artifacts[0].id
    await env["anna"].sees(card_of(alert))
    say = env["anna"].command
    await say(SOC, f"/responder run block address {alert.id}")
    await env["anna"].reads(f"Block Address can't run on {alert.id} itself, but on")
    await say(SOC, f"/responder run tell {link} {alert.id}")
    await env["anna"].reads("*Tell* can't run on url hxxp[://]evil[.]example")
    for data in ("Invoice 7.exe", '"Invoice 7[.]exe"'):
        await say(SOC, f"/responder run tell {alert.id} {data}")
        await env["anna"].reads("*Tell* can't run on filename Invoice 7.exe")
    await say(SOC, f'/responder run tell {alert.id} "http://evil.example/?a=b c"')
    await env["anna"].reads("*Tell* can't run on url hxxp[://]evil[.]example/?a=b c")
    for target in (f"~{'1' * 18}", "~99999"):
        await say(SOC, f"/responder run tell {alert.id} {target}")
        await env["anna"].reads(f"has the id {target}. For {alert.id} alone type `/responder run tell {alert.id}`.")
    await say(SOC, f"/responder run tell LT-0777 {alert.id} ~99999")  # without what the alert doesn't have either
    await env["anna"].reads(f"For {alert.id} alone type `/responder run Tell {alert.id}`.")
    await say(SOC, f"/responder run tell {alert.id} {other.id}")
    await env["anna"].reads("*Tell* on *2 targets*")  # it asks
    assert await env.client.actions("alert", alert.id) == await env.client.actions("alert", other.id) == []
    await say(SOC, f'/responder run block address {ip} minutes=5 reason=“it\'s \\"x\\"”')
    await env["anna"].reads("Started *Block Address*")
    assert (await newest_ended(env, ip)).parameters == '{"minutes":5,"reason":"it\'s \\"x\\""}'


async def test_runs_on_an_observable_collide_wait_for_approval_stop_and_run_again(env: FeatureEnvironment) -> None:
    alert, address, _ = await alert_with_observables(env)
    card = await env["anna"].sees(card_of(alert))
    await env["anna"].chooses("Wait", card, beside=SHOWN)
    running = await env["ben"].sees(card_of(alert, f"*Wait* on {DEFANGED} running"))
    await env["ben"].chooses("Wait", card, beside=SHOWN)
    collision = await env["ben"].sees(modal("anna started it"))
    assert DEFANGED in text_of(collision)
    await env["anna"].presses("Stop", running)
    await env["ben"].sees(card_of(alert, f"🛑 *Wait* on {DEFANGED} stopped by anna"))
    await env["ben"].presses("Run anyway", collision)
    asked = await env["ben"].sees(modal(CHANGED, without="Nothing new was started"))
    await env["ben"].close(asked["id"])
    assert [a.outcome for a in await env.client.actions("case_artifact", address)] == ["stopped"]

    await env["anna"].chooses("Fail", card, beside=SHOWN)
    failed = await env["ben"].sees(reply_to(card, "Run again"))
    assert f"on {DEFANGED}" in text_of(failed)
    await env["ben"].presses("Run again", failed)
    await env["ben"].sees(card_of(alert, f"*Fail* on {DEFANGED}: 2 runs failed"))

    await env["anna"].chooses("Quarantine", card, beside=SHOWN)
    await env["anna"].reads("ben and lea are asked; 2 approvals, answer by")
    await env["ben"].chooses("Quarantine", card, beside=SHOWN)
    waits = await env["ben"].sees(modal("*Quarantine* already waits"))
    assert (labels_of(waits), waits["submit"]["text"]) == (["Review"], "Ask anyway")
    await env["ben"].close(waits["id"])
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert f"*Quarantine on {DEFANGED.replace('ip ', 'ip `')}`?*" in text_of(request)
    await env["anna"].presses("Approve", request)
    await env["anna"].reads("somebody else must approve or deny it")
    for name, then in (("ben", "it needs 1 more approval"), ("lea", "it starts now")):
        await env[name].confirms("Approve", request)
        await env[name].reads(f"You approved Quarantine on {DEFANGED}; {then}.")
    await env["anna"].sees(card_of(alert, f"✅ *Quarantine* on {DEFANGED} done"))
    ran = await env.client.actions("case_artifact", address)
    assert [a.responder_name for a in ran] == ["Quarantine_1_0", "Fail_1_0", "Fail_1_0", "Wait_1_0"]
    assert ran[1].created_by == "ben@responder-bot.local"
    assert await env.client.actions("alert", alert.id) == []


async def test_all_cards_with_an_observable_of_a_case_change_by_either_id(env: FeatureEnvironment) -> None:
    first, second = [await env.create_alert(sourceRef=ref, artifacts=OBSERVABLES[2:3]) for ref in ("1", "2")]
    kept, merged = first.artifacts[0].id, second.artifacts[0].id
    cards = {alert.id: await env["anna"].sees(card_of(alert)) for alert in (first, second)}
    case = await env.client.create_case_from_alert(first.id)
    assert (await env.core.send("POST", f"/api/alert/{second.id}/merge/{case.id}", {})).status_code == 200
    runs = [("Block Address", merged), ("Release Address", kept)]
    for title, object_id in runs:
        await env["anna"].command(SOC, f"/responder run {title} {object_id}")
        for alert_id in cards:
            await env["ben"].sees(card_of(alert_id, f"✅ *{title}* on {DEFANGED}"))
        replies = [reply_to(card, f"*{title}* done") for card in cards.values()]
        await env["ben"].sees(any_of(replies))
    assert len(await env.client.actions("case_artifact", merged)) == 2
    changed = await env.core.send("PATCH", f"/api/case/artifact/{merged}", {"tlp": 3})
    assert changed.status_code == 200
    for alert_id in cards:
        shown = await env["anna"].sees(card_of(alert_id, "withheld (TLP:RED)"))
        assert DEFANGED not in text_of(shown)


async def test_reports_of_runs_in_an_alert_stay_withheld_on_all_cards_of_its_case(env: FeatureEnvironment) -> None:
    """Its responder got the alert with an observable that the channel may not see."""
    first, address, _ = await alert_with_observables(env)
    second = await env.create_alert(sourceRef="2", artifacts=OBSERVABLES[2:3])
    await env.client.run({"responderId": BLOCK, "objectType": "case_artifact", "objectId": address})
    await newest_ended(env, address)
    case = await env.client.create_case_from_alert(first.id)
    assert (await env.core.send("POST", f"/api/alert/{second.id}/merge/{case.id}", {})).status_code == 200
    await env["anna"].command(SOC, f"/responder run Release Address {address}")
    for alert in (first, second):
        card = text_of(await env["anna"].sees(card_of(alert.id, f"*Release Address* on {DEFANGED} done")))
        assert "details withheld (TLP:RED)" in card
        assert "is blocked until" not in card


def any_of(looks: Sequence[Any]) -> Any:
    return lambda view: next((found for look in looks if (found := look(view))), None)
