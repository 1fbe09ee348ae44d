"""Of several alerts with the same target one run contains or releases it, and is for all of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.bulks import Refusal
from core.actions.measures import MeasureFilter
from core.audit.reader import AuditReader
from core.common.errors import ResponderBotError
from core.models import Action, AlertInput, Bulk, BulkInput
from core.records.alerts import Alerts
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness
from tests.core.actions.test_undo import BLOCK, DONE, RELEASE, RELEASE_HOST
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine

CONTAINS: Mapping[str, Any] = {"undo": RELEASE, "target": "hostname"}


def harness_with(tmp_path: Path, *, protected: tuple[str, ...] = (), **block: Any) -> Any:
    sections = {BLOCK: {**CONTAINS, **block}, RELEASE: {"target": "hostname"}, NOTIFY.name: {"target": "hostname"}}
    policies = {name: ResponderSection.model_validate(section) for name, section in sections.items()}
    engine = ScriptedEngine(offered=(BLOCK_HOST, RELEASE_HOST, NOTIFY))
    return open_harness(tmp_path, engine=engine, policies=policies, protected=protected)


async def alert_on(harness: Harness, *hosts: str, **fields: Any) -> str:
    artifacts = [{"dataType": "hostname", "data": host} for host in hosts]
    body = {"type": "siem", "source": "t", "sourceRef": f"{hosts}{harness.clock.now_ms}", "title": "t"}
    harness.clock.now_ms += 1
    shown = AlertInput.model_validate({**body, "description": "d", "artifacts": artifacts, **fields})
    return (await Alerts(harness.database, harness.clock, "soc").create(LEAD, shown)).id


async def asked(
    harness: Harness, ids: list[str], responder: str = BLOCK, *, key: str = "", **more: Any
) -> tuple[Bulk, list[Action | Refusal]]:
    on = [{"objectType": "alert", "objectId": id_, **more} for id_ in ids]
    request = BulkInput.model_validate({"responderId": responder, "targets": on})
    answer = await harness.bulks.start(ANNA, request, key=key)
    outcomes = [Action.model_validate_json(one) if isinstance(one, str) else one for _, one in answer.targets]
    return await harness.bulks.get(answer.id), outcomes


def runs_of(outcomes: list[Action | Refusal]) -> list[Action]:
    return [one for one in outcomes if isinstance(one, Action)]


def covered_by(outcomes: list[Action | Refusal]) -> list[int | None]:
    return [one.covered_by if isinstance(one, Refusal) else 0 for one in outcomes]


async def all_end(harness: Harness, actions: list[Action], report: Any = DONE) -> list[Action]:
    for _ in actions:
        (await next_run(harness.engine)).finish(report)
    return [await harness.ended(action.id) for action in actions]


async def test_one_run_contains_a_host_for_all_alerts_that_name_it_and_one_releases_it(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        ids = [await alert_on(harness, host) for host in ("srv-0", "SRV-0", "srv-1", "Srv-0 ")]
        bulk, outcomes = await asked(harness, ids, key="once")
        first, other = runs_of(outcomes)
        assert covered_by(outcomes) == [0, first.number, 0, first.number]
        assert (first.also_for, other.also_for) == ([ids[1], ids[3]], None)
        assert (bulk.total, bulk.objects, bulk.refused, bulk.counts) == (2, 4, 0, {"Waiting": 2})
        assert [one.covered_by for one in bulk.targets] == [None, first.id, None, first.id]
        again, same = await asked(harness, ids, key="once")
        assert (again.id, same) == (bulk.id, outcomes)
        assert [run.also_for for run in await all_end(harness, [first, other])] == [[ids[1], ids[3]], None]
        bulk = await harness.bulks.get(bulk.id)
        assert not any(one.has_failed for one in bulk.targets)
        for id_ in ids:
            shown = await harness.measures.listed(ANNA, MeasureFilter(of=id_))
            assert [measure.actions for measure in shown] == [[other.id if id_ == ids[2] else first.id]]
        released, undos = await asked(harness, [*ids[1:], ids[0]], RELEASE)
        assert (released.total, [run.object_id for run in runs_of(undos)]) == (2, ids[1:3])
        await all_end(harness, runs_of(undos))
        assert await harness.measures.listed(ANNA, MeasureFilter()) == []


async def test_the_audit_of_each_alert_says_which_run_covers_it(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        ids = [await alert_on(harness, "srv-0") for _ in range(2)]
        _, (run, _) = await asked(harness, ids)
        rows = await AuditReader(harness.database, harness.clock, lambda *_: 0).rows(LEAD, ids[1], 0, 100)
        assert isinstance(run, Action)
        (said,) = [row.sentence for row in rows if row.what == "run.covered"]
        assert said.startswith(f"anna@example.org asked to run {BLOCK} on {ids[1]} too: ")
        assert f"The run on {ids[0]} ({run.id}) acts on the same, and is for this as well" in said


async def test_only_an_alert_all_of_whose_targets_one_run_acts_on_is_covered(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        both, one, two = [await alert_on(harness, *on) for on in (("a", "b"), ("a",), ("b", "a"))]
        chosen = {both: ["a", "b"], one: ["a"], two: ["b", "a"]}

        async def of(*ids: str) -> list[int | None]:
            on = [{"objectType": "alert", "objectId": id_, "target": chosen[id_]} for id_ in ids]
            request = BulkInput.model_validate({"responderId": BLOCK, "targets": on})
            answer = await harness.bulks.start(ANNA, request)
            return [None if isinstance(found, str) else found.covered_by for _, found in answer.targets]

        assert [bool(by) for by in await of(both, one, two)] == [False, True, True]
        assert [bool(by) for by in await of(one, two, both)] == [False, False, True]


async def test_what_each_alert_gets_itself_runs_on_each(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        ids = [await alert_on(harness, "srv-0") for _ in range(2)]
        bulk, outcomes = await asked(harness, ids, NOTIFY.name)
        assert (bulk.total, len(runs_of(outcomes))) == (2, 2)
        await all_end(harness, runs_of(outcomes))


async def test_where_one_is_refused_the_next_one_runs(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1, only_on={"tags": ["ours"]}, protected=("dc",)) as harness:
        foreign, *ours = [await alert_on(harness, "srv-0", tags=tags) for tags in ([], ["ours"], ["ours"])]
        bulk, outcomes = await asked(harness, [foreign, *ours])
        assert isinstance(outcomes[0], Refusal)
        assert (bulk.total, bulk.refused, [run.also_for for run in runs_of(outcomes)]) == (2, 1, [[ours[1]]])
        kept = [await alert_on(harness, "dc", tags=["ours"]) for _ in range(2)]
        bulk, outcomes = await asked(harness, kept)
        assert (bulk.total, bulk.refused, covered_by(outcomes)) == (2, 2, [None, None])


async def test_a_retry_of_what_did_not_succeed_is_for_all_alerts_that_name_it(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        ids = [await alert_on(harness, host) for host in ("srv-0", "srv-0", "srv-1", "srv-1")]
        bulk, outcomes = await asked(harness, ids)
        denied, other = runs_of(outcomes)
        await harness.bulks.decide(BEN, bulk.id, "approve", shown=[other.id])
        await all_end(harness, [other])
        await harness.bulks.decide(BEN, bulk.id, "deny")
        assert [one.has_failed for one in (await harness.bulks.get(bulk.id)).targets] == [True, True, False, False]
        again = await harness.bulks.retry(ANNA, bulk.id)
        (first, doc), (second, refusal) = again.targets
        run = Action.model_validate_json(str(doc))
        assert isinstance(refusal, Refusal)
        assert ([first, second], run.also_for, refusal.covered_by) == (ids[:2], [ids[1]], run.number)
        assert run.target == denied.target


async def test_who_may_not_see_the_alert_of_the_run_decides_nothing_and_reads_its_id_only(tmp_path: Path) -> None:
    async with harness_with(tmp_path, approval=1) as harness:
        red = await alert_on(harness, "srv-0", tlp=2, title="hush")
        clear = await alert_on(harness, "srv-0", tlp=0)
        bulk, (run, refusal) = await asked(harness, [red, clear])
        assert isinstance(run, Action)
        assert isinstance(refusal, Refusal)
        assert "srv" not in refusal.message
        assert run.also_for == [clear]
        _, (run, _) = await asked(harness, [clear, red])
        assert isinstance(run, Action)
        assert run.also_for is None  # who sees this one may not see that there is another
        low = replace(BEN, clearance=0, acted_through="bot@example.org")
        with pytest.raises(ResponderBotError) as decided:
            await harness.bulks.decide(low, bulk.id, "approve")
        assert decided.value.code == "forbidden"
        assert await harness.measures.listed(low, MeasureFilter(of=clear)) == []
