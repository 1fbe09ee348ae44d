"""thehive4py 1.8, unmodified, as a client of either version it knows of (core/docs/http-interface.md#vendor-alias)."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generation import client
from tests.clients.transcript import Transcript
from tests.core.running import RunningCore, running_core

api = client(1, "thehive4py.api")
errors = client(1, "thehive4py.exceptions")
models = client(1, "thehive4py.models")
q = client(1, "thehive4py.query")

pytestmark = pytest.mark.clients

THEHIVE_3, THEHIVE_4 = 3, 4


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as opened:
        yield opened


@pytest.fixture(params=[THEHIVE_3, THEHIVE_4], ids=["v3", "v4"])
async def hive(core: RunningCore, request: pytest.FixtureRequest) -> Any:
    return api.TheHiveApi(core.url, await core.key("org-admin"), version=request.param)


@pytest.fixture
def ask(transcript: Transcript) -> Any:
    """Make a call, and hold what it answers to the status that the client's users look for."""

    async def checked(status: int, function: Any, *args: Any, **options: Any) -> Any:
        response = await transcript.call(function, *args, **options)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    return checked


def an_alert(reference: str = "r1", **options: Any) -> Any:
    fields = {"title": "Look", "type": "external", "source": "inst", "sourceRef": reference, "description": "d"}
    return models.Alert(**{**fields, **options})


def of_every_kind() -> dict[str, Any]:
    """Custom fields of each kind that the client builds."""
    helper = models.CustomFieldHelper().add_string("s", "x").add_number("n", 1).add_boolean("b", True)
    fields: dict[str, Any] = helper.add_date("d", 5).add_float("f", 1.5).add_integer("i", None).build()
    return fields


async def test_an_alert_is_created_with_artifacts_and_custom_fields_and_got(hive: Any, ask: Any) -> None:
    artifacts = [
        models.AlertArtifact(dataType="ip", data="192.0.2.7"),
        models.AlertArtifact(dataType="domain", data="x.example", tags=["q"], ioc=True, ignoreSimilarity=True),
    ]
    alert = an_alert(tlp=1, tags=["a"], artifacts=artifacts, customFields=of_every_kind(), externalLink="http://x")
    made = await ask(201, hive.create_alert, alert)
    got = await ask(200, hive.get_alert, made["id"], similar_cases=True)
    assert got == made
    assert (got["status"], got["tlp"], got["severity"], got["similarCases"]) == ("New", 1, 2, [])
    assert [(item["dataType"], item["data"], item["ioc"]) for item in got["artifacts"]] == [
        ("ip", "192.0.2.7", False),
        ("domain", "x.example", True),
    ]
    fields = {name: {k: v for k, v in field.items() if k != "_id"} for name, field in got["customFields"].items()}
    assert fields == of_every_kind()


async def test_a_file_travels_inside_an_alert(hive: Any, ask: Any) -> None:
    file = models.AlertArtifact(dataType="file", data=(io.BytesIO(b"evil"), "sample.txt"))
    made = await ask(201, hive.create_alert, an_alert(artifacts=[file]))
    (artifact,) = made["artifacts"]
    file = artifact["attachment"]
    assert (file["name"], file["contentType"], file["size"]) == ("sample.txt", "text/plain", 4)
    assert (await asyncio.to_thread(hive.download_attachment, file["id"], "sample.txt")).content == b"evil"
    whole = models.Alert(json={**made, "title": "New"})
    assert (await ask(200, hive.update_alert, made["id"], whole))["artifacts"][0]["attachment"] == file


async def test_the_same_reference_twice_is_refused(hive: Any, ask: Any) -> None:
    await ask(201, hive.create_alert, an_alert())
    refused = await ask(400, hive.create_alert, an_alert())
    assert refused["type"] == "CreateError"
    assert refused["message"].startswith("Alert external:inst:r1 already exist in organisation ")


async def test_an_alert_is_marked_and_updated(hive: Any, ask: Any) -> None:
    made = await ask(201, hive.create_alert, an_alert(artifacts=[{"dataType": "ip", "data": "192.0.2.7"}]))
    assert (await ask(200, hive.mark_alert_as_read, made["id"]))["status"] == "Ignored"
    assert (await ask(200, hive.mark_alert_as_unread, made["id"]))["status"] == "New"
    whole = models.Alert(json={**made, "title": "New", "tags": ["z"]})
    changed = await ask(200, hive.update_alert, made["id"], whole)
    assert (changed["title"], changed["tags"]) == ("New", ["z"])
    assert [item["id"] for item in changed["artifacts"]] == [item["id"] for item in made["artifacts"]]
    part = models.Alert(json={**made, "title": "not sent", "severity": 4})
    changed = await ask(200, hive.update_alert, made["id"], part, fields=["severity"])
    assert (changed["title"], changed["severity"]) == ("New", 4)


async def test_alerts_are_found(hive: Any, ask: Any) -> None:
    for reference, tlp in (("r1", 1), ("r2", 2), ("r3", 3)):
        await ask(201, hive.create_alert, an_alert(reference, tlp=tlp, date=1_000 * tlp, tags=["t", reference]))

    async def references(**options: Any) -> list[str]:
        return [alert["sourceRef"] for alert in await ask(200, hive.find_alerts, **options)]

    assert await references() == ["r1", "r2", "r3"]
    query = q.And(q.Eq("source", "inst"), q.In("tlp", [1, 2]), q.Not(q.Eq("status", "Ignored")))
    assert await references(query=query, sort=["-date"], range="all") == ["r2", "r1"]
    assert await references(query=q.ContainsString("title", "oo"), sort=["-date"], range="0-1") == ["r3"]
    assert await references(query=q.Or(q.Gt("tlp", 2), q.Lt("tlp", 2)), sort=["+date"]) == ["r1", "r3"]
    assert await references(query=q.And(q.Gte("tlp", 2), q.Lte("tlp", 2))) == ["r2"]
    assert await references(query=q.Between("date", 1_000, 2_000)) == ["r1", "r2"]
    assert await references(query=q.In("tags", ["r2", "r3"])) == ["r2", "r3"]
    assert await references(query=q.StartsWith("sourceRef", "r")) == ["r1", "r2", "r3"]
    assert await references(query=q.EndsWith("sourceRef", "3")) == ["r3"]
    await ask(201, hive.create_alert, an_alert("r4", tlp=3))
    assert await references(sort=["-tlp", "-sourceRef"]) == ["r4", "r3", "r2", "r1"]
    assert await references(sort=["-tlp", "+sourceRef"]) == ["r3", "r4", "r2", "r1"]


async def test_an_alert_becomes_a_case_by_a_template(hive: Any, ask: Any) -> None:
    template = models.CaseTemplate(
        name="T", titlePrefix="[P]", description="d", tags=["t"], tasks=[models.CaseTask(title="one", group="g")]
    )
    await ask(201, hive.create_case_template, template)
    made = await ask(201, hive.create_alert, an_alert(artifacts=[{"dataType": "ip", "data": "192.0.2.7"}]))
    case = await ask(201, hive.promote_alert_to_case, made["id"], "T")
    assert (case["title"], case["tags"], case["template"]) == ("[P] Look", ["t"], "T")
    assert [task["title"] for task in await ask(200, hive.get_case_tasks, case["id"])] == ["one"]
    assert [item["data"] for item in await ask(200, hive.get_case_observables, case["id"])] == ["192.0.2.7"]
    promoted = await ask(200, hive.get_alert, made["id"])
    assert (promoted["status"], promoted["case"]) == ("Imported", case["id"])


async def test_an_alert_is_merged_into_a_case(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d", tags=["z"]))
    made = await ask(201, hive.create_alert, an_alert(tags=["a"], artifacts=[{"dataType": "ip", "data": "192.0.2.7"}]))
    merged = await ask(200, hive.merge_alert_into_case, made["id"], case["id"])
    assert merged["tags"] == ["z", "a"]
    assert (await ask(200, hive.get_alert, made["id"]))["case"] == case["id"]
    assert len(await ask(200, hive.get_case_observables, case["id"])) == 1


async def test_templates_are_created_found_and_refused_twice(hive: Any, ask: Any, transcript: Transcript) -> None:
    template = models.CaseTemplate(name="T", tasks=[models.CaseTask(title="one")], customFields=of_every_kind())
    made = await ask(201, hive.create_case_template, template)
    assert (made["_type"], made["tasks"][0]["_type"], made["metrics"]) == ("caseTemplate", "case_task", {})
    assert await transcript.call(hive.get_case_template, "T") == made
    assert await ask(200, hive.find_case_templates, query=q.Eq("name", "T"), range="0-1") == [made]
    refused = await ask(400, hive.create_case_template, template)
    assert refused["message"] == 'The case template "T" already exists'
    with pytest.raises(errors.CaseTemplateException):
        await transcript.call(hive.get_case_template, "none")


async def test_a_case_is_created_by_a_template_got_updated_and_found(
    hive: Any, ask: Any, transcript: Transcript
) -> None:
    await ask(201, hive.create_case_template, models.CaseTemplate(name="T", titlePrefix="[P]"))
    given = models.Case(
        title="c",
        description="d",
        template="T",
        tasks=[models.CaseTask(title="two")],
        customFields=of_every_kind(),
        tags=["z"],
    )
    made = await ask(201, hive.create_case, given)
    assert (made["title"], made["caseId"], made["owner"]) == ("[P] c", 1, "org-admin@responder-bot.local")
    case = await transcript.call(hive.case, made["id"])
    assert (case.title, case.caseId, case.status) == ("[P] c", 1, "Open")
    case.title, case.status = "changed", "Resolved"
    changed = await ask(200, hive.update_case, case)
    assert (changed["title"], changed["status"]) == ("changed", "Resolved")
    case.tags = ["y"]
    assert (await ask(200, hive.update_case, case, fields=["tags"]))["tags"] == ["y"]
    found = await ask(200, hive.find_cases, query=q.And(q.Eq("customFields.s.string", "x"), q.Eq("tags", "y")))
    assert [item["id"] for item in found] == [made["id"]]
    assert (await transcript.call(hive.find_first, query=q.Eq("title", "changed")))["id"] == made["id"]
    assert (await transcript.call(hive.case.create, "title", "text", tags=["k"])).caseId == 2
    assert (await transcript.call(hive.case.update, made["id"], title="again")).title == "again"


async def test_a_task_is_created_got_updated_and_cancelled(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d"))
    await ask(201, hive.create_case_task, case["id"], models.CaseTask(title="a", description="d", group="g"))
    made = await ask(201, hive.create_case_task, case["id"], models.CaseTask(title="b", status="InProgress"))
    assert made["startDate"]
    query, sort = q.Like("title", "*"), ["-title"]
    assert [task["title"] for task in await ask(200, hive.get_case_tasks, case["id"], query=query, sort=sort)] == [
        "b",
        "a",
    ]
    task = models.CaseTask(json={**made, "status": "Completed", "owner": "org-admin@responder-bot.local"})
    done = await ask(200, hive.update_case_task, task)
    assert (done["status"], done["owner"]) == ("Completed", "org-admin@responder-bot.local")
    assert await ask(200, hive.get_case_task, made["id"]) == done
    assert (await ask(200, hive.delete_case_task, made["id"]))["status"] == "Cancel"
    found = await ask(200, hive.find_tasks, query=q.And(q.ParentId("case", case["id"]), q.Eq("status", "Waiting")))
    assert [task["title"] for task in found] == ["a"]


async def test_a_log_is_created_got_and_found(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d"))
    task = await ask(201, hive.create_case_task, case["id"], models.CaseTask(title="t"))
    made = await ask(201, hive.create_task_log, task["id"], models.CaseTaskLog(message="hello"))
    got = await ask(200, hive.get_task_log, made["id"])
    if hive.version == THEHIVE_3:
        assert got == made
    else:
        assert got[0].items() >= {"_id": made["id"], "message": "hello", "_createdBy": made["createdBy"]}.items()
    assert await ask(200, hive.get_task_logs, task["id"]) == [made]
    assert await ask(200, hive.find_task_logs, query=q.ParentId("case_task", task["id"])) == [made]
    assert (await ask(200, hive.get_case_task, task["id"]))["status"] == "InProgress"


async def test_an_observable_is_created_got_updated_and_found(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d"))
    given = models.CaseObservable(dataType="ip", data="192.0.2.7", message="m", tags=["x"], ioc=True, tlp=1)
    made = await ask(201, hive.create_case_observable, case["id"], given)
    assert await ask(200, hive.get_case_observable, made["id"]) == made
    changed = models.CaseObservable(json={**made, "tags": ["y"], "tlp": 3})
    updated = await ask(200, hive.update_case_observable, made["id"], changed, fields=["tags", "tlp"])
    assert (updated["tags"], updated["tlp"], updated["message"]) == (["y"], 3, "m")
    assert await ask(200, hive.get_case_observables, case["id"], query=q.Eq("ioc", True)) == [updated]
    assert await ask(200, hive.find_observables, query=q.Parent("case", q.Eq("title", "c"))) == [updated]
    wanted = q.Child("case_artifact", q.And(q.Eq("ioc", True), q.In("dataType", ["ip"])))
    assert [item["id"] for item in await ask(200, hive.find_cases, query=wanted)] == [case["id"]]


async def test_a_deleted_case_is_marked_so_and_stays(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d"))
    await ask(200, hive.delete_case, case["id"])
    assert (await ask(200, hive.get_case, case["id"]))["status"] == "Deleted"
    assert await ask(200, hive.find_cases, query=q.Not(q.Eq("status", "Deleted"))) == []


async def test_nothing_is_removed_for_good(hive: Any, ask: Any) -> None:
    case = await ask(201, hive.create_case, models.Case(title="c", description="d"))
    made = await ask(201, hive.create_alert, an_alert())
    given = models.CaseObservable(dataType="ip", data="192.0.2.7", tags=["x"])
    observable = await ask(201, hive.create_case_observable, case["id"], given)
    assert (await ask(405, hive.delete_alert, made["id"]))["type"] == "MethodNotAllowed"
    assert (await ask(405, hive.delete_case_observable, observable["id"]))["type"] == "MethodNotAllowed"
    await ask(404, hive.delete_case, case["id"], force=True)
    await ask(200, hive.get_alert, made["id"])


async def test_an_artifact_is_added_to_an_alert(core: RunningCore, ask: Any) -> None:
    hive = api.TheHiveApi(core.url, await core.key("analyst"), version=THEHIVE_4)
    made = await ask(201, hive.create_alert, an_alert(artifacts=[{"dataType": "ip", "data": "192.0.2.7"}]))
    for tags in (["first"], ["again"]):
        artifact = models.AlertArtifact(dataType="domain", data="x.example", tags=tags)
        (added,) = await ask(201, hive.create_alert_artifact, made["id"], artifact)
        assert (added["data"], added["tags"]) == ("x.example", tags)
    got = await ask(200, hive.get_alert, made["id"])
    assert [item["data"] for item in got["artifacts"]] == ["192.0.2.7", "x.example"]


async def test_who_asks_is_told(hive: Any, ask: Any) -> None:
    assert (await ask(200, hive.get_current_user))["login"] == "org-admin@responder-bot.local"


async def test_the_health_of_core_is_told(hive: Any, ask: Any) -> None:
    assert (await ask(200, hive.health))["status"] == "ok"


async def test_a_login_with_the_key_as_its_password_is_as_good(core: RunningCore, ask: Any) -> None:
    key = await core.key("analyst")
    hive = api.TheHiveApi(core.url, "analyst@responder-bot.local", key, organisation="soc")
    assert (await ask(200, hive.get_current_user))["profile"] == "analyst"


async def test_a_wrong_key_and_a_missing_right_are_told(core: RunningCore, ask: Any, transcript: Transcript) -> None:
    stranger = api.TheHiveApi(core.url, "wrong")
    assert await ask(401, stranger.find_alerts) | {"requestId": ""} == {
        "type": "AuthenticationError",
        "message": "Authentication failure",
        "requestId": "",
    }
    with pytest.raises(errors.TheHiveException, match="Authentication failed"):
        await transcript.call(stranger.case, "~1")
    reader = api.TheHiveApi(core.url, await core.key("read-only"))
    assert (await ask(403, reader.create_alert, an_alert()))["type"] == "AuthorizationError"
    template = models.CaseTemplate(name="T")
    assert "manageCaseTemplate" in (await ask(403, reader.create_case_template, template))["message"]


async def test_what_is_not_there_is_told(core: RunningCore, hive: Any, ask: Any, transcript: Transcript) -> None:
    assert (await ask(404, hive.get_alert, "~999"))["message"] == "Alert not found"
    with pytest.raises(errors.CaseException, match="Case ~999 not found"):
        await transcript.call(hive.case, "~999")
    missing = await ask(404, hive.create_case, models.Case(title="c", description="d", template="none"))
    assert missing["message"] == "CaseTemplate not found"
    assert (await ask(404, hive.get_case_task, "~999"))["message"] == "Task not found"
    assert (await ask(404, hive.get_task_log, "~999"))["message"] == "Log not found"


async def test_all_wrong_fields_are_told_at_once(core: RunningCore, ask: Any) -> None:
    hive = api.TheHiveApi(core.url, await core.key("org-admin"))
    refused = await ask(400, hive.create_alert, an_alert(tlp=4, severity=9, title=None))
    assert {item["name"] for item in refused["errors"]} == {"tlp", "severity", "title"}
