"""Names and numbers as people read them, and whether a name is that of a secret."""

import re
from collections.abc import Iterable, Sequence

SECRET_WORDS = ("key", "password", "pwd", "secret", "token")
"""A value holds a secret if its name contains one of these."""

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")


def spaced(name: str) -> str:
    """`ExtractIndicators` and `extract_indicators` in words: `Extract Indicators`."""
    text = " ".join(word for word in _WORD_STARTS.split(name) if word)
    return text[:1].upper() + text[1:]


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 task`, `3 tasks`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`; `nobody` for none."""
    *others, last = names or ("nobody",)
    return f"{', '.join(others)} and {last}" if others else last


def some_of(texts: Sequence[str], most: int, total: int = 0) -> str:
    """`a, b and 3 more`: the first `most`, and how many others there are; of `total` if that is more than these.

    One other is named too: that takes no more room.
    """
    most += total <= len(texts) == most + 1
    left = max(total, len(texts)) - len(texts[:most])
    return ", ".join(texts[:most]) + (f" and {left} more" if left else "")
