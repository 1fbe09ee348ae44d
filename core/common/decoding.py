"""Untrusted JSON within bounds: bodies of requests, the output of a responder, the answers of a remote engine."""

import json
import math
from collections.abc import Mapping
from typing import Any

MAX_NODES = 50_000
"""Values in one document. `json.loads` blocks the event loop, for this many values some 20 ms."""

VALUES_LIMIT = 30_000
"""Likewise in a body, which is also validated, in 10 to 20 ms."""

MAX_DEPTH = 100
"""Nesting levels in one document. Real ones have less than ten; recursive functions must be able to walk them all."""

INLINE_BYTES = 16 * 1024
"""Documents up to this size are parsed faster than a thread is started."""


class TooManyValues(ValueError):
    """The document has more than MAX_NODES values."""


def decode_json(raw: bytes | str) -> Any:
    """Parse a document that can be written as JSON again: finite numbers, no lone surrogates, bounded.

    Raises ValueError with the reason; the number of values is checked before any object is created.
    """
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if has_more_values(raw, MAX_NODES):
        raise TooManyValues(f"it has more than {MAX_NODES} values")
    text = raw.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_constant=_reject_constant, parse_float=_finite_float)
    except RecursionError:
        raise _too_deep() from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise _too_deep()
    if "\\ud" not in text and "\\uD" not in text:
        return value
    # A lone surrogate is valid in JSON but can't be stored as UTF-8: it becomes `?`.
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def has_more_values(raw: bytes, limit: int) -> bool:
    """Whether a JSON document has more than `limit` values, found without decoding it.

    Each step is one pass in C, as this runs on the event loop before anything else is checked. An empty list or object
    counts twice. For text that is not JSON the count is right up to the first syntax error, where the parser stops.
    """
    if _count_values(raw) <= limit:
        return False  # even counting the characters inside strings
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * limit + 4:
        return True  # a value has at most a key and a string, with two quotes each
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    return _count_values(outside_strings) > limit


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object unchanged; an empty one instead of any other value."""
    return value if isinstance(value, Mapping) else {}


def _count_values(raw: bytes) -> int:
    return 1 + sum(raw.count(sign) for sign in (b",", b"[", b"{"))


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _finite_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_constant(text[:40])


def _is_deeper(value: Any, limit: int) -> bool:
    layer = [value]
    for _ in range(limit):
        layer = [child for item in layer for child in _children(item)]
        if not layer:
            return False
    return True


def _children(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
