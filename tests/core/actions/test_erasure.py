"""What is erased, what is refused, and who undoes what a person's runs have left; on both databases."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.audit.reader import export
from core.audit.trail import Refusals
from core.audit.verify import verify
from core.common.clock import MINUTE_MS
from core.common.database.transfer import matching
from core.common.errors import ResponderBotError
from core.common.settings_file import RetentionSection
from core.engines.base import Report
from core.models import AlertInput, AlertUpdate, RunInput, number_of
from core.records.alerts import Alerts
from core.retention.erasure import Eraser
from core.retention.pruning import Retention
from core.settings import ResponderSection
from core.store import audit
from core.store.database.opening import STORE
from tests import programs, stores
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, caller, next_run, open_harness, run_input
from tests.core.actions.test_undo import BLOCK, RELEASE, engine
from tests.programs import PIPE

VALUE = "203.0.113.7"


def has(text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(VALUE)}(?!\w)", text) is not None


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    policies = {BLOCK: ResponderSection(undo=RELEASE, undo_after_minutes=60)}
    async with open_harness(tmp_path, policies=policies, engine=engine(), title=f"from {VALUE}") as opened:
        yield opened


def eraser(harness: Harness) -> Eraser:
    retention = Retention(harness.database, harness.clock, RetentionSection(), pause_s=0)
    return Eraser(harness.database, harness.clock, retention, "example.org")


async def refused(work: Any) -> str:
    with pytest.raises(ResponderBotError) as raised:
        await work
    return raised.value.message


async def left(harness: Harness) -> list[str]:
    return [table.name async for table, _ in matching(STORE, harness.database, has)]


async def another_alert(harness: Harness, ref: str, **fields: Any) -> str:
    body = {"type": "t", "source": "s", "sourceRef": ref, "title": "t", "description": "d", **fields}
    alerts = Alerts(harness.database, harness.clock, "default")
    return (await alerts.create(ANNA, AlertInput.model_validate(body))).id


async def test_what_is_open_or_in_a_case_is_refused(harness: Harness) -> None:
    alerts = Alerts(harness.database, harness.clock, "default")
    assert "is open, or a run" in await refused(eraser(harness).of_roots("alert", [harness.alert_id]))
    await alerts.update(ANNA, harness.alert_id, AlertUpdate(status="Ignored"))
    open_one = await another_alert(harness, "3")
    both = [harness.alert_id, open_one]
    assert f"{open_one} is open, or a run" in await refused(eraser(harness).of_roots("alert", both))
    in_case = await another_alert(harness, "2", title=f"about {VALUE}")
    case = await alerts.create_case(LEAD, in_case, None)
    assert (
        await refused(eraser(harness).of_roots("alert", [in_case]))
        == f"{in_case} is in the case {case.id}, which has what it had; erase that."
    )
    assert "is open" in await refused(eraser(harness).of_roots("case", [case.id]))
    assert "~999 is no alert" in await refused(eraser(harness).of_roots("alert", ["~999"]))
    assert await refused(eraser(harness).of_roots("alert", [case.id])) == f"{case.id} is a case; erase it as a case."
    assert await left(harness)


async def test_a_value_of_an_alert_is_in_no_table_afterwards(harness: Harness) -> None:
    await Alerts(harness.database, harness.clock, "default").update(
        ANNA, harness.alert_id, AlertUpdate(status="Ignored")
    )
    await eraser(harness).carry_out(await eraser(harness).of_roots("alert", [harness.alert_id]), why="asked to")
    assert await left(harness) == []


async def test_whoever_is_named_undoes_what_an_erased_person_left(harness: Harness) -> None:
    action = (await harness.actions.start(ANNA, run_input(harness))).action
    assert f"anna@example.org has runs under way ({action.id})" in await refused(eraser(harness).of_person("anna", ""))
    (await next_run(harness.engine)).finish(Report(True))
    await harness.ended(action.id)
    assert await refused(eraser(harness).of_person("anna", "")) == (
        f"Core is to undo {action.id} for anna@example.org; say who undoes it from now on, with --undo-for LOGIN."
    )
    assert "may not run responders" in await refused(eraser(harness).of_person("anna", "nobody"))
    erasure = await eraser(harness).of_person("anna", "lead")
    await eraser(harness).carry_out(erasure)
    assert "anna@example.org" not in [user.login for user in await harness.people.all()]
    harness.clock.now_ms += 61 * MINUTE_MS
    assert await harness.due.look() == 1
    undoing = await next_run(harness.engine)
    assert undoing.job.responder_name == RELEASE
    undoing.finish(Report(True))
    (row,) = await harness.database.read(
        lambda reads: reads.rows("SELECT created_by FROM action WHERE undoes IS NOT NULL")
    )
    assert row["created_by"] == LEAD.login


async def test_what_was_recorded_while_somebody_was_asked_goes_too(harness: Harness) -> None:
    await Alerts(harness.database, harness.clock, "default").update(
        ANNA, harness.alert_id, AlertUpdate(status="Ignored")
    )
    erasure = await eraser(harness).of_roots("alert", [harness.alert_id])
    refusal = ResponderBotError("forbidden", f"{VALUE} is protected.")
    run = RunInput(object_type="alert", object_id=harness.alert_id, responder_id=BLOCK)
    refusals = Refusals(harness.database, harness.clock, str)
    await refusals.request(refusal, login=ANNA.login, request="POST /", object=harness.alert_id, run=run)
    await eraser(harness).carry_out(erasure)
    assert await left(harness) == []
    exported = export(harness.database, harness.clock, "the command line", since=None, until=None, as_csv=False)
    verify([line.encode() async for line in exported])


async def test_whoever_starts_a_run_while_they_are_erased_stays(harness: Harness) -> None:
    erasure = await eraser(harness).of_person("anna", "")
    action = (await harness.actions.start(ANNA, run_input(harness))).action
    assert "anna@example.org has runs under way" in await refused(eraser(harness).carry_out(erasure))
    (await next_run(harness.engine)).finish(Report(True))
    await harness.ended(action.id)
    assert "say who undoes it" in await refused(eraser(harness).carry_out(erasure))
    assert "anna@example.org" in [user.login for user in await harness.people.all()]


async def test_who_is_erased_has_approved_nothing_that_still_waits(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(approval=2, undo=RELEASE)}
    async with open_harness(tmp_path, policies=policies, engine=engine()) as harness:
        await harness.people.add("carl", "analyst")
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await harness.actions.decide(BEN, action.id, "approve")
        await eraser(harness).carry_out(await eraser(harness).of_person("ben", ""))
        waiting = (await harness.actions.decide(LEAD, action.id, "approve")).approval
        assert waiting is not None
        assert waiting.approved_by == [LEAD.login]
        await harness.actions.decide(caller("carl"), action.id, "approve")
        (await next_run(harness.engine)).finish(Report(True))
        await harness.ended(action.id)


async def test_what_was_pruned_meanwhile_is_no_obstacle(harness: Harness) -> None:
    other = await another_alert(harness, "2", title=f"about {VALUE}")
    for id_ in (other, harness.alert_id):
        await Alerts(harness.database, harness.clock, "default").update(ANNA, id_, AlertUpdate(status="Ignored"))
    erasure = await eraser(harness).of_roots("alert", [other, harness.alert_id])
    retention = Retention(harness.database, harness.clock, RetentionSection(), pause_s=0)
    await retention.delete([("alert", number_of(other))])
    await eraser(harness).carry_out(erasure)
    assert await left(harness) == []


async def test_what_a_person_left_is_undone_by_their_heir_in_a_backup_too(tmp_path: Path) -> None:
    policies = {BLOCK: ResponderSection(undo=RELEASE, undo_after_minutes=60)}
    async with open_harness(tmp_path, audited=False, policies=policies, engine=engine()) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        (await next_run(harness.engine)).finish(Report(True))
        await harness.ended(action.id)
        put_back = stores.kept(tmp_path / "core.db")
        await eraser(harness).carry_out(await eraser(harness).of_person("anna", "lead"))
        rows = await harness.database.read(lambda reads: audit.erasures_after(reads, 0))
        put_back()
        await eraser(harness).again([json.loads(row["doc"]) for row in rows])
        harness.clock.now_ms += 61 * MINUTE_MS
        assert await harness.due.look() == 1
        undoing = await next_run(harness.engine)
        assert undoing.job.responder_name == RELEASE
        undoing.finish(Report(True))


async def test_what_a_failover_of_postgresql_brought_back_is_erased_again(tmp_path: Path) -> None:
    path, list_ = tmp_path / "core.db", tmp_path / "list.jsonl"
    with stores.using("postgresql"):
        async with open_harness(tmp_path, audited=False, title=f"from {VALUE}") as harness:
            await Alerts(harness.database, harness.clock, "default").update(
                ANNA, harness.alert_id, AlertUpdate(status="Ignored")
            )
            put_back = stores.kept(path)
            await eraser(harness).carry_out(await eraser(harness).of_roots("alert", [harness.alert_id]))
            exported = export(harness.database, harness.clock, "the command line", since=None, until=None, as_csv=False)
            list_.write_text("".join([line async for line in exported]))
        put_back()
        async with stores.opened_bots(tmp_path / "core.db"):
            pass
        count = "SELECT count(*) FROM object WHERE kind = 'alert'"
        assert stores.rows(path, count) == [(1,)]
        environment = {
            "RESPONDER_BOT_CORE_DATABASE": stores.setting(path),
        }
        restored = await programs.start(
            "bot.cli", "restore", "--erasures", str(list_), cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE
        )
        _, errors = await restored.communicate()
        assert (restored.returncode, errors.count(b"\n")) == (0, 2), errors
        assert stores.rows(path, count) == [(0,)]
