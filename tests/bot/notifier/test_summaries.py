"""Handovers: once at each time, whatever the clock and the bots do, with nothing that the channel may not see."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bot.app import running
from bot.block_kit import ids
from bot.notifier.summaries import times_at
from bot.settings import parse
from bot.slack_emulator import EmulatorView
from core.client import CoreClient
from core.common.clock import DAY_MS, now_ms
from core.common.errors import ResponderBotError
from core.models import RunInput
from tests.bot.core_proxy import CoreProxy
from tests.bot.features.environment import FeatureEnvironment, feature_environment, text_of, topmost
from tests.bot.outbox.harness import until_read
from tests.bot.running import CHANNELS, OPEN, SOC, find_card

BERLIN, SHIFTS = ZoneInfo("Europe/Berlin"), ("08:00", "20:00")
RULES: Mapping[str, Mapping[str, Any]] = {"Block": {"undo": "Tell_1_0", "undo_after_minutes": 600, "target": "ip"}}
HOUR_MS = 3_600_000


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp() * 1000)


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "before", "due", "after"),
    [
        ("2026-11-23 08:00", "2026-11-22 20:00", "2026-11-23 08:00", "2026-11-23 20:00"),
        ("2026-11-23 07:59", "2026-11-22 08:00", "2026-11-22 20:00", "2026-11-23 08:00"),
        ("2026-10-25 12:00", "2026-10-24 20:00", "2026-10-25 08:00", "2026-10-25 20:00"),
    ],
)
def test_the_times_around_a_moment(now: str, before: str, due: str, after: str) -> None:
    assert times_at(at(now), SHIFTS, BERLIN) == (at(before), at(due), at(after))


def test_a_night_in_which_the_clock_is_changed_is_shorter_or_longer() -> None:
    assert times_at(at("2026-03-29 10:00"), SHIFTS, BERLIN).due - at("2026-03-28 20:00") == 11 * HOUR_MS
    assert times_at(at("2026-10-25 10:00"), SHIFTS, BERLIN).due - at("2026-10-24 20:00") == 13 * HOUR_MS


def test_a_time_that_is_skipped_comes_once_and_one_that_comes_twice_counts_first() -> None:
    skipped = {times_at(at("2026-03-29 00:00") + minute * 60_000, ["02:30"], BERLIN).due for minute in range(1_300)}
    assert skipped == {at("2026-03-28 02:30"), at("2026-03-29 03:30")}
    twice = {times_at(at("2026-10-25 00:00") + minute * 60_000, ["02:30"], BERLIN).due for minute in range(1_300)}
    assert twice == {at("2026-10-24 02:30"), at("2026-10-25 02:30")}


@given(
    st.integers(0, 4_000_000_000_000),
    st.lists(st.times().map(lambda one: one.strftime("%H:%M")), min_size=1, max_size=4),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Antarctica/Troll"]),
)
def test_every_moment_has_one_time_that_is_due(now: int, schedule: list[str], zone: str) -> None:
    times = times_at(now, schedule, ZoneInfo(zone))
    assert times.before < times.due <= now < times.after
    assert times.after - times.due <= 3 * DAY_MS
    assert times_at(times.after, schedule, ZoneInfo(zone)).due == times.after


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("summary", ["8:00"], "a list of times of the day"),
        ("summary", ["24:00"], "a list of times of the day"),
        ("time_zone", "Berlin", "the name of a time zone"),
    ],
)
def test_settings_that_name_no_time_are_refused(key: str, value: object, sentence: str) -> None:
    channel: dict[str, object] = {"id": "C1", "clearance": "amber"}
    tree = {"slack": {"time_zone": value}} if key == "time_zone" else {"channel": [{**channel, key: value}]}
    with pytest.raises(ResponderBotError, match=sentence):
        parse(tree, Path())


# --- in Slack ---------------------------------------------------------------------------------------------------------


class MovedClock:
    """The real clock, set ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


def handovers(view: EmulatorView, channel: str) -> list[dict[str, Any]]:
    return [message for message in view.messages(channel) if message["text"].startswith("Handover")]


@asynccontextmanager
async def environment(folder: Path, clock: MovedClock, **options: Any) -> AsyncIterator[FeatureEnvironment]:
    channels = [{**channel, "summary": ["08:00", "20:00"]} for channel in CHANNELS[:2]]
    async with feature_environment(folder, RULES, channels=channels, clock_ms=clock, **options) as env:
        for channel in (SOC, OPEN):
            await until_read(lambda: env.bot.outbox.summary_at(channel), lambda at: at is not None)  # noqa: B023
        yield env


async def contained(env: FeatureEnvironment, **alert: Any) -> str:
    created = await env.create_alert(**alert)
    body = {"responderId": "Block_1_0", "objectType": "alert", "objectId": created.id, "undoAfterMinutes": 60}
    await env.client.run(RunInput.model_validate(body))
    await env.ended_run(created)
    return created.id


def to_the_next(env: FeatureEnvironment, clock: MovedClock) -> None:
    """Set the clock to the next time of a handover."""
    _, ends_at = env.bot.summaries.shift()
    clock.ahead_ms += ends_at - clock() + 1_000


async def handover(env: FeatureEnvironment, count: int, channel: str = SOC) -> dict[str, Any]:
    """The newest of so many handovers in a channel."""
    return (await env.until("anna", lambda view: seen if len(seen := handovers(view, channel)) == count else None))[-1]


async def test_each_time_brings_one_handover_with_what_the_channel_may_see(tmp_path: Path) -> None:
    clock = MovedClock()
    async with environment(tmp_path, clock) as env:
        assert handovers(env["anna"].live_view, SOC) == []
        alert, red = (
            await contained(env),
            await contained(env, sourceRef="red", tlp=3, artifacts=[{"dataType": "ip", "data": "198.51.100.9"}]),
        )
        unassigned = (await env.create_alert(sourceRef="low")).id
        for one in (alert, red, unassigned):
            await env.until("ben", lambda view: find_card(view.messages(SOC), one))  # noqa: B023
        to_the_next(env, clock)
        await asyncio.gather(*(env.bot.summaries.post_due(SOC) for _ in range(3)))
        shown = await handover(env, 1)
        words = text_of(shown)
        assert shown["text"] == "Handover: 1 measure in force, 0 waiting for approval, 1 unassigned, 0 failed"
        assert [f"|{one}>" in words for one in (alert, unassigned, red)] == [True, True, False]
        assert [secret for secret in ("203.0", "203[.]", "Beacon", "Block", "anna") if secret in words] == []
        await env.bot.summaries.post_due(OPEN)
        empty = await handover(env, 1, OPEN)
        assert "Nothing is in force, waits, is unassigned or has failed." in text_of(empty)
        await env.bot.summaries.post_due(SOC)
        assert len(handovers(env["anna"].live_view, SOC)) == 1


async def test_after_three_days_only_the_newest_comes_and_a_restart_brings_none_again(tmp_path: Path) -> None:
    clock = MovedClock()
    async with environment(tmp_path, clock) as env:
        clock.ahead_ms += 3 * DAY_MS
        await env.bot.summaries.post_due(SOC)
        await handover(env, 1)
        at = await env.bot.outbox.summary_at(SOC)
        await env.bot.close()
        clock.ahead_ms += 1_000
        async with (
            CoreClient(env.core.url, env.service_key) as core,
            running(env.settings, core, clock_ms=clock) as again,
        ):
            await again.leading.wait()
            await again.summaries.post_due(SOC)
            assert await again.outbox.summary_at(SOC) == at
            clock.ahead_ms -= 2 * DAY_MS  # set back: nothing comes twice
            await again.summaries.post_due(SOC)
            assert await again.outbox.summary_at(SOC) == times_at(clock(), SHIFTS, ZoneInfo("UTC")).due
        assert len(handovers(env["anna"].live_view, SOC)) == 1


async def test_core_down_at_that_time_delays_it(tmp_path: Path) -> None:
    clock, proxy = MovedClock(), CoreProxy()
    async with environment(tmp_path, clock, core_proxy=proxy.serve) as env:
        proxy.replace(lambda _: web.Response(status=503))
        before = await env.bot.outbox.summary_at(SOC)
        to_the_next(env, clock)
        with pytest.raises(ResponderBotError):
            await env.bot.summaries.post_due(SOC)
        assert await env.bot.outbox.summary_at(SOC) == before
        proxy.replace(lambda _: None)
        await env.bot.summaries.post_due(SOC)
        await handover(env, 1)


async def test_a_channel_that_is_shared_later_shows_none_of_it(tmp_path: Path) -> None:
    clock = MovedClock()
    async with environment(tmp_path, clock) as env:
        alert = await contained(env)
        await env.card_of("anna", (await env.client.alert(alert)))
        to_the_next(env, clock)
        await env.bot.summaries.post_due(SOC)
        assert alert in text_of(await handover(env, 1))
        env.emulator.share(SOC, True)
        await env.bot.channels.refresh()
        await env.bot.summaries.withhold(SOC)
        withheld = await env.until(
            "anna", lambda view: next((m for m in view.messages(SOC) if "A handover" in m["text"]), None)
        )
        assert alert not in text_of(withheld)


async def test_who_asks_reads_it_with_names_as_far_as_they_may(tmp_path: Path) -> None:
    async with environment(tmp_path, MovedClock()) as env:
        alert, red = (
            await contained(env),
            await contained(env, sourceRef="red", tlp=3, artifacts=[{"dataType": "ip", "data": "198.51.100.9"}]),
        )
        await env["anna"].command(SOC, "/responder summary")
        mine = text_of(await env.until("anna", topmost(ids.NOTICE_VIEW, "Handover")))
        assert ("*Block* on ip 203[.]0[.]113[.]7" in mine, f"({alert})" in mine, red in mine) == (True, True, False)
        await env["ben"].command(SOC, "/responder summary")
        assert red in text_of(await env.until("ben", topmost(ids.NOTICE_VIEW, "Handover")))
