"""Fields that public clients use are stored and answered under the same names."""

from typing import Any

import pytest

from tests.core.object_api import ALERT, ObjectApi

CASE: dict[str, Any] = {"title": "A case", "description": "d"}


@pytest.mark.parametrize("follow", [True, False])
async def test_an_alert_is_created_followed_or_not(api: ObjectApi, follow: bool) -> None:
    alert = await api.post("/api/alert", {**ALERT, "follow": follow})
    assert alert["follow"] is follow
    assert (await api.get(f"/api/alert/{alert['id']}"))["follow"] is follow


async def test_an_alert_is_unfollowed_and_followed(api: ObjectApi) -> None:
    alert = (await api.post("/api/alert", ALERT))["id"]
    assert (await api.post(f"/api/alert/{alert}/unfollow", status=200))["follow"] is False
    assert (await api.get(f"/api/alert/{alert}"))["follow"] is False
    assert (await api.post(f"/api/alert/{alert}/follow", status=200))["follow"] is True
    assert [kind for kind, _, _ in await api.events()] == ["alert.created", "alert.updated", "alert.updated"]
    await api.post("/api/alert/~99/follow", status=404)
    await api.send("POST", f"/api/alert/{alert}/unfollow", status=403, key=await api.user("read-only"))
    assert (await api.get(f"/api/alert/{alert}"))["follow"] is True


async def test_the_tasks_of_a_new_case_keep_all_their_fields(api: ObjectApi) -> None:
    task_input = {"title": "t", "status": "InProgress", "owner": "anna@soc.example", "flag": True, "startDate": 7}
    case = await api.post("/api/case", {**CASE, "startDate": 5, "tasks": [task_input, {"title": "plain"}]})
    assert case["startDate"] == 5
    first, second = await api.post("/api/case/task/_search", {"sort": ["+_id"]}, status=200)
    assert {name: first[name] for name in task_input} == task_input
    assert (second["status"], second["flag"], second.get("owner")) == ("Waiting", False, None)
    wrong = await api.post("/api/case", {**CASE, "tasks": [{"title": "t", "status": "Done"}]}, status=400)
    assert [error["name"] for error in wrong["errors"]] == ["tasks[0].status"]


async def test_a_log_is_given_its_date_and_changed(api: ObjectApi) -> None:
    case = (await api.post("/api/case", CASE))["id"]
    task = (await api.post(f"/api/case/{case}/task", {"title": "t"}))["id"]
    log = await api.post(f"/api/case/task/{task}/log", {"message": "sen", "startDate": 5})
    assert log["startDate"] == 5
    changed = await api.patch(f"/api/case/task/log/{log['id']}", {"message": "seen", "owner": "x", "startDate": 6})
    kept = {**log, "message": "seen", "updatedBy": "admin@soc.example", "updatedAt": api.clock.now_ms}
    assert changed == {**kept, "startDate": 6}, "an owner is not for the client to choose"
    assert await api.get(f"/api/case/task/log/{log['id']}") == changed
    assert (await api.events())[-1] == ("case_task_log.updated", log["id"], case)
    await api.patch("/api/case/task/log/~99", {"message": "m"}, status=404)
    await api.patch(f"/api/case/task/log/{log['id']}", {"message": ""}, status=400)
    path, key = f"/api/case/task/log/{log['id']}", await api.user("read-only")
    await api.send("PATCH", path, {"message": "m"}, status=403, key=key)
