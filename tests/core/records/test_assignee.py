"""Who works on an alert: set, cleared, searched and told, in both versions of the interface."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.authorization import COMMAND_LINE
from core.models import Alert
from tests.core.running import RunningCore, running_core

ANNA, BEN = "anna@responder-bot.local", "ben@responder-bot.local"
FIELDS = {"type": "siem", "source": "s", "title": "t", "description": "d"}


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as core:
        for login in ("anna", "ben", "gone"):
            await core.key("analyst", login)
        await core.key("service")
        await core.key("source")
        await core.core.people.disable(COMMAND_LINE, "gone")
        yield core


async def alert(core: RunningCore, reference: str = "1", **more: Any) -> Any:
    made = await core.send("POST", "/api/alert", {**FIELDS, "sourceRef": reference, **more})
    assert made.status_code == 201
    return made.json()


async def assign(core: RunningCore, alert_id: str, login: Any, status: int = 200, version: str = "") -> Any:
    changed = await core.send("PATCH", f"/api{version}/alert/{alert_id}", {"assignee": login})
    assert changed.status_code == status, changed.text
    return changed.json()


async def found(core: RunningCore, query: Any) -> list[str]:
    answer = await core.send("POST", "/api/alert/_search", {"query": query, "sort": "sourceRef"})
    assert answer.status_code == 200, answer.text
    return [item["sourceRef"] for item in answer.json()]


async def test_an_alert_is_assigned_searched_reassigned_and_released(core: RunningCore) -> None:
    one, two = await alert(core), await alert(core, "2", assignee=ANNA)
    keys = list(one)
    assert (one["assignee"], two["assignee"], keys[keys.index("status") + 1]) == (None, None, "assignee")
    before = (await core.send("GET", "/api/event")).json()["last"]
    assert (await assign(core, one["id"], " Anna@Responder-Bot.local"))["assignee"] == ANNA
    assert await found(core, {"assignee": ANNA}) == ["1"]
    assert await found(core, {"_not": {"_has": "assignee"}}) == ["2"]
    assert (await assign(core, one["id"], BEN))["updatedBy"] == "org-admin@responder-bot.local"
    assert (await core.send("PATCH", f"/api/alert/{one['id']}", {"title": "x"})).json()["assignee"] == BEN
    for nobody in (None, ""):
        await assign(core, one["id"], BEN)
        assert (await assign(core, one["id"], nobody))["assignee"] is None
    events = (await core.send("GET", f"/api/event?after={before}")).json()["events"]
    assert [(event["type"], event["objectId"]) for event in events] == [("alert.updated", one["id"])] * 7
    assert Alert.model_validate((await core.send("GET", f"/api/alert/{one['id']}")).json()).assignee is None


async def test_only_somebody_with_access_can_be_assigned(core: RunningCore) -> None:
    made = await alert(core)
    for login in ("nobody@responder-bot.local", "anna", "gone@responder-bot.local", "service@responder-bot.local"):
        refused = await assign(core, made["id"], login, 400)
        assert (refused["type"], "with access" in refused["message"]) == ("BadRequest", True)
    for wrong in (1, ["x"], True, "x" * 255):
        errors = (await assign(core, made["id"], wrong, 400))["errors"]
        assert [error["name"] for error in errors] == ["assignee"]
    await assign(core, made["id"], ANNA)
    await core.core.people.disable(COMMAND_LINE, "anna")
    changed = await core.send("PATCH", f"/api/alert/{made['id']}", {"title": "x"})
    assert changed.json()["assignee"] == ANNA


async def test_assigning_needs_the_right_to_change_alerts(core: RunningCore) -> None:
    made = await alert(core)
    body, path = {"assignee": ANNA}, f"/api/alert/{made['id']}"
    for profile in ("read-only", "source", "service"):
        assert (await core.send("PATCH", path, body, profile=profile)).status_code == 403
    for_anna = await core.send("PATCH", path, body, profile="service", headers={"X-On-Behalf-Of": "anna"})
    assert (for_anna.json()["assignee"], for_anna.json()["updatedBy"]) == (ANNA, ANNA)


async def test_several_alerts_are_assigned_all_or_none(core: RunningCore) -> None:
    ids = [(await alert(core, f"{number}"))["id"] for number in range(3)]
    changed = await core.send("PATCH", "/api/alert/_bulk", {"ids": ids, "assignee": BEN})
    assert [item["assignee"] for item in changed.json()] == [BEN] * 3
    refused = await core.send("PATCH", "/api/alert/_bulk", {"ids": ids, "assignee": "nobody@x"})
    assert refused.status_code == 400
    assert await found(core, {"assignee": BEN}) == ["0", "1", "2"]
    released = await core.send("PATCH", "/api/alert/_bulk", {"ids": ids, "assignee": None})
    assert [item["assignee"] for item in released.json()] == [None] * 3


async def test_version_1_has_the_assignee_under_the_vendors_name(core: RunningCore) -> None:
    made = await core.send("POST", "/api/v1/alert", {**FIELDS, "sourceRef": "1", "assignee": "somebody@else"})
    assert (made.status_code, "assignee" in made.json()) == (201, False)
    alert_id = made.json()["_id"]
    assert (await core.send("PATCH", f"/api/v1/alert/{alert_id}", {"assignee": ANNA})).status_code < 300
    query = [{"_name": "listAlert"}, {"_name": "filter", "_field": "assignee", "_value": ANNA}]
    (shown,) = (await core.send("POST", "/api/v1/query", {"query": query})).json()
    assert (shown["_id"], shown["assignee"]) == (alert_id, ANNA)
    await core.send("PATCH", f"/api/v1/alert/{alert_id}", {"assignee": None})
    assert "assignee" not in (await core.send("GET", f"/api/v1/alert/{alert_id}")).json()
    case = (await core.send("POST", "/api/v1/case", {"title": "t", "description": "d", "assignee": BEN})).json()
    assert case["assignee"] == BEN
    made_of = (await core.send("POST", f"/api/v1/alert/{alert_id}/case", {"assignee": BEN})).json()
    assert made_of["assignee"] == BEN


async def test_of_many_who_take_an_alert_at_once_one_has_it_and_each_is_an_event(core: RunningCore) -> None:
    made = await alert(core)
    before = (await core.send("GET", "/api/event")).json()["last"]
    answers = await asyncio.gather(*(assign(core, made["id"], (ANNA, BEN)[n % 2]) for n in range(40)))
    events = (await core.send("GET", f"/api/event?after={before}")).json()["events"]
    assert len(events) == len(answers) == 40
    assert (await core.send("GET", f"/api/alert/{made['id']}")).json()["assignee"] in (ANNA, BEN)
