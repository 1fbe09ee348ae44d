"""Comments on alerts and cases."""

import asyncio
from typing import Any

import pytest

from core.models import Profile
from tests.core.object_api import ALERT
from tests.core.running import RunningCore

CASE = {"title": "A case", "description": "d"}


async def sent(
    core: RunningCore, method: str, path: str, body: Any = None, *, status: int = 200, profile: Profile = "analyst"
) -> Any:
    answer = await core.send(method, path, body, profile=profile)
    assert answer.status_code == status, answer.text
    return answer.json()


async def made(core: RunningCore, kind: str) -> str:
    body = ALERT if kind == "alert" else CASE
    return str((await sent(core, "POST", f"/api/{kind}", body, status=201))["id"])


async def comment_events(core: RunningCore) -> list[tuple[str, str, str, str]]:
    page = await sent(core, "GET", "/api/event?after=0&wait=0")
    return [(one["type"], one["objectType"], one["objectId"], one["rootId"]) for one in page["events"]]


@pytest.mark.parametrize("kind", ["alert", "case"])
async def test_a_comment_is_written_changed_and_deleted(core: RunningCore, kind: str) -> None:
    root = await made(core, kind)
    comment = await sent(core, "POST", f"/api/{kind}/{root}/comment", {"message": "Sen"}, status=201)
    assert comment == {
        "_id": comment["id"],
        "id": comment["id"],
        "_type": "comment",
        "createdBy": "analyst@responder-bot.local",
        "createdAt": comment["createdAt"],
        "message": "Sen",
        "isEdited": False,
    }
    path = f"/api/comment/{comment['id']}"
    changed = await sent(core, "PATCH", path, {"message": "Seen"})
    assert (changed["message"], changed["isEdited"]) == ("Seen", True)
    assert await sent(core, "GET", path, profile="read-only") == changed
    assert await sent(core, "POST", "/api/comment/_search", {"query": {"message": "Seen"}}) == [changed]
    assert (await sent(core, "DELETE", path))["id"] == comment["id"]
    for method, body in (("GET", None), ("PATCH", {"message": "m"}), ("DELETE", None)):
        assert (await sent(core, method, path, body, status=404))["message"] == "Comment not found"
    assert await sent(core, "POST", "/api/comment/_search", {}) == []
    assert (await comment_events(core))[1:] == [
        (f"comment.{what}", "Comment", comment["id"], root) for what in ("created", "updated", "deleted")
    ]


async def test_comments_are_found_by_their_alert_or_case(core: RunningCore) -> None:
    alert, case = await made(core, "alert"), await made(core, "case")
    await sent(core, "POST", "/api/alert/siem;elastalert;8257b4/comment", {"message": "on the alert"}, status=201)
    await sent(core, "POST", "/api/case/1/comment", {"message": "on the case"}, status=201)
    for kind, root, words in (("alert", alert, "on the alert"), ("case", case, "on the case")):
        query = {"_parent": {"_type": kind, "_query": {"_id": root}}}
        found = await sent(core, "POST", "/api/comment/_search", {"query": query})
        assert [item["message"] for item in found] == [words]
        above = {"_child": {"_type": "comment", "_query": {"message": words}}}
        assert [one["id"] for one in await sent(core, "POST", f"/api/{kind}/_search", {"query": above})] == [root]
    wrong = {"_parent": {"_type": "case_task", "_query": {}}}
    await sent(core, "POST", "/api/comment/_search", {"query": wrong}, status=400)


@pytest.mark.parametrize("kind", ["alert", "case"])
async def test_who_may_write_change_and_delete_a_comment(core: RunningCore, kind: str) -> None:
    root = await made(core, kind)
    path = f"/api/{kind}/{root}/comment"
    refused = await sent(core, "POST", path, {"message": "m"}, status=403, profile="read-only")
    assert f"manage{kind.title()}" in refused["message"]
    await sent(core, "POST", path, {"message": "m"}, status=403, profile="source")
    await sent(core, "POST", path, {"message": "m"}, status=403, profile="service")
    comment = await sent(core, "POST", path, {"message": "mine"}, status=201)
    own = f"/api/comment/{comment['id']}"
    without: tuple[Profile, ...] = ("read-only", "source", "service")
    others: tuple[Profile, ...] = (*without, "org-admin")
    for profile in others:
        await sent(core, "PATCH", own, {"message": "not mine"}, status=403, profile=profile)
    key = await core.key("analyst", "ben")
    for method, body in (("PATCH", {"message": "m"}), ("DELETE", None)):
        answer = await core.send(method, own, body, profile=None, headers={"Authorization": f"Bearer {key}"})
        assert (answer.status_code, "analyst@responder-bot.local" in answer.json()["message"]) == (403, True)
    for profile in without:
        await sent(core, "DELETE", own, status=403, profile=profile)
    assert (await sent(core, "GET", own))["message"] == "mine"
    await sent(core, "DELETE", own, profile="org-admin")


@pytest.mark.parametrize("path", ["/api/alert/~99/comment", "/api/case/~99/comment", "/api/alert/~2/comment"])
async def test_a_comment_on_an_unknown_object_is_refused(core: RunningCore, path: str) -> None:
    await made(core, "alert"), await made(core, "case")
    await sent(core, "POST", path, {"message": "m"}, status=404)
    await sent(core, "POST", "/api/alert/~1/comment", {"message": ""}, status=400)
    await sent(core, "POST", "/api/alert/~1/comment", {}, status=400)
    assert await sent(core, "POST", "/api/comment/_search", {}) == []


async def test_of_simultaneous_deletes_one_succeeds(core: RunningCore) -> None:
    alert = await made(core, "alert")
    comment = await sent(core, "POST", f"/api/alert/{alert}/comment", {"message": "m"}, status=201)
    answers = await asyncio.gather(
        *(core.send("DELETE", f"/api/comment/{comment['id']}", profile="analyst") for _ in range(16))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [404] * 15
    assert [kind for kind, *_ in await comment_events(core)].count("comment.deleted") == 1


async def test_version_1_shows_its_own_fields_only(core: RunningCore) -> None:
    alert = await made(core, "alert")
    comment = await sent(core, "POST", f"/api/v1/alert/{alert}/comment", {"message": "m"}, status=201)
    assert comment == {
        "_id": comment["_id"],
        "_type": "Comment",
        "createdBy": "analyst@responder-bot.local",
        "createdAt": comment["createdAt"],
        "message": "m",
        "isEdited": False,
        "extraData": {},
        "external": False,
    }
    steps = [{"_name": "getAlert", "idOrName": alert}, {"_name": "comments"}]
    assert await sent(core, "POST", "/api/v1/query", {"query": steps}) == [comment]
    listed = [{"_name": "listComment"}, {"_name": "filter", "_like": {"_field": "message", "_value": "m*"}}]
    assert await sent(core, "POST", "/api/v1/query", {"query": listed}) == [comment]
    assert await sent(core, "POST", "/api/v1/query", {"query": [*listed, {"_name": "count"}]}) == 1
