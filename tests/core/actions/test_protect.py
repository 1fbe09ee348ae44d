"""Protected targets and overrides: what no responder runs on, however somebody tries, and who may override it."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.authorization import Caller
from core.common.database import Reads
from core.common.errors import ResponderBotError
from core.models import Action, AlertUpdate, ArtifactsInput, RunInput, TaskInput, UndoInput, parse_parameters
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.responders.guards import RulesFor
from core.responders.target import load
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, caller, next_run, open_harness
from tests.core.actions.test_guards import (
    HOUR_MS,
    NAME,
    alert_with,
    finish,
    message_of,
    ran,
    refused,
    restarted,
    rules,
    started,
    stop,
    take_over,
)
from tests.core.scripted_engine import ScriptedEngine

PROTECTED = ["10.0.0.0/8", "dc01"]
DC = {"dataType": "ip", "data": "10.0.0[.]5"}
OTHER = {"dataType": "ip", "data": "198.51.100.7"}
ON_ARTIFACT: dict[str, Any] = {"objectType": "case_artifact"}
CHIEF = caller("chief", "org-admin")
OVERRIDE = {"reason": "The controller itself is infected"}


async def with_chief(harness: Harness) -> None:
    await harness.people.add("chief", "org-admin")


async def test_no_object_is_a_way_to_a_protected_artifact(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        alert, (bad, good) = await alert_with(harness, DC, OTHER)
        assert await refused(harness, objectId=bad, **ON_ARTIFACT) == (
            "bad_request",
            f"{NAME} can't run: its target is protected (10.0.0.0/8); an administrator may override it, with a reason"
            " and another administrator's approval.",
        )
        assert f"the observable {bad} is protected (10.0.0.0/8)" in (await refused(harness, objectId=alert))[1]
        await ran(harness, objectId=good, **ON_ARTIFACT)
        case = await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, alert, None)
        cases = Cases(harness.database, harness.clock)
        task = await cases.add_task(LEAD, case.id, TaskInput(title="t"))
        for kind, target in (("case", case.id), ("case_task", task.id), ("case_artifact", bad), ("alert", alert)):
            assert "is protected (10.0.0.0/8)" in (await refused(harness, objectType=kind, objectId=target))[1], kind
        await ran(harness, objectId=good, **ON_ARTIFACT)
        # Copied by hand, as another type of data, to where nothing else is protected.
        other = await alert_with(harness, {"dataType": "other", "data": "DC01."})
        assert "its target is protected (dc01)" in (await refused(harness, objectId=other[1][0], **ON_ARTIFACT))[1]


@pytest.mark.parametrize(
    "value",
    [
        "10.1.2.3",
        "block 10.1.2.3, please",
        ["198.51.100.1", "dc01"],
        {"hosts": [{"name": "dc01"}]},
        {"dc01": 1},
    ],
)
async def test_an_input_can_not_name_a_protected_target(tmp_path: Path, value: Any) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        code, sentence = await refused(harness, parameters={"note": "hello", "address": value})
        assert (code, "its input address is protected (" in sentence) == ("bad_request", True)
        harmless = {"note": "hello", "minutes": 60, "sure": True, "nothing": None, "level": 0.5, "offset": -1}
        await started(harness, parameters=harmless)


async def test_more_text_than_can_be_compared_is_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        for value, reason in (
            ("a " * 10_000, "its input address is not known to be unprotected: it is too long;"),
            (["a"] * 30_000, "it is given too much to compare with [protect], from its input address on;"),
        ):
            assert reason in (await refused(harness, parameters={"address": value}))[1]
        alert, _ = await alert_with(harness, *({"dataType": "other", "data": f"{n} {'a ' * 200}"} for n in range(900)))
        assert "too much to compare with [protect], from the observable" in (await refused(harness, objectId=alert))[1]


async def test_what_became_protected_while_the_run_waited_does_not_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        alert, _ = await alert_with(harness, OTHER)
        await started(harness)
        waiting = await started(harness, objectId=alert)
        await stop(harness)
        async with restarted(harness, protected=["198.51.100.0/24"]) as core:
            await take_over(harness, core)
            assert "did not run: the observable" in await message_of(harness, waiting)


async def on_case(harness: Harness) -> tuple[Cases, str]:
    """A case that has nothing protected; its id."""
    alert, _ = await alert_with(harness, OTHER)
    case = await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, alert, None)
    return Cases(harness.database, harness.clock), case.id


async def test_what_comes_to_a_case_while_its_run_waits_ends_the_run_at_the_next_vote(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED, policies=rules(approval=2)) as harness:
        await with_chief(harness)
        cases, case = await on_case(harness)
        action = await started(harness, objectType="case", objectId=case)
        await harness.actions.decide(BEN, action.id, "approve")
        (added,) = await cases.add_artifacts(ANNA, case, ArtifactsInput.model_validate(DC))
        with pytest.raises(ResponderBotError) as error:
            await harness.actions.decide(CHIEF, action.id, "approve")
        sentence = f"{NAME} did not run: the observable {added.id} is protected (10.0.0.0/8)"
        assert error.value.code == "conflict"
        assert error.value.message.startswith(sentence)
        assert (await message_of(harness, action)).startswith(sentence)
        assert not harness.engine.runs


async def test_what_comes_to_a_case_while_its_run_waits_for_a_slot_ends_the_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED, engine=ScriptedEngine(at_once=1)) as harness:
        cases, case = await on_case(harness)
        task = await cases.add_task(LEAD, case, TaskInput(title="t"))
        await started(harness)
        waiting = await started(harness, objectType="case_task", objectId=task.id)
        (added,) = await cases.add_artifacts(ANNA, case, ArtifactsInput.model_validate(DC))
        await finish(harness)
        assert f"did not run: the observable {added.id} is protected (10.0.0.0/8)" in await message_of(harness, waiting)
        assert len(harness.engine.runs) == 1


async def test_an_artifact_that_is_added_while_the_run_waits_is_not_passed_on(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED, policies=rules(approval=1), artifacts=[OTHER]) as harness:
        action = await started(harness)
        update = AlertUpdate.model_validate({"artifacts": [DC, OTHER]})
        await Alerts(harness.database, harness.clock, "soc").update(ANNA, harness.alert_id, update)
        await harness.actions.decide(BEN, action.id, "approve")
        await finish(harness)
        assert (await harness.ended(action.id)).status == "Success"
        (run,) = harness.engine.runs
        assert [artifact["data"] for artifact in run.job.data["artifacts"]] == [OTHER["data"]]


async def test_a_responder_that_only_tells_may_be_left_out(tmp_path: Path) -> None:
    policies = rules(protect=False)
    async with open_harness(tmp_path, protected=PROTECTED, policies=policies) as harness:
        alert, _ = await alert_with(harness, DC)
        await ran(harness, objectId=alert)


async def test_an_unreadable_list_stops_all_runs_but_those_that_only_tell(tmp_path: Path) -> None:
    file = tmp_path / "jewels.txt"
    policies = {"BlockHost_1_0": ResponderSection(protect=False)}
    async with open_harness(tmp_path, protected=[f"file:{file}"], policies=policies) as harness:
        sentence = (
            "The list jewels.txt of [protect] can't be read (No such file or directory); nothing runs until it can"
        )
        assert await refused(harness) == (
            "bad_request",
            f"{NAME} can't run: {sentence}; an administrator has to correct it.",
        )
        assert await harness.database.read(harness.guards.problems) == [f"{sentence}."]
        await started(harness, responderId="BlockHost_1_0")
        file.write_text("dc01\n")
        await started(harness)
        assert await harness.database.read(harness.guards.problems) == []


async def test_lists_leave_out_what_cannot_run_on_a_protected_target(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        _, ids = await alert_with(harness, DC, OTHER)

        def offered(reads: Reads) -> list[list[str]]:
            own = RulesFor(harness.guards, reads, ANNA.login)
            targets = [load(reads, "case_artifact", int(item[1:])) for item in ids]
            return [[item.name for item in harness.registry.offered(target, own)] for target in targets]

        assert await harness.database.read(offered) == [[], [NAME]]


# --- overriding -----------------------------------------------------------------------------------------------------


async def broken(harness: Harness, target: str, who: Caller = LEAD, **more: Any) -> Action:
    return await started(harness, who, objectId=target, breakGlass=OVERRIDE, **more)


async def test_two_org_admins_override_a_rule_and_the_reason_is_kept(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        await with_chief(harness)
        _, (bad,) = await alert_with(harness, DC)
        for who in (ANNA, BEN):
            code, sentence = await refused(harness, who, objectId=bad, breakGlass=OVERRIDE, **ON_ARTIFACT)
            assert (code, sentence) == (
                "forbidden",
                "You are not authorized to override rules, only an administrator is.",
            )
        action = await broken(harness, bad, **ON_ARTIFACT)
        assert (action.status, action.approval and action.approval.needed) == ("Waiting", 1)
        for who, reason in ((ANNA, "Only administrators may approve or deny this run"), (LEAD, "somebody else must")):
            with pytest.raises(ResponderBotError, match=reason):
                await harness.actions.decide(who, action.id, "approve")
        assert not harness.engine.runs
        await harness.actions.decide(CHIEF, action.id, "approve")
        await finish(harness)
        ended = await harness.ended(action.id)
        assert ended.status == "Success"
        assert ended.override is not None
        assert ended.override.model_dump(include={"reason", "approved_by"}) == {
            "reason": OVERRIDE["reason"],
            "approved_by": "chief@example.org",
        }
        (override,) = ended.override.overrides
        assert (override.rule, override.message) == ("protect", "its target is protected (10.0.0.0/8)")
        shown = json.loads(await harness.actions.list_json("case_artifact", bad) or "")
        assert shown[0]["breakGlass"]["reason"] == OVERRIDE["reason"]


async def test_nothing_is_overridden_where_no_rule_blocks_the_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED, policies=rules(run_by=["lead"])) as harness:
        code, sentence = await refused(harness, LEAD, breakGlass=OVERRIDE)
        assert (code, "leave out breakGlass" in sentence) == ("bad_request", True)
        await with_chief(harness)
        code, sentence = await refused(harness, CHIEF, breakGlass=OVERRIDE)  # who may run it can't be overridden
        assert (code, "only lead may run it" in sentence) == ("forbidden", True)
    with pytest.raises(ValueError, match="reason"):
        RunInput.model_validate(
            {"responderId": "r", "objectType": "alert", "objectId": "~1", "breakGlass": {"reason": " "}}
        )


async def test_an_override_needs_the_approvals_of_the_settings_as_well(tmp_path: Path) -> None:
    policies = rules(approval=1, approve_by=["ben"])
    async with open_harness(tmp_path, protected=PROTECTED, policies=policies) as harness:
        await with_chief(harness)
        _, (bad,) = await alert_with(harness, DC)
        action = await broken(harness, bad, **ON_ARTIFACT)
        assert action.approval is not None
        assert action.approval.needed == 2
        await harness.actions.decide(BEN, action.id, "approve")
        with pytest.raises(ResponderBotError, match="Only ben and administrators may approve or deny"):
            await harness.actions.decide(ANNA, action.id, "approve")
        assert not harness.engine.runs
        await harness.actions.decide(CHIEF, action.id, "approve")
        await finish(harness)
        assert (await harness.ended(action.id)).status == "Success"


async def test_an_org_admin_who_is_none_any_more_overrides_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        await with_chief(harness)
        _, (bad,) = await alert_with(harness, DC)
        first, second = [await broken(harness, bad, **ON_ARTIFACT) for _ in range(2)]
        await harness.people.set_profile("lead", "analyst")
        await harness.actions.decide(CHIEF, first.id, "approve")
        assert "overrode rules for this and is no administrator any more" in await message_of(harness, first)
        await harness.people.set_profile("lead", "org-admin")
        await harness.people.set_profile("chief", "analyst")
        with pytest.raises(ResponderBotError, match="Only administrators may approve or deny this run"):
            await harness.actions.decide(caller("chief"), second.id, "approve")
        assert not harness.engine.runs


async def test_an_overriding_run_gets_nothing_that_is_added_later(tmp_path: Path) -> None:
    async with open_harness(tmp_path, protected=PROTECTED) as harness:
        await with_chief(harness)
        alert, _ = await alert_with(harness, DC)
        action = await broken(harness, alert)
        update = AlertUpdate.model_validate({"artifacts": [DC, {"dataType": "fqdn", "data": "dc01"}]})
        await Alerts(harness.database, harness.clock, "soc").update(LEAD, alert, update)
        await harness.actions.decide(CHIEF, action.id, "approve")
        await finish(harness)
        assert (await harness.ended(action.id)).status == "Success"
        (run,) = harness.engine.runs
        assert [artifact["data"] for artifact in run.job.data["artifacts"]] == [DC["data"]]


async def test_a_rate_is_overridden_and_goes_on_counting(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["1/1h"])) as harness:
        await with_chief(harness)
        await ran(harness)
        harness.clock.now_ms += HOUR_MS // 2
        action = await broken(harness, harness.alert_id)
        await harness.actions.decide(CHIEF, action.id, "approve")
        await finish(harness)
        assert (await harness.ended(action.id)).status == "Success"
        harness.clock.now_ms += HOUR_MS // 2  # the first is over, the overriding one is not
        assert (await refused(harness))[0] == "rate_limited"


async def test_what_was_done_to_a_protected_target_can_be_undone(tmp_path: Path) -> None:
    undo = "BlockHost_1_0"
    async with open_harness(tmp_path, protected=PROTECTED, policies=rules(undo=undo)) as harness:
        await with_chief(harness)
        alert, _ = await alert_with(harness, DC)
        action = await broken(harness, alert)
        await harness.actions.decide(CHIEF, action.id, "approve")
        await finish(harness)
        await harness.ended(action.id)
        assert (await refused(harness, objectId=alert, responderId=undo))[0] == "bad_request"
        elsewhere = UndoInput(parameters={"address": "10.0.0.7"})
        with pytest.raises(ResponderBotError, match="its input address is protected"):
            await harness.undos.undo(LEAD, action.id, elsewhere, body="")
        undoing = await harness.undos.undo(LEAD, action.id, UndoInput(), body="")
        await finish(harness)
        assert (await harness.ended(undoing.action.id)).status == "Success"


async def test_two_inputs_of_type_ip_are_the_ends_of_a_range(tmp_path: Path) -> None:
    declared = [{"name": name, "type": "ip"} for name in ("first", "last")] + [{"name": "page", "type": "url"}]
    policies = rules(parameter=parse_parameters(declared))
    async with open_harness(tmp_path, protected=[*PROTECTED, "https://wiki.example/a"], policies=policies) as harness:
        sentence = (await refused(harness, parameters={"first": "11.0.0.0", "last": "9.0.0.0"}))[1]
        assert "the range from its input first to its input last is protected (10.0.0.0/8)" in sentence
        assert "its input first is protected" in (await refused(harness, parameters={"first": "10[.]0.0.1"}))[1]
        assert (
            "its input page is protected" in (await refused(harness, parameters={"page": "http://wiki.example/a/b"}))[1]
        )
        code, sentence = await refused(harness, parameters={"first": "10/8"})
        assert (code, "`10/8` is no address or network in full" in sentence) == ("invalid_fields", True)
        # The path of a URL that is declared as one names nothing; the responder gets what was compared.
        given = {"first": "11[.]0.0.0", "last": "12.0.0.0", "page": "hxxps://X.example/dc01#top"}
        await started(harness, parameters=given)
        run = await next_run(harness.engine)
        assert {name: run.job.parameters[name] for name in given} == {
            "first": "11.0.0.0",
            "last": "12.0.0.0",
            "page": "https://x.example/dc01",
        }
        assert run.job.parameters["page"] == "https://x.example/dc01"
