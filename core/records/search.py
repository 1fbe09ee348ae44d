"""The query language of `_search`: JSON of a client in, a checked condition out (`semantics.md 2`).

What clients of the interface send is understood: `_and _or _not _in _between _gt _gte _lt _lte _like _contains _parent
_child _id _type _any`, `{"_field", "_value"}` and the short `{"field": value}`. Field names come from the lists below,
values are bound, and size and depth are bounded, so that nothing a client writes becomes SQL.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from core.models import CUSTOM_FIELD_KINDS, INT_LIMIT, MAX_SORTS, SearchInput
from core.records import query_string
from core.store import objects
from core.store import search as stored
from core.store.search import (
    Above,
    All,
    Any_,
    Below,
    Compare,
    Condition,
    Everything,
    Has,
    Like,
    Not,
    OneOf,
    Operator,
    Scalar,
    Sort,
    Window,
)
from core.store.search import JsonPath as StoredPath

MAX_DEPTH = 12  # deeper is no question of a person, and the database's parser has a bottom
MAX_STEPS = 4  # from object to object, by _parent and _child; each weighs several levels for that parser
MAX_CRITERIA = 200
MAX_VALUES = 1_000
MAX_PATTERN_CHARS = 1_000
MAX_POSITION = 10**9
SHOWN_CHARS = 60
NO_ID = -1  # what an id that can't be one stands for: it names nothing
DEFAULT_RANGE = "0-10"  # what public systems answer when nobody asks for more

_STORED = "_id id createdBy updatedBy createdAt updatedAt"
_FIELDS: Mapping[str, str] = {
    "alert": f"{_STORED} type source sourceRef externalLink case title description severity date tags tlp pap status"
    " follow caseTemplate artifacts.dataType artifacts.data artifacts.message artifacts.tlp artifacts.ioc"
    " artifacts.sighted",
    "case": f"{_STORED} caseId title description severity startDate endDate owner flag tlp pap tags status"
    " resolutionStatus impactStatus summary template",
    "case_task": f"{_STORED} title group description order status flag owner startDate endDate dueDate",
    "case_task_log": f"{_STORED} message startDate status owner",
    "case_artifact": f"{_STORED} dataType data message tlp tags ioc sighted startDate attachment.name attachment.id"
    " attachment.hashes attachment.size attachment.contentType",
    "comment": f"{_STORED} message isEdited",
    "case_template": f"{_STORED} name displayName titlePrefix description severity tlp pap tags flag status"
    " tasks.title tasks.group tasks.description",
    "action": "_id id createdBy createdAt responderId responderName responderDefinition engineId engineJobId objectType"
    " objectId status startDate endDate",
}
"""What may be searched and sorted by, for each kind; `customFields.<name>[.<kind>]` comes on top."""
_ACTION_COLUMNS: Mapping[str, str] = {
    "status": "status",
    "createdBy": "created_by",
    "createdAt": "created_at",
    "responderName": "responder_name",
}
"""Where an action's field has a column: there are many actions, and these have an index or are small."""
_ID_COLUMNS = ("id", "object_id")
_WITH_CUSTOM_FIELDS = ("alert", "case", "case_template")

_NUMBERS = frozenset(
    ["createdAt", "updatedAt", "severity", "date", "tlp", "pap", "caseId", "startDate", "endDate", "dueDate"]
) | {"order", "artifacts.tlp", "attachment.size"}
_FLAGS = frozenset(["flag", "follow", "isEdited", "ioc", "sighted", "artifacts.ioc", "artifacts.sighted"])

_PARENTS: Mapping[str, tuple[str, ...]] = {
    "case_task": ("case",),
    "case_task_log": ("case_task",),
    "case_artifact": ("case",),
    "comment": ("alert", "case"),
}
_KIND_NAMES: Mapping[str, str] = {"caseTemplate": "case_template", "task": "case_task"}
"""Where a client's name of a kind is not ours."""

_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})", re.ASCII)
_OPERATORS: Mapping[str, Operator] = {"_eq": "=", "_gt": ">", "_gte": ">=", "_lt": "<", "_lte": "<="}


@dataclass(frozen=True)
class FieldPath(StoredPath):
    """A field: where it is, and what a value of it must be."""

    check: "Callable[[Any], Scalar]" = lambda value: value


EVERYTHING = Window(0, None)


@dataclass(frozen=True)
class Found:
    """What a search answers: JSON texts, and how many there are beyond the range (`X-Total`)."""

    docs: list[str]
    total: int

    @property
    def json(self) -> str:
        return "[" + ",".join(self.docs) + "]"


async def search(
    database: Database, kind: str, asked: SearchInput, shorten: Callable[[str], str] | None = None
) -> Found:
    """Run a search; `shorten` leaves out the bulk of a document where an answer gets too long.

    Raises ResponderBotError("bad_request") with what is wrong with it.
    """
    condition = parse_query(asked.query or {}, kind)
    sorts, window = parse_sort(asked.sort, kind), parse_range(asked.range)
    docs, total = await stored.page(database, kind, condition, sorts, window, shorten)
    return Found(docs, total)


def parse_query(query: Any, kind: str) -> Condition:
    """The condition that a client's query stands for. Raises ResponderBotError("bad_request")."""
    return _Reader().read(query, kind, 0)


def parse_range(text: str | None) -> Window:
    """`all`, or `from-to` with `to` left out of the answer. Raises ResponderBotError("bad_request")."""
    text = text or DEFAULT_RANGE
    if text == "all":
        return EVERYTHING
    match = _RANGE.fullmatch(text)
    start, end = (int(match[1]), int(match[2])) if match else (1, 0)
    if start > end or end > MAX_POSITION:
        raise _bad("`range` is `all`, or two numbers such as 0-10, of which the second is not the smaller")
    return Window(start, end - start)


def parse_sort(asked: str | list[str] | None, kind: str) -> list[Sort]:
    """Fields, each with `+` (or nothing) or `-` before it. Raises ResponderBotError("bad_request")."""
    names = asked.split(",", MAX_SORTS) if isinstance(asked, str) else asked or []
    if len(names) > MAX_SORTS:
        raise _bad(f"`sort` takes at most {MAX_SORTS} fields")
    # In an address a bare `+` arrives as a blank.
    return [_sort(name.strip(), kind) for name in names if name.strip()]


class _Reader:
    """Reads one query; counts what it reads, so that a query is bounded as a whole."""

    def __init__(self) -> None:
        self._criteria = 0
        self._steps = 0

    def read(self, query: Any, kind: str, depth: int) -> Condition:
        self._criteria += 1
        if depth > MAX_DEPTH or self._criteria > MAX_CRITERIA:
            raise _bad(f"The query is too large; at most {MAX_CRITERIA} criteria, nested {MAX_DEPTH} deep")
        query = _mapping("A criterion", query)
        if "_field" in query:
            return _compare(_path(query["_field"], kind), "=", _required(query, "_value", "_field"))
        parts = [self._one(key, value, kind, depth) for key, value in query.items()]
        if not parts:
            return Everything()
        return parts[0] if len(parts) == 1 else All(parts)

    def _one(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if key in ("_and", "_or"):
            return self._several(key, value, kind, depth)
        if key == "_not":
            return Not(self.read(value, kind, depth + 1))
        if key in ("_parent", "_child"):
            return self._relative(key, value, kind, depth)
        if key == "_string":
            return self.read(query_string.parse(value), kind, depth + 1)
        if key in _LEAVES:
            return _LEAVES[key](value, kind)
        if key.startswith("_") and key != "_id":
            raise _bad(f"There is no operator {_shown(key)}; there are {', '.join(OPERATORS)}")
        return _compare(_path(key, kind), "=", value)

    def _several(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        if not isinstance(value, list):
            raise _bad(f"{key} takes a list of criteria")
        parts = [self.read(item, kind, depth + 1) for item in value]
        if key == "_and":
            return All(parts) if parts else Everything()
        return Any_(parts) if parts else Not(Everything())

    def _relative(self, key: str, value: Any, kind: str, depth: int) -> Condition:
        query = _mapping(key, value)
        far = _kind(query.get("_type"))
        wanted = {"_id": query["_id"]} if "_id" in query else query.get("_query") or {}
        if key == "_child":
            if kind not in _PARENTS.get(far, ()):
                raise _bad(f"A {kind} has no child of the type {far}")
            self._step()
            return Below(self.read(wanted, far, depth + 1), far)
        return self._above(kind, far, wanted, depth)

    def _above(self, kind: str, far: str, wanted: Any, depth: int) -> Condition:
        """One step for each parent: a log's case is its task's case."""
        parents = _PARENTS.get(kind, ())
        if far not in parents and len(parents) != 1:
            raise _bad(f"There is no parent of the type {far} here")
        self._step()
        if far in parents:
            return Above(self.read(wanted, far, depth + 1), far)
        return Above(self._above(parents[0], far, wanted, depth + 1), parents[0])

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _bad(f"A query takes at most {MAX_STEPS} steps to parents and children")


def _leaf_in(value: Any, kind: str) -> Condition:
    query = _mapping("_in", value)
    path, values = _path(query.get("_field"), kind), _required(query, "_values", "_in")
    if not isinstance(values, list) or len(values) > MAX_VALUES:
        raise _bad(f"_in takes a list of at most {MAX_VALUES} `_values`")
    checked = [_value(path, item) for item in values if item is not None]
    among = OneOf(path, json.dumps(checked))
    return Any_([among, Not(Has(path))]) if None in values else among


def _leaf_between(value: Any, kind: str) -> Condition:
    query = _mapping("_between", value)
    path = _path(query.get("_field"), kind)
    low, high = _required(query, "_from", "_between"), _required(query, "_to", "_between")
    return All([_compare(path, ">=", low), _compare(path, "<=", high)])


def _leaf_order(operator: str) -> Callable[[Any, str], Condition]:
    def read(value: Any, kind: str) -> Condition:
        name, wanted = _field_and_value(operator, value)
        return _compare(_path(name, kind), _OPERATORS[operator], wanted)

    return read


def _leaf_ne(value: Any, kind: str) -> Condition:
    name, wanted = _field_and_value("_ne", value)
    return Not(_compare(_path(name, kind), "=", wanted))


def _leaf_like(operator: str, before: str, after: str) -> Callable[[Any, str], Condition]:
    """A text with `*` for anything; without a `*` it is the whole text."""

    def read(value: Any, kind: str) -> Condition:
        name, wanted = _field_and_value(operator, value)
        if not isinstance(wanted, str) or len(wanted) > MAX_PATTERN_CHARS:
            raise _bad(f"{operator} takes a text of at most {MAX_PATTERN_CHARS} characters")
        path = _path(name, kind)
        if path.column in _ID_COLUMNS:
            path = replace(path, column="")  # a pattern is one of the id's text
        if path.is_anywhere:
            return _within(path, wanted)
        return Like(path, _pattern(before + wanted + after))

    return read


def _leaf_match(value: Any, kind: str) -> Condition:
    """A text somewhere in the field's text; a number, a flag or an id as a whole."""
    name, wanted = _field_and_value("_match", value)
    if not isinstance(wanted, str):
        return _compare(_path(name, kind), "=", wanted)
    if len(wanted) > MAX_PATTERN_CHARS:
        raise _bad(f"_match takes a text of at most {MAX_PATTERN_CHARS} characters")
    path = _path(name, kind)
    if path.check is _number or path.check is _flag:
        return _compare(path, "=", _literal(wanted))
    if path.column in _ID_COLUMNS:
        return _compare(path, "=", wanted)
    return _within(path, wanted)


def _within(path: FieldPath, wanted: str) -> Condition:
    return Like(path, _pattern(f"*{wanted}*"))


def _literal(text: str) -> Any:
    """The number, true or false that a text stands for; any other text as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _leaf_contains(value: Any, kind: str) -> Condition:
    name = value.get("_field") if isinstance(value, Mapping) else value
    path = _path(name, kind)
    if isinstance(name, str) and name.startswith("customFields."):
        return Has(FieldPath((path.texts[0].rpartition(".")[0],)))  # it is there also when its value is null
    return Has(path)


def _leaf_type(value: Any, kind: str) -> Condition:
    return Everything() if _kind(value) == kind else Not(Everything())


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
        raise _bad(f"{operator} takes one field and its value")
    return next(iter(query.items()))


def _compare(path: FieldPath, operator: Operator, value: Any) -> Condition:
    if value is None:
        if operator != "=":
            raise _bad("null can only be compared for being equal")
        return Not(Has(path))
    if path.is_anywhere:
        if operator != "=":
            raise _bad("keyword can be looked for, and not compared")
        return _within(path, str(_text(value)))
    return Compare(path, operator, _value(path, value))


def _path(name: Any, kind: str) -> FieldPath:
    """Where a field of a kind is. Raises ResponderBotError("bad_request") where there is none."""
    if not isinstance(name, str):
        raise _bad("A field is named by a text")
    if name.startswith("customFields.") and kind in _WITH_CUSTOM_FIELDS:
        return _custom_path(name)
    if name == query_string.ANYWHERE and kind != "action":  # of actions this would read all reports
        return FieldPath(("$",), is_anywhere=True, check=_text)
    if name not in _FIELDS[kind].split():
        raise _bad(f"There is no field {_shown(name)}; there are {', '.join(_FIELDS[kind].split())}")
    if name in ("_id", "id"):
        return FieldPath(("$.id",), column="id", check=_text)
    if kind == "action" and name == "objectId":
        return FieldPath((f"$.{name}",), column="object_id", check=_text)
    if kind == "action" and name in _ACTION_COLUMNS:
        return FieldPath((f"$.{name}",), column=_ACTION_COLUMNS[name], check=_number if name in _NUMBERS else _text)
    check = _number if name in _NUMBERS else _flag if name in _FLAGS else _text
    if name.startswith("attachment."):
        return FieldPath((f"$.{name}",), many=name == "attachment.hashes", check=check)
    outer, _, inner = name.partition(".")
    many = name == "tags" or bool(inner)
    return FieldPath((f"$.{outer}",), many=many, inner=f"$.{inner}" if inner else "", check=check)


def _custom_path(name: str) -> FieldPath:
    """`customFields.<name>` is the value whatever its kind, `customFields.<name>.<kind>` the one of that kind."""
    field = name.removeprefix("customFields.")
    head, dot, kind = field.rpartition(".")
    kinds = [kind] if dot and kind in CUSTOM_FIELD_KINDS else list(CUSTOM_FIELD_KINDS)
    field = head if len(kinds) == 1 else field
    # A quoted key of a path can hold anything but these.
    if not field or any(char in field for char in '"\\\0') or len(field) > MAX_PATTERN_CHARS:
        raise _bad(f"There is no custom field {_shown(field)}")
    return FieldPath(tuple(f'$.customFields."{field}".{one}' for one in kinds), check=_scalar)


def _sort(name: str, kind: str) -> Sort:
    path = _path(name[1:] if name[0] in "+-" else name, kind)
    if path.is_anywhere:
        raise _bad("keyword can be looked for, and not sorted by")
    return Sort(path, descending=name[0] == "-")


def _scalar(value: Any) -> Scalar:
    if isinstance(value, bool | str) or (isinstance(value, int) and -INT_LIMIT <= value < INT_LIMIT):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise _bad("A value is a text, a number that fits into 64 bits, true or false; use _in for several")


def _number(value: Any) -> Scalar:
    if isinstance(value, bool | str):
        raise _bad(f"{_shown(value)} is no number, and this field holds numbers")
    return _scalar(value)


def _flag(value: Any) -> Scalar:
    if not isinstance(value, bool):
        raise _bad(f"{_shown(value)} is neither true nor false, and this field is one of them")
    return value


def _text(value: Any) -> Scalar:
    if not isinstance(value, str):
        raise _bad(f"{_shown(value)} is no text, and this field holds text; use _in for several")
    return value


def _value(path: FieldPath, value: Any) -> Scalar:
    checked = path.check(value)
    if path.column not in _ID_COLUMNS:
        return checked
    return objects.parse_id(str(checked)) or NO_ID


def _pattern(text: str) -> str:
    """A text with `*` as a pattern of LIKE."""
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    return re.sub(r"\*+", "%", escaped)


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _bad(f"{what} takes an object, not {_shown(value)}")
    return value


def _required(query: Mapping[str, Any], key: str, what: str) -> Any:
    if key not in query:
        raise _bad(f"{what} needs {key}")
    return query[key]


def _kind(name: Any) -> str:
    kind = _KIND_NAMES.get(name, name) if isinstance(name, str) else ""
    if kind not in _FIELDS:
        raise _bad(f"There is no type {_shown(name)}; there are {', '.join(_FIELDS)}")
    return kind


def _shown(value: Any) -> str:
    """What a client wrote, short enough for a sentence."""
    return repr(value)[:SHOWN_CHARS]


def _bad(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", f"{sentence}.")
