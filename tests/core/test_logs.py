"""Structured logs: one JSON line per event, without secrets, warnings of libraries included."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from core.common import logs


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
