"""What a vote rests on: the key that it came with and who made that, and the clearance of its person then and now."""

from pathlib import Path
from typing import Any

import pytest

from core.settings import ResponderSection
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
