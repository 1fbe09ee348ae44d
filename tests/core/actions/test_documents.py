"""Documents of alerts and cases, with pages of the event feed and by ids, over HTTP."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.actions.documents import LIMIT_CHARS, LISTED_ACTIONS
from core.client import CoreClient
from core.models import MAX_IDS, Action, Profile
from core.settings import ResponderSection
from tests.core.api.test_long_lists import alert_with_actions, report
from tests.core.running import RunningCore, ended, made, running_core, sent

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "s", "title": "t", "description": "d"}
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
ACTION = "/api/connector/engine/action"
SINGLE = {
    "alert": "/api/alert/",
    "case": "/api/case/",
    "tasks": "/api/case/task/",
    "logs": "/api/case/task/log/",
    "artifacts": "/api/case/artifact/",
}
KIND = {"tasks": "case_task", "logs": "case_task_log", "artifacts": "case_artifact"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    policy = {CLOSE: ResponderSection(confirm="Close it?", approval=0)}
    async with running_core(tmp_path_factory.mktemp("core"), responder=policy, audited=False) as running:
        yield running


async def last(core: RunningCore) -> int:
    return int((await sent(core, "GET", "/api/event"))["last"])


async def page(core: RunningCore, after: int) -> dict[str, Any]:
    found: dict[str, Any] = await sent(core, "GET", f"/api/event?after={after}&wait=20&include=documents")
    return found


async def of_ids(core: RunningCore, *ids: str, more: str = "") -> dict[str, Any]:
    found: dict[str, Any] = await sent(core, "GET", f"/api/document?ids={','.join(ids)}{more}")
    return found


async def new_alert(core: RunningCore, ref: str, **fields: Any) -> str:
    return str((await sent(core, "POST", "/api/alert", {**ALERT, "sourceRef": ref, **fields}, status=201))["id"])


async def new_case(core: RunningCore) -> dict[str, str]:
    """Ids of a case and of one object of each kind in it."""
    case = (await sent(core, "POST", "/api/case", {"title": "c", "description": "d"}, status=201))["id"]
    task = (await sent(core, "POST", f"/api/case/{case}/task", {"title": "t"}, status=201))["id"]
    log = (await sent(core, "POST", f"/api/case/task/{task}/log", {"message": "m"}, status=201))["id"]
    artifact = {"dataType": "ip", "data": "203.0.113.7"}
    artifact = (await sent(core, "POST", f"/api/case/{case}/artifact", artifact, status=201))["id"]
    return {"case": case, "case_task": task, "case_task_log": log, "case_artifact": artifact}


async def run(core: RunningCore, kind: str, object_id: str, name: str = CLOSE) -> dict[str, Any]:
    """An ended action."""
    body = {"responderId": name, "objectType": kind, "objectId": object_id}
    return await ended(core, (await made(core, ACTION, body))["id"])


async def single_reads(core: RunningCore, document: dict[str, Any]) -> dict[str, Any]:
    """A document made of what the routes of single objects and lists answer."""
    found: dict[str, Any] = {}
    actions: list[dict[str, Any]] = []
    counts = {}
    for name, path in SINGLE.items():
        shown = document.get(name)
        if shown is None:
            continue
        items = shown if isinstance(shown, list) else [shown]
        read = [await sent(core, "GET", path + item["id"]) for item in items]
        found[name] = read if isinstance(shown, list) else read[0]
        on_alerts = [("artifacts", item) for item in read[0]["artifacts"]] if name == "alert" else []
        for name, item in [*((name, item) for item in read), *on_alerts]:
            listed = await sent(core, "GET", f"{ACTION}/{KIND.get(name, name)}/{item['id']}")
            actions += listed
            counts[item["id"]] = len(listed)
    found["actions"] = sorted(actions, key=lambda action: -int(action["id"][1:]))
    found["actionCounts"] = counts
    return found


async def assert_equals_single_reads(core: RunningCore, documents: Iterable[dict[str, Any]]) -> None:
    for document in documents:
        expected = await single_reads(core, document)
        assert {name: document[name] for name in expected} == expected
        assert document["shortened"] == document["unreadable"] == []


async def test_a_page_has_what_its_events_are_about_once_and_as_single_reads_show_it(core: RunningCore) -> None:
    seq = await last(core)
    alert = await new_alert(core, "page", artifacts=[{"dataType": "ip", "data": "198.51.100.1"}])
    action = await run(core, "alert", alert)
    found = await page(core, seq)
    assert [event["type"] for event in found["events"]][:2] == ["alert.created", "action.created"]
    assert found["asOf"] == found["last"] == found["events"][-1]["seq"]
    (document,) = found["documents"]
    assert document["alert"]["status"] == "Ignored"
    assert [(a["id"], a["status"], a["report"]) for a in document["actions"]] == [
        (action["id"], "Success", action["report"])
    ]
    assert document["policies"] == {CLOSE: {"confirm": "Close it?", "approval": 0, "sendsTo": []}}
    assert document["deleted"] is False
    await assert_equals_single_reads(core, [document])
    assert (await of_ids(core, alert))["documents"] == [document]
    assert (await of_ids(core, action["id"]))["documents"] == [document]


async def test_a_case_comes_with_the_parts_that_events_name(core: RunningCore) -> None:
    quiet = await new_case(core)
    seq = await last(core)
    await sent(core, "PATCH", f"/api/case/task/{quiet['case_task']}", {"flag": True})
    found = await page(core, seq)
    (document,) = found["documents"]
    assert (document["id"], document["case"]["id"]) == (quiet["case"], quiet["case"])
    assert [len(document[name]) for name in KIND] == [1, 0, 0]
    await assert_equals_single_reads(core, [document])


async def test_without_include_a_page_is_as_it_was(core: RunningCore) -> None:
    assert set(await sent(core, "GET", "/api/event?after=0")) == {"events", "last", "database"}
    empty = await sent(core, "GET", "/api/event?include=documents")
    assert (empty["events"], empty["documents"], empty["asOf"]) == ([], [], empty["last"])


@pytest.mark.parametrize("seed", range(4))
async def test_documents_equal_single_reads_whatever_has_changed(core: RunningCore, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - not for secrets
    alerts = [await new_alert(core, f"{seed} {number}") for number in range(3)]
    cases = [await new_case(core) for _ in range(2)]

    async def change() -> None:
        alert, case = choose.choice(alerts), choose.choice(cases)
        tag = {"addTags": [f"t{choose.randrange(100)}"]}
        match choose.randrange(9):
            case 0:
                await sent(core, "PATCH", f"/api/alert/{alert}", tag)
            case 1:
                await sent(core, "PATCH", f"/api/case/{case['case']}", {**tag, "tlp": choose.randrange(4)})
            case 2:
                await sent(core, "PATCH", f"/api/case/artifact/{case['case_artifact']}", {"tlp": choose.randrange(4)})
            case 3:
                path = f"/api/case/task/{case['case_task']}/log"
                case["case_task_log"] = (await sent(core, "POST", path, {"message": "again"}, status=201))["id"]
            case 4:
                await sent(core, "PATCH", f"/api/case/task/{case['case_task']}", {"status": "InProgress"})
            case 5:
                await sent(core, "POST", f"/api/case/{case['case']}/comment", {"message": "seen"}, status=201)
            case 6:
                await core.send("POST", f"/api/alert/{alert}/merge/{case['case']}")
            case 7:
                await sent(core, "PATCH", f"/api/case/{case['case']}", {"status": choose.choice(["Open", "Resolved"])})
            case 8:
                await run(core, "alert", alert)

    seq = await last(core)
    for _ in range(6):
        for _ in range(choose.randrange(1, 5)):
            await change()
        found = await page(core, seq)
        await assert_equals_single_reads(core, found["documents"])
        assert {document["id"] for document in found["documents"]} == {event["rootId"] for event in found["events"]}
        ids = [event["objectId"] for event in found["events"] if event["objectType"] != "Comment"]
        again = await of_ids(core, *{event["rootId"] for event in found["events"]}, *ids)
        by_id = {document["id"]: document for document in again["documents"]}
        assert [by_id[document["id"]]["actions"] for document in found["documents"]] == [
            document["actions"] for document in found["documents"]
        ]
        await assert_equals_single_reads(core, again["documents"])
        seq = found["last"]


async def test_documents_are_of_one_moment_while_others_write(core: RunningCore) -> None:
    alerts = [await new_alert(core, f"moment {number}") for number in range(4)]
    seq = started = await last(core)
    rounds = 25

    async def write(alert: str) -> None:
        for number in range(rounds):
            await sent(core, "PATCH", f"/api/alert/{alert}", {"addTags": [f"t{number}"]})

    writing = [asyncio.ensure_future(write(alert)) for alert in alerts]
    seen: list[dict[str, Any]] = []
    reported = 0
    while reported < rounds * len(alerts):
        found = await page(core, seq)
        seen.append(found)
        reported, seq = reported + len(found["events"]), found["last"]
    await asyncio.gather(*writing)
    events = (await sent(core, "GET", f"/api/event?after={started}"))["events"]
    for found in seen:
        for document in found["documents"]:
            known = [e for e in events if e["rootId"] == document["id"] and e["seq"] <= found["asOf"]]
            assert len(document["alert"]["tags"]) == len(known)


async def test_a_waiting_reader_is_answered_with_the_document_of_the_change(core: RunningCore) -> None:
    seq = await last(core)
    waiting = asyncio.ensure_future(page(core, seq))
    alert = await new_alert(core, "waited for")
    found = await waiting
    assert [document["alert"]["id"] for document in found["documents"]] == [alert]


async def test_a_page_ends_early_and_the_next_ones_have_the_rest(core: RunningCore) -> None:
    seq = await last(core)
    alerts = [await new_alert(core, f"large {number}", description="x" * 900_000, artifacts=[]) for number in range(12)]
    pages: list[dict[str, Any]] = []
    while sum(len(found["events"]) for found in pages) < len(alerts):
        answer = await core.send("GET", f"/api/event?after={seq}&include=documents")
        assert len(answer.text) < LIMIT_CHARS + 1_000_000
        pages.append(answer.json())
        assert [event["objectId"] for event in pages[-1]["events"]] == [d["id"] for d in pages[-1]["documents"]]
        assert pages[-1]["asOf"] >= pages[-1]["last"] > seq
        seq = pages[-1]["last"]
    assert [event["objectId"] for found in pages for event in found["events"]] == alerts
    assert len(pages) == 3
    listed = await of_ids(core, *alerts)
    assert [document["id"] for document in listed["documents"]] + listed["left"] == alerts
    assert len(listed["documents"]) == 5


async def test_many_large_reports_are_shortened_and_say_so(core: RunningCore) -> None:
    large = {**report(900_000), "message": "All of it.", "summary": {"taxonomies": [{"level": "info"}]}}
    alert = await alert_with_actions(core, 60, large, [{"type": "AddTagToAlert", "tag": "x", "status": "Success"}])
    answer = await core.send("GET", f"/api/document?ids={alert}")
    assert len(answer.text) < 200_000
    (document,) = answer.json()["documents"]
    assert document["actionCounts"] == {alert: 60}
    assert len(document["actions"]) == LISTED_ACTIONS
    assert document["shortened"] == [action["id"] for action in document["actions"]]
    shown = json.loads(document["actions"][0]["report"])
    assert (shown["message"], shown["summary"], shown["full"]["truncated"]) == (
        large["message"],
        large["summary"],
        True,
    )
    assert document["actions"][0]["operations"] == json.dumps(
        [{"type": "AddTagToAlert", "tag": "x", "status": "Success"}], separators=(",", ":")
    )
    named = (await of_ids(core, alert, document["actions"][3]["id"]))["documents"][0]
    assert named["actions"][3] == await sent(core, "GET", f"{ACTION}/{document['actions'][3]['id']}")
    assert named["shortened"] == [a["id"] for a in document["actions"] if a is not document["actions"][3]]


async def test_open_actions_are_shown_before_newer_ended_ones(core: RunningCore) -> None:
    alert = await alert_with_actions(core, 100, report(10), [])
    first = (await of_ids(core, alert))["documents"][0]["actions"]
    oldest = int(first[-1]["id"][1:]) - 70
    await core.core.database.transaction(
        lambda tx: tx.run("UPDATE action SET status = 'Waiting' WHERE id = :id", {"id": oldest + 1})
    )
    (document,) = (await of_ids(core, alert))["documents"]
    assert len(document["actions"]) == LISTED_ACTIONS
    assert document["actions"][-1]["id"] == f"~{oldest + 1}"


async def test_a_report_that_listings_cut_is_told_as_shortened(core: RunningCore) -> None:
    alert = await alert_with_actions(core, 1, report(10), [])
    await core.core.database.transaction(
        lambda tx: tx.run("UPDATE action SET whole_report = '{}' WHERE object_id = :id", {"id": int(alert[1:])})
    )
    (document,) = (await of_ids(core, alert))["documents"]
    assert document["shortened"] == [document["actions"][0]["id"]]


async def test_a_deleted_case_and_unknown_ids_are_told_as_such(core: RunningCore) -> None:
    case = (await new_case(core))["case"]
    alert = await new_alert(core, "becomes a case")
    became = (await sent(core, "POST", f"/api/alert/{alert}/createCase", {}, status=201))["id"]
    seq = await last(core)
    assert (await core.send("DELETE", f"/api/case/{case}")).is_success
    documents = (await page(core, seq))["documents"]  # a run of an earlier test may end here too
    (document,) = (one for one in documents if one["id"] == case)
    assert (document["deleted"], document["case"]["status"]) == (True, "Deleted")
    found = await of_ids(core, case, "~999999999", became)
    assert [(d["id"], d["deleted"], d["alertIds"]) for d in found["documents"]] == [
        (case, True, []),
        (became, False, [alert]),
    ]
    assert (found["missing"], found["left"], found["asOf"]) == (["~999999999"], [], await last(core))
    comment = (await sent(core, "POST", f"/api/alert/{alert}/comment", {"message": "seen"}, status=201))["id"]
    assert (await of_ids(core, comment))["missing"] == [comment]


@pytest.mark.sqlite
async def test_damage_in_one_object_does_not_keep_the_others_from_readers(core: RunningCore) -> None:
    seq = await last(core)
    damaged, whole = await new_alert(core, "damaged"), await new_alert(core, "whole")
    await core.core.database.transaction(
        lambda tx: tx.run("UPDATE object SET doc = '{' WHERE id = :id", {"id": int(damaged[1:])})
    )
    documents = (await page(core, seq))["documents"]
    own = [d for d in documents if d["id"] in (damaged, whole)]  # runs of other tests may end now
    assert [(d["id"], d["unreadable"], d["deleted"], "alert" in d) for d in own] == [
        (damaged, [damaged], False, False),
        (whole, [], False, True),
    ]


async def test_a_case_is_complete_unless_too_many_of_its_alerts_have_artifacts_that_it_lacks(core: RunningCore) -> None:
    case, ip = (await new_case(core))["case"], {"dataType": "ip", "data": "203.0.113.8"}
    alerts = [await new_alert(core, f"part {n}", artifacts=[ip]) for n in range(21)]
    for alert in alerts:
        await sent(core, "POST", f"/api/alert/{alert}/merge/{case}")

    async def about() -> tuple[bool, int, list[str]]:
        (document,) = (await of_ids(core, case))["documents"]
        return document["isComplete"], document["alertCount"], [one["data"] for one in document["alertArtifacts"]]

    assert await about() == (True, 21, [])
    others = [f"198.51.100.{n}" for n in range(21)]
    for alert, other in zip(alerts[:20], others[:20], strict=True):
        await sent(core, "PATCH", f"/api/alert/{alert}", {"artifacts": [{**ip, "data": other}]})
    assert await about() == (True, 21, others[:20])
    await sent(core, "PATCH", f"/api/alert/{alerts[20]}", {"artifacts": [{**ip, "data": others[20]}]})
    assert await about() == (False, 21, others[:20])


async def test_responders_are_as_the_single_read_explains_them(core: RunningCore) -> None:
    alert, case = await new_alert(core, "offers"), await new_case(core)
    ids = {"alert": alert, **case}
    profiles: tuple[Profile, ...] = ("org-admin", "read-only")
    for profile in profiles:
        path = f"/api/document?ids={','.join(ids.values())}&include=responders"
        found = (await core.send("GET", path, profile=profile)).json()
        offered = {object_id: offers for d in found["documents"] for object_id, offers in d["responders"].items()}
        assert set(offered) == set(ids.values())
        for kind, object_id in ids.items():
            explained = f"/api/connector/engine/responder/{kind}/{object_id}?explain=true"
            assert offered[object_id] == (await core.send("GET", explained, profile=profile)).json()


@pytest.mark.parametrize("path", ["/api/event?after=0&include=documents", "/api/document?ids=~1"])
async def test_who_may_not_read_the_feed_reads_no_documents(core: RunningCore, path: str) -> None:
    assert (await core.send("GET", path, profile=None)).status_code == 401
    assert (await core.send("GET", path, profile="source")).status_code == 403
    assert (await core.send("GET", path, profile="service")).status_code == 200
    assert (await core.send("GET", path, profile="read-only")).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        *("event?include=responders", "event?include=all", "document", "document?ids=", "document?ids=12"),
        *("document?ids=~1,,~2", "document?ids=~1&include=documents", "document?ids=a;b;c"),
        f"document?ids={','.join(f'~{number}' for number in range(MAX_IDS + 1))}",
    ],
)
async def test_a_wrong_query_is_a_400(core: RunningCore, query: str) -> None:
    answer = await core.send("GET", f"/api/{query}")
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequest")


async def test_the_client_reads_both(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:  # in which nothing else happens
        seq = await last(core)
        alert = await new_alert(core, "client")
        action = await run(core, "alert", alert)
        async with CoreClient(core.url, await core.key("analyst")) as client:
            found = await client.events(seq, 20, documents=True)
            assert found.documents is not None
            (document,) = found.documents
            assert document.alert == await client.alert(alert)
            words = {"responder_title": document.titles[CLOSE], "inputs": document.inputs[CLOSE], "only_tells": True}
            assert document.actions == [Action.model_validate(action).model_copy(update=words)]
            listed = await client.documents([alert, "~999999999"], responders=True)
            assert (listed.missing, listed.as_of) == (["~999999999"], found.as_of)
            assert listed.documents[0].responders[alert] == await client.responders("alert", alert)
            assert (await client.events(seq, 0)).documents is None
