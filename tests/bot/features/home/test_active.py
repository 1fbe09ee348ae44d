"""What is in force, as a command and in the App Home, with Undo, Extend and Mark as ended."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from bot.block_kit import ids
from bot.features.home.handlers import LOOK_EVERY_S
from core.client import CoreClient
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import app_home, card_of, direct_message, labels_of, modal, reply_to, text_of
from tests.bot.running import OPEN, SOC


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as environment:
        yield environment


async def block(env: FeatureEnvironment, alert_id: str) -> str:
    body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert_id, "undoAfterMinutes": 15}
    return (await env.client.run(body)).id


async def test_what_is_in_force_is_listed_and_found_by_its_target(env: FeatureEnvironment) -> None:
    await env["anna"].command(SOC, "/responder active")
    await env["anna"].sees(modal("Nothing is in force, as far as you may see, up to TLP:AMBER."))
    other = [{"dataType": "ip", "data": "198.51.100.9"}]
    alert, red = await env.create_alert(), await env.create_alert(sourceRef="red", tlp=3, artifacts=other)
    for one in (alert, red):
        await block(env, one.id)
        await env.ended_run(one)
    await env["anna"].command(SOC, "/responder active")
    shown = await env["anna"].sees(modal('*In force: 1 measure*\\n1 measure, details withheld (TLP:RED)."'))
    assert f"({alert.id})" in text_of(shown)
    assert "*Shun*" in text_of(shown)
    assert red.id not in text_of(shown)
    assert {"Undo now", "Extend"} <= {*labels_of(shown)}
    many = [*other, *({"dataType": "ip", "data": f"203.0.113.{n}"} for n in (5, 6, 7))]
    with_more = await env.create_alert(sourceRef="more", artifacts=many)
    await env["anna"].command(SOC, "/responder find 203.0.113.7")
    found = text_of(await env["anna"].sees(modal("*2 alerts* with")))
    assert "🔒 ip 203[.]0[.]113[.]7" in found.partition(f"{with_more.id} · ")[2].partition(" · ip 198")[0]
    await env["anna"].command(SOC, "/responder active 203.0.113.99")
    await env["anna"].sees(modal("Nothing is in force on 203[.]0[.]113[.]99"))
    await env["anna"].command(SOC, "/responder active https://login.example.net/owa/")
    await env["anna"].sees(modal("Nothing is in force on hxxps[://]login[.]example[.]net/owa/, "))  # no link to it
    await env["anna"].command(SOC, "/responder active 203[.]0[.]113[.]7")
    await env["anna"].sees(modal("1 measure"))
    await env["anna"].command(SOC, "/responder active 203[.]0.113")
    await env["anna"].sees(modal("*In force on names that have 203[.]0.113: 1 measure*"))
    then = " *Extend* asks for how long."
    for typed, ignored in {"undo Shun 203.0.113.7": ("Shun", '"'), f"extend {alert.id} 2h": ("2h", then)}.items():
        await env["anna"].command(SOC, f"/responder {typed}")
        told = f"`{ignored[0]}` was not understood, and nothing was changed.{ignored[1]}"
        await env["anna"].sees(modal(told, "1 measure", "Undo now"))
    (run,), beside = await env.client.actions("alert", alert.id), await env.create_alert(sourceRef="beside")
    quiet = await env.create_alert(sourceRef="quiet", artifacts=other)
    for object_id in (alert.id, run.id, alert.artifacts[0].id, beside.id, beside.artifacts[0].id):
        await env["anna"].command(SOC, f"/responder active {object_id}")
        await env["anna"].sees(modal(f"*In force on {object_id}: 1 measure*"))
    await env["anna"].command(SOC, f"/responder alert {beside.id}")
    held = f", for {alert.id}. `/responder active {alert.id}` ends it."
    await env["anna"].sees(modal("🔒 `203[.]0[.]113[.]7` is contained already until <!date^", held))
    for without in (alert, quiet):
        await env["anna"].command(SOC, f"/responder alert {without.id}")
        await env["anna"].sees(modal(f"`/responder list {without.id}`", without="contained already"))
    await env["anna"].command(SOC, f"/responder active {quiet.id}")
    await env["anna"].sees(modal(f"Nothing is in force on {quiet.id}"))
    for hidden in (red.id, red.artifacts[0].id):
        await env["anna"].command(SOC, f"/responder active {hidden}")
        await env["anna"].reads("You may see up to TLP:AMBER. Ben or lea can open this.")
    await env["anna"].command(SOC, "/responder active ~9999")
    await env["anna"].reads("Nothing has the id ~9999.")
    async with CoreClient(env.core.url, env.service_key) as bot:
        audit = await bot.as_user("lea").audit(alert.id)  # which says who has read it
    assert [row.by.split("@")[0] for row in audit if row.what == "audit.read"] == ["lea"]
    await env["eve"].command(SOC, "/responder active")
    assert ids.MARK_ENDED not in text_of(await env["eve"].sees(modal("*In force: ")))


async def test_what_actions_counts_as_withheld_active_does_too_but_not_of_a_target(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules, shared=[OPEN]) as env:
        alert = await env.create_alert(tlp=0, artifacts=[{"dataType": "ip", "data": "203.0.113.7", "tlp": 3}])
        await block(env, alert.id)
        await env.ended_run(alert)
        await env["anna"].command(SOC, f"/responder actions {alert.id}")
        await env["anna"].close((await env["anna"].sees(modal("A run: done", "withheld (TLP:RED)")))["id"])
        for typed, on in ((alert.id, f" on {alert.id}"), ("", "")):
            nothing = f"Nothing is in force{on}, as far as you may see, up to TLP:AMBER."
            await env["anna"].command(SOC, f"/responder active {typed}")
            above = f'"*In force{on}: 1 measure, details withheld (TLP:RED)*"'
            shown = await env["anna"].sees(modal(above, without="Nothing is in force"))
            await env["anna"].close(shown["id"])
            await env["anna"].command(OPEN, f"/responder active {typed}")
            await env["anna"].close((await env["anna"].sees(modal(nothing, without="withheld")))["id"])
        await env["anna"].command(SOC, "/responder active 203.0.113.7")
        await env["anna"].sees(modal("Nothing is in force on ", without="withheld"))


async def test_the_home_says_once_what_is_in_force_and_undo_ends_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    await env["anna"].command(SOC, f"/responder run shun {alert.id}")
    await env["anna"].submits(await env["anna"].sees(modal("How long")))
    await env["anna"].sees(card_of(alert, "is in force until"))
    await env["anna"].open_home()
    home = await env["anna"].sees(app_home("*In force* (1)"))
    assert (text_of(home).count("*Shun*"), "Your last runs" in text_of(home)) == (1, False)
    await env["anna"].confirms("Undo now", home)
    await env["anna"].sees(app_home(without=ids.UNDO))
    await env["anna"].sees(card_of(alert, "🔓 *Shun* on ip 203[.]0[.]113[.]7"))
    assert await env.client.measures() == []
    await env["anna"].open_home()
    await env["anna"].sees(app_home(without="*In force*"))


async def test_the_home_shows_what_has_begun_without_being_opened_again(tmp_path: Path) -> None:
    rules = {"Wait": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "approval": 1}}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert()
        await env.client.run({"responderId": "Wait_1_0", "objectType": "alert", "objectId": alert.id})
        await env["anna"].open_home()
        await env["anna"].confirms("Review", await env["anna"].sees(app_home("Review")))
        await env["anna"].sees(app_home("is starting, then in force for 1 hour"))
        other = await env.create_alert(sourceRef="other")
        await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": other.id})
        await env["anna"].open_home()
        await env["anna"].confirms("Review", await env["anna"].sees(app_home("Review")))
        assert (await env.ended_run(other)).status == "Success"
        await env["anna"].sees(app_home("is starting, then in force for 1 hour", without="Review"))
        assert sum("_publish_home" in str(task.get_coro()) for task in asyncio.all_tasks()) == 1
        await env.release_responder()
        await env["anna"].sees(app_home("is in force until <!date^", "Undo now"))
        asked = await env.client.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": other.id})
        await env["anna"].sees(app_home("*Waiting for your approval* (1)"))
        await env.client.cancel(asked.id)  # somebody else's acts
        await env["anna"].sees(app_home("As of <!date^", without="Waiting for your approval"))
        later = await env.create_alert(sourceRef="later")
        await env["anna"].sees(app_home("Assign to me"))
        await env.client.assign_alerts([later.id], "ben@responder-bot.local")
        await env["anna"].sees(app_home(without="Assign to me"))


async def test_a_home_that_is_open_in_a_storm_is_published_now_and_then(env: FeatureEnvironment) -> None:
    at = monotonic()
    await env["anna"].open_home()
    await asyncio.gather(*(env.create_alert(sourceRef=f"{number}") for number in range(200)))
    await env["anna"].sees(app_home("*Assigned to nobody* (200)"))
    published = sum(what == "views.publish" for _, what, _, _ in env.emulator.traffic)
    assert published <= 2 + (monotonic() - at) / LOOK_EVERY_S


async def test_what_two_responders_hold_and_one_undo_ends_is_one_row_with_both_names(tmp_path: Path) -> None:
    rules = {name: {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"} for name in ("Shun", "Report")}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert()
        for name, minutes in (("Report", 30), ("Shun", 15)):
            body = {"responderId": f"{name}_1_0", "objectType": "alert", "objectId": alert.id}
            await env.client.run({**body, "undoAfterMinutes": minutes})
            await env.ended_run(alert)
        row = "🔒 *Report and Shun* on ip 203[.]0[.]113[.]7 is in force until"
        card = await env["anna"].sees(card_of(alert, row))
        await env["anna"].command(SOC, "/responder active")
        assert row in text_of(await env["anna"].sees(modal("*In force: 1 measure*")))
        await env["anna"].confirms("Undo now", card)
        await env["anna"].sees(card_of(alert, "🔓 *Shun* on ip 203[.]0[.]113[.]7", without="is in force"))
        assert await env.client.measures() == []


async def test_details_say_once_what_a_run_that_is_of_the_case_has_in_force(tmp_path: Path) -> None:
    rules = {"Block_Address": {"undo": "Release_Address_1_0", "undo_after_minutes": 60}}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert()
        await env.client.create_case_from_alert(alert.id)
        await env.client.run(
            {"responderId": "Block_Address_1_0", "objectType": "case_artifact", "objectId": alert.artifacts[0].id}
        )
        await env["anna"].sees(card_of(alert, "is in force until"))
        await env["anna"].command(SOC, f"/responder alert {alert.id}")
        await env["anna"].sees(modal("is in force until", without="contained already"))


async def test_mine_says_until_when_a_run_is_in_force_and_undoes_it(env: FeatureEnvironment) -> None:
    alert = await env.create_alert()
    async with CoreClient(env.core.url, env.service_key) as bot:
        body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        await bot.as_user("anna").run(body)
    await env.ended_run(alert)
    await env["anna"].command(SOC, "/responder mine")
    mine = await env["anna"].sees(modal("*Your runs* (1)"))
    assert "🔒 *Shun* on ip 203[.]0[.]113[.]7 in force until <!date^" in text_of(mine)
    assert {"Extend", "Undo now"} <= {*labels_of(mine)}
    await env["anna"].confirms("Undo now", mine)
    await env["anna"].sees(card_of(alert, "🔓 *Shun* on ip 203[.]0[.]113[.]7"))
    await env["anna"].command(SOC, "/responder mine")
    assert ids.UNDO not in text_of(await env["anna"].sees(modal("undone by anna, <!date^")))


async def test_active_and_mine_begin_with_the_worst_and_name_each_alert_that_it_is_for(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        anna = bot.as_user("anna")
        alerts = [await env.create_alert(sourceRef=f"{n}", title=f"Same {n}") for n in range(5)]
        low, high = [
            await env.create_alert(sourceRef=ip, severity=level, artifacts=[{"dataType": "ip", "data": ip}])
            for ip, level in (("198.51.100.1", 1), ("198.51.100.4", 4))
        ]
        for one in (*alerts, high, low):
            run = await anna.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": one.id})
            await env.ended_run(one)
        for title, verb in (("*In force: 3 measures*", "active"), ("*Your runs* (7)", "mine")):
            await env["anna"].command(SOC, f"/responder {verb}")
            shown = text_of(await env["anna"].sees(modal(title)))
            places = [shown.index(f"{sign} ") for sign in ("🔴 CRITICAL", "🟠 HIGH", "🔵 LOW")]
            assert places == sorted(places)
            assert run.id
        await env["anna"].command(SOC, "/responder active")
        also = f"({alerts[-1].id}) · also for {', '.join(one.id for one in alerts[:-1])}"
        await env["anna"].sees(modal(also, without=", also for"))


@pytest.mark.parametrize("slack_id", ["T0LOCAL:U0BEN", "U0BEN"])
async def test_marking_as_ended_asks_for_a_reason_and_tells_the_thread_and_who_approved(
    tmp_path: Path, slack_id: str
) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "approval": 1}}
    async with feature_environment(tmp_path, rules) as env:
        await env.core.core.people.unlink("ben")
        await env.core.core.people.link("ben", slack_id)
        alert = await env.create_alert()
        card = await env["anna"].sees(card_of(alert))
        await block(env, alert.id)
        request = await env["ben"].sees(reply_to(card, "asks · "))
        await env["ben"].confirms("Approve", request)
        await env.ended_run(alert)
        await env["anna"].command(SOC, "/responder active")
        assert ids.MARK_ENDED not in text_of(await env["anna"].sees(modal("1 measure")))
        await env["lea"].open_home()
        home = await env["lea"].sees(app_home("*In force* (1)"))
        assert ids.MARK_ENDED not in text_of(home)
        await env["lea"].command(SOC, "/responder active")
        shown = await env["lea"].sees(modal("1 measure"))
        await env["lea"].presses("Mark as ended", shown)
        form = await env["lea"].sees(modal("Nothing runs"))
        assert (await env["lea"].submits(form, reason="  "))["errors"]
        await env["lea"].submits(form, reason="The firewall was replaced")
        await env["lea"].sees(modal("is marked as ended"))
        assert await env.client.measures() == []
        assert len(await env.client.actions("alert", alert.id)) == 1
        told = text_of(await env["ben"].sees(reply_to(card, "Marked as ended by *lea*: ")))
        assert "Nothing was run: The firewall was replaced <@U0BEN>" in told


async def test_of_two_targets_of_a_run_one_is_released_and_the_other_stays(
    env: FeatureEnvironment,
) -> None:
    both = [{"dataType": "ip", "data": f"203.0.113.{number}"} for number in (7, 8)]
    alert = await env.create_alert(artifacts=both)
    body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id}
    action = await env.client.run({**body, "undoAfterMinutes": 15, "target": [one["data"] for one in both]})
    first, second = (f"ip 203[.]0[.]113[.]{number}" for number in (7, 8))
    card = await env["anna"].sees(card_of(alert, f"on {second} is in force"))
    assert f"on {first} is in force" in text_of(card)
    await env["anna"].command(SOC, "/responder active")
    shown = await env["anna"].sees(modal("*In force: 2 measures*"))
    assert (text_of(shown).count(f"on {first} is in force"), text_of(shown).count(f"on {second} is in force")) == (1, 1)
    await env["anna"].confirms("Undo now", card, beside=f"on {first} is in force")
    released = await env["anna"].sees(card_of(alert, f"on {second} is in force", without=f"on {first} is in force"))
    (measure,) = await env.client.measures()
    assert (measure.actions, [one.data for one in measure.target or ()]) == ([action.id], ["203.0.113.8"])
    await env["anna"].presses("Extend", released)
    form = await env["anna"].sees(modal(second))
    assert first not in text_of(form)


async def test_what_names_a_run_says_of_each_target_whether_and_until_when_it_is_in_force(
    env: FeatureEnvironment,
) -> None:
    three = [{"dataType": "ip", "data": f"203.0.113.{number}"} for number in (7, 8, 9)]
    alert, card = await env.alert_and_card("anna", artifacts=three)
    async with CoreClient(env.core.url, env.service_key) as bot:
        body = {"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id, "undoAfterMinutes": 15}
        await bot.as_user("anna").run({**body, "target": [one["data"] for one in three]})
    first, second, third = (f"ip 203[.]0[.]113[.]{number}" for number in (7, 8, 9))
    shown = await env["anna"].sees(card_of(alert, f"on {third} is in force"))
    await env["anna"].command(SOC, "/responder find 203.0.113.7")
    await env["anna"].sees(modal(f"🔒 {first} · 🔒 {second} · 🔒 +1\u00a0more"))
    undoing = await env["anna"].confirms("Undo now", shown, beside=f"on {first} is in force")
    assert f"🔒 It stays in force on {second}, {third}." in text_of(undoing)
    over = f"🔓 {first}: undone by anna, <!date^"
    await env["anna"].sees(reply_to(card, over, f"🔒 {second}, {third}: in force until <!date^"))
    shown = await env["anna"].sees(card_of(alert, f"on {third} is in force", without=f"on {first} is in force"))
    await env["anna"].command(SOC, f"/responder run shun {alert.id} 203.0.113.7")
    form = await env["anna"].sees(modal(f"🔓 *{first}: undone before by anna, <!date^", without="contained already"))
    await env["anna"].close(form["id"])
    await env["ben"].presses("Extend", shown, beside=f"on {third} is in force")
    form = await env["ben"].sees(modal("How much longer", "At once, without approval. anna is notified."))
    await env["ben"].submits(form, longer="+45 minutes")
    receipt = text_of(await env["ben"].sees(modal(" now ends <!date")))
    await env["anna"].sees(direct_message(f"Extended by ben: *Shun on {third}*, until <!date^"))
    assert f"*Shun* on {third}, for" in receipt
    assert over in receipt
    still = f"🔒 {second}: in force until <!date^"
    assert still in receipt
    moved = f"🔒 {third}: in force until <!date^"
    reply = await env["anna"].sees(reply_to(card, over, still, moved))
    for typed in ("mine", f"actions {alert.id}"):
        await env["anna"].command(SOC, f"/responder {typed}")
        listed = await env["anna"].sees(modal(over, still, moved, ", moved from <!date^"))
        assert f"{third} in force until" not in text_of(listed)
        await env["anna"].close(listed["id"])
    await env["anna"].presses("Extend", reply)
    which = await env["anna"].sees(modal(f"*Shun* on {second}, {third}, for", "Extend each by itself:"))
    await env["anna"].presses("Extend", which, beside=f"on {second} is in force")
    assert third not in text_of(await env["anna"].sees(modal("How much longer")))
    await env["anna"].command(SOC, f"/responder audit {alert.id}")
    story = text_of(await env["anna"].sees(modal("Audit of")))
    assert " *ben* moved the end of Shun on 203[.]0[.]113[.]9, from <!date^" in story
    assert " has undone Shun on 203[.]0[.]113[.]7" in story
    assert 'undoes Shun on 203[.]0[.]113[.]7"' in story
    # Not by anna: what one person undid within the same second is one line.
    question = text_of(await env["ben"].confirms("Undo now", reply))
    assert f"🔓 *Tell* on {second}, {third}, for" in question
    over_too = text_of(await env["anna"].sees(reply_to(card, f"🔓 {second}, {third}: undone by ben", over)))
    assert "Undo now" not in over_too
    await env["anna"].sees(direct_message(f"Undone by ben: *Shun on {second}, {third}*."))
    rings = [text.partition(" · ")[0].partition(" (")[0] for text in env["anna"].phone if " by ben: " in text]
    assert rings == [
        f"Extended by ben: Shun on {third} ends in 1 hour",
        f"Undone by ben: Shun on {second}, {third}",
    ]
