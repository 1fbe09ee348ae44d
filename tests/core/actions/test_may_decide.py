"""Who may decide on what waits for approval, in its document."""

import secrets
from pathlib import Path
from typing import Any

import pytest

from core.models import Profile
from core.responders.guards import MAX_NAMED
from core.settings import ResponderSection
from tests.core.running import RunningCore, ended, running_core

ACTION = "/api/connector/engine/action"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK, RELEASE = "ResponderBot_Block_1_0", "ResponderBot_Unblock_1_0"
DOMAIN = "@responder-bot.local"


async def sent(core: RunningCore, method: str, path: str, body: Any = None, *, by: str = "") -> Any:
    headers = {"Authorization": f"Bearer {core.keys[by]}"} if by else {}
    answer = await core.send(method, path, body, profile=None if by else "org-admin", headers=headers)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def join(core: RunningCore, *names: str, profile: Profile = "analyst", clearance: int = 2) -> None:
    """Add people who are linked to Slack."""
    for name in names:
        slack_id = f"T1:U{name.upper()}"
        core.keys[name] = await core.core.people.add(name, profile, clearance=clearance, slack_id=slack_id)


async def waiting(core: RunningCore, *, tlp: int = 2, by: str = "anna", **more: Any) -> str:
    """A run on a new alert that waits for approval."""
    alert = {"type": "siem", "source": "s", "sourceRef": secrets.token_hex(4), "title": "t", "description": "d"}
    object_id = (await sent(core, "POST", "/api/alert", {**alert, "tlp": tlp}))["id"]
    run = {"responderId": CLOSE, "objectType": "alert", "objectId": object_id, **more}
    return str((await sent(core, "POST", ACTION, run, by=by))["id"])


async def may_decide(core: RunningCore, action: str) -> list[str]:
    """The first parts of their logins, by a document and by a page of the feed."""
    (document,) = (await sent(core, "GET", f"/api/document?ids={action}"))["documents"]
    page = await sent(core, "GET", "/api/event?after=0&include=documents")
    assert document["mayDecide"].get(action) == page["documents"][-1]["mayDecide"].get(action)
    people = document["mayDecide"].get(action, [])
    names = [person["login"].removesuffix(DOMAIN) for person in people]
    assert [person["slackIds"] for person in people] == [[f"T1:U{name.upper()}"] for name in names]
    return names


async def test_a_document_names_who_may_decide_on_a_run_that_waits(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=2)}) as core:
        await join(core, "anna", "ben", "cem", "dora")
        await join(core, "reader", profile="read-only")
        await join(core, "green", clearance=1)
        await core.core.people.add("keyed", "analyst")
        await sent(core, "POST", "/api/user/dora/disable")
        action = await waiting(core)
        assert set(await may_decide(core, action)) == {"ben", "cem"}
        await sent(core, "POST", f"{ACTION}/{action}/approve", by="ben")
        assert await may_decide(core, action) == ["cem"]
        await sent(core, "POST", f"{ACTION}/{action}/deny", {"message": "no"}, by="cem")
        assert await may_decide(core, action) == []


async def test_those_who_decided_last_are_named_first_and_at_most_ten(tmp_path: Path) -> None:
    names = [f"p{number:02}" for number in range(MAX_NAMED + 4)]
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as core:
        await join(core, "anna", *names)
        for name in (names[0], names[7]):
            await sent(core, "POST", f"{ACTION}/{await waiting(core)}/deny", {"message": "no"}, by=name)
        action = await waiting(core)
        named = await may_decide(core, action)
        alert = (await sent(core, "GET", f"{ACTION}/{action}"))["objectId"]
        offered = await sent(core, "GET", f"/api/connector/engine/responder/alert/{alert}?explain=true", by="anna")
    found = {one["name"]: one["approvers"] for one in offered if "approvers" in one}
    assert found == {CLOSE: [f"{name}{DOMAIN}" for name in named]}  # the same before the run is asked for
    assert (named[:2], len(named)) == ([names[7], names[0]], MAX_NAMED)


async def test_those_whom_the_settings_name_may_decide_and_who_sees_the_object(tmp_path: Path) -> None:
    section = ResponderSection(approval=1, approve_by=("@leads", "ben"))
    async with running_core(tmp_path, responder={CLOSE: section}) as core:
        await join(core, "anna", "ben", "cem", "dora")
        await join(core, "emil", clearance=3)
        for name in ("cem", "emil"):
            await core.core.people.add_member("leads", name)
        assert set(await may_decide(core, await waiting(core))) == {"ben", "cem", "emil"}


async def test_only_who_sees_a_red_object_may_decide_on_it(tmp_path: Path) -> None:
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=1)}) as core:
        await join(core, "anna", "ben")
        await join(core, "emil", clearance=3)
        action = await waiting(core, tlp=3)
        assert await may_decide(core, action) == ["emil"]
        bound = await core.core.people.add_key("anna", "bound", clearance=2)
        headers = {"Authorization": f"Bearer {bound}"}
        answer = await core.send("GET", f"/api/document?ids={action}", profile=None, headers=headers)
        assert answer.json()["documents"][0]["mayDecide"] == {}


@pytest.mark.parametrize(("approval", "who"), [(0, {"lead"}), (1, {"lead", "ben"})])
async def test_an_org_admin_may_decide_on_an_override(tmp_path: Path, approval: int, who: set[str]) -> None:
    section = ResponderSection(approval=approval, approve_by=("ben",), rate=("1/1h",))
    async with running_core(tmp_path, responder={CLOSE: section}) as core:
        await join(core, "ben", "cem")
        await join(core, "boss", "lead", profile="org-admin")
        await waiting(core, by="cem")
        action = await waiting(core, by="boss", breakGlass={"reason": "it spreads"})
        assert set(await may_decide(core, action)) == who


async def test_a_document_names_who_may_decide_on_an_extension(tmp_path: Path) -> None:
    sections = {
        BLOCK: ResponderSection(approval=1, undo=RELEASE, undo_after_minutes=60, allow_permanent=True),
        RELEASE: ResponderSection(),
    }
    async with running_core(tmp_path, responder=sections) as core:
        await join(core, "anna", "ben", "cem")
        alert = {"type": "siem", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
        artifact = {"dataType": "ip", "data": "192.0.2.1"}
        made = await sent(core, "POST", "/api/alert", {**alert, "artifacts": [artifact]})
        run = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": made["artifacts"][0]["id"]}
        action = (await sent(core, "POST", ACTION, run, by="anna"))["id"]
        await sent(core, "POST", f"{ACTION}/{action}/approve", by="ben")
        await ended(core, action)
        assert await may_decide(core, action) == []
        await sent(core, "PATCH", f"{ACTION}/{action}/undo", {"undoAfterMinutes": 600}, by="cem")
        assert await may_decide(core, action) == ["ben", "anna"]
