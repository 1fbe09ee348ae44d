"""What is in force: one measure for a target, until it is undone, whatever happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.in_force import End
from core.actions.measures import MeasureFilter, Measures
from core.actions.rights import explained
from core.common.database import Reads
from core.engines.base import Report
from core.models import Action, AlertInput, Measure, UndoInput, number_of
from core.records.alerts import Alerts
from core.responders.guards import RulesFor
from core.responders.target import load
from core.settings import ResponderSection
from core.store import retention
from core.store.database.backup import copy, restore_backup
from tests.clock import SetClock
from tests.core.actions.harness import (
    ANNA,
    BEN,
    LEAD,
    Harness,
    action_parts,
    another_core,
    next_run,
    open_harness,
    run_input,
)
from tests.core.actions.test_undo import (
    BLOCK,
    DONE,
    FAILED,
    MINUTE_MS,
    RELEASE,
    RELEASE_HOST,
    STEPS,
    engine,
    refused,
    released,
    undo_of,
)
from tests.core.core_process import alert_in, core_process, run_body, setup_in
from tests.core.running import running_core
from tests.core.scripted_engine import BLOCK_HOST, ScriptedEngine
from tests.stores import opened

HOST = {"dataType": "hostname", "data": "SRV-DC01"}
UNKNOWN = Report(False, message="Timed out after 30 minutes")
SAID_NO = Report(False, message="no such host", is_known=True)
POLICY = {"undo": RELEASE, "target": "hostname"}


@asynccontextmanager
async def harness_with(
    tmp_path: Path, *, release: ResponderSection | None = None, **block: Any
) -> AsyncIterator[Harness]:
    """BlockHost acts on a host, and is undone by ReleaseHost."""
    policies = {BLOCK: ResponderSection.model_validate({**POLICY, **block})}
    policies |= {RELEASE: release} if release else {}
    async with open_harness(tmp_path, engine=engine(), policies=policies, artifacts=[HOST]) as harness:
        yield harness


def measures_of(harness: Harness) -> Measures:
    return harness.measures


async def listed(harness: Harness, **wanted: str) -> Sequence[Measure]:
    return await measures_of(harness).listed(ANNA, MeasureFilter(**wanted))


async def only(harness: Harness) -> Measure:
    (measure,) = await listed(harness)
    return measure


async def alert_with(harness: Harness, *artifacts: Any, **fields: Any) -> str:
    """Another alert with these artifacts; its id."""
    alerts = Alerts(harness.database, harness.clock, "soc")
    base = {"type": "siem", "source": "s", "sourceRef": f"r{harness.clock()}-{len(artifacts)}-{fields}", "title": "t"}
    created = await alerts.create(
        LEAD, AlertInput.model_validate({**base, "description": "d", "artifacts": list(artifacts), **fields})
    )
    return created.id


def left_by(action: Action, artifact: str = "") -> str:
    """The id of what a run has left, on this artifact of several."""
    assert action.measure is not None
    return next(one.id for one in action.measure.targets if artifact in ("", one.target))


async def blocked(harness: Harness, report: Report = DONE, **more: Any) -> Action:
    started = await harness.actions.start(ANNA, run_input(harness, **more))
    (await next_run(harness.engine)).finish(report)
    return await harness.ended(started.action.id)


# --- one measure for a target -----------------------------------------------------------------------------------------


async def test_the_same_host_from_two_alerts_is_one_measure_with_the_latest_end(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        start = harness.clock.now_ms
        first = await blocked(harness, undoAfterMinutes=60)
        other = await alert_with(harness, {"dataType": "hostname", "data": "srv-dc01."})
        harness.clock.now_ms += MINUTE_MS
        second = await blocked(harness, objectId=other, undoAfterMinutes=10)
        measure = await only(harness)
        assert (measure.id, measure.actions, measure.since) == (left_by(first), [second.id, first.id], start)
        assert (measure.until, measure.object_id, measure.state) == (
            start + 60 * MINUTE_MS,
            harness.alert_id,
            "in_force",
        )
        assert (measure.undo, measure.title, measure.created_by) == (first.undo, "Block Host", ANNA.login)
        # The shorter run frees nothing, and the longer one frees all of it, once.
        harness.clock.now_ms = start + 11 * MINUTE_MS
        await harness.due.look()
        undo = await undo_of(harness, second)
        assert (undo.status, len(harness.engine.runs)) == ("replaced", 2)
        harness.clock.now_ms = start + 60 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert await listed(harness) == []
        ended = [await harness.action(action.id) for action in (first, second)]
        assert [action.measure.state for action in ended if action.measure] == ["ended", "ended"]
        assert [action.undo.status for action in ended if action.undo] == ["undone", "undone"]
        assert (await harness.due.look(), len(harness.engine.runs)) == (0, 3)


async def test_the_most_severe_is_listed_first_and_of_that_what_ends_soonest(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        runs = dict[str, Action]()
        for name, severity, minutes in (("medium", 2, 15), ("endless", 3, 0), ("later", 3, 60), ("sooner", 3, 30)):
            alert = await alert_with(harness, {"dataType": "hostname", "data": name}, severity=severity, title=name)
            runs[name] = await blocked(harness, objectId=alert, undoAfterMinutes=minutes)
        shared = await alert_with(harness, {"dataType": "hostname", "data": "MEDIUM."}, severity=4)
        runs["medium"] = await blocked(harness, objectId=shared, undoAfterMinutes=5)  # ends earlier, and is CRITICAL
        order = [next(name for name, run in runs.items() if run.id in one.actions) for one in await listed(harness)]
        assert order == ["medium", "sooner", "later", "endless"]


async def test_other_hosts_and_other_undos_are_measures_of_their_own(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        await blocked(harness, undoAfterMinutes=5)
        other = await alert_with(harness, {"dataType": "hostname", "data": "lt-0419"})
        await blocked(harness, objectId=other, undoAfterMinutes=60)
        assert len(await listed(harness)) == 2
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert [measure.object_id for measure in await listed(harness)] == [other]


async def test_of_two_with_the_same_end_one_is_undone_and_both_end(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=5) as harness:
        actions = [await blocked(harness), await blocked(harness)]
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        harness.clock.now_ms += 500 * MINUTE_MS
        assert await harness.due.look() == 0
        assert [(await undo_of(harness, action)).status for action in actions] == ["undone", "undone"]


async def test_each_target_of_a_run_has_an_end_of_its_own(tmp_path: Path) -> None:
    """Two are isolated at once. What keeps one of them for longer doesn't keep the other."""
    async with harness_with(tmp_path) as harness:
        both = await alert_with(harness, *({"dataType": "hostname", "data": name} for name in ("a1", "b1")))
        wide = await blocked(harness, objectId=both, target=["a1", "b1"], undoAfterMinutes=5)
        narrow = await blocked(harness, objectId=both, target="a1", undoAfterMinutes=60)
        found = {measure.target[0].data: measure for measure in await listed(harness) if measure.target}
        assert {name: measure.actions for name, measure in found.items()} == {
            "a1": [wide.id, narrow.id],
            "b1": [wide.id],
        }
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        assert targets_of(await released(harness)) == ["b1"]
        assert (await only(harness)).actions == [wide.id, narrow.id]
        assert await states_of(harness, wide) == {"a1": ("in_force", "replaced"), "b1": ("ended", "undone")}
        harness.clock.now_ms += 55 * MINUTE_MS
        await harness.due.look()
        assert targets_of(await released(harness)) == ["a1"]
        assert await listed(harness) == []
        assert await states_of(harness, wide) == {"a1": ("ended", "undone"), "b1": ("ended", "undone")}
        assert await states_of(harness, narrow) == {"a1": ("ended", "undone")}


def targets_of(action: Action) -> list[str]:
    return [artifact.data for artifact in action.target or ()]


async def states_of(harness: Harness, action: Action) -> dict[str, tuple[str, str | None]]:
    """By target: whether what a run has left is in force, and how far it is undone."""
    now = await harness.action(action.id)
    names = {artifact.id: artifact.data for artifact in now.target or ()}
    assert now.measure is not None
    return {
        names[one.target or ""]: (one.state, None if one.undo is None else one.undo.status)
        for one in now.measure.targets
    }


async def test_of_two_hosts_of_one_run_one_is_released_and_the_other_stays(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        both = await alert_with(harness, *({"dataType": "hostname", "data": name} for name in ("a1", "b1")))
        action, measures = await blocked(harness, objectId=both, target=["a1", "b1"]), measures_of(harness)
        first, second = (one.id for one in action.target or ())
        (undo,) = await measures.undo(BEN, left_by(action, first))
        run = await next_run(harness.engine)
        assert [artifact["data"] for artifact in run.job.data["artifacts"]] == ["a1"]
        assert await states_of(harness, action) == {"a1": ("in_force", "running"), "b1": ("in_force", "available")}
        again = await refused(measures.undo(BEN, left_by(action, first)))
        assert (again.code, again.message) == ("conflict", f"It is already being undone, by {undo.id}.")
        run.finish(DONE)
        await harness.ended(undo.id)
        assert await states_of(harness, action) == {"a1": ("ended", "undone"), "b1": ("in_force", "available")}
        now = await harness.action(action.id)
        assert now.undo is not None
        assert now.measure is not None
        assert (now.undo.status, now.measure.state, targets_of(undo)) == ("available", "in_force", ["a1"])
        assert (await only(harness)).id == left_by(action, second)
        # Its end is its own, and undoing the run undoes what is left of it.
        until = harness.clock.now_ms + 30 * MINUTE_MS
        await measures.shorten(BEN, left_by(action, second), End(until))
        assert (await only(harness)).until == until
        await harness.undos.undo(ANNA, action.id, UndoInput())
        assert targets_of(await released(harness)) == ["b1"]
        assert await listed(harness) == []
        assert (await undo_of(harness, action)).status == "undone"


async def test_an_undo_of_the_run_undoes_all_its_targets_at_once_and_one_that_fails_leaves_them(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        both = await alert_with(harness, *({"dataType": "hostname", "data": name} for name in ("a1", "b1")))
        action = await blocked(harness, objectId=both, target=["a1", "b1"])
        (undo,) = await measures_of(harness).undo(BEN, action.id)
        assert targets_of(undo) == ["a1", "b1"]
        await released(harness, FAILED)
        failed = {"a1": ("in_force", "failed"), "b1": ("in_force", "failed")}
        assert await states_of(harness, action) == failed
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        assert targets_of(await released(harness)) == ["a1", "b1"]
        assert await listed(harness) == []


async def test_any_run_of_the_undo_ends_it_and_one_on_another_target_does_not(tmp_path: Path) -> None:
    async with harness_with(tmp_path, release=ResponderSection(target=("hostname",))) as harness:
        action = await blocked(harness)
        other = await alert_with(harness, {"dataType": "hostname", "data": "lt-0419"})
        same = await alert_with(harness, HOST, {"dataType": "ip", "data": "10.0.0.5"})
        for alert, left in ((other, 1), (same, 0)):
            await harness.actions.start(BEN, run_input(harness, RELEASE, objectId=alert))
            await released(harness)
            assert len(await listed(harness)) == left
        ended = await harness.action(action.id)
        assert ended.measure is not None
        assert (ended.measure.state, ended.measure.ended_by) == ("ended", BEN.login)


async def test_what_begins_while_it_is_undone_is_unknown(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        first = await blocked(harness)
        await harness.undos.undo(BEN, first.id, UndoInput())
        release = await next_run(harness.engine)
        harness.clock.now_ms += 1
        finished = await blocked(harness)
        await harness.actions.start(ANNA, run_input(harness))
        starting = await next_run(harness.engine)
        release.finish(DONE)
        await harness.ended(release.job.action_id)
        starting.finish(DONE)
        still = await harness.ended(starting.job.action_id)
        measure = await only(harness)
        assert (measure.actions, measure.state) == ([finished.id, still.id], "unknown")


# --- what is known of it ----------------------------------------------------------------------------------------------


async def test_it_begins_at_dispatch_and_what_failed_unseen_is_unknown_and_can_be_undone(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        run = await next_run(harness.engine)
        assert ((await only(harness)).state, (await only(harness)).until) == ("starting", None)
        error = await refused(measures_of(harness).undo(BEN, started.id))
        assert (error.code, error.message) == ("conflict", "It is only starting; undo it once its run has ended.")
        run.finish(UNKNOWN)
        ended = await harness.ended(started.id)
        assert (ended.status, ended.measure and ended.measure.state) == ("Failure", "unknown")
        assert (await only(harness)).until == harness.clock.now_ms + 60 * MINUTE_MS
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert await listed(harness) == []


async def test_what_said_that_it_failed_leaves_nothing(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action = await blocked(harness, SAID_NO)
        assert (await listed(harness), action.measure) == ([], None)
        assert action.undo is not None
        assert (action.undo.status, action.undo.at) == (None, None)


async def test_a_stopped_run_is_unknown_and_one_that_never_ran_is_nothing(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.decide(BEN, started.id, "deny")
        assert await listed(harness) == []
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.decide(BEN, started.id, "approve")
        await next_run(harness.engine)
        await harness.actions.cancel(ANNA, started.id)
        assert (await harness.ended(started.id)).outcome == "stopped"
        measure = await only(harness)
        assert (measure.state, measure.approved_by) == ("unknown", [BEN.login])


async def test_what_contains_without_an_undo_is_in_force_until_it_is_marked_as_ended(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(contains=True)}
    async with open_harness(tmp_path, engine=engine(), policies=policies) as harness:
        action = await blocked(harness)
        measure = await only(harness)
        assert (measure.state, measure.undo, measure.target) == ("in_force", None, None)
        error = await refused(measures_of(harness).undo(BEN, action.id))
        assert (error.code, error.message) == ("conflict", f"{BLOCK} had no undo when this ran.")
        (ended,) = await measures_of(harness).mark_as_ended(BEN, measure.id, " reinstalled ")
        assert ended.measure is not None
        assert (ended.measure.state, ended.measure.ended_by, ended.measure.message) == (
            "ended",
            BEN.login,
            "reinstalled",
        )
        assert await listed(harness) == []
        assert (await refused(measures_of(harness).mark_as_ended(BEN, measure.id, "again"))).code == "not_found"


async def test_what_has_a_time_is_marked_as_ended_by_an_org_admin_alone(tmp_path: Path) -> None:
    async with harness_with(tmp_path, run_by=("anna",), undo_after_minutes=60, approval=1) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.decide(BEN, started.id, "approve")
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(started.id)
        measures = measures_of(harness)
        error = await refused(measures.mark_as_ended(ANNA, started.id, "reinstalled"))
        assert (error.code, error.message) == (
            "forbidden",
            "It ends at its time, so only an administrator may mark it as ended; undo it, or ask one.",
        )
        assert (await only(harness)).until == harness.clock.now_ms + 60 * MINUTE_MS
        (ended,) = await measures.mark_as_ended(LEAD, started.id, "reinstalled")
        assert ended.measure is not None
        assert (ended.measure.ended_by, ended.measure.message) == (LEAD.login, "reinstalled")
        assert (ended.undone_by, ended.decided_against) == (LEAD.login, None)


@pytest.mark.sqlite
async def test_after_a_restored_backup_all_is_unknown(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60, approval=1) as harness:
        started = [(await harness.actions.start(ANNA, run_input(harness))).action for _ in range(2)]
        await harness.actions.decide(BEN, started[0].id, "approve")
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(started[0].id)
        copy(tmp_path / "core.db", tmp_path / "backup.db", harness.clock.now_ms)
        policies = {BLOCK: ResponderSection.model_validate(POLICY)}
    restore_backup(tmp_path / "backup.db", tmp_path / "core.db")
    clock, other = SetClock(harness.clock.now_ms + 30 * MINUTE_MS), engine()
    async with (
        opened(tmp_path / "core.db") as database,
        action_parts(database, clock, other, policies=policies) as core,
    ):
        await core.lifecycle.end_restored()
        measures = core.measures
        (measure,) = await measures.listed(ANNA, MeasureFilter())
        assert (measure.state, measure.actions) == ("unknown", [action.id for action in started])
        clock.now_ms += 60 * MINUTE_MS
        assert (await core.due.look(), other.runs) == (0, [])
        (ended, *_) = await measures.mark_as_ended(LEAD, measure.id, "looked at it")
        assert ended.undo is not None
        assert (ended.undo.status, ended.undo.message) == ("undone", "looked at it")


async def test_what_a_killed_core_left_is_in_the_register_of_the_next(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders=STEPS)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        action = await core.client().run(run_body(alert, "Block_1_0", parameters={"steps": ["write"]}))
        await core.ended(action.id)
        await core.kill()
    async with core_process(setup) as core, core_process(setup, "second") as second:
        (measure,) = await core.client().measures(of=[alert], responder="Block_1_0", by=action.created_by)
        assert (measure.state, measure.actions) == ("in_force", [action.id])
        path = f"/api/connector/engine/measure/{measure.id}/undo"
        answers = await asyncio.gather(*(one.send("POST", path, {}) for one in (core, second)))
        assert sorted(answer.status_code for answer in answers) in ([200, 404], [200, 409])
        (undoing,) = next(answer.json() for answer in answers if answer.status_code == 200)
        assert (await core.ended(undoing["id"])).status == "Success"
        assert await second.client().measures() == []


# --- its end ----------------------------------------------------------------------------------------------------------


async def test_extending_never_shortens_and_says_who_moved_it(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=240) as harness:
        measures, start = measures_of(harness), harness.clock.now_ms
        action = await blocked(harness, undoAfterMinutes=60)
        end = start + 60 * MINUTE_MS
        for until in (start + 15 * MINUTE_MS, end):
            error = await refused(measures.extend(BEN, action.id, End(until)))
            assert (error.code, error.message) == (
                "bad_request",
                "That is no later than it ends anyway; give a later time.",
            )
        for too_late in (None, start + 241 * MINUTE_MS):
            assert (await refused(measures.extend(BEN, action.id, End(too_late)))).code == "bad_request"
        moved = await measures.extend(BEN, action.id, End(end + 60 * MINUTE_MS))
        assert moved.undo is not None
        assert moved.undo.changed is not None
        assert moved.undo.changed.model_dump() == {
            "by": BEN.login,
            "at": start,
            "before": end,
            "after": end + 60 * MINUTE_MS,
        }
        assert (await only(harness)).until == end + 60 * MINUTE_MS
        for no_earlier in (None, start, end + 60 * MINUTE_MS):
            assert (await refused(measures.shorten(BEN, action.id, End(no_earlier)))).code == "bad_request"
        await measures.shorten(BEN, action.id, End(start + MINUTE_MS))
        assert (await only(harness)).until == start + MINUTE_MS
        harness.clock.now_ms += MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert (await refused(measures.extend(BEN, action.id, End(end)))).code == "not_found"


async def test_several_are_extended_in_one_commit_and_one_that_is_refused_stops_no_other(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=240) as harness:
        measures, start = measures_of(harness), harness.clock.now_ms
        first, second = await blocked(harness, undoAfterMinutes=60), await blocked(harness, undoAfterMinutes=90)
        ends = {second.id: start + 120 * MINUTE_MS, "~999": None, first.id: start + 60 * MINUTE_MS}
        done = await measures.extend_all(BEN, ends, "it beacons")
        texts = [one if isinstance(one, str) else one.message for _, one in done.targets]
        assert [id_ for id_, _ in done.targets] == [*ends]
        assert texts[1:] == [
            "Measure not found; it may have ended.",
            "That is no later than it ends anyway; give a later time.",
        ]
        assert (await only(harness)).until == start + 120 * MINUTE_MS


async def test_a_later_end_than_was_approved_takes_approval_whichever_run_brings_it(tmp_path: Path) -> None:
    """Quarantine takes no approval, and what it leaves is undone by the same as the approved block."""
    quarantine = replace(BLOCK_HOST, id="r-quarantine", name="Quarantine_1_0")
    policies = {BLOCK: {**POLICY, "approval": 1}, quarantine.name: {**POLICY, "run_by": ["ben"]}}
    scripted = ScriptedEngine(offered=(BLOCK_HOST, RELEASE_HOST, quarantine))
    own = {name: ResponderSection.model_validate(section) for name, section in policies.items()}
    async with open_harness(tmp_path, engine=scripted, policies=own, artifacts=[HOST]) as harness:
        start = harness.clock.now_ms
        approved = (await harness.actions.start(ANNA, run_input(harness, undoAfterMinutes=15))).action
        await harness.actions.decide(BEN, approved.id, "approve")
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(approved.id)
        free = (await harness.actions.start(BEN, run_input(harness, quarantine.name, undoAfterMinutes=600))).action
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(free.id)
        end = start + 15 * MINUTE_MS
        assert ((await only(harness)).until, (await undo_of(harness, free)).at) == (end, end)
        extension = (await undo_of(harness, approved)).extension
        assert extension is not None
        assert (extension.asked_by, extension.at, extension.approval.needed) == (
            BEN.login,
            start + 600 * MINUTE_MS,
            1,
        )
        # Nor does a later end of the run that took none, by its id or by that of what it left.
        for work in (
            harness.undos.set_time(BEN, free.id, 60),
            measures_of(harness).extend(BEN, left_by(await harness.action(free.id)), End(start + 60 * MINUTE_MS)),
        ):
            asked = (await work).undo
            assert asked is not None
            assert asked.extension is not None
            assert (asked.at, asked.extension.at) == (end, start + 60 * MINUTE_MS)
        latest = (await undo_of(harness, approved)).extension
        assert latest is not None
        await harness.actions.decide(LEAD, approved.id, "approve", extension_id=latest.id)
        assert (await only(harness)).until == start + 60 * MINUTE_MS
        await harness.undos.set_time(BEN, free.id, 60)
        assert (await undo_of(harness, free)).at == start + 60 * MINUTE_MS


async def test_ending_earlier_moves_all_of_its_runs(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        start = harness.clock.now_ms
        actions = [await blocked(harness, undoAfterMinutes=minutes) for minutes in (30, 60, 5)]
        await measures_of(harness).shorten(BEN, actions[0].id, End(start + 10 * MINUTE_MS))
        ends = [(await undo_of(harness, action)).at for action in actions]
        assert ends == [start + minutes * MINUTE_MS for minutes in (10, 10, 5)]
        harness.clock.now_ms = start + 10 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert await listed(harness) == []


async def test_who_may_not_run_it_changes_nothing_and_who_may_not_see_it_reads_nothing(tmp_path: Path) -> None:
    async with harness_with(tmp_path, run_by=("anna@example.org",), undo_after_minutes=60) as harness:
        measures, action = measures_of(harness), await blocked(harness, undoAfterMinutes=5)
        in_slack = replace(BEN, acted_through="bot@example.org", clearance=1)
        for who in (BEN, in_slack):
            for work in (
                measures.extend(who, action.id, End(harness.clock.now_ms + 30 * MINUTE_MS)),
                measures.shorten(who, action.id, End(harness.clock.now_ms + MINUTE_MS)),
                measures.mark_as_ended(who, action.id, "so"),
            ):
                assert (await refused(work)).code == "forbidden"
        assert await measures.listed(in_slack, MeasureFilter()) == []
        assert len(await measures.listed(replace(in_slack, clearance=2), MeasureFilter())) == 1


async def test_what_is_found_by_target_person_responder_alert_and_case(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        await blocked(harness)
        case = await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, harness.alert_id)
        other = await alert_with(harness, {"dataType": "hostname", "data": "10.0.0.5"})
        await blocked(harness, objectId=other)
        for wanted, count in (
            ({"target": "SRV-DC01"}, 1),
            ({"target": "https://srv-dc01/x"}, 0),
            ({"target": "10.0.0[.]5"}, 1),
            ({"target": "::ffff:10.0.0.5"}, 1),
            ({"target": "srv-dc02"}, 0),
            ({"by": "anna"}, 2),
            ({"by": "ben@example.org"}, 0),
            ({"responder": BLOCK}, 2),
            ({"responder": "r-release"}, 0),
            ({"of": harness.alert_id}, 1),
            ({"of": case.id}, 1),
            ({"of": case.id, "target": "10.0.0.5"}, 0),
            ({"of": "~999"}, 0),
            ({"of": f"~999,{harness.alert_id}"}, 1),
            ({"alert": harness.alert_id}, 1),
            ({"alert": harness.alert_id, "case": "~999"}, 0),
            ({"of": harness.alert_id, "alert": other}, 0),
        ):
            assert len(await listed(harness, **wanted)) == count, wanted
        assert (await refused(listed(harness, of="~1,x"))).code == "bad_request"


async def test_what_a_run_may_act_on_is_found_too(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(undo=RELEASE)}
    async with open_harness(tmp_path, engine=engine(), policies=policies, artifacts=[HOST]) as harness:
        await blocked(harness)
        same = await alert_with(harness, HOST)
        await blocked(harness, objectId=same)
        # Nobody knows whether both acted on that host, so they are two.
        assert [len(await listed(harness, target=name)) for name in ("srv-dc01", "lt-1")] == [2, 0]


async def test_what_is_in_force_is_not_deleted(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(contains=True)}
    async with open_harness(tmp_path, engine=engine(), policies=policies) as harness:
        number = int(harness.alert_id[1:])
        await blocked(harness)
        await Alerts(harness.database, harness.clock, "soc").mark_read(LEAD, harness.alert_id)
        assert await harness.database.read(lambda reads: retention.closed_at(reads, number)) is None
        await measures_of(harness).mark_as_ended(BEN, (await only(harness)).id, "so")
        assert await harness.database.read(lambda reads: retention.closed_at(reads, number)) is not None


async def test_cores_of_several_hosts_see_one_register(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection.model_validate({**POLICY, "undo_after_minutes": 5})}
    async with (
        harness_with(tmp_path, undo_after_minutes=5) as harness,
        another_core(harness, engine(), policies=policies) as other,
    ):
        actions = [await blocked(harness) for _ in range(3)]
        measures = other.measures
        (measure,) = await measures.listed(ANNA, MeasureFilter(target="srv-dc01"))
        assert measure.actions == [action.id for action in actions]
        harness.clock.now_ms += 5 * MINUTE_MS
        await asyncio.gather(harness.due.look(), other.due.look())
        undos = [(await undo_of(harness, action)).status for action in actions]
        assert sorted(map(str, undos)) == ["replaced", "replaced", "running"]


async def test_over_http_rights_and_bodies_are_checked(tmp_path: Path) -> None:
    base = "/api/connector/engine/measure"
    async with running_core(tmp_path) as core:
        cases: list[tuple[str, dict[str, Any], int]] = [
            ("~999/undo", {}, 404),
            ("~999/extend", {"until": 5}, 404),
            ("~999/end", {"reason": "x"}, 404),
            ("x/undo", {}, 404),
            ("~999/extend", {"until": "x"}, 400),
            ("~999/shorten", {"until": -1}, 400),
            ("~999/end", {"reason": " "}, 400),
            ("~999/end", {}, 400),
        ]
        for path, body, status in cases:
            answer = await core.send("POST", f"{base}/{path}", body, profile="analyst")
            assert answer.status_code == status, (path, answer.text)
        for path, body, _ in cases[:3]:
            assert (await core.send("POST", f"{base}/{path}", body, profile="read-only")).status_code == 403
        assert (await core.send("GET", f"{base}?target=x&by=anna", profile="read-only")).json() == []
        assert (await core.send("GET", f"{base}?of=x")).status_code == 400
        assert 'responder_bot_measures{state="unknown"} 0.0' in (await core.send("GET", "/metrics")).text


async def test_what_two_alerts_share_is_listed_for_who_may_see_one_of_them(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        green = await alert_with(harness, {**HOST, "tlp": 1}, tlp=1)
        own = await blocked(harness, objectId=green, undoAfterMinutes=5)
        amber = harness.alert_id
        hidden = await blocked(harness, undoAfterMinutes=60, note="insider")
        measures, whole = measures_of(harness), await only(harness)
        assert whole.actions == [own.id, hidden.id]
        in_slack = replace(ANNA, acted_through="bot@example.org", clearance=1)
        (measure,) = await measures.listed(in_slack, MeasureFilter(target="srv-dc01"))
        assert (measure.id, measure.actions, measure.object_id) == (left_by(own), [own.id], green)
        assert (measure.until, measure.target) == (whole.until, own.target)
        assert [text for text in (amber, hidden.id, "insider") if f'"{text}"' in measure.model_dump_json()] == []
        assert await measures.listed(in_slack, MeasureFilter(of=amber)) == []
        for change in (
            measures.extend(in_slack, measure.id, End(harness.clock() + 90 * MINUTE_MS)),
            measures.shorten(in_slack, measure.id, End(harness.clock() + MINUTE_MS)),
            measures.mark_as_ended(in_slack, measure.id, "so"),
        ):
            assert (await refused(change)).code == "forbidden"
        assert await only(harness) == whole
        # Undoing what is seen ends what is in force on the same host, whoever began it.
        (undo,) = await measures.undo(in_slack, measure.id)
        assert undo.undoes == own.id
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(undo.id)
        assert await listed(harness) == []


# --- what may be the same ---------------------------------------------------------------------------------------------


async def test_a_timed_undo_waits_for_what_may_be_the_same_and_an_undo_makes_that_unknown(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        short = await alert_with(harness, {"dataType": "hostname", "data": "lt-0198"}, sourceRef="lt-0198")
        long = await alert_with(
            harness, {"dataType": "hostname", "data": "LT-0198.corp.example"}, sourceRef="LT-0198.corp.example"
        )
        other = await alert_with(
            harness, {"dataType": "hostname", "data": "lt-0198.lab.example"}, sourceRef="lt-0198.lab.example"
        )
        first = await blocked(harness, objectId=short, undoAfterMinutes=5)
        second = await blocked(harness, objectId=long, undoAfterMinutes=60)
        assert len(await listed(harness)) == 2

        def notes(reads: Reads) -> list[str]:
            target, rules = load(reads, "alert", number_of(long)), RulesFor(harness.guards, reads, ANNA.login)
            found = explained(reads, harness.registry, rules, ANNA, target, {})
            return next(one.hints or [] for one in found if one.name == BLOCK)

        full = "lt-0198.corp.example"
        assert await harness.database.read(notes) == [
            f"{full} looks like lt-0198, which {first.id} has in force until 2023-11-14 22:18 UTC",
            f"{second.id} has it in force on {full} already until 2023-11-14 23:13 UTC; the later end counts",
        ]
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        undo = await undo_of(harness, first)
        assert (undo.status, undo.message) == (
            "waiting",
            f"{second.id} acts on what may be the same and ends later; undo it yourself if it isn't.",
        )
        # Two full names with one first label are two, and what ends first waits for nothing.
        third = await blocked(harness, objectId=other, undoAfterMinutes=1)
        harness.clock.now_ms += MINUTE_MS
        assert (await undo_of(harness, third)).status == "available"
        (undoing,) = await measures_of(harness).undo(BEN, first.id)
        await released(harness)
        await harness.ended(undoing.id)
        left = {one.actions[0]: one for one in await listed(harness)}
        assert {action: one.state for action, one in left.items()} == {second.id: "unknown", third.id: "unknown"}
        known = (await harness.action(second.id)).measure
        assert known is not None
        assert (known.message or "").startswith(f"{undoing.id} undid what may be the same.")
