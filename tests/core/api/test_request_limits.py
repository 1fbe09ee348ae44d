"""Limits of requests: even the most expensive one doesn't delay others."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from core.field_types import ERRORS_LIMIT, MAX_ARTIFACT_TAGS, MAX_ARTIFACTS, MAX_CUSTOM_FIELDS, MAX_TAGS, MAX_TASKS
from tests.core.object_api import ALERT
from tests.core.running import RunningCore, running_core
from tests.core.stalls import longest_stall

STALL_S = 0.5  # a loop that works through a hostile body is stuck for seconds
BODY_BYTES = 1_048_576
AT_ONCE = 2


def filled(before: str, entry: str, after: str) -> bytes:
    """JSON of as many entries as a body holds."""
    return (before + ",".join([entry] * ((BODY_BYTES - 500) // (len(entry) + 1))) + after).encode()


def fields(count: int, value: str) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(count)) + "}"


TEMPLATE, ALERTS = "/api/case/template", "/api/alert"
_ALERT = json.dumps(ALERT)[:-1]

HOSTILE: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "tasks of numbers": ("POST", TEMPLATE, lambda: filled('{"name":"x","tasks":[', "1", "]}")),
    "tasks of nothing": ("POST", TEMPLATE, lambda: filled('{"name":"x","tasks":[', "{}", "]}")),
    "valid tasks": ("POST", TEMPLATE, lambda: filled('{"name":"x","tasks":[', '{"title":"a"}', "]}")),
    "tags of numbers": ("POST", TEMPLATE, lambda: filled('{"name":"x","tags":[', "1", "]}")),
    "wrong custom fields": (
        "POST",
        TEMPLATE,
        lambda: ('{"name":"x","customFields":' + fields(87_000, "[]") + "}").encode(),
    ),
    "custom fields": ("POST", TEMPLATE, lambda: ('{"name":"x","customFields":' + fields(90_000, "1") + "}").encode()),
    "artifacts of nothing": ("POST", ALERTS, lambda: filled(f'{_ALERT},"artifacts":[', "{}", "]}")),
    "artifacts in artifacts": (
        "POST",
        ALERTS,
        lambda: (
            f'{_ALERT},"artifacts":[' + ",".join(['{"data":[' + "1," * 25 + '1],"tags":[1,1]}'] * 1_000) + "]}"
        ).encode(),
    ),
    "ids of numbers": ("PATCH", "/api/alert/_bulk", lambda: filled('{"ids":[', "1", "]}")),
    "named custom fields": (
        "PATCH",
        "/api/alert/_bulk",
        lambda: ('{"ids":[],' + ",".join(f'"customFields.{number:x}":[]' for number in range(29_000)) + "}").encode(),
    ),
    "a search of numbers": ("POST", "/api/alert/_search", lambda: filled('{"query":{"_and":[', "1", "]}}")),
    "a sort by many": ("POST", "/api/alert/_search", lambda: filled('{"sort":"', "title", '"}')),
    "a sort by numbers": ("POST", "/api/alert/_search", lambda: filled('{"sort":[', "1", "]}")),
    "steps of version 1": ("POST", "/api/v1/query", lambda: filled('{"query":[', "1", "]}")),
    "brackets": ("POST", ALERTS, lambda: b"[" * BODY_BYTES),
    "empty lists": ("POST", ALERTS, lambda: filled("[", "[]", "]")),
    "a number out of range": ("POST", ALERTS, lambda: filled("[1e30,", "1", "]")),
    "quotes": ("POST", ALERTS, lambda: b'["' + b'\\"' * (BODY_BYTES // 2 - 2)),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_body_is_refused_without_delaying_others(core: RunningCore, name: str) -> None:
    method, path, make_body = HOSTILE[name]
    packed = gzip.compress(make_body(), 1)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    refs = itertools.count()
    async with longest_stall() as stall:
        sent = [asyncio.create_task(core.send(method, path, headers=headers, content=packed)) for _ in range(AT_ONCE)]
        while not all(task.done() for task in sent):
            written = await core.send("POST", ALERTS, {**ALERT, "sourceRef": f"{next(refs)}"})
            assert written.status_code == 201
            assert (await core.http.get("/health")).json()["status"] == "ok"
    for answer in [await task for task in sent]:
        assert answer.status_code == 400, answer.text
        assert len(answer.json().get("errors", ())) <= ERRORS_LIMIT
        assert len(answer.content) < BODY_BYTES // 2
    assert stall.seconds < STALL_S


AT_MOST: dict[str, tuple[str, dict[str, Any], str]] = {
    "tags": (ALERTS, {**ALERT, "tags": [f"{number}" for number in range(MAX_TAGS)]}, "tags"),
    "tasks": (TEMPLATE, {"name": "x", "tasks": [{"title": "t"}] * MAX_TASKS}, "tasks"),
    "tasks of a case": ("/api/case", {"title": "x", "description": "", "tasks": [{"title": "t"}] * MAX_TASKS}, "tasks"),
    "artifacts": (ALERTS, {**ALERT, "artifacts": [{"dataType": "ip", "data": "::1"}] * MAX_ARTIFACTS}, "artifacts"),
}


@pytest.mark.parametrize("name", AT_MOST)
async def test_a_list_over_its_limit_is_an_error_that_names_it(core: RunningCore, name: str) -> None:
    path, body, key = AT_MOST[name]
    assert (await core.send("POST", path, body)).status_code == 201
    longer = {**body, "name": "y", "sourceRef": "y", key: [*body[key], body[key][0]]}
    refused = (await core.send("POST", path, longer)).json()
    assert [error["name"] for error in refused["errors"]] == [key]
    assert refused["message"] == f"[Invalid format for {key}, expected at most {len(body[key])} entries]"


async def test_custom_fields_have_a_limit(core: RunningCore) -> None:
    most = {f"f{number}": number for number in range(MAX_CUSTOM_FIELDS)}
    assert (await core.send("POST", ALERTS, {**ALERT, "customFields": most})).status_code == 201
    refused = (await core.send("POST", ALERTS, {**ALERT, "customFields": {**most, "g": 1}})).json()
    assert refused["message"] == f"[Invalid format for customFields, expected at most {MAX_CUSTOM_FIELDS} entries]"


async def test_at_most_a_thousand_field_errors_are_reported(core: RunningCore) -> None:
    artifact = {"dataType": 1, "data": "x", "tags": [1] * (MAX_ARTIFACT_TAGS // 5)}
    refused = (await core.send("POST", ALERTS, {**ALERT, "artifacts": [artifact] * MAX_ARTIFACTS})).json()
    assert len(refused["errors"]) == ERRORS_LIMIT
    assert refused["errors"][0]["name"] == "artifacts[0].dataType"
    assert "and 990 more" in refused["message"]


@pytest.mark.parametrize("text", ['"' + "," * 500_000 + '"', '"' + '\\",[{' * 150_000 + '"', '"\\\\"'])
async def test_brackets_in_strings_do_not_count_as_values(core: RunningCore, text: str) -> None:
    sent = json.loads(text)
    made = await core.send("POST", ALERTS, content=_ALERT.encode() + b',"summary":"","title":' + text.encode() + b"}")
    assert made.status_code == 201, made.text
    assert made.json()["title"] == sent


async def test_the_largest_case_has_all_its_tasks_in_order(core: RunningCore) -> None:
    tasks = [{"title": f"{number}", "order": number} for number in range(MAX_TASKS)]
    assert (await core.send("POST", TEMPLATE, {"name": "large", "tasks": tasks})).status_code == 201
    body = {"title": "c", "description": "", "template": "large", "tasks": [{"title": "mine", "order": MAX_TASKS}]}
    case = (await core.send("POST", "/api/case", body)).json()
    below = {"query": {"_parent": {"_type": "case", "_query": {"_id": case["id"]}}}, "range": "all"}
    found = (await core.send("POST", "/api/case/task/_search", below)).json()
    assert [task["title"] for task in found] == [*(task["title"] for task in tasks), "mine"]
    assert len({task["id"] for task in found}) == MAX_TASKS + 1
    page = (await core.send("GET", "/api/event?after=2")).json()
    assert [event["objectId"] for event in page["events"][: len(found)]] == [task["id"] for task in found][:500]
    assert {event["rootId"] for event in page["events"]} == {case["id"]}


async def test_updates_have_the_same_limits_as_creation(core: RunningCore) -> None:
    most = [f"{number}" for number in range(MAX_TAGS)]
    data = [f"::{number:x}" for number in range(MAX_ARTIFACTS)]
    alert = (await core.send("POST", ALERTS, {**ALERT, "tags": most})).json()
    added = await core.send("POST", f"{ALERTS}/{alert['id']}/artifact", {"dataType": "ip", "data": data})
    assert len(added.json()) == MAX_ARTIFACTS
    path = f"{ALERTS}/{alert['id']}"
    for method, address, change in (
        ("PATCH", path, {"addTags": ["one more"]}),
        ("POST", f"{path}/artifact", {"dataType": "ip", "data": "one more"}),
    ):
        refused = await core.send(method, address, change)
        assert refused.status_code == 400
        assert "at most 1000 are kept" in refused.json()["message"]
    swapped = await core.send("PATCH", path, {"addTags": ["another"], "removeTags": ["0"]})
    assert swapped.json()["tags"] == [*most[1:], "another"]


async def test_single_custom_fields_share_one_limit(core: RunningCore) -> None:
    alert = (await core.send("POST", ALERTS, ALERT)).json()
    for start in (0, MAX_CUSTOM_FIELDS):
        named = {f"customFields.f{number}": number for number in range(start, start + MAX_CUSTOM_FIELDS)}
        changed = await core.send("PATCH", f"{ALERTS}/{alert['id']}", named)
        assert changed.status_code == (200 if start == 0 else 400), changed.text


async def test_a_bulk_update_over_its_limit_changes_nothing(core: RunningCore) -> None:
    large = {**ALERT, "tags": [f"{number}" for number in range(MAX_TAGS)]}
    made = [await core.send("POST", ALERTS, {**large, "sourceRef": f"{number}"}) for number in range(60)]
    ids = [answer.json()["id"] for answer in made]
    case = (await core.send("POST", "/api/case", {"title": "c", "description": ""})).json()
    for method, path, body in (
        ("PATCH", "/api/alert/_bulk", {"ids": ids, "title": "changed"}),
        ("POST", "/api/alert/merge/_bulk", {"alertIds": ids, "caseId": case["id"]}),
    ):
        refused = await core.send(method, path, body)
        assert refused.status_code == 413, refused.text
        assert "60 such alerts are too much for one change" in refused.json()["message"]
    left = (await core.send("GET", f"{ALERTS}/{ids[0]}")).json()
    assert (left["title"], left["case"]) == (ALERT["title"], None)
    fewer = await core.send("POST", "/api/alert/merge/_bulk", {"alertIds": ids[:30], "caseId": case["id"]})
    assert len(fewer.json()["tags"]) == MAX_TAGS


async def test_ambiguous_references_do_not_delay_others(core: RunningCore) -> None:
    reference = "a;b;c;d;e;f;g;h;i"  # type, source, then all the rest: the last way to read it
    await core.send("POST", ALERTS, {**ALERT, "type": "a;b;c;d;e;f;g", "source": "h", "sourceRef": "i"})
    async with longest_stall() as stall:
        changed = await core.send("PATCH", "/api/alert/_bulk", {"ids": [reference] * 1_000, "title": "t"})
    assert [alert["title"] for alert in changed.json()] == ["t"]
    assert stall.seconds < STALL_S
    long = await core.send("PATCH", "/api/alert/_bulk", {"ids": [";" * 3_000]})
    assert [error["name"] for error in long.json()["errors"]] == ["ids[0]"]


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as core:
        await core.key("org-admin")
        yield core
