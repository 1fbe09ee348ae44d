"""Texts that are made to be slow to compare with `[protect]`; core does nothing else meanwhile."""

import time

import pytest

from core.protection import ProtectedTargets
from core.protection.parsing import MAX_CHARS

pytestmark = pytest.mark.hostile

BOUND_S = 1.0  # each takes some milliseconds, unless a search starts over at each character


@pytest.mark.parametrize(
    "text",
    [
        "\\",
        ";",
        "<",
        "[,",
        "a ",
        "[ ",
        "a[",
        "a\\ ",
        "a - ",
        "%25",
        "1.",
        "http:",
        "1.1.1.1 ",
        "é ",
        "http://a/ ",
        "a@b ",
        "ﷺ",
    ],
)
def test_a_long_text_of_one_kind_takes_no_time(text: str) -> None:
    protected = ProtectedTargets(["10.0.0.0/8", "dc01", "*.corp.example", "https://x.example/a"]).current()
    for long in ((text * MAX_CHARS)[:MAX_CHARS], (text[0] + text[-1] * MAX_CHARS)[:MAX_CHARS]):
        before = time.process_time()
        protected.entry_for(long)
        assert time.process_time() - before < BOUND_S
