"""Who is mentioned about new alerts."""

from pathlib import Path
from typing import Any

from bot.app import running
from bot.notifier.asking import AT_MOST
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.people import ephemeral, message_in, reply_to, text_of
from tests.bot.running import ANNA, BEN, LEA, OPEN, RED, SOC, UNCONFIGURED, UNLIMITED, running_bot

ONCALL = "<!subteam^S0ONCALL>"
CHANNELS = [{"id": SOC, "clearance": "amber", "alerts": {}, "mention": {"critical": "S0ONCALL"}}]
TEN_MINUTES_MS = 600_000


def mentions(view: EmulatorView) -> list[dict[str, Any]]:
    """All messages of the channel's threads that mention the group."""
    replies = [
        reply for card in view.messages(SOC) for reply in view.thread(SOC, card["ts"]) if reply["ts"] != card["ts"]
    ]
    return [message for message in replies if ONCALL in str(message["blocks"])]


async def test_each_critical_alert_that_differs_rings_by_name_and_one_message_counts_its_equals(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock) as env:
        anna, ben = await env.person(ANNA), await env.person(BEN)
        env.emulator.set_usergroup("S0ONCALL", [BEN])
        await env.post_alert(sourceRef="high", severity=3)
        first, card = await env.new_card(anna, sourceRef="1", severity=4, title="Ransomware on SRV-01")
        mention = await anna.sees(reply_to(card, ONCALL))
        assert mention["text"] == f"New: CRITICAL Ransomware on SRV-01 ({first}) · ip 198[.]51[.]100[.]7"
        second, card = await env.new_card(anna, sourceRef="2", severity=4, title="Ransomware on SRV-01")
        counted = await anna.sees(reply_to(card, f"{ONCALL} 🔴 1 more CRITICAL alert: Ransomware on SRV-01"))
        assert counted in anna.live_view.messages(SOC)  # also in the channel
        third = await env.post_alert(sourceRef="3", severity=4, title="Ransomware on SRV-01")
        newest = await anna.sees(reply_to(card, f"2 more CRITICAL alerts, newest: Ransomware on SRV-01 ({third})"))
        assert (newest["ts"], ONCALL in text_of(newest)) == (counted["ts"], True)
        clock.ahead_ms += 25_000
        rang = [f"1 more CRITICAL alert: Ransomware on SRV-01 ({second})"]
        hosts = [{"dataType": "hostname", "data": f"srv-{n}"} for n in (1, 2)]
        others: list[dict[str, Any]] = [
            {"title": "Ransomware on SRV-02"},
            *({"title": "Ransomware", "artifacts": [host]} for host in hosts),
        ]
        for number, fields in enumerate(others):
            other, card = await env.new_card(anna, sourceRef=f"other {number}", severity=4, **fields)
            await anna.sees(reply_to(card, ONCALL))
            on = f"hostname {hosts[number - 1]['data']}" if number else "ip 198[.]51[.]100[.]7"
            rang.append(f"New: CRITICAL {fields['title']} ({other}) · {on}")
        await all_sent(env.bot)
        assert [shown["text"] for shown in ben.live_view.notifications] == [mention["text"], *rang]
        clock.ahead_ms += TEN_MINUTES_MS
        red, card = await env.new_card(anna, sourceRef="5", severity=4, title="Secret words", tlp=3)
        withheld = await anna.sees(reply_to(card, ONCALL))
        assert withheld["text"] == f"New: CRITICAL alert, details withheld (TLP:RED) ({red})"
        assert "Secret words" not in str(withheld)


async def test_of_many_different_critical_alerts_ten_ring_and_a_count_that_a_restart_keeps(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock) as env:
        anna, ben = await env.person(ANNA), await env.person(BEN)
        env.emulator.set_usergroup("S0ONCALL", [BEN])
        titles = [f"{first} {second}" for first in ("Lone", "Odd", "New", "Old") for second in ("a", "b", "c", "d")]
        posted = [await env.post_alert(sourceRef=title, severity=4, title=title) for title in titles]
        counted = await anna.sees(message_in(SOC, f"6 more CRITICAL alerts, newest: Old d ({posted[-1]})"))
        assert "\\nYour Home has the worst that nobody works on, *Select several* there lists all." in text_of(counted)
        await all_sent(env.bot)
        by_name = [
            f"New: CRITICAL {title} ({id}) · ip 198[.]51[.]100[.]7"
            for title, id in zip(titles, posted[:AT_MOST], strict=False)
        ]
        shown = [notification["text"] for notification in ben.live_view.notifications]
        assert (sorted(shown[:-1]), "more CRITICAL alert" in shown[-1]) == (sorted(by_name), True)
        await env.bot.close()
        limiter = RateLimiter(**UNLIMITED)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock, rate_limiter=limiter) as bot,
        ):
            await env.client.request("PATCH", f"/api/alert/{posted[-1]}", {"tlp": 3})
            hidden = await anna.sees(message_in(SOC, "6 more CRITICAL alerts, newest: details withheld (TLP:RED)"))
            assert (hidden["ts"], "Old d" in str(hidden)) == (counted["ts"], False)
            last = await env.post_alert(sourceRef="after", severity=4, title="After the restart")
            more = await anna.sees(message_in(SOC, f"7 more CRITICAL alerts, newest: After the restart ({last})"))
            await all_sent(bot)
            assert (more["ts"], len(ben.live_view.notifications)) == (counted["ts"], AT_MOST + 1)


async def test_doctor_says_who_hears_of_a_critical_alert_and_what_to_set_where_nobody_does(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"id": OPEN, "clearance": "clear", "alerts": {}, "mention": {"high": "S0ONCALL"}},
        {"id": RED, "clearance": "red"},  # gets no alerts
        {"id": UNCONFIGURED, "clearance": "amber", "alerts": {}, "mention": {"critical": LEA}},
    ]
    async with running_bot(tmp_path, channels=[*CHANNELS, *others]) as env:
        lea = await env.person(LEA)
        await lea.command(SOC, "/responder doctor")
        lines = text_of(await lea.sees(ephemeral("channel #soc"))).split("\\n")[1:]
        told = {line.split("*")[1]: line for line in lines}
        assert told["channel #open"].startswith("⚠️")
        assert any(line.startswith("✓") and "a new critical alert rings lea, if" in line.casefold() for line in lines)
        assert "manageTask" not in told["your rights"]
        assert "A new CRITICAL alert rings nobody there: set mention = { critical = " in told["channel #open"]
        assert "A new CRITICAL alert rings S0ONCALL, if its equal did not in the last ten" in told["channel #soc"]
        assert "rings" not in told["channel #red"]


async def test_a_storm_rings_ten_times_and_counts_once_and_later_in_its_group(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock) as env:
        anna = await env.person(ANNA)
        for n in range(20):
            await env.post_alert(sourceRef=f"{n}", severity=4, title=f"Note {n}")
        group = await anna.sees(message_in(SOC, '"20 '))
        await anna.sees(message_in(SOC, "10 more CRITICAL alerts"))
        assert len(mentions(anna.live_view)) == AT_MOST + 1
        clock.ahead_ms += TEN_MINUTES_MS
        await env.post_alert(sourceRef="20", severity=4, title="Note 20")
        await anna.until(lambda view: len(mentions(view)) == AT_MOST + 2)
        in_group = [message["text"] for message in mentions(anna.live_view) if message["thread_ts"] == group["ts"]]
        assert in_group[-1].startswith("New: CRITICAL Note 20 (")


async def test_high_alerts_leave_the_rings_of_critical_ones(tmp_path: Path) -> None:
    channels = [{**CHANNELS[0], "mention": {"critical": "S0ONCALL", "high": ANNA}}]
    async with running_bot(tmp_path, channels=channels) as env:
        anna = await env.person(ANNA)
        for title in map(chr, range(ord("a"), ord("a") + AT_MOST + 2)):
            await env.post_alert(sourceRef=title, severity=3, title=title)
        await anna.sees(message_in(SOC, f"<@{ANNA}> 🟠 2 more HIGH alerts, newest: l"))
        _, card = await env.new_card(anna, sourceRef="critical", severity=4, title="Ransomware")
        await anna.sees(reply_to(card, f"{ONCALL} 🔴 CRITICAL Ransomware"))
