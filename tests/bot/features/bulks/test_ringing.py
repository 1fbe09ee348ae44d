"""What phones and channels show of a bulk from the question to its end."""

import asyncio
import re
from pathlib import Path

from bot.identity import CACHE_MS
from bot.outbox.models import bulk_key, card_key
from bot.outbox.sending.rate_limiter import RateLimiter
from core.client import CoreClient
from core.common.clock import now_ms
from core.models import BulkInput, RunTarget
from tests.bot.features.approvals.asking import ISOLATE, asking, bulk_of, expire, isolate
from tests.bot.features.bulks.bulk import posted_to, reviewed
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.outbox.harness import ManualClock, all_sent, until_read
from tests.bot.people import (
    card_of,
    direct_message,
    direct_messages,
    filled_in,
    labels_of,
    message_in,
    modal,
    on_phone,
    text_of,
    updated,
    within_limits,
)
from tests.bot.running import SOC, UNLIMITED


async def test_a_push_says_who_contains_a_target_already_and_why_it_is_asked_for(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        first, second, other = [
            await env.create_alert(sourceRef=str(n), artifacts=[{"dataType": "ip", "data": f"203.0.113.{data}"}])
            for n, data in enumerate((1, 2, 2))
        ]
        held = await isolate(env, other)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve(held.id)
            await env["anna"].sees(on_phone("Approved by ben"))
            one = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": second.id, "note": "It <beacons>."}
            single = await bot.as_user("lea").run(one)
            push = await env["ben"].sees(on_phone("lea"))
            held_by = "Contained already by anna"
            of = f'{held_by}. ET MALWARE Beacon to known C2 ({second.id}), asked by lea · "It &lt;beacons&gt;."'
            asks = "HIGH: Isolate on ip 203[.]0[.]113[.]2 for 1 hour?"
            assert push == f"{asks} {of}"
            await bot.as_user("ben").deny(single.id, "It prints.")
            targets = [RunTarget(object_type="alert", object_id=one.id) for one in (first, second)]
            await bot.as_user("anna").run_bulk(
                BulkInput(responder_id="Isolate_1_0", targets=targets, note="Ransomware spreads")
            )
        on = "ip 203[.]0[.]113[.]1, 203[.]0[.]113[.]2"
        before = "1 denied before, 1 contained already"
        push = await env["lea"].sees(on_phone("Isolate on 2 targets"))
        assert push == f'HIGH: Isolate on 2 targets for 1 hour? {before}. Asked by anna: {on} · "Ransomware spreads"'
        asked = await env["lea"].sees(direct_message("2 wait for approval"))
        assert text_of(asked).count("Ransomware spreads") == 2  # on the phone, and in the message
        in_channel = text_of(await env["lea"].sees(message_in(SOC, "2 wait for approval")))
        warned = '\\"Ransomware spreads\\"\\n🚫 *1 denied before* by ben (ip 203[.]0[.]113[.]2)'
        assert f"{warned} · 🔒 *1 contained already* (ip 203[.]0[.]113[.]2)" in in_channel
        await env["lea"].command(SOC, "/responder pending")
        await env["lea"].sees(modal("*Isolate on 2 targets", "🚫 *1 denied before* · 🔒 *1 contained already*"))


async def test_three_who_decide_at_once_ring_who_asked_once_for_each_kind_and_at_the_end(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, clock_ms=clock) as env:
        await env.core.core.people.set_clearance("anna", 3)
        bulk, _ = await bulk_of(env, "anna", [3] * 9, red=[0])
        await env["anna"].sees(message_in(SOC, "9 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        await env.core.core.people.set_clearance("anna", 2)  # so that she may not see one any more
        clock.ahead_ms += CACHE_MS
        async with CoreClient(env.core.url, env.service_key) as bot:
            ben, lea = bot.as_user("ben"), bot.as_user("lea")
            first = ben.approve_bulk(bulk.id, ids_[:2]), lea.deny_bulk(bulk.id, ids_[2:4], "It prints.")
            await asyncio.gather(*first, env.client.approve_bulk(bulk.id, ids_[4:6]))
            failed = "Approved by ben, failed: Isolate on 1 target for 1 hour"  # core runs nothing that she may not see
            approved = await env["anna"].sees(direct_message(failed, "Approved by ben, in force: Isolate on "))
            on = "ip 203[.]0[.]113[.]2, 203[.]0[.]113[.]3"
            denied = f'Denied by lea, not run: Isolate on {on} for 1 hour · up to HIGH · \\"It prints\\"'
            await env["anna"].sees(direct_message(denied))
            await asyncio.gather(lea.deny_bulk(bulk.id, ids_[6:7]), bot.as_user("anna").cancel(ids_[7]))
            await env["anna"].sees(
                direct_message("Denied by lea, not run: ", ". Still waiting: ip 203[.]0[.]113[.]8; ben or lea decides.")
            )
        assert "203[.]0[.]113[.]0" not in str(approved)
        await all_sent(env.bot)
        rung = len(env["anna"].phone)
        await expire(env)
        await env["anna"].sees(on_phone("1 not approved in time"))
        await all_sent(env.bot)
        assert "203[.]0[.]113[.]0" not in str(env["anna"].phone)
        assert (rung <= 2, len(env["anna"].phone)) == (True, rung + 1)


async def test_the_message_of_several_runs_is_edited_before_the_cards_of_their_alerts(tmp_path: Path) -> None:
    clock, limits = ManualClock(), RateLimiter(**UNLIMITED)
    async with asking(tmp_path, clock_ms=clock, rate_limiter=limits) as env:

        async def edited_first(words: str) -> str:
            """Let Slack take edits again once the bulk's is to say this; the message of the channel's first."""
            key, before = bulk_key(bulk.id, SOC), len(env.emulator.traffic)
            await until_read(lambda: env.bot.outbox.message(key), lambda found: found and words in found.payload)
            clock.advance(10_000)
            await all_sent(env.bot)
            edits = [body for _, what, body, _ in env.emulator.traffic[before:] if what == "chat.update"]
            return str(next(body["ts"] for body in edits if body["channel"] == SOC))

        bulk, _ = await bulk_of(env, "anna", [3] * 5)
        message = await env["ben"].sees(message_in(SOC, "5 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        await all_sent(env.bot)
        limits.block("chat.update", SOC, clock(), 10_000)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_[:4])
        assert await edited_first("1 waits for approval, 4 in force") == message["ts"]
        message = await env["ben"].sees(updated(message, "1 waits for approval, 4 in force"))

        limits.block("chat.update", SOC, clock(), 10_000)
        await env["lea"].confirms("Undo all", message)
        assert await edited_first("1 waits for approval, 4 undone by lea") == message["ts"]
        waits = "⏳ Waits for approval: ip 203[.]0[.]113[.]4."
        await env["anna"].sees(direct_message("Undone by lea: Isolate on ", waits, without="nder way"))


async def test_cards_no_longer_say_in_force_before_replies_say_what_was_undone(tmp_path: Path) -> None:
    clock, limits, cards = ManualClock(), RateLimiter(**UNLIMITED), list[str]()
    async with (
        asking(tmp_path, clock_ms=clock, rate_limiter=limits) as env,
        CoreClient(env.core.url, env.service_key) as bot,
    ):
        runs = list[str]()
        for number in range(2):
            artifact = {"dataType": "ip", "data": f"203.0.113.{number}"}
            alert, card = await env.alert_and_card("anna", sourceRef=f"{number}", artifacts=[artifact])
            run = await isolate(env, alert)
            await bot.as_user("ben").approve(run.id)
            await env.ended_run(alert)
            runs.append(run.id)
            cards.append(str(card["ts"]))
            clock.advance(10_000)  # Slack takes the next edit of the card at once
            await env["anna"].sees(card_of(alert, "in force until", "Told the firewall"))
        limits.block("chat.update", SOC, clock(), 10_000)
        before = len(env.emulator.traffic)
        for run_id in runs:
            undo = await bot.as_user("anna").undo(run_id)
            while (await env.client.action(undo.id, wait_s=10)).end_date is None:
                pass
        key = card_key(alert.id, SOC)
        await until_read(lambda: env.bot.outbox.message(key), lambda found: found and "undone by" in found.payload)
        clock.advance(10_000)
        await all_sent(env.bot)
        edits = [body for _, what, body, _ in env.emulator.traffic[before:] if what == "chat.update"]
        assert [body["ts"] for body in edits if body["channel"] == SOC][:2] == cards


async def test_a_reason_for_one_target_names_nothing_that_is_hidden_of_another(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        hidden = {"dataType": "hostname", "data": "SECRET-DC-01", "tlp": 3}
        alerts = [
            await env.create_alert(sourceRef=str(n), artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}, *more])
            for n, more in enumerate(([], [hidden]))
        ]
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            asked = BulkInput(responder_id="Isolate_1_0", targets=targets, note="Before SECRET-DC-01 goes.")
            bulk = await bot.as_user("anna").run_bulk(asked)
            await env["ben"].sees(direct_message("2 wait for approval"))
            first, second = [entry.action.id for entry in bulk.actions if entry.action]
            await bot.as_user("ben").deny_bulk(bulk.id, [first], "SECRET-DC-01 first.")
            assert "SECRET" not in str(await env["anna"].sees(on_phone("Denied by ben, not run: ")))
            message = await env["anna"].sees(message_in(SOC, "1 waits for approval, 1 denied", ">[withheld] first"))
            await bot.as_user("ben").deny_bulk(bulk.id, [second], "Likewise.")
            await env["anna"].command(SOC, "/responder mine")
            words = "nothing was run, 2 denied", "[withheld] first"
            for shown in (direct_message(*words), updated(message, *words), modal(*words)):
                assert "SECRET" not in str(await env["anna"].sees(shown))
        assert "SECRET" not in str([message, env["anna"].phone])


async def test_who_withdraws_all_of_their_own_bulk_is_not_rung_for_that(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        bulk, _ = await bulk_of(env, "anna", [3, 3])
        await env["ben"].sees(direct_message("2 wait for approval"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            for entry in bulk.actions:
                await bot.as_user("anna").cancel(entry.action.id if entry.action else "")
        await env["ben"].sees(direct_message("nothing was run, 2 withdrawn"))
        await all_sent(env.bot)
        assert env["anna"].phone == []


async def test_who_ends_the_rest_themselves_is_rung_only_for_decisions_that_did_not_ring(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "allow_permanent": True}) as env:
        anna = env["anna"]
        bulk, _ = await bulk_of(env, "anna", [3] * 4)
        kept, longer, *_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, [kept, longer])
            approved = (
                "Approved by ben, in force: Isolate on ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1 for 1 hour · up to HIGH"
            )
            await anna.sees(on_phone(approved))
            told = await anna.sees(direct_message(f"{approved}. Still waiting: "))
            message = await env["lea"].sees(message_in(SOC, "2 wait for approval"))
            await anna.confirms("Withdraw all", message)
            await anna.sees(updated(told, f"{approved}.", "🔒 Approved by ben, in force until <!date^"))

            asked = await bot.as_user("anna").extend_measures(dict.fromkeys([kept, longer]))
            ends = {one.action.id: one.action.extensions[0].id for one in asked.actions if one.action}
            await env["lea"].sees(direct_message("asks to keep *with no end*"))
            await bot.as_user("lea").approve_bulk(bulk.id, [ends[kept]])
            more = "More time with no end approved by lea: Isolate on ip 203[.]0[.]113[.]0"
            await anna.sees(on_phone(more))
            told = await anna.sees(direct_message(more))
            await anna.confirms("Undo all", await anna.sees(message_in(SOC, "asks to keep")))
            ended = "Undone by anna before more time was approved: Isolate on ip 203[.]0[.]113[.]1."
            undone = more.replace(":", ", undone by anna:")
            await anna.sees(updated(told, f"{undone}; {ended}"))
            await anna.sees(message_in(SOC, "2 withdrawn, 2 undone by anna"))
            await all_sent(env.bot)
            assert len(anna.phone) == 2

            bulk, _ = await bulk_of(env, "anna", [3] * 3)
            first, second, third = [entry.action.id for entry in bulk.actions if entry.action]
            await bot.as_user("ben").deny_bulk(bulk.id, [first], "It prints.")
            await anna.sees(on_phone("Denied by ben, not run: "))
            await bot.as_user("lea").deny_bulk(bulk.id, [second], "It beeps.")
            await anna.sees(message_in(SOC, "2 denied"))
            await bot.as_user("anna").cancel(third)
            assert (await anna.sees(on_phone("1 withdrawn"))).startswith("Denied by lea, not run: ")

            bulk, _ = await bulk_of(env, "anna", [3] * 3)
            first, second, third = [entry.action.id for entry in bulk.actions if entry.action]
            await bot.as_user("ben").approve(first)
            await anna.sees(on_phone("Approved by ben, in force: ", 2))
            await bot.as_user("ben").approve(second)
            await anna.sees(message_in(SOC, "1 waits for approval, 2 in force", bulk.id))
            await bot.as_user("anna").cancel(third)  # who reads then what stays in force
            await anna.sees(message_in(SOC, "1 withdrawn, 2 in force", bulk.id))
        await all_sent(env.bot)
        assert len(anna.phone) == 5


async def test_one_undo_all_that_ends_another_bulk_too_rings_each_person_once(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        first, alerts = await bulk_of(env, "anna", [4, 4])
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await env["lea"].sees(message_in(SOC, "2 wait for approval"))
            await bot.as_user("ben").approve_bulk(first.id, [run.action.id for run in first.actions if run.action])
            await env["anna"].sees(on_phone("Approved by ben, in force"))
            again = await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
            await env["lea"].sees(message_in(SOC, "2 wait for approval"))
            await bot.as_user("ben").approve_bulk(again.id, [run.action.id for run in again.actions if run.action])
            await env["anna"].sees(on_phone("Approved by ben, in force", 2))
            message = await env["lea"].sees(message_in(SOC, "2 in force", again.id))
            await env["lea"].confirms("Undo all", message)
        await env["anna"].sees(message_in(SOC, "2 undone by lea", first.id))
        await env["anna"].sees(message_in(SOC, "2 undone by lea", again.id))
        await all_sent(env.bot)
        for name in ("anna", "ben"):
            assert [text for text in env[name].phone if "Undone by" in text] == [
                "Undone by lea: Isolate on ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1 · up to CRITICAL."
            ]


async def test_each_undo_of_a_bulk_by_another_rings_once(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        bulk, _ = await bulk_of(env, "anna", [4] * 4)
        first, *_, last = ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await env["ben"].sees(direct_message("4 wait for approval"))
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(on_phone("Approved by ben, in force"))
            await bot.as_user("lea").end_measure(last, "It <prints>")
            for name in ("anna", "ben"):
                marked = await env[name].sees(
                    on_phone("Marked as ended by lea: Isolate on ip 203[.]0[.]113[.]3 · CRITICAL ")
                )
                assert marked.endswith(' · "It &lt;prints&gt;"')
            await bot.as_user("lea").undo(first)
        for name in ("anna", "ben"):
            await env[name].sees(on_phone("Undone by lea"))
        form = await env["lea"].confirms("Undo all", await env["lea"].sees(message_in(SOC, "2 undone by lea", bulk.id)))
        assert "anna and ben are notified." in text_of(form)
        on = [f"203[.]0[.]113[.]{n}" for n in range(3)]
        for name in ("anna", "ben"):
            await env[name].sees(on_phone("Undone by lea", 2))
        await env["anna"].sees(message_in(SOC, "4 undone by lea", bulk.id))
        await all_sent(env.bot)
        for name in ("anna", "ben"):
            one, of_all = (text for text in env[name].phone if "Undone by" in text)
            assert (one, of_all) == (
                f"Undone by lea: Isolate on ip {on[0]} · CRITICAL.",
                f"Undone by lea: Isolate on ip {', '.join(on[1:])} · up to CRITICAL.",
            )
            told = [m for m in direct_messages(env[name].live_view) if m["text"].startswith("Undone by lea")]
            assert [("see below" in m["text"], "Show each" in labels_of(m)) for m in told] == [
                (True, False),
                (False, True),
            ]


async def test_who_asked_for_a_bulk_is_rung_once_where_somebody_else_extends_one_or_all_of_it(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "undo_after_minutes": 600, "approval": 0}) as env:
        alerts = [
            await env.create_alert(sourceRef=f"{n}", artifacts=[{"dataType": "ip", "data": f"203.0.113.{n}"}])
            for n in range(2)
        ]
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            asked = BulkInput(responder_id="Isolate_1_0", targets=targets, undo_after_minutes=60)
            bulk = await bot.as_user("anna").run_bulk(asked)
            for alert in alerts:
                await env.ended_run(alert)
            await env["lea"].command(SOC, "/responder extend 203.0.113.0")
            await env["lea"].presses(
                "Extend", await env["lea"].sees(modal("*In force on 203[.]0[.]113[.]0: 1 measure*"))
            )
            form = await env["lea"].sees(modal("How much longer", "At once, without approval. anna is notified."))
            await env["lea"].submits(form, longer="+1 hour")
            one = "Extended by lea: Isolate on ip 203[.]0[.]113[.]0 ends in 2 hours · HIGH."
            assert await env["anna"].sees(on_phone("Extended by")) == one
            ids_ = [entry.action.id for entry in bulk.actions if entry.action]
            ends = [(await bot.action(id_)).undo for id_ in ids_]
            await bot.as_user("ben").extend_measures(
                {id_: (undo.at or 0) + 7_200_000 for id_, undo in zip(ids_, ends, strict=True) if undo}
            )
        both = "Extended by ben: Isolate on ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        assert await env["anna"].sees(on_phone("Extended by ben")) == f"{both} · up to HIGH."
        await env["anna"].sees(direct_message(f"{both}, until <!date^", " or later.", "Show each"))
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [2, 0, 0]


async def test_an_undo_of_a_bulk_s_run_that_fails_rings_who_asked_who_approved_and_who_began_it(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "undo": "Fail_1_0"}) as env:
        bulk, _ = await bulk_of(env, "anna", [4, 3])
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        await env["ben"].sees(direct_message("2 wait for approval"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(on_phone("Approved by ben, in force"))
            await bot.as_user("lea").undo(ids_[0])
            failed = "⚠️ Not undone: Isolate on ip 203[.]0[.]113[.]0 may still be in force · CRITICAL."
            for name in ("anna", "ben", "lea"):
                assert await env[name].sees(on_phone("Not undone")) == failed
            await bot.as_user("lea").undo(ids_[1])
        for name in ("anna", "ben", "lea"):
            await env[name].sees(
                direct_message("203[.]0[.]113[.]0, 203[.]0[.]113[.]1 may still be in force", "Show each")
            )
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [2, 2, 2]


async def test_channel_and_phone_name_targets_by_what_became_of_each(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        bulk, _ = await bulk_of(env, "anna", [3, 3, 3, 3])
        await env["ben"].sees(direct_message("4 wait for approval"))
        kept, undone, denied, _ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").deny_bulk(bulk.id, [denied], "The backup")
            await bot.as_user("ben").approve_bulk(bulk.id, [kept, undone])
            each = (
                "🚫 Denied by lea: ip 203[.]0[.]113[.]2.",
                ">The backup",
                "n force until <!date^",
            )
            waits = "⏳ *1 target for 1 hour · HIGH*: ip 203[.]0[.]113[.]3."
            on = ">: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1."
            posted = await env["anna"].sees(message_in(SOC, *each, on, waits))
            await env["anna"].presses("Withdraw", posted)
            form = await env["anna"].sees(
                modal("If you withdraw it, it will not run: nothing", "2 targets stay in force.")
            )
            await env["anna"].close(form["id"])
            await env["anna"].presses("Show each", posted)
            blocks = (await env["anna"].sees(modal("denied by lea", "in force until")))["blocks"]
            above = [
                blocks[n - 1]["text"]["text"]
                for n, one in enumerate(blocks)
                if '"Undo now"' in text_of({"blocks": one})
            ]
            assert [text.count("• ") for text in above] == [1, 1]  # so that buttons belong to one target alone
            await bot.as_user("lea").undo(undone)
            await env["anna"].sees(message_in(SOC, "undone by lea"))
        await expire(env)
        both = (
            "⌛ Not approved in time: ip 203[.]0[.]113[.]3.",
            "ndone by lea: ip 203[.]0[.]113[.]1.",
        )
        for message in (message_in(SOC, *each, *both), direct_message(*each, *both)):
            told = text_of(await env["anna"].sees(message))
            assert ">: ip 203[.]0[.]113[.]0." in told
            assert "🔒 *" not in told  # one of four is in force
        push = await env["anna"].sees(on_phone("1 not approved in time"))
        assert push.startswith("Not approved in time: Isolate on ip 203[.]0[.]113[.]3. In all, 4 targets for 1 hour")
        assert 'Denied by lea, not run: ip 203[.]0[.]113[.]2 · "The backup".' in push
        assert "Approved by ben, in force: ip 203[.]0[.]113[.]0." in push
        assert "Approved by ben, undone by lea: ip 203[.]0[.]113[.]1." in push


async def partly_approved(env: FeatureEnvironment) -> tuple[str, str, str]:
    """A bulk of anna's, and its two runs that ben has approved; one more waits."""
    bulk, _ = await bulk_of(env, "anna", [4, 4, 3])
    await env["ben"].sees(direct_message("3 wait for approval"))
    first, second, _ = [entry.action.id for entry in bulk.actions if entry.action]
    async with CoreClient(env.core.url, env.service_key) as bot:
        await bot.as_user("ben").approve_bulk(bulk.id, [first, second])
    await env["anna"].sees(message_in(SOC, "1 waits for approval, 2 in force"))
    return bulk.id, first, second


WAITS = "ip 203[.]0[.]113[.]2"


async def test_a_list_offers_no_review_of_more_time_that_one_run_of_a_bulk_asks_for_alone(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "allow_permanent": True}) as env:
        bulk_id, first, _ = await partly_approved(env)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").extend_measure(first, None)
        for login, typed, decide in (("anna", "mine", f"Withdraw {WAITS}"), ("lea", f"status {bulk_id}", "Review")):
            await env[login].command(SOC, f"/responder {typed}")
            listed = labels_of(await env[login].sees(modal("1 waits for approval, 2 in force")))
            assert listed[:3] == [decide, "Extend all", "Undo all"]


async def test_what_waits_and_more_time_have_buttons_of_their_own_names_below_their_own_texts(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "allow_permanent": True}) as env:
        bulk_id, first, second = await partly_approved(env)
        async with CoreClient(env.core.url, env.service_key) as bot:
            ends = dict.fromkeys([first, second], now_ms() + 7_300_000)
            answer = await bot.as_user("anna").extend_measures(ends, "Forensics until noon")
        then = [f"then *until <!date^{at // 1000}^" for at in ends.values()]
        message = text_of(await env["anna"].sees(message_in(SOC, "⏳ *anna* asks to keep")))
        order = (
            "⏳ *1 target for 1 hour",
            '"Review"',
            '"Withdraw"',
            '*Isolate* on 2 targets\\n\\"Forensics until noon\\"',
            "ip `203[.]0[.]113[.]0`",
            then[0],
            "ip `203[.]0[.]113[.]1`",
            "1 approval, answer by <!date^",
            '"Review more time"',
            '"Deny more time"',
            '"Withdraw more time"',
            '"Undo all"',
        )
        assert message.count(then[0]) == 2
        where = [message.find(words) for words in order]
        assert (where, min(where) > 0) == (sorted(where), True)
        direct = await env["ben"].sees(direct_message("1 waits for approval, 2 in force", "⏳ *anna* asks to keep"))
        assert {*labels_of(direct)}.isdisjoint(["Deny more time", "Withdraw more time"])  # a message of its own asks
        assert then[0] not in text_of(direct)
        await env["ben"].sees(on_phone("CRITICAL: keep Isolate on 2 targets"))  # though what waits is HIGH
        own = [f"Withdraw {WAITS}", "Withdraw more time"]
        for login, typed, deeds in (
            ("lea", f"status {bulk_id}", ["Review", "Review more time"]),
            ("anna", "mine", own),
        ):
            await env[login].command(SOC, f"/responder {typed}")
            listed = await env[login].sees(modal("1 waits for approval, 2 in force"))
            assert {*deeds, "Undo all"} <= {*labels_of(listed)}
        await all_sent(env.bot)
        assert "CRITICAL: more time for Isolate?" in [body["text"] for body in posted_to(env, SOC)]
        asked = [end.id for one in answer.actions if one.action for end in one.action.extensions]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").deny_bulk(bulk_id, asked, "Noon is enough.")
        push = await env["anna"].sees(on_phone("denied by ben"))
        assert re.search(r" ends in (1 hour|\d+ minutes) · up to CRITICAL · ", push)


async def test_what_was_refused_is_not_counted_among_what_nobody_approved(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "only_on": {"tags": ["c2"]}}) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        tags = ("c2", "other")
        alerts = [
            await env.create_alert(sourceRef=ip[0]["data"], tags=[tag], artifacts=ip)
            for tag, ip in zip(tags, ips, strict=True)
        ]
        async with CoreClient(env.core.url, env.service_key) as bot:
            targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
            await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
        await env["ben"].sees(direct_message("1 waits for approval"))
        await expire(env)
        push = await env["anna"].sees(on_phone("1 refused"))
        result = "2 targets for 1 hour · up to HIGH: nothing was run, 1 not approved in time, 1 refused."
        assert push.startswith(f"Not approved in time: Isolate on ip 203[.]0[.]113[.]0. In all, {result} Refused: ")


async def test_a_box_of_review_says_what_has_room_of_a_denial_and_a_containment_and_a_row_the_rest(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, {**ISOLATE, "undo_after_minutes": 3000}) as env:
        soon, late, for_soon, for_late = [
            await env.create_alert(
                sourceRef=str(n),
                severity=4,
                artifacts=[{"dataType": "ip", "data": f"203.0.113.{data}", "message": "Backup" if data == 2 else ""}],
            )
            for n, data in enumerate((1, 2, 1, 2))
        ]
        async with CoreClient(env.core.url, env.service_key) as bot:
            for other, minutes in ((for_soon, 30), (for_late, 2000)):
                await bot.as_user("ben").approve((await isolate(env, other, minutes=minutes)).id)
                await env["anna"].sees(on_phone("Approved by ben", 1 if other is for_soon else 2))
            for denied in (soon, late):
                await bot.as_user("ben").deny((await isolate(env, denied)).id, "It prints.")
            targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in (soon, late)]
            await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
        request = await env["lea"].sees(direct_message("2 wait for approval"))
        review = within_limits(await reviewed(env, "lea", request, " on 2 targets"))
        ticks = next(block["element"]["options"] for block in review["blocks"] if block["type"] == "input")
        first, second = [one["description"]["text"] for one in ticks]
        assert first.startswith(f"🔴 CRITICAL ({soon.id}) · 🚫 denied before · 🔒 until <!date^")
        assert second == f"🔴 CRITICAL · Backup ({late.id}) · 🚫 denied before · 🔒 contained already"
        name = "ip 203[.]0[.]113[.]1 · ET MALWARE Beacon to known C2"  # its alert, in spite of what happened before
        assert ticks[0]["text"]["text"] == name
        rows = text_of(review).partition('"Deny the ticked"')[2]
        assert (rows.count("It prints."), rows.count("This lasts longer")) == (2, 0)
        # Nobody runs with one press what somebody has denied. What a second run changes is the same of both.
        change = "This lasts longer: 50 hours from when it starts."
        warned = f"🚫 *2 denied before*: left for you to tick · 🔒 *2 contained already*. {change}"
        assert "?* none ticked for you\\n*anna* asks for it\\n1 approval, answer by " in text_of(review)
        assert f'{warned}", ' in text_of(review)
        assert filled_in(review)["decide"] == []
        await env["lea"].presses("Deny the ticked", review)
        review = await env["lea"].sees(modal("Isolate?", "⚠️ *Tick at least one.* Nothing was denied."))
        await env["lea"].submits(review, decide=[ticks[1]["text"]["text"]])
        await env["lea"].reads("You approved 1 run: Isolate on 🔴 CRITICAL ip 203[.]0[.]113[.]2.")
