"""The newest actions in a state, which lists in Slack show."""

from pathlib import Path

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import Action
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, Harness, caller, next_run, open_harness, run_input

ASKS = {"BlockHost_1_0": ResponderSection(approval=1, approval_expires_minutes=10)}


async def newest(harness: Harness, state: str, by: str = "", since: int = 0, limit: int = 50) -> list[str]:
    login = f"{by}@example.org" if by else ""
    docs = await harness.actions.newest(state, login, since, limit)
    return [Action.model_validate_json(doc).id for doc in docs]


async def test_each_state_has_its_newest_actions_first(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=ASKS) as harness:

        async def ran(who: str, report: Report) -> str:
            started = await harness.actions.start(caller(who), run_input(harness, "Notify_2_1"))
            (await next_run(harness.engine)).finish(report)
            await harness.ended(started.action.id)
            harness.clock.now_ms += 1_000
            return started.action.id

        first = await ran("anna", Report(False, message="no"))
        before = harness.clock.now_ms
        second, by_ben = await ran("anna", Report(False, message="no")), await ran("ben", Report(False, message="no"))
        done = await ran("anna", Report(True))
        denied, waits, waits_too = [
            (await harness.actions.start(who, run_input(harness))).action.id for who in (ANNA, ANNA, BEN)
        ]
        await harness.actions.decide(BEN, denied, "deny")
        running = (await harness.actions.start(ANNA, run_input(harness, "Notify_2_1"))).action.id
        assert await newest(harness, "failed") == [by_ben, second, first]
        assert await newest(harness, "failed", since=before) == [by_ben, second]
        assert await newest(harness, "failed", "anna", limit=1) == [second]
        assert await newest(harness, "ended", "anna") == [denied, done, second, first]
        assert await newest(harness, "open", "anna") == [running, waits]
        assert await newest(harness, "waiting") == [waits_too, waits]
        assert await newest(harness, "active", "anna") == []
        assert await newest(harness, "waiting", limit=0) == []
        await harness.actions.decide(BEN, waits, "approve")
        assert await newest(harness, "waiting") == [waits_too]
        assert await newest(harness, "open", "anna") == [running, waits]


@pytest.mark.parametrize(("state", "by"), [("", ""), ("open", ""), ("ended", ""), ("waiting", "anna"), ("x", "anna")])
async def test_a_list_that_no_index_has_is_refused(tmp_path: Path, state: str, by: str) -> None:
    async with open_harness(tmp_path) as harness:
        with pytest.raises(ResponderBotError, match="`state` is open, active or ended"):
            await newest(harness, state, by)
