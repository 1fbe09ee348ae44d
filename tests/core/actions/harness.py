"""The parts of core that run actions, on a real database and a scripted engine, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from core.actions.approvals import Approvals
from core.actions.bulks import Bulks
from core.actions.due import Due
from core.actions.lifecycle import Lifecycle
from core.actions.measures import Measures, Undos
from core.actions.parts import Parts
from core.actions.runner import TICK_S, Runner
from core.actions.service import Actions
from core.authorization import Caller
from core.common.database import Database
from core.common.database.location import Location
from core.engines.base import Engine, Report
from core.hosts import LEASE_MS, Host, Hosts
from core.models import PROFILES, Action, AlertInput, Permission, Profile, RunInput
from core.people import People
from core.protection import ProtectedTargets
from core.records.alerts import Alerts
from core.records.events import Feed
from core.reports import operations
from core.reports.report import ReportLimits
from core.responders.guards import Guards
from core.responders.registry import Registry
from core.settings import ResponderSection
from tests import stores, templates
from tests.audited import require_rows
from tests.clock import SetClock
from tests.core.core_process import POLL_TIMEOUT_S
from tests.core.scripted_engine import Run, ScriptedEngine
from tests.stores import opened

PROFILE_OF: Mapping[str, Profile] = {"anna": "analyst", "ben": "analyst", "lead": "org-admin"}


def caller(name: str, profile: Profile = "analyst") -> Caller:
    permissions: frozenset[Permission] = frozenset(PROFILES[profile])
    return Caller(f"{name}@example.org", permissions, f"{name}@example.org", profile, 2)


ANNA, BEN, LEAD = (caller(name, profile) for name, profile in PROFILE_OF.items())


HERE = Host("here", "here")


class HasRunner(Protocol):
    runner: Runner


async def silence(clock: SetClock, ms: int, *cores: HasRunner) -> None:
    """Let these cores look on for so long, while no other core does anything."""
    every_ms = LEASE_MS // 3
    for passed_ms in (0, *[every_ms] * (ms // every_ms), ms % every_ms):
        clock.now_ms += passed_ms
        for core in cores:
            await core.runner.tick()


@dataclass
class ActionParts:
    """One core's parts for actions."""

    database: Database
    clock: SetClock
    lifecycle: Lifecycle
    runner: Runner
    feed: Feed
    actions: Actions
    registry: Registry
    guards: Guards
    undos: Undos
    hosts: Hosts
    approvals: Approvals
    due: Due

    @property
    def bulks(self) -> Bulks:
        return Bulks(self.parts, self.actions.runs, self.approvals, self.lifecycle)

    @property
    def measures(self) -> Measures:
        return Measures(self.parts, self.undos)

    @property
    def parts(self) -> Parts:
        return Parts(self.database, self.registry, self.guards, self.clock)

    async def action(self, action_id: str) -> Action:
        return Action.model_validate_json(await self.actions.get_json(action_id))

    async def ended(self, action_id: str) -> Action:
        """The action, once it has ended."""
        while True:
            position = self.feed.position()
            action = await self.action(action_id)
            if action.end_date is not None:
                return action
            await self.feed.changed(position)


@asynccontextmanager
async def action_parts(
    database: Database,
    clock: SetClock,
    engine: Engine,
    *,
    policies: Mapping[str, ResponderSection] | None = None,
    protected: Sequence[str] = (),
    limits: ReportLimits = ReportLimits(),  # noqa: B008 - frozen
    tick_s: float = TICK_S,
    host: Host = HERE,
    lease_clock: SetClock | None = None,
) -> AsyncIterator[ActionParts]:
    """Open one core's parts for actions on a database; several may share one, also as cores of several hosts.

    `lease_clock` measures leases; by default `clock` does.
    """
    registry = Registry([engine], policies or {}, database, clock, host)
    await registry.open()
    hosts = Hosts(database, host, clock, lease_clock=lease_clock or clock)
    protected_ = ProtectedTargets(protected)
    guards = Guards(policies or {}, hosts.common_clock, protected=protected_, user_domain="example.org")
    parts = Parts(database, registry, guards, clock)
    lifecycle = Lifecycle(parts, hosts, organisation="soc", product="thehive", limits=limits)
    approvals = Approvals(parts, lifecycle)
    runner = Runner(lifecycle, registry, hosts, database, tick_s=tick_s)
    await runner.open()
    try:
        feed = await Feed.open(database)
        actions = Actions(parts, lifecycle, approvals, runner, feed)
        undos = Undos(parts, actions.runs)
        due = Due(database, clock, {"undo": undos.undo_due, "approval": approvals.expire}, uptime=lease_clock or clock)
        yield ActionParts(
            *(database, clock, lifecycle, runner, feed, actions, registry, guards, undos, hosts, approvals, due)
        )
    finally:
        await runner.close()
        await registry.close()


@dataclass
class Harness(ActionParts):
    """A core's parts for actions, with an alert to run responders on."""

    engine: ScriptedEngine
    alert_id: str
    people: People
    location: Location
    """Of the database."""

    async def alert_json(self) -> str:
        return await Alerts(self.database, self.clock, "soc").get_json(self.alert_id)


@asynccontextmanager
async def open_harness(
    tmp_path: Path,
    *,
    database_at: Location | None = None,
    engine: ScriptedEngine | None = None,
    policies: Mapping[str, ResponderSection] | None = None,
    protected: Sequence[str] = (),
    report_limit_bytes: int = 1_048_576,
    operation_limits: operations.OperationLimits = operations.OperationLimits(),  # noqa: B008 - frozen
    lease_clock: SetClock | None = None,
    audited: bool = True,
    **alert: Any,
) -> AsyncIterator[Harness]:
    """Open a new database with ANNA, BEN and LEAD and an alert (`alert`: its fields), and a core's parts on it.

    Unless `audited` is false, what changes rights or runs without a row of the audit fails.
    """
    engine, clock = engine or ScriptedEngine(), SetClock()
    limits = ReportLimits(report_limit_bytes, operation_limits)
    location = database_at or tmp_path / "core.db"
    settings: dict[str, Any] = {"policies": policies, "protected": protected, "limits": limits}
    await templates.copy_to(stores.location(location), audited=audited)
    async with (
        opened(location) as database,
        action_parts(database, clock, engine, lease_clock=lease_clock, **settings) as own,
    ):
        if audited:
            await require_rows(database)
        people = People(database, "example.org", clock)
        for name, profile in PROFILE_OF.items():
            await people.add(name, profile)
        fields = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d", **alert}
        created = await Alerts(database, clock, "soc").create(LEAD, AlertInput.model_validate(fields))
        yield Harness(**vars(own), engine=engine, alert_id=created.id, people=people, location=location)


@asynccontextmanager
async def another_core(harness: Harness, engine: Engine, **options: Any) -> AsyncIterator[ActionParts]:
    """Open another core's parts on the database of `harness`; `options` as of `action_parts`."""
    clock = options.pop("clock", harness.clock)
    async with opened(harness.location) as database, action_parts(database, clock, engine, **options) as core:
        yield core


def run_input(harness: Harness, responder: str = "BlockHost_1_0", **more: Any) -> RunInput:
    """The request to run a responder on the alert."""
    return RunInput.model_validate(
        {"responderId": responder, "objectType": "alert", "objectId": harness.alert_id, **more}
    )


async def ended_with(harness: Harness, requested: Sequence[Any]) -> Action:
    """An ended action whose responder requested these operations."""
    started = await harness.actions.start(ANNA, run_input(harness))
    (await harness.engine.taken.get()).finish(Report(True, operations=tuple(requested)))
    return await harness.ended(started.action.id)


async def next_run(engine: ScriptedEngine) -> Run:
    """The next run that the engine is called for."""
    async with asyncio.timeout(POLL_TIMEOUT_S):
        return await engine.taken.get()


async def started_run(harness: Harness, *, responder: str = "BlockHost_1_0") -> tuple[Action, Run]:
    """An action of ANNA whose program has started."""
    started = await harness.actions.start(ANNA, run_input(harness, responder))
    run = await next_run(harness.engine)
    await run.begin()
    return started.action, run
