"""Checks of what is in force: when they run, what their answers change, and that nobody else notices them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.actions.checks import AT_ONCE, RETRY_MS, Checks
from core.actions.measures import MeasureFilter, Measures
from core.common.errors import ResponderBotError
from core.engines.base import Report, Responder
from core.hosts.hosts import LEASE_MS, Host
from core.models import Action, AlertInput, Measure, MeasureOfRun, SearchInput, UndoInput, Verified, parse_id
from core.records.alerts import Alerts
from core.responders.settings_problems import settings_problems
from core.settings import ResponderSection, load
from core.store import events, objects
from core.store import measures as stored
from core.store.search import Window
from tests.core.actions.harness import (
    ANNA,
    BEN,
    LEAD,
    ActionParts,
    Harness,
    another_core,
    next_run,
    open_harness,
    run_input,
    silence,
)
from tests.core.actions.test_undo import BLOCK, DONE, FAILED, MINUTE_MS, RELEASE, RELEASE_HOST
from tests.core.core_process import alert_in, core_process, run_body, setup_in
from tests.core.scripted_engine import BLOCK_HOST, Run, ScriptedEngine

LOOK = "IsHostBlocked_1_0"
LOOK_AT_HOST = Responder(id="r-look", name=LOOK, version="1.0", description="Looks", data_types=("thehive:alert",))
EVERY_MS = 60 * MINUTE_MS
LOST = Report(False, message="Host b was lost while it ran.")


def says(answer: object, message: object = "") -> Report:
    return Report(
        True, full={"answer": answer, "message": message}, operations=({"type": "AddTagToAlert", "tag": "x"},)
    )


def engine(*, looks: Responder | None = LOOK_AT_HOST, at_once: int | None = None) -> ScriptedEngine:
    responders = [BLOCK_HOST, RELEASE_HOST, *([looks] if looks else [])]
    return ScriptedEngine(offered=responders, at_once=at_once)


def policies(**block: Any) -> dict[str, ResponderSection]:
    section = {"undo": RELEASE, "target": "hostname", "verify": LOOK, **block}
    return {BLOCK: ResponderSection.model_validate(section)}


@asynccontextmanager
async def harness_with(
    tmp_path: Path, *, offered: ScriptedEngine | None = None, **block: Any
) -> AsyncIterator[Harness]:
    """BlockHost is undone by ReleaseHost, and checked by IsHostBlocked every hour."""
    artifacts = [{"dataType": "hostname", "data": "SRV-DC01"}]
    own = policies(**block)
    async with open_harness(tmp_path, engine=offered or engine(), policies=own, artifacts=artifacts) as harness:
        yield harness


def checks_of(core: ActionParts) -> Checks:
    return Checks(core.lifecycle, core.runner, core.registry, core.database, core.clock)


def measures_of(core: ActionParts) -> Measures:
    return Measures(core.undos, core.registry, core.guards, core.database, core.clock)


async def only(core: ActionParts) -> Measure:
    (measure,) = await measures_of(core).listed(ANNA, MeasureFilter())
    return measure


async def on_host(harness: Harness, name: str) -> str:
    """An alert that names this host; its id."""
    fields = {"type": "siem", "source": "s", "sourceRef": name, "title": "t", "description": "d"}
    artifacts = [{"dataType": "hostname", "data": name}]
    alerts = Alerts(harness.database, harness.clock, "soc")
    return (await alerts.create(LEAD, AlertInput.model_validate({**fields, "artifacts": artifacts}))).id


async def blocked(harness: Harness, report: Report = DONE, **more: Any) -> Action:
    started = await harness.actions.start(ANNA, run_input(harness, **more))
    (await next_run(harness.engine)).finish(report)
    return await harness.ended(started.action.id)


async def looked(harness: Harness, report: Report, core: ActionParts | None = None) -> Run:
    """Begin the check that is due, and have it end like this."""
    await checks_of(core or harness).run_due()
    run = await next_run(harness.engine)
    assert run.job.responder_name == LOOK
    await finish(harness, run, report)
    return run


async def finish(harness: Harness, run: Run, report: Report) -> None:
    run.finish(report)
    while run.job.action_id not in harness.engine.forgotten:  # noqa: ASYNC110 - its end has no event
        await asyncio.sleep(0)


async def verified(harness: Harness, action: Action) -> Verified | None:
    measure = (await harness.action(action.id)).measure
    assert measure is not None
    return measure.verified


async def newest_event(harness: Harness) -> int:
    return await harness.database.read(events.last)


# --- when, and what they say ------------------------------------------------------------------------------------------


async def test_it_is_checked_right_after_its_run_and_every_period(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        assert (await only(harness)).verified is None
        run = await looked(harness, says("confirmed", "contained since 12:00"))
        first = await harness.action(action.id)
        assert run.job.data == harness.engine.runs[0].job.data
        assert run.job.parameters == {"user": ANNA.login, "organisation": "soc", "verifies": action.id}
        known = Verified(answer="confirmed", since=harness.clock(), message="contained since 12:00")
        assert (first.measure, (await only(harness)).verified) == (
            MeasureOfRun(state="in_force", since=harness.clock(), verified=known),
            known,
        )
        for _ in range(3):
            harness.clock.now_ms += EVERY_MS - 1
            assert not await checks_of(harness).run_due()
            harness.clock.now_ms += 1
            at = await newest_event(harness)
            await looked(harness, says("confirmed", "other words"))
            assert await newest_event(harness) == at  # the answer is the same
            assert await harness.action(action.id) == first
        assert len(harness.engine.runs) == 5


async def test_every_change_of_the_answer_is_an_event_and_nothing_else_is(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        at = await newest_event(harness)
        for answer in ("confirmed", "contradicted", "contradicted", "unknown", "unknown", "confirmed"):
            await looked(harness, says(answer))
            harness.clock.now_ms += EVERY_MS
        assert (await only(harness)).state == "in_force"
        page = await harness.database.read(lambda reads: events.after(reads, at, 100))
        seen = [(row["type"], row["object_id"]) for row in page]
        assert seen == [("action.updated", action.number)] * 4


@pytest.mark.parametrize(
    "report",
    [
        FAILED,
        LOST,
        Report(True, message="done"),
        says("yes"),
        says(True),
        says(None),
        says(["confirmed"]),
        Report(False, full={"answer": "confirmed"}),
    ],
)
async def test_what_is_no_answer_is_unknown_and_ends_nothing(tmp_path: Path, report: Report) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, report)
        known = await verified(harness, action)
        assert known is not None
        assert known.answer == "unknown"
        assert (await only(harness)).state == "in_force"


async def test_a_long_or_odd_message_is_cut_or_left_out(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted", "x" * 1000))
        assert len((await verified(harness, action) or Verified(answer="unknown", since=0)).message) == 300
        harness.clock.now_ms += EVERY_MS
        await looked(harness, says("confirmed", {"a": 1}))
        assert (await verified(harness, action) or Verified(answer="unknown", since=0, message="x")).message == ""


async def test_a_check_answers_what_a_run_did_whose_end_nobody_knows(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness, LOST)
        assert (await only(harness)).state == "unknown"
        await looked(harness, says("unknown"))
        assert (await only(harness)).state == "unknown"
        harness.clock.now_ms += EVERY_MS
        await looked(harness, says("confirmed"))
        measure = (await harness.action(action.id)).measure
        assert measure is not None
        assert ((await only(harness)).state, measure.state) == ("in_force", "in_force")


async def test_what_a_check_contradicts_stays_listed_and_is_counted(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        await blocked(harness)
        assert await measures_of(harness).counts() == {"in_force": 1}
        await looked(harness, says("contradicted", "the host is online"))
        measure = await only(harness)
        assert measure.verified is not None
        assert (measure.verified.answer, measure.verified.message) == ("contradicted", "the host is online")
        assert await measures_of(harness).counts() == {"contradicted": 1}
        await measures_of(harness).mark_as_ended(BEN, measure.id, "reinstalled")
        assert await measures_of(harness).counts() == {}
        harness.clock.now_ms += EVERY_MS
        assert not await checks_of(harness).run_due()


async def test_nothing_is_checked_that_has_ended_or_that_no_settings_name(tmp_path: Path) -> None:
    async with harness_with(tmp_path, verify="") as harness:
        await blocked(harness)
        assert not await checks_of(harness).run_due()
        # The settings name it from the next start on, and later no longer.
        async with another_core(harness, harness.engine, policies=policies()) as later:
            checks = checks_of(later)
            await checks.open()
            await looked(harness, says("confirmed"), later)
        harness.clock.now_ms += EVERY_MS
        checks = checks_of(harness)
        await checks.open()
        assert not await checks.run_due()


async def test_a_clock_that_is_set_back_stops_no_checks(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        await blocked(harness)
        await looked(harness, says("confirmed"))
        harness.clock.now_ms -= 3 * 24 * EVERY_MS
        await looked(harness, says("confirmed"))
        assert not await checks_of(harness).run_due()


# --- what changes meanwhile -------------------------------------------------------------------------------------------


async def test_the_answer_of_a_check_that_an_undo_overtook_does_not_count(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        await checks_of(harness).run_due()
        look = await next_run(harness.engine)
        undo = (await harness.undos.undo(BEN, action.id, UndoInput())).action
        release = await next_run(harness.engine)
        await finish(harness, look, says("contradicted"))
        assert await verified(harness, action) is None
        # While it is being undone nothing is checked, and after that at once.
        harness.clock.now_ms += EVERY_MS
        await checks_of(harness).run_due()
        assert len(harness.engine.runs) == 3
        release.finish(FAILED)
        await harness.ended(undo.id)
        await looked(harness, says("confirmed"))
        assert (await only(harness)).state == "in_force"


async def test_the_answer_of_a_check_that_another_run_overtook_does_not_count(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        await looked(harness, says("contradicted"))
        harness.clock.now_ms += EVERY_MS
        await checks_of(harness).run_due()
        look = await next_run(harness.engine)
        again = await harness.actions.start(ANNA, run_input(harness))
        block = await next_run(harness.engine)
        await finish(harness, look, says("contradicted"))
        harness.clock.now_ms += RETRY_MS
        await checks_of(harness).run_due()
        assert len(harness.engine.runs) == 4
        block.finish(DONE)
        await harness.ended(again.action.id)
        assert (await only(harness)).verified is None  # what was said before the new run says nothing of now
        await checks_of(harness).run_due()
        for look in [await next_run(harness.engine) for _ in range(2)]:
            await finish(harness, look, says("contradicted"))
        told = [await verified(harness, one) for one in (action, again.action)]
        assert [one and (one.answer, one.since) for one in told] == [("contradicted", harness.clock())] * 2


async def test_an_answer_for_what_ended_meanwhile_is_dropped(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        await checks_of(harness).run_due()
        look = await next_run(harness.engine)
        await measures_of(harness).mark_as_ended(BEN, action.id, "so")
        before = await harness.action(action.id)
        await finish(harness, look, says("contradicted"))
        assert await harness.action(action.id) == before
        assert await harness.database.read(stored.open_checks) == 0


async def test_of_runs_on_the_same_the_newest_answer_counts(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        await blocked(harness)
        await blocked(harness)
        await checks_of(harness).run_due()
        for answer in ("contradicted", "confirmed"):
            harness.clock.now_ms += 1
            await finish(harness, await next_run(harness.engine), says(answer))
        known = (await only(harness)).verified
        assert known is not None
        assert known.answer == "confirmed"


# --- as any run, and unseen -------------------------------------------------------------------------------------------


async def test_no_list_search_or_feed_has_a_check_and_nobody_can_act_on_one(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        at = await newest_event(harness)
        await checks_of(harness).run_due()
        look = await next_run(harness.engine)
        await look.begin()
        check_id, actions = look.job.action_id, harness.actions
        assert (await actions.search(SearchInput())).total == 1
        assert (await actions.list_range("alert", harness.alert_id, Window(0, None)))[1] == 1
        assert await actions.newest("open", ANNA.login, 0, 10) == []
        for work in (actions.get_json(check_id), actions.cancel(LEAD, check_id), actions.approve(LEAD, check_id)):
            with pytest.raises(ResponderBotError) as refused:
                await work
            assert refused.value.code == "not_found"
        await finish(harness, look, Report(False, message="no"))
        number = parse_id(harness.alert_id) or 0
        tags = await harness.database.read(
            lambda reads: objects.parsed((objects.find(reads, "alert", number) or {})["doc"])
        )
        assert tags["tags"] == []
        page = await harness.database.read(lambda reads: events.after(reads, at, 100))
        assert [row["object_id"] for row in page] == [action.number]  # that its answer is unknown


async def test_no_more_run_at_once_than_are_allowed_and_who_waits_longest_is_next(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        actions = []
        for number in range(5):
            harness.clock.now_ms += 1
            actions.append(await blocked(harness, objectId=await on_host(harness, f"h{number}")))
        checked = []
        for _ in range(5):
            await checks_of(harness).run_due()
            assert await harness.database.read(stored.open_checks) <= AT_ONCE
            look = await next_run(harness.engine)
            checked.append(look.job.parameters["verifies"])
            await finish(harness, look, says("confirmed"))
        assert sorted(checked) == sorted(action.id for action in actions)
        assert not await checks_of(harness).run_due()


async def test_two_cores_check_it_once(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness, another_core(harness, engine(), policies=policies()) as other:
        await blocked(harness)
        for _ in range(3):
            await asyncio.gather(checks_of(harness).run_due(), checks_of(other).run_due())
        assert await harness.database.read(stored.open_checks) == 1


async def test_the_check_of_a_lost_host_is_unknown(tmp_path: Path) -> None:
    async with harness_with(tmp_path) as harness:
        action = await blocked(harness)
        elsewhere, there = engine(), {"host": Host("there", "id-of-there"), "lease_clock": harness.clock}
        async with another_core(harness, elsewhere, policies=policies(), **there) as other:
            await checks_of(other).run_due()
            await next_run(elsewhere)
            await harness.runner.tick()
            await silence(harness.clock, LEASE_MS, harness)
        known = await verified(harness, action)
        assert known is not None
        assert (known.answer, "was lost" in known.message) == ("unknown", True)


async def test_rules_of_people_bind_no_check(tmp_path: Path) -> None:
    rules = ResponderSection.model_validate(
        {"approval": 1, "run_by": (), "rate": "1/1h", "breaker": {"failures": 1, "within_minutes": 60}}
    )
    async with harness_with(tmp_path) as harness:
        both = {**policies(), LOOK: rules}
        async with another_core(harness, harness.engine, policies=both) as core:
            await blocked(harness)
            await looked(harness, FAILED, core)
            harness.clock.now_ms += EVERY_MS
            await looked(harness, says("confirmed"), core)
            assert await core.actions.paused() == []


@pytest.mark.parametrize(
    ("looks", "sentence"),
    [
        (None, f"Responder {LOOK} not found"),
        (replace(LOOK_AT_HOST, max_tlp=1), "TLP:AMBER is above the TLP:GREEN that it may see"),
        (replace(LOOK_AT_HOST, data_types=("thehive:case",)), "it is not for this kind of target"),
    ],
)
async def test_why_nothing_can_be_checked_is_said(tmp_path: Path, looks: Responder | None, sentence: str) -> None:
    async with harness_with(tmp_path, offered=engine(looks=looks)) as harness:
        action = await blocked(harness)
        await checks_of(harness).run_due()
        known = await verified(harness, action)
        assert known is not None
        assert (known.answer, sentence in known.message) == ("unknown", True)
        assert not await checks_of(harness).run_due()


async def test_after_kill_9_the_next_cores_answer_what_is_in_force(tmp_path: Path) -> None:
    responders = {"Block": {"undo": "Release_1_0", "verify": "Look_1_0"}, "Release": {}, "Look": {}}
    setup = await setup_in(tmp_path, responders=responders)
    async with core_process(setup) as core:
        alert = await alert_in(core)
        runs = setup.runs("all")
        action = await core.client().run(run_body(alert, "Block_1_0", parameters={"runs": str(runs)}))
        await core.ended(action.id)
        await core.kill()
    async with core_process(setup) as first, core_process(setup, "second"):
        page = await first.client().events(None, 0)
        while (measure := (await first.client().action(action.id)).measure) is None or measure.verified is None:
            page = await first.client().events(page.last, 20)
        assert (measure.state, measure.verified.answer) == ("in_force", "unknown")  # that program answers nothing
        assert [one.id for one in await first.client().actions("alert", alert)] == [action.id]
    assert setup.counted("all") == 1


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_settings_that_check_nothing_are_told(tmp_path: Path) -> None:
    catalogue = await engine().catalogue()
    for name, reason in (("IsHostBlockd_1_0", f'did you mean "{LOOK}"?'), (BLOCK, "the responder itself")):
        (problem,) = settings_problems(policies(verify=name), [catalogue])
        assert reason in problem
    file = tmp_path / "settings.toml"
    file.write_text("[responder.Block]\nverify = 'X'\nverify_every = 'x'")
    with pytest.raises(ResponderBotError, match="a time such as"):
        load(file, {})
