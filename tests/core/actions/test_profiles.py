"""What ships about public responders: each entry can be true, and settings and definitions come first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.measures import MeasureFilter
from core.api.aliases.query import DATA_TYPES
from core.common.errors import ResponderBotError
from core.engines.base import Report, Responder
from core.models import AlertUpdate, CaseUpdate, CreateCaseInput, OfferedResponder, UndoInput, parse_id
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.responders import target as targets
from core.responders.profiles import profiles
from core.settings import ResponderSection, SecretSource
from tests.core.actions.harness import ANNA, LEAD, Harness, next_run, open_harness, run_input
from tests.core.scripted_engine import ScriptedEngine

ISOLATE, RELEASE = "CrowdStrikeFalcon_HostContainment_1_0", "CrowdStrikeFalcon_LiftContainmentHost_1_0"
DEFENDER = "MSDefender-IsolateMachine_1_0"
WAZUH, WAZUH_FIELDS = "Wazuh_1_0", ["wazuh_agent_id", "wazuh_alert_id", "wazuh_rule_id"]
ZSCALER = "ZscalerZIA_AddToATPDenylist_1_0"
ARTIFACTS = [{"dataType": "hostname", "data": "SRV-DC01"}, {"dataType": "hash", "data": "a" * 64}]
DONE = Report(True, full={"message": "done"})


def public(name: str, *target: str) -> Responder:
    """A responder as its public definition has it, which knows no keys of ours unless it names a `target`."""
    kinds = ("thehive:case_artifact",)
    return Responder(id=name, name=name, version="1.0", description="d", data_types=kinds, target=target)


def offering(*responders: Responder) -> ScriptedEngine:
    return ScriptedEngine(offered=responders)


async def artifact_ids(harness: Harness) -> Sequence[str]:
    return [artifact["id"] for artifact in json.loads(await harness.alert_json())["artifacts"]]


async def offered(harness: Harness, artifact_id: str, name: str) -> OfferedResponder:
    number = parse_id(artifact_id)
    target = await harness.database.read(lambda reads: targets.load(reads, "case_artifact", number))
    explained = harness.registry.explained(target, may_run=True, open_runs={})
    return next(responder for responder in explained if responder.name == name)


def test_there_are_twenty_and_each_entry_can_be_true() -> None:
    containing = [name for name, profile in profiles().items() if profile.contains]
    assert len(containing) >= 20
    undos = {profile.undo for profile in profiles().values() if profile.undo}
    for name, profile in profiles().items():
        if not profile.protect:
            continue
        assert set(profile.target) <= {*DATA_TYPES, "cidr", "sha256", "username"}, name
        assert profile.effect[0].isupper(), name
        assert profile.effect.endswith("."), name
        assert profile.contains != (name in undos), name
        assert profile.contains or not profile.undo, name
        if profile.undo:
            assert profile.undo in profiles(), name
            assert profiles()[profile.undo].target == profile.target, name


async def why_not(harness: Harness, object_id: str, name: str = DEFENDER) -> tuple[Sequence[str], Sequence[str]]:
    """Why it can't run, and what is lacking."""
    responder = await offered(harness, object_id, name)
    return responder.reasons or [], responder.lacks or []


async def test_what_reads_the_case_can_run_once_there_is_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=offering(public(DEFENDER)), artifacts=ARTIFACTS) as harness:
        host, _ = await artifact_ids(harness)
        reason = "it reads the case, and there is none; make a case of the alert"
        assert await why_not(harness, host) == ([reason], ["case"])
        request = run_input(harness, DEFENDER, objectType="case_artifact", objectId=host)
        with pytest.raises(ResponderBotError, match="there is none; make a case of the alert"):
            await harness.actions.start(ANNA, request)
        alerts = Alerts(harness.database, harness.clock, "soc")
        await alerts.create_case(LEAD, harness.alert_id, CreateCaseInput())
        assert await why_not(harness, host) == ([], [])
        assert (await harness.actions.start(ANNA, request)).action.status == "Waiting"


async def test_custom_fields_that_are_read_are_named_where_they_have_no_value(tmp_path: Path) -> None:
    artifacts = [{"dataType": "ip", "data": "198.51.100.7"}]
    async with open_harness(tmp_path, engine=offering(public(WAZUH)), artifacts=artifacts) as harness:
        (address,) = await artifact_ids(harness)
        assert (await why_not(harness, address, WAZUH))[1] == ["case", *WAZUH_FIELDS]
        alerts = Alerts(harness.database, harness.clock, "soc")
        fields = {name: {"string": "003"} for name in WAZUH_FIELDS}
        await alerts.update(LEAD, harness.alert_id, AlertUpdate.model_validate({"customFields": fields}))
        assert (await why_not(harness, address, WAZUH))[1] == ["case"]
        case = await alerts.create_case(LEAD, harness.alert_id, CreateCaseInput())
        assert await why_not(harness, address, WAZUH) == ([], [])
        cases = Cases(harness.database, harness.clock)
        await cases.update_case(
            LEAD, case.id, CaseUpdate.model_validate({"customFields.wazuh_rule_id": {"string": None}})
        )
        reason = "it reads the custom field wazuh_rule_id, without a value here; set it"
        assert await why_not(harness, address, WAZUH) == ([reason], ["wazuh_rule_id"])


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({}, "zia_vanity_domain or zia_username, zia_client_id or zia_password, zia_client_secret or zia_api_key"),
        ({"ZIA_USERNAME": "a", "zia_password": "b", "zia_api_key": ""}, "zia_client_secret or zia_api_key"),
        ({"zia_vanity_domain": "a", "zia_client_id": "b", "zia_client_secret": SecretSource(command=("c",))}, ""),
    ],
)
async def test_what_the_code_requires_of_the_configuration_is_missed_before_the_click(
    tmp_path: Path, config: dict[str, Any], missing: str
) -> None:
    items = ("zia_vanity_domain", "zia_client_id", "zia_client_secret", "zia_username", "zia_password", "zia_api_key")
    engine = offering(replace(public(ZSCALER), items=items))
    policies = {ZSCALER: ResponderSection(config=config)}
    artifacts = [{"dataType": "domain", "data": "evil.example"}]
    async with open_harness(tmp_path, engine=engine, artifacts=artifacts, policies=policies) as harness:
        (domain,) = await artifact_ids(harness)
        reasons, _ = await why_not(harness, domain, ZSCALER)
    assert reasons == [f"not configured: {missing} missing; an administrator can set it"] * bool(missing)


async def test_a_public_responder_is_known_to_contain_and_is_undone_by_its_own(tmp_path: Path) -> None:
    engine = offering(public(ISOLATE), public(RELEASE))
    async with open_harness(tmp_path, engine=engine, artifacts=ARTIFACTS) as harness:
        host, file = await artifact_ids(harness)
        responder = await offered(harness, host, ISOLATE)
        assert responder.policy is not None
        assert (responder.policy.undo, responder.policy.confirm) == (RELEASE, profiles()[ISOLATE].effect)
        assert (await offered(harness, file, ISOLATE)).reasons == ["this observable is no host"]

        request = run_input(harness, ISOLATE, objectType="case_artifact", objectId=host, undoAfterMinutes=5)
        started = await harness.actions.start(ANNA, request)
        (await next_run(engine)).finish(DONE)
        await harness.ended(started.action.id)
        measures = harness.measures
        (measure,) = await measures.listed(ANNA, MeasureFilter(target="srv-dc01"))
        assert measure.undo is not None
        assert (measure.state, measure.undo.responder) == ("in_force", RELEASE)
        # Run by itself it ends the measure too.
        by_hand = run_input(harness, RELEASE, objectType="case_artifact", objectId=host)
        started = await harness.actions.start(ANNA, by_hand)
        (await next_run(engine)).finish(DONE)
        await harness.ended(started.action.id)
        assert await measures.listed(ANNA, MeasureFilter()) == []


async def test_an_undo_that_is_not_installed_undoes_the_run_once_it_is(tmp_path: Path) -> None:
    engine = offering(public(ISOLATE))
    async with open_harness(tmp_path, engine=engine, artifacts=ARTIFACTS) as harness:
        host, _ = await artifact_ids(harness)
        responder = await offered(harness, host, ISOLATE)
        assert responder.policy is not None
        assert responder.policy.undo is None
        request = run_input(harness, ISOLATE, objectType="case_artifact", objectId=host, undoAfterMinutes=5)
        started = await harness.actions.start(ANNA, request)
        assert started.action.undo is not None
        assert (started.action.undo.responder, started.action.undo.installed) == (RELEASE, False)
        (await next_run(engine)).finish(DONE)
        await harness.ended(started.action.id)
        with pytest.raises(ResponderBotError, match=RELEASE):
            await harness.undos.undo(ANNA, started.action.id, UndoInput())
        engine.offered = (public(ISOLATE), public(RELEASE))
        await harness.registry.refresh()
        undoing = await harness.undos.undo(ANNA, started.action.id, UndoInput())
        (await next_run(engine)).finish(DONE)
        await harness.ended(undoing.action.id)
        measures = harness.measures
        assert await measures.listed(ANNA, MeasureFilter()) == []


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"confirm": "", "contains": False, "undo": ""}, {"confirm": "", "contains": False, "undo": ""}),
        ({"confirm": "Really?"}, {"confirm": "Really?", "contains": True, "undo": RELEASE}),
        ({"approval": 1}, {"confirm": profiles()[ISOLATE].effect, "contains": True, "approval": 1}),
    ],
)
async def test_what_the_settings_say_comes_first(
    tmp_path: Path, section: Mapping[str, object], expected: Mapping[str, object]
) -> None:
    policies = {ISOLATE: ResponderSection.model_validate(section)}
    async with open_harness(tmp_path, engine=offering(public(ISOLATE), public(RELEASE)), policies=policies) as harness:
        merged = harness.registry.section(ISOLATE)
        assert {key: getattr(merged, key) for key in expected} == expected


async def test_targets_of_the_settings_come_before_the_definition_and_that_before_the_profile(tmp_path: Path) -> None:
    engine = offering(public(ISOLATE, "hash"), public(RELEASE, "ip"))
    policies = {RELEASE: ResponderSection.model_validate({"target": "mail"})}
    async with open_harness(tmp_path, engine=engine, policies=policies) as harness:
        types = {merged.name: harness.registry.target_types(merged).names for merged in harness.registry.all()}
        assert types == {ISOLATE: ("hash",), RELEASE: ("mail",)}
