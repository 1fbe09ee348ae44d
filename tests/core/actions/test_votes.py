"""What a vote rests on: its key and who made that, the clearance of its person then and now, and the time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.common.clock import DAY_MS, HOUR_MS, MINUTE_MS
from core.common.errors import ResponderBotError
from core.settings import ResponderSection
from tests.clock import SetClock
from tests.core.actions.harness import ANNA, BEN, Harness, another_core, caller, open_harness, run_input
from tests.core.running import RunningCore, running_core

ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
DOMAIN = "@responder-bot.local"


async def waiting(core: RunningCore, *, by: str, tlp: int = 2) -> str:
    alert = {"type": "siem", "source": "s", "sourceRef": f"{by} {tlp}", "title": "t", "description": "d", "tlp": tlp}
    object_id = (await core.send("POST", "/api/alert", alert)).json()["id"]
    run = {"responderId": CLOSE, "objectType": "alert", "objectId": object_id}
    return str((await sent(core, by, "POST", ACTION, run))["id"])


async def sent(core: RunningCore, key: str, method: str, path: str, body: Any = None, *, status: int = 0) -> Any:
    headers = {"Authorization": f"Bearer {core.keys.get(key, key)}"}
    answer = await core.send(method, path, body, profile=None, headers=headers)
    assert answer.status_code == status if status else answer.status_code < 300, answer.text
    return answer.json()


async def test_a_key_that_the_requester_made_does_not_decide(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as core:
        for name in ("boss", "second", "third"):
            core.keys[name] = await core.core.people.add(name, "org-admin")
        action = await waiting(core, by="boss")
        made = (await sent(core, "boss", "POST", "/api/user/second/key"))["key"]
        by_made = (await sent(core, made, "POST", "/api/user/third/key"))["key"]
        for key in (made, by_made):
            for vote in ("approve", "deny"):
                refused = await sent(core, key, "POST", f"{ACTION}/{action}/{vote}", {"message": "no"}, status=403)
                assert refused["message"].startswith(f"boss{DOMAIN} asked for this run and made the key that you use")
        renewed = await core.core.people.add_key("third", "renewed")
        assert (await sent(core, renewed, "POST", f"{ACTION}/{action}/approve"))["approval"]["approvedBy"] == [
            f"third{DOMAIN}"
        ]


async def test_the_bot_does_not_decide_with_a_key_that_the_requester_made(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as core:
        core.keys["boss"] = await core.core.people.add("boss", "org-admin")
        await core.core.people.add("ben", "analyst")
        await core.core.people.add("bot", "service")
        action = await waiting(core, by="boss")
        key = (await sent(core, "boss", "POST", "/api/user/bot/key"))["key"]
        headers = {"Authorization": f"Bearer {key}", "X-On-Behalf-Of": "ben"}
        answer = await core.send("POST", f"{ACTION}/{action}/approve", profile=None, headers=headers)
    assert (answer.status_code, "made the bot's key" in answer.text) == (403, True)


async def test_a_vote_has_its_key_and_the_clearance_that_it_was_given_with(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=2)}) as core:
        core.keys["anna"] = await core.core.people.add("anna", "analyst")
        await core.core.people.add("ben", "analyst", clearance=3)
        green = await core.core.people.add_key("ben", "nightly", clearance=1)
        action = await waiting(core, by="anna", tlp=1)
        (vote,) = (await sent(core, green, "POST", f"{ACTION}/{action}/approve"))["approval"]["votes"]
    assert (vote["key"], vote["clearance"], vote.get("actedThrough")) == ("nightly", 1, None)


@pytest.mark.parametrize("of_key", [2, 3])
async def test_a_vote_counts_while_its_person_covers_the_run(tmp_path: Path, of_key: int) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=2)}) as core:
        for name in ("anna", "cem"):
            core.keys[name] = await core.core.people.add(name, "analyst", clearance=3)
        await core.core.people.add("ben", "analyst", clearance=of_key)
        core.keys["ben"] = await core.core.people.add_key("ben", "own", clearance=of_key)
        action = await waiting(core, by="anna")
        await sent(core, "ben", "POST", f"{ACTION}/{action}/approve")
        await core.core.people.set_clearance("ben", 1)
        voted = await sent(core, "cem", "POST", f"{ACTION}/{action}/approve")
    assert (voted["status"], voted["approval"]["approvedBy"]) == ("Waiting", [f"cem{DOMAIN}"])


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 3 * DAY_MS, -3 * DAY_MS])
async def test_a_vote_counts_until_the_time_to_approve_has_passed_whatever_the_clock_says(
    tmp_path: Path, jump_ms: int
) -> None:
    """Also through a core whose clock is wrong from the start."""
    uptime, policies = SetClock(5_000), {"BlockHost_1_0": ResponderSection(approval=3, approval_expires_minutes=10)}
    async with open_harness(tmp_path, policies=policies, lease_clock=uptime) as harness:
        options = {"policies": policies, "lease_clock": uptime, "clock": SetClock(harness.clock.now_ms + jump_ms)}
        async with another_core(harness, harness.engine, **options) as wrong:
            cores = harness, wrong
            for name in ("cy", "dan"):
                await harness.people.add(name, "analyst")
            await asyncio.gather(*(core.due.look() for core in cores))  # as each does twice a second
            action = (await harness.actions.start(ANNA, run_input(harness))).action.id
            await asyncio.gather(*(core.due.look() for core in cores))
            await wrong.actions.decide(BEN, action, "approve")
            harness.clock.now_ms += jump_ms
            uptime.now_ms += 10 * MINUTE_MS - 1
            await asyncio.gather(*(core.due.look() for core in cores))
            await harness.actions.decide(caller("cy"), action, "approve")
            uptime.now_ms += 1
            await asyncio.gather(*(core.due.look() for core in cores))
            for core in cores:
                with pytest.raises(ResponderBotError, match="has ended"):
                    await core.actions.decide(caller("dan"), action, "approve")
            assert (await harness.action(action)).outcome == "expired"


async def test_no_vote_counts_once_the_time_is_over_though_core_could_not_end_the_run(tmp_path: Path) -> None:
    policies = {"BlockHost_1_0": ResponderSection(approval=1, approval_expires_minutes=10)}
    async with open_harness(tmp_path, policies=policies) as harness:
        action = (await harness.actions.start(ANNA, run_input(harness))).action.id
        doc = await damage(harness, action, "{")
        harness.clock.now_ms += 10 * MINUTE_MS
        await harness.due.look()
        await damage(harness, action, doc)
        with pytest.raises(ResponderBotError, match="The time to approve this run is over"):
            await harness.actions.decide(BEN, action, "approve")
        assert harness.engine.runs == []


async def damage(harness: Harness, action: str, doc: str) -> str:
    """Set the JSON of an action; returns what it was."""
    before = await harness.actions.get_json(action)
    values = {"id": int(action[1:]), "doc": doc}
    await harness.database.transaction(lambda tx: tx.run("UPDATE action SET doc = :doc WHERE id = :id", values))
    return before
