"""Names of programs and parameters: as people read them, and whether they name a secret."""

import re

SECRET_WORDS = ("key", "password", "pwd", "secret", "token")
"""A value holds a secret if its name contains one of these."""

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")


def spaced(name: str) -> str:
    """`ExtractIndicators` and `extract_indicators` in words: `Extract Indicators`."""
    text = " ".join(word for word in _WORD_STARTS.split(name) if word)
    return text[:1].upper() + text[1:]
