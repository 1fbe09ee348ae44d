"""A run that undoes what another alert's run left in force asks first, and tells that one's thread and approver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.block_kit import ids
from bot.block_kit.notices import CHANGED
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import Action, Alert, BulkInput, RunTarget
from tests import stores
from tests.bot.features.approvals.asking import ISOLATE, end_by_itself, isolate
from tests.bot.features.bulks.bulk import reviewed, shown, start
from tests.bot.features.environment import CLEAR, FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import all_sent
from tests.bot.people import (
    card_of,
    direct_message,
    labels_of,
    message_in,
    modal,
    on_phone,
    reply_to,
    text_of,
    updated,
)
from tests.bot.running import OPEN, SOC

RULES: Mapping[str, Mapping[str, Any]] = {
    "Isolate": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip", "run_by": ["anna", "lea"]},
    "Tell": {"target": "ip"},
}
UNDONE = " · approved by ben · undone by anna, <!date^"


async def isolated(env: FeatureEnvironment) -> tuple[dict[str, Any], str]:
    """The card, and the id, of an alert whose address anna has isolated and ben has approved."""
    alert, card = await env.alert_and_card("anna")
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    form = await env["anna"].sees(modal("How long"))
    text = text_of(form)
    assert "Asks ben and lea; one of them approves. You can withdraw it until then. " in text
    assert "by itself (Tell); *Undo now* ends it at any moment." in text
    await env["anna"].submits(form)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env["ben"].confirms("Approve", request)
    await env.ended_run(alert)
    return card, alert.id


async def test_a_release_from_another_alert_asks_and_tells_who_contained_and_who_approved(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        contained, first = await isolated(env)
        card = await env["anna"].sees(card_of(first, "Undo now"))
        await env["lea"].presses("Undo now", card)
        asked = text_of(await env["lea"].sees(modal("Tell?")))
        assert f"🔓 *Tell* on ip 203[.]0[.]113[.]7, for HIGH ET MALWARE Beacon to known C2 ({first})" in asked
        ends = "It ends *Isolate* by anna, approved by ben. anna and ben are notified.\\nBy itself it would end <!date^"
        assert ends in asked
        assert (asked.count("203[.]0[.]113[.]7"), asked.count(f"({first})"), asked.count("<!date^")) == (1, 1, 1)
        second = await env.create_alert(sourceRef="second", title="The same host again")
        await env["lea"].command(SOC, f"/responder run tell {second.id}")
        question = await env["lea"].sees(modal("It ends *Isolate*", "Starts at once"))
        (measure,) = await env.client.measures()
        until = f"until <!date^{(measure.until or 0) // 1000}^{{date"
        assert f"It ends *Isolate* on `203[.]0[.]113[.]7` {until}" in text_of(question)
        hear = f"by anna, approved by ben, for {first}. anna and ben are notified."
        assert hear in text_of(question)
        assert 'Starts at once, without approval; *Stop* is on the card while it runs."' in text_of(question)
        assert await env.client.actions("alert", second.id) == []
        await env["lea"].presses("Tell", question)
        told = await env["ben"].sees(reply_to(contained, "Undone by *lea*: "))
        assert "<@U0BEN> <@U0ANNA>" in text_of(told)
        assert await env.client.measures() == []


async def test_who_approved_more_time_hears_that_it_was_overturned_as_who_approved_the_run_does(tmp_path: Path) -> None:
    rules = {**RULES, "Isolate": {**RULES["Isolate"], "allow_permanent": True, "run_by": ["anna", "ben"]}}
    async with feature_environment(tmp_path, rules) as env:
        _, first = await isolated(env)
        for name in ("anna", "lea"):
            await env[name].connect()
        (run,) = await env.client.actions("alert", first)
        async with CoreClient(env.core.url, env.service_key) as bot:
            longer = await bot.as_user("anna").extend_measure(run.id, None)
            assert longer.undo is not None
            assert longer.undo.extension is not None
            await bot.as_user("lea").approve(run.id, extension_id=longer.undo.extension.id)
        card = await env["ben"].sees(card_of(first, "approved by lea"))
        await env["anna"].presses("Undo now", card)
        await env["anna"].close(
            (
                await env["anna"].sees(
                    modal("ben and lea aren't notified: the message that asked for approval shows it.")
                )
            )["id"]
        )
        form = await env["ben"].confirms("Undo now", card)
        assert "It ends *Isolate* by anna, approved by ben. anna and lea are notified." in text_of(form)
        await env["lea"].sees(on_phone("Undone by ben: Isolate on ip 203[.]0[.]113[.]7"))


async def test_who_asked_for_more_time_of_another_s_run_is_notified_of_its_undo_as_who_approved_it_is(
    tmp_path: Path,
) -> None:
    rules = {**RULES, "Isolate": {**RULES["Isolate"], "allow_permanent": True}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        _, first = await isolated(env)
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        bulk = await bot.as_user("anna").run_bulk(
            BulkInput(responder_id="Isolate_1_0", targets=[RunTarget(object_type="alert", object_id=other.id)])
        )
        await shown(env, "1 waits for approval")
        await bot.as_user("ben").approve_bulk(bulk.id)
        await shown(env, "1 in force")
        for name in ("anna", "ben", "lea"):
            await env[name].connect()
        for alert_id in (first, other.id):
            (run,) = await env.client.actions("alert", alert_id)
            longer = (await bot.as_user("lea").extend_measure(run.id, None)).undo
            await bot.as_user("ben").approve(run.id, extension_id=longer.extension.id)  # type: ignore[union-attr]
        moved = "Extended by lea, approved by ben: Isolate on ip 203[.]0[.]113[.]7 with no end · HIGH "
        assert (await env["anna"].sees(on_phone("Extended by"))).startswith(moved)
        card = await env["anna"].sees(card_of(first, "set by lea, approved by ben"))
        form = await env["anna"].confirms("Undo now", card)
        assert "It ends *Isolate* by anna, approved by ben. ben and lea are notified." in text_of(form)
        form = await env["anna"].confirms("Undo all", await shown(env, "1 in force with no end"))
        assert "ben and lea are notified." in text_of(form)
        for name in ("ben", "lea"):
            for number in (7, 9):
                await env[name].sees(on_phone(f"Undone by anna: Isolate on ip 203[.]0[.]113[.]{number} · HIGH"))
        await all_sent(env.bot)
        rung = [sum("Undone" in text for text in env[name].phone) for name in ("anna", "ben", "lea")]
        assert rung == [0, 2, 2]


async def test_who_approved_is_not_rung_where_who_asked_undoes_it_also_from_another_alert(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        contained, first = await isolated(env)
        second = await env.create_alert(sourceRef="second", title="The same host again")
        rung = len(env["ben"].phone)
        await env["anna"].command(SOC, f"/responder run tell {second.id}")
        unheard = "ben isn't notified: the message that asked for approval shows it."
        question = await env["anna"].sees(modal(f"for {first}. {unheard}"))
        await env["anna"].presses("Tell", question)
        told = await env["ben"].sees(reply_to(contained, "Undone by *anna*: "))
        assert "<@U0" not in text_of(told)
        await all_sent(env.bot)
        assert len(env["ben"].phone) == rung


async def test_a_release_of_what_a_bulk_contains_tells_once_who_contained_and_who_approved_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        for name in ("anna", "ben"):
            await env[name].connect()
        first, card = await env.alert_and_card("anna")
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        await start(env, "anna", "isolate", [first.id, other.id])
        await shown(env, "2 wait for approval")
        (action,) = await env.client.actions("alert", first.id)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(action.bulk or "")
        await shown(env, "2 in force")
        second = await env.create_alert(sourceRef="second", title="The same host again")
        await env["lea"].command(SOC, f"/responder run tell {second.id}")
        question = await env["lea"].sees(modal(f"for {first.id}. anna and ben are notified."))
        await env["lea"].presses("Tell", question)
        told = await env["ben"].sees(reply_to(card, "Undone by *lea*: "))
        assert "<@" not in text_of(told)
        await all_sent(env.bot)
        for name in ("anna", "ben"):
            rings = [text for text in env[name].phone if "Undone by" in text]
            assert rings == ["Undone by lea: Isolate on ip 203[.]0[.]113[.]7 · HIGH."]


async def test_an_undo_says_that_another_containment_of_the_target_ends_too(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        second, _ = await env.alert_and_card("lea", sourceRef="second", title="The same host again")
        longer = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": second.id}
        async with CoreClient(env.core.url, env.service_key) as bot:
            asked = await bot.as_user("lea").run(longer)
            await bot.as_user("ben").approve(asked.id)
        until = (await env.ended_run(second)).undo
        both = f", also for {second.id} until <!date^{(until.at or 0) // 1000}^{{date" if until is not None else ""
        await env["anna"].sees(card_of(first, both))
        told = await env["lea"].sees(direct_message("Approved by ben: ", "in force until", "Undo now"))
        assert until is not None
        of_lea = f"*Isolate* on `203[.]0[.]113[.]7` until <!date^{(until.at or 0) // 1000}^{{date"

        await env["anna"].command(SOC, "/responder active")
        listed = await env["anna"].sees(modal("*In force: 1 measure*"))
        assert f" · also for {first}" in text_of(listed)

        third = await env.create_alert(sourceRef="third")
        await env["ben"].command(SOC, f"/responder run tell {third.id}")
        released = text_of(await env["ben"].sees(modal(f"🔓 It ends {of_lea}")))
        assert "⚠️ It also ends *Isolate* on `203[.]0[.]113[.]7` until <!date^" in released
        assert f"by anna, approved by ben, for {first}. anna is notified." in released

        card = await env["anna"].sees(card_of(first, "Undo now"))
        for button in ("Extend", "Undo now"):
            await env["eve"].presses(button, card)
            await env["eve"].reads("You can't run responders or decide on runs.")
        receipt = await env["anna"].sees(direct_message("Approved by ben: ", first, "Undo now"))
        question = text_of(await env["anna"].confirms("Undo now", card))
        assert f"⚠️ It also ends {of_lea}" in question
        assert f", also for {second.id} until" not in question
        assert f"for {first}. ben isn't notified: the message that asked for approval shows it." in question
        assert f"by lea, approved by ben, for {second.id}. ben and lea are notified." in question
        assert question.index("🔓 It ends") < question.index("It also ends")
        for alert_id, words in ((first, "undone by anna"), (second.id, UNDONE)):
            shown = await env["lea"].sees(card_of(alert_id, words))
            assert "in force" not in text_of(shown)
            assert "Isolate on ip 203[.]0[.]113[.]7 done" not in text_of(shown)
            assert "Undo now" not in text_of(shown)
        elsewhere = await env["lea"].sees(reply_to(await env["lea"].sees(card_of(second)), "Undone by *anna*: "))
        assert "<@U0BEN> <@U0LEA>" in text_of(elsewhere)
        for who, message in (("anna", receipt), ("lea", told)):
            again = await env[who].sees(updated(message, without="Undo now"))
            assert "in force" not in text_of(again)
        assert await env.client.measures() == []


async def test_a_target_that_two_runs_for_one_alert_contain_is_one_row_of_its_card(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        (earlier,) = await env.client.actions("alert", first)
        async with CoreClient(env.core.url, env.service_key) as bot:
            again = await bot.as_user("lea").run(
                {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": first}
            )
            await bot.as_user("ben").approve(again.id)
        while (later := await env.client.action(again.id, wait_s=10)).end_date is None:
            pass
        assert later.undo is not None
        assert earlier.undo is not None
        on = f"in force until <!date^{(later.undo.at or 0) // 1000}^"
        also = f", also by anna until <!date^{(earlier.undo.at or 0) // 1000}^"
        card = await env["lea"].sees(card_of(first, on, also))
        text = text_of(card)
        assert (text.count("in force until"), text.count('"Undo now"'), text.count(f"for {first}")) == (1, 1, 0)
        await env["lea"].command(SOC, "/responder active")
        listed = await env["lea"].sees(modal("*In force: 1 measure*", on, also.replace(", also", " · also")))
        await env["lea"].close(listed["id"])
        form = await env["lea"].confirms("Undo now", card)
        assert "🔓 It ends *Isolate*" in text_of(form)
        assert "⚠️ It also ends *Isolate*" in text_of(form)
        await env["lea"].sees(card_of(first, "🔓 *Isolate*", without="in force"))
        assert await env.client.measures() == []


async def test_one_undo_of_three_containments_rings_each_person_once(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        second, _ = await env.alert_and_card("anna", sourceRef="second", title="The same host again")
        async with CoreClient(env.core.url, env.service_key) as bot:
            for alert_id in (first, second.id):
                body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert_id}
                asked = await bot.as_user("anna").run(body)
                await bot.as_user("ben").approve(asked.id)
                while (await bot.action(asked.id, wait_s=10)).end_date is None:
                    pass
            for name in ("anna", "ben"):
                await env[name].connect()
            await bot.as_user("lea").undo((await env.client.actions("alert", first))[0].id)
        elsewhere = await env["lea"].sees(reply_to(await env["lea"].sees(card_of(second)), "Undone by *lea*: "))
        assert "<@" not in text_of(elsewhere)
        for name in ("anna", "ben"):
            await env[name].sees(
                direct_message("Undone by lea: *Isolate on ip 203[.]0[.]113[.]7*. Nothing of it is in force")
            )
        await all_sent(env.bot)
        for name in ("anna", "ben"):
            assert [text.partition(" · ")[0] for text in env[name].phone if "Undone by" in text] == [
                "Undone by lea: Isolate on ip 203[.]0[.]113[.]7"
            ]


async def test_what_begins_while_somebody_reads_the_question_is_shown_before_it_ends_too(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        card = await env["lea"].sees(card_of(first, "Undo now"))
        await env["lea"].presses("Undo now", card)
        question = await env["lea"].sees(modal("Tell?"))
        assert "also" not in text_of(question)
        async with CoreClient(env.core.url, env.service_key) as bot:
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": first}
            asked = await bot.as_user("anna").run(body)
            await bot.as_user("ben").approve(asked.id)
            while (await bot.action(asked.id, wait_s=10)).end_date is None:
                pass
        await env["lea"].submits(question)
        again = await env["lea"].sees(modal("⚠️ It also ends *Isolate*"))
        assert "so nothing was done. Read it again." in text_of(again)
        (measure,) = await env.client.measures()
        assert len(measure.actions) == 2
        await env["lea"].submits(again)
        for who in ("anna", "ben"):  # who asked and who approved
            await env[who].sees(direct_message("Undone by lea: *Isolate on ip 203[.]0[.]113[.]7*"))
        assert await env.client.measures() == []


async def test_of_a_containment_that_is_only_starting_nobody_knows_after_the_undo(tmp_path: Path) -> None:
    starts = {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}
    async with feature_environment(tmp_path, {**RULES, "Wait": starts}) as env:
        _, first = await isolated(env)
        card = await env["anna"].sees(card_of(first, "Undo now"))
        second, _ = await env.alert_and_card("lea", sourceRef="second", title="The same host again")
        await env.client.run({"responderId": "Wait_1_0", "objectType": "alert", "objectId": second.id})
        await env["anna"].sees(card_of(second, "*Wait* on ip 203[.]0[.]113[.]7 running"))
        question = text_of(await env["anna"].confirms("Undo now", card))
        starting = f"⚠️ *Wait* on `203[.]0[.]113[.]7`, which is starting, by admin, for {second.id}"
        assert f"{starting}: afterwards nobody knows whether it is in force." in question
        await env["anna"].sees(card_of(first, "🔓 *Isolate*"))
        await env.release_responder()
        await env["anna"].sees(card_of(second, "is maybe in force until"))


async def test_a_reply_that_a_host_may_be_free_again_says_later_that_it_was_undone(tmp_path: Path) -> None:
    timed = {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 0, "target": "hostname"}
    async with feature_environment(tmp_path, {"Isolate": timed, "Tell": {"target": "hostname"}}) as env:
        first, card = await env.alert_and_card("anna", artifacts=[{"dataType": "hostname", "data": "LT-0198"}])
        alike = [{"dataType": "hostname", "data": "lt-0198.corp.example"}]
        second = await env.create_alert(sourceRef="second", artifacts=alike)
        body = {"objectType": "alert", "objectId": first.id}
        await env.client.run({**body, "responderId": "Isolate_1_0"})
        await env.ended_run(first)
        await env.client.run({**body, "responderId": "Tell_1_0", "objectId": second.id})
        doubted = await env["anna"].sees(reply_to(card, "⚠️ Maybe no longer in force: *Isolate* on "))
        await env["anna"].confirms("Undo now", doubted)
        ended = await env["anna"].sees(reply_to(card, "It is no longer in force ("))
        assert ended["ts"] == doubted["ts"]
        assert ids.UNDO not in text_of(ended)


async def test_who_may_not_run_what_is_in_force_does_not_end_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await isolated(env)
        second = await env.create_alert(sourceRef="second")
        await env["ben"].command(SOC, f"/responder run tell {second.id}")
        question = await env["ben"].sees(modal("It ends *Isolate*"))
        await env["ben"].presses("Tell", question)
        await env["ben"].reads("Only who may run Isolate may undo what it left in force.")
        assert len(await env.client.measures()) == 1


async def test_who_asks_and_who_approves_read_what_is_in_force_already_and_what_changes(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await isolated(env)
        (measure,) = await env.client.measures()
        already = f"🔒 `203[.]0[.]113[.]7` is contained already until <!date^{(measure.until or 0) // 1000}^{{date"
        second, card = await env.alert_and_card("lea", sourceRef="second", title="The same host again", **CLEAR)
        ((entry, *_), *_) = [group["options"] for group in await env["lea"].searches(card, "Isolate")]
        assert entry["description"]["text"].startswith("203[.]0[.]113[.]7 · 🔒 contained already")
        other = await env.create_alert(sourceRef="third", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        await env["lea"].command(SOC, f"/responder run isolate {second.id} {other.id}")
        both = await env["lea"].sees(modal(already))
        row = f"({second.id})\\n    ↳ {already}"
        assert "*Runs on 2 targets*" in text_of(both)
        assert row in text_of(both)
        assert "🔒 *1 contained already*. The later of the two ends counts." in text_of(both)  # once, however many are
        assert text_of(both).count("The later of the two") == 1
        assert "Ends by itself (Tell); *Undo all* ends it at any moment." in text_of(both)
        await env["lea"].submits(both, undo_after="15 minutes")
        by = f" by anna, for {measure.root_id}. "
        message = await env["ben"].sees(direct_message("*Isolate* on 2 targets", row, f"{by}The later of the two ends"))
        tick = f"🟠 HIGH ({second.id}) · 🔒 contained until <!date^{(measure.until or 0) // 1000}^{{time}}|?> by anna"
        review = await reviewed(env, "ben", message, f'"{tick}"')
        assert "Ends by itself (Tell); *Undo all* ends it earlier." in text_of(review)
        assert "• " not in text_of(review)  # each is named once
        await env["ben"].close(review["id"])
        await env["lea"].confirms("Withdraw all", await env["lea"].sees(message_in(SOC, "2 wait")))
        await env["lea"].sees(message_in(SOC, "nothing was run, 2 withdrawn"))
        await env["lea"].command(SOC, f"/responder run isolate {second.id}")
        form = await env["lea"].sees(
            modal("How long", already, "(Tell); *Undo now* ends it at any moment", without="Runs on")
        )
        assert f" by anna, for {measure.root_id}. The later of the two ends counts." in text_of(form)
        assert "UTC;" not in text_of(form)
        await env["lea"].submits(form, undo_after="15 minutes")
        changes_nothing = f" by anna, for {measure.root_id}. This would end earlier, so it changes nothing."
        request = await env["ben"].sees(reply_to(card, "asks · "))
        for asked in (request, await env["ben"].sees(direct_message("asks · ", second.id))):
            assert already in text_of(asked)
            assert changes_nothing in text_of(asked)
        elsewhere = await env["ben"].sees(card_of(second, channel=OPEN))
        (in_open,) = [m for m in env["ben"].live_view.thread(OPEN, elsewhere["ts"]) if "asks · " in text_of(m)]
        assert "🔒" not in text_of(in_open)  # where nobody may see the alert whose run it is
        await env["ben"].command(SOC, "/responder pending")
        await env["ben"].sees(modal("Waiting for your approval", "🔒 contained until <!date^", "?> by anna"))
        await env["ben"].presses("Deny", request)
        await env["ben"].close((await env["ben"].sees(modal("nothing changes on the target.", already)))["id"])
        await env["ben"].presses("Approve", request)
        shown = await env["ben"].sees(modal(already))
        assert changes_nothing in text_of(shown)
        await env["ben"].submits(shown)
        await env["ben"].sees(
            modal("it starts now", "ends it earlier. 🔒", f"{measure.root_id}. The later of the two ends")
        )


async def test_who_asks_reads_who_asked_to_contain_the_same_before(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": ISOLATE}) as env:
        first, _ = await env.alert_and_card("lea", title="Beacon", tlp=3)
        second, _ = await env.alert_and_card("lea", sourceRef="2", title="Again")
        other = await env.create_alert(sourceRef="3", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        asked = await isolate(env, first, by="lea")
        waits = "⚠️ *Isolate* on ip 203[.]0[.]113[.]7 for 1 hour, asked by lea, <!date^"
        for on, what in ((second.id, "*Again*"), (f"{second.id} {other.id}", "Runs on")):
            await env["ben"].command(SOC, f"/responder run isolate {on}")
            form = text_of(await env["ben"].sees(modal(waits, what, "How long")))
            assert f", for {first.id} ({asked.id}), still waits for approval." in form
            assert "The later of the two" not in form
        await env["anna"].command(SOC, f"/responder run isolate {second.id}")
        assert first.id not in text_of(await env["anna"].sees(modal("How long")))  # as it is withheld from her
        run = f"/responder run isolate {first.id}"
        await env["ben"].command(SOC, run)
        await env["ben"].presses("Review", await env["ben"].sees(modal(waits, "*Beacon*", "How long")))
        review = await env["ben"].sees(modal("*lea* asks", "Starts as soon as you approve it"))
        await env["ben"].close(review["id"])
        await env["ben"].command(SOC, run)
        of_first = await env["ben"].sees(modal(waits, "*Beacon*", "How long"))
        await isolate(env, first, by="lea")
        await env["ben"].submits(of_first)
        changed = await env["ben"].sees(modal(CHANGED, waits, "still waits for approval."))
        assert changed["submit"]["text"] == "Ask anyway"
        await env["ben"].submits(changed)
        await env["ben"].reads("*Isolate* on ip 203[.]0[.]113[.]7 for 1 hour waits for approval; nothing has run yet.")


async def test_who_decides_reads_who_also_asked_to_contain_the_same_until_that_waits_no_longer(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": ISOLATE}) as env:
        first, of_first = await env.alert_and_card("lea", title="Beacon")
        written = [{"dataType": "ip", "data": "::ffff:203.0.113.7", "tlp": 0}]
        second, of_second = await env.alert_and_card("lea", sourceRef="2", title="Again", tlp=0, artifacts=written)
        await isolate(env, first, by="anna")
        alone = await env["lea"].sees(reply_to(of_first, "asks · "))
        assert "also asks" not in text_of(alone)
        of_ben = await isolate(env, second, by="ben")
        by_anna = f"⏳ anna also asks for *Isolate* on `203[.]0[.]113[.]7` for 1 hour, for {first.id}; "
        for request in (reply_to(of_second, by_anna), direct_message(by_anna, second.id)):
            assert f"{by_anna}that has waited since <!date^" in text_of(await env["lea"].sees(request))
        elsewhere = await env["lea"].sees(card_of(second, channel=OPEN))
        (in_open,) = [m for m in env["lea"].live_view.thread(OPEN, elsewhere["ts"]) if "asks · " in text_of(m)]
        assert (first.id in text_of(in_open), "⏳" in text_of(in_open)) == (False, False)
        await env["lea"].presses("Approve", alone)
        shown = await env["lea"].sees(
            modal(by_ben := f"⏳ ben also asks for *Isolate* on `203[.]0[.]113[.]7` for 1 hour, for {second.id}; ")
        )
        await env.client.deny(of_ben.id, "Anna has asked")
        await env["lea"].submits(shown)
        changed = await env["lea"].sees(modal(CHANGED, without="also asks"))
        await isolate(env, second, by="ben")
        await env["lea"].submits(changed)
        await env["lea"].submits(await env["lea"].sees(modal(CHANGED, by_ben)))
        receipt = await env["lea"].sees(modal("Approved", by_ben, "*Undo now* on its"))
        await env["lea"].presses("Review", receipt)
        await env["lea"].sees(modal("*ben* asks · ", "Isolate?"))


async def test_a_run_with_no_end_takes_away_the_end_of_what_is_in_force_and_each_says_so(tmp_path: Path) -> None:
    rules = {**RULES, "Isolate": {**RULES["Isolate"], "allow_permanent": True}}
    async with feature_environment(tmp_path, rules) as env:
        _, first = await isolated(env)
        (measure,) = await env.client.measures()
        at = f"<!date^{(measure.until or 0) // 1000}^"
        second = await env.create_alert(sourceRef="second", title="The same host again")
        await env["lea"].command(SOC, f"/responder run isolate {second.id}")
        takes = f" by anna, for {first}. With no end, this takes that end away."
        form = await env["lea"].sees(
            modal("How long", "The later of the two ends counts. With no end, this takes that end")
        )
        await env["lea"].submits(form, undo_after="Until somebody undoes it")
        request = await env["ben"].sees(direct_message("*Isolate on ip", "with no end?", takes))
        await env["ben"].presses("Approve", request)
        review = await env["ben"].sees(modal("with no end?", takes))
        await env["ben"].submits(review)
        await env["ben"].sees(modal("Approved", "with no end; it starts now.", takes))
        row = f"is in force with no end by lea, for {second.id}: its own end, {at}"
        card = await env["ben"].sees(card_of(first, row, ", doesn't count"))
        assert ("Extend" in labels_of(card), "Undo now" in labels_of(card)) == (False, True)


async def test_who_decides_on_a_release_reads_what_it_ends_and_who_hears_of_that(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    rules["Tell"] = {"target": "ip", "approval": 1}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        first, second = await env.create_alert(), await env.create_alert(sourceRef="second")
        on = {"objectType": "alert", "objectId": first.id}
        await bot.as_user("anna").run({**on, "responderId": "Shun_1_0"})
        await env.ended_run(first)
        (measure,) = await env.client.measures()
        release = await bot.as_user("lea").run({**on, "objectId": second.id, "responderId": "Tell_1_0"})
        says = "It ends what is in force there, which *Approve* names."
        request = await env["ben"].sees(direct_message("*Tell on ip", says, without="No button"))
        await env["ben"].presses("Approve", request)
        until = f"until <!date^{(measure.until or 0) // 1000}^"
        ends = f"🔓 It ends *Shun* on `203[.]0[.]113[.]7` {until}"
        review = await env["ben"].sees(modal("Tell?", ends, f"by anna, for {first.id}. anna is notified."))
        await env["ben"].submits(review)
        await env["ben"].sees(modal("Approved"))
        while (await env.client.action(release.id, wait_s=10)).end_date is None:
            pass
        assert await env.client.measures() == []


async def test_who_decides_on_releases_of_several_reads_what_each_ends(tmp_path: Path) -> None:
    rules = {"Shun": {"undo": "Tell_1_0", "undo_after_minutes": 60, "target": "ip"}}
    rules["Tell"] = {"target": "ip", "approval": 1}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        ips = ("203.0.113.7", "203.0.113.9", "203.0.113.5", "203.0.113.6", "203.0.113.8")
        on = [[{"dataType": "ip", "data": ip}] for ip in ips]
        alerts = [await env.create_alert(sourceRef=ips[at], artifacts=one) for at, one in enumerate(on)]
        for alert in alerts[:2]:
            await bot.as_user("anna").run({"objectType": "alert", "responderId": "Shun_1_0", "objectId": alert.id})
            await env.ended_run(alert)
        await start(env, "lea", "tell", [alert.id for alert in alerts[:3]])
        await env["ben"].presses("Review", await shown(env, "3 wait for approval"))
        ends = [f"🔓 It ends *Shun* on `{ip}` until <!date^" for ip in ("203[.]0[.]113[.]7", "203[.]0[.]113[.]9")]
        notified = f"by anna, for {alerts[1].id}. anna is notified."
        review = await env["ben"].sees(modal("*Tell on 3 targets?*", *ends, notified, without="No button"))
        assert "knows of nothing" not in text_of(review)
        await start(env, "anna", "tell", [alert.id for alert in alerts[3:]])
        await env["ben"].presses("Review", await shown(env, "2 wait for approval"))
        await env["ben"].sees(modal("*Tell on 2 targets?*", "⚠️ responder-bot knows of nothing that this would end."))


async def test_what_waits_says_once_its_host_is_released_or_not_asked_for_by_others_any_more(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        second, card = await env.alert_and_card("lea", sourceRef="second", title="The same host again", **CLEAR)
        third = await env.create_alert(sourceRef="third")
        other = await isolate(env, third, by="anna")
        await isolate(env, second, by="lea")
        held, by_anna = (
            "🔒 `203[.]0[.]113[.]7` is contained already until",
            "anna also asks for *Isolate* on `203[.]0[.]113[.]7` for 1 hour",
        )
        thread = await env["ben"].sees(reply_to(card, held, by_anna))
        direct = await env["ben"].sees(direct_message(held, by_anna, second.id))
        await env.client.deny(other.id, "Lea has asked")
        for request in (thread, direct):
            await env["ben"].sees(updated(request, held, without="also asks"))
        contained = await env["lea"].sees(card_of(first, "Undo now"))
        await env["lea"].confirms("Undo now", contained)
        ran = "⚠️ *Tell* by lea ran on it <!date^"
        for request in (thread, direct):
            now = text_of(await env["ben"].sees(updated(request, ran, without="contained already")))
            assert "after this was asked." in now
        elsewhere = await env["lea"].sees(card_of(second, channel=OPEN))
        (in_open,) = [m for m in env["lea"].live_view.thread(OPEN, elsewhere["ts"]) if "asks · " in text_of(m)]
        assert "ran on it" not in text_of(in_open)  # where nobody may see the alert on which it ran
        await env["ben"].presses("Approve", thread)
        assert text_of(await env["ben"].sees(modal("Isolate?"))).count(ran) == 1


async def test_what_waits_says_no_longer_that_its_host_is_contained_once_that_is_marked_as_ended(
    tmp_path: Path,
) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await isolated(env)
        second, card = await env.alert_and_card("lea", sourceRef="second", title="The same host again")
        await isolate(env, second, by="lea")
        thread = await env["ben"].sees(reply_to(card, "is contained already until"))
        (measure,) = await env.client.measures()
        await env.client.end_measure(measure.id, "Released by hand")
        await env["ben"].sees(updated(thread, "asks · ", without="contained already"))


async def test_what_waits_says_what_ran_once_the_time_of_what_contains_its_host_is_over(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await isolated(env)
        second, card = await env.alert_and_card("lea", sourceRef="second", title="The same host again")
        await isolate(env, second, by="lea")
        thread = await env["ben"].sees(reply_to(card, "is contained already until"))
        (measure,) = await env.client.measures()
        soon, path = {"until": now_ms() + 1_000}, f"/api/connector/engine/measure/{measure.id}/shorten"
        headers = {"Authorization": f"Bearer {env.service_key}", "X-On-Behalf-Of": "anna@responder-bot.local"}
        assert (await env.core.send("POST", path, soon, headers=headers)).is_success
        await env["ben"].sees(updated(thread, "⚠️ *Tell* by anna ran on it <!date^", without="contained already"))


async def test_who_reviews_a_bulk_reads_of_which_host_it_is_in_force_already(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        await isolated(env)
        second = await env.create_alert(sourceRef="second")
        other = await env.create_alert(sourceRef="third", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        same = await env.create_alert(sourceRef="fourth")
        await start(env, "lea", "isolate", [second.id, other.id, same.id])
        message = await shown(env, "2 wait for approval")
        await env["ben"].presses("Review", message)
        review = await env["ben"].sees(modal("*Isolate on 2 targets in 3 alerts for 1 hour?*"))
        ticks = next(block["element"]["options"] for block in review["blocks"] if block["type"] == "input")
        assert ["🔒 contained until <!date^" in str(one) for one in ticks] == [True, False]
        assert f'"🟠 HIGH · {other.title} ({other.id})"' in text_of(review)
        assert f"also for {same.id}" in text_of(review)


async def test_a_question_names_a_host_as_the_alert_writes_it(tmp_path: Path) -> None:
    timed = {"undo": "Tell_1_0", "undo_after_minutes": 60, "approval": 0, "target": "hostname"}
    rules: Mapping[str, Mapping[str, Any]] = {"Isolate": timed, "Tell": {"target": "hostname"}}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert(artifacts=[{"dataType": "hostname", "data": "LT-0198"}])
        await env["anna"].command(SOC, f"/responder run tell {alert.id}")
        nothing = modal("⚠️ responder-bot knows of nothing that this would end.")
        await env["anna"].sees(nothing)
        await env["anna"].command(SOC, "/responder")
        form = await env["anna"].sees(modal("What should run?"))
        await env["anna"].submits(form, object=alert.id)
        chosen = await env["anna"].sees(modal("Responder", alert.title))
        (group, *_) = await env["anna"].searches(chosen, "Tell", beside="responder:")
        await env["anna"].submits(chosen, object=alert.id, responder=group["options"][0]["value"])
        unknown = await env["anna"].sees(nothing)
        assert await env.client.actions("alert", alert.id) == []
        await env["anna"].presses("Tell", unknown)
        await env.ended_run(alert)
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("How long"))
        await env["anna"].submits(form)
        await env.ended_run(alert)
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        await env["anna"].sees(modal("🔒 `LT-0198` is contained already until"))
        await env["anna"].command(SOC, f"/responder run tell {alert.id}")
        question = await env["anna"].sees(modal("It ends *Isolate* on `LT-0198` until"))
        assert "hear" not in text_of(question)  # of what she does herself


async def test_who_releases_what_still_waits_is_asked_and_who_approves_it_reads_that_it_was_released(
    tmp_path: Path,
) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        alert = await env.create_alert()
        async with CoreClient(env.core.url, env.service_key) as bot:
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
            waits = await bot.as_user("anna").run(body)
        await env["ben"].command(SOC, f"/responder approve {waits.id}")
        read_before = await env["ben"].sees(modal("Isolate?"))
        await env["lea"].command(SOC, f"/responder run tell {alert.id}")
        asked_by = "⚠️ *Isolate* on ip 203[.]0[.]113[.]7 for 1 hour, asked by anna, <!date^"
        question = await env["lea"].sees(modal(asked_by, "still waits for approval"))
        assert ", still waits for approval: withdraw or deny it too." in text_of(question)
        assert len(await env.client.actions("alert", alert.id)) == 1
        await env["lea"].presses("Tell", question)
        ran = await env.ended_run(alert)
        await env["ben"].submits(read_before)
        again = await env["ben"].sees(modal("⚠️ *Tell* by lea ran on it <!date^"))
        at = f"{(ran.dispatched_at or 0) // 1000}^"
        assert f"ran on it <!date^{at}" in text_of(again)
        assert "This has changed since you opened it" in text_of(again)
        assert (await env.client.action(waits.id)).status == "Waiting"


async def test_an_undo_of_one_of_two_containments_of_the_same_people_says_once_who_hears_of_it(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env:
        _, first = await isolated(env)
        second = await env.create_alert(sourceRef="second", title="The same host again")
        async with CoreClient(env.core.url, env.service_key) as bot:
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": second.id}
            asked = await bot.as_user("anna").run(body)
            await env["ben"].command(SOC, f"/responder approve {asked.id}")
            longer = "This lasts longer: 1 hour from when it starts."
            await env["ben"].sees(modal(longer))
            await bot.as_user("ben").approve(asked.id)
        await env.ended_run(second)
        card = await env["lea"].sees(card_of(first, f", also for {second.id} until"))
        await env["lea"].presses("Undo now", card)
        form = await env["lea"].sees(modal("⚠️ It also ends *Isolate*"))
        assert text_of(form).count("anna and ben are notified.") == 1
        await env["lea"].submits(form)
        await env["lea"].sees(card_of(second, " · undone"))
        await all_sent(env.bot)
        # Slack's limits keep progress back for longer than what is no longer in force: the last edit was none.
        statement = "SELECT key, event_updated_at, nonprogress_updated_at FROM message"
        cards = {row[0]: row[1:] for row in stores.rows(env.folder / "core.db", statement)}
        last, last_news = cards[f"alert:{second.id}:{SOC}"]
        assert last == last_news


BLOCKED: Mapping[str, Mapping[str, Any]] = {
    "Block_Address": {
        "undo": "Release_Address_1_0",
        "undo_after_minutes": 60,
        "target": "ip",
        "approval": 1,
        "approve_by": ["ben"],
    }
}


async def block(bot: CoreClient, alert: Alert) -> Action:
    body = {"responderId": "Block_Address_1_0", "objectType": "case_artifact", "objectId": alert.artifacts[0].id}
    return await bot.as_user("anna").run({**body, "undoAfterMinutes": 15})


@pytest.mark.parametrize("how", ["by lea", "by a release", "on time"])
async def test_what_was_approved_before_its_alert_became_a_case_is_nowhere_said_to_be_in_force_once_it_ended(
    tmp_path: Path, how: str
) -> None:
    async with feature_environment(tmp_path, BLOCKED) as env, CoreClient(env.core.url, env.service_key) as bot:
        alert, card = await env.alert_and_card("anna")
        run = await block(bot, alert)
        asked = await env["ben"].sees(direct_message("asks · "))
        await env["ben"].confirms("Approve", asked)
        told = await env["anna"].sees(direct_message("Approved by ben: ", "in force until"))
        asked = await env["ben"].sees(updated(asked, "in force until"))
        done = await env["ben"].sees(reply_to(card, "*Block Address* done"))
        await env["anna"].presses("Extend", told)
        late = await env["anna"].sees(modal("Extend", "How much longer"))
        await env.client.create_case_from_alert(alert.id)
        if how == "by lea":
            await bot.as_user("lea").undo(run.id)
        elif how == "on time":
            end_by_itself(env)
        else:
            release = {"responderId": "Release_Address_1_0", "objectType": "case_artifact"}
            await bot.as_user("lea").run({**release, "objectId": alert.artifacts[0].id})
        for name, message in (("anna", told), ("ben", asked), ("ben", done)):
            over = await env[name].sees(updated(message, "undone", without="in force until"))
            assert not {"Extend", "Undo now"} & {*labels_of(over)}
        await env["anna"].submits(late, longer="+15 minutes")
        await env["anna"].sees(modal("Extend", " · undone", without="How much longer"))


async def test_a_request_from_before_its_alert_became_a_case_is_answered_where_it_asked_and_rings_once(
    tmp_path: Path,
) -> None:
    rules = {"Block_Address": {**BLOCKED["Block_Address"], "approval": 2, "approve_by": ["ben", "lea"]}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        for person in env.people.values():
            await person.connect()
        alert, _ = await env.alert_and_card("anna")
        await block(bot, alert)
        asked = {name: await env[name].sees(direct_message("asks · ")) for name in ("ben", "lea")}
        await env.client.create_case_from_alert(alert.id)
        await env["ben"].confirms("Approve", asked["ben"])
        await env["lea"].sees(updated(asked["lea"], "approved by ben"))
        await env["lea"].confirms("Approve", asked["lea"])
        for name in ("ben", "lea"):
            await env[name].sees(updated(asked[name], "Approved by ben, lea", "in force until"))
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [1, 1, 1]


async def test_who_contained_the_same_in_the_case_is_notified_of_the_undo_of_the_run_before_it(tmp_path: Path) -> None:
    rules = {"Quarantine": {**RULES["Isolate"], "approval": 1}, "Tell": {"target": "ip"}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        alert, _ = await env.alert_and_card("anna")
        body = {"responderId": "Quarantine_1_0", "objectType": "alert", "objectId": alert.id}
        first = await bot.as_user("anna").run(body)
        await bot.as_user("ben").approve(first.id)
        await env["anna"].sees(on_phone("Approved by ben"))
        case = await env.client.create_case_from_alert(alert.id)
        artifact = (await env.client.alert(alert.id)).artifacts[0].id
        second = await bot.as_user("lea").run({**body, "objectType": "case_artifact", "objectId": artifact})
        await bot.as_user("ben").approve(second.id)
        assert f"(case {case.id})" in await env["lea"].sees(on_phone("Approved by ben"))
        await env["lea"].sees(card_of(alert, ", also by anna until", without=f"also for {case.id}"))
        await env["anna"].command(SOC, "/responder mine")
        await env["anna"].presses("Undo now", await env["anna"].sees(modal("Undo now")))
        form = await env["anna"].sees(modal("It also ends *Quarantine*", "ben and lea are notified."))
        await env["anna"].submits(form)
        await env["lea"].sees(on_phone("Undone by anna: Quarantine"))
        await env["ben"].sees(on_phone("Undone by anna: Quarantine"))


async def test_who_contained_the_same_for_an_alert_without_a_card_is_notified_of_the_undo(
    tmp_path: Path,
) -> None:
    rules = {**RULES, "Isolate": {**RULES["Isolate"], "run_by": ["ben", "lea"]}}
    async with feature_environment(tmp_path, rules) as env, CoreClient(env.core.url, env.service_key) as bot:
        await env["lea"].connect()
        alert, _ = await env.alert_and_card("ben")
        secret = await env.create_alert(sourceRef="second", tlp=3)
        for on, by, other in ((alert, "ben", "lea"), (secret, "lea", "ben")):
            run = await isolate(env, on, by=by)
            await bot.as_user(other).approve(run.id)
            await env[by].sees(on_phone(f"Approved by {other}"))
        await env["ben"].confirms("Undo now", await env["ben"].sees(card_of(alert, "Undo now")))
        rang = await env["lea"].sees(on_phone("Undone by ben: Isolate on ip 203[.]0[.]113[.]7"))
        assert f"({secret.id})" in rang


async def test_an_undo_on_one_of_two_targets_rings_once_each_that_its_form_names(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, RULES) as env, CoreClient(env.core.url, env.service_key) as bot:
        for name in ("anna", "ben", "lea"):
            await env[name].connect()
        hosts = [{"dataType": "ip", "data": f"203.0.113.{n}"} for n in (7, 9)]
        alert, card = await env.alert_and_card("anna", artifacts=hosts)
        others = [await env.create_alert(sourceRef=host["data"], artifacts=[host]) for host in hosts]
        for on, by in ((alert, "anna"), *((other, "lea") for other in others)):
            targets = [one.data or "" for one in on.artifacts]
            body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": on.id, "target": targets}
            await bot.as_user("ben").approve((await bot.as_user(by).run(body)).id)
            await env.ended_run(on)
        card = await env["anna"].sees(updated(card, "Undo now", *(f"also for {one.id} until" for one in others)))
        form = text_of(await env["anna"].confirms("Undo now", card, beside="ip 203[.]0[.]113[.]7 is in force"))
        assert f"approved by ben, for {others[0].id}. ben and lea are notified." in form
        assert others[1].id not in form
        for name in ("ben", "lea"):
            await env[name].sees(on_phone("Undone by anna: Isolate on ip 203[.]0[.]113[.]7"))
        await all_sent(env.bot)
        rung = [sum("Undone" in text for text in env[name].phone) for name in ("anna", "ben", "lea")]
        assert rung == [0, 1, 1]
