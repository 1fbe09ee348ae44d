"""A secret input is kept until its run has ended; then no byte of it is left in what core has stored."""

import json
import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Report
from core.models import Action, Parameter, UndoInput, parse_parameters
from core.responders.settings_section import settings_problems
from core.settings import ResponderSection
from tests import stores
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness, run_input, started_run
from tests.core.core_process import alert_in, core_process, run_body, setup_in, until, write_pipe
from tests.core.running import RunningCore, running_core
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine

ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK = BLOCK_HOST.name
SECRET = "correct-horse-battery-staple"
LONG = SECRET * 900  # takes pages of its own in a database
DECLARED = ({"name": "passphrase", "secret": True, "type": "text"}, {"name": "reason", "type": "text"})
GIVEN = {"passphrase": SECRET, "reason": f"it said {SECRET}"}
SHOWN = {"passphrase": "REMOVED", "reason": "it said REMOVED"}
NOTE = f"since {SECRET} was seen"


def section(**policy: Any) -> ResponderSection:
    return ResponderSection.model_validate({"parameter": DECLARED, **policy})


def traces(folder: Path, secret: str = SECRET) -> list[str]:
    """Where the secret is: files below the folder, and tables of its database on PostgreSQL."""
    files = [path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
    found = [path.name for path in files if secret.encode() in path.read_bytes()]
    if stores.dialect() == "postgresql":
        database = folder / "core.db"
        names = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        for (name,) in stores.rows(database, names):
            rows = stores.rows(database, f'SELECT CAST(t AS TEXT) FROM "{name}" AS t')  # noqa: S608
            found += [name for (row,) in rows if secret in row]
    return sorted(set(found))


# --- one run ----------------------------------------------------------------------------------------------------------


async def run_to(harness: Harness, end: str, parameters: Mapping[str, Any]) -> Action:
    """A run of ANNA with these inputs that ends so."""
    request = run_input(harness, parameters=parameters, note=NOTE if parameters == GIVEN else "")
    body = json.dumps(parameters)
    action = (await harness.actions.start(ANNA, request, key=f"{len(body)}", body=body)).action
    assert SECRET not in action.to_json()
    if end == "denied":
        return await harness.actions.decide(BEN, action.id, "deny")
    if end == "cancelled":
        await harness.actions.cancel(ANNA, action.id)
    elif end == "expired":
        harness.clock.now_ms += 61 * 60_000
        await harness.due.look()
    else:
        await harness.actions.decide(BEN, action.id, "approve")
        run = await next_run(harness.engine)
        assert run.job.parameters["passphrase"] == parameters["passphrase"]
        if end == "stopped":
            await harness.actions.cancel(ANNA, action.id)
        else:
            echo = "" if parameters["passphrase"] == LONG else f"used {SECRET}"  # what is longer isn't looked for
            run.finish(Report(end == "succeeded", full={"message": echo}, message=echo, operations=({"type": echo},)))
    return await harness.ended(action.id)


@pytest.mark.parametrize("end", ["succeeded", "failed", "stopped", "denied", "cancelled", "expired"])
async def test_no_byte_of_a_secret_is_left_once_its_run_has_ended(tmp_path: Path, end: str) -> None:
    async with open_harness(tmp_path, policies={BLOCK: section(approval=1)}) as harness:
        waiting = await harness.actions.start(ANNA, run_input(harness, parameters=GIVEN))
        assert traces(tmp_path)  # while it waits it is there, and this would find it
        await harness.actions.decide(BEN, waiting.action.id, "deny")
        ended = await run_to(harness, end, GIVEN)
        assert (ended.outcome, json.loads(ended.parameters or "")) == (end, SHOWN)
        assert ended.note == "since REMOVED was seen"
        await run_to(harness, end, {"passphrase": LONG})
    assert traces(tmp_path) == []


async def test_the_reason_of_an_override_shows_no_secret(tmp_path: Path) -> None:
    policies = {BLOCK: section(rate=("1/1h",))}
    async with open_harness(tmp_path, policies=policies) as harness:
        await harness.people.add("cy", "org-admin")  # who could approve it
        await harness.actions.start(ANNA, run_input(harness))
        request = run_input(harness, parameters=GIVEN, breakGlass={"reason": NOTE})
        action = (await harness.actions.start(LEAD, request)).action
        assert action.override is not None
        assert (action.note, action.override.reason) == ("since REMOVED was seen",) * 2


async def test_no_byte_of_a_secret_is_left_among_many_runs(tmp_path: Path) -> None:
    """Also where rows have moved to other pages since."""
    async with open_harness(tmp_path, policies={BLOCK: section(approval=1)}) as harness:
        sizes = [100, 3_000, 9_000, 400] * 12
        requests = [run_input(harness, parameters={"passphrase": SECRET * (n // 28), "reason": "x" * n}) for n in sizes]
        started = [(await harness.actions.start(ANNA, request)).action.id for request in requests]
        for number in (*started[::2], *started[1::2]):
            await harness.actions.decide(BEN, number, "deny")
    assert traces(tmp_path) == []


async def test_a_secret_by_its_name_and_one_of_a_responder_that_declares_nothing_are_not_left_either(
    tmp_path: Path,
) -> None:
    async with open_harness(tmp_path) as harness:
        given = {"login": {"user": "x", "api_token": SECRET}, "url": f"https://10.0.0.1/?q={SECRET}"}
        action, run = await started_run(harness)
        run.finish(Report(True))
        await harness.ended(action.id)
        await harness.actions.start(ANNA, run_input(harness, NOTIFY.name, parameters=given))
        run = await next_run(harness.engine)
        assert run.job.parameters["login"]["api_token"] == SECRET
        run.finish(Report(True))
        await harness.ended(run.job.action_id)
    assert traces(tmp_path) == []


# --- what uses inputs again -------------------------------------------------------------------------------------------


async def test_a_repeated_key_is_told_from_another_body_by_its_digest(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies={BLOCK: section(approval=1)}) as harness:
        request = run_input(harness, parameters=GIVEN)
        both = [await harness.actions.start(ANNA, request, key="k", body=json.dumps(GIVEN)) for _ in range(2)]
        assert [started.new for started in both] == [True, False]
        with pytest.raises(ResponderBotError, match="another body"):
            await harness.actions.start(ANNA, request, key="k", body=json.dumps({**GIVEN, "passphrase": "another"}))
        kept = stores.rows(tmp_path / "core.db", "SELECT * FROM idempotency")
        assert SECRET not in str(kept)


async def test_an_undo_gets_no_secret_and_nothing_that_one_was_cut_out_of(tmp_path: Path) -> None:
    engine = ScriptedEngine(offered=(BLOCK_HOST, NOTIFY))
    declared = (*DECLARED, {"name": "host"})
    policies = {
        BLOCK: section(undo=NOTIFY.name, parameter=declared),
        NOTIFY.name: ResponderSection.model_validate({"parameter": declared}),
    }
    async with open_harness(tmp_path, engine=engine, policies=policies) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness, parameters={**GIVEN, "host": "web-3"}))).action
        (await next_run(engine)).finish(Report(True))
        await harness.ended(action.id)
        await harness.undos.undo(ANNA, action.id, UndoInput())
        run = await next_run(engine)
        assert {name for name in run.job.parameters if name in ("passphrase", "reason", "host")} == {"host"}
        run.finish(Report(False))
        await harness.ended(run.job.action_id)
        await harness.undos.undo(ANNA, action.id, UndoInput(parameters={"passphrase": SECRET}))
        assert (await next_run(engine)).job.parameters["passphrase"] == SECRET


def test_an_undo_that_needs_a_secret_is_told_at_start() -> None:
    sections = {
        BLOCK: section(undo=NOTIFY.name),
        NOTIFY.name: ResponderSection.model_validate({"parameter": ({**DECLARED[0], "required": True},)}),
    }
    (problem,) = settings_problems(sections, [Catalogue((BLOCK_HOST, NOTIFY))])
    assert problem == (
        f'The settings\' [responder."{BLOCK}"] undo names {NOTIFY.name}, which requires the secret input passphrase;'
        " none is kept to undo a run, so put it into that responder's config."
    )


@asynccontextmanager
async def core_in(folder: Path, **policy: Any) -> AsyncIterator[RunningCore]:
    async with running_core(folder, responder={CLOSE: section(**policy)}) as core:
        for name in ("analyst", "org-admin"):
            await core.key(name)
        yield core


async def new_alerts(core: RunningCore, count: int) -> list[str]:
    body = {"type": "siem", "source": "s", "title": "t", "description": "d"}
    return [(await core.send("POST", "/api/alert", {**body, "sourceRef": str(n)})).json()["id"] for n in range(count)]


async def test_a_bulk_leaves_no_secret_and_is_not_run_again_without_it(tmp_path: Path) -> None:
    async with core_in(tmp_path, approval=1) as core:
        targets = [{"objectType": "alert", "objectId": number} for number in await new_alerts(core, 3)]
        body = {"responderId": CLOSE, "targets": targets, "parameters": GIVEN, "note": NOTE}
        headers = {"Idempotency-Key": "k"}
        bulk = (await core.send("POST", f"{ACTION}/_bulk", body, profile="analyst", headers=headers)).json()
        unknown = {**body, "responderId": "Nobody_1_0"}
        assert (await core.send("POST", f"{ACTION}/_bulk", unknown, profile="analyst")).status_code == 200
        assert SECRET not in str(stores.rows(tmp_path / "core.db", "SELECT request FROM bulk"))
        first, *others = [entry["action"]["id"] for entry in bulk["actions"]]
        await core.send("POST", f"{ACTION}/{first}/deny", {})
        for number in others:
            await core.send("DELETE", f"{ACTION}/{number}")
        refused = await core.send("POST", f"{ACTION}/_bulk/{bulk['id']}/retry", profile="analyst")
        sentence = "Its inputs had a secret, which isn't kept, so run it on these objects with new inputs."
        assert refused.json()["message"] == sentence
    assert traces(tmp_path) == []


async def test_a_bulk_that_failed_is_not_run_again_without_its_secret(tmp_path: Path) -> None:
    async with core_in(tmp_path, run_by=()) as core:  # nobody may run it, so all are refused
        (alert,) = await new_alerts(core, 1)
        targets = [{"objectType": "alert", "objectId": alert}]
        body = {"responderId": CLOSE, "targets": targets, "parameters": GIVEN}
        bulk = (await core.send("POST", f"{ACTION}/_bulk", body, profile="analyst")).json()
        again = await core.send("POST", f"{ACTION}/_bulk/{bulk['id']}/retry", profile="analyst")
        assert (again.status_code, again.json()["message"]) == (
            409,
            "Its inputs had a secret, which isn't kept, so run it on these objects with new inputs.",
        )
    assert traces(tmp_path) == []


async def test_a_wrong_secret_is_not_repeated_in_the_refusal(tmp_path: Path) -> None:
    parameter = {"name": "passphrase", "secret": True, "pattern": "[0-9]+"}
    async with running_core(tmp_path, responder={CLOSE: section(parameter=(parameter,))}) as core:
        (alert,) = await new_alerts(core, 1)
        body = {"responderId": CLOSE, "objectType": "alert", "objectId": alert, "parameters": {"passphrase": SECRET}}
        answer = await core.send("POST", ACTION, body)
        assert answer.status_code == 400
        assert SECRET not in answer.text


# --- across a crash ---------------------------------------------------------------------------------------------------


async def test_no_byte_of_a_secret_is_left_after_core_was_killed_in_the_middle(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path)
    go = tmp_path / "go"
    os.mkfifo(go)
    async with core_process(setup) as core:
        parameters = {"steps": [f"wait {go}", f"write {SECRET}"], "api_token": SECRET}
        body = run_body(await alert_in(core), parameters=parameters)
        action = await core.running((await core.client().run(body, idempotency_key="k")).id)
        await core.kill()
    assert traces(tmp_path)
    async with core_process(setup, "again") as core:
        await write_pipe(go)
        ended = await core.ended(action.id)
        assert (ended.status, json.loads(ended.report)["message"]) == ("Success", "REMOVED")
        await until(lambda: not setup.job(action).exists(), "its job folder to be gone")
        core.process.terminate()
        assert await core.process.wait() == 0
    assert traces(tmp_path) == []


# --- what can be declared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"default": "x"}, {"type": "number"}, {"type": "choice", "options": ["a", "b"]}])
def test_only_a_text_without_a_default_is_secret(more: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="only a `string` or `text` is secret, and it has no default"):
        parse_parameters([{"name": "passphrase", "secret": True, **more}])


def test_a_text_is_secret_by_its_name() -> None:
    found = parse_parameters([{"name": "api_token"}, {"name": "use_key", "type": "boolean"}, {"name": "reason"}])
    assert [parameter.secret for parameter in found] == [True, False, False]
    assert "secret" not in Parameter(name="reason").to_json()
