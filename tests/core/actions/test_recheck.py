"""Rights, `[protect]`, TLP and rates that change between the record of a run, its votes and its dispatch."""

from collections import Counter
from pathlib import Path

import pytest

from core.authorization import COMMAND_LINE
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import Action, ArtifactsInput, CaseInput, CaseUpdate
from core.records.cases import Cases
from tests import statements, stores
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness
from tests.core.actions.test_guards import finish, message_of, restarted, rules, started, stop, take_over
from tests.core.scripted_engine import ScriptedEngine

PROTECTED, DC = ["10.0.0.0/8"], {"dataType": "ip", "data": "10.1.2.3"}
CHANGES = ("rights", "protect", "tlp")
SAID = {
    "rights": "anna@example.org asked for this and may no longer run responders",
    "protect": "is protected (10.0.0.0/8)",
    "tlp": "since this was asked for, so it did not run",
}


async def on_case(harness: Harness) -> tuple[Action, str]:
    """A run on a new case, which ANNA asks for; the id of the case."""
    case = await Cases(harness.database, harness.clock).create(LEAD, CaseInput(title="t", description="d"))
    return await started(harness, objectType="case", objectId=case.id), case.id


async def change(harness: Harness, what: str, case: str) -> None:
    cases = Cases(harness.database, harness.clock)
    if what == "rights":
        await harness.people.disable(COMMAND_LINE, "anna")
    elif what == "protect":
        await cases.add_artifacts(LEAD, case, ArtifactsInput.model_validate(DC))
    else:
        await cases.update_case(LEAD, case, CaseUpdate.model_validate({"tlp": 3}))


@pytest.mark.parametrize("what", CHANGES)
async def test_a_vote_looks_again_at_what_was_recorded(tmp_path: Path, what: str) -> None:
    async with open_harness(tmp_path, policies=rules(approval=1), protected=PROTECTED) as harness:
        action, case = await on_case(harness)
        await change(harness, what, case)
        with pytest.raises(ResponderBotError, match="did not run") as error:
            await harness.actions.decide(BEN, action.id, "approve")
        assert (error.value.code, SAID[what] in error.value.message) == ("conflict", True)
        assert not harness.engine.runs


@pytest.mark.parametrize("needed", [0, 1])
@pytest.mark.parametrize("what", CHANGES)
async def test_a_dispatch_looks_again_at_what_was_recorded_and_approved(tmp_path: Path, what: str, needed: int) -> None:
    engine = ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=engine, policies=rules(approval=needed), protected=PROTECTED) as harness:
        first, (second, case) = await started(harness), await on_case(harness)
        for action in (first, second) if needed else ():
            await harness.actions.decide(BEN, action.id, "approve")
        begun = await next_run(engine)  # of the first, so the change can't keep that from beginning
        await change(harness, what, case)
        begun.finish(Report(True))
        assert SAID[what] in await message_of(harness, second)
        assert len(engine.runs) == 1


async def test_a_dispatch_looks_again_at_who_approved(tmp_path: Path) -> None:
    engine = ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, engine=engine, policies=rules(approval=1)) as harness:
        first, (second, _) = await started(harness), await on_case(harness)
        for action in (first, second):
            await harness.actions.decide(BEN, action.id, "approve")
        begun = await next_run(engine)
        await harness.people.disable(COMMAND_LINE, "ben")
        begun.finish(Report(True))
        said = "ben@example.org approved this and may no longer run responders, so it did not run"
        assert said in await message_of(harness, second)
        assert len(engine.runs) == 1


async def test_a_dispatch_counts_the_rate_of_now_after_the_last_vote(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1), policies=rules(approval=1)) as harness:
        actions = [await started(harness), await started(harness)]
        for action in actions:
            await harness.actions.decide(BEN, action.id, "approve")
        await stop(harness)
        async with restarted(harness, policies=rules(approval=1, rate=["1/1h"])) as core:
            await take_over(harness, core)
            assert "did not run: the limit of 1 run in 1 hour is reached" in await message_of(harness, actions[1])


async def test_the_next_core_goes_on_with_what_has_begun_whoever_lost_their_rights(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        action = await started(harness)
        await stop(harness)
        await harness.people.disable(COMMAND_LINE, "anna")
        async with restarted(harness) as core:
            await core.runner.tick()
            run = await next_run(harness.engine)
            assert (run.job.resumed, run.job.cancelled) == (True, False)
            run.finish(Report(True))
            assert (await core.ended(action.id)).status == "Success"


async def test_who_lost_their_rights_after_authentication_starts_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.people.disable(COMMAND_LINE, "anna")
        with pytest.raises(ResponderBotError, match="has no access any more"):
            await started(harness)
        assert not await harness.actions.newest("ended", ANNA.login, 0, 1)


async def test_a_run_that_starts_at_once_is_judged_once(tmp_path: Path) -> None:
    with stores.using("sqlite"), statements.counted() as counts:
        async with open_harness(tmp_path, engine=ScriptedEngine(at_once=9), policies=rules(rate=["9/1h"])) as harness:
            await started(harness)
            before = Counter(counts)
            await started(harness)
            asked = counts - before
            await finish(harness)
    rates = [number for sql, number in asked.items() if "dispatched_at AS at FROM action" in sql]
    assert rates == [1]
