"""A run that nobody could approve is refused when it is asked for, and said to be before."""

from pathlib import Path
from typing import Any

import pytest

from core.authorization import COMMAND_LINE
from core.models import Profile, parse_id
from core.responders import target as targets
from core.responders.guards import RulesFor
from core.settings import ResponderSection
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, caller, next_run, open_harness, run_input
from tests.core.actions.test_undo import refused

BLOCK = "BlockHost_1_0"


async def listed(harness: Harness, who: Any) -> tuple[str | None, list[str]]:
    def read(reads: Any) -> tuple[str | None, list[str]]:
        target = targets.load(reads, "alert", parse_id(harness.alert_id))
        rules = RulesFor(harness.guards, reads, who.login)
        found = harness.registry.explained(target, may_run=True, open_runs={}, rules=rules)
        one = next(responder for responder in found if responder.name == BLOCK)
        return one.verdict, [f"{refusal.rule}: {refusal.message}; {refusal.lift}" for refusal in one.refusals or ()]

    return await harness.database.read(read)


async def problems(harness: Harness) -> list[str]:
    return await harness.database.read(harness.guards.problems)


async def leave(harness: Harness, *names: str) -> None:
    for name in names:
        await harness.people.disable(COMMAND_LINE, name)


@pytest.mark.parametrize(
    ("needed", "gone", "said"),
    [(1, ("ben",), ""), (1, ("ben", "lead"), "nobody else"), (2, ("ben",), "only 1 of the 2 people that it takes")],
)
async def test_it_takes_as_many_others_as_the_settings_ask_for(
    tmp_path: Path, needed: int, gone: tuple[str, ...], said: str
) -> None:
    async with open_harness(tmp_path, policies={BLOCK: ResponderSection(approval=needed)}) as harness:
        await leave(harness, *gone)
        verdict, refusals = await listed(harness, ANNA)
        lift = "an administrator may give somebody the right, a higher clearance or a link to Slack"
        assert (verdict, refusals) == (
            ("cannot_run", [f"approval: {said} could approve it; {lift}"]) if said else ("can_run", [])
        )
        assert len(await problems(harness)) == bool(said)
        if said:
            error = await refused(harness.actions.start(ANNA, run_input(harness)))
            assert (error.code, error.message) == ("conflict", f"{BLOCK} can't run: {said} could approve it; {lift}.")
            assert error.details["rule"] == "approval"
        else:
            assert (await harness.actions.start(ANNA, run_input(harness))).action.approval is not None


async def test_only_those_whom_the_settings_name_count_and_never_the_requester(tmp_path: Path) -> None:
    section = ResponderSection(approval=1, approve_by=("ben", "@leads"))
    async with open_harness(tmp_path, policies={BLOCK: section}) as harness:
        assert await listed(harness, ANNA) == ("can_run", [])
        error = await refused(harness.actions.start(BEN, run_input(harness)))
        assert "nobody else could approve it" in error.message
        assert "or let others than ben and @leads approve it" in error.message
        assert len(await problems(harness)) == 1  # the empty group: ANNA and LEAD can ask
        await leave(harness, "ben")
        assert [sentence for sentence in await problems(harness) if "No run of" in sentence] == [
            f"No run of {BLOCK} can be approved: each takes 1 beside who asks for it, and 0 people may approve;"
            " give somebody the right, or change its approval."
        ]


@pytest.mark.parametrize(("linked", "can"), [(True, False), (False, True)])
async def test_who_decides_in_slack_has_to_be_cleared(tmp_path: Path, linked: bool, can: bool) -> None:
    async with open_harness(tmp_path, policies={BLOCK: ResponderSection(approval=1)}) as harness:
        await leave(harness, "lead")
        await harness.people.set_clearance("ben", 1)
        if linked:
            await harness.people.link("ben", "U0BEN")
        assert (await listed(harness, ANNA))[0] == ("can_run" if can else "cannot_run")


async def test_what_waits_may_still_be_approved_by_who_is_left(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies={BLOCK: ResponderSection(approval=1)}) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action
        await leave(harness, "ben")
        await harness.actions.decide(LEAD, action.id, "approve")
        assert (await next_run(harness.engine)).job.action_id == action.id


@pytest.mark.parametrize(("profile", "can"), [("analyst", False), ("org-admin", True)])
async def test_an_override_takes_another_org_admin(tmp_path: Path, profile: Profile, can: bool) -> None:
    async with open_harness(
        tmp_path, protected=["198.51.100.7"], artifacts=[{"dataType": "ip", "data": "198.51.100.7"}]
    ) as harness:
        await harness.people.add("cy", profile)
        request = run_input(harness, override={"reason": "it spreads"})
        if can:
            assert (await harness.actions.start(LEAD, request)).action.approval is not None
        else:
            error = await refused(harness.actions.start(LEAD, request))
            assert error.details["rule"] == "approval"
        assert (await refused(harness.actions.start(caller("cy"), request))).code == "forbidden"
