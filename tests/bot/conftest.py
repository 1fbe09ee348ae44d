"""What holds in each test of the bot."""

from collections.abc import Iterator
from typing import Any

import pytest

from bot.slack_emulator import delivery
from tests.bot.decisions import problems


@pytest.fixture(autouse=True)
def decisions_name_what_they_decide() -> Iterator[None]:
    """Fail a test in which a payload decides on a run and doesn't name target, time and requester."""
    found: list[str] = []

    def judge(direction: str, what: str, body: Any) -> None:
        if direction == "from_app":
            found.extend(problems(what, body))

    delivery.OBSERVERS.append(judge)
    yield
    delivery.OBSERVERS.remove(judge)
    assert not found
