"""Version 1 of public clients: its names of fields, and its queries (`semantics.md 9`)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.running import RunningCore, running_core

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
LIST = {"_name": "listAlert"}


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as opened:
        yield opened


async def asked(core: RunningCore, *steps: Any, status: int = 200) -> Any:
    answer = await core.send("POST", "/api/v1/query", {"query": list(steps)}, profile="read-only")
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_query_filters_sorts_pages_and_counts(core: RunningCore) -> None:
    for reference in "abc":
        await core.send("POST", "/api/alert", {**ALERT, "sourceRef": reference})
    some = {"_name": "filter", "_or": [{"_field": "sourceRef", "_value": "a"}, {"_eq": {"sourceRef": "c"}}]}
    down = {"_name": "sort", "_fields": [{"_createdBy": "asc"}, {"sourceRef": "desc"}]}
    first = {"_name": "page", "from": 0, "to": 1, "extraData": []}
    assert [item["sourceRef"] for item in await asked(core, LIST, some, down)] == ["c", "a"]
    assert [item["sourceRef"] for item in await asked(core, LIST, some, down, first)] == ["c"]
    assert await asked(core, LIST, some, {"_name": "count"}) == 2
    mine = {"_name": "filter", "_createdBy": "org-admin@responder-bot.local"}
    assert await asked(core, LIST, mine, {"_name": "count"}) == 3


@pytest.mark.parametrize(
    "steps",
    [
        [],
        ["listAlert"],
        [{"_name": "listNothing"}],
        [{"_name": ["listAlert"]}],
        [{"_name": "getAlert"}],
        [{"_name": "getAlert", "idOrName": 1}],
        [LIST, {"_name": "tasks"}],
        [LIST, {"_name": "filter", "_like": 1}],
        [LIST, {"_name": "filter", "_field": "nothing", "_value": 1}],
        [LIST, {"_name": "sort", "_fields": [{"title": "asc", "tlp": "asc"}]}],
        [LIST, {"_name": "sort", "_fields": ["title"]}],
        [LIST, {"_name": "sort", "_fields": [{"nothing": "asc"}]}],
        [LIST, {"_name": "page", "from": 2, "to": 1}],
        [LIST, {"_name": "page", "from": True, "to": 1}],
        [LIST, *[{"_name": "count"}] * 20],
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(core: RunningCore, steps: list[Any]) -> None:
    assert (await asked(core, *steps, status=400))["type"] == "BadRequest"


async def test_a_query_only_reads_so_the_bots_key_may_send_it(core: RunningCore) -> None:
    body = {"query": [{"_name": "listAlert"}]}
    assert (await core.send("POST", "/api/v1/query", body, profile="service")).status_code == 200


@pytest.mark.parametrize("body", [None, [], 1, {}, {"query": {}}, {"query": None}])
async def test_a_body_that_is_no_query_is_refused(core: RunningCore, body: Any) -> None:
    assert (await core.send("POST", "/api/v1/query", body)).status_code == 400


async def test_an_object_that_is_not_there_is_told(core: RunningCore) -> None:
    assert (await asked(core, {"_name": "getAlert", "idOrName": "~9"}, status=404))["message"] == "Alert not found"


async def test_an_action_is_found_by_its_object_and_shown_in_the_words_of_clients(core: RunningCore) -> None:
    alert = (await core.send("POST", "/api/alert", ALERT)).json()
    run = {
        "responderId": "ResponderBot_CloseAsFalsePositive_1_0",
        "objectType": "alert",
        "objectId": alert["id"],
    }
    action = (await core.send("POST", "/api/connector/engine/action", run)).json()
    of_alert = {"_name": "filter", "_and": [{"_field": "objectId", "_value": alert["id"]}, {"cortexId": "local"}]}
    (found,) = await asked(core, {"_name": "listAction"}, of_alert)
    assert (found["_id"], found["_type"], found["cortexJobId"]) == (action["id"], "Action", action["engineJobId"])
    assert not [key for key in found if key.startswith("engine")]
    assert await asked(core, {"_name": "listAction"}, {"_name": "filter", "objectId": "~999"}) == []
    like = {"_name": "filter", "_like": {"objectId": "~*"}}
    assert await asked(core, {"_name": "listAction"}, like, {"_name": "count"}) == 1


async def test_an_alert_of_version_1_is_the_same_alert(core: RunningCore) -> None:
    sent = {
        **ALERT,
        "observables": [{"dataType": "ip", "data": "192.0.2.7"}],
        "customFields": [{"name": "unit", "value": "HR"}, {"name": "none"}, "junk"],
    }
    made = (await core.send("POST", "/api/v1/alert", sent)).json()
    own = (await core.send("GET", f"/api/alert/{made['_id']}")).json()
    assert [item["data"] for item in own["artifacts"]] == ["192.0.2.7"]
    assert list(own["customFields"]) == ["unit", "none"]
    assert [item.get("value") for item in made["customFields"]] == ["HR", None]
    refused = await core.send("POST", "/api/v1/alert", {**sent, "sourceRef": "2", "tlp": 9})
    assert [item["name"] for item in refused.json()["errors"]] == ["tlp"]
