"""Structured logs: one JSON line per event, without secrets, warnings of libraries included."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from core.common import logs
from core.common.database import Transaction
from core.store.database import sequences
from tests import stores


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged at `info`; afterwards logging is as it was."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    to = io.StringIO()
    logs.configure("info", to=to)
    yield to
    structlog.reset_defaults()
    root.handlers, root.level = before


def test_an_event_is_one_line_of_json(lines: io.StringIO) -> None:
    log = structlog.get_logger("core.api").bind()
    log.debug("not at this level")
    log.info("answered", request_id="r1", text="two\nlines ü")
    found = json.loads(lines.getvalue())
    assert lines.getvalue().count("\n") == 1
    assert found.pop("timestamp").endswith("Z")
    assert found == {"event": "answered", "level": "info", "request_id": "r1", "text": "two\nlines ü"}


def test_a_secret_that_somebody_logs_says_nothing(lines: io.StringIO) -> None:
    structlog.get_logger().warning("odd", Authorization="Bearer abc", api_key="abc", bot_token="abc", key_name="abc")
    found = json.loads(lines.getvalue())
    assert (found["Authorization"], found["api_key"], found["bot_token"]) == ("REMOVED",) * 3


def test_a_warning_is_written_once_while_it_says_the_same(lines: io.StringIO) -> None:
    """Workers that try again each second would fill a disk while a database is away."""
    log = structlog.get_logger()
    for _ in range(3):
        log.warning("work_failed", work="undo", reason="The store can't be reached.")
        log.warning("work_failed", work="checks", reason="The store can't be reached.")
        log.error("odd")
    assert [json.loads(line).get("work", "") for line in lines.getvalue().splitlines()] == [
        *("undo", "checks", ""),
        *("", ""),
    ]


def test_a_warning_that_says_the_same_comes_again_after_a_minute() -> None:
    now = [0.0]
    repeats = logs.Repeats(lambda: now[0])
    written = []
    for second in range(150):
        now[0] = second
        with suppress(structlog.DropEvent):
            repeats(None, "warning", {"event": "lease_failed"})
            written.append(second)
    assert written == [0, 60, 120]


def test_an_exception_is_told_without_the_values_of_variables(lines: io.StringIO) -> None:
    password = "hunter" + "2"
    try:
        raise ValueError(f"{len(password)} characters")
    except ValueError:
        structlog.get_logger().exception("unforeseen")
    found = json.loads(lines.getvalue())
    assert "ValueError: 7 characters" in found["exception"]
    assert password not in lines.getvalue()


def test_a_library_s_warning_has_the_same_form(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("not wanted")
    logging.getLogger("uvicorn.error").warning("odd %s", "thing")
    found = json.loads(lines.getvalue())
    assert (found["event"], found["level"]) == ("odd thing", "warning")


def test_a_long_value_is_cut(lines: io.StringIO) -> None:
    structlog.get_logger().warning("foreign", reason="x" * 100_000)
    assert json.loads(lines.getvalue())["reason"] == "x" * 1_000 + "..."


async def test_what_is_noted_in_a_transaction_is_logged_once_if_it_is_committed(
    lines: io.StringIO, tmp_path: Path
) -> None:
    async with stores.opened(tmp_path / "core.db") as database:

        def succeed(tx: Transaction) -> None:
            sequences.touch(tx)
            tx.notes.append(("done", {"request": logs.request_id()}))

        def fail(tx: Transaction) -> None:
            sequences.touch(tx)
            tx.notes.append(("never", {}))
            raise ValueError

        logs.set_request_id("r1")
        succeeding, failing = database.transaction(succeed), database.transaction(fail)  # in one commit
        assert [type(found) for found in await asyncio.gather(succeeding, failing, return_exceptions=True)] == [
            type(None),
            ValueError,
        ]
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(line["event"], line["request"], line["request_id"]) for line in found] == [("done", "r1", "r1")]
