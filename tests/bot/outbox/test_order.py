"""What goes first when much waits."""

import asyncio
from dataclasses import replace
from pathlib import Path

from bot.clearance import RedactedView, Subject
from bot.message import Message
from bot.outbox.links import card_link
from bot.outbox.models import DesiredMessage
from bot.outbox.sending.rate_limiter import RateLimiter
from tests.bot.outbox.harness import (
    SOC,
    OutboxEnvironment,
    all_sent,
    cancelled,
    desired,
    outbox_environment,
    until,
    until_read,
)

OTHER = "C0OTHER"
MINUTE_MS = 60_000
NAMES = {1: "low", 2: "medium", 3: "high", 4: "critical"}


def alert(number: int, severity: int = 1, *, channel: str = SOC, text: str = "", tlp: int = 0) -> DesiredMessage:
    view = RedactedView(Subject("alert", f"~{number}", "", tlp, severity=severity), 2)
    message = Message(text or f"{NAMES[severity]} {number}")
    return DesiredMessage(f"alert:~{number}:{channel}", channel, message, root_id=f"~{number}", view=view)


def sent(env: OutboxEnvironment) -> list[str]:
    """The texts of all posts and updates, in order."""
    return [body["text"] for _, what, body, _ in env.emulator.traffic if what in ("chat.postMessage", "chat.update")]


async def send_all(env: OutboxEnvironment) -> list[str]:
    """Send what waits; returns the texts in order."""
    before = len(sent(env))
    sending = asyncio.create_task(env.outbox.sender.run())
    await all_sent(env)
    await cancelled(sending)
    return sent(env)[before:]


async def test_people_then_what_must_go_then_alerts_by_severity_then_the_rest(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        await env.outbox.upsert(alert(1, text="secret"), alert(2, text="open"))
        await send_all(env)
        await env.outbox.upsert(
            alert(2, text="in bulk"),
            desired("log:~3:C0SOC", "task log"),
            desired("end:~4:C0SOC", "run ended"),
            alert(11, 1),
            alert(12, 3),
            alert(13, 2),
            alert(14, 4),
            alert(1, text="withheld", tlp=3),
            desired("approval:~5:C0SOC", "who approves?", by_person=True),
        )
        assert await send_all(env) == [
            "who approves?",
            "withheld",
            "critical 14",
            "high 12",
            "medium 13",
            "low 11",
            "in bulk",
            "run ended",
            "task log",
        ]


async def test_of_many_alerts_alike_severe_the_newest_goes_first(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        await env.outbox.upsert(*[alert(number) for number in range(100, 140)], alert(500, 3))
        newest_first = [f"low {number}" for number in range(139, 129, -1)]
        oldest_first = [f"low {number}" for number in range(100, 130)]
        assert await send_all(env) == ["high 500", *newest_first, *oldest_first]


async def test_what_has_waited_for_long_goes_first_every_other_time(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        await env.outbox.upsert(desired("log:~1:C0SOC", "log 1"), desired("log:~2:C0SOC", "log 2"), alert(11))
        env.clock.ahead_ms += 9 * MINUTE_MS  # more than from the rank of logs to that of medium alerts
        await env.outbox.upsert(alert(21, 4), alert(22, 2), alert(23, 2), alert(24, 2))
        assert await send_all(env) == ["low 11", "critical 21", "log 1", "medium 22", "log 2", "medium 23", "medium 24"]


async def test_the_card_of_a_run_that_ended_waits_for_one_edit_of_less_worth(tmp_path: Path) -> None:
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=20.0)  # 6 at once, 1 each 5 s
    async with outbox_environment(tmp_path, send=False, rate_limiter=rate_limiter) as env:
        env.emulator.add_channel(OTHER, name="other")
        env.clock.stop()
        many = range(100, 130)
        await env.outbox.upsert(*(alert(number) for number in many), alert(1), alert(1, channel=OTHER))
        await send_all(env)
        await env.outbox.upsert(*(replace(alert(number, text="changed"), is_progress=True) for number in many))
        env.clock.ahead_ms += 5 * MINUTE_MS  # the edits rise by three ranks
        before = len(sent(env))
        sending = asyncio.create_task(env.outbox.sender.run())
        await until(lambda: sent(env)[before:] == ["changed"] * 6)
        await env.outbox.upsert(alert(1, channel=OTHER, text="run ended"))
        env.clock.ahead_ms += 5_100
        await until(lambda: sent(env)[before + 6 :] == ["run ended"])
        await env.outbox.upsert(alert(1, text="run ended"))
        env.clock.ahead_ms += 10_200
        await until(lambda: sorted(sent(env)[before + 7 :]) == ["changed", "run ended"])
        await cancelled(sending)


async def test_no_alert_starves_behind_newer_ones(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.clock.stop()
        await env.outbox.upsert(alert(1))
        env.clock.ahead_ms += 10 * MINUTE_MS
        await env.outbox.upsert(*[alert(number) for number in range(100, 140)])
        assert (await send_all(env))[0] == "low 1"


async def test_the_channels_take_turns_at_a_limit_that_they_share(tmp_path: Path) -> None:
    rate_limiter = RateLimiter(post_burst=1000, posts_per_s=1000, updates_a_minute=60.0)
    async with outbox_environment(tmp_path, send=False, rate_limiter=rate_limiter) as env:
        env.emulator.add_channel(OTHER, name="other")
        many = range(100, 130)
        cards = [*(alert(number) for number in many), alert(1, channel=OTHER)]
        await env.outbox.upsert(*cards)
        await send_all(env)
        again = [*(alert(number, text=f"again {number}") for number in many)]
        await env.outbox.upsert(*again)
        await env.outbox.upsert(alert(1, channel=OTHER, text="of the other channel"))
        before = len(sent(env))
        sending = asyncio.create_task(env.outbox.sender.run())
        await env.anna.until(lambda view: "of the other channel" in [m["text"] for m in view.messages(OTHER)])
        await cancelled(sending)
        assert "of the other channel" in sent(env)[before : before + 2]


async def test_a_channel_that_refuses_holds_up_no_other(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        env.emulator.add_channel(OTHER, name="other")
        for number in range(9):
            env.emulator.add_channel(f"C0GONE{number}", name=f"gone{number}", is_archived=True)
        refused = [alert(number, 4, channel=f"C0GONE{number % 9}") for number in range(100, 280)]
        await env.outbox.upsert(*refused, *(alert(number, channel=OTHER) for number in range(3)))
        sending = asyncio.create_task(env.outbox.sender.run())
        await env.anna.until(lambda view: len(view.messages(OTHER)) == 3)
        await cancelled(sending)
        tried = [body["channel"] for _, what, body, _ in env.emulator.traffic if what == "chat.postMessage"]
        assert len(tried) - tried.count(OTHER) == 9
        assert sum(problem.waiting for problem in await env.outbox.problems()) == 180


async def test_a_link_leads_to_a_card_that_is_posted(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.add_channel("C0GONE", name="gone", is_archived=True)
        await env.outbox.upsert(alert(1), alert(1, channel="C0GONE"))
        (card,) = await env.anna.until(lambda view: view.messages(SOC))
        await until_read(lambda: env.outbox.cards("~1"), lambda cards: any(one.ts for one in cards))
        link = card_link(await env.outbox.cards("~1"), {SOC: 1, "C0GONE": 3}.get, "https://soc.example")
        assert link == f"https://soc.example/archives/{SOC}/p{card['ts'].replace('.', '')}"


async def test_thousands_that_wait_in_one_channel_hold_up_no_other(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, rate_limiter=RateLimiter()) as env:
        env.clock.stop()
        env.emulator.add_channel(OTHER, name="other")
        await env.outbox.upsert(*(alert(number) for number in range(100, 5_100)))
        await until(lambda: len(sent(env)) == 3)  # as many as Slack takes at once
        await env.outbox.upsert(alert(1, channel=OTHER, text="of the other channel"))
        await env.anna.until(lambda view: view.messages(OTHER))
        assert sent(env)[3:] == ["of the other channel"]


async def test_the_card_of_a_group_goes_before_single_alerts_alike_severe(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path, send=False) as env:
        group = DesiredMessage("group:1:C0SOC", SOC, Message("group"), view=alert(1).view)
        await env.outbox.upsert(group, *[alert(number) for number in range(100, 140)], alert(500, 3))
        assert (await send_all(env))[:3] == ["high 500", "group", "low 139"]
