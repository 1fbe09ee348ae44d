"""Paths into a body: jmespath, held to names, indexes, `[]`, `||` and `@`, so that none of them computes anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jmespath.exceptions import JMESPathError
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

from core.common.words import spaced

PATH_LIMIT_CHARS = 500
LOOKED_AT_LIMIT = 500_000
"""Values that all paths may look at in one body: some 300 ms."""

_ALLOWED = frozenset(
    ("field", "subexpression", "index", "index_expression", "projection", "identity", "current", "or_expression")
)


class LookedAtTooMuchError(Exception):
    """The paths looked at more values of a body than they may."""


@dataclass(frozen=True)
class Path:
    """A path, and its parsed form."""

    text: str
    tree: Any
    plain: tuple[tuple[str, ...], ...] = ()
    """The names of each alternative, if it is made of nothing but names."""

    @cached_property
    def names(self) -> int:
        """How many values a plain path looks at."""
        return sum(map(len, self.plain))

    @cached_property
    def label(self) -> str:
        """The last two names of its first alternative as words, such as `agent name`."""
        return words(" ".join(self.alternatives[0].split(".")[-2:])).lower()

    @property
    def alternatives(self) -> list[str]:
        """The names of each alternative, joined by dots."""
        return [".".join(_names(tree)) for tree in _alternatives(self.tree)]


def words(name: str) -> str:
    """A name such as `maliciousIPAddress` as words: `malicious IP address`."""
    return " ".join(word if word.isupper() else word.lower() for word in spaced(name).split())


def parse(text: str) -> Path:
    """The path of a text. Raises ValueError with what is wrong with it."""
    if not text or len(text) > PATH_LIMIT_CHARS:
        raise ValueError(f"a path has 1 to {PATH_LIMIT_CHARS} characters")
    try:
        tree = Parser().parse(text).parsed
    except (JMESPathError, RecursionError) as error:
        raise ValueError(f"{text!r} is no path, such as rule.name or events[0].host") from error
    _check(tree, text)
    alternatives = list(_alternatives(tree))
    is_plain = all(_is_plain(node) for node in alternatives)
    return Path(text, tree, tuple(tuple(_names(node)) for node in alternatives) if is_plain else ())


def _check(node: Any, text: str) -> None:
    kind, children = node["type"], node["children"]
    # Of what makes lists, only `[]`: it is the only one that begins with a flatten.
    if kind == "projection" and children[0]["type"] == "flatten":
        children = [*children[0]["children"], children[1]]
    elif kind == "projection" or kind not in _ALLOWED:
        raise ValueError(f"{text!r} has more than names, indexes such as [0], [], || and @")
    for child in children:
        _check(child, text)


def _alternatives(node: Any) -> Iterator[Any]:
    if node["type"] == "or_expression":
        for child in node["children"]:
            yield from _alternatives(child)
    else:
        yield node


def _is_plain(node: Any) -> bool:
    return node["type"] == "field" or (node["type"] == "subexpression" and all(map(_is_plain, node["children"])))


def _names(node: Any) -> Iterator[str]:
    if node["type"] == "field":
        yield node["value"]
    for child in node["children"]:
        yield from _names(child)


class Reader(TreeInterpreter):
    """Reads paths of one body, and counts what they look at."""

    def __init__(self) -> None:
        super().__init__()
        self._left = LOOKED_AT_LIMIT

    def get(self, path: Path, value: Any) -> Any:
        """What is at the path; None if nothing is. Raises LookedAtTooMuchError."""
        if not path.plain:
            return self.visit(path.tree, value)
        self._count(path.names)
        found = None
        for names in path.plain:  # most paths, and several times quicker
            found = value
            for name in names:
                found = found.get(name) if isinstance(found, dict) else None
            if found or (found == 0 and found is not False):  # what `||` takes
                break
        return found

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._count(1)
        return super().visit(node, *args, **kwargs)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        items = super().visit_flatten(node, value)
        self._count(len(items or ()))
        return items

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise LookedAtTooMuchError


def values_at(reader: Reader, paths: tuple[Path, ...], value: Any) -> list[Any]:
    """All scalars at these paths, lists flattened; objects are left out."""
    found: list[Any] = []
    for path in paths:
        at = reader.get(path, value)
        items = at if isinstance(at, list) else [at]
        found += [item for item in items if isinstance(item, str | int | float) and item != ""]
    return found
