"""A request says what else is on its target, so that it is told when that ends, however many others wait."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.actions import measures
from core.actions.approvals import Choice
from core.actions.decided import RECENT_MS
from core.actions.documents import Documents
from core.actions.in_force import waiting_on
from core.authorization import Caller
from core.common.database import Reads
from core.models import Action, BulkInput, RunTarget, UndoInput
from core.store import actions as stored
from core.store import events
from tests import statements, stores
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, run_input
from tests.core.actions.test_measures import HOST, alert_with, harness_with
from tests.core.actions.test_undo import BLOCK, DONE, MINUTE_MS, released

UP_TO_GREEN = replace(LEAD, clearance=1, is_key_bound=True)


async def asked(harness: Harness, hosts: list[str]) -> tuple[str, list[str]]:
    """A bulk that asks to block each of these, each of an alert of its own; its id, and those of its runs."""
    alerts = [
        await alert_with(harness, {**HOST, "data": host}, sourceRef=f"{host} {harness.clock()}") for host in hosts
    ]
    harness.clock.now_ms += 1
    targets = [RunTarget(object_type="alert", object_id=id_) for id_ in alerts]
    outcomes = await harness.bulks.start(ANNA, BulkInput(responder_id=BLOCK, targets=targets))
    return outcomes.id, [json.loads(str(doc))["id"] for _, doc in outcomes.targets]


async def started(harness: Harness, alert_id: str, **more: Any) -> Action:
    asks = run_input(harness, objectId=alert_id, undoAfterMinutes=60, **more)
    return (await harness.actions.start(ANNA, asks)).action


async def told_since(harness: Harness, seq: int) -> list[str]:
    """The runs that the feed names as changed."""
    rows = await harness.database.read(lambda reads: events.after(reads, seq, 1_000))
    return [f"~{row['object_id']}" for row in rows if row["type"] == "action.updated"]


async def already(harness: Harness, action_id: str) -> list[tuple[str, str]]:
    """What a request says of others on its target: the state and the run of each."""
    documents = Documents(harness.parts, harness.feed)
    answer = json.loads(await documents.of_ids(LEAD, [action_id], with_responders=False))
    return [(one["state"], one["actions"][0]) for one in answer["documents"][0]["already"][action_id]]


async def test_a_bulk_that_is_denied_asks_once_who_waits_beside_it_and_reads_only_those(tmp_path: Path) -> None:
    with stores.using("sqlite"), statements.counted() as counts:
        async with harness_with(tmp_path, approval=1) as harness:
            for first in (0, 100):
                await asked(harness, [f"other-{number}" for number in range(first, first + 100)])
            bulk, runs = await asked(harness, [f"srv-{number}" for number in range(100)])
            _, (beside, *_) = await asked(harness, ["srv-7", "other-7"])
            last = await harness.database.read(events.last)
            counts.clear()
            await harness.bulks.decide(BEN, bulk, "deny")
            assert [number for sql, number in counts.items() if "AND named.target IN" in sql] == [1]
            assert await told_since(harness, last) == [beside]
            on = await harness.database.read(lambda reads: stored.targets_of(reads, int(runs[7][1:])))
            found = await harness.database.read(lambda reads: waiting_on(reads, on))
            assert [run.id for run, _, _ in found] == [beside]


async def test_a_request_reads_no_more_of_the_others_on_its_target_than_it_names(tmp_path: Path) -> None:
    with stores.using("sqlite"), statements.counted() as counts:
        async with harness_with(tmp_path, approval=1) as harness:
            runs = [await started(harness, await alert_with(harness, HOST, sourceRef=f"alert {n}")) for n in range(30)]

            def read(reads: Reads) -> int:
                others = waiting_on(reads, stored.targets_of(reads, runs[0].number))
                assert len(others) == len(runs)
                return len(measures.beside(reads, runs[0], others, 3, harness.parts.registry))

            counts.clear()
            assert await harness.database.read(read) == measures.MOST_ASKED
            levels = [number for sql, number in counts.items() if "FROM alert_artifact" in sql]
            assert levels == [measures.MOST_ASKED]


async def test_what_waits_is_told_once_the_time_of_another_run_on_its_host_is_over(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        contained = await started(harness, harness.alert_id)
        await harness.actions.decide(BEN, contained.id, "approve")
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(contained.id)
        harness.clock.now_ms += 30 * MINUTE_MS
        waiting = await started(harness, await alert_with(harness, HOST))
        elsewhere = await started(
            harness, await alert_with(harness, {**HOST, "data": "elsewhere"}, sourceRef="elsewhere")
        )
        assert await already(harness, waiting.id) == [("in_force", contained.id)]
        last = await harness.database.read(events.last)
        harness.clock.now_ms += 30 * MINUTE_MS
        await harness.due.look()
        undo = await released(harness)
        assert await already(harness, waiting.id) == [("ended", undo.id)]
        told = await told_since(harness, last)
        assert (told.count(waiting.id), told.count(elsewhere.id)) == (1, 0)


async def decided(harness: Harness, action_id: str, reader: Caller = LEAD) -> list[tuple[str, int, int, int]]:
    """What a request says of who decided against the same: the run, how often, and the levels to know and read it."""
    documents = Documents(harness.parts, harness.feed)
    answer = json.loads(await documents.of_ids(reader, [action_id], with_responders=False))
    names = ("times", "clearance", "clearanceOfTexts")
    found = answer["documents"][0]["decided"][action_id]
    return [(one["id"], *(one["earlier"][name] for name in names)) for one in found]


async def test_a_request_says_who_decided_against_the_same_on_its_target_for_whatever_alert(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:

        async def denied(reference: str, *artifacts: Any, tlp: int = 1) -> str:
            alert_id = await alert_with(harness, *artifacts, sourceRef=reference, tlp=tlp)
            run = await started(harness, alert_id)
            await harness.actions.decide(BEN, run.id, "deny", message="Not now")
            harness.clock.now_ms += MINUTE_MS
            return run.id

        host = {**HOST, "tlp": 1}
        await denied("old", host)
        harness.clock.now_ms += RECENT_MS
        first = await started(harness, harness.alert_id)
        assert await decided(harness, first.id) == []
        low = await denied("low", host, {"dataType": "ip", "data": "198.51.100.1", "tlp": 2})
        high = await denied("high", host, tlp=2)
        await denied("elsewhere", {**host, "data": "elsewhere"})
        waiting = await started(harness, await alert_with(harness, host, sourceRef="waiting", tlp=1))
        all_levels = [(low, 1, 1, 2), (high, 2, 2, 2), (low, 2, 2, 2)]
        for run in (waiting, first):  # also what was decided since it was asked for
            assert await decided(harness, run.id) == all_levels
            assert await decided(harness, run.id, UP_TO_GREEN) == all_levels[:1]
        seen = await harness.actions.decided(UP_TO_GREEN, BLOCK, [waiting.object_id])
        assert [one.id for one in seen] == [low]


async def test_what_was_denied_on_one_target_of_a_request_hides_nothing_that_was_on_the_other(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        other = {**HOST, "data": "other"}
        denied = list[str]()
        for number, host in enumerate([other, *[HOST] * 10]):
            run = await started(harness, await alert_with(harness, host, sourceRef=f"alert {number}"))
            await harness.actions.decide(BEN, run.id, "deny", message="Not now")
            harness.clock.now_ms += MINUTE_MS
            denied.append(run.id)
        both = await alert_with(harness, HOST, other, sourceRef="both")
        waiting = await started(harness, both, target=[HOST["data"], "other"])
        assert {one[0] for one in await decided(harness, waiting.id)} == {denied[0], *denied[-3:]}


async def test_what_somebody_may_not_see_hides_no_older_denial_that_they_may(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        host, denied = {**HOST, "tlp": 1}, list[str]()
        for number, tlp in enumerate([1, *[2] * 10]):
            run = await started(harness, await alert_with(harness, host, sourceRef=f"alert {number}", tlp=tlp))
            await harness.actions.decide(BEN, run.id, "deny", message="Not now")
            harness.clock.now_ms += MINUTE_MS
            denied.append(run.id)
        waiting = await started(harness, await alert_with(harness, host, sourceRef="waiting", tlp=1))
        seen = await harness.actions.decided(UP_TO_GREEN, BLOCK, [waiting.object_id])
        assert [one.id for one in seen] == denied[:1]
        newest = [(one, 11, 2) for one in denied[:-4:-1]]  # whose reasons are said
        assert [one[:3] for one in await decided(harness, waiting.id)] == [(denied[0], 1, 1), *newest]


async def test_what_ended_on_time_hides_nothing_that_somebody_undid(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        runs = list[Action]()
        for number in range(11):
            run = await started(harness, await alert_with(harness, HOST, sourceRef=f"alert {number}"))
            (await next_run(harness.engine)).finish(DONE)
            runs.append(await harness.ended(run.id))
            harness.clock.now_ms += 60 * MINUTE_MS if number else MINUTE_MS
            await (harness.due.look() if number else harness.undos.undo(LEAD, run.id, UndoInput()))
            await released(harness)
        found = await harness.actions.decided(LEAD, BLOCK, [harness.alert_id])
        assert [one.id for one in found] == [runs[0].id]


async def test_a_request_says_who_undid_the_same_for_another_alert_unless_it_is_in_force(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        runs = list[Action]()
        for _ in range(2):
            run = await started(harness, await alert_with(harness, HOST, sourceRef=f"alert {len(runs)}"))
            await harness.actions.decide(BEN, run.id, "approve")
            (await next_run(harness.engine)).finish(DONE)
            runs.append(await harness.ended(run.id))
            if len(runs) == 1:
                harness.clock.now_ms += MINUTE_MS
                await harness.undos.undo(LEAD, run.id, UndoInput())
                await released(harness)
                waiting = await started(harness, harness.alert_id)
                # As one without approval, or from before its targets were kept: what it left names them, too.
                await harness.database.transaction(lambda tx: tx.run("DELETE FROM action_target"))
                assert await decided(harness, waiting.id) == [(runs[0].id, 1, 2, 2)]
        assert await decided(harness, waiting.id) == []


async def test_what_was_denied_or_undone_is_said_no_more_once_the_same_was_approved_for_all_who_may_see_that(
    tmp_path: Path,
) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        host, deeds = {**HOST, "tlp": 1}, list[str]()
        choices: list[tuple[Choice, int]] = [("deny", 1), ("approve", 2), ("deny", 2), ("approve", 1)]
        for number, (choice, tlp) in enumerate(choices):
            run = await started(harness, await alert_with(harness, host, sourceRef=f"alert {number}", tlp=tlp))
            await harness.actions.decide(BEN, run.id, choice, message="Not now")
            if choice == "approve":
                (await next_run(harness.engine)).finish(DONE)
                await harness.ended(run.id)
            deeds.append(run.id)
            harness.clock.now_ms += MINUTE_MS
            waiting = await started(harness, await alert_with(harness, host, sourceRef=f"waiting {number}", tlp=1))
            said = [deeds[:1], deeds[:1], [*deeds[:3:2], deeds[0]], []][number]
            assert [one[0] for one in await decided(harness, waiting.id)] == said
            await harness.actions.cancel(ANNA, waiting.id)


async def test_what_was_not_ticked_is_no_refused_request_in_the_audit(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        bulk, (_, healthy) = await asked(harness, ["sick", "healthy"])
        await harness.bulks.decide(BEN, bulk, "deny", shown=[healthy], message="Healthy backup")
        rows = await harness.database.read(lambda reads: reads.rows("SELECT what FROM audit"))
        assert "request.refused" not in [row["what"] for row in rows]
