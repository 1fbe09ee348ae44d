"""JSON that others wrote, read within bounds: what a responder leaves behind, what a remote engine answers."""

import json
import math
from typing import Any

MAX_NODES = 50_000
"""Values of one document. `json.loads` lets nothing else run meanwhile: so many take it some 20 ms."""

MAX_DEPTH = 100
"""Levels of one document; real ones have less than ten, and whoever walks through it later must be able to."""

INLINE_BYTES = 16 * 1024
"""Up to this size it takes less than a thread does."""


class TooManyValues(ValueError):
    """More values than MAX_NODES."""


def decode_json(raw: bytes | str) -> Any:
    """The value, which can be written as JSON again: real numbers, whole characters, bounded.

    Raises ValueError with the reason, before any object is made where there would be too many.
    """
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if has_more_values(raw, MAX_NODES):
        raise TooManyValues(f"it has more than {MAX_NODES} values")
    text = raw.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_constant=_no_value, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    if _is_deeper(value, MAX_DEPTH):
        raise _too_deep()
    return _whole_characters(value) if "\\ud" in text or "\\uD" in text else value


def has_more_values(raw: bytes, limit: int) -> bool:
    """Whether a JSON document has more values than `limit`, from its text alone; an empty list or object counts twice.

    What is wrong with a text that is no JSON doesn't matter: a parser comes no further than to the first mistake, and
    up to there the count is right.
    """
    if _values(raw) <= limit:
        return False  # even with the signs that stand inside of texts
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * limit + 4:
        return True  # a value has at most a key and a text, each between two quotes
    return _values(b"".join(bare.split(b'"')[::2])) > limit


def _values(raw: bytes) -> int:
    return 1 + sum(raw.count(sign) for sign in (b",", b"[", b"{"))


def _no_value(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_value(text[:40])


def _is_deeper(value: Any, limit: int) -> bool:
    layer = [value]
    for _ in range(limit):
        layer = [inner for item in layer for inner in _inside(item)]
        if not layer:
            return False
    return True


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _whole_characters(value: Any) -> Any:
    """Half of a surrogate pair can be said in JSON, but not be stored as UTF-8: it becomes `?`."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
