"""Whatever a server answers, `run` ends with a report that can be stored, and never runs a responder twice."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.common.decoding import has_more_values
from core.common.tasks import Backoff
from core.engines.base import Report
from core.engines.cortex import CortexEngine
from core.engines.cortex.http import read_json
from tests.core.engines.cortex.conftest import JOB, QUICK, ProgressLog
from tests.fake_cortex import FakeCortex, Operation, Reply

# Short pauses only: many answers are asked for again until the engine is believed to be broken.
HASTY = replace(
    QUICK, backoff=Backoff(0.0001, 0.0001), searches=2, quick_poll_s=0.0001, waiting_limit_s=0.05, start_s=0.01
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
REPORTS = JSON | st.fixed_dictionaries(
    {},
    optional={
        key: JSON | st.just(usual)
        for key, usual in {
            "success": True, "full": {}, "summary": {}, "artifacts": [], "operations": [],
            "errorMessage": "x", "input": '{"config": {"key": "x"}}',
        }.items()
    },
)  # fmt: skip
JOBS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "id": JSON | st.just("AXj1"),
        "_id": JSON,
        "status": st.sampled_from(["Waiting", "InProgress", "Success", "Failure", "Deleted"]) | JSON,
        "report": REPORTS,
        "startDate": JSON,
        "label": st.just("~12-5e") | JSON,
        "data": JSON | st.fixed_dictionaries({"_id": JSON}),
        "workerId": JSON | st.just(JOB.responder_id),
        "type": st.just("akka.pattern.AskTimeoutException") | JSON,
    },
)
STATUSES = st.sampled_from([200, 200, 200, 201, 204, 207, 304, 400, 404, 408, 409, 429, 500, 502, 520])
ANSWERS = st.tuples(STATUSES, JOBS | st.lists(JOBS, max_size=2))


class SharedServer:
    """One server, one engine and one loop for all examples of a property."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.cortex = FakeCortex()
        self.runner.run(self.cortex.start())
        self.engine = CortexEngine(
            "soar",
            url=self.cortex.url,
            api_key=self.cortex.api_key,
            timing=HASTY,
            timeout_s=30,
            deadline_minutes=0.0005,
        )

    def run(self, answers: dict[Operation, Any], **more: Any) -> Report:
        for operation, (status, body) in answers.items():
            self.cortex.always(operation, Reply(status, raw=json.dumps(body).encode()))
        self.cortex.calls.clear()
        return self.runner.run(self.engine.run(replace(JOB, **more), ProgressLog()))

    def close(self) -> None:
        self.runner.run(self.engine.close())
        self.runner.run(self.cortex.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[SharedServer]:
    made = SharedServer()
    yield made
    made.close()


def storable(report: Report) -> bool:
    json.dumps(asdict(report), ensure_ascii=False, allow_nan=False).encode()
    return report.success or bool(report.message)


@settings(max_examples=60)
@given(start=ANSWERS, search=ANSWERS, poll=ANSWERS)
def test_no_answer_makes_a_new_run_raise_or_run_twice(bench: SharedServer, start: Any, search: Any, poll: Any) -> None:
    assert storable(bench.run({"run": start, "search_jobs": search, "wait": poll}))
    assert bench.cortex.count("run") == 1 or start[0] == 429


@settings(max_examples=60)
@given(poll=ANSWERS)
def test_no_answer_makes_following_raise(bench: SharedServer, poll: Any) -> None:
    assert storable(bench.run({"wait": poll}, resumed=True, engine_job_id="AXj1"))
    assert bench.cortex.count("run") == 0


@given(raw=st.binary(max_size=40))
def test_no_bytes_make_following_raise(bench: SharedServer, raw: bytes) -> None:
    bench.cortex.always("wait", Reply(raw=raw))
    bench.cortex.calls.clear()
    report = bench.runner.run(bench.engine.run(replace(JOB, resumed=True, engine_job_id="AXj1"), ProgressLog()))
    assert not report.success


@given(JSON)
def test_json_that_is_read_can_be_written_again(value: Any) -> None:
    try:
        read = read_json(json.dumps(value))
    except ValueError as error:
        assert str(error) == "it is not usable JSON"
    else:
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert read_json(r'{"a": "x\ud800y", "b": "\ud83d\ude00"}') == {"a": "x?y", "b": "😀"}


@pytest.mark.parametrize("raw", [b"\xff", b"NaN", b"-Infinity", b"1e999", b"[" * 101 + b"]" * 101, b"9" * 5000, b""])
def test_json_that_others_cannot_read_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not usable JSON"):
        read_json(raw)


def test_json_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    for raw in (b"[" + b"{}," * 60_000 + b"1]", b"[" + b'"",' * 60_000 + b"1]", b'{"' + b'a":1,"' * 60_000 + b'":1}'):
        with pytest.raises(ValueError, match="it has more than 50000 values"):
            read_json(raw)


@given(JSON, st.booleans())
def test_punctuation_inside_strings_does_not_count_as_values(value: Any, ascii_only: bool) -> None:
    text = json.dumps({"said": ',[{"\\",' * 20_000, "value": value}, ensure_ascii=ascii_only)
    assert not has_more_values(text.encode("utf-8", "surrogatepass"), 2 * values_in(value) + 3)
    assert has_more_values(text.encode("utf-8", "surrogatepass"), max(0, values_in(value) - 1))


def values_in(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(values_in(item) for item in inside)
