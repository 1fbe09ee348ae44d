"""What belongs together, by what it has in common."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """By the first of each pair the second of all that have it, in their order."""
    found = dict[K, list[V]]()
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found
