"""What a sender writes disarms no alert: with one malformed observable of each kind all responders run on the rest."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Report, Responder
from core.models import Action, Kind, OfferedResponder, parse_id
from core.records.alerts import Alerts
from core.responders import target as targets
from core.responders.guards import RulesFor
from core.responders.profiles import profiles
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, LEAD, Harness, next_run, open_harness, run_input
from tests.core.scripted_engine import ScriptedEngine

MALFORMED = {
    "ip": "10/8",
    "cidr": "198.51.100.7/8",
    "domain": "1.2.3",
    "fqdn": "a..b",
    "hostname": "-",
    "url": "dc01/x",
    "mail": "Anna <anna@corp.example>",
    "hash": "unknown",
    "sha256": "-",
}
GOOD = {
    "ip": "198.51.100.7",
    "cidr": "198.51.100.0/24",
    "domain": "evil.example",
    "fqdn": "c2.evil.example",
    "hostname": "lt-0198",
    "url": "https://evil.example/x",
    "mail": "eve@evil.example",
    "hash": "d41d8cd98f00b204e9800998ecf8427e",
    "sha256": "a" * 64,
    "other": "S-1-5-21-1",
    "username": "eve",
    "filename": "x.exe",
}
ARTIFACTS = [{"dataType": kind, "data": data} for items in (MALFORMED, GOOD) for kind, data in items.items()]
BUNDLED = sorted(Path("core/bundled").glob("*/*.json"))
_DEFINED = [json.loads(path.read_text())["name"] for path in BUNDLED]
NAMES = sorted({*profiles(), *(f"{name}_1_0" for name in _DEFINED)})


def offering(*names: str) -> ScriptedEngine:
    kinds = ("thehive:alert", "thehive:case_artifact")
    return ScriptedEngine(
        offered=[Responder(id=name, name=name, version="1.0", description="d", data_types=kinds) for name in names]
    )


async def ran(harness: Harness, name: str, **more: Any) -> Action:
    action = (await harness.actions.start(ANNA, run_input(harness, name, **more))).action
    run = await next_run(harness.engine)
    given = run.job.data.get("artifacts", [run.job.data])
    if action.target is not None:
        assert [one["data"] for one in given if one["data"] in MALFORMED.values()] == []
    run.finish(Report(True))
    return await harness.ended(action.id)


async def test_each_bundled_and_profiled_responder_runs_on_the_rest(tmp_path: Path) -> None:
    fields = {need: {"string": "x"} for profile in profiles().values() for need in profile.needs if need != "case"}
    own: dict[str, Any] = {
        "policies": {name: ResponderSection() for name in NAMES},
        "protected": ["10.0.0.0/8", "dc02"],
    }
    own |= {"artifacts": ARTIFACTS, "customFields": fields, "engine": offering(*NAMES)}
    async with open_harness(tmp_path, **own) as harness:
        await Alerts(harness.database, harness.clock, "soc").create_case(LEAD, harness.alert_id)
        for name in NAMES:
            profile = profiles().get(name)
            for data_type in (profile and profile.target) or (None,):
                chosen = {} if data_type is None else {"target": GOOD[data_type]}
                assert (await ran(harness, name, **chosen)).status == "Success", (name, data_type)


async def offered(harness: Harness, object_id: str, kind: Kind = "alert") -> OfferedResponder:
    def read(reads: Any) -> OfferedResponder:
        target, rules = targets.load(reads, kind, parse_id(object_id)), RulesFor(harness.guards, reads, ANNA.login)
        found = harness.registry.explained(target, may_run=True, open_runs={}, rules=rules, clearance=2)
        return found[0]

    return await harness.database.read(read)


async def ids_of(harness: Harness) -> Sequence[str]:
    return [artifact["id"] for artifact in json.loads(await harness.alert_json())["artifacts"]]


@pytest.mark.parametrize("data_type", MALFORMED)
async def test_the_reason_is_said_before_the_click_and_in_the_refusal(tmp_path: Path, data_type: str) -> None:
    problem = f"`{MALFORMED[data_type]}` is no "
    artifacts = [{"dataType": data_type, "data": MALFORMED[data_type]}]
    policies = {"Contain_1_0": ResponderSection(target=(data_type,))}
    async with open_harness(
        tmp_path, engine=offering("Contain_1_0"), policies=policies, artifacts=artifacts
    ) as harness:
        (artifact,) = await ids_of(harness)
        kinds: dict[Kind, str] = {"alert": harness.alert_id, "case_artifact": artifact}
        for kind, object_id in kinds.items():
            listed = await offered(harness, object_id, kind)
            (refusal,) = listed.refusals or []
            assert (listed.verdict, refusal.rule, refusal.lift) == ("cannot_run", "target", "correct the observable")
            assert refusal.message.startswith(problem)
            with pytest.raises(ResponderBotError) as error:
                await ran(harness, "Contain_1_0", objectType=kind, objectId=object_id)
            assert (error.value.code, error.value.details) == ("bad_request", {"rule": "target"})
            assert error.value.message.startswith(problem)
            assert error.value.message.endswith("; correct the observable.")


async def test_beside_what_can_be_acted_on_it_is_a_note_that_shows_nothing_above_the_clearance(tmp_path: Path) -> None:
    artifacts = [{"dataType": "ip", "data": GOOD["ip"]}, {"dataType": "ip", "data": "10/8"}]
    artifacts.append({"dataType": "ip", "data": "secret", "tlp": 3})  # type: ignore[dict-item]
    policies = {"Contain_1_0": ResponderSection(target=("ip",))}
    async with open_harness(
        tmp_path, engine=offering("Contain_1_0"), policies=policies, artifacts=artifacts
    ) as harness:
        listed = await offered(harness, harness.alert_id)
        assert (listed.verdict, listed.reasons) == (
            "can_run",
            [
                "not offered: `10/8` is no address or network in full, such as 10.0.0.0/8; correct the observable",
                "not offered: an observable that you may not see can't be a target; correct the observable",
            ],
        )
        assert (await ran(harness, "Contain_1_0")).target is not None


async def test_where_no_target_is_declared_it_is_free_text(tmp_path: Path) -> None:
    artifacts = [{"dataType": "ip", "data": "10/8"}, {"dataType": "ip", "data": "see dc01"}]
    own: dict[str, Any] = {"engine": offering("Read_1_0"), "protected": ["dc01"]}
    async with open_harness(tmp_path, artifacts=artifacts[:1], **own) as harness:
        assert (await ran(harness, "Read_1_0")).status == "Success"
    (tmp_path / "b").mkdir()
    async with open_harness(tmp_path / "b", artifacts=artifacts, **own) as harness:
        with pytest.raises(ResponderBotError, match=r"is protected \(dc01\)"):
            await ran(harness, "Read_1_0")
