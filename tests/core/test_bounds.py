"""One request, however it is made, costs little: others are served while it is answered."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.models import ERRORS_LIMIT, MAX_ARTIFACT_TAGS, MAX_ARTIFACTS, MAX_CUSTOM_FIELDS, MAX_TAGS, MAX_TASKS
from tests.core.object_wire import ALERT
from tests.core.running import RunningCore, running_core

STALL_S = 0.5  # a loop that works through a hostile body is stuck for seconds
LOOK_EVERY_S = 0.005
BODY_BYTES = 1_048_576
AT_ONCE = 4


def filled(before: str, entry: str, after: str) -> bytes:
    """JSON of as many entries as a body holds."""
    return (before + ",".join([entry] * ((BODY_BYTES - 500) // (len(entry) + 1))) + after).encode()


def fields(count: int, value: str) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(count)) + "}"


TEMPLATE, ALERTS = "/api/case/template", "/api/alert"
_ALERT = json.dumps(ALERT)[:-1]

HOSTILE: dict[str, tuple[str, str, bytes]] = {
    "tasks of numbers": ("POST", TEMPLATE, filled('{"name":"x","tasks":[', "1", "]}")),
    "tasks of nothing": ("POST", TEMPLATE, filled('{"name":"x","tasks":[', "{}", "]}")),
    "valid tasks": ("POST", TEMPLATE, filled('{"name":"x","tasks":[', '{"title":"a"}', "]}")),
    "tags of numbers": ("POST", TEMPLATE, filled('{"name":"x","tags":[', "1", "]}")),
    "wrong custom fields": ("POST", TEMPLATE, ('{"name":"x","customFields":' + fields(87_000, "[]") + "}").encode()),
    "custom fields": ("POST", TEMPLATE, ('{"name":"x","customFields":' + fields(90_000, "1") + "}").encode()),
    "artifacts of nothing": ("POST", ALERTS, filled(f'{_ALERT},"artifacts":[', "{}", "]}")),
    "artifacts in artifacts": (
        "POST",
        ALERTS,
        (f'{_ALERT},"artifacts":[' + ",".join(['{"data":[' + "1," * 25 + '1],"tags":[1,1]}'] * 1_000) + "]}").encode(),
    ),
    "ids of numbers": ("PATCH", "/api/alert/_bulk", filled('{"ids":[', "1", "]}")),
    "named custom fields": (
        "PATCH",
        "/api/alert/_bulk",
        ('{"ids":[],' + ",".join(f'"customFields.{number:x}":[]' for number in range(29_000)) + "}").encode(),
    ),
    "a search of numbers": ("POST", "/api/alert/_search", filled('{"query":{"_and":[', "1", "]}}")),
    "a sort by many": ("POST", "/api/alert/_search", filled('{"sort":"', "title", '"}')),
    "a sort by numbers": ("POST", "/api/alert/_search", filled('{"sort":[', "1", "]}")),
    "steps of version 1": ("POST", "/api/v1/query", filled('{"query":[', "1", "]}")),
    "brackets": ("POST", ALERTS, b"[" * BODY_BYTES),
    "empty lists": ("POST", ALERTS, filled("[", "[]", "]")),
    "a number out of range": ("POST", ALERTS, filled("[1e30,", "1", "]")),
    "quotes": ("POST", ALERTS, b'["' + b'\\"' * (BODY_BYTES // 2 - 2)),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_body_is_refused_while_others_are_served(core: RunningCore, name: str) -> None:
    method, path, body = HOSTILE[name]
    packed = gzip.compress(body)
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
async def test_a_list_has_a_greatest_length_that_the_answer_names(core: RunningCore, name: str) -> None:
    path, body, key = AT_MOST[name]
    assert (await core.send("POST", path, body)).status_code == 201
    longer = {**body, "name": "y", "sourceRef": "y", key: [*body[key], body[key][0]]}
    refused = (await core.send("POST", path, longer)).json()
    assert [error["name"] for error in refused["errors"]] == [key]
    assert refused["message"] == f"[Invalid format for {key}, expected at most {len(body[key])} entries]"


async def test_custom_fields_have_a_greatest_number(core: RunningCore) -> None:
    most = {f"f{number}": number for number in range(MAX_CUSTOM_FIELDS)}
    assert (await core.send("POST", ALERTS, {**ALERT, "customFields": most})).status_code == 201
    refused = (await core.send("POST", ALERTS, {**ALERT, "customFields": {**most, "g": 1}})).json()
    assert refused["message"] == f"[Invalid format for customFields, expected at most {MAX_CUSTOM_FIELDS} entries]"


async def test_the_errors_of_a_long_list_are_told_up_to_a_thousand(core: RunningCore) -> None:
    artifact = {"dataType": 1, "data": "x", "tags": [1] * (MAX_ARTIFACT_TAGS // 5)}
    refused = (await core.send("POST", ALERTS, {**ALERT, "artifacts": [artifact] * MAX_ARTIFACTS})).json()
    assert len(refused["errors"]) == ERRORS_LIMIT
    assert refused["errors"][0]["name"] == "artifacts[0].dataType"
    assert "and 990 more" in refused["message"]


@pytest.mark.parametrize("text", ['"' + "," * 500_000 + '"', '"' + '\\",[{' * 150_000 + '"', '"\\\\"'])
async def test_only_values_are_counted_not_what_stands_in_a_text(core: RunningCore, text: str) -> None:
    sent = json.loads(text)
    made = await core.send("POST", ALERTS, content=_ALERT.encode() + b',"summary":"","title":' + text.encode() + b"}")
    assert made.status_code == 201, made.text
    assert made.json()["title"] == sent


class Stall:
    """How long the loop did nothing else, at most."""

    seconds = 0.0


@asynccontextmanager
async def longest_stall() -> AsyncIterator[Stall]:
    stall, loop = Stall(), asyncio.get_running_loop()

    async def look() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(LOOK_EVERY_S)
            stall.seconds = max(stall.seconds, loop.time() - before - LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        yield stall
        await asyncio.sleep(0)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as core:
        await core.key("org-admin")
        yield core
