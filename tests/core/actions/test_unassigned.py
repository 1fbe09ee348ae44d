"""Steps of a duty for alerts that nobody is assigned to: who is asked to work on them, when, and never twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.actions.duty import ALERTS_AT_MOST
from core.authorization import COMMAND_LINE
from core.common.clock import DAY_MS, MINUTE_MS
from core.common.database import Row
from core.common.settings_file import ChannelAlerts
from core.models import Alert, AlertInput, AlertUpdate, Duty
from core.records.alerts import Alerts
from core.settings import DutySection
from core.store import duty as stored
from tests import stores
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, another_core, caller, run_input
from tests.core.actions.test_duty import NIGHT, asked, night, pass_minutes, refused
from tests.core.scripted_engine import ScriptedEngine

SOC: Mapping[str, Any] = {"id": "C0SOC", "alerts": {"sources": ["edr"]}, "unassigned": "leads"}
ALL = [(0, "@oncall", "ben"), (10, "@leads", "lead"), (25, "channel", "anna cleo")]


@asynccontextmanager
async def watched(tmp_path: Path, *channels: Mapping[str, Any], **options: Any) -> AsyncIterator[Harness]:
    """As `night`; core has looked once."""
    sections = [ChannelAlerts.model_validate(channel) for channel in channels or (SOC,)]
    async with night(tmp_path, channels=sections, **options) as harness:
        await harness.duties.run_due()
        yield harness


def alerts_of(harness: Harness) -> Alerts:
    return Alerts(harness.database, harness.clock, "soc")


async def create(harness: Harness, ref: str = "a", **more: Any) -> Alert:
    fields = {"type": "t", "source": "edr", "sourceRef": ref, "title": "t", "description": "d", "severity": 3, **more}
    return await alerts_of(harness).create(LEAD, AlertInput.model_validate(fields))


async def update(harness: Harness, alert: Alert, **fields: Any) -> None:
    await alerts_of(harness).update(LEAD, alert.id, AlertUpdate.model_validate(fields))


async def duty_of(harness: Harness, alert: Alert) -> Duty | None:
    return Alert.model_validate_json(await alerts_of(harness).get_json(alert.id)).duty


async def steps_left(harness: Harness) -> list[Row]:
    return [row for row in await harness.database.read(stored.all_of) if row["step"] >= 0]


async def test_each_step_asks_once_and_only_those_who_may_work_on_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        start = harness.clock()
        alert = await create(harness)
        assert await duty_of(harness, alert) is None
        await harness.duties.run_due()
        duty = await duty_of(harness, alert)
        assert duty is not None
        assert (duty.name, duty.next_ask, duty.next_at) == ("leads", "@leads", start + 10 * MINUTE_MS)
        await pass_minutes(harness, 60)
        # Eve may only read, Dora isn't in Slack, Ben was asked before.
        assert asked(await duty_of(harness, alert), start) == ALL
        assert await harness.database.read(stored.all_of) == []
        await update(harness, alert, tags=["more"])
        await pass_minutes(harness, 60)
        assert asked(await duty_of(harness, alert), start) == ALL


async def test_who_may_not_see_it_is_not_asked(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        alert, start = await create(harness, tlp=3), harness.clock()
        for name in ("lead", "cleo"):
            await harness.people.set_clearance(name, 3)
        await pass_minutes(harness, 5)
        await harness.people.disable(COMMAND_LINE, "cleo")
        await pass_minutes(harness, 40)
        steps = [(1, "@oncall", ""), (1, "@leads", "lead"), (16, "channel", "")]
        assert asked(await duty_of(harness, alert), start) == steps


@pytest.mark.parametrize("how", ["assigned", "closed", "case", "severity"])
async def test_nobody_is_asked_any_more_once_it_needs_nobody(tmp_path: Path, how: str) -> None:
    async with watched(tmp_path) as harness:
        alert, start = await create(harness), harness.clock()
        await harness.duties.run_due()
        await pass_minutes(harness, 9)
        if how == "assigned":
            await update(harness, alert, assignee=ANNA.login)
        elif how == "closed":
            await alerts_of(harness).mark_read(LEAD, alert.id)
        elif how == "case":
            await alerts_of(harness).create_case(LEAD, alert.id)
        else:
            await update(harness, alert, severity=2)
        error = await refused(harness.duties.not_me(BEN, alert.id))
        assert (error.code, error.message) == ("conflict", "It no longer waits for anybody.")
        await pass_minutes(harness, 60)
        assert asked(await duty_of(harness, alert), start) == [(0, "@oncall", "ben")]
        assert await harness.database.read(stored.all_of) == []


async def test_what_is_below_the_severity_or_posted_elsewhere_asks_nobody(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        await create(harness, "low", severity=2)
        await create(harness, "other", source="mail")
        await create(harness, "taken")
        low, other, taken = [
            await alerts_of(harness).get_json(f"t;{s};{r}")
            for s, r in (("edr", "low"), ("mail", "other"), ("edr", "taken"))
        ]
        await update(harness, Alert.model_validate_json(taken), assignee=ANNA.login)
        await harness.duties.run_due()
        assert await harness.database.read(stored.all_of) == []
        # More severe, and unassigned: now they need somebody.
        for doc, fields in ((low, {"severity": 4}), (taken, {"assignee": ""}), (other, {"severity": 4})):
            await update(harness, Alert.model_validate_json(doc), **fields)
        await harness.duties.run_due()
        asks = [
            len((await duty_of(harness, Alert.model_validate_json(doc)) or Duty()).asked) for doc in (low, other, taken)
        ]
        assert asks == [1, 0, 1]


CRITICAL: Mapping[str, Any] = {**SOC, "id": "C0CRIT", "unassigned": "boss", "unassigned_severity_at_least": 4}


def of_two_channels() -> dict[str, Any]:
    """Settings in which Cleo is asked about what is critical, and `leads` about the rest."""
    boss = {"steps": [{"after": "0m", "ask": "cleo"}]}
    duties = {"leads": DutySection.model_validate(NIGHT), "boss": DutySection.model_validate(boss)}
    return {"duties": duties, "channels": [ChannelAlerts.model_validate(channel) for channel in (CRITICAL, SOC)]}


async def test_the_first_channel_that_gets_the_alert_says_which_duty(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness, another_core(harness, ScriptedEngine(), **of_two_channels()) as core:
        high, worst = await create(harness, "high"), await create(harness, "worst", severity=4)
        await core.duties.run_due()
        duties = [await duty_of(harness, one) for one in (high, worst)]
        assert [(one.name, one.channel, *one.logins) for one in duties if one] == [
            ("leads", "C0SOC", BEN.login),
            ("boss", "C0CRIT", "cleo@example.org"),
        ]


async def test_what_becomes_more_severe_is_asked_by_the_duty_of_its_new_channel_at_once(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness, another_core(harness, ScriptedEngine(), **of_two_channels()) as core:
        alert, start = await create(harness), harness.clock()
        await core.duties.run_due()
        harness.clock.now_ms += 5 * MINUTE_MS
        await update(harness, alert, severity=4)
        for _ in range(30):
            await core.duties.run_due()
            harness.clock.now_ms += MINUTE_MS
        duty = await duty_of(harness, alert)
        assert duty is not None
        assert asked(duty, start) == [(0, "@oncall", "ben"), (5, "cleo", "cleo")]
        assert (duty.name, duty.channel) == ("boss", "C0CRIT")
        assert await steps_left(harness) == []


async def test_settings_that_change_while_a_step_waits_begin_with_the_new_duty(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        alert, start = await create(harness), harness.clock()
        for _ in range(2):  # until it has read its own event
            await harness.duties.run_due()
        settings = of_two_channels()
        settings["channels"] = [ChannelAlerts.model_validate({**SOC, "unassigned": "boss"})]
        async with another_core(harness, ScriptedEngine(), **settings) as core:
            for _ in range(12):
                harness.clock.now_ms += MINUTE_MS
                await core.duties.run_due()
        assert asked(await duty_of(harness, alert), start) == [(0, "@oncall", "ben"), (11, "cleo", "cleo")]


async def test_after_somebody_was_assigned_the_steps_go_on_and_nobody_is_asked_twice(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        alert, start = await create(harness), harness.clock()
        await harness.duties.run_due()
        await update(harness, alert, assignee=ANNA.login)
        await pass_minutes(harness, 30)
        await update(harness, alert, assignee="")
        await pass_minutes(harness, 60)
        steps = [(0, "@oncall", "ben"), (41, "@leads", "lead"), (56, "channel", "anna cleo")]
        assert asked(await duty_of(harness, alert), start) == steps


async def test_not_me_brings_the_next_step(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        alert, start = await create(harness), harness.clock()
        await harness.duties.run_due()
        error = await refused(harness.duties.not_me(caller("cleo"), alert.id))
        assert (error.code, error.message) == ("forbidden", "Nobody has asked you about this.")
        duty = await harness.duties.not_me(BEN, alert.id)
        assert duty == await harness.duties.not_me(BEN, alert.id)
        assert asked(duty, start) == [(0, "@oncall", "ben"), (0, "@leads", "lead")]
        await pass_minutes(harness, 15)
        assert asked(await duty_of(harness, alert), start)[2:] == [(15, "channel", "anna cleo")]


async def test_of_two_cores_one_takes_each_step(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness, another_core(harness, ScriptedEngine(), **settings_of()) as core:
        alert, start = await create(harness), harness.clock()
        for _ in range(40):
            await asyncio.gather(*(one.duties.run_due() for one in (harness, core, harness, core)))
            harness.clock.now_ms += MINUTE_MS
        assert asked(await duty_of(harness, alert), start) == ALL


def settings_of(duty: str = "leads", **channel: Any) -> dict[str, Any]:
    """The settings of `watched` for another core."""
    channels = [ChannelAlerts.model_validate({**SOC, "unassigned": duty, **channel})]
    return {"duties": {duty: DutySection.model_validate(NIGHT)}, "channels": channels}


async def test_what_came_before_core_was_lost_is_asked_about_after_a_restart(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        alert = await create(harness)
        harness.clock.now_ms += DAY_MS
        async with another_core(harness, ScriptedEngine(), **settings_of()) as core:
            start = harness.clock()
            await core.duties.run_due()
        assert asked(await duty_of(harness, alert), start) == ALL[:1]
        harness.clock.now_ms += 3 * DAY_MS
        async with another_core(harness, ScriptedEngine(), **settings_of()) as core:
            await core.duties.run_due()
        days = 3 * DAY_MS / MINUTE_MS
        steps = [(0, "@oncall", "ben"), (days, "channel", "anna cleo lead")]  # only the latest that is due
        assert asked(await duty_of(harness, alert), start) == steps


async def test_what_came_while_no_channel_had_a_duty_asks_nobody(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:  # without one
        before = await create(harness, "before")
        await harness.duties.run_due()
        async with another_core(harness, ScriptedEngine(), **settings_of()) as core:
            await core.duties.run_due()
            after = await create(harness, "after")
            await core.duties.run_due()
        assert await duty_of(harness, before) is None
        assert asked(await duty_of(harness, after), harness.clock()) == ALL[:1]
        async with another_core(harness, ScriptedEngine()) as core:
            await core.duties.run_due()
        assert await harness.database.read(stored.seen) is None


async def test_a_storm_asks_about_some_and_still_about_what_is_worse(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        high = [await create(harness, f"high {number}") for number in range(ALERTS_AT_MOST + 15)]
        await harness.duties.run_due()
        worst = await create(harness, "worst", severity=4)
        await harness.duties.run_due()
        duties = [await duty_of(harness, alert) for alert in (*high, worst)]
        assert [duty is not None for duty in duties] == [True] * ALERTS_AT_MOST + [False] * 15 + [True]
        async with another_core(
            harness, ScriptedEngine(), **settings_of("others", alerts={"sources": ["mail"]})
        ) as core:
            other = await create(harness, "other", source="mail")
            await core.duties.run_due()
            assert await duty_of(harness, other) is not None
        await pass_minutes(harness, 10)
        later = await create(harness, "later")
        await harness.duties.run_due()
        assert await duty_of(harness, later) is not None


async def test_what_is_closed_at_once_counts_in_a_storm_as_well(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        for number in range(ALERTS_AT_MOST + 1):
            alert = await create(harness, str(number))
            await harness.duties.run_due()
            assert (await duty_of(harness, alert) is not None) == (number < ALERTS_AT_MOST)
            await alerts_of(harness).mark_read(LEAD, alert.id)
            harness.clock.now_ms += 1_000
        await pass_minutes(harness, 9)
        again = await create(harness, "again")
        await harness.duties.run_due()
        assert await duty_of(harness, again) is None


async def test_a_feed_that_cannot_be_read_holds_up_no_step(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        run = (await harness.actions.start(ANNA, run_input(harness))).action
        stores.rows(tmp_path / "core.db", "ALTER TABLE unassigned RENAME COLUMN seq TO other")
        with pytest.raises(Exception, match="seq"):
            await harness.duties.run_due()
        approval = (await harness.action(run.id)).approval
        assert approval is not None
        assert approval.duty is not None
        assert approval.duty.logins == [BEN.login]


async def test_many_events_are_read_in_parts(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        for number in range(420):
            await create(harness, str(number), severity=1)
        alert = await create(harness)
        await harness.duties.run_due()
        assert asked(await duty_of(harness, alert), harness.clock()) == ALL[:1]


async def test_a_damaged_alert_holds_up_no_other(tmp_path: Path) -> None:
    async with watched(tmp_path) as harness:
        damaged, other = await create(harness, "damaged"), await create(harness, "other")
        sql = """UPDATE object SET doc = '{"status": "New", "severity": 3}' WHERE id = :id"""
        await harness.database.transaction(lambda tx: tx.run(sql, {"id": damaged.number}))
        await harness.duties.run_due()
        assert len((await duty_of(harness, other) or Duty()).asked) == 1
        assert [row["id"] for row in await steps_left(harness)] == [other.number]
        await harness.database.transaction(lambda tx: tx.run(sql, {"id": other.number}))
        await pass_minutes(harness, 11)
        assert await steps_left(harness) == []
