"""The parameters of a run, as people who may approve, repeat or read it see them."""

import asyncio
import json
from pathlib import Path
from typing import Any

from core.engines.base import Report
from core.models import Action
from core.reports.report import LISTED_PARAMETERS_BYTES, SerializedParameters
from core.settings import ResponderSection
from core.store.search import RESPONSE_LIMIT_CHARS, Window
from tests.core.actions.harness import ANNA, BEN, Harness, open_harness, run_input

EVERYTHING = Window(0, None)


async def listed(harness: Harness) -> list[Action]:
    """The actions of the alert, newest first, as its list has them."""
    text = await harness.actions.list_json("alert", harness.alert_id)
    assert text is not None
    return [Action.model_validate(item) for item in json.loads(text)]


async def test_who_approves_sees_the_parameters_without_secrets_and_they_stay_after_the_end(tmp_path: Path) -> None:
    given = {
        "minutes": 60,
        "reason": "beacon; password hunter2hunter2 seen",
        "api_password": "hunter2hunter2",
        "user": "lead@example.org",
        "organisation": "another",
    }
    shown = {"minutes": 60, "reason": "beacon; password REMOVED seen", "api_password": "REMOVED"}
    policy = {"BlockHost_1_0": ResponderSection(approval=1)}
    async with open_harness(tmp_path, policies=policy) as harness:
        started = await harness.actions.start(ANNA, run_input(harness, parameters=given))
        before = (await listed(harness))[0]
        await harness.actions.decide(BEN, started.action.id, "approve")
        run = await harness.engine.taken.get()
        run.finish(Report(True))
        ended = await harness.ended(started.action.id)
        after = (await listed(harness))[0]
        none = await harness.actions.start(ANNA, run_input(harness, "Notify_2_1"))
    assert [json.loads(action.parameters or "") for action in (started.action, before, after, ended)] == [shown] * 4
    assert json.loads(ended.report)["parameters"] == shown | {"user": "anna@example.org", "organisation": "soc"}
    assert none.action.parameters == "{}"
    assert run.job.parameters["api_password"] == "hunter2hunter2"


async def test_large_parameters_are_cut_in_lists_and_whole_in_the_action(tmp_path: Path) -> None:
    fits = {"text": "x" * (LISTED_PARAMETERS_BYTES - len('{"text":""}'))}
    large = {"text": "é" * LISTED_PARAMETERS_BYTES, "token": "s3cret-s3cret"}
    whole = {"text": large["text"], "token": "REMOVED"}
    size = len(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode())
    async with open_harness(tmp_path) as harness:
        for parameters in (fits, large):
            await harness.actions.start(ANNA, run_input(harness, "Notify_2_1", parameters=parameters))
        second, first = await listed(harness)
        whole_one = await harness.action(second.id)
        (await harness.engine.taken.get()).finish(Report(True))
        (await harness.engine.taken.get()).finish(Report(True))
        ended = await harness.ended(second.id)
    assert json.loads(first.parameters or "") == fits
    assert json.loads(second.parameters or "") == {"truncated": True, "bytes": size}
    assert json.loads(whole_one.parameters or "") == json.loads(ended.parameters or "") == whole


async def test_a_long_list_shortens_parameters_that_imitate_its_keys(tmp_path: Path) -> None:
    imitation = '","report":"{}","createdBy":"lead","parameters":"{}","operations":"[]'
    given: dict[str, Any] = {'"parameters":"': imitation * 150, '","report":"': imitation}
    count = RESPONSE_LIMIT_CHARS // LISTED_PARAMETERS_BYTES + 50
    async with open_harness(tmp_path) as harness:
        request = run_input(harness, "Notify_2_1", parameters=given)
        await asyncio.gather(*(harness.actions.start(ANNA, request) for _ in range(count)))
        docs, _ = await harness.actions.list_range("alert", harness.alert_id, EVERYTHING)
        actions = [Action.model_validate_json(text) for text in docs]
    assert len(actions) == count
    assert sum(map(len, docs)) < RESPONSE_LIMIT_CHARS
    assert {(action.created_by, action.report, action.operations) for action in actions} == {
        ("anna@example.org", "{}", "[]")
    }
    assert json.loads(actions[0].parameters or "") == given
    assert json.loads(actions[-1].parameters or "")["truncated"] is True


def test_parameters_that_are_not_shown_are_no_parameters() -> None:
    assert SerializedParameters.of({"user": "x", "organisation": "y"}).text == "{}"
