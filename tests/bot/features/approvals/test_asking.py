"""Who is asked to approve, how often, and what tells whoever asked how it ended: what phones show."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.app import running
from bot.block_kit import ids
from bot.block_kit.notices import CHANGED
from bot.clearance import SHARED, RedactedView, Subject
from bot.features.runs.views.undo_state import decided_before, denied_longer
from bot.identity import CACHE_MS
from bot.message import Message
from bot.notifier.asking import AT_MOST, LATELY_MS
from bot.outbox.models import DesiredMessage, RefreshRequest
from bot.outbox.retention import CONTENT_KEEP_MS
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import MINUTE_MS
from core.common.errors import ResponderBotError
from core.models import Action, Alert, BulkInput, RunTarget
from tests import stores
from tests.bot import samples
from tests.bot.features.approvals.asking import ISOLATE, asking, bulk_of, expire, isolate
from tests.bot.features.bulks.bulk import reviewed
from tests.bot.features.bulks.bulk import shown as bulk_shown
from tests.bot.features.environment import CLEAR, FAILED, FeatureEnvironment, feature_environment
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.people import (
    app_home,
    button_of,
    card_of,
    direct_message,
    direct_messages,
    field_of,
    filled_in,
    labels_of,
    message_in,
    modal,
    on_phone,
    options_of,
    reply_to,
    text_of,
    updated,
    within_limits,
)
from tests.bot.running import CHANNELS, NO_CARDS, OPEN, SOC, UNLIMITED

ONCALL = "S0ONCALL"


def without_minutes(push: str) -> str:
    """A push with "soon" for in how long a run ends, which a slow machine changes."""
    return re.sub(r" ends in (?:1 hour|\d+ minutes)(?= · |$)", " ends soon", push)


def calls(env: FeatureEnvironment) -> Counter[str]:
    """Posts and edits in channels and in direct messages, so far; edits for progress, which a quick run skips, aren't
    counted.
    """
    counts: Counter[str] = Counter()
    for _, what, body, _ in env.emulator.traffic:
        where = "" if str(body.get("channel")).startswith("C") else "direct "
        if what == "chat.postMessage":
            counts[f"{where}post"] += 1
        elif what == "chat.update" and not re.search("about to start|running|being undone", str(body)):
            counts[f"{where}edit"] += 1
    return counts


async def test_one_containment_with_undo_rings_each_approver_once_and_who_asked_twice(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben", "lea"]}, channels=CHANNELS[:1]) as env:
        alert, card = await env.alert_and_card("anna")
        await isolate(env, alert)
        request = await env["ben"].sees(direct_message("asks · "))
        await env["lea"].sees(direct_message("asks · "))
        await env["ben"].confirms("Approve", request)
        told = await env["anna"].sees(on_phone("Approved"))
        assert told.startswith("Approved by ben, in force: Isolate on ip 203[.]0[.]113[.]7 for 1 hour · HIGH ")
        shown = await env["anna"].sees(direct_message("Approved by ben:"))
        assert "in force until" in text_of(shown)
        of_ben = await env["ben"].sees(updated(request, "Approved by ben.", "🔒 in force until <!date^"))
        assert "Undo now" in labels_of(of_ben)  # where the order was given
        await all_sent(env.bot)
        await env["ben"].sees(reply_to(card, "*Isolate* done"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").undo((await env.ended_run(alert)).id)
        assert "Undone by ben: Isolate on ip 203[.]0[.]113[.]7" in await env["anna"].sees(on_phone("Undone by"))
        await env["ben"].sees(reply_to(card, "*Tell* done"))
        ended = await env["ben"].sees(reply_to(card, "🔓 *Isolate* on ip 203[.]0[.]113[.]7, for ", ": undone by ben, "))
        assert "Undone" not in text_of(ended)
        await all_sent(env.bot)
        undone = await env["ben"].sees(updated(request, "🔓 undone by ben, <!date^", without="in force"))
        assert "Undo now" not in labels_of(undone)
        await all_sent(env.bot)
        assert calls(env) == {"post": 4, "edit": 5, "direct post": 4, "direct edit": 4}
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [2, 1, 1]


async def test_each_who_may_decide_is_named_in_the_thread_and_gets_one_message(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        alert = await env.create_alert(tlp=2)
        card, elsewhere = await env["ben"].sees(card_of(alert)), await env["ben"].sees(card_of(alert, channel=OPEN))
        await isolate(env, alert)
        told = [await env[name].sees(direct_message("asks · ")) for name in ("ben", "lea")]
        request = await env["eve"].sees(reply_to(card, "asks · "))
        assert request["blocks"][0]["text"]["text"].startswith("ben, lea: *Isolate on ")
        assert request["text"] == told[0]["text"] == told[1]["text"]
        assert not [m for m in env["ben"].live_view.thread(OPEN, elsewhere["ts"]) if "lea" in text_of(m)]
        await env["ben"].confirms("Approve", told[0])
        decided = await env["lea"].sees(direct_message("Approved by ben."))
        assert (decided["ts"], ids.APPROVE in text_of(decided)) == (told[1]["ts"], False)
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("ben", "lea", "eve", "uma")] == [1, 1, 0, 0]
        assert "lea" not in text_of(env["eve"].live_view.message(SOC, request["ts"]) or {})


async def test_a_user_group_of_the_settings_is_named_instead_and_reminded_in_the_thread(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "ask": [ONCALL, "U0EVE", "U0BEN"]}, clock_ms=clock) as env:
        env.emulator.set_usergroup(ONCALL, ["U0LEA"])
        alert, card = await env.alert_and_card("anna")
        await isolate(env, alert)
        await env["ben"].sees(direct_message("asks · "))
        request = await env["anna"].sees(reply_to(card, "asks · "))
        assert request["blocks"][0]["text"]["text"].startswith(f"<!subteam^{ONCALL}> <@U0EVE> ben: *Isolate on ")
        clock.ahead_ms = 31 * MINUTE_MS
        reminder = await env["anna"].sees(reply_to(card, "for 1 hour? Answer by <!date^"))
        assert reminder["blocks"][0]["text"]["text"].startswith(f"<!subteam^{ONCALL}> ⏰ HIGH: Isolate on ")
        again = await env["ben"].sees(on_phone("for 1 hour? 29 minutes left."))
        assert again.startswith("HIGH: Isolate on ip 203[.]0[.]113[.]7 for")
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("lea", "eve", "ben")] == [2, 1, 2]  # eve may not decide
        assert [m for m in direct_messages(env["lea"].live_view) if not m.get("ephemeral")] == []


async def test_the_channel_is_asked_where_nobody_in_slack_may_decide(tmp_path: Path) -> None:
    channels = [{**CHANNELS[0], "mention": {"critical": "U0EVE"}}, CHANNELS[1]]
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["admin"]}, channels=channels) as env:
        alert, card = await env.alert_and_card("anna")
        await isolate(env, alert)
        request = await env["anna"].sees(reply_to(card, "asks · "))
        assert request["blocks"][0]["text"]["text"].startswith("<@U0EVE> *Isolate on ")
        assert request in env["anna"].live_view.messages(SOC)  # also in the channel
        assert [m for m in env["anna"].live_view.messages(OPEN) if "needs approval" in m["text"]] == []
        await all_sent(env.bot)
        assert (len(env["eve"].phone), env["ben"].phone) == (1, [])


async def test_those_who_were_asked_are_asked_once_more_at_half_of_the_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approval": 2}, clock_ms=clock) as env:
        alert = await env.create_alert()
        card = await env["anna"].sees(card_of(alert))
        action = await isolate(env, alert)
        first = await env["lea"].sees(direct_message("asks · "))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve(action.id)
        await env["lea"].sees(direct_message("approved by ben"))
        own = await env["ben"].sees(direct_message("approved by ben"))  # who decided elsewhere
        assert ids.APPROVE not in text_of(own)
        clock.ahead_ms = 29 * MINUTE_MS
        await env.bot.outbox.finish([RefreshRequest(alert.id)])
        clock.ahead_ms = 31 * MINUTE_MS
        await env["lea"].sees(on_phone("29 minutes left."))
        reminder = await env["lea"].sees(
            direct_message("⏰ HIGH: Isolate on ip 203[.]0[.]113[.]7 for 1 hour? Answer by <!date^")
        )
        here = await env["lea"].dm(env.emulator.bot_user_id)
        assert f"/archives/{here}/p{first['ts'].replace('.', '')}|Review>" in text_of(reminder)
        assert (labels_of(reminder), "Approve" in labels_of(first)) == ([], True)
        in_thread = await env["anna"].sees(reply_to(card, "lea was reminded. *Isolate on "))
        assert "Nobody has answered" not in text_of(in_thread)  # ben has
        await env["lea"].sees(updated(first, "Ends by itself", ids.APPROVE))
        await env.client.deny(action.id, "a <printer> of 203.0.113.7")
        why = "Denied by admin: a &lt;printer&gt; of 203[.]0[.]113[.]7"
        await env["lea"].sees(updated(first, why, without="Ends by itself"))
        await env["lea"].sees(updated(reminder, "Denied by admin: Isolate on", without="⏰"))
        await all_sent(env.bot)
        assert [len([t for t in env[name].phone if " left." in t]) for name in ("lea", "ben")] == [1, 0]
        assert len([m for m in direct_messages(env["lea"].live_view) if ids.APPROVE in text_of(m)]) == 0


async def test_of_twenty_requests_each_is_asked_about_ten_and_what_is_worse_and_one_message_counts_the_rest(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as env:
        worse = {14: 4, 12: 3}
        alerts = [
            await env.create_alert(sourceRef=str(n), title=f"Beacon {n}", severity=worse.get(n, 2)) for n in range(20)
        ]
        asked = [await isolate(env, alert) for alert in alerts]
        counting = await env["ben"].sees(direct_message("8 more requests for approval* since", alerts[10].id))
        await all_sent(env.bot)
        worst = f"the worst MEDIUM: Isolate on ip 203[.]0[.]113[.]7 for 1 hour? Beacon 10 ({alerts[10].id})"
        assert f"8 more requests for approval, {worst}, asked by anna" == counting["text"]
        since, until = map(int, re.findall(r"<!date\^(\d+)\^", text_of(counting))[:2])
        assert until - since == LATELY_MS // 1000
        assert "> those that are no more urgent may not ring. " in text_of(counting)
        assert max(text_of(m).count("also asks for") for m in direct_messages(env["ben"].live_view)) == 3
        rung = AT_MOST + len(worse)
        for name in ("ben", "lea"):
            messages = [m for m in direct_messages(env[name].live_view) if not m.get("ephemeral")]
            assert (len([m for m in messages if "asks · " in text_of(m)]), len(messages)) == (rung, rung + 1)
            assert len(env[name].phone) == rung + 1
            assert [text for text in env[name].phone if text.startswith("CRITICAL: Isolate on ")]
        here = await env["ben"].dm(env.emulator.bot_user_id)
        posts = [body for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
        assert len([body for body in posts if body["channel"] == here]) == rung + 1
        counted = calls(env)  # in two channels a card and a request for each
        assert (counted["post"], counted["direct post"]) == (2 * 2 * len(alerts), 2 * (rung + 1))
        await env.client.deny(asked[10].id, "A test")
        for name in ("ben", "lea"):
            left = await env[name].sees(direct_message("8 more requests for approval* since", without="Beacon 10"))
            assert (left["text"], len(env[name].phone)) == ("8 more requests for approval.", rung + 1)


async def test_a_storm_keeps_nobody_from_hearing_of_several_worse_runs_or_of_what_only_they_decide(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as env:
        for name, level in (("anna", 3), ("ben", 2)):
            await env.core.core.people.set_clearance(name, level)
        for n in range(AT_MOST + 1):
            await isolate(env, await env.create_alert(sourceRef=str(n), severity=4 if n == 3 else 2))
        red = await env.create_alert(sourceRef="red", title="Beacon red", severity=2, tlp=3)
        await isolate(env, red)
        await env["lea"].sees(on_phone("Beacon red"))  # which ben may not see
        await env["lea"].sees(direct_message("1 more request for approval"))
        await bulk_of(env, "anna", [4, 4], red=[0])
        both = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        asks = "CRITICAL: Isolate on 2 targets for 1 hour? Asked by anna: "
        assert await env["lea"].sees(on_phone("Isolate on 2 targets")) == f"{asks}{both}"
        alone = asks.replace("2 targets", "1 target (1 more that you may not see)")
        assert await env["ben"].sees(on_phone("Isolate on 1 target")) == f"{alone}ip 203[.]0[.]113[.]1"
        message = await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        await env["anna"].sees(reply_to(message, "ben, lea: *Isolate* on 2 targets"))


async def test_the_worst_of_many_requests_is_shown_to_whom_it_may_be_for_as_long_as_that_is_so(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, clock_ms=clock) as env:
        await env.core.core.people.set_clearance("ben", 2)
        for n in range(AT_MOST):
            await isolate(env, await env.create_alert(sourceRef=str(n), severity=3))
        red = await env.create_alert(sourceRef="red", title="Beacon red", severity=4, tlp=3)
        await isolate(env, red, by="lea")  # ben may not see it, so that it isn't counted for him
        amber = await env.create_alert(sourceRef="amber", title="Beacon amber", severity=3)
        await isolate(env, amber)
        counting = await env["ben"].sees(direct_message("1 more request for approval*", "Beacon amber"))
        await env["ben"].presses("Review", counting)
        await env["ben"].sees(modal("Beacon amber", without=CHANGED))
        await all_sent(env.bot)
        await env.bot.close()
        clock.ahead_ms += CONTENT_KEEP_MS + MINUTE_MS
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock, rate_limiter=RateLimiter(**UNLIMITED)) as bot,
        ):
            await bot.outbox.retention(0, core.closed).prune()
            await env.client.request("PATCH", f"/api/alert/{amber.id}", {"tlp": 3})
            await env["ben"].sees(direct_message("1 more request for approval*", without="Beacon amber"))
            await env["lea"].sees(direct_message("1 more request for approval*", "Beacon amber"))


async def test_a_bulk_that_is_counted_is_shown_with_its_review_to_whom_it_may_be_while_it_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, clock_ms=clock) as env:
        await env.core.core.people.set_clearance("ben", 2)
        for n in range(AT_MOST):
            await isolate(env, await env.create_alert(sourceRef=str(n), severity=3))
        bulk, (first, _) = await bulk_of(env, "anna", [3, 2])
        worst = (
            "the worst HIGH: Isolate on 2 targets for 1 hour? Asked by anna: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        )
        for name in ("ben", "lea"):
            assert await env[name].sees(on_phone("1 more request")) == f"1 more request for approval, {worst}"
        counting = await env["ben"].sees(direct_message("1 more request for approval*", bulk.id))
        await reviewed(env, "ben", counting, " on 2 targets")
        await env.client.request("PATCH", f"/api/alert/{first.id}", {"tlp": 3})
        left = await env["ben"].sees(direct_message("1 more request for approval*", without="203[.]0[.]113[.]0"))
        assert "Isolate on 1 target for 1 hour?* · anna" in text_of(left)
        await env.core.core.people.set_clearance("ben", 1)
        clock.ahead_ms += CACHE_MS
        env.bot.channels.refreshed.set()
        await env["ben"].sees(direct_message("1 more request for approval*", without="203[.]0[.]113[.]1"))
        await env.client.deny_bulk(bulk.id, None, "A test")
        await env["lea"].sees(direct_message("1 more request for approval*", without=bulk.id))


def test_what_asks_goes_after_critical_cards_and_before_what_happens() -> None:
    subject = Subject.alert(samples.alert(severity=4))
    content, view = Message("text"), RedactedView(subject, 2)
    ranks = {
        key: DesiredMessage(key, channel, content, view=view).post_rank
        for key, channel in (
            ("alert:~12:C0SOC", "C0SOC"),
            ("approval:~13:~13:C0SOC", "C0SOC"),
            ("ask:~13:T0:U0BEN:~13", "U0BEN"),
            ("asks:1:T0:U0BEN", "U0BEN"),
            ("bulk:~14:T0:U0BEN", "U0BEN"),
            ("told:~13:T0:U0ANNA", "U0ANNA"),
        )
    }
    card, *asks, told = ranks.values()
    assert card < min(asks) == max(asks) < told


async def test_who_asked_reads_that_nobody_answered_and_can_ask_again(tmp_path: Path) -> None:
    async with asking(tmp_path, audited=False) as env:
        alert = await env.create_alert()
        await env["anna"].command(SOC, f'/responder run isolate {alert.id} note="It beacons."')
        await env["anna"].submits(await env["anna"].sees(modal("How long")), undo_after="15 minutes")
        await env["ben"].sees(direct_message("asks · "))
        await expire(env)
        told = await env["anna"].sees(direct_message("Nobody answered"))
        was_not_run = "Nobody answered: Isolate on ip 203[.]0[.]113[.]7 for 15 minutes was not run · HIGH"
        assert told["text"].startswith(was_not_run)
        card = await env["anna"].sees(card_of(alert, "⌛ *Isolate*", "Ask again"))
        assert "confirm" not in button_of(told, "Ask again")  # the form alone asks
        form = await env["anna"].confirms("Ask again", told)
        assert form["submit"]["text"] == "Ask to isolate"
        assert filled_in(form) == {"undo_after": "15 minutes", "note": "It beacons."}
        assert "🟠 *HIGH*" in text_of(form)
        assert "Asks ben and lea; one of them approves." in text_of(form)
        assert await env["ben"].sees(on_phone("HIGH: Isolate on ip 203[.]0[.]113[.]7 for 15 minutes?", 2))
        asked = await env["anna"].sees(updated(card, "⏳ *Isolate*", without="Ask again"))
        assert "⌛ *Isolate*" in text_of(asked)


async def test_who_asks_again_for_what_was_denied_reads_that_and_so_does_who_is_rung(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        alert, _ = await env.alert_and_card("anna")
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("How long"))
        assert "🚫" not in text_of(form)
        await env["anna"].submits(form)
        await env["ben"].confirms("Deny", await env["ben"].sees(direct_message("asks · ")), reason="Call the <owner>.")
        told = await env["anna"].sees(direct_message("Denied by ben"))
        assert told["text"].endswith(f' was not run · HIGH {alert.title} ({alert.id}) · "Call the &lt;owner&gt;."')
        await env["anna"].command(SOC, "/responder mine")
        mine = await env["anna"].sees(modal("*Your runs*"))
        await env["anna"].presses("Ask again", mine)
        again = await env["anna"].sees(modal("How long", "🚫 *Denied before by ben, <!date^", "the &lt;owner&gt;."))
        await env["anna"].submits(again)
        deed = "HIGH: Isolate on ip 203[.]0[.]113[.]7 for 1 hour?"
        assert await env["lea"].sees(
            on_phone(f"{deed} Denied before by ben. ET MALWARE Beacon to known C2 ({alert.id}), asked by anna")
        )
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "198.51.100.9"}])
        (waits, _) = await env.client.actions("alert", alert.id)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").deny(waits.id, "known <noise>")
        await env["anna"].command(SOC, f"/responder run isolate {alert.id} {other.id}")
        head = "*Isolate* on *2 targets*, after 1 approval\\n🚫 *1 denied before*"
        form = await env["anna"].sees(modal(head, "*Runs on 2 targets*"))
        assert text_of(form).index(head) < text_of(form).index("How long") < text_of(form).index("*Runs on")
        was_denied = f"({alert.id})\\n    ↳ 🚫 *Denied 2 times, last by lea, <!date^"
        await env["anna"].submits(form)
        asks = "HIGH: Isolate on 2 targets for 1 hour? 1 denied before. Asked by anna: "
        on = "ip 203[.]0[.]113[.]7, 198[.]51[.]100[.]9"
        assert await env["ben"].sees(on_phone("Isolate on 2 targets")) == f"{asks}{on}"
        request = await env["ben"].sees(direct_message("*Isolate* on 2 targets"))
        await env["ben"].presses("Review", request)
        review = await env["ben"].sees(modal("*Isolate on 2 targets for 1 hour?* 1 ticked for you"))
        for shown in (form, request):
            said = text_of(shown).partition(was_denied)[2].partition("\\n•")[0]
            each = r'>\*: \\"known &lt;noise&gt;\\"; before by ben, <!date[^>]*>: \\"Call the &lt;owner&gt;\.\\"'
            assert re.search(each, said)
            assert text_of(shown).count("🚫 *Denied ") == 1
        assert f'"🟠 HIGH ({alert.id}) · 🚫 denied 2 times, last by lea: known &lt;noise&gt;"' in text_of(review)
        assert "• " not in text_of(review)  # no target is named twice
        await env["ben"].presses("Show each", request)
        await env["ben"].sees(
            modal(" · needs 1 approval · for 1 hour\\n    ↳ 🚫 *Denied 2 times, last by lea, <!date^")
        )
        two = [{"dataType": "ip", "data": f"198.51.100.{number}"} for number in (7, 8)]
        several = await env.create_alert(sourceRef="several", artifacts=two)
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": several.id}
        asked = await env.client.run({**body, "target": [several.artifacts[1].id]})
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").deny(asked.id, "the backup")
        await env["lea"].command(SOC, f"/responder run isolate {several.id}")
        denied = "🚫 *ip 198[.]51[.]100[.]8: denied before by ben, <!date^"
        assert await env["lea"].sees(modal("What should it act on?", denied, "the backup"))


async def test_who_asks_again_for_what_somebody_undid_reads_that_and_so_does_who_decides(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        alert, card = await env.alert_and_card("anna")
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").deny((await isolate(env, alert)).id, "The <CFO>: call first")
            first = await isolate(env, alert)
            await bot.as_user("ben").approve(first.id)
            await env.ended_run(alert)
            second = await isolate(env, alert)
            await env["ben"].sees(on_phone("Contained already by anna"))
            await bot.as_user("ben").undo(first.id)
            waits = await env["ben"].sees(direct_message("⚠️ *Tell* by ben ran on it <!date^", "Undone before by ben"))
            assert "🔓" not in text_of(waits)  # which would say the same once more
            await bot.as_user("ben").approve(second.id)
            await env["anna"].sees(on_phone("Approved by ben", 2))
            await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
            form = await env["anna"].sees(modal("How long", "is contained already"))
            assert "🔓" not in text_of(form)  # while it is in force again
            await bot.as_user("lea").undo(second.id)
            await env["ben"].sees(reply_to(card, "undone by lea"))
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        again = "🔓 *Undone 2 times, last by lea, <!date^"
        form = await env["anna"].sees(modal("How long", again))
        await env["anna"].submits(form)
        await env["ben"].sees(on_phone("? Alert closed by anna. Undone before by lea. Denied before by lea. "))
        waits = await env["ben"].sees(direct_message("asks · ", again))
        await env["ben"].presses("Approve", waits)
        review = await env["ben"].sees(modal(again, "Starts as soon as you approve it"))
        for shown in (form, waits, review):  # also what an approval has overruled, once that was undone
            denied = "🚫 .Denied before by lea, .*: ..The &lt;CFO&gt;: call"
            assert re.search(f"{re.escape(again)}.*{denied}", text_of(shown))
        await env["anna"].confirms("Withdraw", await env["anna"].sees(card_of(alert, "⏳ *Isolate*")))
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "198.51.100.9"}])
        await env["anna"].command(SOC, f"/responder run isolate {alert.id} {other.id}")
        form = await env["anna"].sees(modal("*Isolate* on *2 targets*, after 1 approval\\n🔓 *1 undone before*", again))
        await env["anna"].submits(form)
        two = "HIGH: Isolate on 2 targets for 1 hour? 1 undone before, 1 closed by now. Asked by anna: "
        push = f"{two}ip 203[.]0[.]113[.]7, 198[.]51[.]100[.]9"
        assert await env["ben"].sees(on_phone("Isolate on 2 targets")) == push
        await env["ben"].presses("Review", await env["ben"].sees(direct_message("*Isolate* on 2 targets", again)))
        review = await env["ben"].sees(modal("🔓 *1 undone before*: left for you to tick"))
        assert (
            again in text_of(review),
            f"HIGH ({alert.id}) · ⚠️ alert closed · 🔓 undone before" in text_of(review),
        ) == (
            True,
            True,
        )
        assert len(filled_in(review)["decide"]) == 1


async def test_who_asks_for_what_was_denied_or_undone_on_another_alert_reads_that_and_so_does_who_decides(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as env:
        async with CoreClient(env.core.url, env.service_key) as bot:
            first, _ = await env.alert_and_card("anna")
            await bot.as_user("ben").deny((await isolate(env, first)).id, "Call the <owner>.")
            two = [{"dataType": "ip", "data": f"203.0.113.{number}"} for number in (7, 8)]
            both, card = await env.alert_and_card("anna", sourceRef="both", title="Two hosts", artifacts=two)
            undone = await env.create_alert(sourceRef="undone", artifacts=two[1:])
            run = await isolate(env, undone)
            await bot.as_user("ben").approve(run.id)
            await env.ended_run(undone)
            await bot.as_user("lea").undo(run.id)
            await env["anna"].sees(on_phone("Undone by lea"))
            before = "🚫 *ip 203[.]0[.]113[.]7: denied before by ben, <!date^"
            since = "🔓 *ip 203[.]0[.]113[.]8: undone before by lea, <!date^"
            why = f', for {first.id}*: \\"Call the &lt;owner&gt;.\\"'
            await env["anna"].command(SOC, f"/responder run isolate {both.id}")
            form = await env["anna"].sees(modal("How long", before, why, since, f", for {undone.id}*"))
            await env["anna"].submits(form, target=[one.id for one in both.artifacts])
            asked = await env["ben"].sees(direct_message("asks · ", before, since, f", for {undone.id}*"))
            assert "Call the" not in text_of(asked)  # whose level may rise
            assert "? Undone before by lea. Denied before by ben. " in asked["text"]
            await env["ben"].presses("Approve", await env["ben"].sees(card_of(both, "⏳ *Isolate*")))
            await env["ben"].sees(modal(before, why, since))
            elsewhere = await env["ben"].sees(card_of(both, channel=OPEN))
            await env["ben"].sees(reply_to(card, before, f", for {first.id}*", since))
            await all_sent(env.bot)
            assert "before by" not in str(env["ben"].live_view.thread(OPEN, elsewhere["ts"]))
            await env["anna"].confirms("Withdraw", await env["anna"].sees(card_of(both, "⏳ *Isolate*")))
        third = await env.create_alert(sourceRef="third")
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "198.51.100.9"}])
        await env["anna"].command(SOC, f"/responder run isolate {third.id} {other.id}")
        form = await env["anna"].sees(modal("*2 targets*, after 1 approval\\n🚫 *1 denied before*", why))
        await env["anna"].submits(form)
        await env["ben"].presses(
            "Review", await env["ben"].sees(direct_message("*Isolate* on 2 targets", f", for {first.id}*"))
        )
        review = await env["ben"].sees(modal("🚫 *1 denied before*: left for you to tick"))
        so = f"HIGH ({third.id}) · 🚫 denied by ben, for {first.id}: Call the &lt;owner&gt;."
        assert so in text_of(review)
        names = [one["text"]["text"] for one in field_of(review, "decide")["element"]["options"]]
        await env["ben"].fills_in(review, decide=names)
        await env.client.close_alerts([other.id])
        await env["ben"].submits(review)
        again = await env["ben"].sees(modal(CHANGED, "?* 1 still ticked"))
        assert filled_in(again)["decide"] == [one for one in names if one.startswith("ip 203")]
        assert "🚫 *1 denied before*: left for you to tick" in text_of(again)  # also once that was ticked


async def test_of_a_host_and_an_account_of_the_same_name_each_has_its_own_denials(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "target": "hostname, username"}) as env:

        async def on(name: str, *kinds: str) -> Alert:
            artifacts = [{"dataType": kind, "data": name} for kind in kinds]
            return await env.create_alert(sourceRef=f"{name} {kinds} {len(asked)}", artifacts=artifacts)

        asked = list[Action]()
        async with CoreClient(env.core.url, env.service_key) as bot:
            for named in (("backup", "hostname", "username"), ("scanner", "hostname")):
                alert = await on(*named)
                body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id}
                chosen = [artifact.id for artifact in alert.artifacts]
                asked.append(await bot.as_user("anna").run({**body, "target": chosen}))
                await bot.as_user("ben").deny(asked[-1].id, "Not now")
        for name, number in (("backup", 2), ("scanner", 1)):
            host, account = [await on(name, kind) for kind in ("hostname", "username")]
            await env["anna"].command(SOC, f"/responder run isolate {host.id} {account.id}")
            form = await env["anna"].sees(modal(f"*2 targets*, after 1 approval\\n🚫 *{number} denied before*"))
            of_host, of_account = text_of(form).partition(f"({host.id})")[2].split(f"({account.id})")
            assert ("enied before by ben" in of_host, "enied before by ben" in of_account) == (True, number == 2)


async def test_what_was_denied_on_an_alert_that_somebody_may_not_see_is_not_said_to_them(tmp_path: Path) -> None:
    async with asking(tmp_path) as env, CoreClient(env.core.url, env.service_key) as bot:
        await env.core.core.people.set_clearance("ben", 2)
        secret = await env.create_alert(sourceRef="secret", tlp=3)
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": secret.id}
        await bot.as_user("lea").deny((await env.client.run(body)).id, "Our own test")
        alert, card = await env.alert_and_card("anna", sourceRef="other", severity=2)
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("How long"))
        await env["anna"].submits(form)
        of_ben, of_lea = [await env[name].sees(direct_message("asks · ", f"({alert.id})")) for name in ("ben", "lea")]
        thread = await env["ben"].sees(reply_to(card, "asks · "))
        for shown in (form, of_ben, thread):
            assert "🚫" not in text_of(shown)
        assert "Denied" not in str(env["ben"].phone)
        said = "🚫 *Denied before by lea, <!date^"
        await env["lea"].presses("Approve", of_lea)
        await env["lea"].sees(modal("Starts as soon", said, f', for {secret.id}*: \\"Our own test\\"'))
        found = await bot.as_user("lea").decided_before("Isolate_1_0", [alert.id])
        assert ([one.object_id for one in found], decided_before(found, SHARED)) == ([secret.id], [])
        await env["anna"].confirms("Withdraw", await env["anna"].sees(card_of(alert, "⏳ *Isolate*")))
        partly = await env.create_alert(
            sourceRef="partly",
            artifacts=[
                {"dataType": "ip", "data": "203.0.113.7"},
                {"dataType": "hostname", "data": "srv-red", "tlp": 3},
            ],
        )
        await bot.as_user("lea").deny((await isolate(env, partly)).id, "As on srv-red")
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("How long", said))
        assert f", for {partly.id}*" in text_of(form)
        assert "As on" not in text_of(form)
        await env["lea"].command(SOC, f"/responder run isolate {alert.id}")
        assert await env["lea"].sees(modal("How long", "🚫 *Denied 2 times, last by lea", "As on srv-red"))


async def test_who_asks_for_what_waits_already_reviews_it_and_only_who_may_decide_is_offered_that(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["anna", "ben"]}) as env:
        alert, _ = await env.alert_and_card("anna")
        await isolate(env, alert)
        for name in ("lea", "ben"):
            await env[name].command(SOC, f"/responder run isolate {alert.id}")
            waits = await env[name].sees(modal("⚠️ *Isolate* on ip 203[.]0[.]113[.]7 for 1 hour, asked by anna"))
            assert (waits["submit"]["text"], "Review" in labels_of(waits)) == ("Ask anyway", name == "ben")
            assert alert.id not in text_of(waits).partition("asked by anna")[2].partition("still waits")[0]
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        own = await env["anna"].sees(modal("⚠️ Your request of <!date^", "still waits for approval.", "Withdraw"))
        await env["anna"].close(own["id"])
        await env["ben"].presses("Review", waits)
        await env["ben"].submits(
            await env["ben"].sees(modal("*Isolate on ip `203[.]0[.]113[.]7` for 1 hour?*", "Deny"))
        )
        assert (await env.ended_run(alert)).approval.approved_by == ["ben@responder-bot.local"]  # type: ignore[union-attr]


async def test_more_time_is_asked_for_and_ends_on_phones_as_a_run_does(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}, audited=False, clock_ms=clock) as env:
        alert, _ = await env.alert_and_card("anna")
        action = await isolate(env, alert, minutes=15)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve(action.id)
            await env["anna"].sees(on_phone("Approved by ben"))
            at = (await env.ended_run(alert)).undo.at or 0  # type: ignore[union-attr]  # it can be undone
            await bot.as_user("anna").extend_measure(action.id, at + 45 * MINUTE_MS)
        of = f"{alert.title} ({alert.id})"
        deed = "HIGH: keep Isolate on ip 203[.]0[.]113[.]7 for 45 minutes longer?"
        asks = f"{deed} Alert closed by anna. {of}, asked by anna"  # the run closed it
        assert await env["ben"].sees(on_phone("HIGH: keep")) == asks
        clock.ahead_ms = 8 * MINUTE_MS
        again = asks.replace("? ", "? 7 minutes left. ")
        await env["ben"].sees(on_phone(again))
        await expire(env)
        ends = "More time of 45 minutes not approved in time: Isolate on ip 203[.]0[.]113[.]7 ends as planned"
        assert await env["anna"].sees(on_phone("not approved in time")) == f"{ends} · HIGH {of}"
        await all_sent(env.bot)
        assert len([text for text in env["ben"].phone if "keep" in text]) == 2
        assert not [text for name in ("anna", "ben", "lea") for text in env[name].phone if "<!date" in text]


RED_DOMAIN = {"dataType": "domain", "data": "c2.example.com", "tlp": 3}
MORE_TIME = "*More time for Isolate on ip 203[.]0[.]113[.]7*"
FREE: Mapping[str, Any] = {**ISOLATE, "approve_by": ["ben"], "allow_permanent": True}


async def kept_for_ever(env: FeatureEnvironment, *others: Any) -> tuple[Alert, Mapping[str, Any], Action, int]:
    """An alert, its card, and an isolation that ben has approved until some time (ms) and anna asks to have no end."""
    host = {"dataType": "ip", "data": "203.0.113.7", "message": "Host <inside>"}
    alert, card = await env.alert_and_card("anna", artifacts=[host, *others])
    action = await isolate(env, alert, minutes=15)
    async with CoreClient(env.core.url, env.service_key) as bot:
        await bot.as_user("ben").approve(action.id)
        at = (await env.ended_run(alert)).undo.at or 0  # type: ignore[union-attr]  # it can be undone
        await bot.as_user("anna").extend_measure(action.id, None)
    return alert, card, action, at


@pytest.mark.parametrize("has_red", [True, False])
async def test_who_asked_for_more_time_reads_first_that_it_was_denied_and_then_why_and_when_it_ends(
    tmp_path: Path, has_red: bool
) -> None:
    async with asking(tmp_path, FREE) as env:
        alert, card, _, at = await kept_for_ever(env, *([RED_DOMAIN] if has_red else []))
        request = await env["ben"].sees(direct_message("*Keep with no end*"))
        waits = await env["ben"].sees(card_of(alert, "*Keep with no end*"))
        assert {"Keep with no end", "Deny", "Undo now"} <= {*labels_of(waits)}  # as a run that waits has them
        form = await env["ben"].confirms("Deny", request, reason="one hour is <enough>.")
        assert "and everybody who sees the request" in text_of(form)
        await env["ben"].sees(modal("You denied more time for", f"It ends <!date^{at // 1000}^", ". anna is notified."))
        told = await env["anna"].sees(on_phone("denied by ben"))
        ends = "More time with no end denied by ben: Isolate on ip 203[.]0[.]113[.]7 ends soon"
        why = "one hour is &lt;enough&gt;"
        assert without_minutes(told) == f'{ends} · HIGH {alert.title} ({alert.id}) · "{why}."'
        said = f"{MORE_TIME}: denied by ben: {why}. Ends as before, <!date^{at // 1000}^"
        assert said in text_of(await env["anna"].sees(direct_message(said)))
        assert said in text_of(await env["lea"].sees(reply_to(card, said)))
        was_denied = "🚫 *More time with no end was denied by ben*"
        denied = f"{was_denied}: {why}"
        await env["lea"].sees(card_of(alert, denied))
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("How long", "is contained already", denied))
        await env["anna"].submits(form)
        await env["ben"].sees(on_phone("Contained already by anna. More time with no end denied by ben. "))
        await env["ben"].presses("Approve", await env["ben"].sees(direct_message("asks · ", denied)))
        review = await env["ben"].sees(modal("This lasts longer: 1 hour from when it starts.", denied))
        await env["ben"].close(review["id"])
        host = {"dataType": "ip", "data": "203.0.113.7"}
        other = await env.create_alert(sourceRef="other", artifacts=[host])
        await env["anna"].command(SOC, f"/responder run isolate {other.id}")
        form = await env["anna"].sees(modal("How long", "is contained already", was_denied))
        assert (denied in text_of(form)) != has_red  # which may be what it names
        await env["anna"].submits(form)
        request = await env["ben"].sees(direct_message(f"({other.id})", was_denied))
        assert denied not in text_of(request)
        await env["ben"].presses("Approve", request)
        (measure,) = await env.client.measures()
        views = [RedactedView(Subject.alert(other), clearance) for clearance in (0, SHARED)]
        assert [len(denied_longer(measure, view)) for view in views] == [1, 0]
        await env["ben"].submits(await env["ben"].sees(modal(denied)))  # he may see up to TLP:RED
        await env["ben"].reads("You approved")


async def test_who_decides_on_more_time_reads_that_it_was_denied_before(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        alert, card, action, _ = await kept_for_ever(env)
        request = await env["ben"].sees(direct_message("*Keep with no end*"))
        form = await env["ben"].confirms("Deny", request, reason="one hour is <enough>")
        for asks in (request, form):
            assert ("🚫" in text_of(asks), "`203[.]0[.]113[.]7` · Host &lt;inside&gt;" in text_of(asks)) == (
                False,
                True,
            )
        before = "🚫 *More time with no end was denied by ben*: one hour is &lt;enough&gt;"
        async with CoreClient(env.core.url, env.service_key) as bot:
            await env["anna"].sees(direct_message("denied by ben"))
            await bot.as_user("lea").extend_measure(action.id, None)
            await env["ben"].sees(
                direct_message("⏳ *Keep with no end*, instead of until <!date", "*lea* asks", before)
            )
            extension = (await env.client.action(action.id)).undo.extension  # type: ignore[union-attr]
            assert extension is not None
            await bot.as_user("lea").cancel(action.id, extension_id=extension.id)
            await env["lea"].sees(card_of(alert, before, "➖ *lea withdrew the request for more time*"))
            await bot.as_user("anna").extend_measure(action.id, None)  # what was only withdrawn hides no denial
        await env["ben"].sees(on_phone("Alert closed by anna. More time with no end denied by ben. "))
        waits = await env["ben"].sees(card_of(alert, "*Keep with no end*", "*anna* asks", before))
        await env["ben"].presses("Keep with no end", waits)
        form = await env["ben"].sees(modal(before))
        await env["ben"].submits(form)
        await env["ben"].reads("You approved more time for *Isolate*")
        after = (await env.client.action(action.id)).undo
        assert after is not None
        assert after.at is None
        deed = "*Isolate on ip 203[.]0[.]113[.]7*"
        await env["anna"].sees(
            direct_message(f"Approved by ben: {deed}, in force until somebody undoes it, set by anna")
        )
        await env["lea"].sees(reply_to(card, "approved by ben. Extended with no end."))


async def test_who_asked_for_more_time_withdraws_it_while_the_approver_reads_it(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        alert, card, action, at = await kept_for_ever(env)
        request = await env["ben"].sees(direct_message("*Keep with no end*"))
        await env["ben"].presses("Keep with no end", request)
        read = await env["ben"].sees(modal("Keep with no end?"))
        waits = await env["anna"].sees(card_of(alert, "*Keep with no end*"))
        form = await env["anna"].confirms("Withdraw", waits)
        assert f"If you withdraw it, it ends <!date^{at // 1000}^" in text_of(form)
        assert ("reason" in text_of(form), form["close"]["text"]) == (False, "Keep asking")
        await env["anna"].reads("You withdrew the request for more time")
        await env["ben"].submits(read)
        said = f"{MORE_TIME}: withdrawn by anna. Ends as before, <!date^{at // 1000}^"
        await env["ben"].sees(modal(said))
        await env["ben"].sees(direct_message(said))
        await env["lea"].sees(reply_to(card, said))
        shown = await env["lea"].sees(card_of(alert, "➖ *anna withdrew the request for more time*"))
        assert "Withdraw" not in labels_of(shown)
        await all_sent(env.bot)
        assert not [text for text in env["anna"].phone if "Withdrawn" in text]
        assert (await env.client.action(action.id)).undo.at == at  # type: ignore[union-attr]
        await env["lea"].confirms("Undo now", shown)  # which says nothing of that end any more
        await env["ben"].sees(
            direct_message("withdrawn by anna.\\n🔓 undone by lea, <!date^", without="Still in force")
        )


async def test_who_is_asked_for_more_time_reads_who_undid_it_before(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        alert, card, _, _ = await kept_for_ever(env)
        request = await env["ben"].sees(direct_message("*Keep with no end*"))
        await env["ben"].presses("Keep with no end", request)
        read_before = await env["ben"].sees(modal("Keep with no end?"))
        await env["lea"].confirms("Undo now", await env["lea"].sees(card_of(alert, "*Keep with no end*")))
        ended = f"{MORE_TIME}: no longer asked for.\\n🔓 undone by lea, <!date^"
        await env["ben"].sees(updated(request, ended))
        await env["lea"].sees(reply_to(card, ended))
        await env["ben"].submits(read_before)
        await env["ben"].sees(modal("No longer waits", ended))
        undid = "Undone by lea: Isolate on ip 203[.]0[.]113[.]7"
        assert (await env["ben"].sees(on_phone("Undone by"))).startswith(f"{undid} · HIGH ")
        assert f"{undid}; your request for more time is over too · HIGH " in await env["anna"].sees(
            on_phone("Undone by")
        )


async def test_more_time_is_withdrawn_by_command_and_by_others_only_with_a_reason(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        alert, card, action, _ = await kept_for_ever(env)
        waits = await env["ben"].sees(card_of(alert, "*Keep with no end*"))
        await env["ben"].presses("Withdraw", waits)
        only = "Only anna, who asked for this, or an administrator can end it; *Deny* decides against it."
        await env["ben"].reads(only)
        forms = []
        for name in ("anna", "lea"):
            await env[name].command(SOC, f"/responder cancel {action.id}")
            forms.append(await env[name].sees(modal("Withdraw the request?", "*anna* asks")))
        await env["lea"].submits(forms[1], reason="The host is <clean>")
        why = "withdrawn by lea: The host is &lt;clean&gt;. Ends as before,"
        await env["anna"].sees(direct_message(why))
        await env["ben"].sees(reply_to(card, why))
        await env["anna"].submits(forms[0])
        await env["anna"].sees(modal("No longer waits", f"{MORE_TIME}: {why}"))
        await env["ben"].command(SOC, f"/responder cancel {action.id}")
        await env["ben"].reads("; *Undo now* on its card ends it. Approved by ben.")


async def test_who_asked_reads_a_denial_a_failure_and_who_stopped_it_but_not_their_own_cancelling(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as env:
        alert = await env.create_alert()
        denied, cancelled, ended = [await isolate(env, await env.create_alert(sourceRef=str(n))) for n in range(3)]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").deny(denied.id, "a lab host")
            await bot.as_user("anna").cancel(cancelled.id)
            await bot.as_user("lea").cancel(ended.id, "a <duplicate>")
            body = {"objectType": "alert", "objectId": alert.id}
            await bot.as_user("anna").run({**body, "responderId": "Tell_1_0"})
            await bot.as_user("anna").run({**body, "responderId": "Fail_1_0"})
        shown = text_of(await env["anna"].sees(direct_message("Denied by ben: *Isolate on ip")))
        assert "a lab host" in shown
        assert "The firewall said no." in text_of(await env["anna"].sees(direct_message("Failed: *Fail*")))
        failed = await env["anna"].sees(on_phone("Failed: Fail · "))
        assert failed.endswith(f' ({alert.id}) · "The firewall said no."')
        assert (await env["anna"].sees(on_phone("Withdrawn by lea: "))).endswith(' · "a &lt;duplicate&gt;"')
        await env["anna"].sees(card_of(alert, "*Tell*"))
        await all_sent(env.bot)
        assert len(env["anna"].phone) == 3


async def test_who_approved_what_fails_is_rung_once_as_is_who_asked_and_reads_it_where_they_approved(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, {**ISOLATE, "approval": 2}, reports={"Isolate": FAILED}) as env:
        action = await isolate(env, await env.create_alert())
        requests = {name: await env[name].sees(direct_message("asks · ")) for name in ("lea", "ben")}
        async with CoreClient(env.core.url, env.service_key) as bot:
            for name in requests:
                await bot.as_user(name).approve(action.id)
        deed = "Isolate on ip 203[.]0[.]113[.]7 for 1 hour, not in force · approved by lea, ben"
        for name in ("anna", "ben"):
            push = await env[name].sees(on_phone("Failed: "))
            assert push.startswith(f"Failed: {deed} · HIGH ")
            assert push.endswith('"The firewall said no."')
        for name, request in requests.items():
            await env[name].sees(updated(request, "❌ failed, not in force: The firewall said no."))
        bulk, _ = await bulk_of(env, "anna", [4, 3, 2])
        for name in requests:
            await env[name].sees(on_phone("Isolate on 3 targets"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            for name in requests:
                await bot.as_user(name).approve_bulk(bulk.id, [one.action.id for one in bulk.actions if one.action])
        for name in ("anna", "ben"):
            await env[name].sees(on_phone("Approved by lea, ben, failed: Isolate on ip 203[.]0[.]113[.]0, "))
        await all_sent(env.bot)
        failed = {name: [text for text in env[name].phone if "ailed" in text] for name in ("anna", "ben", "lea")}
        assert [len(texts) for texts in failed.values()] == [2, 2, 0]


async def test_who_approved_or_asked_for_what_was_stopped_reads_that_nobody_knows_its_effect(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Wait": {**ISOLATE, "approval": 1}}) as env:
        alert = await env.create_alert()
        async with CoreClient(env.core.url, env.service_key) as bot:
            body = {"responderId": "Wait_1_0", "objectType": "alert", "objectId": alert.id}
            action = await bot.as_user("anna").run(body)
            request = await env["ben"].sees(direct_message("asks · "))
            await bot.as_user("ben").approve(action.id)
            await env["ben"].sees(updated(request, "Approved by ben.", "🔄 running"))
            await bot.as_user("lea").cancel(action.id)
        unknown = "maybe in force until <!date^"
        await env["ben"].sees(updated(request, f"🔒 stopped by lea, {unknown}", "nobody knows whether", "Undo now"))
        told = await env["anna"].sees(direct_message("Stopped by lea: *Wait on ip", unknown, "Undo now"))
        stopped = "Stopped by lea: Wait on ip 203[.]0[.]113[.]7 for 1 hour, maybe in force · HIGH "
        assert told["text"].startswith(stopped)


async def test_who_approved_what_is_not_released_is_rung_as_is_who_asked(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "undo": "Fail_1_0"}) as env:
        action = await isolate(env, await env.create_alert())
        request = await env["ben"].sees(direct_message("asks · "))
        await env["ben"].confirms("Approve", request)
        waits = await env["ben"].sees(updated(request, "🔒 in force until"))
        await env["lea"].sees(direct_message("Approved by ben."))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").undo(action.id)
        failed = "Failed: Fail on ip 203[.]0[.]113[.]7; Isolate may still be in force · HIGH "
        for name in ("anna", "ben"):
            await env[name].sees(on_phone(failed))
        await env["ben"].sees(updated(waits, "🔒 maybe still in force: ", "Undo now"))
        await all_sent(env.bot)
        rung = [len([text for text in env[name].phone if failed in text]) for name in ("anna", "ben", "lea")]
        assert rung == [1, 1, 0]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").undo(action.id)
        for name in ("anna", "ben"):  # who asked for it hears, too
            await env[name].sees(on_phone(failed, 2))


async def test_who_can_t_decide_any_more_reads_it_in_the_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approval": 2}, clock_ms=clock) as env:
        alert = await env.create_alert()
        action = await isolate(env, alert)
        for name in ("ben", "lea"):
            await env[name].sees(direct_message("asks · "))
        clock.ahead_ms = CACHE_MS
        await env.core.core.people.set_profile("ben", "read-only")
        async with CoreClient(env.core.url, await env.core.core.people.add("dora", "analyst")) as dora:
            await dora.approve(action.id)
        lost = await env["ben"].sees(direct_message("You can't decide on it any more."))
        assert ids.APPROVE not in text_of(lost)


async def test_a_bulk_is_asked_about_on_phones_as_one_run_is_and_once_more_at_half_of_the_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}, clock_ms=clock) as env:
        ips = {n: [{"dataType": "ip", "data": f"203.0.113.{n}", "tlp": 0}] for n in (2, 4, 3)}
        alerts = [
            await env.create_alert(sourceRef=str(n), severity=n, **{**CLEAR, "artifacts": ip}) for n, ip in ips.items()
        ]
        on = ", ".join(f"203[.]0[.]113[.]{n}" for n in (4, 3, 2))
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            bulk = await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
            what = f"CRITICAL: Isolate on 3 targets for 1 hour? Asked by anna: ip {on}"
            assert await env["ben"].sees(on_phone("Isolate on")) == what
            await all_sent(env.bot)
            for channel in (SOC, OPEN):
                (ts,) = [m["ts"] for m in env["ben"].live_view.messages(channel) if "3 wait" in text_of(m)]
                (_, reply) = env["ben"].live_view.thread(channel, ts)
                assert "ben: *Isolate* on 3 targets for 1 hour · up to CRITICAL." in text_of(reply)
            clock.ahead_ms = 31 * MINUTE_MS
            again = what.replace("? ", "? 29 minutes left. ")
            assert await env["ben"].sees(on_phone(" minutes left.")) == again
            await env["anna"].sees(message_in(SOC, "Nobody has answered yet; ben was reminded."))
            await bot.as_user("ben").approve_bulk(bulk.id, [entry.action.id for entry in bulk.actions if entry.action])
        over = await env["anna"].sees(on_phone("in force"))
        until = "3 in force until <!date^"
        await env["ben"].sees(lambda view: [until in text_of(m) for m in direct_messages(view)].count(True) == 2)
        assert over == f"Approved by ben, in force: Isolate on ip {on} for 1 hour · up to CRITICAL."
        (told,) = [m for m in direct_messages(env["anna"].live_view) if "3 in force" in text_of(m)]
        assert "3 in force until <!date^" in text_of(within_limits(told))
        assert f">: ip {on}." in text_of(told)
        dm = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].presses("Undo all", told)
        form = await env["anna"].sees(modal("Undo Isolate (3)?"))
        assert "*anna* asked for it · approved by ben" in text_of(form)
        await env["anna"].submits(form)
        await env["anna"].reads("Undo started: *Isolate* on ip 203[.]0[.]113[.]4, 203[.]0[.]113[.]3, ", dm)
        await all_sent(env.bot)
        asked_twice = [m for m in direct_messages(env["ben"].live_view) if "Isolate* on 3 targets" in text_of(m)]
        assert [ids.BULK_REVIEW in text_of(within_limits(m)) for m in asked_twice] == [False, False]
        assert labels_of(asked_twice[-1]) == []
        assert " left." not in text_of(asked_twice[-1])
        assert env["ben"].phone[:2] == [what, again]
        assert len([text for text in env["ben"].phone if "<!date" in text]) == 0


async def test_a_bulk_that_is_asked_for_in_a_direct_message_rings_who_decides_and_not_who_asks(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "ask": [ONCALL, "U0BEN"]}, clock_ms=clock) as env:
        env.emulator.set_usergroup(ONCALL, ["U0LEA"])
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(2)]
        alerts = [await env.create_alert(sourceRef=str(n), artifacts=ip) for n, ip in enumerate(ips)]
        dm = await env["anna"].dm(env.emulator.bot_user_id)
        await env["anna"].command(dm, f"/responder run isolate {' '.join(alert.id for alert in alerts)}")
        question = await env["anna"].sees(modal("Isolate"))
        await env["anna"].presses("Ask to isolate (2)", question)
        on = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        receipt = await env["anna"].sees(
            modal(f"*Isolate* on {on} for 1 hour waits for", "\\n1 approval by ben or lea, answer")
        )
        await env["anna"].presses("Withdraw all", receipt)
        withdraw = await env["anna"].sees(modal("Withdraw Isolate?", "*Isolate on 2 targets for 1 hour*\\n"))
        await env["anna"].close(withdraw["id"])
        await env["ben"].sees(on_phone("Isolate on 2 targets"))
        clock.ahead_ms = 31 * MINUTE_MS
        await env["ben"].sees(on_phone(" minutes left."))
        await env["anna"].sees(message_in(SOC, "Nobody has answered yet; ben was reminded."))
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [0, 2, 1]
        (message,) = [m for m in env["lea"].live_view.messages(SOC) if "2 wait for approval" in text_of(m)]
        (_, reply) = env["lea"].live_view.thread(SOC, message["ts"])
        assert reply["blocks"][0]["text"]["text"].startswith(f"<!subteam^{ONCALL}> ben: *Isolate*")


async def test_who_asked_for_a_bulk_reads_all_who_decided_on_it(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.stop()  # so that all end in the same minute, and read so
    async with asking(tmp_path, channels=NO_CARDS, clock_ms=clock) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}"}] for n in range(21)]
        alerts = [await env.create_alert(sourceRef=str(n), artifacts=ip) for n, ip in enumerate(ips)]
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            bulk = await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
            runs = [entry.action.id for entry in bulk.actions if entry.action]
            await bot.as_user("ben").approve_bulk(bulk.id, runs[:-1])
            await bot.as_user("lea").deny_bulk(bulk.id, runs[-1:], "the mail server")
        told = await env["anna"].sees(direct_message("1 denied, 20 in force"))
        ip = "203[.]0[.]113[.]"
        assert ".\\n🔒 Approved by ben, in force until <!date^" in text_of(told)
        denied = f"\\n🚫 Denied by lea: ip {ip}20.\\n>the mail server"
        assert f">: ip {ip}0, {ip}1, {ip}2 and 17 more.{denied}" in text_of(told)


async def test_a_channel_reads_whose_run_of_a_bulk_was_denied_and_why_while_the_others_wait(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        bulk, alerts = await bulk_of(env, "anna", [3, 4, 3, 3])
        await env["anna"].sees(message_in(SOC, "4 wait for approval"))
        denied = next(one.action.id for one in bulk.actions if one.action and one.object_id == alerts[1].id)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").deny(denied, "That one is the backup.")
        why = ("3 wait for approval, 1 denied", "🚫 Denied by ben: ip 203[.]0[.]113[.]1.", ">That one is the backup.")
        message = await env["anna"].sees(message_in(SOC, *why))
        waits = "ip " + ", ".join(f"203[.]0[.]113[.]{n}" for n in (0, 2, 3))
        assert f"⏳ *3 targets for 1 hour · up to HIGH*: {waits}. Answer" in text_of(message)
        async with CoreClient(env.core.url, env.service_key) as bot:
            left = [one.action.id for one in bulk.actions if one.action and one.action.id != denied]
            await bot.as_user("lea").approve_bulk(bulk.id, left)
        over = await env["anna"].sees(message_in(SOC, "1 denied, 3 in force", *why[1:]))
        approved = "🔒 In force until <!date^", f">: {waits}."
        await env["ben"].sees(direct_message("1 denied, 3 in force", *why[1:], *approved))
        assert all(words in text_of(over) for words in approved)
        await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
        hidden = await env["anna"].sees(message_in(SOC, "1 denied, 3 in force", without="Denied by ben"))
        assert hidden["ts"] == over["ts"] == message["ts"]


async def test_more_time_for_all_of_a_bulk_is_asked_for_decided_and_told_once(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben", "lea"], "allow_permanent": True}) as env:
        anna, ben, lea = env["anna"], env["ben"], env["lea"]
        bulk, alerts = await bulk_of(env, "anna", [2, 4, 3, 3])
        for person in (ben, lea):
            await person.sees(direct_message("4 wait for approval"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, [entry.action.id for entry in bulk.actions if entry.action])
        told = await anna.sees(direct_message("4 in force"))
        await all_sent(env.bot)
        before = [len(person.phone) for person in (anna, ben, lea)]

        async def ask_to_extend(longer: str) -> dict[str, Any]:
            form = await anna.confirms("Extend all", told, longer=longer, note="It beacons to <them>.")
            assert form["submit"]["text"] == "Ask to extend (4)"
            needs = "Asks ben and lea; one of them approves each. Otherwise each ends as planned."
            assert needs in text_of(form).partition("How much longer")[0]
            asked = await anna.sees(
                modal(
                    "Asked: keep *Isolate* on ip 203[.]0[.]113[.]",
                    ". It needs 1 approval by ben or lea, answer by <!date",
                    "; otherwise each ends as planned.",
                )
            )
            await anna.presses("Withdraw more time", asked)
            await anna.close((await anna.sees(modal("Withdraw the request?", "each ends as planned")))["id"])
            return form

        await ask_to_extend("Until somebody undoes it")
        asks = "asks to keep *with no end*: *Isolate* on 4 targets"
        waits = await anna.sees(message_in(SOC, asks, *(f"113[.]{n}`" for n in range(4)), without="Extend all"))
        await ben.presses("Undo all", waits)
        undo = await ben.sees(modal("Undo Isolate (4)?", "More time is asked for on ip ", ": that request ends too."))
        await ben.close(undo["id"])
        hosts = [f"ip 203[.]0[.]113[.]{number}" for number in (1, 2, 3, 0)]  # the most severe first
        on, levels = ", ".join(hosts).replace(", ip ", ", "), ("🔴 CRITICAL", "🟠 HIGH", "🟠 HIGH", "🟡 MEDIUM")
        with_levels = ", ".join(f"{level} {host}" for level, host in zip(levels, hosts, strict=True))
        why = '"It beacons to &lt;them&gt;."'
        push = f"CRITICAL: keep Isolate on 4 targets with no end? 4 closed by now. Asked by anna: {on} · {why}"
        for person in (ben, lea):
            assert await person.sees(on_phone("keep Isolate")) == push  # the runs have closed them
        asked = "⏳ *anna* asks to keep *with no end*: *Isolate* on 4 targets"
        request = await ben.sees(direct_message(asked, "now it ends <!date^", without="; then"))
        assert "It beacons to &lt;them&gt;." in text_of(request)
        async with CoreClient(env.core.url, env.service_key) as bot:
            with pytest.raises(ResponderBotError, match="None of these runs waits"):
                await bot.as_user("ben").deny_bulk(bulk.id)  # which names none that was read
        await ben.open_home()
        await ben.sees(app_home("*Waiting for your approval* (1)", asks))
        await ben.command(SOC, f"/responder deny {bulk.id}")  # nothing else of it waits
        form = await ben.sees(modal("Deny more time?", "If you deny it, each ends as planned."))
        await ben.close(form["id"])
        await ben.command(SOC, f"/responder approve {bulk.id}")
        await ben.close((await ben.sees(modal("Keep with no end?")))["id"])
        await ben.presses("Keep with no end", request)
        review = await ben.sees(modal(" on 4 targets"))
        assert (review["title"]["text"], review["submit"]["text"]) == ("Keep with no end?", "Keep ticked with no end")
        text = text_of(review)
        assert text.count("With no end, it lasts until somebody undoes it.") == 1
        assert not [
            words for words in ("→", "· now until", "now it ends") if words in text
        ]  # as the question says it of all
        by = text.index("Can be approved by: ben, lea.")
        ends = text.index("With no end, it lasts until somebody undoes it.")
        assert text.index(" on 4 targets, now until <!date^") < ends < by < text.index("Decide only on the ticked")
        assert "; then" not in text
        form = await ben.confirms("Deny the ticked", review, reason="one hour is <enough>.")
        assert (form["title"]["text"], form["submit"]["text"]) == ("Deny more time?", "Deny more time (4)")
        assert "If you deny it, each ends as planned." in text_of(form)
        assert "anna reads it" in text_of(form)
        await ben.sees(modal(f"You denied more time for Isolate on {with_levels}: ends as before, <!date^"))
        over = await anna.sees(on_phone("More time with no end denied by ben"))
        soon = f"Isolate on {on} ends soon · up to CRITICAL"
        assert without_minutes(over) == f'More time with no end denied by ben: {soon} · "one hour is &lt;enough&gt;".'
        for person in (anna, lea):
            await person.sees(
                direct_message("*anna* asked to keep", f"Denied by ben: {on}: one hour is &lt;enough&gt;.")
            )
        await all_sent(env.bot)
        assert [len(person.phone) for person in (anna, ben, lea)] == [number + 1 for number in before]

        was_denied = "🚫 *More time with no end was denied by ben*: one hour is &lt;enough&gt;"
        await anna.sees(message_in(SOC, f"• {on}\\n    ↳ {was_denied}"))
        form = await ask_to_extend("+15 minutes")
        assert text_of(form).count(was_denied) == 1
        await anna.sees(message_in(SOC, "⏳ ", "on 4 targets\\n", f"\\n{was_denied}", "It beacons to &lt;them&gt;."))
        before_again = f"4 denied before, 4 closed by now. Asked by anna: {on} · {why}"
        asks = await lea.sees(on_phone("for 15 minutes longer"))
        assert asks == f"CRITICAL: keep Isolate on 4 targets for 15 minutes longer? {before_again}"
        await lea.sees(direct_message("*anna* asked to keep *with no end*", f"Denied by ben: {on}: one hour is"))
        again = await lea.sees(direct_message("asks to keep *for 15 minutes longer*", " · now it ends"))
        assert text_of(again).count(was_denied) == 1
        await lea.presses("Review more time", again)
        review = await lea.sees(modal(" on 4 targets"))
        assert text_of(review).count("More time with no end was denied by ben") == 1
        assert (review["title"]["text"], review["submit"]["text"]) == ("Keep longer?", "Keep longer (ticked)")
        assert "*Undo all* ends it earlier." in text_of(review)
        assert '\\n🚫 *4 denied before*: left for you to tick"' in text_of(review)
        assert filled_in(review)["decide"] == []
        assert re.search(r" on 4 targets, now until <!date.*>, then until <!date[^>]*>\. none ticked", text_of(review))
        assert text_of(review).count(') · 🚫 denied before"') == 4
        await lea.submits(
            review, decide=[f"ip 203[.]0[.]113[.]{number} · {alerts[0].title}" for number in (1, 2, 3, 0)]
        )
        await lea.sees(modal(f"You approved more time for Isolate on {with_levels}: extended to <!date^"))
        await anna.sees(on_phone(f"More time of 15 minutes approved by lea: Isolate on {on} ends in "))
        await all_sent(env.bot)
        assert [len(person.phone) for person in (anna, ben, lea)] == [number + 2 for number in before]
        for alert in alerts:
            (run,) = await env.client.actions("alert", alert.id)
            assert run.undo is not None
            assert run.undo.at == run.undo.approved_until

        # Who approved the later end hears that somebody else ends it before, as who asked does.
        form = await ben.confirms("Undo all", await anna.sees(message_in(SOC, "4 in force", "Undo all")))
        assert "anna and lea are notified." in text_of(form)
        for person in (anna, lea):
            await person.sees(on_phone(f"Undone by ben: Isolate on {on}"))


async def test_the_receipt_for_more_time_is_silent_about_what_waits_to_start(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "allow_permanent": True}) as env:
        bulk, _ = await bulk_of(env, "anna", [4, 3, 2])
        runs = [entry.action.id for entry in bulk.actions if entry.action]
        await env["anna"].sees(message_in(SOC, "3 wait for approval"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, runs[:2])
        told = await env["anna"].sees(message_in(SOC, "1 waits for approval, 2 in force"))
        await env["anna"].confirms("Extend all", told, longer="+15 minutes")
        request = await env["ben"].sees(direct_message("asks to keep"))
        await env["ben"].presses("Review more time", request)
        await env["ben"].submits(await env["ben"].sees(modal("asks to keep", " on 2 targets")))
        done = await env["ben"].reads("You approved more time for Isolate on ")
        assert "*The rest*" not in text_of(done)
        assert (await env.client.action(runs[2])).status == "Waiting"


async def test_who_asked_for_a_bulk_is_rung_at_the_first_approval_the_first_denial_and_the_end(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        anna, hosts = env["anna"], [f"ip 203[.]0[.]113[.]{number}" for number in range(4)]
        bulk, alerts = await bulk_of(env, "anna", [4, 3, 3, 2])
        await anna.sees(message_in(SOC, "4 wait for approval"))
        first, second, third, last = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").cancel(last)  # her own decision is no news to her
            await anna.sees(message_in(SOC, "3 wait for approval"))
            await bot.as_user("lea").approve_bulk(bulk.id, [first])
            approved = f"Approved by lea, in force: Isolate on {hosts[0]} for 1 hour · CRITICAL"
            push = await anna.sees(on_phone("Approved by lea"))
            assert push == f"{approved}. Still waiting: {hosts[1]}, {hosts[2].removeprefix('ip ')}; ben or lea decides."
            told = await anna.sees(direct_message(push, "Undo all"))
            assert "🔒 Approved by lea, in force until <!date^" in text_of(told)
            assert labels_of(told) == ["Extend all", "Undo all", "Show each"]
            await anna.presses("Undo all", told)
            question = await anna.sees(modal("Undo Isolate (1)?", hosts[0].removeprefix("ip ")))
            await anna.close(question["id"])
            await bot.as_user("ben").deny_bulk(bulk.id, [second], f"the laptop of {alerts[1].id}.")
            denied = f'Denied by ben, not run: Isolate on {hosts[1]} for 1 hour · HIGH · "the laptop of {alerts[1].id}"'
            push = await anna.sees(on_phone("Denied by ben"))
            assert push == f"{denied}. Still waiting: {hosts[2]}; ben or lea decides."
            of_denial = await anna.sees(direct_message(push.partition(' · "')[0]))
            await anna.sees(updated(told, f"{approved}. Still waiting: {hosts[2]}; ben or lea decides."))
            await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
            hidden = "Denied by ben, not run: Isolate on 1 target for 1 hour"
            assert "113[.]1" not in str(await anna.sees(updated(of_denial, hidden, without="laptop")))
            await bot.as_user("lea").approve_bulk(bulk.id, [third])
            end = await anna.sees(on_phone("1 withdrawn, 1 denied, 2 in force"))
        assert end.startswith(f"Approved by lea, in force: Isolate on {hosts[0]}, 203[.]0[.]113[.]2. In all, 4 targets")
        for message in (told, of_denial):  # nothing is read twice
            await anna.sees(updated(message, "in part: Isolate on 4 targets, see below.", without="by"))
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [3, 1, 1]


async def test_who_asked_for_more_time_for_a_bulk_is_rung_at_the_first_decision_of_a_part(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, _ = await bulk_of(env, "anna", [4, 3, 3])
        await env["anna"].sees(message_in(SOC, "3 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(direct_message("3 in force until"))
            assert len(env["anna"].phone) == 1  # since the first decision was the last
            asked = await bot.as_user("lea").extend_measures(dict.fromkeys(ids_))
            ends = [one.action.extensions[0].id for one in asked.actions if one.action]
            await env["ben"].sees(direct_message("asks to keep *with no end*"))
            await bot.as_user("ben").deny_bulk(bulk.id, ends[:1], "It <prints>.")
            hosts = [f"ip 203[.]0[.]113[.]{number}" for number in range(3)]
            denied, why = f"More time with no end denied by ben: Isolate on {hosts[0]} ends soon", '"It &lt;prints&gt;"'
            push = await env["lea"].sees(on_phone("More time with no end denied by ben: "))
            assert (
                without_minutes(push)
                == f"{denied} · CRITICAL · {why}. Still waiting: {hosts[1]}, 203[.]0[.]113[.]2; ben decides."
            )
            await bot.as_user("ben").approve_bulk(bulk.id, ends[1:])
        push = await env["lea"].sees(on_phone("More time with no end approved by ben: "))
        both = f"{denied} · {why}. More time with no end approved by ben: Isolate on {hosts[1]}, "
        assert without_minutes(push).startswith(both)
        await env["lea"].sees(direct_message("Denied in part: more time for Isolate on 3 targets, see below."))
        await all_sent(env.bot)
        assert [len(env[name].phone) for name in ("anna", "ben", "lea")] == [2, 2, 2]
        moved = f"Extended by lea, approved by ben: Isolate on {hosts[1]}, 203[.]0[.]113[.]2 with no end · up to HIGH."
        assert env["anna"].phone[-1] == moved


async def test_first_decisions_ring_no_phone_more_than_ten_times_in_ten_minutes(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:

        def rung(_: EmulatorView) -> bool:
            return len([text for text in env["anna"].phone if "Denied by ben" in text]) == AT_MOST

        async with CoreClient(env.core.url, env.service_key) as bot:
            for _ in range(AT_MOST + 1):
                bulk, _ = await bulk_of(env, "anna", [3, 3])
                await bot.as_user("ben").deny_bulk(bulk.id, [bulk.actions[0].action.id])  # type: ignore[union-attr]
        await env["anna"].until(rung)
        await isolate(env, await env.create_alert(), by="lea")
        await env["anna"].sees(on_phone("asked by lea"))  # which these don't drown
        await all_sent(env.bot)
        assert rung(env["anna"].live_view)


async def test_extend_all_says_of_each_target_what_was_denied_or_is_asked_for_and_takes_its_place(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben", "lea"], "allow_permanent": True}) as env:
        anna, ben, lea = env["anna"], env["ben"], env["lea"]
        bulk, alerts = await bulk_of(env, "anna", [4, 3, 2])
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        card = await anna.sees(card_of(alerts[1]))
        await anna.sees(message_in(SOC, "3 wait for approval"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            told = await anna.sees(direct_message("3 in force"))
            await bot.as_user("anna").extend_measure(ids_[1], None)
            denied = await ben.sees(direct_message("*Keep with no end*"))
            await ben.confirms("Deny", denied, reason="one hour is <enough>")
            await ben.sees(updated(denied, "denied by ben"))
            await bot.as_user("lea").extend_measure(ids_[1], None, "court <hold>")
        single = await ben.sees(direct_message("court &lt;hold&gt;"))
        in_thread = await ben.sees(reply_to(card, "court &lt;hold&gt;"))
        was_denied = "\\n    ↳ 🚫 *More time with no end was denied by ben*: one hour is &lt;enough&gt;"
        row = f"113[.]1`, for HIGH {alerts[1].title} ({alerts[1].id})"

        await anna.presses("Extend all", told)
        form = await anna.sees(modal("on 3 targets", row))
        below = text_of(form).partition(row)[2].partition("\\n•")[0]
        assert below.index("    ↳ ⏳ *Keep with no end*, instead of until <!date") < below.index(was_denied)
        assert '*lea* asks · \\"court &lt;hold&gt;\\"' in below
        assert text_of(form).count("⏳") == text_of(form).count("🚫") == 1
        assert "It takes the place of the request that waits." in text_of(form)
        assert "initial_option" not in str(form)
        assert text_of(form).index("Each is in force until") < text_of(form).index(row) < text_of(form).index("+1 hour")
        await anna.submits(form, longer="Until somebody undoes it")

        place = "anna asked for another end of Isolate on ip 203[.]0[.]113[.]1 · HIGH "
        assert (await lea.sees(on_phone("another end"))).startswith(place)
        for live in (single, in_thread):
            await ben.sees(updated(live, place, "the request before is over", without=ids.APPROVE))
        assert "denied by ben" in text_of(await ben.sees(updated(denied)))
        ask = "CRITICAL: keep Isolate on 3 targets with no end? 1 denied before, 3 closed by now. Asked by anna: ip "
        await lea.sees(on_phone(ask))
        waits = await anna.sees(message_in(SOC, "⏳ *anna* asks to keep", was_denied))
        assert text_of(waits).count("🚫 *More time") == 1
        assert {"Keep with no end", "Deny more time", "Withdraw more time"} <= {*labels_of(waits)}
        request = await lea.sees(direct_message("asks to keep *with no end*", without="Show each"))
        await lea.presses("Keep with no end", request)
        review = await lea.sees(modal("Keep with no end?"))
        await lea.fills_in(review, decide=options_of(review, "decide"))
        await lea.presses("Deny the ticked", review)
        deny = await lea.sees(modal("Deny more time?"))
        for shown in (request, review, deny):
            end = "" if shown is review else " · now"
            assert was_denied in text_of(shown).rpartition(f"({alerts[1].id}){end}")[2].partition("\\n•")[0]
            assert text_of(shown).count("🚫 *More time") == 1
        await lea.presses("Withdraw more time", waits)
        await lea.reads("Only anna, who asked for it, may withdraw it; you can deny it: *Deny more time*.")
        await lea.confirms("Deny more time", waits, reason="Not <all>")
        over = await anna.sees(on_phone("More time with no end denied by lea: Isolate on ip "))
        assert without_minutes(over).endswith('113[.]2 ends soon · up to CRITICAL · "Not &lt;all&gt;".')
        assert not [text for text in anna.phone if "another end" in text]  # she has asked herself


async def test_review_of_more_time_counts_as_hidden_only_what_is_hidden(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, _ = await bulk_of(env, "anna", [4, 3])
        await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        first, second = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, [first, second])
            await env["anna"].sees(direct_message("2 in force until"))
            await bot.as_user("anna").extend_measures(dict.fromkeys([first, second]))
            waits = await env["anna"].sees(message_in(SOC, "⏳ *anna* asks to keep"))
            await bot.as_user("anna").extend_measure(first, None, "Alone")
        await env["ben"].presses("Keep with no end", waits)
        review = await env["ben"].sees(modal("Keep with no end?"))
        assert "that you may not see" not in text_of(review)
        await env["ben"].submits(review)
        await env["ben"].reads("You approved more time for")
        await env["ben"].presses("Keep with no end", waits)
        await env["ben"].sees(modal("Nothing of it waits any more"))


async def test_review_says_once_that_a_second_run_changes_nothing_of_what_has_no_end(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.0"}])
        for_ever = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": other.id, "undoAfterMinutes": 0}
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve((await bot.as_user("anna").run(for_ever)).id)
        await env.ended_run(other)
        await bulk_of(env, "anna", [3, 3])
        await env["ben"].presses("Review", await env["ben"].sees(message_in(SOC, "2 wait for approval")))
        review = text_of(await env["ben"].sees(modal("Decide only on the ticked")))
        assert "*1 contained already*. A second run changes nothing." in review
        assert review.count("A second run changes nothing.") == 1


async def test_extend_all_leaves_out_what_another_alert_keeps_with_no_end(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, _ = await bulk_of(env, "anna", [3, 3])
        await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.0"}])
        for_ever = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": other.id, "undoAfterMinutes": 0}
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, [one.action.id for one in bulk.actions if one.action])
            await bot.as_user("ben").approve((await bot.as_user("anna").run(for_ever)).id)
        await env.ended_run(other)
        told = await env["anna"].sees(direct_message("2 in force until"))
        form = await env["anna"].confirms("Extend all", told, longer="+15 minutes")
        assert "*Extend Isolate on 1 target?*" in text_of(form)
        assert "Left out: ip 203[.]0[.]113[.]0, which only *Undo now* ends." in text_of(form)
        asked = await env["anna"].reads("Asked: keep *Isolate* on ip 203[.]0[.]113[.]1 15 minutes longer. It needs ")
        assert "Refused" not in text_of(asked)


async def test_a_bulk_whose_ends_differ_is_extended_at_once_from_each_end(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, alerts = await bulk_of(env, "anna", [4, 3, 2, 3])
        in_channel = await env["anna"].sees(message_in(SOC, "4 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            told = await env["anna"].sees(direct_message("4 in force until"))
            undo = (await bot.as_user("anna").action(ids_[1])).undo
            assert undo is not None
            assert undo.at is not None
            later = undo.at + 240 * MINUTE_MS
            for one, at in ((ids_[0], later), (ids_[2], later), (ids_[3], None)):  # neither the first nor the last
                asked = await bot.as_user("anna").extend_measure(one, at)
                assert asked.undo is not None
                assert asked.undo.extension is not None
                await bot.as_user("ben").approve(one, extension_id=asked.undo.extension.id)
        first = f"3 in force until <!date^{undo.at // 1000}^"
        until = "force until <!date^"
        in_force = first, f"{until}{undo.at // 1000}^", f"{until}{later // 1000}^"
        by = "asked by anna, approved by ben, more time by ben"
        named = ">: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]2.", "force with no end: ip 203[.]0[.]113[.]3."
        for message in (message_in(SOC, *in_force, *named, by), direct_message(*in_force, *named)):
            told = await env["anna"].sees(message)
        await env["anna"].sees(reply_to(in_channel, first, by))
        await env["anna"].command(SOC, "/responder mine")
        mine = await env["anna"].sees(modal(*in_force, " · approved by ben, more time by ben · "))
        await env["anna"].close(mine["id"])
        await env["anna"].presses("Show each", told)
        each = await env["anna"].sees(modal("3 in force, 1 in force with no end"))
        assert "until" not in text_of(each).partition("•")[0]  # of the rows, the first isn't what ends first
        await env["anna"].close(each["id"])
        form = await env["anna"].confirms("Extend all", told, longer="+15 minutes")
        assert "How much longer, each from its own end" in text_of(form)
        assert f'"last: <!date^{later // 1000 + 15 * 60}^' in text_of(form)
        assert "Left out: ip 203[.]0[.]113[.]3, which only *Undo now* ends." in text_of(form)
        await env["anna"].reads("Asked: keep *Isolate* on ip 203[.]0[.]113[.]")
        asks = await env["ben"].sees(direct_message("for 15 minutes longer", f"answer by <!date^{undo.at // 1000}^"))
        await env["ben"].open_home()
        await env["ben"].sees(app_home(f"113[.]2 · 1 approval, answer by <!date^{undo.at // 1000}^"))

        await env["ben"].presses("Review more time", asks)
        review = await env["ben"].sees(modal("asks to keep *for 15 minutes longer*"))
        assert f"now until <!date^{undo.at // 1000}^" in text_of(review)
        assert f", the last until <!date^{later // 1000}^" in text_of(review)
        (second,) = [one for one in filled_in(review)["decide"] if "113[.]1" in one]
        await env["ben"].submits(review, decide=[one for one in filled_in(review)["decide"] if one != second])
        on = "🔴 CRITICAL ip 203[.]0[.]113[.]0, 🟡 MEDIUM ip 203[.]0[.]113[.]2"
        now = f": extended to <!date^{later // 1000 + 15 * 60}^"
        done = text_of(await env["ben"].reads(f"You approved more time for Isolate on {on}{now}"))
        assert done.count("extended to") == 1
        assert "113[.]1, for HIGH " in done.partition("*The rest*")[2]
        assert done.count("Still waiting.") == 1

        await env["ben"].presses("Review more time", asks)
        review = await env["ben"].sees(modal("on 1 target"))
        form = await env["ben"].confirms("Deny", review, reason="Not this one")
        assert f"If you deny it, it ends <!date^{undo.at // 1000}^" in text_of(form)
        still = f": ends as before, <!date^{undo.at // 1000}^"
        await env["ben"].reads(f"You denied more time for Isolate on 🟠 HIGH ip 203[.]0[.]113[.]1{still}")

        await env.client.request("PATCH", f"/api/alert/{alerts[0].id}", {"tlp": 3})
        await env["anna"].sees(updated(in_channel, ">: ip 203[.]0[.]113[.]1.", without="113[.]0"))


async def test_of_more_time_denied_on_one_target_each_reads_on_which_and_why_and_later_who_undid_it(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, alerts = await bulk_of(env, "anna", [4, 3, 2])
        await env["anna"].sees(message_in(SOC, "3 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(direct_message("3 in force until"))
            asked = await bot.as_user("anna").extend_measures(dict.fromkeys(ids_))
            of_each = [one.action and one.action.undo and one.action.undo.extension for one in asked.actions]
            first, second, third = [end.id for end in of_each if end]
            await env["ben"].sees(direct_message("asks to keep *with no end*"))
            await bot.as_user("ben").deny_bulk(bulk.id, [second], "That one <prints>.")
            await bot.as_user("ben").approve_bulk(bulk.id, [first, third])
            denied = "Denied by ben: ip 203[.]0[.]113[.]1: That one &lt;prints&gt;."
            kept = "Approved by ben: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]2."
            phone = "More time with no end denied by ben: Isolate on ip 203[.]0[.]113[.]1 ends soon"
            phone += ' · "That one &lt;prints&gt;".'
            phone += " More time with no end approved by ben: Isolate on ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]2."
            assert without_minutes(await env["anna"].sees(on_phone("More time with no end approved by ben"))) == phone
            told = await env["anna"].sees(direct_message("*anna* asked to keep *with no end*", f"{denied}\\n{kept}"))
            assert text_of(told).count(" · extended with no end") == 2
            was_denied = "    ↳ 🚫 *More time with no end was denied by ben*: That one &lt;prints&gt;"
            first_end = "1 in force until <!date^", ">: ip 203[.]0[.]113[.]1."
            in_channel = f"• ip 203[.]0[.]113[.]1\\n{was_denied}"
            shown = await env["eve"].sees(message_in(SOC, *first_end, in_channel))
            await env["eve"].sees(reply_to(shown, "*anna* asked to keep", f"{denied}\\n{kept}"))
            await env["anna"].presses("Show each", shown)
            each = text_of(await env["anna"].sees(modal(was_denied)))
            assert was_denied in each.partition(f"({alerts[1].id}) · ")[2].partition("ip 203")[0]
            await env["anna"].command(SOC, "/responder mine")
            await env["anna"].sees(modal(*first_end, in_channel))
            await bot.as_user("lea").extend_measure(ids_[1], None)
            waits = (await bot.as_user("lea").action(ids_[1])).undo
            assert waits is not None
            assert waits.extension is not None
            await env["eve"].sees(message_in(SOC, in_channel))
            await bot.as_user("ben").deny(ids_[1], "The user needs it.", extension_id=waits.extension.id)
            again = f"{was_denied}\\n    ↳ 🚫 *More time with no end was denied by ben*: The user needs it"
            await env["eve"].sees(message_in(SOC, f"• ip 203[.]0[.]113[.]1\\n{again}"))
            told = await env["anna"].sees(updated(told, f"{denied}\\n{kept}"))
            await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
            await env["eve"].sees(message_in(SOC, "1 in force until <!date^", without="113[.]1"))
            hidden = await env["eve"].sees(reply_to(shown, "Denied by ben: 1 target"))
            assert "prints" not in str(hidden)
            await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 2})
            await env["eve"].sees(reply_to(shown, denied))
            await bot.as_user("lea").extend_measure(ids_[1], None)
            waits = (await bot.as_user("lea").action(ids_[1])).undo
            assert waits is not None
            assert waits.extension is not None
            await bot.as_user("ben").approve(ids_[1], extension_id=waits.extension.id)
            await env["eve"].sees(message_in(SOC, "3 in force with no end"))
            told = await env["anna"].sees(updated(told, f"({alerts[1].id}) · ends as before, <!date"))
            for run in ids_[:2]:
                await bot.as_user("lea").undo(run)
        ended = [f"({alert.id}) · undone by lea" for alert in alerts[:2]]
        told = await env["anna"].sees(updated(told, *ended))
        assert text_of(told).count("extended with no end") == 1


async def test_the_row_of_what_still_waits_says_who_denied_it_more_time_before(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env, CoreClient(env.core.url, env.service_key) as bot:
        bulk, _ = await bulk_of(env, "anna", [4, 3])
        await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        await bot.as_user("ben").approve_bulk(bulk.id, ids_)
        await env["anna"].sees(message_in(SOC, "2 in force until"))
        ben, ends = bot.as_user("ben"), list[str]()
        for _ in range(2):
            if ends:
                await ben.deny_bulk(bulk.id, ends)
            asked = await bot.as_user("anna").extend_measures(dict.fromkeys(ids_))
            ends = [one.action.extensions[0].id for one in asked.actions if one.action]
        await env["ben"].command(SOC, f"/responder deny {bulk.id}")
        form = await env["ben"].sees(modal("Deny more time?"))
        await ben.approve_bulk(bulk.id, ends[:1])
        row = "\\n    ↳ 🚫 *More time with no end was denied by ben*"
        await env["anna"].sees(message_in(SOC, "*Isolate* on 1 target", row))  # not said of both
        await env["ben"].submits(form, reason="Too long")
        done = await env["ben"].reads("You denied more time for Isolate on 🟠 HIGH ip 203[.]0[.]113[.]1: ")
        assert '"*Not denied*\\nApproved by ben, extended with no end: ip 203[.]0[.]113[.]0."' in text_of(done)


async def test_a_decision_on_more_time_names_nothing_in_channels_once_a_level_rose_unseen(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, FREE, clock_ms=clock) as env:
        bulk, alerts = await bulk_of(env, "anna", [4, 3])
        await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(direct_message("2 in force until"))
            asked = await bot.as_user("anna").extend_measures(dict.fromkeys(ids_))
            of_each = [one.action.extensions[0].id for one in asked.actions if one.action]
            await env["ben"].sees(direct_message("asks to keep *with no end*"))
            await bot.as_user("ben").deny_bulk(bulk.id, of_each, "Both print.")
        denied = "Denied by ben: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1: Both print."
        shown = await env["eve"].sees(message_in(SOC, "    ↳ 🚫 *More time with no end was denied by ben*: Both print"))
        await env["eve"].sees(reply_to(shown, denied))
        await env.bot.close()
        await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
        await env.core.prune_events(-1)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock, rate_limiter=RateLimiter(**UNLIMITED)),
        ):
            await env["eve"].sees(updated(shown, "• ip 203[.]0[.]113[.]0\\n    ↳ 🚫 *More time", without="113[.]1"))
            left = await env["eve"].sees(reply_to(shown, "Denied by ben: ip 203[.]0[.]113[.]0 and 1 more"))
            assert "113[.]1" not in str(left)


async def test_who_asked_for_more_time_for_all_withdraws_it_in_the_channel(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        bulk, _ = await bulk_of(env, "lea", [4, 3])
        await env["anna"].sees(message_in(SOC, "2 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["lea"].sees(direct_message("2 in force until"))
            await bot.as_user("anna").extend_measures(dict.fromkeys(ids_))
        waits = await env["anna"].sees(message_in(SOC, "⏳ *anna* asks to keep"))
        await env["lea"].presses("Withdraw more time", waits)  # who asked for the runs
        await env["lea"].reads("Only anna, who asked for it, may withdraw it")
        await env["eve"].presses("Deny more time", waits)
        await env["eve"].reads("You can't run responders or decide on runs")
        await env["anna"].confirms("Withdraw more time", waits)
        await env["anna"].reads("Withdrawn: more time for *Isolate* on ip 203[.]0[.]113[.]")
        await env["anna"].sees(updated(waits, "2 in force until", without="asks to keep"))


async def test_a_press_takes_away_the_buttons_of_a_request_that_was_replaced_unseen(tmp_path: Path) -> None:
    async with asking(tmp_path, FREE) as env:
        _, card, _, _ = await kept_for_ever(env)
        request = await env["ben"].sees(direct_message("*Keep with no end*"))
        in_thread = await env["ben"].sees(reply_to(card, "*Keep with no end*"))
        # As before the upgrade to a bot that edits them.
        stores.rows(env.folder / "core.db", "UPDATE action SET doc = json_set(doc, '$.undo.extension.id', '~999')")
        await env["ben"].presses("Keep with no end", request)
        await env["ben"].reads("This extension no longer waits for approval; nothing was changed.")
        for live in (request, in_thread):
            await env["ben"].sees(updated(live, "anna asked for another end", without=ids.APPROVE))


async def test_who_approved_reads_in_that_message_that_who_asked_undid_it_early(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}) as env:
        alert, _ = await env.alert_and_card("anna")
        action = await isolate(env, alert)
        request = await env["ben"].sees(direct_message("asks · "))
        await env["ben"].confirms("Approve", request)
        await env.ended_run(alert)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").undo(action.id)
        await env["ben"].sees(updated(request, "Approved by ben.", "🔓 undone by anna, <!date^"))
        await all_sent(env.bot)
        assert len(env["ben"].phone) == 1


async def test_more_time_for_a_bulk_is_asked_for_again_at_half_and_names_nothing_raised(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"], "allow_permanent": True}, clock_ms=clock) as env:
        await env.core.core.people.set_clearance("ben", 2)
        bulk, alerts = await bulk_of(env, "anna", [2, 4])
        await env["ben"].sees(direct_message("2 wait for approval"))
        ids_ = [entry.action.id for entry in bulk.actions if entry.action]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").approve_bulk(bulk.id, ids_)
            await env["anna"].sees(direct_message("2 in force"))
            await bot.as_user("anna").extend_measures(dict.fromkeys(ids_), "the one of 203.0.113.1 beacons")
        on = "ip 203[.]0[.]113[.]1, 203[.]0[.]113[.]0"
        why = '"the one of 203[.]0[.]113[.]1 beacons"'
        asks = f"CRITICAL: keep Isolate on 2 targets with no end? 2 closed by now. Asked by anna: {on} · {why}"
        assert await env["ben"].sees(on_phone("keep Isolate")) == asks
        clock.ahead_ms = 31 * MINUTE_MS
        again = await env["ben"].sees(on_phone(" minutes left."))
        assert again == asks.replace("? ", "? 29 minutes left. ")
        await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
        left = await env["ben"].sees(direct_message("asks to keep", "113[.]0`", "and 1 more", without="113[.]1"))
        assert alerts[1].id not in str(left)
        await env["ben"].sees(lambda view: all("113[.]1" not in str(message) for message in direct_messages(view)))


async def test_a_bulk_that_nobody_approved_in_time_is_asked_for_again_by_who_asked(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}) as env:
        _, (alert, _) = await bulk_of(env, "anna", [3, 3])
        await env["ben"].presses("Review", await env["ben"].sees(direct_message("2 wait for approval")))
        review = await env["ben"].sees(modal("*Isolate on 2 targets for 1 hour?* 2 ticked for you"))
        await env["ben"].presses("Deny the ticked", review)
        deny = await env["ben"].sees(modal("Deny Isolate?", "*Isolate on 2 targets for 1 hour*"))
        await expire(env)
        over = "nothing was run, 2 not approved in time"
        message = await bulk_shown(env, over)
        which = "Not approved in time: ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1."
        await env["ben"].submits(deny, reason="no")
        await env["ben"].sees(modal("Not done", "Nothing of it waits any more, since <!date^", which))
        assert (ids.BULK_RETRY in text_of(message), "Ask again" in text_of(message)) == (True, True)
        assert ids.BULK_RETRY not in text_of(await env["ben"].sees(direct_message(over)))
        assert ids.RUN_AGAIN not in text_of(await env["anna"].sees(card_of(alert, "not approved in time")))
        on = "ip 203[.]0[.]113[.]0, 203[.]0[.]113[.]1"
        push = await env["anna"].sees(on_phone("Isolate on "))
        assert push == f"Nobody answered: Isolate on {on} for 1 hour was not run · up to HIGH."
        told = await env["anna"].sees(direct_message(push))
        await env["anna"].presses("Ask again", told)
        form = await env["anna"].sees(modal("*Isolate* on *2 targets*"))
        before = form["blocks"][1]["elements"][0]["text"]
        assert (before.partition(", <!date^")[0], before.partition(">: ")[2]) == ("⌛ Not approved in time", on)
        assert form["title"]["text"] == "Isolate (2)"
        assert "Asks ben; it needs 1 approval. You can withdraw each until then." in text_of(form)
        assert form["submit"]["text"] == "Ask to isolate (2)"
        await env["anna"].submits(form)
        await env["anna"].sees(
            modal("Asked", f"*Isolate* on {on} for 1 hour waits for approval", "ben is asked;", without="Started")
        )
        await bulk_shown(env, "2 wait for approval")
        await bulk_shown(env, "Asked for again as ~")
        again = await env["ben"].sees(on_phone("Asked again by anna"))
        assert again == f"HIGH: Isolate on 2 targets for 1 hour? Asked again by anna: {on}"
        await env["ben"].presses("Review", await env["ben"].sees(direct_message("2 wait for approval")))
        await env["ben"].sees(modal("*anna* asks for it again"))
        await env["anna"].sees(updated(told, without=ids.BULK_RETRY))
        assert not [m for m in direct_messages(env["anna"].live_view) if over in text_of(m)]


async def test_who_decides_on_a_bulk_reads_the_first_targets_until_they_may_not_see_them_or_it_is_decided(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}, clock_ms=clock) as env:

        async def clear_ben_for(level: int) -> None:
            await env.core.core.people.set_clearance("ben", level)
            clock.ahead_ms += CACHE_MS
            env.bot.channels.refreshed.set()

        await clear_ben_for(2)
        bulk, alerts = await bulk_of(env, "anna", [1, 4, 2, 3, 3])
        on = "ip 203[.]0[.]113[.]1, 203[.]0[.]113[.]3, 203[.]0[.]113[.]4 and 2 more"
        push = await env["ben"].sees(on_phone("CRITICAL: "))
        assert push == f"CRITICAL: Isolate on 5 targets for 1 hour? Asked by anna: {on}"
        shown = await env["ben"].sees(direct_message("5 wait for approval"))
        lines = [
            f"• {sign} ip `203[.]0[.]113[.]{n}`, for {word} {alerts[n].title} ({alerts[n].id})"
            for sign, word, n in (("🔴", "CRITICAL", 1), ("🟠", "HIGH", 3), ("🟠", "HIGH", 4), ("🟡", "MEDIUM", 2))
        ]
        assert "\\n".join(lines) in text_of(shown)

        await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
        shown = await env["ben"].sees(
            direct_message("Isolate", "(1 more that you may not see, CRITICAL)", without="113[.]1")
        )
        assert alerts[1].id not in str(shown)
        assert text_of(shown).index("113[.]3`") < text_of(shown).index("113[.]0`")
        await clear_ben_for(1)
        assert "5 wait for approval" in text_of(await env["ben"].sees(direct_message("Isolate", without="113[.]")))
        await clear_ben_for(3)
        await env["ben"].sees(direct_message("113[.]1`"))
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("ben").deny_bulk(bulk.id)
        await env["ben"].sees(direct_message("🚫 Denied by ben: ip 203[.]0[.]113[.]1, ", without="`"))


async def test_a_bulks_request_names_nothing_more_once_a_level_rose_unseen_or_its_reader_is_unlinked(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}, clock_ms=clock) as env:
        await env.core.core.people.set_clearance("ben", 2)
        _, alerts = await bulk_of(env, "anna", [2, 4])
        await env["ben"].sees(direct_message("113[.]1`"))
        await env.bot.close()
        await env.client.request("PATCH", f"/api/alert/{alerts[1].id}", {"tlp": 3})
        await env.core.prune_events(-1)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock, rate_limiter=RateLimiter(**UNLIMITED)) as bot,
        ):

            def shown(view: EmulatorView, *without: str) -> list[dict[str, Any]]:
                return [
                    m
                    for m in direct_messages(view)
                    if "Isolate" in str(m) and not any(one in str(m) for one in without)
                ]

            (left,) = await env["ben"].sees(lambda view: shown(view, "113[.]1"))
            assert "113[.]0`" in text_of(left)
            await env.core.core.people.unlink("ben")
            clock.ahead_ms += CACHE_MS
            bot.channels.refreshed.set()
            await env["ben"].sees(lambda view: all("113[.]" not in str(m) for m in direct_messages(view)))


async def test_why_a_bulk_was_denied_is_read_no_longer_by_who_may_not_see_its_alerts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asking(tmp_path, clock_ms=clock) as env:

        async def denied() -> list[Alert]:
            bulk, alerts = await bulk_of(env, "anna", [2, 4])
            async with CoreClient(env.core.url, env.service_key) as bot:
                await bot.as_user("ben").deny_bulk(bulk.id, None, f"the laptop of {alerts[0].id}")
            shown = await env["anna"].sees(direct_message(f"the laptop of {alerts[0].id}"))
            on = "ip 203[.]0[.]113[.]1, 203[.]0[.]113[.]0"
            assert f'Denied by ben, not run: Isolate on {on} for 1 hour · up to CRITICAL · \\"the laptop' in text_of(
                shown
            )
            return alerts

        def none_says(words: str) -> Any:
            return lambda view: all(words not in str(message) for message in direct_messages(view))

        first, second = await denied()
        await env.client.request("PATCH", f"/api/alert/{first.id}", {"tlp": 3})
        await env.client.request("PATCH", f"/api/alert/{second.id}", {"tlp": 3})
        await env["anna"].sees(none_says(f"the laptop of {first.id}"))
        first, _ = await denied()
        await env.core.core.people.set_clearance("anna", 1)
        clock.ahead_ms += CACHE_MS
        env.bot.channels.refreshed.set()
        await env["anna"].sees(none_says(f"the laptop of {first.id}"))
        assert len([m for m in direct_messages(env["anna"].live_view) if "nothing was run" in text_of(m)]) == 2


async def test_what_ended_of_a_bulk_is_named_no_longer_to_who_asked_once_they_may_not_see_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        _, alerts = await bulk_of(env, "anna", [3, 3])
        await env["ben"].sees(direct_message("2 wait for approval"))
        await expire(env)
        await env["anna"].sees(direct_message("Nobody answered: Isolate on ip 203[.]0[.]113[.]0, "))
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").run_bulk(BulkInput(responder_id="Fail_1_0", targets=targets))
        await env["anna"].sees(direct_message(f"Failed: Fail on {alerts[0].id} (ET MALWARE"))
        await env.client.request("PATCH", f"/api/alert/{alerts[0].id}", {"tlp": 3})
        await env["anna"].sees(direct_message("Not approved in time: Isolate on ip 203[.]0[.]113[.]1. In all"))
        await env["anna"].sees(direct_message(f"Failed: Fail on {alerts[1].id} (ET MALWARE"))
        assert not [m for m in direct_messages(env["anna"].live_view) if f"{alerts[0].id} (" in text_of(m)]


async def test_after_a_week_the_request_of_a_bulk_in_a_direct_message_gets_new_buttons(tmp_path: Path) -> None:
    async with asking(tmp_path, {**ISOLATE, "approve_by": ["ben"]}) as env:
        await bulk_of(env, "anna", [3, 3])
        old = await env["ben"].sees(direct_message("2 wait for approval"))
        stores.rows(env.folder / "core.db", "UPDATE button_set SET expires_at = 1 WHERE channel <> ''")
        dm = await env["ben"].dm(env.emulator.bot_user_id)
        await env["ben"].presses("Review", old)
        await env["ben"].reads("This button is too old", dm)
        value = old["blocks"][-1]["elements"][0]["value"]
        await env["ben"].sees(updated(old, "2 wait", without=value))
        await env["ben"].presses("Review", old)
        await env["ben"].sees(modal(" on 2 targets"))


async def test_who_may_not_see_a_target_of_a_bulk_reads_nothing_of_it_in_the_request(tmp_path: Path) -> None:
    async with asking(tmp_path) as env:
        red = await env.create_alert(sourceRef="red", severity=4, tlp=3, title="For few eyes")
        seen = await env.create_alert(sourceRef="seen", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in (red, seen)]
        async with CoreClient(env.core.url, env.service_key) as bot:
            bulk = await bot.as_user("ben").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
        both = "Isolate on 2 targets for 1 hour? Asked by ben: ip 203[.]0[.]113[.]7, 203[.]0[.]113[.]9"
        assert both in await env["lea"].sees(on_phone("CRITICAL: "))
        assert "For few eyes" in text_of(await env["lea"].sees(direct_message("2 wait for approval")))
        push = await env["anna"].sees(on_phone("HIGH: "))
        own = "1 target (1 more that you may not see, CRITICAL) for 1 hour"
        assert push.endswith(f": Isolate on {own}? Asked by ben: ip 203[.]0[.]113[.]9")
        shown = await env["anna"].sees(direct_message("2 wait for approval"))
        assert f"⏳ *{own}" in text_of(shown)
        for hidden in ("For few eyes", "113[.]7", red.id):
            assert hidden not in str(shown)
            assert hidden not in str(env["anna"].phone)
        own_run = next(one.action.id for one in bulk.actions if one.action and one.object_id == seen.id)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").approve_bulk(bulk.id, [own_run])
        left = "⏳ *1 target for 1 hour · CRITICAL*, which you may not see; lea decides. Answer by <!date^"
        assert ids.BULK_REVIEW not in text_of(await env["anna"].sees(updated(shown, left)))
        await env["lea"].sees(direct_message("⏳ *1 target for 1 hour · CRITICAL*. Answer by", ids.BULK_REVIEW))


async def test_a_shared_channel_does_not_read_how_severe_a_hidden_alert_of_a_bulk_is(tmp_path: Path) -> None:
    shared = {**CHANNELS[0], "id": "C0SHARED", "clearance": "clear"}
    async with asking(tmp_path, channels=[CHANNELS[0], shared], shared=("C0SHARED",)) as env:
        ips = [[{"dataType": "ip", "data": f"203.0.113.{n}", "tlp": 0}] for n in (7, 8)]
        alerts = [
            await env.create_alert(sourceRef=str(tlp), severity=2 + tlp, **{**CLEAR, "tlp": tlp, "artifacts": ip})
            for tlp, ip in zip((0, 2), ips, strict=True)
        ]
        await env["ben"].sees(card_of(alerts[0], channel="C0SHARED"))
        targets = [RunTarget(object_type="alert", object_id=alert.id) for alert in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("anna").run_bulk(BulkInput(responder_id="Isolate_1_0", targets=targets))
        await env["ben"].sees(on_phone("CRITICAL: Isolate on 2 targets"))
        named = "⏳ *2 targets for 1 hour*: ip 203[.]0[.]113[.]7 and 1 more. Answer"
        await env["ben"].sees(message_in("C0SHARED", "2 wait for approval", named))
        await all_sent(env.bot)
        sent = [str(body) for _, _, body, _ in env.emulator.traffic if body.get("channel") == "C0SHARED"]
        assert [text for text in sent if "Approve or deny: Isolate on 2 targets for 1 hour? Asked by anna" in text]
        assert not [text for text in sent if "CRITICAL" in text or alerts[1].id in text]
