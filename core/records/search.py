"""The query language of `_search`: a client's JSON, checked, as a condition for the store.

The operators are `_and _or _not _in _between _gt _gte _lt _lte _like _match _string _contains _parent
_child _id _type _any`, `{"_field", "_value"}` and the short `{"field": value}`. Field names come from
fields.py, values are bound parameters, and size and depth are limited, so that nothing a client writes becomes SQL.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.common.database import Database
from core.common.errors import bad_request
from core.field_types import MAX_SORTS
from core.models import SearchInput
from core.records import fields, query_string
from core.records.fields import FieldPath, field_path, field_value, kind_of, shown
from core.store import search as stored
from core.store.search import EVERYTHING as MATCHES_ALL
from core.store.search import NOTHING as MATCHES_NONE
from core.store.search import Condition, Conditions, Operator, Sort, Window

MAX_DEPTH = 12  # SQLite's parser limits the depth, and nobody needs deeper queries
MAX_STEPS = 4  # by _parent and _child; each counts as several levels for that parser
MAX_CRITERIA = 200
MAX_VALUES = 1_000
MAX_POSITION = 10**9
DEFAULT_RANGE = "0-10"  # TheHive's default

_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})", re.ASCII)
_OPERATORS: Mapping[str, Operator] = {"_eq": "=", "_gt": ">", "_gte": ">=", "_lt": "<", "_lte": "<="}


EVERYTHING = Window(0, None)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: the JSON texts in the range, and the number of all matches (`X-Total`) if asked for."""

    docs: list[str]
    total: int | None

    @property
    def json(self) -> str:
        return "[" + ",".join(self.docs) + "]"


async def search(
    database: Database,
    kind: str,
    request: SearchInput,
    shorten: Callable[[str], str] | None = None,
    alerts: Sequence[int] | None = None,
) -> SearchResult:
    """Run a search, with `alerts` of their artifacts; `shorten` cuts a document if the answer gets too long.

    Raises ResponderBotError("bad_request") with what is wrong with the query, or if the answer is over its limit.
    """
    conditions = stored.conditions_for(database.dialect)
    condition = parse_query(request.query or {}, kind, conditions)
    sorts, window = parse_sort(request.sort, kind), parse_range(request.range)
    docs, total = await stored.page(
        database, kind, conditions, condition, sorts, window, shorten, alerts, count=request.count
    )
    return SearchResult(docs, total)


def parse_query(query: Any, kind: str, conditions: Conditions) -> Condition:
    """A client's query as one of these conditions. Raises ResponderBotError("bad_request")."""
    return _QueryParser(conditions).parse(query, kind, 0)


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

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._criteria = 0
        self._steps = 0
        self._level = 0
        """How many steps the criterion is away from the object."""

    def parse(self, query: Any, kind: str, depth: int) -> Condition:
        self._criteria += 1
        if depth > MAX_DEPTH or self._criteria > MAX_CRITERIA:
            raise bad_request(f"The query is too large; at most {MAX_CRITERIA} criteria, nested {MAX_DEPTH} deep")
        query = _mapping("A criterion", query)
        if "_field" in query:
            return self._equals(query["_field"], _required(query, "_value", "_field"), kind)
        parts = [self._criterion(key, value, kind, depth) for key, value in query.items()]
        return parts[0] if len(parts) == 1 else self._conditions.all(parts)

    def _criterion(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if key in ("_and", "_or"):
            return self._combination(key, value, kind, depth)
        if key == "_not":
            return self._conditions.negate(self.parse(value, kind, depth + 1))
        if key in ("_parent", "_child"):
            return self._relative(key, value, kind, depth)
        if key == "_string":
            return self.parse(query_string.parse(value), kind, depth + 1)
        if key in _LEAVES:
            return _LEAVES[key](self, value, kind)
        if key.startswith("_") and key != "_id":
            raise bad_request(f"There is no operator {shown(key)}; there are {', '.join(OPERATORS)}")
        return self._equals(key, value, kind)

    def _combination(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if not isinstance(value, list):
            raise bad_request(f"{key} takes a list of criteria")
        parts = [self.parse(item, kind, depth + 1) for item in value]
        return self._conditions.all(parts) if key == "_and" else self._conditions.any(parts)

    def _relative(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        query = _mapping(key, value)
        relative = kind_of(query.get("_type"))
        criterion = {"_id": query["_id"]} if "_id" in query else query.get("_query") or {}
        if key == "_parent":
            return self._ancestor(kind, relative, criterion, depth)
        if kind not in fields.PARENTS.get(relative, ()):
            raise bad_request(f"A {kind} has no child of the type {relative}")
        return self._conditions.child(relative, self._step(criterion, relative, depth), self._level)

    def _ancestor(self, kind: str, relative: str, query: Any, depth: int) -> Condition:
        """A step for each parent: the case of a log is the case of its task."""
        parents = fields.PARENTS.get(kind, ())
        if relative in parents:
            return self._conditions.parent(relative, self._step(query, relative, depth), self._level)
        if len(parents) != 1:
            raise bad_request(f"There is no parent of the type {relative} here")
        outer = {"_parent": {"_type": relative, "_query": query}}
        return self._conditions.parent(parents[0], self._step(outer, parents[0], depth), self._level)

    def _step(self, query: Any, kind: str, depth: int) -> Condition:
        """The condition of an object one step away."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise bad_request(f"A query takes at most {MAX_STEPS} steps to parents and children")
        self._level += 1
        condition = self.parse(query, kind, depth + 1)
        self._level -= 1
        return condition

    # --- criteria on a field ----------------------------------------------------------------------------------------

    def among(self, value: Any, kind: str) -> Condition:
        query = _mapping("_in", value)
        path, values = field_path(query.get("_field"), kind), _required(query, "_values", "_in")
        if not isinstance(values, list) or len(values) > MAX_VALUES:
            raise bad_request(f"_in takes a list of at most {MAX_VALUES} `_values`")
        checked = [field_value(path, item) for item in values if item is not None]
        condition = self._conditions.one_of(path, checked, self._level)
        return self._conditions.any([condition, self._lacks(path)]) if None in values else condition

    def between(self, value: Any, kind: str) -> Condition:
        query = _mapping("_between", value)
        path = field_path(query.get("_field"), kind)
        low, high = _required(query, "_from", "_between"), _required(query, "_to", "_between")
        return self._conditions.all([self._compare(path, ">=", low), self._compare(path, "<=", high)])

    def ordered(self, operator: str, value: Any, kind: str) -> Condition:
        name, operand = _field_and_value(operator, value)
        return self._compare(field_path(name, kind), _OPERATORS[operator], operand)

    def differs(self, value: Any, kind: str) -> Condition:
        name, operand = _field_and_value("_ne", value)
        return self._conditions.negate(self._equals(name, operand, kind))

    def like(self, operator: str, before: str, after: str, value: Any, kind: str) -> Condition:
        """A text in which `*` stands for any characters; without one, the whole text must be equal."""
        name, operand = _field_and_value(operator, value)
        if not isinstance(operand, str) or len(operand) > fields.MAX_PATTERN_CHARS:
            raise bad_request(f"{operator} takes a text of at most {fields.MAX_PATTERN_CHARS} characters")
        path = field_path(name, kind)
        if path.column in fields.ID_COLUMNS:
            path = replace(path, column="")  # a pattern is matched with the text of the id
        if path.is_anywhere:
            return self._within(path, operand)
        return self._conditions.like(path, _pattern(before + operand + after), self._level)

    def match(self, value: Any, kind: str) -> Condition:
        """A text within the field's text; a number, a flag or an id must be equal."""
        name, operand = _field_and_value("_match", value)
        if not isinstance(operand, str):
            return self._equals(name, operand, kind)
        if len(operand) > fields.MAX_PATTERN_CHARS:
            raise bad_request(f"_match takes a text of at most {fields.MAX_PATTERN_CHARS} characters")
        path = field_path(name, kind)
        if path.check is fields.number or path.check is fields.flag:
            return self._compare(path, "=", _literal(operand))
        if path.column in fields.ID_COLUMNS:
            return self._compare(path, "=", operand)
        return self._within(path, operand)

    def contains(self, value: Any, kind: str) -> Condition:
        name = value.get("_field") if isinstance(value, Mapping) else value
        path = field_path(name, kind)
        if isinstance(name, str) and name.startswith("customFields."):
            path = FieldPath((path.texts[0].rpartition(".")[0],))  # so that a field whose value is null is found too
        return self._conditions.has(path, self._level)

    def _equals(self, name: Any, value: Any, kind: str) -> Condition:
        return self._compare(field_path(name, kind), "=", value)

    def _compare(self, path: FieldPath, operator: Operator, value: Any) -> Condition:
        if value is None:
            if operator != "=":
                raise bad_request("null can only be compared for equality")
            return self._lacks(path)
        if path.is_anywhere:
            if operator != "=":
                raise bad_request("keyword can be searched for, but not compared")
            return self._within(path, str(fields.text(value)))
        return self._conditions.compare(path, operator, field_value(path, value), self._level)

    def _within(self, path: FieldPath, text: str) -> Condition:
        return self._conditions.like(path, _pattern(f"*{text}*"), self._level)

    def _lacks(self, path: FieldPath) -> Condition:
        return self._conditions.negate(self._conditions.has(path, self._level))


def _literal(text: str) -> Any:
    """The number or boolean in a text; any other text unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_Leaf = Callable[[_QueryParser, Any, str], Condition]


def _ordered(operator: str) -> _Leaf:
    return lambda parser, value, kind: parser.ordered(operator, value, kind)


def _like(operator: str, before: str = "", after: str = "") -> _Leaf:
    return lambda parser, value, kind: parser.like(operator, before, after, value, kind)


_LEAVES: Mapping[str, _Leaf] = {
    "_in": _QueryParser.among,
    "_between": _QueryParser.between,
    **{name: _ordered(name) for name in _OPERATORS},
    "_ne": _QueryParser.differs,
    "_like": _like("_like"),
    "_wildcard": _like("_wildcard"),
    "_startsWith": _like("_startsWith", after="*"),
    "_endsWith": _like("_endsWith", before="*"),
    "_match": _QueryParser.match,
    "_contains": _QueryParser.contains,
    "_has": _QueryParser.contains,
    "_type": lambda _parser, value, kind: MATCHES_ALL if kind_of(value) == kind else MATCHES_NONE,
    "_any": lambda _parser, _value, _kind: MATCHES_ALL,
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


def _sort(name: str, kind: str) -> Sort:
    path = field_path(name[1:] if name[0] in "+-" else name, kind)
    if path.is_anywhere:
        raise bad_request("keyword can be searched for, but not sorted by")
    return Sort(path, descending=name[0] == "-")


def _pattern(text: str) -> str:
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
