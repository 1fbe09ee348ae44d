"""How an action ended, who decided on it, and when, as its JSON tells them apart."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.authorization import COMMAND_LINE
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import Action, SearchInput, Vote
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, next_run, open_harness, run_input, started_run

MINUTE_MS = 60_000
ASKS_TWO = {"BlockHost_1_0": ResponderSection(approval=2, approval_expires_minutes=10)}


def how(action: Action) -> tuple[str, str | None, str | None]:
    return action.status, action.outcome, action.ended_by


async def waiting_run(harness: Harness) -> str:
    return (await harness.actions.start(ANNA, run_input(harness))).action.id


async def test_denied_expired_cancelled_and_stopped_are_told_apart_from_failed(tmp_path: Path) -> None:
    ended: list[Action] = []
    async with open_harness(tmp_path, policies=ASKS_TWO) as harness:
        denied, cancelled, expired = [await waiting_run(harness) for _ in range(3)]
        await harness.actions.decide(BEN, denied, "deny", message="Cancelled by ben@example.org")
        await harness.actions.cancel(LEAD, cancelled)
        harness.clock.now_ms += 10 * MINUTE_MS
        await harness.due.look()
        stopped, _ = await started_run(harness, responder="Notify_2_1")
        await harness.actions.cancel(ANNA, stopped.id)
        for report in (Report(False, message="Denied by ben@example.org"), Report(True)):
            await harness.actions.start(ANNA, run_input(harness, "Notify_2_1"))
            (await next_run(harness.engine)).finish(report)
        ended = [await harness.ended(f"~{number}") for number in range(int(denied[1:]), int(denied[1:]) + 6)]
        found = {
            outcome: await ids_with(harness, {"outcome": outcome}) for outcome in ("denied", "expired", "succeeded")
        }
        by_lead = await ids_with(harness, {"endedBy": "lead@example.org"})
    assert [action.id for action in ended][:3] == [denied, cancelled, expired]
    assert [how(action) for action in ended] == [
        ("Failure", "denied", "ben@example.org"),
        ("Deleted", "cancelled", "lead@example.org"),
        ("Failure", "expired", None),
        ("Failure", "stopped", "anna@example.org"),
        ("Failure", "failed", None),
        ("Success", "succeeded", None),
    ]
    assert found == {"denied": [denied], "expired": [expired], "succeeded": [ended[5].id]}
    assert by_lead == [cancelled]
    assert "endedBy" not in json.loads(ended[2].to_json())


async def ids_with(harness: Harness, query: dict[str, Any]) -> Sequence[str]:
    found = await harness.actions.search(SearchInput(query=query))
    return [Action.model_validate_json(text).id for text in found.docs]


async def test_votes_have_their_times_and_a_denial_is_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=ASKS_TWO) as harness:
        approved, denied = [await waiting_run(harness) for _ in range(2)]
        first_at = harness.clock.now_ms
        for action_id in (approved, denied):
            await harness.actions.decide(BEN, action_id, "approve")
        harness.clock.now_ms += MINUTE_MS
        await harness.actions.decide(BEN, approved, "approve")
        await harness.actions.decide(LEAD, approved, "approve")
        await harness.actions.decide(LEAD, denied, "deny")
        (await next_run(harness.engine)).finish(Report(True))
        actions = [await harness.ended(approved), await harness.ended(denied)]
    approvals = [action.approval for action in actions]
    by_ben = Vote(login="ben@example.org", vote="approve", at=first_at)
    by_lead = {"login": "lead@example.org", "at": first_at + MINUTE_MS}
    assert [approval.votes for approval in approvals if approval] == [
        [by_ben, Vote(vote="approve", **by_lead)],
        [by_ben, Vote(vote="deny", **by_lead)],
    ]
    assert [approval.approved_by for approval in approvals if approval] == [
        ["ben@example.org", "lead@example.org"],
        ["ben@example.org"],
    ]


async def test_a_vote_that_does_not_count_any_more_is_not_listed(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=ASKS_TWO) as harness:
        action_id = await waiting_run(harness)
        await harness.actions.decide(BEN, action_id, "approve")
        await harness.people.disable(COMMAND_LINE, "ben")
        after = await harness.actions.decide(LEAD, action_id, "approve")
    assert after.approval is not None
    assert [vote.login for vote in after.approval.votes] == after.approval.approved_by == ["lead@example.org"]


async def test_who_may_not_run_any_more_leaves_a_failure_and_not_a_denial(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=ASKS_TWO) as harness:
        action_id = await waiting_run(harness)
        await harness.people.disable(COMMAND_LINE, "anna")
        with pytest.raises(ResponderBotError, match="may no longer run responders"):
            await harness.actions.decide(BEN, action_id, "approve")
        assert how(await harness.action(action_id)) == ("Failure", "failed", None)


async def test_an_action_has_one_outcome_whoever_decides_at_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=ASKS_TWO) as harness:
        action_id = await waiting_run(harness)
        deciding = (
            *(harness.actions.decide(BEN, action_id, "deny") for _ in range(20)),
            *(harness.actions.cancel(LEAD, action_id) for _ in range(20)),
        )
        results = await asyncio.gather(*deciding, return_exceptions=True)
        ended = await harness.ended(action_id)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert how(ended) in (
        ("Failure", "denied", "ben@example.org"),
        ("Deleted", "cancelled", "lead@example.org"),
    )


async def test_the_time_of_dispatch_leaves_out_the_wait_for_approval(tmp_path: Path) -> None:
    policy = {"BlockHost_1_0": ResponderSection(approval=1, approval_expires_minutes=10)}
    async with open_harness(tmp_path, policies=policy) as harness:
        action_id, denied = [await waiting_run(harness) for _ in range(2)]
        accepted_at = harness.clock.now_ms
        harness.clock.now_ms += 5 * MINUTE_MS
        waiting = await harness.actions.decide(BEN, action_id, "approve")
        await harness.actions.decide(BEN, denied, "deny")
        run = await next_run(harness.engine)
        harness.clock.now_ms += 2_000
        await run.begin()
        running = await harness.action(action_id)
        harness.clock.now_ms += 3_000
        run.finish(Report(True))
        ended = await harness.ended(action_id)
        later = await ids_with(harness, {"_gt": {"dispatchedAt": accepted_at}})
        never = await harness.ended(denied)
    at = accepted_at + 5 * MINUTE_MS
    assert (waiting.dispatched_at, running.dispatched_at, ended.dispatched_at) == (None, at, at)
    assert (ended.start_date, ended.end_date) == (accepted_at, at + 5_000)
    assert later == [action_id]
    assert "dispatchedAt" not in json.loads(never.to_json())
