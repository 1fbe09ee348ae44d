"""Searches that are made to be slow: each is answered or stopped with a sentence, and nobody else's reads fail."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from core.common.database.location import PostgresqlUrl
from tests import stores
from tests.bench.grown import EVERYWHERE, fill, fill_postgresql, rare_word
from tests.core.core_process import ALERT, CoreProcess, core_process, setup_in

pytestmark = [pytest.mark.hostile, pytest.mark.asyncio(loop_scope="module")]

ALERTS = 2_000
BOUND_S = 60.0
LONG = "a" * 900_000
"""A text in which `NEARLY` begins to match at each character."""
NEARLY = "*" + "a" * 90 + "b*"
MOST = 195
"""Criteria that fit into one query with what is around them."""


def nested(depth: int, operator: str, inner: Any) -> Any:
    for _ in range(depth):
        inner = {operator: inner if operator == "_not" else [inner]}
    return inner


def wide(operator: str, inner: Any, count: int = MOST) -> Any:
    return {operator: [inner] * count}


ANYWHERE = {"_like": {"_field": "keyword", "_value": f"*{EVERYWHERE}*no such word"}}
SEARCHES: dict[str, Any] = {
    "200 nested conditions": nested(10, "_and", wide("_or", ANYWHERE, 185)),
    "201 conditions": wide("_or", {"title": "x"}, 201),
    "_and 12 deep": nested(12, "_and", {"_string": "*a*"}),
    "_or 40,000 deep": nested(400, "_or", {"title": "x"}),
    "_not 12 deep": nested(12, "_not", ANYWHERE),
    "_and, _or and _not in turn": nested(4, "_and", nested(4, "_or", nested(4, "_not", {"title": "x"}))),
    "steps to children": {"_child": {"_type": "case_artifact", "_query": wide("_or", ANYWHERE)}},
    "a word of every alert": {"_string": EVERYWHERE},
    "200 words of every alert": {"_string": " AND ".join([EVERYWHERE] * 100)},
    "wildcards in front": wide("_or", {"_like": {"_field": "description", "_value": "*a*b*c*d*e"}}),
    "nothing but wildcards": wide("_and", {"_wildcard": {"_field": "keyword", "_value": "*?" * 499}}),
    "a regular expression": {"_string": r"title:/(a+)+$/"},
    "an operator for regular expressions": {"_regex": {"_field": "title", "_value": "(a+)+$"}},
    "as many tags as it takes": wide("_or", {"_in": {"_field": "tags", "_values": [f"{n}" for n in range(700)]}}),
    "a million tags": {"_in": {"_field": "tags", "_values": ["x"] * 1_000_000}},
    "a value of 1 MB": {"_or": [{"title": "x" * 1_000_000}, {"tags": "x"}]},
    "values of 1 MB": wide("_or", {"description": "x" * 5_000}),
    "sorted by what has no index": {"_gte": {"_field": "tlp", "_value": 0}},
}
SLOW = wide("_or", {"_like": {"_field": "keyword", "_value": NEARLY}})
"""It would take minutes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CoreProcess]:
    setup = await setup_in(tmp_path_factory.mktemp("searches"))
    location = stores.location(setup.database)
    if isinstance(location, PostgresqlUrl):
        await asyncio.to_thread(fill_postgresql, location.text, ALERTS)
    else:
        await fill(location, ALERTS)
    async with core_process(setup) as core:
        for number in range(4):
            await core.client("lead").create_alert({**ALERT, "sourceRef": f"long-{number}", "description": LONG})
        tags = [f"{number}" for number in range(100_000)]
        await core.send("POST", "/api/alert", {**ALERT, "sourceRef": "tagged", "tags": tags})
        yield core


def client_of(core: CoreProcess, name: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {core.setup.keys[name]}", "Content-Type": "application/json"}
    return httpx.AsyncClient(base_url=core.url, headers=headers, timeout=BOUND_S)


def body_of(query: Any, **more: Any) -> bytes:
    return json.dumps({"query": query, **more}, separators=(",", ":")).encode()


READS: dict[str, tuple[str, str, bytes]] = {
    "responders": ("GET", "/api/connector/engine/responder/alert/~7", b""),
    "actions": ("GET", "/api/connector/engine/action/alert/~7", b""),
    "events": ("GET", "/api/event?after=0&wait=0", b""),
    "find": ("GET", f"/api/alert/_find?text={rare_word(7)}", b""),
    "search": ("POST", "/api/alert/_search", body_of({"sourceRef": rare_word(7)})),
    "newest": ("POST", "/api/alert/_search", body_of({}, sort="-createdAt", range="0-20", count=False)),
}


@asynccontextmanager
async def somebody_reading(core: CoreProcess) -> AsyncIterator[Counter[str]]:
    """Another analyst reads all the time; counts their answers, and at the end none was another than 200."""
    answered, wrong = Counter[str](), list[str]()

    async def keep_reading(name: str, http: httpx.AsyncClient) -> None:
        method, path, body = READS[name]
        while True:
            answer = await http.request(method, path, content=body)
            if answer.status_code != 200:
                wrong.append(f"{name}: {answer.status_code} {answer.text[:200]}")
            answered[name] += 1

    async with client_of(core, "anna") as http:
        reading = [asyncio.create_task(keep_reading(name, http)) for name in READS]
        try:
            yield answered
        finally:
            for task in reading:
                task.cancel()
            ended = await asyncio.gather(*reading, return_exceptions=True)
    assert not [error for error in ended if not isinstance(error, asyncio.CancelledError)]
    assert not wrong


def check_answer(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 413), answer.text[:300]
    if answer.status_code != 200:
        message = answer.json()["message"]
        assert re.fullmatch(r"[A-Z].{20,500}", message), message


@pytest.mark.parametrize("what", SEARCHES)
async def test_a_search_is_answered_or_refused_with_a_sentence(core: CoreProcess, what: str) -> None:
    body = body_of(SEARCHES[what], sort="-tlp" if "sorted" in what else "-createdAt")
    async with client_of(core, "ben") as http, somebody_reading(core):
        check_answer(await http.post("/api/alert/_search", content=body))


async def test_eight_endless_searches_of_one_caller_stop_nobody_else(core: CoreProcess) -> None:
    """Once the first is stopped the caller gives up."""
    async with client_of(core, "ben") as http, somebody_reading(core) as answered:
        asked = [asyncio.create_task(http.post("/api/alert/_search", content=body_of(SLOW))) for _ in range(8)]
        (first, *_), _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        during = Counter(answered)
        for one in asked:
            one.cancel()
    assert "and was stopped; ask for less" in first.result().text
    assert during.keys() == READS.keys(), "somebody else waited until it was over"
