"""thehive4py 2.1, unmodified, against core (core/docs/http-interface.md#version-1)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generation import client
from tests.clients.responder import NAME, engine_for_every_kind
from tests.clients.transcript import Transcript
from tests.core.running import RunningCore, running_core

thehive4py = client(2, "thehive4py")
query = client(2, "thehive4py.query")
TheHiveError = client(2, "thehive4py.errors").TheHiveError

pytestmark = pytest.mark.clients

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"


@contextmanager
def connected(core: RunningCore, **options: Any) -> Iterator[Any]:
    """The client, with its connections closed at the end."""
    hive = thehive4py.TheHiveApi(url=core.url, **options)
    try:
        yield hive
    finally:
        hive.session.close()


async def stored(core: RunningCore, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await core.send("POST", path, body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def one_of_each(core: RunningCore) -> dict[str, str]:
    """An object of each kind: its kind in an address, and its id."""
    case = await stored(core, "/api/case", {"title": "Look into it", "description": "d"})
    task = await stored(core, f"/api/case/{case['id']}/task", {"title": "Look"})
    return {
        "alert": (await stored(core, "/api/alert", ALERT))["id"],
        "case": case["id"],
        "case_task": task["id"],
        "case_task_log": (await stored(core, f"/api/case/task/{task['id']}/log", {"message": "seen"}))["id"],
        "case_artifact": (
            await stored(core, f"/api/case/{case['id']}/artifact", {"dataType": "ip", "data": "192.0.2.7"})
        )["id"],
    }


async def test_responders_are_listed_for_every_kind_of_object(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path, engine=(engine_for_every_kind(tmp_path),)) as core:
        objects = await one_of_each(core)
        with connected(core, apikey=await core.key("read-only")) as hive:
            for kind, object_id in objects.items():
                offered = await transcript.call(hive.cortex.list_responders, kind, object_id)
                assert NAME in [responder["name"] for responder in offered]
                for responder in offered:
                    assert set(responder) == {"id", "name", "version", "description", "dataTypeList", "cortexIds"}
                    types = {f"thehive:{kind}", *(["domain"] if kind == "case_artifact" else [])}
                    assert types & set(responder["dataTypeList"])


async def test_a_responder_is_run_and_followed_to_its_end(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        alert = await stored(core, "/api/alert", ALERT)
        with connected(core, apikey=await core.key("analyst")) as hive:
            offered = await transcript.call(hive.cortex.list_responders, "alert", alert["id"])
            responder = next(item for item in offered if item["name"] == CLOSE)
            body = {
                "responderId": responder["id"],
                "cortexId": responder["cortexIds"][0],
                "objectType": "alert",
                "objectId": alert["id"],
                "parameters": {"reason": "a test"},
                "tlp": 2,
            }
            action = await transcript.call(hive.cortex.create_responder_action, body)
            assert (action["status"], action["cortexId"], action["objectType"]) == ("Waiting", "local", "Alert")
            assert action["cortexJobId"]
            assert action["responderName"] == CLOSE
            path = f"/api/connector/cortex/action/{action['id']}"
            ended = action
            while ended["status"] in ("Waiting", "InProgress"):
                ended = await transcript.call(hive.session.make_request, "GET", path, params={"wait": 20})
            assert ended["status"] == "Success"
            assert not [key for key in ended if key.startswith("engine")]
            path = f"/api/connector/cortex/action/Alert/{alert['id']}"
            listed = await transcript.call(hive.session.make_request, "GET", path)
            assert [item["cortexJobId"] for item in listed] == [action["cortexJobId"]]
        assert (await core.send("GET", f"/api/alert/{alert['id']}")).json()["status"] == "Ignored"


async def test_the_engine_may_be_left_out_and_a_name_stands_for_an_id(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        alert = await stored(core, "/api/alert", ALERT)
        with connected(core, apikey=await core.key("analyst")) as hive:
            body = {"responderId": CLOSE, "objectType": "alert", "objectId": alert["id"]}
            action = await transcript.call(hive.cortex.create_responder_action, body)
            assert action["cortexId"] == "local"


async def test_a_login_with_the_key_as_its_password_is_as_good(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        alert = await stored(core, "/api/alert", ALERT)
        key = await core.key("analyst")
        with connected(core, username="analyst@responder-bot.local", password=key, organisation="soc") as hive:
            assert await transcript.call(hive.cortex.list_responders, "alert", alert["id"])


async def refused(transcript: Transcript, hive: Any, body: dict[str, Any]) -> tuple[int, str]:
    """Status and text of the client's own error."""
    with pytest.raises(TheHiveError) as caught:
        await transcript.call(hive.cortex.create_responder_action, body)
    return caught.value.response.status_code, caught.value.message


async def test_what_is_refused_reaches_the_caller_as_the_client_s_own_error(
    tmp_path: Path, transcript: Transcript
) -> None:
    async with running_core(tmp_path) as core:
        alert = await stored(core, "/api/alert", ALERT)
        body = {"responderId": CLOSE, "objectType": "alert", "objectId": alert["id"]}
        with connected(core, apikey="wrong") as hive:
            assert await refused(transcript, hive, body) == (401, "AuthenticationError - Authentication failure")
        with connected(core, apikey=await core.key("read-only")) as hive:
            status, text = await refused(transcript, hive, body)
            assert (status, text.partition(",")[0]) == (
                403,
                "AuthorizationError - You are not authorized to create action",
            )
        with connected(core, apikey=await core.key("analyst")) as hive:
            missing_log = {**body, "objectType": "case_task_log", "objectId": "~999"}
            assert await refused(transcript, hive, missing_log) == (404, "AuthenticationError - Log not found")
            assert await refused(transcript, hive, {**body, "objectId": "~999"}) == (
                404,
                "NotFoundError - Alert not found",
            )
            assert await refused(transcript, hive, {**body, "responderId": "none"}) == (
                404,
                "NotFoundError - Responder none not found",
            )
            assert await refused(transcript, hive, {**body, "cortexId": "none"}) == (
                404,
                "NotFoundError - Engine none not found",
            )
            without = {key: value for key, value in body.items() if key != "objectId"}
            assert await refused(transcript, hive, without) == (
                400,
                "AttributeCheckingError - [Attribute objectId is missing]",
            )


async def test_a_list_for_an_object_that_is_not_there_raises_the_client_s_own_error(
    tmp_path: Path, transcript: Transcript
) -> None:
    async with running_core(tmp_path) as core:
        with connected(core, apikey=await core.key("analyst")) as hive:
            with pytest.raises(TheHiveError, match="Alert not found") as caught:
                await transcript.call(hive.cortex.list_responders, "alert", "~999")
            assert caught.value.response.status_code == 404


async def test_one_log_is_got(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        objects = await one_of_each(core)
        with connected(core, apikey=await core.key("read-only")) as hive:
            log = await transcript.call(hive.task_log.get, objects["case_task_log"])
            assert log["message"] == "seen"


async def test_alerts_are_created_read_changed_found_and_made_into_cases(
    tmp_path: Path, transcript: Transcript
) -> None:
    body = {
        **ALERT,
        "pap": 1,
        "observables": [{"dataType": "ip", "data": "192.0.2.7", "tags": ["x"]}],
        "customFields": [{"name": "score", "value": 7}, {"name": "unit", "value": "HR"}],
    }
    async with running_core(tmp_path) as core:
        with connected(core, apikey=await core.key("analyst")) as hive:
            made = await transcript.call(hive.alert.create, body)
            assert (made["_type"], made["_createdBy"], made["observableCount"]) == (
                "Alert",
                "analyst@responder-bot.local",
                1,
            )
            assert [(item["name"], item["type"], item["value"]) for item in made["customFields"]] == [
                ("score", "integer", 7),
                ("unit", "string", "HR"),
            ]
            assert await transcript.call(hive.alert.get, made["_id"]) == made
            await transcript.call(hive.alert.update, made["_id"], {"severity": 4, "tags": ["t"]})
            await transcript.call(
                hive.alert.create_observable, made["_id"], {"dataType": "domain", "data": "x.example"}
            )
            wanted = query.Eq("severity", 4) & query.Like("title", "L*")
            found = await transcript.call(
                hive.alert.find, filters=wanted, sortby=query.Desc("_createdAt"), paginate=query.Paginate(0, 5)
            )
            assert [(item["_id"], item["observableCount"]) for item in found] == [(made["_id"], 2)]
            assert await transcript.call(hive.alert.count, filters=wanted) == 1
            await transcript.call(hive.alert.unfollow, made["_id"])
            assert (await transcript.call(hive.alert.get, made["_id"]))["follow"] is False
            await transcript.call(hive.alert.follow, made["_id"])
            assert (await transcript.call(hive.alert.get, made["_id"]))["follow"] is True
            case = await transcript.call(hive.alert.promote_to_case, made["_id"])
            assert (await transcript.call(hive.alert.get, made["_id"]))["caseId"] == case["_id"]
            with pytest.raises(TheHiveError, match="already exist"):
                await transcript.call(hive.alert.create, body)


async def test_a_case_with_tasks_logs_and_observables_is_made_and_found(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        with connected(core, apikey=await core.key("org-admin")) as hive:
            await transcript.call(hive.case_template.create, {"name": "T", "titlePrefix": "[P]"})
            assert [item["name"] for item in await transcript.call(hive.case_template.find)] == ["T"]
            first = {"title": "first", "assignee": "ben@soc.example", "status": "InProgress", "flag": True}
            body = {"title": "c", "description": "d", "caseTemplate": "T", "assignee": "anna@soc.example"}
            case = await transcript.call(hive.case.create, {**body, "tasks": [first]})
            (of_case,) = await transcript.call(hive.case.find_tasks, case["_id"])
            assert {name: of_case[name] for name in first} == first
            assert (case["title"], case["number"], case["assignee"]) == ("[P] c", 1, "anna@soc.example")
            task = await transcript.call(hive.case.create_task, case["_id"], {"title": "t", "group": "g"})
            log = await transcript.call(hive.task.create_log, task["_id"], {"message": "seen"})
            assert (await transcript.call(hive.task_log.get, log["_id"]))["message"] == "seen"
            await transcript.call(hive.task_log.update, log["_id"], {"message": "looked"})
            assert (await transcript.call(hive.task_log.get, log["_id"]))["message"] == "looked"
            await transcript.call(hive.task.update, task["_id"], {"status": "Completed"})
            assert (await transcript.call(hive.task.get, task["_id"]))["status"] == "Completed"
            observable = {"dataType": "ip", "data": "192.0.2.7", "ioc": True}
            await transcript.call(hive.observable.create_in_case, case["_id"], observable)
            tasks = await transcript.call(hive.case.find_tasks, case["_id"], filters=query.Eq("group", "g"))
            assert [item["_id"] for item in tasks] == [task["_id"]]
            assert [item["_id"] for item in await transcript.call(hive.task.find_logs, task["_id"])] == [log["_id"]]
            found = await transcript.call(hive.case.find_observables, case["_id"])
            assert [item["data"] for item in found] == ["192.0.2.7"]
            await transcript.call(hive.case.update, case["_id"], {"tags": ["z"]})
            assert (await transcript.call(hive.case.get, case["_id"]))["tags"] == ["z"]
            assert (await transcript.call(hive.user.get_current))["login"] == "org-admin@responder-bot.local"


async def test_alerts_and_cases_are_commented_on(tmp_path: Path, transcript: Transcript) -> None:
    async with running_core(tmp_path) as core:
        objects = await one_of_each(core)
        with connected(core, apikey=await core.key("analyst")) as hive:
            for kind, create, find in (
                ("alert", hive.comment.create_in_alert, hive.alert.find_comments),
                ("case", hive.comment.create_in_case, hive.case.find_comments),
            ):
                made = await transcript.call(create, objects[kind], {"message": "Sen"})
                assert (made["_type"], made["message"], made["isEdited"]) == ("Comment", "Sen", False)
                await transcript.call(hive.comment.update, made["_id"], {"message": "Seen"})
                changed = await transcript.call(hive.comment.get, made["_id"])
                assert (changed["message"], changed["isEdited"]) == ("Seen", True)
                assert await transcript.call(find, objects[kind]) == [changed]
                assert await transcript.call(hive.comment.find, query.Eq("message", "Seen")) == [changed]
                await transcript.call(hive.comment.delete, made["_id"])
                assert await transcript.call(find, objects[kind]) == []
                with pytest.raises(TheHiveError, match="Comment not found"):
                    await transcript.call(hive.comment.get, made["_id"])
