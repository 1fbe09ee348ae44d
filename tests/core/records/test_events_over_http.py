"""The event feed of a running core, over HTTP."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.app import serving
from core.client import CoreClient
from tests.core.running import RunningCore, made, running_core, sent, settings_in
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
DAY_MS = 86_400_000


async def alert(core: RunningCore, ref: str) -> str:
    return str((await made(core, "/api/alert", {**ALERT, "sourceRef": ref}))["id"])


async def events(core: RunningCore, query: str) -> Any:
    return await sent(core, "GET", f"/api/event?{query}", profile="read-only")


async def test_an_event_holds_ids_only(core: RunningCore) -> None:
    last = (await events(core, "wait=0"))["last"]
    named = {"X-Request-Id": "r-1"}
    case = (await core.send("POST", "/api/case", {"title": "c", "description": "d"}, headers=named)).json()
    task = (await core.send("POST", f"/api/case/{case['id']}/task", {"title": "t"}, headers=named)).json()
    page = await events(core, f"after={last}&wait=60")
    login = "org-admin@responder-bot.local"
    shown = [{**event, "at": 0} for event in page["events"]]
    root = {"at": 0, "rootId": case["id"], "user": login, "requestId": "r-1"}
    assert shown == [
        {"seq": last + 1, "type": "case.created", "objectType": "Case", "objectId": case["id"], **root},
        {"seq": last + 2, "type": "case_task.created", "objectType": "Task", "objectId": task["id"], **root},
    ]
    assert page["last"] == last + 2


async def test_core_stops_at_once_where_who_waited_for_events_has_left(tmp_path: Path) -> None:
    async with serving(settings_in(tmp_path), grace_s=120) as (core, url):
        key = await core.people.add("anna", "analyst")
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=1) as anna:
            with pytest.raises(httpx.ReadTimeout):
                await anna.get(f"{url}/api/event?wait=60")
        left_at = time.monotonic()
    assert time.monotonic() - left_at < 30


async def test_without_after_the_answer_has_the_newest_number(core: RunningCore) -> None:
    await alert(core, "before")
    now = await events(core, "wait=0")
    made = await alert(core, "after")
    assert now["events"] == []
    assert [event["objectId"] for event in (await events(core, f"after={now['last']}"))["events"]] == [made]


async def test_a_reader_among_many_writers_gets_each_event_once_and_in_order(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here, running_core(tmp_path) as there:
        await here.key("org-admin")
        there.keys.update(here.keys)
        await here.key("read-only")

        async def read() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            while len(found) < 40:
                last = found[-1]["seq"] if found else 0
                found += (await events(here, f"after={last}&wait=20"))["events"]
            return found

        reading = asyncio.ensure_future(read())
        await asyncio.gather(*(alert((here, there)[n % 2], str(n)) for n in range(40)))
        found = await reading
    assert [event["seq"] for event in found] == list(range(1, 41))
    assert len({event["objectId"] for event in found}) == 40


async def test_a_reader_ahead_of_the_newest_event_continues_from_the_newest(core: RunningCore) -> None:
    ahead = await events(core, "after=999999999&wait=0")
    made = await alert(core, "put back")
    page = await events(core, f"after={ahead['last']}&wait=0")
    assert ahead["events"] == []
    assert [event["objectId"] for event in page["events"]] == [made]


async def test_pruned_events_are_410_with_the_first_one_kept(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here:
        for number in range(3):
            await alert(here, str(number))
        await here.core.database.transaction(
            lambda tx: tx.run("UPDATE event SET at = at - :old WHERE seq < 3", {"old": 31 * DAY_MS})
        )
        await here.prune_events(30)
        gone = await here.send("GET", "/api/event?after=1")
        edge = await events(here, "after=2")
        now = await events(here, "wait=0")
    assert (gone.status_code, gone.json()["type"], gone.json()["first"]) == (410, "GoneError", 3)
    assert ([event["seq"] for event in edge["events"]], now["last"]) == ([3], 3)


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=", "after=1.5", "after=" + "9" * 19])
async def test_after_takes_a_number(core: RunningCore, query: str) -> None:
    answer = await core.send("GET", f"/api/event?{query}")
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequest")


async def test_answers_to_simultaneous_changes_each_name_an_event_at_or_after_their_own(core: RunningCore) -> None:
    before = (await events(core, "wait=0"))["last"]
    sent = [core.send("POST", "/api/alert", {**ALERT, "sourceRef": f"at once {n}"}) for n in range(30)]
    answers = await asyncio.gather(*sent)
    own = {event["objectId"]: event["seq"] for event in (await events(core, f"after={before}"))["events"]}
    named = [(int(answer.headers["X-Last-Event"]), own[answer.json()["id"]]) for answer in answers]
    assert all(own_event <= last <= before + 30 for last, own_event in named), named


async def test_the_answer_to_a_change_names_an_event_at_or_after_its_own(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        created = await core.send("POST", "/api/alert", ALERT)
        last = (await core.send("GET", "/api/event?after=0")).json()["last"]
        assert created.headers["X-Last-Event"] == str(last)
        assert "X-Last-Event" not in (await core.send("GET", f"/api/alert/{created.json()['id']}")).headers
        assert "X-Last-Event" not in (await core.send("POST", "/api/alert", ALERT)).headers  # refused: it exists
        async with CoreClient(core.url, await core.key("analyst", "eve")) as client:
            assert client.last_event is None
            await client.close_alerts([created.json()["id"]])
            assert client.last_event == last + 1
            assert client.as_user("eve").last_event is None
