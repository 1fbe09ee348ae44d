"""Who is mentioned about new alerts."""

from pathlib import Path
from typing import Any

from bot.app import running
from bot.outbox import RateLimiter
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from tests.bot.outbox.harness import ManualClock, all_sent
from tests.bot.people import card_of, ephemeral, message_in, text_of
from tests.bot.running import ANNA, BEN, LEA, OPEN, RED, SOC, UNLIMITED, running_bot

ONCALL = "<!subteam^S0ONCALL>"
CHANNELS = [{"id": SOC, "clearance": "amber", "alerts": {}, "mention": {"critical": "S0ONCALL"}}]
TEN_MINUTES_MS = 600_000


def mentions(view: EmulatorView) -> list[dict[str, Any]]:
    """All messages of the channel's threads that mention the group."""
    replies = [
        reply for card in view.messages(SOC) for reply in view.thread(SOC, card["ts"]) if reply["ts"] != card["ts"]
    ]
    return [message for message in replies if ONCALL in str(message["blocks"])]


async def test_critical_alerts_ring_whoever_is_on_call_three_times_then_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock) as env:
        anna, ben = await env.person(ANNA), await env.person(BEN)
        env.emulator.set_usergroup("S0ONCALL", [BEN])
        await env.post_alert(sourceRef="high", severity=3)
        first, card = await env.new_card(anna, sourceRef="1", severity=4, title="Ransomware note")
        await anna.until(mentions)
        (mention,) = mentions(anna.live_view)
        assert mention["thread_ts"] == card["ts"]
        assert mention["text"] == f"New: CRITICAL Ransomware note ({first})"
        more = [await env.post_alert(sourceRef=f"{n}", severity=4, title=f"Note {n}") for n in (2, 3)]
        await anna.until(lambda view: len(mentions(view)) == 3)
        for n, many in ((4, "1 more new alert, up to CRITICAL"), (5, "2 more new alerts, up to CRITICAL")):
            await anna.sees(card_of(await env.post_alert(sourceRef=f"{n}", severity=4, title="Another")))
            counted = await anna.sees(message_in(SOC, f"*{many}* since"))
            assert ONCALL in text_of(counted)
        await all_sent(env.bot)
        rang = [f"New: CRITICAL Note {n} ({alert_id})" for n, alert_id in enumerate(more, 2)]
        rang.append("1 more new alert, up to CRITICAL: your Home lists what nobody works on.")
        assert [shown["text"] for shown in ben.live_view.notifications] == [mention["text"], *rang]
        clock.ahead_ms += TEN_MINUTES_MS
        red = await env.post_alert(sourceRef="6", severity=4, title="Secret words", tlp=3)
        await anna.until(lambda view: len(mentions(view)) == 4)
        withheld = next(message for message in mentions(anna.live_view) if red in message["text"])
        assert withheld["text"] == f"New: CRITICAL alert, details withheld (TLP:RED) ({red})"
        assert "Secret words" not in str(withheld)


async def test_doctor_says_where_a_critical_alert_rings_nobody_and_what_to_set(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"id": OPEN, "clearance": "clear", "alerts": {}, "mention": {"high": "S0ONCALL"}},
        {"id": RED, "clearance": "red"},  # gets no alerts
    ]
    async with running_bot(tmp_path, channels=[*CHANNELS, *others]) as env:
        lea = await env.person(LEA)
        await lea.command(SOC, "/responder doctor")
        lines = text_of(await lea.sees(ephemeral("channel #soc"))).split("\\n")[1:]
        told = {line.split("*")[1]: line for line in lines}
        assert told["channel #open"].startswith("✓")
        assert "A new CRITICAL alert rings nobody there: set mention = { critical = " in told["channel #open"]
        assert "rings" not in told["channel #soc"] + told["channel #red"]


async def test_a_group_mentions_as_often_and_no_more_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_bot(tmp_path, channels=CHANNELS, clock_ms=clock) as env:
        anna = await env.person(ANNA)
        for n in range(20):
            await env.post_alert(sourceRef=f"{n}", severity=4, title=f"Note {n}")
        group = await anna.sees(message_in(SOC, '"20 '))
        assert len(mentions(anna.live_view)) == 3
        await env.bot.close()
        limiter = RateLimiter(**UNLIMITED)
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock, rate_limiter=limiter) as bot,
        ):
            await anna.sees(card_of(await env.post_alert(sourceRef="after", severity=4, title="After the restart")))
            await all_sent(bot)
            assert len(mentions(anna.live_view)) == 3
            clock.ahead_ms += TEN_MINUTES_MS
            await env.post_alert(sourceRef="20", severity=4, title="Note 20")
            await anna.until(lambda view: len(mentions(view)) == 4)
        in_group = [message for message in mentions(anna.live_view) if message["thread_ts"] == group["ts"]]
        assert len(in_group) == 1
