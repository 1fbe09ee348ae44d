"""Runs, votes, ends, targets, restarts, clocks that jump and two cores together, against a simple model of them."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from core.actions.approvals import Choice
from core.actions.bulks import Bulks
from core.actions.due import Due, Followup, Handler
from core.actions.in_force import End
from core.actions.measures import MeasureFilter, Measures
from core.authorization import COMMAND_LINE, Caller
from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.database import Row, Transaction
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import Action, AlertInput, AlertUpdate, BulkInput, Extension, Measure, Profile
from core.records.alerts import Alerts
from core.settings import ResponderSection
from tests.clock import SetClock
from tests.core.actions.harness import LEAD, ActionParts, another_core, caller, open_harness, run_input
from tests.core.actions.test_undo import BLOCK, DONE, FAILED, RELEASE, RELEASE_HOST
from tests.core.core_process import POLL_TIMEOUT_S
from tests.core.scripted_engine import BLOCK_HOST, Run, ScriptedEngine

PEOPLE: Mapping[str, Profile] = {
    **dict.fromkeys(("anna", "ben", "cy"), "analyst"),
    **dict.fromkeys(("lead", "boss"), "org-admin"),
}
QUICK = "QuickBlock_1_0"
ON = (("h0", "h1"), ("h1", "h2"), ("dc.example.org",))
"""The hosts that each alert names; the last one is protected."""
EXPIRES_MIN, NEEDED, ENDS_MIN = 30, 2, 60
CONTAINS: dict[str, Any] = {"undo": RELEASE, "target": "hostname", "allow_permanent": True}
SECTIONS: Mapping[str, dict[str, Any]] = {
    BLOCK: {**CONTAINS, "approval": NEEDED, "undo_after_minutes": ENDS_MIN, "approval_expires_minutes": EXPIRES_MIN},
    QUICK: CONTAINS,
    RELEASE: {"target": "hostname"},
}
REPORTS = {"done": DONE, "no": FAILED, "lost": Report(False, message="Timed out after 30 minutes")}


@dataclass
class Asked:
    """A run that asks for approval, or (with `extension`) a later end that does."""

    action: str
    alert: int
    by: str
    level: int
    extension: str = ""
    is_override: bool = False
    state: str = "waiting"
    votes: dict[str, int | None] = field(default_factory=dict)
    """The clearance that bound each vote."""

    @property
    def number(self) -> int:
        return int((self.extension or self.action)[1:])


@dataclass
class Held:
    """What a run has left on a host."""

    action: str
    host: str
    since: int
    state: str = "starting"
    is_crossed: bool = False
    end: float = inf
    approved_until: float | None = None
    """None for a run that takes no approvals."""


names, numbers, alerts = st.sampled_from([*PEOPLE]), st.integers(0, 7), st.integers(0, 1)
hosts, minutes = st.sets(alerts, min_size=1), st.sampled_from([5, 60, 600, 0])
choices = st.sampled_from([*["approve"] * 9, "deny"])
ends = st.lists(st.tuples(numbers, st.sampled_from([*["done"] * 4, "no", "lost"])), max_size=3)
jumps = st.sampled_from([*[0] * 12, HOUR_MS, -HOUR_MS, 3 * DAY_MS, -3 * DAY_MS])
votes = st.lists(st.tuples(names, choices, st.booleans()), min_size=1, max_size=3)
Change = tuple[str, int, bool | None]
changes = st.none() | st.tuples(names, st.sampled_from([0, 1, 2, 2, 3]), st.sampled_from([True, True, False, None]))
"""Whose rights, the level, and whether they have access; None: it is the level of an alert."""
Step = Callable[..., Coroutine[Any, Any, None]]


def step(**values: st.SearchStrategy[Any]) -> Callable[[Step], Callable[..., None]]:
    """A rule: something happens, somebody may set the clock, programs end; then core and the model are compared."""

    def as_rule(happens: Step) -> Callable[..., None]:
        @wraps(happens)
        def run(self: "Together", ends: list[tuple[int, str]], jump_ms: int, **chosen: Any) -> None:
            async def all_of_it() -> None:
                await happens(self, **chosen)
                await self.note_due()
                self.clock.now_ms += jump_ms
                await self.look()
                for number, how in ends:
                    if self.running:
                        await self.end_one(sorted(self.running)[number % len(self.running)], how)
                await self.look()
                await self.compare()

            self.runner.run(all_of_it())

        return rule(**{"ends": ends, "jump_ms": jumps, **values})(run)  # type: ignore[call-overload, no-any-return]

    return as_rule


class Together(RuleBasedStateMachine):
    """The model beside the two cores that it follows; the second one is started again now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.stack, self.second = asyncio.Runner(), AsyncExitStack(), AsyncExitStack()
        block = replace(BLOCK_HOST, max_tlp=3)
        self.engine = ScriptedEngine(offered=[block, replace(block, id="r-quick", name=QUICK), RELEASE_HOST])
        self.uptime = SetClock(5_000)
        self.levels = [1, 2, 1]
        self.sees, self.has_access = dict.fromkeys(PEOPLE, 2), dict.fromkeys(PEOPLE, True)
        self.asked: list[Asked] = []
        self.held: list[Held] = []
        self.minutes: dict[str, int] = {}
        """By run that somebody asked for: after how many minutes it is to be undone; 0: never."""
        self.running: dict[str, Run] = {}
        self.dispatched: dict[str, int] = {}
        """When, by the clock."""
        self.bulk: tuple[str, list[Asked]] = ("", [])
        self.due: dict[tuple[str, int], tuple[int, list[float]]] = {}
        """By kind and id: the number in `due`, and when each core's time for it comes by the uptime."""
        self.handled: list[tuple[str, int]] = []

    @initialize()
    def begin(self) -> None:
        self.runner.run(self.open())

    async def open(self) -> None:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        policies = {name: ResponderSection.model_validate(section) for name, section in SECTIONS.items()}
        self.settings: dict[str, Any] = {"policies": policies, "protected": [ON[2][0]], "lease_clock": self.uptime}
        opened = open_harness(folder, engine=self.engine, **self.settings)
        self.harness = await self.stack.enter_async_context(opened)
        self.clock, self.cores = self.harness.clock, [self.noting(self.harness)]
        for name in ("cy", "boss"):
            await self.harness.people.add(name, PEOPLE[name])
        self.alerts, self.ids = Alerts(self.harness.database, self.clock, "soc"), list[str]()
        base = {"type": "siem", "source": "hosts", "title": "t", "description": "d"}
        for n, named in enumerate(ON):
            artifacts = [{"dataType": "hostname", "data": host, "tlp": 0} for host in named]
            fields = {**base, "sourceRef": f"{n}", "tlp": self.levels[n], "artifacts": artifacts}
            self.ids.append((await self.alerts.create(LEAD, AlertInput.model_validate(fields))).id)
        await self.start_second()
        await self.look()

    async def start_second(self) -> None:
        opened = another_core(self.harness, self.engine, **self.settings)
        self.cores[1:] = [self.noting(await self.second.enter_async_context(opened))]

    def noting(self, core: ActionParts) -> ActionParts:
        """The core, once it notes what it has handled."""

        def handle(kind: str, handler: Handler, tx: Transaction, due: Row) -> Followup | None:
            followup = handler(tx, due)
            self.handled.append((kind, due["id"]))
            return followup

        undo = partial(handle, "undo", core.undos.undo_due)
        approval = partial(handle, "approval", core.approvals.expire)
        core.due = Due(core.database, core.clock, {"undo": undo, "approval": approval}, uptime=self.uptime)
        return core

    def caller(self, name: str, *, in_slack: bool = False) -> Caller:
        found = replace(caller(name, PEOPLE[name]), clearance=self.sees[name])
        return replace(found, acted_through="bot@example.org") if in_slack else found

    @property
    def bulks(self) -> Bulks:
        return self.cores[-1].bulks

    @property
    def measures(self) -> Measures:
        return self.cores[-1].measures

    async def listed(self) -> list[tuple[str, Measure]]:
        """What is in force, by its host; what was approved first."""
        listed = await self.measures.listed(LEAD, MeasureFilter())
        return [((one.target or [])[0].data, one) for one in sorted(listed, key=lambda one: not one.approved_by)]

    async def rows(self, sql: str) -> list[Row]:
        return await self.harness.database.read(lambda reads: reads.rows(sql))

    # --- votes --------------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """ANNA asks for a bulk of two, and LEAD for a run on what is protected."""
        if self.has_access["anna"]:
            on = [{"objectType": "alert", "objectId": self.ids[n], "target": [*ON[n]]} for n in (0, 1)]
            request = BulkInput.model_validate({"responderId": BLOCK, "targets": on})
            answer = await self.bulks.start(self.caller("anna"), request)
            docs = [(n, doc) for n, (_, doc) in enumerate(answer.targets) if isinstance(doc, str)]
            runs = [Asked(Action.model_validate_json(d).id, n, "anna", self.levels[n]) for n, d in docs]
            self.asked, self.bulk = self.asked + runs, (answer.id, runs)
        if self.has_access["lead"]:
            request_ = run_input(self.harness, BLOCK, objectId=self.ids[2], override={"reason": "it spreads"})
            with suppress(ResponderBotError):  # too few could approve it
                action = (await self.cores[-1].actions.start(self.caller("lead"), request_)).action
                self.asked.append(Asked(action.id, 2, "lead", self.levels[2], is_override=True))
        self.minutes |= {one.action: ENDS_MIN for one in self.asked}

    def verdict(self, one: Asked, name: str, choice: Choice, bound: int | None) -> tuple[str, str]:
        """The error that core gives, and the state of the model after the vote."""
        level, is_over = self.levels[one.alert], one.state != "waiting"
        if bound is not None and bound < level:
            return "forbidden", one.state
        if not self.has_access[name] or (one.by == name and not (one.extension and is_over)):
            return "forbidden", one.state
        if is_over:
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
        is_last = len(votes) >= NEEDED + one.is_override and has_admin
        if is_last or not votes.keys() == standing.keys() == one.votes.keys():  # else they have approved it before
            one.votes = votes
        return "", "ready" if is_last else one.state

    @step(number=numbers, votes=votes, change=changes)
    async def some_vote(self, number: int, votes: list[tuple[str, Choice, bool]], change: Change | None) -> None:
        """On a run or a later end; after the first vote somebody's rights or an alert's level may change."""
        if not any(one.state == "waiting" and not one.extension for one in self.asked):
            await self.ask()
        asked = [one for one in self.asked if one.state == "waiting"] or self.asked
        one = asked[number % len(asked)] if asked else None
        for n, (name, choice, in_slack) in enumerate(votes):
            if one is not None:
                await self.vote(one, name, choice, core=self.cores[number % 2], in_slack=in_slack)
            if change is not None and n == 0:
                await self.change(one, *change)

    async def vote(self, one: Asked, name: str, choice: Choice, *, core: ActionParts, in_slack: bool) -> None:
        code, after = self.verdict(one, name, choice, self.sees[name] if in_slack else None)
        by, found = self.caller(name, in_slack=in_slack), ""
        try:
            await core.actions.decide(by, one.action, choice, extension_id=one.extension)
        except ResponderBotError as error:
            found = error.code
        assert found == code, (one, name, choice)
        await self.voted(one, after)
        await self.look()

    @step(name=names, choice=choices, shown=st.sets(alerts))
    async def somebody_decides_on_the_bulk(self, name: str, choice: Choice, shown: set[int]) -> None:
        """On those of its runs that the form showed."""
        bulk_id, runs = self.bulk
        if not runs or self.sees[name] < min(self.levels[:2]):
            return
        named = [one.action for n, one in enumerate(runs) if n in shown]
        waiting = [one for one in runs if one.state == "waiting"]
        verdicts = {
            one.action: self.verdict(one, name, choice, self.sees[name])
            if one.action in named
            else ("conflict", "waiting")
            for one in waiting
        }
        try:
            answer = await self.bulks.decide(self.caller(name, in_slack=True), bulk_id, choice, shown=named)
        except ResponderBotError:
            # A vote that ends its run is an answer here, and an error alone.
            assert all(code and after == "waiting" for code, after in verdicts.values())
            return
        assert [object_id for object_id, _ in answer.targets] == [self.ids[one.alert] for one in waiting]
        for one, (_, outcome) in zip(waiting, answer.targets, strict=True):
            code, after = verdicts[one.action]
            assert isinstance(outcome, str) == (not code or after == "failed"), (one, outcome)
            await self.voted(one, after)

    async def voted(self, one: Asked, after: str) -> None:
        one.state = after
        if after == "ready" and one.extension:
            one.state, action = "approved", await self.harness.action(one.action)
            extension = _extension_of(action)
            assert extension is not None
            for held in self.held_of(action, extension):
                held.end = held.approved_until = extension.at or inf

    def held_of(self, action: Action, extension: Extension) -> list[Held]:
        """What is to last longer."""
        data = {one.id: one.data for one in action.target or ()}
        shown = action.measure.targets if action.measure is not None else ()
        named = {data[one.target or ""] for one in shown or () if one.id in extension.targets}
        return [held for held in self.held if held.action == action.id and held.host in named]

    # --- what is in force ---------------------------------------------------------------------------------------------

    @step(name=names, alert=alerts, on=hosts, minutes=minutes)
    async def somebody_blocks(self, name: str, alert: int, on: set[int], minutes: int) -> None:
        """Without approval."""
        await self.start(name, QUICK, alert, on, undoAfterMinutes=minutes)

    @step(name=names, alert=alerts, on=hosts)
    async def somebody_releases(self, name: str, alert: int, on: set[int]) -> None:
        """Whatever core knows of these hosts."""
        await self.start(name, RELEASE, alert, on)

    async def start(self, name: str, responder: str, alert: int, on: set[int], **more: Any) -> None:
        target = [ON[alert][n] for n in sorted(on)]
        request = run_input(self.harness, responder, objectId=self.ids[alert], target=target, **more)
        try:
            action = (await self.cores[alert].actions.start(self.caller(name), request)).action
        except ResponderBotError as error:
            assert (error.code, self.has_access[name]) == ("forbidden", False), error
        else:
            self.minutes[action.id] = more.get("undoAfterMinutes", 0)

    async def end_one(self, action_id: str, how: str) -> None:
        run = self.running.pop(action_id)
        run.finish(REPORTS[how])
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while (action := await self.harness.action(action_id)).end_date is None:  # noqa: ASYNC110 - another core ends it
                await asyncio.sleep(0)
        if run.job.responder_name != RELEASE:
            self.leave(action, _hosts_of(run), how)
        elif how == "done":
            self.free(action, _hosts_of(run))
        for one in self.asked:
            if one.action == action_id and not one.extension:
                one.state = how

    def leave(self, action: Action, on: list[str], how: str) -> None:
        """What a run leaves that has ended."""
        own = [held for held in self.held if held.action == action.id]
        assert [held.host for held in own] == on
        asked = self.clock() + self.minutes[action.id] * MINUTE_MS if self.minutes[action.id] else inf
        ends = [asked if action.approval else min(asked, self.approved_for(held.host)) for held in own]
        for held, end in zip(own, ends, strict=True):
            held.state = "in_force" if how == "done" and not held.is_crossed else "unknown"
            held.end, held.approved_until = end, end if action.approval else None
        if how == "no":
            self.held = [held for held in self.held if held not in own]

    def approved_for(self, host: str) -> float:
        """The latest end that was approved for a host; `inf` if no run on it took approvals."""
        ends = [one.approved_until for one in self.held if one.host == host and one.state != "ended"]
        return max((end for end in ends if end is not None), default=inf)

    def free(self, action: Action, on: list[str]) -> None:
        """What a run ends that releases hosts."""
        for held in self.held:
            if held.host not in on or held.state == "ended":
                continue
            if held.state == "starting":
                held.is_crossed = True
            elif held.action == action.undoes or held.since <= self.dispatched[action.id]:
                held.state = "ended"
            else:
                held.state = "unknown"

    @step(name=names, number=numbers)
    async def somebody_undoes(self, name: str, number: int) -> None:
        listed = await self.listed()
        for _, measure in listed[number % (len(listed) or 1) :][:1]:
            with suppress(ResponderBotError):  # it is starting, or being undone
                for action in await self.measures.undo(self.caller(name), measure.id):
                    self.minutes[action.id] = 0

    @step(number=numbers)
    async def somebody_says_that_it_has_ended(self, number: int) -> None:
        listed = await self.listed()
        for host, measure in listed[number % (len(listed) or 1) :][:1]:
            with suppress(ResponderBotError):
                await self.measures.mark_as_ended(LEAD, measure.id, "looked")
                for held in self.held:
                    held.state = "ended" if held.host == host else held.state

    @step(name=names, number=numbers, minutes=minutes)
    async def somebody_wants_it_to_last_longer(self, name: str, number: int, minutes: int) -> None:
        listed = await self.listed()
        until = self.clock() + minutes * MINUTE_MS if minutes else None
        for host, measure in listed[number % (len(listed) or 1) :][:1]:
            sql = "SELECT id, action_id, target, ends_at FROM in_force"
            before = {row["id"]: row["ends_at"] for row in await self.rows(sql)}
            with suppress(ResponderBotError):  # it is no later, or it is being undone
                await self.measures.extend(self.caller(name), measure.id, End(until))
                moved = {
                    (f"~{row['action_id']}", row["target"])
                    for row in await self.rows(sql)
                    if row["ends_at"] != before[row["id"]]
                }
                assert len(moved) == ((until or inf) <= self.approved_for(host)), measure
                for held in self.held:
                    held.end = until or inf if (held.action, held.host) in moved else held.end

    @step(number=numbers, minutes=minutes)
    async def one_target_lasts_longer_by_vote(self, number: int, minutes: int) -> None:
        """A later end for one host of a run than was approved, and the votes for it: its others end as before."""
        approved = [held for held in self.held if held.approved_until is not None and held.state == "in_force"]
        on = {held.host for held in approved}
        listed = [(host, one) for host, one in await self.listed() if host in on]
        for _, measure in listed[number % (len(listed) or 1) :][:1]:
            until = self.clock() + 2 * DAY_MS + minutes * MINUTE_MS
            with suppress(ResponderBotError):  # it is no later, or it is being undone
                await self.measures.extend(self.caller("anna"), measure.id, End(until))
            rows = await self.rows("SELECT id, doc FROM action")
            self.find_extensions({f"~{row['id']}": Action.model_validate_json(row["doc"]) for row in rows})
        for one in [one for one in self.asked if one.extension and one.state == "waiting"]:
            for name in PEOPLE:
                if one.state == "waiting":
                    await self.vote(one, name, "approve", core=self.cores[number % 2], in_slack=False)

    # --- time, cores and people ---------------------------------------------------------------------------------------

    @step(minutes=st.sampled_from([1, 1, 5, 5, 20, 40, 70]))
    async def time_passes(self, minutes: int) -> None:
        self.clock.now_ms += minutes * MINUTE_MS
        self.uptime.now_ms += minutes * MINUTE_MS

    @step()
    async def a_core_starts_again(self) -> None:
        await self.second.aclose()
        self.running = {number: run for number, run in self.running.items() if not run.outcome.cancelled()}
        await self.start_second()
        for row in await self.rows("SELECT kind, id, at FROM due"):
            self.due[row["kind"], row["id"]][1][1] = self.uptime() + row["at"] - self.clock()
        await self.look()

    async def change(self, one: Asked | None, name: str, level: int, has_access: bool | None) -> None:
        """Of an alert, or the rights of somebody, who has voted if anybody has."""
        if has_access is None:
            alert = one.alert if one is not None else 0
            await self.alerts.update(LEAD, self.ids[alert], AlertUpdate.model_validate({"tlp": max(1, level)}))
            self.levels[alert] = max(1, level)
            return
        name = next(iter(one.votes), name) if one is not None else name
        people = self.harness.people
        if self.sees[name] != level:
            await people.set_clearance(name, level)
        if self.has_access[name] != has_access:
            await (people.enable if has_access else people.disable)(COMMAND_LINE, name)
        self.sees[name], self.has_access[name] = level, has_access

    # --- after each step ----------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Let both cores handle what is due, once each and never early, and wait for what starts then."""
        await self.note_due()
        await asyncio.gather(*(core.due.look() for core in self.cores))
        for key in self.handled:
            _, times = self.due.pop(key)  # a KeyError: it was handled twice
            assert min(times) <= self.uptime(), f"{key} was handled early"
            for one in self.asked:
                if key == ("approval", one.number):
                    one.state = "expired"
        self.handled.clear()
        await self.note_due()
        assert not [key for key, (_, times) in self.due.items() if min(times) <= self.uptime()], "not handled"
        open_ = "SELECT id FROM action WHERE status IN ('Waiting', 'InProgress') AND awaits_approval = 0"
        async with asyncio.timeout(POLL_TIMEOUT_S):
            while not {f"~{row['id']}" for row in await self.rows(open_)} <= self.running.keys():
                await asyncio.sleep(0)
                while not self.engine.taken.empty():
                    await self.take(self.engine.taken.get_nowait())

    async def note_due(self) -> None:
        """Note what was put, moved and dropped."""
        rows = {(row["kind"], row["id"]): row for row in await self.rows("SELECT number, kind, id, at FROM due")}
        self.due = {key: known for key, known in self.due.items() if key in rows and rows[key]["number"] == known[0]}
        for key, row in rows.items():
            time = float(self.uptime() + row["at"] - self.clock())
            self.due.setdefault(key, (row["number"], [time, time]))

    async def take(self, run: Run) -> None:
        """Note that a program runs, which may."""
        action_id, name = run.job.action_id, run.job.responder_name
        self.running[action_id] = run
        assert run.job.resumed == (action_id in self.dispatched), f"{action_id} was dispatched twice"
        if run.job.resumed:
            return
        await run.begin()  # else the next core would stop what may no longer start
        self.dispatched[action_id] = self.clock()
        states = [one.state for one in self.asked if one.action == action_id and not one.extension]
        assert states == (["ready"] if name == BLOCK else []), f"{action_id} has not the votes that it needs"
        if name != RELEASE:
            self.held += [Held(action_id, host, self.clock()) for host in _hosts_of(run)]
        elif action_id not in self.minutes:  # by core
            undoes = (await self.harness.action(action_id)).undoes
            for host in _hosts_of(run):
                on_host = [held for held in self.held if held.host == host and held.state != "ended"]
                last = max(on_host, key=lambda held: (held.state == "starting", held.end))
                assert [held.end for held in on_host if held.action == undoes] == [last.end], f"{host} ends early"
                assert last.state != "starting", f"{host} ends while it begins"

    async def compare(self) -> None:
        rows = await self.rows("SELECT id, doc FROM action")
        actions = {f"~{row['id']}": Action.model_validate_json(row["doc"]) for row in rows}
        self.find_extensions(actions)
        for one in self.asked:
            self.compare_votes(one, actions[one.action])
        in_force = await self.rows("SELECT action_id, target, state, ends_at FROM in_force")
        found = [(f"~{row['action_id']}", row["target"], row["state"]) for row in in_force]
        assert sorted(found) == sorted((held.action, held.host, held.state) for held in self.held)
        ends = {(f"~{row['action_id']}", row["target"]): row["ends_at"] or inf for row in in_force}
        for held in self.held:
            assert held.state in ("starting", "ended") or ends[held.action, held.host] == held.end, held
        ranked = sorted(self.held, key=lambda held: ("ended", "starting", "unknown", "in_force").index(held.state))
        expected = {held.host: held.state for held in ranked if held.state != "ended"}
        assert sorted((host, one.state) for host, one in await self.listed()) == sorted(expected.items())
        due = {(row["kind"], row["id"]): row["at"] for row in await self.rows("SELECT kind, id, at FROM due")}
        expires = await self.rows("SELECT id, expires_at FROM approval WHERE is_waiting = 1")
        assert all(due["approval", row["id"]] == row["expires_at"] for row in expires)
        states = {row["id"]: row for row in await self.rows("SELECT id, undo_status, ends_at FROM in_force")}
        timed = {n for n, row in states.items() if row["undo_status"] == "available" and row["ends_at"] is not None}
        undos = {number for kind, number in due if kind == "undo"}
        assert timed <= undos
        assert all(states[number]["undo_status"] not in (None, "undone", "replaced") for number in undos)
        waiting = {one.number for one in self.asked if one.state == "waiting"}
        assert {number for kind, number in due if kind == "approval"} == waiting

    def find_extensions(self, actions: Mapping[str, Action]) -> None:
        """Note what later ends wait by now, and which don't any more."""
        for one in self.asked:
            if one.extension and one.state == "waiting":
                extension = _extension_of(actions[one.action])
                is_replaced = extension is None or extension.id != one.extension
                has_lapsed = extension is not None and extension.outcome == "lapsed"
                one.state = "replaced" if is_replaced else "lapsed" if has_lapsed else one.state
        for run in [one for one in self.asked if not one.extension]:
            extension = _extension_of(actions[run.action])
            if extension is None or extension.id in [one.extension for one in self.asked]:
                continue
            for held in self.held_of(actions[run.action], extension):
                assert held.approved_until is not None
                assert (extension.at or inf) > held.approved_until
            one = replace(run, extension=extension.id, state=extension.outcome or "waiting", votes={})
            one.by = extension.asked_by.partition("@")[0]
            self.asked.append(one)

    def compare_votes(self, one: Asked, action: Action) -> None:
        shown, voters = action.approval, [f"{name}@example.org" for name in one.votes]
        if one.extension:
            extension = _extension_of(action)
            if extension is None or extension.id != one.extension:
                assert one.state != "waiting"
                return
            assert (extension.outcome or "waiting") == one.state, one
            shown = extension.approval
        else:
            statuses = {"waiting": "Waiting", "ready": "InProgress", "done": "Success"}
            assert action.status == statuses.get(one.state, "Failure"), one
            assert one.state not in ("denied", "expired", "failed") or action.outcome == one.state
        assert one.state != "waiting" or (shown is not None and shown.approved_by == voters), one

    def teardown(self) -> None:
        if hasattr(self, "cores"):
            self.runner.run(self.close())
        self.runner.close()

    async def close(self) -> None:
        """All that was recorded ends, each once."""
        async with self.stack, self.second:
            for name in PEOPLE:
                await self.change(None, name, 3, True)
            for _ in range(8):
                self.clock.now_ms += (EXPIRES_MIN + 1) * MINUTE_MS
                self.uptime.now_ms += (EXPIRES_MIN + 1) * MINUTE_MS
                await self.look()
                while self.running:
                    await self.end_one(min(self.running), "done")
                    await self.look()
                await self.compare()
            assert not await self.rows("SELECT id FROM action WHERE status IN ('Waiting', 'InProgress')")
            ends = "SELECT object_id, count(*) AS n FROM event WHERE type = 'action.ended' GROUP BY object_id"
            assert {row["n"] for row in await self.rows(ends)} <= {1}
            for core in self.cores:
                assert await core.due.problem() == ""


def _hosts_of(run: Run) -> list[str]:
    return sorted(str(artifact["data"]) for artifact in run.job.data["artifacts"])


def _extension_of(action: Action) -> Extension | None:
    return action.undo.extension if action.undo is not None else None


@pytest.mark.hypothesis
def test_two_cores_and_a_simple_model_agree() -> None:
    run_state_machine_as_test(Together, settings=settings(max_examples=6, stateful_step_count=50))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_cores_and_a_simple_model_agree_over_ten_thousand_steps() -> None:
    run_state_machine_as_test(Together, settings=settings(max_examples=100, stateful_step_count=100))
