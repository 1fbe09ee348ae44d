"""Steps of a duty: who is asked to approve, when, and never twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.actions.bulks import Bulks
from core.actions.duty import STEPS_AT_ONCE, TICK_S
from core.authorization import COMMAND_LINE
from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import AlertInput, BulkInput, Duty
from core.records.alerts import Alerts
from core.settings import DutySection, ResponderSection, load
from core.store import duty as stored
from tests.clock import SetClock
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, another_core, caller, next_run, open_harness, run_input
from tests.core.scripted_engine import ScriptedEngine

BLOCK, UNDO = "BlockHost_1_0", "Other_1_0"
NIGHT: Mapping[str, Any] = {
    "steps": [
        {"after": "0m", "ask": "@oncall"},
        {"after": "10m", "ask": "@leads"},
        {"after": "25m", "ask": "channel"},
    ]
}
TICK_MS = int(TICK_S * 1000)
PEOPLE = {"cleo": "analyst", "dora": "analyst", "eve": "read-only"}  # beside ANNA, BEN and LEAD


@asynccontextmanager
async def night(
    tmp_path: Path, steps: Any = None, *, section: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[Harness]:
    """Ben is on call, Ben and Lead are leads, Cleo and Dora may approve too; Eve may not."""
    duties = {"leads": DutySection.model_validate({"steps": steps} if steps else NIGHT)}
    policies = {BLOCK: ResponderSection.model_validate({"approval": 1, "duty": "leads", **(section or {})})}
    async with open_harness(tmp_path, policies=policies, duties=duties, **options) as harness:
        for name, profile in PEOPLE.items():
            await harness.people.add(name, profile)  # type: ignore[arg-type]
        for name in ("anna", "ben", "lead", "cleo", "eve"):
            await harness.people.link(name, f"T0:U0{name.upper()}")
        for group, names in (("oncall", ("ben",)), ("leads", ("ben", "lead", "eve", "dora"))):
            for name in names:
                await harness.people.add_member(group, name)
        yield harness


async def duty_of(harness: Harness, action_id: str) -> Duty | None:
    approval = (await harness.action(action_id)).approval
    return approval.duty if approval is not None else None


def asked(duty: Duty | None, since: int) -> list[tuple[float, str, str]]:
    """Minutes, what the step says, and who was asked."""
    steps = duty.asked if duty is not None else []
    return [((s.at - since) / MINUTE_MS, s.ask, " ".join(one.partition("@")[0] for one in s.logins)) for s in steps]


async def pass_minutes(harness: Harness, minutes: float) -> None:
    """Let the time go on, with a look each minute."""
    for _ in range(int(minutes)):
        harness.clock.now_ms += MINUTE_MS
        await harness.duties.run_due()


async def refused(work: Any) -> ResponderBotError:
    with pytest.raises(ResponderBotError) as error:
        await work
    return error.value


async def test_each_step_asks_once_and_only_those_who_may_decide(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        start = harness.clock()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        assert await duty_of(harness, action.id) is None
        await harness.duties.run_due()
        duty = await duty_of(harness, action.id)
        assert duty is not None
        assert (duty.name, duty.next_ask, duty.next_at) == ("leads", "@leads", start + 10 * MINUTE_MS)
        await pass_minutes(harness, 40)
        duty = await duty_of(harness, action.id)
        # Eve may not approve, Dora isn't in Slack, Ben was asked before, Anna asks.
        assert asked(duty, start) == [(0, "@oncall", "ben"), (10, "@leads", "lead"), (25, "channel", "cleo")]
        assert duty is not None
        assert (duty.next_ask, duty.next_at) == (None, None)
        assert await harness.database.read(stored.all_of) == []


async def test_nobody_is_asked_any_more_once_it_is_decided_or_its_time_is_over(tmp_path: Path) -> None:
    async with night(tmp_path, section={"approval_expires_minutes": 15}) as harness:
        start = harness.clock()
        decided = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.duties.run_due()
        await harness.actions.approve(BEN, decided.id)
        (await next_run(harness.engine)).finish(Report(True))
        ended = (await harness.ended(decided.id)).approval
        late = (await harness.actions.start(ANNA, run_input(harness))).action
        await pass_minutes(harness, 30)
        assert asked(await duty_of(harness, decided.id), start) == [(0, "@oncall", "ben")]
        assert ended is not None
        assert ended.approved_by == [BEN.login]
        assert asked(await duty_of(harness, late.id), start) == [(1, "@oncall", "ben"), (10, "@leads", "lead")]
        assert await harness.database.read(stored.all_of) == []


async def test_a_step_with_nobody_brings_the_next_at_once(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        start = harness.clock()
        action = (await harness.actions.start(BEN, run_input(harness))).action  # who is on call asks
        await pass_minutes(harness, 1)
        steps = [(1, "@oncall", ""), (1, "@leads", "lead")]
        assert asked(await duty_of(harness, action.id), start) == steps
        await pass_minutes(harness, 14)
        assert len((await duty_of(harness, action.id) or Duty(name="")).asked) == 2
        await pass_minutes(harness, 1)
        assert asked(await duty_of(harness, action.id), start) == [*steps, (16, "channel", "anna cleo")]


async def test_a_duty_with_only_the_requester_asks_nobody_and_says_so(tmp_path: Path) -> None:
    async with night(tmp_path, [{"after": "0m", "ask": "@oncall"}, {"after": "10m", "ask": "ben"}]) as harness:
        start = harness.clock()
        action = (await harness.actions.start(BEN, run_input(harness))).action
        await pass_minutes(harness, 30)
        assert asked(await duty_of(harness, action.id), start) == [(1, "@oncall", ""), (1, "ben", "")]
        reminder = await harness.database.read(stored.all_of)
        assert [row["step"] for row in reminder] == []


async def test_not_me_by_everybody_asks_each_once_and_then_nobody(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        start = harness.clock()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.duties.run_due()
        for name in ("ben", "lead", "cleo"):
            await asyncio.gather(*(harness.duties.not_me(caller(name), action.id) for _ in range(3)))
        duty = await duty_of(harness, action.id)
        assert duty is not None
        assert asked(duty, start) == [(0, "@oncall", "ben"), (0, "@leads", "lead"), (0, "channel", "cleo")]
        assert [login.partition("@")[0] for login in duty.not_me] == ["ben", "lead", "cleo"]
        await pass_minutes(harness, 40)
        assert (await duty_of(harness, action.id) or Duty()).asked == duty.asked
        await harness.actions.approve(BEN, action.id)  # they may all the same
        await next_run(harness.engine)


async def test_many_steps_that_are_due_together_are_taken_in_few_commits(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        alerts, ids = Alerts(harness.database, harness.clock, "soc"), []
        for number in range(3 * STEPS_AT_ONCE):
            fields = {"type": "t", "source": "s", "sourceRef": str(number), "title": "t", "description": "d"}
            alert = await alerts.create(LEAD, AlertInput.model_validate(fields))
            ids.append((await harness.actions.start(ANNA, run_input(harness, objectId=alert.id))).action.id)
        damaged = int(ids[7][1:])
        sql = "UPDATE action SET doc = '{}' WHERE id = :id"
        await harness.database.transaction(lambda tx: tx.run(sql, {"id": damaged}))
        before = harness.database.commits
        await harness.duties.run_due()
        assert harness.database.commits - before < 10
        duties = [await duty_of(harness, one) for one in ids if one != f"~{damaged}"]
        assert [duty.logins if duty is not None else [] for duty in duties] == [[BEN.login]] * (len(ids) - 1)


async def test_a_duty_that_can_ask_nobody_is_said(tmp_path: Path) -> None:
    steps = [{"after": f"{number}m", "ask": ask} for number, ask in enumerate(("ben", "carl", "@leads", "channel"))]
    async with night(tmp_path, steps) as harness:

        async def unable() -> list[str]:
            sentences = await harness.database.read(harness.guards.problems)
            return [one.split()[4].rstrip(",") for one in sentences if one.startswith("The duty leads asks")]

        assert await unable() == ["carl"]  # whoever that is
        await harness.people.disable(COMMAND_LINE, "ben")
        assert await unable() == ["ben", "carl"]
        await harness.people.disable(COMMAND_LINE, "lead")
        assert await unable() == ["ben", "carl", "@leads"]  # Eve may not, Dora isn't in Slack
        for name in ("anna", "cleo"):
            await harness.people.disable(COMMAND_LINE, name)
        assert await unable() == ["ben", "carl", "@leads", "channel"]


async def test_rights_are_read_when_a_step_comes(tmp_path: Path) -> None:
    async with night(tmp_path, section={"approve_by": ["@leads", "cleo"]}) as harness:
        start = harness.clock()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await pass_minutes(harness, 1)
        await harness.people.link("dora", "T0:U0DORA")
        await harness.people.disable(COMMAND_LINE, "lead")
        await pass_minutes(harness, 10)
        await harness.people.set_clearance("cleo", 0)
        await pass_minutes(harness, 20)
        steps = [(1, "@oncall", "ben"), (10, "@leads", "dora"), (25, "channel", "")]
        assert asked(await duty_of(harness, action.id), start) == steps


async def test_not_me_brings_the_next_step_once(tmp_path: Path) -> None:
    steps = [{"after": "0m", "ask": "@leads"}, {"after": "10m", "ask": "cleo"}, {"after": "25m", "ask": "channel"}]
    async with night(tmp_path, steps) as harness:
        await harness.people.link("dora", "T0:U0DORA")
        start = harness.clock()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        error = await refused(harness.duties.not_me(BEN, action.id))
        assert (error.code, error.message) == ("conflict", "It no longer waits for anybody.")
        await harness.duties.run_due()
        error = await refused(harness.duties.not_me(caller("cleo"), action.id))
        assert (error.code, error.message) == ("forbidden", "Nobody has asked you about this.")
        harness.clock.now_ms += MINUTE_MS
        for who in (BEN, BEN, LEAD):  # pressed twice; and of two who were asked together, one brings the next
            await harness.duties.not_me(who, action.id)
        duty = await duty_of(harness, action.id)
        assert asked(duty, start) == [(0, "@leads", "ben dora lead"), (1, "cleo", "cleo")]
        assert duty is not None
        assert (duty.not_me, duty.next_at) == ([BEN.login, LEAD.login], start + 16 * MINUTE_MS)
        await pass_minutes(harness, 14)
        assert asked(await duty_of(harness, action.id), start)[2:] == []
        await pass_minutes(harness, 1)
        assert asked(await duty_of(harness, action.id), start)[2:] == [(16, "channel", "")]
        await harness.actions.approve(LEAD, action.id)  # who passed it on may decide all the same
        error = await refused(harness.duties.not_me(caller("cleo"), action.id))
        assert error.code == "conflict"


@pytest.mark.parametrize("odd", ["~99999", "12", "~", "~" + "9" * 40])
async def test_not_me_on_what_is_not_there(tmp_path: Path, odd: str) -> None:
    async with night(tmp_path) as harness:
        assert (await refused(harness.duties.not_me(BEN, odd))).code == "conflict"


async def test_after_three_days_down_only_the_latest_step_comes(tmp_path: Path) -> None:
    steps = [*NIGHT["steps"], {"after": "4d", "ask": "cleo"}]
    async with night(tmp_path, steps, section={"approval_expires_minutes": 10_000}) as harness:
        start = harness.clock()
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.duties.run_due()
        harness.clock.now_ms += 3 * DAY_MS
        async with another_core(harness, ScriptedEngine(), **night_of(harness, steps)) as core:
            await core.duties.run_due()
            duty = await duty_of(harness, action.id)
            assert asked(duty, start) == [(0, "@oncall", "ben"), (3 * 24 * 60, "channel", "cleo lead")]
            assert duty is not None
            assert (duty.next_ask, duty.next_at) == ("cleo", start + 4 * DAY_MS)


def night_of(harness: Harness, steps: Any = None) -> dict[str, Any]:
    """The settings of `night` for another core."""
    duties = {"leads": DutySection.model_validate({"steps": steps} if steps else NIGHT)}
    return {"policies": {BLOCK: harness.guards.section(BLOCK)}, "duties": duties}


async def test_of_two_cores_one_takes_each_step(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        start = harness.clock()
        async with another_core(harness, ScriptedEngine(), **night_of(harness)) as core:
            action = (await harness.actions.start(ANNA, run_input(harness))).action
            for _ in range(40):
                await asyncio.gather(*(one.duties.run_due() for one in (harness, core, harness, core)))
                harness.clock.now_ms += MINUTE_MS
            steps = [(0, "@oncall", "ben"), (10, "@leads", "lead"), (25, "channel", "cleo")]
            assert asked(await duty_of(harness, action.id), start) == steps


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 400 * DAY_MS])
async def test_a_clock_that_jumps_moves_no_step(tmp_path: Path, jump_ms: int) -> None:
    steady = SetClock(5_000)
    async with night(tmp_path, section={"approval_expires_minutes": 1_000_000}, lease_clock=steady) as harness:
        wall = harness.clock

        async def go_on(minutes: float) -> None:
            for _ in range(int(minutes * MINUTE_MS / TICK_MS)):
                wall.now_ms += TICK_MS
                steady.now_ms += TICK_MS
                await harness.duties.run_due()

        async def count(action_id: str) -> int:
            return len((await duty_of(harness, action_id) or Duty(name="")).asked)

        await harness.duties.run_due()
        before = (await harness.actions.start(ANNA, run_input(harness))).action
        await go_on(5)
        wall.now_ms += jump_ms
        after = (await harness.actions.start(ANNA, run_input(harness))).action
        await go_on(4.9)
        assert [await count(before.id), await count(after.id)] == [1, 1]
        await go_on(0.2)
        assert [await count(before.id), await count(after.id)] == [2, 1]
        await go_on(4.8)
        assert await count(after.id) == 1
        await go_on(0.2)
        assert await count(after.id) == 2
        await go_on(10)
        assert [await count(before.id), await count(after.id)] == [3, 2]


async def test_of_another_host_with_a_clock_that_is_wrong_no_step_comes_early(tmp_path: Path) -> None:
    steady, ahead = SetClock(5_000), SetClock()
    async with night(tmp_path, section={"approval_expires_minutes": 1000}, lease_clock=steady) as harness:
        ahead.now_ms += 3 * HOUR_MS
        options = {**night_of(harness), "clock": ahead, "lease_clock": SetClock(77)}
        async with another_core(harness, ScriptedEngine(), **options) as core:
            await core.duties.run_due()
            action = (await harness.actions.start(ANNA, run_input(harness))).action
            await core.duties.run_due()
            await core.duties.run_due()
            duty = await duty_of(harness, action.id)
            assert duty is not None
            assert [step.ask for step in duty.asked] == ["@oncall"]


async def test_a_bulk_has_one_duty_for_all(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        bulks = Bulks(harness.actions.runs, harness.lifecycle, harness.registry, harness.database, harness.clock)
        targets = [{"objectType": "alert", "objectId": await other_alert(harness, tlp)} for tlp in (0, 2, 3)]
        request = BulkInput.model_validate({"responderId": BLOCK, "targets": targets})
        bulk_id = (await bulks.start(ANNA, request)).id
        await harness.people.set_clearance("ben", 1)
        await pass_minutes(harness, 1)
        counts, _ = await bulks.get(bulk_id)
        assert asked(counts.duty, 0)[0][1:] == ("@oncall", "ben")  # who may see one of them
        assert len(await harness.database.read(stored.all_of)) == 2  # a step and the reminder
        duty = await harness.duties.not_me(BEN, bulk_id)
        assert asked(duty, 0)[1][1:] == ("@leads", "lead")
        await pass_minutes(harness, 29)
        reminded = (await bulks.get(bulk_id))[0].duty
        assert reminded is not None
        assert reminded.reminded_at == harness.clock()
        await bulks.deny(LEAD, bulk_id)
        await pass_minutes(harness, 30)
        assert (await bulks.get(bulk_id))[0].duty == reminded


async def other_alert(harness: Harness, tlp: int) -> str:
    fields = {"type": "siem", "source": "s", "sourceRef": f"tlp {tlp}", "title": "t", "description": "d", "tlp": tlp}
    created = await Alerts(harness.database, harness.clock, "soc").create(LEAD, AlertInput.model_validate(fields))
    return created.id


async def test_an_extension_is_asked_for_as_well(tmp_path: Path) -> None:
    section = {"undo": UNDO, "undo_after_minutes": 30, "allow_permanent": True}
    async with night(tmp_path, section=section) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.duties.run_due()
        await harness.actions.approve(BEN, action.id)
        (await next_run(harness.engine)).finish(Report(True))
        await harness.ended(action.id)
        await harness.undos.set_time(LEAD, action.id, 300)
        await pass_minutes(harness, 12)

        async def extension_duty() -> Duty | None:
            undo = (await harness.action(action.id)).undo
            extension = undo.extension if undo is not None else None
            return extension.approval.duty if extension is not None else None

        assert [step[1:] for step in asked(await extension_duty(), 0)] == [
            ("@oncall", "ben"),
            ("@leads", ""),  # Lead asks for it
            ("channel", "anna cleo"),
        ]
        await harness.duties.not_me(BEN, action.id)
        duty = await extension_duty()
        assert duty is not None
        assert duty.not_me == [BEN.login]


async def test_who_approves_an_override_is_asked(tmp_path: Path) -> None:
    steps = [{"after": "0m", "ask": "channel"}]
    section = {"approval": 0, "rate": ["1/1h"]}
    async with night(tmp_path, steps, section=section) as harness:
        await harness.people.add("lea", "org-admin")
        await harness.people.link("lea", "T0:U0LEA")
        await harness.actions.start(ANNA, run_input(harness))
        request = run_input(harness, breakGlass={"reason": "C2"})
        action = (await harness.actions.start(LEAD, request)).action
        await harness.duties.run_due()
        assert asked(await duty_of(harness, action.id), harness.clock()) == [(0, "channel", "lea")]


async def test_a_damaged_record_holds_up_no_other(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        damaged = (await harness.actions.start(ANNA, run_input(harness))).action
        other = (await harness.actions.start(ANNA, run_input(harness))).action
        sql = "UPDATE action SET doc = '[]' WHERE id = :id"
        await harness.database.transaction(lambda tx: tx.run(sql, {"id": damaged.number}))
        assert await harness.duties.run_due() == 2
        assert len((await duty_of(harness, other.id) or Duty()).asked) == 1
        assert await harness.duties.run_due() == 0


@pytest.mark.parametrize("doc", ["{}", "[]", '{"tlp": "red"}', "no JSON"])
async def test_a_damaged_alert_holds_up_no_other(tmp_path: Path, doc: str) -> None:
    async with night(tmp_path) as harness:
        await harness.actions.start(ANNA, run_input(harness))
        fields = {"type": "t", "source": "s", "sourceRef": "other", "title": "t", "description": "d"}
        alert = await Alerts(harness.database, harness.clock, "soc").create(LEAD, AlertInput.model_validate(fields))
        other = (await harness.actions.start(ANNA, run_input(harness, objectId=alert.id))).action
        sql = "UPDATE object SET doc = :doc WHERE id = :id"
        await harness.database.transaction(lambda tx: tx.run(sql, {"doc": doc, "id": int(harness.alert_id[1:])}))
        await harness.duties.run_due()
        duty = await duty_of(harness, other.id)
        assert duty is not None
        assert duty.logins == [BEN.login]


async def test_half_of_the_time_is_said_once(tmp_path: Path) -> None:
    async with night(tmp_path, section={"approval_expires_minutes": 30}) as harness:
        start = harness.clock()
        waits = (await harness.actions.start(ANNA, run_input(harness))).action
        await pass_minutes(harness, 14)
        assert (await duty_of(harness, waits.id) or Duty(reminded_at=0)).reminded_at is None
        await pass_minutes(harness, 15)
        duty = await duty_of(harness, waits.id)
        assert duty is not None
        assert duty.reminded_at == start + 15 * MINUTE_MS
        assert asked(duty, start)[1:] == [(10, "@leads", "lead"), (25, "channel", "cleo")]
        seen = [event.seq for event in (await harness.feed.page(0, 0)).events if event.object_id == waits.id]
        assert len(seen) == 5  # created, three steps and the reminder


async def test_without_a_duty_nobody_is_asked_and_default_is_for_all_others(tmp_path: Path) -> None:
    async with night(tmp_path, section={"duty": ""}) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await pass_minutes(harness, 29)
        assert await duty_of(harness, action.id) is None
        await pass_minutes(harness, 1)
        assert await duty_of(harness, action.id) == Duty(reminded_at=harness.clock())
        options = {**night_of(harness), "duties": {"default": DutySection.model_validate(NIGHT)}}
        async with another_core(harness, ScriptedEngine(), **options) as core:
            action = (await core.actions.start(ANNA, run_input(harness))).action
            await core.duties.run_due()
            assert (await duty_of(harness, action.id) or Duty(name="")).name == "default"


async def test_a_duty_that_was_removed_from_the_settings_ends(tmp_path: Path) -> None:
    async with night(tmp_path) as harness:
        await harness.actions.start(ANNA, run_input(harness))
        await harness.duties.run_due()
        async with another_core(harness, ScriptedEngine(), **night_of(harness, NIGHT["steps"][:1])) as core:
            harness.clock.now_ms += HOUR_MS // 2
            await core.duties.run_due()
            assert await harness.database.read(stored.all_of) == []


STEP = '{ after = "0m", ask = "anna" }'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[duty]\nsteps = []", '[duty] needs a name, such as [duty."leads"].'),
        ('[duty."a"]\n', '[duty."a"] needs a value for steps: a list such as'),
        ('[duty."a"]\nsteps = []', '[duty."a"] steps must be a list such as [{ after = "0m"'),
        ('[duty."a"]\nsteps = [{ after = "0m" }]', '[duty."a"] needs a value for steps: a list such as'),
        ('[duty."a"]\nsteps = [{ after = "0", ask = "anna" }]', "steps must be a list such as"),
        ('[duty."a"]\nsteps = [{ after = "0m", ask = "@Leads" }]', "steps must be a list such as"),
        (
            f'[duty."a"]\nsteps = [{{ after = "5m", ask = "@b" }}, {STEP}]',
            '[duty."a"] steps must have the earliest first, and no two at the same time.',
        ),
        (
            f'[duty."a"]\nsteps = [{STEP}, {{ after = "5m", ask = "anna" }}]',
            '[duty."a"] steps ask anna twice; nobody is asked twice, so keep one of them.',
        ),
        (
            f'[duty."leads"]\nsteps = [{STEP}]\n[responder."A_1_0"]\nduty = "lead"',
            '[responder."A_1_0"] duty: there is no [duty."lead"]; did you mean "leads"?',
        ),
        (
            '[responder."A_1_0"]\nduty = "lead"',
            '[responder."A_1_0"] duty: there is no [duty."lead"]; there are none.',
        ),
        (
            f'[duty."leads"]\nsteps = [{STEP}]\n[[channel]]\nid = "C1"\nalerts = {{}}\nunassigned = "lead"',
            '[[channel]] number 1 unassigned: there is no [duty."lead"]; did you mean "leads"?',
        ),
        (
            f'[duty."leads"]\nsteps = [{STEP}]\n[[channel]]\nid = "C1"\nunassigned = "leads"',
            "[[channel]] number 1 unassigned has no effect without alerts; say which are posted there.",
        ),
        (
            '[[channel]]\nid = "C1"\nunassigned_severity_at_least = 5',
            "[[channel]] number 1 unassigned_severity_at_least must be a whole number from 1 to 4.",
        ),
        ('[[channel]]\nid = "C1"\nunassigned = 5', "unassigned must be the name of a duty, such as"),
    ],
)
def test_settings_that_can_not_be(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(ResponderBotError) as error:
        load(file, {})
    assert words in error.value.message
