"""Every endpoint under hostile and ordinary requests made from its own description: no 500, no answer outside it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from core.models import KINDS
from tests.core.running import running_core

schemathesis = pytest.importorskip("schemathesis", reason="in the group fuzz only")

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(1200)]

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}


INCLUDED = {"/api/event": "documents", "/api/document": "responders"}
RESPONDER = "ResponderBot_CloseAsFalsePositive_1_0"


@dataclass(frozen=True)
class Target:
    url: str
    key: str
    ids: dict[str, str]


class Serving(threading.Thread):
    """A core in a loop of its own: the fuzzer is not asynchronous."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._up = threading.Event()
        self.target = Target("", "", {})

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with running_core(self._folder) as core:
            made: dict[str, str] = {}

            async def make(kind: str, path: str, body: dict[str, Any]) -> None:
                made[kind] = (await core.send("POST", path, body)).json()["id"]

            await make("alert", "/api/alert", ALERT)
            await make("case", "/api/case", {"title": "Look", "description": "here"})
            await make("case_task", f"/api/case/{made['case']}/task", {"title": "Ask"})
            await make("case_task_log", f"/api/case/task/{made['case_task']}/log", {"message": "Asked."})
            await make("case_artifact", f"/api/case/{made['case']}/artifact", {"dataType": "ip", "data": "203.0.113.7"})
            run = {"responderId": RESPONDER, "objectType": "alert", "objectId": made["alert"]}
            await make("action", "/api/connector/engine/action", run)
            self.target = Target(core.url, await core.key("org-admin"), made)
            self._up.set()
            await self._stopping.wait()

    def open(self) -> Target:
        self.start()
        assert self._up.wait(30)
        return self.target

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self.join(30)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    serving = Serving(tmp_path_factory.mktemp("core"))
    yield serving.open()
    serving.close()


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_500_and_no_answer_outside_the_schema(target: Target, mode: str) -> None:
    """POSITIVE: requests as the description wants them; NEGATIVE: requests that break it on purpose."""
    schema = schemathesis.openapi.from_url(f"{target.url}/api/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    failures: list[str] = []
    for operation in operations:
        try:
            _fuzz(operation, target, schemathesis.GenerationMode[mode])
        except Unsatisfiable:
            continue  # nothing in this operation can be broken
        except Exception as failure:
            failures.append(f"{operation.label}: {failure!r} {getattr(failure, '__notes__', '')}")
    assert not failures, "\n".join(failures)


def _fuzz(operation: Any, target: Target, mode: Any) -> None:
    checks = schemathesis.checks
    seen: Counter[int] = Counter()

    @given(operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,  # the same requests each time: a failure in CI is one on the desk
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        _make_deeper(case, target.ids, seen.total())
        response = case.call(headers={"Authorization": f"Bearer {target.key}"})
        seen[response.status_code] += 1
        case.validate_response(
            response,
            checks=[
                checks.not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_headers_conformance,
                checks.response_schema_conformance,
            ],
        )

    run()
    print(f"{mode.value} {operation.label}: {dict(sorted(seen.items()))}")  # noqa: T201 - shown with `pytest -s`


def _make_deeper(case: Any, ids: dict[str, str], turn: int) -> None:
    """Let most requests get past the first checks: real ids and kinds, nobody to act for; and no long polls."""
    if isinstance(case.query, dict):
        case.query.pop("wait", None)
        if case.operation.path in INCLUDED and turn % 3:
            case.query["include"] = INCLUDED[case.operation.path]
        if "ids" in case.query and turn % 3:
            case.query["ids"] = ",".join(ids.values())
    if turn % 8:
        for name in [name for name in case.headers or {} if name.lower() == "x-on-behalf-of"]:
            del case.headers[name]
    if isinstance(case.path_parameters, dict) and turn % 3:
        kind = KINDS[turn % len(KINDS)]
        known = {"kind": kind, "id": ids[kind] if "kind" in case.path_parameters else _known(case.operation.path, ids)}
        case.path_parameters.update({name: value for name, value in known.items() if name in case.path_parameters})


def _known(path: str, ids: dict[str, str]) -> str:
    """An id that exists, so that not every request ends as a 404."""
    for part, kind in (("/action/", "action"), ("/log/", "case_task_log"), ("/artifact/", "case_artifact")):
        if part in path:
            return ids[kind]
    for part, kind in (("/case/task/", "case_task"), ("/case/", "case")):
        if part in path:
            return ids[kind]
    return ids["alert"]
