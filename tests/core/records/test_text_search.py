"""Searches by `keyword`, `_match` and `_string`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import ResponderBotError
from core.records.search import parse_query
from core.store.search import Conditions
from tests.core.object_api import ALERT, ObjectApi, object_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALERTS: dict[str, dict[str, Any]] = {
    "a": {"title": "Phishing mail from boss", "tags": ["mail", "100%"], "severity": 3, "tlp": 1},
    "b": {"title": "Beacon", "artifacts": [{"dataType": "domain", "data": "evil.example"}], "tlp": 3},
    "c": {"title": "Login", "description": 'said "no entry" twice', "customFields": {"unit": "Finance"}, "tlp": 2},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObjectApi]:
    async with object_api(tmp_path_factory.mktemp("core")) as opened:
        for reference, more in ALERTS.items():
            await opened.post("/api/alert", {**ALERT, "title": "t", "description": "d", "sourceRef": reference, **more})
        yield opened


async def found(api: ObjectApi, query: Any, status: int = 200) -> str:
    answer = await api.post("/api/alert/_search", {"query": query, "sort": ["+sourceRef"]}, status)
    return "".join(alert["sourceRef"] for alert in answer) if status == 200 else str(answer["message"])


@pytest.mark.parametrize(
    ("query", "references"),
    [
        ({"keyword": "phishing"}, "a"),
        ({"keyword": "EVIL.ex"}, "b"),
        ({"_like": {"_field": "keyword", "_value": "*finance*"}}, "c"),
        ({"_match": {"_field": "keyword", "_value": "ph*boss"}}, "a"),
        ({"_field": "keyword", "_value": "100%"}, "a"),
        ({"_not": {"keyword": "evil"}}, "ac"),
        ({"keyword": "sourceRef"}, ""),
        ({"keyword": "customFields"}, ""),
        ({"_match": {"title": "eaco"}}, "b"),
        ({"_match": {"_field": "tags", "_value": "mai"}}, "a"),
        ({"_match": {"_field": "tlp", "_value": "3"}}, "b"),
        ({"_match": {"_field": "tlp", "_value": 3}}, "b"),
        ({"_string": ""}, "abc"),
        ({"_string": "*"}, "abc"),
        ({"_string": "phishing"}, "a"),
        ({"_string": "title:beacon AND tlp:3"}, "b"),
        ({"_string": "title:beacon AND tlp:2"}, ""),
        ({"_string": "phishing evil"}, "ab"),
        ({"_string": "phishing OR finance AND tlp:2"}, "ac"),
        ({"_string": "(phishing || finance) && tlp:2"}, "c"),
        ({"_string": "NOT title:(beacon OR login)"}, "a"),
        ({"_string": "!evil AND -tlp:2"}, "a"),
        ({"_string": '"mail from"'}, "a"),
        ({"_string": 'description:"said \\"no entry\\""'}, "c"),
        ({"_string": "tags:*"}, "a"),
        ({"_string": "title:ph*boss"}, "a"),
        ({"_string": "customFields.unit:fin*"}, "c"),
        ({"_string": "artifacts.data:evil.example"}, "b"),
        ({"_string": "+follow:true +severity:3"}, "abc"),
        ({"_string": "follow:false"}, ""),
        ({"_and": [{"_string": "tlp:1 tlp:3"}, {"keyword": "beacon"}]}, "b"),
    ],
)
async def test_keyword_finds_a_text_in_any_field(api: ObjectApi, query: Any, references: str) -> None:
    assert await found(api, query) == references


@pytest.mark.parametrize(
    "query",
    [
        {"_string": 7},
        {"_string": "a AND"},
        {"_string": "OR a"},
        {"_string": "(a"},
        {"_string": "a)"},
        {"_string": "()"},
        {"_string": '"a'},
        {"_string": "nothing:a"},
        {"_string": "tlp:[1 TO 3]"},
        {"_string": "tlp:>1"},
        {"_string": "tlp:high"},
        {"_string": "(" * 900 + "a" + ")" * 90},
        {"_string": "NOT " * 249 + "a AND"},
        {"_string": "x" * 1_001},
        {"_string": "a " * 300},
        {"_gt": {"keyword": "a"}},
        {"keyword": 7},
    ],
)
async def test_an_invalid_text_query_is_refused_with_a_sentence(api: ObjectApi, query: Any) -> None:
    assert (await found(api, query, 400)).endswith(".")


async def test_an_id_matches_as_a_whole(api: ObjectApi) -> None:
    assert await found(api, {"_string": "_id:~1"}) == "a"
    assert await found(api, {"_string": "_id:~"}) == ""


async def test_keyword_can_not_be_sorted_by_or_used_for_actions(api: ObjectApi) -> None:
    await api.post("/api/alert/_search", {"sort": ["-keyword"]}, 400)
    with pytest.raises(ResponderBotError, match="There is no field"):
        parse_query({"_string": "a"}, "action", Conditions())


@given(st.text(alphabet='ab:()"\\!-+*&| \tANDORT[{~^.', max_size=40))
async def test_any_text_is_a_query_or_refused(text: str) -> None:
    try:
        parse_query({"_string": text}, "alert", Conditions())
    except ResponderBotError as error:
        assert error.code == "bad_request"
