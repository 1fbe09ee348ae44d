"""Arbitrary requests of version 1, as JSON, queries or forms, get valid answers and never a 500."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models import AlertInput, AlertsUpdate, CaseInput, MergeInput
from tests.core.api.test_arbitrary_requests import NAMES, QUERY_NAMES, TEXTS, body_of, check, json_of
from tests.core.object_api import ALERT
from tests.core.running import RunningCore, running_core

STEPS = (
    *("listAlert", "getAlert", "listCase", "getCase", "listTask", "listAction", "listUser", "listCustomField"),
    *("filter", "sort", "page", "count", "observables", "tasks", "logs", "alerts", "actions", "comments"),
)


@dataclass
class Server:
    """A core with one of each object, for the many examples of a test."""

    runner: asyncio.Runner
    core: RunningCore

    def send(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        return self.runner.run(self.core.send(method, path, body, profile="org-admin", **options))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with asyncio.Runner() as runner:
        opened = running_core(tmp_path_factory.mktemp("core"))
        here = Server(runner, runner.run(opened.__aenter__()))
        for path, body in [
            ("/api/alert", ALERT),
            ("/api/case", {"title": "t", "description": "d"}),
            ("/api/case/~2/task", {"title": "t"}),
        ]:
            here.send("POST", path, body)
        yield here
        runner.run(opened.__aexit__(None, None, None))


FIELDS = st.lists(
    st.fixed_dictionaries({}, optional={"name": TEXTS, "value": json_of(NAMES), "order": json_of(NAMES)})
    | json_of(NAMES),
    max_size=3,
)
KEYED = st.dictionaries(
    st.sampled_from(["customFields.a", "customFields.a.string", "customFields.", "customFields.a."])
    | TEXTS.map("customFields.{}".format),
    json_of(NAMES),
    max_size=3,
)


@pytest.mark.slow
@given(body=body_of(AlertInput), fields=FIELDS, keyed=KEYED)
def test_any_alert_of_version_1(server: Server, body: Any, fields: Any, keyed: Any) -> None:
    check(server.send("POST", "/api/v1/alert", body))
    check(server.send("POST", "/api/v1/alert", {**ALERT, "sourceRef": "f", "customFields": fields}))
    for version in ("", "/v1"):
        check(server.send("PATCH", f"/api{version}/alert/~1", {"customFields": fields, **keyed}))
        check(server.send("PATCH", f"/api{version}/alert/~1", keyed))
    check(server.send("GET", "/api/v1/alert/~1"))
    check(server.send("GET", "/api/customField"))


@pytest.mark.slow
@given(body=body_of(CaseInput), several=body_of(AlertsUpdate), merge=body_of(MergeInput))
def test_any_case_and_any_several(server: Server, body: Any, several: Any, merge: Any) -> None:
    check(server.send("POST", "/api/v1/case", body))
    check(server.send("PATCH", "/api/v1/case/~2", body))
    check(server.send("PATCH", "/api/alert/_bulk", several))
    check(server.send("POST", "/api/v1/alert/merge/_bulk", merge))
    check(server.send("POST", "/api/v1/case/~2/observable", body))


STEP = st.builds(
    lambda name, more: {**more, "_name": name},
    st.sampled_from(STEPS) | TEXTS,
    st.fixed_dictionaries(
        {},
        optional={
            "idOrName": st.sampled_from(["~1", "~2", "~3"]) | json_of(NAMES),
            "from": st.integers(-1, 3) | json_of(NAMES),
            "to": st.integers(0, 9) | json_of(NAMES),
            "_fields": st.lists(
                st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["asc", "desc"])) | json_of(NAMES), max_size=3
            ),
            "_and": json_of(QUERY_NAMES),
            "_field": TEXTS,
            "_value": json_of(NAMES),
        },
    ),
)


@given(steps=st.lists(STEP, max_size=4), begin=st.sampled_from(STEPS[:8]), odd=json_of(["query", "_name"]))
def test_any_query(server: Server, steps: Any, begin: str, odd: Any) -> None:
    check(server.send("POST", "/api/v1/query", {"query": steps}))
    check(server.send("POST", "/api/v1/query", {"query": [{"_name": begin, "idOrName": "~1"}, *steps]}))
    check(server.send("POST", "/api/v1/query", odd))


HEADS = st.sampled_from(
    [
        'Content-Disposition: form-data; name="_json"',
        'Content-Disposition: form-data; name="a"; filename="a"',
        "content-disposition: form-data; name=attachment; filename*=utf-8''%ff%00",
        "Content-Type: text/plain",
    ]
) | st.text(max_size=40)
PARTS = st.lists(
    st.tuples(
        st.lists(HEADS, max_size=3),
        st.binary(max_size=20) | json_of([*NAMES, "attachment"]).map(lambda value: json.dumps(value).encode()),
    ),
    max_size=4,
)


@given(parts=PARTS, end=st.sampled_from([b"--b--", b"--b--\r\n", b"", b"--b"]))
def test_any_form(server: Server, parts: Any, end: bytes) -> None:
    pieces = [
        b"--b\r\n" + "\r\n".join(heads).encode("utf-8", "replace") + b"\r\n\r\n" + value + b"\r\n"
        for heads, value in parts
    ]
    for path in ("/api/alert", "/api/alert/~1/artifact"):
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        check(server.send("POST", path, content=b"".join(pieces) + end, headers=headers))
