"""Alerts that say the same share a card."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bot.clearance import defang
from bot.features.alert_groups.handlers import until_morning
from bot.outbox.alert_groups import SAMPLE
from bot.outbox.models import NEWS
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.storms import masked
from core.models import BulkInput, Case, RunInput, RunTarget
from tests import stores
from tests.bot.features.alert_groups.grouping import (
    CHANNELS,
    SAME,
    choose_responder,
    group_card,
    group_cards,
    grouping_bot,
    post,
)
from tests.bot.features.approvals.asking import ISOLATE
from tests.bot.features.environment import feature_environment
from tests.bot.outbox.harness import ManualClock, all_sent, until_read
from tests.bot.people import card_of, find_card, message_in, modal, reply_to, text_of, updated
from tests.bot.running import LEA, OPEN, ROB, SOC, UNLIMITED

TITLE = "Logon failed 17 times from 198.51.100.7"


@pytest.mark.parametrize(
    ("title", "same"),
    [
        (TITLE, "Logon failed 4 times from 203.0.113.250"),
        ("Malware d41d8cd98f00b204e9800998ecf8427e on srv-12", "Malware 900150983cd24fb0d6963f7d28e17f72 on srv-7"),
        ("Mail from a.b@evil.example", "mail  from c@other.example"),
        ("Call of https://evil.example/a?b=1", "Call of hxxps://other.example/"),
        ("Seen 2026-11-22T10:00:00 at fe80::1", "Seen 2025-01-02T11:12:13 at 2001:db8::7"),
    ],
)
def test_titles_that_differ_in_digits_addresses_and_hashes_say_the_same(title: str, same: str) -> None:
    assert masked(title) == masked(same)


async def test_a_group_keeps_the_words_that_all_its_titles_have_also_if_they_look_like_a_name(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        for n in range(4):
            await post(env, range(n, n + 1), title=f"Trojan.Emotet found on KIOSK-0{n}.example.net")
        await anna.sees(message_in(SOC, SAME, "4 × Trojan[.]Emotet found on …*"))


def test_other_titles_say_something_else() -> None:
    assert len({masked(title) for title in (TITLE, "Logon succeeded", "Malware on a host", "deadbeef", "facade")}) == 5


async def test_from_the_fourth_alert_on_those_that_say_the_same_share_a_card(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alone = await post(env, range(3))
        for alert_id in alone:
            await anna.sees(card_of(alert_id))
        grouped = await post(env, range(3, 20))
        other = await env.post_alert(title="Something else")
        card = await group_card(anna, 20)
        await anna.sees(card_of(other))
        shown = str(card["blocks"])
        assert "`198[.]51[.]100[.]1` ×7" in shown
        assert "20 low · 3 of them also on a card of their own · first " in shown
        assert "20 × Logon failed … times from …* · 3 addresses" in str(card["blocks"])
        assert card["text"] == "20 alerts that say the same (20 low): Logon failed … times from …"
        messages = await anna.messages(SOC)
        assert len(messages) == 5
        assert not any(find_card(messages, alert_id) for alert_id in grouped)
        posts = [body for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
        assert len([body for body in posts if body["channel"] == SOC]) == 5


async def test_the_card_of_a_group_names_its_worst_open_alerts_and_says_which_are_closed(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(4))
        high, *_ = await post(env, range(30, 31), severity=3)
        worst = f"🟠 *HIGH* Logon failed 30 times from 198[.]51[.]100[.]30 ({high})\\n🔵 *LOW* Logon failed 3 times"
        card = await anna.sees(message_in(SOC, SAME, high))
        assert worst in json.dumps(card["blocks"], ensure_ascii=False)
        assert '*Observables*: ip `198[.]51[.]100[.]0` ×3"' in json.dumps(card["blocks"], ensure_ascii=False)
        await env.client.close_alerts([high], "An exercise")
        await anna.sees(updated(card, "*1 closed or in a case*"))
        left = await anna.sees(updated(card))
        assert high not in str(left)
        await anna.presses("Close all", card)
        reopens = "Reopen all, on the group's card, opens these"
        form = await anna.sees(modal("4 alerts: 4 low.", reopens, without="stays open"))
        await anna.submits(form, reason="An exercise")
        await anna.sees(modal("4 alerts closed. *Reopen all*, on the group's card, opens them again."))
        over = await anna.sees(updated(card, "✓ all closed or in a case"))  # two people closed them
        assert over["blocks"][0]["text"]["text"].startswith("5 × Logon failed")
        assert [one["text"]["text"] for one in over["blocks"][-1]["elements"]] == ["Show alerts", "Reopen all"]
        await anna.presses("Reopen all", over)
        await anna.submits(await anna.sees(modal("5 alerts: 1 high, 4 low.")))
        await anna.presses("Close all", await anna.sees(updated(card, without="closed or")))
        await anna.submits(await anna.sees(modal("5 alerts: 1 high, 4 low.")), reason="An exercise")
        await anna.sees(updated(card, "✓ all closed by anna, ", "An exercise"))
        await env.client.mark_alert_unread(alert_ids[0])
        await anna.sees(updated(card, "*4 closed or in a case*"))
        (taken,) = await post(env, range(5, 6))
        await env.client.create_case_from_alert(taken)
        card = await anna.sees(updated(card, "*5 closed or in a case*"))
        await anna.chooses("Reopen all", card)
        form = await anna.sees(modal("4 alerts: 1 high, 3 low.", "also those that somebody closed one by one"))
        assert (form["title"]["text"], form["submit"]["text"]) == ("Reopen 4 alerts",) * 2
        await anna.submits(form)
        await anna.sees(modal("4 alerts open again."))
        await anna.sees(updated(card, "*1 closed or in a case*"))
        assert {(await env.client.alert(one)).status for one in [high, *alert_ids]} == {"New"}


async def test_the_card_of_a_group_names_the_case_in_which_all_are_and_shows_it(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(4))
        card = await group_card(anna, 4)
        await anna.chooses("Mute ...", card)
        await anna.submits(await anna.sees(modal("post no cards here, for anybody")), mute="8 hours")
        await anna.chooses("Make one case", await anna.sees(updated(card, "Muted by anna")))
        await anna.submits(await anna.sees(modal("4 alerts: 4 low.")))
        await anna.sees(modal("4 alerts went into case "))
        (case,) = await env.client.search(Case, "/api/case/_search")
        over = await anna.sees(updated(card, f"✓ all in case {case.id}, made by anna"))
        assert [one["text"]["text"] for one in over["blocks"][-1]["elements"][:-1]] == ["Show alerts", "Show case"]
        await anna.chooses("Unmute", over)
        over = await anna.sees(updated(card, without="🔕"))
        await anna.presses("Show case", over)
        await anna.sees(modal(f"Case {case.id}", "Logon failed", "case of 4 alerts · open"))
        await env.client.request("PATCH", f"/api/case/{case.id}", {"tlp": 3})
        await anna.command(SOC, f"/responder alert {case.id}")
        await anna.reads("You may see up to TLP:AMBER")


@pytest.mark.slow
async def test_critical_alerts_are_not_grouped_below_ten(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(4))
        await group_card(anna, 4)
        critical = await post(env, range(10, 20), severity=4)
        for alert_id in critical:
            await anna.sees(card_of(alert_id))
        (grouped,) = await post(env, range(20, 21), severity=4)
        card = await group_card(anna, 15)
        assert "CRITICAL" in str(card["blocks"])
        assert find_card(await anna.messages(SOC), grouped) is None


async def test_a_group_shows_nothing_above_the_clearance_of_its_channel(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(3), tlp=2)
        await post(env, range(3, 4), tlp=0)
        card = await group_card(anna, 4, OPEN)
        assert "Logon failed 3 times" in str(card)
        shown = str(await anna.messages(OPEN))
        assert not any(f"failed {n} times" in shown for n in range(3))
        assert "`198[.]51[.]100[.]2`" not in str(card)
        assert "`198[.]51[.]100[.]2`" in str(await group_card(anna, 4, SOC))
        own = "192[.]0[.]2[.]44"
        artifacts = [{"dataType": "ip", "data": "192.0.2.44", "tlp": 0}]
        (alert_id,) = await post(env, range(4, 5), tlp=0, artifacts=artifacts)
        await anna.sees(message_in(OPEN, SAME, own))
        await env.client.request("PATCH", f"/api/alert/{alert_id}", {"tlp": 3})
        await anna.until(lambda view: own not in str(view.messages(OPEN)))
        await anna.sees(message_in(SOC, SAME, without=own))
        await env.client.request("PATCH", f"/api/alert/{alert_id}", {"tlp": 0})
        await anna.sees(message_in(OPEN, SAME, own))


async def test_a_run_on_a_grouped_alert_gives_it_a_card_of_its_own(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(8))
        await group_card(anna, 8)
        await env.client.run(RunInput(responder_id="Tell_1_0", object_type="alert", object_id=alert_ids[5]))
        card = await anna.sees(card_of(alert_ids[5]))
        await anna.sees(reply_to(card))
        assert find_card(await anna.messages(SOC), alert_ids[6]) is None
        await anna.sees(message_in(SOC, SAME, "of them also on a"))


async def test_a_bulk_on_a_group_gives_none_of_its_alerts_a_card(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(6))
        await group_card(anna, 6)
        targets = [{"objectType": "alert", "objectId": alert_id} for alert_id in alert_ids[3:]]
        await env.client.run_bulk({"responderId": "Tell_1_0", "targets": targets})
        await env.client.run(RunInput(responder_id="Fail_1_0", object_type="alert", object_id=alert_ids[5]))
        await anna.sees(card_of(alert_ids[5]))  # by the run after the bulk
        messages = await anna.messages(SOC)
        assert not any(find_card(messages, alert_id) for alert_id in alert_ids[3:5])


async def test_a_responder_runs_on_all_alerts_of_a_group_that_the_person_saw_in_the_form(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(5))
        (secret,) = await post(env, range(5, 6), tlp=3)
        card = await group_card(anna, 6)
        await anna.presses("Run on all", card)
        asked = await anna.sees(modal("5 of 6 alerts, those that you may see"))
        assert asked["title"]["text"] == "Run on 5 alerts"
        assert asked["blocks"][1]["block_id"] == "responder"
        assert {"Tell", "Shun", "Isolate", "Ban an address"} <= await choose_responder(anna, asked, "Shun")
        question = await anna.sees(modal("It can be undone there."))
        assert listed(question, alert_ids) == alert_ids
        assert secret not in str(question)
        await env.client.run(RunInput(responder_id="Isolate_1_0", object_type="alert", object_id=alert_ids[0]))
        (later,) = await post(env, range(6, 7))  # while the question is open
        for _ in range(2):  # a double click
            await anna.presses("Shun (5)", question)
        await anna.sees(modal("Started *Shun* on ", without=" more"))
        ran = {one: await env.client.actions("alert", one) for one in [*alert_ids, secret, later]}
        started = {
            one: [a.responder_name for a in found if a.responder_name == "Shun_1_0"] for one, found in ran.items()
        }
        assert started == {secret: [], later: [], **{one: ["Shun_1_0"] for one in alert_ids}}
        assert len({a.bulk for found in ran.values() for a in found if a.responder_name == "Shun_1_0"}) == 1
        await group_card(anna, 7)
        await anna.presses("Run on all", card)
        asked = await anna.sees(modal("6 of 7 alerts, those that you may see"))
        await choose_responder(anna, asked, "Isolate")
        question = await anna.sees(modal("one of them approves"))
        assert (question["title"]["text"], question["close"]["text"]) == ("Isolate (5)", "Cancel")
        await anna.presses("Ask to isolate (5)", question)
        told = await anna.sees(modal("*Isolate* on ~", " waits for approval", "Withdraw all", without=" more wait"))
        assert f" ({alert_ids[0]}): " in str(told)
        await anna.sees(message_in(SOC, "5 wait for approval"))  # once for all
        waits = " and 2 more, asked by anna, 1 approval, answer by"
        shown = await anna.sees(message_in(SOC, f'"7 {SAME}', "⏳ *Isolate* on ", waits))
        assert str(shown).count("⏳") == 2  # one by admin
        lea = await env.person(LEA)
        await lea.presses("Approvals", shown)
        await lea.sees(modal("Waiting for your approval* (2)", "Isolate on 5 targets"))
        assert find_card(await anna.messages(SOC), alert_ids[4]) is None


async def test_the_card_of_a_group_and_its_list_say_what_is_in_force_on_its_alerts(tmp_path: Path) -> None:
    clock, limits = ManualClock(), RateLimiter(**UNLIMITED)
    async with feature_environment(
        tmp_path, {"Shun": ISOLATE}, channels=CHANNELS, clock_ms=clock, rate_limiter=limits
    ) as env:
        alert_ids = await post(env, range(6))
        await env["anna"].sees(message_in(SOC, f'"6 {SAME}'))
        targets = [RunTarget(object_type="alert", object_id=one) for one in alert_ids[-2:]]
        await env.client.run_bulk(BulkInput(responder_id="Shun_1_0", targets=targets))
        in_force = [f"🔒 *Shun on ip 198[.]51[.]100[.]{n}* is in force until <!date" for n in (1, 2)]
        card = await env["anna"].sees(message_in(SOC, f'"6 {SAME}', *in_force))
        messages = await env["anna"].messages(SOC)
        assert not any(find_card(messages, one) for one in alert_ids[-2:])
        await env["anna"].presses("Show alerts", card)
        await env["anna"].sees(modal("1 to 6 of 6", *in_force))
        await all_sent(env.bot)
        limits.block("chat.update", SOC, clock(), 10_000)
        for measure in await env.client.measures():
            await env.client.undo_measure(measure.id)
        group = next(one for one in await env.bot.outbox.messages_named("group:") if one.channel == SOC)
        await until_read(
            lambda: env.bot.outbox.message(group.key),
            lambda found: (
                found and "in force" not in found.payload and found.rank == NEWS
            ),  # not as late as more alerts
        )
        clock.advance(10_000)
        await env["anna"].sees(message_in(SOC, f'"6 {SAME}', without="in force"))


async def test_the_card_of_a_group_says_what_waits_on_an_observable_of_its_alerts(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(6))
        await group_card(anna, 6)
        artifacts = [(await env.client.alert(one)).artifacts[0].id for one in alert_ids[-2:]]
        targets = [RunTarget(object_type="case_artifact", object_id=one) for one in artifacts]
        await env.client.run_bulk(BulkInput(responder_id="Quarantine_1_0", targets=targets))
        await anna.sees(message_in(SOC, f'"6 {SAME}', "⏳ *Quarantine* on ip 198[.]51[.]100[.]1, 198"))


async def test_a_group_in_a_shared_channel_is_silent_on_what_is_in_force_on_a_hidden_target(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": ISOLATE}, channels=CHANNELS) as env:
        env.emulator.share(SOC)
        hidden = {"dataType": "ip", "data": "198.51.100.77", "tlp": 2}
        alert_ids = await post(env, range(6), tlp=0, artifacts=[hidden])
        await env["anna"].sees(message_in(SOC, f'"6 {SAME}'))
        targets = [RunTarget(object_type="alert", object_id=one) for one in alert_ids[-2:]]
        for entry in (await env.client.run_bulk(BulkInput(responder_id="Shun_1_0", targets=targets))).actions:
            while entry.action and (await env.client.action(entry.action.id, wait_s=10)).end_date is None:
                pass
        await post(env, range(6, 7), tlp=0, artifacts=[hidden])  # what the card shows by then
        card = await env["anna"].sees(message_in(SOC, f'"7 {SAME}'))
        assert "🔒" not in text_of(card)


async def test_who_may_see_no_alert_of_a_group_or_run_nothing_runs_nothing(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(4), tlp=3)
        card = await group_card(anna, 4)
        await anna.presses("Run on all", card)
        await anna.sees(modal("You may see none of these alerts"))
        rob = await env.person(ROB)
        await rob.presses("Run on all", card)
        await rob.sees(modal("Not done"))


async def test_a_group_in_a_channel_that_becomes_shared_shows_no_more_than_it_may(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(5), tlp=2)
        assert "Logon failed … times" in str(await group_card(anna, 5))
        env.emulator.share(SOC)
        await anna.until(lambda view: "Logon failed" not in str(view.messages(SOC)))
        assert group_cards(await anna.messages(SOC)) == []
        assert "Not shown in a shared channel." in [message["text"] for message in await anna.messages(SOC)]


async def test_a_large_group_sums_up_its_newest_alerts(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        oldest, *_ = [*await post(env, range(1), severity=3), *await post(env, range(1, 4))]
        await group_card(anna, 4)
        (key,) = (await env.bot.outbox.alert_groups.groups_of([oldest])).values()
        stores.rows(
            tmp_path / "core.db",
            f"""INSERT INTO channel_alert
                WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {SAMPLE})
                SELECT '~9' || n, channel, alike, group_key, card, at + 60000 + n, 1, clearance, 'Newer', source, facts,
                  0
                FROM channel_alert, numbers WHERE root_id = '{oldest}' AND group_key = '{key}'""",  # noqa: S608
        )
        group = await env.bot.outbox.alert_groups.group(key)
        assert group is not None
        content = await env.bot.outbox.alert_groups.content(group, 2)
        assert (content.count, content.sampled, content.titles) == (SAMPLE + 4, SAMPLE, [("Newer", SAMPLE)])


async def test_the_alerts_of_a_group_are_listed_in_pages_and_get_cards_of_their_own(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = [*await post(env, range(11), severity=3), *await post(env, range(11, 15))]
        card = await group_card(anna, 15)
        await anna.presses("Show alerts", card)
        first = await anna.sees(modal("1 to 10 of 15"))
        on = {alert_id: (await env.client.alert(alert_id)).artifacts[0] for alert_id in alert_ids[1:11]}
        assert all(f"{one.data_type} {defang(one.data or '', one.data_type)} · " in str(first) for one in on.values())
        assert listed(first, alert_ids) == alert_ids[1:11]  # the worst, though they are older
        await anna.presses("More", first)
        last = await anna.sees(modal("11 to 15 of 15"))
        assert listed(last, alert_ids) == [alert_ids[0], *alert_ids[11:]]
        await anna.presses("Earlier ones", last)
        await anna.sees(modal("1 to 10 of 15"))
        await anna.presses("Own card", first, beside=alert_ids[9])
        await anna.sees(modal("gets a card of its own"))
        await anna.sees(card_of(alert_ids[9]))
        assert find_card(await anna.messages(SOC), alert_ids[10]) is None
        await anna.presses("Close all", card)  # whose form names each that is high or worse
        form = await anna.sees(modal("15 alerts: 11 high, 4 low.", "and 4 more"))
        assert listed(form, alert_ids) == alert_ids[:11]
        rows = form["blocks"][0]["text"]["text"]
        assert f"🟠 ip 198[.]51[.]100[.]1, for HIGH Logon failed 10 times from 198.51.100.10 ({alert_ids[10]})" in rows
        assert f"🟠 HIGH Logon failed 2 times from 198.51.100.2 ({alert_ids[2]})" in rows  # the title has the address


@pytest.mark.parametrize(
    ("now", "morning"),
    [
        ("2026-11-22T03:00:00+01:00", "2026-11-22T08:00:00+01:00"),
        ("2026-11-22T08:00:00+01:00", "2026-11-23T08:00:00+01:00"),
        ("2026-10-24T22:00:00+02:00", "2026-10-25T08:00:00+01:00"),  # summer time ends
        ("2026-03-28T22:00:00+01:00", "2026-03-29T08:00:00+02:00"),  # and begins
    ],
)
def test_morning_is_at_eight_by_the_clock_on_the_wall(now: str, morning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        found = until_morning(int(datetime.fromisoformat(now).timestamp() * 1000))
    time.tzset()
    assert found == int(datetime.fromisoformat(morning).timestamp() * 1000)


@pytest.mark.slow
async def test_a_muted_group_counts_on_and_critical_alerts_break_through(tmp_path: Path) -> None:
    clock = ManualClock()
    async with grouping_bot(tmp_path, clock_ms=clock) as (env, anna):
        await post(env, range(4))
        card = await group_card(anna, 4)
        await anna.chooses("Mute ...", card)
        form = await anna.sees(modal("post no cards here, for anybody", "A CRITICAL one still gets a card of its own"))
        assert "Logon failed … times from …" in str(form)
        await anna.submits(form, mute="1 hour")
        muted = await anna.sees(updated(card, "Muted by anna until"))
        assert "* (*Unmute* in …): what" in str(muted["blocks"][1])
        clock.ahead_ms += 50 * 60_000  # more than the window of the grouping
        await post(env, range(4, 6))
        await group_card(anna, 6)
        critical = await post(env, range(20, 32), severity=4)
        for alert_id in critical:
            await anna.sees(card_of(alert_id))
        card = await group_card(anna, 18)
        await anna.chooses("Unmute", card)
        card = await anna.sees(updated(card, without="🔕"))
        await anna.chooses("Mute ...", card)
        await anna.submits(await anna.sees(modal("post no cards here, for anybody")), mute="8 hours")
        await anna.sees(updated(card, "Muted by anna until"))
        clock.ahead_ms += 8 * 3_600_000 + 1
        await anna.sees(updated(card, without="🔕"))
        clock.ahead_ms += 50 * 60_000
        (later,) = await post(env, range(40, 41))
        await anna.sees(card_of(later))


@pytest.mark.slow
async def test_all_alerts_of_a_group_are_closed_and_made_one_case_as_far_as_the_person_may_see_them(
    tmp_path: Path,
) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        alert_ids = await post(env, range(6))
        (secret,) = await post(env, range(6, 7), tlp=3)
        card = await group_card(anna, 7)
        await all_sent(env.bot)
        shown = len(await anna.messages(SOC))
        await anna.presses("Close all", card)
        form = await anna.sees(modal("6 alerts: 6 low.", "1 more that you may not see stays open."))
        assert (form["title"]["text"], str(form).count("Logon failed")) == ("Close 6 alerts", 6)
        await anna.submits(form, reason="An exercise")
        await anna.sees(modal("6 alerts closed."))
        assert {(await env.client.alert(one)).summary for one in alert_ids} == {"An exercise"}
        assert {(await env.client.alert(one)).status for one in alert_ids} == {"Ignored"}
        assert (await env.client.alert(secret)).status == "New"
        assert len(await anna.messages(SOC)) == shown
        await env.client.request("PATCH", f"/api/alert/{alert_ids[3]}", {"severity": 3})
        await anna.sees(updated(card, "1 high"))
        await anna.chooses("Make one case", card)
        form = await anna.sees(modal("6 alerts: 1 high, 5 low."))
        assert [line[0] for line in form["blocks"][0]["text"]["text"].split("\n")[1:]] == [*"🟠🔵🔵🔵🔵🔵T"]
        assert "The case has the title and the severity of the worst, and is yours." in str(form)
        assert (await env.client.alert(alert_ids[3])).case is None
        await anna.submits(form)
        await anna.sees(modal("6 alerts went into case "))
        assert len({(await env.client.alert(one)).case for one in alert_ids}) == 1
        await anna.chooses("Make one case", card)  # again: no second case
        await anna.sees(modal("All that you may see of them are in a case already."))
        (later,) = await post(env, range(8, 9), severity=4)
        await group_card(anna, 8)
        await anna.chooses("Make one case", card)
        form = await anna.sees(modal("1 alert: 1 critical."))
        await anna.submits(form)
        await anna.sees(modal(f"({later}) went into case "))
        found = await env.client.search(Case, "/api/case/_search")
        assert [(one.severity, one.owner) for one in found] == [(3, "anna@responder-bot.local")]
        assert found[0].id == (await env.client.alert(later)).case
        closed = {"status": "Resolved", "summary": "x", "resolutionStatus": "TruePositive", "impactStatus": "NoImpact"}
        await env.client.request("PATCH", f"/api/case/{found[0].id}", closed)
        (after,) = await post(env, range(9, 10))
        await group_card(anna, 9)
        await anna.chooses("Make one case", card)
        form = await anna.sees(modal("1 alert: 1 low.", "The case has the title"))  # not into one that is closed
        await anna.submits(form)
        await anna.sees(modal(f"({after}) went into case "))
        assert (await env.client.alert(after)).case not in (None, found[0].id)
        assert (await env.client.alert(secret)).case is None


def listed(view: dict[str, Any], alert_ids: list[str]) -> list[str]:
    return [alert_id for alert_id in alert_ids if re.search(rf"{alert_id}(?: ·|\))", str(view))]
