"""Undoing what a responder did: by hand, and once at the time that a run was given, whatever happens meanwhile."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.due import AT_ONCE
from core.actions.in_force import LAST_RETRY_MS, RETRY_MS, End
from core.app import clock_parts, undo_parts
from core.authorization import COMMAND_LINE, Caller
from core.client import CoreClient
from core.common.clock import as_time
from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Report, Responder, Skipped
from core.models import Action, AlertInput, EndChange, Extension, Undo, UndoInput
from core.records.alerts import Alerts
from core.responders.settings_section import settings_problems
from core.settings import ResponderSection, load
from core.store import blocklist
from core.store.database.backup import copy, restore_backup
from tests import stores
from tests.clock import SetClock
from tests.core.actions.harness import (
    ANNA,
    BEN,
    LEAD,
    Harness,
    action_parts,
    another_core,
    caller,
    next_run,
    open_harness,
    run_input,
)
from tests.core.core_process import (
    CoreProcess,
    CoreSetup,
    alert_in,
    core_process,
    run_body,
    setup_in,
    until,
    write_pipe,
)
from tests.core.running import running_core
from tests.core.scripted_engine import BLOCK_HOST, ScriptedEngine
from tests.stores import opened

MINUTE_MS = 60_000
ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK = BLOCK_HOST.name
RELEASE = "ReleaseHost_1_0"
RELEASE_HOST = Responder(
    id="r-release",
    name=RELEASE,
    version="1.0",
    description="Puts a host back on the network",
    data_types=("thehive:alert",),
)
DONE, FAILED = Report(True, full={"message": "done"}), Report(False, message="no answer", is_known=True)


def engine() -> ScriptedEngine:
    return ScriptedEngine(offered=(BLOCK_HOST, RELEASE_HOST))


@asynccontextmanager
async def harness_with(
    tmp_path: Path, *, release: ResponderSection | None = None, **block: Any
) -> AsyncIterator[Harness]:
    """BlockHost is undone by ReleaseHost; `block` is more of its section."""
    policies = {BLOCK: ResponderSection(undo=RELEASE, **block), **({RELEASE: release} if release else {})}
    async with open_harness(tmp_path, engine=engine(), policies=policies) as harness:
        yield harness


async def blocked(harness: Harness, **more: Any) -> Action:
    """A run of BlockHost by ANNA that has succeeded."""
    started = await harness.actions.start(ANNA, run_input(harness, **more))
    (await next_run(harness.engine)).finish(DONE)
    return await harness.ended(started.action.id)


async def released(harness: Harness, report: Report = DONE) -> Action:
    """The end of the run that undoes another."""
    run = await next_run(harness.engine)
    assert run.job.responder_name == RELEASE
    run.finish(report)
    return await harness.ended(run.job.action_id)


async def undo_of(harness: Harness, action: Action) -> Undo:
    undo = (await harness.action(action.id)).undo
    assert undo is not None
    return undo


async def refused(work: Any) -> ResponderBotError:
    with pytest.raises(ResponderBotError) as error:
        await work
    return error.value


def runs_of(harness: Harness, responder: str) -> int:
    return sum(run.job.responder_name == responder for run in harness.engine.runs)


# --- by hand ----------------------------------------------------------------------------------------------------------


async def test_an_undo_runs_its_responder_on_the_same_object_and_is_told_what_it_undoes(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness, parameters={"undoes": "~1"}))).action
        assert started.undo == Undo(responder=RELEASE)
        early = await refused(harness.undos.undo(ANNA, started.id, UndoInput()))
        assert (early.code, early.message) == ("conflict", "Only what has succeeded can be undone; this is Waiting.")
        run = await next_run(harness.engine)
        assert "undoes" not in run.job.parameters  # which nobody can set
        run.finish(DONE)
        await harness.ended(started.id)
        assert await undo_of(harness, started) == Undo(responder=RELEASE, status="available")
        undoing = (await harness.undos.undo(BEN, started.id, UndoInput())).action
        assert (undoing.responder_name, undoing.object_id, undoing.created_by) == (RELEASE, harness.alert_id, BEN.login)
        assert (undoing.undoes, undoing.undo) == (started.id, None)
        assert await undo_of(harness, started) == Undo(responder=RELEASE, status="running", action_id=undoing.id)
        release = await next_run(harness.engine)
        assert release.job.parameters == {"user": BEN.login, "organisation": "soc", "undoes": started.id}
        release.finish(DONE)
        await harness.ended(undoing.id)
        assert await undo_of(harness, started) == Undo(responder=RELEASE, status="undone", action_id=undoing.id)
        again = await refused(harness.undos.undo(ANNA, started.id, UndoInput()))
        assert (again.code, again.message) == ("conflict", f"It was undone, by {undoing.id}.")
        assert again.details["action"]["id"] == undoing.id
        of_undo = await refused(harness.undos.undo(ANNA, undoing.id, UndoInput()))
        assert of_undo.message == f"This undid {started.id}; to have that back, run its responder again."


async def test_two_presses_at_once_are_one_run(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        presses = [harness.undos.undo(who, action.id, UndoInput()) for who in (ANNA, BEN, LEAD) * 10]
        results = await asyncio.gather(*presses, return_exceptions=True)
        errors = [result for result in results if isinstance(result, ResponderBotError)]
        assert len(errors) == len(results) - 1
        assert {error.code for error in errors} == {"conflict"}
        await released(harness)
        assert runs_of(harness, RELEASE) == 1


async def test_a_repeated_key_finds_the_undo_and_starts_nothing(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        both = [await harness.undos.undo(ANNA, action.id, UndoInput(), key="k", body="b") for _ in range(2)]
        assert [started.new for started in both] == [True, False]
        assert both[0].action.id == both[1].action.id


async def test_a_failed_undo_may_be_tried_again(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        first = (await harness.undos.undo(ANNA, action.id, UndoInput())).action
        await released(harness, FAILED)
        assert await undo_of(harness, action) == Undo(responder=RELEASE, status="failed", action_id=first.id)
        second = (await harness.undos.undo(ANNA, action.id, UndoInput())).action
        await released(harness)
        assert await undo_of(harness, action) == Undo(responder=RELEASE, status="undone", action_id=second.id)


async def test_what_failed_or_has_no_undo_is_not_undone(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        (await next_run(harness.engine)).finish(FAILED)
        await harness.ended(started.id)
        assert await undo_of(harness, started) == Undo(responder=RELEASE)
        error = await refused(harness.undos.undo(ANNA, started.id, UndoInput()))
        assert error.message == "Only what has succeeded can be undone; this is Failure."
        plain = (await harness.actions.start(ANNA, run_input(harness, RELEASE))).action
        await released(harness)
        error = await refused(harness.undos.undo(ANNA, plain.id, UndoInput()))
        assert error.message == f"{RELEASE} had no undo when this ran."
        error = await refused(harness.actions.start(ANNA, run_input(harness, RELEASE, undoAfterMinutes=5)))
        assert error.code == "bad_request"


async def test_an_undo_waits_for_the_approvals_of_its_own_responder(tmp_path: Path) -> None:
    async with harness_with(tmp_path, release=ResponderSection(approval=1)) as harness:
        action = await blocked(harness)
        undoing = (await harness.undos.undo(ANNA, action.id, UndoInput())).action
        assert undoing.approval is not None
        await harness.actions.decide(BEN, undoing.id, "deny", message="not yet")
        assert (await undo_of(harness, action)).status == "failed"
        again = (await harness.undos.undo(ANNA, action.id, UndoInput())).action
        await harness.actions.decide(BEN, again.id, "approve")
        await released(harness)
        assert await undo_of(harness, action) == Undo(responder=RELEASE, status="undone", action_id=again.id)


async def test_inputs_that_both_responders_have_are_those_of_the_run(tmp_path: Path) -> None:
    inputs = {"name": "firewall", "type": "string"}, {"name": "why", "type": "string"}
    section = ResponderSection.model_validate({"parameter": [inputs[0]]})
    async with harness_with(tmp_path, release=section, parameter=inputs) as harness:
        action = await blocked(harness, parameters={"firewall": "dmz", "why": "scan"})
        await harness.undos.undo(ANNA, action.id, UndoInput())
        run = await next_run(harness.engine)
        assert (run.job.parameters["firewall"], "why" in run.job.parameters) == ("dmz", False)
        run.finish(FAILED)
        await harness.ended(run.job.action_id)
        await harness.undos.undo(ANNA, action.id, UndoInput(parameters={"firewall": "lan"}))
        assert (await next_run(harness.engine)).job.parameters["firewall"] == "lan"


# --- by time ----------------------------------------------------------------------------------------------------------


async def test_a_timed_run_is_undone_once_whichever_way_the_clock_jumps(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=240) as harness:
        action = await blocked(harness)
        due = harness.clock.now_ms + 240 * MINUTE_MS
        assert await undo_of(harness, action) == Undo(responder=RELEASE, after_minutes=240, status="available", at=due)
        harness.clock.now_ms = due - 1
        await harness.due.look()
        assert runs_of(harness, RELEASE) == 0
        harness.clock.now_ms = due + 1_000 * MINUTE_MS  # forward
        await harness.due.look()
        ended = await released(harness)
        assert (ended.created_by, ended.undoes, ended.status) == (ANNA.login, action.id, "Success")
        on_time = await harness.action(action.id)
        assert (on_time.undo and on_time.undo.status, on_time.undone_by, on_time.decided_against) == (
            "undone",
            "",
            None,
        )
        for now in (due - 300 * MINUTE_MS, due, due + 2_000 * MINUTE_MS):  # back, and over it again
            harness.clock.now_ms = now
            await harness.due.look()
        assert runs_of(harness, RELEASE) == 1


@pytest.mark.parametrize(
    ("section", "asked", "minutes"),
    [
        ({"undo_after_minutes": 60}, None, 60),
        ({"undo_after_minutes": 60}, 30, 30),
        ({"undo_after_minutes": 60}, 61, "refused"),
        ({"undo_after_minutes": 60}, 0, "refused"),
        ({"undo_after_minutes": 60, "allow_permanent": True}, 0, None),
        ({"undo_after_minutes": 60, "allow_permanent": True}, 90, 90),
        ({}, None, None),
        ({}, 30, 30),
    ],
)
async def test_how_long_a_run_may_stay_in_force(
    tmp_path: Path, section: Mapping[str, Any], asked: int | None, minutes: int | str | None
) -> None:
    async with harness_with(tmp_path, **section) as harness:
        if minutes == "refused":
            error = await refused(harness.actions.start(ANNA, run_input(harness, undoAfterMinutes=asked)))
            assert (error.code, "1 to 60" in error.message) == ("bad_request", True)
            action = await blocked(harness)
            late = await refused(harness.undos.set_time(ANNA, action.id, asked or 0))
            assert late.code == "bad_request"
        else:
            action = await blocked(harness, undoAfterMinutes=asked)
            undo = await undo_of(harness, action)
            assert undo.after_minutes == minutes
            assert undo.at == (None if minutes is None else harness.clock.now_ms + int(minutes) * MINUTE_MS)


async def test_its_time_can_be_changed_until_it_has_come(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60, allow_permanent=True) as harness:
        action, start = await blocked(harness), harness.clock.now_ms
        harness.clock.now_ms += 50 * MINUTE_MS
        extended = await harness.undos.set_time(BEN, action.id, 60)
        assert extended.undo is not None
        assert extended.undo.at == start + 110 * MINUTE_MS
        harness.clock.now_ms = start + 60 * MINUTE_MS
        await harness.due.look()
        assert runs_of(harness, RELEASE) == 0
        moved = EndChange(by=BEN.login, at=harness.clock.now_ms, before=start + 110 * MINUTE_MS)
        assert (await harness.undos.set_time(BEN, action.id, 0)).undo == Undo(
            responder=RELEASE, after_minutes=60, status="available", changed=moved
        )
        harness.clock.now_ms += 10_000 * MINUTE_MS
        await harness.due.look()
        assert runs_of(harness, RELEASE) == 0
        await harness.undos.set_time(BEN, action.id, 1)
        harness.clock.now_ms += MINUTE_MS
        await harness.due.look()
        late = await refused(harness.undos.set_time(BEN, action.id, 60))
        assert late.message.startswith("It is already being undone, by ~")
        await released(harness)
        updated = [event for event in (await harness.feed.page(0, wait_s=0)).events if event.object_id == action.id]
        assert [event.type for event in updated][-6:] == ["action.ended", *["action.updated"] * 5]


async def approved(harness: Harness, *voters: Caller, **more: Any) -> Action:
    """A run of BlockHost by ANNA that these people approved and that has succeeded."""
    started = await harness.actions.start(ANNA, run_input(harness, **more))
    for voter in voters:
        await harness.actions.decide(voter, started.action.id, "approve")
    (await next_run(harness.engine)).finish(DONE)
    return await harness.ended(started.action.id)


async def extension_of(harness: Harness, action: Action) -> Extension:
    extension = (await undo_of(harness, action)).extension
    assert extension is not None
    return extension


async def test_an_extension_beyond_what_was_approved_takes_the_same_approval(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=2, undo_after_minutes=60) as harness:
        action, start = await approved(harness, BEN, LEAD, undoAfterMinutes=5), harness.clock.now_ms
        due = start + 5 * MINUTE_MS
        await harness.undos.set_time(ANNA, action.id, 60)
        extension = await extension_of(harness, action)
        assert (await undo_of(harness, action)).at == due
        assert (extension.asked_by, extension.at, extension.approval.needed, extension.approval.expires_at) == (
            ANNA.login,
            start + 60 * MINUTE_MS,
            2,
            due,
        )
        own = await refused(harness.actions.decide(ANNA, action.id, "approve", extension_id=extension.id))
        assert (
            own.message == "You asked for this extension; somebody else must approve or deny it. You can withdraw it."
        )
        await harness.actions.decide(BEN, action.id, "approve", extension_id=extension.id)
        assert (await undo_of(harness, action)).at == due
        # The votes of the run itself, and the same one twice, are none on this.
        await harness.actions.decide(BEN, action.id, "approve", extension_id=extension.id)
        assert (await undo_of(harness, action)).at == due
        undo = (await harness.actions.decide(LEAD, action.id, "approve", extension_id=extension.id)).undo
        assert undo is not None
        assert (undo.at, undo.approved_until) == (extension.at, extension.at)
        late = await refused(harness.actions.decide(LEAD, action.id, "approve", extension_id=extension.id))
        assert late.code == "conflict"
        # Earlier, and later again up to there, is for one person to decide.
        await harness.undos.set_time(ANNA, action.id, 1)
        await harness.undos.set_time(BEN, action.id, 60)
        assert (await undo_of(harness, action)).at == extension.at
        harness.clock.now_ms += MINUTE_MS
        await harness.undos.set_time(BEN, action.id, 60)
        assert (await undo_of(harness, action)).at == extension.at
        harness.clock.now_ms = start + 60 * MINUTE_MS
        await harness.due.look()
        await released(harness)
        assert (await extension_of(harness, action)).outcome == "lapsed"
        gone = await refused(
            harness.actions.decide(ANNA, action.id, "approve", extension_id=(await extension_of(harness, action)).id)
        )
        assert gone.code == "conflict"


async def test_an_extension_keeps_why_it_was_asked_for_as_the_audit_does(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1, undo_after_minutes=60) as harness:
        action = await approved(harness, BEN, undoAfterMinutes=5)
        measures = harness.measures
        await measures.extend(ANNA, action.id, End(harness.clock() + 60 * MINUTE_MS, "it beacons still"))
        assert (await extension_of(harness, action)).note == "it beacons still"
        sql = "SELECT what, text FROM audit JOIN audit_text USING (number) WHERE name = 'reason'"
        rows = await harness.database.read(lambda reads: reads.rows(sql))
        assert [(row["what"], row["text"]) for row in rows] == [("extension.requested", '"it beacons still"')]


async def test_an_extension_that_its_requester_may_no_longer_ask_for_is_not_approved(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1, undo_after_minutes=60) as harness:
        action = await approved(harness, BEN, undoAfterMinutes=5)
        due = (await undo_of(harness, action)).at
        await harness.undos.set_time(ANNA, action.id, 60)
        extension = await extension_of(harness, action)
        await harness.people.disable(COMMAND_LINE, "anna")
        error = await refused(harness.actions.decide(BEN, action.id, "approve", extension_id=extension.id))
        assert (error.code, "may no longer do so" in error.message) == ("conflict", True)
        assert (await undo_of(harness, action)).at == due


async def test_an_extension_that_is_denied_replaced_or_too_late_changes_nothing(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1, undo_after_minutes=60, allow_permanent=True) as harness:
        action, start = await approved(harness, BEN, undoAfterMinutes=5), harness.clock.now_ms
        due = start + 5 * MINUTE_MS
        for minutes in (10, 0):  # longer, and for ever
            await harness.undos.set_time(ANNA, action.id, minutes)
        first = await extension_of(harness, action)
        await harness.actions.decide(BEN, action.id, "deny", extension_id=first.id, message="no")
        denied = await extension_of(harness, action)
        assert (denied.outcome, denied.ended_by, denied.message) == ("denied", BEN.login, "no")
        await harness.undos.set_time(ANNA, action.id, 10)
        second = await extension_of(harness, action)
        old = await refused(harness.actions.decide(BEN, action.id, "approve", extension_id=first.id))
        assert old.message == "This extension no longer waits for approval; nothing was changed."
        await harness.undos.set_time(LEAD, action.id, 15)
        third = await extension_of(harness, action)
        assert (second.replaces, third.replaces, third.asked_before) == (None, second.id, ANNA.login)
        harness.clock.now_ms = due
        await harness.due.look()
        late = await refused(harness.actions.decide(BEN, action.id, "approve", extension_id=third.id))
        assert late.message == "This extension no longer waits for approval; nothing was changed."
        await released(harness)
        assert (await undo_of(harness, action)).status == "undone"


async def test_who_asked_for_an_extension_withdraws_it_until_it_is_decided(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1, undo_after_minutes=60, allow_permanent=True) as harness:
        action = await approved(harness, BEN, undoAfterMinutes=5)
        due = (await undo_of(harness, action)).at
        await harness.undos.set_time(BEN, action.id, 0)
        extension = await extension_of(harness, action)

        async def cancel(by: Caller, extension_id: str) -> Action:
            return await harness.actions.decide(by, action.id, "cancel", extension_id=extension_id, message="clean")

        own = await refused(harness.actions.decide(BEN, action.id, "approve", extension_id=extension.id))
        assert (
            own.message == "You asked for this extension; somebody else must approve or deny it. You can withdraw it."
        )
        other = await refused(cancel(ANNA, extension.id))  # who asked for the run
        assert (other.code, other.message) == ("forbidden", f"Only {BEN.login} or an administrator may cancel this.")
        assert (await refused(cancel(BEN, action.id))).code == "conflict"  # a run is no extension of itself
        both = await asyncio.gather(cancel(BEN, extension.id), cancel(LEAD, extension.id), return_exceptions=True)
        (late,) = [one for one in both if isinstance(one, ResponderBotError)]
        assert late.message == "This extension no longer waits for approval; nothing was changed."
        (by,) = [who.login for who, one in zip((BEN, LEAD), both, strict=True) if one is not late]
        ended = await extension_of(harness, action)
        assert (ended.outcome, ended.ended_by, ended.message) == ("cancelled", by, "clean")
        assert (await undo_of(harness, action)).at == due
        sql = "SELECT what, doc FROM audit WHERE what LIKE 'extension.%' ORDER BY number"
        rows = await harness.database.read(lambda reads: reads.rows(sql))
        assert [(row["what"], json.loads(row["doc"])["by"]) for row in rows] == [
            ("extension.requested", BEN.login),
            ("extension.cancelled", by),
        ]
        await harness.undos.set_time(BEN, action.id, 10)
        again = await extension_of(harness, action)
        harness.clock.now_ms = due or 0
        await harness.due.look()
        assert (await refused(cancel(BEN, again.id))).message == late.message
        await released(harness)


async def test_a_withdrawn_run_keeps_why(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.cancel(LEAD, action.id, "a lab host")
        ended = Action.model_validate_json(await harness.actions.get_json(action.id))
        assert (ended.outcome, ended.ended_by) == ("cancelled", LEAD.login)
        assert json.loads(ended.report)["message"] == f"Cancelled by {LEAD.login}: a lab host"


async def test_only_approvers_who_may_see_the_object_extend(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=2, undo_after_minutes=60) as harness:
        await harness.people.add("cy", "analyst")
        cy = caller("cy")
        action = await approved(harness, BEN, LEAD, undoAfterMinutes=5)
        await harness.undos.set_time(cy, action.id, 60)
        extension = await extension_of(harness, action)
        in_slack = replace(BEN, acted_through="bot@example.org")
        await harness.actions.decide(in_slack, action.id, "approve", extension_id=extension.id)
        await harness.people.set_clearance("ben", 1)
        low = await refused(
            harness.actions.decide(replace(in_slack, clearance=1), action.id, "approve", extension_id=extension.id)
        )
        assert low.code == "forbidden"
        undo = (await harness.actions.decide(LEAD, action.id, "approve", extension_id=extension.id)).undo
        assert undo is not None
        assert undo.extension is not None
        assert (undo.at, undo.extension.approval.approved_by) == (undo.approved_until, [LEAD.login])
        await harness.actions.decide(
            ANNA, action.id, "approve", extension_id=extension.id
        )  # who asked for the run, not for this
        assert (await undo_of(harness, action)).at == extension.at


async def test_a_release_by_hand_leaves_nothing_for_its_time_unless_it_fails(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action, due = await blocked(harness), harness.clock.now_ms + 60 * MINUTE_MS
        await harness.undos.undo(ANNA, action.id, UndoInput())
        harness.clock.now_ms = due
        await harness.due.look()  # somebody undoes it at this moment
        await released(harness, FAILED)
        assert (await undo_of(harness, action)).status == "failed"
        harness.clock.now_ms += RETRY_MS
        await harness.due.look()
        await released(harness)
        harness.clock.now_ms += 1_000 * MINUTE_MS
        await harness.due.look()
        assert ((await undo_of(harness, action)).status, runs_of(harness, RELEASE)) == ("undone", 2)


@pytest.mark.parametrize("begun", [False, True])
async def test_only_an_org_admin_cancels_a_timed_release(tmp_path: Path, begun: bool) -> None:
    """Else its requester would have for ever, alone, what was approved for five minutes."""
    release = None if begun else ResponderSection(approval=1)
    async with harness_with(tmp_path, release=release, approval=1, undo_after_minutes=5) as harness:
        action = await approved(harness, BEN)
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        by = (await undo_of(harness, action)).action_id or ""
        if begun:
            await next_run(harness.engine)
        alone = await refused(harness.actions.cancel(ANNA, by))
        assert (alone.code, alone.message) == (
            "forbidden",
            "Core undoes this at its time, so only an administrator may cancel it.",
        )
        await harness.actions.cancel(LEAD, by)
        assert (await harness.ended(by)).ended_by == LEAD.login
        assert (await undo_of(harness, action)).status == "failed"
        again = (await harness.undos.undo(ANNA, action.id, UndoInput())).action  # by hand
        if begun:
            await next_run(harness.engine)
        await harness.actions.cancel(ANNA, again.id)
        assert (await harness.ended(again.id)).ended_by == ANNA.login


async def test_a_timed_release_that_ran_and_failed_is_not_repeated_by_itself(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action = await blocked(harness)
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        failed = await released(harness, FAILED)
        harness.clock.now_ms += 10 * LAST_RETRY_MS
        assert await harness.due.look() == 0
        assert await undo_of(harness, action) == Undo(
            responder=RELEASE, after_minutes=60, status="failed", action_id=failed.id
        )


async def test_a_refused_release_says_why_is_told_once_and_tried_again(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action, due = await blocked(harness), harness.clock.now_ms + 60 * MINUTE_MS
        await harness.people.disable(COMMAND_LINE, "anna")
        before = await harness.feed.last()
        harness.clock.now_ms = due
        for _ in range(5):
            await harness.due.look()
            harness.clock.now_ms += RETRY_MS
        undo = await undo_of(harness, action)
        assert (undo.status, undo.at, undo.action_id) == ("waiting", due, None)
        assert undo.message == f"{ANNA.login} asked for this and may no longer run responders; undo it yourself."
        assert [event.type for event in (await harness.feed.page(before, wait_s=0)).events] == ["action.updated"]
        (part,) = await undo_parts(harness.undos)
        sentence = "1 run was to be undone by now and could not be; its `undo` says why. Core tries again."
        assert (part.name, part.ok, part.message) == ("timed undo", False, sentence)
        harness.clock.now_ms += 100 * LAST_RETRY_MS  # at the latest every hour
        await harness.people.enable(COMMAND_LINE, "anna")
        await harness.due.look()
        await released(harness)
        assert ((await undo_of(harness, action)).status, await undo_parts(harness.undos)) == ("undone", [])


async def test_a_clock_that_was_ahead_is_told_with_the_runs_that_follow_it(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        ended, right = await blocked(harness), harness.clock.now_ms
        assert await clock_parts(harness.database, harness.clock) == []
        harness.clock.now_ms = right + 90 * MINUTE_MS  # set forward
        await harness.due.look()
        await released(harness)
        lasts = await blocked(harness)
        assert await clock_parts(harness.database, harness.clock) == []
        harness.clock.now_ms = right + MINUTE_MS  # and right again
        (part,) = await clock_parts(harness.database, harness.clock)
        assert (part.name, part.ok) == ("clock", False)
        assert part.message.startswith(f"The newest event is of {as_time(right + 90 * MINUTE_MS)}, and this machine's")
        named = part.message.partition("look at ")[2].rstrip(".").split(", ")
        assert {ended.id, lasts.id} <= set(named)
        harness.clock.now_ms = right + 90 * MINUTE_MS
        assert await clock_parts(harness.database, harness.clock) == []


async def test_a_release_that_is_not_installed_can_be_run_by_hand_once_it_is(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action = await blocked(harness)
        harness.engine.offered = (BLOCK_HOST,)
        await harness.actions.runs._registry.refresh()
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        undo = await undo_of(harness, action)
        assert (undo.status, undo.message) == ("waiting", f"Responder {RELEASE} not found")
        harness.engine.offered = (BLOCK_HOST, RELEASE_HOST)
        await harness.actions.runs._registry.refresh()
        await harness.undos.undo(BEN, action.id, UndoInput())
        await released(harness)
        assert (await undo_of(harness, action)).status == "undone"


async def test_a_later_run_on_the_object_decides_when_it_is_undone(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        first = await blocked(harness)
        harness.clock.now_ms += 30 * MINUTE_MS
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        second = await next_run(harness.engine)
        harness.clock.now_ms += 30 * MINUTE_MS
        await harness.due.look()  # the second may still fail
        assert (await undo_of(harness, first)).status == "available"
        second.finish(DONE)
        await harness.ended(started.id)
        harness.clock.now_ms += RETRY_MS
        await harness.due.look()
        undo = await undo_of(harness, first)
        assert (undo.status, undo.at) == ("replaced", None)
        assert undo.message == f"{started.id} acts on the same and ends later, so that decides when it is undone."
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        assert (await released(harness)).undoes == started.id
        await harness.due.look()
        assert runs_of(harness, RELEASE) == 1


async def test_more_than_a_batch_that_is_due_is_undone_once_each_by_several_cores(tmp_path: Path) -> None:
    count = 2 * AT_ONCE + 20
    async with harness_with(tmp_path, undo_after_minutes=60) as harness, AsyncExitStack() as stack:
        alerts = Alerts(harness.database, harness.clock, "soc")
        fields = {"type": "siem", "source": "s", "title": "t", "description": "d"}
        for number in range(count):
            alert = await alerts.create(LEAD, AlertInput.model_validate({**fields, "sourceRef": f"n{number}"}))
            harness.alert_id = alert.id
            await blocked(harness)
        policies = {BLOCK: ResponderSection(undo=RELEASE)}
        others = [another_core(harness, engine(), policies=policies) for _ in range(2)]
        cores = [harness.due, *[(await stack.enter_async_context(other)).due for other in others]]
        harness.clock.now_ms += 60 * MINUTE_MS
        await asyncio.gather(*(core.look() for core in cores))
        counts = "SELECT count(*), count(DISTINCT undoes) FROM action WHERE undoes > 0"
        assert stores.rows(tmp_path / "core.db", counts) == [(count, count)]


@pytest.mark.sqlite
async def test_a_restored_backup_undoes_nothing_by_itself(tmp_path: Path) -> None:
    async with harness_with(tmp_path, undo_after_minutes=60) as harness:
        action = await blocked(harness)
        copy(tmp_path / "core.db", tmp_path / "backup.db", harness.clock.now_ms)
    restore_backup(tmp_path / "backup.db", tmp_path / "core.db")
    clock, other = SetClock(harness.clock.now_ms + 60 * MINUTE_MS), engine()
    async with opened(tmp_path / "core.db") as database, action_parts(database, clock, other) as core:
        await core.lifecycle.end_restored()
        assert await core.due.look() == 0
        undo = (await core.action(action.id)).undo
        assert await database.read(blocklist.held_since) is None  # of lists that nobody has, none has to wait
    assert undo is not None
    assert (undo.status, undo.at) == ("failed", None)
    assert str(undo.message).startswith("Core was restored from a backup of ")
    assert other.runs == []


async def test_the_rules_of_both_responders_hold_for_an_undo_and_its_time(tmp_path: Path) -> None:
    release = ResponderSection(run_by=("ben@example.org",), rate=("1/1h",))
    async with harness_with(tmp_path, release=release, undo_after_minutes=60, run_by=("anna@example.org",)) as harness:
        first, second = await blocked(harness), await blocked(harness)
        by_requester = await refused(harness.undos.undo(ANNA, first.id, UndoInput()))
        assert by_requester.code == "forbidden"
        extended = await refused(harness.undos.set_time(BEN, first.id, 60))
        assert extended.code == "forbidden"
        harness.clock.now_ms += 60 * MINUTE_MS
        await harness.due.look()
        assert (await undo_of(harness, first)).status == "replaced"
        undo = await undo_of(harness, second)
        assert (undo.status, "only ben@example.org may run it" in str(undo.message)) == ("waiting", True)
        await harness.undos.undo(BEN, first.id, UndoInput())
        await released(harness)
        assert [(await undo_of(harness, one)).status for one in (first, second)] == ["undone", "undone"]
        third = await blocked(harness)
        too_often = await refused(harness.undos.undo(BEN, third.id, UndoInput()))
        assert (too_often.code, (await undo_of(harness, third)).status) == ("rate_limited", "available")
        harness.clock.now_ms += 61 * MINUTE_MS
        await harness.undos.undo(BEN, third.id, UndoInput())
        await released(harness)
        assert (await undo_of(harness, third)).status == "undone"


# --- over HTTP --------------------------------------------------------------------------------------------------------

STEPS = {"Block": {"undo": "Release_1_0", "undo_after_minutes": 30}, "Release": {}}


def come(setup: CoreSetup) -> None:
    """Let the time of all timed runs have come while no core runs."""
    assert stores.rows(setup.database, "UPDATE due SET at = 1 WHERE kind = 'undo' RETURNING id")


async def undone(core: CoreProcess, action_id: str) -> Action:
    """The action, once it is undone."""
    page = await core.client().events(None, 0)
    while True:
        action = await core.client().action(action_id)
        assert action.undo is not None
        if action.undo.status == "undone":
            return action
        page = await core.client().events(page.last, 20)


async def test_a_timed_run_is_undone_once_though_every_core_was_down_and_several_start(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders=STEPS)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        body = run_body(alert, "Block_1_0", parameters={"runs": str(setup.runs("block"))})
        action = await core.client().run(body)
        assert (await core.ended(action.id)).undo is not None
        path = f"/api/connector/engine/action/{action.id}/undo"
        answers = [await core.send("PATCH", path, {"undoAfterMinutes": minutes}) for minutes in (31, 20)]
        assert [answer.status_code for answer in answers] == [400, 200]
        assert answers[1].json()["undo"]["at"]
        await core.kill()
    come(setup)
    async with core_process(setup) as first, core_process(setup, "second") as second:
        await undone(first, action.id)
        await first.kill()
        with pytest.raises(ResponderBotError) as late:
            await second.client().undo(action.id)
        assert late.value.details["action"]["undoes"] == action.id
        listed = await second.client().actions("alert", alert)
        found = (await second.client().documents([alert])).documents[0]
    assert [one.responder_name for one in listed] == ["Release_1_0", "Block_1_0"]
    assert (found.titles["Release_1_0"], found.policies["Block_1_0"].undo) == ("Release", "Release_1_0")


async def test_core_killed_while_it_undoes_undoes_once(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders=STEPS)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        parameters = {"runs": str(setup.runs("release")), "steps": ["count", f"wait {pipe}", "write"]}
        action = await core.client().run(run_body(alert, "Block_1_0", parameters={"steps": ["write"]}))
        await core.ended(action.id)
        undoing = await core.client("ben").undo(action.id, parameters, idempotency_key="k")
        await until(lambda: setup.counted("release"), "the release")
        await core.kill()
    async with core_process(setup) as core:
        again = await core.client("ben").undo(action.id, parameters, idempotency_key="k")
        await write_pipe(pipe)
        assert (await core.ended(undoing.id)).status == "Success"
        undo = (await core.client().action(action.id)).undo
    assert again.id == undoing.id
    assert undo is not None
    assert (undo.status, setup.counted("release")) == ("undone", 1)


async def test_who_may_not_run_responders_may_not_undo_or_change_the_time(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(undo=CLOSE)}) as core:
        body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        alert = (await core.send("POST", "/api/alert", body)).json()["id"]
        run = {"responderId": CLOSE, "objectType": "alert", "objectId": alert}
        action = (await core.send("POST", ACTION, run, profile="analyst")).json()["id"]
        path, time = f"{ACTION}/{action}/undo", {"undoAfterMinutes": 5}
        answers = [
            await core.send("POST", path, profile="read-only"),
            await core.send("PATCH", path, time, profile="read-only"),
            await core.send("PATCH", path, {"undoAfterMinutes": -1}),
            await core.send("POST", f"{ACTION}/~999/undo"),
            await core.send("PATCH", f"{ACTION}/~999/undo", time),
        ]
        assert [answer.status_code for answer in answers] == [403, 403, 400, 404, 404]
        health = (await core.send("GET", "/health")).json()
    (part,) = [part for part in health["parts"] if part["name"] == "responder settings"]
    place = f'The settings\' [responder."{CLOSE}"] undo names'
    assert part["message"] == f"{place} the responder itself; name the one that undoes its runs."


async def test_a_blocked_address_is_released_by_its_undo(tmp_path: Path) -> None:
    artifact = {"dataType": "ip", "data": "198.51.100.7"}
    body = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d", "artifacts": [artifact]}
    async with running_core(tmp_path) as core:
        target = (await core.send("POST", "/api/alert", body)).json()["artifacts"][0]["id"]
        async with CoreClient(core.url, await core.key("analyst")) as client:
            run = {"responderId": "ResponderBot_Block_1_0", "objectType": "case_artifact", "objectId": target}
            action = await client.run(run)
            await over(client, action.id)
            before = (await core.send("GET", "/api/blocklist/ip.txt")).text
            alert = (await client.object_in_context("case_artifact", target)).root_id
            await client.create_case_from_alert(alert)  # its artifact moves
            undoing = await client.undo(action.id)
            assert (await over(client, undoing.id)).status == "Success"
            undo = (await client.action(action.id)).undo
        after = (await core.send("GET", "/api/blocklist/ip.txt")).text
    assert (before, after) == ("198.51.100.7\n", "")
    assert undo is not None
    assert undo.status == "undone"


async def over(client: CoreClient, action_id: str) -> Action:
    """The action, once it has ended."""
    while True:
        action = await client.action(action_id, wait_s=20)
        if action.end_date is not None:
            return action


# --- settings ---------------------------------------------------------------------------------------------------------


def test_an_undo_that_cannot_be_used_is_told() -> None:
    found = [Catalogue((BLOCK_HOST, RELEASE_HOST), (Skipped("Broken_1_0", "No file."),))]
    place = f'The settings\' [responder."{BLOCK}"] undo names'
    named = {
        name: settings_problems({BLOCK: ResponderSection(undo=name)}, found)
        for name in (RELEASE, "RelaseHost_1_0", "Broken_1_0")
    }
    assert named == {
        RELEASE: [],
        "RelaseHost_1_0": [
            f'{place} "RelaseHost_1_0", which no engine knows, so nothing undoes its runs; did you mean "{RELEASE}"?'
        ],
        "Broken_1_0": [f"{place} Broken_1_0, which can't be used, so nothing undoes its runs; correct that first."],
    }


def test_a_time_without_an_undo_is_refused_at_start(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'[responder."{BLOCK}"]\nundo_after_minutes = 5\n')
    with pytest.raises(ResponderBotError) as error:
        load(file, {})
    assert "undo_after_minutes has no effect without undo" in error.value.message
