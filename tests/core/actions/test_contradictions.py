"""Who is on duty is told, once, that a check contradicts what a run has left in force."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.actions.duty import CHECKS_AT_MOST, LATELY_MS, begin
from core.common.clock import MINUTE_MS
from core.common.settings_file import ChannelAlerts
from core.models import Action, AlertInput, Duty
from core.records.alerts import Alerts
from core.settings import DutySection
from core.store import duty as stored
from tests.core.actions.harness import LEAD, Harness, another_core, open_harness
from tests.core.actions.test_checks import EVERY_MS, blocked, engine, looked, newest_event, policies, says, verified
from tests.core.actions.test_duty import NIGHT, asked
from tests.core.scripted_engine import ScriptedEngine

SOC: Mapping[str, Any] = {"id": "C0SOC", "alerts": {}, "unassigned": "leads", "unassigned_severity_at_least": 4}
GONE = "the host was online at 12:03"


def settings(steps: Any = None, **channel: Any) -> dict[str, Any]:
    duties = {"leads": DutySection.model_validate({"steps": steps} if steps else NIGHT)}
    return {"duties": duties, "channels": [ChannelAlerts.model_validate({**SOC, **channel})]}


@asynccontextmanager
async def on_duty(tmp_path: Path, **options: Any) -> AsyncIterator[Harness]:
    """Ben is on call; Anna, Ben and Lead are in Slack."""
    artifacts = [{"dataType": "hostname", "data": "SRV-DC01"}]
    parts: dict[str, Any] = {"policies": policies(), "engine": engine(), "artifacts": artifacts}
    async with open_harness(tmp_path, **(parts | settings() | options)) as harness:
        for name in ("anna", "ben", "lead"):
            await harness.people.link(name, f"T0:U0{name.upper()}")
        await harness.people.add_member("oncall", "ben")
        yield harness


async def told(harness: Harness, action: Action) -> Duty | None:
    answer = await verified(harness, action)
    return None if answer is None else answer.duty


async def test_who_is_on_duty_is_told_once_and_nobody_else_later(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted", GONE))
        at = await newest_event(harness)
        await harness.duties.run_due()
        duty = await told(harness, action)
        assert asked(duty, harness.clock()) == [(0, "@oncall", "ben")]
        assert duty is not None
        assert (duty.name, duty.channel, duty.next_ask) == ("leads", "C0SOC", None)
        assert await newest_event(harness) == at + 1
        for _ in range(3):
            harness.clock.now_ms += EVERY_MS
            await looked(harness, says("contradicted", "still"))
            await harness.duties.run_due()
        assert await told(harness, action) == duty
        assert await newest_event(harness) == at + 1
        assert await harness.database.read(stored.all_of) == []


async def test_it_is_told_again_once_it_was_in_force_between(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        times = []
        for answer in ("contradicted", "confirmed", "contradicted"):
            await looked(harness, says(answer))
            await harness.duties.run_due()
            duty = await told(harness, action)
            times.append(duty.asked[0].at if duty is not None else None)
            harness.clock.now_ms += EVERY_MS
        start = harness.clock() - 3 * EVERY_MS
        assert times == [start, None, start + 2 * EVERY_MS]


async def test_a_storm_of_checks_tells_a_duty_of_ten_in_ten_minutes(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        actions = []
        for number in range(CHECKS_AT_MOST + 2):
            actions.append(await blocked(harness, objectId=await other_host(harness, number)))
            await looked(harness, says("contradicted", GONE))
        await harness.duties.run_due()
        assert [await told(harness, one) is not None for one in actions] == [True] * CHECKS_AT_MOST + [False] * 2
        harness.clock.now_ms += LATELY_MS
        await harness.duties.run_due()
        later = await blocked(harness, objectId=await other_host(harness, 99))
        await looked(harness, says("contradicted", GONE))
        await harness.duties.run_due()
        assert await told(harness, later) is not None


async def other_host(harness: Harness, number: int) -> str:
    """An alert of a host that no other names."""
    artifacts = [{"dataType": "hostname", "data": f"SRV-{number}"}]
    fields = {"type": "siem", "source": "s", "sourceRef": f"host {number}", "title": "t", "description": "d"}
    alert = AlertInput.model_validate({**fields, "artifacts": artifacts})
    return (await Alerts(harness.database, harness.clock, "soc").create(LEAD, alert)).id


async def test_what_changes_all_the_time_is_told_once_in_ten_minutes(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        times = set()
        for minute in range(40):
            harness.clock.now_ms += MINUTE_MS
            if minute < 20:
                await harness.database.transaction(lambda tx: tx.run("UPDATE measure SET verify_at = 0"))
                await looked(harness, says("confirmed" if minute % 2 else "contradicted", GONE))
            await harness.duties.run_due()
            duty = await told(harness, action)
            times |= {step.at for step in duty.asked} if duty is not None else set()
        first, *others = sorted(times)
        assert [(at - first) / MINUTE_MS for at in others] == [10]
        await harness.database.transaction(lambda tx: tx.run("UPDATE measure SET verify_at = 0"))
        await looked(harness, says("contradicted", GONE))
        await harness.duties.run_due()
        assert await told(harness, action) is not None


async def test_what_is_contradicted_again_soon_is_told_later(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        for answer in ("contradicted", "confirmed", "contradicted"):
            await harness.database.transaction(lambda tx: tx.run("UPDATE measure SET verify_at = 0"))
            await looked(harness, says(answer, GONE))
            await harness.duties.run_due()
        assert await told(harness, action) is None
        harness.clock.now_ms += LATELY_MS
        await harness.duties.run_due()
        assert asked(await told(harness, action), harness.clock()) == [(0, "@oncall", "ben")]


@pytest.mark.parametrize("answer", ["confirmed", "unknown"])
async def test_nobody_is_told_what_is_not_contradicted_any_more(tmp_path: Path, answer: str) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        harness.clock.now_ms += EVERY_MS  # while no duty looks
        await looked(harness, says(answer))
        at = await newest_event(harness)
        await harness.duties.run_due()
        assert (await told(harness, action), await newest_event(harness)) == (None, at)
        assert await harness.database.read(stored.all_of) == []


@pytest.mark.parametrize(
    "channels",
    [[], [ChannelAlerts.model_validate({**SOC, "alerts": {"sources": ["other"]}})]],
    ids=["no duty", "a duty of another channel"],
)
async def test_without_a_duty_of_the_channel_nobody_is_told(tmp_path: Path, channels: list[ChannelAlerts]) -> None:
    async with on_duty(tmp_path, channels=channels) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        await harness.duties.run_due()
        assert await told(harness, action) is None
        assert await harness.database.read(stored.all_of) == []


async def test_the_duty_of_the_responder_is_told_where_no_channel_has_one(tmp_path: Path) -> None:
    async with on_duty(tmp_path, channels=[], policies=policies(duty="leads")) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        await harness.duties.run_due()
        duty = await told(harness, action)
        assert asked(duty, harness.clock()) == [(0, "@oncall", "ben")]
        assert duty is not None
        assert (duty.name, duty.channel) == ("leads", None)


async def test_an_alert_in_a_case_is_told_by_the_duty_of_its_channel(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        case = await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, harness.alert_id)
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        await harness.duties.run_due()
        assert case is not None
        assert asked(await told(harness, action), harness.clock()) == [(0, "@oncall", "ben")]


async def test_who_cannot_act_or_may_not_see_it_is_passed_over(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        await harness.people.add_member("leads", "lead")
        await harness.people.set_clearance("ben", 1)
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        await harness.duties.run_due()
        assert asked(await told(harness, action), harness.clock()) == [(0, "@oncall", ""), (0, "@leads", "lead")]


async def test_of_two_cores_one_tells_and_a_core_that_starts_tells_what_the_last_one_did_not(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        at = await newest_event(harness)
        harness.clock.now_ms += MINUTE_MS
        async with another_core(harness, ScriptedEngine(), policies=policies(), **settings()) as core:
            await asyncio.gather(*(one.duties.run_due() for one in (core, harness, core, harness)))
        assert asked(await told(harness, action), harness.clock()) == [(0, "@oncall", "ben")]
        assert await newest_event(harness) == at + 1


async def test_an_extension_that_is_asked_for_meanwhile_changes_nothing(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        number, responder = int(action.id[1:]), action.responder_name
        now = harness.clock()
        await harness.database.transaction(
            lambda tx: begin(tx, harness.guards, number, responder, now, now + 60 * MINUTE_MS)
        )
        await harness.duties.run_due()
        assert asked(await told(harness, action), harness.clock()) == [(0, "@oncall", "ben")]
