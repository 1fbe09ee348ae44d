"""The query language of `_search`: a client's JSON becomes a checked condition for the store.

The operators are `_and _or _not _in _between _gt _gte _lt _lte _like _match _string _contains _parent
_child _id _type _any`, `{"_field", "_value"}` and the short `{"field": value}`. Field names come from
fields.py, values are bound parameters, and size and depth are limited, so that nothing a client writes becomes SQL.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.common.database import Database
from core.common.errors import bad_request
from core.field_types import MAX_SORTS
from core.models import SearchInput
from core.records import fields, query_string
from core.records.fields import FieldPath, field_path, field_value, kind_of, shown
from core.store import search as stored
from core.store.search import (
    All,
    Any_,
    Child,
    Compare,
    Condition,
    Everything,
    Has,
    Like,
    Not,
    OneOf,
    Operator,
    Parent,
    Sort,
    Window,
)

MAX_DEPTH = 12  # deeper queries make no sense to people, and the depth of SQLite's parser is limited
MAX_STEPS = 4  # by _parent and _child; each counts as several levels for that parser
MAX_CRITERIA = 200
MAX_VALUES = 1_000
MAX_POSITION = 10**9
DEFAULT_RANGE = "0-10"  # as in TheHive

_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})", re.ASCII)
_OPERATORS: Mapping[str, Operator] = {"_eq": "=", "_gt": ">", "_gte": ">=", "_lt": "<", "_lte": "<="}


EVERYTHING = Window(0, None)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: the JSON texts in the range, and the number of all matches (`X-Total`)."""

    docs: list[str]
    total: int

    @property
    def json(self) -> str:
        return "[" + ",".join(self.docs) + "]"


async def search(
    database: Database, kind: str, request: SearchInput, shorten: Callable[[str], str] | None = None
) -> SearchResult:
    """Run a search; `shorten` cuts a document if the answer gets too long.

    Raises ResponderBotError("bad_request") with what is wrong with the query, or if the answer is over its limit.
    """
    condition = parse_query(request.query or {}, kind)
    sorts, window = parse_sort(request.sort, kind), parse_range(request.range)
    docs, total = await stored.page(database, kind, condition, sorts, window, shorten)
    return SearchResult(docs, total)


def parse_query(query: Any, kind: str) -> Condition:
    """The condition of a client's query. Raises ResponderBotError("bad_request")."""
    return _QueryParser().parse(query, kind, 0)


def parse_range(text: str | None) -> Window:
    """The window of a range: `all`, or `from-to` without `to` itself. Raises ResponderBotError("bad_request")."""
    text = text or DEFAULT_RANGE
    if text == "all":
        return EVERYTHING
    match = _RANGE.fullmatch(text)
    start, end = (int(match[1]), int(match[2])) if match else (1, 0)
    if start > end or end > MAX_POSITION:
        raise bad_request("`range` is `all`, or two numbers such as 0-10, the second not smaller than the first")
    return Window(start, end - start)


def parse_sort(sort: str | list[str] | None, kind: str) -> list[Sort]:
    """The sort keys of fields with `+`, `-` or no sign before them. Raises ResponderBotError("bad_request")."""
    names = sort.split(",", MAX_SORTS) if isinstance(sort, str) else sort or []
    if len(names) > MAX_SORTS:
        raise bad_request(f"`sort` takes at most {MAX_SORTS} fields")
    # A `+` that isn't encoded in a URL arrives as a blank.
    return [_sort(name.strip(), kind) for name in names if name.strip()]


class _QueryParser:
    """Parses one query, and counts its criteria and steps, which are limited for the query as a whole."""

    def __init__(self) -> None:
        self._criteria = 0
        self._steps = 0

    def parse(self, query: Any, kind: str, depth: int) -> Condition:
        self._criteria += 1
        if depth > MAX_DEPTH or self._criteria > MAX_CRITERIA:
            raise bad_request(f"The query is too large; at most {MAX_CRITERIA} criteria, nested {MAX_DEPTH} deep")
        query = _mapping("A criterion", query)
        if "_field" in query:
            return _compare(field_path(query["_field"], kind), "=", _required(query, "_value", "_field"))
        parts = [self._criterion(key, value, kind, depth) for key, value in query.items()]
        if not parts:
            return Everything()
        return parts[0] if len(parts) == 1 else All(parts)

    def _criterion(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if key in ("_and", "_or"):
            return self._combination(key, value, kind, depth)
        if key == "_not":
            return Not(self.parse(value, kind, depth + 1))
        if key in ("_parent", "_child"):
            return self._relative(key, value, kind, depth)
        if key == "_string":
            return self.parse(query_string.parse(value), kind, depth + 1)
        if key in _LEAVES:
            return _LEAVES[key](value, kind)
        if key.startswith("_") and key != "_id":
            raise bad_request(f"There is no operator {shown(key)}; there are {', '.join(OPERATORS)}")
        return _compare(field_path(key, kind), "=", value)

    def _combination(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if not isinstance(value, list):
            raise bad_request(f"{key} takes a list of criteria")
        parts = [self.parse(item, kind, depth + 1) for item in value]
        if key == "_and":
            return All(parts) if parts else Everything()
        return Any_(parts) if parts else Not(Everything())

    def _relative(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        query = _mapping(key, value)
        relative = kind_of(query.get("_type"))
        wanted = {"_id": query["_id"]} if "_id" in query else query.get("_query") or {}
        if key == "_child":
            if kind not in fields.PARENTS.get(relative, ()):
                raise bad_request(f"A {kind} has no child of the type {relative}")
            self._step()
            return Child(self.parse(wanted, relative, depth + 1), relative)
        return self._ancestor(kind, relative, wanted, depth)

    def _ancestor(self, kind: str, relative: str, wanted: Any, depth: int) -> Condition:
        """A step for each parent: the case of a log is the case of its task."""
        parents = fields.PARENTS.get(kind, ())
        if relative not in parents and len(parents) != 1:
            raise bad_request(f"There is no parent of the type {relative} here")
        self._step()
        if relative in parents:
            return Parent(self.parse(wanted, relative, depth + 1), relative)
        return Parent(self._ancestor(parents[0], relative, wanted, depth + 1), parents[0])

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise bad_request(f"A query takes at most {MAX_STEPS} steps to parents and children")


def _leaf_in(value: Any, kind: str) -> Condition:
    query = _mapping("_in", value)
    path, values = field_path(query.get("_field"), kind), _required(query, "_values", "_in")
    if not isinstance(values, list) or len(values) > MAX_VALUES:
        raise bad_request(f"_in takes a list of at most {MAX_VALUES} `_values`")
    checked = [field_value(path, item) for item in values if item is not None]
    among = OneOf(path, json.dumps(checked))
    return Any_([among, Not(Has(path))]) if None in values else among


def _leaf_between(value: Any, kind: str) -> Condition:
    query = _mapping("_between", value)
    path = field_path(query.get("_field"), kind)
    low, high = _required(query, "_from", "_between"), _required(query, "_to", "_between")
    return All([_compare(path, ">=", low), _compare(path, "<=", high)])


def _leaf_order(operator: str) -> Callable[[Any, str], Condition]:
    def read(value: Any, kind: str) -> Condition:
        name, wanted = _field_and_value(operator, value)
        return _compare(field_path(name, kind), _OPERATORS[operator], wanted)

    return read


def _leaf_ne(value: Any, kind: str) -> Condition:
    name, wanted = _field_and_value("_ne", value)
    return Not(_compare(field_path(name, kind), "=", wanted))


def _leaf_like(operator: str, before: str, after: str) -> Callable[[Any, str], Condition]:
    """A text in which `*` stands for any characters; without one, the whole text must be equal."""

    def read(value: Any, kind: str) -> Condition:
        name, wanted = _field_and_value(operator, value)
        if not isinstance(wanted, str) or len(wanted) > fields.MAX_PATTERN_CHARS:
            raise bad_request(f"{operator} takes a text of at most {fields.MAX_PATTERN_CHARS} characters")
        path = field_path(name, kind)
        if path.column in fields.ID_COLUMNS:
            path = replace(path, column="")  # a pattern is matched with the text of the id
        if path.is_anywhere:
            return _within(path, wanted)
        return Like(path, _pattern(before + wanted + after))

    return read


def _leaf_match(value: Any, kind: str) -> Condition:
    """A text within the field's text; a number, a flag or an id must be equal."""
    name, wanted = _field_and_value("_match", value)
    if not isinstance(wanted, str):
        return _compare(field_path(name, kind), "=", wanted)
    if len(wanted) > fields.MAX_PATTERN_CHARS:
        raise bad_request(f"_match takes a text of at most {fields.MAX_PATTERN_CHARS} characters")
    path = field_path(name, kind)
    if path.check is fields.number or path.check is fields.flag:
        return _compare(path, "=", _literal(wanted))
    if path.column in fields.ID_COLUMNS:
        return _compare(path, "=", wanted)
    return _within(path, wanted)


def _within(path: FieldPath, wanted: str) -> Condition:
    return Like(path, _pattern(f"*{wanted}*"))


def _literal(text: str) -> Any:
    """The number or boolean in a text; any other text unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _leaf_contains(value: Any, kind: str) -> Condition:
    name = value.get("_field") if isinstance(value, Mapping) else value
    path = field_path(name, kind)
    if isinstance(name, str) and name.startswith("customFields."):
        return Has(FieldPath((path.texts[0].rpartition(".")[0],)))  # so that a field whose value is null is found too
    return Has(path)


def _leaf_type(value: Any, kind: str) -> Condition:
    return Everything() if kind_of(value) == kind else Not(Everything())


def _leaf_any(_value: Any, _kind: str) -> Condition:
    return Everything()


_LEAVES: Mapping[str, Callable[[Any, str], Condition]] = {
    "_in": _leaf_in,
    "_between": _leaf_between,
    **{name: _leaf_order(name) for name in _OPERATORS},
    "_ne": _leaf_ne,
    "_like": _leaf_like("_like", "", ""),
    "_wildcard": _leaf_like("_wildcard", "", ""),
    "_startsWith": _leaf_like("_startsWith", "", "*"),
    "_endsWith": _leaf_like("_endsWith", "*", ""),
    "_match": _leaf_match,
    "_contains": _leaf_contains,
    "_has": _leaf_contains,
    "_type": _leaf_type,
    "_any": _leaf_any,
}
OPERATORS = ("_and", "_or", "_not", *_LEAVES, "_string", "_parent", "_child", "_field", "_id")


def _field_and_value(operator: str, value: Any) -> tuple[Any, Any]:
    """`{"_field": f, "_value": v}` or `{f: v}`."""
    query = _mapping(operator, value)
    if "_field" in query:
        return query["_field"], _required(query, "_value", operator)
    if len(query) != 1:
        raise bad_request(f"{operator} takes one field and its value")
    return next(iter(query.items()))


def _compare(path: FieldPath, operator: Operator, value: Any) -> Condition:
    if value is None:
        if operator != "=":
            raise bad_request("null can only be compared for equality")
        return Not(Has(path))
    if path.is_anywhere:
        if operator != "=":
            raise bad_request("keyword can be searched for, but not compared")
        return _within(path, str(fields.text(value)))
    return Compare(path, operator, field_value(path, value))


def _sort(name: str, kind: str) -> Sort:
    path = field_path(name[1:] if name[0] in "+-" else name, kind)
    if path.is_anywhere:
        raise bad_request("keyword can be searched for, but not sorted by")
    return Sort(path, descending=name[0] == "-")


def _pattern(text: str) -> str:
    """A text with `*` as a pattern of LIKE."""
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    return re.sub(r"\*+", "%", escaped)


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise bad_request(f"{what} takes an object, not {shown(value)}")
    return value


def _required(query: Mapping[str, Any], key: str, what: str) -> Any:
    if key not in query:
        raise bad_request(f"{what} needs {key}")
    return query[key]
