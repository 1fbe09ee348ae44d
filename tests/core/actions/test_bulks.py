"""One responder on several objects at once: each is checked and run as if it were alone, and each runs once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.client import CoreClient
from core.common.errors import ResponderBotError
from core.settings import ResponderSection
from tests import stores
from tests.core.core_process import alert_in, core_process, setup_in, until
from tests.core.running import RunningCore, ended, running_core

ACTION = "/api/connector/engine/action"
BULK = f"{ACTION}/_bulk"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
BLOCK = "ResponderBot_Block_1_0"
ALERT = {"type": "siem", "source": "s", "title": "t", "description": "d"}


@pytest_asyncio.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    """Runs wait for approval, so that no program has to run."""
    block = ResponderSection(approval=1)
    async with running_core(tmp_path, responder={CLOSE: ResponderSection(approval=1), BLOCK: block}) as running:
        await running.key("analyst")
        yield running


async def new_alerts(core: RunningCore, count: int, **fields: Any) -> list[str]:
    bodies = [{**ALERT, "sourceRef": str(number), **fields} for number in range(count)]
    return [(await core.send("POST", "/api/alert", body)).json()["id"] for body in bodies]


def on_alerts(ids: list[str], **more: Any) -> dict[str, Any]:
    return {"responderId": CLOSE, "targets": [{"objectType": "alert", "objectId": id_} for id_ in ids], **more}


async def bulk(core: RunningCore, body: Any, key: str = "", **options: Any) -> tuple[int, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await core.send("POST", BULK, body, headers=headers, **{"profile": "analyst", **options})
    return answer.status_code, answer.json()


async def test_each_target_is_checked_alone(core: RunningCore) -> None:
    first, second = await new_alerts(core, 2)
    case = (await core.send("POST", "/api/case", {"title": "c", "description": "d"})).json()["id"]
    body = on_alerts([first, "~999", "x", second, first])
    body["targets"].insert(3, {"objectType": "case", "objectId": case})
    status, answer = await bulk(core, body)
    assert status == 200
    found = [(entry["objectId"], entry["status"], entry.get("type")) for entry in answer["actions"]]
    assert found == [
        (first, 201, None),
        ("~999", 404, "NotFoundError"),
        ("x", 404, "NotFoundError"),
        (case, 400, "BadRequest"),
        (second, 201, None),
        (first, 400, "BadRequest"),
    ]
    alone = await core.send("POST", ACTION, {"responderId": CLOSE, "objectType": "case", "objectId": case})
    assert answer["actions"][3]["message"] == alone.json()["message"]
    again = answer["actions"][0]["action"]["id"]
    assert answer["actions"][5]["coveredBy"] == again
    assert answer["actions"][5]["message"] == f"The run on {first} ({again}) acts on the same, and is for this as well."
    started = [entry["action"] for entry in answer["actions"] if entry["status"] == 201]
    assert {action["bulk"] for action in started} == {answer["id"]}
    for action in started:
        assert (await core.send("GET", f"{ACTION}/{action['id']}")).json() == action


async def test_a_request_that_names_no_targets_or_too_many_starts_nothing(core: RunningCore) -> None:
    (alert,) = await new_alerts(core, 1)
    wrong = [on_alerts([]), on_alerts([alert] * 101), {"responderId": CLOSE}, on_alerts([alert]) | {"targets": [alert]}]
    wrong.append(on_alerts([alert], parameters={"text": "x" * 17_000}))
    assert [(await bulk(core, body))[0] for body in wrong] == [400] * 5
    assert (await bulk(core, on_alerts([alert]), profile="read-only"))[0] == 403
    assert (await bulk(core, on_alerts([alert]), key="k" * 256))[0] == 400
    assert (await core.send("GET", f"{ACTION}/alert/{alert}")).json() == []


async def test_the_same_key_gives_the_same_answer_and_starts_nothing(core: RunningCore) -> None:
    ids = await new_alerts(core, 3)
    body = on_alerts([*ids, "~999"])
    answers = await asyncio.gather(*(bulk(core, body, "one") for _ in range(5)))
    assert [status for status, _ in answers] == [200] * 5
    assert all(answer == answers[0][1] for _, answer in answers)
    assert (await bulk(core, on_alerts(ids), "one"))[0] == 422
    alone = {"responderId": CLOSE, "objectType": "alert", "objectId": ids[0], **body}  # fits both routes
    assert (await bulk(core, alone, "two"))[0] == 200
    single = await core.send("POST", ACTION, alone, headers={"Idempotency-Key": "two"}, profile="analyst")
    assert single.status_code == 422
    assert [len((await core.send("GET", f"{ACTION}/alert/{id_}")).json()) for id_ in ids] == [2, 2, 2]
    unknown = {**on_alerts(ids), "responderId": "Nobody_1_0"}
    refused = [await bulk(core, unknown, "three") for _ in range(2)]
    assert refused[0] == refused[1]
    assert [entry["status"] for entry in refused[0][1]["actions"]] == [404, 404, 404]


async def renewals(core: RunningCore) -> int:
    """How often core has renewed its lease, each time with a commit at most."""
    return int((await core.core.database.read(lambda reads: reads.rows("SELECT beat FROM owner")))[0]["beat"])


async def test_a_hundred_runs_are_one_commit_and_their_events_one_document_and_one_bulk(core: RunningCore) -> None:
    artifacts = [{"dataType": "ip", "data": f"192.0.2.{number}"} for number in range(100)]
    (alert,) = await new_alerts(core, 1, artifacts=artifacts)
    shown = (await core.send("GET", f"/api/alert/{alert}")).json()
    targets = [{"objectType": "case_artifact", "objectId": artifact["id"]} for artifact in shown["artifacts"]]
    after = (await core.send("GET", "/api/event")).json()["last"]
    before, beats = core.core.database.commits, await renewals(core)
    _, answer = await bulk(core, {"responderId": BLOCK, "targets": targets})
    assert core.core.database.commits - before <= 1 + await renewals(core) - beats
    assert {entry["status"] for entry in answer["actions"]} == {201}
    page = (await core.send("GET", f"/api/event?after={after}&include=documents")).json()
    assert len(page["events"]) == 100
    assert [len(document["actions"]) for document in page["documents"]] == [100]
    assert [(found["id"], found["counts"]) for found in page["bulks"]] == [(answer["id"], {"Waiting": 100})]


async def test_a_bulk_tells_how_far_it_is_and_runs_again_once_what_did_not_succeed(core: RunningCore) -> None:
    *ids, busy = await new_alerts(core, 5)
    alone = {"responderId": CLOSE, "objectType": "alert", "objectId": busy}
    other = (await core.send("POST", ACTION, alone, profile="analyst")).json()["id"]
    _, answer = await bulk(core, on_alerts([*ids, ids[0], busy], onlyIfIdle=True))
    path = f"{BULK}/{answer['id']}"
    started = [entry["action"]["id"] for entry in answer["actions"] if entry["status"] == 201]
    assert (await core.send("POST", f"{path}/retry", profile="analyst")).status_code == 409  # all are open
    await core.send("POST", f"{ACTION}/{started[0]}/deny", {"message": "no"})
    await core.send("DELETE", f"{ACTION}/{started[1]}", profile="analyst")
    shown = (await core.send("GET", path)).json()
    assert {
        name: shown[name]
        for name in ("id", "total", "refused", "counts", "outcomes", "awaiting", "title", "responderName")
    } == {
        "id": answer["id"],
        "total": 5,
        "refused": 1,
        "counts": {"Waiting": 2, "Failure": 1, "Deleted": 1},
        "outcomes": {"denied": 1, "cancelled": 1},
        "awaiting": 2,
        "title": "Close As False Positive",
        "responderName": CLOSE,
    }
    entries = [
        (one["objectId"], one["status"], one.get("actionStatus"), one.get("outcome")) for one in shown["targets"]
    ]
    assert entries == [
        (ids[0], 201, "Failure", "denied"),
        (ids[1], 201, "Deleted", "cancelled"),
        (ids[2], 201, "Waiting", None),
        (ids[3], 201, "Waiting", None),
        (ids[0], 400, None, None),
        (busy, 409, None, None),
    ]
    listed = (await core.send("GET", f"/api/document?ids={answer['id']},~998")).json()
    assert listed["documents"] == []
    assert listed["missing"] == ["~998"]
    of_bulk_alone = ("targets", "parameters", "note")
    assert listed["bulks"] == [{key: value for key, value in shown.items() if key not in of_bulk_alone}]
    for action in started[2:]:
        await core.send("POST", f"{ACTION}/{action}/deny", {"message": "no"})
    ben = {"Authorization": f"Bearer {await core.key('analyst', 'ben')}"}
    assert (await core.send("POST", f"{path}/retry", profile=None, headers=ben)).status_code == 403
    _, others = await bulk(core, on_alerts(ids))
    nothing = await core.send("POST", f"{path}/retry", profile="analyst")
    assert nothing.status_code == 409
    assert nothing.json()["message"].startswith(f"Nothing can run again now: {CLOSE} is already waiting for approval")
    assert "retriedBy" not in (await core.send("GET", path)).json()  # so that it can be tried later
    await core.send("POST", f"{BULK}/{others['id']}/deny")
    await core.send("POST", f"{ACTION}/{other}/deny", {"message": "no"})
    headers = {"Idempotency-Key": "again"}
    retries = [await core.send("POST", f"{path}/retry", profile="analyst", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in retries] == [200, 200]
    assert retries[0].json() == retries[1].json()
    asked_again = [(entry["objectId"], entry["status"]) for entry in retries[0].json()["actions"]]
    assert asked_again == [(one, 201) for one in (*ids, busy)]  # each once
    assert (await core.send("POST", f"{path}/retry", profile="analyst")).status_code == 409
    again = retries[0].json()["id"]
    assert (await core.send("GET", path)).json()["retriedBy"] == again
    assert (await core.send("GET", f"{BULK}/{again}")).json()["retries"] == path.rpartition("/")[2]
    assert (await core.send("GET", f"{BULK}/~998")).status_code == 404


async def test_one_decision_is_a_vote_for_each_run_that_waits(core: RunningCore) -> None:
    ids = await new_alerts(core, 4)
    after = (await core.send("GET", "/api/event")).json()["last"]
    _, answer = await bulk(core, on_alerts(ids))
    path = f"{BULK}/{answer['id']}"
    first = answer["actions"][0]["action"]["id"]
    own = await core.send("POST", f"{path}/approve", profile="analyst")
    assert own.status_code == 403
    assert own.json()["message"].startswith("Nothing was changed: ")
    assert (await core.send("POST", f"{path}/approve", profile="read-only")).status_code == 403
    assert (await core.send("GET", path)).json()["awaiting"] == 4
    await core.send("POST", f"{ACTION}/{first}/deny", {"message": "not this one"})
    approved = await core.send("POST", f"{path}/approve")
    assert [(one["objectId"], one["status"]) for one in approved.json()["actions"]] == [(id_, 201) for id_ in ids[1:]]
    for entry in approved.json()["actions"]:
        assert entry["action"]["approval"]["approvedBy"] == ["org-admin@responder-bot.local"]
        assert (await ended(core, entry["action"]["id"]))["status"] == "Success"
    shown = (await core.send("GET", path)).json()
    assert (shown["approvedBy"], shown["undoneBy"]) == (["org-admin@responder-bot.local"], [])
    assert (shown["counts"], shown["outcomes"], shown["awaiting"]) == ({"Failure": 1, "Success": 3}, {"denied": 1}, 0)
    assert (await core.send("POST", f"{path}/deny")).status_code == 409
    assert (await core.send("POST", f"{BULK}/~998/approve")).status_code == 404
    page = (await core.send("GET", f"/api/event?after={after}&include=documents")).json()
    assert [found["outcomes"] for found in page["bulks"]] == [{"denied": 1}]


async def test_what_is_above_an_approver_is_not_decided_with_the_rest(core: RunningCore) -> None:
    """Only for who decides in Slack, where a clearance counts."""
    (seen,) = await new_alerts(core, 1)
    (red,) = await new_alerts(core, 1, tlp=3, source="red")
    _, answer = await bulk(core, on_alerts([seen, red]))
    await core.core.people.add("ben", "analyst", clearance=2)
    headers = {"X-On-Behalf-Of": "ben@responder-bot.local"}
    denied = await core.send("POST", f"{BULK}/{answer['id']}/deny", {}, profile="service", headers=headers)
    assert [(one["objectId"], one["status"]) for one in denied.json()["actions"]] == [(seen, 201), (red, 403)]
    shown = (await core.send("GET", f"{BULK}/{answer['id']}")).json()
    assert (shown["outcomes"], shown["awaiting"]) == ({"denied": 1}, 1)


async def test_of_several_retries_at_once_one_counts(core: RunningCore) -> None:
    (busy,) = await new_alerts(core, 1)
    _, first = await bulk(core, on_alerts([busy]))
    _, answer = await bulk(core, on_alerts([busy], onlyIfIdle=True))
    await core.send("POST", f"{BULK}/{first['id']}/deny")
    path = f"{BULK}/{answer['id']}/retry"
    answers = await asyncio.gather(*(core.send("POST", path, profile="analyst") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]


async def test_a_bulk_that_retries_another_says_itself_what_runs_and_is_the_one_retry_of_that(
    core: RunningCore,
) -> None:
    withdrawn, busy = await new_alerts(core, 2)
    _, first = await bulk(core, on_alerts([busy]))
    _, answer = await bulk(core, on_alerts([withdrawn, busy, busy], onlyIfIdle=True, note="beacons"))
    path = f"{BULK}/{answer['id']}"
    again = on_alerts([busy], onlyIfIdle=True, retries=answer["id"], note="still beacons")
    assert (await bulk(core, again))[0] == 409  # one still waits
    await core.send("DELETE", f"{ACTION}/{answer['actions'][0]['action']['id']}", profile="analyst")
    shown = (await core.send("GET", path)).json()
    assert (shown["parameters"], shown["note"]) == ("{}", "beacons")
    assert [one["hasFailed"] for one in shown["targets"]] == [True, True, True]
    status, refused = await bulk(core, again)
    assert (status, refused["message"].partition(": ")[0]) == (409, "Nothing can run again now")
    await core.send("POST", f"{BULK}/{first['id']}/deny")
    assert (await bulk(core, {**again, "retries": "~998"}))[0] == 404
    ben = {"Authorization": f"Bearer {await core.key('analyst', 'ben')}"}
    assert (await core.send("POST", BULK, again, profile=None, headers=ben)).status_code == 403
    keys = ["once", "once", *(f"key-{number}" for number in range(6))]
    answers = await asyncio.gather(*(bulk(core, again, key) for key in keys))
    started = {found["id"] for status, found in answers if status == 200}
    assert len(started) == 1
    assert [status for status, _ in answers].count(409) in (6, 7)
    assert (await core.send("POST", f"{path}/retry", profile="analyst")).status_code == 409
    assert (await core.send("GET", path)).json()["retriedBy"] in started
    (action,) = [run for run in (await core.send("GET", f"{ACTION}/alert/{busy}")).json() if run["status"] == "Waiting"]
    assert action["note"] == "still beacons"
    await core.send("POST", f"{BULK}/{started.pop()}/deny")


async def test_documents_of_a_page_name_each_bulk_of_its_events_once(core: RunningCore) -> None:
    ids = await new_alerts(core, 3)
    after = (await core.send("GET", "/api/event")).json()["last"]
    _, answer = await bulk(core, on_alerts(ids))
    page = (await core.send("GET", f"/api/event?after={after}&include=documents")).json()
    assert len(page["events"]) == 3
    assert [(found["id"], found["counts"], found["refused"]) for found in page["bulks"]] == [
        (answer["id"], {"Waiting": 3}, 0)
    ]
    alone = await core.send("POST", "/api/alert", {**ALERT, "sourceRef": "alone"})
    page = (await core.send("GET", f"/api/event?after={page['last']}&include=documents")).json()
    assert (page["bulks"], page["documents"][0]["id"]) == ([], alone.json()["id"])


async def test_a_page_names_each_bulk_on_what_has_changed(core: RunningCore) -> None:
    """So that what names its targets can be rendered again, also where an alert shares an artifact with its case."""
    (alert,) = await new_alerts(core, 1, artifacts=[{"dataType": "ip", "data": "192.0.2.1"}])
    case = (await core.send("POST", f"/api/alert/{alert}/createCase", {})).json()["id"]
    (artifact,) = (await core.send("GET", f"/api/alert/{alert}")).json()["artifacts"]
    (other,) = await new_alerts(core, 1, source="other")
    on = {"objectType": "case_artifact", "objectId": artifact["id"]}
    _, answer = await bulk(core, {"responderId": BLOCK, "targets": [on]})

    async def named_after(path: str, tlp: int = 3) -> list[str]:
        last = (await core.send("GET", "/api/event")).json()["last"]
        assert (await core.send("PATCH", path, {"tlp": tlp})).status_code in (200, 204)
        page = (await core.send("GET", f"/api/event?after={last}&include=documents")).json()
        assert page["events"]
        return [found["id"] for found in page["bulks"]]

    assert await named_after(f"/api/alert/{other}") == []
    assert await named_after(f"/api/case/{case}") == [answer["id"]]
    assert await named_after(f"/api/alert/{alert}") == [answer["id"]]
    await core.send("POST", f"{BULK}/{answer['id']}/deny")
    assert await named_after(f"/api/alert/{alert}", 1) == [answer["id"]]
    _, closing = await bulk(core, on_alerts([other]))
    assert await named_after(f"/api/alert/{other}", 1) == [closing["id"]]
    await core.send("POST", f"{BULK}/{closing['id']}/approve")
    while not (await core.send("GET", f"{BULK}/{closing['id']}")).json()["counts"].get("Success"):
        await core.send("GET", f"{ACTION}/{closing['actions'][0]['action']['id']}?wait=20")
    assert await named_after(f"/api/alert/{other}", 2) == [closing["id"]]


async def test_rates_count_each_target(tmp_path: Path) -> None:
    rated = ResponderSection(approval=1, rate=("5/1h",))
    async with running_core(tmp_path, responder={CLOSE: rated}) as core:
        await core.key("analyst")
        body = on_alerts(await new_alerts(core, 8))
        answers = await asyncio.gather(bulk(core, body), bulk(core, body), bulk(core, body))
        refused = max((answer for _, answer in answers), key=lambda answer: str(answer["actions"]).count("429"))
        for _, answer in answers:
            await core.send("POST", f"{BULK}/{answer['id']}/deny")
        again = await core.send("POST", f"{BULK}/{refused['id']}/retry", profile="analyst")
        assert [entry["status"] for entry in again.json()["actions"]].count(201) == 5
        third = await core.send("POST", f"{BULK}/{again.json()['id']}/retry", profile="analyst")
        assert third.status_code == 409  # some have not ended
        for entry in again.json()["actions"]:
            if "action" in entry:
                await core.send("DELETE", f"{ACTION}/{entry['action']['id']}")
        await bulk(core, on_alerts(await new_alerts(core, 5, source="other")))
        full = await core.send("POST", f"{BULK}/{again.json()['id']}/retry", profile="analyst")
        assert (full.status_code, full.json()["type"]) == (429, "RateLimitError")
        assert int(full.headers["retry-after"]) > 0
        assert "until" not in full.json()  # it depends on those that wait
    entries = [entry for _, answer in answers for entry in answer["actions"]]
    found = [(entry["status"], entry.get("type")) for entry in entries]
    assert (found.count((201, None)), found.count((429, "RateLimitError"))) == (5, 19)


async def test_the_client_speaks_it(core: RunningCore) -> None:
    ids = await new_alerts(core, 2)
    async with CoreClient(core.url, await core.key("analyst")) as client:
        answer = await client.run_bulk(on_alerts([*ids, "~999"]), "key")
        assert [entry.status for entry in answer.actions] == [201, 201, 404]
        assert (await client.bulk(answer.id)).counts == {"Waiting": 2}
        with pytest.raises(ResponderBotError) as refused:
            await client.run_bulk({**on_alerts(ids), "retries": answer.id})
    assert refused.value.code == "conflict"


def in_store(path: Path, sql: str) -> int:
    """A number, read without a core."""
    ((found,),) = stores.rows(path, sql)
    return int(found)


@pytest.mark.slow
async def test_a_hundred_runs_run_once_each_though_core_is_killed_twice(tmp_path: Path) -> None:
    """It is killed while it accepts them, and again when some have run, some run and some wait."""
    setup = await setup_in(tmp_path)
    async with core_process(setup) as core:
        alerts = [await alert_in(core, str(number)) for number in range(100)]
        body = {**on_alerts(alerts), "responderId": "Stepwise_1_0", "parameters": {"runs": str(setup.runs("all"))}}
        asking = asyncio.create_task(core.client().run_bulk(body, "key"))
        await until(lambda: in_store(setup.database, "SELECT count(*) FROM action") or asking.done(), "the first run")
        await core.kill()
        await asyncio.gather(asking, return_exceptions=True)
    assert in_store(setup.database, "SELECT count(*) FROM action") == 100  # all or none
    async with core_process(setup) as core:
        first = await core.client().run_bulk(body, "key")
        await until(lambda: setup.counted("all") >= 20, "some runs")
        await core.kill()
    async with core_process(setup) as core:
        again = await core.client().run_bulk(body, "key")
        ids = [entry.action.id for entry in again.actions if entry.action]
        assert [entry.action.id for entry in first.actions if entry.action] == ids
        assert {(await core.ended(id_)).status for id_ in ids} == {"Success"}
        shown = await core.client().bulk(again.id)
    assert (shown.total, shown.counts) == (100, {"Success": 100})
    assert (len(set(ids)), setup.counted("all")) == (100, 100)
