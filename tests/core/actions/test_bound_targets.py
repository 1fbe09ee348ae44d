"""A run gets the target that it was asked for with, and no other; if that has changed, it is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.documents import Documents
from core.actions.in_force import LAST_RETRY_MS
from core.common.errors import ResponderBotError
from core.engines.base import Job, Report
from core.models import Action, AlertUpdate, ArtifactsInput, ArtifactUpdate, CaseInput, CaseUpdate, Kind, UndoInput
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.settings import ResponderSection
from tests.core.actions.every_kind import objects_of_every_kind
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness, run_input
from tests.core.actions.test_undo import BLOCK, DONE, MINUTE_MS, RELEASE, engine, released
from tests.core.scripted_engine import NOTIFY, ScriptedEngine

IP, DOMAIN, FILE = (
    {"dataType": "ip", "data": "198.51.100.7"},
    {"dataType": "domain", "data": "evil.example"},
    {"dataType": "file", "data": "invoice.txt;text/plain;aGVsbG8="},
)
PROTECTED = {"dataType": "ip", "data": "10.0.0.5"}
RESPONDER = NOTIFY.name


def asking(needed: int = 2) -> Mapping[str, ResponderSection]:
    return {RESPONDER: ResponderSection(approval=needed)}


async def change(harness: Harness, **fields: Any) -> None:
    alerts = Alerts(harness.database, harness.clock, "soc")
    await alerts.update(LEAD, harness.alert_id, AlertUpdate.model_validate(fields))


async def asked(harness: Harness, **more: Any) -> Action:
    return (await harness.actions.start(ANNA, run_input(harness, RESPONDER, **more))).action


async def job_of(harness: Harness) -> Job:
    run = await next_run(harness.engine)
    run.finish(DONE)
    await harness.ended(run.job.action_id)
    return run.job


async def refusal(harness: Harness, action: Action) -> str:
    """The sentence of a vote that ends the run."""
    with pytest.raises(ResponderBotError) as error:
        await harness.actions.decide(BEN, action.id, "approve")
    assert error.value.code == "conflict"
    ended = await harness.ended(action.id)
    assert (ended.status, ended.outcome, ended.dispatched_at) == ("Failure", "failed", None)
    assert json.loads(ended.report)["message"] == error.value.message
    assert not harness.engine.runs
    return error.value.message


def data_in(alert: Mapping[str, Any]) -> list[str]:
    return [artifact.get("data") or artifact["attachment"]["name"] for artifact in alert["artifacts"]]


# --- what it gets -----------------------------------------------------------------------------------------------------


async def test_what_comes_between_two_votes_is_not_passed_on_and_voids_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(), artifacts=[IP, FILE]) as harness:
        before = json.loads(await harness.alert_json())
        action = await asked(harness, parameters={"minutes": 5})
        await harness.actions.decide(BEN, action.id, "approve")
        many = [{"dataType": "ip", "data": f"192.0.2.{number}"} for number in range(199)]
        await change(harness, artifacts=[IP, *many, FILE], tags=["x"], title="another", customFields={"host": "dc01"})
        await change(harness, assignee=BEN.login, artifacts=[{**IP, "tags": ["y"], "message": "m"}, *many, FILE])
        await harness.actions.decide(LEAD, action.id, "approve")
        job = await job_of(harness)
        assert job.data == before
        assert data_in(job.data) == ["198.51.100.7", "invoice.txt"]
        assert job.parameters["minutes"] == 5


async def test_a_run_that_needs_no_approval_is_bound_as_well_while_it_waits_for_a_slot(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1), artifacts=[IP]) as harness:
        before = json.loads(await harness.alert_json())
        await asked(harness)
        first = await next_run(harness.engine)
        second, third = await asked(harness), await asked(harness)
        await change(harness, artifacts=[IP, DOMAIN], tags=["x"])
        first.finish(DONE)
        assert (await next_run(harness.engine)).job.data == before
        await change(harness, artifacts=[DOMAIN])
        harness.engine.runs[1].finish(DONE)
        assert (await harness.ended(second.id)).status == "Success"
        ended = await harness.ended(third.id)
        assert "was removed from" in json.loads(ended.report)["message"]
        assert len(harness.engine.runs) == 2


async def test_the_same_artifacts_under_other_ids_are_no_change(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(1), artifacts=[IP, FILE]) as harness:
        before = json.loads(await harness.alert_json())
        action = await asked(harness)
        await change(harness, artifacts=[DOMAIN])
        await change(harness, artifacts=[IP, DOMAIN, FILE])
        await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, harness.alert_id)
        await harness.actions.decide(BEN, action.id, "approve")
        assert (await job_of(harness)).data == before


async def test_a_run_on_an_artifact_gets_no_other_artifact_of_its_alert(tmp_path: Path) -> None:
    async with open_harness(tmp_path, artifacts=[IP, DOMAIN]) as harness:
        artifact = json.loads(await harness.alert_json())["artifacts"][1]
        await asked(harness, objectType="case_artifact", objectId=artifact["id"])
        job = await job_of(harness)
        assert (job.data["data"], job.data["alert"]["id"]) == ("evil.example", harness.alert_id)
        assert data_in(job.data["alert"]) == ["evil.example"]


@pytest.mark.parametrize("kind", ["case", "case_task", "case_task_log", "case_artifact"])
async def test_what_is_in_a_case_is_bound_too(tmp_path: Path, kind: Kind) -> None:
    async with objects_of_every_kind(tmp_path, policies=asking(1)) as objects:
        harness, case, cases = objects.harness, objects.ids["case"], objects.cases
        action = await asked(harness, objectType=kind, objectId=objects.ids[kind])
        await cases.update_case(LEAD, case, CaseUpdate(title="another", tags=["x"]))
        await cases.add_artifacts(LEAD, case, ArtifactsInput(data_type="ip", data=["10.0.0.5"]))
        await harness.actions.decide(BEN, action.id, "approve")
        job = await job_of(harness)
        assert job.data["id"] == objects.ids[kind]
        assert "another" not in json.dumps(job.data)


@pytest.mark.parametrize("kind", ["case", "case_task", "case_task_log"])
async def test_a_raised_level_in_a_case_ends_the_run(tmp_path: Path, kind: Kind) -> None:
    async with objects_of_every_kind(tmp_path, policies=asking(1)) as objects:
        harness, case, cases = objects.harness, objects.ids["case"], objects.cases
        (ip,) = await cases.add_artifacts(LEAD, case, ArtifactsInput(data_type="ip", data=["10.0.0.5"]))
        first, second = [await asked(harness, objectType=kind, objectId=objects.ids[kind]) for _ in range(2)]
        await cases.update_artifact(LEAD, ip.id, ArtifactUpdate(tlp=3))
        assert (await refusal(harness, first)).startswith(f"The TLP of {ip.id} was raised to RED since")
        await cases.update_case(LEAD, case, CaseUpdate(tlp=3))
        assert (await refusal(harness, second)).startswith(f"The TLP of {objects.ids[kind]} was raised to RED since")


# --- what ends it -----------------------------------------------------------------------------------------------------


async def test_a_removed_artifact_ends_the_run_at_the_next_vote(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(), artifacts=[IP, DOMAIN, FILE]) as harness:
        (ip, *_) = json.loads(await harness.alert_json())["artifacts"]
        one, several = await asked(harness), await asked(harness)
        await change(harness, artifacts=[DOMAIN, FILE])
        assert await refusal(harness, one) == (
            f"The observable {ip['id']} was removed from {harness.alert_id} since this was asked for, so it did not"
            " run; ask again if it is still needed."
        )
        await change(harness, artifacts=[PROTECTED])
        assert "3 observables were removed from" in await refusal(harness, several)


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"tlp": 3}, "The TLP of {alert} was raised to RED"), ({"pap": 3}, "The PAP of {alert} was raised to RED")],
)
async def test_a_raised_level_ends_the_run_at_the_next_vote(tmp_path: Path, changed: dict[str, Any], what: str) -> None:
    async with open_harness(tmp_path, policies=asking(), artifacts=[IP]) as harness:
        action = await asked(harness)
        await change(harness, **changed)
        assert (await refusal(harness, action)).startswith(what.format(alert=harness.alert_id))


async def test_a_raised_level_of_an_artifact_ends_the_run_and_a_lowered_one_does_not(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(1), artifacts=[IP, DOMAIN]) as harness:
        ip, _ = json.loads(await harness.alert_json())["artifacts"]
        raised, lowered = await asked(harness), await asked(harness)
        cases = Cases(harness.database, harness.clock)
        await cases.update_artifact(LEAD, ip["id"], ArtifactUpdate(tlp=3))
        assert (await refusal(harness, raised)).startswith(f"The TLP of {ip['id']} was raised to RED since")
        await cases.update_artifact(LEAD, ip["id"], ArtifactUpdate(tlp=0))
        await change(harness, tlp=0)
        await harness.actions.decide(BEN, lowered.id, "approve")
        assert (await job_of(harness)).tlp == 2


@pytest.mark.parametrize("in_case", [False, True])
async def test_another_data_type_of_its_artifact_ends_the_run(tmp_path: Path, in_case: bool) -> None:
    async with open_harness(tmp_path, policies=asking(1), artifacts=[IP]) as harness:
        (ip,) = json.loads(await harness.alert_json())["artifacts"]
        action = await asked(harness, objectType="case_artifact", objectId=ip["id"])
        if in_case:
            await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, harness.alert_id)
        cases = Cases(harness.database, harness.clock)
        await cases.update_artifact(LEAD, ip["id"], ArtifactUpdate(data_type="other"))
        assert (await refusal(harness, action)).startswith(
            f"The data type of {ip['id']} was changed from ip to other since"
        )


async def test_the_level_of_what_an_artifact_belongs_to_counts(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(1), artifacts=[IP]) as harness:
        (ip,) = json.loads(await harness.alert_json())["artifacts"]
        action = await asked(harness, objectType="case_artifact", objectId=ip["id"])
        await change(harness, tlp=3)
        assert (await refusal(harness, action)).startswith(f"The TLP of {harness.alert_id} was raised to RED since")


# --- undo -------------------------------------------------------------------------------------------------------------


@dataclass
class Blocked:
    """A run of BlockHost on the alert that has succeeded."""

    harness: Harness
    action: Action
    job: Job

    async def undone(self) -> Job:
        run = await next_run(self.harness.engine)
        assert run.job.responder_name == RELEASE
        run.finish(Report(True))
        assert (await self.harness.ended(run.job.action_id)).status == "Success"
        return run.job


async def blocked(harness: Harness, **more: Any) -> Blocked:
    started = await harness.actions.start(ANNA, run_input(harness, **more))
    run = await next_run(harness.engine)
    run.finish(DONE)
    return Blocked(harness, await harness.ended(started.action.id), run.job)


def undoable(**block: Any) -> dict[str, Any]:
    policies = {BLOCK: ResponderSection(undo=RELEASE, **block)}
    return {"engine": engine(), "policies": policies, "protected": ["10.0.0.0/8"], "artifacts": [IP, DOMAIN]}


async def test_an_undo_gets_what_the_run_got_and_no_protected_target_that_came_later(tmp_path: Path) -> None:
    async with open_harness(tmp_path, **undoable()) as harness:
        run = await blocked(harness)
        await change(harness, artifacts=[IP, PROTECTED], tags=["x"])
        with pytest.raises(ResponderBotError, match="is protected"):
            await harness.actions.start(ANNA, run_input(harness, RELEASE))
        await harness.undos.undo(BEN, run.action.id, UndoInput())
        assert (await run.undone()).data == run.job.data


async def test_core_itself_undoes_with_what_the_run_got(tmp_path: Path) -> None:
    async with open_harness(tmp_path, **undoable(undo_after_minutes=60)) as harness:
        run = await blocked(harness)
        await change(harness, artifacts=[PROTECTED])
        harness.clock.now_ms += 60 * MINUTE_MS
        assert await harness.due.look() == 1
        assert (await run.undone()).data == run.job.data


async def test_an_artifact_that_is_gone_can_still_be_released(tmp_path: Path) -> None:
    options = undoable()
    types = ("thehive:case_artifact",)
    options["engine"].offered = [replace(one, data_types=types) for one in options["engine"].offered]
    async with open_harness(tmp_path, **options) as harness:
        ip, _ = json.loads(await harness.alert_json())["artifacts"]
        run = await blocked(harness, objectType="case_artifact", objectId=ip["id"])
        await change(harness, artifacts=[DOMAIN])
        await harness.undos.undo(BEN, run.action.id, UndoInput())
        assert (await run.undone()).data == run.job.data


async def test_a_raised_level_counts_for_an_undo(tmp_path: Path) -> None:
    async with open_harness(tmp_path, **undoable()) as harness:
        run = await blocked(harness)
        await change(harness, pap=3)
        await harness.undos.undo(BEN, run.action.id, UndoInput())
        assert (await run.undone()).pap == 3


async def test_a_target_is_kept_for_as_long_as_it_is_needed(tmp_path: Path) -> None:
    async def kept() -> list[int]:
        rows = await harness.database.fetch_in_background("SELECT id FROM action WHERE target IS NOT NULL ORDER BY id")
        return [row["id"] for row in rows]

    async with open_harness(tmp_path, **undoable()) as harness:
        run = await blocked(harness)
        assert await kept() == [int(run.action.id[1:])]
        undoing = (await harness.undos.undo(BEN, run.action.id, UndoInput())).action
        assert await kept() == [int(run.action.id[1:]), int(undoing.id[1:])]
        await released(harness)
        assert await kept() == []


async def test_what_only_the_earlier_run_ran_on_is_released_after_the_later_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path, **undoable(undo_after_minutes=60)) as harness:
        first = await blocked(harness)
        await change(harness, artifacts=[DOMAIN])
        harness.clock.now_ms += 30 * MINUTE_MS
        second = await blocked(harness)
        harness.clock.now_ms += 30 * MINUTE_MS
        await harness.due.look()
        undo = (await harness.action(first.action.id)).undo
        assert undo is not None
        assert (undo.status, undo.message) == (
            "waiting",
            f"{second.action.id} acts on a part of the same and ends later, so it is undone first.",
        )
        harness.clock.now_ms += 30 * MINUTE_MS
        await harness.due.look()
        assert data_in((await second.undone()).data) == ["evil.example"]
        harness.clock.now_ms += LAST_RETRY_MS
        await harness.due.look()
        assert data_in((await first.undone()).data) == ["198.51.100.7", "evil.example"]


async def test_the_undo_of_a_run_on_a_case_ends_no_later_one_that_got_more(tmp_path: Path) -> None:
    options = undoable()
    options["engine"].offered = [replace(one, data_types=("thehive:case",)) for one in options["engine"].offered]
    async with open_harness(tmp_path, **options) as harness:
        cases = Cases(harness.database, harness.clock)
        case = await cases.create(LEAD, CaseInput(title="t", description="d"))
        on_case = {"objectType": "case", "objectId": case.id}
        first = await blocked(harness, **on_case)
        await cases.add_artifacts(LEAD, case.id, ArtifactsInput.model_validate(DOMAIN))
        second = await blocked(harness, **on_case)
        await harness.undos.undo(ANNA, first.action.id, UndoInput())
        await first.undone()
        undos = [(await harness.action(run.action.id)).undo for run in (first, second)]
        assert [undo and undo.status for undo in undos] == ["undone", "available"]


async def test_a_run_that_waits_for_approval_extends_no_earlier_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path, **undoable(undo_after_minutes=5, approval=1)) as harness:
        started = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.decide(BEN, started.id, "approve")
        (await next_run(harness.engine)).finish(DONE)
        await harness.ended(started.id)
        await harness.actions.start(ANNA, run_input(harness))
        harness.clock.now_ms += 5 * MINUTE_MS
        await harness.due.look()
        assert (await next_run(harness.engine)).job.responder_name == RELEASE


# --- for approvers ----------------------------------------------------------------------------------------------------


async def test_a_document_has_what_is_to_be_approved(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=asking(1), artifacts=[IP, DOMAIN]) as harness:
        documents = Documents(harness.parts, harness.feed)

        async def shown() -> dict[str, Any]:
            found = json.loads(await documents.of_ids(ANNA, [harness.alert_id], with_responders=False))["documents"][0]
            return {number: data_in({"artifacts": kept}) for number, kept in found["asked"].items()} | {
                "tlp": [artifact["tlp"] for kept in found["asked"].values() for artifact in kept]
            }

        action = await asked(harness)
        await change(harness, artifacts=[{**IP, "tlp": 3}, PROTECTED, DOMAIN])
        assert await shown() == {action.id: ["198.51.100.7", "evil.example"], "tlp": [3, 2]}
        await harness.actions.decide(BEN, action.id, "deny")
        assert await shown() == {"tlp": []}
