"""What a run acts on: declared, chosen, shown, and the same when it is dispatched and undone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.actions import rights
from core.api.actions import bulk_answer
from core.common.errors import ResponderBotError
from core.engines.base import Responder
from core.models import RED, Action, ArtifactTarget, BulkInput, OfferedResponder, TargetArtifact, UndoInput, parse_id
from core.responders import target as targets
from core.responders.guards import RulesFor
from core.responders.target import Target, TargetTypes, acting_on, fitting
from core.settings import ResponderSection
from tests.core.actions.every_kind import objects_of_every_kind
from tests.core.actions.harness import ANNA, BEN, Harness, next_run, open_harness, run_input
from tests.core.actions.test_bound_targets import change, data_in, refusal
from tests.core.actions.test_undo import BLOCK, DONE, RELEASE, blocked, refused
from tests.core.actions.test_undo import engine as undo_engine
from tests.core.actions.test_votes import damage
from tests.core.scripted_engine import NOTIFY, ScriptedEngine

HOST, OTHER, IP, DOMAIN = (
    {"dataType": "hostname", "data": "srv-dc01"},
    {"dataType": "hostname", "data": "lt-0419.corp.example"},
    {"dataType": "ip", "data": "10.20.1.50"},
    {"dataType": "domain", "data": "evil.example"},
)


def declared(types: str, **more: Any) -> Mapping[str, ResponderSection]:
    return {BLOCK: ResponderSection.model_validate({"target": types, **more})}


async def started(harness: Harness, **more: Any) -> Action:
    return (await harness.actions.start(ANNA, run_input(harness, **more))).action


def shown(target: Sequence[TargetArtifact] | None) -> list[str] | None:
    return None if target is None else [artifact.data for artifact in target]


async def ids_of(harness: Harness) -> dict[str, str]:
    """The ids of the alert's artifacts by their data."""
    return {item["data"]: item["id"] for item in json.loads(await harness.alert_json())["artifacts"]}


async def offered(harness: Harness, *, clearance: int = RED) -> OfferedResponder:
    def read(reads: Any) -> OfferedResponder:
        target = targets.load(reads, "alert", parse_id(harness.alert_id))
        rules = RulesFor(harness.guards, reads, ANNA.login)
        open_runs = rights.open_runs(reads, target.id, ANNA.login)
        found = harness.registry.explained(target, may_run=True, open_runs=open_runs, rules=rules, clearance=clearance)
        return next(responder for responder in found if responder.name == BLOCK)

    return await harness.database.read(read)


# --- which --------------------------------------------------------------------------------------------------------


async def test_the_only_one_that_fits_is_the_target(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("Hostname, fqdn"), artifacts=[IP, HOST, DOMAIN]) as harness:
        action = await started(harness)
        assert shown(action.target) == ["srv-dc01"]
        run = await next_run(harness.engine)
        assert data_in(run.job.data) == ["10.20.1.50", "srv-dc01", "evil.example"]
        listed = await offered(harness)
        assert listed.target is not None
        assert (listed.verdict, shown(listed.target.artifacts), listed.target.required) == (
            "can_run",
            ["srv-dc01"],
            False,
        )


async def test_what_names_nothing_that_it_acts_on_is_refused_and_not_offered(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("hostname,ip"), artifacts=[DOMAIN]) as harness:
        error = await refused(started(harness))
        sentence = "this alert names no host or address"
        assert (error.code, error.message) == ("bad_request", f"{BLOCK} can't run on this: {sentence}.")
        listed = await offered(harness)
        assert (listed.verdict, listed.reasons) == ("cannot_run", [sentence])
        assert not harness.engine.runs


async def test_one_of_several_has_to_be_chosen_and_the_others_are_not_passed_on(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("hostname,ip"), artifacts=[HOST, OTHER, IP, DOMAIN]) as harness:
        ids = await ids_of(harness)
        error = await refused(started(harness))
        assert error.message == (
            f"Choose what it should act on, as target; several fit: srv-dc01 ({ids['srv-dc01']}), lt-0419.corp.example"
            f" ({ids['lt-0419.corp.example']}), 10.20.1.50 ({ids['10.20.1.50']})."
        )
        assert [item["id"] for item in error.details["targets"]] == list(ids.values())[:3]
        listed = await offered(harness)
        assert listed.target is not None
        assert (listed.target.total, listed.target.required, listed.target.data_types) == (3, True, ["hostname", "ip"])
        for chosen, data in (
            (ids["10.20.1.50"], ["10.20.1.50"]),
            ("srv-dc01.", ["srv-dc01"]),
            (["10.20.1[.]50", ids["srv-dc01"]], ["srv-dc01", "10.20.1.50"]),
        ):
            action = await started(harness, target=chosen)
            assert shown(action.target) == data
            run = await next_run(harness.engine)
            assert data_in(run.job.data) == [*data, "evil.example"]
            run.finish(DONE)
            assert shown((await harness.ended(action.id)).target) == data
        for wrong in ("dc02", ids["evil.example"], "~999999", "", "~"):
            error = await refused(started(harness, target=wrong))
            assert "is none of those that it can act on" in error.message


async def test_a_choice_names_nothing_that_the_caller_may_not_see(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, policies=declared("hostname"), artifacts=[HOST, {**OTHER, "tlp": 3}, {**OTHER, "data": "lt-2"}]
    ) as harness:
        in_slack = ANNA.__class__(**{**vars(ANNA), "acted_through": "bot@example.org"})
        error = await refused(harness.actions.start(in_slack, run_input(harness)))
        assert ("lt-0419" in error.message, "and 1 more" in error.message) == (False, True)
        assert [item["data"] for item in error.details["targets"]] == ["srv-dc01", "lt-2"]
        listed = await offered(harness, clearance=2)
        assert listed.target is not None
        assert (shown(listed.target.artifacts), listed.target.total) == (["srv-dc01", "lt-2"], 3)


async def test_without_a_declaration_nobody_knows_what_it_acts_on(tmp_path: Path) -> None:
    async with open_harness(tmp_path, artifacts=[HOST, OTHER]) as harness:
        assert (await started(harness)).target is None
        assert (await offered(harness)).target is None
        error = await refused(started(harness, target="srv-dc01"))
        assert "nobody has declared what it acts on in an alert" in error.message


async def test_a_run_on_an_artifact_acts_on_it_if_it_fits(tmp_path: Path) -> None:
    policies = {NOTIFY.name: ResponderSection(target=("hostname",))}
    async with open_harness(tmp_path, policies=policies, artifacts=[HOST, IP]) as harness:
        ids = await ids_of(harness)
        on = {"objectType": "case_artifact", "responderId": NOTIFY.name}
        action = await started(harness, **on, objectId=ids["srv-dc01"])
        assert shown(action.target) == ["srv-dc01"]
        error = await refused(started(harness, **on, objectId=ids["10.20.1.50"]))
        assert "this observable is no host" in error.message
        error = await refused(started(harness, **on, objectId=ids["srv-dc01"], target="10.20.1.50"))
        assert error.code == "bad_request"


@pytest.mark.parametrize("kind", ["case", "case_task", "case_task_log"])
async def test_what_a_run_on_a_case_acts_on_is_not_known(tmp_path: Path, kind: str) -> None:
    policies = {NOTIFY.name: ResponderSection(target=("hostname",))}
    async with objects_of_every_kind(tmp_path, policies=policies) as objects:
        on = {"objectType": kind, "objectId": objects.ids[kind], "responderId": NOTIFY.name}  # type: ignore[index]
        assert (await started(objects.harness, **on)).target is None


async def test_a_definition_declares_it_and_the_settings_take_its_place(tmp_path: Path) -> None:
    block = Responder("r", BLOCK, "1.0", "", ("thehive:alert",), target=("ip",))
    engine = ScriptedEngine(offered=(block,))
    for name, policies, data in (("a", {}, "10.20.1.50"), ("b", declared("hostname"), "srv-dc01")):
        (tmp_path / name).mkdir()
        async with open_harness(tmp_path / name, engine=engine, policies=policies, artifacts=[HOST, IP]) as harness:
            assert shown((await started(harness)).target) == [data]


# --- what is approved, undone, asked for together -----------------------------------------------------------------


async def test_a_target_that_changes_while_the_run_waits_is_refused(tmp_path: Path) -> None:
    policies = declared("hostname", approval=1)
    async with open_harness(tmp_path, policies=policies, artifacts=[HOST, OTHER, DOMAIN]) as harness:
        gone, kept = [await started(harness, target=data) for data in ("srv-dc01", "lt-0419.corp.example")]
        await change(harness, artifacts=[OTHER, DOMAIN, {**HOST, "data": "srv-dc02"}])
        assert "was removed from" in await refusal(harness, gone)
        # What was not chosen has no say, and what was added isn't passed on.
        await harness.actions.decide(BEN, kept.id, "approve")
        run = await next_run(harness.engine)
        assert data_in(run.job.data) == ["lt-0419.corp.example", "evil.example"]


async def test_an_undo_has_the_target_of_what_it_undoes(tmp_path: Path) -> None:
    policies = declared("hostname", undo=RELEASE)
    async with open_harness(tmp_path, engine=undo_engine(), policies=policies, artifacts=[HOST, OTHER]) as harness:
        action = await blocked(harness, target="srv-dc01")
        await change(harness, artifacts=[OTHER])
        undoing = (await harness.undos.undo(BEN, action.id, UndoInput())).action
        assert shown(undoing.target) == ["srv-dc01"]
        assert data_in((await next_run(harness.engine)).job.data) == ["srv-dc01"]


async def test_what_is_not_chosen_is_no_reason_to_refuse(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, policies=declared("hostname"), protected=["srv-dc01"], artifacts=[HOST, OTHER]
    ) as harness:
        listed, ids = await offered(harness), await ids_of(harness)
        assert listed.target is not None
        protected = {ids["srv-dc01"]: f"the observable {ids['srv-dc01']} is protected (srv-dc01)"}
        assert (listed.verdict, listed.target.protected) == ("can_run", protected)
        verdicts = [listed.on([ids[name]]).verdict for name in ("srv-dc01", "lt-0419.corp.example")]
        assert verdicts == ["cannot_run", "can_run"]
        assert (await refused(started(harness, target="srv-dc01"))).message.startswith(f"{BLOCK} can't run: ")
        assert shown((await started(harness, target="lt-0419.corp.example")).target) == ["lt-0419.corp.example"]
    (tmp_path / "all").mkdir()
    async with open_harness(
        tmp_path / "all", policies=declared("hostname"), protected=["*"], artifacts=[HOST, OTHER]
    ) as harness:
        assert (await offered(harness)).verdict == "cannot_run"


async def test_a_bulk_has_a_target_for_each_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("hostname"), artifacts=[HOST, OTHER]) as harness:
        bulks = harness.bulks
        on = {"objectType": "alert", "objectId": harness.alert_id}
        chosen: list[Any] = ["srv-dc01", "lt-0419.corp.example", "srv-dc01", None]
        chosen = [{**on, "target": target} for target in chosen]
        request = {"responderId": BLOCK, "targets": chosen, "onlyIfIdle": True}
        found = await bulks.start(ANNA, BulkInput.model_validate(request))
        first, second, twice, several = (outcome for _, outcome in found.targets)
        assert [shown(Action.model_validate_json(str(doc)).target) for doc in (first, second)] == [
            ["srv-dc01"],
            ["lt-0419.corp.example"],
        ]
        assert [bool(getattr(refusal, "covered_by", None)) for refusal in (twice, several)] == [True, False]
        (one,) = [one for one in json.loads(bulk_answer(found))["actions"] if "coveredBy" in one]
        assert one["target"] == ["srv-dc01"]
        beside = await bulks.start(ANNA, BulkInput.model_validate({**request, "targets": chosen[:1]}))
        assert "already" in getattr(beside.targets[0][1], "message", "")
        for _ in range(2):
            (await next_run(harness.engine)).finish(DONE)


async def test_a_run_on_one_target_lets_another_start_on_the_next(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("hostname"), artifacts=[HOST, OTHER]) as harness:
        ids, found = list((await ids_of(harness)).values()), list[OfferedResponder]()
        for target in ids:
            await started(harness, target=target, onlyIfIdle=True)
            assert "already" in (await refused(started(harness, target=target, onlyIfIdle=True))).message
            found.append(await offered(harness))
        for _ in range(2):
            (await next_run(harness.engine)).finish(DONE)
    first, both = found
    assert first.target is not None
    assert both.target is not None
    assert ([*first.target.open_runs], [*both.target.open_runs]) == (ids[:1], ids)
    assert (bool(first.open_run), bool(both.open_run)) == (False, True)
    assert [bool(first.on([id_]).open_run) for id_ in ids] == [True, False]


async def test_a_run_holds_up_what_may_be_the_same_unless_both_were_chosen_together(tmp_path: Path) -> None:
    alike = [{**HOST, "data": "lt-0419"}, OTHER, *({"dataType": "user", "data": data} for data in ("anna", "Anna "))]
    async with open_harness(tmp_path, policies=declared("hostname, user"), artifacts=[*alike, HOST]) as harness:
        ids = list((await ids_of(harness)).values())
        for first, second in (ids[:2], ids[2:4]):
            action = await started(harness, target=first, onlyIfIdle=True)
            assert "already" in (await refused(started(harness, target=second, onlyIfIdle=True))).message
            (await next_run(harness.engine)).finish(DONE)
            await harness.ended(action.id)
        chosen = [{"objectType": "alert", "objectId": harness.alert_id, "target": one} for one in ids[:2]]
        request = {"responderId": BLOCK, "targets": chosen, "onlyIfIdle": True}
        found = await harness.bulks.start(ANNA, BulkInput.model_validate(request))
        assert all(isinstance(doc, str) for _, doc in found.targets)
        for _ in chosen:
            (await next_run(harness.engine)).finish(DONE)


async def test_a_damaged_run_hides_nothing_that_can_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=declared("hostname", approval=1), artifacts=[HOST]) as harness:
        await damage(harness, (await started(harness)).id, "{")
        assert "already waiting" in ((await offered(harness)).open_run or "")


# --- properties ---------------------------------------------------------------------------------------------------

ARTIFACT = st.fixed_dictionaries(
    {
        "dataType": st.sampled_from(["hostname", "ip", "domain", "Hostname"]),
        "data": st.sampled_from(["dc01", "DC01", "10.0.0.5", "10.0.0[.]5", "evil.example", "a b c", ""]),
        "tlp": st.integers(0, 3),
    }
)


@given(
    found=st.lists(ARTIFACT, max_size=6),
    types=st.lists(st.sampled_from(["hostname", "ip", "url"]), max_size=2),
    chosen=st.lists(st.sampled_from(["~1", "~2", "~3", "dc01", "10.0.0.5", "x", "~"]), max_size=2),
    is_required=st.booleans(),
    clearance=st.integers(0, 3),
)
def test_a_run_acts_on_what_fits_and_was_chosen_and_gets_nothing_else_that_fits(
    found: Sequence[Mapping[str, Any]], types: Sequence[str], chosen: Sequence[str], is_required: bool, clearance: int
) -> None:
    artifacts = [
        {
            **artifact,
            "id": f"~{number}",
            "target": json.loads(ArtifactTarget.of(artifact["dataType"], artifact["data"]).to_json()),
        }
        for number, artifact in enumerate(found, 1)
    ]
    alert = Target("alert", 9, 9, 2, 2, {"artifacts": artifacts})
    declared = TargetTypes(types, is_required)
    fit = fitting(alert, declared)
    try:
        target = acting_on(alert, declared, chosen, clearance)
    except ResponderBotError as error:
        assert error.code == "bad_request"
        assert all(item["tlp"] <= clearance for item in error.details.get("targets", ()))
        return
    given_ids = {artifact["id"] for artifact in target.json["artifacts"]}
    if fit is None:
        assert (target.acts_on, chosen) == (None, [])
        return
    acts_on = [artifact.id for artifact in target.acts_on or ()]
    assert {artifact.id for artifact in fit} & given_ids == set(acts_on)
    named = {artifact["id"] for artifact in artifacts if "kind" in artifact["target"]}
    assert given_ids - set(acts_on) == named - {artifact.id for artifact in fit}
    assert len(acts_on) < 2 or chosen or not is_required
    # What was settled once stays so when it is settled again, as in the transaction.
    assert acting_on(target, declared, chosen, clearance) == target
