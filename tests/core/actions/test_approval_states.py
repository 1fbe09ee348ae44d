"""Approvals of runs, later ends and overrides against a simple model: what is asked, voted, edited, and when."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.actions.approvals import Choice
from core.actions.bulks import Bulks
from core.authorization import COMMAND_LINE, Caller
from core.common.clock import MINUTE_MS
from core.common.errors import ResponderBotError
from core.models import Action, AlertInput, AlertUpdate, BulkInput, Profile
from core.records.alerts import Alerts
from core.settings import ResponderSection
from core.store import approvals as stored
from tests.core.actions.harness import Harness, caller, next_run, open_harness, run_input
from tests.core.actions.test_undo import DONE

BLOCK, RELEASE = "BlockHost_1_0", "ReleaseHost_1_0"
PEOPLE: dict[str, Profile] = {
    "anna": "analyst",
    "ben": "analyst",
    "cy": "analyst",
    "lead": "org-admin",
    "boss": "org-admin",
}
EXPIRES_MIN = 30
SECTION = ResponderSection(
    approval=2, undo=RELEASE, undo_after_minutes=60, allow_permanent=True, approval_expires_minutes=EXPIRES_MIN
)


@dataclass
class Asked:
    """What the model knows of a run, or of a later end."""

    action: str
    alert: int
    by: str
    level: int
    expires_at: int
    extension: str = ""
    is_override: bool = False
    state: str = "waiting"
    votes: dict[str, int | None] = field(default_factory=dict)
    """The clearance that bound each vote."""


class World:
    """The model beside the core that it follows."""

    def __init__(self, harness: Harness, alerts: list[str]) -> None:
        self.harness = harness
        self.alerts = alerts
        self.levels = [1, 2, 1]
        self.sees = dict.fromkeys(PEOPLE, 2)
        self.has_access = dict.fromkeys(PEOPLE, True)
        self.asked: list[Asked] = []
        self.bulks = Bulks(
            harness.actions.runs,
            harness.approvals,
            harness.lifecycle,
            harness.registry,
            harness.database,
            harness.clock,
        )
        self.bulk: tuple[str, list[Asked]] = ("", [])

    def caller(self, name: str, *, in_slack: bool = True) -> Caller:
        found = replace(caller(name, PEOPLE[name]), clearance=self.sees[name])
        return replace(found, acted_through="bot@example.org") if in_slack else found

    # --- steps ------------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """ANNA asks for a bulk of two, and LEAD for a run on what is protected."""
        if any(one.state == "waiting" and not one.extension for one in self.asked):
            return
        now, expires = self.harness.clock.now_ms, self.harness.clock.now_ms + EXPIRES_MIN * MINUTE_MS
        if self.has_access["anna"]:
            targets = [{"objectType": "alert", "objectId": alert} for alert in self.alerts[:2]]
            request = BulkInput.model_validate({"responderId": BLOCK, "targets": targets})
            answer = await self.bulks.start(self.caller("anna", in_slack=False), request)
            docs = [doc for _, doc in answer.targets if isinstance(doc, str)]
            runs = [
                Asked(Action.model_validate_json(doc).id, n, "anna", self.levels[n], expires)
                for n, doc in enumerate(docs)
                if len(docs) == 2
            ]
            self.asked += runs
            self.bulk = answer.id, runs
        if self.has_access["lead"] and self.has_access["boss"]:
            request_ = run_input(self.harness, objectId=self.alerts[2], override={"reason": "it spreads"})
            try:
                action = (await self.harness.actions.start(self.caller("lead", in_slack=False), request_)).action
            except ResponderBotError as error:
                assert error.details.get("rule") == "approval"
                return
            self.asked.append(Asked(action.id, 2, "lead", self.levels[2], expires, is_override=True))
        assert self.harness.clock.now_ms == now

    async def later(self, name: str, which: int) -> None:
        """Somebody asks that what a run left lasts with no end."""
        done = [one for one in self.asked if one.state == "done"]
        if not done or not self.has_access[name]:
            return
        one = done[which % len(done)]
        action = await self.harness.undos.set_time(self.caller(name, in_slack=False), one.action, 0)
        assert action.undo is not None
        extension = action.undo.extension
        for earlier in self.asked:
            if earlier.action == one.action and earlier.extension and earlier.state == "waiting":
                earlier.state = "replaced"
        assert extension is not None
        ends = Asked(one.action, one.alert, name, one.level, extension.approval.expires_at, extension.id)
        self.asked.append(replace(ends, is_override=one.is_override))

    def _verdict(self, one: Asked, name: str, choice: Choice, bound: int | None) -> tuple[str, str]:
        """The error that core gives, and the state of the model after the vote."""
        level = self.levels[one.alert]
        if bound is not None and bound < level:
            return "forbidden", one.state
        if not self.has_access[name] or one.by == name:
            return "forbidden", one.state
        if one.state != "waiting" or one.expires_at <= self.harness.clock.now_ms:
            return "conflict", one.state
        if choice == "deny":
            return "", "denied"
        if one.extension:
            if not self.has_access[one.by]:
                return "conflict", one.state
        elif not self.has_access[one.by] or level > one.level:
            return "conflict", "failed"
        standing = {
            login: given
            for login, given in one.votes.items()
            if self.has_access[login] and (given is None or min(given, self.sees[login]) >= level)
        }
        votes = {login: given for login, given in standing.items() if login != name} | {name: bound}
        has_admin = not one.is_override or any(PEOPLE[login] == "org-admin" for login in votes)
        is_last = len(votes) >= 2 + one.is_override and has_admin
        if is_last or not votes.keys() == standing.keys() == one.votes.keys():  # else they have approved it before
            one.votes = votes
        return "", "ready" if is_last else one.state

    async def vote(self, which: int, name: str, choice: Choice, *, in_slack: bool) -> None:
        if not self.asked:
            return
        one = self.asked[which % len(self.asked)]
        bound = self.sees[name] if in_slack else None
        code, after = self._verdict(one, name, choice, bound)
        try:
            by = self.caller(name, in_slack=in_slack)
            await self.harness.actions.decide(by, one.action, choice, extension_id=one.extension)
            found = ""
        except ResponderBotError as error:
            found = error.code
        assert found == code, (one, name, choice, bound)
        await self._settle(one, after)

    async def press(self, name: str, choice: Choice, shown: set[int]) -> None:
        """Decide on those of the bulk's runs that the form showed."""
        bulk_id, runs = self.bulk
        if not runs or self.sees[name] < min(self.levels[:2]):
            return
        named = [one.action for n, one in enumerate(runs) if n in shown]
        waiting = [one for one in runs if one.state == "waiting"]
        verdicts = {
            one.action: self._verdict(one, name, choice, self.sees[name])
            if one.action in named
            else ("conflict", "waiting")
            for one in waiting
        }
        try:
            answer = await self.bulks.decide(self.caller(name), bulk_id, choice, shown=named)
        except ResponderBotError:
            # A vote that ends its run is an answer here, and an error alone.
            assert all(code and after == "waiting" for code, after in verdicts.values())
            return
        assert [object_id for object_id, _ in answer.targets] == [self.alerts[one.alert] for one in waiting]
        for one, (_, outcome) in zip(waiting, answer.targets, strict=True):
            code, after = verdicts[one.action]
            assert isinstance(outcome, str) == (not code or after == "failed"), (one, outcome)
            await self._settle(one, after)

    async def _settle(self, one: Asked, after: str) -> None:
        one.state = after
        if after != "ready":
            return
        if one.extension:
            one.state = "approved"
            next(run for run in self.asked if run.action == one.action and not run.extension).state = "for ever"
            return
        (await next_run(self.harness.engine)).finish(DONE)
        assert (await self.harness.ended(one.action)).status == "Success"
        one.state = "done"

    async def wait(self, minutes: int) -> None:
        self.harness.clock.now_ms += minutes * MINUTE_MS
        await self.harness.due.look()
        for one in self.asked:
            if one.state == "waiting" and one.expires_at <= self.harness.clock.now_ms:
                one.state = "expired"

    async def change(self, name: str, level: int, *, has_access: bool) -> None:
        people = self.harness.people
        if self.sees[name] != level:
            await people.set_clearance(name, level)
        if self.has_access[name] != has_access:
            await (people.enable if has_access else people.disable)(COMMAND_LINE, name)
        self.sees[name], self.has_access[name] = level, has_access

    async def edit(self, alert: int, tlp: int) -> None:
        alerts = Alerts(self.harness.database, self.harness.clock, "soc")
        await alerts.update(
            self.caller("lead", in_slack=False), self.alerts[alert], AlertUpdate.model_validate({"tlp": tlp})
        )
        self.levels[alert] = tlp

    # --- what both must agree on --------------------------------------------------------------------------------------

    async def check(self) -> None:
        for one in self.asked:
            action = await self.harness.action(one.action)
            number = int((one.extension or one.action).removeprefix("~"))
            row = await self.harness.database.read(lambda reads, n=number: stored.find(reads, n))  # type: ignore[misc]
            assert (row is not None and row.is_waiting) == (one.state == "waiting"), one
            if one.extension:
                extension = action.undo.extension if action.undo is not None else None
                if extension is None or extension.id != one.extension:
                    assert one.state == "replaced" or one.state != "waiting"
                    continue
                assert (extension.outcome or "waiting") == one.state, one
                shown = extension.approval
            else:
                shown = action.approval if action.approval is not None else pytest.fail("no approval")
                status = {"waiting": "Waiting", "done": "Success", "for ever": "Success"}.get(one.state, "Failure")
                assert action.status == status, one
                outcomes = {"denied": "denied", "expired": "expired", "failed": "failed"}
                if one.state in outcomes:
                    assert action.outcome == outcomes[one.state]
            if one.state == "waiting":
                assert shown.approved_by == [f"{name}@example.org" for name in one.votes], one
                assert row is not None
                assert row.shown() == shown


names, which = st.sampled_from([*PEOPLE]), st.integers(0, 5)
choices = st.sampled_from([*["approve"] * 9, "deny"])
STEPS = {
    "vote": (8, st.tuples(which, names, choices, st.booleans())),
    "press": (1, st.tuples(names, choices, st.sets(st.integers(0, 1)))),
    "later": (2, st.tuples(names, which)),
    "wait": (1, st.tuples(st.sampled_from([1, 20, 40]))),
    "change": (3, st.tuples(names, st.integers(0, 3), st.booleans())),
    "edit": (1, st.tuples(st.integers(0, 1), st.integers(1, 3))),
    "ask": (1, st.tuples()),
}
"""How often each comes, and with what."""
kinds = st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)])
steps = kinds.flatmap(lambda name: STEPS[name][1].map(lambda values: (name, *values)))


async def walk(folder: Path, chosen: list[tuple[object, ...]]) -> None:
    protected = {"dataType": "ip", "data": "10.1.2.3", "tlp": 1}
    policies = {BLOCK: SECTION}
    async with open_harness(folder, policies=policies, protected=["10.0.0.0/8"], tlp=1) as harness:
        for name in ("cy", "boss"):
            await harness.people.add(name, PEOPLE[name])
        alerts, ids = Alerts(harness.database, harness.clock, "soc"), [harness.alert_id]
        base = {"type": "siem", "source": "s", "title": "t", "description": "d"}
        for ref, more in (("2", {"tlp": 2}), ("3", {"tlp": 1, "artifacts": [protected]})):
            made = AlertInput.model_validate({**base, "sourceRef": ref, **more})
            ids.append((await alerts.create(caller("lead", "org-admin"), made)).id)
        world = World(harness, ids)
        await world.ask()
        for step, *values in chosen:
            if step == "vote":
                await world.vote(*values[:3], in_slack=bool(values[3]))  # type: ignore[arg-type]
            elif step == "change":
                await world.change(*values[:2], has_access=bool(values[2]))  # type: ignore[arg-type]
            elif step == "edit":
                await world.edit(*values)  # type: ignore[arg-type]
            else:
                await getattr(world, str(step))(*values)
            await world.check()


@pytest.mark.hypothesis
@settings(deadline=None, max_examples=10)
@given(chosen=st.lists(steps, min_size=20, max_size=40))
def test_core_and_a_simple_model_agree_on_each_vote(chosen: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(walk(Path(folder), chosen))
