"""Many alerts at once: what matters comes first, and each alert stands somewhere."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.outbox.alert_groups import NEEDED_CARD
from bot.outbox.sending.rate_limiter import RateLimiter
from core.common.clock import MINUTE_MS
from tests.bot.outbox.harness import ManualClock, all_sent, channel_alerts, seconds_until, until
from tests.bot.people import app_home, card_of, message_in, modal, updated
from tests.bot.running import ANNA, SOC, BotEnvironment, running_bot
from tests.bot.storm import storm

CHANNELS = [{"id": SOC, "clearance": "amber", "alerts": {}}]
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo", "lima")
CARD = re.compile(r"alert (~\d+):")


def distinct(number: int) -> str:
    """A title that says something else than each other."""
    return f"{WORDS[number % 12]} {WORDS[number // 12 % 12]} {WORDS[number // 144]}"


def posts(env: BotEnvironment) -> list[str]:
    return [body["text"] for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]


async def test_a_storm_with_a_clock_that_is_moved_by_hand(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.stop()
    limiter = RateLimiter()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock, rates=True, rate_limiter=limiter) as env:
        anna = await env.person(ANNA)
        alike = [{"sourceRef": f"a{n}", "title": f"Logon failed {n} times"} for n in range(100)]
        others = [{"sourceRef": f"b{n}", "title": distinct(n)} for n in range(150)]
        made = [env.post_alert(**one, severity=1) for pair in zip(alike, others, strict=False) for one in pair]
        alerts = await asyncio.gather(*made, *(env.post_alert(**one, severity=1) for one in others[100:]))
        await until(lambda: len(channel_alerts(tmp_path)) == len(alerts))
        await seconds_until(env, clock, lambda: digest_in(anna.live_view.messages(SOC)))
        before = len(posts(env))
        # What may no longer be seen goes at once, while alerts wait for Slack's next second.
        card, secret = next((m, found[1]) for m in await anna.messages(SOC) if (found := CARD.search(m["text"])))
        calls = len(env.emulator.traffic)
        await env.client.request("PATCH", f"/api/alert/{secret}", {"tlp": 3})
        await anna.sees(updated(card, "details withheld"))
        sent = [
            body for _, what, body, _ in env.emulator.traffic[calls:] if what in ("chat.postMessage", "chat.update")
        ]
        assert card["ts"] in [body.get("ts") for body in sent[:2]]  # perhaps after a group that showed it too
        critical = await env.post_alert(title="Domain admin added", severity=4)
        await until(lambda: len(channel_alerts(tmp_path)) == len(alerts) + 1)
        await seconds_until(env, clock, lambda: any(critical in text for text in posts(env)))
        assert any(critical in text for text in posts(env)[before : before + 3])
        placed = Counter(where for _, where, _ in channel_alerts(tmp_path))
        assert sum(placed.values()) == len(alerts) + 1
        assert placed["group"] >= 90
        assert placed["digest"] >= 140
        shown = [m["text"] for m in await anna.messages(SOC)]
        assert sum("that say the same" in text for text in shown) <= 1
        assert sum("alerts in" in text for text in shown) == 1
        check = next(check for check in await env.bot.checks() if check.name == f"storm in #{SOC[2:].lower()}")
        assert check.ok
        assert "alerts share 2 cards since" in check.message
        await anna.open_home()
        home = await anna.sees(app_home())
        assert f"Storm in <#{SOC}>" in str(home)
        assert "2 cards since <!date^" in str(home)  # in each reader's time
        assert env.bot.health_server is not None
        async with aiohttp.ClientSession() as session, session.get(env.bot.health_server.url + "/metrics") as answer:
            (counted,) = [line for line in (await answer.text()).splitlines() if line.startswith("responder_bot_storm")]
            assert float(counted.split()[1]) >= 140
        clock.ahead_ms += 11 * MINUTE_MS
        await anna.sees(message_in(SOC, " alerts in ", "The storm is over"))
        assert all(check.name != f"storm in #{SOC[2:].lower()}" for check in await env.bot.checks())
        assert not [answer for *_, answer in env.emulator.traffic if "ratelimited" in str(answer)]


async def test_what_is_on_the_card_of_a_group_or_a_digest_gets_none_of_its_own_unless_somebody_needs_one(
    tmp_path: Path,
) -> None:
    async with running_bot(tmp_path, channels=CHANNELS) as env:
        anna, release = await env.person(ANNA), asyncio.Event()
        env.emulator.faults.hold("chat.postMessage", release)
        high = [await env.post_alert(title=distinct(n), sourceRef=f"h{n}", severity=3) for n in range(10)]
        titles = ["USB stick inserted"] * 3 + [distinct(n) for n in range(13, 70)]
        low = [await env.post_alert(title=one, sourceRef=f"l{n}", severity=1) for n, one in enumerate(titles)]
        alike = [await env.post_alert(title="Port scan of the DMZ", sourceRef=f"p{n}", severity=1) for n in range(30)]
        critical = await env.post_alert(title="Domain admin added", severity=4)
        await until(lambda: len(channel_alerts(tmp_path)) == 101)
        release.set()
        for alert_id in (*high, critical):  # which fewer than fifty are
            await anna.sees(card_of(alert_id))
        digest = await anna.sees(message_in(SOC, '"60 alerts in ', ": 60 low", "more than Slack takes"))
        group = await anna.sees(message_in(SOC, '"30 alerts that say the same (30 low): Port scan of the DMZ'))
        await all_sent(env.bot)
        assert len(await anna.messages(SOC)) == 13
        assert Counter(where for _, where, _ in channel_alerts(tmp_path)) == {"alone": 11, "digest": 60, "group": 30}
        assert "on a card" not in str((digest, group))
        assert "*Titles*: USB stick inserted ×3\\n" in str(digest)
        await anna.presses("Close all", digest)
        await anna.sees(
            modal("60 alerts: 60 low.\\n58 different titles: USB stick inserted ×3, juliet foxtrot alpha, ")
        )
        await env.client.close_alerts(low[:1])
        await anna.sees(updated(digest, "*1 closed or in a case*"))
        for alert_id in (low[1], alike[1]):
            await env.client.assign_alerts([alert_id], "anna@responder-bot.local")
            await anna.sees(card_of(alert_id))
        await anna.sees(updated(digest, "1 of them also on a card of its own"))
        assert len(await anna.messages(SOC)) == 15
        await env.client.request("PATCH", f"/api/alert/{low[2]}", {"severity": 4})
        await anna.sees(card_of(low[2]))
        # What may no longer be seen goes from the digest too.
        await anna.sees(updated(digest, distinct(69)))
        await env.client.request("PATCH", f"/api/alert/{low[-1]}", {"tlp": 3})
        await anna.until(lambda view: distinct(69) not in str(view.messages(SOC)))
        assert distinct(68) in digest_in(await anna.messages(SOC))
        env.emulator.share(SOC)
        await anna.until(lambda view: not any(distinct(n) in str(view.messages(SOC)) for n in range(70)))
        await anna.until(lambda view: not digest_in(view.messages(SOC)))


async def test_an_alert_that_somebody_takes_keeps_its_card_while_that_waits_and_a_group_or_digest_begins(
    tmp_path: Path,
) -> None:
    async with running_bot(tmp_path, channels=CHANNELS) as env:
        anna, release = await env.person(ANNA), asyncio.Event()
        env.emulator.faults.hold("chat.postMessage", release)
        low = [await env.post_alert(title=distinct(n), sourceRef=f"l{n}", severity=1) for n in range(5)]
        alike = [await env.post_alert(title="Port scan of the DMZ", sourceRef=f"p{n}", severity=1) for n in range(3)]
        taken = {low[4], alike[2]}
        await until(lambda: len(channel_alerts(tmp_path)) == 8)
        await env.client.assign_alerts(list(taken), "anna@responder-bot.local")
        await until(lambda: {one for one, _, card in channel_alerts(tmp_path) if card == NEEDED_CARD} == taken)
        await env.post_alert(title="Port scan of the DMZ", sourceRef="p3", severity=1)
        low += [await env.post_alert(title=distinct(n), sourceRef=f"l{n}", severity=1) for n in range(5, 70)]
        await until(lambda: len(channel_alerts(tmp_path)) == 74)
        release.set()
        await all_sent(env.bot)
        for alert_id in taken:
            await anna.sees(card_of(alert_id))
        await anna.sees(message_in(SOC, '"4 alerts that say the same', "1 of them also on a card"))


def digest_in(messages: list[dict[str, Any]]) -> str:
    """The card of the digest."""
    return next((str(message) for message in messages if " alerts in " in message["text"]), "")


async def test_a_digest_whose_alerts_all_go_into_a_group_counts_none(tmp_path: Path) -> None:
    async with running_bot(tmp_path, channels=CHANNELS) as env:
        anna, release = await env.person(ANNA), asyncio.Event()
        env.emulator.faults.hold("chat.postMessage", release)
        for n in range(50):
            await env.post_alert(title=distinct(n), sourceRef=f"h{n}", severity=3)
        await until(lambda: len(channel_alerts(tmp_path)) == 50)
        for n in range(3):
            await env.post_alert(title="Port scan of the DMZ", sourceRef=f"p{n}", severity=1)
        await until(lambda: len(channel_alerts(tmp_path)) == 53)
        release.set()
        digest = await anna.sees(message_in(SOC, '"3 alerts in '))
        await all_sent(env.bot)
        await env.post_alert(title="Port scan of the DMZ", sourceRef="p3", severity=1)
        await anna.sees(message_in(SOC, '"4 alerts that say the same (4 low): Port scan of the DMZ'))
        await anna.sees(updated(digest, "No alert is shown here any more."))


@pytest.mark.slow
async def test_a_storm_keeps_to_slacks_rates_and_takes_no_memory(tmp_path: Path) -> None:
    figures = await storm(tmp_path, 1_000, 4.0, alike=0.5, clicks=0, more=2_000)
    assert sum(figures.shown.values()) == 1_001
    assert (figures.twice, figures.refused) == (0, 0)
    assert figures.posts_a_minute <= 60
    for before, after in figures.memory.values():
        assert after <= 1.2 * before


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
async def test_nothing_is_lost_or_posted_twice_when_core_and_bot_are_killed_in_a_storm(
    tmp_path: Path, replicas: int
) -> None:
    figures = await storm(tmp_path, 600, 4.0, kill=True, clicks=0, replicas=replicas)
    assert sum(figures.shown.values()) == 601
    assert (figures.twice, figures.refused) == (0, 0)
    assert figures.posts_a_minute <= 60
    assert figures.posts <= 10  # three cards, a group, the critical one; and what began before the kill
