"""Fields that public clients use are stored and answered under the same names."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.object_wire import ALERT, ObjectWire, object_wire

CASE: dict[str, Any] = {"title": "A case", "description": "d"}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[ObjectWire]:
    async with object_wire(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("follow", [True, False])
async def test_an_alert_is_created_followed_or_not(wire: ObjectWire, follow: bool) -> None:
    alert = await wire.post("/api/alert", {**ALERT, "follow": follow})
    assert alert["follow"] is follow
    assert (await wire.get(f"/api/alert/{alert['id']}"))["follow"] is follow


async def test_an_alert_is_unfollowed_and_followed(wire: ObjectWire) -> None:
    alert = (await wire.post("/api/alert", ALERT))["id"]
    assert (await wire.post(f"/api/alert/{alert}/unfollow", status=200))["follow"] is False
    assert (await wire.get(f"/api/alert/{alert}"))["follow"] is False
    assert (await wire.post(f"/api/alert/{alert}/follow", status=200))["follow"] is True
    assert [kind for kind, _, _ in await wire.events()] == ["alert.created", "alert.updated", "alert.updated"]
    await wire.post("/api/alert/~99/follow", status=404)
    await wire.send("POST", f"/api/alert/{alert}/unfollow", status=403, key=await wire.user("read-only"))
    assert (await wire.get(f"/api/alert/{alert}"))["follow"] is True


async def test_the_tasks_of_a_new_case_keep_all_their_fields(wire: ObjectWire) -> None:
    asked = {"title": "t", "status": "InProgress", "owner": "anna@soc.example", "flag": True, "startDate": 7}
    case = await wire.post("/api/case", {**CASE, "startDate": 5, "tasks": [asked, {"title": "plain"}]})
    assert case["startDate"] == 5
    first, second = await wire.post("/api/case/task/_search", {"sort": ["+_id"]}, status=200)
    assert {name: first[name] for name in asked} == asked
    assert (second["status"], second["flag"], second.get("owner")) == ("Waiting", False, None)
    wrong = await wire.post("/api/case", {**CASE, "tasks": [{"title": "t", "status": "Done"}]}, status=400)
    assert [error["name"] for error in wrong["errors"]] == ["tasks[0].status"]


async def test_a_log_is_given_its_date_and_changed(wire: ObjectWire) -> None:
    case = (await wire.post("/api/case", CASE))["id"]
    task = (await wire.post(f"/api/case/{case}/task", {"title": "t"}))["id"]
    log = await wire.post(f"/api/case/task/{task}/log", {"message": "sen", "startDate": 5})
    assert log["startDate"] == 5
    changed = await wire.patch(f"/api/case/task/log/{log['id']}", {"message": "seen", "owner": "x", "startDate": 6})
    kept = {**log, "message": "seen", "updatedBy": "admin@soc.example", "updatedAt": wire.clock.now_ms}
    assert changed == {**kept, "startDate": 6}, "an owner is not for the client to choose"
    assert await wire.get(f"/api/case/task/log/{log['id']}") == changed
    assert (await wire.events())[-1] == ("case_task_log.updated", log["id"], case)
    await wire.patch("/api/case/task/log/~99", {"message": "m"}, status=404)
    await wire.patch(f"/api/case/task/log/{log['id']}", {"message": ""}, status=400)
    path, key = f"/api/case/task/log/{log['id']}", await wire.user("read-only")
    await wire.send("PATCH", path, {"message": "m"}, status=403, key=key)
