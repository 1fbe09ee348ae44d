"""A year of approvals on two hosts, with restarts and clocks that jump: each step comes in time, and once."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from core.actions.duty import Duties
from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.models import Duty
from tests.clock import SetClock
from tests.core.actions.harness import ANNA, LEAD, ActionParts, another_core, caller, run_input
from tests.core.actions.test_duty import duty_of, night, night_of
from tests.core.scripted_engine import ScriptedEngine

APPROVALS = 122  # one in three days
LOOK_MS = 9_000  # at most; in production every second
LATE_MS = 10_000
STEPS = [
    {"after": "0m", "ask": "@oncall"},
    {"after": "10m", "ask": "@leads"},
    {"after": "25m", "ask": "cleo"},
    {"after": "40m", "ask": "channel"},
]
AFTER_MS = [0, 10 * MINUTE_MS, 25 * MINUTE_MS, 40 * MINUTE_MS]
JUMPS_MS = (HOUR_MS, -HOUR_MS, 3 * MINUTE_MS, -40 * MINUTE_MS, 30 * DAY_MS)  # an hour: of summer time, set by hand


@dataclass
class Host:
    """A core on a machine whose wall clock may be wrong for a while."""

    core: ActionParts
    wall: SetClock
    steady: SetClock
    duties: Duties = field(init=False)
    wrong_ms: int = 0
    down_until: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what a process knows."""
        parts = self.core
        self.duties = Duties(parts.database, parts.guards, self.wall, "example.org", steady_clock=self.steady)

    def set_wrong(self, ms: int) -> None:
        """Have the wall clock be ahead by this."""
        self.wall.now_ms += ms - self.wrong_ms
        self.wrong_ms = ms


@dataclass
class Model:
    """Which steps of an approval should have come, by a clock that is right."""

    due_at: int
    asked: list[str] = field(default_factory=list)
    following: int = 0

    def take(self, now: int) -> None:
        """The newest step that is due comes."""
        while self.following + 1 < len(STEPS) and now >= self.due_at + self._gap():
            self.due_at += self._gap()
            self.following += 1
        self.asked.append(STEPS[self.following]["ask"])
        if not self.is_over:
            self.due_at += self._gap()
        self.following += 1

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self.following + 1 >= len(STEPS)

    def _gap(self) -> int:
        return AFTER_MS[self.following + 1] - AFTER_MS[self.following]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_year(tmp_path: Path) -> None:
    random, truth = Random(29), SetClock()  # noqa: S311 - the same each time
    steady = (SetClock(1_000), SetClock(90_000_000))
    asked: dict[tuple[str, str], int] = {}
    late_ms: list[int] = []
    section = {"approval_expires_minutes": 1_000_000}
    async with night(tmp_path, STEPS, section=section, lease_clock=steady[0]) as harness:
        await harness.people.link("dora", "T0:U0DORA")
        await harness.people.remove_member("leads", "dora")
        options = {**night_of(harness, STEPS), "clock": SetClock(), "lease_clock": steady[1]}
        async with another_core(harness, ScriptedEngine(), **options) as core:
            hosts = [Host(harness, harness.clock, steady[0]), Host(core, core.clock, steady[1])]

            async def go_on(ms: int) -> None:
                truth.now_ms += ms
                for host in hosts:
                    host.wall.now_ms += ms
                    host.steady.now_ms += ms
                up = [host for host in hosts if host.down_until <= truth()]
                await asyncio.gather(*(host.duties.run_due() for host in random.sample(up, len(up))))

            async def one_approval() -> None:
                start = truth()
                action = (await random.choice(hosts).core.actions.start(ANNA, run_input(harness))).action
                model, came = Model(start), 0
                ends_at = start + (random.randrange(45) if random.random() < 0.4 else 45) * MINUTE_MS
                passes_at = start + random.randrange(60) * MINUTE_MS
                troubles = {start + random.randrange(40 * MINUTE_MS): kind for kind in random.sample("jrdjr-", 3)}
                up_at, was_wrong = start, False
                while truth() < ends_at:
                    await go_on(random.randrange(LOOK_MS // 2, LOOK_MS + 1))
                    is_up = any(host.down_until <= truth() for host in hosts)
                    duty = await duty_of(harness, action.id) or Duty()
                    for step in duty.asked[came:]:
                        before = max(model.due_at, up_at)
                        model.take(max(truth(), model.due_at))
                        late_ms.append(truth() - before)
                        assert step.ask == model.asked[-1]
                        for login in step.logins:
                            asked[action.id, login] = asked.get((action.id, login), 0) + 1
                    came = len(duty.asked)
                    if not is_up:
                        up_at = truth()
                    if is_up and model.following < len(STEPS):
                        assert truth() - max(model.due_at, up_at) <= LATE_MS, f"{STEPS[model.following]} is missing"
                    if truth() >= passes_at and duty.asked and is_up:
                        passes_at = ends_at
                        was_over = model.following >= len(STEPS)
                        passed = await harness.duties.not_me(
                            caller(duty.asked[-1].logins[0].partition("@")[0]), action.id
                        )
                        if not was_over:
                            model.due_at = truth()
                        assert len(passed.asked) == came + (not was_over)
                    for at in [at for at in troubles if at <= truth()]:
                        kind, host = troubles.pop(at), random.choice(hosts)
                        if kind == "j" and all(one.down_until <= truth() for one in hosts):
                            host.set_wrong(random.choice(JUMPS_MS))
                            was_wrong = True
                        elif kind == "j" or was_wrong:
                            continue  # a core that starts knows the time only by these clocks
                        elif kind == "r" and host.down_until <= truth():
                            host.restart()
                            host.down_until = truth() + random.randrange(3 * MINUTE_MS)
                        elif kind == "d":
                            for one in hosts:
                                one.restart()
                                one.down_until = truth() + random.randrange(30 * MINUTE_MS)
                for host in hosts:
                    host.set_wrong(0)
                    host.down_until = 0
                await harness.actions.deny(LEAD, action.id)

            for _ in range(APPROVALS):
                await go_on(random.randrange(6 * DAY_MS - HOUR_MS))
                await go_on(1_000)
                await one_approval()
    assert set(asked.values()) == {1}
    assert len(asked) > APPROVALS
    assert min(late_ms) >= -LOOK_MS
    assert max(late_ms) <= LATE_MS
