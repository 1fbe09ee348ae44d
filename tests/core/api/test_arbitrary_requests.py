"""Arbitrary requests that create, change or find objects get valid answers and never a 500."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models import AlertInput, CaseInput, CaseTaskInput, CaseTemplateInput, Input, TaskInput
from core.records.search import OPERATORS
from tests.core.object_api import ALERT, ObjectApi, object_api

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=8) | st.sampled_from(["x", "~1", "template", "0-10", "all", "", "2"])
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.integers(0, 4)
NAMES = sorted(
    {
        field.alias or name
        for model in (AlertInput, CaseInput, CaseTaskInput, CaseTemplateInput, TaskInput)
        for name, field in model.model_fields.items()
    }
    | {"string", "integer", "float", "boolean", "date", "order", "_id", "dataType", "data", "message"}
)
QUERY_NAMES = [*OPERATORS, "_value", "_values", "_from", "_to", "_query", "_type", "title", "tags", "customFields.a"]


def json_of(names: list[str]) -> st.SearchStrategy[Any]:
    """Any JSON, with keys that mean something more often than not."""
    keys = st.sampled_from(names) | TEXTS
    return st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6), max_leaves=20
    )


def body_of(model: type[Input]) -> st.SearchStrategy[Any]:
    """Any JSON, or an object of the model's fields with any values."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    values = json_of(NAMES)
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))
    nearly = st.builds(lambda odd: {**ALERT, "name": "n", "message": "m", "dataType": "ip", "data": "d", **odd}, known)
    return values | known | nearly


@dataclass
class Server:
    """A core with one of each object, for the many examples of a test."""

    runner: asyncio.Runner
    api: ObjectApi

    def send(self, method: str, path: str, body: Any) -> Any:
        return self.runner.run(self.api.send(method, path, json=body))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("core")
    with asyncio.Runner() as runner:
        opened = object_api(folder)
        api = runner.run(opened.__aenter__())
        for path, body in [
            ("/api/alert", ALERT),
            ("/api/case", {"title": "t", "description": "d"}),
            ("/api/case/~2/task", {"title": "t"}),
            ("/api/case/template", {"name": "template"}),
        ]:
            runner.run(api.post(path, body))
        yield Server(runner, api)
        runner.run(opened.__aexit__(None, None, None))


def check(answer: Any) -> None:
    """The answer is a success, or says what is wrong; wrong fields are named."""
    assert answer.status_code in (200, 201, 400, 404), answer.text
    if answer.status_code >= 400:
        error = answer.json()
        assert error["message"]
        if error["type"] == "AttributeCheckingError":
            assert all(field["name"] and field["type"] for field in error["errors"])
            assert error["errors"]


@given(body=body_of(AlertInput))
def test_any_alert(server: Server, body: Any) -> None:
    check(server.send("POST", "/api/alert", body))
    check(server.send("PATCH", "/api/alert/~1", body))


@given(body=body_of(CaseInput))
def test_any_case(server: Server, body: Any) -> None:
    check(server.send("POST", "/api/case", body))
    check(server.send("PATCH", "/api/case/~2", body))


@given(body=body_of(CaseTaskInput))
def test_any_task_log_and_artifact(server: Server, body: Any) -> None:
    check(server.send("POST", "/api/case/~2/task", body))
    check(server.send("PATCH", "/api/case/task/~3", body))
    check(server.send("POST", "/api/case/task/~3/log", body))
    check(server.send("POST", "/api/case/~2/artifact", body))


@given(body=body_of(CaseTemplateInput))
def test_any_template(server: Server, body: Any) -> None:
    check(server.send("POST", "/api/case/template", body))
    check(server.send("POST", "/api/alert/~1/createCase", body))


@given(query=json_of(QUERY_NAMES), odd=json_of(["query", "range", "sort"]))
def test_any_search(server: Server, query: Any, odd: Any) -> None:
    for path in ("/api/alert", "/api/case", "/api/case/task", "/api/case/task/log", "/api/case/template"):
        check(server.send("POST", f"{path}/_search", {"query": query}))
        check(server.send("POST", f"{path}/_search", odd))


@given(text=st.text(min_size=1, max_size=30), sort=TEXTS)
def test_any_address(server: Server, text: str, sort: str) -> None:
    segment = quote(text, safe="", errors="ignore")
    for path in ("alert", "case", "case/task", "case/task/log", "case/artifact", "case/template"):
        check(server.runner.run(server.api.send("GET", f"/api/{path}/{segment}")))
    check(server.runner.run(server.api.send("POST", "/api/alert/_search", {}, params={"range": text, "sort": sort})))
