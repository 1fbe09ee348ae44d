"""Searches over HTTP, and the query language by itself."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from core.common.errors import ResponderBotError
from core.records.search import MAX_CRITERIA, MAX_DEPTH, MAX_STEPS, parse_query
from core.store.search import Conditions
from tests.core.object_api import ALERT, ObjectApi, object_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERTS: list[dict[str, Any]] = [
    {"sourceRef": "a", "title": "Malware on host-1", "severity": 1, "tags": ["mal", "win"], "date": 100},
    {"sourceRef": "b", "title": "100% phish_ing", "severity": 3, "tlp": 3, "externalLink": "http://x", "date": 200},
    {
        "sourceRef": "c",
        "title": "malware again",
        "severity": 3,
        "tags": ["mal"],
        "date": 300,
        "customFields": {"score": {"integer": 7}, "a.b": "x", "none": {"string": None}},
        "artifacts": [{"dataType": "ip", "data": "::1", "ioc": True}, {"dataType": "domain", "data": "x.org"}],
    },
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObjectApi]:
    async with object_api(tmp_path_factory.mktemp("core")) as opened:
        for alert in ALERTS:
            await opened.post("/api/alert", {**ALERT, **alert})
        await opened.post("/api/alert/siem;elastalert;b/markAsRead", status=200)
        yield opened


async def found(api: ObjectApi, query: Any, **options: Any) -> str:
    """The references of the alerts that a query finds."""
    body = {"query": query} if query is not None else {}
    return "".join(alert["sourceRef"] for alert in await api.post("/api/alert/_search", body, 200, **options))


@pytest.mark.parametrize(
    ("query", "references"),
    [
        (None, "abc"),
        ({}, "abc"),
        ({"_any": "*"}, "abc"),
        ({"severity": 3}, "bc"),
        ({"severity": 3, "tlp": 3}, "b"),
        ({"_field": "severity", "_value": 1}, "a"),
        ({"_eq": {"_field": "severity", "_value": 1}}, "a"),
        ({"_ne": {"_field": "severity", "_value": 1}}, "bc"),
        ({"_and": [{"severity": 3}, {"_not": {"tlp": 3}}]}, "c"),
        ({"_and": []}, "abc"),
        ({"_or": []}, ""),
        ({"_or": [{"_field": "sourceRef", "_value": "a"}, {"status": "Ignored"}]}, "ab"),
        ({"_not": {"externalLink": "http://x"}}, "ac"),
        ({"_not": {"_gt": {"severity": 1}}}, "a"),
        ({"externalLink": None}, "ac"),
        ({"_contains": "externalLink"}, "b"),
        ({"_contains": "customFields.score"}, "c"),
        ({"_contains": "customFields.none"}, "c"),
        ({"_contains": {"_field": "customFields.other"}}, ""),
        ({"_in": {"_field": "sourceRef", "_values": ["a", "c", "x"]}}, "ac"),
        ({"_in": {"_field": "_id", "_values": ["~1", "~1000", "x"]}}, "a"),
        ({"_in": {"_field": "externalLink", "_values": [None, "http://x"]}}, "abc"),
        ({"_in": {"_field": "tags", "_values": ["win", "other"]}}, "a"),
        ({"_between": {"_field": "date", "_from": 100, "_to": 200}}, "ab"),
        ({"_gt": {"date": 100}}, "bc"),
        ({"_gte": {"_field": "date", "_value": 200}}, "bc"),
        ({"_lt": {"date": 200.5}}, "ab"),
        ({"_lte": {"date": 100}}, "a"),
        ({"tags": "mal"}, "ac"),
        ({"_not": {"tags": "mal"}}, "b"),
        ({"_contains": "tags"}, "ac"),
        ({"_like": {"_field": "title", "_value": "malware*"}}, "ac"),
        ({"_like": {"title": "*_ing"}}, "b"),
        ({"_like": {"title": "100%"}}, ""),
        ({"_wildcard": {"_field": "tags", "_value": "w*"}}, "a"),
        ({"_startsWith": {"_field": "title", "_value": "100%"}}, "b"),
        ({"_endsWith": {"_field": "title", "_value": "again"}}, "c"),
        ({"_id": "~1"}, "a"),
        ({"id": "~99999999999999999999"}, ""),
        ({"_type": "alert"}, "abc"),
        ({"_type": "case"}, ""),
        ({"follow": True}, "abc"),
        ({"customFields.score": 7}, "c"),
        ({"_gt": {"customFields.score.integer": 6.5}}, "c"),
        ({"customFields.score.string": "7"}, ""),
        ({"customFields.a.b": "x"}, "c"),
        ({"artifacts.data": "::1"}, "c"),
        ({"artifacts.ioc": True}, "c"),
        ({"_contains": "artifacts.data"}, "c"),
        ({"case": None}, "abc"),
        ({"title": "' OR 1=1 --"}, ""),
    ],
)
async def test_a_query_finds_its_matches(api: ObjectApi, query: Any, references: str) -> None:
    assert await found(api, query) == references


def nested(depth: int) -> Any:
    query: Any = {"title": "x"}
    for _ in range(depth):
        query = {"_and": [{"_not": query}]}
    return query


def stepping(steps: int) -> Any:
    query: Any = {"title": "x"}
    for step in range(steps):
        name, kind = ("_parent", "case") if step % 2 else ("_child", "case_task")
        query = {name: {"_type": kind, "_query": query}}
    return query


@pytest.mark.parametrize(
    "query",
    [
        {"colour": "red"},
        {"_colour": "red"},
        {"doc": "x"},
        {"title') OR 1=1 --": "x"},
        {'customFields.a"b': "x"},
        {"customFields.": "x"},
        {"title": ["a"]},
        {"title": {"a": 1}},
        {"title": 5},
        {"severity": "3"},
        {"severity": True},
        {"follow": 1},
        {"_field": "title"},
        {"_field": 5, "_value": 5},
        {"_and": {"title": "x"}},
        {"_or": [5]},
        {"_not": []},
        {"_in": {"_field": "title", "_values": "x"}},
        {"_in": {"_field": "title"}},
        {"_in": {"_field": "severity", "_values": list(range(1001))}},
        {"_in": {"_field": "severity", "_values": [[1]]}},
        {"_between": {"_field": "date", "_from": 1}},
        {"_between": {"_field": "date", "_from": None, "_to": 5}},
        {"_gt": {"date": 1, "severity": 2}},
        {"_gt": {"date": None}},
        {"_gt": 5},
        {"_like": {"_field": "title", "_value": "x" * 1001}},
        {"_like": {"title": 5}},
        {"_parent": {"_type": "case", "_id": "~1"}},
        {"_parent": {"_type": "nothing", "_id": "~1"}},
        {"_parent": 5},
        {"_child": {"_type": "case_task", "_query": {}}},
        {"_contains": 5},
        {"_type": ["x"]},
        {"date": 10**30},
        {"date": 1e999},
        {"_or": [{"title": "x"}] * (MAX_CRITERIA + 1)},
        nested(MAX_DEPTH + 1),
        nested(150),
        "x",
        [{"_name": "listAlert"}],
        5,
    ],
)
async def test_an_invalid_query_is_refused_with_a_sentence(api: ObjectApi, query: Any) -> None:
    content = json.dumps({"query": query}).replace("Infinity", "1e999")
    answer = await api.send("POST", "/api/alert/_search", content=content, status=400)
    assert answer.json()["message"]


async def test_the_largest_queries_are_answered(api: ObjectApi) -> None:
    assert await found(api, nested(MAX_DEPTH // 2)) == ""
    assert await found(api, {"_or": [{"title": "x"}] * (MAX_CRITERIA - 1)}) == ""
    assert await found(api, {"_in": {"_field": "severity", "_values": list(range(1000))}}) == "abc"
    await api.post("/api/alert/_search", {"query": {"_like": {"title": "*a" * 400}}}, 200)
    deep: Any = stepping(MAX_STEPS)
    for _ in range((MAX_DEPTH - MAX_STEPS) // 2):
        deep = {"_and": [{"_not": deep}, {"_in": {"_field": "group", "_values": ["x"]}}]}
    await api.post("/api/case/task/_search", {"query": deep}, 200)
    await api.post("/api/case/_search", {"query": stepping(MAX_STEPS + 1)}, 400)


@pytest.mark.parametrize(
    ("params", "references", "total"),
    [
        ({}, "abc", "3"),
        ({"range": "all"}, "abc", "3"),
        ({"range": "0-2"}, "ab", "3"),
        ({"range": "1-3"}, "bc", "3"),
        ({"range": "5-10"}, "", "3"),
        ({"range": "1-1"}, "", "3"),
        ({"sort": "-date"}, "cba", "3"),
        ({"sort": "+date"}, "abc", "3"),
        ({"sort": "-severity,title"}, "bca", "3"),
        ({"sort": "-severity,-date", "range": "0-1", "nparent": "0"}, "c", "3"),
        ({"sort": "-customFields.score", "range": "0-1"}, "c", "3"),
        ({"sort": ""}, "abc", "3"),
    ],
)
async def test_range_and_sort_choose_from_all_matches_and_the_total_is_answered(
    api: ObjectApi, params: dict[str, str], references: str, total: str
) -> None:
    body: dict[str, Any] = {"query": {}}
    answer = await api.send("POST", "/api/alert/_search", body, params=params, status=200)
    assert "".join(alert["sourceRef"] for alert in answer.json()) == references
    assert answer.headers["x-total"] == total
    in_body = {**body, **{key: value for key, value in params.items() if key != "nparent"}}
    again = await api.send("POST", "/api/alert/_search", in_body, status=200)
    assert again.json() == answer.json()


async def test_an_answer_without_the_total_has_the_same_objects(api: ObjectApi) -> None:
    whole = await api.send("POST", "/api/alert/_search", {"query": {"severity": 3}}, status=200)
    params = {"count": "false"}
    answer = await api.send("POST", "/api/alert/_search", {"query": {"severity": 3}}, status=200, params=params)
    assert answer.json() == whole.json()
    assert "x-total" not in answer.headers
    in_body = await api.send("POST", "/api/alert/_search", {"query": {"severity": 3}, "count": False}, status=200)
    assert "x-total" not in in_body.headers


async def test_tags_are_found_whole_whatever_their_length_and_as_they_are_now(api: ObjectApi) -> None:
    long = "t" * 5_000
    tags = [f"{long}1", f"{long}2", "two words", "Ümlaut", "100%"]
    await api.post("/api/alert", {**ALERT, "sourceRef": "d", "tags": tags})
    for tag in tags:
        assert await found(api, {"tags": tag}) == "d"
    for other in (long, f"{long}3", "two", "ümlaut", "100", ""):
        assert await found(api, {"tags": other}) == ""
    assert await found(api, {"_in": {"_field": "tags", "_values": [f"{long}3", "win"]}}) == "a"
    assert await found(api, {"_in": {"_field": "tags", "_values": []}}) == ""
    assert await found(api, {"_not": {"_in": {"_field": "tags", "_values": ["mal", "100%"]}}}) == "b"
    await api.patch("/api/alert/siem;elastalert;d", {"tags": ["mal", f"{long}2"]})
    assert [await found(api, {"tags": tag}) for tag in ("mal", "two words", f"{long}1", f"{long}2")] == [
        "acd",
        "",
        "",
        "d",
    ]


async def test_the_open_alerts_of_an_assignee_are_the_most_severe_first(api: ObjectApi) -> None:
    for reference in "abcd":
        assignee = (await api.post("/api/alert", {**ALERT, "sourceRef": f"o{reference}"}))["createdBy"]

    async def listed() -> list[str]:
        found = await api.get(f"/api/alert/_open?assignee={assignee}")
        return [(await api.get(f"/api/alert/{alert['id']}"))["sourceRef"] for alert in found]

    for reference in ("oa", "oc", "ob"):
        await api.patch(f"/api/alert/siem;elastalert;{reference}", {"assignee": assignee})
    assert await listed() == ["oc", "ob", "oa"]
    await api.post("/api/alert/siem;elastalert;ob/markAsRead", status=200)
    await api.patch("/api/alert/siem;elastalert;oa", {"severity": 4})
    assert await listed() == ["oa", "oc"]
    assignee = ""
    assert [reference for reference in await listed() if reference in ("oa", "ob", "oc", "od")] == ["od"]


@pytest.mark.parametrize(
    "params",
    [
        {"range": "x"},
        {"range": "5-1"},
        {"range": "-5"},
        {"range": "0-99999999999999999999"},
        {"range": "0-10;"},
        {"range": "٠-١"},
        {"sort": "colour"},
        {"sort": "--date"},
        {"sort": "date;"},
        {"sort": ",".join(["date"] * 6)},
    ],
)
async def test_an_invalid_range_or_sort_is_refused(api: ObjectApi, params: dict[str, str]) -> None:
    answer = await api.send("POST", "/api/alert/_search", {}, params=params, status=400)
    assert answer.json()["message"]


async def test_the_default_range_has_ten_objects(api: ObjectApi) -> None:
    for number in range(20):
        await api.post("/api/case", {"title": str(number), "description": "d"})
    answer = await api.send("POST", "/api/case/_search", status=200)
    assert (len(answer.json()), answer.headers["x-total"]) == (10, "20")


async def test_a_query_follows_parents_and_children(api: ObjectApi) -> None:
    first = await api.post("/api/case", {"title": "one", "description": "d", "tlp": 3, "tasks": [{"title": "t"}]})
    await api.post("/api/case", {"title": "two", "description": "d", "tasks": [{"title": "u"}]})
    tasks = await api.post("/api/case/task/_search", {"query": {"title": "t"}}, 200)
    await api.post(f"/api/case/task/{tasks[0]['id']}/log", {"message": "m"})
    of_case = {"_parent": {"_type": "case", "_query": {"_id": first["id"]}}}

    async def names(kind: str, query: Any, key: str = "title") -> list[str]:
        return [item[key] for item in await api.post(f"/api/case{kind}/_search", {"query": query}, 200)]

    assert await names("/task", of_case) == ["t"]
    assert await names("/task", {"_parent": {"_type": "case", "_id": first["id"]}}) == ["t"]
    assert await names("/task", {"_and": [of_case, {"status": "Waiting"}]}) == []
    assert await names("/task", {"_parent": {"_type": "case", "_query": {"tlp": 2}}}) == ["u"]
    assert await names("/task/log", {"_parent": {"_type": "case_task", "_id": tasks[0]["id"]}}, "message") == ["m"]
    assert await names("/task/log", of_case, "message") == ["m"]
    assert await names("", {"_child": {"_type": "case_task", "_query": {"title": "u"}}}) == ["two"]
    assert await names(
        "", {"_and": [{"tlp": 3}, {"_not": {"_child": {"_type": "case_task", "_query": {"title": "u"}}}}]}
    ) == ["one"]


async def test_templates_are_searched(api: ObjectApi) -> None:
    await api.post("/api/case/template", {"name": "x", "tasks": [{"title": "t"}]})
    await api.post("/api/case/template", {"name": "y"})
    for query in ({"_and": [{"name": "x"}, {"status": "Ok"}]}, {"tasks.title": "t"}):
        answer = await api.post("/api/case/template/_search", {"query": query}, 200)
        assert [template["name"] for template in answer] == ["x"]


async def test_every_profile_for_people_may_search(api: ObjectApi) -> None:
    for profile in ("read-only", "service"):
        await api.post("/api/alert/_search", {}, 200, key=await api.user(profile))
    assert (await api.http.post("/api/alert/_search", json={})).status_code == 401


async def test_an_error_lists_the_operators_and_fields() -> None:
    with pytest.raises(ResponderBotError, match="There is no field 'colour'; there are _id"):
        parse_query({"colour": 1}, "alert", Conditions())
