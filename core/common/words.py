"""Names of programs and inputs: as people read them, and what they tell."""

import re

SECRET_WORDS = ("key", "password", "pwd", "secret", "token")
"""What has one of these in its name holds a secret."""

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-\s]+")


def spaced(name: str) -> str:
    """`ExtractIndicators` and `extract_indicators` in words: `Extract Indicators`."""
    words = " ".join(word for word in _WORD_STARTS.split(name) if word)
    return words[:1].upper() + words[1:]
